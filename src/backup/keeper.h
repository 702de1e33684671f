/* A backup's side of replication: takes the streams of other nodes' zones, has the log keep them, and tells their owners how far
 * it has got. docs/replication.md; messages: replication.h.
 *
 *            OPEN, on disk                 loaded                    OPEN
 *   [none] ────────────────► [loading] ───────────────► [loaded] ──────────► [open] ◄─┐ OPEN: goes on
 *      │  OPEN, nothing there                                                  ▲   └───┘
 *      └───────────────────────────────────────────────────────────────────────┘
 *   any of them ── CLOSE, or OPEN of a stream that begins anew ──► [dropping] ──► [none]
 *
 *   An open stream is in one of these states:
 *
 *   GOES_ON ── no room ──► FULL ── there is room, AGAIN is told ──► WAITS ── the entry that is expected comes ──► GOES_ON
 *      ├─ something is missing, AGAIN is told ────────────────────────┘
 *      ├─ malformed, or the owner's life is over ──► GONE, until OPEN
 *      └─ the log takes no more of it ──► LOST, until it begins anew
 *
 * Replicas that nobody needs are found now and then, and dropped: orphans.c.
 *
 * The log is shared with the node's own zones, which the keeper leaves alone: its owner steps it, and hands on what it says of a
 * zone to the keeper, or to its own zones (sh_keeper_durable).
 *
 * Memory: 210 bytes a zone, 64 an owner, 16 a zone that there may be at most. Nothing is allocated while entries are taken.
 * Threads: that of msg's transport step, which is the log's. */
#ifndef SH_BACKUP_KEEPER_H
#define SH_BACKUP_KEEPER_H

#include "env/env.h"
#include "log/replog.h"
#include "msg/msg.h"

struct sh_keeper;
struct sh_zone_op;

/* The state of a life of a node in this node's view. */
enum sh_keeper_life {
    SH_KEEPER_LIFE_UNKNOWN, /* nothing: it may be a new one, or this node has no view that has its own life yet */
    SH_KEEPER_LIFE_UP,   /* the node's, and up */
    SH_KEEPER_LIFE_OVER, /* it failed, left, or another one came after it: for ever */
};

struct sh_keeper_config {
    struct sh_msg *msg;    /* kept */
    struct sh_replog *log; /* kept; NULL: the node keeps no replicas, and says so */
    uint64_t disk_id;      /* not 0, unless there is no log */
    /* Kept; whose free bytes the log's file grows into. NULL: the file has all that it may have. */
    struct sh_disk *disk;
    struct sh_clock clock;
    uint32_t zones_max;    /* that the keeper knows at a time */
    uint32_t credit_bytes; /* of each zone, on their way; 64 KiB at least */
    uint64_t ack_ns;       /* how long an ACK that nobody waits for may wait for others; 0: 2 ms */
    enum sh_keeper_life (*life_of)(void *arg, shoal_nid nid, uint64_t life);
    /* Whether that life of a node joined after this process did, so that all that it has ever sent to a backup with this disk came here; NULL: not known. */
    bool (*is_younger)(void *arg, shoal_nid nid, uint64_t life);
    /* Whether the disk says that this process's life was admitted. Before that the node's next process may live the same life, which superpeers take for this one, and knows nothing of
     * what this one has said: so PREPARE is not answered yet (EBUSY). NULL: it says so. */
    bool (*is_confirmed)(void *arg);
    /* PREPARE asks about a zone whose owner's life is over, and life_of does not say so: this node's view is older than that of the node that asks, and a newer one is
     * wanted at once. NULL: it comes in its time. */
    void (*view_wanted)(void *arg);
    /* Asks the superpeers for a zone's record, as sh_zones_get does, and calls op->done, once: before the keeper is destroyed, with ESTOPPED
     * then. NULL: replicas that nobody needs stay. */
    void (*record_get)(void *arg, uint64_t zone, struct sh_zone_op *op);
    uint64_t orphans_ns; /* between two looks at all replicas, for those; 0: a minute */
    /* There is work for the step, or it is due earlier. */
    void (*wake)(void *arg);
    void *arg;
};

/* Registers handlers; before the steps run, and after the node's own zones have been added to the log. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_keeper_create(const struct sh_keeper_config *config,
                                                struct sh_keeper **keeper_out);
/* Where create was given none, as it was not open yet: the node keeps replicas there from now on. Once. */
void sh_keeper_log_set(struct sh_keeper *keeper, struct sh_replog *log, uint64_t disk_id);
/* No step runs any more. The log must not be stepped between this and its close: it may be loading or dropping. NULL is allowed. */
void sh_keeper_destroy(struct sh_keeper *keeper);

/* Tells the log's `durable` of a zone; false: it is not one of the keeper's. */
bool sh_keeper_durable(struct sh_keeper *keeper, struct sh_replog_zone *zone, uint64_t sequence);
/* Tells the log's `damaged` of a zone, or NULL: the zone's owner is told at once, and not with its next write. */
void sh_keeper_damaged(struct sh_keeper *keeper, const struct sh_replog_zone *zone);
/* Takes an event of msg's on_event. */
void sh_keeper_link_event(struct sh_keeper *keeper, const struct sh_msg_event *event);
/* life_of's answers have changed: the keeper ends the streams of lives that are over. */
void sh_keeper_view_changed(struct sh_keeper *keeper);

/* Sends ACKs, and asks for streams again; after the log's step and msg's. */
unsigned sh_keeper_step(struct sh_keeper *keeper, uint64_t now_ns);
uint64_t sh_keeper_due_ns(const struct sh_keeper *keeper);

/* --- Recoveries (docs/recovery.md) --------------------------------------------------------------- */

/* The replica is the caller's, if err is OK: nobody opens or drops it until it is given back, or dropped. end: before which it has all writes;
 * 0: that is not known before it is read. zone NULL: nothing was ever written to it. */
typedef void (*sh_keeper_taken)(void *arg, struct sh_replog_zone *zone, uint64_t end,
                                enum shoal_err err);
/* Takes the replica of a zone whose owner's life is over, and whose record names this node as the next owner: what there is of it is
 * sealed in the log first (sh_replog_zone_seal). taken is called once, from within or from a step, unless the keeper is destroyed before; not where this returns an error. EBUSY: later; ENONAME: there is none;
 * ECORRUPT: it is damaged; ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_keeper_take(struct sh_keeper *keeper, uint64_t zone,
                                              sh_keeper_taken taken, void *arg);
/* Whoever took the replica does not bring the zone back now, and has left the replica unchanged: it may be taken again. */
void sh_keeper_give_back(struct sh_keeper *keeper, uint64_t zone);
/* The zone has other replicas: drops this one, which was taken. EBUSY: the log can't now. Errors of sh_replog_zone_drop. */
SHOAL_NODISCARD enum shoal_err sh_keeper_taken_drop(struct sh_keeper *keeper, uint64_t zone);

struct sh_keeper_status {
    uint32_t zones, open;    /* known; of these, open */
    uint64_t messages;       /* APPENDs */
    uint64_t entries, bytes; /* taken; bytes of their images */
    uint64_t passed_over;    /* entries that were there already */
    uint64_t
        refused; /* messages that were not taken, or not to the end, for want of room, or until the stream goes on */
    uint64_t gaps; /* how often something was missing */
    uint64_t malformed;
    uint64_t acks, ack_messages; /* sent; an ACK is of a zone */
    uint64_t full, lost;         /* how often a stream became so */
    uint64_t asked,
        orphans; /* how often an owner was asked whether it needs a replica; replicas that were dropped as nobody does */
};
void sh_keeper_status_get(const struct sh_keeper *keeper, struct sh_keeper_status *status_out);

#endif
