/* A durable store takes chunks of any size until its memory is full, not its log, whatever was made and removed before. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "base/random_test.h"
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

#define ZONE_BYTES (1u << 20)
#define ZONES 12u /* that the log has room for */
#define ROUNDS 40u
#define LARGE 4096u /* bytes of chunks that fill two zones a round */
#define LARGES 512u
#define SMALL 16u
#define KEPT_ONE_IN 64u

/* A chunk that stays. */
struct kept {
    shoal_cid cid;
    uint32_t word;
};

static struct churn {
    shoal *store;
    uint64_t random;
    struct kept kept[ROUNDS * LARGES / KEPT_ONE_IN];
    unsigned kept_count;
    shoal_cid cids[(ROUNDS + 1) * LARGES];
} churn;

static void churn_open(void)
{
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 16 << 20, .level = SHOAL_ASYNC, .small_pages = true};
    /* Each zone has 12 slots, and the cleaner six. */
    const struct sh_durable_sizes sizes = {.slot_bytes = 256 << 10,
                                           .primary_blocks = 256,
                                           .zone_bytes = ZONE_BYTES,
                                           .log_bytes_max = (ZONES * 12 + 6) * (256u << 10)};
    assert_int_equal(sh_embedded_open(&options, &sizes, &churn.store), SHOAL_OK);
}

static size_t fill(uint32_t size, size_t count, shoal_cid *cids)
{
    for (size_t made = 0; made < count; made += AT_ONCE) {
        size_t more = count - made < AT_ONCE ? count - made : AT_ONCE;
        enum shoal_err err =
            shoal_create_many(churn.store, SHOAL_NID_NONE, size, more, cids + made);
        if (err)
            fail_msg("chunk %zu of %zu, %u bytes: %s", made, count, size, shoal_err_name(err));
    }
    return count;
}

/* The chunk stays, and is small from now on. */
static void keep(shoal_cid cid)
{
    struct kept *kept = &churn.kept[churn.kept_count++];
    *kept = (struct kept){.cid = cid, .word = (uint32_t)test_draw(&churn.random)};
    assert_int_equal(shoal_resize(churn.store, cid, SMALL), SHOAL_OK);
    assert_int_equal(shoal_put_part(churn.store, cid, 0, &kept->word, 4), SHOAL_OK);
}

static void kept_check(void)
{
    for (unsigned i = 0; i < churn.kept_count; i++) {
        const struct kept *kept = &churn.kept[i];
        uint32_t word;
        assert_int_equal(shoal_get_part(churn.store, kept->cid, 0, &word, 4), SHOAL_OK);
        assert_int_equal(word, kept->word);
    }
}

/* In each round small chunks use up all IDs that are free, so that large ones fill zones of their own; of which a few chunks stay, and are
 * small then. What is there never fills three zones, and the log never lacks room for another one. */
static void test_churn(void **state)
{
    (void)state;
    struct sh_backup_status status;
    churn.random = test_seed(1);
    churn.kept_count = 0;
    churn_open();
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t small = fill(SMALL, round * (LARGES - LARGES / KEPT_ONE_IN), churn.cids);
        size_t count = small + fill(LARGE, LARGES, churn.cids + small);
        for (size_t i = 0; i < count; i++) {
            if (i >= small && i % KEPT_ONE_IN == 0)
                keep(churn.cids[i]);
            else
                assert_int_equal(shoal_remove(churn.store, churn.cids[i]), SHOAL_OK);
        }
    }
    kept_check();
    sh_backup_status_get(churn.store->backup, &status);
    print_message("%u chunks in %u zones, %u chunks moved, %u zones dropped\n", churn.kept_count,
                  status.zones, (unsigned)status.evacuated, (unsigned)status.dropped);
    assert_true(status.evacuated > ROUNDS && status.dropped > ROUNDS / 5);
    shoal_close(churn.store);
    churn_open();
    kept_check();
    shoal_close(churn.store);
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
        cmocka_unit_test_setup_teardown(test_churn, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_larger_than_a_zone, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_removed_by_others, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
