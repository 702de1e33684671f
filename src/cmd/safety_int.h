/* What `shoal backup save`, `restore` and `verify` share. */
#ifndef SH_CMD_SAFETY_INT_H
#define SH_CMD_SAFETY_INT_H

#include "cmd/command_int.h"
#include "cmd/copy_folder_int.h"
#include "cmd/progress_int.h"

struct sh_safety_run {
    struct sh_cmd *cmd;
    struct sh_copy_folder folder;
    struct sh_progress progress;
    char detail[SH_COPY_PATH_MAX + 256]; /* for people, after an error */
    const char *hint;                    /* the same; NULL: the error's own */
};

/* Called with each block of a file. */
typedef enum shoal_err (*sh_safety_block)(void *arg, const struct sh_copy_reader *reader,
                                          struct sh_bytes payload);

/* Opens the folder. An exit status, after it has said why not. */
int sh_safety_open(struct sh_safety_run *run, struct sh_cmd *cmd, bool is_new);
/* Ends with an error, and says so; or with that status. */
int sh_safety_fail(struct sh_safety_run *run, enum shoal_err err);
int sh_safety_close(struct sh_safety_run *run, int status);

/* Notes for people what an error is about. Returns the error. */
enum shoal_err sh_safety_note(struct sh_safety_run *run, enum shoal_err err, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));
/* The same with what libshoal has said last of a node. */
enum shoal_err sh_safety_note_node(struct sh_safety_run *run, enum shoal_err err, shoal_nid node);

/* Reads and checks a whole file of the copy, a node's or, for NONE, of the names, and calls each (NULL: nobody) with its blocks. head_out and
 * sums_out may be NULL. ECANCELED: interrupted. */
SHOAL_NODISCARD enum shoal_err sh_safety_file_read(struct sh_safety_run *run, shoal_nid node,
                                                   const char *phase, sh_safety_block each,
                                                   void *arg, struct sh_copy_head *head_out,
                                                   struct sh_copy_sums *sums_out);
/* The same of a file that the manifest names: it must be what the manifest says (ECORRUPT). piece NULL: of the names. */
SHOAL_NODISCARD enum shoal_err sh_safety_piece_read(struct sh_safety_run *run,
                                                    const struct sh_copy_piece *piece,
                                                    const char *phase, sh_safety_block each,
                                                    void *arg);

/* --- Chunks whose creator is not there (safety_spread.c) ------------------------------------------ */

struct sh_safety_spread;

/* Opens the file of old and new IDs, and reads what an earlier restore has left. EPARSE, EIO, ENOSPC, ENOMEM; close is due after an error, too, if
 * *spread_out is set. */
SHOAL_NODISCARD enum shoal_err sh_safety_spread_open(struct sh_safety_run *run, const char *path,
                                                     struct sh_safety_spread **spread_out);
/* Makes a chunk under a new ID, or writes a piece of one. What is small may wait until flush. */
SHOAL_NODISCARD enum shoal_err sh_safety_spread_chunk(struct sh_safety_spread *spread,
                                                      const struct sh_cut_record *record);
SHOAL_NODISCARD enum shoal_err sh_safety_spread_flush(struct sh_safety_spread *spread);
/* All chunks have come: from here on find knows them. */
void sh_safety_spread_settle(struct sh_safety_spread *spread);
/* The chunk's new ID; its own where it has none, or spread is NULL. */
shoal_cid sh_safety_spread_find(const struct sh_safety_spread *spread, shoal_cid cid);
/* How many chunks have got new IDs, with those that had them before; 0 of NULL. */
uint64_t sh_safety_spread_count(const struct sh_safety_spread *spread);
void sh_safety_spread_close(struct sh_safety_spread *spread);

#endif
