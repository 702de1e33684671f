/* Leases never overlap, and a life that is over is over: looked at by the world's time, whatever the nodes' clocks show. Superpeers
 * that were promoted are looked at like the first ones. */
#include "ring/arcs.h"
#include "sim/cluster_world_int.h"
#include "superpeer/superpeer_claims.h"

/* One that was stopped notices that, and declares nobody failed before it has listened anew. */
#define AWAKE_NS (50 * CW_MS)

/* Who may declare peers failed now; NULL: nobody. */
static const struct cw_host *leader_of(const struct cw_world *world)
{
    const struct cw_host *leader = NULL;
    uint64_t latest = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        uint64_t term;
        if (!host->superpeer || !sh_superpeer_leads(host->superpeer, &term) || term < latest)
            continue;
        latest = term;
        leader = host;
    }
    return leader && sh_world_now(world->sim) >= leader->paused_ns + AWAKE_NS ? leader : NULL;
}

bool cw_has_lease(const struct cw_host *host)
{
    return host->msg && sh_msg_nid(host->msg).v && cw_now(host) < sh_msg_lease_ns(host->msg);
}

static void watch_peers(struct cw_world *world)
{
    const struct cw_host *leader = leader_of(world);
    for (unsigned i = 0; i < world->config.peers; i++) {
        const struct cw_host *host = cw_peer(world, i);
        if (!cw_has_lease(host))
            continue;
        shoal_nid nid = sh_msg_nid(host->msg);
        CW_HOLDS(world, !leader || !sh_superpeer_would_fail(leader->superpeer, nid),
                 "node %u has a lease, and superpeer %u may call it failed", nid.v,
                 leader ? sh_msg_nid(leader->superpeer_msg).v : 0);
        for (unsigned k = 0; k < i; k++) {
            const struct cw_host *other = cw_peer(world, k);
            CW_HOLDS(world, !cw_has_lease(other) || sh_msg_nid(other->msg).v != nid.v,
                     "two peers have a lease as node %u", nid.v);
        }
    }
}

static void watch_ring(struct cw_world *world)
{
    for (unsigned shard = world->watched_part; shard < SH_SHARDS; shard += CW_WATCH_PARTS) {
        const struct cw_host *first = NULL;
        for (unsigned i = 0; i < world->count; i++) {
            const struct cw_host *host = &world->hosts[i];
            if (!host->superpeer || !sh_superpeer_answers_for(host->superpeer, shard))
                continue;
            CW_HOLDS(world, !first, "superpeers %u and %u both answer for shard %u",
                     first ? sh_msg_nid(first->superpeer_msg).v : 0,
                     sh_msg_nid(host->superpeer_msg).v, shard);
            first = host;
        }
    }
}

void cw_leases_watch(struct cw_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (sh_world_is_paused(world->sim, i))
            world->hosts[i].paused_ns = sh_world_now(world->sim);
    }
    watch_peers(world);
    watch_ring(world);
}

static bool is_over(const struct cw_world *world, shoal_nid nid, uint64_t instance)
{
    for (unsigned i = 0; i < CW_LIVES; i++) {
        if (world->over[nid.v % CW_NUMBERS][i] == instance)
            return true;
    }
    return false;
}

bool cw_is_over(const struct cw_host *host)
{
    shoal_nid nid = host->msg ? sh_msg_nid(host->msg) : SHOAL_NID_NONE;
    return nid.v && is_over(host->world, nid, host->instance);
}

/* A life of a peer that is not up owns nothing from then on, though its process may not know that: what it had is lost.
 * And it never is up again. */
static void life_seen(struct cw_world *world, const struct sh_node *node)
{
    bool was_over = is_over(world, node->nid, node->instance);
    if (node->state == SH_NODE_UP) {
        CW_HOLDS(world, !was_over, "a life of node %u that was over is up again", node->nid.v);
        return;
    }
    for (unsigned i = 0; !was_over && i < world->config.peers; i++) {
        struct cw_host *host = cw_peer(world, i);
        bool is_it = host->store && host->instance == node->instance &&
                     sh_msg_nid(host->msg).v == node->nid.v;
        if (is_it && !host->is_empty)
            cw_copies_lost(host);
    }
    if (!was_over)
        world->over[node->nid.v % CW_NUMBERS]
                   [world->over_count[node->nid.v % CW_NUMBERS]++ % CW_LIVES] = node->instance;
}

void cw_leases_view_seen(struct cw_world *world, const struct sh_view *view)
{
    if (view->epoch <= world->declared_epoch)
        return; /* somebody is late to see it */
    world->declared_epoch = view->epoch;
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        uint64_t *failed_ns = &world->failed_ns[node->nid.v % CW_NUMBERS];
        if (node->role == SH_ROLE_PEER)
            life_seen(world, node);
        bool is_failed = node->role == SH_ROLE_PEER && node->state == SH_NODE_FAILED;
        if (!is_failed)
            *failed_ns = 0;
        else if (!*failed_ns)
            *failed_ns = sh_world_now(world->sim);
        for (unsigned k = 0; is_failed && k < world->config.peers; k++) {
            const struct cw_host *host = cw_peer(world, k);
            CW_HOLDS(world,
                     host->instance != node->instance || !cw_has_lease(host) ||
                         sh_msg_nid(host->msg).v != node->nid.v,
                     "node %u was declared failed while it has a lease", node->nid.v);
        }
    }
}

void cw_leases_answered(struct cw_world *world, shoal_nid nid, uint64_t asked_ns)
{
    uint64_t failed_ns = world->failed_ns[nid.v % CW_NUMBERS];
    CW_HOLDS(world, !failed_ns || asked_ns <= failed_ns,
             "node %u answered what it was asked after it had been declared failed", nid.v);
}
