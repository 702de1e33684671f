/* Eons: the epochs of a zone are counted anew, so that it can be written to for ever.
 *
 *   epochs of this eon:  1 ... half ............ limit (3/4) ... max
 *                              │                   └ writers wait until nothing is left of the eon before; then the next one begins
 *                              └ the cleaner visits all that is of the eon before, and gives it a version of this one
 *
 * Versions of the eon before are older than all of this one (sh_replog_version_in). That can only be said while two eons are there: before a third
 * one begins, by the bit of the first, nothing of the first may be left. Where it may be, and how it goes:
 * 1. In slots. Each slot knows of which eons its entries, versions and lives are. The cleaner takes those with something old, whatever
 *    else they have; what it keeps is called by this eon's name. The version log is compacted then, which does the same. Remains in a
 *    slot of a former use do not count by their flush's number.
 * 2. In the primary log, from which a start copies spans to slots: nothing, once SH_REPLOG_LAPS laps have begun since the eon did. The ring is
 *    made to go on for that, with nothing where there is nothing to write.
 * 3. Names of lives, which are epochs. Each eon begins with a life of its own, so the last life's name tells a load in which eon the zone is.
 *    While an entry of the eon before is left, its lives are recorded for it (replog_clean.c); a slot that only names them goes last.
 *
 * A zone of which chunks are abandoned for a whole eon, and not one write is ever completed, waits for that write.
 *
 * The epochs from the limit on are for starts, which take one each. DXRAM thesis 6 IV.2 and VIII; there, too, each entry is visited once
 * in an eon. */
#include "base/assert.h"
#include "log/replog_int.h"

uint16_t sh_replog_epoch_max(const struct sh_replog *log)
{
    return log->config.epoch_max ? log->config.epoch_max : SH_REPLOG_EON - 1;
}

static uint16_t limit(const struct sh_replog *log)
{
    uint16_t max = sh_replog_epoch_max(log);
    return (uint16_t)(max - max / 4);
}

bool sh_replog_eon_is_over(const struct sh_replog_zone *zone)
{
    return sh_replog_epoch_in_eon(zone->epoch) >= limit(zone->log);
}

/* Whether slots have something of the eon before; is_all: also, if only lives are named there. */
static bool has_old(const struct sh_replog_zone *zone, bool is_all)
{
    const struct sh_log_slot *slots = zone->log->slots.slots;
    unsigned own = sh_replog_eon_bit(zone->epoch);
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next) {
        if ((slots[i].eons | (is_all ? slots[i].lives_eons : 0)) & ~own)
            return true;
    }
    return false;
}

/* Whether the primary log may have something of the eon before: then it is made to go on. */
static bool has_old_laps(const struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    uint32_t lap = zone->eon_lap + SH_REPLOG_LAPS;
    if (!zone->has_eon_ended || !log->head.primary_blocks || log->lap >= lap)
        return false;
    if (log->lap_wanted < lap)
        log->lap_wanted = lap;
    return true;
}

bool sh_replog_eon_is_due(struct sh_replog_zone *zone)
{
    return zone->versions &&
           sh_replog_epoch_in_eon(zone->epoch) >= sh_replog_epoch_max(zone->log) / 2 &&
           has_old(zone, true) && !has_old_laps(zone);
}

void sh_replog_eon_forget(struct sh_replog_zone *zone)
{
    if (!has_old(zone, false) && !has_old_laps(zone))
        sh_replog_lives_keep_eon(&zone->lives, sh_replog_eon_of(zone->epoch));
}

enum shoal_err sh_replog_eon_end(struct sh_replog_zone *zone)
{
    const struct sh_replog_clean *clean = zone->log->clean;
    if (zone->is_damaged)
        return SHOAL_EFULL;
    if (has_old(zone, true) || has_old_laps(zone)) {
        zone->is_eon_ending = false;
        sh_replog_clean_if_full(zone);
        return SHOAL_EAGAIN;
    }
    enum shoal_err err = sh_replog_lives_reserve(&zone->lives);
    if (err)
        return err;
    bool is_ready = zone->is_eon_ending && zone->is_abandoning;
    zone->is_eon_ending = zone->is_abandoning =
        true; /* a life ends with it; nothing more is cleaned */
    if (!is_ready || (clean && sh_replog_clean_zone(clean) == zone))
        return SHOAL_EAGAIN;
    sh_replog_eon_forget(zone);
    return SHOAL_OK;
}

uint16_t sh_replog_eon_begin(struct sh_replog_zone *zone)
{
    struct sh_log_slot *slots = zone->log->slots.slots;
    SH_ASSERT(zone->is_eon_ending && zone->is_abandoning);
    /* Slots that the cleaner visits late do not wait for writes that come late. */
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next)
        slots[i].is_closed = true;
    zone->is_eon_ending = false;
    zone->has_eon_ended = true;
    zone->eon_lap = zone->log->lap;
    zone->flush_first = zone->flushes; /* the last one of the eon that ends */
    zone->log->status.eons++;
    return (uint16_t)((sh_replog_eon_of(zone->epoch) ^ SH_REPLOG_EON) | 1);
}
