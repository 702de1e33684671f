/* The outside world behind four doors: clock, random numbers, disk, wires. DESIGN: The outside
 * world. No other module calls the kernel for these, so that sim/ can stand in for all of them. */
#ifndef SH_ENV_ENV_H
#define SH_ENV_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "env/disk.h"
#include "env/wire.h"

struct sh_clock {
    uint64_t (*now_ns)(void *arg);  /* monotonic; starts anywhere */
    uint64_t (*wall_ns)(void *arg); /* since 1970, UTC: for people only, may jump */
    void *arg;
};

struct sh_random {
    void (*fill)(void *arg, void *into, size_t size); /* unpredictable bytes; never fails */
    void *arg;
};

struct sh_env {
    struct sh_clock clock;
    struct sh_random random;
    struct sh_disk *disk; /* NULL where nothing is stored */
    struct sh_wire *wire;
};

static inline uint64_t sh_now(const struct sh_clock *clock)
{
    return clock->now_ns(clock->arg);
}

static inline uint64_t sh_random64(const struct sh_random *random)
{
    uint64_t value;
    random->fill(random->arg, &value, sizeof value);
    return value;
}

/* The real clock (CLOCK_MONOTONIC, CLOCK_REALTIME) and random numbers (getrandom). Any thread. */
struct sh_clock sh_real_clock(void);
struct sh_random sh_real_random(void);

#endif
