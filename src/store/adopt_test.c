/* Chunks that are adopted several at a time, against chunks that are adopted one by one. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "store/witness_test.h"

#define MIB (UINT64_C(1) << 20)
#define OWN 7
#define FOREIGN 3
#define BASE SH_STORE_IDS_BLOCK /* an earlier life's IDs end there */
#define OPS 48
#define SIZE_MOST 70000u

static uint8_t bytes[SIZE_MOST + OPS];

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store *store = NULL;
    const struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = SIZE_MOST, .nid = {OWN}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static uint32_t draw_size(uint64_t *rng)
{
    switch (test_draw(rng) % 16) {
    case 0:
        return (uint32_t)(test_draw(rng) % (SIZE_MOST + 2)); /* rarely too large */
    case 1:
        return (uint32_t)(SH_PACKED_CHUNK_MAX - 1 + test_draw(rng) % 4);
    case 2:
        return 0;
    default:
        return (uint32_t)(test_draw(rng) % 400);
    }
}

/* Some chunk of the few groups that there are: own ones, one of the earlier life's, ones without a node's ID, and another
 * node's; and those that are never joined. */
static shoal_cid draw_cid(uint64_t *rng)
{
    uint64_t local = test_draw(rng) % 160;
    switch (test_draw(rng) % 32) {
    case 0:
        return shoal_cid_make((shoal_nid){OWN}, 0);
    case 1:
        return shoal_cid_make((shoal_nid){OWN}, BASE + (UINT64_C(1) << 40) + local);
    case 2:
        return shoal_cid_make((shoal_nid){OWN}, BASE - local);
    case 3:
        return shoal_cid_make(SHOAL_NID_NONE, BASE + local + 1);
    case 4:
    case 5:
    case 6:
        return shoal_cid_make((shoal_nid){FOREIGN}, local + 1);
    default:
        return shoal_cid_make((shoal_nid){OWN}, BASE + local + 1);
    }
}

/* Rows of IDs, with gaps, repetitions and steps back. */
static size_t draw_ops(uint64_t *rng, struct sh_store_op *ops)
{
    size_t count = 1 + test_draw(rng) % OPS;
    ops[0].lid = draw_cid(rng);
    for (size_t i = 0; i < count; i++) {
        unsigned dice = (unsigned)(test_draw(rng) % 24);
        if (i > 0 && dice == 0)
            ops[i].lid = draw_cid(rng);
        else if (i > 0)
            ops[i].lid.v = ops[i - 1].lid.v + (dice == 1 ? 0 : dice == 2 ? 2 : 1);
        ops[i].size = draw_size(rng);
        ops[i].data = test_draw(rng) % 8 ? bytes + test_draw(rng) % OPS : NULL;
    }
    return count;
}

static void content_check(struct sh_store *store, const struct sh_store_op *op)
{
    static uint8_t room[SIZE_MOST], zeros[SIZE_MOST];
    uint32_t size;
    assert_int_equal(sh_store_get(store, op->lid, room, sizeof room, &size), SHOAL_OK);
    assert_int_equal(size, op->size);
    assert_memory_equal(room, op->data ? op->data : zeros, size);
}

static void remove_some(uint64_t *rng, struct sh_store *alone, struct sh_store *several)
{
    for (unsigned i = 0; i < 40; i++) {
        shoal_cid cid = draw_cid(rng);
        enum shoal_err err = test_draw(rng) % 4 ? sh_store_remove(alone, cid) : SHOAL_EBUSY;
        if (err != SHOAL_EBUSY)
            assert_int_equal(sh_store_remove(several, cid), err);
        else if (!sh_store_release(alone, cid))
            assert_int_equal(sh_store_release(several, cid), SHOAL_OK);
    }
}

static void stores_compare(struct sh_store *alone, struct sh_store *several)
{
    struct sh_store_status a, b;
    sh_store_status_get(alone, &a);
    sh_store_status_get(several, &b);
    assert_int_equal(a.chunks, b.chunks);
    assert_int_equal(a.payload_bytes, b.payload_bytes);
    assert_int_equal(sh_store_arrivals(alone), sh_store_arrivals(several));
    shoal_cid firsts[2], lasts[2], from = {0};
    while (sh_store_range(alone, from, &firsts[0], &lasts[0])) {
        assert_true(sh_store_range(several, from, &firsts[1], &lasts[1]));
        assert_memory_equal(&firsts[0], &firsts[1], sizeof firsts[0]);
        assert_memory_equal(&lasts[0], &lasts[1], sizeof lasts[0]);
        from.v = lasts[0].v + 1;
    }
    assert_false(sh_store_range(several, from, &firsts[1], &lasts[1]));
    sh_alloc_check(several->alloc);
    /* No ID is lost, and none is handed out twice. */
    shoal_cid cids[2][40];
    assert_int_equal(sh_store_new_many(alone, 1, 40, cids[0]), SHOAL_OK);
    assert_int_equal(sh_store_new_many(several, 1, 40, cids[1]), SHOAL_OK);
    assert_memory_equal(cids[0], cids[1], sizeof cids[0]);
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(sh_store_remove(alone, cids[0][i]), SHOAL_OK);
        assert_int_equal(sh_store_remove(several, cids[1][i]), SHOAL_OK);
    }
}

/* The same ops, one by one in one store, and at once in another: each fails alike, and the stores come to have the same. */
static void as_one_by_one(bool is_witnessed)
{
    static struct witness witnesses[2];
    uint64_t seed = test_seed(20261127);
    struct sh_store *stores[2] = {store_make(64 * MIB), store_make(64 * MIB)};
    unsigned joined = 0, seen[SHOAL_ETOOBIG + 64] = {0};
    for (unsigned i = 0; i < 2; i++) {
        sh_store_ids_begin(stores[i], BASE, SHOAL_LOCAL_ID_MAX);
        if (is_witnessed)
            witness_open(&witnesses[i], stores[i], seed);
        witnesses[i].refuse_of = is_witnessed ? 20 : 0;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)test_draw(&seed);
    for (unsigned round = 0; round < 3000; round++) {
        struct sh_store_op ops[OPS] = {{.size = 0}};
        size_t count = draw_ops(&seed, ops), good = 0;
        bool takes_over = round % 4 == 3;
        size_t made = takes_over ? sh_store_take_over_multi(stores[1], ops, count)
                                 : sh_store_adopt_multi(stores[1], ops, count);
        for (size_t i = 0; i < count; i++) {
            struct sh_bytes data = sh_bytes_make(ops[i].data, ops[i].size);
            enum shoal_err err = takes_over ? sh_store_take_over(stores[0], ops[i].lid, data)
                                            : sh_store_adopt(stores[0], ops[i].lid, data);
            assert_int_equal(ops[i].err, err);
            assert_in_range(err, 0, sizeof seen / sizeof seen[0] - 1);
            seen[err]++;
            good += err == SHOAL_OK;
            joined += i > 0 && !err && !ops[i - 1].err;
            if (!err)
                content_check(stores[1], &ops[i]);
        }
        assert_int_equal(made, good);
        for (unsigned i = 0; i < 2 && is_witnessed; i++) { /* or nothing could be removed */
            witnesses[i].refuse_of = 0;
            assert_int_equal(witnesses[i].wrong, 0);
        }
        remove_some(&seed, stores[0], stores[1]);
        if (round % 50 == 0)
            stores_compare(stores[0], stores[1]);
        for (unsigned i = 0; i < 2 && is_witnessed; i++)
            witnesses[i].refuse_of = 20;
    }
    assert_true(joined > 1000 && seen[SHOAL_OK] > 1000 && seen[SHOAL_EEXIST] > 1000);
    assert_true(seen[SHOAL_EINVAL] > 10 && seen[SHOAL_ENOCHUNK] > 10);
    assert_true(is_witnessed == (seen[SHOAL_EAGAIN] > 10));
    for (unsigned i = 0; i < 2; i++) {
        if (is_witnessed) {
            witness_compare(&witnesses[i]);
            witness_close(&witnesses[i]);
        }
        sh_store_destroy(stores[i]);
    }
}

static void test_as_one_by_one(void **state)
{
    (void)state;
    as_one_by_one(false);
}

static void test_as_one_by_one_with_a_witness(void **state)
{
    (void)state;
    as_one_by_one(true);
}

/* A whole group has a block that it fills, which is made once. */
static void test_a_group_has_one_block(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB);
    struct sh_store_op ops[SH_GROUP_IDS];
    for (unsigned i = 0; i < SH_GROUP_IDS; i++)
        ops[i] =
            (struct sh_store_op){shoal_cid_make((shoal_nid){OWN}, 16 + i), bytes, 64, SHOAL_EAGAIN};
    assert_int_equal(sh_store_adopt_multi(store, ops, SH_GROUP_IDS), SH_GROUP_IDS);
    const struct sh_group *group = sh_store_group(store, ops[0].lid);
    struct sh_layout layout = sh_group_layout(group);
    assert_int_equal(sh_layout_capacity(&layout), sh_alloc_block_bytes(16 * 64));
    assert_int_equal(atomic_load(&group->sequence) / SH_GROUP_VERSION, 2); /* and its first */
    sh_store_destroy(store);
}

/* Where memory ends in the middle, what was made is there, what was not is not, and its IDs are free. */
static void test_full(void **state)
{
    (void)state;
    uint64_t seed = test_seed(11);
    for (unsigned round = 0; round < 12; round++) {
        struct sh_store *store = store_make(4 * MIB);
        unsigned full = 0, made = 0;
        bool is_own = round % 2;
        for (uint64_t at = 16; full < 200; at += 16) {
            struct sh_store_op ops[16];
            for (unsigned i = 0; i < 16; i++)
                ops[i] = (struct sh_store_op){
                    shoal_cid_make((shoal_nid){is_own ? OWN : FOREIGN}, at + i), bytes,
                    (uint32_t)(test_draw(&seed) % (round < 6 ? 1000 : 100)), SHOAL_OK};
            size_t good = sh_store_adopt_multi(store, ops, 16);
            made += (unsigned)good;
            for (unsigned i = 0; i < 16; i++) {
                uint32_t size;
                assert_true(!ops[i].err || ops[i].err == SHOAL_EFULL);
                good -= !ops[i].err;
                full += ops[i].err == SHOAL_EFULL;
                if (ops[i].err)
                    assert_int_equal(sh_store_size(store, ops[i].lid, &size), SHOAL_ENOCHUNK);
                else
                    content_check(store, &ops[i]);
                if (is_own && ops[i].err &&
                    sh_store_place(store, ops[i].lid) < sh_idtable_limit(&store->table)) {
                    sh_lid lid = {sh_store_place(store, ops[i].lid)};
                    assert_int_equal(sh_idpool_claim(store->pool, lid.v), SHOAL_OK);
                    sh_idpool_give(store->pool, &lid, 1);
                }
            }
            assert_int_equal(good, 0);
        }
        assert_in_range(made, 1000, 200000);
        sh_alloc_check(store->alloc);
        sh_store_destroy(store);
    }
}

/* --- Threads ----------------------------------------------------------------------------------- */

#define THREADS 4
#define ROUNDS 400
#define CROWD_IDS 64

struct crowd {
    struct sh_store *store;
    uint64_t seed;
    _Atomic unsigned threads, wrong, raced;
    _Atomic unsigned owners[2]
                           [CROWD_IDS]; /* who has the chunk, and for how much longer; 0: nobody */
};

static shoal_cid crowd_cid(unsigned creator, unsigned index)
{
    return shoal_cid_make((shoal_nid){creator ? FOREIGN : OWN}, 16 + index);
}

/* Those of the ops that were adopted are this thread's: no other thread may have them until it removes them. */
static void crowd_own(struct crowd *crowd, unsigned self, const struct sh_store_op *ops,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        unsigned creator = shoal_cid_creator(ops[i].lid).v == FOREIGN, none = 0;
        _Atomic unsigned *owner = &crowd->owners[creator][shoal_cid_local(ops[i].lid) - 16];
        uint8_t room[300];
        uint32_t size;
        if (ops[i].err) {
            atomic_fetch_add(ops[i].err == SHOAL_EEXIST ? &crowd->raced : &crowd->wrong, 1);
            continue;
        }
        atomic_fetch_add(&crowd->wrong, !atomic_compare_exchange_strong(owner, &none, self + 1));
        bool is_bad = sh_store_get(crowd->store, ops[i].lid, room, sizeof room, &size) ||
                      size != ops[i].size || memcmp(room, ops[i].data, size) != 0;
        atomic_fetch_add(&crowd->wrong, is_bad);
    }
    for (size_t i = 0; i < count; i++) {
        unsigned creator = shoal_cid_creator(ops[i].lid).v == FOREIGN;
        if (ops[i].err)
            continue;
        atomic_store(&crowd->owners[creator][shoal_cid_local(ops[i].lid) - 16], 0);
        atomic_fetch_add(&crowd->wrong, sh_store_remove(crowd->store, ops[i].lid) != SHOAL_OK);
    }
}

static void *crowd_main(void *arg)
{
    struct crowd *crowd = arg;
    unsigned self = atomic_fetch_add(&crowd->threads, 1);
    uint64_t rng = crowd->seed + self;
    uint8_t mine[300];
    memset(mine, (int)self + 1, sizeof mine);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct sh_store_op ops[24];
        unsigned creator = (unsigned)(test_draw(&rng) % 2);
        unsigned first = (unsigned)(test_draw(&rng) % (CROWD_IDS - 24));
        size_t count = 0;
        for (unsigned i = 0; i < 24; i++)
            if (test_draw(&rng) % 4)
                ops[count++] =
                    (struct sh_store_op){crowd_cid(creator, first + i), mine,
                                         (uint32_t)(test_draw(&rng) % sizeof mine), SHOAL_OK};
        (void)sh_store_adopt_multi(crowd->store, ops, count);
        crowd_own(crowd, self, ops, count);
    }
    return NULL;
}

/* Threads adopt chunks of the same groups: each chunk is one thread's, as it has made it. */
static void test_crowd(void **state)
{
    (void)state;
    struct crowd crowd = {.store = store_make(64 * MIB), .seed = test_seed(5)};
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_main, &crowd), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(crowd.wrong, 0);
    struct sh_store_status status;
    sh_store_status_get(crowd.store, &status);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.payload_bytes, 0);
    sh_alloc_check(crowd.store->alloc);
    sh_store_destroy(crowd.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_one_by_one),
        cmocka_unit_test(test_as_one_by_one_with_a_witness),
        cmocka_unit_test(test_a_group_has_one_block),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
