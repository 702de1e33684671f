/* How long a benchmark's chunks are: all alike, or drawn from what was measured in Facebook's
 * caches.
 *
 *   fixed    one size
 *   assocs   associations in the graph cache: half are under 40 bytes, the mean is 1.4 KiB
 *   objects  objects in the graph cache: median 223 bytes, mean 326
 *   etc      values of the ETC pool of memcached, by the published model: 44 % are under 15 bytes,
 *            the mean is 195
 *
 * The same random number draws the same size. Set once, then read by any thread. */
#ifndef SH_BENCH_STORE_SIZES_H
#define SH_BENCH_STORE_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

#define SH_SIZES_BINS_MAX 128

struct sh_sizes {
    const char *name;
    uint32_t most; /* no draw is larger */
    bool is_etc;
    unsigned bins; /* 0: fixed, or ETC's model */
    uint32_t ends[SH_SIZES_BINS_MAX];
    uint64_t sums[SH_SIZES_BINS_MAX]; /* of the weights up to and with this bin */
};

/* The names above, ended by NULL. */
extern const char *const sh_sizes_names[];

/* name: one of the names (borrowed), NULL for fixed; `fixed` is the size that all then have. */
void sh_sizes_init(struct sh_sizes *sizes, const char *name, uint32_t fixed);
/* All sizes from least (at least 1) to most alike. */
void sh_sizes_uniform(struct sh_sizes *sizes, uint32_t least, uint32_t most);

/* random: 64 uniform bits. */
uint32_t sh_sizes_draw(const struct sh_sizes *sizes, uint64_t random);

#endif
