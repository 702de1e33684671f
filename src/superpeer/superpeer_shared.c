/* The registry, as the superpeers share it: its life, its messages, its step. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- The registry ---------------------------------------------------------------------------- */

enum shoal_err sh_shared_registry_make(const struct sh_superpeer *superpeer,
                                       struct sh_registry **registry_out)
{
    const struct sh_shared *shared = superpeer->shared;
    struct sh_registry_config config = {
        .cluster = shared->cluster,
        .failure_ns = superpeer->failure_ns,
        .nids = superpeer->peer_nids,
    };
    return sh_registry_create(&config, registry_out);
}

enum shoal_err sh_shared_registry_read(const struct sh_superpeer *superpeer, struct sh_bytes image,
                                       struct sh_registry **registry_out)
{
    uint64_t sequence;
    struct sh_registry *registry;
    enum shoal_err err = sh_registry_image_check(image, &sequence);
    if (!err)
        err = sh_shared_registry_make(superpeer, &registry);
    if (err)
        return err;
    err = sh_registry_image_load(registry, now_of(superpeer), image);
    if (err)
        sh_registry_destroy(registry);
    else
        *registry_out = registry;
    return err;
}

void sh_shared_registry_set(struct sh_superpeer *superpeer, struct sh_registry *registry)
{
    sh_registry_times_take(registry, superpeer->registry);
    sh_registry_destroy(superpeer->registry);
    superpeer->registry = registry;
    sh_shared_contacts_take(superpeer, sh_registry_view(registry));
}

/* --- Messages -------------------------------------------------------------------------------- */

bool sh_shared_is_other(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return nid.v && nid.v <= SH_SUPERPEERS_MAX && nid.v != superpeer->index + 1;
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
    bool is_superpeer = nid.v && nid.v <= SH_SUPERPEERS_MAX;
    if (!sh_reader_done(&in->payload) || !(is_superpeer || sh_nid_is_peer(nid)))
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

static void connect_to(struct sh_superpeer *superpeer, shoal_nid nid)
{
    const char *address = superpeer->shared->contacts[nid.v];
    if (!*address || !sh_shared_is_other(superpeer, nid))
        return;
    enum shoal_err err = sh_msg_node_set(superpeer->msg, nid, address);
    if (err)
        SH_WARN("cluster", "can't connect to a superpeer", SH_U64("node", nid.v),
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
    struct sh_consensus *consensus = superpeer->shared->consensus;
    unsigned work = consensus->ops->step(consensus, now_ns);
    work += sh_shared_watch_step(superpeer, now_ns);
    work += sh_shared_pending_step(superpeer, now_ns);
    work += sh_superpeer_ring_step(superpeer, now_ns);
    work += consensus->ops->send(consensus, now_ns);
    return work;
}

uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    uint64_t ring_ns = sh_superpeer_ring_due_ns(superpeer);
    uint64_t due_ns = shared->consensus->ops->due_ns(shared->consensus, now_ns);
    if (ring_ns < due_ns)
        due_ns = ring_ns;
    if (shared->watch_ns < due_ns)
        due_ns = shared->watch_ns; /* at most a heartbeat away: soon enough for what is pending */
    return due_ns;
}

bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    const struct sh_node *own = sh_view_find(view, (shoal_nid){(uint16_t)(superpeer->index + 1)});
    return shared->consensus->ops->is_current(shared->consensus, now_of(superpeer)) && own &&
           own->state != SH_NODE_LEFT;
}

void sh_shared_contacts_take(struct sh_superpeer *superpeer, const struct sh_view *view)
{
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++)
        sh_shared_contact_set(superpeer, view->nodes[i].nid, sh_bytes_text(view->nodes[i].address));
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
    shared->election_ns = 4 * superpeer->heartbeat_ns;
    shared->watched_ns = now_ns;
    size_t name = strlen(config->cluster);
    SH_ASSERT(name && name < sizeof shared->cluster);
    memcpy(shared->cluster, config->cluster, name);
    size_t address = strlen(config->address);
    SH_ASSERT(address && address < sizeof shared->address);
    memcpy(shared->address, config->address, address);
    enum shoal_err err = sh_shared_registry_make(superpeer, &superpeer->registry);
    if (!err)
        err = (config->zookeeper ? sh_consensus_zookeeper_open
                                 : sh_consensus_raft_open)(superpeer, config, now_ns);
    if (err)
        return err;
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
    if (shared->consensus)
        shared->consensus->ops->destroy(shared->consensus);
    if (shared->is_dismissed && superpeer->env.disk)
        sh_superpeer_journal_remove(&superpeer->env);
    sh_shared_pending_drop(superpeer);
    superpeer->shared = NULL;
    free(shared);
}
