#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cmd/text_int.h"

static void cids_print_and_parse(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {
        {"64:17", (UINT64_C(64) << 48) | 17},
        {"1:0", UINT64_C(1) << 48},
        {"65535:281474976710655", UINT64_MAX},
        {"0040000000000011", (UINT64_C(64) << 48) | 17},
        {"0x0040000000000011", (UINT64_C(64) << 48) | 17},
        {"FFFFffffFFFFffff", UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        shoal_cid cid, again;
        char text[SH_CID_TEXT_MAX];
        assert_int_equal(sh_cid_parse(good[i].text, &cid), SHOAL_OK);
        assert_int_equal(cid.v, good[i].value);
        assert_int_equal(sh_cid_parse(sh_cid_format(cid, text), &again), SHOAL_OK);
        assert_int_equal(again.v, cid.v);
    }
}

static void wrong_cids_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "elephant",
                                      "64",
                                      ":17",
                                      "64:",
                                      "64: 17",
                                      " 64:1",
                                      "64:1 ",
                                      "+64:1",
                                      "64:-1",
                                      "65536:1",
                                      "0:1",
                                      "1:281474976710656",
                                      "0x40",
                                      "004000000000001",
                                      "00400000000000111",
                                      "004000000000001g",
                                      "0000000000000011",
                                      "1:1:1",
                                      "1:99999999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        shoal_cid cid = {77};
        assert_int_equal(sh_cid_parse(bad[i], &cid), SHOAL_EPARSE);
        assert_int_equal(cid.v, 77);
    }
}

static void nids_parse(void **state)
{
    (void)state;
    shoal_nid nid;
    assert_int_equal(sh_nid_parse("65535", &nid), SHOAL_OK);
    assert_int_equal(nid.v, 65535);
    static const char *const bad[] = {"", "0", "65536", "-1", "1 ", "one"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sh_nid_parse(bad[i], &nid), SHOAL_EPARSE);
}

static void hex_parses(void **state)
{
    (void)state;
    uint8_t *bytes;
    size_t size;
    assert_int_equal(sh_hex_parse("00fF 1\t", &bytes, &size, &size), SHOAL_EPARSE);
    assert_int_equal(size, 6); /* the place of the half pair's missing digit */
    assert_int_equal(sh_hex_parse("0g", &bytes, &size, NULL), SHOAL_EPARSE);
    assert_int_equal(sh_hex_parse("00 fF\n20", &bytes, &size, NULL), SHOAL_OK);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "\x00\xff\x20", 3);
    free(bytes);
    assert_int_equal(sh_hex_parse("", &bytes, &size, NULL), SHOAL_OK);
    assert_int_equal(size, 0);
    assert_non_null(bytes);
    free(bytes);
}

/* Runs a printer into memory and compares what it printed. */
static void prints(void (*print)(struct sh_bytes, FILE *), const char *bytes, size_t size,
                   const char *expected)
{
    char *text = NULL;
    size_t text_size = 0;
    FILE *out = open_memstream(&text, &text_size);
    assert_non_null(out);
    print(sh_bytes_make(bytes, size), out);
    fclose(out);
    assert_string_equal(text, expected);
    free(text);
}

static void contents_print(void **state)
{
    (void)state;
    prints(sh_hex_print, "\x00\x7f\xff", 3, "007fff");
    prints(sh_dump_print, "", 0, "");
    prints(sh_dump_print, "hello\n\xff", 7,
           "00000000  68 65 6c 6c 6f 0a ff                              |hello..|\n");
    prints(sh_text_print, "a\tb\n\x1b[31m\xc3\xa9\xff", 12, "a\tb\n\\x1b[31m\xc3\xa9\\xff");
    assert_true(sh_text_is_clean(sh_bytes_text("gr\xc3\xbc\xc3\x9f\n")));
    assert_false(sh_text_is_clean(sh_bytes_make("a\0b", 3)));
    assert_false(sh_text_is_clean(sh_bytes_text("\x1b")));
}

static void sizes_format(void **state)
{
    (void)state;
    char text[SH_SIZE_TEXT_MAX];
    assert_string_equal(sh_size_format(0, text), "0 B");
    assert_string_equal(sh_size_format(1023, text), "1023 B");
    assert_string_equal(sh_size_format(1024, text), "1.0 KiB");
    assert_string_equal(sh_size_format(1536, text), "1.5 KiB");
    assert_string_equal(sh_size_format((UINT64_C(1) << 20) - 1, text), "1.0 MiB");
    assert_string_equal(sh_size_format(UINT64_MAX, text), "16.0 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cids_print_and_parse), cmocka_unit_test(wrong_cids_are_refused),
        cmocka_unit_test(nids_parse),           cmocka_unit_test(hex_parses),
        cmocka_unit_test(contents_print),       cmocka_unit_test(sizes_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
