#include "store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/store_int.h"

#define BYTES_MAX_LEAST (UINT64_C(1) << 20)
#define CHUNK_BYTES_MOST (UINT32_C(1) << 30)
#define RANGE_IDS_MAX (UINT64_C(1) << 16)

static uint64_t own_bytes(void)
{
    return sh_pages(sizeof(struct sh_store)) << SH_PAGE_BITS;
}

static enum shoal_err parts_init(struct sh_store *store, uint64_t bytes_max)
{
    /* The smallest chunk is empty and costs its entry, so more IDs than this can't be in use. */
    uint64_t ids_max = bytes_max / sizeof(sh_entry);
    if (ids_max > SH_IDTABLE_IDS_MAX)
        ids_max = SH_IDTABLE_IDS_MAX;
    enum shoal_err err = sh_idtable_init(&store->table, ids_max, &store->budget);
    if (err)
        return err;
    err = sh_idpool_init(store->pool, &store->table, &store->budget);
    if (err)
        return err;
    return sh_alloc_init(store->alloc, bytes_max, &store->budget);
}

enum shoal_err sh_store_create(const struct sh_store_config *config, struct sh_store **store_out)
{
    if (config->bytes_max < BYTES_MAX_LEAST || config->bytes_max > SH_ALLOC_RANGE_MAX ||
        config->chunk_bytes_max > CHUNK_BYTES_MOST) {
        SH_ERROR("store", "limits out of bounds", SH_U64("bytes_max", config->bytes_max),
                 SH_U64("chunk_bytes_max", config->chunk_bytes_max));
        return SHOAL_EINVAL;
    }
    struct sh_store *store = aligned_alloc(SH_PAGE_BYTES, own_bytes());
    if (!store) {
        SH_ERROR("store", "no memory for the store itself", SH_U64("bytes", own_bytes()));
        return SHOAL_ENOMEM;
    }
    memset(store, 0, own_bytes());
    store->alloc = &store->alloc_own;
    store->pool = &store->pool_own;
    store->chunk_bytes_max = config->chunk_bytes_max;
    store->budget.max = config->bytes_max;
    bool charged = sh_budget_charge(&store->budget, own_bytes());
    SH_ASSERT(charged);
    enum shoal_err err = parts_init(store, config->bytes_max);
    if (err) {
        sh_store_destroy(store);
        return err;
    }
    *store_out = store;
    return SHOAL_OK;
}

void sh_store_destroy(struct sh_store *store)
{
    if (!store)
        return;
    sh_alloc_destroy(store->alloc);
    sh_idpool_destroy(store->pool);
    sh_idtable_destroy(&store->table);
    free(store);
}

struct sh_tally *sh_store_tally(struct sh_store *store)
{
    static _Atomic unsigned threads;
    static _Thread_local unsigned mine; /* 0: not chosen yet */
    if (mine == 0)
        mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % SH_STORE_TALLIES;
    return &store->tallies[mine - 1];
}

enum shoal_err sh_store_size(struct sh_store *store, sh_lid lid, uint32_t *size_out)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    if (!entry)
        return SHOAL_ENOCHUNK;
    uint64_t word = atomic_load_explicit(entry, memory_order_relaxed);
    if (!sh_entry_exists(word))
        return SHOAL_ENOCHUNK;
    uint64_t size = sh_entry_size(word);
    if (size < SH_ENTRY_LARGE) {
        *size_out = (uint32_t)size;
        return SHOAL_OK;
    }
    /* A large chunk's size is in a record that may become another's when the chunk is removed. */
    word = sh_entry_hold(entry);
    if (!word)
        return SHOAL_ENOCHUNK;
    *size_out = sh_store_held_size(store, word);
    sh_entry_let_go(entry, word);
    return SHOAL_OK;
}

enum shoal_err sh_store_copy_out(struct sh_store *store, sh_lid lid, void *into, size_t room,
                                 uint32_t *size_out)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    uint64_t word = entry ? sh_entry_hold(entry) : 0;
    if (!word)
        return SHOAL_ENOCHUNK;
    uint32_t size = sh_store_held_size(store, word);
    bool fits = size <= room;
    if (fits && size > 0)
        memcpy(into, sh_alloc_at(store->alloc, sh_entry_block(word)), size);
    sh_entry_let_go(entry, word);
    *size_out = size;
    return fits ? SHOAL_OK : SHOAL_ESIZE;
}

enum shoal_err sh_store_copy_in(struct sh_store *store, sh_lid lid, struct sh_bytes data)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    uint64_t word = entry ? sh_entry_hold(entry) : 0;
    if (!word)
        return SHOAL_ENOCHUNK;
    bool fits = data.size == sh_store_held_size(store, word);
    if (fits && data.size > 0)
        memcpy(sh_alloc_at(store->alloc, sh_entry_block(word)), data.at, data.size);
    sh_entry_let_go(entry, word);
    return fits ? SHOAL_OK : SHOAL_ESIZE;
}

enum shoal_err sh_store_detach(struct sh_store *store, sh_lid lid, struct sh_block *block_out)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    uint64_t word = entry ? sh_entry_hold(entry) : 0;
    if (!word)
        return SHOAL_ENOCHUNK;
    *block_out = (struct sh_block){sh_entry_block(word), sh_store_held_size(store, word)};
    /* relaxed: who sees 0 goes no further, and who gets the block or the ID next gets it under
     * the allocator's or the pool's lock */
    atomic_store_explicit(entry, 0, memory_order_relaxed);
    return SHOAL_OK;
}

enum shoal_err sh_store_get(struct sh_store *store, sh_lid lid, void *into, size_t room,
                            uint32_t *size_out)
{
    enum shoal_err err = sh_store_copy_out(store, lid, into, room, size_out);
    if (!err)
        sh_tally_add(&sh_store_tally(store)->gets, 1);
    return err;
}

enum shoal_err sh_store_put(struct sh_store *store, sh_lid lid, struct sh_bytes data)
{
    enum shoal_err err = sh_store_copy_in(store, lid, data);
    if (!err)
        sh_tally_add(&sh_store_tally(store)->puts, 1);
    return err;
}

enum shoal_err sh_store_remove(struct sh_store *store, sh_lid lid)
{
    struct sh_block block;
    enum shoal_err err = sh_store_detach(store, lid, &block);
    if (err)
        return err;
    struct sh_tally *tally = sh_store_tally(store);
    sh_tally_add(&tally->payload_bytes, -(uint64_t)block.size);
    sh_tally_add(&tally->removes, 1);
    sh_alloc_give(store->alloc, &block, 1);
    sh_idpool_give(store->pool, &lid, 1);
    return SHOAL_OK;
}

enum shoal_err sh_store_read(struct sh_store *store, sh_lid lid,
                             void (*read)(void *arg, struct sh_bytes chunk), void *arg)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid.v);
    uint64_t word = entry ? sh_entry_hold(entry) : 0;
    if (!word)
        return SHOAL_ENOCHUNK;
    read(arg, sh_bytes_make(sh_alloc_at(store->alloc, sh_entry_block(word)),
                            sh_store_held_size(store, word)));
    sh_entry_let_go(entry, word);
    sh_tally_add(&sh_store_tally(store)->gets, 1);
    return SHOAL_OK;
}

static bool exists(const struct sh_store *store, uint64_t lid)
{
    sh_entry *entry = sh_idtable_find(&store->table, lid);
    return entry && sh_entry_exists(atomic_load_explicit(entry, memory_order_relaxed));
}

bool sh_store_range(struct sh_store *store, sh_lid from, sh_lid *first_out, sh_lid *last_out)
{
    uint64_t limit = sh_idtable_limit(&store->table);
    uint64_t first = from.v;
    while (first < limit && !exists(store, first))
        first++;
    if (first >= limit)
        return false;
    uint64_t last = first;
    while (last + 1 < limit && last + 1 - first < RANGE_IDS_MAX && exists(store, last + 1))
        last++;
    *first_out = (sh_lid){first};
    *last_out = (sh_lid){last};
    return true;
}

void sh_store_status_get(const struct sh_store *store, struct sh_store_status *status_out)
{
    struct sh_store_status status = {.bytes_max = store->budget.max};
    /* relaxed: counters that publish nothing. While threads are at work they may disagree, and even
     * say that more was removed than created. */
    for (unsigned i = 0; i < SH_STORE_TALLIES; i++) {
        const struct sh_tally *tally = &store->tallies[i];
        status.removes += atomic_load_explicit(&tally->removes, memory_order_relaxed);
        status.creates += atomic_load_explicit(&tally->creates, memory_order_relaxed);
        status.gets += atomic_load_explicit(&tally->gets, memory_order_relaxed);
        status.puts += atomic_load_explicit(&tally->puts, memory_order_relaxed);
        status.payload_bytes += atomic_load_explicit(&tally->payload_bytes, memory_order_relaxed);
    }
    status.chunks = status.creates > status.removes ? status.creates - status.removes : 0;
    struct sh_alloc_status alloc = sh_alloc_status_get(store->alloc);
    status.table_bytes = sh_idpool_bytes(store->pool);
    status.block_bytes = alloc.block_bytes;
    status.free_bytes = alloc.touched_bytes - alloc.block_bytes;
    status.other_bytes = alloc.record_bytes + own_bytes();
    status.used_bytes = status.table_bytes + alloc.touched_bytes + status.other_bytes;
    *status_out = status;
}
