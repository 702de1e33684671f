/* Blocks for chunks, out of one reserved range, without headers.
 *
 * The range is cut into slots of 256 KiB, each described by a 32-byte record in a table beside it.
 *
 *   range:   [slot][slot][slot][slot][slot][slot] ... up to slots_high, then untouched
 *             pack  large-----  pack  free------
 *
 * - A pack is a run of slots that is filled from its start with blocks of any size, next to each
 *   other, in steps of 8 bytes: a fresh store wastes nothing between them. Blocks up to 4 KiB go to
 *   packs of one slot, longer ones, up to 256 KiB, to packs of 16.
 * - A free block in a pack holds a node that links it into the bin of its size. Bins of the sizes
 *   to 4 KiB are exact, so what is freed is used again by what is as long. Nothing merges: once
 *   memory is short a longer block is split, and what no size fits is for defragmentation, which
 *   empties the emptiest packs (alloc_drain.c). A pack without blocks becomes free slots at once.
 * - A large block has whole slots to itself. Only the pages it needs are touched, and they go back
 *   to the kernel when it is freed, so it costs its size rounded up to a page.
 * - Free slots lie in bins by the logarithm of their run's length and merge with their neighbours.
 *
 * What is resident is known slot by slot (touched pages) and charged to the budget before it is
 * touched. Free slots keep their pages until the budget runs out: then as many go to the kernel as
 * are missing. That takes its time (0.1 ms for a MiB of small pages), so such a piece is nobody's
 * and the lock is not held meanwhile.
 *
 * Once the range holds SH_HUGE_FROM, packs get fresh slots as whole huge pages, which are charged
 * and count as touched at once: a sixteenth of the memory at most is charged too early, a load
 * takes a 512th of the page faults, and a random access misses the TLB less often. Where memory of
 * a slot goes back to the kernel, all slots of its huge page get small ones from then on: as the
 * kernel has a mapping for each piece of the range that differs from its neighbours, single slots
 * would cost far too many. Mappings are counted, and past some thousands whole 256 MiB change.
 */
#ifndef SH_STORE_ALLOC_INT_H
#define SH_STORE_ALLOC_INT_H

#include <stddef.h>

#include "base/lock.h"
#include "store/memory_int.h"

#define SH_SLOT_BITS 18
#define SH_SLOT_BYTES (UINT64_C(1) << SH_SLOT_BITS)
#define SH_SLOT_PAGES (SH_SLOT_BYTES / SH_PAGE_BYTES)
/* Groups hold 48 bits of block offset. */
#define SH_ALLOC_RANGE_MAX (UINT64_C(1) << 46)

#define SH_PACKED_MAX 262144
#define SH_HUGE_FROM (UINT64_C(64) << 20)
#define SH_HUGE_SLOTS (uint32_t)(SH_HUGE_BYTES >> SH_SLOT_BITS)
#define SH_RUN_BINS 31
/* Bins of free blocks: of each size to 4 KiB, and from there on 16 to a power of two. */
#define SH_BINS_EXACT 513
#define SH_BINS (SH_BINS_EXACT + 7 * 16)
#define SH_BIN_WORDS ((SH_BINS + 63) / 64)

struct sh_slot {
    uint32_t next, prev; /* free: in the run's bin; 0: none */
    uint32_t run;        /* slots in the run, in its first record; free: in its last one too */
    uint32_t first;      /* pack: its first slot, in all its records */
    uint32_t bytes;      /* large: the block's; pack: of all blocks in use, in its first record */
    uint32_t end;    /* in the first record. Pack: where the next block goes, from its start; free:
                      * slots to the last one that has touched pages, it included */
    uint8_t state;   /* enum slot_state in slots_int.h */
    uint8_t touched; /* pages charged, from the slot's start */
    _Atomic uint8_t is_draining; /* pack: being emptied, in all its records */
    uint8_t is_huge;             /* in a huge page, as far as the kernel has one */
    uint8_t unused[4];
};
_Static_assert(sizeof(struct sh_slot) == 32, "an eighth of a byte for each KiB");

enum sh_pack_kind { SH_PACK_SHORT, SH_PACK_LONG, SH_PACK_KINDS };

struct sh_alloc {
    struct sh_lock lock; /* STORE_ALLOC: guards all below and all records */
    struct sh_vm vm;
    struct sh_vm records;
    struct sh_slot *slots;
    struct sh_budget *budget;
    bool may_dip;         /* the call at work may use the reserve */
    bool is_last;         /* it must do with what there is: nothing more can be trimmed */
    uint64_t short_pages; /* it found so many too few, and free slots have some: trim, and again */
    bool small_pages;     /* no huge ones */
    /* Somebody makes huge pages ready (sh_slots_ready) after that was called, and takers never touch
     * new ones; NULL: nobody does. */
    void (*pages_wanted)(void *arg);
    void *pages_arg;
    bool is_readying;
    bool defers;             /* large blocks that come free go to the kernel later, */
    uint64_t deferred_pages; /* so many */
    uint32_t slots_high;     /* slots from here on were never used; slot 0 is not used at all */
    uint32_t slots_max;
    uint64_t record_bytes;  /* charged for records */
    uint64_t touched_bytes; /* charged for slots */
    uint64_t block_bytes;   /* of blocks in use */
    uint64_t idle_pages;    /* touched pages of free slots */
    uint32_t splits;        /* slots that differ from the one before in is_huge */
    uint64_t held_pages; /* touched ones of slots that are nobody's: on their way to the kernel, or
                          * being made ready */
    uint32_t runs[2][SH_RUN_BINS];   /* first free run: of those without touched pages, and with */
    uint32_t filling[SH_PACK_KINDS]; /* the pack that new blocks go to; 0: none */
    bool is_short;              /* of the last marking: more packs would be, had there been room */
    uint64_t bins[SH_BINS + 1]; /* offset of the first free block, 0: none; the last bin
                                 * holds those of packs that are being emptied */
    uint64_t bins_used[SH_BIN_WORDS]; /* a bit for each that has one */
};

/* A block to be had, or given back: its offset in the range (a multiple of 8; 0 for size 0) and
 * the size that was asked for. */
struct sh_block {
    uint64_t offset;
    uint32_t size;
};

/* ENOMEM, EFULL. Keeps budget until destroy. */
SHOAL_NODISCARD enum shoal_err sh_alloc_init(struct sh_alloc *alloc, uint64_t bytes_max,
                                             bool small_pages, struct sh_budget *budget);
void sh_alloc_destroy(struct sh_alloc *alloc);

/* Fills in the offsets of count blocks whose sizes are set. Their bytes are whatever was there.
 * EFULL: none is allocated. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_alloc_take(struct sh_alloc *alloc, struct sh_block *blocks,
                                             size_t count, bool may_dip);
/* Gives count blocks back. Nobody may be writing to them; readers that lost a race may still be
 * reading. Any thread; the pages of large ones go back to the kernel before the lock is taken. */
void sh_alloc_give(struct sh_alloc *alloc, const struct sh_block *blocks, size_t count);

/* Hands the pages of slots that are free now back to the kernel and to the budget. Any thread. */
void sh_alloc_trim(struct sh_alloc *alloc);
/* The same for a piece of 64 MiB at most. *pages_left is UINT64_MAX before the first piece. False:
 * all that was free then is gone, or the kernel keeps it. */
/* The same with what large blocks left that came free: false, there is no more. */
bool sh_alloc_trim_deferred(struct sh_alloc *alloc);
bool sh_alloc_trim_piece(struct sh_alloc *alloc, uint64_t *pages_left);

/* Bytes that a block of that size takes up. */
uint64_t sh_alloc_block_bytes(uint32_t size);

static inline uint8_t *sh_alloc_at(const struct sh_alloc *alloc, uint64_t offset)
{
    return alloc->vm.at + offset;
}

/* Emptying packs, in steps that look at a bounded number of slots each. */
#define SH_DRAIN_FILLS 64 /* packs are told apart by so many degrees of being full */
struct sh_drain {
    uint32_t slot; /* next to be looked at */
    unsigned stage;
    uint64_t bytes[SH_DRAIN_FILLS]; /* in packs of each degree */
    uint64_t room;                  /* to copy to */
    uint64_t holes;                 /* free in all packs */
    unsigned emptiest;              /* lowest degree that there is */
    uint32_t marked;
    uint64_t trim_pages; /* still to be handed to the kernel */
};
void sh_drain_init(struct sh_drain *drain);
/* Until false: marks the emptiest packs, as many as there is memory to copy their blocks to, so
 * that nothing more is allocated there; their blocks are the caller's to move. Any thread, one at a
 * time.
 */
bool sh_alloc_drain_begin(struct sh_alloc *alloc, struct sh_drain *drain);
/* Afterwards, until false: makes free blocks of what was not emptied available again, and hands
 * free slots to the kernel. */
bool sh_alloc_drain_end(struct sh_alloc *alloc, struct sh_drain *drain);
static inline bool sh_alloc_is_draining(const struct sh_alloc *alloc, uint64_t offset)
{
    /* relaxed: a hint; moving a block too many or too few does no harm */
    return atomic_load_explicit(&alloc->slots[offset >> SH_SLOT_BITS].is_draining,
                                memory_order_relaxed) != 0;
}

struct sh_alloc_status {
    uint64_t record_bytes, touched_bytes, block_bytes;
};
struct sh_alloc_status sh_alloc_status_get(struct sh_alloc *alloc);

/* Walks every record and asserts that lists, counts and sums agree. For tests: slow. */
void sh_alloc_check(struct sh_alloc *alloc);

#endif
