#include <stdio.h>

#include "graph/graph_int.h"

void sh_graph_reply_error(struct sh_graph *graph, const struct sh_graph_item *item,
                          enum shoal_err err, const char *text)
{
    sh_msg_reply_error(graph->config.msg, item->reply_to, item->type, err, text);
}

void sh_graph_reply_ok(struct sh_graph *graph, const struct sh_graph_item *item)
{
    sh_msg_reply_ok(graph->config.msg, item->reply_to, item->type);
}

void sh_graph_on_status(struct sh_graph *graph, const struct sh_graph_item *item)
{
    const struct sh_part *live = graph->live;
    bool knows_all = live && live->knows_all;
    uint32_t peers = knows_all ? live->peer_count : 0;
    bool loading = graph->load && graph->load->phase != SH_LOAD_FAILED;
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type,
                     1 + 8 + 8 + 4 + 6 * 8 + 2 * 8 + 8 + 4 + (size_t)peers * 2, &out))
        return; /* the asker is gone */
    sh_put8(&out.w,
            (uint8_t)((knows_all ? SH_GRAPH_IS_LIVE : 0) | (loading ? SH_GRAPH_IS_LOADING : 0) |
                      (knows_all && live->typed ? SH_GRAPH_IS_TYPED : 0) |
                      (sh_scan_is_on(graph) ? SH_GRAPH_IS_SCANNING : 0)));
    sh_put64(&out.w, live ? live->graph_id : 0);
    sh_put64(&out.w, live ? live->generation : 0);
    sh_put32(&out.w, sh_bfs_count(graph));
    sh_put64(&out.w, live ? sh_part_vertices(live) : 0);
    sh_put64(&out.w, live ? live->edges : 0);
    sh_put64(&out.w, live ? sh_part_payload_bytes(live) : 0);
    sh_put64(&out.w, live ? live->chunk_bytes : 0);
    sh_put64(&out.w, live ? sh_part_index_bytes(live) : 0);
    sh_put64(&out.w, graph->load ? sh_load_bytes(graph->load) : 0);
    sh_put64(&out.w, knows_all ? live->all_vertices : 0);
    sh_put64(&out.w, knows_all ? live->all_edges : 0);
    sh_put64(&out.w, graph->scan.count > 0 ? graph->scan.looked : 0);
    sh_put32(&out.w, peers);
    for (uint32_t i = 0; i < peers; i++)
        sh_put16(&out.w, live->peers[i].v);
    sh_msg_end(graph->config.msg, &out);
}

/* A graph that is not known here is from now on, and its vertices are looked for. */
void sh_graph_on_lookup(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t graph_id = sh_get64(&r);
    uint64_t generation = sh_get64(&r);
    uint64_t name = sh_get64(&r);
    if (!sh_reader_done(&r) || graph_id == 0) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    if (!graph->live || graph->live->graph_id != graph_id) {
        enum shoal_err err = sh_scan_learn(graph, graph_id, generation);
        if (err) {
            sh_graph_reply_error(graph, item, err, "no graph is loaded");
            return;
        }
    }
    sh_lid lid = {0};
    bool is_here = sh_part_look_up(graph->live, graph->config.store, name, &lid);
    enum sh_graph_found found = is_here                ? SH_GRAPH_FOUND_HERE
                                : sh_scan_is_on(graph) ? SH_GRAPH_FOUND_LATER
                                                       : SH_GRAPH_FOUND_NOT;
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 1 + 8, &out))
        return;
    sh_put8(&out.w, (uint8_t)found);
    sh_put64(&out.w, is_here ? sh_part_cid(sh_msg_nid(graph->config.msg), lid).v : 0);
    sh_msg_end(graph->config.msg, &out);
}

void sh_graph_on_drop(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    struct sh_part *part = graph->live;
    if (!sh_reader_done(&r)) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    if (graph->load && graph->load->phase != SH_LOAD_FAILED) {
        sh_graph_reply_error(graph, item, SHOAL_EBUSY, "a load is under way");
        return;
    }
    if (!part || (id != 0 && id != part->graph_id)) {
        sh_graph_reply_error(graph, item, SHOAL_ENONAME, "no graph is loaded");
        return;
    }
    sh_bfs_end_all(graph, part);
    sh_publish_end(graph, part);
    sh_scan_bury_former(graph);
    part->reply_wanted = true;
    part->reply_to = item->reply_to;
    part->reply_type = item->type;
    graph->live = NULL;
    sh_graph_bury(graph, part);
}

/* The part's texts from number `from` on: as many as make up a batch. */
static struct sh_bytes texts_from(const struct sh_part *part, uint32_t from)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(part->types, part->types_size));
    for (uint32_t i = 0; i < from && sh_reader_left(&r) > 0; i++)
        (void)sh_get_text(&r);
    const uint8_t *begin = r.at;
    while (sh_reader_left(&r) > 0 && (size_t)(r.at - begin) < SH_GRAPH_BATCH_BYTES)
        (void)sh_get_text(&r);
    return sh_bytes_make(begin, (size_t)(r.at - begin));
}

void sh_graph_on_types_get(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint32_t from = sh_get32(&r);
    const struct sh_part *live = graph->live;
    if (!sh_reader_done(&r) || !live || !live->knows_all) {
        sh_graph_reply_error(graph, item, live ? SHOAL_EPROTO : SHOAL_ENONAME,
                             live ? NULL : "no graph is loaded");
        return;
    }
    struct sh_bytes texts = {NULL, 0};
    if (from < live->types_count)
        texts = texts_from(live, from);
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 4 + texts.size, &out))
        return;
    sh_put32(&out.w, live->types_count);
    sh_put_raw(&out.w, texts);
    sh_msg_end(graph->config.msg, &out);
}
