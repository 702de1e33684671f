/* A store's chunks in a file, and back.
 *
 * The file (version 1; all little-endian, records one after the other, no padding):
 *
 *   header    0 "shoaldmp"  8 version: 2  10 zero: 18  28 CRC32C of 0 to 27: 4
 *   section   0 "shsc"  4 kind: 2  6 zero: 2  8 index, from 0: 8  16 payload bytes: 4  20 records:
 * 4 24 CRC32C of the payload: 4  28 CRC32C of 0 to 27: 4  32 payload, up to 1 MiB
 *
 *   kind 1, chunks: records of [chunk ID: 8][count: 4] and, for that ID and those that follow it,
 *           [size: 4][bytes]
 *   kind 2, a piece of a chunk that is too long for that: [chunk ID: 8][size: 4][offset: 4][bytes];
 *           one record; the pieces of a chunk follow each other
 *   kind 3, the end: [chunks: 8][payload bytes: 8][sections before this one: 8]; one record
 *
 * All calls block for the disk's sake and belong to programs and tests, not into a step. They use
 * the disk from the calling thread. */
#ifndef SH_STORE_DUMP_H
#define SH_STORE_DUMP_H

#include "env/disk.h"
#include "store/store.h"

/* What a file holds, or what has been done of it. */
struct sh_dump_sums {
    uint64_t chunks;
    uint64_t payload_bytes;
    uint64_t sections; /* without the end */
    uint64_t file_bytes;
};

/* Called once for each section, with what is done and what there is in all (of a dump: what the
 * store held when it began; of a load: of both passes). NULL: nobody is told. */
typedef void (*sh_dump_progress)(void *arg, uint64_t done_bytes, uint64_t all_bytes);

/* Writes all chunks into the file `name` of the disk's folder, under name.tmp first, which takes
 * the name's place when all of it is on the disk; until then, and after an error, a file of that
 * name stays what it was. Other threads go on meanwhile: each chunk is whole, as it was at some
 * moment during the call; who needs one moment for all keeps writers away. ENOMEM, EIO, ENOSPC,
 * EINVAL for a name that is none or too long. */
SHOAL_NODISCARD enum shoal_err sh_store_dump(struct sh_store *store, struct sh_disk *disk,
                                             const char *name, sh_dump_progress progress, void *arg,
                                             struct sh_dump_sums *sums_out);

/* Where, and what, is wrong with a file. */
struct sh_load_fault {
    uint64_t offset;  /* of the section, from the file's start */
    shoal_cid cid;    /* of the chunk that could not be created; 0: it is not about one */
    const char *what; /* a static text; "" when the disk failed */
};

/* Reads the whole file once and checks it: ECORRUPT, ETRUNCATED and EVERSION leave the store as it
 * was. Then reads it again and creates its chunks under the IDs that they had (sh_store_adopt), so
 * they need not all be own ones. EEXIST, EFULL, ETOOBIG, EINVAL from there, or a disk that fails
 * now, leave what was created so far: sums_out, written on errors too, says how much. ENONAME when
 * there is no such file; ENOMEM, EIO. fault_out may be NULL. */
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
