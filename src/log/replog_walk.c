/* A walk over the entries of a slot that was read: span by span, over what a crash has torn or what is damaged. */
#include "base/assert.h"
#include "base/log.h"
#include "log/replog_int.h"

void sh_replog_walk_begin(struct sh_replog_walk *walk, const struct sh_replog_lives *lives,
                          const uint8_t *slot, size_t size, uint64_t use)
{
    *walk = (struct sh_replog_walk){
        .lives = lives,
        .scan = {.bytes = sh_bytes_make(slot + SH_SLOT_HEAD_BYTES, size - SH_SLOT_HEAD_BYTES),
                 .use = use,
                 .mask = UINT64_MAX},
        .end = UINT64_MAX,
        .broken = SIZE_MAX};
}

void sh_replog_walk_ring(struct sh_replog_walk *walk, const struct sh_log_file *file,
                         const uint8_t *ring)
{
    *walk = (struct sh_replog_walk){
        .scan = sh_replog_ring_scan(file, ring), .end = UINT64_MAX, .broken = SIZE_MAX};
}

static void break_at(struct sh_replog_walk *walk, size_t at)
{
    if (at < walk->broken)
        walk->broken = at;
    walk->broken_last = at;
    walk->breaks++;
}

static bool span_next(struct sh_replog_walk *walk)
{
    size_t before = (walk->scan.at + SH_SCAN_BLOCK_BYTES - 1) / SH_SCAN_BLOCK_BYTES *
                    SH_SCAN_BLOCK_BYTES; /* each write begins at a block */
    if (!sh_scan_next(&walk->scan, &walk->span, &walk->entries))
        return false;
    if (walk->scan.is_behind_gap)
        break_at(walk, before);
    size_t sound =
        walk->span.sound > SH_SLOT_HEAD_BYTES ? walk->span.sound - SH_SLOT_HEAD_BYTES : 0;
    if (sound > walk->sound)
        walk->sound = sound;
    walk->is_damaged |= sound > walk->broken;
    walk->seen = 0;
    walk->from = walk->to = 0;
    walk->counts_before =
        walk->lives ? sh_replog_lives_end(walk->lives, walk->span.life) : UINT64_MAX;
    if (walk->counts_before > walk->end)
        walk->counts_before = walk->end;
    return true;
}

/* The next entry of the span. One with the number of what follows counts with that: where a crash has torn what follows, it is not there either. */
static enum sh_replog_got entry_next(struct sh_replog_walk *walk, struct sh_replog_entry *entry_out)
{
    enum sh_replog_got got = sh_replog_entry_get(&walk->entries, &walk->span.context, entry_out);
    if (got != SH_REPLOG_ENTRY || !entry_out->is_with_next)
        return got;
    struct sh_reader ahead = walk->entries;
    struct sh_replog_context context = walk->span.context;
    struct sh_replog_entry next;
    do
        got = sh_replog_entry_get(&ahead, &context, &next);
    while (got == SH_REPLOG_ENTRY && next.is_with_next);
    return got;
}

enum sh_replog_walked sh_replog_walk_next(struct sh_replog_walk *walk,
                                          struct sh_replog_entry *entry_out)
{
    if (!walk->is_in_span) {
        walk->parts = 1;
        walk->is_in_span = span_next(walk);
        return walk->is_in_span ? SH_REPLOG_WALKED_HEAD : SH_REPLOG_WALKED_END;
    }
    const struct sh_span *span = &walk->span;
    enum sh_replog_got got = entry_next(walk, entry_out);
    if (got == SH_REPLOG_ENTRY) {
        bool is_last = sh_replog_is_last(entry_out);
        uint64_t sequence = span->first + walk->seen;
        walk->is_void = sequence >= walk->counts_before;
        walk->seen += is_last;
        walk->parts++;
        if (entry_out->is_with_next) /* takes no place: what follows has it */
            return SH_REPLOG_WALKED_ENTRY;
        if (walk->from == walk->to)
            walk->from = sh_replog_place(sequence, entry_out->piece);
        walk->to = is_last ? sh_replog_place(sequence + 1, 0)
                           : sh_replog_place(sequence, (uint16_t)(entry_out->piece + 1));
        return SH_REPLOG_WALKED_ENTRY;
    }
    walk->is_in_span = false;
    walk->is_whole = got != SH_REPLOG_DAMAGED && walk->seen >= span->sequences;
    if (!walk->is_whole)
        break_at(walk, walk->scan.begin);
    return SH_REPLOG_WALKED_SPAN;
}

void sh_replog_damage_add(struct sh_replog_zone *zone, uint32_t slot, uint64_t offset)
{
    struct sh_replog_damage *damage = &zone->damage;
    if (!damage->slots) {
        damage->slot = slot;
        damage->offset = offset;
    }
    damage->slots++;
}

uint64_t sh_replog_broken_at(const struct sh_replog *log, uint32_t slot,
                             const struct sh_replog_walk *walk)
{
    SH_ASSERT(walk->broken != SIZE_MAX);
    return sh_log_slot_at(&log->head, slot) + SH_SLOT_HEAD_BYTES + walk->broken;
}

void sh_replog_damage_note(struct sh_replog_zone *zone, uint32_t slot,
                           const struct sh_replog_walk *walk)
{
    sh_replog_damage_add(zone, slot, sh_replog_broken_at(zone->log, slot, walk));
}

void sh_replog_damage_tell(struct sh_replog *log, struct sh_replog_zone *zone, uint32_t number,
                           uint64_t offset)
{
    struct sh_log_slot *slot = &log->slots.slots[number];
    if (zone) {
        zone->slots_sound = zone->is_damaged ? zone->slots_sound : zone->slots_max;
        zone->is_damaged = true;
        sh_replog_clean_leave(zone);
    }
    if (slot->is_bad)
        return;
    slot->is_bad = true;
    log->status.damaged++;
    SH_ERROR("log",
             "a zone is damaged, and will not be cleaned: it needs another replica, or to be "
             "written once more",
             SH_TEXT("file", log->config.name), SH_U64("zone", zone ? zone->id : 0),
             SH_U64("slot", number), SH_U64("offset", offset));
    if (zone)
        sh_replog_damage_add(zone, number, offset);
    if (log->config.damaged)
        log->config.damaged(log->config.arg, zone, number, offset);
}

struct sh_replog_damage sh_replog_zone_damage(const struct sh_replog_zone *zone)
{
    return zone->damage;
}
