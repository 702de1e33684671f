/* Any line as one that OpenSSL gives with a secret: what is accepted fits, and is what the line
 * says in hexadecimal digits. The first byte says whose. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "msg/tls_keys.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *line = malloc(size);
    if (!line)
        return 0;
    memcpy(line, data + 1, size - 1);
    line[size - 1] = 0;
    struct sh_tls_secret secret;
    memset(&secret, 0xa5, sizeof secret);
    if (sh_tls_secret_read(line, data[0] & 1, &secret)) {
        char digits[2 * sizeof secret.bytes + 1] = "";
        SH_ASSERT(secret.size > 0 && secret.size <= sizeof secret.bytes);
        for (size_t i = 0; i < secret.size; i++)
            (void)snprintf(digits + 2 * i, 3, "%02x", secret.bytes[i]);
        SH_ASSERT(strncmp(strrchr(line, ' ') + 1, digits, strlen(digits)) == 0);
    }
    free(line);
    return 0;
}
