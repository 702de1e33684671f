/* Which keys a benchmark touches: drawn uniformly, or by Zipf's law.
 *
 * Zipfian draws follow Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD
 * 1994), with theta 0.99 as in YCSB; ranks are scattered over the keys, so that popular ones are
 * not neighbours. The same seed draws the same keys. One thread per generator. */
#ifndef SH_BENCH_ZIPF_H
#define SH_BENCH_ZIPF_H

#include <stdint.h>

#include "base/hash.h"

/* Zipf's constants for a number of keys; shared, read only. */
struct sh_zipf {
    uint64_t count;
    double alpha;
    double zeta_count; /* sum of rank^-theta over all ranks */
    double eta;
    double second; /* above this, u * zeta_count draws neither of the first two ranks */
};

/* Takes time in proportion to count (about 50 ns each); count at least 2. */
void sh_zipf_init(struct sh_zipf *zipf, uint64_t count);

/* The rank, 0 (most popular) to count - 1, for a random number from 0 to below 1. */
uint64_t sh_zipf_rank(const struct sh_zipf *zipf, double random);

struct sh_keys {
    uint64_t state;
    uint64_t count;
    const struct sh_zipf *zipf; /* NULL: uniform */
};

static inline uint64_t sh_keys_random(struct sh_keys *keys)
{
    /* splitmix64 */
    keys->state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(keys->state);
}

/* The next key, 0 to count - 1. */
static inline uint64_t sh_keys_next(struct sh_keys *keys)
{
    uint64_t random = sh_keys_random(keys);
    if (!keys->zipf)
        return (uint64_t)(((unsigned __int128)random * keys->count) >> 64);
    uint64_t rank = sh_zipf_rank(keys->zipf, (double)(random >> 11) * 0x1p-53);
    return sh_mix64(rank + UINT64_C(0x5851f42d4c957f2d)) % keys->count;
}

#endif
