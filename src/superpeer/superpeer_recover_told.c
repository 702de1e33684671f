/* What a superpeer says of zones whose owners have failed (cluster/recoveries.h). */
#include "base/assert.h"
#include "superpeer/superpeer_ring_int.h"

#define LOOKS_MAX 2048 /* records in an answer: 0.4 ms */

size_t sh_superpeer_recoveries_page(const struct sh_superpeer *superpeer, unsigned shard,
                                    uint64_t after, uint8_t page[SH_RECOVERIES_PAGE_BYTES])
{
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    struct sh_recoveries_head head = {
        .is_more = true, .after = after, .epoch = sh_registry_view(superpeer->registry)->epoch};
    struct sh_writer head_w = sh_writer_make(page, SH_RECOVERIES_HEAD_BYTES);
    struct sh_writer w = sh_writer_make(page + SH_RECOVERIES_HEAD_BYTES,
                                        SH_RECOVERIES_PAGE_BYTES - SH_RECOVERIES_HEAD_BYTES);
    struct sh_recovery recovery;
    for (unsigned i = 0; i < LOOKS_MAX && w.end - w.at >= SH_RECOVERY_BYTES_MAX; i++) {
        head.is_more = sh_metadata_zone_next(metadata, shard, head.after, &recovery.zone);
        if (!head.is_more)
            break;
        head.after = recovery.zone.id;
        if (sh_superpeer_recoveries_look(superpeer, &recovery))
            sh_recovery_put(&w, &recovery);
    }
    sh_recoveries_head_put(&head_w, &head);
    SH_ASSERT(sh_writer_ok(&w) && sh_writer_ok(&head_w) && head_w.at == head_w.end);
    return (size_t)(w.at - page);
}
