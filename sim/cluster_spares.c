/* Superpeers that come and go in a simulated cluster, and whom programs let do so. */
#include "sim/cluster_programs_int.h"

/* How many peers have a superpeer in their process, or are about to. */
static unsigned promoted(const struct cw_world *world)
{
    unsigned count = 0;
    for (unsigned i = 0; i < world->config.peers; i++) {
        const struct cw_host *host = &world->hosts[world->config.superpeers + i];
        count += host->superpeer || host->is_wanted;
    }
    return count;
}

static void promote(struct cw_fiber *fiber, struct cw_host *peer)
{
    struct cw_program *program = fiber->program;
    struct cw_world *world = cw_world_of(fiber);
    char address[SH_MSG_ADDRESS_MAX];
    bool is_mortal = !world->mortals || peer->index < world->mortals;
    if (!cw_may_promote(peer) || !cw_is_joined(peer) || promoted(world) >= world->config.spares ||
        !is_mortal || world->bad_disk_mask >> peer->node & 1)
        return;
    shoal_nid nid = sh_msg_nid(peer->msg);
    peer->is_wanted = true;
    cw_say(world, program->host->node, "promotes node %u", nid.v);
    enum shoal_err err = sh_client_promote(program->store, nid, address);
    peer->is_wanted = false;
    if (!program->is_dying)
        cw_say(world, program->host->node, "promoted node %u: %s", nid.v, shoal_err_name(err));
}

static void dismiss(struct cw_fiber *fiber, struct cw_host *host)
{
    struct cw_program *program = fiber->program;
    struct cw_world *world = cw_world_of(fiber);
    shoal_nid nid = sh_msg_nid(host->superpeer_msg);
    cw_say(world, program->host->node, "dismisses superpeer %u", nid.v);
    enum shoal_err err = sh_client_demote(program->store, nid);
    if (program->is_dying)
        return;
    cw_say(world, program->host->node, "dismissed superpeer %u: %s", nid.v, shoal_err_name(err));
    world->result->dismissals += err == SHOAL_OK;
}

/* In order, as shoal node stop and SIGTERM do. Peers stop so when they are drained: what one still has
 * is gone from when the superpeers know that it leaves, which the checkers can't see. */
static void stop(struct cw_fiber *fiber, struct cw_host *host)
{
    struct cw_program *program = fiber->program;
    struct cw_world *world = cw_world_of(fiber);
    bool may = host->kind == CW_SUPERPEER || host->kind == CW_SPARE;
    if (!may || !host->msg || sh_world_is_paused(world->sim, host->node))
        return;
    shoal_nid nid = sh_msg_nid(host->msg);
    cw_say(world, program->host->node, "stops host %u", host->node);
    world->result->stops++;
    if (cw_draw(fiber, 2) && nid.v)
        (void)!sh_client_stop_node(program->store, nid, 0);
    else
        cw_process_stop(host);
}

void cw_operate(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    if (world->config.is_still)
        return;
    if (cw_draw(fiber, 24) == 0) {
        cw_drain_something(fiber);
        return;
    }
    struct cw_host *host = &world->hosts[cw_draw(fiber, world->count)];
    if (!sh_world_is_up(world->sim, host->node))
        return;
    if (!world->config.is_quiet && cw_draw(fiber, 48) == 0) {
        stop(fiber, host);
        return;
    }
    if (host->kind != CW_SPARE && !cw_may_promote(host))
        return;
    if (cw_draw(fiber, 3)) {
        cw_words_move(fiber);
    } else if (host->superpeer) {
        if (cw_draw(fiber, 4) == 0)
            dismiss(fiber, host);
    } else if (host->kind == CW_PEER) {
        promote(fiber, host);
    } else if (!host->is_wanted) {
        cw_say(world, fiber->program->host->node, "wants host %u to be a superpeer", host->node);
        cw_spare_want(host);
    }
}
