/* Inside the key-value benchmark: its runs, what they cost, and levels of durability beside each other. */
#ifndef SH_BENCH_KV_BENCH_INT_H
#define SH_BENCH_KV_BENCH_INT_H

#include "bench/kv.h"
#include "bench/kv_server.h"

#define SH_KV_REPLICAS 3

/* A run for sh_bench_measure; arg is a struct sh_kv_shape. Where something is logged it has figures, each
 * for one operation, of which all messages begin or end at the owner:
 *
 *   messages, bytes                  that the owner's node sent and got, headers included (sh_msg_stats)
 *   messages_backups, bytes_backups  those of them that the backups' nodes sent and got, leases included
 *   blocks_owner                     pushes to a wire, each with one message or more
 *   cpu_ns_client, _owner, _backups  processor time; those of all backups together
 *   disk_bytes                       that all processes gave their disks, as the kernel counts (/proc/self/io) */
SHOAL_NODISCARD enum shoal_err sh_kv_run(void *arg, const struct sh_bench_flags *flags,
                                         enum sh_placement placement,
                                         struct sh_bench_result *result_out);

/* The servers' counts and the client's time when the measured part began. */
struct sh_kv_costs {
    struct sh_kv_counts counts[SH_KV_SERVERS_MAX];
    uint64_t client_ns;
};
SHOAL_NODISCARD enum shoal_err sh_kv_costs_begin(const struct sh_kv_servers *servers,
                                                 struct sh_kv_costs *costs_out);
/* Fills in the processor time and the figures of a result that has its operations. */
SHOAL_NODISCARD enum shoal_err sh_kv_costs_end(const struct sh_kv_servers *servers,
                                               const struct sh_kv_costs *costs,
                                               const struct sh_kv_shape *shape,
                                               struct sh_bench_result *result);

/* Measures a case at the level of --durability (all: at each) beside async and, with --vs bare, the bare program that
 * does as much (rounds_base.h); prints the bars that apply. */
SHOAL_NODISCARD enum shoal_err sh_kv_levels_measure(struct sh_bench *bench, const char *case_name,
                                                    enum sh_placement placement, const char *extra,
                                                    const struct sh_kv_shape *shape);

#endif
