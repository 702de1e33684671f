/* What simulated tests begin with: how much is logged, and their seeds. */
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
    if (sh_log_levels_set(levels ? levels : "error", &bad, &bad_len)) {
        print_error("SHOAL_TEST_LOG: %.*s\n", (int)bad_len, bad);
        exit(1);
    }
}

/* A seed that nobody has had before, or that of SHOAL_TEST_SEED; printed. */
static inline uint64_t test_seed_fresh(void)
{
    struct sh_random random = sh_real_random();
    return test_seed(sh_random64(&random) >> 16);
}

/* Runs as many fresh seeds as SHOAL_TEST_SEEDS says, else `usual`, from test_seed_fresh on: `at`
 * counts them from 0. */
static inline void test_fresh_seeds(uint64_t usual, void (*run)(uint64_t seed, uint64_t at))
{
    const char *text = getenv("SHOAL_TEST_SEEDS");
    uint64_t count = text && *text ? strtoull(text, NULL, 0) : usual;
    uint64_t first = test_seed_fresh();
    print_message("%llu seeds from there on\n", (unsigned long long)count);
    for (uint64_t at = 0; at < count; at++)
        run(first + at, at);
}

#endif
