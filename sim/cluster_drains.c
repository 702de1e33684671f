/* Peers of a simulated cluster that are drained and stopped, as shoal drain and shoal node stop do:
 * whatever else goes wrong, a peer whose drain succeeded takes nothing with it. */
#include "sim/cluster_programs_int.h"

#define DRAINS_MAX 3 /* of a world: each uses up a node ID */
#define PATIENCE_NS (10 * CW_S)

struct drain {
    struct cw_fiber *fiber;
    uint64_t until_ns;
};

static bool is_same(const struct cw_host *host, uint64_t instance)
{
    return host->chunks && host->instance == instance &&
           sh_world_is_up(host->world->sim, host->node);
}

static void stop(struct cw_host *host)
{
    struct sh_store_status status;
    sh_store_status_get(host->store, &status);
    CW_HOLDS(host->world, status.chunks == 0, "node %u was drained, and has %" PRIu64 " chunks",
             sh_msg_nid(host->msg).v, status.chunks);
    host->world->result->drains++;
    host->is_empty = true;
    cw_process_stop(host);
}

static bool go_on(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    const struct drain *drain = arg;
    (void)phase, (void)done, (void)all;
    return !cw_world_of(drain->fiber)->ends &&
           cw_program_now(drain->fiber->program) < drain->until_ns;
}

/* A drain that did not succeed, or of which nobody knows how it ended. */
static void undo(struct cw_fiber *fiber, struct cw_host *host, shoal_nid nid, uint64_t instance)
{
    bool is_done =
        !fiber->program->is_dying && shoal_undrain(fiber->program->store, nid) == SHOAL_OK;
    if (!is_done && is_same(host, instance))
        sh_chunks_creates_refuse(host->chunks, false);
}

void cw_drain_something(struct cw_fiber *fiber)
{
    struct cw_program *program = fiber->program;
    struct cw_world *world = cw_world_of(fiber);
    struct cw_host *host = cw_peer(world, (unsigned)cw_draw(fiber, world->config.peers));
    bool is_last = world->draining + 2 > world->config.peers;
    if (world->drains == DRAINS_MAX || is_last || host->is_drained || !cw_is_joined(host))
        return;
    struct drain drain = {fiber, cw_program_now(program) + PATIENCE_NS};
    struct shoal_migration all = {.last = {UINT64_MAX}, .drain = true};
    shoal_nid nid = sh_msg_nid(host->msg);
    uint64_t instance = host->instance;
    world->drains++;
    world->draining++;
    host->is_drained = true;
    cw_say(world, program->host->node, "drains node %u", nid.v);
    enum shoal_err err = shoal_migrate(program->store, nid, &all, go_on, &drain, NULL);
    if (!program->is_dying)
        cw_say(world, program->host->node, "drained node %u: %s", nid.v, shoal_err_name(err));
    if (err == SHOAL_OK && is_same(host, instance)) {
        stop(host);
    } else {
        undo(fiber, host, nid, instance);
        if (is_same(host, instance))
            host->is_drained = false;
    }
    world->draining--;
}
