/* The newest version of each chunk of a zone that is known, for reading the zone: its entries, and the tuples of its version log, come in
 * any order.
 *
 *   buckets:  [region] ...               linear hashing (Litwin, VLDB 1980): two for each region, so that a new one splits no more
 *   regions:  [number, next, group * 16]  the chunks 256 * number to 256 * number + 255
 *   cells:    [version] * 16              of each group, in blocks of 2 MiB
 *
 * Nobody has to know beforehand how many chunks there are, or where. Of a zone of millions of chunks that lie close buckets and regions stay in the
 * caches, and a look at a chunk is one miss. Such chunks cost 10 bytes each, one without neighbours costs 220. Groups are told in the order in
 * which they came, so that all of it is the same whenever it is done again. Threads: one at a time. */
#ifndef SH_LOG_NEWEST_H
#define SH_LOG_NEWEST_H

#include "log/entry.h"
#include "shoal/err.h"

#define SH_NEWEST_GROUP 16

/* A version, with two marks that say nothing of which is newer. 0: none is known. */
#define SH_NEWEST_REMOVAL 1u
#define SH_NEWEST_TAKEN 2u
#define SH_NEWEST_MARK_BITS 2

struct sh_newest;

SHOAL_NODISCARD enum shoal_err sh_newest_create(struct sh_newest **newest_out); /* ENOMEM */
void sh_newest_destroy(struct sh_newest *newest); /* NULL is allowed */

/* A version of the eon in which all of them are named; a removal has that mark. */
uint64_t sh_newest_value(struct sh_replog_version version, bool is_removal);

static inline bool sh_newest_is_newer(uint64_t value, uint64_t than)
{
    return value >> SH_NEWEST_MARK_BITS > than >> SH_NEWEST_MARK_BITS;
}

static inline bool sh_newest_is_same(uint64_t value, uint64_t other)
{
    return value >> SH_NEWEST_MARK_BITS == other >> SH_NEWEST_MARK_BITS;
}

/* What is known of the chunks of the group that a chunk is in, which is made of zeros where there is none: the chunk's is [chunk % 16].
 * It stays where it is. NULL: out of memory. */
uint64_t *sh_newest_cells(struct sh_newest *newest, uint64_t chunk);

/* Asks the caches for what sh_newest_cells will look at of some chunks, so that their misses overlap: up to SH_NEWEST_AHEAD, and better more than a
 * few. Changes nothing. */
#define SH_NEWEST_AHEAD 32
void sh_newest_prefetch(const struct sh_newest *newest, const uint64_t *chunks, unsigned count);

/* The groups are 0 to sh_newest_groups - 1; *first_out: the group's first chunk. */
uint32_t sh_newest_groups(const struct sh_newest *newest);
uint64_t *sh_newest_group(const struct sh_newest *newest, uint32_t group, uint64_t *first_out);

#endif
