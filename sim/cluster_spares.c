/* Superpeers that come and go in a simulated cluster, and whom programs let do so. */
#include "sim/cluster_programs_int.h"

void cw_operate(struct cw_fiber *fiber)
{
    struct cw_program *program = fiber->program;
    struct cw_world *world = cw_world_of(fiber);
    if (world->config.is_still)
        return;
    if (cw_draw(fiber, 24) == 0) {
        cw_drain_something(fiber);
        return;
    }
    struct cw_host *spare = &world->hosts[cw_draw(fiber, world->count)];
    if (spare->kind != CW_SPARE || !sh_world_is_up(world->sim, spare->node))
        return;
    if (cw_draw(fiber, 3)) {
        cw_words_move(fiber);
        return;
    }
    if (!spare->superpeer) {
        if (!spare->is_wanted)
            cw_say(world, program->host->node, "wants host %u to be a superpeer", spare->node);
        cw_spare_want(spare);
        return;
    }
    if (cw_draw(fiber, 4))
        return;
    shoal_nid nid = sh_msg_nid(spare->msg);
    cw_say(world, program->host->node, "dismisses superpeer %u", nid.v);
    enum shoal_err err = sh_client_demote(program->store, nid);
    if (program->is_dying)
        return;
    cw_say(world, program->host->node, "dismissed superpeer %u: %s", nid.v, shoal_err_name(err));
    world->result->dismissals += err == SHOAL_OK;
}
