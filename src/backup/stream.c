/* Sending a zone's writes to a backup. */
#include "backup/backup_int.h"
#include "base/assert.h"

#define MESSAGES_A_STEP 4u /* to one backup of one zone */

/* Writes that go into one message. */
struct batch {
    struct sh_backlog_cursor begin; /* before the first */
    unsigned entries;
    size_t bytes; /* of the message */
    uint64_t end; /* number behind the last write */
};

static struct sh_replication_entry entry_of(const struct sh_backlog_entry *entry)
{
    static const uint8_t kinds[] = {[SH_BACKLOG_IMAGE] = SH_REPLICATION_IMAGE,
                                    [SH_BACKLOG_ZEROS] = SH_REPLICATION_ZEROS,
                                    [SH_BACKLOG_REMOVAL] = SH_REPLICATION_REMOVAL,
                                    [SH_BACKLOG_ABANDON] = SH_REPLICATION_ABANDON};
    return (struct sh_replication_entry){
        .kind = kinds[entry->kind],
        .with_next = entry->with_next,
        .chunk = entry->chunk,
        .size = entry->size,
        .piece = entry->piece,
        .pieces = entry->pieces,
        .total = entry->total,
        .bytes = sh_bytes_make(entry->at, entry->size),
        .completion = sh_bytes_make(entry->completion, entry->completion_size)};
}

/* Reads ahead what goes into the next message: as many whole writes, or pieces, as it holds and the backup's credit allows. */
static struct batch batch_read(struct sh_sink *sink)
{
    struct sh_backlog_cursor *cursor = &sink->cursor;
    struct batch batch = {.begin = *cursor, .bytes = SH_REPLICATION_APPEND_BYTES};
    struct sh_backlog_entry entry;
    uint64_t number;
    for (;;) {
        const struct sh_backlog_cursor before = *cursor;
        size_t bytes = batch.bytes;
        unsigned entries = 0;
        do {
            if (!sh_backlog_read(cursor, &entry, &number, NULL)) {
                SH_ASSERT(!entries); /* the two of a pair are recorded at once */
                batch.end = cursor->read.number;
                return batch;
            }
            const struct sh_replication_entry out = entry_of(&entry);
            bytes += sh_replication_entry_size(&out);
            entries++;
        } while (entry.with_next);
        bool is_too_much =
            bytes > SH_REPLICATION_BYTES_MAX || (sh_backlog_flying(cursor) > sink->credit &&
                                                 (batch.entries || sh_backlog_flying(&before) > 0));
        if (is_too_much) {
            sh_backlog_unread(cursor, &before);
            batch.end = cursor->read.number;
            return batch;
        }
        batch.bytes = bytes;
        batch.entries += entries;
    }
}

/* The answer that a message which ends before that number has to ask for. */
static enum sh_replication_wish wish_of(struct sh_sink *sink, uint64_t end)
{
    struct sh_own_zone *zone = sink->zone;
    sh_spin_take(&zone->waits_lock);
    uint64_t replicated = zone->wanted[SH_LEVEL_REPLICATED];
    uint64_t durable = zone->wanted[SH_LEVEL_DURABLE];
    sh_spin_release(&zone->waits_lock);
    if (sink->needed > durable)
        durable = sink->needed;
    if (durable > sink->acked[SH_LEVEL_DURABLE] && durable > sink->wished[SH_LEVEL_DURABLE] &&
        durable <= end)
        return SH_REPLICATION_DURABLE;
    if (replicated > sink->acked[SH_LEVEL_REPLICATED] &&
        replicated > sink->wished[SH_LEVEL_REPLICATED] && replicated <= end)
        return SH_REPLICATION_ACK;
    return SH_REPLICATION_NONE;
}

static void wish_note(struct sh_sink *sink, enum sh_replication_wish wish, uint64_t end)
{
    if (wish == SH_REPLICATION_DURABLE)
        sink->wished[SH_LEVEL_DURABLE] = end;
    if (wish != SH_REPLICATION_NONE)
        sink->wished[SH_LEVEL_REPLICATED] = end;
    if (wish != SH_REPLICATION_NONE && !sink->ack_begun_ns) {
        sink->ack_begun_ns = sink->zone->backup->now_ns;
        sink->ack_end = end;
        sink->ack_is_durable = wish == SH_REPLICATION_DURABLE;
    }
}

static void entries_put(struct sh_sink *sink, const struct batch *batch, struct sh_writer *w)
{
    struct sh_backlog_entry entry;
    uint64_t number;
    for (unsigned i = 0; i < batch->entries; i++) {
        bool is_there =
            sh_backlog_read(&sink->cursor, &entry, &number, sink->zone->backup->scratch);
        SH_ASSERT(is_there);
        const struct sh_replication_entry out = entry_of(&entry);
        sh_replication_entry_put(w, &out);
    }
}

static enum shoal_err batch_send(struct sh_sink *sink, const struct batch *batch,
                                 enum sh_replication_wish wish)
{
    struct sh_backup *backup = sink->zone->backup;
    struct sh_msg *msg = backup->config.cluster.msg;
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(msg, sink->nid, SH_REPLICATION_APPEND, batch->bytes, &out);
    if (err)
        return err;
    const struct sh_replication_append head = {.zone = sink->zone->record.id,
                                               .incarnation = sink->incarnation,
                                               .number = batch->begin.read.number,
                                               .part = batch->begin.read.part,
                                               .wish = (uint8_t)wish};
    sh_replication_append_put(&out.w, &head);
    sh_backlog_unread(&sink->cursor, &batch->begin);
    entries_put(sink, batch, &out.w);
    SH_ASSERT(sh_writer_ok(&out.w) && out.w.at == out.w.end);
    sh_msg_end(msg, &out);
    backup->messages++;
    backup->message_bytes += batch->bytes;
    backup->again_bytes +=
        batch->entries && batch->begin.read.number < sink->sent ? batch->bytes : 0;
    return SHOAL_OK;
}

/* Backups have acknowledged all that writers wanted, as the step that follows sees. */
static void ack_measure(struct sh_sink *sink)
{
    struct sh_backup *backup = sink->zone->backup;
    uint64_t acked = sink->acked[sink->ack_is_durable ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED];
    if (!sink->ack_begun_ns || acked < sink->ack_end)
        return;
    uint64_t took_ns = backup->now_ns - sink->ack_begun_ns;
    backup->acks++;
    backup->ack_ns += took_ns;
    if (backup->ack_longest_ns < took_ns)
        backup->ack_longest_ns = took_ns;
    sink->ack_begun_ns = 0;
}

enum shoal_err sh_sink_stream(struct sh_sink *sink, unsigned *sent_out)
{
    ack_measure(sink);
    for (unsigned i = 0; i < MESSAGES_A_STEP; i++) {
        if (sink->state != SH_SINK_STREAMING)
            return SHOAL_OK;
        const struct batch batch = batch_read(sink);
        enum sh_replication_wish wish = wish_of(sink, batch.end);
        bool gave;
        if (!batch.entries && wish == SH_REPLICATION_NONE) {
            /* The backlog need not keep for this sink the entries of other cursors that it passed over. */
            const struct sh_backlog_place *kept = &sink->cursor.kept;
            if (sh_backlog_take_to(&sink->cursor, kept->number, kept->part, &gave) && gave)
                sh_waits_room(sink->zone->backup);
            return SHOAL_OK;
        }
        enum shoal_err err = batch_send(sink, &batch, wish);
        if (err)
            sh_backlog_unread(&sink->cursor, &batch.begin);
        if (err == SHOAL_EAGAIN)
            return err;
        if (err) {
            sink->state = SH_SINK_CLOSED;
            sink->due_ns = 0;
            sh_zones_tend(sink->zone->backup);
            return SHOAL_OK;
        }
        wish_note(sink, wish, batch.end);
        if (sink->cursor.read.number > sink->sent)
            sink->sent = sink->cursor.read.number;
        *sent_out += batch.entries + 1;
    }
    return SHOAL_EAGAIN;
}
