#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <string.h>

#include "base/options.h"

static const char *const words[] = {"status", "bench", "node", "up", "graph"};

static const char *nearest(const char *word)
{
    return sh_nearest_word(word, words, sizeof words / sizeof words[0]);
}

static void test_near_words(void **state)
{
    (void)state;
    assert_string_equal(nearest("status"), "status");
    assert_string_equal(nearest("statsu"), "status"); /* neighbours swapped */
    assert_string_equal(nearest("sttus"), "status");  /* left out */
    assert_string_equal(nearest("benchh"), "bench");  /* too much */
    assert_string_equal(nearest("grabh"), "graph");   /* changed */
    assert_string_equal(nearest("ndoe"), "node");
}

static void test_far_words(void **state)
{
    (void)state;
    assert_null(nearest(""));
    assert_null(nearest("xp")); /* a third of two letters is none */
    assert_null(nearest("nxxe"));
    assert_null(nearest("completely different"));
    assert_null(sh_nearest_word("node", words, 0));
    char huge[1000];
    memset(huge, 'x', sizeof huge - 1);
    huge[sizeof huge - 1] = '\0';
    assert_null(nearest(huge));
}

static void test_option_names(void **state)
{
    (void)state;
    assert_string_equal(sh_options_nearest("ringbytes"), "ring_bytes");
    assert_string_equal(sh_options_nearest("ring-byte"), "ring_bytes");
    assert_string_equal(sh_options_nearest("lsiten"), "listen");
    assert_null(sh_options_nearest("nothing-like-it"));
    /* The nearest of several. */
    assert_string_equal(sh_options_nearest("connect_timeout"), "connect_timeout_ns");
    assert_string_equal(sh_options_nearest("chunk_bytes_mx"), "chunk_bytes_max");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near_words),
        cmocka_unit_test(test_far_words),
        cmocka_unit_test(test_option_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
