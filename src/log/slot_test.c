/* Heads of a log file and of its slots. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "log/slot.h"

#define NUMBER UINT64_C(0x2122232425262728)

static const struct sh_log_file file = {.cluster = UINT64_C(0x0102030405060708),
                                        .number = NUMBER,
                                        .node = 0x1112,
                                        .slot_bytes = 0x31323000,
                                        .slots = 0x414243,
                                        .primary_blocks = 0x51525354};
static const struct sh_log_slot_head slot = {.zone = UINT64_C(0x0102030405060708),
                                             .use = UINT64_C(0x1112131415161718),
                                             .file = NUMBER,
                                             .owner = 0x3132,
                                             .kind = SH_SLOT_VERSIONS,
                                             .incarnation = 0x41424344,
                                             .seconds = 0x61626364,
                                             .flush_least = UINT64_C(0x2122232425262728)};

/* Calls of `each` for every bit of the first 64 bytes that has turned over. */
static void with_damage(uint8_t *block, void (*each)(const uint8_t *block))
{
    for (unsigned bit = 0; bit < 64 * 8; bit++) {
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
        each(block);
        block[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void file_is_refused(const uint8_t *block)
{
    struct sh_log_file got = {.node = 7};
    assert_int_equal(sh_log_file_get(block, &got), SHOAL_ECORRUPT);
    assert_int_equal(got.node, 7);
}

static void slot_is_refused(const uint8_t *block)
{
    struct sh_log_slot_head got = {.owner = 7};
    assert_false(sh_log_slot_get(block, NUMBER, &got));
    assert_int_equal(got.owner, 7);
}

static void slot_has_a_copy(const uint8_t *block)
{
    struct sh_log_slot_head got = {.owner = 7};
    assert_true(sh_log_slot_get(block, NUMBER, &got));
    assert_true(got.zone == slot.zone && got.use == slot.use && got.seconds == slot.seconds);
    assert_true(sh_log_slot_is_half(block));
}

static void test_file(void **state)
{
    (void)state;
    uint8_t block[SH_SLOT_HEAD_BYTES];
    struct sh_log_file got;
    memset(block, 0xff, sizeof block);
    sh_log_file_put(&file, block);
    assert_int_equal(sh_log_file_get(block, &got), SHOAL_OK);
    assert_int_equal(got.cluster, file.cluster);
    assert_int_equal(got.number, file.number);
    assert_int_equal(got.node, file.node);
    assert_int_equal(got.slot_bytes, file.slot_bytes);
    assert_int_equal(got.slots, file.slots);
    assert_int_equal(got.primary_blocks, file.primary_blocks);
    for (size_t i = 64; i < sizeof block; i++)
        assert_int_equal(block[i], 0);
    with_damage(block, file_is_refused);
    memset(block, 0, sizeof block);
    assert_int_equal(sh_log_file_get(block, &got), SHOAL_ENONAME);
    block[sizeof block - 1] = 1;
    file_is_refused(block);
}

static void test_places(void **state)
{
    (void)state;
    struct sh_log_file small = {.slot_bytes = 8192, .slots = 3, .primary_blocks = 5};
    assert_int_equal(sh_log_primary_at(), 4096);
    assert_int_equal(sh_log_slot_at(&small, 0), 6 * 4096);
    assert_int_equal(sh_log_slot_at(&small, 2), 10 * 4096);
    assert_int_equal(sh_log_file_bytes(&small), 12 * 4096);
    struct sh_log_file large = {
        .slot_bytes = 8 << 20, .slots = UINT32_MAX, .primary_blocks = UINT32_MAX};
    assert_true(sh_log_file_bytes(&large) ==
                4096 + UINT64_C(4096) * UINT32_MAX + (UINT64_C(8) << 20) * UINT32_MAX);
}

static void test_slot(void **state)
{
    (void)state;
    uint8_t block[SH_SLOT_HEAD_BYTES];
    struct sh_log_slot_head got;
    memset(block, 0xff, sizeof block);
    sh_log_slot_put(&slot, block);
    assert_true(sh_log_slot_get(block, NUMBER, &got));
    assert_int_equal(got.zone, slot.zone);
    assert_int_equal(got.use, slot.use);
    assert_int_equal(got.file, NUMBER);
    assert_int_equal(got.owner, slot.owner);
    assert_int_equal(got.kind, SH_SLOT_VERSIONS);
    assert_int_equal(got.incarnation, slot.incarnation);
    assert_int_equal(got.seconds, slot.seconds);
    assert_false(sh_log_slot_get(block, NUMBER + 1, &got)); /* of another file */
    assert_int_equal(got.flush_least, slot.flush_least);
    assert_false(sh_log_slot_is_half(block));
    with_damage(block, slot_has_a_copy);
    memset(block + 2048, 0, 64); /* as it was written before there were two */
    assert_false(sh_log_slot_is_half(block));
    with_damage(block, slot_is_refused);
    sh_log_slot_put(&slot, block);
    memset(block, 0, 2048); /* a crash has left the second one only */
    assert_true(sh_log_slot_get(block, NUMBER, &got));
    assert_false(sh_log_slot_is_half(block));
    memset(block, 0, sizeof block);
    slot_is_refused(block);
    assert_false(sh_log_slot_is_damaged(block, NUMBER));
}

/* A head of which both copies are damaged is told from one that a crash has torn. */
static void test_damaged_or_torn(void **state)
{
    (void)state;
    uint8_t block[SH_SLOT_HEAD_BYTES], torn[SH_SLOT_HEAD_BYTES];
    sh_log_slot_put(&slot, block);
    block[2048 + 9] ^= 1;
    block[40] ^= 1;
    slot_is_refused(block);
    assert_true(sh_log_slot_is_damaged(block, NUMBER));
    sh_log_slot_put(&slot, block);
    for (unsigned cut = 0; cut < 34; cut++) { /* a whole head may have zeros behind it, too */
        memset(torn, 0, sizeof torn);
        memcpy(torn, block, cut);
        memcpy(torn + 2048 + 64 - cut, block + 64 - cut, cut);
        slot_is_refused(torn);
        assert_false(sh_log_slot_is_damaged(torn, NUMBER));
    }
}

/* With a right sum, but not what we write. */
static void unsound(uint8_t *block, size_t at, uint8_t value)
{
    uint8_t kept = block[at];
    block[at] = value;
    sh_store32(block + 4, sh_crc32c(0, sh_bytes_make(block + 8, 56)));
    if (at < 34)
        file_is_refused(block);
    else
        slot_is_refused(block);
    block[at] = kept;
}

static void test_unsound(void **state)
{
    (void)state;
    uint8_t block[SH_SLOT_HEAD_BYTES];
    struct sh_log_file got;
    struct sh_log_file least = {.slot_bytes = SH_LOG_SLOT_BYTES_MIN, .slots = 1};
    sh_log_file_put(&least, block);
    unsound(block, 22, 0);    /* a slot of 0 bytes */
    unsound(block, 20, 1);    /* of 65537 */
    unsound(block, 23, 0x40); /* of more than 1 GiB */
    unsound(block, 24, 0);    /* no slots */
    unsound(block, 27, 2);    /* more than there may be */
    unsound(block, 28, 255);  /* a primary log in which a pack has no room */
    block[18]++;              /* the format of a later build */
    sh_store32(block + 4, sh_crc32c(0, sh_bytes_make(block + 8, 56)));
    assert_int_equal(sh_log_file_get(block, &got), SHOAL_EVERSION);
    sh_log_slot_put(&slot, block);
    memset(block + 2048, 0, 64);
    unsound(block, 34, 0);
    unsound(block, 34, 5);
    unsound(block, 34, SH_SLOT_ENTRIES | 0x80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),    cmocka_unit_test(test_places),
        cmocka_unit_test(test_slot),    cmocka_unit_test(test_damaged_or_torn),
        cmocka_unit_test(test_unsound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
