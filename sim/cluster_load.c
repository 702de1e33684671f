/* The clients of a simulated cluster: slots that do one operation after the other, as libshoal's
 * calls do (src/client/call.c), without its threads. */
#include <stdlib.h>

#include "sim/cluster_world_int.h"
#include "sim/world_int.h"

#define RETRY_NS (20 * CW_MS)

static void on_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct cw_host *host = op->arg;
    (void)err;
    (void)detail;
    host->is_refreshing = false;
    host->bootstrap_ns = cw_now(host) + RETRY_NS;
}

/* Until it knows the cluster it asks for it again and again. */
static void bootstrap(struct cw_host *host)
{
    host->is_refreshing = true;
    host->refresh = (struct sh_directory_op){.done = on_refreshed, .arg = host};
    sh_directory_bootstrap(host->directory, host->world->superpeers, host->world->config.superpeers,
                           &host->refresh);
}

static bool is_lost(const struct cw_host *host)
{
    return !host->is_refreshing && !sh_directory_epoch(host->directory);
}

void cw_slot_again(struct cw_slot *slot, enum shoal_err err)
{
    struct cw_host *host = slot->host;
    slot->err = err;
    if (slot->op != CW_CREATE)
        sh_directory_forget(host->directory, host->world->chunks[slot->chunk].cid);
    slot->pause_until_ns = cw_now(host) + RETRY_NS;
    if (host->is_refreshing)
        return;
    host->is_refreshing = true;
    host->refresh = (struct sh_directory_op){.done = on_refreshed, .arg = host};
    sh_directory_refresh(host->directory, &host->refresh);
}

struct sh_once_numbers *cw_numbers_of(struct cw_host *host, shoal_nid nid)
{
    return &host->numbers[nid.v % CW_NUMBERS];
}

void cw_number_finish(struct cw_slot *slot)
{
    if (slot->number)
        sh_once_finish(cw_numbers_of(slot->host, slot->number_nid), slot->number);
    slot->number = 0;
    slot->is_unclear = false;
}

void cw_slot_over(struct cw_slot *slot)
{
    struct cw_host *host = slot->host;
    cw_number_finish(slot);
    slot->op = CW_NONE;
    bool hurries = host->world->end_client == host;
    uint64_t most_ns = hurries ? CW_MS : host->world->config.think_ns_max;
    slot->pause_until_ns = cw_now(host) + cw_below(host->world, most_ns);
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct cw_slot *slot = op->arg;
    if (slot->host->is_dropping)
        return;
    if (err == SHOAL_OK)
        cw_slot_send(slot, nid);
    else if (err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED || err == SHOAL_ELOST)
        cw_slot_absent(slot, err);
    else
        cw_slot_again(slot, err);
}

static void slot_step(struct cw_slot *slot)
{
    struct cw_host *host = slot->host;
    shoal_nid nid;
    if (slot->op == CW_CREATE) {
        if (cw_slot_target(slot, &nid))
            cw_slot_send(slot, nid);
        else
            cw_slot_again(slot, SHOAL_ENONODE);
        return;
    }
    shoal_cid cid = host->world->chunks[slot->chunk].cid;
    if (sh_directory_owner(host->directory, cid, &nid) == SHOAL_OK) {
        cw_slot_send(slot, nid);
        return;
    }
    slot->pause_until_ns = UINT64_MAX;
    slot->locate = (struct sh_locate){.done = on_located, .arg = slot};
    sh_directory_locate(host->directory, cid, &slot->locate);
}

static bool begins(const struct cw_host *host)
{
    return !host->world->ends || host->world->end_client == host;
}

static unsigned client_run(void *arg)
{
    struct cw_host *host = arg;
    struct cw_world *world = host->world;
    uint64_t now = cw_now(host);
    unsigned work = 0;
    if (is_lost(host) && now >= host->bootstrap_ns) {
        bootstrap(host);
        work++;
    }
    if (!world->ends && !host->is_moving && now >= host->move_after_ns)
        cw_move_something(host);
    for (unsigned i = 0; i < CW_SLOTS; i++) {
        struct cw_slot *slot = &host->slots[i];
        bool is_free = slot->op == CW_NONE;
        if (now < slot->pause_until_ns || (is_free && !begins(host)))
            continue;
        if (is_free && !(world->ends ? cw_end_slot_begin(slot) : cw_slot_begin(slot))) {
            slot->pause_until_ns = now + RETRY_NS;
            continue;
        }
        slot_step(slot);
        work++;
    }
    return work;
}

static uint64_t client_due(void *arg)
{
    const struct cw_host *host = arg;
    bool ends = host->world->ends;
    uint64_t due = ends || host->is_moving ? UINT64_MAX : host->move_after_ns;
    if (is_lost(host) && host->bootstrap_ns < due)
        due = host->bootstrap_ns;
    for (unsigned i = 0; i < CW_SLOTS; i++) {
        const struct cw_slot *slot = &host->slots[i];
        if ((slot->op != CW_NONE || begins(host)) && slot->pause_until_ns < due)
            due = slot->pause_until_ns;
    }
    return due;
}

void cw_client_boot(struct cw_host *host)
{
    struct cw_world *world = host->world;
    const struct sh_env *env = sh_world_env(world->sim, host->node);
    host->client = sh_random64(&env->random) | 1;
    host->numbers = sh_sim_alloc(CW_NUMBERS * sizeof *host->numbers);
    host->is_moving = false;
    host->move_after_ns = cw_now(host) + CW_S / 2;
    for (unsigned i = 0; i < CW_SLOTS; i++)
        host->slots[i] = (struct cw_slot){
            .host = host, .index = i, .pause_until_ns = cw_now(host) + cw_below(world, CW_S)};
    bootstrap(host);
    sh_world_step_add(
        world->sim, host->node,
        (struct sh_step){.name = "client", .run = client_run, .due_ns = client_due, .arg = host});
}

void cw_client_crash(struct cw_host *host)
{
    struct cw_world *world = host->world;
    for (unsigned i = 0; i < CW_CHUNKS; i++) {
        struct cw_chunk *chunk = &world->chunks[i];
        if (chunk->writer == host->index)
            chunk->has_writer = false;
        if (chunk->lock_owner && chunk->lock_owner->host == host)
            chunk->lock_owner = NULL;
    }
    for (unsigned i = 0; i < CW_SLOTS; i++)
        host->slots[i].op = CW_NONE;
}
