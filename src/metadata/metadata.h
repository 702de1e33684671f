/* What a shard of the ring keeps (arcs.h): a state machine of updates, without input or output,
 * the same at all replicas of the shard. ring.h orders the updates; snapshot.h copies a state while
 * updates go on.
 *
 *   moved chunks   ranges of chunk IDs that are not all with their creators, and of each source of
 *                  migrations the last batch that was decided about
 *   names          1 to 255 bytes to a chunk ID
 *   zones          who owns each zone and has its replicas (zone.h); of each node the last zone that it
 *                  has created
 *   barriers       which members have signed on, with data, and how the last round ended
 *                  (metadata_barriers.h)
 *   scratch        1 to 255 bytes to at most 1 KiB
 *   dedup table    completion records: of each caller the last update's number and result, so that
 * an update that is sent again is not done again
 *
 * What an update depends on must be in the update or in the state: whether a node is up, the
 * shard's owner finds out before it orders an update.
 *
 * Migrations go in batches, each with a source, a target and a sequence number that rises by
 * source. A batch is committed or aborted, once; each question about it gets the same answer. Of each
 * source the number of the last one is remembered; which it was, the ranges tell, since neither source
 * nor target does anything with the chunks before it knows.
 *
 * Updates of names, barriers and scratch are done once: a caller numbers them, and a repetition of
 * its last one is answered from its completion record. A record is dropped when
 * SH_METADATA_CALLERS_MAX other callers have changed the shard since. The shard counts its updates
 * and remembers up to which one any record may have been dropped; a caller says with each update
 * what the count was before the update was sent first. So an update of a caller without a record
 * was not done before if no record from after that count was dropped, and is refused otherwise,
 * since nothing can tell (RIFL: Lee and others, SOSP 2015, with this instead of its leases). A shard
 * that begins again counts on from elsewhere, so that a count from before says nothing.
 *
 * A shard whose replicas were all lost begins again, with another *incarnation*: from an old copy
 * (RESTORED) or empty, and from what the nodes say that they have (CLAIM). Until all have said it, the
 * shard is not *known*: that a chunk was moved nowhere can't be told, and no batch is decided about.
 *
 * Memory: sources, ranges, names, zones and scratch are items of one ordered map (map_int.h). A name takes
 * 16 bytes beside its own, a range 18, one that a recovery has made 38, a source 18; pages of the map are 69 % full after insertions
 * in no order, so a name of 16 bytes takes 46 bytes then, and 32 after a restore. At most
 * SH_METADATA_NAMES_MAX names, which is 2^24 in all, and SH_METADATA_RANGES_MAX ranges that
 * migrations make. The dedup table takes 12 KiB; barriers and scratch take what their limits say:
 * 17 MiB of a shard. While a snapshot is open, each page that changes is there twice.
 *
 * Threads: one at a time. */
#ifndef SH_METADATA_METADATA_H
#define SH_METADATA_METADATA_H

#include "base/bytes.h"
#include "metadata/zone.h"
#include "ranges/ranges.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_METADATA_RANGES_MAX (1u << 16) /* of a shard, that migrations make */
/* That claims and takes make: what nodes remember of chunks that went on may cut finer what they have. And a
 * recovery is not refused where migrations have used up theirs. */
#define SH_METADATA_CLAIMS_MAX (1u << 20)
#define SH_METADATA_AHEAD_MAX 2048       /* updates of a shard, reserved and not applied */
#define SH_METADATA_NAMES_MAX (1u << 18) /* of a shard: ten million fit when evenly spread */
#define SH_METADATA_ZONES_MAX (1u << 20) /* of a shard */
#define SH_METADATA_RUNS_MAX 256         /* of a batch */
#define SH_METADATA_GONE_MAX 1024        /* ranges that one GONE changes */
#define SH_METADATA_TAKE_MAX 512         /* parts into which ranges cut the runs of a TAKE */
#define SH_METADATA_CALLERS_MAX 256      /* completion records of a shard */
#define SH_NAME_BYTES_MAX 255
#define SH_SCRATCH_VALUE_MAX 1024
#define SH_SCRATCH_MAX 4096             /* entries of a shard */
#define SH_SCRATCH_BYTES_MAX (1u << 20) /* keys and values of a shard */
#define SH_BARRIERS_MAX 256             /* of a shard */
#define SH_BARRIER_MEMBERS_MAX 1024
#define SH_BARRIER_DATA_MAX 1024               /* of a member */
#define SH_BARRIER_ROUND_BYTES_MAX (64u << 10) /* of all members; each of them gets it all */
#define SH_BARRIER_BYTES_MAX (16u << 20)       /* members and their data, of a shard */
/* Of one update. */
#define SH_METADATA_BYTES_MAX (36 + 16 * SH_METADATA_RUNS_MAX)

struct sh_metadata;

enum sh_metadata_kind {
    SH_METADATA_MOVE = 1, /* a batch is committed */
    SH_METADATA_RESOLVE,  /* what became of a batch; one that was not committed yet is aborted */
    SH_METADATA_REFUSE,   /* as MOVE, but the target is not up: ENONODE unless it was decided */
    SH_METADATA_NAME,     /* a name is given, or given another chunk */
    SH_METADATA_UNNAME,   /* a name is removed */
    SH_METADATA_SCRATCH_PUT,
    SH_METADATA_SCRATCH_REMOVE,
    SH_METADATA_BARRIER_NEW,
    SH_METADATA_BARRIER_RESIZE,
    SH_METADATA_BARRIER_FREE,
    SH_METADATA_BARRIER_SIGN, /* a member has come */
    SH_METADATA_BARRIER_OFF,  /* it does not want to wait any more */
    SH_METADATA_BARRIER_GONE, /* it was not heard any more; the shard's owner alone says so */
    /* After a loss, a node's word about its chunks, of the kind `condition` (SH_CLAIM_*), and the last
     * batch that it has begun. */
    SH_METADATA_CLAIM = 16,
    SH_METADATA_KNOWN, /* all have said what they have */
    /* The state is an old copy, since all replicas were lost: it gets the incarnation `sequence`.
     * Names, barriers and scratch stay; where chunks are, and what became of batches, the nodes are
     * to say anew. */
    SH_METADATA_RESTORED,
    /* The peer `from` is gone for good. Others' chunks that it had are lost: nobody's, for ever. Those of
     * its own that are nobody's are with it again, where nobody finds them; its ID may be given to
     * another peer once none of them is with a third one. At most SH_METADATA_GONE_MAX ranges. */
    SH_METADATA_GONE,
    SH_METADATA_ZONE_NEW,
    SH_METADATA_ZONE_CHANGE,
    SH_METADATA_ZONE_REMOVE,
    /* The owner of a zone recovers it for the former one, which has failed (docs/recovery.md): of the runs what is the zone's by its note
     * (sh_metadata_note_is_of) becomes the owner's. Chunks that other nodes have stay theirs. */
    SH_METADATA_TAKE,
};

/* Why an update of a zone may be carried out. */
enum sh_zone_condition {
    SH_ZONE_BY_OWNER, /* if the asker's life is the one that owns the zone */
    /* The superpeer that ordered it has seen to that (superpeer_zones.c). NEW: the zone's record was lost with the
     * shard's replicas, and its owner registers it again. */
    SH_ZONE_BY_OTHER,
};

enum sh_claim {
    SH_CLAIM_SERVES = 1, /* the node serves them */
    SH_CLAIM_GAVE,       /* it created them, and gave them away */
    SH_CLAIM_FROZEN,     /* it has them, and does not know whether a batch of them was committed */
};

enum sh_name_condition {
    SH_NAME_ANY,     /* whether it is there or not; UNNAME: whichever chunk's it is */
    SH_NAME_ABSENT,  /* NAME only: EEXIST if it is there */
    SH_NAME_CURRENT, /* ENONAME if it is not there, EDIFFERS if it is not `expected`'s */
};

/* Chunk IDs first to last, both included. */
struct sh_metadata_run {
    shoal_cid first, last;
};

/* The first of some runs, which are ascending and do not overlap, that ends at the chunk or behind it; count: none does. */
static inline size_t sh_metadata_runs_find(const struct sh_metadata_run *runs, size_t count,
                                           uint64_t chunk)
{
    size_t low = 0;
    while (count) {
        size_t half = count / 2;
        bool is_before = runs[low + half].last.v < chunk;
        low += is_before ? half + 1 : 0;
        count = is_before ? count - half - 1 : half;
    }
    return low;
}

/* Whose a shard notes a chunk to be. Restorers may bring back zones of two lives of a node at one time, and a restorer that fails may have taken only some of a zone: so the
 * shard notes a chunk that a restorer took with that one's life, and with the zone. */
struct sh_metadata_note {
    shoal_nid owner; /* no peer: nobody */
    /* By TAKE: the life of the owner that took it, the zone for which, and in which incarnation of that. All 0: the owner has created it, or it has moved
     * there. */
    uint64_t life, zone;
    uint32_t incarnation;
};

/* Whether a chunk that the replicas of a zone have is the zone's, which is being recovered: the former owner had it in its life (but see SH_ZONE_TAKEN), or a restorer took it for the zone.
 * A TAKE comes too late if its restorer asked for it before the zone became another restorer's. */
bool sh_metadata_note_is_of(const struct sh_metadata_note *note, const struct sh_zone *record);

struct sh_metadata_range {
    shoal_cid first, last; /* both included, of one creator */
    struct sh_metadata_note note;
};

struct sh_metadata_update {
    uint8_t kind, condition;
    /* MOVE, REFUSE, RESOLVE; CLAIM: from, who says it; GONE: from; ZONE: from, who asks. */
    shoal_nid from, to;
    /* MOVE, REFUSE, RESOLVE, RESTORED: not 0; CLAIM: the last batch of `from`, or 0. ZONE: the life of
     * `from`. */
    uint64_t sequence;
    /* NEW: the record. CHANGE: as it is to be, but with the version that it has now, and of no incarnation.
     * REMOVE: its ID and version. TAKE: its ID, incarnation, owner and former owner, with their lives, and of its flags SH_ZONE_TAKEN. */
    struct sh_zone zone;
    shoal_cid cid;        /* NAME */
    shoal_cid expected;   /* with SH_NAME_CURRENT */
    struct sh_bytes name; /* NAME, UNNAME, SCRATCH: 1 to SH_NAME_BYTES_MAX */
    /* NAME and all behind it: who asks (0: nobody who would repeat it), the number of the update,
     * rising by caller, and whether it was sent before. */
    uint64_t caller, number;
    bool is_repeat;
    uint64_t since;        /* the shard's count of updates at some time before it was sent first */
    struct sh_bytes value; /* SCRATCH_PUT, SIGN */
    uint64_t barrier;      /* BARRIER */
    uint32_t size;         /* NEW, RESIZE: 1 to SH_BARRIER_MEMBERS_MAX */
    uint8_t flags;         /* NEW: SH_BARRIER_SURVIVORS or 0 */
    uint64_t member;       /* SIGN, OFF, GONE */
    uint64_t round;        /* OFF, GONE */
    /* In rising order, all of one creator, 1 to SH_METADATA_RUNS_MAX; CLAIM: or none. */
    size_t count;
    struct sh_metadata_run runs[SH_METADATA_RUNS_MAX];
};

/* What came of an update. All: ENOMEM, only where sh_metadata_reserve was not called.
 * MOVE, REFUSE: ECANCELED, it was aborted; ENOTOWNER, the source does not own all of it; ELIMIT, too
 * many ranges; ENONODE, REFUSE (the last three abort it). RESOLVE: ELIMIT, too many ranges. CLAIM:
 * ELIMIT, too many ranges: the shard must not be called known; ECANCELED, the shard is known. TAKE: OK also
 * if nothing was left to be taken; ELIMIT, too many ranges; ETOOBIG, the ranges cut the runs
 * into more than SH_METADATA_TAKE_MAX parts, so that smaller runs have to be taken one after the other.
 * NAME, UNNAME: as the condition says; ELIMIT, too many names.
 * SCRATCH: ENONAME; ELIMIT, the shard's bound. BARRIER: metadata_barriers.h.
 * ZONE_NEW: OK also if the zone is there and is this life's: its record stays as it is; EEXIST, it is another's;
 * ECANCELED, the number is not above the creator's last one, so the zone is not made, now or later, but by a NEW
 * that registers it again; ELIMIT, too many zones. ZONE_CHANGE, ZONE_REMOVE: OK also if it was done before; ENONAME; EDIFFERS, the version is another; ENOTOWNER,
 * the asker does not own it. CHANGE: EINVAL, a concluded zone's bounds change, or the former
 * owner is not as it has to be: who takes the zone from its owner keeps the former one, or names that owner if there
 * is none, and the owner alone takes it out; ELIMIT, no number is left.
 * All that have a caller: ECANCELED, it is older than the caller's last one. Of a caller that is
 * not known, and forgotten may be what came after `since`: ETIMEOUT, a repetition, which may have
 * been done; EAGAIN, else: who never sent it before may send it again with the count of now. None
 * of these changes anything. */
struct sh_metadata_result {
    enum shoal_err err;
    bool is_committed; /* RESOLVE */
    shoal_cid cid;     /* NAME, UNNAME: whose the name was before; also with EEXIST and
                        * EDIFFERS; 0: nobody's.
                        * BARRIER: the round, as a number */
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_create(struct sh_metadata **metadata_out);
void sh_metadata_destroy(struct sh_metadata *metadata);

/* An update as bytes, at most SH_METADATA_BYTES_MAX; its size is written to *size_out. The update
 * is a good one. */
void sh_metadata_update_put(struct sh_writer *w, const struct sh_metadata_update *update);
/* Where in an update with a caller it says whether it is a repetition. */
#define SH_METADATA_REPEAT_AT 17
/* Reads one; of its runs only the first `count` are set. EPROTO: not what put wrote, or not of that
 * shard. */
SHOAL_NODISCARD enum shoal_err sh_metadata_update_get(struct sh_bytes bytes, unsigned shard,
                                                      struct sh_metadata_update *update_out);
/* The same, of whichever shard. */
SHOAL_NODISCARD enum shoal_err sh_metadata_update_get_any(struct sh_bytes bytes,
                                                          struct sh_metadata_update *update_out);
/* The shard of an update; not of KNOWN, RESTORED, GONE and a CLAIM without runs, which are of any. */
unsigned sh_metadata_shard(const struct sh_metadata_update *update);

/* Sees to it that apply will not lack memory for an update, whatever the updates do that were
 * reserved before and are not applied yet, at most SH_METADATA_AHEAD_MAX of the shard. Where one
 * update is reserved, all that are applied before it are reserved too, in the order in which they
 * are applied; an update that is never applied needs no other call. ENOMEM: the update must not be
 * ordered, or taken from the owner that has ordered it; nothing has changed. */
SHOAL_NODISCARD enum shoal_err sh_metadata_reserve(struct sh_metadata *metadata, unsigned shard,
                                                   const struct sh_metadata_update *update);
/* Carries an update out in its shard, all of it or nothing. ENOMEM, only of an update that was not
 * reserved. */
struct sh_metadata_result sh_metadata_apply(struct sh_metadata *metadata, unsigned shard,
                                            const struct sh_metadata_update *update);

/* Empties a shard, which begins again; incarnation not 0. */
void sh_metadata_begin(struct sh_metadata *metadata, unsigned shard, uint64_t incarnation,
                       bool is_known);
/* 0: the shard was not begun here. */
uint64_t sh_metadata_incarnation(const struct sh_metadata *metadata, unsigned shard);
bool sh_metadata_is_known(const struct sh_metadata *metadata, unsigned shard);

/* How much of a shard refers to a peer: names of chunks that it created, and ranges of chunks that
 * are not with their creator, of which it is the one or the other. lost: those of the ranges that GONE
 * changes. zones: of which it is the creator, the owner or the former owner, or has a backup. */
struct sh_metadata_refs {
    uint32_t names, ranges, lost, zones;
};
struct sh_metadata_refs sh_metadata_refs(const struct sh_metadata *metadata, unsigned shard,
                                         shoal_nid nid);

/* The range that holds a chunk ID, and its note: the creator's, unless it was moved. */
struct sh_metadata_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid);
/* ENONAME. */
SHOAL_NODISCARD enum shoal_err sh_metadata_lookup(const struct sh_metadata *metadata,
                                                  struct sh_bytes name, shoal_cid *cid_out);
/* The first name of a shard that is greater than `after` (NULL at: from the beginning) and begins
 * with prefix; borrowed until the next change. False: there is none. By bytes, ascending. */
bool sh_metadata_name_next(const struct sh_metadata *metadata, unsigned shard,
                           struct sh_bytes prefix, struct sh_bytes after, struct sh_bytes *name_out,
                           shoal_cid *cid_out);

/* How many updates of callers there were, for sh_metadata_update.since. */
uint64_t sh_metadata_updates(const struct sh_metadata *metadata, unsigned shard);

/* Bytes of keys and values that the shard of a scratch key would have with a value of that size.
 */
size_t sh_metadata_scratch_bytes(const struct sh_metadata *metadata, struct sh_bytes key,
                                 size_t value_size);
/* The value of a scratch key, borrowed until the next change. ENONAME. */
SHOAL_NODISCARD enum shoal_err sh_metadata_scratch_get(const struct sh_metadata *metadata,
                                                       struct sh_bytes key,
                                                       struct sh_bytes *value_out);
/* As sh_metadata_name_next. */
bool sh_metadata_scratch_next(const struct sh_metadata *metadata, unsigned shard,
                              struct sh_bytes prefix, struct sh_bytes after,
                              struct sh_bytes *key_out, struct sh_bytes *value_out);
/* What a shard takes: how many of each, and bytes of memory. moved: ranges that are not with their
 * creators, among the first SH_METADATA_WALK_MAX. */
#define SH_METADATA_WALK_MAX 256
struct sh_metadata_sizes {
    size_t ranges, moved, sources, names, bytes;
    size_t zones, zones_short, zones_recovering,
        zones_lost; /* short: sh_zone_is_short; recovering: with a former owner */
};
struct sh_metadata_sizes sh_metadata_measure(const struct sh_metadata *metadata, unsigned shard);

/* Empties a shard; its memory is freed by sweep. */
void sh_metadata_clear(struct sh_metadata *metadata, unsigned shard);
/* Frees at most `budget` pieces of memory of states that are gone, each with up to 400 parts. True:
 * there is more. Each update frees some too. */
bool sh_metadata_sweep(struct sh_metadata *metadata, unsigned budget);

#endif
