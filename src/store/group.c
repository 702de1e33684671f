/* Changing what is in a group, and long chunks' blocks. */
#include "base/assert.h"
#include "store/store_int.h"

bool sh_store_spot(const struct sh_store *store, const struct sh_layout *layout, unsigned index,
                   struct sh_spot *spot_out)
{
    unsigned code = sh_layout_code(layout, index);
    if (code < SH_CODE_FIRST)
        return false;
    uint8_t *at =
        sh_alloc_at(store->alloc, sh_layout_offset(layout)) + sh_layout_sum(layout, index);
    *spot_out = (struct sh_spot){.at = at, .size = code - SH_CODE_FIRST};
    if (code != SH_CODE_LONG)
        return true;
    uint64_t offset;
    sh_copy_out(&offset, at, sizeof offset);
    uint64_t header = atomic_load_explicit(sh_long_header(store, offset), memory_order_relaxed);
    spot_out->at = sh_alloc_at(store->alloc, offset) + SH_LONG_HEADER;
    spot_out->size = (uint32_t)header;
    spot_out->pins = (uint32_t)(header >> 32);
    spot_out->long_block = offset;
    return true;
}

enum shoal_err sh_long_make(struct sh_store *store, const void *data, uint32_t size, bool may_dip,
                            uint64_t *offset_out)
{
    struct sh_block block = {.size = size + SH_LONG_HEADER};
    if (sh_alloc_take(store->alloc, &block, 1, may_dip))
        return sh_store_short(store, block.size);
    atomic_store_explicit(sh_long_header(store, block.offset), size, memory_order_relaxed);
    uint8_t *at = sh_alloc_at(store->alloc, block.offset) + SH_LONG_HEADER;
    if (data)
        sh_copy_in(at, data, size);
    else
        sh_copy_zero(at, size);
    *offset_out = block.offset;
    return SHOAL_OK;
}

void sh_long_free(struct sh_store *store, uint64_t offset, uint32_t size)
{
    struct sh_block block = {offset, size + SH_LONG_HEADER};
    sh_alloc_give(store->alloc, &block, 1);
}

/* Bytes for a block that holds `total` now, and more when the IDs that are absent come: as many
 * bytes as the others have on average. */
static uint32_t capacity_wanted(const struct sh_change *change, uint32_t total)
{
    if (change->tight)
        return total;
    uint32_t present = 0;
    uint32_t absent = 0;
    for (unsigned i = 0; i < SH_GROUP_IDS; i++) {
        unsigned code = sh_layout_code(&change->after, i);
        present += code >= SH_CODE_FIRST;
        absent += code < SH_CODE_FIRST;
    }
    SH_ASSERT(present > 0);
    return total + absent * ((total + present - 1) / present);
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

/* The group's new bytes from chunk `first` on, in order; returns how many. */
static uint32_t image_make(const struct sh_store *store, const struct sh_change *change,
                           unsigned first, uint8_t *image)
{
    const uint8_t *old = sh_alloc_at(store->alloc, sh_layout_offset(&change->before));
    uint32_t at = sh_layout_sum(&change->before, first);
    uint32_t used = 0;
    for (unsigned i = first; i < SH_GROUP_IDS; i++) {
        uint32_t was = sh_code_footprint(sh_layout_code(&change->before, i));
        uint32_t is = sh_code_footprint(sh_layout_code(&change->after, i));
        if (!(change->mask >> i & 1))
            memcpy(image + used, old + at, is);
        else if (change->sources[i])
            memcpy(image + used, change->sources[i], is);
        else
            memset(image + used, 0, is);
        at += was;
        used += is;
    }
    return used;
}

enum shoal_err sh_group_change(struct sh_store *store, struct sh_group *group,
                               struct sh_change *change)
{
    uint8_t image[SH_GROUP_BYTES_MAX];
    const struct sh_block old = {sh_layout_offset(&change->before),
                                 sh_layout_capacity(&change->before)};
    struct sh_block block = {0, 0};
    uint32_t total = sh_layout_sum(&change->after, SH_GROUP_IDS);
    bool stays = total > 0 && total <= old.size && !change->tight;
    if (stays) {
        block = old;
    } else if (total > 0) {
        enum shoal_err err = block_take(store, change, total, &block);
        if (err)
            return err;
    }
    unsigned first = stays ? (unsigned)__builtin_ctz(change->mask | 1u << SH_GROUP_IDS) : 0;
    uint32_t used = image_make(store, change, first < SH_GROUP_IDS ? first : 0, image);
    sh_copy_in(sh_alloc_at(store->alloc, block.offset) +
                   (stays ? sh_layout_sum(&change->before, first) : 0),
               image, total > 0 ? used : 0);
    SH_ASSERT(block.size / 8 <= UINT16_MAX && block.size % 8 == 0);
    change->after.block = (uint64_t)(block.size / 8) << 48 | block.offset;
    sh_group_layout_set(group, &change->after);
    /* Readers that still look at the old block find another sequence afterwards. */
    if (!stays && old.size > 0)
        sh_alloc_give(store->alloc, &old, 1);
    return SHOAL_OK;
}
