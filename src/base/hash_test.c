#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

/* RFC 3720, appendix B.4, and the usual check value. */
static void test_crc32c_known_values(void **state)
{
    (void)state;
    uint8_t block[32];
    assert_int_equal(sh_crc32c(0, sh_bytes_text("123456789")), 0xE3069283);
    assert_int_equal(sh_crc32c(0, sh_bytes_make(NULL, 0)), 0);
    memset(block, 0, sizeof block);
    assert_int_equal(sh_crc32c(0, sh_bytes_make(block, sizeof block)), 0x8A9136AA);
    memset(block, 0xFF, sizeof block);
    assert_int_equal(sh_crc32c(0, sh_bytes_make(block, sizeof block)), 0x62A8AB43);
    for (uint8_t i = 0; i < 32; i++)
        block[i] = i;
    assert_int_equal(sh_crc32c(0, sh_bytes_make(block, sizeof block)), 0x46DD794E);
}

static uint32_t crc32c_bit_by_bit(uint32_t start, const uint8_t *at, size_t size)
{
    uint32_t crc = ~start;
    for (size_t i = 0; i < size; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78 & (0 - (crc & 1)));
    }
    return ~crc;
}

static void test_crc32c_chains_and_agrees_with_the_slow_way(void **state)
{
    (void)state;
    unsigned seed = 7;
    printf("seed %u\n", seed);
    uint8_t bytes[600];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rand_r(&seed);
    for (int i = 0; i < 300; i++) {
        size_t from = (size_t)rand_r(&seed) % 64;
        size_t size = (size_t)rand_r(&seed) % (sizeof bytes - from);
        size_t cut = size ? (size_t)rand_r(&seed) % size : 0;
        uint32_t whole = sh_crc32c(0, sh_bytes_make(bytes + from, size));
        assert_int_equal(whole, crc32c_bit_by_bit(0, bytes + from, size));
        uint32_t part = sh_crc32c(0, sh_bytes_make(bytes + from, cut));
        assert_int_equal(whole, sh_crc32c(part, sh_bytes_make(bytes + from + cut, size - cut)));
    }
}

static void test_hash64_known_values(void **state)
{
    (void)state;
    assert_true(sh_hash64(sh_bytes_make(NULL, 0), 0) == UINT64_C(0x2D06800538D394C2));
    assert_true(sh_hash64(sh_bytes_text("abc"), 0) == UINT64_C(0x78AF5F94892F3950));
    assert_true(sh_hash64(sh_bytes_text("abc"), 1) != sh_hash64(sh_bytes_text("abc"), 0));
}

static void test_mix64_is_splitmix64(void **state)
{
    (void)state;
    /* The first output of splitmix64 seeded with 0 mixes its increment. */
    assert_true(sh_mix64(UINT64_C(0x9E3779B97F4A7C15)) == UINT64_C(0xE220A8397B1DCDAF));
    assert_true(sh_mix64(0) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c_known_values),
        cmocka_unit_test(test_crc32c_chains_and_agrees_with_the_slow_way),
        cmocka_unit_test(test_hash64_known_values),
        cmocka_unit_test(test_mix64_is_splitmix64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
