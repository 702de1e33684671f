#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "graph/gather_int.h"

/* Vertices that are on their way come within milliseconds; a peer that has been started again looks through its chunks, millions in a
 * second. */
#define AGAIN_NS UINT64_C(20000000)
#define AGAIN_NS_MAX UINT64_C(60000000000)
#define STILL_NS_MAX UINT64_C(3000000000) /* without any that came */

static void problem_clear(struct sh_graph_problem *problem_out)
{
    if (problem_out)
        memset(problem_out, 0, sizeof *problem_out);
}

/* Reads a STATUS answer up to its list of peers, which *r is left at. */
static enum shoal_err parse_status(struct sh_reader *r, struct sh_graph_status *status)
{
    uint8_t bits = sh_get8(r);
    *status = (struct sh_graph_status){
        .loaded = bits & SH_GRAPH_IS_LIVE,
        .loading = bits & SH_GRAPH_IS_LOADING,
        .typed = bits & SH_GRAPH_IS_TYPED,
        .scanning = bits & SH_GRAPH_IS_SCANNING,
    };
    status->graph_id = sh_get64(r);
    status->generation = sh_get64(r);
    status->runs = sh_get32(r);
    status->vertices = sh_get64(r);
    status->edges = sh_get64(r);
    status->payload_bytes = sh_get64(r);
    status->chunk_bytes = sh_get64(r);
    status->index_bytes = sh_get64(r);
    status->staging_bytes = sh_get64(r);
    status->all_vertices = sh_get64(r);
    status->all_edges = sh_get64(r);
    status->scanned = sh_get64(r);
    status->peers = sh_get32(r);
    bool fits = status->peers <= SH_GRAPH_PEERS_MAX && sh_reader_left(r) == status->peers * 2u &&
                (!status->loaded || (status->peers > 0 && status->graph_id > 0));
    return sh_reader_ok(r) && fits ? SHOAL_OK : SHOAL_EPROTO;
}

/* Asks every peer; the answers' errors are theirs. ENOMEM. */
static enum shoal_err ask_all(const struct sh_caller *caller, const shoal_nid *peers,
                              size_t peer_count, struct sh_gather **gathers_out)
{
    SH_ASSERT(peer_count > 0 && peer_count <= SH_GRAPH_PEERS_MAX);
    struct sh_gather *gathers = sh_gather_new(peer_count);
    if (!gathers)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_gather_all(caller, gathers, peers, peer_count, SH_GRAPH_STATUS,
                                       (struct sh_bytes){NULL, 0}, SH_GATHER_TIMEOUT_NS, NULL);
    (void)err; /* each has its own */
    *gathers_out = gathers;
    return SHOAL_OK;
}

/* The members that the manifest's teller has named. */
static enum shoal_err members_take(struct sh_reader *r, uint32_t count,
                                   struct sh_graph_whereabouts *where)
{
    shoal_nid *members = malloc((count + 1) * sizeof *members);
    if (!members)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        members[i].v = sh_get16(r);
    free(where->members);
    where->members = members;
    where->count = count;
    return SHOAL_OK;
}

/* Takes what one peer says; of a newer graph than those before, all anew. */
static enum shoal_err where_take(struct sh_graph_whereabouts *where, shoal_nid peer,
                                 struct sh_reader *r)
{
    struct sh_graph_status one;
    enum shoal_err err = parse_status(r, &one);
    if (err)
        return err;
    where->is_scanning |= one.scanning;
    if (one.generation > where->generation_max)
        where->generation_max = one.generation;
    if (!one.loaded || (where->graph_id && one.generation <= where->generation))
        return SHOAL_OK;
    where->graph_id = one.graph_id;
    where->generation = one.generation;
    where->typed = one.typed;
    where->all_vertices = one.all_vertices;
    where->all_edges = one.all_edges;
    where->teller = peer;
    return members_take(r, one.peers, where);
}

/* The first peer that did not answer. */
static void missing_take(struct sh_graph_whereabouts *where, const struct sh_gather *gather)
{
    if (where->missing.v)
        return;
    where->missing = gather->to;
    where->missing_err = gather->err;
    memcpy(where->missing_detail, gather->detail, sizeof where->missing_detail);
}

enum shoal_err sh_graph_survey(const struct sh_caller *caller, const shoal_nid *peers,
                               size_t peer_count, struct sh_graph_whereabouts *where_out)
{
    struct sh_graph_whereabouts where = {0};
    struct sh_gather *gathers;
    enum shoal_err err = ask_all(caller, peers, peer_count, &gathers);
    if (err)
        return err;
    for (size_t i = 0; i < peer_count && !err; i++) {
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        if (gathers[i].err)
            missing_take(&where, &gathers[i]);
        else
            err = where_take(&where, peers[i], &r);
    }
    for (size_t i = 0; i < peer_count && !err; i++) {
        struct sh_graph_status one;
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        if (!gathers[i].err && parse_status(&r, &one) == SHOAL_OK && one.graph_id == where.graph_id)
            where.vertices += one.vertices;
    }
    sh_gather_free_all(gathers, peer_count);
    if (err) {
        free(where.members);
        return err;
    }
    *where_out = where;
    return SHOAL_OK;
}

bool sh_graph_again(const struct sh_caller *caller, struct sh_graph_patience *patience,
                    const struct sh_graph_whereabouts *where)
{
    uint64_t now = sh_now(caller->clock);
    if (patience->began_ns == 0)
        patience->began_ns = patience->vertices_ns = now;
    if (where->is_scanning || where->vertices != patience->vertices) {
        patience->vertices = where->vertices;
        patience->vertices_ns = now;
    }
    if (now - patience->began_ns >= AGAIN_NS_MAX || now - patience->vertices_ns >= STILL_NS_MAX)
        return false;
    struct sh_waiter waiter = {0};
    bool is_done = sh_crew_wait(caller->crew, caller->thread, &waiter, now + AGAIN_NS);
    SH_ASSERT(!is_done); /* nobody completes it */
    return true;
}

enum shoal_err sh_graph_explain_missing(const struct sh_graph_whereabouts *where,
                                        struct sh_graph_problem *problem_out)
{
    if (problem_out) {
        problem_out->peer = where->missing;
        problem_out->vertices = where->vertices;
    }
    if (where->missing.v) {
        sh_graph_explain(problem_out, "peer %u: %s", where->missing.v,
                         where->missing_detail[0] ? where->missing_detail
                                                  : shoal_err_text(where->missing_err));
        return where->missing_err;
    }
    sh_graph_explain(problem_out, "%llu of the graph's %llu vertices are served now%s",
                     (unsigned long long)where->vertices, (unsigned long long)where->all_vertices,
                     where->is_scanning ? ", and peers are looking for more" : "");
    return where->is_scanning ? SHOAL_EBUSY : SHOAL_EFAILED;
}

enum shoal_err sh_graph_locate(const struct sh_caller *caller, const shoal_nid *peers,
                               size_t peer_count, struct sh_graph_whereabouts *where_out,
                               struct sh_graph_problem *problem_out)
{
    struct sh_graph_patience patience = {0};
    for (;;) {
        struct sh_graph_whereabouts where;
        enum shoal_err err = sh_graph_survey(caller, peers, peer_count, &where);
        if (err)
            return err;
        if (where.graph_id) {
            *where_out = where;
            return SHOAL_OK;
        }
        free(where.members);
        if (where.missing.v)
            return sh_graph_explain_missing(&where, problem_out);
        if (!where.is_scanning || !sh_graph_again(caller, &patience, &where)) {
            sh_graph_explain(problem_out, "no graph is loaded%s",
                             where.is_scanning ? ", as far as peers know that look for one" : "");
            return where.is_scanning ? SHOAL_EBUSY : SHOAL_ENONAME;
        }
    }
}

/* --- Look-ups ------------------------------------------------------------------------------------ */

/* What peers say of a vertex. */
struct found {
    shoal_nid owner;
    shoal_cid cid; /* 0: none has it */
    bool is_later; /* one of them may */
};

/* Asks some peers where a vertex is. Those that do not answer have none. */
static enum shoal_err look_up(const struct sh_caller *caller, const shoal_nid *peers, size_t count,
                              const struct sh_graph_whereabouts *where, uint64_t name,
                              struct found *found_out, struct sh_graph_problem *problem_out)
{
    uint8_t payload[24];
    sh_store64(payload, where->graph_id);
    sh_store64(payload + 8, where->generation);
    sh_store64(payload + 16, name);
    struct sh_gather *gathers = sh_gather_new(count);
    if (!gathers)
        return SHOAL_ENOMEM;
    struct found found = {0};
    enum shoal_err err = SHOAL_OK;
    enum shoal_err first =
        sh_gather_all(caller, gathers, peers, count, SH_GRAPH_LOOKUP,
                      sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, problem_out);
    for (size_t i = 0; i < count && !err && !found.cid.v; i++) {
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        if (gathers[i].err)
            continue;
        uint8_t what = sh_get8(&r);
        shoal_cid cid = {sh_get64(&r)};
        if (!sh_reader_done(&r) || what > SH_GRAPH_FOUND_LATER ||
            (what == SH_GRAPH_FOUND_HERE && cid.v == 0))
            err = SHOAL_EPROTO;
        else if (what == SH_GRAPH_FOUND_HERE)
            found = (struct found){.owner = peers[i], .cid = cid};
        else
            found.is_later |= what == SH_GRAPH_FOUND_LATER;
    }
    sh_gather_free_all(gathers, count);
    if (!err && !found.cid.v && first)
        err = first;
    if (!err)
        *found_out = found;
    return err;
}

static bool is_among(const shoal_nid *peers, size_t count, shoal_nid peer)
{
    for (size_t i = 0; i < count; i++) {
        if (peers[i].v == peer.v)
            return true;
    }
    return false;
}

/* The peer that got it in the load still has it, most probably; else all are asked. */
static enum shoal_err look_everywhere(const struct sh_caller *caller, const shoal_nid *peers,
                                      size_t peer_count, const struct sh_graph_whereabouts *where,
                                      uint64_t name, struct found *found_out,
                                      struct sh_graph_problem *problem_out)
{
    shoal_nid likely = where->members[sh_graph_place(name, where->count)];
    if (is_among(peers, peer_count, likely) && peer_count > 1) {
        enum shoal_err err = look_up(caller, &likely, 1, where, name, found_out, NULL);
        if (!err && found_out->cid.v)
            return SHOAL_OK;
    }
    return look_up(caller, peers, peer_count, where, name, found_out, problem_out);
}

enum shoal_err sh_graph_vertex(const struct sh_caller *caller, const shoal_nid *peers,
                               size_t peer_count, uint64_t name, shoal_cid *cid_out,
                               shoal_nid *owner_out, struct sh_graph_problem *problem_out)
{
    struct sh_graph_patience patience = {0};
    problem_clear(problem_out);
    for (;;) {
        struct sh_graph_whereabouts where;
        struct found found = {0};
        enum shoal_err err = sh_graph_locate(caller, peers, peer_count, &where, problem_out);
        if (err)
            return err;
        err = look_everywhere(caller, peers, peer_count, &where, name, &found, problem_out);
        free(where.members);
        if (err)
            return err;
        if (found.cid.v) {
            *cid_out = found.cid;
            *owner_out = found.owner;
            return SHOAL_OK;
        }
        where.is_scanning |= found.is_later;
        if (where.vertices == where.all_vertices && !where.is_scanning) {
            sh_graph_explain(problem_out, "there is no vertex %llu", (unsigned long long)name);
            return SHOAL_ENONAME;
        }
        if (!sh_graph_again(caller, &patience, &where))
            return sh_graph_explain_missing(&where, problem_out);
    }
}

/* Adds the relations that one answer holds. */
static enum shoal_err add_types(struct sh_reader *r, struct sh_types *types, uint32_t *count_out)
{
    *count_out = sh_get32(r);
    while (sh_reader_left(r) > 0) {
        uint16_t number;
        size_t before = sh_types_count(types);
        struct sh_bytes name = sh_get_text(r);
        enum shoal_err err = sh_reader_ok(r) ? sh_types_number(types, name, &number) : SHOAL_EPROTO;
        if (!err && number != before)
            err = SHOAL_EPROTO;
        if (err)
            return err == SHOAL_ENOMEM ? err : SHOAL_EPROTO;
    }
    return sh_reader_ok(r) ? SHOAL_OK : SHOAL_EPROTO;
}

enum shoal_err sh_graph_types(const struct sh_caller *caller, const shoal_nid *peers,
                              size_t peer_count, struct sh_types **types_out,
                              struct sh_graph_problem *problem_out)
{
    problem_clear(problem_out);
    struct sh_graph_whereabouts where;
    enum shoal_err err = sh_graph_locate(caller, peers, peer_count, &where, problem_out);
    if (err)
        return err;
    struct sh_gather gather = {0};
    struct sh_types *types = NULL;
    uint32_t count = 0;
    err = sh_types_create(&types);
    while (!err) {
        uint8_t payload[4];
        size_t before = sh_types_count(types);
        sh_store32(payload, (uint32_t)before);
        err = sh_gather_all(caller, &gather, &where.teller, 1, SH_GRAPH_TYPES_GET,
                            sh_bytes_make(payload, 4), SH_GATHER_TIMEOUT_NS, problem_out);
        if (err)
            break;
        struct sh_reader r = sh_gather_reader(&gather);
        err = add_types(&r, types, &count);
        if (!err && sh_types_count(types) >= count)
            break;
        if (!err && sh_types_count(types) == before)
            err = SHOAL_EPROTO; /* no progress */
    }
    sh_gather_free(&gather);
    free(where.members);
    if (err) {
        sh_types_destroy(types);
        return err;
    }
    *types_out = types;
    return SHOAL_OK;
}

/* Adds one peer's status to that of all, which is of the newest graph. */
static void add_status(struct sh_graph_status *all, const struct sh_graph_status *one)
{
    all->loading |= one->loading;
    all->scanning |= one->scanning;
    all->scanned += one->scanned;
    all->staging_bytes += one->staging_bytes;
    if (one->graph_id == 0 || one->graph_id != all->graph_id)
        return;
    all->vertices += one->vertices;
    all->edges += one->edges;
    all->payload_bytes += one->payload_bytes;
    all->chunk_bytes += one->chunk_bytes;
    all->index_bytes += one->index_bytes;
    if (one->runs > all->runs)
        all->runs = one->runs; /* a traversal is on every peer */
}

/* Which graph it is. */
static void graph_take(struct sh_graph_status *all, const struct sh_graph_status *one)
{
    if (!one->loaded || (all->graph_id && one->generation <= all->generation))
        return;
    all->graph_id = one->graph_id;
    all->generation = one->generation;
    all->typed = one->typed;
    all->peers = one->peers;
    all->all_vertices = one->all_vertices;
    all->all_edges = one->all_edges;
}

enum shoal_err sh_graph_status_get(const struct sh_caller *caller, const shoal_nid *peers,
                                   size_t peer_count, struct sh_graph_status *each,
                                   struct sh_graph_status *all_out,
                                   struct sh_graph_problem *problem_out)
{
    problem_clear(problem_out);
    struct sh_gather *gathers;
    struct sh_graph_status all = {0}, *answers = calloc(peer_count, sizeof *answers);
    if (!answers)
        return SHOAL_ENOMEM;
    enum shoal_err err = ask_all(caller, peers, peer_count, &gathers);
    if (err) {
        free(answers);
        return err;
    }
    for (size_t i = 0; i < peer_count && !err; i++) {
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        err = gathers[i].err;
        if (err)
            sh_gather_explain(problem_out, &gathers[i]);
        else
            err = parse_status(&r, &answers[i]);
        if (!err)
            graph_take(&all, &answers[i]);
    }
    sh_gather_free_all(gathers, peer_count);
    for (size_t i = 0; i < peer_count && !err; i++) {
        add_status(&all, &answers[i]);
        if (each)
            each[i] = answers[i];
    }
    free(answers);
    if (err)
        return err;
    all.loaded = all.graph_id && all.vertices == all.all_vertices;
    *all_out = all;
    return SHOAL_OK;
}

enum shoal_err sh_graph_drop(const struct sh_caller *caller, const shoal_nid *peers,
                             size_t peer_count, struct sh_graph_problem *problem_out)
{
    problem_clear(problem_out);
    struct sh_gather *gathers = sh_gather_new(peer_count);
    if (!gathers)
        return SHOAL_ENOMEM;
    uint8_t payload[8] = {0};
    /* Whatever the first error is, it is judged below: peers without a graph are no failure. */
    enum shoal_err err =
        sh_gather_all(caller, gathers, peers, peer_count, SH_GRAPH_DROP,
                      sh_bytes_make(payload, sizeof payload), SH_GATHER_REMOVAL_TIMEOUT_NS, NULL);
    size_t dropped = 0;
    const struct sh_gather *failed = NULL;
    for (size_t i = 0; i < peer_count; i++) {
        dropped += gathers[i].err == SHOAL_OK;
        if (gathers[i].err && gathers[i].err != SHOAL_ENONAME && !failed)
            failed = &gathers[i];
    }
    if (failed) {
        err = failed->err;
        sh_gather_explain(problem_out, failed);
    } else if (dropped > 0) {
        err = SHOAL_OK;
    } else {
        sh_graph_explain(problem_out, "no graph is loaded");
    }
    sh_gather_free_all(gathers, peer_count);
    return err;
}
