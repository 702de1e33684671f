#include "store/slots_int.h"

#include "base/assert.h"

/* How many runs of the bin that may or may not be long enough are looked at. */
#define BIN_PROBES 16

/* A process has 65530 mappings by default, for all that it does. */
#define SPLITS_MOST 16000
/* From so many on, pages get small in pieces of so many slots. */
#define SPLITS_FINE 4000
#define COARSE_SLOTS 1024u
/* Bytes of free slots that are made ready ahead of use. */
#define READY_LEAST (2 * SH_HUGE_BYTES)
#define READY_MOST (16 * SH_HUGE_BYTES)

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

/* Where a free run is linked. */
static uint32_t *bin_of(struct sh_alloc *alloc, uint32_t slot)
{
    const struct sh_slot *first = &alloc->slots[slot];
    SH_ASSERT(first->run > 0);
    return &alloc->runs[first->end > 0][31 - __builtin_clz(first->run)];
}

/* Makes a run free; slots from `end` on have no touched pages. */
static void run_insert(struct sh_alloc *alloc, uint32_t slot, uint32_t run, uint32_t end)
{
    struct sh_slot *first = &alloc->slots[slot];
    struct sh_slot *last = &alloc->slots[slot + run - 1];
    SH_ASSERT(end <= run);
    while (end > 0 && alloc->slots[slot + end - 1].touched == 0)
        end--;
    first->state = SLOT_FREE;
    last->state = SLOT_FREE;
    first->run = run;
    last->run = run;
    first->end = end;
    run_link(alloc, bin_of(alloc, slot), slot);
}

static void run_remove(struct sh_alloc *alloc, uint32_t slot)
{
    SH_ASSERT(alloc->slots[slot].state == SLOT_FREE);
    run_unlink(alloc, bin_of(alloc, slot), slot);
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
    uint32_t found = 0;
    for (unsigned touched = 2; !found && touched-- > 0;) { /* first those that cost least */
        const uint32_t *bins = alloc->runs[touched];
        unsigned bin = 31 - (unsigned)__builtin_clz(run);
        found = bins[bin];
        for (unsigned probe = 0; found && alloc->slots[found].run < run; probe++)
            found = probe < BIN_PROBES ? alloc->slots[found].next : 0;
        while (!found && ++bin < SH_RUN_BINS)
            found = bins[bin];
    }
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

/* Fresh huge pages of at least so many slots, charged, which are nobody's yet. 0: there is no room for
 * them. */
static uint32_t huge_claim(struct sh_alloc *alloc, uint32_t run)
{
    uint32_t first = (alloc->slots_high + SH_HUGE_SLOTS - 1) / SH_HUGE_SLOTS * SH_HUGE_SLOTS;
    SH_ASSERT(run % SH_HUGE_SLOTS == 0);
    uint32_t splits = alloc->slots[first - 1].is_huge ? 0 : 2;
    if (alloc->splits + splits > SPLITS_MOST || first + run > alloc->slots_max ||
        !records_charge(alloc, (uint64_t)first + run) ||
        !sh_budget_charge(alloc->budget, (uint64_t)run << SH_SLOT_BITS, alloc->may_dip))
        return 0;
    uint32_t before = first - alloc->slots_high;
    alloc->slots_high = first + run;
    if (before > 0)
        sh_slots_give(alloc, first - before, before);
    sh_vm_huge(&alloc->vm, (uint64_t)first << SH_SLOT_BITS, (uint64_t)run << SH_SLOT_BITS);
    for (uint32_t slot = first; slot < first + run; slot++) {
        alloc->slots[slot].touched = (uint8_t)SH_SLOT_PAGES;
        alloc->slots[slot].is_huge = 1;
    }
    alloc->splits += splits;
    alloc->touched_bytes += (uint64_t)run << SH_SLOT_BITS;
    return first;
}

/* Whether packs get huge pages by now. */
static bool is_huge(const struct sh_alloc *alloc)
{
    return !alloc->small_pages && alloc->touched_bytes >= SH_HUGE_FROM;
}

/* Makes huge pages a free run of at least so many slots, if there is room for them. */
static void huge_open(struct sh_alloc *alloc, uint32_t run)
{
    run = (run + SH_HUGE_SLOTS - 1) / SH_HUGE_SLOTS * SH_HUGE_SLOTS;
    uint32_t first = huge_claim(alloc, run);
    if (first)
        sh_slots_give(alloc, first, run);
}

/* Takes the first slots of a free run. */
static uint32_t run_cut(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    uint32_t rest = alloc->slots[slot].run - run;
    uint32_t end = alloc->slots[slot].end;
    if (rest > 0)
        run_insert(alloc, slot + run, rest, end > run ? end - run : 0);
    alloc->idle_pages -= run_touched(alloc, slot, run);
    return slot;
}

/* Notes by how much the budget is short of so many pages. */
static void shortage_note(struct sh_alloc *alloc, uint64_t pages)
{
    const struct sh_budget *budget = alloc->budget;
    uint64_t room = alloc->may_dip ? budget->max : budget->max - budget->reserve;
    uint64_t wanted =
        atomic_load_explicit(&budget->used, memory_order_relaxed) + (pages << SH_PAGE_BITS);
    /* Others may have given back what was missing a moment ago. */
    alloc->short_pages = wanted > room ? sh_pages(wanted - room) : 1;
}

uint32_t sh_slots_take(struct sh_alloc *alloc, uint32_t run, bool for_pack)
{
    SH_ASSERT(run > 0);
    /* Free slots that the reserve paid for are not for everybody. */
    if (!alloc->may_dip && sh_budget_has_dipped(alloc->budget)) {
        shortage_note(alloc, 0);
        if (sh_slots_must_trim(alloc))
            return 0;
    }
    uint32_t slot = run_find(alloc, run);
    if (!slot && for_pack && is_huge(alloc) && !alloc->pages_wanted) {
        huge_open(alloc, run);
        slot = run_find(alloc, run);
    }
    slot = slot ? run_cut(alloc, slot, run) : run_fresh(alloc, run);
    if (slot)
        alloc->slots[slot].run = run;
    if (for_pack && alloc->pages_wanted && sh_slots_are_few(alloc))
        alloc->pages_wanted(alloc->pages_arg);
    return slot;
}

void sh_slots_give(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    SH_ASSERT(slot > 0 && slot + run <= alloc->slots_high);
    uint64_t pages = run_touched(alloc, slot, run);
    uint32_t end = pages > 0 ? run : 0;
    alloc->idle_pages += pages;
    if (alloc->slots[slot - 1].state == SLOT_FREE) {
        uint32_t before = alloc->slots[slot - 1].run;
        slot -= before;
        run += before;
        end = end > 0 ? end + before : alloc->slots[slot].end;
        run_remove(alloc, slot);
    }
    uint32_t after = slot + run;
    if (after < alloc->slots_high && alloc->slots[after].state == SLOT_FREE) {
        end = alloc->slots[after].end > 0 ? run + alloc->slots[after].end : end;
        run += alloc->slots[after].run;
        run_remove(alloc, after);
    }
    run_insert(alloc, slot, run, end);
}

bool sh_slots_charge(struct sh_alloc *alloc, uint64_t pages)
{
    if (sh_budget_charge(alloc->budget, pages << SH_PAGE_BITS, alloc->may_dip))
        return true;
    shortage_note(alloc, pages);
    return false;
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

/* Slots from first on, to end and including it, that differ from the one before in is_huge. */
static uint32_t splits_count(const struct sh_alloc *alloc, uint32_t first, uint32_t end)
{
    uint32_t count = 0;
    bool before = first > 0 && alloc->slots[first - 1].is_huge;
    for (uint32_t slot = first; slot <= end; slot++) {
        bool is_huge = slot < alloc->slots_high && alloc->slots[slot].is_huge;
        count += is_huge != before;
        before = is_huge;
    }
    return count;
}

bool sh_slots_small(struct sh_alloc *alloc, uint32_t slot, uint32_t run)
{
    bool is_huge = false;
    for (uint32_t i = slot; i < slot + run; i++)
        is_huge |= alloc->slots[i].is_huge;
    if (!is_huge)
        return true;
    uint32_t grain = alloc->splits < SPLITS_FINE ? SH_HUGE_SLOTS : COARSE_SLOTS;
    uint32_t first = slot / grain * grain;
    uint32_t end = (slot + run + grain - 1) / grain * grain;
    if (end > alloc->slots_high)
        end = alloc->slots_high;
    uint32_t before = splits_count(alloc, first, end);
    uint32_t after = (first > 0 && alloc->slots[first - 1].is_huge) +
                     (end < alloc->slots_high && alloc->slots[end].is_huge);
    if (after > before && alloc->splits + after - before > SPLITS_MOST)
        return false;
    if (!sh_vm_small(&alloc->vm, (uint64_t)first << SH_SLOT_BITS,
                     (uint64_t)(end - first) << SH_SLOT_BITS))
        return false;
    for (uint32_t i = first; i < end; i++)
        alloc->slots[i].is_huge = 0;
    alloc->splits += after - before;
    return true;
}

/* --- Huge pages ahead of use ------------------------------------------------------------------- */

/* A 32nd of what there is, so that a load that goes on finds some, and two huge pages at least. */
static uint64_t ready_pages(const struct sh_alloc *alloc)
{
    uint64_t bytes = alloc->touched_bytes / 32;
    bytes = bytes < READY_LEAST ? READY_LEAST : bytes;
    return sh_pages(bytes < READY_MOST ? bytes : READY_MOST);
}

bool sh_slots_are_few(const struct sh_alloc *alloc)
{
    const struct sh_budget *budget = alloc->budget;
    /* relaxed: charging looks again */
    uint64_t used = atomic_load_explicit(&budget->used, memory_order_relaxed);
    return is_huge(alloc) && !alloc->is_readying && alloc->idle_pages < ready_pages(alloc) &&
           used + 2 * SH_HUGE_BYTES <= budget->max - budget->reserve;
}

bool sh_slots_ready(struct sh_alloc *alloc)
{
    sh_lock_assert_held(&alloc->lock);
    if (!sh_slots_are_few(alloc))
        return false;
    bool may_dip = alloc->may_dip;
    alloc->may_dip = false;
    uint32_t first = huge_claim(alloc, SH_HUGE_SLOTS);
    alloc->may_dip = may_dip;
    if (!first)
        return false;
    alloc->is_readying = true;
    alloc->held_pages += SH_HUGE_SLOTS * SH_SLOT_PAGES;
    sh_lock_release(&alloc->lock);
    sh_vm_populate(&alloc->vm, (uint64_t)first << SH_SLOT_BITS, SH_HUGE_BYTES);
    sh_lock_take(&alloc->lock);
    alloc->is_readying = false;
    alloc->held_pages -= SH_HUGE_SLOTS * SH_SLOT_PAGES;
    sh_slots_give(alloc, first, SH_HUGE_SLOTS);
    return true;
}

/* --- Trimming ------------------------------------------------------------------------------ */

/* Slots that go to the kernel in one go, a huge page's: 200 us in small pages. */
#define PIECE_SLOTS SH_HUGE_SLOTS

/* The first of some slots that touched pages, of a free run, which are nobody's from now on; 0:
 * none. They are the run's last, as takers begin with its first. */
static uint32_t piece_take(struct sh_alloc *alloc, uint64_t pages_wanted, uint32_t *run_out)
{
    uint32_t slot = 0;
    for (unsigned bin = SH_RUN_BINS; !slot && bin-- > 0;)
        slot = alloc->runs[1][bin];
    if (!slot)
        return 0;
    run_remove(alloc, slot);
    uint64_t pages = 0;
    uint32_t run = alloc->slots[slot].run, end = alloc->slots[slot].end, from = end;
    while (from > 0 && end - from < PIECE_SLOTS && pages < pages_wanted)
        pages += alloc->slots[slot + --from].touched;
    if (from > 0)
        run_insert(alloc, slot, from, from);
    if (run > end)
        run_insert(alloc, slot + end, run - end, 0);
    alloc->slots[slot + from].state = SLOT_UNUSED;
    alloc->slots[slot + end - 1].state = SLOT_UNUSED;
    alloc->idle_pages -= pages;
    alloc->held_pages += pages;
    *run_out = end - from;
    return slot + from;
}

uint64_t sh_slots_trim(struct sh_alloc *alloc, uint64_t pages_wanted)
{
    sh_lock_assert_held(&alloc->lock);
    SH_ASSERT(pages_wanted > 0);
    uint32_t run;
    uint32_t slot = piece_take(alloc, pages_wanted, &run);
    if (!slot)
        return 0;
    uint64_t pages = run_touched(alloc, slot, run);
    bool is_free = sh_slots_small(alloc, slot, run);
    sh_lock_release(&alloc->lock);
    is_free = is_free && sh_vm_discard(&alloc->vm, (uint64_t)slot << SH_SLOT_BITS,
                                       (uint64_t)run << SH_SLOT_BITS);
    sh_lock_take(&alloc->lock);
    for (uint32_t i = 0; is_free && i < run; i++)
        alloc->slots[slot + i].touched = 0;
    alloc->held_pages -= pages;
    sh_slots_give(alloc, slot, run);
    if (!is_free)
        return 0;
    alloc->touched_bytes -= pages << SH_PAGE_BITS;
    sh_budget_refund(alloc->budget, pages << SH_PAGE_BITS);
    return pages;
}
