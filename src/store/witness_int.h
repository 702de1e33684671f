/* What the store's operations tell the witness (store.h). Without one, each of these is a branch.
 *
 * All but sh_witness_tell and a telling's early end are called with the chunk held, by its write bit or
 * by its group's layout bit. */
#ifndef SH_STORE_WITNESS_INT_H
#define SH_STORE_WITNESS_INT_H

#include "store/store_int.h"

static inline bool sh_store_is_witnessed(const struct sh_store *store)
{
    return __builtin_expect(store->witness != NULL, false);
}

/* The same where there is a witness. */
SHOAL_NODISCARD enum shoal_err sh_witness_admit_as(struct sh_store *store, shoal_cid cid,
                                                   enum sh_store_event event, uint32_t size_before,
                                                   uint32_t size, bool is_zeros);
void sh_witness_record_as(struct sh_store *store, shoal_cid cid, enum sh_store_event event,
                          struct sh_bytes image, enum shoal_err err);

/* Asks for room. ELIMIT: the image must be told in pieces; all zeros never are. */
SHOAL_NODISCARD static inline enum shoal_err sh_witness_admit(struct sh_store *store, shoal_cid cid,
                                                              enum sh_store_event event,
                                                              uint32_t size_before, uint32_t size,
                                                              bool is_zeros)
{
    return sh_store_is_witnessed(store)
               ? sh_witness_admit_as(store, cid, event, size_before, size, is_zeros)
               : SHOAL_OK;
}

/* It has happened, or has failed with that. */
static inline void sh_witness_record(struct sh_store *store, shoal_cid cid,
                                     enum sh_store_event event, struct sh_bytes image,
                                     enum shoal_err err)
{
    if (sh_store_is_witnessed(store))
        sh_witness_record_as(store, cid, event, image, err);
}

/* Asks for room to write a chunk of that size where it is. */
SHOAL_NODISCARD static inline enum shoal_err sh_witness_write(struct sh_store *store, shoal_cid cid,
                                                              uint32_t size)
{
    return sh_witness_admit(store, cid, SH_STORE_WRITTEN, size, size, false);
}

static inline void sh_witness_written(struct sh_store *store, shoal_cid cid,
                                      const struct sh_spot *spot)
{
    sh_witness_record(store, cid, SH_STORE_WRITTEN, sh_bytes_make(spot->at, spot->size), SHOAL_OK);
}

/* --- In pieces, where there is a witness --------------------------------------------------- */

/* EAGAIN. */
SHOAL_NODISCARD enum shoal_err sh_witness_begin(struct sh_store *store, shoal_cid cid,
                                                uint32_t size_before, uint32_t size,
                                                struct sh_store_telling *telling);
/* Tells the next piece of an image of `size` bytes. */
SHOAL_NODISCARD enum shoal_err sh_witness_piece(struct sh_store *store, shoal_cid cid,
                                                const uint8_t *image, uint32_t size,
                                                struct sh_store_telling *telling);
/* Begins, of a chunk that is to be made, or tells the next piece. EAGAIN: there is more to tell. */
SHOAL_NODISCARD enum shoal_err sh_witness_tell(struct sh_store *store, shoal_cid cid,
                                               const uint8_t *image, uint32_t size,
                                               struct sh_store_telling *telling);
/* Of no effect where it has not begun, or has ended. */
void sh_witness_end(struct sh_store *store, shoal_cid cid, struct sh_store_telling *telling,
                    uint32_t size_before, bool is_made);

#endif
