/* Which slots of a zone the cleaner reads, and which it cleans. */
#include <string.h>

#include "log/replog_clean_int.h"
#include "log/replog_roll_int.h"

bool sh_replog_clean_has_found(const struct sh_replog_clean *clean)
{
    const struct sh_replog *log = clean->zone->log;
    uint32_t i = clean->zone->slots.first;
    while (i != SH_SLOT_NONE && !log->slots.slots[i].is_found)
        i = log->slots.slots[i].next;
    return i != SH_SLOT_NONE;
}

/* Whether something may be there twice, as a cleaning has failed that had copied some: in slots that were there then. */
static bool has_twice(const struct sh_replog_clean *clean)
{
    const struct sh_replog_zone *zone = clean->zone;
    const struct sh_log_slot *slots = zone->log->slots.slots;
    uint32_t i = zone->slots.first;
    while (i != SH_SLOT_NONE &&
           (slots[i].kind == SH_SLOT_VERSIONS || slots[i].order >= zone->twice_order))
        i = slots[i].next;
    return i != SH_SLOT_NONE;
}

/* Whether the cleaner reads a slot to know the versions: one of the version log. That lacks those of an epoch that a crash has ended; so as long as
 * there are slots from before, all entries from before are read too, wherever they are now. It also tells which of them are there twice: a crash
 * leaves both what was cleaned and what had been copied by then, and a start puts into slots what is in slots already. */
static bool tells_versions(const struct sh_replog_zone *zone, const struct sh_log_slot *slot,
                           bool is_all_known)
{
    (void)zone;
    return slot->kind == SH_SLOT_VERSIONS ||
           (!is_all_known && (slot->is_found || slot->kind == SH_SLOT_SURVIVORS));
}

/* All that it has is durable without a gap, so that no later life takes its numbers again; and in slots without a gap, so that a span can tell so
 * before it is given away (replog_roll.c). Where its last write has pieces elsewhere, those before them are in slots: what only the primary log has is
 * durable only while no batch is on its way (sh_replog_zone_settle). */
static bool can_be_cleaned(const struct sh_replog_zone *zone, const struct sh_log_slot *slot,
                           bool unused)
{
    (void)unused;
    if (slot->kind == SH_SLOT_VERSIONS || slot->is_found)
        return slot->kind != SH_SLOT_VERSIONS;
    bool is_slotted = slot->kind != SH_SLOT_ENTRIES ||
                      slot->end - slot->ends_in_pieces <= sh_replog_zone_slotted(zone) >> 16;
    return slot->end <= zone->durable && is_slotted;
}

static bool is_old_and_can_be(const struct sh_replog_zone *zone, const struct sh_log_slot *slot,
                              bool unused)
{
    return sh_replog_eon_is_old(zone, slot) && can_be_cleaned(zone, slot, unused);
}

static void heap_sink(uint64_t *heap, size_t at, size_t count)
{
    uint64_t moved = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= moved)
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Heap sort: the C library's qsort may allocate. */
static void sort(uint64_t *values, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        heap_sink(values, i, count);
    for (size_t left = count; left > 1; left--) {
        uint64_t largest = values[0];
        values[0] = values[left - 1];
        values[left - 1] = largest;
        heap_sink(values, 0, left - 1);
    }
}

/* Lists slots of the zone on which nothing is on its way, the oldest first, with room for as many as are chosen. */
static void slots_list(struct sh_replog_clean *clean,
                       bool (*takes)(const struct sh_replog_zone *zone,
                                     const struct sh_log_slot *slot, bool is_all_known))
{
    bool is_all_known = !sh_replog_clean_has_found(clean) && !has_twice(clean);
    struct sh_replog *log = clean->zone->log;
    unsigned count = 0;
    for (uint32_t i = clean->zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next) {
        const struct sh_log_slot *slot = &log->slots.slots[i];
        if (!slot->pending && takes(clean->zone, slot, is_all_known))
            clean->listed[count++] = (uint64_t)slot->order << 32 | i;
    }
    sort(clean->listed, count);
    for (unsigned i = 0; i < count; i++)
        clean->slots[i] = (uint32_t)clean->listed[i];
    clean->count = count;
}

void sh_replog_clean_list_tellers(struct sh_replog_clean *clean)
{
    slots_list(clean, tells_versions);
}

/* They are chosen before anything is read: what is kept elsewhere is known once all has been read. */
void sh_replog_clean_choose(struct sh_replog_clean *clean)
{
    slots_list(clean, clean->is_of_eon ? is_old_and_can_be : can_be_cleaned);
    unsigned half = clean->is_of_eon ? clean->count : (clean->count + 1) / 2;
    clean->chosen_count = half < SH_REPLOG_CLEAN_SLOTS ? half : SH_REPLOG_CLEAN_SLOTS;
    if (!clean->is_of_eon)
        sh_replog_select_slots(clean->zone, clean->slots, clean->count, clean->chosen_count);
    memcpy(clean->chosen, clean->slots, clean->chosen_count * sizeof *clean->chosen);
}

bool sh_replog_clean_is_chosen(const struct sh_replog_clean *clean, uint32_t slot)
{
    for (unsigned i = 0; i < clean->chosen_count; i++) {
        if (clean->chosen[i] == slot)
            return true;
    }
    return false;
}

/* Something may have been written to one since it was chosen. */
void sh_replog_clean_list_chosen(struct sh_replog_clean *clean, unsigned most)
{
    const struct sh_log_slot *slots = clean->zone->log->slots.slots;
    clean->count = 0;
    for (unsigned i = 0; i < clean->chosen_count && clean->count < most; i++) {
        const struct sh_log_slot *slot = &slots[clean->chosen[i]];
        if (!slot->pending && can_be_cleaned(clean->zone, slot, false))
            clean->slots[clean->count++] = clean->chosen[i];
    }
}

/* The slots that were begun first, for may_go. */
void sh_replog_clean_since_find(struct sh_replog_clean *clean)
{
    const struct sh_replog *log = clean->zone->log;
    clean->since_least = clean->since_next = UINT32_MAX;
    for (uint32_t i = clean->zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next) {
        const struct sh_log_slot *slot = &log->slots.slots[i];
        uint32_t since =
            slot->is_found
                ? 0
                : slot->since; /* of an earlier process, whose clock may have been another */
        if (slot->kind == SH_SLOT_VERSIONS || since >= clean->since_next)
            continue;
        clean->since_next = since < clean->since_least ? clean->since_least : since;
        if (since < clean->since_least)
            clean->since_least = since;
    }
}
