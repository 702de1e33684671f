/* Names and scratch without waiting: the same exchanges with the superpeers as service.c has, but
 * each answer leads to the next step of its operation. One that has to pause is in a list, until
 * the client's crew goes on with it.
 *
 *   update:   a place among the callers --> the shard's count, if it is old --> the update
 *   question: ---------------------------------------------------------------> the question
 */
#include <stdlib.h>
#include <string.h>

#include "client/names_durable_int.h"
#include "client/service_int.h"
#include "cluster/proto.h"
#include "ring/arcs.h"

#define OPS_MAX 4096u /* under way in a store; 7 KiB each */

struct op {
    struct sh_request request;
    struct op *next; /* in the list of those that pause */
    uint64_t retry_ns;
    shoal *store;
    struct shoal_call *call;
    struct sh_exchange ex;
    shoal_nid to;                 /* asked last */
    struct sh_name_change change; /* of a store in this process that is found again */
    bool is_update;
    /* An update's. */
    struct sh_metadata_update update;
    struct sh_service_caller caller;
    bool has_caller;
    bool is_numbered; /* since and number are set, and stay */
    bool asks_count;  /* the answer that is waited for is the count */
    uint64_t asked_ns;
    /* A question's. */
    struct sh_service_ask ask;
    void *into; /* of a scratch value */
    size_t room;
    uint8_t key[SHOAL_NAME_MAX];
    uint8_t value[SHOAL_SCRATCH_MAX];
};

struct sh_service_ops {
    struct op *pausing; /* under retry_lock */
    _Atomic uint64_t due_ns;
    _Atomic uint32_t count;
};

static uint64_t now_of(const shoal *store)
{
    return sh_now(&store->env.clock);
}

/* --- The end --------------------------------------------------------------------------------- */

static void op_end(struct op *op, enum shoal_err err)
{
    struct shoal_call *call = op->call;
    if (op->has_caller)
        sh_service_caller_release(op->store, &op->caller);
    atomic_fetch_sub_explicit(&op->store->service_ops->count, 1, memory_order_relaxed);
    free(op);
    sh_call_complete(sh_call_state_of(call), err);
}

/* The answer to a question: the call's results. */
static enum shoal_err answer_take(struct op *op, struct sh_reader *r)
{
    struct shoal_call *call = op->call;
    if (op->ask.kind == SH_ASK_NAME) {
        shoal_cid cid = {sh_get64(r)};
        if (!sh_reader_done(r))
            return SHOAL_EPROTO;
        call->cid = cid;
        return SHOAL_OK;
    }
    size_t size = sh_reader_left(r);
    if (size > SHOAL_SCRATCH_MAX)
        return SHOAL_EPROTO;
    call->size = (uint32_t)size;
    if (size > op->room)
        return SHOAL_ESIZE;
    if (size)
        memcpy(op->into, sh_reader_take(r, size), size);
    return SHOAL_OK;
}

/* --- Steps ----------------------------------------------------------------------------------- */

static void op_later(struct op *op, uint64_t pause_ns)
{
    shoal *store = op->store;
    struct sh_service_ops *ops = store->service_ops;
    op->retry_ns = now_of(store) + pause_ns;
    sh_spin_take(&store->retry_lock);
    op->next = ops->pausing;
    ops->pausing = op;
    /* release: pairs with the acquire in pauses_run; the list itself is under the lock */
    if (op->retry_ns < atomic_load_explicit(&ops->due_ns, memory_order_relaxed))
        atomic_store_explicit(&ops->due_ns, op->retry_ns, memory_order_release);
    sh_spin_release(&store->retry_lock);
    sh_crew_wake(store->crew, 0);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload);

/* Writes what is to be sent next. */
static size_t payload_put(struct op *op, struct sh_writer *w)
{
    const uint8_t *begin = w->at;
    struct sh_service_ask count = {.kind = SH_ASK_UPDATES, .shard = (uint8_t)op->ex.shard};
    op->update.is_repeat = op->ex.is_unclear;
    if (op->asks_count)
        sh_service_ask_put(w, &count, 0);
    else if (op->is_update)
        sh_metadata_update_put(w, &op->update);
    else
        sh_service_ask_put(w, &op->ask, 0);
    SH_ASSERT(sh_writer_ok(w));
    return (size_t)(w->at - begin);
}

/* Sends it. The operation is not touched after an OK: it may be over by then. */
static enum shoal_err op_send(struct op *op, uint64_t now_ns)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    size_t size = payload_put(op, &w);
    struct sh_msg *msg = op->store->msg;
    uint64_t left_ns = op->ex.deadline_ns - now_ns;
    struct sh_out out;
    op->ex.is_update = op->is_update && !op->asks_count;
    sh_msg_type type = op->ex.is_update ? SH_CLUSTER_METADATA : SH_CLUSTER_ASK;
    op->asked_ns = now_ns;
    op->to = sh_exchange_whom(op->store, op->ex.shard, op->ex.tries++);
    if (!op->to.v)
        return SHOAL_ENONODE;
    op->request = (struct sh_request){
        .done = on_answer,
        .arg = op,
        .timeout_ns = left_ns < SH_SERVICE_PATIENCE_NS ? left_ns : SH_SERVICE_PATIENCE_NS};
    enum shoal_err err = sh_msg_request(msg, op->to, type, size, &op->request, &out);
    if (err)
        return err == SHOAL_EAGAIN ? SHOAL_EBUSY : err; /* no room: not sent, in either case */
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(msg, &out);
    return SHOAL_OK;
}

/* What an update needs before it is sent. False: it has to pause. */
static bool update_ready(struct op *op)
{
    if (!op->has_caller)
        op->has_caller = sh_service_caller_try(op->store, &op->caller);
    if (!op->has_caller)
        return false;
    if (op->is_numbered)
        return true;
    op->asks_count = !sh_service_count(op->store, op->ex.shard, &op->update.since);
    if (op->asks_count)
        return true;
    op->update.caller = op->caller.id;
    op->update.number = sh_service_number(op->store, &op->caller);
    op->is_numbered = true;
    op->ex.is_unclear = false; /* that was the question about the count */
    return true;
}

/* Goes on until something is sent, the operation pauses, or it is over. */
static void op_run(struct op *op)
{
    for (;;) {
        uint64_t now_ns = now_of(op->store);
        if (now_ns >= op->ex.deadline_ns || sh_client_closing(op->store)) {
            bool is_time = now_ns >= op->ex.deadline_ns || (op->ex.is_unclear && op->ex.is_update);
            op_end(op, is_time ? SHOAL_ETIMEOUT : SHOAL_ESTOPPED);
            return;
        }
        if (op->is_update && !update_ready(op)) {
            op_later(op, SH_ROOM_PAUSE_NS);
            return;
        }
        enum shoal_err err = op_send(op, now_ns);
        if (!err)
            return;
        switch (sh_exchange_after(op->store, &op->ex, op->to, err, 0, &err)) {
        case SH_VERDICT_OVER:
            op_end(op, err);
            return;
        case SH_VERDICT_PAUSE:
            op_later(op, SH_ROUND_PAUSE_NS);
            return;
        case SH_VERDICT_AGAIN:
            break;
        }
    }
}

/* The owner has answered. */
static void op_answered(struct op *op, struct sh_reader *payload)
{
    if (!op->is_update) {
        op_end(op, answer_take(op, payload));
        return;
    }
    if (op->asks_count) {
        uint64_t count = sh_get64(payload);
        op->asks_count = false;
        if (!sh_reader_done(payload)) {
            op_end(op, SHOAL_EPROTO);
            return;
        }
        sh_service_count_set(op->store, op->ex.shard, count, op->asked_ns ? op->asked_ns : 1);
        op_run(op);
        return;
    }
    struct sh_metadata_result result = {.cid = SHOAL_CID_NONE};
    enum shoal_err err = sh_service_result_get(payload, &op->ex, &result);
    if (err == SHOAL_EAGAIN || err == SHOAL_ETIMEOUT)
        sh_service_count_set(op->store, op->ex.shard, 0, 0);
    if (err == SHOAL_EAGAIN) {
        op->is_numbered = false;
        op_run(op);
        return;
    }
    op->call->cid = result.cid;
    op_end(op, err);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct op *op = request->arg;
    uint16_t redirect = 0;
    if (err)
        err = sh_err_get(err);
    else
        redirect = sh_get16(payload);
    if (!err && !sh_reader_ok(payload))
        err = SHOAL_EPROTO;
    switch (sh_exchange_after(op->store, &op->ex, op->to, err, redirect, &err)) {
    case SH_VERDICT_OVER:
        if (err)
            op_end(op, err);
        else
            op_answered(op, payload);
        break;
    case SH_VERDICT_PAUSE:
        op_later(op, SH_ROUND_PAUSE_NS);
        break;
    case SH_VERDICT_AGAIN:
        op_run(op);
        break;
    }
}

/* --- Those that pause ------------------------------------------------------------------------ */

/* Takes all that are due. */
static struct op *due_take(shoal *store, uint64_t now_ns)
{
    struct sh_service_ops *ops = store->service_ops;
    struct op *taken = NULL;
    uint64_t due_ns = SH_NEVER;
    sh_spin_take(&store->retry_lock);
    for (struct op **at = &ops->pausing; *at;) {
        struct op *op = *at;
        if (op->retry_ns > now_ns) {
            due_ns = op->retry_ns < due_ns ? op->retry_ns : due_ns;
            at = &op->next;
            continue;
        }
        *at = op->next;
        op->next = taken;
        taken = op;
    }
    atomic_store_explicit(&ops->due_ns, due_ns, memory_order_release);
    sh_spin_release(&store->retry_lock);
    return taken;
}

static unsigned pauses_run(void *arg)
{
    shoal *store = arg;
    uint64_t now_ns = now_of(store);
    unsigned count = 0;
    if (atomic_load_explicit(&store->service_ops->due_ns, memory_order_acquire) > now_ns)
        return 0;
    for (struct op *op = due_take(store, now_ns), *next; op; op = next) {
        next = op->next;
        op_run(op);
        count++;
    }
    return count;
}

static uint64_t pauses_due(void *arg)
{
    shoal *store = arg;
    return atomic_load_explicit(&store->service_ops->due_ns, memory_order_acquire);
}

struct sh_step sh_service_ops_step(shoal *store)
{
    return (struct sh_step){
        .name = "services", .run = pauses_run, .due_ns = pauses_due, .arg = store};
}

void sh_service_ops_fail(shoal *store)
{
    if (!store->service_ops)
        return;
    for (struct op *op = due_take(store, SH_NEVER), *next; op; op = next) {
        next = op->next;
        op_end(op, op->ex.is_unclear && op->ex.is_update ? SHOAL_ETIMEOUT : SHOAL_ESTOPPED);
    }
}

enum shoal_err sh_service_ops_open(shoal *store)
{
    store->service_ops = calloc(1, sizeof *store->service_ops);
    if (!store->service_ops)
        return SHOAL_ENOMEM;
    atomic_init(&store->service_ops->due_ns, SH_NEVER);
    return SHOAL_OK;
}

void sh_service_ops_close(shoal *store)
{
    free(store->service_ops);
    store->service_ops = NULL;
}

/* --- Beginning ------------------------------------------------------------------------------- */

static void on_changed(struct sh_name_change *change)
{
    struct op *op = change->arg;
    op->call->cid = change->result.cid;
    op_end(op, change->result.err);
}

/* In this process it is done at once, unless it waits for the disk. */
static void local_run(struct op *op)
{
    struct sh_metadata_result result = {.cid = SHOAL_CID_NONE};
    uint8_t *answer = NULL;
    struct sh_reader r;
    enum shoal_err err;
    if (op->is_update && sh_local_is_durable(op->store, &op->update)) {
        op->change = (struct sh_name_change){.update = &op->update, .done = on_changed, .arg = op};
        sh_names_begin(op->store->names, &op->change);
        return;
    }
    if (op->is_update) {
        err = sh_local_update(op->store, &op->update, &result);
        op->call->cid = result.cid;
    } else {
        err = sh_local_ask(op->store, &op->ask, &answer, &r);
        if (!err)
            err = answer_take(op, &r);
        free(answer);
    }
    op_end(op, err);
}

/* Clears the call, and makes its operation. The name is copied. */
static enum shoal_err op_make(shoal *store, const char *name, struct shoal_call *call,
                              struct op **op_out)
{
    struct sh_bytes key;
    sh_client_detail()[0] = '\0';
    if (!call)
        return SHOAL_EINVAL;
    struct sh_call_state *state = sh_call_state_of(call);
    *state = (struct sh_call_state){.store = store};
    call->cid = SHOAL_CID_NONE;
    call->size = 0;
    call->value = 0;
    call->err = SHOAL_OK;
    enum shoal_err err = store ? sh_service_key(name, &key) : SHOAL_EINVAL;
    if (err)
        return err;
    if (sh_client_closing(store))
        return SHOAL_ESTOPPED;
    struct op *op = malloc(sizeof *op);
    if (!op)
        return SHOAL_ENOMEM;
    memset(op, 0, sizeof *op);
    memcpy(op->key, key.at, key.size);
    op->store = store;
    op->call = call;
    op->ask.key = op->update.name = sh_bytes_make(op->key, key.size);
    op->ex.shard = sh_arc_shard_of_name(key);
    op->ex.deadline_ns = sh_client_deadline_ns(store);
    *op_out = op;
    return SHOAL_OK;
}

/* Begins it, or not: then the call is told, and whoever waits for it. */
static enum shoal_err op_begin(struct op *op, struct shoal_call *call, enum shoal_err err)
{
    if (!err) {
        uint32_t count =
            atomic_fetch_add_explicit(&op->store->service_ops->count, 1, memory_order_relaxed);
        if (count >= OPS_MAX) {
            atomic_fetch_sub_explicit(&op->store->service_ops->count, 1, memory_order_relaxed);
            err = SHOAL_EBUSY;
        }
    }
    if (err) {
        free(op);
        if (call) {
            call->err = err;
            sh_waiter_complete(&sh_call_state_of(call)->waiter);
        }
        return err;
    }
    atomic_fetch_add_explicit(&op->store->in_flight, 1, memory_order_relaxed);
    if (op->store->is_embedded) {
        local_run(op);
        return SHOAL_OK;
    }
    sh_client_refresh_if_due(op->store, now_of(op->store));
    op_run(op);
    return SHOAL_OK;
}

static enum shoal_err update_begin(shoal *store, const char *name, uint8_t kind,
                                   enum shoal_name_if when, shoal_cid cid, shoal_cid expected,
                                   struct shoal_call *call)
{
    struct op *op = NULL;
    enum shoal_err err = op_make(store, name, call, &op);
    if (!err) {
        op->is_update = true;
        op->update.kind = kind;
        op->update.condition = (uint8_t)when;
        op->update.cid = cid;
        op->update.expected = expected;
    }
    bool is_good = kind == SH_METADATA_NAME ? cid.v && (unsigned)when <= SHOAL_NAME_CURRENT
                                            : when != SHOAL_NAME_ABSENT;
    if (!err && (!is_good || (unsigned)when > SHOAL_NAME_CURRENT))
        err = SHOAL_EINVAL;
    if (!err && store->is_embedded && kind != SH_METADATA_SCRATCH_REMOVE)
        err = sh_embedded_level_check(store);
    return op_begin(op, call, err);
}

enum shoal_err shoal_name_set_async(shoal *store, const char *name, shoal_cid cid,
                                    enum shoal_name_if when, shoal_cid expected,
                                    struct shoal_call *call)
{
    return update_begin(store, name, SH_METADATA_NAME, when, cid, expected, call);
}

enum shoal_err shoal_name_remove_async(shoal *store, const char *name, enum shoal_name_if when,
                                       shoal_cid expected, struct shoal_call *call)
{
    return update_begin(store, name, SH_METADATA_UNNAME, when, SHOAL_CID_NONE, expected, call);
}

enum shoal_err shoal_name_get_async(shoal *store, const char *name, struct shoal_call *call)
{
    struct op *op = NULL;
    enum shoal_err err = op_make(store, name, call, &op);
    if (!err)
        op->ask.kind = SH_ASK_NAME;
    return op_begin(op, call, err);
}

enum shoal_err shoal_scratch_put_async(shoal *store, const char *key, const void *value,
                                       uint32_t size, struct shoal_call *call)
{
    struct op *op = NULL;
    enum shoal_err err = op_make(store, key, call, &op);
    if (!err && size > SHOAL_SCRATCH_MAX)
        err = SHOAL_ETOOBIG;
    else if (!err && size && !value)
        err = SHOAL_EINVAL;
    if (!err) {
        if (size)
            memcpy(op->value, value, size);
        op->is_update = true;
        op->update.kind = SH_METADATA_SCRATCH_PUT;
        op->update.value = sh_bytes_make(op->value, size);
    }
    return op_begin(op, call, err);
}

enum shoal_err shoal_scratch_get_async(shoal *store, const char *key, void *into, size_t room,
                                       struct shoal_call *call)
{
    struct op *op = NULL;
    enum shoal_err err = op_make(store, key, call, &op);
    if (!err && room && !into)
        err = SHOAL_EINVAL;
    if (!err) {
        op->ask.kind = SH_ASK_SCRATCH;
        op->into = into;
        op->room = room;
    }
    return op_begin(op, call, err);
}

enum shoal_err shoal_scratch_remove_async(shoal *store, const char *key, struct shoal_call *call)
{
    return update_begin(store, key, SH_METADATA_SCRATCH_REMOVE, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE,
                        SHOAL_CID_NONE, call);
}
