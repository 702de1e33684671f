/* Programs watch what becomes of nodes. Each keeps the nodes as it was told; in the end that must
 * be what the registry says, and all that two programs were told of one epoch must agree. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/cluster_programs_int.h"
#include "sim/world_int.h"

#define REPLICA_NODES 1024
#define AGAIN_NS (100 * CW_MS)

struct cw_replica {
    uint64_t epoch; /* of the last event */
    size_t count;
    struct shoal_node nodes[REPLICA_NODES];
};

void cw_replica_open(struct cw_program *program)
{
    program->replica = sh_sim_alloc(sizeof *program->replica);
}

void cw_replica_close(struct cw_program *program)
{
    free(program->replica);
}

static struct shoal_node *find(struct cw_replica *replica, shoal_nid nid)
{
    for (size_t i = 0; i < replica->count; i++) {
        if (replica->nodes[i].nid.v == nid.v)
            return &replica->nodes[i];
    }
    return NULL;
}

/* Two programs that are told of a node in one epoch are told the same. */
static void agrees(struct cw_world *world, const struct shoal_event *event)
{
    struct cw_event *known = &world->programs->events[event->epoch % CW_EVENTS];
    uint64_t key = event->epoch << 16 | event->node.nid.v;
    uint64_t hash = sh_hash64(sh_bytes_text(event->node.address), (uint64_t)event->node.state);
    if (known->key == key)
        CW_HOLDS(world, known->hash == hash,
                 "two programs were told different things of node %u in epoch %" PRIu64,
                 event->node.nid.v, event->epoch);
    *known = (struct cw_event){key, hash};
}

static bool follows(const struct shoal_node *before, const struct shoal_event *event)
{
    switch (event->kind) {
    case SHOAL_EVENT_PRESENT:
        return !before;
    case SHOAL_EVENT_RETURNED:
        return before && before->state == SHOAL_NODE_FAILED && before->nid.v < SH_PEER_NID_MIN;
    case SHOAL_EVENT_MOVED:
        return before && before->state == event->node.state;
    default:
        return !before || before->state != event->node.state || event->kind == SHOAL_EVENT_JOINED;
    }
}

static bool on_event(void *arg, const struct shoal_event *event)
{
    struct cw_program *program = arg;
    struct cw_world *world = program->host->world;
    struct cw_replica *replica = program->replica;
    static const char *const kinds[] = {
        [SHOAL_EVENT_PRESENT] = "is there", [SHOAL_EVENT_JOINED] = "joined",
        [SHOAL_EVENT_LEFT] = "left",        [SHOAL_EVENT_FAILED] = "failed",
        [SHOAL_EVENT_RETURNED] = "is back", [SHOAL_EVENT_MOVED] = "moved",
        [SHOAL_EVENT_AWAY] = "is away"};
    if (!event || program->is_dying)
        return !program->is_dying;
    /* Of zones the worlds of recoveries look at the records. */
    if (event->kind == SHOAL_EVENT_ZONE_LOST || event->kind == SHOAL_EVENT_ZONE_OLDER)
        return true;
    cw_say(world, program->host->node, "hears that node %u %s, in epoch %" PRIu64,
           event->node.nid.v, kinds[event->kind], event->epoch);
    CW_HOLDS(world, event->epoch >= replica->epoch,
             "a program was told of epoch %" PRIu64 " after %" PRIu64, event->epoch,
             replica->epoch);
    replica->epoch = event->epoch;
    struct shoal_node *node = find(replica, event->node.nid);
    CW_HOLDS(world, follows(node, event), "a program was told that node %u %s, which was %s",
             event->node.nid.v, kinds[event->kind],
             !node                          ? "not there"
             : node->state == SHOAL_NODE_UP ? "up"
                                            : "not up");
    agrees(world, event);
    if (!node) {
        SH_ASSERT(replica->count < REPLICA_NODES);
        node = &replica->nodes[replica->count++];
    }
    *node = event->node;
    world->result->events++;
    return true;
}

void cw_events_follow(struct cw_fiber *fiber)
{
    struct cw_program *program = fiber->program;
    while (!program->is_dying) {
        *program->replica = (struct cw_replica){.count = 0};
        enum shoal_err err = shoal_watch(program->store, on_event, program);
        if (program->is_dying)
            return;
        cw_say(program->host->world, program->host->node, "does not hear of nodes: %s",
               shoal_err_name(err));
        cw_fiber_sleep(fiber, AGAIN_NS);
    }
}

static bool is_as(struct cw_replica *replica, const struct sh_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct shoal_node *node = find(replica, view->nodes[i].nid);
        bool is_gone = view->nodes[i].state == SH_NODE_LEFT;
        if (!node ? !is_gone : (int)node->state != (int)view->nodes[i].state)
            return false;
    }
    for (size_t i = 0; i < replica->count; i++) {
        if (replica->nodes[i].state == SHOAL_NODE_UP && !sh_view_find(view, replica->nodes[i].nid))
            return false;
    }
    return true;
}

const char *cw_events_wait(struct cw_world *world)
{
    const struct cw_host *first = &world->hosts[0];
    for (unsigned i = 0; i < world->count && first->superpeer; i++) {
        const struct cw_program *program = world->hosts[i].program;
        if (program && !is_as(program->replica, sh_superpeer_view(first->superpeer)))
            return "a program has not heard of all nodes what became of them";
    }
    return NULL;
}
