/* The write buffer's memory: slabs of 64 KiB, each in one piece or cut into 16 blocks of 4 KiB, from one mapping
 * of a fixed size; and chains of them, to whose end a zone's entries are copied.
 *
 *   chain:  [4 KiB] ... 16 of them ... [4 KiB] -> [64 KiB] -> [64 KiB]      what is filled lies in the order of the file
 *
 * A zone that is written to now and then holds 4 KiB, one that is written to much few pieces. The pieces are
 * aligned to 4 KiB, so that they go to the disk as they lie (docs/log.md). Where no slab is left in one piece, a
 * chain goes on with blocks. Nothing is allocated once the pool is there: when all of it is in use, there is EAGAIN.
 *
 * Threads: one at a time. */
#ifndef SH_LOG_BLOCKS_H
#define SH_LOG_BLOCKS_H

#include "base/bytes.h"
#include "shoal/err.h"

#define SH_BLOCK_BYTES 4096u
#define SH_SLAB_BYTES 65536u

struct sh_blocks;

/* A pool of so many bytes, a multiple of SH_SLAB_BYTES; up to 64 GiB. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_blocks_create(uint64_t bytes, struct sh_blocks **blocks_out);
/* All chains are empty by then. NULL is allowed. */
void sh_blocks_destroy(struct sh_blocks *blocks);

/* How many bytes the chains hold, of whole pieces. */
uint64_t sh_blocks_used(const struct sh_blocks *blocks);

/* Bytes in a row, in pieces of a pool. Empty when it is all zero. */
struct sh_chain {
    uint32_t first, last; /* pieces, by the number of their first block, from 1 */
    uint32_t end;         /* the one that is being filled */
    uint32_t end_left;    /* free bytes in it */
    uint32_t pieces;
    uint64_t bytes; /* filled */
    uint64_t room;  /* of all pieces */
};

/* Gets pieces until so many bytes have room behind those that are filled. EAGAIN: the pool has none left, and the
 * chain is as it was. */
SHOAL_NODISCARD enum shoal_err sh_chain_reserve(struct sh_blocks *blocks, struct sh_chain *chain,
                                                size_t bytes);

/* Appends bytes for which room was reserved. */
void sh_chain_put(struct sh_blocks *blocks, struct sh_chain *chain, struct sh_bytes bytes);

/* Where the next bytes go, for the caller to fill in place, and then to say so (sh_chain_filled). *left_out: how many
 * lie there in a row; 0, and NULL: all pieces are full. */
uint8_t *sh_chain_end(const struct sh_blocks *blocks, struct sh_chain *chain, size_t *left_out);
void sh_chain_filled(struct sh_chain *chain, size_t bytes);

/* A walk over the filled bytes, in the order of the file: from `at` on, which is then moved on. Pieces that lie side
 * by side come together. False: there are no more. */
struct sh_chain_walk {
    uint32_t piece;
    uint64_t done; /* bytes before that piece */
};
bool sh_chain_next(const struct sh_blocks *blocks, const struct sh_chain *chain,
                   struct sh_chain_walk *walk, struct sh_bytes *bytes_out);

/* The first bytes, SH_BLOCK_BYTES of them, which always lie in a row. */
uint8_t *sh_chain_begin(const struct sh_blocks *blocks, const struct sh_chain *chain);

/* Gives all pieces back; the chain is empty. */
void sh_chain_free(struct sh_blocks *blocks, struct sh_chain *chain);

#endif
