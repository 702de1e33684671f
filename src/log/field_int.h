/* Fields of 0 to 8 bytes, little-endian, as headers of entries and tuples of version logs have them: a number takes as many
 * bytes as it needs, and what comes before it says how many. Pure functions; any thread. */
#ifndef SH_LOG_FIELD_INT_H
#define SH_LOG_FIELD_INT_H

#include "base/bytes.h"

/* How many bytes a number needs; 0 needs none. */
static inline unsigned sh_field_bytes(uint64_t value)
{
    return value ? (71 - (unsigned)__builtin_clzll(value)) / 8 : 0;
}

/* Writes the number's low bytes; returns where the next field goes. */
static inline uint8_t *sh_field_put(uint8_t *at, uint64_t value, unsigned bytes)
{
    uint8_t whole[8];
    sh_store64(whole, value);
    memcpy(at, whole, bytes);
    return at + bytes;
}

/* 0 where the reader is short of bytes, and then bad. */
static inline uint64_t sh_field_get(struct sh_reader *r, unsigned bytes)
{
    uint8_t whole[8] = {0};
    const uint8_t *at = sh_reader_take(r, bytes);
    if (at)
        memcpy(whole, at, bytes);
    return sh_load64(whole);
}

#endif
