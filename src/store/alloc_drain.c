/* Emptying packs: which ones, and taking them back. */
#include <string.h>

#include "base/assert.h"
#include "store/slots_int.h"

#define FILLS 64 /* packs are told apart by so many degrees of being full */
/* Fuller ones are not worth the copying. */
#define FILL_MOST (FILLS - 2)
/* Slots looked at with the lock held. */
#define BATCH 1024

/* Bytes of memory that a pack keeps touched. */
static uint64_t pack_touched(const struct sh_alloc *alloc, uint32_t first)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < alloc->slots[first].run; i++)
        pages += alloc->slots[first + i].touched;
    return pages << SH_PAGE_BITS;
}

static unsigned pack_fill(const struct sh_alloc *alloc, uint32_t first)
{
    return (unsigned)(alloc->slots[first].bytes * (uint64_t)FILLS /
                      (pack_touched(alloc, first) + 1));
}

static void pack_mark(struct sh_alloc *alloc, uint32_t first, uint8_t is_draining)
{
    for (uint32_t i = 0; i < alloc->slots[first].run; i++)
        /* relaxed: a hint to those without the lock */
        atomic_store_explicit(&alloc->slots[first + i].is_draining, is_draining,
                              memory_order_relaxed);
}

static bool is_filling(const struct sh_alloc *alloc, uint32_t first)
{
    for (unsigned kind = 0; kind < SH_PACK_KINDS; kind++)
        if (alloc->filling[kind] == first)
            return true;
    return false;
}

/* Calls visit for every pack that is not being filled, a batch of slots under the lock at a time.
 */
static void packs_visit(struct sh_alloc *alloc,
                        void (*visit)(struct sh_alloc *alloc, uint32_t first, void *arg), void *arg)
{
    bool more = true;
    for (uint32_t slot = 1; more;) {
        sh_lock_take(&alloc->lock);
        for (unsigned i = 0; i < BATCH && slot < alloc->slots_high; i++, slot++) {
            const struct sh_slot *record = &alloc->slots[slot];
            if (record->state == SLOT_PACK && record->first == slot && !is_filling(alloc, slot))
                visit(alloc, slot, arg);
        }
        more = slot < alloc->slots_high;
        sh_lock_release(&alloc->lock);
    }
}

struct plan {
    uint64_t bytes[FILLS]; /* in packs of each degree */
    uint64_t room;         /* to copy to */
    uint32_t marked;
};

static void plan_add(struct sh_alloc *alloc, uint32_t first, void *arg)
{
    struct plan *plan = arg;
    plan->bytes[pack_fill(alloc, first)] += alloc->slots[first].bytes;
}

static void plan_mark(struct sh_alloc *alloc, uint32_t first, void *arg)
{
    struct plan *plan = arg;
    unsigned fill = pack_fill(alloc, first);
    uint32_t bytes = alloc->slots[first].bytes;
    /* Where there is not room for all of a degree, some of its packs are marked. */
    if (fill > FILL_MOST || plan->bytes[fill] == 0 || bytes > plan->bytes[fill])
        return;
    plan->bytes[fill] -= bytes;
    pack_mark(alloc, first, 1);
    plan->marked++;
}

uint32_t sh_alloc_drain_begin(struct sh_alloc *alloc)
{
    struct plan plan = {.marked = 0};
    packs_visit(alloc, plan_add, &plan);
    sh_lock_take(&alloc->lock);
    uint64_t used = atomic_load_explicit(&alloc->budget->used, memory_order_relaxed);
    plan.room = alloc->budget->max - used + (alloc->idle_pages << SH_PAGE_BITS);
    sh_bins_empty(alloc);
    sh_lock_release(&alloc->lock);
    for (unsigned fill = 0; fill < FILLS; fill++) {
        if (plan.bytes[fill] > plan.room)
            plan.bytes[fill] = plan.room;
        plan.room -= plan.bytes[fill];
    }
    packs_visit(alloc, plan_mark, &plan);
    return plan.marked;
}

static void unmark(struct sh_alloc *alloc, uint32_t first, void *arg)
{
    (void)arg;
    if (alloc->slots[first].is_draining)
        pack_mark(alloc, first, 0);
}

void sh_alloc_drain_end(struct sh_alloc *alloc)
{
    packs_visit(alloc, unmark, NULL);
    sh_alloc_trim(alloc);
}
