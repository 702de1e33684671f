/* The tree from chunk ID ranges to a 64-bit value. CID ranges 2015 §3; DXRAM thesis §1.3.3.
 *
 * Ranges [first, last], both ends included, that do not overlap; each has a value, and neighbours
 * that touch and have equal values are one range. A node's sequence of chunk IDs so costs one
 * entry, however many chunks it has created, until some of them move elsewhere.
 *
 *   set [1,9]=A   1........9 A
 *   set [4,5]=B   1..3 A  4.5 B  6..9 A
 *   set [4,5]=A   1........9 A
 *
 * It leaves to others what the value means (an owner, backups, a zone) and locking: one thread at a
 * time uses a tree, readers included.
 *
 * Departures from the paper: a B+ tree (entries in leaves of 32, so that a full one takes 24.3
 * bytes an entry) instead of a B-tree with in-node ranges; nodes are merged with a sibling when
 * they fit into three quarters of one, instead of at half.
 */
#ifndef SH_RANGES_RANGES_H
#define SH_RANGES_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"
#include "shoal/types.h"

struct sh_ranges;

struct sh_range {
    shoal_cid first;
    shoal_cid last; /* included; not below first */
    uint64_t value;
};

/* Makes an empty tree of at most nodes_max nodes (776 bytes each, at least 64; 16 to 32 entries
 * usually). ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ranges_create(size_t nodes_max, struct sh_ranges **ranges_out);
/* NULL is allowed. */
void sh_ranges_destroy(struct sh_ranges *ranges);

/* Gives the IDs first to last the value, whatever they had before. ELIMIT (nodes_max) and ENOMEM
 * change nothing. */
SHOAL_NODISCARD enum shoal_err sh_ranges_set(struct sh_ranges *ranges, shoal_cid first,
                                             shoal_cid last, uint64_t value);
/* Takes the IDs first to last out, as far as they are in. ELIMIT and ENOMEM change nothing, and
 * come only if the range that holds `last` goes on behind it: taking whole ranges can't fail. */
SHOAL_NODISCARD enum shoal_err sh_ranges_remove(struct sh_ranges *ranges, shoal_cid first,
                                                shoal_cid last);

/* The whole range that holds cid; false when none does. */
bool sh_ranges_find(const struct sh_ranges *ranges, shoal_cid cid, struct sh_range *range_out);
/* The range that holds `from`, or else the first one after it; false when there is none. To go on,
 * continue from range.last + 1 unless that is 2^64. */
bool sh_ranges_next(const struct sh_ranges *ranges, shoal_cid from, struct sh_range *range_out);

/* Takes everything out; keeps the memory for what comes. */
void sh_ranges_clear(struct sh_ranges *ranges);

/* How many ranges there are, and the memory that the tree has taken from the process. */
size_t sh_ranges_count(const struct sh_ranges *ranges);
size_t sh_ranges_bytes(const struct sh_ranges *ranges);

/* Checks order, fill and merging of the whole tree by assertions: for tests. */
void sh_ranges_check(const struct sh_ranges *ranges);

#endif
