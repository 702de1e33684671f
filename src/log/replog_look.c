/* The log tells people of its zones and slots, without reading the disk.
 *
 * A cursor is a bucket (16 bits), the place of a zone in it (16), and how many of the zone's slots are passed over (32). */
#include "base/assert.h"
#include "log/replog_int.h"

struct cursor {
    uint32_t bucket, place, skip;
};

static struct cursor cursor_read(uint64_t cursor)
{
    return (struct cursor){.bucket = (uint32_t)(cursor >> 48),
                           .place = (uint32_t)(cursor >> 32) & UINT16_MAX,
                           .skip = (uint32_t)cursor};
}

static uint64_t cursor_of(const struct cursor *cursor)
{
    return (uint64_t)cursor->bucket << 48 | (uint64_t)cursor->place << 32 | cursor->skip;
}

/* The zone at the cursor, or the next one; NULL: there is none any more. */
static const struct sh_replog_zone *zone_at(const struct sh_replog *log, struct cursor *cursor)
{
    for (; cursor->bucket < SH_REPLOG_BUCKETS; cursor->bucket++, cursor->place = cursor->skip = 0) {
        const struct sh_replog_zone *zone = log->buckets[cursor->bucket];
        for (uint32_t i = 0; zone && i < cursor->place; i++)
            zone = zone->next;
        if (zone && cursor->place < UINT16_MAX)
            return zone;
    }
    return NULL;
}

static void next_zone(struct cursor *cursor)
{
    cursor->place++;
    cursor->skip = 0;
}

static struct sh_replog_look_zone zone_look(const struct sh_replog *log,
                                            const struct sh_replog_zone *zone)
{
    struct sh_replog_look_zone look = {.id = zone->id,
                                       .owner = zone->owner,
                                       .known = sh_replog_zone_known(zone),
                                       .slots = zone->slots.count,
                                       .slots_max = zone->slots_max,
                                       .damage = sh_replog_zone_damage(zone)};
    if (look.known.is_added) {
        look.next = sh_replog_next(zone);
        look.handed = sh_replog_handed(zone);
        look.durable = sh_replog_durable(zone);
    }
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next)
        look.slot_bytes += log->slots.slots[i].filled;
    return look;
}

size_t sh_replog_look_zones(const struct sh_replog *log, uint64_t *cursor_inout,
                            struct sh_replog_look_zone *zones_out, size_t room)
{
    SH_ASSERT(room > 0);
    struct cursor cursor = cursor_read(*cursor_inout);
    const struct sh_replog_zone *zone;
    size_t count = 0;
    while ((zone = zone_at(log, &cursor)) && count < room) {
        if (!zone->is_dropped)
            zones_out[count++] = zone_look(log, zone);
        next_zone(&cursor);
    }
    *cursor_inout = zone ? cursor_of(&cursor) : 0;
    return count;
}

size_t sh_replog_look_slots(const struct sh_replog *log, uint64_t *cursor_inout,
                            struct sh_replog_look_slot *slots_out, size_t room)
{
    SH_ASSERT(room > 0);
    struct cursor cursor = cursor_read(*cursor_inout);
    const struct sh_replog_zone *zone;
    size_t count = 0;
    while ((zone = zone_at(log, &cursor)) && count < room) {
        uint32_t at = zone->slots.first;
        for (uint32_t i = 0; at != SH_SLOT_NONE && i < cursor.skip; i++)
            at = log->slots.slots[at].next;
        for (; at != SH_SLOT_NONE && count < room; cursor.skip++) {
            const struct sh_log_slot *slot = &log->slots.slots[at];
            slots_out[count++] = (struct sh_replog_look_slot){.slot = at,
                                                              .zone = zone->id,
                                                              .kind = slot->kind,
                                                              .filled_bytes = slot->filled,
                                                              .since_seconds = slot->since,
                                                              .pending = slot->pending,
                                                              .is_found = slot->is_found,
                                                              .is_closed = slot->is_closed};
            at = slot->next;
        }
        if (at == SH_SLOT_NONE)
            next_zone(&cursor);
    }
    *cursor_inout = zone ? cursor_of(&cursor) : 0;
    return count;
}

struct sh_replog_look sh_replog_look(const struct sh_replog *log)
{
    return (struct sh_replog_look){.buffer_bytes = log->config.buffer_bytes,
                                   .batch_bytes = log->config.batch_bytes,
                                   .slot_bytes = log->head.slot_bytes,
                                   .primary_bytes =
                                       (uint64_t)log->head.primary_blocks * SH_SLOT_HEAD_BYTES,
                                   .file_bytes = sh_log_file_bytes(&log->head)};
}
