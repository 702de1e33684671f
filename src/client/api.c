/* The public calls on one chunk, blocking and asynchronous. */
#include <stdio.h>

#include "client/client_int.h"

/* No node takes larger ones, whatever it is configured to. */
#define CHUNK_BYTES_ANY (UINT32_C(1) << 30)

/* What a public call asks for. */
struct wanted {
    enum sh_call_kind kind;
    shoal_cid cid;
    shoal_nid where;
    const void *from;
    void *into;
    size_t size;
};

static void prepare(struct shoal *store, struct shoal_call *call, const struct wanted *wanted)
{
    struct sh_call_state *state = sh_call_state_of(call);
    state->store = store;
    state->kind = wanted->kind;
    state->where = wanted->where;
    state->size = wanted->size;
    state->detail = NULL;
    state->is_blocking = false;
    state->waiter = (struct sh_waiter){0};
    state->number = 0;
    state->is_unclear = false;
    state->is_retry = false;
    if (wanted->kind == SH_CALL_GET)
        state->into = wanted->into;
    else
        state->from = wanted->from;
    call->cid = wanted->cid;
    call->size = 0;
    call->err = SHOAL_OK;
}

static enum shoal_err check(const struct shoal *store, const struct wanted *wanted)
{
    bool needs_buffer = wanted->kind == SH_CALL_GET || wanted->kind == SH_CALL_PUT;
    const void *buffer = wanted->kind == SH_CALL_GET ? wanted->into : wanted->from;
    if (!store || (needs_buffer && wanted->size > 0 && !buffer)) {
        sh_client_detail_set("the store and the buffer must not be NULL");
        return SHOAL_EINVAL;
    }
    if (wanted->kind != SH_CALL_CREATE && wanted->cid.v == 0)
        return SHOAL_ENOCHUNK;
    if (wanted->kind != SH_CALL_GET && wanted->size > CHUNK_BYTES_ANY) {
        sh_client_detail_set("no chunk is over %u bytes", CHUNK_BYTES_ANY);
        return SHOAL_ETOOBIG;
    }
    return SHOAL_OK;
}

static enum shoal_err begin_prepared(struct shoal *store, struct shoal_call *call)
{
    if (!store->is_embedded)
        return sh_call_start(store, call);
    atomic_fetch_add_explicit(&store->in_flight, 1, memory_order_relaxed);
    sh_call_complete(sh_call_state_of(call), sh_embedded_run(store, call));
    return SHOAL_OK;
}

static enum shoal_err begin(struct shoal *store, const struct wanted *wanted,
                            struct shoal_call *call)
{
    sh_client_detail()[0] = '\0';
    enum shoal_err err = call ? check(store, wanted) : SHOAL_EINVAL;
    if (!call)
        return err;
    prepare(store, call, wanted);
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

/* Runs a call and waits for it. The results are in *call. */
static enum shoal_err run(struct shoal *store, const struct wanted *wanted, struct shoal_call *call)
{
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = check(store, wanted);
    if (err != SHOAL_OK)
        return err;
    *call = (struct shoal_call){0};
    prepare(store, call, wanted);
    if (store->is_embedded)
        return sh_embedded_run(store, call);
    struct sh_call_state *state = sh_call_state_of(call);
    state->detail = sh_client_detail();
    state->is_blocking = true;
    err = sh_call_start(store, call);
    if (err == SHOAL_OK)
        err = wait_done(store, call);
    if (err == SHOAL_EFAILED && wanted->cid.v != 0)
        sh_client_detail_set("the chunk's node is %u", shoal_cid_creator(wanted->cid).v);
    return err;
}

enum shoal_err shoal_create(shoal *store, shoal_nid where, uint32_t size, shoal_cid *cid_out)
{
    struct shoal_call call;
    struct wanted wanted = {.kind = SH_CALL_CREATE, .where = where, .size = size};
    enum shoal_err err = cid_out ? run(store, &wanted, &call) : SHOAL_EINVAL;
    if (err == SHOAL_OK)
        *cid_out = call.cid;
    return err;
}

enum shoal_err shoal_get(shoal *store, shoal_cid cid, void *into, size_t room, uint32_t *size_out)
{
    struct shoal_call call;
    struct wanted wanted = {.kind = SH_CALL_GET, .cid = cid, .into = into, .size = room};
    enum shoal_err err = run(store, &wanted, &call);
    if (size_out && (err == SHOAL_OK || err == SHOAL_ESIZE))
        *size_out = call.size;
    if (err == SHOAL_ESIZE)
        sh_client_detail_set("the chunk is %u bytes, the buffer %zu", call.size, room);
    return err;
}

enum shoal_err shoal_put(shoal *store, shoal_cid cid, const void *data, uint32_t size)
{
    struct shoal_call call;
    struct wanted wanted = {.kind = SH_CALL_PUT, .cid = cid, .from = data, .size = size};
    return run(store, &wanted, &call);
}

enum shoal_err shoal_remove(shoal *store, shoal_cid cid)
{
    struct shoal_call call;
    struct wanted wanted = {.kind = SH_CALL_REMOVE, .cid = cid};
    return run(store, &wanted, &call);
}

enum shoal_err shoal_create_async(shoal *store, shoal_nid where, uint32_t size,
                                  struct shoal_call *call)
{
    struct wanted wanted = {.kind = SH_CALL_CREATE, .where = where, .size = size};
    return begin(store, &wanted, call);
}

enum shoal_err shoal_get_async(shoal *store, shoal_cid cid, void *into, size_t room,
                               struct shoal_call *call)
{
    struct wanted wanted = {.kind = SH_CALL_GET, .cid = cid, .into = into, .size = room};
    return begin(store, &wanted, call);
}

enum shoal_err shoal_put_async(shoal *store, shoal_cid cid, const void *data, uint32_t size,
                               struct shoal_call *call)
{
    struct wanted wanted = {.kind = SH_CALL_PUT, .cid = cid, .from = data, .size = size};
    return begin(store, &wanted, call);
}

enum shoal_err shoal_remove_async(shoal *store, shoal_cid cid, struct shoal_call *call)
{
    struct wanted wanted = {.kind = SH_CALL_REMOVE, .cid = cid};
    return begin(store, &wanted, call);
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
