/* What simulated tests begin with: how much is logged, and a seed. */
#ifndef TESTS_SEED_INT_H
#define TESTS_SEED_INT_H

#include "base/log.h"
#include "base/random_test.h"
#include "env/env.h"

/* Logs what SHOAL_TEST_LOG says, else errors only: most of what goes wrong here is meant to. */
static inline void test_logs_set(void)
{
    const char *levels = getenv("SHOAL_TEST_LOG");
    const char *bad;
    size_t bad_len;
    assert_int_equal(sh_log_levels_set(levels ? levels : "error", &bad, &bad_len), SHOAL_OK);
}

/* A seed that nobody has had before, or that of SHOAL_TEST_SEED; printed. */
static inline uint64_t test_seed_fresh(void)
{
    struct sh_random random = sh_real_random();
    return test_seed(sh_random64(&random) >> 16);
}

#endif
