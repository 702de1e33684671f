/* Chunks of every size, from none to 1 GiB: what is in them, their parts, and that the memory of a
 * large one goes back to the kernel. Takes 1 GiB of memory for a moment (64 MiB under the thread
 * sanitizer, which takes several times as much as it watches). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/resident.h"
#include "store/store.h"

#define MIB (UINT64_C(1) << 20)
#define LARGEST (UINT32_C(1) << 30)
#ifdef __SANITIZE_THREAD__
#define LARGE (UINT32_C(64) << 20)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LARGE (UINT32_C(64) << 20)
#endif
#endif
#ifndef LARGE
#define LARGE LARGEST
#endif

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store_config config = {.bytes_max = bytes_max, .chunk_bytes_max = LARGEST};
    struct sh_store *store = NULL;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static struct sh_store_status status_of(const struct sh_store *store)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    return status;
}

/* The thread sanitizer's own memory stays resident. */
static void resident_check(uint64_t before)
{
    if (LARGE == LARGEST)
        assert_true(sh_resident_bytes() < before + LARGE / 4);
}

/* --- Many sizes ---------------------------------------------------------------------------- */

static uint8_t pattern(uint32_t seed, uint32_t at)
{
    return (uint8_t)(seed * 31 + at * 7 + (at >> 8) + 1);
}

static void fill(uint8_t *bytes, uint32_t seed, uint32_t size)
{
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = pattern(seed, i);
}

/* Both ends of a chunk can be read and written alone, and nothing lies behind them. */
static void check_ends(struct sh_store *store, shoal_cid cid, uint8_t *bytes, uint32_t size)
{
    uint8_t end[4];
    uint32_t edge = size < sizeof end ? size : (uint32_t)sizeof end;
    struct sh_bytes last = sh_bytes_make(bytes + size - edge, edge);
    assert_int_equal(sh_store_get_part(store, cid, size - edge, end, edge), SHOAL_OK);
    assert_memory_equal(end, last.at, edge);
    assert_int_equal(sh_store_get_part(store, cid, 0, end, edge), SHOAL_OK);
    assert_memory_equal(end, bytes, edge);
    assert_int_equal(sh_store_get_part(store, cid, size, end, 0), SHOAL_OK);
    assert_int_equal(sh_store_get_part(store, cid, size, end, 1), SHOAL_ESIZE);
    assert_int_equal(sh_store_get_part(store, cid, UINT32_MAX, end, 1), SHOAL_ESIZE);
    assert_int_equal(sh_store_get_part(store, cid, UINT32_MAX, end, UINT32_MAX), SHOAL_ESIZE);
    assert_int_equal(sh_store_put_part(store, cid, size - edge, last), SHOAL_OK);
    assert_int_equal(sh_store_put_part(store, cid, size, sh_bytes_make(end, 1)), SHOAL_ESIZE);
    assert_int_equal(sh_store_put_part(store, cid, size, sh_bytes_make(end, 0)), SHOAL_OK);
}

static void check_content(struct sh_store *store, shoal_cid cid, const uint8_t *expected,
                          uint32_t size, uint8_t *room)
{
    uint32_t got = 0;
    assert_int_equal(sh_store_get(store, cid, room, size, &got), SHOAL_OK);
    assert_int_equal(got, size);
    assert_memory_equal(room, expected, size);
    if (size == 0)
        return;
    assert_int_equal(sh_store_get(store, cid, room, size - 1, &got), SHOAL_ESIZE);
    assert_int_equal(got, size);
}

static void test_sizes(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0,     1,     7,     8,     9,     250,     251,
                                     252,   253,   1000,  4088,  4096,  4097,    16376,
                                     16384, 16385, 65527, 65528, 65536, 1000003, 3u << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    struct sh_store *store = store_make(64 * MIB);
    uint8_t *bytes = malloc(4u << 20), *room = malloc(4u << 20);
    shoal_cid cids[COUNT];
    assert_non_null(bytes);
    assert_non_null(room);
    assert_int_equal(sh_store_new(store, sizes, COUNT, cids), SHOAL_OK);
    for (size_t i = 0; i < COUNT; i++) {
        memset(bytes, 0, sizes[i]);
        check_content(store, cids[i], bytes, sizes[i], room);
        fill(bytes, (uint32_t)i, sizes[i]);
        assert_int_equal(sh_store_put(store, cids[i], sh_bytes_make(bytes, sizes[i])), SHOAL_OK);
        check_ends(store, cids[i], bytes, sizes[i]);
        check_content(store, cids[i], bytes, sizes[i], room);
    }
    /* From each size to each other one: the beginning stays, the rest is zeros. */
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t to = 0; to < COUNT; to++) {
            uint32_t common = sizes[i] < sizes[to] ? sizes[i] : sizes[to];
            fill(bytes, (uint32_t)i, sizes[i]);
            assert_int_equal(sh_store_resize(store, cids[i], sizes[to]), SHOAL_OK);
            memset(bytes + common, 0, sizes[to] - common);
            check_content(store, cids[i], bytes, sizes[to], room);
            assert_int_equal(sh_store_resize(store, cids[i], sizes[i]), SHOAL_OK);
            fill(bytes, (uint32_t)i, sizes[i]);
            assert_int_equal(sh_store_put(store, cids[i], sh_bytes_make(bytes, sizes[i])),
                             SHOAL_OK);
        }
    }
    for (size_t i = 0; i < COUNT; i++) {
        fill(bytes, (uint32_t)i, sizes[i]);
        check_content(store, cids[i], bytes, sizes[i], room);
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
    assert_int_equal(status_of(store).payload_bytes, 0);
    free(room);
    free(bytes);
    sh_store_destroy(store);
}

/* --- The largest --------------------------------------------------------------------------- */

static void test_largest(void **state)
{
    (void)state;
    struct sh_store *store = store_make(LARGE + LARGE / 4);
    const char words[] = "first and last";
    const uint32_t words_size = sizeof words, end = LARGE - words_size;
    char back[sizeof words];
    uint64_t old = 1, before = status_of(store).used_bytes, resident = sh_resident_bytes();
    uint32_t size = 0;
    shoal_cid cid, other;
    assert_int_equal(sh_store_new_many(store, LARGE, 1, &cid), SHOAL_OK);
    assert_int_equal(status_of(store).payload_bytes, LARGE);
    assert_true(status_of(store).used_bytes >= LARGE);
    /* Its group has the first block in a huge page. */
    assert_true(status_of(store).used_bytes <= LARGE + before + 3 * MIB);
    assert_int_equal(sh_store_size(store, cid, &size), SHOAL_OK);
    assert_int_equal(size, LARGE);
    /* A second one finds no room, and the first stays what it is. */
    assert_int_equal(sh_store_new_many(store, LARGE, 1, &other), SHOAL_EFULL);
    assert_true(sh_store_shortage_last().needed_bytes >= LARGE);
    assert_true(sh_store_shortage_last().left_bytes < LARGE / 4);
    assert_int_equal(sh_store_resize(store, cid, LARGE - 1), SHOAL_EFULL); /* it is copied */

    struct sh_bytes text = sh_bytes_make(words, words_size);
    assert_int_equal(sh_store_put_part(store, cid, 0, text), SHOAL_OK);
    assert_int_equal(sh_store_put_part(store, cid, end, text), SHOAL_OK);
    assert_int_equal(sh_store_put_part(store, cid, end + 1, text), SHOAL_ESIZE);
    assert_int_equal(sh_store_get_part(store, cid, end, back, words_size), SHOAL_OK);
    assert_string_equal(back, words);
    assert_int_equal(sh_store_get_part(store, cid, end + 1, back, words_size), SHOAL_ESIZE);
    assert_int_equal(sh_store_get_part(store, cid, LARGE / 2, back, words_size), SHOAL_OK);
    for (size_t i = 0; i < sizeof back; i++)
        assert_int_equal(back[i], 0);
    assert_int_equal(sh_store_add(store, cid, LARGE / 2, 8, 5, &old), SHOAL_OK);
    assert_int_equal(old, 0);
    assert_int_equal(sh_store_add(store, cid, LARGE - 7, 8, 5, &old), SHOAL_ESIZE);

    assert_int_equal(sh_store_resize(store, cid, 64), SHOAL_OK);
    assert_int_equal(sh_store_get_part(store, cid, 0, back, words_size), SHOAL_OK);
    assert_string_equal(back, words);
    /* What stays: 32 bytes for each 256 KiB of addresses that were given out, and a huge page. */
    assert_true(status_of(store).used_bytes < before + LARGE / 512 + MIB);
    resident_check(resident);
    /* There is room for another one again. */
    assert_int_equal(sh_store_new_many(store, LARGE, 1, &other), SHOAL_OK);
    assert_int_equal(sh_store_remove(store, other), SHOAL_OK);
    assert_true(status_of(store).used_bytes < before + LARGE / 512 + MIB);
    resident_check(resident);
    assert_int_equal(sh_store_remove(store, cid), SHOAL_OK);
    sh_store_destroy(store);
}

static void test_too_large(void **state)
{
    (void)state;
    struct sh_store *store = store_make(64 * MIB);
    uint8_t byte = 1;
    uint32_t sizes[] = {8, LARGEST + 1}, size = 0;
    shoal_cid cids[2];
    assert_int_equal(sh_store_new_many(store, LARGEST + 1, 1, cids), SHOAL_ETOOBIG);
    assert_int_equal(sh_store_new_many(store, UINT32_MAX, 1, cids), SHOAL_ETOOBIG);
    assert_int_equal(sh_store_new(store, sizes, 2, cids), SHOAL_ETOOBIG);
    assert_int_equal(status_of(store).chunks, 0);
    assert_int_equal(sh_store_new_many(store, 1, 1, cids), SHOAL_OK);
    assert_int_equal(sh_store_resize(store, cids[0], LARGEST + 1), SHOAL_ETOOBIG);
    assert_int_equal(sh_store_resize(store, cids[0], LARGEST), SHOAL_EFULL);
    assert_int_equal(sh_store_put(store, cids[0], sh_bytes_make(&byte, 1)), SHOAL_OK);
    assert_int_equal(sh_store_size(store, cids[0], &size), SHOAL_OK);
    assert_int_equal(size, 1);
    struct sh_store_config config = {.bytes_max = 64 * MIB, .chunk_bytes_max = LARGEST + 1};
    struct sh_store *none = NULL;
    assert_int_equal(sh_store_create(&config, &none), SHOAL_EINVAL);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_largest),
                                       cmocka_unit_test(test_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
