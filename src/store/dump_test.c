/* Dumps come back as they were; damaged files are refused, with where; a failing disk spoils
 * nothing. */
#include <pthread.h>
#include <stdatomic.h>

#include "store/dump_test.h"

struct told {
    unsigned calls;
    uint64_t done;
};

static void tell(void *arg, uint64_t done_bytes, uint64_t all_bytes)
{
    struct told *told = arg;
    assert_true(done_bytes >= told->done && done_bytes <= all_bytes);
    told->done = done_bytes;
    told->calls++;
}

static void test_round_trip(void **state)
{
    (void)state;
    static const uint32_t edges[] = {0,      1,      8,       247,   250,        252,    253,
                                     256,    1782,   1783,    16384, 32768,      100000, 262127,
                                     262128, 262129, 1048560, MIB,   3 * MIB + 5};
    rng_state = test_seed(20261121);
    struct sh_store *store = store_make(64 * MIB);
    struct sh_store *other = store_make(64 * MIB);
    const uint64_t own = UINT64_C(7) << 48, foreign = UINT64_C(9) << 48;
    for (uint64_t i = 0; i < 3000; i++)
        if (rng() % 4)
            chunk_add(store, own + 1 + i, (uint32_t)(rng() % 300));
    for (uint64_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        chunk_add(store, own + 5000 + i, edges[i]);
        chunk_add(store, foreign + i * 1000, edges[i]);
    }
    struct sh_dump_sums dumped, loaded;
    struct told told = {0, 0};
    struct sh_load_fault fault;
    assert_int_equal(sh_store_dump(store, disk, "a", tell, &told, &dumped), SHOAL_OK);
    assert_true(told.calls > 0 && told.done == dumped.payload_bytes);
    assert_int_equal(dumped.chunks, status_of(store).chunks);
    assert_int_equal(dumped.payload_bytes, status_of(store).payload_bytes);
    told = (struct told){0, 0};
    assert_int_equal(sh_store_load(other, disk, "a", tell, &told, &loaded, &fault), SHOAL_OK);
    assert_true(told.calls > 1 && told.done == 2 * dumped.file_bytes);
    assert_memory_equal(&dumped, &loaded, sizeof dumped);
    same(store, other);

    /* Again into the same store: its IDs are taken. */
    assert_int_equal(sh_store_load(other, disk, "a", NULL, NULL, &loaded, &fault), SHOAL_EEXIST);
    assert_int_equal(loaded.chunks, 0);
    assert_true(fault.cid.v > own && fault.offset == SH_DUMP_HEADER_BYTES);
    same(store, other);

    /* A store that is too small says so, and stays as it was. */
    struct sh_store *little = store_make(2 * MIB);
    assert_int_equal(sh_store_load(little, disk, "a", NULL, NULL, &loaded, &fault), SHOAL_EFULL);
    assert_int_equal(loaded.chunks, 0);
    assert_int_equal(status_of(little).chunks, 0);
    assert_true(fault.what[0]);
    assert_int_equal(sh_store_load(little, disk, "none", NULL, NULL, &loaded, &fault),
                     SHOAL_ENONAME);
    sh_store_destroy(little);
    sh_store_destroy(other);
    sh_store_destroy(store);
}

static void test_empty(void **state)
{
    (void)state;
    struct sh_store *store = store_make(4 * MIB);
    struct sh_dump_sums sums;
    assert_int_equal(sh_store_dump(store, disk, "", NULL, NULL, &sums), SHOAL_EINVAL);
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    assert_int_equal(sums.chunks, 0);
    assert_int_equal(sh_store_load(store, disk, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
    assert_int_equal(status_of(store).chunks, 0);
    sh_store_destroy(store);
}

/* A dump in memory, to be damaged. */
static enum shoal_err memory_read(void *arg, uint64_t offset, void *into, size_t size,
                                  size_t *got_out)
{
    memcpy(into, (const uint8_t *)arg + offset, size);
    *got_out = size;
    return SHOAL_OK;
}

static uint8_t *file_read(const char *name, size_t *size_out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t *bytes = malloc(16 * MIB);
    assert_non_null(bytes);
    *size_out = fread(bytes, 1, 16 * MIB, file);
    fclose(file);
    return bytes;
}

static void refused(struct sh_store *store, const struct sh_load_source *source)
{
    struct sh_dump_sums sums;
    struct sh_load_fault fault = {0};
    enum shoal_err err = sh_store_load_from(store, source, NULL, NULL, &sums, &fault);
    assert_true(err == SHOAL_ECORRUPT || err == SHOAL_ETRUNCATED || err == SHOAL_EVERSION);
    assert_int_equal(sums.chunks, 0);
    assert_true(fault.what && fault.what[0] && fault.offset <= source->bytes);
    assert_int_equal(status_of(store).chunks, 0);
}

static void test_damaged(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB);
    for (uint64_t i = 1; i <= 20; i++)
        chunk_add(store, (UINT64_C(7) << 48) + i * (1 + i % 2 * 2), (uint32_t)(i * 5));
    struct sh_dump_sums sums;
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    sh_store_destroy(store);
    store = store_make(4 * MIB);
    size_t size;
    uint8_t *bytes = file_read("a", &size);
    assert_int_equal(size, sums.file_bytes);
    struct sh_load_source source = {memory_read, bytes, size};
    for (size_t i = 0; i < size; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1u << bit);
            refused(store, &source);
            bytes[i] ^= (uint8_t)(1u << bit);
        }
    }
    for (source.bytes = 0; source.bytes < size; source.bytes++)
        refused(store, &source);
    bytes[size] = 0;
    source.bytes = size + 1;
    refused(store, &source);
    source.bytes = size;
    assert_int_equal(sh_store_load_from(store, &source, NULL, NULL, &sums, NULL), SHOAL_OK);
    assert_int_equal(status_of(store).chunks, 20);
    free(bytes);
    sh_store_destroy(store);
}

/* A disk whose operations fail from a given one on. */
struct failing {
    struct sh_disk base;
    unsigned left;
};

static enum shoal_err failing_open(struct sh_disk *on, const char *name, bool create, int *file_out)
{
    (void)on;
    return sh_disk_open(disk, name, create, file_out);
}

static enum shoal_err failing_claim(struct sh_disk *on, const char *name, int *file_out)
{
    (void)on;
    return disk->ops->claim(disk, name, file_out);
}

static void failing_close(struct sh_disk *on, int file)
{
    (void)on;
    disk->ops->close(disk, file);
}

static enum shoal_err failing_size(struct sh_disk *on, int file, uint64_t *bytes_out)
{
    (void)on;
    return disk->ops->size(disk, file, bytes_out);
}

static enum shoal_err failing_rename(struct sh_disk *on, const char *from, const char *to)
{
    struct failing *failing = (struct failing *)on;
    if (failing->left == 0)
        return SHOAL_EIO;
    failing->left--;
    return disk->ops->rename(disk, from, to);
}

static enum shoal_err failing_remove(struct sh_disk *on, const char *name)
{
    (void)on;
    return disk->ops->remove(disk, name);
}

static enum shoal_err failing_submit(struct sh_disk *on, struct sh_disk_op *op)
{
    struct failing *failing = (struct failing *)on;
    if (failing->left == 0)
        return SHOAL_ENOSPC;
    failing->left--;
    return sh_disk_submit(disk, op);
}

static unsigned failing_poll(struct sh_disk *on, bool wait)
{
    (void)on;
    return sh_disk_poll(disk, wait);
}

static void test_failing_disk(void **state)
{
    (void)state;
    static const struct sh_disk_ops ops = {.open = failing_open,
                                           .claim = failing_claim,
                                           .close = failing_close,
                                           .size = failing_size,
                                           .rename = failing_rename,
                                           .remove = failing_remove,
                                           .submit = failing_submit,
                                           .poll = failing_poll};
    struct sh_store *store = store_make(32 * MIB);
    struct sh_store *other = store_make(32 * MIB);
    struct sh_dump_sums sums;
    chunk_add(store, (UINT64_C(7) << 48) + 1, 100);
    assert_int_equal(sh_store_dump(store, disk, "b", NULL, NULL, &sums), SHOAL_OK);
    chunk_add(store, (UINT64_C(7) << 48) + 2, 3u << 20);
    /* header, sections, sync and rename: the first dump stays until all of it is done */
    unsigned steps = 0;
    enum shoal_err err = SHOAL_EIO;
    for (; err; steps++) {
        struct failing failing = {{&ops}, steps};
        err = sh_store_dump(store, &failing.base, "b", NULL, NULL, &sums);
        struct sh_store *whole = store_make(32 * MIB);
        struct sh_dump_sums loaded;
        assert_int_equal(sh_store_load(whole, disk, "b", NULL, NULL, &loaded, NULL), SHOAL_OK);
        /* Two: the new file, which has the name before its folder is synced. */
        assert_in_range(loaded.chunks, err ? 1 : 2, 2);
        sh_store_destroy(whole);
        assert_true(steps < 40);
    }
    assert_int_equal(sh_store_load(other, disk, "b", NULL, NULL, &sums, NULL), SHOAL_OK);
    same(store, other);
    sh_store_destroy(other);
    sh_store_destroy(store);
}

struct racing {
    struct sh_store *store;
    _Atomic bool stop;
    unsigned wrong;
};

/* Fills chunks with one byte each time, and creates and removes others. */
static void *race(void *arg)
{
    struct racing *racing = arg;
    uint8_t bytes[3000];
    for (unsigned round = 0; !atomic_load(&racing->stop); round++) {
        shoal_cid cid = {(UINT64_C(7) << 48) + 1 + round % 64};
        uint32_t size = (uint32_t)(round % 64 * 40);
        shoal_cid brief;
        memset(bytes, (int)round, size);
        if (sh_store_put(racing->store, cid, sh_bytes_make(bytes, size)) != SHOAL_OK)
            racing->wrong++;
        if (sh_store_new_many(racing->store, round % 100, 1, &brief) != SHOAL_OK ||
            sh_store_remove(racing->store, brief) != SHOAL_OK)
            racing->wrong++;
    }
    return NULL;
}

static void test_beside_writers(void **state)
{
    (void)state;
    struct racing racing = {.store = store_make(16 * MIB)};
    uint32_t sizes[64];
    shoal_cid cids[64];
    pthread_t thread;
    for (uint32_t i = 0; i < 64; i++)
        sizes[i] = i * 40;
    assert_int_equal(sh_store_new(racing.store, sizes, 64, cids), SHOAL_OK);
    assert_int_equal(pthread_create(&thread, NULL, race, &racing), 0);
    for (unsigned round = 0; round < 20; round++) {
        struct sh_dump_sums sums;
        struct sh_store *other = store_make(16 * MIB);
        assert_int_equal(sh_store_dump(racing.store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
        assert_int_equal(sh_store_load(other, disk, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t size;
            uint8_t *bytes = chunk_bytes(other, cids[i].v, &size);
            assert_int_equal(size, sizes[i]);
            for (uint32_t b = 1; b < size; b++)
                assert_int_equal(bytes[b], bytes[0]);
            free(bytes);
        }
        sh_store_destroy(other);
    }
    atomic_store(&racing.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(racing.wrong, 0);
    sh_store_destroy(racing.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                       cmocka_unit_test(test_empty), cmocka_unit_test(test_damaged),
                                       cmocka_unit_test(test_failing_disk),
                                       cmocka_unit_test(test_beside_writers)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
