#include "store/alloc_int.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "store/group_int.h"
#include "store/slots_int.h"

_Static_assert(SH_ALLOC_RANGE_MAX <= SH_GROUP_OFFSET_MASK, "groups reach it all");
_Static_assert(SH_CLASSES <= UINT8_MAX, "a class is one byte");

static unsigned class_of(uint32_t size)
{
    SH_ASSERT(size > 0 && size <= SH_SMALL_MAX);
    uint32_t rounded = (size + 7) & ~UINT32_C(7);
    if (rounded / 8 < SH_CLASSES_EXACT)
        return rounded / 8;
    return SH_CLASSES_EXACT + SH_CLASS_FITS_MAX - (uint32_t)SH_SLOT_BYTES / rounded;
}

uint32_t sh_alloc_class_bytes(unsigned class)
{
    SH_ASSERT(class > 0 && class < SH_CLASSES);
    if (class < SH_CLASSES_EXACT)
        return class * 8;
    uint32_t fits = SH_CLASS_FITS_MAX - (class - SH_CLASSES_EXACT);
    return ((uint32_t)SH_SLOT_BYTES / fits) & ~UINT32_C(7);
}

uint64_t sh_alloc_block_bytes(uint32_t size)
{
    if (size == 0)
        return 0;
    return size <= SH_SMALL_MAX ? sh_alloc_class_bytes(class_of(size))
                                : sh_pages(size) << SH_PAGE_BITS;
}

static uint32_t large_run(uint32_t size)
{
    return (uint32_t)((size + SH_SLOT_BYTES - 1) >> SH_SLOT_BITS);
}

enum shoal_err sh_alloc_init(struct sh_alloc *alloc, uint64_t bytes_max, struct sh_budget *budget)
{
    memset(alloc, 0, sizeof *alloc);
    alloc->budget = budget;
    alloc->slots_high = 1;
    /* A large chunk of one page takes up the addresses of a whole slot, and a free run may be too
     * short: four times the memory is plenty of addresses, and they cost nothing. */
    uint64_t range = bytes_max < SH_ALLOC_RANGE_MAX / 8 ? 4 * bytes_max + (UINT64_C(4) << 30)
                                                        : SH_ALLOC_RANGE_MAX;
    alloc->slots_max = (uint32_t)(range >> SH_SLOT_BITS);
    /* One slot more than is handed out: a reader that saw halves of two layouts may look up to 4
     * KiB past a block before its check fails. */
    enum shoal_err err = sh_vm_reserve(range + SH_SLOT_BYTES, &alloc->vm);
    if (err)
        return err;
    err = sh_vm_reserve(alloc->slots_max * sizeof(struct sh_slot), &alloc->records);
    if (err)
        return err;
    alloc->slots = (struct sh_slot *)alloc->records.at;
    sh_lock_init(&alloc->lock, SH_LOCK_STORE_ALLOC);
    return SHOAL_OK;
}

void sh_alloc_destroy(struct sh_alloc *alloc)
{
    if (alloc->slots)
        sh_lock_destroy(&alloc->lock);
    alloc->slots = NULL;
    sh_vm_release(&alloc->records);
    sh_vm_release(&alloc->vm);
}

/* Charges and notes what a run needs to hold so many pages. */
static bool run_touch(struct sh_alloc *alloc, uint32_t slot, uint32_t run, uint64_t run_pages)
{
    uint64_t more = 0;
    for (uint32_t i = 0; i < run; i++) {
        uint32_t needs = sh_slot_needs(run_pages, i);
        uint32_t touched = alloc->slots[slot + i].touched;
        more += needs > touched ? needs - touched : 0;
    }
    if (more == 0)
        return true;
    if (!sh_slots_charge(alloc, more))
        return false;
    alloc->touched_bytes += more << SH_PAGE_BITS;
    for (uint32_t i = 0; i < run; i++) {
        uint32_t needs = sh_slot_needs(run_pages, i);
        if (needs > alloc->slots[slot + i].touched)
            alloc->slots[slot + i].touched = (uint8_t)needs;
    }
    return true;
}

/* Hands back what the last slot of a large chunk once touched and the chunk does not need: nobody
 * else could use it as long as the chunk lives. */
static void tail_discard(struct sh_alloc *alloc, uint32_t slot, uint32_t run, uint64_t run_pages)
{
    struct sh_slot *last = &alloc->slots[slot + run - 1];
    uint32_t needs = sh_slot_needs(run_pages, run - 1);
    if (last->touched <= needs)
        return;
    uint64_t at = ((uint64_t)(slot + run - 1) << SH_SLOT_BITS) + needs * SH_PAGE_BYTES;
    uint64_t bytes = (last->touched - needs) * SH_PAGE_BYTES;
    if (!sh_vm_discard(&alloc->vm, at, bytes))
        return;
    last->touched = (uint8_t)needs;
    alloc->touched_bytes -= bytes;
    sh_budget_refund(alloc->budget, bytes);
}

static uint64_t large_take(struct sh_alloc *alloc, uint32_t size)
{
    uint32_t run = large_run(size);
    uint32_t slot = sh_slots_take(alloc, run);
    if (!slot)
        return 0;
    /* The states come first: charging may trim free runs, which must not find this one. */
    alloc->slots[slot + run - 1].state = SLOT_LARGE_END;
    alloc->slots[slot].state = SLOT_LARGE;
    tail_discard(alloc, slot, run, sh_pages(size));
    if (!run_touch(alloc, slot, run, sh_pages(size))) {
        sh_slots_give(alloc, slot, run);
        return 0;
    }
    alloc->slots[slot].large_size = size;
    return (uint64_t)slot << SH_SLOT_BITS;
}

static void large_give(struct sh_alloc *alloc, struct sh_block block, bool discarded)
{
    uint32_t slot = (uint32_t)(block.offset >> SH_SLOT_BITS);
    uint32_t run = large_run(block.size);
    SH_ASSERT(alloc->slots[slot].state == SLOT_LARGE);
    SH_ASSERT(alloc->slots[slot].large_size == block.size && alloc->slots[slot].run == run);
    uint64_t pages = 0;
    for (uint32_t i = 0; discarded && i < run; i++) {
        pages += alloc->slots[slot + i].touched;
        alloc->slots[slot + i].touched = 0;
    }
    alloc->touched_bytes -= pages << SH_PAGE_BITS;
    sh_budget_refund(alloc->budget, pages << SH_PAGE_BITS);
    sh_slots_give(alloc, slot, run);
}

/* Makes a span with room for the class; 0 when there is no slot for it. */
static uint32_t span_new(struct sh_alloc *alloc, unsigned class)
{
    uint32_t slot = sh_slots_take(alloc, 1);
    if (!slot)
        return 0;
    struct sh_slot *span = &alloc->slots[slot];
    span->state = SLOT_SPAN;
    span->class = (uint8_t) class;
    span->used = 0;
    span->carved = 0;
    span->is_draining = 0;
    span->free_head = 0;
    sh_slots_link(alloc, &alloc->rooms[class], slot);
    return slot;
}

static void span_end(struct sh_alloc *alloc, uint32_t slot)
{
    SH_ASSERT(alloc->slots[slot].used == 0);
    struct sh_slot *span = &alloc->slots[slot];
    if (!span->is_draining)
        sh_slots_unlink(alloc, &alloc->rooms[span->class], slot);
    span->is_draining = 0;
    sh_slots_give(alloc, slot, 1);
}

/* The link that a free block starts with. */
static _Atomic uint16_t *link_at(struct sh_alloc *alloc, uint64_t offset)
{
    return (_Atomic uint16_t *)(void *)(alloc->vm.at + offset);
}

static bool has_room(const struct sh_slot *span, uint32_t bytes)
{
    return span->free_head || (uint64_t)(span->carved + 1u) * bytes <= SH_SLOT_BYTES;
}

static uint64_t small_take(struct sh_alloc *alloc, uint32_t size)
{
    unsigned class = class_of(size);
    uint32_t bytes = sh_alloc_class_bytes(class);
    uint32_t slot = alloc->rooms[class];
    if (!slot && !(slot = span_new(alloc, class)))
        return 0;
    struct sh_slot *span = &alloc->slots[slot];
    uint64_t start = (uint64_t)slot << SH_SLOT_BITS;
    uint32_t index;
    if (span->free_head) {
        index = span->free_head - 1u;
        span->free_head = *link_at(alloc, start + (uint64_t)index * bytes);
    } else {
        index = span->carved;
        if (!run_touch(alloc, slot, 1, sh_pages((uint64_t)(index + 1) * bytes))) {
            if (span->used == 0)
                span_end(alloc, slot);
            return 0;
        }
        span->carved++;
    }
    span->used++;
    if (!has_room(span, bytes))
        sh_slots_unlink(alloc, &alloc->rooms[class], slot);
    return start + (uint64_t)index * bytes;
}

static void small_give(struct sh_alloc *alloc, struct sh_block block)
{
    uint32_t slot = (uint32_t)(block.offset >> SH_SLOT_BITS);
    struct sh_slot *span = &alloc->slots[slot];
    unsigned class = class_of(block.size);
    uint32_t bytes = sh_alloc_class_bytes(class);
    uint32_t index = (uint32_t)(block.offset & (SH_SLOT_BYTES - 1)) / bytes;
    SH_ASSERT(span->state == SLOT_SPAN && span->class == class);
    SH_ASSERT(span->used > 0 && index < span->carved);
    if (!has_room(span, bytes) && !span->is_draining)
        sh_slots_link(alloc, &alloc->rooms[class], slot);
    /* relaxed: for a reader that lost a race */
    atomic_store_explicit(link_at(alloc, block.offset), span->free_head, memory_order_relaxed);
    span->free_head = (uint16_t)(index + 1);
    if (--span->used == 0)
        span_end(alloc, slot);
}

static void give_one(struct sh_alloc *alloc, struct sh_block block, bool discarded)
{
    if (block.size == 0)
        return;
    alloc->block_bytes -= sh_alloc_block_bytes(block.size);
    if (block.size <= SH_SMALL_MAX)
        small_give(alloc, block);
    else
        large_give(alloc, block, discarded);
}

static bool take_one(struct sh_alloc *alloc, struct sh_block *block)
{
    block->offset = 0;
    if (block->size == 0)
        return true;
    block->offset = block->size <= SH_SMALL_MAX ? small_take(alloc, block->size)
                                                : large_take(alloc, block->size);
    if (block->offset == 0)
        return false;
    alloc->block_bytes += sh_alloc_block_bytes(block->size);
    return true;
}

enum shoal_err sh_alloc_take(struct sh_alloc *alloc, struct sh_block *blocks, size_t count,
                             bool may_dip)
{
    enum shoal_err err = SHOAL_OK;
    sh_lock_take(&alloc->lock);
    alloc->may_dip = may_dip;
    for (size_t i = 0; i < count; i++) {
        if (take_one(alloc, &blocks[i]))
            continue;
        err = SHOAL_EFULL;
        while (i-- > 0)
            give_one(alloc, blocks[i], false);
        break;
    }
    sh_lock_release(&alloc->lock);
    return err;
}

/* Blocks given back in one go under the lock; their discards are noted in a word. */
#define GIVE_BATCH 64

void sh_alloc_give(struct sh_alloc *alloc, const struct sh_block *blocks, size_t count)
{
    while (count > 0) {
        size_t some = count < GIVE_BATCH ? count : GIVE_BATCH;
        uint64_t discarded = 0;
        for (size_t i = 0; i < some; i++) {
            uint64_t run_bytes = (uint64_t)large_run(blocks[i].size) << SH_SLOT_BITS;
            if (blocks[i].size > SH_SMALL_MAX &&
                sh_vm_discard(&alloc->vm, blocks[i].offset, run_bytes))
                discarded |= UINT64_C(1) << i;
        }
        sh_lock_take(&alloc->lock);
        for (size_t i = 0; i < some; i++)
            give_one(alloc, blocks[i], (discarded >> i) & 1);
        sh_lock_release(&alloc->lock);
        blocks += some;
        count -= some;
    }
}

void sh_alloc_trim(struct sh_alloc *alloc)
{
    sh_lock_take(&alloc->lock);
    sh_slots_trim(alloc);
    sh_lock_release(&alloc->lock);
}

struct sh_alloc_status sh_alloc_status_get(struct sh_alloc *alloc)
{
    sh_lock_take(&alloc->lock);
    struct sh_alloc_status status = {
        .record_bytes = alloc->record_bytes,
        .touched_bytes = alloc->touched_bytes,
        .block_bytes = alloc->block_bytes,
    };
    sh_lock_release(&alloc->lock);
    return status;
}
