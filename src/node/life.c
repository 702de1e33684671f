/* What a node does once it is made: promotion, start, stop. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "node/held.h"
#include "node/node_int.h"
#include "node/steps.h"

#define DETAIL_BYTES SH_NODE_DETAIL_BYTES
#define LEASE_WAIT_NS UINT64_C(5000000000)
#define LOG_WAIT_NS UINT64_C(10000000000)
#define LOOK_NS 2000000

/* --- Promotion ----------------------------------------------------------------------------- */

#define SUPERPEERS_ASKED_MAX SH_SUPERPEERS_MAX

/* Addresses of the superpeers in the view, or of the options. */
static size_t superpeers_known(struct sh_node_run *node, struct sh_node *nodes,
                               const char **addresses)
{
    size_t count = sh_directory_nodes(node->directory, nodes, SUPERPEERS_ASKED_MAX);
    size_t known = 0;
    for (size_t i = 0; i < count && i < SUPERPEERS_ASKED_MAX; i++) {
        if (nodes[i].role == SH_ROLE_SUPERPEER && nodes[i].state != SH_NODE_LEFT)
            addresses[known++] = nodes[i].address;
    }
    const struct sh_list *list = &node->options->superpeers;
    for (size_t i = 0; !known && i < list->count && i < SUPERPEERS_ASKED_MAX; i++)
        addresses[i] = list->items[i];
    return known ? known : list->count;
}

static enum shoal_err promote(struct sh_node_run *node, char *address_out, char *detail)
{
    const char *addresses[SUPERPEERS_ASKED_MAX];
    struct sh_node *nodes = calloc(SUPERPEERS_ASKED_MAX, sizeof *nodes);
    if (!nodes)
        return SHOAL_ENOMEM;
    size_t count = superpeers_known(node, nodes, addresses);
    enum shoal_err err = sh_promoted_start(node->promoted, addresses, count, address_out, detail);
    free(nodes);
    if (err == SHOAL_OK)
        SH_INFO("node", "this peer has a superpeer too", SH_TEXT("address", address_out));
    return err;
}

/* Opens files and a port in the transport step, which takes some milliseconds, once in a while. */
void sh_node_on_promote(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    char address[SH_MSG_ADDRESS_MAX], detail[DETAIL_BYTES] = "";
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    enum shoal_err err = promote(node, address, detail);
    if (err != SHOAL_OK) {
        SH_WARN("node", "can't be promoted", SH_ERR(err), SH_TEXT("detail", detail));
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, detail);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 2 + strlen(address), &out))
        return;
    sh_put_text(&out.w, sh_bytes_text(address));
    sh_msg_end(in->msg, &out);
}

/* At the start of a peer that was promoted when it ran before. Without its superpeer it does not start:
 * the cluster would lack a superpeer, and perhaps the last replica of a shard, and nobody would look. */
static enum shoal_err promote_again(struct sh_node_run *node)
{
    char address[SH_MSG_ADDRESS_MAX], detail[DETAIL_BYTES] = "";
    bool is_stored = false;
    if (sh_promoted_runs(node->promoted, address)) { /* since a former life of the peer */
        sh_member_superpeer_add(node->member, address);
        return SHOAL_OK;
    }
    enum shoal_err err = sh_promoted_stored(node->promoted, &is_stored);
    if (!err && is_stored)
        err = promote(node, address, detail);
    /* All that are named to the peer may be gone. */
    if (!err && is_stored)
        sh_member_superpeer_add(node->member, address);
    if (err)
        SH_ERROR(
            "node",
            "the superpeer of this peer can't start, so the peer does not either: restore the "
            "files journal.* in its data_dir; if they are lost, remove them, and the peer starts "
            "without a superpeer (shoal node lost and demote tell the others, promote makes a new "
            "one)",
            SH_ERR(err), SH_TEXT("detail", detail));
    return err;
}

/* --- Life cycle ----------------------------------------------------------------------------- */

void sh_node_flag_set(struct sh_node_run *node, _Atomic bool *flag)
{
    atomic_store(flag, true); /* seq_cst: seen by who was woken by the post */
    if (!node->world)
        sem_post(&node->changed);
    else if (!sh_waiter_done(&node->waiter))
        sh_waiter_complete(&node->waiter);
}

void sh_node_serves(void *arg)
{
    struct sh_node_run *node = arg;
    shoal_nid nid = sh_node_nid(node);
    if (!node->is_inner && !node->world)
        sh_log_node_set(nid.v);
    SH_INFO("node", "superpeer serves", SH_U64("nid", nid.v), SH_TEXT("address", node->address));
    sh_node_flag_set(node, &node->is_ready);
}

enum shoal_err sh_node_start(struct sh_node_run *node)
{
    bool serves = node->superhost && sh_superhost_serves(node->superhost);
    enum shoal_err err = node->promoted ? promote_again(node) : SHOAL_OK;
    if (!err)
        err = sh_crew_start(node->crew);
    if (err != SHOAL_OK)
        return err;
    node->is_started = true;
    if (serves)
        sh_node_serves(node);
    return SHOAL_OK;
}

void sh_node_stop(struct sh_node_run *node)
{
    sh_node_flag_set(node, &node->is_stopping);
}

static bool has_crashed(const struct sh_node_run *node)
{
    return node->world && node->world->has_crashed;
}

/* Waits until a flag changes, or for so long. */
static void change_wait(struct sh_node_run *node, uint64_t ns)
{
    struct timespec until;
    if (node->world) {
        uint64_t now_ns = sh_now(&node->env.clock);
        (void)sh_crew_wait(node->crew, 0, &node->waiter, ns == SH_NEVER ? ns : now_ns + ns);
        node->waiter = (struct sh_waiter){0};
        return;
    }
    if (ns == SH_NEVER) {
        sem_wait(&node->changed);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)ns;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    sem_timedwait(&node->changed, &until);
}

/* Waits for a condition at most so long. The interval only bounds how late it is noticed. */
static void wait_for(struct sh_node_run *node, bool (*holds)(struct sh_node_run *node),
                     uint64_t timeout_ns)
{
    uint64_t deadline = sh_now(&node->env.clock) + timeout_ns;
    while (!holds(node) && sh_now(&node->env.clock) < deadline && !has_crashed(node))
        change_wait(node, LOOK_NS);
}

static bool may_serve(struct sh_node_run *node)
{
    return !sh_msg_is_fenced(node->msg) || atomic_load(&node->is_stopping);
}

bool sh_node_wait_ready(struct sh_node_run *node)
{
    while (!atomic_load(&node->is_ready) && !atomic_load(&node->is_stopping) && !has_crashed(node))
        change_wait(node, SH_NEVER);
    /* Its first lease comes right behind the join; a cluster in trouble is not waited for. */
    wait_for(node, may_serve, LEASE_WAIT_NS);
    return !atomic_load(&node->is_stopping);
}

static void on_left(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    if (err != SHOAL_OK)
        SH_WARN("node", "left without telling a superpeer", SH_ERR(err));
    sh_node_flag_set(node, &node->has_left);
}

static bool left(struct sh_node_run *node)
{
    return atomic_load(&node->has_left);
}

static bool drained(struct sh_node_run *node)
{
    return sh_msg_drained(node->msg);
}

/* Nobody asks any more, once it has left. */
static bool answers_are_sent(struct sh_node_run *node)
{
    return sh_helds_count(sh_chunks_helds(node->chunks)) == 0;
}

static bool log_is_synced(struct sh_node_run *node)
{
    return sh_logs_is_synced(node->logs);
}

static bool log_is_repaired(struct sh_node_run *node)
{
    return sh_logs_is_repaired(node->logs);
}

/* Syncs the log's changes to the disk before the process ends; what is damaged there is written once more first, as long as there are the chunks. */
static void log_end(struct sh_node_run *node)
{
    if (!node->logs || !sh_logs_is_open(node->logs))
        return;
    sh_logs_sync_begin(node->logs);
    sh_crew_wake(node->crew, 0);
    wait_for(node, log_is_synced, LOG_WAIT_NS);
    if (!log_is_synced(node))
        SH_WARN("node", "the log is not synced after 10 s: what was written last may be lost");
    wait_for(node, log_is_repaired, LOG_WAIT_NS);
    if (!log_is_repaired(node))
        SH_WARN("node", "a damaged zone of the log is not repaired: the next start may refuse it");
    wait_for(node, answers_are_sent, LEASE_WAIT_NS);
}

/* Its next process begins another life. */
static bool is_spent(struct sh_node_run *node)
{
    return sh_identity_is_confirmed(node->identity);
}

enum shoal_err sh_node_wait_stopped(struct sh_node_run *node)
{
    while (!atomic_load(&node->is_stopping) && !has_crashed(node))
        change_wait(node, SH_NEVER);
    if (has_crashed(node))
        return SHOAL_OK;
    SH_INFO("node", "stopping");
    bool is_fenced = atomic_load(&node->stop_reason) == SHOAL_EFENCED;
    if (is_fenced && node->identity)
        wait_for(node, is_spent, LOG_WAIT_NS);
    if (node->logs && !sh_logs_is_self(node->logs) && !is_fenced)
        log_end(node); /* backups take nothing of a node that has left, or has failed */
    if (node->member) {
        sh_member_leave(node->member, atomic_load(&node->back_ms), on_left, node);
        sh_crew_wake(node->crew, 0);
        wait_for(node, left, node->options->failure_ns + UINT64_C(1000000000));
    }
    if (node->logs && sh_logs_is_self(node->logs))
        log_end(node);
    wait_for(node, drained, UINT64_C(1000000000));
    sh_crew_stop(node->crew);
    node->is_started = false;
    SH_INFO("node", "stopped");
    return (enum shoal_err)atomic_load(&node->stop_reason);
}

bool sh_node_is_over(const struct sh_node_run *node)
{
    int reason = atomic_load(&node->stop_reason);
    return node->member && (reason == SHOAL_EFENCED || reason == SHOAL_EEXIST);
}

enum shoal_err sh_node_renew(struct sh_node_run **node_inout, char *detail)
{
    struct sh_node_run *former = *node_inout;
    SH_ASSERT(former->member && !former->is_started);
    const struct sh_options *options = former->options;
    const struct sh_node_world *world = former->world;
    struct sh_node_origin origin = {.promoted = former->promoted};
    enum shoal_err err = SHOAL_OK;
    *node_inout = NULL;
    former->promoted = NULL;
    if (former->env.disk && !world)
        err = sh_real_disk_create(options->data_dir, false, &origin.folder);
    if (origin.folder)
        sh_real_disk_hand_on(former->env.disk, origin.folder);
    sh_node_destroy(former);
    if (err)
        sh_promoted_destroy(origin.promoted);
    else
        err = sh_node_create_from(options, world, &origin, node_inout, detail);
    if (origin.folder)
        origin.folder->ops->destroy(origin.folder);
    return err;
}

const char *sh_node_address(const struct sh_node_run *node)
{
    return node->address;
}

shoal_nid sh_node_nid(const struct sh_node_run *node)
{
    return sh_msg_nid(node->msg);
}

struct sh_caller sh_node_caller(const struct sh_node_run *node)
{
    return (struct sh_caller){.msg = node->msg, .crew = node->crew, .clock = &node->env.clock};
}

struct sh_node_parts sh_node_parts(const struct sh_node_run *node)
{
    return (struct sh_node_parts){
        .msg = node->msg,
        .superpeer = node->superhost ? sh_superhost_superpeer(node->superhost) : NULL,
        .directory = node->directory,
        .member = node->member,
        .identity = node->identity,
        .store = node->store,
        .chunks = node->chunks,
        .locks = node->locks,
        .moves = node->moves,
        .promoted = node->promoted ? sh_promoted_node(node->promoted) : NULL,
    };
}
