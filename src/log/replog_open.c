/* Opening a log: its file, which slots are whose, and what only the primary log has; and closing it. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"
#include "log/scan.h"

#define ZEROS_BYTES (1u << 20)
#define VERSIONS_MIN 16
#define VERSIONS_SLOT_BYTES 16   /* of a slot of the table, with its share of pieces' headers */
#define VERSIONS_RUNS_BYTES 4096 /* of all runs */
#define SECRET (~(uint64_t)UINT32_MAX) /* the half of a primary use that is drawn at random */

/* --- The disk, waiting ------------------------------------------------------------------------- */

/* Reads so many bytes; what the file does not have is zero. */
static enum shoal_err read_at(struct sh_replog *log, uint64_t offset, uint8_t *into, size_t size)
{
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = log->file, .offset = offset, .data = into, .size = size};
    enum shoal_err err = sh_disk_do(log->config.disk, &op);
    if (!err)
        memset(into + op.done_bytes, 0, size - op.done_bytes);
    return err;
}

/* A write of that kind. */
static enum shoal_err write_as(struct sh_replog *log, enum sh_disk_kind kind, uint64_t offset,
                               uint8_t *from, size_t size)
{
    struct sh_disk_op op = {
        .kind = kind, .file = log->file, .offset = offset, .data = from, .size = size};
    return sh_disk_do(log->config.disk, &op);
}

static enum shoal_err write_at(struct sh_replog *log, uint64_t offset, uint8_t *from, size_t size)
{
    return write_as(log, SH_DISK_WRITE, offset, from, size);
}

static enum shoal_err sync(struct sh_replog *log, enum sh_disk_kind kind)
{
    struct sh_disk_op op = {.kind = kind, .file = log->file};
    return sh_disk_do(log->config.disk, &op);
}

/* --- The file ---------------------------------------------------------------------------------- */

/* How many bytes a raw disk has, and keeps; UINT64_MAX: the disk is none. */
static enum shoal_err raw_bytes(struct sh_replog *log, uint64_t *bytes_out)
{
    uint64_t all, left, size;
    struct sh_disk *disk = log->config.disk;
    enum shoal_err err = sh_disk_space(disk, &all, &left);
    if (!err)
        err = disk->ops->size(disk, log->file, &size);
    if (!err)
        *bytes_out = all == size && !left ? size : UINT64_MAX;
    return err;
}

/* A log is not made over anything else. The first block of a raw disk has nothing, or there would be no new log; but file systems, arrays
 * and volumes have their heads farther on, up to 64 KiB. */
static enum shoal_err raw_check(struct sh_replog *log)
{
    enum shoal_err err = read_at(log, 0, log->pack, SH_REPLOG_PACK_BYTES);
    for (size_t i = 0; !err && i < SH_REPLOG_PACK_BYTES; i++) {
        if (log->pack[i])
            err = SHOAL_ECORRUPT;
    }
    if (err == SHOAL_ECORRUPT)
        SH_ERROR("log", "the device has something on it that is no log: nothing was written",
                 SH_TEXT("file", log->config.name));
    return err;
}

/* Zeros the primary log; then, when that is on the disk, the head says that this is a log. */
static enum shoal_err file_format(struct sh_replog *log)
{
    const struct sh_replog_config *config = &log->config;
    log->head = (struct sh_log_file){.cluster = config->cluster,
                                     .number = sh_random64(&config->random),
                                     .node = config->node,
                                     .slot_bytes = config->slot_bytes,
                                     .slots = config->slots,
                                     .primary_blocks = config->primary_blocks};
    if (!sh_log_file_is_sound(&log->head))
        return SHOAL_EINVAL;
    uint64_t end = sh_log_slot_at(&log->head, 0), raw;
    enum shoal_err err = raw_bytes(log, &raw);
    if (!err && sh_log_file_bytes(&log->head) > raw)
        err = SHOAL_ENOSPC;
    if (!err && raw != UINT64_MAX)
        err = raw_check(log);
    memset(log->pack, 0, SH_REPLOG_PACK_BYTES);
    for (uint64_t at = sh_log_primary_at(); !err && at < end; at += ZEROS_BYTES) {
        size_t size = end - at < ZEROS_BYTES ? (size_t)(end - at) : ZEROS_BYTES;
        err = write_at(log, at, log->pack, size);
    }
    if (!err)
        err = sync(log, SH_DISK_SYNC);
    sh_log_file_put(&log->head, log->pack);
    if (!err)
        err = write_at(log, 0, log->pack, SH_SLOT_HEAD_BYTES);
    if (!err)
        err = sync(log, SH_DISK_SYNC);
    return err ? err : sync(log, SH_DISK_SYNC_DIR);
}

/* Whether there is memory for what may be filled side by side: a batch of writes, one of survivors, a compaction, and the versions
 * of an epoch. */
static bool is_buffer_enough(const struct sh_replog *log)
{
    uint64_t batch = sh_replog_batch_max(log) + SH_SLAB_BYTES;
    uint64_t versions = log->config.versions_max * VERSIONS_SLOT_BYTES + SH_SLAB_BYTES;
    uint64_t least = 3 * batch + 2 * versions;
    if (log->config.buffer_bytes < least)
        SH_ERROR("log", "the write buffer is not enough for the segments of this log",
                 SH_TEXT("file", log->config.name), SH_U64("bytes", log->config.buffer_bytes),
                 SH_U64("least", least));
    return log->config.buffer_bytes >= least && log->config.batch_bytes <= sh_replog_batch_max(log);
}

/* The head is in one sector: after a crash it is the old one or the new one. */
static enum shoal_err head_change(struct sh_replog *log, const struct sh_log_file *head)
{
    sh_log_file_put(head, log->pack);
    enum shoal_err err = write_at(log, 0, log->pack, SH_SLOT_HEAD_BYTES);
    if (!err)
        err = sync(log, SH_DISK_SYNC);
    if (!err)
        log->head = *head;
    return err;
}

enum shoal_err sh_replog_name(struct sh_replog *log, uint64_t cluster, uint16_t node)
{
    struct sh_log_file head = log->head;
    if (head.cluster == cluster && head.node == node)
        return SHOAL_OK;
    if (head.cluster || head.node)
        return SHOAL_ECLUSTER;
    head.cluster = cluster;
    head.node = node;
    return head_change(log, &head);
}

/* A file that has fewer slots than are wanted gets more, behind those that it has: nothing there is taken for a slot in use, as no head there names
 * the file. None of the new slots is used
 * before the head is on the disk. A file never gets smaller. */
static enum shoal_err file_grow(struct sh_replog *log)
{
    const struct sh_replog_config *config = &log->config;
    struct sh_log_file head = log->head;
    uint64_t slots = (uint64_t)config->slots * config->slot_bytes / head.slot_bytes;
    slots = slots < SH_LOG_SLOTS_MAX ? slots : SH_LOG_SLOTS_MAX;
    if (slots < head.slots)
        SH_INFO("log", "the log keeps the segments that it has, which are more than it is to have",
                SH_TEXT("file", config->name), SH_U64("has", head.slots), SH_U64("wanted", slots));
    if (slots <= head.slots)
        return SHOAL_OK;
    head.slots = (uint32_t)slots;
    uint64_t raw;
    if (raw_bytes(log, &raw) || sh_log_file_bytes(&head) > raw)
        return SHOAL_OK;
    return head_change(log, &head);
}

static enum shoal_err file_open(struct sh_replog *log)
{
    const struct sh_replog_config *config = &log->config;
    uint64_t raw;
    enum shoal_err err = sh_disk_open(config->disk, config->name, true, &log->file);
    if (err)
        return err;
    log->is_open = true;
    err = read_at(log, 0, log->pack, SH_SLOT_HEAD_BYTES);
    if (!err)
        err = sh_log_file_get(log->pack, &log->head);
    if (err == SHOAL_ENONAME)
        return file_format(log);
    if (!err)
        err = raw_bytes(log, &raw);
    if (!err && sh_log_file_bytes(&log->head) > raw)
        err = SHOAL_ENOSPC; /* before anything is written */
    if (!err)
        err = sh_replog_name(log, config->cluster, config->node);
    /* A process that was killed may have written what is not on the disk yet: what is read from here on is. */
    if (!err)
        err = sync(log, SH_DISK_SYNC);
    if (!err)
        err = sync(log, SH_DISK_SYNC_DIR);
    return err ? err : file_grow(log);
}

/* --- Slots ------------------------------------------------------------------------------------- */

static enum shoal_err slot_found(struct sh_replog *log, uint32_t number,
                                 const struct sh_log_slot_head *head)
{
    struct sh_replog_zone *zone;
    enum shoal_err err =
        sh_replog_zone_make(log, head->zone, head->owner, head->incarnation, &zone);
    if (err)
        return err;
    if (zone->incarnation_seen < head->incarnation)
        zone->incarnation_seen = head->incarnation;
    sh_log_slots_find(&log->slots, &zone->slots, number, head);
    return SHOAL_OK;
}

/* A slot has room for all versions of an epoch: fewer than are wanted, where it is small. */
static void versions_bound(struct sh_replog *log)
{
    uint64_t room = log->head.slot_bytes - SH_SLOT_HEAD_BYTES - VERSIONS_RUNS_BYTES;
    while (log->config.versions_max * VERSIONS_SLOT_BYTES > room)
        log->config.versions_max /= 2;
}

static enum shoal_err head_read(struct sh_replog *log, uint32_t slot,
                                struct sh_log_slot_head *head_out, bool *is_used_out)
{
    enum shoal_err err =
        read_at(log, sh_log_slot_at(&log->head, slot), log->pack, SH_SLOT_HEAD_BYTES);
    *is_used_out = !err && sh_log_slot_get(log->pack, log->head.number, head_out);
    return err;
}

static enum shoal_err head_zero(struct sh_replog *log, uint32_t slot)
{
    return write_at(log, sh_log_slot_at(&log->head, slot), log->zeros, SH_SLOT_HEAD_BYTES);
}

/* Without a primary log: finds slots whose heads are marks of zones that were being dropped. */
static enum shoal_err marks_find(struct sh_replog *log)
{
    enum shoal_err err = SHOAL_OK;
    for (uint32_t i = 0; !err && i < log->head.slots; i++) {
        struct sh_log_slot_head head;
        bool is_used;
        err = head_read(log, i, &head, &is_used);
        if (!err && is_used && head.kind == SH_SLOT_DROPPED)
            err = sh_replog_marks_add(&log->marks,
                                      &(struct sh_replog_dropped){head.zone, head.incarnation, i});
    }
    return err;
}

/* All slots of zones that were dropped have gone: their marks go. */
static enum shoal_err marks_zero(struct sh_replog *log)
{
    enum shoal_err err = sync(log, SH_DISK_SYNC);
    for (unsigned i = 0; !err && i < log->marks.count; i++) {
        if (log->marks.marks[i].slot != SH_SLOT_NONE)
            err = head_zero(log, log->marks.marks[i].slot);
    }
    return err ? err : sync(log, SH_DISK_SYNC);
}

/* Finds out whose a slot with a damaged head is: by a span of the use that a copy of its head tells. Rather one which says that the head had been on
 * the disk: else a crash may have left the slot so. False: it has none. */
static bool lost_span(const struct sh_replog *log, const uint8_t *bytes, const uint64_t uses[2],
                      struct sh_span *span_out)
{
    bool has_one = false;
    for (unsigned i = 0; i < 2; i++) {
        struct sh_scan scan = {.bytes = sh_bytes_make(bytes + SH_SLOT_HEAD_BYTES,
                                                      log->head.slot_bytes - SH_SLOT_HEAD_BYTES),
                               .use = uses[i],
                               .mask = UINT64_MAX};
        struct sh_span span;
        struct sh_reader entries;
        while (uses[i] && sh_scan_next(&scan, &span, &entries)) {
            *span_out = span;
            has_one = true;
            if (span.sound > SH_SLOT_HEAD_BYTES)
                return true;
        }
    }
    return has_one;
}

/* Both copies of a slot's head are damaged. If its zone was dropped, a crash has torn the zeros that were to take their place. Else it is not
 * used any more, and its zone, if that can be told, is damaged. */
static enum shoal_err slot_lose(struct sh_replog *log, uint32_t slot)
{
    const uint64_t uses[2] = {sh_log_slot_use_of(log->pack, 0), sh_log_slot_use_of(log->pack, 1)};
    size_t size = log->head.slot_bytes;
    uint8_t *bytes = aligned_alloc(SH_BLOCK_BYTES, size);
    struct sh_replog_zone *zone = NULL;
    struct sh_span span = {.zone = 0};
    enum shoal_err err =
        bytes ? read_at(log, sh_log_slot_at(&log->head, slot), bytes, size) : SHOAL_ENOMEM;
    bool has_span = !err && lost_span(log, bytes, uses, &span);
    free(bytes);
    if (has_span && sh_replog_marks_have(&log->marks, span.zone, span.incarnation))
        return head_zero(log, slot);
    if (has_span && span.sound > SH_SLOT_HEAD_BYTES)
        err = sh_replog_zone_make(log, span.zone, (uint16_t)(span.zone >> 48), span.incarnation,
                                  &zone);
    if (err)
        return err;
    sh_log_slots_lose(&log->slots, slot, zone ? zone->id : 0);
    SH_ERROR("log",
             "a slot's head is damaged: it will not be used, and its zone may need another replica",
             SH_TEXT("file", log->config.name), SH_U64("slot", slot),
             SH_U64("zone", zone ? zone->id : 0));
    if (zone && (!zone->has_lost || zone->lost_incarnation < span.incarnation))
        zone->lost_incarnation = span.incarnation;
    if (zone)
        zone->has_lost = true;
    return SHOAL_OK;
}

/* Reads the heads of all slots. Those of zones that were dropped are zeroed: there was a crash before that was done. */
static enum shoal_err slots_read(struct sh_replog *log)
{
    enum shoal_err err = sh_log_slots_create(&log->slots, log->head.slots, log->head.slot_bytes);
    for (uint32_t i = 0; !err && i < log->head.slots; i++) {
        struct sh_log_slot_head head;
        bool is_used;
        err = head_read(log, i, &head, &is_used);
        if (!err && !is_used && sh_log_slot_is_damaged(log->pack, log->head.number))
            err = slot_lose(log, i);
        if (err || !is_used || head.kind == SH_SLOT_DROPPED)
            continue;
        err = sh_replog_marks_have(&log->marks, head.zone, head.incarnation)
                  ? head_zero(log, i)
                  : slot_found(log, i, &head);
    }
    if (!err && log->marks.count)
        err = marks_zero(log);
    return err ? err : sh_replog_room_open(log);
}

/* --- The primary log --------------------------------------------------------------------------- */

/* Sends a batch, whose slot gets its room first if it has none. ENOSPC. */
static enum shoal_err batch_go(struct sh_replog_batch *batch)
{
    enum shoal_err err = sh_replog_room_wait(batch->zone->log, 1);
    if (!err)
        err = sh_replog_batch_ready(batch);
    return err == SHOAL_EAGAIN ? SHOAL_ENOSPC : err;
}

/* Sends what is being filled, the oldest first, and waits until there is room again. Of a zone, or of all: NULL. */
static enum shoal_err relieve(struct sh_replog *log, struct sh_replog_zone *zone)
{
    enum shoal_err err = SHOAL_OK;
    struct sh_replog_batch *batch;
    if (zone && zone->filling && zone->filling->chain.bytes > SH_SPAN_HEAD_BYTES)
        err = batch_go(zone->filling);
    while (!err && !zone && (batch = log->fresh.first))
        err = batch_go(batch);
    while (!err && (log->ready.count || log->writing || log->written.count || log->is_syncing)) {
        (void)sh_replog_slots_write(log);
        (void)sh_replog_sync_begin(log);
        (void)sh_disk_poll(log->config.disk, true);
        err = log->trouble;
    }
    return err;
}

/* Entries with one number: a completion record, the first of a pair, and what counts. They go to the same batch. */
#define TOGETHER_MAX 3

/* Appends entries that have their versions. */
static enum shoal_err entries_again(struct sh_replog_zone *zone,
                                    const struct sh_replog_entry *entries, unsigned count)
{
    enum shoal_err err = SHOAL_EAGAIN;
    size_t stored = sh_replog_entry_stored(&entries[0]);
    for (unsigned i = 1; i < count; i++)
        stored += SH_REPLOG_ENTRY_HEAD_MAX + sh_replog_entry_stored(&entries[i]);
    for (unsigned tries = 0; err == SHOAL_EAGAIN && tries < 2; tries++) {
        err = SHOAL_OK;
        if (zone->filling && !sh_replog_batch_fits(zone->filling, stored))
            err = relieve(zone->log, zone);
        if (!err && !zone->filling)
            err = sh_replog_batch_begin(zone, SH_SLOT_ENTRIES, &zone->filling);
        if (!err)
            err = sh_replog_batch_reserve(zone->filling, stored);
        if (err == SHOAL_EAGAIN && relieve(zone->log, NULL))
            return zone->log->trouble ? zone->log->trouble : SHOAL_ENOSPC;
    }
    for (unsigned i = 0; !err && i < count; i++)
        sh_replog_batch_put(zone->filling, &entries[i]);
    return err;
}

/* Entries of a span had been on the disk, and are damaged, from that number on. */
static void lost_note(struct sh_replog_zone *zone, uint64_t number)
{
    if (!zone->has_number_lost || zone->number_lost < number)
        zone->number_lost = number;
    zone->has_number_lost = true;
}

/* A span of the primary log becomes one of a slot, with the same sequence numbers, of the same life. */
static enum shoal_err span_again(struct sh_replog *log, struct sh_span *span,
                                 struct sh_reader *entries, bool is_sound)
{
    struct sh_replog_zone *zone;
    enum shoal_err err = sh_replog_zone_make(log, span->zone, (uint16_t)(span->zone >> 48),
                                             span->incarnation, &zone);
    if (!err && zone->filling && (zone->next_sequence != span->first || zone->life != span->life))
        err = relieve(log, zone);
    if (err)
        return err;
    struct sh_replog_entry entries_read[TOGETHER_MAX];
    unsigned count = 0;
    if (zone->incarnation_seen < span->incarnation)
        zone->incarnation_seen = span->incarnation;
    if (zone->durable < span->whole)
        zone->durable = span->whole;
    zone->incarnation = span->incarnation;
    zone->life = span->life;
    zone->life_first = span->life_first;
    zone->next_sequence = span->first;
    while (!err && count < TOGETHER_MAX) {
        struct sh_replog_entry *entry = &entries_read[count];
        if (sh_replog_entry_get(entries, &span->context, entry) != SH_REPLOG_ENTRY ||
            sh_replog_entry_stored(entry) > sh_replog_piece_max(log))
            break;
        /* Pieces of a chunk may be missing here, which went to a slot. */
        if (zone->filling && !sh_replog_is_completion(entry) && entry->piece != zone->chain_next)
            err = relieve(log, zone);
        count++;
        if (entry->is_with_next)
            continue;
        if (!err)
            err = entries_again(zone, entries_read, count);
        if (err)
            break;
        count = 0;
        bool is_last = sh_replog_is_last(entry);
        zone->chain_next = is_last ? 0 : (uint16_t)(entry->piece + 1);
        sh_replog_batch_count(zone->filling, is_last);
    }
    if (!err && is_sound && zone->next_sequence < span->first + span->sequences)
        lost_note(zone, zone->next_sequence);
    return err;
}

/* Finds out what a lap says of zones. */
static enum shoal_err lap_said(struct sh_replog *log, const uint8_t *bytes, uint32_t lap)
{
    struct sh_scan scan = sh_replog_ring_scan(&log->head, bytes);
    struct sh_span span;
    struct sh_reader entries;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_scan_next(&scan, &span, &entries)) {
        struct sh_replog_zone *zone;
        if ((uint32_t)span.use != lap || !sh_replog_ring_counts(&log->marks, &span))
            continue;
        err = sh_replog_zone_make(log, span.zone, (uint16_t)(span.zone >> 48), span.incarnation,
                                  &zone);
        if (err)
            break;
        sh_replog_said_add(&zone->said_found, &span);
        sh_replog_flushes_said(zone, &span);
    }
    return err;
}

/* All spans of a lap. Of those before so many blocks nothing can be torn. */
static enum shoal_err lap_again(struct sh_replog *log, const uint8_t *bytes, uint32_t lap,
                                uint32_t sound)
{
    struct sh_scan scan = sh_replog_ring_scan(&log->head, bytes);
    struct sh_span span;
    struct sh_reader entries;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_scan_next(&scan, &span, &entries)) {
        if ((uint32_t)span.use == lap && sh_replog_ring_counts(&log->marks, &span))
            err = span_again(log, &span, &entries, scan.begin / SH_BLOCK_BYTES < sound);
    }
    return err;
}

/* Begins a lap with an empty span, which is all that the next start finds unless something is written behind it: what was read
 * is in slots now. */
static enum shoal_err lap_mark(struct sh_replog *log)
{
    const struct sh_span span = {.use = (log->head.number & SECRET) | log->lap};
    memset(log->pack, 0, SH_BLOCK_BYTES);
    sh_span_put(&span, log->pack);
    log->primary_at = log->packs_handed = log->packs_syncing = log->packs_synced = 1;
    return write_as(log, SH_DISK_WRITE_SYNC, sh_log_primary_at(), log->pack, SH_BLOCK_BYTES);
}

/* What is in the primary log goes to slots, and the next lap begins at its beginning. What is left of the lap before
 * the last one is older than the last one. */
static enum shoal_err primary_again(struct sh_replog *log, const uint8_t *bytes)
{
    uint32_t last = sh_replog_ring_last(&log->head, bytes);
    log->waiting++; /* this does */
    /* The spans read now are of no lap that counts later, and their ordinals above all others: the last process may have begun a lap that the
     * disk does not have, and an era behind that. */
    log->lap = last + 3;
    enum shoal_err err = last ? lap_said(log, bytes, last - 1) : SHOAL_OK;
    if (!err)
        err = lap_said(log, bytes, last);
    if (!err && last) /* what the last lap overwrites of it may be torn */
        err = lap_again(log, bytes, last - 1, 0);
    if (!err)
        err = lap_again(log, bytes, last, sh_replog_ring_sound(&log->head, bytes, last));
    if (!err)
        err = relieve(log, NULL);
    if (!err)
        err = lap_mark(log);
    /* The cleaner reads them whole, to know the versions. */
    for (uint32_t i = 0; i < log->slots.count; i++)
        log->slots.slots[i].is_closed = true;
    log->waiting--;
    return err;
}

/* Finds which slots are whose, and what only the primary log has. */
static enum shoal_err contents_read(struct sh_replog *log)
{
    size_t size = (size_t)log->head.primary_blocks * SH_BLOCK_BYTES;
    uint8_t *bytes = size ? aligned_alloc(SH_BLOCK_BYTES, size) : NULL;
    log->primary_marks = calloc(log->head.primary_blocks / 8 + 1, 1);
    enum shoal_err err = !log->primary_marks || (size && !bytes) ? SHOAL_ENOMEM : SHOAL_OK;
    if (!err && size)
        err = read_at(log, sh_log_primary_at(), bytes, size);
    if (!err)
        err = size ? sh_replog_ring_marks(&log->head, bytes, &log->marks) : marks_find(log);
    if (!err)
        err = slots_read(log);
    if (!err && size)
        err = primary_again(log, bytes);
    free(bytes);
    sh_replog_marks_free(&log->marks); /* it has been seen to */
    return err;
}

/* --- All of it --------------------------------------------------------------------------------- */

static enum shoal_err memory_take(struct sh_replog *log)
{
    log->slot_heads = aligned_alloc(SH_BLOCK_BYTES, SH_REPLOG_WRITES * SH_SLOT_HEAD_BYTES);
    log->zeros = aligned_alloc(SH_BLOCK_BYTES, SH_BLOCK_BYTES);
    log->piece = malloc(SH_REPLOG_PIECE_BYTES);
    log->pack = aligned_alloc(SH_BLOCK_BYTES, SH_REPLOG_PACK_BYTES);
    log->in_pack = calloc(SH_REPLOG_PACKED_MAX, sizeof *log->in_pack);
    if (!log->slot_heads || !log->zeros || !log->piece || !log->pack || !log->in_pack)
        return SHOAL_ENOMEM;
    memset(log->zeros, 0, SH_BLOCK_BYTES);
    log->free_heads = UINT32_MAX;
    for (unsigned i = 0; i < SH_REPLOG_OPS; i++) {
        log->ops[i] = (struct sh_replog_op){.log = log, .next = log->free_ops};
        log->free_ops = &log->ops[i];
    }
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < SH_REPLOG_SPARE; i++)
        err = sh_replog_batch_make(log);
    return err ? err : sh_blocks_create(log->config.buffer_bytes, &log->blocks);
}

enum shoal_err sh_replog_open(const struct sh_replog_config *config, uint64_t now_ns,
                              uint32_t seconds, struct sh_replog **log_out)
{
    struct sh_replog *log = calloc(1, sizeof *log);
    if (!log)
        return SHOAL_ENOMEM;
    log->config = *config;
    SH_ASSERT(config->versions_max >= VERSIONS_MIN);
    log->now_ns = now_ns;
    log->ending_end = &log->ending;
    log->to_clean_end = &log->to_clean;
    log->drops_end = &log->drops;
    log->fenced_end = &log->fenced;
    log->fresh.kind = SH_REPLOG_BY_AGE;
    log->primary.kind = SH_REPLOG_BY_PRIMARY;
    log->ready.kind = log->written.kind = log->syncing.kind = SH_REPLOG_BY_STATE;
    enum shoal_err err = memory_take(log);
    if (!err)
        err = file_open(log);
    if (!err)
        err = sh_replog_scrub_make(log);
    if (!err) {
        versions_bound(log);
        err = is_buffer_enough(log) ? SHOAL_OK : SHOAL_EINVAL;
    }
    if (!err)
        err = sh_replog_tables_create(log);
    if (!err)
        err = contents_read(log);
    if (err) {
        sh_replog_close(log);
        return err;
    }
    log->seconds = seconds; /* what was read has none: it is older than any */
    for (unsigned i = 0; i < sizeof log->lap_since / sizeof log->lap_since[0]; i++)
        log->lap_since[i] = seconds;
    *log_out = log;
    return SHOAL_OK;
}

static void zones_free(struct sh_replog *log)
{
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i], *next; zone; zone = next) {
            next = zone->next;
            sh_versions_destroy(zone->versions);
            free(zone->lives.lives);
            free(zone);
        }
    }
}

static void batches_free(struct sh_replog *log)
{
    for (struct sh_replog_batch *batch = log->batches, *next; batch; batch = next) {
        next = batch->next_made;
        sh_chain_free(log->blocks, &batch->chain);
        free(batch);
    }
}

enum shoal_err sh_replog_flush(struct sh_replog *log)
{
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            if (zone->versions)
                sh_replog_sync(zone);
        }
    }
    while (log->waiting && !log->trouble) {
        bool has_done = sh_replog_step(log, log->now_ns, log->seconds) > 0;
        if (!sh_disk_poll(log->config.disk, !has_done && log->in_flight) && !has_done)
            return SHOAL_ENOSPC;
    }
    return log->trouble;
}

void sh_replog_close(struct sh_replog *log)
{
    if (!log)
        return;
    log->config.handed = log->config.durable = NULL; /* nobody is told any more */
    while (log->in_flight && sh_disk_poll(log->config.disk, true))
        continue;
    sh_replog_load_free(log->load);
    sh_replog_clean_end(log);
    sh_replog_clean_memory_free(log);
    sh_replog_drops_free(log);
    sh_replog_seals_free(log);
    sh_replog_scrub_free(log->scrub);
    sh_replog_dump_free(log->dump);
    batches_free(log);
    zones_free(log);
    sh_version_pool_destroy(log->tables);
    if (log->is_open)
        log->config.disk->ops->close(log->config.disk, log->file);
    sh_log_slots_destroy(&log->slots);
    sh_blocks_destroy(log->blocks);
    free(log->in_pack);
    free(log->primary_marks);
    free(log->piece);
    free(log->zeros);
    free(log->pack);
    free(log->slot_heads);
    free(log);
}
