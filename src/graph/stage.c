#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/steptime.h"
#include "graph/edges.h"
#include "graph/graph_int.h"
#include "graph/pages_int.h"

/* Frees what a load has staged, all but its part. The list takes what is large; NULL: at once. */
static void release(struct sh_load *load, struct sh_unmaps *unmaps)
{
    /* Without a part, it has gone live, and nothing was left to ask. */
    uint32_t peers = load->part && load->filling ? load->part->peer_count : 0;
    for (uint32_t i = 0; i < peers; i++)
        sh_graph_ask_free(load->filling[i]);
    free(load->filling);
    load->filling = NULL;
    sh_sorter_free(&load->sorter, unmaps);
    sh_entries_free(&load->out, unmaps);
    sh_entries_free(&load->in, unmaps);
    sh_entries_free(&load->records, unmaps);
    sh_entries_free(&load->uses, unmaps);
    sh_pages_discard(load->text, load->text_room, unmaps);
    free(load->chunk);
    if (load->rewriting)
        (void)!sh_store_rewriting_end(load->rewriting);
    load->rewriting = NULL;
    load->text = load->chunk = NULL;
    load->text_size = load->text_room = load->chunk_room = 0;
}

void sh_load_free(struct sh_load *load)
{
    if (!load)
        return;
    release(load, NULL);
    sh_part_free(load->part, NULL);
    free(load);
}

uint64_t sh_load_bytes(const struct sh_load *load)
{
    uint64_t entries = load->out.room + load->in.room + load->records.room + load->uses.room +
                       load->sorter.scratch.room;
    return entries * sizeof(struct sh_entry) + load->text_room;
}

static void answer_waiting(struct sh_graph *graph, struct sh_load *load)
{
    if (load->waiting)
        sh_msg_reply_error(graph->config.msg, load->reply_to, SH_GRAPH_TYPE(SH_GRAPH_ADVANCE),
                           load->err, load->why);
    load->waiting = false;
}

void sh_load_fail(struct sh_graph *graph, enum shoal_err err, const char *format, ...)
{
    struct sh_load *load = graph->load;
    SH_ASSERT(load && err);
    if (load->phase == SH_LOAD_FAILED)
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(load->why, sizeof load->why, format, args);
    va_end(args);
    SH_WARN("graph", "load failed", SH_U64("load", load->id), SH_ERR(err),
            SH_TEXT("why", load->why));
    release(load, &graph->unmaps);
    sh_graph_bury(graph, load->part);
    load->part = NULL;
    load->err = err;
    load->phase = SH_LOAD_FAILED;
    answer_waiting(graph, load);
}

/* The load that a message is about: its first field. NULL: there is none, or it has failed, and
 * that has been answered. */
static struct sh_load *find_load(struct sh_graph *graph, const struct sh_graph_item *item,
                                 struct sh_reader *r)
{
    *r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(r);
    struct sh_load *load = graph->load;
    if (!sh_reader_ok(r) || !load || load->id != id) {
        sh_graph_reply_error(graph, item, sh_reader_ok(r) ? SHOAL_ECANCELED : SHOAL_EPROTO,
                             "the load is over here: it was aborted or timed out");
        return NULL;
    }
    load->heard_ns = graph->now_ns;
    if (load->phase == SH_LOAD_FAILED) {
        sh_graph_reply_error(graph, item, load->err, load->why);
        return NULL;
    }
    return load;
}

/* find_load for messages that only the staging phase takes. */
static struct sh_load *find_staging(struct sh_graph *graph, const struct sh_graph_item *item,
                                    struct sh_reader *r)
{
    struct sh_load *load = find_load(graph, item, r);
    if (load && load->phase != SH_LOAD_STAGING) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "the load takes no more data");
        return NULL;
    }
    return load;
}

/* Reads BEGIN into a new load. */
static enum shoal_err parse_begin(const struct sh_graph *graph, const struct sh_graph_item *item,
                                  struct sh_load *load)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    load->id = sh_get64(&r);
    uint64_t generation = sh_get64(&r);
    uint8_t flags = sh_get8(&r);
    uint32_t rank = sh_get32(&r);
    uint32_t peers = sh_get32(&r);
    if (!sh_reader_ok(&r) || peers == 0 || peers > SH_GRAPH_PEERS_MAX || rank >= peers ||
        load->id == 0 || sh_reader_left(&r) != (size_t)peers * 2 ||
        (flags & ~(SH_GRAPH_FLAG_TYPED | SH_GRAPH_FLAG_REPLACE)))
        return SHOAL_EPROTO;
    enum shoal_err err = sh_part_create(load->id, peers, &load->part);
    if (err)
        return err;
    for (uint32_t i = 0; i < peers; i++)
        load->part->peers[i].v = sh_get16(&r);
    load->part->rank = rank;
    load->part->generation = generation;
    load->part->typed = flags & SH_GRAPH_FLAG_TYPED;
    load->replace = flags & SH_GRAPH_FLAG_REPLACE;
    if (load->part->peers[rank].v != sh_msg_nid(graph->config.msg).v)
        return SHOAL_ENONODE;
    load->filling = calloc(peers, sizeof *load->filling);
    return load->filling ? SHOAL_OK : SHOAL_ENOMEM;
}

/* Whether anything is here of a graph that is loaded: a peer may have heard of one only. */
static bool live_has_any(const struct sh_graph *graph)
{
    const struct sh_part *live = graph->live;
    return live && (live->manifest_count > 0 || sh_part_vertices(live) > 0);
}

void sh_graph_on_begin(struct sh_graph *graph, const struct sh_graph_item *item)
{
    if (graph->load && graph->load->phase != SH_LOAD_FAILED) {
        sh_graph_reply_error(graph, item, SHOAL_EBUSY, "another load is under way");
        return;
    }
    if (graph->config.may_load && !graph->config.may_load(graph->config.arg)) {
        char text[128];
        (void)snprintf(text, sizeof text,
                       "peer %u is being drained, and takes no chunks: stop it first, or undo the "
                       "drain",
                       sh_msg_nid(graph->config.msg).v);
        sh_graph_reply_error(graph, item, SHOAL_ENONODE, text);
        return;
    }
    struct sh_load *load = calloc(1, sizeof *load);
    enum shoal_err err = load ? parse_begin(graph, item, load) : SHOAL_ENOMEM;
    if (!err && !load->replace && live_has_any(graph))
        err = SHOAL_EEXIST;
    if (!err && sh_scan_is_long(graph))
        err = SHOAL_EBUSY;
    if (err) {
        sh_graph_reply_error(graph, item, err,
                             err == SHOAL_EEXIST  ? "a graph is loaded already"
                             : err == SHOAL_EBUSY ? "the peer is looking through its chunks"
                                                  : NULL);
        sh_load_free(load);
        return;
    }
    sh_load_free(graph->load); /* one that failed */
    graph->load = load;
    load->coordinator = item->reply_to.nid;
    load->heard_ns = graph->now_ns;
    sh_graph_reply_ok(graph, item);
}

/* Checks the memory for staging and answers a batch. */
static void staged(struct sh_graph *graph, const struct sh_graph_item *item, enum shoal_err err)
{
    uint64_t max = graph->config.staging_bytes_max;
    if (!err && max > 0 && sh_load_bytes(graph->load) > max)
        err = SHOAL_EFULL;
    if (err) {
        sh_load_fail(graph, err, "peer %u: %s", (unsigned)sh_msg_nid(graph->config.msg).v,
                     err == SHOAL_EFULL    ? "the graph is too large for the staging memory"
                     : err == SHOAL_ENOMEM ? "no memory to stage the graph"
                                           : "a malformed batch");
        sh_graph_reply_error(graph, item, err, graph->load->why);
        return;
    }
    sh_graph_reply_ok(graph, item);
}

void sh_graph_on_edges(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_load *load = find_staging(graph, item, &r);
    if (!load)
        return;
    const struct sh_part *part = load->part;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_reader_left(&r) > 0) {
        uint64_t source = sh_get64(&r);
        uint64_t target = sh_get64(&r);
        uint16_t type = part->typed ? sh_get16(&r) : 0;
        bool out = sh_graph_place(source, part->peer_count) == part->rank;
        bool in = sh_graph_place(target, part->peer_count) == part->rank;
        if (!sh_reader_ok(&r) || !(out || in)) {
            err = SHOAL_EPROTO;
            break;
        }
        if (out)
            err = sh_entries_add(&load->out, (struct sh_entry){source, target, type});
        if (!err && in)
            err = sh_entries_add(&load->in, (struct sh_entry){target, source, 0});
    }
    staged(graph, item, err);
}

/* Makes room for `needed` bytes in a growing buffer. */
static enum shoal_err grow(uint8_t **at, size_t *room, size_t needed)
{
    if (needed <= *room)
        return SHOAL_OK;
    size_t wanted = *room ? *room * 2 : 65536;
    if (wanted < needed)
        wanted = needed;
    uint8_t *grown = sh_pages_grow(*at, *room, wanted);
    if (!grown)
        return SHOAL_ENOMEM;
    *at = grown;
    *room = wanted;
    return SHOAL_OK;
}

void sh_graph_on_records(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_load *load = find_staging(graph, item, &r);
    if (!load)
        return;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_reader_left(&r) > 0) {
        uint64_t name = sh_get64(&r);
        uint32_t size = sh_get32(&r);
        const uint8_t *text = sh_reader_take(&r, size);
        if (!text || sh_graph_place(name, load->part->peer_count) != load->part->rank) {
            err = SHOAL_EPROTO;
            break;
        }
        err = grow(&load->text, &load->text_room, load->text_size + size);
        if (!err)
            err = sh_entries_add(&load->records, (struct sh_entry){name, load->text_size, size});
        if (err)
            break;
        if (size) /* before the first text there is no memory to add to */
            memcpy(load->text + load->text_size, text, size);
        load->text_size += size;
    }
    staged(graph, item, err);
}

void sh_graph_on_types(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_load *load = find_staging(graph, item, &r);
    if (!load)
        return;
    struct sh_part *part = load->part;
    struct sh_bytes all = sh_bytes_make(r.at, sh_reader_left(&r));
    uint32_t count = 0;
    for (; sh_reader_left(&r) > 0; count++)
        (void)sh_get_text(&r);
    enum shoal_err err = SHOAL_OK;
    if (!sh_reader_done(&r) || part->types_count + count > SH_TYPES_MAX)
        err = SHOAL_EPROTO;
    if (!err)
        err = grow(&part->types, &part->types_room, part->types_size + all.size);
    if (!err && all.size > 0) {
        memcpy(part->types + part->types_size, all.at, all.size);
        part->types_size += all.size;
        part->types_count += count;
    }
    staged(graph, item, err);
}

void sh_load_go_live(struct sh_graph *graph, const struct sh_reply_to *to)
{
    struct sh_load *load = graph->load;
    SH_ASSERT(load && load->phase == SH_LOAD_PREPARED);
    struct sh_part *old = graph->live;
    graph->live = load->part;
    if (old) {
        sh_bfs_end_all(graph, old);
        sh_publish_end(graph, old);
        sh_graph_bury(graph, old);
    }
    sh_part_publish(graph->live, &graph->unmaps);
    sh_publish_begin(graph, graph->live, to);
    load->part = NULL;
    graph->load = NULL;
    release(load, &graph->unmaps);
    sh_load_free(load);
    SH_INFO("graph", "graph loaded", SH_U64("graph", graph->live->graph_id),
            SH_U64("vertices", sh_part_vertices(graph->live)), SH_U64("edges", graph->live->edges));
}

void sh_graph_on_end(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    if (graph->live && graph->live->graph_id == sh_get64(&r)) {
        /* said again, or the peers were faster */
        if (!sh_publish_join(graph, &item->reply_to))
            sh_graph_reply_ok(graph, item);
        return;
    }
    const struct sh_load *load = find_load(graph, item, &r);
    if (!load)
        return;
    if (load->phase != SH_LOAD_PREPARED || load->waiting) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "the load is not complete");
        return;
    }
    sh_load_go_live(graph, &item->reply_to);
}

void sh_graph_on_abort(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    struct sh_load *load = graph->load;
    if (load && load->id == id) {
        sh_load_fail(graph, SHOAL_ECANCELED, "aborted by its coordinator");
        graph->load = NULL;
        sh_load_free(load);
    }
    for (struct sh_part *part = graph->dying; part; part = part->next) {
        if (part->graph_id != id || part->reply_wanted)
            continue;
        part->reply_wanted = true;
        part->reply_to = item->reply_to;
        part->reply_type = item->type;
        return;
    }
    sh_graph_reply_ok(graph, item);
}

/* Answers ADVANCE with where the load stands. */
static void answer_advance(struct sh_graph *graph, struct sh_load *load, bool reached)
{
    struct sh_out out;
    load->waiting = false;
    if (sh_msg_reply(graph->config.msg, load->reply_to, SH_GRAPH_TYPE(SH_GRAPH_ADVANCE),
                     1 + 4 + 4 + 5 * 8, &out))
        return;
    bool sealing = load->phase <= SH_LOAD_SEALED;
    sh_put8(&out.w, reached);
    sh_put32(&out.w, (uint32_t)(sealing ? load->phase : load->phase - SH_LOAD_SEALED));
    sh_put32(&out.w, (uint32_t)(sealing ? SH_LOAD_SEALED : SH_LOAD_PREPARED - SH_LOAD_SEALED));
    sh_put64(&out.w, sh_part_vertices(load->part));
    sh_put64(&out.w, load->part->edges);
    sh_put64(&out.w, load->part->parallel);
    sh_put64(&out.w, load->part->records);
    sh_put64(&out.w, load->part->chunk_bytes);
    sh_msg_end(graph->config.msg, &out);
}

void sh_graph_on_advance(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r;
    struct sh_load *load = find_load(graph, item, &r);
    if (!load)
        return;
    static const enum sh_load_phase from[] = {
        [SH_GRAPH_GOAL_SEAL] = SH_LOAD_STAGING,
        [SH_GRAPH_GOAL_LINK] = SH_LOAD_SEALED,
        [SH_GRAPH_GOAL_PREPARE] = SH_LOAD_LINKED,
    };
    uint8_t goal = sh_get8(&r);
    if (goal == SH_GRAPH_GOAL_PREPARE) {
        load->part->all_vertices = sh_get64(&r);
        load->part->all_edges = sh_get64(&r);
        load->part->knows_all = sh_reader_done(&r);
    }
    if (!sh_reader_done(&r) || load->waiting || goal < SH_GRAPH_GOAL_SEAL ||
        goal > SH_GRAPH_GOAL_PREPARE || load->phase < from[goal]) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, "not the load's next goal");
        return;
    }
    if (load->phase == from[goal])
        load->phase++;
    load->waiting = true;
    load->reply_to = item->reply_to;
    load->reply_ns = graph->now_ns + SH_GRAPH_ADVANCE_WAIT_NS;
}

/* A piece of the current phase: about SH_GRAPH_PIECE entries. True: the phase is complete. */
static bool phase_piece(struct sh_graph *graph, struct sh_load *load)
{
    switch (load->phase) {
    case SH_LOAD_SORT_OUT:
        return sh_seal_sort(graph, load, &load->out, SH_SORT_BY_OWN);
    case SH_LOAD_SORT_IN:
        return sh_seal_sort(graph, load, &load->in, SH_SORT_BY_OWN);
    case SH_LOAD_SORT_RECORDS:
        return sh_seal_sort(graph, load, &load->records, SH_SORT_BY_OWN);
    case SH_LOAD_CREATE:
        return sh_seal_create(graph, load);
    case SH_LOAD_CREATE_MANIFEST:
        return sh_publish_create(graph, load);
    case SH_LOAD_USES_OUT:
        return sh_link_uses(graph, load, &load->out);
    case SH_LOAD_USES_IN:
        return sh_link_uses(graph, load, &load->in);
    case SH_LOAD_SORT_USES_OUT:
    case SH_LOAD_SORT_USES_IN:
        return sh_seal_sort(graph, load, &load->uses, SH_SORT_BY_OWN);
    case SH_LOAD_RESOLVE_OUT:
        return sh_link_resolve(graph, load, &load->out);
    case SH_LOAD_RESOLVE_IN:
        return sh_link_resolve(graph, load, &load->in);
    case SH_LOAD_RESORT_OUT: /* neighbours are chunk IDs now, which ascend in a chunk */
        return sh_seal_sort(graph, load, &load->out, SH_SORT_BY_ALL);
    case SH_LOAD_RESORT_IN:
        return sh_seal_sort(graph, load, &load->in, SH_SORT_BY_ALL);
    case SH_LOAD_FILL:
        return sh_link_fill(graph, load);
    default:
        return false;
    }
}

static bool rests(const struct sh_load *load)
{
    return load->phase == SH_LOAD_STAGING || load->phase == SH_LOAD_SEALED ||
           load->phase == SH_LOAD_LINKED || load->phase == SH_LOAD_PREPARED ||
           load->phase == SH_LOAD_FAILED;
}

/* Pieces of the current phase, until the step should end, the phase is complete (true), or it waits
 * for other peers. */
static bool phase_work(struct sh_graph *graph, struct sh_load *load)
{
    enum sh_load_phase phase = load->phase;
    SH_ASSERT(!rests(load));
    for (unsigned i = 0; i < SH_GRAPH_WORK / SH_GRAPH_PIECE; i++) {
        size_t at = load->at;
        if (phase_piece(graph, load))
            return true;
        bool resolves = phase == SH_LOAD_RESOLVE_OUT || phase == SH_LOAD_RESOLVE_IN;
        if (load->phase != phase || (resolves && load->at == at) || sh_step_spent())
            return false;
    }
    return false;
}

unsigned sh_load_work(struct sh_graph *graph)
{
    struct sh_load *load = graph->load;
    if (!load)
        return 0;
    unsigned done = 0;
    if (!rests(load)) {
        size_t at = load->at;
        enum sh_load_phase phase = load->phase;
        if (phase_work(graph, load) && load->phase != SH_LOAD_FAILED) {
            load->phase++;
            load->at = 0;
        }
        bool stalled = load->phase == phase && load->at == at &&
                       (phase == SH_LOAD_RESOLVE_OUT || phase == SH_LOAD_RESOLVE_IN);
        done = !stalled;
    }
    if (load->waiting && rests(load))
        answer_advance(graph, load, true);
    else if (load->waiting && graph->now_ns >= load->reply_ns)
        answer_advance(graph, load, false);
    if (load->waiting)
        return done;
    if (graph->now_ns - load->heard_ns >= graph->config.load_timeout_ns) {
        sh_load_fail(graph, SHOAL_ETIMEOUT, "nothing was heard of the coordinator for too long");
        graph->load = NULL;
        sh_load_free(load);
        done = 1;
    } else if (load->phase == SH_LOAD_PREPARED && graph->now_ns >= sh_outcome_due_ns(graph, load)) {
        sh_outcome_ask(graph, load);
        done = 1;
    }
    return done;
}

uint64_t sh_load_due_ns(const struct sh_graph *graph)
{
    const struct sh_load *load = graph->load;
    if (!load)
        return SH_NEVER;
    if (load->waiting)
        return load->reply_ns;
    uint64_t due_ns = load->heard_ns + graph->config.load_timeout_ns;
    if (load->phase == SH_LOAD_PREPARED && sh_outcome_due_ns(graph, load) < due_ns)
        due_ns = sh_outcome_due_ns(graph, load);
    return due_ns;
}
