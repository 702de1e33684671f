/* Memory for the tables of versions of all zones of a log (versions.h): one mapping of a fixed size, from which tables of any size that is a
 * power of two are cut.
 *
 *   [ table of the largest size ]  [ half ][ quarter ][ free ]  [ free ]  ...
 *
 * A free piece is cut into halves until one has the size that is asked for; a piece that is given back is joined with its other half, if
 * that is free (a buddy system: Knuth, The Art of Computer Programming 1, 2.5). So the tables of all zones together never take more than the
 * pool has; when that has no piece left a zone's table does not grow, and the zone's epoch ends sooner. Pages are the kernel's until they are used.
 *
 * Memory: what has been used of the mapping, and 12 bytes a unit of that. Nothing is allocated once the pool is there. Threads: one at a time. */
#ifndef SH_LOG_VERSION_POOL_H
#define SH_LOG_VERSION_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"

struct sh_version_pool;

/* A pool of `count` pieces of unit_bytes << order bytes each, one at least, which are cut down to unit_bytes, a multiple of 4. order: up to
 * SH_VERSION_POOL_ORDER_MAX. ENOMEM. */
#define SH_VERSION_POOL_ORDER_MAX 20u
SHOAL_NODISCARD enum shoal_err sh_version_pool_create(size_t unit_bytes, unsigned order,
                                                      uint32_t count,
                                                      struct sh_version_pool **pool_out);
/* All pieces have been given back. NULL is allowed. */
void sh_version_pool_destroy(struct sh_version_pool *pool);

/* A piece of unit_bytes << order bytes, whatever these are; NULL: there is none. */
void *sh_version_pool_take(struct sh_version_pool *pool, unsigned order);
void sh_version_pool_give(struct sh_version_pool *pool, void *piece, unsigned order);

/* So many of its bytes may be taken from now on; what has been stays. */
void sh_version_pool_limit(struct sh_version_pool *pool, uint64_t bytes);

/* Bytes that may be taken in all; and of those, in pieces that were. */
uint64_t sh_version_pool_bytes(const struct sh_version_pool *pool);
uint64_t sh_version_pool_used(const struct sh_version_pool *pool);

#endif
