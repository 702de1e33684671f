/* A load into a store with a witness, which is told of each chunk, and refuses at random: the load waits
 * for it, and tells long chunks in pieces; canceled at any place, it undoes what it has created. */
#include "store/dump_test.h"
#include "store/witness_test.h"

#define STEPS_MAX 100000

static void file_make(struct sh_store *store)
{
    static const uint32_t sizes[] = {0, 30, 500, 5000, 300000, 700001, 1u << 20, 12};
    struct sh_dump_sums sums;
    for (unsigned i = 0; i < 60; i++)
        chunk_add(store, shoal_cid_make((shoal_nid){i % 20 == 7 ? 8 : 7}, 1 + i).v,
                  i % 6 == 5 ? sizes[i / 6 % 8] : i);
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    assert_int_equal(sums.chunks, 60);
}

static void closed_check(const struct witness *witness)
{
    for (unsigned i = 0; i < WITNESS_ZONES; i++)
        assert_false(witness->zones[i].is_in_pieces);
}

static void test_loaded(void **state)
{
    (void)state;
    struct sh_store *from = store_make(32 * MIB);
    file_make(from);
    for (unsigned refuse_of = 0; refuse_of < 4; refuse_of++) {
        struct sh_store *store = store_make(32 * MIB);
        struct witness witness;
        struct sh_dump_sums sums;
        witness_open(&witness, store, test_seed(3));
        witness.refuse_of = refuse_of == 1 ? 20 : refuse_of;
        assert_int_equal(sh_store_load(store, disk, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
        same(from, store);
        witness_compare(&witness);
        closed_check(&witness);
        assert_int_equal(witness.events[SH_STORE_MADE] + witness.made, 60);
        assert_int_equal(witness.made, 3);
        if (refuse_of != 1) /* one in 20 may happen to be none at all */
            assert_int_equal(witness.refusals > 0, refuse_of > 0);
        witness_close(&witness);
        sh_store_destroy(store);
    }
    sh_store_destroy(from);
}

/* Ended after so many steps, by being canceled or at once. True: it had been over. */
static bool ended_after(unsigned steps, bool is_canceled)
{
    struct sh_store *store = store_make(32 * MIB);
    struct witness witness;
    struct sh_load *load;
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a"};
    witness_open(&witness, store, 1 + steps);
    witness.refuse_of = 3;
    assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
    for (unsigned i = 0; i < steps && !sh_load_state_get(load).is_over; i++)
        (void)sh_load_step(load, 100);
    bool was_over = sh_load_state_get(load).is_over;
    if (is_canceled)
        sh_load_cancel(load);
    for (unsigned i = 0; is_canceled && !sh_load_state_get(load).is_over; i++) {
        assert_true(i < STEPS_MAX);
        (void)sh_load_step(load, 100);
    }
    enum shoal_err err = sh_load_state_get(load).err;
    sh_load_end(load);
    assert_int_equal(err, is_canceled && !was_over ? SHOAL_ECANCELED : SHOAL_OK);
    if (err)
        assert_int_equal(status_of(store).chunks, 0);
    witness_compare(&witness);
    closed_check(&witness);
    witness_close(&witness);
    sh_store_destroy(store);
    return was_over;
}

static void test_ended(void **state)
{
    (void)state;
    struct sh_store *from = store_make(32 * MIB);
    file_make(from);
    sh_store_destroy(from);
    for (unsigned is_canceled = 0; is_canceled < 2; is_canceled++)
        for (unsigned steps = 0; !ended_after(steps, is_canceled); steps += 1 + steps / 16)
            assert_true(steps < STEPS_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loaded),
        cmocka_unit_test(test_ended),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
