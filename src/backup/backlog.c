#include "backup/backlog.h"

#include <stdlib.h>

#include "base/assert.h"

struct sh_backlog_block {
    struct sh_backlog_block *next; /* of the backlog, the one behind; or free */
    uint64_t begin;                /* of its first byte in the backlog */
    uint8_t *bytes;                /* SH_BACKLOG_BLOCK_BYTES */
};

/* --- The pool ---------------------------------------------------------------------------------- */

struct sh_backlog_pool {
    struct sh_spin lock;
    struct sh_backlog_block *free;
    size_t left, count;
    struct sh_backlog_block *blocks;
    uint8_t *bytes;
};

enum shoal_err sh_backlog_pool_create(size_t blocks, struct sh_backlog_pool **pool_out)
{
    struct sh_backlog_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return SHOAL_ENOMEM;
    pool->blocks = calloc(blocks, sizeof *pool->blocks);
    pool->bytes = malloc(blocks * SH_BACKLOG_BLOCK_BYTES); /* touched when it is used */
    if (!pool->blocks || !pool->bytes) {
        sh_backlog_pool_destroy(pool);
        return SHOAL_ENOMEM;
    }
    sh_spin_init(&pool->lock, SH_LOCK_BACKUP_POOL);
    pool->left = pool->count = blocks;
    for (size_t i = blocks; i-- > 0;) {
        struct sh_backlog_block *block = &pool->blocks[i];
        block->bytes = pool->bytes + i * SH_BACKLOG_BLOCK_BYTES;
        block->next = pool->free;
        pool->free = block;
    }
    *pool_out = pool;
    return SHOAL_OK;
}

void sh_backlog_pool_destroy(struct sh_backlog_pool *pool)
{
    if (!pool)
        return;
    free(pool->bytes);
    free(pool->blocks);
    free(pool);
}

size_t sh_backlog_pool_left(struct sh_backlog_pool *pool)
{
    sh_spin_take(&pool->lock);
    size_t left = pool->left;
    sh_spin_release(&pool->lock);
    return left;
}

static struct sh_backlog_block *block_take(struct sh_backlog_pool *pool)
{
    sh_spin_take(&pool->lock);
    struct sh_backlog_block *block = pool->free;
    if (block) {
        pool->free = block->next;
        pool->left--;
        block->next = NULL;
    }
    sh_spin_release(&pool->lock);
    return block;
}

static void block_give(struct sh_backlog_pool *pool, struct sh_backlog_block *block)
{
    sh_spin_take(&pool->lock);
    block->next = pool->free;
    pool->free = block;
    pool->left++;
    sh_spin_release(&pool->lock);
}

/* --- Room -------------------------------------------------------------------------------------- */

void sh_backlog_init(struct sh_backlog *backlog, struct sh_backlog_pool *pool, uint64_t window,
                     uint64_t next)
{
    *backlog =
        (struct sh_backlog){.pool = pool, .window = window, .next = next, .gate = UINT64_MAX};
    sh_spin_init(&backlog->lock, SH_LOCK_BACKUP_BACKLOG);
}

static void first_give(struct sh_backlog *backlog)
{
    struct sh_backlog_block *block = backlog->first;
    backlog->first = block->next;
    if (!backlog->first)
        backlog->last = NULL;
    block_give(backlog->pool, block);
}

void sh_backlog_end(struct sh_backlog *backlog)
{
    while (backlog->first)
        first_give(backlog);
}

/* Up to where all cursors have read. Where there is none, nobody wants anything. */
static uint64_t taken(const struct sh_backlog *backlog)
{
    uint64_t at = backlog->end;
    for (unsigned i = 0; i < SH_BACKLOG_CURSORS_MAX; i++) {
        const struct sh_backlog_cursor *cursor = backlog->cursors[i];
        if (cursor && cursor->taken < at)
            at = cursor->taken;
    }
    return at;
}

/* Gives the blocks at the end back that nothing is to be recorded in: others may wait for them. */
static void room_trim(struct sh_backlog *backlog)
{
    sh_spin_assert_held(&backlog->lock);
    uint64_t end = backlog->end + backlog->reserved;
    struct sh_backlog_block *kept = NULL, *block = backlog->first;
    if (!block || backlog->last->begin < end)
        return;
    for (; block && block->begin < end; block = block->next)
        kept = block;
    if (kept)
        kept->next = NULL;
    else
        backlog->first = NULL;
    backlog->last = kept;
    backlog->room_end = kept ? kept->begin + SH_BACKLOG_BLOCK_BYTES : backlog->end;
    while (block) {
        struct sh_backlog_block *next = block->next;
        block_give(backlog->pool, block);
        block = next;
    }
}

static enum shoal_err room_take(struct sh_backlog *backlog, uint64_t bytes)
{
    sh_spin_assert_held(&backlog->lock);
    uint64_t end = backlog->end + backlog->reserved + bytes;
    if (end - taken(backlog) > backlog->window)
        return SHOAL_EAGAIN;
    while (backlog->room_end < end) {
        struct sh_backlog_block *block = block_take(backlog->pool);
        if (!block) {
            room_trim(backlog);
            return SHOAL_EAGAIN;
        }
        block->begin = backlog->room_end;
        backlog->room_end += SH_BACKLOG_BLOCK_BYTES;
        if (backlog->last)
            backlog->last->next = block;
        else
            backlog->first = block;
        backlog->last = block;
    }
    backlog->reserved += bytes;
    return SHOAL_OK;
}

enum shoal_err sh_backlog_admit(struct sh_backlog *backlog, uint64_t bytes)
{
    sh_spin_take(&backlog->lock);
    bool is_shut = backlog->is_held || backlog->is_closed;
    enum shoal_err err = is_shut ? SHOAL_EAGAIN : room_take(backlog, bytes);
    sh_spin_release(&backlog->lock);
    return err;
}

bool sh_backlog_close(struct sh_backlog *backlog, uint64_t next)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(!backlog->is_closed);
    backlog->is_closed = !backlog->is_held && !backlog->reserved && backlog->next == next &&
                         taken(backlog) == backlog->end;
    bool is_closed = backlog->is_closed;
    sh_spin_release(&backlog->lock);
    return is_closed;
}

void sh_backlog_open(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_closed);
    backlog->is_closed = false;
    sh_spin_release(&backlog->lock);
}

bool sh_backlog_is_still(struct sh_backlog *backlog, uint64_t *next_out)
{
    sh_spin_take(&backlog->lock);
    bool is_still = !backlog->is_held && !backlog->reserved;
    if (is_still)
        *next_out = backlog->next;
    sh_spin_release(&backlog->lock);
    return is_still;
}

void sh_backlog_cancel(struct sh_backlog *backlog, uint64_t bytes)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->reserved >= bytes);
    backlog->reserved -= bytes;
    room_trim(backlog);
    sh_spin_release(&backlog->lock);
}

/* --- Recording --------------------------------------------------------------------------------- */

/* The block in which the next byte is recorded. */
static struct sh_backlog_block *end_block(const struct sh_backlog *backlog)
{
    /* The end is in the last block but where room was taken ahead of it. */
    struct sh_backlog_block *block = backlog->last;
    if (backlog->end < block->begin)
        block = backlog->first;
    while (backlog->end >= block->begin + SH_BACKLOG_BLOCK_BYTES)
        block = block->next;
    return block;
}

static void bytes_put(struct sh_backlog *backlog, const uint8_t *from, size_t size)
{
    struct sh_backlog_block *block = size ? end_block(backlog) : NULL;
    while (size) {
        size_t at = (size_t)(backlog->end - block->begin), left = SH_BACKLOG_BLOCK_BYTES - at;
        size_t part = size < left ? size : left;
        memcpy(block->bytes + at, from, part);
        backlog->end += part;
        from += part;
        size -= part;
        block = block->next;
    }
}

/* u64 chunk, u32 size, u8 kind and bytes of the completion (<< 2), u8 whether it goes with the next (1) and for which cursor it is (>> 1), u16 piece, u16 pieces, u32
 * total; the completion, the image */
static void entry_put(struct sh_backlog *backlog, const struct sh_backlog_entry *entry)
{
    uint8_t head[SH_BACKLOG_HEAD_BYTES];
    bool has_bytes = entry->kind == SH_BACKLOG_IMAGE;
    uint64_t bytes = SH_BACKLOG_HEAD_BYTES + entry->completion_size + (has_bytes ? entry->size : 0);
    SH_ASSERT(backlog->reserved >= bytes);
    sh_store64(head, entry->chunk);
    sh_store32(head + 8, entry->size);
    head[12] = (uint8_t)(entry->kind | entry->completion_size << 2);
    head[13] = (uint8_t)(entry->with_next | entry->only << 1);
    sh_store16(head + 14, entry->piece);
    sh_store16(head + 16, entry->pieces);
    sh_store32(head + 18, entry->total);
    bytes_put(backlog, head, sizeof head);
    bytes_put(backlog, entry->completion, entry->completion_size);
    bytes_put(backlog, entry->at, has_bytes ? entry->size : 0);
    backlog->reserved -= bytes;
}

static void pieces_put(struct sh_backlog *backlog, const struct sh_backlog_entry *entry)
{
    struct sh_backlog_entry piece = *entry;
    uint8_t completion_size = entry->completion_size;
    bool is_zeros = entry->kind != SH_BACKLOG_IMAGE;
    uint32_t left = entry->size, most = sh_backlog_piece_bytes(is_zeros);
    piece.pieces = sh_backlog_pieces(is_zeros, left);
    piece.total = left;
    for (piece.piece = 0; piece.piece < piece.pieces; piece.piece++) {
        piece.size = left < most ? left : most;
        piece.completion_size = piece.piece + 1 == piece.pieces ? completion_size : 0;
        entry_put(backlog, &piece);
        piece.at += is_zeros ? 0 : piece.size;
        left -= piece.size;
    }
}

uint64_t sh_backlog_record(struct sh_backlog *backlog, const struct sh_backlog_entry *note,
                           const struct sh_backlog_entry *entry)
{
    SH_ASSERT(entry->pieces == 1 && !entry->with_next);
    sh_spin_take(&backlog->lock);
    SH_ASSERT(!backlog->is_held);
    if (note) {
        SH_ASSERT(note->with_next && note->size <= SH_BACKLOG_NOTE_MAX);
        entry_put(backlog, note);
    }
    pieces_put(backlog, entry);
    uint64_t number = backlog->next++;
    sh_spin_release(&backlog->lock);
    return number;
}

void sh_backlog_gate_set(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->gate == UINT64_MAX);
    backlog->gate = backlog->end;
    sh_spin_release(&backlog->lock);
}

void sh_backlog_gate_open(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->gate != UINT64_MAX);
    backlog->gate = UINT64_MAX;
    sh_spin_release(&backlog->lock);
}

/* --- A chunk in pieces ------------------------------------------------------------------------- */

enum shoal_err sh_backlog_hold(struct sh_backlog *backlog, uint32_t note)
{
    sh_spin_take(&backlog->lock);
    bool is_busy = backlog->is_held || backlog->is_closed || backlog->reserved;
    /* Room for an abandonment is enough for a note's head. */
    enum shoal_err err = is_busy ? SHOAL_EAGAIN : room_take(backlog, SH_BACKLOG_HEAD_BYTES + note);
    if (!err) {
        backlog->is_held = true;
        backlog->has_pieces = false;
        backlog->pieces_only = 0;
    }
    sh_spin_release(&backlog->lock);
    return err;
}

enum shoal_err sh_backlog_piece(struct sh_backlog *backlog, const struct sh_backlog_entry *piece)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held && piece->kind == SH_BACKLOG_IMAGE &&
              piece->size <= SH_BACKLOG_PIECE_BYTES && piece->piece + 1 < piece->pieces &&
              !piece->completion_size);
    enum shoal_err err = room_take(backlog, SH_BACKLOG_HEAD_BYTES + piece->size);
    if (!err) {
        entry_put(backlog, piece);
        backlog->has_pieces = true;
        backlog->pieces_only = piece->only;
    }
    sh_spin_release(&backlog->lock);
    return err;
}

enum shoal_err sh_backlog_last(struct sh_backlog *backlog, uint32_t size)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held && size <= SH_BACKLOG_PIECE_BYTES + SH_COMPLETION_BYTES_MAX);
    enum shoal_err err = room_take(backlog, SH_BACKLOG_HEAD_BYTES + size);
    sh_spin_release(&backlog->lock);
    return err;
}

static void hold_end(struct sh_backlog *backlog)
{
    backlog->reserved = 0;
    backlog->is_held = false;
    room_trim(backlog);
}

uint64_t sh_backlog_hold_end(struct sh_backlog *backlog, const struct sh_backlog_entry *last,
                             const struct sh_backlog_entry *note)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held && last->piece + 1 == last->pieces);
    entry_put(backlog, last);
    uint64_t number = backlog->next++;
    if (note) {
        entry_put(backlog, note);
        number = backlog->next++;
    }
    hold_end(backlog);
    sh_spin_release(&backlog->lock);
    return number;
}

void sh_backlog_hold_abandon(struct sh_backlog *backlog)
{
    struct sh_backlog_entry abandon = {.kind = SH_BACKLOG_ABANDON, .pieces = 1};
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held);
    abandon.only = backlog->pieces_only;
    if (backlog->has_pieces)
        entry_put(backlog, &abandon);
    hold_end(backlog);
    sh_spin_release(&backlog->lock);
}

/* --- Reading ----------------------------------------------------------------------------------- */

bool sh_backlog_attach(struct sh_backlog *backlog, struct sh_backlog_cursor *cursor)
{
    sh_spin_take(&backlog->lock);
    bool is_possible = !backlog->is_held;
    unsigned i = 0;
    while (i < SH_BACKLOG_CURSORS_MAX && backlog->cursors[i])
        i++;
    SH_ASSERT(i < SH_BACKLOG_CURSORS_MAX);
    if (is_possible) {
        const struct sh_backlog_place place = {.at = backlog->end, .number = backlog->next};
        backlog->cursors[i] = cursor;
        *cursor = (struct sh_backlog_cursor){.backlog = backlog,
                                             .slot = i,
                                             .end = backlog->end,
                                             .read = place,
                                             .kept = place,
                                             .taken = backlog->end};
    }
    sh_spin_release(&backlog->lock);
    return is_possible;
}

/* Gives the blocks back that no cursor needs. */
static bool blocks_give(struct sh_backlog *backlog)
{
    sh_spin_assert_held(&backlog->lock);
    uint64_t at = taken(backlog);
    bool is_all = at == backlog->end && !backlog->reserved, gave = false;
    while (backlog->first && (is_all || backlog->first->begin + SH_BACKLOG_BLOCK_BYTES <= at)) {
        first_give(backlog);
        gave = true;
    }
    if (is_all) {
        backlog->room_end = backlog->end;
        for (unsigned i = 0; i < SH_BACKLOG_CURSORS_MAX; i++) {
            if (backlog->cursors[i])
                backlog->cursors[i]->read.block = backlog->cursors[i]->kept.block = NULL;
        }
    }
    return gave;
}

bool sh_backlog_detach(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->cursors[cursor->slot] == cursor);
    backlog->cursors[cursor->slot] = NULL;
    bool gave = blocks_give(backlog);
    sh_spin_release(&backlog->lock);
    cursor->backlog = NULL;
    return gave;
}

bool sh_backlog_trim(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    bool gave = blocks_give(backlog);
    sh_spin_release(&backlog->lock);
    return gave;
}

/* Looks up in which block a place is, which is before the backlog's end. */
static void block_look(struct sh_backlog *backlog, struct sh_backlog_place *place)
{
    sh_spin_assert_held(&backlog->lock);
    place->block = backlog->first;
    while (place->at >= place->block->begin + SH_BACKLOG_BLOCK_BYTES)
        place->block = place->block->next;
}

/* Looks once more how much there is, and in which block; false: the cursor has read all. */
static bool end_look(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    cursor->end = backlog->end < backlog->gate ? backlog->end : backlog->gate;
    if (!cursor->read.block && cursor->read.at < cursor->end)
        block_look(backlog, &cursor->read);
    sh_spin_release(&backlog->lock);
    return cursor->read.at < cursor->end;
}

/* Walks over bytes that are there. Where they lie in one block, returns the place; else copies them, unless into is NULL. */
static const uint8_t *bytes_get(struct sh_backlog_place *place, size_t size, uint8_t *into)
{
    const uint8_t *found = NULL;
    size_t done = 0;
    while (done < size) {
        if (place->at == place->block->begin + SH_BACKLOG_BLOCK_BYTES)
            place->block = place->block->next;
        size_t offset = (size_t)(place->at - place->block->begin),
               left = SH_BACKLOG_BLOCK_BYTES - offset;
        size_t part = size - done < left ? size - done : left;
        if (part == size)
            found = place->block->bytes + offset;
        else if (into)
            memcpy(into + done, place->block->bytes + offset, part);
        done += part;
        place->at += part;
    }
    return found ? found : into;
}

/* The entry at a place, which moves to its completion. */
static struct sh_backlog_entry head_get(struct sh_backlog_place *place)
{
    uint8_t room[SH_BACKLOG_HEAD_BYTES];
    const uint8_t *head = bytes_get(place, sizeof room, room);
    return (struct sh_backlog_entry){.chunk = sh_load64(head),
                                     .size = sh_load32(head + 8),
                                     .kind = head[12] & 3,
                                     .completion_size = head[12] >> 2,
                                     .with_next = head[13] & 1,
                                     .only = head[13] >> 1,
                                     .piece = sh_load16(head + 14),
                                     .pieces = sh_load16(head + 16),
                                     .total = sh_load32(head + 18)};
}

static bool is_last_of_write(const struct sh_backlog_entry *entry)
{
    return entry->kind != SH_BACKLOG_ABANDON && !entry->with_next &&
           entry->piece + 1 == entry->pieces;
}

/* Moves a place of the cursor behind the entry there; false: the entry is not in this cursor's stream. */
static bool place_pass(const struct sh_backlog_cursor *cursor, struct sh_backlog_place *place,
                       struct sh_backlog_entry *entry_out, uint8_t *scratch)
{
    struct sh_backlog_entry entry = head_get(place);
    bool is_last = is_last_of_write(&entry);
    bool is_other = entry.only && entry.only != cursor->slot + 1;
    if (entry.completion_size) {
        const uint8_t *found = bytes_get(place, entry.completion_size, entry.completion);
        memmove(entry.completion, found, entry.completion_size);
    }
    if (entry.kind == SH_BACKLOG_IMAGE)
        entry.at = bytes_get(place, entry.size, is_other ? NULL : scratch);
    /* A block that was read to its end may go back to the pool before the next read. */
    if (place->at == place->block->begin + SH_BACKLOG_BLOCK_BYTES)
        place->block = NULL;
    if (is_other && !is_last)
        return false;
    if (is_other)
        entry = (struct sh_backlog_entry){
            .chunk = SH_BACKLOG_NO_CHUNK, .kind = SH_BACKLOG_REMOVAL, .pieces = 1};
    place->number += is_last;
    place->part = is_last ? 0 : place->part + 1;
    *entry_out = entry;
    return true;
}

bool sh_backlog_read(struct sh_backlog_cursor *cursor, struct sh_backlog_entry *entry_out,
                     uint64_t *number_out, uint8_t *scratch)
{
    struct sh_backlog_place *read = &cursor->read;
    do {
        if ((read->at == cursor->end || !read->block) && !end_look(cursor))
            return false;
        *number_out = read->number;
    } while (!place_pass(cursor, read, entry_out, scratch));
    return true;
}

void sh_backlog_unread(struct sh_backlog_cursor *cursor, const struct sh_backlog_cursor *before)
{
    cursor->read = before->read;
}

/* All before cursor->kept was taken. */
static bool kept_take(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    cursor->taken = cursor->kept.at;
    bool gave = blocks_give(backlog);
    sh_spin_release(&backlog->lock);
    return gave;
}

bool sh_backlog_take(struct sh_backlog_cursor *cursor)
{
    cursor->kept = cursor->read;
    return kept_take(cursor);
}

static bool is_before(const struct sh_backlog_place *place, uint64_t number, uint32_t part)
{
    return place->number < number || (place->number == number && place->part < part);
}

bool sh_backlog_take_to(struct sh_backlog_cursor *cursor, uint64_t number, uint32_t part,
                        bool *gave_out)
{
    struct sh_backlog *backlog = cursor->backlog;
    struct sh_backlog_place place = cursor->kept, next = place;
    struct sh_backlog_entry entry;
    while (place.at < cursor->read.at) {
        if (!next.block) {
            sh_spin_take(&backlog->lock);
            block_look(backlog, &next);
            sh_spin_release(&backlog->lock);
        }
        /* Entries for others behind the place are passed as well: no ACK will tell of them. */
        if (place_pass(cursor, &next, &entry, NULL) && !is_before(&place, number, part))
            break;
        place = next;
    }
    if (place.number != number || place.part != part)
        return false;
    *gave_out = false;
    if (place.at != cursor->kept.at) {
        cursor->kept = place;
        *gave_out = kept_take(cursor);
    }
    return true;
}

void sh_backlog_rewind(struct sh_backlog_cursor *cursor)
{
    cursor->read = cursor->kept;
}

uint64_t sh_backlog_pending(const struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    uint64_t bytes = backlog->end - cursor->taken;
    sh_spin_release(&backlog->lock);
    return bytes;
}

bool sh_backlog_is_half_full(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    bool is_so = backlog->end + backlog->reserved - taken(backlog) > backlog->window / 2;
    sh_spin_release(&backlog->lock);
    return is_so || sh_backlog_pool_left(backlog->pool) < backlog->pool->count / 2;
}

uint64_t sh_backlog_next(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    uint64_t next = backlog->next;
    sh_spin_release(&backlog->lock);
    return next;
}

uint64_t sh_backlog_recorded(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    uint64_t end = backlog->end;
    sh_spin_release(&backlog->lock);
    return end;
}
