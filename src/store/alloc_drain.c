/* Emptying spans: which ones, and taking them back. */
#include <string.h>

#include "store/slots_int.h"

#define FILLS 32 /* spans are told apart by so many degrees of being full */

static uint32_t capacity_of(unsigned class)
{
    return (uint32_t)(SH_SLOT_BYTES / sh_alloc_class_bytes(class));
}

static unsigned fill_of(const struct sh_slot *span, uint32_t capacity)
{
    return (unsigned)span->used * FILLS / (capacity + 1);
}

/* Marks the class's emptiest spans for whose blocks the others have room. */
static uint32_t class_drain(struct sh_alloc *alloc, unsigned class)
{
    uint32_t capacity = capacity_of(class);
    uint32_t spans[FILLS] = {0};
    uint64_t blocks = 0;
    uint32_t count = 0;
    for (uint32_t slot = alloc->rooms[class]; slot; slot = alloc->slots[slot].next) {
        spans[fill_of(&alloc->slots[slot], capacity)]++;
        blocks += alloc->slots[slot].used;
        count++;
    }
    uint32_t spare = count - (uint32_t)((blocks + capacity - 1) / capacity);
    uint32_t left = spare;
    for (unsigned fill = 0; fill < FILLS && left > 0; fill++) {
        for (uint32_t slot = alloc->rooms[class], next; slot && left > 0; slot = next) {
            struct sh_slot *span = &alloc->slots[slot];
            next = span->next;
            if (spans[fill] == 0)
                break;
            if (fill_of(span, capacity) != fill)
                continue;
            sh_slots_unlink(alloc, &alloc->rooms[class], slot);
            /* relaxed: a hint to those without the lock */
            atomic_store_explicit(&span->is_draining, 1, memory_order_relaxed);
            left--;
        }
    }
    return spare - left;
}

uint32_t sh_alloc_drain_begin(struct sh_alloc *alloc)
{
    uint32_t marked = 0;
    for (unsigned class = 1; class < SH_CLASSES; class ++) {
        sh_lock_take(&alloc->lock);
        marked += class_drain(alloc, class);
        sh_lock_release(&alloc->lock);
    }
    return marked;
}

/* Slots looked at with the lock held. */
#define END_BATCH 1024

void sh_alloc_drain_end(struct sh_alloc *alloc)
{
    bool more = true;
    for (uint32_t slot = 1; more;) {
        sh_lock_take(&alloc->lock);
        for (unsigned i = 0; i < END_BATCH && slot < alloc->slots_high; i++, slot++) {
            struct sh_slot *span = &alloc->slots[slot];
            if (span->state != SLOT_SPAN || !span->is_draining)
                continue;
            atomic_store_explicit(&span->is_draining, 0, memory_order_relaxed);
            if (span->used < capacity_of(span->class))
                sh_slots_link(alloc, &alloc->rooms[span->class], slot);
        }
        more = slot < alloc->slots_high;
        sh_lock_release(&alloc->lock);
    }
    sh_alloc_trim(alloc);
}
