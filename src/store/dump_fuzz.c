/* Hostile dump files. What is refused leaves the store empty; what is loaded adds up.
 *
 * The first byte says whether checksums are set right before the load, or the input is taken as it
 * is; checksums keep most damage out, and what gets past them is what is looked for. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "store/dump_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STORE_BYTES_MAX (UINT64_C(2) << 20)

static void header_mend(uint8_t *at)
{
    sh_store32(at + SH_SECTION_CRC_AT, sh_crc32c(0, sh_bytes_make(at, SH_SECTION_CRC_AT)));
}

static void checksums_mend(uint8_t *bytes, size_t size)
{
    size_t at = SH_DUMP_HEADER_BYTES;
    if (size < at)
        return;
    header_mend(bytes);
    while (size - at >= SH_SECTION_HEADER_BYTES) {
        uint32_t payload = sh_load32(bytes + at + 16);
        size_t left = size - at - SH_SECTION_HEADER_BYTES;
        if (payload <= left) {
            const uint8_t *from = bytes + at + SH_SECTION_HEADER_BYTES;
            sh_store32(bytes + at + 24, sh_crc32c(0, sh_bytes_make(from, payload)));
        }
        header_mend(bytes + at);
        if (payload > left)
            return;
        at += SH_SECTION_HEADER_BYTES + payload;
    }
}

static enum shoal_err memory_read(void *arg, uint64_t offset, void *into, size_t size,
                                  size_t *got_out)
{
    memcpy(into, (const uint8_t *)arg + offset, size);
    *got_out = size;
    return SHOAL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {.bytes_max = STORE_BYTES_MAX, .chunk_bytes_max = 65536};
    const char *bad;
    size_t bad_size;
    if (size < 1 || sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK ||
        sh_store_create(&config, &store) != SHOAL_OK)
        return 0;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        abort();
    memcpy(bytes, data + 1, size - 1);
    if (data[0] & 1)
        checksums_mend(bytes, size - 1);
    struct sh_load_source source = {memory_read, bytes, size - 1};
    struct sh_dump_sums sums;
    struct sh_load_fault fault = {0, {0}, NULL};
    enum shoal_err err = sh_store_load_from(store, &source, NULL, NULL, &sums, &fault);
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    bool refused = err == SHOAL_ECORRUPT || err == SHOAL_ETRUNCATED || err == SHOAL_EVERSION;
    if (status.chunks != sums.chunks || status.payload_bytes != sums.payload_bytes ||
        (refused && sums.chunks > 0) || (err && !fault.what))
        abort();
    sh_store_destroy(store);
    free(bytes);
    return 0;
}
