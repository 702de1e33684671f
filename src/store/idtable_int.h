/* Local ID -> entry: one load at any size of store.
 *
 * Local IDs are handed out in sequence and reused smallest first, so the table is dense: it is an
 * array in a reserved range whose pages the kernel backs when they are first touched. The page
 * table is the radix tree of DESIGN, walked by hardware. The table ends at `limit`; what lies
 * beyond reads as "no such chunk" and is not touched. */
#ifndef SH_STORE_IDTABLE_INT_H
#define SH_STORE_IDTABLE_INT_H

#include "store/entry_int.h"
#include "store/memory_int.h"

/* A trillion: 8 TiB of entries. What one node could hold is bounded by its memory long before. */
#define SH_IDTABLE_IDS_MAX (UINT64_C(1) << 40)

struct sh_idtable {
    struct sh_vm vm;
    struct sh_budget *budget;
    _Atomic uint64_t limit; /* IDs below it have an entry; moved by the ID pool, under its lock */
    uint64_t ids_max;
    uint64_t huge_bytes; /* asked for as huge pages, from the start; under the ID pool's lock */
};

/* ENOMEM. Keeps budget until destroy. */
SHOAL_NODISCARD enum shoal_err sh_idtable_init(struct sh_idtable *table, uint64_t ids_max,
                                               struct sh_budget *budget);
void sh_idtable_destroy(struct sh_idtable *table);

/* Moves the limit up. EFULL changes nothing. Under the ID pool's lock. */
SHOAL_NODISCARD enum shoal_err sh_idtable_grow(struct sh_idtable *table, uint64_t limit);
/* Moves the limit down and gives whole pages back. All entries from there on must be free and
 * their IDs handed out to nobody. Under the ID pool's lock. */
void sh_idtable_shrink(struct sh_idtable *table, uint64_t limit);

/* What a table with that limit may have resident. */
static inline uint64_t sh_idtable_bytes(uint64_t limit)
{
    return sh_pages(limit * sizeof(sh_entry)) << SH_PAGE_BITS;
}

static inline uint64_t sh_idtable_limit(const struct sh_idtable *table)
{
    /* acquire: that the pages below it are charged; pairs with the release in sh_idtable_grow */
    return atomic_load_explicit(&table->limit, memory_order_acquire);
}

/* The ID's entry, or NULL where there is none. It stays readable for good: a table that shrinks
 * keeps its range, and a free entry is never written but by who was handed its ID. */
static inline sh_entry *sh_idtable_find(const struct sh_idtable *table, uint64_t lid)
{
    return lid < sh_idtable_limit(table) ? (sh_entry *)table->vm.at + lid : NULL;
}

#endif
