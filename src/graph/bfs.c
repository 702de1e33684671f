#include "graph/bfs.h"

#include <stdlib.h>

#include "base/assert.h"
#include "graph/gather_int.h"

/* A traversal as its coordinator sees it. */
struct traversal {
    const struct sh_caller *caller;
    struct sh_graph_whereabouts where;
    struct sh_gather *gathers; /* one for each member */
    uint64_t id;
    struct sh_graph_bfs_result result;
    size_t levels_room;
    struct sh_graph_problem *problem_out;
};

static enum shoal_err add_level(struct traversal *traversal, uint64_t level, uint64_t count)
{
    struct sh_graph_bfs_result *result = &traversal->result;
    if (level == traversal->levels_room) {
        size_t room = level ? (size_t)level * 2 : 32;
        uint64_t *levels = realloc(result->levels, room * sizeof *levels);
        if (!levels)
            return SHOAL_ENOMEM;
        result->levels = levels;
        traversal->levels_room = room;
    }
    result->levels[level] = count;
    result->depth = level;
    result->reached += count;
    return SHOAL_OK;
}

static enum shoal_err begin(struct traversal *traversal)
{
    uint8_t payload[25];
    struct sh_writer w = sh_writer_make(payload, sizeof payload);
    sh_put64(&w, traversal->id);
    sh_put64(&w, traversal->where.graph_id);
    sh_put64(&w, traversal->result.root);
    sh_put8(&w, traversal->result.undirected);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    enum shoal_err err = sh_gather_all(traversal->caller, traversal->gathers,
                                       traversal->where.members, traversal->where.count,
                                       SH_GRAPH_BFS_BEGIN, sh_bytes_make(payload, sizeof payload),
                                       SH_GATHER_TIMEOUT_NS, traversal->problem_out);
    unsigned roots = 0;
    for (uint32_t i = 0; i < traversal->where.count && !err; i++) {
        struct sh_reader r = sh_gather_reader(&traversal->gathers[i]);
        roots += sh_get8(&r);
        if (!sh_reader_done(&r))
            err = SHOAL_EPROTO;
    }
    if (!err && roots != 1) {
        sh_graph_explain(traversal->problem_out, "there is no vertex %llu",
                         (unsigned long long)traversal->result.root);
        err = SHOAL_ENONAME;
    }
    return err;
}

/* Has all peers complete a level, asking again those that take long, so that none of them believes
 * us gone. */
static enum shoal_err run_level(struct traversal *traversal, uint64_t level, uint64_t *found_out,
                                uint64_t *edges_out)
{
    uint8_t payload[16];
    sh_store64(payload, traversal->id);
    sh_store64(payload + 8, level);
    for (bool complete = false; !complete;) {
        enum shoal_err err = sh_gather_all(
            traversal->caller, traversal->gathers, traversal->where.members, traversal->where.count,
            SH_GRAPH_BFS_LEVEL, sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS,
            traversal->problem_out);
        if (err)
            return err;
        complete = true;
        *found_out = *edges_out = 0;
        for (uint32_t i = 0; i < traversal->where.count; i++) {
            struct sh_reader r = sh_gather_reader(&traversal->gathers[i]);
            complete &= sh_get8(&r) == 1;
            *found_out += sh_get64(&r);
            *edges_out += sh_get64(&r);
            if (!sh_reader_done(&r))
                return SHOAL_EPROTO;
        }
    }
    return SHOAL_OK;
}

static enum shoal_err traverse(struct traversal *traversal)
{
    enum shoal_err err = begin(traversal);
    if (err)
        return err;
    uint64_t started_ns = sh_now(traversal->caller->clock);
    err = add_level(traversal, 0, 1);
    for (uint64_t level = 0; !err; level++) {
        uint64_t found;
        uint64_t edges;
        err = run_level(traversal, level, &found, &edges);
        if (err)
            break;
        traversal->result.edges_traversed += edges;
        if (found == 0)
            break;
        err = add_level(traversal, level + 1, found);
    }
    traversal->result.seconds = (double)(sh_now(traversal->caller->clock) - started_ns) / 1e9;
    return err;
}

enum shoal_err sh_graph_bfs(const struct sh_caller *caller, const shoal_nid *peers,
                            size_t peer_count, uint64_t root, bool undirected,
                            struct sh_graph_bfs_result *result_out,
                            struct sh_graph_problem *problem_out)
{
    struct traversal traversal = {.caller = caller, .problem_out = problem_out};
    traversal.result.root = root;
    traversal.result.undirected = undirected;
    if (problem_out)
        memset(problem_out, 0, sizeof *problem_out);
    enum shoal_err err = sh_graph_locate(caller, peers, peer_count, &traversal.where, problem_out);
    if (err)
        return err;
    traversal.id = sh_graph_new_id(caller);
    traversal.gathers = sh_gather_new(traversal.where.count);
    if (!traversal.gathers) {
        free(traversal.where.members);
        return SHOAL_ENOMEM;
    }
    err = traverse(&traversal);
    /* Whatever happened, the peers need it no longer; one that does not hear this times out. */
    uint8_t payload[8];
    sh_store64(payload, traversal.id);
    enum shoal_err end_err = sh_gather_all(
        caller, traversal.gathers, traversal.where.members, traversal.where.count, SH_GRAPH_BFS_END,
        sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, NULL);
    (void)end_err;
    sh_gather_free_all(traversal.gathers, traversal.where.count);
    free(traversal.where.members);
    if (err) {
        free(traversal.result.levels);
        return err;
    }
    *result_out = traversal.result;
    return SHOAL_OK;
}

void sh_graph_bfs_result_free(struct sh_graph_bfs_result *result)
{
    free(result->levels);
    result->levels = NULL;
}
