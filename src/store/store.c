#include "store/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "store/store_int.h"

#define BYTES_MAX_LEAST (UINT64_C(1) << 20)
#define RESERVE_SHARE 64
#define CHUNK_BYTES_MOST (UINT32_C(1) << 30)
#define RANGE_IDS_MAX (UINT64_C(1) << 13) /* 60 us */

static uint64_t own_bytes(void)
{
    return sh_pages(sizeof(struct sh_store)) << SH_PAGE_BITS;
}

static enum shoal_err parts_init(struct sh_store *store, const struct sh_store_config *config)
{
    /* The smallest chunk is empty and costs 2 bytes, so more IDs than this can't be in use. */
    uint64_t bytes_max = config->bytes_max;
    uint64_t ids_max = bytes_max / sizeof(struct sh_group) * SH_GROUP_IDS;
    if (ids_max > SH_IDTABLE_IDS_MAX)
        ids_max = SH_IDTABLE_IDS_MAX;
    enum shoal_err err = sh_idtable_init(&store->table, ids_max, &store->budget);
    if (err)
        return err;
    err = sh_idpool_init(store->pool, &store->table, &store->budget);
    if (err)
        return err;
    err = sh_foreign_init(&store->foreign, bytes_max, &store->budget);
    if (err)
        return err;
    err = sh_alloc_init(store->alloc, bytes_max, config->small_pages, &store->budget);
    store->alloc->defers = config->defers;
    if (!err && config->readies && !config->small_pages)
        err = sh_ready_open(store->alloc, &store->ready);
    return err;
}

enum shoal_err sh_store_create(const struct sh_store_config *config, struct sh_store **store_out)
{
    if (config->bytes_max < BYTES_MAX_LEAST || config->bytes_max > SH_ALLOC_RANGE_MAX ||
        config->chunk_bytes_max > CHUNK_BYTES_MOST ||
        config->reserve_bytes > config->bytes_max / 2) {
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
    store->budget.reserve =
        config->reserve_bytes ? config->reserve_bytes : config->bytes_max / RESERVE_SHARE;
    atomic_init(&store->nid, config->nid.v);
    bool charged = sh_budget_charge(&store->budget, own_bytes(), true);
    SH_ASSERT(charged);
    enum shoal_err err = parts_init(store, config);
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
    sh_cut_end(store);
    sh_ready_close(store->ready);
    sh_alloc_destroy(store->alloc);
    sh_foreign_destroy(&store->foreign);
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

void sh_store_nid_set(struct sh_store *store, shoal_nid nid)
{
    uint32_t old = 0;
    /* relaxed: a plain number */
    if (!atomic_compare_exchange_strong_explicit(&store->nid, &old, nid.v, memory_order_relaxed,
                                                 memory_order_relaxed))
        SH_ASSERT(old == nid.v);
}

void sh_store_ids_begin(struct sh_store *store, uint64_t base, uint64_t end)
{
    SH_ASSERT(base % SH_STORE_IDS_BLOCK == 0 && base < end && end <= SHOAL_LOCAL_ID_MAX);
    SH_ASSERT(!store->ids_base && sh_idtable_limit(&store->table) == 1);
    store->ids_base = base;
    sh_store_ids_allow(store, end);
}

uint64_t sh_store_ids_base(const struct sh_store *store)
{
    return store->ids_base;
}

void sh_store_ids_allow(struct sh_store *store, uint64_t end)
{
    SH_ASSERT(end > store->ids_base);
    sh_idpool_end_set(store->pool, end - store->ids_base);
}

uint64_t sh_store_ids_wanted(const struct sh_store *store)
{
    return store->ids_base + sh_idpool_wanted(store->pool);
}

static _Thread_local struct sh_store_shortage shortage;

enum shoal_err sh_store_short(struct sh_store *store, uint64_t needed_bytes)
{
    /* Now a round is worth its while even if the last one could do no more. */
    atomic_store_explicit(&store->defrag.waste_left, 0, memory_order_relaxed);
    uint64_t used = atomic_load_explicit(&store->budget.used, memory_order_relaxed);
    uint64_t room = store->budget.max - store->budget.reserve;
    shortage = (struct sh_store_shortage){needed_bytes, used < room ? room - used : 0};
    return SHOAL_EFULL;
}

struct sh_store_shortage sh_store_shortage_last(void)
{
    return shortage;
}

void sh_store_shortage_text(const struct sh_store *store, char *text_out, size_t room)
{
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    snprintf(text_out, room,
             "%llu of %llu bytes are used: %llu more were needed, %llu are left for it",
             (unsigned long long)status.used_bytes, (unsigned long long)status.bytes_max,
             (unsigned long long)shortage.needed_bytes, (unsigned long long)shortage.left_bytes);
}

static bool own_exists(const struct sh_store *store, uint64_t lid)
{
    const struct sh_group *group = sh_idtable_find(&store->table, lid);
    if (!group)
        return false;
    struct sh_layout layout = sh_group_layout(group);
    return sh_layout_code(&layout, lid & (SH_GROUP_IDS - 1)) >= SH_CODE_FIRST;
}

static bool foreign_exists(const struct sh_store *store, uint64_t cid)
{
    const struct sh_group *group = sh_foreign_find(&store->foreign, cid >> SH_GROUP_BITS);
    if (!group)
        return false;
    struct sh_layout layout = sh_group_layout(group);
    return sh_layout_code(&layout, cid & (SH_GROUP_IDS - 1)) >= SH_CODE_FIRST;
}

/* The first own chunk from a local ID on. */
bool sh_store_has_nid(const struct sh_store *store)
{
    return sh_store_nid(store).v != 0;
}

static bool own_first(const struct sh_store *store, uint64_t lid, uint64_t *lid_out)
{
    const struct sh_group *group;
    /* The table may shrink meanwhile. */
    for (; (group = sh_idtable_find(&store->table, lid)); lid++) {
        struct sh_layout layout = sh_group_layout(group);
        if ((layout.codes[0] | layout.codes[1]) == 0) {
            lid |= SH_GROUP_IDS - 1;
        } else if (sh_layout_code(&layout, lid & (SH_GROUP_IDS - 1)) >= SH_CODE_FIRST) {
            *lid_out = lid;
            return true;
        }
    }
    return false;
}

/* None behind `last` is looked for. */
static bool foreign_first(const struct sh_store *store, uint64_t cid, uint64_t last,
                          uint64_t *cid_out)
{
    const struct sh_group *group;
    uint64_t number;
    while (cid <= last && (group = sh_foreign_next(&store->foreign, cid >> SH_GROUP_BITS,
                                                   last >> SH_GROUP_BITS, &number))) {
        struct sh_layout layout = sh_group_layout(group);
        if (number > cid >> SH_GROUP_BITS)
            cid = number << SH_GROUP_BITS;
        do {
            if (sh_layout_code(&layout, cid & (SH_GROUP_IDS - 1)) >= SH_CODE_FIRST) {
                *cid_out = cid;
                return cid <= last;
            }
            if (++cid == 0)
                return false;
        } while (cid & (SH_GROUP_IDS - 1));
    }
    return false;
}

static bool own_range(const struct sh_store *store, shoal_cid from, uint64_t *first_out)
{
    uint16_t nid = sh_store_nid(store).v;
    uint16_t creator = shoal_cid_creator(from).v;
    uint64_t local = shoal_cid_local(from), place = 0;
    if (creator > nid)
        return false;
    if (creator == nid && local)
        place = local > store->ids_base ? local - store->ids_base : 1;
    return own_first(store, place, first_out);
}

/* The first chunk from an ID on: its ID, and if it is an own one its place. */
struct first {
    shoal_cid cid;
    bool is_own;
    uint64_t place;
};

static bool first_find(const struct sh_store *store, shoal_cid from, struct first *first_out)
{
    const uint64_t owns = (uint64_t)sh_store_nid(store).v << 48;
    uint64_t own = 0, foreign = 0;
    shoal_cid own_cid = {UINT64_MAX};
    if (from.v < owns && foreign_first(store, from.v, owns - 1, &foreign)) {
        *first_out = (struct first){{foreign}, false, 0};
        return true;
    }
    bool has_own = own_range(store, from, &own);
    if (has_own)
        own_cid = sh_store_cid(store, sh_store_nid(store), own);
    bool is_own = !foreign_first(store, from.v, own_cid.v, &foreign);
    if (is_own && !has_own)
        return false;
    *first_out = (struct first){is_own ? own_cid : (shoal_cid){foreign}, is_own, own};
    return true;
}

bool sh_store_next(const struct sh_store *store, shoal_cid from, shoal_cid *cid_out)
{
    struct first first;
    bool is_any = first_find(store, from, &first);
    if (is_any)
        *cid_out = first.cid;
    return is_any;
}

bool sh_store_range(struct sh_store *store, shoal_cid from, shoal_cid *first_out,
                    shoal_cid *last_out)
{
    struct first first;
    uint64_t count = 1;
    if (!first_find(store, from, &first))
        return false;
    bool is_alone =
        first.is_own && first.place == 0 && store->ids_base; /* the next ID is an earlier life's */
    if (first.is_own) {
        while (!is_alone && count < RANGE_IDS_MAX && own_exists(store, first.place + count))
            count++;
    } else {
        while (count < RANGE_IDS_MAX && shoal_cid_local((shoal_cid){first.cid.v + count}) != 0 &&
               foreign_exists(store, first.cid.v + count))
            count++;
    }
    *first_out = first.cid;
    *last_out = (shoal_cid){first.cid.v + count - 1};
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
    status.reserve_bytes = store->budget.reserve;
    status.table_bytes = sh_idpool_bytes(store->pool) + sh_foreign_bytes(&store->foreign);
    status.block_bytes = alloc.block_bytes;
    status.free_bytes = alloc.touched_bytes - alloc.block_bytes;
    status.other_bytes = alloc.record_bytes + own_bytes();
    status.used_bytes = status.table_bytes + alloc.touched_bytes + status.other_bytes;
    *status_out = status;
}
