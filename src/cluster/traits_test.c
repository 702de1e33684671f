/* Traits as bytes: what is told comes back, and what no node tells is refused. */
#include "base/random_test.h"
#include "cluster/traits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static size_t put(const struct sh_traits *traits, uint8_t bytes[SH_TRAITS_BYTES_MAX])
{
    struct sh_writer w = sh_writer_make(bytes, SH_TRAITS_BYTES_MAX);
    sh_traits_put(&w, traits);
    assert_true(sh_writer_ok(&w));
    assert_int_equal((size_t)(w.at - bytes), sh_traits_size(traits));
    return (size_t)(w.at - bytes);
}

static enum shoal_err get(const uint8_t *bytes, size_t size, struct sh_traits *traits_out)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
    enum shoal_err err = sh_traits_get(&r, traits_out);
    if (!err)
        assert_true(sh_reader_done(&r));
    return err;
}

static void drawn(uint64_t *random, struct sh_traits *traits_out)
{
    *traits_out = (struct sh_traits){.keeps_replicas = test_draw(random) % 2,
                                     .keeps_chunks = test_draw(random) % 2,
                                     .is_replicated = test_draw(random) % 2};
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        size_t size = test_draw(random) % SH_DOMAIN_NAME_MAX;
        for (size_t k = 0; k < size; k++)
            traits_out->domains[i][k] = (char)('!' + test_draw(random) % 94);
    }
}

/* Whatever they are, they come back; every one that is cut is refused, and changes nothing. */
static void traits_come_back(void **state)
{
    (void)state;
    uint64_t random = test_seed(UINT64_C(0x7a17));
    for (unsigned i = 0; i < 300; i++) {
        struct sh_traits traits, got, kept;
        uint8_t bytes[SH_TRAITS_BYTES_MAX];
        drawn(&random, &traits);
        assert_true(sh_traits_are_valid(&traits));
        size_t size = put(&traits, bytes);
        memset(&got, 0xA5, sizeof got);
        kept = got;
        for (size_t cut = 0; cut < size; cut++)
            assert_int_equal(get(bytes, cut, &got), SHOAL_EPROTO);
        assert_memory_equal(&got, &kept, sizeof got);
        assert_int_equal(get(bytes, size, &got), SHOAL_OK);
        assert_true(sh_traits_are_equal(&traits, &got));
        assert_true(sh_traits_digest(&traits, i) == sh_traits_digest(&got, i));
    }
}

/* A node's traits take one byte where it names none, and the layout is that of the page. */
static void the_layout_is_as_documented(void **state)
{
    (void)state;
    uint8_t bytes[SH_TRAITS_BYTES_MAX];
    const struct sh_traits none = {.keeps_replicas = false};
    assert_int_equal(put(&none, bytes), 1);
    assert_int_equal(bytes[0], 0);
    const struct sh_traits some = {.keeps_replicas = true, .domains = {"", "r7", "s"}};
    static const uint8_t as_documented[] = {1 | 4 | 8, 2, 0, 'r', '7', 1, 0, 's'};
    assert_int_equal(put(&some, bytes), sizeof as_documented);
    assert_memory_equal(bytes, as_documented, sizeof as_documented);
    const struct sh_traits home = {.keeps_chunks = true};
    assert_int_equal(put(&home, bytes), 1);
    assert_int_equal(bytes[0], 16);
    assert_false(sh_traits_are_equal(&none, &home));
    assert_true(sh_traits_digest(&none, 1) != sh_traits_digest(&home, 1));
}

static void others_are_refused(void **state)
{
    (void)state;
    struct sh_traits got;
    uint8_t longest[3 + SH_DOMAIN_NAME_MAX] = {2, SH_DOMAIN_NAME_MAX - 1, 0};
    memset(longest + 3, 'm', SH_DOMAIN_NAME_MAX);
    assert_int_equal(get(longest, 3 + SH_DOMAIN_NAME_MAX - 1, &got), SHOAL_OK);
    assert_int_equal(strlen(got.domains[SH_DOMAIN_MACHINE]), SH_DOMAIN_NAME_MAX - 1);
    longest[1] = SH_DOMAIN_NAME_MAX;
    assert_int_equal(get(longest, sizeof longest, &got), SHOAL_EPROTO);
    static const struct {
        uint8_t bytes[6];
        size_t size;
    } wrong[] = {
        {{64}, 1},                    /* an unknown flag */
        {{128}, 1},                   /**/
        {{2, 0, 0}, 3},               /* an empty name */
        {{4, 2, 0, 'a', ' '}, 5},     /* a blank */
        {{8, 2, 0, 'a', 0x1b}, 5},    /* a control character */
        {{8, 2, 0, 'a', '\0'}, 5},    /**/
        {{2, 2, 0, 0xC3, 0xA4}, 5},   /* no ASCII */
        {{2 | 4, 1, 0, 'a', 1, 0}, 6} /* the second name is not there */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (get(wrong[i].bytes, wrong[i].size, &got) != SHOAL_EPROTO)
            fail_msg("wrong[%zu] was taken", i);
}

/* Each part counts, and a name is of its own kind of domain. */
static void each_part_tells_them_apart(void **state)
{
    (void)state;
    static const struct sh_traits all[] = {
        {.keeps_replicas = false},
        {.keeps_replicas = true},
        {.keeps_chunks = true},
        {.keeps_replicas = true, .keeps_chunks = true},
        {.is_replicated = true},
        {.keeps_replicas = true, .is_replicated = true},
        {.keeps_replicas = true, .domains = {"a", "", ""}},
        {.keeps_replicas = true, .domains = {"", "a", ""}},
        {.keeps_replicas = true, .domains = {"", "", "a"}},
        {.keeps_replicas = true, .domains = {"", "", "b"}},
        {.keeps_replicas = true, .domains = {"a", "b", ""}},
        {.keeps_replicas = true, .domains = {"ab", "", ""}},
        {.keeps_replicas = false, .domains = {"a", "", ""}},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++) {
            assert_int_equal(sh_traits_are_equal(&all[i], &all[k]), i == k);
            assert_int_equal(sh_traits_digest(&all[i], 7) == sh_traits_digest(&all[k], 7), i == k);
        }
    }
    assert_true(sh_traits_digest(&all[0], 7) != sh_traits_digest(&all[0], 8));
}

static void only_words_are_valid(void **state)
{
    (void)state;
    struct sh_traits traits = {.domains = {"row2-rack7", "", "~!"}};
    assert_true(sh_traits_are_valid(&traits));
    traits.domains[SH_DOMAIN_RACK][0] = ' ';
    assert_false(sh_traits_are_valid(&traits));
    memset(traits.domains[SH_DOMAIN_RACK], 'r', SH_DOMAIN_NAME_MAX); /* without an end */
    assert_false(sh_traits_are_valid(&traits));
    traits.domains[SH_DOMAIN_RACK][SH_DOMAIN_NAME_MAX - 1] = '\0';
    assert_true(sh_traits_are_valid(&traits));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(traits_come_back),     cmocka_unit_test(the_layout_is_as_documented),
        cmocka_unit_test(others_are_refused),   cmocka_unit_test(each_part_tells_them_apart),
        cmocka_unit_test(only_words_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
