/* shoal status, node list, node log, node stop, node promote, node demote, node lost, node
 * forget. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/process_int.h"
#include "cmd/recovery_int.h"
#include "cmd/replicas_int.h"
#include "cmd/shards_int.h"
#include "cmd/text_int.h"

#define STOP_DEADLINE_MS 30000
#define BACK_NS_MIN UINT64_C(1000000000)
#define BACK_NS_MAX UINT64_C(86400000000000)

static const char *role_name(enum shoal_role role)
{
    return role == SHOAL_SUPERPEER ? "superpeer" : "peer";
}

static const char *state_name(enum shoal_node_state state)
{
    switch (state) {
    case SHOAL_NODE_UP:
        return "up";
    case SHOAL_NODE_LEFT:
        return "left";
    case SHOAL_NODE_FAILED:
        return "failed";
    case SHOAL_NODE_AWAY:
        return "away";
    }
    return "unknown";
}

static struct sh_json *node_json(const struct shoal_node *node)
{
    struct sh_json *row = sh_json_object();
    sh_json_set_u64(row, "nid", node->nid.v);
    sh_json_set_text(row, "role", role_name(node->role));
    sh_json_set_text(row, "state", state_name(node->state));
    sh_json_set_text(row, "address", node->address);
    if (node->state == SHOAL_NODE_AWAY)
        sh_json_set_u64(row, "back_ns", node->back_ns);
    if (node->role == SHOAL_PEER) {
        sh_json_set_bool(row, "keeps_replicas", node->keeps_replicas);
        sh_json_set_bool(row, "keeps_chunks", node->keeps_chunks);
        sh_json_set_bool(row, "disk_lost", node->is_disk_lost);
        sh_json_set_text(row, "machine", node->machine);
        sh_json_set_text(row, "rack", node->rack);
        sh_json_set_text(row, "network_switch", node->network_switch);
    }
    return row;
}

static const char *name_or_dash(const char *name)
{
    return *name ? name : "-";
}

static void list_print(FILE *out, const struct shoal_node *node)
{
    const char *keeps = node->role != SHOAL_PEER ? "-" : node->keeps_replicas ? "yes" : "no";
    fprintf(out, "%5u  %-9s  %-6s  %-21s  %-8s  %-12s  %-12s  %s\n", (unsigned)node->nid.v,
            role_name(node->role), node->is_disk_lost ? "lost" : state_name(node->state),
            node->address, keeps, name_or_dash(node->machine), name_or_dash(node->rack),
            name_or_dash(node->network_switch));
}

int sh_cmd_run_node_list(struct sh_cmd *cmd)
{
    struct shoal_node *nodes;
    size_t count;
    int status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = sh_cmd_nodes(cmd, &nodes, &count);
    if (status != SH_EXIT_OK)
        return status;
    struct sh_json *list = sh_json_array();
    if (!cmd->flags.json)
        fprintf(cmd->out, "%5s  %-9s  %-6s  %-21s  %-8s  %-12s  %-12s  %s\n", "NODE", "ROLE",
                "STATE", "ADDRESS", "REPLICAS", "MACHINE", "RACK", "SWITCH");
    for (size_t i = 0; i < count; i++) {
        if (cmd->flags.json)
            sh_json_append(list, node_json(&nodes[i]));
        else
            list_print(cmd->out, &nodes[i]);
    }
    free(nodes);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "nodes", list);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(list);
    return SH_EXIT_OK;
}

/* --- node watch ---------------------------------------------------------------------------- */

static void zone_json_add(struct sh_json *row, const struct shoal_event *event)
{
    char text[SH_CID_TEXT_MAX];
    sh_json_set_text(row, "zone", sh_cid_format((shoal_cid){event->zone}, text));
    if (!event->last.v)
        return;
    sh_json_set_text(row, "first", sh_cid_format(event->first, text));
    sh_json_set_text(row, "last", sh_cid_format(event->last, text));
}

static void zone_event_print(FILE *out, const struct shoal_event *event)
{
    char zone[SH_CID_TEXT_MAX], first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
    bool is_lost = event->kind == SHOAL_EVENT_ZONE_LOST;
    fprintf(out, "%8" PRIu64 "  %-8s  %5u  zone %s", event->epoch, is_lost ? "lost" : "older",
            (unsigned)event->node.nid.v, sh_cid_format((shoal_cid){event->zone}, zone));
    if (event->last.v)
        fprintf(out, ", chunks from %s to %s", sh_cid_format(event->first, first),
                sh_cid_format(event->last, last));
    fprintf(out, ": %s\n",
            is_lost ? "no replica is left" : "back, perhaps without its last changes");
}

static bool event_print(void *arg, const struct shoal_event *event)
{
    static const char *const kinds[] = {"present", "joined",    "left",       "failed", "returned",
                                        "moved",   "zone_lost", "zone_older", "away"};
    struct sh_cmd *cmd = arg;
    if (!event)
        return true;
    if (cmd->flags.json) {
        struct sh_json *row = node_json(&event->node);
        sh_json_set_u64(row, "epoch", event->epoch);
        sh_json_set_text(row, "event", kinds[event->kind]);
        if (event->zone)
            zone_json_add(row, event);
        (void)sh_cmd_answer(cmd, row);
    } else if (event->zone) {
        zone_event_print(cmd->out, event);
    } else {
        fprintf(cmd->out, "%8" PRIu64 "  %-8s  %5u  %-9s  %-6s  %s\n", event->epoch,
                kinds[event->kind], (unsigned)event->node.nid.v, role_name(event->node.role),
                state_name(event->node.state), event->node.address);
    }
    return fflush(cmd->out) == 0 && !ferror(cmd->out);
}

int sh_cmd_run_node_watch(struct sh_cmd *cmd)
{
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    if (!cmd->flags.json)
        fprintf(cmd->out, "%8s  %-8s  %5s  %-9s  %-6s  %s\n", "EPOCH", "EVENT", "NODE", "ROLE",
                "STATE", "ADDRESS");
    enum shoal_err err = shoal_watch(cmd->store, event_print, cmd);
    return err != SHOAL_OK ? sh_cmd_fail(cmd, err, "%s", shoal_error_detail()) : SH_EXIT_OK;
}

/* --- node log, node stop ------------------------------------------------------------------- */

static bool is_superpeer(const struct shoal_node *node)
{
    return node->role == SHOAL_SUPERPEER && node->state == SHOAL_NODE_UP;
}

/* Whether a node that was told to stop is up still. Where no other superpeer is left that could say that it has ended, the command asks the node itself.
 * *gone_out: it has ended, or nobody answers. */
static bool still_up(struct sh_cmd *cmd, shoal_nid nid, bool *gone_out)
{
    struct shoal_node *nodes = NULL;
    struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    size_t count = 0;
    bool is_up = false, is_known = false;
    enum shoal_err err = sh_cmd_nodes_read(cmd, &nodes, &count);
    *gone_out = err != SHOAL_OK;
    for (size_t i = 0; !err && i < count; i++) {
        bool is_it = nodes[i].nid.v == nid.v;
        is_up |= is_it && nodes[i].state == SHOAL_NODE_UP;
        is_known |= !is_it && is_superpeer(&nodes[i]);
    }
    free(nodes);
    if (!is_up || is_known)
        return is_up;
    err = sh_client_steps(cmd->store, nid, rows, &count);
    *gone_out = err == SHOAL_EUNREACHABLE || err == SHOAL_ECONNLOST;
    return !*gone_out;
}

int sh_cmd_run_node_log(struct sh_cmd *cmd)
{
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_log_levels(cmd->store, nid, cmd->words[1]);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_text(root, "log_levels", cmd->words[1]);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Node %u logs %s.\n", (unsigned)nid.v, cmd->words[1]);
    return SH_EXIT_OK;
}

int sh_cmd_run_node_stop(struct sh_cmd *cmd)
{
    shoal_nid nid;
    uint64_t back_ns = 0;
    int status =
        sh_cmd_time(cmd, "back-within", cmd->flags.back_within, BACK_NS_MIN, BACK_NS_MAX, &back_ns);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_stop_node(cmd->store, nid, (uint32_t)(back_ns / 1000000));
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    uint64_t end_ms = sh_process_now_ms() + STOP_DEADLINE_MS;
    bool gone = false;
    while (still_up(cmd, nid, &gone)) {
        if (sh_process_now_ms() > end_ms)
            return sh_cmd_fail(cmd, SHOAL_ETIMEOUT, "node %u was told to stop but is still up",
                               (unsigned)nid.v);
        sh_process_pause();
    }
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_bool(root, "stopped", true);
        return sh_cmd_answer(cmd, root);
    }
    if (back_ns)
        fprintf(cmd->out, "Node %u has stopped, and is waited for.\n", (unsigned)nid.v);
    else
        fprintf(cmd->out, "Node %u has %s.\n", (unsigned)nid.v,
                gone ? "been told to stop" : "left");
    return SH_EXIT_OK;
}

/* --- node promote, node demote, node lost, node forget --------------------------------------- */

/* The superpeer at an address, NONE as long as the cluster has none up there. */
static shoal_nid superpeer_at(struct sh_cmd *cmd, const char *address)
{
    struct shoal_node *nodes = NULL;
    size_t count = 0;
    shoal_nid found = SHOAL_NID_NONE;
    enum shoal_err err = sh_cmd_nodes_read(cmd, &nodes, &count);
    for (size_t i = 0; !err && i < count; i++) {
        if (is_superpeer(&nodes[i]) && strcmp(nodes[i].address, address) == 0)
            found = nodes[i].nid;
    }
    free(nodes);
    return found;
}

int sh_cmd_run_node_promote(struct sh_cmd *cmd)
{
    shoal_nid nid, found;
    char address[SH_MSG_ADDRESS_MAX];
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_promote(cmd->store, nid, address);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    uint64_t end_ms = sh_process_now_ms() + STOP_DEADLINE_MS;
    while (!(found = superpeer_at(cmd, address)).v) {
        if (sh_process_now_ms() > end_ms)
            return sh_cmd_fail(cmd, SHOAL_ETIMEOUT,
                               "node %u has a superpeer at %s, which the others have not taken yet",
                               (unsigned)nid.v, address);
        sh_process_pause();
    }
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_u64(root, "superpeer", found.v);
        sh_json_set_text(root, "address", address);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Node %u is superpeer %u too, at %s.\n", (unsigned)nid.v, (unsigned)found.v,
            address);
    return SH_EXIT_OK;
}

int sh_cmd_run_node_demote(struct sh_cmd *cmd)
{
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_demote(cmd->store, nid);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_bool(root, "demoted", true);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Node %u is no superpeer any more.\n", (unsigned)nid.v);
    return SH_EXIT_OK;
}

int sh_cmd_run_node_lost(struct sh_cmd *cmd)
{
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_disk_lost(cmd->store, nid);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_bool(root, "lost", true);
        return sh_cmd_answer(cmd, root);
    }
    if (sh_nid_is_peer(nid))
        fprintf(
            cmd->out,
            "The disk of node %u counts as lost. `shoal recovery` shows what comes back without "
            "it, and what does not.\n",
            (unsigned)nid.v);
    else
        fprintf(
            cmd->out,
            "The disk of superpeer %u counts as lost. `shoal metadata` shows what its shards go "
            "on from.\n",
            (unsigned)nid.v);
    return SH_EXIT_OK;
}

int sh_cmd_run_node_forget(struct sh_cmd *cmd)
{
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_client_forget(cmd->store, nid);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, nid);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_bool(root, "forgotten", true);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Node %u is forgotten.\n", (unsigned)nid.v);
    return SH_EXIT_OK;
}

/* --- status -------------------------------------------------------------------------------- */

/* What is used over the payload, in percent of it; 0 where there is none. */
static double overhead_percent(const struct shoal_status *status)
{
    if (status->payload_bytes == 0)
        return 0;
    return 100.0 * ((double)status->used_bytes - (double)status->payload_bytes) /
           (double)status->payload_bytes;
}

static void status_json(struct sh_json *row, const struct shoal_status *status)
{
    sh_json_set_u64(row, "chunks", status->chunks);
    sh_json_set_u64(row, "payload_bytes", status->payload_bytes);
    sh_json_set_u64(row, "used_bytes", status->used_bytes);
    sh_json_set_u64(row, "table_bytes", status->table_bytes);
    sh_json_set_u64(row, "block_bytes", status->block_bytes);
    sh_json_set_u64(row, "free_bytes", status->free_bytes);
    sh_json_set_u64(row, "other_bytes", status->other_bytes);
    sh_json_set_u64(row, "bytes_max", status->bytes_max);
    sh_json_set_u64(row, "resident_bytes", status->resident_bytes);
    sh_json_set_f64(row, "overhead_percent", overhead_percent(status));
    sh_json_set_u64(row, "creates", status->creates);
    sh_json_set_u64(row, "removes", status->removes);
    sh_json_set_u64(row, "gets", status->gets);
    sh_json_set_u64(row, "puts", status->puts);
    sh_json_set_u64(row, "misdirected", status->misdirected);
    sh_json_set_u64(row, "fences", status->fences);
}

static void status_add(struct shoal_status *all, const struct shoal_status *one)
{
    all->chunks += one->chunks;
    all->payload_bytes += one->payload_bytes;
    all->table_bytes += one->table_bytes;
    all->block_bytes += one->block_bytes;
    all->free_bytes += one->free_bytes;
    all->other_bytes += one->other_bytes;
    all->used_bytes += one->used_bytes;
    all->bytes_max += one->bytes_max;
    all->creates += one->creates;
    all->removes += one->removes;
    all->gets += one->gets;
    all->puts += one->puts;
    all->resident_bytes += one->resident_bytes;
    all->misdirected += one->misdirected;
    all->fences += one->fences;
}

static void memory_print(FILE *out, const struct shoal_status *status)
{
    char payload[SH_SIZE_TEXT_MAX], used[SH_SIZE_TEXT_MAX], spare[SH_SIZE_TEXT_MAX],
        resident[SH_SIZE_TEXT_MAX];
    fprintf(out, " %12" PRIu64 " %11s %11s %11s", status->chunks,
            sh_size_format(status->payload_bytes, payload),
            sh_size_format(status->used_bytes, used), sh_size_format(status->free_bytes, spare));
    if (status->payload_bytes)
        fprintf(out, " %8.1f%%", overhead_percent(status));
    else
        fprintf(out, " %9s", "-");
    fprintf(out, " %11s\n", sh_size_format(status->resident_bytes, resident));
}

static void node_print(FILE *out, const struct shoal_node *node, const struct shoal_status *status,
                       enum shoal_err err)
{
    bool measured = status && err == SHOAL_OK;
    const char *state = state_name(node->state);
    if (measured && status->is_fenced)
        state = "fenced";
    else if (measured && status->is_drained)
        state = "drain";
    fprintf(out, "%5u  %-9s  %-6s  %-*s", (unsigned)node->nid.v, role_name(node->role), state,
            measured ? 21 : 0, node->address);
    if (measured)
        memory_print(out, status);
    else
        fprintf(out, "%s%s\n", err == SHOAL_OK ? "" : "  ",
                err == SHOAL_OK ? "" : shoal_err_text(err));
}

/* --- How long steps take ------------------------------------------------------------------- */

static struct sh_json *steps_json(const struct sh_steps_row *rows, size_t count)
{
    struct sh_json *list = sh_json_array();
    for (size_t i = 0; i < count; i++) {
        struct sh_json *row = sh_json_object();
        sh_json_set_text(row, "kind", rows[i].name);
        sh_json_set_u64(row, "longest_ns", rows[i].time.longest_ns);
        sh_json_set_u64(row, "over_1ms", rows[i].time.over);
        sh_json_append(list, row);
    }
    return list;
}

/* Adds what one node has of each kind to what all have. */
static void steps_add(struct sh_steps_row *all, size_t *all_count, const struct sh_steps_row *rows,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < *all_count && strcmp(all[at].name, rows[i].name) != 0)
            at++;
        if (at == SH_STEPS_ROWS_MAX)
            return;
        if (at == *all_count)
            all[(*all_count)++] = rows[i];
        else
            sh_step_report_merge(&all[at].time, rows[i].time);
    }
}

static int longest_first(const void *a, const void *b)
{
    uint64_t x = ((const struct sh_steps_row *)a)->time.longest_ns;
    uint64_t y = ((const struct sh_steps_row *)b)->time.longest_ns;
    return (x < y) - (x > y);
}

/* Adds a node's steps to the list, if it says them, and to those of all nodes. */
static void node_steps(struct sh_cmd *cmd, const struct shoal_node *node, struct sh_json *list,
                       struct sh_steps_row *all, size_t *all_count)
{
    struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    size_t count;
    if (node->state != SHOAL_NODE_UP ||
        sh_client_steps(cmd->store, node->nid, rows, &count) != SHOAL_OK)
        return;
    struct sh_json *row = sh_json_object();
    qsort(rows, count, sizeof rows[0], longest_first);
    steps_add(all, all_count, rows, count);
    sh_json_set_u64(row, "nid", node->nid.v);
    sh_json_set(row, "kinds", steps_json(rows, count));
    sh_json_append(list, row);
}

#define STEPS_SHOWN 8

static void steps_print(FILE *out, struct sh_steps_row *rows, size_t count)
{
    qsort(rows, count, sizeof rows[0], longest_first);
    fputs("\nlongest steps of any node:\n", out);
    for (size_t i = 0; i < count && i < STEPS_SHOWN; i++)
        fprintf(out, "  %-32s %10.3f ms  %8" PRIu64 " above 1 ms\n", rows[i].name,
                (double)rows[i].time.longest_ns / 1e6, rows[i].time.over);
}

/* What superpeers were asked, in all. */
struct asked {
    uint64_t lookups, nobody;
    uint64_t zones, zones_short, zones_lost; /* each by the owner of its shard */
    /* What the one said that leads, or has applied most, of those that know the ring's table. */
    struct sh_report best;
};

/* Keeps a report if it is the best one of the table of shards. */
static void best_keep(struct asked *asked, const struct sh_report *report)
{
    const struct sh_report *best = &asked->best;
    bool leads = report->role == SH_REPORT_LEADER;
    if (!report->shard_count || !report->is_current)
        return;
    if (!best->shard_count || leads ||
        (best->role != SH_REPORT_LEADER && report->applied > best->applied))
        asked->best = *report;
}

static void zones_add(struct asked *asked, const struct sh_report *report)
{
    for (unsigned i = 0; i < report->shard_count; i++) {
        const struct sh_report_shard *shard = &report->shards[i];
        if (shard->owner != report->nid.v)
            continue;
        asked->zones += shard->zones;
        asked->zones_short += shard->zones_short;
        asked->zones_lost += shard->zones_lost;
    }
}

/* Prints a superpeer's line, or adds its object to the list, and adds up. */
static void superpeer_show(struct sh_cmd *cmd, const struct shoal_node *node, struct sh_json *list,
                           struct asked *asked)
{
    struct sh_report report;
    bool is_up = node->state == SHOAL_NODE_UP;
    enum shoal_err err = is_up ? sh_client_report(cmd->store, node->nid, &report) : SHOAL_OK;
    if (is_up && err == SHOAL_OK) {
        asked->lookups += report.lookups;
        asked->nobody += report.lookups_nobody;
        zones_add(asked, &report);
        best_keep(asked, &report);
    }
    if (!cmd->flags.json) {
        node_print(cmd->out, node, NULL, err);
        return;
    }
    struct sh_json *row = node_json(node);
    if (is_up && err == SHOAL_OK) {
        sh_json_set_u64(row, "lookups", report.lookups);
        sh_json_set_u64(row, "lookups_nobody", report.lookups_nobody);
    } else if (is_up) {
        sh_json_set_text(row, "error", shoal_err_name(err));
    }
    sh_json_append(list, row);
}

static void peer_show(struct sh_cmd *cmd, const struct shoal_node *node, struct sh_json *list,
                      struct shoal_status *all, struct sh_replicas_row *replicas)
{
    struct shoal_status one = {0};
    bool is_up = node->state == SHOAL_NODE_UP;
    enum shoal_err err = is_up ? shoal_status(cmd->store, node->nid, &one) : SHOAL_OK;
    if (is_up && err == SHOAL_OK)
        sh_replicas_ask(cmd, node, replicas);
    if (is_up && err == SHOAL_OK)
        status_add(all, &one);
    if (!cmd->flags.json) {
        node_print(cmd->out, node, is_up ? &one : NULL, err);
        return;
    }
    struct sh_json *row = node_json(node);
    if (is_up && err == SHOAL_OK) {
        status_json(row, &one);
        sh_json_set_bool(row, "fenced", one.is_fenced);
        sh_json_set_bool(row, "drained", one.is_drained);
        sh_replicas_json(row, replicas);
    } else if (is_up) {
        sh_json_set_text(row, "error", shoal_err_name(err));
    }
    sh_json_append(list, row);
}

/* This client's own lookups are few, but the same as those of any other on libshoal. */
static struct sh_json *client_json(const struct shoal_lookups *own)
{
    struct sh_json *row = sh_json_object();
    sh_json_set_u64(row, "lookup_hits", own->hits);
    sh_json_set_u64(row, "lookup_misses", own->misses);
    sh_json_set_u64(row, "lookups_healed", own->healed);
    sh_json_set_u64(row, "lookup_questions", own->questions);
    sh_json_set_u64(row, "cached_ranges", own->ranges);
    sh_json_set_u64(row, "cache_bytes", own->bytes);
    return row;
}

static void lookups_print(FILE *out, const struct asked *asked, const struct shoal_status *all,
                          const struct shoal_lookups *own)
{
    fprintf(out,
            "\nlookups: %" PRIu64 " answered by superpeers, %" PRIu64
            " of them with nobody that is up; %" PRIu64
            " requests refused by peers, since the chunk was elsewhere\n",
            asked->lookups, asked->nobody, all->misdirected);
    fprintf(out,
            "this client: %" PRIu64 " found in its cache, %" PRIu64 " not, %" PRIu64
            " questions, %" PRIu64 " ranges healed\n",
            own->hits, own->misses, own->questions, own->healed);
}

static struct sh_json *zones_json(const struct asked *asked, const struct sh_recovery_sum *recovery)
{
    struct sh_json *row = sh_json_object();
    sh_json_set_u64(row, "all", asked->zones);
    sh_json_set_u64(row, "under_replicated", asked->zones_short);
    if (!recovery->err)
        sh_json_set_u64(row, "recovering", sh_recovery_sum_under_way(recovery));
    sh_json_set_u64(row, "lost", asked->zones_lost);
    return row;
}

static void zones_print(FILE *out, const struct asked *asked,
                        const struct sh_recovery_sum *recovery)
{
    char recovering[24] = "?";
    if (!asked->zones)
        return;
    if (!recovery->err)
        snprintf(recovering, sizeof recovering, "%" PRIu64, sh_recovery_sum_under_way(recovery));
    fprintf(out,
            "zones: %" PRIu64 ", %" PRIu64
            " of them under-replicated, %s being brought back, %" PRIu64 " lost\n",
            asked->zones, asked->zones_short, recovering, asked->zones_lost);
}

/* Asks what becomes of zones, unless there are none, or the superpeers could not say it of all shards. */
static void recovery_ask(struct sh_cmd *cmd, const struct asked *asked,
                         struct sh_recovery_sum *recovery_out)
{
    bool may_ask = asked->best.shard_count;
    for (unsigned i = 0; i < asked->best.shard_count; i++)
        may_ask &= !sh_report_waits(&asked->best, i);
    *recovery_out = (struct sh_recovery_sum){.err = may_ask ? SHOAL_OK : SHOAL_EAGAIN};
    if (may_ask && asked->zones)
        sh_recovery_sum_get(cmd->store, recovery_out);
}

int sh_cmd_run_status(struct sh_cmd *cmd)
{
    struct shoal_node *nodes;
    size_t count;
    int exit_status = sh_cmd_open(cmd);
    if (exit_status == SH_EXIT_OK)
        exit_status = sh_cmd_nodes(cmd, &nodes, &count);
    if (exit_status != SH_EXIT_OK)
        return exit_status;
    struct sh_replicas_row *replicas = calloc(count, sizeof *replicas);
    if (!replicas && count > 0) {
        free(nodes);
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    }
    struct sh_json *root = sh_json_object(), *list = sh_json_array(), *sum = sh_json_object();
    struct sh_json *steps = sh_json_array();
    struct sh_steps_row longest[SH_STEPS_ROWS_MAX];
    size_t longest_count = 0;
    struct shoal_status all = {0};
    struct asked asked = {0};
    struct sh_recovery_sum recovery;
    struct shoal_lookups own;
    if (!cmd->flags.json)
        fprintf(cmd->out, "%5s  %-9s  %-6s  %-21s %12s %11s %11s %11s %9s %11s\n", "NODE", "ROLE",
                "STATE", "ADDRESS", "CHUNKS", "PAYLOAD", "USED", "OF IT FREE", "OVERHEAD",
                "RESIDENT");
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].role == SHOAL_PEER)
            peer_show(cmd, &nodes[i], list, &all, &replicas[i]);
        else
            superpeer_show(cmd, &nodes[i], list, &asked);
        node_steps(cmd, &nodes[i], steps, longest, &longest_count);
    }
    free(nodes);
    enum shoal_err err = shoal_lookups(cmd->store, &own);
    SH_ASSERT(err == SHOAL_OK); /* there is a store */
    sh_json_set(root, "nodes", list);
    status_json(sum, &all);
    sh_json_set_u64(sum, "lookups", asked.lookups);
    sh_json_set_u64(sum, "lookups_nobody", asked.nobody);
    sh_json_set(root, "all", sum);
    sh_json_set(root, "client", client_json(&own));
    recovery_ask(cmd, &asked, &recovery);
    sh_json_set(root, "zones", zones_json(&asked, &recovery));
    sh_json_set(root, "recovery", sh_recovery_sum_json(&recovery));
    sh_json_set(root, "steps", steps);
    sh_json_set(root, "waiting_shards", sh_shards_waiting_json(&asked.best));
    if (cmd->flags.json) {
        free(replicas);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(root);
    fprintf(cmd->out, "%5s  %-9s  %-6s  %-21s", "all", "", "", "");
    memory_print(cmd->out, &all);
    sh_replicas_print(cmd->out, replicas, count);
    free(replicas);
    lookups_print(cmd->out, &asked, &all, &own);
    zones_print(cmd->out, &asked, &recovery);
    sh_recovery_sum_print(cmd->out, &recovery);
    steps_print(cmd->out, longest, longest_count);
    sh_shards_waiting_print(cmd->out, &asked.best);
    return SH_EXIT_OK;
}
