/* The linearizability checker: it accepts good histories and refuses bad ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "sim/linear.h"

#define CHECK(h, key) linear_check((h), sizeof(h) / sizeof *(h), (key))
#define OP(k, b, e, x, a, g, r)                                                                    \
    {                                                                                              \
        .key = 1, .begin = (b), .end = (e), .expected = (x), .arg = (a), .got = (g),               \
        .kind = LINEAR_##k, .result = LINEAR_##r                                                   \
    }

static void test_good(void **state)
{
    (void)state;
    const struct linear_op serial[] = {
        OP(GET, 1, 2, 0, 0, 0, ABSENT),    OP(CREATE, 3, 4, 0, 5, 0, OK),
        OP(CREATE, 5, 6, 0, 5, 0, EXISTS), OP(ADD, 7, 8, 0, 2, 7, OK),
        OP(CAS, 9, 10, 5, 1, 0, DIFFERS),  OP(CAS, 11, 12, 7, 1, 0, OK),
        OP(GET, 13, 14, 0, 0, 1, OK),      OP(REMOVE, 15, 16, 0, 0, 0, OK),
        OP(PUT, 17, 18, 0, 9, 0, ABSENT)};
    assert_int_equal(CHECK(serial, 1), LINEAR_YES);
    const struct linear_op overlap[] = {OP(CREATE, 1, 2, 0, 1, 0, OK), OP(PUT, 3, 10, 0, 2, 0, OK),
                                        OP(GET, 4, 5, 0, 0, 1, OK), OP(GET, 6, 7, 0, 0, 2, OK)};
    assert_int_equal(CHECK(overlap, 1), LINEAR_YES);
    const struct linear_op pending[] = {OP(CREATE, 1, LINEAR_PENDING, 0, 3, 0, OK),
                                        OP(GET, 2, 3, 0, 0, 0, ABSENT), OP(GET, 4, 5, 0, 0, 3, OK)};
    assert_int_equal(CHECK(pending, 1), LINEAR_YES);
}

static void test_bad(void **state)
{
    (void)state;
    const struct linear_op back[] = {OP(CREATE, 1, 2, 0, 1, 0, OK), OP(PUT, 3, 10, 0, 2, 0, OK),
                                     OP(GET, 4, 5, 0, 0, 2, OK), OP(GET, 6, 7, 0, 0, 1, OK)};
    assert_int_equal(CHECK(back, 1), LINEAR_NO);
    assert_int_equal(CHECK(back, 2), LINEAR_YES); /* another key has no calls here */
    const struct linear_op lost[] = {OP(CREATE, 1, 2, 0, 0, 0, OK), OP(ADD, 3, 6, 0, 1, 1, OK),
                                     OP(ADD, 4, 5, 0, 1, 1, OK)};
    assert_int_equal(CHECK(lost, 1), LINEAR_NO);
    const struct linear_op twice[] = {OP(CREATE, 1, 4, 0, 1, 0, OK), OP(CREATE, 2, 3, 0, 2, 0, OK)};
    assert_int_equal(CHECK(twice, 1), LINEAR_NO);
    const struct linear_op stale[] = {OP(CREATE, 1, 2, 0, 1, 0, OK), OP(REMOVE, 3, 4, 0, 0, 0, OK),
                                      OP(GET, 5, 6, 0, 0, 1, OK)};
    assert_int_equal(CHECK(stale, 1), LINEAR_NO);
}

/* Names: conditions, and what is said to have been there before. */
static void test_names(void **state)
{
    (void)state;
    const struct linear_op good[] = {
        OP(TAKE, 1, 2, 0, 0, 0, ABSENT), OP(SET, 3, 4, 0, 5, 0, OK),
        OP(SET, 5, 6, 0, 6, 5, OK),      OP(TAKE_IF, 7, 8, 5, 0, 6, DIFFERS),
        OP(TAKE_IF, 9, 10, 6, 0, 6, OK), OP(CAS, 11, 12, 6, 7, 0, ABSENT),
        OP(CREATE, 13, 14, 0, 8, 0, OK), OP(TAKE, 15, 16, 0, 0, 8, OK),
        OP(GET, 17, 18, 0, 0, 0, ABSENT)};
    assert_int_equal(CHECK(good, 1), LINEAR_YES);
    const struct linear_op other[] = {OP(SET, 1, 2, 0, 5, 0, OK), OP(SET, 3, 4, 0, 6, 0, OK)};
    assert_int_equal(CHECK(other, 1), LINEAR_NO);
    const struct linear_op ignored[] = {OP(SET, 1, 2, 0, 5, 0, OK), OP(TAKE_IF, 3, 4, 4, 0, 5, OK)};
    assert_int_equal(CHECK(ignored, 1), LINEAR_NO);
    const struct linear_op back[] = {OP(SET, 1, 2, 0, 5, 0, OK), OP(TAKE, 3, 4, 0, 0, 5, OK),
                                     OP(GET, 5, 6, 0, 0, 5, OK)};
    assert_int_equal(CHECK(back, 1), LINEAR_NO);
}

/* Sizes: what a put fills, what growing leaves zero and what shrinking cuts. */
static void test_sizes(void **state)
{
    (void)state;
#define SIZED(k, b, e, a, s, r, g, gs, gf)                                                         \
    {                                                                                              \
        .key = 1, .begin = (b), .end = (e), .arg = (a), .size = (s), .kind = LINEAR_##k,           \
        .result = LINEAR_##r, .got = (g), .got_size = (gs), .got_filled = (gf)                     \
    }
    struct linear_op h[] = {
        SIZED(CREATE, 1, 2, 0, 16, OK, 0, 0, 0),   SIZED(GET, 3, 4, 0, 0, OK, 0, 16, 0),
        SIZED(PUT, 5, 6, 7, 8, SIZE, 0, 0, 0),     SIZED(PUT, 7, 8, 7, 16, OK, 0, 0, 0),
        SIZED(RESIZE, 9, 10, 0, 8, OK, 0, 0, 0),   SIZED(RESIZE, 11, 12, 0, 24, OK, 0, 0, 0),
        SIZED(GET, 13, 14, 0, 0, OK, 7, 24, 8),    SIZED(REMOVE, 15, 16, 0, 0, OK, 0, 0, 0),
        SIZED(CREATE, 17, 18, 9, 24, OK, 0, 0, 0), SIZED(GET, 19, 20, 0, 0, OK, 9, 24, 24)};
    assert_int_equal(CHECK(h, 1), LINEAR_YES);
    h[6].got_filled = 16;
    assert_int_equal(CHECK(h, 1), LINEAR_NO);
    h[6].got_filled = 8;
    h[6].got_size = 16;
    assert_int_equal(CHECK(h, 1), LINEAR_NO);
    h[6].got_size = 24;
    h[2].result = LINEAR_OK;
    assert_int_equal(CHECK(h, 1), LINEAR_NO);
}

static void test_shortest(void **state)
{
    (void)state;
    const struct linear_op h[] = {OP(CREATE, 1, 2, 0, 1, 0, OK), OP(GET, 3, 4, 0, 0, 1, OK),
                                  OP(PUT, 5, 12, 0, 2, 0, OK),   OP(GET, 6, 7, 0, 0, 3, OK),
                                  OP(GET, 8, 9, 0, 0, 1, OK),    OP(GET, 13, 14, 0, 0, 2, OK)};
    struct linear_op part[LINEAR_OPS_MAX];
    assert_int_equal(linear_shortest(h, 6, 1, part), 4);
    assert_true(part[2].end == LINEAR_PENDING);
    assert_int_equal(part[3].got, 3);
    assert_int_equal(linear_shrink(part, 4), 3); /* the first get is no part of the trouble */
    assert_int_equal(part[2].got, 3);
    linear_print(stdout, part, 3);
    assert_int_equal(linear_shortest(h, 3, 1, part), 0);
}

/* Calls answered in a known order, then stretched so that they overlap; and one false read. */
static void test_random(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 50; seed++) {
        struct linear_op h[100];
        uint64_t r = seed * UINT64_C(0x9e3779b97f4a7c15), value = 0;
        for (unsigned i = 0; i < 100; i++) {
            uint64_t at = 1000 + 10 * i, arg = 1 + test_draw(&r) % 4;
            enum linear_kind kind = i == 0              ? LINEAR_CREATE
                                    : test_draw(&r) % 2 ? LINEAR_GET
                                                        : LINEAR_ADD;
            value += kind == LINEAR_GET ? 0 : arg;
            h[i] = (struct linear_op){.key = 1,
                                      .begin = at - test_draw(&r) % 25,
                                      .arg = arg,
                                      .end = at + 1 + test_draw(&r) % 25,
                                      .got = value,
                                      .kind = kind,
                                      .result = LINEAR_OK};
        }
        if (CHECK(h, 1) != LINEAR_YES)
            fail_msg("seed %" PRIu64 " refused", seed);
        h[1 + test_draw(&r) % 99].got = 1000000;
        h[0].got = 0;
        unsigned wrong = 0;
        for (unsigned i = 0; i < 100; i++)
            wrong += h[i].got == 1000000;
        assert_int_equal(wrong, 1);
        if (CHECK(h, 1) != LINEAR_NO)
            fail_msg("seed %" PRIu64 " accepted", seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),     cmocka_unit_test(test_bad),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_shortest), cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
