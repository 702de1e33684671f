/* One operation on one chunk, on a cluster: find the owner, ask it, and try again what may be tried
 * again, until its time is over.
 *
 *   start -> owner known? --yes--> request -> answer -> complete
 *              | no                   | lost, unreachable, not the owner
 *              v                      v
 *           locate ---failed---> retry later (retry.c), after a refreshed view
 */
#include <stdio.h>

#include "client/client_int.h"
#include "proto/moves.h"

/* A node that is being drained answers so, with a text; to ask again while that lasts changes
 * nothing. That there is no such node, at the address that is known, comes without one. */
static bool is_drained(const struct sh_call_state *state, enum shoal_err err,
                       const struct sh_reader *text)
{
    return err == SHOAL_ENONODE && state->ask.kind == SH_CALL_FILL && sh_reader_left(text) > 0;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_call_state *state = request->arg;
    if (err == SHOAL_OK && sh_call_is_lock(state->ask.kind)) {
        sh_call_complete(state, sh_lock_answer_read(state, payload));
        return;
    }
    if (err == SHOAL_OK) {
        err = sh_ask_answer(state, payload);
    } else {
        err = sh_err_get(err);
        sh_call_detail_take(state->detail, payload);
    }
    if (err == SHOAL_ETIMEOUT && !sh_client_closing(state->store))
        sh_directory_suspect(state->store->directory, request->to);
    bool is_lost = err == SHOAL_ECONNLOST;
    state->was_lost |= is_lost;
    if (sh_call_is_lock(state->ask.kind) && err != SHOAL_ETIMEOUT && err != SHOAL_EFAILED)
        state->failed_ns = 0; /* there was a node meanwhile */
    if (err == SHOAL_OK || is_drained(state, err, payload) ||
        (!is_lost && !sh_call_may_retry(state->ask.kind, err))) {
        sh_call_complete(state, err);
        return;
    }
    if (state->ask.kind != SH_CALL_CREATE && !sh_client_closing(state->store))
        sh_directory_forget(state->store->directory, sh_call_of(state)->cid);
    sh_call_retry_later(state, err);
}

/* --- Asking -------------------------------------------------------------------------------- */

/* Sends the request. The state is not touched after an OK: it may be completed by then. */
static enum shoal_err send_to(struct sh_call_state *state, shoal_nid nid)
{
    struct shoal *store = state->store;
    struct sh_msg *msg = store->msg;
    shoal_cid cid = sh_call_of(state)->cid;
    struct sh_once_id id = {0};
    enum shoal_err err = SHOAL_OK;
    if (sh_call_is_numbered(state->ask.kind))
        err = sh_call_number(state, nid, &id);
    else
        state->number_nid = nid;
    if (err != SHOAL_OK)
        return err;
    state->request =
        (struct sh_request){.done = on_answer, .arg = state, .deadline_ns = state->deadline_ns};
    state->request.describe = sh_ask_describe(state->ask.kind);
    state->request.object = state;
    /* What is written is read before the request is armed to complete: from a copy, as an early
     * connection loss may complete the call while this thread still writes. */
    struct sh_ask ask = state->ask;
    bool is_retry = state->is_retry;
    struct sh_out out;
    err = sh_msg_request(msg, nid, sh_ask_type(&ask), sh_ask_bytes(&ask), &state->request, &out);
    if (err != SHOAL_OK)
        return err;
    if (is_retry)
        sh_msg_retried(msg, nid);
    if (sh_call_is_lock(ask.kind))
        sh_lock_request_write(&ask, cid, store->once_client, sh_now(&store->env.clock), &out.w);
    else
        sh_ask_write(&ask, &id, cid, &out.w);
    sh_msg_end(msg, &out);
    return SHOAL_OK;
}

static void send_on(struct sh_call_state *state, shoal_nid nid);

#define ASKED_NOBODY ((shoal_nid){SH_PEER_NID_MIN - 1}) /* below all peers */

/* Whether what the node knew of the call, if it knew something, is with others by now than that node, or comes to be. */
static bool asks_all(const struct sh_call_state *state)
{
    struct sh_node node;
    enum shoal_err err = sh_directory_node(state->store->directory, state->number_nid, &node);
    return err || (node.traits.is_replicated && !node.traits.keeps_chunks);
}

/* Whether nodes are asked one after the other what came of the call, and not only the chunk's owner. That is so of creates, the chunk of which nobody knows; and of other calls whose
 * node has failed, if the chunk's owner does not know: the chunk may have left its zone since, and the record of what was done to it is in the former zone, which another node may have
 * brought back, or may yet. */
static bool asks_nodes(const struct sh_call_state *state)
{
    return state->is_unclear && (state->ask.kind == SH_CALL_CREATE || state->is_unknown);
}

/* Whether the node that was sent the call is still the same process, as far as is known. */
static bool is_same_life(const struct sh_call_state *state)
{
    return state->number_life == sh_directory_life(state->store->directory, state->number_nid);
}

static bool is_alive(const struct sh_call_state *state)
{
    struct sh_node node;
    return !sh_directory_node(state->store->directory, state->number_nid, &node) &&
           node.state == SH_NODE_UP && is_same_life(state);
}

/* That node does not know what came of the call. */
static void unknown(struct sh_call_state *state, shoal_nid nid)
{
    if (asks_nodes(state) && asks_all(state)) {
        state->asked = nid;
        sh_call_attempt(state);
    } else if (!asks_nodes(state) && asks_all(state) && !is_alive(state)) {
        state->is_unknown = true;
        state->asked = SHOAL_NID_NONE;
        sh_call_attempt(state);
    } else {
        /* It was not done, and can't be any more where it was sent to. */
        state->is_unclear = state->is_unknown = false;
        send_on(state, nid);
    }
}

/* A node says what came of the request that was sent to another one, or to a life before: the chunk's owner, or one of all nodes. */
static void on_outcome(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_call_state *state = request->arg;
    struct shoal_call *call = sh_call_of(state);
    if (err == SHOAL_OK) {
        bool is_known = sh_get8(payload);
        enum shoal_err outcome = sh_err_get(sh_get16(payload));
        uint64_t value = sh_get64(payload);
        if (!sh_reader_done(payload)) {
            sh_call_complete(state, SHOAL_EPROTO);
        } else if (is_known) {
            if (state->ask.kind == SH_CALL_ADD)
                call->value = value;
            if (state->ask.kind == SH_CALL_CREATE)
                call->cid = shoal_cid_make(state->number_nid, value);
            sh_call_complete(state, outcome);
        } else {
            unknown(state, request->to);
        }
        return;
    }
    if (err == SHOAL_ENOTYPE) {
        sh_call_complete(state, SHOAL_ECONNLOST);
        return;
    }
    /* That node keeps nothing over its lives: what it may have made is gone. */
    if (asks_nodes(state) && sh_err_get(err) == SHOAL_EFAILED) {
        state->is_unclear = state->is_unknown = false;
        sh_call_attempt(state);
        return;
    }
    if (!asks_nodes(state) && !sh_client_closing(state->store))
        sh_directory_forget(state->store->directory, call->cid);
    sh_call_retry_later(state, sh_err_get(err));
}

/* A chunk that is somewhere else since the call was sent: what was done to it where it was moved
 * with it. Or the node has another life since: where that has the chunks of the life before it knows what was done, too. */
static enum shoal_err outcome_ask(struct sh_call_state *state, shoal_nid nid)
{
    struct shoal *store = state->store;
    struct sh_out out;
    state->request =
        (struct sh_request){.done = on_outcome, .arg = state, .deadline_ns = state->deadline_ns};
    shoal_nid before = state->number_nid;
    uint64_t cid = asks_nodes(state) ? shoal_cid_make(before, 0).v : sh_call_of(state)->cid.v;
    uint64_t number = state->number;
    enum shoal_err err = sh_msg_request(store->msg, nid, SH_MOVES_OUTCOME, SH_MOVES_OUTCOME_BYTES,
                                        &state->request, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put64(&out.w, cid);
    sh_put64(&out.w, store->once_client);
    sh_put16(&out.w, before.v);
    sh_put64(&out.w, number);
    sh_msg_end(store->msg, &out);
    return SHOAL_OK;
}

/* Sends to the node that is to be asked; if that fails the call ends or waits for another try. */
static void send_on(struct sh_call_state *state, shoal_nid nid)
{
    bool is_elsewhere = state->is_unclear && (state->number_nid.v != nid.v || !is_same_life(state));
    if (is_elsewhere && !sh_call_may_repeat(state, sh_now(&state->store->env.clock))) {
        sh_call_complete(state, SHOAL_ECONNLOST);
        return;
    }
    enum shoal_err err = is_elsewhere ? outcome_ask(state, nid) : send_to(state, nid);
    if (err != SHOAL_OK)
        sh_call_retry_later(state, err);
}

/* An unclear call: who knows what came of it. The same node, while it lives; where that keeps its chunks, its next life. Else, once all of its zones are with
 * others, every peer is asked, as what was made may have moved on from those; a view that has changed meanwhile is gone through anew. EAGAIN: the superpeers have to say whether
 * its zones are; ENOCHUNK: it was not done. */
static enum shoal_err unclear_route(struct sh_call_state *state, shoal_nid *nid_out)
{
    struct sh_directory *directory = state->store->directory;
    struct sh_node node;
    enum shoal_err err = sh_directory_node(directory, state->number_nid, &node);
    bool is_up = !err && node.state == SH_NODE_UP;
    *nid_out = state->number_nid;
    if (is_up && (is_same_life(state) || !asks_all(state)))
        return SHOAL_OK;
    if (!err && !asks_all(state))
        return sh_call_awaits_node(state, SHOAL_EFAILED) ? SHOAL_EFAILED : SHOAL_ENOCHUNK;
    uint16_t epoch = (uint16_t)sh_directory_epoch(directory);
    if (state->asked_epoch != epoch)
        state->asked = SHOAL_NID_NONE;
    state->asked_epoch = epoch;
    if (!state->asked.v && !err)
        return is_up ? SHOAL_OK : SHOAL_EAGAIN;
    *nid_out = sh_directory_peer_after(directory, state->asked);
    return nid_out->v ? SHOAL_OK : SHOAL_ENOCHUNK;
}

/* Where the call goes. EAGAIN: the superpeers must be asked. */
static enum shoal_err route(struct sh_call_state *state, shoal_nid *nid_out)
{
    struct shoal *store = state->store;
    enum shoal_err err = asks_nodes(state) ? unclear_route(state, nid_out) : SHOAL_ENOCHUNK;
    if (err != SHOAL_ENOCHUNK)
        return err;
    if (state->ask.kind == SH_CALL_CREATE || state->is_unknown)
        state->is_unclear = state->is_unknown = false;
    if (state->ask.kind != SH_CALL_CREATE)
        return sh_directory_owner(store->directory, sh_call_of(state)->cid, nid_out);
    struct sh_node node;
    if (state->ask.where.v == 0)
        return sh_directory_pick_peer(store->directory, nid_out);
    err = sh_directory_node(store->directory, state->ask.where, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_PEER)
        err = SHOAL_EROLE;
    if (err == SHOAL_OK && node.state != SH_NODE_UP)
        err = sh_node_may_return(&node) ? SHOAL_EFAILED : SHOAL_ENONODE;
    *nid_out = state->ask.where;
    return err;
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_call_state *state = op->arg;
    if (asks_nodes(state) && (err == SHOAL_ENOCHUNK || err == SHOAL_ELOST)) {
        state->asked =
            ASKED_NOBODY; /* whose zones are with others, or lost, has no chunk of its own any more */
        sh_call_attempt(state);
        return;
    }
    if (asks_nodes(state) && err == SHOAL_OK)
        err = SHOAL_EUNREACHABLE; /* it is back, which a newer view says */
    if (err == SHOAL_OK) {
        send_on(state, nid);
        return;
    }
    /* Nothing has been done yet: a lost question may be asked again for any kind of call. */
    if (err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT)
        err = SHOAL_EUNREACHABLE;
    if (err == SHOAL_EUNREACHABLE && state->detail)
        (void)snprintf(state->detail, SH_DETAIL_BYTES,
                       "no superpeer that knows where the chunk is can be reached");
    sh_call_retry_later(state, err);
}

static void locate(struct sh_call_state *state)
{
    struct shoal *store = state->store;
    shoal_cid cid = asks_nodes(state) ? shoal_cid_make(state->number_nid, SHOAL_LOCAL_ID_MAX)
                                      : sh_call_of(state)->cid;
    state->locate =
        (struct sh_locate){.done = on_located, .arg = state, .deadline_ns = state->deadline_ns};
    sh_directory_locate(store->directory, cid, &state->locate);
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
    else if (is_news(state, err) || sh_call_awaits_node(state, err))
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
        err = sh_call_wait_room(&caller, nid, sh_ask_bytes(&state->ask), state->deadline_ns);
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
    /* The time-out is for the answer; the lock may be waited for before that. Neither is over 2^62.
     */
    if (state->ask.kind == SH_CALL_LOCK)
        state->deadline_ns = state->ask.wait_until_ns == SH_LEASES_NEVER
                                 ? SH_NEVER
                                 : state->ask.wait_until_ns + store->timeout_ns;
    if (sh_client_closing(store))
        return SHOAL_ESTOPPED;
    state->refreshes = atomic_load_explicit(&store->refreshes, memory_order_relaxed);
    sh_client_refresh_if_due(store, now);
    bool waits = state->is_blocking;
    shoal_nid nid;
    enum shoal_err err = route(state, &nid);
    bool awaits_node = sh_call_awaits_node(state, err);
    if (err != SHOAL_OK && err != SHOAL_EAGAIN && err != SHOAL_ENONODE && !awaits_node)
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
    if (err == SHOAL_EUNREACHABLE || err == SHOAL_ENONODE || awaits_node ||
        (err == SHOAL_ELIMIT && waits)) {
        sh_call_retry_later(state, err);
        return SHOAL_OK;
    }
    atomic_fetch_sub_explicit(&store->in_flight, 1, memory_order_relaxed);
    sh_call_number_finish(state);
    return err == SHOAL_EAGAIN || err == SHOAL_ELIMIT ? SHOAL_EBUSY : err;
}
