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
    registry->versions[registry->index]++;
    registry->view.epoch++;
    registry->changes++;
}

static enum shoal_err add_superpeers(struct sh_registry *registry,
                                     const struct sh_registry_config *config)
{
    for (uint16_t i = 0; i < config->count; i++) {
        struct sh_node node = {.nid = {(uint16_t)(i + 1)},
                               .role = SH_ROLE_SUPERPEER,
                               .state = SH_NODE_UP,
                               .instance = 0};
        if (i == config->index)
            node.instance = config->instance;
        size_t size = strlen(config->addresses[i]);
        if (!size || size >= sizeof node.address) {
            SH_ERROR("cluster", "not a usable superpeer address",
                     SH_TEXT("address", config->addresses[i]));
            return SHOAL_EADDRESS;
        }
        memcpy(node.address, config->addresses[i], size);
        enum shoal_err err = sh_view_put(&registry->view, &node);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

enum shoal_err sh_registry_create(const struct sh_registry_config *config, uint64_t now_ns,
                                  struct sh_registry **registry_out)
{
    size_t name = strlen(config->cluster);
    SH_ASSERT(name && name <= SH_CLUSTER_NAME_MAX);
    SH_ASSERT(config->is_shared || (config->count && config->count <= SH_SUPERPEERS_MAX));
    SH_ASSERT(config->is_shared || (config->index < config->count && config->instance));
    struct sh_registry *registry = calloc(1, sizeof *registry);
    if (!registry)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_ENOMEM;
    memcpy(registry->cluster, config->cluster, name);
    registry->is_shared = config->is_shared;
    /* A shared registry is one arc with one version. */
    registry->count = config->is_shared ? 1 : config->count;
    registry->index = config->is_shared ? 0 : config->index;
    registry->arc_first = sh_arc_first(registry->index, registry->count);
    registry->arc_last = sh_arc_last(registry->index, registry->count);
    registry->failure_ns = config->failure_ns;
    registry->is_volatile = config->is_volatile;
    registry->started_ns = registry->ticked_ns = now_ns;
    registry->due_ns = registry->count > 1 ? now_ns + config->failure_ns : SH_NEVER;
    registry->view.superpeers = config->is_shared ? 0 : config->count;
    size_t arc_nids = (size_t)registry->arc_last.v - registry->arc_first.v + 1;
    registry->next_nid = registry->arc_first;
    if (config->is_volatile)
        registry->next_nid.v += (uint16_t)(sh_mix64(config->seed) % arc_nids);
    registry->heard_ns = calloc(arc_nids, sizeof registry->heard_ns[0]);
    registry->spoke_ns = calloc(arc_nids, sizeof registry->spoke_ns[0]);
    registry->failed_epochs = calloc(arc_nids, sizeof registry->failed_epochs[0]);
    registry->events_log = 1; /* an image, or the first process's instance, tells */
    if (!config->is_shared)
        registry->events_log = sh_mix64(config->seed ^ config->instance) | 1;
    registry->events = calloc(SH_REGISTRY_EVENTS_MAX, sizeof registry->events[0]);
    if (!registry->events || !registry->heard_ns || !registry->spoke_ns || !registry->failed_epochs)
        goto out_registry;
    err = SHOAL_OK;
    if (!config->is_shared)
        err = add_superpeers(registry, config);
    if (err)
        goto out_registry;
    for (uint16_t i = 0; i < registry->count; i++)
        registry->superpeer_heard_ns[i] = now_ns;
    sh_registry_touch(registry);
    sh_registry_events_begin(registry);
    *registry_out = registry;
    return SHOAL_OK;
out_registry:
    sh_registry_destroy(registry);
    return err;
}

void sh_registry_destroy(struct sh_registry *registry)
{
    if (!registry)
        return;
    sh_view_destroy(&registry->view);
    free(registry->events);
    free(registry->heard_ns);
    free(registry->spoke_ns);
    free(registry->failed_epochs);
    free(registry);
}

static void heard(struct sh_registry *registry, shoal_nid nid, uint64_t now_ns)
{
    registry->heard_ns[nid.v - registry->arc_first.v] = now_ns;
    if (now_ns + registry->failure_ns < registry->due_ns)
        registry->due_ns = now_ns + registry->failure_ns;
}

static bool is_moved(const struct sh_registry *registry, shoal_nid nid)
{
    return registry->moved[nid.v / 64] >> (nid.v % 64) & 1;
}

void sh_registry_moved_set(struct sh_registry *registry, shoal_nid nid)
{
    if (sh_registry_is_moved(registry, nid))
        return;
    registry->moved[nid.v / 64] |= UINT64_C(1) << (nid.v % 64);
    registry->changes++;
}

bool sh_registry_is_moved(const struct sh_registry *registry, shoal_nid nid)
{
    return !sh_registry_has(registry, nid) || is_moved(registry, nid);
}

/* An ID that nobody has; when the arc has been gone through, also one of a node that left. */
static shoal_nid free_nid(const struct sh_registry *registry)
{
    uint32_t arc_nids = (uint32_t)registry->arc_last.v - registry->arc_first.v + 1;
    for (unsigned round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < arc_nids; i++) {
            uint32_t offset = registry->next_nid.v - registry->arc_first.v + i;
            shoal_nid nid = {(uint16_t)(registry->arc_first.v + offset % arc_nids)};
            const struct sh_node *node = sh_view_find(&registry->view, nid);
            if ((!node || (round == 1 && node->state == SH_NODE_LEFT)) && !is_moved(registry, nid))
                return nid;
        }
    }
    return SHOAL_NID_NONE;
}

/* The arc's node of that instance that has not left, or NULL. */
static const struct sh_node *find_instance(const struct sh_registry *registry, uint64_t instance)
{
    for (size_t i = sh_view_lower(&registry->view, registry->arc_first); i < registry->view.count;
         i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        if (!sh_registry_has(registry, node->nid))
            break;
        if (node->instance == instance && node->state != SH_NODE_LEFT)
            return node;
    }
    return NULL;
}

const struct sh_node *sh_registry_holder(const struct sh_registry *registry,
                                         struct sh_bytes address, uint64_t instance)
{
    for (size_t i = 0; i < registry->view.count; i++) {
        const struct sh_node *node = &registry->view.nodes[i];
        if (node->state == SH_NODE_UP && node->instance != instance &&
            strlen(node->address) == address.size &&
            memcmp(node->address, address.at, address.size) == 0)
            return node;
    }
    return NULL;
}

/* Another node has the address of this one, so this one's lease was over before: whatever is still
 * heard of it, it does not come back. */
static bool is_succeeded(const struct sh_registry *registry, const struct sh_node *node)
{
    return sh_registry_holder(registry, sh_bytes_text(node->address), node->instance);
}

static enum shoal_err admit(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                            struct sh_bytes address, uint64_t instance)
{
    struct sh_node node = {
        .nid = nid, .role = SH_ROLE_PEER, .state = SH_NODE_UP, .instance = instance};
    memcpy(node.address, address.at, address.size);
    enum shoal_err err = sh_view_put(&registry->view, &node);
    if (err)
        return err;
    heard(registry, nid, now_ns);
    registry->failed_epochs[nid.v - registry->arc_first.v] = 0;
    sh_registry_touch_node(registry, &node);
    SH_INFO("cluster", "node joined", SH_U64("node", nid.v), SH_TEXT("address", node.address),
            SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

/* The ID for a node that joins; *known_out is its entry if the same instance has one. */
static enum shoal_err choose_nid(struct sh_registry *registry, uint64_t instance,
                                 shoal_nid previous, const struct sh_node **known_out,
                                 shoal_nid *nid_out)
{
    if (!previous.v) {
        *known_out = find_instance(registry, instance);
        *nid_out = *known_out ? (*known_out)->nid : free_nid(registry);
        if (nid_out->v)
            return SHOAL_OK;
        SH_ERROR("cluster", "no node ID is left", SH_U64("first", registry->arc_first.v),
                 SH_U64("last", registry->arc_last.v));
        return SHOAL_ELIMIT;
    }
    if (!sh_registry_has(registry, previous))
        return SHOAL_EROLE;
    *nid_out = previous;
    *known_out = sh_view_find(&registry->view, previous);
    if (*known_out && (*known_out)->instance != instance) {
        SH_WARN("cluster", "refused a node whose ID another one has", SH_U64("node", previous.v));
        return SHOAL_EEXIST;
    }
    return SHOAL_OK;
}

enum shoal_err sh_registry_join(struct sh_registry *registry, uint64_t now_ns,
                                struct sh_bytes address, uint64_t instance, shoal_nid previous,
                                shoal_nid *nid_out)
{
    if (!address.size || address.size >= SH_MSG_ADDRESS_MAX || !instance ||
        memchr(address.at, 0, address.size))
        return SHOAL_EINVAL;
    const struct sh_node *known = NULL;
    shoal_nid nid;
    enum shoal_err err = choose_nid(registry, instance, previous, &known, &nid);
    if (err)
        return err;
    bool is_there = known && strlen(known->address) == address.size &&
                    memcmp(known->address, address.at, address.size) == 0;
    if (is_there && known->state == SH_NODE_UP) {
        heard(registry, nid, now_ns);
        *nid_out = nid;
        return SHOAL_OK;
    }
    /* A join that was late, or is done again, of a process whose place another one has taken. */
    if (is_there && is_succeeded(registry, known))
        return SHOAL_EEXIST;
    if (sh_registry_holder(registry, address, instance))
        return SHOAL_EADDRINUSE;
    err = admit(registry, now_ns, nid, address, instance);
    if (err)
        return err;
    if (!previous.v && !known)
        registry->next_nid.v = nid.v == registry->arc_last.v ? registry->arc_first.v : nid.v + 1;
    *nid_out = nid;
    return SHOAL_OK;
}

/* The arc's node of that ID and instance. */
static enum shoal_err find_member(const struct sh_registry *registry, shoal_nid nid,
                                  uint64_t instance, struct sh_node **node_out)
{
    struct sh_node *node =
        sh_registry_has(registry, nid) ? sh_view_find(&registry->view, nid) : NULL;
    if (!node)
        return SHOAL_ENONODE;
    if (node->instance != instance)
        return SHOAL_EEXIST;
    *node_out = node;
    return SHOAL_OK;
}

enum shoal_err sh_registry_heartbeat(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid,
                                     uint64_t instance, uint64_t epoch, bool *failed_out)
{
    struct sh_node *node;
    enum shoal_err err = find_member(registry, nid, instance, &node);
    if (err)
        return err;
    if (node->state == SH_NODE_LEFT)
        return SHOAL_ENONODE;
    heard(registry, nid, now_ns);
    sh_registry_spoke(registry, now_ns, nid);
    /* Told until its epoch shows that it has heard: the first answer may have been lost with the
     * connection, which its failure closed. */
    *failed_out = epoch < registry->failed_epochs[nid.v - registry->arc_first.v];
    if (node->state == SH_NODE_FAILED && !registry->is_shared)
        sh_registry_back(registry, nid, instance);
    return SHOAL_OK;
}

void sh_registry_back(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    struct sh_node *node;
    if (find_member(registry, nid, instance, &node) || node->state != SH_NODE_FAILED)
        return;
    if (is_succeeded(registry, node))
        return;
    node->state = SH_NODE_UP;
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "failed node is back", SH_U64("node", nid.v),
            SH_U64("epoch", registry->view.epoch));
}

enum shoal_err sh_registry_leave(struct sh_registry *registry, shoal_nid nid, uint64_t instance)
{
    struct sh_node *node;
    enum shoal_err err = find_member(registry, nid, instance, &node);
    if (err || node->state == SH_NODE_LEFT)
        return err;
    node->state = SH_NODE_LEFT;
    sh_registry_touch_node(registry, node);
    SH_INFO("cluster", "node left", SH_U64("node", nid.v), SH_U64("epoch", registry->view.epoch));
    return SHOAL_OK;
}

void sh_registry_fail(struct sh_registry *registry, shoal_nid nid, const char *reason)
{
    if (!sh_registry_watches(registry, nid))
        return;
    struct sh_node *node = sh_view_find(&registry->view, nid);
    node->state = SH_NODE_FAILED;
    sh_registry_touch_node(registry, node);
    registry->failed_epochs[nid.v - registry->arc_first.v] = registry->view.epoch;
    SH_WARN("cluster", "node failed", SH_U64("node", nid.v), SH_TEXT("address", node->address),
            SH_TEXT("reason", reason), SH_U64("epoch", registry->view.epoch));
}

bool sh_registry_siblings_heard(const struct sh_registry *registry)
{
    for (uint16_t i = 0; !registry->is_shared && i < registry->count; i++) {
        const struct sh_node *node = sh_view_find(&registry->view, (shoal_nid){(uint16_t)(i + 1)});
        if (i != registry->index && !registry->versions[i] && node && node->state == SH_NODE_UP)
            return false;
    }
    return true;
}

static void settle(struct sh_registry *registry, uint64_t now_ns)
{
    if (!registry->is_volatile || registry->settling ||
        now_ns >= registry->started_ns + registry->failure_ns)
        return;
    registry->settling = true;
    if (registry->started_ns + registry->failure_ns < registry->due_ns)
        registry->due_ns = registry->started_ns + registry->failure_ns;
    SH_INFO("cluster", "waiting for the members from before the restart");
}

void sh_registry_restarted(struct sh_registry *registry)
{
    settle(registry, registry->ticked_ns);
}

/* Lifts this arc's version by at least `by`. */
static void leap(struct sh_registry *registry, uint64_t now_ns, uint64_t by)
{
    registry->versions[registry->index] += by;
    registry->view.epoch += by;
    sh_registry_touch(registry);
    settle(registry, now_ns);
}

void sh_registry_epoch_known(struct sh_registry *registry, uint64_t now_ns, uint64_t epoch)
{
    if (!registry->is_shared && sh_registry_is_credible(epoch, registry->view.epoch))
        leap(registry, now_ns, epoch - registry->view.epoch);
}

/* One pass over those that are watched: declares the overdue failed, finds who is due next. */
static unsigned fail_overdue(struct sh_registry *registry, uint64_t now_ns)
{
    unsigned failed = 0;
    uint64_t due_ns = SH_NEVER;
    for (size_t i = 0; i < registry->view.count; i++) {
        struct sh_node *node = &registry->view.nodes[i];
        bool is_superpeer = node->role == SH_ROLE_SUPERPEER;
        if (node->state != SH_NODE_UP || node->nid.v == registry->index + 1 ||
            (!is_superpeer && !sh_registry_has(registry, node->nid)))
            continue;
        uint64_t last_ns = is_superpeer ? registry->superpeer_heard_ns[node->nid.v - 1]
                                        : registry->heard_ns[node->nid.v - registry->arc_first.v];
        if (last_ns + registry->failure_ns > now_ns) {
            if (last_ns + registry->failure_ns < due_ns)
                due_ns = last_ns + registry->failure_ns;
            continue;
        }
        failed++;
        if (!is_superpeer) {
            sh_registry_fail(registry, node->nid, "silent");
            continue;
        }
        node->state = SH_NODE_FAILED;
        sh_registry_touch_node(registry, node);
        SH_WARN("cluster", "superpeer is silent", SH_U64("node", node->nid.v),
                SH_TEXT("address", node->address));
    }
    registry->due_ns = due_ns;
    return failed;
}

static void forgive(uint64_t *heard_ns, uint64_t away_ns, uint64_t now_ns)
{
    *heard_ns = *heard_ns + away_ns < now_ns ? *heard_ns + away_ns : now_ns;
}

unsigned sh_registry_tick(struct sh_registry *registry, uint64_t now_ns)
{
    uint64_t away_ns = now_ns - registry->ticked_ns;
    registry->ticked_ns = now_ns;
    if (away_ns > registry->failure_ns / 2) {
        /* We were stopped, not they: what they sent may still be in the sockets. */
        size_t arc_nids = (size_t)registry->arc_last.v - registry->arc_first.v + 1;
        for (size_t i = 0; i < arc_nids; i++)
            forgive(&registry->heard_ns[i], away_ns, now_ns);
        for (uint16_t i = 0; i < registry->count; i++)
            forgive(&registry->superpeer_heard_ns[i], away_ns, now_ns);
        if (registry->due_ns != SH_NEVER)
            registry->due_ns += away_ns;
    }
    uint64_t settled_ns = registry->started_ns + registry->failure_ns;
    if (registry->settling && now_ns >= settled_ns) {
        registry->settling = false;
        SH_INFO("cluster", "settled after the restart", SH_U64("nodes", registry->view.count));
    }
    if (now_ns < registry->due_ns)
        return 0;
    unsigned failed = fail_overdue(registry, now_ns);
    if (registry->settling && settled_ns < registry->due_ns)
        registry->due_ns = settled_ns;
    return failed;
}

uint64_t sh_registry_due_ns(const struct sh_registry *registry)
{
    return registry->due_ns;
}

uint64_t sh_registry_heard_ns(const struct sh_registry *registry, shoal_nid nid)
{
    SH_ASSERT(sh_registry_has(registry, nid));
    return registry->heard_ns[nid.v - registry->arc_first.v];
}

void sh_registry_spoke(struct sh_registry *registry, uint64_t at_ns, shoal_nid nid)
{
    if (!sh_registry_has(registry, nid))
        return;
    uint64_t *spoke_ns = &registry->spoke_ns[nid.v - registry->arc_first.v];
    *spoke_ns = *spoke_ns < at_ns ? at_ns : *spoke_ns;
}

uint64_t sh_registry_spoke_ns(const struct sh_registry *registry, shoal_nid nid)
{
    return sh_registry_has(registry, nid) ? registry->spoke_ns[nid.v - registry->arc_first.v] : 0;
}

const struct sh_view *sh_registry_view(const struct sh_registry *registry)
{
    return &registry->view;
}

bool sh_registry_settling(const struct sh_registry *registry)
{
    return registry->settling;
}

bool sh_registry_watches(const struct sh_registry *registry, shoal_nid nid)
{
    if (!sh_registry_has(registry, nid))
        return false;
    const struct sh_node *node = sh_view_find(&registry->view, nid);
    return node && node->state == SH_NODE_UP;
}

uint64_t sh_registry_version(const struct sh_registry *registry, uint16_t index)
{
    SH_ASSERT(index < registry->count);
    return registry->versions[index];
}

void sh_registry_superpeer_heard(struct sh_registry *registry, uint64_t now_ns, uint16_t index,
                                 uint64_t holds_version)
{
    SH_ASSERT(index < registry->count && index != registry->index);
    registry->superpeer_heard_ns[index] = now_ns;
    if (now_ns + registry->failure_ns < registry->due_ns)
        registry->due_ns = now_ns + registry->failure_ns;
    struct sh_node *node = sh_view_find(&registry->view, (shoal_nid){(uint16_t)(index + 1)});
    SH_ASSERT(node);
    if (node->state == SH_NODE_FAILED) {
        node->state = SH_NODE_UP;
        sh_registry_touch_node(registry, node);
        SH_INFO("cluster", "superpeer is back", SH_U64("node", node->nid.v));
    }
    uint64_t own = registry->versions[registry->index];
    if (sh_registry_is_credible(holds_version, own))
        leap(registry, now_ns, holds_version - own);
}

uint64_t sh_registry_changes(const struct sh_registry *registry)
{
    return registry->changes;
}
