#include "node/logs_told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

/* Rows of a page: few enough for a step of less than a millisecond. */
#define OWN_ZONES_EACH 64u
#define KEPT_ZONES_EACH 128u
#define SLOTS_EACH 512u

#define SCRUB_RATE (UINT64_C(64) << 20) /* bytes a second, where nobody says */
#define SCRUB_RATE_MAX (UINT64_C(1) << 30)

static void column(struct sh_log_table *table, const char *name)
{
    SH_ASSERT(table->columns < SH_LOG_COLUMNS_MAX && strlen(name) < SH_LOG_NAME_MAX);
    snprintf(table->names[table->columns++], SH_LOG_NAME_MAX, "%s", name);
}

static void columns(struct sh_log_table *table, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        column(table, names[i]);
}

static void row(struct sh_log_table *table, const uint64_t *values)
{
    size_t at = (size_t)table->rows * table->columns;
    SH_ASSERT(at + table->columns <= SH_LOG_VALUES_MAX);
    memcpy(&table->values[at], values, table->columns * sizeof *values);
    table->rows++;
}

/* --- Metrics ----------------------------------------------------------------------------------- */

/* Of the only row: a column and its value at once. */
static void metric(struct sh_log_table *table, const char *name, uint64_t value)
{
    table->values[table->columns] = value;
    column(table, name);
}

static void log_write_metrics(const struct sh_replog *log, const struct sh_replog_status *status,
                              struct sh_log_table *table)
{
    struct sh_replog_space space;
    const struct sh_replog_look look = sh_replog_look(log);
    sh_replog_space_get(log, &space);
    metric(table, "log_file_bytes", look.file_bytes);
    metric(table, "log_slot_bytes", look.slot_bytes);
    metric(table, "log_primary_bytes", look.primary_bytes);
    metric(table, "log_batch_bytes", look.batch_bytes);
    metric(table, "log_buffer_bytes", look.buffer_bytes);
    metric(table, "log_buffer_used_bytes", status->buffer_used);
    metric(table, "log_zones", status->zones);
    metric(table, "log_slots", status->slots);
    metric(table, "log_slots_free", status->slots_free);
    metric(table, "log_space_free_bytes", space.free);
    metric(table, "log_space_promised_bytes", space.to_come);
    metric(table, "log_appends", status->appended);
    metric(table, "log_append_bytes", status->appended_bytes);
    metric(table, "log_slot_writes", status->slot_writes);
    metric(table, "log_slot_write_bytes", status->slot_bytes);
    metric(table, "log_survivor_write_bytes", status->survivor_bytes);
    metric(table, "log_version_write_bytes", status->version_bytes);
    metric(table, "log_primary_writes", status->primary_writes);
    metric(table, "log_primary_write_bytes", status->primary_bytes);
    metric(table, "log_slot_write_largest_bytes", status->slot_largest);
    metric(table, "log_slot_padding_bytes", status->slot_padding);
    metric(table, "log_head_write_bytes", status->head_bytes);
    metric(table, "log_primary_write_largest_bytes", status->primary_largest);
    metric(table, "log_primary_padding_bytes", status->primary_padding);
    metric(table, "log_flushes_large", status->flushes[SH_REPLOG_FLUSH_LARGE]);
    metric(table, "log_flushes_full", status->flushes[SH_REPLOG_FLUSH_FULL]);
    metric(table, "log_flushes_buffer", status->flushes[SH_REPLOG_FLUSH_BUFFER]);
    metric(table, "log_flushes_primary", status->flushes[SH_REPLOG_FLUSH_PRIMARY]);
    metric(table, "log_flushes_other", status->flushes[SH_REPLOG_FLUSH_OTHER]);
    metric(table, "log_append_waits", status->waits);
    metric(table, "log_read_errors", status->read_errors);
}

static void log_state_metrics(const struct sh_replog *log, const struct sh_replog_status *status,
                              struct sh_log_table *table)
{
    metric(table, "log_syncs", status->syncs);
    metric(table, "log_cleanings", status->cleanings);
    metric(table, "log_clean_ns", status->clean_ns);
    metric(table, "log_clean_read_bytes", status->clean_read_bytes);
    metric(table, "log_slots_cleaned", status->slots_cleaned);
    metric(table, "log_entries_kept", status->entries_kept);
    metric(table, "log_entries_dropped", status->entries_dropped);
    metric(table, "log_marks_dropped", status->marks_dropped);
    metric(table, "log_compactions", status->compactions);
    metric(table, "log_zones_dropped", status->zones_dropped);
    metric(table, "log_slots_damaged", status->damaged);
    metric(table, "log_slots_lost", status->slots_lost);
    metric(table, "log_slots_reserved", status->slots_reserved);
    metric(table, "log_scrub_bytes", status->scrub_bytes);
    metric(table, "log_scrub_passes", status->scrub_passes);
    metric(table, "log_eons", status->eons);
    metric(table, "log_discarded_bytes", status->discarded_bytes);
    metric(table, "log_full", status->is_full);
    metric(table, "log_refused", status->refused);
    metric(table, "log_trouble", sh_replog_trouble(log));
}

static void own_metrics(struct sh_backup *backup, struct sh_log_table *table)
{
    struct sh_backup_status status;
    sh_backup_status_get(backup, &status);
    metric(table, "own_zones", status.zones);
    metric(table, "own_live_bytes", status.live_bytes);
    metric(table, "own_writes", status.writes);
    metric(table, "own_zones_dropped", status.dropped);
    metric(table, "own_chunks_evacuated", status.evacuated);
    metric(table, "own_backlog_blocks_free", status.blocks_free);
    metric(table, "own_zones_under_replicated", status.under_replicated);
    metric(table, "own_zones_bare", status.bare);
    metric(table, "own_zones_full", status.full);
    metric(table, "own_zones_damaged", status.damaged);
    metric(table, "own_zones_repaired", status.repaired);
    metric(table, "own_backups_stalled", status.stalled);
    metric(table, "own_backups_given_up", status.given_up);
    metric(table, "own_comparisons", status.compared);
    metric(table, "own_records_lost", status.records_lost);
    metric(table, "own_copies", status.copies);
    metric(table, "own_copies_max", status.copies_max);
    metric(table, "own_copies_done", status.copies_done);
    metric(table, "own_copy_bytes_per_s", status.copy_bytes_per_s);
    metric(table, "own_copied_bytes", status.copied_bytes);
    metric(table, "own_messages", status.messages);
    metric(table, "own_message_bytes", status.message_bytes);
    metric(table, "own_trouble", status.trouble);
    metric(table, "own_streams", status.streams);
    metric(table, "own_streams_waiting", status.streams_waiting);
    metric(table, "own_pending_bytes", status.pending_bytes);
    metric(table, "own_waiting_bytes", status.waiting_bytes);
    metric(table, "own_in_flight_bytes", status.flying_bytes);
    metric(table, "own_credit_bytes", status.credit_bytes);
    metric(table, "own_resent_bytes", status.again_bytes);
    metric(table, "own_acks", status.acks);
    metric(table, "own_ack_ns", status.ack_ns);
    metric(table, "own_ack_longest_ns", status.ack_longest_ns);
}

static void kept_metrics(const struct sh_keeper *keeper, struct sh_log_table *table)
{
    struct sh_keeper_status status = {0};
    if (keeper)
        sh_keeper_status_get(keeper, &status);
    metric(table, "kept_zones", status.zones);
    metric(table, "kept_zones_open", status.open);
    metric(table, "kept_messages", status.messages);
    metric(table, "kept_entries", status.entries);
    metric(table, "kept_bytes", status.bytes);
    metric(table, "kept_entries_passed_over", status.passed_over);
    metric(table, "kept_messages_refused", status.refused);
    metric(table, "kept_gaps", status.gaps);
    metric(table, "kept_malformed", status.malformed);
    metric(table, "kept_acks", status.acks);
    metric(table, "kept_ack_messages", status.ack_messages);
    metric(table, "kept_streams_full", status.full);
    metric(table, "kept_streams_lost", status.lost);
    metric(table, "kept_replicas_asked_about", status.asked);
    metric(table, "kept_orphans_dropped", status.orphans);
}

static void tell_metrics(const struct sh_logs_told *told, struct sh_log_table *table)
{
    struct sh_replog_status status;
    sh_replog_status_get(told->log, &status);
    log_write_metrics(told->log, &status, table);
    log_state_metrics(told->log, &status, table);
    own_metrics(told->backup, table);
    kept_metrics(told->keeper, table);
    table->rows = 1;
}

/* Numbers on the wire, and names in proto/logs.c. */
_Static_assert(SH_SINK_HOME == 1 && SH_SINK_CLOSED == 2 && SH_SINK_OPENING == 3 &&
                   SH_SINK_CLOSING == 4 && SH_SINK_STREAMING == 5 && SH_SINK_FULL == 6 &&
                   SH_SINK_LOST == 7,
               "states have the numbers that clients know");

/* --- Zones and slots --------------------------------------------------------------------------- */

static void own_zone_rows(const struct sh_zone_state *zone, struct sh_log_table *table)
{
    static const struct sh_zone_state_backup none = {.state = SH_SINK_NONE};
    for (unsigned i = 0; i < zone->count || i == 0; i++) {
        const struct sh_zone_state_backup *at = zone->count ? &zone->backups[i] : &none;
        const uint64_t values[] = {zone->number,
                                   zone->incarnation,
                                   zone->wanted,
                                   zone->is_concluded,
                                   zone->live_bytes,
                                   zone->next,
                                   zone->acked[SH_LEVEL_REPLICATED],
                                   zone->acked[SH_LEVEL_DURABLE],
                                   at->nid.v,
                                   at->disk,
                                   at->state,
                                   at->why,
                                   at->is_recorded,
                                   at->is_stalled,
                                   at->is_added,
                                   at->copied_bytes,
                                   at->pending_bytes,
                                   at->acked[SH_LEVEL_REPLICATED],
                                   at->acked[SH_LEVEL_DURABLE]};
        SH_ASSERT(table->columns == sizeof values / sizeof values[0]);
        row(table, values);
    }
}

static void tell_own(const struct sh_logs_told *told, uint64_t cursor, struct sh_log_table *table)
{
    static const char *const names[] = {"zone",
                                        "incarnation",
                                        "wanted",
                                        "concluded",
                                        "live_bytes",
                                        "next",
                                        "acked_replicated",
                                        "acked_durable",
                                        "node",
                                        "disk",
                                        "state",
                                        "why",
                                        "recorded",
                                        "stalled",
                                        "added",
                                        "copied_bytes",
                                        "pending_bytes",
                                        "replicated",
                                        "durable"};
    struct sh_zone_state zone;
    columns(table, names, sizeof names / sizeof names[0]);
    bool is_more = sh_backup_zone_state(told->backup, cursor, &zone);
    for (unsigned i = 0; is_more && i < OWN_ZONES_EACH; i++) {
        own_zone_rows(&zone, table);
        is_more = sh_backup_zone_state(told->backup, zone.number + 1, &zone);
    }
    table->next = is_more ? zone.number : 0;
}

static void tell_kept(const struct sh_logs_told *told, uint64_t cursor, struct sh_log_table *table)
{
    static const char *const names[] = {"zone",   "owner",     "incarnation",  "written",
                                        "slots",  "slots_max", "bytes",        "next",
                                        "handed", "durable",   "slots_damaged"};
    struct sh_replog_look_zone zones[KEPT_ZONES_EACH];
    size_t count = sh_replog_look_zones(told->log, &cursor, zones, KEPT_ZONES_EACH);
    columns(table, names, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < count; i++) {
        const struct sh_replog_look_zone *zone = &zones[i];
        const uint64_t values[] = {
            zone->id,     zone->owner,     zone->known.incarnation, zone->known.is_added,
            zone->slots,  zone->slots_max, zone->slot_bytes,        zone->next,
            zone->handed, zone->durable,   zone->damage.slots};
        SH_ASSERT(table->columns == sizeof values / sizeof values[0]);
        row(table, values);
    }
    table->next = cursor;
}

static void tell_slots(const struct sh_logs_told *told, uint64_t cursor, struct sh_log_table *table)
{
    static const char *const names[] = {"slot",          "zone",    "kind",  "filled_bytes",
                                        "begun_seconds", "pending", "found", "closed"};
    struct sh_replog_look_slot slots[SLOTS_EACH];
    size_t count = sh_replog_look_slots(told->log, &cursor, slots, SLOTS_EACH);
    columns(table, names, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < count; i++) {
        const struct sh_replog_look_slot *slot = &slots[i];
        const uint64_t values[] = {slot->slot,         slot->zone,          slot->kind,
                                   slot->filled_bytes, slot->since_seconds, slot->pending,
                                   slot->is_found,     slot->is_closed};
        SH_ASSERT(table->columns == sizeof values / sizeof values[0]);
        row(table, values);
    }
    table->next = cursor;
}

/* --- What was asked for -------------------------------------------------------------------------- */

_Static_assert(SH_REPLOG_HARM_DAMAGED == 0 && SH_REPLOG_HARM_HEAD == 1 &&
                   SH_REPLOG_HARM_HALF == 2 && SH_REPLOG_HARM_UNREADABLE == 3,
               "harms have the numbers that clients know");

static void tell_scrub(const struct sh_logs_told *told, struct sh_log_table *table)
{
    const struct sh_replog_scrub_state state = sh_replog_scrub_state(told->log);
    metric(table, "number", state.number);
    metric(table, "zone", state.zone);
    metric(table, "running", state.is_running);
    metric(table, "slots", state.slots);
    metric(table, "slots_done", state.slots_done);
    metric(table, "slots_passed_over", state.slots_passed_over);
    metric(table, "bytes", state.bytes);
    metric(table, "places", state.places);
    table->rows = 1;
}

static void tell_places(const struct sh_logs_told *told, uint64_t cursor,
                        struct sh_log_table *table)
{
    static const char *const names[] = {"harm", "kind", "slot", "offset", "zone", "gone"};
    struct sh_replog_place places[SH_REPLOG_PLACES_MAX];
    size_t count = sh_replog_scrub_places(told->log, &cursor, places, SH_REPLOG_PLACES_MAX);
    columns(table, names, sizeof names / sizeof names[0]);
    for (size_t i = 0; i < count; i++) {
        const uint64_t values[] = {places[i].harm,   places[i].kind, places[i].slot,
                                   places[i].offset, places[i].zone, places[i].is_gone};
        SH_ASSERT(table->columns == sizeof values / sizeof values[0]);
        row(table, values);
    }
    table->next = cursor;
}

static void tell_dump(const struct sh_logs_dump *dump, struct sh_log_table *table)
{
    metric(table, "number", dump->number);
    metric(table, "zone", dump->zone);
    metric(table, "over", dump->is_over);
    metric(table, "err", dump->err);
    metric(table, "slots", dump->dumped.slots);
    metric(table, "slots_gone", dump->dumped.slots_gone);
    metric(table, "slots_unreadable", dump->dumped.slots_unreadable);
    metric(table, "end", dump->dumped.end);
    table->rows = 1;
}

/* --- The answer -------------------------------------------------------------------------------- */

static void tell(const struct sh_logs_told *told, uint8_t kind, uint64_t cursor,
                 struct sh_log_table *table)
{
    table->next = 0;
    table->columns = 0;
    table->rows = 0;
    switch ((enum sh_log_table_kind)kind) {
    case SH_LOG_TABLE_METRICS:
        tell_metrics(told, table);
        break;
    case SH_LOG_TABLE_OWN:
        tell_own(told, cursor, table);
        break;
    case SH_LOG_TABLE_KEPT:
        tell_kept(told, cursor, table);
        break;
    case SH_LOG_TABLE_SLOTS:
        tell_slots(told, cursor, table);
        break;
    case SH_LOG_TABLE_SCRUB:
        tell_scrub(told, table);
        break;
    case SH_LOG_TABLE_PLACES:
        tell_places(told, cursor, table);
        break;
    case SH_LOG_TABLE_DUMP:
        tell_dump(told->dump, table);
        break;
    }
}

static void refuse(struct sh_msg_in *in, const struct sh_logs_told *told, enum shoal_err err)
{
    const char *text = NULL;
    if (err == SHOAL_ENONAME)
        text = told->log ? "the log has nothing of that zone"
                         : "the node has no log (option replicas)";
    else if (err == SHOAL_EBUSY)
        text = sh_logs_dump_busy(told->dump);
    else if (err == SHOAL_EFULL)
        text = "the zone has more chunks than a dump has memory for";
    else if (err == SHOAL_ECANCELED)
        text = "nobody has asked for the next page for ten seconds, or another dump has begun";
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

void sh_logs_table_answer(const struct sh_logs_told *told, struct sh_msg_in *in)
{
    uint8_t kind = sh_get8(&in->payload);
    uint64_t cursor = sh_get64(&in->payload);
    struct sh_log_table *table = NULL;
    enum shoal_err err = SHOAL_OK;
    if (!sh_reader_done(&in->payload) || kind >= SH_LOG_TABLES)
        err = SHOAL_EPROTO;
    else if (!told->log)
        err = SHOAL_ENONAME;
    else if (!(table = malloc(sizeof *table)))
        err = SHOAL_ENOMEM;
    if (err) {
        refuse(in, told, err);
        return;
    }
    struct sh_out out;
    tell(told, kind, cursor, table);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sh_log_table_bytes(table), &out) ==
        SHOAL_OK) {
        sh_log_table_put(&out.w, table);
        sh_msg_end(in->msg, &out);
    }
    free(table);
}

void sh_logs_scrub_answer(const struct sh_logs_told *told, struct sh_msg_in *in)
{
    uint64_t zone = sh_get64(&in->payload), rate = sh_get64(&in->payload), number = 0;
    enum shoal_err err = SHOAL_OK;
    struct sh_out out;
    if (!sh_reader_done(&in->payload) || rate > SCRUB_RATE_MAX)
        err = SHOAL_EPROTO;
    else if (!told->log)
        err = SHOAL_ENONAME;
    else
        err = sh_replog_scrub_begin(told->log, zone, rate ? rate : SCRUB_RATE, &number);
    if (err) {
        refuse(in, told, err);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sizeof number, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, number);
    sh_msg_end(in->msg, &out);
}

void sh_logs_dump_answer(const struct sh_logs_told *told, uint64_t now_ns, struct sh_msg_in *in)
{
    struct sh_log_dump_ask ask;
    const struct sh_log_table *page = NULL;
    struct sh_out out;
    enum shoal_err err = SHOAL_OK;
    if (!sh_log_dump_ask_get(&in->payload, &ask))
        err = SHOAL_EPROTO;
    else if (!told->log)
        err = SHOAL_ENONAME;
    else if (!ask.dump)
        err = sh_logs_dump_begin(told->dump, told->log, ask.zone, ask.chunk, now_ns);
    else
        err = sh_logs_dump_page(told->dump, ask.dump, ask.page, now_ns, &page);
    if (err) {
        refuse(in, told, err);
        return;
    }
    /* A page that is not filled yet is to be asked for again. */
    size_t bytes = page ? sh_log_table_bytes(page) : 8 + 2 + 4;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 8 + bytes, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, told->dump->number);
    if (page) {
        sh_log_table_put(&out.w, page);
    } else {
        sh_put64(&out.w, ask.page);
        sh_put16(&out.w, 0);
        sh_put32(&out.w, 0);
    }
    sh_msg_end(in->msg, &out);
}
