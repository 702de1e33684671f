/* A durable store takes chunks of any size until its memory is full, not its log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "client/client_int.h"

#define AT_ONCE 256u

static void assert_fills(uint32_t size)
{
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 8 << 20, .level = SHOAL_ASYNC, .small_pages = true};
    const struct sh_durable_sizes sizes = {
        .slot_bytes = 512 << 10, .primary_blocks = 256, .zone_bytes = 4 << 20};
    shoal *store;
    shoal_cid cids[AT_ONCE];
    enum shoal_err err = sh_embedded_open(&options, &sizes, &store);
    assert_int_equal(err, SHOAL_OK);
    while (!err)
        err = shoal_create_many(store, SHOAL_NID_NONE, size, AT_ONCE, cids);
    if (err != SHOAL_EFULL)
        fail_msg("chunks of %u bytes: %s", size, shoal_err_name(err));
    shoal_close(store);
}

static void test_empty(void **state)
{
    (void)state;
    assert_fills(0);
}

static void test_tiny(void **state)
{
    (void)state;
    assert_fills(8);
}

static void test_small(void **state)
{
    (void)state;
    assert_fills(64);
}

/* A chunk that is larger than a zone, and that grows after a start, is there after each as it was written last. */
static void test_larger_than_a_zone(void **state)
{
    (void)state;
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 32 << 20, .small_pages = true};
    const struct sh_durable_sizes sizes = {
        .slot_bytes = 256 << 10, .primary_blocks = 256, .zone_bytes = 1 << 20};
    const uint32_t size = 3 << 20;
    uint8_t *bytes = malloc(2 * size);
    shoal_cid cid, small;
    shoal *store;
    for (uint32_t life = 0; life < 3; life++) {
        assert_int_equal(sh_embedded_open(&options, &sizes, &store), SHOAL_OK);
        if (!life) {
            assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 100, &small), SHOAL_OK);
            assert_int_equal(shoal_create(store, SHOAL_NID_NONE, size, &cid), SHOAL_OK);
        } else if (life == 2) {
            assert_int_equal(shoal_resize(store, cid, 2 * size), SHOAL_OK);
        }
        uint32_t has, all = life == 2 ? 2 * size : size;
        assert_int_equal(shoal_get(store, cid, bytes, all, &has), SHOAL_OK);
        assert_int_equal(has, all);
        assert_true(!life || (bytes[0] == 10 * life && bytes[size - 1] == 10 * life));
        for (unsigned i = 1; i < 5; i++) {
            memset(bytes, (int)(10 * (life + 1) - 4 + i), all);
            assert_int_equal(shoal_put(store, cid, bytes, all), SHOAL_OK);
        }
        shoal_close(store);
    }
    free(bytes);
}

/* A multi form that finds a chunk missing tells so only when its removal, by somebody else, will stay as far as that one is told. */
static void test_removed_by_others(void **state)
{
    (void)state;
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 8 << 20, .level = SHOAL_ASYNC, .small_pages = true};
    const struct sh_durable_sizes sizes = {
        .slot_bytes = 256 << 10, .primary_blocks = 256, .zone_bytes = 1 << 20};
    shoal *store;
    shoal_cid cids[2];
    uint8_t bytes[100] = {1};
    sh_lid lid;
    assert_int_equal(sh_embedded_open(&options, &sizes, &store), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 100, 2, cids), SHOAL_OK);
        assert_int_equal(sh_embedded_lid(cids[0], &lid), SHOAL_OK);
        struct sh_write removal;
        sh_write_begin(&removal, SH_LEVEL_DURABLE);
        assert_int_equal(sh_backup_remove(store->backup, &removal, lid), SHOAL_OK);
        struct shoal_op ops[] = {{.cid = cids[1], .data = bytes, .size = 100},
                                 {.cid = cids[0], .data = bytes, .size = 100}};
        assert_int_equal(shoal_multi_put(store, ops, 2), SHOAL_ENOCHUNK);
        assert_true(ops[0].err == SHOAL_OK && ops[1].err == SHOAL_ENOCHUNK);
        assert_false(sh_write_wait(store->backup, &removal, NULL, NULL));
    }
    shoal_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_empty, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_tiny, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_small, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_larger_than_a_zone, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_removed_by_others, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
