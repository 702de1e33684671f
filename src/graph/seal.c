#include <stdlib.h>

#include "base/assert.h"
#include "graph/graph_int.h"
#include "graph/vertex.h"

#define CREATE_AT_ONCE 256

static unsigned own_nid(const struct sh_graph *graph)
{
    return sh_msg_nid(graph->config.msg).v;
}

bool sh_seal_sort(struct sh_graph *graph, struct sh_load *load, struct sh_entries *entries,
                  enum sh_sort_key key)
{
    if (!load->sorter.entries && sh_sorter_begin(&load->sorter, entries, key)) {
        sh_load_fail(graph, SHOAL_ENOMEM, "peer %u: no memory to sort the graph", own_nid(graph));
        return false;
    }
    return sh_sorter_run(&load->sorter, SH_GRAPH_PIECE);
}

/* How many entries from `at` on are for the vertex. */
static size_t count_own(const struct sh_entries *entries, size_t at, uint64_t name)
{
    size_t end = at;
    while (end < entries->count && entries->at[end].own == name)
        end++;
    return end - at;
}

static void least_name(const struct sh_entries *entries, size_t at, uint64_t *name, bool *found)
{
    if (at < entries->count && (!*found || entries->at[at].own < *name)) {
        *name = entries->at[at].own;
        *found = true;
    }
}

/* A vertex about to be created. */
struct newborn {
    uint64_t name;
    uint64_t bytes;
};

/* Takes the next vertex off the sorted entries. False: there is none left, or the load failed. */
static bool next_vertex(struct sh_graph *graph, struct sh_load *load, struct newborn *vertex_out)
{
    uint64_t name = 0;
    bool found = false;
    least_name(&load->out, load->out_at, &name, &found);
    least_name(&load->in, load->in_at, &name, &found);
    least_name(&load->records, load->record_at, &name, &found);
    if (!found)
        return false;
    size_t out = count_own(&load->out, load->out_at, name);
    size_t in = count_own(&load->in, load->in_at, name);
    size_t records = count_own(&load->records, load->record_at, name);
    if (records > 1) {
        sh_load_fail(graph, SHOAL_EPARSE, "vertex %llu has %zu records", (unsigned long long)name,
                     records);
        return false;
    }
    uint64_t record_bytes = records ? load->records.at[load->record_at].extra : 0;
    bool fits = out <= UINT32_MAX && in <= UINT32_MAX;
    uint64_t bytes =
        fits ? sh_vertex_bytes((uint32_t)out, (uint32_t)in, load->part->typed, record_bytes)
             : UINT64_MAX;
    if (bytes > UINT32_MAX) {
        sh_load_fail(graph, SHOAL_ETOOBIG, "vertex %llu has %zu edges out and %zu in",
                     (unsigned long long)name, out, in);
        return false;
    }
    load->out_at += out;
    load->in_at += in;
    load->record_at += records;
    load->part->edges += out;
    load->part->records += records;
    load->part->record_bytes += record_bytes;
    *vertex_out = (struct newborn){name, bytes};
    return true;
}

static void fail_creation(struct sh_graph *graph, enum shoal_err err, const struct newborn *born,
                          size_t count)
{
    const struct newborn *largest = born;
    for (size_t i = 1; i < count; i++) {
        if (born[i].bytes > largest->bytes)
            largest = &born[i];
    }
    if (err == SHOAL_ETOOBIG)
        sh_load_fail(graph, err, "vertex %llu needs %llu bytes: more than chunk_bytes_max",
                     (unsigned long long)largest->name, (unsigned long long)largest->bytes);
    else
        sh_load_fail(graph, err, "peer %u: no %s for more than %u vertices", own_nid(graph),
                     err == SHOAL_EFULL ? "chunk memory" : "memory", graph->load->part->count);
}

/* How far the vertices were taken off, for another attempt. */
struct taken {
    size_t out_at, in_at, record_at;
    uint64_t edges, records, record_bytes;
};

static struct taken taken_now(const struct sh_load *load)
{
    const struct sh_part *part = load->part;
    return (struct taken){load->out_at, load->in_at,   load->record_at,
                          part->edges,  part->records, part->record_bytes};
}

static void taken_back(struct sh_load *load, const struct taken *taken)
{
    load->out_at = taken->out_at;
    load->in_at = taken->in_at;
    load->record_at = taken->record_at;
    load->part->edges = taken->edges;
    load->part->records = taken->records;
    load->part->record_bytes = taken->record_bytes;
}

bool sh_seal_create(struct sh_graph *graph, struct sh_load *load)
{
    const struct taken before = taken_now(load);
    struct newborn born[CREATE_AT_ONCE];
    uint32_t sizes[CREATE_AT_ONCE];
    sh_lid lids[CREATE_AT_ONCE];
    size_t count = 0;
    while (count < CREATE_AT_ONCE && next_vertex(graph, load, &born[count])) {
        sizes[count] = (uint32_t)born[count].bytes;
        count++;
    }
    if (load->phase == SH_LOAD_FAILED)
        return false;
    if (count == 0) {
        load->out_at = load->in_at = load->record_at = 0;
        if (sh_part_finish(load->part) == SHOAL_OK)
            return true;
        sh_load_fail(graph, SHOAL_ENOMEM, "peer %u: no memory for the index", own_nid(graph));
        return false;
    }
    struct sh_store_wish wish = {.sizes = sizes, .count = count, .retain = true};
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    enum shoal_err err = sh_backup_new_as(graph->config.backup, &write, &wish, lids, NULL);
    if (err == SHOAL_EAGAIN) { /* the log has no room: in a later step */
        taken_back(load, &before);
        return false;
    }
    if (err) {
        fail_creation(graph, err, born, count);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        load->part->chunk_bytes += sizes[i];
        err = sh_part_add(load->part, born[i].name, lids[i]);
        if (err) { /* the part does not know the rest of the new chunks: they go here */
            enum shoal_err errs[CREATE_AT_ONCE];
            (void)sh_backup_remove_multi(graph->config.backup, &write, lids + i, count - i, errs);
            sh_store_unretain(graph->config.store, lids + i, count - i);
            fail_creation(graph, err, born, count);
            return false;
        }
    }
    return false;
}
