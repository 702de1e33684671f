/* Telling the witness of changes. */
#include "store/witness_int.h"

#include "base/assert.h"

_Thread_local bool sh_witness_is_paused;

void sh_store_witness_pause(bool is_paused)
{
    sh_witness_is_paused = is_paused;
}

void sh_store_witness_set(struct sh_store *store, const struct sh_store_witness *witness)
{
    store->witness = NULL;
    if (!witness)
        return;
    SH_ASSERT(witness->admit && witness->record && witness->cancel);
    SH_ASSERT(witness->pieces_begin && witness->piece && witness->pieces_end);
    store->witness_own = *witness;
    store->witness = &store->witness_own;
}

/* The chunk's ID as everybody knows it: operations may name an own chunk without the node ID. */
static shoal_cid cid_known(const struct sh_store *store, shoal_cid cid)
{
    return sh_store_is_own(store, cid)
               ? sh_store_cid(store, sh_store_nid(store), sh_store_place(store, cid))
               : cid;
}

enum shoal_err sh_witness_admit_as(struct sh_store *store, shoal_cid cid, enum sh_store_event event,
                                   uint32_t size_before, uint32_t size, bool is_zeros)
{
    const struct sh_store_witness *witness = store->witness;
    if (size > SH_STORE_PIECE_BYTES && !is_zeros)
        return SHOAL_ELIMIT;
    enum shoal_err err =
        witness->admit(witness->arg, cid_known(store, cid), event, size_before, size);
    SH_ASSERT(!err || event != SH_STORE_UNMADE);
    return err;
}

void sh_witness_record_as(struct sh_store *store, shoal_cid cid, enum sh_store_event event,
                          struct sh_bytes image, enum shoal_err err)
{
    const struct sh_store_witness *witness = store->witness;
    SH_ASSERT(image.size <= SH_STORE_PIECE_BYTES || !image.at);
    if (err)
        witness->cancel(witness->arg, cid_known(store, cid), event, (uint32_t)image.size);
    else
        witness->record(witness->arg, cid_known(store, cid), event, image);
}

enum shoal_err sh_witness_begin(struct sh_store *store, shoal_cid cid, uint32_t size_before,
                                uint32_t size, struct sh_store_telling *telling)
{
    const struct sh_store_witness *witness = store->witness;
    SH_ASSERT(!telling->has_begun && size > SH_STORE_PIECE_BYTES);
    enum shoal_err err =
        witness->pieces_begin(witness->arg, cid_known(store, cid), size_before, size);
    *telling = (struct sh_store_telling){.has_begun = err == SHOAL_OK};
    return err;
}

enum shoal_err sh_witness_piece(struct sh_store *store, shoal_cid cid, const uint8_t *image,
                                uint32_t size, struct sh_store_telling *telling)
{
    const struct sh_store_witness *witness = store->witness;
    SH_ASSERT(telling->has_begun && telling->told < size);
    uint32_t left = size - telling->told;
    uint32_t some = left < SH_STORE_STEP_BYTES ? left : SH_STORE_STEP_BYTES;
    enum shoal_err err = witness->piece(witness->arg, cid_known(store, cid), telling->told,
                                        sh_bytes_make(image + telling->told, some), some == left);
    if (!err)
        telling->told += some;
    return err;
}

enum shoal_err sh_witness_tell(struct sh_store *store, shoal_cid cid, const uint8_t *image,
                               uint32_t size, struct sh_store_telling *telling)
{
    enum shoal_err err = telling->has_begun ? sh_witness_piece(store, cid, image, size, telling)
                                            : sh_witness_begin(store, cid, 0, size, telling);
    return !err && telling->told < size ? SHOAL_EAGAIN : err;
}

void sh_witness_end(struct sh_store *store, shoal_cid cid, struct sh_store_telling *telling,
                    uint32_t size_before, bool is_made)
{
    const struct sh_store_witness *witness = store->witness;
    if (!telling->has_begun)
        return;
    *telling = (struct sh_store_telling){0};
    witness->pieces_end(witness->arg, cid_known(store, cid), size_before, is_made);
}

enum shoal_err sh_store_retell(struct sh_store *store, shoal_cid cid)
{
    struct sh_hold hold;
    enum shoal_err err = sh_store_hold(store, cid, &hold);
    if (err)
        return err;
    err = sh_witness_write(store, cid, hold.spot.size);
    if (!err)
        sh_witness_written(store, cid, &hold.spot);
    sh_store_let_go(&hold, false);
    return err;
}
