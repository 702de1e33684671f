/* Repairing zones of the own disk that are damaged: the log's scrub, or its cleaner, has found something there that can't be read any more.
 *
 * All that such a zone has is in the store. So its chunks are written once more, as they are, to the open zone, as those of a zone are that has few
 * (evacuate.c), and it is dropped (drops.c). The log drops all of a zone, or nothing: afterwards no start finds a damaged image of
 * a chunk, nor an older one of a chunk that was written or removed since, whatever the damaged part said of it.
 *
 *   damaged ──► (another zone is the open one) ──► evacuated ──► empty ──► dropped: repaired
 *
 * An empty zone stays as long as a client may repeat a request whose completion record it has; not so a damaged one, as a node does not start
 * from that at all. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/log.h"

#define PAUSE_NS                                                                                   \
    UINT64_C(1000000000) /* until a zone for which there is no room is looked at again */

static struct sh_own_zone *zone_of(struct sh_backup *backup, const struct sh_replog_zone *logged)
{
    uint64_t number = sh_zone_number(sh_replog_zone_id(logged));
    struct sh_own_zone *zone = backup->zones.all[number % SH_ZONES_MAX];
    return zone && zone->log == logged ? zone : NULL;
}

void sh_backup_damaged(void *arg, struct sh_replog_zone *logged, uint32_t slot, uint64_t offset)
{
    struct sh_backup *backup = arg;
    struct sh_own_zone *zone = logged ? zone_of(backup, logged) : NULL;
    (void)slot;
    (void)offset;
    if (!zone || zone->is_damaged)
        return;
    SH_ASSERT(!sh_backup_is_clustered(backup));
    zone->is_damaged = true;
    atomic_fetch_add(&backup->damaged, 1);
    atomic_store(&backup->zones.has_empty, true);
    SH_WARN("backup", "a zone is damaged on the own disk: its chunks are written once more",
            SH_U64("zone", zone->number),
            SH_U64("chunk_bytes", atomic_load_explicit(&zone->live, memory_order_relaxed)));
}

bool sh_backup_is_damaged(const struct sh_backup *backup)
{
    return atomic_load(&backup->damaged) && !atomic_load(&backup->trouble);
}

/* Makes another zone the one for new chunks, if it is the damaged one; false: there is no other yet. */
static bool open_leave(struct sh_own_zones *zones, struct sh_own_zone *zone)
{
    sh_lock_take(&zones->lock);
    bool is_open = zones->open == zone;
    if (is_open && zones->spare) {
        atomic_store(&zone->is_concluded, true);
        zones->open = zones->spare;
        zones->spare = NULL;
        is_open = false;
    }
    sh_lock_release(&zones->lock);
    return !is_open;
}

struct sh_own_zone *sh_zones_damaged_find(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *found = NULL;
    if (!sh_backup_is_damaged(backup))
        return NULL;
    for (struct sh_own_zone *zone = zones->first; zone; zone = zone->next_entered) {
        if (!zone->is_damaged || zone == zones->spare)
            continue;
        bool may_go = open_leave(zones, zone) && sh_evacuation_has_room(backup, 1);
        if (!may_go && zone->evacuate_ns <= now_ns)
            zone->evacuate_ns = now_ns + PAUSE_NS;
        /* An empty one is dropped as others are. */
        if (!found && sh_evacuation_is_ready(zone, now_ns) && atomic_load(&zone->live))
            found = zone;
    }
    return found;
}

void sh_zone_repaired(struct sh_own_zone *zone)
{
    if (!zone->is_damaged)
        return;
    zone->is_damaged = false;
    atomic_fetch_sub(&zone->backup->damaged, 1);
    zone->backup->repaired++;
    SH_INFO("backup", "a damaged zone is repaired: its chunks are in others, and it is dropped",
            SH_U64("zone", zone->number));
}
