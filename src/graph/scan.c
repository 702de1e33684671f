/* Follows the chunks: which of those that this peer serves are vertices of a graph.
 *
 *   chunks come (sh_graph_chunks_came) --> ranges to be looked through --> each chunk that is served here:
 *                                               ^                            a vertex of a graph that is known: enters its part
 *                                               |                            a manifest: that graph is known
 *                                               '---- all of the store <---- of a graph that was not known
 *
 * A graph is known by its manifest, or because a coordinator has asked for it. Of several graphs that are found, which
 * happens where a peer was down while one was dropped or replaced, the one of the highest generation is live, and the others are
 * removed once all has been looked through.
 *
 * A chunk that is no vertex costs a look at its first bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/steptime.h"
#include "graph/graph_int.h"

#define LOOKED_AT_ONCE 1024
#define LOOK_AFTER 64 /* chunks, at the time */
#define AHEAD_ENTRY 16
#define AHEAD_DATA 8
/* Chunks of a batch that moves lie among so many IDs at most, about. */
#define LONG_IDS (UINT64_C(1) << 20)

static shoal_nid self_of(const struct sh_graph *graph)
{
    return sh_msg_nid(graph->config.msg);
}

static sh_lid lid_of(const struct sh_graph *graph, shoal_cid cid)
{
    bool is_local =
        shoal_cid_creator(cid).v == self_of(graph).v && !sh_store_has_nid(graph->config.store);
    return is_local ? (sh_lid){shoal_cid_local(cid)} : cid;
}

static bool finds_out(const struct sh_graph *graph)
{
    return graph->config.finds_out && graph->config.finds_out(graph->config.arg);
}

bool sh_scan_is_on(const struct sh_graph *graph)
{
    return graph->scan.count > 0 || finds_out(graph);
}

bool sh_scan_is_long(const struct sh_graph *graph)
{
    return (graph->scan.count > 0 && graph->scan.is_long) || finds_out(graph);
}

/* --- Ranges ------------------------------------------------------------------------------------- */

static struct sh_scan_range *range_now(struct sh_scan *scan)
{
    SH_ASSERT(scan->count > 0 && scan->at + scan->count <= SH_SCAN_RANGES_MAX);
    return &scan->ranges[scan->at];
}

/* Where there is no room for another range, one has them all: what lies between them was looked at before, or is not served. */
static void ranges_join(struct sh_scan *scan)
{
    struct sh_scan_range all = *range_now(scan);
    for (unsigned i = 1; i < scan->count; i++) {
        const struct sh_scan_range *range = &scan->ranges[scan->at + i];
        all.first = range->first.v < all.first.v ? range->first : all.first;
        all.last = range->last.v > all.last.v ? range->last : all.last;
    }
    scan->ranges[0] = all;
    scan->at = 0;
    scan->count = 1;
    scan->is_long = true;
}

static void range_add(struct sh_graph *graph, sh_lid first, sh_lid last)
{
    struct sh_scan *scan = &graph->scan;
    SH_ASSERT(first.v <= last.v);
    if (scan->count == 0) {
        scan->at = 0;
        scan->is_long = false;
        scan->looked = 0;
    }
    scan->is_long |= last.v - first.v >= LONG_IDS;
    graph->config.wake(graph->config.arg);
    struct sh_scan_range *end = scan->count ? &scan->ranges[scan->at + scan->count - 1] : NULL;
    if (end && end->first.v <= first.v && last.v <= end->last.v)
        return;
    if (end && first.v > 0 && end->last.v == first.v - 1) {
        end->last = last;
        return;
    }
    if (scan->at + scan->count == SH_SCAN_RANGES_MAX)
        ranges_join(scan);
    scan->ranges[scan->at + scan->count++] = (struct sh_scan_range){first, last};
}

static void range_over(struct sh_graph *graph)
{
    struct sh_scan *scan = &graph->scan;
    (void)range_now(scan);
    scan->at++;
    scan->count--;
    if (scan->count == 0 && scan->is_long && graph->live)
        SH_INFO("graph", "has looked through its chunks for vertices",
                SH_U64("chunks", scan->looked), SH_U64("vertices", sh_part_vertices(graph->live)));
}

/* All that the store has is looked through. */
static void range_add_all(struct sh_graph *graph)
{
    graph->scan.count = 0;
    range_add(graph, (sh_lid){0}, (sh_lid){UINT64_MAX});
}

void sh_graph_chunks_came(struct sh_graph *graph, shoal_cid first, shoal_cid last)
{
    range_add(graph, lid_of(graph, first), lid_of(graph, last));
}

static void leave(struct sh_graph *graph, struct sh_part *part, sh_lid first, sh_lid last)
{
    bool is_lost;
    if (sh_part_leave(part, graph->config.store, first, last, &is_lost) == 0)
        return;
    if (is_lost)
        range_add_all(graph);
    sh_bfs_disturb(graph, part);
}

void sh_graph_chunks_left(struct sh_graph *graph, shoal_cid first, shoal_cid last)
{
    sh_lid from = lid_of(graph, first), to = lid_of(graph, last);
    if (graph->live)
        leave(graph, graph->live, from, to);
    for (struct sh_part *part = graph->former; part; part = part->next)
        leave(graph, part, from, to);
    for (struct sh_part *part = graph->dying; part; part = part->next) {
        if (part->is_finished) /* what is being loaded does not move */
            leave(graph, part, from, to);
    }
}

/* --- Graphs ------------------------------------------------------------------------------------- */

static struct sh_part *part_find(const struct sh_graph *graph, uint64_t graph_id)
{
    struct sh_part *part = graph->live;
    if (part && part->graph_id == graph_id)
        return part;
    for (part = graph->former; part && part->graph_id != graph_id; part = part->next)
        ;
    return part;
}

static bool is_buried(const struct sh_graph *graph, uint64_t graph_id)
{
    for (unsigned i = 0; i < SH_GRAPH_BURIED_MAX; i++) {
        if (graph->buried[i] == graph_id)
            return true;
    }
    return false;
}

static void former_add(struct sh_graph *graph, struct sh_part *part)
{
    part->next = graph->former;
    graph->former = part;
}

/* Makes the part of a graph that was not known here live, in the place of the one that is. */
static void live_set(struct sh_graph *graph, struct sh_part *part)
{
    struct sh_part *live = graph->live;
    graph->live = part;
    if (!live)
        return;
    sh_bfs_end_all(graph, live);
    sh_publish_end(graph, live);
    former_add(graph, live);
}

/* Adds a part of a graph that was not known here. It is live unless a newer one is, or it was removed here. */
static enum shoal_err part_add(struct sh_graph *graph, uint64_t graph_id, uint64_t generation,
                               struct sh_part **part_out)
{
    struct sh_part *part;
    SH_ASSERT(!part_find(graph, graph_id));
    enum shoal_err err = sh_part_create(graph_id, 0, &part);
    if (err)
        return err;
    part->generation = generation;
    err = sh_part_finish(part); /* it has nothing yet */
    if (err) {
        sh_part_free(part, NULL);
        return err;
    }
    if (is_buried(graph, graph_id)) {
        former_add(graph, part);
    } else {
        if (graph->live && graph->live->generation > generation)
            former_add(graph, part);
        else
            live_set(graph, part);
        range_add_all(graph);
    }
    *part_out = part;
    return SHOAL_OK;
}

enum shoal_err sh_scan_learn(struct sh_graph *graph, uint64_t graph_id, uint64_t generation)
{
    struct sh_part *part;
    bool is_older = graph->live && graph->live->generation >= generation;
    if (is_older || is_buried(graph, graph_id) || part_find(graph, graph_id))
        return SHOAL_ENONAME;
    return part_add(graph, graph_id, generation, &part);
}

void sh_graph_chunks_loaded(struct sh_graph *graph, shoal_cid first, shoal_cid last)
{
    memset(graph->buried, 0, sizeof graph->buried);
    sh_graph_chunks_came(graph, first, last);
}

void sh_scan_bury_former(struct sh_graph *graph)
{
    while (graph->former) {
        struct sh_part *part = graph->former;
        graph->former = part->next;
        SH_INFO("graph", "removes what is left of an older graph", SH_U64("graph", part->graph_id),
                SH_U64("vertices", sh_part_vertices(part)));
        sh_graph_bury(graph, part);
    }
}

/* --- Chunks --------------------------------------------------------------------------------------- */

/* What the reading of one chunk needs and yields. */
struct look {
    struct sh_graph *graph;
    sh_lid lid;
    shoal_cid cid;
    struct sh_part *part; /* of which it is a vertex that was entered */
    uint64_t buried;      /* the graph of which it is a late vertex */
    bool is_manifest;
    enum shoal_err err;
};

static struct sh_part *part_of_vertex(const struct look *look, const struct sh_vertex *vertex)
{
    struct sh_part *part = look->graph->live;
    if (part && vertex->seal == sh_vertex_seal(part->graph_id, look->cid))
        return part;
    for (part = look->graph->former; part; part = part->next) {
        if (vertex->seal == sh_vertex_seal(part->graph_id, look->cid))
            return part;
    }
    return NULL;
}

/* The graph that was removed here before this vertex of it came; 0: none. */
static uint64_t buried_of_vertex(const struct look *look, const struct sh_vertex *vertex)
{
    const struct sh_graph *graph = look->graph;
    for (unsigned i = 0; i < SH_GRAPH_BURIED_MAX; i++) {
        if (graph->buried[i] && vertex->seal == sh_vertex_seal(graph->buried[i], look->cid))
            return graph->buried[i];
    }
    return 0;
}

/* Whether a vertex could be one of a graph that is, or was, known here. */
static bool knows_any(const struct sh_graph *graph)
{
    return graph->live || graph->former || graph->buried_next > 0;
}

static void look_into(void *arg, struct sh_bytes chunk)
{
    struct look *look = arg;
    struct sh_vertex vertex;
    look->is_manifest = sh_manifest_is(chunk);
    if (look->is_manifest || !knows_any(look->graph) || sh_vertex_decode(chunk, &vertex))
        return;
    struct sh_part *part = part_of_vertex(look, &vertex);
    if (!part) {
        look->buried = buried_of_vertex(look, &vertex);
        return;
    }
    look->err = sh_part_enter(part, look->lid, &vertex, chunk.size);
    if (!look->err)
        look->part = part;
    else if (look->err == SHOAL_EEXIST)
        look->err = SHOAL_OK;
}

static enum shoal_err manifest_take(struct sh_graph *graph, const struct look *look,
                                    struct sh_bytes chunk)
{
    struct sh_manifest manifest;
    if (sh_manifest_decode(chunk, look->cid, &manifest))
        return SHOAL_OK; /* it only begins like one */
    struct sh_part *part = part_find(graph, manifest.graph_id);
    enum shoal_err err = SHOAL_OK;
    if (!part)
        err = part_add(graph, manifest.graph_id, manifest.generation, &part);
    if (!err)
        err = sh_part_learn(part, &manifest);
    if (!err)
        err = sh_part_manifest_add(part, look->lid, false);
    return err == SHOAL_EEXIST ? SHOAL_OK : err;
}

/* A manifest is copied out of the store, as its graph may be a new one. */
static enum shoal_err manifest_read(struct sh_graph *graph, const struct look *look)
{
    uint32_t size, got;
    if (sh_store_size(graph->config.store, look->lid, &size))
        return SHOAL_OK; /* it has gone meanwhile */
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_OK;
    if (sh_store_get(graph->config.store, look->lid, bytes, size, &got) == SHOAL_OK)
        err = manifest_take(graph, look, sh_bytes_make(bytes, got));
    free(bytes);
    return err;
}

/* A vertex that came too late is removed with those that follow. False: there is no memory for it now. */
static bool look_at(struct sh_graph *graph, sh_lid lid);
static bool late_take(struct sh_graph *graph, const struct look *look)
{
    struct sh_part *part;
    return part_add(graph, look->buried, 0, &part) == SHOAL_OK && look_at(graph, look->lid);
}

/* False: there is no memory for it now. */
static bool look_at(struct sh_graph *graph, sh_lid lid)
{
    struct look look = {.graph = graph, .lid = lid, .cid = sh_part_cid(self_of(graph), lid)};
    uint8_t head[SH_MANIFEST_MAGIC_BYTES]; /* shorter than any vertex */
    /* Nearly all chunks that are none are told by that, for which nobody has to wait. */
    if (sh_store_get_part(graph->config.store, lid, 0, head, sizeof head) ||
        !(sh_vertex_may_begin(head[0]) || sh_manifest_is(sh_bytes_make(head, sizeof head))))
        return true;
    if (sh_store_read(graph->config.store, lid, look_into, &look))
        return true; /* it has gone meanwhile */
    if (look.is_manifest)
        look.err = manifest_read(graph, &look);
    if (look.buried)
        return late_take(graph, &look);
    if (look.part)
        sh_bfs_disturb(graph, look.part);
    return look.err == SHOAL_OK;
}

/* Looks at chunks that follow each other, from `at` to `last`. Returns how many; the range at hand begins behind them. */
static unsigned look_at_run(struct sh_graph *graph, sh_lid at, sh_lid last, unsigned budget)
{
    struct sh_scan *scan = &graph->scan;
    struct sh_store *store = graph->config.store;
    unsigned done = 0;
    for (; at.v <= last.v && done < budget; at.v++, done++) {
        if (last.v - at.v >= AHEAD_ENTRY)
            sh_store_prefetch(store, (sh_lid){at.v + AHEAD_ENTRY}, SH_STORE_ENTRY);
        if (last.v - at.v >= AHEAD_DATA)
            sh_store_prefetch(store, (sh_lid){at.v + AHEAD_DATA}, SH_STORE_DATA);
        range_now(scan)->first.v = at.v + 1;
        scan->looked++;
        if (!look_at(graph, at)) {
            /* Without memory it is tried again, by and by. */
            range_now(scan)->first = at;
            graph->blocked = true;
            return done;
        }
        if (range_now(scan)->first.v != at.v + 1 || (done % LOOK_AFTER == 0 && sh_step_spent()))
            return done + 1; /* a graph was found: it begins anew */
    }
    return done;
}

/* The next chunks of the range at hand that are in the store and served here. False: there are none up to *last_out. */
static bool run_next(struct sh_graph *graph, sh_lid *first_out, sh_lid *last_out)
{
    const struct sh_scan_range *range = range_now(&graph->scan);
    sh_lid first, last;
    if (!sh_store_range(graph->config.store, range->first, &first, &last) ||
        first.v > range->last.v) {
        *last_out = range->last;
        return false;
    }
    last = last.v < range->last.v ? last : range->last;
    shoal_nid self = self_of(graph);
    shoal_cid until = {UINT64_MAX}, cid = sh_part_cid(self, first);
    bool is_served = !graph->config.serves || graph->config.serves(graph->config.arg, cid, &until);
    SH_ASSERT(until.v >= cid.v);
    if (until.v - cid.v < last.v - first.v)
        last.v = first.v + (until.v - cid.v);
    *first_out = first;
    *last_out = last;
    return is_served;
}

unsigned sh_scan_work(struct sh_graph *graph)
{
    struct sh_scan *scan = &graph->scan;
    unsigned done = 0;
    if (self_of(graph).v == 0)
        return 0; /* the chunks' names are not known yet */
    while (scan->count > 0 && done < LOOKED_AT_ONCE && !graph->blocked) {
        sh_lid first, last;
        bool is_run = run_next(graph, &first, &last);
        if (is_run)
            done += look_at_run(graph, first, last, LOOKED_AT_ONCE - done);
        else if (last.v >= range_now(scan)->last.v)
            range_over(graph);
        else
            range_now(scan)->first.v = last.v + 1;
        if (scan->count > 0 && is_run && range_now(scan)->first.v > range_now(scan)->last.v)
            range_over(graph);
        done += !is_run;
        if (sh_step_spent())
            break;
    }
    if (!sh_scan_is_on(graph) && graph->former) {
        sh_scan_bury_former(graph);
        done++;
    }
    return done;
}
