/* Free local IDs, handed out smallest first, so that IDs form long ranges again after removals.
 *
 * A free ID below the table's limit is a set bit in a bitmap; six more levels tell which words of
 * the level below are not zero, so that the smallest free ID is found in at most seven steps, and
 * giving one back never needs memory: the bitmaps were charged when the table grew, a quarter of a
 * byte for each ID. Whenever the largest IDs are free the table's limit comes down over them, a
 * piece at a time.
 *
 *   level 6:  [1]                        one word
 *   level 1:  [01100...]                 a bit for each word of level 0
 *   level 0:  [0000] [0110] [1000] ...   a bit for each ID below the limit
 *
 * Some chunks may have to be taken back by ID: those of a batch that fails in the middle, of a load
 * that is undone, of a graph that is dropped. Clients may have found and removed some of them
 * before; if the ID of such a chunk were handed out again, taking back would hit a chunk of
 * somebody else. So whoever made the chunks retains their IDs. A second bitmap has a bit for each
 * retained ID. Giving back a retained ID clears that bit, and nothing else: the ID stays out of
 * level 0. When the maker ends that, for exactly the IDs that it had retained, a bit that is still
 * set is cleared (the ID is in use), and an ID whose bit is clear was given back, and is free from
 * then on.
 */
#ifndef SH_STORE_IDPOOL_INT_H
#define SH_STORE_IDPOOL_INT_H

#include <stddef.h>

#include "base/lock.h"
#include "store/idtable_int.h"
#include "store/store.h"

#define SH_IDPOOL_LEVELS 7 /* 64^7 = 2^42 IDs */

struct sh_idpool {
    struct sh_lock lock; /* STORE_IDS: guards all below and the table's growth */
    struct sh_idtable *table;
    struct sh_budget *budget;
    struct sh_vm vm;
    uint64_t *levels[SH_IDPOOL_LEVELS];
    uint64_t *retained;      /* as level 0; set only for IDs that are handed out */
    _Atomic uint64_t end;    /* IDs from here on may not be handed out yet */
    _Atomic uint64_t wanted; /* IDs below were handed out, or refused for that reason */
};

/* ENOMEM, EFULL. Keeps table and budget until destroy; ID 0 is never handed out. */
SHOAL_NODISCARD enum shoal_err sh_idpool_init(struct sh_idpool *pool, struct sh_idtable *table,
                                              struct sh_budget *budget);
void sh_idpool_destroy(struct sh_idpool *pool);

/* IDs from `end` on may not be handed out yet: EBUSY from the functions below. At first all may. Any
 * thread. */
void sh_idpool_end_set(struct sh_idpool *pool, uint64_t end);
/* IDs below were handed out, or refused for that reason. Any thread. */
uint64_t sh_idpool_wanted(const struct sh_idpool *pool);

/* Hands out the count smallest free IDs in rising order; many a piece at a time, so that nobody
 * waits long for the lock. EFULL hands out none. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_idpool_take(struct sh_idpool *pool, size_t count,
                                              sh_lid *lids_out);

/* Hands out count IDs that follow each other, above all that are in use. */
SHOAL_NODISCARD enum shoal_err sh_idpool_take_run(struct sh_idpool *pool, size_t count,
                                                  sh_lid *lids_out);
/* Hands out a given ID, not 0. EEXIST when it is in use, EFULL. May use the reserve. */
SHOAL_NODISCARD enum shoal_err sh_idpool_claim(struct sh_idpool *pool, uint64_t lid);
/* The same of several of the IDs 64 * word to 64 * word + 63, one for each bit of the mask, under one hold
 * of the lock: *claimed_out are those that were not in use. EFULL hands out none. */
SHOAL_NODISCARD enum shoal_err sh_idpool_claim_some(struct sh_idpool *pool, uint64_t word,
                                                    uint64_t mask, uint64_t *claimed_out);

/* Takes IDs back, whose codes must be absent; those that are 0 are skipped. A piece at a time, as
 * above. Any thread. */
void sh_idpool_give(struct sh_idpool *pool, const sh_lid *lids, size_t count);

/* The caller, to whom these IDs were handed out, retains them, before chunks of theirs exist: from
 * now on those that are given back are handed out to nobody. The caller remembers them. A piece at
 * a time, as above. Any thread. */
void sh_idpool_retain(struct sh_idpool *pool, const sh_lid *lids, size_t count);
/* Ends that, for IDs that the caller has retained: those that were given back are free. Any thread.
 */
void sh_idpool_unretain(struct sh_idpool *pool, const sh_lid *lids, size_t count);

/* Gives back a part of what free IDs at the table's end take up, which giving does too. False: no
 * more of it can go. Any thread. */
bool sh_idpool_trim(struct sh_idpool *pool);

/* Bytes charged for the bitmaps and the table. Any thread. */
uint64_t sh_idpool_bytes(struct sh_idpool *pool);

#endif
