/* Writes the manifest of a graph that goes live, into a chunk that was made with its vertices, and waits until all of the graph is as safe
 * as other writes are (sh_graph_config, level).
 *
 *   sealed: made, empty --END--> written, in pieces where it is large --> logged --> END is answered
 *
 * The graph serves from END on: if this peer fails before its manifest is written, other peers have theirs. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "graph/graph_int.h"

static size_t bytes_of(const struct sh_part *part)
{
    return (size_t)sh_manifest_bytes(part->peer_count, part->types_size);
}

bool sh_publish_create(struct sh_graph *graph, struct sh_load *load)
{
    struct sh_part *part = load->part;
    size_t size = bytes_of(part);
    uint32_t size32 = (uint32_t)size;
    sh_lid lid;
    SH_ASSERT(size <= UINT32_MAX && part->manifest_count == 0); /* SH_TYPES_MAX texts */
    const struct sh_store_wish wish = {.sizes = &size32, .count = 1, .retain = true};
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    enum shoal_err err = sh_backup_new_as(graph->config.backup, &write, &wish, &lid, NULL);
    if (err == SHOAL_EAGAIN)
        return false;
    if (!err) {
        err = sh_part_manifest_add(part, lid, true);
        SH_ASSERT(err != SHOAL_EEXIST);
        if (err) {
            (void)!sh_backup_remove(graph->config.backup, &write, lid);
            sh_store_unretain(graph->config.store, &lid, 1);
        }
    }
    if (err)
        sh_load_fail(graph, err, "peer %u: no chunk of %zu bytes for what the graph is",
                     sh_msg_nid(graph->config.msg).v, size);
    return !err;
}

static void encode(const struct sh_graph *graph, struct sh_publishing *publishing)
{
    const struct sh_part *part = publishing->part;
    uint8_t peers[SH_GRAPH_PEERS_MAX * 2];
    for (uint32_t i = 0; i < part->peer_count; i++)
        sh_store16(peers + (size_t)i * 2, part->peers[i].v);
    const struct sh_manifest manifest = {
        .graph_id = part->graph_id,
        .generation = part->generation,
        .typed = part->typed,
        .vertices = part->all_vertices,
        .edges = part->all_edges,
        .peer_count = part->peer_count,
        .peers = peers,
        .types_count = part->types_count,
        .types = sh_bytes_make(part->types, part->types_size),
    };
    sh_manifest_encode(publishing->bytes, publishing->size,
                       sh_part_cid(sh_msg_nid(graph->config.msg), part->manifests[0].lid),
                       &manifest);
}

static void buffers_free(struct sh_publishing *publishing)
{
    if (publishing->rewriting)
        (void)!sh_store_rewriting_end(publishing->rewriting);
    publishing->rewriting = NULL;
    free(publishing->bytes);
    publishing->bytes = NULL;
}

/* It is over, one way or the other. */
static void answer(struct sh_graph *graph, enum shoal_err err)
{
    struct sh_publishing *publishing = &graph->publishing;
    if (err)
        SH_WARN("graph", "what the graph is could not be written",
                SH_U64("graph", publishing->part->graph_id), SH_ERR(err));
    publishing->part = NULL;
    if (!publishing->reply_wanted)
        return;
    publishing->reply_wanted = false;
    if (err)
        sh_msg_reply_error(graph->config.msg, publishing->reply_to, SH_GRAPH_TYPE(SH_GRAPH_END),
                           err, "the peer could not write what the graph is");
    else
        sh_msg_reply_ok(graph->config.msg, publishing->reply_to, SH_GRAPH_TYPE(SH_GRAPH_END));
}

static void logged(void *arg, enum shoal_err err)
{
    struct sh_graph *graph = arg;
    SH_ASSERT(graph->publishing.is_waiting);
    graph->publishing.is_waiting = false;
    if (graph->publishing.part)
        answer(graph, err);
    graph->config.wake(graph->config.arg);
}

/* The manifest is in the store. */
static void written(struct sh_graph *graph, enum shoal_err err)
{
    struct sh_publishing *publishing = &graph->publishing;
    buffers_free(publishing);
    if (err) {
        answer(graph, err);
        return;
    }
    sh_write_begin(&publishing->write, graph->config.level);
    sh_backup_write_all(graph->config.backup, &publishing->write);
    publishing->is_waiting = true;
    if (graph->config.level != SH_LEVEL_ASYNC &&
        sh_write_wait(graph->config.backup, &publishing->write, logged, graph))
        return;
    publishing->is_waiting = false;
    answer(graph, SHOAL_OK);
}

/* EAGAIN: it goes on in a later step. */
static enum shoal_err write_some(struct sh_graph *graph, struct sh_publishing *publishing)
{
    struct sh_backup *backup = graph->config.backup;
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    if (publishing->rewriting) {
        if (!sh_backup_rewriting_step(backup, &write, publishing->rewriting))
            return SHOAL_EAGAIN;
        struct sh_store_rewriting *rewriting = publishing->rewriting;
        publishing->rewriting = NULL;
        return sh_store_rewriting_end(rewriting);
    }
    const struct sh_store_rewrite put = {.kind = SH_STORE_PUT,
                                         .cid = publishing->part->manifests[0].lid,
                                         .data =
                                             sh_bytes_make(publishing->bytes, publishing->size)};
    enum shoal_err err = sh_backup_put(backup, &write, put.cid, put.data);
    if (err != SHOAL_ELIMIT)
        return err;
    err = sh_store_rewriting_begin(graph->config.store, &put, &publishing->rewriting);
    return err ? err : SHOAL_EAGAIN;
}

unsigned sh_publish_work(struct sh_graph *graph)
{
    struct sh_publishing *publishing = &graph->publishing;
    if (!publishing->part || publishing->is_waiting)
        return 0;
    if (publishing->part->manifest_count == 0) { /* it moved away, empty: others have theirs */
        written(graph, SHOAL_OK);
        return 1;
    }
    if (!publishing->bytes) {
        publishing->size = bytes_of(publishing->part);
        publishing->bytes = malloc(publishing->size);
        if (!publishing->bytes) {
            graph->blocked = true;
            return 0;
        }
        encode(graph, publishing);
    }
    enum shoal_err err = write_some(graph, publishing);
    if (err != SHOAL_EAGAIN)
        written(graph, err);
    return 1;
}

void sh_publish_begin(struct sh_graph *graph, struct sh_part *part, const struct sh_reply_to *to)
{
    struct sh_publishing *publishing = &graph->publishing;
    SH_ASSERT(part == graph->live && part->knows_all && !publishing->part);
    publishing->part = part;
    publishing->reply_wanted = to != NULL;
    if (to)
        publishing->reply_to = *to;
}

bool sh_publish_join(struct sh_graph *graph, const struct sh_reply_to *to)
{
    struct sh_publishing *publishing = &graph->publishing;
    if (!publishing->part)
        return false;
    if (publishing->reply_wanted)
        sh_msg_reply_error(graph->config.msg, publishing->reply_to, SH_GRAPH_TYPE(SH_GRAPH_END),
                           SHOAL_ECANCELED, "it was asked again");
    publishing->reply_wanted = true;
    publishing->reply_to = *to;
    return true;
}

void sh_publish_end(struct sh_graph *graph, const struct sh_part *part)
{
    struct sh_publishing *publishing = &graph->publishing;
    if (!publishing->part || publishing->part != part)
        return;
    buffers_free(publishing);
    answer(graph, SHOAL_ECANCELED);
}

void sh_publish_abandon(struct sh_graph *graph)
{
    buffers_free(&graph->publishing);
}
