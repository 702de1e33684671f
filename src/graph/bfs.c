#include "graph/bfs.h"

#include <stdlib.h>

#include "base/assert.h"
#include "graph/extents_int.h"
#include "graph/gather_int.h"

/* A traversal as its coordinator sees it; each attempt has another ID. */
struct traversal {
    const struct sh_caller *caller;
    const shoal_nid *peers;
    size_t peer_count;
    struct sh_graph_whereabouts where;
    /* Those that have begun the run, and for each a request and how many extents it has. */
    uint32_t count;
    shoal_nid *members;
    uint32_t *extents;
    struct sh_gather *gathers; /* peer_count */
    struct sh_route *routes;
    size_t route_count, route_room;
    uint64_t id;
    struct sh_graph_bfs_result result;
    size_t levels_room;
    bool is_again; /* vertices are on their way: another attempt may find all of them */
    struct sh_graph_problem *problem_out;
};

static enum shoal_err add_level(struct traversal *traversal, uint64_t level, uint64_t count)
{
    struct sh_graph_bfs_result *result = &traversal->result;
    if (level >= traversal->levels_room) {
        size_t room = traversal->levels_room ? traversal->levels_room * 2 : 32;
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

/* --- Who has what ------------------------------------------------------------------------------- */

/* What the answers to BFS_BEGIN say. Peers that do not answer count as having nothing: whether that is so, the sum of the vertices says. */
static enum shoal_err begun(struct traversal *traversal, unsigned *roots_out,
                            uint64_t *vertices_out)
{
    const struct sh_gather *gathers = traversal->gathers;
    traversal->count = 0;
    *roots_out = 0;
    *vertices_out = 0;
    for (size_t i = 0; i < traversal->peer_count; i++) {
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        if (gathers[i].err == SHOAL_EBUSY || gathers[i].err == SHOAL_ENOMEM) {
            sh_gather_explain(traversal->problem_out, &gathers[i]);
            return gathers[i].err;
        }
        if (gathers[i].err)
            continue;
        uint8_t root = sh_get8(&r);
        uint64_t vertices = sh_get64(&r);
        uint32_t extents = sh_get32(&r);
        if (!sh_reader_done(&r) || root > SH_GRAPH_FOUND_LATER || extents > SH_EXTENTS_MAX)
            return SHOAL_EPROTO;
        if (root == SH_GRAPH_FOUND_LATER) {
            traversal->is_again = true;
            traversal->where.is_scanning = true;
            continue;
        }
        *roots_out += root == SH_GRAPH_FOUND_HERE;
        *vertices_out += vertices;
        traversal->members[traversal->count] = traversal->peers[i];
        traversal->extents[traversal->count++] = extents;
    }
    return SHOAL_OK;
}

static enum shoal_err begin(struct traversal *traversal)
{
    uint8_t payload[33];
    struct sh_writer w = sh_writer_make(payload, sizeof payload);
    sh_put64(&w, traversal->id);
    sh_put64(&w, traversal->where.graph_id);
    sh_put64(&w, traversal->where.generation);
    sh_put64(&w, traversal->result.root);
    sh_put8(&w, traversal->result.undirected);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    enum shoal_err first = sh_gather_all(
        traversal->caller, traversal->gathers, traversal->peers, traversal->peer_count,
        SH_GRAPH_BFS_BEGIN, sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, NULL);
    unsigned roots;
    uint64_t vertices;
    enum shoal_err err = begun(traversal, &roots, &vertices);
    if (err || traversal->is_again)
        return err;
    if (vertices != traversal->where.all_vertices) {
        traversal->where.vertices = vertices;
        traversal->is_again = first == SHOAL_OK;
        for (size_t i = 0; i < traversal->peer_count && !traversal->is_again; i++) {
            if (traversal->gathers[i].err == first)
                sh_gather_explain(traversal->problem_out, &traversal->gathers[i]);
        }
        return first;
    }
    if (roots != 1) {
        sh_graph_explain(traversal->problem_out, "there is no vertex %llu",
                         (unsigned long long)traversal->result.root);
        return SHOAL_ENONAME;
    }
    return SHOAL_OK;
}

static enum shoal_err route_add(struct traversal *traversal, const struct sh_route *route)
{
    if (traversal->route_count == traversal->route_room) {
        size_t room = traversal->route_room ? traversal->route_room * 2 : 64;
        struct sh_route *grown = realloc(traversal->routes, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        traversal->routes = grown;
        traversal->route_room = room;
    }
    traversal->routes[traversal->route_count++] = *route;
    return SHOAL_OK;
}

/* Asks one member for all its extents, a batch at a time. */
static enum shoal_err extents_get(struct traversal *traversal, uint32_t rank)
{
    struct sh_gather *gather = &traversal->gathers[0];
    for (uint32_t from = 0; from < traversal->extents[rank];) {
        uint8_t payload[12];
        sh_store64(payload, traversal->id);
        sh_store32(payload + 8, from);
        enum shoal_err err = sh_gather_all(
            traversal->caller, gather, &traversal->members[rank], 1, SH_GRAPH_BFS_EXTENTS,
            sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, traversal->problem_out);
        if (err)
            return err;
        struct sh_reader r = sh_gather_reader(gather);
        size_t count = sh_reader_left(&r) / 16;
        if (count == 0) { /* they are others by now */
            traversal->is_again = true;
            return SHOAL_OK;
        }
        if (sh_reader_left(&r) % 16 || count > traversal->extents[rank] - from)
            return SHOAL_EPROTO;
        for (; sh_reader_left(&r) > 0 && !err; from++) {
            struct sh_route route = {{sh_get64(&r)}, {sh_get64(&r)}, rank};
            err = route.first.v <= route.last.v ? route_add(traversal, &route) : SHOAL_EPROTO;
        }
        if (err)
            return err;
    }
    return SHOAL_OK;
}

static int compare_routes(const void *a, const void *b)
{
    uint64_t first_a = ((const struct sh_route *)a)->first.v;
    uint64_t first_b = ((const struct sh_route *)b)->first.v;
    return first_a < first_b ? -1 : first_a > first_b;
}

/* Makes one table of what all members have. IDs between the extents of one member are nobody's vertices, so that one route does for them: there
 * are as many as vertices were moved to and fro, usually one for each member. */
static void routes_make(struct traversal *traversal)
{
    struct sh_route *routes = traversal->routes;
    size_t count = 0;
    if (traversal->route_count)
        qsort(routes, traversal->route_count, sizeof *routes, compare_routes);
    for (size_t i = 0; i < traversal->route_count; i++) {
        struct sh_route *last = count ? &routes[count - 1] : NULL;
        if (last && routes[i].first.v <= last->last.v)
            traversal->is_again = true; /* a vertex has just moved, and both have it */
        else if (last && last->rank == routes[i].rank)
            last->last = routes[i].last;
        else
            routes[count++] = routes[i];
    }
    traversal->route_count = count;
}

/* Sends some of the routes to all members. */
static enum shoal_err routes_send(struct traversal *traversal, size_t from, size_t count)
{
    enum shoal_err first = SHOAL_OK;
    size_t bytes = 8 + 1 + 4 + 4 + (size_t)traversal->count * 2 + count * 20;
    for (uint32_t rank = 0; rank < traversal->count; rank++) {
        struct sh_out out;
        if (sh_gather_begin(traversal->caller, &traversal->gathers[rank], traversal->members[rank],
                            SH_GRAPH_BFS_ROUTES, bytes, SH_GATHER_TIMEOUT_NS, &out))
            continue;
        sh_put64(&out.w, traversal->id);
        sh_put8(&out.w, from + count == traversal->route_count);
        sh_put32(&out.w, rank);
        sh_put32(&out.w, traversal->count);
        for (uint32_t i = 0; i < traversal->count; i++)
            sh_put16(&out.w, traversal->members[i].v);
        for (size_t i = from; i < from + count; i++) {
            sh_put64(&out.w, traversal->routes[i].first.v);
            sh_put64(&out.w, traversal->routes[i].last.v);
            sh_put32(&out.w, traversal->routes[i].rank);
        }
        sh_msg_end(traversal->caller->msg, &out);
    }
    for (uint32_t rank = 0; rank < traversal->count; rank++) {
        enum shoal_err err = sh_gather_wait(traversal->caller, &traversal->gathers[rank]);
        if (err && !first) {
            first = err;
            sh_gather_explain(traversal->problem_out, &traversal->gathers[rank]);
        }
    }
    return first;
}

/* Has each member know who has which vertices. */
static enum shoal_err route(struct traversal *traversal)
{
    enum shoal_err err = SHOAL_OK;
    traversal->route_count = 0;
    for (uint32_t rank = 0; rank < traversal->count && !err && !traversal->is_again; rank++)
        err = extents_get(traversal, rank);
    if (err || traversal->is_again)
        return err;
    routes_make(traversal);
    for (size_t from = 0; !err && !traversal->is_again;) {
        size_t count = traversal->route_count - from;
        count = count < SH_GRAPH_BATCH_EXTENTS ? count : SH_GRAPH_BATCH_EXTENTS;
        err = routes_send(traversal, from, count);
        from += count;
        if (from == traversal->route_count)
            break;
    }
    return err;
}

/* --- Levels ------------------------------------------------------------------------------------- */

/* Has all peers complete a level, asking again those that take long, so that none of them believes
 * us gone. */
static enum shoal_err run_level(struct traversal *traversal, uint64_t level, uint64_t *found_out,
                                uint64_t *edges_out)
{
    uint8_t payload[16];
    sh_store64(payload, traversal->id);
    sh_store64(payload + 8, level);
    for (bool complete = false; !complete && !traversal->is_again;) {
        enum shoal_err err = sh_gather_all(traversal->caller, traversal->gathers,
                                           traversal->members, traversal->count, SH_GRAPH_BFS_LEVEL,
                                           sh_bytes_make(payload, sizeof payload),
                                           SH_GATHER_TIMEOUT_NS, traversal->problem_out);
        if (err)
            return err;
        complete = true;
        *found_out = *edges_out = 0;
        for (uint32_t i = 0; i < traversal->count; i++) {
            struct sh_reader r = sh_gather_reader(&traversal->gathers[i]);
            uint8_t how = sh_get8(&r);
            complete &= how == SH_GRAPH_LEVEL_DONE;
            traversal->is_again |= how == SH_GRAPH_LEVEL_DISTURBED;
            *found_out += sh_get64(&r);
            *edges_out += sh_get64(&r);
            if (!sh_reader_done(&r))
                return SHOAL_EPROTO;
        }
    }
    return SHOAL_OK;
}

/* A member that does not know the run any more was started again meanwhile, or its graph was dropped, or it has not heard of the coordinator for
 * long: which of these, another attempt finds out. */
static enum shoal_err look_again(struct traversal *traversal, enum shoal_err err)
{
    if (err != SHOAL_ENONAME)
        return err;
    traversal->is_again = true;
    if (traversal->problem_out)
        memset(traversal->problem_out, 0, sizeof *traversal->problem_out);
    return SHOAL_OK;
}

static enum shoal_err traverse(struct traversal *traversal)
{
    enum shoal_err err = begin(traversal);
    if (!err && !traversal->is_again)
        err = look_again(traversal, route(traversal));
    if (err || traversal->is_again)
        return err;
    uint64_t started_ns = sh_now(traversal->caller->clock);
    err = add_level(traversal, 0, 1);
    for (uint64_t level = 0; !err; level++) {
        uint64_t found = 0;
        uint64_t edges = 0;
        err = look_again(traversal, run_level(traversal, level, &found, &edges));
        if (err || traversal->is_again)
            break;
        traversal->result.edges_traversed += edges;
        if (found == 0)
            break;
        err = add_level(traversal, level + 1, found);
    }
    traversal->result.seconds = (double)(sh_now(traversal->caller->clock) - started_ns) / 1e9;
    return err;
}

/* Whatever happened, the peers need it no longer; one that does not hear this times out. */
static void end(struct traversal *traversal)
{
    uint8_t payload[9];
    sh_store64(payload, traversal->id);
    payload[8] = traversal->is_again;
    enum shoal_err err = sh_gather_all(
        traversal->caller, traversal->gathers, traversal->peers, traversal->peer_count,
        SH_GRAPH_BFS_END, sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, NULL);
    (void)err;
}

/* One attempt; is_again: vertices were on their way. */
static enum shoal_err attempt(struct traversal *traversal)
{
    struct sh_graph_bfs_result *result = &traversal->result;
    traversal->id = sh_graph_new_id(traversal->caller);
    traversal->is_again = false;
    result->reached = result->depth = result->edges_traversed = 0;
    enum shoal_err err = traverse(traversal);
    traversal->is_again &= !err;
    end(traversal);
    return err;
}

static enum shoal_err attempts(struct traversal *traversal)
{
    struct sh_graph_patience patience = {0};
    for (;;) {
        enum shoal_err err =
            sh_graph_locate(traversal->caller, traversal->peers, traversal->peer_count,
                            &traversal->where, traversal->problem_out);
        if (err)
            return err;
        free(traversal->where.members);
        traversal->where.members = NULL;
        err = attempt(traversal);
        if (err || !traversal->is_again)
            return err;
        if (!sh_graph_again(traversal->caller, &patience, &traversal->where))
            return sh_graph_explain_missing(&traversal->where, traversal->problem_out);
    }
}

static void buffers_free(struct traversal *traversal)
{
    if (traversal->gathers)
        sh_gather_free_all(traversal->gathers, traversal->peer_count);
    free(traversal->members);
    free(traversal->extents);
    free(traversal->routes);
}

enum shoal_err sh_graph_bfs(const struct sh_caller *caller, const shoal_nid *peers,
                            size_t peer_count, uint64_t root, bool undirected,
                            struct sh_graph_bfs_result *result_out,
                            struct sh_graph_problem *problem_out)
{
    struct traversal traversal = {
        .caller = caller, .peers = peers, .peer_count = peer_count, .problem_out = problem_out};
    SH_ASSERT(peer_count > 0 && peer_count <= SH_GRAPH_PEERS_MAX);
    traversal.result.root = root;
    traversal.result.undirected = undirected;
    if (problem_out)
        memset(problem_out, 0, sizeof *problem_out);
    traversal.gathers = sh_gather_new(peer_count);
    traversal.members = calloc(peer_count, sizeof *traversal.members);
    traversal.extents = calloc(peer_count, sizeof *traversal.extents);
    enum shoal_err err = SHOAL_ENOMEM;
    if (traversal.gathers && traversal.members && traversal.extents)
        err = attempts(&traversal);
    buffers_free(&traversal);
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
