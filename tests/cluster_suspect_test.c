/* Suspicion in whole clusters in a simulated world: who is dead is found out long before its lease
 * is over, one opinion is not enough, and suspicion costs little (superpeer_probe.c). */
#include "cluster/proto.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

static void joined_open(struct cluster *cluster, uint16_t superpeers, bool is_shared,
                        unsigned peers)
{
    cluster_open(cluster, superpeers, is_shared);
    for (unsigned i = 0; i < peers; i++)
        host_start(host_add(cluster, PEER));
    assert_joined(cluster, 20 * S);
    run_for(cluster, FAILURE);
}

static void say(struct host *from, shoal_nid to, sh_msg_type type, shoal_nid nid)
{
    struct sh_out out;
    size_t size = type == SH_CLUSTER_SUSPECT ? SH_SUSPECT_BYTES : SH_REFUSED_BYTES;
    if (sh_msg_begin(from->msg, to, type, size, &out))
        return;
    sh_put16(&out.w, nid.v);
    if (type == SH_CLUSTER_REFUSED) {
        sh_put64(&out.w, 0);
        sh_put64(&out.w, UINT64_MAX);
        sh_put64(&out.w, 0);
        const struct sh_node *node = sh_view_find(sh_superpeer_view(from->superpeer), nid);
        sh_put64(&out.w, node ? node->instance : 0);
    }
    sh_msg_end(from->msg, &out);
}

/* A process that ends is failed in less than a third of failure_ns; whoever led, and whoever had
 * its connection, for the dead are others in each round. */
static void dead_are_found(void **state)
{
    (void)state;
    static struct cluster cluster;
    static const struct {
        uint16_t superpeers;
        bool is_shared;
    } kinds[] = {{1, false}, {3, false}, {1, true}, {3, true}};
    for (unsigned kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        uint16_t superpeers = kinds[kind].superpeers;
        joined_open(&cluster, superpeers, kinds[kind].is_shared, 4);
        for (unsigned i = 0; i < 3; i++) {
            struct host *peer = &cluster.hosts[superpeers + i];
            shoal_nid nid = nid_of(peer);
            sh_world_crash(cluster.world, peer->node);
            assert_seen(&cluster, nid, SH_NODE_FAILED, FAILURE / 3);
            run_for(&cluster, FAILURE / 10);
        }
        cluster_close(&cluster);
    }
}

/* The leader ends together with a peer that reported to it: the peer's second superpeer finds out,
 * and the next leader does not wait for the end of the peer's lease, which comes later than this. */
static void dead_with_their_leader(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned round = 0; round < 4; round++) {
        cluster_open(&cluster, 3, true);
        unsigned leader = leader_of(&cluster);
        const char *first = cluster.superpeers[0];
        cluster.superpeers[0] = cluster.addresses[leader]; /* the peers join there */
        for (unsigned i = 0; i < 3; i++)
            host_start(host_add(&cluster, PEER));
        assert_joined(&cluster, 20 * S);
        cluster.superpeers[0] = first;
        run_for(&cluster, 2 * FAILURE);
        struct host *peer = &cluster.hosts[3];
        shoal_nid nid = nid_of(peer);
        sh_world_crash(cluster.world, leader);
        sh_world_crash(cluster.world, peer->node);
        assert_seen(&cluster, nid, SH_NODE_FAILED, FAILURE);
        cluster_close(&cluster);
    }
}

/* Nobody listens at the peer's address as far as anybody can see, and its connections are cut: but
 * it goes on with others at once, and is not failed. */
static void cut_and_refusing(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (uint16_t superpeers = 1; superpeers <= 3; superpeers += 2) {
        cluster_open(&cluster, superpeers, true);
        struct host *peer = host_add(&cluster, PEER);
        peer->is_refusing = true;
        host_start(peer);
        assert_joined(&cluster, 20 * S);
        run_for(&cluster, FAILURE);
        for (unsigned i = 0; i < 20; i++) {
            /* All of its connections, or those to one superpeer. */
            unsigned to = i % (superpeers + 1u);
            sh_world_cut(cluster.world, peer->node, to < superpeers ? to : peer->node);
            run_for(&cluster, FAILURE / 4);
            for (unsigned j = 0; j < superpeers; j++)
                assert_int_equal(state_in(&cluster.hosts[j], nid_of(peer)), SH_NODE_UP);
        }
        assert_int_equal(peer->failures, 0);
        cluster_close(&cluster);
    }
}

/* What another superpeer claims fails nobody whom the judge can reach, or hears. */
static void claims(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned refusing = 0; refusing < 2; refusing++) {
        cluster_open(&cluster, 3, true);
        struct host *peer = host_add(&cluster, PEER);
        peer->is_refusing = refusing;
        host_start(peer);
        assert_joined(&cluster, 20 * S);
        run_for(&cluster, FAILURE);
        for (unsigned i = 0; i < 30; i++) {
            for (uint16_t from = 0; from < 3; from++)
                for (uint16_t to = 1; to <= 3; to++)
                    if (to != from + 1)
                        say(&cluster.hosts[from], (shoal_nid){to}, SH_CLUSTER_REFUSED,
                            nid_of(peer));
            run_for(&cluster, HEARTBEAT / 3);
        }
        assert_int_equal(state_in(&cluster.hosts[0], nid_of(peer)), SH_NODE_UP);
        assert_int_equal(peer->failures, 0);
        cluster_close(&cluster);
    }
}

/* However often somebody suspects a node that lives, or one that refuses connections and is heard,
 * it is asked once in a heartbeat at most. */
static void suspicion_is_cheap(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned refusing = 0; refusing < 2; refusing++) {
        cluster_open(&cluster, 1, true);
        struct host *peer = host_add(&cluster, PEER);
        peer->is_refusing = refusing;
        host_start(peer);
        struct host *other = host_start(host_add(&cluster, PEER));
        assert_joined(&cluster, 20 * S);
        run_for(&cluster, FAILURE);
        struct sh_msg_stats before, after;
        sh_msg_stats_get(cluster.hosts[0].msg, &before);
        for (unsigned i = 0; i < 1000; i++) {
            say(other, (shoal_nid){1}, SH_CLUSTER_SUSPECT, nid_of(peer));
            run_for(&cluster, 2 * MS);
        }
        sh_msg_stats_get(cluster.hosts[0].msg, &after);
        uint64_t asked = after.connections_opened + after.connections_lost -
                         before.connections_opened - before.connections_lost;
        /* 20 heartbeats; of each question a connection is opened, and may count as lost. */
        assert_true(asked >= (refusing ? 0 : 10));
        assert_true(asked <= 2 * 21);
        assert_int_equal(state_in(&cluster.hosts[0], nid_of(peer)), SH_NODE_UP);
        cluster_close(&cluster);
    }
}

/* A judge that was stopped does not blame those whom it could not hear. */
static void stopped_judge(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned kind = 0; kind < 2; kind++) {
        joined_open(&cluster, 1, kind, 3);
        for (unsigned i = 0; i < 10; i++) {
            for (unsigned j = 1; j < 4; j++)
                say(&cluster.hosts[j], (shoal_nid){1}, SH_CLUSTER_SUSPECT,
                    nid_of(&cluster.hosts[1 + j % 3]));
            run_for(&cluster, (3 + 7 * i) * MS);
            sh_world_pause(cluster.world, 0);
            run_for(&cluster, 2 * FAILURE + i * 13 * MS);
            sh_world_resume(cluster.world, 0);
            run_for(&cluster, FAILURE);
        }
        for (unsigned j = 1; j < 4; j++)
            assert_int_equal(cluster.hosts[j].failures, 0);
        cluster_close(&cluster);
    }
}

static const struct {
    uint16_t superpeers;
    bool is_shared;
} registries[] = {{1, false}, {3, false}, {1, true}, {3, true}};
#define REGISTRIES (sizeof registries / sizeof registries[0])

/* Another process answers at a peer's address, and nobody was ever refused there: that may be a
 * second machine that was given the address. The newcomer waits until the other's lease is over. */
static void another_process_proves_nothing(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned kind = 0; kind < REGISTRIES; kind++) {
        joined_open(&cluster, registries[kind].superpeers, registries[kind].is_shared, 3);
        struct host *peer = &cluster.hosts[registries[kind].superpeers];
        shoal_nid nid = nid_of(peer);
        sh_world_crash(cluster.world, peer->node);
        sh_world_restart(cluster.world, peer->node);
        run_for(&cluster, FAILURE / 3);
        assert_int_equal(state_in(&cluster.hosts[0], nid), SH_NODE_UP);
        assert_int_equal(nid_of(peer).v, 0);
        assert_seen(&cluster, nid, SH_NODE_FAILED, 2 * FAILURE);
        assert_joined(&cluster, 4 * FAILURE);
        assert_int_not_equal(nid_of(peer).v, nid.v);
        cluster_close(&cluster);
    }
}

/* A peer that was killed is started anew at its address while the superpeers still ask each other.
 * They were refused there before: so it need not wait. */
static void restarted_peers_are_quick(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned kind = 0; kind < REGISTRIES; kind++) {
        joined_open(&cluster, registries[kind].superpeers, registries[kind].is_shared, 3);
        for (unsigned i = 0; i < 3; i++) {
            struct host *peer = &cluster.hosts[registries[kind].superpeers + i];
            shoal_nid nid = nid_of(peer);
            sh_world_crash(cluster.world, peer->node);
            run_for(&cluster, 20 * MS);
            assert_int_equal(state_in(&cluster.hosts[0], nid), SH_NODE_UP);
            sh_world_restart(cluster.world, peer->node);
            assert_seen(&cluster, nid, SH_NODE_FAILED, FAILURE / 3);
            assert_joined(&cluster, FAILURE);
        }
        cluster_close(&cluster);
    }
}

static void refuse_heartbeat(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
}

/* A peer that answers whoever asks it, and whose heartbeats nobody takes, gets no lease: so it is
 * not up. */
static void an_answer_is_no_heartbeat(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned kind = 0; kind < REGISTRIES; kind++) {
        uint16_t superpeers = registries[kind].superpeers;
        joined_open(&cluster, superpeers, registries[kind].is_shared, 2);
        struct host *peer = &cluster.hosts[superpeers], *other = &cluster.hosts[superpeers + 1];
        for (unsigned i = 0; i < superpeers; i++)
            sh_msg_handler_set(cluster.hosts[i].msg, SH_CLUSTER_HEARTBEAT, SH_MSG_INLINE,
                               refuse_heartbeat, NULL);
        for (unsigned i = 0; i < 40; i++) {
            for (uint16_t to = 1; to <= superpeers; to++)
                say(other, (shoal_nid){to}, SH_CLUSTER_SUSPECT, nid_of(peer));
            run_for(&cluster, HEARTBEAT / 2);
        }
        assert_int_equal(state_in(&cluster.hosts[0], nid_of(peer)), SH_NODE_FAILED);
        cluster_close(&cluster);
    }
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dead_are_found),
        cmocka_unit_test(dead_with_their_leader),
        cmocka_unit_test(cut_and_refusing),
        cmocka_unit_test(claims),
        cmocka_unit_test(suspicion_is_cheap),
        cmocka_unit_test(stopped_judge),
        cmocka_unit_test(another_process_proves_nothing),
        cmocka_unit_test(restarted_peers_are_quick),
        cmocka_unit_test(an_answer_is_no_heartbeat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
