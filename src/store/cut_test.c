/* Cuts: what comes out is what was there at the moment, whatever is done meanwhile. One thread against a model, and several whose writes
 * follow from each other. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "store/cut.h"
#include "store/store_int.h"
#include "store/witness_test.h"

#define MIB (UINT64_C(1) << 20)
#define NID 7
#define CHUNK_MAX (1u << 20)
#define KEPT_MAX (64 * MIB)
#define CHUNKS 600u
#define BUFFER (SH_CUT_BYTES_MIN + 3000)

static uint64_t rng_state;

static uint64_t rng(void)
{
    return test_draw(&rng_state);
}

static struct sh_store *store_make(void)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {
        .bytes_max = 256 * MIB, .chunk_bytes_max = CHUNK_MAX, .small_pages = true, .nid = {NID}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

/* --- A model --------------------------------------------------------------------------------- */

struct image {
    bool is_there;
    uint32_t size;
    uint8_t *bytes;
};

/* Chunks by place: first own ones, then those of others. */
static shoal_cid cids[CHUNKS];
static struct image now[CHUNKS], then[CHUNKS];
static bool was_seen[CHUNKS];

static void image_set(struct image *image, const void *bytes, uint32_t size)
{
    uint8_t *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    free(image->bytes);
    *image = (struct image){.is_there = true, .size = size, .bytes = copy};
}

static void image_drop(struct image *image)
{
    free(image->bytes);
    *image = (struct image){.is_there = false};
}

static bool is_witnessed; /* then chunks are not made of more than SH_STORE_PIECE_BYTES */

static uint32_t size_draw(void)
{
    static const uint32_t most[] = {30, 300, 2000, 40000, 400000};
    unsigned kind = (unsigned)(rng() % 40);
    if (is_witnessed && kind == 39)
        kind = 38;
    return (uint32_t)(rng() % most[kind < 25   ? 0
                                   : kind < 32 ? 1
                                   : kind < 36 ? 2
                                   : kind < 39 ? 3
                                               : 4]);
}

static uint8_t bytes_drawn[CHUNK_MAX];

static struct sh_bytes bytes_draw(uint32_t size)
{
    for (uint32_t i = 0; i < size && i < 64; i++)
        bytes_drawn[i] = (uint8_t)rng();
    memset(bytes_drawn + (size < 64 ? size : 64), (int)rng(), size < 64 ? 0 : size - 64);
    return sh_bytes_make(bytes_drawn, size);
}

static void rewrite(struct sh_store *store, const struct sh_store_rewrite *wish)
{
    struct sh_store_rewriting *rewriting;
    assert_int_equal(sh_store_rewriting_begin(store, wish, &rewriting), SHOAL_OK);
    while (!sh_store_rewriting_step(rewriting))
        continue;
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_OK);
}

static void chunk_make(struct sh_store *store, unsigned i)
{
    struct sh_bytes data = bytes_draw(size_draw());
    assert_int_equal(sh_store_adopt(store, cids[i], data), SHOAL_OK);
    image_set(&now[i], data.at, (uint32_t)data.size);
}

static void chunk_change(struct sh_store *store, unsigned i)
{
    struct image *image = &now[i];
    switch (rng() % 5) {
    case 0:
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
        image_drop(image);
        return;
    case 1: {
        uint32_t size = size_draw(), before = image->size;
        size += rng() % 16 == 0 ? SH_STORE_PIECE_BYTES : 0;
        rewrite(store,
                &(struct sh_store_rewrite){.kind = SH_STORE_RESIZE, .cid = cids[i], .size = size});
        uint8_t *bytes = calloc(1, size + 1);
        assert_non_null(bytes);
        memcpy(bytes, image->bytes, size < before ? size : before);
        image_set(image, bytes, size);
        free(bytes);
        return;
    }
    case 2:
        if (image->size >= 8 && image->size <= SH_STORE_PIECE_BYTES) {
            uint64_t old;
            assert_int_equal(sh_store_add(store, cids[i], 0, 8, 77, &old), SHOAL_OK);
            assert_int_equal(old, sh_load64(image->bytes));
            sh_store64(image->bytes, old + 77);
        }
        return;
    default: {
        struct sh_bytes data = bytes_draw(image->size);
        rewrite(store,
                &(struct sh_store_rewrite){.kind = SH_STORE_PUT, .cid = cids[i], .data = data});
        image_set(image, data.at, (uint32_t)data.size);
    }
    }
}

static void something(struct sh_store *store)
{
    unsigned i = (unsigned)(rng() % CHUNKS);
    if (now[i].is_there)
        chunk_change(store, i);
    else
        chunk_make(store, i);
}

static void moment_note(void)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (now[i].is_there)
            image_set(&then[i], now[i].bytes, now[i].size);
        else
            image_drop(&then[i]);
        was_seen[i] = false;
    }
}

static unsigned place_find(shoal_cid cid)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (cids[i].v == cid.v)
            return i;
    }
    fail_msg("an ID that nobody has given");
    return 0;
}

/* What comes out is what was there at the moment, once, and pieces one behind the other. */
static void records_check(struct sh_bytes bytes)
{
    static uint64_t open_cid;
    static uint32_t open_at;
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_cut_record record;
    while (sh_cut_record_get(&r, &record)) {
        unsigned i = place_find(record.cid);
        if (open_at) {
            assert_int_equal(open_cid, record.cid.v);
            assert_int_equal(record.offset, open_at);
        } else {
            assert_int_equal(record.offset, 0);
            assert_false(was_seen[i]);
        }
        was_seen[i] = true;
        assert_true(then[i].is_there);
        assert_int_equal(then[i].size, record.size);
        assert_memory_equal(then[i].bytes + record.offset, record.bytes.at, record.bytes.size);
        uint32_t end = record.offset + (uint32_t)record.bytes.size;
        open_cid = record.cid.v;
        open_at = end == record.size ? 0 : end;
    }
    assert_true(sh_reader_ok(&r));
    assert_int_equal(sh_reader_left(&r), 0);
}

static void cut_run(struct sh_store *store, unsigned changes)
{
    static uint8_t buffer[BUFFER];
    struct sh_writer w = sh_writer_make(buffer, sizeof buffer);
    assert_int_equal(sh_cut_begin(store, (shoal_nid){NID}, KEPT_MAX), SHOAL_OK);
    assert_int_equal(sh_cut_begin(store, (shoal_nid){NID}, KEPT_MAX), SHOAL_EBUSY);
    while (!sh_cut_state_get(store).is_over) {
        bool is_full, was_taken = sh_cut_state_get(store).is_taken;
        if (!was_taken)
            moment_note();
        (void)sh_cut_fill(store, &w, 1 + (unsigned)(rng() % 3000), &is_full);
        if (is_full || rng() % 8 == 0) {
            records_check(sh_bytes_make(buffer, (size_t)(w.at - buffer)));
            w = sh_writer_make(buffer, sizeof buffer);
        }
        for (unsigned i = 0; i < rng() % (changes + 1); i++)
            something(store);
    }
    records_check(sh_bytes_make(buffer, (size_t)(w.at - buffer)));
    struct sh_cut_state state = sh_cut_state_get(store);
    assert_int_equal(state.err, SHOAL_OK);
    uint64_t chunks = 0, payload = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_int_equal(was_seen[i], then[i].is_there);
        chunks += then[i].is_there;
        payload += then[i].size;
    }
    assert_int_equal(state.chunks, chunks);
    assert_int_equal(state.payload_bytes, payload);
    sh_cut_end(store);
}

/* A store in which all IDs are in use, or were. */
static void model_run(uint64_t seed)
{
    struct sh_store *store = store_make();
    struct witness witness;
    rng_state = seed;
    for (unsigned i = 0; i < CHUNKS; i++)
        cids[i] = i < CHUNKS / 2 ? shoal_cid_make((shoal_nid){NID}, 1 + i)
                                 : shoal_cid_make((shoal_nid){(uint16_t)(90 + i % 3)}, 1000 + i);
    if (is_witnessed)
        witness_open(&witness, store, seed);
    for (unsigned i = 0; i < 2 * CHUNKS; i++)
        something(store);
    for (unsigned i = 0; i < 6; i++)
        cut_run(store, i * 4);
    sh_alloc_check(store->alloc);
    if (is_witnessed) {
        assert_int_equal(witness.wrong, 0);
        witness_close(&witness);
    }
    sh_store_destroy(store);
    for (unsigned i = 0; i < CHUNKS; i++) {
        image_drop(&now[i]);
        image_drop(&then[i]);
    }
}

static void test_what_was_there_comes_out(void **state)
{
    const char *seeds = getenv("SHOAL_TEST_SEEDS");
    uint64_t seed = test_seed(20261127);
    (void)state;
    for (unsigned i = 0; i < (seeds ? strtoul(seeds, NULL, 0) : 4); i++) {
        is_witnessed = i % 2;
        model_run(seed + i);
    }
}

/* --- Ends before it is over -------------------------------------------------------------------- */

static void test_more_than_may_be_kept(void **state)
{
    (void)state;
    struct sh_store *store = store_make();
    static uint8_t buffer[BUFFER];
    static const uint8_t zeros[100];
    bool is_full;
    shoal_cid made[2000];
    assert_int_equal(sh_store_new_many(store, 100, 2000, made), SHOAL_OK);
    for (unsigned round = 0; round < 3; round++) {
        struct sh_writer w = sh_writer_make(buffer, sizeof buffer);
        assert_int_equal(sh_cut_begin(store, (shoal_nid){NID}, 10 * (100 + 64)), SHOAL_OK);
        while (!sh_cut_state_get(store).is_taken)
            (void)sh_cut_fill(store, &w, 1, &is_full);
        for (unsigned i = 0; i < 10; i++)
            assert_int_equal(sh_store_put(store, made[1999 - i], sh_bytes_make(zeros, 100)),
                             SHOAL_OK);
        assert_int_equal(sh_cut_state_get(store).err, SHOAL_OK);
        if (round == 0)
            assert_int_equal(sh_store_put(store, made[1000], sh_bytes_make(zeros, 100)), SHOAL_OK);
        if (round < 2)
            (void)sh_cut_fill(store, &w, 1000, &is_full);
        struct sh_cut_state cut = sh_cut_state_get(store);
        assert_int_equal(cut.err, round == 0 ? SHOAL_ELIMIT : SHOAL_OK);
        assert_int_equal(cut.is_over, round == 0);
        sh_cut_end(store); /* in the middle, with something kept */
        assert_int_equal(sh_store_remove(store, made[round]), SHOAL_OK);
    }
    sh_cut_end(store);
    sh_alloc_check(store->alloc);
    sh_store_destroy(store);
}

/* --- Sections that are open -------------------------------------------------------------------- */

static void fill_often(struct sh_store *store, struct sh_writer *w)
{
    bool is_full;
    for (unsigned i = 0; i < 100; i++)
        (void)sh_cut_fill(store, w, 1000, &is_full);
}

/* The moment waits for sections that began before they were counted, and for those that were counted; the end, for those that keep
 * bytes. What is made after the moment is not in it. */
static void test_open_sections_are_waited_for(void **state)
{
    (void)state;
    struct sh_store *store = store_make();
    static uint8_t buffer[1 << 16];
    struct sh_writer w = sh_writer_make(buffer, sizeof buffer);
    struct sh_hold hold;
    struct sh_bytes data = sh_bytes_text("came from elsewhere");
    shoal_cid made[40], more[400];
    assert_int_equal(sh_store_new_many(store, 10, 40, made), SHOAL_OK);
    assert_int_equal(sh_store_hold(store, made[33], &hold), SHOAL_OK);
    assert_int_equal(sh_cut_begin(store, (shoal_nid){NID}, KEPT_MAX), SHOAL_OK);
    for (unsigned i = 0; i < 100; i++) {
        bool is_full;
        assert_false(sh_cut_state_get(store).is_taken);
        (void)sh_cut_fill(store, &w, 1, &is_full);
    }
    sh_cut_enter_as(store, made[2], false);
    sh_cut_enter_as(store, made[3], false);
    sh_store_let_go(&hold, false);
    fill_often(store, &w);
    sh_cut_leave_as(store);
    fill_often(store, &w);
    assert_false(sh_cut_state_get(store).is_taken);
    sh_cut_leave_as(store);
    bool is_full;
    (void)sh_cut_fill(store, &w, 1, &is_full);
    assert_true(sh_cut_state_get(store).is_taken);
    assert_int_equal(sh_store_new_many(store, 10, 400, more), SHOAL_OK);
    atomic_fetch_add(&store->cut.keeping, 1);
    fill_often(store, &w);
    assert_false(sh_cut_state_get(store).is_over);
    atomic_fetch_sub(&store->cut.keeping, 1);
    fill_often(store, &w);
    assert_true(sh_cut_state_get(store).is_over);
    assert_int_equal(sh_cut_state_get(store).chunks, 40);
    assert_int_equal(sh_store_arrivals(store), 0);
    assert_int_equal(sh_store_adopt(store, shoal_cid_make((shoal_nid){NID}, 9999), data), SHOAL_OK);
    assert_int_equal(sh_store_adopt(store, shoal_cid_make((shoal_nid){90}, 9999), data), SHOAL_OK);
    assert_int_equal(sh_store_adopt(store, shoal_cid_make((shoal_nid){90}, 9999), data),
                     SHOAL_EEXIST);
    assert_int_equal(sh_store_release(store, made[0]), SHOAL_OK);
    assert_int_equal(sh_store_take_over(store, made[0], data), SHOAL_OK);
    assert_int_equal(sh_store_arrivals(store), 3);
    assert_int_equal(w.at - buffer, 40 * (SH_CUT_RECORD_BYTES + 10));
    sh_cut_end(store);
    sh_store_destroy(store);
}

/* --- Several threads --------------------------------------------------------------------------- */

#define WRITERS 3
#define TURNS 96u /* chunks of a writer, which it writes in turn */

/* The writer's number of the write is in the chunk, and the last ones that the others had ended when it began. */
struct turn {
    uint64_t number, seen[WRITERS];
};

static struct {
    struct sh_store *store;
    shoal_cid cids[WRITERS][TURNS];
    uint32_t sizes[TURNS];
    _Atomic uint64_t ended[WRITERS];
    _Atomic bool is_over;
    _Atomic unsigned wrong;
} race;

static void *writer_main(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;
    static uint8_t bytes[WRITERS][8192];
    for (uint64_t number = 1; !atomic_load(&race.is_over); number++) {
        struct turn turn = {.number = number};
        unsigned at = (unsigned)(number % TURNS);
        for (unsigned i = 0; i < WRITERS; i++)
            turn.seen[i] = atomic_load(&race.ended[i]);
        memcpy(bytes[self], &turn, sizeof turn);
        if (sh_store_put(race.store, race.cids[self][at],
                         sh_bytes_make(bytes[self], race.sizes[at])))
            atomic_fetch_add(&race.wrong, 1);
        atomic_store(&race.ended[self], number);
    }
    return NULL;
}

struct seen {
    struct turn turns[WRITERS][TURNS];
    unsigned count;
};

static void records_take(struct seen *seen, struct sh_bytes bytes)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_cut_record record;
    while (sh_cut_record_get(&r, &record)) {
        uint64_t place = shoal_cid_local(record.cid) - 1;
        struct turn *turn = &seen->turns[place % WRITERS][place / WRITERS];
        assert_true(record.bytes.size >= sizeof *turn);
        memcpy(turn, record.bytes.at, sizeof *turn);
        seen->count++;
    }
    assert_true(sh_reader_ok(&r));
}

/* Each writer's chunks are as after one of its writes; and nothing is there that was written after something that is not. */
static void seen_check(const struct seen *seen)
{
    uint64_t last[WRITERS] = {0};
    assert_int_equal(seen->count, WRITERS * TURNS);
    for (unsigned i = 0; i < WRITERS; i++) {
        for (unsigned at = 0; at < TURNS; at++) {
            if (seen->turns[i][at].number > last[i])
                last[i] = seen->turns[i][at].number;
        }
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        for (unsigned at = 0; at < TURNS; at++) {
            const struct turn *turn = &seen->turns[i][at];
            uint64_t back = (last[i] % TURNS + TURNS - at) % TURNS; /* writes since its turn */
            assert_int_equal(turn->number, last[i] >= back && last[i] - back ? last[i] - back : 0);
            for (unsigned other = 0; other < WRITERS; other++)
                assert_true(turn->seen[other] <= last[other]);
        }
    }
}

static void race_cut(void)
{
    static uint8_t buffer[BUFFER];
    struct seen seen = {.count = 0};
    struct sh_writer w = sh_writer_make(buffer, sizeof buffer);
    bool is_full;
    assert_int_equal(sh_cut_begin(race.store, (shoal_nid){NID}, KEPT_MAX), SHOAL_OK);
    while (!sh_cut_state_get(race.store).is_over) {
        (void)sh_cut_fill(race.store, &w, 500, &is_full);
        if (is_full) {
            records_take(&seen, sh_bytes_make(buffer, (size_t)(w.at - buffer)));
            w = sh_writer_make(buffer, sizeof buffer);
        }
    }
    records_take(&seen, sh_bytes_make(buffer, (size_t)(w.at - buffer)));
    assert_int_equal(sh_cut_state_get(race.store).err, SHOAL_OK);
    sh_cut_end(race.store);
    seen_check(&seen);
}

static void test_writers_go_on(void **state)
{
    (void)state;
    pthread_t threads[WRITERS];
    race.store = store_make();
    for (unsigned at = 0; at < TURNS; at++) {
        race.sizes[at] = at % 7 == 0 ? 8000 : (uint32_t)sizeof(struct turn) + at;
        for (unsigned i = 0; i < WRITERS; i++)
            assert_int_equal(sh_store_new_many(race.store, race.sizes[at], 1, &race.cids[i][at]),
                             SHOAL_OK);
    }
    for (uintptr_t i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, writer_main, (void *)i), 0);
    for (unsigned i = 0; i < TEST_ROUNDS(500); i++)
        race_cut();
    atomic_store(&race.is_over, true);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&race.wrong), 0);
    for (unsigned i = 0; i < WRITERS; i++)
        assert_true(atomic_load(&race.ended[i]) > TURNS);
    sh_alloc_check(race.store->alloc);
    sh_store_destroy(race.store);
}

/* --- Records that nobody has written ----------------------------------------------------------- */

static void test_records_are_judged(void **state)
{
    (void)state;
    static const struct {
        uint64_t cid;
        uint32_t size, offset, count;
        bool is_good;
    } cases[] = {
        {UINT64_C(7) << 48 | 1, 8, 0, 0, true},
        {UINT64_C(7) << 48, 8, 0, 0, false}, /* names */
        {1, 8, 0, 0, false},                 /* of no creator */
        {UINT64_C(7) << 48 | 1, SH_CUT_PIECE | 40000, 39992, 8, true},
        {UINT64_C(7) << 48 | 1, SH_CUT_PIECE | 40000, 39993, 8, false},
        {UINT64_C(7) << 48 | 1, SH_CUT_PIECE | 40000, UINT32_MAX, 8, false},
        {UINT64_C(7) << 48 | 1, SH_CUT_PIECE | 40000, 0, 0, false},
        {UINT64_C(7) << 48 | 1, SH_CUT_PIECE | 8, 0, 8, false},
        {UINT64_C(7) << 48 | 1, 40000, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bytes[64] = {0};
        struct sh_cut_record record;
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, cases[i].cid);
        sh_put32(&w, cases[i].size);
        if (cases[i].size & SH_CUT_PIECE) {
            sh_put32(&w, cases[i].offset);
            sh_put32(&w, cases[i].count);
        }
        size_t size = (size_t)(w.at - bytes) + 8;
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
        assert_int_equal(sh_cut_record_get(&r, &record), cases[i].is_good);
        assert_int_equal(sh_reader_ok(&r), cases[i].is_good);
        r = sh_reader_make(sh_bytes_make(bytes, size - 1));
        assert_false(sh_cut_record_get(&r, &record));
        assert_false(sh_reader_ok(&r));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_there_comes_out),
        cmocka_unit_test(test_more_than_may_be_kept),
        cmocka_unit_test(test_open_sections_are_waited_for),
        cmocka_unit_test(test_writers_go_on),
        cmocka_unit_test(test_records_are_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
