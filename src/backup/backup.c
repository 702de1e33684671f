#include "backup/backup.h"

#include <stdlib.h>

#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/life.h"
#include "base/log.h"
#include "msg/once.h"

#define WINDOW_MIN (UINT64_C(1) << 20)
#define DRAIN_ENTRIES 256u         /* of one zone in a step */
#define STUCK_NS UINT64_C(1000000) /* until what a connection had no room for is tried again */
#define ZONE_AGAIN_NS UINT64_C(1000000000)
#define FULL_NS UINT64_C(100000000) /* the same of zones that are full */

/* Of a node among others; a log on the own disk knows the numbers that were given. */
static uint32_t config_starts(const struct sh_backup_config *config)
{
    return config->cluster.msg ? sh_life_starts(config->cluster.life) : 0;
}

/* All that a backup has which does back up. */
static enum shoal_err windows_make(struct sh_backup *backup)
{
    backup->window = backup->config.window_bytes / 4;
    if (backup->window < WINDOW_MIN)
        backup->window = WINDOW_MIN;
    uint32_t starts = config_starts(&backup->config);
    enum shoal_err err = sh_zones_make(&backup->zones, starts);
    if (!err)
        err = sh_backlog_pool_create(4 * backup->window / SH_BACKLOG_BLOCK_BYTES, &backup->pool);
    if (!err)
        err = sh_acknowledged_create(&backup->acknowledged);
    backup->guards = calloc(SH_GUARDS, sizeof *backup->guards);
    backup->scratch = malloc(SH_BACKLOG_PIECE_BYTES);
    return err || (backup->guards && backup->scratch) ? err : SHOAL_ENOMEM;
}

enum shoal_err sh_backup_create(const struct sh_backup_config *config,
                                struct sh_backup **backup_out)
{
    struct sh_backup *backup = calloc(1, sizeof *backup);
    if (!backup)
        return SHOAL_ENOMEM;
    SH_ASSERT(config->window_bytes == 0 || config->wake);
    SH_ASSERT(!config->cluster.msg ||
              (config->cluster.zones && config->window_bytes && config->cluster.life &&
               config->cluster.replicas && config->cluster.replicas <= SH_ZONE_BACKUPS_MAX));
    backup->config = *config;
    if (!config->repeat_ns)
        backup->config.repeat_ns = SH_ONCE_REPEAT_NS;
    sh_spin_init(&backup->waits_lock, SH_LOCK_BACKUP_WAITS);
    sh_lock_init(&backup->zones.lock, SH_LOCK_BACKUP);
    enum shoal_err err = config->window_bytes ? windows_make(backup) : SHOAL_OK;
    if (err) {
        sh_backup_destroy(backup);
        return err;
    }
    if (config->cluster.msg) {
        sh_msg_handler_set(config->cluster.msg, SH_REPLICATION_ACKS, SH_MSG_INLINE,
                           sh_backup_on_acks, backup);
        sh_msg_handler_set(config->cluster.msg, SH_REPLICATION_KEPT, SH_MSG_INLINE,
                           sh_backup_on_kept, backup);
    }
    *backup_out = backup;
    return SHOAL_OK;
}

void sh_backup_leave(struct sh_backup *backup)
{
    for (unsigned i = 0; i < SH_COPIES_MAX; i++) {
        if (backup->copies[i].zone)
            sh_copy_cancel(&backup->copies[i]);
    }
    if (!sh_backup_is_clustered(backup))
        return;
    sh_msg_handlers_drop(backup->config.cluster.msg, backup);
    sh_sinks_end(backup);
    sh_backup_peers_end(backup);
    backup->config.cluster.msg = NULL;
}

void sh_backup_destroy(struct sh_backup *backup)
{
    if (!backup)
        return;
    sh_evacuation_stop(&backup->zones);
    sh_backup_leave(backup);
    if (backup->is_on)
        sh_store_witness_set(backup->config.store, NULL);
    if (backup->making)
        sh_zone_free(backup->making);
    sh_zones_end(&backup->zones);
    sh_backlog_pool_destroy(backup->pool);
    sh_acknowledged_destroy(backup->acknowledged);
    free(backup->guards);
    free(backup->scratch);
    free(backup);
}

/* --- Zones in the log -------------------------------------------------------------------------- */

/* The log says that the own disk has all before that number, up to a level. */
static void home_acked(struct sh_backup *backup, const struct sh_replog_zone *logged,
                       enum sh_level level, uint64_t number)
{
    struct sh_own_zone *zone =
        backup->zones.all[sh_zone_number(sh_replog_zone_id(logged)) % SH_ZONES_MAX];
    if (!zone || zone->log != logged)
        zone = backup->making;
    struct sh_sink *home = zone && zone->log == logged ? sh_sink_home(zone) : NULL;
    if (!home)
        return;
    for (unsigned i = SH_LEVEL_REPLICATED; i <= (unsigned)level; i++) {
        if (home->acked[i] < number)
            home->acked[i] = number;
    }
    sh_zone_settle(zone);
}

void sh_backup_handed(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    home_acked(arg, zone, SH_LEVEL_REPLICATED, sequence);
}

void sh_backup_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    home_acked(arg, zone, SH_LEVEL_DURABLE, sequence);
}

uint64_t sh_zone_log_bytes(const struct sh_own_zone *zone)
{
    /* A zone may have more bytes than it should: a single chunk, or chunks that came when zones were larger. */
    uint64_t live = atomic_load_explicit(&zone->live, memory_order_relaxed);
    uint64_t bytes = zone->backup->config.zone_bytes;
    return 2 * (live > bytes ? live : bytes);
}

/* Adds a zone to the log, where chunks are expected from that one on. */
static enum shoal_err log_add(struct sh_replog *log, struct sh_own_zone *zone, uint64_t first,
                              uint64_t first_chunk)
{
    const struct sh_backup_config *config = &zone->backup->config;
    const struct sh_replog_zone_config added = {
        .id = sh_own_zone_id(zone),
        .owner = config->nid.v,
        .incarnation = SH_HOME_INCARNATION,
        .first = first,
        .bytes_max = sh_zone_log_bytes(zone),
        .range_first = first_chunk,
        .range_count = config->zone_bytes / (64 + SH_ZONE_CHUNK_BYTES),
        .rest_max = 65536,
    };
    return sh_replog_zone_add(log, &added, &zone->log);
}

static uint64_t fresh_chunk(const struct sh_backup *backup)
{
    uint64_t wanted = sh_store_ids_wanted(backup->config.store);
    return shoal_cid_make(backup->config.nid, wanted).v;
}

enum shoal_err sh_backup_zone_found(struct sh_backup *backup, struct sh_replog *log,
                                    uint64_t number, const struct sh_zone_claim *claims,
                                    size_t count, uint64_t live_bytes, uint64_t next)
{
    struct sh_own_zone *zone;
    enum shoal_err err = sh_zone_make(backup, number, next, &zone);
    for (size_t i = 0; !err && i < count; i++)
        err = sh_zone_claimed(zone, &claims[i]);
    if (err)
        return err;
    atomic_init(&zone->live, live_bytes);
    err = log_add(log, zone, next, count ? claims[0].first : 0);
    if (err)
        return err;
    atomic_init(&zone->told, backup->has_found_told);
    backup->has_found_told = false;
    if (!backup->zones.open)
        backup->zones.open = zone; /* the newest one; the others fill up as IDs are used again */
    return SHOAL_OK;
}

void sh_backup_nid_set(struct sh_backup *backup, shoal_nid nid)
{
    SH_ASSERT(nid.v && !backup->is_on && backup->zones.end == backup->zones.begin);
    backup->config.nid = nid;
}

bool sh_backup_is_on(const struct sh_backup *backup)
{
    return backup->is_on;
}

bool sh_backup_is_home(const struct sh_backup *backup)
{
    return backup->is_on && !sh_backup_is_clustered(backup);
}

struct sh_replog_completions sh_backup_completions(struct sh_backup *backup)
{
    return (struct sh_replog_completions){
        .noted = sh_acknowledged_note, .is_over = sh_acknowledged_has, .arg = backup->acknowledged};
}

void sh_backup_completion_found(struct sh_backup *backup, struct sh_bytes completion)
{
    sh_acknowledged_note(backup->acknowledged, backup->config.nid.v, completion);
    backup->has_found_told = true;
}

void sh_backup_begin(struct sh_backup *backup)
{
    SH_ASSERT(backup->config.nid.v);
    backup->is_on = true;
    sh_backup_witness_set(backup);
    atomic_store(&backup->zones.has_empty, true); /* of those that were found, some may be */
    backup->config.wake(backup->config.arg);
}

void sh_backup_home_set(struct sh_backup *backup, struct sh_replog *log)
{
    SH_ASSERT(backup->config.nid.v);
    backup->log = log;
    sh_backup_begin(backup);
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    sh_zone_dropped(arg, sh_zone_number(id), err);
}

enum shoal_err sh_zone_drop_tell(struct sh_own_zone *zone)
{
    if (sh_backup_is_clustered(zone->backup))
        return sh_record_remove(zone);
    return sh_replog_zone_drop(zone->log, on_dropped, zone->backup);
}

/* Makes the zone that will be the open one next. */
static unsigned spare_make(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *zone;
    if (zones->spare || now_ns < backup->zone_again_ns)
        return 0;
    enum shoal_err err = sh_zone_new(backup, sh_zones_next(backup), 1, &zone);
    if (!err) {
        err = log_add(backup->log, zone, sh_backlog_next(&zone->backlog), fresh_chunk(backup));
        /* Others look at all zones that there are, so it is one of them only when it stays. */
        if (err)
            sh_zone_free(zone);
        else
            sh_zone_enter(zone);
    }
    backup->zone_again_ns = err ? now_ns + ZONE_AGAIN_NS : 0;
    /* Now and then it looks whether any are empty: who empties the open zone does not say so. */
    atomic_store(&zones->has_empty, true);
    /* Writers wait for the room that a zone leaves. */
    bool is_near = err == SHOAL_ENOSPC && sh_zones_is_drop_near(backup, now_ns);
    if (err && !is_near && !atomic_load(&backup->no_zone))
        SH_ERROR("backup", "there can be no further zone: new chunks are refused", SH_ERR(err));
    atomic_store(&backup->no_zone, is_near ? SHOAL_OK : err);
    sh_lock_take(&zones->lock);
    zones->spare = err ? NULL : zone;
    sh_lock_release(&zones->lock);
    sh_waits_room(backup);
    return !err;
}

/* --- The step ---------------------------------------------------------------------------------- */

void sh_zone_dirty(struct sh_own_zone *zone)
{
    struct sh_backup *backup = zone->backup;
    if (atomic_exchange(&zone->is_dirty, true))
        return;
    struct sh_own_zone *first = atomic_load(&backup->dirty);
    do
        zone->next_dirty = first;
    while (!atomic_compare_exchange_weak(&backup->dirty, &first, zone));
    backup->config.wake(backup->config.arg);
}

static struct sh_replog_write write_of(const struct sh_backlog_entry *entry)
{
    bool has_bytes = entry->kind == SH_BACKLOG_IMAGE;
    return (struct sh_replog_write){
        .local_id = shoal_cid_local((shoal_cid){entry->chunk}),
        .creator = shoal_cid_creator((shoal_cid){entry->chunk}).v,
        .is_removal = entry->kind == SH_BACKLOG_REMOVAL,
        .piece = entry->piece,
        .pieces = entry->pieces,
        .total = entry->total,
        .payload = sh_bytes_make(has_bytes ? entry->at : NULL, entry->size),
        .completion = sh_bytes_make(entry->completion_size ? entry->completion : NULL,
                                    entry->completion_size)};
}

/* Reads one write, and appends it to the log; false: there is none. */
static bool one_move(struct sh_sink *home, enum shoal_err *err_out)
{
    struct sh_own_zone *zone = home->zone;
    struct sh_backup *backup = zone->backup;
    struct sh_backlog_cursor *cursor = &home->cursor;
    struct sh_backlog_entry entry;
    struct sh_replog_write note, write;
    uint8_t bytes[SH_BACKLOG_NOTE_MAX];
    bool has_note = false;
    uint64_t number;
    bool is_there = sh_backlog_read(cursor, &entry, &number, backup->scratch);
    if (is_there && entry.with_next) {
        has_note = true;
        note = write_of(&entry);
        memcpy(bytes, entry.at, entry.size);
        note.payload.at = bytes;
        is_there = sh_backlog_read(cursor, &entry, &number, backup->scratch);
        SH_ASSERT(is_there);
    }
    *err_out = SHOAL_OK;
    if (is_there && entry.kind == SH_BACKLOG_ABANDON) {
        *err_out = sh_replog_abandon(zone->log);
    } else if (is_there) {
        write = write_of(&entry);
        write.with = has_note ? &note : NULL;
        *err_out = sh_replog_append(zone->log, &write);
    }
    return is_there;
}

/* Moves what the zone's backlog has to the log, until that takes no more. */
static enum shoal_err home_drain(struct sh_sink *home, unsigned *moved_out)
{
    struct sh_backlog_cursor *cursor = &home->cursor;
    enum shoal_err err = SHOAL_OK;
    unsigned moved = 0;
    while (moved < DRAIN_ENTRIES) {
        const struct sh_backlog_cursor before = *cursor;
        bool is_there = one_move(home, &err);
        if (err)
            sh_backlog_unread(cursor, &before);
        if (err == SHOAL_ENOSPC && sh_home_room_make(home))
            err = SHOAL_OK;
        else if (err || !is_there)
            break;
        moved++;
    }
    if (!err || (moved && err == SHOAL_EAGAIN))
        sh_home_room_found(home->zone);
    if (moved && sh_backlog_take(cursor))
        sh_waits_room(home->zone->backup);
    *moved_out += moved;
    return !err && moved == DRAIN_ENTRIES ? SHOAL_EAGAIN : err;
}

/* Has the log see to what somebody waits for; all that was written has been appended. */
static void hurry(struct sh_sink *home)
{
    struct sh_own_zone *zone = home->zone;
    sh_spin_take(&zone->waits_lock);
    bool wants_handed = zone->wanted[SH_LEVEL_REPLICATED] > home->acked[SH_LEVEL_REPLICATED];
    bool wants_durable = zone->wanted[SH_LEVEL_DURABLE] > home->acked[SH_LEVEL_DURABLE];
    sh_spin_release(&zone->waits_lock);
    wants_durable |= home->needed > home->acked[SH_LEVEL_DURABLE];
    if (wants_durable)
        sh_replog_sync(zone->log);
    else if (wants_handed)
        sh_replog_hand(zone->log);
}

/* Moves what the zone's backlog has to all of its backups. EAGAIN and others: there is more, which does not go now. */
static enum shoal_err zone_drain(struct sh_own_zone *zone, unsigned *moved_out)
{
    bool has_cursor = false;
    enum shoal_err worst = sh_zone_gate_look(zone) ? SHOAL_OK : SHOAL_EAGAIN;
    sh_zone_watch(zone);
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        struct sh_sink *sink = &zone->sinks[i];
        enum shoal_err err = SHOAL_OK;
        has_cursor |= sink->cursor.backlog != NULL;
        if (sink->state == SH_SINK_HOME) {
            /* Without a log it was dropped: whoever wrote to it last was late to say so. */
            err = zone->log ? home_drain(sink, moved_out) : SHOAL_OK;
            if (!err && zone->log)
                hurry(sink);
        } else if (sink->state == SH_SINK_STREAMING) {
            err = sh_sink_stream(sink, moved_out);
        }
        if (err)
            worst = err;
    }
    if (!has_cursor && sh_backlog_trim(&zone->backlog))
        sh_waits_room(zone->backup);
    return worst;
}

void sh_backup_fail(struct sh_backup *backup, enum shoal_err err)
{
    if (atomic_load(&backup->trouble))
        return;
    SH_ERROR("backup", "changes can't be backed up any more, and are refused", SH_ERR(err));
    atomic_store(&backup->trouble, err);
    sh_waits_fail(backup);
}

/* One after the other of those that have something for the log; those that it has no room for stay. */
static unsigned drain_all(struct sh_backup *backup)
{
    struct sh_own_zone *zone, *next, *fresh = atomic_exchange(&backup->dirty, NULL);
    unsigned work = 0;
    struct sh_own_zone **end = &backup->stuck;
    while (*end)
        end = &(*end)->next_dirty;
    *end = fresh;
    zone = backup->stuck;
    backup->stuck = NULL;
    for (end = &backup->stuck; zone; zone = next) {
        unsigned moved = 0;
        next = zone->next_dirty;
        /* Whoever writes from here on has it looked at again. */
        atomic_store(&zone->is_dirty, false);
        enum shoal_err err = zone_drain(zone, &moved);
        work += moved;
        if (!err)
            continue;
        if (err != SHOAL_EAGAIN && err != SHOAL_ENOSPC && err != SHOAL_ENOMEM)
            sh_backup_fail(backup, err);
        if (!atomic_exchange(&zone->is_dirty, true)) {
            zone->next_dirty = NULL;
            *end = zone;
            end = &zone->next_dirty;
        }
    }
    return work;
}

static unsigned cluster_step(struct sh_backup *backup, uint64_t now_ns)
{
    unsigned work = sh_backup_peers_step(backup, now_ns);
    sh_stalls_step(backup, now_ns);
    work += sh_compare_step(backup, now_ns);
    work += sh_records_step(backup, now_ns);
    return work + sh_copies_step(backup, now_ns);
}

unsigned sh_backup_step(struct sh_backup *backup, uint64_t now_ns, uint32_t seconds)
{
    unsigned work = 0;
    backup->now_ns = now_ns;
    if (!backup->is_on)
        return sh_waits_call(backup);
    if (!atomic_load(&backup->trouble)) {
        work += sh_backup_is_clustered(backup) ? cluster_step(backup, now_ns)
                                               : spare_make(backup, now_ns);
        work += sh_zones_leftovers(backup);
        work += drain_all(backup);
        work += sh_zones_drop_step(backup, now_ns);
    }
    backup->stuck_ns = 0;
    bool is_soon = sh_backup_is_clustered(backup) || atomic_load(&backup->zones.gates);
    if (backup->stuck)
        backup->stuck_ns = now_ns + (is_soon ? STUCK_NS : FULL_NS);
    if (backup->log) {
        work += sh_replog_step(backup->log, now_ns, seconds);
        if (sh_replog_trouble(backup->log))
            sh_backup_fail(backup, sh_replog_trouble(backup->log));
    }
    return work + sh_waits_call(backup);
}

static uint64_t sooner(uint64_t due_ns, uint64_t other_ns)
{
    return other_ns < due_ns ? other_ns : due_ns;
}

uint64_t sh_backup_due_ns(const struct sh_backup *backup)
{
    uint64_t due_ns = UINT64_MAX;
    if (!backup->is_on)
        return due_ns;
    if (backup->log)
        due_ns = sh_replog_due_ns(backup->log);
    if (atomic_load(&backup->trouble))
        return due_ns; /* nothing else goes on */
    if (backup->zone_again_ns)
        due_ns = sooner(due_ns, backup->zone_again_ns);
    due_ns = sooner(due_ns, sh_zones_drop_due_ns(backup));
    if (backup->stuck_ns)
        due_ns = sooner(due_ns, backup->stuck_ns);
    if (!sh_backup_is_clustered(backup))
        return due_ns;
    due_ns = sooner(due_ns, backup->tend_left ? 0 : backup->tend_ns);
    due_ns = sooner(due_ns, sh_copies_due_ns(backup));
    due_ns = sooner(due_ns, sh_stalls_due_ns(backup));
    due_ns = sooner(due_ns, sh_compare_due_ns(backup));
    return sooner(due_ns, backup->peers.due_ns);
}

static void sinks_count(const struct sh_own_zone *zone, struct sh_backup_status *status)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        const struct sh_sink *sink = &zone->sinks[i];
        if (!sink->cursor.backlog || sink->state == SH_SINK_HOME)
            continue;
        bool is_streaming = sink->state == SH_SINK_STREAMING;
        status->streams += is_streaming;
        status->streams_waiting += !is_streaming;
        *(is_streaming ? &status->pending_bytes : &status->waiting_bytes) +=
            sh_backlog_pending(&sink->cursor);
        status->flying_bytes += is_streaming ? sh_backlog_flying(&sink->cursor) : 0;
        status->credit_bytes += is_streaming ? sink->credit : 0;
    }
}

void sh_backup_status_get(struct sh_backup *backup, struct sh_backup_status *status_out)
{
    struct sh_own_zones *zones = &backup->zones;
    *status_out = (struct sh_backup_status){.trouble = atomic_load(&backup->trouble),
                                            .writes = zones->dropped_writes,
                                            .dropped = zones->dropped,
                                            .evacuated = zones->evacuated,
                                            .blocks_free = sh_backlog_pool_left(backup->pool)};
    uint64_t end = sh_zones_places(zones);
    for (uint64_t i = 0; i < end; i++) {
        struct sh_own_zone *zone = zones->all[i];
        if (!zone)
            continue;
        status_out->zones++;
        status_out->live_bytes += atomic_load_explicit(&zone->live, memory_order_relaxed);
        status_out->writes += sh_backlog_next(&zone->backlog) - zone->before;
        status_out->under_replicated += zone->record.count < zone->record.wanted;
        status_out->bare += atomic_load(&zone->is_bare);
        status_out->full += atomic_load(&zone->is_full);
        sinks_count(zone, status_out);
        for (unsigned k = 0; k < SH_SINKS_MAX; k++)
            status_out->stalled += zone->sinks[k].is_stalled;
    }
    for (unsigned i = 0; i < SH_COPIES_MAX; i++)
        status_out->copies += backup->copies[i].zone != NULL;
    status_out->damaged = atomic_load(&backup->damaged);
    status_out->repaired = backup->repaired;
    status_out->given_up = backup->given_up;
    status_out->compared = backup->compare.done;
    status_out->records_lost = backup->records_lost;
    status_out->messages = backup->messages;
    status_out->message_bytes = backup->message_bytes;
    status_out->copies_max = sh_copies_max(backup);
    status_out->copy_bytes_per_s = sh_copies_rate(backup);
    status_out->copied_bytes = backup->copied_bytes;
    status_out->copies_done = backup->copies_done;
    status_out->again_bytes = backup->again_bytes;
    status_out->acks = backup->acks;
    status_out->ack_ns = backup->ack_ns;
    status_out->ack_longest_ns = backup->ack_longest_ns;
}

static void sink_state(const struct sh_sink *sink, struct sh_zone_state_backup *state)
{
    const struct sh_own_zone *zone = sink->zone;
    bool is_full = sink->state == SH_SINK_HOME && atomic_load(&zone->is_full);
    bool is_added = zone->copy && zone->copy->sink == sink;
    *state = (struct sh_zone_state_backup){
        .nid = sink->nid,
        .disk = sink->disk,
        .state = is_full ? SH_SINK_FULL : sink->state,
        .why = is_full ? SHOAL_ENOSPC : sink->why,
        .is_recorded = sink->is_recorded,
        .is_stalled = sink->is_stalled,
        .is_added = is_added,
        .copied_bytes = is_added ? zone->copy->bytes : 0,
        .pending_bytes = sink->cursor.backlog ? sh_backlog_pending(&sink->cursor) : 0};
    for (unsigned level = 0; level < SH_LEVELS; level++)
        state->acked[level] = sink->acked[level];
}

static void zone_state(struct sh_own_zone *zone, struct sh_zone_state *state)
{
    *state = (struct sh_zone_state){.number = zone->number,
                                    .incarnation = zone->record.incarnation,
                                    .wanted = zone->record.wanted,
                                    .is_concluded = zone->record.flags & SH_ZONE_CONCLUDED,
                                    .live_bytes = atomic_load(&zone->live),
                                    .next = sh_backlog_next(&zone->backlog)};
    for (unsigned level = 0; level < SH_LEVELS; level++)
        state->acked[level] = atomic_load(&zone->acked[level]);
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].state != SH_SINK_NONE)
            sink_state(&zone->sinks[i], &state->backups[state->count++]);
    }
}

bool sh_backup_zone_state(struct sh_backup *backup, uint64_t from, struct sh_zone_state *state_out)
{
    struct sh_own_zones *zones = &backup->zones;
    const struct sh_own_zone *found = NULL;
    uint64_t places = sh_zones_places(zones), begin = atomic_load(&zones->begin);
    from = from < begin ? begin : from;
    for (uint64_t i = 0; i < places; i++) {
        const struct sh_own_zone *zone = zones->all[(from - begin + i) % places];
        if (!zone || zone->number < from || (found && zone->number > found->number))
            continue;
        found = zone;
        if (zone->number == from + i)
            break;
    }
    if (found)
        zone_state(zones->all[found->number % SH_ZONES_MAX], state_out);
    return found != NULL;
}
