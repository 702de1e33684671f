/* One operation on one chunk, on a cluster: find the owner, ask it, and try again what may be tried
 * again, until its time is over.
 *
 *   start -> owner known? --yes--> request -> answer -> complete
 *              | no                   | lost, unreachable, not the owner
 *              v                      v
 *           locate ---failed---> retry later (retry.c), after a refreshed view
 */
#include "client/client_int.h"
#include "node/chunks.h"

/* --- Answers ------------------------------------------------------------------------------- */

void sh_call_describe_bytes(struct sh_codec *c, unsigned err, uint32_t size, void *into,
                            size_t room)
{
    /* A chunk that went away between its size and its bytes leaves padding of that size. */
    bool has_bytes = err == SHOAL_OK || (err == SHOAL_ENOCHUNK && size > 0);
    bool fits = size <= room;
    if ((has_bytes && !fits) || (err == SHOAL_ESIZE && fits))
        sh_codec_fail(c, SHOAL_EPROTO);
    else if (has_bytes)
        sh_codec_bytes(c, into, size);
}

/* The answer to a get: its bytes land where the caller wants them, while they come. */
static void describe_got(struct sh_codec *c, void *object)
{
    struct sh_call_state *state = object;
    sh_codec_u16(c, &state->got_err);
    sh_codec_u32(c, &state->got_size);
    if (!sh_codec_reading(c))
        return;
    sh_call_describe_bytes(c, state->got_err, state->got_size, state->into, state->size);
}

static enum shoal_err get_answer(struct sh_call_state *state)
{
    sh_call_of(state)->size = state->got_size;
    return sh_call_err(state->got_err);
}

static enum shoal_err create_answer(struct sh_call_state *state, struct sh_reader *r)
{
    shoal_cid cid = {sh_get64(r)};
    uint32_t count = sh_get32(r);
    if (!sh_reader_done(r) || count != 1 || shoal_cid_creator(cid).v != state->request.to.v)
        return SHOAL_EPROTO;
    sh_call_of(state)->cid = cid;
    return SHOAL_OK;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_call_state *state = request->arg;
    if (err == SHOAL_OK && state->kind == SH_CALL_GET)
        err = get_answer(state);
    else if (err == SHOAL_OK && state->kind == SH_CALL_CREATE)
        err = create_answer(state, payload);
    else if (err != SHOAL_OK) {
        err = sh_call_err(err);
        sh_client_detail_take(state->detail, payload);
    }
    bool is_lost = err == SHOAL_ECONNLOST;
    if (err == SHOAL_OK || (!is_lost && !sh_call_may_retry(state->kind, err))) {
        sh_call_complete(state, err);
        return;
    }
    if (state->kind != SH_CALL_CREATE && !sh_client_closing(state->store))
        sh_directory_forget(state->store->directory, sh_call_of(state)->cid);
    sh_call_retry_later(state, err);
}

/* --- Asking -------------------------------------------------------------------------------- */

static size_t payload_bytes(const struct sh_call_state *state)
{
    switch (state->kind) {
    case SH_CALL_CREATE:
        return SH_ONCE_PREFIX_BYTES + 4;
    case SH_CALL_GET:
        return 12;
    case SH_CALL_PUT:
        return SH_ONCE_PREFIX_BYTES + 8 + state->size;
    default:
        return SH_ONCE_PREFIX_BYTES + 8;
    }
}

static sh_msg_type type_of(enum sh_call_kind kind)
{
    static const sh_msg_type types[] = {SH_CHUNKS_CREATE_ONCE, SH_CHUNKS_GET, SH_CHUNKS_PUT_ONCE,
                                        SH_CHUNKS_REMOVE_ONCE};
    return types[kind];
}

static void write_request(const struct sh_call_state *state, const struct sh_once_id *id,
                          shoal_cid cid, struct sh_writer *w)
{
    if (state->kind != SH_CALL_GET)
        sh_once_id_put(w, id);
    if (state->kind == SH_CALL_CREATE) {
        sh_put32(w, (uint32_t)state->size);
        return;
    }
    sh_put64(w, cid.v);
    if (state->kind == SH_CALL_GET)
        sh_put32(w, state->size > UINT32_MAX ? UINT32_MAX : (uint32_t)state->size);
    else if (state->kind == SH_CALL_PUT)
        sh_put_raw(w, sh_bytes_make(state->from, state->size));
}

/* Sends the request. The state is not touched after an OK: it may be completed by then. */
static enum shoal_err send_to(struct sh_call_state *state, shoal_nid nid)
{
    struct shoal *store = state->store;
    struct sh_msg *msg = store->msg;
    shoal_cid cid = sh_call_of(state)->cid;
    struct sh_once_id id = {0};
    enum shoal_err err = SHOAL_OK;
    if (state->kind != SH_CALL_GET)
        err = sh_call_number(state, nid, &id);
    if (err != SHOAL_OK)
        return err;
    state->request =
        (struct sh_request){.done = on_answer, .arg = state, .deadline_ns = state->deadline_ns};
    if (state->kind == SH_CALL_GET) {
        state->request.describe = describe_got;
        state->request.object = state;
    }
    /* What is written is read before the request is armed to complete: from a copy, as an early
     * connection loss may complete the call while this thread still writes. */
    struct sh_call_state copy = {.kind = state->kind, .size = state->size, .from = state->from};
    bool is_retry = state->is_retry;
    struct sh_out out;
    err = sh_msg_request(msg, nid, type_of(copy.kind), payload_bytes(&copy), &state->request, &out);
    if (err != SHOAL_OK)
        return err;
    if (is_retry)
        sh_msg_retried(msg, nid);
    write_request(&copy, &id, cid, &out.w);
    sh_msg_end(msg, &out);
    return SHOAL_OK;
}

/* Sends to the node that is to be asked; if that fails the call ends or waits for another try. */
static void send_on(struct sh_call_state *state, shoal_nid nid)
{
    /* A chunk that is somewhere else now: its new owner does not know what the old one did. */
    bool is_elsewhere = state->is_unclear && state->number_nid.v != nid.v;
    if (is_elsewhere && state->kind != SH_CALL_CREATE) {
        sh_call_complete(state, SHOAL_ECONNLOST);
        return;
    }
    enum shoal_err err = send_to(state, nid);
    if (err != SHOAL_OK)
        sh_call_retry_later(state, err);
}

/* Where the call goes. EAGAIN: the owner must be asked for. */
static enum shoal_err route(struct sh_call_state *state, shoal_nid *nid_out)
{
    struct shoal *store = state->store;
    if (state->kind != SH_CALL_CREATE)
        return sh_directory_owner(store->directory, sh_call_of(state)->cid, nid_out);
    struct sh_node node;
    /* What may have been done must be repeated where it was; but with a node that is no more, the
     * chunk that it may have made is gone. */
    if (state->is_unclear &&
        sh_directory_node(store->directory, state->number_nid, &node) == SHOAL_OK &&
        node.state == SH_NODE_UP) {
        *nid_out = state->number_nid;
        return SHOAL_OK;
    }
    state->is_unclear = false;
    if (state->where.v == 0)
        return sh_directory_pick_peer(store->directory, nid_out);
    enum shoal_err err = sh_directory_node(store->directory, state->where, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_PEER)
        err = SHOAL_EROLE;
    if (err == SHOAL_OK && node.state != SH_NODE_UP)
        err = node.state == SH_NODE_FAILED ? SHOAL_EFAILED : SHOAL_ENONODE;
    *nid_out = state->where;
    return err;
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_call_state *state = op->arg;
    if (err == SHOAL_OK) {
        send_on(state, nid);
        return;
    }
    /* Nothing has been done yet: a lost question may be asked again for any kind of call. */
    if (err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT)
        err = SHOAL_EUNREACHABLE;
    sh_call_retry_later(state, err);
}

static void locate(struct sh_call_state *state)
{
    struct shoal *store = state->store;
    state->locate =
        (struct sh_locate){.done = on_located, .arg = state, .deadline_ns = state->deadline_ns};
    sh_directory_locate(store->directory, sh_call_of(state)->cid, &state->locate);
}

/* A node that is not there is believed only of a view that is newer than the call. */
static bool is_news(struct sh_call_state *state, enum shoal_err err)
{
    return err == SHOAL_ENONODE &&
           atomic_load_explicit(&state->store->refreshes, memory_order_relaxed) == state->refreshes;
}

void sh_call_attempt(struct sh_call_state *state)
{
    shoal_nid nid;
    if (sh_client_closing(state->store)) {
        sh_call_complete(state, SHOAL_ESTOPPED);
        return;
    }
    enum shoal_err err = route(state, &nid);
    if (err == SHOAL_EAGAIN)
        locate(state);
    else if (err == SHOAL_OK)
        send_on(state, nid);
    else if (is_news(state, err))
        sh_call_retry_later(state, err);
    else
        sh_call_complete(state, err);
}

/* The first attempt to send, which waits for room if the call may block. */
static enum shoal_err send_first(struct sh_call_state *state, shoal_nid nid)
{
    struct sh_caller caller = sh_client_caller(state->store);
    enum shoal_err err;
    while ((err = send_to(state, nid)) == SHOAL_EAGAIN && state->is_blocking) {
        err = sh_call_wait_room(&caller, nid, payload_bytes(state), state->deadline_ns);
        if (err != SHOAL_OK)
            return err;
    }
    return err;
}

enum shoal_err sh_call_start(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    uint64_t now = sh_now(&store->env.clock);
    state->deadline_ns = now + store->timeout_ns;
    if (sh_client_closing(store))
        return SHOAL_ESTOPPED;
    state->refreshes = atomic_load_explicit(&store->refreshes, memory_order_relaxed);
    sh_client_refresh_if_due(store, now);
    bool waits = state->is_blocking;
    shoal_nid nid;
    enum shoal_err err = route(state, &nid);
    if (err != SHOAL_OK && err != SHOAL_EAGAIN && err != SHOAL_ENONODE)
        return err;
    atomic_fetch_add_explicit(&store->in_flight, 1, memory_order_relaxed);
    if (err == SHOAL_EAGAIN) {
        locate(state);
        return SHOAL_OK;
    }
    if (err == SHOAL_OK)
        err = send_first(state, nid);
    if (err == SHOAL_OK)
        return SHOAL_OK;
    if (err == SHOAL_EUNREACHABLE || err == SHOAL_ENONODE || (err == SHOAL_ELIMIT && waits)) {
        sh_call_retry_later(state, err);
        return SHOAL_OK;
    }
    atomic_fetch_sub_explicit(&store->in_flight, 1, memory_order_relaxed);
    sh_call_number_finish(state);
    return err == SHOAL_EAGAIN || err == SHOAL_ELIMIT ? SHOAL_EBUSY : err;
}
