/* The cache of lookups beside a model, at its bounds, and under many threads. */
#include "cluster/lookups.h"

#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/random_test.h"
#include "cluster/view.h"

#define SPACE 400 /* IDs of the model */
#define OWNERS 6
#define STEPS 20000

static struct sh_lookups *open_cache(uint32_t ranges_max)
{
    struct sh_lookups *lookups = NULL;
    assert_int_equal(sh_lookups_create(ranges_max, &lookups), SHOAL_OK);
    return lookups;
}

static shoal_cid cid_of(uint64_t at)
{
    return shoal_cid_make((shoal_nid){SH_PEER_NID_MIN}, at);
}

static uint64_t owner_drawn(uint64_t drawn)
{
    return SH_PEER_NID_MIN + drawn % OWNERS;
}

/* By ID, what was put there last and not taken out: the cache may know less, never something
 * else. */
struct model {
    uint16_t owners[SPACE]; /* 0: taken out */
};

static bool keeps_not(const void *arg, shoal_nid owner)
{
    return owner.v != *(const uint16_t *)arg;
}

static void model_step(struct sh_lookups *lookups, struct model *model, uint64_t drawn)
{
    uint64_t first = (drawn >> 8) % SPACE;
    uint64_t last = first + (drawn >> 24) % 20;
    last = last < SPACE ? last : SPACE - 1;
    struct sh_range range = {cid_of(first), cid_of(last), owner_drawn(drawn >> 40)};
    uint16_t lost = (uint16_t)range.value;
    unsigned what = drawn % 100;
    if (what < 90) {
        sh_lookups_put(lookups, &range);
        for (uint64_t i = first; i <= last; i++)
            model->owners[i] = (uint16_t)range.value;
        shoal_nid owner;
        assert_true(sh_lookups_find(lookups, range.first, &owner)); /* it is not evicted itself */
    } else if (what < 99) {
        if (sh_lookups_look(lookups, range.first, &range)) {
            for (uint64_t i = range.first.v; i <= range.last.v; i++)
                model->owners[i - cid_of(0).v] = 0;
        }
        sh_lookups_drop(lookups, cid_of(first));
    } else {
        sh_lookups_prune(lookups, keeps_not, &lost);
        for (uint64_t i = 0; i < SPACE; i++)
            model->owners[i] = model->owners[i] == lost ? 0 : model->owners[i];
    }
}

static void model_check(struct sh_lookups *lookups, struct model *model, uint32_t ranges_max)
{
    struct sh_lookups_stats stats = sh_lookups_stats(lookups);
    assert_true(stats.ranges <= ranges_max);
    for (uint64_t i = 0; i < SPACE; i++) {
        struct sh_range range;
        if (!sh_lookups_look(lookups, cid_of(i), &range)) {
            model->owners[i] = 0; /* evicted: it must not come back by itself */
            continue;
        }
        if (range.value != model->owners[i])
            fail_msg("ID %" PRIu64 " is said to be with %" PRIu64 ", is with %u", i, range.value,
                     model->owners[i]);
    }
}

static void like_a_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    for (uint32_t ranges_max = 1; ranges_max <= 64; ranges_max *= 4) {
        struct sh_lookups *lookups = open_cache(ranges_max);
        struct model model = {{0}};
        for (unsigned i = 0; i < STEPS; i++) {
            model_step(lookups, &model, test_draw(&seed));
            if (i % 16 == 0)
                model_check(lookups, &model, ranges_max);
        }
        struct sh_lookups_stats stats = sh_lookups_stats(lookups);
        assert_true(stats.evictions > 0 && stats.drops > 0 && stats.puts > STEPS / 2);
        sh_lookups_destroy(lookups);
    }
}

/* However the ranges lie, their number and the memory stay within the bounds. */
static void bounded(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    enum { MOST = 2000 };
    struct sh_lookups *lookups = open_cache(MOST);
    for (unsigned i = 0; i < 20 * MOST; i++) {
        uint64_t drawn = test_draw(&seed);
        /* Far apart, of many creators and owners, or packed. */
        shoal_cid at = i % 3 ? (shoal_cid){drawn >> 1} : cid_of(drawn % 5000);
        struct sh_range range = {at, {at.v + (drawn >> 50) % 3}, 64 + (drawn >> 20) % 60000};
        sh_lookups_put(lookups, &range);
        struct sh_lookups_stats stats = sh_lookups_stats(lookups);
        assert_true(stats.ranges <= MOST);
        assert_true(stats.bytes <= sh_lookups_bytes_max(MOST));
    }
    struct sh_lookups_stats stats = sh_lookups_stats(lookups);
    assert_true(stats.ranges >= MOST - 2);
    assert_true(stats.evictions > 10 * MOST);
    sh_lookups_destroy(lookups);
}

/* What is used again and again stays, while ten times as much comes by once. */
static void keeps_the_hot(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    enum { MOST = 500, HOT = 200, COLD = 50000 };
    struct sh_lookups *lookups = open_cache(MOST);
    unsigned misses = 0, asked = 0;
    for (unsigned i = 0; i < COLD; i++) {
        struct sh_range cold = {cid_of(10000000 + 2 * (uint64_t)i), {0}, owner_drawn(i)};
        cold.last = cold.first;
        sh_lookups_put(lookups, &cold);
        for (unsigned j = 0; j < 8; j++) {
            uint64_t at = test_draw(&seed) % HOT * 10000;
            struct sh_range hot = {cid_of(at), cid_of(at), owner_drawn(at)};
            shoal_nid owner;
            asked += i > COLD / 10;
            if (sh_lookups_find(lookups, hot.first, &owner)) {
                assert_int_equal(owner.v, hot.value);
                continue;
            }
            misses += i > COLD / 10;
            sh_lookups_put(lookups, &hot);
        }
    }
    struct sh_lookups_stats stats = sh_lookups_stats(lookups);
    assert_int_equal(stats.hits + stats.misses, 8 * COLD);
    print_message("%u of %u lookups missed\n", misses, asked);
    assert_true(misses < asked / 50);
    sh_lookups_destroy(lookups);
}

/* --- Threads --------------------------------------------------------------------------------- */

#define READERS 3
#define CHANGES TEST_ROUNDS(30000)

struct shared {
    struct sh_lookups *lookups;
    _Atomic bool is_over; /* relaxed: only ends the loops */
};

/* An ID's owner is one of two, by the ID, whatever happens. */
static uint64_t owner_either(uint64_t at, uint64_t drawn)
{
    return SH_PEER_NID_MIN + 2 * (at / 8 % 10) + drawn % 2;
}

/* Assertions here are the house's, since cmocka's can't fail a test from another thread. */
static void *read_on(void *arg)
{
    struct shared *shared = arg;
    for (uint64_t i = 0; !atomic_load_explicit(&shared->is_over, memory_order_relaxed); i++) {
        uint64_t at = i * 7 % SPACE;
        shoal_nid owner;
        if (sh_lookups_find(shared->lookups, cid_of(at), &owner))
            SH_ASSERT(owner.v == owner_either(at, 0) || owner.v == owner_either(at, 1));
        if (i % 64 == 0)
            SH_ASSERT(sh_lookups_stats(shared->lookups).ranges <= 20);
    }
    return NULL;
}

static void readers_beside_a_changer(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    struct shared shared = {.lookups = open_cache(10)};
    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &shared), 0);
    for (unsigned i = 0; i < CHANGES; i++) {
        uint64_t drawn = test_draw(&seed);
        uint64_t at = (drawn >> 8) % (SPACE / 8) * 8;
        struct sh_range range = {cid_of(at), cid_of(at + 7), owner_either(at, drawn >> 40)};
        uint16_t lost = (uint16_t)range.value;
        if (drawn % 64 == 0)
            sh_lookups_prune(shared.lookups, keeps_not, &lost);
        else if (drawn % 4 == 0)
            sh_lookups_drop(shared.lookups, range.first);
        else
            sh_lookups_put(shared.lookups, &range);
    }
    atomic_store_explicit(&shared.is_over, true, memory_order_relaxed);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    sh_lookups_destroy(shared.lookups);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(like_a_model),
        cmocka_unit_test(bounded),
        cmocka_unit_test(keeps_the_hot),
        cmocka_unit_test(readers_beside_a_changer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
