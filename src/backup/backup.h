/* An owner's side of replication: each change of a chunk gets the next number of its zone, goes to the zone's backlog, and from
 * there to the zone's backups. DESIGN: Backup; DXRAM thesis 4 and 6; docs/backup.md.
 *
 * A zone's backups are other nodes (docs/replication.md), or a log on the node's own disk ("home").
 *
 * One way in: what changes chunks is called here and not in store.h, so that the caller knows what to wait for:
 *
 *   struct sh_write write;
 *   sh_write_begin(&write, SH_LEVEL_REPLICATED);
 *   err = sh_backup_rewrite(backup, &write, &rewrite);        // the store has it; EAGAIN: sh_backup_room_wait
 *   if (!sh_write_wait(backup, &write, done, arg)) ...        // done is called when it is acknowledged
 *
 * Threads: any, but for create, destroy and the step, which one thread at a time runs. */
#ifndef SH_BACKUP_BACKUP_H
#define SH_BACKUP_BACKUP_H

#include "env/env.h"
#include "log/replog.h"
#include "shoal/types.h"
#include "store/store.h"

struct sh_backup;
struct sh_load;
struct sh_metadata_run;
struct sh_msg;
struct sh_msg_event;
struct sh_own_zone;
struct sh_view;
struct sh_zone;
struct sh_zones;

/* How far a write gets before it is acknowledged. */
enum sh_level {
    SH_LEVEL_ASYNC,      /* the owner has it */
    SH_LEVEL_REPLICATED, /* a killed process loses nothing: each backup has it; home: the kernel */
    SH_LEVEL_DURABLE,    /* a power failure loses nothing: it is on each backup's disk */
};
#define SH_LEVELS 3

/* Of a node among others, whose zones have backups on other nodes' disks, and records at the superpeers. */
struct sh_backup_cluster {
    struct sh_msg *msg;     /* kept; a handler is registered. Destroyed after the backup */
    struct sh_zones *zones; /* kept (cluster/zones.h). Destroyed before the backup */
    uint64_t life;          /* of this process (ring/arcs.h) */
    struct sh_random random;
    uint8_t replicas;          /* wanted for each zone, 1 to SH_ZONE_BACKUPS_MAX */
    unsigned placement;        /* flags (placement.h) */
    bool has_copysets;         /* new zones go to sets of nodes (copysets.h) */
    uint16_t scatter;          /* with how many others a node shares sets, at least */
    unsigned domains;          /* which ones count (candidate.h) */
    uint8_t reserve_percent;   /* of each disk, which no zone gets */
    unsigned copies_max;       /* zones that are copied to another backup at a time; 0: 2 */
    uint64_t copy_bytes_per_s; /* of all copies together; 0: 256 MiB */
    uint64_t compare_ns;       /* between two comparisons of all records; 0: a minute */
};

struct sh_completion;

struct sh_backup_config {
    struct sh_store *store; /* borrowed */
    shoal_nid nid;       /* creator of the store's own chunks, in the log; 0: sh_backup_nid_set */
    uint64_t zone_bytes; /* most bytes of a zone's chunks, with SH_ZONE_CHUNK_BYTES for each */
    /* From so many zones on of which less than a quarter is in use, chunks move out of the one that has least. 0: 4. UINT32_MAX: never. */
    uint32_t sparse_zones;
    /* Of all backlogs; one has a quarter of it at most, and 1 MiB at least. 0: nothing is ever backed up. */
    uint64_t window_bytes;
    /* How long a client may repeat a request that it has sent; 0: SH_ONCE_REPEAT_NS. For so long an empty zone stays, for its completion
     * records. */
    uint64_t repeat_ns;
    /* There is work for sh_backup_step. Any thread; it must not wait. */
    void (*wake)(void *arg);
    /* In a cluster: calls each for what came of requests on the chunks first to last, all of one creator, that clients may still ask for, whoever ran them (completion.node: never 0).
     * From sh_backup_step. NULL: nobody knows any. */
    void (*results)(void *arg, uint64_t first, uint64_t last,
                    void (*each)(void *each_arg, const struct sh_completion *completion),
                    void *each_arg);
    void *arg;
    struct sh_backup_cluster
        cluster; /* msg NULL: the owner's own disk is the only backup there is */
};
#define SH_ZONE_CHUNK_BYTES 24 /* of a chunk's header in a log, and of its version */
#define SH_HOME_INCARNATION                                                                        \
    1u /* of a zone in its owner's own log; one that another node brings back has a higher one */

/* ENOMEM. Nothing is backed up until sh_backup_home_set. */
SHOAL_NODISCARD enum shoal_err sh_backup_create(const struct sh_backup_config *config,
                                                struct sh_backup **backup_out);
/* Nobody waits or writes any more; writes that no backup has taken are lost. NULL is allowed. */
void sh_backup_destroy(struct sh_backup *backup);

/* Says whose the store's own chunks are, where create was not told. Before anything is backed up. */
void sh_backup_nid_set(struct sh_backup *backup, shoal_nid nid);

/* What a log says while it steps: to be named in its config, with the backup as arg. */
void sh_backup_handed(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
void sh_backup_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
/* The zone of a node alone has damage in that slot of the log's file: all its chunks are written once more, to other zones, and it is dropped. */
void sh_backup_damaged(void *arg, struct sh_replog_zone *zone, uint32_t slot, uint64_t offset);
/* Whether a zone is, and is being repaired: until it is, a start would find the damage. Any thread. */
bool sh_backup_is_damaged(const struct sh_backup *backup);
/* For the log's config, too: what clients have acknowledged. `found`: a completion record that the log had at the start. */
/* Whether changes go to the own log, which had what this node's life before had. */
bool sh_backup_is_home(const struct sh_backup *backup);
struct sh_replog_completions sh_backup_completions(struct sh_backup *backup);
void sh_backup_completion_found(struct sh_backup *backup, struct sh_bytes completion);
/* From now on all changes are told and go to this log, which is borrowed, and which the backup steps. After the zones that were found
 * there have been added. Before other threads use the store. */
void sh_backup_home_set(struct sh_backup *backup, struct sh_replog *log);

/* The same in a cluster, without an own disk that could be a backup. */
void sh_backup_begin(struct sh_backup *backup);

/* --- The cluster, from the thread of msg's transport step, which is the step's -------------------- */

/* The nodes as they are now; borrowed. ENOMEM: it goes by what it knew before. */
SHOAL_NODISCARD enum shoal_err sh_backup_view(struct sh_backup *backup, const struct sh_view *view);
/* Takes no more part in it, and backs nothing up: before msg is destroyed, where the backup is after it. */
void sh_backup_leave(struct sh_backup *backup);
/* This node brings zones back: until then copies get a 64th of their rate, unless a zone has no backup. From the step's thread. */
void sh_backup_copies_slow(struct sh_backup *backup, uint64_t until_ns);
/* msg tells of a connection. */
void sh_backup_link_event(struct sh_backup *backup, const struct sh_msg_event *event);

/* --- Zones that were found at the start -------------------------------------------------------- */

struct sh_zone_claim {
    uint64_t first,
        last; /* chunk IDs, both included, with the creator's node ID; last below first: nothing */
};
/* Adds a zone that the log has, and that was loaded: its number, what it claims, the bytes of its chunks as they count for a zone, and the
 * number of its next write. From the highest number of a zone down. Errors of sh_replog_zone_add; ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_backup_zone_found(struct sh_backup *backup, struct sh_replog *log,
                                                    uint64_t number,
                                                    const struct sh_zone_claim *claims,
                                                    size_t count, uint64_t live_bytes,
                                                    uint64_t next);

/* The log of a zone that was found has an image of a chunk that is not the zone's: it goes, so that it takes no room for ever. Where
 * there are very many some stay until the next start. */
void sh_backup_left_found(struct sh_backup *backup, uint64_t number, uint64_t chunk);

/* --- Zones that are brought back from a failed owner (docs/recovery.md; the step's thread) ------- */

/* Adopts a zone whose record names this life as the owner, and a former one: makes it, under a number of this node's that names it here, with its
 * recorded backups, from which acknowledgements are waited for. begin: the number of the first write that any of these may lack; end: before which this node
 * has all. The caller tells what is between next, by sh_backup_adopt_write. Where the record says that another node has tried before, only this node's replica counts: other backups begin anew. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_backup_zone_adopt(struct sh_backup *backup,
                                                    const struct sh_zone *record, uint64_t begin,
                                                    uint64_t end, uint64_t *number_out);
/* The zone's next write before `end`, or the next piece of it: its backups get it under its number. EAGAIN: the backlog has no room for it. ECORRUPT: it is none that
 * an owner records. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_write(struct sh_backup *backup, uint64_t number,
                                                     const struct sh_replog_write *write);
/* All writes before its end are there: the zone has these claims, of which other zones of this node keep what they have, and chunks of so many bytes, as they count for a zone. Its backups are opened
 * from now on. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_claims(struct sh_backup *backup, uint64_t number,
                                                      const struct sh_zone_claim *claims,
                                                      size_t count, uint64_t live_bytes,
                                                      bool has_completions);
/* The zone has a chunk that another one claims, from which it has moved away before. ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_chunk(struct sh_backup *backup, uint64_t number,
                                                     uint64_t chunk);
/* Of its claims nobody finds others here from now on than those, as of adopt_keep, which records that: the others can't be its own any more. Any number of times before that. ENOMEM, ELIMIT: the
 * zone is to be given up. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_narrow(struct sh_backup *backup, uint64_t number,
                                                      const struct sh_metadata_run *kept,
                                                      size_t count);
/* Of its claims it has those only, in order and without overlaps, all of which it claims, as far as no zone has them that was adopted before and is not open: the superpeers have the others as other
 * nodes'. So nobody finds them here, and no restorer of the zone after this one takes them. No other zone here claims what this one has, from then on.
 * EAGAIN: there is no room now, or that is not durable yet: the same again. ENOMEM, ELIMIT. Before it may open. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_keep(struct sh_backup *backup, uint64_t number,
                                                    const struct sh_metadata_run *kept,
                                                    size_t count);
/* Whether adopt_keep would take claims of open zones of this node's. */
bool sh_backup_adopt_takes(struct sh_backup *backup, uint64_t number,
                           const struct sh_metadata_run *kept, size_t count);
/* The number of the zone that claims a chunk, 0: none does; and the last chunk behind it of which that is so. */
uint64_t sh_backup_claimant(const struct sh_backup *backup, uint64_t chunk, uint64_t *last_out);
/* Whether a zone that is not open yet claims one of those chunks: which of its claims it keeps is not known yet. */
bool sh_backup_is_opening(const struct sh_backup *backup, uint64_t first, uint64_t last);
/* The zone has so many bytes of chunks, as they count for a zone: some were let go of. */
void sh_backup_adopt_settle(struct sh_backup *backup, uint64_t number, uint64_t live_bytes);
/* The zone's chunks are this node's, by the superpeers: once its backups have all that was recorded so far on their disks, the record names no former owner any more. */
void sh_backup_adopt_open(struct sh_backup *backup, uint64_t number);
/* OK: the zone is open, as any other, and may be dropped as one. EAGAIN: it is not open yet. EFENCED: this life is not its owner. */
SHOAL_NODISCARD enum shoal_err sh_backup_adopt_state(struct sh_backup *backup, uint64_t number);
/* Whether the zone's record names this node as a backup, with the replica from which it was brought back. False also of a zone that is gone. */
bool sh_backup_adopted_needs_own(struct sh_backup *backup, uint64_t id);
/* The zone is not adopted after all; not once it may open. Returns whether backups may have got more of it than what was before its end. */
bool sh_backup_adopt_cancel(struct sh_backup *backup, uint64_t number);

/* Whether anything is backed up. Where it is not, no write ever waits, and a NULL does for it. */
bool sh_backup_is_on(const struct sh_backup *backup);

/* The next chunk of a claim from that one on that the store has; false: there is none. */
bool sh_backup_chunk_next(const struct sh_backup *backup, const struct sh_zone_claim *claim,
                          uint64_t from, uint64_t *chunk_out);
/* Whether a zone that was found claims a chunk. */
bool sh_backup_is_claimed(struct sh_backup *backup, uint64_t chunk);
/* The number of the zone that has a chunk; false: none has. */
bool sh_backup_zone_number(struct sh_backup *backup, shoal_cid cid, uint64_t *number_out);

/* --- Writing ----------------------------------------------------------------------------------- */

#define SH_WRITE_MARKS 4
#define SH_WRITE_GUARDS 16

/* One operation of a caller, of any number of changes, until it is acknowledged. Owned by the caller. */
struct sh_write {
    enum sh_level level; /* at which it waits for all that it stands for */
    /* The backup's, but for the request. */
    uint8_t marks_count, guards_count;
    bool is_all;  /* it has more marks than there is room for: all zones count */
    bool is_wide; /* it has more guards than there is room for */
    const struct sh_write_request *request; /* that it is of, see below; NULL: of none */
    struct sh_write_mark {
        struct sh_own_zone *zone;
        uint64_t number; /* of the last write there */
    } marks[SH_WRITE_MARKS];
    uint16_t guards[SH_WRITE_GUARDS];
    uint64_t room_seen; /* how often room had been given before the last change was tried */
    uint64_t zone_next;
    void (*done)(void *arg, enum shoal_err err);
    void *arg;
    struct sh_write *next;
    bool is_for_room;
    bool was_refused; /* for want of room, the last change that was tried */
    bool is_told;     /* what came of the request goes with a change that was made */
    uint8_t
        own; /* level of its changes, as others see them: lower where it has joined what others wait for */
};

void sh_write_begin(struct sh_write *write, enum sh_level level);

/* A request that is done once (msg/once.h), whatever happens to this process: what came of it is recorded with the first change, and is
 * there after a crash if, and only if, the change is (completion.h). One request, one chunk. */
struct sh_write_request {
    uint64_t client, number, acknowledged;
    enum sh_write_result {
        SH_WRITE_NO_RESULT, /* but that it was done */
        SH_WRITE_CHUNK,     /* the chunk that it has made */
        SH_WRITE_SUMMAND,   /* what was in a field before something was added */
    } result;
    /* Of a summand, as in struct sh_store_rewrite. */
    uint32_t offset;
    unsigned width;
    uint64_t delta;
};
/* The request stays while the write changes chunks. */
void sh_write_request_set(struct sh_write *write, const struct sh_write_request *request);

/* Records what came of a request that another node ran on a chunk which is here now: in the stream of the chunk's zone, as a write by itself. The write then
 * stands for that, too. EAGAIN: there is no room now, nothing was recorded; ENOSPC, EIO. Where nothing is backed up, it does nothing. */
SHOAL_NODISCARD enum shoal_err sh_backup_tell(struct sh_backup *backup, struct sh_write *write,
                                              shoal_cid cid,
                                              const struct sh_completion *completion);

/* The store's functions of these names, whose changes the write then stands for. EAGAIN: the backlog has no room now, nothing was
 * changed; sh_backup_room_wait, and call again. ENOSPC: the log of the own disk has no room for another zone, or for what the chunk's zone
 * gets, and no other zone can take it. EIO: the log is out of service. ELIMIT: of a
 * large chunk, which is to be changed in pieces. */
SHOAL_NODISCARD enum shoal_err sh_backup_new_as(struct sh_backup *backup, struct sh_write *write,
                                                const struct sh_store_wish *wish,
                                                shoal_cid *cids_out, size_t *made_out);
/* The commonest of them, as short as can be: puts of a program go on while their cache misses are under way. */
SHOAL_NODISCARD enum shoal_err sh_backup_put(struct sh_backup *backup, struct sh_write *write,
                                             shoal_cid cid, struct sh_bytes data);
SHOAL_NODISCARD enum shoal_err sh_backup_new_many(struct sh_backup *backup, struct sh_write *write,
                                                  uint32_t size, size_t count, shoal_cid *cids_out);
SHOAL_NODISCARD enum shoal_err sh_backup_rewrite(struct sh_backup *backup, struct sh_write *write,
                                                 const struct sh_store_rewrite *rewrite);
SHOAL_NODISCARD enum shoal_err sh_backup_adopt(struct sh_backup *backup, struct sh_write *write,
                                               shoal_cid cid, struct sh_bytes data);
SHOAL_NODISCARD enum shoal_err sh_backup_remove(struct sh_backup *backup, struct sh_write *write,
                                                shoal_cid cid);
SHOAL_NODISCARD enum shoal_err sh_backup_release(struct sh_backup *backup, struct sh_write *write,
                                                 shoal_cid cid);
SHOAL_NODISCARD enum shoal_err sh_backup_hand_back(struct sh_backup *backup, struct sh_write *write,
                                                   shoal_cid cid);
SHOAL_NODISCARD enum shoal_err sh_backup_take_over(struct sh_backup *backup, struct sh_write *write,
                                                   shoal_cid cid, struct sh_bytes data);
size_t sh_backup_put_multi(struct sh_backup *backup, struct sh_write *write,
                           struct sh_store_op *ops, size_t count);
size_t sh_backup_resize_multi(struct sh_backup *backup, struct sh_write *write,
                              struct sh_store_op *ops, size_t count);
size_t sh_backup_remove_multi(struct sh_backup *backup, struct sh_write *write,
                              const shoal_cid *cids, size_t count, enum shoal_err *errs_out);
/* One step of what the store does in pieces; true: it is over. False, and sh_write_was_refused: there is no room, so that the next
 * step does nothing either. */
SHOAL_NODISCARD bool sh_backup_rewriting_step(struct sh_backup *backup, struct sh_write *write,
                                              struct sh_store_rewriting *rewriting);
SHOAL_NODISCARD bool sh_backup_making_step(struct sh_backup *backup, struct sh_write *write,
                                           struct sh_store_making *making, size_t chunks_most);
/* EAGAIN: to be called again in a later step. With sh_write_was_refused there is no room until then. */
SHOAL_NODISCARD enum shoal_err sh_backup_arriving_end(struct sh_backup *backup,
                                                      struct sh_write *write,
                                                      struct sh_store_arriving *arriving);
/* One step of a load (store/dump.h). A load makes more chunks than a write has room for: let it be one of SH_LEVEL_ASYNC, and
 * wait with sh_backup_write_all once all is loaded. */
unsigned sh_backup_load_step(struct sh_backup *backup, struct sh_write *write, struct sh_load *load,
                             unsigned budget_bytes);

/* --- Waiting ----------------------------------------------------------------------------------- */

/* False: what the write stands for is acknowledged. Else done will be called, once, from a step: OK, or EIO when the log has gone out of
 * service; the write stays until then. */
bool sh_write_wait(struct sh_backup *backup, struct sh_write *write,
                   void (*done)(void *arg, enum shoal_err err), void *arg);
/* After a chunk was read, or found missing: whether what was seen is acknowledged already. False: the write stands for what was seen, with the level at
 * which others wait for it; sh_write_wait. */
bool sh_backup_read_is_clean(struct sh_backup *backup, shoal_cid cid, struct sh_write *write_out);
/* The write stands for that as well, which another one stands for that was made by one of these two; at the higher level of the two. Others
 * who see its own changes wait for them at its own level, as before. */
void sh_write_join(struct sh_write *write, const struct sh_write *seen);
/* The same of all chunks together, as sh_backup_read_is_clean of one. It takes 10 us. */
bool sh_backup_is_clean(struct sh_backup *backup, struct sh_write *write_out);
/* The write stands for all that was written so far, by anybody, at its level. */
void sh_backup_write_all(struct sh_backup *backup, struct sh_write *write);
bool sh_write_was_refused(const struct sh_write *write);
/* done is called, once, from a step, when there may be room again for what this write was answered with EAGAIN. */
void sh_backup_room_wait(struct sh_backup *backup, struct sh_write *write,
                         void (*done)(void *arg, enum shoal_err err), void *arg);

/* --- The step ---------------------------------------------------------------------------------- */

/* Moves writes from backlogs to the log, steps the log, and calls who waits, for a bounded time; returns how much that was. seconds: as in
 * sh_replog_step. */
unsigned sh_backup_step(struct sh_backup *backup, uint64_t now_ns, uint32_t seconds);
/* When the next step is due though nobody wakes. */
uint64_t sh_backup_due_ns(const struct sh_backup *backup);

struct sh_backup_status {
    unsigned zones;
    uint64_t live_bytes; /* of chunks, with SH_ZONE_CHUNK_BYTES for each */
    uint64_t writes;     /* numbers given so far */
    uint64_t dropped;    /* zones, as they were empty */
    uint64_t evacuated;  /* chunks that moved out of zones that had few */
    size_t blocks_free;  /* of backlogs */
    enum shoal_err trouble;
    unsigned
        full; /* zones for whose next write the log of the own disk has no room, and can get none */
    unsigned damaged;  /* zones that are, on the own disk, and are being repaired */
    uint64_t repaired; /* zones that were damaged: their chunks were written once more */
    /* In a cluster: */
    unsigned under_replicated; /* zones with fewer backups than they are to have */
    unsigned bare;             /* of these, with none that takes writes */
    unsigned stalled;          /* backups that stand still, and stay, as the zone has no other */
    unsigned given_up; /* so far: backups that stood still, or were much slower than others */
    unsigned copies;   /* backups that are being added */
    unsigned copies_max;
    uint64_t copy_bytes_per_s; /* both as configured */
    uint64_t compared,
        records_lost; /* comparisons of all records; records that the superpeers had lost, or an old copy of */
    uint64_t messages, message_bytes; /* sent to backups */
    uint64_t copied_bytes, copies_done;
    uint64_t again_bytes; /* of message_bytes: of messages that begin with what was sent before */
    /* Of all zones' backups: how many take writes, and how many do not now; bytes that wait for each of the two; of those that take writes, bytes on
     * their way, and that may be. */
    unsigned streams, streams_waiting;
    uint64_t pending_bytes, waiting_bytes, flying_bytes, credit_bytes;
    /* Between a message that asks for an ACK and the ACK that has all of it: how many, and all of them together. */
    uint64_t acks, ack_ns, ack_longest_ns;
};
void sh_backup_status_get(struct sh_backup *backup, struct sh_backup_status *status_out);

/* --- Zones, for people ------------------------------------------------------------------------- */

enum sh_sink_state {
    SH_SINK_NONE,
    SH_SINK_HOME,    /* the own disk */
    SH_SINK_CLOSED,  /* to be opened */
    SH_SINK_OPENING, /* the backup was asked */
    SH_SINK_CLOSING, /* what the backup has of the zone goes first */
    SH_SINK_STREAMING,
    SH_SINK_FULL, /* the backup, or the own disk, has no room now */
    SH_SINK_LOST, /* it is to be replaced */
};
const char *sh_sink_state_name(enum sh_sink_state state);

#define SH_SINKS_MAX 5 /* of a zone: its backups, and one that is being added */
struct sh_zone_state {
    uint64_t number;
    uint32_t incarnation; /* 0: it has no record */
    uint8_t wanted;
    bool is_concluded;
    uint64_t live_bytes, next, acked[SH_LEVELS];
    unsigned count;
    struct sh_zone_state_backup {
        shoal_nid nid;
        uint64_t disk;
        enum sh_sink_state state;
        enum shoal_err why; /* LOST; of the own disk, FULL */
        bool is_recorded;
        bool is_stalled;
        bool is_added;         /* the zone is copied to it: */
        uint64_t copied_bytes; /* so many of its live_bytes so far, about */
        uint64_t pending_bytes;
        uint64_t acked[SH_LEVELS];
    } backups[SH_SINKS_MAX];
};
/* The first zone with a number of at least that one. False: there is none. The step's thread. */
bool sh_backup_zone_state(struct sh_backup *backup, uint64_t from, struct sh_zone_state *state_out);

#endif
