/* What `shoal bench lookup` asks: a superpeer and peers in one process, and where their chunks are.
 *
 * There are no chunks: a superpeer believes what a batch's source says, so each peer tells it the
 * layout by COMMITs, as if chunks had been moved. Each of `nodes` peers has made an equal part of
 * `count` chunks, of which `percent` are now with others, in runs of `length` (ranges_layout.h). */
#ifndef SH_BENCH_LOOKUP_SERVER_H
#define SH_BENCH_LOOKUP_SERVER_H

#include "bench/bench.h"
#include "bench/child.h"
#include "shoal/shoal.h"

#define SH_LOOKUP_PEERS_MAX 64

struct sh_lookup_shape {
    uint64_t count;
    unsigned nodes;
    uint64_t percent; /* 0: none has moved */
    uint64_t length;
    unsigned threads;
    double seconds;
    uint64_t seed;
};

/* Starts the nodes, and tells the superpeer what has moved; the port is the superpeer's. Before the
 * process has other threads. */
SHOAL_NODISCARD enum shoal_err sh_lookup_server_start(const struct sh_lookup_shape *shape,
                                                      enum sh_placement placement,
                                                      struct sh_child *server_out);

/* How many chunks each peer has made. */
static inline uint64_t sh_lookup_each(const struct sh_lookup_shape *shape)
{
    return shape->count / shape->nodes;
}

#endif
