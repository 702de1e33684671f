#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/options.h"

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *unit;
        uint64_t value;
    } right[] = {
        {"0", "", 0},
        {"18446744073709551615", "", UINT64_MAX},
        {"007", "", 7},
        {"4096", "bytes", 4096},
        {"1B", "bytes", 1},
        {"4KiB", "bytes", 4096},
        {"1.5MiB", "bytes", 1572864},
        {"8GiB", "bytes", UINT64_C(8) << 30},
        {"64TiB", "bytes", UINT64_C(64) << 40},
        {"0.1KiB", "bytes", 102},
        {"16777215.999999999999999999999TiB", "bytes", UINT64_MAX},
        {"250", "ns", 250},
        {"10us", "ns", 10000},
        {"1.5s", "ns", 1500000000},
        {"0.000000001s", "ns", 1},
        {"2min", "ns", UINT64_C(120000000000)},
        {"0.9ns", "ns", 0},
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        uint64_t value = 77;
        assert_int_equal(sh_number_parse(right[i].text, right[i].unit, &value), SHOAL_OK);
        if (value != right[i].value)
            fail_msg("%s gave %llu", right[i].text, (unsigned long long)value);
    }
}

static void test_failures_change_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *unit;
        enum shoal_err err;
    } wrong[] = {
        {"", "", SHOAL_EPARSE},
        {"-1", "", SHOAL_EPARSE},
        {"+1", "", SHOAL_EPARSE},
        {" 1", "", SHOAL_EPARSE},
        {"1 ", "", SHOAL_EPARSE},
        {"0x10", "", SHOAL_EPARSE},
        {"1.5", "", SHOAL_EPARSE},
        {"4KiB", "", SHOAL_EPARSE},
        {"4kib", "bytes", SHOAL_EPARSE},
        {"4 KiB", "bytes", SHOAL_EPARSE},
        {"4s", "bytes", SHOAL_EPARSE},
        {"4KiB", "ns", SHOAL_EPARSE},
        {"1.s", "ns", SHOAL_EPARSE},
        {".5s", "ns", SHOAL_EPARSE},
        {"1..5s", "ns", SHOAL_EPARSE},
        {"99999999999999999999x", "", SHOAL_EPARSE},
        {"18446744073709551616", "", SHOAL_ERANGE},
        {"99999999999999999999", "", SHOAL_ERANGE},
        {"16777216TiB", "bytes", SHOAL_ERANGE},
        {"18446744073709551615.5KiB", "bytes", SHOAL_ERANGE},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint64_t value = 77;
        if (sh_number_parse(wrong[i].text, wrong[i].unit, &value) != wrong[i].err)
            fail_msg("%s", wrong[i].text);
        assert_int_equal(value, 77);
    }
}

static void test_format_and_back(void **state)
{
    (void)state;
    char text[SH_NUMBER_TEXT_MAX];
    assert_string_equal(sh_number_format(0, "bytes", text), "0");
    assert_string_equal(sh_number_format(1000, "bytes", text), "1000");
    assert_string_equal(sh_number_format(67108864, "bytes", text), "64MiB");
    assert_string_equal(sh_number_format(1536, "bytes", text), "1536");
    assert_string_equal(sh_number_format(1500000000, "ns", text), "1500ms");
    assert_string_equal(sh_number_format(1, "ns", text), "1ns");
    assert_string_equal(sh_number_format(1024, "", text), "1024");
    static const char *const units[] = {"", "bytes", "ns"};
    unsigned seed = 99;
    printf("seed %u\n", seed);
    for (int i = 0; i < 30000; i++) {
        uint64_t value = ((uint64_t)rand_r(&seed) << 33) ^ (uint64_t)rand_r(&seed);
        value = value >> (rand_r(&seed) % 64) << (rand_r(&seed) % 64);
        uint64_t back = ~value;
        const char *unit = units[i % 3];
        assert_int_equal(sh_number_parse(sh_number_format(value, unit, text), unit, &back),
                         SHOAL_OK);
        assert_true(back == value);
    }
    assert_null(sh_number_suffixes(""));
    assert_non_null(strstr(sh_number_suffixes("bytes"), "TiB"));
    assert_non_null(strstr(sh_number_suffixes("ns"), "min"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_failures_change_nothing),
        cmocka_unit_test(test_format_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
