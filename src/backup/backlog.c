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
    size_t left;
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
    pool->left = blocks;
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
    *backlog = (struct sh_backlog){.pool = pool, .window = window, .next = next};
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

/* u64 chunk, u32 size, u8 kind, u8 whether it goes with the next, u16 piece, u16 pieces, u32 total */
static void entry_put(struct sh_backlog *backlog, const struct sh_backlog_entry *entry)
{
    uint8_t head[SH_BACKLOG_HEAD_BYTES];
    bool has_bytes = entry->kind == SH_BACKLOG_IMAGE;
    uint64_t bytes = SH_BACKLOG_HEAD_BYTES + (has_bytes ? entry->size : 0);
    SH_ASSERT(backlog->reserved >= bytes);
    sh_store64(head, (uint64_t)entry->creator << 48 | entry->local_id);
    sh_store32(head + 8, entry->size);
    head[12] = entry->kind;
    head[13] = entry->with_next;
    sh_store16(head + 14, entry->piece);
    sh_store16(head + 16, entry->pieces);
    sh_store32(head + 18, entry->total);
    bytes_put(backlog, head, sizeof head);
    bytes_put(backlog, entry->at, has_bytes ? entry->size : 0);
    backlog->reserved -= bytes;
}

static void pieces_put(struct sh_backlog *backlog, const struct sh_backlog_entry *entry)
{
    struct sh_backlog_entry piece = *entry;
    bool is_zeros = entry->kind != SH_BACKLOG_IMAGE;
    uint32_t left = entry->size, most = sh_backlog_piece_bytes(is_zeros);
    piece.pieces = sh_backlog_pieces(is_zeros, left);
    piece.total = left;
    for (piece.piece = 0; piece.piece < piece.pieces; piece.piece++) {
        piece.size = left < most ? left : most;
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
    }
    sh_spin_release(&backlog->lock);
    return err;
}

enum shoal_err sh_backlog_piece(struct sh_backlog *backlog, const struct sh_backlog_entry *piece)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held && piece->kind == SH_BACKLOG_IMAGE &&
              piece->size <= SH_BACKLOG_PIECE_BYTES && piece->piece + 1 < piece->pieces);
    enum shoal_err err = room_take(backlog, SH_BACKLOG_HEAD_BYTES + piece->size);
    if (!err) {
        entry_put(backlog, piece);
        backlog->has_pieces = true;
    }
    sh_spin_release(&backlog->lock);
    return err;
}

enum shoal_err sh_backlog_last(struct sh_backlog *backlog, uint32_t size)
{
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held && size <= SH_BACKLOG_PIECE_BYTES);
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
    const struct sh_backlog_entry abandon = {.kind = SH_BACKLOG_ABANDON, .pieces = 1};
    sh_spin_take(&backlog->lock);
    SH_ASSERT(backlog->is_held);
    if (backlog->has_pieces)
        entry_put(backlog, &abandon);
    hold_end(backlog);
    sh_spin_release(&backlog->lock);
}

/* --- Reading ----------------------------------------------------------------------------------- */

void sh_backlog_attach(struct sh_backlog *backlog, struct sh_backlog_cursor *cursor)
{
    sh_spin_take(&backlog->lock);
    unsigned i = 0;
    while (i < SH_BACKLOG_CURSORS_MAX && backlog->cursors[i])
        i++;
    SH_ASSERT(i < SH_BACKLOG_CURSORS_MAX);
    backlog->cursors[i] = cursor;
    *cursor = (struct sh_backlog_cursor){.backlog = backlog,
                                         .at = backlog->end,
                                         .end = backlog->end,
                                         .taken = backlog->end,
                                         .sequence = backlog->next};
    sh_spin_release(&backlog->lock);
}

void sh_backlog_detach(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    for (unsigned i = 0; i < SH_BACKLOG_CURSORS_MAX; i++) {
        if (backlog->cursors[i] == cursor)
            backlog->cursors[i] = NULL;
    }
    sh_spin_release(&backlog->lock);
    cursor->backlog = NULL;
}

/* Looks once more how much there is, and in which block; false: the cursor has read all. */
static bool end_look(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    cursor->end = backlog->end;
    if (!cursor->block && cursor->at < cursor->end) {
        cursor->block = backlog->first;
        while (cursor->at >= cursor->block->begin + SH_BACKLOG_BLOCK_BYTES)
            cursor->block = cursor->block->next;
    }
    sh_spin_release(&backlog->lock);
    return cursor->at < cursor->end;
}

/* Walks over bytes that are there. Where they lie in one block, returns the place; else copies them. */
static const uint8_t *bytes_get(struct sh_backlog_block **block, uint64_t *at, size_t size,
                                uint8_t *into)
{
    const uint8_t *found = NULL;
    size_t done = 0;
    while (done < size) {
        if (*at == (*block)->begin + SH_BACKLOG_BLOCK_BYTES)
            *block = (*block)->next;
        size_t offset = (size_t)(*at - (*block)->begin), left = SH_BACKLOG_BLOCK_BYTES - offset;
        size_t part = size - done < left ? size - done : left;
        if (part == size)
            found = (*block)->bytes + offset;
        else
            memcpy(into + done, (*block)->bytes + offset, part);
        done += part;
        *at += part;
    }
    return found ? found : into;
}

bool sh_backlog_read(struct sh_backlog_cursor *cursor, struct sh_backlog_entry *entry_out,
                     uint64_t *number_out, uint8_t *scratch)
{
    uint8_t room[SH_BACKLOG_HEAD_BYTES];
    if ((cursor->at == cursor->end || !cursor->block) && !end_look(cursor))
        return false;
    struct sh_backlog_block *block = cursor->block;
    uint64_t at = cursor->at;
    const uint8_t *head = bytes_get(&block, &at, sizeof room, room);
    uint64_t chunk = sh_load64(head);
    *entry_out = (struct sh_backlog_entry){.local_id = chunk & ((UINT64_C(1) << 48) - 1),
                                           .creator = (uint16_t)(chunk >> 48),
                                           .size = sh_load32(head + 8),
                                           .kind = head[12],
                                           .with_next = head[13],
                                           .piece = sh_load16(head + 14),
                                           .pieces = sh_load16(head + 16),
                                           .total = sh_load32(head + 18)};
    if (entry_out->kind == SH_BACKLOG_IMAGE)
        entry_out->at = bytes_get(&block, &at, entry_out->size, scratch);
    *number_out = cursor->sequence;
    bool is_last = entry_out->piece + 1 == entry_out->pieces && !entry_out->with_next;
    cursor->sequence += is_last && entry_out->kind != SH_BACKLOG_ABANDON;
    cursor->at = at;
    /* One that was read to its end may go back to the pool before the next read. */
    cursor->block = at == block->begin + SH_BACKLOG_BLOCK_BYTES ? NULL : block;
    return true;
}

void sh_backlog_unread(struct sh_backlog_cursor *cursor, const struct sh_backlog_cursor *before)
{
    cursor->block = before->block;
    cursor->at = before->at;
    cursor->sequence = before->sequence;
}

bool sh_backlog_take(struct sh_backlog_cursor *cursor)
{
    struct sh_backlog *backlog = cursor->backlog;
    sh_spin_take(&backlog->lock);
    cursor->taken = cursor->at;
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
                backlog->cursors[i]->block = NULL;
        }
    }
    sh_spin_release(&backlog->lock);
    return gave;
}

uint64_t sh_backlog_next(struct sh_backlog *backlog)
{
    sh_spin_take(&backlog->lock);
    uint64_t next = backlog->next;
    sh_spin_release(&backlog->lock);
    return next;
}
