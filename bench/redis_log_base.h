/* A baseline of `shoal bench log`: a Redis server with an append-only file that it syncs each second,
 * and a client that sends the same updates, hundreds in flight on one connection. */
#ifndef SH_BENCH_REDIS_LOG_BASE_H
#define SH_BENCH_REDIS_LOG_BASE_H

#include "bench/log_plan.h"

/* A run for sh_bench_measure; arg is a struct sh_log_plan. The load, where it is not what is measured,
 * comes before. It ends with the last answer: what came in the last second may not be on the disk.
 * ENONAME: redis-server is not installed. EIO, ETIMEOUT, ECONNLOST, EPROTO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_redis_log_base_run(void *arg, const struct sh_bench_flags *flags,
                                                     enum sh_placement placement,
                                                     struct sh_bench_result *result_out);

#endif
