/* Compares lists of zones with what was told before. */
#include <stdlib.h>

#include "base/assert.h"
#include "client/watch_int.h"

static bool is_before(uint64_t a, uint64_t b)
{
    unsigned shard_a = sh_zone_shard(a), shard_b = sh_zone_shard(b);
    return shard_a != shard_b ? shard_a < shard_b : a < b;
}

void sh_watched_zones_begin(struct sh_watched_zones *zones)
{
    zones->next_count = zones->news_count = zones->at = 0;
    zones->is_next_under_way = false;
    zones->err = SHOAL_OK;
}

/* Makes room for one more. */
static bool room_make(void **items, size_t *room, size_t count, size_t size)
{
    if (count < *room)
        return true;
    size_t more = *room ? 2 * *room : 16;
    void *grown = reallocarray(*items, more, size);
    if (!grown)
        return false;
    *items = grown;
    *room = more;
    return true;
}

static bool news_add(struct sh_watched_zones *zones, enum shoal_event_kind kind,
                     const struct sh_zone *zone)
{
    if (!room_make((void **)&zones->news, &zones->news_room, zones->news_count,
                   sizeof *zones->news))
        return false;
    zones->news[zones->news_count++] = (struct sh_watched_news){.kind = kind, .zone = *zone};
    return true;
}

/* What was told of a zone; the zones come in the order of the list before. */
static struct sh_watched_zone told_of(struct sh_watched_zones *zones, uint64_t id)
{
    while (zones->at < zones->told_count && is_before(zones->told[zones->at].id, id))
        zones->at++;
    bool was_told = zones->at < zones->told_count && zones->told[zones->at].id == id;
    return was_told ? zones->told[zones->at] : (struct sh_watched_zone){.id = id};
}

bool sh_watched_zones_take(void *arg, const struct sh_recovery *recovery)
{
    struct sh_watched_zones *zones = arg;
    struct sh_watched_zone known = told_of(zones, recovery->zone.id);
    bool has_room = true;
    SH_ASSERT(!zones->err);
    SH_ASSERT(!zones->next_count || is_before(zones->next[zones->next_count - 1].id, known.id));
    zones->is_next_under_way |= sh_recovery_is_under_way(recovery);
    if (recovery->state == SH_RECOVERY_LOST && !known.is_lost) {
        has_room = news_add(zones, SHOAL_EVENT_ZONE_LOST, &recovery->zone);
        known.is_lost = true;
    }
    if (recovery->state == SH_RECOVERY_OLDER && recovery->zone.older > known.older) {
        has_room = news_add(zones, SHOAL_EVENT_ZONE_OLDER, &recovery->zone);
        known.older = recovery->zone.older;
    }
    has_room = has_room && room_make((void **)&zones->next, &zones->next_room, zones->next_count,
                                     sizeof *zones->next);
    if (has_room)
        zones->next[zones->next_count++] = known;
    else
        zones->err = SHOAL_ENOMEM;
    return has_room;
}

enum shoal_err sh_watched_zones_end(struct sh_watched_zones *zones, enum shoal_err err,
                                    uint64_t epoch)
{
    if (err || zones->err) {
        zones->news_count = 0;
        return err ? err : zones->err;
    }
    free(zones->told);
    zones->told = zones->next;
    zones->told_count = zones->next_count;
    zones->next = NULL; /* lists are few, so each is allocated anew */
    zones->next_room = 0;
    zones->epoch = epoch;
    zones->is_under_way = zones->is_next_under_way;
    return SHOAL_OK;
}

void sh_watched_zones_destroy(struct sh_watched_zones *zones)
{
    free(zones->told);
    free(zones->next);
    free(zones->news);
    *zones = (struct sh_watched_zones){.told = NULL};
}
