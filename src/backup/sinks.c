/* Backups of zones: opening them, what they say, and what that means for a zone's acknowledgements. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/log.h"

#define PAUSE_MIN_NS UINT64_C(10000000) /* before a backup is asked again, doubled each time */
#define PAUSE_MAX_NS UINT64_C(500000000)

const char *sh_sink_state_name(enum sh_sink_state state)
{
    static const char *const names[] = {
        [SH_SINK_NONE] = "none",       [SH_SINK_HOME] = "home",
        [SH_SINK_CLOSED] = "closed",   [SH_SINK_OPENING] = "opening",
        [SH_SINK_CLOSING] = "closing", [SH_SINK_STREAMING] = "streaming",
        [SH_SINK_FULL] = "full",       [SH_SINK_LOST] = "lost",
    };
    return names[state];
}

/* --- Which there are --------------------------------------------------------------------------- */

static struct sh_sink *sink_attach(struct sh_own_zone *zone)
{
    unsigned i = 0;
    while (i < SH_SINKS_MAX && zone->sinks[i].state != SH_SINK_NONE)
        i++;
    if (i == SH_SINKS_MAX)
        return NULL;
    struct sh_sink *sink = &zone->sinks[i];
    *sink = (struct sh_sink){.zone = zone};
    if (!sh_backlog_attach(&zone->backlog, &sink->cursor))
        return NULL;
    for (unsigned level = 0; level < SH_LEVELS; level++)
        sink->acked[level] = sink->cursor.kept.number;
    sh_sink_watch_begin(sink);
    return sink;
}

struct sh_sink *sh_sink_add(struct sh_own_zone *zone, shoal_nid nid, uint64_t disk)
{
    struct sh_sink *sink = sink_attach(zone);
    if (!sink)
        return NULL;
    sink->state = SH_SINK_CLOSED;
    sink->nid = nid;
    sink->disk = disk;
    return sink;
}

struct sh_sink *sh_sink_home_add(struct sh_own_zone *zone)
{
    struct sh_sink *sink = sink_attach(zone);
    if (!sink)
        return NULL;
    sink->state = SH_SINK_HOME;
    sink->nid = zone->backup->config.nid;
    sink->counts = true;
    return sink;
}

struct sh_sink *sh_sink_home(struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state == SH_SINK_HOME)
            return &zone->sinks[i];
    }
    return NULL;
}

struct sh_sink *sh_sink_find(struct sh_own_zone *zone, shoal_nid nid)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (sh_sink_is_node(&zone->sinks[i]) && zone->sinks[i].nid.v == nid.v)
            return &zone->sinks[i];
    }
    return NULL;
}

/* Nobody waits for what was asked of it. */
static void call_leave(struct sh_sink *sink)
{
    if (sink->call)
        sink->call->sink = NULL;
    sink->call = NULL;
}

static void cursor_end(struct sh_sink *sink)
{
    if (sink->cursor.backlog && sh_backlog_detach(&sink->cursor))
        sh_waits_room(sink->zone->backup);
}

bool sh_sink_has_failed(const struct sh_sink *sink)
{
    if (!sh_sink_is_node(sink) || sink->state == SH_SINK_LOST)
        return false;
    struct sh_backup *backup = sink->zone->backup;
    const struct sh_backup_peer *peer = sh_backup_peer_find(backup, sink->nid);
    return backup->peers.has_view && (!peer || !peer->is_up);
}

bool sh_sink_is_away(const struct sh_sink *sink)
{
    if (!sh_sink_has_failed(sink))
        return false;
    const struct sh_backup_peer *peer = sh_backup_peer_find(sink->zone->backup, sink->nid);
    return peer && peer->is_away;
}

bool sh_sink_stranger_add(struct sh_own_zone *zone, const struct sh_zone_backup *backup)
{
    unsigned i = 0;
    while (i < SH_SINKS_MAX && zone->sinks[i].state != SH_SINK_NONE)
        i++;
    if (i == SH_SINKS_MAX)
        return false;
    zone->sinks[i] = (struct sh_sink){.zone = zone,
                                      .state = SH_SINK_LOST,
                                      .nid = backup->nid,
                                      .disk = backup->disk,
                                      .is_recorded = true,
                                      .counts = true,
                                      .why = SHOAL_EDIFFERS,
                                      .lost_ns = zone->backup->now_ns};
    for (unsigned level = SH_LEVEL_REPLICATED; level < SH_LEVELS; level++)
        zone->sinks[i].acked[level] = atomic_load(&zone->acked[level]);
    return true;
}

/* Whether a write that waits for backups would ever be acknowledged as things are. */
void sh_zone_bare_look(struct sh_own_zone *zone)
{
    bool is_bare = true;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++)
        is_bare &= !(zone->sinks[i].counts && sh_sink_serves(&zone->sinks[i]));
    /* Said first, both when the zone becomes bare and when that ends: a writer that sees is_bare then goes by what holds. */
    bool is_hopeful = !is_bare || sh_backup_is_hopeful(zone);
    bool was_hopeful = atomic_exchange(&zone->is_hopeful, is_hopeful);
    bool was_bare = atomic_exchange(&zone->is_bare, is_bare);
    /* Writes that waited for a backup go on, or are refused. */
    if (was_bare && (!is_bare || was_hopeful != is_hopeful))
        sh_waits_room(zone->backup);
}

void sh_sink_lose(struct sh_sink *sink, enum shoal_err why)
{
    struct sh_own_zone *zone = sink->zone;
    SH_ASSERT(sh_sink_is_node(sink));
    if (sink->state == SH_SINK_LOST)
        return;
    SH_WARN("backup", "a backup of a zone is lost: another one is needed",
            SH_U64("zone", zone->number), SH_U64("node", sink->nid.v), SH_ERR(why));
    if (zone->copy && zone->copy->sink == sink)
        sh_copy_cancel(zone->copy);
    call_leave(sink);
    cursor_end(sink);
    sink->state = SH_SINK_LOST;
    sink->is_stalled = sink->rests = false;
    sink->why = why;
    sink->lost_ns = zone->backup->now_ns;
    if (why != SHOAL_EFAILED)
        sh_backup_peer_give_up(zone->backup, sink->nid);
    sh_zone_bare_look(zone);
    sh_zones_tend(zone->backup);
}

/* --- Acknowledgements -------------------------------------------------------------------------- */

/* Whether a recovery would find a backup of the zone: one that is on its way into the record counts, but alone it is nobody whom a recovery asks. */
static bool is_anybody_recorded(const struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        if (sink->state != SH_SINK_NONE && sink->is_recorded)
            return true;
    }
    return !sh_backup_is_clustered(zone->backup);
}

uint64_t sh_sink_wanted_durable(struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    sh_spin_take(&zone->waits_lock);
    uint64_t wanted = zone->wanted[SH_LEVEL_DURABLE];
    sh_spin_release(&zone->waits_lock);
    return wanted > sink->needed ? wanted : sink->needed;
}

/* A backup that is being copied to has its own number in the same place, and is not waited for. */
void sh_zone_hurry(struct sh_own_zone *zone, uint64_t end)
{
    bool is_more = false;
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        if (sink->state == SH_SINK_NONE || !sink->counts || sink->needed >= end)
            continue;
        sink->needed = end;
        is_more = true;
    }
    if (is_more)
        sh_zone_dirty(zone);
}

void sh_zone_settle(struct sh_own_zone *zone)
{
    for (unsigned level = SH_LEVEL_REPLICATED; level < SH_LEVELS; level++) {
        uint64_t least = UINT64_MAX;
        for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
            const struct sh_sink *sink = &zone->sinks[i];
            if (sink->state != SH_SINK_NONE && sink->counts && sink->acked[level] < least)
                least = sink->acked[level];
        }
        if (least != UINT64_MAX && is_anybody_recorded(zone))
            sh_zone_acked(zone, (enum sh_level)level, least);
    }
    sh_zone_bare_look(zone);
}

/* --- Asking ------------------------------------------------------------------------------------ */

static struct sh_sink_call *call_take(struct sh_backup *backup)
{
    for (unsigned i = 0; i < SH_SINK_CALLS; i++) {
        struct sh_sink_call *call = &backup->calls[i];
        if (call->is_busy)
            continue;
        *call = (struct sh_sink_call){.backup = backup};
        return call;
    }
    return NULL;
}

static void sink_close(struct sh_sink *sink, uint64_t pause_ns)
{
    sink->state = SH_SINK_CLOSED;
    sink->due_ns = sink->zone->backup->now_ns + pause_ns;
    sh_zone_watch(sink->zone);
    sh_zones_tend(sink->zone->backup);
}

/* It is asked again later. */
static void sink_pause(struct sh_sink *sink)
{
    uint64_t pause_ns = 2 * sink->pause_ns;
    sink->pause_ns = pause_ns < PAUSE_MIN_NS   ? PAUSE_MIN_NS
                     : pause_ns > PAUSE_MAX_NS ? PAUSE_MAX_NS
                                               : pause_ns;
    sink_close(sink, sink->pause_ns);
}

/* Whether the same may go well later. */
static bool may_repeat(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EAGAIN:
    case SHOAL_EBUSY:
    case SHOAL_ELIMIT:
    case SHOAL_EUNREACHABLE:
    case SHOAL_ECANCELED:
    case SHOAL_ECONNLOST:
    case SHOAL_ETIMEOUT:
    case SHOAL_ESTOPPED:
    case SHOAL_ENOTYPE: /* it has just begun */
        return true;
    default:
        return false;
    }
}

static void wishes_forget(struct sh_sink *sink)
{
    for (unsigned level = 0; level < SH_LEVELS; level++)
        sink->wished[level] = 0;
    sink->ack_begun_ns = 0;
}

static bool is_before(const struct sh_backlog_place *place, uint64_t number, uint32_t part)
{
    return place->number < number || (place->number == number && place->part < part);
}

/* All before that place is there. False: that can't be. */
static bool sink_taken(struct sh_sink *sink, uint64_t number, uint32_t part)
{
    const struct sh_backlog_place *read = &sink->cursor.read;
    struct sh_backlog_entry entry;
    uint64_t passed;
    bool gave;
    /* It may have been sent before the cursor was put back. */
    while (is_before(read, number, part) && read->number <= sink->sent &&
           sh_backlog_read(&sink->cursor, &entry, &passed, NULL))
        continue;
    if (!sh_backlog_take_to(&sink->cursor, number, part, &gave))
        return false;
    if (gave)
        sh_waits_room(sink->zone->backup);
    sink->acked[SH_LEVEL_REPLICATED] = sink->cursor.kept.number;
    return true;
}

static void opened(struct sh_sink *sink, const struct sh_replication_opened *answer)
{
    struct sh_own_zone *zone = sink->zone;
    const struct sh_backlog_place *kept = &sink->cursor.kept;
    bool is_start = answer->next == kept->number && answer->part == kept->part;
    if (sink->disk && answer->disk != sink->disk) {
        sh_sink_lose(sink, SHOAL_EDIFFERS);
        return;
    }
    if (sink->has_begun ? !sink_taken(sink, answer->next, answer->part) : !is_start) {
        sh_sink_lose(sink, SHOAL_EPROTO);
        return;
    }
    if (answer->durable > sink->acked[SH_LEVEL_DURABLE] && answer->durable <= answer->next)
        sink->acked[SH_LEVEL_DURABLE] = answer->durable;
    sink->has_begun = sink->has_answered = true;
    sink->disk = answer->disk;
    sink->credit = answer->credit;
    sink->pause_ns = 0;
    sink->state = SH_SINK_STREAMING;
    sh_backlog_rewind(&sink->cursor);
    wishes_forget(sink);
    sh_zone_settle(zone);
    sh_zone_dirty(zone);
    sh_zones_tend(zone->backup);
}

static void on_opened(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_sink_call *call = request->arg;
    struct sh_sink *sink = call->sink;
    struct sh_replication_opened answer;
    call->is_busy = false;
    if (!sink)
        return;
    SH_ASSERT(sink->state == SH_SINK_OPENING && sink->call == call);
    sink->call = NULL;
    if (!err && !sh_replication_opened_get(payload, &answer))
        err = SHOAL_EPROTO;
    if (!err && call->incarnation != sink->zone->record.incarnation)
        sink_close(sink, 0); /* that has risen since */
    else if (!err)
        opened(sink, &answer);
    else if (err == SHOAL_EEXIST && !sink->has_begun)
        sink->state = SH_SINK_CLOSING;
    else if (may_repeat(err)) {
        if (err == SHOAL_EBUSY)
            sh_sink_watch_busy(sink);
        sink_pause(sink);
    } else
        sh_sink_lose(sink, err);
    if (sink->state == SH_SINK_CLOSING)
        sh_zones_tend(sink->zone->backup);
}

/* A backup that had the zone in this incarnation already, as one that was being added and was given up, has dropped that: its log begins the zone anew in a higher
 * one only. */
static void rise_ask(struct sh_sink *sink)
{
    sink->has_asked_rise = true;
    sink->zone->is_to_rise = true;
}

static void on_closed(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_sink_call *call = request->arg;
    struct sh_sink *sink = call->sink;
    (void)payload;
    call->is_busy = false;
    if (!sink)
        return;
    SH_ASSERT(sink->state == SH_SINK_CLOSING && sink->call == call);
    sink->call = NULL;
    if (!err && sink->has_asked_rise)
        err =
            SHOAL_EEXIST; /* a higher incarnation did not help: another node is to have the replica */
    else if (!err)
        rise_ask(sink);
    if (!err || may_repeat(err))
        sink_pause(sink);
    else
        sh_sink_lose(sink, err);
}

static struct sh_replication_open open_of(const struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    const struct sh_backup_config *config = &zone->backup->config;
    struct sh_zone_claim claim;
    uint64_t first = sh_store_ids_wanted(config->store);
    first = shoal_cid_make(config->nid, first).v;
    for (size_t slot = 0; sh_zone_claim_get(zone, slot, &claim); slot++) {
        if (claim.first > claim.last)
            continue; /* an empty place */
        first = claim.first;
        break;
    }
    return (struct sh_replication_open){
        .zone = zone->record.id,
        .incarnation = zone->record.incarnation,
        .life = config->cluster.life,
        .flags = sink->has_begun ? 0 : SH_REPLICATION_ANEW,
        .first = sink->cursor.kept.number,
        .first_part = sink->cursor.kept.part,
        .since = zone->adopted ? zone->since : 1,
        .begun = zone->adopted ? zone->end : zone->before,
        .bytes_max = sh_zone_log_bytes(zone),
        .range_first = first,
        .range_count = config->zone_bytes / (64 + SH_ZONE_CHUNK_BYTES),
    };
}

/* Asks the backup; false: it can't be asked now. */
static bool sink_ask(struct sh_sink *sink, sh_msg_type type)
{
    struct sh_own_zone *zone = sink->zone;
    struct sh_backup *backup = zone->backup;
    struct sh_msg *msg = backup->config.cluster.msg;
    struct sh_sink_call *call = call_take(backup);
    struct sh_out out;
    if (!call)
        return false;
    bool is_open = type == SH_REPLICATION_OPEN;
    size_t bytes = is_open ? SH_REPLICATION_OPEN_BYTES : SH_REPLICATION_CLOSE_BYTES;
    call->request = (struct sh_request){.done = is_open ? on_opened : on_closed, .arg = call};
    if (sh_msg_request(msg, sink->nid, type, bytes, &call->request, &out))
        return false;
    call->is_busy = true;
    call->incarnation = zone->record.incarnation;
    if (is_open) {
        const struct sh_replication_open open = open_of(sink);
        sh_replication_open_put(&out.w, &open);
    } else {
        const struct sh_replication_close close = {.zone = zone->record.id,
                                                   .incarnation = zone->record.incarnation,
                                                   .life = backup->config.cluster.life};
        sh_replication_close_put(&out.w, &close);
    }
    sh_msg_end(msg, &out);
    call->sink = sink;
    sink->call = call;
    return true;
}

uint64_t sh_sink_tend(struct sh_sink *sink, uint64_t now_ns)
{
    bool is_open = sink->state == SH_SINK_CLOSED;
    if (sink->call || (!is_open && sink->state != SH_SINK_CLOSING))
        return UINT64_MAX;
    if (sink->due_ns > now_ns)
        return sink->due_ns;
    if (!sink_ask(sink, is_open ? SH_REPLICATION_OPEN : SH_REPLICATION_CLOSE)) {
        sink->due_ns = now_ns + PAUSE_MIN_NS;
        return sink->due_ns;
    }
    sink->incarnation = sink->zone->record.incarnation;
    if (is_open)
        sink->state = SH_SINK_OPENING;
    return UINT64_MAX;
}

void sh_sink_forget(struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    if (zone->copy && zone->copy->sink == sink)
        sh_copy_cancel(zone->copy);
    call_leave(sink);
    cursor_end(sink);
    *sink = (struct sh_sink){.state = SH_SINK_NONE};
    sh_zone_bare_look(zone);
}

void sh_sink_drop(struct sh_sink *sink)
{
    struct sh_own_zone *zone = sink->zone;
    bool is_node = sh_sink_is_node(sink);
    call_leave(sink);
    /* Once; a backup that does not hear of it asks whether its replica is needed (orphans.c). This node's own replica, of a zone that it has
     * brought back, is dropped by who has done that. */
    bool is_other = sink->nid.v != zone->backup->config.nid.v;
    if (is_node && is_other && zone->record.version && sink_ask(sink, SH_REPLICATION_CLOSE))
        call_leave(sink);
    sh_sink_forget(sink);
}

void sh_sinks_end(struct sh_backup *backup)
{
    for (unsigned i = 0; i < SH_SINK_CALLS; i++) {
        struct sh_sink_call *call = &backup->calls[i];
        if (call->is_busy)
            (void)sh_msg_cancel(backup->config.cluster.msg, &call->request);
        call->is_busy = false;
    }
}

/* --- What backups say -------------------------------------------------------------------------- */

struct sh_own_zone *sh_zone_by_id(struct sh_backup *backup, uint64_t id)
{
    uint64_t number = sh_zone_number(id);
    if (sh_zone_creator(id).v != backup->config.nid.v)
        return sh_zones_adopted(backup, id);
    struct sh_own_zone *zone = backup->zones.all[number % SH_ZONES_MAX];
    bool is_it = zone && zone->number == number && !zone->adopted;
    if (!is_it) {
        zone = backup->making;
        is_it = zone && zone->number == number;
    }
    return is_it ? zone : sh_zones_adopted(backup, id);
}

static void sink_acked(struct sh_sink *sink, const struct sh_replication_ack *ack)
{
    const struct sh_backlog_place *kept = &sink->cursor.kept;
    bool is_late = !is_before(kept, ack->next, ack->part);
    if ((!is_late && !sink_taken(sink, ack->next, ack->part)) || ack->durable > ack->next) {
        sh_sink_lose(sink, SHOAL_EPROTO);
        return;
    }
    if (ack->durable > sink->acked[SH_LEVEL_DURABLE])
        sink->acked[SH_LEVEL_DURABLE] = ack->durable;
    if (ack->state == SH_REPLICATION_FULL) {
        sink->state = SH_SINK_FULL;
    } else if (ack->state == SH_REPLICATION_AGAIN) {
        sink->state = SH_SINK_STREAMING;
        sh_backlog_rewind(&sink->cursor);
        wishes_forget(sink);
    }
    sh_zone_settle(sink->zone);
    sh_zone_dirty(sink->zone);
}

static void on_ack(struct sh_backup *backup, shoal_nid from, const struct sh_replication_ack *ack)
{
    struct sh_own_zone *zone = sh_zone_by_id(backup, ack->zone);
    struct sh_sink *sink = zone ? sh_sink_find(zone, from) : NULL;
    bool is_open = sink && (sink->state == SH_SINK_STREAMING || sink->state == SH_SINK_FULL);
    if (!is_open || sink->incarnation != ack->incarnation)
        return;
    switch ((enum sh_replication_state)ack->state) {
    case SH_REPLICATION_GOES_ON:
    case SH_REPLICATION_FULL:
    case SH_REPLICATION_AGAIN:
        sink_acked(sink, ack);
        break;
    case SH_REPLICATION_GONE:
        sink_pause(sink);
        break;
    case SH_REPLICATION_LOST:
        sh_sink_lose(sink, SHOAL_EIO);
        break;
    }
}

void sh_backup_on_acks(void *arg, struct sh_msg_in *in)
{
    struct sh_backup *backup = arg;
    struct sh_replication_ack ack;
    sh_backup_peer_heard(backup, in->reply_to.nid);
    while (sh_reader_left(&in->payload) && sh_replication_ack_get(&in->payload, &ack))
        on_ack(backup, in->reply_to.nid, &ack);
}

static void zone_link_lost(struct sh_own_zone *zone, shoal_nid nid)
{
    struct sh_sink *sink = sh_sink_find(zone, nid);
    if (sink && (sink->state == SH_SINK_STREAMING || sink->state == SH_SINK_FULL))
        sink_pause(sink);
}

void sh_backup_link_event(struct sh_backup *backup, const struct sh_msg_event *event)
{
    struct sh_own_zones *zones = &backup->zones;
    if (event->kind != SH_MSG_LOST || !sh_backup_is_clustered(backup))
        return;
    for (struct sh_own_zone *zone = zones->first; zone; zone = zone->next_entered)
        zone_link_lost(zone, event->nid);
    if (backup->making)
        zone_link_lost(backup->making, event->nid);
}
