#include "log/replog.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"

_Static_assert(SH_REPLOG_ZEROS_MAX <= SH_REPLOG_PAYLOAD_MAX, "an entry says how many zeros");

#define RETRY_NS UINT64_C(1000000)
#define PIECE_MAX ((size_t)512 << 10)
#define GROWS_BY 8u /* a zone that is full may have that part of its slots more */

/* --- The disk ---------------------------------------------------------------------------------- */

static void op_free(struct sh_replog_op *op)
{
    struct sh_replog *log = op->log;
    log->in_flight--;
    op->next = log->free_ops;
    log->free_ops = op;
}

bool sh_replog_submit(struct sh_replog *log, struct sh_replog_batch *batch,
                      const struct sh_disk_op *wanted)
{
    struct sh_replog_op *op = log->free_ops;
    if (!op)
        return false;
    op->batch = batch;
    op->op = *wanted;
    op->op.file = log->file;
    op->op.arg = op;
    log->free_ops = op->next;
    log->in_flight++;
    enum shoal_err err = sh_disk_submit(log->config.disk, &op->op);
    if (!err)
        return true;
    op_free(op);
    if (err != SHOAL_EAGAIN)
        sh_replog_fail(log, err);
    return false;
}

static void on_read(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    uint8_t *into = done->data;
    op->log->status.read_errors += done->err != SHOAL_OK;
    if (done->err)
        op->reading->err = done->err;
    else
        memset(into + done->done_bytes, 0, done->size - done->done_bytes);
    op->reading->count--;
    op_free(op);
}

bool sh_replog_submit_read(struct sh_replog *log, uint64_t offset, uint8_t *into, size_t size,
                           bool is_bulk, struct sh_replog_reading *reading)
{
    const struct sh_disk_op op = {.kind = SH_DISK_READ,
                                  .offset = offset,
                                  .data = into,
                                  .size = size,
                                  .is_bulk = is_bulk,
                                  .done = on_read};
    if (log->free_ops)
        log->free_ops->reading = reading;
    reading->count++;
    if (sh_replog_submit(log, NULL, &op))
        return true;
    reading->count--;
    return false;
}

enum shoal_err sh_replog_op_end(struct sh_replog_op *op)
{
    struct sh_replog *log = op->log;
    op_free(op);
    bool is_short = sh_disk_is_write(&op->op) && op->op.done_bytes != op->op.size;
    if (op->op.err || is_short)
        sh_replog_fail(log, op->op.err ? op->op.err : SHOAL_EIO);
    return log->trouble;
}

void sh_replog_fail(struct sh_replog *log, enum shoal_err err)
{
    if (log->trouble)
        return;
    log->trouble = err;
    SH_ERROR("log",
             "the log of replicas is out of service: see to the disk, and start the node again",
             SH_TEXT("file", log->config.name), SH_ERR(err));
}

enum shoal_err sh_replog_trouble(const struct sh_replog *log)
{
    return log->trouble;
}

/* --- Zones ------------------------------------------------------------------------------------- */

static struct sh_replog_zone **bucket_of(struct sh_replog *log, uint64_t id)
{
    return &log->buckets[sh_mix64(id) % SH_REPLOG_BUCKETS];
}

/* Also one that was dropped. */
static struct sh_replog_zone *zone_known(struct sh_replog *log, uint64_t id)
{
    struct sh_replog_zone *zone = *bucket_of(log, id);
    while (zone && zone->id != id)
        zone = zone->next;
    return zone;
}

struct sh_replog_zone *sh_replog_zone_find(struct sh_replog *log, uint64_t id)
{
    struct sh_replog_zone *zone = zone_known(log, id);
    return zone && !zone->is_dropped ? zone : NULL;
}

struct sh_replog_zone *sh_replog_slot_zone(struct sh_replog *log, uint32_t slot)
{
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            uint32_t at = zone->slots.first;
            while (at != SH_SLOT_NONE && at != slot)
                at = log->slots.slots[at].next;
            if (at == slot)
                return zone;
        }
    }
    return NULL;
}

uint64_t sh_replog_zone_id(const struct sh_replog_zone *zone)
{
    return zone->id;
}

struct sh_replog_zone *sh_replog_zone_below(struct sh_replog *log, uint64_t id)
{
    struct sh_replog_zone *best = NULL;
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            if (zone->id < id && !zone->is_dropped && (!best || zone->id > best->id))
                best = zone;
        }
    }
    return best;
}

struct sh_replog_known sh_replog_zone_known(const struct sh_replog_zone *zone)
{
    return (struct sh_replog_known){.incarnation = zone->incarnation_seen,
                                    .is_added = zone->versions,
                                    .has_slots = zone->slots.count};
}

enum shoal_err sh_replog_zone_make(struct sh_replog *log, uint64_t id, uint16_t owner,
                                   uint32_t incarnation, struct sh_replog_zone **zone_out)
{
    *zone_out = zone_known(log, id);
    if (*zone_out)
        return SHOAL_OK;
    struct sh_replog_zone *zone = calloc(1, sizeof *zone);
    bool has_spare = log->batches_spare > 0;
    if (!zone || (!has_spare && sh_replog_batch_make(log))) {
        free(zone);
        return SHOAL_ENOMEM;
    }
    log->batches_spare -= has_spare;
    struct sh_replog_zone **bucket = bucket_of(log, id);
    *zone = (struct sh_replog_zone){.log = log,
                                    .next = *bucket,
                                    .id = id,
                                    .owner = owner,
                                    .incarnation = incarnation,
                                    .incarnation_seen = incarnation,
                                    .slots = {.first = SH_SLOT_NONE}};
    *bucket = zone;
    log->status.zones++;
    *zone_out = zone;
    return SHOAL_OK;
}

void sh_replog_zone_forget(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    struct sh_replog_zone **at = bucket_of(log, zone->id);
    SH_ASSERT(zone->is_dropped && !zone->versions && !zone->slots.count);
    while (*at != zone)
        at = &(*at)->next;
    *at = zone->next;
    log->batches_spare++;
    free(zone);
}

/* Else it was only found on the disk. */
static bool is_added(const struct sh_replog_zone *zone)
{
    return zone->versions;
}

/* One slot more that is filled and one of versions, and those that are not for writes. */
uint32_t sh_replog_slots_for(uint32_t slot_bytes, uint64_t bytes_max)
{
    uint64_t slots = bytes_max / slot_bytes + 2 + SH_REPLOG_SPARE_ZONE_SLOTS;
    return slots < UINT32_MAX ? (uint32_t)slots : UINT32_MAX;
}

/* Slots that the other zones have, or may have. */
static uint64_t slots_of_others(const struct sh_replog *log, const struct sh_replog_zone *but)
{
    uint64_t slots = 0;
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (const struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            uint32_t most = is_added(zone) && zone->slots_max > zone->slots.count
                                ? zone->slots_max
                                : zone->slots.count;
            slots += zone != but ? most : 0;
        }
    }
    return slots;
}

void sh_replog_tables_fit(struct sh_replog *log)
{
    sh_replog_tables_limit(log, slots_of_others(log, NULL));
}

/* Whether a zone that the log knows may be written to. */
static enum shoal_err may_add(const struct sh_replog_zone *zone,
                              const struct sh_replog_zone_config *config)
{
    if (zone->versions && !sh_replog_is_refusing(zone))
        return SHOAL_EEXIST;
    bool is_busy = sh_replog_is_refusing(zone) || sh_replog_is_loading(zone);
    if (is_busy || (zone->slots.count && !zone->is_loaded))
        return SHOAL_EBUSY;
    if (zone->is_dropped && config->incarnation <= zone->incarnation_seen)
        return SHOAL_EINVAL;
    if (sh_replog_epoch_in_eon(zone->epoch_seen) >= sh_replog_epoch_max(zone->log))
        return SHOAL_EFULL;
    return zone->is_loaded && config->first != zone->end ? SHOAL_EINVAL : SHOAL_OK;
}

/* Whether there is room for a zone of so many slots, which may be new: NULL. */
static enum shoal_err room_for(struct sh_replog *log, const struct sh_replog_zone *zone,
                               uint32_t slots_max)
{
    uint64_t slots = slots_of_others(log, zone) + slots_max + SH_REPLOG_SPARE_SLOTS;
    if (slots > log->head.slots - log->slots.lost_count)
        return SHOAL_ENOSPC;
    return sh_replog_room_check(log, slots);
}

enum shoal_err sh_replog_zone_add(struct sh_replog *log, const struct sh_replog_zone_config *config,
                                  struct sh_replog_zone **zone_out)
{
    const struct sh_versions_config versions = {.slots_max = log->config.versions_max,
                                                .number_max = SH_REPLOG_EPOCH_NUMBER_MAX,
                                                .pool = log->tables};
    uint32_t slots_max = sh_replog_slots_for(log->head.slot_bytes, config->bytes_max);
    /* A zone that is refused leaves nothing behind. */
    struct sh_replog_zone *zone = zone_known(log, config->id);
    enum shoal_err err = zone ? may_add(zone, config) : SHOAL_OK;
    if (!err)
        err = room_for(log, zone, slots_max);
    if (!err)
        err = sh_replog_zone_make(log, config->id, config->owner, config->incarnation, &zone);
    if (!err)
        err = sh_versions_create(&versions, &zone->versions);
    if (err)
        return err;
    err = sh_replog_lives_add(&zone->lives, (uint16_t)(zone->epoch_seen + 1), config->first,
                              config->first);
    if (err) {
        sh_versions_destroy(zone->versions);
        zone->versions = NULL;
        return err;
    }
    zone->config = *config;
    zone->rest_max = config->rest_max;
    zone->owner = config->owner;
    zone->incarnation = config->incarnation;
    if (zone->incarnation_seen < config->incarnation)
        zone->incarnation_seen = config->incarnation;
    log->status.zones += zone->is_dropped;
    zone->is_dropped = false;
    zone->epoch = zone->epoch_seen + 1; /* the cleaner's entries have epoch 0 of an eon */
    zone->life = zone->epoch;
    zone->life_first = config->first;
    zone->slots_max = slots_max;
    sh_replog_roll_begin(zone);
    if (zone->flushes < sh_replog_flush_least(config->incarnation))
        zone->flushes = sh_replog_flush_least(config->incarnation);
    zone->flush_first = zone->flushes;
    zone->next_sequence = zone->handed = zone->durable = config->first;
    zone->wanted_handed = zone->wanted = config->first;
    zone->packed_handed = zone->packed_syncing = zone->packed_durable = config->first;
    sh_replog_tables_fit(log);
    sh_replog_clean_if_full(zone);
    *zone_out = zone;
    return SHOAL_OK;
}

enum shoal_err sh_replog_zone_fits(struct sh_replog *log, uint64_t bytes_max)
{
    return room_for(log, NULL, sh_replog_slots_for(log->head.slot_bytes, bytes_max));
}

enum shoal_err sh_replog_zone_grow(struct sh_replog_zone *zone)
{
    SH_ASSERT(is_added(zone));
    if (zone->log->trouble)
        return SHOAL_EIO;
    if (sh_replog_is_refusing(zone))
        return SHOAL_EBUSY;
    if (zone->is_damaged && zone->slots_max >= zone->slots_sound + zone->slots_sound / 2)
        return SHOAL_ECORRUPT;
    enum shoal_err err = SHOAL_ENOSPC;
    for (uint32_t more = 1 + zone->slots_max / GROWS_BY; err == SHOAL_ENOSPC && more; more /= 2) {
        if (zone->slots_max > UINT32_MAX - more)
            continue;
        err = room_for(zone->log, zone, zone->slots_max + more);
        if (!err)
            zone->slots_max += more;
    }
    sh_replog_tables_fit(zone->log);
    return err;
}

/* Somebody waits for what a sync that begins now covers. */
static void sync_want(struct sh_replog_zone *zone)
{
    if (zone->durable < zone->wanted && zone->durable < zone->handed)
        zone->log->is_sync_wanted = true;
}

void sh_replog_zone_hand_settle(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    uint64_t handed = zone->handed;
    struct sh_replog_batch *batch;
    while ((batch = zone->oldest_unhanded) && batch->is_handed) {
        zone->oldest_unhanded = batch->behind;
        handed = batch->first + batch->sequences;
    }
    if (!batch && handed < zone->packed_handed)
        handed = zone->packed_handed;
    if (handed <= zone->handed || !is_added(zone) || zone->is_dropping)
        return;
    SH_ASSERT(handed <= zone->next_sequence);
    if (zone->handed < zone->wanted_handed && handed >= zone->wanted_handed)
        log->waiting_handed--;
    zone->handed = handed;
    sync_want(zone);
    if (log->config.handed)
        log->config.handed(log->config.arg, zone, handed);
}

void sh_replog_zone_settle(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    uint64_t durable = zone->durable;
    struct sh_replog_batch *batch;
    while ((batch = zone->oldest) && batch->is_durable) {
        zone->oldest = batch->behind;
        if (!zone->oldest)
            zone->newest = NULL;
        durable = batch->first + batch->sequences;
        sh_replog_batch_free(batch);
    }
    if (!batch && durable < zone->packed_durable)
        durable = zone->packed_durable;
    if (durable == zone->durable || !is_added(zone) || zone->is_dropping)
        return;
    SH_ASSERT(durable > zone->durable && durable <= zone->handed);
    if (zone->durable < zone->wanted && durable >= zone->wanted)
        log->waiting--;
    zone->durable = durable;
    (void)sh_replog_versions_go(zone); /* or later */
    if (log->config.durable)
        log->config.durable(log->config.arg, zone, durable);
}

uint64_t sh_replog_next(const struct sh_replog_zone *zone)
{
    return zone->next_sequence;
}

uint64_t sh_replog_handed(const struct sh_replog_zone *zone)
{
    return zone->handed;
}

uint64_t sh_replog_durable(const struct sh_replog_zone *zone)
{
    return zone->durable;
}

void sh_replog_hand(struct sh_replog_zone *zone)
{
    if (zone->is_dropping)
        return;
    if (zone->wanted_handed <= zone->handed && zone->next_sequence > zone->handed)
        zone->log->waiting_handed++;
    zone->wanted_handed = zone->next_sequence;
    zone->log->has_idled = false;
}

void sh_replog_sync(struct sh_replog_zone *zone)
{
    if (zone->is_dropping)
        return;
    if (zone->wanted <= zone->durable && zone->next_sequence > zone->durable)
        zone->log->waiting++;
    zone->wanted = zone->next_sequence;
    zone->log->has_idled = false;
    sync_want(zone);
}

/* --- Writes ------------------------------------------------------------------------------------ */

/* The batch for so many bytes: the one that is being filled, or the next. */
static enum shoal_err batch_for(struct sh_replog_zone *zone, size_t stored)
{
    enum shoal_err err = SHOAL_OK;
    if (zone->filling && !sh_replog_batch_fits(zone->filling, stored))
        err = sh_replog_batch_flush(zone->filling, SH_REPLOG_FLUSH_FULL);
    if (err || zone->filling)
        return err;
    if (!sh_replog_slots_have_room(zone)) {
        sh_replog_clean_if_full(zone);
        bool may_have = sh_replog_slots_may_have_room(zone) || sh_replog_may_gain(zone);
        return may_have ? SHOAL_EAGAIN : SHOAL_ENOSPC;
    }
    return sh_replog_batch_begin(zone, SH_SLOT_ENTRIES, &zone->filling);
}

size_t sh_replog_piece_max(const struct sh_replog *log)
{
    size_t quarter = log->head.slot_bytes / 4;
    return quarter < PIECE_MAX ? quarter : PIECE_MAX;
}

static uint64_t chunk_of(const struct sh_replog_write *write)
{
    return write->local_id | (uint64_t)write->creator << 48;
}

/* Pieces come in a row, and nothing of the zone in between. */
static bool is_next_piece(const struct sh_replog_zone *zone, const struct sh_replog_write *write)
{
    uint64_t end = (write->piece ? zone->chain_offset : 0) + (uint64_t)write->payload.size;
    bool is_last = write->piece + 1 == write->pieces;
    if (write->pieces > 1 && (is_last ? end != write->total : end > write->total))
        return false;
    if (!zone->chain_pieces)
        return write->piece == 0;
    return write->total == zone->chain_total && chunk_of(write) == zone->chain_chunk &&
           write->piece == zone->chain_next && write->pieces == zone->chain_pieces;
}

/* The numbers of the versions of the write and of that with it. Of a chunk in pieces, or a pair, they are reserved with the first piece,
 * and taken with the last one (number_settle): what does not all come has had no version. */
static enum shoal_err number_find(struct sh_replog_zone *zone, const struct sh_replog_write *write,
                                  uint32_t numbers_out[2])
{
    const struct sh_replog_write *with = write->with;
    const uint64_t chunks[] = {chunk_of(write), with ? chunk_of(with) : 0};
    enum shoal_err err = SHOAL_OK;
    if (write->piece)
        numbers_out[0] = zone->chain_number;
    else if (with || write->pieces > 1)
        err = sh_versions_reserve(zone->versions, chunks, with ? 2 : 1, numbers_out);
    else
        err = sh_versions_next(zone->versions, chunks[0], write->is_removal, numbers_out);
    return err == SHOAL_EFULL ? sh_replog_epoch_end(zone) : err;
}

static void number_settle(struct sh_replog_zone *zone, uint64_t chunk, bool is_removal)
{
    uint32_t number;
    enum shoal_err err = sh_versions_next(zone->versions, chunk, is_removal, &number);
    SH_ASSERT(!err); /* it was reserved */
}

/* A piece was appended: others follow, or it was the last one. */
static void chain_note(struct sh_replog_zone *zone, const struct sh_replog_write *write,
                       uint32_t number)
{
    bool is_last = write->piece + 1 == write->pieces;
    if (!write->piece) {
        zone->with_chunk = write->with ? chunk_of(write->with) : 0;
        zone->with_is_removal = write->with && write->with->is_removal;
    }
    if (is_last && (write->pieces > 1 || zone->with_chunk))
        number_settle(zone, chunk_of(write), write->is_removal);
    if (is_last && zone->with_chunk)
        number_settle(zone, zone->with_chunk, zone->with_is_removal);
    zone->chain_chunk = chunk_of(write);
    zone->chain_number = number;
    zone->chain_next = (uint16_t)(write->piece + 1);
    zone->chain_offset = (write->piece ? zone->chain_offset : 0) + (uint32_t)write->payload.size;
    zone->chain_total = write->total;
    zone->chain_pieces = is_last ? 0 : write->pieces;
}

static size_t stored_of(const struct sh_replog_write *write)
{
    return write->payload.at ? write->payload.size : 0;
}

static bool is_too_big(const struct sh_replog_write *write, size_t most)
{
    return stored_of(write) > most || write->payload.size > SH_REPLOG_ZEROS_MAX;
}

static void entry_put(struct sh_replog_zone *zone, const struct sh_replog_write *write,
                      uint32_t number, bool is_with_next)
{
    const struct sh_replog_entry entry = {.local_id = write->local_id,
                                          .creator = write->creator,
                                          .version = {zone->epoch, number},
                                          .seconds = zone->log->seconds,
                                          .piece = write->piece,
                                          .pieces = write->pieces,
                                          .offset = write->piece ? zone->chain_offset : 0,
                                          .total = write->pieces > 1 ? write->total : 0,
                                          .is_removal = write->is_removal,
                                          .is_with_next = is_with_next,
                                          .payload = write->payload};
    sh_replog_batch_put(zone->filling, &entry);
    zone->log->status.appended_bytes += stored_of(write);
}

static void write_assert(const struct sh_replog_write *write)
{
    SH_ASSERT(write->local_id <= SH_REPLOG_LOCAL_ID_MAX && (write->local_id || write->creator));
    SH_ASSERT(write->piece < write->pieces);
    SH_ASSERT(write->creator || write->local_id != SH_REPLOG_COMPLETION_ID);
    SH_ASSERT(!write->is_removal || (write->pieces == 1 && !write->payload.size));
}

/* While the disk is full the cleaner needs half of the memory. */
static bool leaves_to_cleaner(const struct sh_replog *log)
{
    return log->room.is_full && sh_blocks_used(log->blocks) > log->config.buffer_bytes / 2;
}

static enum shoal_err append(struct sh_replog_zone *zone, const struct sh_replog_write *write)
{
    struct sh_replog *log = zone->log;
    const struct sh_replog_write *with = write->with;
    size_t stored = stored_of(write), most = sh_replog_piece_max(log);
    SH_ASSERT(is_added(zone));
    write_assert(write);
    if (with) {
        write_assert(with);
        SH_ASSERT(!write->piece && with->pieces == 1 && !with->with && !with->completion.at);
        SH_ASSERT(chunk_of(write) != chunk_of(with));
        stored += SH_REPLOG_ENTRY_HEAD_MAX + stored_of(with);
    }
    if (write->completion.at) {
        SH_ASSERT(write->piece + 1 == write->pieces);
        SH_ASSERT(write->completion.size <= SH_REPLOG_COMPLETION_MAX);
        stored += SH_REPLOG_ENTRY_HEAD_MAX + write->completion.size;
    }
    if (log->trouble)
        return SHOAL_EIO;
    if (is_too_big(write, most) || (with && is_too_big(with, most / 2)))
        return SHOAL_ETOOBIG;
    if (!is_next_piece(zone, write))
        return SHOAL_EINVAL;
    if (sh_replog_is_refusing(zone))
        return SHOAL_EBUSY;
    if (zone->is_ending || leaves_to_cleaner(log))
        return SHOAL_EAGAIN;
    enum shoal_err err = zone->is_abandoning ? sh_replog_life_end(zone) : batch_for(zone, stored);
    if (!err)
        err = sh_replog_batch_reserve(zone->filling, stored);
    uint32_t numbers[2];
    if (!err)
        err = number_find(zone, write, numbers);
    if (err)
        return err;
    if (write->completion.at)
        sh_replog_completion_put(zone->filling, write->completion);
    if (with)
        entry_put(zone, with, numbers[1], true);
    entry_put(zone, write, numbers[0], false);
    chain_note(zone, write, numbers[0]);
    sh_replog_batch_count(zone->filling, !zone->chain_pieces);
    log->status.appended += !zone->chain_pieces;
    log->appended_ns = log->now_ns;
    if (zone->filling->chain.bytes >= log->config.batch_bytes && sh_replog_slots_have_time(log))
        (void)sh_replog_batch_flush(zone->filling,
                                    SH_REPLOG_FLUSH_LARGE); /* or it goes on being filled */
    return SHOAL_OK;
}

enum shoal_err sh_replog_append(struct sh_replog_zone *zone, const struct sh_replog_write *write)
{
    enum shoal_err err = append(zone, write);
    zone->log->status.waits += err == SHOAL_EAGAIN;
    return err;
}

enum shoal_err sh_replog_abandon(struct sh_replog_zone *zone)
{
    if (zone->log->trouble)
        return SHOAL_EIO;
    if (sh_replog_is_refusing(zone))
        return SHOAL_EBUSY;
    if (!zone->chain_pieces)
        return SHOAL_OK;
    enum shoal_err err = sh_replog_lives_reserve(&zone->lives);
    if (err)
        return err;
    zone->chain_pieces = 0;
    zone->is_abandoning = true;
    return SHOAL_OK;
}

/* --- Steps ------------------------------------------------------------------------------------- */

static unsigned clean_step(struct sh_replog *log)
{
    bool was_cleaning = log->clean;
    unsigned work = sh_replog_clean_step(log);
    log->status.cleanings += !was_cleaning && log->clean;
    return work;
}

unsigned sh_replog_step(struct sh_replog *log, uint64_t now_ns, uint32_t seconds)
{
    log->status.clean_ns += log->clean && now_ns > log->now_ns ? now_ns - log->now_ns : 0;
    log->now_ns = now_ns;
    if (log->seconds < seconds)
        log->seconds = seconds;
    unsigned work = sh_disk_poll(log->config.disk, false);
    work += sh_replog_room_step(log);
    work += sh_replog_tables_relieve(log);
    work += sh_replog_epochs_step(log);
    work += sh_replog_relieve(log);
    work += sh_replog_drops_step(log); /* its mark goes before what else may be packed */
    work += sh_replog_seals_step(log);
    work += sh_replog_primary_write(log);
    work += sh_replog_slots_write(log);
    work += sh_replog_sync_begin(log);
    work += sh_replog_load_step(log);
    work += clean_step(log);
    work += sh_replog_scrub_step(log);
    work += sh_replog_dump_step(log);
    log->has_idled = !work;
    return work;
}

uint64_t sh_replog_due_ns(const struct sh_replog *log)
{
    if (log->trouble)
        return UINT64_MAX;
    uint64_t due = log->ready.count || log->pack_size || log->lap < log->lap_wanted ||
                           log->ending || log->load || log->clean || log->drops || log->seals
                       ? log->now_ns
                       : UINT64_MAX;
    uint64_t patience_ns = log->waiting ? 0 : log->config.linger_ns;
    uint64_t pack_patience_ns = log->waiting_handed ? 0 : patience_ns;
    if (log->fresh.first && log->fresh.first->begun_ns + pack_patience_ns < due)
        due = log->fresh.first->begun_ns + pack_patience_ns;
    if (log->written.count && log->written_ns + patience_ns < due)
        due = log->written_ns + patience_ns;
    uint64_t sync_patience_ns = log->is_sync_wanted ? 0 : log->config.linger_ns;
    if (sh_replog_packs_wait(log) && log->unsynced_ns + sync_patience_ns < due)
        due = log->unsynced_ns + sync_patience_ns;
    uint64_t select_due_ns = log->clean ? UINT64_MAX : sh_replog_select_due_ns(log);
    due = select_due_ns < due ? select_due_ns : due;
    uint64_t room_due_ns = sh_replog_room_due_ns(log);
    due = room_due_ns < due ? room_due_ns : due;
    uint64_t scrub_due_ns = sh_replog_scrub_due_ns(log);
    due = scrub_due_ns < due ? scrub_due_ns : due;
    uint64_t dump_due_ns = sh_replog_dump_due_ns(log);
    due = dump_due_ns < due ? dump_due_ns : due;
    /* Where the last step could not do what is due, the log waits for the disk, which wakes its owner, or for room. */
    if (due > log->now_ns || !log->has_idled)
        return due;
    return log->in_flight ? UINT64_MAX : log->now_ns + RETRY_NS;
}

void sh_replog_status_get(const struct sh_replog *log, struct sh_replog_status *status_out)
{
    *status_out = log->status;
    status_out->buffer_used = sh_blocks_used(log->blocks);
    status_out->slots = log->slots.count;
    status_out->slots_free = log->slots.free_count + log->slots.bare_count;
    status_out->slots_free += log->room.allocating + log->room.discarding;
    status_out->slots_lost = log->slots.lost_count;
    status_out->slots_reserved = log->slots.free_count;
    status_out->is_full = log->room.is_full;
    status_out->refused = log->room.refused;
}

void sh_replog_space_get(const struct sh_replog *log, struct sh_replog_space *space_out)
{
    uint64_t slot_bytes = log->head.slot_bytes;
    uint64_t taken = log->slots.count - log->slots.free_count, most = slots_of_others(log, NULL);
    uint64_t kept = most + SH_REPLOG_SPARE_SLOTS;
    *space_out = (struct sh_replog_space){
        .all = slot_bytes * log->slots.count,
        .free = kept < log->slots.count ? slot_bytes * (log->slots.count - kept) : 0,
        .to_come = most > taken ? slot_bytes * (most - taken) : 0};
}
