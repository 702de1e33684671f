/* Runs of slots, and packs in them: the allocator's lower halves. All of it under the allocator's
 * lock. */
#ifndef SH_STORE_SLOTS_INT_H
#define SH_STORE_SLOTS_INT_H

#include "store/alloc_int.h"

enum slot_state {
    SLOT_UNUSED,
    SLOT_FREE,      /* first or last of a free run */
    SLOT_PACK,      /* any of a pack */
    SLOT_LARGE,     /* first of a large block */
    SLOT_LARGE_END, /* last of a large block of several slots */
};

/* Takes a run of slots, whatever they have touched; for_pack: fresh ones may be of huge pages. Its
 * first record's run is set; its states are the caller's to set. 0 when the range is used up or
 * records can't be charged. */
uint32_t sh_slots_take(struct sh_alloc *alloc, uint32_t run, bool for_pack);
/* Makes a run free, merged with its neighbours. */
void sh_slots_give(struct sh_alloc *alloc, uint32_t slot, uint32_t run);

/* Charges pages, giving up those of free slots if it must. False when there is no room. */
bool sh_slots_charge(struct sh_alloc *alloc, uint64_t pages);
/* Charges and notes what some slots of a run need for the run to hold so many pages, those from
 * index `from` to the one where these end. False, with nothing changed, when there is no room. */
bool sh_slots_touch(struct sh_alloc *alloc, uint32_t slot, uint32_t from, uint64_t run_pages);
/* Hands a part of a run back to the kernel; false when that keeps it. Without the lock where the
 * run is a large block's. */
bool sh_slots_discard(struct sh_alloc *alloc, uint64_t offset, uint64_t bytes);
/* sh_alloc_trim with the lock held. */
void sh_slots_trim(struct sh_alloc *alloc);

/* Pages that a slot of a run must have touched for the run to hold so many. */
static inline uint32_t sh_slot_needs(uint64_t run_pages, uint32_t index)
{
    uint64_t before = (uint64_t)index * SH_SLOT_PAGES;
    uint64_t left = run_pages > before ? run_pages - before : 0;
    return left < SH_SLOT_PAGES ? (uint32_t)left : (uint32_t)SH_SLOT_PAGES;
}

/* A block of so many bytes (a multiple of 8, 24 to SH_PACKED_MAX) in a pack: its offset, or 0. */
uint64_t sh_pack_take(struct sh_alloc *alloc, uint32_t bytes);
void sh_pack_give(struct sh_alloc *alloc, uint64_t offset, uint32_t bytes);
/* Takes all free blocks out of the bins, for as long as their packs live. */
void sh_bins_empty(struct sh_alloc *alloc);

/* What a free block in a pack begins with. Readers that lost a race may be reading it: atomic. */
#define SH_NODE_BYTES 24u
struct sh_node {
    _Atomic uint64_t next, prev; /* offsets in its bin; 0: none */
    _Atomic uint64_t size;       /* 63..20 [the bins' epoch]  19..0 [bytes / 8] */
};
static inline struct sh_node *sh_node_at(const struct sh_alloc *alloc, uint64_t offset)
{
    return (struct sh_node *)(void *)(alloc->vm.at + offset);
}
uint32_t sh_node_bytes(const struct sh_alloc *alloc, uint64_t offset);
bool sh_node_is_linked(const struct sh_alloc *alloc, uint64_t offset);
unsigned sh_bin_of(uint32_t bytes);

#endif
