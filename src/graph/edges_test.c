/* The readers of edge lists and vertex records: good forms, every wrong form with its line number,
 * compressed files that are cut or damaged. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "graph/edges.h"

/* Two gzip streams of "1 2\n" and "3 4\n", one after the other, as gzip(1) makes them. */
static const uint8_t gzip_two[] = {
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0x33, 0x54, 0x30, 0xe2, 0x02, 0x00,
    0x57, 0xbb, 0x3b, 0x5c, 0x04, 0x00, 0x00, 0x00, 0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x02, 0xff, 0x33, 0x56, 0x30, 0xe1, 0x02, 0x00, 0x5a, 0xd4, 0x68, 0xa0, 0x04, 0x00, 0x00, 0x00,
};
/* "1 2\n3 4\n" as zstd(1) makes it from a pipe, with a checksum at the end. */
static const uint8_t zstd_one[] = {
    0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, 0x41, 0x00, 0x00, 0x31, 0x20,
    0x32, 0x0a, 0x33, 0x20, 0x34, 0x0a, 0x8a, 0x81, 0x17, 0xcf,
};

static struct sh_edges *open_text(const char *text, struct sh_types *types)
{
    struct sh_edges *reader;
    assert_int_equal(sh_edges_open_bytes(sh_bytes_text(text), types, &reader), SHOAL_OK);
    return reader;
}

static void expect_edge(struct sh_edges *reader, uint64_t source, uint64_t target)
{
    struct sh_edge edge;
    bool end;
    assert_int_equal(sh_edges_next(reader, &edge, &end), SHOAL_OK);
    assert_false(end);
    assert_int_equal(edge.source, source);
    assert_int_equal(edge.target, target);
}

static void expect_end(struct sh_edges *reader)
{
    struct sh_edge edge;
    bool end;
    assert_int_equal(sh_edges_next(reader, &edge, &end), SHOAL_OK);
    assert_true(end);
}

static void good_lines(void **state)
{
    (void)state;
    struct sh_edges *reader = open_text("# comment\n% other\n\n1 2\r\n  3\t\t4 more columns\n"
                                        "0 18446744073709551615\n   \n\t\r\n0007 8",
                                        NULL);
    expect_edge(reader, 1, 2);
    expect_edge(reader, 3, 4);
    expect_edge(reader, 0, UINT64_MAX);
    expect_edge(reader, 7, 8);
    expect_end(reader);
    expect_end(reader);
    assert_int_equal(sh_edges_wrong(reader)->count, 0);
    sh_edges_close(reader);
    reader = open_text("", NULL);
    expect_end(reader);
    sh_edges_close(reader);
}

static void wrong_lines(void **state)
{
    (void)state;
    struct sh_edges *reader = open_text("1 2\n-1 2\n3\nx 4\n5 18446744073709551616\n# 6\n7 8\n"
                                        "9 1.5\n99999999999999999999999999 1\n1,2 3\n-\t4\n1 \n",
                                        NULL);
    expect_edge(reader, 1, 2);
    expect_edge(reader, 7, 8);
    expect_end(reader);
    static const struct {
        uint64_t line;
        const char *text;
    } expected[] = {
        {2, "\"-1\" is negative: vertices are 0 to 2^64 - 1"},
        {3, "\"3\" has no target after it"},
        {4, "\"x\" is not a number"},
        {5, "\"18446744073709551616\" is over 2^64 - 1"},
        {8, "\"1.5\" is not a number"},
        {9, "\"99999999999999999999999999\" is over 2^64 - 1"},
        {10, "\"1,2\" is not a number"},
        {11, "\"-\" is not a number"},
        {12, "\"1\" has no target after it"},
    };
    const struct sh_wrong_lines *wrong = sh_edges_wrong(reader);
    assert_int_equal(wrong->count, 9);
    assert_int_equal(wrong->kept, 9);
    for (unsigned i = 0; i < wrong->kept; i++) {
        assert_int_equal(wrong->lines[i].line, expected[i].line);
        assert_string_equal(wrong->lines[i].text, expected[i].text);
    }
    sh_edges_close(reader);
}

static void wrong_lines_are_bounded(void **state)
{
    (void)state;
    char text[64 * 8];
    size_t size = 0;
    for (int i = 0; i < 64; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "\x01%d\n", i);
    struct sh_edges *reader = open_text(text, NULL);
    expect_end(reader);
    assert_int_equal(sh_edges_wrong(reader)->count, 64);
    assert_int_equal(sh_edges_wrong(reader)->kept, SH_WRONG_LINES_KEPT);
    assert_string_equal(sh_edges_wrong(reader)->lines[0].text, "\"?0\" is not a number");
    sh_edges_close(reader);
}

static void long_lines(void **state)
{
    (void)state;
    size_t size = 5u << 20;
    char *text = malloc(size + 16);
    assert_non_null(text);
    memset(text, '1', size);
    memcpy(text, "# ", 2);
    text[SH_LINE_BYTES_MAX] = '\n'; /* a comment of just the limit is a comment */
    memcpy(text + size, "\n5 6\n", 6);
    struct sh_edges *reader = open_text(text, NULL);
    expect_edge(reader, 5, 6);
    expect_end(reader);
    assert_int_equal(sh_edges_wrong(reader)->count, 1);
    assert_int_equal(sh_edges_wrong(reader)->lines[0].line, 2);
    assert_string_equal(sh_edges_wrong(reader)->lines[0].text, "line is longer than 1 MiB");
    sh_edges_close(reader);
    free(text);
}

static void relations(void **state)
{
    (void)state;
    struct sh_types *types;
    assert_int_equal(sh_types_create(&types), SHOAL_OK);
    struct sh_edges *reader = open_text("1 2 knows\n2 3 likes more\n3 4 knows\n5 6\n", types);
    const uint16_t expected[] = {0, 1, 0};
    for (size_t i = 0; i < 3; i++) {
        struct sh_edge edge;
        bool end;
        assert_int_equal(sh_edges_next(reader, &edge, &end), SHOAL_OK);
        assert_false(end);
        assert_int_equal(edge.type, expected[i]);
    }
    expect_end(reader);
    assert_int_equal(sh_edges_wrong(reader)->count, 1);
    assert_string_equal(sh_edges_wrong(reader)->lines[0].text,
                        "relation is missing (third column)");
    assert_int_equal(sh_types_count(types), 2);
    struct sh_bytes name = sh_types_name(types, 1);
    assert_int_equal(name.size, 5);
    assert_memory_equal(name.at, "likes", 5);
    sh_edges_close(reader);
    sh_types_destroy(types);
}

static void too_many_relations(void **state)
{
    (void)state;
    struct sh_types *types;
    assert_int_equal(sh_types_create(&types), SHOAL_OK);
    uint16_t number;
    char name[16];
    for (unsigned i = 0; i < SH_TYPES_MAX; i++) {
        (void)snprintf(name, sizeof name, "%u", i);
        assert_int_equal(sh_types_number(types, sh_bytes_text(name), &number), SHOAL_OK);
        assert_int_equal(number, i);
    }
    struct sh_edges *reader = open_text("1 2 7\n1 3 65534\n1 4 new\n1 5 8\n", types);
    expect_edge(reader, 1, 2);
    expect_edge(reader, 1, 3);
    struct sh_edge edge;
    bool end;
    assert_int_equal(sh_edges_next(reader, &edge, &end), SHOAL_ELIMIT);
    assert_string_equal(sh_edges_detail(reader), "line 3: more than 65535 different relations");
    expect_end(reader);
    sh_edges_close(reader);
    sh_types_destroy(types);
}

static void records(void **state)
{
    (void)state;
    struct sh_edges *reader = open_text("1\ta\tb \n2\n3  two blanks\nx y\n", NULL);
    static const char *const expected[] = {"a\tb ", "", " two blanks"};
    for (uint64_t i = 0; i < 3; i++) {
        struct sh_record record;
        bool end;
        assert_int_equal(sh_records_next(reader, &record, &end), SHOAL_OK);
        assert_false(end);
        assert_int_equal(record.name, i + 1);
        assert_int_equal(record.text.size, strlen(expected[i]));
        assert_memory_equal(record.text.at, expected[i], record.text.size);
    }
    struct sh_record record;
    bool end;
    assert_int_equal(sh_records_next(reader, &record, &end), SHOAL_OK);
    assert_true(end);
    assert_int_equal(sh_edges_wrong(reader)->lines[0].line, 4);
    sh_edges_close(reader);
}

/* Reads to the end; returns the error and how many edges came before it. */
static enum shoal_err read_all(const void *bytes, size_t size, unsigned *count_out)
{
    struct sh_edges *reader;
    *count_out = 0;
    enum shoal_err err = sh_edges_open_bytes(sh_bytes_make(bytes, size), NULL, &reader);
    if (err)
        return err;
    for (bool end = false;; (*count_out)++) {
        struct sh_edge edge;
        err = sh_edges_next(reader, &edge, &end);
        if (err || end)
            break;
    }
    if (err == SHOAL_ECORRUPT || err == SHOAL_ETRUNCATED)
        assert_true(strlen(sh_edges_detail(reader)) > 10);
    sh_edges_close(reader);
    return err;
}

static void compressed(void **state)
{
    (void)state;
    unsigned count;
    assert_int_equal(read_all(gzip_two, sizeof gzip_two, &count), SHOAL_OK);
    assert_int_equal(count, 2);
    for (size_t size = 2; size < sizeof gzip_two; size++) {
        enum shoal_err expected = size == sizeof gzip_two / 2 ? SHOAL_OK : SHOAL_ETRUNCATED;
        assert_int_equal(read_all(gzip_two, size, &count), expected);
    }
    uint8_t damaged[sizeof gzip_two];
    memcpy(damaged, gzip_two, sizeof damaged);
    damaged[16] ^= 1; /* in the checksum */
    assert_int_equal(read_all(damaged, sizeof damaged, &count), SHOAL_ECORRUPT);
    for (size_t size = 4; size < sizeof zstd_one; size++)
        assert_int_equal(read_all(zstd_one, size, &count), SHOAL_ETRUNCATED);
    assert_int_equal(read_all(zstd_one, sizeof zstd_one, &count), SHOAL_OK);
    assert_int_equal(count, 2);
    memcpy(damaged, zstd_one, sizeof zstd_one);
    damaged[sizeof zstd_one - 1] ^= 1;
    assert_int_equal(read_all(damaged, sizeof zstd_one, &count), SHOAL_ECORRUPT);
}

static void files(void **state)
{
    (void)state;
    struct sh_edges *reader;
    char detail[256];
    assert_int_equal(sh_edges_open("/nonexistent/file", NULL, &reader, detail), SHOAL_EIO);
    assert_string_equal(detail, "/nonexistent/file: No such file or directory");
    assert_int_equal(sh_edges_open("/", NULL, &reader, detail), SHOAL_EIO);
    assert_string_equal(detail, "/: is a folder");
    char path[] = "/tmp/shoal-edges-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, gzip_two, sizeof gzip_two), sizeof gzip_two);
    close(fd);
    assert_int_equal(sh_edges_open(path, NULL, &reader, detail), SHOAL_OK);
    assert_int_equal(sh_edges_bytes_total(reader), sizeof gzip_two);
    expect_edge(reader, 1, 2);
    expect_edge(reader, 3, 4);
    expect_end(reader);
    assert_int_equal(sh_edges_bytes_done(reader), sizeof gzip_two);
    sh_edges_close(reader);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_lines),
        cmocka_unit_test(wrong_lines),
        cmocka_unit_test(wrong_lines_are_bounded),
        cmocka_unit_test(long_lines),
        cmocka_unit_test(relations),
        cmocka_unit_test(too_many_relations),
        cmocka_unit_test(records),
        cmocka_unit_test(compressed),
        cmocka_unit_test(files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
