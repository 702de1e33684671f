/* A peer's questions about zones (docs/zones.md), to the superpeers that keep their records: to make, change,
 * remove and get one, and to list those of a node; and what a peer asks that recovers one (docs/recovery.md).
 *
 *   call --> superpeer --answer--> done
 *              | another is to be asked --> that one, at once
 *              | EBUSY, lost, silent -----> in a moment again, until the deadline
 *
 * Who repeats a change does no harm: metadata/zone.h. What came of it, the record in the answer says.
 *
 * The view is the directory's, which the member keeps: nothing here refreshes it.
 *
 * Threads: all is called by the one thread that runs the transport step, which must also run the step; create
 * and destroy before the steps run and after. done and each come from one of the two steps, never from the call
 * itself; they may call anything but destroy. */
#ifndef SH_CLUSTER_ZONES_H
#define SH_CLUSTER_ZONES_H

#include "base/crew.h"
#include "cluster/directory.h"
#include "cluster/proto.h"
#include "env/env.h"
#include "metadata/metadata.h"
#include "msg/msg.h"

struct sh_zones;

struct sh_zones_config {
    struct sh_msg *msg;             /* kept */
    struct sh_directory *directory; /* kept */
    struct sh_clock clock;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_zones_create(const struct sh_zones_config *config,
                                               struct sh_zones **zones_out);
/* What is under way is called back with ESTOPPED, and may begin nothing then. NULL is allowed. Before msg and the directory are destroyed. */
void sh_zones_destroy(struct sh_zones *zones);

struct sh_step sh_zones_step(struct sh_zones *zones);

#define SH_ZONES_DEADLINE_NS UINT64_C(10000000000) /* of calls that name none, from the call on */

#define SH_ZONES_ASK_BYTES_MAX SH_TAKE_BYTES_MAX
_Static_assert(SH_ZONES_ASK_BYTES_MAX >= SH_ZONE_UPDATE_BYTES_MAX, "the longest question");

/* One question, in whichever form. Of the module alone. */
struct sh_zones_ask {
    struct sh_zones_ask *next;
    struct sh_zones *zones;
    void (*answered)(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload);
    sh_msg_type type;
    uint8_t shard;
    uint8_t hops;
    bool is_asking;
    bool is_unclear; /* a superpeer may have carried it out */
    uint64_t due_ns, deadline_ns;
    shoal_nid asked; /* the superpeer */
    struct sh_request request;
    size_t size;
    uint8_t payload[SH_ZONES_ASK_BYTES_MAX];
};

/* What a superpeer says of a zone. */
struct sh_zone_answer {
    bool is_there;       /* there is a record: */
    struct sh_zone zone; /* as it is now; SH_ZONE_OLD may be among its flags */
    /* All replicas of the shard were lost at some time: a zone that is not there may be missing, and one that
     * is there may be old. */
    bool is_doubtful;
    uint64_t last; /* the highest number that the zone's creator has given to a zone; 0: none */
};

/* Owned by the caller, kept until done has been called, once. */
struct sh_zone_op {
    /* What the update came to, see sh_zones_new and the others, and what there is now; or, with answer NULL:
     * ETIMEOUT, nobody knows whether it was carried out; EBUSY, EUNREACHABLE, ENONODE and others, it was not;
     * ESTOPPED, it may have been. */
    void (*done)(struct sh_zone_op *op, enum shoal_err err, const struct sh_zone_answer *answer);
    void *arg;               /* the caller's */
    uint64_t deadline_ns;    /* by the clock; 0: SH_ZONES_DEADLINE_NS from now */
    struct sh_zones_ask ask; /* the module's */
};

/* All three are for this node, whose life is given. The record is borrowed.
 *
 * EFENCED: the superpeers have declared this life over. ENONODE: the owner or a backup that is new is not up.
 *
 * new: makes the record as it is given; of a zone that is new to its owner too, with incarnation and version 1. OK
 * also if it was there and is this life's: then its record is the one there. EEXIST: it is another's. ECANCELED:
 * the number is not above the answer's `last`, and the zone is not made, now or later: it takes another one. ELIMIT.
 * Registers a zone again whose record is missing where the answers are doubtful (docs/zones.md): by its owner, also if
 * that did not create it, whatever its number, with incarnation and version raised by SH_ZONE_JUMP. EINVAL: by another
 * than its creator where nothing is doubtful, or with a lower version.
 *
 * change: to what zone says, if the record's version is zone->version; the superpeers set version and incarnation.
 * By the owner; or by the next owner, which it names, once the life that owns it is over. OK also if it was done
 * before. EDIFFERS: the version is another. ENONAME, ENOTOWNER, EINVAL, ELIMIT.
 *
 * remove: by the owner. OK also if it was removed before. EDIFFERS, ENONAME, ENOTOWNER. */
void sh_zones_new(struct sh_zones *zones, uint64_t life, const struct sh_zone *zone,
                  struct sh_zone_op *op);
void sh_zones_change(struct sh_zones *zones, uint64_t life, const struct sh_zone *zone,
                     struct sh_zone_op *op);
void sh_zones_remove(struct sh_zones *zones, uint64_t life, uint64_t id, uint32_t version,
                     struct sh_zone_op *op);

/* ENONAME. */
void sh_zones_get(struct sh_zones *zones, uint64_t id, struct sh_zone_op *op);

/* Owned by the caller, kept until done has been called, once. */
struct sh_zone_list {
    /* One zone after the other, each once: by shard, and in each by ascending ID. Borrowed. */
    void (*each)(struct sh_zone_list *list, const struct sh_zone *zone);
    /* OK: those were all. Of zones that were made or changed meanwhile any may be missing. */
    void (*done)(struct sh_zone_list *list, enum shoal_err err);
    void *arg;            /* the caller's */
    uint64_t deadline_ns; /* as of struct sh_zone_op */
    bool is_doubtful;     /* of any shard, see struct sh_zone_answer; once done */
    /* The module's. */
    enum sh_zones_of by;
    shoal_nid nid;
    uint64_t disk, after;
    struct sh_zones_ask ask;
};

/* All zones that a node has created (one shard is asked); that it owns; of which it has a backup, on that
 * disk or (0) on any; of which that disk has one, whatever the node (NONE); or of which it is the owner or the
 * former owner: those that are to be recovered for it, beside those of its life that is up. Each but the first asks all
 * shards, which look at all of their records unless the node has none there: 2,048 to a question. */
void sh_zones_list(struct sh_zones *zones, enum sh_zones_of by, shoal_nid nid, uint64_t disk,
                   struct sh_zone_list *list);

/* --- Recovery --------------------------------------------------------------------------------- */

/* All three are owned by the caller, and kept until done has been called, once. */
struct sh_take_op {
    void (*done)(struct sh_take_op *op, enum shoal_err err);
    void *arg;            /* the caller's */
    uint64_t deadline_ns; /* as of struct sh_zone_op */
    struct sh_zones_ask ask;
};

/* This node recovers a zone, of which it is the owner by the record: what of the runs is the zone's by its note (sh_metadata_note_is_of) is noted as this node's, by the
 * life in the record, from now on. The runs are borrowed, as the record: 1 to SH_TAKE_RUNS_MAX, all of one
 * creator, ascending, none within another. Who repeats it does no harm.
 *
 * done: OK, all of that is so. ELIMIT: the superpeers keep no more ranges. ETOOBIG: ranges cut the runs into more than
 * SH_METADATA_TAKE_MAX parts; smaller runs are to be taken one after the other. EFENCED: the superpeers have declared this life
 * over. With these three nothing was taken. ETIMEOUT, ESTOPPED: nobody knows. Others: it was not. */
void sh_zones_take(struct sh_zones *zones, const struct sh_zone *record,
                   const struct sh_metadata_run *runs, size_t count, struct sh_take_op *op);

struct sh_order_op {
    /* OK: zone is the ID of one that goes first, 0 if none is left; then has_lost says whether any of those that could is lost. */
    void (*done)(struct sh_order_op *op, enum shoal_err err, uint64_t zone);
    bool has_lost;
    void *arg;            /* the caller's */
    uint64_t deadline_ns; /* as of struct sh_zone_op */
    /* The module's. */
    shoal_nid former;
    uint64_t life;
    bool near;
    uint64_t after;
    struct sh_zones_ask ask;
};

/* Whether another zone goes first that is still to be recovered, of those that the former owner has made and had in that life, with IDs above
 * `after` (0: all); near: only one that nobody brings back yet, or that this node does. A zone that is lost does not.
 *
 * The superpeer answers in a view no older than this node's. So the caller asks once this node's view says that the life is over
 * for which it recovers; or a superpeer that has not heard of that may say that no zone is to be recovered. */
void sh_zones_order(struct sh_zones *zones, shoal_nid former, uint64_t life, uint64_t after,
                    bool near, struct sh_order_op *op);

struct sh_tree_op {
    /* Ranges of one answer, ascending, without a gap. The note's owner NONE: nobody. */
    void (*each)(struct sh_tree_op *op, const struct sh_metadata_range *range);
    /* With is_more the caller may ask again, from the chunk ID behind the last range. */
    void (*done)(struct sh_tree_op *op, enum shoal_err err, bool is_more);
    void *arg;            /* the caller's */
    uint64_t deadline_ns; /* as of struct sh_zone_op */
    struct sh_zones_ask ask;
};

/* Whose the chunks of one creator are, from a chunk ID on: at most SH_TREE_RANGES_MAX ranges, the first of which has that
 * ID. What is under way for them is decided before the superpeer answers, in a view no older than this node's: so nothing is
 * given away any more by a life, or to one, that is over in this node's view. */
void sh_zones_tree(struct sh_zones *zones, shoal_cid from, struct sh_tree_op *op);

#endif
