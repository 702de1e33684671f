/* Free local IDs, handed out smallest first, so that IDs form long ranges again after removals.
 *
 * A free ID below the table's limit is a set bit in a bitmap; six more levels tell which words of
 * the level below are not zero, so that the smallest free ID is found in at most seven steps, and
 * giving one back never needs memory: the bitmap was charged when the table grew, an eighth of a
 * byte for each ID. Whenever the largest IDs are free the table's limit comes down over them, a
 * piece at a time.
 *
 *   level 6:  [1]                        one word
 *   level 1:  [01100...]                 a bit for each word of level 0
 *   level 0:  [0000] [0110] [1000] ...   a bit for each ID below the limit
 */
#ifndef SH_STORE_IDPOOL_INT_H
#define SH_STORE_IDPOOL_INT_H

#include <stddef.h>

#include "base/lock.h"
#include "store/idtable_int.h"
#include "store/store.h"

#define SH_IDPOOL_LEVELS 7 /* 64^7 = 2^42 IDs */

/* Chunks that are made together and may have to be taken back. Others may find and remove some of
 * them before: their IDs must not be handed out again meanwhile, or taking back would hit chunks of
 * somebody else. The pool marks them in the batch instead. */
struct sh_idbatch {
    struct sh_idbatch *next;
    sh_lid *lids; /* in rising order; bits 62..0: the ID; bit 63: it was given back */
    size_t count;
};
#define SH_IDBATCH_GONE (UINT64_C(1) << 63)

struct sh_idpool {
    struct sh_lock lock; /* STORE_IDS: guards all below and the table's growth */
    struct sh_idtable *table;
    struct sh_budget *budget;
    struct sh_vm vm;
    uint64_t *levels[SH_IDPOOL_LEVELS];
    struct sh_idbatch *batches; /* at work */
};

/* ENOMEM, EFULL. Keeps table and budget until destroy; ID 0 is never handed out. */
SHOAL_NODISCARD enum shoal_err sh_idpool_init(struct sh_idpool *pool, struct sh_idtable *table,
                                              struct sh_budget *budget);
void sh_idpool_destroy(struct sh_idpool *pool);

/* Hands out the count smallest free IDs in rising order; many a piece at a time, so that nobody
 * waits long for the lock. EFULL hands out none. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_idpool_take(struct sh_idpool *pool, size_t count,
                                              sh_lid *lids_out);

/* Hands out count IDs that follow each other, above all that are in use. */
SHOAL_NODISCARD enum shoal_err sh_idpool_take_run(struct sh_idpool *pool, size_t count,
                                                  sh_lid *lids_out);
/* Hands out a given ID, not 0. EEXIST when it is in use, EFULL. May use the reserve. */
SHOAL_NODISCARD enum shoal_err sh_idpool_claim(struct sh_idpool *pool, uint64_t lid);

/* Takes IDs back, whose codes must be absent; those that are 0 are skipped. A piece at a time, as
 * above. Any thread. */
void sh_idpool_give(struct sh_idpool *pool, const sh_lid *lids, size_t count);

/* Between these two calls, IDs of the batch that are given back are marked there. Of what is marked
 * in the end the caller gives the IDs back. Keeps batch and its lids; the pool may write to those
 * whose chunks exist. Any thread. */
void sh_idpool_batch_begin(struct sh_idpool *pool, struct sh_idbatch *batch);
void sh_idpool_batch_end(struct sh_idpool *pool, struct sh_idbatch *batch);

/* Gives back a part of what free IDs at the table's end take up, which giving does too. False: no
 * more of it can go. Any thread. */
bool sh_idpool_trim(struct sh_idpool *pool);

/* Bytes charged for the bitmap and the table. Any thread. */
uint64_t sh_idpool_bytes(struct sh_idpool *pool);

#endif
