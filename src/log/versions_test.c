/* The versions of an epoch, against a plain array. */
#include "log/versions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"

#define CHUNKS 3000
#define BASE (UINT64_C(64) << 48 | 1000)

struct known {
    bool is_there, is_removal;
    uint32_t number;
};

static struct known known[CHUNKS], told[CHUNKS];

static struct sh_version_pool *pool; /* of the tables of a test */
static struct sh_versions *there[32];

static int setup(void **state)
{
    (void)state;
    assert_int_equal(sh_versions_pool_create(8192, 1 << 20, &pool), SHOAL_OK);
    return 0;
}

static void versions_end(struct sh_versions *versions)
{
    for (unsigned i = 0; i < 32; i++) {
        if (there[i] == versions)
            there[i] = NULL;
    }
    sh_versions_destroy(versions);
}

/* All of it has been given back. */
static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 32; i++)
        versions_end(there[i]);
    assert_int_equal(sh_version_pool_used(pool), 0);
    sh_version_pool_destroy(pool);
    return 0;
}

static struct sh_versions *versions_of(size_t slots_max, uint32_t number_max)
{
    struct sh_versions *versions;
    const struct sh_versions_config config = {
        .slots_max = slots_max, .number_max = number_max, .pool = pool};
    assert_int_equal(sh_versions_create(&config, &versions), SHOAL_OK);
    unsigned i = 0;
    while (there[i])
        i++;
    there[i] = versions;
    return versions;
}

static uint32_t next_of(struct sh_versions *versions, uint64_t chunk, bool is_removal)
{
    uint32_t number = 77;
    assert_int_equal(sh_versions_next(versions, chunk, is_removal, &number), SHOAL_OK);
    return number;
}

static void tell(void *arg, uint64_t first, uint64_t last, uint32_t number, bool is_removal)
{
    uint64_t *before = arg;
    assert_true(first <= last && first > *before && first >= BASE && last < BASE + CHUNKS);
    *before = last;
    for (uint64_t chunk = first; chunk <= last; chunk++)
        told[chunk - BASE] = (struct known){true, is_removal, number};
}

/* All pieces say together what is known, the runs first. */
static void assert_told(struct sh_versions *versions)
{
    bool has_more = true;
    memset(told, 0, sizeof told);
    for (size_t piece = 0; has_more; piece++) {
        uint64_t before = 0;
        has_more = sh_versions_each(versions, piece, tell, &before);
    }
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_int_equal(told[i].is_there, known[i].is_there);
        assert_int_equal(told[i].number, known[i].number);
        assert_int_equal(told[i].is_removal, known[i].is_removal);
    }
}

/* The next write of a chunk, or with luck of the one behind the last. */
static unsigned drawn(uint64_t *state)
{
    static unsigned last;
    last = test_draw(state) % 4 ? (last + 1) % CHUNKS : (unsigned)(test_draw(state) % CHUNKS);
    return last;
}

static void numbers_count_the_writes_of_an_epoch(void **state)
{
    (void)state;
    uint64_t seed = test_seed(1);
    struct sh_versions *versions = versions_of(8192, SH_REPLOG_NUMBER_MAX);
    for (unsigned epoch = 0; epoch < 6; epoch++) {
        uint64_t count = 0;
        memset(known, 0, sizeof known);
        for (unsigned i = 0; i < 800 * (epoch + 1); i++) {
            unsigned at = drawn(&seed);
            struct known *chunk = &known[at];
            bool is_removal = test_draw(&seed) % 8 == 0;
            uint32_t wanted = chunk->is_there ? chunk->number + 1 : 0, number;
            assert_int_equal(next_of(versions, BASE + at, is_removal), wanted);
            count += !chunk->is_there;
            *chunk = (struct known){true, is_removal, wanted};
            bool was_removal;
            assert_true(sh_versions_get(versions, BASE + at, &number, &was_removal));
            assert_true(number == wanted && was_removal == is_removal);
        }
        assert_int_equal(sh_versions_count(versions), count);
        for (unsigned i = 0; i < CHUNKS; i++) {
            uint32_t number;
            bool is_removal;
            bool is_there = sh_versions_get(versions, BASE + i, &number, &is_removal);
            assert_int_equal(is_there, known[i].is_there);
            if (is_there)
                assert_true(number == known[i].number && is_removal == known[i].is_removal);
        }
        assert_told(versions);
        sh_versions_clear(versions);
        assert_int_equal(sh_versions_count(versions), 0);
    }
    versions_end(versions);
}

/* A load is one run: it takes no memory, however long it is, and ends no epoch. */
static void a_load_takes_no_slots(void **state)
{
    (void)state;
    struct sh_versions *versions = versions_of(16, 5);
    size_t bytes = sh_versions_bytes(versions);
    for (uint64_t i = 0; i < 1000000; i++)
        assert_int_equal(next_of(versions, BASE + i, false), 0);
    assert_int_equal(sh_versions_bytes(versions), bytes);
    assert_int_equal(sh_versions_count(versions), 1000000);
    assert_int_equal(next_of(versions, BASE + 500000, false), 1);
    assert_int_equal(next_of(versions, BASE + 500000, true), 2);
    assert_int_equal(next_of(versions, BASE + 1000000, false), 0);
    uint32_t number;
    bool is_removal;
    assert_true(sh_versions_get(versions, BASE + 500000, &number, &is_removal));
    assert_true(number == 2 && is_removal);
    assert_false(sh_versions_get(versions, BASE + 1000001, &number, &is_removal));
    assert_false(sh_versions_get(versions, BASE - 1, &number, &is_removal));
    versions_end(versions);
}

/* Three quarters of the slots, and no more; a number up to its limit: then the epoch ends. */
static void a_full_table_ends_the_epoch(void **state)
{
    (void)state;
    struct sh_versions *versions = versions_of(64, 2);
    for (uint64_t i = 0; i < 48; i++)
        assert_int_equal(next_of(versions, BASE + 10 * i, false), 0);
    uint32_t number = 77;
    assert_int_equal(sh_versions_next(versions, BASE + 5, false, &number), SHOAL_EFULL);
    assert_int_equal(sh_versions_next(versions, BASE + 5, true, &number), SHOAL_EFULL);
    bool is_removal;
    assert_false(sh_versions_get(versions, BASE + 5, &number, &is_removal));
    assert_int_equal(sh_versions_count(versions), 48);
    assert_int_equal(next_of(versions, BASE, false), 1);
    assert_int_equal(next_of(versions, BASE, false), 2);
    assert_int_equal(sh_versions_next(versions, BASE, false, &number), SHOAL_EFULL);
    assert_true(sh_versions_get(versions, BASE, &number, &is_removal) && number == 2);
    sh_versions_clear(versions);
    assert_int_equal(next_of(versions, BASE, true), 0);
    assert_int_equal(sh_version_pool_used(pool), 0);
    versions_end(versions);
    /* Where a number may only be 0, what is in a run can't be written again either. */
    versions = versions_of(16, 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(next_of(versions, BASE + i, false), 0);
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(sh_versions_next(versions, BASE + i, false, &number), SHOAL_EFULL);
    versions_end(versions);
}

/* More runs than there is room for: the rest takes slots. */
static void runs_are_bounded(void **state)
{
    (void)state;
    struct sh_versions *versions = versions_of(4096, SH_REPLOG_NUMBER_MAX);
    memset(known, 0, sizeof known);
    for (unsigned i = 0; i < 2900; i++) {
        unsigned at = (i * 10 + i / 290) % 2900; /* downwards and upwards, in pairs */
        at -= at % 2;
        for (unsigned k = 0; k < 2; k++) {
            known[at + k].number = known[at + k].is_there ? known[at + k].number + 1 : 0;
            known[at + k].is_there = true;
            assert_int_equal(next_of(versions, BASE + at + k, false), known[at + k].number);
        }
    }
    assert_told(versions);
    versions_end(versions);
}

/* What is reserved is what next gives, whatever the order, and nothing is given before. */
static void reserved_numbers_are_given(void **state)
{
    (void)state;
    struct sh_versions *versions = versions_of(16, 5);
    uint32_t number, numbers[2] = {77, 77};
    for (uint64_t i = 0; i < 6; i++) {
        const uint64_t chunks[] = {BASE + 1, BASE + 100 * i};
        assert_int_equal(sh_versions_reserve(versions, chunks, 2, numbers), SHOAL_OK);
        assert_true(numbers[0] == i && numbers[1] == 0);
        assert_int_equal(sh_versions_count(versions), i ? i + 1 : 0);
        assert_int_equal(sh_versions_next(versions, chunks[1], false, &number), SHOAL_OK);
        assert_int_equal(number, 0);
        assert_int_equal(sh_versions_next(versions, chunks[0], false, &number), SHOAL_OK);
        assert_int_equal(number, i);
    }
    const uint64_t last[] = {BASE + 100, BASE + 1};
    assert_int_equal(sh_versions_reserve(versions, last, 2, numbers), SHOAL_EFULL);
    for (uint64_t i = 6; sh_versions_count(versions) < 11; i++)
        assert_int_equal(sh_versions_next(versions, BASE + 100 * i, false, &number), SHOAL_OK);
    const uint64_t fresh[] = {BASE + 7, BASE + 9, BASE + 100};
    assert_int_equal(sh_versions_reserve(versions, fresh, 2, numbers), SHOAL_EFULL);
    assert_int_equal(sh_versions_reserve(versions, fresh + 1, 2, numbers), SHOAL_OK);
    assert_true(numbers[0] == 0 && numbers[1] == 1);
    assert_int_equal(sh_versions_count(versions), 11);
    versions_end(versions);
}

/* Chunks that take a slot each, up to so many or EFULL; returns how many. */
static unsigned fill(struct sh_versions *versions, unsigned most)
{
    uint32_t number;
    unsigned done = 0;
    while (done < most &&
           !sh_versions_next(versions, BASE + (uint64_t)10 * done, done % 3 == 0, &number))
        done++;
    return done;
}

/* Whenever the table is read, be it while slots are moved to the larger one, or numbers are asked for then, all is there once. */
static void slots_are_moved_meanwhile(void **state)
{
    (void)state;
    for (unsigned count = 0; count < 299; count += 1 + count / 40) {
        struct sh_versions *versions = versions_of(4096, SH_REPLOG_NUMBER_MAX);
        memset(known, 0, sizeof known);
        assert_int_equal(fill(versions, count), count);
        for (unsigned i = 0; i < count; i++) {
            uint32_t number = 77;
            bool is_removal = false;
            assert_true(sh_versions_get(versions, BASE + (uint64_t)10 * i, &number, &is_removal));
            assert_true(number == 0 && is_removal == (i % 3 == 0));
            if (i % 2)
                assert_int_equal(next_of(versions, BASE + (uint64_t)10 * i, false), 1);
            known[10 * i] = (struct known){true, !(i % 2) && i % 3 == 0, i % 2};
        }
        assert_told(versions);
        sh_versions_clear(versions);
        assert_int_equal(fill(versions, count), count);
        versions_end(versions);
    }
}

/* No write moves more than a few slots, however large the table is: it has grown long before all have been moved. */
static void no_write_moves_all(void **state)
{
    (void)state;
    struct sh_versions *versions = versions_of(8192, SH_REPLOG_NUMBER_MAX);
    unsigned both = 0, most = 0;
    for (unsigned i = 0; i < 6144; i++) {
        uint32_t number;
        assert_int_equal(sh_versions_next(versions, BASE + (uint64_t)10 * i, true, &number), 0);
        size_t one = sh_versions_table_bytes(sh_versions_slots(versions));
        bool is_moving = sh_version_pool_used(pool) > one;
        both = is_moving ? both + 1 : 0;
        most = both > most ? both : most;
    }
    assert_int_equal(most, 4096 / 8 - 1);
    versions_end(versions);
}

/* The pool is a bound for all: a zone that finds none of it has a short epoch, and once others have ended theirs a long one again. */
static void tables_share_the_pool(void **state)
{
    (void)state;
    enum { ZONES = 20 };
    struct sh_versions *zones[ZONES];
    unsigned counts[ZONES], least = UINT32_MAX;
    for (unsigned i = 0; i < ZONES; i++)
        zones[i] = versions_of(8192, SH_REPLOG_NUMBER_MAX);
    for (unsigned i = 0; i < ZONES; i++) {
        counts[i] = fill(zones[i], UINT32_MAX);
        least = counts[i] < least ? counts[i] : least;
        assert_true(sh_version_pool_used(pool) <= sh_version_pool_bytes(pool));
    }
    assert_int_equal(counts[0], 6144);
    assert_int_equal(least, 48); /* those that each has of its own */
    for (unsigned i = 0; i < ZONES / 2; i++)
        sh_versions_clear(zones[i]);
    assert_true(sh_version_pool_used(pool) <= sh_version_pool_bytes(pool) / 2);
    sh_versions_clear(zones[ZONES - 1]);
    assert_int_equal(fill(zones[ZONES - 1], UINT32_MAX), 6144);
    sh_versions_clear(zones[0]);
    assert_int_equal(sh_versions_slots(zones[0]), 64);
    for (unsigned i = 0; i < ZONES; i++)
        versions_end(zones[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reserved_numbers_are_given, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_count_the_writes_of_an_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(a_load_takes_no_slots, setup, teardown),
        cmocka_unit_test_setup_teardown(a_full_table_ends_the_epoch, setup, teardown),
        cmocka_unit_test_setup_teardown(runs_are_bounded, setup, teardown),
        cmocka_unit_test_setup_teardown(slots_are_moved_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(no_write_moves_all, setup, teardown),
        cmocka_unit_test_setup_teardown(tables_share_the_pool, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
