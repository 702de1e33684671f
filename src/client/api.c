/* The public calls on one chunk, blocking and asynchronous. */
#include <stdio.h>

#include "client/client_int.h"

/* No node takes larger ones, whatever it is configured to. */
#define CHUNK_BYTES_ANY (UINT32_C(1) << 30)
/* Every node takes payloads up to this size. */
#define PAYLOAD_BYTES_ANY (UINT32_C(8) << 20)
/* A longer wait has no end. */
#define WAIT_MAX_NS (UINT64_C(1) << 62)

static void prepare_lock(struct shoal *store, struct sh_ask *ask)
{
    uint64_t now = sh_now(&store->env.clock);
    if (ask->lease_ns > SHOAL_LEASE_MAX_NS)
        ask->lease_ns = SHOAL_LEASE_MAX_NS;
    ask->wait_until_ns = ask->wait_ns < WAIT_MAX_NS ? now + ask->wait_ns : SH_LEASES_NEVER;
}

static void prepare(struct shoal *store, struct shoal_call *call, const struct sh_ask *ask,
                    shoal_cid cid)
{
    struct sh_call_state *state = sh_call_state_of(call);
    state->store = store;
    state->ask = *ask;
    state->ask.level = store ? (uint8_t)sh_client_level(store) : 0;
    state->detail = NULL;
    state->is_blocking = false;
    state->waiter = (struct sh_waiter){0};
    state->number = 0;
    state->number_nid = SHOAL_NID_NONE;
    state->is_unclear = false;
    state->is_retry = false;
    state->was_lost = false;
    state->got_err = 0;
    state->got_size = state->got_bytes = 0;
    if (store && sh_call_is_lock(ask->kind))
        prepare_lock(store, &state->ask);
    call->cid = cid;
    call->size = 0;
    call->value = 0;
    call->err = SHOAL_OK;
}

static bool has_buffer(const struct sh_ask *ask)
{
    if (sh_call_is_lock(ask->kind))
        return true;
    switch (ask->kind) {
    case SH_CALL_CREATE:
    case SH_CALL_REMOVE:
    case SH_CALL_RESIZE:
    case SH_CALL_ADD:
    case SH_CALL_FREE:
        return true;
    case SH_CALL_PUT_IF:
        if (ask->expected_size > 0 && !ask->expected)
            return false;
        break;
    default:
        break;
    }
    return ask->size == 0 || ask->from;
}

static enum shoal_err check(const struct shoal *store, const struct sh_ask *ask, shoal_cid cid)
{
    if (!store || !has_buffer(ask)) {
        sh_client_detail_set("the store and the buffer must not be NULL");
        return SHOAL_EINVAL;
    }
    if (sh_call_is_lock(ask->kind) && sh_lock_check(ask) != SHOAL_OK)
        return SHOAL_EINVAL;
    if (ask->kind == SH_CALL_ADD && ask->width != 4 && ask->width != 8) {
        sh_client_detail_set("a field has 4 or 8 bytes");
        return SHOAL_EINVAL;
    }
    if (ask->kind != SH_CALL_CREATE && cid.v == 0)
        return SHOAL_ENOCHUNK;
    if (sh_call_is_numbered(ask->kind) &&
        (ask->size > CHUNK_BYTES_ANY || ask->expected_size > CHUNK_BYTES_ANY)) {
        sh_client_detail_set("no chunk is over %u bytes", CHUNK_BYTES_ANY);
        return SHOAL_ETOOBIG;
    }
    return SHOAL_OK;
}

/* On a store in this process; true: it is over. Only a lock, and what goes to a log, may have to wait. */
static bool embedded_begin(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out)
{
    return sh_call_is_lock(sh_call_state_of(call)->ask.kind)
               ? sh_embedded_lock(store, call, err_out)
               : sh_embedded_start(store, call, err_out);
}

static enum shoal_err begin_prepared(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    enum shoal_err err;
    if (!store->is_embedded)
        return sh_call_start(store, call);
    if (sh_client_closing(store))
        return SHOAL_ESTOPPED;
    atomic_fetch_add_explicit(&store->in_flight, 1, memory_order_relaxed);
    if (embedded_begin(store, call, &err))
        sh_call_complete(state, err);
    return SHOAL_OK;
}

enum shoal_err sh_ask_begin(struct shoal *store, const struct sh_ask *ask, shoal_cid cid,
                            struct shoal_call *call)
{
    sh_client_detail()[0] = '\0';
    enum shoal_err err = call ? check(store, ask, cid) : SHOAL_EINVAL;
    if (!call)
        return err;
    prepare(store, call, ask, cid);
    if (err == SHOAL_OK)
        err = begin_prepared(store, call);
    if (err != SHOAL_OK) {
        /* Who waits for it all the same is told the same, and does not wait for ever. */
        call->err = err;
        sh_waiter_complete(&sh_call_state_of(call)->waiter);
    }
    return err;
}

static enum shoal_err wait_done(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    if (!sh_waiter_done(&state->waiter)) {
        bool is_done = sh_crew_wait(store->crew, 0, &state->waiter, SH_NEVER);
        SH_ASSERT(is_done);
    }
    return call->err;
}

static enum shoal_err run_embedded(struct shoal *store, struct shoal_call *call)
{
    enum shoal_err err;
    bool may_wait = store->durable || sh_call_is_lock(sh_call_state_of(call)->ask.kind);
    if (!may_wait) {
        bool is_over = embedded_begin(store, call, &err);
        SH_ASSERT(is_over);
        return err;
    }
    atomic_fetch_add_explicit(&store->in_flight, 1, memory_order_relaxed);
    if (!embedded_begin(store, call, &err))
        return wait_done(store, call);
    atomic_fetch_sub_explicit(&store->in_flight, 1, memory_order_relaxed);
    return err;
}

/* Much that does not fit is not sent in vain: a node closes a connection over a payload that is
 * larger than two of its largest chunks, which would look like a node that can't be reached. */
static enum shoal_err check_fits(struct shoal *store, const struct sh_ask *ask, shoal_cid cid)
{
    bool is_part = ask->kind == SH_CALL_PUT_PART;
    bool is_whole =
        ask->kind == SH_CALL_PUT || ask->kind == SH_CALL_PUT_IF || ask->kind == SH_CALL_PUT_HASH;
    uint32_t size;
    if (store->is_embedded || (!is_part && !is_whole) || ask->size <= PAYLOAD_BYTES_ANY)
        return SHOAL_OK;
    enum shoal_err err = shoal_size(store, cid, &size);
    if (err != SHOAL_OK)
        return err;
    if (is_whole ? ask->size == size : ask->offset <= size && ask->size <= size - ask->offset)
        return SHOAL_OK;
    sh_client_detail_set("the chunk is %u bytes", size);
    return SHOAL_ESIZE;
}

/* A chunk is with a node that failed: with its creator, unless it has moved. */
static void failed_explain(shoal *store, shoal_nid creator)
{
    struct sh_node node;
    bool is_there = sh_directory_node(store->directory, creator, &node) == SHOAL_OK;
    if (is_there && node.state == SH_NODE_FAILED)
        sh_client_detail_set("node %u, which made it, has failed", creator.v);
    else if (is_there && node.state == SH_NODE_AWAY)
        sh_client_detail_set("node %u, which made it, was stopped, and is not back yet", creator.v);
    else
        sh_client_detail_set("it was made on node %u, and may have moved since", creator.v);
}

enum shoal_err sh_ask_run(struct shoal *store, const struct sh_ask *ask, shoal_cid cid,
                          struct shoal_call *call)
{
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = check(store, ask, cid);
    if (err == SHOAL_OK)
        err = check_fits(store, ask, cid);
    if (err != SHOAL_OK)
        return err;
    *call = (struct shoal_call){0};
    prepare(store, call, ask, cid);
    struct sh_call_state *state = sh_call_state_of(call);
    state->detail = sh_client_detail();
    if (store->is_embedded)
        return run_embedded(store, call);
    state->is_blocking = true;
    err = sh_call_start(store, call);
    if (err == SHOAL_OK)
        err = wait_done(store, call);
    if (err == SHOAL_EFAILED && cid.v != 0)
        failed_explain(store, shoal_cid_creator(cid));
    return err;
}

enum shoal_err shoal_create(shoal *store, shoal_nid where, uint32_t size, shoal_cid *cid_out)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_CREATE, .where = where, .size = size};
    enum shoal_err err = cid_out ? sh_ask_run(store, &ask, (shoal_cid){0}, &call) : SHOAL_EINVAL;
    if (err == SHOAL_OK)
        *cid_out = call.cid;
    return err;
}

enum shoal_err shoal_get(shoal *store, shoal_cid cid, void *into, size_t room, uint32_t *size_out)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_GET, .into = into, .size = room};
    enum shoal_err err = sh_ask_run(store, &ask, cid, &call);
    if (size_out && (err == SHOAL_OK || err == SHOAL_ESIZE))
        *size_out = call.size;
    if (err == SHOAL_ESIZE)
        sh_client_detail_set("the chunk is %u bytes, the buffer %zu", call.size, room);
    return err;
}

enum shoal_err shoal_put(shoal *store, shoal_cid cid, const void *data, uint32_t size)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_PUT, .from = data, .size = size};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_remove(shoal *store, shoal_cid cid)
{
    struct shoal_call call;
    struct sh_ask ask = {.kind = SH_CALL_REMOVE};
    return sh_ask_run(store, &ask, cid, &call);
}

enum shoal_err shoal_create_async(shoal *store, shoal_nid where, uint32_t size,
                                  struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_CREATE, .where = where, .size = size};
    return sh_ask_begin(store, &ask, (shoal_cid){0}, call);
}

enum shoal_err shoal_get_async(shoal *store, shoal_cid cid, void *into, size_t room,
                               struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_GET, .into = into, .size = room};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_put_async(shoal *store, shoal_cid cid, const void *data, uint32_t size,
                               struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_PUT, .from = data, .size = size};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_remove_async(shoal *store, shoal_cid cid, struct shoal_call *call)
{
    struct sh_ask ask = {.kind = SH_CALL_REMOVE};
    return sh_ask_begin(store, &ask, cid, call);
}

enum shoal_err shoal_wait(shoal *store, struct shoal_call *call)
{
    if (!call || call->done) {
        sh_client_detail_set("only a call without a done function can be waited for");
        return SHOAL_EINVAL;
    }
    if (sh_waiter_done(&sh_call_state_of(call)->waiter)) {
        sh_client_detail()[0] = '\0';
        return call->err;
    }
    enum shoal_err err = sh_client_blocking();
    return err == SHOAL_OK ? wait_done(store, call) : err;
}

unsigned shoal_poll(shoal *store)
{
    if (store->is_embedded || sh_completing())
        return 0;
    uint64_t before = atomic_load_explicit(&store->completions, memory_order_relaxed);
    struct sh_waiter never = {0};
    bool is_done = sh_crew_wait(store->crew, 0, &never, 0);
    SH_ASSERT(!is_done);
    return (unsigned)(atomic_load_explicit(&store->completions, memory_order_relaxed) - before);
}
