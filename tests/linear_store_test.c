/* Threads on a store, judged: whatever they do to few chunks, while these are moved about, looks as
 * if it had happened one after the other. And stores that are broken on purpose are found out.
 *
 * SHOAL_TEST_SEED: what the threads do (default: from the clock; printed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "env/env.h"
#include "store/store.h"
#include "tests/linear_run_int.h"

#define ROUNDS TEST_ROUNDS(150)
#define ROUNDS_BROKEN 400 /* by when it must be found out; mostly it takes one to ten */

static uint64_t seed;

static enum shoal_err on_create(void *arg, uint32_t size, shoal_cid *cid_out)
{
    return sh_store_new(arg, &size, 1, cid_out);
}

static enum shoal_err on_get(void *arg, shoal_cid cid, void *into, uint32_t room,
                             uint32_t *size_out)
{
    struct sh_store_op op = {.lid = cid, .data = into, .size = room};
    /* Both ways to get: they must agree. */
    if (cid.v % 2 == 0)
        return sh_store_get(arg, cid, into, room, size_out);
    (void)sh_store_get_multi(arg, &op, 1);
    *size_out = op.size;
    return op.err;
}

static enum shoal_err on_put(void *arg, shoal_cid cid, const void *data, uint32_t size)
{
    return sh_store_put(arg, cid, sh_bytes_make(data, size));
}

static enum shoal_err on_put_if(void *arg, shoal_cid cid, const void *expected, const void *data,
                                uint32_t size)
{
    struct sh_bytes was = sh_bytes_make(expected, size), is = sh_bytes_make(data, size);
    return cid.v % 2 ? sh_store_put_if(arg, cid, was, is)
                     : sh_store_put_if_hash(arg, cid, sh_hash64(was, 0), is);
}

static enum shoal_err on_add(void *arg, shoal_cid cid, uint64_t delta, uint64_t *old_out)
{
    return sh_store_add(arg, cid, 0, 8, delta, old_out);
}

static enum shoal_err on_resize(void *arg, shoal_cid cid, uint32_t size)
{
    return sh_store_resize(arg, cid, size);
}

static enum shoal_err on_remove(void *arg, shoal_cid cid)
{
    return sh_store_remove(arg, cid);
}

static enum shoal_err on_adopt(void *arg, shoal_cid cid, const void *data, uint32_t size)
{
    return sh_store_adopt(arg, cid, sh_bytes_make(data, size));
}

static void on_disturb(void *arg)
{
    (void)sh_store_defrag(arg, 4, true);
}

static struct linear_store good_make(void)
{
    struct sh_store_config config = {.bytes_max = 16 << 20, .chunk_bytes_max = 1 << 16};
    struct linear_store good = {.create = on_create,
                                .get = on_get,
                                .put = on_put,
                                .put_if = on_put_if,
                                .add = on_add,
                                .resize = on_resize,
                                .remove = on_remove,
                                .adopt = on_adopt,
                                .disturb = on_disturb};
    struct sh_store *store = NULL;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    good.arg = store;
    return good;
}

static void test_good(void **state)
{
    (void)state;
    struct linear_store good = good_make();
    struct sh_store_status status;
    assert_int_equal(linear_rounds(&good, false, seed, ROUNDS, true), ROUNDS);
    assert_int_equal(linear_rounds(&good, true, seed, ROUNDS, true), ROUNDS);
    sh_store_status_get(good.arg, &status);
    assert_int_equal(status.chunks, 0);
    assert_true(status.creates > 10 * ROUNDS && status.gets > 50 * ROUNDS);
    sh_store_destroy(good.arg);
}

static void test_stale_get(void **state)
{
    (void)state;
    struct linear_store good = good_make();
    struct linear_broken broken;
    linear_broken_make(&broken, &good);
    broken.store.get = linear_stale_get;
    unsigned rounds = linear_rounds(&broken.store, false, seed, ROUNDS_BROKEN, true);
    print_message("found out in round %u\n", rounds);
    assert_true(rounds < ROUNDS_BROKEN);
    assert_true(linear_rounds(&broken.store, true, seed, ROUNDS_BROKEN, false) < ROUNDS_BROKEN);
    sh_store_destroy(good.arg);
}

static void test_torn_add(void **state)
{
    (void)state;
    struct linear_store good = good_make();
    struct linear_broken broken;
    linear_broken_make(&broken, &good);
    broken.store.add = linear_torn_add;
    unsigned rounds = linear_rounds(&broken.store, false, seed, ROUNDS_BROKEN, true);
    print_message("found out in round %u\n", rounds);
    assert_true(rounds < ROUNDS_BROKEN);
    sh_store_destroy(good.arg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),
                                       cmocka_unit_test(test_stale_get),
                                       cmocka_unit_test(test_torn_add)};
    struct sh_clock clock = sh_real_clock();
    seed = test_seed(sh_now(&clock));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
