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
    if (err == SHOAL_ESIZE && sh_store_size(store->store, lid, &size) == SHOAL_OK) {
        sh_client_detail_set("the chunk is %u bytes", size);
    } else if (err == SHOAL_ETOOBIG) {
        sh_client_detail_set("a chunk here is at most %u bytes", store->chunk_bytes_max);
    } else if (err == SHOAL_EFULL) {
        char text[160];
        sh_store_shortage_text(store->store, text, sizeof text);
        sh_client_detail_set("%s", text);
    }
}

enum shoal_err sh_embedded_create_as(struct shoal *store, const struct sh_store_wish *wish,
                                     shoal_cid *cids_out)
{
    /* The store has no node ID of its own, so what it gives out are local IDs. */
    enum shoal_err err = sh_store_new_as(store->store, wish, cids_out, NULL);
    explain(store, (sh_lid){0}, err);
    for (size_t i = 0; err == SHOAL_OK && i < wish->count; i++)
        cids_out[i] = shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, cids_out[i].v);
    return err;
}

static enum shoal_err create(struct shoal *store, struct shoal_call *call)
{
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    struct sh_store_wish wish = {.size = (uint32_t)ask->size, .count = 1};
    if (ask->where.v != 0 && ask->where.v != SH_EMBEDDED_NID)
        return SHOAL_ENONODE;
    shoal_cid cid;
    enum shoal_err err = sh_embedded_create_as(store, &wish, &cid);
    if (err == SHOAL_OK)
        call->cid = cid;
    return err;
}

static enum shoal_err part_get(struct shoal *store, struct shoal_call *call, sh_lid lid)
{
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    uint32_t size = ask->size > UINT32_MAX ? UINT32_MAX : (uint32_t)ask->size;
    enum shoal_err err = sh_store_get_part(store->store, lid, ask->offset, ask->into, size);
    if (err == SHOAL_OK)
        call->size = size;
    else if (err == SHOAL_ESIZE)
        err = sh_store_size(store->store, lid, &call->size) == SHOAL_OK ? err : SHOAL_ENOCHUNK;
    return err;
}

/* What changes a chunk that is there, or reserved. */
static enum shoal_err change(struct shoal *self, struct shoal_call *call, sh_lid lid)
{
    struct sh_store *store = self->store;
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    struct sh_bytes data = sh_bytes_make(ask->from, ask->size);
    switch (ask->kind) {
    case SH_CALL_PUT:
        return sh_store_put(store, lid, data);
    case SH_CALL_PUT_PART:
        return sh_store_put_part(store, lid, ask->offset, data);
    case SH_CALL_RESIZE:
        return sh_store_resize(store, lid, (uint32_t)ask->size);
    case SH_CALL_PUT_IF:
        return sh_store_put_if(store, lid, sh_bytes_make(ask->expected, ask->expected_size), data);
    case SH_CALL_PUT_HASH:
        return sh_store_put_if_hash(store, lid, ask->value, data);
    case SH_CALL_ADD:
        return sh_store_add(store, lid, ask->offset, ask->width, ask->value, &call->value);
    case SH_CALL_FILL:
        return sh_store_fill(store, lid, data);
    case SH_CALL_FREE:
        return sh_store_unreserve(store, lid);
    default:
        SH_ASSERT(ask->kind == SH_CALL_REMOVE);
        return sh_embedded_remove(self, lid);
    }
}

enum shoal_err sh_embedded_run(struct shoal *store, struct shoal_call *call)
{
    const struct sh_ask *ask = &sh_call_state_of(call)->ask;
    if (ask->kind == SH_CALL_CREATE)
        return create(store, call);
    sh_lid lid;
    enum shoal_err err = sh_embedded_lid(call->cid, &lid);
    if (err != SHOAL_OK)
        return err;
    if (ask->kind == SH_CALL_GET)
        return sh_store_get(store->store, lid, ask->into, ask->size, &call->size);
    if (ask->kind == SH_CALL_GET_PART)
        return part_get(store, call, lid);
    err = change(store, call, lid);
    explain(store, lid, err);
    return err;
}
