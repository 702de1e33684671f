/* The registry's decisions. */
#include "superpeer/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/hash.h"
#include "base/log.h"
#include "superpeer/registry_int.h"

void sh_registry_touch(struct sh_registry *registry)
{
    registry->version++;
    registry->view.epoch++;
    registry->changes++;
}

enum shoal_err sh_registry_create(const struct sh_registry_config *config,
                                  struct sh_registry **registry_out)
{
    size_t name = strlen(config->cluster);
    SH_ASSERT(name && name <= SH_CLUSTER_NAME_MAX);
    struct sh_registry *registry = calloc(1, sizeof *registry);
    if (!registry)
        return SHOAL_ENOMEM;
    memcpy(registry->cluster, config->cluster, name);
    registry->failure_ns = config->failure_ns;
    registry->nids = config->nids ? config->nids : SH_PEER_NIDS;
    SH_ASSERT(registry->nids <= SH_PEER_NIDS);
    registry->next_nid.v = SH_PEER_NID_MIN;
    registry->heard_ns = calloc(SH_PEER_NIDS, sizeof registry->heard_ns[0]);
    registry->spoke_ns = calloc(SH_PEER_NIDS, sizeof registry->spoke_ns[0]);
    registry->events_log = 1; /* an image, or the first process's instance, tells */
    registry->events = calloc(SH_REGISTRY_EVENTS_MAX, sizeof registry->events[0]);
    if (!registry->events || !registry->heard_ns || !registry->spoke_ns)
        goto out_registry;
    /* All that can ever be in it, since what was decided has to be done: 5 MB that nobody touches. */
    if (sh_view_reserve(&registry->view, registry->nids + SH_SUPERPEERS_MAX))
        goto out_registry;
    sh_registry_touch(registry);
    sh_registry_events_begin(registry);
    *registry_out = registry;
    return SHOAL_OK;
out_registry:
    sh_registry_destroy(registry);
    return SHOAL_ENOMEM;
}

void sh_registry_destroy(struct sh_registry *registry)
{
    if (!registry)
        return;
    sh_view_destroy(&registry->view);
    free(registry->events);
    free(registry->heard_ns);
    free(registry->spoke_ns);
    free(registry);
}

static void heard(struct sh_registry *registry, shoal_nid nid, uint64_t now_ns)
{
    SH_ASSERT(sh_nid_is_peer(nid));
    registry->heard_ns[nid.v - SH_PEER_NID_MIN] = now_ns;
}

static shoal_nid nid_after(const struct sh_registry *registry, uint32_t steps)
{
    SH_ASSERT(registry->nids && registry->nids <= SH_PEER_NIDS);
    uint32_t offset = registry->next_nid.v - SH_PEER_NID_MIN + steps;
    return (shoal_nid){(uint16_t)(SH_PEER_NID_MIN + offset % registry->nids)};
}

/* An ID that no node has borne; when there is none, the next one whose last bearer was forgotten. One
 * that a node in the view has is not given out, also if that node has left: names or ranges of moved
 * chunks may refer to it until it is forgotten. */
static shoal_nid free_nid(const struct sh_registry *registry)
{
    size_t first = sh_view_lower(&registry->view, (shoal_nid){SH_PEER_NID_MIN});
    size_t borne = registry->view.count - first + sh_nid_set_count(&registry->forgotten);
    for (unsigned round = borne >= registry->nids; round < 2; round++) {
        for (uint32_t i = 0; i < registry->nids; i++) {
            shoal_nid nid = nid_after(registry, i);
            if (sh_nid_set_has(&registry->forgotten, nid) == (round == 1) &&
                !sh_view_find(&registry->view, nid))
                return nid;
        }
    }
    return SHOAL_NID_NONE;
}

bool sh_registry_is_full(const struct sh_registry *registry)
{
    size_t first = sh_view_lower(&registry->view, (shoal_nid){SH_PEER_NID_MIN});
    return registry->view.count - first >= registry->nids;
}

void sh_registry_nids_skip(struct sh_registry *registry, uint32_t count)
{
    registry->next_nid = nid_after(registry, count);
    registry->changes++;
}

/* The node of that instance, or NULL. Of lives 32 bits are random: processes at other
 * addresses may have the same, and each process has one address. */
static const struct sh_node *find_instance(const struct sh_registry *registry,
                                           struct sh_bytes address, uint64_t instance)
{
    size_t first = sh_view_lower(&registry->view, (shoal_nid){SH_PEER_NID_MIN});
    for (size_t i = first; i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        if (node->instance == instance && sh_node_is_at(node, address))
            return node;
    }
    return NULL;
}

static enum shoal_err admit(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                            struct sh_bytes address, uint64_t instance,
                            const struct sh_traits *traits)
{
    SH_ASSERT(sh_nid_is_peer(nid) && instance);
    SH_ASSERT(address.size && address.size < SH_MSG_ADDRESS_MAX);
    struct sh_node node = {
        .nid = nid, .role = SH_ROLE_PEER, .state = SH_NODE_UP, .instance = instance};
    memcpy(node.address, address.at, address.size);
    const struct sh_node *known = sh_view_find(&registry->view, nid);
    if (traits)
        node.traits = *traits;
    else if (known)
        node.traits = known->traits;
    enum shoal_err err = sh_view_put(&registry->view, &node);
    if (err)
        return err;
    sh_nid_set_put(&registry->forgotten, nid, false);
    heard(registry, nid, now_ns);
    sh_registry_touch_node(registry, &node);
    SH_INFO("cluster", "node joined", SH_U64("node", nid.v), SH_TEXT("address", node.address),
            SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

/* Whether a process runs on the disk of a node that is known by an earlier start of it. */
static bool is_later_life(const struct sh_node *known, uint64_t instance)
{
    uint32_t starts = sh_life_starts(known->instance);
    return starts && sh_life_starts(instance) > starts;
}

/* The ID for a node that joins; *known_out is its entry if the same instance has one. */
static enum shoal_err choose_nid(struct sh_registry *registry, struct sh_bytes address,
                                 uint64_t instance, shoal_nid previous,
                                 const struct sh_node **known_out, shoal_nid *nid_out)
{
    if (!previous.v) {
        *known_out = find_instance(registry, address, instance);
        *nid_out = *known_out ? (*known_out)->nid : free_nid(registry);
        if (nid_out->v)
            return SHOAL_OK;
        SH_ERROR("cluster",
                 "no node ID is left: those of nodes that left or failed come back when they are "
                 "forgotten, after forget_ns or by `shoal node forget`",
                 SH_U64("ids", registry->nids));
        return SHOAL_ELIMIT;
    }
    if (!sh_nid_is_peer(previous))
        return SHOAL_EROLE;
    *nid_out = previous;
    *known_out = sh_view_find(&registry->view, previous);
    if (*known_out && (*known_out)->instance != instance) {
        SH_WARN("cluster", "refused a node whose ID another one has", SH_U64("node", previous.v));
        return SHOAL_EEXIST;
    }
    /* Clients have been told that its chunks do not exist. */
    if (sh_nid_set_has(&registry->forgotten, previous)) {
        SH_WARN("cluster", "refused a node that was forgotten", SH_U64("node", previous.v));
        return SHOAL_EEXIST;
    }
    return SHOAL_OK;
}

enum shoal_err sh_registry_restart(struct sh_registry *registry, uint64_t now_ns,
                                   struct sh_bytes address, uint64_t life, shoal_nid previous,
                                   const struct sh_traits *traits, shoal_nid *nid_out)
{
    if (!sh_address_is_valid(address) || !sh_life_starts(life))
        return SHOAL_EINVAL;
    if (!sh_nid_is_peer(previous))
        return SHOAL_EROLE;
    const struct sh_node *known = sh_view_find(&registry->view, previous);
    /* The same process again, or the next one on a disk that does not know of its admission: of a life that
     * is over since, it hears so. */
    bool is_same = known && known->instance == life;
    if (is_same && (known->state != SH_NODE_UP || sh_node_is_at(known, address)))
        return sh_registry_join(registry, now_ns, address, life, previous, traits, nid_out);
    if (known && sh_life_is_former(life, known->instance)) {
        SH_WARN("cluster", "refused a peer whose data_dir is a copy, or an old backup",
                SH_U64("node", previous.v), SH_U64("starts", sh_life_starts(life)),
                SH_U64("known", sh_life_starts(known->instance)));
        return SHOAL_EEXIST;
    }
    if (known && known->state == SH_NODE_UP)
        return SHOAL_EAGAIN;
    if (sh_view_holder(&registry->view, address, life))
        return SHOAL_EADDRINUSE;
    /* How often a folder was started does not tell which of an ID's bearers had it: the address must. */
    if (sh_nid_set_has(&registry->reissued, previous) &&
        !(known && sh_node_is_at(known, address))) {
        SH_WARN("cluster",
                "refused a peer that was started again, since its ID has been another node's too",
                SH_U64("node", previous.v));
        return SHOAL_EEXIST;
    }
    enum shoal_err err = admit(registry, now_ns, previous, address, life, traits);
    if (err)
        return err;
    registry->spoke_ns[previous.v - SH_PEER_NID_MIN] = 0;
    *nid_out = previous;
    return SHOAL_OK;
}

uint64_t sh_registry_cluster(const struct sh_registry *registry)
{
    return registry->cluster_id;
}

/* A member joins again, and may have learned to say more of itself than the process that it goes on from did,
 * or than the registry of before could hold. */
static void traits_set(struct sh_registry *registry, shoal_nid nid, const struct sh_traits *traits)
{
    struct sh_node *node = sh_view_find(&registry->view, nid);
    SH_ASSERT(node && node->role == SH_ROLE_PEER);
    if (!traits || sh_traits_are_equal(&node->traits, traits))
        return;
    node->traits = *traits;
    sh_registry_touch_node(registry, node);
}

enum shoal_err sh_registry_join(struct sh_registry *registry, uint64_t now_ns,
                                struct sh_bytes address, uint64_t instance, shoal_nid previous,
                                const struct sh_traits *traits, shoal_nid *nid_out)
{
    if (!sh_address_is_valid(address) || !instance)
        return SHOAL_EINVAL;
    const struct sh_node *known = sh_view_find(&registry->view, previous);
    /* The peer joined with this life when it was started, but the registry of a cluster that was forced to go on
     * lost that entry. */
    if (known && is_later_life(known, instance))
        return sh_registry_restart(registry, now_ns, address, instance, previous, traits, nid_out);
    shoal_nid nid;
    enum shoal_err err = choose_nid(registry, address, instance, previous, &known, &nid);
    if (err)
        return err;
    bool is_there = known && sh_node_is_at(known, address);
    if (is_there && known->state == SH_NODE_UP) {
        heard(registry, nid, now_ns);
        traits_set(registry, nid, traits);
        *nid_out = nid;
        return SHOAL_OK;
    }
    if (known && known->state != SH_NODE_UP) {
        SH_WARN("cluster", "refused a life of a node that is over", SH_U64("node", nid.v));
        return SHOAL_EFENCED;
    }
    if (sh_view_holder(&registry->view, address, instance))
        return SHOAL_EADDRINUSE;
    bool is_reissued = !previous.v && sh_nid_set_has(&registry->forgotten, nid);
    err = admit(registry, now_ns, nid, address, instance, traits);
    if (err)
        return err;
    if (is_reissued)
        sh_nid_set_put(&registry->reissued, nid, true);
    if (!previous.v && !known)
        registry->next_nid.v = nid.v == SH_PEER_NID_MAX ? SH_PEER_NID_MIN : nid.v + 1;
    *nid_out = nid;
    return SHOAL_OK;
}

/* The node of that ID and instance. */
static enum shoal_err find_member(const struct sh_registry *registry, shoal_nid nid,
                                  uint64_t instance, struct sh_node **node_out)
{
    struct sh_node *node = sh_nid_is_peer(nid) ? sh_view_find(&registry->view, nid) : NULL;
    if (!node)
        return SHOAL_ENONODE;
    if (node->instance != instance)
        return SHOAL_EEXIST;
    *node_out = node;
    return SHOAL_OK;
}

enum shoal_err sh_registry_heartbeat(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                                     uint64_t instance, uint64_t epoch)
{
    struct sh_node *node;
    enum shoal_err err = find_member(registry, nid, instance, &node);
    /* A life that began in a view that has not come here yet: to refuse it would end its process. Nor
     * does it end where that view never comes, for the cluster was forced to go on without it. */
    if (err == SHOAL_EEXIST && epoch > registry->view.epoch)
        return SHOAL_EBUSY;
    if (err == SHOAL_EEXIST && is_later_life(sh_view_find(&registry->view, nid), instance))
        return SHOAL_ENONODE;
    if (err)
        return err;
    if (node->state == SH_NODE_LEFT)
        return SHOAL_ENONODE;
    if (node->state != SH_NODE_UP)
        return SHOAL_EFENCED;
    heard(registry, nid, now_ns);
    sh_registry_spoke(registry, now_ns, nid);
    return SHOAL_OK;
}

enum shoal_err sh_registry_leave(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    struct sh_node *node;
    enum shoal_err err = find_member(registry, nid, instance, &node);
    if (err || node->state == SH_NODE_LEFT)
        return err;
    node->state = SH_NODE_LEFT;
    node->back_ms = 0;
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "node left", SH_U64("node", nid.v), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

enum shoal_err sh_registry_away(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                                uint64_t instance, uint32_t back_ms)
{
    struct sh_node *node;
    enum shoal_err err = find_member(registry, nid, instance, &node);
    SH_ASSERT(back_ms);
    if (err || node->state != SH_NODE_UP)
        return err;
    node->state = SH_NODE_AWAY;
    node->back_ms = back_ms;
    heard(registry, nid, now_ns); /* it is waited for from now on */
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "node stops, and is to be back", SH_U64("node", nid.v),
            SH_U64("within_ms", back_ms), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

void sh_registry_late(struct sh_registry *registry, shoal_nid nid)
{
    struct sh_node *node = sh_view_find(&registry->view, nid);
    if (!node || node->state != SH_NODE_AWAY)
        return;
    uint32_t back_ms = node->back_ms;
    node->state = SH_NODE_FAILED;
    node->back_ms = 0;
    sh_registry_touch_node(registry, node);
    SH_WARN("cluster", "node that was stopped is not back in time: it has failed",
            SH_U64("node", nid.v), SH_U64("within_ms", back_ms),
            SH_U64("epoch", registry->view.epoch));
}

void sh_registry_fail(struct sh_registry *registry, shoal_nid nid, const char *reason)
{
    if (!sh_registry_watches(registry, nid))
        return;
    struct sh_node *node = sh_view_find(&registry->view, nid);
    SH_ASSERT(node && node->state == SH_NODE_UP && sh_nid_is_peer(nid));
    node->state = SH_NODE_FAILED;
    sh_registry_touch_node(registry, node);
    SH_WARN("cluster", "node failed", SH_U64("node", nid.v), SH_TEXT("address", node->address),
            SH_TEXT("reason", reason), SH_U64("epoch", registry->view.epoch));
}

/* The node of that ID and instance, which is gone. */
static enum shoal_err find_gone(const struct sh_registry *registry, shoal_nid nid,
                                uint64_t instance, struct sh_node **node_out)
{
    enum shoal_err err = find_member(registry, nid, instance, node_out);
    if (err)
        return err;
    bool is_awaited = (*node_out)->state == SH_NODE_UP || (*node_out)->state == SH_NODE_AWAY;
    return is_awaited ? SHOAL_EINVAL : SHOAL_OK;
}

enum shoal_err sh_registry_give_up(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    struct sh_node *node;
    enum shoal_err err = find_gone(registry, nid, instance, &node);
    if (err || node->state == SH_NODE_LEFT)
        return err;
    node->state = SH_NODE_LEFT;
    node->back_ms = 0;
    node->instance ^= node->instance == 1 ? 2 : 1; /* the times it was started stay */
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "failed node is given up", SH_U64("node", nid.v),
            SH_TEXT("address", node->address), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

enum shoal_err sh_registry_peer_lost(struct sh_registry *registry, shoal_nid nid)
{
    struct sh_node *node = sh_nid_is_peer(nid) ? sh_view_find(&registry->view, nid) : NULL;
    if (!node)
        return SHOAL_ENONODE;
    if (node->state == SH_NODE_UP)
        return SHOAL_EINVAL;
    if (node->is_disk_lost)
        return SHOAL_OK;
    node->is_disk_lost = true;
    if (node->state == SH_NODE_AWAY)
        node->state = SH_NODE_FAILED;
    node->back_ms = 0;
    sh_registry_touch_node(registry, node);
    SH_WARN("cluster",
            "an operator has declared a peer's disk lost: zones that wait for it go on with what "
            "others have, and are lost where these have nothing",
            SH_U64("node", nid.v), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

enum shoal_err sh_registry_forget(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    struct sh_node *found;
    enum shoal_err err = find_gone(registry, nid, instance, &found);
    if (err)
        return err;
    struct sh_node node = *found;
    sh_view_drop(&registry->view, nid);
    SH_ASSERT(!sh_view_find(&registry->view, nid));
    sh_nid_set_put(&registry->forgotten, nid, true);
    registry->spoke_ns[nid.v - SH_PEER_NID_MIN] = 0;
    sh_registry_touch_forgotten(registry, &node);
    SH_INFO("cluster", "node forgotten", SH_U64("node", nid.v), SH_TEXT("address", node.address),
            SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

shoal_nid sh_registry_gone(const struct sh_registry *registry, uint64_t now_ns, uint64_t gone_ns,
                           shoal_nid from)
{
    SH_ASSERT(sh_nid_is_peer(from));
    for (size_t i = sh_view_lower(&registry->view, from); i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        uint64_t heard_ns = registry->heard_ns[node->nid.v - SH_PEER_NID_MIN];
        bool is_over = now_ns >= heard_ns && now_ns - heard_ns >= gone_ns;
        if (node->state != SH_NODE_UP && is_over && sh_node_has_ended(&registry->view, node))
            return node->nid;
    }
    return SHOAL_NID_NONE;
}

uint64_t sh_registry_heard_ns(const struct sh_registry *registry, shoal_nid nid)
{
    SH_ASSERT(sh_nid_is_peer(nid));
    return registry->heard_ns[nid.v - SH_PEER_NID_MIN];
}

void sh_registry_spoke(struct sh_registry *registry, uint64_t at_ns, shoal_nid nid)
{
    if (!sh_nid_is_peer(nid))
        return;
    uint64_t *spoke_ns = &registry->spoke_ns[nid.v - SH_PEER_NID_MIN];
    *spoke_ns = *spoke_ns < at_ns ? at_ns : *spoke_ns;
}

uint64_t sh_registry_spoke_ns(const struct sh_registry *registry, shoal_nid nid)
{
    return sh_nid_is_peer(nid) ? registry->spoke_ns[nid.v - SH_PEER_NID_MIN] : 0;
}

const struct sh_view *sh_registry_view(const struct sh_registry *registry)
{
    return &registry->view;
}

bool sh_registry_watches(const struct sh_registry *registry, shoal_nid nid)
{
    if (!sh_nid_is_peer(nid))
        return false;
    const struct sh_node *node = sh_view_find(&registry->view, nid);
    return node && node->state == SH_NODE_UP;
}

uint64_t sh_registry_changes(const struct sh_registry *registry)
{
    return registry->changes;
}
