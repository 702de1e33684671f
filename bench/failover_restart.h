/* How long a cluster is without answers when all its superpeers are killed (SIGKILL) at once, while a
 * client registers names, and started again on their folders; and whether a name is lost.
 *
 *   names ... more names ... | kill, wait | start ..... a name of each shard is found | read all
 *                                          <---------- the time that counts -------->
 *
 * Names that were acknowledged must all be found; those under way when the superpeers were killed may
 * be. */
#ifndef SH_BENCH_FAILOVER_RESTART_H
#define SH_BENCH_FAILOVER_RESTART_H

#include "bench/cluster.h"

/* One cluster for all runs, so that its names are registered once. Zeros: no run yet. */
struct sh_failover_restart {
    struct sh_bench_cluster cluster;
    uint64_t count;        /* names that are registered before the first run */
    uint64_t more;         /* names behind them, registered while superpeers are killed */
    uint8_t *acknowledged; /* of each of `more`: 1 once a run was told that it is registered */
};

/* One run; the first one starts the cluster and registers `count` names (0: a million). EDIFFERS:
 * names are lost; else as the library's calls. */
SHOAL_NODISCARD enum shoal_err sh_failover_restart_run(struct sh_failover_restart *restart,
                                                       uint64_t count, uint64_t *took_ns_out);
/* Stops the cluster and frees what the runs have left, also where there was none. */
void sh_failover_restart_end(struct sh_failover_restart *restart);

#endif
