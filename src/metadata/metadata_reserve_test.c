/* Memory that fails at each allocation: an update that was reserved is carried out all the same,
 * and whatever is refused for lack of memory changes nothing.
 *
 * SHOAL_TEST_SEED: which seed. */
#include <stdlib.h>

#include "metadata/snapshot.h"
#include "metadata/updates_test.h"

#define AHEAD 80

static uint64_t seed;

/* Updates that are ahead, with their own bytes. */
struct ahead {
    struct sh_metadata_update update;
    uint8_t name[SH_NAME_BYTES_MAX], value[SH_SCRATCH_VALUE_MAX];
};

static void ahead_copy(struct ahead *ahead, const struct sh_metadata_update *update)
{
    ahead->update = *update;
    if (update->name.size)
        memcpy(ahead->name, update->name.at, update->name.size);
    if (update->value.size)
        memcpy(ahead->value, update->value.at, update->value.size);
    ahead->update.name.at = ahead->name;
    ahead->update.value.at = ahead->value;
}

static struct sh_metadata *populated(struct test_updates *test, unsigned updates)
{
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < updates; i++)
        (void)sh_metadata_apply(metadata, TEST_SHARD, test_update(test, metadata));
    return metadata;
}

/* Reserves, with each allocation failing once: how often it was refused. */
static unsigned reserve_with_failures(struct sh_metadata *metadata,
                                      const struct sh_metadata_update *update)
{
    enum shoal_err err = SHOAL_ENOMEM;
    unsigned refused = 0;
    for (size_t due = 1; err; due++) {
        metadata->cells.failures_due = due;
        err = sh_metadata_reserve(metadata, TEST_SHARD, update);
        metadata->cells.failures_due = 0;
        if (err)
            assert_int_equal(err, SHOAL_ENOMEM);
        refused += err != SHOAL_OK;
    }
    return refused;
}

/* Rounds of: reserve some, begin snapshots, and apply them without any memory but what is reserved.
 */
static void test_reserved(void **state)
{
    (void)state;
    static struct test_updates test;
    static struct ahead ahead[AHEAD];
    test_updates_init(&test, seed);
    struct sh_metadata *metadata = populated(&test, 1000);
    unsigned refused = 0;
    for (unsigned round = 0; round < 60; round++) {
        struct sh_metadata_snapshot *snapshots[3] = {NULL};
        unsigned count = 1 + (unsigned)test_below(&test, AHEAD);
        for (unsigned i = 0; i < count; i++) {
            ahead_copy(&ahead[i], test_update(&test, metadata));
            if (i == 0)
                refused += reserve_with_failures(metadata, &ahead[i].update);
            else
                assert_int_equal(sh_metadata_reserve(metadata, TEST_SHARD, &ahead[i].update),
                                 SHOAL_OK);
        }
        unsigned begins[3] = {0, (unsigned)test_below(&test, count), count - 1};
        for (unsigned i = 0; i < count; i++) {
            for (unsigned which = 0; which < 3; which++)
                if (begins[which] == i)
                    assert_int_equal(sh_metadata_snapshot_begin(metadata, TEST_SHARD,
                                                                SH_METADATA_ALL, &snapshots[which]),
                                     SHOAL_OK);
            metadata->cells.failures_due = 1;
            assert_int_not_equal(sh_metadata_apply(metadata, TEST_SHARD, &ahead[i].update).err,
                                 SHOAL_ENOMEM);
            metadata->cells.failures_due = 0;
        }
        for (unsigned which = 0; which < 3; which++)
            sh_metadata_snapshot_end(snapshots[which]);
        for (unsigned i = 0; i < 100; i++) /* to another state, from memory of their own */
            (void)sh_metadata_apply(metadata, TEST_SHARD, test_update(&test, metadata));
    }
    assert_true(refused > 0);
    sh_metadata_destroy(metadata);
}

/* An update that was not reserved is refused, at whichever allocation memory fails, and done when
 * there is some. */
static void test_unreserved(void **state)
{
    (void)state;
    static struct test_updates test;
    static struct ahead ahead;
    unsigned refused = 0;
    test_updates_init(&test, seed);
    struct sh_metadata *metadata = populated(&test, 200);
    for (unsigned i = 0; i < 300; i++) {
        uint64_t before = test_digest(metadata, false);
        ahead_copy(&ahead, test_update(&test, metadata));
        sh_cells_trim(&metadata->cells, 0, SIZE_MAX);
        enum shoal_err err = SHOAL_ENOMEM;
        for (size_t due = 1; err == SHOAL_ENOMEM; due += 1 + due / 4) {
            assert_true(test_digest(metadata, false) == before);
            metadata->cells.failures_due = due;
            err = sh_metadata_apply(metadata, TEST_SHARD, &ahead.update).err;
            metadata->cells.failures_due = 0;
            refused += err == SHOAL_ENOMEM;
        }
    }
    assert_true(refused > 300);
    sh_metadata_destroy(metadata);
}

/* A snapshot is begun, or read, or neither changes anything. */
static void test_snapshots(void **state)
{
    (void)state;
    static struct test_updates test;
    static uint8_t bytes[1 << 20];
    struct sh_metadata_snapshot *snapshot;
    test_updates_init(&test, seed);
    struct sh_metadata *metadata = populated(&test, 3000);
    assert_int_equal(sh_metadata_reserve(metadata, TEST_SHARD, test_update(&test, metadata)),
                     SHOAL_OK);
    uint64_t before = test_digest(metadata, false);
    enum shoal_err err = SHOAL_ENOMEM;
    for (size_t due = 1; err; due++) {
        metadata->cells.failures_due = due;
        err = sh_metadata_snapshot_begin(metadata, TEST_SHARD, SH_METADATA_ALL, &snapshot);
        assert_true(err == SHOAL_OK || err == SHOAL_ENOMEM);
    }
    metadata->cells.failures_due = 0;
    size_t size = sh_metadata_snapshot_next(snapshot, bytes, sizeof bytes);
    assert_int_equal(sh_metadata_snapshot_next(snapshot, bytes, sizeof bytes), 0);
    sh_metadata_snapshot_end(snapshot);
    sh_metadata_clear(metadata, TEST_SHARD);
    while (sh_metadata_sweep(metadata, 100))
        ;
    uint64_t empty = test_digest(metadata, false);
    unsigned refused = 0;
    err = SHOAL_ENOMEM;
    for (size_t due = 1; err; due += 1 + due / 8) {
        struct sh_metadata_restore *restore;
        sh_cells_trim(&metadata->cells, 0, SIZE_MAX);
        assert_true(test_digest(metadata, false) == empty);
        metadata->cells.failures_due = due;
        err = sh_metadata_restore_begin(metadata, TEST_SHARD, &restore);
        if (!err) {
            err = sh_metadata_restore_piece(restore, sh_bytes_make(bytes, size));
            enum shoal_err ended = sh_metadata_restore_end(restore, !err);
            err = err ? err : ended;
        }
        metadata->cells.failures_due = 0;
        assert_true(err == SHOAL_OK || err == SHOAL_ENOMEM);
        refused += err != SHOAL_OK;
    }
    assert_true(refused > 5);
    assert_true(test_digest(metadata, false) == before);
    sh_metadata_destroy(metadata);
}

/* Reservations whose updates never come are forgotten after as many others as may be ahead. */
static void test_dropped(void **state)
{
    (void)state;
    static struct test_updates test;
    test_updates_init(&test, seed);
    struct sh_metadata *metadata = populated(&test, 0);
    struct sh_metadata_update update = {
        .kind = SH_METADATA_NAME, .cid = {1}, .name = test_name(&test, 0)};
    const struct sh_metadata_ahead *ahead = &metadata->ahead[TEST_SHARD];
    for (unsigned i = 0; i < 20 * SH_METADATA_AHEAD_MAX; i++) {
        assert_int_equal(sh_metadata_reserve(metadata, TEST_SHARD, &update), SHOAL_OK);
        assert_in_range(ahead->older.updates + ahead->newer.updates, 1, 2 * SH_METADATA_AHEAD_MAX);
        if (i % 2)
            assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &update).err, SHOAL_OK);
    }
    sh_metadata_destroy(metadata);
}

int main(void)
{
    seed = test_seed(UINT64_C(0x72657376));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_unreserved),
        cmocka_unit_test(test_snapshots),
        cmocka_unit_test(test_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
