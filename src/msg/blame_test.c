/* Who sends garbage is cut off and named in the log, which strangers can't fill. */
#include "msg/msg_edges_test.h"

static char log_path[] = "/tmp/blame_test.XXXXXX";
static char lines[65536];

static int log_begin(void **state)
{
    (void)state;
    memcpy(log_path + sizeof log_path - 7, "XXXXXX", 6);
    int fd = mkstemp(log_path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(sh_log_output_set(log_path, SH_LOG_AS_TEXT), SHOAL_OK);
    return 0;
}

static int log_over(void **state)
{
    assert_int_equal(sh_log_output_set(NULL, SH_LOG_AS_TEXT), SHOAL_OK);
    unlink(log_path);
    return close_all(state);
}

/* Reads what was logged into lines; how often a text is in it. */
static unsigned logged(const char *text)
{
    FILE *log = fopen(log_path, "re");
    assert_non_null(log);
    size_t size = fread(lines, 1, sizeof lines - 1, log);
    fclose(log);
    lines[size] = '\0';
    unsigned count = 0;
    for (const char *at = strstr(lines, text); at; at = strstr(at + 1, text))
        count++;
    return count;
}

static void garbage_in(struct end *end)
{
    sh_link link = sh_memwire_accept(&end->memwire);
    sh_memwire_feed(&end->memwire, link, sh_bytes_text("GET / HTTP/1.1\r\n\r\n"));
    run_all();
    assert_false(end->memwire.links[link].is_there);
}

static void bad_hello_is_named(void **state)
{
    (void)state;
    struct end *b = end_open(2);
    garbage_in(b);
    assert_int_equal(logged("connection refused"), 1);
    assert_non_null(strstr(lines, "address=\"memory, link 0\""));
    assert_non_null(strstr(lines, "SHOAL_EPROTO"));
}

static void garbage_after_the_hello_is_named(void **state)
{
    (void)state;
    static const uint8_t huge[SH_MSG_HEADER_BYTES] = {0xFF, 0xFF, 0xFF, 0xFF, 1, 9};
    struct end *a = end_open(1), *b = end_open(2);
    struct asked asked;
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 5, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 5);
    sh_memwire_feed(&b->memwire, 0, sh_bytes_make(huge, sizeof huge));
    run_all();
    assert_int_equal(b->losses, 1);
    assert_int_equal(b->loss, SHOAL_EPROTO);
    assert_int_equal(logged("garbage received: connection cut off"), 1);
    assert_non_null(strstr(lines, "address=\"memory, link 0\""));
    assert_non_null(strstr(lines, "nid=1 "));
    assert_int_equal(logged("connection refused"), 0);
}

static void strangers_cannot_fill_the_log(void **state)
{
    enum { STRANGERS = 50 };
    (void)state;
    struct end *b = end_open(2);
    for (int i = 0; i < STRANGERS; i++)
        garbage_in(b);
    assert_int_equal(logged("connection refused"), SH_RATE_LINES);
    b->memwire.now_ns += SH_RATE_PERIOD_NS;
    garbage_in(b);
    assert_int_equal(logged("connection refused"), SH_RATE_LINES + 1);
    assert_int_equal(logged("left_out=40"), 1);
    struct sh_msg_stats stats;
    sh_msg_stats_get(b->msg, &stats);
    assert_int_equal(stats.hellos_refused, STRANGERS + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bad_hello_is_named, log_begin, log_over),
        cmocka_unit_test_setup_teardown(garbage_after_the_hello_is_named, log_begin, log_over),
        cmocka_unit_test_setup_teardown(strangers_cannot_fill_the_log, log_begin, log_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
