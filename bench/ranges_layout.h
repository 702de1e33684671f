/* What `shoal bench ranges` measures: a creator's chunks, of which some have migrated in runs.
 *
 * The chunks are cut into as many equal blocks as there are runs; each block's run lies at a drawn
 * place in it and belongs to one of 64 other owners. All is computed from the seed, nothing kept,
 * so that a billion chunks cost no memory but that of the system under test. */
#ifndef SH_BENCH_RANGES_LAYOUT_H
#define SH_BENCH_RANGES_LAYOUT_H

#include "base/hash.h"
#include "ranges/ranges.h"

#define SH_LAYOUT_FIRST ((UINT64_C(7) << 48) + 1) /* the first chunk's ID */
#define SH_LAYOUT_OWNERS 64

struct sh_layout {
    uint64_t chunks;
    uint64_t percent; /* of the chunks have migrated */
    uint64_t length;  /* chunks in a run */
    uint64_t runs;
    uint64_t seed;
};

/* An owner and its three backups. */
static inline uint64_t sh_layout_value(uint64_t owner)
{
    return owner | (owner + 1) << 16 | (owner + 2) << 32 | (owner + 3) << 48;
}
#define SH_LAYOUT_HOME sh_layout_value(1)

static inline uint64_t sh_layout_block(const struct sh_layout *layout, uint64_t run)
{
    return (uint64_t)((unsigned __int128)layout->chunks * run / layout->runs);
}

/* The run of a block, 0 to runs - 1. */
static inline struct sh_range sh_layout_run(const struct sh_layout *layout, uint64_t run)
{
    uint64_t at = sh_layout_block(layout, run);
    uint64_t room = sh_layout_block(layout, run + 1) - at - layout->length + 1;
    uint64_t drawn = sh_mix64(layout->seed + run * UINT64_C(0x9e3779b97f4a7c15));
    uint64_t first = SH_LAYOUT_FIRST + at + (uint64_t)((unsigned __int128)drawn * room >> 64);
    return (struct sh_range){
        {first}, {first + layout->length - 1}, sh_layout_value(2 + drawn % SH_LAYOUT_OWNERS)};
}

/* The runs in an order that looks random: a permutation of 0 to runs - 1, by mixing within the next
 * power of two until it falls below. */
static inline uint64_t sh_layout_order(const struct sh_layout *layout, uint64_t at)
{
    unsigned bits = 2;
    while (bits < 63 && UINT64_C(1) << bits < layout->runs)
        bits++;
    uint64_t mask = (UINT64_C(1) << bits) - 1;
    do {
        for (unsigned round = 0; round < 3; round++) {
            at = (at + layout->seed) * UINT64_C(0x9e3779b97f4a7c15) & mask;
            at ^= at >> (bits / 2);
        }
    } while (at >= layout->runs);
    return at;
}

/* All ranges in ascending order; begin with zeros and a layout. For sh_ranges_fill. */
struct sh_layout_source {
    const struct sh_layout *layout;
    uint64_t run;
    uint64_t done; /* chunks */
};
static inline bool sh_layout_next(void *arg, struct sh_range *range_out)
{
    struct sh_layout_source *source = arg;
    const struct sh_layout *layout = source->layout;
    uint64_t next = SH_LAYOUT_FIRST + source->done;
    if (source->done == layout->chunks)
        return false;
    struct sh_range run = {{SH_LAYOUT_FIRST + layout->chunks}, {0}, 0};
    if (source->run < layout->runs)
        run = sh_layout_run(layout, source->run);
    if (next < run.first.v) {
        *range_out = (struct sh_range){{next}, {run.first.v - 1}, SH_LAYOUT_HOME};
    } else {
        *range_out = run;
        source->run++;
    }
    source->done = range_out->last.v + 1 - SH_LAYOUT_FIRST;
    return true;
}

#endif
