/* The nodes of a simulated cluster: how they boot, and how they die. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/identity.h"
#include "node/leased.h"
#include "sim/cluster_world_int.h"
#include "sim/parts.h"
#include "sim/world_int.h"

#define SOON_NS (10 * CW_MS)

static void must(enum shoal_err err)
{
    SH_ASSERT(err == SHOAL_OK);
}

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct cw_host *host = arg;
    if (host->superpeer)
        sh_superpeer_link_event(host->superpeer, event);
    if (host->member)
        sh_member_link_event(host->member, event);
    if (host->directory && !host->is_dropping && event->kind == SH_MSG_LOST)
        sh_directory_suspect(host->directory, event->nid);
    if (host->locks)
        sh_locks_link_event(host->locks, event);
}

static void on_member_view(void *arg, const struct sh_view *view)
{
    struct cw_host *host = arg;
    sh_locks_view(host->locks, view);
    cw_view_seen(host, view);
}

static void on_superpeer_view(void *arg, const struct sh_view *view)
{
    cw_view_seen(arg, view);
}

static void on_member_failed(void *arg, enum shoal_err err)
{
    struct cw_host *host = arg;
    cw_tell(host->world, host->node, "was called failed(error)", (uint64_t)err, 0);
}

/* Whether a superpeer has said of a disk that fails, is full or is damaged that it can't start on it. */
static bool is_refused(struct cw_host *host, enum shoal_err err)
{
    if (err == SHOAL_ECORRUPT || err == SHOAL_EVERSION)
        return cw_flip_mend(host);
    bool is_told = err == SHOAL_EIO || err == SHOAL_ENOSPC;
    return is_told && sh_world_disk_trouble(host->world->sim, host->node) != SH_DISK_WELL;
}

/* Its process has ended, and is started again, as a supervisor does. */
static void on_again(void *arg, uint64_t boots, uint64_t unused)
{
    struct cw_host *host = arg;
    struct sh_world *sim = host->world->sim;
    (void)unused;
    if (host->boots != boots || !sh_world_is_up(sim, host->node))
        return;
    if (sh_world_is_paused(sim, host->node)) {
        sh_world_at(sim, sh_world_now(sim) + SOON_NS, on_again, host, boots, 0);
        return;
    }
    cw_host_leave(host);
    sh_world_restart(sim, host->node);
}

static void boot_superpeer(struct cw_host *host, const struct sh_env *env)
{
    struct cw_world *world = host->world;
    char servers[SH_ZOOKEEPER_MODEL_SERVERS_BYTES];
    sh_zookeeper_model_servers(host->node, servers);
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .address = world->superpeers[host->index],
                                         .addresses = world->superpeers,
                                         .count = (uint16_t)world->config.superpeers,
                                         .zookeeper = world->zookeeper ? servers : NULL,
                                         .index = host->index,
                                         .instance = sh_random64(&env->random) | 1,
                                         .heartbeat_ns = CW_FAILURE_NS / 10,
                                         .failure_ns = CW_FAILURE_NS,
                                         /* ZooKeeper's faults add to the others'. */
                                         .forget_ns = CW_FORGET_NS,
                                         .on_view = on_superpeer_view,
                                         .arg = host};
    if (world->config.flips)
        cw_flip(host);
    enum shoal_err err = sh_superpeer_create(&config, &host->superpeer);
    if (is_refused(host, err)) {
        sh_world_at(world->sim, sh_world_now(world->sim) + SOON_NS, on_again, host, host->boots, 0);
        return;
    }
    if (err) {
        cw_fail(world, "superpeer %u does not start again: %s", host->index, shoal_err_name(err));
        return;
    }
    host->flip.is_there = false; /* none that is needed */
    sh_world_step_add(world->sim, host->node, sh_superpeer_step(host->superpeer));
}

static void on_member_joined(void *arg, shoal_nid nid)
{
    struct cw_host *host = arg;
    sh_identity_joined(host->identity, nid, sh_member_cluster(host->member));
    sh_moves_joined(host->moves);
}

static bool is_confirmed(void *arg)
{
    const struct cw_host *host = arg;
    return sh_identity_is_confirmed(host->identity);
}

static void boot_peer(struct cw_host *host, const struct sh_env *env, const char *address)
{
    struct cw_world *world = host->world;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    sh_sim_parts_hold(&parts, env, CW_CHUNK_BYTES_MAX);
    char detail[256];
    enum shoal_err err = sh_identity_open(env, "test", host->store, &host->identity, detail);
    if (err) {
        cw_fail(world, "peer %u does not start again: %s: %s", host->index, shoal_err_name(err),
                detail);
        return;
    }
    host->instance = sh_identity_life(host->identity);
    host->ids_base = sh_store_ids_wanted(host->store) - 1;
    host->is_drained = host->is_empty = false;
    struct sh_member_config config = {.msg = host->msg,
                                      .directory = host->directory,
                                      .env = *env,
                                      .superpeers = world->superpeers,
                                      .superpeer_count = world->config.superpeers,
                                      .address = address,
                                      .instance = host->instance,
                                      .nid = sh_identity_nid(host->identity),
                                      .cluster = sh_identity_cluster(host->identity),
                                      .heartbeat_ns = CW_FAILURE_NS / 10,
                                      .failure_ns = CW_FAILURE_NS,
                                      .on_joined = on_member_joined,
                                      .on_view = on_member_view,
                                      .on_failed = on_member_failed,
                                      .is_confirmed = is_confirmed,
                                      .arg = host};
    must(sh_member_create(&config, &host->member));
    sh_node_leased_types_set(host->msg);
    sh_world_step_add(world->sim, host->node, sh_member_step(host->member));
    sh_world_step_add(world->sim, host->node, sh_identity_step(host->identity));
    sh_world_step_add(world->sim, host->node, sh_locks_step(host->locks));
    sh_world_step_add(world->sim, host->node, sh_moves_step(host->moves));
}

static void boot(void *arg, struct sh_world *sim, unsigned node)
{
    struct cw_host *host = arg;
    host->node = node;
    host->is_dropping = false;
    host->epoch = 0;
    host->boots++;
    if (host->kind == CW_PROGRAM) {
        cw_program_boot(host);
        return;
    }
    const struct sh_env *env = sh_world_env(sim, node);
    shoal_nid nid = cw_spare_nid(host, env);
    if (host->kind == CW_SUPERPEER)
        nid.v = (uint16_t)(host->index + 1);
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    struct sh_msg_config config = sh_sim_msg_config(env);
    config.nid = nid;
    config.connections_max = 128;
    config.on_event = on_event;
    config.arg = host;
    char bound[SH_MSG_ADDRESS_MAX];
    sh_sim_parts_talk(&parts, &config, sim, node, host->kind == CW_CLIENT ? NULL : bound);
    if (host->kind == CW_SUPERPEER) {
        boot_superpeer(host, env);
        return;
    }
    if (host->kind == CW_SPARE) {
        cw_spare_boot(host, env);
        return;
    }
    sh_sim_parts_know(&parts, env, host->kind == CW_CLIENT);
    if (host->kind == CW_PEER)
        boot_peer(host, env, bound);
    else
        cw_client_boot(host);
}

void cw_host_drop(struct cw_host *host)
{
    cw_program_drop(host);
    if (!host->msg)
        return;
    host->is_dropping = true;
    sh_zookeeper_model_crash(host->world->zookeeper, host->node);
    sh_recruit_destroy(host->recruit);
    host->recruit = NULL;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    sh_identity_close(host->identity);
    host->identity = NULL;
    sh_sim_parts_drop(&parts, host->kind == CW_CLIENT);
    free(host->numbers);
    host->numbers = NULL;
}

static void on_crash(void *arg, struct sh_world *sim, unsigned node)
{
    struct cw_host *host = arg;
    (void)sim;
    if (host->kind == CW_SPARE && !host->msg) /* it was dismissed, and has ended */
        return;
    cw_tell(host->world, node, "dies()", 0, 0);
    host->world->result->crashes++;
    if (host->kind == CW_PEER && !host->is_empty)
        cw_copies_lost(host);
    if (host->kind == CW_CLIENT)
        cw_client_crash(host);
    cw_host_drop(host);
}

void cw_host_leave(struct cw_host *host)
{
    sh_world_crash(host->world->sim, host->node);
    host->world->result->crashes--; /* it was no fault */
}

struct cw_host *cw_host_add(struct cw_world *world, enum cw_kind kind, uint16_t index)
{
    SH_ASSERT(world->count < CW_HOSTS_MAX);
    struct cw_host *host = &world->hosts[world->count++];
    *host = (struct cw_host){.world = world, .kind = kind, .index = index};
    /* Clocks that are right, a little wrong as real ones are, or broken. */
    static const int32_t drifts[] = {0, 100, 500, 10000};
    int32_t most = drifts[cw_below(world, 4)];
    struct sh_world_node node = {
        .clock_offset_ns = (int64_t)cw_below(world, 100 * CW_S) - (int64_t)(50 * CW_S),
        .clock_drift_ppm = (int32_t)cw_below(world, 2 * (uint64_t)most + 1) - most,
        .boot = boot,
        .crash = on_crash,
        .arg = host};
    (void)sh_world_node_add(world->sim, &node);
    return host;
}
