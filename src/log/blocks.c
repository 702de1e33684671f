#include "log/blocks.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"

#define CUT_IN (SH_SLAB_BYTES / SH_BLOCK_BYTES)
#define ALL_FREE ((1u << CUT_IN) - 1)
#define NONE UINT32_MAX
#define SLABS_MAX (UINT64_C(1) << 20)

/* In a list: of those in one piece that are free (only next), or of those that are cut and have free blocks. */
struct slab {
    uint32_t next, previous;
    uint16_t free_blocks; /* of one that is cut: a bit for each */
    bool is_cut;
};

struct sh_blocks {
    uint8_t *at;
    uint64_t bytes, used;
    uint32_t free_slabs, cut_slabs; /* the lists; NONE: empty */
    struct slab *slabs;
    uint32_t *next; /* behind each piece the next one of its chain, by its first block; 0: none */
};

enum shoal_err sh_blocks_create(uint64_t bytes, struct sh_blocks **blocks_out)
{
    SH_ASSERT(bytes && bytes % SH_SLAB_BYTES == 0 && bytes / SH_SLAB_BYTES <= SLABS_MAX);
    struct sh_blocks *blocks = calloc(1, sizeof *blocks);
    if (!blocks)
        return SHOAL_ENOMEM;
    uint32_t slabs = (uint32_t)(bytes / SH_SLAB_BYTES);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *blocks = (struct sh_blocks){.at = at == MAP_FAILED ? NULL : at,
                                 .bytes = bytes,
                                 .cut_slabs = NONE,
                                 .slabs = malloc(slabs * sizeof *blocks->slabs),
                                 .next = calloc((size_t)slabs * CUT_IN + 1, sizeof *blocks->next)};
    if (!blocks->at || !blocks->slabs || !blocks->next) {
        sh_blocks_destroy(blocks);
        return SHOAL_ENOMEM;
    }
    for (uint32_t i = 0; i < slabs; i++)
        blocks->slabs[i] = (struct slab){.next = i + 1 < slabs ? i + 1 : NONE, .previous = NONE};
    *blocks_out = blocks;
    return SHOAL_OK;
}

void sh_blocks_destroy(struct sh_blocks *blocks)
{
    if (!blocks)
        return;
    SH_ASSERT(!blocks->used);
    if (blocks->at)
        munmap(blocks->at, blocks->bytes);
    free(blocks->slabs);
    free(blocks->next);
    free(blocks);
}

uint64_t sh_blocks_used(const struct sh_blocks *blocks)
{
    return blocks->used;
}

/* --- Pieces, by the number of their first block, from 1 ---------------------------------------- */

static struct slab *slab_of(const struct sh_blocks *blocks, uint32_t piece)
{
    SH_ASSERT(piece);
    return &blocks->slabs[(piece - 1) / CUT_IN];
}

static uint8_t *at(const struct sh_blocks *blocks, uint32_t piece)
{
    return blocks->at + (uint64_t)(piece - 1) * SH_BLOCK_BYTES;
}

static size_t bytes_of(const struct sh_blocks *blocks, uint32_t piece)
{
    return slab_of(blocks, piece)->is_cut ? SH_BLOCK_BYTES : SH_SLAB_BYTES;
}

static void cut_add(struct sh_blocks *blocks, uint32_t number)
{
    struct slab *slab = &blocks->slabs[number];
    slab->previous = NONE;
    slab->next = blocks->cut_slabs;
    if (slab->next != NONE)
        blocks->slabs[slab->next].previous = number;
    blocks->cut_slabs = number;
}

static void cut_remove(struct sh_blocks *blocks, uint32_t number)
{
    const struct slab *slab = &blocks->slabs[number];
    if (slab->previous == NONE)
        blocks->cut_slabs = slab->next;
    else
        blocks->slabs[slab->previous].next = slab->next;
    if (slab->next != NONE)
        blocks->slabs[slab->next].previous = slab->previous;
}

/* The number of a slab in one piece; NONE: none is free. */
static uint32_t slab_take(struct sh_blocks *blocks)
{
    uint32_t number = blocks->free_slabs;
    if (number != NONE)
        blocks->free_slabs = blocks->slabs[number].next;
    return number;
}

/* 0: none is free. */
static uint32_t block_take(struct sh_blocks *blocks)
{
    if (blocks->cut_slabs == NONE) {
        uint32_t number = slab_take(blocks);
        if (number == NONE)
            return 0;
        blocks->slabs[number].is_cut = true;
        blocks->slabs[number].free_blocks = ALL_FREE;
        cut_add(blocks, number);
    }
    uint32_t number = blocks->cut_slabs;
    struct slab *slab = &blocks->slabs[number];
    unsigned block = (unsigned)__builtin_ctz(slab->free_blocks);
    slab->free_blocks &= (uint16_t) ~(1u << block);
    if (!slab->free_blocks)
        cut_remove(blocks, number);
    return number * CUT_IN + block + 1;
}

static uint32_t piece_take(struct sh_blocks *blocks, bool is_long)
{
    uint32_t number = is_long ? slab_take(blocks) : NONE;
    uint32_t piece = number != NONE ? number * CUT_IN + 1 : block_take(blocks);
    if (piece)
        blocks->used += bytes_of(blocks, piece);
    return piece;
}

static void piece_give(struct sh_blocks *blocks, uint32_t piece)
{
    uint32_t number = (piece - 1) / CUT_IN;
    struct slab *slab = &blocks->slabs[number];
    blocks->used -= bytes_of(blocks, piece);
    blocks->next[piece] = 0;
    if (slab->is_cut) {
        uint16_t bit = (uint16_t)(1u << (piece - 1) % CUT_IN);
        SH_ASSERT(!(slab->free_blocks & bit));
        if (!slab->free_blocks)
            cut_add(blocks, number);
        slab->free_blocks |= bit;
        if (slab->free_blocks != ALL_FREE)
            return;
        cut_remove(blocks, number);
        slab->is_cut = false;
    }
    slab->next = blocks->free_slabs;
    blocks->free_slabs = number;
}

/* --- Chains ------------------------------------------------------------------------------------ */

/* Gives back the pieces behind one; 0: all. */
static void give_behind(struct sh_blocks *blocks, struct sh_chain *chain, uint32_t piece)
{
    uint32_t next = piece ? blocks->next[piece] : chain->first;
    if (piece)
        blocks->next[piece] = 0;
    else
        chain->first = 0;
    chain->last = piece;
    while (next) {
        uint32_t given = next;
        next = blocks->next[given];
        chain->room -= bytes_of(blocks, given);
        chain->pieces--;
        piece_give(blocks, given);
    }
}

static void append(struct sh_blocks *blocks, struct sh_chain *chain, uint32_t piece)
{
    if (chain->last)
        blocks->next[chain->last] = piece;
    else
        chain->first = piece;
    chain->last = piece;
    chain->pieces++;
    chain->room += bytes_of(blocks, piece);
}

enum shoal_err sh_chain_reserve(struct sh_blocks *blocks, struct sh_chain *chain, size_t bytes)
{
    uint32_t last = chain->last;
    while (chain->room - chain->bytes < bytes) {
        uint32_t piece = piece_take(blocks, chain->pieces >= CUT_IN);
        if (!piece) {
            give_behind(blocks, chain, last);
            return SHOAL_EAGAIN;
        }
        append(blocks, chain, piece);
    }
    return SHOAL_OK;
}

uint8_t *sh_chain_end(const struct sh_blocks *blocks, struct sh_chain *chain, size_t *left_out)
{
    if (!chain->end_left) {
        uint32_t next = chain->end ? blocks->next[chain->end] : chain->first;
        if (next) {
            chain->end = next;
            chain->end_left = (uint32_t)bytes_of(blocks, next);
        }
    }
    *left_out = chain->end_left;
    return chain->end_left ? at(blocks, chain->end) + bytes_of(blocks, chain->end) - chain->end_left
                           : NULL;
}

void sh_chain_filled(struct sh_chain *chain, size_t bytes)
{
    SH_ASSERT(bytes <= chain->end_left);
    chain->end_left -= (uint32_t)bytes;
    chain->bytes += bytes;
}

void sh_chain_put(struct sh_blocks *blocks, struct sh_chain *chain, struct sh_bytes bytes)
{
    for (size_t done = 0; done < bytes.size;) {
        size_t left;
        uint8_t *end = sh_chain_end(blocks, chain, &left);
        SH_ASSERT(end);
        size_t size = bytes.size - done < left ? bytes.size - done : left;
        memcpy(end, bytes.at + done, size);
        sh_chain_filled(chain, size);
        done += size;
    }
}

bool sh_chain_next(const struct sh_blocks *blocks, const struct sh_chain *chain,
                   struct sh_chain_walk *walk, struct sh_bytes *bytes_out)
{
    if (walk->done >= chain->bytes)
        return false;
    uint32_t piece = walk->piece ? walk->piece : chain->first;
    const uint8_t *begin = at(blocks, piece);
    uint64_t size = 0;
    do {
        size += bytes_of(blocks, piece);
        piece = blocks->next[piece];
    } while (piece && walk->done + size < chain->bytes && at(blocks, piece) == begin + size);
    if (size > chain->bytes - walk->done)
        size = chain->bytes - walk->done;
    *walk = (struct sh_chain_walk){.piece = piece, .done = walk->done + size};
    *bytes_out = sh_bytes_make(begin, size);
    return true;
}

uint8_t *sh_chain_begin(const struct sh_blocks *blocks, const struct sh_chain *chain)
{
    return at(blocks, chain->first);
}

void sh_chain_free(struct sh_blocks *blocks, struct sh_chain *chain)
{
    give_behind(blocks, chain, 0);
    *chain = (struct sh_chain){.bytes = 0};
}
