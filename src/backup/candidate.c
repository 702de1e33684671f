#include "backup/candidate.h"

#include "base/assert.h"

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
