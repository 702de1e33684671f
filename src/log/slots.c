#include "log/slots.h"

#include <stdlib.h>

#include "base/assert.h"

enum shoal_err sh_log_slots_create(struct sh_log_slots *slots, uint32_t count, uint32_t bytes)
{
    SH_ASSERT(count && count < SH_SLOT_NONE && bytes > SH_SLOT_HEAD_BYTES);
    *slots = (struct sh_log_slots){.slots = calloc(count, sizeof *slots->slots),
                                   .count = count,
                                   .bytes = bytes,
                                   .free_first = SH_SLOT_NONE,
                                   .bare_first = SH_SLOT_NONE};
    return slots->slots ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_log_slots_destroy(struct sh_log_slots *slots)
{
    free(slots->slots);
    slots->slots = NULL;
}

static void add(struct sh_log_slots *slots, struct sh_log_slot_list *list, uint32_t slot,
                struct sh_log_slot facts)
{
    facts.next = list->first;
    facts.order = slots->taken++;
    slots->slots[slot] = facts;
    list->first = slot;
    list->count++;
}

/* Puts a slot to the end of a queue. */
static void queue_add(struct sh_log_slots *slots, uint32_t slot, uint32_t *first, uint32_t *last,
                      uint32_t *count)
{
    slots->slots[slot] = (struct sh_log_slot){.next = SH_SLOT_NONE};
    if (*first == SH_SLOT_NONE)
        *first = slot;
    else
        slots->slots[*last].next = slot;
    *last = slot;
    ++*count;
}

static uint32_t queue_take(const struct sh_log_slots *slots, uint32_t *first, uint32_t *count)
{
    uint32_t slot = *first;
    if (slot == SH_SLOT_NONE)
        return slot;
    *first = slots->slots[slot].next;
    --*count;
    return slot;
}

void sh_log_slots_free_add(struct sh_log_slots *slots, uint32_t slot)
{
    queue_add(slots, slot, &slots->free_first, &slots->free_last, &slots->free_count);
}

void sh_log_slots_bare_add(struct sh_log_slots *slots, uint32_t slot, bool may_have_room)
{
    queue_add(slots, slot, &slots->bare_first, &slots->bare_last, &slots->bare_count);
    slots->slots[slot].may_have_room = may_have_room;
    slots->left_count += may_have_room;
}

uint32_t sh_log_slots_free_take(struct sh_log_slots *slots)
{
    return queue_take(slots, &slots->free_first, &slots->free_count);
}

uint32_t sh_log_slots_bare_take(struct sh_log_slots *slots)
{
    uint32_t slot = queue_take(slots, &slots->bare_first, &slots->bare_count);
    if (slot != SH_SLOT_NONE)
        slots->left_count -= slots->slots[slot].may_have_room;
    return slot;
}

void sh_log_slots_find(struct sh_log_slots *slots, struct sh_log_slot_list *list, uint32_t slot,
                       const struct sh_log_slot_head *head)
{
    SH_ASSERT(slot < slots->count && !slots->slots[slot].kind && !slots->free_count &&
              !slots->bare_count);
    add(slots, list, slot,
        (struct sh_log_slot){.use = head->use,
                             .filled = slots->bytes,
                             .since = head->seconds,
                             .kind = (uint8_t)head->kind,
                             .is_found = true,
                             .is_closed = true});
}

void sh_log_slots_lose(struct sh_log_slots *slots, uint32_t slot, uint64_t zone)
{
    SH_ASSERT(slot < slots->count && !slots->slots[slot].kind);
    slots->slots[slot].kind = SH_SLOT_LOST;
    slots->slots[slot].use = zone;
    slots->lost_count++;
}

void sh_log_slots_begin(struct sh_log_slots *slots, uint64_t found_bytes)
{
    for (uint32_t i = 0; i < slots->count; i++) {
        if (!slots->slots[i].kind)
            sh_log_slots_bare_add(slots, i, (uint64_t)i * slots->bytes < found_bytes);
    }
}

uint32_t sh_log_slots_take(struct sh_log_slots *slots, struct sh_log_slot_list *list,
                           enum sh_log_slot_kind kind, uint64_t use, uint32_t seconds)
{
    uint32_t slot = sh_log_slots_free_take(slots);
    if (slot == SH_SLOT_NONE)
        return slot;
    add(slots, list, slot,
        (struct sh_log_slot){
            .use = use, .filled = SH_SLOT_HEAD_BYTES, .since = seconds, .kind = (uint8_t)kind});
    return slot;
}

uint32_t sh_log_slots_fit(const struct sh_log_slots *slots, const struct sh_log_slot_list *list,
                          enum sh_log_slot_kind kind, uint32_t bytes)
{
    uint32_t best = SH_SLOT_NONE, least = UINT32_MAX;
    SH_ASSERT(bytes <= slots->bytes - SH_SLOT_HEAD_BYTES);
    if (bytes >= slots->bytes / 4 * 3)
        return best;
    for (uint32_t i = list->first; i != SH_SLOT_NONE; i = slots->slots[i].next) {
        const struct sh_log_slot *slot = &slots->slots[i];
        uint32_t left = slots->bytes - slot->filled;
        if (slot->kind != kind || slot->is_closed || left < bytes || left - bytes >= least)
            continue;
        best = i;
        least = left - bytes;
    }
    return best;
}

void sh_log_slots_give(struct sh_log_slots *slots, struct sh_log_slot_list *list, uint32_t slot)
{
    uint32_t *link = &list->first;
    while (*link != slot) {
        SH_ASSERT(*link != SH_SLOT_NONE);
        link = &slots->slots[*link].next;
    }
    *link = slots->slots[slot].next;
    list->count--;
    sh_log_slots_free_add(slots, slot);
}
