/* A node's logs: of its own chunks, and of others'; and the zones of others that it brings back. */
#include <stdio.h>

#include "node/node_int.h"

/* A new peer's log names the node that it is from now on. One that comes back has been told its name before: it is refused where it is
 * another node. */
enum shoal_err sh_node_logs_open(struct sh_node_run *node, shoal_nid nid, uint64_t cluster,
                                 char *detail)
{
    if (!node->logs || (sh_logs_is_open(node->logs) && node->logs_nid.v == nid.v))
        return SHOAL_OK;
    if (sh_logs_is_open(node->logs)) {
        snprintf(detail, SH_NODE_DETAIL_BYTES,
                 "the cluster has made this peer node %u, and its log has the chunks of node %u: "
                 "remove data_dir to go on without them",
                 nid.v, node->logs_nid.v);
        return SHOAL_EINVAL;
    }
    node->logs_nid = nid;
    return sh_logs_open(node->logs, nid, cluster, detail);
}

/* A disk for the log of a peer, unless it shares that of data_dir, which goes through the page cache (docs/log.md, "Where a log is"). */
static enum shoal_err open_log_disk(struct sh_node_run *node, char *detail)
{
    const struct sh_log_place place = sh_logs_place(node->options);
    if (!node->options->replicas || !node->env.disk || node->world)
        return SHOAL_OK;
    enum shoal_err err = sh_log_place_open(&place, node->env.disk, &node->log_disk, detail);
    return err || !node->log_disk ? err : sh_disk_wake_set(node->log_disk, sh_node_wake, node);
}

/* The log told the result of a request that was run before this life: by an earlier one of this node, or by another node. */
void sh_node_completed(void *arg, const struct sh_completion *completion)
{
    const struct sh_node_run *node = arg;
    if (completion->node)
        sh_moves_completed(node->moves, completion);
    else
        sh_chunks_completed(node->chunks, completion);
}

static bool may_take(void *arg, shoal_nid former)
{
    const struct sh_node_run *node = arg;
    return !sh_moves_has_staged_of(node->moves, former) &&
           !sh_moves_has_batch_for(node->moves, former);
}

static bool may_have(void *arg, shoal_cid cid)
{
    const struct sh_node_run *node = arg;
    return sh_moves_may_have(node->moves, cid);
}

static bool restored_serve(void *arg, shoal_cid first, shoal_cid last)
{
    const struct sh_node_run *node = arg;
    return sh_moves_serves(node->moves, first, last);
}

static enum shoal_err make_room(void *arg, const struct sh_room_wish *wish,
                                struct sh_room_found *found_out)
{
    const struct sh_node_run *node = arg;
    return sh_room_make(node->room, wish, found_out);
}

static void results(void *arg, uint64_t first, uint64_t last,
                    void (*each)(void *each_arg, const struct sh_completion *completion),
                    void *each_arg)
{
    const struct sh_node_run *node = arg;
    sh_moves_results(node->moves, (shoal_cid){first}, (shoal_cid){last}, each, each_arg);
}

static bool is_confirmed(void *arg)
{
    const struct sh_node_run *node = arg;
    return !node->identity || sh_identity_is_confirmed(node->identity);
}

static void view_wanted(void *arg)
{
    const struct sh_node_run *node = arg;
    if (node->member)
        sh_member_hurry(node->member);
}

bool sh_node_former_are_over(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_logs_are_former_over(node->logs);
}

bool sh_node_former_are_lost(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_logs_are_former_lost(node->logs);
}

bool sh_node_is_opening(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_logs_is_opening(node->logs);
}

bool sh_node_is_filling(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_logs_is_filling(node->logs);
}

/* Opens the backup, and the log on the peer's disk, with its chunks if the peer has been a node before. */
enum shoal_err sh_node_backup_open(struct sh_node_run *node, char *detail)
{
    enum shoal_err err = open_log_disk(node, detail);
    if (err != SHOAL_OK)
        return err;
    struct sh_env env = node->env;
    if (node->log_disk)
        env.disk = node->log_disk;
    const struct sh_logs_config logs = {.may_take = may_take,
                                        .may_have = may_have,
                                        .serves = restored_serve,
                                        .completed = sh_node_completed,
                                        .is_confirmed = is_confirmed,
                                        .view_wanted = view_wanted,
                                        .make_room = make_room,
                                        .results = results,
                                        .options = node->options,
                                        .env = env,
                                        .folder = node->env.disk,
                                        .store = node->store,
                                        .msg = node->msg,
                                        .directory = node->directory,
                                        .life =
                                            node->identity ? sh_identity_life(node->identity) : 0,
                                        .wake = sh_node_wake,
                                        .arg = node};
    err = sh_logs_create(&logs, &node->backup, &node->logs, detail);
    if (err != SHOAL_OK || !node->logs)
        return err;
    if (!node->identity || !sh_identity_nid(node->identity).v)
        return sh_logs_make(node->logs, detail);
    return sh_node_logs_open(node, sh_identity_nid(node->identity),
                             sh_identity_cluster(node->identity), detail);
}
