/* What the store's operations tell the witness (store.h). Without one, each of these is a branch.
 *
 * All but sh_witness_tell and a telling's early end are called with the chunk held, by its write bit or
 * by its group's layout bit. */
#ifndef SH_STORE_WITNESS_INT_H
#define SH_STORE_WITNESS_INT_H

#include "store/store_int.h"

/* Whether the calling thread changes what the witness knows. */
extern _Thread_local bool sh_witness_is_paused;

static inline bool sh_store_is_witnessed(const struct sh_store *store)
{
    return __builtin_expect(store->witness != NULL, false) && !sh_witness_is_paused;
}

/* The same where there is a witness. */
SHOAL_NODISCARD enum shoal_err sh_witness_admit_as(struct sh_store *store, shoal_cid cid,
                                                   enum sh_store_event event, uint32_t size_before,
                                                   uint32_t size, bool is_zeros);
void sh_witness_record_as(struct sh_store *store, shoal_cid cid, enum sh_store_event event,
                          struct sh_bytes image, enum shoal_err err);

/* A cut is told of each change, too: enter is followed by one leave. The two below do it; who tells a witness in pieces calls these. */
static inline void sh_cut_enter(struct sh_store *store, shoal_cid cid, bool is_made)
{
    if (sh_cut_was_begun(&store->cut))
        sh_cut_enter_as(store, cid, is_made);
}
static inline void sh_cut_leave(struct sh_store *store)
{
    if (sh_cut_was_begun(&store->cut))
        sh_cut_leave_as(store);
}

/* Asks for room. ELIMIT: the image must be told in pieces; all zeros never are. */
SHOAL_NODISCARD static inline enum shoal_err sh_witness_admit(struct sh_store *store, shoal_cid cid,
                                                              enum sh_store_event event,
                                                              uint32_t size_before, uint32_t size,
                                                              bool is_zeros)
{
    sh_cut_enter(store, cid, event == SH_STORE_MADE);
    enum shoal_err err = sh_store_is_witnessed(store)
                             ? sh_witness_admit_as(store, cid, event, size_before, size, is_zeros)
                             : SHOAL_OK;
    if (err)
        sh_cut_leave(store);
    return err;
}

/* It has happened, or has failed with that. */
static inline void sh_witness_record(struct sh_store *store, shoal_cid cid,
                                     enum sh_store_event event, struct sh_bytes image,
                                     enum shoal_err err)
{
    if (sh_store_is_witnessed(store))
        sh_witness_record_as(store, cid, event, image, err);
    sh_cut_leave(store);
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
