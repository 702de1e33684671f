/* libshoal while nodes die, stand still, join and are gone: nothing hangs, nothing is done twice,
 * every call ends once and in time. The nodes are processes of their own, so that they can be
 * killed and frozen. */
#include <pthread.h>

#include "base/log.h"
#include "tests/client_rig.h"

#define TIMEOUT_NS (2000 * MS)
/* A call may end this much after its time-out on a machine that is busy. */
#define SLACK_NS (20000 * MS)

/* What a call on a peer that was killed may say. */
static bool is_loss(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE || err == SHOAL_EFAILED ||
           err == SHOAL_ETIMEOUT;
}

static void make_chunks(shoal *store, shoal_nid where, uint64_t *values, shoal_cid *cids,
                        size_t count)
{
    assert_int_equal(shoal_create_many(store, where, 8, count, cids), SHOAL_OK);
    for (size_t i = 0; i < count; i++) {
        values[i] = cids[i].v ^ 0x5a;
        assert_int_equal(shoal_put(store, cids[i], &values[i], 8), SHOAL_OK);
    }
}

/* --- A peer is killed in the midst of a stream --------------------------------------------- */

struct stream {
    pthread_t thread;
    shoal *store;
    shoal_cid doomed, safe;
    _Atomic uint64_t rounds;
    _Atomic bool ends;
    unsigned unclear_puts;
};

static void *stream_main(void *arg)
{
    struct stream *stream = arg;
    enum shoal_err get = SHOAL_OK, put = SHOAL_OK;
    while (!stream->ends && get != SHOAL_EFAILED) {
        uint64_t value = 1, begun = rig_now();
        get = shoal_get(stream->store, stream->doomed, &value, 8, NULL);
        assert_true(get == SHOAL_OK || is_loss(get));
        put = shoal_put(stream->store, stream->doomed, &value, 8);
        assert_true(put == SHOAL_OK || is_loss(put));
        stream->unclear_puts += put == SHOAL_ECONNLOST;
        assert_true(rig_now() - begun < 2 * TIMEOUT_NS + SLACK_NS);
        assert_int_equal(shoal_put(stream->store, stream->safe, &begun, 8), SHOAL_OK);
        assert_int_equal(shoal_get(stream->store, stream->safe, &value, 8, NULL), SHOAL_OK);
        assert_int_equal(value, begun);
        stream->rounds++;
    }
    assert_int_equal(get, SHOAL_EFAILED);
    return NULL;
}

static void killed_in_a_stream(void **state)
{
    (void)state;
    static struct stream streams[8];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, TIMEOUT_NS);
    for (size_t i = 0; i < 8; i++) {
        struct stream *stream = &streams[i];
        *stream = (struct stream){.store = store};
        uint64_t value;
        make_chunks(store, cluster.peers[0].nid, &value, &stream->doomed, 1);
        make_chunks(store, cluster.peers[1].nid, &value, &stream->safe, 1);
        assert_int_equal(pthread_create(&stream->thread, NULL, stream_main, stream), 0);
    }
    uint64_t deadline = rig_now() + DEADLINE_NS;
    while (streams[7].rounds < 20 && rig_now() < deadline)
        continue;
    rig_kill(&cluster.peers[0]);
    unsigned unclear_puts = 0;
    for (size_t i = 0; i < 8; i++) {
        pthread_join(streams[i].thread, NULL);
        unclear_puts += streams[i].unclear_puts;
    }
    print_message("puts that may or may not have been done: %u\n", unclear_puts);
    /* Creates go on, on the peer that lives. */
    shoal_cid cids[4];
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 1, &cids[i]), SHOAL_OK);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* Multi forms over a dead and a living peer: each operation has its own end. */
static void multi_over_the_dead(void **state)
{
    (void)state;
    enum { HALF = 300 };
    static shoal_cid cids[2 * HALF];
    static uint64_t values[2 * HALF], back[2 * HALF];
    static struct shoal_op ops[2 * HALF];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, TIMEOUT_NS);
    for (size_t i = 0; i < 2; i++)
        make_chunks(store, cluster.peers[i].nid, values + i * HALF, cids + i * HALF, HALF);
    rig_kill(&cluster.peers[0]);
    for (int kind = 0; kind < 3; kind++) {
        memset(back, 0, sizeof back);
        /* Alternately, so that no order hides what is whose. */
        for (size_t i = 0; i < 2 * HALF; i++)
            ops[i] = (struct shoal_op){.cid = cids[i % 2 * HALF + i / 2],
                                       .data = kind == 0 ? &values[i % 2 * HALF + i / 2] : &back[i],
                                       .size = 8};
        uint64_t begun = rig_now();
        enum shoal_err err = kind == 0   ? shoal_multi_put(store, ops, 2 * HALF)
                             : kind == 1 ? shoal_multi_get(store, ops, 2 * HALF)
                                         : shoal_multi_remove(store, ops, 2 * HALF);
        assert_true(rig_now() - begun < 2 * TIMEOUT_NS + SLACK_NS);
        assert_int_equal(err, ops[0].err);
        for (size_t i = 0; i < 2 * HALF; i++) {
            if (i % 2 == 0)
                assert_true(is_loss(ops[i].err));
            else
                assert_int_equal(ops[i].err, SHOAL_OK);
            if (i % 2 == 1 && kind == 1)
                assert_int_equal(back[i], values[HALF + i / 2]);
        }
    }
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* Nobody is left at all: every form says so within its time. */
static void all_are_dead(void **state)
{
    (void)state;
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 300 * MS);
    shoal_cid cid, other[2];
    uint64_t value;
    size_t count;
    make_chunks(store, cluster.peers[0].nid, &value, &cid, 1);
    rig_cluster_kill(&cluster);
    uint64_t begun = rig_now();
    assert_true(is_loss(shoal_get(store, cid, &value, 8, NULL)));
    assert_true(is_loss(shoal_put(store, cid, &value, 8)));
    assert_true(is_loss(shoal_remove(store, cid)));
    assert_true(is_loss(shoal_create(store, SHOAL_NID_NONE, 8, other)));
    assert_true(is_loss(shoal_create_many(store, SHOAL_NID_NONE, 8, 2, other)));
    assert_true(is_loss(shoal_nodes(store, NULL, 0, &count)));
    struct shoal_op op = {.cid = cid, .data = &value, .size = 8};
    assert_true(is_loss(shoal_multi_get(store, &op, 1)));
    /* A chunk whose owner was never looked up. */
    op.cid = shoal_cid_make((shoal_nid){(uint16_t)(cluster.peers[1].nid.v)}, 1);
    assert_true(is_loss(shoal_multi_put(store, &op, 1)));
    assert_true(rig_now() - begun < 8 * 300 * MS + SLACK_NS);
    shoal_close(store);
}

/* --- A peer stands still ------------------------------------------------------------------- */

#define BIG (256u << 10)
#define CALLS 64

/* Its ring fills up: asynchronous calls say EBUSY, blocking ones end with their time; when it goes
 * on, so do they. */
static void frozen_peer(void **state)
{
    (void)state;
    static uint8_t data[BIG];
    static struct shoal_call calls[CALLS];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 700 * MS);
    shoal_cid cid;
    assert_int_equal(shoal_create(store, cluster.peers[0].nid, BIG, &cid), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, data, BIG), SHOAL_OK);
    rig_freeze(&cluster.peers[0]);
    size_t begun = 0;
    enum shoal_err err = SHOAL_OK;
    memset(calls, 0, sizeof calls);
    while (err == SHOAL_OK && begun < CALLS) {
        err = shoal_put_async(store, cid, data, BIG, &calls[begun]);
        begun += err == SHOAL_OK;
    }
    assert_int_equal(err, SHOAL_EBUSY);
    assert_int_equal(shoal_wait(store, &calls[begun]), SHOAL_EBUSY); /* it never began */
    uint64_t start = rig_now();
    assert_int_equal(shoal_put(store, cid, data, BIG), SHOAL_ETIMEOUT);
    struct shoal_op op = {.cid = cid, .data = data, .size = BIG};
    err = shoal_multi_put(store, &op, 1);
    assert_true(err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST || err == SHOAL_EFAILED);
    assert_true(rig_now() - start < 2 * 700 * MS + SLACK_NS);
    for (size_t i = 0; i < begun; i++) {
        err = shoal_wait(store, &calls[i]);
        assert_true(err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST || err == SHOAL_EFAILED);
    }
    rig_thaw(&cluster.peers[0]);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    do {
        err = shoal_put(store, cid, data, BIG);
        assert_true(err == SHOAL_OK || is_loss(err) || err == SHOAL_EBUSY);
    } while (err != SHOAL_OK && rig_now() < deadline);
    assert_int_equal(err, SHOAL_OK);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* A superpeer that stands still: a multi call asks it no more often than time allows. */
static void frozen_superpeer(void **state)
{
    (void)state;
    enum { OPS = 1000 };
    static struct shoal_op ops[OPS];
    static uint64_t values[OPS];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, 400 * MS);
    for (size_t i = 0; i < OPS; i++)
        ops[i] = (struct shoal_op){
            .cid = shoal_cid_make((shoal_nid){(uint16_t)(100 + i)}, 1),
            .data = &values[i],
            .size = 8,
        };
    rig_freeze(&cluster.superpeer);
    uint64_t start = rig_now();
    enum shoal_err err = shoal_multi_get(store, ops, OPS);
    assert_int_equal(err, SHOAL_ETIMEOUT);
    for (size_t i = 0; i < OPS; i++)
        assert_int_equal(ops[i].err, SHOAL_ETIMEOUT);
    err = shoal_get(store, ops[0].cid, values, 8, NULL);
    assert_true(is_loss(err));
    size_t count;
    err = shoal_nodes(store, NULL, 0, &count);
    assert_true(err == SHOAL_ETIMEOUT || err == SHOAL_OK); /* OK: a peer knew */
    assert_true(rig_now() - start < 3 * 400 * MS + SLACK_NS);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

/* --- Closing with calls in flight ---------------------------------------------------------- */

#define FLIGHT 1000

static _Atomic unsigned flown[FLIGHT];

static void on_flown(struct shoal_call *call)
{
    unsigned *number = call->arg;
    enum shoal_err err = call->err;
    assert_true(err == SHOAL_OK || err == SHOAL_ESTOPPED || is_loss(err));
    flown[*number]++;
}

/* With FLIGHT calls of each kind begun, at peers that run, are frozen, are dead, and where the
 * superpeer that would have to say where the chunk is does not answer. */
static void close_in_flight(void **state)
{
    (void)state;
    static struct shoal_call calls[FLIGHT];
    static unsigned numbers[FLIGHT];
    static bool is_begun[FLIGHT];
    static uint64_t values[FLIGHT];
    struct rig_cluster cluster;
    rig_cluster_spawn(&cluster);
    uint64_t value;
    shoal_cid cids[4];
    for (int frozen = 0; frozen < 4; frozen++) {
        shoal *store = rig_open(cluster.superpeer.address, 20 * TIMEOUT_NS);
        make_chunks(store, cluster.peers[0].nid, &value, &cids[0], 1);
        make_chunks(store, cluster.peers[1].nid, &value, &cids[1], 1);
        cids[2] = shoal_cid_make((shoal_nid){200}, 1);
        cids[3] = shoal_cid_make((shoal_nid){201}, 1);
        if (frozen > 0)
            rig_freeze(&cluster.peers[0]);
        if (frozen > 1)
            rig_freeze(&cluster.superpeer);
        if (frozen > 2)
            rig_kill(&cluster.peers[1]);
        unsigned begun = 0;
        for (unsigned i = 0; i < FLIGHT; i++) {
            numbers[i] = i;
            flown[i] = 0;
            calls[i] = (struct shoal_call){.done = on_flown, .arg = &numbers[i]};
            shoal_cid cid = cids[i % (frozen > 1 ? 4 : 2)];
            enum shoal_err err = i % 3 == 0 ? shoal_get_async(store, cid, &values[i], 8, &calls[i])
                                 : i % 3 == 1
                                     ? shoal_put_async(store, cid, &values[i], 8, &calls[i])
                                     : shoal_create_async(store, SHOAL_NID_NONE, 8, &calls[i]);
            begun += err == SHOAL_OK;
            is_begun[i] = err == SHOAL_OK;
        }
        assert_true(begun > FLIGHT / 2);
        shoal_close(store);
        for (unsigned i = 0; i < FLIGHT; i++)
            assert_int_equal(flown[i], is_begun[i]);
        if (frozen > 0)
            rig_thaw(&cluster.peers[0]);
        if (frozen > 1)
            rig_thaw(&cluster.superpeer);
    }
    rig_cluster_kill(&cluster);
}

/* --- Views age ----------------------------------------------------------------------------- */

/* A superpeer that has lost its memory knows the members again only after a while: who opens then
 * waits, and is not refused. */
static void opened_at_a_restart(void **state)
{
    (void)state;
    struct rig_node superpeer, peer;
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t value = 4;
    shoal_cid cid;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    snprintf(address, sizeof address, "%s", sh_node_address(superpeer.node));
    rig_node_run(&peer, "peer", "127.0.0.1:0", address);
    shoal *store = rig_open(address, 10 * TIMEOUT_NS);
    make_chunks(store, SHOAL_NID_NONE, &value, &cid, 1);
    rig_node_end(&superpeer);
    rig_node_run(&superpeer, "superpeer", address, "");
    /* Refused by none, at whatever moment; until a member has said that there was a cluster before,
     * the superpeer can't know of any chunk. */
    uint64_t back = 0, deadline = rig_now() + DEADLINE_NS;
    enum shoal_err err;
    shoal *other = NULL;
    do {
        shoal_close(other);
        other = rig_open(address, 10 * TIMEOUT_NS);
        err = shoal_get(other, cid, &back, 8, NULL);
        assert_true(err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    } while (err != SHOAL_OK && rig_now() < deadline);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(back, value);
    shoal_close(other);
    shoal_close(store);
    rig_node_end(&peer);
    rig_node_end(&superpeer);
}

/* A client that was opened before any peer was there uses those that join. */
static void joined_later(void **state)
{
    (void)state;
    struct rig_node superpeer, peers[2];
    char address[SH_MSG_ADDRESS_MAX];
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    snprintf(address, sizeof address, "%s", sh_node_address(superpeer.node));
    shoal *store = rig_open(address, TIMEOUT_NS);
    shoal_cid cid, cids[3];
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_ENONODE);
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 3, cids), SHOAL_ENONODE);
    rig_node_run(&peers[0], "peer", "127.0.0.1:0", address);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 3, cids), SHOAL_OK);
    shoal *other = rig_open(address, TIMEOUT_NS);
    rig_node_run(&peers[1], "peer", "127.0.0.1:0", address);
    shoal_nid late = sh_node_nid(peers[1].node);
    assert_int_equal(shoal_create(store, late, 8, &cid), SHOAL_OK);
    /* Calls that succeed tell of nobody new: the view must be looked at by itself. */
    uint64_t deadline = rig_now() + DEADLINE_NS;
    do {
        assert_int_equal(shoal_create(other, SHOAL_NID_NONE, 0, &cid), SHOAL_OK);
        assert_int_equal(shoal_remove(other, cid), SHOAL_OK);
    } while (shoal_cid_creator(cid).v != late.v && rig_now() < deadline);
    assert_int_equal(shoal_cid_creator(cid).v, late.v);
    shoal_close(other);
    shoal_close(store);
    for (int i = 0; i < 2; i++)
        rig_node_end(&peers[i]);
    rig_node_end(&superpeer);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    const char *levels = getenv("TEST_LOG") ? getenv("TEST_LOG") : "error";
    if (sh_log_levels_set(levels, &bad, &bad_len) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_in_a_stream), cmocka_unit_test(multi_over_the_dead),
        cmocka_unit_test(all_are_dead),       cmocka_unit_test(frozen_peer),
        cmocka_unit_test(frozen_superpeer),   cmocka_unit_test(close_in_flight),
        cmocka_unit_test(joined_later),       cmocka_unit_test(opened_at_a_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
