/* Chunks that are created in pieces: as if at once, or not at all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/store.h"

#define COUNT 100000
#define PIECE 1000
#define STEPS_MAX (4 * COUNT / PIECE)

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 1u << 20, .small_pages = true};
    struct sh_store *store;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static uint64_t chunks_of(struct sh_store *store)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    return status.chunks;
}

/* Steps until it is over; its result. */
static enum shoal_err finish(struct sh_store_making *making)
{
    unsigned steps = 0;
    while (!sh_store_making_step(making, PIECE))
        assert_true(++steps < STEPS_MAX);
    return sh_store_making_end(making);
}

static void test_all_are_made(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    shoal_cid *cids = calloc(COUNT, sizeof *cids);
    uint32_t *sizes = calloc(COUNT, sizeof *sizes), size;
    struct sh_store_making *making;
    for (unsigned i = 0; i < COUNT; i++)
        sizes[i] = i % 100;
    struct sh_store_wish wish = {.sizes = sizes, .count = COUNT};
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    for (unsigned i = 0; i < 4; i++) /* sizes */
        assert_false(sh_store_making_step(making, PIECE));
    assert_int_equal(sh_store_size(store, (shoal_cid){1}, &size), SHOAL_ENOCHUNK);
    assert_false(sh_store_making_step(making, PIECE)); /* IDs */
    assert_false(sh_store_making_step(making, PIECE));
    assert_int_equal(sh_store_size(store, (shoal_cid){1}, &size), SHOAL_OK);
    assert_int_equal(sh_store_size(store, (shoal_cid){2 * PIECE}, &size), SHOAL_ENOCHUNK);
    assert_int_equal(finish(making), SHOAL_OK);
    assert_int_equal(chunks_of(store), COUNT);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(sh_store_size(store, cids[i], &size), SHOAL_OK);
        assert_int_equal(size, sizes[i]);
    }
    struct sh_store_wish run = {.size = 8, .count = COUNT, .consecutive = true};
    assert_int_equal(sh_store_making_begin(store, &run, cids, &making), SHOAL_OK);
    assert_int_equal(finish(making), SHOAL_OK);
    for (unsigned i = 1; i < COUNT; i++)
        assert_int_equal(cids[i].v, cids[0].v + i);
    sizes[COUNT - 1] = (1u << 20) + 1;
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    assert_int_equal(finish(making), SHOAL_ETOOBIG);
    for (unsigned i = 0; i < COUNT; i++)
        sizes[i] = 1u << 20;
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    assert_int_equal(finish(making), SHOAL_EFULL);
    assert_int_equal(chunks_of(store), 2 * COUNT);
    free(sizes);
    free(cids);
    sh_store_destroy(store);
}

/* What fails in the middle leaves nothing, takes nothing of others, and its IDs come back. */
static void test_none_is_left(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    shoal_cid *cids = calloc(COUNT, sizeof *cids), other[3];
    struct sh_store_making *making;
    uint32_t size;
    assert_int_equal(sh_store_new_many(store, 5, 3, other), SHOAL_OK);
    struct sh_store_wish wish = {.size = 16, .count = COUNT};
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++)
        assert_false(sh_store_making_step(making, PIECE));
    /* Others see a part of it, and remove one; its ID is nobody's before this is over. */
    shoal_cid seen = shoal_cid_make(shoal_cid_creator(other[0]), cids[500].v);
    assert_int_equal(sh_store_size(store, seen, &size), SHOAL_OK);
    assert_int_equal(sh_store_remove(store, seen), SHOAL_OK);
    shoal_cid fresh;
    assert_int_equal(sh_store_new_many(store, 7, 1, &fresh), SHOAL_OK);
    assert_int_not_equal(fresh.v, seen.v);
    sh_store_making_fail(making, SHOAL_ENOTOWNER);
    assert_int_equal(finish(making), SHOAL_ENOTOWNER);
    assert_int_equal(chunks_of(store), 4);
    assert_int_equal(sh_store_size(store, fresh, &size), SHOAL_OK);
    assert_int_equal(size, 7);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_store_size(store, other[i], &size), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 1, 1, &fresh), SHOAL_OK);
    assert_int_equal(shoal_cid_local(fresh), shoal_cid_local(other[2]) + 1);
    free(cids);
    sh_store_destroy(store);
}

/* The same where memory ends, which is not known at the beginning. */
static void test_full(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(8) << 20);
    shoal_cid *cids = calloc(COUNT, sizeof *cids), cid;
    struct sh_store_making *making;
    struct sh_store_wish wish = {.size = 82, .count = COUNT};
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    assert_int_equal(finish(making), SHOAL_EFULL);
    assert_int_equal(chunks_of(store), 0);
    wish.count = COUNT / 2;
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    assert_int_equal(finish(making), SHOAL_OK);
    assert_int_equal(chunks_of(store), COUNT / 2);
    wish.size = (1u << 20) + 1;
    assert_int_equal(sh_store_making_begin(store, &wish, &cid, &making), SHOAL_ETOOBIG);
    free(cids);
    sh_store_destroy(store);
}

/* Where one fails, or finds no IDs, each step gives up a piece at most of what free slots hold. */
static void test_trims_in_pieces(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(64) << 20);
    shoal_cid *cids = calloc(COUNT, sizeof *cids);
    struct sh_store_making *making;
    struct sh_store_status status;
    assert_int_equal(sh_store_new_many(store, 300, COUNT, cids), SHOAL_OK);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    sh_store_status_get(store, &status);
    const uint64_t held = status.used_bytes;
    assert_true(status.free_bytes > UINT64_C(24) << 20);
    struct sh_store_wish wish = {.size = 16, .count = COUNT};
    assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
    sh_store_making_fail(making, SHOAL_ENOTOWNER);
    uint64_t used = held;
    for (bool is_over = false; !is_over; used = status.used_bytes) {
        is_over = sh_store_making_step(making, PIECE);
        sh_store_status_get(store, &status);
        assert_true(used - status.used_bytes <= UINT64_C(2) << 20);
    }
    assert_true(held - used > UINT64_C(24) << 20);
    assert_int_equal(sh_store_making_end(making), SHOAL_ENOTOWNER);
    free(cids);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_are_made),
        cmocka_unit_test(test_none_is_left),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_trims_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
