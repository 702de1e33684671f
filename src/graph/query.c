#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "graph/gather_int.h"

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
    };
    status->graph_id = sh_get64(r);
    status->runs = sh_get32(r);
    status->vertices = sh_get64(r);
    status->edges = sh_get64(r);
    status->payload_bytes = sh_get64(r);
    status->chunk_bytes = sh_get64(r);
    status->index_bytes = sh_get64(r);
    status->staging_bytes = sh_get64(r);
    status->peers = sh_get32(r);
    bool fits = status->peers <= SH_GRAPH_PEERS_MAX && sh_reader_left(r) == status->peers * 2u &&
                (!status->loaded || status->peers > 0);
    return sh_reader_ok(r) && fits ? SHOAL_OK : SHOAL_EPROTO;
}

enum shoal_err sh_graph_locate(const struct sh_caller *caller, const shoal_nid *peers,
                               size_t peer_count, struct sh_graph_whereabouts *where_out,
                               struct sh_graph_problem *problem_out)
{
    SH_ASSERT(peer_count > 0 && peer_count <= SH_GRAPH_PEERS_MAX);
    struct sh_gather gather = {0};
    struct sh_graph_status status = {0};
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < peer_count && !status.loaded; i++) {
        err = sh_gather_all(caller, &gather, &peers[i], 1, SH_GRAPH_STATUS,
                            (struct sh_bytes){NULL, 0}, SH_GATHER_TIMEOUT_NS, problem_out);
        if (err)
            goto out_free;
        struct sh_reader r = sh_gather_reader(&gather);
        err = parse_status(&r, &status);
        if (err)
            goto out_free;
        if (!status.loaded)
            continue;
        shoal_nid *members = malloc(status.peers * sizeof *members);
        if (!members) {
            err = SHOAL_ENOMEM;
            goto out_free;
        }
        for (uint32_t j = 0; j < status.peers; j++)
            members[j].v = sh_get16(&r);
        *where_out = (struct sh_graph_whereabouts){status.graph_id, status.peers, members};
    }
    if (!status.loaded) {
        sh_graph_explain(problem_out, "no graph is loaded");
        err = SHOAL_ENONAME;
    }
out_free:
    sh_gather_free(&gather);
    return err;
}

/* Asks one member where a vertex is. */
static enum shoal_err look_up(const struct sh_caller *caller, shoal_nid member, uint64_t name,
                              shoal_nid *owner_out, shoal_cid *cid_out,
                              struct sh_graph_problem *problem_out)
{
    uint8_t payload[8];
    sh_store64(payload, name);
    struct sh_gather gather = {0};
    enum shoal_err err =
        sh_gather_all(caller, &gather, &member, 1, SH_GRAPH_LOOKUP,
                      sh_bytes_make(payload, sizeof payload), SH_GATHER_TIMEOUT_NS, problem_out);
    if (!err) {
        struct sh_reader r = sh_gather_reader(&gather);
        owner_out->v = sh_get16(&r);
        cid_out->v = sh_get64(&r);
        err = sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
    }
    sh_gather_free(&gather);
    return err;
}

enum shoal_err sh_graph_vertex(const struct sh_caller *caller, const shoal_nid *peers,
                               size_t peer_count, uint64_t name, shoal_cid *cid_out,
                               shoal_nid *owner_out, struct sh_graph_problem *problem_out)
{
    problem_clear(problem_out);
    struct sh_graph_whereabouts where;
    enum shoal_err err = sh_graph_locate(caller, peers, peer_count, &where, problem_out);
    if (err)
        return err;
    shoal_nid owner;
    shoal_cid cid;
    err = look_up(caller, where.members[0], name, &owner, &cid, problem_out);
    if (!err && cid.v == 0)
        err = look_up(caller, owner, name, &owner, &cid, problem_out);
    if (!err && cid.v == 0)
        err = SHOAL_EPROTO;
    free(where.members);
    if (err)
        return err;
    *cid_out = cid;
    *owner_out = owner;
    return SHOAL_OK;
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
        err = sh_gather_all(caller, &gather, where.members, 1, SH_GRAPH_TYPES_GET,
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

/* Adds one peer's status to that of all. */
static void add_status(struct sh_graph_status *all, const struct sh_graph_status *one,
                       uint32_t *live_inout, bool *alike_inout)
{
    all->loading |= one->loading;
    all->staging_bytes += one->staging_bytes;
    if (!one->loaded)
        return;
    if (*live_inout == 0) {
        all->graph_id = one->graph_id;
        all->typed = one->typed;
        all->peers = one->peers;
    }
    ++*live_inout;
    *alike_inout &= one->graph_id == all->graph_id;
    all->vertices += one->vertices;
    all->edges += one->edges;
    all->payload_bytes += one->payload_bytes;
    all->chunk_bytes += one->chunk_bytes;
    all->index_bytes += one->index_bytes;
    if (one->runs > all->runs)
        all->runs = one->runs; /* a traversal is on every peer */
}

enum shoal_err sh_graph_status_get(const struct sh_caller *caller, const shoal_nid *peers,
                                   size_t peer_count, struct sh_graph_status *each,
                                   struct sh_graph_status *all_out,
                                   struct sh_graph_problem *problem_out)
{
    problem_clear(problem_out);
    struct sh_gather *gathers = sh_gather_new(peer_count);
    if (!gathers)
        return SHOAL_ENOMEM;
    struct sh_graph_status all = {0};
    uint32_t live = 0;
    bool alike = true;
    enum shoal_err err =
        sh_gather_all(caller, gathers, peers, peer_count, SH_GRAPH_STATUS,
                      (struct sh_bytes){NULL, 0}, SH_GATHER_TIMEOUT_NS, problem_out);
    for (size_t i = 0; i < peer_count && !err; i++) {
        struct sh_graph_status one;
        struct sh_reader r = sh_gather_reader(&gathers[i]);
        err = parse_status(&r, &one);
        if (err)
            break;
        add_status(&all, &one, &live, &alike);
        if (each)
            each[i] = one;
    }
    sh_gather_free_all(gathers, peer_count);
    if (err)
        return err;
    all.loaded = live > 0 && alike && live == all.peers;
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
