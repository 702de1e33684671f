/* Every benchmark in miniature, through the same door as `shoal bench`, so that none can rot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/json.h"
#include "bench/bench.h"

#define WORDS_MAX 32

/* Runs `shoal bench` with words separated by blanks; gives its status and output. */
static int bench(const char *line, char **text_out)
{
    char copy[256];
    char *argv[WORDS_MAX];
    int argc = 0;
    size_t size = 0;
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word && argc < WORDS_MAX; word = strtok(NULL, " "))
        argv[argc++] = word;
    FILE *out = open_memstream(text_out, &size);
    assert_non_null(out);
    int status = sh_bench_main(argc, argv, out);
    fclose(out);
    return status;
}

/* A bar's figure is one, and it is met or not. */
static void bar_check(const struct sh_json *row)
{
    double figure = sh_json_f64(sh_json_get(row, "figure"));
    double limit = sh_json_f64(sh_json_get(row, "limit"));
    bool at_least = sh_json_bool(sh_json_get(row, "at_least"));
    bool met = sh_json_bool(sh_json_get(row, "met"));
    assert_true(figure == figure && limit > 0);
    assert_int_equal(met, at_least ? figure >= limit : figure <= limit);
    assert_true(sh_json_is_text(sh_json_get(row, "machine")));
}

/* Every row that is no bar is an object with the keys that all have; returns how many rows there
 * are. */
static unsigned rows_check(const char *text, const char *name)
{
    unsigned rows = 0;
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1) {
        struct sh_json *row = NULL;
        struct sh_json_error error;
        assert_int_equal(sh_json_parse(line, strcspn(line, "\n"), &row, &error), SHOAL_OK);
        assert_string_equal(sh_json_text(sh_json_get(row, "bench")), name);
        assert_true(sh_json_is_text(sh_json_get(row, "case")));
        if (sh_json_get(row, "bar")) {
            bar_check(row);
            sh_json_free(row);
            continue;
        }
        assert_true(sh_json_is_text(sh_json_get(row, "system")));
        assert_true(sh_json_is_text(sh_json_get(row, "placement")));
        assert_true(sh_json_is_text(sh_json_get(row, "machine")));
        assert_true(sh_json_f64(sh_json_get(row, "seconds")) > 0);
        sh_json_free(row);
        rows++;
    }
    return rows;
}

static void each_benchmark_runs(void **state)
{
    (void)state;
    for (const struct sh_bench_entry *entry = sh_benches; entry->name; entry++) {
        for (size_t i = 0; entry->cases && entry->cases[i]; i++) {
            char line[256];
            char *text = NULL;
            snprintf(line, sizeof line, "%s --case %s --count 2000 --seconds 0.02 --runs 1 --json",
                     entry->name, entry->cases[i]);
            print_message("%s\n", line);
            assert_int_equal(bench(line, &text), 0);
            assert_true(rows_check(text, entry->name) > 0);
            free(text);
        }
    }
}

/* What was given on the line, and what is always there, is in the first row under its flag's name.
 */
static void row_has(const char *text, const char *key, uint64_t value)
{
    struct sh_json *row = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strcspn(text, "\n"), &row, &error), SHOAL_OK);
    const struct sh_json *member = sh_json_get(row, key);
    if (!member)
        fail_msg("no %s in %s", key, text);
    assert_int_equal(sh_json_u64(member), value);
    sh_json_free(row);
}

static void messages_go_in_every_shape(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(bench("msg --case alltoall --nodes 5 --processes 5 --handlers 2 --threads 2"
                           " --count 999 --idle park --runs 1 --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "msg"), 1);
    row_has(text, "nodes", 5);
    row_has(text, "processes", 5);
    row_has(text, "handlers", 2);
    assert_non_null(strstr(text, "\"idle\":\"park\""));
    assert_non_null(strstr(text, "\"messages_per_block\":"));
    free(text);
    assert_int_equal(bench("msg --case oneway --threads 5 --catch-up off --handlers 2 --count 999"
                           " --runs 1 --json",
                           &text),
                     0);
    assert_non_null(strstr(text, "\"catch_up\":\"off\""));
    free(text);
    assert_int_equal(bench("msg --case alltoall --vs tcp --count 999 --runs 1", &text), 0);
    assert_non_null(strstr(text, "alltoall and silence have no baseline"));
    free(text);
    static const char *const transports[] = {"epoll", "unix", "loopback"};
    for (size_t i = 0; i < sizeof transports / sizeof *transports; i++) {
        char line[128];
        snprintf(line, sizeof line,
                 "msg --transport %s --count 999 --handlers 1 --nodes 3 --runs 1 --json",
                 transports[i]);
        print_message("%s\n", line);
        assert_int_equal(bench(line, &text), 0);
        assert_int_equal(rows_check(text, "msg"), 4);
        assert_non_null(strstr(text, transports[i]));
        free(text);
    }
    assert_int_equal(bench("msg --case request --threads 128 --count 2000 --runs 1 --json", &text),
                     0);
    row_has(text, "threads", 128);
    free(text);
}

/* The bare program takes as many updates as ours has outstanding, on disks too. */
static void names_are_held_against_a_bare_program(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(bench("metadata --case durable --count 100 --outstanding 3 --seconds 0.02"
                           " --runs 1 --vs bare --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "metadata"), 2);
    row_has(text, "count", 100);
    row_has(text, "outstanding", 3);
    assert_non_null(strstr(text, "\"ratio_p50_ns\":"));
    free(text);
}

/* A put at each level, beside the bare program, and what it cost. */
static void puts_are_logged_at_each_level(void **state)
{
    (void)state;
    static const char *const systems[] = {"bare", "replicated", "async", "durable"};
    char *text = NULL;
    assert_int_equal(bench("kv --case put --replicas 1 --count 500 --outstanding 9 --seconds 0.02"
                           " --runs 1 --vs bare --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "kv"), 4);
    row_has(text, "replicas", 1);
    row_has(text, "nodes", 1);
    const char *line = text;
    for (size_t i = 0; i < 4; i++, line += strcspn(line, "\n") + 1) {
        struct sh_json *row = NULL;
        struct sh_json_error error;
        assert_int_equal(sh_json_parse(line, strcspn(line, "\n"), &row, &error), SHOAL_OK);
        assert_string_equal(sh_json_text(sh_json_get(row, "system")), systems[i]);
        if (i > 0) {
            assert_true(sh_json_f64(sh_json_get(row, "messages")) >= 2);
            assert_true(sh_json_f64(sh_json_get(row, "bytes")) > 64);
            assert_true(sh_json_f64(sh_json_get(row, "cpu_ns_owner")) > 0);
        }
        sh_json_free(row);
    }
    free(text);
    assert_int_equal(bench("kv --case add --durability durable --replicas 3 --count 500"
                           " --seconds 0.02 --runs 1 --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "kv"), 2);
    row_has(text, "nodes", 4);
    free(text);
}

static void flags_reach_the_benchmarks(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(bench("msg --threads 3 --connections 2 --outstanding 8 --size 3000 --count 999"
                           " --runs 1 --vs tcp --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "msg"), 6);
    row_has(text, "threads", 3);
    row_has(text, "connections", 2);
    row_has(text, "outstanding", 8);
    row_has(text, "size", 3000);
    row_has(text, "count", 999);
    row_has(text, "runs", 1);
    row_has(text, "seed", 1);
    assert_non_null(strstr(text, "\"transport\":\"tcp\""));
    assert_non_null(strstr(text, "\"ratio_cpu_ns_per_op\":"));
    free(text);
    assert_int_equal(bench("crew --case wakeup --count 100 --runs 1 --json", &text), 0);
    row_has(text, "count", 100);
    row_has(text, "threads", 2);
    free(text);
    assert_int_equal(bench("msg --case oneway --size 2MiB --count 20 --runs 1 --json "
                           "--placement one-core",
                           &text),
                     0);
    free(text);
    assert_int_equal(bench("kv --threads 2 --keys zipfian --size 1 --count 500 --batch 7"
                           " --seconds 0.02 --runs 1 --placement one-core --json",
                           &text),
                     0);
    assert_int_equal(rows_check(text, "kv"), 4);
    row_has(text, "threads", 2);
    row_has(text, "size", 1);
    row_has(text, "count", 500);
    assert_non_null(strstr(text, "\"keys\":\"zipfian\""));
    assert_non_null(strstr(text, "\"batch\":7"));
    assert_non_null(strstr(text, "\"transport\":\"tcp\""));
    free(text);
}

/* Each figure that a row must have, and what each source wrote adds up. */
static void log_figures_check(const char *text)
{
    static const char *const keys[] = {"bytes_per_write",
                                       "fill_percent",
                                       "memory_bytes",
                                       "log_per_memory",
                                       "amplification_primary",
                                       "amplification_slots",
                                       "amplification_survivors",
                                       "amplification_versions",
                                       "slots_cleaned",
                                       "fill_mean_percent",
                                       "amplification_segments",
                                       "theory",
                                       "of_theory"};
    struct sh_json *row = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strcspn(text, "\n"), &row, &error), SHOAL_OK);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(sh_json_get(row, keys[i]));
    double all = sh_json_f64(sh_json_get(row, "amplification_all"));
    double sum = 0;
    for (size_t i = 4; i < 8; i++)
        sum += sh_json_f64(sh_json_get(row, keys[i]));
    assert_float_equal(all, sum, 1e-9);
    assert_true(all > 1 && all < 20);
    double fill = sh_json_f64(sh_json_get(row, "fill_percent"));
    assert_true(fill >= 0 && fill <= 100);
    sh_json_free(row);
}

/* Small zones with two levels and one, through the page cache and around it; nothing is left in the
 * folder. */
static void logs_are_written_in_every_shape(void **state)
{
    (void)state;
    static const struct {
        const char *what, *access;
        unsigned levels, size, batch;
    } shapes[] = {{"random", "direct", 2, 500, 5},
                  {"hotcold", "cached", 2, 32, 7},
                  {"random", "raw", 2, 64, 10},
                  {"load", "direct", 1, 1000, 1}};
    char folder[] = "/tmp/shoal-test-XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char line[256];
        char *text = NULL;
        snprintf(line, sizeof line,
                 "log --case %s --zones 3 --zone-bytes 4MiB --segment-bytes 64KiB --levels %u"
                 " --access %s --buffer-bytes 1MiB --batch %u --size %u --folder %s"
                 " --runs 1 --json",
                 shapes[i].what, shapes[i].levels, shapes[i].access, shapes[i].batch,
                 shapes[i].size, folder);
        print_message("%s\n", line);
        assert_int_equal(bench(line, &text), 0);
        assert_int_equal(rows_check(text, "log"), 1);
        row_has(text, "zones", 3);
        row_has(text, "levels", shapes[i].levels);
        row_has(text, "segment_bytes", 64 << 10);
        row_has(text, "batch", shapes[i].batch);
        log_figures_check(text);
        free(text);
    }
    /* Beside the same log with one level, on a slow disk. */
    char line[256];
    char *text = NULL;
    snprintf(line, sizeof line,
             "log --case random --zones 3 --zone-bytes 1MiB --segment-bytes 64KiB --folder %s"
             " --buffer-bytes 1MiB --vs one-level --disk-writes 15000 --sync-every 100"
             " --selection random --fill 40"
             " --seconds 0.2 --runs 1 --json",
             folder);
    assert_int_equal(bench(line, &text), 0);
    assert_int_equal(rows_check(text, "log"), 2);
    assert_non_null(strstr(text, "\"ratio_ops_per_s\":"));
    row_has(text, "disk_writes", 15000);
    row_has(text, "sync_every", 100);
    row_has(text, "fill", 40);
    assert_non_null(strstr(text, "\"selection\":\"random\""));
    free(text);
    assert_int_equal(rmdir(folder), 0);
}

/* Rows of a case of recovery: which figures are there, and that they can be. */
static void recovery_figures_check(const char *text, bool is_failure)
{
    struct sh_json *row = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strcspn(text, "\n"), &row, &error), SHOAL_OK);
    double first_ms = sh_json_f64(sh_json_get(row, "first_ms"));
    double all_ms = sh_json_f64(sh_json_get(row, "all_ms"));
    double owners_ms = sh_json_f64(sh_json_get(row, "owners_ms"));
    double served_ms = sh_json_f64(sh_json_get(row, "served_ms"));
    assert_true(first_ms > 0 && first_ms <= all_ms);
    /* By the nodes' logs. */
    assert_true(owners_ms > 0 && owners_ms <= served_ms);
    assert_true(sh_json_f64(sh_json_get(row, "zones")) >= 1);
    assert_true(sh_json_f64(sh_json_get(row, "zone_longest_ms")) > 0);
    assert_int_equal(sh_json_get(row, "declared_ms") != NULL, is_failure);
    if (is_failure) {
        double detect_ms = sh_json_f64(sh_json_get(row, "detect_ms"));
        assert_true(detect_ms > 0 && detect_ms <= owners_ms);
        assert_true(sh_json_f64(sh_json_get(row, "declared_ms")) > 0);
    }
    sh_json_free(row);
}

/* Processes are killed, and all that they had is back: of a peer with several zones, beside calls of which none is lost, and of
 * all nodes. */
static void chunks_are_back_after_kills(void **state)
{
    (void)state;
    char folder[] = "/tmp/shoal-test-XXXXXX";
    char line[256];
    char *text = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(line, sizeof line,
             "recovery --case cluster --count 30000 --zone-bytes 1MiB --nodes 3 --replicas 1"
             " --size 100 --folder %s --runs 1 --json",
             folder);
    assert_int_equal(bench(line, &text), 0);
    assert_int_equal(rows_check(text, "recovery"), 1);
    row_has(text, "count", 30000);
    row_has(text, "nodes", 3);
    row_has(text, "replicas", 1);
    row_has(text, "size", 100);
    row_has(text, "zone_bytes", 1 << 20);
    recovery_figures_check(text, true);
    struct sh_json *row = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strcspn(text, "\n"), &row, &error), SHOAL_OK);
    assert_true(sh_json_f64(sh_json_get(row, "zones")) >= 3);
    sh_json_free(row);
    free(text);
    assert_int_equal(bench("recovery --case under-load --count 2000 --threads 2 --reads 50"
                           " --seconds 0.3 --runs 1 --json",
                           &text),
                     0);
    row_has(text, "others", 200);
    row_has(text, "threads", 2);
    row_has(text, "reads", 50);
    recovery_figures_check(text, true);
    assert_int_equal(sh_json_parse(text, strcspn(text, "\n"), &row, &error), SHOAL_OK);
    assert_true(sh_json_f64(sh_json_get(row, "before_per_s")) >=
                sh_json_f64(sh_json_get(row, "others_before_per_s")));
    assert_true(sh_json_f64(sh_json_get(row, "after_per_s")) > 0);
    assert_true(sh_json_f64(sh_json_get(row, "longest_ms")) > 0);
    assert_true(sh_json_f64(sh_json_get(row, "lost")) == 0);
    sh_json_free(row);
    free(text);
    snprintf(line, sizeof line, "recovery --case cold --count 2000 --folder %s --runs 1 --json",
             folder);
    assert_int_equal(bench(line, &text), 0);
    recovery_figures_check(text, false);
    free(text);
    assert_int_equal(rmdir(folder), 0);
}

static void lists_and_help_are_printed(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(bench("--list", &text), 0);
    for (const struct sh_bench_entry *entry = sh_benches; entry->name; entry++)
        assert_non_null(strstr(text, entry->name));
    free(text);
    assert_int_equal(bench("kv --help", &text), 0);
    assert_non_null(strstr(text, "--outstanding"));
    assert_non_null(strstr(text, "cases: get, put, mixed, multi, add"));
    free(text);
}

static void wrong_words_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        "kw",
                                        "kv --case gett",
                                        "msg --vs redis",
                                        "kv --size",
                                        "kv --transport loopback",
                                        "msg --transport carrier",
                                        "msg --idle never",
                                        "msg --case alltoall --nodes 1",
                                        "graph --nodes 17 --json",
                                        "store --count 1",
                                        "ranges --count 999",
                                        "crew --count 4294967295",
                                        "metadata --outstanding 65",
                                        "msg --catch-up 1",
                                        "kv --durability none",
                                        "kv --nodes 3",
                                        "kv --vs bare",
                                        "kv --replicas 1 --vs redis",
                                        "kv --replicas 3 --nodes 3",
                                        "log --count 1",
                                        "log --count 100 --zone-bytes 1MiB",
                                        "log --segment-bytes 65537",
                                        "log --buffer-bytes 1048577",
                                        "log --size 512KiB",
                                        "log --zones 10000 --zone-bytes 1TiB --segment-bytes 64KiB",
                                        "log --access none",
                                        "recovery --case cold --count 1TiB",
                                        "recovery --case cluster --nodes 3 --replicas 3",
                                        "recovery --case cold --nodes 33",
                                        "recovery --case under-load --count 7",
                                        "recovery --case cluster --zone-bytes 1023KiB",
                                        "recovery --case cluster --size 32MiB",
                                        "recovery --vs one-level",
                                        "log --levels 1 --vs one-level"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *text = NULL;
        assert_int_equal(bench(wrong[i], &text), 2);
        assert_string_equal(text, "");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_help_are_printed),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(each_benchmark_runs),
        cmocka_unit_test(messages_go_in_every_shape),
        cmocka_unit_test(flags_reach_the_benchmarks),
        cmocka_unit_test(puts_are_logged_at_each_level),
        cmocka_unit_test(logs_are_written_in_every_shape),
        cmocka_unit_test(names_are_held_against_a_bare_program),
        cmocka_unit_test(chunks_are_back_after_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
