/* A baseline of the benchmark of recovery: how long a Redis server that was killed takes to have its objects again, when it is started on
 * its files.
 *
 * redis-server from PATH has an append-only file (synced each second, otherwise as by default). It is given `count` objects,
 * whose bytes are those of the chunks (bench/filled.h) and whose keys are decimal texts of 8 digits or more; then BGREWRITEAOF has it write a base of the
 * file, which is a snapshot (RDB), so that starting is as fast as it gets. It is killed with SIGKILL, its files leave the page
 * cache, and it is started again. Measured is the time from the start until PING is answered, which Redis does once it has loaded everything. That is the
 * start of one process of a known address: no failure is detected, and nothing is brought to another machine. */
#ifndef SH_BENCH_REDIS_RESTART_BASE_H
#define SH_BENCH_REDIS_RESTART_BASE_H

#include "bench/bench.h"

struct sh_redis_restart {
    const char *above; /* the folder that the server's is made in; NULL: TMPDIR, or /tmp */
    uint64_t count;
    uint32_t size;
    uint64_t seed;
};

/* A run for sh_bench_measure; arg is a const struct sh_redis_restart. Afterwards the number of objects is compared, and all values are.
 * ENONAME when redis-server is not installed; EDIFFERS; EIO, ETIMEOUT, ECONNLOST, EPROTO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_redis_restart_base_run(void *arg,
                                                         const struct sh_bench_flags *flags,
                                                         enum sh_placement placement,
                                                         struct sh_bench_result *result_out);

#endif
