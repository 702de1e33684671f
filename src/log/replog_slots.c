/* The way of batches to slots: a place, writes, a sync. */
#include "base/assert.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"

#define PIPELINE 8    /* batches on their way; more wait, and become larger meanwhile */
#define SYNC_AFTER 32 /* batches are synced together, or those of linger_ns */

static uint32_t padded(uint64_t bytes)
{
    return (uint32_t)((bytes + SH_BLOCK_BYTES - 1) / SH_BLOCK_BYTES * SH_BLOCK_BYTES);
}

bool sh_replog_slots_have_time(const struct sh_replog *log)
{
    return log->ready.count + log->writing < PIPELINE;
}

/* --- A place ----------------------------------------------------------------------------------- */

bool sh_replog_slots_have_room(const struct sh_replog_zone *zone)
{
    const struct sh_replog *log = zone->log;
    uint32_t most = padded(sh_replog_batch_max(log));
    return (log->slots.free_count > SH_REPLOG_SPARE_SLOTS &&
            zone->slots.count + SH_REPLOG_SPARE_ZONE_SLOTS < zone->slots_max) ||
           sh_log_slots_fit(&log->slots, &zone->slots, SH_SLOT_ENTRIES, most) != SH_SLOT_NONE;
}

bool sh_replog_slots_may_have_room(const struct sh_replog_zone *zone)
{
    return zone->slots.count + SH_REPLOG_SPARE_ZONE_SLOTS < zone->slots_max &&
           sh_replog_room_may_come(zone->log);
}

/* Whether the batch may have another slot. That entries will have one was seen to when their batch was begun. */
static bool may_take(const struct sh_replog_batch *batch)
{
    bool is_flush = batch->kind == SH_SLOT_VERSIONS && !batch->is_cleaners;
    return batch->zone->log->slots.free_count > (is_flush ? SH_REPLOG_SPARE_SLOTS / 2 : 0);
}

/* A slot with so much room; SH_SLOT_NONE: the zone may have no other one, or there is none. */
static uint32_t slot_find(const struct sh_replog_batch *batch, uint32_t bytes)
{
    struct sh_replog_zone *zone = batch->zone;
    struct sh_replog *log = zone->log;
    uint32_t slot = sh_log_slots_fit(&log->slots, &zone->slots, batch->kind, bytes);
    if (slot != SH_SLOT_NONE || !may_take(batch))
        return slot;
    return sh_log_slots_take(&log->slots, &zone->slots, batch->kind,
                             sh_random64(&log->config.random), batch->begin.seconds);
}

/* Of which eons it is. */
static void eons_note(struct sh_log_slot *slot, const struct sh_replog_batch *batch)
{
    for (unsigned i = 0; i < batch->lives_count; i++)
        slot->lives_eons |= sh_replog_eon_bit(batch->lives[i].life);
    if (batch->gives)
        slot->lives_eons |= sh_replog_eon_bit(batch->life);
    else if (!batch->lives)
        slot->eons |= sh_replog_eon_bit(batch->life);
}

/* Gives the batch its place in the file. ENOSPC; EAGAIN: there is one once the disk has room. */
static enum shoal_err place(struct sh_replog_batch *batch)
{
    struct sh_replog *log = batch->zone->log;
    uint32_t bytes = padded(batch->chain.bytes);
    batch->slot = slot_find(batch, bytes);
    if (batch->slot == SH_SLOT_NONE)
        return sh_replog_room_may_come(log) ? SHOAL_EAGAIN : SHOAL_ENOSPC;
    if (batch->kind == SH_SLOT_ENTRIES)
        batch->zone->fruitless = 0;
    struct sh_log_slot *slot = &log->slots.slots[batch->slot];
    batch->offset = sh_log_slot_at(&log->head, batch->slot) + slot->filled;
    if (batch->kind == SH_SLOT_SURVIVORS)
        sh_replog_survivors_note(slot, batch, bytes);
    slot->filled += bytes;
    slot->pending++;
    eons_note(slot, batch);
    bool is_in_pieces =
        batch->zone->filling == batch &&
        (batch->zone->chain_pieces || batch->zone->is_abandoning); /* the next number's */
    uint64_t end = batch->first + batch->sequences + is_in_pieces;
    if (slot->end <= end) {
        slot->ends_in_pieces = is_in_pieces;
        slot->end = end;
    }
    slot->is_found |= !batch->zone->versions; /* from the primary log, at the start */
    sh_replog_clean_if_full(batch->zone);
    return SHOAL_OK;
}

/* Zeros behind what is filled, up to the next block. */
static void pad(struct sh_replog_batch *batch)
{
    size_t left;
    uint8_t *end = sh_chain_end(batch->zone->log->blocks, &batch->chain, &left);
    if (end)
        memset(end, 0, padded(batch->chain.bytes) - batch->chain.bytes);
}

/* How many bytes of the batch's slot are synced, without a gap. */
static uint32_t sound_of(const struct sh_replog_batch *batch)
{
    const struct sh_replog *log = batch->zone->log;
    uint64_t sound = batch->offset, begin = sh_log_slot_at(&log->head, batch->slot);
    for (const struct sh_replog_batch *other = batch->zone->oldest; other; other = other->behind) {
        if (other->slot == batch->slot && !other->is_durable && other->offset < sound)
            sound = other->offset;
    }
    bool has_others = batch->is_cleaners && log->slots.slots[batch->slot].pending > 1;
    return has_others ? 0 : (uint32_t)(sound - begin);
}

static void span_head_put(struct sh_replog_batch *batch)
{
    struct sh_replog *log = batch->zone->log;
    uint8_t *at = sh_chain_begin(log->blocks, &batch->chain);
    struct sh_span span = {.zone = batch->zone->id,
                           .use = log->slots.slots[batch->slot].use,
                           .first = batch->first,
                           .sequences = batch->sequences,
                           .bytes = batch->lives || batch->gives
                                        ? 0
                                        : (uint32_t)(batch->chain.bytes - SH_SPAN_HEAD_BYTES),
                           .whole = batch->zone->durable,
                           .incarnation = batch->zone->incarnation,
                           .life = batch->life,
                           .life_first = batch->life_first,
                           .sound = sound_of(batch),
                           .context = batch->begin};
    sh_replog_roll_tell(batch, &span);
    for (unsigned i = 0; i < batch->lives_count; i++, at += SH_SPAN_HEAD_BYTES) {
        span.life = batch->lives[i].life;
        span.life_first = batch->lives[i].first;
        sh_span_put(&span, at);
    }
    for (unsigned i = 0; i < batch->gives_count; i++, at += SH_SPAN_HEAD_BYTES) {
        span.gives = true;
        span.given_use = log->slots.slots[batch->gives[i]].use;
        span.given_parts = log->slots.slots[batch->gives[i]].parts;
        sh_span_put(&span, at);
    }
    if (!batch->lives && !batch->gives)
        sh_span_put(&span, at);
}

enum shoal_err sh_replog_batch_ready(struct sh_replog_batch *batch)
{
    struct sh_replog_zone *zone = batch->zone;
    struct sh_replog *log = zone->log;
    SH_ASSERT(batch == zone->filling && batch->chain.bytes > SH_SPAN_HEAD_BYTES);
    enum shoal_err err = place(batch);
    if (err)
        return err;
    span_head_put(batch);
    pad(batch);
    sh_replog_queue_leave(batch, SH_REPLOG_BY_AGE);
    sh_replog_queue_add(&log->ready, batch);
    zone->filling = NULL;
    if (zone->newest)
        zone->newest->behind = batch;
    else
        zone->oldest = batch;
    zone->newest = batch;
    batch->behind = NULL;
    if (!zone->oldest_unhanded)
        zone->oldest_unhanded = batch;
    return SHOAL_OK;
}

enum shoal_err sh_replog_batch_flush(struct sh_replog_batch *batch, enum sh_replog_flush why)
{
    struct sh_replog *log = batch->zone->log;
    enum shoal_err err = sh_replog_batch_ready(batch);
    log->status.flushes[why] += !err;
    return err;
}

enum shoal_err sh_replog_other_ready(struct sh_replog_batch *batch)
{
    SH_ASSERT(batch->done && batch != batch->zone->filling);
    enum shoal_err err = place(batch);
    if (err)
        return err;
    if (batch->kind == SH_SLOT_SURVIVORS)
        span_head_put(batch);
    pad(batch);
    sh_replog_queue_add(&batch->zone->log->ready, batch);
    return SHOAL_OK;
}

/* --- Writes ------------------------------------------------------------------------------------ */

static bool is_first_of_slot(const struct sh_replog_batch *batch)
{
    const struct sh_replog *log = batch->zone->log;
    return batch->offset == sh_log_slot_at(&log->head, batch->slot) + SH_SLOT_HEAD_BYTES;
}

static void slot_head_give(struct sh_replog *log, struct sh_replog_batch *batch)
{
    if (batch->slot_head)
        log->free_heads |= 1u << (batch->slot_head - log->slot_heads) / SH_SLOT_HEAD_BYTES;
    batch->slot_head = NULL;
}

static void written_count(struct sh_replog_status *status, const struct sh_replog_batch *batch)
{
    uint32_t bytes = padded(batch->chain.bytes);
    status->slot_writes++;
    status->slot_bytes += bytes;
    status->slot_padding += bytes - batch->chain.bytes;
    if (status->slot_largest < bytes)
        status->slot_largest = bytes;
    if (batch->slot_head)
        status->head_bytes += SH_SLOT_HEAD_BYTES;
    if (batch->kind == SH_SLOT_SURVIVORS)
        status->survivor_bytes += bytes;
    if (batch->kind == SH_SLOT_VERSIONS)
        status->version_bytes += bytes;
}

/* All of it has been written, but not synced. */
static void written(struct sh_replog *log, struct sh_replog_batch *batch)
{
    log->writing--;
    written_count(&log->status, batch);
    slot_head_give(log, batch);
    sh_chain_free(log->blocks, &batch->chain);
    if (!log->written.count)
        log->written_ns = log->now_ns;
    sh_replog_queue_add(&log->written, batch);
    batch->is_handed = true;
    if (!batch->done)
        sh_replog_zone_hand_settle(batch->zone);
}

/* The disk was full: all of it is written again, when there may be room. */
static void write_again(struct sh_replog *log, struct sh_replog_batch *batch)
{
    batch->is_refused = batch->is_submitted = false;
    batch->walk = (struct sh_chain_walk){0};
    sh_replog_queue_leave(batch, SH_REPLOG_BY_STATE);
    sh_replog_queue_add(&log->ready, batch);
}

/* All of its operations that were handed over are done. */
static void settled(struct sh_replog *log, struct sh_replog_batch *batch)
{
    if (batch->is_refused)
        write_again(log, batch);
    else if (batch->is_submitted)
        written(log, batch);
}

static void on_written(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog *log = op->log;
    struct sh_replog_batch *batch = op->batch;
    bool is_full = done->err == SHOAL_ENOSPC;
    if (is_full) {
        batch->is_refused = true;
        done->err = SHOAL_OK;
        done->done_bytes = done->size;
        sh_replog_room_lacks(log);
    } else if (!done->err && log->room.has_no_allocate) { /* else it had its room before */
        sh_replog_room_found(log);
    }
    bool is_well = !sh_replog_op_end(op);
    if (--batch->ops == 0 && is_well)
        settled(log, batch);
}

/* The head of a slot that is used anew. */
static uint8_t *slot_head_take(struct sh_replog *log, const struct sh_replog_batch *batch)
{
    SH_ASSERT(log->free_heads); /* as many as batches are written at a time */
    unsigned bit = (unsigned)__builtin_ctz(log->free_heads);
    uint8_t *block = log->slot_heads + bit * SH_SLOT_HEAD_BYTES;
    const struct sh_log_slot_head head = {.zone = batch->zone->id,
                                          .use = log->slots.slots[batch->slot].use,
                                          .file = log->head.number,
                                          .owner = batch->zone->owner,
                                          .kind = batch->kind,
                                          .incarnation = batch->zone->incarnation,
                                          .seconds = log->slots.slots[batch->slot].since,
                                          .flush_least = batch->zone->flush_first};
    sh_log_slot_put(&head, block);
    log->free_heads &= ~(1u << bit);
    return block;
}

static void piece_add(struct sh_disk_op *op, const uint8_t *at, size_t size)
{
    op->pieces[op->pieces_count++] = (struct iovec){(void *)(uintptr_t)at, size};
    op->size += size;
}

/* Gathers what comes next of a batch; false: there is no more. */
static bool pieces_gather(struct sh_replog *log, const struct sh_replog_batch *batch,
                          struct sh_chain_walk *walk, struct sh_disk_op *op)
{
    struct sh_bytes run;
    op->offset = batch->offset + walk->done;
    if (batch->slot_head && walk->done == 0) {
        op->offset -= SH_SLOT_HEAD_BYTES;
        piece_add(op, batch->slot_head, SH_SLOT_HEAD_BYTES);
    }
    while (op->pieces_count < SH_REPLOG_PIECES &&
           sh_chain_next(log->blocks, &batch->chain, walk, &run))
        piece_add(op, run.at, padded(run.size));
    return op->pieces_count;
}

/* The cleaner's writes, as its reads, wait for what somebody waits for: packs, syncs, and batches of writes, as a full buffer waits for
 * those. */
static bool is_bulk(const struct sh_replog_batch *batch)
{
    return batch->is_cleaners && !batch->zone->log->room.is_full;
}

/* Hands over what the disk takes; true: all of it. */
static bool submit(struct sh_replog *log, struct sh_replog_batch *batch)
{
    if (is_first_of_slot(batch) && !batch->slot_head)
        batch->slot_head = slot_head_take(log, batch);
    while (log->free_ops) {
        struct sh_chain_walk walk = batch->walk;
        struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                                .pieces = log->free_ops->pieces,
                                .is_bulk = is_bulk(batch),
                                .done = on_written};
        if (!pieces_gather(log, batch, &walk, &op))
            return true;
        batch->ops++;
        if (!sh_replog_submit(log, batch, &op)) {
            batch->ops--;
            return false;
        }
        batch->walk = walk;
    }
    return false;
}

unsigned sh_replog_slots_write(struct sh_replog *log)
{
    unsigned work = 0;
    struct sh_replog_batch *batch;
    if (log->room.is_full && log->room.has_no_allocate && log->now_ns < log->room.again_ns)
        return 0;
    while (!log->trouble && (batch = log->ready.first)) {
        if (!batch->is_begun && log->writing == SH_REPLOG_WRITES)
            break;
        log->writing += !batch->is_begun;
        batch->is_begun = true;
        if (!submit(log, batch))
            break;
        work++;
        batch->is_submitted = true;
        sh_replog_queue_leave(batch, SH_REPLOG_BY_STATE);
        if (!batch->ops) /* its operations were done before the last one was handed over */
            settled(log, batch);
    }
    return work;
}

/* --- Syncs ------------------------------------------------------------------------------------- */

static void on_synced(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog *log = op->log;
    struct sh_replog_batch *batch;
    log->is_syncing = false;
    if (sh_replog_op_end(op))
        return;
    while ((batch = log->syncing.first)) {
        sh_replog_queue_leave(batch, SH_REPLOG_BY_STATE);
        sh_replog_queue_leave(batch, SH_REPLOG_BY_PRIMARY);
        batch->is_durable = true;
        struct sh_log_slot *slot = &log->slots.slots[batch->slot];
        slot->pending--;
        if (batch->ordinal)
            sh_replog_roll_durable(batch);
        if (batch->done)
            batch->done(batch);
        else
            sh_replog_zone_settle(batch->zone);
    }
    sh_replog_packs_synced(log);
}

static bool is_time_to_sync(const struct sh_replog *log)
{
    uint64_t linger_ns = log->config.linger_ns;
    if (log->written.count && (log->waiting || log->written.count >= SYNC_AFTER ||
                               log->primary.count || log->now_ns >= log->written_ns + linger_ns))
        return true;
    return sh_replog_packs_wait(log) &&
           (log->is_sync_wanted || log->now_ns >= log->unsynced_ns + linger_ns);
}

unsigned sh_replog_sync_begin(struct sh_replog *log)
{
    if (log->trouble || log->is_syncing || !is_time_to_sync(log))
        return 0;
    const struct sh_disk_op op = {.kind = SH_DISK_SYNC, .done = on_synced};
    if (!sh_replog_submit(log, NULL, &op))
        return 0;
    log->is_syncing = true;
    log->status.syncs++;
    sh_replog_packs_sync_begin(log);
    struct sh_replog_batch *batch;
    while ((batch = log->written.first)) {
        sh_replog_queue_leave(batch, SH_REPLOG_BY_STATE);
        sh_replog_queue_add(&log->syncing, batch);
    }
    return 1;
}
