/* Completing calls. A completion that begins another call, which completes at once, must not nest
 * without end: completions of one thread run one after the other, the first one on the stack runs
 * those that come meanwhile. */
#include "client/client_int.h"

static _Thread_local bool is_completing;
static _Thread_local struct sh_call_state *first, *last;

bool sh_completing(void)
{
    return is_completing;
}

static void run(struct sh_call_state *state)
{
    struct shoal_call *call = sh_call_of(state);
    struct shoal *store = state->store;
    /* relaxed: counts; the call's results are published by the waiter or by the callback itself */
    atomic_fetch_add_explicit(&store->completions, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&store->in_flight, 1, memory_order_release);
    if (call->done)
        call->done(call);
    else
        sh_waiter_complete(&state->waiter);
}

void sh_call_complete(struct sh_call_state *state, enum shoal_err err)
{
    /* That the last attempt did nothing says nothing about the one before it. */
    /* EFAILED: a failed node may be back, with what it had done. */
    if (state->is_unclear && (sh_call_was_not_done(err) || err == SHOAL_EFAILED))
        err = SHOAL_ECONNLOST;
    sh_call_number_finish(state);
    sh_call_of(state)->err = err;
    state->next = NULL;
    if (is_completing) {
        if (last)
            last->next = state;
        else
            first = state;
        last = state;
        return;
    }
    is_completing = true;
    run(state);
    while (first) {
        struct sh_call_state *next = first;
        first = next->next;
        if (!first)
            last = NULL;
        run(next);
    }
    is_completing = false;
}
