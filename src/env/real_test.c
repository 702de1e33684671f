/* The real clock and random numbers. */
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "env/env.h"

static void clock_never_goes_back(void **state)
{
    (void)state;
    struct sh_clock clock = sh_real_clock();
    uint64_t last = sh_now(&clock);
    for (int i = 0; i < 100000; i++) {
        uint64_t now = sh_now(&clock);
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > 0);
}

static uint64_t boot_time(void)
{
    struct timespec now;
    if (clock_gettime(CLOCK_BOOTTIME, &now))
        abort();
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* A namespace whose machine seems to have been suspended for 1,000 s. False: not permitted here. */
static bool seem_suspended(void)
{
    static const char offset[] = "boottime 1000 0";
    if (unshare(CLONE_NEWTIME))
        return false;
    int fd = open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC);
    bool is_done = fd >= 0 && write(fd, offset, strlen(offset)) == (ssize_t)strlen(offset);
    if (fd >= 0)
        close(fd);
    return is_done;
}

/* 0: the clock goes by the time since boot, which counts suspensions. */
static int clock_looked_at(void)
{
    struct sh_clock clock = sh_real_clock();
    uint64_t before = boot_time(), now = sh_now(&clock), after = boot_time();
    return now >= before && now <= after ? 0 : 1;
}

#define REFUSED 2 /* no namespace may be made: all clocks agree where nothing was suspended */

/* In a process of its own: the namespace is its children's. */
static int child_looks(void)
{
    int status = 1;
    if (!seem_suspended())
        return clock_looked_at() == 0 ? REFUSED : 1;
    pid_t child = fork();
    if (child == 0)
        _exit(clock_looked_at());
    return child > 0 && waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static void clock_counts_suspensions(void **state)
{
    (void)state;
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(child_looks());
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == REFUSED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void wall_clock_is_in_this_century(void **state)
{
    (void)state;
    struct sh_clock clock = sh_real_clock();
    const uint64_t year_ns = UINT64_C(365) * 86400 * 1000000000;
    uint64_t wall = clock.wall_ns(clock.arg);
    assert_true(wall > 50 * year_ns);
    assert_true(wall < 131 * year_ns);
}

static void random_bytes_differ_and_stay_inside(void **state)
{
    (void)state;
    struct sh_random random = sh_real_random();
    uint8_t first[1000] = {0};
    uint8_t second[1000] = {0};
    random.fill(random.arg, first, sizeof first - 8);
    random.fill(random.arg, second, sizeof second - 8);
    assert_memory_not_equal(first, second, sizeof first);
    const uint8_t untouched[8] = {0};
    assert_memory_equal(first + sizeof first - 8, untouched, 8);
    unsigned seen[256] = {0};
    unsigned kinds = 0;
    for (size_t i = 0; i < sizeof first - 8; i++)
        kinds += seen[first[i]]++ == 0;
    /* 992 bytes show about 251 of 256 values; fewer than 150 has a chance of below 2^-400. */
    assert_true(kinds > 150);
    random.fill(random.arg, first, 0);
    assert_true(sh_random64(&random) != sh_random64(&random));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clock_never_goes_back),
        cmocka_unit_test(clock_counts_suspensions),
        cmocka_unit_test(wall_clock_is_in_this_century),
        cmocka_unit_test(random_bytes_differ_and_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
