/* One handle under many threads: 64 on a cluster, 16 on an embedded store, blocking, multi and
 * asynchronous calls mixed, and more calls in flight than there is room for. */
#include <pthread.h>

#include "base/log.h"
#include "tests/client_rig.h"

#define THREADS_MAX 64
#define ROUNDS 40
#define SHARED 32

struct load {
    shoal *store;
    shoal_cid shared[SHARED]; /* 64 bytes each, all of them always equal */
};

struct worker {
    pthread_t thread;
    struct load *load;
    unsigned number;
    _Atomic unsigned done;
};

/* A put is whole or not there, whoever else writes. */
static void use_shared(struct worker *worker, unsigned round)
{
    uint8_t bytes[64];
    uint32_t size = 0;
    shoal_cid cid = worker->load->shared[(worker->number + round) % SHARED];
    memset(bytes, (int)(worker->number + round), sizeof bytes);
    assert_int_equal(shoal_put(worker->load->store, cid, bytes, sizeof bytes), SHOAL_OK);
    assert_int_equal(shoal_get(worker->load->store, cid, bytes, sizeof bytes, &size), SHOAL_OK);
    assert_int_equal(size, 64);
    for (size_t i = 1; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], bytes[0]);
}

static void use_own(struct worker *worker)
{
    enum { OWN = 8 };
    shoal *store = worker->load->store;
    shoal_cid cids[OWN];
    uint64_t values[OWN], back[OWN];
    struct shoal_op ops[OWN];
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, OWN, cids), SHOAL_OK);
    for (size_t i = 0; i < OWN; i++) {
        values[i] = cids[i].v * 3;
        ops[i] = (struct shoal_op){.cid = cids[i], .data = &values[i], .size = 8};
    }
    assert_int_equal(shoal_multi_put(store, ops, OWN), SHOAL_OK);
    for (size_t i = 0; i < OWN; i++)
        ops[i].data = &back[i];
    assert_int_equal(shoal_multi_get(store, ops, OWN), SHOAL_OK);
    assert_memory_equal(values, back, sizeof values);
    assert_int_equal(shoal_multi_remove(store, ops, OWN), SHOAL_OK);
}

static void on_done(struct shoal_call *call)
{
    struct worker *worker = call->arg;
    assert_int_equal(call->err, SHOAL_OK);
    worker->done++;
}

static void use_async(struct worker *worker)
{
    enum { CALLS = 16 };
    struct shoal_call calls[CALLS];
    uint8_t into[CALLS][64];
    worker->done = 0;
    for (size_t i = 0; i < CALLS; i++) {
        calls[i] = (struct shoal_call){.done = i % 2 ? on_done : NULL, .arg = worker};
        assert_int_equal(
            shoal_get_async(worker->load->store, worker->load->shared[i], into[i], 64, &calls[i]),
            SHOAL_OK);
    }
    for (size_t i = 0; i < CALLS; i += 2)
        assert_int_equal(shoal_wait(worker->load->store, &calls[i]), SHOAL_OK);
    while (worker->done < CALLS / 2)
        (void)shoal_poll(worker->load->store);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    for (unsigned round = 0; round < ROUNDS; round++) {
        use_shared(worker, round);
        if (round % 4 == 0)
            use_own(worker);
        if (round % 4 == 2)
            use_async(worker);
    }
    return NULL;
}

static void run_threads(shoal *store, unsigned count)
{
    static struct worker workers[THREADS_MAX];
    struct load load = {.store = store};
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 64, SHARED, load.shared), SHOAL_OK);
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){.load = &load, .number = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

static void threads_embedded(void **state)
{
    (void)state;
    shoal *store = rig_open(NULL, 0);
    struct shoal_status status;
    run_threads(store, 16);
    assert_int_equal(shoal_status(store, SHOAL_NID_NONE, &status), SHOAL_OK);
    assert_int_equal(status.chunks, SHARED);
    shoal_close(store);
}

static void threads_on_cluster(void **state)
{
    (void)state;
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 60000 * MS);
    run_threads(store, THREADS_MAX);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* More than the ring and the table of requests hold: EBUSY, and once some are done it goes on. */
static void more_than_fit(void **state)
{
    (void)state;
    enum { CALLS = 100000 };
    static struct shoal_call calls[CALLS];
    static uint64_t values[CALLS];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 60000 * MS);
    shoal_cid cid, cold;
    assert_int_equal(shoal_create(store, cluster.peers[0].nid, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_create(store, cluster.peers[1].nid, 8, &cold), SHOAL_OK);
    uint64_t value = 99;
    assert_int_equal(shoal_put(store, cid, &value, 8), SHOAL_OK);
    assert_int_equal(shoal_put(store, cold, &value, 8), SHOAL_OK);
    shoal *fresh = rig_open(cluster.superpeer.address, 60000 * MS); /* has looked up nothing */
    /* Begun before it is known where they go, so that none is refused. */
    rig_freeze(&cluster.superpeer);
    memset(calls, 0, sizeof calls);
    for (size_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_get_async(fresh, cold, &values[i], 8, &calls[i]), SHOAL_OK);
    rig_thaw(&cluster.superpeer);
    for (size_t i = 0; i < CALLS; i++) {
        assert_int_equal(shoal_wait(fresh, &calls[i]), SHOAL_OK);
        assert_int_equal(values[i], 99);
        values[i] = 0;
    }
    shoal_close(fresh);
    rig_freeze(&cluster.peers[0]);
    memset(calls, 0, sizeof calls);
    assert_int_equal(shoal_get(store, cold, &value, 8, NULL), SHOAL_OK);
    size_t begun = 0;
    enum shoal_err err = SHOAL_OK;
    while (err == SHOAL_OK && begun < CALLS) {
        err = shoal_get_async(store, cid, &values[begun], 8, &calls[begun]);
        begun += err == SHOAL_OK;
    }
    assert_int_equal(err, SHOAL_EBUSY);
    rig_thaw(&cluster.peers[0]);
    for (size_t i = 0; i < begun; i++) {
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
        assert_int_equal(values[i], 99);
    }
    assert_int_equal(shoal_get_async(store, cid, &values[0], 8, &calls[0]), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &calls[0]), SHOAL_OK);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_on_cluster),
        cmocka_unit_test(more_than_fit),
        cmocka_unit_test(threads_embedded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
