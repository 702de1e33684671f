#include "recover/home_log.h"

#include "log/slot.h"

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

static uint32_t slot_bytes_of(const struct sh_home_log *home)
{
    return home->slot_bytes ? home->slot_bytes : SH_HOME_SLOT_BYTES;
}

static uint64_t zone_bytes_of(const struct sh_home_log *home)
{
    return home->zone_bytes ? home->zone_bytes : SH_HOME_ZONE_BYTES;
}

static uint32_t primary_blocks_of(const struct sh_home_log *home)
{
    if (home->is_one_level)
        return 0;
    return home->primary_blocks ? home->primary_blocks : PRIMARY_BLOCKS;
}

/* Bytes of a file before its slots. */
static uint64_t before_slots(const struct sh_home_log *home)
{
    const struct sh_log_file file = {.slot_bytes = slot_bytes_of(home),
                                     .primary_blocks = primary_blocks_of(home)};
    return sh_log_slot_at(&file, 0);
}

static uint64_t slots_least(const struct sh_home_log *home)
{
    return slots_for(2, slot_bytes_of(home), zone_bytes_of(home));
}

uint64_t sh_home_log_least(const struct sh_home_log *home)
{
    return before_slots(home) + slots_least(home) * slot_bytes_of(home);
}

/* How many slots it is to have; 0: bytes_max is not enough. On a device, as many as fit, but two zones' at least: a log that is there already, which
 * may have smaller slots, is opened with those that it has; a new one says that there is no room. */
static uint64_t slots_of(const struct sh_home_log *home)
{
    uint32_t slot_bytes = slot_bytes_of(home);
    uint64_t zone_bytes = zone_bytes_of(home), before = before_slots(home);
    uint64_t zones = ZONES_PER_STORE * (home->store_bytes_max / zone_bytes + 1) + 2;
    uint64_t slots = slots_for(zones, slot_bytes, zone_bytes), least = slots_least(home);
    if (home->bytes_max && home->bytes_max / slot_bytes < slots)
        slots = home->bytes_max / slot_bytes;
    if (home->bytes_max && slots < least)
        return 0;
    if (home->device_bytes) {
        uint64_t fits =
            home->device_bytes > before ? (home->device_bytes - before) / slot_bytes : 0;
        fits = fits < least ? least : fits;
        slots = fits < slots ? fits : slots;
    }
    return slots < SLOTS_MAX ? slots : SLOTS_MAX;
}

enum shoal_err sh_home_log_open(const struct sh_home_log *home, uint64_t now_ns, uint32_t seconds,
                                struct sh_replog **log_out)
{
    uint64_t slots = slots_of(home);
    if (!slots)
        return SHOAL_EINVAL;
    const struct sh_replog_config config = {
        .disk = home->disk,
        .name = SH_HOME_LOG_NAME,
        .random = home->random,
        .cluster = home->cluster,
        .node = home->nid.v,
        .slot_bytes = slot_bytes_of(home),
        .slots = (uint32_t)slots,
        .primary_blocks = primary_blocks_of(home),
        .buffer_bytes = home->buffer_bytes ? home->buffer_bytes : BUFFER_BYTES,
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
    enum shoal_err err = sh_replog_open(&config, now_ns, seconds, log_out);
    return err == SHOAL_EINVAL ? SHOAL_ERANGE : err;
}
