#include "graph/extents_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ROOM_FIRST 16

void sh_extents_free(struct sh_extents *extents)
{
    free(extents->at);
    *extents = (struct sh_extents){0};
}

/* The first extent that ends at or behind lid. */
static uint32_t place_of(const struct sh_extents *extents, sh_lid lid)
{
    uint32_t low = 0;
    uint32_t high = extents->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct sh_extent *extent = &extents->at[middle];
        if (extent->first.v + extent->count <= lid.v)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum shoal_err make_room(struct sh_extents *extents)
{
    if (extents->count < extents->room)
        return SHOAL_OK;
    if (extents->room == SH_EXTENTS_MAX)
        return SHOAL_ELIMIT;
    uint32_t room = extents->room ? extents->room * 2 : ROOM_FIRST;
    struct sh_extent *grown = realloc(extents->at, room * sizeof *grown);
    if (!grown)
        return SHOAL_ENOMEM;
    extents->at = grown;
    extents->room = room;
    return SHOAL_OK;
}

static void insert(struct sh_extents *extents, uint32_t place, const struct sh_extent *extent)
{
    SH_ASSERT(extents->count < extents->room && place <= extents->count);
    struct sh_extent *at = &extents->at[place];
    memmove(at + 1, at, (extents->count - place) * sizeof *at);
    *at = *extent;
    extents->count++;
}

static void take_out(struct sh_extents *extents, uint32_t place)
{
    SH_ASSERT(place < extents->count);
    struct sh_extent *at = &extents->at[place];
    extents->count--;
    memmove(at, at + 1, (extents->count - place) * sizeof *at);
}

/* Whether the two can be one: IDs follow each other, and names go on ascending. */
static bool follows(const struct sh_extent *before, const struct sh_extent *behind)
{
    return before->first.v + before->count == behind->first.v &&
           before->name_last < behind->name_first && before->is_retained == behind->is_retained;
}

static void join(struct sh_extent *before, const struct sh_extent *behind)
{
    before->count += behind->count;
    before->name_last = behind->name_last;
}

enum shoal_err sh_extents_add(struct sh_extents *extents, const struct sh_extent *extent)
{
    SH_ASSERT(extent->count > 0);
    uint32_t place = place_of(extents, extent->first);
    struct sh_extent *behind = place < extents->count ? &extents->at[place] : NULL;
    struct sh_extent *before = place > 0 ? &extents->at[place - 1] : NULL;
    SH_ASSERT(!behind || behind->first.v >= extent->first.v + extent->count);
    if (extents->vertices > UINT32_MAX - extent->count)
        return SHOAL_ELIMIT;
    bool joins_before = before && follows(before, extent);
    bool joins_behind = behind && follows(extent, behind);
    if (joins_before) {
        join(before, extent);
        if (joins_behind) {
            join(before, behind);
            take_out(extents, place);
        }
    } else if (joins_behind) {
        struct sh_extent joined = *extent;
        join(&joined, behind);
        *behind = joined;
    } else {
        enum shoal_err err = make_room(extents);
        if (err)
            return err;
        insert(extents, place, extent);
    }
    extents->vertices += extent->count;
    return SHOAL_OK;
}

bool sh_extents_cut(struct sh_extents *extents, sh_lid first, sh_lid last,
                    struct sh_extent *cut_out, bool *lost_out)
{
    uint32_t place = place_of(extents, first);
    *lost_out = false;
    if (place == extents->count || extents->at[place].first.v > last.v)
        return false;
    const struct sh_extent all = extents->at[place];
    uint64_t end = all.first.v + all.count;
    uint64_t cut_first = all.first.v > first.v ? all.first.v : first.v;
    uint64_t cut_end = end - 1 < last.v ? end : last.v + 1;
    if (cut_first > all.first.v && cut_end < end && make_room(extents)) {
        cut_end = end;
        *lost_out = true;
    }
    struct sh_extent before = all, cut = all, behind = all;
    before.count = (uint32_t)(cut_first - all.first.v);
    cut.first.v = cut_first;
    cut.count = (uint32_t)(cut_end - cut_first);
    behind.first.v = cut_end;
    behind.count = (uint32_t)(end - cut_end);
    if (before.count > 0 && behind.count > 0) {
        extents->at[place] = behind;
        insert(extents, place, &before);
    } else if (before.count > 0 || behind.count > 0) {
        extents->at[place] = before.count > 0 ? before : behind;
    } else {
        take_out(extents, place);
    }
    extents->vertices -= cut.count;
    *cut_out = cut;
    return true;
}

const struct sh_extent *sh_extents_find(const struct sh_extents *extents, sh_lid lid,
                                        uint32_t *hint_inout)
{
    if (*hint_inout < extents->count) {
        const struct sh_extent *extent = &extents->at[*hint_inout];
        if (lid.v - extent->first.v < extent->count)
            return extent;
    }
    if (extents->count <= 1 && *hint_inout < extents->count)
        return NULL;
    uint32_t place = place_of(extents, lid);
    if (place == extents->count || extents->at[place].first.v > lid.v)
        return NULL;
    *hint_inout = place;
    return &extents->at[place];
}

void sh_extents_number(struct sh_extents *extents)
{
    uint32_t index = 0;
    for (uint32_t i = 0; i < extents->count; i++) {
        extents->at[i].index = index;
        index += extents->at[i].count;
    }
    SH_ASSERT(index == extents->vertices);
}

sh_lid sh_extents_lid(const struct sh_extents *extents, uint32_t index)
{
    SH_ASSERT(index < extents->vertices);
    uint32_t low = 0;
    uint32_t high = extents->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (extents->at[middle].index <= index)
            low = middle;
        else
            high = middle;
    }
    const struct sh_extent *extent = &extents->at[low];
    return (sh_lid){extent->first.v + (index - extent->index)};
}
