#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "bench/bench_int.h"

static const char *const cases[] = {"request", "oneway", NULL};
static const char *const baselines[] = {"tcp", NULL};
static const struct sh_bench_entry entry = {
    .name = "msg", .summary = "", .cases = cases, .baselines = baselines};
static const struct sh_bench_entry log_entry = {
    .name = "log", .summary = "", .cases = cases, .baselines = baselines};

static struct sh_bench_flags flags;
static struct sh_bench_words words;
static struct sh_bench_error error;

/* Parses words separated by single blanks, for a benchmark. */
static enum shoal_err parse_for(const struct sh_bench_entry *of, const char *line)
{
    static char copy[256];
    char *argv[32];
    int argc = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    memset(&error, 0, sizeof error);
    return sh_bench_flags_parse(argc, argv, of, &flags, &words, &error);
}

static enum shoal_err parse(const char *line)
{
    return parse_for(&entry, line);
}

static void defaults_are_few(void **state)
{
    (void)state;
    assert_int_equal(parse(""), SHOAL_OK);
    assert_int_equal(flags.runs, SH_BENCH_RUNS);
    assert_int_equal(flags.seed, SH_BENCH_SEED);
    assert_null(flags.cases);
    assert_null(flags.vs);
    assert_int_equal(flags.size, 0);
    assert_false(flags.json || words.list || words.help);
}

static void both_forms_are_read(void **state)
{
    (void)state;
    assert_int_equal(parse("--size=4KiB --threads 3 --seconds 0.25 --case oneway --json "
                           "--placement=one-core --handlers 7 --nodes 30 --vs tcp --seed "
                           "18446744073709551615 --runs 101"),
                     SHOAL_OK);
    assert_int_equal(flags.size, 4096);
    assert_int_equal(flags.threads, 3);
    assert_true(flags.seconds == 0.25);
    assert_string_equal(flags.cases, "oneway");
    assert_string_equal(flags.placement, "one-core");
    assert_string_equal(flags.vs, "tcp");
    assert_true(flags.seed == UINT64_MAX);
    assert_int_equal(flags.runs, 101);
    assert_int_equal(flags.handlers, 7);
    assert_int_equal(flags.nodes, 30);
    assert_true(flags.json);
    assert_int_equal(parse("--list --help"), SHOAL_OK);
    assert_true(words.list && words.help);
}

static void logs_have_flags_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(parse_for(&log_entry, ""), SHOAL_OK);
    assert_null(flags.folder);
    assert_null(flags.access);
    assert_int_equal(flags.zones + flags.levels, 0);
    assert_int_equal(parse_for(&log_entry, "--folder /some/where --zones 2000 --zone-bytes 16MiB"
                                           " --segment-bytes=1MiB --buffer-bytes 32MiB --access "
                                           "cached --levels 1 --batch 10 --size 16KiB"),
                     SHOAL_OK);
    assert_string_equal(flags.folder, "/some/where");
    assert_string_equal(flags.access, "cached");
    assert_int_equal(flags.zones, 2000);
    assert_int_equal(flags.zone_bytes, 16 << 20);
    assert_int_equal(flags.segment_bytes, 1 << 20);
    assert_int_equal(flags.buffer_bytes, 32 << 20);
    assert_int_equal(flags.levels, 1);
    assert_int_equal(flags.batch, 10);
    assert_int_equal(flags.size, 16384);
    assert_int_equal(parse_for(&log_entry, "--levels 3"), SHOAL_ERANGE);
    assert_int_equal(parse_for(&log_entry, "--levels 0"), SHOAL_ERANGE);
    assert_int_equal(parse_for(&log_entry, "--zones 10001"), SHOAL_ERANGE);
    assert_int_equal(parse_for(&log_entry, "--segment-bytes 2GiB"), SHOAL_ERANGE);
    assert_int_equal(parse_for(&log_entry, "--zone-bytes some"), SHOAL_EPARSE);
    assert_int_equal(parse_for(&log_entry, "--access rav"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "did you mean \"raw\""));
    assert_int_equal(parse("--zones 3"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "--zones is nothing to msg; these benchmarks take it: log"));
}

static void unknown_words_name_the_nearest(void **state)
{
    (void)state;
    assert_int_equal(parse("--outstandin 3"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "did you mean --outstanding?"));
    assert_int_equal(parse("--zzzzzzzzzz 3"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "see --help"));
    assert_int_equal(parse("--case requset"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "did you mean \"request\"?"));
    assert_int_equal(parse("--vs redis"), SHOAL_EOPTION);
    assert_int_equal(parse("--placement one_core"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "one-core"));
    assert_int_equal(parse("--percent 3"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "--percent is nothing to msg; these benchmarks take it: "
                                       "ranges"));
    assert_int_equal(parse("--transport carrier"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "there is tcp, epoll, uring, unix, loopback"));
    assert_int_equal(parse("--idle xyzzyx"), SHOAL_EOPTION);
    assert_non_null(strstr(error.text, "there is spin, park, sleep, node"));
    assert_int_equal(parse("size=3"), SHOAL_EOPTION);
    assert_int_equal(parse("--case all"), SHOAL_OK);
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse("--size"), SHOAL_EPARSE);
    assert_non_null(strstr(error.text, "needs a value"));
    assert_int_equal(parse("--size big"), SHOAL_EPARSE);
    assert_int_equal(parse("--json=1"), SHOAL_EPARSE);
    assert_int_equal(parse("--size 0"), SHOAL_ERANGE);
    assert_int_equal(parse("--size 2GiB"), SHOAL_ERANGE);
    assert_int_equal(parse("--threads 129"), SHOAL_ERANGE);
    assert_int_equal(parse("--runs 102"), SHOAL_ERANGE);
    assert_int_equal(parse("--runs 99999999999999999999999"), SHOAL_ERANGE);
    assert_int_equal(parse("--seconds 0"), SHOAL_ERANGE);
    assert_int_equal(parse("--seconds -1"), SHOAL_ERANGE);
    assert_int_equal(parse("--seconds inf"), SHOAL_ERANGE);
    assert_int_equal(parse("--seconds nan"), SHOAL_EPARSE);
    assert_int_equal(parse("--seconds 1s"), SHOAL_EPARSE);
}

static void a_failure_leaves_the_outputs(void **state)
{
    (void)state;
    assert_int_equal(parse("--size 7"), SHOAL_OK);
    assert_int_equal(parse("--size 9 --threads none"), SHOAL_EPARSE);
    assert_int_equal(flags.size, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_few),
        cmocka_unit_test(both_forms_are_read),
        cmocka_unit_test(logs_have_flags_of_their_own),
        cmocka_unit_test(unknown_words_name_the_nearest),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(a_failure_leaves_the_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
