/* The pool of free IDs against a plain array of flags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/random_test.h"
#include "store/idpool_int.h"

#define IDS UINT64_C(400000) /* four levels of the bitmap are in use */

struct fixture {
    struct sh_budget budget;
    struct sh_idtable table;
    struct sh_idpool pool;
};

static void fixture_make(struct fixture *f, uint64_t bytes_max)
{
    memset(f, 0, sizeof *f);
    f->budget.max = bytes_max;
    assert_int_equal(sh_idtable_init(&f->table, IDS, &f->budget), SHOAL_OK);
    assert_int_equal(sh_idpool_init(&f->pool, &f->table, &f->budget), SHOAL_OK);
}

static void fixture_end(struct fixture *f)
{
    assert_int_equal(atomic_load(&f->budget.used), sh_idpool_bytes(&f->pool));
    sh_idpool_destroy(&f->pool);
    sh_idtable_destroy(&f->table);
}

static bool used[IDS + 1];

/* The pool must hand out the smallest IDs that are not in use. */
static void take_checked(struct fixture *f, size_t count, sh_lid *lids)
{
    uint64_t expected = 1;
    assert_int_equal(sh_idpool_take(&f->pool, count, lids), SHOAL_OK);
    for (size_t i = 0; i < count; i++) {
        while (used[expected])
            expected++;
        assert_int_equal(lids[i].v, expected);
        used[expected] = true;
    }
}

static void limit_check(struct fixture *f)
{
    uint64_t limit = sh_idtable_limit(&f->table);
    for (uint64_t v = limit; v < IDS; v++)
        assert_false(used[v]);
    assert_true(limit == 1 || used[limit - 1]);
    assert_int_equal(atomic_load(&f->budget.used), sh_idpool_bytes(&f->pool));
}

static void test_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261120);
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    sh_lid *lids = calloc(IDS, sizeof *lids);
    assert_non_null(lids);
    for (unsigned round = 0; round < 60; round++) {
        size_t count = test_draw(&seed) % (round % 4 ? 2000 : 30000);
        take_checked(&f, count, lids);
        uint64_t limit = sh_idtable_limit(&f.table);
        uint64_t from = test_draw(&seed) % limit;
        uint64_t step = 1 + test_draw(&seed) % 3;
        size_t given = 0;
        for (uint64_t v = from ? from : 1; v < limit && given < 20000; v += step) {
            if (used[v])
                lids[given++] = (sh_lid){v};
            used[v] = false;
        }
        lids[given++] = (sh_lid){0}; /* skipped */
        sh_idpool_give(&f.pool, lids, given);
        limit_check(&f);
    }
    free(lids);
    fixture_end(&f);
}

static void test_full(void **state)
{
    (void)state;
    struct fixture f;
    fixture_make(&f, UINT64_C(256) << 10);
    sh_lid *lids = calloc(IDS, sizeof *lids);
    assert_non_null(lids);
    uint64_t before = atomic_load(&f.budget.used);
    assert_int_equal(sh_idpool_take(&f.pool, IDS / 2, lids), SHOAL_EFULL);
    assert_int_equal(atomic_load(&f.budget.used), before);
    assert_int_equal(sh_idpool_take(&f.pool, 20000, lids), SHOAL_OK);
    sh_idpool_give(&f.pool, lids + 5, 10);
    /* The ten are taken and given back when the rest can't be had. */
    sh_lid more[10];
    uint64_t limit = sh_idtable_limit(&f.table);
    assert_int_equal(sh_idpool_take(&f.pool, IDS / 2, lids + 20000), SHOAL_EFULL);
    assert_int_equal(sh_idtable_limit(&f.table), limit);
    assert_int_equal(sh_idpool_take(&f.pool, 10, more), SHOAL_OK);
    assert_int_equal(more[0].v, 6);
    assert_int_equal(more[9].v, 15);
    /* All of them, and the table is as small as at the start. */
    for (size_t i = 0; i < 20000; i++)
        lids[i] = (sh_lid){20000 - i};
    sh_idpool_give(&f.pool, lids, 20000);
    assert_int_equal(sh_idtable_limit(&f.table), 1);
    assert_int_equal(atomic_load(&f.budget.used), before);
    free(lids);
    fixture_end(&f);
}

static void test_no_more_ids(void **state)
{
    (void)state;
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    sh_lid *lids = calloc(IDS, sizeof *lids);
    assert_non_null(lids);
    assert_int_equal(sh_idpool_take(&f.pool, SIZE_MAX, lids), SHOAL_EFULL);
    assert_int_equal(sh_idpool_take(&f.pool, IDS, lids), SHOAL_EFULL);
    assert_int_equal(sh_idpool_take(&f.pool, IDS - 1, lids), SHOAL_OK); /* 0 is not handed out */
    assert_int_equal(lids[IDS - 2].v, IDS - 1);
    assert_int_equal(sh_idpool_take(&f.pool, 1, lids), SHOAL_EFULL);
    assert_null(sh_idtable_find(&f.table, IDS));
    assert_non_null(sh_idtable_find(&f.table, IDS - 1));
    free(lids);
    fixture_end(&f);
}

/* Creating and removing at the table's end over and over keeps its memory, but not much of it. */
static void test_spare(void **state)
{
    (void)state;
    enum { ALL = 200000, SOME = 4096 };
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    sh_lid *lids = calloc(ALL, sizeof *lids);
    assert_non_null(lids);
    assert_int_equal(sh_idpool_take(&f.pool, ALL, lids), SHOAL_OK);
    uint64_t bytes = sh_idpool_bytes(&f.pool);
    for (unsigned round = 0; round < 20; round++) {
        sh_idpool_give(&f.pool, lids + ALL - SOME, SOME);
        assert_int_equal(sh_idtable_limit(&f.table), ALL - SOME + 1);
        assert_null(sh_idtable_find(&f.table, ALL - SOME + 1));
        assert_int_equal(sh_idpool_bytes(&f.pool), bytes);
        assert_int_equal(atomic_load(&f.table.epoch), 0); /* no page was given back */
        assert_int_equal(sh_idpool_take(&f.pool, SOME, lids + ALL - SOME), SHOAL_OK);
        assert_int_equal(lids[ALL - 1].v, ALL);
    }
    sh_idpool_give(&f.pool, lids + ALL / 2, ALL / 2);
    assert_true(sh_idpool_bytes(&f.pool) <= bytes / 2 + 8 * SH_PAGE_BYTES);
    assert_int_equal(atomic_load(&f.table.epoch), 1);
    sh_idpool_give(&f.pool, lids, ALL / 2);
    assert_int_equal(sh_idtable_limit(&f.table), 1);
    free(lids);
    fixture_end(&f);
}

/* A retained ID that is given back is handed out to nobody before that is over; others are. */
static void test_retained(void **state)
{
    (void)state;
    struct fixture f;
    sh_lid lids[40], others[3], again;
    fixture_make(&f, UINT64_C(1) << 30);
    assert_int_equal(sh_idpool_take(&f.pool, 3, others), SHOAL_OK);
    assert_int_equal(sh_idpool_take(&f.pool, 40, lids), SHOAL_OK);
    sh_idpool_retain(&f.pool, lids, 20);
    sh_idpool_retain(&f.pool, lids + 20, 20);
    sh_idpool_give(&f.pool, (sh_lid[]){{4}, {11}, {23}, {24}, {2}, {43}}, 6);
    assert_int_equal(sh_idpool_take(&f.pool, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, 2); /* is not retained */
    assert_int_equal(sh_idpool_claim(&f.pool, 11), SHOAL_EEXIST);
    assert_int_equal(sh_idpool_take(&f.pool, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, 44);
    sh_idpool_give(&f.pool, &again, 1);
    assert_int_equal(sh_idtable_limit(&f.table), 44); /* not below what is retained */
    sh_idpool_unretain(&f.pool, lids, 20);
    static const uint64_t freed[] = {4, 11, 23};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sh_idpool_take(&f.pool, 1, &again), SHOAL_OK);
        assert_int_equal(again.v, freed[i]);
    }
    assert_int_equal(sh_idpool_claim(&f.pool, 24), SHOAL_EEXIST);
    sh_idpool_unretain(&f.pool, lids + 20, 20);
    assert_int_equal(sh_idtable_limit(&f.table), 43);
    assert_int_equal(sh_idpool_take(&f.pool, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, 24);
    /* Given back afterwards they are free at once, and retained by nobody. */
    sh_idpool_give(&f.pool, (sh_lid[]){{12}}, 1);
    assert_int_equal(sh_idpool_take(&f.pool, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, 12);
    for (uint64_t lid = 1; lid < 43; lid++)
        sh_idpool_give(&f.pool, &(sh_lid){lid}, 1);
    assert_int_equal(sh_idtable_limit(&f.table), 1);
    fixture_end(&f);
}

/* --- Threads ------------------------------------------------------------------------------- */

#define THREADS 4
#define HOLDS 64 /* IDs that a thread takes at a time */
#define SLOTS 256
#define IDS_MOST 8192
#define ROUNDS 2000

/* Threads take IDs and retain them; others find some of these, in slots, and give them back. */
struct crowd {
    struct sh_idpool *pool;
    _Atomic uint64_t slots[SLOTS];
    _Atomic bool is_taken[IDS_MOST], is_retained[IDS_MOST];
    _Atomic unsigned wrong, given_early;
};

static void crowd_give(struct crowd *crowd, uint64_t lid)
{
    atomic_fetch_add(&crowd->wrong, !atomic_exchange(&crowd->is_taken[lid], false));
    sh_idpool_give(crowd->pool, &(sh_lid){lid}, 1);
}

/* Puts an ID where others find it, and gives back what was there. */
static void crowd_pass(struct crowd *crowd, unsigned slot, uint64_t lid)
{
    uint64_t other = atomic_exchange(&crowd->slots[slot], lid);
    if (other == 0)
        return;
    atomic_fetch_add(&crowd->given_early, atomic_load(&crowd->is_retained[other]));
    crowd_give(crowd, other);
}

static void *crowd_run(void *arg)
{
    struct crowd *crowd = arg;
    sh_lid lids[HOLDS];
    uint64_t rng = (uintptr_t)&rng;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (sh_idpool_take(crowd->pool, HOLDS, lids) != SHOAL_OK) {
            atomic_fetch_add(&crowd->wrong, 1);
            break;
        }
        for (unsigned i = 0; i < HOLDS; i++) {
            /* Nobody has it, nobody retains it. */
            bool is_wrong = lids[i].v >= IDS_MOST ||
                            atomic_exchange(&crowd->is_taken[lids[i].v], true) ||
                            atomic_exchange(&crowd->is_retained[lids[i].v], true);
            atomic_fetch_add(&crowd->wrong, is_wrong);
        }
        sh_idpool_retain(crowd->pool, lids, HOLDS);
        for (unsigned i = 0; i < HOLDS; i += 2)
            crowd_pass(crowd, (unsigned)(test_draw(&rng) % SLOTS), lids[i].v);
        for (unsigned i = 0; i < HOLDS; i++)
            atomic_store(&crowd->is_retained[lids[i].v], false);
        sh_idpool_unretain(crowd->pool, lids, HOLDS);
        for (unsigned i = 1; i < HOLDS; i += 2)
            crowd_give(crowd, lids[i].v);
    }
    return NULL;
}

static void test_crowd(void **state)
{
    (void)state;
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    struct crowd *crowd = calloc(1, sizeof *crowd);
    pthread_t threads[THREADS];
    assert_non_null(crowd);
    crowd->pool = &f.pool;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, crowd), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < SLOTS; i++)
        crowd_pass(crowd, i, 0);
    assert_int_equal(crowd->wrong, 0);
    assert_true(crowd->given_early > 0);
    assert_int_equal(sh_idtable_limit(&f.table), 1); /* all came back, once */
    free(crowd);
    fixture_end(&f);
}

/* An ID that is claimed beyond the end is taken, and all below it are free. */
static void test_claim(void **state)
{
    (void)state;
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    sh_lid *lids = calloc(300, sizeof *lids);
    assert_non_null(lids);
    static const uint64_t claimed[] = {64, 65, 127, 200};
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sh_idpool_claim(&f.pool, claimed[i]), SHOAL_OK);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sh_idpool_claim(&f.pool, claimed[i]), SHOAL_EEXIST);
    assert_int_equal(sh_idpool_claim(&f.pool, 3), SHOAL_OK);
    assert_int_equal(sh_idpool_take(&f.pool, 300, lids), SHOAL_OK);
    uint64_t expected = 1;
    for (unsigned i = 0; i < 300; i++, expected++) {
        while (expected == 3 || expected == 64 || expected == 65 || expected == 127 ||
               expected == 200)
            expected++;
        assert_int_equal(lids[i].v, expected);
    }
    free(lids);
    fixture_end(&f);
}

/* Several of one word: those that are free, and of a table that ends before them all. */
static void test_claim_some(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261127), claimed;
    struct fixture f;
    fixture_make(&f, UINT64_C(1) << 30);
    static uint64_t words[64];
    memset(words, 0, sizeof words);
    words[0] = 1;
    for (unsigned round = 0; round < 2000; round++) {
        uint64_t word = test_draw(&seed) % (1 + round / 32), mask = test_draw(&seed);
        mask &= test_draw(&seed) & (word ? UINT64_MAX : ~UINT64_C(1));
        if (mask == 0)
            continue;
        assert_int_equal(sh_idpool_claim_some(&f.pool, word, mask, &claimed), SHOAL_OK);
        assert_true(claimed == (mask & ~words[word]));
        words[word] |= claimed;
        uint64_t lid = 1 + test_draw(&seed) % (64 * 64 - 1), bit = UINT64_C(1) << (lid & 63);
        if (words[lid >> 6] & bit)
            sh_idpool_give(&f.pool, &(sh_lid){lid}, 1);
        words[lid >> 6] &= ~bit;
    }
    assert_int_equal(sh_idpool_claim_some(&f.pool, IDS / 64, 3, &claimed), SHOAL_EFULL);
    for (uint64_t lid = 1; lid < UINT64_C(64) * 64; lid++)
        if (words[lid >> 6] >> (lid & 63) & 1)
            sh_idpool_give(&f.pool, &(sh_lid){lid}, 1);
    assert_int_equal(sh_idtable_limit(&f.table), 1);
    fixture_end(&f);
}

/* What a batch that does not fit has taken before that shows is given back. */
static void test_full_piece(void **state)
{
    (void)state;
    enum { PIECE = 1000, ALL = 100 * PIECE };
    struct fixture f;
    fixture_make(&f, UINT64_C(64) << 10);
    sh_lid *lids = calloc(ALL, sizeof *lids), more[10];
    assert_non_null(lids);
    size_t count = 0;
    while (count + PIECE <= ALL && !sh_idpool_take(&f.pool, PIECE, lids + count))
        count += PIECE;
    assert_in_range(count, 100, ALL - 2 * PIECE);
    sh_idpool_give(&f.pool, lids + 5, 10);
    assert_int_equal(sh_idpool_take(&f.pool, PIECE + 10, lids + count), SHOAL_EFULL);
    assert_int_equal(sh_idpool_take(&f.pool, 10, more), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(more[i].v, 6 + i);
    free(lids);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),      cmocka_unit_test(test_spare),
        cmocka_unit_test(test_full),       cmocka_unit_test(test_no_more_ids),
        cmocka_unit_test(test_retained),   cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_claim),      cmocka_unit_test(test_full_piece),
        cmocka_unit_test(test_claim_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
