#include "backup/candidate.h"

#include "base/assert.h"
#include "base/hash.h"

/* The number of a domain's name; 0 stands for an empty one. Each kind of domain has numbers of its own, as only those of one kind are
 * compared. */
static uint32_t domain_number(const char *name)
{
    if (!*name)
        return 0;
    uint32_t number = (uint32_t)sh_hash64(sh_bytes_text(name), 0);
    return number ? number : 1;
}

size_t sh_candidates_from_view(const struct sh_view *view, struct sh_candidate *nodes_out,
                               size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < view->count && count < room; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role != SH_ROLE_PEER)
            continue;
        SH_ASSERT(!count || nodes_out[count - 1].nid.v < node->nid.v);
        struct sh_candidate *out = &nodes_out[count++];
        *out = (struct sh_candidate){.nid = node->nid,
                                     .is_up = node->state == SH_NODE_UP,
                                     .is_away = node->state == SH_NODE_AWAY,
                                     .can_backup = node->traits.keeps_replicas};
        for (unsigned domain = 0; domain < SH_DOMAINS; domain++)
            out->domains[domain] = domain_number(node->traits.domains[domain]);
    }
    return count;
}

size_t sh_candidate_find(const struct sh_candidate *nodes, size_t count, shoal_nid nid)
{
    size_t from = 0, to = count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (nodes[middle].nid.v < nid.v)
            from = middle + 1;
        else
            to = middle;
    }
    return from < count && nodes[from].nid.v == nid.v ? from : count;
}

unsigned sh_candidate_shared(const struct sh_candidate *a, const struct sh_candidate *b)
{
    unsigned shared = 0;
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        if (a->domains[i] && a->domains[i] == b->domains[i])
            shared |= SH_DOMAIN_BIT(i);
    }
    return shared;
}

void sh_candidates_count_firsts(struct sh_candidate *nodes, size_t count, const shoal_nid *firsts,
                                size_t zones)
{
    for (size_t i = 0; i < count; i++)
        nodes[i].firsts = 0;
    for (size_t i = 0; i < zones; i++) {
        size_t at = sh_candidate_find(nodes, count, firsts[i]);
        if (at < count)
            nodes[at].firsts++;
    }
}
