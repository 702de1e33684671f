/* Backlogs against a plain list of entries, with several cursors at their own pace, and with threads. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/backlog.h"
#include "base/random_test.h"

#define WINDOW (UINT64_C(1) << 20)
#define CURSORS 3u
#define CHUNK (UINT64_C(1) << 48 | 9)

struct expected {
    struct sh_backlog_entry entry;
    uint64_t number;
    uint8_t fill; /* of all its bytes */
};

/* All that was recorded, and the backlogs of a pool. */
struct model {
    struct sh_backlog_pool *pool;
    struct sh_backlog backlog;
    struct sh_backlog_cursor cursors[CURSORS];
    size_t read[CURSORS]; /* entries that each cursor has read */
    struct expected *all;
    size_t count, room;
    uint64_t next;
    uint8_t *scratch;
};

static uint8_t image[300000];

static void model_begin(struct model *model, size_t blocks, uint64_t first)
{
    *model = (struct model){.next = first, .scratch = malloc(SH_BACKLOG_PIECE_BYTES)};
    assert_int_equal(sh_backlog_pool_create(blocks, &model->pool), SHOAL_OK);
    sh_backlog_init(&model->backlog, model->pool, WINDOW, first);
    for (unsigned i = 0; i < CURSORS; i++)
        sh_backlog_attach(&model->backlog, &model->cursors[i]);
}

static void model_end(struct model *model, size_t blocks)
{
    for (unsigned i = 0; i < CURSORS; i++)
        sh_backlog_detach(&model->cursors[i]);
    sh_backlog_end(&model->backlog);
    assert_int_equal(sh_backlog_pool_left(model->pool), blocks);
    sh_backlog_pool_destroy(model->pool);
    free(model->all);
    free(model->scratch);
}

static void expect(struct model *model, const struct sh_backlog_entry *entry, uint64_t number,
                   uint8_t fill)
{
    if (model->count == model->room) {
        model->room = model->room ? 2 * model->room : 256;
        model->all = realloc(model->all, model->room * sizeof *model->all);
        assert_non_null(model->all);
    }
    model->all[model->count++] = (struct expected){*entry, number, fill};
}

/* An image of more than a piece is read in pieces. */
static void expect_image(struct model *model, const struct sh_backlog_entry *entry, uint8_t fill)
{
    struct sh_backlog_entry piece = *entry;
    struct sh_backlog_entry whole = *entry;
    uint32_t left = entry->size, most = entry->kind == SH_BACKLOG_IMAGE ? 32u << 10 : 8u << 20;
    if (left <= most) {
        whole.total = left;
        expect(model, &whole, model->next, fill);
        return;
    }
    piece.total = left;
    piece.pieces = (uint16_t)((left + most - 1) / most);
    for (; piece.piece < piece.pieces; piece.piece++) {
        piece.size = left < most ? left : most;
        left -= piece.size;
        piece.completion_size = left ? 0 : entry->completion_size; /* with the last */
        expect(model, &piece, model->next, fill);
    }
}

/* Reads one entry, which must be the next one. */
static bool read_one(struct model *model, unsigned cursor)
{
    struct sh_backlog_entry got;
    uint64_t number;
    bool is_there = model->read[cursor] < model->count;
    assert_int_equal(sh_backlog_read(&model->cursors[cursor], &got, &number, model->scratch),
                     is_there);
    if (!is_there)
        return false;
    const struct expected *expected = &model->all[model->read[cursor]++];
    assert_int_equal(number, expected->number);
    assert_int_equal(got.chunk, expected->entry.chunk);
    assert_int_equal(got.kind, expected->entry.kind);
    assert_int_equal(got.with_next, expected->entry.with_next);
    assert_int_equal(got.piece, expected->entry.piece);
    assert_int_equal(got.pieces, expected->entry.pieces);
    assert_int_equal(got.size, expected->entry.size);
    assert_int_equal(got.total, expected->entry.total);
    assert_int_equal(got.completion_size, expected->entry.completion_size);
    assert_memory_equal(got.completion, expected->entry.completion, got.completion_size);
    for (uint32_t i = 0; got.kind == SH_BACKLOG_IMAGE && i < got.size; i++) {
        if (got.at[i] != expected->fill)
            assert_int_equal(got.at[i], expected->fill);
    }
    return true;
}

/* Gives the entry a completion record of random bytes. */
static void completion_draw(struct sh_backlog_entry *entry, uint64_t *seed)
{
    entry->completion_size = (uint8_t)(1 + test_draw(seed) % SH_COMPLETION_BYTES_MAX);
    for (unsigned i = 0; i < entry->completion_size; i++)
        entry->completion[i] = (uint8_t)test_draw(seed);
}

static struct sh_backlog_entry entry_drawn(uint64_t *seed)
{
    struct sh_backlog_entry entry = {
        .chunk = test_draw(seed), .kind = (uint8_t)(test_draw(seed) % 3), .pieces = 1};
    uint32_t most = test_draw(seed) % 16 ? 300 : sizeof image;
    if (entry.kind != SH_BACKLOG_REMOVAL)
        entry.size = (uint32_t)(test_draw(seed) % most);
    if (entry.kind == SH_BACKLOG_ZEROS)
        entry.size *= 100;
    if (test_draw(seed) % 3 == 0)
        completion_draw(&entry, seed);
    return entry;
}

static uint64_t bytes_of(const struct sh_backlog_entry *entry)
{
    return sh_backlog_bytes(entry->kind != SH_BACKLOG_IMAGE, entry->size) + entry->completion_size;
}

/* Records an entry if it is admitted, perhaps with a note before it. */
static void record_drawn(struct model *model, uint64_t *seed)
{
    struct sh_backlog_entry entry = entry_drawn(seed);
    struct sh_backlog_entry note = {
        .chunk = 7, .kind = SH_BACKLOG_IMAGE, .with_next = true, .pieces = 1, .size = 40};
    bool has_note = test_draw(seed) % 4 == 0;
    uint64_t bytes = bytes_of(&entry) + (has_note ? bytes_of(&note) : 0);
    uint8_t fill = (uint8_t)test_draw(seed);
    if (sh_backlog_admit(&model->backlog, bytes))
        return;
    if (test_draw(seed) % 8 == 0) {
        sh_backlog_cancel(&model->backlog, bytes);
        return;
    }
    memset(image, fill,
           entry.kind == SH_BACKLOG_IMAGE && entry.size > note.size ? entry.size : note.size);
    entry.at = note.at = image;
    assert_int_equal(sh_backlog_record(&model->backlog, has_note ? &note : NULL, &entry),
                     model->next);
    if (has_note)
        expect(model, &note, model->next, fill);
    expect_image(model, &entry, fill);
    model->next++;
}

static void read_all(struct model *model)
{
    for (unsigned i = 0; i < CURSORS; i++) {
        while (read_one(model, i))
            continue;
        (void)sh_backlog_take(&model->cursors[i]);
    }
}

/* A chunk comes piece by piece, to its end or until it is given up; nothing else is admitted meanwhile. */
static void pieces_drawn(struct model *model, uint64_t *seed)
{
    struct sh_backlog_entry piece = {.chunk = CHUNK, .kind = SH_BACKLOG_IMAGE};
    uint8_t fill = (uint8_t)test_draw(seed);
    if (sh_backlog_hold(&model->backlog, 16 + SH_COMPLETION_BYTES_MAX))
        return;
    assert_int_equal(sh_backlog_hold(&model->backlog, 16 + SH_COMPLETION_BYTES_MAX), SHOAL_EAGAIN);
    piece.pieces = (uint16_t)(2 + test_draw(seed) % 6);
    piece.size = SH_BACKLOG_PIECE_BYTES;
    piece.total = piece.pieces * piece.size;
    uint16_t end = (uint16_t)(test_draw(seed) % piece.pieces);
    bool is_whole = test_draw(seed) % 3, has_room = test_draw(seed) % 2;
    if (is_whole)
        end = (uint16_t)(piece.pieces - 1);
    memset(image, fill, SH_BACKLOG_PIECE_BYTES);
    piece.at = image;
    while (piece.piece < end) {
        assert_int_equal(sh_backlog_admit(&model->backlog, SH_BACKLOG_HEAD_BYTES), SHOAL_EAGAIN);
        if (sh_backlog_piece(&model->backlog, &piece)) {
            read_all(model);
            continue;
        }
        expect(model, &piece, model->next, fill);
        piece.piece++;
    }
    piece.piece = (uint16_t)(piece.pieces - 1);
    while ((is_whole || has_room) &&
           sh_backlog_last(&model->backlog, piece.size + SH_COMPLETION_BYTES_MAX))
        read_all(model);
    if (is_whole) {
        struct sh_backlog_entry note = {
            .kind = SH_BACKLOG_IMAGE, .pieces = 1, .size = 16, .at = image};
        bool has_note = test_draw(seed) % 2;
        completion_draw(has_note ? &note : &piece, seed);
        assert_int_equal(sh_backlog_hold_end(&model->backlog, &piece, has_note ? &note : NULL),
                         model->next + has_note);
        expect(model, &piece, model->next++, fill);
        if (has_note)
            expect(model, &note, model->next++, fill);
    } else {
        const struct sh_backlog_entry abandon = {.kind = SH_BACKLOG_ABANDON, .pieces = 1};
        sh_backlog_hold_abandon(&model->backlog);
        if (end > 0)
            expect(model, &abandon, model->next, 0);
    }
    assert_int_equal(sh_backlog_next(&model->backlog), model->next);
}

/* Each cursor reads all, once and in order, whatever the others have read; blocks come back when all have. */
static void test_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(31);
    const size_t blocks = 80;
    for (unsigned round = 0; round < 20; round++) {
        struct model model;
        model_begin(&model, blocks, 1 + test_draw(&seed) % 1000);
        for (unsigned i = 0; i < 2000; i++) {
            unsigned what = (unsigned)(test_draw(&seed) % 16);
            unsigned cursor = (unsigned)(test_draw(&seed) % CURSORS);
            if (what < 9)
                record_drawn(&model, &seed);
            else if (what == 9 && test_draw(&seed) % 16 == 0)
                pieces_drawn(&model, &seed);
            else if (what < 14)
                for (unsigned n = (unsigned)(test_draw(&seed) % 8); n > 0; n--)
                    (void)read_one(&model, cursor);
            else
                (void)sh_backlog_take(&model.cursors[cursor]);
        }
        for (unsigned i = 0; i < CURSORS; i++) {
            while (read_one(&model, i))
                continue;
            (void)sh_backlog_take(&model.cursors[i]);
        }
        assert_int_equal(sh_backlog_pool_left(model.pool), blocks);
        assert_int_equal(sh_backlog_admit(&model.backlog, WINDOW), SHOAL_OK);
        sh_backlog_cancel(&model.backlog, WINDOW);
        model_end(&model, blocks);
    }
}

/* A backlog whose window is full admits nothing until the slowest cursor has taken something. */
static void test_window(void **state)
{
    (void)state;
    struct model model;
    struct sh_backlog_entry zeros = {.chunk = CHUNK, .kind = SH_BACKLOG_ZEROS, .pieces = 1};
    uint64_t admitted = 0;
    model_begin(&model, 128, 1);
    while (!sh_backlog_admit(&model.backlog, SH_BACKLOG_HEAD_BYTES)) {
        (void)sh_backlog_record(&model.backlog, NULL, &zeros);
        admitted++;
    }
    assert_int_equal(admitted, WINDOW / SH_BACKLOG_HEAD_BYTES);
    for (unsigned i = 0; i < CURSORS; i++) {
        struct sh_backlog_entry entry;
        uint64_t number;
        assert_int_equal(sh_backlog_admit(&model.backlog, SH_BACKLOG_HEAD_BYTES), SHOAL_EAGAIN);
        assert_true(sh_backlog_read(&model.cursors[i], &entry, &number, model.scratch));
        assert_int_equal(number, 1);
        (void)sh_backlog_take(&model.cursors[i]);
    }
    assert_int_equal(sh_backlog_admit(&model.backlog, SH_BACKLOG_HEAD_BYTES), SHOAL_OK);
    sh_backlog_cancel(&model.backlog, SH_BACKLOG_HEAD_BYTES);
    model_end(&model, 128);
}

/* A pool that is used up refuses, and takes nothing from who has room already. */
static void test_pool(void **state)
{
    (void)state;
    struct model model;
    struct sh_backlog other;
    model_begin(&model, 4, 1);
    sh_backlog_init(&other, model.pool, WINDOW, 1);
    assert_int_equal(sh_backlog_admit(&model.backlog, 3 * SH_BACKLOG_BLOCK_BYTES), SHOAL_OK);
    assert_int_equal(sh_backlog_admit(&other, SH_BACKLOG_BLOCK_BYTES + 1), SHOAL_EAGAIN);
    assert_int_equal(sh_backlog_admit(&other, SH_BACKLOG_BLOCK_BYTES), SHOAL_OK);
    assert_int_equal(sh_backlog_admit(&model.backlog, 1), SHOAL_EAGAIN);
    assert_int_equal(sh_backlog_pool_left(model.pool), 0);
    sh_backlog_cancel(&model.backlog, 3 * SH_BACKLOG_BLOCK_BYTES);
    sh_backlog_cancel(&other, SH_BACKLOG_BLOCK_BYTES);
    sh_backlog_end(&other);
    model_end(&model, 4);
}

/* Who is refused, or takes no room after all, keeps no blocks that others may wait for: else backlogs that have nothing to be read
 * could wait for each other. */
static void test_pool_refused(void **state)
{
    (void)state;
    struct model model;
    struct sh_backlog other;
    model_begin(&model, 4, 1);
    sh_backlog_init(&other, model.pool, WINDOW, 1);
    assert_int_equal(sh_backlog_admit(&other, SH_BACKLOG_BLOCK_BYTES), SHOAL_OK);
    assert_int_equal(sh_backlog_admit(&model.backlog, 3 * SH_BACKLOG_BLOCK_BYTES + 1),
                     SHOAL_EAGAIN);
    assert_int_equal(sh_backlog_pool_left(model.pool), 3);
    sh_backlog_cancel(&other, SH_BACKLOG_BLOCK_BYTES);
    assert_int_equal(sh_backlog_pool_left(model.pool), 4);
    assert_int_equal(sh_backlog_hold(&other, 40), SHOAL_OK);
    assert_int_equal(sh_backlog_pool_left(model.pool), 3);
    sh_backlog_hold_abandon(&other);
    assert_int_equal(sh_backlog_pool_left(model.pool), 4);
    /* An admitted write keeps its room, and the backlog records it in its place. */
    const struct sh_backlog_entry entry = {
        .chunk = CHUNK, .kind = SH_BACKLOG_IMAGE, .pieces = 1, .size = 100, .at = image};
    assert_int_equal(sh_backlog_admit(&model.backlog, SH_BACKLOG_HEAD_BYTES + 100), SHOAL_OK);
    assert_int_equal(sh_backlog_admit(&model.backlog, 4 * SH_BACKLOG_BLOCK_BYTES), SHOAL_EAGAIN);
    assert_int_equal(sh_backlog_pool_left(model.pool), 3);
    assert_int_equal(sh_backlog_record(&model.backlog, NULL, &entry), 1);
    sh_backlog_end(&other);
    model_end(&model, 4);
}

/* --- Threads ----------------------------------------------------------------------------------- */

#define WRITERS 3u
#define WRITES TEST_ROUNDS(40000u)

static struct sh_backlog shared;
static _Atomic unsigned writers_done;

static void *writer(void *arg)
{
    uint64_t self = (uint64_t)(uintptr_t)arg;
    uint8_t bytes[200];
    for (uint32_t i = 0; i < WRITES; i++) {
        struct sh_backlog_entry entry = {.chunk =
                                             shoal_cid_make((shoal_nid){(uint16_t)(self + 1)}, i).v,
                                         .kind = SH_BACKLOG_IMAGE,
                                         .pieces = 1,
                                         .size = 1 + i % sizeof bytes,
                                         .at = bytes};
        memset(bytes, (int)(i + self), sizeof bytes);
        while (sh_backlog_admit(&shared, sh_backlog_bytes(false, entry.size)))
            sched_yield();
        (void)sh_backlog_record(&shared, NULL, &entry);
    }
    atomic_fetch_add(&writers_done, 1);
    return NULL;
}

struct reader {
    struct sh_backlog_cursor cursor;
    uint64_t numbers, wrong;
};

/* Sees each writer's entries in that writer's order. */
static void *reader(void *arg)
{
    struct reader *self = arg;
    uint32_t next[WRITERS] = {0};
    uint8_t *scratch = malloc(SH_BACKLOG_PIECE_BYTES);
    for (;;) {
        struct sh_backlog_entry entry;
        uint64_t number;
        bool is_over = atomic_load(&writers_done) == WRITERS;
        if (!sh_backlog_read(&self->cursor, &entry, &number, scratch)) {
            (void)sh_backlog_take(&self->cursor);
            if (is_over)
                break;
            sched_yield();
            continue;
        }
        shoal_cid cid = {entry.chunk};
        unsigned from = shoal_cid_creator(cid).v - 1u;
        self->wrong += number != self->numbers + 1 || shoal_cid_local(cid) != next[from];
        self->wrong += entry.size != 1 + next[from] % 200;
        for (uint32_t i = 0; i < entry.size; i++)
            self->wrong += entry.at[i] != (uint8_t)(next[from] + from);
        next[from]++;
        self->numbers++;
        if (number % 64 == 0)
            (void)sh_backlog_take(&self->cursor);
    }
    free(scratch);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct sh_backlog_pool *pool;
    struct reader readers[2] = {0};
    pthread_t threads[WRITERS + 2];
    assert_int_equal(sh_backlog_pool_create(80, &pool), SHOAL_OK);
    sh_backlog_init(&shared, pool, WINDOW, 1);
    for (unsigned i = 0; i < 2; i++) {
        sh_backlog_attach(&shared, &readers[i].cursor);
        assert_int_equal(pthread_create(&threads[i], NULL, reader, &readers[i]), 0);
    }
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[2 + i], NULL, writer, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < WRITERS + 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(readers[i].wrong, 0);
        assert_int_equal(readers[i].numbers, WRITERS * WRITES);
    }
    assert_int_equal(sh_backlog_pool_left(pool), 80);
    sh_backlog_end(&shared);
    sh_backlog_pool_destroy(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),   cmocka_unit_test(test_window),
        cmocka_unit_test(test_pool),    cmocka_unit_test(test_pool_refused),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
