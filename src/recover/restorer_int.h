/* The inside of a restorer: restorer.c (from RECOVER to the chunks in the store, and what comes behind it), restorer_claims.c (which of them are the zone's),
 * restorer_progress.c (how far that is), restorer_room.c (where the store has no room for it). */
#ifndef SH_RECOVER_RESTORER_INT_H
#define SH_RECOVER_RESTORER_INT_H

#include "cluster/recoveries.h"
#include "metadata/metadata.h"
#include "recover/images.h"
#include "recover/restorer.h"
#include "recover/tail.h"

struct sh_restoring;

/* Another backup of the zone. */
struct sh_restoring_end {
    struct sh_restoring *job;
    struct sh_request request;
    bool is_asking, has_answered;
    shoal_nid nid;
    uint64_t disk;
    uint64_t end; /* before which it has all; 0: it has nothing that could go on */
    uint64_t due_ns;
};

enum sh_restoring_phase {
    SH_RESTORING_RECORD,
    SH_RESTORING_NEAR, /* zones that outweigh this one, and are brought back here, or nowhere yet, are read before */
    SH_RESTORING_ENDS,
    SH_RESTORING_TAKES, /* the replica, out of the keeper's hands */
    SH_RESTORING_WAITS, /* until no other zone is read; and is read */
    SH_RESTORING_RUNS,
    SH_RESTORING_ADOPTS,
    SH_RESTORING_ORDER, /* and have taken over what is theirs, wherever they are */
    SH_RESTORING_SIFTS, /* what is not the zone's any more is let go of: for another zone, or before */
    SH_RESTORING_TAKES_OVER, /* what is */
    SH_RESTORING_WHOSE,
    SH_RESTORING_OPENS,
    SH_RESTORING_SERVES,
    SH_RESTORING_DROPS, /* it is served; its own replica is to go */
    SH_RESTORING_UNDOES,
    SH_RESTORING_MAKES_ROOM, /* here, or finds a backup that has room */
    SH_RESTORING_HANDS_ON,   /* to another backup, as there is no room here */
    SH_RESTORING_OVER,
};

#define WARN_NS UINT64_C(10000000000) /* in which what fails is logged again */

/* A zone on its way. */
struct sh_restoring {
    struct sh_restoring *next;
    struct sh_restorer *restorer;
    uint64_t id;
    struct sh_zone record;
    enum sh_restoring_phase phase;
    /* It waits: for an answer, the keeper, the log. */
    bool is_asking, is_taking, is_reading;
    uint64_t due_ns, pause_ns, begun_ns;
    struct sh_zone_op zone_op;
    struct sh_order_op order_op;
    struct sh_take_op take_op;
    struct sh_tree_op tree_op;
    unsigned ends_count;
    struct sh_restoring_end ends[SH_ZONE_BACKUPS_MAX];
    uint64_t near;    /* the zone above which it is looked for others that go first; 0: its own */
    uint64_t ends_ns; /* until then they are waited for; 0: not yet */
    uint64_t least;   /* of the other ends; UINT64_MAX: there is none */
    bool has_replica; /* it was taken out of the keeper's hands */
    struct sh_replog_zone *log;
    uint64_t end;
    struct sh_images images;
    struct sh_tail tail;
    /* What the zone claims, in order, without overlaps, and how far that has got. */
    struct sh_metadata_run *runs;
    size_t runs_count, run, taking; /* taking: how many the question under way is for */
    uint64_t asked_to;              /* of a run of which only a part is asked for; 0: all */
    uint64_t at;                    /* chunk ID in that run; 0: its first */
    struct sh_restoring_parts {
        struct sh_metadata_run *runs;
        size_t count, room;
    } served, away; /* this node's, and others' */
    struct sh_restoring_parts
        there; /* of served, what has chunks, beside a zone that is lost: up to that ID in that run; 0: its first */
    size_t there_run;
    uint64_t there_at;
    bool takes_all;  /* also beside a zone that is lost: the superpeers keep no more ranges */
    size_t told;     /* completions that are known to who answers requests */
    uint64_t number; /* of the zone in the backup; 0: it is not adopted */
    enum shoal_err err;
    unsigned handed;      /* how often, or in vain: the next one is another backup */
    shoal_nid next_owner; /* HANDS_ON: the backup that has room for it; NONE: whichever is next */
    enum shoal_err why;   /* it is handed on */
    /* Bytes as they count for a zone: that found no room by now; that found none when this node tried last, and that the zone had in all then. */
    uint64_t missing, lacked, needed;
    bool
        reads_versions; /* before it takes any chunk: there was no room for those that are outdated as well */
    uint64_t no_room_ns;   /* when that was logged last; 0: it was not */
    enum shoal_err warned; /* what was logged last, and when */
    uint64_t warned_ns;
    bool
        has_sent; /* other backups may have got what this node's replica does not have, when it was adopted before */
    bool
        is_outweighed; /* by a zone of which the node heard once this one was being read, or in the store */
    bool is_ordered; /* no zone goes first any more */
    bool
        is_beside_lost; /* one that would have is lost, and may have had chunks that this one claims */
    bool
        is_awaited; /* another zone is read once this one claims nothing but what is its former owner's now */
    uint64_t sift_ns,
        sifted_ns; /* when it was looked for that, and when it was so last; 0: not yet */
};

struct sh_restorer {
    struct sh_restorer_config config;
    struct sh_replog *log; /* NULL: it is not open yet */
    shoal_nid nid;
    struct sh_restoring *jobs;    /* by ID, the highest first */
    struct sh_restoring *reading; /* the one whose chunks are put into the store */
    uint64_t
        next_ns; /* before that no job has anything to do: of those that are served very many may wait for hours */
    uint64_t moves_ns, moves_pause_ns; /* before that no chunks are moved to make room */
    struct sh_restorer_status status;
};

/* What the job has asked for is answered. */
void sh_restoring_answered(struct sh_restoring *job);
void sh_restoring_to(struct sh_restoring *job, enum sh_restoring_phase phase);
/* The same phase again, after a pause. */
void sh_restoring_again(struct sh_restoring *job);
void sh_restoring_fail(struct sh_restoring *job, enum shoal_err err);
bool sh_restoring_may_repeat(enum shoal_err err);

/* Asks whether zones go first that are above that one; 0: above this one, or, if the former owner had taken this one over, any. near: only
 * those that no other node brings back. */
void sh_restoring_order_ask(struct sh_restoring *job, uint64_t above, bool near,
                            void (*done)(struct sh_order_op *op, enum shoal_err err,
                                         uint64_t zone));

/* restorer_progress.c: what superpeers are told. */
struct sh_restore_progress sh_restoring_progress(const struct sh_restoring *job);

/* restorer_claims.c: RUNS to SERVES. */
/* Frees what is known of the zone's runs. */
void sh_restoring_parts_end(struct sh_restoring *job);
/* Has the backup forget the zone again, if it has adopted it. */
void sh_restoring_adopted_cancel(struct sh_restoring *job);
void sh_restoring_claims_step(struct sh_restoring *job, uint64_t now_ns);

/* restorer_room.c */
void sh_restoring_room_step(struct sh_restoring *job, uint64_t now_ns);
void sh_restoring_hand_on(struct sh_restoring *job, uint64_t now_ns);

#endif
