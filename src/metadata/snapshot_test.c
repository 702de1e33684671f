/* Snapshots that are written beside updates: each is read to the state that was when it was begun,
 * whatever was applied since; pieces that are damaged, exchanged or missing are refused.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "metadata/snapshot.h"

#include <stdlib.h>

#include "metadata/updates_test.h"

#define OPEN_MAX 6
#define PIECES_MAX 400

struct pieces {
    unsigned count;
    size_t sizes[PIECES_MAX];
    uint8_t *bytes[PIECES_MAX];
};

struct open {
    struct sh_metadata_snapshot *snapshot; /* NULL: none */
    bool durable;
    uint64_t digest;
    struct pieces pieces;
};

static uint64_t seed;

static void pieces_free(struct pieces *pieces)
{
    for (unsigned i = 0; i < pieces->count; i++)
        free(pieces->bytes[i]);
    pieces->count = 0;
}

/* False: there was no more. */
static bool piece_take(struct sh_metadata_snapshot *snapshot, struct pieces *pieces, size_t room)
{
    uint8_t *bytes = malloc(room);
    assert_non_null(bytes);
    size_t size = sh_metadata_snapshot_next(snapshot, bytes, room);
    if (!size) {
        free(bytes);
        return false;
    }
    assert_true(size <= room && pieces->count < PIECES_MAX);
    pieces->sizes[pieces->count] = size;
    pieces->bytes[pieces->count++] = bytes;
    return true;
}

/* Reads pieces by the order given, the i-th from order[i], into a new metadata; or says why not. */
static enum shoal_err restore(const struct pieces *pieces, const unsigned *order, unsigned count,
                              struct sh_metadata *metadata)
{
    struct sh_metadata_restore *restore;
    uint64_t before = test_digest(metadata, false);
    assert_int_equal(sh_metadata_restore_begin(metadata, TEST_SHARD, &restore), SHOAL_OK);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < count; i++) {
        unsigned at = order ? order[i] : i;
        err =
            sh_metadata_restore_piece(restore, sh_bytes_make(pieces->bytes[at], pieces->sizes[at]));
    }
    enum shoal_err ended = sh_metadata_restore_end(restore, true);
    if (err || ended)
        assert_true(test_digest(metadata, false) == before);
    return err ? err : ended;
}

static void check_restored(const struct open *open)
{
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < 2; i++) { /* into an empty shard, and in place of the same */
        assert_int_equal(restore(&open->pieces, NULL, open->pieces.count, metadata), SHOAL_OK);
        assert_true(test_digest(metadata, false) == open->digest);
    }
    sh_metadata_destroy(metadata);
}

/* Whatever is done to the pieces but nothing: refused, and the shard stays as it is. */
static void check_refused(struct test_updates *test, struct pieces *pieces)
{
    unsigned order[PIECES_MAX], count = pieces->count;
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    assert_int_equal(restore(pieces, NULL, (unsigned)test_below(test, count), metadata),
                     SHOAL_EPROTO);
    for (unsigned i = 0; i < count; i++)
        order[i] = i;
    if (count > 1) {
        unsigned at = (unsigned)test_below(test, count - 1);
        order[at] = at + 1;
        assert_int_equal(restore(pieces, order, count, metadata), SHOAL_EPROTO);
        order[at + 1] = at;
        assert_int_equal(restore(pieces, order, count, metadata), SHOAL_EPROTO);
    }
    unsigned at = (unsigned)test_below(test, count);
    size_t byte = test_below(test, pieces->sizes[at]);
    pieces->bytes[at][byte] ^= (uint8_t)(1 << test_below(test, 8));
    assert_int_equal(restore(pieces, NULL, count, metadata), SHOAL_EPROTO);
    sh_metadata_destroy(metadata);
}

/* What was gathered says less than what is durable. */
static uint64_t durable_digest(const struct sh_metadata *metadata)
{
    return test_digest(metadata, true);
}

static void act_open(struct test_updates *test, struct sh_metadata *metadata, struct open *open)
{
    if (!open->snapshot) {
        open->durable = test_below(test, 2);
        open->digest = open->durable ? durable_digest(metadata) : test_digest(metadata, false);
        assert_int_equal(
            sh_metadata_snapshot_begin(metadata, TEST_SHARD,
                                       open->durable ? SH_METADATA_DURABLE : SH_METADATA_ALL,
                                       &open->snapshot),
            SHOAL_OK);
        return;
    }
    bool is_given_up = !test_below(test, 60);
    size_t room = SH_METADATA_PIECE_BYTES_MIN << test_below(test, 4);
    if (!is_given_up && piece_take(open->snapshot, &open->pieces, room))
        return;
    sh_metadata_snapshot_end(open->snapshot);
    open->snapshot = NULL;
    if (!is_given_up) {
        check_restored(open);
        check_refused(test, &open->pieces);
    }
    pieces_free(&open->pieces);
}

static void test_beside_updates(void **state)
{
    (void)state;
    static struct test_updates test;
    static struct open opened[OPEN_MAX];
    struct sh_metadata *metadata;
    test_updates_init(&test, seed);
    memset(opened, 0, sizeof opened);
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, TEST_SHARD, 7, true);
    for (unsigned i = 0; i < TEST_ROUNDS(20000); i++) {
        const struct sh_metadata_update *update = test_update(&test, metadata);
        assert_int_not_equal(sh_metadata_apply(metadata, TEST_SHARD, update).err, SHOAL_ENOMEM);
        if (i % 7 == 0)
            act_open(&test, metadata, &opened[test_below(&test, OPEN_MAX)]);
        if (i % 4000 == 3999)
            sh_metadata_clear(metadata, TEST_SHARD); /* snapshots go on */
    }
    for (unsigned i = 0; i < OPEN_MAX; i++) {
        sh_metadata_snapshot_end(opened[i].snapshot);
        pieces_free(&opened[i].pieces);
    }
    /* When nothing refers to anything, nothing is left. */
    sh_metadata_clear(metadata, TEST_SHARD);
    while (sh_metadata_sweep(metadata, 64))
        ;
    assert_int_equal(metadata->cells.count, 0);
    sh_metadata_destroy(metadata);
}

/* The largest records, a round with all members and their data, in the smallest pieces. */
static void test_large_records(void **state)
{
    (void)state;
    static struct test_updates test;
    static struct open open;
    struct sh_metadata *metadata;
    test_updates_init(&test, seed);
    memset(&open, 0, sizeof open);
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    struct sh_metadata_update update = {
        .kind = SH_METADATA_BARRIER_NEW, .barrier = 1 << 10, .size = SH_BARRIER_MEMBERS_MAX};
    assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &update).err, SHOAL_OK);
    update.kind = SH_METADATA_BARRIER_SIGN;
    for (update.member = 1; update.member < SH_BARRIER_MEMBERS_MAX; update.member++) {
        update.value = sh_bytes_make(test.value, update.member <= 64 ? SH_BARRIER_DATA_MAX : 0);
        assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &update).err, SHOAL_OK);
    }
    for (unsigned i = 0; i < 90; i++) {
        struct sh_metadata_update put = {.kind = SH_METADATA_SCRATCH_PUT,
                                         .name = test_name(&test, 9 * i),
                                         .value = sh_bytes_make(test.value, sizeof test.value)};
        assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &put).err, SHOAL_OK);
    }
    open.digest = test_digest(metadata, false);
    assert_int_equal(
        sh_metadata_snapshot_begin(metadata, TEST_SHARD, SH_METADATA_ALL, &open.snapshot),
        SHOAL_OK);
    /* The open round changes in its middle: all chunks behind are copied. */
    update.kind = SH_METADATA_BARRIER_OFF;
    update.member = 10;
    update.round = 1;
    update.value.size = 0;
    assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &update).err, SHOAL_OK);
    assert_int_equal(sh_metadata_barrier(metadata, 1 << 10)->open.count,
                     SH_BARRIER_MEMBERS_MAX - 2);
    while (piece_take(open.snapshot, &open.pieces, SH_METADATA_PIECE_BYTES_MIN))
        ;
    sh_metadata_snapshot_end(open.snapshot);
    check_restored(&open);
    check_refused(&test, &open.pieces);
    pieces_free(&open.pieces);
    sh_metadata_destroy(metadata);
}

/* Names of another shard, and a restore that is given up. */
static void test_other_shard(void **state)
{
    (void)state;
    static struct test_updates test;
    static struct open open;
    struct sh_metadata *metadata;
    struct sh_metadata_restore *restore;
    test_updates_init(&test, seed);
    memset(&open, 0, sizeof open);
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    struct sh_metadata_update update = {
        .kind = SH_METADATA_NAME, .cid = {5}, .name = test_name(&test, 1)};
    assert_int_equal(sh_metadata_apply(metadata, TEST_SHARD, &update).err, SHOAL_OK);
    assert_int_equal(
        sh_metadata_snapshot_begin(metadata, TEST_SHARD, SH_METADATA_ALL, &open.snapshot),
        SHOAL_OK);
    assert_true(piece_take(open.snapshot, &open.pieces, 1 << 16));
    sh_metadata_snapshot_end(open.snapshot);
    struct sh_bytes piece = sh_bytes_make(open.pieces.bytes[0], open.pieces.sizes[0]);
    assert_int_equal(sh_metadata_restore_begin(metadata, TEST_SHARD + 1, &restore), SHOAL_OK);
    assert_int_equal(sh_metadata_restore_piece(restore, piece), SHOAL_EPROTO);
    assert_int_equal(sh_metadata_restore_end(restore, false), SHOAL_OK);
    assert_int_equal(sh_metadata_restore_begin(metadata, TEST_SHARD, &restore), SHOAL_OK);
    assert_int_equal(sh_metadata_restore_piece(restore, piece), SHOAL_OK);
    assert_int_equal(sh_metadata_restore_end(restore, false), SHOAL_OK);
    assert_int_equal(sh_metadata_restore_end(NULL, true), SHOAL_OK);
    pieces_free(&open.pieces);
    sh_metadata_destroy(metadata);
}

int main(void)
{
    seed = test_seed(UINT64_C(0x736e6170));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_updates),
        cmocka_unit_test(test_large_records),
        cmocka_unit_test(test_other_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
