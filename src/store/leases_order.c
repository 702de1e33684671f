#include "base/hash.h"
#include "store/leases_int.h"

static bool less_by_chunk(const struct sh_lease_record *a, const struct sh_lease_record *b)
{
    if (a->cid != b->cid)
        return a->cid < b->cid;
    if (a->nid != b->nid)
        return a->nid < b->nid;
    return a->token < b->token;
}

static bool less_by_owner(const struct sh_lease_record *a, const struct sh_lease_record *b)
{
    if (a->nid != b->nid)
        return a->nid < b->nid;
    if (a->token != b->token)
        return a->token < b->token;
    return a->cid < b->cid;
}

static bool less_by_time(const struct sh_lease_record *a, const struct sh_lease_record *b)
{
    if (a->deadline_ns != b->deadline_ns)
        return a->deadline_ns < b->deadline_ns;
    if (a->waiting != b->waiting)
        return a->waiting < b->waiting;
    return less_by_chunk(a, b);
}

bool sh_lease_less(enum sh_lease_order order, const struct sh_lease_record *a,
                   const struct sh_lease_record *b)
{
    if (order == SH_LEASE_BY_CHUNK)
        return less_by_chunk(a, b);
    return order == SH_LEASE_BY_OWNER ? less_by_owner(a, b) : less_by_time(a, b);
}

uint64_t sh_lease_priority(const struct sh_leases *leases, uint32_t index)
{
    return sh_mix64(leases->config.seed + index * UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
}

void sh_lease_insert(struct sh_leases *leases, enum sh_lease_order order, uint32_t index)
{
    sh_lock_assert_held(&leases->lock);
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    uint64_t priority = sh_lease_priority(leases, index);
    uint32_t *link = &leases->roots[order];
    while (*link && sh_lease_priority(leases, *link) >= priority) {
        struct sh_lease_record *above = sh_lease_record_at(leases, *link);
        link = &above->links[order][sh_lease_less(order, above, record)];
    }
    /* What was here is split into what comes before the record and what comes after it. */
    uint32_t below = *link;
    uint32_t *before = &record->links[order][0];
    uint32_t *after = &record->links[order][1];
    *link = index;
    while (below) {
        struct sh_lease_record *at = sh_lease_record_at(leases, below);
        if (sh_lease_less(order, at, record)) {
            *before = below;
            before = &at->links[order][1];
            below = *before;
        } else {
            *after = below;
            after = &at->links[order][0];
            below = *after;
        }
    }
    *before = 0;
    *after = 0;
}

void sh_lease_remove(struct sh_leases *leases, enum sh_lease_order order, uint32_t index)
{
    sh_lock_assert_held(&leases->lock);
    struct sh_lease_record *record = sh_lease_record_at(leases, index);
    uint32_t *link = &leases->roots[order];
    while (*link != index) {
        struct sh_lease_record *above = sh_lease_record_at(leases, *link);
        link = &above->links[order][sh_lease_less(order, above, record)];
    }
    uint32_t before = record->links[order][0];
    uint32_t after = record->links[order][1];
    while (before && after) {
        if (sh_lease_priority(leases, before) >= sh_lease_priority(leases, after)) {
            *link = before;
            link = &sh_lease_record_at(leases, before)->links[order][1];
            before = *link;
        } else {
            *link = after;
            link = &sh_lease_record_at(leases, after)->links[order][0];
            after = *link;
        }
    }
    *link = before ? before : after;
}

uint32_t sh_lease_from(const struct sh_leases *leases, enum sh_lease_order order,
                       const struct sh_lease_record *key)
{
    sh_lock_assert_held(&leases->lock);
    uint32_t found = 0;
    for (uint32_t at = leases->roots[order]; at;) {
        const struct sh_lease_record *record = sh_lease_record_at(leases, at);
        bool before = sh_lease_less(order, record, key);
        if (!before)
            found = at;
        at = record->links[order][before];
    }
    return found;
}

uint32_t sh_lease_behind(const struct sh_leases *leases, enum sh_lease_order order,
                         const struct sh_lease_record *key)
{
    sh_lock_assert_held(&leases->lock);
    uint32_t found = 0;
    for (uint32_t at = leases->roots[order]; at;) {
        const struct sh_lease_record *record = sh_lease_record_at(leases, at);
        bool after = sh_lease_less(order, key, record);
        if (after)
            found = at;
        at = record->links[order][!after];
    }
    return found;
}

uint32_t sh_lease_first(const struct sh_leases *leases, enum sh_lease_order order)
{
    sh_lock_assert_held(&leases->lock);
    uint32_t found = 0;
    for (uint32_t at = leases->roots[order]; at;) {
        found = at;
        at = sh_lease_record_at(leases, at)->links[order][0];
    }
    return found;
}
