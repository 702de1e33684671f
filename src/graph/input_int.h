/* A file's bytes, unpacked on the way if it is gzip or zstd: the only place that knows the
 * libraries. Blocking; one thread. */
#ifndef SH_GRAPH_INPUT_INT_H
#define SH_GRAPH_INPUT_INT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

struct sh_input;

/* Opens a file; detail (256 bytes) says what is wrong. EIO, ENOMEM, ECORRUPT, ETRUNCATED. */
SHOAL_NODISCARD enum shoal_err sh_input_open(const char *path, struct sh_input **input_out,
                                             char *detail);
/* Bytes in memory instead of a file; borrowed until close. */
SHOAL_NODISCARD enum shoal_err sh_input_open_bytes(struct sh_bytes bytes,
                                                   struct sh_input **input_out);
void sh_input_close(struct sh_input *input);

/* Reads at most room (not 0) unpacked bytes; *size_out is 0 only at the end. EIO; ECORRUPT;
 * ETRUNCATED: the compressed stream ends before its end. detail as above. */
SHOAL_NODISCARD enum shoal_err sh_input_read(struct sh_input *input, uint8_t *into, size_t room,
                                             size_t *size_out, char *detail);

uint64_t sh_input_bytes_done(const struct sh_input *input);
uint64_t sh_input_bytes_total(const struct sh_input *input);

#endif
