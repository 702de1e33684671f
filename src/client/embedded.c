/* A store inside this process: every call runs at once, in the calling thread. */
#include "client/client_int.h"

enum shoal_err sh_embedded_lid(shoal_cid cid, sh_lid *lid_out)
{
    if (shoal_cid_creator(cid).v != SH_EMBEDDED_NID)
        return SHOAL_ENOCHUNK;
    *lid_out = (sh_lid){shoal_cid_local(cid)};
    return SHOAL_OK;
}

/* Says, for people, what a size error or a full store is about, as a node's answer would. */
static void explain(struct shoal *store, sh_lid lid, enum shoal_err err)
{
    uint32_t size;
    struct sh_store_status status;
    if (err == SHOAL_ESIZE && sh_store_size(store->store, lid, &size) == SHOAL_OK) {
        sh_client_detail_set("the chunk is %u bytes", size);
    } else if (err == SHOAL_ETOOBIG) {
        sh_client_detail_set("a chunk here is at most %u bytes", store->chunk_bytes_max);
    } else if (err == SHOAL_EFULL) {
        sh_store_status_get(store->store, &status);
        sh_client_detail_set("the store uses %llu of %llu bytes",
                             (unsigned long long)status.used_bytes,
                             (unsigned long long)status.bytes_max);
    }
}

enum shoal_err sh_embedded_create(struct shoal *store, const uint32_t *sizes, uint32_t size,
                                  size_t count, sh_lid *lids)
{
    enum shoal_err err = sizes ? sh_store_new(store->store, sizes, count, lids)
                               : sh_store_new_many(store->store, size, count, lids);
    explain(store, (sh_lid){0}, err);
    return err;
}

static enum shoal_err create(struct shoal *store, struct shoal_call *call)
{
    struct sh_call_state *state = sh_call_state_of(call);
    sh_lid lid;
    if (state->where.v != 0 && state->where.v != SH_EMBEDDED_NID)
        return SHOAL_ENONODE;
    enum shoal_err err = sh_embedded_create(store, NULL, (uint32_t)state->size, 1, &lid);
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
    if (state->kind == SH_CALL_PUT) {
        err = sh_store_put(store->store, lid, sh_bytes_make(state->from, state->size));
        explain(store, lid, err);
        return err;
    }
    return sh_embedded_remove(store, lid);
}
