#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"

#define TEXT_MAX 65536

static char folder[] = "/tmp/shoal-log-test-XXXXXX";
static char log_path[64];

/* 2026-11-20T23:01:02.345678Z */
static uint64_t fixed_clock(void *arg)
{
    (void)arg;
    return UINT64_C(1795215662345678901);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    sh_log_clock_set(fixed_clock, NULL);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    sh_log_clock_set(NULL, NULL);
    return rmdir(folder);
}

static void levels(const char *spec)
{
    const char *bad = NULL;
    size_t bad_size = 0;
    assert_int_equal(sh_log_levels_set(spec, &bad, &bad_size), SHOAL_OK);
}

static void log_to(const char *path, enum sh_log_format format)
{
    assert_int_equal(sh_log_output_set(path, format), SHOAL_OK);
}

static void read_all(const char *path, char text[TEXT_MAX])
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(text, 1, TEXT_MAX - 1, file);
    text[size] = '\0';
    assert_int_equal(fclose(file), 0);
}

/* Ends a test's log: back to stderr; gives what was logged. */
static const char *logged(void)
{
    static char text[TEXT_MAX];
    log_to(NULL, SH_LOG_AS_TEXT);
    levels("info");
    read_all(log_path, text);
    assert_int_equal(unlink(log_path), 0);
    return text;
}

static void test_text_form(void **state)
{
    (void)state;
    log_to(log_path, SH_LOG_AS_TEXT);
    levels("trace");
    SH_INFO("msg", "connection lost", SH_U64("nid", 3), SH_TEXT("reason", "reset by peer"));
    SH_ERROR("store", "plain");
    SH_WARN("env", "all kinds", SH_I64("i", INT64_MIN), SH_U64("u", UINT64_MAX), SH_F64("f", 1.5),
            SH_F64("nan", NAN), SH_TEXT("none", NULL), SH_ERR(SHOAL_EIO));
    sh_log_node_set(7);
    SH_DEBUG("msg", "with a node");
    sh_log_node_set(0);
    SH_TRACE("msg", "without");
    assert_string_equal(
        logged(),
        "2026-11-20T23:01:02.345678Z info  msg  connection lost nid=3 reason=\"reset by peer\"\n"
        "2026-11-20T23:01:02.345678Z error store  plain\n"
        "2026-11-20T23:01:02.345678Z warn  env  all kinds i=-9223372036854775808 "
        "u=18446744073709551615 f=1.5 nan=nan none=\"\" "
        "error=\"input or output failed (SHOAL_EIO)\"\n"
        "2026-11-20T23:01:02.345678Z debug msg  with a node node=7\n"
        "2026-11-20T23:01:02.345678Z trace msg  without\n");
}

static void test_json_form(void **state)
{
    (void)state;
    log_to(log_path, SH_LOG_AS_JSON);
    sh_log_node_set(9);
    SH_INFO("msg", "connection lost", SH_U64("nid", 3), SH_TEXT("reason", "a \"b\"\\"),
            SH_F64("inf", INFINITY), SH_ERR(SHOAL_ECONNLOST));
    sh_log_node_set(0);
    const char *text = logged();
    assert_string_equal(text, "{\"time\":\"2026-11-20T23:01:02.345678Z\",\"level\":\"info\","
                              "\"module\":\"msg\",\"event\":\"connection lost\",\"node\":9,"
                              "\"nid\":3,\"reason\":\"a \\\"b\\\"\\\\\",\"inf\":null,"
                              "\"error\":\"SHOAL_ECONNLOST\"}\n");
}

/* Bytes that a stranger may have sent: a forged line, a terminal's escape sequence, bad UTF-8, a
 * C1 control, a mark that turns the direction of writing. */
static const char hostile[] = "a\nforged\x1B[2J\x7F\t\xFF\xC3\xA9\xC2\x9B\xE2\x80\xAE\xE2\x82";

static void test_hostile_bytes_in_text(void **state)
{
    (void)state;
    log_to(log_path, SH_LOG_AS_TEXT);
    SH_INFO("msg", "got", SH_TEXT("what", hostile));
    assert_string_equal(logged(), "2026-11-20T23:01:02.345678Z info  msg  got "
                                  "what=\"a\\nforged\\x1b[2J\\x7f\\t\\xff\xC3\xA9\\xc2\\x9b"
                                  "\\xe2\\x80\\xae\\xe2\\x82\"\n");
}

static struct sh_json *parse_line(const char *line)
{
    struct sh_json *root = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(line, strlen(line), &root, &error), SHOAL_OK);
    return root;
}

static void test_hostile_bytes_in_json(void **state)
{
    (void)state;
    log_to(log_path, SH_LOG_AS_JSON);
    SH_INFO("msg", "got", SH_TEXT("what", hostile));
    const char *line = logged();
    for (const char *at = line; *at != '\0'; at++)
        assert_true((*at >= ' ' && *at != 0x7F) || (*at == '\n' && at[1] == '\0') ||
                    (signed char)*at < 0);
    struct sh_json *root = parse_line(line);
    assert_string_equal(sh_json_text(sh_json_get(root, "what")),
                        "a\nforged\x1B[2J\x7F\t\xEF\xBF\xBD\xC3\xA9\xC2\x9B\xE2\x80\xAE"
                        "\xEF\xBF\xBD\xEF\xBF\xBD");
    sh_json_free(root);
}

static void log_every_byte(char *long_text, size_t size)
{
    for (size_t i = 0; i < size - 1; i++)
        long_text[i] = (char)(i % 255 + 1);
    long_text[size - 1] = '\0';
    SH_INFO("msg", "long", SH_U64("first", 1), SH_TEXT("long", long_text), SH_U64("after", 2),
            SH_TEXT("last", "x"));
}

static void test_long_lines_are_cut(void **state)
{
    (void)state;
    /* Sizes around the limit, so that the cut falls on every sort of place. */
    static char long_text[3 * SH_LOG_LINE_BYTES_MAX];
    for (size_t size = 2000; size < sizeof long_text; size += 97) {
        log_to(log_path, SH_LOG_AS_JSON);
        log_every_byte(long_text, size);
        const char *line = logged();
        assert_true(strlen(line) <= SH_LOG_LINE_BYTES_MAX);
        struct sh_json *root = parse_line(line);
        assert_int_equal(sh_json_u64(sh_json_get(root, "first")), 1);
        assert_true(sh_json_bool(sh_json_get(root, "truncated")) !=
                    sh_json_is_text(sh_json_get(root, "last")));
        sh_json_free(root);
    }
    log_to(log_path, SH_LOG_AS_TEXT);
    memset(long_text, 'x', sizeof long_text - 1);
    SH_INFO("msg", "long", SH_TEXT("long", long_text), SH_U64("after", 2));
    const char *line = logged();
    assert_true(strlen(line) <= SH_LOG_LINE_BYTES_MAX);
    assert_non_null(strstr(line, "xxx\" truncated=true\n"));
    assert_null(strstr(line, "after"));
}

static void test_levels(void **state)
{
    (void)state;
    levels("info");
    assert_true(sh_log_enabled(SH_LOG_INFO, "msg"));
    assert_false(sh_log_enabled(SH_LOG_DEBUG, "msg"));
    levels("warn,msg=debug,store=error");
    assert_true(sh_log_enabled(SH_LOG_DEBUG, "msg"));
    assert_false(sh_log_enabled(SH_LOG_TRACE, "msg"));
    assert_false(sh_log_enabled(SH_LOG_WARN, "store"));
    assert_true(sh_log_enabled(SH_LOG_ERROR, "store"));
    assert_true(sh_log_enabled(SH_LOG_WARN, "env"));
    assert_false(sh_log_enabled(SH_LOG_INFO, "env"));
    assert_false(sh_log_enabled(SH_LOG_DEBUG, "ms"));
    /* The later word wins, and a new list replaces the old one. */
    levels("msg=trace,msg=error");
    assert_false(sh_log_enabled(SH_LOG_WARN, "msg"));
    assert_true(sh_log_enabled(SH_LOG_INFO, "store"));
    levels("info");
    assert_true(sh_log_enabled(SH_LOG_INFO, "msg"));
}

static void test_bad_levels_change_nothing(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"", ""},
        {"loud", "loud"},
        {"info,", ""},
        {"info,,debug", ""},
        {"warn,msg=loud,info", "msg=loud"},
        {"=debug", "=debug"},
        {"Msg=debug", "Msg=debug"},
        {"msg=debug,a_name_that_is_too_long=info", "a_name_that_is_too_long=info"},
        {"a=info,b=info,c=info,d=info,e=info,f=info,g=info,h=info,i=info,j=info,k=info,l=info,"
         "m=info,n=info,o=info,p=info,a=debug,q=trace",
         "q=trace"},
    };
    levels("warn,msg=debug");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *bad = NULL;
        size_t size = 99;
        assert_int_equal(sh_log_levels_set(wrong[i][0], &bad, &size), SHOAL_EPARSE);
        assert_int_equal(size, strlen(wrong[i][1]));
        assert_memory_equal(bad, wrong[i][1], size);
        assert_true(sh_log_enabled(SH_LOG_DEBUG, "msg"));
        assert_false(sh_log_enabled(SH_LOG_INFO, "env"));
        bad = NULL;
        assert_int_equal(sh_log_levels_check(wrong[i][0], &bad, &size), SHOAL_EPARSE);
        assert_non_null(bad);
    }
    levels("info");
}

static void test_disabled_events_are_not_evaluated(void **state)
{
    (void)state;
    int evaluated = 0;
    SH_DEBUG("msg", "never", SH_I64("n", ++evaluated));
    assert_int_equal(evaluated, 0);
}

/* Runs with stderr going to a file; gives what was said there. */
static const char *said_on_stderr(void (*run)(void))
{
    static char text[TEXT_MAX];
    char path[80];
    snprintf(path, sizeof path, "%s/stderr", folder);
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    assert_true(saved >= 0 && file >= 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    run();
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    assert_int_equal(close(saved), 0);
    assert_int_equal(close(file), 0);
    read_all(path, text);
    assert_int_equal(unlink(path), 0);
    return text;
}

static void log_to_full_disk_and_back(void)
{
    uint64_t before = sh_log_dropped();
    log_to("/dev/full", SH_LOG_AS_TEXT);
    for (int i = 0; i < 3; i++) {
        errno = ERANGE;
        SH_INFO("base", "lost");
        assert_int_equal(errno, ERANGE);
    }
    assert_int_equal(sh_log_dropped() - before, 3);
    log_to(log_path, SH_LOG_AS_TEXT);
    SH_INFO("base", "kept");
    SH_INFO("base", "kept");
    assert_int_equal(sh_log_dropped() - before, 3);
}

static void test_full_disk_drops_and_says_so_once(void **state)
{
    (void)state;
    const char *said = said_on_stderr(log_to_full_disk_and_back);
    assert_string_equal(said, "shoal: the log cannot be written (No space left on device); lines "
                              "are dropped\n"
                              "shoal: the log is written again; 3 lines were lost\n");
    assert_string_equal(logged(), "2026-11-20T23:01:02.345678Z info  base  kept\n"
                                  "2026-11-20T23:01:02.345678Z info  base  kept\n");
}

static void log_to_bad_paths(void)
{
    assert_int_equal(sh_log_output_set("/nonexistent-folder/log", SH_LOG_AS_JSON), SHOAL_EIO);
    assert_int_equal(sh_log_output_set(folder, SH_LOG_AS_JSON), SHOAL_EIO);
    SH_INFO("base", "still here");
}

static void test_bad_path_keeps_the_old_output(void **state)
{
    (void)state;
    const char *said = said_on_stderr(log_to_bad_paths);
    assert_non_null(strstr(said, "error base  log file cannot be opened "
                                 "path=\"/nonexistent-folder/log\" "
                                 "cause=\"No such file or directory\"\n"));
    assert_non_null(strstr(said, "cause=\"Is a directory\"\n"));
    assert_non_null(strstr(said, "info  base  still here\n"));
}

/* In a child, since SIGPIPE would end the process. Exit status 0: all as it should be. */
static int log_to_a_closed_pipe(void)
{
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[1], STDERR_FILENO) < 0 || close(ends[0]) != 0)
        return 1;
    (void)signal(SIGPIPE, SIG_DFL);
    log_to(NULL, SH_LOG_AS_TEXT);
    SH_INFO("base", "into the void");
    SH_INFO("base", "into the void");
    sigset_t pending;
    if (sigpending(&pending) != 0 || sigismember(&pending, SIGPIPE))
        return 2;
    return sh_log_dropped() == 2 ? 0 : 3;
}

static void test_closed_pipe_does_not_kill(void **state)
{
    (void)state;
    uint64_t before = sh_log_dropped();
    assert_int_equal(before, 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(log_to_a_closed_pipe());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define THREADS 4
#define LINES_EACH 400

static _Atomic int levels_changing;

static void *log_lines(void *arg)
{
    (void)arg;
    for (int i = 0; i < LINES_EACH; i++) {
        SH_INFO("base", "line", SH_I64("i", i));
        SH_TRACE("store", "sometimes");
    }
    return NULL;
}

static void *change_levels(void *arg)
{
    (void)arg;
    /* relaxed: only ends the loop. */
    while (atomic_load_explicit(&levels_changing, memory_order_relaxed)) {
        levels("info,msg=trace,store=debug");
        levels("debug,store=info");
    }
    return NULL;
}

static void test_threads_write_whole_lines(void **state)
{
    (void)state;
    log_to(log_path, SH_LOG_AS_TEXT);
    atomic_store_explicit(&levels_changing, 1, memory_order_relaxed);
    pthread_t threads[THREADS], changer;
    assert_int_equal(pthread_create(&changer, NULL, change_levels, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_lines, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    atomic_store_explicit(&levels_changing, 0, memory_order_relaxed);
    assert_int_equal(pthread_join(changer, NULL), 0);
    log_to(NULL, SH_LOG_AS_TEXT);
    levels("info");
    FILE *file = fopen(log_path, "r");
    assert_non_null(file);
    char line[256];
    int lines = 0, number = 0;
    for (; fgets(line, sizeof line, file); lines++)
        assert_int_equal(
            sscanf(line, "2026-11-20T23:01:02.345678Z info  base  line i=%d\n", &number), 1);
    assert_int_equal(lines, THREADS * LINES_EACH);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(log_path), 0);
}

static void test_system_clock(void **state)
{
    (void)state;
    sh_log_clock_set(NULL, NULL);
    log_to(log_path, SH_LOG_AS_TEXT);
    SH_INFO("base", "now");
    unsigned year = 0, micros = 0;
    assert_int_equal(
        sscanf(logged(), "%4u-%*2u-%*2uT%*2u:%*2u:%*2u.%6uZ info  base  now\n", &year, &micros), 2);
    assert_true(year >= 2024 && year < 2262);
    sh_log_clock_set(fixed_clock, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* First: it forks and counts from zero. */
        cmocka_unit_test(test_closed_pipe_does_not_kill),
        cmocka_unit_test(test_text_form),
        cmocka_unit_test(test_json_form),
        cmocka_unit_test(test_hostile_bytes_in_text),
        cmocka_unit_test(test_hostile_bytes_in_json),
        cmocka_unit_test(test_long_lines_are_cut),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_bad_levels_change_nothing),
        cmocka_unit_test(test_disabled_events_are_not_evaluated),
        cmocka_unit_test(test_full_disk_drops_and_says_so_once),
        cmocka_unit_test(test_bad_path_keeps_the_old_output),
        cmocka_unit_test(test_threads_write_whole_lines),
        cmocka_unit_test(test_system_clock),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
