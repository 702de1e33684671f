/* Threads on a real cluster, through libshoal, judged as those in linear_store_test.c; on an
 * embedded store, too. And a client that caches what it must not is found out.
 *
 * SHOAL_TEST_SEED: what the threads do (default: from the clock; printed). */
#include "base/random_test.h"
#include "tests/client_rig.h"

#include "base/log.h"
#include "tests/linear_run_int.h"

#define ROUNDS 12
#define ROUNDS_EMBEDDED TEST_ROUNDS(60)
#define ROUNDS_BROKEN 100

static uint64_t seed;

/* Two handles, so that connections have no order between each other. Which of them a call takes,
 * its thread says. */
struct handles {
    shoal *stores[2];
};

static shoal *handle(void *arg)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned mine;
    if (mine == 0)
        mine = 1 + atomic_fetch_add(&threads, 1);
    return ((struct handles *)arg)->stores[mine % 2];
}

static enum shoal_err on_create(void *arg, uint32_t size, shoal_cid *cid_out)
{
    return shoal_create(handle(arg), SHOAL_NID_NONE, size, cid_out);
}

static enum shoal_err on_get(void *arg, shoal_cid cid, void *into, uint32_t room,
                             uint32_t *size_out)
{
    struct shoal_op op = {.cid = cid, .data = into, .size = room};
    if (cid.v % 2)
        return shoal_get(handle(arg), cid, into, room, size_out);
    enum shoal_err err = shoal_multi_get(handle(arg), &op, 1);
    *size_out = op.size;
    return err;
}

static enum shoal_err on_put(void *arg, shoal_cid cid, const void *data, uint32_t size)
{
    struct shoal_call call = {0};
    if (cid.v % 2)
        return shoal_put(handle(arg), cid, data, size);
    shoal *store = handle(arg);
    enum shoal_err err = shoal_put_async(store, cid, data, size, &call);
    return err == SHOAL_OK ? shoal_wait(store, &call) : err;
}

static enum shoal_err on_put_if(void *arg, shoal_cid cid, const void *expected, const void *data,
                                uint32_t size)
{
    if (cid.v % 2)
        return shoal_put_if(handle(arg), cid, expected, size, data, size);
    return shoal_put_if_hash(handle(arg), cid, shoal_hash(expected, size), data, size);
}

static enum shoal_err on_add(void *arg, shoal_cid cid, uint64_t delta, uint64_t *old_out)
{
    return shoal_add(handle(arg), cid, 0, 8, delta, old_out);
}

static enum shoal_err on_resize(void *arg, shoal_cid cid, uint32_t size)
{
    struct shoal_op op = {.cid = cid, .size = size};
    return cid.v % 2 ? shoal_resize(handle(arg), cid, size)
                     : shoal_multi_resize(handle(arg), &op, 1);
}

static enum shoal_err on_remove(void *arg, shoal_cid cid)
{
    return shoal_remove(handle(arg), cid);
}

static struct linear_store good_make(struct handles *handles)
{
    return (struct linear_store){.arg = handles,
                                 .create = on_create,
                                 .get = on_get,
                                 .put = on_put,
                                 .put_if = on_put_if,
                                 .add = on_add,
                                 .resize = on_resize,
                                 .remove = on_remove};
}

static void test_embedded(void **state)
{
    (void)state;
    shoal *store = rig_open(NULL, 60 * 1000 * MS);
    struct handles handles = {{store, store}};
    struct linear_store good = good_make(&handles);
    assert_int_equal(linear_rounds(&good, false, seed, ROUNDS_EMBEDDED, true), ROUNDS_EMBEDDED);
    assert_int_equal(linear_rounds(&good, true, seed, ROUNDS_EMBEDDED, true), ROUNDS_EMBEDDED);
    shoal_close(store);
}

static void test_cluster(void **state)
{
    (void)state;
    struct rig_node superpeer, peers[2];
    struct handles handles;
    struct linear_broken broken;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    for (int i = 0; i < 2; i++)
        rig_node_run(&peers[i], "peer", "127.0.0.1:0", sh_node_address(superpeer.node));
    for (int i = 0; i < 2; i++)
        handles.stores[i] = rig_open(sh_node_address(superpeer.node), 60 * 1000 * MS);
    struct linear_store good = good_make(&handles);
    assert_int_equal(linear_rounds(&good, false, seed, ROUNDS, true), ROUNDS);
    assert_int_equal(linear_rounds(&good, true, seed, ROUNDS, true), ROUNDS);

    linear_broken_make(&broken, &good);
    broken.store.get = linear_stale_get;
    assert_true(linear_rounds(&broken.store, true, seed, ROUNDS_BROKEN, true) < ROUNDS_BROKEN);
    linear_broken_make(&broken, &good);
    broken.store.add = linear_torn_add;
    assert_true(linear_rounds(&broken.store, false, seed, ROUNDS_BROKEN, true) < ROUNDS_BROKEN);
    for (int i = 0; i < 2; i++)
        shoal_close(handles.stores[i]);
    for (int i = 0; i < 2; i++)
        rig_node_end(&peers[i]);
    rig_node_end(&superpeer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_embedded),
                                       cmocka_unit_test(test_cluster)};
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("warn", &bad, &bad_size) != SHOAL_OK)
        return 1;
    seed = test_seed(rig_now());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
