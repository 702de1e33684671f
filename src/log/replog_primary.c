/* The primary log: small batches of all zones, packed, in a ring. */
#include "base/assert.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"

#define PACK_BLOCKS (SH_REPLOG_PACK_BYTES / SH_BLOCK_BYTES)

/* Uses of the primary log count laps; the upper half is drawn at random for the file. */
static uint64_t use_of(const struct sh_replog *log, uint32_t lap)
{
    return (log->head.number & ~(uint64_t)UINT32_MAX) | lap;
}

/* Blocks that may be written, from primary_at on: no batch has its only copy there. */
static uint64_t blocks_free(const struct sh_replog *log)
{
    const struct sh_replog_batch *oldest = log->primary.first;
    uint64_t used = oldest ? log->primary_at - oldest->primary_at : 0;
    return log->head.primary_blocks - used;
}

/* --- Packing ----------------------------------------------------------------------------------- */

/* The spans of a pack that is made now say how many blocks of its lap are on the disk. */
static uint32_t sound_blocks(const struct sh_replog *log)
{
    uint64_t lap_at = log->primary_at - log->primary_at % log->head.primary_blocks;
    return log->packs_synced > lap_at ? (uint32_t)(log->packs_synced - lap_at) : 0;
}

/* Copies bytes of a chain, from there on. */
static void chain_copy(const struct sh_replog *log, const struct sh_chain *chain, uint64_t from,
                       uint8_t *into)
{
    struct sh_chain_walk walk = {0};
    struct sh_bytes run;
    uint64_t at = 0;
    while (sh_chain_next(log->blocks, chain, &walk, &run)) {
        uint64_t end = at + run.size;
        if (end > from) {
            size_t skipped = from > at ? (size_t)(from - at) : 0;
            memcpy(into, run.at + skipped, run.size - skipped);
            into += run.size - skipped;
        }
        at = end;
    }
}

/* Adds what the primary log has not got of a batch; false: the pack has no room for it. */
static bool pack_add(struct sh_replog *log, struct sh_replog_batch *batch, size_t *size,
                     size_t room)
{
    uint64_t part = batch->chain.bytes - batch->packed;
    if (room - *size < SH_SPAN_HEAD_BYTES + part || log->in_pack_count == SH_REPLOG_PACKED_MAX)
        return false;
    struct sh_span span = {.zone = batch->zone->id,
                           .use = use_of(log, log->lap),
                           .first = batch->first + batch->packed_sequences,
                           .sequences = batch->sequences - batch->packed_sequences,
                           .bytes = (uint32_t)part,
                           .whole = batch->zone->durable,
                           .incarnation = batch->zone->incarnation,
                           .life = batch->life,
                           .life_first = batch->life_first,
                           .sound = sound_blocks(log),
                           .is_synced_later = log->config.syncs_later,
                           .context = batch->packed_end};
    sh_replog_ring_tell(batch->zone, &span);
    sh_span_put(&span, log->pack + *size);
    chain_copy(log, &batch->chain, batch->packed, log->pack + *size + SH_SPAN_HEAD_BYTES);
    *size += SH_SPAN_HEAD_BYTES + part;
    batch->packed = batch->chain.bytes;
    batch->packed_end = batch->end;
    batch->packed_sequences = batch->sequences;
    log->in_pack[log->in_pack_count++] =
        (struct sh_replog_packed){batch->zone, batch->first + batch->sequences};
    sh_replog_queue_leave(batch, SH_REPLOG_BY_AGE);
    if (!batch->links[SH_REPLOG_BY_PRIMARY].queue) {
        batch->primary_at = log->primary_at;
        sh_replog_queue_add(&log->primary, batch);
    }
    return true;
}

/* Packs of the zone were handed, which no sync covers yet. */
static void unsynced_add(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    if (zone->is_unsynced)
        return;
    zone->is_unsynced = true;
    zone->next_unsynced = log->unsynced;
    log->unsynced = zone;
}

bool sh_replog_packs_wait(const struct sh_replog *log)
{
    return log->packs_handed > log->packs_syncing;
}

void sh_replog_packs_sync_begin(struct sh_replog *log)
{
    SH_ASSERT(!log->syncing_zones);
    log->is_sync_wanted = false;
    log->packs_syncing = log->packs_handed;
    while (log->unsynced) {
        struct sh_replog_zone *zone = log->unsynced;
        log->unsynced = zone->next_unsynced;
        zone->is_unsynced = false;
        zone->packed_syncing = zone->packed_handed;
        zone->next_syncing = log->syncing_zones;
        log->syncing_zones = zone;
    }
}

void sh_replog_packs_synced(struct sh_replog *log)
{
    log->packs_synced = log->packs_syncing;
    while (log->syncing_zones) {
        struct sh_replog_zone *zone = log->syncing_zones;
        log->syncing_zones = zone->next_syncing;
        zone->packed_durable = zone->packed_syncing;
        sh_replog_zone_settle(zone);
    }
}

static bool is_all_synced(const struct sh_replog *log)
{
    return log->packs_synced == log->packs_handed;
}

/* Where primary_at is was handed, and synced, if the pack was. */
static void packs_note(struct sh_replog *log)
{
    if (!sh_replog_packs_wait(log))
        log->unsynced_ns = log->now_ns;
    log->packs_handed = log->primary_at;
    if (log->pack_is_synced)
        log->packs_syncing = log->packs_synced = log->packs_handed;
}

static void on_packed(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog *log = op->log;
    log->is_packing = false;
    if (sh_replog_op_end(op))
        return;
    log->status.primary_writes++;
    log->status.primary_bytes += done->size;
    if (log->status.primary_largest < done->size)
        log->status.primary_largest = done->size;
    packs_note(log);
    for (unsigned i = 0; i < log->in_pack_count; i++) {
        struct sh_replog_zone *zone = log->in_pack[i].zone;
        zone->packed_handed = log->in_pack[i].end;
        if (log->pack_is_synced)
            zone->packed_durable = zone->packed_handed;
        else
            unsynced_add(zone);
        sh_replog_zone_hand_settle(zone);
        sh_replog_zone_settle(zone);
    }
    log->in_pack_count = 0;
    log->is_sync_wanted &= sh_replog_packs_wait(log);
}

/* Whether a mark (replog_drop.c) lies in a block of the ring. */
static bool is_mark(const struct sh_replog *log, uint64_t block)
{
    return log->primary_marks[block / 8] >> block % 8 & 1;
}

/* A mark outlasts what it is about: what lies before it in its lap is overwritten, and on the disk, before a pack overwrites the mark,
 * which may be torn anywhere. So a pack ends before a mark, or before the first of a row of them. (Of the lap before, nothing can be read
 * any more once a lap is complete: each lap overwrites all blocks at which packs begin.) And it ends before the mark of a drop that goes on, wherever
 * that is in a row. How many blocks that are from where the next one goes. */
static uint64_t blocks_to_mark(const struct sh_replog *log)
{
    uint64_t at = log->primary_at % log->head.primary_blocks, blocks = 1;
    while (blocks < PACK_BLOCKS && at + blocks < log->head.primary_blocks &&
           (!is_mark(log, at + blocks) || is_mark(log, at + blocks - 1)) &&
           !sh_replog_drop_needs(log, at + blocks))
        blocks++;
    return blocks;
}

/* How many bytes a pack may have where the next one goes. Begins the next lap where the rest of this one is too short. Both a lap and a
 * pack that overwrites a mark wait until all packs before are synced: so a start finds a pack of the last lap or of the one before, whatever was
 * lost, and nothing that a mark is about without the mark. A pack that would overwrite the mark of a zone that is being dropped waits until
 * that is over. No pack is in flight. */
static size_t pack_room(struct sh_replog *log)
{
    uint64_t blocks = log->head.primary_blocks, at = log->primary_at % blocks, left = blocks - at;
    bool is_exact =
        at == 0 && log->primary_at != log->lap_at; /* the last pack ended with the lap */
    bool is_over = left < PACK_BLOCKS || is_exact;
    if (!is_all_synced(log) && (is_over || is_mark(log, at))) {
        log->is_sync_wanted |= sh_replog_packs_wait(log);
        return 0;
    }
    if (sh_replog_drop_needs(log, is_over ? 0 : at))
        return 0;
    if (is_over) {
        uint64_t skipped = is_exact ? 0 : left;
        if (blocks_free(log) < skipped)
            return 0;
        log->primary_at += skipped;
        log->lap_at = log->primary_at;
        log->lap++;
        memmove(log->lap_since + 1, log->lap_since, 3 * sizeof *log->lap_since);
        log->lap_since[0] = log->seconds;
        sh_replog_fences_forget(log);
        left = blocks;
    }
    uint64_t room = blocks_free(log) < left ? blocks_free(log) : left;
    uint64_t cut = blocks_to_mark(log);
    room = room < cut ? room : cut;
    return room < PACK_BLOCKS ? (size_t)room * SH_BLOCK_BYTES : SH_REPLOG_PACK_BYTES;
}

/* Fills the pack with what is fresh, the oldest first; a batch that is worth a write goes its own way. Returns its bytes, in
 * whole blocks. */
static size_t pack_fill(struct sh_replog *log, size_t room)
{
    size_t size = 0;
    struct sh_replog_batch *batch = room ? log->fresh.first : NULL, *next;
    for (; batch; batch = next) {
        next = batch->links[SH_REPLOG_BY_AGE].next;
        bool is_large = batch->chain.bytes >= log->config.batch_bytes;
        if (is_large && !sh_replog_batch_flush(batch, SH_REPLOG_FLUSH_LARGE))
            continue;
        if (!pack_add(log, batch, &size, room) && room - size < SH_SPAN_HEAD_BYTES)
            break;
    }
    size_t padded = (size + SH_BLOCK_BYTES - 1) / SH_BLOCK_BYTES * SH_BLOCK_BYTES;
    memset(log->pack + size, 0, padded - size);
    log->status.primary_padding += padded - size;
    return padded;
}

/* The pack is a span without entries, and zeros. */
static void span_put_alone(struct sh_replog *log, const struct sh_span *span, size_t size)
{
    struct sh_span its = *span;
    SH_ASSERT(!log->in_pack_count && !log->pack_size);
    its.use = use_of(log, log->lap);
    its.sound = sound_blocks(log);
    its.is_synced_later = log->config.syncs_later;
    memset(log->pack, 0, size);
    sh_span_put(&its, log->pack);
    log->pack_size = size;
}

/* Hands the pack to the disk; false: not now. The first one of a lap is always synced, before others take the place of the lap before:
 * see pack_room. So is one that somebody waits for, which saves the disk a sync of its own, unless a pack before it isn't: that sync has both. */
static bool pack_write(struct sh_replog *log)
{
    uint64_t at = log->primary_at % log->head.primary_blocks;
    bool is_synced = !log->config.syncs_later || at == 0 || (log->waiting && is_all_synced(log));
    const struct sh_disk_op op = {.kind = is_synced ? SH_DISK_WRITE_SYNC : SH_DISK_WRITE,
                                  .offset = sh_log_primary_at() + at * SH_BLOCK_BYTES,
                                  .data = log->pack,
                                  .size = log->pack_size,
                                  .done = on_packed};
    if (!sh_replog_submit(log, NULL, &op))
        return false;
    for (uint64_t block = at; block < at + log->pack_size / SH_BLOCK_BYTES; block++)
        log->primary_marks[block / 8] &= (uint8_t) ~(1u << block % 8);
    if (log->pack_is_mark)
        log->primary_marks[at / 8] |= (uint8_t)(1u << at % 8);
    log->pack_is_mark = false;
    log->pack_is_synced = is_synced;
    log->primary_at += log->pack_size / SH_BLOCK_BYTES;
    log->pack_size = 0;
    log->is_packing = true;
    return true;
}

/* Without a primary log small batches go to slots, too. */
static unsigned fresh_to_slots(struct sh_replog *log)
{
    unsigned work = 0;
    struct sh_replog_batch *batch = log->fresh.first, *next;
    for (; batch && sh_replog_slots_have_time(log); batch = next) {
        next = batch->links[SH_REPLOG_BY_AGE].next;
        work += !sh_replog_batch_flush(batch, SH_REPLOG_FLUSH_OTHER);
    }
    return work;
}

unsigned sh_replog_primary_write(struct sh_replog *log)
{
    const struct sh_replog_batch *oldest = log->fresh.first;
    bool is_time =
        log->pack_size || (oldest && (log->waiting || log->waiting_handed ||
                                      log->now_ns >= oldest->begun_ns + log->config.linger_ns));
    bool goes_on = log->lap < log->lap_wanted; /* whatever there is to write */
    if (log->trouble || (!is_time && !goes_on))
        return 0;
    if (!log->head.primary_blocks)
        return fresh_to_slots(log);
    if (!log->is_packing && !log->pack_size) {
        size_t room = pack_room(log);
        log->pack_size = is_time ? pack_fill(log, room) : 0;
        /* The oldest has no room before a mark: nothing goes there. */
        bool is_before_mark =
            is_time && log->fresh.first && room == blocks_to_mark(log) * SH_BLOCK_BYTES;
        if (!log->pack_size && room && (goes_on || is_before_mark))
            span_put_alone(log, &(struct sh_span){.zone = 0}, room);
    }
    return log->pack_size && pack_write(log);
}

bool sh_replog_primary_mark(struct sh_replog *log, const struct sh_span *span, uint64_t *at_out)
{
    SH_ASSERT(!span->sequences && !span->bytes && log->head.primary_blocks);
    if (log->is_packing || log->pack_size || !pack_room(log))
        return false;
    span_put_alone(log, span, SH_BLOCK_BYTES);
    log->pack_is_mark = true;
    *at_out = log->primary_at;
    (void)pack_write(log); /* or later: nothing else is packed before */
    return true;
}

/* --- Room -------------------------------------------------------------------------------------- */

static bool is_buffer_short(const struct sh_replog *log)
{
    return sh_blocks_used(log->blocks) > log->config.buffer_bytes / 2;
}

static bool is_short(const struct sh_replog *log)
{
    return is_buffer_short(log) ||
           (log->head.primary_blocks && blocks_free(log) < log->head.primary_blocks / 4);
}

/* The oldest of a queue that is still being filled. */
static struct sh_replog_batch *filling_oldest(const struct sh_replog_queue *queue)
{
    struct sh_replog_batch *batch = queue->first;
    while (batch && batch != batch->zone->filling)
        batch = batch->links[queue->kind].next;
    return batch;
}

unsigned sh_replog_relieve(struct sh_replog *log)
{
    unsigned work = 0;
    while (!log->trouble && is_short(log) && sh_replog_slots_have_time(log)) {
        struct sh_replog_batch *batch = filling_oldest(&log->primary);
        if (!batch)
            batch = filling_oldest(&log->fresh);
        enum sh_replog_flush why =
            is_buffer_short(log) ? SH_REPLOG_FLUSH_BUFFER : SH_REPLOG_FLUSH_PRIMARY;
        if (!batch || sh_replog_batch_flush(batch, why))
            break;
        work++;
    }
    return work;
}
