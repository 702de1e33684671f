/* A superpeer's messages and its step. */
#include "superpeer/superpeer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/options.h"
#include "cluster/changes.h"
#include "cluster/connect.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* Tells msg and the node what has changed in the view. */
static void announce(struct sh_superpeer *superpeer)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (view->epoch == superpeer->announced.epoch)
        return;
    struct sh_view copy = {0};
    if (sh_view_copy(&copy, view))
        return; /* out of memory: tried again in the next step */
    sh_connect_view(superpeer->msg, &superpeer->announced, view);
    sh_superpeer_shared_connect(superpeer);
    sh_view_destroy(&superpeer->announced);
    superpeer->announced = copy;
    if (superpeer->on_view)
        superpeer->on_view(superpeer->arg, view);
}

/* What a peer keeps on its disk of the cluster that it belongs to: nothing where the registry itself is
 * not on disks. */
static uint64_t cluster_of(const struct sh_superpeer *superpeer)
{
    return superpeer->env.disk ? sh_registry_cluster(superpeer->registry) : 0;
}

void sh_superpeer_join_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, shoal_nid nid)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, type, SH_JOIN_ANSWER_BYTES + sh_view_size(view), &out))
        return;
    sh_put16(&out.w, nid.v);
    sh_put16(&out.w, (uint16_t)(superpeer->index + 1));
    sh_put64(&out.w, cluster_of(superpeer));
    sh_view_put_all(&out.w, view);
    sh_msg_end(superpeer->msg, &out);
}

/* --- Messages ------------------------------------------------------------------------------- */

/* A node that went by other times would fence itself, or be taken for silent, too early or late. */
static void refuse_settings(const struct sh_superpeer *superpeer, struct sh_msg_in *in,
                            uint64_t heartbeat_ns, uint64_t failure_ns)
{
    char text[320], numbers[4][SH_NUMBER_TEXT_MAX];
    const uint64_t values[] = {heartbeat_ns, failure_ns, superpeer->heartbeat_ns,
                               superpeer->failure_ns};
    for (size_t i = 0; i < 4; i++)
        (void)sh_number_format(values[i], "ns", numbers[i]);
    (void)snprintf(text, sizeof text,
                   "the node has heartbeat_ns %s and failure_ns %s, superpeer %u has %s and %s",
                   numbers[0], numbers[1], superpeer->index + 1u, numbers[2], numbers[3]);
    refuse(in, SHOAL_ESETTING, text);
}

void sh_superpeer_join_refuse(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, const struct sh_refused_join *join)
{
    char text[256] = "";
    const struct sh_node *holder = NULL;
    if (join->err == SHOAL_EADDRINUSE)
        holder =
            sh_view_holder(sh_registry_view(superpeer->registry), join->address, join->instance);
    if (join->err == SHOAL_EAGAIN)
        holder = sh_view_find(sh_registry_view(superpeer->registry), join->previous);
    if (join->err == SHOAL_EFENCED)
        (void)snprintf(
            text, sizeof text,
            "that life of the node was declared failed, or has left: the node is started "
            "again, and joins with another one");
    else if (join->err == SHOAL_EEXIST && join->is_restart)
        (void)snprintf(
            text, sizeof text,
            "data_dir is a copy of node %u's, or an old backup, or that ID was given to another "
            "node meanwhile: another process has run under it since",
            join->previous.v);
    else if (join->err == SHOAL_ELIMIT)
        (void)snprintf(text, sizeof text,
                       "no node ID is left: those of nodes that left or failed come back when they "
                       "are forgotten, after forget_ns or by `shoal node forget`");
    else if (join->err == SHOAL_EEXIST)
        (void)snprintf(
            text, sizeof text,
            "another node has this node's ID by now, or this node was forgotten, and its "
            "chunks with it");
    else if (holder && join->err == SHOAL_EAGAIN)
        (void)snprintf(
            text, sizeof text,
            "node %u, which this is, is up at %s, and its lease is not over: try again in a "
            "moment, or stop the other process, if data_dir is a copy",
            holder->nid.v, holder->address);
    else if (holder)
        (void)snprintf(text, sizeof text,
                       "node %u has the address %s, and its lease is not over: try again in a "
                       "moment, or give this node an address of its own",
                       holder->nid.v, holder->address);
    /* If its process is gone, that is found out the sooner. */
    if (holder)
        sh_superpeer_probe(superpeer, holder->nid, now_of(superpeer));
    sh_msg_reply_error(superpeer->msg, to, type, join->err, *text ? text : NULL);
}

/* Refuses what a superpeer that is cut off from the others must not answer. */
static bool is_cut_off(struct sh_superpeer *superpeer, struct sh_msg_in *in)
{
    if (sh_superpeer_shared_is_current(superpeer))
        return false;
    refuse(in, SHOAL_EBUSY, "this superpeer hears no majority of the superpeers");
    return true;
}

static void on_join(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    unsigned role = sh_get8(&in->payload);
    unsigned zero = sh_get8(&in->payload);
    shoal_nid previous = {sh_get16(&in->payload)};
    uint64_t instance = sh_get64(&in->payload);
    (void)sh_get64(&in->payload); /* the epoch that it knows: it tells that with each heartbeat */
    uint64_t heartbeat_ns = sh_get64(&in->payload);
    uint64_t failure_ns = sh_get64(&in->payload);
    uint64_t cluster = sh_get64(&in->payload);
    struct sh_bytes address = sh_get_text(&in->payload);
    struct sh_traits traits;
    if (sh_traits_get(&in->payload, &traits) || !sh_reader_done(&in->payload) || zero) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (role != SH_ROLE_PEER) {
        refuse(in, SHOAL_EINVAL, "only peers join");
        return;
    }
    if (heartbeat_ns != superpeer->heartbeat_ns || failure_ns != superpeer->failure_ns) {
        refuse_settings(superpeer, in, heartbeat_ns, failure_ns);
        return;
    }
    if (cluster && is_cut_off(superpeer, in))
        return;
    if (cluster && cluster != cluster_of(superpeer)) {
        refuse(in, SHOAL_ECLUSTER, "data_dir belongs to a node of another cluster of that name");
        return;
    }
    sh_superpeer_shared_join(superpeer, in, address, instance, previous, cluster, &traits);
}

/* An answer to a heartbeat of one who knows the view of that epoch, and has to hear what has
 * changed since. False: the whole view is to be sent, as what has changed is not known or not less.
 */
static bool answer_changes(struct sh_superpeer *superpeer, struct sh_msg_in *in, uint64_t epoch,
                           uint64_t lease_ns)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    shoal_nid nids[SH_CHANGES_MAX];
    size_t count = sh_registry_changed_since(superpeer->registry, epoch, nids);
    if (!epoch || count == SIZE_MAX || count >= view->count)
        return false;
    struct sh_out out;
    size_t size = SH_GRANT_BYTES + 1 + sh_changes_size(view, nids, count);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return true;
    sh_put64(&out.w, lease_ns);
    sh_put8(&out.w, SH_ANSWER_CHANGES);
    sh_changes_put(&out.w, view, epoch, sh_registry_digest(superpeer->registry), nids, count);
    sh_msg_end(in->msg, &out);
    return true;
}

/* An answer of a lease (NULL: none), flags, and if the asker knows another epoch, the view. */
static void answer_view(struct sh_superpeer *superpeer, struct sh_msg_in *in, uint64_t epoch,
                        const uint64_t *lease_ns)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    uint8_t flags = epoch != view->epoch ? SH_ANSWER_VIEW : 0;
    size_t size =
        1 + (lease_ns ? SH_GRANT_BYTES : 0) + (flags & SH_ANSWER_VIEW ? sh_view_size(view) : 0);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    if (lease_ns)
        sh_put64(&out.w, *lease_ns);
    sh_put8(&out.w, flags);
    if (flags & SH_ANSWER_VIEW)
        sh_view_put_all(&out.w, view);
    sh_msg_end(in->msg, &out);
}

static void on_heartbeat(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nid = {sh_get16(&in->payload)};
    unsigned wants = sh_get16(&in->payload);
    uint64_t instance = sh_get64(&in->payload);
    uint64_t epoch = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || (wants & ~SH_WANTS_WHOLE)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (is_cut_off(superpeer, in))
        return;
    uint64_t now_ns = now_of(superpeer);
    enum shoal_err err = sh_registry_heartbeat(superpeer->registry, now_ns, nid, instance, epoch);
    if (err) {
        refuse(in, err, NULL);
        return;
    }
    sh_superpeer_shared_heard(superpeer, nid, epoch);
    uint64_t lease_ns = sh_superpeer_lease_ns(superpeer, nid, now_ns);
    bool is_known = epoch == sh_registry_view(superpeer->registry)->epoch;
    bool wants_whole = wants & SH_WANTS_WHOLE;
    if (is_known || wants_whole || !answer_changes(superpeer, in, epoch, lease_ns))
        answer_view(superpeer, in, wants_whole ? 0 : epoch, &lease_ns);
}

static void on_leave(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nid = {sh_get16(&in->payload)};
    unsigned zero = sh_get16(&in->payload);
    uint64_t instance = sh_get64(&in->payload);
    uint32_t back_ms = sh_get32(&in->payload);
    if (!sh_reader_done(&in->payload) || zero || back_ms > SH_BACK_MS_MAX) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    sh_superpeer_shared_leave(superpeer, in, nid, instance, back_ms);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_cid cid = {sh_get64(&in->payload)};
    uint64_t epoch = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (is_cut_off(superpeer, in))
        return;
    sh_superpeer_lookup_ask(superpeer, in->reply_to, cid, epoch);
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t epoch = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (is_cut_off(superpeer, in))
        return;
    answer_view(superpeer, in, epoch, NULL);
}

/* --- Step ----------------------------------------------------------------------------------- */

static unsigned run(void *arg)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t now_ns = now_of(superpeer);
    unsigned work = sh_superpeer_shared_step(superpeer, now_ns);
    work += sh_superpeer_probes_step(superpeer, now_ns);
    work += sh_superpeer_lookups_step(superpeer, now_ns);
    work += sh_superpeer_services_step(superpeer, now_ns);
    work += sh_superpeer_forget_step(superpeer, now_ns);
    work += sh_superpeer_recoveries_step(superpeer, now_ns);
    work += sh_superpeer_former_step(superpeer, now_ns);
    announce(superpeer);
    return work;
}

static uint64_t due_ns(void *arg)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t others[] = {
        sh_superpeer_shared_due_ns(superpeer, now_of(superpeer)),
        sh_superpeer_probes_due_ns(superpeer),
        sh_superpeer_services_due_ns(superpeer),
        sh_superpeer_forget_due_ns(superpeer),
        sh_superpeer_recoveries_due_ns(superpeer, now_of(superpeer)),
        sh_superpeer_former_due_ns(superpeer),
    };
    uint64_t due = SH_NEVER;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        due = others[i] < due ? others[i] : due;
    return due;
}

static void handlers_set(struct sh_superpeer *superpeer)
{
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_CLUSTER_JOIN, on_join},
        {SH_CLUSTER_HEARTBEAT, on_heartbeat},
        {SH_CLUSTER_LEAVE, on_leave},
        {SH_CLUSTER_LOOKUP, on_lookup},
        {SH_CLUSTER_VIEW_GET, on_view_get},
        {SH_CLUSTER_TREE, sh_superpeer_tree_handler},
        {SH_CLUSTER_SUSPECT, sh_superpeer_suspect_handler},
        {SH_CLUSTER_PING, sh_superpeer_ping_handler},
        {SH_CLUSTER_REFUSED, sh_superpeer_refused_handler},
        {SH_CLUSTER_EVENTS, sh_superpeer_events_handler},
    };
    /* Inline, so that all of a superpeer runs in one thread. */
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(superpeer->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           superpeer);
    sh_superpeer_ring_handlers(superpeer);
    sh_superpeer_report_handler(superpeer);
}

enum shoal_err sh_superpeer_create(const struct sh_superpeer_config *config,
                                   struct sh_superpeer **superpeer_out)
{
    SH_ASSERT(config->heartbeat_ns && config->failure_ns >= 10 * config->heartbeat_ns);
    SH_ASSERT(config->zookeeper || config->index != SH_SUPERPEER_UNKNOWN);
    SH_ASSERT(sh_msg_nid(config->msg).v == (uint16_t)(config->index + 1)); /* UNKNOWN: NONE */
    struct sh_superpeer *superpeer = calloc(1, sizeof *superpeer);
    if (!superpeer)
        return SHOAL_ENOMEM;
    superpeer->msg = config->msg;
    superpeer->instance = config->instance;
    superpeer->env = config->env;
    superpeer->index = config->index;
    superpeer->heartbeat_ns = config->heartbeat_ns;
    superpeer->failure_ns = config->failure_ns;
    superpeer->forget_ns = config->forget_ns;
    superpeer->peer_nids = config->peer_nids;
    superpeer->scratch_bytes_max =
        config->scratch_bytes_max ? config->scratch_bytes_max : SH_SCRATCH_BYTES_MAX;
    superpeer->on_view = config->on_view;
    superpeer->arg = config->arg;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++)
        superpeer->probes[i].superpeer = superpeer;
    uint64_t now_ns = now_of(superpeer);
    sh_msg_sole_set(config->msg, (shoal_nid){SH_SUPERPEERS_MAX}, config->failure_ns);
    enum shoal_err err = sh_superpeer_shared_open(superpeer, config, now_ns);
    if (!err)
        err = sh_superpeer_services_open(superpeer);
    if (!err)
        err = sh_superpeer_forget_open(superpeer);
    if (!err)
        err = sh_superpeer_recoveries_open(superpeer);
    if (!err)
        err = sh_superpeer_former_open(superpeer);
    if (err) {
        sh_msg_handlers_drop(superpeer->msg, superpeer); /* which goes on, in a recruit's process */
        sh_superpeer_destroy(superpeer);
        return err;
    }
    handlers_set(superpeer);
    announce(superpeer);
    *superpeer_out = superpeer;
    return SHOAL_OK;
}

void sh_superpeer_destroy(struct sh_superpeer *superpeer)
{
    if (!superpeer)
        return;
    sh_superpeer_requests_cancel(superpeer);
    sh_superpeer_lookups_close(superpeer);
    sh_superpeer_forget_close(superpeer);
    sh_superpeer_recoveries_close(superpeer);
    sh_superpeer_former_close(superpeer);
    sh_superpeer_services_close(superpeer);
    sh_superpeer_ring_close(superpeer);
    sh_superpeer_shared_close(superpeer);
    sh_registry_destroy(superpeer->registry);
    sh_view_destroy(&superpeer->announced);
    free(superpeer);
}

struct sh_step sh_superpeer_step(struct sh_superpeer *superpeer)
{
    return (struct sh_step){.name = "superpeer", .run = run, .due_ns = due_ns, .arg = superpeer};
}

void sh_superpeer_link_event(struct sh_superpeer *superpeer, const struct sh_msg_event *event)
{
    if (event->kind != SH_MSG_LOST)
        return;
    sh_superpeer_services_lost(superpeer, event->nid);
    sh_superpeer_shared_lost(superpeer, event->nid);
    if (event->err == SHOAL_EEXIST)
        sh_superpeer_shared_turned_away(superpeer, now_of(superpeer));
    /* One that this end could not open says nothing of the node's own. */
    if (event->err == SHOAL_ECONNLOST)
        sh_superpeer_probe_lost(superpeer, event->nid, now_of(superpeer));
    else
        sh_superpeer_probe(superpeer, event->nid, now_of(superpeer));
}

const struct sh_view *sh_superpeer_view(const struct sh_superpeer *superpeer)
{
    return sh_registry_view(superpeer->registry);
}
