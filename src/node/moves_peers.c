/* Which peers the source of a migration gives chunks to. */
#include <stdlib.h>

#include "node/moves_int.h"

/* How often it is each target's turn in a job, about: the superpeer keeps a range for each turn. */
#define TURNS 4

/* All nodes that are known, allocated. NULL: out of memory. */
static struct sh_node *nodes_get(const struct sh_moves *moves, size_t *count_out)
{
    size_t room = sh_directory_nodes(moves->config.directory, NULL, 0) + 16;
    struct sh_node *nodes = malloc(room * sizeof *nodes);
    if (!nodes)
        return NULL;
    size_t there = sh_directory_nodes(moves->config.directory, nodes, room);
    *count_out = there < room ? there : room;
    return nodes;
}

void sh_moves_targets_begin(struct sh_moves *moves)
{
    memset(moves->full, 0, SH_MOVES_FULL_WORDS * sizeof moves->full[0]);
    moves->full_err = SHOAL_OK;
}

void sh_moves_target_full(struct sh_moves *moves, shoal_nid nid, enum shoal_err err)
{
    moves->full[nid.v / 64] |= UINT64_C(1) << (nid.v % 64);
    /* That one is drained says less than that another is full. */
    if (err != SHOAL_ENONODE || !moves->full_err)
        moves->full_err = err;
}

static bool is_full(const struct sh_moves *moves, shoal_nid nid)
{
    return moves->full[nid.v / 64] >> (nid.v % 64) & 1;
}

enum shoal_err sh_moves_target_pick(struct sh_moves *moves, struct sh_move_batch *batch)
{
    if (moves->target.v) {
        batch->target = moves->target;
        return sh_moves_is_up(moves, moves->target) ? SHOAL_OK : SHOAL_ENONODE;
    }
    if (moves->turn_left && sh_moves_is_up(moves, moves->turn) && !is_full(moves, moves->turn)) {
        batch->target = moves->turn;
        return SHOAL_OK;
    }
    size_t count, takers = 0;
    struct sh_node *nodes = nodes_get(moves, &count);
    if (!nodes)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_ENONODE;
    const struct sh_node *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = &nodes[i];
        if (node->role != SH_ROLE_PEER || node->state != SH_NODE_UP ||
            node->nid.v == sh_msg_nid(moves->config.msg).v)
            continue;
        if (is_full(moves, node->nid)) {
            err = moves->full_err;
            continue;
        }
        takers++;
        /* The next one behind that of last time, round and round. */
        bool is_behind = node->nid.v > moves->turn.v;
        if (!best || (is_behind && best->nid.v <= moves->turn.v))
            best = node;
    }
    if (best) {
        batch->target = moves->turn = best->nid;
        moves->turn_left = moves->job.all_chunks / (TURNS * takers);
        err = SHOAL_OK;
    }
    free(nodes);
    return err;
}
