#include <stdlib.h>

#include "base/assert.h"
#include "graph/graph_int.h"
#include "graph/vertex.h"

#define ASKS_MAX 16             /* of a load, in flight */
#define FILL_BYTES (16u * 1024) /* in a piece */

/* Lists who uses which name: sorted, the uses of a name lie together and each name is asked for
 * once. */
bool sh_link_uses(struct sh_graph *graph, struct sh_load *load, const struct sh_entries *entries)
{
    SH_ASSERT(load->uses.count == load->at);
    size_t end = load->at + SH_GRAPH_PIECE;
    if (end > entries->count)
        end = entries->count;
    for (; load->at < end; load->at++) {
        struct sh_entry use = {entries->at[load->at].other, load->at, 0};
        if (sh_entries_add(&load->uses, use)) {
            sh_load_fail(graph, SHOAL_ENOMEM, "no memory to resolve the graph's names");
            return false;
        }
    }
    return load->at == entries->count;
}

/* Puts a chunk ID in the place of a name, wherever it is used. */
static void patch(const struct sh_entries *uses, size_t at, struct sh_entries *entries,
                  uint64_t cid)
{
    uint64_t name = uses->at[at].own;
    for (; at < uses->count && uses->at[at].own == name; at++)
        entries->at[uses->at[at].other].other = cid;
}

/* Sends the batch for a peer. False: it has to wait, or the load failed. */
static bool send_batch(struct sh_graph *graph, struct sh_load *load, uint32_t rank)
{
    if (load->asks == ASKS_MAX)
        return false;
    enum shoal_err err = sh_graph_ask_send(graph, load->filling[rank], load->part->peers[rank], 0);
    if (!err) {
        load->filling[rank] = NULL;
        load->asks++;
        return true;
    }
    if (err != SHOAL_EAGAIN)
        sh_load_fail(graph, err, "peer %u can't ask peer %u", load->part->peers[load->part->rank].v,
                     load->part->peers[rank].v);
    return false;
}

/* Resolves one name: at once, or by adding it to a batch. False as above. */
static bool resolve_name(struct sh_graph *graph, struct sh_load *load, struct sh_entries *entries,
                         uint64_t name)
{
    struct sh_part *part = load->part;
    uint32_t rank = sh_graph_place(name, part->peer_count);
    if (rank == part->rank) {
        uint32_t index;
        /* Each edge was staged at both its ends, so both are vertices. */
        if (!sh_part_find_name(part, name, &index)) {
            sh_load_fail(graph, SHOAL_EPROTO, "vertex %llu was used but never created",
                         (unsigned long long)name);
            return false;
        }
        patch(&load->uses, load->at, entries,
              sh_part_cid(part->peers[rank], sh_part_lid(part, index)).v);
        return true;
    }
    struct sh_graph_ask *ask = load->filling[rank];
    if (ask && ask->count == SH_GRAPH_BATCH_NAMES) {
        if (!send_batch(graph, load, rank))
            return false;
        ask = NULL;
    }
    if (!ask) {
        ask = sh_graph_ask_new(graph, SH_GRAPH_TYPE(SH_GRAPH_RESOLVE), load->id, rank);
        if (!ask) {
            sh_load_fail(graph, SHOAL_ENOMEM, "no memory to resolve the graph's names");
            return false;
        }
        load->filling[rank] = ask;
    }
    ask->ids[ask->count] = name;
    ask->places[ask->count++] = load->at;
    return true;
}

bool sh_link_resolve(struct sh_graph *graph, struct sh_load *load, struct sh_entries *entries)
{
    const struct sh_entries *uses = &load->uses;
    for (unsigned work = 0; load->at < uses->count && work < SH_GRAPH_PIECE; work++) {
        uint64_t name = uses->at[load->at].own;
        if (!resolve_name(graph, load, entries, name))
            return false;
        while (load->at < uses->count && uses->at[load->at].own == name) {
            load->at++;
            work++;
        }
    }
    if (load->at < uses->count)
        return false;
    for (uint32_t rank = 0; rank < load->part->peer_count; rank++) {
        if (load->filling[rank] && !send_batch(graph, load, rank))
            return false;
    }
    if (load->asks > 0)
        return false;
    load->uses.count = 0;
    return true;
}

void sh_load_answered(struct sh_graph *graph, struct sh_graph_ask *ask)
{
    struct sh_load *load = graph->load;
    if (!load || load->id != ask->owner_id || load->phase == SH_LOAD_FAILED)
        return; /* the load is over */
    SH_ASSERT(load->asks > 0);
    load->asks--;
    if (ask->type == SH_GRAPH_TYPE(SH_GRAPH_OUTCOME)) {
        sh_outcome_answered(graph, ask);
        return;
    }
    if (ask->err && ask->answer_size > 0) { /* it failed before us, and knows why */
        sh_load_fail(graph, ask->err, "%.*s", (int)ask->answer_size, (const char *)ask->answer);
        return;
    }
    if (!ask->err && ask->answer_size != (size_t)ask->count * 8)
        ask->err = SHOAL_EPROTO;
    if (ask->err) {
        sh_load_fail(graph, ask->err, "peer %u got no answer from peer %u",
                     load->part->peers[load->part->rank].v, load->part->peers[ask->rank].v);
        return;
    }
    struct sh_entries *entries = load->phase == SH_LOAD_RESOLVE_OUT ? &load->out : &load->in;
    for (uint32_t i = 0; i < ask->count; i++) {
        uint64_t cid = sh_load64(ask->answer + (size_t)i * 8);
        if (cid == 0) {
            sh_load_fail(graph, SHOAL_EPROTO, "peer %u does not know vertex %llu",
                         load->part->peers[ask->rank].v, (unsigned long long)ask->ids[i]);
            return;
        }
        patch(&load->uses, ask->places[i], entries, cid);
    }
}

void sh_graph_on_resolve(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    struct sh_load *load = graph->load;
    size_t count = sh_reader_left(&r) / 8;
    if (load && load->id == id && load->phase == SH_LOAD_FAILED) {
        sh_graph_reply_error(graph, item, load->err, load->why);
        return;
    }
    if (!load || load->id != id || load->phase < SH_LOAD_SEALED || sh_reader_left(&r) % 8) {
        sh_graph_reply_error(graph, item, SHOAL_ECANCELED, NULL);
        return;
    }
    const struct sh_part *part = load->part;
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, count * 8, &out))
        return;
    for (size_t i = 0; i < count; i++) {
        uint32_t index;
        uint64_t cid = 0;
        if (sh_part_find_name(part, sh_get64(&r), &index))
            cid = sh_part_cid(part->peers[part->rank], sh_part_lid(part, index)).v;
        sh_put64(&out.w, cid);
    }
    sh_msg_end(graph->config.msg, &out);
}

static uint32_t take_own(const struct sh_entries *entries, size_t *at, uint64_t name)
{
    size_t begin = *at;
    while (*at < entries->count && entries->at[*at].own == name)
        ++*at;
    return (uint32_t)(*at - begin);
}

/* How many of the count edges are like the one before: sorted, those that repeat one lie behind it.
 */
static uint32_t count_parallel(const struct sh_entry *edges, uint32_t count)
{
    uint32_t parallel = 0;
    for (uint32_t i = 1; i < count; i++)
        parallel += edges[i].other == edges[i - 1].other && edges[i].extra == edges[i - 1].extra;
    return parallel;
}

/* Where a list goes on; NULL where there is none, for not even 0 may be added to that. */
static const struct sh_entry *entries_from(const struct sh_entries *entries, size_t at)
{
    return entries->at ? entries->at + at : NULL;
}

/* Encodes the next vertex's chunk into load->chunk. */
static enum shoal_err encode_next(struct sh_load *load, size_t *size_out)
{
    uint64_t name = load->part->names[load->at];
    const struct sh_entry *out = entries_from(&load->out, load->out_at);
    const struct sh_entry *in = entries_from(&load->in, load->in_at);
    const struct sh_entry *record = entries_from(&load->records, load->record_at);
    uint32_t out_count = take_own(&load->out, &load->out_at, name);
    uint32_t in_count = take_own(&load->in, &load->in_at, name);
    struct sh_bytes text = {NULL, 0};
    if (take_own(&load->records, &load->record_at, name) && record->extra)
        text = sh_bytes_make(load->text + record->other, (size_t)record->extra);
    bool typed = load->part->typed;
    size_t size = (size_t)sh_vertex_bytes(out_count, in_count, typed, text.size);
    if (size > load->chunk_room) {
        uint8_t *grown = realloc(load->chunk, size * 2);
        if (!grown)
            return SHOAL_ENOMEM;
        load->chunk = grown;
        load->chunk_room = size * 2;
    }
    shoal_cid cid = sh_part_cid(load->part->peers[load->part->rank],
                                sh_part_lid(load->part, (uint32_t)load->at));
    uint32_t seal = sh_vertex_seal(load->part->graph_id, cid);
    struct sh_vertex_room room =
        sh_vertex_encode(load->chunk, size, seal, name, out_count, in_count, typed, text);
    for (uint32_t i = 0; i < out_count; i++) {
        sh_store64(room.out + (size_t)i * 8, out[i].other);
        if (typed)
            sh_store16(room.types + (size_t)i * 2, (uint16_t)out[i].extra);
    }
    for (uint32_t i = 0; i < in_count; i++)
        sh_store64(room.in + (size_t)i * 8, in[i].other);
    load->part->parallel += count_parallel(out, out_count);
    *size_out = size;
    return SHOAL_OK;
}

/* Writes the encoded vertex. EAGAIN: it is to be gone on with in a later step, as the log takes it in pieces, or has no room now. */
static enum shoal_err vertex_write(struct sh_graph *graph, struct sh_load *load)
{
    struct sh_backup *backup = graph->config.backup;
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    if (load->rewriting) {
        if (!sh_backup_rewriting_step(backup, &write, load->rewriting))
            return SHOAL_EAGAIN;
        struct sh_store_rewriting *rewriting = load->rewriting;
        load->rewriting = NULL;
        return sh_store_rewriting_end(rewriting);
    }
    const struct sh_store_rewrite put = {.kind = SH_STORE_PUT,
                                         .cid = sh_part_lid(load->part, (uint32_t)load->at),
                                         .data = sh_bytes_make(load->chunk, load->chunk_size)};
    enum shoal_err err = sh_backup_put(backup, &write, put.cid, put.data);
    if (err != SHOAL_ELIMIT)
        return err;
    err = sh_store_rewriting_begin(graph->config.store, &put, &load->rewriting);
    return err ? err : SHOAL_EAGAIN;
}

bool sh_link_fill(struct sh_graph *graph, struct sh_load *load)
{
    for (size_t bytes = 0; bytes < FILL_BYTES && load->at < load->part->count; load->at++) {
        enum shoal_err err = load->chunk_size ? SHOAL_OK : encode_next(load, &load->chunk_size);
        if (!err)
            err = vertex_write(graph, load);
        if (err == SHOAL_EAGAIN)
            return false;
        if (err) {
            sh_load_fail(graph, err, "the chunk of vertex %llu can't be written",
                         (unsigned long long)load->part->names[load->at]);
            return false;
        }
        bytes += load->chunk_size + 64;
        load->chunk_size = 0;
    }
    if (load->at < load->part->count)
        return false;
    SH_ASSERT(load->out_at == load->out.count && load->in_at == load->in.count);
    return true;
}
