/* Which numbers of a zone are there. */
#include <stdlib.h>

#include "log/replog_int.h"

#define SEQUENCE_MAX (UINT64_C(1) << 47)

enum shoal_err sh_replog_ranges_add(struct sh_replog_ranges *ranges,
                                    const struct sh_replog_range *range)
{
    struct sh_replog_range *last = ranges->count ? &ranges->ranges[ranges->count - 1] : NULL;
    if (range->first == range->end)
        return SHOAL_OK;
    if (last && last->end == range->first && last->life == range->life) {
        last->end = range->end;
        return SHOAL_OK;
    }
    void *items = ranges->ranges;
    enum shoal_err err =
        sh_replog_room_make(&items, ranges->count, &ranges->room, sizeof *ranges->ranges);
    ranges->ranges = items;
    if (!err)
        ranges->ranges[ranges->count++] = *range;
    return err;
}

static int by_first(const void *a, const void *b)
{
    uint64_t one = ((const struct sh_replog_range *)a)->first,
             other = ((const struct sh_replog_range *)b)->first;
    return one < other ? -1 : one > other;
}

/* The place before which what a life wrote counts. */
static uint64_t life_end(const struct sh_replog_lives *lives, uint16_t life)
{
    uint64_t end = sh_replog_lives_end(lives, life);
    return end < SEQUENCE_MAX ? sh_replog_place(end, 0) : UINT64_MAX;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

uint64_t sh_replog_ranges_whole(struct sh_replog_ranges *ranges,
                                const struct sh_replog_lives *lives)
{
    uint64_t end = 0;
    for (unsigned i = 0; i < lives->count; i++) {
        const struct sh_replog_life *life = &lives->lives[i];
        uint64_t its = least(sh_replog_place(life->whole, 0), life_end(lives, life->life));
        end = its > end ? its : end;
    }
    if (ranges->count)
        qsort(ranges->ranges, ranges->count, sizeof *ranges->ranges, by_first);
    for (size_t i = 0; i < ranges->count && ranges->ranges[i].first <= end; i++) {
        uint64_t its = least(ranges->ranges[i].end, life_end(lives, ranges->ranges[i].life));
        end = its > end ? its : end;
    }
    return end >> 16;
}

bool sh_replog_ranges_lack(const struct sh_replog_ranges *ranges,
                           const struct sh_replog_lives *lives, uint64_t from, uint64_t to)
{
    uint64_t next = from;
    for (size_t i = 0; i < ranges->count && next < to; i++) {
        const struct sh_replog_range *range = &ranges->ranges[i];
        uint64_t end = least(range->end, life_end(lives, range->life));
        if (range->first > next)
            return true;
        next = end > next ? end : next;
    }
    return next < to;
}

bool sh_replog_ranges_have_behind(const struct sh_replog_ranges *ranges,
                                  const struct sh_replog_lives *lives, uint64_t end)
{
    for (size_t i = 0; i < ranges->count; i++) {
        const struct sh_replog_range *range = &ranges->ranges[i];
        if (range->end > least(sh_replog_place(end, 0), life_end(lives, range->life)))
            return true;
    }
    return false;
}
