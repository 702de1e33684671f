#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/zipf.h"

#define KEYS 1000
#define DRAWS 400000
#define SEED 7 /* the draws are the same in every run: no test of chance */

static void ranks_follow_the_law(void **state)
{
    (void)state;
    struct sh_zipf zipf;
    struct sh_keys random = {.state = SEED};
    static unsigned hits[KEYS];
    sh_zipf_init(&zipf, KEYS);
    memset(hits, 0, sizeof hits);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t rank = sh_zipf_rank(&zipf, (double)(sh_keys_random(&random) >> 11) * 0x1p-53);
        assert_true(rank < KEYS);
        hits[rank]++;
    }
    /* The first two ranks are drawn exactly; the others by an approximation that is close in sums.
     */
    for (unsigned rank = 0; rank < 2; rank++) {
        double expected = DRAWS * pow(rank + 1.0, -0.99) / zipf.zeta_count;
        assert_true(fabs(hits[rank] - expected) < 0.02 * expected);
    }
    double expected = 0;
    double seen = 0;
    for (unsigned rank = 0; rank < 100; rank++) {
        expected += DRAWS * pow(rank + 1.0, -0.99) / zipf.zeta_count;
        seen += hits[rank];
    }
    assert_true(fabs(seen - expected) < 0.05 * expected);
}

static void extremes_stay_inside(void **state)
{
    (void)state;
    for (uint64_t count = 2; count < 200; count++) {
        struct sh_zipf zipf;
        sh_zipf_init(&zipf, count);
        assert_int_equal(sh_zipf_rank(&zipf, 0), 0);
        assert_true(sh_zipf_rank(&zipf, 1 - 0x1p-53) < count);
    }
}

static void uniform_keys_are_even(void **state)
{
    (void)state;
    struct sh_keys keys = {.state = SEED, .count = KEYS};
    static unsigned hits[KEYS];
    for (unsigned i = 0; i < DRAWS; i++) {
        uint64_t key = sh_keys_next(&keys);
        assert_true(key < KEYS);
        hits[key]++;
    }
    for (unsigned key = 0; key < KEYS; key++)
        assert_true(hits[key] > 250 && hits[key] < 550);
}

static void a_seed_draws_the_same(void **state)
{
    (void)state;
    struct sh_zipf zipf;
    sh_zipf_init(&zipf, KEYS);
    struct sh_keys one = {.state = SEED, .count = KEYS, .zipf = &zipf};
    struct sh_keys two = one;
    struct sh_keys other = {.state = SEED + 1, .count = KEYS, .zipf = &zipf};
    unsigned differ = 0;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t key = sh_keys_next(&one);
        assert_true(key == sh_keys_next(&two));
        differ += key != sh_keys_next(&other);
    }
    assert_true(differ > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_follow_the_law),
        cmocka_unit_test(extremes_stay_inside),
        cmocka_unit_test(uniform_keys_are_even),
        cmocka_unit_test(a_seed_draws_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
