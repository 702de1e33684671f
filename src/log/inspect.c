#include "log/inspect.h"

#include <stdlib.h>

#include "base/assert.h"
#include "log/inspect_int.h"
#include "log/version_log.h"

#define READ_BYTES ((size_t)1 << 20)

/* --- The disk, waiting ------------------------------------------------------------------------- */

/* Reads so many bytes; what the file does not have is zero. */
static enum shoal_err read_at(struct sh_inspect *inspect, uint64_t offset, uint8_t *into,
                              size_t size)
{
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = inspect->file, .offset = offset, .data = into, .size = size};
    enum shoal_err err = sh_disk_do(inspect->disk, &op);
    if (!err)
        memset(into + op.done_bytes, 0, size - op.done_bytes);
    return err;
}

/* --- Opening ----------------------------------------------------------------------------------- */

static enum shoal_err memory_take(struct sh_inspect *inspect)
{
    const struct sh_log_file *file = &inspect->seen.file;
    size_t ring = (size_t)file->primary_blocks * SH_BLOCK_BYTES;
    inspect->slot = aligned_alloc(SH_BLOCK_BYTES, file->slot_bytes);
    inspect->ring = ring ? aligned_alloc(SH_BLOCK_BYTES, ring) : NULL;
    inspect->heads = calloc(file->slots, sizeof *inspect->heads);
    return inspect->slot && inspect->heads && (inspect->ring || !ring) ? SHOAL_OK : SHOAL_ENOMEM;
}

enum shoal_err sh_inspect_open(struct sh_disk *disk, const char *name,
                               struct sh_inspect **inspect_out)
{
    struct sh_inspect *inspect = calloc(1, sizeof *inspect);
    uint8_t *block = aligned_alloc(SH_BLOCK_BYTES, SH_SLOT_HEAD_BYTES);
    enum shoal_err err = SHOAL_ENOMEM;
    if (!inspect || !block)
        goto out;
    inspect->disk = disk;
    err = sh_disk_open(disk, name, false, &inspect->file);
    inspect->is_open = !err;
    if (!err)
        err = read_at(inspect, 0, block, SH_SLOT_HEAD_BYTES);
    if (!err) {
        err = sh_log_file_get(block, &inspect->seen.file);
        err = err == SHOAL_ENONAME ? SHOAL_EPARSE : err;
    }
    if (!err)
        err = disk->ops->size(disk, inspect->file, &inspect->seen.file_bytes);
    if (!err)
        err = memory_take(inspect);
out:
    free(block);
    if (err)
        sh_inspect_close(inspect);
    else
        *inspect_out = inspect;
    return err;
}

void sh_inspect_close(struct sh_inspect *inspect)
{
    if (!inspect)
        return;
    if (inspect->is_open)
        inspect->disk->ops->close(inspect->disk, inspect->file);
    for (size_t i = 0; i < inspect->zones_count; i++) {
        free(inspect->zones[i]->lives.lives);
        free(inspect->zones[i]->ranges.ranges);
        sh_replog_roll_free(&inspect->zones[i]->roll);
        free(inspect->zones[i]->told);
        free(inspect->zones[i]);
    }
    free(inspect->zones);
    sh_replog_marks_free(&inspect->marks);
    free(inspect->breaks);
    free(inspect->heads);
    free(inspect->slot);
    free(inspect->ring);
    free(inspect);
}

/* --- Zones ------------------------------------------------------------------------------------- */

/* Where a zone is in the table, or would be. */
static size_t place_of(const struct sh_inspect *inspect, uint64_t id)
{
    size_t low = 0, high = inspect->zones_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (inspect->zones[middle]->seen.id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct sh_inspect_of *zone_of(struct sh_inspect *inspect, uint64_t id, uint16_t owner)
{
    size_t at = place_of(inspect, id);
    if (at < inspect->zones_count && inspect->zones[at]->seen.id == id)
        return inspect->zones[at];
    if (inspect->zones_count == inspect->zones_room) {
        size_t room = inspect->zones_room ? 2 * inspect->zones_room : 64;
        struct sh_inspect_of **grown =
            realloc(inspect->zones, room * sizeof(struct sh_inspect_of *));
        if (!grown)
            return NULL;
        inspect->zones = grown;
        inspect->zones_room = room;
    }
    struct sh_inspect_of *zone = calloc(1, sizeof *zone);
    if (!zone)
        return NULL;
    zone->seen.id = id;
    zone->seen.owner = owner;
    for (size_t i = inspect->zones_count++; i > at; i--)
        inspect->zones[i] = inspect->zones[i - 1];
    inspect->zones[at] = zone;
    return zone;
}

/* --- Harm -------------------------------------------------------------------------------------- */

static void tell(struct sh_inspect *inspect, enum sh_inspect_harm harm, uint32_t slot,
                 uint64_t offset, uint64_t zone)
{
    const struct sh_inspect_place place = {harm, slot, offset, zone};
    size_t at = place_of(inspect, zone);
    if (harm == SH_INSPECT_TORN)
        inspect->seen.torn++;
    else
        inspect->seen.damaged++;
    if (at < inspect->zones_count && inspect->zones[at]->seen.id == zone) {
        inspect->zones[at]->seen.torn += harm == SH_INSPECT_TORN;
        inspect->zones[at]->seen.damaged += harm != SH_INSPECT_TORN;
    }
    if (inspect->calls.harm)
        inspect->calls.harm(inspect->calls.arg, &place);
}

void sh_inspect_slot_read(struct sh_inspect *inspect, uint32_t slot, uint32_t *lost_out)
{
    size_t slot_bytes = inspect->seen.file.slot_bytes;
    uint64_t offset = sh_log_slot_at(&inspect->seen.file, slot);
    *lost_out = 0;
    for (size_t at = 0; at < slot_bytes; at += READ_BYTES) {
        size_t size = slot_bytes - at < READ_BYTES ? slot_bytes - at : READ_BYTES;
        bool is_lost = false;
        if (!read_at(inspect, offset + at, inspect->slot + at, size))
            continue;
        for (size_t i = at; i < at + size; i += SH_BLOCK_BYTES) {
            bool was_lost = is_lost;
            is_lost = read_at(inspect, offset + i, inspect->slot + i, SH_BLOCK_BYTES);
            if (is_lost)
                memset(inspect->slot + i, 0, SH_BLOCK_BYTES);
            *lost_out += is_lost;
            if (is_lost && !was_lost && !inspect->is_read)
                tell(inspect, SH_INSPECT_UNREADABLE, slot, offset + i, inspect->heads[slot].zone);
        }
    }
}

static enum shoal_err break_add(struct sh_inspect *inspect, size_t at, uint64_t zone,
                                bool may_be_torn)
{
    void *items = inspect->breaks;
    enum shoal_err err = sh_replog_room_make(&items, inspect->breaks_count, &inspect->breaks_room,
                                             sizeof *inspect->breaks);
    inspect->breaks = items;
    if (!err)
        inspect->breaks[inspect->breaks_count++] = (struct sh_inspect_break){at, zone, may_be_torn};
    return err;
}

/* --- Spans ------------------------------------------------------------------------------------- */

void sh_inspect_chunks_note(struct sh_inspect_of *zone, uint64_t first, uint64_t last)
{
    bool is_own = first >> 48 == zone->seen.owner && last >> 48 == zone->seen.owner;
    if (!is_own) {
        zone->others += last - first + 1;
        return;
    }
    zone->own_chunks += last - first + 1;
    if (!zone->own_last || first < zone->own_first)
        zone->own_first = first;
    if (last > zone->own_last)
        zone->own_last = last;
}

static enum shoal_err head_note(struct sh_inspect_of *zone, const struct sh_span *span)
{
    if (zone->seen.incarnation < span->incarnation)
        zone->seen.incarnation = span->incarnation;
    return sh_replog_lives_add(&zone->lives, span->life, span->life_first, span->whole);
}

static void entry_note(struct sh_inspect_of *zone, const struct sh_replog_entry *entry)
{
    uint64_t chunk = sh_replog_chunk_of(entry);
    zone->seen.entries++;
    zone->seen.removals += entry->is_removal;
    zone->seen.payload_bytes += sh_replog_entry_stored(entry);
    if (!sh_replog_is_completion(entry))
        sh_inspect_chunks_note(zone, chunk, chunk);
}

static void seconds_note(struct sh_inspect_slot *slot, uint32_t seconds)
{
    if (!slot->entries || seconds < slot->seconds_first)
        slot->seconds_first = seconds;
    if (seconds > slot->seconds_last)
        slot->seconds_last = seconds;
    slot->entries++;
}

static enum shoal_err span_call(const struct sh_inspect *inspect, struct sh_inspect_of *zone,
                                uint32_t slot, const struct sh_replog_walk *walk)
{
    const struct sh_replog_called called = {.ordinal = walk->span.ordinal,
                                            .offset = sh_log_slot_at(&inspect->seen.file, slot) +
                                                      SH_SLOT_HEAD_BYTES + walk->scan.begin,
                                            .use = walk->span.use,
                                            .slot = slot,
                                            .parts = walk->parts,
                                            .is_whole = walk->is_whole};
    return sh_replog_roll_span(&zone->roll, &called);
}

/* Looks through a slot of entries, which has been read. */
static enum shoal_err entries_look(struct sh_inspect *inspect, struct sh_inspect_of *zone,
                                   struct sh_inspect_slot *slot)
{
    struct sh_replog_walk walk;
    struct sh_replog_entry entry;
    enum shoal_err err = SHOAL_OK;
    enum sh_replog_walked got;
    bool has_numbers = slot->head.kind == SH_SLOT_ENTRIES;
    sh_replog_walk_begin(&walk, NULL, inspect->slot, inspect->seen.file.slot_bytes, slot->head.use);
    do {
        unsigned breaks = walk.breaks;
        got = sh_replog_walk_next(&walk, &entry);
        if (walk.breaks > breaks)
            err = break_add(inspect, walk.broken_last, zone->seen.id, true);
        if (!err && got == SH_REPLOG_WALKED_HEAD) {
            slot->spans++;
            err = head_note(zone, &walk.span);
            if (!err)
                err = sh_replog_roll_head(&zone->roll, &walk.span);
        } else if (got == SH_REPLOG_WALKED_ENTRY) {
            seconds_note(slot, entry.seconds);
            entry_note(zone, &entry);
        } else if (!err && got == SH_REPLOG_WALKED_SPAN) {
            slot->filled = SH_SLOT_HEAD_BYTES + (uint32_t)walk.scan.at;
            err = span_call(inspect, zone, slot->slot, &walk);
            if (!err && has_numbers)
                err = sh_replog_ranges_add(
                    &zone->ranges, &(struct sh_replog_range){walk.from, walk.to, walk.span.life});
        }
    } while (!err && got != SH_REPLOG_WALKED_END);
    for (size_t i = 0; i < inspect->breaks_count; i++) {
        bool is_damaged = inspect->breaks[i].at < walk.sound;
        slot->damaged += is_damaged;
        slot->torn += !is_damaged;
        tell(inspect, is_damaged ? SH_INSPECT_DAMAGED : SH_INSPECT_TORN, slot->slot,
             sh_log_slot_at(&inspect->seen.file, slot->slot) + SH_SLOT_HEAD_BYTES +
                 inspect->breaks[i].at,
             zone->seen.id);
    }
    return err;
}

/* Looks through a slot of the version log, which has been read. Bytes behind its last piece may be of a former use. */
static void versions_look(struct sh_inspect *inspect, struct sh_inspect_of *zone,
                          struct sh_inspect_slot *slot)
{
    struct sh_bytes bytes = sh_bytes_make(inspect->slot + SH_SLOT_HEAD_BYTES,
                                          inspect->seen.file.slot_bytes - SH_SLOT_HEAD_BYTES);
    uint64_t begin = sh_log_slot_at(&inspect->seen.file, slot->slot) + SH_SLOT_HEAD_BYTES;
    struct sh_version_reader reader;
    struct sh_version_tuple tuple;
    size_t at = 0;
    while (sh_version_piece_next(bytes, &at, zone->seen.id, sh_replog_flush_least_in(&slot->head),
                                 &reader)) {
        enum sh_version_got got;
        slot->spans++;
        slot->filled = SH_SLOT_HEAD_BYTES + (uint32_t)at;
        if (reader.piece.flush >= zone->seen.flushes)
            zone->seen.flushes = reader.piece.flush;
        while ((got = sh_version_reader_next(&reader, &tuple)) == SH_VERSION_TUPLE) {
            slot->entries++;
            sh_inspect_chunks_note(zone, tuple.first, tuple.last);
        }
        if (got != SH_VERSION_DAMAGED)
            continue;
        slot->damaged++;
        tell(inspect, SH_INSPECT_DAMAGED, slot->slot, begin + at - reader.size, zone->seen.id);
    }
    zone->seen.tuples += slot->entries;
    if (slot->spans) /* the head is written with the first piece */
        return;
    slot->torn++;
    tell(inspect, SH_INSPECT_TORN, slot->slot, begin, zone->seen.id);
}

static enum shoal_err slot_look(struct sh_inspect *inspect, uint32_t number)
{
    struct sh_inspect_slot slot = {.slot = number, .filled = SH_SLOT_HEAD_BYTES};
    uint32_t lost;
    enum shoal_err err = SHOAL_OK;
    sh_inspect_slot_read(inspect, number, &lost);
    slot.is_unreadable = lost;
    if (!sh_log_slot_get(inspect->slot, inspect->seen.file.number, &slot.head))
        return SHOAL_OK; /* a block that can't be read now, and could before */
    struct sh_inspect_of *zone = zone_of(inspect, slot.head.zone, slot.head.owner);
    if (!zone)
        return SHOAL_ENOMEM;
    if (zone->seen.incarnation < slot.head.incarnation)
        zone->seen.incarnation = slot.head.incarnation;
    inspect->breaks_count = 0;
    if (slot.head.kind == SH_SLOT_VERSIONS)
        versions_look(inspect, zone, &slot);
    else
        err = entries_look(inspect, zone, &slot);
    zone->seen.slots[slot.head.kind]++;
    zone->seen.bytes[slot.head.kind] += slot.filled;
    zone->seen.spans[slot.head.kind] += slot.spans;
    inspect->seen.entries += slot.head.kind == SH_SLOT_VERSIONS ? 0 : slot.entries;
    if (!err && inspect->calls.slot)
        inspect->calls.slot(inspect->calls.arg, &slot);
    return err;
}

/* --- The primary log --------------------------------------------------------------------------- */

bool sh_inspect_ring_has(const struct sh_inspect *inspect, const struct sh_span *span,
                         uint64_t zone)
{
    return (uint32_t)span->use + 1 >= inspect->seen.lap && (!zone || span->zone == zone) &&
           sh_replog_ring_counts(&inspect->marks, span);
}

/* Of the spans of the primary log, which have been looked at. */
struct ring_look {
    size_t last_end;      /* of the last lap: where its last span ends, */
    size_t sound;         /* before what it had been on the disk, by the word of its spans, */
    bool is_synced_later; /* and whether they are */
    bool ends_with_none;  /* that span is nobody's, and may take the lap to its end */
    size_t former_begin;  /* of the lap before: where its last span begins; 0: none */
};

/* sound: before which of its blocks the last lap had been on the disk. */
static enum shoal_err ring_span_end(struct sh_inspect *inspect, struct sh_inspect_of *zone,
                                    const struct sh_replog_walk *walk, uint32_t sound)
{
    const struct sh_replog_range range = {walk->from, walk->to, walk->span.life};
    size_t bytes = walk->scan.at - walk->scan.begin;
    zone->seen.primary_spans++;
    zone->seen.primary_bytes += bytes;
    inspect->seen.primary_spans++;
    inspect->seen.primary_bytes += bytes;
    uint64_t lost = walk->span.first + walk->seen;
    bool is_sound =
        (uint32_t)walk->span.use == inspect->seen.lap && walk->scan.begin / SH_BLOCK_BYTES < sound;
    if (is_sound && walk->seen < walk->span.sequences) {
        zone->number_lost = lost > zone->number_lost ? lost : zone->number_lost;
        zone->has_number_lost = true;
    }
    return sh_replog_ranges_add(&zone->ranges, &range);
}

static void laps_note(const struct sh_inspect *inspect, const struct sh_replog_walk *walk,
                      struct ring_look *look)
{
    uint32_t lap = (uint32_t)walk->span.use;
    if (lap == inspect->seen.lap) {
        size_t sound = (size_t)walk->span.sound * SH_BLOCK_BYTES;
        look->last_end = walk->scan.at;
        look->ends_with_none = !walk->span.zone;
        look->sound = sound > look->sound ? sound : look->sound;
        look->is_synced_later |= walk->span.is_synced_later;
    } else if (lap + 1 == inspect->seen.lap) {
        look->former_begin = walk->scan.begin;
    }
}

/* Damage is what can't be read and had been on the disk, as spans say that lie behind it in its lap. The rest of the lap before, all of
 * which had been, begins anywhere: behind the last lap a torn write may have overwritten it, up to a pack's bytes, and where packs are synced
 * later, any number of them. Where the last lap has come to its end, the first pack of the next one may have been torn so that nothing of it can be
 * read, and has overwritten what was in slots by then; in a primary log of less than two packs, the end of the last lap as well. In any case lacking_tell tells of
 * writes that were in no slot by then. */
static void ring_harm(struct sh_inspect *inspect, uint64_t zone, const struct ring_look *look)
{
    size_t left_over = look->last_end + SH_REPLOG_PACK_BYTES;
    size_t ring = (size_t)inspect->seen.file.primary_blocks * SH_BLOCK_BYTES;
    size_t from =
        look->ends_with_none || left_over > ring - SH_BLOCK_BYTES || ring < 2 * SH_REPLOG_PACK_BYTES
            ? SH_REPLOG_PACK_BYTES
            : 0;
    for (size_t i = 0; i < inspect->breaks_count; i++) {
        const struct sh_inspect_break *broken = &inspect->breaks[i];
        bool is_left = !look->is_synced_later && broken->at >= left_over;
        bool is_damaged = (broken->at >= from && broken->at < look->sound) ||
                          (is_left && broken->at < look->former_begin);
        if ((!is_damaged && !broken->may_be_torn) || (zone && broken->zone && broken->zone != zone))
            continue;
        tell(inspect, is_damaged ? SH_INSPECT_DAMAGED : SH_INSPECT_TORN, SH_INSPECT_PRIMARY,
             sh_log_primary_at() + broken->at, broken->zone);
    }
}

static bool is_zero(const uint8_t *bytes, size_t from, size_t to)
{
    while (from < to && !bytes[from])
        from++;
    return from >= to;
}

/* A pack that is nobody's, which takes a lap up to a mark, or to its end, is a span and zeros. */
static enum shoal_err ring_look(struct sh_inspect *inspect, uint64_t zone_only)
{
    struct sh_replog_walk walk;
    struct sh_replog_entry entry;
    struct ring_look look = {.last_end = 0};
    uint32_t sound = sh_replog_ring_sound(&inspect->seen.file, inspect->ring, inspect->seen.lap);
    bool had_none = false; /* the last span is nobody's */
    struct sh_inspect_of *zone = NULL;
    enum shoal_err err = SHOAL_OK;
    enum sh_replog_walked got;
    inspect->breaks_count = 0;
    sh_replog_walk_ring(&walk, &inspect->seen.file, inspect->ring);
    do {
        unsigned breaks = walk.breaks;
        got = sh_replog_walk_next(&walk, &entry);
        bool is_last_lap = (uint32_t)walk.span.use == inspect->seen.lap;
        bool is_filler = got == SH_REPLOG_WALKED_HEAD && had_none &&
                         is_zero(inspect->ring, walk.broken_last, walk.scan.begin);
        if (walk.breaks > breaks && !is_filler)
            err = got == SH_REPLOG_WALKED_SPAN
                      ? break_add(inspect, walk.broken_last, walk.span.zone, is_last_lap)
                      : break_add(inspect, walk.broken_last, 0, false);
        if (!err && got == SH_REPLOG_WALKED_HEAD) {
            zone = NULL;
            had_none = !walk.span.zone;
            laps_note(inspect, &walk, &look);
            if (!sh_inspect_ring_has(inspect, &walk.span, zone_only))
                continue;
            zone = zone_of(inspect, walk.span.zone, (uint16_t)(walk.span.zone >> 48));
            err = zone ? head_note(zone, &walk.span) : SHOAL_ENOMEM;
            if (zone)
                sh_replog_said_add(&zone->said_by_ring, &walk.span);
        } else if (zone && got == SH_REPLOG_WALKED_ENTRY) {
            inspect->seen.entries++;
            entry_note(zone, &entry);
        } else if (!err && zone && got == SH_REPLOG_WALKED_SPAN) {
            err = ring_span_end(inspect, zone, &walk, sound);
        }
    } while (!err && got != SH_REPLOG_WALKED_END);
    if (!err)
        ring_harm(inspect, zone_only, &look);
    return err;
}

/* --- Reading all of it ------------------------------------------------------------------------- */

/* Reads the heads of all slots; ones of zones that were dropped count as free. */
static enum shoal_err heads_read(struct sh_inspect *inspect)
{
    const struct sh_log_file *file = &inspect->seen.file;
    bool has_failed = false;
    for (uint32_t i = 0; i < file->slots; i++) {
        struct sh_log_slot_head head;
        uint64_t offset = sh_log_slot_at(file, i);
        if (read_at(inspect, offset, inspect->slot, SH_SLOT_HEAD_BYTES)) {
            tell(inspect, SH_INSPECT_UNREADABLE, i, offset, 0);
            has_failed = true;
            continue;
        }
        if (!sh_log_slot_get(inspect->slot, file->number, &head)) {
            if (sh_log_slot_is_damaged(inspect->slot, file->number))
                tell(inspect, SH_INSPECT_HEAD, i, offset, 0);
            continue;
        }
        if (sh_log_slot_is_half(inspect->slot))
            tell(inspect, SH_INSPECT_HEAD, i, offset, head.zone);
        const struct sh_replog_dropped mark = {head.zone, head.incarnation, i};
        if (head.kind == SH_SLOT_DROPPED && sh_replog_marks_add(&inspect->marks, &mark))
            return SHOAL_ENOMEM;
        inspect->heads[i] =
            (struct sh_inspect_head){head.zone, head.incarnation, (uint8_t)head.kind, true};
    }
    return has_failed ? SHOAL_EIO : SHOAL_OK;
}

/* Which of the slots are looked at: a head may say behind others that a zone was dropped. */
static void heads_choose(struct sh_inspect *inspect, uint64_t zone)
{
    for (uint32_t i = 0; i < inspect->seen.file.slots; i++) {
        struct sh_inspect_head *head = &inspect->heads[i];
        if (!head->is_seen)
            continue;
        bool is_dropped = head->kind == SH_SLOT_DROPPED ||
                          sh_replog_marks_have(&inspect->marks, head->zone, head->incarnation);
        inspect->seen.slots_dropped += is_dropped;
        inspect->seen.slots_used += !is_dropped;
        if (is_dropped || (zone && head->zone != zone))
            head->is_seen = false;
    }
}

/* Tells of damage that other spans tell of: a load of the zone finds it, too. */
static void lacking_tell(struct sh_inspect *inspect, const struct sh_inspect_of *zone)
{
    struct sh_replog_roll roll = zone->roll;
    const struct sh_replog_called *place;
    sh_replog_said_merge(&roll.said, &zone->said_by_ring);
    if (zone->seen.damaged) /* it was told, perhaps of the same */
        return;
    if (sh_replog_roll_lacking(&roll, &place))
        tell(inspect, SH_INSPECT_DAMAGED, place ? place->slot : SH_INSPECT_UNKNOWN,
             place ? place->offset : 0, zone->seen.id);
    else if (sh_replog_roll_lacks_numbers(&roll, &zone->ranges, &zone->lives, zone->seen.whole) ||
             (zone->has_number_lost &&
              sh_replog_roll_lacks_lost(&roll, &zone->ranges, &zone->lives, zone->number_lost)))
        tell(inspect, SH_INSPECT_DAMAGED, SH_INSPECT_PRIMARY, sh_log_primary_at(), zone->seen.id);
}

static void zone_end(struct sh_inspect *inspect, struct sh_inspect_of *zone)
{
    struct sh_inspect_zone *seen = &zone->seen;
    seen->whole = sh_replog_ranges_whole(&zone->ranges, &zone->lives);
    for (size_t i = 0; i < zone->ranges.count; i++) {
        const struct sh_replog_range *range = &zone->ranges.ranges[i];
        uint64_t first = range->first >> 16, last = (range->end - 1) >> 16;
        if (!seen->has_numbers || first < seen->first)
            seen->first = first;
        if (last > seen->last)
            seen->last = last;
        seen->has_numbers = true;
    }
    for (unsigned i = 0; i < zone->lives.count; i++) {
        const struct sh_replog_life *life = &zone->lives.lives[i];
        zone->told[i] = (struct sh_inspect_life){life->life, life->first, life->whole};
    }
    lacking_tell(inspect, zone);
    seen->lives = zone->told;
    seen->lives_count = zone->lives.count;
}

static enum shoal_err zones_end(struct sh_inspect *inspect)
{
    for (size_t i = 0; i < inspect->zones_count; i++) {
        struct sh_inspect_of *zone = inspect->zones[i];
        zone->told = calloc(zone->lives.count + 1, sizeof *zone->told);
        if (!zone->told)
            return SHOAL_ENOMEM;
        zone_end(inspect, zone);
    }
    return SHOAL_OK;
}

static enum shoal_err ring_read(struct sh_inspect *inspect)
{
    const struct sh_log_file *file = &inspect->seen.file;
    size_t size = (size_t)file->primary_blocks * SH_BLOCK_BYTES;
    if (!size)
        return SHOAL_OK;
    enum shoal_err err = read_at(inspect, sh_log_primary_at(), inspect->ring, size);
    if (err) {
        tell(inspect, SH_INSPECT_UNREADABLE, SH_INSPECT_PRIMARY, sh_log_primary_at(), 0);
        return err;
    }
    inspect->seen.lap = sh_replog_ring_last(file, inspect->ring);
    return sh_replog_ring_marks(file, inspect->ring, &inspect->marks);
}

enum shoal_err sh_inspect_read(struct sh_inspect *inspect, uint64_t zone,
                               const struct sh_inspect_calls *calls)
{
    SH_ASSERT(!inspect->is_read);
    inspect->calls = *calls;
    enum shoal_err err = ring_read(inspect);
    enum shoal_err heads = heads_read(inspect);
    err = err ? err : heads;
    if (err == SHOAL_ENOMEM)
        return err;
    heads_choose(inspect, zone);
    enum shoal_err read = SHOAL_OK;
    for (uint32_t i = 0; !read && i < inspect->seen.file.slots; i++)
        read = inspect->heads[i].is_seen ? slot_look(inspect, i) : SHOAL_OK;
    if (!read && inspect->ring && !err)
        read = ring_look(inspect, zone);
    if (!read)
        read = zones_end(inspect);
    inspect->is_read = true;
    return read ? read : err;
}

const struct sh_inspect_seen *sh_inspect_seen(const struct sh_inspect *inspect)
{
    return &inspect->seen;
}

const struct sh_inspect_zone *sh_inspect_zone_at(const struct sh_inspect *inspect, size_t at)
{
    return at < inspect->zones_count ? &inspect->zones[at]->seen : NULL;
}

const struct sh_inspect_of *sh_inspect_of_find(const struct sh_inspect *inspect, uint64_t id)
{
    size_t at = place_of(inspect, id);
    return sh_inspect_zone_find(inspect, id) ? inspect->zones[at] : NULL;
}

const struct sh_inspect_zone *sh_inspect_zone_find(const struct sh_inspect *inspect, uint64_t id)
{
    const struct sh_inspect_zone *zone = sh_inspect_zone_at(inspect, place_of(inspect, id));
    return zone && zone->id == id ? zone : NULL;
}
