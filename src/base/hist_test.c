#include "base/hist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#define VALUES 20000

static struct sh_hist hist, other;

static void test_empty(void **state)
{
    (void)state;
    sh_hist_reset(&hist);
    assert_int_equal(hist.count, 0);
    assert_int_equal(sh_hist_percentile(&hist, 99.99), 0);
    assert_true(sh_hist_mean(&hist) == 0);
    sh_hist_reset(&other);
    sh_hist_merge(&hist, &other);
    assert_int_equal(hist.count, 0);
}

static void test_one_value_is_every_percentile(void **state)
{
    (void)state;
    const uint64_t values[] = {0, 1, 63, 64, 65, 127, 128, 1000003, UINT64_MAX >> 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        sh_hist_reset(&hist);
        sh_hist_add(&hist, values[i]);
        assert_true(sh_hist_percentile(&hist, 0) == values[i]);
        assert_true(sh_hist_percentile(&hist, 50) == values[i]);
        assert_true(sh_hist_percentile(&hist, 100) == values[i]);
        assert_true(hist.min == values[i] && hist.max == values[i]);
    }
}

static void test_ranks_are_not_rounded_past(void **state)
{
    (void)state;
    /* 9999 small values and a large one: 99.99 % of the values are small, exactly. */
    sh_hist_reset(&hist);
    for (int i = 0; i < 9999; i++)
        sh_hist_add(&hist, 5);
    sh_hist_add(&hist, 60);
    assert_int_equal(sh_hist_percentile(&hist, 99.99), 5);
    assert_int_equal(sh_hist_percentile(&hist, 99.995), 60);
    assert_int_equal(sh_hist_percentile(&hist, 100), 60);
}

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void check_against_sorted(const uint64_t *sorted, size_t count, const struct sh_hist *of)
{
    /* In hundredths of a percent, so that the model's rank needs no floating point. */
    static const uint64_t percents[] = {0,    1,    100,  1000, 2500, 5000,
                                        7500, 9000, 9900, 9990, 9999, 10000};
    for (size_t i = 0; i < sizeof percents / sizeof percents[0]; i++) {
        uint64_t rank = (percents[i] * count + 9999) / 10000;
        uint64_t exact = sorted[rank > 0 ? rank - 1 : 0];
        uint64_t got = sh_hist_percentile(of, (double)percents[i] / 100);
        assert_true(got >= exact);
        assert_true(got - exact <= exact / 64);
        assert_true(got <= of->max);
    }
}

static void fill(uint64_t *values, size_t count, unsigned *seed, int shape)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = ((uint64_t)rand_r(seed) << 32) ^ (uint64_t)rand_r(seed);
        if (shape == 0)
            value %= 50; /* only the exact buckets */
        else if (shape == 1)
            value %= 1000000;
        else
            value = (value >> 1) >> (rand_r(seed) % 63); /* every power of two */
        values[i] = value;
    }
}

static void test_percentiles_against_a_sorted_array(void **state)
{
    (void)state;
    unsigned seed = 42;
    printf("seed %u\n", seed);
    uint64_t *values = malloc(VALUES * sizeof *values);
    assert_non_null(values);
    for (int shape = 0; shape < 3; shape++) {
        fill(values, VALUES, &seed, shape);
        sh_hist_reset(&hist);
        sh_hist_reset(&other);
        /* Half of them by way of another histogram. */
        uint64_t sum = 0;
        for (size_t i = 0; i < VALUES; i++) {
            sh_hist_add(i % 2 ? &hist : &other, values[i]);
            sum += values[i];
        }
        sh_hist_merge(&hist, &other);
        qsort(values, VALUES, sizeof *values, by_value);
        assert_int_equal(hist.count, VALUES);
        assert_true(hist.sum == sum);
        assert_true(hist.min == values[0] && hist.max == values[VALUES - 1]);
        check_against_sorted(values, VALUES, &hist);
    }
    free(values);
}

static void test_mean(void **state)
{
    (void)state;
    sh_hist_reset(&hist);
    sh_hist_add(&hist, 1);
    sh_hist_add(&hist, 2);
    assert_true(sh_hist_mean(&hist) == 1.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),
        cmocka_unit_test(test_one_value_is_every_percentile),
        cmocka_unit_test(test_ranks_are_not_rounded_past),
        cmocka_unit_test(test_percentiles_against_a_sorted_array),
        cmocka_unit_test(test_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
