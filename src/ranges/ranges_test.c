/* The tree of ranges against a plain array with one value for each slot of IDs. */
#include "base/random_test.h"
#include "ranges/ranges.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/hash.h"

#define SLOTS_MOST 150000
#if defined(__SANITIZE_THREAD__)
#define SLOWER 40
#elif defined(__SANITIZE_ADDRESS__)
#define SLOWER 10
#else
#define SLOWER 1
#endif

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

/* A world of slots, `unit` IDs each from base on. */
struct world {
    uint64_t base, unit;
    uint32_t slots;
    uint32_t values;  /* so many different ones */
    uint32_t longest; /* slots in one operation */
    uint32_t operations;
};

static uint64_t values_before; /* those that are set are larger than so much */

/* The model: 0 means that no range holds the slot. */
static uint64_t model[SLOTS_MOST];

static uint64_t first_id(const struct world *world, uint32_t slot)
{
    return world->base + slot * world->unit;
}

static uint64_t last_id(const struct world *world, uint32_t slot)
{
    return first_id(world, slot) + (world->unit - 1);
}

static bool model_next(const struct world *world, uint32_t from, struct sh_range *out)
{
    while (from < world->slots && !model[from])
        from++;
    if (from == world->slots)
        return false;
    uint32_t first = from;
    uint32_t last = from;
    while (first > 0 && model[first - 1] == model[from])
        first--;
    while (last + 1 < world->slots && model[last + 1] == model[from])
        last++;
    *out = (struct sh_range){id(first_id(world, first)), id(last_id(world, last)), model[from]};
    return true;
}

static size_t model_count(const struct world *world)
{
    size_t count = 0;
    for (uint32_t i = 0; i < world->slots; i++)
        count += model[i] && (!i || model[i - 1] != model[i]);
    return count;
}

static void assert_same(const struct sh_range *a, const struct sh_range *b)
{
    assert_int_equal(a->first.v, b->first.v);
    assert_int_equal(a->last.v, b->last.v);
    assert_int_equal(a->value, b->value);
}

static void compare_at(const struct sh_ranges *ranges, const struct world *world, uint32_t slot)
{
    struct sh_range got, want;
    shoal_cid cid = id(first_id(world, slot) + rng() % world->unit);
    bool has = sh_ranges_find(ranges, cid, &got);
    assert_int_equal(has, model[slot] != 0);
    bool wanted = model_next(world, slot, &want);
    if (has)
        assert_same(&got, &want);
    has = sh_ranges_next(ranges, cid, &got);
    assert_int_equal(has, wanted);
    if (has)
        assert_same(&got, &want);
}

/* Lookups of many IDs at a time say what those of one say. */
static void compare_multi(const struct sh_ranges *ranges, const struct world *world)
{
    shoal_cid cids[50] = {{0}};
    struct sh_range got[50], want;
    size_t count = rng() % 51;
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        cids[i] = id(first_id(world, (uint32_t)(rng() % world->slots)) + rng() % world->unit);
    size_t said = sh_ranges_find_multi(ranges, cids, count, got);
    for (size_t i = 0; i < count; i++) {
        bool has = sh_ranges_find(ranges, cids[i], &want);
        assert_int_equal(got[i].first.v <= got[i].last.v, has);
        if (has)
            assert_same(&got[i], &want);
        found += has;
    }
    assert_int_equal(said, found);
}

static void operate(struct sh_ranges *ranges, const struct world *world, bool removes)
{
    uint32_t first = (uint32_t)(rng() % world->slots);
    uint32_t last = first + (uint32_t)(rng() % world->longest);
    if (last >= world->slots)
        last = world->slots - 1;
    uint64_t value = removes ? 0 : values_before + 1 + rng() % world->values;
    shoal_cid from = id(first_id(world, first));
    shoal_cid to = id(last_id(world, last));
    enum shoal_err err =
        removes ? sh_ranges_remove(ranges, from, to) : sh_ranges_set(ranges, from, to, value);
    assert_int_equal(err, SHOAL_OK);
    for (uint32_t slot = first; slot <= last; slot++)
        model[slot] = value;
    compare_at(ranges, world, (uint32_t)(rng() % world->slots));
    compare_at(ranges, world, first);
    compare_at(ranges, world, last);
}

static void compare_all(const struct sh_ranges *ranges, const struct world *world)
{
    struct sh_range got, want;
    shoal_cid from = {0};
    uint32_t slot = 0;
    for (;;) {
        bool more = slot < world->slots && model_next(world, slot, &want);
        assert_int_equal(sh_ranges_next(ranges, from, &got), more);
        if (!more)
            return;
        assert_same(&got, &want);
        if (got.last.v == UINT64_MAX)
            break;
        from.v = got.last.v + 1;
        slot = (uint32_t)((got.last.v - world->base) / world->unit) + 1;
    }
    assert_true(!model_next(world, slot, &want) || want.last.v == UINT64_MAX);
}

static void random_operations(const struct world *world)
{
    struct sh_ranges *ranges;
    assert_true(world->slots <= SLOTS_MOST);
    assert_int_equal(sh_ranges_create(1 << 16, &ranges), SHOAL_OK);
    memset(model, 0, sizeof model);
    uint32_t operations = world->operations / SLOWER;
    for (uint32_t i = 0; i < operations; i++) {
        /* Phases of mostly setting and mostly removing make the tree grow and shrink. */
        bool shrinks = i / (operations / 8) % 2;
        operate(ranges, world, rng() % 8 < (shrinks ? 5 : 1));
        if (i % (operations / 64) == 0) {
            sh_ranges_check(ranges);
            assert_int_equal(sh_ranges_count(ranges), model_count(world));
        }
        if (i % 100 == 0)
            compare_multi(ranges, world);
        if (i == operations / 16 * 15) {
            sh_ranges_clear(ranges);
            memset(model, 0, sizeof model);
        }
    }
    for (uint32_t slot = 0; slot < world->slots; slot += 7)
        compare_at(ranges, world, slot);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
}

static void near_ids_merge(void **state)
{
    (void)state;
    random_operations(&(struct world){0, 1, 4000, 3, 40, 500000});
    random_operations(&(struct world){UINT64_MAX - 3999, 1, 4000, 3, 40, 300000});
    random_operations(&(struct world){0, 1, 4000, 3, 3500, 20000});
}

/* Hardly ever merges: a tree of three levels, and more values than have numbers. */
static void many_values_make_a_deep_tree(void **state)
{
    (void)state;
    random_operations(&(struct world){UINT64_C(7) << 48, 1, SLOTS_MOST, 10000000, 2, 1500000});
    random_operations(&(struct world){UINT64_C(7) << 48, 1, SLOTS_MOST, 9, 3, 500000});
}

/* Some of the values are small, so that they are their own numbers; others are not. */
static void values_around_the_small_ones(void **state)
{
    (void)state;
    values_before = (1 << 14) - 6;
    random_operations(&(struct world){0, 1, 4000, 10, 40, 200000});
    values_before = 0;
    random_operations(&(struct world){0, 1, 30000, 70000, 3, 200000});
}

static void far_ids_and_the_end_of_all(void **state)
{
    (void)state;
    uint64_t unit = UINT64_C(1) << 33;
    random_operations(&(struct world){0, unit, 60000, 5, 9, 300000});
    random_operations(
        &(struct world){UINT64_MAX - 60000 * unit + 1, unit, 60000, 10000000, 3, 300000});
}

static void edges(void **state)
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
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
    sh_ranges_destroy(NULL);
}

/* A tree at its limit refuses and is unchanged; taking whole ranges out works however often. */
static void the_limit_refuses_and_removals_go_on(void **state)
{
    (void)state;
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(64, &ranges), SHOAL_OK);
    uint64_t at = 0;
    while (sh_ranges_set(ranges, id(at), id(at), at) == SHOAL_OK)
        at += 2;
    assert_true(at > (uint64_t)2 * 40 * 40);
    size_t count = sh_ranges_count(ranges);
    assert_int_equal(count, at / 2);
    struct sh_range range;
    for (unsigned round = 0; round < 20000; round++) {
        uint64_t where = rng() % at;
        bool had = sh_ranges_find(ranges, id(where), &range);
        bool refused = sh_ranges_set(ranges, id(where), id(where), where) == SHOAL_ELIMIT;
        assert_int_equal(sh_ranges_find(ranges, id(where), &range), had || !refused);
        where = rng() % at;
        if (!sh_ranges_next(ranges, id(where), &range))
            continue;
        assert_int_equal(sh_ranges_remove(ranges, range.first, range.last), SHOAL_OK);
        if (round % 500 == 0)
            sh_ranges_check(ranges);
    }
    sh_ranges_clear(ranges);
    assert_int_equal(sh_ranges_count(ranges), 0);
    for (uint64_t again = 0; again < at; again += 2)
        assert_int_equal(sh_ranges_set(ranges, id(again), id(again), again), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), count);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
}

struct source {
    const struct world *world;
    uint32_t slot;
    uint32_t bad_at; /* the slot at which order is broken; 0: none */
};

/* The model's slots, one at a time: the tree has to join them. */
static bool slot_next(void *arg, struct sh_range *range_out)
{
    struct source *source = arg;
    while (source->slot < source->world->slots && !model[source->slot])
        source->slot++;
    if (source->slot == source->world->slots)
        return false;
    uint32_t slot = source->slot++;
    if (source->bad_at && slot >= source->bad_at)
        slot = 0;
    *range_out = (struct sh_range){id(first_id(source->world, slot)),
                                   id(last_id(source->world, slot)), model[slot]};
    return true;
}

static void fill_and_go_on(const struct world *world)
{
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(1 << 14, &ranges), SHOAL_OK);
    for (uint32_t slot = 0; slot < world->slots; slot++)
        model[slot] = rng() % 4 ? 1 + rng() % world->values : 0;
    model[0] = 1;
    for (unsigned round = 0; round < 3; round++) {
        struct source source = {.world = world};
        assert_int_equal(sh_ranges_fill(ranges, slot_next, &source), SHOAL_OK);
        sh_ranges_check(ranges);
        assert_int_equal(sh_ranges_count(ranges), model_count(world));
        compare_all(ranges, world);
        for (unsigned i = 0; i < 2000; i++)
            operate(ranges, world, rng() % 3 == 0);
        model[0] = 1;
        assert_int_equal(sh_ranges_set(ranges, id(first_id(world, 0)), id(last_id(world, 0)), 1),
                         SHOAL_OK);
        sh_ranges_check(ranges);
    }
    struct source bad = {.world = world, .bad_at = world->slots - 2};
    model[world->slots - 1] = 3;
    assert_int_equal(sh_ranges_set(ranges, id(first_id(world, world->slots - 1)),
                                   id(last_id(world, world->slots - 1)), 3),
                     SHOAL_OK);
    assert_int_equal(sh_ranges_fill(ranges, slot_next, &bad), SHOAL_EINVAL);
    sh_ranges_check(ranges);
    compare_all(ranges, world);
    sh_ranges_destroy(ranges);
}

static void fill_is_what_was_given(void **state)
{
    (void)state;
    fill_and_go_on(&(struct world){0, 1, 30000, 3, 20, 0});
    fill_and_go_on(&(struct world){UINT64_MAX - 79999, 1, 80000, 10000000, 20, 0});
    fill_and_go_on(&(struct world){0, UINT64_C(1) << 34, 30000, 1000, 20, 0});
    fill_and_go_on(&(struct world){UINT64_C(9) << 48, 1, 3, 10, 2, 0});
    struct world none = {0, 1, 0, 1, 1, 0};
    struct source source = {.world = &none};
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(64, &ranges), SHOAL_OK);
    assert_int_equal(sh_ranges_set(ranges, id(3), id(8), 1), SHOAL_OK);
    assert_int_equal(sh_ranges_fill(ranges, slot_next, &source), SHOAL_OK);
    assert_int_equal(sh_ranges_count(ranges), 0);
    /* More than fits changes nothing. */
    struct world large = {0, 1, SLOTS_MOST, 1, 1, 0};
    for (uint32_t slot = 0; slot < SLOTS_MOST; slot++)
        model[slot] = slot + 1;
    assert_int_equal(sh_ranges_set(ranges, id(3), id(8), 1), SHOAL_OK);
    source = (struct source){.world = &large};
    assert_int_equal(sh_ranges_fill(ranges, slot_next, &source), SHOAL_ELIMIT);
    assert_int_equal(sh_ranges_count(ranges), 1);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
}

/* Bytes that a range takes when a million singles come in no order: into one long range, or each
 * alone with gaps around it. */
static double bytes_each(uint64_t values, bool has_gaps)
{
    uint64_t chunks = 1000000 / SLOWER;
    struct sh_ranges *ranges;
    assert_int_equal(sh_ranges_create(1 << 18, &ranges), SHOAL_OK);
    if (!has_gaps)
        assert_int_equal(sh_ranges_set(ranges, id(1), id(chunks), 1), SHOAL_OK);
    for (uint64_t i = 0; i < chunks; i++) {
        uint64_t at = 1 + (has_gaps ? rng() : rng() % chunks);
        if (has_gaps)
            at %= chunks * 1000;
        assert_int_equal(sh_ranges_set(ranges, id(at), id(at), 2 + rng() % values), SHOAL_OK);
    }
    double each = (double)sh_ranges_bytes(ranges) / (double)sh_ranges_count(ranges);
    print_message("%zu ranges, %.2f bytes each\n", sh_ranges_count(ranges), each);
    sh_ranges_check(ranges);
    sh_ranges_destroy(ranges);
    return each;
}

static void a_range_takes_at_most_16_bytes(void **state)
{
    (void)state;
    double touching = bytes_each(16, false);
    double alone = bytes_each(16, true);
    double different = bytes_each(UINT64_MAX, false);
    if (SLOWER > 1)
        return; /* fixed costs weigh more in a small tree */
    assert_true(touching <= 10);
    assert_true(alone <= 16);
    assert_true(different <= 17.5);
}

int main(void)
{
    rng_state = test_seed((uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(near_ids_merge),
        cmocka_unit_test(many_values_make_a_deep_tree),
        cmocka_unit_test(values_around_the_small_ones),
        cmocka_unit_test(far_ids_and_the_end_of_all),
        cmocka_unit_test(edges),
        cmocka_unit_test(the_limit_refuses_and_removals_go_on),
        cmocka_unit_test(fill_is_what_was_given),
        cmocka_unit_test(a_range_takes_at_most_16_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
