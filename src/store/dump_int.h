/* The file's numbers, and its one disk operation at a time, for those that write it and those that
 * read it (dump.h). */
#ifndef SH_STORE_DUMP_INT_H
#define SH_STORE_DUMP_INT_H

#include "store/dump.h"

#define SH_DUMP_MAGIC "shoaldmp"
#define SH_DUMP_VERSION 1
#define SH_DUMP_HEADER_BYTES 32
#define SH_SECTION_MAGIC "shsc"
#define SH_SECTION_HEADER_BYTES 32
#define SH_SECTION_CRC_AT 28 /* the checksum of what is before it, in both headers */
#define SH_SECTION_BYTES_MAX (UINT32_C(1) << 20)
#define SH_RUN_HEADER_BYTES 12
#define SH_PIECE_HEADER_BYTES 16
/* What is written has smaller sections than may be read: each is checked and handed to the disk in
 * one go, which takes about 0.1 ms of a step. */
#define SH_SECTION_BYTES_WRITTEN (UINT32_C(256) << 10)
/* What a chunk counts in a step's budget, besides its bytes: some cache misses. */
#define SH_DUMP_CHUNK_COST 64
#define SH_DUMP_GROUP_COST 16

enum sh_section_kind { SH_SECTION_CHUNKS = 1, SH_SECTION_PIECE, SH_SECTION_END };

/* One operation of the disk at a time. Zero-initialize, with the disk. */
struct sh_dump_io {
    struct sh_disk *disk;
    struct sh_disk_op op;
    bool is_wanted; /* to be submitted: the disk had too much in flight */
    bool is_flying;
};

/* Begins an operation; the one before must be settled. */
void sh_dump_io_begin(struct sh_dump_io *io, const struct sh_disk_op *op);
/* False: it is under way. True: it is over, or there was none, and *err_out is what became of it.
 * Polls the disk. */
bool sh_dump_io_settled(struct sh_dump_io *io, enum shoal_err *err_out);
/* Waits until it is over: for ends and blocking calls only. */
void sh_dump_io_wait(struct sh_dump_io *io);

static inline bool sh_dump_io_is_idle(const struct sh_dump_io *io)
{
    return !io->is_wanted && !io->is_flying;
}

/* Whether a file may have that name. */
bool sh_dump_name_is_good(const char *name);

#endif
