/* The store against a plain array, its limits, its IDs, and how its parts are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)

static struct sh_store *store_make(uint64_t bytes_max, uint32_t chunk_bytes_max)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {.bytes_max = bytes_max, .chunk_bytes_max = chunk_bytes_max};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static struct sh_store_status status_of(struct sh_store *store)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    assert_int_equal(status.used_bytes, status.table_bytes + status.block_bytes +
                                            status.free_bytes + status.other_bytes);
    assert_true(status.used_bytes <= status.bytes_max);
    assert_int_equal(status.used_bytes, atomic_load(&store->budget.used));
    sh_alloc_check(store->alloc);
    return status;
}

static uint64_t rng_state;

static uint64_t rng(void)
{
    return test_draw(&rng_state);
}

/* The model: what each ID's chunk holds. */
#define MODEL_IDS 6000

struct model_chunk {
    bool exists;
    uint32_t size;
    uint8_t *bytes;
};

static struct model_chunk model[MODEL_IDS];
static uint64_t model_chunks;
static uint64_t model_payload;

static uint32_t random_size(void)
{
    switch (rng() % 16) {
    case 0:
        return 0;
    case 1:
        return (uint32_t)(rng() % 20000);
    case 2:
        return (uint32_t)(rng() % 300000);
    case 3:
        return rng() % 64 ? (uint32_t)(rng() % 1500) : (uint32_t)(520000 + rng() % 10000);
    default:
        return (uint32_t)(rng() % 200);
    }
}

static void model_add(sh_lid lid, uint32_t size)
{
    assert_true(lid.v > 0 && lid.v < MODEL_IDS);
    struct model_chunk *chunk = &model[lid.v];
    assert_false(chunk->exists);
    *chunk = (struct model_chunk){true, size, calloc(1, size ? size : 1)};
    assert_non_null(chunk->bytes);
    model_chunks++;
    model_payload += size;
}

static void model_remove(sh_lid lid)
{
    struct model_chunk *chunk = &model[lid.v];
    assert_true(chunk->exists);
    free(chunk->bytes);
    model_chunks--;
    model_payload -= chunk->size;
    *chunk = (struct model_chunk){0};
}

static sh_lid model_smallest_free(uint64_t from)
{
    while (model[from].exists)
        from++;
    return (sh_lid){from};
}

static void step_create(struct sh_store *store)
{
    uint32_t sizes[40];
    sh_lid lids[40];
    size_t count = rng() % 4 ? 1 : rng() % 40;
    if (model_chunks + count >= MODEL_IDS - 1)
        return;
    bool one_size = rng() % 2;
    for (size_t i = 0; i < count; i++)
        sizes[i] = one_size && i > 0 ? sizes[0] : random_size();
    enum shoal_err err = one_size && count > 0 ? sh_store_new_many(store, sizes[0], count, lids)
                                               : sh_store_new(store, sizes, count, lids);
    if (err) {
        assert_int_equal(err, SHOAL_EFULL);
        return;
    }
    uint64_t from = 1;
    for (size_t i = 0; i < count; i++) {
        sh_lid expected = model_smallest_free(from);
        assert_int_equal(lids[i].v, expected.v);
        model_add(lids[i], sizes[i]);
        from = expected.v;
    }
}

static uint8_t buffer[600000];

static void step_get(struct sh_store *store, sh_lid lid)
{
    uint32_t size = 77;
    size_t room = rng() % 8 ? sizeof buffer : rng() % 300;
    enum shoal_err err = sh_store_get(store, lid, buffer, room, &size);
    const struct model_chunk *chunk = &model[lid.v];
    if (!chunk->exists) {
        assert_int_equal(err, SHOAL_ENOCHUNK);
        assert_int_equal(size, 77);
        assert_int_equal(sh_store_size(store, lid, &size), SHOAL_ENOCHUNK);
        return;
    }
    assert_int_equal(size, chunk->size);
    assert_int_equal(err, size <= room ? SHOAL_OK : SHOAL_ESIZE);
    if (!err)
        assert_int_equal(memcmp(buffer, chunk->bytes, size), 0);
    assert_int_equal(sh_store_size(store, lid, &size), SHOAL_OK);
    assert_int_equal(size, chunk->size);
}

static void step_put(struct sh_store *store, sh_lid lid)
{
    struct model_chunk *chunk = &model[lid.v];
    uint32_t size = chunk->exists && rng() % 8 ? chunk->size : random_size();
    for (uint32_t i = 0; i < size; i++)
        buffer[i] = (uint8_t)(rng_state >> (i % 8) ^ i);
    enum shoal_err err = sh_store_put(store, lid, sh_bytes_make(buffer, size));
    rng();
    if (!chunk->exists)
        assert_int_equal(err, SHOAL_ENOCHUNK);
    else if (size != chunk->size)
        assert_int_equal(err, SHOAL_ESIZE);
    else {
        assert_int_equal(err, SHOAL_OK);
        memcpy(chunk->bytes, buffer, size);
    }
}

static void step_remove(struct sh_store *store)
{
    sh_lid lids[40];
    enum shoal_err errs[40];
    size_t count = rng() % 4 ? 1 : rng() % 40;
    for (size_t i = 0; i < count; i++)
        lids[i] = (sh_lid){rng() % MODEL_IDS};
    size_t good = 0;
    if (count == 1)
        good = (errs[0] = sh_store_remove(store, lids[0])) == SHOAL_OK;
    else
        good = sh_store_remove_multi(store, lids, count, errs);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(errs[i], model[lids[i].v].exists ? SHOAL_OK : SHOAL_ENOCHUNK);
        if (errs[i] == SHOAL_OK) {
            model_remove(lids[i]);
            good--;
        }
    }
    assert_int_equal(good, 0);
}

static void model_compare(struct sh_store *store)
{
    sh_lid next = {0};
    sh_lid first, last, alone;
    uint64_t seen = 0;
    while (sh_store_range(store, next, &first, &last)) {
        assert_true(sh_store_next(store, next, &alone));
        assert_int_equal(alone.v, first.v);
        for (uint64_t v = next.v; v < first.v; v++)
            assert_false(model[v].exists);
        for (uint64_t v = first.v; v <= last.v; v++)
            assert_true(model[v].exists);
        seen += last.v - first.v + 1;
        next.v = last.v + 1;
    }
    assert_false(sh_store_next(store, next, &alone));
    assert_int_equal(seen, model_chunks);
    struct sh_store_status status = status_of(store);
    assert_int_equal(status.chunks, model_chunks);
    assert_int_equal(status.payload_bytes, model_payload);
    assert_true(status.block_bytes >= model_payload);
}

static void test_model(void **state)
{
    (void)state;
    rng_state = test_seed(20261120);
    struct sh_store *store = store_make(24 * MIB, 1 << 20);
    for (unsigned i = 0; i < 60000; i++) {
        sh_lid lid = {rng() % MODEL_IDS};
        switch (rng() % (i / 10000 % 2 ? 5 : 4)) { /* grow, shrink, grow ... */
        case 0:
            step_create(store);
            break;
        case 1:
            step_get(store, lid);
            break;
        case 2:
            step_put(store, lid);
            break;
        default:
            step_remove(store);
        }
        if (i % 2000 == 0)
            model_compare(store);
    }
    model_compare(store);
    for (uint64_t v = 1; v < MODEL_IDS; v++) {
        step_get(store, (sh_lid){v});
        if (model[v].exists) {
            assert_int_equal(sh_store_remove(store, (sh_lid){v}), SHOAL_OK);
            model_remove((sh_lid){v});
        }
    }
    model_compare(store);
    assert_int_equal(status_of(store).block_bytes, 0);
    sh_store_destroy(store);
}

static void test_config(void **state)
{
    (void)state;
    struct sh_store *store = NULL;
    struct sh_store_config config = {.bytes_max = MIB - 1, .chunk_bytes_max = 64};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_EINVAL);
    config = (struct sh_store_config){.bytes_max = MIB, .chunk_bytes_max = (1u << 30) + 1};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_EINVAL);
    assert_null(store);
    sh_store_destroy(NULL);
}

/* Every size around the edges of a code, a pack and a slot keeps its bytes. */
static void test_sizes(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0,    24,   247,   504,    760,    1016,    1271,
                                     4096, 8192, 65536, 262136, 262144, 1048576, 3000000};
    struct sh_store *store = store_make(64 * MIB, 1 << 22);
    for (size_t e = 0; e < sizeof edges / sizeof edges[0]; e++) {
        for (int delta = -2; delta <= 2; delta++) {
            if (edges[e] == 0 && delta < 0)
                continue;
            uint32_t size = (uint32_t)((int64_t)edges[e] + delta);
            sh_lid lid;
            assert_int_equal(sh_store_new_many(store, size, 1, &lid), SHOAL_OK);
            uint8_t *bytes = malloc(size + 1);
            assert_non_null(bytes);
            memset(bytes, 0xa5, size + 1);
            uint32_t got = 0;
            assert_int_equal(sh_store_get(store, lid, bytes, size, &got), SHOAL_OK);
            assert_int_equal(got, size);
            for (uint32_t i = 0; i < size; i++)
                assert_int_equal(bytes[i], 0);
            assert_int_equal(bytes[size], 0xa5);
            memset(bytes, (int)(size * 7 + 1), size);
            assert_int_equal(sh_store_put(store, lid, sh_bytes_make(bytes, size)), SHOAL_OK);
            free(bytes);
        }
    }
    sh_lid first, last;
    assert_true(sh_store_range(store, (sh_lid){0}, &first, &last));
    for (uint64_t v = first.v; v <= last.v; v++) {
        uint32_t size = 0;
        assert_int_equal(sh_store_size(store, (sh_lid){v}, &size), SHOAL_OK);
        uint8_t *bytes = malloc(size + 1);
        assert_non_null(bytes);
        assert_int_equal(sh_store_get(store, (sh_lid){v}, bytes, size, &size), SHOAL_OK);
        for (uint32_t i = 0; i < size; i++)
            assert_int_equal(bytes[i], (uint8_t)(size * 7 + 1));
        free(bytes);
    }
    status_of(store);
    sh_store_destroy(store);
}

static void test_huge(void **state)
{
    (void)state;
    struct sh_store *store = store_make(200 * MIB, 1u << 30);
    uint64_t before = status_of(store).used_bytes;
    sh_lid lids[2];
    uint32_t size = 100u << 20;
    assert_int_equal(sh_store_new_many(store, size, 1, lids), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 1u << 30, 1, lids + 1), SHOAL_EFULL);
    assert_int_equal(sh_store_new_many(store, size, 1, lids + 1), SHOAL_EFULL);
    uint32_t got = 0;
    assert_int_equal(sh_store_size(store, lids[0], &got), SHOAL_OK);
    assert_int_equal(got, size);
    assert_true(status_of(store).used_bytes >= size);
    assert_int_equal(sh_store_remove(store, lids[0]), SHOAL_OK);
    /* Its pages went back to the kernel; what is left is records of slots. */
    assert_true(status_of(store).used_bytes < before + MIB);
    assert_int_equal(sh_store_new_many(store, 180u << 20, 1, lids), SHOAL_OK);
    sh_store_destroy(store);
}

static void test_too_big(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB, 1000);
    struct sh_store_status before = status_of(store);
    sh_lid lids[3] = {{0}};
    assert_int_equal(sh_store_new_many(store, 1001, 2, lids), SHOAL_ETOOBIG);
    assert_int_equal(sh_store_new(store, (uint32_t[]){1, 1001, 2}, 3, lids), SHOAL_ETOOBIG);
    struct sh_store_status after = status_of(store);
    assert_memory_equal(&before, &after, sizeof before);
    assert_int_equal(sh_store_new(store, (uint32_t[]){1, 1000, 2}, 3, lids), SHOAL_OK);
    assert_int_equal(lids[0].v, 1);
    assert_int_equal(lids[2].v, 3);
    assert_int_equal(sh_store_new_many(store, 1, SIZE_MAX, lids), SHOAL_EFULL);
    assert_int_equal(sh_store_new_many(store, 0, SIZE_MAX, lids), SHOAL_EFULL);
    assert_int_equal(sh_store_new_many(store, 999, SIZE_MAX, lids), SHOAL_EFULL);
    sh_store_destroy(store);
}

/* Creates single chunks of a size until there is no room; returns how many. */
static size_t fill(struct sh_store *store, uint32_t size, sh_lid *lids, size_t room)
{
    size_t count = 0;
    enum shoal_err err = SHOAL_OK;
    while (count < room && !(err = sh_store_new_many(store, size, 1, &lids[count])))
        count++;
    assert_int_equal(err, SHOAL_EFULL);
    return count;
}

static void test_full(void **state)
{
    (void)state;
    enum { ROOM = 3000000 };
    sh_lid *lids = calloc(ROOM, sizeof *lids);
    assert_non_null(lids);
    struct sh_store *store = store_make(4 * MIB, 1 << 20);
    size_t small = fill(store, 64, lids, ROOM);
    assert_true(small > 4 * MIB / 74); /* at most 74 bytes a chunk, all counted */
    struct sh_store_status before = status_of(store);

    /* A batch that fits in part changes nothing. */
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(sh_store_remove(store, lids[i]), SHOAL_OK);
    sh_lid more[4000];
    assert_int_equal(sh_store_new_many(store, 64, 4000, more), SHOAL_EFULL);
    assert_int_equal(status_of(store).chunks, before.chunks - 3000);
    assert_int_equal(status_of(store).payload_bytes, before.payload_bytes - 3000 * 64);
    sh_lid first, last;
    assert_true(sh_store_range(store, (sh_lid){0}, &first, &last));
    assert_int_equal(first.v, 3001);
    assert_int_equal(sh_store_new_many(store, 64, 3000, more), SHOAL_OK);
    assert_int_equal(more[0].v, 1);
    assert_int_equal(more[2999].v, 3000);

    /* All gone, its memory serves other sizes, and the first size again. */
    for (size_t i = small; i-- > 0;)
        assert_int_equal(sh_store_remove(store, (sh_lid){i + 1}), SHOAL_OK);
    assert_int_equal(status_of(store).chunks, 0);
    static const uint32_t sizes[] = {500, 16384, 70000, 1 << 20, 0, 64};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        size_t count = fill(store, sizes[s], lids, ROOM);
        if (sizes[s] > 0)
            assert_true(count * sizes[s] > 3 * MIB - (sizes[s] >> 1));
        status_of(store);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(sh_store_remove(store, lids[i]), SHOAL_OK);
        assert_int_equal(status_of(store).block_bytes, 0);
    }
    sh_store_destroy(store);
    free(lids);
}

static void test_ids(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    struct sh_store *store = store_make(64 * MIB, 64);
    sh_lid *lids = calloc(COUNT, sizeof *lids);
    assert_non_null(lids);
    assert_int_equal(sh_store_new_many(store, 1, COUNT, lids), SHOAL_OK);
    sh_lid first, last;
    uint64_t from = 1;
    for (unsigned ranges = 0; sh_store_range(store, (sh_lid){from}, &first, &last); ranges++) {
        assert_int_equal(first.v, from);
        assert_true(last.v - first.v + 1 <= 8192);
        from = last.v + 1;
        assert_true(ranges <= COUNT / 8192);
    }
    assert_int_equal(from, COUNT + 1);
    for (size_t i = 0; i < COUNT; i += 3)
        assert_int_equal(sh_store_remove(store, lids[i]), SHOAL_OK);
    sh_lid again;
    for (uint64_t expected = 1; expected <= COUNT; expected += 3) {
        assert_int_equal(sh_store_new_many(store, 2, 1, &again), SHOAL_OK);
        assert_int_equal(again.v, expected);
    }
    assert_int_equal(sh_store_new_many(store, 2, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, COUNT + 1);

    /* The table shrinks when the largest IDs are free. */
    uint64_t table = status_of(store).table_bytes;
    for (uint64_t v = 1000; v <= COUNT + 1; v++)
        assert_int_equal(sh_store_remove(store, (sh_lid){v}), SHOAL_OK);
    assert_true(status_of(store).table_bytes < table / 10);
    assert_int_equal(sh_store_new_many(store, 2, 1, &again), SHOAL_OK);
    assert_int_equal(again.v, 1000);
    sh_store_destroy(store);
    free(lids);
}

static void test_multi(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    struct sh_store *store = store_make(16 * MIB, 64);
    sh_lid lids[COUNT];
    assert_int_equal(sh_store_new_many(store, 8, COUNT, lids), SHOAL_OK);
    struct sh_store_op ops[COUNT + 2];
    uint64_t values[COUNT + 2];
    for (size_t i = 0; i < COUNT + 2; i++) {
        values[i] = i * i;
        ops[i] = (struct sh_store_op){{i + 1}, &values[i], 8, SHOAL_EINTERNAL};
    }
    ops[7].size = 7;
    assert_int_equal(sh_store_put_multi(store, ops, COUNT + 2), COUNT - 1);
    assert_int_equal(ops[6].err, SHOAL_OK);
    assert_int_equal(ops[7].err, SHOAL_ESIZE);
    assert_int_equal(ops[COUNT].err, SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_remove(store, lids[9]), SHOAL_OK);
    memset(values, 0xff, sizeof values);
    assert_int_equal(sh_store_get_multi(store, ops, COUNT + 2), COUNT - 2);
    for (size_t i = 0; i < COUNT; i++) {
        bool ok = i != 7 && i != 9;
        assert_int_equal(ops[i].err, i == 9 ? SHOAL_ENOCHUNK : i == 7 ? SHOAL_ESIZE : SHOAL_OK);
        assert_int_equal(values[i], ok ? i * i : UINT64_MAX);
    }
    assert_int_equal(ops[7].size, 8);
    struct sh_store_status status = status_of(store);
    assert_int_equal(status.gets, COUNT - 2);
    assert_int_equal(status.puts, COUNT - 1);
    enum shoal_err errs[COUNT];
    lids[50] = lids[49]; /* removed once, not twice */
    assert_int_equal(sh_store_remove_multi(store, lids, COUNT, errs), COUNT - 2);
    assert_int_equal(errs[9], SHOAL_ENOCHUNK);
    assert_int_equal(errs[50], SHOAL_ENOCHUNK);
    assert_int_equal(status_of(store).chunks, 1);
    assert_int_equal(status_of(store).removes, COUNT - 1);
    sh_store_destroy(store);
}

static void note(void *arg, struct sh_bytes chunk)
{
    *(struct sh_bytes *)arg = chunk;
}

static void test_read(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB, 64);
    sh_lid lids[2];
    assert_int_equal(sh_store_new(store, (uint32_t[]){5, 0}, 2, lids), SHOAL_OK);
    assert_int_equal(sh_store_put(store, lids[0], sh_bytes_text("hello")), SHOAL_OK);
    struct sh_bytes seen = {NULL, 99};
    assert_int_equal(sh_store_read(store, lids[0], note, &seen), SHOAL_OK);
    assert_int_equal(seen.size, 5);
    assert_memory_equal(seen.at, "hello", 5);
    assert_int_equal(sh_store_read(store, lids[1], note, &seen), SHOAL_OK);
    assert_int_equal(seen.size, 0);
    assert_int_equal(sh_store_read(store, (sh_lid){3}, note, &seen), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_read(store, (sh_lid){UINT64_MAX}, note, &seen), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_get(store, lids[1], NULL, 0, &(uint32_t){1}), SHOAL_OK);
    assert_int_equal(sh_store_put(store, lids[1], sh_bytes_make(NULL, 0)), SHOAL_OK);
    sh_store_destroy(store);
}

/* Parts that end beyond a chunk's end, also where offset and size together pass 32 bits. */
static void test_part_bounds(void **state)
{
    (void)state;
    static const struct {
        uint32_t offset, size;
        bool fits;
    } cases[] = {{0, 16, true},
                 {8, 8, true},
                 {15, 1, true},
                 {16, 0, true},
                 {0, 17, false},
                 {9, 8, false},
                 {16, 1, false},
                 {17, 0, false},
                 {UINT32_MAX, 1, false},
                 {UINT32_MAX, 2, false},
                 {UINT32_MAX, 0, false},
                 {UINT32_MAX - 7, 8, false},
                 {UINT32_MAX - 7, 16, false}};
    struct sh_store *store = store_make(16 * MIB, 64);
    sh_lid lid;
    uint8_t before[16], after[16], bytes[32];
    assert_int_equal(sh_store_new_many(store, 16, 1, &lid), SHOAL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum shoal_err expected = cases[i].fits ? SHOAL_OK : SHOAL_ESIZE;
        uint32_t size;
        memset(bytes, (int)i + 1, sizeof bytes);
        assert_int_equal(sh_store_get(store, lid, before, 16, &size), SHOAL_OK);
        assert_int_equal(
            sh_store_put_part(store, lid, cases[i].offset, sh_bytes_make(bytes, cases[i].size)),
            expected);
        assert_int_equal(sh_store_get(store, lid, after, 16, &size), SHOAL_OK);
        if (cases[i].fits)
            memcpy(before + cases[i].offset, bytes, cases[i].size);
        assert_memory_equal(before, after, 16);
        memset(bytes, 0xee, sizeof bytes);
        assert_int_equal(sh_store_get_part(store, lid, cases[i].offset, bytes, cases[i].size),
                         expected);
        uint64_t old;
        if (cases[i].size == 8)
            assert_int_equal(sh_store_add(store, lid, cases[i].offset, 8, 0, &old), expected);
    }
    sh_store_destroy(store);
}

/* Whatever writes a chunk tells those who read it at the time that what they saw may be torn. What
 * was refused does not: readers would start again for nothing. */
static void test_writes_are_seen(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB, 64);
    sh_lid lid;
    uint8_t bytes[8] = {1};
    struct sh_bytes eight = sh_bytes_make(bytes, 8), seven = sh_bytes_make(bytes, 7);
    struct sh_store_op op;
    uint64_t old;
    assert_int_equal(sh_store_new_many(store, 8, 1, &lid), SHOAL_OK);
    struct sh_group *group = sh_store_group(store, lid);
    for (unsigned step = 0; step < 14; step++) {
        unsigned index = sh_store_index(lid);
        uint64_t sequence;
        enum shoal_err err = SHOAL_EINTERNAL;
        op = (struct sh_store_op){lid, bytes, step == 9 ? 7 : 8, SHOAL_OK};
        assert_true(sh_group_read_begin(group, index, &sequence));
        switch (step) {
        case 0:
            err = sh_store_put(store, lid, eight);
            break;
        case 1:
            err = sh_store_put(store, lid, seven);
            break;
        case 2:
            err = sh_store_put_part(store, lid, 1, seven);
            break;
        case 3:
            err = sh_store_put_part(store, lid, 1, eight);
            break;
        case 4:
            err = sh_store_add(store, lid, 0, 8, 1, &old);
            break;
        case 5:
            err = sh_store_add(store, lid, 1, 8, 1, &old);
            break;
        case 6:
            err = sh_store_put(store, lid, eight);
            break;
        case 7:
            err = sh_store_put_if(store, lid, eight, eight);
            break;
        case 8:
            err = sh_store_put_multi(store, &op, 1) == 1 ? SHOAL_OK : op.err;
            break;
        case 9:
            err = sh_store_put_multi(store, &op, 1) == 1 ? SHOAL_OK : op.err;
            break;
        case 10:
            err = sh_store_put_if_hash(store, lid, sh_hash64(eight, 0), eight);
            break;
        case 11:
            err = sh_store_put_if_hash(store, lid, 1, eight);
            break;
        case 12:
            err = sh_store_resize(store, lid, 9);
            break;
        default:
            err = sh_store_remove(store, lid);
            break;
        }
        assert_int_equal(sh_group_read_good(group, index, sequence), err != SHOAL_OK);
        assert_int_equal(err != SHOAL_OK,
                         step == 1 || step == 3 || step == 5 || step == 9 || step == 11);
    }
    sh_store_destroy(store);
}

/* A batch that may be had in part gets as much however large the wish is: the table for the IDs it
 * does not get takes no memory. */
static void test_partial(void **state)
{
    (void)state;
    static const size_t wishes[] = {120000, 900000, 3600000};
    size_t first = 0;
    shoal_cid *cids = calloc(wishes[2], sizeof *cids);
    assert_non_null(cids);
    for (size_t w = 0; w < 3; w++) {
        struct sh_store *store = store_make(4 * MIB, 64);
        struct sh_store_wish wish = {.size = 64, .count = wishes[w], .partial = true};
        size_t made = 0;
        assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_OK);
        first = w == 0 ? made : first;
        assert_in_range(made, 4 * MIB / 74, 4 * MIB / 64);
        assert_in_range(made, first - first / 100, first + first / 100);
        assert_int_equal(status_of(store).chunks, made);
        assert_int_equal(status_of(store).payload_bytes, made * 64);
        for (size_t i = 0; i < made; i++)
            assert_int_equal(cids[i].v, i + 1);
        sh_store_destroy(store);
    }
    free(cids);
}

/* In a full store chunks get shorter, whatever their sizes. */
static void test_shorter(void **state)
{
    (void)state;
    enum { ROOM = 100000 };
    static const uint32_t sizes[] = {24000, 23000, 5000, 4000, 1300, 1200, 250, 240, 1};
    sh_lid *lids = calloc(ROOM, sizeof *lids), lid;
    assert_non_null(lids);
    struct sh_store *store = store_make(4 * MIB, 1 << 20);
    assert_int_equal(sh_store_new_many(store, sizes[0], 1, &lid), SHOAL_OK);
    uint8_t bytes[24000];
    memset(bytes, 7, sizeof bytes);
    assert_int_equal(sh_store_put(store, lid, sh_bytes_make(bytes, sizes[0])), SHOAL_OK);
    (void)fill(store, 4096, lids, ROOM);
    for (size_t s = 1; s < sizeof sizes / sizeof sizes[0]; s++) {
        (void)fill(store, 64, lids, ROOM);
        (void)fill(store, 1, lids, ROOM);
        assert_int_equal(sh_store_resize(store, lid, sizes[s]), SHOAL_OK);
        uint8_t got[24000];
        uint32_t size;
        assert_int_equal(sh_store_get(store, lid, got, sizeof got, &size), SHOAL_OK);
        assert_int_equal(size, sizes[s]);
        assert_memory_equal(got, bytes, size);
    }
    status_of(store);
    sh_store_destroy(store);
    free(lids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),      cmocka_unit_test(test_model),
        cmocka_unit_test(test_sizes),       cmocka_unit_test(test_huge),
        cmocka_unit_test(test_too_big),     cmocka_unit_test(test_full),
        cmocka_unit_test(test_ids),         cmocka_unit_test(test_multi),
        cmocka_unit_test(test_read),        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_part_bounds), cmocka_unit_test(test_writes_are_seen),
        cmocka_unit_test(test_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
