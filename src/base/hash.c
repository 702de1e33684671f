#include "base/hash.h"

#include <isa-l/crc.h>
#include <limits.h>
#include <xxhash.h>

#include "base/assert.h"

uint32_t sh_crc32c(uint32_t start, struct sh_bytes bytes)
{
    SH_ASSERT(bytes.at != NULL || bytes.size == 0);
    /* ISA-L takes an int for the length and neither inverts the value before nor after. */
    uint32_t crc = ~start;
    while (bytes.size > 0) {
        size_t part = bytes.size < INT_MAX ? bytes.size : INT_MAX;
        crc = crc32_iscsi((unsigned char *)(uintptr_t)bytes.at, (int)part, crc);
        bytes.at += part;
        bytes.size -= part;
    }
    return ~crc;
}

uint64_t sh_hash64(struct sh_bytes bytes, uint64_t seed)
{
    SH_ASSERT(bytes.at != NULL || bytes.size == 0);
    return XXH3_64bits_withSeed(bytes.at, bytes.size, seed);
}
