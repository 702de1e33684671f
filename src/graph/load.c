#include "graph/load.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "graph/gather_int.h"

#define WINDOW 4 /* batches in flight to a peer */
#define END_TRIES 2
#define PROGRESS_LINES 8192

/* What goes to one peer: a batch being filled, and those in flight. */
struct lane {
    shoal_nid to;
    uint8_t *batch;
    size_t size, room;
    struct sh_gather window[WINDOW];
    unsigned next;
};

struct loader {
    const struct sh_caller *caller;
    const struct sh_graph_load_options *options;
    const shoal_nid *peers;
    uint32_t count;
    uint64_t id, generation;
    struct lane *lanes;
    struct sh_gather *gathers; /* for what goes to all peers at once */
    struct sh_types *types;    /* NULL unless typed */
    struct sh_graph_load_report report;
    struct sh_graph_problem *problem_out;
};

static void progress(const struct loader *loader, const char *phase, uint64_t done, uint64_t total)
{
    if (loader->options->progress)
        loader->options->progress(loader->options->arg, phase, done, total);
}

static enum shoal_err wait_batch(struct loader *loader, struct sh_gather *gather)
{
    enum shoal_err err = sh_gather_wait(loader->caller, gather);
    if (err)
        sh_gather_explain(loader->problem_out, gather);
    return err;
}

/* Sends a lane's batch; waits first for the oldest one in flight if the window is full. */
static enum shoal_err flush(struct loader *loader, struct lane *lane, enum sh_graph_op op)
{
    if (lane->size == 0)
        return SHOAL_OK;
    struct sh_gather *gather = &lane->window[lane->next];
    lane->next = (lane->next + 1) % WINDOW;
    enum shoal_err err = wait_batch(loader, gather);
    if (err)
        return err;
    struct sh_out out;
    err = sh_gather_begin(loader->caller, gather, lane->to, op, 8 + lane->size,
                          SH_GATHER_TIMEOUT_NS, &out);
    if (err) {
        sh_gather_explain(loader->problem_out, gather);
        return err;
    }
    sh_put64(&out.w, loader->id);
    sh_put_raw(&out.w, sh_bytes_make(lane->batch, lane->size));
    sh_msg_end(loader->caller->msg, &out);
    lane->size = 0;
    return SHOAL_OK;
}

/* Room for one more item in a lane's batch, which is sent first if it is full. */
static enum shoal_err lane_take(struct loader *loader, struct lane *lane, enum sh_graph_op op,
                                size_t size, struct sh_writer *w_out)
{
    if (lane->size > 0 && lane->size + size > SH_GRAPH_BATCH_BYTES) {
        enum shoal_err err = flush(loader, lane, op);
        if (err)
            return err;
    }
    if (lane->size + size > lane->room) {
        size_t room = size > SH_GRAPH_BATCH_BYTES ? size : SH_GRAPH_BATCH_BYTES;
        uint8_t *grown = realloc(lane->batch, room);
        if (!grown)
            return SHOAL_ENOMEM;
        lane->batch = grown;
        lane->room = room;
    }
    *w_out = sh_writer_make(lane->batch + lane->size, size);
    lane->size += size;
    return SHOAL_OK;
}

/* Sends what is left and waits for every batch. */
static enum shoal_err drain(struct loader *loader, enum sh_graph_op op)
{
    enum shoal_err first = SHOAL_OK;
    for (uint32_t i = 0; i < loader->count && !first; i++)
        first = flush(loader, &loader->lanes[i], op);
    for (uint32_t i = 0; i < loader->count; i++) {
        for (unsigned j = 0; j < WINDOW; j++) {
            enum shoal_err err = wait_batch(loader, &loader->lanes[i].window[j]);
            if (!first)
                first = err;
        }
    }
    return first;
}

static enum shoal_err put_edge(struct loader *loader, const struct sh_edge *edge)
{
    uint32_t from = sh_graph_place(edge->source, loader->count);
    uint32_t to = sh_graph_place(edge->target, loader->count);
    for (unsigned i = 0; i < (from == to ? 1 : 2); i++) {
        struct sh_writer w;
        enum shoal_err err = lane_take(loader, &loader->lanes[i ? to : from], SH_GRAPH_EDGES,
                                       loader->types ? 18 : 16, &w);
        if (err)
            return err;
        sh_put64(&w, edge->source);
        sh_put64(&w, edge->target);
        if (loader->types)
            sh_put16(&w, edge->type);
        SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    }
    return SHOAL_OK;
}

static enum shoal_err put_record(struct loader *loader, const struct sh_record *record)
{
    struct lane *lane = &loader->lanes[sh_graph_place(record->name, loader->count)];
    struct sh_writer w;
    enum shoal_err err = lane_take(loader, lane, SH_GRAPH_RECORDS, 12 + record->text.size, &w);
    if (err)
        return err;
    sh_put64(&w, record->name);
    sh_put32(&w, (uint32_t)record->text.size);
    sh_put_raw(&w, record->text);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    return SHOAL_OK;
}

/* Says which lines of a file are wrong. */
static enum shoal_err judge_lines(struct loader *loader, const char *path,
                                  const struct sh_wrong_lines *wrong)
{
    if (wrong->count == 0)
        return SHOAL_OK;
    if (loader->problem_out)
        loader->problem_out->wrong = *wrong;
    sh_graph_explain(loader->problem_out, "%s: %llu wrong line%s, the first is line %llu: %s", path,
                     (unsigned long long)wrong->count, wrong->count > 1 ? "s" : "",
                     (unsigned long long)wrong->lines[0].line, wrong->lines[0].text);
    return SHOAL_EPARSE;
}

/* Sends one item of a file; *end_out when there is none. Once a line was wrong the rest is only
 * read, to find the other wrong ones. */
static enum shoal_err send_next(struct loader *loader, struct sh_edges *reader, bool records,
                                bool *end_out)
{
    struct sh_edge edge;
    struct sh_record record;
    enum shoal_err err =
        records ? sh_records_next(reader, &record, end_out) : sh_edges_next(reader, &edge, end_out);
    if (err) {
        sh_graph_explain(loader->problem_out, "%s: %s",
                         records ? loader->options->vertices_path : loader->options->edges_path,
                         sh_edges_detail(reader)[0] ? sh_edges_detail(reader)
                                                    : shoal_err_text(err));
        return err;
    }
    if (*end_out || sh_edges_wrong(reader)->count > 0)
        return SHOAL_OK;
    if (records)
        return put_record(loader, &record);
    loader->report.lines++;
    return put_edge(loader, &edge);
}

static enum shoal_err send_file(struct loader *loader, const char *path, bool records)
{
    struct sh_edges *reader;
    char detail[256];
    const char *phase = records ? "vertices" : "edges";
    enum shoal_err err = sh_edges_open(path, records ? NULL : loader->types, &reader, detail);
    if (err) {
        sh_graph_explain(loader->problem_out, "%s", detail);
        return err;
    }
    uint64_t lines = 0;
    for (bool end = false; !end && !err; lines++) {
        if (lines % PROGRESS_LINES == 0)
            progress(loader, phase, sh_edges_bytes_done(reader), sh_edges_bytes_total(reader));
        err = send_next(loader, reader, records, &end);
    }
    if (!err)
        err = judge_lines(loader, path, sh_edges_wrong(reader));
    if (!err) {
        progress(loader, phase, sh_edges_bytes_total(reader), sh_edges_bytes_total(reader));
        err = drain(loader, records ? SH_GRAPH_RECORDS : SH_GRAPH_EDGES);
    }
    sh_edges_close(reader);
    return err;
}

/* The relations go to every peer: anyone may be asked for them. */
static enum shoal_err send_types(struct loader *loader)
{
    size_t count = loader->types ? sh_types_count(loader->types) : 0;
    for (size_t number = 0; number < count; number++) {
        struct sh_bytes name = sh_types_name(loader->types, (uint16_t)number);
        for (uint32_t i = 0; i < loader->count; i++) {
            struct sh_writer w;
            enum shoal_err err =
                lane_take(loader, &loader->lanes[i], SH_GRAPH_TYPES, 2 + name.size, &w);
            if (err)
                return err;
            sh_put_text(&w, name);
        }
    }
    loader->report.types = count;
    return drain(loader, SH_GRAPH_TYPES);
}

/* The graph's generation is above those of all graphs that peers know, and, for those that none of them knows, as late as the time. */
static enum shoal_err generation_choose(struct loader *loader)
{
    const struct sh_clock *clock = loader->caller->clock;
    struct sh_graph_whereabouts where;
    enum shoal_err err = sh_graph_survey(loader->caller, loader->peers, loader->count, &where);
    if (err)
        return err;
    free(where.members);
    uint64_t wall_ns = clock->wall_ns(clock->arg);
    uint64_t above = where.generation_max < UINT64_MAX ? where.generation_max + 1 : UINT64_MAX;
    loader->generation = wall_ns > above ? wall_ns : above;
    return SHOAL_OK;
}

static enum shoal_err send_begin(struct loader *loader)
{
    enum shoal_err chosen = generation_choose(loader);
    if (chosen)
        return chosen;
    for (uint32_t i = 0; i < loader->count; i++) {
        struct sh_out out;
        if (sh_gather_begin(loader->caller, &loader->gathers[i], loader->peers[i], SH_GRAPH_BEGIN,
                            8 + 8 + 1 + 4 + 4 + (size_t)loader->count * 2, SH_GATHER_TIMEOUT_NS,
                            &out))
            continue;
        sh_put64(&out.w, loader->id);
        sh_put64(&out.w, loader->generation);
        sh_put8(&out.w, (uint8_t)((loader->options->typed ? SH_GRAPH_FLAG_TYPED : 0) |
                                  (loader->options->replace ? SH_GRAPH_FLAG_REPLACE : 0)));
        sh_put32(&out.w, i);
        sh_put32(&out.w, loader->count);
        for (uint32_t j = 0; j < loader->count; j++)
            sh_put16(&out.w, loader->peers[j].v);
        sh_msg_end(loader->caller->msg, &out);
    }
    enum shoal_err first = SHOAL_OK;
    for (uint32_t i = 0; i < loader->count; i++) {
        enum shoal_err err = sh_gather_wait(loader->caller, &loader->gathers[i]);
        if (err && !first) {
            first = err;
            sh_gather_explain(loader->problem_out, &loader->gathers[i]);
        }
    }
    return first;
}

/* Reads the peers' answers to ADVANCE. */
static enum shoal_err read_advance(struct loader *loader, bool *reached_out, uint64_t *done_out,
                                   uint64_t *total_out)
{
    struct sh_graph_load_report *report = &loader->report;
    report->vertices = report->edges = report->parallel = 0;
    report->records = report->chunk_bytes = 0;
    *reached_out = true;
    *done_out = *total_out = 0;
    for (uint32_t i = 0; i < loader->count; i++) {
        struct sh_reader r = sh_gather_reader(&loader->gathers[i]);
        *reached_out &= sh_get8(&r) == 1;
        *done_out += sh_get32(&r);
        *total_out += sh_get32(&r);
        report->vertices += sh_get64(&r);
        report->edges += sh_get64(&r);
        report->parallel += sh_get64(&r);
        report->records += sh_get64(&r);
        report->chunk_bytes += sh_get64(&r);
        if (!sh_reader_done(&r))
            return SHOAL_EPROTO;
    }
    return SHOAL_OK;
}

/* Has all peers reach a goal. They answer after a while in any case, and are asked again. */
static enum shoal_err advance(struct loader *loader, enum sh_graph_goal goal, const char *phase)
{
    uint8_t payload[25];
    sh_store64(payload, loader->id);
    payload[8] = (uint8_t)goal;
    sh_store64(payload + 9, loader->report.vertices);
    sh_store64(payload + 17, loader->report.edges);
    size_t size = goal == SH_GRAPH_GOAL_PREPARE ? sizeof payload : 9;
    for (bool reached = false; !reached;) {
        enum shoal_err err = sh_gather_all(
            loader->caller, loader->gathers, loader->peers, loader->count, SH_GRAPH_ADVANCE,
            sh_bytes_make(payload, size), SH_GATHER_TIMEOUT_NS, loader->problem_out);
        if (err)
            return err;
        uint64_t done;
        uint64_t total;
        err = read_advance(loader, &reached, &done, &total);
        if (err)
            return err;
        progress(loader, phase, done, total);
    }
    return SHOAL_OK;
}

/* Lets the graph go live. The peers would by themselves, now that all are prepared, so that a lost
 * answer is worth a second try before everything is taken back. */
static enum shoal_err send_end(struct loader *loader)
{
    uint8_t payload[8];
    sh_store64(payload, loader->id);
    enum shoal_err err = SHOAL_OK;
    for (unsigned left = END_TRIES; left > 0; left--) {
        err = sh_gather_all(loader->caller, loader->gathers, loader->peers, loader->count,
                            SH_GRAPH_END, sh_bytes_make(payload, sizeof payload),
                            SH_GATHER_TIMEOUT_NS, left > 1 ? NULL : loader->problem_out);
        if (!err)
            break;
    }
    return err;
}

static enum shoal_err run(struct loader *loader)
{
    uint64_t started_ns = sh_now(loader->caller->clock);
    enum shoal_err err = send_begin(loader);
    if (!err)
        err = send_file(loader, loader->options->edges_path, false);
    if (!err)
        err = send_types(loader);
    if (!err && loader->options->vertices_path)
        err = send_file(loader, loader->options->vertices_path, true);
    loader->report.seconds_reading = (double)(sh_now(loader->caller->clock) - started_ns) / 1e9;
    if (!err)
        err = advance(loader, SH_GRAPH_GOAL_SEAL, "sort");
    if (!err)
        err = advance(loader, SH_GRAPH_GOAL_LINK, "link");
    if (!err && loader->report.edges != loader->report.lines) {
        sh_graph_explain(loader->problem_out, "the peers hold %llu edges of %llu",
                         (unsigned long long)loader->report.edges,
                         (unsigned long long)loader->report.lines);
        err = SHOAL_EPROTO;
    }
    if (!err)
        err = advance(loader, SH_GRAPH_GOAL_PREPARE, "link");
    if (!err)
        err = send_end(loader);
    loader->report.seconds = (double)(sh_now(loader->caller->clock) - started_ns) / 1e9;
    return err;
}

/* Waits for what is in flight and takes the load back wherever it got to. A peer that can't be
 * reached drops it when it hears nothing. */
static void undo(struct loader *loader)
{
    for (uint32_t i = 0; i < loader->count; i++) {
        for (unsigned j = 0; j < WINDOW; j++)
            (void)sh_gather_wait(loader->caller, &loader->lanes[i].window[j]);
    }
    uint8_t payload[8];
    sh_store64(payload, loader->id);
    static const enum sh_graph_op ops[] = {SH_GRAPH_ABORT, SH_GRAPH_DROP};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        enum shoal_err err = sh_gather_all(
            loader->caller, loader->gathers, loader->peers, loader->count, ops[i],
            sh_bytes_make(payload, sizeof payload), SH_GATHER_REMOVAL_TIMEOUT_NS, NULL);
        (void)err; /* DROP finds it only where END had come through already */
    }
}

static void loader_free(struct loader *loader)
{
    for (uint32_t i = 0; loader->lanes && i < loader->count; i++) {
        for (unsigned j = 0; j < WINDOW; j++)
            sh_gather_free(&loader->lanes[i].window[j]);
        free(loader->lanes[i].batch);
    }
    free(loader->lanes);
    sh_gather_free_all(loader->gathers, loader->count);
    sh_types_destroy(loader->types);
}

enum shoal_err sh_graph_load(const struct sh_caller *caller, const shoal_nid *peers,
                             size_t peer_count, const struct sh_graph_load_options *options,
                             struct sh_graph_load_report *report_out,
                             struct sh_graph_problem *problem_out)
{
    SH_ASSERT(options->edges_path);
    if (problem_out)
        memset(problem_out, 0, sizeof *problem_out);
    if (peer_count == 0 || peer_count > SH_GRAPH_PEERS_MAX)
        return SHOAL_EINVAL;
    struct loader loader = {
        .caller = caller,
        .options = options,
        .peers = peers,
        .count = (uint32_t)peer_count,
        .id = sh_graph_new_id(caller),
        .problem_out = problem_out,
    };
    enum shoal_err err = SHOAL_ENOMEM;
    loader.lanes = calloc(peer_count, sizeof *loader.lanes);
    loader.gathers = sh_gather_new(peer_count);
    if (!loader.lanes || !loader.gathers)
        goto out_free;
    for (size_t i = 0; i < peer_count; i++)
        loader.lanes[i].to = peers[i];
    if (options->typed && sh_types_create(&loader.types))
        goto out_free;
    err = run(&loader);
    if (err)
        undo(&loader);
    else
        *report_out = loader.report;
out_free:
    loader_free(&loader);
    return err;
}
