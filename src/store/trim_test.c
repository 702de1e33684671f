/* Memory that goes back to the kernel: what it costs in mappings, and that it goes in pieces. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "store/slots_int.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)
#define SIZE 1000u

static struct sh_store *store_make(uint64_t bytes_max, bool small_pages)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 1u << 30, .small_pages = small_pages};
    struct sh_store *store = NULL;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static struct sh_store_status status_of(const struct sh_store *store)
{
    struct sh_store_status status;
    sh_alloc_check(store->alloc);
    sh_store_status_get(store, &status);
    return status;
}

static shoal_cid *filled(struct sh_store *store, size_t count)
{
    shoal_cid *cids = calloc(count, sizeof *cids);
    assert_non_null(cids);
    assert_int_equal(sh_store_new_many(store, SIZE, count, cids), SHOAL_OK);
    return cids;
}

/* Removes the chunks whose group's block lies in such slots, of which there are `of`. */
static void slots_empty(struct sh_store *store, const shoal_cid *cids, size_t count, uint32_t of)
{
    for (size_t i = 0; i < count; i++) {
        struct sh_layout layout = sh_group_layout(sh_store_group(store, cids[i]));
        if ((sh_layout_offset(&layout) >> SH_SLOT_BITS) % of != 0)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
}

static unsigned mappings(void)
{
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    for (int c; (c = getc(file)) != EOF;)
        count += c == '\n';
    fclose(file);
    return count;
}

/* Every other slot of huge pages goes to the kernel: that must not cost a mapping each. */
static void test_mappings(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0)
        skip();
    struct sh_store *store = store_make(512 * MIB, false);
    shoal_cid *cids = filled(store, COUNT);
    unsigned before = mappings();
    slots_empty(store, cids, COUNT, 2);
    sh_store_defrag_all(store);
    struct sh_store_status status = status_of(store);
    assert_true(status.used_bytes < status.payload_bytes + status.payload_bytes / 10 + 3 * MIB);
    unsigned after = mappings();
    print_message("%u mappings before, %u after\n", before, after);
    assert_true(after < before + 40);
    sh_store_destroy(store);
    free(cids);
}

/* All of it goes in pieces, and for what a call is short of only as much as that. */
static void test_pieces(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    struct sh_store *store = store_make(224 * MIB, true);
    shoal_cid *cids = filled(store, COUNT), large;
    for (size_t i = 0; i < COUNT; i++)
        if (i / 16384 % 2)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    struct sh_store_status full = status_of(store), after;
    assert_true(full.free_bytes > 80 * MIB);
    /* Free runs are of 16 MiB. */
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sh_store_new_many(store, 24 * MIB, 1, &large), SHOAL_OK);
    after = status_of(store);
    assert_true(after.used_bytes <= after.bytes_max - after.reserve_bytes);
    assert_true(after.used_bytes > after.bytes_max - after.reserve_bytes - 4 * MIB);
    uint64_t left = UINT64_MAX;
    for (uint64_t used = after.used_bytes; sh_alloc_trim_piece(store->alloc, &left);) {
        after = status_of(store);
        assert_in_range(used - after.used_bytes, 1, 2 * MIB);
        used = after.used_bytes;
    }
    assert_int_equal(store->alloc->idle_pages, 0);
    sh_store_destroy(store);
    free(cids);
}

/* Choosing packs, and taking them back, looks at a bounded number of slots in each step. */
static void test_drain_steps(void **state)
{
    (void)state;
    struct sh_store *store = store_make(UINT64_C(4) << 30, true);
    /* Nothing touches these 8192 slots. */
    struct sh_block blocks[] = {{0, 1u << 30}, {0, 1u << 30}};
    assert_int_equal(sh_alloc_take(store->alloc, blocks, 2, false), SHOAL_OK);
    struct sh_drain drain;
    unsigned steps = 1;
    sh_drain_init(&drain);
    while (sh_alloc_drain_begin(store->alloc, &drain))
        steps++;
    assert_in_range(steps, 2 * 8, 2 * 9);
    for (steps = 1; sh_alloc_drain_end(store->alloc, &drain); steps++)
        continue;
    assert_in_range(steps, 8, 12);
    sh_alloc_give(store->alloc, blocks, 2);
    assert_int_equal(status_of(store).block_bytes, 0);
    sh_store_destroy(store);
}

/* A group whose page went to the kernel begins above all its versions, however many there were. */
static void test_versions(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    struct sh_store *store = store_make(224 * MIB, true);
    shoal_cid *cids = filled(store, COUNT);
    struct sh_group *group = sh_store_group(store, cids[COUNT - 1]);
    for (unsigned round = 0; round < 4; round++) {
        /* As if it had been written very often. */
        atomic_fetch_add(&group->sequence, (SH_GROUP_VERSION << 25) + round * SH_GROUP_VERSION);
        uint64_t before = atomic_load(&group->sequence);
        for (size_t i = COUNT / 2; i < COUNT; i++)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
        while (sh_idpool_trim(store->pool))
            continue;
        assert_null(sh_store_group(store, cids[COUNT - 1]));
        assert_int_equal(atomic_load(&group->sequence), 0);
        assert_int_equal(sh_store_new_many(store, 8, COUNT / 2, cids + COUNT / 2), SHOAL_OK);
        assert_ptr_equal(sh_store_group(store, cids[COUNT - 1]), group);
        assert_true(atomic_load(&group->sequence) > before);
    }
    sh_store_destroy(store);
    free(cids);
}

struct trimmer {
    struct sh_store *store;
    _Atomic bool is_over;
};

static void *trim_run(void *arg)
{
    struct trimmer *trimmer = arg;
    while (!trimmer->is_over)
        sh_alloc_trim(trimmer->store->alloc);
    return NULL;
}

/* Who is short of memory that another hands to the kernel right now gets it. */
static void test_beside(void **state)
{
    (void)state;
    enum { ROUNDS = TEST_ROUNDS(300) };
    struct sh_store *store = store_make(8 * MIB, true);
    struct trimmer trimmer = {.store = store};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, trim_run, &trimmer), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        static const uint32_t sizes[] = {300000, 1000, 20000};
        shoal_cid cids[6 * 1024];
        uint32_t size = sizes[i % 3];
        size_t count = 6 * MIB / (size + 4096 - size % 4096);
        assert_int_equal(sh_store_new_many(store, size, count, cids), SHOAL_OK);
        enum shoal_err errs[6 * 1024];
        assert_int_equal(sh_store_remove_multi(store, cids, count, errs), count);
    }
    trimmer.is_over = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(status_of(store).chunks, 0);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mappings), cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_drain_steps), cmocka_unit_test(test_versions),
        cmocka_unit_test(test_beside)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
