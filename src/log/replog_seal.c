/* Sealing a zone: nothing more is written to it, and what was written is in slots and durable, so that the zone is as a start would have found it.
 *
 *   SETTLES ──► SYNCS ──► sealed
 *
 * SETTLES: the batch that is being filled goes to a slot, with the pieces of a chunk that is not complete. An epoch that is ending ends; versions that are
 * not on their way yet are forgotten, as in a crash: a load has them from the entries. A cleaning of the zone is given up, or ends if it is giving
 * slots away already. Then all batches of the zone become durable.
 *
 * SYNCS: no pack of the zone is on its way any more, nor waits for a sync, so that nothing refers to what the zone was.
 *
 * Why it is as after a start. What is on the disk then is what a crash would leave now, and a start finds all appended writes in slots, whatever
 * the primary log has of them as well. What differs is that a start empties the primary log, and that this process knows more than the disk tells:
 * 1. The primary log may have pieces of the number that will be given again, in the life that ends here, until SH_REPLOG_LAPS laps have
 *    begun. So the zone counts as one with an abandoned chunk (has_void): the cleaner records its lives until then, if it is added again. For the
 *    same reason the zone remembers when an eon ended.
 * 2. An epoch is used again only if nothing of it is in a slot; then the primary log has nothing of it either. Each entry there has gone to a slot, and the
 *    cleaner has dropped it from there for a newer one (or the mark of a removal, which stays for SH_REPLOG_LAPS laps), or as it was void, of
 *    which a later life was recorded. Spans of the cleaner name the life, too.
 * 3. Ordinals of spans go on (sh_replog_roll_begin), and the numbers of flushes.
 * 4. The load is told what a span would tell now (sh_replog_roll_end): it finds damage of the last spans, too. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_roll_int.h"

struct sh_replog_seal {
    struct sh_replog_zone *zone;
    void (*sealed)(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err);
    void *arg;
    struct sh_replog_seal *next;
    bool is_settled;
    uint64_t packs_end; /* the zone's packs lie before that, in blocks ever written */
};

void sh_replog_seals_free(struct sh_replog *log)
{
    for (struct sh_replog_seal *seal = log->seals, *next; seal; seal = next) {
        next = seal->next;
        free(seal);
    }
    log->seals = NULL;
}

enum shoal_err sh_replog_zone_seal(struct sh_replog_zone *zone,
                                   void (*sealed)(void *arg, struct sh_replog_zone *zone,
                                                  uint64_t end, enum shoal_err err),
                                   void *arg)
{
    struct sh_replog *log = zone->log;
    SH_ASSERT(!zone->is_dropped && sealed);
    if (sh_replog_is_refusing(zone) || sh_replog_is_loading(zone))
        return SHOAL_EBUSY;
    if (log->trouble)
        return SHOAL_EIO;
    if (!zone->versions)
        return SHOAL_EINVAL;
    struct sh_replog_seal *seal = calloc(1, sizeof *seal);
    if (!seal)
        return SHOAL_ENOMEM;
    *seal = (struct sh_replog_seal){.zone = zone, .sealed = sealed, .arg = arg, .next = log->seals};
    log->seals = seal;
    zone->is_sealing = true;
    sh_replog_clean_leave(zone);
    sh_replog_sync(zone);
    log->has_idled = false;
    return SHOAL_OK;
}

/* Sends what is being filled to a slot, if there is room now, and frees what need not go there; returns how much it did. */
static unsigned settle(struct sh_replog_zone *zone)
{
    struct sh_replog_batch *filling = zone->filling, *versions = zone->versions_batch;
    unsigned work = 0;
    if (versions && !zone->is_ending && !versions->offset) {
        sh_replog_batch_free(versions);
        zone->versions_batch = NULL;
        work++;
    }
    if (filling && filling->chain.bytes > SH_SPAN_HEAD_BYTES) {
        work += !sh_replog_batch_flush(filling, SH_REPLOG_FLUSH_OTHER); /* or later */
    } else if (filling) {
        zone->filling = NULL;
        sh_replog_batch_free(filling);
        work++;
    }
    return work;
}

static bool is_settled(const struct sh_replog_zone *zone)
{
    return !zone->filling && !zone->oldest && !zone->is_ending && !zone->versions_batch &&
           !sh_replog_is_cleaned(zone);
}

/* Slots are as found: nothing more is written to them. But all that they have is known to be on the disk, as in a slot that a load has read whole. */
static void slots_found(struct sh_replog_zone *zone)
{
    struct sh_log_slot *slots = zone->log->slots.slots;
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next) {
        SH_ASSERT(!slots[i].pending);
        slots[i].is_whole = !slots[i].is_found || slots[i].is_whole;
        slots[i].is_found = slots[i].is_closed = true;
        slots[i].end = slots[i].ends_in_pieces = 0;
        slots[i].eons = slots[i].lives_eons = 0;
    }
}

/* All of the zone is durable in slots, and nothing is on its way: it is as one that a start has found. */
static void found(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    SH_ASSERT(zone->durable == zone->next_sequence && zone->handed == zone->durable);
    SH_ASSERT(!zone->unsettled && !zone->is_unsynced && !zone->urgency);
    sh_replog_roll_end(zone);
    slots_found(zone);
    sh_versions_destroy(zone->versions);
    free(zone->lives.lives);
    *zone = (struct sh_replog_zone){.log = log,
                                    .next = zone->next,
                                    .id = zone->id,
                                    .owner = zone->owner,
                                    .incarnation = zone->incarnation,
                                    .incarnation_seen = zone->incarnation_seen,
                                    .is_fenced = zone->is_fenced,
                                    .is_fenced_again = zone->is_fenced_again,
                                    .fence_lap = zone->fence_lap,
                                    .next_fenced = zone->next_fenced,
                                    .is_damaged = zone->is_damaged,
                                    .has_lost = zone->has_lost,
                                    .lost_incarnation = zone->lost_incarnation,
                                    .damage = zone->damage,
                                    .era = zone->era,
                                    .ordinal = zone->ordinal,
                                    .said_found = zone->said_found,
                                    .number_lost = zone->number_lost,
                                    .has_number_lost = zone->has_number_lost,
                                    .has_void = true,
                                    .void_order = log->slots.taken,
                                    .void_lap = log->lap,
                                    .has_eon_ended = zone->has_eon_ended,
                                    .eon_lap = zone->eon_lap,
                                    .slots = zone->slots,
                                    .flushes = zone->flushes};
    sh_replog_tables_fit(log);
}

/* Whether it is over. */
static bool seal_step(struct sh_replog_seal *seal, unsigned *work)
{
    struct sh_replog_zone *zone = seal->zone;
    struct sh_replog *log = zone->log;
    SH_ASSERT(zone->versions && zone->is_sealing && !zone->is_dropping);
    if (!seal->is_settled) {
        *work += settle(zone);
        if (!is_settled(zone))
            return false;
        seal->is_settled = true;
        bool has_pack = log->is_packing || log->pack_size;
        seal->packs_end =
            has_pack ? log->primary_at + log->pack_size / SH_BLOCK_BYTES : log->packs_handed;
        ++*work;
    }
    if (log->packs_synced >= seal->packs_end)
        return true;
    log->is_sync_wanted |= sh_replog_packs_wait(log);
    return false;
}

/* It is over, and out of the list. */
static void end(struct sh_replog_seal *seal, enum shoal_err err)
{
    struct sh_replog_zone *zone = seal->zone;
    uint64_t whole = err ? 0 : zone->next_sequence;
    void (*sealed)(void *, struct sh_replog_zone *, uint64_t, enum shoal_err) = seal->sealed;
    void *arg = seal->arg;
    free(seal);
    if (!err)
        found(zone);
    sealed(arg, zone, whole, err);
}

unsigned sh_replog_seals_step(struct sh_replog *log)
{
    unsigned work = 0;
    struct sh_replog_seal **at = &log->seals, *seal;
    while ((seal = *at)) {
        if (!log->trouble && !seal_step(seal, &work)) {
            at = &seal->next;
            continue;
        }
        *at = seal->next;
        work++;
        end(seal, log->trouble ? SHOAL_EIO : SHOAL_OK); /* which may seal another one */
    }
    return work;
}
