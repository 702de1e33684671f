/* Every operation of the store against a plain map, with defragmentation in between; and the edges
 * of those that store_test.c does not know. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)
#define OWN 7
#define IDS 600 /* of each of three creators */
#define CREATORS 3

struct expected {
    bool exists;
    uint32_t size;
    uint32_t pins;
    uint8_t *pinned_at;
    uint8_t *bytes;
};

static struct expected map[CREATORS][IDS];
static uint64_t rng_state;

static uint64_t rng(void)
{
    return test_draw(&rng_state);
}

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 1 << 20, .nid = {OWN}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static shoal_cid cid_of(unsigned creator, unsigned index)
{
    static const uint16_t nids[CREATORS] = {OWN, 3, 900};
    return shoal_cid_make((shoal_nid){nids[creator]},
                          1 + (uint64_t)index * (creator == 2 ? 991 : 1));
}

static uint32_t random_size(void)
{
    switch (rng() % 8) {
    case 0:
        return (uint32_t)(rng() % 2 ? 243 + rng() % 10 : 240 + rng() % 1040);
    case 1:
        return (uint32_t)(rng() % 20000);
    case 2:
        return 0;
    default:
        return (uint32_t)(rng() % 150);
    }
}

static uint8_t fresh[70000];
static uint8_t room[70000];

static struct sh_bytes content(uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        fresh[i] = (uint8_t)rng();
    return sh_bytes_make(fresh, size);
}

static void step_adopt(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    struct sh_bytes bytes = content(random_size());
    enum shoal_err err = sh_store_adopt(store, cid, bytes);
    assert_int_equal(err, e->exists ? SHOAL_EEXIST : SHOAL_OK);
    if (err)
        return;
    *e = (struct expected){.exists = true, .size = (uint32_t)bytes.size};
    e->bytes = malloc(bytes.size + 1);
    assert_non_null(e->bytes);
    memcpy(e->bytes, bytes.at, bytes.size);
}

static void step_resize(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    uint32_t size = random_size();
    enum shoal_err err = sh_store_resize(store, cid, size);
    assert_int_equal(err, !e->exists ? SHOAL_ENOCHUNK : e->pins ? SHOAL_EBUSY : SHOAL_OK);
    if (err)
        return;
    e->bytes = realloc(e->bytes, size + 1);
    assert_non_null(e->bytes);
    if (size > e->size)
        memset(e->bytes + e->size, 0, size - e->size);
    e->size = size;
}

static void step_parts(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    uint32_t offset = (uint32_t)(rng() % (e->size + 4));
    uint32_t size = (uint32_t)(rng() % 40);
    bool fits = offset <= e->size && size <= e->size - offset;
    enum shoal_err expected = !e->exists ? SHOAL_ENOCHUNK : fits ? SHOAL_OK : SHOAL_ESIZE;
    assert_int_equal(sh_store_get_part(store, cid, offset, room, size), expected);
    if (!expected)
        assert_int_equal(memcmp(room, e->bytes + offset, size), 0);
    struct sh_bytes bytes = content(size);
    assert_int_equal(sh_store_put_part(store, cid, offset, bytes), expected);
    if (!expected)
        memcpy(e->bytes + offset, bytes.at, size);
}

static void step_put_if(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    bool lie = rng() % 2 && e->size > 0;
    uint32_t size = e->size;
    struct sh_bytes bytes = content(size);
    enum shoal_err err;
    if (lie && e->exists)
        e->bytes[size - 1] ^= 1;
    if (rng() % 2)
        err = sh_store_put_if(store, cid, sh_bytes_make(e->bytes, size), bytes);
    else
        err = sh_store_put_if_hash(
            store, cid, e->exists ? sh_hash64(sh_bytes_make(e->bytes, size), 0) : 0, bytes);
    if (lie && e->exists)
        e->bytes[size - 1] ^= 1;
    assert_int_equal(err, !e->exists ? SHOAL_ENOCHUNK : lie ? SHOAL_EDIFFERS : SHOAL_OK);
    if (!err && size > 0)
        memcpy(e->bytes, bytes.at, size);
}

static void step_add(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    unsigned width = rng() % 2 ? 4 : 8;
    uint32_t offset = (uint32_t)(rng() % (e->size + 1));
    uint64_t delta = rng();
    uint64_t old = 0;
    bool fits = e->size >= width && offset <= e->size - width;
    enum shoal_err err = sh_store_add(store, cid, offset, width, delta, &old);
    assert_int_equal(err, !e->exists ? SHOAL_ENOCHUNK : fits ? SHOAL_OK : SHOAL_ESIZE);
    if (err)
        return;
    uint8_t *at = e->bytes + offset;
    assert_int_equal(old, width == 4 ? sh_load32(at) : sh_load64(at));
    if (width == 4)
        sh_store32(at, (uint32_t)(old + delta));
    else
        sh_store64(at, old + delta);
}

static void step_pin(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    if (rng() % 2) {
        uint8_t *at = NULL;
        uint32_t size = 0;
        enum shoal_err err = sh_store_pin(store, cid, &at, &size);
        assert_int_equal(err, e->exists ? SHOAL_OK : SHOAL_ENOCHUNK);
        if (err)
            return;
        assert_int_equal((uintptr_t)at % 8, 0);
        assert_int_equal(size, e->size);
        assert_int_equal(memcmp(at, e->bytes, size), 0);
        if (e->pins++ > 0)
            assert_ptr_equal(at, e->pinned_at);
        e->pinned_at = at;
        return;
    }
    enum shoal_err err = sh_store_unpin(store, cid);
    assert_int_equal(err, !e->exists ? SHOAL_ENOCHUNK : e->pins ? SHOAL_OK : SHOAL_EINVAL);
    if (!err)
        e->pins--;
}

static void step_remove(struct sh_store *store, shoal_cid cid, struct expected *e)
{
    enum shoal_err err = sh_store_remove(store, cid);
    assert_int_equal(err, !e->exists ? SHOAL_ENOCHUNK : e->pins ? SHOAL_EBUSY : SHOAL_OK);
    if (err)
        return;
    free(e->bytes);
    *e = (struct expected){0};
}

static void compare(struct sh_store *store)
{
    uint64_t chunks = 0;
    for (unsigned c = 0; c < CREATORS; c++) {
        for (unsigned i = 0; i < IDS; i++) {
            struct expected *e = &map[c][i];
            uint32_t size = 0;
            enum shoal_err err = sh_store_get(store, cid_of(c, i), room, sizeof room, &size);
            assert_int_equal(err, e->exists ? SHOAL_OK : SHOAL_ENOCHUNK);
            if (err)
                continue;
            assert_int_equal(size, e->size);
            assert_int_equal(memcmp(room, e->bytes, size), 0);
            chunks++;
        }
    }
    shoal_cid next = {0};
    shoal_cid first;
    shoal_cid last = {0};
    while (sh_store_range(store, next, &first, &last)) {
        assert_true(first.v >= next.v && last.v >= first.v);
        chunks -= last.v - first.v + 1;
        assert_true(sh_store_next(store, next, &next));
        assert_int_equal(next.v, first.v);
        next.v = last.v + 1;
    }
    assert_false(sh_store_next(store, next, &next));
    assert_int_equal(chunks, 0);
    sh_alloc_check(store->alloc);
}

typedef void (*step_fn)(struct sh_store *, shoal_cid, struct expected *);
static const step_fn steps[] = {step_adopt,  step_adopt, step_resize, step_parts,
                                step_put_if, step_add,   step_pin,    step_remove};

static void test_model(void **state)
{
    (void)state;
    rng_state = test_seed(20261121);
    struct sh_store *store = store_make(256 * MIB);
    for (unsigned i = 0; i < 300000; i++) {
        unsigned c = (unsigned)(rng() % CREATORS);
        unsigned index = (unsigned)(rng() % IDS);
        steps[rng() % (sizeof steps / sizeof steps[0])](store, cid_of(c, index), &map[c][index]);
        if (i % 64 == 0)
            (void)sh_store_defrag(store, 16, true);
        if (i % 20000 == 0)
            compare(store);
    }
    compare(store);
    for (unsigned c = 0; c < CREATORS; c++) {
        for (unsigned i = 0; i < IDS; i++) {
            for (struct expected *e = &map[c][i]; e->pins > 0; e->pins--)
                assert_int_equal(sh_store_unpin(store, cid_of(c, i)), SHOAL_OK);
            step_remove(store, cid_of(c, i), &map[c][i]);
        }
    }
    compare(store);
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.payload_bytes, 0);
    assert_int_equal(status.block_bytes, 0);
    sh_store_destroy(store);
}

/* Reserved IDs do not exist until they are filled, and are nobody else's. */
static void test_reserve(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB);
    shoal_cid cids[40];
    size_t made = 0;
    struct sh_store_wish wish = {.count = 40, .consecutive = true, .reserve = true};
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_OK);
    assert_int_equal(made, 40);
    for (unsigned i = 0; i < 40; i++)
        assert_int_equal(cids[i].v, cids[0].v + i);
    assert_int_equal(shoal_cid_creator(cids[0]).v, OWN);
    uint32_t size;
    assert_int_equal(sh_store_size(store, cids[3], &size), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_remove(store, cids[3]), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_adopt(store, cids[3], sh_bytes_make("x", 1)), SHOAL_EEXIST);
    assert_int_equal(sh_store_fill(store, cids[3], sh_bytes_make("abc", 3)), SHOAL_OK);
    assert_int_equal(sh_store_fill(store, cids[3], sh_bytes_make("abc", 3)), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_get(store, cids[3], room, sizeof room, &size), SHOAL_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(room, "abc", 3);
    assert_int_equal(sh_store_unreserve(store, cids[0]), SHOAL_OK);
    assert_int_equal(sh_store_unreserve(store, cids[0]), SHOAL_ENOCHUNK);
    shoal_cid again;
    assert_int_equal(sh_store_new_many(store, 5, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, cids[0].v);
    sh_store_destroy(store);
}

/* With `partial` a batch goes as far as memory does; a full store still removes and adopts. */
static void test_full(void **state)
{
    (void)state;
    struct sh_store *store = store_make(4 * MIB);
    shoal_cid *cids = calloc(10000, sizeof *cids);
    assert_non_null(cids);
    size_t made = 0;
    struct sh_store_wish wish = {.count = 10000, .size = 1000};
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_EFULL);
    struct sh_store_shortage shortage = sh_store_shortage_last();
    assert_true(shortage.needed_bytes > shortage.left_bytes);
    wish.partial = true;
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_OK);
    assert_true(made > 3000 && made < 4200);
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    assert_int_equal(status.chunks, made);
    shoal_cid one;
    assert_int_equal(sh_store_new_many(store, 60000, 1, &one), SHOAL_EFULL);
    assert_int_equal(
        sh_store_adopt(store, shoal_cid_make((shoal_nid){3}, 5), sh_bytes_make(fresh, 100)),
        SHOAL_OK);
    for (size_t i = 0; i < made; i++)
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 60000, 1, &one), SHOAL_OK);
    free(cids);
    sh_store_destroy(store);
}

/* Whatever was removed, one round brings what is resident to within a tenth of the payload and 2
 * bytes an ID. */
static void test_defrag(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    rng_state = 99;
    shoal_cid *cids = calloc(COUNT, sizeof *cids);
    assert_non_null(cids);
    for (unsigned keep = 2; keep <= 10; keep += 4) {
        struct sh_store *store = store_make(256 * MIB);
        for (unsigned i = 0; i < COUNT; i++)
            assert_int_equal(sh_store_new_many(store, (uint32_t)(16 + rng() % 112), 1, &cids[i]),
                             SHOAL_OK);
        for (unsigned i = 0; i < COUNT; i++)
            if (rng() % keep)
                assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
        assert_true(sh_store_waste_is_high(store));
        while (sh_store_defrag(store, 100, false) > 0)
            continue;
        struct sh_store_status status;
        sh_store_status_get(store, &status);
        uint64_t ideal = status.payload_bytes + 2 * COUNT;
        print_message("1 of %u kept: %llu bytes, ideal %llu\n", keep,
                      (unsigned long long)status.used_bytes, (unsigned long long)ideal);
        /* and the two packs that are being filled */
        assert_true(status.used_bytes < ideal + ideal / 10 + 2 * SH_SLOT_BYTES);
        sh_alloc_check(store->alloc);
        sh_store_destroy(store);
    }
    free(cids);
}

/* A store that was full and lost half of its chunks has room for as many again, though there is
 * hardly any memory to copy to. */
static void test_defrag_full(void **state)
{
    (void)state;
    enum { BATCH = 16, COUNT = 65536, SIZE = 1000 };
    shoal_cid *cids = calloc(COUNT, sizeof *cids);
    assert_non_null(cids);
    rng_state = 7;
    struct sh_store *store = store_make(32 * MIB);
    size_t made = 0;
    while (made < COUNT && !sh_store_new_many(store, SIZE, BATCH, cids + made))
        made += BATCH;
    assert_true(made > COUNT / 3 && made < COUNT);
    size_t removed = 0;
    for (size_t at = 0; at < made; at += BATCH) {
        enum shoal_err errs[BATCH];
        if (rng() % 2)
            removed += sh_store_remove_multi(store, cids + at, BATCH, errs);
    }
    while (sh_store_defrag(store, 100, false) > 0)
        continue;
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    assert_true(status.used_bytes < status.payload_bytes + status.payload_bytes / 10);
    size_t again = 0;
    while (!sh_store_new_many(store, SIZE, BATCH, cids))
        again += BATCH;
    print_message("%zu removed, %zu created again\n", removed, again);
    assert_true(again > removed / 2);
    sh_alloc_check(store->alloc);
    sh_store_destroy(store);
    free(cids);
}

/* A chunk that moves away keeps its ID taken, and can come back. */
static void test_release_and_take_over(void **state)
{
    (void)state;
    struct sh_store *store = store_make(8 * MIB);
    shoal_cid cids[3], more;
    uint8_t bytes[5000], back[5000];
    uint32_t size, sizes[3] = {20, 5000, 0};
    memset(bytes, 9, sizeof bytes);
    assert_int_equal(sh_store_new(store, sizes, 3, cids), SHOAL_OK);
    struct sh_store_status before, after;
    for (unsigned i = 0; i < 3; i++) {
        struct sh_bytes content = sh_bytes_make(bytes, sizes[i]);
        assert_int_equal(sh_store_take_over(store, cids[i], content), SHOAL_ENOCHUNK);
        assert_int_equal(sh_store_release(store, cids[i]), SHOAL_OK);
        assert_int_equal(sh_store_release(store, cids[i]), SHOAL_ENOCHUNK);
        assert_int_equal(sh_store_size(store, cids[i], &size), SHOAL_ENOCHUNK);
        assert_int_equal(sh_store_adopt(store, cids[i], content), SHOAL_EEXIST);
    }
    sh_store_status_get(store, &before);
    assert_int_equal(before.chunks, 0);
    assert_int_equal(before.payload_bytes, 0);
    assert_int_equal(sh_store_new_many(store, 8, 1, &more), SHOAL_OK);
    assert_int_equal(more.v, cids[2].v + 1); /* none of theirs */
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(sh_store_take_over(store, cids[i], sh_bytes_make(bytes, sizes[i])),
                         SHOAL_OK);
        assert_int_equal(sh_store_get(store, cids[i], back, sizeof back, &size), SHOAL_OK);
        assert_int_equal(size, sizes[i]);
        assert_memory_equal(back, bytes, size);
    }
    assert_int_equal(sh_store_remove(store, cids[0]), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 8, 1, &more), SHOAL_OK);
    assert_int_equal(more.v, cids[0].v); /* a removed one is free again */
    /* Another's leaves nothing behind. */
    shoal_cid foreign = shoal_cid_make((shoal_nid){900}, 77);
    assert_int_equal(sh_store_take_over(store, foreign, sh_bytes_make(bytes, 30)), SHOAL_OK);
    assert_int_equal(sh_store_take_over(store, foreign, sh_bytes_make(bytes, 30)), SHOAL_EEXIST);
    assert_int_equal(sh_store_release(store, foreign), SHOAL_OK);
    assert_int_equal(sh_store_take_over(store, foreign, sh_bytes_make(bytes, 9)), SHOAL_OK);
    sh_store_status_get(store, &after);
    assert_int_equal(after.chunks, 5);
    assert_int_equal(after.payload_bytes, 8 + 8 + 5000 + 9);
    sh_store_destroy(store);
}

/* A pinned chunk is neither resized, removed nor let go of; nor is a chunk pinned more often than can be
 * counted. */
static void test_pins_most(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB);
    shoal_cid cid;
    uint8_t *at, *again;
    uint32_t size;
    assert_int_equal(sh_store_new_many(store, 30, 1, &cid), SHOAL_OK);
    assert_int_equal(sh_store_pin(store, cid, &at, &size), SHOAL_OK);
    assert_int_equal(sh_store_release(store, cid), SHOAL_EBUSY);
    _Atomic uint64_t *header = (_Atomic uint64_t *)(void *)(at - SH_LONG_HEADER);
    assert_int_equal(*header, UINT64_C(1) << 32 | 30);
    *header = UINT64_C(0x7fffffff) << 32 | 30;
    assert_int_equal(sh_store_pin(store, cid, &again, &size), SHOAL_OK);
    assert_int_equal(sh_store_pin(store, cid, &again, &size), SHOAL_ELIMIT);
    assert_int_equal(*header, UINT64_C(0x80000000) << 32 | 30);
    assert_int_equal(sh_store_resize(store, cid, 31), SHOAL_EBUSY);
    assert_int_equal(sh_store_remove(store, cid), SHOAL_EBUSY);
    *header = UINT64_C(1) << 32 | 30;
    assert_int_equal(sh_store_unpin(store, cid), SHOAL_OK);
    assert_int_equal(sh_store_unpin(store, cid), SHOAL_EINVAL);
    assert_int_equal(sh_store_remove(store, cid), SHOAL_OK);
    sh_store_destroy(store);
}

/* Pinning gives a short chunk a block of its own. Where there is no memory for that, or none for the
 * group's block, in which the chunk of a byte becomes a pointer, all is as it was. */
static void test_pins_full(void **state)
{
    (void)state;
    enum { COUNT = 500000 };
    struct sh_store *store = store_make(1 * MIB);
    shoal_cid *cids = calloc(COUNT, sizeof *cids);
    assert_non_null(cids);
    size_t made = 0, refused = 0;
    struct sh_store_wish wish = {.count = COUNT, .size = 1, .partial = true};
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_OK);
    for (size_t left = made - made / 16; made > left;)
        assert_int_equal(sh_store_remove(store, cids[--made]), SHOAL_OK);
    bool *is_pinned = calloc(made, sizeof *is_pinned);
    assert_non_null(is_pinned);
    for (size_t i = 0; i < made; i++) {
        uint8_t byte = (uint8_t)i, *at;
        uint32_t size;
        assert_int_equal(sh_store_put(store, cids[i], sh_bytes_make(&byte, 1)), SHOAL_OK);
        enum shoal_err err = sh_store_pin(store, cids[i], &at, &size);
        is_pinned[i] = err == SHOAL_OK;
        assert_true(!err || err == SHOAL_EFULL);
        refused += err == SHOAL_EFULL;
    }
    print_message("%zu of %zu can't be pinned\n", refused, made);
    assert_true(refused > 0 && refused < made);
    sh_alloc_check(store->alloc);
    for (size_t i = 0; i < made; i++) {
        uint32_t size;
        assert_int_equal(sh_store_get(store, cids[i], room, sizeof room, &size), SHOAL_OK);
        assert_int_equal(size, 1);
        assert_int_equal(room[0], (uint8_t)i);
        assert_int_equal(sh_store_unpin(store, cids[i]), is_pinned[i] ? SHOAL_OK : SHOAL_EINVAL);
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.block_bytes, 0);
    free(is_pinned);
    free(cids);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),       cmocka_unit_test(test_reserve),
        cmocka_unit_test(test_full),        cmocka_unit_test(test_defrag),
        cmocka_unit_test(test_defrag_full), cmocka_unit_test(test_release_and_take_over),
        cmocka_unit_test(test_pins_most),   cmocka_unit_test(test_pins_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
