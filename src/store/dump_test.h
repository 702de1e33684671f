/* What the tests of dumps share: a folder with a disk on it, and stores whose chunks' bytes follow
 * from their IDs. */
#ifndef SH_STORE_DUMP_TEST_H
#define SH_STORE_DUMP_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random_test.h"
#include "store/dump_int.h"

#define SHARED __attribute__((unused)) static
#define MIB (UINT64_C(1) << 20)

SHARED char folder[64];
SHARED struct sh_disk *disk;

SHARED int setup(void **state)
{
    (void)state;
    /* Thousands of refusals are not worth a line each. */
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK)
        return 1;
    strcpy(folder, "/tmp/shoal-dump-XXXXXX");
    return !mkdtemp(folder) || sh_real_disk_create(folder, false, &disk) != SHOAL_OK;
}

SHARED int teardown(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "a.tmp", "b.tmp"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)disk->ops->remove(disk, names[i]);
    disk->ops->destroy(disk);
    return rmdir(folder);
}

SHARED uint64_t rng_state;

SHARED uint64_t rng(void)
{
    return test_draw(&rng_state);
}

SHARED struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 16u << 20, .nid = {7}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

SHARED struct sh_store_status status_of(struct sh_store *store)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    return status;
}

/* A chunk whose bytes follow from its ID and size. */
SHARED void chunk_add(struct sh_store *store, uint64_t cid, uint32_t size)
{
    uint8_t *bytes = malloc(size + 1);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(cid * 31 + i * 7 + (i >> 8));
    assert_int_equal(sh_store_adopt(store, (shoal_cid){cid}, sh_bytes_make(bytes, size)), SHOAL_OK);
    free(bytes);
}

SHARED uint8_t *chunk_bytes(struct sh_store *store, uint64_t cid, uint32_t *size_out)
{
    assert_int_equal(sh_store_size(store, (shoal_cid){cid}, size_out), SHOAL_OK);
    uint8_t *bytes = malloc(*size_out + 1);
    assert_non_null(bytes);
    assert_int_equal(sh_store_get(store, (shoal_cid){cid}, bytes, *size_out, size_out), SHOAL_OK);
    return bytes;
}

SHARED void same(struct sh_store *a, struct sh_store *b)
{
    assert_int_equal(status_of(a).chunks, status_of(b).chunks);
    assert_int_equal(status_of(a).payload_bytes, status_of(b).payload_bytes);
    shoal_cid from = {0}, first, last, other_first, other_last;
    while (sh_store_range(a, from, &first, &last)) {
        assert_true(sh_store_range(b, from, &other_first, &other_last));
        assert_int_equal(first.v, other_first.v);
        assert_int_equal(last.v, other_last.v);
        for (uint64_t cid = first.v; cid <= last.v; cid++) {
            uint32_t size, other_size;
            uint8_t *bytes = chunk_bytes(a, cid, &size);
            uint8_t *other = chunk_bytes(b, cid, &other_size);
            assert_int_equal(size, other_size);
            if (size)
                assert_memory_equal(bytes, other, size);
            free(bytes);
            free(other);
        }
        from.v = last.v + 1;
    }
    assert_false(sh_store_range(b, from, &first, &last));
}

#endif
