/* A store inside this process: every call runs at once, in the calling thread. */
#include "client/client_int.h"

enum shoal_err sh_embedded_lid(shoal_cid cid, sh_lid *lid_out)
{
    if (shoal_cid_creator(cid).v != SH_EMBEDDED_NID)
        return SHOAL_ENOCHUNK;
    *lid_out = (sh_lid){shoal_cid_local(cid)};
    return SHOAL_OK;
}

static enum shoal_err create(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    sh_lid lid;
    if (state->where.v != 0 && state->where.v != SH_EMBEDDED_NID)
        return SHOAL_ENONODE;
    enum shoal_err err = sh_store_new_many(store->store, (uint32_t)state->size, 1, &lid);
    if (err == SHOAL_OK)
        call->cid = shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, lid.v);
    return err;
}

enum shoal_err sh_embedded_run(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    if (state->kind == SH_CALL_CREATE)
        return create(store, call);
    sh_lid lid;
    enum shoal_err err = sh_embedded_lid(call->cid, &lid);
    if (err != SHOAL_OK)
        return err;
    if (state->kind == SH_CALL_GET)
        return sh_store_get(store->store, lid, state->into, state->size, &call->size);
    if (state->kind == SH_CALL_PUT)
        return sh_store_put(store->store, lid, sh_bytes_make(state->from, state->size));
    return sh_store_remove(store->store, lid);
}
