/* Pieces of a version log: what is written is read, in one way and few bytes, and damage is noticed. */
#include "log/version_log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "log/version_log_test.h"
#include "log/versions.h"

#define ROOM (1u << 16)
#define BASE (UINT64_C(64) << 48 | 1000)

static uint8_t buffer[ROOM], again[ROOM];

static const struct sh_version_piece piece = {.zone = PIECE_ZONE, .flush = 77, .place = 5};

static struct sh_version_tuple tuple_of(uint64_t first, uint64_t last, uint16_t epoch,
                                        uint32_t number)
{
    return (struct sh_version_tuple){.first = first, .last = last, .version = {epoch, number}};
}

static void assert_same(const struct sh_version_tuple *a, const struct sh_version_tuple *b)
{
    assert_true(a->first == b->first && a->last == b->last);
    assert_true(a->version.epoch == b->version.epoch && a->version.number == b->version.number);
    assert_int_equal(a->is_removal, b->is_removal);
}

static struct sh_version_reader opened(const uint8_t *at, size_t size)
{
    struct sh_version_reader reader;
    assert_int_equal(sh_version_reader_open(sh_bytes_make(at, size), PIECE_ZONE, &reader),
                     SHOAL_OK);
    return reader;
}

static void assert_next(struct sh_version_reader *reader, const struct sh_version_tuple *wanted)
{
    struct sh_version_tuple got;
    assert_int_equal(sh_version_reader_next(reader, &got), SH_VERSION_TUPLE);
    assert_same(&got, wanted);
}

static void assert_end(struct sh_version_reader *reader)
{
    struct sh_version_tuple got;
    assert_int_equal(sh_version_reader_next(reader, &got), SH_VERSION_END);
}

/* --- Writing and reading ---------------------------------------------------------------------- */

/* The bytes of a tuple, which docs/log.md counts on. */
static void tuples_are_short(void **state)
{
    (void)state;
    struct sh_version_tuple removal = tuple_of(BASE + 71000, BASE + 71000, 7, 0);
    removal.is_removal = true;
    const struct {
        struct sh_version_tuple tuple;
        size_t bytes;
    } cases[] = {
        {tuple_of(BASE, BASE, 7, 0), 1 + 8 + 2},         /* the first one: chunk and epoch */
        {tuple_of(BASE + 1, BASE + 1, 7, 1), 1 + 1},     /* the next chunk */
        {tuple_of(BASE + 100, BASE + 100, 7, 0), 1 + 1}, /* one nearby, written once */
        {tuple_of(BASE + 300, BASE + 300, 7, 3), 1 + 2}, /* and four times */
        {tuple_of(BASE + 1000, BASE + 1000, 7, 300), 1 + 2 + 2},
        {tuple_of(BASE + 1002, BASE + 1249, 7, 0), 1 + 1 + 1},       /* a run of 248 */
        {tuple_of(BASE + 1251, BASE + 1499, 7, 0), 1 + 1 + 2},       /* and of 249 */
        {tuple_of(BASE + 1501, BASE + 70000, 7, 0), 1 + 1 + 1 + 3},  /* a load */
        {tuple_of(BASE + 70900, BASE + 70900, 32775, 0), 1 + 2 + 2}, /* the other eon's epoch */
        {tuple_of(BASE + 70902, BASE + 70902, 7, 70000), 1 + 1 + 2 + 4},
        {removal, 1 + 1},
    };
    struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, ROOM);
    for (size_t i = 0, before = w.size; i < sizeof cases / sizeof cases[0]; i++, before = w.size) {
        assert_true(sh_version_writer_put(&w, &cases[i].tuple));
        assert_int_equal(w.size - before, cases[i].bytes);
    }
    struct sh_version_reader reader = opened(buffer, sh_version_writer_end(&w, true));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_next(&reader, &cases[i].tuple);
    assert_end(&reader);
    assert_end(&reader);
}

/* The lowest and the highest of everything. */
static void limits_are_kept(void **state)
{
    (void)state;
    struct sh_version_tuple tuples[] = {
        tuple_of(1, 1, 0, 0),
        tuple_of(UINT64_MAX / 2, UINT64_MAX - 2, 65535, SH_REPLOG_NUMBER_MAX),
        tuple_of(UINT64_MAX, UINT64_MAX, 0, 0),
        tuple_of(1, UINT64_MAX, 65535, SH_REPLOG_NUMBER_MAX),
        tuple_of(UINT64_MAX - 248, UINT64_MAX, 65535, SH_REPLOG_NUMBER_MAX),
    };
    struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, ROOM);
    for (unsigned i = 0; i < 3; i++)
        assert_true(sh_version_writer_put(&w, &tuples[i]));
    struct sh_version_reader reader = opened(buffer, sh_version_writer_end(&w, true));
    for (unsigned i = 0; i < 3; i++)
        assert_next(&reader, &tuples[i]);
    assert_end(&reader);
    for (unsigned i = 3; i < 5; i++) {
        w = sh_version_writer_begin(&piece, buffer, SH_VERSION_LOG_HEAD + SH_VERSION_LOG_TUPLE_MAX);
        assert_true(sh_version_writer_put(&w, &tuples[i]));
        reader = opened(buffer, sh_version_writer_end(&w, true));
        assert_next(&reader, &tuples[i]);
        assert_end(&reader);
    }
    /* A piece may be without tuples. */
    w = sh_version_writer_begin(&piece, buffer, SH_VERSION_LOG_HEAD);
    assert_false(sh_version_writer_put(&w, &tuples[0]));
    assert_int_equal(sh_version_writer_end(&w, true), SH_VERSION_LOG_HEAD);
    reader = opened(buffer, SH_VERSION_LOG_HEAD);
    assert_end(&reader);
}

/* Chunks behind the last tuple's: mostly the next one, or near; the version mostly as before. */
static struct sh_version_tuple drawn(uint64_t *state, const struct sh_version_tuple *before)
{
    struct sh_version_tuple tuple = *before;
    uint64_t what = test_draw(state), gap = 0, more = 0;
    if (what % 4 == 0)
        gap = test_draw(state) >> (18 + what / 4 % 46);
    if (what / 256 % 8 == 0)
        more = test_draw(state) >> (18 + what / 2048 % 46);
    tuple.first = before->last + 1 + gap;
    tuple.last = tuple.first + more;
    if (what >> 20 & 1)
        tuple.version.number = (uint32_t)(test_draw(state) >> (33 + (what >> 21) % 31));
    if ((what >> 26) % 8 == 0)
        tuple.version.epoch = (uint16_t)test_draw(state);
    tuple.is_removal = (what >> 32) % 8 == 0;
    return tuple;
}

static bool goes_on(const struct sh_version_tuple *before, const struct sh_version_tuple *tuple)
{
    return before->last + 1 == tuple->first && before->version.epoch == tuple->version.epoch &&
           before->version.number == tuple->version.number &&
           before->is_removal == tuple->is_removal;
}

/* Writes what was read once more: it must be the same bytes. */
static void assert_one_way(size_t size)
{
    struct sh_version_reader reader = opened(buffer, size);
    struct sh_version_writer w = sh_version_writer_begin(&reader.piece, again, ROOM);
    struct sh_version_tuple tuple;
    while (sh_version_reader_next(&reader, &tuple) == SH_VERSION_TUPLE)
        assert_true(sh_version_writer_put(&w, &tuple));
    assert_int_equal(sh_version_writer_end(&w, reader.piece.is_last), size);
    assert_memory_equal(buffer, again, size);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    enum { COUNT = 1000 };
    static struct sh_version_tuple tuples[COUNT];
    uint64_t seed = test_seed(4);
    for (unsigned round = 0; round < 200; round++) {
        struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, ROOM);
        struct sh_version_tuple tuple = {0};
        unsigned count = 0;
        for (unsigned i = 0; i < COUNT && tuple.last < UINT64_MAX / 2; i++) {
            tuple = drawn(&seed, &tuple);
            assert_true(sh_version_writer_put(&w, &tuple));
            if (count && goes_on(&tuples[count - 1], &tuple))
                tuples[count - 1].last = tuple.last;
            else
                tuples[count++] = tuple;
        }
        size_t size = sh_version_writer_end(&w, round % 2);
        struct sh_version_reader reader = opened(buffer, size);
        for (unsigned i = 0; i < count; i++)
            assert_next(&reader, &tuples[i]);
        assert_end(&reader);
        assert_one_way(size);
    }
}

/* Neighbours with one version take no more than one tuple, however they are put. */
static void neighbours_are_one_tuple(void **state)
{
    (void)state;
    struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, ROOM);
    for (uint64_t i = 0; i < 100000; i++) {
        struct sh_version_tuple tuple = tuple_of(BASE + i, BASE + i, 7, 3);
        assert_true(sh_version_writer_put(&w, &tuple));
    }
    size_t size = sh_version_writer_end(&w, true);
    assert_int_equal(size, SH_VERSION_LOG_HEAD + 1 + 8 + 4 + 2 + 1);
    struct sh_version_tuple whole = tuple_of(BASE, BASE + 99999, 7, 3);
    struct sh_version_reader reader = opened(buffer, size);
    assert_next(&reader, &whole);
    assert_end(&reader);
}

/* What does not fit changes nothing, whatever the room; the next piece goes on with it. */
static void a_full_piece_changes_nothing(void **state)
{
    (void)state;
    uint64_t seed = test_seed(5);
    for (size_t room = SH_VERSION_LOG_HEAD; room < 200; room++) {
        struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, room);
        struct sh_version_tuple tuple = {0}, last = {0}, got = {0};
        memset(buffer, 0xee, sizeof buffer);
        for (;; last = tuple) {
            tuple = drawn(&seed, &tuple);
            struct sh_version_writer before = w;
            if (!sh_version_writer_put(&w, &tuple)) {
                assert_true(w.size == before.size && w.size + SH_VERSION_LOG_TUPLE_MAX > room);
                break;
            }
        }
        size_t size = sh_version_writer_end(&w, false);
        assert_true(size <= room && buffer[room] == 0xee);
        struct sh_version_reader reader = opened(buffer, size);
        while (sh_version_reader_next(&reader, &got) == SH_VERSION_TUPLE)
            ;
        assert_end(&reader);
        assert_int_equal(got.last, last.last);
        w = sh_version_writer_begin(&piece, buffer, SH_VERSION_LOG_HEAD + SH_VERSION_LOG_TUPLE_MAX);
        assert_true(sh_version_writer_put(&w, &tuple));
        reader = opened(buffer, sh_version_writer_end(&w, true));
        assert_next(&reader, &tuple);
    }
}

/* --- The header ------------------------------------------------------------------------------- */

static void a_piece_says_what_it_is_of(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        const struct sh_version_piece of = {.zone = PIECE_ZONE,
                                            .flush = UINT64_MAX - i,
                                            .place = UINT32_MAX - i,
                                            .is_compaction = i & 1};
        struct sh_version_writer w = sh_version_writer_begin(&of, buffer, ROOM);
        struct sh_version_tuple tuple = tuple_of(BASE, BASE, 7, 1);
        assert_true(sh_version_writer_put(&w, &tuple));
        size_t size = sh_version_writer_end(&w, i & 2);
        struct sh_version_reader reader = opened(buffer, size + 100); /* and what comes behind it */
        assert_int_equal(reader.size, size);
        assert_true(reader.piece.zone == of.zone && reader.piece.flush == of.flush);
        assert_int_equal(reader.piece.place, of.place);
        assert_int_equal(reader.piece.is_compaction, i & 1);
        assert_int_equal(reader.piece.is_last, i >> 1);
        assert_next(&reader, &tuple);
        assert_end(&reader);
    }
}

static enum shoal_err error_of(struct sh_bytes bytes, uint64_t zone)
{
    struct sh_version_reader reader = {.size = 77};
    enum shoal_err err = sh_version_reader_open(bytes, zone, &reader);
    assert_true(err ? reader.size == 77 : reader.size == bytes.size);
    return err;
}

static void other_pieces_are_refused(void **state)
{
    (void)state;
    memset(buffer, 0, sizeof buffer);
    const uint8_t tuple[] = {0}; /* chunk 1 */
    memcpy(buffer + SH_VERSION_LOG_HEAD, tuple, sizeof tuple);
    assert_int_equal(error_of(piece_sealed(buffer, 1, 0, 1), PIECE_ZONE), SHOAL_OK);
    assert_int_equal(error_of(piece_sealed(buffer, 1, 3, 1), PIECE_ZONE), SHOAL_OK);
    assert_int_equal(error_of(piece_sealed(buffer, 1, 0, 1), PIECE_ZONE + 1), SHOAL_EDIFFERS);
    assert_int_equal(error_of(piece_sealed(buffer, 2, 0, 1), PIECE_ZONE), SHOAL_EVERSION);
    assert_int_equal(error_of(piece_sealed(buffer, 0, 0, 1), PIECE_ZONE), SHOAL_EVERSION);
    for (unsigned bit = 2; bit < 16; bit++)
        assert_int_equal(error_of(piece_sealed(buffer, 1, (uint16_t)(1u << bit), 1), PIECE_ZONE),
                         SHOAL_ECORRUPT);
    assert_int_equal(error_of(sh_bytes_make(NULL, 0), PIECE_ZONE), SHOAL_ECORRUPT);
    memset(buffer, 0, sizeof buffer);
    assert_int_equal(error_of(sh_bytes_make(buffer, 4096), 0), SHOAL_ECORRUPT);
}

/* Each bit that flips, and each byte that is missing, is noticed, whatever zone is asked for. */
static void damage_is_noticed(void **state)
{
    (void)state;
    uint64_t seed = test_seed(6);
    struct sh_version_writer w = sh_version_writer_begin(&piece, buffer, ROOM);
    struct sh_version_tuple tuple = {0};
    for (unsigned i = 0; i < 50; i++) {
        tuple = drawn(&seed, &tuple);
        assert_true(sh_version_writer_put(&w, &tuple));
    }
    size_t size = sh_version_writer_end(&w, true);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(error_of(sh_bytes_make(buffer, size), PIECE_ZONE), SHOAL_ECORRUPT);
        assert_int_equal(error_of(sh_bytes_make(buffer, ROOM), PIECE_ZONE), SHOAL_ECORRUPT);
        buffer[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t left = 0; left < size; left++) {
        uint8_t *cut = malloc(left + 1); /* so that a sanitizer sees what is read behind it */
        assert_non_null(cut);
        memcpy(cut + 1, buffer, left);
        assert_int_equal(error_of(sh_bytes_make(cut + 1, left), PIECE_ZONE), SHOAL_ECORRUPT);
        free(cut);
    }
    assert_int_equal(error_of(sh_bytes_make(buffer, size), PIECE_ZONE), SHOAL_OK);
}

/* --- Tuples that no writer makes -------------------------------------------------------------- */

#define GAP(code) (code)
#define NUMBER(code) ((code) << 3)
#define EPOCH 32
#define REMOVAL 64
#define RUN 128
struct raw {
    const char *what;
    size_t good; /* tuples before the damage */
    bool is_sound;
    size_t size;
    uint8_t bytes[32];
};

static const struct raw raws[] = {
    {"a chunk", 1, true, 1, {0}},
    {"the next one, a removal", 2, true, 2, {0, REMOVAL}},
    {"neighbours with one version", 1, false, 2, {0, 0}},
    {"such removals", 1, false, 2, {REMOVAL, REMOVAL}},
    {"neighbours with two numbers", 2, true, 3, {0, NUMBER(1), 1}},
    {"a chunk behind a gap", 2, true, 3, {0, GAP(1), 1}},
    {"a gap of 0 in a byte", 1, false, 4, {0, GAP(1) | NUMBER(1), 0, 1}},
    {"a gap of 255 in two", 0, false, 3, {GAP(2), 255, 0}},
    {"a gap of 2^16", 1, true, 4, {GAP(3), 0, 0, 1}},
    {"a gap of six bytes in eight", 0, false, 9, {GAP(7), 1, 1, 1, 1, 1, 1, 0, 0}},
    {"a gap of seven", 1, true, 9, {GAP(7), 1, 1, 1, 1, 1, 1, 1, 0}},
    {"a gap that ends too early", 1, false, 3, {NUMBER(1), 9, GAP(1)}},
    {"number 0 in a byte", 0, false, 2, {NUMBER(1), 0}},
    {"number 255 in two", 0, false, 3, {NUMBER(2), 255, 0}},
    {"a number of two bytes in four", 0, false, 5, {NUMBER(3), 255, 255, 0, 0}},
    {"a number of three", 1, true, 5, {NUMBER(3), 255, 255, 1, 0}},
    {"the highest number", 1, true, 5, {NUMBER(3), 255, 255, 255, 127}},
    {"one above it", 0, false, 5, {NUMBER(3), 0, 0, 0, 128}},
    {"a number that ends too early", 0, false, 4, {NUMBER(3), 0, 0, 0}},
    {"epoch 0, as before", 0, false, 3, {EPOCH, 0, 0}},
    {"epoch 256, and again", 1, false, 7, {EPOCH, 0, 1, EPOCH | GAP(1), 1, 0, 1}},
    {"epoch 256, then 0", 2, true, 6, {EPOCH, 0, 1, EPOCH, 0, 0}},
    {"an epoch that ends too early", 0, false, 2, {EPOCH, 1}},
    {"a run of two", 1, true, 2, {RUN, 1}},
    {"a run of one", 0, false, 2, {RUN, 0}},
    {"a run of 248", 1, true, 2, {RUN, 247}},
    {"a run of 248 in two bytes", 0, false, 3, {RUN, 248, 247}},
    {"a run of 249", 1, true, 3, {RUN, 248, 248}},
    {"a run of 249 in three", 0, false, 4, {RUN, 249, 248, 0}},
    {"a run without its length", 0, false, 1, {RUN}},
    {"a run with half of it", 0, false, 3, {RUN, 249, 0}},
    {"the last ID", 1, true, 9, {GAP(7), 254, 255, 255, 255, 255, 255, 255, 255}},
    {"one behind it", 0, false, 9, {GAP(7), 255, 255, 255, 255, 255, 255, 255, 255}},
    {"the next one behind it",
     1,
     false,
     10,
     {GAP(7), 254, 255, 255, 255, 255, 255, 255, 255, REMOVAL}},
    {"a run to the last ID", 1, true, 10, {RUN, 255, 254, 255, 255, 255, 255, 255, 255, 255}},
    {"a run behind it", 0, false, 10, {RUN, 255, 255, 255, 255, 255, 255, 255, 255, 255}},
    {"a gap and a run behind it",
     0,
     false,
     11,
     {RUN | GAP(1), 1, 255, 254, 255, 255, 255, 255, 255, 255, 255}},
    {"one behind a run to the last ID",
     1,
     false,
     12,
     {RUN, 255, 254, 255, 255, 255, 255, 255, 255, 255, GAP(1), 1}},
};

static void there_is_one_way_to_say_it(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof raws / sizeof raws[0]; i++) {
        const struct raw *raw = &raws[i];
        memcpy(buffer + SH_VERSION_LOG_HEAD, raw->bytes, raw->size);
        struct sh_bytes bytes = piece_sealed(buffer, 1, 1, raw->size);
        struct sh_version_reader reader = opened(bytes.at, bytes.size), before = reader;
        struct sh_version_tuple tuple = {.first = 77};
        enum sh_version_got got;
        size_t good = 0;
        for (; (got = sh_version_reader_next(&reader, &tuple)) == SH_VERSION_TUPLE; good++)
            before = reader;
        if (good != raw->good || (got == SH_VERSION_END) != raw->is_sound)
            fail_msg("%s: %zu tuples, then %d", raw->what, good, (int)got);
        assert_true(reader.in.at == before.in.at && !reader.in.bad);
        assert_true(reader.before.last == before.before.last);
        assert_true(good || tuple.first == 77);
        if (raw->is_sound)
            assert_one_way(bytes.size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tuples_are_short),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(neighbours_are_one_tuple),
        cmocka_unit_test(a_full_piece_changes_nothing),
        cmocka_unit_test(a_piece_says_what_it_is_of),
        cmocka_unit_test(other_pieces_are_refused),
        cmocka_unit_test(damage_is_noticed),
        cmocka_unit_test(there_is_one_way_to_say_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
