/* Batches: entries of one zone, in memory. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"

/* --- Queues ------------------------------------------------------------------------------------ */

void sh_replog_queue_add(struct sh_replog_queue *queue, struct sh_replog_batch *batch)
{
    struct sh_replog_links *links = &batch->links[queue->kind];
    SH_ASSERT(!links->queue);
    *links = (struct sh_replog_links){.previous = queue->last, .queue = queue};
    if (queue->last)
        queue->last->links[queue->kind].next = batch;
    else
        queue->first = batch;
    queue->last = batch;
    queue->count++;
}

void sh_replog_queue_leave(struct sh_replog_batch *batch, enum sh_replog_queue_kind kind)
{
    struct sh_replog_links *links = &batch->links[kind];
    struct sh_replog_queue *queue = links->queue;
    if (!queue)
        return;
    if (links->previous)
        links->previous->links[kind].next = links->next;
    else
        queue->first = links->next;
    if (links->next)
        links->next->links[kind].previous = links->previous;
    else
        queue->last = links->previous;
    queue->count--;
    *links = (struct sh_replog_links){.queue = NULL};
}

enum shoal_err sh_replog_batch_make(struct sh_replog *log)
{
    struct sh_replog_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return SHOAL_ENOMEM;
    batch->behind = log->free_batches;
    batch->next_made = log->batches;
    log->free_batches = log->batches = batch;
    return SHOAL_OK;
}

/* --- Entries ----------------------------------------------------------------------------------- */

enum shoal_err sh_replog_batch_take(struct sh_replog_zone *zone, enum sh_log_slot_kind kind,
                                    struct sh_replog_batch **batch_out)
{
    struct sh_replog *log = zone->log;
    struct sh_replog_batch *batch = log->free_batches;
    if (!batch)
        return SHOAL_EAGAIN;
    log->free_batches = batch->behind;
    *batch = (struct sh_replog_batch){.zone = zone,
                                      .kind = kind,
                                      .first = zone->next_sequence,
                                      .life = zone->epoch,
                                      .next_made = batch->next_made};
    *batch_out = batch;
    return SHOAL_OK;
}

enum shoal_err sh_replog_batch_begin(struct sh_replog_zone *zone, enum sh_log_slot_kind kind,
                                     struct sh_replog_batch **batch_out)
{
    static const uint8_t room_for_head[SH_SPAN_HEAD_BYTES];
    struct sh_replog *log = zone->log;
    struct sh_replog_batch *batch;
    enum shoal_err err = sh_replog_batch_take(zone, kind, &batch);
    if (err)
        return err;
    if (sh_chain_reserve(log->blocks, &batch->chain, sizeof room_for_head)) {
        sh_replog_batch_free(batch);
        return SHOAL_EAGAIN;
    }
    sh_chain_put(log->blocks, &batch->chain, sh_bytes_make(room_for_head, sizeof room_for_head));
    uint32_t sum = (uint32_t)sh_random64(&log->config.random);
    batch->begin = batch->end = batch->packed_end =
        sh_replog_context_first(zone->owner, zone->epoch, log->seconds, sum);
    batch->packed = batch->chain.bytes;
    batch->first_piece = zone->versions && zone->chain_pieces ? zone->chain_next : 0;
    batch->life = zone->life;
    batch->life_first = zone->life_first;
    *batch_out = batch;
    return SHOAL_OK;
}

bool sh_replog_batch_fits(const struct sh_replog_batch *batch, size_t stored)
{
    return batch->chain.bytes + SH_REPLOG_ENTRY_HEAD_MAX + stored <=
           sh_replog_batch_max(batch->zone->log);
}

enum shoal_err sh_replog_batch_reserve(struct sh_replog_batch *batch, size_t stored)
{
    SH_ASSERT(sh_replog_batch_fits(batch, stored));
    return sh_chain_reserve(batch->zone->log->blocks, &batch->chain,
                            SH_REPLOG_ENTRY_HEAD_MAX + stored);
}

void sh_replog_batch_put(struct sh_replog_batch *batch, const struct sh_replog_entry *entry)
{
    struct sh_replog *log = batch->zone->log;
    size_t stored = sh_replog_entry_stored(entry), most = SH_REPLOG_ENTRY_HEAD_MAX + stored, left;
    uint8_t *at = sh_chain_end(log->blocks, &batch->chain, &left);
    batch->entries++;
    if (left >= most) {
        size_t head = sh_replog_entry_head(entry, &batch->end, at);
        if (stored)
            memcpy(at + head, entry->payload.at, stored);
        sh_chain_filled(&batch->chain, head + stored);
    } else {
        uint8_t bytes[SH_REPLOG_ENTRY_HEAD_MAX];
        size_t head = sh_replog_entry_head(entry, &batch->end, bytes);
        sh_chain_put(log->blocks, &batch->chain, sh_bytes_make(bytes, head));
        sh_chain_put(log->blocks, &batch->chain, sh_bytes_make(entry->payload.at, stored));
    }
}

void sh_replog_batch_count(struct sh_replog_batch *batch, bool is_last_piece)
{
    struct sh_replog *log = batch->zone->log;
    batch->sequences += is_last_piece;
    batch->zone->next_sequence += is_last_piece;
    if (!batch->links[SH_REPLOG_BY_AGE].queue) {
        batch->begun_ns = log->now_ns;
        sh_replog_queue_add(&log->fresh, batch);
    }
}

void sh_replog_batch_free(struct sh_replog_batch *batch)
{
    struct sh_replog *log = batch->zone->log;
    for (unsigned kind = 0; kind < SH_REPLOG_QUEUE_KINDS; kind++)
        sh_replog_queue_leave(batch, (enum sh_replog_queue_kind)kind);
    sh_chain_free(log->blocks, &batch->chain);
    batch->behind = log->free_batches;
    log->free_batches = batch;
}
