/* Going over all groups of a store, a bounded number at a time, while everybody else goes on: for
 * what looks at the whole store in steps. Own groups come first, then those of other creators, each
 * kind in rising order of IDs. What is created or removed meanwhile may or may not be seen. */
#ifndef SH_STORE_WALK_INT_H
#define SH_STORE_WALK_INT_H

#include "store/store_int.h"

/* All zero at the beginning. */
struct sh_walk {
    uint64_t next; /* number of the next group: ID / 16 */
    bool is_foreign;
    bool is_over;
};

/* A group in which some ID is not absent. */
struct sh_walk_group {
    struct sh_group *group;
    shoal_cid first; /* its first ID; of an own one the first place in the table */
    bool is_foreign;
};

/* The ID of one of the group's chunks, as the store's calls take it. */
static inline shoal_cid sh_walk_cid(const struct sh_store *store, const struct sh_walk_group *group,
                                    unsigned index)
{
    uint64_t at = group->first.v + index;
    return group->is_foreign ? (shoal_cid){at} : sh_store_cid(store, SHOAL_NID_NONE, at);
}

/* Finds the next group. False: *budget_inout groups have been looked at, or the walk is over. Takes
 * from *budget_inout what it looked at. Any thread. */
bool sh_walk_next(const struct sh_store *store, struct sh_walk *walk, unsigned *budget_inout,
                  struct sh_walk_group *group_out);

/* How many groups the walk has behind it, and about how many there are in all. */
void sh_walk_progress(const struct sh_store *store, const struct sh_walk *walk, uint64_t *done_out,
                      uint64_t *all_out);

#endif
