/* Leases in whole clusters in a simulated world: no node may serve once it has been declared
 * failed, whatever stops, is cut off or dies, and whoever is not to blame serves again soon. */
#include "base/hash.h"
#include "cluster/proto.h"
#include "ring/arcs.h"
#include "superpeer/superpeer_claims.h"
#include "tests/cluster_rig_int.h"
#include "tests/seed_int.h"

#define LEASE_PEERS 4

struct judge {
    struct cluster *cluster;
    uint64_t looks, leased, failed; /* how much there was to judge */
    bool is_violated;
};

/* The view of the superpeer that is furthest. */
static const struct sh_view *newest_view(const struct cluster *cluster)
{
    const struct sh_view *best = NULL;
    for (uint16_t i = 0; i < cluster->superpeer_count; i++) {
        const struct host *host = &cluster->hosts[i];
        if (!host->superpeer)
            continue;
        const struct sh_view *view = sh_superpeer_view(host->superpeer);
        if (!best || view->epoch > best->epoch)
            best = view;
    }
    return best;
}

/* By the node's own clock, which is what it goes by. */
static bool holds_lease(const struct host *host)
{
    const struct sh_env *env = sh_world_env(host->cluster->world, host->node);
    return sh_msg_lease_ns(host->msg) > sh_now(&env->clock);
}

/* Between any two steps: whoever has a lease is up. */
static bool is_violated(void *arg)
{
    struct judge *judge = arg;
    for (unsigned i = 0; i < judge->cluster->count; i++) {
        struct host *host = &judge->cluster->hosts[i];
        if (host->kind != PEER || !host->member || !nid_of(host).v)
            continue;
        const struct sh_view *view = newest_view(judge->cluster);
        const struct sh_node *node = view ? sh_view_find(view, nid_of(host)) : NULL;
        bool is_leased = holds_lease(host);
        judge->looks++;
        judge->leased += is_leased;
        judge->failed += node && node->state == SH_NODE_FAILED;
        if (node && node->state == SH_NODE_FAILED && is_leased) {
            print_error("seed %" PRIu64 ": node %u serves though it was declared failed\n", seed,
                        nid_of(host).v);
            judge->is_violated = true;
        }
    }
    return judge->is_violated;
}

static void run_judged(struct judge *judge, uint64_t ns)
{
    if (run_until(judge->cluster, is_violated, judge, ns))
        fail_msg("seed %" PRIu64 ": a lease was not over", seed);
}

/* Whether all peers have leases, and are up as all see it. */
static bool all_serve(void *arg)
{
    struct cluster *cluster = arg;
    for (unsigned i = 0; i < cluster->count; i++) {
        struct host *host = &cluster->hosts[i];
        if (host->kind == PEER && !(host->member && nid_of(host).v && holds_lease(host)))
            return false;
    }
    return all_joined(cluster);
}

static void assert_all_serve(struct cluster *cluster, uint64_t within_ns)
{
    if (!run_until(cluster, all_serve, cluster, within_ns))
        fail_msg("seed %" PRIu64 ": not all serve again", seed);
}

static void lease_cluster_open(struct cluster *cluster, uint16_t superpeers, bool is_shared)
{
    cluster_open(cluster, superpeers, is_shared);
    for (unsigned i = 0; i < LEASE_PEERS; i++)
        host_start(host_add(cluster, PEER));
    assert_joined(cluster, 20 * S);
    assert_all_serve(cluster, 5 * S);
}

/* A stopped peer's lease is over before it is declared failed; and when it goes on it serves nobody
 * before it has heard of that. */
static void stopped_peer(uint16_t superpeers, bool is_shared)
{
    static struct cluster cluster;
    struct judge judge = {.cluster = &cluster};
    lease_cluster_open(&cluster, superpeers, is_shared);
    struct host *peer = &cluster.hosts[superpeers];
    sh_world_pause(cluster.world, peer->node);
    run_judged(&judge, 3 * FAILURE);
    assert_false(holds_lease(peer));
    assert_int_equal(sh_view_find(newest_view(&cluster), nid_of(peer))->state, SH_NODE_FAILED);
    sh_world_resume(cluster.world, peer->node);
    run_judged(&judge, FAILURE);
    assert_all_serve(&cluster, 10 * S);
    assert_int_equal(peer->failures, 1);
    assert_true(judge.failed > 0);
    cluster_close(&cluster);
}

static void stopped_peers(void **state)
{
    (void)state;
    stopped_peer(1, false);
    stopped_peer(1, true);
    stopped_peer(3, true);
}

static bool serves(void *arg)
{
    struct host *host = arg;
    return holds_lease(host) && !sh_msg_is_fenced(host->msg);
}

/* A member serves once its disk says that it was admitted, and then without waiting for more. */
static void unconfirmed_peer(void **state)
{
    (void)state;
    static struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_add(&cluster, PEER);
    peer->is_unconfirmed = true;
    host_start(peer);
    assert_joined(&cluster, 20 * S);
    assert_false(run_until(&cluster, serves, peer, 5 * FAILURE));
    peer->is_unconfirmed = false;
    assert_true(run_until(&cluster, serves, peer, 2 * HEARTBEAT));
    peer->is_unconfirmed = true; /* another life of it */
    sh_world_crash(cluster.world, peer->node);
    sh_world_restart(cluster.world, peer->node);
    assert_joined(&cluster, 20 * S);
    assert_false(run_until(&cluster, serves, peer, 5 * FAILURE));
    cluster_close(&cluster);
}

/* A node that hears no superpeer stops to serve, though nobody can tell it to. */
static void cut_off_peer(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct judge judge = {.cluster = &cluster};
    for (unsigned round = 0; round < 3; round++) {
        uint16_t superpeers = round ? 3 : 1;
        lease_cluster_open(&cluster, superpeers, true);
        struct host *peer = &cluster.hosts[superpeers + 1];
        uint64_t all = (UINT64_C(1) << superpeers) - 1;
        /* Both ways, then heartbeats only, then answers only. */
        if (round < 2)
            sh_world_partition(cluster.world, 1u << peer->node, all, round == 1);
        else
            sh_world_partition(cluster.world, all, 1u << peer->node, true);
        run_judged(&judge, 3 * FAILURE);
        assert_false(holds_lease(peer));
        assert_true(sh_msg_is_fenced(peer->msg));
        sh_world_heal(cluster.world);
        run_judged(&judge, FAILURE);
        assert_all_serve(&cluster, 10 * S);
        cluster_close(&cluster);
    }
}

/* Superpeers whose leader dies or is cut off go on granting leases: nobody fails by it, and nobody
 * stops to serve for longer than an election takes. */
static void lost_leader(void **state)
{
    (void)state;
    static struct cluster cluster;
    struct judge judge = {.cluster = &cluster};
    for (unsigned dead = 0; dead < 3; dead++) {
        lease_cluster_open(&cluster, 3, true);
        sh_world_crash(cluster.world, dead);
        run_judged(&judge, 3 * FAILURE);
        for (unsigned i = 3; i < cluster.count; i++) {
            assert_true(holds_lease(&cluster.hosts[i]));
            assert_int_equal(cluster.hosts[i].failures, 0);
        }
        cluster_close(&cluster);
    }
}

/* A superpeer that was stopped together with its links finds answers of long ago when it goes on:
 * by these it may grant nothing, for the others have elected a leader and declared failures since.
 */
static void paused_leader(void **state)
{
    (void)state;
    uint64_t first = seed;
    for (unsigned i = 0; i < 60; i++, seed++) {
        static struct cluster cluster;
        struct judge judge = {.cluster = &cluster};
        slow_links = true;
        lease_cluster_open(&cluster, 3, true);
        slow_links = false;
        unsigned paused = (unsigned)(seed % 3);
        unsigned peer = cluster.hosts[3 + seed % LEASE_PEERS].node;
        uint64_t side = (UINT64_C(1) << paused) | (UINT64_C(1) << peer);
        uint64_t all = (UINT64_C(1) << cluster.count) - 1;
        run_judged(&judge, (seed % 97) * MS);
        sh_world_pause(cluster.world, paused);
        run_judged(&judge, 45 * MS);
        sh_world_partition(cluster.world, side, all & ~side, false);
        run_judged(&judge, (1500 + 250 * (i % 8)) * MS);
        sh_world_resume(cluster.world, paused);
        run_judged(&judge, 2 * FAILURE);
        cluster_close(&cluster);
    }
    seed = first;
}

/* A node to which no connection can be opened, be it for a firewall, holds its lease all the same:
 * it is not declared failed though others suspect it. */
static void refusing_peer_run(void)
{
    for (unsigned shared = 0; shared < 2; shared++) {
        static struct cluster cluster;
        struct judge judge = {.cluster = &cluster};
        cluster_open(&cluster, 1, shared);
        struct host *peer = host_add(&cluster, PEER);
        peer->is_refusing = true;
        host_start(peer);
        struct host *other = host_start(host_add(&cluster, PEER));
        assert_joined(&cluster, 20 * S);
        assert_all_serve(&cluster, 5 * S);
        for (unsigned i = 0; i < 20; i++) {
            struct sh_out out;
            if (sh_msg_begin(other->msg, (shoal_nid){1}, SH_CLUSTER_SUSPECT, SH_SUSPECT_BYTES,
                             &out) == SHOAL_OK) {
                sh_put16(&out.w, nid_of(peer).v);
                sh_msg_end(other->msg, &out);
            }
            run_judged(&judge, FAILURE / 5);
        }
        assert_true(holds_lease(peer));
        assert_int_equal(peer->failures, 0);
        assert_int_equal(judge.failed, 0);
        /* Once it is silent, it fails. */
        shoal_nid nid = nid_of(peer);
        sh_world_crash(cluster.world, peer->node);
        run_judged(&judge, 3 * FAILURE);
        assert_int_equal(sh_view_find(newest_view(&cluster), nid)->state, SH_NODE_FAILED);
        cluster_close(&cluster);
    }
}

static void refusing_peer(void **state)
{
    (void)state;
    uint64_t given = seed;
    refusing_peer_run();
    seed = 390995877; /* here a superpeer's own connection to the node is refused, too */
    refusing_peer_run();
    seed = given;
}

static bool has_failed(void *arg)
{
    return ((struct host *)arg)->failures;
}

/* A node whose failure_ns is not the cluster's does not become a member of it. */
static void other_failure_ns(void **state)
{
    (void)state;
    static struct cluster cluster;
    for (unsigned shared = 0; shared < 2; shared++) {
        cluster_open(&cluster, 1, shared);
        struct host *peer = host_add(&cluster, PEER);
        peer->failure_ns = FAILURE + 1;
        host_start(peer);
        assert_true(run_until(&cluster, has_failed, peer, 20 * S));
        assert_int_equal(peer->failure, SHOAL_ESETTING);
        assert_int_equal(nid_of(peer).v, 0);
        assert_false(holds_lease(peer));
        run_for(&cluster, FAILURE);
        assert_int_equal(peer->failures, 1);
        cluster_close(&cluster);
    }
}

static void one_fault(struct cluster *cluster)
{
    struct sh_prng *prng = sh_world_prng(cluster->world);
    unsigned node = (unsigned)sh_prng_below(prng, cluster->count);
    uint64_t others = sh_prng_below(prng, UINT64_C(1) << cluster->count);
    switch (sh_prng_below(prng, 8)) {
    case 0:
    case 1:
        sh_world_pause(cluster->world, node);
        break;
    case 2:
    case 3:
        sh_world_partition(cluster->world, UINT64_C(1) << node, others & ~(UINT64_C(1) << node),
                           sh_prng_chance(prng, 500000));
        break;
    case 4:
        sh_world_cut(cluster->world, node, node);
        break;
    case 5:
        sh_world_heal(cluster->world);
        break;
    case 6:
        if (node < cluster->superpeer_count && cluster->hosts[node].has_disk) {
            sh_world_crash(cluster->world, node);
            sh_world_restart(cluster->world, node);
        }
        break;
    default:
        sh_world_stop_inside(cluster->world, node, 1 + (unsigned)sh_prng_below(prng, 40),
                             sh_prng_between(prng, 1, 2 * FAILURE));
        break;
    }
}

/* Returns how often somebody was looked at who had failed. */
static uint64_t storm(uint16_t superpeers, bool is_shared, unsigned faults)
{
    static struct cluster cluster;
    struct judge judge = {.cluster = &cluster};
    lease_cluster_open(&cluster, superpeers, is_shared);
    struct sh_prng *prng = sh_world_prng(cluster.world);
    for (unsigned i = 0; i < faults; i++) {
        one_fault(&cluster);
        run_judged(&judge, sh_prng_between(prng, 1, 2 * FAILURE));
        for (unsigned node = 0; node < cluster.count; node++) {
            if (sh_prng_chance(prng, 300000))
                sh_world_resume(cluster.world, node);
        }
        if (sh_prng_chance(prng, 200000))
            sh_world_heal(cluster.world);
    }
    for (unsigned node = 0; node < cluster.count; node++)
        sh_world_resume(cluster.world, node);
    sh_world_heal(cluster.world);
    run_judged(&judge, FAILURE);
    assert_all_serve(&cluster, 30 * S);
    assert_true(judge.leased > 0);
    cluster_close(&cluster);
    return judge.failed;
}

static void storms(void **state)
{
    (void)state;
    uint64_t first = seed;
    const char *rounds = getenv("SHOAL_TEST_SEEDS");
    unsigned count = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 4;
    uint64_t failed = 0;
    for (unsigned i = 0; i < count; i++, seed++)
        failed += storm(3, true, 30) + storm(1, true, 20) + storm(2, false, 20);
    assert_true(failed > 0);
    seed = first;
}

/* Whether two superpeers answer for one shard of the ring. */
static bool two_answer(void *arg)
{
    struct cluster *cluster = arg;
    for (unsigned shard = 0; shard < SH_SHARDS; shard++) {
        unsigned count = 0;
        for (uint16_t i = 0; i < cluster->superpeer_count; i++)
            count += sh_superpeer_answers_for(cluster->hosts[i].superpeer, shard);
        if (count > 1)
            return true;
    }
    return false;
}

static unsigned answering(struct cluster *cluster, unsigned superpeer)
{
    unsigned count = 0;
    for (unsigned shard = 0; shard < SH_SHARDS; shard++)
        count += sh_superpeer_answers_for(cluster->hosts[superpeer].superpeer, shard);
    return count;
}

/* A superpeer is cut off, or stopped, for about as long as it takes until it is called failed, and comes
 * back just before that is decided, after it, or meanwhile, for disks are slow. It answers for its
 * shards, or another one does. */
static void one_superpeer_answers(void **state)
{
    (void)state;
    static struct cluster cluster;
    unsigned answered = 0;
    cluster_open(&cluster, 3, true);
    struct sh_disk_faults slow = {.delay_ns_min = 80 * MS, .delay_ns_max = 120 * MS};
    run_for(&cluster, 5 * S);
    sh_world_disk_faults_set(cluster.world, &slow);
    for (unsigned i = 0; i < 60; i++) {
        uint64_t one = UINT64_C(1) << i % 3;
        uint64_t draw = sh_mix64(seed + i);
        if (i % 4 == 0)
            sh_world_partition(cluster.world, one, 7 & ~one, false);
        else
            sh_world_pause(cluster.world, i % 3);
        bool violated = run_until(&cluster, two_answer, &cluster, FAILURE + draw % (150 * MS));
        if (i % 4 == 0)
            sh_world_heal(cluster.world);
        else
            sh_world_resume(cluster.world, i % 3);
        violated |= run_until(&cluster, two_answer, &cluster, FAILURE);
        answered += answering(&cluster, i % 3) > 0;
        if (violated)
            fail_msg("seed %" PRIu64 ": two superpeers answer for a shard", seed);
    }
    assert_true(answered > 0);
    cluster_close(&cluster);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_superpeer_answers),
        cmocka_unit_test(stopped_peers),
        cmocka_unit_test(unconfirmed_peer),
        cmocka_unit_test(cut_off_peer),
        cmocka_unit_test(lost_leader),
        cmocka_unit_test(paused_leader),
        cmocka_unit_test(refusing_peer),
        cmocka_unit_test(other_failure_ns),
        cmocka_unit_test(storms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
