/* What the files of backup share. */
#ifndef SH_BACKUP_BACKUP_INT_H
#define SH_BACKUP_BACKUP_INT_H

#include <stdatomic.h>

#include "backup/backlog.h"
#include "backup/backup.h"
#include "base/lock.h"
#include "ranges/ranges.h"

#define SH_ZONES_MAX (1u << 20) /* at a time; a power of two */
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
        uint64_t number;      /* of the zone, when it was found: sh_zone_is */
    } place;
    uint32_t size, told;
    bool is_new;
    struct sh_backlog_entry last; /* for which room was taken */
};

/* A zone. Whoever has found one may come back to it late, after it was dropped: so it is never freed while the backup lives, but becomes
 * another zone, whose writes have numbers above its own. So a mark of one of its writes is one that is acknowledged, and who has taken room
 * in its backlog, which keeps it from being dropped, sees by its number whether it is still the zone that was found. */
struct sh_zone {
    struct sh_backup *backup;
    uint64_t
        number; /* names it in the log, with the owner's node ID; changes while the backlog is closed */
    uint64_t before; /* numbers of writes below that one were an earlier zone's */
    struct sh_backlog backlog;
    _Atomic uint64_t live; /* bytes, as they count for a zone */
    /* Before which all writes are acknowledged. [SH_LEVEL_ASYNC]: not in use. */
    _Atomic uint64_t acked[SH_LEVELS];
    struct sh_spin waits_lock; /* guards the next two */
    struct sh_waits waits[SH_LEVELS];
    uint64_t wanted[SH_LEVELS];   /* somebody waits for all before that */
    struct sh_zone_claim *claims; /* guarded by the zones' lock */
    size_t claims_count, claims_promised, claims_room;
    /* The same lock: chunks that move away, and are here until they have; leftovers in it; leftovers elsewhere of what moved here. */
    unsigned moves_away, left_here, left_behind;
    _Atomic bool is_dirty; /* in the list of zones that the step is to look at */
    struct sh_zone *next_dirty;
    struct sh_zone *next_free; /* of those that are no zone now */
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
    struct sh_zone *_Atomic *all;   /* by number modulo SH_ZONES_MAX; NULL: there is none */
    _Atomic uint64_t end;           /* above all numbers */
    struct sh_zone *free;           /* the step's */
    struct sh_zone *_Atomic open;   /* where new chunks go; NULL: there is none yet */
    struct sh_zone *_Atomic spare;  /* the next one */
    struct sh_large *larges;        /* all that there are */
    _Atomic unsigned larges_moving; /* those of them that move to another zone */
    struct sh_leftover *leftovers;
    size_t leftovers_count, leftovers_promised, leftovers_room;
    _Atomic size_t at_once; /* those of them that wait for nothing but room */
    struct sh_zone_drop {
        enum sh_zone_drop_phase {
            SH_DROP_NONE,
            SH_DROP_CLOSES,
            SH_DROP_UNMAPS,
            SH_DROP_LEAVES,
            SH_DROP_SYNCS,
            SH_DROP_TELLS,
            SH_DROP_GOES,
        } phase;
        struct sh_zone *zone;
        size_t claim; /* the next one, of which all below that ID is out of the map */
        uint64_t below;
        struct sh_write write;
    } drop;                 /* the step's: of one zone at a time */
    _Atomic bool has_empty; /* some zone has become empty */
    bool
        is_dropping_over; /* guarded by the lock: none is dropped any more, as some leftover is not known */
    uint64_t dropped; /* the step's: how many were */
    uint64_t dropped_writes;
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
/* The number of the next new zone. */
uint64_t sh_zones_next(const struct sh_zones *zones);
/* The two in one. */
SHOAL_NODISCARD enum shoal_err sh_zone_make(struct sh_backup *backup, uint64_t number,
                                            uint64_t next, struct sh_zone **zone_out);
/* The zone that has a chunk, with its number; NULL: none. Any thread. */
struct sh_zone *sh_zones_find_numbered(struct sh_backup *backup, uint64_t chunk,
                                       uint64_t *number_out);
struct sh_zone *sh_zones_find(struct sh_backup *backup, uint64_t chunk);
/* Whether the zone is the one that was found. The caller has taken room in its backlog, or the zones' lock. */
static inline bool sh_zone_is(const struct sh_zone_place *place)
{
    return place->zone->number == place->number;
}
/* How many places of zones.all are in use at most. */
static inline uint64_t sh_zones_places(struct sh_zones *zones)
{
    uint64_t end = atomic_load_explicit(&zones->end, memory_order_acquire);
    return end < SH_ZONES_MAX ? end : SH_ZONES_MAX;
}
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
/* The zone has an image of a chunk that is not its, or was undone, and there was no room to record its removal. */
void sh_zones_leave(struct sh_backup *backup, const struct sh_zone_place *place, uint64_t chunk);
/* The chunk is there again: it is no such leftover any more. Before that is recorded in this zone. */
void sh_zones_made(struct sh_backup *backup, const struct sh_zone *zone, uint64_t chunk);

/* --- Dropping empty zones (drops.c) ------------------------------------------------------------ */

/* A chunk of that zone went, and its bytes: it may be empty now. Any thread. */
void sh_zone_emptied(struct sh_zone *zone);
/* The step's, as far as it gets now; returns how much that was. */
unsigned sh_zones_drop_step(struct sh_backup *backup);
/* Tells the log of the owner's own disk to drop the zone; calls sh_zone_dropped when it has. Errors of sh_replog_zone_drop. */
SHOAL_NODISCARD enum shoal_err sh_zone_drop_tell(struct sh_zone *zone);
void sh_zone_dropped(struct sh_backup *backup, uint64_t number, enum shoal_err err);

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
