#include "backup/copysets.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/node_ids.h"

/* Points of a node on the ring. With one, the node behind the largest gap would be drawn ln N times as often as the average; with
 * eight the number of draws has a deviation of a third. */
#define POINTS 8
#define INDEX_BITS 16
#define INDEX_MASK ((UINT64_C(1) << INDEX_BITS) - 1)

unsigned sh_copysets_classes(const struct sh_copysets_config *config)
{
    SH_ASSERT(config->replicas >= 2 && config->replicas <= SH_BACKUPS_MAX);
    unsigned others = config->replicas - 1u;
    return config->scatter > others ? (config->scatter + others - 1) / others : 1;
}

size_t sh_copysets_bytes(const struct sh_copysets_config *config, size_t nodes)
{
    return nodes *
           (sh_copysets_classes(config) * sizeof(struct sh_copyset) + POINTS * sizeof(uint64_t));
}

/* --- The ring --------------------------------------------------------------------------------- */

/* Moves one point down to its place in a heap whose largest one is first. */
static void heap_sink(uint64_t *heap, size_t at, size_t count)
{
    uint64_t point = heap[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= point)
            break;
        heap[at] = heap[child];
    }
    heap[at] = point;
}

/* Heap sort: the C library's qsort may allocate. */
static void points_sort(uint64_t *points, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        heap_sink(points, i, count);
    for (size_t left = count; left > 1; left--) {
        uint64_t largest = points[0];
        points[0] = points[left - 1];
        points[left - 1] = largest;
        heap_sink(points, 0, left - 1);
    }
}

static bool is_drawable(const struct sh_candidate *node)
{
    return node->is_up && node->can_backup;
}

static void ring_make(struct sh_copysets *sets, const struct sh_candidate *nodes)
{
    sets->points = 0;
    for (size_t i = 0; i < sets->nodes; i++) {
        for (unsigned j = 0; is_drawable(&nodes[i]) && j < POINTS; j++) {
            uint64_t hash = sh_mix64(sh_mix64(sets->config.seed) + nodes[i].nid.v * POINTS + j);
            sets->ring[sets->points++] = (hash & ~INDEX_MASK) | i;
        }
    }
    points_sort(sets->ring, sets->points);
}

/* Whether a node is a member, or one of the `levels` smallest domains has no room for it beside the members. */
static bool conflicts(const struct sh_copysets *sets, const struct sh_candidate *nodes, size_t node,
                      const uint16_t *members, size_t members_count, unsigned levels)
{
    uint8_t sharing[SH_DOMAINS] = {0};
    for (size_t i = 0; i < members_count; i++) {
        if (members[i] == node)
            return true;
        unsigned shared = sh_candidate_shared(&nodes[members[i]], &nodes[node]);
        for (unsigned domain = 0; shared && domain < levels; domain++) {
            if ((shared & SH_DOMAIN_BIT(domain)) && ++sharing[domain] >= sets->room[domain])
                return true;
        }
    }
    return false;
}

/* Goes round the ring from the key's place on, in search of the first node that can join the members. */
static size_t ring_search(const struct sh_copysets *sets, const struct sh_candidate *nodes,
                          uint64_t key, const uint16_t *members, size_t members_count,
                          unsigned levels, bool (*may)(void *arg, size_t index), void *arg)
{
    size_t from = 0, to = sets->points;
    key &= ~INDEX_MASK;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (sets->ring[middle] < key)
            from = middle + 1;
        else
            to = middle;
    }
    for (size_t i = 0; i < sets->points; i++, from++) {
        if (from >= sets->points)
            from = 0;
        size_t node = sets->ring[from] & INDEX_MASK;
        if (!conflicts(sets, nodes, node, members, members_count, levels) &&
            (!may || may(arg, node)))
            return node;
    }
    return SIZE_MAX;
}

size_t sh_copysets_draw(const struct sh_copysets *sets, const struct sh_candidate *nodes,
                        uint64_t key, const uint16_t *members, size_t members_count,
                        bool (*may)(void *arg, size_t index), void *arg)
{
    size_t node = SIZE_MAX;
    SH_ASSERT(members_count < SH_BACKUPS_MAX);
    for (unsigned levels = SH_DOMAINS + 1; node == SIZE_MAX && levels-- > 0;) {
        if (levels == SH_DOMAINS || sets->room[levels] < SH_BACKUPS_MAX) /* else searched already */
            node = ring_search(sets, nodes, key, members, members_count, levels, may, arg);
    }
    return node;
}

/* --- Rows and diagonals ----------------------------------------------------------------------- */

struct making {
    struct sh_copysets *sets;
    const struct sh_candidate *nodes;
    size_t count;
    unsigned class;
};

/* A class's group: whose places in the layout it is, and which of them were not taken to a set yet. */
struct group {
    int64_t row; /* of column 0; negative where a diagonal comes from above the first row */
    uint16_t members[SH_BACKUPS_MAX]; /* listed nodes that can back up, by column */
    size_t count;
    bool is_waiting; /* for nodes that have not joined yet */
};

/* How many members of a set may share a domain: as few as the number of its values allows, among all listed nodes that can back
 * up, so that this does not change when one fails. Nodes whose domain is not known count for themselves. */
static uint8_t domain_room(const struct sh_copysets_config *config,
                           const struct sh_candidate *nodes, size_t count, unsigned domain)
{
    uint32_t seen[SH_BACKUPS_MAX];
    unsigned values = 0;
    if (!(config->domains & SH_DOMAIN_BIT(domain)))
        return SH_BACKUPS_MAX;
    for (size_t i = 0; i < count && values < config->replicas; i++) {
        bool is_new = nodes[i].can_backup;
        for (unsigned j = 0; j < values; j++)
            is_new &= !nodes[i].domains[domain] || seen[j] != nodes[i].domains[domain];
        if (is_new)
            seen[values++] = nodes[i].domains[domain];
    }
    return values > 1 ? (uint8_t)((config->replicas + values - 1) / values) : SH_BACKUPS_MAX;
}

static struct group group_of(const struct making *making, shoal_nid nid)
{
    unsigned columns = making->sets->config.replicas;
    unsigned place = (unsigned)(nid.v - SH_PEER_NID_MIN);
    struct group group = {.row = (int64_t)(place / columns) - making->class * (place % columns)};
    unsigned top = making->nodes[making->count - 1].nid.v;
    for (unsigned column = 0; column < columns; column++) {
        int64_t row = group.row + making->class * column;
        int64_t id = SH_PEER_NID_MIN + row * columns + column;
        if (row < 0)
            continue;
        group.is_waiting |= making->class == 0 && id > top;
        if (id > top)
            continue;
        size_t at = sh_candidate_find(making->nodes, making->count, (shoal_nid){(uint16_t)id});
        if (at < making->count && making->nodes[at].can_backup)
            group.members[group.count++] = (uint16_t)at;
    }
    return group;
}

/* Adds the set of the group's nodes that go together: the up ones of them, and draws. None if all are gone. */
static void set_add(struct making *making, const struct group *group, unsigned round,
                    const uint16_t *together, size_t together_count)
{
    struct sh_copysets *sets = making->sets;
    struct sh_copyset set = {{0}};
    size_t count = 0;
    for (size_t i = 0; i < together_count; i++) {
        if (making->nodes[together[i]].is_up)
            set.members[count++] = together[i];
    }
    if (!count)
        return;
    uint64_t key = sh_mix64(sets->config.seed ^ sh_mix64((uint64_t)group->row + 1));
    key = sh_mix64(key + ((uint64_t)making->class << 8) + round);
    for (; count < sets->config.replicas; count++) {
        size_t drawn = sh_copysets_draw(sets, making->nodes, key, set.members, count, NULL, NULL);
        SH_ASSERT(drawn != SIZE_MAX); /* there are enough nodes */
        set.members[count] = (uint16_t)drawn;
    }
    SH_ASSERT(sets->count < sets->nodes * sh_copysets_classes(&sets->config));
    sets->sets[sets->count++] = set;
}

/* Divides a group among sets whose nodes share no domain. Nodes that have failed take part, so that their neighbours' sets stay
 * as they are. */
static void group_add(struct making *making, struct group *group)
{
    for (unsigned round = 0; group->count; round++) {
        uint16_t together[SH_BACKUPS_MAX];
        size_t count = 0, left = 0;
        for (size_t i = 0; i < group->count; i++) {
            if (conflicts(making->sets, making->nodes, group->members[i], together, count,
                          SH_DOMAINS))
                group->members[left++] = group->members[i];
            else
                together[count++] = group->members[i];
        }
        group->count = left;
        set_add(making, group, round, together, count);
    }
}

void sh_copysets_compute(const struct sh_copysets_config *config, const struct sh_candidate *nodes,
                         size_t count, void *memory, struct sh_copysets *sets_out)
{
    struct sh_copysets sets = {.config = *config, .nodes = count};
    unsigned classes = sh_copysets_classes(config);
    SH_ASSERT(count <= INDEX_MASK);
    for (unsigned i = 0; i < SH_DOMAINS; i++)
        sets.room[i] = domain_room(config, nodes, count, i);
    sets.ring = memory;
    sets.sets = (struct sh_copyset *)(sets.ring + POINTS * count);
    ring_make(&sets, nodes);
    struct making making = {.sets = &sets, .nodes = nodes, .count = count};
    for (; making.class < classes && sets.points >= POINTS * config->replicas; making.class ++) {
        for (size_t i = 0; i < count; i++) {
            SH_ASSERT(sh_nid_is_peer(nodes[i].nid));
            SH_ASSERT(!i || nodes[i - 1].nid.v < nodes[i].nid.v);
            if (!nodes[i].can_backup)
                continue;
            struct group group = group_of(&making, nodes[i].nid);
            if (group.members[0] == i && !group.is_waiting) /* once, by its first node */
                group_add(&making, &group);
        }
    }
    *sets_out = sets;
}
