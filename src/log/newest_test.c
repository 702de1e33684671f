/* The newest versions of a zone's chunks, against a plain array. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "log/newest.h"

#define DENSE 40000u /* chunks that lie close */
#define SPARSE 5000u /* that have no neighbours */
#define CHUNKS (DENSE + SPARSE)

static uint64_t known[CHUNKS];

static uint64_t chunk_of(unsigned at)
{
    return at < DENSE ? (UINT64_C(7) << 48) + 5 + at
                      : (uint64_t)(at - DENSE) * UINT64_C(0x369d0369d037);
}

static void test_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261127);
    struct sh_newest *newest;
    assert_int_equal(sh_newest_create(&newest), SHOAL_OK);
    memset(known, 0, sizeof known);
    for (unsigned i = 0; i < 300000; i++) {
        uint64_t chunks[SH_NEWEST_AHEAD];
        unsigned first = (unsigned)(test_draw(&seed) % CHUNKS), count = 0;
        while (count < SH_NEWEST_AHEAD && first + count < CHUNKS && test_draw(&seed) % 8) {
            chunks[count] = chunk_of(first + count);
            count++;
        }
        if (i % 3 == 0)
            sh_newest_prefetch(newest, chunks, count); /* of what is there, and what is not */
        for (unsigned k = 0; k < count; k++) {
            uint64_t *cells = sh_newest_cells(newest, chunks[k]);
            assert_non_null(cells);
            assert_true(cells[chunks[k] % SH_NEWEST_GROUP] == known[first + k]);
            known[first + k] = test_draw(&seed) | 1;
            cells[chunks[k] % SH_NEWEST_GROUP] = known[first + k];
        }
    }
    /* Each group is told once, and has what is known of its chunks, and nothing of others. */
    unsigned found = 0, expected = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        uint64_t chunk = chunk_of(i);
        expected += known[i] != 0;
        assert_true(sh_newest_cells(newest, chunk)[chunk % SH_NEWEST_GROUP] == known[i]);
    }
    for (uint32_t group = 0; group < sh_newest_groups(newest); group++) {
        uint64_t first;
        const uint64_t *cells = sh_newest_group(newest, group, &first);
        assert_int_equal(first % SH_NEWEST_GROUP, 0);
        assert_ptr_equal(cells, sh_newest_cells(newest, first));
        for (unsigned i = 0; i < SH_NEWEST_GROUP; i++)
            found += cells[i] != 0;
    }
    assert_int_equal(found, expected);
    sh_newest_destroy(newest);
}

static struct sh_replog_version version(uint16_t epoch, uint32_t number)
{
    return (struct sh_replog_version){.epoch = epoch, .number = number};
}

/* Versions are in the order of their values, whatever is marked. */
static void test_values(void **state)
{
    (void)state;
    static const struct sh_replog_version rising[] = {{0, 0},      {0, 1},          {0, 0x7fffffff},
                                                      {1, 0},      {1, 0xffff},     {2, 0},
                                                      {0x7fff, 0}, {0x7fff, 0xffff}};
    for (size_t i = 0; i < sizeof rising / sizeof rising[0]; i++) {
        uint64_t value = sh_newest_value(rising[i], false);
        uint64_t other = sh_newest_value(version(rising[i].epoch | SH_REPLOG_EON, rising[i].number),
                                         true); /* the caller has them all in one eon */
        assert_true(sh_newest_is_newer(value, 0) && !sh_newest_is_newer(0, value));
        assert_true(sh_newest_is_same(value, other) &&
                    sh_newest_is_same(value | SH_NEWEST_TAKEN, other));
        assert_false(sh_newest_is_newer(other, value) || sh_newest_is_newer(value, other));
        assert_true(other & SH_NEWEST_REMOVAL && !(value & SH_NEWEST_REMOVAL));
        if (i == 0)
            continue;
        uint64_t before = sh_newest_value(rising[i - 1], true) | SH_NEWEST_TAKEN;
        assert_true(sh_newest_is_newer(value, before) && !sh_newest_is_newer(before, value));
        assert_false(sh_newest_is_same(value, before));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
