/* The vertex chunk: round trips, sizes, and bytes that are no vertex. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "graph/vertex.h"

static void round_trip(uint32_t out_count, uint32_t in_count, bool typed, const char *text)
{
    struct sh_bytes record = sh_bytes_text(text);
    size_t size = (size_t)sh_vertex_bytes(out_count, in_count, typed, record.size);
    uint8_t *chunk = malloc(size);
    assert_non_null(chunk);
    struct sh_vertex_room room =
        sh_vertex_encode(chunk, size, 0xfeed, UINT64_MAX - 5, out_count, in_count, typed, record);
    for (uint32_t i = 0; i < out_count; i++) {
        sh_store64(room.out + (size_t)i * 8, (uint64_t)i << 40);
        if (typed)
            sh_store16(room.types + (size_t)i * 2, (uint16_t)(i * 3));
    }
    for (uint32_t i = 0; i < in_count; i++)
        sh_store64(room.in + (size_t)i * 8, (uint64_t)i + 7);
    struct sh_vertex vertex;
    assert_int_equal(sh_vertex_decode(sh_bytes_make(chunk, size), &vertex), SHOAL_OK);
    assert_int_equal(vertex.name, UINT64_MAX - 5);
    assert_int_equal(vertex.seal, 0xfeed);
    assert_int_equal(vertex.out_count, out_count);
    assert_int_equal(vertex.in_count, in_count);
    assert_int_equal(vertex.typed, typed);
    for (uint32_t i = 0; i < out_count; i++) {
        assert_int_equal(sh_vertex_out(&vertex, i).v, (uint64_t)i << 40);
        assert_int_equal(sh_vertex_type(&vertex, i), typed ? (uint16_t)(i * 3) : 0);
    }
    for (uint32_t i = 0; i < in_count; i++)
        assert_int_equal(sh_vertex_in(&vertex, i).v, (uint64_t)i + 7);
    assert_int_equal(vertex.record.size, record.size);
    assert_memory_equal(vertex.record.at, record.at, record.size);
    /* Every shorter prefix either lacks neighbours or has a shorter record. */
    for (size_t cut = 0; cut < size; cut++) {
        enum shoal_err expected = cut < size - record.size ? SHOAL_ECORRUPT : SHOAL_OK;
        assert_int_equal(sh_vertex_decode(sh_bytes_make(chunk, cut), &vertex), expected);
    }
    free(chunk);
}

static void round_trips(void **state)
{
    (void)state;
    round_trip(0, 0, false, "");
    round_trip(0, 0, true, "record\twith tab");
    round_trip(3, 2, true, "x");
    round_trip(255, 255, false, "");
    round_trip(256, 0, true, "wide");
    round_trip(0, 300, false, "wide too");
    assert_int_equal(sh_vertex_bytes(0, 0, false, 0), 15);
    assert_int_equal(sh_vertex_bytes(1, 1, true, 0), 15 + 18);
    assert_int_equal(sh_vertex_bytes(256, 0, false, 0), 21 + 256 * 8);
}

static void hostile_bytes(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20260101);
    struct sh_vertex vertex;
    uint64_t sum = 0;
    for (unsigned round = 0; round < 200000; round++) {
        uint8_t chunk[48];
        for (size_t i = 0; i < sizeof chunk; i += 8)
            sh_store64(chunk + i, sh_mix64(seed + round * 8 + i));
        if (round & 1) /* half of them with a plausible start */
            chunk[0] = (uint8_t)(2 | (chunk[0] & 0x30));
        if (round & 2) { /* and half with so few edges that they may fit */
            chunk[5] %= 4;
            chunk[6] %= 4;
        }
        size_t size = chunk[47] % 48;
        if (sh_vertex_decode(sh_bytes_make(chunk, size), &vertex))
            continue;
        assert_true(vertex.record.at + vertex.record.size == chunk + size);
        for (uint32_t i = 0; i < vertex.out_count; i++)
            sum += sh_vertex_out(&vertex, i).v + sh_vertex_type(&vertex, i);
        for (uint32_t i = 0; i < vertex.in_count; i++)
            sum += sh_vertex_in(&vertex, i).v;
    }
    assert_true(sum != 0);
    /* The largest counts there are, in a chunk that is far too small. */
    uint8_t huge[21] = {2 | 0x20, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    assert_int_equal(sh_vertex_decode(sh_bytes_make(huge, sizeof huge), &vertex), SHOAL_ECORRUPT);
    uint8_t reserved[15] = {2 | 0x40};
    assert_int_equal(sh_vertex_decode(sh_bytes_make(reserved, 15), &vertex), SHOAL_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(hostile_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
