/* Traversals as a peer begins and ends them; expand.c does what is between.
 *
 *   BFS_BEGIN: which vertices are here, and is the root? --> EXTENTS: all of them --> ROUTES: who has the others --> LEVEL, LEVEL, ...
 *
 * A run goes by the vertices that the part has when it begins, and by the routes that its coordinator makes of what all peers have. So when
 * a vertex comes or leaves, the runs are disturbed, and go by nothing any more; the coordinator hears of it with its next question, ends the
 * run on all peers, and begins another. Chunks that move would disturb each attempt: so they wait while there is a run, and for HOLD_NS after
 * a coordinator has said that it will be back. Traversals that come one after the other would hold chunks for ever: when the last one
 * ends, and chunks have waited, it is the chunks' turn for TURN_NS. */
#include <stdlib.h>

#include "base/assert.h"
#include "graph/graph_int.h"
#include "graph/pages_int.h"

#define HOLD_NS UINT64_C(200000000)
#define TURN_NS UINT64_C(200000000)

static size_t queue_bytes(const struct sh_bfs_run *run)
{
    return ((size_t)run->vertices + 1) * sizeof *run->queue;
}

static size_t visited_bytes(const struct sh_bfs_run *run)
{
    return ((size_t)run->vertices / 64 + 1) * sizeof *run->visited;
}

static void run_free(struct sh_graph *graph, struct sh_bfs_run *run)
{
    if (!run)
        return;
    for (uint32_t i = 0; run->remote && i < run->peer_count; i++)
        free(run->remote[i].at);
    free(run->remote);
    free(run->peers);
    free(run->routes);
    sh_pages_discard(run->queue, run->queue ? queue_bytes(run) : 0, &graph->unmaps);
    sh_pages_discard(run->visited, run->visited ? visited_bytes(run) : 0, &graph->unmaps);
    free(run);
}

struct sh_bfs_run *sh_bfs_find(const struct sh_graph *graph, uint64_t id)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (graph->runs[i] && graph->runs[i]->id == id)
            return graph->runs[i];
    }
    return NULL;
}

void sh_bfs_end(struct sh_graph *graph, struct sh_bfs_run *run)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (graph->runs[i] == run)
            graph->runs[i] = NULL;
    }
    run_free(graph, run);
    if (graph->has_held && sh_bfs_count(graph) == 0) {
        graph->has_held = false;
        graph->turn_ns = graph->now_ns + TURN_NS;
    }
}

unsigned sh_bfs_count(const struct sh_graph *graph)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++)
        count += graph->runs[i] != NULL;
    return count;
}

void sh_bfs_end_all(struct sh_graph *graph, const struct sh_part *part)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        struct sh_bfs_run *run = graph->runs[i];
        if (!run || (part && run->part != part))
            continue;
        if (part && run->waiting)
            sh_msg_reply_error(graph->config.msg, run->reply_to, SH_GRAPH_TYPE(SH_GRAPH_BFS_LEVEL),
                               SHOAL_ENONAME, "the graph was dropped during the traversal");
        sh_bfs_end(graph, run);
    }
}

/* Marks a vertex and queues it; true when it had not been reached yet. */
bool sh_bfs_reach(struct sh_bfs_run *run, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << (index % 64);
    uint64_t *word = &run->visited[index / 64];
    if (*word & bit)
        return false;
    *word |= bit;
    SH_ASSERT(run->tail < run->vertices);
    run->queue[run->tail++] = index;
    return true;
}

void sh_bfs_disturb(struct sh_graph *graph, const struct sh_part *part)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        struct sh_bfs_run *run = graph->runs[i];
        if (run && run->part == part)
            run->is_disturbed = true;
    }
}

bool sh_graph_holds(struct sh_graph *graph)
{
    bool holds = graph->hold_ns > sh_now(graph->config.clock);
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX && !holds; i++)
        holds = graph->runs[i] && !graph->runs[i]->is_disturbed;
    graph->has_held |= holds;
    return holds;
}

static enum shoal_err run_create(struct sh_graph *graph, uint64_t id, bool undirected,
                                 struct sh_bfs_run **run_out)
{
    struct sh_part *part = graph->live;
    struct sh_bfs_run *run = calloc(1, sizeof *run);
    if (!run)
        return SHOAL_ENOMEM;
    run->id = id;
    run->part = part;
    run->vertices = part->extents.vertices;
    run->self = sh_msg_nid(graph->config.msg);
    run->is_nameless = !sh_store_has_nid(graph->config.store);
    run->undirected = undirected;
    run->heard_ns = graph->now_ns;
    sh_extents_number(&part->extents);
    run->queue = sh_pages_grow(NULL, 0, queue_bytes(run));
    run->visited = sh_pages_grow(NULL, 0, visited_bytes(run));
    if (!run->queue || !run->visited) {
        run_free(graph, run);
        return SHOAL_ENOMEM;
    }
    *run_out = run;
    return SHOAL_OK;
}

static void begin_answer(struct sh_graph *graph, const struct sh_graph_item *item,
                         enum sh_graph_found root, const struct sh_part *part)
{
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 1 + 8 + 4, &out))
        return;
    sh_put8(&out.w, (uint8_t)root);
    sh_put64(&out.w, part ? part->extents.vertices : 0);
    sh_put32(&out.w, part ? part->extents.count : 0);
    sh_msg_end(graph->config.msg, &out);
}

/* Where a new run may go; NULL: answered with the reason. A graph that is not known here is from now on. */
static struct sh_bfs_run **free_slot(struct sh_graph *graph, const struct sh_graph_item *item,
                                     uint64_t graph_id, uint64_t generation)
{
    bool is_known = graph->live && graph->live->graph_id == graph_id;
    enum shoal_err err = is_known ? SHOAL_OK : sh_scan_learn(graph, graph_id, generation);
    if (err) {
        sh_graph_reply_error(graph, item, err, "the graph is not loaded on every peer");
        return NULL;
    }
    if (sh_scan_is_on(graph) || graph->now_ns < graph->turn_ns) {
        begin_answer(graph, item, SH_GRAPH_FOUND_LATER, NULL);
        return NULL;
    }
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (!graph->runs[i])
            return &graph->runs[i];
    }
    sh_graph_reply_error(graph, item, SHOAL_EBUSY, "too many traversals at once");
    return NULL;
}

/* The number of the vertex with that name. */
static bool root_find(const struct sh_graph *graph, const struct sh_part *part, uint64_t name,
                      uint32_t *index_out)
{
    sh_lid lid;
    uint32_t hint = UINT32_MAX;
    if (!sh_part_look_up(part, graph->config.store, name, &lid))
        return false;
    const struct sh_extent *extent = sh_extents_find(&part->extents, lid, &hint);
    SH_ASSERT(extent);
    *index_out = extent->index + (uint32_t)(lid.v - extent->first.v);
    return true;
}

void sh_graph_on_bfs_begin(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    uint64_t graph_id = sh_get64(&r);
    uint64_t generation = sh_get64(&r);
    uint64_t root = sh_get64(&r);
    uint8_t undirected = sh_get8(&r);
    if (!sh_reader_done(&r) || undirected > 1 || graph_id == 0) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    if (sh_bfs_find(graph, id)) {
        sh_graph_reply_error(graph, item, SHOAL_EBUSY, "the traversal's number is in use");
        return;
    }
    struct sh_bfs_run **slot = free_slot(graph, item, graph_id, generation);
    if (!slot)
        return;
    struct sh_bfs_run *run;
    enum shoal_err err = run_create(graph, id, undirected, &run);
    if (err) {
        sh_graph_reply_error(graph, item, err, "no memory for the traversal");
        return;
    }
    run->coordinator = item->reply_to.nid;
    uint32_t index;
    bool here = root_find(graph, run->part, root, &index);
    if (here)
        (void)sh_bfs_reach(run, index);
    run->level_end = run->tail; /* what is queued now is level 0 */
    *slot = run;
    begin_answer(graph, item, here ? SH_GRAPH_FOUND_HERE : SH_GRAPH_FOUND_NOT, run->part);
}

/* The run that a message is about: its first field. NULL: there is none, and that has been answered. */
static struct sh_bfs_run *run_of(struct sh_graph *graph, const struct sh_graph_item *item,
                                 struct sh_reader *r)
{
    *r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    struct sh_bfs_run *run = sh_bfs_find(graph, sh_get64(r));
    if (!sh_reader_ok(r) || !run) {
        sh_graph_reply_error(graph, item, sh_reader_ok(r) ? SHOAL_ENONAME : SHOAL_EPROTO,
                             "the traversal is over here: the graph was dropped or it timed out");
        return NULL;
    }
    run->heard_ns = graph->now_ns;
    return run;
}

void sh_graph_on_bfs_extents(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    const struct sh_bfs_run *run = run_of(graph, item, &r);
    if (!run)
        return;
    const struct sh_extents *extents = &run->part->extents;
    uint32_t from = sh_get32(&r);
    if (!sh_reader_done(&r)) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    uint32_t left = from < extents->count ? extents->count - from : 0;
    uint32_t count = left < SH_GRAPH_BATCH_EXTENTS ? left : SH_GRAPH_BATCH_EXTENTS;
    struct sh_out out;
    if (run->is_disturbed)
        count = 0; /* the coordinator asks no more */
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, (size_t)count * 16, &out))
        return;
    for (uint32_t i = 0; i < count; i++) {
        const struct sh_extent *extent = &extents->at[from + i];
        shoal_cid first = sh_part_cid(run->self, extent->first);
        sh_put64(&out.w, first.v);
        sh_put64(&out.w, first.v + extent->count - 1);
    }
    sh_msg_end(graph->config.msg, &out);
}

static enum shoal_err peers_take(struct sh_bfs_run *run, struct sh_reader *r, uint32_t rank,
                                 uint32_t count)
{
    if (count == 0 || count > SH_GRAPH_PEERS_MAX || rank >= count ||
        sh_reader_left(r) < (size_t)count * 2)
        return SHOAL_EPROTO;
    const uint8_t *peers = sh_reader_take(r, (size_t)count * 2);
    if (run->peers)
        return run->peer_count == count && run->rank == rank ? SHOAL_OK : SHOAL_EPROTO;
    if (sh_load16(peers + (size_t)rank * 2) != run->self.v)
        return SHOAL_EPROTO;
    run->peers = calloc(count, sizeof *run->peers);
    run->remote = calloc(count, sizeof *run->remote);
    if (!run->peers || !run->remote) {
        free(run->peers);
        free(run->remote);
        run->peers = NULL;
        run->remote = NULL;
        return SHOAL_ENOMEM;
    }
    for (uint32_t i = 0; i < count; i++)
        run->peers[i].v = sh_load16(peers + (size_t)i * 2);
    run->peer_count = count;
    run->rank = rank;
    return SHOAL_OK;
}

static enum shoal_err route_take(struct sh_bfs_run *run, const struct sh_route *route)
{
    const struct sh_route *before = run->route_count ? &run->routes[run->route_count - 1] : NULL;
    if (route->first.v > route->last.v || (before && route->first.v <= before->last.v) ||
        route->rank >= run->peer_count)
        return SHOAL_EPROTO;
    if (run->route_count == run->route_room) {
        uint32_t room = run->route_room ? run->route_room * 2 : 16;
        struct sh_route *grown =
            room <= SH_EXTENTS_MAX ? realloc(run->routes, room * sizeof *grown) : NULL;
        if (!grown)
            return SHOAL_ENOMEM;
        run->routes = grown;
        run->route_room = room;
    }
    run->routes[run->route_count++] = *route;
    return SHOAL_OK;
}

void sh_graph_on_bfs_routes(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_bfs_run *run = run_of(graph, item, &r);
    if (!run)
        return;
    uint8_t is_last = sh_get8(&r);
    uint32_t rank = sh_get32(&r), count = sh_get32(&r);
    enum shoal_err err =
        sh_reader_ok(&r) && !run->is_routed ? peers_take(run, &r, rank, count) : SHOAL_EPROTO;
    while (!err && sh_reader_left(&r) > 0) {
        struct sh_route route = {.first.v = sh_get64(&r), .last.v = sh_get64(&r)};
        route.rank = sh_get32(&r);
        err = sh_reader_ok(&r) ? route_take(run, &route) : SHOAL_EPROTO;
    }
    if (!err && !sh_reader_ok(&r))
        err = SHOAL_EPROTO;
    if (err) {
        sh_graph_reply_error(graph, item, err,
                             err == SHOAL_ENOMEM ? "no memory for the traversal" : NULL);
        return;
    }
    run->is_routed = is_last;
    sh_graph_reply_ok(graph, item);
}

/* For either the coordinator or a peer that heard it earlier says so. */
void sh_bfs_enter_level(struct sh_bfs_run *run)
{
    run->head = run->level_end;
    run->level_end = run->tail;
    run->level++;
    run->found = 0;
    run->edges = 0;
    run->expanding = false;
}

bool sh_bfs_level_complete(const struct sh_bfs_run *run)
{
    if (run->head < run->level_end || run->asks > 0)
        return false;
    for (uint32_t i = 0; i < run->peer_count; i++) {
        if (run->remote[i].count > 0)
            return false;
    }
    return true;
}

void sh_graph_on_bfs_level(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_bfs_run *run = run_of(graph, item, &r);
    if (!run)
        return;
    uint64_t level = sh_get64(&r);
    if (!sh_reader_done(&r) || !run->is_routed) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    bool next = level == run->level + 1;
    if (run->waiting || (level != run->level && !next) || (next && !sh_bfs_level_complete(run))) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "not the traversal's next level");
        return;
    }
    if (next)
        sh_bfs_enter_level(run);
    run->expanding = true;
    run->waiting = true;
    run->reply_to = item->reply_to;
    run->reply_ns = graph->now_ns + SH_GRAPH_LEVEL_WAIT_NS;
}

void sh_graph_on_bfs_end(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    struct sh_bfs_run *run = sh_bfs_find(graph, sh_get64(&r));
    bool comes_again = sh_get8(&r);
    if (!sh_reader_done(&r)) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    if (comes_again && graph->now_ns >= graph->turn_ns)
        graph->hold_ns = graph->now_ns + HOLD_NS;
    if (run)
        sh_bfs_end(graph, run);
    sh_graph_reply_ok(graph, item);
}

uint64_t sh_bfs_due_ns(const struct sh_graph *graph)
{
    uint64_t due = SH_NEVER;
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        const struct sh_bfs_run *run = graph->runs[i];
        if (!run)
            continue;
        uint64_t at = run->waiting ? run->reply_ns : run->heard_ns + graph->config.bfs_timeout_ns;
        if (at < due)
            due = at;
    }
    return due;
}
