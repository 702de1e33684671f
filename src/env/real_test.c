/* The real clock and random numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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
        cmocka_unit_test(wall_clock_is_in_this_century),
        cmocka_unit_test(random_bytes_differ_and_stay_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
