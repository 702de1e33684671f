#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "graph/graph_int.h"
#include "graph/pages_int.h"
#include "graph/vertex.h"

#define AHEAD_ENTRY 8 /* vertices of the queue */
#define AHEAD_DATA 4
#define ASKS_MAX 16                         /* of a run, in flight */
#define LOOK_AFTER 64                       /* vertices, at the time */
#define REMOTE_IDS_MAX (SH_GRAPH_WORK * 2u) /* waiting to be sent, before expansion waits too */

__attribute__((format(printf, 3, 4))) static void
run_fail(struct sh_bfs_run *run, enum shoal_err err, const char *format, ...)
{
    if (run->err)
        return;
    run->err = err;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(run->why, sizeof run->why, format, args);
    va_end(args);
}

/* The number of a vertex, if it is here. */
static inline bool index_of(struct sh_bfs_run *run, shoal_cid cid, uint32_t *index_out)
{
    bool is_local = run->is_nameless && shoal_cid_creator(cid).v == run->self.v;
    sh_lid lid = is_local ? (sh_lid){shoal_cid_local(cid)} : cid;
    const struct sh_extent *extent = sh_extents_find(&run->part->extents, lid, &run->own_hint);
    if (!extent)
        return false;
    *index_out = extent->index + (uint32_t)(lid.v - extent->first.v);
    return true;
}

/* Which other peer has it. */
static inline bool rank_of(struct sh_bfs_run *run, shoal_cid cid, uint32_t *rank_out)
{
    const struct sh_route *route =
        run->route_hint < run->route_count ? &run->routes[run->route_hint] : NULL;
    if (!route || cid.v - route->first.v > route->last.v - route->first.v) {
        uint32_t low = 0;
        uint32_t high = run->route_count;
        while (low < high) { /* the first one that ends at or behind it */
            uint32_t middle = low + (high - low) / 2;
            if (run->routes[middle].last.v < cid.v)
                low = middle + 1;
            else
                high = middle;
        }
        if (low == run->route_count || run->routes[low].first.v > cid.v)
            return false;
        run->route_hint = low;
        route = &run->routes[low];
    }
    *rank_out = route->rank;
    return route->rank != run->rank;
}

void sh_graph_on_bfs_visit(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    uint64_t level = sh_get64(&r);
    struct sh_bfs_run *run = sh_bfs_find(graph, id);
    if (!sh_reader_ok(&r) || !run || sh_reader_left(&r) % 8) {
        sh_graph_reply_error(graph, item, run ? SHOAL_EPROTO : SHOAL_ENONAME,
                             "the traversal is over here");
        return;
    }
    run->heard_ns = graph->now_ns;
    if (run->is_disturbed || !run->is_routed) {
        sh_graph_reply_error(graph, item, run->is_disturbed ? SHOAL_EBUSY : SHOAL_EPROTO,
                             "vertices came or left");
        return;
    }
    if (level == run->level + 1 && sh_bfs_level_complete(run))
        sh_bfs_enter_level(run); /* the sender has heard the coordinator before us */
    if (level != run->level) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "not the traversal's level");
        return;
    }
    uint32_t found = 0;
    while (sh_reader_left(&r) > 0) {
        uint32_t index;
        if (!index_of(run, (shoal_cid){sh_get64(&r)}, &index)) {
            sh_graph_reply_error(graph, item, SHOAL_ECORRUPT, "a neighbour is no vertex");
            return;
        }
        found += sh_bfs_reach(run, index);
    }
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 4, &out))
        return;
    sh_put32(&out.w, found);
    sh_msg_end(graph->config.msg, &out);
}

/* --- Expansion -------------------------------------------------------------------------------- */

/* What the reading of one chunk needs and yields. */
struct expansion {
    struct sh_bfs_run *run;
    shoal_cid self;  /* the vertex's own chunk ID */
    uint32_t budget; /* neighbours to handle at most */
    bool vertex_done;
    enum shoal_err err;
};

/* A neighbour on this peer is marked, one elsewhere is noted for its peer. */
static enum shoal_err follow(struct sh_bfs_run *run, shoal_cid neighbour)
{
    uint32_t index, rank;
    if (index_of(run, neighbour, &index)) {
        run->found += sh_bfs_reach(run, index);
        return SHOAL_OK;
    }
    if (!rank_of(run, neighbour, &rank))
        return SHOAL_ECORRUPT;
    struct sh_ids *ids = &run->remote[rank];
    if (ids->count == ids->room) {
        size_t room = ids->room ? ids->room * 2 : SH_GRAPH_BATCH_IDS;
        uint64_t *grown = realloc(ids->at, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        ids->at = grown;
        ids->room = room;
    }
    ids->at[ids->count++] = neighbour.v;
    return SHOAL_OK;
}

/* Follows the neighbours of one vertex, in the store's memory, from where the last piece ended.
 * Both lists ascend, so that equal neighbours meet and count once. */
static void expand_chunk(void *arg, struct sh_bytes chunk)
{
    struct expansion *expansion = arg;
    struct sh_bfs_run *run = expansion->run;
    struct sh_vertex vertex;
    expansion->err = sh_vertex_decode(chunk, &vertex);
    if (!expansion->err && vertex.seal != sh_vertex_seal(run->part->graph_id, expansion->self))
        expansion->err = SHOAL_ECORRUPT;
    if (expansion->err)
        return;
    uint32_t out = run->out_at;
    uint32_t in = run->in_at;
    uint32_t in_count = run->undirected ? vertex.in_count : 0;
    while ((out < vertex.out_count || in < in_count) && expansion->budget > 0) {
        uint64_t next = UINT64_MAX;
        if (out < vertex.out_count)
            next = sh_vertex_out(&vertex, out).v;
        if (in < in_count && sh_vertex_in(&vertex, in).v < next)
            next = sh_vertex_in(&vertex, in).v;
        while (out < vertex.out_count && sh_vertex_out(&vertex, out).v == next)
            out++;
        while (in < in_count && sh_vertex_in(&vertex, in).v == next)
            in++;
        expansion->err = follow(run, (shoal_cid){next});
        if (expansion->err)
            return;
        run->edges += !run->undirected || next != expansion->self.v;
        expansion->budget--;
    }
    run->out_at = out;
    run->in_at = in;
    expansion->vertex_done = out >= vertex.out_count && in >= in_count;
}

/* Sends full batches, and at the end of the level the rest. Returns how many. */
static unsigned send_remote(struct sh_graph *graph, struct sh_bfs_run *run)
{
    unsigned sent = 0;
    uint32_t peers = run->peer_count;
    bool level_end = run->head == run->level_end;
    for (uint32_t tried = 0; tried < peers && run->asks < ASKS_MAX;) {
        uint32_t rank = run->remote_at % peers;
        struct sh_ids *ids = &run->remote[rank];
        if (ids->count < SH_GRAPH_BATCH_IDS && !(level_end && ids->count > 0)) {
            run->remote_at = (rank + 1) % peers;
            tried++;
            continue;
        }
        struct sh_graph_ask *ask =
            sh_graph_ask_new(graph, SH_GRAPH_TYPE(SH_GRAPH_BFS_VISIT), run->id, rank);
        if (!ask) {
            run_fail(run, SHOAL_ENOMEM, "no memory for the traversal");
            break;
        }
        /* From the end: what stays need not move. */
        ask->count = ids->count < SH_GRAPH_BATCH_IDS ? (uint32_t)ids->count : SH_GRAPH_BATCH_IDS;
        memcpy(ask->ids, ids->at + ids->count - ask->count, (size_t)ask->count * 8);
        enum shoal_err err = sh_graph_ask_send(graph, ask, run->peers[rank], run->level);
        if (err) {
            sh_graph_ask_free(ask);
            if (err == SHOAL_EAGAIN) { /* this peer takes nothing now; another may */
                run->remote_at = (rank + 1) % peers;
                tried++;
                continue;
            }
            run_fail(run, err, "peer %u can't reach peer %u", run->peers[run->rank].v,
                     run->peers[rank].v);
            break;
        }
        ids->count -= ask->count;
        run->asks++;
        sent++;
    }
    return sent;
}

static size_t remote_waiting(const struct sh_bfs_run *run)
{
    size_t count = 0;
    for (uint32_t i = 0; i < run->peer_count; i++)
        count += run->remote[i].count;
    return count;
}

/* Asks the caches for what the expansion comes to soon: the vertices of a level lie anywhere, and
 * without this most of a traversal's time is waiting for memory. */
static void look_ahead(const struct sh_graph *graph, const struct sh_bfs_run *run)
{
    if (run->level_end - run->head > AHEAD_ENTRY)
        sh_store_prefetch(graph->config.store,
                          sh_extents_lid(&run->part->extents, run->queue[run->head + AHEAD_ENTRY]),
                          SH_STORE_ENTRY);
    if (run->level_end - run->head > AHEAD_DATA)
        sh_store_prefetch(graph->config.store,
                          sh_extents_lid(&run->part->extents, run->queue[run->head + AHEAD_DATA]),
                          SH_STORE_DATA);
}

/* Expands vertices of the level for one budget; returns how many steps of work it was. */
static unsigned expand_some(struct sh_graph *graph, struct sh_bfs_run *run)
{
    size_t waiting_max = REMOTE_IDS_MAX + (size_t)SH_GRAPH_BATCH_IDS * run->peer_count;
    if (remote_waiting(run) > waiting_max)
        return 0; /* back-pressure: the other peers first */
    struct expansion expansion = {.run = run, .budget = SH_GRAPH_WORK};
    unsigned done = 0;
    while (run->head < run->level_end && expansion.budget > 0 && done < SH_GRAPH_WORK / 4) {
        look_ahead(graph, run);
        uint32_t index = run->queue[run->head];
        sh_lid lid = sh_extents_lid(&run->part->extents, index);
        expansion.vertex_done = false;
        expansion.self = sh_part_cid(run->self, lid);
        enum shoal_err err = sh_store_read(graph->config.store, lid, expand_chunk, &expansion);
        if (!err)
            err = expansion.err;
        if (err) {
            run_fail(run, err, "the chunk %u:%llu of a vertex, on peer %u, is not what was loaded",
                     shoal_cid_creator(expansion.self).v,
                     (unsigned long long)shoal_cid_local(expansion.self), run->self.v);
            return 1;
        }
        done++;
        if (!expansion.vertex_done)
            break;
        run->head++;
        run->out_at = run->in_at = 0;
        if (done % LOOK_AFTER == 0 && sh_step_spent())
            break;
    }
    return done;
}

static void answer_level(struct sh_graph *graph, struct sh_bfs_run *run, enum sh_graph_level level)
{
    struct sh_out out;
    sh_msg_type type = SH_GRAPH_TYPE(SH_GRAPH_BFS_LEVEL);
    run->waiting = false;
    if (run->err && level != SH_GRAPH_LEVEL_DISTURBED) {
        sh_msg_reply_error(graph->config.msg, run->reply_to, type, run->err, run->why);
        return;
    }
    if (sh_msg_reply(graph->config.msg, run->reply_to, type, 1 + 8 + 8, &out))
        return;
    sh_put8(&out.w, (uint8_t)level);
    sh_put64(&out.w, run->found);
    sh_put64(&out.w, run->edges);
    sh_msg_end(graph->config.msg, &out);
}

static unsigned run_work(struct sh_graph *graph, struct sh_bfs_run *run)
{
    unsigned done = 0;
    if (run->expanding && !run->err && !run->is_disturbed) {
        done += expand_some(graph, run);
        done += send_remote(graph, run);
    }
    if (run->waiting) {
        bool complete = !run->is_disturbed && sh_bfs_level_complete(run);
        if (run->err || run->is_disturbed || complete || graph->now_ns >= run->reply_ns) {
            answer_level(graph, run,
                         run->is_disturbed ? SH_GRAPH_LEVEL_DISTURBED
                         : complete        ? SH_GRAPH_LEVEL_DONE
                                           : SH_GRAPH_LEVEL_UNDER_WAY);
            done++;
        }
    } else if (graph->now_ns - run->heard_ns >= graph->config.bfs_timeout_ns) {
        sh_bfs_end(graph, run);
        done++;
    }
    return done;
}

unsigned sh_bfs_work(struct sh_graph *graph)
{
    unsigned done = 0;
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        unsigned at = (graph->run_first + i) % SH_GRAPH_RUNS_MAX;
        if (!graph->runs[at])
            continue;
        done += run_work(graph, graph->runs[at]);
        if (sh_step_spent()) {
            graph->run_first = (at + 1) % SH_GRAPH_RUNS_MAX;
            break;
        }
    }
    return done;
}

void sh_bfs_answered(struct sh_graph *graph, struct sh_graph_ask *ask)
{
    struct sh_bfs_run *run = sh_bfs_find(graph, ask->owner_id);
    if (!run)
        return; /* the traversal is over */
    SH_ASSERT(run->asks > 0);
    run->asks--;
    if (ask->err == SHOAL_EBUSY && ask->answer_size > 0) {
        run->is_disturbed = true; /* there, vertices came or left */
        return;
    }
    if (ask->err && ask->answer_size > 0) {
        run_fail(run, ask->err, "peer %u: %.*s", run->peers[ask->rank].v, (int)ask->answer_size,
                 (const char *)ask->answer);
        return;
    }
    if (!ask->err && ask->answer_size != 4)
        ask->err = SHOAL_EPROTO;
    if (ask->err)
        run_fail(run, ask->err, "peer %u got no answer from peer %u", run->peers[run->rank].v,
                 run->peers[ask->rank].v);
    else
        run->found += sh_load32(ask->answer);
}
