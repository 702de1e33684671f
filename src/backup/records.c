/* Records of zones at the superpeers: which backups a zone has is what its record says, and this brings the two together.
 *
 *   no record ── NEW ──► record ──┬─ a backup is lost ──► CHANGE without it ─────────────┐
 *                                 ├─ too few ──► one is attached, and copied to ──► CHANGE with it ──► as the answer says
 *                                 └─ the zone is full ──► CHANGE: concluded ─────────────┘
 *
 * Each look at a zone compares what there is with its record, and asks for one thing at a time. A backup that is asked for counts from the
 * moment that the question is sent, and one that is to go until the answer is there: so whichever of the two records
 * holds, all of its backups have what was acknowledged. */
#include "backup/backup_int.h"
#include "backup/placement.h"
#include "base/assert.h"
#include "base/log.h"

#define AGAIN_NS UINT64_C(200000000)  /* before the superpeers are asked again */
#define LOOK_NS UINT64_C(1000000000)  /* in which zones that want something are looked at again */
#define FAILED_NS UINT64_C(100000000) /* the same, of one whose backups have all failed */
/* The same, of one that is larger than the room that nodes have: they are asked no sooner (peers.c). */
#define ROOM_NS UINT64_C(10000000000)
#define ZONES_A_STEP 64u

static shoal_nid own_nid(const struct sh_own_zone *zone)
{
    return zone->backup->config.nid;
}

/* --- Asking the superpeers --------------------------------------------------------------------- */

static void on_answer(struct sh_zone_op *op, enum shoal_err err,
                      const struct sh_zone_answer *answer);

/* Asks for a record as it is given, in place of the zone's. False: too much is asked already. */
static bool record_ask(struct sh_own_zone *zone, int kind, const struct sh_zone *asked)
{
    struct sh_backup *backup = zone->backup;
    const struct sh_backup_cluster *cluster = &backup->config.cluster;
    unsigned i = 0;
    while (i < SH_RECORD_OPS && backup->ops[i].is_busy)
        i++;
    if (i == SH_RECORD_OPS)
        return false;
    struct sh_record_op *op = &backup->ops[i];
    *op = (struct sh_record_op){.zone = zone, .asked = *asked, .kind = kind, .is_busy = true};
    op->op.done = on_answer;
    op->op.arg = op;
    zone->op = op;
    if (kind == SH_RECORD_NEW || kind == SH_RECORD_AGAIN)
        sh_zones_new(cluster->zones, cluster->life, asked, &op->op);
    else if (kind == SH_RECORD_CHANGE)
        sh_zones_change(cluster->zones, cluster->life, asked, &op->op);
    else if (kind == SH_RECORD_LOOK)
        sh_zones_get(cluster->zones, asked->id, &op->op);
    else
        sh_zones_remove(cluster->zones, cluster->life, asked->id, asked->version, &op->op);
    return true;
}

static void sinks_drop(struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state != SH_SINK_NONE)
            sh_sink_drop(&zone->sinks[i]);
    }
}

/* Whether the backup has all that was acknowledged, so that a record may name it. */
static bool has_acknowledged(const struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    for (unsigned level = SH_LEVEL_REPLICATED; level < SH_LEVELS; level++) {
        if (sink->acked[level] < atomic_load(&zone->acked[level]))
            return false;
    }
    return true;
}

/* Whether a backup that is not in the record as this life knows it has the whole zone by now. */
static bool has_joined(const struct sh_sink *sink)
{
    return sh_sink_is_well(sink) && sink->counts && !sink->is_recorded && has_acknowledged(sink);
}

static struct sh_sink *sink_of(struct sh_own_zone *zone, const struct sh_zone_backup *backup)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->state != SH_SINK_NONE && sink->nid.v == backup->nid.v &&
            sink->disk == backup->disk)
            return sink;
    }
    return NULL;
}

/* The record may name backups that this life has forgotten, or never chose, as the answer that said so was lost. */
static void strangers_add(struct sh_own_zone *zone, const struct sh_zone *record)
{
    for (unsigned i = 0; i < record->count; i++) {
        const struct sh_zone_backup *backup = &record->backups[i];
        if (sink_of(zone, backup) || sh_sink_stranger_add(zone, backup))
            continue;
        unsigned other =
            0; /* there is room for one more than a record has, so some are not in it */
        while (sh_zone_has_backup(record, zone->sinks[other].nid, zone->sinks[other].disk))
            other++;
        sh_sink_drop(&zone->sinks[other]);
        bool is_added = sh_sink_stranger_add(zone, backup);
        SH_ASSERT(is_added);
    }
}

/* Whether a backup that the record does not name any more keeps its place in the stream, to go on from there. */
static bool may_rest(const struct sh_sink *sink, bool was_recorded)
{
    return sink->rests || (was_recorded && sink->has_begun && sh_sink_is_away(sink));
}

/* The record is that from now on. */
static void record_set(struct sh_own_zone *zone, const struct sh_zone *record)
{
    bool is_other = zone->record.incarnation != record->incarnation;
    bool was_opening = sh_zone_is_opening(zone);
    strangers_add(zone, record);
    sh_backup_first_changed(zone->backup, &zone->record, record);
    zone->record = *record;
    zone->record.flags &= (uint8_t)~SH_ZONE_OLD;
    zone->is_old = false;
    zone->is_to_rise &= !is_other;
    zone->compared = zone->backup->compare.round;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->state == SH_SINK_NONE)
            continue;
        bool was_recorded = sink->is_recorded;
        bool is_joining = zone->copy && zone->copy->sink == sink;
        /* A disk that had an older replica of the zone may be in the record all the while. */
        sink->is_recorded =
            sh_zone_has_backup(record, sink->nid, sink->disk) && (!is_joining || has_joined(sink));
        sink->counts = sink->is_recorded || (is_joining && sink->counts);
        if (sink->is_recorded)
            sink->rests = false;
        else if (may_rest(sink, was_recorded))
            sink->rests = true;
        if (!sink->is_recorded && !sink->rests && (was_recorded || !is_joining)) {
            sh_sink_drop(sink);
            continue;
        }
        if (sink->is_recorded && is_joining) {
            zone->backup->copies_done++;
            sh_copy_cancel(zone->copy);
        }
        /* The backup is told of the incarnation, and older ones are refused from then on. */
        if (is_other && (sink->state == SH_SINK_STREAMING || sink->state == SH_SINK_FULL)) {
            sink->state = SH_SINK_CLOSED;
            sink->due_ns = 0;
        }
    }
    if (was_opening && !sh_zone_is_opening(zone))
        atomic_store(&zone->backup->zones.has_empty, true); /* it may have nothing, or little */
    sh_zone_settle(zone);
    sh_zone_dirty(zone);
}

/* The number is another life's: the zone, which nobody has found yet, takes another one. */
static void number_set(struct sh_own_zone *zone, uint64_t last)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    uint64_t number = last > zone->number ? last + 1 : zone->number + 1;
    while (zones->all[number % SH_ZONES_MAX])
        number++;
    sinks_drop(zone);
    zone->number = number;
    zone->backup->made_first = 0; /* the numbers in between may be another life's */
}

static void new_answered(struct sh_own_zone *zone, enum shoal_err err,
                         const struct sh_zone_answer *answer)
{
    struct sh_backup *backup = zone->backup;
    if (!err && answer->is_there) {
        zone->op_again_ns = 0;
        atomic_store(&backup->no_zone, SHOAL_OK);
        record_set(zone, &answer->zone);
    } else if (err == SHOAL_ECANCELED || err == SHOAL_EEXIST) {
        number_set(zone, answer->last);
        zone->op_again_ns = 0;
    } else if (err == SHOAL_ENONODE) {
        sinks_drop(zone); /* one of them is not up, as the superpeers see it */
    } else {
        if (!atomic_load(&backup->no_zone))
            SH_ERROR("backup", "there can be no further zone: new chunks are refused", SH_ERR(err));
        zone->op_again_ns = backup->now_ns + LOOK_NS;
        atomic_store(&backup->no_zone, err);
        atomic_store(&backup->zones.has_empty, true); /* others may be emptied now */
        sh_waits_room(backup);
    }
}

/* Whether what the superpeers have is this life's. */
static bool is_own(const struct sh_own_zone *zone, const struct sh_zone_answer *answer)
{
    return answer->zone.owner.v == own_nid(zone).v &&
           answer->zone.life == zone->backup->config.cluster.life;
}

/* The superpeers have an old copy of the record. What it says of backups and incarnation may have been changed since: so this owner goes by what it
 * knows, and changes the copy to that, by the copy's version. */
static void old_found(struct sh_own_zone *zone, const struct sh_zone *record)
{
    SH_WARN("backup", "the superpeers have an old copy of a zone's record: it is changed",
            SH_U64("zone", zone->number));
    zone->backup->records_lost++;
    zone->record.version = record->version;
    zone->is_old = true;
    zone->op_again_ns = 0;
}

/* Takes the answer to a question that was to change a record, or only to look at it. */
static void change_answered(struct sh_own_zone *zone, enum shoal_err err,
                            const struct sh_zone_answer *answer)
{
    struct sh_backup *backup = zone->backup;
    bool is_other = answer->is_there && !is_own(zone, answer);
    bool is_missing = err == SHOAL_ENONAME && !answer->is_there;
    bool is_old = answer->is_there && answer->zone.flags & SH_ZONE_OLD;
    if (is_missing && answer->is_doubtful) {
        SH_WARN("backup", "the superpeers have lost a zone's record: it is registered again",
                SH_U64("zone", zone->number));
        backup->records_lost++;
        zone->is_missing = true;
        zone->op_again_ns = 0;
    } else if (is_old && (!err || err == SHOAL_EDIFFERS)) {
        old_found(zone, &answer->zone);
    } else if (is_missing) {
        /* Only owners remove records: another life has taken the zone over, and has removed it since. */
        sh_backup_fail(backup, SHOAL_EFENCED);
    } else if ((!err || err == SHOAL_EDIFFERS) && answer->is_there && !is_other) {
        zone->op_again_ns = 0;
        record_set(zone, &answer->zone);
    } else if (err == SHOAL_ENOTOWNER || is_other) {
        sh_backup_fail(backup, SHOAL_EFENCED);
    } else if (err == SHOAL_ENONODE && zone->copy) {
        sh_sink_lose(zone->copy->sink, err);
    } else {
        SH_WARN("backup", "the superpeers refuse a change of a zone's record",
                SH_U64("zone", zone->number), SH_ERR(err));
        zone->op_again_ns = backup->now_ns + LOOK_NS;
    }
}

/* Takes the superpeers' answer to a zone that was registered again. */
static void again_answered(struct sh_own_zone *zone, enum shoal_err err,
                           const struct sh_zone_answer *answer)
{
    struct sh_backup *backup = zone->backup;
    if (answer->is_there && is_own(zone, answer)) {
        zone->is_missing = false;
        zone->op_again_ns = 0;
        if (answer->zone.flags & SH_ZONE_OLD)
            old_found(zone, &answer->zone); /* an old copy has come meanwhile */
        else
            record_set(zone, &answer->zone);
    } else if (answer->is_there || err == SHOAL_ECANCELED) {
        sh_backup_fail(backup, SHOAL_EFENCED); /* as if the record had been changed, or removed */
    } else {
        zone->op_again_ns = backup->now_ns + LOOK_NS;
        if (err != SHOAL_ENONODE) /* else a backup is not up, and is replaced */
            SH_WARN("backup", "the superpeers do not register a zone again",
                    SH_U64("zone", zone->number), SH_ERR(err));
    }
}

/* Takes the record of a zone that the last list did not have as it is here. Nothing was to be changed, so an answer that is lost leaves no doubt:
 * the next list says whether there is still a question. */
static void look_answered(struct sh_own_zone *zone, enum shoal_err err,
                          const struct sh_zone_answer *answer)
{
    bool is_same = answer && answer->is_there && sh_zone_record_agrees(zone, &answer->zone);
    zone->compared = zone->backup->compare.round;
    zone->op_again_ns = 0;
    if (answer && !is_same)
        change_answered(zone, err, answer);
}

static void on_answer(struct sh_zone_op *op, enum shoal_err err,
                      const struct sh_zone_answer *answer)
{
    struct sh_record_op *asked = op->arg;
    struct sh_own_zone *zone = asked->zone;
    struct sh_backup *backup = zone->backup;
    asked->is_busy = false;
    zone->op = NULL;
    zone->op_again_ns = backup->now_ns + AGAIN_NS;
    if (err == SHOAL_ESTOPPED)
        return;
    if (asked->kind == SH_RECORD_LOOK) {
        look_answered(zone, err, answer);
        sh_zones_tend(backup);
        return;
    }
    zone->is_doubtful = !answer;
    if (err == SHOAL_EFENCED) {
        /* The superpeers do not see this life as up: it serves nobody then, and nothing is acknowledged. The node hears the
         * same with its next heartbeat, and ends. */
        zone->op_again_ns = backup->now_ns + LOOK_NS;
        if (asked->kind == SH_RECORD_REMOVE)
            backup->zones.drop.phase = SH_DROP_TELLS; /* again */
    } else if (asked->kind == SH_RECORD_REMOVE) {
        zone->is_removed = !err || err == SHOAL_ENONAME;
        if (zone->is_removed) {
            zone->is_doubtful = false;
            sinks_drop(zone);
            sh_backup_first_changed(backup, &zone->record, NULL);
            sh_zone_dropped(backup, zone->number, SHOAL_OK);
        } else if (err == SHOAL_ENOTOWNER ||
                   (answer && answer->is_there && !is_own(zone, answer))) {
            sh_backup_fail(backup, SHOAL_EFENCED);
        } else {
            if (answer && answer->is_there)
                zone->record.version = answer->zone.version;
            backup->zones.drop.phase = SH_DROP_TELLS; /* again */
        }
    } else if (answer && asked->kind == SH_RECORD_NEW) {
        new_answered(zone, err, answer);
    } else if (answer && asked->kind == SH_RECORD_AGAIN) {
        again_answered(zone, err, answer);
    } else if (answer) {
        change_answered(zone, err, answer);
    }
    sh_zones_tend(backup);
}

enum shoal_err sh_record_remove(struct sh_own_zone *zone)
{
    if (zone->op || zone->op_again_ns > zone->backup->now_ns)
        return SHOAL_EAGAIN;
    if (zone->copy)
        sh_sink_drop(zone->copy->sink);
    return record_ask(zone, SH_RECORD_REMOVE, &zone->record) ? SHOAL_OK : SHOAL_EAGAIN;
}

/* --- The record of a new zone ------------------------------------------------------------------ */

static void backup_put(struct sh_zone *record, const struct sh_sink *sink)
{
    record->backups[record->count++] = (struct sh_zone_backup){sink->nid, sink->disk};
}

static void new_ask(struct sh_own_zone *zone, uint64_t now_ns)
{
    const struct sh_backup_config *config = &zone->backup->config;
    struct sh_zone_backup chosen[SH_ZONE_BACKUPS_MAX];
    struct sh_zone record = {.id = sh_zone_id(config->nid, zone->number),
                             .owner = config->nid,
                             .life = config->cluster.life,
                             .incarnation = 1,
                             .version = 1,
                             .wanted = config->cluster.replicas};
    if (zone->is_doubtful) {
        if (!record_ask(zone, SH_RECORD_NEW, &zone->asked))
            zone->op_again_ns = now_ns + AGAIN_NS;
        return;
    }
    sinks_drop(zone);
    unsigned count = sh_backup_choose(zone, config->cluster.replicas, now_ns, chosen);
    for (unsigned i = 0; i < count; i++) {
        struct sh_sink *sink = sh_sink_add(zone, chosen[i].nid, chosen[i].disk);
        SH_ASSERT(sink);
    }
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state == SH_SINK_NONE)
            continue;
        zone->sinks[i].counts = true;
        backup_put(&record, &zone->sinks[i]);
    }
    zone->asked = record;
    if (!record_ask(zone, SH_RECORD_NEW, &record))
        zone->op_again_ns = now_ns + AGAIN_NS;
}

/* --- What a record should say ------------------------------------------------------------------ */

/* Backups that had failed and were replaced may be there again: there are to be no more than are wanted. Those that have failed, or stand still, go first. */
static void surplus_out(struct sh_own_zone *zone, struct sh_zone *wish)
{
    while (wish->count > wish->wanted) {
        unsigned out = wish->count - 1u;
        for (unsigned i = 0; i < wish->count; i++) {
            if (!sh_sink_keeps_up(sink_of(zone, &wish->backups[i])))
                out = i;
        }
        wish->count--;
        for (unsigned i = out; i < wish->count; i++)
            wish->backups[i] = wish->backups[i + 1];
    }
}

/* Whether the record is to say that the zone is concluded, and does not yet. */
static bool is_to_conclude(const struct sh_own_zone *zone)
{
    return atomic_load(&zone->is_concluded) && !(zone->record.flags & SH_ZONE_CONCLUDED);
}

/* The first and last of the zone's chunks that this node has created, of a zone that claims nothing more. */
static void bounds_set(struct sh_own_zone *zone, struct sh_zone *wish)
{
    struct sh_zone_claim claim;
    wish->first.v = wish->last.v = 0;
    for (size_t slot = 0; sh_zone_claim_get(zone, slot, &claim); slot++) {
        if (claim.first > claim.last || claim.first >> 48 != sh_zone_creator(zone->record.id).v)
            continue;
        if (!wish->last.v || claim.first < wish->first.v)
            wish->first.v = claim.first;
        if (claim.last > wish->last.v)
            wish->last.v = claim.last;
    }
}

/* Puts this node's own replica of a zone that it has brought back into a record again, unless some other backup in it has all of that: those that
 * were down meanwhile may not be back before this node fails, or never. */
static void own_keep(struct sh_own_zone *zone, struct sh_zone *wish)
{
    shoal_nid self = zone->backup->config.nid;
    bool is_needed = zone->adopted && wish->count < SH_ZONE_BACKUPS_MAX &&
                     sh_zone_has_backup(&zone->record, self, 0) &&
                     !sh_zone_has_backup(wish, self, 0);
    for (unsigned i = 0; is_needed && i < wish->count; i++) {
        const struct sh_sink *sink = sink_of(zone, &wish->backups[i]);
        is_needed = !(sink && sh_zone_adopted_is_at(zone, sink));
    }
    for (unsigned i = 0; is_needed && i < zone->record.count; i++) {
        if (zone->record.backups[i].nid.v == self.v)
            wish->backups[wish->count++] = zone->record.backups[i];
    }
}

static struct sh_zone wish_of(struct sh_own_zone *zone)
{
    const struct sh_zone *record = &zone->record;
    struct sh_zone wish = *record;
    wish.count = 0;
    for (unsigned i = 0; i < record->count; i++) {
        const struct sh_sink *sink = sink_of(zone, &record->backups[i]);
        if (sink && sink->is_recorded && sh_sink_is_well(sink) && !sh_sink_is_away(sink))
            backup_put(&wish, sink);
    }
    for (unsigned i = 0; i < SH_SINKS_MAX && wish.count < SH_ZONE_BACKUPS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        if (sink->state != SH_SINK_NONE && has_joined(sink))
            backup_put(&wish, sink);
    }
    surplus_out(zone, &wish);
    if (!wish.count) {
        /* Backups that failed may come back, and are the only ones that have what was acknowledged: they stay until another one has. */
        for (unsigned i = 0; i < record->count; i++) {
            const struct sh_sink *sink = sink_of(zone, &record->backups[i]);
            if (!sink || !sink->is_leaving)
                wish.backups[wish.count++] = record->backups[i];
        }
    }
    own_keep(zone, &wish);
    /* Bounds are said once, so they wait for a chunk that was on its way there already. */
    if (is_to_conclude(zone) && sh_zone_is_final(zone)) {
        wish.flags |= SH_ZONE_CONCLUDED;
        bounds_set(zone, &wish);
    }
    return wish;
}

/* --- Looking at a zone ------------------------------------------------------------------------- */

static unsigned nodes_well(const struct sh_own_zone *zone)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++)
        count += sh_sink_is_node(&zone->sinks[i]) && sh_sink_keeps_up(&zone->sinks[i]);
    return count;
}

/* Counts the backups whose nodes were stopped in order, and are to be back. */
static unsigned nodes_away(const struct sh_own_zone *zone)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++)
        count += sh_sink_is_away(&zone->sinks[i]);
    return count;
}

/* Gives up backups whose nodes are not up: those that failed, if another backup of the zone is well; those that are away, if the backlog has no room for what they lack. All
 * others may come back, and go on as long as the backlog has what they lack. Returns when to look again. */
static uint64_t failed_look(struct sh_own_zone *zone, uint64_t now_ns)
{
    unsigned well = 0, failed = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        failed += sh_sink_has_failed(sink);
        well += sink->is_recorded && sh_sink_serves(sink);
    }
    sh_zone_bare_look(zone);
    if (!failed)
        return UINT64_MAX;
    bool has_room = !sh_backlog_is_half_full(&zone->backlog);
    bool may_return = !well && has_room;
    bool may_be_away = has_room && zone->record.version && !sh_zone_is_opening(zone);
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        bool is_kept = may_return || (may_be_away && sh_sink_is_away(sink));
        if (sh_sink_has_failed(sink) && !(is_kept && (sink->is_recorded || sink->rests)))
            sh_sink_lose(sink, SHOAL_EFAILED);
    }
    return may_return ? now_ns + FAILED_NS : UINT64_MAX;
}

/* Whether an old replica that is to begin anew has to leave the record first: what it has is gone by then, and a recovery may read whatever a
 * record names. The only one stays: without it the record would name nobody. */
static bool leaves_first(const struct sh_own_zone *zone, struct sh_sink *old)
{
    if (!old || !old->is_recorded || zone->record.count < 2)
        return false;
    old->is_leaving = true;
    return true;
}

/* A resting backup whose node is up again joins the record like a backup to which the zone was copied: it lacks only what is in the backlog. */
static void rested_add(struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->rests && sh_sink_serves(sink) && !zone->copy && sh_copy_is_free(zone->backup))
            sh_copy_go_on(sink);
    }
}

/* Attaches one more backup, and begins to copy the zone to it. Returns when to try again. */
static uint64_t add_one(struct sh_own_zone *zone, uint64_t now_ns)
{
    struct sh_zone_backup chosen[SH_ZONE_BACKUPS_MAX];
    unsigned well = nodes_well(zone);
    bool is_bare = atomic_load(&zone->is_bare);
    if (is_bare)
        zone->backup->copies_hurry_ns = now_ns + 2 * LOOK_NS;
    /* Zones are looked at when a copy ends, and when there is another node: until then this one, of which there may be very many, costs nothing. */
    if (zone->copy || !sh_copy_is_free(zone->backup))
        return is_bare ? now_ns + LOOK_NS : UINT64_MAX;
    if (well && !sh_backup_has_other(zone))
        return sh_zone_is_large(zone) ? now_ns + ROOM_NS : UINT64_MAX;
    struct sh_sink *sink = NULL;
    if (well < zone->record.wanted && sh_backup_choose(zone, well + 1, now_ns, chosen)) {
        /* Of the node's old replica, which goes when the new one begins, only the record says something now. */
        struct sh_sink *old = sh_sink_find(zone, chosen[0].nid);
        SH_ASSERT(!old || old->state == SH_SINK_LOST);
        if (leaves_first(zone, old))
            return now_ns;
        if (old)
            sh_sink_forget(old);
        sink = sh_sink_add(zone, chosen[0].nid, chosen[0].disk);
    }
    if (!sink)
        return now_ns + LOOK_NS;
    sh_copy_begin(sink);
    return sh_sink_tend(sink, now_ns);
}

/* Drops the sinks that are neither in the record, nor asked to be, nor on their way there. */
static void strangers_drop(struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->state == SH_SINK_LOST && !sink->is_recorded) {
            sh_sink_drop(sink);
            sh_zone_settle(zone); /* it may have been all that was waited for */
        }
    }
}

/* The zone has all backups that it wants: drops the copy that is under way, since a failed backup is there again, and resting backups, since another one took their place. */
static void surplus_drop(struct sh_own_zone *zone)
{
    unsigned serving = 0;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        serving += sink->is_recorded && sh_sink_is_node(sink) && sh_sink_keeps_up(sink);
    }
    if (serving < zone->record.wanted)
        return;
    bool is_any = false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (!sink->rests && !(zone->copy && zone->copy->sink == sink))
            continue;
        sh_sink_drop(sink);
        is_any = true;
    }
    if (is_any)
        sh_zone_settle(zone);
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Whether the zone wants another backup than those that it has, and those that are to be back. */
static bool is_short(const struct sh_own_zone *zone)
{
    unsigned well = nodes_well(zone);
    return !well || well + nodes_away(zone) < zone->record.wanted;
}

/* Registers a zone again of which the superpeers have lost the record: with the backups that it has. The numbers are above any that the lost record can
 * have had (docs/zones.md). Returns when to look again. */
static uint64_t again_ask(struct sh_own_zone *zone, uint64_t now_ns)
{
    rested_add(zone);
    uint64_t due_ns = is_short(zone) ? add_one(zone, now_ns) : UINT64_MAX;
    struct sh_zone record = wish_of(zone);
    record.version += SH_ZONE_JUMP;
    record.incarnation += SH_ZONE_JUMP;
    if (!record_ask(zone, SH_RECORD_AGAIN, &record))
        due_ns = least(due_ns, now_ns + FAILED_NS);
    return due_ns;
}

/* Sees to one that is being brought back: its record changes once, when it opens. */
static uint64_t opening_tend(struct sh_own_zone *zone, uint64_t now_ns, uint64_t due_ns)
{
    struct sh_zone wish;
    uint64_t look_ns;
    if (sh_zone_opens(zone, now_ns, &wish, &look_ns) && !record_ask(zone, SH_RECORD_CHANGE, &wish))
        look_ns = now_ns + FAILED_NS;
    return least(due_ns, zone->op ? UINT64_MAX : look_ns);
}

/* Sees to one zone; returns when to look at it again. */
static uint64_t zone_tend(struct sh_own_zone *zone, uint64_t now_ns)
{
    const struct sh_zone *record = &zone->record;
    if (zone->adopted && !zone->adopted_ns)
        return UINT64_MAX; /* what it has is not known yet */
    uint64_t due_ns = failed_look(zone, now_ns);
    if (zone->is_removed)
        return UINT64_MAX;
    for (unsigned i = 0; i < SH_SINKS_MAX && record->version; i++)
        due_ns = least(due_ns, sh_sink_tend(&zone->sinks[i], now_ns));
    if (zone->op)
        return due_ns;
    if (zone->op_again_ns > now_ns)
        return least(due_ns, zone->op_again_ns);
    if (sh_zone_is_opening(zone))
        return opening_tend(zone, now_ns, due_ns);
    if (!record->version) {
        new_ask(zone, now_ns);
        return zone->op ? due_ns : zone->op_again_ns;
    }
    if (zone->is_missing)
        return least(due_ns, again_ask(zone, now_ns));
    if (zone->compared < zone->backup->compare.done && !zone->is_doubtful && !zone->is_old) {
        if (!record_ask(zone, SH_RECORD_LOOK, record))
            due_ns = least(due_ns, now_ns + FAILED_NS);
        return due_ns;
    }
    if (!zone->is_doubtful) {
        strangers_drop(zone);
        surplus_drop(zone);
    }
    struct sh_zone wish = wish_of(zone);
    wish.incarnation += zone->is_to_rise;
    if (zone->is_doubtful || zone->is_old || zone->is_to_rise || !sh_zone_is_same(&wish, record)) {
        if (!record_ask(zone, SH_RECORD_CHANGE, &wish))
            due_ns = least(due_ns, now_ns + FAILED_NS);
        return due_ns;
    }
    if (zone->copy && has_joined(zone->copy->sink)) {
        const struct sh_zone as_it_is = *record; /* it names the backup already */
        record_set(zone, &as_it_is);
    }
    if (is_to_conclude(zone))
        due_ns = least(due_ns, now_ns + LOOK_NS);
    /* A backup that has all of the copy, and not yet all that was acknowledged meanwhile, is to be recorded when it has. */
    if (zone->copy && zone->copy->phase == SH_COPY_JOINS)
        due_ns = least(due_ns, now_ns + FAILED_NS);
    /* This node's own replica, of a zone that it has brought back, leaves the record when another backup has all of that on its disk. */
    if (zone->adopted && nodes_well(zone) &&
        sh_zone_has_backup(record, zone->backup->config.nid, 0))
        due_ns = least(due_ns, now_ns + FAILED_NS);
    rested_add(zone);
    return is_short(zone) ? least(due_ns, add_one(zone, now_ns)) : due_ns;
}

/* --- The spare zone ---------------------------------------------------------------------------- */

/* Whether it is open wherever it is to be. */
static bool is_made(const struct sh_own_zone *zone)
{
    if (!zone->record.version || zone->op || zone->copy)
        return false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        enum sh_sink_state state = zone->sinks[i].state;
        if (zone->sinks[i].rests)
            continue;
        if (state == SH_SINK_CLOSED || state == SH_SINK_OPENING || state == SH_SINK_CLOSING ||
            state == SH_SINK_LOST)
            return false;
    }
    return true;
}

static unsigned make_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *zone = backup->making;
    if (zones->spare)
        return 0;
    if (!zone) {
        if (now_ns < backup->zone_again_ns || !sh_backup_peers_are_known(backup))
            return 0;
        uint64_t number = sh_zones_next(backup);
        enum shoal_err err = sh_zone_new(backup, number ? number : 1, 1, &zone);
        backup->zone_again_ns = err ? now_ns + LOOK_NS : 0;
        atomic_store(&backup->no_zone, err);
        if (err)
            return 0;
        backup->making = zone;
    }
    uint64_t due_ns = zone_tend(zone, now_ns);
    if (!is_made(zone)) {
        backup->zone_again_ns = due_ns == UINT64_MAX ? 0 : due_ns;
        return 0;
    }
    sh_zone_enter(zone);
    if (!backup->made_first)
        backup->made_first = zone->number;
    /* Now and then it looks whether any are empty: who empties the open zone does not say so. */
    atomic_store(&zones->has_empty, true);
    backup->making = NULL;
    backup->zone_again_ns = 0;
    sh_lock_take(&zones->lock);
    zones->spare = zone;
    sh_lock_release(&zones->lock);
    sh_waits_room(backup);
    sh_zones_tend(backup);
    return 1;
}

/* --- The step ---------------------------------------------------------------------------------- */

void sh_zones_tend(struct sh_backup *backup)
{
    backup->tend_left = backup->zones.count;
    backup->config.wake(backup->config.arg);
}

static unsigned tend_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    unsigned looked = 0;
    if (now_ns >= backup->tend_ns && !backup->tend_left)
        backup->tend_left = zones->count;
    if (!zones->count)
        backup->tend_ns = UINT64_MAX;
    if (!backup->tend_left)
        return 0;
    /* A round that begins anew in the middle of another is over when it has seen all from there on. */
    if (backup->tend_left >= zones->count)
        backup->tend_ns = UINT64_MAX;
    for (; backup->tend_left && zones->first && looked < ZONES_A_STEP; backup->tend_left--) {
        struct sh_own_zone *zone = backup->tend_at ? backup->tend_at : zones->first;
        backup->tend_at = zone->next_entered;
        looked++;
        if (zone == zones->drop.zone && zones->drop.phase > SH_DROP_CLOSES)
            continue;
        backup->tend_ns = least(backup->tend_ns, zone_tend(zone, now_ns));
    }
    if (!zones->first)
        backup->tend_left = 0;
    return looked;
}

unsigned sh_records_step(struct sh_backup *backup, uint64_t now_ns)
{
    unsigned work = make_step(backup, now_ns);
    return work + tend_step(backup, now_ns);
}
