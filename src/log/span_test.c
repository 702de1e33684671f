/* Heads of spans: all fields come back, and no damage passes. */
#include "log/span.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct sh_span example = {
    .zone = UINT64_C(0x0102030405060708),
    .use = UINT64_C(0x1112131415161718),
    .first = UINT64_C(0x2122232425262728),
    .sequences = 0x31323334,
    .bytes = 0x41424344,
    .whole = UINT64_C(0xc1c2c3c4c5c6c7c8),
    .incarnation = 0x51525354,
    .life = 0xd1d2,
    .life_first = UINT64_C(0xe1e2e3e4e5e6e7e8),
    .sound = 0xf1f2f3f4,
    .is_synced_later = true,
    .context = {.local_id = UINT64_C(0x616263646566),
                .size = 0x717273,
                .seconds = 0x81828384,
                .sum = 0xb1b2b3b4,
                .creator = 0x9192,
                .epoch = 0xa1a2},
    .ordinal = UINT64_C(0x0a1a2a3a4a5a6a7a),
    .tells = true,
    .teller = UINT64_C(0x0e1e2e3e4e5e6e7e),
    .tells_slotted = true,
    .unslotted_piece = 0xa7b8,
    .unsettled = 0x2b3b,
    .noted = 0x0b1b,
    .counted = 0x0c1c2c3c,
    .unslotted = 0x0d1d2d3d,
    .flushes = 0x0f1f2f3f,
};

static void assert_same(const struct sh_span *a, const struct sh_span *b)
{
    assert_int_equal(a->zone, b->zone);
    assert_int_equal(a->use, b->use);
    assert_int_equal(a->first, b->first);
    assert_int_equal(a->sequences, b->sequences);
    assert_int_equal(a->bytes, b->bytes);
    assert_int_equal(a->whole, b->whole);
    assert_int_equal(a->incarnation, b->incarnation);
    assert_int_equal(a->life, b->life);
    assert_int_equal(a->life_first, b->life_first);
    assert_int_equal(a->sound, b->sound);
    assert_int_equal(a->is_synced_later, b->is_synced_later);
    assert_int_equal(a->context.local_id, b->context.local_id);
    assert_int_equal(a->context.size, b->context.size);
    assert_int_equal(a->context.seconds, b->context.seconds);
    assert_int_equal(a->context.sum, b->context.sum);
    assert_int_equal(a->context.creator, b->context.creator);
    assert_int_equal(a->context.epoch, b->context.epoch);
    assert_int_equal(a->ordinal, b->ordinal);
    assert_int_equal(a->tells, b->tells);
    assert_int_equal(a->teller, b->teller);
    assert_int_equal(a->unslotted_piece, b->unslotted_piece);
    assert_int_equal(a->tells_slotted, b->tells_slotted);
    assert_int_equal(a->unsettled, b->unsettled);
    assert_int_equal(a->noted, b->noted);
    assert_int_equal(a->gives, b->gives);
    assert_int_equal(a->given_use, b->given_use);
    assert_int_equal(a->given_parts, b->given_parts);
    assert_int_equal(a->counted, b->counted);
    assert_int_equal(a->unslotted, b->unslotted);
    assert_int_equal(a->flushes, b->flushes);
}

static void test_fields(void **state)
{
    (void)state;
    uint8_t head[SH_SPAN_HEAD_BYTES];
    struct sh_span got;
    sh_span_put(&example, head);
    assert_true(sh_span_get(head, &got));
    assert_same(&got, &example);
    struct sh_span first = {.context = sh_replog_context_first(64, 3, 5, 6)};
    sh_span_put(&first, head);
    assert_true(sh_span_get(head, &got));
    assert_same(&got, &first);
}

/* One that gives a slot away has that in place of its entries' context. */
static void test_gives(void **state)
{
    (void)state;
    uint8_t head[SH_SPAN_HEAD_BYTES];
    struct sh_span gives = example, got;
    gives.bytes = 0;
    gives.gives = true;
    gives.given_use = UINT64_C(0xfedcba9876543210);
    gives.given_parts = 0x89abcdef;
    sh_span_put(&gives, head);
    assert_true(sh_span_get(head, &got));
    gives.context = (struct sh_replog_context){.size = 0};
    assert_same(&got, &gives);
}

/* The format is what it was: a log that was written by an earlier build is read. */
static void test_format(void **state)
{
    (void)state;
    static const uint8_t expected[] = {
        0,    0,    0,    0,    8,    7,    6,    5,    4,    3,    2,    1,    0x18, 0x17, 0x16,
        0x15, 0x14, 0x13, 0x12, 0x11, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33,
        0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0x54, 0x53, 0x52, 0x51, 0x66, 0x65, 0x64, 0x63, 0x62,
        0x61, 0x92, 0x91, 0x73, 0x72, 0x71, 0,    0x84, 0x83, 0x82, 0x81, 0xb4, 0xb3, 0xb2, 0xb1,
        0xa2, 0xa1, 0xd2, 0xd1, 0xc8, 0xc7, 0xc6, 0xc5, 0xc4, 0xc3, 0xc2, 0xc1, 0xe8, 0xe7, 0xe6,
        0xe5, 0xe4, 0xe3, 0xe2, 0xe1, 0xf4, 0xf3, 0xf2, 0xf1, 7,    0,    0xb8, 0xa7, 0x7a, 0x6a,
        0x5a, 0x4a, 0x3a, 0x2a, 0x1a, 0x0a, 0x7e, 0x6e, 0x5e, 0x4e, 0x3e, 0x2e, 0x1e, 0x0e, 0x3b,
        0x2b, 0x1b, 0x0b, 0x3c, 0x2c, 0x1c, 0x0c, 0x3d, 0x2d, 0x1d, 0x0d, 0x3f, 0x2f, 0x1f, 0x0f,
    };
    uint8_t head[SH_SPAN_HEAD_BYTES];
    sh_span_put(&example, head);
    memset(head, 0, 4); /* the sum, which test_damage looks at */
    assert_memory_equal(head, expected, sizeof expected);
}

static void test_damage(void **state)
{
    (void)state;
    uint8_t head[SH_SPAN_HEAD_BYTES];
    struct sh_span got = example;
    sh_span_put(&example, head);
    for (unsigned bit = 0; bit < SH_SPAN_HEAD_BYTES * 8; bit++) {
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
        got.zone = 7;
        assert_false(sh_span_get(head, &got));
        assert_int_equal(got.zone, 7);
        head[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    memset(head, 0, sizeof head);
    assert_false(sh_span_get(head, &got));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_gives),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
