/* Claims that are out of date. A chunk that moves to another node, or to another zone of this one, stays claimed by the zone where it was: as long as it stays away, that does no harm,
 * since the ranges of the metadata, or the later zone's claim, outweigh it. But what is brought back here comes in a zone that another node has made, which outweighs
 * none of this node's own: so these are to claim none of its chunks any more, before it may open. */
#include "backup/backup_int.h"

/* How long a zone that is brought back waits for a zone of this node that has no backup now. A failed backup that the latter's record names may come back, with a replica that still
 * claims the chunks. The time is bounded, as calls wait for the chunks. */
#define BARE_NS UINT64_C(10000000000)

/* The first part of a claim that is the zone's by the map. */
static bool overlap_find(const struct sh_own_zone *zone, const struct sh_zone_claim *claim,
                         struct sh_zone_claim *overlap_out)
{
    struct sh_range range;
    for (uint64_t at = claim->first;
         at <= claim->last && sh_ranges_next(zone->backup->zones.map, (shoal_cid){at}, &range) &&
         range.first.v <= claim->last;
         at = range.last.v + 1) {
        if (range.value != zone->number)
            continue;
        overlap_out->first = range.first.v > at ? range.first.v : at;
        overlap_out->last = range.last.v < claim->last ? range.last.v : claim->last;
        return true;
    }
    return false;
}

/* Takes the first overlap out of a claim of another zone. The part behind it is recorded first, in a place of its own: a replica that ends between the two claims too
 * much rather than too little. */
static enum shoal_err claim_cut(struct sh_own_zone *other, size_t slot,
                                const struct sh_zone_claim *overlap)
{
    const struct sh_zone_claim claim = other->claims[slot];
    bool has_before = claim.first < overlap->first, has_behind = overlap->last < claim.last;
    enum shoal_err err = SHOAL_OK;
    if (has_before && has_behind) {
        const struct sh_zone_claim behind = {overlap->last + 1, claim.last};
        err = sh_zone_claim_append(other, &behind);
    }
    if (err)
        return err;
    struct sh_zone_claim rest = {.first = 1};
    if (has_before)
        rest = (struct sh_zone_claim){claim.first, overlap->first - 1};
    else if (has_behind)
        rest = (struct sh_zone_claim){overlap->last + 1, claim.last};
    other->claims[slot] = rest;
    err = sh_zone_claim_record(other, slot);
    if (err)
        other->claims[slot] =
            claim; /* what was appended is claimed twice by it, which does no harm */
    else
        other->disclaimed = sh_backlog_next(&other->backlog);
    return err;
}

static enum shoal_err other_disclaim(const struct sh_own_zone *zone, struct sh_own_zone *other)
{
    struct sh_zone_claim overlap;
    enum shoal_err err = SHOAL_OK;
    for (size_t slot = 0; !err && slot < other->claims_count; slot++) {
        while (!err && overlap_find(zone, &other->claims[slot], &overlap))
            err = claim_cut(other, slot, &overlap);
    }
    if (err || !other->disclaimed)
        return err;
    bool is_over = zone->backup->now_ns >= zone->disclaims_ns + BARE_NS;
    if (atomic_load(&other->is_bare) && (is_over || !other->record.count))
        return SHOAL_OK; /* of a zone whose record names nobody nothing is brought back */
    if (atomic_load(&other->acked[SH_LEVEL_DURABLE]) >= other->disclaimed)
        return SHOAL_OK;
    sh_zone_hurry(other, other->disclaimed);
    return SHOAL_EAGAIN;
}

enum shoal_err sh_zones_disclaim(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    enum shoal_err err = SHOAL_OK;
    sh_lock_assert_held(&zones->lock);
    if (!zone->disclaims_ns)
        zone->disclaims_ns = zone->backup->now_ns;
    for (struct sh_own_zone *other = zones->first; other; other = other->next_entered) {
        if (other == zone || sh_zone_is_closed(other) || sh_zone_is_opening(other))
            continue;
        enum shoal_err each = other_disclaim(zone, other);
        err = err ? err : each;
    }
    return err;
}
