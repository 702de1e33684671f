/* The messages of the cluster module: types and layouts.
 *
 * Most are requests. Little-endian, no padding; text is a u16 length and bytes;
 * [view] is as in view.h; an answer with anything left over, or with an unknown flag, is EPROTO.
 * Each carries the epoch that its sender knows where that lets the other side skip an unchanged
 * view, or notice that it has lost its memory.
 *
 * JOIN       to any superpeer
 *   request  u8 role (2), u8 zero, u16 previous ID or 0, u64 instance, u64 epoch, u64 heartbeat_ns,
 *            u64 failure_ns, u64 cluster's ID if the peer is started again with the previous ID on its disk,
 *            and its instance is its life (ring/arcs.h), else 0; text address, traits (traits.h)
 *   answer   u16 ID, u16 superpeer's ID, u64 the cluster's ID (0: the registry is in memory only), [view]
 *   errors   EEXIST (the previous ID is another instance's; or the life is not the latest), EAGAIN (its
 *            former life is up), ECLUSTER (another cluster's ID), EADDRINUSE, EROLE (the previous ID is no
 *            peer's), ELIMIT (no ID is left), EINVAL, EIO/ENOSPC (registry not stored),
 *            ESETTING (it goes by other times)
 * HEARTBEAT  to any superpeer
 *   request  u16 ID, u16 zero, u64 instance, u64 epoch
 *   answer   u64 for how long from the request on the node may serve, in ns; u8 flags (1: a view
 *            follows), [view]
 *   errors   ENONODE (not known: join again, with the ID), EEXIST (another instance has the ID),
 *            EFENCED (this life was declared failed: it is over, and the process begins another one)
 * LEAVE      to the node's superpeer
 *   request  u16 ID, u16 zero, u64 instance, u32 within how many ms it is to be back, at most a day; 0: it leaves for good
 *   answer   empty
 *   errors   ENONODE, EEXIST, EIO, ENOSPC
 * LOOKUP     to the superpeer that owns the creator's shard
 *   request  u64 chunk ID, u64 epoch
 *   answer   u64 first, u64 last, u16 owner; an owner from 1 to 63 is the superpeer to be asked;
 *            else (0: nobody has any of these, 65535: they are with a node that failed, 65534: they were in a zone that is lost, if anywhere) up to 63
 *            more ranges of the same creator, behind that one, ascending, alike
 *   errors   ENOCHUNK (no creator has such IDs), EROLE (no superpeer), EBUSY (restarted; the
 *            creator may be back in a moment; nodes have yet to say who has it; the leader is silent;
 *            too many ask)
 * VIEW_GET   to any superpeer or peer, from anyone
 *   request  u64 epoch
 *   answer   u8 flags (1: a view follows), [view]
 *   errors   EAGAIN (the peer has not joined yet), EBUSY (restarted)
 * PING       from a superpeer to a node whose connection was lost, or that is suspected; over a
 *            fresh connection. One-way from a peer to its second superpeer (member.h)
 *   request  u16 ID
 *   answer   u16 ID, u64 instance
 * RECRUIT    from a superpeer that is new to the cluster, to any other
 *   request  u8 1: it keeps what it stores in memory, else 0; u64 instance, text address
 *   answer   as of JOIN
 *   errors   EROLE (the registry is in ZooKeeper), EBUSY (no majority), ELIMIT, EINVAL, ESETTING (the
 *            others keep theirs in the other way)
 * DISMISS    to any superpeer: another one, or itself, is to be none any more
 *   request  u16 its ID
 *   answer   empty
 *   errors   ENONODE, ELIMIT (it is the last one), EROLE, EBUSY
 * LOST       to any superpeer, for an operator: the disk of another superpeer, or of a peer, is lost for good
 *   request  u16 its ID
 *   answer   empty
 *   errors   ENONODE, EINVAL (it is up), EBUSY
 * FORGET     to any superpeer, for an operator: a peer that is gone is to be in no view any more
 *   request  u16 its ID
 *   answer   empty
 *   errors   ENONODE, EROLE (no peer's ID), EINVAL (it is up), EBUSY (something refers to it, as the
 *            text says; or no superpeer answers for some shards)
 * REFERS     between superpeers: what refers to peers in the shards for which the other may answer
 *   request  u64 epoch, u16 count (1 to 64), u64 bits: to the n-th of them no zone refers in any shard, so what was lost with it
 *            may go; u16 each their IDs
 *   answer   u64 those shards (bit n is shard n): none where the other does not know that epoch yet, nor
 *            those of which a batch is being decided about; of each peer u32 names of chunks that it created,
 *            u32 ranges of chunks that have moved from or to it, u32 zones of which it is the creator, the
 *            owner or the former owner, or has a backup
 *
 * REPORT     to any superpeer, from anyone
 *   request  empty
 *   answer   as in report.h
 *
 * METADATA   to the superpeer that owns the shard
 *   request  an update as in metadata.h, not FORGET
 *   answer   u16 0, u16 error of the update, u8 whether a batch was committed, u64 chunk ID that
 *            the name had; or u16 the superpeer to be asked, and zeros
 *   errors   EBUSY, EROLE (no superpeer); ETIMEOUT: it may or may not have been done
 *
 * ASK        to the superpeer that owns the shard: what is there (names, barriers, scratch)
 *   request  u8 kind (enum sh_ask_kind), u8 shard (where no key or barrier says it), u32 wait for
 *            it so many milliseconds, u64 barrier, u64 round, u64 member, text key or prefix, text
 *            the key to go on after
 *   answer   u16 0, and: NAME: u64 chunk ID. NAMES: u8 whether there are more, and until the end
 *            text name, u64 chunk ID. SCRATCH: the value. SCRATCHES: u8 more, text key, u32 size of
 *            its value. BARRIER: u32 size, u8 flags, u64 round that is open, u32 members that have
 *            signed on, u8 whether follows: u64 who broke it, u32 members, each u64 ID, text data:
 *            of the round asked for, if it is the last one that is over; of the open one for 0.
 *            BARRIERS: of each barrier of the shard u64 its ID, u32 size, u8 flags, u64 round that
 *            is open, u32 members that have signed on. UPDATES: u64 the shard's count of updates
 *            (metadata.h). COPY (barrier: the number of a save, 0 begins one; round: the piece): u64
 *            the save's number, and a piece of metadata/snapshot.h, empty behind the last one;
 *            ENONAME: begin anew. RECOVERIES (barrier: the zone to go on after):
 *            a page of recoveries.h. Or u16 the superpeer to be asked, and nothing
 *   errors   ENONAME, EAGAIN (not within that time; ask again), EBROKEN (BARRIER: the member was taken
 *            for dead), EBUSY
 *
 * TREE       to the superpeer that owns the creator's shard: what it knows of chunks of one creator
 *   request  u64 chunk ID to begin at
 *   answer   u16 0, u8 whether there is more, at most 256 ranges, ascending: u64 first, u64 last,
 *            u16 owner as is noted, 0: nobody, u64 the life that took it by a recovery, u64 for which zone, u32 its
 *            incarnation, or zeros (metadata.h);
 *            or u16 the superpeer to be asked, u8 zero
 *   errors   EROLE, EBUSY
 *
 * HEARD      between superpeers, to the leader
 *   request  u64 highest epoch that a member claimed, u16 count, u16 IDs of the sender and of the
 *            peers that it has heard since the last one
 *   answer   u64 the leader's epoch, u16 count, u16 IDs of those that are not to get a lease for it
 *   errors   EBUSY (it does not lead, or is not sure of it)
 *
 * EVENTS     to any superpeer, from anyone
 *   request  u64 log, u64 epoch up to which they are known, as answered last; 0, 0 at first
 *   answer   u64 log, u64 epoch, u8 flags (1: the view follows), u16 count, [view], count times
 *            u64 epoch, node as in a view: what became of it
 *   errors   EBUSY (restarted, or no majority)
 *
 * One-way, from any node or client to a superpeer:
 * SUSPECT    also from the leader to other superpeers: u16 ID of a node whose connection was
 *            lost, or that did not answer
 *
 * One-way between superpeers:
 * REFUSED    to the leader (superpeer_probe.c): u16 ID of a node that is not at its address,
 *            u64 how long ago its connection to the sender ended, if it was not heard since, u64
 *            how long ago the sender heard it, u64 how long ago nobody listened there (else another
 *            process answered), in ns; all bits: never; u64 which process of the node (a peer's instance,
 *            a superpeer's life)
 *
 * One-way messages between superpeers:
 * RAFT       a message of raft (raft_int.h)
 * PROPOSE    to the leader: a command (superpeer_shared_int.h)
 * HERE       from one that hears no leader, or about it: u16 ID, u64 the ID of the sender's log (raft.h; 0:
 *            it has none), u64 the life of that superpeer (arcs.h; 0: the sender is another), text its
 *            address
 * DISMISSED  to such a one: u16 ID, u64 the ID of the sender's log (raft.h; 0: it has none): it is no
 *            superpeer of that log any more, or that is another's ID
 * RING       a message of the ring (ring_int.h)
 * FORMER     what a look at all records of zones has found (superpeer_former.c): u64 epoch of the view, u64 the shards that the
 *            sender had, and of which no records are missing (bit n is shard n); and until the end, ascending: u16 n, for the nodes
 *            from 64 * n on (bit 0) u64 those that have made zones that are to be recovered or being, or had them in a life that is over, u64
 *            those of zones that are lost; not both 0
 *
 * Of migrations; each answer begins with u16, 0 or the superpeer to be asked instead, and then zeros:
 *
 * COMMIT     from a batch's source (from another: EINVAL) to the superpeer of its creator
 *   request  u64 instance of the process that asks, u16 source, u16 target, u64 instance of the
 *            target's process that has the batch, u64 sequence, u16 count, then count times u64 first,
 *            u64 last chunk ID
 *   answer   committed, now or before
 *   errors   of a batch that never will be: ECANCELED, ENOTOWNER (the source does not own all of
 *            it), ENONODE (the target is not up, nor the creator, which has left), ELIMIT (too many ranges). Nothing was decided:
 *            EBUSY (it is not known yet what the nodes hold), EROLE (no superpeer). ETIMEOUT: nobody
 *            knows
 * RESOLVE    from a batch's target, which has not heard what became of it; as COMMIT. A batch that was
 *            not committed yet is aborted
 *   answer   u8: 1 committed, 0 aborted
 *   errors   EBUSY, EROLE, ETIMEOUT, ELIMIT; EINVAL: of another
 * HOLDS      from a superpeer to a peer, after all that was known of a shard is lost
 *   request  u64 chunk ID to begin at
 *   answer   u8 whether there is more, u64 sequence of the peer's last batch, ranges, ascending: u64
 *            first, u64 last, u8 kind (enum sh_claim, metadata.h)
 * VACATE     one-way, from a superpeer to a peer: u64 first, u64 last chunk ID of a range that the peer has,
 *            of a creator that has left. If no chunk is left there the peer gives it back: by COMMIT, with
 *            the creator as the target (node/moves_vacant.c)
 *
 * Of zones (metadata/zone.h, docs/zones.md); each answer begins with u16, 0 or the superpeer to be asked
 * instead, and then zeros:
 *
 * ZONE       from the peer that owns the zone or is to own it, or from a superpeer, to the superpeer of its
 *            creator
 *   request  ZONE_NEW, ZONE_CHANGE or ZONE_REMOVE as in metadata.h, of the condition 0
 *   answer   u16 error of the update, u8 flags (1: the zone's record follows, 2: records may be missing or old,
 *            since the shard's replicas were lost), u64 the highest number that the creator has given to a
 *            zone, the record as it is now
 *            The error is as metadata.h says, or of what was not carried out EFENCED (the asker's life is over by the
 *            registry), ENONODE (the new owner or a new backup is not up), EINVAL (it is not the creator's)
 *   errors   EBUSY (also: the superpeer does not know yet which life of a node is the latest), EROLE, EINVAL
 *            (of another node); ETIMEOUT: it may or may not have been done
 * ZONE_GET   from anyone, to the superpeer of its creator
 *   request  u64 zone ID
 *   answer   as of ZONE; the error is OK or ENONAME
 *   errors   EBUSY, EROLE
 * ZONES      from anyone, to the superpeer that owns the shard: the zones of a node in it
 *   request  u8 by what (enum sh_zones_of), u8 shard, u16 node, u64 disk (BACKUP: 0 any, and then the node
 *            may be 0), u64 zone ID to go on after
 *   answer   u8 flags (1: there may be more, 2 as of ZONE), u64 the zone ID up to which was looked, and their
 *            records, ascending; none is no end
 *   errors   EBUSY, EROLE
 * ACCEPT_LOSS for an operator, to the superpeer of the zone's creator: the loss of a zone is accepted, so its record goes. Once more: the same
 *   request  u64 zone ID, u32 version of the record, which has the flag LOST
 *   answer   u16 error: OK, the record is gone; or nothing was changed: EINVAL (the zone is not lost), EDIFFERS (the record's version
 *            is another), ENONAME (its creator has made no zone of that number, nor of a higher one)
 *   errors   EBUSY, EROLE; ETIMEOUT: it may or may not have been done
 * PREPARE    to a backup of a zone whose owner's life is over: from a superpeer, or from the peer that brings the zone back
 *   request  u64 zone ID, u64 the owner's life, if the record is as that life has made it, else 0
 *   answer   u64 the write before which the replica has all; u64 disk; u8 flags (1: the replica has all that was
 *            acknowledged: the backup has had the former owner's stream without a start in between, or all that the
 *            next owner had found; or that life, which joined after the backup's process, has never sent it anything)
 *   errors   EBUSY (it is being looked at, or the backup has not heard that the life is over: then it asks for a newer view), ENONAME (there is no
 *            replica), ECORRUPT, EIO, ENONODE (the node keeps none)
 * RECOVER    from a superpeer to the peer that a zone's record names as its owner, while it names a former one
 *   request  u64 zone ID, u64 epoch of a view in which the former owner's life is over
 *   answer   the zone is being brought back, or has been: u8 phase, u64 bytes read, u64 of how many, u64 bytes
 *            that found no room, as in recoveries.h
 *   errors   EBUSY (not now, or the peer does not know that epoch yet), ENONODE (the node keeps no replicas), ENOMEM
 * TAKE       from a peer that recovers a zone (docs/recovery.md), to the superpeer of the chunks' creator: what of the runs
 *            is noted as the former owner's, or as a restorer's that took it for the same zone, becomes the asker's. Once more: the same
 *   request  u64 life of the asker, u16 former owner, u64 its life that had the zone, u64 zone ID, u32 its incarnation, u8 flags of its record (64 or 0), u16 count (1 to
 *            16), then count times u64 first, u64 last chunk ID, all of one creator, ascending
 *   answer   u16 error: OK, ELIMIT (too many ranges), ETOOBIG (too many parts: smaller runs are to be asked for),
 *            EFENCED (the asker's life is over by the registry). But for OK nothing was taken
 *   errors   EBUSY (also: it is not known yet what the nodes hold, or which life of the asker is the latest), EROLE, EINVAL (the
 *            asker is no peer); ETIMEOUT: it may or may not have been done
 * ORDER      from a peer that recovers a zone, to the superpeer of the former owner's shard: whether a zone that the former
 *            owner has made, with a higher number, goes first: one that is still the former owner's, in that life, which is over,
 *            or is being recovered for it; and is not lost
 *   request  u16 former owner, u64 its life, u64 epoch of the asker's view, u64 zone ID above which is looked (0: all), u8 1: only
 *            those that nobody brings back yet, or that the asker does; 0: all
 *   answer   u8 0: none is left; 1: one goes first; 2: there was none as far as was looked, ask again from there; u64
 *            (1) that zone's ID, (2) the zone ID up to which was looked, else 0. Plus 128: of the zones that were looked at, one that the former owner had in that life is lost
 *   errors   EBUSY (also: the superpeer does not know that epoch yet, or which life of an owner is the latest), EROLE
 */
#ifndef SH_CLUSTER_PROTO_H
#define SH_CLUSTER_PROTO_H

#include "metadata/zone.h"
#include "msg/msg.h"

#define SH_MODULE_CLUSTER 1

#define SH_CLUSTER_JOIN SH_MSG_TYPE(SH_MODULE_CLUSTER, 1)
#define SH_CLUSTER_HEARTBEAT SH_MSG_TYPE(SH_MODULE_CLUSTER, 2)
#define SH_CLUSTER_LEAVE SH_MSG_TYPE(SH_MODULE_CLUSTER, 3)
#define SH_CLUSTER_LOOKUP SH_MSG_TYPE(SH_MODULE_CLUSTER, 4)
#define SH_CLUSTER_VIEW_GET SH_MSG_TYPE(SH_MODULE_CLUSTER, 5)
#define SH_CLUSTER_PING SH_MSG_TYPE(SH_MODULE_CLUSTER, 7)
#define SH_CLUSTER_RECRUIT SH_MSG_TYPE(SH_MODULE_CLUSTER, 8)
#define SH_CLUSTER_DISMISS SH_MSG_TYPE(SH_MODULE_CLUSTER, 9)
#define SH_CLUSTER_LOST SH_MSG_TYPE(SH_MODULE_CLUSTER, 11)
#define SH_CLUSTER_METADATA SH_MSG_TYPE(SH_MODULE_CLUSTER, 10)
#define SH_CLUSTER_ASK SH_MSG_TYPE(SH_MODULE_CLUSTER, 12)
#define SH_CLUSTER_FORGET SH_MSG_TYPE(SH_MODULE_CLUSTER, 15)
#define SH_CLUSTER_TREE SH_MSG_TYPE(SH_MODULE_CLUSTER, 22)
#define SH_CLUSTER_REPORT SH_MSG_TYPE(SH_MODULE_CLUSTER, 24)
#define SH_CLUSTER_SUSPECT SH_MSG_TYPE(SH_MODULE_CLUSTER, 20)
#define SH_CLUSTER_EVENTS SH_MSG_TYPE(SH_MODULE_CLUSTER, 21)
#define SH_CLUSTER_RAFT SH_MSG_TYPE(SH_MODULE_CLUSTER, 32)
#define SH_CLUSTER_PROPOSE SH_MSG_TYPE(SH_MODULE_CLUSTER, 33)
#define SH_CLUSTER_HEARD SH_MSG_TYPE(SH_MODULE_CLUSTER, 34)
#define SH_CLUSTER_HERE SH_MSG_TYPE(SH_MODULE_CLUSTER, 35)
#define SH_CLUSTER_DISMISSED SH_MSG_TYPE(SH_MODULE_CLUSTER, 36)
#define SH_CLUSTER_RING SH_MSG_TYPE(SH_MODULE_CLUSTER, 37)
#define SH_CLUSTER_REFUSED SH_MSG_TYPE(SH_MODULE_CLUSTER, 39)
#define SH_CLUSTER_COMMIT SH_MSG_TYPE(SH_MODULE_CLUSTER, 40)
#define SH_CLUSTER_RESOLVE SH_MSG_TYPE(SH_MODULE_CLUSTER, 41)
#define SH_CLUSTER_HOLDS SH_MSG_TYPE(SH_MODULE_CLUSTER, 43)
#define SH_CLUSTER_REFERS SH_MSG_TYPE(SH_MODULE_CLUSTER, 45)
#define SH_CLUSTER_VACATE SH_MSG_TYPE(SH_MODULE_CLUSTER, 46)
#define SH_CLUSTER_ZONE SH_MSG_TYPE(SH_MODULE_CLUSTER, 47)
#define SH_CLUSTER_ZONE_GET SH_MSG_TYPE(SH_MODULE_CLUSTER, 48)
#define SH_CLUSTER_ZONES SH_MSG_TYPE(SH_MODULE_CLUSTER, 49)
#define SH_CLUSTER_TAKE SH_MSG_TYPE(SH_MODULE_CLUSTER, 50)
#define SH_CLUSTER_ORDER SH_MSG_TYPE(SH_MODULE_CLUSTER, 51)
#define SH_CLUSTER_FORMER SH_MSG_TYPE(SH_MODULE_CLUSTER, 52)
#define SH_CLUSTER_ACCEPT_LOSS SH_MSG_TYPE(SH_MODULE_CLUSTER, 53)
#define SH_CLUSTER_PREPARE SH_MSG_TYPE(SH_MODULE_CLUSTER, 60)
#define SH_CLUSTER_RECOVER SH_MSG_TYPE(SH_MODULE_CLUSTER, 61)

enum sh_ask_kind {
    SH_ASK_NAME = 1,
    SH_ASK_NAMES,
    SH_ASK_SCRATCH,
    SH_ASK_SCRATCHES,
    SH_ASK_BARRIER,
    SH_ASK_UPDATES,
    SH_ASK_BARRIERS,
    SH_ASK_COPY, /* of the whole shard, for who saves it */
    SH_ASK_RECOVERIES,
};

#define SH_SAVE_PIECE_BYTES 16384

enum sh_zones_of {
    SH_ZONES_OF_CREATOR = 1, /* in the creator's shard only */
    SH_ZONES_OF_OWNER,
    SH_ZONES_OF_BACKUP,
    SH_ZONES_OF_FORMER, /* of which the node is the owner, or the former owner */
};

#define SH_ZONES_PAGE_BYTES 16384

/* Flags of answers about zones. */
#define SH_ZONE_ANSWER_RECORD 1u
#define SH_ZONES_ANSWER_MORE 1u
#define SH_ZONE_ANSWER_DOUBT 2u

/* What ORDER comes to. */
enum sh_order {
    SH_ORDER_NONE, /* no zone goes first */
    SH_ORDER_WAIT, /* one does */
    SH_ORDER_MORE, /* not all were looked at */
};
#define SH_ORDER_LOST 128u /* beside it: one that was looked at is lost */

/* Flags of answers. */
#define SH_ANSWER_VIEW 1u    /* a view follows */
#define SH_ANSWER_CHANGES 8u /* HEARTBEAT: changes (changes.h) follow, in place of a view */
/* HEARTBEAT: what the node wants. */
#define SH_WANTS_WHOLE 1u /* the whole view: what was told of changes does not lead to it */

/* Fixed parts, in bytes; texts, views and tables come on top. */
#define SH_JOIN_BYTES 46 /* with the address's length */
#define SH_JOIN_ANSWER_BYTES 12
#define SH_HEARTBEAT_BYTES 20
#define SH_GRANT_BYTES 8 /* in the answer */
#define SH_LEAVE_BYTES 16
#define SH_SUSPECT_BYTES 2
#define SH_REFUSED_BYTES 34
#define SH_EVENTS_BYTES 16
#define SH_EVENTS_ANSWER_BYTES 19
#define SH_LOOKUP_BYTES 16
#define SH_LOOKUP_ANSWER_BYTES 18 /* for each range */
#define SH_LOOKUP_RANGES_MAX 64   /* in an answer */
#define SH_LOOKUP_NOBODY 0        /* in place of an owner: ENOCHUNK */
#define SH_LOOKUP_FAILED 0xFFFF   /* in place of an owner: EFAILED */
#define SH_LOOKUP_LOST 0xFFFE     /* in place of an owner: ELOST */
#define SH_TREE_BYTES 16
#define SH_TREE_ANSWER_BYTES 3
#define SH_TREE_RANGE_BYTES 38
#define SH_TREE_RANGES_MAX 256 /* in an answer */
#define SH_VIEW_GET_BYTES 8
#define SH_COMMIT_BYTES 30 /* and 16 for each run */
#define SH_HOLDS_BYTES 8
#define SH_HOLDS_ANSWER_BYTES 9
#define SH_HOLDS_RANGE_BYTES 17
#define SH_VACATE_BYTES 16
#define SH_PING_BYTES 2
#define SH_FORGET_BYTES 2
#define SH_REFERS_BYTES 18       /* and 2 for each node */
#define SH_REFERS_ANSWER_BYTES 8 /* and 12 for each node */
#define SH_RECRUIT_BYTES 11      /* with the address's length */
#define SH_DISMISS_BYTES 2
#define SH_DISMISSED_BYTES 10
#define SH_METADATA_ANSWER_BYTES 13
#define SH_ASK_BYTES 34          /* with the lengths of both texts */
#define SH_HEARD_ANSWER_BYTES 10 /* and 2 for each node */
#define SH_HERE_BYTES 20         /* with the address's length */
#define SH_PING_ANSWER_BYTES 10
#define SH_ZONE_UPDATE_HEAD 12 /* before the zone's ID */
#define SH_ZONE_UPDATE_BYTES_MAX (SH_ZONE_UPDATE_HEAD + SH_ZONE_BYTES_MAX)
#define SH_ZONE_ANSWER_BYTES 13 /* and a record */
#define SH_ZONE_GET_BYTES 8
#define SH_ZONES_BYTES 20
#define SH_ZONES_ANSWER_BYTES 11 /* and records */
#define SH_TAKE_RUNS_MAX 16
#define SH_TAKE_BYTES 33 /* and 16 for each run */
#define SH_TAKE_BYTES_MAX (SH_TAKE_BYTES + 16 * SH_TAKE_RUNS_MAX)
#define SH_TAKE_ANSWER_BYTES 4
#define SH_FORMER_BYTES 16
#define SH_FORMER_WORD_BYTES 18
#define SH_FORMER_BYTES_MAX (SH_FORMER_BYTES + 1024 * SH_FORMER_WORD_BYTES)
#define SH_ORDER_BYTES 27
#define SH_ORDER_ANSWER_BYTES 11
#define SH_ACCEPT_LOSS_BYTES 12
#define SH_ACCEPT_LOSS_ANSWER_BYTES 4
#define SH_PREPARE_BYTES 16
#define SH_PREPARED_BYTES 17
#define SH_PREPARED_WHOLE 1u
#define SH_RECOVER_BYTES 16
#define SH_RECOVER_ANSWER_BYTES 25

#endif
