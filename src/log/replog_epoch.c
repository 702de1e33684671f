/* The end of an epoch: all versions that a zone's table has become a flush of its version log.
 *
 * They are encoded piece by piece, while nothing is appended to the zone; then the next epoch begins. The flush goes to the
 * disk once all entries that it tells of are durable: the version log is never ahead of the entries, or a chunk's last
 * entry that is there would be taken for superseded. */
#include "base/assert.h"
#include "log/replog_int.h"
#include "log/version_log.h"

/* Whether the last flush waits for entries to become durable, or for a place. */
static bool is_waiting(const struct sh_replog_zone *zone)
{
    return zone->versions_batch && !zone->is_ending && !zone->versions_batch->offset;
}

enum shoal_err sh_replog_versions_go(struct sh_replog_zone *zone)
{
    if (!is_waiting(zone) || zone->durable < zone->versions_batch->first)
        return SHOAL_OK;
    return sh_replog_other_ready(zone->versions_batch);
}

static void on_durable(struct sh_replog_batch *batch)
{
    batch->zone->versions_batch = NULL;
    sh_replog_batch_free(batch);
}

enum shoal_err sh_replog_epoch_end(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    if (zone->versions_batch) { /* one flush at a time */
        sh_replog_sync(zone);
        enum shoal_err err = sh_replog_versions_go(zone);
        return err ? err : SHOAL_EAGAIN;
    }
    enum shoal_err err = sh_replog_eon_is_over(zone) ? sh_replog_eon_end(zone) : SHOAL_OK;
    if (!err)
        err = sh_replog_batch_take(zone, SH_SLOT_VERSIONS, &zone->versions_batch);
    if (err)
        return err;
    zone->versions_batch->done = on_durable;
    zone->is_ending = true;
    zone->ending_piece = 0;
    zone->next_ending = NULL;
    *log->ending_end = zone;
    log->ending_end = &zone->next_ending;
    return SHOAL_EAGAIN;
}

struct encoding {
    struct sh_version_writer writer;
    struct sh_replog_zone *zone;
};

static void encode(void *arg, uint64_t first, uint64_t last, uint32_t number, bool is_removal)
{
    struct encoding *encoding = arg;
    const struct sh_version_tuple tuple = {.first = first,
                                           .last = last,
                                           .version = {encoding->zone->epoch, number},
                                           .is_removal = is_removal};
    bool fits = sh_version_writer_put(&encoding->writer, &tuple);
    SH_ASSERT(fits); /* SH_VERSIONS_PIECE of the largest do */
    sh_replog_clean_learn(encoding->zone, first, last, tuple.version, is_removal);
}

enum shoal_err sh_replog_life_end(struct sh_replog_zone *zone)
{
    SH_ASSERT(zone->is_abandoning && !zone->is_ending && !zone->chain_pieces);
    struct sh_replog_batch *filling = zone->filling;
    enum shoal_err err = SHOAL_OK;
    if (filling && filling->chain.bytes > SH_SPAN_HEAD_BYTES) { /* it is of the life that ends */
        err = sh_replog_batch_flush(filling, SH_REPLOG_FLUSH_OTHER);
    } else if (filling) {
        zone->filling = NULL;
        sh_replog_batch_free(filling);
    }
    return err ? err : sh_replog_epoch_end(zone);
}

/* Entries in slots that have the number that comes next count no more, so it does not have to be durable before they are cleaned: before the
 * cleaner gives one away it records when each life began. The write that comes may need their room. */
static void abandoned_end(struct sh_replog_zone *zone)
{
    struct sh_log_slot *slots = zone->log->slots.slots;
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next) {
        if (slots[i].end <= zone->next_sequence)
            continue;
        slots[i].end = zone->next_sequence;
        slots[i].ends_in_pieces = false;
    }
    zone->fruitless = 0;
}

/* A life begins within a process: what the one before has of the number that comes next does not count. */
static void life_begin(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    SH_ASSERT(!zone->filling);
    zone->is_abandoning = false;
    zone->life = zone->epoch;
    zone->life_first = zone->next_sequence;
    enum shoal_err err =
        sh_replog_lives_add(&zone->lives, zone->life, zone->life_first, zone->durable);
    SH_ASSERT(!err); /* there was room */
    abandoned_end(zone);
    zone->has_void = true;
    zone->void_order = log->slots.taken;
    zone->void_lap = log->lap;
}

static void epoch_begin(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    sh_versions_clear(zone->versions);
    zone->epoch = zone->is_eon_ending ? sh_replog_eon_begin(zone) : (uint16_t)(zone->epoch + 1);
    if (zone->is_abandoning)
        life_begin(zone);
    zone->flushes++;
    zone->is_ending = false;
    log->ending = zone->next_ending;
    if (!log->ending)
        log->ending_end = &log->ending;
    (void)sh_replog_versions_go(zone); /* or later */
}

unsigned sh_replog_epochs_step(struct sh_replog *log)
{
    _Static_assert(SH_REPLOG_PIECE_BYTES >=
                       SH_VERSION_LOG_HEAD + SH_VERSIONS_PIECE * SH_VERSION_LOG_TUPLE_MAX,
                   "a piece of the table is one of the log");
    struct sh_replog_zone *zone = log->ending;
    if (!zone || log->trouble)
        return 0;
    struct sh_chain *chain = &zone->versions_batch->chain;
    const struct sh_version_piece piece = {
        .zone = zone->id, .flush = zone->flushes, .place = (uint32_t)zone->ending_piece};
    struct encoding encoding = {
        .writer = sh_version_writer_begin(&piece, log->piece, SH_REPLOG_PIECE_BYTES), .zone = zone};
    bool has_more = sh_versions_each(zone->versions, zone->ending_piece, encode, &encoding);
    size_t size = sh_version_writer_end(&encoding.writer, !has_more);
    if (sh_chain_reserve(log->blocks, chain, size))
        return 0; /* it is encoded again */
    sh_chain_put(log->blocks, chain, sh_bytes_make(log->piece, size));
    zone->ending_piece++;
    if (!has_more)
        epoch_begin(zone);
    return 1;
}
