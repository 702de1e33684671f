/* The simulator's random numbers: splitmix64 (Steele, Lea and Flood 2014), small, splittable and
 * the same on every machine. Nothing here is fit for secrets. One thread. */
#ifndef SIM_PRNG_H
#define SIM_PRNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

#define SH_PRNG_MILLION 1000000u

struct sh_prng {
    uint64_t state;
};

static inline struct sh_prng sh_prng_make(uint64_t seed)
{
    return (struct sh_prng){seed};
}

static inline uint64_t sh_prng_next(struct sh_prng *prng)
{
    prng->state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(prng->state);
}

/* A stream of its own, so that what one part draws does not shift what another draws. */
static inline struct sh_prng sh_prng_split(struct sh_prng *prng)
{
    return sh_prng_make(sh_mix64(sh_prng_next(prng) + UINT64_C(0xd1342543de82ef95)));
}

/* A number below bound, which is at least 1. */
static inline uint64_t sh_prng_below(struct sh_prng *prng, uint64_t bound)
{
    return (uint64_t)(((unsigned __int128)sh_prng_next(prng) * bound) >> 64);
}

/* A number from min to max, both included. */
static inline uint64_t sh_prng_between(struct sh_prng *prng, uint64_t min, uint64_t max)
{
    return min + sh_prng_below(prng, max - min + 1);
}

/* True with a chance of ppm in a million. Draws also when the chance is zero, so that switching one
 * fault off leaves the others where they were. */
static inline bool sh_prng_chance(struct sh_prng *prng, uint32_t ppm)
{
    return sh_prng_below(prng, SH_PRNG_MILLION) < ppm;
}

static inline void sh_prng_fill(struct sh_prng *prng, void *into, size_t size)
{
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(sh_prng_next(prng) >> 32);
}

#endif
