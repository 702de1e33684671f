#include "base/assert.h"
#include "cluster/metadata_int.h"

struct sh_metadata_sizes sh_metadata_measure(const struct sh_metadata *metadata, unsigned sector)
{
    SH_ASSERT(sector < SH_SECTORS);
    const struct sh_metadata_sector *found = &metadata->sectors[sector];
    struct sh_metadata_sizes sizes = {.sources = found->source_count, .names = found->name_count};
    sizes.bytes = sizeof *found + found->source_room * sizeof found->sources[0] +
                  found->name_room * sizeof found->names[0];
    if (found->ranges) {
        sizes.ranges = sh_ranges_count(found->ranges);
        sizes.bytes += sh_ranges_bytes(found->ranges);
    }
    for (size_t i = 0; i < found->name_count; i++)
        sizes.bytes += found->names[i].size;
    return sizes;
}
