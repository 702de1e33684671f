/* The current versions of a zone's chunks, against a plain array. */
#include "base/alloc_test.h"

#include "log/currents.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "base/resident.h"

#define CHUNKS 3000
#define BASE (UINT64_C(64) << 48 | 1000)

struct known {
    bool is_there, is_removal, is_kept;
    struct sh_replog_version version;
};

/* Of the chunks from model_base on. */
static struct known known[CHUNKS], told[CHUNKS];
static uint64_t model_base;
static struct sh_currents_config config;

static struct sh_currents *currents_of(uint64_t base, uint64_t count, uint64_t rest_max,
                                       unsigned eon)
{
    struct sh_currents *currents;
    config = (struct sh_currents_config){
        .base = base, .count = count, .rest_max = rest_max, .eon = (uint16_t)(eon * SH_REPLOG_EON)};
    assert_int_equal(sh_currents_create(&config, &currents), SHOAL_OK);
    memset(known, 0, sizeof known);
    model_base = BASE;
    return currents;
}

static struct sh_replog_version version_of(unsigned eon, unsigned epoch, uint32_t number)
{
    return (struct sh_replog_version){(uint16_t)(eon * SH_REPLOG_EON | epoch), number};
}

static void put(struct sh_currents *currents, uint64_t first, uint64_t last,
                struct sh_replog_version version, bool is_removal)
{
    assert_int_equal(sh_currents_put(currents, first, last, version, is_removal), SHOAL_OK);
}

/* --- The model -------------------------------------------------------------------------------- */

static bool is_same(struct sh_replog_version a, struct sh_replog_version b)
{
    return a.epoch == b.epoch && a.number == b.number;
}

static bool is_newer(struct sh_replog_version a, struct sh_replog_version b)
{
    unsigned a_eon = a.epoch / SH_REPLOG_EON, b_eon = b.epoch / SH_REPLOG_EON;
    unsigned a_epoch = a.epoch % SH_REPLOG_EON, b_epoch = b.epoch % SH_REPLOG_EON;
    if (a_eon != b_eon)
        return a_eon == config.eon / SH_REPLOG_EON;
    return a_epoch != b_epoch ? a_epoch > b_epoch : a.number > b.number;
}

static bool is_rest(uint64_t chunk)
{
    return !config.count || chunk < config.base || chunk > config.base + (config.count - 1);
}

static enum shoal_err model_put(unsigned first, unsigned last, struct sh_replog_version version,
                                bool is_removal)
{
    uint64_t rest = 0;
    for (unsigned i = 0; i < CHUNKS; i++)
        rest += (known[i].is_there || (i >= first && i <= last)) && is_rest(model_base + i);
    if (rest > config.rest_max)
        return SHOAL_EFULL;
    for (unsigned i = first; i <= last; i++)
        if (!known[i].is_there || is_newer(version, known[i].version))
            known[i] =
                (struct known){.is_there = true, .is_removal = is_removal, .version = version};
    return SHOAL_OK;
}

static void assert_known(const struct sh_currents *currents, unsigned at)
{
    const struct known *chunk = &known[at];
    struct sh_replog_version version = {77, 77};
    bool is_removal = true;
    assert_int_equal(sh_currents_get(currents, model_base + at, &version, &is_removal),
                     chunk->is_there);
    if (!chunk->is_there) {
        assert_true(version.epoch == 77 && version.number == 77 && is_removal);
        assert_false(
            sh_currents_is_current(currents, model_base + at, (struct sh_replog_version){0, 0}));
        return;
    }
    assert_true(is_same(version, chunk->version) && is_removal == chunk->is_removal);
    assert_true(sh_currents_is_current(currents, model_base + at, version));
    assert_int_equal(sh_currents_is_kept(currents, model_base + at, version), chunk->is_kept);
    version.number ^= 1;
    assert_false(sh_currents_is_current(currents, model_base + at, version));
    assert_false(sh_currents_is_kept(currents, model_base + at, version));
    version.number ^= UINT32_C(1) << 31 | 1;
    assert_false(sh_currents_is_current(currents, model_base + at, version));
    version = chunk->version;
    version.epoch ^= SH_REPLOG_EON;
    assert_false(sh_currents_is_current(currents, model_base + at, version));
}

struct telling {
    uint64_t before; /* the last chunk that was told */
    bool is_begun;
    uint64_t calls;
};

static void tell(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                 bool is_removal)
{
    struct telling *telling = arg;
    assert_true(first <= last && (!telling->is_begun || first > telling->before));
    assert_true(first >= model_base && last - model_base < CHUNKS);
    for (uint64_t at = first - model_base; at <= last - model_base; at++)
        assert_false(told[at].is_there);
    for (uint64_t at = first - model_base; at <= last - model_base; at++)
        told[at] = (struct known){.is_there = true, .is_removal = is_removal, .version = version};
    telling->before = last;
    telling->is_begun = true;
    telling->calls++;
}

/* All pieces say together what is known, each chunk once; each ascends, and none says too much. */
static void assert_told(const struct sh_currents *currents)
{
    uint64_t count = 0;
    bool has_more = true;
    memset(told, 0, sizeof told);
    for (size_t piece = 0; has_more; piece++) {
        struct telling telling = {.is_begun = false};
        has_more = sh_currents_walk(currents, piece, tell, &telling);
        assert_true(telling.calls <= SH_CURRENTS_PIECE);
    }
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_int_equal(told[i].is_there, known[i].is_there);
        assert_true(is_same(told[i].version, known[i].version));
        assert_int_equal(told[i].is_removal, known[i].is_removal);
        count += known[i].is_there;
    }
    assert_int_equal(sh_currents_count(currents), count);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static struct sh_replog_version version_drawn(uint64_t *seed)
{
    uint64_t what = test_draw(seed);
    unsigned epoch = what % 3 ? what / 8 % 4 : what / 8 % SH_REPLOG_EON;
    uint32_t number = what >> 24 & 3 ? what >> 26 & 3 : (uint32_t)(what >> 32);
    return version_of(what >> 32 & 1, epoch, number);
}

/* Says of a chunk's newest version that it is kept, or of another one, which does not count. */
static void keep(struct sh_currents *currents, unsigned at, bool is_other)
{
    struct sh_replog_version version = known[at].version;
    version.number ^= is_other;
    sh_currents_keep(currents, model_base + at, version);
    known[at].is_kept |= known[at].is_there && !is_other;
}

/* Puts and keeps at random; now and then all is read. */
static void assert_like_model(struct sh_currents *currents, uint64_t *seed, unsigned steps)
{
    for (unsigned step = 0; step < steps; step++) {
        uint64_t what = test_draw(seed);
        unsigned first = (unsigned)(what >> 8) % CHUNKS;
        unsigned more = what & 1 ? 0 : (unsigned)(what >> 32) % (what & 2 ? 8 : 300);
        unsigned last = first + more < CHUNKS ? first + more : CHUNKS - 1;
        struct sh_replog_version version = version_drawn(seed);
        bool is_removal = what >> 60 == 0;
        enum shoal_err wanted = model_put(first, last, version, is_removal);
        assert_int_equal(
            sh_currents_put(currents, model_base + first, model_base + last, version, is_removal),
            wanted);
        if (what >> 50 & 1)
            keep(currents, what >> 51 & 1 ? first : last, what >> 52 & 1);
        assert_known(currents, first);
        assert_known(currents, last);
        assert_known(currents, (unsigned)(test_draw(seed) % CHUNKS));
        if (step % 256 == 0)
            assert_told(currents);
    }
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_known(currents, i);
    assert_told(currents);
}

static void the_newest_version_is_kept(void **state)
{
    (void)state;
    uint64_t seed = test_seed(7);
    const struct {
        uint64_t base, count, rest_max;
    } shapes[] = {
        {BASE + 1000, 1000, CHUNKS}, /* the array in the middle */
        {BASE, 2000, 500},           /* at the beginning */
        {BASE + 2999, 1, 2500},      /* one chunk */
        {BASE - 5, CHUNKS + 10, 0},  /* nothing else */
        {0, 0, CHUNKS},              /* no array */
        {BASE + CHUNKS, 100, 40},    /* it has none of the chunks */
        {BASE - 100, 50, 1},         /* neither does this one */
        {BASE + 1000, 1000, 40},     /* the rest is mostly full */
    };
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    for (unsigned i = 0; i < 8 * SHAPES; i++) { /* four each: soon all chunks are known */
        unsigned k = i / 2 % SHAPES;
        struct sh_currents *currents =
            currents_of(shapes[k].base, shapes[k].count, shapes[k].rest_max, i % 2);
        assert_like_model(currents, &seed, 500);
        sh_currents_destroy(currents);
    }
}

/* The first and the last IDs that there are. */
static void ids_end_somewhere(void **state)
{
    (void)state;
    uint64_t seed = test_seed(8);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t base = i < 2 ? 0 : UINT64_MAX - (CHUNKS - 1);
        struct sh_currents *currents =
            currents_of(i % 2 ? base : base + 1000, i % 2 ? CHUNKS : CHUNKS - 1000, 1000, 1);
        model_base = base;
        assert_like_model(currents, &seed, 1000);
        sh_currents_destroy(currents);
    }
}

/* Each pair of these, put in both orders. */
static void versions_have_an_order(void **state)
{
    (void)state;
    const struct sh_replog_version rising[] = {
        version_of(0, 0, 0), version_of(0, 0, 1),
        version_of(0, 1, 0), version_of(0, 1, UINT32_MAX),
        version_of(0, 2, 0), version_of(0, 32767, 5),
        version_of(1, 0, 0), version_of(1, 1, 0),
        version_of(1, 1, 1), version_of(1, 32767, UINT32_MAX),
    };
    enum { COUNT = sizeof rising / sizeof rising[0], OF_EON_0 = 6 };
    for (unsigned eon = 0; eon < 2; eon++)
        for (unsigned i = 0; i < COUNT * COUNT; i++) {
            unsigned a = i / COUNT, b = i % COUNT;
            /* Where eon 0 is the current one, its versions are above those of eon 1. */
            unsigned a_rank = eon ? a : (a + COUNT - OF_EON_0) % COUNT;
            unsigned b_rank = eon ? b : (b + COUNT - OF_EON_0) % COUNT;
            struct sh_currents *currents = currents_of(BASE, 1, 1, eon);
            put(currents, BASE, BASE + 1, rising[a], false);
            put(currents, BASE, BASE + 1, rising[b], true);
            for (unsigned k = 0; k < 2; k++) {
                struct sh_replog_version version;
                bool is_removal;
                assert_true(sh_currents_get(currents, BASE + k, &version, &is_removal));
                assert_true(is_same(version, a_rank < b_rank ? rising[b] : rising[a]));
                assert_int_equal(is_removal, a_rank < b_rank);
                assert_int_equal(sh_currents_is_current(currents, BASE + k, rising[a]),
                                 a_rank >= b_rank);
                assert_int_equal(sh_currents_is_current(currents, BASE + k, rising[b]),
                                 a_rank <= b_rank);
            }
            sh_currents_destroy(currents);
        }
}

/* A run that does not fit changes nothing, not even the part in the array; chunks that are known still get newer versions. */
static void a_full_rest_changes_nothing(void **state)
{
    (void)state;
    enum { REST = 100 };
    struct sh_currents *currents = currents_of(BASE + 1000, 1000, REST, 1);
    struct sh_replog_version version = version_of(1, 1, 0), newer = version_of(1, 1, 1);
    const struct {
        uint64_t first, last;
    } refused[] = {{BASE + 1, BASE + 1},      {BASE + 999, BASE + 1000},
                   {BASE + 990, BASE + 2010}, {BASE + 1999, BASE + 2001},
                   {BASE + 5, BASE + 999},    {1, UINT64_MAX},
                   {0, UINT64_MAX},           {BASE + 1000, UINT64_MAX},
                   {0, BASE + 1000},          {UINT64_MAX, UINT64_MAX}};
    for (unsigned i = 0; i < REST; i++) { /* at both sides of the array */
        unsigned at = i % 2 ? 9 * i : 2000 + 9 * i;
        assert_int_equal(model_put(at, at, version, false), SHOAL_OK);
        put(currents, BASE + at, BASE + at, version, false);
    }
    for (unsigned i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(sh_currents_put(currents, refused[i].first, refused[i].last, newer, false),
                         SHOAL_EFULL);
        assert_told(currents);
    }
    assert_int_equal(model_put(9, 9, newer, true), SHOAL_OK);
    put(currents, BASE + 9, BASE + 9, newer, true);
    assert_int_equal(model_put(1000, 1999, newer, false), SHOAL_OK);
    put(currents, BASE + 1000, BASE + 1999, newer, false);
    assert_told(currents);
    sh_currents_destroy(currents);
}

/* --- Reading all ------------------------------------------------------------------------------ */

enum { SCATTERED = 50000, IN_ARRAY = 10000 };

struct listing {
    uint64_t chunks[SCATTERED + IN_ARRAY], before;
    size_t count, calls;
};
static struct listing listings[2];

static void list(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                 bool is_removal)
{
    struct listing *listing = arg;
    assert_true(first > listing->before && last >= first);
    assert_true(last - first < SCATTERED + IN_ARRAY - listing->count);
    for (uint64_t chunk = first; chunk <= last; chunk++) {
        assert_true(version.number == chunk / 4096 % 1000 && !is_removal);
        listing->chunks[listing->count++] = chunk;
    }
    listing->before = last;
    listing->calls++;
}

/* Lists all chunks as they are told; returns in how many pieces. */
static size_t list_all(const struct sh_currents *currents, struct listing *listing)
{
    size_t piece = 0;
    listing->count = 0;
    for (bool has_more = true; has_more; piece++) {
        listing->before = listing->calls = 0;
        has_more = sh_currents_walk(currents, piece, list, listing);
        assert_true(listing->calls <= SH_CURRENTS_PIECE);
    }
    return piece;
}

static int chunk_compare(const void *a, const void *b)
{
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/* Sorts chunks, and leaves each once; returns how many these are. */
static size_t chunks_sort(uint64_t *chunks, size_t count)
{
    size_t kept = 0;
    qsort(chunks, count, sizeof *chunks, chunk_compare);
    for (size_t i = 0; i < count; i++)
        if (!kept || chunks[i] != chunks[kept - 1])
            chunks[kept++] = chunks[i];
    return kept;
}

/* Of many blocks each chunk is told, once; it stays, so that it can be told again, also after a walk that was not ended. */
static void scattered_chunks_are_told(void **state)
{
    (void)state;
    static uint64_t wanted[SCATTERED + IN_ARRAY];
    uint64_t seed = test_seed(9);
    size_t count = 0;
    struct sh_currents *currents = currents_of(BASE, IN_ARRAY, SCATTERED, 0);
    for (uint64_t chunk = BASE; chunk < BASE + IN_ARRAY; chunk++)
        wanted[count++] = chunk;
    for (unsigned i = 0; i < SCATTERED; i++)
        wanted[count++] = i % 2 ? test_draw(&seed) | 1 : BASE - 60000 + test_draw(&seed) % 120000;
    for (size_t i = 0; i < count; i++)
        put(currents, wanted[i], wanted[i], version_of(0, 7, (uint32_t)(wanted[i] / 4096 % 1000)),
            false);
    count = chunks_sort(wanted, count);
    assert_true(count > SCATTERED * 3 / 4);
    assert_int_equal(sh_currents_count(currents), count);
    const size_t pieces = (IN_ARRAY + SH_CURRENTS_PIECE - 1) / SH_CURRENTS_PIECE +
                          (SCATTERED / 3 * 4 + SH_CURRENTS_PIECE - 1) / SH_CURRENTS_PIECE;
    for (unsigned i = 0; i < 2; i++) {
        assert_in_range(list_all(currents, &listings[i]), pieces - 1, pieces + 1);
        assert_int_equal(listings[i].count, count);
        listings[1].count = listings[1].before = 0; /* a walk is given up */
        assert_true(sh_currents_walk(currents, 0, list, &listings[1]));
    }
    (void)list_all(currents, &listings[1]);
    assert_memory_equal(listings[1].chunks, listings[0].chunks, count * sizeof *wanted);
    assert_int_equal(chunks_sort(listings[0].chunks, count), count);
    assert_memory_equal(listings[0].chunks, wanted, count * sizeof *wanted);
    sh_currents_destroy(currents);
}

/* --- Memory ----------------------------------------------------------------------------------- */

static void memory_is_as_it_was_told(void **state)
{
    (void)state;
    struct sh_currents *currents;
    for (unsigned i = 0; i < 6; i++) {
        config = (struct sh_currents_config){
            .base = BASE, .count = i % 3 * 1000, .rest_max = i / 3 * 777};
        alloc_fail_sized(sh_currents_bytes(&config));
        assert_int_equal(sh_currents_create(&config, &currents), SHOAL_ENOMEM);
        assert_int_equal(alloc_fail_end(), 1);
    }
    struct sh_currents_config larger = config;
    larger.count += 1000;
    assert_int_equal(sh_currents_bytes(&larger) - sh_currents_bytes(&config), 8000);
    larger = config;
    larger.rest_max += 1000000;
    size_t rest = sh_currents_bytes(&larger) - sh_currents_bytes(&config);
    assert_true(rest > 21000000 && rest < 22000000);
    sh_currents_destroy(NULL);
}

/* Of an array of 512 MiB only what is used is resident. */
static void an_array_costs_what_is_used(void **state)
{
    (void)state;
    const uint64_t count = UINT64_C(1) << 26;
    uint64_t before = sh_resident_bytes();
    struct sh_currents *currents = currents_of(BASE, count, 1000, 0);
    put(currents, BASE + count / 2, BASE + count / 2, version_of(0, 1, 0), false);
    assert_true(sh_currents_is_current(currents, BASE + count / 2, version_of(0, 1, 0)));
    assert_false(sh_currents_is_current(currents, BASE, version_of(0, 1, 0)));
    assert_false(sh_currents_is_current(currents, BASE + count - 1, version_of(0, 1, 0)));
    assert_true(sh_resident_bytes() < before + count * 8 / 4);
    sh_currents_destroy(currents);
}

static void tell_any(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                     bool is_removal)
{
    (void)arg;
    for (uint64_t at = first - model_base; at <= last - model_base; at++)
        told[at] = (struct known){.is_there = true, .is_removal = is_removal, .version = version};
}

/* Of what was known when a walk began, puts between its pieces hide nothing. */
static void walks_go_on(void **state)
{
    (void)state;
    uint64_t seed = test_seed(9);
    struct sh_currents *currents = currents_of(BASE + 100, 1500, 1500, 0);
    for (unsigned i = 0; i < CHUNKS; i += 2)
        put(currents, BASE + i, BASE + i, version_of(0, 5, 1), false);
    memset(told, 0, sizeof told);
    bool has_more = true;
    for (size_t piece = 0; has_more; piece++) {
        has_more = sh_currents_walk(currents, piece, tell_any, NULL);
        for (unsigned i = 0; i < 60; i++) {
            unsigned at = (unsigned)(test_draw(&seed) % CHUNKS);
            enum shoal_err err =
                sh_currents_put(currents, BASE + at, BASE + at, version_of(0, 6, 1), at % 3 == 0);
            assert_true(err == SHOAL_OK || err == SHOAL_EFULL);
        }
    }
    for (unsigned i = 0; i < CHUNKS; i += 2) {
        assert_true(told[i].is_there);
        assert_true(told[i].version.epoch == 5 || told[i].version.epoch == 6);
    }
    sh_currents_destroy(currents);
}

static void tell_one(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                     bool is_removal)
{
    assert_true(first == BASE && last == BASE + 99 && version.number == 1 && !is_removal);
    ++*(unsigned *)arg;
}

/* Chunks with one version are one run, whichever of them are kept. */
static void runs_go_over_what_is_kept(void **state)
{
    (void)state;
    unsigned told_runs = 0;
    struct sh_currents *currents = currents_of(BASE, 100, 10, 0);
    put(currents, BASE, BASE + 99, version_of(0, 5, 1), false);
    for (unsigned i = 0; i < 100; i += 3)
        sh_currents_keep(currents, BASE + i, version_of(0, 5, 1));
    assert_false(sh_currents_walk(currents, 1, tell_one, &told_runs));
    assert_true(sh_currents_walk(currents, 0, tell_one, &told_runs));
    assert_int_equal(told_runs, 1);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(sh_currents_is_kept(currents, BASE + i, version_of(0, 5, 1)), i % 3 == 0);
    sh_currents_destroy(currents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_version_is_kept),
        cmocka_unit_test(ids_end_somewhere),
        cmocka_unit_test(versions_have_an_order),
        cmocka_unit_test(a_full_rest_changes_nothing),
        cmocka_unit_test(scattered_chunks_are_told),
        cmocka_unit_test(walks_go_on),
        cmocka_unit_test(runs_go_over_what_is_kept),
        cmocka_unit_test(memory_is_as_it_was_told),
        cmocka_unit_test(an_array_costs_what_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
