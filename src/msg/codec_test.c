/* Descriptions: each message is cut at every byte, in both directions, and at random into many
 * pieces, and hostile bytes are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "msg/codec.h"

#define RECORDS_MAX 40
#define BYTES_MAX 600

struct record {
    uint16_t kind;
    uint64_t number;
    char name[20];
    size_t tags_count;
    uint8_t tags[4];
};

struct page {
    uint8_t flags;
    uint64_t id;
    char title[64];
    size_t records_count;
    struct record records[RECORDS_MAX];
    size_t bytes_count;
    uint8_t bytes[BYTES_MAX];
    size_t numbers_count;
    uint64_t compacts[RECORDS_MAX];
    uint16_t halves[RECORDS_MAX];
    uint32_t words[RECORDS_MAX];
    uint64_t longs[RECORDS_MAX];
    uint64_t has_more;
    uint32_t more;
    unsigned steps; /* not sent: records that were told */
};

static void page_describe(struct sh_codec *c, void *object)
{
    struct page *page = object;
    sh_codec_u8(c, &page->flags);
    sh_codec_u64(c, &page->id);
    sh_codec_text(c, page->title, sizeof page->title);
    sh_codec_length(c, &page->records_count, RECORDS_MAX);
    for (struct sh_codec_loop l = sh_codec_loop(c, page->records_count); sh_codec_next(c, &l);
         l.index++) {
        struct record *record = &page->records[l.index];
        page->steps++;
        sh_codec_u16(c, &record->kind);
        sh_codec_compact(c, &record->number);
        sh_codec_text(c, record->name, sizeof record->name);
        sh_codec_length(c, &record->tags_count, sizeof record->tags);
        for (struct sh_codec_loop t = sh_codec_loop(c, record->tags_count); sh_codec_next(c, &t);
             t.index++)
            sh_codec_u8(c, &record->tags[t.index]);
    }
    sh_codec_length(c, &page->bytes_count, BYTES_MAX);
    sh_codec_bytes(c, page->bytes, page->bytes_count);
    sh_codec_length(c, &page->numbers_count, RECORDS_MAX);
    sh_codec_compacts(c, page->compacts, page->numbers_count);
    sh_codec_array16(c, page->halves, page->numbers_count);
    sh_codec_array32(c, page->words, page->numbers_count);
    sh_codec_array64(c, page->longs, page->numbers_count);
    sh_codec_compact(c, &page->has_more);
    if (page->has_more)
        sh_codec_u32(c, &page->more);
}

static uint64_t next(uint64_t *random)
{
    *random += UINT64_C(0x9E3779B97F4A7C15);
    return sh_mix64(*random);
}

static void text_fill(uint64_t *random, char *text, size_t room)
{
    size_t size = next(random) % room;
    for (size_t i = 0; i < size; i++)
        text[i] = (char)(1 + next(random) % 255);
    text[size] = '\0';
}

/* A number of any length. */
static uint64_t number_any(uint64_t *random)
{
    return next(random) >> next(random) % 64;
}

static void page_fill(struct page *page, uint64_t *random, size_t size)
{
    memset(page, 0, sizeof *page);
    page->flags = (uint8_t)next(random);
    page->id = next(random);
    text_fill(random, page->title, sizeof page->title);
    page->records_count = next(random) % (size < RECORDS_MAX ? size + 1 : RECORDS_MAX + 1);
    for (size_t i = 0; i < page->records_count; i++) {
        struct record *record = &page->records[i];
        record->kind = (uint16_t)next(random);
        record->number = number_any(random);
        text_fill(random, record->name, sizeof record->name);
        record->tags_count = next(random) % 5;
        for (size_t t = 0; t < record->tags_count; t++)
            record->tags[t] = (uint8_t)next(random);
    }
    page->bytes_count = next(random) % (size < BYTES_MAX ? size + 1 : BYTES_MAX + 1);
    for (size_t i = 0; i < page->bytes_count; i++)
        page->bytes[i] = (uint8_t)next(random);
    page->numbers_count = next(random) % (size < RECORDS_MAX ? size + 1 : RECORDS_MAX + 1);
    for (size_t i = 0; i < page->numbers_count; i++) {
        page->compacts[i] = number_any(random);
        page->halves[i] = (uint16_t)next(random);
        page->words[i] = (uint32_t)next(random);
        page->longs[i] = next(random);
    }
    page->has_more = next(random) % 2 ? 300 : 0;
    page->more = page->has_more ? (uint32_t)next(random) : 0;
}

static void pages_equal(struct page *a, struct page *b)
{
    a->steps = b->steps = 0;
    assert_memory_equal(a, b, sizeof *a);
}

struct message {
    uint8_t *bytes;
    size_t size;
};

static struct message page_write(struct page *page)
{
    struct message message = {.size = (size_t)sh_codec_size(page_describe, page)};
    message.bytes = malloc(message.size);
    assert_non_null(message.bytes);
    struct sh_codec c = sh_codec_writer(message.size);
    assert_int_equal(sh_codec_write(&c, page_describe, page, message.bytes, SIZE_MAX),
                     message.size);
    assert_true(sh_codec_is_done(&c));
    return message;
}

/* Reads a piece out of memory of exactly its size, so that the address sanitizer sees any byte that
 * is read beyond it. */
static enum shoal_err piece_read(struct sh_codec *c, struct page *page, const uint8_t *at,
                                 size_t size)
{
    uint8_t *piece = malloc(size ? size : 1);
    assert_non_null(piece);
    memcpy(piece, at, size);
    enum shoal_err err = sh_codec_read(c, page_describe, page, sh_bytes_make(piece, size));
    free(piece);
    return err;
}

static size_t piece_write(struct sh_codec *c, struct page *page, uint8_t *into, size_t room)
{
    uint8_t *piece = malloc(room ? room : 1);
    assert_non_null(piece);
    size_t size = sh_codec_write(c, page_describe, page, piece, room);
    memcpy(into, piece, size);
    free(piece);
    return size;
}

static void page_read_cut(const struct message *message, struct page *page, size_t cut)
{
    memset(page, 0, sizeof *page);
    struct sh_codec c = sh_codec_reader(message->size);
    assert_int_equal(piece_read(&c, page, message->bytes, cut), SHOAL_OK);
    assert_int_equal(sh_codec_is_done(&c), cut == message->size);
    if (cut < message->size)
        assert_int_equal(piece_read(&c, page, message->bytes + cut, message->size - cut), SHOAL_OK);
    assert_true(sh_codec_is_done(&c));
}

static void page_write_cut(struct page *page, const struct message *message, size_t cut)
{
    uint8_t *again = malloc(message->size);
    assert_non_null(again);
    struct sh_codec c = sh_codec_writer(message->size);
    assert_int_equal(piece_write(&c, page, again, cut), cut);
    assert_int_equal(piece_write(&c, page, again + cut, message->size - cut), message->size - cut);
    assert_true(sh_codec_is_done(&c));
    assert_memory_equal(again, message->bytes, message->size);
    free(again);
}

static void every_split_both_ways(void **state)
{
    (void)state;
    uint64_t random = test_seed(0x5EED);
    static struct page page, got;
    for (size_t size = 0; size < 12; size++) {
        page_fill(&page, &random, size * size);
        struct message message = page_write(&page);
        for (size_t cut = 0; cut <= message.size; cut++) {
            page_read_cut(&message, &got, cut);
            pages_equal(&page, &got);
            page_write_cut(&page, &message, cut);
        }
        free(message.bytes);
    }
}

/* Pieces of 0 to most bytes. */
static void pieces_any(uint64_t *random, struct page *page, size_t most)
{
    static struct page got;
    struct message message = page_write(page);
    uint8_t *again = malloc(message.size);
    assert_non_null(again);
    struct sh_codec w = sh_codec_writer(message.size), r = sh_codec_reader(message.size);
    memset(&got, 0, sizeof got);
    while (!sh_codec_is_done(&w))
        piece_write(&w, page, again + w.passed, next(random) % (most + 1));
    assert_memory_equal(again, message.bytes, message.size);
    while (!sh_codec_is_done(&r)) {
        size_t left = message.size - r.passed, size = next(random) % (most + 1);
        enum shoal_err err = piece_read(&r, &got, again + r.passed, size < left ? size : left);
        assert_int_equal(err, SHOAL_OK);
    }
    pages_equal(page, &got);
    free(again);
    free(message.bytes);
}

static void pieces_of_any_size(void **state)
{
    (void)state;
    uint64_t random = test_seed(0x5EED);
    static struct page page;
    static const size_t most[] = {1, 2, 3, 9, 40, 200, 5000};
    for (unsigned round = 0; round < 40; round++) {
        for (size_t i = 0; i < sizeof most / sizeof most[0]; i++) {
            page_fill(&page, &random, SIZE_MAX);
            pieces_any(&random, &page, most[i]);
        }
    }
}

/* Of n records in n pieces or more, none is passed but the one that was cut. */
static void loop_goes_on(void **state)
{
    (void)state;
    uint64_t random = 1;
    static struct page page, got;
    memset(&got, 0, sizeof got);
    do {
        page_fill(&page, &random, SIZE_MAX);
    } while (page.records_count < RECORDS_MAX / 2);
    for (size_t i = 0; i < page.records_count; i++)
        page.records[i].tags_count = 0;
    memset(page.bytes, 0, sizeof page.bytes);
    struct message message = page_write(&page);
    struct sh_codec r = sh_codec_reader(message.size);
    size_t pieces = 0;
    for (; !sh_codec_is_done(&r); pieces++)
        assert_int_equal(piece_read(&r, &got, message.bytes + r.passed, 1), SHOAL_OK);
    assert_true(got.steps <= pieces + page.records_count);
    free(message.bytes);
}

/* --- Hostile bytes ------------------------------------------------------------------------- */

static enum shoal_err bytes_read(sh_codec_describe describe, void *object, const void *bytes,
                                 size_t size)
{
    struct sh_codec c = sh_codec_reader(size);
    enum shoal_err whole = sh_codec_read(&c, describe, object, sh_bytes_make(bytes, size));
    c = sh_codec_reader(size);
    enum shoal_err piecewise = SHOAL_OK;
    for (size_t i = 0; i < size && piecewise == SHOAL_OK; i++)
        piecewise =
            sh_codec_read(&c, describe, object, sh_bytes_make((const uint8_t *)bytes + i, 1));
    if (size > 0)
        assert_int_equal(whole, piecewise);
    return whole;
}

static void compact_describe(struct sh_codec *c, void *object)
{
    sh_codec_compact(c, object);
}

static void length_describe(struct sh_codec *c, void *object)
{
    size_t *length = object;
    uint8_t bytes[100];
    sh_codec_length(c, length, 100);
    sh_codec_bytes(c, bytes, *length);
}

static void text_describe(struct sh_codec *c, void *object)
{
    sh_codec_text(c, object, 4);
}

static void array_describe(struct sh_codec *c, void *object)
{
    size_t count = SIZE_MAX / 4; /* as if a description had not bounded it */
    sh_codec_array64(c, object, count);
}

static void refusing_describe(struct sh_codec *c, void *object)
{
    uint16_t *value = object;
    sh_codec_u16(c, value);
    if (sh_codec_reading(c) && *value != 7)
        sh_codec_fail(c, SHOAL_EINVAL);
    sh_codec_u16(c, value + 1);
}

static void compact_numbers(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {0, 1, 127, 128, 16383, 16384, UINT32_MAX, UINT64_MAX};
    static const size_t sizes[] = {1, 1, 1, 2, 2, 3, 5, 10};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t number = numbers[i], got = 0;
        uint8_t bytes[SH_CODEC_COMPACT_MAX];
        assert_int_equal(sh_codec_size(compact_describe, &number), sizes[i]);
        struct sh_codec c = sh_codec_writer(sizes[i]);
        sh_codec_write(&c, compact_describe, &number, bytes, sizeof bytes);
        assert_int_equal(bytes_read(compact_describe, &got, bytes, sizes[i]), SHOAL_OK);
        assert_true(got == number);
    }
    uint64_t got = 0;
#define READ(text) bytes_read(compact_describe, &got, text, sizeof text - 1)
    assert_int_equal(READ(""), SHOAL_EPROTO);
    assert_int_equal(READ("\x80"), SHOAL_EPROTO);
    assert_int_equal(READ("\x80\x00"), SHOAL_EPROTO); /* not the shortest form */
    assert_int_equal(READ("\x01\x01"), SHOAL_EPROTO); /* a byte too many */
    assert_int_equal(READ("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), SHOAL_EPROTO);
    assert_int_equal(READ("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), SHOAL_EPROTO);
#undef READ
}

static void hostile_lengths(void **state)
{
    (void)state;
    size_t length = 0;
    char text[4] = "";
    uint16_t values[2] = {0};
    uint8_t hundred[102] = {101};
    assert_int_equal(bytes_read(length_describe, &length, hundred, 102), SHOAL_EPROTO);
    hundred[0] = 100;
    length = 0;
    assert_int_equal(bytes_read(length_describe, &length, hundred, 101), SHOAL_OK);
    length = 0;
    assert_int_equal(bytes_read(length_describe, &length, hundred, 100), SHOAL_EPROTO);
    assert_int_equal(length, 0); /* more than the message has: nobody is told */
    assert_int_equal(bytes_read(text_describe, text, "\3abc", 4), SHOAL_OK);
    assert_string_equal(text, "abc");
    assert_int_equal(bytes_read(text_describe, text, "\4abcd", 5), SHOAL_EPROTO);
    assert_int_equal(bytes_read(text_describe, text, "\3a\0c", 4), SHOAL_EPROTO);
    assert_int_equal(bytes_read(array_describe, values, "abcd", 4), SHOAL_EPROTO);
    assert_int_equal(bytes_read(refusing_describe, values, "\7\0\1\0", 4), SHOAL_OK);
    assert_int_equal(bytes_read(refusing_describe, values, "\7\1\1\0", 4), SHOAL_EINVAL);
}

/* A byte of a good message is changed: what is read then is refused, or writes the same bytes. */
static void changed_bytes(void **state)
{
    (void)state;
    uint64_t random = test_seed(0x5EED);
    static struct page page, got;
    unsigned refused = 0, taken = 0;
    for (unsigned round = 0; round < 2000; round++) {
        page_fill(&page, &random, round % 50);
        struct message message = page_write(&page);
        message.bytes[next(&random) % message.size] = (uint8_t)next(&random);
        size_t cut = next(&random) % message.size;
        struct sh_codec c = sh_codec_reader(message.size);
        memset(&got, 0, sizeof got);
        enum shoal_err err = piece_read(&c, &got, message.bytes, cut);
        if (err == SHOAL_OK)
            err = piece_read(&c, &got, message.bytes + cut, message.size - cut);
        if (err == SHOAL_OK) {
            struct message again = page_write(&got);
            assert_int_equal(again.size, message.size);
            assert_memory_equal(again.bytes, message.bytes, message.size);
            free(again.bytes);
        }
        refused += err != SHOAL_OK;
        taken += err == SHOAL_OK;
        free(message.bytes);
    }
    assert_true(refused > 0 && taken > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_both_ways), cmocka_unit_test(pieces_of_any_size),
        cmocka_unit_test(loop_goes_on),          cmocka_unit_test(compact_numbers),
        cmocka_unit_test(hostile_lengths),       cmocka_unit_test(changed_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
