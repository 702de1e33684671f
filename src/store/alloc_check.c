/* The allocator's invariants, walked slowly: for tests. */
#include "base/assert.h"
#include "store/slots_int.h"

struct sums {
    uint64_t touched_pages;
    uint64_t idle_pages;
    uint64_t block_bytes;
    uint32_t free_runs;
};

static void pack_check(const struct sh_alloc *alloc, uint32_t first)
{
    const struct sh_slot *pack = &alloc->slots[first];
    SH_ASSERT(pack->bytes > 0 && pack->bytes <= pack->end);
    SH_ASSERT(pack->end <= (uint64_t)pack->run << SH_SLOT_BITS);
    for (uint32_t i = 0; i < pack->run; i++) {
        const struct sh_slot *record = &alloc->slots[first + i];
        SH_ASSERT(record->state == SLOT_PACK && record->first == first);
        SH_ASSERT(record->is_draining == pack->is_draining);
        SH_ASSERT(record->touched >= sh_slot_needs(sh_pages(pack->end), i));
    }
}

/* Checks the run that starts at a slot; returns its length. */
static uint32_t run_check(const struct sh_alloc *alloc, uint32_t slot, bool after_free,
                          struct sums *sums)
{
    const struct sh_slot *record = &alloc->slots[slot];
    SH_ASSERT(record->run > 0 && slot + record->run <= alloc->slots_high);
    switch ((enum slot_state)record->state) {
    case SLOT_PACK:
        pack_check(alloc, slot);
        sums->block_bytes += record->bytes;
        break;
    case SLOT_LARGE:
        SH_ASSERT(record->bytes > SH_PACKED_MAX);
        SH_ASSERT(record->run == 1 || alloc->slots[slot + record->run - 1].state == SLOT_LARGE_END);
        sums->block_bytes += sh_alloc_block_bytes(record->bytes);
        break;
    case SLOT_FREE:
        SH_ASSERT(!after_free); /* neighbours merge */
        SH_ASSERT(alloc->slots[slot + record->run - 1].run == record->run);
        for (uint32_t i = 0; i < record->run; i++)
            sums->idle_pages += alloc->slots[slot + i].touched;
        SH_ASSERT(record->end <= record->run);
        for (uint32_t i = record->end; i < record->run; i++)
            SH_ASSERT(alloc->slots[slot + i].touched == 0);
        SH_ASSERT(record->end == 0 || alloc->slots[slot + record->end - 1].touched > 0);
        sums->free_runs++;
        break;
    default:
        SH_ASSERT(!"a run starts with another state");
    }
    return record->run;
}

static uint32_t runs_length(const struct sh_alloc *alloc, bool is_touched, uint32_t head)
{
    uint32_t length = 0;
    for (uint32_t slot = head, prev = 0; slot; slot = alloc->slots[slot].next) {
        SH_ASSERT(alloc->slots[slot].state == SLOT_FREE && alloc->slots[slot].prev == prev);
        SH_ASSERT((alloc->slots[slot].end > 0) == is_touched);
        prev = slot;
        length++;
    }
    return length;
}

/* Checks the free blocks of a bin; returns their bytes. */
static uint64_t bin_check(const struct sh_alloc *alloc, unsigned bin)
{
    uint64_t bytes = 0;
    uint64_t prev = 0;
    bool is_used = (alloc->bins_used[bin / 64] >> bin % 64 & 1) != 0;
    SH_ASSERT(is_used == (alloc->bins[bin] != 0));
    for (uint64_t at = alloc->bins[bin]; at; at = sh_node_at(alloc, at)->next) {
        const struct sh_slot *record = &alloc->slots[at >> SH_SLOT_BITS];
        uint32_t size = sh_node_bytes(alloc, at);
        SH_ASSERT(record->state == SLOT_PACK && sh_node_is_linked(alloc, at));
        SH_ASSERT(sh_bin_of(size) == bin && sh_node_at(alloc, at)->prev == prev);
        SH_ASSERT(at + size <=
                  ((uint64_t)record->first << SH_SLOT_BITS) + alloc->slots[record->first].end);
        bytes += size;
        prev = at;
    }
    return bytes;
}

void sh_alloc_check(struct sh_alloc *alloc)
{
    sh_lock_take(&alloc->lock);
    struct sums sums = {0};
    bool after_free = false;
    for (uint32_t slot = 1; slot < alloc->slots_high;) {
        bool is_free = alloc->slots[slot].state == SLOT_FREE;
        slot += run_check(alloc, slot, after_free, &sums);
        after_free = is_free;
    }
    uint32_t splits = alloc->slots[alloc->slots_high - 1].is_huge;
    for (uint32_t slot = 1; slot < alloc->slots_high; slot++) {
        sums.touched_pages += alloc->slots[slot].touched;
        splits += alloc->slots[slot].is_huge != alloc->slots[slot - 1].is_huge;
    }
    SH_ASSERT(splits == alloc->splits);
    SH_ASSERT(sums.idle_pages == alloc->idle_pages);
    SH_ASSERT(sums.touched_pages << SH_PAGE_BITS == alloc->touched_bytes);
    SH_ASSERT(sums.block_bytes == alloc->block_bytes);
    uint32_t runs = 0;
    for (unsigned bin = 0; bin < SH_RUN_BINS; bin++)
        runs += runs_length(alloc, false, alloc->runs[0][bin]) +
                runs_length(alloc, true, alloc->runs[1][bin]);
    SH_ASSERT(runs == sums.free_runs && alloc->held_pages == 0);
    uint64_t free_bytes = 0;
    for (unsigned bin = 0; bin < SH_BINS; bin++)
        free_bytes += bin_check(alloc, bin);
    SH_ASSERT(alloc->block_bytes + free_bytes <= alloc->touched_bytes);
    sh_lock_release(&alloc->lock);
}
