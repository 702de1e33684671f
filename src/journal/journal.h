/* The journal: one log on one disk for all replicated state machines of a superpeer (Raft's
 * registry and the shards of the ring), or for the names of a store in a process, with group commit,
 * and snapshots that are written beside new entries.
 *
 *   append, state_set --> [chunk] --write and sync, one at a time--> segment files
 *          '---> LSN                            '---> synced(journal) >= LSN: durable
 *
 * A *stream* is one state machine's log: a small *state* (a term and a vote, say), entries by index
 * and term, and a snapshot. The records of all streams share the segments, in the order of the
 * calls. On disk a stream is described by everything from the beginning of its last complete
 * snapshot on:
 *
 *   ... BEGIN, STATE, pieces and entries mixed, END, entries, states, ...
 *
 * so a segment can go when no stream's last complete snapshot begins in it or before it. While the
 * segments take more than bytes_kept + twice the bytes of all last snapshots, the journal asks the
 * stream whose snapshot begins first for a new one, and writes that in pieces, some 32 KiB in each
 * batch, so that no update waits for a snapshot.
 *
 * Entries are kept in memory by their state machines (entries.h); the journal keeps only what is
 * not synced yet, and each stream's state.
 *
 * A disk that fails: a write or sync that failed is never tried again on the same file. The journal
 * goes to a new segment, which begins with the batch that failed, and so takes the place of what
 * lies behind it in the old one; while no segment can be written it tries again every second,
 * synced does not advance, and sh_journal_trouble says why.
 *
 * Damage: the last batch may be torn, since nobody was told that it is there; it is dropped. A
 * batch that can't be read with a good one behind it, or a segment that is missing, is ECORRUPT.
 *
 * Memory: 32 chunks of 256 KiB for what is not synced, and more where a caller appends although
 * sh_journal_is_full. Files: bytes_kept, twice the bytes of all last snapshots, and two segments,
 * but for what is appended faster than a snapshot is taken.
 * Threads: one at a time. Nothing here blocks but open, close, peek and remove. */
#ifndef SH_JOURNAL_JOURNAL_H
#define SH_JOURNAL_JOURNAL_H

#include "base/bytes.h"
#include "env/env.h"
#include "journal/entries.h"
#include "shoal/err.h"

#define SH_JOURNAL_STREAMS_MAX 80
#define SH_JOURNAL_STATE_BYTES_MAX 128
#define SH_JOURNAL_LABEL_BYTES_MAX 128
#define SH_JOURNAL_PIECE_BYTES_MAX (64u << 10)
#define SH_JOURNAL_ENTRY_BYTES_MAX (64u << 10)

struct sh_journal;

/* A stream's state machine. load_* are called while the journal is opened, in the order of the
 * records, and their errors end the opening; snapshot_* within sh_journal_step, install_begin and
 * drop. None may call the journal, but for snapshot_entries. One that is NULL does nothing: what is
 * read is passed over, and a snapshot is of index 0 and empty. */
struct sh_journal_stream {
    enum shoal_err (*load_state)(void *arg, struct sh_bytes state);
    /* An entry, which takes the place of the one at that index and of all behind it. */
    enum shoal_err (*load_entry)(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes);
    /* A snapshot of the state after `index` begins. is_first: nothing of the stream was read
     * before, so its entries begin behind index. Another begin before the end: the one before was
     * never finished; neither may the last one be. */
    enum shoal_err (*load_snapshot_begin)(void *arg, uint64_t index, uint64_t term, bool is_first);
    enum shoal_err (*load_snapshot_piece)(void *arg, struct sh_bytes piece);
    /* The state is what the pieces say. is_reset: it came from elsewhere, the entries before this
     * are void, and the log goes on behind index; else entries up to index are in the state, and
     * later ones stay. */
    enum shoal_err (*load_snapshot_end)(void *arg, bool is_reset);
    /* The stream has been dropped: it is as if it had never been. */
    enum shoal_err (*load_drop)(void *arg);
    /* Begins a snapshot of the state as it is after the last apply, which later applies do not
     * change. False: not now; asked again later. */
    bool (*snapshot_begin)(void *arg, uint64_t *index_out, uint64_t *term_out);
    /* Appends the entries behind that index once more. */
    void (*snapshot_entries)(void *arg);
    /* Writes the next piece, at most room bytes; returns its size; 0: there is no more. */
    size_t (*snapshot_next)(void *arg, uint8_t *into, size_t room);
    /* The snapshot has been written (is_done), or was given up. */
    void (*snapshot_end)(void *arg, bool is_done);
    void *arg;
};

struct sh_journal_config {
    struct sh_env env;      /* kept: clock, random, disk (not one with O_DIRECT) */
    struct sh_bytes label;  /* borrowed: whose journal it is, 1 to SH_JOURNAL_LABEL_BYTES_MAX */
    uint64_t segment_bytes; /* of each file, a multiple of 4096, at least 16 KiB; 0: 8 MiB */
    uint64_t bytes_kept;    /* see above; 0: 32 MiB */
    uint32_t piece_bytes;   /* of snapshots, at most SH_JOURNAL_PIECE_BYTES_MAX; 0: that */
    const struct sh_journal_stream *streams; /* copied; by number */
    unsigned streams_count;
};

/* Reads what is stored and gives it to the streams; then the journal is ready, and a new segment is
 * on the disk. Waits for the disk. ECORRUPT (damaged, or not what a stream takes), ECLUSTER
 * (another label), EVERSION, EIO, ENOSPC, ENOMEM, or what a stream said. Each is logged with what
 * to do. */
SHOAL_NODISCARD enum shoal_err sh_journal_open(const struct sh_journal_config *config,
                                               struct sh_journal **journal_out);
/* Waits for what is in flight; what was not synced may be lost. Snapshots under way are given up.
 * NULL is allowed. */
void sh_journal_close(struct sh_journal *journal);
/* The label of the journal on a disk. ENONAME: there is none. ECORRUPT, EVERSION, EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_journal_peek(const struct sh_env *env, uint8_t *label_out,
                                               size_t room, size_t *size_out);
/* Removes the journal on a disk, if there is one; waits for the disk. Not while it is open. */
void sh_journal_remove(const struct sh_env *env);

/* Each copies its bytes and returns the LSN with which it is durable. */
sh_lsn sh_journal_state_set(struct sh_journal *journal, unsigned stream, struct sh_bytes state);
/* An entry takes the place of the one at that index and of all behind it. */
sh_lsn sh_journal_append(struct sh_journal *journal, unsigned stream, uint64_t index, uint64_t term,
                         uint8_t kind, struct sh_bytes bytes);
/* Takes a snapshot from elsewhere in the place of all entries of the stream: begin, pieces in
 * order, end. Until the end is durable all stays as it was. A begin before the end gives the
 * earlier one up, and so does cancel. A snapshot of the stream's own that is under way is given up.
 */
void sh_journal_install_begin(struct sh_journal *journal, unsigned stream, uint64_t index,
                              uint64_t term);
void sh_journal_install_piece(struct sh_journal *journal, unsigned stream, struct sh_bytes piece);
sh_lsn sh_journal_install_end(struct sh_journal *journal, unsigned stream);
void sh_journal_install_cancel(struct sh_journal *journal, unsigned stream);
sh_lsn sh_journal_drop(struct sh_journal *journal, unsigned stream);

/* The LSN of the last record: when it is synced, so is everything that was said so far. */
sh_lsn sh_journal_last(const struct sh_journal *journal);
/* Everything up to here is durable. */
sh_lsn sh_journal_synced(const struct sh_journal *journal);
/* Whether so much waits for the disk that callers should refuse more. */
bool sh_journal_is_full(const struct sh_journal *journal);

/* Carries writing on; returns how much was done. */
unsigned sh_journal_step(struct sh_journal *journal, uint64_t now_ns);
uint64_t sh_journal_due_ns(const struct sh_journal *journal, uint64_t now_ns);
/* The last error of the disk, until something was synced again. */
enum shoal_err sh_journal_trouble(const struct sh_journal *journal);
/* Bytes of all files; whether a snapshot is being written. For people and tests. */
uint64_t sh_journal_bytes(const struct sh_journal *journal);
bool sh_journal_is_saving(const struct sh_journal *journal);

/* What the journal has done since it was opened. For people and benchmarks. */
struct sh_journal_counts {
    uint64_t batches;        /* written and synced, one at a time */
    uint64_t bytes;          /* of the batches, with padding */
    uint64_t snapshots;      /* of its own that are whole; installed ones are not counted */
    uint64_t snapshot_bytes; /* of all their pieces, also of the one that is being written */
    uint64_t saving_ns;      /* while a snapshot was being written, also the one of now */
};
struct sh_journal_counts sh_journal_counts(const struct sh_journal *journal);

#endif
