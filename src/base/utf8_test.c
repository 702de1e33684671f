#include "base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <string.h>

static size_t take(const char *text, uint32_t *code_out)
{
    return sh_utf8_take((const uint8_t *)text, strlen(text), code_out);
}

static size_t encode(uint32_t code, uint8_t *out)
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t heads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (uint8_t)(0x80 | (code & 0x3F));
    out[0] = (uint8_t)(heads[length] | code);
    return length;
}

static void test_every_character(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        uint8_t bytes[4];
        size_t length = encode(code, bytes);
        uint32_t got = UINT32_MAX;
        if (code >= 0xD800 && code <= 0xDFFF) {
            assert_int_equal(sh_utf8_take(bytes, length, &got), 0);
            continue;
        }
        assert_int_equal(sh_utf8_take(bytes, length, &got), length);
        assert_int_equal(got, code);
        assert_int_equal(sh_utf8_take(bytes, length - 1, &got), 0);
    }
}

static void test_bad_bytes(void **state)
{
    (void)state;
    uint32_t code = 77;
    assert_int_equal(take("", &code), 0);
    assert_int_equal(take("\x80", &code), 0);             /* a tail alone */
    assert_int_equal(take("\xC0\x80", &code), 0);         /* overlong */
    assert_int_equal(take("\xE0\x80\x80", &code), 0);     /* overlong */
    assert_int_equal(take("\xF0\x80\x80\x80", &code), 0); /* overlong */
    assert_int_equal(take("\xF4\x90\x80\x80", &code), 0); /* over U+10FFFF */
    assert_int_equal(take("\xFF", &code), 0);
    assert_int_equal(take("\xC3(", &code), 0);
    assert_int_equal(code, 77);
}

static void test_hostile(void **state)
{
    (void)state;
    static const uint32_t hostile[] = {0, '\n', 0x1B, 0x7F, 0x85, 0x9B, 0x2028, 0x202E, 0x2067};
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++)
        assert_true(sh_utf8_hostile(hostile[i]));
    static const uint32_t fine[] = {' ', 'a', '~', 0xA0, 0xE9, 0x20AC, 0x1F41F};
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        assert_false(sh_utf8_hostile(fine[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_character),
        cmocka_unit_test(test_bad_bytes),
        cmocka_unit_test(test_hostile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
