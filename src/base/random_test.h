/* Random numbers for tests. */
#ifndef SH_BASE_RANDOM_TEST_H
#define SH_BASE_RANDOM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* How often a test with several threads goes round: less often under the thread sanitizer, where
 * each round takes ten times as long, and a race shows in any of them. */
#ifdef __SANITIZE_THREAD__
#define TEST_ROUNDS(rounds) ((rounds) / 5)
#else
#define TEST_ROUNDS(rounds) (rounds)
#endif

/* The seed that SHOAL_TEST_SEED gives, else the test's own; never 0. It is printed, so that a
 * failure can be repeated. */
static inline uint64_t test_seed(uint64_t own)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    uint64_t used = given ? strtoull(given, NULL, 0) : own;
    print_message("SHOAL_TEST_SEED=%llu\n", (unsigned long long)used);
    return used ? used : 1;
}

/* Draws a number (xorshift64, Marsaglia 2003). The state is a seed at first, and not 0. */
static inline uint64_t test_draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
