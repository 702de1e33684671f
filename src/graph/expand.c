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

static size_t queue_bytes(const struct sh_bfs_run *run)
{
    return ((size_t)run->part->count + 1) * sizeof *run->queue;
}

static size_t visited_bytes(const struct sh_bfs_run *run)
{
    return ((size_t)run->part->count / 64 + 1) * sizeof *run->visited;
}

/* Before its part loses the first vertex. */
static void run_free(struct sh_graph *graph, struct sh_bfs_run *run)
{
    if (!run)
        return;
    for (uint32_t i = 0; run->remote && i < run->part->peer_count; i++)
        free(run->remote[i].at);
    free(run->remote);
    sh_pages_discard(run->queue, run->queue ? queue_bytes(run) : 0, &graph->unmaps);
    sh_pages_discard(run->visited, run->visited ? visited_bytes(run) : 0, &graph->unmaps);
    free(run);
}

static struct sh_bfs_run *find_run(const struct sh_graph *graph, uint64_t id)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (graph->runs[i] && graph->runs[i]->id == id)
            return graph->runs[i];
    }
    return NULL;
}

static void run_end(struct sh_graph *graph, struct sh_bfs_run *run)
{
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (graph->runs[i] == run)
            graph->runs[i] = NULL;
    }
    run_free(graph, run);
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
        run_end(graph, run);
    }
}

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

/* Marks a vertex and queues it; true when it had not been reached yet. */
static bool reach(struct sh_bfs_run *run, uint32_t index)
{
    uint64_t bit = UINT64_C(1) << (index % 64);
    uint64_t *word = &run->visited[index / 64];
    if (*word & bit)
        return false;
    *word |= bit;
    SH_ASSERT(run->tail < run->part->count);
    run->queue[run->tail++] = index;
    return true;
}

static enum shoal_err run_create(struct sh_graph *graph, uint64_t id, bool undirected,
                                 struct sh_bfs_run **run_out)
{
    const struct sh_part *part = graph->live;
    struct sh_bfs_run *run = calloc(1, sizeof *run);
    if (!run)
        return SHOAL_ENOMEM;
    run->id = id;
    run->part = part;
    run->undirected = undirected;
    run->heard_ns = graph->now_ns;
    run->queue = sh_pages_grow(NULL, 0, queue_bytes(run));
    run->visited = sh_pages_grow(NULL, 0, visited_bytes(run));
    run->remote = calloc(part->peer_count, sizeof *run->remote);
    if (!run->queue || !run->visited || !run->remote) {
        run_free(graph, run);
        return SHOAL_ENOMEM;
    }
    *run_out = run;
    return SHOAL_OK;
}

/* Where a new run may go; NULL: answered with the reason. */
static struct sh_bfs_run **free_slot(struct sh_graph *graph, const struct sh_graph_item *item,
                                     uint64_t graph_id)
{
    if (!graph->live || graph->live->graph_id != graph_id) {
        sh_graph_reply_error(graph, item, SHOAL_ENONAME, "the graph is not loaded on every peer");
        return NULL;
    }
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        if (!graph->runs[i])
            return &graph->runs[i];
    }
    sh_graph_reply_error(graph, item, SHOAL_EBUSY, "too many traversals at once");
    return NULL;
}

void sh_graph_on_bfs_begin(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    uint64_t graph_id = sh_get64(&r);
    uint64_t root = sh_get64(&r);
    uint8_t undirected = sh_get8(&r);
    if (!sh_reader_done(&r) || undirected > 1) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    if (find_run(graph, id)) {
        sh_graph_reply_error(graph, item, SHOAL_EBUSY, "the traversal's number is in use");
        return;
    }
    struct sh_bfs_run **slot = free_slot(graph, item, graph_id);
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
    bool here = sh_part_find_name(run->part, root, &index);
    if (here)
        (void)reach(run, index);
    run->level_end = run->tail; /* what is queued now is level 0 */
    *slot = run;
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 1, &out))
        return;
    sh_put8(&out.w, here);
    sh_msg_end(graph->config.msg, &out);
}

/* Goes to the next level: all peers have completed the last one, for either the coordinator or a
 * peer that heard it earlier says so. */
static void enter_level(struct sh_bfs_run *run)
{
    run->head = run->level_end;
    run->level_end = run->tail;
    run->level++;
    run->found = 0;
    run->edges = 0;
    run->expanding = false;
}

static bool level_complete(const struct sh_bfs_run *run)
{
    if (run->head < run->level_end || run->asks > 0)
        return false;
    for (uint32_t i = 0; i < run->part->peer_count; i++) {
        if (run->remote[i].count > 0)
            return false;
    }
    return true;
}

void sh_graph_on_bfs_level(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    uint64_t level = sh_get64(&r);
    struct sh_bfs_run *run = find_run(graph, id);
    if (!sh_reader_done(&r) || !run) {
        sh_graph_reply_error(graph, item, run ? SHOAL_EPROTO : SHOAL_ENONAME,
                             "the traversal is over here: the graph was dropped or it timed out");
        return;
    }
    run->heard_ns = graph->now_ns;
    bool next = level == run->level + 1;
    if (run->waiting || (level != run->level && !next) || (next && !level_complete(run))) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "not the traversal's next level");
        return;
    }
    if (next)
        enter_level(run);
    run->expanding = true;
    run->waiting = true;
    run->reply_to = item->reply_to;
    run->reply_ns = graph->now_ns + SH_GRAPH_LEVEL_WAIT_NS;
}

void sh_graph_on_bfs_visit(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    uint64_t level = sh_get64(&r);
    struct sh_bfs_run *run = find_run(graph, id);
    if (!sh_reader_ok(&r) || !run || sh_reader_left(&r) % 8) {
        sh_graph_reply_error(graph, item, run ? SHOAL_EPROTO : SHOAL_ENONAME,
                             "the traversal is over here");
        return;
    }
    run->heard_ns = graph->now_ns;
    if (level == run->level + 1 && level_complete(run))
        enter_level(run); /* the sender has heard the coordinator before us */
    if (level != run->level) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "not the traversal's level");
        return;
    }
    uint32_t found = 0;
    while (sh_reader_left(&r) > 0) {
        uint32_t index;
        if (!sh_part_find_lid(run->part, (sh_lid){sh_get64(&r)}, &index)) {
            sh_graph_reply_error(graph, item, SHOAL_ECORRUPT, "a neighbour is no vertex");
            return;
        }
        found += reach(run, index);
    }
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 4, &out))
        return;
    sh_put32(&out.w, found);
    sh_msg_end(graph->config.msg, &out);
}

void sh_graph_on_bfs_end(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    struct sh_bfs_run *run = find_run(graph, sh_get64(&r));
    if (run)
        run_end(graph, run);
    sh_graph_reply_ok(graph, item);
}

/* --- Expansion -------------------------------------------------------------------------------- */

/* What the reading of one chunk needs and yields. */
struct expansion {
    struct sh_bfs_run *run;
    uint64_t self;   /* the vertex's own chunk ID */
    uint32_t budget; /* neighbours to handle at most */
    bool vertex_done;
    enum shoal_err err;
};

/* A neighbour on this peer is marked, one elsewhere is noted for its peer. */
static enum shoal_err follow(struct sh_bfs_run *run, shoal_cid neighbour)
{
    const struct sh_part *part = run->part;
    shoal_nid creator = shoal_cid_creator(neighbour);
    if (creator.v == part->peers[part->rank].v) {
        uint32_t index;
        if (!sh_part_find_lid(part, (sh_lid){shoal_cid_local(neighbour)}, &index))
            return SHOAL_ECORRUPT;
        run->found += reach(run, index);
        return SHOAL_OK;
    }
    if (!sh_part_find_peer(part, creator, &run->last_rank))
        return SHOAL_ECORRUPT;
    struct sh_ids *ids = &run->remote[run->last_rank];
    if (ids->count == ids->room) {
        size_t room = ids->room ? ids->room * 2 : SH_GRAPH_BATCH_IDS;
        uint64_t *grown = realloc(ids->at, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        ids->at = grown;
        ids->room = room;
    }
    ids->at[ids->count++] = shoal_cid_local(neighbour);
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
        run->edges += !run->undirected || next != expansion->self;
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
    uint32_t peers = run->part->peer_count;
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
        enum shoal_err err = sh_graph_ask_send(graph, ask, run->part->peers[rank], run->level);
        if (err) {
            sh_graph_ask_free(ask);
            if (err == SHOAL_EAGAIN) { /* this peer takes nothing now; another may */
                run->remote_at = (rank + 1) % peers;
                tried++;
                continue;
            }
            run_fail(run, err, "peer %u can't reach peer %u", run->part->peers[run->part->rank].v,
                     run->part->peers[rank].v);
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
    for (uint32_t i = 0; i < run->part->peer_count; i++)
        count += run->remote[i].count;
    return count;
}

/* Asks the caches for what the expansion comes to soon: the vertices of a level lie anywhere, and
 * without this most of a traversal's time is waiting for memory. */
static void look_ahead(const struct sh_graph *graph, const struct sh_bfs_run *run)
{
    if (run->level_end - run->head > AHEAD_ENTRY)
        sh_store_prefetch(graph->config.store,
                          sh_part_lid(run->part, run->queue[run->head + AHEAD_ENTRY]),
                          SH_STORE_ENTRY);
    if (run->level_end - run->head > AHEAD_DATA)
        sh_store_prefetch(graph->config.store,
                          sh_part_lid(run->part, run->queue[run->head + AHEAD_DATA]),
                          SH_STORE_DATA);
}

/* Expands vertices of the level for one budget; returns how many steps of work it was. */
static unsigned expand_some(struct sh_graph *graph, struct sh_bfs_run *run)
{
    size_t waiting_max = REMOTE_IDS_MAX + (size_t)SH_GRAPH_BATCH_IDS * run->part->peer_count;
    if (remote_waiting(run) > waiting_max)
        return 0; /* back-pressure: the other peers first */
    struct expansion expansion = {.run = run, .budget = SH_GRAPH_WORK};
    unsigned done = 0;
    while (run->head < run->level_end && expansion.budget > 0 && done < SH_GRAPH_WORK / 4) {
        look_ahead(graph, run);
        uint32_t index = run->queue[run->head];
        sh_lid lid = sh_part_lid(run->part, index);
        expansion.vertex_done = false;
        expansion.self = shoal_cid_make(run->part->peers[run->part->rank], lid.v).v;
        enum shoal_err err = sh_store_read(graph->config.store, lid, expand_chunk, &expansion);
        if (!err)
            err = expansion.err;
        if (err) {
            run_fail(run, err, "the chunk of vertex %llu on peer %u is not what was loaded",
                     (unsigned long long)run->part->names[index],
                     run->part->peers[run->part->rank].v);
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

static void answer_level(struct sh_graph *graph, struct sh_bfs_run *run, bool complete)
{
    struct sh_out out;
    sh_msg_type type = SH_GRAPH_TYPE(SH_GRAPH_BFS_LEVEL);
    run->waiting = false;
    if (run->err) {
        sh_msg_reply_error(graph->config.msg, run->reply_to, type, run->err, run->why);
        return;
    }
    if (sh_msg_reply(graph->config.msg, run->reply_to, type, 1 + 8 + 8, &out))
        return;
    sh_put8(&out.w, complete);
    sh_put64(&out.w, run->found);
    sh_put64(&out.w, run->edges);
    sh_msg_end(graph->config.msg, &out);
}

static unsigned run_work(struct sh_graph *graph, struct sh_bfs_run *run)
{
    unsigned done = 0;
    if (run->expanding && !run->err) {
        done += expand_some(graph, run);
        done += send_remote(graph, run);
    }
    if (run->waiting) {
        bool complete = level_complete(run);
        if (run->err || complete || graph->now_ns >= run->reply_ns) {
            answer_level(graph, run, complete);
            done++;
        }
    } else if (graph->now_ns - run->heard_ns >= graph->config.bfs_timeout_ns) {
        run_end(graph, run);
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
    struct sh_bfs_run *run = find_run(graph, ask->owner_id);
    if (!run)
        return; /* the traversal is over */
    SH_ASSERT(run->asks > 0);
    run->asks--;
    if (ask->err && ask->answer_size > 0) {
        run_fail(run, ask->err, "peer %u: %.*s", run->part->peers[ask->rank].v,
                 (int)ask->answer_size, (const char *)ask->answer);
        return;
    }
    if (!ask->err && ask->answer_size != 4)
        ask->err = SHOAL_EPROTO;
    if (ask->err)
        run_fail(run, ask->err, "peer %u got no answer from peer %u",
                 run->part->peers[run->part->rank].v, run->part->peers[ask->rank].v);
    else
        run->found += sh_load32(ask->answer);
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
