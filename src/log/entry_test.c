/* Entries of a span: what is written is read, in as few bytes as that takes, and damage is noticed. */
#include "log/entry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"

#define SPAN_MAX (1u << 20)

static uint8_t span[SPAN_MAX];
static size_t span_size;
static struct sh_replog_context context;

static void span_begin(void)
{
    span_size = 0;
    context = sh_replog_context_first(64, 3, 1000, 5);
}

/* Returns the bytes of its header. */
static size_t span_add(const struct sh_replog_entry *entry)
{
    size_t stored = sh_replog_entry_stored(entry);
    assert_true(span_size + SH_REPLOG_ENTRY_HEAD_MAX + stored <= SPAN_MAX);
    size_t head = sh_replog_entry_head(entry, &context, span + span_size);
    assert_true(head <= SH_REPLOG_ENTRY_HEAD_MAX);
    if (stored)
        memcpy(span + span_size + head, entry->payload.at, stored);
    span_size += head + stored;
    return head;
}

static void assert_same(const struct sh_replog_entry *a, const struct sh_replog_entry *b)
{
    assert_true(a->creator == b->creator && a->local_id == b->local_id);
    assert_true(a->version.epoch == b->version.epoch && a->version.number == b->version.number);
    assert_true(a->seconds == b->seconds && a->piece == b->piece && a->pieces == b->pieces);
    assert_true(a->offset == b->offset && a->total == b->total);
    assert_true(a->is_removal == b->is_removal && a->is_with_next == b->is_with_next &&
                a->payload.size == b->payload.size);
    assert_int_equal(sh_replog_entry_stored(a), sh_replog_entry_stored(b));
    if (sh_replog_entry_stored(a))
        assert_memory_equal(a->payload.at, b->payload.at, a->payload.size);
}

static const uint8_t bytes[70000] = {1, 2, 3};

static struct sh_replog_entry entry_of(uint64_t local_id, size_t size)
{
    return (struct sh_replog_entry){.local_id = local_id,
                                    .creator = 64,
                                    .version = {3, 0},
                                    .seconds = 1000,
                                    .pieces = 1,
                                    .payload = sh_bytes_make(bytes, size)};
}

/* The bytes of headers, which docs/log.md counts on. */
static void headers_are_short(void **state)
{
    (void)state;
    span_begin();
    struct sh_replog_entry entry = entry_of(1, 64);
    assert_int_equal(span_add(&entry), 2 + 1 + 1 + 4); /* the first: ID and length */
    entry = entry_of(2, 64);
    assert_int_equal(span_add(&entry), 2 + 4); /* one more, as long */
    entry = entry_of(3, 65);
    assert_int_equal(span_add(&entry), 2 + 1 + 4); /* another length */
    entry = entry_of(300000, 65);
    entry.version.number = 1;
    assert_int_equal(span_add(&entry), 2 + 3 + 1 + 4); /* an update */
    entry = entry_of(300001, 65);
    entry.version.epoch = 2;
    assert_int_equal(span_add(&entry), 2 + 2 + 4);
    entry = entry_of(300002, 65);
    entry.version.epoch = 2;
    entry.creator = 70;
    assert_int_equal(span_add(&entry), 2 + 2 + 3 + 4); /* of another creator the ID is told */
    entry.local_id++;
    entry.seconds = 999;
    assert_int_equal(span_add(&entry), 2 + 4 + 4);
    entry.local_id++;
    entry.is_removal = true;
    entry.payload.size = 0;
    assert_int_equal(span_add(&entry), 2 + 1 + 4);
    entry.is_removal = false;
    for (unsigned i = 0; i < 2;
         i++) { /* zeros take no room, and their length is left out like any other */
        entry.local_id++;
        entry.payload = sh_bytes_make(NULL, 64);
        assert_int_equal(span_add(&entry), 2 + !i + 4);
    }
    entry = entry_of(SH_REPLOG_LOCAL_ID_MAX, 70000);
    entry.creator = 1;
    entry.version = (struct sh_replog_version){65535, SH_REPLOG_NUMBER_MAX};
    entry.seconds = UINT32_MAX;
    entry.piece = 254;
    entry.pieces = 65535;
    entry.offset = 1;
    entry.total = UINT32_MAX;
    assert_int_equal(span_add(&entry), SH_REPLOG_ENTRY_HEAD_MAX);
    entry.local_id = 0; /* the one behind the last ID */
    assert_int_equal(span_add(&entry), 2 + 4 + 4 + 4 + 8);
    struct sh_reader r = sh_reader_make(sh_bytes_make(span, span_size));
    struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
    struct sh_replog_entry got;
    unsigned count = 0;
    while (sh_replog_entry_get(&r, &reading, &got) == SH_REPLOG_ENTRY)
        count++;
    assert_int_equal(count, 12);
    assert_true(sh_reader_done(&r));
    assert_int_equal(sh_replog_entry_get(&r, &reading, &got), SH_REPLOG_END);
    assert_same(&got, &entry);
}

static struct sh_replog_entry completion_of(uint32_t seconds, size_t size)
{
    return (struct sh_replog_entry){.local_id = SH_REPLOG_COMPLETION_ID,
                                    .seconds = seconds,
                                    .pieces = 1,
                                    .payload = sh_bytes_make(bytes, size)};
}

/* A completion record costs a type, a length and a checksum, and the entry behind it nothing. */
static void a_completion_is_short(void **state)
{
    (void)state;
    span_begin();
    struct sh_replog_entry entry = entry_of(7, 64), got;
    (void)span_add(&entry);
    struct sh_replog_entry completion = completion_of(1000, 22);
    completion.is_with_next = true;
    assert_int_equal(span_add(&completion), 2 + 1 + 4);
    entry.local_id++;
    assert_int_equal(span_add(&entry), 2 + 4);
    struct sh_replog_entry later = completion_of(1001, SH_REPLOG_COMPLETION_MAX);
    assert_int_equal(span_add(&later), 2 + 1 + 4 + 4);
    entry.local_id++;
    entry.seconds++;
    assert_int_equal(span_add(&entry), 2 + 4);
    struct sh_reader r = sh_reader_make(sh_bytes_make(span, span_size));
    struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(sh_replog_entry_get(&r, &reading, &got), SH_REPLOG_ENTRY);
        assert_int_equal(sh_replog_is_completion(&got), i % 2);
        if (i % 2)
            assert_same(&got, i == 1 ? &completion : &later);
    }
    assert_same(&got, &entry);
}

/* Now and then an entry is a completion record; The chunk's entry was before it. */
static struct sh_replog_entry completion_drawn(uint64_t *state, const struct sh_replog_entry *chunk)
{
    struct sh_replog_entry entry =
        completion_of(chunk->seconds, test_draw(state) % (SH_REPLOG_COMPLETION_MAX + 1));
    entry.is_with_next = test_draw(state) & 1;
    return entry;
}

static struct sh_replog_entry drawn(uint64_t *state, const struct sh_replog_entry *before)
{
    struct sh_replog_entry entry = *before;
    uint64_t what = test_draw(state);
    entry.local_id = (entry.local_id + 1) & SH_REPLOG_LOCAL_ID_MAX;
    if (what % 3 == 0)
        entry.local_id = test_draw(state) >> (16 + what / 3 % 48);
    if (what / 256 % 5 == 0)
        entry.creator = (uint16_t)(60 + test_draw(state) % 6);
    if (what / 2048 % 4 == 0)
        entry.version.number = (uint32_t)(test_draw(state) >> (33 + test_draw(state) % 31));
    if (what / 16384 % 8 == 0)
        entry.version.epoch = (uint16_t)test_draw(state);
    if (what >> 20 & 7)
        entry.seconds += (uint32_t)(test_draw(state) % 2);
    entry.pieces = what >> 24 & 15 ? 1 : (uint16_t)(2 + test_draw(state) % 1000);
    entry.piece = (uint16_t)(test_draw(state) % entry.pieces);
    entry.is_with_next = entry.pieces == 1 && (what >> 44 & 7) == 0;
    entry.is_removal = what >> 30 % 10 == 0;
    size_t size = what >> 34 & 3 ? before->payload.size : (size_t)(test_draw(state) % 300);
    const uint8_t *at = what >> 40 & 3 ? bytes + test_draw(state) % 1000 : NULL;
    entry.payload = sh_bytes_make(at, entry.is_removal ? 0 : size);
    entry.offset = entry.pieces > 1 ? (uint32_t)(test_draw(state) >> 33) : 0;
    entry.total = entry.pieces > 1 ? entry.offset + (uint32_t)entry.payload.size : 0;
    return entry;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static struct sh_replog_entry entries[COUNT];
    uint64_t seed = test_seed(2);
    for (unsigned round = 0; round < 50; round++) {
        struct sh_replog_entry entry = entry_of(7, 64);
        span_begin();
        for (unsigned i = 0; i < COUNT; i++) {
            bool is_completion = test_draw(&seed) % 8 == 0;
            entry = is_completion ? entry : drawn(&seed, &entry);
            entries[i] = is_completion ? completion_drawn(&seed, &entry) : entry;
            (void)span_add(&entries[i]);
        }
        struct sh_reader r = sh_reader_make(sh_bytes_make(span, span_size));
        struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
        for (unsigned i = 0; i < COUNT; i++) {
            assert_int_equal(sh_replog_entry_get(&r, &reading, &entry), SH_REPLOG_ENTRY);
            assert_same(&entry, &entries[i]);
        }
        assert_int_equal(sh_replog_entry_get(&r, &reading, &entry), SH_REPLOG_END);
    }
}

/* Each bit that flips, and each byte that is missing, is noticed at its entry, and those before it are read. */
static void damage_is_noticed(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    size_t ends[COUNT];
    uint64_t seed = test_seed(3);
    struct sh_replog_entry entry = entry_of(7, 20);
    span_begin();
    for (unsigned i = 0; i < COUNT; i++) {
        entry = drawn(&seed, &entry);
        struct sh_replog_entry completion = completion_drawn(&seed, &entry);
        (void)span_add(i % 4 == 1 ? &completion : &entry);
        ends[i] = span_size;
    }
    for (size_t bit = 0; bit < 9 * span_size; bit++) {
        bool is_flip = bit < 8 * span_size;
        size_t byte = is_flip ? bit / 8 : bit - 8 * span_size, good = 0;
        while (ends[good] <= byte)
            good++;
        size_t size = is_flip ? span_size : byte;
        if (is_flip)
            span[byte] ^= (uint8_t)(1u << bit % 8);
        struct sh_reader r = sh_reader_make(sh_bytes_make(span, size));
        struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
        enum sh_replog_got got = SH_REPLOG_ENTRY;
        size_t count = 0;
        while ((got = sh_replog_entry_get(&r, &reading, &entry)) == SH_REPLOG_ENTRY)
            count++;
        assert_int_equal(count, good);
        bool is_whole = !is_flip && (byte == 0 || (good && ends[good - 1] == byte));
        assert_int_equal(got, is_whole ? SH_REPLOG_END : SH_REPLOG_DAMAGED);
        if (is_flip)
            span[byte] ^= (uint8_t)(1u << bit % 8);
    }
}

/* Read behind another entry than it was written behind, an entry is not taken for another chunk's. */
static void another_context_is_noticed(void **state)
{
    (void)state;
    span_begin();
    struct sh_replog_entry entry = entry_of(41, 8);
    size_t first = span_add(&entry) + 8;
    struct sh_replog_context right = context;
    entry.local_id++;
    (void)span_add(&entry);
    struct sh_replog_context wrong[] = {right, right, right, right, right, right};
    wrong[0].local_id++;
    wrong[1].creator++;
    wrong[2].epoch++;
    wrong[3].seconds++;
    wrong[4].sum++;
    for (unsigned i = 0; i < 6; i++) {
        struct sh_reader r = sh_reader_make(sh_bytes_make(span + first, span_size - first));
        assert_int_equal(sh_replog_entry_get(&r, &wrong[i], &entry),
                         i == 5 ? SH_REPLOG_ENTRY : SH_REPLOG_DAMAGED);
    }
    assert_int_equal(entry.local_id, 42);
}

/* An entry of the next chunk, with the checksum of what it means, whatever that is. */
static enum sh_replog_got got_at(uint16_t type, uint16_t piece, uint16_t pieces, size_t size,
                                 uint32_t offset, uint32_t total)
{
    uint8_t raw[64] = {0}, meaning[40] = {0};
    struct sh_writer w = sh_writer_make(raw, sizeof raw),
                     m = sh_writer_make(meaning, sizeof meaning);
    bool has_piece = type >> 11 & 1, is_removal = type >> 12 & 1, is_zeros = type >> 13 & 1,
         is_with_next = type >> 14 & 1;
    struct sh_bytes payload = sh_bytes_make(bytes, is_zeros ? 0 : size);
    sh_put64(&m, UINT64_C(64) << 48);
    sh_put32(&m, (uint32_t)size);
    sh_put32(&m, 0);
    sh_put32(&m, 1000);
    sh_put16(&m, 3);
    sh_put16(&m, has_piece ? piece : 0);
    sh_put16(&m, has_piece ? pieces : 1);
    sh_put16(&m, (uint16_t)(is_removal | is_zeros << 1 | is_with_next << 2));
    sh_put32(&m, 0);
    sh_put32(&m, offset);
    sh_put32(&m, total);
    sh_put16(&w, type);
    sh_put8(&w, (uint8_t)size); /* its length takes a byte */
    if (has_piece) {
        sh_put16(&w, piece);
        sh_put16(&w, pieces);
        sh_put32(&w, offset);
        sh_put32(&w, total);
    }
    uint32_t sum = sh_crc32c(5, sh_bytes_make(meaning, has_piece ? 40 : 32));
    sh_put32(&w, sh_crc32c(sum, payload));
    sh_put_raw(&w, payload);
    struct sh_reader r = sh_reader_make(sh_bytes_make(raw, (size_t)(w.at - raw)));
    struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
    struct sh_replog_entry entry;
    return sh_replog_entry_get(&r, &reading, &entry);
}

static enum sh_replog_got got_of(uint16_t type, uint16_t piece, uint16_t pieces, size_t size)
{
    return got_at(type, piece, pieces, size, 100, 100 + (uint32_t)size);
}

static void parts_that_do_not_fit_are_damage(void **state)
{
    (void)state;
    const uint16_t plain = 1 << 15 | 1 << 3, piece = plain | 1 << 11, removal = plain | 1 << 12,
                   zeros = plain | 1 << 13, with_next = plain | 1 << 14;
    assert_int_equal(got_of(plain, 0, 0, 5), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(piece, 2, 3, 5), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(piece, 3, 3, 5), SH_REPLOG_DAMAGED);
    assert_int_equal(got_at(piece, 1, 3, 5, 100, 105), SH_REPLOG_ENTRY);
    assert_int_equal(got_at(piece, 1, 3, 5, 100, 104), SH_REPLOG_DAMAGED);
    assert_int_equal(got_at(piece, 1, 3, 5, UINT32_MAX, 3), SH_REPLOG_DAMAGED);
    assert_int_equal(got_at(piece, 2, 3, 5, 100, 106), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(piece, 0, 1, 5), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(removal, 0, 0, 0), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(removal, 0, 0, 5), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(zeros, 0, 0, 5), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(zeros, 0, 0, 0), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(zeros | removal, 0, 0, 5), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(with_next, 0, 0, 5), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(with_next | zeros | removal, 0, 0, 0), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(with_next | removal, 0, 0, 0), SH_REPLOG_ENTRY);
    assert_int_equal(got_of(with_next | piece, 2, 3, 5), SH_REPLOG_DAMAGED);
    assert_int_equal(got_of(1 << 3, 0, 0, 5), SH_REPLOG_DAMAGED);
}

/* A completion record with what only chunks have, or too long. */
static void a_completion_like_a_chunk_is_damage(void **state)
{
    (void)state;
    uint8_t raw[256], meaning[32];
    for (unsigned i = 0; i < 12; i++) {
        static const struct {
            uint16_t type, more; /* bytes that a flag adds */
            uint8_t size;
        } of[] = {
            {0, 0, 22},       {0, 0, 0},       {0, 0, 64},      {1 << 14, 0, 22},
            {0, 0, 65},       {1 << 8, 2, 22}, {1 << 9, 2, 22}, {1 << 11, 12, 22},
            {1 << 12, 0, 22}, {1 << 13, 0, 5}, {1 << 5, 1, 22}, {1 << 12, 0, 0},
        };
        memset(raw, 0, sizeof raw);
        memset(meaning, 0, sizeof meaning);
        sh_store64(meaning, SH_REPLOG_COMPLETION_ID);
        sh_store32(meaning + 8, of[i].size);
        sh_store32(meaning + 16, 1000);
        sh_store16(meaning + 24, 1);
        sh_store16(meaning + 26, (uint16_t)((of[i].type >> 12 & 1) | (of[i].type >> 13 & 1) << 1 |
                                            (of[i].type >> 14 & 1) << 2));
        struct sh_writer w = sh_writer_make(raw, sizeof raw);
        sh_put16(&w, (uint16_t)(1 << 15 | 7 | 1 << 3 | of[i].type));
        sh_put8(&w, of[i].size);
        w.at += of[i].more;
        bool is_zeros = of[i].type >> 13 & 1;
        uint32_t sum = sh_crc32c(5, sh_bytes_make(meaning, sizeof meaning));
        sh_put32(&w, sh_crc32c(sum, sh_bytes_make(bytes, is_zeros ? 0 : of[i].size)));
        sh_put_raw(&w, sh_bytes_make(bytes, is_zeros ? 0 : of[i].size));
        struct sh_reader r = sh_reader_make(sh_bytes_make(raw, (size_t)(w.at - raw)));
        struct sh_replog_context reading = sh_replog_context_first(64, 3, 1000, 5);
        struct sh_replog_entry entry;
        assert_int_equal(sh_replog_entry_get(&r, &reading, &entry),
                         i < 4 ? SH_REPLOG_ENTRY : SH_REPLOG_DAMAGED);
    }
}

/* What no writer means is damage, though its checksum is right: such a number, and a chunk without a name. */
static void what_cannot_be_meant_is_damage(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        uint32_t number = i & 1 ? SH_REPLOG_NUMBER_MAX + 1 : SH_REPLOG_NUMBER_MAX;
        uint16_t creator = i & 2 ? 0 : 64;
        uint8_t raw[32], meaning[32] = {0};
        struct sh_writer w = sh_writer_make(raw, sizeof raw),
                         m = sh_writer_make(meaning, sizeof meaning);
        sh_put64(&m, (uint64_t)creator << 48);
        sh_put32(&m, 0);
        sh_put32(&m, number);
        sh_put32(&m, 1000);
        sh_put16(&m, 3);
        sh_put16(&m, 0);
        sh_put16(&m, 1);
        sh_put16(&w, 1 << 15 | 4 << 5);
        sh_put32(&w, number);
        sh_put32(&w, sh_crc32c(5, sh_bytes_make(meaning, sizeof meaning)));
        struct sh_reader r = sh_reader_make(sh_bytes_make(raw, (size_t)(w.at - raw)));
        struct sh_replog_context reading = sh_replog_context_first(creator, 3, 1000, 5);
        struct sh_replog_entry entry;
        assert_int_equal(sh_replog_entry_get(&r, &reading, &entry),
                         i ? SH_REPLOG_DAMAGED : SH_REPLOG_ENTRY);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_are_short),
        cmocka_unit_test(a_completion_is_short),
        cmocka_unit_test(a_completion_like_a_chunk_is_damage),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(another_context_is_noticed),
        cmocka_unit_test(parts_that_do_not_fit_are_damage),
        cmocka_unit_test(what_cannot_be_meant_is_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
