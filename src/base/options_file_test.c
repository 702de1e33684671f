#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/options_int.h"

static char folder[] = "/tmp/shoal-options-test-XXXXXX";
static char path[64];
static struct sh_options options;
static struct sh_options_error error;

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/shoal.json", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

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
    (void)unlink(path);
    return 0;
}

static void write_bytes(const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static enum shoal_err read_text(const char *text)
{
    write_bytes(text, strlen(text));
    return sh_options_read_file(&options, path, &error);
}

/* The sentence, without the path before it. */
static const char *sentence(void)
{
    assert_memory_equal(error.text, path, strlen(path));
    return error.text + strlen(path);
}

static void test_every_kind_of_value(void **state)
{
    (void)state;
    assert_int_equal(read_text("{\n"
                               "  \"ring_bytes\": \"4MiB\", \"threads\": 2,\n"
                               "  \"cluster\": \"k\\u00e4se\", \"roles\": [\"superpeer\", "
                               "\"peer\"],\n"
                               "  \"connect\": \"a:1,b:2\", \"superpeers\": []\n"
                               "}\n"),
                     SHOAL_OK);
    assert_int_equal(options.ring_bytes, 4 << 20);
    assert_int_equal(options.threads, 2);
    assert_string_equal(options.cluster, "k\xC3\xA4se");
    assert_int_equal(options.roles.count, 2);
    assert_string_equal(options.roles.items[0], "superpeer");
    assert_int_equal(options.connect.count, 2);
    assert_int_equal(options.superpeers.count, 0);
    assert_int_equal(read_text("{}"), SHOAL_OK);
}

static void test_wrong_files(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum shoal_err err;
        const char *sentence;
    } wrong[] = {
        {"", SHOAL_EPARSE, ":1:1: malformed JSON: '[' or '{' expected near end of file"},
        {"{\n  \"threads\": 2\n  \"roles\": []\n}", SHOAL_EPARSE,
         ":3:3: malformed JSON: '}' expected near '\"roles\"'"},
        {"{\"threads\": 1,\n \"threads\": 2}", SHOAL_EPARSE,
         ":2:2: malformed JSON: duplicate object key near '\"threads\"'"},
        {"[1]", SHOAL_EPARSE, ":1:1: must hold a JSON object"},
        {"{\n  \"threads\": 2,\n  \"ringbytes\": 1}", SHOAL_EOPTION,
         ":3:3: unknown option \"ringbytes\"; did you mean \"ring_bytes\"?"},
        {"{\"nothing like it\": {\"threads\": 1}}", SHOAL_EOPTION,
         ":1:2: unknown option \"nothing like it\""},
        {"{\"threads\": 65}", SHOAL_ERANGE,
         ":1:2: \"65\" is out of range: threads must be 1 to 64"},
        {"{\"threads\": -1}", SHOAL_ERANGE, ":1:2: -1 is out of range: threads must be 1 to 64"},
        {"{\"ring_bytes\": \"1\"}", SHOAL_ERANGE,
         ":1:2: \"1\" is out of range: ring_bytes must be 4KiB to 1GiB"},
        {"{\"ring_bytes\": \"5s\"}", SHOAL_EPARSE,
         ":1:2: \"5s\" is not a number for ring_bytes: write digits and B, KiB, MiB, GiB or TiB, "
         "with no blank between"},
        {"{\"park_ns\": 1.5}", SHOAL_EPARSE,
         ":1:2: park_ns must be a whole number, or a text with ns, us, ms, s or min"},
        {"{\"threads\": true}", SHOAL_EPARSE, ":1:2: threads must be a whole number"},
        {"{\"cluster\": 5}", SHOAL_EPARSE, ":1:2: cluster must be a text"},
        {"{\"cluster\": null}", SHOAL_EPARSE, ":1:2: cluster must be a text"},
        {"{\"roles\": {}}", SHOAL_EPARSE, ":1:2: roles must be an array of texts"},
        {"{\"roles\": [\"peer\", 1]}", SHOAL_EPARSE,
         ":1:2: roles must be an array of texts without commas"},
        {"{\"roles\": [\"a,b\"]}", SHOAL_EPARSE,
         ":1:2: roles must be an array of texts without commas"},
        {"{\"roles\": [\"\", \"a\"]}", SHOAL_EPARSE,
         ":1:2: \",a\" has an empty item: roles is a list"},
        {"{\"roles\": []}", SHOAL_ERANGE,
         ":1:2: \"\" is out of range: roles must have 1 to 63 bytes, not 0"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        if (read_text(wrong[i].text) != wrong[i].err)
            fail_msg("%s", wrong[i].text);
        assert_string_equal(sentence(), wrong[i].sentence);
        assert_int_equal(options.ring_bytes, 1 << 20);
        assert_int_equal(options.roles.count, 1);
    }
}

struct toy {
    bool loud;
};

static void test_truth_values(void **state)
{
    (void)state;
    static const struct sh_option_row row = {"loud", SH_OPTION_BOOL, "", 0, 1, "true", "", 0};
    struct toy toy = {false};
    struct sh_option_set set = {{&row, 1}, &toy};
    assert_int_equal(sh_option_set_init(set), SHOAL_OK);
    assert_true(toy.loud);
    write_bytes("{\"loud\":false}", 14);
    assert_int_equal(sh_option_set_file(set, path, &error), SHOAL_OK);
    assert_false(toy.loud);
    write_bytes("{\"loud\":\"true\"}", 15);
    assert_int_equal(sh_option_set_file(set, path, &error), SHOAL_EPARSE);
    assert_string_equal(sentence(), ":1:2: loud must be true or false");
    sh_option_set_destroy(set);
}

static void test_unreadable_files(void **state)
{
    (void)state;
    assert_int_equal(sh_options_read_file(&options, path, &error), SHOAL_EIO);
    assert_string_equal(sentence(), ": cannot be read: No such file or directory");
    assert_int_equal(sh_options_read_file(&options, folder, &error), SHOAL_EIO);
    assert_non_null(strstr(error.text, ": cannot be read: Is a directory"));
    assert_int_equal(sh_options_read_file(&options, "/dev/zero", &error), SHOAL_EIO);
    assert_string_equal(error.text, "/dev/zero: cannot be read: it has more than 1 MiB");
    char long_path[3000];
    memset(long_path, 'x', sizeof long_path - 1);
    long_path[sizeof long_path - 1] = '\0';
    assert_int_equal(sh_options_read_file(&options, long_path, &error), SHOAL_EIO);
    assert_memory_equal(error.text, "...xxx", 6);
    assert_non_null(strstr(error.text, ": cannot be read: File name too long"));
}

/* Literals are const here; the function only moves the pointers. */
static enum shoal_err load(const char *const *env, int *argc_inout, const char **argv)
{
    return sh_options_load(&options, argc_inout, (char **)argv, (char *const *)env, &error);
}

static void test_later_sources_win(void **state)
{
    (void)state;
    const char *text = "{\"threads\": 2, \"park_ns\": \"3us\", \"spin_ns\": \"5us\"}";
    write_bytes(text, strlen(text));
    char variable[100];
    snprintf(variable, sizeof variable, "SHOAL_CONFIG=%s", path);
    const char *const env[] = {variable, "SHOAL_THREADS=3", "SHOAL_PARK_NS=4us", NULL};
    const char *argv[] = {"shoald", "--threads=4", "rest", NULL};
    int argc = 3;
    assert_int_equal(load(env, &argc, argv), SHOAL_OK);
    assert_int_equal(options.threads, 4);
    assert_int_equal(options.park_ns, 4000);
    assert_int_equal(options.spin_ns, 5000);
    assert_int_equal(options.ring_bytes, 1 << 20);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "rest");
    assert_null(argv[2]);
}

static void test_config_flag(void **state)
{
    (void)state;
    write_bytes("{\"threads\": 2}", 14);
    char flag[100];
    snprintf(flag, sizeof flag, "--config=%s", path);
    const char *const env[] = {"SHOAL_CONFIG=/nonexistent", NULL};
    const char *argv[] = {"shoal", "a", "--config", path, flag, "b", "--", "--config", NULL};
    int argc = 8;
    assert_int_equal(load(env, &argc, argv), SHOAL_OK);
    assert_int_equal(options.threads, 2);
    assert_int_equal(argc, 5);
    assert_string_equal(argv[1], "a");
    assert_string_equal(argv[2], "b");
    assert_string_equal(argv[4], "--config");
    assert_null(argv[5]);

    const char *lonely[] = {"shoal", "--config", NULL};
    argc = 2;
    assert_int_equal(load(env, &argc, lonely), SHOAL_EPARSE);
    assert_string_equal(error.text, "flag --config: needs the path of a file");
    const char *empty[] = {"shoal", "--config=", NULL};
    assert_int_equal(load(env, &argc, empty), SHOAL_EPARSE);
    const char *none[] = {"shoal", NULL};
    argc = 1;
    assert_int_equal(load(env, &argc, none), SHOAL_EIO);
    assert_string_equal(error.text, "/nonexistent: cannot be read: No such file or directory");
    const char *const empty_env[] = {"SHOAL_CONFIG=", NULL};
    assert_int_equal(load(empty_env, &argc, none), SHOAL_OK);
}

static void test_load_reports_each_source(void **state)
{
    (void)state;
    const char *const bad_env[] = {"SHOAL_THREADS=0", NULL};
    const char *const no_env[] = {NULL};
    const char *none[] = {"shoald", NULL};
    int argc = 1;
    assert_int_equal(load(bad_env, &argc, none), SHOAL_ERANGE);
    assert_string_equal(error.text,
                        "variable SHOAL_THREADS: \"0\" is out of range: threads must be 1 to 64");
    const char *bad_flag[] = {"shoald", "--threads", "x", NULL};
    argc = 3;
    assert_int_equal(load(no_env, &argc, bad_flag), SHOAL_EPARSE);
    assert_string_equal(error.text,
                        "flag --threads: \"x\" is not a whole number: threads must be 1 to 64");
    const char *bad_check[] = {"shoald", "--listen", "0.0.0.0:1", NULL};
    argc = 3;
    assert_int_equal(load(no_env, &argc, bad_check), SHOAL_EADDRESS);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_every_kind_of_value),      TEST(test_wrong_files),       TEST(test_truth_values),
        TEST(test_unreadable_files),         TEST(test_later_sources_win), TEST(test_config_flag),
        TEST(test_load_reports_each_source),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
