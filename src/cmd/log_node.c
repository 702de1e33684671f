/* shoal log info, shoal log segments: of a node that runs, which says what it knows without reading its disk. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "cmd/log_int.h"
#include "cmd/text_int.h"
#include "log/slot.h"

#define PAGES_MAX 100000 /* of a table: a node that says "more" for ever is not believed */

bool sh_log_is_of_node(const struct sh_cmd *cmd)
{
    shoal_nid nid;
    return sh_nid_parse(cmd->words[0], &nid) == SHOAL_OK;
}

int sh_log_node_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid)
{
    char detail[64];
    if (err == SHOAL_EFULL)
        return sh_cmd_fail_hint(cmd, err, shoal_error_detail(), "name one chunk with --chunk");
    if (err == SHOAL_ECANCELED)
        return sh_cmd_fail_hint(cmd, err, shoal_error_detail(),
                                "write it to a file, and read that");
    if (err == SHOAL_EBUSY)
        return sh_cmd_fail_hint(cmd, err, shoal_error_detail(), "try again in ten seconds");
    if (err != SHOAL_ENONAME || cmd->flags.zone)
        return sh_cmd_fail_node(cmd, err, nid);
    snprintf(detail, sizeof detail, "node %u has no log", (unsigned)nid.v);
    return sh_cmd_fail_hint(cmd, err, detail,
                            "name a peer that was started with the option replicas");
}

int sh_log_node_table(struct sh_cmd *cmd, shoal_nid nid, enum sh_log_table_kind kind,
                      void (*show)(void *arg, const struct sh_log_table *table, uint32_t row),
                      void *arg)
{
    uint64_t cursor = 0;
    enum shoal_err err = SHOAL_OK;
    struct sh_log_table *table = malloc(sizeof *table);
    if (!table)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    for (unsigned page = 0; page < PAGES_MAX; page++) {
        err = sh_client_log_table(cmd->store, nid, kind, cursor, table);
        for (uint32_t i = 0; !err && i < table->rows; i++)
            show(arg, table, i);
        if (err || !table->next)
            break;
        cursor = table->next;
    }
    free(table);
    return err ? sh_log_node_fail(cmd, err, nid) : SH_EXIT_OK;
}

/* All columns of a row, under their names, but for some. */
static void values_json(struct sh_json *into, const struct sh_log_table *table, uint32_t row,
                        unsigned first, unsigned end)
{
    for (unsigned i = first; i < end && i < table->columns; i++)
        sh_json_set_u64(into, table->names[i], table->values[(size_t)row * table->columns + i]);
}

static unsigned column_of(const struct sh_log_table *table, const char *name)
{
    unsigned i = 0;
    while (i < table->columns && strcmp(table->names[i], name) != 0)
        i++;
    return i;
}

static const char *err_name(uint64_t err)
{
    return err ? shoal_err_name((enum shoal_err)err) : NULL;
}

#define STATE_TEXT_MAX 16

/* --- shoal log info ---------------------------------------------------------------------------- */

struct info {
    struct sh_cmd *cmd;
    shoal_nid nid;
    struct sh_json *root; /* NULL: it is printed */
    struct sh_json *own, *kept, *backups;
    uint64_t zone; /* whose backups these are */
    uint64_t rows; /* of the table so far */
};

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

/* Bytes written for each byte that was appended, by what wrote them. */
struct amplification {
    double primary, entries, survivors, versions, heads;
};

static struct amplification amplification_of(const struct sh_log_table *table)
{
    uint64_t appended = sh_log_table_value(table, 0, "log_append_bytes");
    uint64_t survivors = sh_log_table_value(table, 0, "log_survivor_write_bytes");
    uint64_t versions = sh_log_table_value(table, 0, "log_version_write_bytes");
    uint64_t slots = sh_log_table_value(table, 0, "log_slot_write_bytes");
    uint64_t entries = slots > survivors + versions ? slots - survivors - versions : 0;
    return (struct amplification){
        .primary = share(sh_log_table_value(table, 0, "log_primary_write_bytes"), appended),
        .entries = share(entries, appended),
        .survivors = share(survivors, appended),
        .versions = share(versions, appended),
        .heads = share(sh_log_table_value(table, 0, "log_head_write_bytes"), appended)};
}

static double amplification_sum(const struct amplification *by)
{
    return by->primary + by->entries + by->survivors + by->versions + by->heads;
}

/* Of the entries that the cleaner has looked at, how many it had to copy: what a free slot costs. */
static double kept_share(const struct sh_log_table *table)
{
    uint64_t kept = sh_log_table_value(table, 0, "log_entries_kept");
    return share(kept, kept + sh_log_table_value(table, 0, "log_entries_dropped"));
}

static void metrics_json(struct info *info, const struct sh_log_table *table)
{
    struct sh_json *metrics = sh_json_object(), *derived = sh_json_object();
    struct amplification by = amplification_of(table);
    uint64_t slots = sh_log_table_value(table, 0, "log_slots");
    values_json(metrics, table, 0, 0, table->columns);
    sh_json_set_f64(derived, "amplification", amplification_sum(&by));
    sh_json_set_f64(derived, "amplification_primary", by.primary);
    sh_json_set_f64(derived, "amplification_entries", by.entries);
    sh_json_set_f64(derived, "amplification_survivors", by.survivors);
    sh_json_set_f64(derived, "amplification_versions", by.versions);
    sh_json_set_f64(derived, "amplification_heads", by.heads);
    sh_json_set_f64(derived, "slot_write_mean_bytes",
                    share(sh_log_table_value(table, 0, "log_slot_write_bytes"),
                          sh_log_table_value(table, 0, "log_slot_writes")));
    sh_json_set_f64(derived, "primary_write_mean_bytes",
                    share(sh_log_table_value(table, 0, "log_primary_write_bytes"),
                          sh_log_table_value(table, 0, "log_primary_writes")));
    sh_json_set_f64(derived, "buffer_used_share",
                    share(sh_log_table_value(table, 0, "log_buffer_used_bytes"),
                          sh_log_table_value(table, 0, "log_buffer_bytes")));
    sh_json_set_f64(derived, "slots_used_share",
                    share(slots - sh_log_table_value(table, 0, "log_slots_free"), slots));
    sh_json_set_f64(derived, "cleaned_entries_kept_share", kept_share(table));
    sh_json_set_f64(derived, "cleaned_slots_mean",
                    share(sh_log_table_value(table, 0, "log_slots_cleaned"),
                          sh_log_table_value(table, 0, "log_cleanings")));
    sh_json_set_f64(derived, "own_ack_mean_ns",
                    share(sh_log_table_value(table, 0, "own_ack_ns"),
                          sh_log_table_value(table, 0, "own_acks")));
    sh_json_set_u64(info->root, "node", info->nid.v);
    sh_json_set(info->root, "metrics", metrics);
    sh_json_set(info->root, "derived", derived);
}

static const char *size_of(const struct sh_log_table *table, const char *name,
                           char text_out[SH_SIZE_TEXT_MAX])
{
    return sh_size_format(sh_log_table_value(table, 0, name), text_out);
}

static void writes_print(FILE *out, const struct sh_log_table *table)
{
    char a[SH_SIZE_TEXT_MAX], b[SH_SIZE_TEXT_MAX], c[SH_SIZE_TEXT_MAX];
    struct amplification by = amplification_of(table);
    uint64_t slot_writes = sh_log_table_value(table, 0, "log_slot_writes");
    uint64_t slot_bytes = sh_log_table_value(table, 0, "log_slot_write_bytes");
    uint64_t packs = sh_log_table_value(table, 0, "log_primary_writes");
    uint64_t pack_bytes = sh_log_table_value(table, 0, "log_primary_write_bytes");
    fprintf(out, "Appended since the start: %" PRIu64 " entries of %s.\n",
            sh_log_table_value(table, 0, "log_appends"), size_of(table, "log_append_bytes", a));
    fprintf(out,
            "Written for that: %" PRIu64 " packs of %s on average, %" PRIu64
            " batches of %s to slots; %" PRIu64 " syncs.\n",
            packs, sh_size_format(packs ? pack_bytes / packs : 0, a), slot_writes,
            sh_size_format(slot_writes ? slot_bytes / slot_writes : 0, b),
            sh_log_table_value(table, 0, "log_syncs"));
    fprintf(out,
            "Bytes written for each that was appended: %.2f (primary log %.2f, slots %.2f, cleaner "
            "%.2f, versions %.2f, heads %.2f).\n",
            amplification_sum(&by), by.primary, by.entries, by.survivors, by.versions, by.heads);
    fprintf(out,
            "Cleaned: %" PRIu64 " slots; %" PRIu64 " entries dropped, %" PRIu64
            " copied (%.0f %%), %s written for that.\n",
            sh_log_table_value(table, 0, "log_slots_cleaned"),
            sh_log_table_value(table, 0, "log_entries_dropped"),
            sh_log_table_value(table, 0, "log_entries_kept"), 100 * kept_share(table),
            size_of(table, "log_survivor_write_bytes", c));
}

static void metrics_print(const struct info *info, const struct sh_log_table *table)
{
    char a[SH_SIZE_TEXT_MAX], b[SH_SIZE_TEXT_MAX];
    FILE *out = info->cmd->out;
    uint64_t slots = sh_log_table_value(table, 0, "log_slots");
    uint64_t slots_free = sh_log_table_value(table, 0, "log_slots_free");
    const char *trouble = err_name(sh_log_table_value(table, 0, "log_trouble"));
    fprintf(out,
            "Log of node %u, file of %s.\n%" PRIu64 " slots of %s: %" PRIu64 " in use, %" PRIu64
            " free.\n",
            (unsigned)info->nid.v, size_of(table, "log_file_bytes", a), slots,
            size_of(table, "log_slot_bytes", b), slots - slots_free, slots_free);
    if (trouble)
        fprintf(out, "The log is out of service: %s.\n", trouble);
    fprintf(out, "Buffer: %s of %s in use.\n", size_of(table, "log_buffer_used_bytes", a),
            size_of(table, "log_buffer_bytes", b));
    writes_print(out, table);
    fprintf(out,
            "Own zones: %" PRIu64 " with %s; %" PRIu64 " have too few backups, %" PRIu64
            " none; %" PRIu64 " copies are under way, %" PRIu64 " are done, %s copied.\n",
            sh_log_table_value(table, 0, "own_zones"), size_of(table, "own_live_bytes", a),
            sh_log_table_value(table, 0, "own_zones_under_replicated"),
            sh_log_table_value(table, 0, "own_zones_bare"),
            sh_log_table_value(table, 0, "own_copies"),
            sh_log_table_value(table, 0, "own_copies_done"), size_of(table, "own_copied_bytes", b));
    uint64_t full = sh_log_table_value(table, 0, "own_zones_full");
    if (full)
        fprintf(out,
                "%" PRIu64 " of them are full: the log has no room for what comes next of "
                "their chunks.\n",
                full);
    uint64_t stalled = sh_log_table_value(table, 0, "own_backups_stalled");
    uint64_t given_up = sh_log_table_value(table, 0, "own_backups_given_up");
    if (stalled || given_up)
        fprintf(out,
                "Backups of these: %" PRIu64 " stand still, and writes wait for them; %" PRIu64
                " were given up as too slow since the start.\n",
                stalled, given_up);
    fprintf(out,
            "Kept for others: %" PRIu64 " zones, %" PRIu64 " of them open; %" PRIu64
            " entries of %s taken.\n",
            sh_log_table_value(table, 0, "kept_zones"),
            sh_log_table_value(table, 0, "kept_zones_open"),
            sh_log_table_value(table, 0, "kept_entries"), size_of(table, "kept_bytes", a));
    uint64_t orphans = sh_log_table_value(table, 0, "kept_orphans_dropped");
    if (orphans)
        fprintf(out, "%" PRIu64 " replicas were dropped since the start, as nobody needed them.\n",
                orphans);
    uint64_t lost = sh_log_table_value(table, 0, "own_records_lost");
    if (lost)
        fprintf(out,
                "%" PRIu64 " records of own zones were missing or old at the superpeers since the "
                "start: they were registered again.\n",
                lost);
}

static void show_metrics(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct info *info = arg;
    if (row > 0)
        return;
    if (info->root)
        metrics_json(info, table);
    else
        metrics_print(info, table);
}

static const char *own_zone_format(const struct info *info, uint64_t number,
                                   char text_out[SH_ZONE_TEXT_MAX])
{
    snprintf(text_out, SH_ZONE_TEXT_MAX, "%u:%" PRIu64, (unsigned)info->nid.v,
             number & ((UINT64_C(1) << 48) - 1));
    return text_out;
}

/* A row is a backup: those of a zone come one after the other. */
static void own_json(struct info *info, const struct sh_log_table *table, uint32_t row)
{
    char text[SH_ZONE_TEXT_MAX];
    unsigned node = column_of(table, "node");
    uint64_t zone = sh_log_table_value(table, row, "zone");
    if (!info->backups || zone != info->zone) {
        struct sh_json *json = sh_json_object();
        info->backups = sh_json_array();
        info->zone = zone;
        values_json(json, table, row, 1, node);
        sh_json_set_text(json, "zone", own_zone_format(info, zone, text));
        sh_json_set(json, "backups", info->backups);
        sh_json_append(info->own, json);
    }
    if (!sh_log_table_value(table, row, "node"))
        return;
    struct sh_json *backup = sh_json_object();
    values_json(backup, table, row, node, table->columns);
    sh_json_set_text(backup, "state", sh_log_sink_name(sh_log_table_value(table, row, "state")));
    sh_json_set_text(backup, "why", err_name(sh_log_table_value(table, row, "why")));
    sh_json_append(info->backups, backup);
}

/* The state of a backup; of one that the zone is copied to, how much of that it has been told. */
static const char *own_state_format(const struct sh_log_table *table, uint32_t row,
                                    char text_out[STATE_TEXT_MAX])
{
    uint64_t copied = sh_log_table_value(table, row, "copied_bytes");
    uint64_t live = sh_log_table_value(table, row, "live_bytes");
    if (sh_log_table_value(table, row, "stalled"))
        return "stalled";
    if (!sh_log_table_value(table, row, "added"))
        return sh_log_sink_name(sh_log_table_value(table, row, "state"));
    snprintf(text_out, STATE_TEXT_MAX, "copied %.0f%%",
             copied < live ? 100 * share(copied, live) : 100);
    return text_out;
}

static void own_print(struct info *info, const struct sh_log_table *table, uint32_t row)
{
    char text[SH_ZONE_TEXT_MAX], live[SH_SIZE_TEXT_MAX], pending[SH_SIZE_TEXT_MAX];
    char state[STATE_TEXT_MAX];
    FILE *out = info->cmd->out;
    if (info->rows++ == 0)
        fprintf(out, "\n%-14s %11s %10s %12s %12s %12s %7s %-10s %10s\n", "OWN ZONE", "INCARNATION",
                "LIVE", "NEXT", "REPLICATED", "DURABLE", "BACKUP", "STATE", "PENDING");
    fprintf(out,
            "%-14s %11" PRIu64 " %10s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 " %7" PRIu64
            " %-10s %10s\n",
            own_zone_format(info, sh_log_table_value(table, row, "zone"), text),
            sh_log_table_value(table, row, "incarnation"),
            sh_size_format(sh_log_table_value(table, row, "live_bytes"), live),
            sh_log_table_value(table, row, "next"),
            sh_log_table_value(table, row, "acked_replicated"),
            sh_log_table_value(table, row, "acked_durable"), sh_log_table_value(table, row, "node"),
            own_state_format(table, row, state),
            sh_size_format(sh_log_table_value(table, row, "pending_bytes"), pending));
}

static void show_own(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct info *info = arg;
    if (info->root)
        own_json(info, table, row);
    else
        own_print(info, table, row);
}

static void show_kept(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct info *info = arg;
    char text[SH_ZONE_TEXT_MAX], bytes[SH_SIZE_TEXT_MAX];
    FILE *out = info->cmd->out;
    (void)sh_zone_format(sh_log_table_value(table, row, "zone"), text);
    if (info->root) {
        struct sh_json *json = sh_json_object();
        values_json(json, table, row, 1, table->columns);
        sh_json_set_text(json, "zone", text);
        sh_json_append(info->kept, json);
        return;
    }
    if (info->rows++ == 0)
        fprintf(out, "\n%-14s %6s %11s %7s %10s %12s %12s %12s\n", "ZONE IN LOG", "OWNER",
                "INCARNATION", "SLOTS", "BYTES", "NEXT", "HANDED", "DURABLE");
    fprintf(out,
            "%-14s %6" PRIu64 " %11" PRIu64 " %7" PRIu64 " %10s %12" PRIu64 " %12" PRIu64
            " %12" PRIu64 "%s\n",
            text, sh_log_table_value(table, row, "owner"),
            sh_log_table_value(table, row, "incarnation"), sh_log_table_value(table, row, "slots"),
            sh_size_format(sh_log_table_value(table, row, "bytes"), bytes),
            sh_log_table_value(table, row, "next"), sh_log_table_value(table, row, "handed"),
            sh_log_table_value(table, row, "durable"),
            sh_log_table_value(table, row, "slots_damaged") ? "  damaged" : "");
}

int sh_log_node_open(struct sh_cmd *cmd, shoal_nid *nid_out)
{
    if (cmd->flags.log_file)
        return sh_cmd_usage(cmd, "--file is for a folder; %.40s is a node", cmd->words[0]);
    return sh_cmd_open_for_node(cmd, nid_out);
}

int sh_log_node_info(struct sh_cmd *cmd)
{
    struct info info = {.cmd = cmd};
    int status = sh_log_node_open(cmd, &info.nid);
    if (status != SH_EXIT_OK)
        return status;
    if (cmd->flags.json) {
        info.root = sh_json_object();
        info.own = sh_json_array();
        info.kept = sh_json_array();
    }
    status = sh_log_node_table(cmd, info.nid, SH_LOG_TABLE_METRICS, show_metrics, &info);
    if (status == SH_EXIT_OK)
        status = sh_log_node_table(cmd, info.nid, SH_LOG_TABLE_OWN, show_own, &info);
    info.rows = 0;
    if (status == SH_EXIT_OK)
        status = sh_log_node_table(cmd, info.nid, SH_LOG_TABLE_KEPT, show_kept, &info);
    if (info.root && status == SH_EXIT_OK) {
        sh_json_set(info.root, "own", info.own);
        sh_json_set(info.root, "zones", info.kept);
        return sh_cmd_answer(cmd, info.root);
    }
    sh_json_free(info.own);
    sh_json_free(info.kept);
    sh_json_free(info.root);
    return status;
}

/* --- shoal log segments ------------------------------------------------------------------------ */

struct segments {
    struct sh_cmd *cmd;
    struct sh_json *list; /* NULL: they are printed */
    uint64_t zone;        /* 0: all */
    uint64_t rows;
};

const char *sh_log_kind_name_of(uint64_t kind)
{
    bool is_known = kind >= SH_SLOT_ENTRIES && kind <= SH_SLOT_DROPPED;
    return is_known ? sh_log_kind_name((enum sh_log_slot_kind)kind) : "unknown";
}

static void show_slot(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct segments *segments = arg;
    char zone[SH_ZONE_TEXT_MAX], filled[SH_SIZE_TEXT_MAX];
    uint64_t id = sh_log_table_value(table, row, "zone");
    const char *kind = sh_log_kind_name_of(sh_log_table_value(table, row, "kind"));
    bool is_found = sh_log_table_value(table, row, "found");
    bool is_closed = sh_log_table_value(table, row, "closed");
    if (segments->zone && id != segments->zone)
        return;
    (void)sh_zone_format(id, zone);
    if (segments->list) {
        struct sh_json *json = sh_json_object();
        values_json(json, table, row, 0, 1);
        sh_json_set_text(json, "zone", zone);
        sh_json_set_text(json, "kind", kind);
        sh_json_set_u64(json, "filled_bytes", sh_log_table_value(table, row, "filled_bytes"));
        sh_json_set_u64(json, "begun_seconds", sh_log_table_value(table, row, "begun_seconds"));
        sh_json_set_u64(json, "pending", sh_log_table_value(table, row, "pending"));
        sh_json_set_bool(json, "is_found", is_found);
        sh_json_set_bool(json, "is_closed", is_closed);
        sh_json_append(segments->list, json);
        return;
    }
    if (segments->rows++ == 0)
        fprintf(segments->cmd->out, "%8s %-14s %-9s %10s %12s %8s  %s\n", "SLOT", "ZONE", "KIND",
                "FILLED", "BEGUN AT", "PENDING", "STATE");
    fprintf(segments->cmd->out, "%8" PRIu64 " %-14s %-9s %10s %12" PRIu64 " %8" PRIu64 "  %s\n",
            sh_log_table_value(table, row, "slot"), zone, kind,
            sh_size_format(sh_log_table_value(table, row, "filled_bytes"), filled),
            sh_log_table_value(table, row, "begun_seconds"),
            sh_log_table_value(table, row, "pending"),
            is_found    ? "found at the start"
            : is_closed ? "closed"
                        : "open");
}

int sh_log_node_segments(struct sh_cmd *cmd)
{
    shoal_nid nid;
    struct segments segments = {.cmd = cmd};
    int status = sh_log_zone_take(cmd, &segments.zone);
    if (status == SH_EXIT_OK)
        status = sh_log_node_open(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    if (cmd->flags.json)
        segments.list = sh_json_array();
    status = sh_log_node_table(cmd, nid, SH_LOG_TABLE_SLOTS, show_slot, &segments);
    if (segments.list && status == SH_EXIT_OK) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "node", nid.v);
        sh_json_set(root, "segments", segments.list);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(segments.list);
    return status;
}
