/* The current version of each chunk of a zone, for the cleaner of its segments and for dumps: both learn versions in any
 * order, and then ask of each entry whether it is the current one. A reading of a zone has newest.h for that, as it does not
 * know beforehand which chunks there are.
 *
 *   array:  [version]          of the chunks base, base + 1, ...: the long range that most of a zone is
 *   rest:   [chunk, version]   of all others: a hash table with linear probing
 *
 * A version of the current eon is newer than one of the other; in an eon the higher epoch is newer, in an epoch the higher
 * number. So an entry that the cleaner gives the new eon needs an epoch below those of the writes that come then. A
 * removal has a version as a write has.
 *
 * All memory is had at creation, in one piece of zeros, which the kernel makes when they are used: 8 bytes a chunk of the
 * array, 22 a chunk of the rest. The time of a put grows with its run, so a step puts a long one in parts; a walk tells up
 * to SH_CURRENTS_PIECE at a time; the other calls look at one chunk.
 *
 * DXRAM thesis 6 IV.2 (versions), 5 VI.B (array and hash table; there the range is found around the mean of the IDs, here
 * the caller says it). Threads: one at a time; get, is_current and is_kept of several at a time while nothing
 * else is called. */
#ifndef SH_LOG_CURRENTS_H
#define SH_LOG_CURRENTS_H

#include "log/entry.h"
#include "shoal/err.h"

#define SH_CURRENTS_CHUNKS_MAX (UINT64_C(1) << 28) /* of a zone of 256 MiB */

struct sh_currents;

struct sh_currents_config {
    uint64_t base;     /* the array's first chunk; the last one must not be above UINT64_MAX */
    uint64_t count;    /* chunks of the array, 0 to SH_CURRENTS_CHUNKS_MAX */
    uint64_t rest_max; /* other chunks, 0 to SH_CURRENTS_CHUNKS_MAX */
    uint16_t eon;      /* of the current epochs: SH_REPLOG_EON or 0 */
};

/* How many bytes of memory this config takes. */
size_t sh_currents_bytes(const struct sh_currents_config *config);

/* The same as sh_currents_create, in so many bytes of zeros that the caller has, aligned to 8; it is not destroyed. */
struct sh_currents *sh_currents_make(const struct sh_currents_config *config, void *memory);

/* No version is known yet. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_currents_create(const struct sh_currents_config *config,
                                                  struct sh_currents **currents_out);
void sh_currents_destroy(struct sh_currents *currents); /* NULL is allowed */

/* The chunks first to last, whatever IDs those are, have this version: it is kept for each of which no newer one, nor this
 * one, is known. EFULL: more chunks outside the array than there is room for; nothing has changed. */
SHOAL_NODISCARD enum shoal_err sh_currents_put(struct sh_currents *currents, uint64_t first,
                                               uint64_t last, struct sh_replog_version version,
                                               bool is_removal);

/* The newest version that is known. False: none is. */
bool sh_currents_get(const struct sh_currents *currents, uint64_t chunk,
                     struct sh_replog_version *version_out, bool *is_removal_out);

/* Whether a version is exactly the newest one that is known, be that a write or a removal. */
bool sh_currents_is_current(const struct sh_currents *currents, uint64_t chunk,
                            struct sh_replog_version version);

/* Says of a version that an entry of it is kept, for is_kept; unless it is exactly the newest one that is known, nothing happens. A newer
 * version is not kept until that is said of it. */
void sh_currents_keep(struct sh_currents *currents, uint64_t chunk,
                      struct sh_replog_version version);
bool sh_currents_is_kept(const struct sh_currents *currents, uint64_t chunk,
                         struct sh_replog_version version);

/* Chunks of which a version is known. */
uint64_t sh_currents_count(const struct sh_currents *currents);

/* Calls each for all chunks of which a version is known, in pieces that a step can do: piece 0, 1, and so on, until false
 * is returned. Chunks ascend within a piece only. Consecutive chunks of the array with one version come as a run, but one
 * that goes on in the next piece, and chunks of the rest, come apart. put may come between the pieces, but not from within
 * each: what was known before piece 0 is told, as it is now or was then; of what is new, some. */
#define SH_CURRENTS_PIECE 1024
bool sh_currents_walk(const struct sh_currents *currents, size_t piece,
                      void (*each)(void *arg, uint64_t first, uint64_t last,
                                   struct sh_replog_version version, bool is_removal),
                      void *arg);

#endif
