/* What only a shared registry has: superpeers that come and go, and a leader who asks who is
 * overdue. */
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "superpeer/registry_int.h"

/* More epochs than a cluster went through without a superpeer that is forced to go on alone. */
#define EPOCHS_FORCED (UINT64_C(1) << 32)
/* A cluster that is forced to go on skips a third of all IDs: the lost part of the log may have given
 * out the next ones, whose bearers come back with them. A third is 19,093 joins that the survivor has
 * not heard of; and a cluster that is forced a second time goes on a third further, not where the first
 * time began. */
#define FORCED_SKIP(nids) ((nids) / 3)

/* The superpeer that has that address and has not left; NONE. */
static shoal_nid find_address(const struct sh_view *view, struct sh_bytes address)
{
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role == SH_ROLE_SUPERPEER && node->state != SH_NODE_LEFT &&
            sh_node_is_at(node, address))
            return node->nid;
    }
    return SHOAL_NID_NONE;
}

/* The lowest ID that no superpeer had, or when all were in use, that of one that left. */
static shoal_nid free_superpeer_nid(const struct sh_view *view)
{
    for (unsigned round = 0; round < 2; round++) {
        for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
            const struct sh_node *node = sh_view_find(view, (shoal_nid){i});
            if (!node || (round == 1 && node->state == SH_NODE_LEFT))
                return (shoal_nid){i};
        }
    }
    return SHOAL_NID_NONE;
}

enum shoal_err sh_registry_superpeer_show(struct sh_view *view, struct sh_bytes address,
                                          uint64_t instance, shoal_nid nid, shoal_nid *nid_out,
                                          bool *is_news_out)
{
    if (!sh_address_is_valid(address) || nid.v > SH_SUPERPEERS_MAX)
        return SHOAL_EINVAL;
    if (!nid.v)
        nid = find_address(view, address);
    bool is_new = !nid.v;
    if (is_new)
        nid = free_superpeer_nid(view);
    if (!nid.v)
        return SHOAL_ELIMIT;
    if (is_new && sh_view_holder(view, address, instance))
        return SHOAL_EADDRINUSE;
    const struct sh_node *known = sh_view_find(view, nid);
    if (known && known->state == SH_NODE_LEFT && !is_new)
        return SHOAL_ENONODE;
    if (known && !is_new && sh_node_is_at(known, address)) {
        *nid_out = nid;
        *is_news_out = false;
        return SHOAL_OK;
    }
    struct sh_node node = {.nid = nid,
                           .role = SH_ROLE_SUPERPEER,
                           .state = known && !is_new ? known->state : SH_NODE_UP,
                           .instance = instance};
    memcpy(node.address, address.at, address.size);
    enum shoal_err err = sh_view_put(view, &node);
    if (err)
        return err;
    SH_ASSERT(nid.v <= SH_SUPERPEERS_MAX);
    if (nid.v > view->superpeers)
        view->superpeers = nid.v;
    *nid_out = nid;
    *is_news_out = true;
    return SHOAL_OK;
}

enum shoal_err sh_registry_superpeer_put(struct sh_registry *registry, struct sh_bytes address,
                                         uint64_t instance, shoal_nid nid, shoal_nid *nid_out)
{
    bool is_news;
    enum shoal_err err =
        sh_registry_superpeer_show(&registry->view, address, instance, nid, nid_out, &is_news);
    if (err || !is_news)
        return err;
    const struct sh_node *node = sh_view_find(&registry->view, *nid_out);
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "superpeer is in the registry with this address",
            SH_U64("node", node->nid.v), SH_TEXT("address", node->address),
            SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

static size_t superpeers_count(const struct sh_registry *registry)
{
    size_t count = 0;
    for (size_t i = 0; i < registry->view.count; i++)
        count += registry->view.nodes[i].role == SH_ROLE_SUPERPEER &&
                 registry->view.nodes[i].state != SH_NODE_LEFT;
    return count;
}

enum shoal_err sh_registry_superpeer_set(struct sh_registry *registry, shoal_nid nid,
                                         enum sh_node_state state)
{
    static const char *const events[] = {"superpeer is back", "superpeer has left",
                                         "superpeer is silent"};
    struct sh_node *node = sh_view_find(&registry->view, nid);
    if (!node || node->role != SH_ROLE_SUPERPEER)
        return SHOAL_ENONODE;
    SH_ASSERT(nid.v && nid.v <= SH_SUPERPEERS_MAX);
    SH_ASSERT(state == SH_NODE_UP || state == SH_NODE_LEFT || state == SH_NODE_FAILED);
    if (node->state == state)
        return SHOAL_OK;
    if (node->state == SH_NODE_LEFT)
        return SHOAL_ENONODE;
    if (state == SH_NODE_LEFT && superpeers_count(registry) == 1)
        return SHOAL_ELIMIT;
    if (state == SH_NODE_LEFT && !sh_arcs_is_bare(&registry->arcs, nid.v)) {
        registry->changes += sh_arcs_retire(&registry->arcs, nid.v);
        if (!sh_arcs_is_bare(&registry->arcs, nid.v))
            return SHOAL_EBUSY;
    }
    if (state != SH_NODE_UP)
        (void)sh_arcs_gone(&registry->arcs, nid.v);
    else
        (void)sh_arcs_up(&registry->arcs, nid.v); /* if it has ever taken part in the ring */
    node->state = state;
    sh_registry_touch_node(registry, node);
    SH_WARN("cluster", events[state], SH_U64("node", nid.v), SH_TEXT("address", node->address));
    return SHOAL_OK;
}

const struct sh_arcs *sh_registry_arcs(const struct sh_registry *registry)
{
    return &registry->arcs;
}

enum shoal_err sh_registry_arcs_start(struct sh_registry *registry, shoal_nid nid, uint64_t life,
                                      bool is_memory)
{
    struct sh_node *node = sh_view_find(&registry->view, nid);
    if (!node || node->role != SH_ROLE_SUPERPEER || node->state == SH_NODE_LEFT || !(uint32_t)life)
        return SHOAL_ENONODE;
    enum sh_arcs_start started =
        sh_life_starts(life)
            ? sh_arcs_start(&registry->arcs, nid.v, life)
            : sh_arcs_start_empty(&registry->arcs, nid.v, (uint32_t)life, is_memory);
    if (started == SH_ARCS_STALE)
        return SHOAL_EDIFFERS;
    /* Nodes of a registry that was lost with its memory may come, with the IDs that they had. */
    if (is_memory && registry->next_nid.v == SH_PEER_NID_MIN)
        registry->next_nid.v += (uint16_t)(sh_mix64(life) % SH_PEER_NIDS);
    registry->changes++;
    /* Its start is a sign of life. If its state stayed FAILED, the leader would not watch it, and not declare it
     * failed again when it falls silent at once. */
    if (node->state == SH_NODE_FAILED) {
        node->state = SH_NODE_UP;
        sh_registry_touch_node(registry, node);
    }
    return SHOAL_OK;
}

/* The shards whose only replica a superpeer is. */
static unsigned shards_alone(const struct sh_arcs *arcs, unsigned nid)
{
    unsigned count = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        count += arcs->shards[i].replicas == sh_arc_bit(nid);
    return count;
}

enum shoal_err sh_registry_superpeer_lost(struct sh_registry *registry, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(&registry->view, nid);
    if (!node || node->role != SH_ROLE_SUPERPEER || !registry->arcs.lives[nid.v])
        return SHOAL_ENONODE;
    if (registry->arcs.present & sh_arc_bit(nid.v))
        return SHOAL_EINVAL;
    unsigned alone = shards_alone(&registry->arcs, nid.v);
    registry->changes += sh_arcs_forget(&registry->arcs, nid.v);
    SH_WARN("cluster",
            "an operator has declared a superpeer's disk lost: the shards that it alone had go on "
            "from the most advanced old copies",
            SH_U64("superpeer", nid.v), SH_U64("shards", alone));
    return SHOAL_OK;
}

enum shoal_err sh_registry_force(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    SH_ASSERT(instance);
    struct sh_node *own = sh_view_find(&registry->view, nid);
    if (!own || own->role != SH_ROLE_SUPERPEER || !registry->arcs.lives[nid.v]) {
        SH_ERROR(
            "cluster",
            "the cluster can't go on with this superpeer alone, which has never taken part in the "
            "registry: restore the copy of its data_dir, and force another survivor",
            SH_U64("superpeer", nid.v));
        return SHOAL_ENONODE;
    }
    for (size_t i = 0; i < registry->view.count; i++) {
        struct sh_node *node = &registry->view.nodes[i];
        if (node->role == SH_ROLE_SUPERPEER)
            node->state = node->nid.v == nid.v ? SH_NODE_UP : SH_NODE_LEFT;
    }
    sh_arcs_force(&registry->arcs, nid.v);
    sh_registry_nids_skip(registry, FORCED_SKIP(registry->nids));
    registry->version += EPOCHS_FORCED;
    registry->view.epoch += EPOCHS_FORCED;
    sh_registry_touch(registry);
    registry->events_log = 1;
    sh_registry_events_begin(registry);
    sh_registry_events_name(registry, instance);
    SH_WARN("cluster", "the cluster goes on with this superpeer alone, as an operator has forced",
            SH_U64("superpeer", nid.v), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

void sh_registry_arcs_change(struct sh_registry *registry, const struct sh_arc_change *change)
{
    registry->changes += sh_arcs_change(&registry->arcs, change);
}

void sh_registry_epoch_lift(struct sh_registry *registry, uint64_t epoch)
{
    if (!sh_registry_is_credible(epoch, registry->view.epoch))
        return;
    registry->version += epoch - registry->view.epoch;
    registry->view.epoch = epoch;
    sh_registry_touch(registry);
}

void sh_registry_times_take(struct sh_registry *registry, const struct sh_registry *from)
{
    SH_ASSERT(from != registry);
    sh_registry_events_take(registry, from);
    for (size_t i = sh_view_lower(&registry->view, (shoal_nid){SH_PEER_NID_MIN});
         i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        const struct sh_node *old = sh_view_find(&from->view, node->nid);
        size_t at = (size_t)node->nid.v - SH_PEER_NID_MIN;
        if (!old || old->instance != node->instance)
            continue;
        registry->heard_ns[at] = from->heard_ns[at];
        registry->spoke_ns[at] = from->spoke_ns[at];
    }
}

void sh_registry_heard(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid)
{
    if (sh_nid_is_peer(nid))
        registry->heard_ns[nid.v - SH_PEER_NID_MIN] = now_ns;
    for (size_t i = 0; !nid.v && i < SH_PEER_NIDS; i++)
        registry->heard_ns[i] = now_ns;
}

shoal_nid sh_registry_overdue(const struct sh_registry *registry, uint64_t now_ns, shoal_nid from)
{
    for (size_t i = sh_view_lower(&registry->view, from); i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        bool is_up = node->state == SH_NODE_UP;
        if (!sh_nid_is_peer(node->nid) || (!is_up && node->state != SH_NODE_AWAY))
            continue;
        uint64_t patience_ns = is_up ? registry->failure_ns : UINT64_C(1000000) * node->back_ms;
        if (registry->heard_ns[node->nid.v - SH_PEER_NID_MIN] + patience_ns <= now_ns)
            return node->nid;
    }
    return SHOAL_NID_NONE;
}
