/* What the workers of campaigns write is recognised when it is read, and anything else is not (campaign/content.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/campaign/content.h"

#define KEY UINT64_C(0x300000007)

static uint8_t bytes[CONTENT_BYTES_MAX + 1], room[CONTENT_BYTES_MAX];

static void is_read(uint32_t size, uint64_t version, uint32_t length)
{
    uint64_t key = 0, found = 0;
    uint32_t found_length = 0;
    assert_true(content_read(bytes, size, room, &key, &found, &found_length));
    assert_int_equal(key, version ? KEY : 0);
    assert_int_equal(found, version);
    assert_int_equal(found_length, length);
}

/* Where the zeros at the end begin: a value may end with zeros. */
static uint32_t length_of(uint32_t size)
{
    while (size && !bytes[size - 1])
        size--;
    return size;
}

static bool is_torn(uint32_t size)
{
    uint64_t key, version;
    uint32_t length;
    return !content_read(bytes, size, room, &key, &version, &length);
}

static void values_are_read(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {CONTENT_BYTES_MIN, 65, 4099, CONTENT_BYTES_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        memset(bytes, 0, sizeof bytes);
        is_read(sizes[i], 0, 0);
        content_make(bytes, KEY, 5, sizes[i], sizes[i]);
        is_read(sizes[i], 5, length_of(sizes[i]));
    }
}

/* A chunk that was made smaller has the beginning of its value, and zeros where it was made larger again. */
static void resized_values_are_read(void **state)
{
    (void)state;
    memset(bytes, 0, sizeof bytes);
    content_make(bytes, KEY, 5, 4096, 200);
    uint32_t length = length_of(200);
    is_read(200, 5, length);
    is_read(1000, 5, length);
    is_read(9000, 5, length);
}

static void others_are_torn(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 4096; at++) {
        memset(bytes, 0, sizeof bytes);
        content_make(bytes, KEY, 5, 4096, 4096);
        bytes[at] ^= 0x10;
        assert_true(is_torn(4096));
    }
    /* The end of another version, or of another chunk. */
    for (uint32_t at = sizeof(struct content_head); at < 4096; at += 512) {
        content_make(bytes, KEY, 5, 4096, 4096);
        content_make(room, KEY, 6, 4096, 4096);
        memcpy(bytes + at, room + at, 4096 - at);
        assert_true(is_torn(4096));
        content_make(bytes, KEY, 5, 4096, 4096);
        content_make(room, KEY + 1, 5, 4096, 4096);
        memcpy(bytes + at, room + at, 4096 - at);
        assert_true(is_torn(4096));
    }
    /* Of a value that was smaller there is nothing behind its end. */
    memset(bytes, 0, sizeof bytes);
    content_make(bytes, KEY, 5, 1000, 1000);
    bytes[1500] = 1;
    assert_true(is_torn(2000));
    assert_true(is_torn(CONTENT_BYTES_MIN - 1));
    assert_true(is_torn(CONTENT_BYTES_MAX + 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(resized_values_are_read),
        cmocka_unit_test(others_are_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
