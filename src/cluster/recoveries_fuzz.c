/* Pages about recoveries out of any bytes: what is read of a zone can be written, to the same bytes; pages go on behind each other, so that a list has an
 * end. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/recoveries.h"
#include "ring/arcs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODE 64
#define PAGES_MAX 8

static uint64_t told; /* the last zone */

static bool on_each(void *arg, const struct sh_recovery *recovery)
{
    uint8_t bytes[SH_RECOVERY_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    (void)arg;
    sh_recovery_put(&w, recovery);
    SH_ASSERT(sh_writer_ok(&w));
    SH_ASSERT(recovery->zone.id > told);
    SH_ASSERT(sh_zone_shard(recovery->zone.id) == sh_arc_shard((shoal_nid){NODE}));
    SH_ASSERT(recovery->waits >> recovery->zone.count == 0);
    told = recovery->zone.id;
    return sh_zone_number(told) != 9; /* the caller wants no more */
}

/* Pages, each behind u16 its size. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    struct sh_recoveries_head head = {.is_more = true};
    told = 0;
    for (unsigned i = 0; i < PAGES_MAX && head.is_more; i++) {
        size_t some = sh_get16(&r), left = sh_reader_left(&r);
        some = some < left ? some : left;
        uint64_t before = head.after;
        struct sh_reader page = sh_reader_make(sh_bytes_make(sh_reader_take(&r, some), some));
        if (sh_recoveries_page_get(&page, sh_arc_shard((shoal_nid){NODE}), before, on_each, NULL,
                                   &head))
            return 0;
        SH_ASSERT(!head.is_more || head.after > before);
        SH_ASSERT(head.after >= told);
    }
    return 0;
}
