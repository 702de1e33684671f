/* Which superpeer keeps which part of the large metadata: the ring's table, a part of the registry.
 *
 * The metadata is divided into 64 *shards*, for good: by the creator of a chunk, by the hash of a
 * name. The shards lie on a ring, and so do the superpeers, each at a place that follows from its
 * ID. A superpeer's *arc* are the shards behind the superpeer before it, up to its own place; it
 * is to own them, and the next three superpeers are to hold them too (DXRAM thesis §1.3.3). So a
 * superpeer that comes splits one arc, and one that goes leaves its arc to its successor. IDs are
 * laid out so that each new superpeer halves an arc: 1 at place 0, 2 at 32, 3 at 16, 4 at 48, ...
 *
 *       place   0         16         32         48        63
 *               1----------3----------2----------4---------     four superpeers
 *       shard  |1...........16|17......32|33......48|49...0|   belong to  3, 2, 4, 1
 *
 * What *is* the case, the table below says: of each shard the owner, the replicas (superpeers whose
 * disks have its whole state), and a version that rises with each change of the two (the
 * configurations of Vertical Paxos II, Lamport, Malkhi and Zhou, PODC 2009; the registry is their
 * auxiliary master). The table is part of the registry's state, and is changed by the registry's
 * commands only, in the same order everywhere:
 *
 *   start     a superpeer's process has begun on its disk. All versions in which it holds a shard
 *             rise, so that nothing is ordered in a version in which an earlier process ordered;
 *             and where another replica is up, that one becomes the owner, since it also has what
 *             is replicated without being synced
 *   up        a superpeer that was called failed was heard again
 *   gone      a superpeer has failed: it is no replica any more, unless it is the last one; of the
 *             shards that it owned the next replica becomes the owner, at once
 *   retire    a superpeer is to hand everything over
 *   change    what an owner asks for: see enum sh_arc_kind
 *   forget    an operator has declared a superpeer's disk lost
 *
 * A failure never removes the last replica: the shard waits until that superpeer is back, and gets no
 * other replica meanwhile.
 * Only forget, force, and a new process on a disk in memory make a shard that has none. The owner of
 * such a shard looks for the most advanced old copy at the superpeers that are there, which becomes
 * the shard's state (SALVAGE); if there is none, it begins with what the peers say (BUILT). The
 * table keeps where each shard's state is from, for people and for what has to be asked again.
 *
 * Threads: none of its own; a plain value. 4 KB encoded, 5.1 KB in memory. */
#ifndef SH_RING_ARCS_H
#define SH_RING_ARCS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/life.h"
#include "base/node_ids.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_SHARDS 64
#define SH_ARC_COPIES 4 /* the owner, and the next three */

/* What a shard's state began with. */
enum sh_shard_origin {
    SH_ORIGIN_NONE,  /* it has never had a state */
    SH_ORIGIN_NEW,   /* nothing: the cluster was new */
    SH_ORIGIN_COPY,  /* a superpeer's old copy: the last replica was lost */
    SH_ORIGIN_PEERS, /* what the peers said: the last replica was lost, and there was no old copy */
};

/* Bit n of a set stands for superpeer n. */
struct sh_shard {
    uint64_t version;
    uint64_t replicas;
    uint8_t owner;  /* one of the replicas, if there are any; 0: there is no superpeer for it */
    uint8_t origin; /* enum sh_shard_origin */
    /* COPY and PEERS: the version in which the state was put in place. COPY: the superpeer that had the
     * copy, and the epoch (a version of this shard) and sequence of the copy's last update. */
    uint8_t copy_nid;
    uint64_t origin_version;
    uint64_t copy_epoch, copy_sequence;
};

struct sh_arcs {
    uint64_t up;                           /* superpeers that are to own and to hold shards */
    uint64_t present;                      /* these, and the superpeers that are retiring */
    uint64_t lives[SH_SUPERPEERS_MAX + 1]; /* of each superpeer's latest start; 0: never started */
    /* Rises when what others know of a superpeer's copies may be out of date: with each start, and
     * when it is called failed. */
    uint64_t incarnations[SH_SUPERPEERS_MAX + 1];
    struct sh_shard shards[SH_SHARDS];
};

enum sh_arc_kind {
    SH_ARC_ADD = 1, /* nid, of that incarnation, is a replica too */
    /* nid is no replica any more. Refused if nid is up and fewer than two that are up would be
     * left, so that a superpeer that is only slow never leaves one alone with what is answered. */
    SH_ARC_DROP,
    SH_ARC_HAND,  /* nid, a replica, is the owner */
    SH_ARC_BUILT, /* nid, the owner of a shard without replicas, is one now */
    /* Of a shard without replicas: nid has the most advanced old copy; it is owner and replica. */
    SH_ARC_SALVAGE,
};

/* A change of one shard, which counts only if the shard still has that version. */
struct sh_arc_change {
    uint8_t kind, shard, nid;
    uint64_t version;
    uint64_t incarnation;               /* ADD, SALVAGE: nid's */
    uint64_t copy_epoch, copy_sequence; /* SALVAGE: of the copy's last update */
};

#define SH_ARC_CHANGE_BYTES 35

static inline uint64_t sh_arc_bit(unsigned nid)
{
    return UINT64_C(1) << nid;
}

/* The shard of what a peer created, and of a name. */
unsigned sh_arc_shard(shoal_nid creator);
unsigned sh_arc_shard_of_name(struct sh_bytes name);

/* The first of a set of superpeers at the shard's place or behind it; 0: the set is empty. */
unsigned sh_arc_successor(uint64_t set, unsigned shard);
/* The superpeers that are to hold a shard: of the set, the first SH_ARC_COPIES from the shard on. */
uint64_t sh_arc_wanted(uint64_t set, unsigned shard);

enum sh_arcs_start {
    SH_ARCS_STARTED, /* the life is the superpeer's from now on; repeated, it changes nothing */
    SH_ARCS_STALE,   /* the disk was started as often before: it is a copy, or an old backup */
};

/* nid: 1 to SH_SUPERPEERS_MAX; life: of at least one start. */
enum sh_arcs_start sh_arcs_start(struct sh_arcs *arcs, unsigned nid, uint64_t life);
/* The same of a superpeer on a new disk: it is no replica any more. random, not 0: the lower half of
 * its life, whose upper half counts on from what is known. STALE: it is the last replica of a shard,
 * which would be lost; but a disk in memory (is_memory) is lost for sure. */
enum sh_arcs_start sh_arcs_start_empty(struct sh_arcs *arcs, unsigned nid, uint32_t random,
                                       bool is_memory);
/* Each returns whether anything changed. */
bool sh_arcs_up(struct sh_arcs *arcs, unsigned nid);
bool sh_arcs_gone(struct sh_arcs *arcs, unsigned nid);
bool sh_arcs_retire(struct sh_arcs *arcs, unsigned nid);
/* The disk of nid is lost for good: it is no replica any more, and if it comes back, its life counts
 * as old; a new disk may take its place. False: nid is present, or was never started. */
bool sh_arcs_forget(struct sh_arcs *arcs, unsigned nid);
/* All superpeers but nid are lost for good, and with them what was decided since nid heard of it:
 * all shards are without replicas, in versions above any that was in force. */
void sh_arcs_force(struct sh_arcs *arcs, unsigned nid);
/* Whether a superpeer neither owns nor holds anything, so that it can leave. */
bool sh_arcs_is_bare(const struct sh_arcs *arcs, unsigned nid);
/* Whether a DROP of nid would be done. */
bool sh_arcs_may_drop(const struct sh_arcs *arcs, unsigned shard, unsigned nid);
/* Carries a change out. False: the shard's version is not the change's, and nothing was changed. True:
 * the version has risen, even if the change was refused, so that the owner learns that it was decided. */
bool sh_arcs_change(struct sh_arcs *arcs, const struct sh_arc_change *change);

/* Encoded, little-endian: u8 kind, u8 shard, u8 nid, u64 version, u64 incarnation, u64 copy's epoch,
 * u64 copy's sequence. EPROTO. */
void sh_arc_change_put(struct sh_writer *w, const struct sh_arc_change *change);
SHOAL_NODISCARD enum shoal_err sh_arc_change_get(struct sh_reader *r,
                                                 struct sh_arc_change *change_out);
/* The table: u64 up, u64 present, 63 times u64 life, u64 incarnation, 64 times u64 version, u64
 * replicas, u8 owner, u8 origin, u8 copy's superpeer, u64 origin's version, u64 copy's epoch, u64
 * copy's sequence. Get checks that it can be one. EPROTO. */
#define SH_ARCS_BYTES (16 + 16 * SH_SUPERPEERS_MAX + 43 * SH_SHARDS)
void sh_arcs_put(struct sh_writer *w, const struct sh_arcs *arcs);
SHOAL_NODISCARD enum shoal_err sh_arcs_get(struct sh_reader *r, struct sh_arcs *arcs_out);

#endif
