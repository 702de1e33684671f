/* An analysis agrees with a slow, obvious count, adds up to the last byte, and is the same in steps
 * of every size. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "store/analyze.h"

#define MIB (UINT64_C(1) << 20)
#define IDS 6000

static uint64_t rng_state;

static uint64_t rng(void)
{
    return test_draw(&rng_state);
}

static struct sh_store *store_make(shoal_nid nid)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {
        .bytes_max = 64 * MIB, .chunk_bytes_max = 4u << 20, .nid = nid};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static uint64_t overhead(const struct sh_analysis *a)
{
    return a->table_bytes + a->pointer_bytes + a->header_bytes + a->rounding_bytes + a->room_bytes +
           a->free_bytes + a->other_bytes;
}

/* All but the runs, which the caller counts. */
static void agrees(struct sh_store *store, const struct sh_analysis *a)
{
    struct sh_store_status status;
    uint64_t exact[SH_ANALYZE_EXACT] = {0}, chunks = 0, payload = 0, runs = 0, run = 0, longest = 0;
    uint64_t power_chunks = 0, power_bytes = 0;
    shoal_cid from = {0}, first, last, before = {0};
    sh_store_status_get(store, &status);
    while (sh_store_range(store, from, &first, &last)) {
        bool goes_on = runs > 0 && before.v + 1 == first.v;
        run = (goes_on ? run : 0) + last.v - first.v + 1;
        runs += !goes_on;
        longest = run > longest ? run : longest;
        for (uint64_t cid = first.v; cid <= last.v; cid++) {
            uint32_t size;
            assert_int_equal(sh_store_size(store, (shoal_cid){cid}, &size), SHOAL_OK);
            chunks++;
            payload += size;
            if (size < SH_ANALYZE_EXACT)
                exact[size]++;
        }
        before = last;
        from.v = last.v + 1;
    }
    assert_int_equal(a->chunks, chunks);
    assert_int_equal(a->chunks, status.chunks);
    assert_int_equal(a->chunks, a->packed + a->longs);
    assert_int_equal(a->payload_bytes, payload);
    assert_memory_equal(a->exact, exact, sizeof exact);
    assert_int_equal(a->used_runs, runs);
    assert_int_equal(a->longest_used[0].count, longest);
    for (unsigned i = 0; i < SH_ANALYZE_POWERS; i++) {
        const struct sh_size_class *power = &a->powers[i];
        uint64_t least = i == 0 ? 0 : UINT64_C(1) << (i - 1);
        power_chunks += power->chunks;
        power_bytes += power->payload_bytes;
        assert_true(power->payload_bytes >= power->chunks * least);
        assert_true(power->payload_bytes <= power->chunks * (least ? 2 * least - 1 : 0));
    }
    assert_int_equal(power_chunks, chunks);
    assert_int_equal(power_bytes, payload);
    assert_int_equal(a->used_bytes, status.used_bytes);
    assert_int_equal(a->used_bytes, payload + overhead(a));
}

static struct sh_analysis analyze_in_steps(struct sh_store *store, unsigned groups)
{
    struct sh_analyze *analyze;
    uint64_t done, all, told = 0;
    assert_int_equal(sh_analyze_begin(store, SHOAL_NID_NONE, &analyze), SHOAL_OK);
    while (sh_analyze_step(analyze, groups)) {
        sh_analyze_progress(analyze, &done, &all);
        /* It goes forward, but where others remove there is less of it. */
        assert_in_range(done, told < all ? told : all, all);
        told = done;
    }
    sh_analyze_progress(analyze, &done, &all);
    assert_int_equal(done, all);
    assert_false(sh_analyze_step(analyze, groups));
    struct sh_analysis found = *sh_analyze_result(analyze);
    sh_analyze_end(analyze);
    return found;
}

static void test_empty(void **state)
{
    (void)state;
    struct sh_store *store = store_make((shoal_nid){7});
    struct sh_analysis a;
    assert_int_equal(sh_store_analyze(store, SHOAL_NID_NONE, &a), SHOAL_OK);
    assert_int_equal(a.chunks, 0);
    assert_int_equal(a.used_bytes, overhead(&a));
    assert_int_equal(a.used_runs, 0);
    assert_int_equal(a.longest_used[0].count, 0);
    assert_int_equal(a.free_ids, 0);
    sh_store_destroy(store);
}

static uint32_t size_draw(void)
{
    switch (rng() % 8) {
    case 0:
        return 0;
    case 1:
        return (uint32_t)(rng() % 20000);
    case 2:
        return (uint32_t)(rng() % 100 ? 252 : 3 * MIB);
    default:
        return (uint32_t)(rng() % 300);
    }
}

static void test_random(void **state)
{
    (void)state;
    rng_state = test_seed(20261122);
    struct sh_store *store = store_make((shoal_nid){7});
    shoal_cid *cids = malloc(IDS * sizeof *cids);
    assert_non_null(cids);
    for (unsigned i = 0; i < IDS; i++) {
        uint32_t size = size_draw();
        if (sh_store_new(store, &size, 1, &cids[i]) != SHOAL_OK)
            assert_int_equal(sh_store_new_many(store, 1, 1, &cids[i]), SHOAL_OK);
    }
    uint64_t foreign = 0;
    for (uint64_t i = 0; i < 300; i++) {
        uint8_t bytes[300] = {0};
        shoal_cid cid = {((5 + i % 2 * 10) << 48) + rng() % 2000};
        enum shoal_err err = sh_store_adopt(store, cid, sh_bytes_make(bytes, (size_t)(i % 300)));
        assert_true(err == SHOAL_OK || err == SHOAL_EEXIST);
        foreign += err == SHOAL_OK;
    }
    for (unsigned i = 0; i < IDS - 1; i++)
        if (rng() % 3 == 0)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    uint8_t *at;
    uint32_t size;
    assert_int_equal(sh_store_pin(store, cids[IDS - 1], &at, &size), SHOAL_OK);
    struct sh_analysis a = analyze_in_steps(store, 1);
    agrees(store, &a);
    assert_int_equal(a.foreign, foreign);
    assert_int_equal(a.pinned, 1);
    assert_int_equal(a.free_ids, IDS - (a.chunks - foreign));
    static const unsigned steps[] = {2, 3, 17, 1000000};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        struct sh_analysis b = analyze_in_steps(store, steps[i]);
        assert_memory_equal(&a, &b, sizeof a);
    }
    sh_store_defrag_all(store);
    struct sh_analysis b = analyze_in_steps(store, 100);
    agrees(store, &b);
    assert_int_equal(b.room_bytes, 0); /* all groups are packed tightly */
    free(cids);
    sh_store_destroy(store);
}

/* Runs, worked out by hand. */
static void test_runs(void **state)
{
    (void)state;
    struct sh_store *store = store_make(SHOAL_NID_NONE);
    shoal_cid cids[1000], reserved[3];
    assert_int_equal(sh_store_new_many(store, 8, 1000, cids), SHOAL_OK); /* 1 to 1000 */
    for (uint64_t lid = 100; lid < 400; lid++)
        assert_int_equal(sh_store_remove(store, (shoal_cid){lid}), SHOAL_OK);
    for (uint64_t lid = 500; lid < 510; lid++)
        assert_int_equal(sh_store_remove(store, (shoal_cid){lid}), SHOAL_OK);
    struct sh_store_wish wish = {.count = 3, .reserve = true};
    assert_int_equal(sh_store_new_as(store, &wish, reserved, NULL), SHOAL_OK); /* 100 to 102 */
    struct sh_analysis a;
    assert_int_equal(sh_store_analyze(store, (shoal_nid){64}, &a), SHOAL_OK);
    const uint64_t base = UINT64_C(64) << 48;
    assert_int_equal(a.reserved, 3);
    assert_int_equal(a.free_runs, 2);
    assert_int_equal(a.free_ids, 297 + 10);
    assert_int_equal(a.longest_free[0].first.v, base + 103);
    assert_int_equal(a.longest_free[0].count, 297);
    assert_int_equal(a.longest_free[1].first.v, base + 500);
    assert_int_equal(a.longest_free[1].count, 10);
    assert_int_equal(a.longest_free[2].count, 0);
    assert_int_equal(a.used_runs, 3);
    assert_int_equal(a.longest_used[0].first.v, base + 510);
    assert_int_equal(a.longest_used[0].count, 491);
    assert_int_equal(a.longest_used[1].first.v, base + 400);
    assert_int_equal(a.longest_used[1].count, 100);
    assert_int_equal(a.longest_used[2].first.v, base + 1);
    assert_int_equal(a.longest_used[2].count, 99);
    assert_int_equal(a.exact[8], a.chunks);
    assert_int_equal(a.powers[4].chunks, a.chunks);
    sh_store_destroy(store);
}

static void test_bytes(void **state)
{
    (void)state;
    struct sh_store *store = store_make((shoal_nid){7});
    shoal_cid cids[50];
    struct sh_analysis a, b;
    uint8_t bytes[SH_ANALYSIS_BYTES + 1];
    assert_int_equal(sh_store_new_many(store, 300, 50, cids), SHOAL_OK);
    assert_int_equal(sh_store_analyze(store, SHOAL_NID_NONE, &a), SHOAL_OK);
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_analysis_put(&w, &a);
    assert_ptr_equal(w.at, bytes + SH_ANALYSIS_BYTES);
    for (size_t size = SH_ANALYSIS_BYTES - 1; size <= SH_ANALYSIS_BYTES + 1; size++) {
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
        assert_int_equal(sh_analysis_get(&r, &b), size == SH_ANALYSIS_BYTES);
    }
    assert_memory_equal(&a, &b, sizeof a);
    sh_store_destroy(store);
}

struct racing {
    struct sh_store *store;
    _Atomic bool stop;
};

static void *race(void *arg)
{
    struct racing *racing = arg;
    for (unsigned round = 0; !atomic_load(&racing->stop); round++) {
        shoal_cid cids[40];
        if (sh_store_new_many(racing->store, round % 400, 40, cids) != SHOAL_OK)
            abort();
        for (unsigned i = 0; i < 40; i++)
            if (sh_store_remove(racing->store, cids[i]) != SHOAL_OK)
                abort();
        (void)sh_store_defrag(racing->store, 16, true);
    }
    return NULL;
}

/* What stays is counted, whatever comes and goes. */
static void test_beside_writers(void **state)
{
    (void)state;
    struct racing racing = {.store = store_make((shoal_nid){7})};
    shoal_cid cids[500];
    pthread_t thread;
    assert_int_equal(sh_store_new_many(racing.store, 255, 500, cids), SHOAL_OK);
    for (unsigned i = 0; i < 500; i += 3)
        assert_int_equal(sh_store_resize(racing.store, cids[i], 5), SHOAL_OK);
    assert_int_equal(pthread_create(&thread, NULL, race, &racing), 0);
    for (unsigned round = 0; round < 200; round++) {
        struct sh_analysis a = analyze_in_steps(racing.store, 1 + round % 20);
        assert_in_range(a.exact[5], 167, 167 + 40);
        assert_in_range(a.exact[255], 333, 333 + 40);
        assert_in_range(a.chunks, 500, 540);
    }
    atomic_store(&racing.stop, true);
    pthread_join(thread, NULL);
    struct sh_analysis a = analyze_in_steps(racing.store, 7);
    agrees(racing.store, &a);
    sh_store_destroy(racing.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),          cmocka_unit_test(test_random),
        cmocka_unit_test(test_runs),           cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_beside_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
