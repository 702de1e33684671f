#include "store/slots_int.h"

#include "base/assert.h"

/* How many runs of the bin that may or may not be long enough are looked at. */
#define BIN_PROBES 16

static void run_link(struct sh_alloc *alloc, uint32_t *head, uint32_t slot)
{
    struct sh_slot *record = &alloc->slots[slot];
    record->prev = 0;
    record->next = *head;
    if (*head)
        alloc->slots[*head].prev = slot;
    *head = slot;
}

static void run_unlink(struct sh_alloc *alloc, uint32_t *head, uint32_t slot)
{
    struct sh_slot *record = &alloc->slots[slot];
    if (record->prev)
        alloc->slots[record->prev].next = record->next;
    else {
        SH_ASSERT(*head == slot);
        *head = record->next;
    }
    if (record->next)
        alloc->slots[record->next].prev = record->prev;
    record->next = 0;
    record->prev = 0;
}

static uint32_t *bin_of(struct sh_alloc *alloc, uint32_t run)
{
    SH_ASSERT(run > 0);
    return &alloc->runs[31 - __builtin_clz(run)];
}

static void run_insert(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    struct sh_slot *first = &alloc->slots[slot];
    struct sh_slot *last = &alloc->slots[slot + run - 1];
    first->state = SLOT_FREE;
    last->state = SLOT_FREE;
    first->run = run;
    last->run = run;
    run_link(alloc, bin_of(alloc, run), slot);
}

static void run_remove(struct sh_alloc *alloc, uint32_t slot)
{
    SH_ASSERT(alloc->slots[slot].state == SLOT_FREE);
    run_unlink(alloc, bin_of(alloc, alloc->slots[slot].run), slot);
}

static uint64_t run_touched(const struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < run; i++)
        pages += alloc->slots[slot + i].touched;
    return pages;
}

/* A free run of at least so many slots, out of its bin; 0 when there is none. */
static uint32_t run_find(struct sh_alloc *alloc, uint32_t run)
{
    unsigned bin = 31 - (unsigned)__builtin_clz(run);
    uint32_t found = alloc->runs[bin];
    for (unsigned probe = 0; found && alloc->slots[found].run < run; probe++)
        found = probe < BIN_PROBES ? alloc->slots[found].next : 0;
    while (!found && ++bin < SH_RUN_BINS)
        found = alloc->runs[bin];
    if (found)
        run_remove(alloc, found);
    return found;
}

/* Charges the records of all slots below `end`. */
static bool records_charge(struct sh_alloc *alloc, uint64_t end)
{
    uint64_t bytes = sh_pages(end * sizeof(struct sh_slot)) << SH_PAGE_BITS;
    if (bytes <= alloc->record_bytes)
        return true;
    if (!sh_slots_charge(alloc, (bytes - alloc->record_bytes) >> SH_PAGE_BITS))
        return false;
    alloc->record_bytes = bytes;
    return true;
}

/* Slots that were never used, with their records charged; 0 when there are none left. */
static uint32_t run_fresh(struct sh_alloc *alloc, uint32_t run)
{
    if (run > alloc->slots_max - alloc->slots_high ||
        !records_charge(alloc, (uint64_t)alloc->slots_high + run))
        return 0;
    uint32_t slot = alloc->slots_high;
    alloc->slots_high += run;
    return slot;
}

/* Makes fresh huge pages a free run of at least so many slots. False: there is no room for them. */
static bool huge_open(struct sh_alloc *alloc, uint32_t run)
{
    uint32_t first = (alloc->slots_high + SH_HUGE_SLOTS - 1) / SH_HUGE_SLOTS * SH_HUGE_SLOTS;
    run = (run + SH_HUGE_SLOTS - 1) / SH_HUGE_SLOTS * SH_HUGE_SLOTS;
    if (first + run > alloc->slots_max || !records_charge(alloc, (uint64_t)first + run) ||
        !sh_budget_charge(alloc->budget, (uint64_t)run << SH_SLOT_BITS, alloc->may_dip))
        return false;
    uint32_t before = first - alloc->slots_high;
    alloc->slots_high = first + run;
    if (before > 0)
        sh_slots_give(alloc, first - before, before);
    sh_vm_huge(&alloc->vm, (uint64_t)first << SH_SLOT_BITS, (uint64_t)run << SH_SLOT_BITS);
    for (uint32_t slot = first; slot < first + run; slot++) {
        alloc->slots[slot].touched = (uint8_t)SH_SLOT_PAGES;
        alloc->slots[slot].is_huge = 1;
    }
    alloc->touched_bytes += (uint64_t)run << SH_SLOT_BITS;
    sh_slots_give(alloc, first, run);
    return true;
}

/* Takes the first slots of a free run. */
static uint32_t run_cut(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    uint32_t rest = alloc->slots[slot].run - run;
    if (rest > 0)
        run_insert(alloc, slot + run, rest);
    alloc->idle_pages -= run_touched(alloc, slot, run);
    return slot;
}

uint32_t sh_slots_take(struct sh_alloc *alloc, uint32_t run, bool for_pack)
{
    SH_ASSERT(run > 0);
    uint32_t slot = run_find(alloc, run);
    if (!slot && for_pack && !alloc->small_pages && alloc->touched_bytes >= SH_HUGE_FROM &&
        huge_open(alloc, run))
        slot = run_find(alloc, run);
    slot = slot ? run_cut(alloc, slot, run) : run_fresh(alloc, run);
    if (slot)
        alloc->slots[slot].run = run;
    return slot;
}

void sh_slots_give(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    SH_ASSERT(slot > 0 && slot + run <= alloc->slots_high);
    alloc->idle_pages += run_touched(alloc, slot, run);
    if (alloc->slots[slot - 1].state == SLOT_FREE) {
        uint32_t before = alloc->slots[slot - 1].run;
        slot -= before;
        run += before;
        run_remove(alloc, slot);
    }
    uint32_t after = slot + run;
    if (after < alloc->slots_high && alloc->slots[after].state == SLOT_FREE) {
        run += alloc->slots[after].run;
        run_remove(alloc, after);
    }
    run_insert(alloc, slot, run);
}

bool sh_slots_charge(struct sh_alloc *alloc, uint64_t pages)
{
    if (sh_budget_charge(alloc->budget, pages << SH_PAGE_BITS, alloc->may_dip))
        return true;
    if (alloc->idle_pages == 0)
        return false;
    sh_slots_trim(alloc);
    return sh_budget_charge(alloc->budget, pages << SH_PAGE_BITS, alloc->may_dip);
}

bool sh_slots_touch(struct sh_alloc *alloc, uint32_t slot, uint32_t from, uint64_t run_pages)
{
    uint64_t more = 0;
    uint32_t needs;
    for (uint32_t i = from; (needs = sh_slot_needs(run_pages, i)) > 0; i++) {
        uint32_t touched = alloc->slots[slot + i].touched;
        more += needs > touched ? needs - touched : 0;
    }
    if (more == 0)
        return true;
    if (!sh_slots_charge(alloc, more))
        return false;
    alloc->touched_bytes += more << SH_PAGE_BITS;
    for (uint32_t i = from; (needs = sh_slot_needs(run_pages, i)) > 0; i++)
        if (needs > alloc->slots[slot + i].touched)
            alloc->slots[slot + i].touched = (uint8_t)needs;
    return true;
}

bool sh_slots_discard(struct sh_alloc *alloc, uint64_t offset, uint64_t bytes)
{
    bool is_huge = false;
    uint32_t end = (uint32_t)((offset + bytes + SH_SLOT_BYTES - 1) >> SH_SLOT_BITS);
    for (uint32_t slot = (uint32_t)(offset >> SH_SLOT_BITS); slot < end; slot++) {
        is_huge |= alloc->slots[slot].is_huge;
        alloc->slots[slot].is_huge = 0;
    }
    /* Else the kernel could make the whole page resident again, unasked and uncharged. */
    if (is_huge && !sh_vm_small(&alloc->vm, offset, bytes))
        return false;
    return sh_vm_discard(&alloc->vm, offset, bytes);
}

/* Hands back what a run has touched; returns the pages that came free. */
static uint64_t run_trim(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    uint64_t pages = run_touched(alloc, slot, run);
    if (pages == 0)
        return 0;
    if (!sh_slots_discard(alloc, (uint64_t)slot << SH_SLOT_BITS, (uint64_t)run << SH_SLOT_BITS))
        return 0;
    for (uint32_t i = 0; i < run; i++)
        alloc->slots[slot + i].touched = 0;
    return pages;
}

void sh_slots_trim(struct sh_alloc *alloc)
{
    sh_lock_assert_held(&alloc->lock);
    if (alloc->idle_pages == 0)
        return;
    uint64_t pages = 0;
    for (unsigned bin = 0; bin < SH_RUN_BINS; bin++)
        for (uint32_t slot = alloc->runs[bin]; slot; slot = alloc->slots[slot].next)
            pages += run_trim(alloc, slot, alloc->slots[slot].run);
    SH_ASSERT(pages <= alloc->idle_pages);
    alloc->idle_pages -= pages;
    alloc->touched_bytes -= pages << SH_PAGE_BITS;
    sh_budget_refund(alloc->budget, pages << SH_PAGE_BITS);
}
