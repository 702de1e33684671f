/* A cluster in a simulated world for cluster_test.c: hosts that boot, are asked, and end. */
#ifndef TESTS_CLUSTER_RIG_INT_H
#define TESTS_CLUSTER_RIG_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/member.h"
#include "cluster/proto.h"
#include "cluster/recruit.h"
#include "cluster/report.h"
#include "journal/journal.h"
#include "sim/world.h"
#include "superpeer/superpeer.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define HEARTBEAT (100 * MS)
#define FAILURE (1 * S)
#define NODES_MAX 12

static uint64_t seed;
static uint64_t forget_ns; /* the next world's superpeers' */
static uint32_t peer_nids; /* the same: how many IDs there are for peers; 0: all */
static bool slow_links;    /* the next world's links take long, and are given up late */

enum kind { SUPERPEER, PEER, CLIENT };

struct cluster;
struct host;
static void (*on_superpeer_boot)(struct host *host); /* before a superpeer is made; NULL: nothing */

struct host {
    struct cluster *cluster;
    unsigned node;
    enum kind kind;
    uint16_t index;      /* superpeer: its place */
    bool is_recruit;     /* superpeer: not of the first list */
    uint64_t failure_ns; /* peer: what it was given; 0: FAILURE */
    bool is_refusing;    /* peer: nobody listens at the address that it gives */
    bool is_unconfirmed; /* peer: its disk does not say yet that its life was admitted */
    const char *hint; /* superpeer: the only address that it knows; NULL: all of the first list */
    struct sh_recruit *recruit;
    bool is_dismissed;
    bool has_disk;
    bool forgets; /* superpeer: its disk is empty at the next boot */
    const char *secret;
    uint32_t cache_ranges_max; /* of its lookups; 0: 2 */
    enum shoal_err boot_err;
    struct sh_msg *msg;
    struct sh_superpeer *superpeer;
    struct sh_directory *directory;
    struct sh_member *member;
    unsigned joins, failures;
    enum shoal_err failure; /* why its life ended; OK: it lives */
    unsigned fences; /* lives of it that were declared failed, each of which another one follows */
    uint64_t instance;
    struct { /* peer: what its next life has of the former one, as on a disk */
        shoal_nid nid;
        uint64_t cluster;
    } former;
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

static bool is_confirmed(void *arg)
{
    const struct host *host = arg;
    return !host->is_unconfirmed;
}

/* Its next life begins, as in shoald. */
static void renew(void *arg, uint64_t instance, uint64_t unused)
{
    struct host *host = arg;
    (void)unused;
    if (!host->member || host->instance != instance)
        return; /* the test has done so */
    host->former.nid = sh_msg_nid(host->msg);
    host->former.cluster = sh_member_cluster(host->member);
    host->failure = SHOAL_OK;
    host->fences++;
    sh_world_crash(host->cluster->world, host->node);
    sh_world_restart(host->cluster->world, host->node);
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct host *host = arg;
    struct sh_world *world = host->cluster->world;
    host->failures++;
    host->failure = err;
    if (err == SHOAL_EFENCED)
        sh_world_at(world, sh_world_now(world), renew, host, host->instance, 0);
}

static void on_dismissed(void *arg)
{
    struct host *host = arg;
    host->is_dismissed = true;
}

static void superpeer_open(struct host *host, const struct sh_env *env, const char *address,
                           uint16_t index, const struct sh_view *recruited)
{
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .address = address,
                                         .addresses = host->cluster->superpeers,
                                         .count = host->cluster->superpeer_count,
                                         .index = index,
                                         .recruited = recruited,
                                         .instance = sh_random64(&env->random) | 1,
                                         .heartbeat_ns = HEARTBEAT,
                                         .failure_ns = FAILURE,
                                         .forget_ns = forget_ns,
                                         .peer_nids = peer_nids,
                                         .on_dismissed = on_dismissed,
                                         .arg = host};
    if (!host->has_disk)
        config.env.disk = NULL;
    if (host->hint) {
        config.addresses = &host->hint;
        config.count = 1;
    }
    sh_msg_nid_set(host->msg, (shoal_nid){(uint16_t)(index + 1)});
    host->boot_err = sh_superpeer_create(&config, &host->superpeer);
}

/* The step of a superpeer, or before it is one, of the recruit. */
static struct sh_step superpeer_part(struct host *host)
{
    if (host->superpeer)
        return sh_superpeer_step(host->superpeer);
    return host->recruit ? sh_recruit_step(host->recruit) : (struct sh_step){.run = NULL};
}

static unsigned superpeer_run(void *arg)
{
    struct sh_step step = superpeer_part(arg);
    return step.run ? step.run(step.arg) : 0;
}

static uint64_t superpeer_due(void *arg)
{
    struct sh_step step = superpeer_part(arg);
    return step.run ? step.due_ns(step.arg) : SH_NEVER;
}

static void on_recruited(void *arg, shoal_nid nid, const struct sh_view *view)
{
    struct host *host = arg;
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", host->node);
    superpeer_open(host, sh_world_env(host->cluster->world, host->node), address,
                   (uint16_t)(nid.v - 1), view);
}

static void boot_superpeer(struct host *host, const struct sh_env *env)
{
    uint16_t index = host->index;
    struct sh_step step = {
        .name = "superpeer", .run = superpeer_run, .due_ns = superpeer_due, .arg = host};
    sh_world_step_add(host->cluster->world, host->node, step);
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", host->node);
    if (host->forgets)
        sh_journal_remove(env);
    host->forgets = false;
    if (on_superpeer_boot)
        on_superpeer_boot(host);
    enum shoal_err err = host->has_disk ? sh_superpeer_stored(env, &index) : SHOAL_ENONAME;
    if (err && err != SHOAL_ENONAME) {
        host->boot_err = err;
        return;
    }
    if (!host->is_recruit || !err) {
        superpeer_open(host, env, address, index, NULL);
        return;
    }
    struct sh_recruit_config config = {.msg = host->msg,
                                       .env = *env,
                                       .addresses = host->cluster->superpeers,
                                       .count = host->cluster->superpeer_count,
                                       .address = address,
                                       .instance = sh_random64(&env->random) | 1,
                                       .failure_ns = FAILURE,
                                       .on_done = on_recruited,
                                       .arg = host};
    if (!host->has_disk)
        config.env.disk = NULL;
    if (host->hint) {
        config.addresses = &host->hint;
        config.count = 1;
    }
    assert_int_equal(sh_recruit_create(&config, &host->recruit), SHOAL_OK);
}

static const struct sh_traits rig_traits = {.keeps_replicas = true, .domains = {"", "rig", ""}};

static void boot_member(struct host *host, const struct sh_env *env, const char *address)
{
    host->instance = host->former.nid.v ? host->instance + (UINT64_C(1) << 32) /* one start more */
                                        : sh_random64(&env->random) | 1;
    struct sh_member_config config = {.msg = host->msg,
                                      .directory = host->directory,
                                      .env = *env,
                                      .superpeers = host->cluster->superpeers,
                                      .superpeer_count = host->cluster->superpeer_count,
                                      .address = address,
                                      .traits = rig_traits,
                                      .instance = host->instance,
                                      .nid = host->former.nid,
                                      .cluster = host->former.cluster,
                                      .heartbeat_ns = HEARTBEAT,
                                      .failure_ns = host->failure_ns ? host->failure_ns : FAILURE,
                                      .on_joined = on_joined,
                                      .on_failed = on_failed,
                                      .is_confirmed = is_confirmed,
                                      .arg = host};
    memset(&host->former, 0, sizeof host->former);
    assert_int_equal(sh_member_create(&config, &host->member), SHOAL_OK);
    sh_world_step_add(host->cluster->world, host->node, sh_member_step(host->member));
}

static void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct host *host = arg;
    host->node = node;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_msg_config config = {
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
    char elsewhere[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", node);
    (void)snprintf(elsewhere, sizeof elsewhere, "node%u:9", node);
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
    if (host->cache_ranges_max)
        known.cache_ranges_max = host->cache_ranges_max;
    assert_int_equal(sh_directory_create(&known, &host->directory), SHOAL_OK);
    if (host->kind == PEER)
        boot_member(host, env, host->is_refusing ? elsewhere : bound);
}

static void host_drop(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    struct host *host = arg;
    if (!host->msg)
        return; /* it has ended in order before */
    sh_member_destroy(host->member);
    sh_superpeer_destroy(host->superpeer);
    sh_recruit_destroy(host->recruit);
    sh_directory_destroy(host->directory);
    host->recruit = NULL;
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
    struct sh_world_config config = {
        .seed = seed,
        .wire = {.delay_ns_min = slow_links ? 10 * MS : MS / 20,
                 .delay_ns_max = slow_links ? 20 * MS : MS / 2,
                 .piece_ppm = 100000,
                 .lost_ns_max = 5 * MS,
                 .give_up_ns_max = slow_links ? 20 * FAILURE : FAILURE / 10,
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

static inline void run_for(struct cluster *cluster, uint64_t ns)
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
    if (host->kind == SUPERPEER && !host->superpeer)
        return -1;
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
            (host->member && host->failure) || host->is_dismissed)
            continue;
        if (state_in(host, seen->nid) != seen->state)
            return false;
    }
    return true;
}

static inline void assert_seen(struct cluster *cluster, shoal_nid nid, int state,
                               uint64_t within_ns)
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

static inline void bootstrap(struct host *client, struct outcome *outcome, const char *first,
                             const char *second)
{
    *outcome = (struct outcome){.done = false};
    struct sh_directory_op op = {.done = on_view_op, .arg = outcome};
    const char *addresses[] = {first, second};
    sh_directory_bootstrap(client->directory, addresses, second ? 2 : 1, &op);
    assert_true(run_until(client->cluster, is_done, outcome, 10 * S));
}

static inline struct outcome refresh(struct host *host)
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

/* Locates a chunk; asks again while a shard changes hands, as programs do. */
static inline struct outcome locate(struct host *host, shoal_cid cid)
{
    struct outcome outcome;
    for (unsigned again = 0; again < 100; again++) {
        outcome = (struct outcome){.done = false};
        struct sh_locate op = {.done = on_located, .arg = &outcome};
        sh_directory_locate(host->directory, cid, &op);
        assert_true(run_until(host->cluster, is_done, &outcome, 10 * S));
        if (outcome.err != SHOAL_EBUSY)
            break;
        run_for(host->cluster, 10 * MS);
    }
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

static inline void leave(struct host *host)
{
    sh_member_leave(host->member, 0, on_left, host);
    assert_true(run_until(host->cluster, has_left, host, 10 * S));
}

struct reported {
    struct sh_request request;
    bool done;
    enum shoal_err err;
    struct sh_report report;
};

static inline void on_reported(struct sh_request *request, enum shoal_err err,
                               struct sh_reader *payload)
{
    struct reported *reported = request->arg;
    reported->done = true;
    reported->err = err ? err : sh_report_get(payload, &reported->report);
}

static inline bool is_reported(void *arg)
{
    return ((struct reported *)arg)->done;
}

/* What a superpeer says of itself; NULL: it did not answer. */
static inline const struct sh_report *report_of(struct host *asker, shoal_nid nid)
{
    static struct reported reported;
    struct sh_out out;
    reported = (struct reported){.done = false};
    reported.request = (struct sh_request){.done = on_reported, .arg = &reported, .timeout_ns = S};
    reported.err = sh_msg_request(asker->msg, nid, SH_CLUSTER_REPORT, 0, &reported.request, &out);
    if (reported.err)
        return NULL;
    sh_msg_end(asker->msg, &out);
    assert_true(run_until(asker->cluster, is_reported, &reported, 10 * S));
    return reported.err ? NULL : &reported.report;
}

/* The superpeer that leads, from 0 on. */
static inline unsigned leader_of(struct cluster *cluster)
{
    for (unsigned i = 0; i < 1000; i++) {
        unsigned at = i % cluster->superpeer_count;
        struct host *other = &cluster->hosts[(at + 1) % cluster->superpeer_count];
        const struct sh_report *report = report_of(other, (shoal_nid){(uint16_t)(at + 1)});
        if (report && report->role == SH_REPORT_LEADER)
            return at;
        run_for(cluster, HEARTBEAT / 10);
    }
    fail_msg("seed %" PRIu64 ": nobody leads", seed);
    return 0;
}

#endif
