/* What the files of the log share. */
#ifndef SH_LOG_REPLOG_INT_H
#define SH_LOG_REPLOG_INT_H

#include "log/blocks.h"
#include "log/entry.h"
#include "log/replog.h"
#include "log/replog_lives_int.h"
#include "log/scan.h"
#include "log/slots.h"
#include "log/span.h"
#include "log/versions.h"

#define SH_REPLOG_OPS 64             /* disk operations in flight */
#define SH_REPLOG_PIECES 160         /* of one operation: 8 MiB of a chain, and a slot's head */
#define SH_REPLOG_WRITES 32          /* batches that are being written to slots */
#define SH_REPLOG_SPARE_ZONE_SLOTS 2 /* of a zone, are not for writes */
#define SH_REPLOG_SPARE 256          /* batches beside one for each zone */
#define SH_REPLOG_BUCKETS 4096
#define SH_REPLOG_PACK_BYTES (1u << 20)

/* How soon a zone is to be cleaned. */
enum sh_replog_urgency {
    SH_REPLOG_NOT,
    SH_REPLOG_IDLE, /* when nobody has written for a while */
    SH_REPLOG_FULL,
    SH_REPLOG_URGENT /* before all others: its next batch has no place */
};
#define SH_REPLOG_URGENCIES 4

/* A queue of batches, which can leave it in the middle. A batch can be in one of each kind. */
enum sh_replog_queue_kind { SH_REPLOG_BY_AGE, SH_REPLOG_BY_PRIMARY, SH_REPLOG_BY_STATE };
#define SH_REPLOG_QUEUE_KINDS 3
struct sh_replog_queue {
    struct sh_replog_batch *first, *last;
    unsigned count;
    enum sh_replog_queue_kind kind;
};
struct sh_replog_links {
    struct sh_replog_batch *next, *previous;
    struct sh_replog_queue *queue; /* NULL: it is in none */
};

/* What a zone's slot is to get in one write: a chain of entries, behind room for the span's head, or of the version log's
 * pieces. */
struct sh_replog_batch {
    struct sh_replog_zone *zone;
    enum sh_log_slot_kind kind;
    struct sh_chain chain;
    struct sh_replog_context begin,
        end;              /* what the first entry, and the next one, are relative to */
    uint64_t first;       /* sequence number, */
    uint16_t first_piece; /* and piece, where some of that chunk went to a batch before */
    uint32_t sequences;
    uint32_t entries;
    uint32_t ordinal; /* of its span, this process's count; 0: it has none */
    uint64_t parts_before;
    struct sh_replog_batch *made_before, *made_behind; /* of the zone's that are not durable */
    uint16_t life;                                     /* that, too */
    uint64_t life_first;
    /* Of one without entries: the lives for which it has a span each, when it gets its place; of the zone's. */
    const struct sh_replog_life *lives;
    unsigned lives_count;
    /* Of another one without entries: slots of which it has a span each that gives them; of the cleaner's. */
    const uint32_t *gives;
    unsigned gives_count;
    uint64_t begun_ns; /* when its oldest entry came that no disk has yet */
    /* Up to where the primary log has it. */
    uint64_t packed; /* bytes of the chain */
    struct sh_replog_context packed_end;
    uint32_t packed_sequences;
    uint64_t primary_at; /* where its oldest part lies there, in blocks ever written */
    /* Once it is on its way to a slot. */
    uint32_t slot;
    uint64_t offset; /* of its first block in the file */
    struct sh_chain_walk walk;
    uint8_t *slot_head; /* is written as well; NULL: it is there */
    unsigned ops;       /* in flight */
    bool is_refused;    /* the disk was full: all of it is written again */
    bool is_begun, is_submitted, is_handed, is_durable;
    bool is_cleaners;
    /* Of survivors: how often the first had been copied; and how old all of them are, in seconds, times their bytes. */
    uint8_t generation;
    uint64_t age_sum, age_bytes;
    /* Called instead of counting sequence numbers when it is durable; it frees the batch. NULL: it is one of appends. */
    void (*done)(struct sh_replog_batch *batch);
    struct sh_replog_links links[SH_REPLOG_QUEUE_KINDS];
    struct sh_replog_batch *behind;    /* of the same zone, begun later; or free */
    struct sh_replog_batch *next_made; /* of all */
};

/* The word of the last span that tells of the zone's spans in slots. */
struct sh_replog_said {
    uint64_t teller, settled; /* ordinals; teller 0: none has told */
    uint64_t note; /* the ordinal of spans that give slots away; 0: none are being given away */
    uint32_t counted;
    bool is_own; /* the teller's own word, and not what the primary log has told before it */
    bool has_slotted;
    uint64_t slotted; /* the place before which all was durable in slots, by any of them */
};

struct sh_replog_zone {
    struct sh_replog *log;
    struct sh_replog_zone *next; /* in its bucket */
    uint64_t id;
    struct sh_replog_zone_config config; /* of one that is written to */
    uint16_t owner, epoch;
    uint16_t life; /* as spans say */
    uint64_t life_first;
    uint32_t incarnation;
    uint32_t incarnation_seen; /* the highest that the file has of it */
    bool is_dropping;          /* nothing more of it is written, but that it is dropped */
    bool is_sealing;           /* nothing more is appended (replog_seal.c) */
    /* The log has nothing of it; only incarnation_seen counts, until the primary log's lap fence_lap. is_fenced: it is in the log's list of
     * such zones, perhaps since it was dropped an earlier time (is_fenced_again). */
    bool is_dropped, is_fenced, is_fenced_again;
    uint32_t fence_lap;
    struct sh_replog_zone *next_fenced;
    struct sh_replog_lives lives; /* that are known, this one too */
    uint64_t end;                 /* of a loaded one: the number before which all is there */
    bool is_damaged;              /* something that was on the disk can't be read */
    bool
        has_lost; /* a slot of it, by what is left there, has no head any more: of that incarnation */
    uint32_t lost_incarnation;
    struct sh_replog_damage damage;
    /* The zone's spans in slots (replog_roll.c): ordinals of this process, and batches that are not durable, in their order. */
    uint32_t era, ordinal;
    struct sh_replog_batch *unsettled, *unsettled_last;
    uint64_t parts,
        parts_given; /* of spans that were found or made; of these, in slots that were given away */
    uint32_t
        note; /* the ordinal of spans that give slots which are being given away; 0: none are */
    uint64_t ordinal_found; /* by the load: the highest, */
    uint32_t parts_found;   /* and how many there are to be */
    /* By the primary log, at the start: what it says; and the highest number of which a write had been on the disk there, and is damaged. */
    struct sh_replog_said said_found;
    uint64_t number_lost;
    bool has_number_lost;
    /* A chunk of which some pieces were appended, but not all. */
    uint64_t chain_chunk;
    uint16_t chain_next, chain_pieces;  /* chain_pieces 0: there is none */
    uint32_t chain_offset, chain_total; /* bytes: of the pieces that are there; of all */
    uint32_t chain_number; /* of the version that it will have; the last piece takes it */
    uint64_t with_chunk;   /* came with the first piece; 0: none */
    bool with_is_removal;
    /* Such a chunk was abandoned: a life begins with the next epoch, in which its pieces do not count. They may be in slots that were taken
     * before void_order, and in laps of the primary log up to void_lap. */
    bool is_abandoning, has_void;
    uint32_t void_order, void_lap;
    struct sh_versions *versions; /* NULL: nobody writes to it, it was only found on the disk */
    /* Eons (replog_eon.c). */
    bool is_eon_ending; /* the epoch that ends is the last one of its eon */
    bool
        has_eon_ended; /* in this process: the primary log may have something of the eon before, of laps up to eon_lap */
    uint32_t eon_lap;
    bool is_loaded;      /* all that slots have of it is known */
    bool has_tail;       /* it was handed out by the last reading */
    uint16_t epoch_seen; /* the highest epoch there */
    struct sh_log_slot_list slots;
    uint32_t slots_max;
    uint32_t slots_sound;                    /* slots_max when damage was found */
    struct sh_replog_batch *filling;         /* NULL: nothing since the last one was full */
    struct sh_replog_batch *oldest, *newest; /* on their way to slots, until they are durable */
    struct sh_replog_batch *oldest_unhanded; /* of these, until they are handed */
    uint64_t next_sequence, handed, durable;
    /* Somebody waits until all before that is handed, or durable. */
    uint64_t wanted_handed, wanted;
    /* The primary log has all before that, but for what the batches on their way have: handed, by the sync that goes on, and durable. */
    uint64_t packed_handed, packed_syncing, packed_durable;
    /* In the log's lists of zones whose packs are not synced, and of those that the sync that goes on covers. */
    struct sh_replog_zone *next_unsynced, *next_syncing;
    bool is_unsynced;
    struct sh_replog_zone *next_to_clean; /* in the log's list */
    uint8_t urgency;                      /* enum sh_replog_urgency: there it is, unless it is 0 */
    /* By what its cleanings have kept: of entries of that generation, lasts / (lasts + age) are current, where age is what
     * sh_replog_age says of their slot. 0: nothing is known. */
    uint64_t lasts[SH_SLOT_GENERATION_MAX + 1];
    bool
        has_marks; /* the last cleaning has kept many marks of removals, which go once all slots have been cleaned */
    uint64_t rest_max; /* chunks beside the long range for which the cleaner has room */
    uint32_t
        fruitless; /* slots that were cleaned since the last batch of writes without one being gained */
    uint64_t fruitless_ns; /* when the last such slot was cleaned */
    bool
        keeps_passing; /* the cleaner has kept completion records, or marks of removals, which go when they are older */
    uint32_t
        twice_order; /* slots that were taken before that may have what another one has, of a cleaning that failed */
    uint64_t clean_again_ns; /* the cleaning was put off, until then; 0: it was not */
    /* The end of an epoch. */
    bool is_ending;                         /* its versions are encoded; nothing is appended */
    size_t ending_piece;                    /* of the table */
    struct sh_replog_zone *next_ending;     /* in the log's list */
    struct sh_replog_batch *versions_batch; /* of the last one that ended, until it is synced */
    uint64_t flushes;                       /* of the version log, so far */
    uint64_t flush_first;                   /* the first one of this eon, or process */
    uint32_t compacted;                     /* batches that the last compaction took */
};

/* Reads in flight, and whether one of them failed. */
struct sh_replog_reading {
    unsigned count;
    enum shoal_err err;
};

struct sh_replog_op {
    struct sh_disk_op op;
    struct sh_replog *log;
    struct sh_replog_batch *batch;     /* NULL: of the primary log, or a sync */
    struct sh_replog_reading *reading; /* NULL: it is no read */
    struct sh_replog_giving *giving;   /* of one that gives slots away */
    struct sh_replog_op *next;         /* free */
    struct iovec pieces[SH_REPLOG_PIECES];
};

/* What of a zone is in the pack that is being written. */
struct sh_replog_packed {
    struct sh_replog_zone *zone;
    uint64_t end; /* sequence number behind it */
};
#define SH_REPLOG_PACKED_MAX (SH_REPLOG_PACK_BYTES / 128)

/* Room on the disk (replog_room.c). */
struct sh_replog_room {
    bool has_no_allocate, has_no_discard; /* the disk has no such operation */
    bool is_raw;                          /* the log's file is all of the disk */
    bool
        is_full; /* the last reservation, or a write, found no room; again_ns: when the next is tried */
    bool
        is_told; /* the log's lines say that the disk is full, and not yet that it has room again */
    uint64_t again_ns, excess_ns, trim_ns;
    uint64_t refused;
    unsigned allocating, discarding; /* slots, by operations in flight */
    uint32_t least, to_discard;      /* free slots since excess_ns was set; of these, how many go */
};

struct sh_replog {
    struct sh_replog_config config;
    struct sh_log_file head;
    int file;
    bool is_open;
    enum shoal_err trouble;
    uint64_t now_ns;
    uint32_t seconds;
    bool has_idled; /* in the last step, and nothing was asked for since */
    struct sh_blocks *blocks;
    struct sh_version_pool *tables; /* of versions, of all zones */
    uint64_t tables_again_ns;       /* no epoch is ended for its table before that */
    struct sh_log_slots slots;
    struct sh_replog_zone *buckets[SH_REPLOG_BUCKETS];
    struct sh_replog_batch *batches, *free_batches; /* all that there are; those that are free */
    struct sh_replog_queue fresh; /* filling, with entries that no disk has, the oldest first */
    struct sh_replog_queue
        primary;                  /* with entries that only the primary log has, the oldest first */
    struct sh_replog_queue ready; /* to be written to a slot */
    struct sh_replog_queue written; /* to be synced */
    struct sh_replog_queue syncing;
    uint64_t written_ns;     /* when the first of them was */
    uint32_t waiting;        /* zones for which somebody waits until something is durable */
    uint32_t waiting_handed; /* or handed */
    /* Zones with packs that were handed, and are not synced; and of which zones a sync is under way. */
    struct sh_replog_zone *unsynced, *syncing_zones;
    uint64_t unsynced_ns; /* since when packs wait for a sync (sh_replog_packs_wait) */
    bool
        is_sync_wanted; /* somebody waits for what is not synced, and was handed since the last sync began */
    struct sh_replog_op ops[SH_REPLOG_OPS], *free_ops;
    unsigned in_flight;
    unsigned writing;    /* batches, from their first operation to their last */
    uint8_t *slot_heads; /* SH_REPLOG_WRITES blocks, aligned */
    uint32_t free_heads; /* a bit each */
    bool is_syncing;
    /* Zones whose epoch is ending, and room for a piece of one's versions. */
    struct sh_replog_zone *ending, **ending_end;
    uint8_t *piece; /* SH_REPLOG_PIECE_BYTES */
    struct sh_replog_zone *to_clean, **to_clean_end;
    uint32_t to_clean_count[SH_REPLOG_URGENCIES]; /* of these, of that urgency */
    uint32_t choices;                             /* of zones, so far */
    uint64_t appended_ns;                         /* when the last write came */
    struct sh_replog_clean *clean; /* of the zone that is being cleaned; NULL: none is */
    uint64_t clean_again_ns; /* no cleaning that was put off is due before; 0: none was put off */
    struct sh_replog_clean_memory *clean_memory; /* NULL: no zone has been cleaned yet */
    uint8_t *zeros;                              /* a block */
    uint32_t lap_since[4]; /* seconds: when this lap of the primary log began, and those before */
    struct sh_replog_load *load;               /* of the zone that is being loaded; NULL: none is */
    struct sh_replog_drop *drops, **drops_end; /* of zones that are dropped, one after the other */
    struct sh_replog_seal *seals;              /* of zones that are sealed, side by side */
    struct sh_replog_zone *fenced,
        **fenced_end; /* zones that were dropped; with some that have been added again */
    unsigned fenced_count;
    unsigned batches_spare;       /* batches that were made for zones that are forgotten */
    struct sh_replog_marks marks; /* while the log is opened */
    /* The primary log. */
    uint8_t *pack; /* SH_REPLOG_PACK_BYTES, aligned */
    struct sh_replog_packed *in_pack;
    unsigned in_pack_count;
    size_t pack_size;                /* of one that waits for the disk; 0: there is none */
    bool pack_is_mark;               /* that one */
    uint8_t *primary_marks;          /* a bit for each block of the ring in which a mark lies */
    bool is_packing, pack_is_synced; /* the one that is on its way */
    uint64_t primary_at;             /* where the next pack goes, in blocks ever written */
    uint64_t lap_at;                 /* where this lap began, in such blocks */
    /* Packs before that are handed; covered by a sync that has begun; on the disk. In such blocks. */
    uint64_t packs_handed, packs_syncing, packs_synced;
    uint32_t lap;
    uint32_t lap_wanted; /* the ring goes on to that one, with nothing if need be */
    struct sh_replog_room room;
    struct sh_replog_scrub *scrub; /* NULL: there is none */
    struct sh_replog_dump *dump;   /* that goes on; NULL: none does */
    struct sh_replog_status status;
};

/* Of a batch: one slot, and one pack, have room for all of it. */
static inline size_t sh_replog_batch_max(const struct sh_replog *log)
{
    size_t slot = log->head.slot_bytes - SH_SLOT_HEAD_BYTES;
    size_t pack = SH_REPLOG_PACK_BYTES - SH_BLOCK_BYTES;
    return log->head.primary_blocks && pack < slot ? pack : slot;
}

/* --- Batches (replog_batch.c) ------------------------------------------------------------------ */

void sh_replog_queue_add(struct sh_replog_queue *queue, struct sh_replog_batch *batch);
/* Leaves its queue of that kind, if it is in one. */
void sh_replog_queue_leave(struct sh_replog_batch *batch, enum sh_replog_queue_kind kind);

/* Another free one. ENOMEM. */
enum shoal_err sh_replog_batch_make(struct sh_replog *log);
/* An empty one. EAGAIN. */
enum shoal_err sh_replog_batch_take(struct sh_replog_zone *zone, enum sh_log_slot_kind kind,
                                    struct sh_replog_batch **batch_out);
/* One for entries. EAGAIN. */
enum shoal_err sh_replog_batch_begin(struct sh_replog_zone *zone, enum sh_log_slot_kind kind,
                                     struct sh_replog_batch **batch_out);
/* Whether an entry with so many bytes behind its header can still go to the same slot. Then there has to be memory for it: EAGAIN. Then it is
 * put there, and, if it is one of appends, counted. */
bool sh_replog_batch_fits(const struct sh_replog_batch *batch, size_t stored);
enum shoal_err sh_replog_batch_reserve(struct sh_replog_batch *batch, size_t stored);
void sh_replog_batch_put(struct sh_replog_batch *batch, const struct sh_replog_entry *entry);
/* The last entry that was put is one of appends: it takes a number, unless more pieces of the chunk follow. */
void sh_replog_batch_count(struct sh_replog_batch *batch, bool is_last_piece);
void sh_replog_batch_free(struct sh_replog_batch *batch);

/* --- The way to slots (replog_slots.c) --------------------------------------------------------- */

/* The batch that is being filled has got a slot, and is on its way there. ENOSPC: it stays; EAGAIN: until the disk has room. */
enum shoal_err sh_replog_batch_ready(struct sh_replog_batch *batch);
/* The same, which is counted. */
enum shoal_err sh_replog_batch_flush(struct sh_replog_batch *batch, enum sh_replog_flush why);
/* The same of one that has no sequence numbers: of versions, or of the cleaner's. */
enum shoal_err sh_replog_other_ready(struct sh_replog_batch *batch);
/* Hands operations of those that are ready to the disk, as many as it takes. */
unsigned sh_replog_slots_write(struct sh_replog *log);
/* Begins a sync of what was written to slots and of packs, if it is time. */
unsigned sh_replog_sync_begin(struct sh_replog *log);
/* Whether another batch of entries will have a place, however large it becomes. */
bool sh_replog_slots_have_room(const struct sh_replog_zone *zone);
/* Else: whether it will have one once another slot has its room on the disk. */
bool sh_replog_slots_may_have_room(const struct sh_replog_zone *zone);
/* Whether another batch should go its way. */
bool sh_replog_slots_have_time(const struct sh_replog *log);

/* --- Room on the disk (replog_room.c) ----------------------------------------------------------- */

/* Slots that are not in use are bare; some get their room. ENOSPC: a raw disk is too small; EIO. */
SHOAL_NODISCARD enum shoal_err sh_replog_room_open(struct sh_replog *log);
/* Waits until so many slots are free, or the disk has no more room. EIO. */
SHOAL_NODISCARD enum shoal_err sh_replog_room_wait(struct sh_replog *log, uint32_t count);
/* Whether the disk has room for so many slots that are in use, or may be, beside its reserve. ENOSPC; EIO. */
SHOAL_NODISCARD enum shoal_err sh_replog_room_check(const struct sh_replog *log, uint64_t slots);
/* A reservation, or a write, found the disk full; or it found room. */
void sh_replog_room_lacks(struct sh_replog *log);
void sh_replog_room_found(struct sh_replog *log);
/* Whether bare slots may become free. */
static inline bool sh_replog_room_may_come(const struct sh_replog *log)
{
    return log->slots.bare_count + log->room.allocating + log->room.discarding;
}
unsigned sh_replog_room_step(struct sh_replog *log);
uint64_t sh_replog_room_due_ns(const struct sh_replog *log);

/* --- Walking over a slot's entries (replog_walk.c) --------------------------------------------- */

/* Whether the entry is the last one with its number. */
static inline bool sh_replog_is_last(const struct sh_replog_entry *entry)
{
    return entry->piece + 1 == entry->pieces && !entry->is_with_next;
}

struct sh_replog_walk {
    const struct sh_replog_lives *lives; /* NULL: all counts */
    struct sh_scan scan;
    bool is_in_span;
    struct sh_span span;
    struct sh_reader entries;
    uint32_t
        seen; /* numbers of the span: entries, but of a chunk in pieces, and of a pair, only the last one */
    uint32_t parts;         /* of the last span, that could be read: it, and its entries */
    bool is_whole;          /* all of it could be read */
    uint64_t from, to;      /* what was read of it, as a range of places (sh_replog_place) */
    uint64_t counts_before; /* numbers of its life */
    uint64_t end;           /* numbers from there on do not count; UINT64_MAX: all do, by this */
    bool is_void;           /* the last entry does not count */
    size_t
        broken; /* from where on something could not be read, behind the slot's head; SIZE_MAX: nothing */
    size_t broken_last; /* the same of the last such place */
    unsigned breaks;    /* such places */
    size_t sound;       /* before it all had been on the disk, by the spans that were read */
    bool is_damaged;    /* the broken part had been on the disk */
};

/* Over the bytes of a slot with its head, which stay until the end. */
void sh_replog_walk_begin(struct sh_replog_walk *walk, const struct sh_replog_lives *lives,
                          const uint8_t *slot, size_t size, uint64_t use);
/* The same over a primary log, of all laps; places are counted from its beginning, and nothing is said of damage. */
void sh_replog_walk_ring(struct sh_replog_walk *walk, const struct sh_log_file *file,
                         const uint8_t *ring);
enum sh_replog_walked {
    SH_REPLOG_WALKED_HEAD, /* a span begins */
    SH_REPLOG_WALKED_ENTRY,
    SH_REPLOG_WALKED_SPAN, /* the span is over, with `seen` entries */
    SH_REPLOG_WALKED_END
};
enum sh_replog_walked sh_replog_walk_next(struct sh_replog_walk *walk,
                                          struct sh_replog_entry *entry_out);

/* That damage of the zone was found at that offset of the file; SH_SLOT_NONE: in no slot that is known. */
void sh_replog_damage_add(struct sh_replog_zone *zone, uint32_t slot, uint64_t offset);
/* That a walk over that slot of the zone has found damage. */
void sh_replog_damage_note(struct sh_replog_zone *zone, uint32_t slot,
                           const struct sh_replog_walk *walk);

/* Where in the file the first part is that the walk over that slot could not read. */
uint64_t sh_replog_broken_at(const struct sh_replog *log, uint32_t slot,
                             const struct sh_replog_walk *walk);
/* A slot is damaged, at that offset of the file, which the scrub or the cleaner has found while the log runs: the owner of the log is told, once for
 * a slot, and the slot's zone, if it is known, is damaged. */
void sh_replog_damage_tell(struct sh_replog *log, struct sh_replog_zone *zone, uint32_t slot,
                           uint64_t offset);
/* Whose slot it is. */
struct sh_replog_zone *sh_replog_slot_zone(struct sh_replog *log, uint32_t slot);

/* --- Reading slots (replog_reader.c) ----------------------------------------------------------- */

/* Slots that are read one after the other, each while the one before is looked at. */
struct sh_replog_reader {
    struct sh_replog *log;
    uint32_t *slots;            /* borrowed */
    unsigned count, read, next; /* slots that are asked for; that is looked at */
    uint8_t *buffers[2];        /* of a slot each */
    bool is_borrowed;           /* they are */
    bool is_bulk;               /* others are waited for more */
    bool is_of_dump;            /* else a bulk one is the cleaner's */
    size_t asked;               /* bytes of slot `read` that were asked for */
    struct sh_replog_reading reading[2];
};

/* ENOMEM. */
enum shoal_err sh_replog_reader_begin(struct sh_replog_reader *reader, struct sh_replog *log);
/* The same, with two buffers of a slot each, aligned to blocks, that are lent. */
void sh_replog_reader_begin_in(struct sh_replog_reader *reader, struct sh_replog *log,
                               uint8_t *const buffers[2]);
/* Begins to read other slots; all that were read before have been looked at. */
void sh_replog_reader_slots(struct sh_replog_reader *reader, uint32_t *slots, unsigned count);
/* Asks for what it has room for; returns how many operations. */
unsigned sh_replog_reader_step(struct sh_replog_reader *reader);
/* The bytes of the slot that is looked at; NULL: they are not there yet. */
const uint8_t *sh_replog_reader_bytes(const struct sh_replog_reader *reader);
static inline bool sh_replog_reader_is_over(const struct sh_replog_reader *reader)
{
    return reader->next == reader->count;
}
bool sh_replog_reader_is_busy(const struct sh_replog_reader *reader);
/* EIO: something could not be read. */
enum shoal_err sh_replog_reader_err(const struct sh_replog_reader *reader);
/* No operation is in flight. */
void sh_replog_reader_end(struct sh_replog_reader *reader);

/* How many entries one counts for in a step that looks at entries: its checksum takes the longer, the larger it is. */
static inline unsigned sh_replog_entry_share(const struct sh_replog_entry *entry)
{
    return (unsigned)(sh_replog_entry_stored(entry) / 128);
}

/* --- Completion records (replog_completion.c) -------------------------------------------------- */

/* Whether it has counted for as long as it does. */
bool sh_replog_completion_is_old(const struct sh_replog *log, const struct sh_replog_entry *entry);
/* Whether the cleaner may drop it. */
bool sh_replog_completion_is_over(struct sh_replog_zone *zone, const struct sh_replog_entry *entry);
/* Puts the completion record of the write that follows into the batch, which has room for it. */
void sh_replog_completion_put(struct sh_replog_batch *batch, struct sh_bytes completion);

/* --- Giving slots away (replog_give.c) --------------------------------------------------------- */

struct sh_replog_giving {
    struct sh_replog *log;
    const uint32_t *slots; /* borrowed; one at least */
    unsigned count;
    const uint8_t *block; /* that is written over their heads; borrowed */
    unsigned written, in_flight;
    bool is_synced;
};

/* Does some of it; returns how much. The slots are free once is_synced says that it is over. */
unsigned sh_replog_giving_step(struct sh_replog_giving *giving);

/* --- Dropping a zone (replog_drop.c) ----------------------------------------------------------- */

/* That was found. ENOMEM. */
enum shoal_err sh_replog_marks_add(struct sh_replog_marks *marks,
                                   const struct sh_replog_dropped *dropped);
void sh_replog_marks_free(struct sh_replog_marks *marks);
bool sh_replog_marks_have(const struct sh_replog_marks *marks, uint64_t zone, uint32_t incarnation);
/* Whether a mark lies in that block of the primary log which is needed, as the zone's slots have not all been given away yet. */
bool sh_replog_drop_needs(const struct sh_replog *log, uint64_t block);
unsigned sh_replog_drops_step(struct sh_replog *log);
/* A lap of the primary log has begun: forgets zones that were dropped so long ago that no start finds their marks any more. */
void sh_replog_fences_forget(struct sh_replog *log);
/* No operation is in flight. */
void sh_replog_drops_free(struct sh_replog *log);

/* --- Sealing a zone (replog_seal.c) ------------------------------------------------------------ */

/* Whether nothing is appended to the zone any more, though it was added. */
static inline bool sh_replog_is_refusing(const struct sh_replog_zone *zone)
{
    return zone->is_dropping || zone->is_sealing;
}
unsigned sh_replog_seals_step(struct sh_replog *log);
void sh_replog_seals_free(struct sh_replog *log);

/* --- Loading a zone (replog_load.c) ------------------------------------------------------------ */

unsigned sh_replog_load_step(struct sh_replog *log);
/* Whether the zone is being loaded, or read. */
bool sh_replog_is_loading(const struct sh_replog_zone *zone);
/* No operation is in flight. NULL is allowed. */
void sh_replog_load_free(struct sh_replog_load *load);

/* --- Compaction of the version log (replog_compact.c) ------------------------------------------- */

struct sh_currents;

struct sh_replog_compaction {
    struct sh_replog_zone *zone; /* NULL: there is none */
    uint64_t flush;
    size_t walked;  /* pieces of what is known */
    uint32_t place; /* pieces of the flush */
    bool is_encoded;
    struct sh_replog_batch
        *batch; /* that is being filled, or waits for entries to become durable */
    bool is_waiting;
    void (*done)(struct sh_replog_batch *batch);
    unsigned *on_their_way;
};

/* Counts its batches in *on_their_way, until `done` is called, which frees them. */
void sh_replog_compaction_begin(struct sh_replog_compaction *compaction,
                                struct sh_replog_zone *zone,
                                void (*done)(struct sh_replog_batch *batch),
                                unsigned *on_their_way);
/* Does some of it, and adds to *work how much. ENOSPC. */
SHOAL_NODISCARD enum shoal_err sh_replog_compaction_step(struct sh_replog_compaction *compaction,
                                                         struct sh_currents *currents,
                                                         unsigned *work);
/* Whether all of it has been sent. */
static inline bool sh_replog_compaction_is_sent(const struct sh_replog_compaction *compaction)
{
    return compaction->is_encoded && !compaction->batch;
}

/* --- What is cleaned next (replog_select.c) ---------------------------------------------------- */

/* Puts the zone on the list if it is time to clean it, and takes it off that if it is not. */
void sh_replog_clean_if_full(struct sh_replog_zone *zone);
/* The zone is not cleaned before so long has passed; then it is looked at again. */
void sh_replog_clean_put_off(struct sh_replog_zone *zone, uint64_t pause_ns);
/* Takes it off the list, if it is there. */
void sh_replog_clean_leave(struct sh_replog_zone *zone);
/* Whether it is on the list, and not just for when the log is idle, or being cleaned; or will be, and may have fewer slots then. */
bool sh_replog_is_cleaned(const struct sh_replog_zone *zone);
bool sh_replog_may_gain(const struct sh_replog_zone *zone);
/* The zone that is cleaned next, which is taken off the list; NULL: none is now. */
struct sh_replog_zone *sh_replog_select_zone(struct sh_replog *log);
/* When that may be another one, though nothing else happens; UINT64_MAX: none. */
uint64_t sh_replog_select_due_ns(const struct sh_replog *log);
/* Puts the slots that are to be cleaned, `most` of `count`, before the others. All can be cleaned, and come the oldest first. What has to be
 * cleaned for other reasons than to gain room is taken first; then by the log's selection. What that takes is sorted from hot to cold, so that what
 * survives of it lies together. */
void sh_replog_select_slots(struct sh_replog_zone *zone, uint32_t *slots, unsigned count,
                            unsigned most);

/* Counts of what a cleaning has found, by generations. */
struct sh_replog_tally {
    uint64_t age, slots; /* of slots, in all; how many */
    uint64_t seen, kept; /* bytes of entries; 16 more for each */
    uint64_t marks;      /* of those that were kept, of marks of removals */
};
/* How old a slot of entries is, since it was written to last: in the zone's writes, or for timestamps in seconds. 1 at least. */
uint64_t sh_replog_age(const struct sh_replog_zone *zone, const struct sh_log_slot *slot);
/* The gain for the cost of cleaning a slot of which that part is filled, in 256ths. */
uint64_t sh_replog_benefit(uint64_t age, uint64_t lasts, unsigned fill);
/* That slot will be looked at; an entry of it was kept, or not; the cleaning is over. */
void sh_replog_tally_slot(struct sh_replog_tally *tallies, const struct sh_replog_zone *zone,
                          const struct sh_log_slot *slot);
void sh_replog_tally_entry(struct sh_replog_tally *tallies, const struct sh_log_slot *slot,
                           const struct sh_replog_entry *entry, bool is_kept);
void sh_replog_tally_end(const struct sh_replog_tally *tallies, struct sh_replog_zone *zone);
/* An entry from such a slot was put into a batch of survivors. */
void sh_replog_survivor_note(struct sh_replog_batch *batch, const struct sh_log_slot *from,
                             const struct sh_replog_entry *entry);
/* Such a batch goes to that slot, whose `filled` does not count it yet. */
void sh_replog_survivors_note(struct sh_log_slot *slot, const struct sh_replog_batch *batch,
                              uint32_t bytes);

/* --- The cleaner (replog_clean.c) -------------------------------------------------------------- */

/* An epoch has ended: what the cleaner has to know of it. */
void sh_replog_clean_learn(struct sh_replog_zone *zone, uint64_t first, uint64_t last,
                           struct sh_replog_version version, bool is_removal);
const struct sh_replog_zone *sh_replog_clean_zone(const struct sh_replog_clean *clean);
unsigned sh_replog_clean_step(struct sh_replog *log);
/* Ends the cleaning that goes on, if there is one. No operation is in flight. */
void sh_replog_clean_end(struct sh_replog *log);
/* None goes on (replog_clean_memory.c). */
void sh_replog_clean_memory_free(struct sh_replog *log);

/* Flushes are numbered within an incarnation: what a slot has of a former use by the zone's version log, from before it was dropped, is
 * of a lower one, or its epochs would pass for new ones. */
static inline uint64_t sh_replog_flush_least(uint32_t incarnation)
{
    return (uint64_t)incarnation << 32;
}
/* The least that counts in a slot with that head. Nor does what was written two eons ago, of which the head says (zone->flush_first). */
static inline uint64_t sh_replog_flush_least_in(const struct sh_log_slot_head *head)
{
    uint64_t least = sh_replog_flush_least(head->incarnation);
    return head->flush_least > least ? head->flush_least : least;
}

/* --- Epochs (replog_epoch.c) ------------------------------------------------------------------- */

#define SH_REPLOG_LAPS                                                                             \
    4 /* of the primary log; so many have to begin until nothing is read any more of what was there */
#define SH_REPLOG_PIECE_BYTES (128u << 10)

/* The zone's table of versions is full. EAGAIN: it will be empty. EFULL: there is no other epoch. ENOSPC: there is no room for
 * the versions of the one before. */
enum shoal_err sh_replog_epoch_end(struct sh_replog_zone *zone);
/* Ends the life in which a chunk was abandoned. EAGAIN: it is on the way; EFULL, ENOSPC: as above. */
enum shoal_err sh_replog_life_end(struct sh_replog_zone *zone);
/* Encodes a piece of a table of versions. */
unsigned sh_replog_epochs_step(struct sh_replog *log);
/* Sends the versions on their way if all entries that they tell of are durable. ENOSPC. */
enum shoal_err sh_replog_versions_go(struct sh_replog_zone *zone);

/* --- Memory for tables of versions (replog_tables.c) -------------------------------------------- */

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_tables_create(struct sh_replog *log);
/* How many bytes belong to so many slots; tables may have so many. */
uint64_t sh_replog_tables_bytes(const struct sh_replog *log, uint64_t slots);
void sh_replog_tables_limit(struct sh_replog *log, uint64_t slots);
/* The same by what all zones may have now: a zone comes, grows, or has gone. */
void sh_replog_tables_fit(struct sh_replog *log);
/* Ends the epoch of the zone with the largest table where the memory is nearly used up, so that the others' tables can grow. */
unsigned sh_replog_tables_relieve(struct sh_replog *log);

/* --- Eons (replog_eon.c) ----------------------------------------------------------------------- */

/* A bit for each eon, of what has that epoch. */
static inline unsigned sh_replog_eon_bit(uint16_t epoch)
{
    return 1u << (epoch >> 15);
}
/* The last epoch of an eon. */
uint16_t sh_replog_epoch_max(const struct sh_replog *log);
/* Whether a zone that writes has used up the epochs of its eon: the rest is for starts. */
bool sh_replog_eon_is_over(const struct sh_replog_zone *zone);
/* It is over. OK: the epoch that ends is the last one (is_eon_ending), and what was appended has been sent. EAGAIN: not yet, a life has to end
 * first, or entries have to be visited. EFULL: the zone is damaged, so that they are not. ENOMEM. */
enum shoal_err sh_replog_eon_end(struct sh_replog_zone *zone);
/* The next one begins; the epoch in which it does. */
uint16_t sh_replog_eon_begin(struct sh_replog_zone *zone);
/* Whether the cleaner is to visit what is of the eon before: half of this one's epochs are used up, and the primary log has nothing of it
 * any more. If only that is missing, the primary log is made to go on. */
bool sh_replog_eon_is_due(struct sh_replog_zone *zone);
/* Whether a slot has something that is of the eon before. */
static inline bool sh_replog_eon_is_old(const struct sh_replog_zone *zone,
                                        const struct sh_log_slot *slot)
{
    return (slot->eons | slot->lives_eons) & ~sh_replog_eon_bit(zone->epoch);
}
/* Lives of the eon before are known no more, if no slot has entries or versions of it. */
void sh_replog_eon_forget(struct sh_replog_zone *zone);

/* --- The scrub (replog_scrub.c) ---------------------------------------------------------------- */

/* If the config wants one. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_scrub_make(struct sh_replog *log);
unsigned sh_replog_scrub_step(struct sh_replog *log);
uint64_t sh_replog_scrub_due_ns(const struct sh_replog *log);
/* No operation is in flight. NULL is allowed. */
void sh_replog_scrub_free(struct sh_replog_scrub *scrub);
/* How many bytes of a slot of the zone are durable, from its beginning on, with its head: up to the first batch that is on its way. 0: not known, or
 * nothing is. */
uint32_t sh_replog_slot_durable(const struct sh_replog_zone *zone, uint32_t slot);

/* --- A dump of a zone (replog_dump.h) ------------------------------------------------------------ */

unsigned sh_replog_dump_step(struct sh_replog *log);
uint64_t sh_replog_dump_due_ns(const struct sh_replog *log);
/* No operation is in flight. NULL is allowed. */
void sh_replog_dump_free(struct sh_replog_dump *dump);

/* --- The primary log (replog_primary.c) -------------------------------------------------------- */

/* Writes what is fresh, if it is time. */
unsigned sh_replog_primary_write(struct sh_replog *log);
/* Writes a span without entries as a pack of its own, behind all that was packed; false: not now. It is on the disk once
 * packs_synced is above *at_out. */
bool sh_replog_primary_mark(struct sh_replog *log, const struct sh_span *span, uint64_t *at_out);
/* Whether there are packs that were handed, and that no sync covers which has begun. */
bool sh_replog_packs_wait(const struct sh_replog *log);
/* A sync begins, or has ended well, which covers all packs that were handed before. */
void sh_replog_packs_sync_begin(struct sh_replog *log);
void sh_replog_packs_synced(struct sh_replog *log);
/* Sends batches to slots where memory or the primary log is short. */
unsigned sh_replog_relieve(struct sh_replog *log);

/* --- All of it (replog.c) ---------------------------------------------------------------------- */

/* Hands an operation to the disk; batch may be NULL. False: not now. */
bool sh_replog_submit(struct sh_replog *log, struct sh_replog_batch *batch,
                      const struct sh_disk_op *op);
/* The same of a read: *reading counts it until it is done. What the file does not have is zero then. One that fails says so there,
 * and nowhere else: the log goes on. */
bool sh_replog_submit_read(struct sh_replog *log, uint64_t offset, uint8_t *into, size_t size,
                           bool is_bulk, struct sh_replog_reading *reading);
/* One that was done is free again. Returns the log's trouble, which this may have become. */
enum shoal_err sh_replog_op_end(struct sh_replog_op *op);
/* Out of service. */
void sh_replog_fail(struct sh_replog *log, enum shoal_err err);
/* More of the zone may be handed; or durable. */
void sh_replog_zone_hand_settle(struct sh_replog_zone *zone);
void sh_replog_zone_settle(struct sh_replog_zone *zone);
/* A zone that the log does not know yet, or one that it does. ENOMEM. */
enum shoal_err sh_replog_zone_make(struct sh_replog *log, uint64_t id, uint16_t owner,
                                   uint32_t incarnation, struct sh_replog_zone **zone_out);
/* The log has nothing of it, and knows it no more. */
void sh_replog_zone_forget(struct sh_replog_zone *zone);

#endif
