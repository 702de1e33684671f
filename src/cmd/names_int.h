/* What the commands on names, barriers and scratch share. */
#ifndef SH_CMD_NAMES_INT_H
#define SH_CMD_NAMES_INT_H

#include "base/bytes.h"
#include "cmd/command_int.h"
#include "shoal/names.h"

/* Prints an error with the library's detail, or else with a word. The exit status. */
int sh_names_fail(struct sh_cmd *cmd, enum shoal_err err, const char *word);
/* --within as nanoseconds; UINT64_MAX when it is not given. The exit status. */
int sh_names_within(struct sh_cmd *cmd, uint64_t *ns_out);
/* Content of at most `most` bytes, from the flags or for "-" the standard input; may be none. On
 * success *bytes_out is to be freed. The exit status. */
int sh_names_content(struct sh_cmd *cmd, size_t most, uint8_t **bytes_out, uint32_t *size_out);
/* Sets "hex", and "text" where the bytes are text. */
void sh_names_json_bytes(struct sh_json *object, struct sh_bytes bytes);

#endif
