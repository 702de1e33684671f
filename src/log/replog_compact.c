/* Compaction of a zone's version log: what the cleaner knows of all chunks becomes one flush, and the slots that it was read
 * from can be given away.
 *
 * Which flush says what does not matter, since versions tell themselves which is newer (currents.h): so long as both are
 * there, the compaction and what it replaces, they may be read together, and a crash in between does no harm. Nor is the
 * zone's order of chunks needed; each piece has its own. So epochs may end meanwhile, whose flushes stay.
 *
 * A batch of it waits until all entries that it can tell of are durable, as each flush does (replog_epoch.c). */
#include "base/assert.h"
#include "log/currents.h"
#include "log/replog_int.h"
#include "log/version_log.h"

#define PIECES_EACH 4 /* a step */

struct encoding {
    struct sh_version_writer writer;
    bool is_empty;
};

static void encode(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                   bool is_removal)
{
    struct encoding *encoding = arg;
    const struct sh_version_tuple tuple = {
        .first = first, .last = last, .version = version, .is_removal = is_removal};
    bool fits = sh_version_writer_put(&encoding->writer, &tuple);
    SH_ASSERT(fits); /* SH_CURRENTS_PIECE of the largest do */
    encoding->is_empty = false;
}

void sh_replog_compaction_begin(struct sh_replog_compaction *compaction,
                                struct sh_replog_zone *zone,
                                void (*done)(struct sh_replog_batch *batch), unsigned *on_their_way)
{
    *compaction = (struct sh_replog_compaction){
        .zone = zone, .flush = zone->flushes++, .done = done, .on_their_way = on_their_way};
    zone->compacted = 0;
}

/* Encodes what is next into log->piece; returns its bytes, 0: there is nothing to tell. */
static size_t piece_encode(const struct sh_replog_compaction *compaction,
                           struct sh_currents *currents, bool *has_more_out)
{
    _Static_assert(SH_REPLOG_PIECE_BYTES >=
                       SH_VERSION_LOG_HEAD + SH_CURRENTS_PIECE * SH_VERSION_LOG_TUPLE_MAX,
                   "what is told at a time is one piece of the log");
    const struct sh_replog_zone *zone = compaction->zone;
    const struct sh_version_piece piece = {.zone = zone->id,
                                           .flush = compaction->flush,
                                           .place = compaction->place,
                                           .is_compaction = true};
    struct encoding encoding = {
        .writer = sh_version_writer_begin(&piece, zone->log->piece, SH_REPLOG_PIECE_BYTES),
        .is_empty = true};
    *has_more_out = sh_currents_walk(currents, compaction->walked, encode, &encoding);
    if (encoding.is_empty && *has_more_out)
        return 0;
    return sh_version_writer_end(&encoding.writer, !*has_more_out);
}

/* The batch has all that it is to have: it waits for the entries. */
static void batch_end(struct sh_replog_compaction *compaction)
{
    compaction->batch->first = sh_replog_next(compaction->zone);
    compaction->is_waiting = true;
    sh_replog_sync(compaction->zone);
}

/* Puts the bytes of log->piece at the end of the batch; false: not now. */
static bool piece_put(struct sh_replog_compaction *compaction, size_t size)
{
    struct sh_replog_zone *zone = compaction->zone;
    struct sh_replog *log = zone->log;
    uint64_t most = log->head.slot_bytes - SH_SLOT_HEAD_BYTES;
    if (compaction->batch && compaction->batch->chain.bytes + size > most) {
        batch_end(compaction);
        return false;
    }
    if (!compaction->batch) {
        if (sh_replog_batch_take(zone, SH_SLOT_VERSIONS, &compaction->batch))
            return false;
        compaction->batch->done = compaction->done;
        compaction->batch->is_cleaners = true;
    }
    struct sh_chain *chain = &compaction->batch->chain;
    if (sh_chain_reserve(log->blocks, chain, size))
        return false;
    sh_chain_put(log->blocks, chain, sh_bytes_make(log->piece, size));
    compaction->place++;
    return true;
}

/* The batch goes when it may. ENOSPC. */
static enum shoal_err batch_go(struct sh_replog_compaction *compaction, unsigned *work)
{
    struct sh_replog_zone *zone = compaction->zone;
    if (sh_replog_durable(zone) < compaction->batch->first)
        return SHOAL_OK;
    enum shoal_err err = sh_replog_other_ready(compaction->batch);
    if (err == SHOAL_EAGAIN)
        return SHOAL_OK;
    if (err)
        return err;
    compaction->batch = NULL;
    compaction->is_waiting = false;
    ++*compaction->on_their_way;
    zone->compacted++;
    ++*work;
    return SHOAL_OK;
}

enum shoal_err sh_replog_compaction_step(struct sh_replog_compaction *compaction,
                                         struct sh_currents *currents, unsigned *work)
{
    if (compaction->is_waiting)
        return batch_go(compaction, work);
    for (unsigned i = 0; i < PIECES_EACH && !compaction->is_encoded; i++) {
        bool has_more;
        size_t size = piece_encode(compaction, currents, &has_more);
        if (size && !piece_put(compaction, size))
            return SHOAL_OK;
        compaction->walked++;
        compaction->is_encoded = !has_more;
        ++*work;
    }
    if (compaction->is_encoded && compaction->batch)
        batch_end(compaction);
    return SHOAL_OK;
}
