/* After the last fault a client that has never been there before reads every chunk that should be,
 * and writes those that nobody else may be writing. What stands in the nodes' memory is not enough:
 * it must be found, through caches, superpeers and connections as the faults have left them. */
#include "sim/cluster_world_int.h"

#define END_NS (10 * CW_S)

static bool is_due(const struct cw_chunk *chunk)
{
    return chunk->state == CW_LIVE && !chunk->is_removing && !chunk->is_lost;
}

bool cw_end_slot_begin(struct cw_slot *slot)
{
    struct cw_world *world = slot->host->world;
    if (!sh_directory_epoch(slot->host->directory))
        return false;
    for (; world->end_next < 2 * CW_CHUNKS; world->end_next++) {
        unsigned at = world->end_next / 2;
        bool writes = world->end_next % 2;
        const struct cw_chunk *chunk = &world->chunks[at];
        /* The last write of one without a writer is unclear, and may yet come. */
        if (!is_due(chunk) || (writes && !chunk->has_writer))
            continue;
        /* One after the other: the write comes after the read, by this slot or another. */
        cw_slot_begin_at(slot, writes ? CW_PUT : CW_GET, at);
        world->end_next++;
        return true;
    }
    return false;
}

static bool all_done(void *arg)
{
    struct cw_world *world = arg;
    const struct cw_host *client = world->end_client;
    bool is_done = world->end_next == 2 * CW_CHUNKS;
    for (unsigned i = 0; i < CW_SLOTS; i++)
        is_done = is_done && client->slots[i].op == CW_NONE;
    return cw_watch(world) || is_done;
}

void cw_end_check(struct cw_world *world)
{
    world->end_next = 0;
    world->end_client = cw_host_add(world, CW_CLIENT, (uint16_t)world->clients_added++);
    uint64_t until_ns = sh_world_now(world->sim) + END_NS;
    bool is_done = sh_world_run_until(world->sim, all_done, world, until_ns);
    for (unsigned i = 0; !is_done && i < CW_SLOTS; i++) {
        const struct cw_slot *slot = &world->end_client->slots[i];
        const struct cw_chunk *chunk = &world->chunks[slot->chunk];
        CW_HOLDS(world, slot->op == CW_NONE,
                 "long after the last fault a new client can't %s chunk %u:%" PRIu64 ": %s",
                 slot->op == CW_PUT ? "write" : "read", shoal_cid_creator(chunk->cid).v,
                 shoal_cid_local(chunk->cid), shoal_err_name(slot->err));
    }
    CW_HOLDS(world, is_done, "long after the last fault a new client knows no view");
    cw_host_leave(world->end_client);
    world->end_client = NULL;
}
