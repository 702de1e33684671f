/* The folder of a safety copy: who works in it, whose copy it is, and once it is complete, what it has.
 *
 *   begun.json      written first: the cluster, the number of the copy
 *   names.copy      the names, before all chunks
 *   node-N.copy     chunks of peer N (copy_file_int.h)
 *   manifest.json   written last: the copy is complete, and these are its files
 *
 * Each file is NAME.part until it is whole and on the disk. */
#ifndef SH_CMD_COPY_FOLDER_INT_H
#define SH_CMD_COPY_FOLDER_INT_H

#include "cmd/copy_file_int.h"

#define SH_COPY_NAME_MAX 32

/* A file of chunks, as the manifest and the file itself say. */
struct sh_copy_piece {
    shoal_nid node;
    uint64_t ordinal, chunks, payload_bytes, file_bytes;
    uint64_t instance, arrivals; /* of the file; the manifest has them not */
};

struct sh_copy_manifest {
    char cluster[SH_COPY_CLUSTER_MAX];
    uint64_t copy, begun, ended; /* seconds (Unix) */
    uint64_t names;
    size_t count;
    struct sh_copy_piece *pieces; /* by ordinal */
};

struct sh_copy_folder {
    const char *path; /* kept */
    int fd;           /* locked: nobody else works in it; -1: not open */
    bool has_begun, is_complete;
    /* Of begun.json; of manifest.json the rest. */
    struct sh_copy_manifest manifest;
    char fault[256]; /* for people, after an error */
};

/* Opens and locks a folder, which is made where `is_new` and there is none, and reads what is there. EEXIST: it is not empty, and has no safety
 * copy. EBUSY: another program works in it. ENONAME: there is none, or nothing of a safety copy in it. EPARSE, ECORRUPT: a file of it can't be
 * read. EIO, ENOMEM, ENOSPC. fault says more; sh_copy_folder_close is due after an error, too. */
SHOAL_NODISCARD enum shoal_err sh_copy_folder_open(struct sh_copy_folder *folder, const char *path,
                                                   bool is_new);
/* Writes begun.json. copy: below 2^63, as numbers in JSON are. */
SHOAL_NODISCARD enum shoal_err sh_copy_folder_begin(struct sh_copy_folder *folder,
                                                    const char *cluster, uint64_t copy);
/* Writes manifest.json, of what is in folder->manifest. All that it names is on the disk then. */
SHOAL_NODISCARD enum shoal_err sh_copy_folder_complete(struct sh_copy_folder *folder);
/* Has names of files reach the disk. */
SHOAL_NODISCARD enum shoal_err sh_copy_folder_sync(struct sh_copy_folder *folder);
void sh_copy_folder_close(struct sh_copy_folder *folder);

/* Adds a piece, in the place of one of the same node. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_copy_piece_set(struct sh_copy_manifest *manifest,
                                                 const struct sh_copy_piece *piece);
/* The chunks of all pieces, their bytes, and those of the files. */
struct sh_copy_totals {
    uint64_t chunks, payload_bytes, file_bytes;
};
struct sh_copy_totals sh_copy_totals(const struct sh_copy_manifest *manifest);
const struct sh_copy_piece *sh_copy_piece_find(const struct sh_copy_manifest *manifest,
                                               shoal_nid node);

/* The path of a node's file; of the names for NONE. */
void sh_copy_path(const struct sh_copy_folder *folder, shoal_nid node,
                  char path_out[SH_COPY_PATH_MAX]);

/* Reads manifest.json's text; allocates its pieces. EPARSE: it is none; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_copy_manifest_parse(struct sh_bytes text,
                                                      struct sh_copy_manifest *manifest_out);

#endif
