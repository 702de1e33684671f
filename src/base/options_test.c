#include "base/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <string.h>

#include "base/options_int.h"

/* A table of our own with every kind in it. */
struct toy {
    bool loud;
    uint64_t size_bytes;
    uint64_t count;
    char *name;
    struct sh_list friends;
};

static const struct sh_option_row toy_rows[] = {
    {"loud", SH_OPTION_BOOL, "", 0, 1, "true", "how it sounds", offsetof(struct toy, loud)},
    {"size_bytes", SH_OPTION_U64, "bytes", 16, 65536, "1KiB", "size",
     offsetof(struct toy, size_bytes)},
    {"count", SH_OPTION_U64, "", 1, 9, "3", "count", offsetof(struct toy, count)},
    {"name", SH_OPTION_TEXT, "", 1, 8, "toy", "name", offsetof(struct toy, name)},
    {"friends", SH_OPTION_LIST, "", 0, 500, "", "friends", offsetof(struct toy, friends)},
};

static struct toy toy;
static struct sh_options options;
static struct sh_options_error error;

static struct sh_option_set toy_set(void)
{
    return (struct sh_option_set){{toy_rows, sizeof toy_rows / sizeof toy_rows[0]}, &toy};
}

static int make(void **state)
{
    (void)state;
    memset(&toy, 0, sizeof toy);
    memset(&error, 0, sizeof error);
    return sh_option_set_init(toy_set()) != SHOAL_OK || sh_options_init(&options) != SHOAL_OK;
}

static int unmake(void **state)
{
    (void)state;
    sh_option_set_destroy(toy_set());
    sh_options_destroy(&options);
    sh_options_destroy(&options); /* twice does no harm */
    return 0;
}

static void assert_toy_is_preset(void)
{
    assert_true(toy.loud);
    assert_int_equal(toy.size_bytes, 1024);
    assert_int_equal(toy.count, 3);
    assert_string_equal(toy.name, "toy");
    assert_int_equal(toy.friends.count, 0);
}

static void set_fine(const char *name, const char *value)
{
    assert_int_equal(sh_option_set_text(toy_set(), name, value, "test", &error), SHOAL_OK);
    assert_string_equal(error.text, "");
}

static void test_defaults(void **state)
{
    (void)state;
    assert_toy_is_preset();
    assert_string_equal(options.cluster, "shoal");
    assert_string_equal(options.listen, "127.0.0.1:4100");
    assert_string_equal(options.secret_file, "");
    assert_int_equal(options.ring_bytes, 1 << 20);
    assert_int_equal(options.request_timeout_ns, 5000000000);
    assert_int_equal(options.roles.count, 1);
    assert_string_equal(options.roles.items[0], "peer");
    assert_int_equal(options.superpeers.count, 0);
    assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
}

static void test_set_every_kind(void **state)
{
    (void)state;
    set_fine("loud", "false");
    assert_false(toy.loud);
    set_fine("size_bytes", "64KiB");
    assert_int_equal(toy.size_bytes, 65536);
    set_fine("size-bytes", "16");
    assert_int_equal(toy.size_bytes, 16);
    set_fine("name", "12345678");
    assert_string_equal(toy.name, "12345678");
    set_fine("friends", "a, b b ,c");
    assert_int_equal(toy.friends.count, 3);
    assert_string_equal(toy.friends.items[0], "a");
    assert_string_equal(toy.friends.items[1], "b b");
    assert_string_equal(toy.friends.items[2], "c");
    set_fine("friends", "d");
    assert_int_equal(toy.friends.count, 1);
    assert_string_equal(toy.friends.items[0], "d");
    set_fine("friends", "");
    assert_int_equal(toy.friends.count, 0);
}

static void test_wrong_values_and_their_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value;
        enum shoal_err err;
        const char *text;
    } wrong[] = {
        {"loud", "yes", SHOAL_EPARSE,
         "flag --x: \"yes\" is not a truth value: loud is true or false"},
        {"size_bytes", "4XB", SHOAL_EPARSE,
         "flag --x: \"4XB\" is not a number for size_bytes: write digits and B, KiB, MiB, GiB or "
         "TiB, with no blank between"},
        {"size_bytes", "8", SHOAL_ERANGE,
         "flag --x: \"8\" is out of range: size_bytes must be 16 to 64KiB"},
        {"size_bytes", "1TiB", SHOAL_ERANGE,
         "flag --x: \"1TiB\" is out of range: size_bytes must be 16 to 64KiB"},
        {"count", "many", SHOAL_EPARSE,
         "flag --x: \"many\" is not a whole number: count must be 1 to 9"},
        {"count", "99999999999999999999", SHOAL_ERANGE,
         "flag --x: \"99999999999999999999\" is out of range: count must be 1 to 9"},
        {"count", "0", SHOAL_ERANGE, "flag --x: \"0\" is out of range: count must be 1 to 9"},
        {"name", "", SHOAL_ERANGE,
         "flag --x: \"\" is out of range: name must have 1 to 8 bytes, not 0"},
        {"name", "123456789", SHOAL_ERANGE,
         "flag --x: \"123456789\" is out of range: name must have 1 to 8 bytes, not 9"},
        {"friends", "a,,b", SHOAL_EPARSE,
         "flag --x: \"a,,b\" has an empty item: friends is a list"},
        {"friends", "a,", SHOAL_EPARSE, "flag --x: \"a,\" has an empty item: friends is a list"},
        {"frends", "a", SHOAL_EOPTION,
         "flag --x: unknown option \"frends\"; did you mean \"friends\"?"},
        {"zzz", "a", SHOAL_EOPTION, "flag --x: unknown option \"zzz\""},
        {"count", "\x1B[2J\n\xFF", SHOAL_EPARSE,
         "flag --x: \"?[2J??\" is not a whole number: count must be 1 to 9"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(
            sh_option_set_text(toy_set(), wrong[i].name, wrong[i].value, "flag --x", &error),
            wrong[i].err);
        assert_string_equal(error.text, wrong[i].text);
        assert_toy_is_preset();
    }
}

static void test_long_values_are_shortened_in_sentences(void **state)
{
    (void)state;
    char value[400];
    memset(value, 'x', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    assert_int_equal(sh_option_set_text(toy_set(), "name", value, "test", &error), SHOAL_ERANGE);
    assert_non_null(strstr(error.text, "xxx...\" is out of range: name must have 1 to 8 bytes, "
                                       "not 399"));
    assert_int_equal(sh_option_set_text(toy_set(), value, "1", "test", &error), SHOAL_EOPTION);
    assert_true(strlen(error.text) < 120);
}

static void test_too_many_items(void **state)
{
    (void)state;
    char value[200] = "";
    for (int i = 0; i < SH_OPTION_LIST_MAX; i++)
        strcat(value, i > 0 ? ",a" : "a");
    set_fine("friends", value);
    assert_int_equal(toy.friends.count, SH_OPTION_LIST_MAX);
    strcat(value, ",b");
    assert_int_equal(sh_option_set_text(toy_set(), "friends", value, "test", &error), SHOAL_ERANGE);
    assert_non_null(strstr(error.text, "friends has at most 64 items"));
    assert_int_equal(toy.friends.count, SH_OPTION_LIST_MAX);
}

/* Literals are const here; the functions only move the pointers. */
static enum shoal_err read_env(const char *const *env)
{
    return sh_option_set_env(toy_set(), (char *const *)env, &error);
}

static enum shoal_err read_flags(int *argc_inout, const char **argv)
{
    return sh_option_set_flags(toy_set(), argc_inout, (char **)argv, &error);
}

static void test_environment(void **state)
{
    (void)state;
    const char *const env[] = {
        "PATH=/bin", "SHOAL_LOUD=false", "SHOAL_CONFIG=/somewhere", "SHOAL_STATE_DIR=x",
        "SHOAL",     "SHOALS_COUNT=4",   "SHOAL_NAME=a=b",          NULL};
    assert_int_equal(read_env(env), SHOAL_OK);
    assert_false(toy.loud);
    assert_string_equal(toy.name, "a=b");
    assert_int_equal(toy.count, 3);
}

static void test_wrong_environment(void **state)
{
    (void)state;
    char long_name[200] = "SHOAL_";
    memset(long_name + 6, 'X', 150);
    strcpy(long_name + 156, "=1");
    const struct {
        const char *entry;
        enum shoal_err err;
        const char *text;
    } wrong[] = {
        {"SHOAL_COUNT=x", SHOAL_EPARSE,
         "variable SHOAL_COUNT: \"x\" is not a whole number: count must be 1 to 9"},
        {"SHOAL_COUNT=", SHOAL_EPARSE,
         "variable SHOAL_COUNT: \"\" is not a whole number: count must be 1 to 9"},
        {"SHOAL_SIZEBYTES=1", SHOAL_EOPTION,
         "environment: unknown variable \"SHOAL_SIZEBYTES\"; did you mean \"SHOAL_SIZE_BYTES\"?"},
        {"SHOAL_count=1", SHOAL_EOPTION,
         "environment: unknown variable \"SHOAL_count\"; did you mean \"SHOAL_COUNT\"?"},
        {"SHOAL_ZZZ=1", SHOAL_EOPTION, "environment: unknown variable \"SHOAL_ZZZ\""},
        {"SHOAL_=1", SHOAL_EOPTION, "environment: unknown variable \"SHOAL_\""},
        {long_name, SHOAL_EOPTION, NULL},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const char *const env[] = {wrong[i].entry, NULL};
        assert_int_equal(read_env(env), wrong[i].err);
        if (wrong[i].text)
            assert_string_equal(error.text, wrong[i].text);
        assert_toy_is_preset();
    }
}

static void assert_words(int argc, const char **argv, const char *joined)
{
    char text[200] = "";
    for (int i = 0; i < argc; i++) {
        strcat(text, i > 0 ? " " : "");
        strcat(text, argv[i]);
    }
    assert_string_equal(text, joined);
    assert_null(argv[argc]);
}

static void test_flags(void **state)
{
    (void)state;
    const char *argv[] = {"shoal", "--count", "7",     "put", "--name=x=y", "--other", "--no-loud",
                          "a",     "-5",      "--raw", "--",  "--count",    "8",       NULL};
    int argc = 13;
    assert_int_equal(read_flags(&argc, argv), SHOAL_OK);
    assert_words(argc, argv, "shoal put --other a -5 --raw -- --count 8");
    assert_int_equal(toy.count, 7);
    assert_string_equal(toy.name, "x=y");
    assert_false(toy.loud);

    const char *again[] = {"shoal", "--loud",       "word",   "--size-bytes",
                           "2KiB",  "--loud=false", "--loud", NULL};
    argc = 7;
    assert_int_equal(read_flags(&argc, again), SHOAL_OK);
    assert_words(argc, again, "shoal word");
    assert_true(toy.loud);
    assert_int_equal(toy.size_bytes, 2048);

    /* A truth value of its own word would count for a word of the command, and the flag for true. */
    const char *apart[] = {"shoal", "--loud", "false", NULL};
    argc = 3;
    assert_int_equal(read_flags(&argc, apart), SHOAL_EPARSE);
    assert_non_null(strstr(error.text, "flag --loud: "));
    assert_non_null(strstr(error.text, "write --loud=true or --loud=false"));
    assert_words(argc, apart, "shoal --loud false");

    const char *none[] = {NULL};
    argc = 0;
    assert_int_equal(read_flags(&argc, none), SHOAL_OK);
    assert_int_equal(argc, 0);
}

static void test_flags_of_others_stay(void **state)
{
    (void)state;
    /* Not ours: a negated number, a negated value, a name that is too long, a lone dash. */
    const char *argv[] = {
        "shoal",
        "--no-count",
        "--no-loud=true",
        "--a-flag-with-a-name-that-is-much-longer-than-any-option-of-this-house-will-"
        "ever-be",
        "-",
        "-x",
        NULL};
    int argc = 6;
    assert_int_equal(read_flags(&argc, argv), SHOAL_OK);
    assert_int_equal(argc, 6);
    assert_toy_is_preset();
}

static void test_wrong_flags_leave_argv(void **state)
{
    (void)state;
    const char *missing[] = {"shoal", "word", "--count", NULL};
    int argc = 3;
    assert_int_equal(read_flags(&argc, missing), SHOAL_EPARSE);
    assert_string_equal(error.text, "flag --count: needs a value");
    assert_words(argc, missing, "shoal word --count");

    const char *swallowed[] = {"shoal", "--count", "--loud", NULL};
    argc = 3;
    assert_int_equal(read_flags(&argc, swallowed), SHOAL_EPARSE);
    assert_string_equal(error.text, "flag --count: needs a value");

    const char *wrong[] = {"shoal", "--no-loud", "--size-bytes=1", NULL};
    argc = 3;
    assert_int_equal(read_flags(&argc, wrong), SHOAL_ERANGE);
    assert_string_equal(error.text, "flag --size-bytes: \"1\" is out of range: size_bytes must be "
                                    "16 to 64KiB");
    assert_words(argc, wrong, "shoal --no-loud --size-bytes=1");
}

static void test_house_functions(void **state)
{
    (void)state;
    const char *const env[] = {"SHOAL_RING_BYTES=4MiB", NULL};
    const char *argv[] = {"shoald", "--superpeers", "a:1,b:2", NULL};
    int argc = 3;
    assert_int_equal(sh_options_read_env(&options, (char *const *)env, &error), SHOAL_OK);
    assert_int_equal(options.ring_bytes, 4 << 20);
    assert_int_equal(sh_options_read_flags(&options, &argc, (char **)argv, &error), SHOAL_OK);
    assert_int_equal(argc, 1);
    assert_int_equal(options.superpeers.count, 2);
    assert_string_equal(options.superpeers.items[1], "b:2");
    assert_int_equal(sh_options_set(&options, "threads", "65", "test", &error), SHOAL_ERANGE);
    assert_string_equal(error.text, "test: \"65\" is out of range: threads must be 1 to 64");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults),
        TEST(test_set_every_kind),
        TEST(test_wrong_values_and_their_sentences),
        TEST(test_long_values_are_shortened_in_sentences),
        TEST(test_too_many_items),
        TEST(test_environment),
        TEST(test_wrong_environment),
        TEST(test_flags),
        TEST(test_flags_of_others_stay),
        TEST(test_wrong_flags_leave_argv),
        TEST(test_house_functions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
