/* Chunks of a cluster whose bytes are known: made on peers with as few calls as can be, and checked, all or some
 * of them, wherever they are by then.
 *
 * A chunk has a key, from 0; what it holds follows from the key and the seed, so that a chunk that is another one, or
 * what was there before, is noticed. Chunks are made a batch at a time, whose IDs follow each other.
 *
 * Memory: 8 bytes a batch. Threads: filling is one thread's; afterwards any may read. */
#ifndef SH_BENCH_FILLED_H
#define SH_BENCH_FILLED_H

#include <stdatomic.h>
#include <stdbool.h>

#include "bench/bench.h"
#include "bench/store_sizes.h"
#include "shoal/shoal.h"

struct sh_filled {
    /* The caller's. */
    uint64_t count; /* of chunks, at least 1 */
    uint64_t seed;
    struct sh_sizes sizes;
    /* Of what is there. */
    uint64_t *firsts; /* the first ID of each batch */
    uint32_t batch;   /* chunks in each, but for the last one */
    uint64_t made, payload_bytes;
};

/* Makes the chunks: the first part of the keys on the first node, and so on. They are durable when it returns. Errors
 * of libshoal's; ENOMEM. Chunks that it has made by then stay. */
SHOAL_NODISCARD enum shoal_err sh_filled_make(struct sh_filled *filled, shoal *store,
                                              const shoal_nid *nodes, unsigned nodes_count);
/* Forgets the chunks. Zeros are allowed. */
void sh_filled_end(struct sh_filled *filled);

shoal_cid sh_filled_cid(const struct sh_filled *filled, uint64_t key);
uint32_t sh_filled_size(const struct sh_filled *filled, uint64_t key);
/* The chunk's first `size` bytes. */
void sh_filled_bytes(const struct sh_filled *filled, uint64_t key, uint8_t *into, uint32_t size);

/* Reads `samples` chunks (at most all), spread over all keys, with the last one, and compares them. EDIFFERS: logged,
 * which chunk. Else errors of libshoal's. */
SHOAL_NODISCARD enum shoal_err sh_filled_check(const struct sh_filled *filled, shoal *store,
                                               uint64_t samples);
/* Whether the peers that are up have so many chunks in all. EDIFFERS: logged, how many. */
SHOAL_NODISCARD enum shoal_err sh_filled_count_check(shoal *store, uint64_t count);

/* --- Probes: when they are there again --------------------------------------------------------- */

#define SH_PROBES 128
#define SH_PROBE_BYTES 64

struct sh_probe {
    struct sh_probes *probes;
    struct shoal_call call;
    uint64_t key;
    uint8_t bytes[SH_PROBE_BYTES];
};

/* Calls for chunks that are spread over all keys, with the first and the last one: at most this many, so that asking for
 * them hardly costs what is measured. Each waits in the library, which asks again every 20 ms, until its chunk is there. */
struct sh_probes {
    const struct sh_filled *filled;
    unsigned count;
    struct sh_probe probes[SH_PROBES];
    atomic_uint done;
    /* By sh_bench_now_ns, of those that are done. */
    _Atomic uint64_t first_ns, last_ns;
    atomic_int err; /* the first one that failed, or had other bytes */
};

/* Begins them all, and returns at once. */
void sh_probes_begin(struct sh_probes *probes, const struct sh_filled *filled, shoal *store);
/* Whether all are done; one that could not begin is. */
bool sh_probes_are_done(struct sh_probes *probes);
/* Waits for all of them, and says what the first that failed did: EDIFFERS, or an error of libshoal's. */
SHOAL_NODISCARD enum shoal_err sh_probes_wait(struct sh_probes *probes);

#endif
