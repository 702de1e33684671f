#include "recover/home_log.h"

#define PRIMARY_BLOCKS 4096u /* 16 MiB */
#define BUFFER_BYTES (UINT64_C(64) << 20)
#define BATCH_BYTES (UINT32_C(128) << 10)
#define LINGER_NS UINT64_C(100000000)
#define VERSIONS_MAX 65536u
#define SLOTS_MAX (1u << 24)

/* Slots for all zones that a store of so many bytes can fill. A chunk counts for its zone with SH_ZONE_CHUNK_BYTES and takes some 2
 * in the store: chunks of no bytes come to 10.5 times what the store has, of 8 bytes to 3.1 times. Where there is no room for
 * another zone, those that are less than half full are evacuated, so twice as many are enough. A slot that is not in use costs 48 bytes of
 * memory and nothing on the disk. */
#define ZONES_PER_STORE 22
static uint64_t slots_for(uint64_t zones, uint32_t slot_bytes, uint64_t zone_bytes)
{
    uint64_t each = sh_replog_slots_for(slot_bytes, 2 * zone_bytes);
    return zones * each + SH_REPLOG_SPARE_SLOTS;
}

enum shoal_err sh_home_log_open(const struct sh_home_log *home, uint64_t now_ns, uint32_t seconds,
                                struct sh_replog **log_out)
{
    uint32_t slot_bytes = home->slot_bytes ? home->slot_bytes : SH_HOME_SLOT_BYTES;
    uint64_t zone_bytes = home->zone_bytes ? home->zone_bytes : SH_HOME_ZONE_BYTES;
    uint64_t zones = ZONES_PER_STORE * (home->store_bytes_max / zone_bytes + 1) + 2;
    uint64_t slots = slots_for(zones, slot_bytes, zone_bytes);
    if (home->bytes_max && home->bytes_max / slot_bytes < slots)
        slots = home->bytes_max / slot_bytes;
    if (home->bytes_max && slots < slots_for(2, slot_bytes, zone_bytes))
        return SHOAL_EINVAL;
    const struct sh_replog_config config = {
        .disk = home->disk,
        .name = SH_HOME_LOG_NAME,
        .random = home->random,
        .cluster = home->cluster,
        .node = home->nid.v,
        .slot_bytes = slot_bytes,
        .slots = slots < SLOTS_MAX ? (uint32_t)slots : SLOTS_MAX,
        .primary_blocks = home->primary_blocks ? home->primary_blocks : PRIMARY_BLOCKS,
        .buffer_bytes = BUFFER_BYTES,
        .batch_bytes = BATCH_BYTES,
        .linger_ns = LINGER_NS,
        .versions_max = VERSIONS_MAX,
        .syncs_later = true,
        .handed = home->handed,
        .durable = home->durable,
        .damaged = home->damaged,
        .reserve_bytes = home->reserve_bytes,
        .scrub_bytes = home->scrub_bytes,
        .selection = home->selection,
        .completions = home->completions,
        .arg = home->arg,
    };
    return sh_replog_open(&config, now_ns, seconds, log_out);
}
