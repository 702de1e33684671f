/* The file of a cluster's metadata, which `shoal metadata save` writes and `restore` reads.
 *
 *   0   u64  magic "SHOALMET"
 *   8   u16  format (1)
 *   10  u16  number of nodes
 *   12  u32  zero
 *   16  text name of the cluster, and the nodes: u16 ID, u8 role, u8 state, text address
 *       pieces of the shards' snapshots (metadata/snapshot.h), each u32 size, u8 shard, bytes; each
 *            shard's in order
 *       u32  zero
 *       u32  CRC32C of all before
 *
 * Little-endian. The nodes are for people: which peer had which ID. */
#ifndef SH_CMD_METADATA_FILE_INT_H
#define SH_CMD_METADATA_FILE_INT_H

#include <stdio.h>

#include "base/bytes.h"
#include "metadata/snapshot.h"
#include "shoal/shoal.h"

struct sh_metadata_writer {
    FILE *file;
    const char *path;
    char *temporary;
    uint32_t crc;
};

/* Begins a file that takes the place of the one at path (kept) once it is whole. EIO, ENOSPC,
 * ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_file_begin(struct sh_metadata_writer *writer,
                                                      const char *path, const char *cluster,
                                                      const struct shoal_node *nodes, size_t count);
/* Adds a shard: pieces, each behind its u32 size. */
SHOAL_NODISCARD enum shoal_err sh_metadata_file_shard(struct sh_metadata_writer *writer,
                                                      unsigned shard, struct sh_bytes pieces);
/* Ends it: on the disk, and at its path; or removes it, if !is_whole or with an error. */
SHOAL_NODISCARD enum shoal_err sh_metadata_file_end(struct sh_metadata_writer *writer,
                                                    bool is_whole);

struct sh_metadata_saved {
    char cluster[64];
    struct shoal_node *nodes;
    size_t count;
    struct sh_metadata *metadata; /* all shards, as they were */
};

/* Reads a whole file and checks it. ENONAME: there is none. EPARSE: not such a file. EVERSION.
 * ETRUNCATED, ECORRUPT. EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_file_read(const char *path,
                                                     struct sh_metadata_saved *saved_out);
/* The same of a file's bytes. EPARSE, EVERSION, ETRUNCATED, ECORRUPT, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_file_parse(struct sh_bytes bytes,
                                                      struct sh_metadata_saved *saved_out);
void sh_metadata_saved_free(struct sh_metadata_saved *saved);

#endif
