/* The clusters of the benchmark of recovery (recovery_cluster.h): their sizes from the flags, checked against the machine before
 * anything is started; and such a cluster with its chunks, of which every zone has all its backups. */
#ifndef SH_BENCH_RECOVERY_PLAN_H
#define SH_BENCH_RECOVERY_PLAN_H

#include "bench/cluster.h"
#include "bench/filled.h"

enum sh_recovery_case { SH_RECOVERY_CLUSTER, SH_RECOVERY_UNDER_LOAD, SH_RECOVERY_COLD };

struct sh_recovery_plan {
    enum sh_recovery_case what;
    const char *name;  /* of the case */
    const char *above; /* the folder that the cluster's is made in; NULL: TMPDIR, or /tmp */
    unsigned peers, replicas;
    unsigned threads, reads; /* of the load */
    double seconds;          /* of the load before the peer is killed, and after all is back */
    uint64_t count;          /* of chunks: of the peer that is killed, or of all */
    uint64_t others;         /* of the other peers, beside; 0: none */
    uint32_t size;
    uint64_t seed;
    /* The peers' options, and the texts of their values. */
    char replicas_text[12], store_bytes[24], zone_bytes[24];
    struct sh_server_setting settings[6];
    size_t settings_count;
    char extra[160]; /* of the rows */
};

/* Takes the flags' case. Refuses (ERANGE) what does not go together, and what the machine has not enough free memory or disk
 * for; with_redis: for a Redis server with as many objects as well, which has the machine for itself in its turn. */
SHOAL_NODISCARD enum shoal_err sh_recovery_plan_make(struct sh_bench *bench, const char *name,
                                                     bool with_redis,
                                                     struct sh_recovery_plan *plan_out);

/* A cluster and what is in it. Zeros: there is none. */
struct sh_recovery_rig {
    const struct sh_recovery_plan *plan;
    struct sh_bench_cluster cluster;
    shoal_nid nids[SH_BENCH_PEERS_MAX]; /* of the peers, in the order of cluster.peers */
    struct sh_filled filled, others;
    shoal *store; /* NULL: none is open */
};

/* Starts the cluster of the plan, which is borrowed until the end, opens a store, and makes the chunks: in cold on all peers, else on the first one,
 * and what others have on the others. They are durable, and sampled. After a failure, too, _end is to be called. */
SHOAL_NODISCARD enum shoal_err sh_recovery_rig_begin(struct sh_recovery_rig *rig,
                                                     const struct sh_recovery_plan *plan);
/* Opens the rig's store, which waits for minutes for what is being brought back. */
SHOAL_NODISCARD enum shoal_err sh_recovery_rig_open(struct sh_recovery_rig *rig);
/* Closes it, so that processes may be started. None open is allowed. */
void sh_recovery_rig_close(struct sh_recovery_rig *rig);
/* Reads every chunk, compares its bytes, and counts what the peers have. EDIFFERS; errors of libshoal's. */
SHOAL_NODISCARD enum shoal_err sh_recovery_rig_check(const struct sh_recovery_rig *rig);
/* Closes the store, stops the processes, and removes the folder. */
void sh_recovery_rig_end(struct sh_recovery_rig *rig);

#endif
