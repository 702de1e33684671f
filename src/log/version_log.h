/* Pieces of a zone's version log: which version each chunk had when an epoch of the zone ended.
 *
 *   version log:  [flush: piece, piece, last piece][flush] ...
 *   piece:        header, then tuples; chunks ascend
 *   tuple:        chunks first to last, their version, and whether they are removed
 *
 * When an epoch ends, all that versions.h has of it is written: a flush. A flush of the other kind, a compaction, has the
 * current version of each chunk, so that the flushes before it are needed no more. Flushes have rising
 * numbers, and their pieces count from 0; a chunk may come in several of them. Whether pieces are missing, and which version
 * is the newest (currents.h, newest.h), is for the caller to see. A piece is checked alone: one that is torn or damaged takes no other
 * with it.
 *
 *   0   u32   magic "SHVL"
 *   4   u16   format, 1
 *   6   u16   flags: bit 0 last piece of the flush, 1 compaction; the others are zero
 *   8   u64   zone
 *   16  u64   number of the flush
 *   24  u32   place of the piece in the flush, from 0
 *   28  u32   bytes of the tuples
 *   32  u32   CRC32C of the header up to here and of the tuples
 *   36        tuples
 *
 * A tuple is relative to the one before it. The first tuple of a piece is relative to chunk 0, which is none, in epoch 0.
 *
 *   u8        type: bits 0-2 bytes of the gap, 0 to 6, 7: eight; 3-4 bytes of the number, 0 to 2, 3: four; 5 epoch;
 *             6 removal; 7 run
 *   0-8       gap: chunks between the last one of the tuple before and the first one
 *   1, 2-9    with run: how many chunks more than one. 1 to 247: that many; 247 + n: as the next n bytes say
 *   0, 2      with epoch: u16 epoch, where it is not that of the tuple before
 *   0-2, 4    number
 *
 * There is one way to write a piece: each field is as short as it can be, and neighbours with one version are one tuple.
 * Anything else is damage. A chunk is creator << 48 | local ID; a run may go on from one creator to the next.
 *
 * DXRAM thesis 4 IV.B (version log: tuples of 13 bytes without order). Pure functions: they allocate and log nothing, and
 * any thread may call them. */
#ifndef SH_LOG_VERSION_LOG_H
#define SH_LOG_VERSION_LOG_H

#include "base/bytes.h"
#include "log/entry.h"
#include "shoal/err.h"

#define SH_VERSION_LOG_HEAD 36
#define SH_VERSION_LOG_TUPLE_MAX 24

struct sh_version_tuple {
    uint64_t first, last;             /* chunks, 1 at least; first <= last */
    struct sh_replog_version version; /* number up to SH_REPLOG_NUMBER_MAX */
    bool is_removal;
};

struct sh_version_piece {
    uint64_t zone, flush;
    uint32_t place;     /* in the flush, from 0 */
    bool is_last;       /* of the flush */
    bool is_compaction; /* the flush replaces those before it */
};

/* --- Writing ---------------------------------------------------------------------------------- */

/* The fields are for the functions below. */
struct sh_version_writer {
    struct sh_version_piece piece;
    uint8_t *into;
    size_t room, size; /* bytes of the buffer; those that are written, with room for the header */
    size_t latest_at;  /* where the latest tuple begins */
    struct sh_version_tuple latest,
        before; /* the latest tuple, and the one before it; first 0: none */
};

/* Begins a piece in the buffer, of SH_VERSION_LOG_HEAD to UINT32_MAX bytes, which is kept until the end. What the piece says
 * of is_last does not matter yet. */
struct sh_version_writer sh_version_writer_begin(const struct sh_version_piece *piece,
                                                 uint8_t *into, size_t room);

/* Adds a tuple, whose chunks come behind all those of the piece. False: it does not fit, and nothing has changed; it belongs
 * into the next piece. */
bool sh_version_writer_put(struct sh_version_writer *w, const struct sh_version_tuple *tuple);

/* Completes the piece; returns its bytes. */
size_t sh_version_writer_end(struct sh_version_writer *w, bool is_last);

/* --- Reading ---------------------------------------------------------------------------------- */

struct sh_version_reader {
    struct sh_version_piece piece;
    size_t size;                    /* bytes of the piece, with its header */
    struct sh_reader in;            /* the tuples that are not read yet */
    struct sh_version_tuple before; /* the last one that was read; first 0: none */
};

/* Begins to read the piece at the beginning of the bytes, which may go on behind it, and are borrowed until its end.
 * ECORRUPT: no whole piece, or not what was written. EVERSION: whole, in a format that is not known here. EDIFFERS: whole,
 * of another zone. With an error the reader is not written. */
SHOAL_NODISCARD enum shoal_err sh_version_reader_open(struct sh_bytes bytes, uint64_t zone,
                                                      struct sh_version_reader *reader_out);

/* Begins to read the next piece of a slot's bytes behind its head, from *at on, which then is behind it: the pieces of one
 * write lie one behind the other, and each write begins at a block of 4 KiB. A piece with a lower flush than the
 * least is of a former use of the slot, as is what lies behind it. False: there is no other piece of the zone. */
bool sh_version_piece_next(struct sh_bytes slot, size_t *at, uint64_t zone, uint64_t flush_least,
                           struct sh_version_reader *reader_out);

enum sh_version_got {
    SH_VERSION_TUPLE,
    SH_VERSION_END, /* that was all */
    SH_VERSION_DAMAGED
};

/* Reads the next tuple. Reader and *tuple_out change only with SH_VERSION_TUPLE. Its chunks come behind those of
 * the tuple before, so a piece is never read without end; but a run may be of any length. */
enum sh_version_got sh_version_reader_next(struct sh_version_reader *reader,
                                           struct sh_version_tuple *tuple_out);

#endif
