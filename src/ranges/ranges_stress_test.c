/* Readers beside a changer. Each change gives IDs a value larger than all before, so a reader can
 * tell that it went back in time, that it saw a value which was not there yet or long gone, or a
 * gap where there never is one. A tree near its limit takes retired nodes again at once, which is
 * when readers have to start again. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "ranges/ranges.h"

#define READERS 3
#define BASE (UINT64_C(5) << 48)

struct rig {
    struct sh_ranges *ranges;
    uint64_t ids;
    _Atomic uint64_t begun;  /* the newest value that may be in the tree */
    _Atomic uint64_t oldest; /* nothing below it is in the tree */
    _Atomic bool stop;
    _Atomic uint64_t looks;
    _Atomic unsigned faults;
    uint64_t seed;
};

static uint64_t next_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(*state);
}

/* Looks an ID up twice; false if something can't be. */
static bool look_twice(struct rig *rig, uint64_t key)
{
    uint64_t oldest = atomic_load(&rig->oldest);
    struct sh_range a, b;
    if (!sh_ranges_find(rig->ranges, (shoal_cid){key}, &a))
        return false;
    if (!sh_ranges_next(rig->ranges, (shoal_cid){key}, &b))
        return false;
    shoal_cid cids[3] = {{key}, {key}, {key}};
    struct sh_range many[3];
    bool all = sh_ranges_find_multi(rig->ranges, cids, 3, many) == 3;
    uint64_t begun = atomic_load(&rig->begun);
    for (unsigned i = 0; i < 3; i++)
        all = all && many[i].first.v <= key && key <= many[i].last.v && many[i].value >= b.value &&
              many[i].value <= begun;
    return all && a.first.v <= key && key <= a.last.v && b.first.v <= key && key <= b.last.v &&
           a.value >= oldest && b.value >= a.value && b.value <= begun && a.first.v >= BASE &&
           b.last.v < BASE + rig->ids;
}

static void *reader_main(void *arg)
{
    struct rig *rig = arg;
    uint64_t looks = 0;
    uint64_t state = rig->seed + atomic_fetch_add(&rig->looks, 1);
    while (!atomic_load(&rig->stop)) {
        if (!look_twice(rig, BASE + next_random(&state) % rig->ids))
            atomic_fetch_add(&rig->faults, 1);
        looks++;
    }
    atomic_fetch_add(&rig->looks, looks);
    return NULL;
}

/* Everything anew in one change, whatever there was. */
static void all_set(struct rig *rig, uint64_t value)
{
    atomic_store(&rig->begun, value);
    assert_int_equal(
        sh_ranges_set(rig->ranges, (shoal_cid){BASE}, (shoal_cid){BASE + rig->ids - 1}, value),
        SHOAL_OK);
    atomic_store(&rig->oldest, value);
}

static void changes_make(struct rig *rig, unsigned changes, uint64_t longest)
{
    uint64_t state = rig->seed;
    uint64_t value = 1;
    for (unsigned i = 0; i < changes; i++) {
        value++;
        uint64_t first = next_random(&state) % rig->ids;
        uint64_t last = first + next_random(&state) % longest;
        if (last >= rig->ids)
            last = rig->ids - 1;
        atomic_store(&rig->begun, value);
        enum shoal_err err =
            sh_ranges_set(rig->ranges, (shoal_cid){BASE + first}, (shoal_cid){BASE + last}, value);
        if (err == SHOAL_ELIMIT || i % 20000 == 19999)
            all_set(rig, ++value);
        else
            assert_int_equal(err, SHOAL_OK);
    }
}

static void run(uint64_t seed, size_t nodes_max, uint64_t ids, unsigned changes, uint64_t longest)
{
    struct rig rig = {.ids = ids, .seed = seed};
    pthread_t threads[READERS];
    assert_int_equal(sh_ranges_create(nodes_max, &rig.ranges), SHOAL_OK);
    all_set(&rig, 1);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader_main, &rig), 0);
    changes_make(&rig, changes, longest);
    atomic_store(&rig.stop, true);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    print_message("%llu looks beside %u changes, %zu ranges left\n",
                  (unsigned long long)atomic_load(&rig.looks), changes,
                  sh_ranges_count(rig.ranges));
    assert_int_equal(atomic_load(&rig.faults), 0);
    sh_ranges_check(rig.ranges);
    sh_ranges_destroy(rig.ranges);
}

static uint64_t seed;

static void nodes_are_taken_again_at_once(void **state)
{
    (void)state;
    run(seed, 64, 3000, TEST_ROUNDS(60000), 3);
    run(seed + 1, 64, 1500, TEST_ROUNDS(40000), 200);
}

static void a_deep_tree_changes(void **state)
{
    (void)state;
    run(seed + 2, 1 << 14, 200000, TEST_ROUNDS(60000), 4);
    run(seed + 3, 1 << 14, 200000, TEST_ROUNDS(3000), 100000);
}

int main(void)
{
    seed = test_seed((uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_are_taken_again_at_once),
        cmocka_unit_test(a_deep_tree_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
