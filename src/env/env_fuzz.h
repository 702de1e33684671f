/* The outside world of fuzz targets in which parts of a cluster talk: a clock that the target moves, and random
 * numbers that are the same for each input. */
#ifndef SH_ENV_ENV_FUZZ_H
#define SH_ENV_ENV_FUZZ_H

#include "env/env.h"

static uint64_t now_ns, random_count;

/* Before each input. */
static inline void outside_begin(void)
{
    now_ns = UINT64_C(1000000000000);
    random_count = 0;
}

static inline uint64_t clock_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static inline void random_fill(void *arg, void *into, size_t size)
{
    uint8_t *at = into;
    (void)arg;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(++random_count * UINT64_C(0x9E3779B97F4A7C15) >> 56);
}

/* A part of the cluster asks for its thread to be woken; the target runs all steps anyway. */
static inline void wake(void *arg)
{
    (void)arg;
}

#endif
