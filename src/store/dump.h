/* A store's chunks in a file, and back.
 *
 * The file (version 1; all little-endian, records one after the other, no padding):
 *
 *   header    0 "shoaldmp"  8 version: 2  10 zero: 18  28 CRC32C of 0 to 27: 4
 *   section   0 "shsc"  4 kind: 2  6 zero: 2  8 index, from 0: 8  16 payload bytes: 4
 *             20 records: 4  24 CRC32C of the payload: 4  28 CRC32C of 0 to 27: 4
 *             32 payload, up to 1 MiB
 *
 *   kind 1, chunks: records of [chunk ID: 8][count: 4] and, for that ID and those that follow it,
 *           [size: 4][bytes]
 *   kind 2, a piece of a chunk that is too long for that: [chunk ID: 8][size: 4][offset: 4][bytes];
 *           one record; the pieces of a chunk follow each other
 *   kind 3, the end: [chunks: 8][payload bytes: 8][sections before this one: 8]; one record
 *
 * Writing and reading are steps that do a bounded amount of work and wait for nothing, so that a
 * node goes on serving; sh_store_dump and sh_store_load are loops over them, for programs and
 * tests.
 *
 *   sh_dump_begin -> sh_dump_step ... until the state says that it is over -> sh_dump_end
 *   sh_load_begin -> sh_load_step ... until the state says that it is over -> sh_load_end
 *
 * Threads: a dump or load belongs to the thread of its disk. Other threads use the store meanwhile.
 */
#ifndef SH_STORE_DUMP_H
#define SH_STORE_DUMP_H

#include "env/disk.h"
#include "store/store.h"

/* Bytes of a file's name, at most. */
#define SH_DUMP_NAME_BYTES_MAX 200

/* What a file holds, or what has been done of it. */
struct sh_dump_sums {
    uint64_t chunks;
    uint64_t payload_bytes;
    uint64_t sections; /* without the end */
    uint64_t file_bytes;
};

/* Where, and what, is wrong with a file. */
struct sh_load_fault {
    uint64_t offset;  /* of the section, from the file's start */
    shoal_cid cid;    /* of the chunk that could not be created; 0: it is not about one */
    const char *what; /* a static text; "" when the disk failed */
};

enum sh_dump_phase {
    SH_DUMP_WRITING, /* a dump */
    SH_LOAD_CHECKING,
    SH_LOAD_CREATING,
    SH_LOAD_UNDOING, /* it failed or was canceled: what it created is removed again */
};

/* How far a dump or load is. done and all: of a dump bytes of chunks, of those that the store held
 * when it began; of a load bytes of both passes over the file. */
struct sh_dump_state {
    bool is_over;
    enum shoal_err err; /* once it is over */
    enum sh_dump_phase phase;
    uint64_t done_bytes;
    uint64_t all_bytes;
    /* Of a load that failed: chunks and payload that could not be removed again; else zeros. */
    struct sh_dump_sums sums;
    struct sh_load_fault fault; /* of a load */
};

struct sh_dump_config {
    struct sh_store *store; /* kept until the end */
    struct sh_disk *disk;   /* kept until the end */
    const char *name;       /* of the file; borrowed */
    /* The node ID under which the store's own chunks stand in the file. NONE: the store's. Where a
     * store has none (its own chunks have local IDs then) it stands for one. A load that is given
     * one refuses chunks of other creators (EINVAL, before anything has changed). */
    shoal_nid own;
    /* A load that is given `own`: the chunks may have been created by another node, by one alone,
     * and `own` takes its place in their IDs. IDs that chunks hold in their bytes stay. */
    bool rename;
    /* A load: whether a chunk, by the ID that it would have, is elsewhere, so that it can't be loaded
     * (EEXIST). NULL: none is. The thread that steps; arg is kept until the end. */
    bool (*is_elsewhere)(void *arg, shoal_cid cid);
    void *arg;
};

/* --- Dump ---------------------------------------------------------------------------------- */

struct sh_dump;

/* Begins to write all chunks into the file, under name.tmp first, which takes the name's place when
 * all of it is on the disk; until then, and after an error, a file of that name stays what it was.
 * Each chunk is whole, as it was at some moment before the end; who needs one moment for all keeps
 * writers away. EINVAL for a name that is empty, too long, has a slash or ends in ".tmp"; EBUSY:
 * another dump, of any process, is writing that file; ENOMEM, EIO, ENOSPC. */
SHOAL_NODISCARD enum shoal_err sh_dump_begin(const struct sh_dump_config *config,
                                             struct sh_dump **dump_out);

/* Goes on: copies about budget_bytes of chunks (each counts 64 more), or waits for the disk, which
 * it polls. A chunk is copied in one go, however long it is, since only so all of it is of one
 * moment. Returns how many bytes it did; 0: it waits for the disk, or is over. */
unsigned sh_dump_step(struct sh_dump *dump, unsigned budget_bytes);

struct sh_dump_state sh_dump_state_get(const struct sh_dump *dump);

/* Makes it end with ECANCELED, in a later step, and leave nothing; too late once the file has its
 * name. */
void sh_dump_cancel(struct sh_dump *dump);

/* Frees it. One that is not over leaves nothing; where the disk is at work for it, this waits. NULL
 * is allowed. */
void sh_dump_end(struct sh_dump *dump);

/* --- Load ---------------------------------------------------------------------------------- */

struct sh_load;

/* Begins to read the file twice. The first pass only checks: ECORRUPT, ETRUNCATED and EVERSION, and
 * EEXIST (one of its IDs is in use), ETOOBIG, EFULL and EINVAL (another creator's chunk) as far as
 * they can be told before, end it with nothing changed. The second creates the chunks under the IDs
 * that they had (sh_store_adopt). What fails then, because others create chunks meanwhile or the
 * disk fails, is undone: a third pass removes what was created, but nothing that others have
 * created since: until the end, the ID of a chunk that somebody removed is handed out to nobody. (A
 * chunk of another creator has no ID of this store's, so only its owner can bring that chunk here
 * again, by migration, and undoing would remove it. Nodes load none: `own`.) Chunks that others
 * have pinned, and all of them where the disk fails again, stay (sums). Where the store's witness has
 * no room, a step ends before the chunk, which the next one tries again. The load has up to an
 * eighth of a byte for each ID from the smallest to the largest, beside the store's memory.
 *
 * Here ENONAME when there is no such file; EINVAL for a name that is none; ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_load_begin(const struct sh_dump_config *config,
                                             struct sh_load **load_out);
/* As sh_dump_step. A section of at most 1 MiB is checked in one go. */
unsigned sh_load_step(struct sh_load *load, unsigned budget_bytes);
struct sh_dump_state sh_load_state_get(const struct sh_load *load);
/* Makes it end with ECANCELED, once what it created is removed again. */
void sh_load_cancel(struct sh_load *load);
/* Frees it. One that is not over leaves what it has created. NULL is allowed. */
void sh_load_end(struct sh_load *load);

/* --- In one call --------------------------------------------------------------------------- */

/* Called now and then with what is done and what there is in all. NULL: nobody is told. */
typedef void (*sh_dump_progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);

/* These block for the disk's sake and belong to programs and tests, not into a step. They use the
 * disk from the calling thread. Errors as above. */
SHOAL_NODISCARD enum shoal_err sh_store_dump(struct sh_store *store, struct sh_disk *disk,
                                             const char *name, sh_dump_progress progress, void *arg,
                                             struct sh_dump_sums *sums_out);
/* Chunks of all creators. sums_out is written on errors too; fault_out may be NULL. */
SHOAL_NODISCARD enum shoal_err sh_store_load(struct sh_store *store, struct sh_disk *disk,
                                             const char *name, sh_dump_progress progress, void *arg,
                                             struct sh_dump_sums *sums_out,
                                             struct sh_load_fault *fault_out);

/* The same from anywhere: read copies up to size bytes from offset on and says how many there were.
 */
struct sh_load_source {
    enum shoal_err (*read)(void *arg, uint64_t offset, void *into, size_t size, size_t *got_out);
    void *arg;
    uint64_t bytes;
};
SHOAL_NODISCARD enum shoal_err sh_store_load_from(struct sh_store *store,
                                                  const struct sh_load_source *source,
                                                  sh_dump_progress progress, void *arg,
                                                  struct sh_dump_sums *sums_out,
                                                  struct sh_load_fault *fault_out);

#endif
