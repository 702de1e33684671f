/* Shared by the files of the keeper. */
#ifndef SH_BACKUP_KEEPER_INT_H
#define SH_BACKUP_KEEPER_INT_H

#include "backup/keeper.h"
#include "backup/replication.h"
#include "cluster/zones.h"

enum sh_kept_state {
    SH_KEPT_LOADING,
    SH_KEPT_LOADED,
    SH_KEPT_OPEN,
    SH_KEPT_DROPPING,
    SH_KEPT_TAKEN,  /* whoever brings the zone back has the replica (keeper_recovery.c) */
    SH_KEPT_SEALED, /* it was taken, and given back */
};

enum sh_kept_stream {
    SH_KEPT_GOES_ON,
    SH_KEPT_FULL,  /* there was no room: nothing is taken until AGAIN is told */
    SH_KEPT_WAITS, /* AGAIN is told, or about to be: what is not the entry that is expected is passed over in silence */
    SH_KEPT_GONE,
    SH_KEPT_LOST,
};

/* How soon the zone's ACK goes. */
enum sh_kept_ack { SH_KEPT_ACK_NONE, SH_KEPT_ACK_SOON, SH_KEPT_ACK_NOW };

struct sh_keeper_owner {
    shoal_nid nid;
    bool is_dirty, is_urgent;
    uint64_t due_ns;              /* of its oldest ACK */
    struct sh_kept *first, *last; /* zones that an ACK is to be sent of, the oldest first */
    struct sh_keeper_owner *next; /* dirty */
};

/* A zone that the keeper knows. */
struct sh_kept {
    struct sh_kept *next; /* in its bucket */
    uint64_t id;
    struct sh_replog_zone *log; /* of an open one */
    struct sh_keeper_owner *owner;
    uint64_t life;
    uint32_t incarnation; /* the highest that was heard of */
    uint8_t state;        /* enum sh_kept_state */
    bool is_quiet;        /* nothing has come since the last look for orphans */
    uint64_t owned;       /* keeper->owned, as an owner has opened or closed it last */
    /* Of one that was found on the disk: the incarnation in which its replica was written last, and then what its load told. */
    uint32_t found;
    uint64_t end;
    bool was_whole; /* when it was sealed: nothing that was acknowledged is missing */
    /* Of an open one. */
    uint8_t stream;      /* enum sh_kept_stream */
    enum shoal_err lost; /* why */
    uint32_t part;       /* of the log's next write: entries that it has, or that were abandoned */
    uint32_t unacked;    /* bytes that were taken since the last ACK */
    uint64_t whole_at;   /* it has all that was acknowledged once it has all before that number */
    uint64_t
        began; /* anew at that number, in this incarnation of the keeper's process; 0: it went on */
    uint64_t wanted; /* the owner waits for all before that to be durable; 0: it does not */
    bool is_suspect; /* what came last was malformed */
    /* Of a full one. */
    uint64_t again_ns, pause_ns, full_ns;
    uint64_t progress; /* of the log, when it became so */
    struct sh_kept *next_full;
    /* In its owner's list. */
    uint8_t ack;   /* enum sh_kept_ack */
    bool is_again; /* the next ACK says so */
    struct sh_kept *next_ack;
    /* Of one that is dropped: whom to tell. */
    bool has_closer;
    struct sh_reply_to closer;
    /* Of one that is TAKEN, while the log seals it: whom to tell. */
    sh_keeper_taken taken;
    void *taken_arg;
};

/* A node that is to be told that a zone is not open here. */
struct sh_keeper_gone {
    shoal_nid to;
    uint64_t zone;
    uint32_t incarnation;
};
#define SH_KEEPER_GONE_MAX 64u

/* A replica that may be an orphan. */
struct sh_orphan {
    uint64_t id;
    uint64_t owned; /* of what the keeper knew of the zone then; 0: it did not know it */
    uint64_t life;  /* of the owner that has answered */
    uint32_t incarnation;
    shoal_nid owner;
    uint8_t need; /* enum sh_replication_need */
    bool is_asked;
};

/* The look for orphans, which goes over all replicas page by page (orphans.c). */
struct sh_orphans {
    enum sh_orphans_phase {
        SH_ORPHANS_REST,
        SH_ORPHANS_OWNERS,
        SH_ORPHANS_OWNER_ASKED,
        SH_ORPHANS_RECORDS,
        SH_ORPHANS_RECORD_ASKED,
    } phase;
    uint64_t began_ns, due_ns; /* REST: 0: it has not begun */
    uint64_t cursor;           /* of sh_replog_look_zones */
    struct sh_orphan zones[SH_REPLICATION_KEPT_MAX];
    unsigned count, at;
    shoal_nid asked; /* owner */
    struct sh_request request;
    struct sh_zone_op op;
};

struct sh_keeper {
    struct sh_keeper_config config;
    struct sh_keeper_gone
        gone[SH_KEEPER_GONE_MAX]; /* that could not be sent yet; what does not fit is dropped */
    unsigned gone_count;
    uint64_t gone_ns; /* when that is tried again */
    struct sh_kept **buckets;
    uint64_t mask;
    struct sh_keeper_owner **owners; /* by node ID; NULL: it has had no zone here */
    struct sh_keeper_owner *dirty;
    struct sh_kept *full;
    uint64_t warned_ns; /* when a malformed message was logged last */
    bool has_failed;    /* the log is out of service, and streams are lost */
    /* When the kernel was last asked for the disk's bytes, and what it said. */
    uint64_t space_ns, disk_bytes, disk_free;
    uint64_t owned; /* rises with each OPEN and CLOSE that is taken */
    struct sh_orphans orphans;
    struct sh_keeper_status status;
};

/* NULL: the keeper does not know it. */
struct sh_kept *sh_keeper_find(const struct sh_keeper *keeper, uint64_t id);

/* --- What the keeper knows (keeper.c) ------------------------------------------------------------ */

/* ENOSPC, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_kept_make(struct sh_keeper *keeper, uint64_t id,
                                            struct sh_kept **kept_out);
void sh_kept_forget(struct sh_keeper *keeper, struct sh_kept *kept);
void sh_kept_state_set(struct sh_keeper *keeper, struct sh_kept *kept, enum sh_kept_state state);
/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_keeper_owner_get(struct sh_keeper *keeper, shoal_nid nid,
                                                   struct sh_keeper_owner **owner_out);
/* Begins to load a zone that is on the disk from an earlier process, and that nobody has opened since. EBUSY: that was begun, or another one is
 * loaded now. */
SHOAL_NODISCARD enum shoal_err sh_kept_load(struct sh_keeper *keeper, struct sh_replog_zone *zone);
/* Begins to drop all that the log has of a zone, which it has sealed, or found. Errors of sh_replog_zone_drop. */
SHOAL_NODISCARD enum shoal_err sh_kept_drop(struct sh_keeper *keeper, struct sh_kept *kept);

/* --- Recoveries (keeper_recovery.c) -------------------------------------------------------------- */

void sh_keeper_on_prepare(void *arg, struct sh_msg_in *in);

/* --- Streams (keeper_append.c) ----------------------------------------------------------------- */

void sh_keeper_on_append(void *arg, struct sh_msg_in *in);
/* The stream ends here: the log takes no more of it. */
void sh_kept_lose(struct sh_keeper *keeper, struct sh_kept *kept, enum shoal_err err);
/* Asks for streams again that were full; returns how many. */
unsigned sh_keeper_full_step(struct sh_keeper *keeper, uint64_t now_ns);
/* When the next of them may be asked for. */
uint64_t sh_keeper_full_due_ns(const struct sh_keeper *keeper, uint64_t now_ns);
void sh_kept_full_leave(struct sh_keeper *keeper, struct sh_kept *kept);

/* --- ACKs (keeper_acks.c) ---------------------------------------------------------------------- */

void sh_kept_ack(struct sh_keeper *keeper, struct sh_kept *kept, enum sh_kept_ack ack);
/* The zone's ACK is not sent. */
void sh_kept_ack_leave(struct sh_keeper *keeper, struct sh_kept *kept);
/* None of the owner's is. */
void sh_keeper_acks_drop(struct sh_keeper *keeper, struct sh_keeper_owner *owner);
/* Tells a node that a zone is not open here in that incarnation, now or in a step. */
void sh_keeper_gone_tell(struct sh_keeper *keeper, const struct sh_keeper_gone *gone);
unsigned sh_keeper_acks_step(struct sh_keeper *keeper, uint64_t now_ns);
uint64_t sh_keeper_acks_due_ns(const struct sh_keeper *keeper);

/* --- Orphans (orphans.c) ----------------------------------------------------------------------- */

unsigned sh_keeper_orphans_step(struct sh_keeper *keeper, uint64_t now_ns);
uint64_t sh_keeper_orphans_due_ns(const struct sh_keeper *keeper);
void sh_keeper_orphans_end(struct sh_keeper *keeper);
/* Drops what there is of a zone, as if its owner, in that life, had sent CLOSE. EBUSY: that was begun, or is not possible now. Else as CLOSE. */
SHOAL_NODISCARD enum shoal_err sh_keeper_close(struct sh_keeper *keeper,
                                               const struct sh_replication_close *close,
                                               shoal_nid owner);

#endif
