/* Barriers of a shard (metadata.h): a number of members sign on, each with some data, and when as
 * many are there as the barrier is large, the *round* is over and all of them get everyone's data.
 * Then the next round begins. DXRAM thesis §8.1.
 *
 *   NEW      EEXIST (of a random ID: draw another), ELIMIT
 *   RESIZE   ENONAME; ends the round if enough are there by now
 *   FREE     ENONAME
 *   SIGN     ENONAME, ELIMIT. Who is there already gets its data replaced. The result's value is
 *            the round that it takes part in, which may be over by that
 *   OFF      ENONAME; ECANCELED: the round is over. Who is not there is no error
 *   GONE     as OFF, but the others are told: the round is *broken*, and names who is gone. With
 *            SH_BARRIER_SURVIVORS the barrier gets smaller by one instead, which may end the round
 *
 * Of the rounds that are over the last one is kept. */
#ifndef SH_METADATA_METADATA_BARRIERS_H
#define SH_METADATA_METADATA_BARRIERS_H

#include "metadata/metadata.h"

#define SH_BARRIER_SURVIVORS 1u /* those who are left are enough when a member dies */

struct sh_barrier_member {
    uint64_t id;
    const uint8_t *bytes; /* size of them; NULL if 0 */
    uint32_t size;
    /* The shard owner's alone, no part of the state: when the member was heard last (0: not yet),
     * and over whose connection. */
    uint64_t heard_ns;
    shoal_nid nid;
};

struct sh_barrier_chunk;
#define SH_BARRIER_CHUNKS_MAX 4

struct sh_barrier_round {
    uint64_t number; /* from 1 */
    uint64_t gone;   /* the member that broke it; 0: it was not broken */
    size_t count;    /* of members */
    struct sh_barrier_chunk *chunks[SH_BARRIER_CHUNKS_MAX]; /* of members, see sh_barrier_member */
};

struct sh_barrier {
    uint64_t id;
    uint32_t size;
    uint8_t flags;
    struct sh_barrier_round open, last; /* last.number 0: there was none */
};

/* A member of a round, in the order in which they came; `at` is below round->count. */
struct sh_barrier_member *sh_barrier_member(const struct sh_barrier_round *round, size_t at);

/* The lowest bits of a barrier's ID; the others are random. */
static inline unsigned sh_barrier_shard(uint64_t barrier)
{
    return (unsigned)(barrier & 63);
}

/* NULL: there is none. Valid until the next change; only what is the owner's alone may be set. */
struct sh_barrier *sh_metadata_barrier(const struct sh_metadata *metadata, uint64_t barrier);
/* The shard's barriers, one by one; NULL: no more. */
struct sh_barrier *sh_metadata_barrier_at(const struct sh_metadata *metadata, unsigned shard,
                                          size_t at);

#endif
