/* The ordered map beside a sorted array, and snapshots of it beside copies of that array.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "metadata/map_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"

#define KEYS 3000
#define SNAPSHOTS 4

static uint64_t draws;

static uint64_t below(uint64_t bound)
{
    draws += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(draws) % bound;
}

/* Values of all keys: the number and size of bytes; 0: not there. */
struct model {
    uint16_t values[KEYS];
};

/* Keys of 4 to 256 bytes, in the order of their numbers. Many have long prefixes in common. */
static struct sh_bytes key_of(unsigned number, uint8_t *into)
{
    size_t size = 4 + (number % 7 == 0 ? 252 : number % 40);
    memset(into, 'x', size);
    for (unsigned i = 4; i-- > 0; number /= 10)
        into[i] = (uint8_t)('0' + number % 10);
    return sh_bytes_make(into, size);
}

static struct sh_bytes value_of(uint16_t value, uint8_t *into)
{
    memset(into, value % 251, value - 1u);
    return sh_bytes_make(into, value - 1u);
}

static void check_walk(const struct sh_map *map, const struct model *model)
{
    uint8_t key[SH_MAP_KEY_MAX], value[SH_MAP_VALUE_MAX];
    struct sh_map_cursor cursor;
    struct sh_bytes got, what;
    sh_map_check(map);
    sh_map_seek(map, sh_bytes_text("0"), &cursor);
    for (unsigned i = 0; i < KEYS; i++) {
        if (!model->values[i])
            continue;
        assert_true(sh_map_item(&cursor, &got, &what));
        assert_int_equal(sh_bytes_order(got, key_of(i, key)), 0);
        assert_int_equal(sh_bytes_order(what, value_of(model->values[i], value)), 0);
        sh_map_next(&cursor);
    }
    assert_false(sh_map_item(&cursor, &got, &what));
}

static void check_look(const struct sh_map *map, const struct model *model, unsigned number)
{
    uint8_t bytes[SH_MAP_KEY_MAX], other[SH_MAP_KEY_MAX];
    struct sh_map_cursor cursor;
    struct sh_bytes key = key_of(number, bytes), got, what;
    assert_int_equal(sh_map_get(map, key, &what), model->values[number] != 0);
    unsigned at = number;
    while (at < KEYS && !model->values[at])
        at++;
    sh_map_seek(map, key, &cursor);
    assert_int_equal(sh_map_item(&cursor, &got, &what), at < KEYS);
    if (at < KEYS)
        assert_int_equal(sh_bytes_order(got, key_of(at, other)), 0);
    at = number + 1;
    while (at && !model->values[at - 1])
        at--;
    assert_int_equal(sh_map_floor(map, key, &got, &what), at > 0);
    if (at)
        assert_int_equal(sh_bytes_order(got, key_of(at - 1, other)), 0);
}

static void act(struct sh_map *map, struct sh_cells *cells, struct model *model, unsigned removals)
{
    static uint8_t key[SH_MAP_KEY_MAX], value[SH_MAP_VALUE_MAX];
    unsigned number = (unsigned)below(KEYS);
    bool was_there = model->values[number];
    if (below(10) < removals) {
        assert_int_equal(sh_map_remove(map, cells, key_of(number, key)), was_there);
        model->values[number] = 0;
        return;
    }
    model->values[number] = (uint16_t)(1 + (below(20) ? below(30) : below(SH_MAP_VALUE_MAX + 1)));
    assert_int_equal(
        sh_map_put(map, cells, key_of(number, key), value_of(model->values[number], value)),
        !was_there);
}

/* Phases of mostly insertions and mostly removals; snapshots are kept and given back at random. */
static void test_model(void **state)
{
    (void)state;
    static struct model model, models[SNAPSHOTS];
    struct sh_map map = {.root = NULL}, snapshots[SNAPSHOTS] = {{.root = NULL}};
    struct sh_cells cells = {.spares = NULL};
    memset(&model, 0, sizeof model);
    for (unsigned i = 0; i < 60000; i++) {
        act(&map, &cells, &model, i / 6000 % 2 ? 8 : 2);
        if (i % 100 == 0)
            check_look(&map, &model, (unsigned)below(KEYS));
        if (i % 3 == 0)
            (void)sh_cells_sweep(&cells, 2);
        if (i % 500)
            continue;
        check_walk(&map, &model);
        unsigned which = (unsigned)below(SNAPSHOTS);
        if (snapshots[which].root)
            check_walk(&snapshots[which], &models[which]);
        sh_map_clear(&snapshots[which], &cells);
        if (!map.root || !below(4))
            continue;
        snapshots[which] = map;
        map.root->refs++;
        models[which] = model;
    }
    for (unsigned i = 0; i < SNAPSHOTS; i++) {
        if (snapshots[i].root)
            check_walk(&snapshots[i], &models[i]);
        sh_map_clear(&snapshots[i], &cells);
    }
    /* All is removed, one by one, and nothing is left. */
    uint8_t key[SH_MAP_KEY_MAX];
    for (unsigned i = 0; i < KEYS; i++)
        (void)sh_map_remove(&map, &cells, key_of(i, key));
    assert_null(map.root);
    while (sh_cells_sweep(&cells, 1))
        ;
    assert_int_equal(cells.count, 0);
    assert_int_equal(cells.garbage_count, 0);
}

/* Whatever the order, pages are not left nearly empty: full when filled in ascending order. */
static void test_fill(void **state)
{
    (void)state;
    enum { COUNT = 20000, BYTES = 5 + 8 + 8 };
    for (unsigned order = 0; order < 3; order++) {
        struct sh_map map = {.root = NULL};
        struct sh_cells cells = {.spares = NULL};
        for (unsigned i = 0; i < COUNT; i++) {
            uint64_t number = order == 0 ? i : order == 1 ? COUNT - i : sh_mix64(i);
            uint8_t key[8];
            sh_store64(key, __builtin_bswap64(number + 1));
            if (order == 0 && i % 3)
                sh_map_append(&map, &cells, sh_bytes_make(key, 8), sh_bytes_make(key, 8));
            else
                assert_true(sh_map_put(&map, &cells, sh_bytes_make(key, 8), sh_bytes_make(key, 8)));
        }
        sh_map_check(&map);
        size_t full = COUNT / (SH_CELL_BYTES / BYTES);
        assert_in_range(map.pages, full, order == 0 ? full + full / 20 : 2 * full + full / 20);
        sh_map_clear(&map, &cells);
        while (sh_cells_sweep(&cells, 100))
            ;
        assert_int_equal(cells.count, 0);
    }
}

/* Spares that were filled as sh_map_cells_max says are enough for changes when malloc has nothing
 * any more, with a snapshot that all pages are copied for. */
static void test_spares(void **state)
{
    (void)state;
    static struct model model;
    uint8_t key[SH_MAP_KEY_MAX], value[SH_MAP_VALUE_MAX];
    struct sh_map map = {.root = NULL};
    struct sh_cells cells = {.spares = NULL};
    memset(&model, 0, sizeof model);
    for (unsigned round = 0; round < 60; round++) {
        for (unsigned i = 0; i < 10 * round; i++)
            act(&map, &cells, &model, round % 3 ? 3 : 9);
        struct sh_map snapshot = map;
        if (map.root)
            map.root->refs++;
        struct model kept = model;
        unsigned changes = 1 + (unsigned)below(round % 2 ? 5 : 400);
        size_t most = sh_map_cells_max(&map, changes,
                                       changes * (size_t)(7 + SH_MAP_KEY_MAX + SH_MAP_VALUE_MAX));
        assert_int_equal(sh_cells_fill(&cells, most), SHOAL_OK);
        cells.failures_due = 1;
        for (unsigned i = 0; i < changes; i++)
            act(&map, &cells, &model, 4);
        assert_int_equal(sh_cells_fill(&cells, cells.spare_count + 1), SHOAL_ENOMEM);
        cells.failures_due = 0;
        check_walk(&map, &model);
        check_walk(&snapshot, &kept);
        sh_map_clear(&snapshot, &cells);
        while (sh_cells_sweep(&cells, 100))
            ;
    }
    for (unsigned i = 0; i < KEYS; i++)
        if (model.values[i])
            assert_false(
                sh_map_put(&map, &cells, key_of(i, key), value_of(model.values[i], value)));
    sh_map_clear(&map, &cells);
    while (sh_cells_sweep(&cells, 100))
        ;
    assert_int_equal(cells.count, 0);
    sh_cells_trim(&cells, 0, SIZE_MAX);
    assert_null(cells.spares);
}

int main(void)
{
    draws = test_seed(UINT64_C(0x6d617073));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_fill),
        cmocka_unit_test(test_spares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
