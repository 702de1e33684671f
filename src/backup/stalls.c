/* Backups that stand still, or are much slower than the others of their zone, though they are up by the view.
 *
 *   owes nothing ◄──► owes ─┬─ has not moved for STILL_NS ──► given up, where another backup of the zone moves
 *                         │                            └─► else stalled: it stays, until the zone has another one
 *                         └─ SLOW_NS behind the others ──► given up, where another node could get a replica
 *
 * A backup owes what it has not taken of the stream, what somebody waits for it to have on its disk, and an answer where it is to be open
 * before anything goes on. Each taken byte, and each write on its disk, is a move. Writes wait for each recorded backup, so one that stands still stops
 * the zone. Given up means lost as any other (sh_sink_lose): it counts until the superpeers have it out of the record.
 *
 * It takes two to tell: where no other backup of the zone moves, or can be reached, it may be this node that is cut off, and nobody is given up. Nor is time counted
 * in which this node itself stood still: attended_ns goes on with its steps, by no more than STEP_MAX_NS each.
 *
 * Cost: only zones whose backups owe something are looked at, each LOOK_NS. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

/* As long as a sync of a busy disk may well take, and several times what a lost connection costs. Up to half as much more is added by zone and
 * node, so that owners do not give up a slow node all at once. */
#define STILL_NS UINT64_C(2000000000)
/* In which a backup is to have what it owed at the beginning. It counts only against others that had it: a full window takes all of them long where the network is
 * slow. A backup that is being added has so long for a move, as nobody waits for it yet. */
#define SLOW_NS UINT64_C(10000000000)
#define LOOK_NS UINT64_C(100000000)
#define STEP_MAX_NS (2 * LOOK_NS)

static uint64_t attended_now(const struct sh_sink *sink)
{
    return sink->zone->backup->attended_ns;
}

/* --- What a backup owes ------------------------------------------------------------------------ */

static bool is_open(const struct sh_sink *sink)
{
    return sink->state == SH_SINK_STREAMING || sink->state == SH_SINK_FULL;
}

static bool sink_owes(struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    bool is_taking = sh_sink_is_node(sink) && sh_sink_serves(sink) && sink->cursor.backlog;
    bool is_awaited = zone == zone->backup->making || (zone->copy && zone->copy->sink == sink);
    if (!is_taking || !zone->record.version)
        return false;
    return (is_awaited && !is_open(sink)) || sh_backlog_pending(&sink->cursor) ||
           sh_sink_wanted_durable(sink) > sink->acked[SH_LEVEL_DURABLE];
}

static void moved(struct sh_sink *sink)
{
    sink->watch.taken = sink->cursor.kept.at;
    sink->watch.durable = sink->acked[SH_LEVEL_DURABLE];
    sink->watch.moved_ns = attended_now(sink);
}

static void goal_set(struct sh_sink *sink)
{
    sink->watch.goal[SH_LEVEL_REPLICATED] = sh_backlog_next(&sink->zone->backlog);
    sink->watch.goal[SH_LEVEL_DURABLE] = sh_sink_wanted_durable(sink);
    sink->watch.goal_ns = attended_now(sink);
}

static bool has_reached(const struct sh_sink *sink, const uint64_t goal[SH_LEVELS])
{
    return sink->acked[SH_LEVEL_REPLICATED] >= goal[SH_LEVEL_REPLICATED] &&
           sink->acked[SH_LEVEL_DURABLE] >= goal[SH_LEVEL_DURABLE];
}

void sh_sink_watch_begin(struct sh_sink *sink)
{
    sink->watch.owes = false;
    sink->watch.alone_ns = 0;
    moved(sink);
    goal_set(sink);
}

void sh_sink_watch_busy(struct sh_sink *sink)
{
    /* It loads what it has of the zone, or drops that. That may take long, and is none of its fault. */
    if (sink->counts && sink->zone != sink->zone->backup->making)
        moved(sink);
}

void sh_zone_watch(struct sh_own_zone *zone)
{
    struct sh_backup *backup = zone->backup;
    if (zone->is_watched || !sh_backup_is_clustered(backup))
        return;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state != SH_SINK_NONE)
            sh_sink_watch_begin(&zone->sinks[i]);
    }
    zone->is_watched = true;
    zone->next_watched = backup->watched;
    backup->watched = zone;
}

/* --- Who is given up --------------------------------------------------------------------------- */

static void sink_give_up(struct sh_sink *sink)
{
    sink->zone->backup->given_up++;
    sh_sink_lose(sink, SHOAL_ETIMEOUT);
}

static uint64_t patience_ns(const struct sh_sink *sink)
{
    uint64_t key = sink->zone->backup->config.cluster.life + sink->zone->number;
    return STILL_NS + sh_mix64(key ^ (uint64_t)sink->nid.v << 48) % (STILL_NS / 2);
}

static bool stands_still(const struct sh_sink *sink, uint64_t for_ns)
{
    return sink->watch.owes && attended_now(sink) - sink->watch.moved_ns >= for_ns;
}

/* Whether this node has heard of the other backup's node in the last second. Where it has nothing to say, it is asked something before that is over. */
static bool is_heard(const struct sh_sink *other)
{
    struct sh_backup *backup = other->zone->backup;
    struct sh_backup_peer *peer = sh_backup_peer_find(backup, other->nid);
    uint64_t silent_ns = peer ? backup->attended_ns - peer->heard_ns : UINT64_MAX;
    if (peer && silent_ns >= STILL_NS / 4)
        sh_backup_peer_ask(backup, peer);
    return silent_ns < STILL_NS / 2;
}

/* Whether another recorded backup owes nothing, or has moved not long ago, and its node is there. */
static bool another_moves(const struct sh_sink *sink)
{
    const struct sh_own_zone *zone = sink->zone;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *other = &zone->sinks[i];
        if (other != sink && sh_sink_is_node(other) && other->is_recorded &&
            sh_sink_keeps_up(other) && !stands_still(other, STILL_NS / 2) && is_heard(other))
            return true;
    }
    return false;
}

/* Whether all others that count, and there are some, have long had what the backup still owes. */
static bool is_behind(const struct sh_sink *sink)
{
    const struct sh_own_zone *zone = sink->zone;
    unsigned others = 0;
    if (!sink->watch.owes || attended_now(sink) - sink->watch.goal_ns < SLOW_NS)
        return false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *other = &zone->sinks[i];
        if (other == sink || other->state == SH_SINK_NONE || !other->counts)
            continue;
        others++;
        if (!sh_sink_keeps_up(other) || !has_reached(other, sink->watch.goal))
            return false;
    }
    return others > 0;
}

/* The zone's last backup stands still, or does not any more. */
static void stalled_set(struct sh_sink *sink, bool is_stalled)
{
    struct sh_own_zone *zone = sink->zone;
    if (sink->is_stalled == is_stalled)
        return;
    sink->is_stalled = is_stalled;
    if (is_stalled)
        SH_WARN("backup", "a zone's backup stands still, and there is no other: writes wait for it",
                SH_U64("zone", zone->number), SH_U64("node", sink->nid.v));
    sh_zones_tend(zone->backup);
}

/* Where a zone's only backup stands still, another one gets a copy meanwhile. What the first one has not taken must not take the room that this
 * needs. */
static bool is_in_the_way(const struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    return zone->copy && zone->copy->sink != sink && sh_backlog_is_half_full(&zone->backlog);
}

static void sink_judge(struct sh_sink *sink)
{
    bool is_added = sink->zone->copy && sink->zone->copy->sink == sink;
    if (is_added) {
        if (stands_still(sink, sink->counts ? patience_ns(sink) : SLOW_NS))
            sink_give_up(sink);
        return;
    }
    bool is_still = stands_still(sink, patience_ns(sink));
    bool is_alone = stands_still(sink, STILL_NS / 2) && !another_moves(sink);
    if (is_alone)
        sink->watch.alone_ns = attended_now(sink);
    /* Where this node was cut off, it is not the first answer of another node that decides. */
    bool is_blamed = is_still && attended_now(sink) - sink->watch.alone_ns >= STILL_NS;
    if (is_blamed || (sink->is_stalled && is_in_the_way(sink)) ||
        (is_behind(sink) && sh_backup_has_other(sink->zone)))
        sink_give_up(sink);
    else
        stalled_set(sink, is_still && (is_alone || sink->is_stalled));
}

/* --- The step ---------------------------------------------------------------------------------- */

static void sink_look(struct sh_sink *sink)
{
    sink->watch.owes = sink_owes(sink);
    bool has_moved = sink->watch.taken != sink->cursor.kept.at ||
                     sink->watch.durable != sink->acked[SH_LEVEL_DURABLE];
    if (has_moved || !sink->watch.owes)
        moved(sink);
    if (!sink->watch.owes || has_reached(sink, sink->watch.goal))
        goal_set(sink);
}

/* False: nothing is owed, and the zone is watched no more. */
static bool zone_look(struct sh_own_zone *zone)
{
    bool is_owed = false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->rests && sh_sink_is_away(sink) && sh_backlog_is_half_full(&zone->backlog))
            sh_sink_lose(
                sink,
                SHOAL_EFAILED); /* what a resting backup lacks takes no room that writes need */
        if (sink->state != SH_SINK_NONE && sink->state != SH_SINK_LOST)
            sink_look(sink);
    }
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (!sh_sink_is_node(sink) || sink->state == SH_SINK_LOST)
            continue;
        sink_judge(sink);
        is_owed |= sink->watch.owes || sink->is_stalled;
    }
    return is_owed;
}

void sh_stalls_step(struct sh_backup *backup, uint64_t now_ns)
{
    uint64_t passed_ns = now_ns - backup->attended_at_ns;
    backup->attended_at_ns = now_ns;
    backup->attended_ns += passed_ns < STEP_MAX_NS ? passed_ns : STEP_MAX_NS;
    if (!backup->watched || now_ns < backup->watch_due_ns)
        return;
    backup->watch_due_ns = now_ns + LOOK_NS;
    for (struct sh_own_zone **at = &backup->watched, *zone = *at; zone; zone = *at) {
        if (zone_look(zone)) {
            at = &zone->next_watched;
        } else {
            zone->is_watched = false;
            *at = zone->next_watched;
        }
    }
}

uint64_t sh_stalls_due_ns(const struct sh_backup *backup)
{
    return backup->watched ? backup->watch_due_ns : UINT64_MAX;
}
