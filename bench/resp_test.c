#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bench/resp.h"

static void commands_are_as_written_by_hand(void **state)
{
    (void)state;
    uint8_t out[512];
    uint8_t *value = NULL;
    uint8_t *end = sh_resp_get(out, 10000042);
    *end = 0;
    assert_string_equal((char *)out, "*2\r\n$3\r\nGET\r\n$8\r\n10000042\r\n");
    end = sh_resp_set(out, UINT64_MAX, 5, &value);
    memcpy(value, "hello", 5);
    *end = 0;
    assert_string_equal((char *)out,
                        "*3\r\n$3\r\nSET\r\n$20\r\n18446744073709551615\r\n$5\r\nhello\r\n");
    assert_true((size_t)(end - out) <= SH_RESP_COMMAND_BYTES(1, 5));
    const uint64_t keys[] = {0, UINT64_MAX, 9999999999};
    end = sh_resp_mget(out, keys, 3);
    *end = 0;
    assert_string_equal((char *)out,
                        "*4\r\n$4\r\nMGET\r\n$1\r\n0\r\n$20\r\n18446744073709551615\r\n"
                        "$10\r\n9999999999\r\n");
    assert_true((size_t)(end - out) <= SH_RESP_COMMAND_BYTES(3, 0));
}

/* Reads a reply from memory of exactly its size, so that the address sanitizer sees any step past
 * it; and each of its beginnings, which must all be partial. */
static struct sh_resp read_exact(const char *text, size_t size)
{
    struct sh_resp whole = {.kind = SH_RESP_BAD};
    for (size_t cut = 0; cut <= size; cut++) {
        uint8_t *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, text, cut);
        whole = sh_resp_read(sh_bytes_make(copy, cut));
        if (cut < size)
            assert_int_equal(whole.kind, SH_RESP_PARTIAL);
        free(copy);
    }
    return whole;
}

static void replies_are_read_whole_or_not(void **state)
{
    (void)state;
    struct sh_resp reply = read_exact("+OK\r\n", 5);
    assert_int_equal(reply.kind, SH_RESP_STATUS);
    assert_int_equal(reply.taken, 5);
    reply = read_exact("$5\r\nhe\r\no\r\n", 11);
    assert_int_equal(reply.kind, SH_RESP_BULK);
    assert_int_equal(reply.taken, 11);
    assert_int_equal(reply.bytes.size, 5);
    reply = read_exact("$-1\r\n", 5);
    assert_int_equal(reply.kind, SH_RESP_NIL);
    reply = read_exact("*32\r\n", 5);
    assert_int_equal(reply.kind, SH_RESP_ARRAY);
    assert_int_equal(reply.count, 32);
    reply = read_exact("-ERR no\r\n", 9);
    assert_int_equal(reply.kind, SH_RESP_ERROR);
}

static void nonsense_is_bad(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\r\n",    "x\r\n",      "$\r\n",   "$x\r\n",          "$99999999999\r\n",
        "*-1\r\n", "*70000\r\n", "$-2\r\n", "$ 5\r\nhello\r\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(sh_resp_read(sh_bytes_text(bad[i])).kind, SH_RESP_BAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_are_as_written_by_hand),
        cmocka_unit_test(replies_are_read_whole_or_not),
        cmocka_unit_test(nonsense_is_bad),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
