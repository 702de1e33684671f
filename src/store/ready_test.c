/* Huge pages that a thread makes ready ahead of use: they come, they are counted, and a store that is
 * full holds as much as without them. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "store/slots_int.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)
#define SIZE 64u
#define BATCH 4096u
#define PATIENCE_S 60

static struct sh_store *store_make(uint64_t bytes_max, bool readies)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 1u << 20, .readies = readies};
    struct sh_store *store = NULL;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

/* Ends the thread, and then checks all that the allocator counts. */
static struct sh_store_status checked(struct sh_store *store)
{
    struct sh_store_status status;
    sh_ready_close(store->ready);
    store->ready = NULL;
    sh_alloc_check(store->alloc);
    sh_store_status_get(store, &status);
    return status;
}

/* Creates chunks until the store is full, or has so many bytes. */
static uint64_t fill(struct sh_store *store, uint64_t bytes)
{
    static shoal_cid cids[BATCH];
    uint64_t count = 0;
    while (count * SIZE < bytes && sh_store_new_many(store, SIZE, BATCH, cids) == SHOAL_OK)
        count += BATCH;
    while (count * SIZE < bytes && sh_store_new_many(store, SIZE, 1, cids) == SHOAL_OK)
        count++;
    return count;
}

static uint64_t idle_bytes(struct sh_store *store)
{
    sh_lock_take(&store->alloc->lock);
    uint64_t pages = store->alloc->idle_pages;
    sh_lock_release(&store->alloc->lock);
    return pages << SH_PAGE_BITS;
}

static void pages_come_ahead(void **state)
{
    (void)state;
    struct sh_store *store = store_make(512 * MIB, true);
    (void)fill(store, 32 * MIB);
    assert_true(idle_bytes(store) < SH_HUGE_BYTES); /* a small store gets none */
    (void)fill(store, 64 * MIB);
    time_t end = time(NULL) + PATIENCE_S;
    while (idle_bytes(store) < 2 * SH_HUGE_BYTES && time(NULL) < end)
        sched_yield();
    assert_true(idle_bytes(store) >= 2 * SH_HUGE_BYTES);
    struct sh_store_status status = checked(store);
    assert_true(status.free_bytes >= 2 * SH_HUGE_BYTES);
    assert_true(status.free_bytes < 32 * MIB);
    sh_store_destroy(store);
}

static void a_full_store_holds_as_much(void **state)
{
    (void)state;
    uint64_t counts[2];
    for (unsigned i = 0; i < 2; i++) {
        struct sh_store *store = store_make(160 * MIB, i);
        counts[i] = fill(store, UINT64_MAX);
        struct sh_store_status status = checked(store);
        assert_int_equal(status.chunks, counts[i]);
        assert_true(status.used_bytes <= 160 * MIB);
        sh_store_destroy(store);
    }
    /* The last huge page may find no room whole. */
    assert_true(counts[1] * SIZE + 2 * SH_HUGE_BYTES >= counts[0] * SIZE);
}

static void a_store_ends_while_pages_are_wanted(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 10; i++) {
        struct sh_store *store = store_make(256 * MIB, true);
        (void)fill(store, (60 + i) * MIB);
        sh_store_destroy(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_come_ahead),
        cmocka_unit_test(a_full_store_holds_as_much),
        cmocka_unit_test(a_store_ends_while_pages_are_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
