/* The baseline that the key-value benchmark is held against: a Redis server, and a client for it
 * that does nothing but what is measured.
 *
 * redis-server comes from PATH, listens on a free port of loopback, stores nothing on disk (no
 * snapshots, no append-only file), and is stopped by its process ID. The client keeps
 * `outstanding` commands in flight on one connection for each thread: what has been answered is
 * asked anew, in one send. Keys are decimal texts of 8 digits or more. Where the placement spins,
 * the client does; a Redis server always blocks when it has nothing to do. */
#ifndef SH_BENCH_REDIS_BASE_H
#define SH_BENCH_REDIS_BASE_H

#include "bench/kv.h"

/* A run for sh_bench_measure; arg is a const struct sh_kv_shape. Starts a server, loads `count`
 * objects, measures for `seconds`, and stops it. ENONAME when redis-server is not installed; EIO,
 * ETIMEOUT, ECONNLOST, EPROTO (an answer that is none), EINTERNAL (a wrong value), ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_redis_base_run(void *arg, const struct sh_bench_flags *flags,
                                                 enum sh_placement placement,
                                                 struct sh_bench_result *result_out);

#endif
