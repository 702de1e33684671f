/* A zone's changes, in their order, until its backups have taken them.
 *
 *   store's write section ──► admit, record ──► [block][block][block] ──► cursor of each backup
 *
 * An entry is a chunk's new image, so many zeros, or its removal. It gets the next sequence number of the zone when it is
 * recorded. An image of more than SH_BACKLOG_PIECE_BYTES (zeros: of SH_BACKLOG_ZEROS_BYTES) is cut to pieces, which follow each other and have one number, as the
 * two entries of a pair have. Room is asked for before a chunk is changed, and never refused afterwards.
 *
 * Memory: blocks of 16 KiB from a pool that many backlogs share; a backlog that all have read has none.
 * Threads: any may admit and record. A cursor is used by one at a time. docs/backup.md */
#ifndef SH_BACKUP_BACKLOG_H
#define SH_BACKUP_BACKLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backup/completion.h"
#include "base/bytes.h"
#include "base/lock.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_BACKLOG_BLOCK_BYTES (16u << 10)
#define SH_BACKLOG_PIECE_BYTES (32u << 10)
#define SH_BACKLOG_ZEROS_BYTES (8u << 20)
#define SH_BACKLOG_HEAD_BYTES 22
#define SH_BACKLOG_CURSORS_MAX 5 /* a zone's backups, and one that is being added */
#define SH_BACKLOG_NOTE_MAX 64

struct sh_backlog_pool;
struct sh_backlog_block;

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_backlog_pool_create(size_t blocks,
                                                      struct sh_backlog_pool **pool_out);
/* No backlog uses it any more. NULL is allowed. */
void sh_backlog_pool_destroy(struct sh_backlog_pool *pool);
/* Blocks that no backlog has. Any thread. */
size_t sh_backlog_pool_left(struct sh_backlog_pool *pool);

enum sh_backlog_kind {
    SH_BACKLOG_IMAGE,
    SH_BACKLOG_ZEROS, /* an image of so many bytes, all 0 */
    SH_BACKLOG_REMOVAL,
    SH_BACKLOG_ABANDON, /* the pieces of a chunk that came are not followed by the others */
};

struct sh_backlog_entry {
    uint64_t chunk;         /* with its creator; creator 0: a claim of the zone, or NO_CHUNK */
    uint8_t kind;           /* enum sh_backlog_kind */
    bool with_next;         /* the next entry has the same number: both count or neither */
    uint8_t only;           /* 0: it is for all cursors; else 1 + the place of the one it is for */
    uint16_t piece, pieces; /* of an image: its place, from 0, of how many; 0, 1: it is whole */
    uint32_t size;          /* of the image, the piece or the zeros */
    uint32_t total;         /* of all pieces together */
    const uint8_t *at;      /* of an image or a piece; read: until the next read or take */
    /* The completion record of the request that made the write (completion.h), with its last piece; 0 bytes: no request did. */
    uint8_t completion_size;
    uint8_t completion[SH_COMPLETION_BYTES_MAX];
};

/* The chunk that others see removed where an entry is for one cursor only: there is none. */
#define SH_BACKLOG_NO_CHUNK SHOAL_LOCAL_ID_MAX

/* Where an entry begins. */
struct sh_backlog_place {
    struct sh_backlog_block *block; /* that holds `at`; NULL: to be looked up */
    uint64_t at;                    /* bytes */
    uint64_t number;                /* of its write */
    uint32_t part; /* how many entries of that number the cursor has had before it */
};

struct sh_backlog_cursor {
    struct sh_backlog *backlog;         /* NULL: it is in use nowhere */
    unsigned slot;                      /* its place among the backlog's cursors */
    uint64_t end;                       /* bytes: up to where some are known to be */
    struct sh_backlog_place read, kept; /* of the next entry; of the first that is still needed */
    uint64_t taken;                     /* kept.at, under the backlog's lock */
};

struct sh_backlog {
    struct sh_spin lock; /* guards all of it */
    struct sh_backlog_pool *pool;
    struct sh_backlog_block *first, *last; /* NULL: it has none */
    uint64_t end;                          /* bytes recorded since ever */
    uint64_t reserved;                     /* admitted, and not recorded yet */
    uint64_t room_end;                     /* where the last block ends */
    uint64_t window;     /* most bytes that are recorded or reserved and not taken */
    uint64_t next;       /* number of the next write */
    bool is_held;        /* a chunk comes in pieces: nothing else is admitted */
    bool has_pieces;     /* and some were recorded, */
    uint8_t pieces_only; /* `only` of these */
    bool is_closed;      /* nothing is admitted */
    uint64_t
        gate; /* bytes: what is recorded from there on no cursor reads yet; UINT64_MAX: all is read */
    struct sh_backlog_cursor *cursors[SH_BACKLOG_CURSORS_MAX];
};

/* next: number of the first write. window: at least 1 MiB. */
void sh_backlog_init(struct sh_backlog *backlog, struct sh_backlog_pool *pool, uint64_t window,
                     uint64_t next);
/* Gives its blocks back. Nobody uses it, or a cursor of it, any more. */
void sh_backlog_end(struct sh_backlog *backlog);

/* How many bytes each piece of an image has, or of zeros, but for the last one. */
static inline uint32_t sh_backlog_piece_bytes(bool is_zeros)
{
    return is_zeros ? SH_BACKLOG_ZEROS_BYTES : SH_BACKLOG_PIECE_BYTES;
}

static inline uint16_t sh_backlog_pieces(bool is_zeros, uint32_t size)
{
    return size ? (uint16_t)((size - 1) / sh_backlog_piece_bytes(is_zeros) + 1) : 1;
}

/* Bytes of a backlog that an image of so many bytes takes, or so many zeros, or, 0 zeros, a removal. */
static inline uint64_t sh_backlog_bytes(bool is_zeros, uint32_t size)
{
    return (uint64_t)sh_backlog_pieces(is_zeros, size) * SH_BACKLOG_HEAD_BYTES +
           (is_zeros ? 0 : size);
}

/* Takes room for entries of so many bytes. EAGAIN: there is none now, a chunk comes in pieces, or it is closed. */
SHOAL_NODISCARD enum shoal_err sh_backlog_admit(struct sh_backlog *backlog, uint64_t bytes);
/* Whether nothing can be on its way into it: no room is taken, no chunk comes in pieces, and all cursors have taken what there is. If so
 * and its next number is that one, it is closed: from now on neither admit nor hold find room (EAGAIN), until it is opened. */
bool sh_backlog_close(struct sh_backlog *backlog, uint64_t next);
void sh_backlog_open(struct sh_backlog *backlog);
/* Whether no room is taken and no chunk comes in pieces, now; then also the number of the next write. */
bool sh_backlog_is_still(struct sh_backlog *backlog, uint64_t *next_out);
/* Gives room back that nothing was recorded in. */
void sh_backlog_cancel(struct sh_backlog *backlog, uint64_t bytes);
/* Records an entry for which room was taken, an image of any size, in pieces where it has many; returns its number. note: NULL, or an image of at most
 * SH_BACKLOG_NOTE_MAX bytes that comes before and has the same number; its room was taken, too. */
uint64_t sh_backlog_record(struct sh_backlog *backlog, const struct sh_backlog_entry *note,
                           const struct sh_backlog_entry *entry);

/* A chunk's pieces will be recorded one by one: nothing else is admitted until the hold ends. Takes room for a note of so many bytes, with
 * its completion, or for none: 0. EAGAIN: there is room that was taken and
 * not recorded in yet, another chunk comes in pieces, or there is no room now. */
SHOAL_NODISCARD enum shoal_err sh_backlog_hold(struct sh_backlog *backlog, uint32_t note);
/* Takes room for a piece and records it, all pieces but the last one. EAGAIN: there is no room now. */
SHOAL_NODISCARD enum shoal_err sh_backlog_piece(struct sh_backlog *backlog,
                                                const struct sh_backlog_entry *piece);
/* Takes room for the last piece, of so many bytes with its completion. EAGAIN: there is none now. */
SHOAL_NODISCARD enum shoal_err sh_backlog_last(struct sh_backlog *backlog, uint32_t size);
/* Ends the hold with the last piece, for which room was taken, and a note that is the write behind it, or NULL; returns the number of the
 * last of them. */
uint64_t sh_backlog_hold_end(struct sh_backlog *backlog, const struct sh_backlog_entry *last,
                             const struct sh_backlog_entry *note);
/* Ends the hold: the pieces that were recorded are abandoned, and the chunk is what it was. */
void sh_backlog_hold_abandon(struct sh_backlog *backlog);

/* The backlog keeps entries that are recorded from now on back from all cursors, until the gate is opened; they count for the window. There is one gate at a time. */
void sh_backlog_gate_set(struct sh_backlog *backlog);
void sh_backlog_gate_open(struct sh_backlog *backlog);

/* The cursor begins where the backlog ends now. At most SH_BACKLOG_CURSORS_MAX at a time. False: it can't now, as a chunk comes in
 * pieces of which it would not get the first. */
bool sh_backlog_attach(struct sh_backlog *backlog, struct sh_backlog_cursor *cursor);
/* Returns whether it gave blocks back that only this cursor needed. */
bool sh_backlog_detach(struct sh_backlog_cursor *cursor);
/* The next entry, with its number; false: there is none. Of a write that is for another cursor only, this one gets a removal of
 * SH_BACKLOG_NO_CHUNK, which no node created. scratch: SH_BACKLOG_PIECE_BYTES, used where an image lies in two blocks;
 * NULL: images are passed over, and not to be looked at. */
bool sh_backlog_read(struct sh_backlog_cursor *cursor, struct sh_backlog_entry *entry_out,
                     uint64_t *number_out, uint8_t *scratch);
/* Nothing was read since the cursor was like that; no take in between. */
void sh_backlog_unread(struct sh_backlog_cursor *cursor, const struct sh_backlog_cursor *before);
/* All that the cursor has read was taken: gives the blocks back that no cursor needs, so that more is admitted. Returns whether it
 * gave some. */
bool sh_backlog_take(struct sh_backlog_cursor *cursor);
/* The same up to a place that the cursor has read; what lies behind it is kept, for sh_backlog_rewind. False, and nothing has changed:
 * it is no such place, or one that was read is not needed any more. */
bool sh_backlog_take_to(struct sh_backlog_cursor *cursor, uint64_t number, uint32_t part,
                        bool *gave_out);
/* The cursor reads again what was not taken. */
void sh_backlog_rewind(struct sh_backlog_cursor *cursor);
/* Bytes that were read, and not taken. */
static inline uint64_t sh_backlog_flying(const struct sh_backlog_cursor *cursor)
{
    return cursor->read.at - cursor->kept.at;
}
/* Bytes that the cursor has not taken. */
uint64_t sh_backlog_pending(const struct sh_backlog_cursor *cursor);
/* Gives the blocks back that no cursor needs, where perhaps there is none; returns whether it gave some. */
bool sh_backlog_trim(struct sh_backlog *backlog);
/* Whether so much of the window, or of the pool, is in use that whoever can wait should. */
bool sh_backlog_is_half_full(struct sh_backlog *backlog);
/* Number of the next write. */
uint64_t sh_backlog_next(struct sh_backlog *backlog);
/* How many bytes were recorded since ever. */
uint64_t sh_backlog_recorded(struct sh_backlog *backlog);

#endif
