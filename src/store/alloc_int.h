/* Blocks for chunks, out of one reserved range, without headers.
 *
 * The range is cut into slots of 64 KiB, each described by a 32-byte record in a table beside it.
 *
 *   range:   [slot][slot][slot][slot][slot][slot] ... up to slots_high, then untouched
 *             span  large-------------  free------
 *
 * - A span is one slot cut into equal blocks of one class, for sizes to 16 KiB. Its free blocks
 *   are a list through the blocks themselves; blocks never used are counted, not listed, so that
 *   their pages stay untouched.
 * - A large chunk has whole slots to itself. Only the pages it needs are touched, and they go back
 *   to the kernel when it is freed, so it costs its size rounded up to a page.
 * - Free slots lie in bins by the logarithm of their run's length and merge with their neighbours.
 *   An empty span becomes free slots at once, so memory moves between classes.
 *
 * Classes are the multiples of 8 to 512, and from there on the largest multiples of 8 of which k
 * fit into a slot, k = 126 to 4: a chunk wastes at most 7 bytes to 512 and a k-th of itself beyond.
 *
 * What is resident is known slot by slot (touched pages) and charged to the budget before it is
 * touched. Free slots keep their pages until the budget runs out.
 */
#ifndef SH_STORE_ALLOC_INT_H
#define SH_STORE_ALLOC_INT_H

#include <stddef.h>

#include "base/lock.h"
#include "store/memory_int.h"

#define SH_SLOT_BITS 16
#define SH_SLOT_BYTES (UINT64_C(1) << SH_SLOT_BITS)
#define SH_SLOT_PAGES (SH_SLOT_BYTES / SH_PAGE_BYTES)
/* Groups hold 48 bits of block offset. */
#define SH_ALLOC_RANGE_MAX (UINT64_C(1) << 46)

#define SH_SMALL_MAX 16384
#define SH_CLASSES_EXACT 65   /* sizes 0, 8, ... 512; class 0 is not used */
#define SH_CLASS_FITS_MAX 126 /* 65536 / 520 */
#define SH_CLASS_FITS_MIN 4
#define SH_CLASSES (SH_CLASSES_EXACT + SH_CLASS_FITS_MAX - SH_CLASS_FITS_MIN + 1)
#define SH_BINS 31

struct sh_slot {
    uint32_t next, prev; /* in the class's list of spans with room, or in the bin; 0: none */
    uint32_t run;        /* large and free: slots in the run, in its first and its last record */
    uint32_t large_size; /* large: the chunk's bytes */
    uint16_t used;       /* span: blocks in use */
    uint16_t carved;     /* span: blocks that were ever in use */
    uint16_t free_head;  /* span: first free block, plus 1; 0: none */
    uint8_t class;       /* span */
    uint8_t state;       /* enum slot_state in slots_int.h */
    uint8_t touched;     /* pages charged, from the slot's start */
    _Atomic uint8_t is_draining; /* span: being emptied; it is in no list */
    uint8_t unused[6];
};
_Static_assert(sizeof(struct sh_slot) == 32, "half a byte for each KiB");

struct sh_alloc {
    struct sh_lock lock; /* STORE_ALLOC: guards all below and all records */
    struct sh_vm vm;
    struct sh_vm records;
    struct sh_slot *slots;
    struct sh_budget *budget;
    bool may_dip;        /* the call at work may use the reserve */
    uint32_t slots_high; /* slots from here on were never used; slot 0 is not used at all */
    uint32_t slots_max;
    uint64_t record_bytes;      /* charged for records */
    uint64_t touched_bytes;     /* charged for slots */
    uint64_t block_bytes;       /* of blocks in use */
    uint64_t idle_pages;        /* touched pages of free slots */
    uint32_t rooms[SH_CLASSES]; /* first span with room */
    uint32_t bins[SH_BINS];     /* first free run */
};

/* A block to be had, or given back: its offset in the range (a multiple of 8; 0 for size 0) and
 * the size that was asked for. */
struct sh_block {
    uint64_t offset;
    uint32_t size;
};

/* ENOMEM, EFULL. Keeps budget until destroy. */
SHOAL_NODISCARD enum shoal_err sh_alloc_init(struct sh_alloc *alloc, uint64_t bytes_max,
                                             struct sh_budget *budget);
void sh_alloc_destroy(struct sh_alloc *alloc);

/* Fills in the offsets of count blocks whose sizes are set. Their bytes are whatever was there.
 * EFULL: none is allocated. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_alloc_take(struct sh_alloc *alloc, struct sh_block *blocks,
                                             size_t count, bool may_dip);
/* Gives count blocks back. Nobody may be writing to them; readers that lost a race
 * may still be reading. Any thread; the pages of large
 * ones go back to the kernel before the lock is taken. */
void sh_alloc_give(struct sh_alloc *alloc, const struct sh_block *blocks, size_t count);

/* Hands the pages of free slots back to the kernel and to the budget. Any thread. */
void sh_alloc_trim(struct sh_alloc *alloc);

/* Bytes that a block of that size takes up. */
uint64_t sh_alloc_block_bytes(uint32_t size);

static inline uint8_t *sh_alloc_at(const struct sh_alloc *alloc, uint64_t offset)
{
    return alloc->vm.at + offset;
}

/* Marks the emptiest spans of each class for which the others have room, so that nothing more is
 * allocated there, and says how many; those whose blocks are in use then are the caller's to empty.
 * sh_alloc_drain_end takes back what was not emptied, and trims. Any thread, one at a time. */
uint32_t sh_alloc_drain_begin(struct sh_alloc *alloc);
void sh_alloc_drain_end(struct sh_alloc *alloc);
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
