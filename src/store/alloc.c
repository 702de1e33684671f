#include "store/alloc_int.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "store/group_int.h"
#include "store/slots_int.h"

_Static_assert(SH_ALLOC_RANGE_MAX <= SH_GROUP_OFFSET_MASK, "groups reach it all");

uint64_t sh_alloc_block_bytes(uint32_t size)
{
    if (size == 0)
        return 0;
    if (size > SH_PACKED_MAX)
        return sh_pages(size) << SH_PAGE_BITS;
    return size < SH_NODE_BYTES ? SH_NODE_BYTES : (size + 7) & ~UINT64_C(7);
}

static uint32_t large_run(uint32_t size)
{
    return (uint32_t)((size + SH_SLOT_BYTES - 1) >> SH_SLOT_BITS);
}

enum shoal_err sh_alloc_init(struct sh_alloc *alloc, uint64_t bytes_max, bool small_pages,
                             struct sh_budget *budget)
{
    memset(alloc, 0, sizeof *alloc);
    alloc->small_pages = small_pages;
    alloc->budget = budget;
    alloc->slots_high = 1;
    /* A large block takes up the addresses of whole slots, of up to twice its size, and a free run
     * may be too short: four times the memory is plenty of addresses, and they cost nothing. */
    uint64_t range = bytes_max < SH_ALLOC_RANGE_MAX / 8 ? 4 * bytes_max + (UINT64_C(4) << 30)
                                                        : SH_ALLOC_RANGE_MAX;
    alloc->slots_max = (uint32_t)(range >> SH_SLOT_BITS);
    /* One slot more than is handed out: a reader that saw halves of two layouts may look some
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
    if (!sh_slots_small(alloc, slot + run - 1, 1) || !sh_vm_discard(&alloc->vm, at, bytes))
        return;
    last->touched = (uint8_t)needs;
    alloc->touched_bytes -= bytes;
    sh_budget_refund(alloc->budget, bytes);
}

static uint64_t large_take(struct sh_alloc *alloc, uint32_t size)
{
    uint32_t run = large_run(size);
    uint32_t slot = sh_slots_take(alloc, run, false);
    if (!slot)
        return 0;
    alloc->slots[slot + run - 1].state = SLOT_LARGE_END;
    alloc->slots[slot].state = SLOT_LARGE;
    tail_discard(alloc, slot, run, sh_pages(size));
    if (!sh_slots_touch(alloc, slot, 0, sh_pages(size))) {
        sh_slots_give(alloc, slot, run);
        return 0;
    }
    alloc->slots[slot].bytes = size;
    return (uint64_t)slot << SH_SLOT_BITS;
}

static void large_give(struct sh_alloc *alloc, struct sh_block block, bool discarded)
{
    uint32_t slot = (uint32_t)(block.offset >> SH_SLOT_BITS);
    uint32_t run = large_run(block.size);
    SH_ASSERT(alloc->slots[slot].state == SLOT_LARGE);
    SH_ASSERT(alloc->slots[slot].bytes == block.size && alloc->slots[slot].run == run);
    uint64_t pages = 0;
    for (uint32_t i = 0; discarded && i < run; i++) {
        pages += alloc->slots[slot + i].touched;
        alloc->slots[slot + i].touched = 0;
    }
    alloc->touched_bytes -= pages << SH_PAGE_BITS;
    sh_budget_refund(alloc->budget, pages << SH_PAGE_BITS);
    sh_slots_give(alloc, slot, run);
}

static void give_one(struct sh_alloc *alloc, struct sh_block block, bool discarded)
{
    if (block.size == 0)
        return;
    uint64_t bytes = sh_alloc_block_bytes(block.size);
    alloc->block_bytes -= bytes;
    if (block.size <= SH_PACKED_MAX)
        sh_pack_give(alloc, block.offset, (uint32_t)bytes);
    else
        large_give(alloc, block, discarded);
}

static bool take_one(struct sh_alloc *alloc, struct sh_block *block)
{
    block->offset = 0;
    if (block->size == 0)
        return true;
    uint64_t bytes = sh_alloc_block_bytes(block->size);
    block->offset = block->size <= SH_PACKED_MAX ? sh_pack_take(alloc, (uint32_t)bytes)
                                                 : large_take(alloc, block->size);
    if (block->offset == 0)
        return false;
    alloc->block_bytes += bytes;
    return true;
}

/* Takes all blocks, or none. */
static bool take_all(struct sh_alloc *alloc, struct sh_block *blocks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (take_one(alloc, &blocks[i]))
            continue;
        while (i-- > 0)
            give_one(alloc, blocks[i], false);
        return false;
    }
    return true;
}

/* Less than this is not worth a call of the kernel. */
#define TRIM_PAGES_LEAST 512

/* Trims what a call was short of, or a part of it, or waits for who is at it. False: nothing came
 * of it. */
static bool shortage_trim(struct sh_alloc *alloc, uint64_t pages)
{
    if (pages < TRIM_PAGES_LEAST)
        pages = TRIM_PAGES_LEAST;
    if (sh_slots_trim(alloc, pages) > 0)
        return true;
    if (alloc->held_pages == 0)
        return false;
    sh_lock_release(&alloc->lock);
    sh_spin_sleep(); /* a trim of at most 2 MiB: 200 us */
    sh_lock_take(&alloc->lock);
    return true;
}

enum shoal_err sh_alloc_take(struct sh_alloc *alloc, struct sh_block *blocks, size_t count,
                             bool may_dip)
{
    bool is_taken, is_last = false;
    sh_lock_take(&alloc->lock);
    for (;;) {
        alloc->may_dip = may_dip;
        alloc->is_last = is_last;
        alloc->short_pages = 0;
        is_taken = take_all(alloc, blocks, count);
        if (is_taken || !sh_slots_must_trim(alloc))
            break;
        /* Lets go of the lock, so that all that the call left there is another's. */
        is_last = !shortage_trim(alloc, alloc->short_pages);
    }
    sh_lock_release(&alloc->lock);
    return is_taken ? SHOAL_OK : SHOAL_EFULL;
}

/* Hands the pages of a large block back to the kernel, without the lock: that takes its time. */
static bool large_discard(struct sh_alloc *alloc, const struct sh_block *block)
{
    uint32_t run = large_run(block->size);
    sh_lock_take(&alloc->lock);
    bool is_small = sh_slots_small(alloc, (uint32_t)(block->offset >> SH_SLOT_BITS), run);
    sh_lock_release(&alloc->lock);
    return is_small && sh_vm_discard(&alloc->vm, block->offset, (uint64_t)run << SH_SLOT_BITS);
}

bool sh_alloc_trim_deferred(struct sh_alloc *alloc)
{
    sh_lock_take(&alloc->lock);
    uint64_t wanted = alloc->deferred_pages;
    if (wanted > alloc->idle_pages)
        wanted = alloc->deferred_pages = alloc->idle_pages;
    uint64_t pages = wanted > 0 ? sh_slots_trim(alloc, wanted) : 0;
    bool is_left = pages > 0 && pages < alloc->deferred_pages;
    alloc->deferred_pages = is_left ? alloc->deferred_pages - pages : 0;
    sh_lock_release(&alloc->lock);
    return pages > 0;
}

/* Blocks given back in one go under the lock; their discards are noted in a word. */
#define GIVE_BATCH 64

void sh_alloc_give(struct sh_alloc *alloc, const struct sh_block *blocks, size_t count)
{
    while (count > 0) {
        size_t some = count < GIVE_BATCH ? count : GIVE_BATCH;
        uint64_t discarded = 0;
        for (size_t i = 0; i < some; i++)
            if (blocks[i].size > SH_PACKED_MAX && !alloc->defers &&
                large_discard(alloc, &blocks[i]))
                discarded |= UINT64_C(1) << i;
        sh_lock_take(&alloc->lock);
        for (size_t i = 0; i < some; i++) {
            if (blocks[i].size > SH_PACKED_MAX && alloc->defers)
                alloc->deferred_pages += sh_pages(blocks[i].size);
            give_one(alloc, blocks[i], (discarded >> i) & 1);
        }
        sh_lock_release(&alloc->lock);
        blocks += some;
        count -= some;
    }
}

bool sh_alloc_trim_piece(struct sh_alloc *alloc, uint64_t *pages_left)
{
    sh_lock_take(&alloc->lock);
    /* What others free meanwhile does not count, or this might not end. */
    uint64_t left = *pages_left < alloc->idle_pages ? *pages_left : alloc->idle_pages;
    uint64_t pages = left > 0 ? sh_slots_trim(alloc, left) : 0;
    sh_lock_release(&alloc->lock);
    *pages_left = pages < left ? left - pages : 0;
    return pages > 0;
}

void sh_alloc_trim(struct sh_alloc *alloc)
{
    uint64_t left = UINT64_MAX;
    while (sh_alloc_trim_piece(alloc, &left))
        continue;
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
