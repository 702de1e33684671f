/* Packs: blocks side by side, and bins of those that are free again. */
#include <string.h>

#include "base/assert.h"
#include "store/slots_int.h"

/* Longer blocks go to long packs, so that the rest of a pack that the next block does not fit into
 * is a small part of it. */
#define SHORT_MAX 4096u
#define LONG_PACK_SLOTS 16u
/* How many blocks of a bin whose sizes differ are looked at. */
#define BIN_PROBES 8
#define SIZE_BITS 20
#define SIZE_MASK ((UINT64_C(1) << SIZE_BITS) - 1)

_Static_assert(SH_PACKED_MAX / 8 <= SIZE_MASK, "a node holds any size");

/* --- Nodes and bins ------------------------------------------------------------------------ */

unsigned sh_bin_of(uint32_t bytes)
{
    uint32_t units = bytes / 8;
    if (units < SH_BINS_EXACT)
        return units;
    unsigned log = 31 - (unsigned)__builtin_clz(units);
    unsigned bin = SH_BINS_EXACT + (log - 9) * 16 + ((units >> (log - 4)) & 15);
    SH_ASSERT(bin < SH_BINS);
    return bin;
}

uint32_t sh_node_bytes(const struct sh_alloc *alloc, uint64_t offset)
{
    return (uint32_t)(sh_node_at(alloc, offset)->size & SIZE_MASK) * 8;
}

bool sh_node_is_linked(const struct sh_alloc *alloc, uint64_t offset)
{
    return sh_node_at(alloc, offset)->size >> SIZE_BITS == alloc->epoch;
}

/* relaxed, here and below: what a lost reader reads means nothing, and the lock orders the rest */
static void word_set(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static void node_link(struct sh_alloc *alloc, uint64_t offset, uint32_t bytes)
{
    unsigned bin = sh_bin_of(bytes);
    struct sh_node *node = sh_node_at(alloc, offset);
    uint64_t next = alloc->bins[bin];
    word_set(&node->next, next);
    word_set(&node->prev, 0);
    word_set(&node->size, alloc->epoch << SIZE_BITS | bytes / 8);
    if (next)
        word_set(&sh_node_at(alloc, next)->prev, offset);
    alloc->bins[bin] = offset;
    alloc->bins_used[bin / 64] |= UINT64_C(1) << bin % 64;
}

static void node_unlink(struct sh_alloc *alloc, uint64_t offset)
{
    unsigned bin = sh_bin_of(sh_node_bytes(alloc, offset));
    struct sh_node *node = sh_node_at(alloc, offset);
    uint64_t next = node->next;
    uint64_t prev = node->prev;
    if (next)
        word_set(&sh_node_at(alloc, next)->prev, prev);
    if (prev) {
        word_set(&sh_node_at(alloc, prev)->next, next);
        return;
    }
    SH_ASSERT(alloc->bins[bin] == offset);
    alloc->bins[bin] = next;
    if (!next)
        alloc->bins_used[bin / 64] &= ~(UINT64_C(1) << bin % 64);
}

/* The first bin from `bin` on that holds something; SH_BINS: none. */
static unsigned bin_next(const struct sh_alloc *alloc, unsigned bin)
{
    for (unsigned word = bin / 64; word < SH_BIN_WORDS; word++) {
        uint64_t bits = alloc->bins_used[word];
        if (word == bin / 64)
            bits &= ~UINT64_C(0) << bin % 64;
        if (bits)
            return word * 64 + (unsigned)__builtin_ctzll(bits);
    }
    return SH_BINS;
}

void sh_bins_empty(struct sh_alloc *alloc)
{
    memset(alloc->bins, 0, sizeof alloc->bins);
    memset(alloc->bins_used, 0, sizeof alloc->bins_used);
    alloc->epoch++;
}

/* --- Packs --------------------------------------------------------------------------------- */

/* The record that describes the pack of a block. */
static uint32_t pack_of(const struct sh_alloc *alloc, uint64_t offset)
{
    return alloc->slots[offset >> SH_SLOT_BITS].first;
}

static uint32_t pack_new(struct sh_alloc *alloc, enum sh_pack_kind kind)
{
    uint32_t run = kind == SH_PACK_LONG ? LONG_PACK_SLOTS : 1;
    uint32_t first = sh_slots_take(alloc, run, true);
    if (!first)
        return 0;
    for (uint32_t slot = first; slot < first + run; slot++) {
        alloc->slots[slot].state = SLOT_PACK;
        alloc->slots[slot].first = first;
        alloc->slots[slot].is_draining = 0;
    }
    alloc->slots[first].bytes = 0;
    alloc->slots[first].end = 0;
    alloc->filling[kind] = first;
    return first;
}

/* Frees the slots of a pack without blocks, and takes its free blocks out of the bins. */
static void pack_end(struct sh_alloc *alloc, uint32_t first)
{
    struct sh_slot *pack = &alloc->slots[first];
    uint64_t start = (uint64_t)first << SH_SLOT_BITS;
    SH_ASSERT(pack->bytes == 0);
    for (uint64_t at = start; at < start + pack->end;) {
        uint32_t bytes = sh_node_bytes(alloc, at);
        SH_ASSERT(bytes >= SH_NODE_BYTES && at + bytes <= start + pack->end);
        if (sh_node_is_linked(alloc, at))
            node_unlink(alloc, at);
        at += bytes;
    }
    for (unsigned kind = 0; kind < SH_PACK_KINDS; kind++)
        if (alloc->filling[kind] == first)
            alloc->filling[kind] = 0;
    for (uint32_t slot = first; slot < first + pack->run; slot++) {
        alloc->slots[slot].is_draining = 0;
        alloc->slots[slot].state = SLOT_UNUSED;
    }
    sh_slots_give(alloc, first, pack->run);
}

/* The next bytes of a pack. 0: it is full, or there is no memory. */
static uint64_t pack_extend(struct sh_alloc *alloc, uint32_t first, uint32_t bytes)
{
    struct sh_slot *pack = &alloc->slots[first];
    uint64_t end = (uint64_t)pack->end + bytes;
    if (!sh_slots_touch(alloc, first, (uint32_t)(pack->end >> SH_SLOT_BITS), sh_pages(end)))
        return 0;
    uint64_t offset = ((uint64_t)first << SH_SLOT_BITS) + pack->end;
    pack->end = (uint32_t)end;
    return offset;
}

/* Touched bytes from the pack's end on. */
static uint64_t pack_rest(const struct sh_alloc *alloc, uint32_t first)
{
    const struct sh_slot *pack = &alloc->slots[first];
    uint64_t touched = 0;
    for (uint32_t i = 0; i < pack->run; i++) {
        touched += (uint64_t)alloc->slots[first + i].touched << SH_PAGE_BITS;
        if (alloc->slots[first + i].touched < SH_SLOT_PAGES)
            break;
    }
    return touched > pack->end ? touched - pack->end : 0;
}

/* What is left of a pack that no more is added to, as far as it is touched, becomes free blocks. */
static void pack_close(struct sh_alloc *alloc, uint32_t first)
{
    struct sh_slot *pack = &alloc->slots[first];
    for (uint64_t rest; (rest = pack_rest(alloc, first)) >= SH_NODE_BYTES;) {
        uint32_t bytes = rest < SH_PACKED_MAX ? (uint32_t)rest : SH_PACKED_MAX;
        node_link(alloc, ((uint64_t)first << SH_SLOT_BITS) + pack->end, bytes);
        pack->end += bytes;
    }
}

static uint64_t fresh_take(struct sh_alloc *alloc, uint32_t bytes)
{
    enum sh_pack_kind kind = bytes > SHORT_MAX ? SH_PACK_LONG : SH_PACK_SHORT;
    uint32_t first = alloc->filling[kind];
    if (first) {
        uint64_t room =
            ((uint64_t)alloc->slots[first].run << SH_SLOT_BITS) - alloc->slots[first].end;
        if (room >= bytes)
            return pack_extend(alloc, first, bytes);
        pack_close(alloc, first);
        alloc->filling[kind] = 0;
    }
    first = pack_new(alloc, kind);
    if (!first)
        return 0;
    uint64_t offset = pack_extend(alloc, first, bytes);
    if (!offset)
        pack_end(alloc, first);
    return offset;
}

/* --- Blocks -------------------------------------------------------------------------------- */

/* What is left of a block that is split must have a size that something may want, as long as there
 * is other memory. */
#define REST_LEAST 256u

static uint64_t node_take(struct sh_alloc *alloc, uint64_t offset, uint32_t bytes)
{
    uint32_t has = sh_node_bytes(alloc, offset);
    node_unlink(alloc, offset);
    if (has > bytes)
        node_link(alloc, offset + bytes, has - bytes);
    return offset;
}

/* A free block out of a bin: of that size, or of so many bytes more. */
static uint64_t bin_take(struct sh_alloc *alloc, unsigned bin, uint32_t bytes, uint32_t rest_least)
{
    uint64_t offset = alloc->bins[bin];
    for (unsigned i = 0; offset && i < BIN_PROBES; i++) {
        uint32_t has = sh_node_bytes(alloc, offset);
        if (has == bytes || has >= bytes + rest_least)
            return node_take(alloc, offset, bytes);
        offset = sh_node_at(alloc, offset)->next;
    }
    return 0;
}

/* A part of a longer free block, the shortest that does. */
static uint64_t split_take(struct sh_alloc *alloc, uint32_t bytes, uint32_t rest_least)
{
    if (bytes + rest_least > SH_PACKED_MAX)
        return 0;
    unsigned bin = sh_bin_of(bytes + rest_least);
    for (; (bin = bin_next(alloc, bin)) < SH_BINS; bin++) {
        uint64_t offset = bin_take(alloc, bin, bytes, rest_least);
        if (offset)
            return offset;
    }
    return 0;
}

uint64_t sh_pack_take(struct sh_alloc *alloc, uint32_t bytes)
{
    SH_ASSERT(bytes >= SH_NODE_BYTES && bytes <= SH_PACKED_MAX && bytes % 8 == 0);
    uint64_t offset = bin_take(alloc, sh_bin_of(bytes), bytes, REST_LEAST);
    if (!offset)
        offset = split_take(alloc, bytes, REST_LEAST);
    if (!offset)
        offset = fresh_take(alloc, bytes);
    if (!offset)
        offset = split_take(alloc, bytes, SH_NODE_BYTES);
    if (offset)
        alloc->slots[pack_of(alloc, offset)].bytes += bytes;
    return offset;
}

void sh_pack_give(struct sh_alloc *alloc, uint64_t offset, uint32_t bytes)
{
    uint32_t first = pack_of(alloc, offset);
    struct sh_slot *pack = &alloc->slots[first];
    SH_ASSERT(pack->state == SLOT_PACK && pack->bytes >= bytes);
    SH_ASSERT(offset + bytes <= ((uint64_t)first << SH_SLOT_BITS) + pack->end);
    if (pack->is_draining)
        word_set(&sh_node_at(alloc, offset)->size, bytes / 8);
    else
        node_link(alloc, offset, bytes);
    pack->bytes -= bytes;
    if (pack->bytes == 0)
        pack_end(alloc, first);
}
