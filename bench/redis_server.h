/* A Redis server for the time of a run. */
#ifndef SH_BENCH_REDIS_SERVER_H
#define SH_BENCH_REDIS_SERVER_H

#include "bench/child.h"

#define SH_REDIS_START_NS UINT64_C(30000000000)

/* Starts redis-server from PATH on a free port, without snapshots or append-only file, as side 1,
 * and waits until it answers. Stop it with sh_child_stop. ENONAME: not installed. EUNREACHABLE: it
 * ends, or does not answer within half a minute. */
SHOAL_NODISCARD enum shoal_err sh_redis_server_start(enum sh_placement placement,
                                                     struct sh_child *server_out);
/* The same with an append-only file in that folder, synced each second. The server loads that file before it answers, and has timeout_ns for it
 * instead. */
SHOAL_NODISCARD enum shoal_err sh_redis_server_start_logged(enum sh_placement placement,
                                                            const char *folder, uint64_t timeout_ns,
                                                            struct sh_child *server_out);

#endif
