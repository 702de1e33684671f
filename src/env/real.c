/* The real clock and real random numbers. */
#include <errno.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"
#include "env/env.h"

#define NS_PER_S UINT64_C(1000000000)

static uint64_t read_clock(clockid_t id)
{
    struct timespec now;
    int failed = clock_gettime(id, &now);
    SH_ASSERT(!failed); /* the two clocks asked for exist on every Linux */
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC stands still while the machine is suspended, and a lease that is counted by it
 * would outlive what the others grant. CLOCK_BOOTTIME runs on, costs the same (the kernel maps both
 * into the process), and is as monotonic. */
static uint64_t real_now_ns(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_BOOTTIME);
}

static uint64_t real_wall_ns(void *arg)
{
    (void)arg;
    return read_clock(CLOCK_REALTIME);
}

struct sh_clock sh_real_clock(void)
{
    return (struct sh_clock){.now_ns = real_now_ns, .wall_ns = real_wall_ns};
}

/* getrandom without flags waits only for the kernel's generator to be seeded at boot, and may be
 * interrupted or give less when asked for more than 256 bytes. */
static void real_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    uint8_t *at = into;
    while (size > 0) {
        ssize_t got = getrandom(at, size, 0);
        if (got < 0) {
            SH_ASSERT(errno == EINTR);
            continue;
        }
        at += got;
        size -= (size_t)got;
    }
}

struct sh_random sh_real_random(void)
{
    return (struct sh_random){.fill = real_fill};
}
