/* A cluster of real processes for benchmarks: three superpeers and up to two peers, children of this
 * process with default options. Logs and, if the cluster is durable, journals are in a folder of the
 * cluster's own under TMPDIR (or /tmp), so all superpeers share one disk.
 *
 *   FOLDER/superpeer1/log, journal.*    FOLDER/peer1/log ...
 *
 * Threads: those that start children must be the process's only ones (child.h); only _kill may be
 * called by any thread. */
#ifndef SH_BENCH_CLUSTER_H
#define SH_BENCH_CLUSTER_H

#include "bench/child.h"
#include "shoal/shoal.h"

#define SH_BENCH_SUPERPEERS 3
#define SH_BENCH_PEERS_MAX 2
#define SH_BENCH_TIMEOUT_NS UINT64_C(30000000000)

struct sh_bench_cluster {
    char folder[128]; /* "": none */
    char addresses[SH_BENCH_SUPERPEERS][32];
    char all[SH_BENCH_SUPERPEERS * 32];
    struct sh_child superpeers[SH_BENCH_SUPERPEERS], peers[SH_BENCH_PEERS_MAX];
    unsigned peers_count;
    bool is_durable; /* else the superpeers' option registry is memory */
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
                                                      const char *name, unsigned peers,
                                                      bool is_durable);
/* Stops all processes, also those stopped by SIGSTOP, and removes the folder. A cluster of zeros is
 * allowed. */
void sh_bench_cluster_stop(struct sh_bench_cluster *cluster);

/* Sends SIGKILL to all superpeers. */
void sh_bench_cluster_kill(const struct sh_bench_cluster *cluster);
/* Waits until all superpeers, which have been killed, have ended. */
void sh_bench_cluster_reap(struct sh_bench_cluster *cluster);
/* Starts all superpeers, which have been reaped, on their folders. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_restart(struct sh_bench_cluster *cluster);

/* Opens a store of the cluster, as soon as one of its superpeers listens. Errors of shoal_open. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_open(const struct sh_bench_cluster *cluster,
                                                     uint64_t timeout_ns, shoal **store_out);
/* Waits until each superpeer is a replica of each shard, so that the first superpeer that fails takes
 * nothing along. ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_bench_cluster_await(shoal *store);

/* The index of the superpeer that became the registry's leader last, as the logs say. */
unsigned sh_bench_cluster_leader(const struct sh_bench_cluster *cluster);
/* Whether a log of the superpeers, or of the peers, has that text. */
bool sh_bench_cluster_says(const struct sh_bench_cluster *cluster, bool of_superpeers,
                           const char *text);

#endif
