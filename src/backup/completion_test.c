/* Completion records: what is written is read, what is none is refused; and what clients have acknowledged, by their records. */
#include "backup/completion.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "msg/once.h"

static uint8_t bytes[SH_COMPLETION_BYTES_MAX];

static struct sh_bytes put(const struct sh_completion *completion)
{
    return sh_bytes_make(bytes, sh_completion_put(completion, bytes));
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    uint64_t seed = test_seed(5);
    size_t longest = 0;
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t draw = test_draw(&seed);
        struct sh_completion completion = {.client = test_draw(&seed) | 1,
                                           .number = 1 + (test_draw(&seed) >> draw % 64),
                                           .chunk = test_draw(&seed),
                                           .is_create = draw >> 8 & 1,
                                           .value = draw >> 9 & 1 ? test_draw(&seed) : 0};
        completion.number -= !completion.number;
        uint64_t ahead = 1 + (draw >> 16) % SH_ONCE_WINDOW;
        completion.acknowledged = completion.number > ahead ? completion.number - ahead : 0;
        if (completion.number - completion.acknowledged > SH_ONCE_WINDOW)
            completion.acknowledged = completion.number - 1;
        if (draw >> 10 & 1) {
            completion.node = (uint16_t)(64 + i);
            completion.acknowledged = 0;
        }
        struct sh_bytes written = put(&completion);
        struct sh_completion read;
        longest = written.size > longest ? written.size : longest;
        assert_true(sh_completion_get(written, &read));
        assert_true(read.client == completion.client && read.number == completion.number &&
                    read.acknowledged == completion.acknowledged && read.node == completion.node &&
                    read.chunk == completion.chunk && read.is_create == completion.is_create &&
                    read.value == completion.value);
        written.size--;
        assert_false(sh_completion_get(written, &read));
    }
    assert_int_equal(longest, SH_COMPLETION_BYTES_MAX);
}

static void what_is_none_is_refused(void **state)
{
    (void)state;
    const struct sh_completion good = {
        .client = 7, .number = 300, .acknowledged = 290, .chunk = UINT64_C(64) << 48 | 5};
    struct sh_completion read;
    struct sh_bytes written = put(&good);
    assert_int_equal(written.size, 21);
    assert_true(sh_completion_get(written, &read));
    static const struct {
        unsigned at;
        uint8_t byte;
    } wrong[] = {
        {0, 0},     /* no number */
        {0, 9},     /* of 9 bytes */
        {0, 0x82},  /* a flag */
        {0, 0x12},  /* a value that is missing */
        {1, 0},     /* no client */
        {11, 0},    /* not above what is acknowledged */
        {12, 0x11}, /* above it by more than the window */
    };
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        (void)put(&good);
        bytes[wrong[i].at] = wrong[i].byte;
        assert_false(sh_completion_get(written, &read));
    }
    (void)put(&good);
    bytes[11] = 0x2d; /* 301 above: below 0 */
    bytes[12] = 0x01;
    assert_false(sh_completion_get(written, &read));
}

/* A record of another node says nothing of what the client has acknowledged. */
static void of_another_node(void **state)
{
    (void)state;
    const struct sh_completion own = {.client = 7, .number = 30, .acknowledged = 29, .chunk = 5};
    const struct sh_completion other = {.client = 7, .number = 20, .node = 65, .chunk = 5};
    struct sh_acknowledged *acknowledged;
    struct sh_completion read;
    assert_int_equal(sh_acknowledged_create(&acknowledged), SHOAL_OK);
    sh_acknowledged_note(acknowledged, 64, put(&own));
    sh_acknowledged_note(acknowledged, 65, put(&own));
    assert_false(sh_acknowledged_has(acknowledged, 64, put(&other)));
    assert_false(sh_acknowledged_has(acknowledged, 65, put(&other)));
    sh_acknowledged_destroy(acknowledged);
    struct sh_bytes written = put(&other);
    assert_true(sh_completion_get(written, &read));
    assert_int_equal(read.node, 65);
    bytes[10] = 0; /* behind flags, client and number */
    assert_false(sh_completion_get(written, &read));
}

static void what_is_acknowledged_is_over(void **state)
{
    (void)state;
    struct sh_acknowledged *acknowledged;
    assert_int_equal(sh_acknowledged_create(&acknowledged), SHOAL_OK);
    struct sh_completion completion = {.client = 7, .number = 300, .acknowledged = 290};
    assert_false(sh_acknowledged_has(acknowledged, 64, put(&completion)));
    sh_acknowledged_note(acknowledged, 64, put(&completion));
    completion.acknowledged = 280; /* an older one, seen later */
    completion.number = 291;
    sh_acknowledged_note(acknowledged, 64, put(&completion));
    assert_false(sh_acknowledged_has(acknowledged, 64, put(&completion)));
    completion.number = 290;
    assert_true(sh_acknowledged_has(acknowledged, 64, put(&completion)));
    assert_false(sh_acknowledged_has(acknowledged, 65, put(&completion)));
    completion.client = 8;
    assert_false(sh_acknowledged_has(acknowledged, 64, put(&completion)));
    /* Others take its place in the end, and then it is not known any more. */
    completion.client = 7;
    struct sh_completion other = {.client = 1000, .number = 300, .acknowledged = 299};
    for (; sh_acknowledged_has(acknowledged, 64, put(&completion)); other.client++) {
        assert_true(other.client < 1000000);
        sh_acknowledged_note(acknowledged, 64, put(&other));
    }
    sh_acknowledged_destroy(acknowledged);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(of_another_node),
        cmocka_unit_test(what_is_acknowledged_is_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
