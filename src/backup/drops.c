/* Dropping zones that are empty, one after the other.
 *
 *   NONE ─┬─► CLOSES ─► UNMAPS ─► LEAVES ─► TELLS ─► GOES ─► NONE
 *         └─► MARKS ─► SETTLES ─► MOVES ─► NONE
 *
 * NONE: an empty zone is looked for, in whose stream there is nothing of a request that a client may still repeat; or one that has
 * few chunks, or is damaged, to make it empty: MARKS, SETTLES and MOVES are in evacuate.c.
 *
 * CLOSES: the zone has no chunk, and all of its writes are durable; once nothing is on its way into its backlog, that is closed. Else
 * it waits, or, when the zone has a chunk again, gives up. From then on changes of its IDs find no room, and wait.
 *
 * UNMAPS: its IDs are taken out of the map, and are nobody's: whoever waits claims them for the open zone. That has a
 * higher number than any zone that ever claimed them, as claims have gone to the newest zone always: so also after a crash, when
 * this zone and those that it had the IDs from claim them again, it is the one that counts.
 *
 * LEAVES: what earlier zones have of chunks that moved here is removed there, durably: their claims hold again when this zone is gone. And what
 * moved from here is durable in its zone. Other zones are not waited for: in a full log they may need the room that this one gives back.
 *
 * TELLS, GOES: the log drops it, all or nothing. All is what it was when it was closed: no chunk is its own. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/log.h"

#define RANGES_A_STEP 256u

void sh_zone_emptied(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    /* New chunks go to that one: it does not stay empty. */
    if (zone == atomic_load_explicit(&zones->open, memory_order_relaxed))
        return;
    if (!atomic_exchange(&zones->has_empty, true))
        zone->backup->config.wake(zone->backup->config.arg);
}

static bool is_empty(const struct sh_own_zones *zones, const struct sh_own_zone *zone)
{
    return zone != zones->open && zone != zones->spare && !atomic_load(&zone->live);
}

/* Whether some client may still ask what came of a request: then the zone stays, as that is in its stream. */
static bool may_be_asked(struct sh_own_zone *zone, uint64_t now_ns)
{
    uint64_t told = atomic_load(&zone->told), repeat_ns = zone->backup->config.repeat_ns;
    if (told != zone->told_seen) {
        zone->told_seen = told;
        zone->told_ns = now_ns;
    }
    if (!told || zone->is_damaged || now_ns - zone->told_ns >= repeat_ns)
        return false;
    uint64_t *again_ns = &zone->backup->zones.again_ns;
    if (!*again_ns || zone->told_ns + repeat_ns < *again_ns)
        *again_ns = zone->told_ns + repeat_ns;
    return true;
}

/* An empty zone; NULL: there is none. */
static struct sh_own_zone *empty_find(struct sh_own_zones *zones, uint64_t now_ns)
{
    uint64_t end = sh_zones_places(zones);
    for (uint64_t i = 0; i < end; i++) {
        struct sh_own_zone *zone = zones->all[i];
        if (zone && !sh_zone_is_opening(zone) && is_empty(zones, zone) &&
            !may_be_asked(zone, now_ns))
            return zone;
    }
    return NULL;
}

static unsigned begin(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    bool is_time = zones->again_ns && now_ns >= zones->again_ns;
    if ((!atomic_load(&zones->has_empty) && !is_time) || zones->is_dropping_over)
        return 0;
    atomic_store(&zones->has_empty, false);
    zones->again_ns = 0;
    struct sh_own_zone *evacuated = sh_zones_damaged_find(backup, now_ns);
    drop->zone = empty_find(zones, now_ns);
    if (drop->zone) {
        drop->phase = SH_DROP_CLOSES;
        return 1;
    }
    if (!evacuated)
        evacuated = sh_zones_sparse_find(backup, now_ns);
    if (evacuated)
        sh_evacuation_begin(backup, evacuated);
    return evacuated != NULL;
}

/* Whether completion records have come since the zone was looked at. */
static bool is_told_more(struct sh_own_zone *zone)
{
    return atomic_load(&zone->told) != zone->told_seen;
}

/* Whether the zone is empty, and nothing is on its way to change that, in any thread: room in its backlog, which a change of its chunks takes
 * first, or a move to it or from it. */
static bool close_if_empty(struct sh_own_zones *zones, struct sh_own_zone *zone)
{
    sh_lock_assert_held(&zones->lock);
    uint64_t durable = atomic_load(&zone->acked[SH_LEVEL_DURABLE]);
    if (zone->claims_promised || zone->moves_away || !sh_backlog_close(&zone->backlog, durable))
        return false;
    if (is_empty(zones, zone) && !is_told_more(zone))
        return true;
    sh_backlog_open(&zone->backlog);
    return false;
}

static unsigned close_step(struct sh_own_zones *zones)
{
    struct sh_zone_drop *drop = &zones->drop;
    sh_lock_take(&zones->lock);
    bool was_closed = close_if_empty(zones, drop->zone),
         is_over = !is_empty(zones, drop->zone) || is_told_more(drop->zone);
    if (was_closed) {
        drop->phase = SH_DROP_UNMAPS;
        drop->claim = 0;
        drop->below = 0;
    } else if (is_over) {
        drop->phase = SH_DROP_NONE;
        drop->zone = NULL;
        atomic_store(&zones->has_empty, true); /* another one may be */
    }
    sh_lock_release(&zones->lock);
    return was_closed || is_over;
}

/* Takes the next range of the claim out that is the zone's; false: there is none. */
static bool range_unmap(struct sh_own_zones *zones, const struct sh_zone_claim *claim)
{
    struct sh_zone_drop *drop = &zones->drop;
    uint64_t from = drop->below > claim->first ? drop->below : claim->first;
    struct sh_range range;
    if (from > claim->last || !sh_ranges_next(zones->map, (shoal_cid){from}, &range) ||
        range.first.v > claim->last)
        return false;
    if (range.value == drop->zone->number) {
        enum shoal_err err = sh_ranges_remove(zones->map, range.first, range.last);
        SH_ASSERT(!err); /* it is a whole one */
    }
    drop->below = range.last.v + 1;
    return true;
}

static unsigned unmap_step(struct sh_backup *backup)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    sh_lock_take(&zones->lock);
    for (unsigned i = 0; i < RANGES_A_STEP && drop->claim < drop->zone->claims_count; i++) {
        if (range_unmap(zones, &drop->zone->claims[drop->claim]))
            continue;
        drop->claim++;
        drop->below = 0;
    }
    bool is_over = drop->claim == drop->zone->claims_count;
    if (is_over)
        drop->phase = SH_DROP_LEAVES;
    sh_lock_release(&zones->lock);
    if (is_over)
        sh_waits_room(backup); /* who waited for its backlog */
    return 1;
}

static unsigned leave_step(struct sh_own_zones *zones)
{
    sh_lock_take(&zones->lock);
    bool is_over = !zones->is_dropping_over && !sh_zone_is_leaving(zones->drop.zone);
    if (is_over)
        zones->drop.phase = SH_DROP_TELLS;
    sh_lock_release(&zones->lock);
    return is_over;
}

static unsigned tell_step(struct sh_own_zones *zones)
{
    enum shoal_err err = sh_zone_drop_tell(zones->drop.zone);
    if (!err)
        zones->drop.phase = SH_DROP_GOES;
    return !err; /* else later */
}

void sh_zone_dropped(struct sh_backup *backup, uint64_t number, enum shoal_err err)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_zone_drop *drop = &zones->drop;
    struct sh_own_zone *zone = drop->zone;
    SH_ASSERT(drop->phase == SH_DROP_GOES && zone->number == number);
    if (err)
        return; /* the log is out of service */
    sh_zone_withdraw(zone);
    sh_zone_adopted_leave(zone);
    zone->log = NULL;
    sh_zone_repaired(zone);
    zones->dropped++;
    zones->dropped_writes += sh_backlog_next(&zone->backlog) - zone->before;
    sh_lock_take(&zones->lock);
    *drop = (struct sh_zone_drop){.phase = SH_DROP_NONE};
    sh_lock_release(&zones->lock);
    sh_zone_free(zone);
    atomic_store(&zones->has_empty, true);
    backup->zone_again_ns = 0; /* where there was no room for another zone, there is now */
}

unsigned sh_zones_drop_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    switch (zones->drop.phase) {
    case SH_DROP_NONE:
        return begin(backup, now_ns);
    case SH_DROP_MARKS:
    case SH_DROP_SETTLES:
    case SH_DROP_MOVES:
        return sh_evacuation_step(backup, now_ns);
    case SH_DROP_CLOSES:
        return close_step(zones);
    case SH_DROP_UNMAPS:
        return unmap_step(backup);
    case SH_DROP_LEAVES:
        return leave_step(zones);
    case SH_DROP_GOES:
        return 0;
    case SH_DROP_TELLS:
        return tell_step(zones);
    }
    SH_ASSERT(!"a phase");
    return 0;
}

uint64_t sh_zones_drop_due_ns(const struct sh_backup *backup)
{
    const struct sh_own_zones *zones = &backup->zones;
    const struct sh_zone_drop *drop = &zones->drop;
    uint64_t due_ns = 0;
    if (drop->phase == SH_DROP_TELLS)
        due_ns = drop->zone->op_again_ns;
    else if (drop->phase == SH_DROP_NONE)
        due_ns = zones->again_ns;
    else if (drop->phase < SH_DROP_CLOSES)
        due_ns = drop->again_ns;
    /* The step has done all that was due, or waits for something that wakes it. */
    return due_ns > backup->now_ns ? due_ns : UINT64_MAX;
}

bool sh_zones_is_drop_near(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    if (zones->is_dropping_over)
        return false;
    return zones->drop.phase != SH_DROP_NONE || empty_find(zones, now_ns) ||
           sh_zones_sparse_find(backup, now_ns);
}
