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
#include "log/scan.h"
#include "log/slot.h"

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

#define DAMAGE_SLOT (256u << 10)
#define DAMAGE_CHUNKS 2000u

static shoal *damage_open(void)
{
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 32 << 20, .small_pages = true};
    const struct sh_durable_sizes sizes = {.slot_bytes = DAMAGE_SLOT,
                                           .primary_blocks = 256,
                                           .zone_bytes = 1 << 20,
                                           .scrub_bytes = 1 << 30};
    shoal *store;
    enum shoal_err err = sh_embedded_open(&options, &sizes, &store);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

/* Opens the log's file beside the store. */
static FILE *damage_file(void)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/replicas.log", folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    return file;
}

static bool damage_read(FILE *file, long at, uint8_t *into, size_t size)
{
    return !fseek(file, at, SEEK_SET) && fread(into, size, 1, file) == 1;
}

/* Where a bit of an entry of the last span of a slot lies, behind the slot's begin; 0: it has no entries. Behind its spans may be others of a former use. */
static size_t damage_place(const uint8_t *slot)
{
    struct sh_scan scan = {
        .bytes = sh_bytes_make(slot + SH_SLOT_HEAD_BYTES, DAMAGE_SLOT - SH_SLOT_HEAD_BYTES),
        .use = sh_log_slot_use_of(slot, 0),
        .mask = UINT64_MAX};
    struct sh_span span;
    struct sh_reader entries;
    size_t place = 0;
    while (sh_scan_next(&scan, &span, &entries)) {
        if (span.bytes > 100)
            place = SH_SLOT_HEAD_BYTES + scan.begin + SH_SPAN_HEAD_BYTES + 50;
    }
    return place;
}

/* Flips a bit of an entry in a segment; tells where the segment's head is, and what that was before. */
static long damage(uint8_t head[64])
{
    FILE *file = damage_file();
    static uint8_t slot[DAMAGE_SLOT];
    long at = 4096 + 256 * 4096;
    size_t place = 0;
    for (;; at += DAMAGE_SLOT) {
        assert_true(damage_read(file, at, slot, sizeof slot));
        if (slot[34] == SH_SLOT_ENTRIES || slot[34] == SH_SLOT_SURVIVORS)
            place = damage_place(slot);
        if (place)
            break;
    }
    memcpy(head, slot, 64);
    assert_true(!fseek(file, at + (long)place, SEEK_SET) && fputc(slot[place] ^ 4, file) != EOF);
    assert_int_equal(fclose(file), 0);
    return at;
}

/* The head of a segment says whose it is, and in which use. */
static void damage_head(long at, uint8_t head_out[64])
{
    FILE *file = damage_file();
    assert_true(damage_read(file, at, head_out, 64));
    assert_int_equal(fclose(file), 0);
}

static void damage_check(shoal *store, const shoal_cid *cids)
{
    uint8_t bytes[1000];
    uint32_t size;
    for (unsigned i = 0; i < DAMAGE_CHUNKS; i++) {
        enum shoal_err err = shoal_get(store, cids[i], bytes, sizeof bytes, &size);
        assert_int_equal(err, i % 7 ? SHOAL_OK : SHOAL_ENOCHUNK);
        assert_true(err || (size == sizeof bytes && bytes[0] == (uint8_t)i && bytes[999] == 9));
    }
}

/* A store finds bytes that go bad in its log while it is open, and writes their chunks once more; it is as if nothing had been. */
static void test_repaired(void **state)
{
    (void)state;
    static shoal_cid cids[DAMAGE_CHUNKS];
    uint8_t bytes[1000] = {[999] = 9}, before[64], after[64];
    shoal *store = damage_open();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 1000, DAMAGE_CHUNKS, cids), SHOAL_OK);
    for (unsigned i = 0; i < DAMAGE_CHUNKS; i++) {
        memset(bytes, (int)i, 999);
        assert_int_equal(shoal_put(store, cids[i], bytes, sizeof bytes), SHOAL_OK);
    }
    for (unsigned i = 0; i < DAMAGE_CHUNKS; i += 7)
        assert_int_equal(shoal_remove(store, cids[i]), SHOAL_OK);
    assert_int_equal(shoal_sync(store), SHOAL_OK);
    long at = damage(before);
    uint64_t end_ns = sh_now(&store->env.clock) + UINT64_C(60000000000);
    do {
        struct timespec pause = {.tv_nsec = 2000000};
        (void)nanosleep(&pause, NULL);
        damage_head(at, after);
        assert_true(sh_now(&store->env.clock) < end_ns);
    } while (!memcmp(before, after, sizeof before));
    damage_check(store, cids);
    shoal_close(store);
    store = damage_open();
    damage_check(store, cids);
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
        cmocka_unit_test_setup_teardown(test_repaired, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
