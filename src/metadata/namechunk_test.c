/* Names as a chunk: what was written is read again, and damage is noticed, wherever it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "metadata/namechunk.h"

static const char *const names[] = {"graph/root", "a", "leader"};

static size_t chunk_make(uint8_t *bytes, size_t room)
{
    struct sh_writer w = sh_writer_make(bytes, room);
    (void)sh_writer_take(&w, SH_NAME_CHUNK_HEAD_BYTES);
    for (size_t i = 0; i < 3; i++) {
        sh_put64(&w, shoal_cid_make((shoal_nid){(uint16_t)(64 + i)}, i + 1).v);
        sh_put_text(&w, sh_bytes_text(names[i]));
    }
    assert_true(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - bytes);
    sh_name_chunk_head(bytes, size, (shoal_nid){65});
    return size;
}

static void test_round_trip(void **state)
{
    (void)state;
    uint8_t bytes[256];
    size_t size = chunk_make(bytes, sizeof bytes);
    struct sh_bytes entries, name;
    shoal_nid nid;
    shoal_cid cid;
    assert_int_equal(sh_name_chunk_get(sh_bytes_make(bytes, size), &nid, &entries), SHOAL_OK);
    assert_int_equal(nid.v, 65);
    struct sh_reader r = sh_reader_make(entries);
    for (size_t i = 0; i < 3; i++) {
        assert_true(sh_name_entry_get(&r, &cid, &name));
        assert_int_equal(name.size, strlen(names[i]));
        assert_memory_equal(name.at, names[i], name.size);
        assert_true(cid.v == shoal_cid_make((shoal_nid){(uint16_t)(64 + i)}, i + 1).v);
        /* 65's chunks have become 70's. */
        cid = sh_name_entry_renamed(cid, nid, (shoal_nid){70});
        assert_int_equal(shoal_cid_creator(cid).v, i == 1 ? 70 : 64 + i);
        assert_true(shoal_cid_local(cid) == i + 1);
    }
    assert_false(sh_name_entry_get(&r, &cid, &name));
    assert_true(sh_reader_done(&r));
}

static void test_damage(void **state)
{
    (void)state;
    uint8_t bytes[256];
    size_t size = chunk_make(bytes, sizeof bytes);
    struct sh_bytes entries;
    shoal_nid nid;
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= 4;
        assert_int_equal(sh_name_chunk_get(sh_bytes_make(bytes, size), &nid, &entries),
                         SHOAL_ECORRUPT);
        bytes[at] ^= 4;
        assert_int_equal(sh_name_chunk_get(sh_bytes_make(bytes, at), &nid, &entries),
                         SHOAL_ECORRUPT);
    }
}

/* Checksums are right, and the entries are none. */
static void test_entries_that_are_none(void **state)
{
    (void)state;
    static const struct {
        uint64_t cid;
        const char *name;
        uint16_t size;
    } bad[] = {{0, "zero", 4}, {1, "", 0}, {1, "lea\0der", 7}, {1, "short", 3}, {1, "longlong", 9}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t bytes[64] = {0};
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        (void)sh_writer_take(&w, SH_NAME_CHUNK_HEAD_BYTES);
        sh_put64(&w, bad[i].cid);
        sh_put16(&w, bad[i].size);
        sh_put_raw(&w, sh_bytes_make(bad[i].name, bad[i].size < 7 ? strlen(bad[i].name) : 7));
        size_t size = (size_t)(w.at - bytes) - (i == 4 ? 1 : 0);
        sh_name_chunk_head(bytes, size, (shoal_nid){65});
        struct sh_bytes entries;
        shoal_nid nid;
        assert_int_equal(sh_name_chunk_get(sh_bytes_make(bytes, size), &nid, &entries),
                         SHOAL_ECORRUPT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_entries_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
