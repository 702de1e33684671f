/* Runs of slots: the allocator's lower half. All of it under the allocator's lock. */
#ifndef SH_STORE_SLOTS_INT_H
#define SH_STORE_SLOTS_INT_H

#include "store/alloc_int.h"

enum slot_state {
    SLOT_UNUSED,
    SLOT_FREE,      /* first or last of a free run */
    SLOT_SPAN,      /* cut into blocks */
    SLOT_LARGE,     /* first of a large chunk */
    SLOT_LARGE_END, /* last of a large chunk of several slots */
};

/* Takes a run of slots, whatever they have touched. Its first record's run is set; its states are
 * the caller's to set. 0 when the range is used up or records can't be charged. */
uint32_t sh_slots_take(struct sh_alloc *alloc, uint32_t run);
/* Makes a run free, merged with its neighbours. */
void sh_slots_give(struct sh_alloc *alloc, uint32_t slot, uint32_t run);

/* Charges pages, giving up those of free slots if it must. False when there is no room. */
bool sh_slots_charge(struct sh_alloc *alloc, uint64_t pages);
/* sh_alloc_trim with the lock held. */
void sh_slots_trim(struct sh_alloc *alloc);

/* Pages that a slot of a run must have touched for the run to hold so many. */
static inline uint32_t sh_slot_needs(uint64_t run_pages, uint32_t index)
{
    uint64_t before = (uint64_t)index * SH_SLOT_PAGES;
    uint64_t left = run_pages > before ? run_pages - before : 0;
    return left < SH_SLOT_PAGES ? (uint32_t)left : (uint32_t)SH_SLOT_PAGES;
}

/* Bytes of a block of the class. */
uint32_t sh_alloc_class_bytes(unsigned class);

/* List links that rooms and bins share. */
void sh_slots_link(struct sh_alloc *alloc, uint32_t *head, uint32_t slot);
void sh_slots_unlink(struct sh_alloc *alloc, uint32_t *head, uint32_t slot);

#endif
