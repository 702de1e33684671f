/* Zones of a failed owner that this node takes over and brings back (docs/recovery.md).
 *
 *   sh_backup_zone_adopt ──► its backups are attached at `begin` ── writes up to `end` ──► claims ──► backups are opened, and get what they lack
 *                                                                                                       │
 *                       the record names no former owner: as any zone ◄── CHANGE ◄── opens_at is durable at all of them
 *
 * The zone has a number of this node's, which finds it here, and the ID that its creator gave it, which names it in records and logs.
 *
 * Its backups go on with what they have: OPEN tells them what the owner can still send, and up to where a replica may reach. A backup that lacks more is lost as any
 * other, and replaced. So are all of them if the zone was to be brought back before: some may have what that restorer sent, which this one does not. This node's own replica is not written to any more: it counts as that of a backup that has failed. So it stays in the record as long as that
 * names nobody else, and nothing is acknowledged until then. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

/* A backup that does not have all by then is left to be replaced: who waits for the zone does not wait longer. */
#define EQUAL_NS UINT64_C(3000000000)
#define LOOK_NS UINT64_C(2000000)

static struct sh_own_zone **bucket_of(struct sh_own_zones *zones, uint64_t id)
{
    return &zones->adopted[sh_mix64(id) & (SH_ADOPTED_BUCKETS - 1)];
}

struct sh_own_zone *sh_zones_adopted(struct sh_backup *backup, uint64_t id)
{
    struct sh_own_zone *zone = *bucket_of(&backup->zones, id);
    while (zone && zone->adopted != id)
        zone = zone->next_adopted;
    return zone;
}

void sh_zone_adopted_leave(struct sh_own_zone *zone)
{
    if (!zone->adopted)
        return;
    struct sh_own_zone **at = bucket_of(&zone->backup->zones, zone->adopted);
    while (*at != zone)
        at = &(*at)->next_adopted;
    *at = zone->next_adopted;
}

/* The zone of that number, which is being adopted, or was. */
static struct sh_own_zone *adopted_get(struct sh_backup *backup, uint64_t number)
{
    struct sh_own_zone *zone = backup->zones.all[number % SH_ZONES_MAX];
    SH_ASSERT(zone && zone->number == number && zone->adopted);
    return zone;
}

/* --- Making it --------------------------------------------------------------------------------- */

/* Attaches the recorded backups that may go on; this node's own replica is that of one that is lost. */
static void backups_attach(struct sh_own_zone *zone)
{
    const struct sh_zone *record = &zone->record;
    for (unsigned i = 0; i < record->count; i++) {
        const struct sh_zone_backup *recorded = &record->backups[i];
        bool goes_on =
            !(record->flags & SH_ZONE_AGAIN) && recorded->nid.v != zone->backup->config.nid.v;
        struct sh_sink *sink = goes_on ? sh_sink_add(zone, recorded->nid, recorded->disk) : NULL;
        if (!sink) {
            bool is_added = sh_sink_stranger_add(zone, recorded);
            SH_ASSERT(is_added);
            continue;
        }
        sink->is_recorded = sink->counts = sink->has_begun = true;
        sink->sent = zone->end - 1; /* an earlier owner may have sent all of it */
    }
}

enum shoal_err sh_backup_zone_adopt(struct sh_backup *backup, const struct sh_zone *record,
                                    uint64_t begin, uint64_t end, uint64_t *number_out)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *zone;
    SH_ASSERT(backup->is_on && sh_backup_is_clustered(backup) && begin && begin <= end);
    SH_ASSERT(record->former.v && !sh_zones_adopted(backup, record->id));
    uint64_t number = sh_zones_next(backup);
    enum shoal_err err = sh_zone_fresh(backup, number ? number : 1, begin, &zone);
    if (err)
        return err;
    zone->before = begin;
    zone->adopted = record->id;
    zone->record = *record;
    zone->record.flags &= (uint8_t)~SH_ZONE_OLD;
    zone->since = record->incarnation;
    zone->end = end;
    zone->compared = backup->compare.round;
    atomic_store(&zone->is_concluded, true);
    zone->next_adopted = *bucket_of(zones, zone->adopted);
    *bucket_of(zones, zone->adopted) = zone;
    backups_attach(zone);
    sh_zone_enter(zone);
    *number_out = zone->number;
    return SHOAL_OK;
}

/* --- Its tail ---------------------------------------------------------------------------------- */

static struct sh_backlog_entry entry_of(const struct sh_replog_write *write)
{
    struct sh_backlog_entry entry = {.chunk = (uint64_t)write->creator << 48 | write->local_id,
                                     .kind = SH_BACKLOG_REMOVAL,
                                     .pieces = 1};
    if (!write->is_removal) {
        entry.kind = write->payload.at ? SH_BACKLOG_IMAGE : SH_BACKLOG_ZEROS;
        entry.at = write->payload.at;
        entry.size = (uint32_t)write->payload.size;
    }
    if (!write->is_removal && write->pieces > 1) {
        entry.piece = write->piece;
        entry.pieces = write->pieces;
        entry.total = write->total;
    }
    entry.completion_size = (uint8_t)write->completion.size;
    if (write->completion.size)
        memcpy(entry.completion, write->completion.at, write->completion.size);
    return entry;
}

/* Whether a write of the log can be one that an owner has recorded. */
static bool is_sound(const struct sh_replog_write *write)
{
    const struct sh_replog_write *note = write->with;
    bool is_whole = write->is_removal || write->pieces <= 1;
    if (write->completion.size > SH_COMPLETION_BYTES_MAX || write->payload.size > UINT32_MAX)
        return false;
    if (note && (note->is_removal || !note->payload.at || note->completion.size ||
                 note->payload.size > SH_BACKLOG_NOTE_MAX || note->pieces > 1))
        return false;
    return is_whole || (!note && write->piece < write->pieces);
}

/* A piece of a chunk with bytes is recorded as it comes. The owner recorded the others of the chunk just before. */
static enum shoal_err piece_write(struct sh_backlog *backlog, const struct sh_backlog_entry *piece)
{
    bool is_last = piece->piece + 1 == piece->pieces;
    if (backlog->is_held != (piece->piece > 0) || piece->size > SH_BACKLOG_PIECE_BYTES ||
        (!is_last && piece->completion_size))
        return SHOAL_ECORRUPT;
    enum shoal_err err = piece->piece ? SHOAL_OK : sh_backlog_hold(backlog, 0);
    if (!err && !is_last)
        return sh_backlog_piece(backlog, piece);
    if (!err)
        err = sh_backlog_last(backlog, piece->size + piece->completion_size);
    if (!err)
        (void)sh_backlog_hold_end(backlog, piece, NULL);
    return err;
}

static enum shoal_err whole_write(struct sh_backlog *backlog, struct sh_backlog_entry *note,
                                  const struct sh_backlog_entry *entry)
{
    uint64_t bytes = sh_backlog_bytes(entry->kind != SH_BACKLOG_IMAGE, entry->size) +
                     entry->completion_size + (note ? SH_BACKLOG_HEAD_BYTES + note->size : 0);
    enum shoal_err err = sh_backlog_admit(backlog, bytes);
    if (err)
        return err;
    if (note)
        note->with_next = true;
    (void)sh_backlog_record(backlog, note, entry);
    return SHOAL_OK;
}

/* Zeros come in large pieces, which are cut from the whole just as they were: so they are recorded with the last one. */
static enum shoal_err zeros_write(struct sh_backlog *backlog, const struct sh_backlog_entry *piece)
{
    struct sh_backlog_entry zeros = *piece;
    bool is_last = piece->piece + 1 == piece->pieces;
    if (backlog->is_held || piece->pieces != sh_backlog_pieces(true, piece->total))
        return SHOAL_ECORRUPT;
    if (!is_last)
        return SHOAL_OK;
    zeros.size = piece->total;
    zeros.piece = 0;
    zeros.pieces = 1;
    return whole_write(backlog, NULL, &zeros);
}

enum shoal_err sh_backup_adopt_write(struct sh_backup *backup, uint64_t number,
                                     const struct sh_replog_write *write)
{
    struct sh_own_zone *zone = adopted_get(backup, number);
    if (!is_sound(write))
        return SHOAL_ECORRUPT;
    SH_ASSERT(sh_backlog_next(&zone->backlog) < zone->end);
    struct sh_backlog_entry note, entry = entry_of(write);
    if (entry.pieces > 1)
        return entry.kind == SH_BACKLOG_ZEROS ? zeros_write(&zone->backlog, &entry)
                                              : piece_write(&zone->backlog, &entry);
    if (zone->backlog.is_held)
        return SHOAL_ECORRUPT; /* pieces are missing */
    if (write->with)
        note = entry_of(write->with);
    return whole_write(&zone->backlog, write->with ? &note : NULL, &entry);
}

enum shoal_err sh_backup_adopt_claims(struct sh_backup *backup, uint64_t number,
                                      const struct sh_zone_claim *claims, size_t count,
                                      uint64_t live_bytes, bool has_completions)
{
    struct sh_own_zone *zone = adopted_get(backup, number);
    enum shoal_err err = SHOAL_OK;
    SH_ASSERT(sh_backlog_next(&zone->backlog) == zone->end);
    sh_lock_take(&backup->zones.lock);
    for (size_t i = 0; !err && i < count; i++)
        err = sh_zone_claimed(zone, &claims[i]);
    sh_lock_release(&backup->zones.lock);
    if (err)
        return err;
    atomic_store(&zone->live, live_bytes);
    atomic_store(&zone->told, has_completions);
    if (has_completions)
        atomic_store(&zone->told_end, zone->end);
    zone->adopted_ns = backup->now_ns;
    sh_zone_hurry(zone, zone->end);
    sh_zone_settle(zone);
    sh_zone_dirty(zone);
    sh_zones_tend(backup);
    return SHOAL_OK;
}

/* --- What it keeps of its claims ---------------------------------------------------------------- */

/* Takes what of a range of the zone's is not kept out of the map. */
static enum shoal_err range_narrow(struct sh_ranges *map, const struct sh_range *range,
                                   const struct sh_metadata_run *kept, size_t count)
{
    enum shoal_err err = SHOAL_OK;
    uint64_t from = range->first.v;
    for (size_t i = sh_metadata_runs_find(kept, count, from);
         !err && i < count && kept[i].first.v <= range->last.v; i++) {
        if (kept[i].first.v > from)
            err = sh_ranges_remove(map, (shoal_cid){from}, (shoal_cid){kept[i].first.v - 1});
        from = kept[i].last.v + 1;
    }
    return !err && from <= range->last.v ? sh_ranges_remove(map, (shoal_cid){from}, range->last)
                                         : err;
}

/* Takes all of the zone's out of the map that is not kept. ELIMIT: only some of it. */
static enum shoal_err map_narrow(const struct sh_own_zone *zone, const struct sh_metadata_run *kept,
                                 size_t count)
{
    struct sh_ranges *map = zone->backup->zones.map;
    enum shoal_err err = SHOAL_OK;
    struct sh_range range;
    for (size_t i = 0; !err && i < zone->claims_count; i++) {
        const struct sh_zone_claim *claim = &zone->claims[i];
        uint64_t at = claim->first;
        while (!err && at <= claim->last && sh_ranges_next(map, (shoal_cid){at}, &range) &&
               range.first.v <= claim->last) {
            if (range.value == zone->number)
                err = range_narrow(map, &range, kept, count);
            at = range.last.v + 1;
        }
    }
    return err;
}

/* The next part of a claim, from that ID on, that is kept and the zone's by the map. */
static bool part_find(const struct sh_own_zone *zone, const struct sh_metadata_run *kept,
                      size_t count, uint64_t from, uint64_t last, struct sh_zone_claim *part_out)
{
    struct sh_range range;
    for (size_t i = sh_metadata_runs_find(kept, count, from); i < count && kept[i].first.v <= last;
         i++) {
        uint64_t to = kept[i].last.v < last ? kept[i].last.v : last;
        from = kept[i].first.v > from ? kept[i].first.v : from;
        while (from <= to && sh_ranges_next(zone->backup->zones.map, (shoal_cid){from}, &range) &&
               range.first.v <= to) {
            if (range.value == zone->number) {
                *part_out = (struct sh_zone_claim){range.first.v > from ? range.first.v : from,
                                                   range.last.v < to ? range.last.v : to};
                return true;
            }
            from = range.last.v + 1;
        }
    }
    return false;
}

/* Of each claim the first part that is left stays in its place, which is empty if there is none; the others go behind all. */
static enum shoal_err claims_narrow(struct sh_own_zone *zone, const struct sh_metadata_run *kept,
                                    size_t count)
{
    zone->claims_found = zone->claims_count;
    for (size_t i = 0; i < zone->claims_found; i++) {
        const struct sh_zone_claim claim = zone->claims[i];
        struct sh_zone_claim first = {.first = 1}, part;
        for (uint64_t at = claim.first;
             at <= claim.last && part_find(zone, kept, count, at, claim.last, &part);
             at = part.last + 1) {
            enum shoal_err err = SHOAL_OK;
            if (first.first > first.last)
                first = part;
            else
                err = sh_zone_claim_enter(zone, &part);
            if (err)
                return err;
        }
        bool was_empty = claim.first > claim.last;
        zone->is_narrowed |= !was_empty && (first.first != claim.first || first.last != claim.last);
        zone->claims[i] = first;
    }
    return SHOAL_OK;
}

/* Records claims of which some parts are gone: those behind all that the log has first, then the others in their places. A replica that ends between two of these claims too
 * much rather than too little. */
static enum shoal_err claims_retell(struct sh_own_zone *zone)
{
    enum shoal_err err = SHOAL_OK;
    while (!err && zone->claims_retold < zone->claims_count) {
        size_t slot = (zone->claims_found + zone->claims_retold) % zone->claims_count;
        err = sh_zone_claim_record(zone, slot);
        zone->claims_retold += !err;
    }
    sh_zone_dirty(zone);
    return err;
}

enum shoal_err sh_backup_adopt_chunk(struct sh_backup *backup, uint64_t number, uint64_t chunk)
{
    sh_lock_take(&backup->zones.lock);
    enum shoal_err err =
        sh_ranges_set(backup->zones.map, (shoal_cid){chunk}, (shoal_cid){chunk}, number);
    sh_lock_release(&backup->zones.lock);
    return err;
}

uint64_t sh_backup_claimant(const struct sh_backup *backup, uint64_t chunk, uint64_t *last_out)
{
    struct sh_range range;
    *last_out = UINT64_MAX;
    if (!sh_ranges_next(backup->zones.map, (shoal_cid){chunk}, &range))
        return 0;
    *last_out = range.first.v <= chunk ? range.last.v : range.first.v - 1;
    return range.first.v <= chunk ? range.value : 0;
}

bool sh_backup_is_opening(const struct sh_backup *backup, uint64_t first, uint64_t last)
{
    struct sh_range range;
    for (uint64_t at = first;
         at <= last && sh_ranges_next(backup->zones.map, (shoal_cid){at}, &range) &&
         range.first.v <= last;
         at = range.last.v + 1) {
        const struct sh_own_zone *zone = backup->zones.all[range.value % SH_ZONES_MAX];
        if (zone && zone->number == range.value && sh_zone_is_opening(zone))
            return true;
    }
    return false;
}

/* How far a walk over kept ranges has come. */
struct kept_walk {
    const struct sh_metadata_run *kept;
    size_t count, i;
    uint64_t at; /* in that range; 0: its first */
};

/* The next part of them that another zone of this node claims, which is open. */
static bool others_next(const struct sh_own_zone *zone, struct kept_walk *walk,
                        struct sh_metadata_run *part_out)
{
    const struct sh_own_zones *zones = &zone->backup->zones;
    struct sh_range range;
    for (; walk->i < walk->count; walk->i++, walk->at = 0) {
        const struct sh_metadata_run *run = &walk->kept[walk->i];
        uint64_t at = walk->at ? walk->at : run->first.v;
        for (; at <= run->last.v && sh_ranges_next(zones->map, (shoal_cid){at}, &range) &&
               range.first.v <= run->last.v;
             at = range.last.v + 1) {
            const struct sh_own_zone *other = zones->all[range.value % SH_ZONES_MAX];
            bool is_open = other && other->number == range.value && !sh_zone_is_opening(other);
            if (range.value == zone->number || !is_open)
                continue;
            part_out->first.v = range.first.v > at ? range.first.v : at;
            part_out->last.v = range.last.v < run->last.v ? range.last.v : run->last.v;
            walk->at = part_out->last.v + 1;
            return true;
        }
    }
    return false;
}

bool sh_backup_adopt_takes(struct sh_backup *backup, uint64_t number,
                           const struct sh_metadata_run *kept, size_t count)
{
    struct kept_walk walk = {.kept = kept, .count = count};
    struct sh_metadata_run part;
    sh_lock_take(&backup->zones.lock);
    bool takes = others_next(adopted_get(backup, number), &walk, &part);
    sh_lock_release(&backup->zones.lock);
    return takes;
}

/* The adopted zone takes the claims that other zones of this node have on the kept ranges, also on IDs without a chunk: this zone's replicas have the completion records of requests
 * on these IDs. Zones that this node is bringing back, and has adopted before, keep their claims. ELIMIT, ENOMEM: the zone has taken only some of the claims. */
static enum shoal_err kept_take(struct sh_own_zone *zone, const struct sh_metadata_run *kept,
                                size_t count)
{
    struct kept_walk walk = {.kept = kept, .count = count};
    struct sh_metadata_run part;
    enum shoal_err err = SHOAL_OK;
    while (!err && others_next(zone, &walk, &part))
        err = sh_ranges_set(zone->backup->zones.map, part.first, part.last, zone->number);
    return err;
}

enum shoal_err sh_backup_adopt_narrow(struct sh_backup *backup, uint64_t number,
                                      const struct sh_metadata_run *kept, size_t count)
{
    sh_lock_take(&backup->zones.lock);
    const struct sh_own_zone *zone = adopted_get(backup, number);
    SH_ASSERT(!zone->opens_at && zone->adopted_ns && !zone->is_kept);
    enum shoal_err err = map_narrow(zone, kept, count);
    sh_lock_release(&backup->zones.lock);
    return err;
}

enum shoal_err sh_backup_adopt_keep(struct sh_backup *backup, uint64_t number,
                                    const struct sh_metadata_run *kept, size_t count)
{
    struct sh_own_zone *zone = adopted_get(backup, number);
    enum shoal_err err = SHOAL_OK;
    SH_ASSERT(!zone->opens_at && zone->adopted_ns);
    sh_lock_take(&backup->zones.lock);
    if (!zone->is_kept)
        err = kept_take(zone, kept, count);
    if (!err && !zone->is_kept)
        err = map_narrow(zone, kept, count);
    if (!err && !zone->is_kept)
        err = claims_narrow(zone, kept, count);
    zone->is_kept |= !err;
    if (!err && zone->is_narrowed)
        err = claims_retell(zone);
    if (!err)
        err = sh_zones_disclaim(zone);
    sh_lock_release(&backup->zones.lock);
    return err;
}

void sh_backup_adopt_settle(struct sh_backup *backup, uint64_t number, uint64_t live_bytes)
{
    atomic_store(&adopted_get(backup, number)->live, live_bytes);
}

/* --- Opening it -------------------------------------------------------------------------------- */

void sh_backup_adopt_open(struct sh_backup *backup, uint64_t number)
{
    struct sh_own_zone *zone = adopted_get(backup, number);
    SH_ASSERT(!zone->opens_at && zone->adopted_ns);
    zone->opens_at = sh_backlog_next(&zone->backlog);
    sh_zone_hurry(zone, zone->opens_at);
    sh_zones_tend(backup);
}

/* Whether the removals of all chunks that are left in the zone are recorded; then its backups are to have these, too. */
static bool has_removals(struct sh_own_zone *zone)
{
    uint64_t end;
    if (!sh_zone_left_end(zone, &end))
        return false;
    if (end > zone->opens_at) {
        zone->opens_at = end;
        sh_zone_hurry(zone, end);
    }
    return true;
}

bool sh_zone_adopted_is_at(const struct sh_own_zone *zone, const struct sh_sink *sink)
{
    SH_ASSERT(zone->adopted);
    return sh_sink_is_well(sink) && sink->has_answered &&
           sink->acked[SH_LEVEL_DURABLE] >= zone->opens_at;
}

bool sh_zone_opens(struct sh_own_zone *zone, uint64_t now_ns, struct sh_zone *wish_out,
                   uint64_t *due_ns)
{
    bool is_late = now_ns >= zone->adopted_ns + EQUAL_NS;
    SH_ASSERT(sh_zone_is_opening(zone));
    *due_ns = zone->adopted_ns ? now_ns + LOOK_NS : UINT64_MAX;
    if (!zone->opens_at || !has_removals(zone))
        return false;
    struct sh_zone wish = zone->record;
    wish.count = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->state == SH_SINK_NONE || !sink->is_recorded)
            continue;
        if (sh_zone_adopted_is_at(zone, sink)) {
            wish.backups[wish.count++] = (struct sh_zone_backup){sink->nid, sink->disk};
        } else if (sh_sink_serves(sink)) {
            if (!is_late)
                return false;
            sh_sink_lose(sink, SHOAL_ETIMEOUT);
        }
    }
    /* Nobody else has it all: this node's replica is the one that a recovery finds; or, if it is lost with the node, one of the others. */
    if (!wish.count) {
        wish.count = zone->record.count;
        memcpy(wish.backups, zone->record.backups, sizeof wish.backups);
    }
    sh_zone_former_set(&wish, SHOAL_NID_NONE, 0);
    *wish_out = wish;
    return true;
}

enum shoal_err sh_backup_adopt_state(struct sh_backup *backup, uint64_t number)
{
    const struct sh_own_zone *zone = backup->zones.all[number % SH_ZONES_MAX];
    bool is_it = zone && zone->number == number && zone->adopted;
    if (is_it && sh_zone_is_opening(zone))
        return atomic_load(&backup->trouble) ? atomic_load(&backup->trouble) : SHOAL_EAGAIN;
    return SHOAL_OK; /* and where it was empty, it may have been dropped by now */
}

bool sh_backup_adopted_needs_own(struct sh_backup *backup, uint64_t id)
{
    const struct sh_own_zone *zone = sh_zones_adopted(backup, id);
    return zone && !zone->is_removed &&
           (zone->op || zone->is_doubtful ||
            sh_zone_has_backup(&zone->record, backup->config.nid, 0));
}

/* --- Giving it up ------------------------------------------------------------------------------ */

/* Takes what it claims out of the map again. */
static void claims_drop(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    struct sh_range range;
    sh_lock_take(&zones->lock);
    for (size_t i = 0; i < zone->claims_count; i++) {
        const struct sh_zone_claim *claim = &zone->claims[i];
        uint64_t at = claim->first;
        while (at <= claim->last && sh_ranges_next(zones->map, (shoal_cid){at}, &range) &&
               range.first.v <= claim->last) {
            if (range.value == zone->number) {
                enum shoal_err err = sh_ranges_remove(zones->map, range.first, range.last);
                SH_ASSERT(!err); /* it is a whole one */
            }
            at = range.last.v + 1;
        }
    }
    sh_lock_release(&zones->lock);
}

bool sh_backup_adopt_cancel(struct sh_backup *backup, uint64_t number)
{
    struct sh_own_zone *zone = adopted_get(backup, number);
    bool has_more = sh_backlog_next(&zone->backlog) > zone->end;
    SH_ASSERT(!zone->opens_at && !zone->op && !zone->copy);
    claims_drop(zone);
    sh_zone_left_forget(zone);
    if (zone->backlog.is_held)
        sh_backlog_hold_abandon(&zone->backlog);
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state != SH_SINK_NONE)
            sh_sink_forget(&zone->sinks[i]);
    }
    sh_zone_adopted_leave(zone);
    sh_zone_withdraw(zone);
    atomic_store(&zone->live, 0);
    zone->adopted = 0;
    sh_zone_free(zone);
    return has_more;
}
