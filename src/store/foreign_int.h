/* Groups of chunks that other nodes created: sparse, so in a radix tree with leaves on demand.
 *
 *   group number (creator and local ID / 16: 60 bits) = 9 + 9 + 9 + 9 + 9 + 8 bits, then 7
 *   node: a page of 512 offsets;  leaf: a page of 128 groups, for 2048 consecutive IDs
 *
 * A lookup reads six words whose upper ones stay in the caches. Nodes and leaves are pages of one
 * reserved range, charged when made and kept for the store's life, so readers need no lock. */
#ifndef SH_STORE_FOREIGN_INT_H
#define SH_STORE_FOREIGN_INT_H

#include "base/lock.h"
#include "store/group_int.h"
#include "store/memory_int.h"

#define SH_FOREIGN_LEVELS 6
#define SH_FOREIGN_BITS 9
#define SH_FOREIGN_LEAF_BITS 7

struct sh_foreign {
    struct sh_lock lock; /* STORE_IDS: growth */
    struct sh_vm vm;
    struct sh_budget *budget;
    _Atomic uint64_t pages; /* made so far, the root among them; 0: not even that */
};

/* ENOMEM. Keeps budget until destroy. */
SHOAL_NODISCARD enum shoal_err sh_foreign_init(struct sh_foreign *foreign, uint64_t bytes_max,
                                               struct sh_budget *budget);
void sh_foreign_destroy(struct sh_foreign *foreign);

/* The group, or NULL where no leaf was made. Any thread. */
struct sh_group *sh_foreign_find(const struct sh_foreign *foreign, uint64_t number);
/* The same, making what is missing; EFULL, from the reserve too. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_foreign_make(struct sh_foreign *foreign, uint64_t number,
                                               struct sh_group **group_out);
/* The group with the smallest number from `number` to `last` that has a leaf; NULL when there is none. Any thread. */
struct sh_group *sh_foreign_next(const struct sh_foreign *foreign, uint64_t number, uint64_t last,
                                 uint64_t *number_out);

static inline uint64_t sh_foreign_bytes(const struct sh_foreign *foreign)
{
    return atomic_load_explicit(&foreign->pages, memory_order_relaxed) << SH_PAGE_BITS;
}

#endif
