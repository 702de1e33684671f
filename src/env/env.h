/* The outside world behind four doors: clock, random numbers, disk, wires. DESIGN: The outside
 * world. No other module calls the kernel for these, so that sim/ can stand in for all of them. */
#ifndef SH_ENV_ENV_H
#define SH_ENV_ENV_H

#include <stddef.h>
#include <stdint.h>

#include "env/disk.h"
#include "env/wire.h"

struct sh_clock {
    /* Monotonic; starts anywhere; runs on while the process is stopped or the machine suspended. */
    uint64_t (*now_ns)(void *arg);
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

/* The real clock (CLOCK_BOOTTIME, CLOCK_REALTIME) and random numbers (getrandom). Any thread.
 *
 * The kernel's waits with a timeout (futex, epoll, io_uring) count by CLOCK_MONOTONIC, so a thread
 * that sleeps when its machine is suspended sleeps for the rest of its time after the resume. So
 * waits are relative, whoever wakes reads the clock again before it decides what is due, and what
 * must not happen after a deadline (an answer after the lease) is decided by a look at the clock
 * where it would happen, never by a timer. A node's threads sleep for a heartbeat at most. */
struct sh_clock sh_real_clock(void);
struct sh_random sh_real_random(void);

#endif
