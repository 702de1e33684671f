/* Superpeers that come and go while the cluster runs: one becomes three, any of them is dismissed,
 * also the leader and one that is down, and all find each other again from any one address. */
#include "cluster/proto.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

static struct host *peer_add(struct cluster *cluster)
{
    return host_start(host_add(cluster, PEER));
}

/* A superpeer that is not of the first list and knows one address. */
static struct host *recruit_add(struct cluster *cluster, const char *hint)
{
    struct host *host = host_add(cluster, SUPERPEER);
    host->is_recruit = true;
    host->hint = hint;
    return host_start(host);
}

static bool is_in_service(void *arg)
{
    struct host *host = arg;
    return host->superpeer && nid_of(host).v && state_in(host, nid_of(host)) == SH_NODE_UP;
}

static void assert_serves(struct host *host, uint64_t within_ns)
{
    if (!run_until(host->cluster, is_in_service, host, within_ns))
        fail_msg("seed %" PRIu64 ": host %u is no superpeer", seed, host->node);
}

static bool joined(void *arg)
{
    return sh_member_joined(((struct host *)arg)->member);
}

static void assert_joins(struct host *peer)
{
    if (!run_until(peer->cluster, joined, peer, 20 * S))
        fail_msg("seed %" PRIu64 ": host %u does not join", seed, peer->node);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)payload;
    struct outcome *outcome = request->arg;
    outcome->done = true;
    outcome->err = err;
}

/* Asks a superpeer, by way of a peer that knows it, to dismiss one. */
static enum shoal_err dismiss(struct host *peer, shoal_nid asked, shoal_nid nid)
{
    struct outcome outcome = {.done = false};
    struct sh_request request = {.done = on_answer, .arg = &outcome, .timeout_ns = 5 * S};
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(peer->msg, asked, SH_CLUSTER_DISMISS, SH_DISMISS_BYTES, &request, &out);
    if (err)
        return err;
    sh_put16(&out.w, nid.v);
    sh_msg_end(peer->msg, &out);
    assert_true(run_until(peer->cluster, is_done, &outcome, 10 * S));
    return outcome.err;
}

static void assert_dismissed(struct host *peer, shoal_nid asked, shoal_nid nid)
{
    enum shoal_err err = SHOAL_EBUSY;
    /* EBUSY: nobody leads just now; it may be done all the same, and is then not to be asked. */
    for (unsigned i = 0; i < 20 && err && state_in(peer, nid) != SH_NODE_LEFT; i++) {
        err = dismiss(peer, asked, nid);
        if (err)
            run_for(peer->cluster, S / 4);
    }
    err = state_in(peer, nid) == SH_NODE_LEFT ? SHOAL_OK : err;
    if (err)
        fail_msg("seed %" PRIu64 ": node %u was not dismissed: %d", seed, nid.v, (int)err);
}

static bool was_dismissed(void *arg)
{
    return ((struct host *)arg)->is_dismissed;
}

/* It gets to know of it, and forgets what it has stored. */
static void assert_ends(struct host *host)
{
    if (!run_until(host->cluster, was_dismissed, host, 20 * S))
        fail_msg("seed %" PRIu64 ": host %u does not hear that it was dismissed", seed, host->node);
    host_drop(host, host->cluster->world, host->node);
    sh_world_crash(host->cluster->world, host->node);
}

static void grow(struct cluster *cluster, struct host **peer_out, struct host *superpeers[3])
{
    cluster_open(cluster, 1, true);
    superpeers[0] = &cluster->hosts[0];
    *peer_out = peer_add(cluster);
    assert_joined(cluster, 10 * S);
    for (unsigned i = 1; i < 3; i++) {
        superpeers[i] = recruit_add(cluster, "node0:1");
        assert_serves(superpeers[i], 20 * S);
        assert_int_equal(nid_of(superpeers[i]).v, i + 1);
        assert_seen(cluster, nid_of(superpeers[i]), SH_NODE_UP, 10 * S);
    }
    run_for(cluster, 3 * S); /* they have caught up, and vote */
}

static void one_becomes_three(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    for (unsigned i = 0; i < 3; i++) {
        sh_world_crash(cluster.world, superpeers[i]->node);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_FAILED, 20 * S);
        struct host *late = i ? peer_add(&cluster) : peer;
        assert_joins(late); /* the only address that new peers know is the first one's */
        sh_world_restart(cluster.world, superpeers[i]->node);
        assert_int_equal(superpeers[i]->boot_err, SHOAL_OK);
        assert_seen(&cluster, (shoal_nid){(uint16_t)(i + 1)}, SH_NODE_UP, 20 * S);
        assert_seen(&cluster, nid_of(late), SH_NODE_UP, 10 * S);
    }
    assert_int_equal(peer->joins, 1);
    assert_int_equal(peer->failures, 0);
    cluster_close(&cluster);
}

/* Every one of three is dismissed in turn, the leader among them, and the last one stays. */
static void three_become_one(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    assert_dismissed(peer, (shoal_nid){2}, (shoal_nid){1});
    assert_seen(&cluster, (shoal_nid){1}, SH_NODE_LEFT, 10 * S);
    assert_ends(superpeers[0]);
    assert_dismissed(peer, (shoal_nid){2}, (shoal_nid){2}); /* it answers for itself */
    assert_ends(superpeers[1]);
    assert_seen(&cluster, (shoal_nid){2}, SH_NODE_LEFT, 10 * S);
    assert_int_equal(dismiss(peer, (shoal_nid){3}, (shoal_nid){3}), SHOAL_ELIMIT);
    assert_int_equal(dismiss(peer, (shoal_nid){3}, (shoal_nid){9}), SHOAL_ENONODE);
    run_for(&cluster, 3 * S);
    shoal_nid nid = nid_of(peer);
    assert_seen(&cluster, nid, SH_NODE_UP, 10 * S);
    assert_int_equal(locate(peer, shoal_cid_make(nid, 1)).err, SHOAL_OK);
    assert_int_equal(peer->joins, 1);
    /* The first one comes again as a new one. */
    superpeers[0]->is_recruit = true;
    superpeers[0]->is_dismissed = false;
    superpeers[0]->hint = cluster.hosts[superpeers[2]->node].hint = "node3:1";
    assert_int_equal(superpeers[2]->node, 3);
    sh_world_restart(cluster.world, superpeers[0]->node);
    assert_serves(superpeers[0], 20 * S);
    assert_int_equal(nid_of(superpeers[0]).v, 4);
    assert_seen(&cluster, (shoal_nid){4}, SH_NODE_UP, 10 * S);
    cluster_close(&cluster);
}

/* While a peer was cut off, those that it knew to be up have gone, and the one that it knew to have
 * failed is back: it asks that one, too, and hears that its own life is over. */
static void peer_with_an_old_view(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    struct host *other = peer_add(&cluster);
    assert_joins(other);
    sh_world_crash(cluster.world, superpeers[0]->node);
    assert_seen(&cluster, (shoal_nid){1}, SH_NODE_FAILED, 20 * S);
    run_for(&cluster, S);
    assert_int_equal(state_in(peer, (shoal_nid){1}), SH_NODE_FAILED);
    uint64_t away = UINT64_C(1) << peer->node;
    sh_world_partition(cluster.world, away, ~away & 0xff, false);
    sh_world_restart(cluster.world, superpeers[0]->node);
    if (!run_until(&cluster, is_in_service, superpeers[0], 20 * S))
        fail_msg("seed %" PRIu64 ": the first superpeer is not back", seed);
    for (unsigned i = 1; i < 3; i++) {
        assert_dismissed(other, (shoal_nid){1}, nid_of(superpeers[i]));
        assert_ends(superpeers[i]);
    }
    run_for(&cluster, 5 * S);
    sh_world_heal(cluster.world);
    for (unsigned i = 0; i < 40 && state_in(peer, (shoal_nid){1}) != SH_NODE_UP; i++)
        run_for(&cluster, S / 2);
    assert_int_equal(state_in(peer, (shoal_nid){1}), SH_NODE_UP);
    assert_int_equal(state_in(peer, (shoal_nid){2}), SH_NODE_LEFT);
    assert_int_equal(state_in(superpeers[0], nid_of(peer)), SH_NODE_UP);
    assert_int_equal(peer->fences, 1);
    cluster_close(&cluster);
}

static bool may_serve(void *arg)
{
    return !sh_msg_is_fenced(((struct host *)arg)->msg);
}

/* A peer without a superpeer asks none of the many that were dismissed: another one is at their
 * address by now, and each would cost it a time-out. */
static void many_were_dismissed(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    struct host *one = superpeers[1];
    for (unsigned i = 0; i < 20; i++) {
        assert_dismissed(peer, (shoal_nid){1}, nid_of(one));
        assert_ends(one);
        one->is_dismissed = false;
        sh_world_restart(cluster.world, one->node);
        assert_serves(one, 40 * S);
    }
    assert_seen(&cluster, nid_of(one), SH_NODE_UP, 10 * S);
    for (unsigned i = 0; i < 3; i++)
        sh_world_crash(cluster.world, superpeers[i]->node);
    run_for(&cluster, 5 * S);
    assert_false(may_serve(peer));
    for (unsigned i = 0; i < 3; i++)
        sh_world_restart(cluster.world, superpeers[i]->node);
    for (unsigned i = 0; i < 3; i++)
        assert_serves(superpeers[i], 20 * S);
    if (!run_until(&cluster, may_serve, peer, 3 * S))
        fail_msg("seed %" PRIu64 ": the peer does not find a superpeer", seed);
    cluster_close(&cluster);
}

/* One that is down when it is dismissed hears of it when it comes back, also a learner. */
static void dismissed_while_down(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    sh_world_crash(cluster.world, superpeers[2]->node);
    assert_seen(&cluster, (shoal_nid){3}, SH_NODE_FAILED, 20 * S);
    assert_dismissed(peer, (shoal_nid){1}, (shoal_nid){3});
    assert_seen(&cluster, (shoal_nid){3}, SH_NODE_LEFT, 10 * S);
    run_for(&cluster, 3 * S);
    /* Two are left, both of which are needed. */
    sh_world_restart(cluster.world, superpeers[2]->node);
    assert_int_equal(superpeers[2]->boot_err, SHOAL_OK);
    assert_ends(superpeers[2]);
    struct host *late = peer_add(&cluster);
    assert_joins(late);
    assert_seen(&cluster, nid_of(late), SH_NODE_UP, 10 * S);
    cluster_close(&cluster);
}

/* All are killed; each knows one address only, and that of a superpeer that has moved on. */
static void from_any_one_address(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    shoal_nid nid = nid_of(peer);
    for (unsigned i = 0; i < 3; i++)
        sh_world_crash(cluster.world, superpeers[i]->node);
    run_for(&cluster, 2 * S);
    char last[SH_MSG_ADDRESS_MAX];
    (void)snprintf(last, sizeof last, "node%u:1", superpeers[2]->node);
    for (unsigned i = 0; i < 3; i++) {
        superpeers[i]->hint = last;
        sh_world_restart(cluster.world, superpeers[i]->node);
        assert_int_equal(superpeers[i]->boot_err, SHOAL_OK);
        assert_int_equal(nid_of(superpeers[i]).v, i + 1);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_serves(superpeers[i], 20 * S);
    assert_seen(&cluster, nid, SH_NODE_UP, 20 * S);
    assert_int_equal(nid_of(peer).v, nid.v);
    assert_int_equal(peer->joins, 1);
    cluster_close(&cluster);
}

/* A superpeer whose disk was lost is recruited again, at its address, with the ID that it had. */
static void lost_disk_is_recruited(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct host *peer, *superpeers[3];
    grow(&cluster, &peer, superpeers);
    sh_world_crash(cluster.world, superpeers[0]->node);
    superpeers[0]->forgets = superpeers[0]->is_recruit = true;
    char hint[SH_MSG_ADDRESS_MAX];
    (void)snprintf(hint, sizeof hint, "node%u:1", superpeers[1]->node);
    superpeers[0]->hint = hint;
    assert_seen(&cluster, (shoal_nid){1}, SH_NODE_FAILED, 20 * S);
    sh_world_restart(cluster.world, superpeers[0]->node);
    assert_serves(superpeers[0], 20 * S);
    assert_int_equal(nid_of(superpeers[0]).v, 1);
    assert_seen(&cluster, (shoal_nid){1}, SH_NODE_UP, 20 * S);
    run_for(&cluster, 3 * S);
    sh_world_crash(cluster.world, superpeers[1]->node);
    struct host *late = peer_add(&cluster);
    assert_joins(late);
    assert_seen(&cluster, nid_of(late), SH_NODE_UP, 10 * S);
    cluster_close(&cluster);
}

/* A JOIN from a peer's connection; traits NULL: without any, as shoal sent it before there were. */
static enum shoal_err join_with(struct host *peer, shoal_nid previous, uint64_t instance,
                                const char *address, const struct sh_traits *traits)
{
    struct outcome outcome = {.done = false};
    struct sh_request request = {.done = on_answer, .arg = &outcome, .timeout_ns = 5 * S};
    struct sh_out out;
    size_t size = SH_JOIN_BYTES + strlen(address) + (traits ? sh_traits_size(traits) : 0);
    enum shoal_err err =
        sh_msg_request(peer->msg, (shoal_nid){1}, SH_CLUSTER_JOIN, size, &request, &out);
    if (err)
        return err;
    sh_put8(&out.w, SH_ROLE_PEER);
    sh_put8(&out.w, 0);
    sh_put16(&out.w, previous.v);
    sh_put64(&out.w, instance);
    sh_put64(&out.w, 0);
    sh_put64(&out.w, HEARTBEAT);
    sh_put64(&out.w, FAILURE);
    sh_put64(&out.w, 0);
    sh_put_text(&out.w, sh_bytes_text(address));
    if (traits)
        sh_traits_put(&out.w, traits);
    sh_msg_end(peer->msg, &out);
    assert_true(run_until(peer->cluster, is_done, &outcome, 10 * S));
    return outcome.err;
}

static enum shoal_err join_as(struct host *peer, uint64_t instance)
{
    char address[32];
    (void)snprintf(address, sizeof address, "elsewhere%" PRIu64 ":1", instance);
    return join_with(peer, SHOAL_NID_NONE, instance, address, &rig_traits);
}

static bool has_rig_traits(void *arg)
{
    const struct host *peer = arg;
    struct sh_node node;
    return sh_member_joined(peer->member) &&
           !sh_directory_node(peer->directory, nid_of(peer), &node) &&
           sh_traits_are_equal(&node.traits, &rig_traits);
}

static bool has_other_traits(void *arg)
{
    const struct sh_view *view = sh_superpeer_view(((struct cluster *)arg)->hosts[0].superpeer);
    return !sh_traits_are_equal(&view->nodes[view->count - 1].traits, &rig_traits);
}

/* A join of the process before, of the same life, that is late takes its traits with it: the peer that runs
 * notices by its next view, and tells its own again. One that names no traits is malformed. */
static void late_joins_change_no_traits(void **state)
{
    (void)state;
    static struct cluster cluster;
    static const struct sh_traits former = {.domains = {"", "", "elsewhere"}};
    cluster_open(&cluster, 1, true);
    struct host *peer = peer_add(&cluster);
    assert_joined(&cluster, 10 * S);
    assert_true(run_until(&cluster, has_rig_traits, peer, 10 * S));
    const struct sh_view *view = sh_superpeer_view(cluster.hosts[0].superpeer);
    struct sh_node own = *sh_view_find(view, nid_of(peer));
    assert_int_equal(join_with(peer, own.nid, own.instance, own.address, NULL), SHOAL_EPROTO);
    assert_false(has_other_traits(&cluster));
    uint64_t epoch = view->epoch;
    assert_int_equal(join_with(peer, own.nid, own.instance, own.address, &former), SHOAL_OK);
    assert_int_equal(sh_superpeer_view(cluster.hosts[0].superpeer)->epoch, epoch + 1);
    assert_true(has_other_traits(&cluster));
    assert_true(run_until(&cluster, has_rig_traits, peer, 10 * S));
    run_for(&cluster, 3 * S); /* and that is all */
    assert_int_equal(sh_superpeer_view(cluster.hosts[0].superpeer)->epoch, epoch + 2);
    assert_false(has_other_traits(&cluster));
    assert_int_equal(peer->joins, 2);
    cluster_close(&cluster);
}

/* A registry of so many nodes that its log has been cut and its image comes in pieces. */
static void recruit_gets_an_image(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = peer_add(&cluster);
    assert_joined(&cluster, 10 * S);
    for (uint64_t i = 1; i <= 1100; i++)
        assert_int_equal(join_as(peer, i), SHOAL_OK);
    struct host *superpeer = recruit_add(&cluster, "node0:1");
    assert_serves(superpeer, 20 * S);
    assert_seen(&cluster, (shoal_nid){2}, SH_NODE_UP, 10 * S);
    assert_int_equal(sh_superpeer_view(superpeer->superpeer)->count, 1100 + 3);
    run_for(&cluster, 3 * S);
    for (unsigned i = 0; i < 2; i++) { /* from its image, each time */
        sh_world_crash(cluster.world, superpeer->node);
        run_for(&cluster, S / 2);
        sh_world_restart(cluster.world, superpeer->node);
        assert_int_equal(superpeer->boot_err, SHOAL_OK);
        assert_serves(superpeer, 20 * S);
    }
    assert_seen(&cluster, (shoal_nid){64 + 500}, SH_NODE_FAILED, 20 * S); /* nobody is there */
    assert_seen(&cluster, nid_of(peer), SH_NODE_UP, 20 * S);
    assert_int_equal(peer->joins, 1);
    cluster_close(&cluster);
}

/* Superpeers come, go and are killed, one at a time, while peers join: in the end all agree. */
static void storms(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned round = 0; round < 5; round++, seed++) {
        struct host *peer, *superpeers[3];
        grow(&cluster, &peer, superpeers);
        struct sh_prng prng = sh_prng_make(seed);
        for (unsigned i = 0; i < 6; i++) {
            struct host *one = superpeers[1 + sh_prng_below(&prng, 2)];
            uint64_t dice = sh_prng_below(&prng, 3);
            if (dice == 0) {
                sh_world_crash(cluster.world, one->node);
                run_for(&cluster, sh_prng_below(&prng, 2 * S));
                sh_world_restart(cluster.world, one->node);
            } else if (dice == 1) {
                assert_dismissed(peer, (shoal_nid){1}, nid_of(one));
                assert_ends(one);
                one->is_dismissed = false;
                sh_world_restart(cluster.world, one->node);
            } else if (cluster.count < 8) {
                (void)peer_add(&cluster);
            }
            assert_serves(one, 40 * S);
            run_for(&cluster, sh_prng_below(&prng, 3 * S));
        }
        assert_joined(&cluster, 40 * S);
        assert_int_equal(peer->joins, 1);
        assert_int_equal(peer->failures, 0);
        for (unsigned i = 0; i < 3; i++)
            assert_seen(&cluster, nid_of(superpeers[i]), SH_NODE_UP, 20 * S);
        cluster_close(&cluster);
    }
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_becomes_three),     cmocka_unit_test(three_become_one),
        cmocka_unit_test(peer_with_an_old_view), cmocka_unit_test(dismissed_while_down),
        cmocka_unit_test(from_any_one_address),  cmocka_unit_test(lost_disk_is_recruited),
        cmocka_unit_test(recruit_gets_an_image), cmocka_unit_test(late_joins_change_no_traits),
        cmocka_unit_test(many_were_dismissed),   cmocka_unit_test(storms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
