/* libshoal against real nodes over TCP in this process, and embedded: the same checks for both. */
#include <pthread.h>

#include "base/log.h"
#include "tests/client_rig.h"

struct cluster {
    struct rig_node superpeer, peers[2];
    char address[64];
};

static void cluster_run(struct cluster *cluster)
{
    rig_node_run(&cluster->superpeer, "superpeer", "127.0.0.1:0", "");
    snprintf(cluster->address, sizeof cluster->address, "%s",
             sh_node_address(cluster->superpeer.node));
    for (int i = 0; i < 2; i++)
        rig_node_run(&cluster->peers[i], "peer", "127.0.0.1:0", cluster->address);
}

static void cluster_end(struct cluster *cluster)
{
    for (int i = 0; i < 2; i++) {
        if (cluster->peers[i].node)
            rig_node_end(&cluster->peers[i]);
    }
    rig_node_end(&cluster->superpeer);
}

static shoal *open_at(const char *address)
{
    return rig_open(address, UINT64_C(20000000000));
}

/* --- Checks that hold on any store --------------------------------------------------------- */

static void check_one(shoal *store)
{
    uint8_t data[100], back[100];
    uint32_t size = 7;
    shoal_cid cid;
    memset(data, 3, sizeof data);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 100, &cid), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, back, sizeof back, &size), SHOAL_OK);
    assert_int_equal(size, 100);
    assert_int_equal(back[50], 0);
    assert_int_equal(shoal_put(store, cid, data, 100), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, back, sizeof back, NULL), SHOAL_OK);
    assert_memory_equal(back, data, 100);
    assert_int_equal(shoal_put(store, cid, data, 99), SHOAL_ESIZE);
    size = 0;
    assert_int_equal(shoal_get(store, cid, back, 99, &size), SHOAL_ESIZE);
    assert_int_equal(size, 100);
    assert_string_not_equal(shoal_error_detail(), "");
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, back, sizeof back, NULL), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_remove(store, cid), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_get(store, SHOAL_CID_NONE, back, 1, NULL), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_create(store, (shoal_nid){999}, 1, &cid), SHOAL_ENONODE);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 0, &cid), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, NULL, 0, &size), SHOAL_OK);
    assert_int_equal(size, 0);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, (64u << 20) + 1, &cid), SHOAL_ETOOBIG);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 40u << 20, &cid), SHOAL_EFULL);
    assert_non_null(strstr(shoal_error_detail(), " more were needed, "));
    assert_non_null(strstr(shoal_error_detail(), " are left for it"));
}

static void check_large(shoal *store)
{
    const uint32_t size = 9u << 20;
    uint8_t *data = malloc(size), *back = malloc(size);
    shoal_cid cid;
    for (uint32_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 11));
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, size, &cid), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, data, size), SHOAL_OK);
    assert_int_equal(shoal_get(store, cid, back, size, NULL), SHOAL_OK);
    assert_memory_equal(back, data, size);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    free(data);
    free(back);
}

#define MANY 5000

static bool count_range(void *arg, shoal_cid first, shoal_cid last)
{
    uint64_t *total = arg;
    assert_true(last.v >= first.v);
    *total += last.v - first.v + 1;
    return true;
}

static uint64_t chunks_of(shoal *store)
{
    struct shoal_node nodes[8];
    size_t count;
    uint64_t by_ranges = 0, by_status = 0;
    assert_int_equal(shoal_nodes(store, nodes, 8, &count), SHOAL_OK);
    for (size_t i = 0; i < count; i++) {
        struct shoal_status status;
        if (nodes[i].role != SHOAL_PEER || nodes[i].state != SHOAL_NODE_UP)
            continue;
        assert_int_equal(shoal_ranges(store, nodes[i].nid, count_range, &by_ranges), SHOAL_OK);
        assert_int_equal(shoal_status(store, nodes[i].nid, &status), SHOAL_OK);
        by_status += status.chunks;
        assert_int_equal(status.used_bytes, status.table_bytes + status.block_bytes +
                                                status.free_bytes + status.other_bytes);
    }
    assert_int_equal(by_ranges, by_status);
    return by_status;
}

static void check_many(shoal *store)
{
    static uint32_t sizes[MANY];
    static shoal_cid cids[MANY];
    static uint8_t data[MANY][64], back[MANY][64];
    static struct shoal_op ops[MANY];
    uint64_t before = chunks_of(store);
    for (uint32_t i = 0; i < MANY; i++) {
        sizes[i] = i % 65;
        memset(data[i], (int)(i % 251), 64);
    }
    assert_int_equal(shoal_create_sizes(store, SHOAL_NID_NONE, sizes, MANY / 2, cids), SHOAL_OK);
    assert_int_equal(
        shoal_create_sizes(store, SHOAL_NID_NONE, sizes + MANY / 2, MANY / 2, cids + MANY / 2),
        SHOAL_OK);
    for (uint32_t i = 0; i < MANY; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .data = data[i], .size = sizes[i]};
    assert_int_equal(shoal_multi_put(store, ops, MANY), SHOAL_OK);
    for (uint32_t i = 0; i < MANY; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .data = back[i], .size = 64};
    assert_int_equal(shoal_multi_get(store, ops, MANY), SHOAL_OK);
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(ops[i].size, sizes[i]);
        assert_memory_equal(back[i], data[i], sizes[i]);
    }
    assert_int_equal(chunks_of(store), before + MANY);
    /* Some fail: each says so for itself. */
    assert_int_equal(shoal_remove(store, cids[10]), SHOAL_OK);
    ops[20].size = sizes[20] - 1;
    for (uint32_t i = 0; i < 100; i++)
        ops[i].size = i == 20 ? sizes[20] - 1 : 64;
    assert_int_equal(shoal_multi_get(store, ops, 100), SHOAL_ENOCHUNK);
    assert_int_equal(ops[10].err, SHOAL_ENOCHUNK);
    assert_int_equal(ops[20].err, SHOAL_ESIZE);
    assert_int_equal(ops[20].size, sizes[20]);
    assert_int_equal(ops[21].err, SHOAL_OK);
    assert_int_equal(shoal_multi_remove(store, ops, MANY), SHOAL_ENOCHUNK);
    assert_int_equal(ops[11].err, SHOAL_OK);
    assert_int_equal(chunks_of(store), before);
    assert_int_equal(shoal_multi_get(store, ops, 0), SHOAL_OK);
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, MANY, cids), SHOAL_OK);
    assert_true(cids[MANY - 1].v - cids[0].v >= MANY - 1);
    for (uint32_t i = 0; i < MANY; i++)
        ops[i].cid = cids[i];
    assert_int_equal(shoal_multi_remove(store, ops, MANY), SHOAL_OK);
}

/* One request whose IDs are in many runs, so that its answer is written in pieces. */
static void check_many_runs(shoal *store)
{
    enum { COUNT = 90000, FEWER = 80000 };
    static shoal_cid cids[COUNT], more[FEWER];
    static struct shoal_op ops[COUNT];
    uint64_t before = chunks_of(store);
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 1, COUNT, cids), SHOAL_OK);
    for (uint32_t i = 0; i < COUNT / 2; i++)
        ops[i] = (struct shoal_op){.cid = cids[2 * i]};
    assert_int_equal(shoal_multi_remove(store, ops, COUNT / 2), SHOAL_OK);
    assert_int_equal(shoal_create_many(store, shoal_cid_creator(cids[0]), 2, FEWER, more),
                     SHOAL_OK);
    assert_int_equal(chunks_of(store), before + COUNT / 2 + FEWER);
    uint32_t again = 0;
    for (uint32_t i = 0; i < FEWER; i++) {
        assert_true(i == 0 || more[i].v > more[i - 1].v);
        again += more[i].v < cids[COUNT - 1].v;
        ops[i] = (struct shoal_op){.cid = more[i]};
    }
    assert_true(again > COUNT / 4);
    assert_int_equal(shoal_multi_remove(store, ops, FEWER), SHOAL_OK);
    for (uint32_t i = 0; i < COUNT / 2; i++)
        ops[i] = (struct shoal_op){.cid = cids[2 * i + 1]};
    assert_int_equal(shoal_multi_remove(store, ops, COUNT / 2), SHOAL_OK);
    assert_int_equal(chunks_of(store), before);
}

/* A chain of calls that each begin the next in their completion. */
struct chain {
    struct shoal_call call;
    shoal *store;
    uint64_t value;
    uint64_t left;
    _Atomic bool is_over;
    enum shoal_err blocking_err;
};

static void chain_next(struct shoal_call *call)
{
    struct chain *chain = call->arg;
    assert_int_equal(call->err, SHOAL_OK);
    uint64_t back;
    chain->blocking_err = shoal_get(chain->store, call->cid, &back, 8, NULL);
    if (chain->left-- == 0) {
        chain->is_over = true;
        return;
    }
    assert_int_equal(
        shoal_get_async(chain->store, call->cid, &chain->value, sizeof chain->value, call),
        SHOAL_OK);
}

static void check_async(shoal *store)
{
    enum { CALLS = 200 };
    static struct shoal_call calls[CALLS];
    static uint64_t values[CALLS], back[CALLS];
    static shoal_cid cids[CALLS];
    memset(calls, 0, sizeof calls);
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_create_async(store, SHOAL_NID_NONE, 8, &calls[i]), SHOAL_OK);
    for (uint64_t i = 0; i < CALLS; i++) {
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
        cids[i] = calls[i].cid;
        values[i] = i * i;
        assert_int_equal(shoal_put_async(store, cids[i], &values[i], 8, &calls[i]), SHOAL_OK);
    }
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_get_async(store, cids[i], &back[i], 8, &calls[i]), SHOAL_OK);
    for (uint64_t i = 0; i < CALLS; i++) {
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
        assert_int_equal(back[i], i * i);
    }
    static struct chain chain;
    chain = (struct chain){.store = store, .left = 100000};
    chain.call = (struct shoal_call){.done = chain_next, .arg = &chain};
    assert_int_equal(shoal_get_async(store, cids[9], &chain.value, 8, &chain.call), SHOAL_OK);
    struct sh_clock clock = sh_real_clock();
    uint64_t deadline = sh_now(&clock) + 4 * DEADLINE_NS;
    while (!chain.is_over && sh_now(&clock) < deadline)
        shoal_poll(store);
    assert_true(chain.is_over);
    assert_int_equal(chain.value, 81);
    assert_int_equal(chain.blocking_err, SHOAL_EBUSY);
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_remove_async(store, cids[i], &calls[i]), SHOAL_OK);
    for (uint64_t i = 0; i < CALLS; i++)
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
}

static void *thread_main(void *arg)
{
    shoal *store = arg;
    uint64_t value, back;
    for (value = 0; value < 300; value++) {
        shoal_cid cid;
        assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_OK);
        assert_int_equal(shoal_put(store, cid, &value, 8), SHOAL_OK);
        assert_int_equal(shoal_get(store, cid, &back, 8, NULL), SHOAL_OK);
        assert_int_equal(back, value);
        assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    }
    return NULL;
}

static void check_threads(shoal *store)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, store), 0);
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
}

static void check_all(shoal *store)
{
    check_one(store);
    check_large(store);
    check_many(store);
    check_many_runs(store);
    check_async(store);
    check_threads(store);
    assert_int_equal(chunks_of(store), 0);
}

static void test_embedded(void **state)
{
    (void)state;
    shoal *store = open_at(NULL);
    check_all(store);
    shoal_close(store);
}

static void test_cluster(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_run(&cluster);
    shoal *store = open_at(cluster.address);
    check_all(store);
    shoal_close(store);
    /* Any node will do as the first address, and one that is dead does not matter. */
    char addresses[200];
    snprintf(addresses, sizeof addresses, "127.0.0.1:1,%s", sh_node_address(cluster.peers[1].node));
    store = open_at(addresses);
    check_one(store);
    shoal_close(store);
    cluster_end(&cluster);
}

/* However its bytes are moved, a client does the same. */
static void test_transports(void **state)
{
    (void)state;
    static const char *const names[] = {"tcp", "epoll", "uring"};
    struct cluster cluster;
    cluster_run(&cluster);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct shoal_options options = {.addresses = cluster.address, .transport = names[i]};
        shoal *store;
        assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
        check_one(store);
        check_large(store);
        check_threads(store);
        shoal_close(store);
    }
    cluster_end(&cluster);
}

/* A peer leaves: its chunks are gone, which every call says at once; the others go on. */
static void test_peer_leaves(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_run(&cluster);
    shoal *store = open_at(cluster.address);
    shoal_nid gone = sh_node_nid(cluster.peers[0].node);
    shoal_nid stays = sh_node_nid(cluster.peers[1].node);
    shoal_cid lost, kept;
    uint64_t value = 5, back = 0;
    assert_int_equal(shoal_create(store, gone, 8, &lost), SHOAL_OK);
    assert_int_equal(shoal_create(store, stays, 8, &kept), SHOAL_OK);
    assert_int_equal(shoal_put(store, kept, &value, 8), SHOAL_OK);
    assert_int_equal(shoal_get(store, lost, &back, 8, NULL), SHOAL_OK);
    rig_node_end(&cluster.peers[0]);
    assert_int_equal(shoal_get(store, lost, &back, 8, NULL), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_get(store, kept, &back, 8, NULL), SHOAL_OK);
    assert_int_equal(back, 5);
    for (int i = 0; i < 4; i++)
        assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &kept), SHOAL_OK);
    shoal_close(store);
    cluster_end(&cluster);
}

/* The superpeer is stopped and started again at its address: peers and client come back to it. */
static void test_superpeer_restarts(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_run(&cluster);
    shoal *store = open_at(cluster.address);
    shoal_nid nid = sh_node_nid(cluster.peers[0].node);
    shoal_cid cid;
    uint64_t value = 77, back = 0;
    assert_int_equal(shoal_create(store, nid, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, &value, 8), SHOAL_OK);
    rig_node_end(&cluster.superpeer);
    assert_int_equal(shoal_get(store, cid, &back, 8, NULL), SHOAL_OK);
    rig_node_run(&cluster.superpeer, "superpeer", cluster.address, "");
    /* Without a data_dir it knows nobody until the peers have come back, which it can't know. */
    struct sh_clock clock = sh_real_clock();
    uint64_t deadline = sh_now(&clock) + DEADLINE_NS;
    shoal *second = open_at(cluster.address);
    enum shoal_err err;
    do {
        err = shoal_get(second, cid, &back, 8, NULL);
    } while (err != SHOAL_OK && sh_now(&clock) < deadline);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(back, 77);
    back = 0;
    assert_int_equal(shoal_get(store, cid, &back, 8, NULL), SHOAL_OK);
    assert_int_equal(back, 77);
    assert_int_equal(sh_node_nid(cluster.peers[0].node).v, nid.v);
    shoal_close(second);
    shoal_close(store);
    cluster_end(&cluster);
}

static void test_open_errors(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_run(&cluster);
    shoal *store = NULL;
    struct shoal_options wrong = {.addresses = "127.0.0.1:1"};
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_EUNREACHABLE);
    assert_non_null(strstr(shoal_error_detail(), "127.0.0.1:1"));
    wrong = (struct shoal_options){.addresses = "nonsense"};
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_EADDRESS);
    wrong = (struct shoal_options){.addresses = cluster.address, .cluster = "another"};
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_ECLUSTER);
    wrong = (struct shoal_options){.addresses = cluster.address, .transport = "pigeon"};
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_detail(), "pigeon"));
    char path[] = "/tmp/shoal-client-test-XXXXXX";
    int file = mkstemp(path);
    assert_int_equal(write(file, "0123456789abcdef", 16), 16);
    close(file);
    wrong = (struct shoal_options){.addresses = cluster.address, .secret_file = path};
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_ESECRET);
    unlink(path);
    assert_int_equal(shoal_open(&wrong, &store), SHOAL_EIO);
    assert_null(store);
    cluster_end(&cluster);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set(getenv("TEST_LOG") ? getenv("TEST_LOG") : "error", &bad, &bad_len) !=
        SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedded),           cmocka_unit_test(test_cluster),
        cmocka_unit_test(test_transports),         cmocka_unit_test(test_peer_leaves),
        cmocka_unit_test(test_superpeer_restarts), cmocka_unit_test(test_open_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
