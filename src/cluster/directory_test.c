/* The directory under many threads while views come and go: for the thread sanitizer, and for what
 * must hold at every moment. What needs a network is in tests/cluster_test.c. */
#include "cluster/directory.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "cluster/directory_int.h"
#include "msg/tcp.h"

#define READERS 3
#define VIEWS 2000
#define PEERS 20
#define CACHED 16

struct rig {
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_directory *directory;
    _Atomic bool is_over; /* relaxed: only ends the loops */
};

static void wake_nobody(void *arg)
{
    (void)arg;
}

static void rig_open(struct rig *rig)
{
    memset(rig, 0, sizeof *rig);
    assert_int_equal(sh_tcp_create(16, &rig->wire), SHOAL_OK);
    struct sh_msg_config config = {
        .cluster = "test",
        .connections_max = 16,
        .requests_max = 16,
        .ring_bytes = 65536,
        .payload_bytes_max = 65536,
        .request_timeout_ns = 1000000000,
        .connect_timeout_ns = 1000000000,
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .wire = rig->wire},
        .wake_transport = wake_nobody,
        .wake_handlers = wake_nobody,
    };
    assert_int_equal(sh_msg_create(&config, &rig->msg), SHOAL_OK);
    struct sh_directory_config known = {
        .msg = rig->msg, .clock = config.env.clock, .cache_ranges_max = CACHED, .is_client = true};
    assert_int_equal(sh_directory_create(&known, &rig->directory), SHOAL_OK);
}

static void rig_close(struct rig *rig)
{
    sh_directory_destroy(rig->directory);
    sh_msg_destroy(rig->msg);
    rig->wire->ops->destroy(rig->wire);
}

/* In every view the states are those of the epoch: peer i is up if epoch / (i + 1) is even. */
static enum sh_node_state state_at(uint64_t epoch, unsigned peer)
{
    return epoch / (peer + 1) % 2 ? SH_NODE_FAILED : SH_NODE_UP;
}

static void apply(struct rig *rig, uint64_t epoch)
{
    struct sh_view view = {.epoch = epoch, .superpeers = 1};
    struct sh_node node = {.nid = {1}, .role = SH_ROLE_SUPERPEER, .address = "127.0.0.1:1"};
    assert_int_equal(sh_view_put(&view, &node), SHOAL_OK);
    for (unsigned i = 0; i < PEERS; i++) {
        node = (struct sh_node){.nid = {(uint16_t)(SH_PEER_NID_MIN + i)},
                                .role = SH_ROLE_PEER,
                                .state = state_at(epoch, i),
                                .instance = epoch,
                                .address = "127.0.0.1:1"};
        assert_int_equal(sh_view_put(&view, &node), SHOAL_OK);
    }
    assert_int_equal(sh_directory_view_apply(rig->directory, &view), SHOAL_OK);
    sh_view_destroy(&view);
}

/* What a view says of nodes that are gone takes what was cached of them along; then all that are up
 * are cached, as if superpeers had been asked. */
static void cache_check(struct rig *rig, uint64_t epoch)
{
    struct sh_directory *directory = rig->directory;
    for (unsigned i = 0; i < PEERS; i++) {
        struct sh_range range;
        shoal_nid nid = {(uint16_t)(SH_PEER_NID_MIN + i)};
        bool is_cached = sh_lookups_look(directory->lookups, shoal_cid_make(nid, epoch), &range);
        SH_ASSERT(!is_cached || state_at(epoch, i) == SH_NODE_UP);
        range = (struct sh_range){shoal_cid_make(nid, 0), shoal_cid_make(nid, VIEWS), nid.v};
        if (state_at(epoch, i) != SH_NODE_UP)
            continue;
        sh_lock_take(&directory->lock);
        sh_lookups_put(directory->lookups, &range);
        sh_lock_release(&directory->lock);
        SH_ASSERT(sh_directory_cached(directory) <= CACHED);
    }
}

/* Reads as a client's threads do. Assertions here are the house's, since cmocka's can't fail a test
 * from another thread. */
static void *read_on(void *arg)
{
    struct rig *rig = arg;
    uint64_t last = 0;
    for (unsigned i = 0; !atomic_load_explicit(&rig->is_over, memory_order_relaxed); i++) {
        struct sh_node nodes[PEERS + 1];
        size_t count = sh_directory_nodes(rig->directory, nodes, PEERS + 1);
        SH_ASSERT(count == PEERS + 1);
        uint64_t epoch = nodes[1].instance;
        SH_ASSERT(epoch >= last && epoch <= sh_directory_epoch(rig->directory));
        last = epoch;
        for (unsigned peer = 0; peer < PEERS; peer++) {
            SH_ASSERT(nodes[1 + peer].instance == epoch);
            SH_ASSERT(nodes[1 + peer].state == state_at(epoch, peer));
        }
        shoal_cid cid = shoal_cid_make(nodes[1 + i % PEERS].nid, i % (2 * VIEWS));
        shoal_nid nid;
        enum shoal_err err = sh_directory_owner(rig->directory, cid, &nid);
        SH_ASSERT(err == SHOAL_EAGAIN || (err == SHOAL_OK && nid.v == shoal_cid_creator(cid).v));
        err = sh_directory_pick_peer(rig->directory, &nid);
        SH_ASSERT(err == SHOAL_ENONODE || nid.v >= SH_PEER_NID_MIN);
        if (i % 8 == 0)
            sh_directory_forget(rig->directory, cid);
    }
    struct sh_directory_stats stats = sh_directory_stats(rig->directory);
    SH_ASSERT(stats.cache.hits + stats.cache.misses > 0);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    apply(&rig, 1);
    pthread_t threads[READERS];
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &rig), 0);
    for (uint64_t epoch = 2; epoch < VIEWS; epoch++) {
        apply(&rig, epoch);
        cache_check(&rig, epoch);
    }
    atomic_store_explicit(&rig.is_over, true, memory_order_relaxed);
    for (unsigned i = 0; i < READERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    rig_close(&rig);
}

struct outcome {
    unsigned times;
    enum shoal_err err;
};

static void on_view(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct outcome *outcome = op->arg;
    outcome->times++;
    outcome->err = err;
    assert_non_null(detail);
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    (void)nid;
    struct outcome *outcome = op->arg;
    outcome->times++;
    outcome->err = err;
}

/* Without a view, with bad addresses, with an old view, and stopped in the middle. */
static void test_edges(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig);
    struct outcome outcome = {0};
    struct sh_directory_op op = {.done = on_view, .arg = &outcome};
    struct sh_locate lookup = {.done = on_located, .arg = &outcome};
    shoal_nid nid;
    shoal_cid cid = shoal_cid_make((shoal_nid){64}, 1);
    assert_int_equal(sh_directory_epoch(rig.directory), 0);
    assert_int_equal(sh_directory_pick_peer(rig.directory, &nid), SHOAL_ENONODE);
    sh_directory_locate(rig.directory, cid, &lookup);
    assert_int_equal(outcome.err, SHOAL_ENONODE);
    sh_directory_refresh(rig.directory, &op);
    assert_int_equal(outcome.err, SHOAL_ENONODE);
    sh_directory_bootstrap(rig.directory, NULL, 0, &op);
    assert_int_equal(outcome.err, SHOAL_EINVAL);
    const char *addresses[] = {""};
    sh_directory_bootstrap(rig.directory, addresses, 1, &op);
    assert_int_equal(outcome.err, SHOAL_EADDRESS);
    assert_int_equal(outcome.times, 4);
    apply(&rig, 10);
    apply(&rig, 9);
    assert_int_equal(sh_directory_epoch(rig.directory), 10);
    outcome.times = 0;
    struct sh_directory_op second = {.done = on_view, .arg = &outcome};
    sh_directory_refresh(rig.directory, &op);
    sh_directory_refresh(rig.directory, &second);
    sh_directory_locate(rig.directory, shoal_cid_make((shoal_nid){200}, 1), &lookup);
    assert_int_equal(outcome.times, 0); /* no step has run: all three wait */
    rig_close(&rig);
    assert_int_equal(outcome.times, 3);
    assert_int_equal(outcome.err, SHOAL_ESTOPPED);
}

/* A caller that asks while a search is under way does not get what nodes have said to that one before: the directory asks them all again. */
static void test_later_ones_have_a_search_of_their_own(void **state)
{
    (void)state;
    struct rig rig;
    struct outcome first = {0}, later[2] = {{0}, {0}};
    struct sh_directory_op op = {.done = on_view, .arg = &first};
    struct sh_directory_op others[2] = {{.done = on_view, .arg = &later[0]},
                                        {.done = on_view, .arg = &later[1]}};
    const char *addresses[] = {"127.0.0.1:1"}; /* where nobody listens */
    rig_open(&rig);
    struct sh_step step = sh_msg_transport_step(rig.msg);
    sh_directory_bootstrap(rig.directory, addresses, 1, &op);
    for (unsigned i = 0; i < 2; i++)
        sh_directory_refresh(rig.directory, &others[i]);
    while (!first.times)
        (void)step.run(step.arg);
    assert_true(first.err == SHOAL_EUNREACHABLE && !later[0].times && !later[1].times);
    while (!later[0].times)
        (void)step.run(step.arg);
    assert_true(first.times == 1 && later[0].times == 1 && later[1].times == 1);
    assert_int_equal(later[0].err, SHOAL_EUNREACHABLE);
    assert_int_equal(later[1].err, SHOAL_EUNREACHABLE);
    rig_close(&rig);
}

/* The node that gets a forgotten one's ID is another one, also to who has seen the view without both. */
static void test_lives(void **state)
{
    (void)state;
    struct rig rig;
    const shoal_nid nid = {64};
    rig_open(&rig);
    struct sh_node superpeer = {.nid = {1}, .role = SH_ROLE_SUPERPEER, .address = "s:1"};
    struct sh_node peer = {.nid = nid, .role = SH_ROLE_PEER, .instance = 11, .address = "p:1"};
    struct sh_view view = {.epoch = 1, .superpeers = 1};
    assert_int_equal(sh_view_put(&view, &superpeer), SHOAL_OK);
    assert_int_equal(sh_view_put(&view, &peer), SHOAL_OK);
    assert_int_equal(sh_directory_view_apply(rig.directory, &view), SHOAL_OK);
    uint32_t life = sh_directory_life(rig.directory, nid);
    view.epoch++;
    sh_view_drop(&view, nid);
    assert_int_equal(sh_directory_view_apply(rig.directory, &view), SHOAL_OK);
    view.epoch++;
    peer.instance = 12;
    assert_int_equal(sh_view_put(&view, &peer), SHOAL_OK);
    assert_int_equal(sh_directory_view_apply(rig.directory, &view), SHOAL_OK);
    assert_int_not_equal(sh_directory_life(rig.directory, nid), life);
    sh_view_destroy(&view);
    rig_close(&rig);
}

/* Chunks of which the superpeers say that their node has failed come back with a node that keeps them. */
static void test_failed_may_return(void **state)
{
    (void)state;
    static const struct {
        uint16_t nid;
        enum sh_node_state state;
        bool keeps_chunks;
    } nodes[] = {
        {64, SH_NODE_FAILED, true}, {65, SH_NODE_FAILED, false}, {66, SH_NODE_UP, true},
        {67, SH_NODE_UP, false},    {68, SH_NODE_LEFT, true},
    };
    static const struct {
        uint16_t asked, creator;
        bool may_return;
    } rows[] = {
        {64, 64, true},  {65, 65, false}, {0, 64, true},
        {0, 65, false},  {66, 66, true}, /* the superpeers know of its failure before the view does */
        {65, 64, false},                 /* the chunk had moved to the former */
        {64, 65, true},  {0, 67, true}, /* it is somewhere */
        {0, 68, true},   {0, 99, true},
    };
    struct rig rig;
    rig_open(&rig);
    struct sh_view view = {.epoch = 1, .superpeers = 1};
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        const struct sh_node node = {.nid = {nodes[i].nid},
                                     .role = SH_ROLE_PEER,
                                     .state = nodes[i].state,
                                     .instance = i + 1,
                                     .address = "127.0.0.1:1",
                                     .traits = {.keeps_chunks = nodes[i].keeps_chunks}};
        assert_int_equal(sh_view_put(&view, &node), SHOAL_OK);
    }
    assert_int_equal(sh_directory_view_apply(rig.directory, &view), SHOAL_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (sh_directory_may_return(rig.directory, (shoal_nid){rows[i].asked},
                                    (shoal_nid){rows[i].creator}, true) != rows[i].may_return)
            fail_msg("row %zu", i);
    }
    /* Where no failed node keeps its chunks, nobody waits for one. */
    view.epoch = 2;
    sh_view_find(&view, (shoal_nid){64})->state = SH_NODE_UP;
    assert_int_equal(sh_directory_view_apply(rig.directory, &view), SHOAL_OK);
    assert_false(sh_directory_may_return(rig.directory, SHOAL_NID_NONE, (shoal_nid){67}, true));
    sh_view_destroy(&view);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_later_ones_have_a_search_of_their_own),
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_failed_may_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
