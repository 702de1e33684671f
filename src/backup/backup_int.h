/* What the files of backup share. */
#ifndef SH_BACKUP_BACKUP_INT_H
#define SH_BACKUP_BACKUP_INT_H

#include <stdatomic.h>

#include "backup/backlog.h"
#include "backup/backup.h"
#include "backup/candidate.h"
#include "backup/copysets.h"
#include "backup/replication.h"
#include "base/lock.h"
#include "cluster/zones.h"
#include "ranges/ranges.h"

#define SH_ZONES_MAX (1u << 20) /* at a time; a power of two */
#define SH_GUARDS 16384u        /* a power of two */

/* Who waits for a zone's writes at one level, by number. */
struct sh_waits {
    struct sh_write *first, *last;
};

struct sh_own_zone;

/* A large chunk of which a zone's backlog gets pieces. */
struct sh_large {
    struct sh_large *next;
    uint64_t chunk; /* 0: there is none */
    struct sh_zone_place {
        struct sh_own_zone *zone; /* where a change is recorded */
        struct sh_own_zone *from; /* it moves from that one to it; NULL: it is there already */
        uint64_t number;          /* of the zone, when it was found: sh_zone_is */
        uint64_t
            gate; /* its move is to wait for that one of `zone` (struct sh_zone_gate); 0: for none */
    } place;
    uint32_t size, told;
    bool is_new;
    bool
        is_left; /* it is retold where it is left, as its move to another zone is not durable yet */
    uint8_t only;                       /* of all its pieces */
    struct sh_backlog_entry last;       /* for which room was taken */
    uint8_t field[8];                   /* what the request that it is of adds to, as it will be */
    struct sh_backlog_entry with_claim; /* only its completion: it goes with the claim */
};

/* One backup of a zone.
 *
 *               OPEN                 answer
 *   [CLOSED] ──────────► [OPENING] ──────────► [STREAMING] ◄── AGAIN ─┐
 *      ▲  ▲                  │ EEXIST                │ └── FULL ──► [FULL]
 *      │  └──── [CLOSING] ◄──┘                       │
 *      └── connection lost, GONE, incarnation rises ─┤
 *                                                    └── LOST, node failed ──► [LOST] ── out of the record ──► [NONE]
 *
 * A backup *rests* when its node was stopped in order, to be back soon, and the zone has another backup. The record does not name a resting backup, so no write
 * waits for it. Its cursor keeps its place in the backlog as long as there is room. When the node is up again, the owner opens the stream at that place, and the backup joins the record like
 * a backup to which the zone was copied.
 *
 * HOME, the own disk of a node alone, is always open. */
struct sh_sink {
    struct sh_own_zone *zone;
    enum sh_sink_state state;
    shoal_nid nid;
    uint64_t disk;    /* 0: not known yet */
    bool is_recorded; /* the superpeers have said so last */
    bool counts;      /* acknowledgements wait for it */
    bool
        is_leaving; /* LOST, and its replica is to begin anew: the record must not name it by then */
    bool
        rests; /* the record stopped naming it while its node was away, and does not name it again yet */
    bool
        has_asked_rise; /* the owner has raised the incarnation, so that this backup may begin anew */
    bool has_begun;     /* the backup has opened the stream: from then on it only goes on */
    bool has_answered; /* the backup has answered OPEN, so it is known how far its replica goes */
    struct sh_backlog_cursor cursor; /* none once LOST */
    uint64_t acked[SH_LEVELS];       /* before which it has all, by level */
    uint64_t wished[SH_LEVELS];      /* before which it was asked to say so at once */
    uint64_t sent;                   /* number behind the last write of which anything was sent */
    uint64_t needed;                 /* the owner itself waits for all before that to be durable */
    uint64_t ack_begun_ns; /* when an ACK for all before ack_end was asked for; 0: none is */
    uint64_t ack_end;
    bool ack_is_durable;
    uint32_t credit, incarnation; /* that it was opened with */
    uint64_t due_ns, pause_ns;    /* CLOSED: when it is opened, and how long it waited for that */
    /* Of what it owes (stalls.c), by the backup's attended_ns. */
    struct sh_sink_watch {
        uint64_t taken, durable; /* when it moved last: bytes of the stream, and acked */
        uint64_t moved_ns;
        uint64_t goal[SH_LEVELS]; /* before which it is to have all, */
        uint64_t goal_ns;         /* as was known then */
        uint64_t alone_ns;        /* when it stood still last, and no other one moved */
        bool owes;
    } watch;
    bool is_stalled;           /* it stands still, and stays, as the zone has no other */
    struct sh_sink_call *call; /* that waits for an answer; NULL: none */
    enum shoal_err why;        /* LOST, */
    uint64_t lost_ns;          /* since then */
};

/* A zone. Whoever has found one may come back to it late, after it was dropped: so it is never freed while the backup lives, but becomes
 * another zone, whose writes have numbers above its own. So a mark of one of its writes is one that is acknowledged, and who has taken room
 * in its backlog, which keeps it from being dropped, sees by its number whether it is still the zone that was found. */
struct sh_own_zone {
    struct sh_backup *backup;
    uint64_t
        number; /* finds it here, and names it in the log with the owner's node ID, if it is not adopted; changes while the backlog is closed */
    uint64_t
        adopted; /* the ID of one that another node has made, and this one has taken over (adopt.c); 0: its own */
    struct sh_own_zone *next_adopted; /* in its bucket */
    uint64_t end;   /* ADOPTED: before which this node has all writes that an earlier owner made */
    uint32_t since; /* the incarnation in which it was taken over */
    uint64_t
        opens_at; /* before which its backups are to have all on their disks, so that it may open; 0: it may not yet */
    uint64_t adopted_ns;
    uint64_t disclaims_ns; /* since when other zones are to disclaim what it keeps; 0: not yet */
    uint64_t before;       /* numbers of writes below that one were an earlier zone's */
    struct sh_backlog backlog;
    _Atomic uint64_t live; /* bytes, as they count for a zone */
    _Atomic uint64_t told; /* completion records; changes with each */
    _Atomic uint64_t
        told_end; /* number behind the last write with a completion record; 0: there was none */
    /* A chunk moves here from a zone that has completion records which are not durable yet, maybe of the chunk: its image here would count for what these
     * are of, so no backup gets that, nor what comes behind it, before they are durable. Chunks of one zone share a gate until the first of them has moved. Guarded
     * by the zones' lock. */
    struct sh_zone_gate {
        uint64_t number;          /* of the last one; one for each */
        struct sh_own_zone *from; /* NULL: there is no gate */
        uint64_t end;             /* the number there before which all is to be durable */
        bool is_set;              /* a move was recorded; else they are under way */
        bool is_wanted;     /* since it is there, a chunk of another zone was refused for it */
        unsigned under_way; /* moves that were promised this gate */
    } gate;
    /* Before which all writes are acknowledged. [SH_LEVEL_ASYNC]: not in use. */
    _Atomic uint64_t acked[SH_LEVELS];
    struct sh_spin waits_lock; /* guards the next two */
    struct sh_waits waits[SH_LEVELS];
    uint64_t wanted[SH_LEVELS];   /* somebody waits for all before that */
    struct sh_zone_claim *claims; /* guarded by the zones' lock */
    size_t claims_count, claims_promised, claims_room;
    bool
        is_to_rise; /* the next change of the record raises the incarnation, so that a backup may begin anew */
    bool is_narrowed; /* ADOPTED: claims were taken out */
    bool is_kept;     /* ADOPTED: it has the claims that it keeps, and no others */
    size_t claims_found,
        claims_retold;   /* ADOPTED: how many its log had; how many were recorded again */
    uint64_t disclaimed; /* number behind the last claim that was cut (disclaim.c); 0: none was */
    /* The same lock: chunks that move away, and are here until they have; leftovers in it; leftovers elsewhere of what it claims. */
    unsigned moves_away, left_here, left_behind;
    _Atomic bool is_dirty; /* in the list of zones that the step is to look at */
    struct sh_own_zone *next_dirty;
    struct sh_own_zone *next_free;                     /* of those that are no zone now */
    struct sh_own_zone *next_entered, *before_entered; /* the step's: of those that are one */
    struct sh_own_zone *next_watched;
    bool is_watched; /* in the list of zones whose backups owe something */
    struct sh_large
        large; /* guarded by the backlog's hold; that it is in the list, by the zones' lock */
    /* No backup takes its writes: those that are to be acknowledged wait, where it may get one soon (is_hopeful), or are refused. */
    _Atomic bool is_bare;
    _Atomic bool is_hopeful;   /* true while it is not bare */
    _Atomic bool is_concluded; /* no new chunks come */
    _Atomic bool is_evacuated; /* until it is dropped, chunks are not made in it again */
    /* The log of the own disk has no room for the zone's next write, nor can it get any: changes go to another zone, or are refused. */
    _Atomic bool is_full;
    /* The step's. */
    bool is_damaged;             /* what the own disk has of it; it is repaired (repair.c) */
    uint64_t told_seen, told_ns; /* it has seen that many, first at that time */
    uint64_t grow_again_ns;      /* its log is not asked for more slots before */
    uint64_t evacuate_ns;        /* it is not evacuated before */
    struct sh_replog_zone *log;  /* of HOME; NULL: there is none */
    struct sh_sink sinks[SH_SINKS_MAX];
    struct sh_zone record;   /* as the superpeers said last; version 0: there is none */
    struct sh_zone asked;    /* the record that was asked for when there was none */
    bool is_doubtful;        /* what was asked last may have been carried out, or not */
    struct sh_record_op *op; /* NULL: nothing is asked */
    uint64_t op_again_ns;    /* not before */
    struct sh_copy *copy;    /* NULL: no backup is being added */
    bool is_removed;         /* the superpeers have removed its record */
    bool is_missing;         /* they have lost it: it is registered again */
    bool
        is_old; /* theirs is an old copy, of the version that is here: it is changed to what it should say */
    uint32_t
        compared; /* the list in which it was the same, or which began before the superpeers said it last */
};

/* A chunk whose last image a zone's log has though it is another zone's now, or is gone: until its removal there is durable. */
struct sh_leftover {
    struct sh_own_zone *zone;
    uint64_t chunk;
    /* Whose claim outweighs the image, so that this one may not go before the image has gone; NULL: the chunk is nobody's, or the zone's own. */
    struct sh_own_zone *claimed_by;
    uint64_t number;  /* removed only when that one is durable in claimed_by; 0: at once */
    uint64_t removal; /* number of the removal; 0: it is not recorded yet */
};

#define SH_EVACUATION_WORDS 1024u /* a power of two */

#define SH_ADOPTED_BUCKETS 256u /* a power of two */

struct sh_own_zones {
    struct sh_own_zone *adopted[SH_ADOPTED_BUCKETS]; /* the step's: by hash of their IDs */
    struct sh_lock lock;                             /* guards what claims change */
    struct sh_ranges *map;            /* from chunk IDs, with their creators, to numbers of zones */
    struct sh_own_zone *_Atomic *all; /* by number modulo SH_ZONES_MAX; NULL: there is none */
    _Atomic uint64_t begin;           /* no zone has a lower number; a multiple of SH_ZONES_MAX */
    _Atomic uint64_t end;             /* above all numbers */
    struct sh_own_zone *free;         /* the step's */
    struct sh_own_zone *first, *last; /* the step's: all that are in `all` */
    uint64_t count;                   /* of these */
    struct sh_own_zone *_Atomic open; /* where new chunks go; NULL: there is none yet */
    struct sh_own_zone *_Atomic spare; /* the next one */
    struct sh_large *larges;           /* all that there are */
    _Atomic unsigned larges_moving;    /* those of them that move to another zone */
    struct sh_leftover *leftovers;
    size_t leftovers_count, leftovers_promised, leftovers_room;
    _Atomic unsigned gates; /* that are set */
    _Atomic size_t at_once; /* those of them whose removals wait for nothing but room */
    struct sh_zone_drop {
        enum sh_zone_drop_phase {
            SH_DROP_NONE,
            SH_DROP_MARKS,
            SH_DROP_SETTLES,
            SH_DROP_MOVES,
            SH_DROP_CLOSES,
            SH_DROP_UNMAPS,
            SH_DROP_LEAVES,
            SH_DROP_TELLS,
            SH_DROP_GOES,
        } phase;
        struct sh_own_zone *zone;
        size_t claim; /* the next one, of which all below that ID was seen to */
        uint64_t below;
        struct sh_write write;
        /* MARKS to MOVES (evacuate.c). */
        unsigned rounds, tries;               /* begun; of a chunk that does not move */
        struct sh_store_rewriting *rewriting; /* of a large chunk */
        uint64_t again_ns;                    /* not before; 0: at once */
    } drop;                                   /* the step's: of one zone at a time */
    struct sh_evacuation {
        struct sh_own_zone *_Atomic zone; /* which one is evacuated; NULL: none */
        _Atomic uint64_t round;           /* rises; while it is odd no chunk may move */
        /* By hash: chunks of which something was recorded in that zone since the round began, that may not be durable. */
        _Atomic uint64_t marks[SH_EVACUATION_WORDS];
    } evacuation;
    /* Bytes of the last zone that there is room for which are kept for chunks of a zone that is evacuated. */
    _Atomic uint64_t kept_bytes;
    uint64_t evacuated;     /* the step's: chunks */
    _Atomic bool has_empty; /* some zone has become empty, or has few chunks left */
    uint64_t
        again_ns; /* the step's: it looks then for zones that are empty, and whose completion records are over; 0: there are none */
    bool
        is_dropping_over; /* guarded by the lock: none is dropped any more, as some leftover is not known */
    uint64_t dropped; /* the step's: how many were */
    uint64_t dropped_writes;
};

/* A question to a backup. */
struct sh_sink_call {
    struct sh_request request;
    struct sh_backup *backup;
    struct sh_sink *sink; /* NULL: nobody waits for it any more */
    uint32_t incarnation;
    bool is_busy;
};
#define SH_SINK_CALLS 64u

/* A question to the superpeers about a zone's record. */
enum { SH_RECORD_NEW, SH_RECORD_CHANGE, SH_RECORD_REMOVE, SH_RECORD_AGAIN, SH_RECORD_LOOK };
struct sh_record_op {
    struct sh_zone_op op;
    struct sh_own_zone *zone;
    struct sh_zone asked;
    int kind;
    bool is_busy;
};
#define SH_RECORD_OPS 16u

/* Comparing the superpeers' records with the zones (compare.c). */
#define SH_STRAYS_MAX 16u
struct sh_compare {
    struct sh_zone_list list;
    bool is_listing;
    uint64_t due_ns; /* of the next list; 0: not set yet */
    uint32_t round,
        done; /* the last list that was begun, and that came to its end: zones that were not compared since are asked about */
    /* Records of zones that this life has dropped. */
    struct sh_zone strays[SH_STRAYS_MAX];
    unsigned strays_count;
    struct sh_zone_op op; /* that removes one of them */
    bool is_removing;
    uint64_t removed; /* its ID */
};

/* A zone's chunks on their way to a backup that is being added. */
struct sh_copy {
    struct sh_own_zone *zone; /* NULL: it is free */
    struct sh_sink *sink;
    enum sh_copy_phase {
        SH_COPY_CLAIMS,
        SH_COPY_CHUNKS,
        SH_COPY_RESULTS,
        SH_COPY_SETTLES,
        SH_COPY_JOINS
    } phase;
    size_t slot;                          /* the next claim */
    uint64_t chunk;                       /* 0, or the next one of that claim */
    struct sh_store_rewriting *rewriting; /* of a large one */
    /* RESULTS: of a part of a claim, and how many are told. */
    struct sh_completion *results;
    size_t results_count, results_room, results_told;
    bool is_results_cut; /* there was no memory for all of them */
    uint64_t bytes;      /* copied so far, as they count for a zone */
};
#define SH_COPIES_MAX 16u

/* Another node that may keep replicas. */
struct sh_backup_peer {
    shoal_nid nid;
    uint64_t instance;
    bool is_up, is_away, is_known, is_asking;
    bool is_silent;           /* it was asked last, and did not answer */
    struct sh_candidate base; /* what the view says of it */
    bool has_room;            /* it keeps replicas, and could take one more, as far as is known */
    bool may_get;             /* the same, it is known, and is not kept out */
    uint32_t firsts;          /* zones whose first backup it is */
    uint64_t due_ns;          /* when it is asked (again) */
    /* It was given up as a backup: when last, how long it is kept out then, and until when it is. */
    uint64_t given_up_ns, pause_ns, not_before_ns;
    uint64_t heard_ns; /* it has said something last, by the backup's attended_ns */
    struct sh_replication_space space;
};
struct sh_space_call {
    struct sh_request request;
    struct sh_backup *backup;
    shoal_nid nid;
    bool is_busy;
};
#define SH_SPACE_CALLS 16u
struct sh_backup_peers {
    struct sh_backup_peer *all;      /* by ID */
    struct sh_candidate *candidates; /* as many */
    struct sh_copysets copysets;     /* of these, where they are wanted; in that memory */
    void *copysets_memory;
    size_t count, room;
    size_t with_room, may_get; /* how many are so */
    bool is_hopeless;          /* none has room, nor are others expected */
    bool has_view;
    uint64_t due_ns;
    bool are_coming;     /* the view has some that it had not before */
    uint64_t settled_ns; /* until then others are expected to come, too */
    struct sh_space_call calls[SH_SPACE_CALLS];
};

struct sh_backup {
    struct sh_backup_config config;
    struct sh_backlog_pool *pool;
    uint64_t window; /* of one backlog */
    struct sh_own_zones zones;
    struct sh_own_zone *_Atomic dirty;
    struct sh_own_zone *stuck; /* the step's: dirty ones that the log had no room for */
    _Atomic uint64_t
        *guards;           /* writes that are waited for, by hash: replicated, and durable << 32 */
    _Atomic uint64_t wide; /* the same of writes of many chunks */
    struct sh_spin waits_lock; /* guards the next two */
    struct sh_waits room_waits;
    struct sh_waits over;           /* the step's: to be called */
    _Atomic uint64_t rooms;         /* how often room was given; changes under the lock */
    _Atomic enum shoal_err trouble; /* of the log, which is out of service then */
    _Atomic enum shoal_err no_zone; /* why there is no spare zone */
    uint64_t zone_again_ns;         /* the step's: tries not before */
    struct sh_replog *log;          /* of the own disk; NULL: that is no backup */
    bool is_on;                     /* else nothing is backed up */
    bool has_found_told;            /* a completion record, in the zone that is about to be found */
    struct sh_acknowledged *acknowledged; /* the step's */
    uint8_t *scratch;                     /* SH_BACKLOG_PIECE_BYTES */
    /* The step's, in a cluster. */
    uint64_t now_ns;
    struct sh_own_zone *making; /* the spare zone to be; NULL: none is made */
    struct sh_backup_peers peers;
    struct sh_sink_call calls[SH_SINK_CALLS];
    struct sh_record_op ops[SH_RECORD_OPS];
    struct sh_copy copies[SH_COPIES_MAX];
    int64_t copy_bytes; /* that may be copied now; below 0: that was copied too early */
    uint64_t copy_ns;   /* when that was counted last */
    /* Until then copies are slow; and until then not, as a zone without a backup is copied, or waits for its turn. */
    uint64_t copies_slow_ns, copies_hurry_ns;
    struct sh_own_zone *tend_at; /* the next zone to be looked at; NULL: the first */
    uint64_t tend_left;          /* how many are */
    uint64_t tend_ns;            /* when all are looked at again */
    struct sh_own_zone *watched; /* the zones whose backups owe something */
    uint64_t attended_ns;        /* time, as far as this node was there to see it */
    uint64_t attended_at_ns, watch_due_ns;
    unsigned given_up; /* backups that stood still, or were slow */
    struct sh_compare compare;
    uint64_t
        made_first; /* zones from that number on are this life's, as far as it has got; 0: none is */
    uint64_t records_lost;    /* that the superpeers had lost, or had an old copy of */
    uint64_t stuck_ns;        /* when zones that are stuck are tried again */
    _Atomic unsigned damaged; /* zones that are, on the own disk */
    uint64_t repaired;        /* zones */
    uint64_t full_told_ns;    /* when that was logged last; 0: never */
    uint64_t messages, message_bytes, copied_bytes, copies_done;
    uint64_t again_bytes, acks, ack_ns, ack_longest_ns;
};

static inline bool sh_backup_is_clustered(const struct sh_backup *backup)
{
    return backup->config.cluster.msg != NULL;
}

/* The name that the store has for a chunk: its own are without this node's ID there, where it has not been told that. */
static inline shoal_cid sh_backup_store_cid(const struct sh_backup *backup, uint64_t chunk)
{
    bool is_nameless =
        !sh_store_has_nid(backup->config.store) && chunk >> 48 == backup->config.nid.v;
    return (shoal_cid){is_nameless ? shoal_cid_local((shoal_cid){chunk}) : chunk};
}

/* A chunk's ID as logs name it: with its creator. */
static inline uint64_t sh_backup_chunk(const struct sh_backup *backup, shoal_cid cid)
{
    return cid.v >> 48 ? cid.v : shoal_cid_make(backup->config.nid, cid.v).v;
}

static inline uint64_t sh_zone_bytes_of(uint32_t size)
{
    return (uint64_t)size + SH_ZONE_CHUNK_BYTES;
}

/* --- Zones (zones.c) --------------------------------------------------------------------------- */

#define SH_CLAIM_BYTES (SH_BACKLOG_HEAD_BYTES + 16)

/* starts: of the node, with this life's; the numbers of zones begin at 2^24 times that, so that no life gives one again, even where
 * the superpeers have forgotten the last one. 0: they begin at 0. */
SHOAL_NODISCARD enum shoal_err sh_zones_make(struct sh_own_zones *zones, uint32_t starts);
void sh_zones_end(struct sh_own_zones *zones);
/* A zone under that number, which nobody finds until it is entered, for good; or is freed. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zone_new(struct sh_backup *backup, uint64_t number, uint64_t next,
                                           struct sh_own_zone **zone_out);
/* The same, and its writes begin with that number in any case: those of zones that were dropped go on. */
SHOAL_NODISCARD enum shoal_err sh_zone_fresh(struct sh_backup *backup, uint64_t number,
                                             uint64_t next, struct sh_own_zone **zone_out);
void sh_zone_enter(struct sh_own_zone *zone);
/* It was dropped: nobody finds it any more. The step's. */
void sh_zone_withdraw(struct sh_own_zone *zone);
void sh_zone_free(struct sh_own_zone *zone);
/* The number of the next new zone. */
uint64_t sh_zones_next(const struct sh_backup *backup);
/* The two in one. */
SHOAL_NODISCARD enum shoal_err sh_zone_make(struct sh_backup *backup, uint64_t number,
                                            uint64_t next, struct sh_own_zone **zone_out);
/* The zone that has a chunk, with its number; NULL: none. Any thread. */
struct sh_own_zone *sh_zones_find_numbered(struct sh_backup *backup, uint64_t chunk,
                                           uint64_t *number_out);
struct sh_own_zone *sh_zones_find(struct sh_backup *backup, uint64_t chunk);
/* Whether the zone is the one that was found. The caller has taken room in its backlog, or the zones' lock. */
static inline bool sh_zone_is(const struct sh_zone_place *place)
{
    return place->zone->number == place->number;
}
/* How many places of zones.all are in use at most. */
static inline uint64_t sh_zones_places(struct sh_own_zones *zones)
{
    uint64_t end = atomic_load_explicit(&zones->end, memory_order_acquire);
    end -= atomic_load_explicit(&zones->begin, memory_order_relaxed);
    return end < SH_ZONES_MAX ? end : SH_ZONES_MAX;
}
/* Adds a claim on what is the zone's by the map, and records nothing. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_zone_claim_enter(struct sh_own_zone *zone,
                                                   const struct sh_zone_claim *claim);
/* Enters a claim that the zone's log has. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zone_claimed(struct sh_own_zone *zone,
                                               const struct sh_zone_claim *claim);

/* Finds where a change is to be recorded, of a chunk that has `before` bytes as they count for a zone and will have `after`; claims fresh IDs. EAGAIN: there is no room, or no
 * zone, now. ENOSPC, ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zones_place(struct sh_backup *backup, uint64_t chunk,
                                              uint64_t before, uint64_t after,
                                              struct sh_zone_place *place_out);
/* The large chunk that is on its way under that ID; NULL: none. The caller has the zones' lock. */
struct sh_large *sh_zones_large(const struct sh_own_zones *zones, uint64_t chunk);
/* Records the image of a chunk that moves to another zone, with the claim. Room for both was taken. is_new: the zone that it moves from has
 * no image of it. */
uint64_t sh_zones_move(struct sh_backup *backup, uint64_t chunk, const struct sh_zone_place *place,
                       bool is_new, const struct sh_backlog_entry *entry);
/* The same of a large chunk, with the last piece. */
uint64_t sh_zones_move_large(struct sh_backup *backup, const struct sh_large *large);
/* It does not move after all. Those that were refused for its gate are told that there is room; not the write whose move it is (NULL: nobody's), which gets nothing by that
 * and would try at once, for ever. */
void sh_zones_move_cancel(struct sh_backup *backup, const struct sh_zone_place *place,
                          struct sh_write *write);
/* A write with a completion record was recorded in the zone. */
void sh_zone_told(struct sh_own_zone *zone, uint64_t number);
/* Whether backups get all that the zone has: it has no gate, or may open it by now. Else what the gate waits for is hurried. The step's. */
bool sh_zone_gate_look(struct sh_own_zone *zone);
/* --- Zones that were taken over (adopt.c) ------------------------------------------------------- */

/* Whether the zone is being brought back: its record has a former owner, or this life has not heard yet that it has none. */
static inline bool sh_zone_is_opening(const struct sh_own_zone *zone)
{
    return zone->adopted && zone->record.former.v;
}
/* The zone that was taken over under that ID; NULL: there is none. */
struct sh_own_zone *sh_zones_adopted(struct sh_backup *backup, uint64_t id);
/* Of a zone that is brought back: whether the backup has all of that on its disk, so that this node's own replica is not needed for it. */
bool sh_zone_adopted_is_at(const struct sh_own_zone *zone, const struct sh_sink *sink);
/* Of a zone that is opening: what its record is to say once it may open. False: it may not yet; returns when to look again in *due_ns. */
bool sh_zone_opens(struct sh_own_zone *zone, uint64_t now_ns, struct sh_zone *wish_out,
                   uint64_t *due_ns);
/* It was dropped: forgets its ID. */
void sh_zone_adopted_leave(struct sh_own_zone *zone);
/* The zone's ID in logs and records. */
static inline uint64_t sh_own_zone_id(const struct sh_own_zone *zone)
{
    return zone->adopted ? zone->adopted : sh_zone_id(zone->backup->config.nid, zone->number);
}

/* --- Leftovers (leftovers.c) ------------------------------------------------------------------- */

/* Room for one leftover more than those that were promised room. ENOMEM. Like the next one it is called with the zones' lock. */
SHOAL_NODISCARD enum shoal_err sh_leftovers_grow(struct sh_own_zones *zones);
/* The chunk has left its zone, with that write to the other one; room was made. is_new: the chunk was removed there before, which counts as long as nobody
 * knows whether that is durable. */
void sh_leftover_begin(struct sh_own_zones *zones, uint64_t chunk,
                       const struct sh_zone_place *place, bool is_new, uint64_t number);
/* Records removals of leftovers whose time has come, and forgets those whose removal is durable; returns how many. */
unsigned sh_zones_leftovers(struct sh_backup *backup);
/* Whether the zone may not be dropped yet: of a chunk that it has, or had, its own image or one elsewhere would be the last one on the disk. The
 * caller has the zones' lock. sh_zones_leftovers hurries the zones for which a drop waits. */
bool sh_zone_is_leaving(const struct sh_own_zone *zone);
/* The zone has an image of a chunk that is not its, or was undone, and there was no room to record its removal. */
void sh_zones_leave(struct sh_backup *backup, const struct sh_zone_place *place, uint64_t chunk);
/* Of a zone that is being brought back: whether the removals of all that is left there are recorded, and the number behind the last of them that is not durable;
 * 0: all are. */
bool sh_zone_left_end(struct sh_own_zone *zone, uint64_t *end_out);
/* The zone is not brought back here after all: what is left in it is not this node's to remove. */
void sh_zone_left_forget(struct sh_own_zone *zone);
/* The chunk is there again: it is no such leftover any more. Before that is recorded in this zone. */
void sh_zones_made(struct sh_backup *backup, const struct sh_own_zone *zone, uint64_t chunk);

/* --- Dropping empty zones (drops.c) ------------------------------------------------------------ */

/* Whether the zone goes, with all that it has. The caller has the zones' lock. */
static inline bool sh_zone_is_closed(const struct sh_own_zone *zone)
{
    const struct sh_zone_drop *drop = &zone->backup->zones.drop;
    return zone == drop->zone && drop->phase > SH_DROP_CLOSES;
}
/* A chunk of that zone went, and its bytes: it may be empty now. Any thread. */
void sh_zone_emptied(struct sh_own_zone *zone);
/* The step's, as far as it gets now; returns how much that was. */
unsigned sh_zones_drop_step(struct sh_backup *backup, uint64_t now_ns);
/* When that is due though nobody wakes. */
uint64_t sh_zones_drop_due_ns(const struct sh_backup *backup);
/* Whether a zone may go soon, which makes room for another one. */
bool sh_zones_is_drop_near(struct sh_backup *backup, uint64_t now_ns);
/* Tells the log of the owner's own disk to drop the zone; calls sh_zone_dropped when it has. Errors of sh_replog_zone_drop. */
SHOAL_NODISCARD enum shoal_err sh_zone_drop_tell(struct sh_own_zone *zone);
void sh_zone_dropped(struct sh_backup *backup, uint64_t number, enum shoal_err err);

/* --- Evacuating zones that have few chunks (evacuate.c) ----------------------------------------- */

/* Below that many bytes a zone has few chunks. */
uint64_t sh_zone_sparse_bytes(const struct sh_backup *backup);
/* A zone that is to be evacuated; NULL: there is none. The step's. */
struct sh_own_zone *sh_zones_sparse_find(struct sh_backup *backup, uint64_t now_ns);
void sh_evacuation_begin(struct sh_backup *backup, struct sh_own_zone *zone);
/* Whether the zone can be emptied now; else the search is due again when its pause is over. */
bool sh_evacuation_is_ready(struct sh_own_zone *zone, uint64_t now_ns);
/* Whether so many bytes have room in the open zone, or in the next one. The step's. */
bool sh_evacuation_has_room(const struct sh_backup *backup, uint64_t bytes);
/* Goes on with it, MARKS to MOVES. */
unsigned sh_evacuation_step(struct sh_backup *backup, uint64_t now_ns);
/* Before the store goes. */
void sh_evacuation_stop(struct sh_own_zones *zones);
/* A change of that chunk is about to be recorded in the zone. Any thread, which has taken room there. */
void sh_evacuation_mark(struct sh_own_zone *zone, uint64_t chunk);
/* Whether a change of that chunk, which has `before` bytes, is to go to the open zone, as its own is evacuated and all that this has of the chunk is
 * durable. Any thread, which has the chunk. */
bool sh_evacuation_moves(struct sh_own_zone *zone, uint64_t chunk, uint64_t before);

/* --- Repairing zones that are damaged on the own disk (repair.c) -------------------------------- */

/* A damaged zone that is to be evacuated; NULL: there is none now. None of them is the open zone any more, if there is another. The step's. */
struct sh_own_zone *sh_zones_damaged_find(struct sh_backup *backup, uint64_t now_ns);
/* The zone was dropped: if it was damaged, it is repaired. */
void sh_zone_repaired(struct sh_own_zone *zone);

/* --- Claims (zones.c) ---------------------------------------------------------------------------- */

/* Adds a claim to the zone, and records it for all backups. The caller has the zones' lock. EAGAIN: there is no room now. */
SHOAL_NODISCARD enum shoal_err sh_zone_claim_append(struct sh_own_zone *zone,
                                                    const struct sh_zone_claim *claim);
/* Records the claim of that slot as it is now, also an empty one, for all backups. The caller has the zones' lock. EAGAIN: there is no room now. */
SHOAL_NODISCARD enum shoal_err sh_zone_claim_record(struct sh_own_zone *zone, size_t slot);
/* Records the claim of that slot once more, for the backup with that cursor only. EAGAIN: there is no room now. ENONAME: the zone has no claim of that slot, nor behind it. */
SHOAL_NODISCARD enum shoal_err sh_zone_claim_retell(struct sh_own_zone *zone, size_t slot,
                                                    uint8_t only);
/* Whether the zone has an image of a chunk that has moved to another one, and no removal of it yet. */
bool sh_zone_has_left(struct sh_own_zone *zone, uint64_t chunk);
/* The claim of that slot; false: there is none, nor behind it. */
bool sh_zone_claim_get(struct sh_own_zone *zone, size_t slot, struct sh_zone_claim *claim_out);
/* Whether the zone claims nothing more: no new chunks come to it, and no chunk is on its way there. */
bool sh_zone_is_final(struct sh_own_zone *zone);

/* Takes what that zone, which is about to open, claims out of the claims of all others that are open (disclaim.c). EAGAIN: there is no room now, or it is not durable at
 * their backups yet. ENOMEM. The caller has the zones' lock. */
SHOAL_NODISCARD enum shoal_err sh_zones_disclaim(struct sh_own_zone *zone);

/* --- Backups of a zone (sinks.c) --------------------------------------------------------------- */

/* Attaches a backup to the zone; NULL: it can't now, as a chunk comes in pieces. */
struct sh_sink *sh_sink_add(struct sh_own_zone *zone, shoal_nid nid, uint64_t disk);
/* The same of the own disk, of a node alone. */
struct sh_sink *sh_sink_home_add(struct sh_own_zone *zone);
/* It is none any more, and is told so. */
void sh_sink_drop(struct sh_sink *sink);
/* The same, without a word to the backup. */
void sh_sink_forget(struct sh_sink *sink);
/* Takes no more of the stream; it counts as long as it is in the record. */
void sh_sink_lose(struct sh_sink *sink, enum shoal_err why);
struct sh_sink *sh_sink_home(struct sh_own_zone *zone);
struct sh_sink *sh_sink_find(struct sh_own_zone *zone, shoal_nid nid);
static inline bool sh_sink_is_node(const struct sh_sink *sink)
{
    return sink->state >= SH_SINK_CLOSED;
}
/* Whether it has what is acknowledged, and gets what comes. */
static inline bool sh_sink_is_well(const struct sh_sink *sink)
{
    return sink->state != SH_SINK_NONE && sink->state != SH_SINK_LOST;
}
/* Whether its node is not up by the view, and it has not been given up yet. */
bool sh_sink_has_failed(const struct sh_sink *sink);
/* Whether its node is not up since it was stopped in order, to be back soon, and the sink has not been given up yet. */
bool sh_sink_is_away(const struct sh_sink *sink);
/* Whether it is well, and its node, if it is one, up. */
static inline bool sh_sink_serves(const struct sh_sink *sink)
{
    return sh_sink_is_well(sink) && !sh_sink_has_failed(sink);
}
/* A backup that the record names, and of which this life knows nothing: nothing is acknowledged until it is out of the record. False: there are too
 * many sinks. */
bool sh_sink_stranger_add(struct sh_own_zone *zone, const struct sh_zone_backup *backup);
/* Says anew whether anything could be acknowledged, now or soon. */
void sh_zone_bare_look(struct sh_own_zone *zone);
/* Opens it if it is time; returns when it is. */
uint64_t sh_sink_tend(struct sh_sink *sink, uint64_t now_ns);
/* The number before which somebody waits for it to have all durably. */
uint64_t sh_sink_wanted_durable(struct sh_sink *sink);
/* Its backups are to have all before that number on their disks, soon. The step's. */
void sh_zone_hurry(struct sh_own_zone *zone, uint64_t end);
/* Takes what backups have said as the zone's acknowledgements. */
void sh_zone_settle(struct sh_own_zone *zone);
void sh_backup_on_acks(void *arg, struct sh_msg_in *in);
/* The zone, or the one that is being made; NULL: there is none of that ID. */
struct sh_own_zone *sh_zone_by_id(struct sh_backup *backup, uint64_t id);
/* Nothing is asked of backups any more. */
void sh_sinks_end(struct sh_backup *backup);
/* Sends what there is for a backup, as far as it goes now. EAGAIN: not all of it, though the backup would take it. */
SHOAL_NODISCARD enum shoal_err sh_sink_stream(struct sh_sink *sink, unsigned *sent_out);

/* --- Backups that stand still (stalls.c) -------------------------------------------------------- */

/* The zone's backups may owe something from now on. */
void sh_zone_watch(struct sh_own_zone *zone);
/* A sink begins. */
void sh_sink_watch_begin(struct sh_sink *sink);
/* It has answered that it is not ready yet. */
void sh_sink_watch_busy(struct sh_sink *sink);
void sh_stalls_step(struct sh_backup *backup, uint64_t now_ns);
uint64_t sh_stalls_due_ns(const struct sh_backup *backup);
/* Whether it serves, and does not stand still. */
static inline bool sh_sink_keeps_up(const struct sh_sink *sink)
{
    return sh_sink_serves(sink) && !sink->is_stalled;
}

/* --- The own disk (backup.c) ------------------------------------------------------------------- */

/* Bytes that a log is asked to keep for the zone: for two versions of each of its chunks. */
uint64_t sh_zone_log_bytes(const struct sh_own_zone *zone);
/* The log has no room for the zone's next write, which the sink's cursor is at (ENOSPC): passes over it where it is of a chunk that was given
 * up, or has the zone's log grow. True: what comes next may be tried at once. Else the zone is full from now on. full.c */
bool sh_home_room_make(struct sh_sink *home);
/* The log has taken what there was, or the next write: the zone is not full. */
void sh_home_room_found(struct sh_own_zone *zone);

/* --- Records (records.c) ----------------------------------------------------------------------- */

/* All zones are to be looked at, soon. */
void sh_zones_tend(struct sh_backup *backup);
unsigned sh_records_step(struct sh_backup *backup, uint64_t now_ns);
/* The zone is to be dropped: its record, and then its replicas. EAGAIN: later. */
SHOAL_NODISCARD enum shoal_err sh_record_remove(struct sh_own_zone *zone);
void sh_backup_fail(struct sh_backup *backup, enum shoal_err err);

/* --- Comparing records (compare.c), and what is said of replicas (needs.c) --------------------- */

/* Whether this life has made a zone of that number: those from made_first on are its own without a gap. */
bool sh_zone_was_made(const struct sh_backup *backup, uint64_t number);
/* Whether a record that the superpeers have is the one that the owner goes by, and no old copy of it. */
bool sh_zone_record_agrees(const struct sh_own_zone *zone, const struct sh_zone *found);
unsigned sh_compare_step(struct sh_backup *backup, uint64_t now_ns);
uint64_t sh_compare_due_ns(const struct sh_backup *backup);
void sh_backup_on_kept(void *arg, struct sh_msg_in *in);

/* --- Other nodes (peers.c) --------------------------------------------------------------------- */

/* NULL: the view does not have it. */
struct sh_backup_peer *sh_backup_peer_find(struct sh_backup *backup, shoal_nid nid);
/* Whether all that are up were asked what room they have. */
bool sh_backup_peers_are_known(const struct sh_backup *backup);
unsigned sh_backup_peers_step(struct sh_backup *backup, uint64_t now_ns);
/* The node has said something: this one is not cut off from it. */
void sh_backup_peer_heard(struct sh_backup *backup, shoal_nid nid);
/* Asks the node soon, so that it says something. */
void sh_backup_peer_ask(struct sh_backup *backup, struct sh_backup_peer *peer);
/* Whether the zone's replica is larger than those are for which it is counted how many nodes have room. Zones are not looked at when a node
 * has got room for that one. */
bool sh_zone_is_large(const struct sh_own_zone *zone);
/* Whether a node that is no backup of the zone could get a replica of it now. */
bool sh_backup_has_other(const struct sh_own_zone *zone);
/* Whether the zone, which has no backup that takes its writes, may have one soon: it is being copied to one, a node has room for it, or other
 * nodes are expected. */
bool sh_backup_is_hopeful(const struct sh_own_zone *zone);
/* A node has failed as a backup: it is kept out for a while, and longer each time. */
void sh_backup_peer_give_up(struct sh_backup *backup, shoal_nid nid);
/* The first backup of a zone has been the one, and is the other one now; either may be of no node. */
void sh_backup_first_changed(struct sh_backup *backup, const struct sh_zone *before,
                             const struct sh_zone *now);
/* Chooses one more backup, or all of a new zone, of `wanted` in all; those that the zone has stay. Returns how many it has chosen. */
unsigned sh_backup_choose(struct sh_own_zone *zone, unsigned wanted, uint64_t now_ns,
                          struct sh_zone_backup chosen_out[SH_ZONE_BACKUPS_MAX]);
void sh_backup_peers_end(struct sh_backup *backup);

/* --- Copying (copy.c) -------------------------------------------------------------------------- */

/* How many zones are copied at a time at most, and bytes a second of all of them. */
unsigned sh_copies_max(const struct sh_backup *backup);
uint64_t sh_copies_rate(const struct sh_backup *backup);
bool sh_copy_is_free(const struct sh_backup *backup);
/* Begins to copy the zone to a backup that was attached. */
void sh_copy_begin(struct sh_sink *sink);
/* The same with a resting backup: it has all of the zone but what is in the backlog, so nothing is copied. */
void sh_copy_go_on(struct sh_sink *sink);
void sh_copy_cancel(struct sh_copy *copy);
unsigned sh_copies_step(struct sh_backup *backup, uint64_t now_ns);
/* Copies and repairs may write so many bytes: the time since they were counted last gives more; a chunk, or a part of one, takes its own. */
void sh_copy_budget_fill(struct sh_backup *backup, uint64_t now_ns);
void sh_copy_budget_take(struct sh_backup *backup, uint64_t bytes);
uint64_t sh_copies_due_ns(const struct sh_backup *backup);

/* --- The witness (witness.c) ------------------------------------------------------------------- */

void sh_backup_witness_set(struct sh_backup *backup);
/* From now on the calling thread changes chunks for that write; NULL: for nobody who waits. */
void sh_backup_writer_set(struct sh_write *write);

/* From now on the calling thread retells chunks for that to take them to another zone, and those that may not go there not at all (ENOTOWNER). */
void sh_backup_evacuator_set(bool is_evacuator);

/* From now on the calling thread retells chunks of that zone for one cursor, and those that the zone has not at all (ENOTOWNER). NULL, 0: it
 * is over. */
void sh_backup_teller_set(struct sh_own_zone *zone, uint8_t only);

/* --- Waiting (waits.c) ------------------------------------------------------------------------- */

/* A change that the calling thread makes for a write was recorded there. */
void sh_write_mark(struct sh_backup *backup, struct sh_write *write, uint64_t chunk,
                   struct sh_own_zone *zone, uint64_t number);
/* All before that number is acknowledged. The step only. */
void sh_zone_acked(struct sh_own_zone *zone, enum sh_level level, uint64_t number);
/* Calls those whose wait is over; returns how many. */
unsigned sh_waits_call(struct sh_backup *backup);
/* There is room, or nothing comes of waiting for it. */
void sh_waits_room(struct sh_backup *backup);
/* The same, and the write that gives the room, which is under way, does not go by it when it waits. NULL: none. */
void sh_waits_room_by(struct sh_backup *backup, struct sh_write *giver);
/* Nobody's wait will end well. */
void sh_waits_fail(struct sh_backup *backup);

/* The step is to look at the zone. Any thread. */
void sh_zone_dirty(struct sh_own_zone *zone);

#endif
