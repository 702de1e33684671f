/* What a shard takes. */
#include "base/assert.h"
#include "metadata/metadata_int.h"

/* Ranges that are not with their creators, as far as is looked. */
static size_t moved_count(const struct sh_metadata_shard *shard)
{
    struct sh_bytes key = {NULL, 0}, value;
    size_t moved = 0;
    for (unsigned i = 0; i < SH_METADATA_WALK_MAX &&
                         sh_metadata_item_next(shard, SH_ITEM_RANGE, key, i > 0, &key, &value);
         i++) {
        shoal_cid first = {__builtin_bswap64(sh_load64(key.at))};
        moved += sh_load16(value.at) != shoal_cid_creator(first).v;
    }
    return moved;
}

struct sh_metadata_sizes sh_metadata_measure(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    return (struct sh_metadata_sizes){.ranges = shard->counts[SH_ITEM_RANGE],
                                      .moved = moved_count(shard),
                                      .sources = shard->counts[SH_ITEM_SOURCE],
                                      .names = shard->counts[SH_ITEM_NAME],
                                      .zones = shard->counts[SH_ITEM_ZONE],
                                      .zones_short = shard->zones_short,
                                      .zones_recovering = shard->zones_recovering,
                                      .zones_lost = shard->zones_lost,
                                      .bytes = sizeof *shard + shard->items.pages * SH_CELL_BYTES +
                                               shard->barrier_bytes};
}
