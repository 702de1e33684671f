/* Records by their chunks, against a plain array. */
#include "base/chunk_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"

#define RECORDS 2000

static struct sh_chunk_index tested;
static struct sh_chunk_link links[RECORDS];
static unsigned told[RECORDS];

static void tell(void *arg, const struct sh_chunk_link *link)
{
    (*(unsigned *)arg)++;
    told[link - links]++;
}

static unsigned each(uint64_t first, uint64_t last)
{
    unsigned count = 0;
    memset(told, 0, sizeof told);
    sh_chunk_index_each(&tested, first, last, tell, &count);
    return count;
}

/* Chunks of two creators, few of which are alone. */
static uint64_t chunk_drawn(uint64_t *seed)
{
    uint64_t drawn = test_draw(seed);
    return (UINT64_C(64) + drawn % 2) << 48 | (drawn / 2 % 5000);
}

static void found_by_any_range(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261125);
    for (unsigned round = 0; round < 20000; round++) {
        struct sh_chunk_link *link = &links[test_draw(&seed) % RECORDS];
        if (link->from)
            sh_chunk_unlink(link);
        else
            sh_chunk_link(&tested, link, chunk_drawn(&seed));
        if (round % 100)
            continue;
        uint64_t first = chunk_drawn(&seed), last = first + test_draw(&seed) % 300;
        if (round % 1000 == 0)
            last = UINT64_MAX; /* longer than there are lists */
        unsigned count = 0;
        unsigned found = each(first, last);
        for (unsigned i = 0; i < RECORDS; i++) {
            bool is_in = links[i].from && links[i].chunk >= first && links[i].chunk <= last;
            assert_int_equal(told[i], is_in);
            count += is_in;
        }
        assert_int_equal(found, count);
    }
    assert_int_equal(each(5, 4), 0);
    for (unsigned i = 0; i < RECORDS; i++)
        sh_chunk_unlink(&links[i]);
    assert_int_equal(each(0, UINT64_MAX), 0);
}

/* A run of chunks costs no look at records of others, however many there are. */
static void others_are_not_looked_at(void **state)
{
    (void)state;
    static struct sh_chunk_link lone;
    for (unsigned i = 0; i < SH_CHUNK_INDEX_LISTS; i++)
        assert_null(tested.lists[i]);
    sh_chunk_link(&tested, &lone, 1 << 20);
    unsigned used = 0;
    for (unsigned i = 0; i < SH_CHUNK_INDEX_LISTS; i++)
        used += tested.lists[i] != NULL;
    assert_int_equal(used, 1);
    /* 64 IDs share a list, those beside them have another. */
    for (unsigned i = 0; i < 128; i++)
        sh_chunk_link(&tested, &links[i], (1 << 20) + i);
    used = 0;
    for (unsigned i = 0; i < SH_CHUNK_INDEX_LISTS; i++)
        used += tested.lists[i] != NULL;
    assert_int_equal(used, 2);
    for (unsigned i = 0; i < 128; i++)
        sh_chunk_unlink(&links[i]);
    sh_chunk_unlink(&lone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_any_range),
        cmocka_unit_test(others_are_not_looked_at),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
