/* A shared registry's life: its state as raft's, its messages, its step. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

#define SNAPSHOT_ENTRIES 1024
#define PIECE_BYTES 16384

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- The state machine ----------------------------------------------------------------------- */

static size_t image_size(void *arg)
{
    struct sh_superpeer *superpeer = arg;
    return sh_registry_image_size(superpeer->registry);
}

static void image_put(void *arg, struct sh_writer *w)
{
    struct sh_superpeer *superpeer = arg;
    sh_registry_image_put(w, superpeer->registry, 0);
}

enum shoal_err sh_shared_registry_make(const struct sh_superpeer *superpeer,
                                       struct sh_registry **registry_out)
{
    const struct sh_shared *shared = superpeer->shared;
    struct sh_registry_config config = {
        .cluster = shared->cluster,
        .failure_ns = superpeer->failure_ns,
    };
    return sh_registry_create(&config, registry_out);
}

static enum shoal_err image_get(void *arg, struct sh_bytes image)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t sequence;
    enum shoal_err err = sh_registry_image_check(image, &sequence);
    if (err)
        return err;
    struct sh_registry *registry;
    err = sh_shared_registry_make(superpeer, &registry);
    if (err)
        return err;
    err = sh_registry_image_load(registry, now_of(superpeer), image);
    if (err) {
        sh_registry_destroy(registry);
        return err;
    }
    sh_registry_times_take(registry, superpeer->registry);
    sh_registry_destroy(superpeer->registry);
    superpeer->registry = registry;
    sh_shared_contacts_take(superpeer, sh_registry_view(registry));
    return SHOAL_OK;
}

/* --- Messages -------------------------------------------------------------------------------- */

bool sh_shared_is_other(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return nid.v && nid.v <= SH_SUPERPEERS_MAX && nid.v != superpeer->index + 1;
}

static struct sh_bytes rest_of(struct sh_msg_in *in)
{
    size_t size = sh_reader_left(&in->payload);
    return sh_bytes_make(sh_reader_take(&in->payload, size), size);
}

static void on_raft(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    if (sh_shared_is_other(superpeer, in->reply_to.nid))
        sh_raft_receive(superpeer->shared->raft, now_of(superpeer), (uint8_t)in->reply_to.nid.v,
                        rest_of(in));
}

static void on_propose(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_bytes bytes = rest_of(in);
    struct sh_command command;
    if (sh_shared_is_other(superpeer, in->reply_to.nid) && sh_command_get(bytes, &command) &&
        sh_raft_role(superpeer->shared->raft) == SH_RAFT_LEADER)
        sh_shared_hand_in(superpeer, bytes);
}

static void on_recruit(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t instance = sh_get64(&in->payload);
    struct sh_bytes address = sh_get_text(&in->payload);
    if (!sh_reader_done(&in->payload))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
    else if (!sh_superpeer_shared_is_current(superpeer) || !sh_shared_is_whole(superpeer))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY,
                           "this superpeer hears no majority of the superpeers");
    else
        sh_shared_recruit(superpeer, in, address, instance);
}

static void on_dismiss(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nid = {sh_get16(&in->payload)};
    if (!sh_reader_done(&in->payload))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
    else
        sh_shared_dismiss(superpeer, in, nid);
}

static void on_lost(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nid = {sh_get16(&in->payload)};
    if (!sh_reader_done(&in->payload) || !nid.v || nid.v > SH_SUPERPEERS_MAX)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
    else
        sh_shared_lost(superpeer, in, nid);
}

void sh_shared_send(struct sh_superpeer *superpeer, shoal_nid to, sh_msg_type type,
                    struct sh_bytes bytes)
{
    struct sh_out out;
    if (!sh_shared_is_other(superpeer, to) ||
        sh_msg_begin(superpeer->msg, to, type, (uint32_t)bytes.size, &out))
        return;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(superpeer->msg, &out);
}

static unsigned send_all(struct sh_superpeer *superpeer)
{
    unsigned work = 0;
    struct sh_raft_message *message;
    while ((message = sh_raft_message_next(superpeer->shared->raft))) {
        sh_shared_send(superpeer, (shoal_nid){message->to}, SH_CLUSTER_RAFT,
                       sh_bytes_make(message->bytes, message->size));
        free(message);
        work++;
    }
    return work;
}

static void connect_to(struct sh_superpeer *superpeer, shoal_nid nid)
{
    const char *address = superpeer->shared->contacts[nid.v];
    if (!*address || !sh_shared_is_other(superpeer, nid))
        return;
    enum shoal_err err = sh_msg_node_set(superpeer->msg, nid, address);
    if (err)
        SH_WARN("cluster", "superpeer can't be connected to", SH_U64("node", nid.v),
                SH_TEXT("address", address), SH_ERR(err));
}

void sh_superpeer_shared_connect(struct sh_superpeer *superpeer)
{
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++)
        connect_to(superpeer, (shoal_nid){i});
}

void sh_shared_contact_set(struct sh_superpeer *superpeer, shoal_nid nid, struct sh_bytes address)
{
    char *contact = superpeer->shared->contacts[nid.v];
    SH_ASSERT(nid.v && nid.v <= SH_SUPERPEERS_MAX && address.size < SH_MSG_ADDRESS_MAX);
    memcpy(contact, address.at, address.size);
    contact[address.size] = 0;
    connect_to(superpeer, nid);
}

/* --- Life ------------------------------------------------------------------------------------ */

unsigned sh_superpeer_shared_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    unsigned work = 0;
    if (shared->zookeeper)
        return sh_shared_zookeeper_step(superpeer, now_ns);
    if (now_ns >= sh_raft_due_ns(shared->raft)) {
        sh_raft_tick(shared->raft, now_ns);
        work++;
    }
    work += sh_shared_watch_step(superpeer, now_ns);
    work += sh_shared_pending_step(superpeer, now_ns);
    work += sh_superpeer_ring_step(superpeer, now_ns);
    work += send_all(superpeer);
    return work;
}

uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    uint64_t ring_ns = sh_superpeer_ring_due_ns(superpeer);
    if (shared->zookeeper) {
        uint64_t zookeeper_ns = sh_zookeeper_due_ns(shared->zookeeper, now_ns);
        return zookeeper_ns < ring_ns ? zookeeper_ns : ring_ns;
    }
    uint64_t due_ns = sh_raft_due_ns(shared->raft);
    if (ring_ns < due_ns)
        due_ns = ring_ns;
    if (shared->watch_ns < due_ns)
        due_ns = shared->watch_ns; /* at most a heartbeat away: soon enough for what is pending */
    return due_ns;
}

bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    if (shared->zookeeper)
        return sh_shared_zookeeper_is_current(superpeer);
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    const struct sh_node *own = sh_view_find(view, (shoal_nid){(uint16_t)(superpeer->index + 1)});
    return sh_raft_is_current(shared->raft) && own && own->state != SH_NODE_LEFT &&
           !sh_shared_is_lost(superpeer, now_of(superpeer));
}

void sh_shared_contacts_take(struct sh_superpeer *superpeer, const struct sh_view *view)
{
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++)
        sh_shared_contact_set(superpeer, view->nodes[i].nid, sh_bytes_text(view->nodes[i].address));
}

/* Where others are, by what was stored last, or for a new cluster by the list; a recruit was told.
 */
static void contacts_fill(struct sh_superpeer *superpeer, const struct sh_superpeer_config *config)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view =
        config->recruited ? config->recruited : sh_registry_view(superpeer->registry);
    sh_shared_contacts_take(superpeer, view);
    bool is_known = config->recruited || view->superpeers;
    struct sh_command command;
    struct sh_bytes bytes;
    uint64_t term;
    for (uint64_t i = sh_raft_applied(shared->raft) + 1; i <= sh_raft_last(shared->raft); i++) {
        if (!sh_raft_entry(shared->raft, i, &term, &bytes) || !sh_command_get(bytes, &command) ||
            command.kind != SH_COMMAND_SUPERPEER || !command.nid.v ||
            command.nid.v > SH_SUPERPEERS_MAX)
            continue;
        is_known = true;
        sh_shared_contact_set(superpeer, command.nid, command.address);
    }
    for (uint16_t i = 0; !is_known && i < config->count; i++)
        sh_shared_contact_set(superpeer, (shoal_nid){(uint16_t)(i + 1)},
                              sh_bytes_text(shared->hints[i]));
    if (is_known || config->count > superpeer->index)
        sh_shared_contact_set(superpeer, (shoal_nid){(uint16_t)(superpeer->index + 1)},
                              sh_bytes_text(shared->address));
}

static enum shoal_err raft_open(struct sh_superpeer *superpeer,
                                const struct sh_superpeer_config *config, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t voters = 0;
    for (uint16_t i = 1; !config->recruited && i <= config->count; i++)
        voters |= UINT64_C(1) << i;
    struct sh_raft_config of_raft = {
        .server = (uint8_t)(superpeer->index + 1),
        .first = {.voters = voters},
        .election_ns = shared->election_ns,
        .heartbeat_ns = superpeer->heartbeat_ns > 1 ? superpeer->heartbeat_ns / 2 : 1,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = PIECE_BYTES,
        .seed = sh_random64(&superpeer->env.random),
        .fsm = {sh_shared_apply, image_size, image_put, image_get, superpeer},
    };
    enum shoal_err err = sh_raft_create(&of_raft, &shared->raft);
    if (!err)
        err = sh_superpeer_ring_open(superpeer); /* and the journal of both */
    if (err)
        return err;
    if (sh_raft_is_new(shared->raft))
        SH_INFO("cluster",
                config->recruited ? "new superpeer" : "new registry, which the superpeers share",
                SH_U64("superpeers", config->count));
    contacts_fill(superpeer, config);
    sh_superpeer_journal_start(superpeer, now_ns);
    return SHOAL_OK;
}

static void raft_handlers_set(struct sh_superpeer *superpeer)
{
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_CLUSTER_RAFT, on_raft},           {SH_CLUSTER_PROPOSE, on_propose},
        {SH_CLUSTER_HERE, sh_shared_on_here}, {SH_CLUSTER_DISMISSED, sh_shared_on_dismissed},
        {SH_CLUSTER_RECRUIT, on_recruit},
    };
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(superpeer->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           superpeer);
}

/* Takes what the configuration says about addresses. EADDRESS, ENOMEM. */
static enum shoal_err addresses_take(struct sh_shared *shared,
                                     const struct sh_superpeer_config *config)
{
    shared->hints = calloc(config->count ? config->count : 1, sizeof shared->hints[0]);
    if (!shared->hints)
        return SHOAL_ENOMEM;
    shared->hints_count = config->count;
    for (uint16_t i = 0; i < config->count; i++) {
        size_t size = strlen(config->addresses[i]);
        if (!size || size >= SH_MSG_ADDRESS_MAX) {
            SH_ERROR("cluster", "not a usable superpeer address",
                     SH_TEXT("address", config->addresses[i]));
            return SHOAL_EADDRESS;
        }
        memcpy(shared->hints[i], config->addresses[i], size);
    }
    size_t size = strlen(config->address);
    SH_ASSERT(size && size < SH_MSG_ADDRESS_MAX);
    memcpy(shared->address, config->address, size);
    return SHOAL_OK;
}

enum shoal_err sh_superpeer_shared_open(struct sh_superpeer *superpeer,
                                        const struct sh_superpeer_config *config, uint64_t now_ns)
{
    struct sh_shared *shared = calloc(1, sizeof *shared);
    if (!shared)
        return SHOAL_ENOMEM;
    superpeer->shared = shared;
    shared->pending_end = &shared->pending;
    shared->number = sh_random64(&superpeer->env.random) << 24;
    shared->instance = config->instance;
    shared->on_dismissed = config->on_dismissed;
    shared->on_enrolled = config->on_enrolled;
    shared->election_ns = 4 * superpeer->heartbeat_ns;
    shared->started_ns = shared->watched_ns = now_ns;
    size_t name = strlen(config->cluster);
    SH_ASSERT(name && name < sizeof shared->cluster);
    memcpy(shared->cluster, config->cluster, name);
    enum shoal_err err = addresses_take(shared, config);
    if (!err)
        err = sh_shared_registry_make(superpeer, &superpeer->registry);
    if (!err && config->zookeeper)
        err = sh_shared_zookeeper_open(superpeer, config);
    else if (!err)
        err = raft_open(superpeer, config, now_ns);
    if (err)
        return err;
    if (!config->zookeeper)
        raft_handlers_set(superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_HEARD, SH_MSG_INLINE, sh_shared_on_heard,
                       superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_DISMISS, SH_MSG_INLINE, on_dismiss, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_LOST, SH_MSG_INLINE, on_lost, superpeer);
    return SHOAL_OK;
}

void sh_superpeer_shared_close(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (!shared)
        return;
    sh_shared_zookeeper_close(superpeer);
    if (shared->is_dismissed && superpeer->env.disk)
        sh_superpeer_journal_remove(&superpeer->env);
    sh_raft_destroy(shared->raft);
    sh_shared_pending_drop(superpeer);
    superpeer->shared = NULL;
    free(shared->hints);
    free(shared);
}
