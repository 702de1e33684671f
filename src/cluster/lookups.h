/* The cache of lookups: which node owns a range of chunk IDs, as a superpeer said last.
 *
 *   find(cid) --> ranges (readers wait for nobody) --> owner; the range is marked as used
 *   put(range) -> ranges; over the limit a hand goes round by ID: what is marked loses its mark,
 *                 what is not goes (second chance)
 *
 * What is cached may be out of date at any time: whoever is refused by the owner found drops the
 * range and asks. A range earns its place by its second use, so that a walk over many chunks, each
 * touched once, does not drive out what is used all the time.
 *
 * Marks are bytes by a hash of the range's first ID. Two ranges may share one, and a reader beside
 * a change may mark the place of a part of a range: both only let a range stay a little longer.
 *
 * Memory: 8 to 16 bytes a range usually (ranges.h), and one byte or two for its mark. At most,
 * whatever the ranges are, 744 bytes for each ten ranges of ranges_max and each of 1024 more nodes
 * of the tree: 20 MB for the default of 262144, and 1.3 MB for the table of owners. Where the tree
 * has no node left, ranges are evicted as if there were too many.
 *
 * Threads: find and stats from any number of threads beside one of the others, which exclude each
 * other by the caller's lock. */
#ifndef SH_CLUSTER_LOOKUPS_H
#define SH_CLUSTER_LOOKUPS_H

#include "ranges/ranges.h"

struct sh_lookups;

struct sh_lookups_stats {
    uint64_t hits, misses; /* of find */
    uint64_t puts;         /* ranges stored */
    uint64_t evictions;    /* for want of room */
    uint64_t drops;        /* by drop and prune: they were wrong, or about to be */
    uint64_t ranges;       /* there now */
    uint64_t bytes;        /* of memory, now */
};

/* At most ranges_max ranges, 1 and more. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_lookups_create(uint32_t ranges_max,
                                                 struct sh_lookups **lookups_out);
/* NULL is allowed. */
void sh_lookups_destroy(struct sh_lookups *lookups);

/* The owner of a chunk; false: not known. Any thread. */
bool sh_lookups_find(struct sh_lookups *lookups, shoal_cid cid, shoal_nid *owner_out);
/* As find, but neither counts nor marks, and gives the range. Any thread. */
bool sh_lookups_look(const struct sh_lookups *lookups, shoal_cid cid, struct sh_range *range_out);

/* Stores a range, whose value is the owner's ID, in place of what was there of it. If there is no
 * room for it, it is left out, and what was there of it too. */
void sh_lookups_put(struct sh_lookups *lookups, const struct sh_range *range);
/* Stores the first of count ranges, 1 and more, and of the others, which nobody has asked for, as
 * many as an eighth of ranges_max. */
void sh_lookups_put_many(struct sh_lookups *lookups, const struct sh_range *ranges, size_t count);
/* Takes out the range that holds the chunk, if any. */
void sh_lookups_drop(struct sh_lookups *lookups, shoal_cid cid);
/* Takes out the ranges of all owners that `keeps` does not want. */
void sh_lookups_prune(struct sh_lookups *lookups, bool (*keeps)(const void *arg, shoal_nid owner),
                      const void *arg);

/* Any thread; beside others' calls, each figure from before or after them. */
struct sh_lookups_stats sh_lookups_stats(const struct sh_lookups *lookups);
/* The most bytes that the tree may take with that many ranges. */
size_t sh_lookups_bytes_max(uint32_t ranges_max);

#endif
