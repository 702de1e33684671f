/* A cluster of real processes for benchmarks: superpeers and peers, children of this process, with default
 * options but for what the benchmark sets. Logs and, if the cluster is durable, journals and the peers' logs
 * of replicas are in a folder of the cluster's own, so all nodes share one disk.
 *
 *   FOLDER/superpeer1/log, journal.*    FOLDER/peer1/log, replicas.log ...
 *
 * Threads: those that start children must be the process's only ones (child.h); only _kill and _kill_all may be
 * called by any thread. */
#ifndef SH_BENCH_CLUSTER_H
#define SH_BENCH_CLUSTER_H

#include "bench/child.h"
#include "bench/server_node.h"
#include "shoal/shoal.h"

#define SH_BENCH_SUPERPEERS 3 /* of a benchmark that asks for no other number */
#define SH_BENCH_SUPERPEERS_MAX 3
#define SH_BENCH_PEERS_MAX 32
#define SH_BENCH_TIMEOUT_NS UINT64_C(30000000000)

/* The parts of a cluster. Its texts and settings are borrowed until the cluster has been stopped. */
struct sh_bench_cluster_shape {
    const char *name;  /* of the folder */
    const char *above; /* the folder that this one is made in; NULL: TMPDIR, or /tmp */
    unsigned superpeers, peers;
    bool
        is_durable; /* else the superpeers' option registry is memory, and nodes have no data_dir */
    const struct sh_server_setting *settings; /* of each peer, beside those that make it one */
    size_t settings_count;
};

struct sh_bench_cluster {
    struct sh_bench_cluster_shape shape;
    char folder[256]; /* "": none */
    char addresses[SH_BENCH_SUPERPEERS_MAX][32];
    char all[SH_BENCH_SUPERPEERS_MAX * 32];
    struct sh_child superpeers[SH_BENCH_SUPERPEERS_MAX], peers[SH_BENCH_PEERS_MAX];
};

/* Makes a folder "shoal-NAME-..." under TMPDIR, or in another folder (NULL: under TMPDIR); removes one
 * with all that is in it. EIO: folder_out is "". */
SHOAL_NODISCARD enum shoal_err sh_bench_folder_make(const char *name, char *folder_out,
                                                    size_t room);
SHOAL_NODISCARD enum shoal_err sh_bench_folder_make_in(const char *above, const char *name,
                                                       char *folder_out, size_t room);
void sh_bench_folder_remove(const char *folder);

/* Starts superpeers and peers. Superpeers may not serve yet when it returns; peers have joined. On
 * failure nothing is left. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_start(struct sh_bench_cluster *cluster,
                                                      const struct sh_bench_cluster_shape *shape);
/* Stops all processes, also those stopped by SIGSTOP, and removes the folder. A cluster of zeros is
 * allowed. */
void sh_bench_cluster_stop(struct sh_bench_cluster *cluster);

/* Sends SIGKILL to all superpeers. */
void sh_bench_cluster_kill(const struct sh_bench_cluster *cluster);
/* Waits until all superpeers, which have been killed, have ended. */
void sh_bench_cluster_reap(struct sh_bench_cluster *cluster);
/* Starts all superpeers, which have been reaped, on their folders. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_restart(struct sh_bench_cluster *cluster);

/* The same for superpeers and peers: none serves yet when _restart_all returns. */
void sh_bench_cluster_kill_all(const struct sh_bench_cluster *cluster);
void sh_bench_cluster_reap_all(struct sh_bench_cluster *cluster);
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_restart_all(struct sh_bench_cluster *cluster);

/* Opens a store of the cluster, as soon as one of its superpeers listens. Errors of shoal_open. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_open(const struct sh_bench_cluster *cluster,
                                                     uint64_t timeout_ns, shoal **store_out);
/* Waits until each superpeer is a replica of each shard, so that the first superpeer that fails takes
 * nothing along. ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_await(const struct sh_bench_cluster *cluster,
                                                      shoal *store);

/* The index of the superpeer that became the registry's leader last, as the logs say. */
unsigned sh_bench_cluster_leader(const struct sh_bench_cluster *cluster);
/* Whether a log of the superpeers, or of the peers, has that text. */
bool sh_bench_cluster_says(const struct sh_bench_cluster *cluster, bool of_superpeers,
                           const char *text);

/* Lines with that text in those logs, of that time of day (CLOCK_REALTIME) or later. */
struct sh_bench_said {
    unsigned count;
    uint64_t first_ns, last_ns; /* times of day; 0: there is none */
    uint64_t longest_ns;        /* the largest value of the field `ns` */
};
struct sh_bench_said sh_bench_cluster_said(const struct sh_bench_cluster *cluster,
                                           bool of_superpeers, const char *text, uint64_t since_ns);

#endif
