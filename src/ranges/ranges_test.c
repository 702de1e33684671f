/* The tree of ranges against a plain array with one value for each ID. */
#include "ranges/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/hash.h"

#define IDS 4000
#define OPERATIONS 60000

static uint64_t rng_state;

static uint64_t rng(void)
{
    rng_state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(rng_state);
}

static shoal_cid id(uint64_t v)
{
    return (shoal_cid){v};
}

/* The model: 0 means that no range holds the ID. */
static uint64_t model[IDS];

static bool model_next(uint64_t from, uint64_t base, struct sh_range *out)
{
    while (from < IDS && !model[from])
        from++;
    if (from == IDS)
        return false;
    uint64_t first = from;
    uint64_t last = from;
    while (first > 0 && model[first - 1] == model[from])
        first--;
    while (last + 1 < IDS && model[last + 1] == model[from])
        last++;
    *out = (struct sh_range){id(base + first), id(base + last), model[from]};
    return true;
}

static size_t model_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < IDS; i++)
        count += model[i] && (!i || model[i - 1] != model[i]);
    return count;
}

static void assert_same(const struct sh_range *a, const struct sh_range *b)
{
    assert_int_equal(a->first.v, b->first.v);
    assert_int_equal(a->last.v, b->last.v);
    assert_int_equal(a->value, b->value);
}

static void compare_at(struct sh_ranges *ranges, uint64_t base, uint64_t at)
{
    struct sh_range got, want;
    bool has = sh_ranges_find(ranges, id(base + at), &got);
    assert_int_equal(has, model[at] != 0);
    bool wanted = model_next(at, base, &want);
    if (has)
        assert_same(&got, &want);
    has = sh_ranges_next(ranges, id(base + at), &got);
    assert_int_equal(has, wanted);
    if (has)
        assert_same(&got, &want);
}

static void random_operations(uint64_t base, unsigned values, uint64_t longest)
{
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(4096, &ranges), SHOAL_OK);
    memset(model, 0, sizeof model);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        uint64_t first = rng() % IDS;
        uint64_t last = first + rng() % longest;
        if (last >= IDS)
            last = IDS - 1;
        /* Phases of mostly setting and mostly removing make the tree grow and shrink. */
        bool removes = rng() % 8 < (i / 5000 % 2 ? 5 : 1);
        uint64_t value = removes ? 0 : 1 + rng() % values;
        enum shoal_err err = removes
                                 ? sh_ranges_remove(ranges, id(base + first), id(base + last))
                                 : sh_ranges_set(ranges, id(base + first), id(base + last), value);
        assert_int_equal(err, SHOAL_OK);
        for (uint64_t at = first; at <= last; at++)
            model[at] = value;
        compare_at(ranges, base, rng() % IDS);
        compare_at(ranges, base, first);
        compare_at(ranges, base, last);
        if (i % 500 == 0) {
            sh_ranges_check(ranges);
            assert_int_equal(sh_ranges_count(ranges), model_count());
        }
        if (i % 25000 == 24999) {
            sh_ranges_clear(ranges);
            memset(model, 0, sizeof model);
        }
    }
    for (uint64_t at = 0; at < IDS; at++)
        compare_at(ranges, base, at);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
}

static void test_model(void **state)
{
    (void)state;
    random_operations(0, 3, 40);
    random_operations(UINT64_MAX - IDS + 1, 3, 40);
    random_operations(UINT64_C(7) << 48, 1000000, 2); /* hardly ever merges: a deep tree */
}

static void test_edges(void **state)
{
    (void)state;
    struct sh_ranges *ranges;
    struct sh_range range;
    assert_int_equal(sh_ranges_create(64, &ranges), SHOAL_OK);
    assert_false(sh_ranges_find(ranges, id(0), &range));
    assert_false(sh_ranges_next(ranges, id(0), &range));
    assert_int_equal(sh_ranges_remove(ranges, id(0), id(UINT64_MAX)), SHOAL_OK);
    assert_int_equal(sh_ranges_set(ranges, id(0), id(UINT64_MAX), 9), SHOAL_OK);
    assert_true(sh_ranges_find(ranges, id(UINT64_MAX), &range));
    assert_int_equal(range.first.v, 0);
    assert_int_equal(sh_ranges_set(ranges, id(5), id(5), 4), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), 3);
    assert_int_equal(sh_ranges_set(ranges, id(5), id(5), 9), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), 1);
    assert_int_equal(sh_ranges_remove(ranges, id(1), id(UINT64_MAX)), SHOAL_OK);
    assert_true(sh_ranges_next(ranges, id(0), &range));
    assert_int_equal(range.last.v, 0);
    assert_false(sh_ranges_next(ranges, id(1), &range));
    sh_ranges_destroy(ranges);
    sh_ranges_destroy(NULL);
}

/* A tree at its limit refuses, is unchanged, and works on after something was taken out. */
static void test_limit(void **state)
{
    (void)state;
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(64, &ranges), SHOAL_OK);
    uint64_t at = 0;
    while (sh_ranges_set(ranges, id(at), id(at), at) == SHOAL_OK)
        at += 2;
    assert_true(at > (uint64_t)2 * 16 * 50);
    size_t count = sh_ranges_count(ranges);
    assert_int_equal(count, at / 2);
    assert_true(sh_ranges_bytes(ranges) <= 65 * 776);
    assert_int_equal(sh_ranges_set(ranges, id(0), id(0), 5), SHOAL_ELIMIT);
    assert_int_equal(sh_ranges_count(ranges), count);
    assert_int_equal(sh_ranges_remove(ranges, id(0), id(0)), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), count - 1);
    sh_ranges_check(ranges);
    sh_ranges_clear(ranges);
    assert_int_equal(sh_ranges_count(ranges), 0);
    for (uint64_t again = 0; again < at; again += 2)
        assert_int_equal(sh_ranges_set(ranges, id(again), id(again), again), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), count);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
}

int main(void)
{
    const char *given = getenv("SHOAL_TEST_SEED");
    rng_state = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("seed %llu (SHOAL_TEST_SEED)\n", (unsigned long long)rng_state);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
