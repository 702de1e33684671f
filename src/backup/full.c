/* Zones for whose next write the log of the own disk has no room.
 *
 * A log keeps room for two versions of each chunk of a zone (sh_zone_log_bytes). That is too little for a chunk that is larger than a
 * zone, or nearly as large, while it is written; and for a zone that has got more than it should. So a zone whose log is full
 * grows, an eighth at a time, as long as the log has slots that no other zone was promised.
 *
 *   append: ENOSPC ──┬─ of a chunk that was given up since ──► passed over, up to its end; the pieces that are there go
 *                    ├─ the zone's log grows ──► tried again
 *                    └─ neither ──► full ──► tried ten times a second, until there is room, or nothing to write
 *
 * Of a full zone, what has been recorded waits. Chunks that are changed move to the zone for new chunks, where there is one; other changes are
 * refused (ENOSPC), in particular the pieces of a chunk that come next, with which the chunk is given up. */
#include "backup/backup_int.h"
#include "base/log.h"

#define GROW_AGAIN_NS UINT64_C(100000000)
#define TELL_AGAIN_NS UINT64_C(10000000000)

/* Passes over the pieces that come next, if they are those of a chunk that was given up. */
static bool given_up_pass(struct sh_sink *home)
{
    struct sh_backlog_cursor *cursor = &home->cursor;
    const struct sh_backlog_cursor before = *cursor;
    struct sh_backlog_entry entry;
    uint64_t number;
    do {
        if (!sh_backlog_read(cursor, &entry, &number, NULL)) {
            sh_backlog_unread(cursor, &before);
            return false;
        }
    } while (entry.kind == SH_BACKLOG_IMAGE && entry.piece + 1 < entry.pieces);
    if (entry.kind == SH_BACKLOG_ABANDON && !sh_replog_abandon(home->zone->log))
        return true;
    sh_backlog_unread(cursor, &before);
    return false;
}

static bool grow(struct sh_own_zone *zone)
{
    uint64_t now_ns = zone->backup->now_ns;
    if (now_ns < zone->grow_again_ns)
        return false;
    if (!sh_replog_zone_grow(zone->log))
        return true;
    zone->grow_again_ns = now_ns + GROW_AGAIN_NS;
    return false;
}

static void full_tell(struct sh_own_zone *zone)
{
    struct sh_backup *backup = zone->backup;
    if (backup->full_told_ns && backup->now_ns - backup->full_told_ns < TELL_AGAIN_NS)
        return;
    backup->full_told_ns = backup->now_ns;
    SH_ERROR("backup",
             "the log of the own disk has no room for more of a zone, whose changes are refused: "
             "remove chunks, make room on the disk, or give the log more segments",
             SH_U64("zone", zone->number),
             SH_U64("chunk_bytes", atomic_load_explicit(&zone->live, memory_order_relaxed)));
}

bool sh_home_room_make(struct sh_sink *home)
{
    struct sh_own_zone *zone = home->zone;
    if (given_up_pass(home) || grow(zone))
        return true;
    if (atomic_exchange(&zone->is_full, true))
        return false;
    full_tell(zone);
    sh_waits_room(zone->backup); /* whoever waits for room is refused now */
    return false;
}

void sh_home_room_found(struct sh_own_zone *zone)
{
    if (!atomic_load_explicit(&zone->is_full, memory_order_relaxed))
        return;
    atomic_store(&zone->is_full, false);
    zone->grow_again_ns = 0;
    sh_waits_room(zone->backup);
}
