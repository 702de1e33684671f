/* Checksums and hashes, by library: CRC32C from ISA-L and, of short inputs, by the processor; XXH3 from xxHash. */
#ifndef SH_BASE_HASH_H
#define SH_BASE_HASH_H

#include "base/bytes.h"

/* CRC32C (Castagnoli) as in iSCSI: initial and final value inverted. Chain by passing the last
 * result as `start`; begin with 0. */
uint32_t sh_crc32c(uint32_t start, struct sh_bytes bytes);

/* 64-bit XXH3 of bytes. Stable across versions: may be stored and sent. */
uint64_t sh_hash64(struct sh_bytes bytes, uint64_t seed);

/* The same of bytes that come in pieces. NULL: out of memory. */
struct sh_hash64;
struct sh_hash64 *sh_hash64_begin(uint64_t seed);
void sh_hash64_add(struct sh_hash64 *hash, struct sh_bytes bytes);
/* Frees it; NULL is allowed, and gives 0. */
uint64_t sh_hash64_end(struct sh_hash64 *hash);

/* A bijective mix of one 64-bit value (splitmix64's finisher): for tables keyed by an ID. */
static inline uint64_t sh_mix64(uint64_t value)
{
    value ^= value >> 30;
    value *= UINT64_C(0xbf58476d1ce4e5b9);
    value ^= value >> 27;
    value *= UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}

#endif
