/* Leftovers: chunks of which a zone's log has an image, or may have, though they are another zone's now, or gone. The zone gets a removal, at the right
 * time, and neither it nor the zone that has the chunk now is dropped before that is durable: else the image would count again. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/log.h"

#define LEFTOVERS_A_STEP 256u

enum shoal_err sh_leftovers_grow(struct sh_own_zones *zones)
{
    if (zones->leftovers_count + zones->leftovers_promised < zones->leftovers_room)
        return SHOAL_OK;
    size_t room = zones->leftovers_room ? 2 * zones->leftovers_room : 64;
    struct sh_leftover *leftovers = realloc(zones->leftovers, room * sizeof *leftovers);
    if (!leftovers)
        return SHOAL_ENOMEM;
    zones->leftovers = leftovers;
    zones->leftovers_room = room;
    return SHOAL_OK;
}

/* Whether its removal is to be recorded, and waits for nothing but room. */
static bool is_at_once(const struct sh_leftover *leftover)
{
    return !leftover->number && !leftover->removal;
}

/* A zone has an image of a chunk that is not its any more. Room was made. */
static void leftover_add(struct sh_own_zones *zones, const struct sh_leftover *leftover)
{
    sh_lock_assert_held(&zones->lock);
    SH_ASSERT(leftover->claimed_by != leftover->zone &&
              (leftover->claimed_by || !leftover->number));
    zones->leftovers[zones->leftovers_count++] = *leftover;
    leftover->zone->left_here++;
    if (leftover->claimed_by)
        leftover->claimed_by->left_behind++;
    if (is_at_once(leftover))
        /* release: sh_zones_made, of who makes the chunk again */
        atomic_fetch_add_explicit(&zones->at_once, 1, memory_order_release);
}

static void leftover_remove(struct sh_own_zones *zones, size_t i)
{
    sh_lock_assert_held(&zones->lock);
    const struct sh_leftover *leftover = &zones->leftovers[i];
    leftover->zone->left_here--;
    if (leftover->claimed_by)
        leftover->claimed_by->left_behind--;
    if (is_at_once(leftover))
        atomic_fetch_sub_explicit(&zones->at_once, 1, memory_order_relaxed);
    zones->leftovers[i] = zones->leftovers[--zones->leftovers_count];
}

static bool is_durable(struct sh_own_zone *zone, uint64_t number)
{
    return atomic_load(&zone->acked[SH_LEVEL_DURABLE]) > number;
}

/* A chunk is made in another zone, under an ID whose last create was undone in this one: if the removal of that was not recorded yet, for want of room, the
 * other zone's claim outweighs the image from now on. */
static void undone_claim(struct sh_own_zones *zones, const struct sh_leftover *moved)
{
    bool is_found = !atomic_load_explicit(&zones->at_once, memory_order_relaxed);
    for (size_t i = 0; i < zones->leftovers_count && !is_found; i++) {
        struct sh_leftover *undone = &zones->leftovers[i];
        is_found =
            undone->zone == moved->zone && undone->chunk == moved->chunk && is_at_once(undone);
        if (is_found && !undone->claimed_by) {
            undone->claimed_by = moved->claimed_by;
            undone->claimed_by->left_behind++;
        }
    }
}

void sh_leftover_begin(struct sh_own_zones *zones, uint64_t chunk,
                       const struct sh_zone_place *place, bool is_new, uint64_t number)
{
    struct sh_leftover leftover = {
        .zone = place->from, .chunk = chunk, .claimed_by = place->zone, .number = number};
    if (is_new) {
        leftover.removal = sh_backlog_next(&place->from->backlog) - 1; /* or one before that, */
        undone_claim(zones, &leftover);                                /* or one to come */
    }
    if (!is_new || !is_durable(place->from, leftover.removal))
        leftover_add(zones, &leftover);
}

/* Records that a zone has a chunk no more; returns the number of that, 0: there is no room now. */
static uint64_t leave(struct sh_own_zone *zone, uint64_t chunk)
{
    const struct sh_backlog_entry removal = {
        .chunk = chunk, .kind = SH_BACKLOG_REMOVAL, .pieces = 1};
    if (sh_backlog_admit(&zone->backlog, SH_BACKLOG_HEAD_BYTES))
        return 0;
    uint64_t number = sh_backlog_record(&zone->backlog, NULL, &removal);
    sh_zone_dirty(zone);
    return number;
}

/* Whether all up to that number of the zone is durable. Where a zone that is being dropped waits for the leftover, that is hurried. */
static bool is_durable_soon(const struct sh_own_zones *zones, const struct sh_leftover *leftover,
                            struct sh_own_zone *zone, uint64_t number)
{
    const struct sh_zone_drop *drop = &zones->drop;
    if (is_durable(zone, number))
        return true;
    bool is_waited_for = drop->phase == SH_DROP_LEAVES &&
                         (drop->zone == leftover->zone || drop->zone == leftover->claimed_by);
    if (is_waited_for)
        sh_zone_hurry(zone, number + 1);
    return false;
}

/* Goes on with it; returns whether it is none any more. */
static bool leftover_step(struct sh_own_zones *zones, struct sh_leftover *leftover)
{
    if (leftover->removal)
        return is_durable_soon(zones, leftover, leftover->zone, leftover->removal);
    if (leftover->number &&
        !is_durable_soon(zones, leftover, leftover->claimed_by, leftover->number))
        return false;
    if (sh_zone_is_closed(leftover->zone))
        return true;
    leftover->removal = leave(leftover->zone, leftover->chunk);
    if (leftover->removal && !leftover->number)
        atomic_fetch_sub_explicit(&zones->at_once, 1, memory_order_relaxed);
    return false;
}

bool sh_zone_has_left(struct sh_own_zone *zone, uint64_t chunk)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    bool has_left = false;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zones->leftovers_count && zone->left_here && !has_left; i++) {
        const struct sh_leftover *leftover = &zones->leftovers[i];
        has_left = leftover->zone == zone && leftover->chunk == chunk && leftover->number &&
                   !leftover->removal;
    }
    sh_lock_release(&zones->lock);
    return has_left;
}

unsigned sh_zones_leftovers(struct sh_backup *backup)
{
    struct sh_own_zones *zones = &backup->zones;
    unsigned done = 0;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zones->leftovers_count && done < LEFTOVERS_A_STEP;) {
        struct sh_leftover *leftover = &zones->leftovers[i];
        bool had_removal = leftover->removal != 0;
        bool is_over = leftover_step(zones, leftover);
        done += is_over || (leftover->removal != 0) != had_removal;
        if (is_over)
            leftover_remove(zones, i);
        else
            i++;
    }
    sh_lock_release(&zones->lock);
    return done;
}

bool sh_zone_is_leaving(const struct sh_own_zone *zone)
{
    return zone->left_here || zone->left_behind;
}

bool sh_zone_left_end(struct sh_own_zone *zone, uint64_t *end_out)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    uint64_t end = 0;
    bool are_all = true;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zones->leftovers_count && zone->left_here && are_all; i++) {
        const struct sh_leftover *leftover = &zones->leftovers[i];
        if (leftover->zone != zone)
            continue;
        are_all = leftover->removal != 0;
        end = leftover->removal >= end ? leftover->removal + 1 : end;
    }
    sh_lock_release(&zones->lock);
    *end_out = end;
    return are_all;
}

void sh_zone_left_forget(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zones->leftovers_count && sh_zone_is_leaving(zone);) {
        struct sh_leftover *leftover = &zones->leftovers[i];
        if (leftover->zone == zone) {
            leftover_remove(zones, i);
            continue;
        }
        if (leftover->claimed_by == zone) {
            SH_ASSERT(!leftover->number); /* nothing has moved there */
            leftover->claimed_by = NULL;
            zone->left_behind--;
        }
        i++;
    }
    sh_lock_release(&zones->lock);
}

/* The same with memory for it; where there is none, no zone may go any more. */
static void leftover_note(struct sh_own_zones *zones, const struct sh_leftover *leftover)
{
    sh_lock_assert_held(&zones->lock);
    if (sh_leftovers_grow(zones)) {
        SH_WARN("backup",
                "out of memory: an image of a chunk that is not there stays in the log, and no "
                "zone is dropped until the next start",
                SH_U64("chunk", leftover->chunk));
        zones->is_dropping_over = true;
    } else {
        leftover_add(zones, leftover);
    }
}

/* The other zone that has a chunk; NULL: none has it, or that zone itself. */
static struct sh_own_zone *claimant(struct sh_backup *backup, const struct sh_own_zone *zone,
                                    uint64_t chunk)
{
    struct sh_own_zone *found = sh_zones_find(backup, chunk);
    return found == zone ? NULL : found;
}

void sh_backup_left_found(struct sh_backup *backup, uint64_t number, uint64_t chunk)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_leftover leftover = {.zone = zones->all[number % SH_ZONES_MAX], .chunk = chunk};
    sh_lock_take(&zones->lock);
    leftover.claimed_by = claimant(backup, leftover.zone, chunk);
    /* At once, before anything else of the zone: the chunk may move there later. */
    leftover.removal = leave(leftover.zone, chunk);
    leftover_note(zones, &leftover);
    sh_lock_release(&zones->lock);
}

void sh_zones_leave(struct sh_backup *backup, const struct sh_zone_place *place, uint64_t chunk)
{
    struct sh_own_zones *zones = &backup->zones;
    sh_lock_take(&zones->lock);
    if (sh_zone_is(place) && !sh_zone_is_closed(place->zone))
        leftover_note(zones,
                      &(struct sh_leftover){.zone = place->zone,
                                            .chunk = chunk,
                                            .claimed_by = claimant(backup, place->zone, chunk)});
    sh_lock_release(&zones->lock);
}

void sh_zones_made(struct sh_backup *backup, const struct sh_own_zone *zone, uint64_t chunk)
{
    struct sh_own_zones *zones = &backup->zones;
    /* acquire: leftover_add */
    if (!atomic_load_explicit(&zones->at_once, memory_order_acquire))
        return;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zones->leftovers_count; i++) {
        const struct sh_leftover *leftover = &zones->leftovers[i];
        if (leftover->chunk == chunk && leftover->zone == zone && is_at_once(leftover)) {
            leftover_remove(zones, i);
            break;
        }
    }
    sh_lock_release(&zones->lock);
}
