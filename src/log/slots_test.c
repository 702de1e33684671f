/* Slots are taken, fit and given back. */
#include "base/alloc_test.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "log/slots.h"

#define BYTES 65536u
#define COUNT 20u

static struct sh_log_slots slots;
static const struct sh_log_slot_list none = {.first = SH_SLOT_NONE};

/* All have their room. */
static void back_all(struct sh_log_slots *of)
{
    uint32_t slot;
    while ((slot = sh_log_slots_bare_take(of)) != SH_SLOT_NONE)
        sh_log_slots_free_add(of, slot);
    assert_int_equal(of->bare_count, 0);
}

static int setup(void **state)
{
    (void)state;
    if (sh_log_slots_create(&slots, COUNT, BYTES))
        return -1;
    sh_log_slots_begin(&slots, 0);
    back_all(&slots);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_log_slots_destroy(&slots);
    return 0;
}

/* Takes one for entries, filled up to there. */
static uint32_t taken(struct sh_log_slot_list *list, uint32_t filled)
{
    uint32_t slot = sh_log_slots_take(&slots, list, SH_SLOT_ENTRIES, 7, 70);
    assert_int_not_equal(slot, SH_SLOT_NONE);
    assert_int_equal(slots.slots[slot].filled, SH_SLOT_HEAD_BYTES);
    assert_int_equal(slots.slots[slot].use, 7);
    assert_int_equal(slots.slots[slot].since, 70);
    slots.slots[slot].filled = filled;
    return slot;
}

static uint32_t fit(const struct sh_log_slot_list *list, uint32_t bytes)
{
    return sh_log_slots_fit(&slots, list, SH_SLOT_ENTRIES, bytes);
}

static void test_fit(void **state)
{
    (void)state;
    struct sh_log_slot_list list = none, other = none;
    assert_int_equal(fit(&list, 1), SH_SLOT_NONE);
    uint32_t wide = taken(&list, 20000), narrow = taken(&list, 60000), middle = taken(&list, 40000);
    (void)taken(&other, 60001);
    assert_int_equal(fit(&list, 5536), narrow); /* to the last byte */
    assert_int_equal(fit(&list, 5537), middle);
    assert_int_equal(fit(&list, 25536), middle);
    assert_int_equal(fit(&list, 25537), wide);
    assert_int_equal(fit(&list, 45536), wide);
    assert_int_equal(fit(&list, 45537), SH_SLOT_NONE);
    slots.slots[narrow].is_closed = true;
    assert_int_equal(fit(&list, 1), middle);
    slots.slots[middle].kind = SH_SLOT_VERSIONS;
    assert_int_equal(fit(&list, 1), wide);
    assert_int_equal(sh_log_slots_fit(&slots, &list, SH_SLOT_VERSIONS, 1), middle);
    /* Three quarters of a slot begin another one, though they would fit. */
    slots.slots[wide].filled = SH_SLOT_HEAD_BYTES;
    assert_int_equal(fit(&list, BYTES / 4 * 3 - 1), wide);
    assert_int_equal(fit(&list, BYTES / 4 * 3), SH_SLOT_NONE);
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4);
    struct sh_log_slot_list lists[3] = {none, none, none};
    unsigned owner[COUNT] = {0}, used = 0, full = 0; /* owner: list + 1 */
    for (unsigned round = 0; round < 5000; round++) {
        uint64_t draw = test_draw(&seed);
        unsigned which = (unsigned)(draw % 3);
        uint32_t slot = (uint32_t)(draw >> 8) % COUNT;
        if (draw >> 32 & 1 && owner[slot]) {
            sh_log_slots_give(&slots, &lists[owner[slot] - 1], slot);
            assert_int_equal(slots.slots[slot].kind, 0);
            owner[slot] = 0;
            used--;
        } else {
            slot = sh_log_slots_take(&slots, &lists[which], SH_SLOT_ENTRIES, draw, 1);
            assert_int_equal(slot == SH_SLOT_NONE, used == COUNT);
            full += slot == SH_SLOT_NONE;
            if (slot != SH_SLOT_NONE) {
                assert_int_equal(owner[slot], 0);
                owner[slot] = which + 1;
                used++;
            }
        }
        unsigned seen[4] = {0};
        for (unsigned i = 0; i < 3; i++) {
            for (uint32_t at = lists[i].first; at != SH_SLOT_NONE; at = slots.slots[at].next) {
                assert_int_equal(owner[at], i + 1);
                seen[i]++;
            }
            assert_int_equal(seen[i], lists[i].count);
        }
        assert_int_equal(lists[0].count + lists[1].count + lists[2].count, used);
        assert_int_equal(slots.free_count, COUNT - used);
    }
    assert_true(full > 10);
}

/* What an earlier process has left is its zone's, and closed; the rest is free. */
static void test_found(void **state)
{
    (void)state;
    struct sh_log_slots found;
    struct sh_log_slot_list list = none;
    assert_int_equal(sh_log_slots_create(&found, 4, BYTES), SHOAL_OK);
    sh_log_slots_find(&found, &list, 1,
                      &(struct sh_log_slot_head){.use = 11, .kind = SH_SLOT_ENTRIES, .seconds = 5});
    sh_log_slots_find(&found, &list, 3,
                      &(struct sh_log_slot_head){.use = 13, .kind = SH_SLOT_VERSIONS});
    sh_log_slots_begin(&found, BYTES + 1);
    assert_int_equal(list.count, 2);
    assert_int_equal(found.free_count, 0);
    assert_int_equal(found.bare_count, 2);
    assert_true(found.slots[0].may_have_room && !found.slots[2].may_have_room);
    assert_int_equal(found.left_count, 1);
    assert_int_equal(sh_log_slots_take(&found, &list, SH_SLOT_ENTRIES, 1, 1), SH_SLOT_NONE);
    back_all(&found);
    assert_int_equal(found.free_count, 2);
    assert_int_equal(found.left_count, 0);
    assert_int_equal(found.slots[1].since, 5);
    assert_true(found.slots[1].is_found);
    assert_int_equal(found.slots[3].use, 13);
    assert_int_equal(found.slots[3].kind, SH_SLOT_VERSIONS);
    assert_true(found.slots[1].is_closed && found.slots[1].filled == BYTES);
    assert_int_equal(sh_log_slots_fit(&found, &list, SH_SLOT_ENTRIES, 1), SH_SLOT_NONE);
    assert_int_equal(sh_log_slots_take(&found, &list, SH_SLOT_ENTRIES, 1, 1), 0);
    assert_int_equal(sh_log_slots_take(&found, &list, SH_SLOT_ENTRIES, 1, 1), 2);
    assert_int_equal(sh_log_slots_take(&found, &list, SH_SLOT_ENTRIES, 1, 1), SH_SLOT_NONE);
    sh_log_slots_give(&found, &list, 1);
    assert_int_equal(list.count, 3);
    assert_int_equal(sh_log_slots_take(&found, &list, SH_SLOT_ENTRIES, 1, 1), 1);
    sh_log_slots_destroy(&found);
}

static void test_without_memory(void **state)
{
    (void)state;
    struct sh_log_slots more;
    alloc_fail_at(1, 1);
    assert_int_equal(sh_log_slots_create(&more, COUNT, BYTES), SHOAL_ENOMEM);
    assert_int_equal(alloc_fail_end(), 1);
    sh_log_slots_destroy(&more);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
