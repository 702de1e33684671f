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
 * It leaves to others what the value means (an owner, backups, a zone).
 *
 * Threads: set, remove, clear and fill exclude each other by the caller's lock. Everything that
 * takes a const tree may run in any number of threads beside one of them, takes no lock and waits
 * for nobody, not even for a changer that lost its core. A change is visible whole or not at all:
 * a reader beside it finds each ID's value from before or from after, never a gap in between. Only
 * a range's end may lag: the range found beside a change may be a part of the true one.
 *
 *                      root
 *             inner node, 1856 B: 112 x (first, reference)
 *            /            |             \
 *       leaf, 512 B: up to 80 boundaries "from this ID on: this value, or nothing"
 *
 * Memory: a leaf stores where values change. Where ranges touch that is one boundary a range, with
 * a gap behind it two. A boundary takes 4 bytes as the distance from the leaf's first (8 where IDs
 * lie more than 2^32 apart), and 2 bytes as the number of its value: values below 16,384 are their own,
 * up to 49,151 others are in the tree's table (8 bytes where that is full). Filled from sorted ranges, leaves are full: 6.4
 * bytes a boundary. After changes in no order they are 85 % full; of a million ranges and more one
 * takes 8.1 bytes where they touch, 15.9 where each stands alone, as measured, all counted. Only
 * where more than 49,151 values that are not small are in use does a range take more, 17.1 bytes if all are different.
 *
 * Reclamation: a published leaf never changes, an inner node only in single references; a change
 * makes new nodes, publishes them by one store, and retires the old ones. Nodes are never unmapped
 * while the tree lives. Retired ones queue, are taken again when 256 others (of inner nodes 16)
 * wait behind them or memory is at its limit, and get a new generation first. References name the
 * generation that they mean, and a reader looks at it again after it has read from a node: what it
 * read counts only if it is the same. So a reader starts again only when, within its one lookup,
 * changes have been completed that took the very node back: hundreds, while there is memory.
 * The generation has 32 bits, so mistaking a node takes a reader that sleeps through 2^32 reuses of
 * one node, exactly. A value's number is given to another value only when the last leaf that used
 * it was taken again, so the same look at the generation covers it.
 *
 * Departures from the paper: a B+ tree of boundaries instead of a B-tree with ranges in its inner
 * nodes; a full leaf shares with its neighbours before three become four, a leaf under a quarter is
 * joined with a neighbour; nodes are copied on write.
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

/* Makes an empty tree of at most nodes_max leaves of 512 bytes (64 to 2^31 - 1; 64 boundaries each
 * usually), and with them at most one inner node of 1856 bytes for eight of them. Takes their
 * addresses at once, their memory as it is needed. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ranges_create(size_t nodes_max, struct sh_ranges **ranges_out);
/* NULL is allowed. Nobody may be using it. */
void sh_ranges_destroy(struct sh_ranges *ranges);

/* Gives the IDs first to last the value, whatever they had before. ELIMIT (nodes_max) changes
 * nothing. The changer only. */
SHOAL_NODISCARD enum shoal_err sh_ranges_set(struct sh_ranges *ranges, shoal_cid first,
                                             shoal_cid last, uint64_t value);
/* Takes the IDs first to last out, as far as they are in. ELIMIT changes nothing, and comes only
 * if a range is cut: taking whole ranges can't fail. The changer only. */
SHOAL_NODISCARD enum shoal_err sh_ranges_remove(struct sh_ranges *ranges, shoal_cid first,
                                                shoal_cid last);

/* Writes the next range and returns true, or returns false at the end. */
typedef bool (*sh_ranges_source)(void *arg, struct sh_range *range_out);
/* Replaces all that is in by the source's ranges, which come in ascending order and don't overlap;
 * neighbours that touch and are equal are joined. Leaves are filled to the last byte. Until the end
 * the tree is as it was, and both take memory. EINVAL (order), ELIMIT and ENOMEM change nothing.
 * The changer only; the source must not change the tree. */
SHOAL_NODISCARD enum shoal_err sh_ranges_fill(struct sh_ranges *ranges, sh_ranges_source source,
                                              void *arg);

/* The whole range that holds cid; false when none does. Any thread. */
bool sh_ranges_find(const struct sh_ranges *ranges, shoal_cid cid, struct sh_range *range_out);
/* The same for count IDs, whose cache misses overlap: in a large tree about twice as fast. A
 * range that there is not is written with its last below its first. Returns how many there are. Any
 * thread. */
size_t sh_ranges_find_multi(const struct sh_ranges *ranges, const shoal_cid *cids, size_t count,
                            struct sh_range *ranges_out);
/* The range that holds `from`, or else the first one after it; false when there is none. To go on,
 * continue from range.last + 1 unless that is 2^64. Any thread. */
bool sh_ranges_next(const struct sh_ranges *ranges, shoal_cid from, struct sh_range *range_out);

/* Takes everything out; keeps the memory for what comes. The changer only. */
void sh_ranges_clear(struct sh_ranges *ranges);

/* How many ranges there are, and the memory that the tree has taken from the process. Any thread;
 * beside a change, from before or after it. */
size_t sh_ranges_count(const struct sh_ranges *ranges);
size_t sh_ranges_bytes(const struct sh_ranges *ranges);

/* Checks order, fill, merging and accounts of the whole tree by assertions: for tests. The changer
 * only. */
void sh_ranges_check(const struct sh_ranges *ranges);

#endif
