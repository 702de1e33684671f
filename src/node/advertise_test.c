/* Which address others are told, by what is listened on and what is advertised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "node/advertise.h"

static char detail[SH_ADVERTISE_DETAIL_BYTES];

static void assert_chosen(const char *advertise, const char *bound, const char *expected)
{
    char address[SH_MSG_ADDRESS_MAX] = "";
    assert_int_equal(sh_advertise_choose(advertise, bound, address, detail), SHOAL_OK);
    assert_string_equal(address, expected);
}

static void assert_refused(const char *advertise, const char *bound, const char *says)
{
    char address[SH_MSG_ADDRESS_MAX] = "as before";
    assert_int_equal(sh_advertise_choose(advertise, bound, address, detail), SHOAL_EADDRESS);
    assert_string_equal(address, "as before");
    assert_non_null(strstr(detail, says));
}

static void the_bound_address_is_told(void **state)
{
    (void)state;
    assert_chosen("", "127.0.0.1:4100", "127.0.0.1:4100");
    assert_chosen("", "[::1]:4100", "[::1]:4100");
}

static void the_advertised_address_is_told(void **state)
{
    (void)state;
    assert_chosen("10.0.0.5:6300", "0.0.0.0:5300", "10.0.0.5:6300");
    assert_chosen("store-1.example:6300", "[::]:5300", "store-1.example:6300");
    assert_chosen("[2001:db8::1]:6300", "[::]:5300", "[2001:db8::1]:6300");
}

static void port_zero_is_the_bound_port(void **state)
{
    (void)state;
    assert_chosen("10.0.0.5:0", "0.0.0.0:5300", "10.0.0.5:5300");
    assert_chosen("[2001:db8::1]:00", "[::]:40001", "[2001:db8::1]:40001");
}

static void a_wildcard_is_told_to_nobody(void **state)
{
    (void)state;
    assert_refused("", "0.0.0.0:5300", "set the option advertise");
    assert_refused("", "[::]:5300", "set the option advertise");
}

/* 58 bytes of host fit with a port of four digits, not with one of five. */
static void an_address_is_not_cut_off(void **state)
{
    (void)state;
    char advertise[64], expected[64];
    memset(advertise, 'a', 58);
    memcpy(advertise + 58, ":0", 3);
    memcpy(expected, advertise, 58);
    memcpy(expected + 58, ":4100", 6);
    assert_refused(advertise, "0.0.0.0:40001", "more than 63 bytes");
    assert_chosen(advertise, "0.0.0.0:4100", expected);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_address_is_told),
        cmocka_unit_test(the_advertised_address_is_told),
        cmocka_unit_test(port_zero_is_the_bound_port),
        cmocka_unit_test(a_wildcard_is_told_to_nobody),
        cmocka_unit_test(an_address_is_not_cut_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
