/* Changing what is in a group, and long chunks' blocks. */
#include <string.h>

#include "base/assert.h"
#include "store/store_int.h"

uint32_t sh_layout_mediums(const struct sh_layout *layout, uint8_t *block, unsigned mediums,
                           uint16_t *bytes_out)
{
    uint32_t sum = 0;
    for (unsigned nth = 0; mediums; nth++, mediums &= mediums - 1) {
        unsigned index = (unsigned)__builtin_ctz(mediums);
        uint32_t bytes = sh_code_footprint(sh_layout_code(layout, index));
        bytes += __atomic_load_n(sh_layout_low(layout, block, nth), __ATOMIC_RELAXED);
        sum += bytes;
        if (bytes_out)
            bytes_out[index] = (uint16_t)bytes;
    }
    return sum;
}

bool sh_store_spot(const struct sh_store *store, const struct sh_layout *layout, unsigned index,
                   struct sh_spot *spot_out)
{
    unsigned code = sh_layout_code(layout, index);
    if (code < SH_CODE_FIRST)
        return false;
    uint8_t *block = sh_alloc_at(store->alloc, sh_layout_offset(layout));
    uint32_t size;
    uint8_t *at = block + sh_layout_place(layout, block, index, &size);
    *spot_out = (struct sh_spot){.at = at, .size = size};
    if (code != SH_CODE_LONG)
        return true;
    uint64_t offset;
    sh_copy_out(&offset, at, sizeof offset);
    uint64_t header = atomic_load_explicit(sh_long_header(store, offset), memory_order_relaxed);
    spot_out->at = sh_alloc_at(store->alloc, offset) + SH_LONG_HEADER;
    spot_out->size = (uint32_t)header;
    spot_out->pins = (uint32_t)(header >> 32);
    spot_out->long_block = offset;
    spot_out->stamp = sh_long_stamp(store, offset);
    return true;
}

enum shoal_err sh_long_open(struct sh_store *store, uint32_t size, bool may_dip,
                            uint64_t *offset_out)
{
    struct sh_block block = {.size = size + SH_LONG_HEADER};
    if (sh_alloc_take(store->alloc, &block, 1, may_dip))
        return sh_store_short(store, block.size);
    atomic_store_explicit(sh_long_header(store, block.offset), size, memory_order_relaxed);
    /* relaxed: it only has to be another each time */
    uint64_t number = atomic_fetch_add_explicit(&store->longs_made, 1, memory_order_relaxed);
    atomic_store_explicit(sh_long_stamp(store, block.offset), number << SH_LONG_WRITES_BITS,
                          memory_order_relaxed);
    *offset_out = block.offset;
    return SHOAL_OK;
}

void sh_long_write(struct sh_store *store, uint64_t block, uint32_t at, const void *data,
                   uint32_t size)
{
    uint8_t *to = sh_alloc_at(store->alloc, block) + SH_LONG_HEADER + at;
    if (data)
        sh_copy_in(to, data, size);
    else
        sh_copy_zero(to, size);
}

enum shoal_err sh_long_make(struct sh_store *store, const void *data, uint32_t size, bool may_dip,
                            uint64_t *offset_out)
{
    enum shoal_err err = sh_long_open(store, size, may_dip, offset_out);
    if (!err)
        sh_long_write(store, *offset_out, 0, data, size);
    return err;
}

void sh_long_free(struct sh_store *store, uint64_t offset, uint32_t size)
{
    struct sh_block block = {offset, size + SH_LONG_HEADER};
    sh_alloc_give(store->alloc, &block, 1);
}

/* What a full group's block may have to spare: so many bytes, or such a part of it. */
#define LOOSE_LEAST 32
#define LOOSE_SHARE 64

/* --- Changing a group ---------------------------------------------------------------------- */

void sh_change_begin(const struct sh_store *store, const struct sh_group *group,
                     struct sh_change *change_out)
{
    struct sh_layout layout = sh_group_layout(group);
    unsigned mediums;
    change_out->existed = (uint16_t)sh_layout_footprints(&layout, change_out->was);
    change_out->total = sh_layout_sum(&layout, SH_GROUP_IDS, &mediums);
    change_out->total += sh_layout_mediums(
        &layout, sh_alloc_at(store->alloc, sh_layout_offset(&layout)), mediums, change_out->was);
    change_out->exists = change_out->existed;
    change_out->mediums = (uint16_t)mediums;
    memcpy(change_out->is, change_out->was, sizeof change_out->is);
    change_out->before = layout;
    change_out->after = layout;
    change_out->mask = 0;
    change_out->expected = 0;
    change_out->may_dip = false;
    change_out->tight = false;
}

static void change_set(struct sh_change *change, unsigned index, unsigned code, uint32_t footprint,
                       const void *source)
{
    uint16_t bit = (uint16_t)(1u << index);
    sh_layout_code_set(&change->after, index, code);
    change->total += footprint - change->is[index];
    change->is[index] = (uint16_t)footprint;
    change->exists = code >= SH_CODE_FIRST ? change->exists | bit : change->exists & ~bit;
    change->mediums = sh_code_is_medium(code) ? change->mediums | bit : change->mediums & ~bit;
    change->mask |= bit;
    change->sources[index] = source;
}

void sh_change_chunk(struct sh_change *change, unsigned index, uint32_t size, const void *source)
{
    uint8_t low;
    SH_ASSERT(size <= SH_PACKED_CHUNK_MAX);
    change_set(change, index, sh_code_of(size, &low), size, source);
}

void sh_change_long(struct sh_change *change, unsigned index, const uint64_t *offset)
{
    change_set(change, index, SH_CODE_LONG, SH_POINTER_BYTES, offset);
}

void sh_change_none(struct sh_change *change, unsigned index, unsigned code)
{
    SH_ASSERT(code < SH_CODE_FIRST);
    change_set(change, index, code, 0, NULL);
}

uint32_t sh_change_total(const struct sh_change *change)
{
    return change->total + (change->mediums ? (unsigned)__builtin_popcount(change->mediums) : 0);
}

/* Bytes for a block that holds `total` now, and more when the IDs that are absent come. */
static uint32_t capacity_wanted(const struct sh_change *change, uint32_t total)
{
    uint32_t present = (unsigned)__builtin_popcount(change->exists);
    SH_ASSERT(present > 0);
    if (change->tight)
        return total;
    uint32_t each = change->expected ? change->expected : (total + present - 1) / present;
    return total + (SH_GROUP_IDS - present) * each;
}

static enum shoal_err block_take(struct sh_store *store, const struct sh_change *change,
                                 uint32_t total, struct sh_block *block_out)
{
    struct sh_block block = {.size = capacity_wanted(change, total)};
    block.size = (uint32_t)sh_alloc_block_bytes(block.size);
    if (sh_alloc_take(store->alloc, &block, 1, change->may_dip)) {
        block.size = (uint32_t)sh_alloc_block_bytes(total);
        if (sh_alloc_take(store->alloc, &block, 1, change->may_dip))
            return sh_store_short(store, block.size);
    }
    *block_out = block;
    return SHOAL_OK;
}

static uint32_t footprints(const uint16_t *bytes, unsigned count)
{
    uint32_t sum = 0;
    for (unsigned i = 0; i < count; i++)
        sum += bytes[i];
    return sum;
}

/* The group's new bytes from chunk `first` on, in order; returns how many. */
static uint32_t image_make(const struct sh_store *store, const struct sh_change *change,
                           unsigned first, uint8_t *image)
{
    const uint8_t *old = sh_alloc_at(store->alloc, sh_layout_offset(&change->before)) +
                         footprints(change->was, first);
    unsigned left = (change->existed | change->exists) & ~0u << first;
    uint32_t used = 0;
    for (; left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        uint32_t is = change->is[i];
        if (!(change->mask >> i & 1))
            memcpy(image + used, old, is);
        else if (change->sources[i])
            memcpy(image + used, change->sources[i], is);
        else
            memset(image + used, 0, is);
        old += change->was[i];
        used += is;
    }
    return used;
}

/* Writes the medium chunks' low bytes to the block's end. */
static void lows_write(const struct sh_change *change, uint8_t *block)
{
    unsigned mediums = change->mediums;
    for (unsigned nth = 0; mediums; nth++, mediums &= mediums - 1) {
        uint8_t low;
        (void)sh_code_of(change->is[__builtin_ctz(mediums)], &low);
        __atomic_store_n(sh_layout_low(&change->after, block, nth), low, __ATOMIC_RELAXED);
    }
}

/* True when the group's last ID comes, and the block that was sized by those before is too large.
 */
static bool is_loose(const struct sh_change *change, uint32_t total)
{
    uint32_t spare = sh_layout_capacity(&change->before) - total;
    return change->exists == UINT16_MAX && change->existed != UINT16_MAX && spare > LOOSE_LEAST &&
           spare > total / LOOSE_SHARE;
}

enum shoal_err sh_group_change(struct sh_store *store, struct sh_group *group,
                               struct sh_change *change)
{
    uint8_t image[SH_GROUP_BYTES_MAX];
    const struct sh_block old = {sh_layout_offset(&change->before),
                                 sh_layout_capacity(&change->before)};
    struct sh_block block = {0, 0};
    uint32_t total = sh_change_total(change);
    bool stays = total > 0 && total <= old.size && !change->tight && !is_loose(change, total);
    if (stays) {
        block = old;
    } else if (total > 0) {
        enum shoal_err err = block_take(store, change, total, &block);
        if (err)
            return err;
    }
    SH_ASSERT(block.size / 8 <= UINT16_MAX && block.size % 8 == 0);
    change->after.block = (uint64_t)(block.size / 8) << 48 | block.offset;
    if (total > 0) {
        unsigned first = stays ? (unsigned)__builtin_ctz(change->mask | 1u << SH_GROUP_IDS) : 0;
        uint8_t *at = sh_alloc_at(store->alloc, block.offset);
        uint32_t used = image_make(store, change, first, image);
        sh_copy_in(at + footprints(change->was, first), image, used);
        lows_write(change, at);
    }
    sh_group_layout_set(group, &change->after);
    /* Readers that still look at the old block find another sequence afterwards. */
    if (!stays && old.size > 0)
        sh_alloc_give(store->alloc, &old, 1);
    return SHOAL_OK;
}
