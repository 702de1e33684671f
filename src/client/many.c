/* Creating many chunks with one call. */
#include <stdlib.h>
#include <string.h>

#include "client/client_int.h"
#include "proto/chunks.h"

/* Reads the answer's runs of IDs, all of them this node's; writes them once all is well. */
static enum shoal_err runs_read(struct sh_bytes answer, shoal_nid nid, shoal_cid *cids_out,
                                size_t count)
{
    for (int writes = 0; writes < 2; writes++) {
        struct sh_reader r = sh_reader_make(answer);
        size_t done = 0;
        while (sh_reader_left(&r) > 0 && done < count) {
            shoal_cid first = {sh_get64(&r)};
            uint32_t run = sh_get32(&r);
            shoal_cid last = {first.v + run - 1};
            if (!sh_reader_ok(&r) || run == 0 || run > count - done || last.v < first.v ||
                shoal_cid_creator(first).v != nid.v || shoal_cid_creator(last).v != nid.v)
                return SHOAL_EPROTO;
            for (uint32_t i = 0; writes && i < run; i++)
                cids_out[done + i] = (shoal_cid){first.v + i};
            done += run;
        }
        if (!sh_reader_done(&r) || done != count)
            return SHOAL_EPROTO;
    }
    return SHOAL_OK;
}

static void write_request(struct sh_writer *w, const struct sh_store_wish *wish)
{
    uint8_t how = (wish->sizes ? SH_CHUNKS_SIZES : 0) |
                  (wish->consecutive ? SH_CHUNKS_CONSECUTIVE : 0) |
                  (wish->reserve ? SH_CHUNKS_RESERVE : 0);
    sh_put32(w, (uint32_t)wish->count);
    sh_put8(w, how);
    if (!wish->sizes)
        sh_put32(w, wish->size);
    for (size_t i = 0; wish->sizes && i < wish->count; i++)
        sh_put32(w, wish->sizes[i]);
}

static enum shoal_err ask(shoal *store, shoal_nid nid, struct sh_bytes request, uint64_t timeout_ns,
                          shoal_cid *cids_out, size_t count)
{
    uint8_t *answer;
    size_t answer_size;
    struct sh_caller caller = sh_client_caller(store);
    enum shoal_err err =
        sh_call(&caller, nid, sh_client_type(SH_CHUNKS_CREATE, sh_client_level(store)), request,
                timeout_ns, &answer, &answer_size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    err = runs_read(sh_bytes_make(answer, answer_size), nid, cids_out, count);
    free(answer);
    return err;
}

/* One attempt, at the peer that the program names, or at the next one. *nid_out: which one that is. */
static enum shoal_err attempt(shoal *store, shoal_nid where, struct sh_bytes request,
                              uint64_t deadline, shoal_cid *cids_out, size_t count, bool is_fresh,
                              shoal_nid *nid_out)
{
    *nid_out = where;
    enum shoal_err err = where.v ? sh_client_peer_check(store, where)
                                 : sh_directory_pick_peer(store->directory, nid_out);
    if (err != SHOAL_OK)
        return err;
    if (is_fresh)
        sh_msg_retried(store->msg, *nid_out);
    uint64_t now = sh_now(&store->env.clock);
    return now < deadline ? ask(store, *nid_out, request, deadline - now, cids_out, count)
                          : SHOAL_ETIMEOUT;
}

/* Asks peers until one has done it, or may have, or none could. A peer that the program names, and that has failed, may come back with its
 * chunks: it is waited for. */
static enum shoal_err ask_until_done(shoal *store, shoal_nid where, struct sh_bytes request,
                                     uint64_t deadline, shoal_cid *cids_out, size_t count)
{
    for (bool is_fresh = false;; is_fresh = true) {
        shoal_nid nid;
        sh_client_refresh_if_due(store, sh_now(&store->env.clock));
        enum shoal_err err =
            attempt(store, where, request, deadline, cids_out, count, is_fresh, &nid);
        uint64_t now = sh_now(&store->env.clock);
        bool may_retry = sh_call_may_retry(SH_CALL_CREATE, err) ||
                         (where.v && sh_client_awaits_maker(store, err, where));
        if (!may_retry || now + SH_ROUND_PAUSE_NS >= deadline || (err == SHOAL_ENONODE && is_fresh))
            return err;
        struct sh_waiter pause = {0};
        /* That it has failed, a fresh view has said. */
        if (err != SHOAL_EFAILED && sh_client_refresh(store, deadline) != SHOAL_OK)
            sh_client_detail_set("node %u: %s", nid.v, shoal_err_text(err));
        (void)sh_crew_wait(store->crew, 0, &pause, now + SH_ROUND_PAUSE_NS);
    }
}

static enum shoal_err create_on_cluster(shoal *store, shoal_nid where,
                                        const struct sh_store_wish *wish, shoal_cid *cids_out)
{
    uint64_t deadline = sh_client_deadline_ns(store);
    size_t bytes = 5 + (wish->sizes ? wish->count * 4 : 4);
    uint8_t *request = malloc(bytes);
    if (!request)
        return SHOAL_ENOMEM;
    struct sh_writer w = sh_writer_make(request, bytes);
    write_request(&w, wish);
    SH_ASSERT(sh_writer_ok(&w));
    enum shoal_err err = ask_until_done(store, where, sh_bytes_make(request, bytes), deadline,
                                        cids_out, wish->count);
    free(request);
    return err;
}

static enum shoal_err create_embedded(shoal *store, shoal_nid where,
                                      const struct sh_store_wish *wish, shoal_cid *cids_out)
{
    if (where.v != 0 && where.v != SH_EMBEDDED_NID)
        return SHOAL_ENONODE;
    shoal_cid *cids = malloc(wish->count * sizeof *cids);
    if (!cids)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_embedded_create_as(store, wish, cids);
    if (err == SHOAL_OK)
        memcpy(cids_out, cids, wish->count * sizeof *cids);
    free(cids);
    return err;
}

static enum shoal_err create_all(shoal *store, shoal_nid where, const struct sh_store_wish *wish,
                                 shoal_cid *cids_out)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK)
        return err;
    if (!store || (wish->count > 0 && !cids_out) || wish->count > SH_CHUNKS_MANY_MAX) {
        sh_client_detail_set("at most %u chunks at once, and no NULL", SH_CHUNKS_MANY_MAX);
        return SHOAL_EINVAL;
    }
    if (wish->count == 0)
        return SHOAL_OK;
    if (store->is_embedded)
        return create_embedded(store, where, wish, cids_out);
    return create_on_cluster(store, where, wish, cids_out);
}

enum shoal_err shoal_create_many(shoal *store, shoal_nid where, uint32_t size, size_t count,
                                 shoal_cid *cids_out)
{
    struct sh_store_wish wish = {.size = size, .count = count};
    return create_all(store, where, &wish, cids_out);
}

enum shoal_err shoal_create_sizes(shoal *store, shoal_nid where, const uint32_t *sizes,
                                  size_t count, shoal_cid *cids_out)
{
    struct sh_store_wish wish = {.sizes = sizes, .count = count};
    if (count > 0 && !sizes)
        return SHOAL_EINVAL;
    return create_all(store, where, &wish, cids_out);
}

enum shoal_err shoal_create_consecutive(shoal *store, shoal_nid where, uint32_t size, size_t count,
                                        shoal_cid *cids_out)
{
    struct sh_store_wish wish = {.size = size, .count = count, .consecutive = true};
    return create_all(store, where, &wish, cids_out);
}

enum shoal_err shoal_reserve(shoal *store, shoal_nid where, size_t count, shoal_cid *cids_out)
{
    struct sh_store_wish wish = {.count = count, .reserve = true};
    return create_all(store, where, &wish, cids_out);
}
