/* The server process of the key-value benchmark: a whole cluster in it, one superpeer and one peer,
 * which are what shoald runs. The superpeer only gives out node IDs, answers one lookup and
 * receives heartbeats; it never spins. The peer idles as the placement says. */
#ifndef SH_BENCH_KV_SERVER_H
#define SH_BENCH_KV_SERVER_H

#include "bench/child.h"
#include "bench/kv.h"

/* Starts it as side 1 and waits until it serves; clients open server_out->port. Stop it with
 * sh_child_stop. Errors of sh_child_start. */
SHOAL_NODISCARD enum shoal_err sh_kv_server_start(const struct sh_kv_shape *shape,
                                                  enum sh_placement placement,
                                                  struct sh_child *server_out);

#endif
