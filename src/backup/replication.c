#include "backup/replication.h"

#include "log/entry.h"

void sh_replication_open_put(struct sh_writer *w, const struct sh_replication_open *open)
{
    sh_put64(w, open->zone);
    sh_put32(w, open->incarnation);
    sh_put64(w, open->life);
    sh_put8(w, open->flags);
    sh_put64(w, open->first);
    sh_put32(w, open->first_part);
    sh_put32(w, open->since);
    sh_put64(w, open->begun);
    sh_put64(w, open->bytes_max);
    sh_put64(w, open->range_first);
    sh_put64(w, open->range_count);
}

bool sh_replication_open_get(struct sh_reader *r, struct sh_replication_open *open_out)
{
    open_out->zone = sh_get64(r);
    open_out->incarnation = sh_get32(r);
    open_out->life = sh_get64(r);
    open_out->flags = sh_get8(r);
    open_out->first = sh_get64(r);
    open_out->first_part = sh_get32(r);
    open_out->since = sh_get32(r);
    open_out->begun = sh_get64(r);
    open_out->bytes_max = sh_get64(r);
    open_out->range_first = sh_get64(r);
    open_out->range_count = sh_get64(r);
    bool is_anew = open_out->flags & SH_REPLICATION_ANEW;
    return sh_reader_done(r) && !(open_out->flags & ~SH_REPLICATION_ANEW) && open_out->since &&
           open_out->since <= open_out->incarnation && open_out->first && open_out->begun &&
           !(is_anew && open_out->first_part);
}

void sh_replication_opened_put(struct sh_writer *w, const struct sh_replication_opened *opened)
{
    sh_put64(w, opened->next);
    sh_put32(w, opened->part);
    sh_put64(w, opened->durable);
    sh_put32(w, opened->credit);
    sh_put64(w, opened->disk);
}

bool sh_replication_opened_get(struct sh_reader *r, struct sh_replication_opened *opened_out)
{
    opened_out->next = sh_get64(r);
    opened_out->part = sh_get32(r);
    opened_out->durable = sh_get64(r);
    opened_out->credit = sh_get32(r);
    opened_out->disk = sh_get64(r);
    return sh_reader_done(r) && opened_out->next && opened_out->durable <= opened_out->next;
}

void sh_replication_append_put(struct sh_writer *w, const struct sh_replication_append *append)
{
    sh_put64(w, append->zone);
    sh_put32(w, append->incarnation);
    sh_put64(w, append->number);
    sh_put32(w, append->part);
    sh_put8(w, append->wish);
}

bool sh_replication_append_get(struct sh_reader *r, struct sh_replication_append *append_out)
{
    append_out->zone = sh_get64(r);
    append_out->incarnation = sh_get32(r);
    append_out->number = sh_get64(r);
    append_out->part = sh_get32(r);
    append_out->wish = sh_get8(r);
    return sh_reader_ok(r) && append_out->number && append_out->wish <= SH_REPLICATION_DURABLE;
}

static bool is_piece(const struct sh_replication_entry *entry)
{
    return entry->pieces > 1;
}

size_t sh_replication_entry_size(const struct sh_replication_entry *entry)
{
    size_t bytes = entry->kind == SH_REPLICATION_IMAGE ? entry->size : 0;
    size_t completion = entry->completion.size ? 1 + entry->completion.size : 0;
    return 13 + (is_piece(entry) ? 8 : 0) + completion + bytes;
}

void sh_replication_entry_put(struct sh_writer *w, const struct sh_replication_entry *entry)
{
    unsigned flags = (is_piece(entry) ? SH_REPLICATION_PIECE : 0) |
                     (entry->completion.size ? SH_REPLICATION_COMPLETION : 0) |
                     (entry->with_next ? SH_REPLICATION_WITH : 0);
    sh_put8(w, (uint8_t)(entry->kind | flags));
    sh_put64(w, entry->chunk);
    sh_put32(w, entry->size);
    if (is_piece(entry)) {
        sh_put16(w, entry->piece);
        sh_put16(w, entry->pieces);
        sh_put32(w, entry->total);
    }
    if (entry->completion.size) {
        sh_put8(w, (uint8_t)entry->completion.size);
        sh_put_raw(w, entry->completion);
    }
    if (entry->kind == SH_REPLICATION_IMAGE)
        sh_put_raw(w, entry->bytes);
}

/* Whether what was read can be an entry. */
static bool is_entry(const struct sh_replication_entry *entry, bool has_piece)
{
    bool has_image = entry->kind == SH_REPLICATION_IMAGE || entry->kind == SH_REPLICATION_ZEROS;
    if (entry->kind >= SH_REPLICATION_KINDS)
        return false;
    bool is_last = entry->kind != SH_REPLICATION_ABANDON && !entry->with_next &&
                   entry->piece + 1 == entry->pieces;
    if (entry->completion.size && (!is_last || entry->completion.size > SH_COMPLETION_BYTES_MAX))
        return false;
    if (entry->chunk == SH_REPLOG_COMPLETION_ID)
        return false; /* the log's own */
    if (!entry->chunk && entry->kind != SH_REPLICATION_ABANDON)
        return false;
    if (!has_image) {
        bool may_have_next = entry->kind == SH_REPLICATION_REMOVAL;
        return !has_piece && !entry->size && (may_have_next || !entry->with_next);
    }
    if (entry->with_next && has_piece)
        return false;
    if (!has_piece)
        return true;
    return entry->pieces > 1 && entry->piece < entry->pieces && entry->size &&
           entry->size < entry->total;
}

bool sh_replication_entry_get(struct sh_reader *r, struct sh_replication_entry *entry_out)
{
    struct sh_replication_entry entry = {.kind = sh_get8(r), .pieces = 1};
    bool has_piece = entry.kind & SH_REPLICATION_PIECE;
    entry.with_next = entry.kind & SH_REPLICATION_WITH;
    bool has_completion = entry.kind & SH_REPLICATION_COMPLETION;
    entry.kind &=
        (uint8_t) ~(SH_REPLICATION_PIECE | SH_REPLICATION_WITH | SH_REPLICATION_COMPLETION);
    entry.chunk = sh_get64(r);
    entry.size = sh_get32(r);
    if (has_piece) {
        entry.piece = sh_get16(r);
        entry.pieces = sh_get16(r);
        entry.total = sh_get32(r);
    }
    if (has_completion) {
        entry.completion.size = sh_get8(r);
        entry.completion.at = sh_reader_take(r, entry.completion.size);
        if (!entry.completion.size)
            return false;
    }
    if (entry.kind == SH_REPLICATION_IMAGE)
        entry.bytes = sh_bytes_make(sh_reader_take(r, entry.size), entry.size);
    *entry_out = entry;
    return sh_reader_ok(r) && is_entry(&entry, has_piece);
}

void sh_replication_ack_put(struct sh_writer *w, const struct sh_replication_ack *ack)
{
    sh_put64(w, ack->zone);
    sh_put32(w, ack->incarnation);
    sh_put64(w, ack->next);
    sh_put32(w, ack->part);
    sh_put64(w, ack->durable);
    sh_put8(w, ack->state);
}

bool sh_replication_ack_get(struct sh_reader *r, struct sh_replication_ack *ack_out)
{
    ack_out->zone = sh_get64(r);
    ack_out->incarnation = sh_get32(r);
    ack_out->next = sh_get64(r);
    ack_out->part = sh_get32(r);
    ack_out->durable = sh_get64(r);
    ack_out->state = sh_get8(r);
    return sh_reader_ok(r) && ack_out->durable <= ack_out->next &&
           ack_out->state <= SH_REPLICATION_LOST;
}

void sh_replication_close_put(struct sh_writer *w, const struct sh_replication_close *close)
{
    sh_put64(w, close->zone);
    sh_put32(w, close->incarnation);
    sh_put64(w, close->life);
}

bool sh_replication_close_get(struct sh_reader *r, struct sh_replication_close *close_out)
{
    close_out->zone = sh_get64(r);
    close_out->incarnation = sh_get32(r);
    close_out->life = sh_get64(r);
    return sh_reader_done(r) && close_out->incarnation;
}

void sh_replication_space_put(struct sh_writer *w, const struct sh_replication_space *space)
{
    sh_put8(w, space->keeps);
    sh_put64(w, space->disk);
    sh_put64(w, space->disk_bytes);
    sh_put64(w, space->disk_free_bytes);
    sh_put32(w, space->zones);
    sh_put32(w, space->zones_max);
}

bool sh_replication_space_get(struct sh_reader *r, struct sh_replication_space *space_out)
{
    uint8_t keeps = sh_get8(r);
    space_out->keeps = keeps == 1;
    space_out->disk = sh_get64(r);
    space_out->disk_bytes = sh_get64(r);
    space_out->disk_free_bytes = sh_get64(r);
    space_out->zones = sh_get32(r);
    space_out->zones_max = sh_get32(r);
    return sh_reader_done(r) && keeps <= 1;
}
