/* What the chunk commands share. */
#ifndef SH_CMD_CHUNK_INT_H
#define SH_CMD_CHUNK_INT_H

#include "cmd/command_int.h"

/* A call about a chunk failed: prints its ID with the error. The exit status. */
int sh_chunk_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_cid cid);
/* A word is no chunk ID. The exit status. */
int sh_chunk_usage(struct sh_cmd *cmd, const char *word);
/* Prints {"cid", "size"}. SH_EXIT_OK. */
int sh_chunk_size_answer(struct sh_cmd *cmd, shoal_cid cid, uint64_t size);

/* Content that a command is given. */
#define SH_CONTENT_MAX (UINT64_C(1) << 30) /* no chunk is larger */
struct sh_content {
    uint8_t *bytes; /* allocated; NULL: none was given */
    size_t size;
};
/* Reads the content that the flags name, or the standard input for the word "-" (`standard`). The
 * exit status; on failure no content is left. */
int sh_content_read(struct sh_cmd *cmd, bool standard, struct sh_content *content_out);

/* Reads a whole chunk of any size; *bytes_out is allocated and never NULL. Errors of shoal_get,
 * ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_chunk_read(shoal *store, shoal_cid cid, uint8_t **bytes_out,
                                             uint32_t *size_out);

#endif
