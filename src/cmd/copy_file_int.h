/* A file of a safety copy (docs/safety-copy.md): a peer's chunks as they were at one moment, or the names.
 *
 * Little-endian, blocks one behind the other:
 *
 *   header  0 "shoalcpy"  8 version: 2 (1)  10 kind: 2 (enum sh_copy_kind)  12 node: 2 (0: names)  14 zero: 2  16 copy: 8, drawn for all files of
 *           one  24 ordinal: 8, rises with the moments  32 seconds: 8, when it began (Unix)  40 instance: 8, of the peer's process
 *           48 arrivals: 8, at the peer when it began  56 cluster's name: 64, zeros behind it  120 zero: 4  124 CRC32C of 0 to 123
 *   block   0 "shcb"  4 zero: 4  8 index, from 0: 8  16 payload bytes: 4, up to 256 KiB  20 kind: 4 (1 what the file has, 2 the end)
 *           24 CRC32C of the payload: 4  28 CRC32C of 0 to 27: 4  32 payload
 *
 *   what a file of chunks has: records of store/cut.h; of names: [chunk ID: 8][bytes: 1][name]. A record is in one block; the pieces of a
 *   large chunk follow each other, also from block to block.
 *   the end: [records, a chunk's pieces being one: 8][payload bytes of chunks, or of names: 8][blocks before this one: 8] */
#ifndef SH_CMD_COPY_FILE_INT_H
#define SH_CMD_COPY_FILE_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"
#include "proto/saves.h"
#include "shoal/shoal.h"

#define SH_COPY_CLUSTER_MAX 64
#define SH_COPY_PATH_MAX 4096

enum sh_copy_kind { SH_COPY_CHUNKS = 1, SH_COPY_NAMES = 2 };

struct sh_copy_head {
    enum sh_copy_kind kind;
    shoal_nid node;
    uint64_t copy, ordinal, seconds, instance, arrivals;
    char cluster[SH_COPY_CLUSTER_MAX];
};

struct sh_copy_sums {
    uint64_t records, payload_bytes, blocks;
    uint64_t file_bytes;
};

/* --- Writing ----------------------------------------------------------------------------------- */

/* A file on its way: PATH.part, which takes the place of PATH once it is whole. */
struct sh_copy_writer {
    FILE *file;
    char path[SH_COPY_PATH_MAX], part[SH_COPY_PATH_MAX];
    uint64_t blocks, file_bytes;
};

/* EIO, ENOSPC; EINVAL: the path is too long. After an error there is nothing to end. */
SHOAL_NODISCARD enum shoal_err sh_copy_write_begin(struct sh_copy_writer *writer, const char *path,
                                                   const struct sh_copy_head *head);
/* Adds a block. EIO, ENOSPC. */
SHOAL_NODISCARD enum shoal_err sh_copy_write(struct sh_copy_writer *writer,
                                             struct sh_bytes payload);
/* Ends it: on the disk, with its name (the folder's sync is the caller's). records and payload_bytes: of all of it. After an error nothing is left. */
SHOAL_NODISCARD enum shoal_err sh_copy_write_end(struct sh_copy_writer *writer, uint64_t records,
                                                 uint64_t payload_bytes);
void sh_copy_write_drop(struct sh_copy_writer *writer);
/* What errno says of a file. */
SHOAL_NODISCARD enum shoal_err sh_copy_file_err(void);

/* --- Reading ----------------------------------------------------------------------------------- */

struct sh_copy_reader {
    FILE *file;
    struct sh_copy_head head;
    struct sh_copy_sums sums; /* so far; with the end, all */
    uint64_t offset;          /* of the block that was read last, or is wrong */
    const char *fault;        /* what is wrong, a static text; "" where the disk failed */
    /* The reader's. */
    uint8_t *bytes;
    shoal_cid open; /* a chunk whose pieces have not all come, */
    uint32_t open_size, open_at;
};

/* Reads and checks the header. ENONAME: there is no such file. EPARSE: none of a safety copy. EVERSION, ETRUNCATED, ECORRUPT; EIO, ENOMEM.
 * After an error there is nothing to end, but `offset` and `fault` say more. */
SHOAL_NODISCARD enum shoal_err sh_copy_read_begin(struct sh_copy_reader *reader, const char *path);
/* The same from a file that is open, which is taken. */
SHOAL_NODISCARD enum shoal_err sh_copy_read_from(struct sh_copy_reader *reader, FILE *file);
/* Reads and checks the next block: *payload_out is valid until the next call, and right through and through: its records need no more checks. Of
 * no bytes: that was the end, and all of the file is whole. ETRUNCATED, ECORRUPT, EIO. */
SHOAL_NODISCARD enum shoal_err sh_copy_read(struct sh_copy_reader *reader,
                                            struct sh_bytes *payload_out);
void sh_copy_read_end(struct sh_copy_reader *reader);

/* The next record of a block of names. False: there is none, or the reader has turned bad. */
bool sh_copy_name_get(struct sh_reader *r, shoal_cid *cid_out, struct sh_bytes *name_out);

#endif
