/* The store under several threads: no torn read, no lost chunk, nothing left over; and its own
 * account of memory against the kernel's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "base/resident.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)
#define THREADS 4

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {.bytes_max = bytes_max, .chunk_bytes_max = 1u << 20};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

/* What the threads of one test share. They must not assert by cmocka: they count what is wrong. */
struct shared {
    struct sh_store *store;
    uint64_t seed;
    unsigned rounds;
    _Atomic unsigned threads_started;
    _Atomic unsigned wrong;
    _Atomic unsigned more; /* calls beyond one a round */
    sh_lid lids[8];
};

static void wrong_if(struct shared *shared, bool condition)
{
    if (condition)
        atomic_fetch_add(&shared->wrong, 1);
}

static void threads_run(struct shared *shared, void *(*main_of_thread)(void *))
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, main_of_thread, shared), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&shared->wrong), 0);
    sh_alloc_check(shared->store->alloc);
}

/* Torn reads: a put writes one byte all over, so a get that sees two different ones is torn. */
static const uint32_t torn_sizes[8] = {2, 63, 300, 64, 1271, 4096, 40000, 600000};

static bool all_equal(struct sh_bytes bytes)
{
    return bytes.size < 2 || memcmp(bytes.at, bytes.at + 1, bytes.size - 1) == 0;
}

struct look {
    bool equal;
};

static void look_at(void *arg, struct sh_bytes chunk)
{
    ((struct look *)arg)->equal = all_equal(chunk);
}

/* Several at once, so that the first is written while the others are looked for. */
static void torn_multi(struct shared *shared, uint8_t *bytes)
{
    enum { COUNT = 12 };
    struct sh_store_op ops[COUNT];
    for (unsigned i = 0; i < COUNT; i++) {
        ops[i] = (struct sh_store_op){shared->lids[i % 4], bytes + 1000 * i, 1000, SHOAL_OK};
    }
    atomic_fetch_add(&shared->more, COUNT - 1);
    wrong_if(shared, sh_store_get_multi(shared->store, ops, COUNT) != COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        wrong_if(shared, !all_equal(sh_bytes_make(ops[i].data, ops[i].size)));
}

static void *torn_main(void *arg)
{
    struct shared *shared = arg;
    unsigned self = atomic_fetch_add(&shared->threads_started, 1);
    uint64_t rng = shared->seed + self * 7919;
    uint8_t *bytes = malloc(600000);
    wrong_if(shared, !bytes);
    for (unsigned i = 0; bytes && i < shared->rounds; i++) {
        unsigned which = test_draw(&rng) % 64 ? (unsigned)(test_draw(&rng) % 6)
                                              : (unsigned)(test_draw(&rng) % 8);
        sh_lid lid = shared->lids[which];
        uint32_t size = torn_sizes[which];
        struct look look = {false};
        switch (test_draw(&rng) % 4) {
        case 0:
            memset(bytes, (int)(rng >> 24), size);
            wrong_if(shared, sh_store_put(shared->store, lid, sh_bytes_make(bytes, size)) != 0);
            break;
        case 1:
            wrong_if(shared, sh_store_get(shared->store, lid, bytes, size, &size) != 0);
            wrong_if(shared, size != torn_sizes[which] || !all_equal(sh_bytes_make(bytes, size)));
            break;
        case 2:
            torn_multi(shared, bytes);
            break;
        default:
            wrong_if(shared, sh_store_read(shared->store, lid, look_at, &look) != 0);
            wrong_if(shared, !look.equal);
        }
    }
    free(bytes);
    return NULL;
}

static void test_torn(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(16 * MIB), .seed = 42, .rounds = 40000};
    assert_int_equal(sh_store_new(shared.store, torn_sizes, 8, shared.lids), SHOAL_OK);
    threads_run(&shared, torn_main);
    struct sh_store_status status;
    sh_store_status_get(shared.store, &status);
    assert_int_equal(status.gets + status.puts,
                     THREADS * shared.rounds + atomic_load(&shared.more));
    sh_store_destroy(shared.store);
}

/* One writes a chunk all the time, while the others get it many times over in each call. */
static void *torn_multi_main(void *arg)
{
    struct shared *shared = arg;
    bool writes = atomic_fetch_add(&shared->threads_started, 1) == 0;
    uint8_t bytes[12 * 1000];
    for (unsigned i = 0; i < shared->rounds; i++) {
        for (unsigned j = 0; writes && j < 12; j++) {
            memset(bytes, (int)(i + j), torn_sizes[2]);
            wrong_if(shared, sh_store_put(shared->store, shared->lids[2],
                                          sh_bytes_make(bytes, torn_sizes[2])) != 0);
        }
        if (!writes)
            torn_multi(shared, bytes);
    }
    return NULL;
}

static void test_torn_multi(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(16 * MIB), .rounds = TEST_ROUNDS(60000)};
    assert_int_equal(sh_store_new(shared.store, torn_sizes, 8, shared.lids), SHOAL_OK);
    shared.lids[0] = shared.lids[1] = shared.lids[3] = shared.lids[2];
    threads_run(&shared, torn_multi_main);
    sh_store_destroy(shared.store);
}

/* Churn: each thread creates, fills, checks and removes chunks of its own in a store that is nearly
 * full, and looks at the others' while they come and go. */
#define OWN 300

struct own {
    sh_lid lid;
    uint32_t size;
    uint8_t fill;
};

static uint32_t churn_size(uint64_t *rng)
{
    uint64_t kind = test_draw(rng) % 100;
    uint64_t value = test_draw(rng);
    return (uint32_t)(kind == 0 ? value % 60000 : kind < 20 ? value % 3000 : value % 100);
}

static size_t churn_create(struct shared *shared, uint64_t *rng, struct own *own)
{
    uint32_t sizes[10];
    sh_lid lids[10];
    size_t count = 1 + test_draw(rng) % 10;
    for (size_t i = 0; i < count; i++)
        sizes[i] = churn_size(rng);
    enum shoal_err err = sh_store_new(shared->store, sizes, count, lids);
    wrong_if(shared, err != SHOAL_OK && err != SHOAL_EFULL);
    if (err)
        return 0;
    uint8_t bytes[60000];
    for (size_t i = 0; i < count; i++) {
        own[i] = (struct own){lids[i], sizes[i], (uint8_t)test_draw(rng)};
        uint32_t size = 0;
        wrong_if(shared, sh_store_get(shared->store, lids[i], bytes, sizeof bytes, &size) != 0);
        for (uint32_t b = 0; b < size; b++)
            wrong_if(shared, bytes[b] != 0);
        memset(bytes, own[i].fill, sizes[i]);
        wrong_if(shared, sh_store_put(shared->store, lids[i], sh_bytes_make(bytes, sizes[i])) != 0);
    }
    return count;
}

static void churn_check(struct shared *shared, const struct own *own)
{
    uint8_t bytes[60000];
    uint32_t size = 0;
    wrong_if(shared, sh_store_get(shared->store, own->lid, bytes, sizeof bytes, &size) != 0);
    wrong_if(shared, size != own->size);
    wrong_if(shared, !all_equal(sh_bytes_make(bytes, size)));
    wrong_if(shared, size > 0 && bytes[0] != own->fill);
}

/* Others' chunks may be anything or nothing, but ranges go upwards and nothing crashes. */
static void churn_look(struct shared *shared, uint64_t *rng)
{
    sh_lid next = {test_draw(rng) % 500};
    sh_lid first, last;
    for (unsigned i = 0; i < 20 && sh_store_range(shared->store, next, &first, &last); i++) {
        wrong_if(shared, first.v < next.v || last.v < first.v || last.v - first.v >= 65536);
        uint32_t size = 0;
        enum shoal_err err = sh_store_size(shared->store, first, &size);
        wrong_if(shared, err == SHOAL_OK ? size > 60000 : err != SHOAL_ENOCHUNK);
        struct look look;
        err = sh_store_read(shared->store, last, look_at, &look);
        wrong_if(shared, err != SHOAL_OK && err != SHOAL_ENOCHUNK);
        next.v = last.v + 1;
    }
}

static void churn_remove(struct shared *shared, uint64_t *rng, struct own *own, size_t *owned)
{
    sh_lid lids[8];
    enum shoal_err errs[8];
    size_t count = 0;
    while (*owned > 0 && count < 8 && (count == 0 || test_draw(rng) % 4)) {
        size_t at = test_draw(rng) % *owned;
        churn_check(shared, &own[at]);
        lids[count++] = own[at].lid;
        own[at] = own[--*owned];
    }
    if (count == 1)
        wrong_if(shared, sh_store_remove(shared->store, lids[0]) != SHOAL_OK);
    else
        wrong_if(shared, sh_store_remove_multi(shared->store, lids, count, errs) != count);
}

static void *churn_main(void *arg)
{
    struct shared *shared = arg;
    unsigned self = atomic_fetch_add(&shared->threads_started, 1);
    uint64_t rng = shared->seed + self * 104729;
    struct own own[OWN];
    size_t owned = 0;
    for (unsigned i = 0; i < shared->rounds; i++) {
        size_t created = 0;
        if (owned + 10 <= OWN && test_draw(&rng) % 2)
            created = churn_create(shared, &rng, own + owned);
        owned += created;
        if (!created)
            churn_remove(shared, &rng, own, &owned);
        if (i % 16 == 0)
            churn_look(shared, &rng);
    }
    while (owned > 0)
        churn_remove(shared, &rng, own, &owned);
    return NULL;
}

static void test_churn(void **state)
{
    (void)state;
    /* 2 MiB, so that EFULL and trimming happen all the time. */
    struct shared shared = {.store = store_make(2 * MIB), .seed = test_seed(977), .rounds = 6000};
    threads_run(&shared, churn_main);
    struct sh_store_status status;
    sh_store_status_get(shared.store, &status);
    assert_true(status.creates > THREADS * OWN);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.payload_bytes, 0);
    assert_int_equal(status.block_bytes, 0);
    assert_int_equal(status.used_bytes, atomic_load(&shared.store->budget.used));
    sh_lid first, last;
    assert_false(sh_store_range(shared.store, (sh_lid){0}, &first, &last));
    sh_store_destroy(shared.store);
}

/* Rivals: all threads remove and re-create the same few IDs; each removal succeeds exactly once. */
static void *rival_main(void *arg)
{
    struct shared *shared = arg;
    unsigned self = atomic_fetch_add(&shared->threads_started, 1);
    uint64_t rng = shared->seed + self * 31;
    unsigned created = 0, removed = 0;
    for (unsigned i = 0; i < shared->rounds; i++) {
        sh_lid lid;
        if (test_draw(&rng) % 2) {
            wrong_if(shared, sh_store_new_many(shared->store, (uint32_t)(rng % 40), 1, &lid) != 0);
            created++;
        } else {
            enum shoal_err err = sh_store_remove(shared->store, (sh_lid){1 + test_draw(&rng) % 8});
            wrong_if(shared, err != SHOAL_OK && err != SHOAL_ENOCHUNK);
            removed += err == SHOAL_OK;
        }
    }
    atomic_fetch_add(&shared->threads_started, THREADS * (created - removed));
    return NULL;
}

static void test_rivals(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(64 * MIB), .seed = 11, .rounds = 20000};
    threads_run(&shared, rival_main);
    struct sh_store_status status;
    sh_store_status_get(shared.store, &status);
    assert_int_equal(status.chunks, (atomic_load(&shared.threads_started) - THREADS) / THREADS);
    uint64_t counted = 0;
    sh_lid first, last;
    for (sh_lid next = {0}; sh_store_range(shared.store, next, &first, &last);) {
        counted += last.v - first.v + 1;
        next.v = last.v + 1;
    }
    assert_int_equal(counted, status.chunks);
    sh_store_destroy(shared.store);
}

#define MOVED_IDS 64

/* Most are short; of the others some are medium and a few long. */
static uint32_t mover_size(uint64_t *rng)
{
    uint64_t kind = test_draw(rng) % 16;
    uint64_t value = test_draw(rng);
    return (uint32_t)(value % (kind == 0 ? 1400 : kind < 3 ? 600 : 260));
}

/* Movers: some write one byte all over chunks of which many share a group, some resize and pin
 * them, and some defragment, so that blocks move under readers all the time. */
static void mover_change(struct shared *shared, uint64_t *rng, sh_lid lid, uint8_t *bytes)
{
    uint32_t size = 0;
    switch (test_draw(rng) % 4) {
    case 0:
        wrong_if(shared, sh_store_size(shared->store, lid, &size) != SHOAL_OK);
        memset(bytes, (int)test_draw(rng), size);
        enum shoal_err err = sh_store_put(shared->store, lid, sh_bytes_make(bytes, size));
        wrong_if(shared, err != SHOAL_OK && err != SHOAL_ESIZE);
        break;
    case 1:
        /* Gained bytes are zeros: only shrinking keeps all equal, so it grows from nothing. */
        wrong_if(shared, sh_store_resize(shared->store, lid, 0) != SHOAL_OK);
        wrong_if(shared, sh_store_resize(shared->store, lid, mover_size(rng)) != SHOAL_OK);
        break;
    case 2:
        (void)sh_store_defrag(shared->store, 8, true);
        break;
    default:
        wrong_if(shared, sh_store_size(shared->store, lid, &size) != SHOAL_OK);
    }
}

static void *mover_main(void *arg)
{
    struct shared *shared = arg;
    unsigned self = atomic_fetch_add(&shared->threads_started, 1);
    uint64_t rng = shared->seed + self * 77;
    uint8_t bytes[1500];
    for (unsigned i = 0; i < shared->rounds; i++) {
        sh_lid lid = {1 + test_draw(&rng) % MOVED_IDS};
        uint32_t size = 0;
        /* Each chunk is resized by one thread alone, so that growing finds it empty. */
        if (lid.v % THREADS == self)
            mover_change(shared, &rng, lid, bytes);
        wrong_if(shared, sh_store_get(shared->store, lid, bytes, sizeof bytes, &size) != SHOAL_OK);
        wrong_if(shared, !all_equal(sh_bytes_make(bytes, size)));
    }
    return NULL;
}

static void test_movers(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(16 * MIB), .seed = 5, .rounds = 40000};
    sh_lid lids[MOVED_IDS];
    assert_int_equal(sh_store_new_many(shared.store, 50, MOVED_IDS, lids), SHOAL_OK);
    threads_run(&shared, mover_main);
    sh_store_defrag_all(shared.store);
    sh_alloc_check(shared.store->alloc);
    sh_store_destroy(shared.store);
}

/* Adders: additions by all threads to fields of neighbours in one group are all there in the end,
 * while others fill the table's end and empty it again. */
static void *adder_main(void *arg)
{
    struct shared *shared = arg;
    unsigned self = atomic_fetch_add(&shared->threads_started, 1);
    uint64_t rng = shared->seed + self * 3;
    for (unsigned i = 0; i < shared->rounds; i++) {
        uint64_t old;
        sh_lid more[40];
        enum shoal_err errs[40];
        wrong_if(shared, sh_store_add(shared->store, (sh_lid){1 + i % 8}, 3, 8, 1, &old) != 0);
        if (i % 64)
            continue;
        wrong_if(shared, sh_store_new_many(shared->store, 20, 40, more) != SHOAL_OK);
        enum shoal_err err = sh_store_put(shared->store, (sh_lid){9 + test_draw(&rng) % 200},
                                          sh_bytes_make("12345678901234567890", 20));
        wrong_if(shared, err != SHOAL_OK && err != SHOAL_ENOCHUNK);
        wrong_if(shared, sh_store_remove_multi(shared->store, more, 40, errs) != 40);
    }
    return NULL;
}

static void test_adders(void **state)
{
    (void)state;
    struct shared shared = {.store = store_make(16 * MIB), .seed = 6, .rounds = 16000};
    sh_lid lids[8];
    assert_int_equal(sh_store_new_many(shared.store, 13, 8, lids), SHOAL_OK);
    threads_run(&shared, adder_main);
    for (unsigned i = 0; i < 8; i++) {
        uint64_t sum = 0;
        assert_int_equal(sh_store_add(shared.store, lids[i], 3, 8, 0, &sum), SHOAL_OK);
        assert_int_equal(sum, shared.rounds / 8 * THREADS);
    }
    sh_store_destroy(shared.store);
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SHADOWED 1 /* a sanitizer's shadow memory is resident as well */
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define SHADOWED 1
#endif
#endif
#ifndef SHADOWED
#define SHADOWED 0
#endif

static void near(uint64_t used, uint64_t resident)
{
    print_message("used %llu resident %llu\n", (unsigned long long)used,
                  (unsigned long long)resident);
    if (SHADOWED)
        return;
    assert_true(resident < used + used / 20 + MIB);
    assert_true(used < resident + resident / 20 + MIB);
}

static void test_resident(void **state)
{
    (void)state;
    enum { COUNT = 400000 };
    if (sh_resident_bytes() == 0)
        skip();
    sh_lid *lids = malloc(COUNT * sizeof *lids);
    assert_non_null(lids);
    memset(lids, 1, COUNT * sizeof *lids);
    uint64_t before = sh_resident_bytes();
    struct sh_store *store = store_make(256 * MIB);
    struct sh_store_status status;
    assert_int_equal(sh_store_new_many(store, 64, COUNT, lids), SHOAL_OK);
    sh_store_status_get(store, &status);
    print_message("%.2f bytes for a chunk of 64\n", (double)status.used_bytes / COUNT);
    assert_true(status.used_bytes <= 74ull * COUNT);
    near(status.used_bytes, sh_resident_bytes() - before);
    for (size_t i = 0; i < COUNT; i += 2)
        assert_int_equal(sh_store_remove(store, lids[i]), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 30, COUNT / 4, lids), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 100000, 300, lids), SHOAL_OK);
    sh_store_status_get(store, &status);
    near(status.used_bytes, sh_resident_bytes() - before);
    /* Too many: refused, and the memory that trying took is back. */
    assert_int_equal(sh_store_new_many(store, 600, COUNT, lids), SHOAL_EFULL);
    sh_store_status_get(store, &status);
    near(status.used_bytes, sh_resident_bytes() - before);
    sh_store_destroy(store);
    free(lids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torn),     cmocka_unit_test(test_torn_multi),
        cmocka_unit_test(test_churn),    cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_movers),   cmocka_unit_test(test_adders),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
