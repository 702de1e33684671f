/* Files of safety copies: what was written is read; whatever is cut off or flipped is found; manifests that make no sense are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "cmd/copy_folder_int.h"

#define FILE_BYTES_MAX (1u << 20)
#define NODE 66
#define LARGE 100000u

static char folder_path[] = "/tmp/shoal-copy-XXXXXX";
static char path[SH_COPY_PATH_MAX];
static uint8_t bytes[FILE_BYTES_MAX], block[SH_SAVES_BLOCK_BYTES];
static size_t size;

static const struct sh_copy_head chunks_head = {.kind = SH_COPY_CHUNKS,
                                                .node = {NODE},
                                                .copy = 0x1122334455667788,
                                                .ordinal = 3,
                                                .seconds = 1795753224,
                                                .instance = 77,
                                                .arrivals = 5,
                                                .cluster = "a cluster"};

static void chunk_put(struct sh_writer *w, uint64_t local, uint32_t bytes_count)
{
    sh_put64(w, shoal_cid_make((shoal_nid){NODE}, local).v);
    sh_put32(w, bytes_count);
    for (uint32_t i = 0; i < bytes_count; i++)
        sh_put8(w, (uint8_t)(local + i));
}

static void piece_put(struct sh_writer *w, uint32_t offset, uint32_t count)
{
    sh_put64(w, shoal_cid_make((shoal_nid){NODE}, 7).v);
    sh_put32(w, LARGE | SH_CUT_PIECE);
    sh_put32(w, offset);
    sh_put32(w, count);
    for (uint32_t i = 0; i < count; i++)
        sh_put8(w, (uint8_t)(offset + i));
}

static struct sh_bytes written(const struct sh_writer *w)
{
    assert_true(sh_writer_ok(w));
    return sh_bytes_make(block, (size_t)(w->at - block));
}

static void file_read_in(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size = fread(bytes, 1, sizeof bytes, file);
    assert_true(size > 0 && size < sizeof bytes);
    fclose(file);
}

/* A file of two blocks, with a large chunk from the one to the other. */
static void chunks_write(void)
{
    struct sh_copy_writer writer;
    assert_int_equal(sh_copy_write_begin(&writer, path, &chunks_head), SHOAL_OK);
    struct sh_writer w = sh_writer_make(block, sizeof block);
    chunk_put(&w, 1, 10);
    chunk_put(&w, 2, 0);
    piece_put(&w, 0, 60000);
    assert_int_equal(sh_copy_write(&writer, written(&w)), SHOAL_OK);
    w = sh_writer_make(block, sizeof block);
    piece_put(&w, 60000, LARGE - 60000);
    chunk_put(&w, 9, 32768);
    assert_int_equal(sh_copy_write(&writer, written(&w)), SHOAL_OK);
    assert_int_equal(access(path, F_OK), -1); /* it has no name yet */
    assert_int_equal(sh_copy_write_end(&writer, 4, 10 + LARGE + 32768), SHOAL_OK);
    file_read_in();
}

/* What reading a file of those bytes comes to. */
static enum shoal_err outcome_of(const uint8_t *at, size_t count, struct sh_copy_reader *reader)
{
    struct sh_bytes payload = {.size = 1};
    FILE *file = count ? fmemopen((void *)(uintptr_t)at, count, "rb") : fopen("/dev/null", "rb");
    assert_non_null(file);
    enum shoal_err err = sh_copy_read_from(reader, file);
    while (!err && payload.size)
        err = sh_copy_read(reader, &payload);
    if (!err || reader->file)
        sh_copy_read_end(reader);
    return err;
}

static void test_what_was_written_is_read(void **state)
{
    (void)state;
    struct sh_copy_reader reader;
    struct sh_bytes payload;
    chunks_write();
    assert_int_equal(sh_copy_read_begin(&reader, path), SHOAL_OK);
    assert_memory_equal(&reader.head, &chunks_head, sizeof chunks_head);
    assert_int_equal(sh_copy_read(&reader, &payload), SHOAL_OK);
    struct sh_reader r = sh_reader_make(payload);
    struct sh_cut_record record;
    assert_true(sh_cut_record_get(&r, &record));
    assert_int_equal(record.size, 10);
    assert_int_equal(record.bytes.at[3], 4);
    assert_int_equal(sh_copy_read(&reader, &payload), SHOAL_OK);
    assert_int_equal(sh_copy_read(&reader, &payload), SHOAL_OK);
    assert_int_equal(payload.size, 0);
    assert_int_equal(reader.sums.records, 4);
    assert_int_equal(reader.sums.payload_bytes, 10 + LARGE + 32768);
    assert_int_equal(reader.sums.file_bytes, size);
    sh_copy_read_end(&reader);
    assert_int_equal(sh_copy_read_begin(&reader, "/nowhere/at/all"), SHOAL_ENONAME);
    assert_int_equal(unlink(path), 0);
}

static void test_what_is_cut_off_is_found(void **state)
{
    (void)state;
    struct sh_copy_reader reader;
    chunks_write();
    assert_int_equal(outcome_of(bytes, size, &reader), SHOAL_OK);
    for (size_t count = 0; count < size; count += count < 300 || count > size - 200 ? 1 : 97) {
        enum shoal_err err = outcome_of(bytes, count, &reader);
        assert_int_equal(err, count < 8 ? SHOAL_EPARSE : SHOAL_ETRUNCATED);
    }
    bytes[size] = 0;
    assert_int_equal(outcome_of(bytes, size + 1, &reader), SHOAL_ECORRUPT);
    /* All blocks, and no end. */
    assert_int_equal(outcome_of(bytes, size - 56, &reader), SHOAL_ETRUNCATED);
    assert_int_equal(reader.offset, size - 56);
    assert_int_equal(unlink(path), 0);
}

static void test_flipped_bits_are_found(void **state)
{
    (void)state;
    struct sh_copy_reader reader;
    chunks_write();
    for (size_t at = 0; at < size; at += at < 400 || at > size - 100 ? 1 : 53) {
        uint8_t bit = (uint8_t)(1u << at % 8);
        bytes[at] ^= bit;
        enum shoal_err err = outcome_of(bytes, size, &reader);
        assert_int_not_equal(err, SHOAL_OK);
        assert_int_equal(err, at < 8 ? SHOAL_EPARSE : SHOAL_ECORRUPT);
        assert_true(reader.fault[0] != '\0' && reader.offset <= at);
        bytes[at] ^= bit;
    }
    assert_int_equal(outcome_of(bytes, size, &reader), SHOAL_OK);
    assert_int_equal(unlink(path), 0);
}

static enum shoal_err outcome_of_block(struct sh_bytes payload, uint64_t records,
                                       uint64_t payload_bytes)
{
    struct sh_copy_writer writer;
    struct sh_copy_reader reader;
    assert_int_equal(sh_copy_write_begin(&writer, path, &chunks_head), SHOAL_OK);
    assert_int_equal(sh_copy_write(&writer, payload), SHOAL_OK);
    assert_int_equal(sh_copy_write_end(&writer, records, payload_bytes), SHOAL_OK);
    file_read_in();
    assert_int_equal(unlink(path), 0);
    return outcome_of(bytes, size, &reader);
}

/* Behind checksums that fit. */
static void test_what_makes_no_sense_is_found(void **state)
{
    (void)state;
    struct sh_writer w = sh_writer_make(block, sizeof block);
    chunk_put(&w, 1, 10);
    assert_int_equal(outcome_of_block(written(&w), 1, 10), SHOAL_OK);
    assert_int_equal(outcome_of_block(written(&w), 2, 10), SHOAL_ECORRUPT);
    assert_int_equal(outcome_of_block(written(&w), 1, 11), SHOAL_ECORRUPT);
    struct sh_bytes all = written(&w);
    all.size--;
    assert_int_equal(outcome_of_block(all, 1, 10), SHOAL_ECORRUPT);
    static const struct {
        uint32_t offset, count, next, next_count;
        bool is_good;
    } pieces[] = {
        {0, 60000, 60000, 40000, true},  {0, 60000, 60001, 39999, false},
        {0, 60000, 60000, 30000, false}, {60000, 40000, 0, 60000, false},
        {0, 60000, 50000, 50000, false},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        w = sh_writer_make(block, sizeof block);
        piece_put(&w, pieces[i].offset, pieces[i].count);
        piece_put(&w, pieces[i].next, pieces[i].next_count);
        assert_int_equal(outcome_of_block(written(&w), 1, LARGE),
                         pieces[i].is_good ? SHOAL_OK : SHOAL_ECORRUPT);
    }
    w = sh_writer_make(block, sizeof block);
    piece_put(&w, 0, 60000); /* and the rest never comes */
    assert_int_equal(outcome_of_block(written(&w), 0, 0), SHOAL_ECORRUPT);
    w = sh_writer_make(block, sizeof block);
    piece_put(&w, 0, 60000);
    chunk_put(&w, 1, 10);
    assert_int_equal(outcome_of_block(written(&w), 1, 10), SHOAL_ECORRUPT);
}

static void test_names(void **state)
{
    (void)state;
    static const struct sh_copy_head head = {
        .kind = SH_COPY_NAMES, .copy = 9, .cluster = "another"};
    struct sh_copy_writer writer;
    struct sh_copy_reader reader;
    struct sh_bytes payload, name;
    struct sh_writer w = sh_writer_make(block, sizeof block);
    shoal_cid cid;
    sh_put64(&w, 4711);
    sh_put8(&w, 5);
    sh_put_raw(&w, sh_bytes_text("hello"));
    assert_int_equal(sh_copy_write_begin(&writer, path, &head), SHOAL_OK);
    assert_int_equal(sh_copy_write(&writer, written(&w)), SHOAL_OK);
    assert_int_equal(sh_copy_write_end(&writer, 1, 5), SHOAL_OK);
    assert_int_equal(sh_copy_read_begin(&reader, path), SHOAL_OK);
    assert_int_equal(sh_copy_read(&reader, &payload), SHOAL_OK);
    struct sh_reader r = sh_reader_make(payload);
    assert_true(sh_copy_name_get(&r, &cid, &name));
    assert_int_equal(cid.v, 4711);
    assert_memory_equal(name.at, "hello", 5);
    assert_false(sh_copy_name_get(&r, &cid, &name));
    assert_int_equal(sh_copy_read(&reader, &payload), SHOAL_OK);
    assert_int_equal(payload.size, 0);
    sh_copy_read_end(&reader);
    assert_int_equal(unlink(path), 0);
    static const uint8_t empty[9] = {1}, zero[10] = {1, 0, 0, 0, 0, 0, 0, 0, 1, 0};
    r = sh_reader_make(sh_bytes_make(empty, sizeof empty));
    assert_false(sh_copy_name_get(&r, &cid, &name) || sh_reader_ok(&r));
    r = sh_reader_make(sh_bytes_make(zero, sizeof zero));
    assert_false(sh_copy_name_get(&r, &cid, &name) || sh_reader_ok(&r));
}

/* A writer that is dropped, or whose disk is full, leaves nothing. */
static void test_nothing_is_left(void **state)
{
    (void)state;
    struct sh_copy_writer writer;
    assert_int_equal(sh_copy_write_begin(&writer, path, &chunks_head), SHOAL_OK);
    assert_int_equal(access(writer.part, F_OK), 0);
    sh_copy_write_drop(&writer);
    assert_int_equal(access(writer.part, F_OK), -1);
    assert_int_equal(sh_copy_write_begin(&writer, "/nowhere/at/all", &chunks_head), SHOAL_EIO);
    sh_copy_write_drop(&writer);
}

static void test_folder(void **state)
{
    (void)state;
    struct sh_copy_folder folder, other;
    char sub[64];
    snprintf(sub, sizeof sub, "%s/sub", folder_path);
    assert_int_equal(sh_copy_folder_open(&folder, sub, false), SHOAL_ENONAME);
    sh_copy_folder_close(&folder);
    assert_int_equal(sh_copy_folder_open(&folder, sub, true), SHOAL_OK);
    assert_false(folder.has_begun || folder.is_complete);
    assert_int_equal(sh_copy_folder_open(&other, sub, true), SHOAL_EBUSY);
    sh_copy_folder_close(&other);
    assert_int_equal(sh_copy_folder_begin(&folder, "a cluster", 99), SHOAL_OK);
    sh_copy_folder_close(&folder);
    assert_int_equal(sh_copy_folder_open(&folder, sub, false), SHOAL_OK);
    assert_true(folder.has_begun && !folder.is_complete);
    assert_int_equal(folder.manifest.copy, 99);
    for (unsigned i = 0; i < 6; i++) {
        struct sh_copy_piece piece = {
            .node = {(uint16_t)(64 + i % 3)}, .ordinal = 10 - i, .chunks = i};
        assert_int_equal(sh_copy_piece_set(&folder.manifest, &piece), SHOAL_OK);
    }
    folder.manifest.names = 12;
    assert_int_equal(sh_copy_folder_complete(&folder), SHOAL_OK);
    sh_copy_folder_close(&folder);
    assert_int_equal(sh_copy_folder_open(&folder, sub, false), SHOAL_OK);
    assert_true(folder.is_complete);
    assert_string_equal(folder.manifest.cluster, "a cluster");
    assert_int_equal(folder.manifest.names, 12);
    assert_int_equal(folder.manifest.count, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(folder.manifest.pieces[i].ordinal, 5 + i);
        assert_int_equal(folder.manifest.pieces[i].chunks, 5 - i);
    }
    assert_int_equal(sh_copy_piece_find(&folder.manifest, (shoal_nid){65})->ordinal, 6);
    assert_null(sh_copy_piece_find(&folder.manifest, (shoal_nid){67}));
    sh_copy_folder_close(&folder);
    snprintf(path, sizeof path, "%s/begun.json", sub);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/manifest.json", sub);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(sub), 0);
    /* One that has something else. */
    snprintf(path, sizeof path, "%s/x", folder_path);
    fclose(fopen(path, "w"));
    assert_int_equal(sh_copy_folder_open(&folder, folder_path, true), SHOAL_EEXIST);
    sh_copy_folder_close(&folder);
    assert_int_equal(sh_copy_folder_open(&folder, folder_path, false), SHOAL_ENONAME);
    sh_copy_folder_close(&folder);
    assert_int_equal(unlink(path), 0);
}

static void test_manifests_are_judged(void **state)
{
    (void)state;
    static const char good[] =
        "{\"format\":1,\"cluster\":\"c\",\"copy\":5,\"begun\":1,\"ended\":2,\"names\":0,\"pieces\":"
        "["
        "{\"node\":64,\"ordinal\":1,\"chunks\":0,\"payload_bytes\":0,\"file_bytes\":9},"
        "{\"node\":65,\"ordinal\":2,\"chunks\":0,\"payload_bytes\":0,\"file_bytes\":9}]}";
    static const struct {
        const char *from, *to;
    } bad[] = {
        {"\"format\":1", "\"format\":2"},
        {"\"format\":1,", ""},
        {"\"c\"", "7"},
        {"\"copy\":5", "\"copy\":-5"},
        {"\"ended\":2", "\"e\":2"},
        {"\"names\":0", "\"names\":\"\""},
        {"\"node\":64", "\"node\":0"},
        {"\"node\":64", "\"node\":65536"},
        {"\"node\":65", "\"node\":64"},
        {"\"ordinal\":2", "\"ordinal\":1"},
        {"\"chunks\":0,", ""},
        {"}]}", "}"},
        {"\"pieces\":[", "\"x\":["},
    };
    struct sh_copy_manifest manifest;
    assert_int_equal(sh_copy_manifest_parse(sh_bytes_text(good), &manifest), SHOAL_OK);
    assert_int_equal(manifest.count, 2);
    free(manifest.pieces);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char text[512];
        const char *at = strstr(good, bad[i].from);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, bad[i].to,
                 at + strlen(bad[i].from));
        assert_int_equal(sh_copy_manifest_parse(sh_bytes_text(text), &manifest), SHOAL_EPARSE);
    }
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder_path))
        return 1;
    snprintf(path, sizeof path, "%s/file", folder_path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(folder_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_written_is_read),
        cmocka_unit_test(test_what_is_cut_off_is_found),
        cmocka_unit_test(test_flipped_bits_are_found),
        cmocka_unit_test(test_what_makes_no_sense_is_found),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_nothing_is_left),
        cmocka_unit_test(test_folder),
        cmocka_unit_test(test_manifests_are_judged),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
