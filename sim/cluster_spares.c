/* Superpeers that come and go in a simulated cluster: what a peer's process starts when the peer is
 * promoted, and ends when it is dismissed again. One that comes is a recruit first (recruit.h). */
#include "base/assert.h"
#include "sim/cluster_programs_int.h"

#define SOON_NS CW_MS
#define ADDRESSES_MAX (SH_CLUSTER_SUPERPEERS_MAX)

static bool is_spare(const struct cw_host *host)
{
    return host->kind == CW_SPARE;
}

/* --- Its life ----------------------------------------------------------------------------------
 */

shoal_nid cw_spare_nid(const struct cw_host *host, const struct sh_env *env)
{
    uint16_t index;
    bool is_stored = is_spare(host) && sh_superpeer_stored(env, &index) == SHOAL_OK;
    return (shoal_nid){is_stored ? (uint16_t)(index + 1) : 0};
}

static void on_view(void *arg, const struct sh_view *view)
{
    cw_view_seen(arg, view);
}

/* Out of its steps: it forgets what it has stored, and its process begins anew. */
static void on_end(void *arg, uint64_t boots, uint64_t unused)
{
    struct cw_host *host = arg;
    (void)unused;
    if (host->boots != boots || !host->is_dismissed ||
        !sh_world_is_up(host->world->sim, host->node))
        return;
    cw_host_drop(host);
    host->is_wanted = false;
    sh_world_crash(host->world->sim, host->node);
    sh_world_restart(host->world->sim, host->node);
}

static void on_dismissed(void *arg)
{
    struct cw_host *host = arg;
    cw_tell(host->world, host->node, "is no superpeer any more()", 0, 0);
    host->is_dismissed = true;
    sh_world_at(host->world->sim, sh_world_now(host->world->sim) + SOON_NS, on_end, host,
                host->boots, 0);
}

static void serve(struct cw_host *host, uint16_t index, const struct sh_view *recruited)
{
    struct cw_world *world = host->world;
    const struct sh_env *env = sh_world_env(world->sim, host->node);
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", host->node);
    sh_msg_nid_set(host->msg, (shoal_nid){(uint16_t)(index + 1)});
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .address = address,
                                         .addresses = world->superpeers,
                                         .count = (uint16_t)world->config.superpeers,
                                         .index = index,
                                         .instance = host->instance,
                                         .recruited = recruited,
                                         .heartbeat_ns = CW_FAILURE_NS / 10,
                                         .failure_ns = CW_FAILURE_NS,
                                         .forget_ns = CW_FORGET_NS,
                                         .on_view = on_view,
                                         .on_dismissed = on_dismissed,
                                         .arg = host};
    enum shoal_err err = sh_superpeer_create(&config, &host->superpeer);
    CW_HOLDS(world, err == SHOAL_OK, "host %u can't be a superpeer: %s", host->node,
             shoal_err_name(err));
}

static void on_recruited(void *arg, shoal_nid nid, const struct sh_view *view)
{
    struct cw_host *host = arg;
    cw_tell(host->world, host->node, "is a superpeer(node)", nid.v, 0);
    host->world->result->recruits++;
    serve(host, (uint16_t)(nid.v - 1), view);
}

static void recruit(struct cw_host *host)
{
    struct cw_world *world = host->world;
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", host->node);
    struct sh_recruit_config config = {.msg = host->msg,
                                       .env = *sh_world_env(world->sim, host->node),
                                       .addresses = world->superpeers,
                                       .count = world->config.superpeers,
                                       .address = address,
                                       .instance = host->instance,
                                       .failure_ns = CW_FAILURE_NS,
                                       .on_done = on_recruited,
                                       .arg = host};
    enum shoal_err err = sh_recruit_create(&config, &host->recruit);
    SH_ASSERT(err == SHOAL_OK);
}

static bool part_of(struct cw_host *host, struct sh_step *step_out)
{
    if (host->is_dismissed || (!host->superpeer && !host->recruit))
        return false;
    *step_out =
        host->superpeer ? sh_superpeer_step(host->superpeer) : sh_recruit_step(host->recruit);
    return true;
}

static unsigned run(void *arg)
{
    struct cw_host *host = arg;
    struct sh_step part;
    if (host->is_wanted && !host->superpeer && !host->recruit)
        recruit(host);
    return part_of(host, &part) ? part.run(part.arg) : 0;
}

static uint64_t due_ns(void *arg)
{
    struct cw_host *host = arg;
    struct sh_step part;
    if (part_of(host, &part))
        return part.due_ns(part.arg);
    return host->is_wanted && !host->is_dismissed ? 0 : SH_NEVER;
}

void cw_spare_boot(struct cw_host *host, const struct sh_env *env)
{
    host->instance = sh_random64(&env->random) | 1;
    host->is_dismissed = false;
    shoal_nid nid = sh_msg_nid(host->msg);
    sh_world_step_add(host->world->sim, host->node,
                      (struct sh_step){.name = "spare", .run = run, .due_ns = due_ns, .arg = host});
    if (nid.v)
        serve(host, (uint16_t)(nid.v - 1), NULL);
}

/* --- Who wants it ------------------------------------------------------------------------------
 */

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
    if (!is_spare(spare) || !spare->msg || spare->is_dismissed)
        return;
    if (cw_draw(fiber, 3)) {
        cw_words_move(fiber);
        return;
    }
    if (!spare->superpeer) {
        if (!spare->is_wanted)
            cw_say(world, program->host->node, "wants host %u to be a superpeer", spare->node);
        spare->is_wanted = true;
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
