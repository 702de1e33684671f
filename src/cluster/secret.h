/* The cluster's secret, read from the file that the option secret_file names. */
#ifndef SH_CLUSTER_SECRET_H
#define SH_CLUSTER_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

#define SH_SECRET_BYTES_MIN 16
#define SH_SECRET_BYTES_MAX 4096

struct sh_secret {
    uint8_t bytes[SH_SECRET_BYTES_MAX];
    size_t size;
};

/* Reads the secret; an empty path gives an empty one. EIO: can't be read. ERANGE: too short or too
 * long. detail (256 bytes) says which and what to do. */
SHOAL_NODISCARD enum shoal_err sh_secret_read(const char *path, struct sh_secret *secret_out,
                                              char *detail);

static inline struct sh_bytes sh_secret_bytes(const struct sh_secret *secret)
{
    return sh_bytes_make(secret->bytes, secret->size);
}

#endif
