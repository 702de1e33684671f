/* shoal recovery: lists the zones whose owners have failed, with the state of each recovery. With --accept-loss: recovery_accept.c. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/log_int.h"
#include "cmd/process_int.h"
#include "cmd/recovery_int.h"
#include "cmd/text_int.h"

static const char *const states[] = {[SH_RECOVERY_ASKS] = "asks",
                                     [SH_RECOVERY_WAITS] = "waits",
                                     [SH_RECOVERY_RESTORES] = "restores",
                                     [SH_RECOVERY_LOST] = "lost",
                                     [SH_RECOVERY_OLDER] = "older"};

static const char *const phases[SH_RESTORE_PHASES] = {
    [SH_RESTORE_UNKNOWN] = "unknown", [SH_RESTORE_QUEUED] = "queued", [SH_RESTORE_READS] = "reads",
    [SH_RESTORE_ORDER] = "order",     [SH_RESTORE_TAKES] = "takes",   [SH_RESTORE_OPENS] = "opens",
    [SH_RESTORE_RETRIES] = "retries"};

struct listing {
    struct sh_cmd *cmd;
    struct sh_json *zones;
    struct sh_recovery_sum sum;
};

/* --- Sums -------------------------------------------------------------------------------------- */

static void sum_add(struct sh_recovery_sum *sum, const struct sh_recovery *recovery)
{
    sum->counts[recovery->state]++;
    sum->read += recovery->progress.read; /* 0, unless the zone is being restored */
    sum->bytes += recovery->progress.bytes;
    sum->without_room += recovery->progress.missing > 0;
    sum->missing_bytes += recovery->progress.missing;
    for (unsigned i = 0; i < recovery->zone.count; i++) {
        shoal_nid nid = recovery->zone.backups[i].nid;
        if (recovery->waits >> i & 1)
            sum->awaited[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
    }
}

static bool on_summed(void *arg, const struct sh_recovery *recovery)
{
    sum_add(arg, recovery);
    return true;
}

void sh_recovery_sum_get(shoal *store, struct sh_recovery_sum *sum_out)
{
    *sum_out = (struct sh_recovery_sum){.err = SHOAL_OK};
    sum_out->err = sh_client_recoveries(store, on_summed, sum_out);
}

uint64_t sh_recovery_sum_under_way(const struct sh_recovery_sum *sum)
{
    return sum->counts[SH_RECOVERY_ASKS] + sum->counts[SH_RECOVERY_WAITS] +
           sum->counts[SH_RECOVERY_RESTORES];
}

/* Calls back for each node that is waited for. */
static void each_awaited(const struct sh_recovery_sum *sum, void (*each)(void *arg, unsigned nid),
                         void *arg)
{
    for (unsigned nid = 0; nid <= UINT16_MAX; nid++) {
        if (sum->awaited[nid / 64] >> nid % 64 & 1)
            each(arg, nid);
    }
}

static void nid_append(void *arg, unsigned nid)
{
    sh_json_append_u64(arg, nid);
}

struct sh_json *sh_recovery_sum_json(const struct sh_recovery_sum *sum)
{
    struct sh_json *row = sh_json_object(), *awaited = sh_json_array();
    for (unsigned i = SH_RECOVERY_ASKS; i <= SH_RECOVERY_OLDER; i++)
        sh_json_set_u64(row, states[i], sum->counts[i]);
    each_awaited(sum, nid_append, awaited);
    sh_json_set(row, "waits_for", awaited);
    sh_json_set_u64(row, "read_bytes", sum->read);
    sh_json_set_u64(row, "replica_bytes", sum->bytes);
    sh_json_set_u64(row, "without_room", sum->without_room);
    sh_json_set_u64(row, "missing_bytes", sum->missing_bytes);
    if (sum->err)
        sh_json_set_text(row, "error", shoal_err_name(sum->err));
    return row;
}

static void awaited_print(void *arg, unsigned nid)
{
    fprintf(
        arg,
        "Zones wait for the disk of node %u, which may have their last changes: start it; or if "
        "its data_dir is lost for good, `shoal node lost %u`.\n",
        nid, nid);
}

void sh_recovery_sum_print(FILE *out, const struct sh_recovery_sum *sum)
{
    const uint64_t *counts = sum->counts;
    char read[SH_SIZE_TEXT_MAX], bytes[SH_SIZE_TEXT_MAX];
    if (sum->err)
        fprintf(out, "What becomes of zones of nodes that failed can't be told now: %s\n",
                shoal_err_text(sum->err));
    if (sh_recovery_sum_under_way(sum))
        fprintf(out,
                "Zones of nodes that failed: %" PRIu64 " are being restored, of %" PRIu64
                " the backups are being asked, %" PRIu64 " wait for nodes.\n",
                counts[SH_RECOVERY_RESTORES], counts[SH_RECOVERY_ASKS], counts[SH_RECOVERY_WAITS]);
    if (sum->bytes)
        fprintf(out, "Of the replicas that they are restored from %s of %s are read.\n",
                sh_size_format(sum->read, read), sh_size_format(sum->bytes, bytes));
    each_awaited(sum, awaited_print, out);
    if (sum->without_room)
        fprintf(out,
                "Zones for which there was no room when they were tried last: %" PRIu64
                "; %s more is needed. Their chunks are safe on the disks of their backups, and "
                "come back when there is room: start another peer, remove chunks, or "
                "raise store_bytes_max of a peer and start that again.\n",
                sum->without_room, sh_size_format(sum->missing_bytes, bytes));
    if (counts[SH_RECOVERY_OLDER])
        fprintf(out,
                "Zones that came back older: %" PRIu64
                ". Their last changes that were not durable may be missing.\n",
                counts[SH_RECOVERY_OLDER]);
    if (counts[SH_RECOVERY_LOST])
        fprintf(
            out,
            "Zones that are lost, with all replicas: %" PRIu64
            ". Calls on their chunks end with SHOAL_ELOST; `shoal backup restore` brings chunks "
            "back from a safety copy. Once nothing more is to be done, `shoal recovery "
            "--accept-loss "
            "all`.\n",
            counts[SH_RECOVERY_LOST]);
}

/* --- The command ------------------------------------------------------------------------------- */

bool sh_recovery_has_bounds(const struct sh_zone *zone)
{
    return zone->flags & SH_ZONE_CONCLUDED && zone->last.v;
}

shoal_nid sh_recovery_former(const struct sh_recovery *recovery)
{
    const struct sh_zone *zone = &recovery->zone;
    bool is_failed =
        recovery->state != SH_RECOVERY_RESTORES && recovery->state != SH_RECOVERY_OLDER;
    return zone->former.v ? zone->former : is_failed ? zone->owner : SHOAL_NID_NONE;
}

static shoal_nid owner_of(const struct sh_recovery *recovery)
{
    bool has_owner =
        recovery->state == SH_RECOVERY_RESTORES || recovery->state == SH_RECOVERY_OLDER;
    return has_owner ? recovery->zone.owner : SHOAL_NID_NONE;
}

struct sh_json *sh_recovery_zone_json(const struct sh_recovery *recovery)
{
    const struct sh_zone *zone = &recovery->zone;
    char text[SH_CID_TEXT_MAX];
    struct sh_json *row = sh_json_object(), *backups = sh_json_array(), *waits = sh_json_array();
    sh_json_set_text(row, "zone", sh_cid_format((shoal_cid){zone->id}, text));
    sh_json_set_text(row, "state", states[recovery->state]);
    if (sh_recovery_former(recovery).v)
        sh_json_set_u64(row, "former", sh_recovery_former(recovery).v);
    if (owner_of(recovery).v)
        sh_json_set_u64(row, "owner", owner_of(recovery).v);
    if (recovery->state == SH_RECOVERY_RESTORES) {
        sh_json_set_text(row, "phase", phases[recovery->progress.phase]);
        sh_json_set_u64(row, "read_bytes", recovery->progress.read);
        sh_json_set_u64(row, "replica_bytes", recovery->progress.bytes);
        sh_json_set_u64(row, "missing_bytes", recovery->progress.missing);
    }
    sh_json_set_bool(row, "concluded", zone->flags & SH_ZONE_CONCLUDED);
    if (sh_recovery_has_bounds(zone)) {
        sh_json_set_text(row, "first", sh_cid_format(zone->first, text));
        sh_json_set_text(row, "last", sh_cid_format(zone->last, text));
    }
    for (unsigned i = 0; i < zone->count; i++) {
        sh_json_append_u64(backups, zone->backups[i].nid.v);
        if (recovery->waits >> i & 1)
            sh_json_append_u64(waits, zone->backups[i].nid.v);
    }
    sh_json_set(row, "backups", backups);
    sh_json_set(row, "waits_for", waits);
    sh_json_set_u64(row, "older", zone->older);
    return row;
}

static void nid_print(FILE *out, shoal_nid nid)
{
    if (nid.v)
        fprintf(out, "  %6u", (unsigned)nid.v);
    else
        fprintf(out, "  %6s", "-");
}

/* What the owner of a zone that is being restored is at, with how much of the replica is read. */
static void progress_print(FILE *out, const struct sh_recovery *recovery)
{
    const struct sh_restore_progress *progress = &recovery->progress;
    char text[24] = "-";
    if (recovery->state == SH_RECOVERY_RESTORES && progress->bytes)
        snprintf(text, sizeof text, "%s %.0f%%", phases[progress->phase],
                 100.0 * (double)progress->read / (double)progress->bytes);
    else if (recovery->state == SH_RECOVERY_RESTORES)
        snprintf(text, sizeof text, "%s", phases[progress->phase]);
    fprintf(out, "  %-12s", text);
}

static void zone_print(FILE *out, const struct sh_recovery *recovery)
{
    const struct sh_zone *zone = &recovery->zone;
    char id[SH_CID_TEXT_MAX], first[SH_CID_TEXT_MAX] = "-", last[SH_CID_TEXT_MAX] = "-";
    if (sh_recovery_has_bounds(zone)) {
        (void)sh_cid_format(zone->first, first);
        (void)sh_cid_format(zone->last, last);
    }
    fprintf(out, "%-18s  %-8s", sh_cid_format((shoal_cid){zone->id}, id),
            recovery->progress.missing ? "no room" : states[recovery->state]);
    nid_print(out, sh_recovery_former(recovery));
    nid_print(out, owner_of(recovery));
    progress_print(out, recovery);
    fprintf(out, "  %-18s  %-18s ", first, last);
    for (unsigned i = 0; i < zone->count; i++)
        fprintf(out, " %u%s", (unsigned)zone->backups[i].nid.v,
                recovery->waits >> i & 1 ? "(away)" : "");
    fputc('\n', out);
}

static bool on_zone(void *arg, const struct sh_recovery *recovery)
{
    struct listing *listing = arg;
    bool is_first = true;
    for (unsigned i = SH_RECOVERY_ASKS; i <= SH_RECOVERY_OLDER; i++)
        is_first &= !listing->sum.counts[i];
    sum_add(&listing->sum, recovery);
    if (listing->cmd->flags.json) {
        sh_json_append(listing->zones, sh_recovery_zone_json(recovery));
        return true;
    }
    if (is_first)
        fprintf(listing->cmd->out, "%-18s  %-8s  %6s  %6s  %-12s  %-18s  %-18s  %s\n", "ZONE",
                "STATE", "FORMER", "OWNER", "PROGRESS", "FIRST ID", "LAST ID", "BACKUPS");
    zone_print(listing->cmd->out, recovery);
    return true;
}

/* Waits, as long as the time lasts, until no zone is on its way. */
static void way_await(struct sh_cmd *cmd, uint64_t wait_ns)
{
    uint64_t begun_ms = sh_process_now_ms();
    struct sh_recovery_sum sum;
    for (;;) {
        sh_recovery_sum_get(cmd->store, &sum);
        bool is_over = !sum.err && !sh_recovery_sum_under_way(&sum);
        if (is_over || sh_process_now_ms() - begun_ms >= wait_ns / 1000000)
            return;
        sh_process_pause();
    }
}

int sh_cmd_run_recovery(struct sh_cmd *cmd)
{
    uint64_t wait_ns = 0;
    if (cmd->flags.accept_loss)
        return sh_recovery_accept(cmd);
    if (cmd->word_count)
        return sh_cmd_usage(cmd, "\"%.40s\" is one word too many; zones go with --accept-loss only",
                            cmd->words[0]);
    int status = sh_cmd_time(cmd, "wait", cmd->flags.until_back, 0, UINT64_MAX, &wait_ns);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    if (wait_ns)
        way_await(cmd, wait_ns);
    struct listing listing = {.cmd = cmd, .zones = sh_json_array()};
    enum shoal_err err = sh_client_recoveries(cmd->store, on_zone, &listing);
    if (err) {
        sh_json_free(listing.zones);
        return sh_cmd_fail(cmd, err, "%s", shoal_error_detail());
    }
    bool is_whole =
        !sh_recovery_sum_under_way(&listing.sum) && !listing.sum.counts[SH_RECOVERY_LOST];
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "zones", listing.zones);
        sh_json_set(root, "all", sh_recovery_sum_json(&listing.sum));
        status = sh_cmd_answer(cmd, root);
    } else {
        sh_json_free(listing.zones);
        sh_recovery_sum_print(cmd->out, &listing.sum);
        if (is_whole)
            fputs("Every zone is with its owner.\n", cmd->out);
    }
    return is_whole ? status : SH_EXIT_FAILED;
}
