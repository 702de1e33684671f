/* Nodes that nothing is wrong with serve, whatever goes wrong elsewhere: of the superpeers that run, with disks that are well and
 * with nothing between them, a majority has a leader; each shard has an owner that answers, while all
 * superpeers are well or only one has gone; and a peer that reaches such a majority has a lease. Not at
 * every moment, but at some in each PATIENCE_NS: where a superpeer stops that led and answered, there is an
 * election, or two if the first has no winner, and then the new leader waits a whole failure time, since it
 * can't know when the former one renewed a lease last. With ZooKeeper nothing is said: the superpeers' sessions end at random. */
#include "ring/arcs.h"
#include "sim/cluster_world_int.h"
#include "superpeer/superpeer_claims.h"

#define LOOK_NS (20 * CW_MS)
#define PATIENCE_NS (3 * CW_FAILURE_NS)

static bool runs(const struct cw_host *host)
{
    const struct sh_world *sim = host->world->sim;
    return sh_world_is_up(sim, host->node) && !sh_world_is_paused(sim, host->node);
}

static bool is_well(const struct cw_host *host)
{
    const struct sh_world *sim = host->world->sim;
    return runs(host) && sh_world_disk_trouble(sim, host->node) == SH_DISK_WELL &&
           !sh_world_disk_is_slow(sim, host->node);
}

static bool is_peer(const struct cw_host *host)
{
    return host->kind == CW_PEER && cw_is_joined(host) && !host->is_drained;
}

static void look(struct cw_world *world, uint64_t now)
{
    struct cw_available *available = &world->available;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        bool is_superpeer = is_well(host) && host->superpeer;
        uint64_t term;
        if (!is_superpeer)
            available->superpeer_ns[i] = now;
        if (!is_well(host) || !is_peer(host))
            available->peer_ns[i] = now;
        if (is_peer(host) && cw_has_lease(host))
            available->leased_ns[i] = now;
        /* A leader with a full or slow disk may lead on: the other superpeers write what it appends to their disks. */
        if (runs(host) && host->superpeer && sh_superpeer_leads(host->superpeer, &term))
            available->led_ns = now;
        for (unsigned k = 0; k < i; k++) {
            if (sh_world_is_parted(world->sim, i, k))
                available->parted_ns[i][k] = available->parted_ns[k][i] = now;
        }
        for (unsigned shard = 0; host->superpeer && shard < SH_SHARDS; shard++) {
            if (sh_superpeer_answers_for(host->superpeer, shard))
                available->answered_ns[shard] = now;
        }
    }
}

/* The IDs of the superpeers that there are to be, by the newest view. */
static uint64_t members_seen(const struct cw_world *world)
{
    const struct sh_view *newest = NULL;
    uint64_t members = 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        if (host->superpeer &&
            (!newest || sh_superpeer_view(host->superpeer)->epoch > newest->epoch))
            newest = sh_superpeer_view(host->superpeer);
    }
    for (size_t i = 0; newest && i < newest->count; i++) {
        const struct sh_node *node = &newest->nodes[i];
        if (node->role == SH_ROLE_SUPERPEER && node->state != SH_NODE_LEFT)
            members |= UINT64_C(1) << node->nid.v;
    }
    return members;
}

static bool is_member(const struct cw_world *world, const struct cw_host *host)
{
    return host->superpeer && world->available.members >> sh_msg_nid(host->superpeer_msg).v & 1;
}

static bool is_apart(const struct cw_world *world, unsigned a, unsigned b, uint64_t since_ns)
{
    return world->available.parted_ns[a][b] >= since_ns;
}

/* The superpeers that have been well since then, with nothing between them. */
static uint64_t group_since(const struct cw_world *world, uint64_t since_ns)
{
    uint64_t group = 0;
    for (unsigned i = 0; i < world->count; i++) {
        if (is_member(world, &world->hosts[i]) && world->available.superpeer_ns[i] < since_ns)
            group |= UINT64_C(1) << i;
    }
    for (;;) {
        unsigned worst = 0, worst_apart = 0;
        for (unsigned i = 0; i < world->count; i++) {
            unsigned apart = 0;
            for (unsigned k = 0; group >> i & 1 && k < world->count; k++)
                apart += (group >> k & 1) && is_apart(world, i, k, since_ns);
            if (apart > worst_apart) {
                worst = i;
                worst_apart = apart;
            }
        }
        if (!worst_apart)
            return group;
        group &= ~(UINT64_C(1) << worst);
    }
}

static void shards_judge(struct cw_world *world, uint64_t since_ns)
{
    for (unsigned shard = 0; shard < SH_SHARDS; shard++)
        CW_HOLDS(world, world->available.answered_ns[shard] >= since_ns,
                 "for long nobody has answered for shard %u, though the superpeers are well",
                 shard);
}

static void peers_judge(struct cw_world *world, uint64_t group, uint64_t since_ns)
{
    for (unsigned i = 0; i < world->count; i++) {
        bool reaches = is_peer(&world->hosts[i]) && world->available.peer_ns[i] < since_ns;
        for (unsigned k = 0; k < world->count; k++)
            reaches = reaches && !((group >> k & 1) && is_apart(world, i, k, since_ns));
        CW_HOLDS(world, !reaches || world->available.leased_ns[i] >= since_ns,
                 "for long peer %u has had no lease, though it reaches a majority",
                 world->hosts[i].index);
    }
}

/* Whether all superpeers are well, or all but one that has gone since they were, PATIENCE_NS ago at the
 * least. A shard whose other replicas had gone before waits for the last one. */
static bool has_all_but_one(struct cw_available *available, uint64_t now, uint64_t group,
                            unsigned count)
{
    if ((unsigned)__builtin_popcountll(group) == count) {
        available->whole = group;
        available->gone = 0;
        return true;
    }
    if (!available->gone)
        available->gone_ns = now;
    available->gone |= available->whole & ~group;
    return __builtin_popcountll(available->gone) == 1 && now >= available->gone_ns + PATIENCE_NS;
}

void cw_available_watch(struct cw_world *world)
{
    struct cw_available *available = &world->available;
    uint64_t now = sh_world_now(world->sim);
    if (world->zookeeper || now < available->looked_ns + LOOK_NS)
        return;
    available->looked_ns = now;
    look(world, now);
    uint64_t members = members_seen(world);
    if (members != available->members) {
        available->members = members;
        available->changed_ns = now;
        available->whole = 0;
    }
    if (now < available->changed_ns + PATIENCE_NS)
        return;
    unsigned count = (unsigned)__builtin_popcountll(members);
    uint64_t since_ns = now - PATIENCE_NS, group = group_since(world, since_ns);
    unsigned well = (unsigned)__builtin_popcountll(group);
    bool may_serve = has_all_but_one(available, now, group, count);
    if (!available->whole || 2 * well <= count)
        return; /* who came or went may not have become a voter, or have ceased to be one, yet */
    CW_HOLDS(world, available->led_ns >= since_ns,
             "for long no superpeer has led, though %u of %u are well", well, count);
    peers_judge(world, group, since_ns);
    if (may_serve)
        shards_judge(world, since_ns);
}
