/* Own local ID -> group: one load at any size of store.
 *
 * Local IDs are handed out in sequence and reused smallest first, so the table is dense: it is an
 * array in a reserved range whose pages the kernel backs when they are first touched. The page
 * table is the radix tree of DESIGN, walked by hardware. The table ends at `limit`; what lies
 * beyond reads as "no such chunk" and is not touched.
 *
 * A table that shrinks hands pages back, so that a group's version may begin anew while a reader
 * that was delayed still remembers an old one. Versions therefore begin at an epoch, which rises
 * with every such shrinking over all that the pages' groups have reached (sh_idtable_version). A
 * version has 47 bits, so it comes back after 2^47 changes of a group, or 2^23 epochs, which take
 * half an hour at the least: only to a reader that stood still between two loads for exactly as
 * long. */
#ifndef SH_STORE_IDTABLE_INT_H
#define SH_STORE_IDTABLE_INT_H

#include "store/group_int.h"
#include "store/memory_int.h"

/* A trillion: 2 TiB of groups. What one node could hold is bounded by its memory long before. */
#define SH_IDTABLE_IDS_MAX (UINT64_C(1) << 40)

struct sh_idtable {
    struct sh_vm vm;
    struct sh_budget *budget;
    _Atomic uint64_t limit; /* IDs below it have an entry; moved by the ID pool, under its lock */
    uint64_t kept;          /* IDs below it have their memory charged, and maybe resident; not below
                             * limit; under the ID pool's lock */
    uint64_t ids_max;
    _Atomic uint64_t epoch;
    uint64_t huge_bytes; /* asked for as huge pages, from the start; under the ID pool's lock */
};

/* ENOMEM. Keeps budget until destroy. */
SHOAL_NODISCARD enum shoal_err sh_idtable_init(struct sh_idtable *table, uint64_t ids_max,
                                               struct sh_budget *budget);
void sh_idtable_destroy(struct sh_idtable *table);

/* Moves the limit up. EFULL changes nothing. Under the ID pool's lock. */
SHOAL_NODISCARD enum shoal_err sh_idtable_grow(struct sh_idtable *table, uint64_t limit,
                                               bool may_dip);
/* Moves the limit down, and gives the pages of entries from `kept` on back. All entries from the
 * limit on must be free and their IDs handed out to nobody. Under the ID pool's lock. */
void sh_idtable_shrink(struct sh_idtable *table, uint64_t limit, uint64_t kept);

/* What a table with that limit may have resident. */
static inline uint64_t sh_idtable_bytes(uint64_t limit)
{
    return sh_pages((limit + SH_GROUP_IDS - 1) / SH_GROUP_IDS * sizeof(struct sh_group))
           << SH_PAGE_BITS;
}

static inline uint64_t sh_idtable_limit(const struct sh_idtable *table)
{
    /* acquire: that the pages below it are charged; pairs with the release in sh_idtable_grow */
    return atomic_load_explicit(&table->limit, memory_order_acquire);
}

/* The ID's group, or NULL where there is none. It stays readable for good: a table that shrinks
 * keeps its range. */
static inline struct sh_group *sh_idtable_find(const struct sh_idtable *table, uint64_t lid)
{
    return lid < sh_idtable_limit(table) ? (struct sh_group *)table->vm.at + (lid >> SH_GROUP_BITS)
                                         : NULL;
}

#define SH_EPOCH_BITS 24

/* The epoch that a group has reached: its first, and one more for each 2^24 changes. */
static inline uint64_t sh_idtable_epoch(const struct sh_group *group)
{
    return atomic_load_explicit(&group->sequence, memory_order_relaxed) / SH_GROUP_VERSION >>
           SH_EPOCH_BITS;
}

/* Gives a group that is held and was never changed (or was zeroed) its first version. */
static inline void sh_idtable_version(struct sh_idtable *table, struct sh_group *group)
{
    if (atomic_load_explicit(&group->sequence, memory_order_relaxed) >= SH_GROUP_VERSION)
        return;
    uint64_t epoch = atomic_load_explicit(&table->epoch, memory_order_relaxed);
    /* relaxed: sh_group_layout_end releases it */
    atomic_fetch_add_explicit(&group->sequence, SH_GROUP_VERSION * ((epoch << SH_EPOCH_BITS) + 1),
                              memory_order_relaxed);
}

#endif
