/* What a zone's replica has, put into the store of a node that serves others, and taken out again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "recover/images.h"

#define NID UINT64_C(70)
#define FORMER UINT64_C(90)
#define PIECE (32u << 10)
#define CHUNKS 10000u /* more than are taken out at once */

static struct sh_disk *disk;
static struct sh_replog *log_;
static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_images images;
static uint8_t bytes[PIECE];

static void wake(void *arg)
{
    (void)arg;
}

static int setup(void **state)
{
    (void)state;
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    const struct sh_replog_config logged = {.disk = disk,
                                            .name = "log",
                                            .random = sh_real_random(),
                                            .cluster = 1,
                                            .node = NID,
                                            .slot_bytes = 256 << 10,
                                            .slots = 200,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 4 << 20,
                                            .batch_bytes = 64 << 10,
                                            .linger_ns = 1,
                                            .versions_max = 1024};
    assert_int_equal(sh_replog_open(&logged, 1, 1, &log_), SHOAL_OK);
    const struct sh_store_config stored = {
        .bytes_max = 64 << 20, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&stored, &store), SHOAL_OK);
    const struct sh_backup_config backed = {
        .store = store, .nid = {NID}, .zone_bytes = 1 << 20, .window_bytes = 4 << 20, .wake = wake};
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
    sh_backup_begin(backup);
    images = (struct sh_images){
        .store = store, .backup = backup, .nid = {NID}, .is_online = true, .completer = {FORMER}};
    sh_images_begin(&images);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_images_end(&images);
    sh_store_witness_set(store, NULL);
    sh_backup_destroy(backup);
    sh_replog_close(log_);
    sh_store_destroy(store);
    disk->ops->destroy(disk);
    return 0;
}

/* --- Helpers ------------------------------------------------------------------------------------- */

static shoal_cid cid_of(uint64_t local)
{
    return (shoal_cid){FORMER << 48 | local};
}

static struct sh_replog_item item_of(uint64_t local, uint32_t size)
{
    memset(bytes, (int)local, size);
    return (struct sh_replog_item){
        .local_id = local, .creator = FORMER, .pieces = 1, .total = size, .payload = {bytes, size}};
}

/* As in one step of the log. */
static enum shoal_err take(struct sh_replog_item item)
{
    enum shoal_err err = sh_images_take(&images, &item), flushed = sh_images_flush(&images);
    return err ? err : flushed;
}

static void image(uint64_t local, uint32_t size)
{
    assert_int_equal(take(item_of(local, size)), SHOAL_OK);
}

static void piece(uint64_t local, uint16_t at, uint16_t pieces)
{
    struct sh_replog_item item = item_of(local, PIECE);
    item.piece = at;
    item.pieces = pieces;
    item.offset = at * PIECE;
    item.total = pieces * PIECE;
    assert_int_equal(take(item), SHOAL_OK);
}

static enum shoal_err claim_of(uint64_t place, uint64_t first, uint64_t last)
{
    uint8_t range[16];
    sh_store64(range, first);
    sh_store64(range + 8, last);
    return take((struct sh_replog_item){
        .local_id = 1 + place, .pieces = 1, .payload = {range, sizeof range}});
}

static void claim(uint64_t place, uint64_t first, uint64_t last)
{
    assert_int_equal(claim_of(place, cid_of(first).v, cid_of(last).v), SHOAL_OK);
}

/* A zone of the backup that has these IDs. */
static void zone_make(uint64_t number, uint64_t first, uint64_t last)
{
    const struct sh_zone_claim all = {cid_of(first).v, cid_of(last).v};
    assert_int_equal(sh_backup_zone_found(backup, log_, number, &all, 1, 0, 1), SHOAL_OK);
}

static uint64_t chunks_there(void)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    return status.chunks;
}

static bool is_there(shoal_cid cid)
{
    uint32_t size;
    return sh_store_size(store, cid, &size) == SHOAL_OK;
}

static void counts_are(uint64_t chunks, uint64_t payload_bytes)
{
    assert_int_equal(images.chunks, chunks);
    assert_int_equal(images.payload_bytes, payload_bytes);
    assert_int_equal(images.live, payload_bytes + chunks * SH_ZONE_CHUNK_BYTES);
}

/* How many calls it takes until nothing is left to undo. */
static unsigned undo(uint64_t number)
{
    unsigned calls = 1;
    enum shoal_err err;
    for (; (err = sh_images_undo(&images, number)) == SHOAL_EAGAIN; calls++)
        assert_true(calls < 1000);
    assert_int_equal(err, SHOAL_OK);
    return calls;
}

/* Claims all, unless the test has made claims, and settles the zone. */
static void settle(void)
{
    enum shoal_err err;
    if (!images.claims_count)
        claim(0, 1, (UINT64_C(1) << 40) - 1);
    while ((err = sh_images_settle(&images)) == SHOAL_EAGAIN)
        continue;
    assert_int_equal(err, SHOAL_OK);
}

/* --- What comes ---------------------------------------------------------------------------------- */

static void test_chunks(void **state)
{
    (void)state;
    uint8_t got[2 * PIECE];
    uint32_t size;
    struct sh_replog_item zeros = item_of(2, 50);
    zeros.payload.at = NULL;
    image(1, 100);
    assert_int_equal(take(zeros), SHOAL_OK);
    piece(3, 1, 2);
    counts_are(3, 150 + 2 * PIECE);
    piece(3, 0, 2);
    piece(3, 0, 2); /* a crash left it twice */
    image(1, 100);
    counts_are(3, 150 + 2 * PIECE);
    assert_int_equal(chunks_there(), 3);
    assert_int_equal(sh_store_get(store, cid_of(3), got, sizeof got, &size), SHOAL_OK);
    assert_int_equal(size, 2 * PIECE);
    for (unsigned i = 0; i < size; i++)
        assert_int_equal(got[i], 3);
    assert_int_equal(sh_store_get(store, cid_of(2), got, sizeof got, &size), SHOAL_OK);
    assert_true(size == 50 && !got[0]);
    /* None of that is in a zone's stream. */
    struct sh_backup_status status;
    sh_backup_status_get(backup, &status);
    assert_true(!status.zones && !status.writes);
    /* What does not fit is refused. */
    assert_int_equal(take(item_of(4, 0)), SHOAL_OK);
    struct sh_replog_item large = zeros;
    large.local_id = 5;
    large.payload.size = 2 << 20;
    assert_int_equal(take(large), SHOAL_ETOOBIG);
    large.local_id = 3; /* a piece beyond the end of what the first one has made */
    large.payload = sh_bytes_make(bytes, PIECE);
    large.pieces = 3;
    large.offset = 2 * PIECE;
    assert_int_equal(take(large), SHOAL_ESIZE);
}

static void test_claims(void **state)
{
    (void)state;
    claim(3, 10, 20);
    claim(0, 0, 9); /* its ID 0 is nobody's, and claimed with the others */
    assert_int_equal(images.claims_count, 4);
    assert_true(images.claims[0].first == cid_of(0).v && images.claims[3].last == cid_of(20).v);
    assert_true(images.claims[1].first > images.claims[1].last);
    assert_int_equal(claim_of(1, 1, 0), SHOAL_OK); /* an empty place */
    /* No owner records these. */
    assert_int_equal(claim_of(UINT32_MAX, cid_of(1).v, cid_of(1).v), SHOAL_ECORRUPT);
    assert_int_equal(claim_of(1 << 24, cid_of(1).v, cid_of(1).v), SHOAL_ECORRUPT);
    assert_int_equal(claim_of(2, cid_of(1).v, (FORMER + 1) << 48 | 1), SHOAL_ECORRUPT);
    assert_int_equal(claim_of(2, 1, 2), SHOAL_ECORRUPT);
    assert_int_equal(claim_of(2, UINT64_C(3) << 48 | 1, UINT64_C(3) << 48 | 1), SHOAL_ECORRUPT);
    assert_int_equal(claim_of(2, UINT64_C(0xfffe) << 48 | 1, UINT64_MAX), SHOAL_ECORRUPT);
    assert_int_equal(
        take((struct sh_replog_item){.local_id = 1, .pieces = 1, .payload = {bytes, 15}}),
        SHOAL_ECORRUPT);
    assert_int_equal(
        take((struct sh_replog_item){.local_id = 1, .pieces = 1, .payload = {NULL, 16}}),
        SHOAL_ECORRUPT);
    assert_int_equal(images.claims_count, 4);
}

/* What a zone of this node has, or has removed, it keeps: the image is left, once. */
static void test_what_another_zone_has(void **state)
{
    (void)state;
    zone_make(7, 100, 199);
    image(99, 10);
    image(100, 10);
    piece(150, 1, 2);
    piece(150, 0, 2);
    image(200, 10);
    counts_are(2, 20);
    assert_false(is_there(cid_of(100)) || is_there(cid_of(150)));
    assert_int_equal(images.left_count, 2);
    assert_true(images.left[0].chunk == cid_of(100).v && images.left[1].chunk == cid_of(150).v);
}

/* Large chunks whose claims did not come go, whatever the order of the others. */
static void test_large_ones_without_claims(void **state)
{
    (void)state;
    uint64_t random = test_seed(4711);
    for (unsigned round = 0; round < 20; round++) {
        bool are_claimed[100] = {false};
        uint64_t left = 0, kept = 0;
        sh_images_begin(&images);
        for (unsigned place = 0; place < 12; place++) {
            uint64_t first = test_draw(&random) % 100, last = first + test_draw(&random) % 8;
            if (test_draw(&random) % 4)
                claim(place, first, last);
            else
                continue;
            for (uint64_t at = first; at <= last && at < 100; at++)
                are_claimed[at] = true;
        }
        for (uint64_t at = 1; at < 100; at += 1 + test_draw(&random) % 6) {
            piece(at, 0, 2);
            left += !are_claimed[at];
            kept += are_claimed[at];
        }
        claim(12, 300, 300);
        image(300, 10);
        settle();
        assert_int_equal(images.left_count, left);
        counts_are(kept + 1, kept * 2 * PIECE + 10);
        for (size_t i = 0; i < images.left_count; i++)
            assert_false(are_claimed[images.left[i].chunk & 0xffff] ||
                         is_there((shoal_cid){images.left[i].chunk}));
        assert_int_equal(chunks_there(), kept + 1);
        (void)undo(0);
        assert_int_equal(chunks_there(), 0);
    }
}

/* --- Dropped ------------------------------------------------------------------------------------- */

static enum shoal_err drop(uint64_t local)
{
    return sh_images_drop(&images, FORMER, local);
}

/* The bytes of a chunk, as long as the log lends them. */
static uint8_t lent[CHUNKS][16];

static void lend(uint64_t local, uint8_t byte)
{
    memset(lent[local], byte, sizeof lent[local]);
    struct sh_replog_item item = item_of(local, 1);
    item.payload = sh_bytes_make(lent[local], 1 + local % sizeof lent[local]);
    assert_int_equal(sh_images_take(&images, &item), SHOAL_OK);
}

/* Chunks come in steps of the log, in any order, are dropped, and come again: of each the last counts. */
static void test_steps(void **state)
{
    (void)state;
    static uint8_t last[CHUNKS];
    uint64_t random = test_seed(20261127), all_bytes = 0, all = 0;
    memset(last, 0, sizeof last);
    zone_make(7, 1, CHUNKS / 2 - 1); /* in another zone's range some of what comes is left */
    for (unsigned step = 0; step < 300; step++) {
        uint64_t at = CHUNKS / 2 + test_draw(&random) % (CHUNKS / 2 - 200);
        for (unsigned i = 0; i < test_draw(&random) % 150; i++) {
            at += test_draw(&random) % 20 ? 1 : 0;
            if (last[at])
                assert_int_equal(drop(at), SHOAL_OK);
            last[at] = test_draw(&random) % 8 ? (uint8_t)(1 + step % 250) : 0;
            if (last[at])
                lend(at, last[at]);
        }
        assert_int_equal(sh_images_flush(&images), SHOAL_OK);
        memset(lent, 0xee, sizeof lent);
    }
    for (uint64_t at = 1; at < CHUNKS; at++) {
        uint8_t room[16];
        uint32_t size;
        assert_int_equal(is_there(cid_of(at)), last[at] != 0);
        if (!last[at])
            continue;
        assert_int_equal(sh_store_get(store, cid_of(at), room, sizeof room, &size), SHOAL_OK);
        assert_true(size == 1 + at % sizeof room && room[0] == last[at] &&
                    room[size - 1] == last[at]);
        all_bytes += size;
        all++;
    }
    counts_are(all, all_bytes);
    assert_true(all > 1000);
    settle();
    (void)undo(0);
    assert_int_equal(chunks_there(), 0);
}

/* What is dropped of a chunk that another zone has is not left, but what comes of it afterwards is. */
static void test_drop_of_what_is_left(void **state)
{
    (void)state;
    zone_make(7, 100, 199);
    for (uint64_t i = 199; i > 95; i--)
        image(i, 10);
    assert_int_equal(drop(150), SHOAL_OK);
    assert_int_equal(drop(99), SHOAL_OK);
    assert_int_equal(drop(120), SHOAL_OK);
    image(120, 10);
    image(101, 10); /* another piece, say */
    settle();
    assert_int_equal(images.left_count, 99);
    for (unsigned i = 0; i < 99; i++)
        assert_true(images.left[i].chunk == cid_of(100 + i + (i >= 50)).v);
    counts_are(3, 30);
    assert_int_equal(chunks_there(), 3);
}

/* A large chunk that is dropped, and comes again as a small one; nor does one that is dropped for good leave anything. */
static void test_drop_of_large_ones(void **state)
{
    (void)state;
    claim(0, 1, 1);
    claim(1, 2, 2);
    claim(2, 3, 4);
    for (uint64_t i = 1; i <= 4; i++) {
        piece(i, 0, 2);
        piece(i, 1, 2);
    }
    assert_int_equal(drop(3), SHOAL_OK);
    image(3, 10);
    assert_int_equal(drop(4), SHOAL_OK);
    assert_int_equal(sh_images_drop(&images, 0, 2), SHOAL_OK); /* the claim of the second goes */
    settle();
    counts_are(2, 2 * PIECE + 10);
    assert_true(is_there(cid_of(1)) && !is_there(cid_of(2)) && is_there(cid_of(3)));
    assert_int_equal(images.left_count, 1);
    assert_true(images.left[0].chunk == cid_of(2).v);
}

static void test_drop_of_a_pinned_one(void **state)
{
    (void)state;
    uint8_t *at;
    uint32_t size;
    image(5, 16);
    assert_int_equal(sh_store_pin(store, cid_of(5), &at, &size), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(drop(5), SHOAL_EAGAIN);
    counts_are(1, 16);
    assert_int_equal(sh_store_unpin(store, cid_of(5)), SHOAL_OK);
    assert_int_equal(drop(5), SHOAL_OK);
    counts_are(0, 0);
}

static bool never_counts(void *arg, shoal_cid cid, uint64_t number)
{
    (void)arg, (void)cid, (void)number;
    return false;
}

/* A chunk that came back, though another zone claims it still, is no such one any more once it is dropped. */
static void test_drop_of_what_returned(void **state)
{
    (void)state;
    zone_make(7, 100, 199);
    images.counts = never_counts;
    for (uint64_t i = 100; i < 110; i++)
        image(i, 10);
    assert_int_equal(images.returned_count, 10);
    assert_int_equal(drop(104), SHOAL_OK);
    settle();
    assert_int_equal(images.returned_count, 9);
    assert_int_equal(images.left_count, 0);
    counts_are(9, 90);
    for (size_t i = 0; i < images.returned_count; i++)
        assert_true(images.returned[i] != cid_of(104).v);
}

static bool counts_now(void *arg, shoal_cid cid, uint64_t number)
{
    (void)cid;
    (void)number;
    return *(const bool *)arg;
}

/* Another zone's claims did not count, and do once that zone is found to have the chunks: what came of them meanwhile goes again, whether it was dropped or not. */
static void test_returned_until_the_claim_counts(void **state)
{
    (void)state;
    bool counts = false;
    zone_make(7, 100, 199);
    images.counts = counts_now;
    images.arg = &counts;
    claim(0, 1, 1000);
    for (uint64_t local = 95; local < 105; local++)
        image(local, 10);
    assert_int_equal(images.returned_count, 5);
    counts = true;
    assert_int_equal(drop(102), SHOAL_OK);
    settle();
    for (uint64_t local = 95; local < 105; local++)
        assert_int_equal(is_there(cid_of(local)), local < 100);
    assert_int_equal(images.returned_count, 0);
    counts_are(5, 50);
    sh_images_begin(&images);
    counts = false;
    image(150, 10);
    counts = true;
    (void)undo(0);
    assert_false(is_there(cid_of(150)));
}

/* Nor is a large chunk that goes as this zone does not claim it: it is another zone's, which is read later, and would be taken for one that this zone has
 * removed (world_recovery_test found that). */
static void test_large_ones_that_returned(void **state)
{
    (void)state;
    zone_make(7, 100, 199);
    images.counts = never_counts;
    claim(0, 160, 160);
    for (uint16_t at = 0; at < 2; at++) {
        piece(150, at, 2);
        piece(160, at, 2);
    }
    settle();
    assert_false(is_there(cid_of(150)));
    assert_true(is_there(cid_of(160)));
    assert_true(images.returned_count > 0);
    for (size_t i = 0; i < images.returned_count; i++)
        assert_int_equal(images.returned[i], cid_of(160).v);
}

/* The images leave what the zone has of chunks that it does not claim any more: another zone has these, whether that claims them here or not. They do so in many steps, and a chunk is pinned meanwhile. */
static void test_strays(void **state)
{
    (void)state;
    uint8_t *at;
    uint32_t size;
    zone_make(7, 100, 199);
    images.counts = never_counts;
    claim(0, 150, 160);
    claim(1, 95, 97);
    claim(2, 280, 290);
    claim(3, 291, 299);
    for (uint64_t i = 90; i < 300; i++)
        image(i, 10);
    assert_int_equal(images.returned_count, 100);
    assert_int_equal(sh_store_pin(store, cid_of(200), &at, &size), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_images_settle(&images), SHOAL_EBUSY);
    assert_int_equal(sh_store_unpin(store, cid_of(200)), SHOAL_OK);
    settle();
    for (uint64_t i = 90; i < 300; i++) {
        bool is_claimed = (i >= 95 && i <= 97) || (i >= 150 && i <= 160) || i >= 280;
        assert_int_equal(is_there(cid_of(i)), is_claimed);
    }
    counts_are(34, 340);
    assert_int_equal(images.left_count, 210 - 34);
    assert_int_equal(images.returned_count, 11);
    assert_int_equal(images.runs_count, 3);
    assert_true(images.runs[2].first.v == cid_of(280).v && images.runs[2].last.v == cid_of(299).v);
    settle(); /* that is over */
    counts_are(34, 340);
}

/* A step looks at so many chunks, and at so many claims. */
static void test_strays_in_steps(void **state)
{
    (void)state;
    unsigned steps = 0;
    enum shoal_err err;
    for (uint64_t i = 1; i <= CHUNKS; i++)
        image(i, 1);
    claim(0, CHUNKS, CHUNKS);
    while ((err = sh_images_settle(&images)) == SHOAL_EAGAIN)
        steps++;
    assert_true(!err && steps >= (CHUNKS - 1) / 4096);
    counts_are(1, 1);
    (void)undo(0);
    sh_images_begin(&images);
    image(1, 1);
    image(2 * CHUNKS, 1);
    for (uint64_t place = 0; place < 5000; place++)
        claim(place, 2 * place + 1, 2 * place + 1);
    for (steps = 0; (err = sh_images_settle(&images)) == SHOAL_EAGAIN; steps++)
        continue;
    assert_true(!err && steps >= 4);
}

/* What another zone claims, and has by now, stays: its image was left. */
static void test_strays_of_others(void **state)
{
    (void)state;
    for (uint64_t i = 90; i < 110; i++)
        image(i, 10);
    zone_make(7, 100, 199);
    claim(0, 1, 1);
    settle();
    for (uint64_t i = 90; i < 110; i++)
        assert_int_equal(is_there(cid_of(i)), i >= 100);
    assert_int_equal(images.left_count, 10);
}

/* Where the store has no room, that is said, and what was taken goes again. */
static void test_no_room(void **state)
{
    (void)state;
    static uint8_t large[1 << 16];
    enum shoal_err err = SHOAL_OK;
    for (uint64_t i = 1; !err; i++) {
        assert_true(i < 2000);
        struct sh_replog_item item = item_of(i, 1);
        item.payload = sh_bytes_make(large, sizeof large);
        err = sh_images_take(&images, &item);
        if (!err && i % 40 == 0)
            err = sh_images_flush(&images);
    }
    assert_int_equal(err, SHOAL_EFULL);
    (void)undo(0);
    assert_int_equal(chunks_there(), 0);
    counts_are(0, 0);
}

/* --- Out again ----------------------------------------------------------------------------------- */

/* A zone that is not brought back leaves the store as it was; of others' chunks that lie between its own none goes. */
static void test_undo(void **state)
{
    (void)state;
    zone_make(7, CHUNKS + 1, CHUNKS + 10);
    sh_store_witness_pause(true);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(sh_store_take_over(store, cid_of(CHUNKS + i), sh_bytes_make(bytes, 20)),
                         SHOAL_OK);
    sh_store_witness_pause(false);
    for (uint64_t i = 1; i <= CHUNKS; i++)
        image(i, 16);
    image(2 * CHUNKS, 16);
    struct sh_replog_item other = item_of(5, 30);
    other.creator = FORMER + 1;
    assert_int_equal(take(other), SHOAL_OK);
    counts_are(CHUNKS + 2, 16 * (CHUNKS + 1) + 30);
    assert_true(undo(0) >= CHUNKS / 4096);
    assert_int_equal(chunks_there(), 10);
    counts_are(0, 0);
    assert_int_equal(images.left_count, 0);
    assert_int_equal(undo(0), 1);
}

static void test_undo_of_a_pinned_one(void **state)
{
    (void)state;
    uint8_t *at;
    uint32_t size;
    for (uint64_t i = 1; i <= 10; i++)
        image(i, 16);
    assert_int_equal(sh_store_pin(store, cid_of(5), &at, &size), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_images_undo(&images, 0), SHOAL_EBUSY);
    assert_int_equal(sh_store_unpin(store, cid_of(5)), SHOAL_OK);
    assert_int_equal(undo(0), 1);
    assert_int_equal(chunks_there(), 0);
}

/* Parts that are others' by now go, and are left; the zone's others stay until it is undone, from its first chunk on. */
static void test_leave(void **state)
{
    (void)state;
    unsigned calls = 1;
    enum shoal_err err;
    for (uint64_t i = 1; i <= CHUNKS; i++)
        image(i, 16);
    zone_make(7, 2, CHUNKS - 10); /* of the first one nobody says whose it is */
    zone_make(6, CHUNKS - 9, CHUNKS);
    assert_int_equal(sh_images_leave(&images, 7, cid_of(20).v, cid_of(29).v), SHOAL_OK);
    assert_int_equal(images.left_count, 10);
    assert_true(is_there(cid_of(19)) && !is_there(cid_of(20)) && !is_there(cid_of(29)) &&
                is_there(cid_of(30)));
    counts_are(CHUNKS - 10, 16 * (CHUNKS - 10));
    for (; (err = sh_images_leave(&images, 7, cid_of(5000).v, cid_of(CHUNKS).v)) == SHOAL_EAGAIN;
         calls++)
        assert_true(calls < 100);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(calls, 2);
    assert_int_equal(images.left_count, 10 + CHUNKS - 10 - 4999);
    assert_true(is_there(cid_of(4999)) && !is_there(cid_of(5000)) &&
                !is_there(cid_of(CHUNKS - 10)) && is_there(cid_of(CHUNKS - 9)));
    /* One that does not come to its end. */
    assert_int_equal(sh_images_leave(&images, 7, cid_of(100).v, cid_of(CHUNKS).v), SHOAL_EAGAIN);
    (void)undo(7);
    assert_int_equal(chunks_there(), 11);
    counts_are(11, 176); /* which the other zone has, or none */
}

/* An own ID that had moved away comes back as the chunk that it was; one that was never given away is none. */
static void test_own_ids(void **state)
{
    (void)state;
    shoal_cid cid;
    const struct sh_store_wish wish = {.size = 8, .count = 1};
    sh_store_witness_pause(true);
    assert_int_equal(sh_store_new_as(store, &wish, &cid, NULL), SHOAL_OK);
    assert_int_equal(sh_store_release(store, cid), SHOAL_OK);
    sh_store_witness_pause(false);
    for (unsigned i = 0; i < 2; i++) {
        struct sh_replog_item item = item_of(shoal_cid_local(cid), 40);
        item.creator = NID;
        assert_int_equal(take(item), SHOAL_OK);
        assert_true(is_there(cid));
        (void)undo(0);
        assert_false(is_there(cid));
    }
    /* It stays taken: nobody is given it while the chunk is elsewhere. */
    for (unsigned i = 0; i < 20; i++) {
        shoal_cid other;
        sh_store_witness_pause(true);
        assert_int_equal(sh_store_new_as(store, &wish, &other, NULL), SHOAL_OK);
        sh_store_witness_pause(false);
        assert_true(other.v != cid.v);
    }
    struct sh_replog_item item = item_of(5000, 40);
    item.creator = NID;
    assert_int_equal(take(item), SHOAL_ENOCHUNK);
}

/* Twice, and then again with another zone. */
static void test_end(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        claim(0, 1, 10);
        image(1, 10);
        piece(20, 0, 2);
        settle();
        assert_true(images.claims_count && images.runs_count && images.left_count &&
                    images.hulls_count);
        (void)undo(0);
        sh_images_end(&images);
        sh_images_end(&images);
        sh_images_begin(&images);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chunks),
        TEST(test_claims),
        TEST(test_what_another_zone_has),
        TEST(test_large_ones_without_claims),
        TEST(test_steps),
        TEST(test_drop_of_what_is_left),
        TEST(test_drop_of_large_ones),
        TEST(test_drop_of_a_pinned_one),
        TEST(test_drop_of_what_returned),
        TEST(test_returned_until_the_claim_counts),
        TEST(test_large_ones_that_returned),
        TEST(test_strays),
        TEST(test_strays_in_steps),
        TEST(test_strays_of_others),
        TEST(test_no_room),
        TEST(test_undo),
        TEST(test_undo_of_a_pinned_one),
        TEST(test_leave),
        TEST(test_own_ids),
        TEST(test_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
