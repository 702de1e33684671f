/* The pool of tables, against a plain list of what was taken. */
#include "log/version_pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"

#define UNIT 48u
#define ORDER 5u
#define LARGEST 3u
#define PIECES (LARGEST << ORDER)

static struct piece {
    uint8_t *at;
    unsigned order;
    uint8_t stamp;
} pieces[PIECES];
static unsigned count;

static size_t bytes_of(unsigned order)
{
    return (size_t)UNIT << order;
}

static struct sh_version_pool *pool_of(unsigned order, uint32_t largest)
{
    struct sh_version_pool *pool;
    assert_int_equal(sh_version_pool_create(UNIT, order, largest, &pool), SHOAL_OK);
    assert_int_equal(sh_version_pool_bytes(pool), bytes_of(order) * largest);
    count = 0;
    return pool;
}

static bool take(struct sh_version_pool *pool, unsigned order)
{
    static uint8_t stamp;
    uint64_t before = sh_version_pool_used(pool);
    uint8_t *at = sh_version_pool_take(pool, order);
    assert_int_equal(sh_version_pool_used(pool), before + (at ? bytes_of(order) : 0));
    if (!at)
        return false;
    assert_true(count < PIECES);
    pieces[count++] = (struct piece){at, order, ++stamp};
    memset(at, stamp, bytes_of(order));
    return true;
}

/* No other piece has written to it. */
static void give(struct sh_version_pool *pool, unsigned which)
{
    struct piece piece = pieces[which];
    for (size_t i = 0; i < bytes_of(piece.order); i++)
        assert_int_equal(piece.at[i], piece.stamp);
    sh_version_pool_give(pool, piece.at, piece.order);
    pieces[which] = pieces[--count];
}

static void give_all(struct sh_version_pool *pool)
{
    while (count)
        give(pool, count - 1);
    assert_int_equal(sh_version_pool_used(pool), 0);
}

/* Pieces that are taken do not overlap; whatever came and went, all of the pool is whole again once nothing is taken. */
static void pieces_are_joined_again(void **state)
{
    (void)state;
    uint64_t seed = test_seed(1);
    struct sh_version_pool *pool = pool_of(ORDER, LARGEST);
    unsigned refused = 0;
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < 400; i++) {
            if (test_draw(&seed) % 2)
                refused += !take(pool, (unsigned)(test_draw(&seed) % (ORDER + 1)));
            else if (count)
                give(pool, (unsigned)(test_draw(&seed) % count));
        }
        give_all(pool);
        for (unsigned i = 0; i < LARGEST; i++)
            assert_true(take(pool, ORDER));
        assert_false(take(pool, 0));
        give_all(pool);
    }
    assert_true(refused > 0);
    sh_version_pool_destroy(pool);
}

/* All of it can be taken in the smallest pieces; a larger one is there again as soon as its two halves are. */
static void all_can_be_taken(void **state)
{
    (void)state;
    struct sh_version_pool *pool = pool_of(ORDER, LARGEST);
    for (unsigned i = 0; i < PIECES; i++)
        assert_true(take(pool, 0));
    assert_false(take(pool, 0));
    assert_int_equal(sh_version_pool_used(pool), sh_version_pool_bytes(pool));
    give(pool, count - 1);
    assert_false(take(pool, 1));
    give_all(pool);
    sh_version_pool_destroy(pool);
    pool = pool_of(ORDER, LARGEST); /* of which only a part may be taken */
    sh_version_pool_limit(pool, bytes_of(3));
    assert_int_equal(sh_version_pool_bytes(pool), bytes_of(3));
    assert_false(take(pool, ORDER));
    assert_true(take(pool, 2));
    assert_false(take(pool, 3));
    sh_version_pool_limit(pool, bytes_of(1));
    assert_false(take(pool, 0));
    sh_version_pool_limit(pool, UINT64_MAX);
    assert_true(take(pool, ORDER));
    give_all(pool);
    sh_version_pool_destroy(pool);
    pool = pool_of(0, 1); /* of one piece that is not cut */
    assert_true(take(pool, 0));
    assert_false(take(pool, 0));
    give_all(pool);
    sh_version_pool_destroy(pool);
    sh_version_pool_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_joined_again),
        cmocka_unit_test(all_can_be_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
