/* The nodes of a simulated cluster: how they boot, and how they die. */
#include <stdlib.h>

#include "base/assert.h"
#include "node/identity.h"
#include "sim/cluster_world_int.h"
#include "sim/parts.h"
#include "sim/world_int.h"

#define SOON_NS (10 * CW_MS)

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct cw_host *host = arg;
    if (host->directory && !host->is_dropping && event->kind == SH_MSG_LOST)
        sh_directory_suspect(host->directory, event->nid);
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

bool cw_host_has_superpeer(const struct cw_host *host)
{
    uint16_t index;
    return sh_superpeer_stored(sh_world_env(host->world->sim, host->node), &index) == SHOAL_OK;
}

static void boot_node(struct cw_host *host)
{
    struct cw_world *world = host->world;
    char detail[256];
    if (world->config.flips && host->kind != CW_SPARE)
        cw_flip(host);
    enum shoal_err err = cw_process_start(host, detail);
    if (is_refused(host, err)) {
        sh_world_at(world->sim, sh_world_now(world->sim) + SOON_NS, on_again, host, host->boots, 0);
        return;
    }
    if (err) {
        cw_fail(world, "host %u does not start again: %s: %s", host->node, shoal_err_name(err),
                detail);
        return;
    }
    host->flip.is_there = false; /* none that is needed */
    if (host->kind == CW_PEER)
        cw_host_lives(host);
    else
        host->is_drained = host->is_empty = false;
}

void cw_host_lives(struct cw_host *host)
{
    SH_ASSERT(host->kind == CW_PEER);
    CW_HOLDS(host->world, !cw_may_promote(host) || host->superpeer || !cw_host_has_superpeer(host),
             "peer %u has not started the superpeer that its disk has", host->index);
    host->is_drained = host->is_empty = false;
    host->instance = sh_identity_life(host->identity);
    host->ids_base = sh_store_ids_wanted(host->store) - 1;
}

void cw_host_stops(struct cw_host *host)
{
    cw_tell(host->world, host->node, "stops()", 0, 0);
    if (host->kind == CW_PEER && !host->is_empty)
        cw_copies_lost(host);
}

void cw_host_stopped(struct cw_host *host, enum shoal_err err)
{
    struct sh_world *sim = host->world->sim;
    cw_tell(host->world, host->node, "has stopped(error)", (uint64_t)err, 0);
    if (host->kind == CW_SPARE && err == SHOAL_OK && !cw_host_has_superpeer(host))
        host->is_wanted = false; /* it was dismissed */
    uint64_t again_ns = sh_world_now(sim) + cw_below(host->world, CW_S);
    sh_world_at(sim, again_ns, on_again, host, host->boots, 0);
}

static void on_wanted(void *arg, uint64_t boots, uint64_t unused)
{
    struct cw_host *host = arg;
    (void)unused;
    if (host->boots == boots && sh_world_is_up(host->world->sim, host->node) && !host->process)
        boot_node(host);
}

void cw_spare_want(struct cw_host *host)
{
    struct sh_world *sim = host->world->sim;
    host->is_wanted = true;
    sh_world_at(sim, sh_world_now(sim), on_wanted, host, host->boots, 0);
}

static void boot_client(struct cw_host *host)
{
    const struct sh_env *env = sh_world_env(host->world->sim, host->node);
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    struct sh_msg_config config = sh_sim_msg_config(env);
    config.connections_max = 128;
    config.on_event = on_event;
    config.arg = host;
    sh_sim_parts_talk(&parts, &config, host->world->sim, host->node, NULL);
    sh_sim_parts_know(&parts, env, true);
    cw_client_boot(host);
}

static void boot(void *arg, struct sh_world *sim, unsigned node)
{
    struct cw_host *host = arg;
    (void)sim;
    host->node = node;
    host->epoch = host->inner_epoch = 0;
    host->is_dropping = false;
    host->boots++;
    if (host->kind == CW_PROGRAM)
        cw_program_boot(host);
    else if (host->kind == CW_CLIENT)
        boot_client(host);
    else if (host->kind != CW_SPARE || host->is_wanted || cw_host_has_superpeer(host))
        boot_node(host);
}

void cw_host_drop(struct cw_host *host)
{
    cw_program_drop(host);
    sh_zookeeper_model_crash(host->world->zookeeper, host->node);
    cw_process_drop(host);
    if (!host->msg)
        return;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    host->is_dropping = true;
    sh_sim_parts_drop(&parts, true);
    free(host->numbers);
    host->numbers = NULL;
}

static void on_crash(void *arg, struct sh_world *sim, unsigned node)
{
    struct cw_host *host = arg;
    (void)sim;
    if (!host->msg && host->kind != CW_PROGRAM) { /* it was not running */
        cw_host_drop(host);
        return;
    }
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
    uint64_t crashes = host->world->result->crashes;
    sh_world_crash(host->world->sim, host->node);
    host->world->result->crashes = crashes; /* it was no fault */
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
