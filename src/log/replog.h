/* A backup's log: the replicas of other nodes' zones, in one file.
 *
 *   append ──► zone's batch ──┬─ large ──────────────────► a slot of the zone    (secondary log)
 *   (version, one copy)       └─ small ──► packed ──► ring of all zones, and later a slot (primary log)
 *
 *   appended ──► handed (a write has ended: survives the process) ──► durable (synced: survives the power)
 *
 * A write is given its version and copied to the end of its zone's batch, in memory. A batch of batch_bytes goes to a
 * slot as it lies. What is smaller is packed with that of other zones after linger_ns, or sooner where somebody waits
 * (sh_replog_sync), and written to the primary log at once; it stays in its batch, until that is worth a write, or the
 * primary log needs the room, or half of the buffer is in use (DXRAM thesis 6 III and V; docs/log.md).
 *
 * A write or sync that failed is never tried again: the log goes out of service, sh_replog_trouble says why, and what was not
 * said to be durable may or may not be there. Only a disk that is full is tried again: it says so in the status, and appends get EAGAIN.
 *
 * Memory: the buffer, tables of versions (tables_bytes), 2.9 KiB a zone, 48 bytes a slot, 1.7 MiB, and what the cleaner takes when it first cleans
 * a zone (docs/log.md). Nothing else is allocated while zones are written to and cleaned.
 * Threads: one at a time, that of the disk's owner. Only open and close wait. */
#ifndef SH_LOG_REPLOG_H
#define SH_LOG_REPLOG_H

#include "base/bytes.h"
#include "env/env.h"
#include "shoal/err.h"

struct sh_replog;
struct sh_replog_zone;

/* Completion records: what came of requests, kept for a while so that these are not done again (docs/backup.md). An entry with a creator
 * and local ID of its own, without a version, of bytes that mean nothing to the log. Here: for how long they count, and who knows more. */
struct sh_replog_completions {
    uint32_t seconds; /* by the log's clock; 0: SH_REPLOG_COMPLETION_SECONDS */
    /* One is appended, to a zone of that owner. NULL: nobody is told. Called within sh_replog_append. */
    void (*noted)(void *arg, uint16_t owner, struct sh_bytes completion);
    /* Whether nobody asks for it any more, so that the cleaner drops it sooner. Called within sh_replog_step. NULL: that is not known. */
    bool (*is_over)(void *arg, uint16_t owner, struct sh_bytes completion);
    void *arg;
};
#define SH_REPLOG_COMPLETION_SECONDS 240u
#define SH_REPLOG_COMPLETION_MAX 64                 /* bytes of one */
#define SH_REPLOG_COMPLETION_ID (UINT64_C(1) << 47) /* its local ID; its creator is 0 */

/* Which slots of a zone are cleaned first (docs/log.md, "Which slots"). */
enum sh_replog_selection {
    SH_REPLOG_COST_BENEFIT, /* what gains most for what it costs, by what cleanings have kept so far; the default */
    SH_REPLOG_TIMESTAMPS, /* the same, by how old the entries in a slot were when they were copied */
    SH_REPLOG_AGE_FILL,   /* age times fill */
    SH_REPLOG_OLDEST,
    SH_REPLOG_RANDOM
};
#define SH_REPLOG_SELECTIONS 5
/* Their names, in that order; NULL behind the last one. */
extern const char *const sh_replog_selection_names[];
/* Of a name that is one of these. */
enum sh_replog_selection sh_replog_selection_of(const char *name);

struct sh_replog_config {
    struct sh_disk *disk; /* borrowed; where it is direct, all that is written is aligned */
    const char *name;     /* of the file in it */
    struct sh_random random;
    /* Whose log it is; a file of another one is refused, and one of nobody becomes this one's. Both 0: nobody's yet (sh_replog_name). */
    uint64_t cluster;
    uint16_t node;
    /* Of a file that is new; one that is there has its own slot_bytes and primary_blocks, and gets more slots where these have more bytes than
     * its own, but for a raw disk that lacks them. It never has fewer. */
    uint32_t slot_bytes, slots; /* a multiple of 4096, 64 KiB to 1 GiB */
    uint32_t
        primary_blocks; /* of 4 KiB, 256 at least; 0: no primary log, small batches go to slots, too */
    uint64_t
        buffer_bytes; /* a multiple of 64 KiB; three batches of up to a slot, or 1 MiB, and the versions of two epochs, at least */
    uint32_t batch_bytes; /* from which a batch goes to a slot; 128 KiB */
    uint64_t linger_ns;   /* 100 ms */
    size_t versions_max;  /* slots of a zone's table of versions; a power of two, 16 at least */
    uint64_t
        tables_bytes; /* of the tables of all zones together; two tables at least. 0: what 1/570 of the bytes that zones may have leaves beside the buffer and 2 MiB, a quarter of the buffer at least */
    /* What is packed is written as batches are, and synced later: linger_ns after the first write that is not, or sooner where somebody
     * waits for durable. For a log whose writers are content with `handed`: a process that is killed loses nothing then. */
    bool syncs_later;
    struct sh_replog_completions completions;
    enum sh_replog_selection selection;
    /* Bytes of the disk that are to stay free: a zone is refused where what it and the others may still take would leave less. */
    uint64_t reserve_bytes;
    /* Free slots that keep their room on the disk; others are discarded, in time. 0: 32. At least those that are reserved ahead. */
    uint32_t slots_kept;
    /* Bytes of slots that the scrub reads a second, in the background; 0: there is none. It keeps memory for a slot. */
    uint64_t scrub_bytes;
    /* The scrub, or the cleaner, has found damage in that slot, at that offset of the file: the zone, which has ECORRUPT from now on when it is loaded, needs
     * another replica. Called within sh_replog_step, once for a slot. zone NULL: it is not known. NULL: nothing is called. */
    void (*damaged)(void *arg, struct sh_replog_zone *zone, uint32_t slot, uint64_t offset);
    uint16_t
        epoch_max; /* epochs of an eon, 8 at least; 0: 32767. For tests: an eon ends within seconds then */
    /* All of the zone's writes before that sequence number are handed, or durable. Called within sh_replog_step, handed first. NULL:
     * nothing is. */
    void (*handed)(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
    void (*durable)(void *arg, struct sh_replog_zone *zone, uint64_t sequence);
    void *arg;
};

/* Opens the file, which is created if it is not there. What was in the primary log is written to slots. ECLUSTER: it is another
 * node's or cluster's. EINVAL: buffer_bytes is not enough for three batches and two epochs, or batch_bytes is more than a batch may have; or a file that is new would be of other sizes than are said above. EVERSION, ECORRUPT: it is none of ours; of a raw
 * disk without a log the first MiB must be zero (ECORRUPT). ENOSPC: the disk is full, or a raw disk has fewer bytes than the log. ENOMEM, EIO. seconds: as in sh_replog_step. */
SHOAL_NODISCARD enum shoal_err sh_replog_open(const struct sh_replog_config *config,
                                              uint64_t now_ns, uint32_t seconds,
                                              struct sh_replog **log_out);

/* Says whose log it is that was opened as nobody's, before it has any zone; waits for the disk. Of no effect where the log is that one's. ECLUSTER: it is another's;
 * ENOSPC, EIO. */
SHOAL_NODISCARD enum shoal_err sh_replog_name(struct sh_replog *log, uint64_t cluster,
                                              uint16_t node);

/* Writes what is still in memory, and waits until the disk has it, as steps would, which tell of what they have done. It does not wait for what only time
 * brings, as room on a full disk. ENOSPC, EIO: the disk lacks some of it, which a close loses. */
SHOAL_NODISCARD enum shoal_err sh_replog_flush(struct sh_replog *log);
/* Waits for what is on its way to the disk, and loses writes that are still in memory: the caller syncs, or flushes, first. NULL is allowed. */
void sh_replog_close(struct sh_replog *log);

struct sh_replog_zone_config {
    uint64_t id;
    uint16_t owner;
    uint32_t incarnation;
    uint64_t first;
    uint64_t bytes_max;
    /* The long range of chunks that most of the zone is, for the cleaner: 8 bytes of memory each while it cleans the zone. Of
     * others, as many as rest_max, 22 bytes each. */
    uint64_t range_first, range_count, rest_max;
};

/* How many slots a log keeps for a zone. It keeps SH_REPLOG_SPARE_SLOTS for its cleaner. */
uint32_t sh_replog_slots_for(uint32_t slot_bytes, uint64_t bytes_max);
#define SH_REPLOG_SPARE_SLOTS 6

/* A zone that is to be written to: new, or loaded (sh_replog_zone_load), and then in an epoch of its own. Sequence numbers begin
 * with `first`, which of one that is loaded is what was told; EINVAL else. One that was dropped needs a higher incarnation than it
 * has had (EINVAL, while the log knows that: until four laps of the primary log have begun, or it is closed), and may begin anywhere. bytes_max: what its log may take, rounded up to slots, and four more, which the log
 * then keeps for it. EEXIST: it is being written to. EBUSY: it has to be loaded first, or is being loaded, read, dropped or sealed. EFULL: a quarter of an eon's epochs was used by starts alone. ENOSPC: the log has
 * not so many, or the disk has no room for them beside reserve_bytes. EIO: the disk does not say. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_add(struct sh_replog *log,
                                                  const struct sh_replog_zone_config *config,
                                                  struct sh_replog_zone **zone_out);

/* Whether the log and its disk have room for one more zone of so many bytes. OK, ENOSPC; EIO: the disk does not say. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_fits(struct sh_replog *log, uint64_t bytes_max);

/* Lets a zone that is written to have an eighth more slots than it may have, or as many as there are: for one that is full though all of it
 * is current (ENOSPC of sh_replog_append), as one is with a chunk that has outgrown bytes_max. The log keeps them for the zone
 * until it is dropped, or the log is closed. ENOSPC: the log has no slot left that another zone may not need, or the disk has
 * no room. ECORRUPT: the zone is damaged, so that it is not cleaned, and has half as many slots more than when that was found: it would take all
 * that there is. EBUSY: it is being dropped or sealed. EIO. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_grow(struct sh_replog_zone *zone);

/* NULL: the log has nothing of it, and it was not added. */
struct sh_replog_zone *sh_replog_zone_find(struct sh_replog *log, uint64_t id);
uint64_t sh_replog_zone_id(const struct sh_replog_zone *zone);
/* The zone with the highest ID below that one; NULL: there is none. */
struct sh_replog_zone *sh_replog_zone_below(struct sh_replog *log, uint64_t id);

/* The log knows this of a zone without reading its slots. */
struct sh_replog_known {
    uint32_t incarnation; /* the highest that it has had */
    bool is_added;        /* it is written to, or being dropped or sealed since */
    bool has_slots;
};
struct sh_replog_known sh_replog_zone_known(const struct sh_replog_zone *zone);

/* Reads all slots of a zone that is not written to, in steps; calls `loaded` when that is done, from within one. end: the
 * sequence number before which all are there. ECORRUPT: so it is, but something that was on the disk can't be read, so that the zone
 * should get another replica. Until then the zone and arg stay.
 * EBUSY: a zone is being loaded, or this one is written to, or being dropped. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_load(struct sh_replog_zone *zone,
                                                   void (*loaded)(void *arg,
                                                                  struct sh_replog_zone *zone,
                                                                  uint64_t end, enum shoal_err err),
                                                   void *arg);

struct sh_replog_write;

/* A zone holds such items: a chunk, or a piece of one; or, of creator 0 and local ID SH_REPLOG_COMPLETION_ID, a completion record. */
struct sh_replog_item {
    uint64_t local_id;
    uint16_t creator;
    uint16_t piece, pieces; /* of a chunk in pieces, in any order; else 0, 1 */
    uint32_t offset, total; /* bytes: where the payload belongs in the chunk, which has so many */
    struct sh_bytes
        payload; /* lent until `flush`, or that step, has returned. at NULL: as many zeros */
};

struct sh_replog_read {
    /* Takes what the zone holds; called within sh_replog_step. EAGAIN: not now; it is offered again in a later step. Another error ends the
     * reading with it. */
    enum shoal_err (*take)(void *arg, struct sh_replog_zone *zone,
                           const struct sh_replog_item *item);
    /* The zone's tail: all its writes with sequence numbers tail_from <= sequence < end, in the order of these, as they were appended (pieces one after the
     * other, with one number; removals; also what has been superseded, and completion records that are too old). Where the caller drops chunks, `take` is called before and behind them, else behind them. EAGAIN,
     * and other errors: as of take. The write is borrowed. No tail is handed out where some of it is not there any more, as the cleaner has copied it from
     * where it was written and numbers get lost so; where tail_from > end; or where it takes more than tail_bytes_max of memory (payloads,
     * and some 220 bytes a write or piece). Whether it was, sh_replog_zone_has_tail tells. tail_from 0: none
     * is wanted, and `tail` may be NULL. */
    uint64_t tail_from;
    size_t tail_bytes_max;
    enum shoal_err (*tail)(void *arg, struct sh_replog_zone *zone, uint64_t sequence,
                           const struct sh_replog_write *write);
    /* Drops what was taken of a chunk, all of it or a piece: it is outdated, and nothing of it counts. NULL: nothing is handed out that may turn out to
     * be outdated, for which the slots are read once more. Called, and fails, as `take`: EAGAIN: it is asked again in a later step. */
    enum shoal_err (*drop)(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                           uint64_t local_id);
    /* Uses what was taken since it was called last, as the bytes of that are lent no longer: the last call of a step in which `take` has taken something, but for `done`.
     * An error, which is not EAGAIN, ends the reading with it. NULL: there is nothing to do. */
    enum shoal_err (*flush)(void *arg, struct sh_replog_zone *zone);
    /* Behind that nothing is called. end, err: as for a load. ECORRUPT: all that can be read was handed out, perhaps of chunks of which a newer version
     * can't be read. */
    void (*done)(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err);
    void *arg;
};

/* Loads a zone, as above, and hands out all chunks that it has by the writes before `end`: each once, but pieces perhaps twice (a crash
 * may leave them so), nothing of chunks that were removed; and the completion records of these writes that are not too old, and some that are over, also perhaps twice. Where the
 * caller drops chunks, one that was dropped may be handed out again; when all is over those count that were taken since.
 *
 * All slots are read once if the caller drops chunks, else twice; thrice where there are writes that do not count, or an eon has begun; the last of several
 * times without those of versions. Those with the tail are read once more. Memory: two slots; tail_bytes_max from when the tail is read until it is handed out;
 * 10 bytes a chunk of those that lie close, 220 of one that has no neighbours (log/newest.h); and where the caller drops chunks, up to 130 a completion record. Errors as above. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_read(struct sh_replog_zone *zone,
                                                   const struct sh_replog_read *read);
/* How far a reading has come. It may read the zone's slots several times, so `read` is as large a share of `bytes` as what it has read is of all that it is to read, as far as
 * that is known: it falls where the slots turn out to be read once more. */
struct sh_replog_progress {
    uint64_t read;  /* of `bytes`; 0, too, while the zone is not being read */
    uint64_t bytes; /* of the zone's slots */
};
struct sh_replog_progress sh_replog_zone_progress(const struct sh_replog_zone *zone);
/* Whether the last reading of the zone has handed out its tail, all of it, be it empty: for `take` and `done`, and later. */
bool sh_replog_zone_has_tail(const struct sh_replog_zone *zone);

/* Gives all of a zone away, whether it is written to or was only found. Nothing is appended to it from now on (EBUSY), and what no disk
 * has yet goes. Calls `dropped` from within a step once neither a crash nor a start brings anything of it back; the zone must not be
 * used any more then, nor found. After a crash before that all of it is there, or nothing. EIO, told by `dropped`: the log went out of
 * service, and which of both is not known. EBUSY: it is being dropped already, or sealed, loaded, or read. EIO: out of service. ENOMEM. With these
 * nothing has changed, and `dropped` is not called. Zones are dropped one after the other. */
SHOAL_NODISCARD enum shoal_err
sh_replog_zone_drop(struct sh_replog_zone *zone,
                    void (*dropped)(void *arg, uint64_t id, enum shoal_err err), void *arg);

/* Ends the writing to a zone, whose owner has failed, say. Nothing is appended to it from now on (EBUSY of sh_replog_append, grow, abandon), pieces of a
 * chunk that is not complete count for nothing, and all that was appended before goes to slots and becomes durable. Calls `sealed` from within a step
 * once that is so: the zone is then as one that a start has found (is_added false), its memory is given back, and the log keeps for it the slots
 * that it has. It may be loaded, read and dropped, and added again once it is loaded; also from within `sealed`. end: the number
 * before which all is there, as a load will say; of a zone to which nothing was ever written a load finds no end, and it begins anywhere. A crash loses
 * nothing that was durable or handed, as ever, and what a start finds after `sealed` is all of it. While the disk is full it waits for room, as appends
 * do (is_full of the status). EIO, told by `sealed`, with end 0: the log went out of service. EBUSY: the zone is being sealed already, or
 * dropped, loaded or read. EINVAL: it is not written to: it was only found, or has been sealed. EIO: out of service. ENOMEM. With these nothing has
 * changed, and `sealed` is not called. Zones are sealed side by side; of one that is being sealed when the log is closed nobody is told. */
SHOAL_NODISCARD enum shoal_err sh_replog_zone_seal(struct sh_replog_zone *zone,
                                                   void (*sealed)(void *arg,
                                                                  struct sh_replog_zone *zone,
                                                                  uint64_t end, enum shoal_err err),
                                                   void *arg);

/* Damage of a zone that its last load has found, and the cleaner since: it had been on the disk, and can't be read. */
struct sh_replog_damage {
    uint32_t slots;  /* with damage */
    uint32_t slot;   /* the first that was found, and */
    uint64_t offset; /* where it begins there, in the file */
};
struct sh_replog_damage sh_replog_zone_damage(const struct sh_replog_zone *zone);

/* A write of a chunk, or of a piece of one, or its removal. */
struct sh_replog_write {
    uint64_t local_id; /* 48 bits; not 0 where the creator is */
    uint16_t creator;
    bool is_removal; /* without a payload */
    uint16_t piece,
        pieces;     /* of a chunk in several writes: its place, from 0, of how many; else 0, 1 */
    uint32_t total; /* of a piece: bytes of all pieces together */
    struct sh_bytes
        payload; /* the whole chunk, or the piece; copied. at NULL: as many zeros, which take no room */
    /* Another write, of another chunk, that has the same sequence number, as the result of a request has that of what it did: both count
     * or neither. It is one piece, of up to half as many bytes as a piece may have, and comes with the first one here. NULL: none. */
    const struct sh_replog_write *with;
    /* The outcome of the request that the write is of: a completion record of up to SH_REPLOG_COMPLETION_MAX bytes, copied. It counts if the
     * write does, for a while, and comes with the last piece. at NULL: none. */
    struct sh_bytes completion;
};

/* How many bytes a write may have: what is larger comes in pieces. A quarter of a slot, up to 512 KiB. Of zeros, SH_REPLOG_ZEROS_MAX. */
#define SH_REPLOG_ZEROS_MAX ((1u << 24) - 1)
size_t sh_replog_piece_max(const struct sh_replog *log);

/* Appends a write, which has the zone's next sequence number. The pieces of a chunk come one after the other, nothing of the zone in
 * between, and have one number, with the last one: until that is there, the chunk is what it was. EAGAIN: there is no room in memory, or
 * none on the disk yet; step, and try again. EFULL: all epochs are used up, and the zone is damaged, so that they can't be counted anew. ENOSPC: the zone has all slots that it may have, and what is in them is
 * current. ETOOBIG: over sh_replog_piece_max, or of zeros over SH_REPLOG_ZEROS_MAX. EINVAL: not the piece that comes next, or the pieces are not as long as `total` says. EIO: the log is out of service. EBUSY: the zone is being dropped or sealed. ENOMEM: an eon ends, and there is no memory for the
 * name of its last life. Nothing has changed then. */
SHOAL_NODISCARD enum shoal_err sh_replog_append(struct sh_replog_zone *zone,
                                                const struct sh_replog_write *write);

/* Gives up a chunk of which some pieces were appended, but not all: it is what it was, as is what came with it, and the next write has its
 * number. Nothing happens where no piece is missing. The next write waits until an epoch has ended: EAGAIN. EBUSY: the zone is being dropped or sealed. ENOMEM, EIO. Nothing has changed then. */
SHOAL_NODISCARD enum shoal_err sh_replog_abandon(struct sh_replog_zone *zone);

/* The sequence number of the next write; those before which all writes are handed, and durable. A write is handed when a write
 * of the disk that has it has ended, of a pack or of its batch's slot, and so have those of all writes before it: then it is found
 * after the process was killed. Durable is what is found after a power cut, too. next >= handed >= durable; without syncs_later what
 * is packed becomes both at once. */
uint64_t sh_replog_next(const struct sh_replog_zone *zone);
uint64_t sh_replog_handed(const struct sh_replog_zone *zone);
uint64_t sh_replog_durable(const struct sh_replog_zone *zone);

/* All that was appended to the zone is to be handed soon: a pack does not linger, nothing is synced for it. */
void sh_replog_hand(struct sh_replog_zone *zone);
/* All that was appended to the zone is to become durable soon. */
void sh_replog_sync(struct sh_replog_zone *zone);

/* Does what is to be done now, for a bounded time; returns how much that was. seconds: of the log's clock, which the
 * entries that are appended from here on have. */
unsigned sh_replog_step(struct sh_replog *log, uint64_t now_ns, uint32_t seconds);

/* When the next step is due, though nothing completes on the disk until then. */
uint64_t sh_replog_due_ns(const struct sh_replog *log);

/* OK, or why the log is out of service. */
enum shoal_err sh_replog_trouble(const struct sh_replog *log);

/* Why a batch went to a slot. */
enum sh_replog_flush {
    SH_REPLOG_FLUSH_LARGE,   /* it had batch_bytes */
    SH_REPLOG_FLUSH_FULL,    /* the next entry did not fit */
    SH_REPLOG_FLUSH_BUFFER,  /* half of the buffer was in use */
    SH_REPLOG_FLUSH_PRIMARY, /* three quarters of the primary log were */
    SH_REPLOG_FLUSH_OTHER, /* there is no primary log, a life ended, somebody asked for a dump, a zone is sealed */
};
#define SH_REPLOG_FLUSHES 5

struct sh_replog_status {
    uint64_t buffer_used;                   /* bytes */
    uint64_t appended, appended_bytes;      /* writes, and bytes of their payloads but zeros */
    uint64_t slot_writes, slot_bytes;       /* batches written to slots, with heads and padding */
    uint64_t survivor_bytes, version_bytes; /* of slot_bytes: by the cleaner; of version logs */
    uint64_t slot_largest;                  /* bytes of the largest batch */
    uint64_t slot_padding;                  /* of slot_bytes */
    uint64_t
        head_bytes; /* of slots' heads, when they are taken and given away; not of slot_bytes */
    uint64_t primary_writes, primary_bytes; /* packs */
    uint64_t primary_largest, primary_padding;
    uint64_t flushes[SH_REPLOG_FLUSHES]; /* of writes */
    uint64_t waits;                      /* EAGAINs of sh_replog_append */
    uint64_t read_errors;                /* of the disk */
    uint64_t syncs;
    uint64_t slots_cleaned, entries_kept, entries_dropped, marks_dropped; /* by the cleaner */
    uint64_t cleanings;                  /* of zones: each has loaded what is current in one */
    uint64_t clean_ns, clean_read_bytes; /* that they have taken */
    uint64_t entries_twice; /* of those that were dropped: as another one is the same */
    uint64_t compactions;   /* of version logs */
    uint64_t
        eons; /* of zones, that ended: all of their epochs had been used, and each entry visited */
    uint64_t zones_dropped;
    uint64_t
        damaged; /* slots that the cleaner or the scrub found so; the cleaner leaves them, and their zones, alone */
    uint64_t scrub_bytes, scrub_passes; /* bytes of slots that were checked; times that all were */
    uint32_t slots_lost; /* with damaged heads, found by the open: they are not used */
    uint32_t zones, slots, slots_free;
    uint32_t slots_reserved;            /* of slots_free: with room on the disk */
    uint64_t discards, discarded_bytes; /* of slots that were free; bytes */
    bool is_full;                       /* it had no room when it was asked last */
    uint64_t refused;                   /* reservations and writes for which it had none */
};
/* Copies; makes no system call. */
void sh_replog_status_get(const struct sh_replog *log, struct sh_replog_status *status_out);

/* Bytes of slots. Looks at all zones. */
struct sh_replog_space {
    uint64_t all;
    uint64_t free;    /* that no zone has, or may have, nor the log keeps for its cleaner */
    uint64_t to_come; /* that zones may have beside those that they have */
};
void sh_replog_space_get(const struct sh_replog *log, struct sh_replog_space *space_out);

/* --- A scrub that somebody asks for --------------------------------------------------------------- */

enum sh_replog_harm {
    SH_REPLOG_HARM_DAMAGED,    /* it fails its checksum, and had been on the disk */
    SH_REPLOG_HARM_HEAD,       /* both copies of the slot's head do */
    SH_REPLOG_HARM_HALF,       /* a copy of the slot's head does; the other one is enough */
    SH_REPLOG_HARM_UNREADABLE, /* the disk reports an error */
};

struct sh_replog_place {
    enum sh_replog_harm harm;
    uint8_t kind; /* enum sh_log_slot_kind (slot.h); 0: not known */
    uint32_t slot;
    uint64_t offset; /* in the file */
    uint64_t zone;   /* 0: not known */
    uint64_t use;    /* of the slot, then */
    bool is_gone;    /* the slot was given away since: its zone has other replicas */
};
#define SH_REPLOG_PLACES_MAX 256 /* that are kept */

/* The last one that was asked for. */
struct sh_replog_scrub_state {
    uint64_t number; /* 0: none was */
    uint64_t zone;   /* 0: all */
    bool is_running;
    uint32_t slots, slots_done;
    uint32_t
        slots_passed_over; /* that were given away, or of which nothing became durable in time */
    uint64_t bytes;        /* that were read */
    uint64_t places;       /* that were found; the first SH_REPLOG_PLACES_MAX are kept */
};

/* Begins a scrub of the slots that are in use now, of that zone or of all: 0; at so many bytes a second, one at least, and not less than the background's. It goes before that,
 * and ends one that was asked for before. What is damaged is told as for the background's, and kept. ENONAME: the log has nothing of the zone. EIO: out of
 * service. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_scrub_begin(struct sh_replog *log, uint64_t zone,
                                                     uint64_t rate, uint64_t *number_out);
struct sh_replog_scrub_state sh_replog_scrub_state(const struct sh_replog *log);
/* Places that the last one has found, in pages, as the tables below. */
size_t sh_replog_scrub_places(const struct sh_replog *log, uint64_t *cursor_inout,
                              struct sh_replog_place *places_out, size_t room);

/* --- For people: what is known without reading the disk ------------------------------------------- */

struct sh_replog_look {
    uint64_t buffer_bytes, primary_bytes, file_bytes;
    uint32_t batch_bytes, slot_bytes;
};
struct sh_replog_look sh_replog_look(const struct sh_replog *log);

struct sh_replog_look_zone {
    uint64_t id;
    uint16_t owner;
    struct sh_replog_known known;
    uint32_t slots, slots_max;      /* slots_max 0: it is not written to */
    uint64_t slot_bytes;            /* that its slots are filled with, heads included */
    uint64_t next, handed, durable; /* 0: it is not written to */
    struct sh_replog_damage damage;
};
struct sh_replog_look_slot {
    uint32_t slot;
    uint64_t zone;
    uint8_t kind; /* enum sh_log_slot_kind (slot.h) */
    uint32_t
        filled_bytes; /* with its head; of one that is_found, and was not read by a load: all of it */
    uint32_t since_seconds;
    uint16_t pending; /* batches that are not durable there yet */
    bool is_found;    /* it has entries from an earlier process */
    bool is_closed;   /* nothing more is written to it */
};
/* The zones, and the slots in use, in pages of up to `room`, 1 at least; returns how many. *cursor_inout is 0 for the first page, and 0 again
 * when that was the last. A zone that comes or goes between two pages may hide another, or be there twice. */
size_t sh_replog_look_zones(const struct sh_replog *log, uint64_t *cursor_inout,
                            struct sh_replog_look_zone *zones_out, size_t room);
size_t sh_replog_look_slots(const struct sh_replog *log, uint64_t *cursor_inout,
                            struct sh_replog_look_slot *slots_out, size_t room);

#endif
