/* shoal metadata. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/shards_int.h"
#include "cmd/text_int.h"

/* A superpeer, and what it said. */
struct answer {
    struct shoal_node node;
    enum shoal_err err;
    struct sh_report report;
};

static const char *const kinds[] = {
    [SH_REPORT_MEMORY] = "memory", [SH_REPORT_RAFT] = "raft", [SH_REPORT_ZOOKEEPER] = "zookeeper"};

static const char *role_name(const struct sh_report *report)
{
    static const char *const roles[] = {[SH_REPORT_FOLLOWER] = "follower",
                                        [SH_REPORT_CANDIDATE] = "candidate",
                                        [SH_REPORT_LEADER] = "leader"};
    return roles[report->role];
}

/* Those that have left are not asked. */
static const char *state_name(enum shoal_node_state state)
{
    return state == SHOAL_NODE_UP ? "up" : "failed";
}

/* What one superpeer keeps of the ring, in all. */
struct sums {
    uint64_t owned, held, ranges, moved, names, zones, bytes;
    bool has_more;
};

static struct sums sums_make(const struct sh_report *report)
{
    struct sums sums = {.bytes = report->registry_bytes};
    for (unsigned i = 0; i < report->shard_count; i++) {
        const struct sh_report_shard *shard = &report->shards[i];
        sums.owned += shard->owner == report->nid.v;
        sums.held += shard->is_here;
        sums.ranges += shard->ranges;
        sums.moved += shard->moved;
        sums.has_more |= shard->has_more;
        sums.names += shard->names;
        sums.zones += shard->zones;
        sums.bytes += shard->bytes;
    }
    return sums;
}

/* --- JSON ---------------------------------------------------------------------------------- */

static struct sh_json *shards_json(const struct sh_report *report)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < report->shard_count; i++) {
        const struct sh_report_shard *shard = &report->shards[i];
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "shard", i);
        sh_json_set_u64(row, "owner", shard->owner);
        sh_json_set(row, "replicas", sh_set_json(shard->replicas));
        sh_json_set_u64(row, "version", shard->version);
        sh_json_set_bool(row, "here", shard->is_here);
        sh_json_set_u64(row, "applied", shard->applied);
        sh_json_set_bool(row, "known", shard->is_known);
        sh_json_set_u64(row, "ranges", shard->ranges);
        sh_json_set_u64(row, "moved_ranges", shard->moved);
        sh_json_set_u64(row, "sources", shard->sources);
        sh_json_set_u64(row, "names", shard->names);
        sh_json_set_u64(row, "zones", shard->zones);
        sh_json_set_u64(row, "zones_under_replicated", shard->zones_short);
        sh_json_set_u64(row, "zones_recovering", shard->zones_recovering);
        sh_json_set_u64(row, "zones_lost", shard->zones_lost);
        sh_json_set_u64(row, "memory_bytes", shard->bytes);
        sh_shard_origin_json(row, report, i);
        sh_json_append(list, row);
    }
    return list;
}

static void report_json(struct sh_json *row, const struct sh_report *report)
{
    struct sums sums = sums_make(report);
    sh_json_set_text(row, "registry", kinds[report->kind]);
    sh_json_set_text(row, "role", role_name(report));
    sh_json_set_bool(row, "current", report->is_current);
    sh_json_set_bool(row, "recovering", report->is_recovering);
    sh_json_set_u64(row, "leader", report->leader.v);
    sh_json_set_u64(row, "epoch", report->epoch);
    sh_json_set_u64(row, "term", report->term);
    sh_json_set_u64(row, "committed", report->commit);
    sh_json_set_u64(row, "applied", report->applied);
    sh_json_set_u64(row, "log_last", report->raft_last);
    sh_json_set(row, "voters", sh_set_json(report->voters));
    sh_json_set(row, "learners", sh_set_json(report->learners));
    sh_json_set_u64(row, "peers_up", report->peers_up);
    sh_json_set_u64(row, "peers_left", report->peers_left);
    sh_json_set_u64(row, "peers_failed", report->peers_failed);
    sh_json_set_u64(row, "peers_away", report->peers_away);
    sh_json_set_u64(row, "superpeers_up", report->superpeers_up);
    sh_json_set_u64(row, "superpeers_failed", report->superpeers_failed);
    sh_json_set_u64(row, "ranges", sums.ranges);
    sh_json_set_u64(row, "moved_ranges", sums.moved);
    sh_json_set_bool(row, "moved_ranges_are_more", sums.has_more);
    sh_json_set_u64(row, "shards_owned", sums.owned);
    sh_json_set_u64(row, "shards_held", sums.held);
    sh_json_set_u64(row, "names", sums.names);
    sh_json_set_u64(row, "zones", sums.zones);
    sh_json_set_u64(row, "registry_bytes", report->registry_bytes);
    sh_json_set_u64(row, "memory_bytes", sums.bytes);
    sh_json_set_u64(row, "resident_bytes", report->resident_bytes);
    sh_json_set_u64(row, "lookups", report->lookups);
    sh_json_set_u64(row, "lookups_nobody", report->lookups_nobody);
    sh_json_set_u64(row, "journal_writes", report->journal_batches);
    sh_json_set_u64(row, "journal_bytes", report->journal_bytes);
    sh_json_set_u64(row, "journal_snapshots", report->journal_snapshots);
    sh_json_set_u64(row, "journal_snapshot_bytes", report->journal_snapshot_bytes);
    sh_json_set(row, "shards", shards_json(report));
}

static int answer_json(struct sh_cmd *cmd, const struct answer *answers, size_t count)
{
    struct sh_json *root = sh_json_object(), *list = sh_json_array();
    for (size_t i = 0; i < count; i++) {
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "nid", answers[i].node.nid.v);
        sh_json_set_text(row, "state", state_name(answers[i].node.state));
        sh_json_set_text(row, "address", answers[i].node.address);
        if (answers[i].err != SHOAL_OK)
            sh_json_set_text(row, "error", shoal_err_name(answers[i].err));
        else
            report_json(row, &answers[i].report);
        sh_json_append(list, row);
    }
    sh_json_set(root, "superpeers", list);
    return sh_cmd_answer(cmd, root);
}

/* --- For people ---------------------------------------------------------------------------- */

static void row_print(FILE *out, const struct answer *answer)
{
    const struct sh_report *report = &answer->report;
    char memory[SH_SIZE_TEXT_MAX], resident[SH_SIZE_TEXT_MAX];
    fprintf(out, "%5u  %-6s  ", (unsigned)answer->node.nid.v, state_name(answer->node.state));
    if (answer->err != SHOAL_OK) {
        fprintf(out, "%s  %s\n", answer->node.address, shoal_err_text(answer->err));
        return;
    }
    struct sums sums = sums_make(report);
    fprintf(out,
            "%-9s %8" PRIu64 " %10" PRIu64 " %5" PRIu64 " %5" PRIu64 " %9" PRIu64 " %9" PRIu64
            "%c %9" PRIu64 " %10s %10s  %s\n",
            report->is_current ? role_name(report) : "cut off", report->term, report->applied,
            sums.owned, sums.held, sums.ranges, sums.moved, sums.has_more ? '+' : ' ', sums.names,
            sh_size_format(sums.bytes, memory), sh_size_format(report->resident_bytes, resident),
            answer->node.address);
}

/* The report to believe about the shards: the leader's, else the one that knows most. */
static const struct sh_report *best_of(const struct answer *answers, size_t count)
{
    const struct sh_report *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sh_report *report = &answers[i].report;
        if (answers[i].err != SHOAL_OK || report->shard_count == 0 || !report->is_current)
            continue;
        if (report->role == SH_REPORT_LEADER)
            return report;
        if (!best || report->applied > best->applied)
            best = report;
    }
    return best;
}

/* Shards with the same owner and replicas, in rows. */
static void ring_print(FILE *out, const struct sh_report *report)
{
    char replicas[SH_SET_TEXT_MAX];
    fprintf(out, "\n%-8s %6s  %s\n", "SHARDS", "OWNER", "REPLICAS");
    for (unsigned first = 0, last; first < report->shard_count; first = last + 1) {
        const struct sh_report_shard *shard = &report->shards[first];
        for (last = first; last + 1 < report->shard_count; last++)
            if (report->shards[last + 1].owner != shard->owner ||
                report->shards[last + 1].replicas != shard->replicas)
                break;
        char range[24];
        snprintf(range, sizeof range, "%u-%u", first, last);
        fprintf(out, "%-8s %6u  %s\n", range, (unsigned)shard->owner,
                shard->replicas ? sh_set_format(shard->replicas, replicas) : "none");
    }
}

static int print_all(struct sh_cmd *cmd, const struct answer *answers, size_t count)
{
    fprintf(cmd->out, "%5s  %-6s  %-9s %8s %10s %5s %5s %9s %9s  %9s %10s %10s  %s\n", "NODE",
            "STATE", "ROLE", "TERM", "APPLIED", "OWNS", "HOLDS", "RANGES", "MOVED", "NAMES",
            "MEMORY", "RESIDENT", "ADDRESS");
    for (size_t i = 0; i < count; i++)
        row_print(cmd->out, &answers[i]);
    const struct sh_report *best = best_of(answers, count);
    if (!best)
        return SH_EXIT_OK;
    ring_print(cmd->out, best);
    sh_shards_waiting_print(cmd->out, best);
    for (size_t i = 0; i < count; i++)
        if (answers[i].err == SHOAL_OK)
            sh_shards_searched_print(cmd->out, &answers[i].report);
    sh_shards_restored_print(cmd->out, best);
    return SH_EXIT_OK;
}

static void registry_print(FILE *out, const struct sh_report *report)
{
    char voters[SH_SET_TEXT_MAX], learners[SH_SET_TEXT_MAX], text[SH_SIZE_TEXT_MAX];
    fprintf(out, "registry     in %s; %s%s%s\n", kinds[report->kind], role_name(report),
            report->is_current ? "" : ", which hears no majority",
            report->is_recovering
                ? ", recovering: it votes and counts again once it knows what it may have forgotten"
                : "");
    if (report->kind != SH_REPORT_ZOOKEEPER) {
        fprintf(out, "term         %" PRIu64 ", led by %u\n", report->term,
                (unsigned)report->leader.v);
        fprintf(out,
                "log          %" PRIu64 " entries, %" PRIu64 " committed, %" PRIu64 " applied\n",
                report->raft_last, report->commit, report->applied);
        fprintf(out, "voters       %s\n", sh_set_format(report->voters, voters));
        fprintf(out, "learners     %s\n", sh_set_format(report->learners, learners));
    }
    fprintf(out, "epoch        %" PRIu64 "\n", report->epoch);
    fprintf(out, "peers        %" PRIu64 " up, %" PRIu64 " left, %" PRIu64 " failed",
            report->peers_up, report->peers_left, report->peers_failed);
    if (report->peers_away)
        fprintf(out, ", %" PRIu64 " stopped and to be back", report->peers_away);
    fprintf(out, "\n");
    fprintf(out, "superpeers   %" PRIu64 " up, %" PRIu64 " failed\n", report->superpeers_up,
            report->superpeers_failed);
    struct sums sums = sums_make(report);
    fprintf(out, "ranges       %" PRIu64 " of chunk IDs, %" PRIu64 "%s of them moved\n",
            sums.ranges, sums.moved, sums.has_more ? " or more" : "");
    fprintf(out,
            "lookups      %" PRIu64 " answered, %" PRIu64 " of them that nobody has the chunk\n",
            report->lookups, report->lookups_nobody);
    fprintf(out, "names        %" PRIu64 "\n", sums.names);
    fprintf(out, "zones        %" PRIu64 "\n", sums.zones);
    fprintf(out, "memory       %s", sh_size_format(report->registry_bytes, text));
    fprintf(out, " for the registry, %s", sh_size_format(sums.bytes, text));
    fprintf(out, " with the ring, %s resident\n", sh_size_format(report->resident_bytes, text));
}

static int print_one(struct sh_cmd *cmd, const struct shoal_node *node,
                     const struct sh_report *report)
{
    char replicas[SH_SET_TEXT_MAX], memory[SH_SIZE_TEXT_MAX];
    fprintf(cmd->out, "state        %s\n",
            node->state == SHOAL_NODE_UP ? "up"
                                         : "declared failed by the superpeers, but it answers");
    registry_print(cmd->out, report);
    if (report->shard_count == 0)
        return SH_EXIT_OK;
    fprintf(cmd->out, "\n%6s %6s  %-16s %9s  %-4s %9s %9s %9s %9s %10s\n", "SHARD", "OWNER",
            "REPLICAS", "VERSION", "HERE", "APPLIED", "RANGES", "MOVED", "NAMES", "MEMORY");
    for (unsigned i = 0; i < report->shard_count; i++) {
        const struct sh_report_shard *shard = &report->shards[i];
        fprintf(cmd->out,
                "%6u %6u  %-16s %9" PRIu64 "  %-4s %9" PRIu64 " %9" PRIu64 " %9" PRIu64 " %9" PRIu64
                " %10s\n",
                i, (unsigned)shard->owner, sh_set_format(shard->replicas, replicas), shard->version,
                shard->is_here ? "yes" : "no", shard->applied, shard->ranges, shard->moved,
                shard->names, sh_size_format(shard->bytes, memory));
    }
    return SH_EXIT_OK;
}

/* --- Asking -------------------------------------------------------------------------------- */

static int run_one(struct sh_cmd *cmd, const struct shoal_node *node)
{
    struct answer answer = {.node = *node};
    enum shoal_err err = sh_client_report(cmd->store, node->nid, &answer.report);
    if (err != SHOAL_OK)
        return sh_cmd_fail_node(cmd, err, node->nid);
    return cmd->flags.json ? answer_json(cmd, &answer, 1) : print_one(cmd, node, &answer.report);
}

/* Those that are there, also the failed ones: they may be cut off from the others only. */
static int run_all(struct sh_cmd *cmd, const struct shoal_node *nodes, size_t count)
{
    struct answer *answers = calloc(count + 1, sizeof *answers);
    size_t asked = 0;
    if (!answers)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%zu nodes", count);
    for (size_t i = 0; i < count; i++) {
        if (nodes[i].role != SHOAL_SUPERPEER || nodes[i].state == SHOAL_NODE_LEFT)
            continue;
        struct answer *answer = &answers[asked++];
        answer->node = nodes[i];
        answer->err = sh_client_report(cmd->store, nodes[i].nid, &answer->report);
    }
    int status =
        cmd->flags.json ? answer_json(cmd, answers, asked) : print_all(cmd, answers, asked);
    free(answers);
    return status;
}

int sh_cmd_run_metadata(struct sh_cmd *cmd)
{
    struct shoal_node *nodes;
    size_t count, at = 0;
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status == SH_EXIT_OK)
        status = sh_cmd_nodes(cmd, &nodes, &count);
    if (status != SH_EXIT_OK)
        return status;
    while (nid.v != 0 && at < count && nodes[at].nid.v != nid.v)
        at++;
    if (nid.v == 0)
        status = run_all(cmd, nodes, count);
    else if (at < count)
        status = run_one(cmd, &nodes[at]);
    else
        status = sh_cmd_fail(cmd, SHOAL_ENONODE, "node %u", (unsigned)nid.v);
    free(nodes);
    return status;
}
