/* Evacuating a zone that has few chunks, or that is damaged (repair.c): they move to the open zone, and the zone, which is empty then, is dropped (drops.c).
 *
 *   NONE ─► MARKS ─► SETTLES ─► MOVES ─┬─► NONE: it is empty, or is left as it is
 *             ▲                        │
 *             └──── some are left ─────┘
 *
 * A chunk may only move when all that its zone has of it is durable. Else a crash could keep its image, in the other zone, and lose what
 * came with it in this one: the completion record of a request, which would be done twice.
 *
 * MARKS: from now on who records a change in the zone marks its chunk. Once nobody has room there that was taken before, all
 * changes of chunks that are not marked have numbers below the next one.
 *
 * SETTLES: until all numbers below that are durable.
 *
 * MOVES: chunks that are not marked may move. Each is written once more, as it is; and whatever is written of one of them by others, chunks
 * that are made under its IDs too, goes to the open zone as well. Marked ones have another round.
 *
 * Numbers of rounds guard the marks as a sequence lock does: who has found a chunk without a mark looks whether the round is
 * still the same. A durable image stays durable, whatever comes later. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/hash.h"

#define SPARSE_ZONES 4u
#define SPARSE_PART 4u /* a zone has few chunks below that part of its bytes, */
#define SHORT_PART 2u  /* and where there is no room for another zone, below that one */
#define RANGES_MAX (UINT64_C(8) << 20) /* of the map, from which on nothing is evacuated */
#define LEFTOVERS_MAX 2048u
#define MOVES_A_STEP 64u
#define CLAIMS_A_STEP 256u
#define LARGE_STEPS 8u
#define ROUNDS_MAX 8u
#define TRIES_MAX 1000u /* of a chunk that finds no room */
#define AGAIN_NS UINT64_C(1000000)
#define PAUSE_NS UINT64_C(1000000000) /* until a zone that could not be emptied is tried again */

/* --- Which one --------------------------------------------------------------------------------- */

uint64_t sh_zone_sparse_bytes(const struct sh_backup *backup)
{
    return backup->config.zone_bytes / SPARSE_PART;
}

/* Whether there may be no room for another zone soon. Other nodes do not say for how many they have room. */
static bool is_room_short(struct sh_backup *backup)
{
    if (atomic_load(&backup->no_zone))
        return true;
    return sh_backup_is_home(backup) && backup->log &&
           sh_replog_zone_fits(backup->log, 2 * backup->config.zone_bytes) != SHOAL_OK;
}

bool sh_evacuation_has_room(const struct sh_backup *backup, uint64_t bytes)
{
    const struct sh_own_zones *zones = &backup->zones;
    if (zones->spare)
        return true;
    return zones->open && atomic_load(&zones->open->live) + bytes <= backup->config.zone_bytes;
}

/* The end of a copy begins a search, too. */
bool sh_evacuation_is_ready(struct sh_own_zone *zone, uint64_t now_ns)
{
    uint64_t *again_ns = &zone->backup->zones.again_ns;
    if (zone->evacuate_ns > now_ns && (!*again_ns || zone->evacuate_ns < *again_ns))
        *again_ns = zone->evacuate_ns;
    return !zone->copy && zone->evacuate_ns <= now_ns;
}

struct sh_own_zone *sh_zones_sparse_find(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    uint32_t enough = backup->config.sparse_zones ? backup->config.sparse_zones : SPARSE_ZONES;
    struct sh_own_zone *least = NULL;
    const uint64_t few = sh_zone_sparse_bytes(backup),
                   most = backup->config.zone_bytes / SHORT_PART;
    uint64_t end = sh_zones_places(zones), least_live = most, any_live = most;
    uint32_t sparse = 0;
    if (enough == UINT32_MAX || sh_ranges_count(zones->map) >= RANGES_MAX) {
        atomic_store(&zones->kept_bytes, 0);
        return NULL;
    }
    for (uint64_t i = 0; i < end; i++) {
        struct sh_own_zone *zone = zones->all[i];
        if (!zone || zone == zones->open || zone == zones->spare || sh_zone_is_opening(zone))
            continue;
        uint64_t live = atomic_load_explicit(&zone->live, memory_order_relaxed);
        if (!live) /* it waits for its completion records */
            continue;
        sparse += live < few;
        any_live = live < any_live ? live : any_live;
        if (live < least_live && sh_evacuation_is_ready(zone, now_ns)) {
            least_live = live;
            least = zone;
        }
    }
    bool is_needed =
        any_live < most && (is_room_short(backup) || (sparse >= enough && any_live < few));
    /* It may get more chunks until it is evacuated. Room is kept for one that is not ready, too, or nothing would be left for it. */
    uint64_t kept = (least ? least_live : any_live) + few;
    atomic_store(&zones->kept_bytes, is_needed ? kept : 0);
    return is_needed && least && sh_evacuation_has_room(backup, least_live) ? least : NULL;
}

/* --- Marks ------------------------------------------------------------------------------------- */

static _Atomic uint64_t *mark_of(struct sh_evacuation *evacuation, uint64_t chunk,
                                 uint64_t *bit_out)
{
    uint64_t hash = sh_mix64(chunk);
    *bit_out = UINT64_C(1) << (hash >> 58);
    return &evacuation->marks[hash % SH_EVACUATION_WORDS];
}

void sh_evacuation_mark(struct sh_own_zone *zone, uint64_t chunk)
{
    struct sh_evacuation *evacuation = &zone->backup->zones.evacuation;
    uint64_t bit;
    /* Whoever took room after the round has begun sees that it has: the backlog's lock orders the two. */
    if (atomic_load_explicit(&evacuation->zone, memory_order_relaxed) != zone)
        return;
    _Atomic uint64_t *mark = mark_of(evacuation, chunk, &bit);
    atomic_fetch_or(mark, bit);
}

bool sh_evacuation_moves(struct sh_own_zone *zone, uint64_t chunk, uint64_t before)
{
    struct sh_evacuation *evacuation = &zone->backup->zones.evacuation;
    uint64_t bit;
    if (atomic_load_explicit(&zone->is_evacuated, memory_order_relaxed) && !before)
        return !atomic_load(&zone->live) &&
               atomic_load(&zone->acked[SH_LEVEL_DURABLE]) >= sh_backlog_next(&zone->backlog);
    if (atomic_load_explicit(&evacuation->zone, memory_order_relaxed) != zone)
        return false;
    uint64_t round = atomic_load(&evacuation->round);
    _Atomic uint64_t *mark = mark_of(evacuation, chunk, &bit);
    bool is_marked = atomic_load(mark) & bit;
    bool is_same = atomic_load(&evacuation->zone) == zone;
    return round % 2 == 0 && !is_marked && is_same && atomic_load(&evacuation->round) == round;
}

/* From now on no chunk may move. */
static void round_end(struct sh_evacuation *evacuation)
{
    if (atomic_load(&evacuation->round) % 2 == 0)
        atomic_fetch_add(&evacuation->round, 1);
}

/* Changes are marked anew, in that zone; NULL: in none. */
static void round_begin(struct sh_evacuation *evacuation, struct sh_own_zone *zone)
{
    round_end(evacuation);
    atomic_store(&evacuation->zone, zone);
    for (unsigned i = 0; i < SH_EVACUATION_WORDS; i++)
        atomic_store(&evacuation->marks[i], 0);
}

/* --- The steps --------------------------------------------------------------------------------- */

/* Others ask whether a zone is closed. */
static void phase_set(struct sh_own_zones *zones, enum sh_zone_drop_phase phase)
{
    sh_lock_take(&zones->lock);
    zones->drop.phase = phase;
    sh_lock_release(&zones->lock);
}

static void mark_begin(struct sh_own_zones *zones)
{
    struct sh_zone_drop *drop = &zones->drop;
    round_begin(&zones->evacuation, drop->zone);
    phase_set(zones, SH_DROP_MARKS);
    drop->rounds++;
    drop->claim = 0;
    drop->below = 0;
    drop->again_ns = 0;
}

void sh_evacuation_begin(struct sh_backup *backup, struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &backup->zones;
    SH_ASSERT(zones->drop.phase == SH_DROP_NONE);
    atomic_store(&zone->is_evacuated, false);
    sh_lock_take(&zones->lock);
    zones->drop = (struct sh_zone_drop){.zone = zone};
    sh_lock_release(&zones->lock);
    mark_begin(zones);
}

static void on_settled(void *arg, enum shoal_err err)
{
    struct sh_own_zones *zones = arg;
    if (err)
        return; /* the log is out of service, and nothing goes on */
    phase_set(zones, SH_DROP_MOVES);
    atomic_fetch_add(&zones->evacuation.round, 1);
}

static unsigned marks_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    uint64_t next;
    if (!sh_backlog_is_still(&drop->zone->backlog, &next)) {
        drop->again_ns = now_ns + AGAIN_NS;
        return 0;
    }
    phase_set(zones, SH_DROP_SETTLES);
    sh_write_begin(&drop->write, SH_LEVEL_DURABLE);
    drop->write.marks[0] = (struct sh_write_mark){drop->zone, next - 1};
    drop->write.marks_count = 1;
    if (!sh_write_wait(backup, &drop->write, on_settled, zones))
        on_settled(zones, SHOAL_OK);
    return 1;
}

/* It is empty, or nothing comes of it now. */
static void evacuation_end(struct sh_own_zones *zones, uint64_t now_ns)
{
    struct sh_zone_drop *drop = &zones->drop;
    struct sh_own_zone *zone = drop->zone;
    bool is_empty = !atomic_load(&zone->live);
    atomic_store(&zone->is_evacuated, is_empty);
    if (!is_empty) {
        zone->evacuate_ns = now_ns + PAUSE_NS;
        if (!zones->again_ns || zone->evacuate_ns < zones->again_ns)
            zones->again_ns = zone->evacuate_ns;
    }
    round_begin(&zones->evacuation, NULL);
    sh_lock_take(&zones->lock);
    *drop = (struct sh_zone_drop){.phase = SH_DROP_NONE};
    sh_lock_release(&zones->lock);
    atomic_store(&zones->has_empty, true);
}

/* The next chunk of the zone that the store has. OK: there is one; EAGAIN: look again; ENOCHUNK: there is none. */
static enum shoal_err chunk_next(struct sh_backup *backup, uint64_t *chunk_out)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    struct sh_zone_claim claim;
    if (!sh_zone_claim_get(drop->zone, drop->claim, &claim))
        return SHOAL_ENOCHUNK;
    uint64_t from = drop->below > claim.first ? drop->below : claim.first;
    struct sh_range range;
    /* The walk passes over each range that another zone claims in one go. */
    bool is_mapped = from <= claim.last && sh_ranges_next(zones->map, (shoal_cid){from}, &range) &&
                     range.first.v <= claim.last;
    if (is_mapped && range.value != drop->zone->number) {
        drop->below = range.last.v + 1;
        return SHOAL_EAGAIN;
    }
    if (!is_mapped || !sh_backup_chunk_next(backup, &claim, from, chunk_out)) {
        drop->claim++;
        drop->below = 0;
        return SHOAL_EAGAIN;
    }
    bool is_here = sh_zones_find(backup, *chunk_out) == drop->zone;
    drop->below = is_here ? *chunk_out : *chunk_out + 1;
    return is_here ? SHOAL_OK : SHOAL_EAGAIN;
}

/* Whether so much of what moved is on its way that more would be in the way of others. */
static bool is_busy(struct sh_own_zones *zones)
{
    struct sh_own_zone *open = atomic_load(&zones->open);
    sh_lock_take(&zones->lock);
    bool has_many = zones->leftovers_count >= LEFTOVERS_MAX;
    sh_lock_release(&zones->lock);
    return has_many || (open && sh_backlog_is_half_full(&open->backlog));
}

static uint64_t moved_bytes(struct sh_own_zones *zones)
{
    struct sh_own_zone *open = atomic_load(&zones->open);
    return open ? sh_backlog_recorded(&open->backlog) : 0;
}

static enum shoal_err large_step(struct sh_own_zones *zones)
{
    struct sh_zone_drop *drop = &zones->drop;
    uint64_t before = moved_bytes(zones);
    unsigned steps = 0;
    bool is_over = false;
    while (!is_over && steps++ < LARGE_STEPS)
        is_over = sh_store_rewriting_step(drop->rewriting);
    if (moved_bytes(zones) != before)
        drop->tries = 0;
    if (!is_over && ++drop->tries < TRIES_MAX)
        return SHOAL_EAGAIN;
    enum shoal_err err = sh_store_rewriting_end(drop->rewriting);
    drop->rewriting = NULL;
    return err == SHOAL_ECANCELED ? SHOAL_ENOTOWNER : err;
}

/* A chunk is written as it is, which takes it to the open zone. EAGAIN: not yet. */
static enum shoal_err chunk_move(struct sh_backup *backup, uint64_t chunk)
{
    struct sh_store *store = backup->config.store;
    struct sh_zone_drop *drop = &backup->zones.drop;
    const struct sh_store_rewrite retell = {.kind = SH_STORE_RETELL,
                                            .cid = sh_backup_store_cid(backup, chunk)};
    enum shoal_err err;
    sh_backup_evacuator_set(true);
    if (drop->rewriting) {
        err = large_step(&backup->zones);
    } else {
        err = sh_store_retell(store, retell.cid);
        if (err == SHOAL_ELIMIT)
            err = sh_store_rewriting_begin(store, &retell, &drop->rewriting);
        if (drop->rewriting)
            err = SHOAL_EAGAIN;
    }
    sh_backup_evacuator_set(false);
    backup->zones.evacuated += !err;
    return err;
}

/* Moves the next of its chunks; false: not now. */
static bool move_one(struct sh_backup *backup)
{
    struct sh_zone_drop *drop = &backup->zones.drop;
    uint64_t chunk = drop->below;
    if (!drop->rewriting) {
        if (is_busy(&backup->zones))
            return false;
        enum shoal_err err = chunk_next(backup, &chunk);
        if (err)
            return true;
    }
    uint64_t before = moved_bytes(&backup->zones);
    enum shoal_err err = chunk_move(backup, chunk);
    uint64_t after = moved_bytes(&backup->zones); /* less, where another zone is the open one now */
    if (drop->zone->is_damaged && after > before)
        sh_copy_budget_take(backup, after - before);
    bool waits = err == SHOAL_EAGAIN && (drop->rewriting || ++drop->tries < TRIES_MAX);
    if (!waits) {
        drop->below = chunk + 1;
        drop->tries = 0;
    }
    return !waits;
}

static unsigned moves_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    uint64_t before = zones->evacuated;
    struct sh_zone_claim claim;
    const bool is_repair = drop->zone->is_damaged;
    sh_copy_budget_fill(backup, now_ns);
    /* It has got so many chunks since it was chosen that those would fill the open zone. */
    if (!is_repair && !drop->rewriting &&
        atomic_load(&drop->zone->live) > atomic_load(&zones->kept_bytes)) {
        evacuation_end(zones, now_ns);
        return 1;
    }
    bool goes_on = true, is_walked = false;
    for (unsigned i = 0;
         goes_on && !is_walked && i < CLAIMS_A_STEP && zones->evacuated - before < MOVES_A_STEP;
         i++) {
        bool has_budget = !is_repair || drop->rewriting || backup->copy_bytes > 0;
        is_walked = !drop->rewriting && !sh_zone_claim_get(drop->zone, drop->claim, &claim);
        goes_on = is_walked || (has_budget && move_one(backup));
    }
    if (!goes_on)
        drop->again_ns = now_ns + AGAIN_NS;
    if (!is_walked)
        return goes_on;
    bool has_more = atomic_load(&drop->zone->live) != 0;
    if (has_more && drop->rounds < ROUNDS_MAX)
        mark_begin(zones);
    else
        evacuation_end(zones, now_ns);
    return 1;
}

unsigned sh_evacuation_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_zone_drop *drop = &backup->zones.drop;
    if (now_ns < drop->again_ns)
        return 0;
    drop->again_ns = 0;
    switch (drop->phase) {
    case SH_DROP_MARKS:
        return marks_step(backup, now_ns);
    case SH_DROP_MOVES:
        return moves_step(backup, now_ns);
    default:
        return 0;
    }
}

void sh_evacuation_stop(struct sh_own_zones *zones)
{
    if (zones->drop.rewriting)
        (void)!sh_store_rewriting_end(zones->drop.rewriting);
    zones->drop.rewriting = NULL;
}
