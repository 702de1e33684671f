/* One operation on one chunk, on a cluster: find the owner, ask it, and try again what may be tried
 * again, until its time is over.
 *
 *   start -> owner known? --yes--> request -> answer -> complete
 *              | no                   | lost, unreachable, not the owner
 *              v                      v
 *           locate ---failed---> retry later (retry step), after a refreshed view
 */
#include <stdio.h>

#include "base/log.h"
#include "client/client_int.h"
#include "node/chunks.h"

#define RETRY_AFTER_NS UINT64_C(20000000)

static void attempt(struct sh_call_state *state);

static bool is_stopping(struct shoal *store)
{
    return atomic_load_explicit(&store->is_closing, memory_order_acquire);
}

/* --- Trying again -------------------------------------------------------------------------- */

/* May this failure be tried again without doing anything twice? */
static bool may_retry(enum sh_call_kind kind, enum shoal_err err)
{
    switch (err) {
    case SHOAL_EUNREACHABLE: /* never sent */
    case SHOAL_ENOTOWNER:    /* refused before anything was done */
    case SHOAL_EBUSY:
    case SHOAL_EAGAIN:
    case SHOAL_ENONODE:
        return true;
    case SHOAL_ECONNLOST:
        return kind == SH_CALL_GET;
    default:
        return false;
    }
}

static void on_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct shoal *store = op->arg;
    (void)detail;
    atomic_store_explicit(&store->is_refreshing, false, memory_order_release);
    if (err != SHOAL_OK)
        SH_DEBUG("client", "the view could not be refreshed", SH_ERR(err));
}

/* After a failure that a newer view may explain. Any thread. */
static void refresh(struct shoal *store)
{
    /* acq_rel: one refresh at a time owns refresh_op */
    if (is_stopping(store) ||
        atomic_exchange_explicit(&store->is_refreshing, true, memory_order_acq_rel))
        return;
    store->refresh_op = (struct sh_directory_op){.done = on_refreshed, .arg = store};
    sh_directory_refresh(store->directory, &store->refresh_op);
}

static void retry_later(struct sh_call_state *state, enum shoal_err err)
{
    struct shoal *store = state->store;
    uint64_t now = sh_now(&store->env.clock);
    if (is_stopping(store))
        err = SHOAL_ESTOPPED;
    if (is_stopping(store) || !may_retry(state->kind, err) ||
        now + RETRY_AFTER_NS >= state->deadline_ns) {
        sh_call_complete(state, err);
        return;
    }
    if (err != SHOAL_EAGAIN)
        refresh(store);
    state->next = NULL;
    sh_spin_take(&store->retry_lock);
    if (store->retry_last)
        store->retry_last->next = state;
    else
        store->retry_first = state;
    store->retry_last = state;
    uint64_t due = atomic_load_explicit(&store->retry_due_ns, memory_order_relaxed);
    uint64_t mine = err == SHOAL_EAGAIN ? now : now + RETRY_AFTER_NS;
    if (mine < due)
        atomic_store_explicit(&store->retry_due_ns, mine, memory_order_release);
    sh_spin_release(&store->retry_lock);
    sh_crew_wake(store->crew, 0);
}

static struct sh_call_state *retries_take(struct shoal *store)
{
    sh_spin_take(&store->retry_lock);
    struct sh_call_state *list = store->retry_first;
    store->retry_first = store->retry_last = NULL;
    atomic_store_explicit(&store->retry_due_ns, SH_NEVER, memory_order_relaxed);
    sh_spin_release(&store->retry_lock);
    return list;
}

static unsigned retry_run(void *arg)
{
    struct shoal *store = arg;
    uint64_t due = atomic_load_explicit(&store->retry_due_ns, memory_order_acquire);
    if (due == SH_NEVER || sh_now(&store->env.clock) < due)
        return 0;
    unsigned count = 0;
    struct sh_call_state *next;
    for (struct sh_call_state *state = retries_take(store); state; state = next) {
        next = state->next;
        attempt(state);
        count++;
    }
    return count;
}

static uint64_t retry_due(void *arg)
{
    struct shoal *store = arg;
    return atomic_load_explicit(&store->retry_due_ns, memory_order_acquire);
}

struct sh_step sh_client_retry_step(struct shoal *store)
{
    return (struct sh_step){.name = "retries", .run = retry_run, .due_ns = retry_due, .arg = store};
}

void sh_client_retries_fail(struct shoal *store)
{
    struct sh_call_state *next;
    for (struct sh_call_state *state = retries_take(store); state; state = next) {
        next = state->next;
        sh_call_complete(state, SHOAL_ESTOPPED);
    }
}

/* --- Answers ------------------------------------------------------------------------------- */

static enum shoal_err get_answer(struct sh_call_state *state, struct sh_reader *r)
{
    struct shoal_call *call = sh_call_of(state);
    enum shoal_err err = (enum shoal_err)sh_get16(r);
    uint32_t size = sh_get32(r);
    const uint8_t *bytes = err == SHOAL_OK ? sh_reader_take(r, size) : r->at;
    if (!sh_reader_ok(r) || (err == SHOAL_OK && size > state->size))
        return SHOAL_EPROTO;
    call->size = size;
    if (err == SHOAL_OK && size > 0)
        memcpy(state->into, bytes, size);
    return err;
}

static enum shoal_err create_answer(struct sh_call_state *state, struct sh_reader *r)
{
    shoal_cid cid = {sh_get64(r)};
    uint32_t count = sh_get32(r);
    if (!sh_reader_done(r) || count != 1)
        return SHOAL_EPROTO;
    sh_call_of(state)->cid = cid;
    return SHOAL_OK;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_call_state *state = request->arg;
    if (err == SHOAL_OK && state->kind == SH_CALL_GET)
        err = get_answer(state, payload);
    else if (err == SHOAL_OK && state->kind == SH_CALL_CREATE)
        err = create_answer(state, payload);
    else if (err != SHOAL_OK && state->detail)
        snprintf(state->detail, SH_DETAIL_BYTES, "%.*s", (int)sh_reader_left(payload),
                 (const char *)payload->at);
    if (err == SHOAL_OK || !may_retry(state->kind, err)) {
        sh_call_complete(state, err);
        return;
    }
    if (state->kind != SH_CALL_CREATE)
        sh_directory_forget(state->store->directory, sh_call_of(state)->cid);
    retry_later(state, err);
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_call_state *state = op->arg;
    (void)nid; /* it is in the cache now */
    if (err == SHOAL_OK) {
        attempt(state);
        return;
    }
    /* Nothing has been done yet: a lost question may be asked again for any kind of call. */
    bool may_ask_again = err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT;
    if (may_ask_again || may_retry(state->kind, err)) {
        retry_later(state, may_ask_again ? SHOAL_EUNREACHABLE : err);
        return;
    }
    sh_call_complete(state, err);
}

/* --- Asking -------------------------------------------------------------------------------- */

static size_t payload_bytes(const struct sh_call_state *state)
{
    switch (state->kind) {
    case SH_CALL_CREATE:
        return 9;
    case SH_CALL_GET:
        return 12;
    case SH_CALL_PUT:
        return 8 + state->size;
    default:
        return 8;
    }
}

static sh_msg_type type_of(enum sh_call_kind kind)
{
    static const sh_msg_type types[] = {SH_CHUNKS_CREATE, SH_CHUNKS_GET, SH_CHUNKS_PUT,
                                        SH_CHUNKS_REMOVE};
    return types[kind];
}

static void write_request(const struct sh_call_state *state, shoal_cid cid, struct sh_writer *w)
{
    if (state->kind == SH_CALL_CREATE) {
        sh_put32(w, 1);
        sh_put8(w, 0);
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
    state->request =
        (struct sh_request){.done = on_answer, .arg = state, .deadline_ns = state->deadline_ns};
    /* What is written is read before the request is armed to complete: from a copy, as an early
     * connection loss may complete the call while this thread still writes. */
    struct sh_call_state copy = {.kind = state->kind, .size = state->size, .from = state->from};
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(msg, nid, type_of(copy.kind), payload_bytes(&copy), &state->request, &out);
    if (err != SHOAL_OK)
        return err;
    write_request(&copy, cid, &out.w);
    sh_msg_end(msg, &out);
    return SHOAL_OK;
}

/* Where the call goes. EAGAIN: the owner must be asked for. */
static enum shoal_err route(struct sh_call_state *state, shoal_nid *nid_out)
{
    struct shoal *store = state->store;
    if (state->kind != SH_CALL_CREATE)
        return sh_directory_owner(store->directory, sh_call_of(state)->cid, nid_out);
    if (state->where.v == 0)
        return sh_directory_pick_peer(store->directory, nid_out);
    struct sh_node node;
    enum shoal_err err = sh_directory_node(store->directory, state->where, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_PEER)
        err = SHOAL_EROLE;
    if (err == SHOAL_OK && node.state != SH_NODE_UP)
        err = node.state == SH_NODE_FAILED ? SHOAL_EFAILED : SHOAL_ENONODE;
    *nid_out = state->where;
    return err;
}

static void locate(struct sh_call_state *state)
{
    struct shoal *store = state->store;
    state->locate = (struct sh_locate){.done = on_located, .arg = state};
    sh_directory_locate(store->directory, sh_call_of(state)->cid, &state->locate);
}

/* Another attempt at a call that was begun: whatever happens completes it or leads to the next. */
static void attempt(struct sh_call_state *state)
{
    shoal_nid nid;
    if (is_stopping(state->store)) {
        sh_call_complete(state, SHOAL_ESTOPPED);
        return;
    }
    enum shoal_err err = route(state, &nid);
    if (err == SHOAL_EAGAIN) {
        locate(state);
        return;
    }
    if (err == SHOAL_ENONODE && state->where.v != 0) {
        sh_call_complete(state, err);
        return;
    }
    if (err == SHOAL_OK)
        err = send_to(state, nid);
    if (err == SHOAL_OK)
        return;
    if (err == SHOAL_ELIMIT)
        err = SHOAL_EAGAIN;
    retry_later(state, err);
}

/* Waits for room towards a node: blocking calls only. */
static void wait_for_room(struct shoal *store, shoal_nid nid)
{
    struct sh_waiter room = {0};
    sh_msg_wait_room(store->msg, nid, &room);
    bool is_done = sh_crew_wait(store->crew, 0, &room, SH_NEVER);
    SH_ASSERT(is_done);
}

enum shoal_err sh_call_start(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    state->store = store;
    state->deadline_ns = sh_now(&store->env.clock) + store->timeout_ns;
    atomic_init(&state->waiter.state, 0);
    if (is_stopping(store))
        return SHOAL_ESTOPPED;
    shoal_nid nid;
    enum shoal_err err = route(state, &nid);
    if (err != SHOAL_OK && err != SHOAL_EAGAIN)
        return err;
    atomic_fetch_add_explicit(&store->in_flight, 1, memory_order_relaxed);
    if (err == SHOAL_EAGAIN) {
        locate(state);
        return SHOAL_OK;
    }
    while ((err = send_to(state, nid)) == SHOAL_EAGAIN && state->is_blocking)
        wait_for_room(store, nid);
    if (err == SHOAL_OK)
        return SHOAL_OK;
    if (err == SHOAL_EUNREACHABLE) {
        retry_later(state, err);
        return SHOAL_OK;
    }
    atomic_fetch_sub_explicit(&store->in_flight, 1, memory_order_relaxed);
    return err == SHOAL_EAGAIN || err == SHOAL_ELIMIT ? SHOAL_EBUSY : err;
}
