#include "base/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_prints(const struct sh_json *root, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    sh_json_print(root, out);
    assert_int_equal(fclose(out), 0);
    assert_string_equal(text, expected);
    free(text);
}

static struct sh_json *parse(const char *text)
{
    struct sh_json *root = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, strlen(text), &root, &error), SHOAL_OK);
    assert_non_null(root);
    return root;
}

static void test_prints_what_was_built(void **state)
{
    (void)state;
    struct sh_json *root = sh_json_object();
    sh_json_set_u64(root, "zero", 0);
    sh_json_set_u64(root, "large", UINT64_MAX);
    sh_json_set_u64(root, "signed", INT64_MAX);
    sh_json_set_u64(root, "above", (uint64_t)INT64_MAX + 1);
    sh_json_set_f64(root, "tenth", 0.1);
    sh_json_set_f64(root, "nan", NAN);
    sh_json_set_bool(root, "yes", true);
    sh_json_set_bool(root, "no", false);
    sh_json_set_text(root, "text", "a \"b\"\n\x01 \xC3\xA9");
    sh_json_set_text(root, "none", NULL);
    struct sh_json *list = sh_json_array();
    sh_json_append_u64(list, 1);
    sh_json_append_text(list, "two");
    sh_json_append(list, sh_json_object());
    sh_json_append_u64(list, UINT64_MAX);
    sh_json_set(root, "list", list);
    sh_json_set_u64(root, "zero", 5);
    assert_prints(root, "{\"zero\":5,\"large\":18446744073709551615,"
                        "\"signed\":9223372036854775807,\"above\":9223372036854775808,"
                        "\"tenth\":0.1,\"nan\":null,\"yes\":true,\"no\":false,"
                        "\"text\":\"a \\\"b\\\"\\n\\u0001 \xC3\xA9\",\"none\":null,"
                        "\"list\":[1,\"two\",{},18446744073709551615]}\n");
    const struct sh_json *large = sh_json_get(root, "large");
    assert_true(sh_json_is_number(large) && !sh_json_is_text(large));
    assert_true(sh_json_u64(large) == UINT64_MAX);
    assert_true(sh_json_f64(large) == (double)UINT64_MAX);
    assert_null(sh_json_text(large));
    sh_json_free(root);
}

static void test_bad_bytes_are_replaced(void **state)
{
    (void)state;
    struct sh_json *root = sh_json_array();
    sh_json_append_text(root, "a\xFF\x80z");
    sh_json_append_text(root, "\xE2\x82\xAC\xE2\x82");
    sh_json_append_text(root, "");
    assert_prints(root, "[\"a\xEF\xBF\xBD\xEF\xBF\xBDz\","
                        "\"\xE2\x82\xAC\xEF\xBF\xBD\xEF\xBF\xBD\",\"\"]\n");
    sh_json_free(root);
}

static void test_null_is_safe(void **state)
{
    (void)state;
    sh_json_set_u64(NULL, "a", 1);
    sh_json_append_text(NULL, "a");
    sh_json_set(NULL, "a", sh_json_object());
    sh_json_append(NULL, sh_json_array());
    assert_null(sh_json_get(NULL, "a"));
    assert_null(sh_json_at(NULL, 0));
    assert_int_equal(sh_json_count(NULL), 0);
    assert_null(sh_json_text(NULL));
    assert_int_equal(sh_json_u64(NULL), 0);
    assert_true(sh_json_f64(NULL) == 0);
    assert_false(sh_json_bool(NULL) || sh_json_is_text(NULL) || sh_json_is_number(NULL) ||
                 sh_json_is_bool(NULL) || sh_json_is_object(NULL) || sh_json_is_array(NULL) ||
                 sh_json_is_negative(NULL));
    sh_json_free(NULL);
}

struct keys {
    char joined[64];
    size_t stop_after;
};

static bool join(void *arg, const char *key, const struct sh_json *value)
{
    struct keys *keys = arg;
    assert_non_null(value);
    strcat(keys->joined, key);
    return --keys->stop_after > 0;
}

static void test_reading(void **state)
{
    (void)state;
    struct sh_json *root = parse("{\"z\": 3, \"a\": [true, -4, 2.5, \"x\"], \"m\": {\"n\": 1}}");
    assert_true(sh_json_is_object(root));
    assert_int_equal(sh_json_count(root), 3);
    assert_int_equal(sh_json_u64(sh_json_get(root, "z")), 3);
    assert_null(sh_json_get(root, "missing"));
    const struct sh_json *list = sh_json_get(root, "a");
    assert_true(sh_json_is_array(list));
    assert_int_equal(sh_json_count(list), 4);
    assert_true(sh_json_is_bool(sh_json_at(list, 0)) && sh_json_bool(sh_json_at(list, 0)));
    assert_true(sh_json_is_negative(sh_json_at(list, 1)));
    assert_int_equal(sh_json_u64(sh_json_at(list, 1)), 0);
    assert_true(sh_json_f64(sh_json_at(list, 1)) == -4);
    assert_false(sh_json_is_number(sh_json_at(list, 2)));
    assert_true(sh_json_f64(sh_json_at(list, 2)) == 2.5);
    assert_string_equal(sh_json_text(sh_json_at(list, 3)), "x");
    assert_null(sh_json_at(list, 4));
    assert_null(sh_json_get(list, "z"));
    struct keys keys = {.stop_after = 9};
    sh_json_each(root, join, &keys);
    assert_string_equal(keys.joined, "zam");
    keys = (struct keys){.stop_after = 2};
    sh_json_each(root, join, &keys);
    assert_string_equal(keys.joined, "za");
    sh_json_free(root);
}

static void test_errors_have_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int line, column;
        const char *says;
    } wrong[] = {
        {"", 1, 1, "end of file"},
        {"3", 1, 1, "expected"},
        {"{\"a\":1,}", 1, 8, "'}'"},
        {"{\n  \"a\": 1\n  \"b\": 2}", 3, 3, "\"b\""},
        {"{\"a\":1,\"a\":2}", 1, 8, "duplicate"},
        {"{\"\xC3\xA9\": tru}", 1, 7, "tru"},
        {"{\"a\": 99999999999999999999}", 1, 7, "too big integer"},
        {"{\"a\": 'x'}", 1, 7, "invalid token"},
        {"{\"a\":\"\\u0000\"}", 1, 6, "not allowed"},
        {"[1] x", 1, 5, "end of file expected"},
        {"{\"a\": 1", 1, 8, "end of file"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct sh_json *root = NULL;
        struct sh_json_error error = {0, 0, ""};
        assert_int_equal(sh_json_parse(wrong[i].text, strlen(wrong[i].text), &root, &error),
                         SHOAL_EPARSE);
        assert_null(root);
        assert_int_equal(error.line, wrong[i].line);
        assert_int_equal(error.column, wrong[i].column);
        assert_non_null(strstr(error.text, wrong[i].says));
    }
}

static void test_too_deep_is_refused(void **state)
{
    (void)state;
    enum { DEPTH = 100000 };
    char *text = malloc(DEPTH);
    assert_non_null(text);
    memset(text, '[', DEPTH);
    struct sh_json *root = NULL;
    struct sh_json_error error;
    assert_int_equal(sh_json_parse(text, DEPTH, &root, &error), SHOAL_EPARSE);
    free(text);
}

static void test_member_places(void **state)
{
    (void)state;
    const char *text = "{ \"a\": {\"x\": 1, \"y\": [\"q\", {\"b\": 2}]},\n"
                       "  \"k,{\\\"\": \"v,{\",\n"
                       "  \"\xC3\xA9\": 1, \"last\": []}\n";
    sh_json_free(parse(text));
    static const int places[][2] = {{1, 3}, {2, 3}, {3, 3}, {3, 11}};
    int line = 0, column = 0;
    for (size_t i = 0; i < 4; i++) {
        assert_true(sh_json_member_place(text, strlen(text), i, &line, &column));
        assert_int_equal(line, places[i][0]);
        assert_int_equal(column, places[i][1]);
    }
    assert_false(sh_json_member_place(text, strlen(text), 4, &line, &column));
    assert_false(sh_json_member_place("[\"a\"]", 5, 0, &line, &column));
    assert_false(sh_json_member_place("[0,\"a\"]", 7, 0, &line, &column));
    assert_false(sh_json_member_place("[{\"a\":1}]", 9, 0, &line, &column));
    assert_false(sh_json_member_place("{}", 2, 0, &line, &column));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prints_what_was_built), cmocka_unit_test(test_bad_bytes_are_replaced),
        cmocka_unit_test(test_null_is_safe),          cmocka_unit_test(test_reading),
        cmocka_unit_test(test_errors_have_a_place),   cmocka_unit_test(test_too_deep_is_refused),
        cmocka_unit_test(test_member_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
