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

struct sh_hash64 *sh_hash64_begin(uint64_t seed)
{
    XXH3_state_t *state = XXH3_createState();
    if (state)
        (void)XXH3_64bits_reset_withSeed(state, seed);
    return (struct sh_hash64 *)state;
}

void sh_hash64_add(struct sh_hash64 *hash, struct sh_bytes bytes)
{
    SH_ASSERT(hash != NULL && (bytes.at != NULL || bytes.size == 0));
    (void)XXH3_64bits_update((XXH3_state_t *)hash, bytes.at, bytes.size);
}

uint64_t sh_hash64_end(struct sh_hash64 *hash)
{
    XXH3_state_t *state = (XXH3_state_t *)hash;
    uint64_t value = state ? XXH3_64bits_digest(state) : 0;
    (void)XXH3_freeState(state);
    return value;
}
