/* The versions that a backup has given in one epoch of a zone: which number the next write of a chunk gets, without
 * asking the disk.
 *
 *   next(chunk):  slots: [chunk, number, removal?]   a hash table with linear probing, doubled up to a bound
 *                 runs:  [first, last]               consecutive chunks with number 0, which take no slot
 *
 * The table begins empty with each epoch: a chunk's first write in an epoch has number 0, the next one 1, and so on
 * (DXRAM thesis 4 IV.B, 6 IV.2). When it is full, or a number has reached its limit, the caller reads all of it in the
 * pieces (sh_versions_each), writes that to the version log, and begins the next epoch with sh_versions_clear.
 * Runs are ours: a load is one.
 *
 * The table doubles into memory of a pool that all zones of a log share (version_pool.h), never of the heap. A few slots are moved for each that
 * is taken, so no write waits for all of them. Where the pool has no larger table, the one that is there counts as full: the epoch ends sooner. Where
 * more than half of the pool is in use, clear gives back what was taken of it, so that other zones can have it.
 *
 * Memory: 12 bytes a slot, at most three quarters of them used; the first 64 and the runs, 1.9 KiB, are the zone's own. While slots are moved
 * both tables are there. Threads: one at a time, of all that share a pool. */
#ifndef SH_LOG_VERSIONS_H
#define SH_LOG_VERSIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log/entry.h"
#include "log/version_pool.h"
#include "shoal/err.h"

struct sh_versions;

#define SH_VERSIONS_OWN 64u /* slots of the table that needs no pool */

/* A pool for tables of up to so many slots, a power of two: of so many bytes, or what one such table takes. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_versions_pool_create(size_t slots_max, uint64_t bytes,
                                                       struct sh_version_pool **pool_out);
/* A table of so many slots takes so many bytes of it. */
size_t sh_versions_table_bytes(size_t slots);

struct sh_versions_config {
    size_t slots_max;             /* a power of two, 16 at least */
    uint32_t number_max;          /* the highest number that is given, up to SH_REPLOG_NUMBER_MAX */
    struct sh_version_pool *pool; /* of tables of slots_max at least; borrowed */
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_versions_create(const struct sh_versions_config *config,
                                                  struct sh_versions **versions_out);
void sh_versions_destroy(struct sh_versions *versions); /* NULL is allowed */

/* The number of a chunk's write or removal. EFULL: the epoch has to end first; nothing has changed. */
SHOAL_NODISCARD enum shoal_err sh_versions_next(struct sh_versions *versions, uint64_t chunk,
                                                bool is_removal, uint32_t *number_out);

/* The numbers that next would give to chunks that differ, which it then finds room for, if nothing else is asked for in between; 4 chunks at
 * most. EFULL as above: no number has been given. */
SHOAL_NODISCARD enum shoal_err sh_versions_reserve(struct sh_versions *versions,
                                                   const uint64_t *chunks, unsigned count,
                                                   uint32_t *numbers_out);

/* The last number that was given to a chunk in this epoch. False: none was. */
bool sh_versions_get(const struct sh_versions *versions, uint64_t chunk, uint32_t *number_out,
                     bool *is_removal_out);

/* How many chunks have a number. */
uint64_t sh_versions_count(const struct sh_versions *versions);

/* Calls each for the chunks that have a number, in pieces that a step can do: piece 0, 1, and so on, until false is
 * returned. Piece 0 are the runs; each other one up to SH_VERSIONS_PIECE slots. Within a piece chunks ascend; a chunk of
 * a run that was written again comes in another piece too, and counts there. The slots of a piece are moved, so that
 * after the first call only the other pieces, clear and destroy may follow. */
#define SH_VERSIONS_PIECE 4096
bool sh_versions_each(struct sh_versions *versions, size_t piece,
                      void (*each)(void *arg, uint64_t first, uint64_t last, uint32_t number,
                                   bool is_removal),
                      void *arg);

/* No chunk has a number: the next epoch begins. The table stays, or goes back to the pool. */
void sh_versions_clear(struct sh_versions *versions);

/* Of the table, for those that look for the largest. */
size_t sh_versions_slots(const struct sh_versions *versions);
/* All that it takes, of the pool too. */
size_t sh_versions_bytes(const struct sh_versions *versions);

#endif
