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
 * first record's run is set; its states are the caller's to set. 0 when the range is used up,
 * records can't be charged, or first some free slots must be trimmed. */
uint32_t sh_slots_take(struct sh_alloc *alloc, uint32_t run, bool for_pack);
/* Makes a run free, merged with its neighbours. */
void sh_slots_give(struct sh_alloc *alloc, uint32_t slot, uint32_t run);

/* Whether huge pages should be made ready, and there is room for them. */
bool sh_slots_are_few(const struct sh_alloc *alloc);
/* Makes a huge page ready, if they are few; false: it was not. Lets go of the lock meanwhile. */
bool sh_slots_ready(struct sh_alloc *alloc);

/* Charges pages. False when there is no room; short_pages then says how much is missing. */
bool sh_slots_charge(struct sh_alloc *alloc, uint64_t pages);
/* True when the call at work failed for want of pages that free slots have. */
static inline bool sh_slots_must_trim(const struct sh_alloc *alloc)
{
    return alloc->short_pages > 0 && !alloc->is_last && alloc->idle_pages + alloc->held_pages > 0;
}
/* Charges and notes what some slots of a run need for the run to hold so many pages, those from
 * index `from` to the one where these end. False, with nothing changed, when there is no room. */
bool sh_slots_touch(struct sh_alloc *alloc, uint32_t slot, uint32_t from, uint64_t run_pages);
/* Makes pages small that are about to be handed to the kernel, which could else make the whole huge
 * page resident again, unasked and uncharged. False: it would cost too many mappings. */
bool sh_slots_small(struct sh_alloc *alloc, uint32_t slot, uint32_t run);
/* Hands about so many pages of free slots back, a piece of 4 MiB at most; returns how many. 0:
 * there are none, or the kernel keeps them. Lets go of the lock meanwhile. */
uint64_t sh_slots_trim(struct sh_alloc *alloc, uint64_t pages_wanted);

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
/* Makes a block of a pack that was not emptied available again; false: there are no more. */
bool sh_bins_unpark(struct sh_alloc *alloc);

/* What a free block in a pack begins with. Readers that lost a race may be reading it: atomic. */
#define SH_NODE_BYTES 24u
struct sh_node {
    _Atomic uint64_t next, prev; /* offsets in its bin; 0: none */
    _Atomic uint64_t
        size; /* 63..20 [0: in no bin, 1: in its size's, 2: parked]  19..0 [bytes / 8] */
};
static inline struct sh_node *sh_node_at(const struct sh_alloc *alloc, uint64_t offset)
{
    return (struct sh_node *)(void *)(alloc->vm.at + offset);
}
uint32_t sh_node_bytes(const struct sh_alloc *alloc, uint64_t offset);
bool sh_node_is_linked(const struct sh_alloc *alloc, uint64_t offset);
unsigned sh_bin_of(uint32_t bytes);

#endif
