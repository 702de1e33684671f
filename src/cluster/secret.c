#include "cluster/secret.h"

#include <errno.h>
#include <stdio.h>

enum shoal_err sh_secret_read(const char *path, struct sh_secret *secret_out, char *detail)
{
    secret_out->size = 0;
    if (path[0] == '\0')
        return SHOAL_OK;
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(detail, 256, "secret_file %s: %s", path, strerror(errno));
        return SHOAL_EIO;
    }
    size_t size = fread(secret_out->bytes, 1, sizeof secret_out->bytes, file);
    bool is_longer = size == sizeof secret_out->bytes && fgetc(file) != EOF;
    bool has_failed = ferror(file);
    fclose(file);
    if (has_failed) {
        snprintf(detail, 256, "secret_file %s can't be read", path);
        return SHOAL_EIO;
    }
    if (size < SH_SECRET_BYTES_MIN || is_longer) {
        snprintf(detail, 256, "secret_file %s must hold %d to %d bytes", path, SH_SECRET_BYTES_MIN,
                 SH_SECRET_BYTES_MAX);
        return SHOAL_ERANGE;
    }
    secret_out->size = size;
    return SHOAL_OK;
}
