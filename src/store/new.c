/* Creating chunks: all of a batch, or none. */
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/store_int.h"

/* Blocks taken in one go under the allocator's lock. */
#define SLICE 256

/* What to create. */
struct wish {
    const uint32_t *sizes; /* NULL: all are of one size */
    uint32_t size;
    size_t count;
    uint64_t payload_bytes;
};

static uint32_t wish_size(const struct wish *wish, size_t index)
{
    return wish->sizes ? wish->sizes[index] : wish->size;
}

static enum shoal_err wish_check(const struct sh_store *store, struct wish *wish)
{
    wish->payload_bytes = 0;
    size_t checked = wish->sizes ? wish->count : (wish->count > 0);
    for (size_t i = 0; i < checked; i++) {
        if (wish_size(wish, i) > store->chunk_bytes_max)
            return SHOAL_ETOOBIG;
        wish->payload_bytes += wish_size(wish, i);
    }
    if (!wish->sizes &&
        __builtin_mul_overflow((uint64_t)wish->size, (uint64_t)wish->count, &wish->payload_bytes))
        return SHOAL_EFULL;
    return SHOAL_OK;
}

/* True when the payload alone can't fit, so that a hopeless batch is refused before any work. */
static bool hopeless(const struct sh_store *store, const struct wish *wish)
{
    if (wish->count <= SLICE && wish->payload_bytes < store->budget.max)
        return false;
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    uint64_t taken = status.used_bytes - status.free_bytes;
    return taken > status.bytes_max || wish->payload_bytes > status.bytes_max - taken;
}

static sh_entry *entry_of(struct sh_store *store, sh_lid lid)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    SH_ASSERT(entry != NULL);
    return entry;
}

/* Gives some IDs pending entries with zeroed blocks. EFULL changes nothing. */
static enum shoal_err slice_fill(struct sh_store *store, const struct wish *wish, size_t at,
                                 size_t count, const sh_lid *lids)
{
    struct sh_block blocks[SLICE];
    SH_ASSERT(count <= SLICE);
    for (size_t i = 0; i < count; i++)
        blocks[i].size = wish_size(wish, at + i);
    enum shoal_err err = sh_alloc_take(store->alloc, blocks, count);
    if (err)
        return err;
    for (size_t i = 0; i < count; i++) {
        memset(sh_alloc_at(store->alloc, blocks[i].offset), 0, blocks[i].size);
        uint64_t word = sh_entry_make(blocks[i].offset, blocks[i].size) | SH_ENTRY_PENDING;
        sh_entry *entry = entry_of(store, lids[at + i]);
        SH_ASSERT(atomic_load_explicit(entry, memory_order_relaxed) == 0);
        /* relaxed: nobody follows a pending entry; sh_entry_publish releases it */
        atomic_store_explicit(entry, word, memory_order_relaxed);
    }
    return SHOAL_OK;
}

/* Takes back the first `made` chunks, which are pending, and all IDs. */
static void undo(struct sh_store *store, const struct wish *wish, size_t made, const sh_lid *lids)
{
    for (size_t i = 0; i < made; i++) {
        sh_entry *entry = entry_of(store, lids[i]);
        uint64_t word = atomic_load_explicit(entry, memory_order_relaxed);
        SH_ASSERT(sh_entry_state(word) == SH_ENTRY_PENDING);
        atomic_store_explicit(entry, 0, memory_order_relaxed);
        struct sh_block block = {sh_entry_block(word), wish_size(wish, i)};
        sh_alloc_give(store->alloc, &block, 1);
    }
    sh_idpool_give(store->pool, lids, wish->count);
    /* What was charged for this and never touched is free now; say so to the kernel and the
     * budget alike. */
    sh_alloc_trim(store->alloc);
}

static enum shoal_err ids_take(struct sh_store *store, size_t count, sh_lid *lids_out)
{
    enum shoal_err err = sh_idpool_take(store->pool, count, lids_out);
    if (err != SHOAL_EFULL)
        return err;
    /* The table can grow into what free slots hold. */
    sh_alloc_trim(store->alloc);
    return sh_idpool_take(store->pool, count, lids_out);
}

static enum shoal_err create(struct sh_store *store, struct wish *wish, sh_lid *lids_out)
{
    enum shoal_err err = wish_check(store, wish);
    if (err || wish->count == 0)
        return err;
    if (hopeless(store, wish))
        return SHOAL_EFULL;
    err = ids_take(store, wish->count, lids_out);
    if (err)
        return err;
    for (size_t at = 0; at < wish->count; at += SLICE) {
        size_t left = wish->count - at;
        err = slice_fill(store, wish, at, left < SLICE ? left : SLICE, lids_out);
        if (err) {
            undo(store, wish, at, lids_out);
            SH_DEBUG("store", "no chunk memory for a batch", SH_U64("chunks", wish->count),
                     SH_U64("payload_bytes", wish->payload_bytes));
            return err;
        }
    }
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, wish->payload_bytes);
    sh_tally_add(&tally->creates, wish->count);
    for (size_t i = 0; i < wish->count; i++)
        sh_entry_publish(entry_of(store, lids_out[i]));
    return SHOAL_OK;
}

enum shoal_err sh_store_new(struct sh_store *store, const uint32_t *sizes, size_t count,
                            sh_lid *lids_out)
{
    SH_ASSERT(count == 0 || (sizes != NULL && lids_out != NULL));
    struct wish wish = {.sizes = sizes, .count = count};
    return create(store, &wish, lids_out);
}

enum shoal_err sh_store_new_many(struct sh_store *store, uint32_t size, size_t count,
                                 sh_lid *lids_out)
{
    SH_ASSERT(count == 0 || lids_out != NULL);
    struct wish wish = {.size = size, .count = count};
    return create(store, &wish, lids_out);
}
