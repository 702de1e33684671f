/* The sort in pieces against the C library's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "graph/sort_int.h"

static int by_all(const void *a, const void *b)
{
    const struct sh_entry *x = a;
    const struct sh_entry *y = b;
    if (x->own != y->own)
        return x->own < y->own ? -1 : 1;
    if (x->other != y->other)
        return x->other < y->other ? -1 : 1;
    return x->extra < y->extra ? -1 : x->extra > y->extra;
}

/* Sorts count entries with keys under the masks, budget at a time; each entry knows its place, so
 * that the order of equal ones shows. */
static void check(size_t count, uint64_t own_mask, uint64_t other_mask, size_t budget,
                  enum sh_sort_key key, uint64_t seed)
{
    struct sh_entries entries = {0};
    struct sh_entry *model = calloc(count + 1, sizeof *model);
    assert_non_null(model);
    for (size_t i = 0; i < count; i++) {
        struct sh_entry entry = {sh_mix64(seed + 3 * i) & own_mask,
                                 sh_mix64(seed + 3 * i + 1) & other_mask, sh_mix64(seed + i) & 3};
        if (key == SH_SORT_BY_OWN) /* the model breaks ties by place */
            entry.other = i;
        model[i] = entry;
        assert_int_equal(sh_entries_add(&entries, entry), SHOAL_OK);
    }
    qsort(model, count, sizeof *model, by_all);
    struct sh_sorter sorter = {0};
    assert_int_equal(sh_sorter_begin(&sorter, &entries, key), SHOAL_OK);
    size_t pieces = 0;
    while (!sh_sorter_run(&sorter, budget))
        pieces++;
    assert_int_equal(entries.count, count);
    for (size_t i = 0; i < count; i++)
        assert_memory_equal(&entries.at[i], &model[i], sizeof *model);
    /* One look and two more for each of at most 24 bytes, with a piece cut short by each. */
    assert_true(pieces <= 49 * (count / budget + 1));
    sh_entries_free(&entries, NULL);
    free(model);
}

static void random_entries(void **state)
{
    (void)state;
    uint64_t seed = test_seed(987);
    const uint64_t masks[] = {0, 1, 0xff, 0xffff, UINT64_C(0xff000000000000ff), UINT64_MAX};
    const size_t counts[] = {0, 1, 2, 3, 255, 4096, 20000};
    for (size_t m = 0; m < sizeof masks / sizeof masks[0]; m++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            check(counts[c], masks[m], masks[m], 1000, SH_SORT_BY_ALL, seed += 77777);
            check(counts[c], masks[m], masks[5 - m], 16384, SH_SORT_BY_ALL, seed += 77777);
            check(counts[c], masks[m], 0, 7777, SH_SORT_BY_OWN, seed += 77777);
        }
    }
    check(300, UINT64_MAX, UINT64_MAX, 1, SH_SORT_BY_ALL, seed);
}

/* What is in order already is looked at once; a sort that is given up frees its memory. */
static void ordered_and_cancelled(void **state)
{
    (void)state;
    struct sh_entries entries = {0};
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(sh_entries_add(&entries, (struct sh_entry){i / 3, i, 0}), SHOAL_OK);
    struct sh_sorter sorter = {0};
    assert_int_equal(sh_sorter_begin(&sorter, &entries, SH_SORT_BY_ALL), SHOAL_OK);
    assert_true(sh_sorter_run(&sorter, 5000));
    entries.at[4999].own = 0;
    assert_int_equal(sh_sorter_begin(&sorter, &entries, SH_SORT_BY_ALL), SHOAL_OK);
    assert_false(sh_sorter_run(&sorter, 7000));
    sh_sorter_free(&sorter, NULL);
    sh_entries_free(&entries, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_entries),
        cmocka_unit_test(ordered_and_cancelled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
