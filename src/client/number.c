/* Creates, puts and removes carry a number (msg/once.h), so that one whose answer was lost with its
 * connection can be sent again and is not done twice. */
#include <stdlib.h>

#include "client/client_int.h"

static enum shoal_err numbers_make(struct shoal *store, shoal_nid nid)
{
    struct sh_once_numbers *made = calloc(1, sizeof *made);
    if (!made)
        return SHOAL_ENOMEM;
    sh_spin_take(&store->retry_lock);
    if (!store->numbers[nid.v]) {
        store->numbers[nid.v] = made;
        made = NULL;
    }
    sh_spin_release(&store->retry_lock);
    free(made);
    return SHOAL_OK;
}

enum shoal_err sh_call_number(struct sh_call_state *state, shoal_nid nid, struct sh_once_id *id_out)
{
    struct shoal *store = state->store;
    uint32_t life = sh_directory_life(store->directory, nid);
    if (state->number != 0 && (state->number_nid.v != nid.v || state->number_life != life))
        sh_call_number_finish(state);
    enum shoal_err err = SHOAL_OK;
    bool is_new = state->number == 0;
    sh_spin_take(&store->retry_lock);
    bool is_made = store->numbers[nid.v] != NULL;
    sh_spin_release(&store->retry_lock);
    if (!is_made)
        err = numbers_make(store, nid);
    if (err != SHOAL_OK)
        return err;
    sh_spin_take(&store->retry_lock);
    struct sh_once_numbers *numbers = store->numbers[nid.v];
    if (is_new)
        state->number = sh_once_number(numbers);
    *id_out = (struct sh_once_id){store->once_client, state->number, numbers->finished};
    sh_spin_release(&store->retry_lock);
    if (state->number == 0)
        return SHOAL_ELIMIT;
    state->number_nid = nid;
    state->number_life = life;
    if (is_new)
        state->first_ns = sh_now(&store->env.clock);
    return SHOAL_OK;
}

void sh_call_number_finish(struct sh_call_state *state)
{
    struct shoal *store = state->store;
    if (state->number == 0)
        return;
    sh_spin_take(&store->retry_lock);
    sh_once_finish(store->numbers[state->number_nid.v], state->number);
    sh_spin_release(&store->retry_lock);
    state->number = 0;
}

bool sh_call_may_repeat(const struct sh_call_state *state, uint64_t now_ns)
{
    return state->number != 0 && now_ns - state->first_ns < SH_ONCE_REPEAT_NS;
}

void sh_client_numbers_free(struct shoal *store)
{
    for (uint32_t nid = 0; store->numbers && nid <= UINT16_MAX; nid++)
        free(store->numbers[nid]);
    free(store->numbers);
}
