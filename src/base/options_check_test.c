#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <string.h>

static struct sh_options options;
static struct sh_options_error error;

static int make(void **state)
{
    (void)state;
    memset(&error, 0, sizeof error);
    return sh_options_init(&options) != SHOAL_OK;
}

static int unmake(void **state)
{
    (void)state;
    sh_options_destroy(&options);
    return 0;
}

static void set(const char *name, const char *value)
{
    assert_int_equal(sh_options_set(&options, name, value, "test", &error), SHOAL_OK);
}

static void test_right_addresses(void **state)
{
    (void)state;
    static const char *const right[] = {"127.0.0.1:0", "127.255.0.3:65535", "localhost:4100",
                                        "[::1]:4100"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        set("listen", right[i]);
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    }
    set("superpeers", "host-1.example:1,[fe80::1]:2,10.0.0.1:65535");
    set("connect", "127.0.0.1:4100");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("connect", "unix:/run/shoal/socket,localhost:4100");
    set("local_socket", "/run/shoal/socket");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
}

static void test_wrong_addresses(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "4100",    ":4100",       "host",    "host:",    "host:65536", "host:-1",
        "host:4k", "a:b:1",       "[::1]",   "[]:1",     "[nope]:1",   "::1:4100",
        "ho st:1", "host:000001", "host:1 ", "[::1]x:1", "host/x:1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set("listen", wrong[i]);
        if (sh_options_check(&options, &error) != SHOAL_EADDRESS)
            fail_msg("%s", wrong[i]);
        assert_non_null(strstr(error.text, "is not an address: write HOST:PORT"));
    }
    set("listen", "localhost:1");
    set("local_socket", "run/shoal");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
    assert_non_null(strstr(error.text, "is not a path from / on"));
    set("local_socket", "");
    set("connect", "unix:/");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
    set("connect", "localhost:1");
    set("transport", "urign");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EPARSE);
    set("transport", "uring");
    set("connect", "localhost:1,localhost:0");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
    assert_string_equal(error.text,
                        "option connect: \"localhost:0\" is not an address to connect to: write "
                        "HOST:PORT or unix:/PATH, for example 127.0.0.1:4100");
    set("connect", "");
    set("superpeers", "nowhere");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
    assert_memory_equal(error.text, "option superpeers: \"nowhere\"", 28);
}

static void test_only_loopback_without_a_secret(void **state)
{
    (void)state;
    static const char *const open[] = {"0.0.0.0:4100", "[::]:4100", "10.0.0.1:4100",
                                       "example.org:4100", "128.0.0.1:1"};
    for (size_t i = 0; i < sizeof open / sizeof open[0]; i++) {
        set("secret_file", "");
        set("listen", open[i]);
        assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
        assert_non_null(strstr(error.text, "need a cluster secret (option secret_file)"));
        set("secret_file", "/etc/shoal/secret");
        set("advertise", "10.0.0.1:0");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    }
}

static void test_a_wildcard_needs_advertise(void **state)
{
    (void)state;
    static const char *const wildcards[] = {"0.0.0.0:4100", "0:4100",     "0.0:4100",
                                            "[::]:4100",    "[::0]:4100", "[::ffff:0.0.0.0]:4100"};
    static const char *const wrong[] = {"0.0.0.0:4100",    "[::]:4100", "*:4100",
                                        "unix:/run/shoal", "host",      "host:70000"};
    set("secret_file", "/etc/shoal/secret");
    for (size_t i = 0; i < sizeof wildcards / sizeof wildcards[0]; i++) {
        set("listen", wildcards[i]);
        set("advertise", "");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
        assert_non_null(strstr(error.text, "set the option advertise"));
        set("advertise", "store-1.example:0");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set("advertise", wrong[i]);
        if (sh_options_check(&options, &error) != SHOAL_EADDRESS)
            fail_msg("%s", wrong[i]);
        assert_memory_equal(error.text, "option advertise: ", 18);
    }
    set("advertise", "10.0.0.1:4100");
    set("listen", "*:4100");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EADDRESS);
    assert_non_null(strstr(error.text, "write 0.0.0.0:PORT or [::]:PORT"));
}

static void test_words_and_times(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *good;
        enum shoal_err err;
        const char *text;
    } wrong[] = {
        {"roles", "peer,super", "superpeer,peer", SHOAL_EPARSE,
         "option roles: \"super\" is not superpeer or peer"},
        {"roles", "superper", "peer", SHOAL_EPARSE,
         "option roles: \"superper\" is not superpeer or peer; did you mean \"superpeer\"?"},
        {"log_format", "yaml", "json", SHOAL_EPARSE,
         "option log_format: \"yaml\" is not text or json"},
        {"log_levels", "info,msg=loud", "info,msg=debug", SHOAL_EPARSE,
         "option log_levels: \"msg=loud\" is not LEVEL or MODULE=LEVEL, where LEVEL is error, "
         "warn, info, debug or trace, for at most 16 modules"},
        {"failure_ns", "999ms", "1s", SHOAL_ERANGE,
         "option failure_ns: 999ms is out of range: it must be at least ten times heartbeat_ns, "
         "which is 100ms"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        set(wrong[i].name, wrong[i].value);
        assert_int_equal(sh_options_check(&options, &error), wrong[i].err);
        assert_string_equal(error.text, wrong[i].text);
        set(wrong[i].name, wrong[i].good);
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    }
}

static void test_domains_are_words(void **state)
{
    (void)state;
    static const char *const names[] = {"machine", "rack", "network_switch"};
    for (size_t i = 0; i < 3; i++) {
        set(names[i], "row2-rack/7:b");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
        set(names[i], "rack 7");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_EINVAL);
        assert_non_null(strstr(error.text, names[i]));
        set(names[i], "r\x80");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_EINVAL);
        set(names[i], "1234567890123456789012345678901");
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
        assert_int_not_equal(
            sh_options_set(&options, names[i], "12345678901234567890123456789012", "test", &error),
            SHOAL_OK);
        set(names[i], "");
    }
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
}

static void test_tls_names_its_files(void **state)
{
    (void)state;
    static const char *const files[] = {"tls_cert_file", "tls_key_file", "tls_ca_file"};
    set("tls", "onn");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EPARSE);
    assert_string_equal(error.text, "option tls: \"onn\" is not off or on; did you mean \"on\"?");
    set("tls", "on");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_int_equal(sh_options_check(&options, &error), SHOAL_ETLS);
        assert_non_null(strstr(error.text, files[i]));
        set(files[i], "/etc/shoal/file.pem");
    }
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
}

static void test_logs(void **state)
{
    (void)state;
    set("durability", "durablee");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EPARSE);
    assert_string_equal(error.text, "option durability: \"durablee\" is not async or replicated or "
                                    "durable; did you mean \"durable\"?");
    set("durability", "durable");
    set("log_selection", "odlest");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EPARSE);
    assert_non_null(strstr(error.text, "option log_selection: \"odlest\" is not cost-benefit or "));
    set("log_selection", "oldest");
    set("zone_bytes", "32MiB");
    set("log_segment_bytes", "262145");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK); /* there is no log */
    set("replicas", "1");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_ERANGE);
    assert_string_equal(error.text,
                        "option zone_bytes: 32MiB is out of range: a zone has one of the largest "
                        "chunks at least, and chunk_bytes_max is 64MiB");
    set("zone_bytes", "64MiB");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_ERANGE);
    assert_string_equal(error.text, "option log_segment_bytes: 262145 is not a multiple of 4096");
    set("log_segment_bytes", "512KiB");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("replicas", "3");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EINVAL);
    assert_string_equal(error.text, "option replicas: 3 copies need replicas_at peers: with self "
                                    "there is one, in data_dir");
    set("replicas_at", "peers");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("replicas", "0");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EINVAL);
    assert_string_equal(error.text, "option replicas_at: peers, but replicas is 0: say how many "
                                    "copies there are to be");
}

static void refused(enum shoal_err expected, const char *says)
{
    assert_int_equal(sh_options_check(&options, &error), expected);
    if (!strstr(error.text, says))
        fail_msg("%s", error.text);
}

static void test_where_a_log_is(void **state)
{
    (void)state;
    static const char *const known[] = {"auto", "direct", "cached"};
    set("replicas", "1");
    set("zone_bytes", "64MiB");
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        set("log_access", known[i]);
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    }
    set("log_device", "/dev/sdx1");
    refused(SHOAL_EINVAL, "option log_device: \"/dev/sdx1\" is used with log_access raw only");
    set("log_access", "raw");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("log_device", "dev/sdx1");
    refused(SHOAL_EINVAL, "is not a path from / on");
    set("log_device", "/dev/sdx1\n");
    refused(SHOAL_EINVAL, "is not a path from / on");
    set("log_device", "");
    refused(SHOAL_EINVAL, "option log_device: is empty");
    set("log_access", "row");
    refused(SHOAL_EPARSE, "did you mean \"raw\"?");
}

static void test_sizes_of_a_log(void **state)
{
    (void)state;
    set("replicas", "1");
    set("zone_bytes", "64MiB");
    set("log_primary_bytes", "1048577");
    refused(SHOAL_ERANGE, "option log_primary_bytes: 1048577 is not a multiple of 4096");
    set("log_primary_bytes", "1MiB");
    set("log_buffer_bytes", "16781312");
    refused(SHOAL_ERANGE, "option log_buffer_bytes: 16388KiB is not a multiple of 65536");
    set("log_buffer_bytes", "33MiB");
    set("log_two_level", "false");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("log_buffer_bytes", "32MiB");
    refused(SHOAL_ERANGE,
            "option log_buffer_bytes: 32MiB is out of range: without log_two_level it "
            "must be at least 33MiB, which is 4 log_segment_bytes and 1MiB");
    set("log_two_level", "true");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
}

/* The node warns of options that have no effect with its roles, or without a log, and starts: nodes may share a file of options. */
static void test_idle(void **state)
{
    (void)state;
    assert_false(sh_options_idle(&options, &error));
    set("durability", "durable");
    assert_true(sh_options_idle(&options, &error));
    assert_non_null(strstr(error.text, "option durability: "));
    assert_non_null(strstr(error.text, "set replicas"));
    set("replicas", "1");
    assert_false(sh_options_idle(&options, &error));
    set("roles", "superpeer");
    assert_true(sh_options_idle(&options, &error));
    assert_string_equal(error.text, "option replicas: 1 has no effect on a node that is no peer: "
                                    "set it for the peers, or add peer to roles");
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
    set("roles", "superpeer,peer");
    assert_false(sh_options_idle(&options, &error));
    set("roles", "superpeer");
    set("replicas", "0");
    assert_false(sh_options_idle(&options, &error));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_right_addresses),
        TEST(test_wrong_addresses),
        TEST(test_only_loopback_without_a_secret),
        TEST(test_a_wildcard_needs_advertise),
        TEST(test_words_and_times),
        TEST(test_domains_are_words),
        TEST(test_tls_names_its_files),
        TEST(test_logs),
        TEST(test_where_a_log_is),
        TEST(test_sizes_of_a_log),
        TEST(test_idle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
