/* The inside of the journal, shared by journal*.c.
 *
 * A segment is a file "journal.SLOT" (three digits). Its first 4096 bytes:
 *   u64 magic, u16 format, u16 bytes of the label, u32 zero, u64 journal (drawn at its creation),
 *   u64 number of the segment (rising), u64 lowest segment that is needed, u64 number of its first
 *   batch, the label, zeros; at 4092 u32 CRC32C of what is before it
 * Behind it batches, each padded with zeros to a multiple of 4096:
 *   u64 magic, u64 journal, u64 number of the batch, u32 bytes of records, u32 CRC32C of the head
 *   with zero in this place and of the records; records
 * A record: u8 kind, u8 stream, u16 zero, u32 bytes, bytes. Little-endian.
 *   START  nothing: the stream begins, nothing of it was there before
 *   STATE  the state
 *   ENTRY  u64 index, u64 term, u8 kind, bytes
 *   BEGIN  u64 index, u64 term, u8 whether it comes from elsewhere
 *   PIECE  bytes
 *   END    u8 whether it comes from elsewhere
 *   DROP   nothing
 *   AGAIN  as ENTRY: one from before BEGIN once more, for a reader who begins there. To others it
 *          says nothing, for it may be cut off from those behind it, which are there already
 *
 * Batches are numbered without gaps, and one is written at a time, header and first batch of a
 * segment together. The first batch of a segment says which ones of the segment before it count:
 * those with lower numbers. Files are used again, so what lies behind the last batch may be
 * anything that was a batch once: it has a lower number. A file is used again only when the newest
 * header on the disk says that its segment is not needed.
 *
 * What opening reads last may be in the kernel's memory only: a write whose sync failed, or that a
 * process had under way when it was killed. So opening begins a new segment with that batch, and
 * nobody hears of it before it is synced there. Those before it are safe: each was synced before
 * the next one was written. */
#ifndef SH_JOURNAL_JOURNAL_INT_H
#define SH_JOURNAL_JOURNAL_INT_H

#include "journal/journal.h"

#define SH_JOURNAL_BLOCK 4096u
#define SH_JOURNAL_FORMAT 1
#define SH_JOURNAL_SEGMENT_MAGIC UINT64_C(0x4745534c4e524a) /* "JRNLSEG" */
#define SH_JOURNAL_BATCH_MAGIC UINT64_C(0x5441424c4e524a)   /* "JRNLBAT" */
#define SH_JOURNAL_HEAD_BYTES 32
#define SH_JOURNAL_RECORD_BYTES 8
#define SH_JOURNAL_NAME_BYTES 16
#define SH_JOURNAL_SLOTS 256
/* Records are gathered in chunks; each becomes a batch. */
#define SH_JOURNAL_CHUNK_BYTES (256u << 10)
/* Chunks that are there from the beginning, and how many may be in use before is_full. */
#define SH_JOURNAL_CHUNKS 32
#define SH_JOURNAL_CHUNKS_FULL 24
/* How much of a new file is filled with zeros at a time. */
#define SH_JOURNAL_ZEROS_BYTES (128u << 10)

enum sh_journal_kind {
    SH_JOURNAL_START = 1,
    SH_JOURNAL_STATE,
    SH_JOURNAL_ENTRY,
    SH_JOURNAL_BEGIN,
    SH_JOURNAL_PIECE,
    SH_JOURNAL_END,
    SH_JOURNAL_DROP,
    SH_JOURNAL_AGAIN
};

/* What a chunk's records say of the segments that a stream needs, once the chunk is synced: all of its
 * records of kinds START, BEGIN, END and DROP taken together, so that no record needs memory. */
enum sh_journal_need { SH_NEED_SAME, SH_NEED_NONE, SH_NEED_THIS, SH_NEED_BEGINNING };
struct sh_journal_mark {
    uint8_t
        need; /* from which segment on: as before, none, the chunk's own, or where the snapshot began
                     that was under way before the chunk */
    bool begins; /* a snapshot begins in the chunk */
    bool ends;   /* one ends there */
};

struct sh_journal_chunk {
    struct sh_journal_chunk *next;
    sh_lsn last;     /* of its records */
    bool is_written; /* it has become a batch, and takes no records any more */
    size_t size;     /* of the records */
    size_t room;
    struct sh_journal_mark marks[SH_JOURNAL_STREAMS_MAX];
    uint8_t *bytes; /* room for a segment's header; batch head, records, room for padding */
};

struct sh_journal_stream_log {
    struct sh_journal_stream machine;
    bool is_there;      /* something of it is in the journal */
    uint64_t segment;   /* where its last complete snapshot (or its start) begins */
    uint64_t beginning; /* where a snapshot begins that has not ended; 0: there is none */
    uint64_t bytes;     /* of the last complete snapshot's pieces */
    uint64_t bytes_now; /* of the one under way */
    bool is_installing;
    bool is_saved; /* the end of a snapshot of its own is written, and not synced yet */
    uint8_t state[SH_JOURNAL_STATE_BYTES_MAX];
    size_t state_size; /* 0: none was set */
};

/* The segment that is begun next, of a stream whose snapshot (or start) is in the batch that is written
 * first there. */
#define SH_JOURNAL_NEXT UINT64_MAX

/* What lies in a slot: no file; a file that is written to its end and not needed; the file that the
 * next segment will be in; a segment. */
enum sh_journal_slot {
    SH_JOURNAL_NO_FILE,
    SH_JOURNAL_FREE_FILE,
    SH_JOURNAL_SPARE_FILE,
    SH_JOURNAL_SEGMENT
};

/* One operation of the disk, by one of the two who have some: the writer and the spare. */
struct sh_journal_op {
    struct sh_disk_op op;
    bool is_busy;    /* it was begun, and its end was not seen yet */
    bool is_done;    /* the disk has done it */
    bool is_waiting; /* the disk had no room for it: submitted again */
};

/* The file for the next segment, made ready while the one before it is written:
 *
 *   NONE --a free file------------------------------------------> READY --taken--> NONE
 *    '---a new file--> NAMING --name synced--> ZEROING --full, or wanted--'
 *   any --error--> NONE, and again a second later */
enum sh_journal_spare_phase { SH_SPARE_NONE, SH_SPARE_NAMING, SH_SPARE_ZEROING, SH_SPARE_READY };

struct sh_journal_spare {
    enum sh_journal_spare_phase phase;
    unsigned slot;
    int file;
    uint64_t zeroed;
    struct sh_journal_op op;
    uint64_t retry_ns;
    enum shoal_err trouble;
};

struct sh_journal {
    struct sh_env env;
    uint64_t id;
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX];
    size_t label_size;
    uint64_t segment_bytes, bytes_kept;
    uint32_t piece_bytes;
    size_t chunk_bytes;
    struct sh_journal_stream_log streams[SH_JOURNAL_STREAMS_MAX];
    unsigned streams_count;

    struct {
        enum sh_journal_slot kind;
        uint64_t number; /* of the segment */
        bool is_spoilt;  /* a write to it failed: it is not used again */
    } slots[SH_JOURNAL_SLOTS];
    unsigned slot;    /* of the segment that is written, if `file` is open */
    uint64_t segment; /* its number; the next one's is higher */
    int file;
    bool is_open;    /* file is: no write to it has failed */
    uint64_t offset; /* where the next batch goes; 0: the header goes first */
    uint64_t batch;  /* number of the next batch */
    uint64_t needed; /* the lowest segment that the newest header calls needed */
    struct sh_journal_spare spare;

    /* Records that are not synced, oldest first. */
    struct sh_journal_chunk *chunks, **chunks_end, *tail, *unused;
    unsigned chunks_count;
    sh_lsn last, synced;

    struct sh_journal_op op; /* of the first chunk */
    enum shoal_err trouble;
    uint64_t retry_ns;
    uint8_t *zeros;

    bool is_ready;     /* it has been opened: snapshots may begin */
    bool is_changed;   /* whether a snapshot is due, or a file can go, was not looked at since */
    uint64_t save_ns;  /* no snapshot begins before */
    int saving;        /* the stream whose snapshot is being written; -1: none */
    uint64_t begun_ns; /* the time of the step that began it */
    uint64_t now_ns;   /* the time of the last step */
    struct sh_journal_counts counts;
    bool is_repeating; /* its entries from before are being appended */
    uint8_t *piece;
};

/* journal.c */
/* Room for a record of that many bytes, behind its head. */
struct sh_writer sh_journal_record(struct sh_journal *journal, enum sh_journal_kind kind,
                                   unsigned stream, size_t size);
/* Sees to it that there is a batch to write, be it an empty one. */
void sh_journal_chunk_begin(struct sh_journal *journal);
/* Takes a batch that was read, to be written once more before all others. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_journal_chunk_again(struct sh_journal *journal,
                                                      struct sh_bytes records);
/* The first chunk has been synced. */
void sh_journal_chunk_end(struct sh_journal *journal);

/* journal_stream.c: with a function that does nothing in each place where there is none. */
struct sh_journal_stream sh_journal_stream_whole(struct sh_journal_stream stream);

/* journal_op.c */
void sh_journal_op_begin(struct sh_journal *journal, struct sh_journal_op *op,
                         enum sh_disk_kind kind, int file, uint64_t offset, struct sh_bytes bytes);
/* Whether it has ended, with *err_out; false also if none is under way. */
bool sh_journal_op_end(struct sh_journal *journal, struct sh_journal_op *op,
                       enum shoal_err *err_out);
/* Waits until it has ended, or never will as the disk is gone. */
void sh_journal_op_await(struct sh_journal *journal, struct sh_journal_op *op);

/* journal_spare.c */
/* Carries the making of the next file on; returns how much was done. */
unsigned sh_journal_spare_step(struct sh_journal *journal, uint64_t now_ns);
uint64_t sh_journal_spare_due_ns(const struct sh_journal *journal, uint64_t now_ns);
/* Makes it the file that is written; false: not yet. */
bool sh_journal_spare_take(struct sh_journal *journal);
void sh_journal_spare_close(struct sh_journal *journal);
/* Removes the file of a slot, if it can be. */
void sh_journal_slot_remove(struct sh_journal *journal, unsigned slot);
/* Gives free what the newest header does not call needed. */
void sh_journal_slots_release(struct sh_journal *journal);
/* Removes a free file, if all together take too much; whether there was one. */
bool sh_journal_slots_trim(struct sh_journal *journal);

/* journal_write.c: what is due to be written, and the step. */

/* journal_files.c */
void sh_journal_name(char name[SH_JOURNAL_NAME_BYTES], unsigned slot);
uint32_t sh_journal_crc(const uint8_t *bytes, size_t size, size_t crc_at);
static inline uint64_t sh_journal_padded(uint64_t size)
{
    return (size + SH_JOURNAL_BLOCK - 1) / SH_JOURNAL_BLOCK * SH_JOURNAL_BLOCK;
}
/* Reads the file of a slot as a whole, or its first bytes; *bytes_out is the caller's. ENONAME,
 * EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_journal_read(struct sh_disk *disk, unsigned slot,
                                               size_t bytes_max, uint8_t **bytes_out,
                                               size_t *size_out);
/* Whether a file begins with a good header, and what it says. */
struct sh_journal_header {
    uint64_t journal, number, needed, first;
    struct sh_bytes label;
};
/* OK, ECORRUPT, EVERSION. */
SHOAL_NODISCARD enum shoal_err sh_journal_header_get(struct sh_bytes file,
                                                     struct sh_journal_header *header_out);
void sh_journal_header_put(uint8_t block[SH_JOURNAL_BLOCK], const struct sh_journal *journal);
/* The good batch at that place of a file, of that journal or (0) of any; false: there is none. */
struct sh_journal_batch {
    uint64_t number;
    struct sh_bytes records;
};
bool sh_journal_batch_get(struct sh_bytes file, size_t at, uint64_t journal,
                          struct sh_journal_batch *batch_out);
/* Whether a file has a good batch with that number or a higher one. */
bool sh_journal_has_batches(struct sh_bytes file, uint64_t journal, uint64_t from);
/* The first batch that tells that a journal was there. Header and batch 1 of a new one are written
 * together, so either may be torn, and nobody has been told of them. */
#define SH_JOURNAL_TOLD 2

/* journal_load.c. Reads all segments and feeds the streams. */
SHOAL_NODISCARD enum shoal_err sh_journal_load(struct sh_journal *journal);

/* journal_save.c. Begins and carries on snapshots while the segments take too much, and gives free
 * those that nobody needs. */
void sh_journal_save_step(struct sh_journal *journal, uint64_t now_ns);
uint64_t sh_journal_save_due_ns(const struct sh_journal *journal);
/* Whether all snapshots are young, so that a new segment would let old ones go that take too much.
 */
bool sh_journal_save_is_over(const struct sh_journal *journal);
void sh_journal_save_give_up(struct sh_journal *journal);
/* The lowest segment that a stream, or the writer, needs. */
uint64_t sh_journal_needed(const struct sh_journal *journal);
/* bytes_kept, and twice the bytes of all last snapshots. */
uint64_t sh_journal_allowed(const struct sh_journal *journal);
/* Finishes a removal that was cut off. */
void sh_journal_removal_finish(const struct sh_env *env);

#endif
