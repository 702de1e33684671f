#include "base/assert.h"
#include "metadata/metadata_int.h"

/* Ranges that are not with their creators, as far as is looked. */
static size_t moved_count(const struct sh_ranges *ranges)
{
    struct sh_range range;
    shoal_cid from = {0};
    size_t moved = 0;
    for (unsigned i = 0; i < SH_METADATA_WALK_MAX && sh_ranges_next(ranges, from, &range); i++) {
        moved += range.value != shoal_cid_creator(range.first).v;
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
    return moved;
}

struct sh_metadata_sizes sh_metadata_measure(const struct sh_metadata *metadata, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    const struct sh_metadata_shard *found = &metadata->shards[shard];
    struct sh_metadata_sizes sizes = {.sources = found->source_count, .names = found->name_count};
    sizes.bytes = sizeof *found + found->source_room * sizeof found->sources[0] +
                  found->name_room * sizeof found->names[0];
    if (found->ranges) {
        sizes.ranges = sh_ranges_count(found->ranges);
        sizes.moved = moved_count(found->ranges);
        sizes.bytes += sh_ranges_bytes(found->ranges);
    }
    for (size_t i = 0; i < found->name_count; i++)
        sizes.bytes += found->names[i].size;
    return sizes;
}
