/* Emptying packs: which ones, and taking them back. */
#include <string.h>

#include "base/assert.h"
#include "store/slots_int.h"

#define FILLS SH_DRAIN_FILLS
/* Fuller ones are not worth the copying. */
#define FILL_MOST (FILLS - 2)
/* The part of all holes that is taken to fit what is moved. */
#define HOLES_SHARE 16
/* Slots looked at, or blocks linked, in one step, with the lock held. */
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

/* Calls visit for the packs of the next slots that are not being filled. False: those were the
 * last, and the next are the first again. */
static bool packs_visit(struct sh_alloc *alloc, struct sh_drain *drain,
                        void (*visit)(struct sh_alloc *alloc, uint32_t first,
                                      struct sh_drain *drain))
{
    sh_lock_take(&alloc->lock);
    for (unsigned i = 0; i < BATCH && drain->slot < alloc->slots_high; i++, drain->slot++) {
        const struct sh_slot *record = &alloc->slots[drain->slot];
        if (record->state == SLOT_PACK && record->first == drain->slot &&
            !is_filling(alloc, drain->slot))
            visit(alloc, drain->slot, drain);
    }
    bool more = drain->slot < alloc->slots_high;
    sh_lock_release(&alloc->lock);
    if (!more)
        drain->slot = 1;
    return more;
}

void sh_drain_init(struct sh_drain *drain)
{
    memset(drain, 0, sizeof *drain);
    drain->slot = 1;
    drain->emptiest = FILLS;
    drain->trim_pages = UINT64_MAX;
}

static void plan_add(struct sh_alloc *alloc, uint32_t first, struct sh_drain *plan)
{
    unsigned fill = pack_fill(alloc, first);
    plan->bytes[fill] += alloc->slots[first].bytes;
    plan->emptiest = fill < plan->emptiest ? fill : plan->emptiest;
    plan->holes += pack_touched(alloc, first) - alloc->slots[first].bytes;
}

static void plan_mark(struct sh_alloc *alloc, uint32_t first, struct sh_drain *plan)
{
    unsigned fill = pack_fill(alloc, first);
    uint32_t bytes = alloc->slots[first].bytes;
    bool is_first = fill == plan->emptiest && plan->marked == 0;
    /* Where there is not room for all of a degree, some of its packs are marked, and one in any
     * case: others' holes may do. */
    if (fill > FILL_MOST || (bytes > plan->bytes[fill] && !is_first))
        return;
    plan->bytes[fill] -= bytes < plan->bytes[fill] ? bytes : plan->bytes[fill];
    pack_mark(alloc, first, 1);
    plan->marked++;
}

/* Decides how much of each degree is to be marked. */
static void plan_make(struct sh_alloc *alloc, struct sh_drain *plan)
{
    bool is_short = false;
    sh_lock_take(&alloc->lock);
    uint64_t used = atomic_load_explicit(&alloc->budget->used, memory_order_relaxed);
    plan->room = alloc->budget->max - used + (alloc->idle_pages << SH_PAGE_BITS);
    sh_lock_release(&alloc->lock);
    /* Nobody knows which holes fit, and a pack that is not emptied whole frees nothing: they count
     * for little, but without any a store that has used up its reserve would stay as it is. */
    if (plan->room < plan->holes / HOLES_SHARE)
        plan->room = plan->holes / HOLES_SHARE;
    for (unsigned fill = 0; fill <= FILL_MOST; fill++) {
        if (plan->bytes[fill] > plan->room) {
            plan->bytes[fill] = plan->room;
            is_short = true;
        }
        plan->room -= plan->bytes[fill];
    }
    alloc->is_short = is_short;
}

enum { STAGE_ADD, STAGE_MARK, STAGE_MARKED, STAGE_UNPARK, STAGE_TRIM };

bool sh_alloc_drain_begin(struct sh_alloc *alloc, struct sh_drain *drain)
{
    if (drain->stage == STAGE_ADD) {
        if (!packs_visit(alloc, drain, plan_add)) {
            plan_make(alloc, drain);
            drain->stage = STAGE_MARK;
        }
        return true;
    }
    SH_ASSERT(drain->stage == STAGE_MARK);
    if (packs_visit(alloc, drain, plan_mark))
        return true;
    drain->stage = STAGE_MARKED;
    return false;
}

static void unmark(struct sh_alloc *alloc, uint32_t first, struct sh_drain *drain)
{
    (void)drain;
    if (alloc->slots[first].is_draining)
        pack_mark(alloc, first, 0);
}

static bool unpark(struct sh_alloc *alloc)
{
    bool more = true;
    sh_lock_take(&alloc->lock);
    for (unsigned i = 0; i < BATCH && more; i++)
        more = sh_bins_unpark(alloc);
    sh_lock_release(&alloc->lock);
    return more;
}

bool sh_alloc_drain_end(struct sh_alloc *alloc, struct sh_drain *drain)
{
    SH_ASSERT(drain->stage >= STAGE_MARKED);
    if (drain->stage == STAGE_MARKED) {
        if (!packs_visit(alloc, drain, unmark))
            drain->stage = STAGE_UNPARK;
        return true;
    }
    if (drain->stage == STAGE_UNPARK) {
        if (!unpark(alloc))
            drain->stage = STAGE_TRIM;
        return true;
    }
    return sh_alloc_trim_piece(alloc, &drain->trim_pages);
}
