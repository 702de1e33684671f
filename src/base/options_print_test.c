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

#include "base/json.h"
#include "base/options_int.h"

static void print_default_json(FILE *out)
{
    struct sh_options options;
    assert_int_equal(sh_options_init(&options), SHOAL_OK);
    sh_options_print_json(&options, out);
    sh_options_destroy(&options);
}

/* What it prints, to be freed. */
static char *printed(void (*print)(FILE *out))
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    print(out);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* A file of the repository, found from where this one is; to be freed. */
static char *read_doc(const char *name)
{
    char path[4096];
    const char *slash = strrchr(__FILE__, '/');
    assert_non_null(slash);
    snprintf(path, sizeof path, "%.*s/../../docs/%s", (int)(slash - __FILE__), __FILE__, name);
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s cannot be read", path);
    enum { BYTES_MAX = 1 << 20 };
    char *text = calloc(1, BYTES_MAX);
    assert_non_null(text);
    assert_true(fread(text, 1, BYTES_MAX - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Whoever changes a table generates its page again: shoal config --markdown >docs/options.md,
 * shoal errors --markdown >docs/errors.md. */
static void test_pages_match_the_tables(void **state)
{
    (void)state;
    char *options = printed(sh_options_print_markdown), *options_page = read_doc("options.md");
    assert_string_equal(options_page, options);
    char *errors = printed(sh_errors_print_markdown), *errors_page = read_doc("errors.md");
    assert_string_equal(errors_page, errors);
    free(options);
    free(options_page);
    free(errors);
    free(errors_page);
}

static void test_pages_are_tables(void **state)
{
    (void)state;
    char *errors = printed(sh_errors_print_markdown);
    assert_non_null(strstr(errors, "| `SHOAL_EFULL` | 3 | out of chunk memory | "));
    /* A bar within a cell would end it. */
    for (char *line = strstr(errors, "| `SHOAL_"); line && *line != '\0';) {
        int bars = 0;
        for (; *line != '\n'; line++)
            bars += *line == '|';
        assert_int_equal(bars, 5);
        line++;
    }
    free(errors);
    char *options = printed(sh_options_print_markdown);
    assert_non_null(strstr(options, "| `ring_bytes` | `1MiB` | 4KiB to 1GiB | "));
    free(options);
}

static void test_help_names_everything(void **state)
{
    (void)state;
    char *help = printed(sh_options_print_help);
    for (size_t i = 0; i < sh_option_table.count; i++) {
        char flag[SH_OPTION_WORD_MAX], variable[SH_OPTION_WORD_MAX];
        sh_option_flag_name(&sh_option_table.rows[i], flag);
        sh_option_variable_name(&sh_option_table.rows[i], variable);
        assert_non_null(strstr(help, flag));
        assert_non_null(strstr(help, variable));
    }
    assert_non_null(strstr(help, "ring_bytes = 1MiB\n    --ring-bytes, SHOAL_RING_BYTES; 4KiB to "
                                 "1GiB\n    outgoing bytes"));
    for (const char *line = help; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(help);
}

static void test_json_can_be_read_again(void **state)
{
    (void)state;
    char path[] = "/tmp/shoal-options-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct sh_options_error error;
    struct sh_options options, again;
    assert_int_equal(sh_options_init(&options), SHOAL_OK);
    assert_int_equal(sh_options_init(&again), SHOAL_OK);
    assert_int_equal(sh_options_set(&options, "cluster", "a \"b\"\n", "test", &error), SHOAL_OK);
    assert_int_equal(sh_options_set(&options, "superpeers", "x:1,y:2", "test", &error), SHOAL_OK);
    assert_int_equal(sh_options_set(&options, "silence_ns", "1.25s", "test", &error), SHOAL_OK);
    FILE *out = fdopen(fd, "w");
    assert_non_null(out);
    sh_options_print_json(&options, out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(sh_options_read_file(&again, path, &error), SHOAL_OK);
    assert_string_equal(again.cluster, "a \"b\"\n");
    assert_int_equal(again.superpeers.count, 2);
    assert_string_equal(again.superpeers.items[1], "y:2");
    assert_int_equal(again.silence_ns, 1250000000);
    assert_int_equal(again.store_bytes_max, options.store_bytes_max);
    assert_int_equal(unlink(path), 0);
    sh_options_destroy(&options);
    sh_options_destroy(&again);
}

static void test_json_has_a_line_per_option(void **state)
{
    (void)state;
    char *text = printed(print_default_json);
    size_t lines = 0;
    for (const char *at = text; *at != '\0'; at++)
        lines += *at == '\n';
    assert_int_equal(lines, sh_option_table.count + 2);
    struct sh_json *root = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strlen(text), &root, &error), SHOAL_OK);
    assert_int_equal(sh_json_count(root), sh_option_table.count);
    assert_true(sh_json_is_array(sh_json_get(root, "roles")));
    assert_int_equal(sh_json_u64(sh_json_get(root, "ring_bytes")), 1 << 20);
    sh_json_free(root);
    free(text);
}

static void test_truth_values_print(void **state)
{
    (void)state;
    static const struct sh_option_row row = {"loud", SH_OPTION_BOOL, "", 0, 1, "true", "", 0};
    bool loud = true;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    sh_option_set_print_json((struct sh_option_set){{&row, 1}, &loud}, out);
    loud = false;
    sh_option_set_print_json((struct sh_option_set){{&row, 1}, &loud}, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, "{\n  \"loud\": true\n}\n{\n  \"loud\": false\n}\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages_match_the_tables),
        cmocka_unit_test(test_pages_are_tables),
        cmocka_unit_test(test_help_names_everything),
        cmocka_unit_test(test_json_can_be_read_again),
        cmocka_unit_test(test_json_has_a_line_per_option),
        cmocka_unit_test(test_truth_values_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
