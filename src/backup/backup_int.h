/* What the files of backup share. */
#ifndef SH_BACKUP_BACKUP_INT_H
#define SH_BACKUP_BACKUP_INT_H

#include <stdatomic.h>

#include "backup/backlog.h"
#include "backup/backup.h"
#include "base/lock.h"
#include "ranges/ranges.h"

#define SH_ZONES_MAX (1u << 20)
#define SH_LOCAL_IDS ((UINT64_C(1) << 48) - 1)
#define SH_GUARDS 16384u /* a power of two */

/* Who waits for a zone's writes at one level, by number. */
struct sh_waits {
    struct sh_write *first, *last;
};

struct sh_zone;

/* A large chunk of which a zone's backlog gets pieces. */
struct sh_large {
    struct sh_large *next;
    uint64_t chunk; /* 0: there is none */
    struct sh_zone_place {
        struct sh_zone *zone; /* where a change is recorded */
        struct sh_zone *from; /* it moves from that one to it; NULL: it is there already */
    } place;
    uint32_t size, told;
    bool is_new;
    struct sh_backlog_entry last; /* for which room was taken */
};

struct sh_zone {
    struct sh_backup *backup;
    uint64_t number; /* names it in the log, with the owner's node ID */
    struct sh_backlog backlog;
    _Atomic uint64_t live; /* bytes, as they count for a zone */
    /* Before which all writes are acknowledged. [SH_LEVEL_ASYNC]: not in use. */
    _Atomic uint64_t acked[SH_LEVELS];
    struct sh_spin waits_lock; /* guards the next two */
    struct sh_waits waits[SH_LEVELS];
    uint64_t wanted[SH_LEVELS];   /* somebody waits for all before that */
    struct sh_zone_claim *claims; /* guarded by the zones' lock */
    size_t claims_count, claims_promised, claims_room;
    _Atomic bool is_dirty; /* in the list of zones that the step is to look at */
    struct sh_zone *next_dirty;
    struct sh_large
        large; /* guarded by the backlog's hold; that it is in the list, by the zones' lock */
    /* The step's. */
    struct sh_replog_zone *log;
    struct sh_backlog_cursor cursor;
};

/* A chunk whose last image a zone's log has though it is another zone's now, or is gone. */
struct sh_leftover {
    struct sh_zone *zone;
    uint64_t chunk;
    struct sh_zone *moved_to; /* only when that number there is durable; NULL: at once */
    uint64_t number;
};

struct sh_zones {
    struct sh_lock lock;            /* guards what claims change */
    struct sh_ranges *map;          /* from chunk IDs, with their creators, to numbers of zones */
    struct sh_zone **all;           /* by number; NULL: there is none */
    _Atomic uint64_t end;           /* above all numbers */
    struct sh_zone *_Atomic open;   /* where new chunks go; NULL: there is none yet */
    struct sh_zone *_Atomic spare;  /* the next one */
    struct sh_large *larges;        /* all that there are */
    _Atomic unsigned larges_moving; /* those of them that move to another zone */
    struct sh_leftover *leftovers;
    size_t leftovers_count, leftovers_promised, leftovers_room;
    _Atomic bool has_unmade; /* some of them, at some time, were of creates that failed */
};

struct sh_backup {
    struct sh_backup_config config;
    struct sh_backlog_pool *pool;
    uint64_t window; /* of one backlog */
    struct sh_zones zones;
    struct sh_zone *_Atomic dirty;
    struct sh_zone *stuck; /* the step's: dirty ones that the log had no room for */
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
    struct sh_replog *log;          /* NULL: nothing is backed up */
    uint8_t *scratch;               /* SH_BACKLOG_PIECE_BYTES */
};

/* A chunk's ID as logs name it: with its creator. */
static inline uint64_t sh_backup_chunk(const struct sh_backup *backup, shoal_cid cid)
{
    return cid.v >> 48 ? cid.v : (uint64_t)backup->config.nid.v << 48 | cid.v;
}

static inline uint64_t sh_zone_bytes_of(uint32_t size)
{
    return (uint64_t)size + SH_ZONE_CHUNK_BYTES;
}

/* --- Zones (zones.c) --------------------------------------------------------------------------- */

#define SH_CLAIM_BYTES (SH_BACKLOG_HEAD_BYTES + 16)

SHOAL_NODISCARD enum shoal_err sh_zones_make(struct sh_zones *zones);
void sh_zones_end(struct sh_zones *zones);
/* A zone under that number, which nobody finds until it is entered, for good; or is freed. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zone_new(struct sh_backup *backup, uint64_t number, uint64_t next,
                                           struct sh_zone **zone_out);
void sh_zone_enter(struct sh_zone *zone);
void sh_zone_free(struct sh_zone *zone);
/* The two in one. */
SHOAL_NODISCARD enum shoal_err sh_zone_make(struct sh_backup *backup, uint64_t number,
                                            uint64_t next, struct sh_zone **zone_out);
/* The zone that has a chunk; NULL: none. Any thread. */
struct sh_zone *sh_zones_find(struct sh_backup *backup, uint64_t chunk);
/* Enters a claim that the zone's log has. ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zone_claimed(struct sh_zone *zone,
                                               const struct sh_zone_claim *claim);

/* Finds where a change is to be recorded, of a chunk that has `before` bytes as they count for a zone and will have `after`; claims fresh IDs. EAGAIN: there is no room, or no
 * zone, now. ENOSPC, ENOMEM, ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_zones_place(struct sh_backup *backup, uint64_t chunk,
                                              uint64_t before, uint64_t after,
                                              struct sh_zone_place *place_out);
/* Records the image of a chunk that moves to another zone, with the claim. Room for both was taken. is_new: the zone that it moves from has
 * no image of it. */
uint64_t sh_zones_move(struct sh_backup *backup, uint64_t chunk, const struct sh_zone_place *place,
                       bool is_new, const struct sh_backlog_entry *entry);
/* The same of a large chunk, with the last piece. */
uint64_t sh_zones_move_large(struct sh_backup *backup, const struct sh_large *large);
/* It does not move after all. */
void sh_zones_move_cancel(struct sh_backup *backup, const struct sh_zone_place *place);
/* Records removals of leftovers whose time has come; returns how many. */
unsigned sh_zones_leftovers(struct sh_backup *backup);
/* A create that was undone leaves a chunk in the log, as there was no room to record its removal. */
void sh_zones_leave(struct sh_backup *backup, struct sh_zone *zone, uint64_t chunk);
/* The chunk is there again: it is no such leftover any more. Before that is recorded. */
void sh_zones_made(struct sh_backup *backup, uint64_t chunk);

/* --- The witness (witness.c) ------------------------------------------------------------------- */

void sh_backup_witness_set(struct sh_backup *backup);
/* From now on the calling thread changes chunks for that write; NULL: for nobody who waits. */
void sh_backup_writer_set(struct sh_write *write);

/* --- Waiting (waits.c) ------------------------------------------------------------------------- */

/* A change that the calling thread makes for a write was recorded there. */
void sh_write_mark(struct sh_backup *backup, struct sh_write *write, uint64_t chunk,
                   struct sh_zone *zone, uint64_t number);
/* All before that number is acknowledged. The step only. */
void sh_zone_acked(struct sh_zone *zone, enum sh_level level, uint64_t number);
/* Calls those whose wait is over; returns how many. */
unsigned sh_waits_call(struct sh_backup *backup);
/* There is room, or nothing comes of waiting for it. */
void sh_waits_room(struct sh_backup *backup);
/* Nobody's wait will end well. */
void sh_waits_fail(struct sh_backup *backup);

/* The step is to look at the zone. Any thread. */
void sh_zone_dirty(struct sh_zone *zone);

#endif
