/* Arrays of pages: growing keeps what is there, and all of it goes back, at once or in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "graph/pages_int.h"

#define FIRST ((size_t)5000)
#define ALL (3 * SH_UNMAP_BYTES + 100)

static uint8_t *grown(void)
{
    uint8_t *at = sh_pages_grow(NULL, 0, FIRST);
    assert_non_null(at);
    memset(at, 7, FIRST);
    at = sh_pages_grow(at, FIRST, ALL);
    assert_non_null(at);
    return at;
}

static void test_grow(void **state)
{
    (void)state;
    uint8_t *at = grown();
    for (size_t i = 0; i < ALL; i++)
        assert_int_equal(at[i], i < FIRST ? 7 : 0);
    assert_null(sh_pages_grow(at, ALL, SIZE_MAX)); /* and it has changed nothing */
    assert_null(sh_pages_grow(at, ALL, SIZE_MAX / 2));
    assert_int_equal(at[FIRST - 1], 7);
    sh_pages_trim(at, ALL, FIRST);
    sh_pages_trim(at, FIRST, FIRST - 1); /* the same two pages */
    assert_int_equal(at[FIRST - 1], 7);
    sh_pages_discard(at, FIRST - 1, NULL);
    sh_pages_discard(NULL, 0, NULL);
}

static void test_discard_in_pieces(void **state)
{
    (void)state;
    struct sh_unmaps unmaps;
    sh_unmaps_init(&unmaps);
    uint8_t *at = grown();
    memset(at, 7, ALL);
    sh_pages_discard(at, ALL, &unmaps);
    unsigned pieces = 0;
    while (sh_unmaps_run(&unmaps) > 0)
        pieces++;
    assert_int_equal(pieces, 4);
    assert_false(sh_unmaps_are_left(&unmaps));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_discard_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
