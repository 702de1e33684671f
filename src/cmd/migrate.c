/* shoal migrate, drain, balance. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/process_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"

/* A peer that is off the mean by less than a 20th is not worth moving anything. */
#define BALANCE_SLACK 20

static struct sh_json *sums_json(shoal_nid from, shoal_nid to,
                                 const struct shoal_migration_sums *sums, double seconds)
{
    struct sh_json *root = sh_json_object();
    sh_json_set_u64(root, "from", from.v);
    if (to.v)
        sh_json_set_u64(root, "to", to.v);
    sh_json_set_u64(root, "chunks", sums->chunks);
    sh_json_set_u64(root, "payload_bytes", sums->bytes);
    sh_json_set_u64(root, "batches", sums->batches);
    sh_json_set_u64(root, "longest_freeze_ns", sums->freeze_ns);
    sh_json_set_f64(root, "seconds", seconds);
    return root;
}

static void sums_print(FILE *out, shoal_nid from, shoal_nid to,
                       const struct shoal_migration_sums *sums, double seconds)
{
    char bytes[SH_SIZE_TEXT_MAX], target[32] = "the other peers";
    if (to.v)
        snprintf(target, sizeof target, "node %u", to.v);
    fprintf(out,
            "Moved %" PRIu64 " chunks (%s) from node %u to %s in %.3f s; longest freeze %.1f ms.\n",
            sums->chunks, sh_size_format(sums->bytes, bytes), from.v, target, seconds,
            (double)sums->freeze_ns / 1e6);
}

/* Runs a migration that the first word names the source of, and reports it. */
static int migrate(struct sh_cmd *cmd, const struct shoal_migration *migration, const char *what)
{
    struct sh_progress progress;
    struct shoal_migration_sums sums = {0};
    shoal_nid nid;
    int status = sh_store_open(cmd, what, &progress, &nid);
    if (status != SH_EXIT_OK)
        return status;
    uint64_t begun_ms = sh_process_now_ms();
    enum shoal_err err =
        shoal_migrate(cmd->store, nid, migration, sh_store_progress, &progress, &sums);
    sh_progress_end(&progress);
    double seconds = (double)(sh_process_now_ms() - begun_ms) / 1e3;
    if (err != SHOAL_OK) {
        if (sums.chunks > 0 && !cmd->flags.json)
            sums_print(cmd->out, nid, migration->target, &sums, seconds);
        return sh_store_fail(cmd, err, nid);
    }
    if (cmd->flags.json)
        return sh_cmd_answer(cmd, sums_json(nid, migration->target, &sums, seconds));
    sums_print(cmd->out, nid, migration->target, &sums, seconds);
    return SH_EXIT_OK;
}

static bool cid_read(const char *text, shoal_cid *cid_inout)
{
    return !text || sh_cid_parse(text, cid_inout) == SHOAL_OK;
}

int sh_cmd_run_migrate(struct sh_cmd *cmd)
{
    const struct sh_flags *flags = &cmd->flags;
    struct shoal_migration migration = {
        .first = {0}, .last = {UINT64_MAX}, .target = flags->to, .bytes_per_s = flags->rate.bytes};
    if (!cid_read(flags->first, &migration.first) || !cid_read(flags->last, &migration.last))
        return sh_cmd_usage(cmd, "a chunk ID is NODE:LOCAL or 16 hexadecimal digits");
    if (migration.first.v > migration.last.v)
        return sh_cmd_usage(cmd, "--first is behind --last");
    return migrate(cmd, &migration, "migrating");
}

static int undrain(struct sh_cmd *cmd)
{
    shoal_nid nid;
    if (cmd->flags.to.v || cmd->flags.rate.is_given)
        return sh_cmd_usage(cmd, "--undo moves nothing: it takes neither --to nor --rate");
    int status = sh_cmd_open_for_node(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_undrain(cmd->store, nid);
    if (err != SHOAL_OK)
        return sh_store_fail(cmd, err, nid);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "node", nid.v);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Node %u may have chunks again.\n", nid.v);
    return SH_EXIT_OK;
}

int sh_cmd_run_drain(struct sh_cmd *cmd)
{
    if (cmd->flags.undo)
        return undrain(cmd);
    struct shoal_migration migration = {.first = {0},
                                        .last = {UINT64_MAX},
                                        .target = cmd->flags.to,
                                        .drain = true,
                                        .bytes_per_s = cmd->flags.rate.bytes};
    return migrate(cmd, &migration, "draining");
}

/* --- balance ------------------------------------------------------------------------------- */

struct peer {
    shoal_nid nid;
    uint64_t used_bytes, payload_bytes;
};

/* One migration of a plan. */
struct transfer {
    shoal_nid from, to;
    uint64_t payload_bytes;
};

/* The peers that are up and take chunks, with what they use; allocated. */
static int peers_get(struct sh_cmd *cmd, struct peer **peers_out, size_t *count_out)
{
    struct shoal_node *nodes;
    size_t node_count, count = 0;
    int status = sh_cmd_nodes(cmd, &nodes, &node_count);
    if (status != SH_EXIT_OK)
        return status;
    struct peer *peers = calloc(node_count + 1, sizeof *peers);
    enum shoal_err err = peers ? SHOAL_OK : SHOAL_ENOMEM;
    for (size_t i = 0; i < node_count && err == SHOAL_OK; i++) {
        struct shoal_status found;
        if (nodes[i].role != SHOAL_PEER || nodes[i].state != SHOAL_NODE_UP)
            continue;
        err = shoal_status(cmd->store, nodes[i].nid, &found);
        if (err == SHOAL_OK && !found.is_drained)
            peers[count++] = (struct peer){nodes[i].nid, found.used_bytes, found.payload_bytes};
    }
    free(nodes);
    if (err != SHOAL_OK) {
        free(peers);
        return sh_cmd_fail(cmd, err, "%s", shoal_error_detail());
    }
    *peers_out = peers;
    *count_out = count;
    return SH_EXIT_OK;
}

/* The next transfer: from the fullest to the emptiest, so much that one of them gets to the mean;
 * notes it in the peers. False: all are near enough. */
static bool transfer_next(struct peer *peers, size_t count, struct transfer *transfer_out)
{
    if (count == 0)
        return false;
    struct peer *most = &peers[0], *least = &peers[0];
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += peers[i].used_bytes;
        most = peers[i].used_bytes > most->used_bytes ? &peers[i] : most;
        least = peers[i].used_bytes < least->used_bytes ? &peers[i] : least;
    }
    uint64_t mean = sum / count;
    uint64_t over = most->used_bytes - mean, under = mean - least->used_bytes;
    uint64_t bytes = over < under ? over : under;
    if (most == least || bytes <= mean / BALANCE_SLACK || most->payload_bytes == 0)
        return false;
    /* What is used but no payload goes along, about. */
    uint64_t payload =
        (uint64_t)((double)bytes * (double)most->payload_bytes / (double)most->used_bytes);
    if (payload == 0)
        return false;
    *transfer_out = (struct transfer){most->nid, least->nid, payload};
    most->used_bytes -= bytes;
    most->payload_bytes -= payload;
    least->used_bytes += bytes;
    least->payload_bytes += payload;
    return true;
}

static int transfer_run(struct sh_cmd *cmd, const struct transfer *transfer,
                        struct sh_progress *progress, struct sh_json *list)
{
    struct shoal_migration_sums sums = {0};
    struct shoal_migration migration = {.last = {UINT64_MAX},
                                        .target = transfer->to,
                                        .bytes_per_s = cmd->flags.rate.bytes,
                                        .bytes_max = transfer->payload_bytes};
    uint64_t begun_ms = sh_process_now_ms();
    enum shoal_err err = SHOAL_OK;
    if (!cmd->flags.plan)
        err = shoal_migrate(cmd->store, transfer->from, &migration, sh_store_progress, progress,
                            &sums);
    sh_progress_end(progress);
    if (err != SHOAL_OK)
        return sh_store_fail(cmd, err, transfer->from);
    double seconds = (double)(sh_process_now_ms() - begun_ms) / 1e3;
    char bytes[SH_SIZE_TEXT_MAX];
    if (cmd->flags.plan)
        sums.bytes = transfer->payload_bytes;
    if (cmd->flags.json)
        sh_json_append(list, sums_json(transfer->from, transfer->to, &sums, seconds));
    else if (cmd->flags.plan)
        fprintf(cmd->out, "Would move %s from node %u to node %u.\n",
                sh_size_format(transfer->payload_bytes, bytes), transfer->from.v, transfer->to.v);
    else
        sums_print(cmd->out, transfer->from, transfer->to, &sums, seconds);
    return SH_EXIT_OK;
}

int sh_cmd_run_balance(struct sh_cmd *cmd)
{
    struct peer *peers = NULL;
    size_t count = 0, moves = 0;
    struct transfer transfer;
    struct sh_progress progress;
    int status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = peers_get(cmd, &peers, &count);
    if (status != SH_EXIT_OK)
        return status;
    struct sh_json *list = sh_json_array();
    sh_store_watch(&progress, "balancing");
    /* Each transfer brings one peer to the mean, so there are fewer than peers. */
    for (; moves < count && transfer_next(peers, count, &transfer) && status == SH_EXIT_OK; moves++)
        status = transfer_run(cmd, &transfer, &progress, list);
    free(peers);
    if (status == SH_EXIT_OK && cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "migrations", list);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(list);
    if (status == SH_EXIT_OK && moves == 0)
        fprintf(cmd->out, "Nothing to move: each peer is near the mean.\n");
    return status;
}
