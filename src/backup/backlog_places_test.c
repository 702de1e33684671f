/* A backlog's cursors that go back: places, what is taken up to them, and entries for one cursor alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backup/backlog.h"
#include "base/random_test.h"

#define BLOCKS 256
#define WINDOW (1u << 20)

static struct sh_backlog_pool *pool;
static struct sh_backlog backlog;
static uint8_t scratch[SH_BACKLOG_PIECE_BYTES], bytes[SH_BACKLOG_PIECE_BYTES];

static int setup(void **state)
{
    (void)state;
    assert_int_equal(sh_backlog_pool_create(BLOCKS, &pool), SHOAL_OK);
    sh_backlog_init(&backlog, pool, WINDOW, 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_backlog_end(&backlog);
    assert_int_equal(sh_backlog_pool_left(pool), BLOCKS);
    sh_backlog_pool_destroy(pool);
    return 0;
}

static struct sh_backlog_entry image_of(uint64_t chunk, uint32_t size, uint8_t only)
{
    return (struct sh_backlog_entry){.chunk = chunk,
                                     .kind = SH_BACKLOG_IMAGE,
                                     .pieces = 1,
                                     .size = size,
                                     .only = only,
                                     .at = bytes};
}

static void image_put(uint64_t chunk, uint32_t size, uint8_t only)
{
    const struct sh_backlog_entry entry = image_of(chunk, size, only);
    assert_int_equal(sh_backlog_admit(&backlog, sh_backlog_bytes(false, size)), SHOAL_OK);
    (void)sh_backlog_record(&backlog, NULL, &entry);
}

/* Two pieces and the last one of a chunk, for one cursor or all. */
static void pieces_put(uint64_t chunk, uint8_t only, bool is_ended)
{
    struct sh_backlog_entry piece = image_of(chunk, SH_BACKLOG_PIECE_BYTES, only);
    piece.pieces = 3;
    piece.total = 2 * SH_BACKLOG_PIECE_BYTES + 5;
    assert_int_equal(sh_backlog_hold(&backlog, 0), SHOAL_OK);
    for (; piece.piece < 2; piece.piece++)
        assert_int_equal(sh_backlog_piece(&backlog, &piece), SHOAL_OK);
    if (!is_ended) {
        sh_backlog_hold_abandon(&backlog);
        return;
    }
    piece.size = 5;
    assert_int_equal(sh_backlog_last(&backlog, 5), SHOAL_OK);
    (void)sh_backlog_hold_end(&backlog, &piece, NULL);
}

static struct sh_backlog_entry next_of(struct sh_backlog_cursor *cursor, uint64_t number)
{
    struct sh_backlog_entry entry;
    uint64_t found;
    assert_true(sh_backlog_read(cursor, &entry, &found, scratch));
    assert_int_equal(found, number);
    return entry;
}

static void assert_end(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    assert_false(sh_backlog_read(cursor, &entry, &number, scratch));
}

/* A cursor that goes back reads again the entries that it did not take, and no others. */
static void a_cursor_goes_back(void **state)
{
    (void)state;
    struct sh_backlog_cursor cursor;
    bool gave;
    assert_true(sh_backlog_attach(&backlog, &cursor));
    for (unsigned i = 1; i <= 10; i++)
        image_put(i, 9000, 0);
    for (unsigned i = 1; i <= 8; i++)
        assert_int_equal(next_of(&cursor, i).chunk, i);
    assert_true(sh_backlog_take_to(&cursor, 5, 0, &gave) && gave);
    assert_int_equal(sh_backlog_flying(&cursor), 4 * (9000 + SH_BACKLOG_HEAD_BYTES));
    assert_int_equal(sh_backlog_pending(&cursor), 6 * (9000 + SH_BACKLOG_HEAD_BYTES));
    sh_backlog_rewind(&cursor);
    for (unsigned i = 5; i <= 10; i++)
        assert_int_equal(next_of(&cursor, i).chunk, i);
    assert_end(&cursor);
    /* Neither what was taken already, nor what was never read, nor a place that is none. */
    assert_false(sh_backlog_take_to(&cursor, 4, 0, &gave));
    assert_false(sh_backlog_take_to(&cursor, 12, 0, &gave));
    assert_false(sh_backlog_take_to(&cursor, 7, 1, &gave));
    assert_true(sh_backlog_take_to(&cursor, 11, 0, &gave) && gave);
    assert_int_equal(sh_backlog_flying(&cursor), 0);
    assert_int_equal(sh_backlog_pool_left(pool), BLOCKS);
    (void)sh_backlog_detach(&cursor);
}

/* A chunk in pieces is taken piece by piece; pieces that are abandoned count, too. */
static void a_place_is_within_a_write(void **state)
{
    (void)state;
    struct sh_backlog_cursor cursor;
    bool gave;
    assert_true(sh_backlog_attach(&backlog, &cursor));
    pieces_put(3, 0, false);
    pieces_put(3, 0, true);
    image_put(4, 10, 0);
    for (unsigned part = 0; part < 6; part++) {
        assert_true(cursor.read.number == 1 && cursor.read.part == part);
        (void)next_of(&cursor, 1);
    }
    assert_int_equal(next_of(&cursor, 2).chunk, 4);
    assert_true(sh_backlog_take_to(&cursor, 1, 4, &gave) && gave);
    sh_backlog_rewind(&cursor);
    assert_int_equal(next_of(&cursor, 1).piece, 1);
    assert_int_equal(next_of(&cursor, 1).piece, 2);
    assert_int_equal(next_of(&cursor, 2).chunk, 4);
    (void)sh_backlog_detach(&cursor);
}

/* An entry for one cursor is the removal of no chunk for others, and its pieces are nothing for them. */
static void others_see_no_chunk(void **state)
{
    (void)state;
    struct sh_backlog_cursor one, other;
    bool gave;
    assert_true(sh_backlog_attach(&backlog, &other) && sh_backlog_attach(&backlog, &one));
    uint8_t only = (uint8_t)(one.slot + 1);
    image_put(1, 100, 0);
    image_put(2, 20000, only);
    pieces_put(3, only, false);
    pieces_put(4, only, true);
    pieces_put(5, only, false);
    assert_int_equal(next_of(&one, 1).chunk, 1);
    assert_int_equal(next_of(&one, 2).size, 20000);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(next_of(&one, 3).chunk, 3);
    assert_int_equal(next_of(&one, 3).kind, SH_BACKLOG_ABANDON);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(next_of(&one, 3).chunk, 4);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(next_of(&one, 4).chunk, 5);
    assert_int_equal(next_of(&one, 4).kind, SH_BACKLOG_ABANDON);
    assert_end(&one);

    assert_int_equal(next_of(&other, 1).chunk, 1);
    for (unsigned number = 2; number <= 3; number++) {
        const struct sh_backlog_entry entry = next_of(&other, number);
        assert_true(entry.kind == SH_BACKLOG_REMOVAL && entry.chunk == SH_BACKLOG_NO_CHUNK &&
                    !entry.size);
    }
    assert_end(&other);
    /* The backlog does not keep later entries of the first cursor for the other. */
    assert_true(sh_backlog_take_to(&one, 4, 3, &gave));
    assert_true(sh_backlog_take_to(&other, 4, 0, &gave) && gave);
    assert_int_equal(sh_backlog_pending(&other), 0);
    assert_int_equal(sh_backlog_pool_left(pool), BLOCKS);
    (void)sh_backlog_detach(&one);
    (void)sh_backlog_detach(&other);
}

/* A cursor does not begin among the pieces of a chunk; without any, nothing is kept. */
static void cursors_come_and_go(void **state)
{
    (void)state;
    struct sh_backlog_cursor first, second;
    struct sh_backlog_entry piece = image_of(3, SH_BACKLOG_PIECE_BYTES, 0);
    piece.pieces = 3;
    piece.total = 2 * SH_BACKLOG_PIECE_BYTES + 5;
    assert_true(sh_backlog_attach(&backlog, &first));
    assert_int_equal(sh_backlog_hold(&backlog, 0), SHOAL_OK);
    assert_int_equal(sh_backlog_piece(&backlog, &piece), SHOAL_OK);
    assert_false(sh_backlog_attach(&backlog, &second));
    sh_backlog_hold_abandon(&backlog);
    assert_true(sh_backlog_attach(&backlog, &second));
    assert_end(&second);
    image_put(1, 30000, 0);
    image_put(2, 30000, 0);
    (void)next_of(&second, 1);
    assert_false(sh_backlog_take(&second)); /* the first one has not */
    assert_true(sh_backlog_detach(&first));
    (void)next_of(&second, 2);
    assert_true(sh_backlog_take(&second));
    (void)sh_backlog_detach(&second);
    image_put(3, 30000, 0);
    assert_true(sh_backlog_trim(&backlog));
    assert_int_equal(sh_backlog_pool_left(pool), BLOCKS);
}

/* Several cursors at random, against the numbers and parts that each has seen. */
static void random_cursors_agree(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    struct sh_backlog_cursor cursors[SH_BACKLOG_CURSORS_MAX];
    uint64_t next = 1, seen[SH_BACKLOG_CURSORS_MAX], kept[SH_BACKLOG_CURSORS_MAX];
    static uint8_t only[20000];
    bool gave;
    for (unsigned i = 0; i < SH_BACKLOG_CURSORS_MAX; i++) {
        assert_true(sh_backlog_attach(&backlog, &cursors[i]));
        seen[i] = kept[i] = 1;
    }
    for (unsigned round = 0; round < 30000; round++) {
        unsigned i = (unsigned)(test_draw(&seed) % SH_BACKLOG_CURSORS_MAX);
        uint32_t size = (uint32_t)(test_draw(&seed) % 300);
        struct sh_backlog_entry entry;
        uint64_t number;
        switch (test_draw(&seed) % 4) {
        case 0:
            if (next == 20000 || sh_backlog_admit(&backlog, sh_backlog_bytes(false, size)))
                break;
            only[next] = test_draw(&seed) % 2 ? 0 : (uint8_t)(i + 1);
            entry = image_of(next, size, only[next]);
            assert_int_equal(sh_backlog_record(&backlog, NULL, &entry), next++);
            break;
        case 1:
            if (!sh_backlog_read(&cursors[i], &entry, &number, scratch)) {
                assert_int_equal(seen[i], next);
                break;
            }
            assert_int_equal(number, seen[i]);
            bool is_its = !only[number] || only[number] == cursors[i].slot + 1;
            assert_int_equal(entry.chunk, is_its ? number : SH_BACKLOG_NO_CHUNK);
            seen[i]++;
            break;
        case 2:
            kept[i] += test_draw(&seed) % (seen[i] - kept[i] + 1);
            assert_true(sh_backlog_take_to(&cursors[i], kept[i], 0, &gave));
            break;
        case 3:
            if (test_draw(&seed) % 8)
                break;
            sh_backlog_rewind(&cursors[i]);
            seen[i] = kept[i];
            break;
        }
    }
    assert_true(next > 4000);
    for (unsigned i = 0; i < SH_BACKLOG_CURSORS_MAX; i++)
        (void)sh_backlog_detach(&cursors[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_cursor_goes_back),  TEST(a_place_is_within_a_write), TEST(others_see_no_chunk),
        TEST(cursors_come_and_go), TEST(random_cursors_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
