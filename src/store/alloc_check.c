/* The allocator's invariants, walked slowly: for tests. */
#include "base/assert.h"
#include "store/slots_int.h"

struct sums {
    uint64_t touched_pages;
    uint64_t idle_pages;
    uint32_t free_runs;
    uint32_t spans_with_room;
};

static uint32_t span_capacity(const struct sh_alloc *alloc, uint32_t slot)
{
    return (uint32_t)(SH_SLOT_BYTES / sh_alloc_class_bytes(alloc->slots[slot].class));
}

/* Checks the run that starts at a slot; returns its length. */
static uint32_t run_check(const struct sh_alloc *alloc, uint32_t slot, bool after_free,
                          struct sums *sums)
{
    const struct sh_slot *record = &alloc->slots[slot];
    switch ((enum slot_state)record->state) {
    case SLOT_SPAN:
        SH_ASSERT(record->used > 0 && record->used <= record->carved);
        SH_ASSERT(record->carved <= span_capacity(alloc, slot));
        sums->spans_with_room += record->used < span_capacity(alloc, slot) && !record->is_draining;
        return 1;
    case SLOT_LARGE:
        SH_ASSERT(record->large_size > SH_SMALL_MAX);
        SH_ASSERT(record->run > 0 && slot + record->run <= alloc->slots_high);
        SH_ASSERT(record->run == 1 || alloc->slots[slot + record->run - 1].state == SLOT_LARGE_END);
        return record->run;
    case SLOT_FREE:
        SH_ASSERT(!after_free); /* neighbours merge */
        SH_ASSERT(record->run > 0 && slot + record->run <= alloc->slots_high);
        SH_ASSERT(alloc->slots[slot + record->run - 1].run == record->run);
        for (uint32_t i = 0; i < record->run; i++)
            sums->idle_pages += alloc->slots[slot + i].touched;
        sums->free_runs++;
        return record->run;
    default:
        SH_ASSERT(!"a run starts with another state");
        return 1;
    }
}

static uint32_t list_length(const struct sh_alloc *alloc, uint32_t head, enum slot_state state)
{
    uint32_t length = 0;
    for (uint32_t slot = head, prev = 0; slot; slot = alloc->slots[slot].next) {
        SH_ASSERT(alloc->slots[slot].state == state && alloc->slots[slot].prev == prev);
        prev = slot;
        length++;
    }
    return length;
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
    for (uint32_t slot = 1; slot < alloc->slots_high; slot++)
        sums.touched_pages += alloc->slots[slot].touched;
    SH_ASSERT(sums.idle_pages == alloc->idle_pages);
    SH_ASSERT(sums.touched_pages << SH_PAGE_BITS == alloc->touched_bytes);
    SH_ASSERT(alloc->block_bytes <= alloc->touched_bytes);
    uint32_t runs = 0;
    uint32_t spans = 0;
    for (unsigned bin = 0; bin < SH_BINS; bin++)
        runs += list_length(alloc, alloc->bins[bin], SLOT_FREE);
    for (unsigned class = 1; class < SH_CLASSES; class ++)
        spans += list_length(alloc, alloc->rooms[class], SLOT_SPAN);
    SH_ASSERT(runs == sums.free_runs && spans == sums.spans_with_room);
    sh_lock_release(&alloc->lock);
}
