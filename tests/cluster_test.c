/* Membership and lookup on real messaging in simulated worlds: superpeers, peers and a client.
 *
 * SHOAL_TEST_SEED: the seed of the worlds (default: random; printed). */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/member.h"
#include "cluster/superpeer.h"
#include "sim/world.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define HEARTBEAT (100 * MS)
#define FAILURE (1 * S)
#define NODES_MAX 12

static uint64_t seed;

enum kind { SUPERPEER, PEER, CLIENT };

struct cluster;

struct host {
    struct cluster *cluster;
    unsigned node;
    enum kind kind;
    uint16_t index; /* superpeer: its place */
    bool has_disk;
    const char *secret;
    enum shoal_err boot_err;
    struct sh_msg *msg;
    struct sh_superpeer *superpeer;
    struct sh_directory *directory;
    struct sh_member *member;
    unsigned joins, failures;
    enum shoal_err failure; /* what the last on_failed said */
    bool has_left;
    enum shoal_err left;
};

struct cluster {
    struct sh_world *world;
    struct host hosts[NODES_MAX];
    unsigned count;
    char addresses[4][SH_MSG_ADDRESS_MAX];
    const char *superpeers[4];
    uint16_t superpeer_count;
};

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct host *host = arg;
    if (host->superpeer)
        sh_superpeer_link_event(host->superpeer, event);
    if (host->member)
        sh_member_link_event(host->member, event);
}

static void wake_nobody(void *arg)
{
    (void)arg;
}

static void on_joined(void *arg, shoal_nid nid)
{
    struct host *host = arg;
    assert_true(nid.v >= SH_PEER_NID_MIN);
    host->joins++;
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct host *host = arg;
    host->failures++;
    host->failure = err;
}

static void boot_superpeer(struct host *host, const struct sh_env *env)
{
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .addresses = host->cluster->superpeers,
                                         .count = host->cluster->superpeer_count,
                                         .index = host->index,
                                         .instance = sh_random64(&env->random) | 1,
                                         .heartbeat_ns = HEARTBEAT,
                                         .failure_ns = FAILURE};
    if (!host->has_disk)
        config.env.disk = NULL;
    host->boot_err = sh_superpeer_create(&config, &host->superpeer);
    if (!host->boot_err)
        sh_world_step_add(host->cluster->world, host->node, sh_superpeer_step(host->superpeer));
}

static void boot_member(struct host *host, const struct sh_env *env, const char *address)
{
    struct sh_member_config config = {.msg = host->msg,
                                      .directory = host->directory,
                                      .env = *env,
                                      .superpeers = host->cluster->superpeers,
                                      .superpeer_count = host->cluster->superpeer_count,
                                      .address = address,
                                      .instance = sh_random64(&env->random) | 1,
                                      .heartbeat_ns = HEARTBEAT,
                                      .failure_ns = FAILURE,
                                      .on_joined = on_joined,
                                      .on_failed = on_failed,
                                      .arg = host};
    assert_int_equal(sh_member_create(&config, &host->member), SHOAL_OK);
    sh_world_step_add(host->cluster->world, host->node, sh_member_step(host->member));
}

static void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct host *host = arg;
    host->node = node;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_msg_config config = {
        .nid = {(uint16_t)(host->kind == SUPERPEER ? host->index + 1 : 0)},
        .cluster = "test",
        .secret = sh_bytes_text(host->secret ? host->secret : "0123456789abcdef"),
        .connections_max = 64,
        .requests_max = 256,
        .ring_bytes = 65536,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = 2 * S,
        .connect_timeout_ns = S / 2,
        .env = *env,
        .on_event = on_event,
        .wake_transport = wake_nobody,
        .wake_handlers = wake_nobody,
        .arg = host};
    assert_int_equal(sh_msg_create(&config, &host->msg), SHOAL_OK);
    char address[SH_MSG_ADDRESS_MAX];
    char bound[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", node);
    if (host->kind != CLIENT)
        assert_int_equal(sh_msg_listen(host->msg, address, bound), SHOAL_OK);
    sh_world_step_add(world, node, sh_msg_transport_step(host->msg));
    sh_world_step_add(world, node, sh_msg_handler_step(host->msg));
    if (host->kind == SUPERPEER) {
        boot_superpeer(host, env);
        return;
    }
    struct sh_directory_config known = {.msg = host->msg,
                                        .clock = env->clock,
                                        .cache_ranges_max = 2,
                                        .is_client = host->kind == CLIENT};
    assert_int_equal(sh_directory_create(&known, &host->directory), SHOAL_OK);
    if (host->kind == PEER)
        boot_member(host, env, bound);
}

static void host_drop(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    struct host *host = arg;
    sh_member_destroy(host->member);
    sh_superpeer_destroy(host->superpeer);
    sh_directory_destroy(host->directory);
    host->member = NULL; /* before msg goes, which tells on_event of each connection's end */
    host->superpeer = NULL;
    host->directory = NULL;
    sh_msg_destroy(host->msg);
    host->msg = NULL;
}

static struct host *host_add(struct cluster *cluster, enum kind kind)
{
    struct host *host = &cluster->hosts[cluster->count++];
    assert_true(cluster->count <= NODES_MAX);
    *host = (struct host){.cluster = cluster, .kind = kind, .has_disk = true};
    return host;
}

static struct host *host_start(struct host *host)
{
    struct sh_world_node node = {.boot = boot, .crash = host_drop, .arg = host};
    (void)sh_world_node_add(host->cluster->world, &node);
    return host;
}

static void cluster_open(struct cluster *cluster, uint16_t superpeers, bool has_disk)
{
    memset(cluster, 0, sizeof *cluster);
    struct sh_world_config config = {.seed = seed,
                                     .wire = {.delay_ns_min = MS / 20,
                                              .delay_ns_max = MS / 2,
                                              .piece_ppm = 100000,
                                              .lost_ns_max = 5 * MS,
                                              .give_up_ns_max = FAILURE / 10,
                                              .window_bytes_min = 4096,
                                              .window_bytes_max = 65536},
                                     .disk = {.delay_ns_min = MS / 10,
                                              .delay_ns_max = 5 * MS,
                                              .again_ppm = 100000,
                                              .survive_ppm = 300000,
                                              .torn_ppm = 300000},
                                     .skip_ppm = 50000};
    cluster->world = sh_world_create(&config);
    cluster->superpeer_count = superpeers;
    for (uint16_t i = 0; i < superpeers; i++) {
        (void)snprintf(cluster->addresses[i], sizeof cluster->addresses[i], "node%u:1", i);
        cluster->superpeers[i] = cluster->addresses[i];
    }
    for (uint16_t i = 0; i < superpeers; i++) {
        struct host *host = host_add(cluster, SUPERPEER);
        host->index = i;
        host->has_disk = has_disk;
        host_start(host);
        assert_int_equal(host->boot_err, SHOAL_OK);
    }
}

static void cluster_close(struct cluster *cluster)
{
    for (unsigned i = 0; i < cluster->count; i++) {
        if (cluster->hosts[i].msg)
            host_drop(&cluster->hosts[i], cluster->world, i);
    }
    sh_world_destroy(cluster->world);
}

static bool run_until(struct cluster *cluster, bool (*predicate)(void *arg), void *arg,
                      uint64_t within_ns)
{
    return sh_world_run_until(cluster->world, predicate, arg,
                              sh_world_now(cluster->world) + within_ns);
}

static void run_for(struct cluster *cluster, uint64_t ns)
{
    (void)run_until(cluster, NULL, NULL, ns);
}

static shoal_nid nid_of(const struct host *host)
{
    return sh_msg_nid(host->msg);
}

/* The state of a node in a host's view, or -1. */
static int state_in(struct host *host, shoal_nid nid)
{
    if (host->superpeer) {
        const struct sh_node *found = sh_view_find(sh_superpeer_view(host->superpeer), nid);
        return found ? (int)found->state : -1;
    }
    struct sh_node node;
    return sh_directory_node(host->directory, nid, &node) ? -1 : (int)node.state;
}

/* Whether everybody who is up and in the cluster sees a node in a state. */
struct seen {
    struct cluster *cluster;
    shoal_nid nid;
    int state;
};

static bool is_seen(void *arg)
{
    struct seen *seen = arg;
    for (unsigned i = 0; i < seen->cluster->count; i++) {
        struct host *host = &seen->cluster->hosts[i];
        if (!sh_world_is_up(seen->cluster->world, i) || host->kind == CLIENT || host->has_left ||
            (host->member && host->failure))
            continue;
        if (state_in(host, seen->nid) != seen->state)
            return false;
    }
    return true;
}

static void assert_seen(struct cluster *cluster, shoal_nid nid, int state, uint64_t within_ns)
{
    struct seen seen = {cluster, nid, state};
    if (!run_until(cluster, is_seen, &seen, within_ns))
        fail_msg("seed %" PRIu64 ": node %u is not seen in state %d by all", seed, nid.v, state);
}

/* Whether all members have joined and see all of them as up. */
static bool all_joined(void *arg)
{
    struct cluster *cluster = arg;
    for (unsigned i = 0; i < cluster->count; i++) {
        struct host *host = &cluster->hosts[i];
        if (!sh_world_is_up(cluster->world, i) || host->kind != PEER || host->has_left)
            continue;
        if (!sh_member_joined(host->member))
            return false;
        struct seen seen = {cluster, nid_of(host), SH_NODE_UP};
        if (!is_seen(&seen))
            return false;
    }
    return true;
}

static void assert_joined(struct cluster *cluster, uint64_t within_ns)
{
    if (!run_until(cluster, all_joined, cluster, within_ns))
        fail_msg("seed %" PRIu64 ": not all members joined", seed);
}

struct outcome {
    bool done;
    enum shoal_err err;
    shoal_nid nid;
    char detail[200];
};

static bool is_done(void *arg)
{
    return ((struct outcome *)arg)->done;
}

static void on_view_op(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct outcome *outcome = op->arg;
    outcome->done = true;
    outcome->err = err;
    (void)snprintf(outcome->detail, sizeof outcome->detail, "%s", detail);
}

static void bootstrap(struct host *client, struct outcome *outcome, const char *first,
                      const char *second)
{
    *outcome = (struct outcome){.done = false};
    struct sh_directory_op op = {.done = on_view_op, .arg = outcome};
    const char *addresses[] = {first, second};
    sh_directory_bootstrap(client->directory, addresses, second ? 2 : 1, &op);
    assert_true(run_until(client->cluster, is_done, outcome, 10 * S));
}

static struct outcome refresh(struct host *host)
{
    struct outcome outcome = {.done = false};
    struct sh_directory_op op = {.done = on_view_op, .arg = &outcome};
    sh_directory_refresh(host->directory, &op);
    assert_true(run_until(host->cluster, is_done, &outcome, 30 * S));
    return outcome;
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct outcome *outcome = op->arg;
    assert_false(outcome->done);
    *outcome = (struct outcome){.done = true, .err = err, .nid = nid};
}

static struct outcome locate(struct host *host, shoal_cid cid)
{
    struct outcome outcome = {.done = false};
    struct sh_locate op = {.done = on_located, .arg = &outcome};
    sh_directory_locate(host->directory, cid, &op);
    assert_true(run_until(host->cluster, is_done, &outcome, 10 * S));
    return outcome;
}

static void on_left(void *arg, enum shoal_err err)
{
    struct host *host = arg;
    host->has_left = true;
    host->left = err;
}

static bool has_left(void *arg)
{
    return ((struct host *)arg)->has_left;
}

static void leave(struct host *host)
{
    sh_member_leave(host->member, on_left, host);
    assert_true(run_until(host->cluster, has_left, host, 10 * S));
}

/* --- Tests ---------------------------------------------------------------------------------- */

static void join_lookup_leave(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peers[4];
    for (unsigned i = 0; i < 4; i++)
        peers[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    for (unsigned i = 0; i < 4; i++) {
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(nid_of(peers[i]).v, nid_of(peers[j]).v);
    }
    struct host *client = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(client, &outcome, "node2:1", NULL); /* a peer answers as well */
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(sh_directory_nodes(client->directory, NULL, 0), 5);

    shoal_cid cid = shoal_cid_make(nid_of(peers[1]), 77);
    shoal_nid owner;
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_EAGAIN);
    outcome = locate(client, cid);
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nid_of(peers[1]).v);
    cid.v += 1000000;
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_OK);
    assert_int_equal(owner.v, nid_of(peers[1]).v);
    assert_int_equal(sh_directory_cached(client->directory), 1);
    sh_directory_forget(client->directory, cid);
    assert_int_equal(sh_directory_owner(client->directory, cid, &owner), SHOAL_EAGAIN);
    assert_int_equal(locate(client, shoal_cid_make((shoal_nid){9999}, 1)).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(client, shoal_cid_make((shoal_nid){1}, 1)).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(peers[0], cid).err, SHOAL_OK);

    bool picked[4] = {false};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(locate(client, shoal_cid_make(nid_of(peers[i]), 1)).err, SHOAL_OK);
        assert_int_equal(sh_directory_pick_peer(client->directory, &owner), SHOAL_OK);
        for (unsigned j = 0; j < 4; j++)
            picked[j] |= owner.v == nid_of(peers[j]).v;
    }
    assert_true(picked[0] && picked[1] && picked[2] && picked[3]);
    assert_int_equal(sh_directory_cached(client->directory), 2); /* as many as it may */
    leave(peers[1]);
    assert_int_equal(peers[1]->left, SHOAL_OK);
    assert_seen(&cluster, nid_of(peers[1]), SH_NODE_LEFT, 5 * S);
    sh_directory_forget(client->directory, cid); /* nobody tells a client of a leave */
    assert_int_equal(locate(client, cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(peers[0], cid).err, SHOAL_ENOCHUNK);
    assert_int_equal(sh_directory_cached(peers[0]->directory), 0);
    cluster_close(&cluster);
}

/* Lookups of one creator that are made together cost one question, and all are answered. */
static void lookups_together(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *client = host_start(host_add(&cluster, CLIENT));
    assert_joined(&cluster, 5 * S);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    enum { LOOKUPS = 50 };
    struct sh_locate ops[LOOKUPS];
    struct outcome outcomes[LOOKUPS];
    memset(ops, 0, sizeof ops);
    memset(outcomes, 0, sizeof outcomes);
    uint32_t before = sh_msg_requests_pending(client->msg);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        ops[i].done = on_located;
        ops[i].arg = &outcomes[i];
        sh_directory_locate(client->directory, shoal_cid_make(nid_of(peer), i), &ops[i]);
    }
    assert_int_equal(sh_msg_requests_pending(client->msg), before + 1);
    for (unsigned i = 0; i < LOOKUPS; i++) {
        assert_true(run_until(&cluster, is_done, &outcomes[i], 5 * S));
        assert_int_equal(outcomes[i].err, SHOAL_OK);
        assert_int_equal(outcomes[i].nid.v, nid_of(peer).v);
    }
    cluster_close(&cluster);
}

/* A crashed peer is found out by its lost connection, long before silence would tell. */
static void failure_by_lost_connection(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    run_for(&cluster, 2 * HEARTBEAT); /* now it is connected under its ID */
    shoal_nid nid = nid_of(peer);
    shoal_cid cid = shoal_cid_make(nid, 5);
    assert_int_equal(locate(other, cid).err, SHOAL_OK);
    sh_world_crash(cluster.world, peer->node);
    assert_seen(&cluster, nid, SH_NODE_FAILED, FAILURE / 2);
    assert_int_equal(sh_directory_cached(other->directory), 0);
    assert_int_equal(locate(other, cid).err, SHOAL_EFAILED);
    /* The process that takes its place is another node. */
    peer->joins = 0;
    sh_world_restart(cluster.world, peer->node);
    assert_joined(&cluster, 5 * S);
    assert_int_not_equal(nid_of(peer).v, nid.v);
    assert_int_equal(state_in(other, nid), SH_NODE_FAILED);
    cluster_close(&cluster);
}

/* A cut connection of a live node is no failure. */
static void cut_is_no_failure(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    uint64_t epoch = sh_directory_epoch(peer->directory);
    for (unsigned i = 0; i < 20; i++) {
        sh_world_cut(cluster.world, 0, peer->node);
        run_for(&cluster, 130 * MS);
    }
    run_for(&cluster, 2 * FAILURE);
    assert_int_equal(sh_directory_epoch(peer->directory), epoch);
    assert_int_equal(peer->failures, 0);
    cluster_close(&cluster);
}

/* A silent node fails; when it is heard again it is up again, and is told. */
static void failure_by_silence(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    struct host *other = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    sh_world_pause(cluster.world, peer->node);
    run_for(&cluster, FAILURE / 2);
    assert_int_equal(state_in(other, nid_of(peer)), SH_NODE_UP);
    run_for(&cluster, FAILURE);
    assert_int_equal(state_in(other, nid_of(peer)), SH_NODE_FAILED);
    uint64_t epoch = sh_directory_epoch(other->directory);
    sh_world_resume(cluster.world, peer->node);
    assert_seen(&cluster, nid_of(peer), SH_NODE_UP, 5 * S);
    assert_true(sh_directory_epoch(other->directory) > epoch);
    assert_int_equal(peer->failures, 1);
    assert_int_equal(peer->failure, SHOAL_OK);
    assert_int_equal(locate(other, shoal_cid_make(nid_of(peer), 1)).err, SHOAL_OK);
    cluster_close(&cluster);
}

/* A superpeer that was stopped itself blames nobody. */
static void stopped_superpeer_blames_nobody(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    uint64_t epoch = sh_directory_epoch(peer->directory);
    sh_world_pause(cluster.world, 0);
    run_for(&cluster, 5 * FAILURE);
    sh_world_resume(cluster.world, 0);
    run_for(&cluster, 3 * FAILURE);
    assert_int_equal(sh_directory_epoch(peer->directory), epoch);
    assert_int_equal(peer->failures, 0);
    cluster_close(&cluster);
}

static void restarted_superpeer(bool has_disk)
{
    struct cluster cluster;
    cluster_open(&cluster, 1, has_disk);
    struct host *peers[3];
    uint16_t nids[3];
    for (unsigned i = 0; i < 3; i++)
        peers[i] = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    struct host *client = host_start(host_add(&cluster, CLIENT));
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", NULL);
    assert_int_equal(outcome.err, SHOAL_OK);
    for (unsigned i = 0; i < 3; i++)
        nids[i] = nid_of(peers[i]).v;
    shoal_cid cid = shoal_cid_make((shoal_nid){nids[2]}, 9);
    uint64_t epoch = sh_directory_epoch(peers[0]->directory);
    sh_world_crash(cluster.world, 0);
    run_for(&cluster, 3 * FAILURE);
    assert_int_equal(refresh(client).err, SHOAL_OK); /* a peer answers */
    assert_int_not_equal(locate(client, cid).err, SHOAL_OK);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    struct host *fresh = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 6 * S);
    run_for(&cluster, 2 * FAILURE);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(nid_of(peers[i]).v, nids[i]);
        assert_int_equal(peers[i]->joins, has_disk ? 1 : 2);
        assert_int_equal(peers[i]->failures, 0);
        assert_int_not_equal(nid_of(fresh).v, nids[i]);
        assert_int_equal(state_in(fresh, (shoal_nid){nids[i]}), SH_NODE_UP);
    }
    assert_true(sh_directory_epoch(peers[0]->directory) > epoch);
    assert_int_equal(refresh(client).err, SHOAL_OK);
    assert_true(sh_directory_epoch(client->directory) > epoch);
    outcome = locate(client, cid);
    assert_int_equal(outcome.err, SHOAL_OK);
    assert_int_equal(outcome.nid.v, nids[2]);
    cluster_close(&cluster);
}

static void restarted_superpeer_with_or_without_disk(void **state)
{
    restarted_superpeer(*state != NULL);
}

/* Every ID that a node was told stays its own, wherever the superpeer crashes. */
static void crashes_lose_no_member(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peers[8];
    uint16_t nids[8] = {0};
    struct sh_prng *prng = sh_world_prng(cluster.world);
    for (unsigned i = 0; i < 8; i++) {
        peers[i] = host_start(host_add(&cluster, PEER));
        run_for(&cluster, sh_prng_below(prng, 12 * MS));
        sh_world_crash(cluster.world, 0);
        for (unsigned j = 0; j <= i; j++) {
            uint16_t nid = nid_of(peers[j]).v;
            assert_true(!nids[j] || nids[j] == nid);
            nids[j] = nid;
        }
        run_for(&cluster, 20 * MS);
        sh_world_restart(cluster.world, 0);
        assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    }
    assert_joined(&cluster, 20 * S);
    for (unsigned i = 0; i < 8; i++) {
        assert_true(!nids[i] || nids[i] == nid_of(peers[i]).v);
        assert_int_equal(peers[i]->joins, 1);
        for (unsigned j = 0; j < i; j++)
            assert_int_not_equal(nid_of(peers[i]).v, nid_of(peers[j]).v);
    }
    cluster_close(&cluster);
}

/* --- The registry's files ------------------------------------------------------------------- */

static void note_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

static void do_now(struct sh_disk *disk, struct sh_disk_op op)
{
    bool done = false;
    op.done = note_done;
    op.arg = &done;
    while (sh_disk_submit(disk, &op) == SHOAL_EAGAIN)
        (void)sh_disk_poll(disk, true);
    while (!done)
        assert_true(sh_disk_poll(disk, true) > 0);
    assert_int_equal(op.err, SHOAL_OK);
}

/* Spoils a file of a superpeer whose process is up but idle. */
static void spoil(struct host *host, const char *name)
{
    struct sh_disk *disk = sh_world_env(host->cluster->world, host->node)->disk;
    uint8_t junk[8] = "spoiled!";
    int file;
    assert_int_equal(sh_disk_open(disk, name, false, &file), SHOAL_OK);
    do_now(disk, (struct sh_disk_op){
                     .kind = SH_DISK_WRITE, .file = file, .offset = 16, .data = junk, .size = 8});
    do_now(disk, (struct sh_disk_op){.kind = SH_DISK_SYNC, .file = file});
    disk->ops->close(disk, file);
}

static void spoiled_registry(void **state)
{
    (void)state;
    static const char *const names[] = {"registry.0", "registry.1"};
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *peer = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    shoal_nid nid = nid_of(peer);
    for (unsigned i = 0; i < 2; i++) {
        run_for(&cluster, FAILURE / 4);
        spoil(&cluster.hosts[0], names[i]);
        sh_world_crash(cluster.world, 0);
        sh_world_restart(cluster.world, 0);
        assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK); /* from the other one */
        assert_true(state_in(&cluster.hosts[0], nid) >= 0);
    }
    run_for(&cluster, FAILURE / 4);
    spoil(&cluster.hosts[0], names[0]);
    spoil(&cluster.hosts[0], names[1]);
    sh_world_crash(cluster.world, 0);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_ECORRUPT);
    assert_null(cluster.hosts[0].superpeer);
    cluster_close(&cluster);
}

/* What can't be stored is not promised; once it can be, the join goes through by itself. */
static void broken_disk(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct sh_disk_faults faults = {.write_err_ppm = 1000000};
    sh_world_disk_faults_set(cluster.world, &faults);
    struct host *peer = host_start(host_add(&cluster, PEER));
    run_for(&cluster, 5 * S);
    assert_false(sh_member_joined(peer->member));
    faults.write_err_ppm = 0;
    sh_world_disk_faults_set(cluster.world, &faults);
    assert_joined(&cluster, 10 * S);
    shoal_nid nid = nid_of(peer);
    sh_world_crash(cluster.world, 0);
    sh_world_restart(cluster.world, 0);
    assert_int_equal(cluster.hosts[0].boot_err, SHOAL_OK);
    assert_true(state_in(&cluster.hosts[0], nid) >= 0);
    cluster_close(&cluster);
}

static void two_superpeers(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 2, true);
    struct host *first = host_start(host_add(&cluster, PEER));
    assert_joined(&cluster, 5 * S);
    /* With the first superpeer away, the second one takes a node into its own arc. */
    assert_int_equal(sh_arc_superpeer(nid_of(first), 2).v, 1);
    sh_world_crash(cluster.world, 0);
    run_for(&cluster, 2 * FAILURE);
    assert_int_equal(state_in(&cluster.hosts[1], (shoal_nid){1}), SH_NODE_FAILED);
    assert_int_equal(state_in(&cluster.hosts[1], nid_of(first)), SH_NODE_UP);
    struct host *second = host_start(host_add(&cluster, PEER));
    run_for(&cluster, 2 * S);
    assert_true(sh_member_joined(second->member));
    assert_int_equal(sh_arc_superpeer(nid_of(second), 2).v, 2);
    sh_world_restart(cluster.world, 0);
    assert_seen(&cluster, (shoal_nid){1}, SH_NODE_UP, 5 * S);
    assert_joined(&cluster, 5 * S);
    assert_int_equal(locate(first, shoal_cid_make(nid_of(second), 1)).err, SHOAL_OK);
    assert_int_equal(locate(second, shoal_cid_make(nid_of(first), 1)).err, SHOAL_OK);
    assert_int_equal(locate(second, shoal_cid_make((shoal_nid){70}, 1)).err, SHOAL_ENOCHUNK);
    assert_int_equal(locate(second, shoal_cid_make((shoal_nid){0xDFFF}, 1)).err, SHOAL_ENOCHUNK);
    shoal_nid gone = nid_of(second);
    sh_world_crash(cluster.world, second->node);
    assert_seen(&cluster, gone, SH_NODE_FAILED, 5 * S);
    run_for(&cluster, FAILURE);
    uint64_t epoch = sh_directory_epoch(first->directory);
    run_for(&cluster, 5 * FAILURE);
    assert_int_equal(sh_directory_epoch(first->directory), epoch); /* nothing happens: no change */
    cluster_close(&cluster);
}

static void refused_clients(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_open(&cluster, 1, true);
    struct host *client = host_add(&cluster, CLIENT);
    client->secret = "another secret!!";
    host_start(client);
    struct outcome outcome;
    bootstrap(client, &outcome, "node0:1", "node7:1"); /* the more telling error wins */
    assert_int_equal(outcome.err, SHOAL_ESECRET);
    bootstrap(client, &outcome, "node7:1", "node0:1");
    assert_int_equal(outcome.err, SHOAL_ESECRET);
    assert_non_null(strstr(outcome.detail, "node0:1"));
    bootstrap(client, &outcome, "node7:1", NULL);
    assert_int_equal(outcome.err, SHOAL_EUNREACHABLE);
    cluster_close(&cluster);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    const char *levels = getenv("SHOAL_TEST_LOG");
    if (sh_log_levels_set(levels ? levels : "error", &bad, &bad_len))
        return 1;
    struct sh_random random = sh_real_random();
    const char *given = getenv("SHOAL_TEST_SEED");
    seed = given ? strtoull(given, NULL, 0) : sh_random64(&random) >> 16;
    print_message("seed %" PRIu64 " (SHOAL_TEST_SEED)\n", seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(join_lookup_leave),
        cmocka_unit_test(lookups_together),
        cmocka_unit_test(failure_by_lost_connection),
        cmocka_unit_test(cut_is_no_failure),
        cmocka_unit_test(failure_by_silence),
        cmocka_unit_test(stopped_superpeer_blames_nobody),
        cmocka_unit_test_prestate(restarted_superpeer_with_or_without_disk, &seed),
        cmocka_unit_test(restarted_superpeer_with_or_without_disk),
        cmocka_unit_test(crashes_lose_no_member),
        cmocka_unit_test(spoiled_registry),
        cmocka_unit_test(broken_disk),
        cmocka_unit_test(two_superpeers),
        cmocka_unit_test(refused_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
