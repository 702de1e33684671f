/* A large cluster of whole peers is restarted, a part of it at a time, five times over: each peer keeps
 * its ID, all know the same nodes in the end, no name is lost, and it takes no flood of messages.
 *
 * SHOAL_TEST_PEERS: how many (default 200, up to 1000, for a run by hand). */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "node/identity.h"
#include "node/leased.h"
#include "sim/parts.h"
#include "tests/seed_int.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define SUPERPEERS 3
#define PEERS_USUAL 200
#define PEERS_MAX 1000
#define HOSTS_MAX (SUPERPEERS + PEERS_MAX)
#define AT_ONCE 50u /* peers that are restarted together */
#define ROUNDS 5
#define HEARTBEAT S
#define FAILURE (10 * S)
#define CHUNKS 4
#define NAMES 40
/* Of superpeers, to each node, a second: heartbeats' answers are one or two. */
#define MESSAGES_MOST 15
/* For each restart: in all, and for each node. */
#define BYTES_LEAST 10000
#define BYTES_MOST 150

struct host {
    struct restarts *all;
    unsigned node;
    uint16_t nid; /* the first that it had */
    unsigned boots;
    struct sh_msg *msg;
    struct sh_superpeer *superpeer;
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_identity *identity;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
};

struct restarts {
    struct sh_world *world;
    unsigned peers, count; /* hosts: superpeers, then peers */
    struct host *hosts;
    char addresses[SUPERPEERS][SH_MSG_ADDRESS_MAX];
    const char *superpeers[SUPERPEERS];
    unsigned failed; /* peers that were told that they are no members */
};

/* --- Nodes ------------------------------------------------------------------------------------ */

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct host *host = arg;
    if (host->superpeer)
        sh_superpeer_link_event(host->superpeer, event);
    if (host->member)
        sh_member_link_event(host->member, event);
    if (host->locks)
        sh_locks_link_event(host->locks, event);
}

static void on_joined(void *arg, shoal_nid nid)
{
    struct host *host = arg;
    if (!host->nid)
        host->nid = nid.v;
    assert_int_equal(host->nid, nid.v);
    sh_identity_joined(host->identity, nid, sh_member_cluster(host->member));
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct host *host = arg;
    sh_locks_view(host->locks, view);
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct host *host = arg;
    host->all->failed += err != SHOAL_OK;
}

static void boot_superpeer(struct host *host, const struct sh_env *env)
{
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .address = host->all->superpeers[host->node],
                                         .addresses = host->all->superpeers,
                                         .count = SUPERPEERS,
                                         .index = (uint16_t)host->node,
                                         .instance = sh_random64(&env->random) | 1,
                                         .heartbeat_ns = HEARTBEAT,
                                         .failure_ns = FAILURE,
                                         .arg = host};
    assert_int_equal(sh_superpeer_create(&config, &host->superpeer), SHOAL_OK);
    sh_world_step_add(host->all->world, host->node, sh_superpeer_step(host->superpeer));
}

static bool is_confirmed(void *arg)
{
    const struct host *host = arg;
    return sh_identity_is_confirmed(host->identity);
}

/* Each process of a peer is in another rack than the one before it. */
static struct sh_traits traits_of(const struct host *host)
{
    struct sh_traits traits = {.keeps_replicas = host->node % 2};
    (void)snprintf(traits.domains[SH_DOMAIN_RACK], SH_DOMAIN_NAME_MAX, "r%u",
                   (host->node + host->boots) % 7);
    return traits;
}

static void boot_peer(struct host *host, const struct sh_env *env, const char *address)
{
    struct sh_world *world = host->all->world;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    char detail[256];
    sh_sim_parts_hold(&parts, env, 4096);
    assert_int_equal(sh_identity_open(env, "test", host->store, &host->identity, detail), SHOAL_OK);
    host->boots++;
    struct sh_member_config config = {.msg = host->msg,
                                      .directory = host->directory,
                                      .env = *env,
                                      .superpeers = host->all->superpeers,
                                      .superpeer_count = SUPERPEERS,
                                      .address = address,
                                      .traits = traits_of(host),
                                      .instance = sh_identity_life(host->identity),
                                      .nid = sh_identity_nid(host->identity),
                                      .cluster = sh_identity_cluster(host->identity),
                                      .heartbeat_ns = HEARTBEAT,
                                      .failure_ns = FAILURE,
                                      .on_joined = on_joined,
                                      .on_view = on_view,
                                      .on_failed = on_failed,
                                      .is_confirmed = is_confirmed,
                                      .arg = host};
    assert_int_equal(sh_member_create(&config, &host->member), SHOAL_OK);
    sh_node_leased_types_set(host->msg);
    sh_world_step_add(world, host->node, sh_member_step(host->member));
    sh_world_step_add(world, host->node, sh_identity_step(host->identity));
    sh_world_step_add(world, host->node, sh_locks_step(host->locks));
    sh_world_step_add(world, host->node, sh_moves_step(host->moves));
}

static void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct host *host = arg;
    bool is_superpeer = node < SUPERPEERS;
    host->node = node;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    struct sh_msg_config config = sh_sim_msg_config(env);
    char bound[SH_MSG_ADDRESS_MAX];
    config.nid.v = is_superpeer ? (uint16_t)(node + 1) : 0;
    config.connections_max = is_superpeer ? 2 * HOSTS_MAX : 64;
    config.requests_max = is_superpeer ? 4096 : 64;
    config.on_event = on_event;
    config.arg = host;
    sh_sim_parts_talk(&parts, &config, world, node, bound);
    if (is_superpeer) {
        boot_superpeer(host, env);
        return;
    }
    sh_sim_parts_know(&parts, env, false);
    boot_peer(host, env, bound);
}

static void drop(void *arg, struct sh_world *world, unsigned node)
{
    struct host *host = arg;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    (void)world;
    (void)node;
    sh_identity_close(host->identity);
    host->identity = NULL;
    if (host->msg)
        sh_sim_parts_drop(&parts, false);
}

static struct restarts *restarts_open(uint64_t seed, unsigned peers)
{
    struct restarts *all = calloc(1, sizeof *all);
    assert_non_null(all);
    all->peers = peers;
    all->count = SUPERPEERS + peers;
    all->hosts = calloc(HOSTS_MAX, sizeof *all->hosts);
    assert_non_null(all->hosts);
    struct sh_world_config config = {.seed = seed,
                                     .wire = {.delay_ns_min = MS / 20,
                                              .delay_ns_max = MS / 2,
                                              .lost_ns_max = 5 * MS,
                                              .give_up_ns_max = FAILURE / 10,
                                              .window_bytes_min = 65536,
                                              .window_bytes_max = 65536},
                                     .disk = {.delay_ns_min = MS / 10, .delay_ns_max = MS}};
    all->world = sh_world_create(&config);
    for (unsigned i = 0; i < SUPERPEERS; i++) {
        (void)snprintf(all->addresses[i], sizeof all->addresses[i], "node%u:1", i);
        all->superpeers[i] = all->addresses[i];
    }
    for (unsigned i = 0; i < all->count; i++) {
        all->hosts[i].all = all;
        struct sh_world_node node = {.boot = boot, .crash = drop, .arg = &all->hosts[i]};
        (void)sh_world_node_add(all->world, &node);
    }
    return all;
}

static void restarts_close(struct restarts *all)
{
    for (unsigned i = 0; i < all->count; i++)
        drop(&all->hosts[i], all->world, i);
    sh_world_destroy(all->world);
    free(all->hosts);
    free(all);
}

/* --- Names ------------------------------------------------------------------------------------ */

struct asked {
    struct sh_request request;
    bool is_done, is_update;
    enum shoal_err err, result;
    shoal_nid owner; /* who is to be asked instead; 0: it was the right one */
    shoal_cid cid;
};

static void on_asked(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->is_done = true;
    asked->err = err;
    if (err)
        return;
    asked->owner.v = sh_get16(payload);
    if (asked->is_update) {
        asked->result = (enum shoal_err)sh_get16(payload);
        (void)sh_get8(payload);
    }
    if (asked->is_update || !asked->owner.v)
        asked->cid.v = sh_get64(payload);
}

static bool asked_is_done(void *arg)
{
    return ((struct asked *)arg)->is_done;
}

static void question_put(struct sh_writer *w, struct sh_bytes name)
{
    sh_put8(w, SH_ASK_NAME);
    sh_put8(w, 0);
    sh_put32(w, 0);
    for (unsigned i = 0; i < 3; i++)
        sh_put64(w, 0);
    sh_put_text(w, name);
    sh_put16(w, 0);
}

/* Gives a name (cid), or asks whose it is (0), of one superpeer. */
static void ask(struct restarts *all, shoal_nid to, struct sh_bytes name, uint64_t cid,
                struct asked *asked)
{
    struct host *asker = &all->hosts[SUPERPEERS];
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_metadata_update update = {
        .kind = SH_METADATA_NAME, .condition = SH_NAME_ANY, .cid = {cid}, .name = name};
    if (cid)
        sh_metadata_update_put(&w, &update);
    else
        question_put(&w, name);
    size_t size = (size_t)(w.at - bytes);
    struct sh_out out;
    *asked = (struct asked){.is_update = cid != 0};
    asked->request = (struct sh_request){.done = on_asked, .arg = asked, .timeout_ns = S};
    asked->err = sh_msg_request(asker->msg, to, cid ? SH_CLUSTER_METADATA : SH_CLUSTER_ASK, size,
                                &asked->request, &out);
    if (asked->err)
        return;
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(asker->msg, &out);
    assert_true(
        sh_world_run_until(all->world, asked_is_done, asked, sh_world_now(all->world) + 10 * S));
}

/* Until one answers: each superpeer in turn, and whom it names. */
static uint64_t name_do(struct restarts *all, unsigned number, uint64_t cid)
{
    static struct asked asked;
    char text[16];
    struct sh_bytes name =
        sh_bytes_make(text, (size_t)snprintf(text, sizeof text, "name %u", number));
    for (unsigned i = 0; i < 60; i++) {
        ask(all, (shoal_nid){(uint16_t)(i % SUPERPEERS + 1)}, name, cid, &asked);
        for (unsigned hops = 0; !asked.err && asked.owner.v && hops < 3; hops++)
            ask(all, asked.owner, name, cid, &asked);
        if (!asked.err && !asked.owner.v && !asked.result)
            return asked.cid.v;
        if (asked.err == SHOAL_ENONAME)
            return 0;
        (void)sh_world_run_until(all->world, NULL, NULL, sh_world_now(all->world) + S / 5);
    }
    fail_msg("nobody answers for a name: %s", shoal_err_name(asked.err));
    return 0;
}

static void names_are_there(struct restarts *all)
{
    for (unsigned i = 0; i < NAMES; i++)
        assert_true(name_do(all, i, 0) == i + 1);
}

/* --- Views ------------------------------------------------------------------------------------ */

struct part {
    struct restarts *all;
    unsigned first, count;
};

static bool has_joined(void *arg)
{
    struct part *part = arg;
    for (unsigned i = part->first; i < part->first + part->count; i++) {
        if (!sh_member_joined(part->all->hosts[i].member))
            return false;
    }
    return true;
}

/* All know the view that the superpeers have, in which all are up. */
static bool all_agree(void *arg)
{
    struct restarts *all = arg;
    const struct sh_view *view = sh_superpeer_view(all->hosts[0].superpeer);
    for (unsigned i = 1; i < all->count; i++) {
        struct host *host = &all->hosts[i];
        uint64_t epoch = host->superpeer ? sh_superpeer_view(host->superpeer)->epoch
                                         : sh_directory_epoch(host->directory);
        if (epoch != view->epoch)
            return false;
    }
    for (size_t i = 0; i < view->count; i++) {
        if (view->nodes[i].state != SH_NODE_UP)
            return false;
    }
    return view->count == all->count;
}

static void views_are_the_same(struct restarts *all)
{
    static struct sh_node nodes[HOSTS_MAX + 1];
    const struct sh_view *view = sh_superpeer_view(all->hosts[0].superpeer);
    for (unsigned i = SUPERPEERS; i < all->count; i++) {
        size_t count = sh_directory_nodes(all->hosts[i].directory, nodes, HOSTS_MAX + 1);
        assert_int_equal(count, view->count);
        for (size_t k = 0; k < count; k++) {
            assert_int_equal(nodes[k].nid.v, view->nodes[k].nid.v);
            assert_true(nodes[k].instance == view->nodes[k].instance);
            assert_string_equal(nodes[k].address, view->nodes[k].address);
            assert_true(sh_traits_are_equal(&nodes[k].traits, &view->nodes[k].traits));
        }
        struct sh_traits own = traits_of(&all->hosts[i]);
        const struct sh_node *node = sh_view_find(view, (shoal_nid){all->hosts[i].nid});
        assert_true(node && sh_traits_are_equal(&node->traits, &own));
    }
}

static void disagree(struct restarts *all)
{
    const struct sh_view *view = sh_superpeer_view(all->hosts[0].superpeer);
    unsigned behind = 0, up = 0;
    for (unsigned i = 1; i < all->count; i++) {
        struct host *host = &all->hosts[i];
        behind += (host->superpeer ? sh_superpeer_view(host->superpeer)->epoch
                                   : sh_directory_epoch(host->directory)) != view->epoch;
    }
    for (size_t i = 0; i < view->count; i++)
        up += view->nodes[i].state == SH_NODE_UP;
    fail_msg("at %" PRIu64 " s %u of %zu nodes are up in epoch %" PRIu64
             ", which %u nodes do not know",
             sh_world_now(all->world) / S, up, view->count, view->epoch, behind);
}

static void agree(struct restarts *all, uint64_t within_ns)
{
    if (!sh_world_run_until(all->world, all_agree, all, sh_world_now(all->world) + within_ns))
        disagree(all);
    views_are_the_same(all);
    assert_int_equal(all->failed, 0);
}

/* --- Restarts --------------------------------------------------------------------------------- */

static void restart(struct restarts *all, unsigned first, unsigned count)
{
    struct part part = {all, first, count};
    for (unsigned i = first; i < first + count; i++)
        sh_world_crash(all->world, i);
    (void)sh_world_run_until(all->world, NULL, NULL, sh_world_now(all->world) + 100 * MS);
    for (unsigned i = first; i < first + count; i++)
        sh_world_restart(all->world, i);
    if (first >= SUPERPEERS &&
        !sh_world_run_until(all->world, has_joined, &part, sh_world_now(all->world) + 60 * S))
        fail_msg("peers that were restarted do not join");
}

static struct sh_msg_stats sum_of(const struct restarts *all)
{
    struct sh_msg_stats sum = {0};
    for (unsigned i = 0; i < SUPERPEERS; i++) {
        struct sh_msg_stats stats;
        sh_msg_stats_get(all->hosts[i].msg, &stats);
        sum.messages_in += stats.messages_in;
        sum.messages_out += stats.messages_out;
        sum.bytes_in += stats.bytes_in;
        sum.bytes_out += stats.bytes_out;
    }
    return sum;
}

/* Restarts all peers. For one that is restarted superpeers send it the view, and each of the others
 * what has become of it, with the answers to their heartbeats: not a message for each. */
static void restart_peers(struct restarts *all)
{
    struct sh_msg_stats before = sum_of(all), after;
    uint64_t began_ns = sh_world_now(all->world);
    for (unsigned first = SUPERPEERS; first < all->count; first += AT_ONCE)
        restart(all, first, all->count - first < AT_ONCE ? all->count - first : AT_ONCE);
    agree(all, 10 * S);
    after = sum_of(all);
    uint64_t past_s = (sh_world_now(all->world) - began_ns) / S + 1;
    uint64_t messages = (after.messages_out - before.messages_out) / (past_s * all->count);
    uint64_t bytes = (after.bytes_out - before.bytes_out) / all->peers;
    print_message("%" PRIu64 " virtual s: superpeers sent each node %" PRIu64
                  " messages a second, and %" PRIu64 " bytes for each peer that was restarted\n",
                  past_s, messages, bytes);
    assert_true(messages <= MESSAGES_MOST);
    assert_true(bytes <= BYTES_LEAST + all->count * BYTES_MOST);
}

/* How many peers; at least as many as are restarted together. */
static unsigned peers_wanted(void)
{
    const char *text = getenv("SHOAL_TEST_PEERS");
    unsigned long peers = text && *text ? strtoul(text, NULL, 0) : PEERS_USUAL;
    return peers < AT_ONCE ? AT_ONCE : peers > PEERS_MAX ? PEERS_MAX : (unsigned)peers;
}

static void ids_and_names_stay(void **state)
{
    (void)state;
    struct restarts *all = restarts_open(test_seed_fresh(), peers_wanted());
    struct part peers = {all, SUPERPEERS, all->peers};
    assert_true(sh_world_run_until(all->world, has_joined, &peers, 60 * S));
    agree(all, 20 * S);
    for (unsigned i = 0; i < NAMES; i++)
        (void)name_do(all, i, i + 1);
    for (unsigned round = 0; round < ROUNDS; round++) {
        restart_peers(all);
        restart(all, round % SUPERPEERS, 1);
        agree(all, 20 * S);
        names_are_there(all);
    }
    restarts_close(all);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_names_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
