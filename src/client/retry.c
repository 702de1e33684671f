/* What may be tried again, when, and after a look at a newer view.
 *
 * Calls wait in two queues, one for each delay, so that both are in order of time: short for those
 * that only lack room, long for those whose node could not be reached or did not have the chunk. */
#include "base/log.h"
#include "client/client_int.h"

#define RETRIES_AT_ONCE 256

bool sh_call_was_not_done(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EUNREACHABLE: /* never sent */
    case SHOAL_ENOTOWNER:    /* refused before anything was done, as in the cases below */
    case SHOAL_EFENCED:
    case SHOAL_EBUSY:
    case SHOAL_EAGAIN:
    case SHOAL_ELIMIT:
    case SHOAL_ENONODE:
        return true;
    default:
        return false;
    }
}

bool sh_call_may_retry(enum sh_call_kind kind, enum shoal_err err)
{
    return sh_call_was_not_done(err) || (err == SHOAL_ECONNLOST && !sh_call_is_numbered(kind));
}

bool sh_client_awaits_node(struct shoal *store, enum shoal_err err, shoal_nid asked,
                           shoal_nid creator)
{
    return err == SHOAL_EFAILED && sh_directory_may_return(store->directory, asked, creator, true);
}

bool sh_client_awaits_maker(struct shoal *store, enum shoal_err err, shoal_nid nid)
{
    return err == SHOAL_EFAILED && sh_directory_may_return(store->directory, nid, nid, false);
}

/* A lock may be waited for without end, but its node for no longer than any other call waits. */
static bool lock_has_time(struct sh_call_state *state)
{
    uint64_t now = sh_now(&state->store->env.clock);
    if (!state->failed_ns)
        state->failed_ns = now;
    return now - state->failed_ns < state->store->timeout_ns;
}

bool sh_call_awaits_node(struct sh_call_state *state, enum shoal_err err)
{
    const struct sh_ask *ask = &state->ask;
    struct shoal *store = state->store;
    if (err != SHOAL_EFAILED || (sh_call_is_lock(ask->kind) && !lock_has_time(state)))
        return false;
    /* A create that was not sent, or made nothing, waits for the node on which the program wants the chunk. A create that may have made a chunk waits for the node that it was sent to. */
    if (ask->kind == SH_CALL_CREATE && !state->is_unclear)
        return ask->where.v && sh_client_awaits_maker(store, err, ask->where);
    if (ask->kind == SH_CALL_CREATE || state->is_unknown)
        return sh_client_awaits_node(store, err, state->number_nid, state->number_nid);
    return sh_client_awaits_node(store, err, state->number_nid,
                                 shoal_cid_creator(sh_call_of(state)->cid));
}

bool sh_client_closing(struct shoal *store)
{
    /* acquire: pairs with the release in shoal_close */
    return atomic_load_explicit(&store->is_closing, memory_order_acquire);
}

/* --- Views --------------------------------------------------------------------------------- */

static void on_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct shoal *store = op->arg;
    (void)detail;
    atomic_fetch_add_explicit(&store->refreshes, 1, memory_order_relaxed);
    /* release: refresh_op is free again; pairs with the exchange below */
    atomic_store_explicit(&store->is_refreshing, false, memory_order_release);
    if (err != SHOAL_OK)
        SH_DEBUG("client", "the view could not be refreshed", SH_ERR(err));
}

void sh_client_refresh_begin(struct shoal *store)
{
    /* acq_rel: one refresh at a time owns refresh_op */
    if (sh_client_closing(store) ||
        atomic_exchange_explicit(&store->is_refreshing, true, memory_order_acq_rel))
        return;
    store->refresh_op = (struct sh_directory_op){.done = on_refreshed, .arg = store};
    sh_directory_refresh(store->directory, &store->refresh_op);
}

void sh_client_refresh_if_due(struct shoal *store, uint64_t now_ns)
{
    /* relaxed: only says who asks */
    uint64_t due = atomic_load_explicit(&store->refresh_due_ns, memory_order_relaxed);
    if (now_ns >= due && atomic_compare_exchange_strong_explicit(
                             &store->refresh_due_ns, &due, now_ns + SH_VIEW_AGE_NS,
                             memory_order_relaxed, memory_order_relaxed))
        sh_client_refresh_begin(store);
}

/* --- Queues -------------------------------------------------------------------------------- */

/* When the first call of either queue is due. */
static void due_update(struct shoal *store)
{
    sh_spin_assert_held(&store->retry_lock);
    uint64_t due = SH_NEVER;
    for (int i = 0; i < SH_RETRY_QUEUES; i++) {
        const struct sh_call_state *first = store->retries[i].first;
        if (first && first->retry_ns < due)
            due = first->retry_ns;
    }
    /* release: pairs with the acquire in retry_run; the queues themselves are under the lock */
    atomic_store_explicit(&store->retry_due_ns, due, memory_order_release);
}

void sh_call_retry_later(struct sh_call_state *state, enum shoal_err err)
{
    struct shoal *store = state->store;
    uint64_t now = sh_now(&store->env.clock);
    bool lacks_room = err == SHOAL_EAGAIN || err == SHOAL_ELIMIT;
    uint64_t after = lacks_room ? SH_ROOM_PAUSE_NS : SH_ROUND_PAUSE_NS;
    if (sh_client_closing(store)) {
        sh_call_complete(state, SHOAL_ESTOPPED);
        return;
    }
    bool may_retry = sh_call_may_retry(state->ask.kind, err) || sh_call_awaits_node(state, err);
    if (err == SHOAL_ECONNLOST && sh_call_may_repeat(state, now))
        may_retry = state->is_unclear = true;
    if (!may_retry || now + after >= state->deadline_ns) {
        sh_call_complete(state, lacks_room ? SHOAL_ETIMEOUT : err);
        return;
    }
    if (!lacks_room) {
        state->is_retry = true;
        sh_client_refresh_begin(store);
    }
    struct sh_retry_queue *queue = &store->retries[lacks_room];
    state->next = NULL;
    state->retry_ns = now + after;
    sh_spin_take(&store->retry_lock);
    if (queue->last)
        queue->last->next = state;
    else
        queue->first = state;
    queue->last = state;
    due_update(store);
    sh_spin_release(&store->retry_lock);
    sh_crew_wake(store->crew, 0);
}

/* Takes the first call that is due, or NULL. */
static struct sh_call_state *retry_take(struct shoal *store, uint64_t now_ns)
{
    struct sh_call_state *found = NULL;
    sh_spin_take(&store->retry_lock);
    for (int i = 0; i < SH_RETRY_QUEUES && !found; i++) {
        struct sh_retry_queue *queue = &store->retries[i];
        if (!queue->first || queue->first->retry_ns > now_ns)
            continue;
        found = queue->first;
        queue->first = found->next;
        if (!queue->first)
            queue->last = NULL;
    }
    due_update(store);
    sh_spin_release(&store->retry_lock);
    return found;
}

static unsigned retry_run(void *arg)
{
    struct shoal *store = arg;
    uint64_t due = atomic_load_explicit(&store->retry_due_ns, memory_order_acquire);
    if (due == SH_NEVER)
        return 0;
    uint64_t now = sh_now(&store->env.clock);
    struct sh_call_state *state;
    unsigned count = 0;
    while (due <= now && count < RETRIES_AT_ONCE && (state = retry_take(store, now))) {
        sh_call_attempt(state);
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
    struct sh_call_state *state;
    while ((state = retry_take(store, SH_NEVER)))
        sh_call_complete(state, SHOAL_ESTOPPED);
}
