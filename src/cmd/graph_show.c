/* shoal graph vertex and status. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cmd/chunk_int.h"
#include "cmd/graph_int.h"
#include "cmd/text_int.h"
#include "graph/vertex.h"

/* Neighbours shown on each side as text; with --json all are. */
#define NEIGHBOURS_SHOWN 10
/* Neighbours are read for their names, so many at a time, most of which have at most this size. */
#define PORTION 256
#define NEIGHBOUR_BYTES 4096

/* --- vertex -------------------------------------------------------------------------------- */

struct shown {
    struct sh_cmd *cmd;
    uint64_t name;
    struct sh_vertex vertex;
    struct sh_types *types; /* NULL in an untyped graph */
    shoal_cid cid;
    shoal_nid owner;
};

/* A neighbour, to be shown. */
struct neighbour {
    shoal_cid cid;
    uint64_t name;
    enum shoal_err err; /* why the name is not known */
};

static enum shoal_err name_of(struct sh_bytes bytes, uint64_t *name_out)
{
    struct sh_vertex vertex;
    enum shoal_err err = sh_vertex_decode(bytes, &vertex);
    if (err == SHOAL_OK)
        *name_out = vertex.name;
    return err;
}

static void name_read(shoal *store, struct neighbour *neighbour)
{
    uint8_t *bytes;
    uint32_t size;
    neighbour->err = sh_chunk_read(store, neighbour->cid, &bytes, &size);
    if (neighbour->err != SHOAL_OK)
        return;
    neighbour->err = name_of(sh_bytes_make(bytes, size), &neighbour->name);
    free(bytes);
}

/* Reads the names of up to PORTION neighbours at once; the few large ones one by one. */
static void portion_read(shoal *store, struct neighbour *neighbours, size_t count, uint8_t *room)
{
    struct shoal_op ops[PORTION];
    SH_ASSERT(count <= PORTION);
    for (size_t i = 0; i < count; i++)
        ops[i] = (struct shoal_op){
            .cid = neighbours[i].cid, .data = room + i * NEIGHBOUR_BYTES, .size = NEIGHBOUR_BYTES};
    /* Each operation has its own result. */
    enum shoal_err err = shoal_multi_get(store, ops, count);
    (void)err;
    for (size_t i = 0; i < count; i++) {
        neighbours[i].err = ops[i].err;
        if (ops[i].err == SHOAL_ESIZE)
            name_read(store, &neighbours[i]);
        else if (ops[i].err == SHOAL_OK)
            neighbours[i].err =
                name_of(sh_bytes_make(ops[i].data, ops[i].size), &neighbours[i].name);
    }
}

/* The first count neighbours of one side with their names; allocated, NULL: out of memory. */
static struct neighbour *neighbours_read(const struct shown *shown, bool out, size_t count)
{
    struct neighbour *neighbours = calloc(count + 1, sizeof *neighbours);
    uint8_t *room = malloc((size_t)PORTION * NEIGHBOUR_BYTES);
    if (!neighbours || !room) {
        free(neighbours);
        free(room);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        neighbours[i].cid =
            out ? sh_vertex_out(&shown->vertex, i) : sh_vertex_in(&shown->vertex, i);
    for (size_t at = 0; at < count; at += PORTION) {
        size_t many = count - at < PORTION ? count - at : PORTION;
        portion_read(shown->cmd->store, neighbours + at, many, room);
    }
    free(room);
    return neighbours;
}

/* The relation's name of an out neighbour; empty in an untyped graph. */
static struct sh_bytes relation_of(const struct shown *shown, uint32_t index)
{
    uint16_t number = sh_vertex_type(&shown->vertex, index);
    if (!shown->types || number >= sh_types_count(shown->types))
        return sh_bytes_text("");
    return sh_types_name(shown->types, number);
}

static void bytes_json(struct sh_json *object, const char *key, struct sh_bytes bytes)
{
    char *text = strndup((const char *)bytes.at, bytes.size);
    sh_json_set_text(object, key, text);
    free(text);
}

static struct sh_json *side_json(const struct shown *shown, bool out, size_t count,
                                 const struct neighbour *neighbours)
{
    struct sh_json *list = sh_json_array();
    for (uint32_t i = 0; i < count; i++) {
        char text[SH_CID_TEXT_MAX];
        struct sh_json *row = sh_json_object();
        if (neighbours[i].err == SHOAL_OK)
            sh_json_set_u64(row, "name", neighbours[i].name);
        else
            sh_json_set_text(row, "error", shoal_err_name(neighbours[i].err));
        sh_json_set_text(row, "cid", sh_cid_format(neighbours[i].cid, text));
        if (out && shown->vertex.typed)
            bytes_json(row, "relation", relation_of(shown, i));
        sh_json_append(list, row);
    }
    return list;
}

static void side_print(const struct shown *shown, bool out, size_t count, uint32_t all,
                       const struct neighbour *neighbours)
{
    FILE *to = shown->cmd->out;
    fprintf(to, "%s %" PRIu32 "%s\n", out ? "out" : "in", all, all ? ":" : "");
    for (uint32_t i = 0; i < count; i++) {
        fputs("  ", to);
        if (out && shown->vertex.typed) {
            sh_text_print(relation_of(shown, i), to);
            fputc(' ', to);
        }
        if (neighbours[i].err == SHOAL_OK)
            fprintf(to, "%" PRIu64 "\n", neighbours[i].name);
        else
            fprintf(to, "? (%s)\n", shoal_err_text(neighbours[i].err));
    }
    if (count < all)
        fprintf(to, "  and %" PRIu32 " more (--json lists all)\n", (uint32_t)(all - count));
}

/* How many neighbours of a side are shown. */
static size_t shown_count(const struct shown *shown, uint32_t all)
{
    return shown->cmd->flags.json || all < NEIGHBOURS_SHOWN ? all : NEIGHBOURS_SHOWN;
}

static int vertex_print(const struct shown *shown)
{
    struct sh_cmd *cmd = shown->cmd;
    const struct sh_vertex *vertex = &shown->vertex;
    char cid[SH_CID_TEXT_MAX];
    size_t out_count = shown_count(shown, vertex->out_count);
    size_t in_count = shown_count(shown, vertex->in_count);
    struct neighbour *outs = neighbours_read(shown, true, out_count);
    struct neighbour *ins = neighbours_read(shown, false, in_count);
    int status = SH_EXIT_OK;
    sh_cid_format(shown->cid, cid);
    if (!outs || !ins) {
        status = sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    } else if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "name", vertex->name);
        sh_json_set_text(root, "cid", cid);
        sh_json_set_u64(root, "nid", shown->owner.v);
        bytes_json(root, "record", vertex->record);
        sh_json_set(root, "out", side_json(shown, true, out_count, outs));
        sh_json_set(root, "in", side_json(shown, false, in_count, ins));
        status = sh_cmd_answer(cmd, root);
    } else {
        fprintf(cmd->out, "vertex %" PRIu64 ", chunk %s on node %u\n", vertex->name, cid,
                (unsigned)shown->owner.v);
        if (vertex->record.size) {
            fputs("record: ", cmd->out);
            sh_text_print(vertex->record, cmd->out);
            fputc('\n', cmd->out);
        }
        side_print(shown, true, out_count, vertex->out_count, outs);
        side_print(shown, false, in_count, vertex->in_count, ins);
    }
    free(outs);
    free(ins);
    return status;
}

static enum shoal_err vertex_ask(const struct sh_graph_peers *peers, void *arg,
                                 struct sh_graph_problem *problem_out)
{
    struct shown *shown = arg;
    return sh_graph_vertex(&peers->caller, peers->nids, peers->count, shown->name, &shown->cid,
                           &shown->owner, problem_out);
}

static enum shoal_err types_ask(const struct sh_graph_peers *peers, void *arg,
                                struct sh_graph_problem *problem_out)
{
    struct shown *shown = arg;
    return sh_graph_types(&peers->caller, peers->nids, peers->count, &shown->types, problem_out);
}

/* Reads the vertex's chunk and shows it. */
static int vertex_show(struct shown *shown, struct sh_graph_peers *peers)
{
    struct sh_cmd *cmd = shown->cmd;
    struct sh_graph_problem problem;
    uint8_t *bytes;
    uint32_t size;
    enum shoal_err err = sh_chunk_read(cmd->store, shown->cid, &bytes, &size);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, shown->cid);
    int status = SH_EXIT_OK;
    err = sh_vertex_decode(sh_bytes_make(bytes, size), &shown->vertex);
    if (err != SHOAL_OK)
        status = sh_chunk_fail(cmd, err, shown->cid);
    if (err == SHOAL_OK && shown->vertex.typed) {
        err = sh_graph_persist(cmd, peers, types_ask, shown, &problem);
        if (err != SHOAL_OK)
            status = sh_cmd_fail(cmd, err, "%s", problem.detail);
    }
    if (err == SHOAL_OK)
        status = vertex_print(shown);
    sh_types_destroy(shown->types);
    free(bytes);
    return status;
}

int sh_cmd_run_graph_vertex(struct sh_cmd *cmd)
{
    struct sh_graph_peers peers;
    struct sh_graph_problem problem;
    struct shown shown = {.cmd = cmd};
    if (!sh_vertex_name_parse(cmd->words[0], &shown.name))
        return sh_cmd_usage(cmd, "\"%.40s\" is not a vertex: write its number", cmd->words[0]);
    int status = sh_graph_open(cmd, &peers);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_graph_persist(cmd, &peers, vertex_ask, &shown, &problem);
    if (err == SHOAL_OK)
        status = vertex_show(&shown, &peers);
    else
        status = sh_cmd_fail(cmd, err, "%s", problem.detail);
    free(peers.nids);
    return status;
}

/* --- status -------------------------------------------------------------------------------- */

/* What one peer, or all of them, hold, with what the store uses for it. */
struct holding {
    struct sh_graph_status graph;
    uint64_t store_bytes;
};

static double per_vertex(const struct holding *h)
{
    return h->graph.vertices
               ? (double)(h->store_bytes + h->graph.index_bytes) / (double)h->graph.vertices
               : 0;
}

/* What memory is spent over the payload, in percent of it. */
static double overhead_percent(const struct holding *h)
{
    double spent = (double)h->store_bytes + (double)h->graph.index_bytes;
    double payload = (double)h->graph.payload_bytes;
    return h->graph.payload_bytes ? 100 * (spent - payload) / payload : 0;
}

static void holding_json(struct sh_json *row, const struct holding *h)
{
    sh_json_set_bool(row, "loaded", h->graph.loaded);
    sh_json_set_bool(row, "loading", h->graph.loading);
    sh_json_set_bool(row, "scanning", h->graph.scanning);
    sh_json_set_u64(row, "scanned_chunks", h->graph.scanned);
    sh_json_set_u64(row, "vertices", h->graph.vertices);
    sh_json_set_u64(row, "edges", h->graph.edges);
    sh_json_set_u64(row, "graph_vertices", h->graph.all_vertices);
    sh_json_set_u64(row, "graph_edges", h->graph.all_edges);
    sh_json_set_u64(row, "payload_bytes", h->graph.payload_bytes);
    sh_json_set_u64(row, "chunk_bytes", h->graph.chunk_bytes);
    sh_json_set_u64(row, "index_bytes", h->graph.index_bytes);
    sh_json_set_u64(row, "store_used_bytes", h->store_bytes);
    sh_json_set_u64(row, "staging_bytes", h->graph.staging_bytes);
    sh_json_set_f64(row, "bytes_per_vertex", per_vertex(h));
    sh_json_set_f64(row, "overhead_percent", overhead_percent(h));
}

static void holding_print(FILE *out, const char *who, const struct holding *h)
{
    char payload[SH_SIZE_TEXT_MAX], chunks[SH_SIZE_TEXT_MAX], index[SH_SIZE_TEXT_MAX],
        store[SH_SIZE_TEXT_MAX];
    fprintf(out, "%5s %11" PRIu64 " %11" PRIu64 " %10s %10s %10s %10s %10.1f %8.1f%%\n", who,
            h->graph.vertices, h->graph.edges, sh_size_format(h->graph.payload_bytes, payload),
            sh_size_format(h->graph.chunk_bytes, chunks),
            sh_size_format(h->graph.index_bytes, index), sh_size_format(h->store_bytes, store),
            per_vertex(h), overhead_percent(h));
}

/* In one sentence each: whether there is a graph, and what is under way. */
static void state_print(FILE *out, const struct sh_graph_status *all)
{
    if (!all->graph_id)
        fprintf(out, "No graph is loaded%s.\n", all->loading ? "; a load is under way" : "");
    else if (!all->loaded)
        fprintf(out, "%" PRIu64 " of the graph's %" PRIu64 " vertices are served now.\n",
                all->vertices, all->all_vertices);
    if (all->scanning)
        fprintf(out,
                "Peers are looking for vertices among their chunks: %" PRIu64
                " were looked at so far.\n",
                all->scanned);
}

static int holdings_print(struct sh_cmd *cmd, const struct sh_graph_peers *peers,
                          const struct holding *each, const struct holding *all)
{
    struct sh_json *root = sh_json_object(), *list = sh_json_array(), *sum = sh_json_object();
    if (!cmd->flags.json)
        state_print(cmd->out, &all->graph);
    if (!cmd->flags.json && all->graph.vertices)
        fprintf(cmd->out, "%5s %11s %11s %10s %10s %10s %10s %10s %9s\n", "NODE", "VERTICES",
                "EDGES", "PAYLOAD", "IN CHUNKS", "INDEX", "STORE", "B/VERTEX", "OVERHEAD");
    for (size_t i = 0; i < peers->count; i++) {
        char who[8];
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "nid", peers->nids[i].v);
        holding_json(row, &each[i]);
        sh_json_append(list, row);
        snprintf(who, sizeof who, "%u", (unsigned)peers->nids[i].v);
        if (!cmd->flags.json && all->graph.vertices)
            holding_print(cmd->out, who, &each[i]);
    }
    holding_json(sum, all);
    sh_json_set(root, "nodes", list);
    sh_json_set(root, "all", sum);
    if (cmd->flags.json)
        return sh_cmd_answer(cmd, root);
    sh_json_free(root);
    if (all->graph.vertices)
        holding_print(cmd->out, "all", all);
    return SH_EXIT_OK;
}

/* What all peers hold, and each of them, in their order. */
struct holdings {
    struct sh_cmd *cmd;
    struct holding all;
    struct holding *each; /* allocated */
};

/* Asks the peers' graphs, and then their stores. */
static enum shoal_err holdings_ask(const struct sh_graph_peers *peers, void *arg,
                                   struct sh_graph_problem *problem_out)
{
    struct holdings *holdings = arg;
    struct sh_graph_status *graphs = calloc(peers->count, sizeof *graphs);
    free(holdings->each);
    holdings->each = calloc(peers->count, sizeof *holdings->each);
    holdings->all = (struct holding){0};
    enum shoal_err err = graphs && holdings->each ? SHOAL_OK : SHOAL_ENOMEM;
    if (err == SHOAL_OK)
        err = sh_graph_status_get(&peers->caller, peers->nids, peers->count, graphs,
                                  &holdings->all.graph, problem_out);
    for (size_t i = 0; i < peers->count && err == SHOAL_OK; i++) {
        struct shoal_status store;
        err = shoal_status(holdings->cmd->store, peers->nids[i], &store);
        if (err != SHOAL_OK) {
            problem_out->peer = peers->nids[i];
            snprintf(problem_out->detail, sizeof problem_out->detail, "node %u",
                     (unsigned)peers->nids[i].v);
            break;
        }
        holdings->each[i] = (struct holding){graphs[i], store.used_bytes};
        holdings->all.store_bytes += store.used_bytes;
    }
    free(graphs);
    return err;
}

int sh_cmd_run_graph_status(struct sh_cmd *cmd)
{
    struct sh_graph_peers peers;
    struct sh_graph_problem problem;
    struct holdings holdings = {.cmd = cmd};
    int status = sh_graph_open(cmd, &peers);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_graph_persist(cmd, &peers, holdings_ask, &holdings, &problem);
    if (err == SHOAL_OK)
        status = holdings_print(cmd, &peers, holdings.each, &holdings.all);
    else
        status = sh_cmd_fail(cmd, err, "%s", problem.detail);
    free(holdings.each);
    free(peers.nids);
    return status;
}
