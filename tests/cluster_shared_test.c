/* Three superpeers that share their registry: the cluster goes on without one, whichever it is,
 * stops without two, and finds itself again when all of them were killed. */
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

static struct host *peer_add(struct cluster *cluster)
{
    return host_start(host_add(cluster, PEER));
}

static bool peer_is_known(void *arg)
{
    return sh_member_joined(((struct host *)arg)->member);
}

static void assert_joins(struct host *peer, uint64_t within_ns)
{
    if (!run_until(peer->cluster, peer_is_known, peer, within_ns))
        fail_msg("seed %" PRIu64 ": host %u does not join", seed, peer->node);
}

/* A chunk of a peer is found by a host that never asked for it. */
static void assert_found(struct host *asker, const struct host *owner)
{
    struct outcome outcome;
    for (unsigned i = 0; i < 20; i++) {
        outcome = locate(asker, shoal_cid_make(nid_of(owner), 1 + i));
        if (!outcome.err)
            break;
        (void)refresh(asker);
        run_for(asker->cluster, S / 4);
    }
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nid_of(owner).v);
}

static void one_at_a_time_is_killed(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peers[2] = {peer_add(&cluster), peer_add(&cluster)};
    struct host *client = host_start(host_add(&cluster, CLIENT));
    assert_joined(&cluster, 20 * S);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", "node1:1");
    assert_int_equal(outcome.err, SHOAL_OK);
    /* A shard that one superpeer alone has waits for it: all are to have all. */
    run_for(&cluster, 5 * S);
    for (unsigned i = 0; i < 3; i++) {
        sh_world_crash(cluster.world, i);
        struct host *late = peer_add(&cluster);
        assert_joins(late, 10 * S);
        assert_seen(&cluster, nid_of(late), SH_NODE_UP, 10 * S);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_FAILED, 20 * S);
        (void)refresh(client);
        assert_found(client, peers[0]);
        assert_found(client, late);
        shoal_nid gone = nid_of(late);
        if (i == 2)
            leave(late);
        else
            sh_world_crash(cluster.world, late->node);
        assert_seen(&cluster, gone, i == 2 ? SH_NODE_LEFT : SH_NODE_FAILED, 20 * S);
        sh_world_restart(cluster.world, i);
        assert_int_equal(cluster.hosts[i].boot_err, SHOAL_OK);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_UP, 20 * S);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(peers[i]->joins, 1);
        assert_int_equal(peers[i]->failures, 0);
    }
    cluster_close(&cluster);
}

static void all_are_killed(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peers[3];
    shoal_nid nids[3];
    for (unsigned i = 0; i < 3; i++)
        peers[i] = peer_add(&cluster);
    assert_joined(&cluster, 20 * S);
    for (unsigned i = 0; i < 3; i++)
        nids[i] = nid_of(peers[i]);
    leave(peers[2]);
    assert_seen(&cluster, nids[2], SH_NODE_LEFT, 10 * S);
    for (unsigned i = 0; i < 3; i++)
        sh_world_crash(cluster.world, i);
    run_for(&cluster, 2 * S);
    for (unsigned i = 0; i < 3; i++) {
        sh_world_restart(cluster.world, i);
        assert_int_equal(cluster.hosts[i].boot_err, SHOAL_OK);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_seen(&cluster, nids[i], SH_NODE_UP, 20 * S);
        assert_int_equal(nid_of(peers[i]).v, nids[i].v);
        assert_int_equal(peers[i]->joins, 1);
    }
    assert_seen(&cluster, nids[2], SH_NODE_LEFT, 10 * S);
    struct host *late = peer_add(&cluster);
    assert_joins(late, 10 * S);
    for (unsigned i = 0; i < 3; i++)
        assert_int_not_equal(nid_of(late).v, nids[i].v);
    cluster_close(&cluster);
}

static void minority_answers_nobody(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peer = peer_add(&cluster);
    assert_joined(&cluster, 20 * S);
    sh_world_crash(cluster.world, 0);
    sh_world_crash(cluster.world, 1);
    run_for(&cluster, 5 * S);
    struct host *client = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(client, &outcome, "node2:1", NULL);
    assert_int_equal(outcome.err, SHOAL_EBUSY);
    sh_world_restart(cluster.world, 1);
    for (unsigned i = 0; i < 40 && outcome.err; i++) {
        run_for(&cluster, S / 4);
        bootstrap(client, &outcome, "node2:1", NULL);
    }
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_seen(&cluster, nid_of(peer), SH_NODE_UP, 10 * S);
    assert_int_equal(peer->joins, 1);
    cluster_close(&cluster);
}

/* A superpeer whose disk was lost takes part again when it has caught up: then another one may be
 * missed. */
static void lost_disk(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 3, true);
    struct host *peer = peer_add(&cluster);
    assert_joined(&cluster, 20 * S);
    sh_world_crash(cluster.world, 1);
    cluster.hosts[1].forgets = true;
    run_for(&cluster, 3 * S);
    sh_world_restart(cluster.world, 1);
    assert_seen(&cluster, (shoal_nid){2}, SH_NODE_UP, 20 * S);
    run_for(&cluster, 3 * S);
    sh_world_crash(cluster.world, 0);
    struct host *late = peer_add(&cluster);
    assert_joins(late, 10 * S);
    assert_seen(&cluster, nid_of(peer), SH_NODE_UP, 10 * S);
    assert_int_not_equal(nid_of(peer).v, nid_of(late).v);
    assert_int_equal(peer->joins, 1);
    cluster_close(&cluster);
}

/* Members come and go while superpeers, never two of them together, are killed: in the end all
 * agree, and no ID was given to two. */
static void storms(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned round = 0; round < 5; round++, seed++) {
        cluster_open(&cluster, 3, true);
        struct sh_prng prng = sh_prng_make(seed);
        unsigned down = 3;
        for (unsigned i = 0; i < 12; i++) {
            unsigned which = (unsigned)sh_prng_below(&prng, 3);
            if (down < 3) {
                sh_world_restart(cluster.world, down);
                down = 3;
            } else if (sh_prng_below(&prng, 2)) {
                sh_world_crash(cluster.world, which);
                down = which;
            }
            if (cluster.count < 8)
                (void)peer_add(&cluster);
            run_for(&cluster, sh_prng_below(&prng, 2 * S));
        }
        if (down < 3)
            sh_world_restart(cluster.world, down);
        assert_joined(&cluster, 40 * S);
        for (unsigned i = 3; i < cluster.count; i++) {
            for (unsigned j = 3; j < i; j++)
                assert_int_not_equal(nid_of(&cluster.hosts[i]).v, nid_of(&cluster.hosts[j]).v);
            assert_int_equal(cluster.hosts[i].failure, SHOAL_OK);
        }
        cluster_close(&cluster);
    }
}

/* Superpeers in memory and superpeers with disks share nothing: no cluster begins before the odd one is
 * started like the others; one that is started in the other way later stays out, and so does a new
 * superpeer. */
static void kinds_are_not_mixed(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned has_disk = 0; has_disk < 2; has_disk++) {
        cluster_open(&cluster, 3, has_disk);
        struct host *odd = &cluster.hosts[2];
        shoal_nid nid = {3};
        sh_world_crash(cluster.world, 2);
        odd->has_disk = !has_disk;
        sh_world_restart(cluster.world, 2);
        struct host *peer = peer_add(&cluster);
        run_for(&cluster, 20 * FAILURE);
        assert_false(sh_member_joined(peer->member));
        sh_world_crash(cluster.world, 2);
        odd->has_disk = has_disk;
        odd->forgets = true;
        sh_world_restart(cluster.world, 2);
        assert_joined(&cluster, 20 * S);
        assert_seen(&cluster, nid, SH_NODE_UP, 20 * S);
        run_for(&cluster, 5 * S);
        sh_world_crash(cluster.world, 2);
        odd->has_disk = !has_disk;
        sh_world_restart(cluster.world, 2);
        run_for(&cluster, 10 * FAILURE);
        assert_int_equal(state_in(&cluster.hosts[0], nid), SH_NODE_FAILED);
        assert_int_equal(state_in(odd, nid), -1); /* it has taken nothing from the others */
        struct host *recruit = host_add(&cluster, SUPERPEER);
        recruit->is_recruit = true;
        recruit->has_disk = !has_disk;
        host_start(recruit);
        run_for(&cluster, 5 * FAILURE);
        assert_null(recruit->superpeer);
        assert_int_equal(peer->failures, 0);
        cluster_close(&cluster);
    }
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_at_a_time_is_killed),
        cmocka_unit_test(all_are_killed),
        cmocka_unit_test(minority_answers_nobody),
        cmocka_unit_test(lost_disk),
        cmocka_unit_test(storms),
        cmocka_unit_test(kinds_are_not_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
