#include "backup/placement.h"

#include <stdio.h>

#include "base/assert.h"
#include "base/hash.h"

/* A backup that was chosen, or stays. */
struct chosen {
    shoal_nid nid;
    size_t index; /* of its node; count where it is not listed any more */
};

struct choosing {
    const struct sh_placement_request *request;
    size_t owner; /* index, or count */
    struct chosen chosen[SH_BACKUPS_MAX];
    size_t count;
    bool is_copyset;
};

/* --- Lots ------------------------------------------------------------------------------------- */

/* A draw in two passes over the same tickets: the first finds the least cost and the weights of those that have it, the second one stops at
 * the ticket that was drawn. */
struct lottery {
    uint64_t cost, weights;
    uint64_t drawn; /* second pass: weights before the winner */
    bool is_drawn;
};

static uint64_t random_below(const struct sh_random *random, uint64_t bound)
{
    uint64_t unfair = UINT64_MAX - UINT64_MAX % bound,
             value; /* from there on the last round is incomplete */
    do {
        value = sh_random64(random);
    } while (value >= unfair);
    return value % bound;
}

/* False: no ticket was entered. */
static bool lottery_draw(struct lottery *lottery, const struct sh_random *random)
{
    lottery->is_drawn = lottery->weights > 0;
    if (lottery->is_drawn)
        lottery->drawn = random_below(random, lottery->weights);
    return lottery->is_drawn;
}

/* Enters a ticket, or, after the draw, says whether it wins. weight: over 0. */
static bool lottery_enter(struct lottery *lottery, uint64_t cost, uint64_t weight)
{
    if (!lottery->is_drawn && (!lottery->weights || cost < lottery->cost))
        *lottery = (struct lottery){.cost = cost};
    if (cost != lottery->cost)
        return false;
    if (!lottery->is_drawn) {
        lottery->weights += weight;
        return false;
    }
    if (lottery->drawn < weight)
        return true;
    lottery->drawn -= weight;
    return false;
}

/* --- Nodes ------------------------------------------------------------------------------------ */

static uint64_t node_room(uint8_t reserve_percent, const struct sh_candidate *node)
{
    uint64_t reserve = node->disk_bytes / 100 * reserve_percent;
    return node->disk_free_bytes > reserve ? node->disk_free_bytes - reserve : 0;
}

bool sh_placement_is_full(const struct sh_candidate *node, uint64_t replica_bytes,
                          uint8_t reserve_percent)
{
    return node_room(reserve_percent, node) < replica_bytes ||
           (node->zones_max && node->zones >= node->zones_max);
}

static bool is_full(const struct sh_placement_request *request, const struct sh_candidate *node)
{
    return sh_placement_is_full(node, request->replica_bytes, request->reserve_percent);
}

/* In MiB, so that the sum of 57,280 disks of 16 EiB is none too large. */
static uint64_t node_weight(const struct sh_placement_request *request,
                            const struct sh_candidate *node)
{
    return (node_room(request->reserve_percent, node) >> 20) + 1;
}

static bool is_chosen(const struct choosing *choosing, size_t index)
{
    for (size_t i = 0; i < choosing->count; i++) {
        if (choosing->chosen[i].index == index)
            return true;
    }
    return false;
}

/* Whether a node can get a replica. arg: struct choosing. */
static bool node_fits(void *arg, size_t index)
{
    const struct choosing *choosing = arg;
    const struct sh_candidate *node = &choosing->request->nodes[index];
    return index != choosing->owner && node->is_up && node->can_backup &&
           !is_full(choosing->request, node) && !is_chosen(choosing, index);
}

static void node_choose(struct choosing *choosing, size_t index)
{
    SH_ASSERT(choosing->count < choosing->request->wanted && node_fits(choosing, index));
    choosing->chosen[choosing->count++] =
        (struct chosen){.nid = choosing->request->nodes[index].nid, .index = index};
}

/* Whether the next backup is the zone's first, and is to be it for as few zones as possible. */
static bool counts_firsts(const struct choosing *choosing)
{
    return (choosing->request->flags & SH_PLACEMENT_DISJOINT) && !choosing->count;
}

/* The domains that a node shares with the owner, of those for which that counts. */
static unsigned shared_with_owner(const struct choosing *choosing, size_t index)
{
    const struct sh_placement_request *request = choosing->request;
    unsigned counts = request->wanted == 1 ? SH_DOMAIN_ALL : SH_DOMAIN_BIT(SH_DOMAIN_MACHINE);
    if (choosing->owner == request->count)
        return 0;
    return sh_candidate_shared(&request->nodes[choosing->owner], &request->nodes[index]) &
           request->domains & counts;
}

static void sharing_add(uint8_t sharing[SH_DOMAINS], unsigned shared)
{
    for (unsigned domain = 0; shared && domain < SH_DOMAINS; domain++)
        sharing[domain] += !!(shared & SH_DOMAIN_BIT(domain));
}

/* The reasons against a node, the strongest in the highest bits: how many share its machine, its rack, its switch; of how many zones it is
 * the first backup already. */
static uint64_t node_cost(const struct choosing *choosing, size_t index)
{
    const struct sh_placement_request *request = choosing->request;
    const struct sh_candidate *node = &request->nodes[index];
    uint8_t sharing[SH_DOMAINS] = {0};
    uint64_t cost = 0;
    sharing_add(sharing, shared_with_owner(choosing, index));
    for (size_t i = 0; i < choosing->count; i++) {
        size_t other = choosing->chosen[i].index;
        if (other < request->count)
            sharing_add(sharing,
                        sh_candidate_shared(&request->nodes[other], node) & request->domains);
    }
    for (unsigned domain = 0; domain < SH_DOMAINS; domain++)
        cost = cost << 4 | sharing[domain];
    return cost << 32 | (counts_firsts(choosing) ? node->firsts : 0);
}

/* Chooses one more node, whichever set it is in. False: none fits. */
static bool add_any(struct choosing *choosing)
{
    const struct sh_placement_request *request = choosing->request;
    struct lottery lottery = {0};
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < request->count; i++) {
            if (!node_fits(choosing, i))
                continue;
            if (lottery_enter(&lottery, node_cost(choosing, i),
                              node_weight(request, &request->nodes[i]))) {
                node_choose(choosing, i);
                return true;
            }
        }
        if (!pass && !lottery_draw(&lottery, &request->random))
            return false;
    }
    SH_ASSERT(!"the drawn ticket is not there");
    return false;
}

/* --- Sets ------------------------------------------------------------------------------------- */

/* A set as a zone's backups. */
struct fit {
    uint16_t members[SH_BACKUPS_MAX]; /* that can be chosen */
    size_t count;
    uint64_t cost, weight;
};

/* False: it lacks one of the backups that stay, or has no node to add. The cost is first how many members are to be replaced, then how many
 * are in the owner's machine. */
static bool set_fit(struct choosing *choosing, const struct sh_copyset *set, struct fit *fit_out)
{
    const struct sh_placement_request *request = choosing->request;
    struct fit fit = {.weight = UINT64_MAX};
    size_t kept = 0, with_owner = 0;
    for (size_t i = 0; i < request->wanted; i++) {
        size_t member = set->members[i];
        if (is_chosen(choosing, member)) {
            kept++;
        } else if (node_fits(choosing, member)) {
            uint64_t weight = node_weight(request, &request->nodes[member]);
            fit.weight = weight < fit.weight ? weight : fit.weight;
            fit.members[fit.count++] = (uint16_t)member;
            with_owner += !!shared_with_owner(choosing, member);
        }
    }
    fit.cost = (uint64_t)(request->wanted - kept - fit.count) << 4 | with_owner;
    *fit_out = fit;
    return kept == choosing->count && fit.count;
}

/* Draws a set; of a new zone also which member is the first backup. False: no set has all the backups that stay and one more. */
static bool set_draw(struct choosing *choosing, struct fit *fit_out)
{
    const struct sh_placement_request *request = choosing->request;
    struct lottery lottery = {0};
    for (unsigned pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < request->copysets->count; i++) {
            if (!set_fit(choosing, &request->copysets->sets[i], fit_out))
                continue;
            size_t tickets = choosing->count ? 1 : fit_out->count;
            for (size_t j = 0; j < tickets; j++) {
                uint64_t firsts =
                    counts_firsts(choosing) ? request->nodes[fit_out->members[j]].firsts : 0;
                if (!lottery_enter(&lottery, fit_out->cost << 32 | firsts, fit_out->weight))
                    continue;
                uint16_t first = fit_out->members[j];
                fit_out->members[j] = fit_out->members[0];
                fit_out->members[0] = first;
                return true;
            }
        }
        if (!pass && !lottery_draw(&lottery, &request->random))
            return false;
    }
    SH_ASSERT(!"the drawn ticket is not there");
    return false;
}

/* Chooses one more node by a draw that is the same on every owner whose zone has these backups. False: none fits. */
static bool add_seeded(struct choosing *choosing)
{
    const struct sh_copysets *copysets = choosing->request->copysets;
    uint16_t members[SH_BACKUPS_MAX];
    size_t count = 0;
    uint64_t key = 0;
    for (size_t i = 0; i < choosing->count; i++) {
        key += sh_mix64(copysets->config.seed + choosing->chosen[i].nid.v); /* in whatever order */
        if (choosing->chosen[i].index < choosing->request->count)
            members[count++] = (uint16_t)choosing->chosen[i].index;
    }
    size_t drawn = sh_copysets_draw(copysets, choosing->request->nodes, sh_mix64(key), members,
                                    count, node_fits, choosing);
    if (drawn != SIZE_MAX)
        node_choose(choosing, drawn);
    return drawn != SIZE_MAX;
}

/* Completes the backups to a set, or to what is left of one and draws. */
static void add_set(struct choosing *choosing)
{
    const struct sh_placement_request *request = choosing->request;
    struct fit fit;
    if (set_draw(choosing, &fit)) {
        size_t from = choosing->count ? 0 : 1; /* a new zone's first backup is drawn */
        for (size_t i = from; i + 1 < fit.count; i++) {
            size_t at = i + random_below(&request->random, fit.count - i);
            uint16_t member = fit.members[at];
            fit.members[at] = fit.members[i];
            fit.members[i] = member;
        }
        for (size_t i = 0; i < fit.count; i++)
            node_choose(choosing, fit.members[i]);
        choosing->is_copyset = choosing->count == request->wanted;
    }
    while (choosing->count && choosing->count < request->wanted && add_seeded(choosing))
        continue;
}

/* --- A zone ----------------------------------------------------------------------------------- */

static void keep(struct choosing *choosing)
{
    const struct sh_placement_request *request = choosing->request;
    uint32_t least = UINT32_MAX;
    size_t first = 0;
    SH_ASSERT(request->kept_count <= request->wanted);
    for (size_t i = 0; i < request->kept_count; i++) {
        size_t index = sh_candidate_find(request->nodes, request->count, request->kept[i]);
        SH_ASSERT(request->kept[i].v != request->owner.v);
        SH_ASSERT(index == request->count || !is_chosen(choosing, index));
        choosing->chosen[choosing->count++] =
            (struct chosen){.nid = request->kept[i], .index = index};
        if (index < request->count && request->nodes[index].firsts < least) {
            least = request->nodes[index].firsts;
            first = i;
        }
    }
    if (!request->first_is_gone)
        return;
    struct chosen moved = choosing->chosen[first];
    for (; first > 0; first--)
        choosing->chosen[first] = choosing->chosen[first - 1];
    choosing->chosen[0] = moved;
}

static uint8_t shared_domains(const struct choosing *choosing)
{
    const struct sh_placement_request *request = choosing->request;
    unsigned shared = 0;
    for (size_t i = 0; i < choosing->count; i++) {
        size_t a = choosing->chosen[i].index;
        if (a == request->count)
            continue;
        shared |= shared_with_owner(choosing, a);
        for (size_t j = 0; j < i; j++) {
            size_t b = choosing->chosen[j].index;
            if (b < request->count)
                shared |= sh_candidate_shared(&request->nodes[a], &request->nodes[b]);
        }
    }
    return (uint8_t)(shared & request->domains);
}

static void reasons(const struct choosing *choosing, struct sh_placement *placement)
{
    const struct sh_placement_request *request = choosing->request;
    for (size_t i = 0; i < request->count; i++) {
        const struct sh_candidate *node = &request->nodes[i];
        if (i == choosing->owner || is_chosen(choosing, i))
            continue;
        placement->others++;
        if (!node->is_up)
            placement->gone++;
        else if (!node->can_backup)
            placement->incapable++;
        else if (is_full(request, node))
            placement->full++;
    }
}

void sh_placement_choose(const struct sh_placement_request *request,
                         struct sh_placement *placement_out)
{
    struct choosing choosing = {.request = request};
    SH_ASSERT(request->wanted >= 1 && request->wanted <= SH_BACKUPS_MAX);
    SH_ASSERT(request->reserve_percent < 100);
    choosing.owner = sh_candidate_find(request->nodes, request->count, request->owner);
    keep(&choosing);
    if (request->copysets) {
        SH_ASSERT(request->copysets->config.replicas == request->wanted);
        SH_ASSERT(request->copysets->nodes == request->count);
        if (choosing.count < request->wanted)
            add_set(&choosing);
    }
    while (choosing.count < request->wanted && add_any(&choosing))
        continue;
    struct sh_placement placement = {.count = (uint8_t)choosing.count,
                                     .missing = (uint8_t)(request->wanted - choosing.count),
                                     .is_copyset = choosing.is_copyset,
                                     .shared = shared_domains(&choosing)};
    for (size_t i = 0; i < choosing.count; i++)
        placement.backups[i] = choosing.chosen[i].nid;
    reasons(&choosing, &placement);
    *placement_out = placement;
}

size_t sh_placement_possible(const struct sh_candidate *nodes, size_t count, shoal_nid owner)
{
    size_t possible = 0;
    for (size_t i = 0; i < count; i++)
        possible += nodes[i].is_up && nodes[i].can_backup && nodes[i].nid.v != owner.v;
    return possible < SH_BACKUPS_MAX ? possible : SH_BACKUPS_MAX;
}

void sh_placement_explain(const struct sh_placement *placement, char *text, size_t room)
{
    static const char *const names[SH_DOMAINS] = {"machine", "rack", "switch"};
    int used = snprintf(text, room, "%u of %u backups", placement->count,
                        placement->count + placement->missing);
    const char *joint = ": copies share a ";
    SH_ASSERT(room);
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        if (!(placement->shared & SH_DOMAIN_BIT(i)) || (size_t)used >= room)
            continue;
        used += snprintf(text + used, room - (size_t)used, "%s%s", joint, names[i]);
        joint = ", a ";
    }
    if (!placement->missing || (size_t)used >= room)
        return;
    snprintf(text + used, room - (size_t)used,
             "%sof %u other nodes %u are not up, %u keep no backups, %u have no room",
             placement->shared ? "; " : ": ", placement->others, placement->gone,
             placement->incapable, placement->full);
}
