/* Pieces of a version log with any tuples and a right checksum, as no writer makes them. */
#ifndef SH_LOG_VERSION_LOG_TEST_H
#define SH_LOG_VERSION_LOG_TEST_H

#include "base/hash.h"
#include "log/version_log.h"

#define PIECE_ZONE UINT64_C(0x0102030405060708)

/* Writes the header of a piece into the first SH_VERSION_LOG_HEAD bytes, for the tuples that stand behind it. */
static inline struct sh_bytes piece_sealed(uint8_t *into, uint16_t format, uint16_t flags,
                                           size_t tuples)
{
    struct sh_writer w = sh_writer_make(into, SH_VERSION_LOG_HEAD);
    sh_put_raw(&w, sh_bytes_text("SHVL"));
    sh_put16(&w, format);
    sh_put16(&w, flags);
    sh_put64(&w, PIECE_ZONE);
    sh_put64(&w, 77);
    sh_put32(&w, 5);
    sh_put32(&w, (uint32_t)tuples);
    uint32_t sum = sh_crc32c(0, sh_bytes_make(into, 32));
    sh_put32(&w, sh_crc32c(sum, sh_bytes_make(into + SH_VERSION_LOG_HEAD, tuples)));
    return sh_bytes_make(into, SH_VERSION_LOG_HEAD + tuples);
}

#endif
