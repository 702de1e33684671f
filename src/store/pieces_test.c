/* Large chunks in pieces: what comes of it is what the functions at once would have done, whatever
 * others do between two pieces; and nothing is lost where there is no room for a second block. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "store/store.h"

#define BIG (5 * SH_STORE_PIECE_BYTES + 13)
#define LARGEST (8 * SH_STORE_PIECE_BYTES)
#define STEPS_MAX 1000

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = LARGEST, .small_pages = true, .defers = true};
    struct sh_store *store;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static uint8_t *bytes_make(size_t size, uint8_t seed)
{
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(seed + sh_mix64(i));
    return bytes;
}

static shoal_cid chunk_make(struct sh_store *store, const uint8_t *bytes, uint32_t size)
{
    shoal_cid cid;
    assert_int_equal(sh_store_new_many(store, size, 1, &cid), SHOAL_OK);
    assert_int_equal(sh_store_put(store, cid, sh_bytes_make(bytes, size)), SHOAL_OK);
    return cid;
}

static void check(struct sh_store *store, shoal_cid cid, const uint8_t *bytes, uint32_t size)
{
    uint8_t *got = malloc(LARGEST);
    uint32_t is;
    assert_non_null(got);
    assert_int_equal(sh_store_get(store, cid, got, LARGEST, &is), SHOAL_OK);
    assert_int_equal(is, size);
    assert_memory_equal(got, bytes, size);
    free(got);
}

static struct sh_store_rewriting *begin(struct sh_store *store,
                                        const struct sh_store_rewrite *rewrite)
{
    struct sh_store_rewriting *rewriting;
    assert_int_equal(sh_store_rewriting_begin(store, rewrite, &rewriting), SHOAL_OK);
    return rewriting;
}

/* Steps until it is over; *steps_out: how often. */
static enum shoal_err finish(struct sh_store_rewriting *rewriting, unsigned *steps_out)
{
    unsigned steps = 1;
    while (!sh_store_rewriting_step(rewriting))
        assert_true(++steps < STEPS_MAX);
    if (steps_out)
        *steps_out = steps;
    return sh_store_rewriting_end(rewriting);
}

/* --- Alone --------------------------------------------------------------------------------- */

static void test_each_kind(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    uint8_t *a = bytes_make(LARGEST, 1), *b = bytes_make(LARGEST, 77);
    shoal_cid cid = chunk_make(store, a, BIG);
    unsigned steps;
    struct sh_bytes data = sh_bytes_make(b, BIG);
    assert_int_equal(
        finish(begin(store,
                     &(struct sh_store_rewrite){.kind = SH_STORE_PUT, .cid = cid, .data = data}),
               &steps),
        SHOAL_OK);
    assert_true(steps > BIG / SH_STORE_STEP_BYTES);
    check(store, cid, b, BIG);
    memcpy(b + 1000, a, 3 * SH_STORE_PIECE_BYTES);
    struct sh_store_rewrite part = {.kind = SH_STORE_PUT_PART,
                                    .cid = cid,
                                    .offset = 1000,
                                    .data = sh_bytes_make(a, 3 * SH_STORE_PIECE_BYTES)};
    assert_int_equal(finish(begin(store, &part), NULL), SHOAL_OK);
    check(store, cid, b, BIG);
    struct sh_store_rewrite compare = {.kind = SH_STORE_PUT_IF,
                                       .cid = cid,
                                       .expected = sh_bytes_make(b, BIG),
                                       .data = sh_bytes_make(a, BIG)};
    assert_int_equal(finish(begin(store, &compare), NULL), SHOAL_OK);
    check(store, cid, a, BIG);
    assert_int_equal(finish(begin(store, &compare), NULL), SHOAL_EDIFFERS);
    struct sh_store_rewrite hash = {.kind = SH_STORE_PUT_IF_HASH,
                                    .cid = cid,
                                    .hash = sh_hash64(sh_bytes_make(a, BIG), 0),
                                    .data = sh_bytes_make(b, BIG)};
    assert_int_equal(finish(begin(store, &hash), NULL), SHOAL_OK);
    check(store, cid, b, BIG);
    assert_int_equal(finish(begin(store, &hash), NULL), SHOAL_EDIFFERS);
    memset(b + BIG, 0, LARGEST - BIG);
    struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = cid, .size = LARGEST};
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_OK);
    check(store, cid, b, LARGEST);
    resize.size = 2 * SH_STORE_PIECE_BYTES;
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_OK);
    check(store, cid, b, 2 * SH_STORE_PIECE_BYTES);
    /* From a chunk among others to a large one. */
    shoal_cid small = chunk_make(store, a, 100);
    memset(a + 100, 0, BIG - 100);
    resize = (struct sh_store_rewrite){.kind = SH_STORE_RESIZE, .cid = small, .size = BIG};
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_OK);
    check(store, small, a, BIG);
    free(a);
    free(b);
    sh_store_destroy(store);
}

static void test_fill_and_errors(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    uint8_t *a = bytes_make(LARGEST + 1, 1);
    shoal_cid cid;
    struct sh_store_wish wish = {.count = 1, .reserve = true};
    assert_int_equal(sh_store_new_as(store, &wish, &cid, NULL), SHOAL_OK);
    struct sh_store_rewrite fill = {
        .kind = SH_STORE_FILL, .cid = cid, .data = sh_bytes_make(a, LARGEST + 1)};
    assert_int_equal(finish(begin(store, &fill), NULL), SHOAL_ETOOBIG);
    fill.data.size = BIG;
    assert_int_equal(finish(begin(store, &fill), NULL), SHOAL_OK);
    check(store, cid, a, BIG);
    assert_int_equal(finish(begin(store, &fill), NULL), SHOAL_ENOCHUNK);
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(a, BIG - 1)};
    assert_int_equal(finish(begin(store, &put), NULL), SHOAL_ESIZE);
    put.cid.v += 1000;
    assert_int_equal(finish(begin(store, &put), NULL), SHOAL_ENOCHUNK);
    struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = cid, .size = LARGEST + 1};
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_ETOOBIG);
    free(a);
    sh_store_destroy(store);
}

/* A pinned chunk is written where it is, and not resized. */
static void test_pinned(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    uint8_t *a = bytes_make(BIG, 1), *b = bytes_make(BIG, 9), *at;
    uint32_t size;
    shoal_cid cid = chunk_make(store, a, BIG);
    struct sh_store_rewrite put = {.kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(b, BIG)};
    struct sh_store_rewriting *rewriting = begin(store, &put);
    for (unsigned i = 0; i < 4; i++)
        assert_false(sh_store_rewriting_step(rewriting));
    assert_int_equal(sh_store_pin(store, cid, &at, &size), SHOAL_OK);
    assert_int_equal(finish(rewriting, NULL), SHOAL_OK);
    assert_memory_equal(at, b, BIG);
    struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = cid, .size = LARGEST};
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_EBUSY);
    assert_int_equal(sh_store_unpin(store, cid), SHOAL_OK);
    free(a);
    free(b);
    sh_store_destroy(store);
}

/* Without memory for a second block a chunk is written all the same, and what does not fit changes
 * nothing. */
static void test_full(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(4) << 20);
    uint8_t *a = bytes_make(LARGEST, 1), *b = bytes_make(LARGEST, 9);
    shoal_cid cid = chunk_make(store, a, LARGEST);
    uint64_t used;
    struct sh_store_status status;
    shoal_cid more[64];
    unsigned count = 0;
    while (count < 64 && sh_store_new_many(store, 65536, 1, &more[count]) == SHOAL_OK)
        count++;
    assert_true(count < 64);
    sh_store_status_get(store, &status);
    used = status.block_bytes;
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(b, LARGEST)};
    assert_int_equal(finish(begin(store, &put), NULL), SHOAL_OK);
    check(store, cid, b, LARGEST);
    struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = more[0], .size = BIG};
    assert_int_equal(finish(begin(store, &resize), NULL), SHOAL_EFULL);
    sh_store_status_get(store, &status);
    assert_int_equal(status.block_bytes, used);
    free(a);
    free(b);
    sh_store_destroy(store);
}

/* --- With others at it --------------------------------------------------------------------- */

/* One chunk and what it must be; others write to it and to its neighbours between two pieces. */
struct shared {
    struct sh_store *store;
    shoal_cid cid, neighbour;
    uint8_t *model;
    uint32_t size;
    uint64_t random;
    unsigned writes; /* by others, since the last job began */
};

static void others_act(struct shared *shared)
{
    uint8_t bytes[64];
    uint64_t what = test_draw(&shared->random) % 24;
    if (what == 0) {
        uint32_t offset = (uint32_t)(test_draw(&shared->random) % (shared->size - sizeof bytes));
        for (unsigned i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)test_draw(&shared->random);
        assert_int_equal(
            sh_store_put_part(shared->store, shared->cid, offset, sh_bytes_make(bytes, 64)),
            SHOAL_OK);
        memcpy(shared->model + offset, bytes, sizeof bytes);
        shared->writes++;
    } else if (what < 4) {
        uint32_t size = (uint32_t)(test_draw(&shared->random) % 5000);
        assert_int_equal(sh_store_resize(shared->store, shared->neighbour, size), SHOAL_OK);
    } else if (what == 4) {
        (void)sh_store_defrag(shared->store, 16, true);
    }
}

/* Does a job, with others at work; what comes of it is done to the model when it is over. */
static void job_run(struct shared *shared, const struct sh_store_rewrite *rewrite)
{
    struct sh_store_rewriting *rewriting = begin(shared->store, rewrite);
    shared->writes = 0;
    while (!sh_store_rewriting_step(rewriting))
        others_act(shared);
    enum shoal_err err = sh_store_rewriting_end(rewriting);
    bool is_if = rewrite->kind == SH_STORE_PUT_IF || rewrite->kind == SH_STORE_PUT_IF_HASH;
    assert_int_equal(err, is_if && shared->writes > 0 ? SHOAL_EDIFFERS : SHOAL_OK);
    if (err)
        return;
    if (rewrite->kind == SH_STORE_RESIZE) {
        if (rewrite->size > shared->size)
            memset(shared->model + shared->size, 0, rewrite->size - shared->size);
        shared->size = rewrite->size;
    } else {
        memcpy(shared->model + rewrite->offset, rewrite->data.at, rewrite->data.size);
    }
}

static void read_run(struct shared *shared)
{
    uint32_t offset = (uint32_t)(test_draw(&shared->random) % (shared->size / 2));
    struct sh_store_reading reading = {.cid = shared->cid,
                                       .into = malloc(shared->size),
                                       .offset = offset,
                                       .size = shared->size - offset,
                                       .is_whole = offset == 0};
    enum shoal_err err;
    assert_non_null(reading.into);
    while (!sh_store_reading_step(shared->store, &reading, &err))
        others_act(shared);
    assert_int_equal(err, SHOAL_OK);
    assert_memory_equal(reading.into, shared->model + offset, reading.size);
    free(reading.into);
}

static void any_run(struct shared *shared)
{
    uint8_t *data = bytes_make(LARGEST, (uint8_t)test_draw(&shared->random));
    uint8_t *old = malloc(shared->size);
    assert_non_null(old);
    memcpy(old, shared->model, shared->size);
    struct sh_store_rewrite rewrite = {
        .kind = (enum sh_store_rewrite_kind)(test_draw(&shared->random) % SH_STORE_FILL),
        .cid = shared->cid,
        .size = LARGEST / 2 + (uint32_t)(test_draw(&shared->random) % (LARGEST / 2)),
        .expected = sh_bytes_make(old, shared->size),
        .hash = sh_hash64(sh_bytes_make(old, shared->size), 0),
        .data = sh_bytes_make(data, shared->size)};
    if (rewrite.kind == SH_STORE_PUT_PART) {
        rewrite.offset = (uint32_t)(test_draw(&shared->random) % (shared->size / 2));
        rewrite.data.size = shared->size / 2;
    }
    job_run(shared, &rewrite);
    free(old);
    free(data);
}

static void test_others_write(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(UINT64_C(64) << 20),
                            .model = bytes_make(LARGEST, 3),
                            .size = BIG,
                            .random = test_seed(20)};
    shared.cid = chunk_make(shared.store, shared.model, BIG);
    shared.neighbour = chunk_make(shared.store, shared.model, 10);
    for (unsigned i = 0; i < 200; i++) {
        any_run(&shared);
        check(shared.store, shared.cid, shared.model, shared.size);
        read_run(&shared);
    }
    free(shared.model);
    sh_store_destroy(shared.store);
}

/* One that is given up, or whose chunk is removed meanwhile, leaves no block behind. */
static void test_given_up(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    uint8_t *a = bytes_make(BIG, 1);
    struct sh_store_status status;
    for (unsigned steps = 0; steps < 8; steps++) {
        shoal_cid cid = chunk_make(store, a, BIG);
        struct sh_store_rewrite put = {
            .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(a, BIG)};
        struct sh_store_rewriting *given_up = begin(store, &put), *late = begin(store, &put);
        for (unsigned i = 0; i < steps; i++) {
            assert_false(sh_store_rewriting_step(given_up));
            assert_false(sh_store_rewriting_step(late));
        }
        assert_int_equal(sh_store_rewriting_end(given_up), SHOAL_ECANCELED);
        assert_int_equal(sh_store_remove(store, cid), SHOAL_OK);
        assert_int_equal(finish(late, NULL), SHOAL_ENOCHUNK);
        sh_store_status_get(store, &status);
        assert_int_equal(status.block_bytes, 0);
    }
    free(a);
    sh_store_destroy(store);
}

/* What large chunks leave goes back to the kernel in the calls that go over the store. */
static void test_deferred(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    struct sh_store_status status;
    shoal_cid cids[8];
    assert_int_equal(sh_store_new_many(store, LARGEST, 8, cids), SHOAL_OK);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    sh_store_status_get(store, &status);
    assert_true(status.free_bytes >= UINT64_C(8) * LARGEST);
    for (unsigned i = 0; i < 100; i++)
        (void)sh_store_defrag(store, 16, false);
    sh_store_status_get(store, &status);
    assert_true(status.free_bytes < LARGEST);
    sh_store_destroy(store);
}

static void arrive(struct sh_store *store, shoal_cid cid, const uint8_t *bytes, uint32_t size,
                   struct sh_store_arriving *arriving)
{
    assert_int_equal(sh_store_arriving_begin(store, cid, size, arriving), SHOAL_OK);
    for (uint32_t at = 0; at < size; at += SH_STORE_PIECE_BYTES) {
        uint32_t left = size - at;
        uint32_t some = left < SH_STORE_PIECE_BYTES ? left : SH_STORE_PIECE_BYTES;
        sh_store_arriving_put(store, arriving, sh_bytes_make(bytes + at, some));
    }
}

/* An own chunk comes back, and another's comes: both are there at the end, and not before. */
static void test_arriving(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    struct sh_store_arriving arriving;
    struct sh_store_status before, after;
    uint8_t *bytes = bytes_make(BIG, 3);
    uint32_t size;
    shoal_cid cids[] = {chunk_make(store, bytes, BIG), shoal_cid_make((shoal_nid){900}, 77)};
    assert_int_equal(sh_store_release(store, cids[0]), SHOAL_OK);
    sh_store_status_get(store, &before);
    for (unsigned i = 0; i < 2; i++) {
        arrive(store, cids[i], bytes, BIG, &arriving);
        assert_int_equal(sh_store_size(store, cids[i], &size), SHOAL_ENOCHUNK);
        sh_store_arriving_drop(store, &arriving);
        sh_store_arriving_drop(store, &arriving); /* of no effect */
        arrive(store, cids[i], bytes, BIG, &arriving);
        assert_int_equal(sh_store_arriving_end(store, &arriving), SHOAL_OK);
        sh_store_arriving_drop(store, &arriving);
        check(store, cids[i], bytes, BIG);
    }
    sh_store_status_get(store, &after);
    assert_int_equal(after.chunks, before.chunks + 2);
    assert_int_equal(after.payload_bytes, before.payload_bytes + 2 * BIG);
    free(bytes);
    sh_store_destroy(store);
}

/* Whoever has the ID at the end keeps it, and the memory is given back. */
static void test_arriving_fails(void **state)
{
    (void)state;
    struct sh_store *store = store_make(6 * LARGEST);
    struct sh_store_arriving arriving;
    struct sh_store_status before, after;
    uint8_t *bytes = bytes_make(BIG, 5), *others = bytes_make(40, 6);
    shoal_cid own = chunk_make(store, others, 40), foreign = shoal_cid_make((shoal_nid){900}, 77);
    assert_int_equal(sh_store_arriving_begin(store, own, LARGEST + 1, &arriving), SHOAL_ETOOBIG);
    sh_store_arriving_drop(store, &arriving);
    assert_int_equal(sh_store_adopt(store, foreign, sh_bytes_make(others, 40)), SHOAL_OK);
    sh_store_status_get(store, &before);
    arrive(store, own, bytes, BIG, &arriving);
    assert_int_equal(sh_store_arriving_end(store, &arriving), SHOAL_ENOCHUNK);
    arrive(store, foreign, bytes, BIG, &arriving);
    assert_int_equal(sh_store_arriving_end(store, &arriving), SHOAL_EEXIST);
    sh_store_status_get(store, &after);
    assert_int_equal(after.block_bytes, before.block_bytes);
    check(store, own, others, 40);
    check(store, foreign, others, 40);
    struct sh_store_arriving many[6];
    enum shoal_err err = SHOAL_OK;
    unsigned count = 0;
    while (!err && count < 6)
        err = sh_store_arriving_begin(store, own, LARGEST, &many[count++]);
    assert_int_equal(err, SHOAL_EFULL);
    while (count > 0)
        sh_store_arriving_drop(store, &many[--count]);
    sh_store_status_get(store, &after);
    assert_int_equal(after.block_bytes, before.block_bytes);
    free(bytes);
    free(others);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind),      cmocka_unit_test(test_fill_and_errors),
        cmocka_unit_test(test_pinned),         cmocka_unit_test(test_full),
        cmocka_unit_test(test_others_write),   cmocka_unit_test(test_given_up),
        cmocka_unit_test(test_deferred),       cmocka_unit_test(test_arriving),
        cmocka_unit_test(test_arriving_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
