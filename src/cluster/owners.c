#include "cluster/owners.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "cluster/registry_int.h"

uint64_t sh_owners_incarnation(const struct sh_registry *registry)
{
    return registry->incarnation;
}

void sh_owners_begin(struct sh_registry *registry, uint64_t number)
{
    SH_ASSERT(registry->is_shared);
    if (!registry->incarnation)
        registry->incarnation = sh_mix64(number) | 1;
}

static shoal_cid first_of(shoal_nid creator)
{
    return shoal_cid_make(creator, 0);
}

static shoal_cid last_of(shoal_nid creator)
{
    return shoal_cid_make(creator, SHOAL_LOCAL_ID_MAX);
}

static bool is_up(const struct sh_registry *registry, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(&registry->view, nid);
    return node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
}

/* --- Decisions ----------------------------------------------------------------------------- */

/* Whether a batch is one that a node of ours would send. */
static enum shoal_err batch_check(struct sh_registry *registry, const struct sh_owners_batch *batch)
{
    if (batch->count == 0 || batch->count > SH_OWNERS_RUNS_MAX || batch->sequence == 0 ||
        batch->from.v < SH_PEER_NID_MIN || batch->from.v > SH_PEER_NID_MAX ||
        batch->to.v < SH_PEER_NID_MIN || batch->to.v > SH_PEER_NID_MAX ||
        batch->from.v == batch->to.v)
        return SHOAL_EPROTO;
    shoal_nid creator = shoal_cid_creator(batch->runs[0].first);
    for (size_t i = 0; i < batch->count; i++) {
        const struct sh_owner_run *run = &batch->runs[i];
        if (run->last.v < run->first.v || shoal_cid_creator(run->first).v != creator.v ||
            shoal_cid_creator(run->last).v != creator.v ||
            (i > 0 && run->first.v <= run[-1].last.v))
            return SHOAL_EPROTO;
    }
    if (!sh_registry_has(registry, creator))
        return SHOAL_EROLE;
    if (batch->incarnation != registry->incarnation) {
        sh_registry_restarted(registry);
        return SHOAL_EDIFFERS;
    }
    return sh_owners_known(registry) ? SHOAL_OK : SHOAL_EBUSY;
}

static bool owns_run(const struct sh_registry *registry, shoal_nid nid,
                     const struct sh_owner_run *run)
{
    struct sh_range range;
    return sh_ranges_find(registry->ranges, run->first, &range) && range.value == nid.v &&
           range.last.v >= run->last.v;
}

static enum shoal_err runs_give(struct sh_registry *registry, const struct sh_owners_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        if (!owns_run(registry, batch->from, &batch->runs[i]))
            return SHOAL_ENOTOWNER;
    }
    if (sh_ranges_count(registry->ranges) + 2 * batch->count > SH_OWNERS_RANGES_MAX)
        return SHOAL_ELIMIT;
    for (size_t i = 0; i < batch->count; i++) {
        enum shoal_err err =
            sh_ranges_set(registry->ranges, batch->runs[i].first, batch->runs[i].last, batch->to.v);
        SH_ASSERT(!err); /* the tree has room for more ranges than we let in, at the worst fill */
    }
    return SHOAL_OK;
}

static struct sh_owner_source *source_of(struct sh_registry *registry, shoal_nid nid)
{
    SH_ASSERT(nid.v <= SH_PEER_NID_MAX);
    return &registry->sources[nid.v];
}

enum shoal_err sh_owners_commit(struct sh_registry *registry, const struct sh_owners_batch *batch)
{
    enum shoal_err err = batch_check(registry, batch);
    if (err)
        return err;
    struct sh_owner_source *source = source_of(registry, batch->from);
    uint64_t last = source->decided >> 1;
    if (batch->sequence < last)
        return SHOAL_ECANCELED;
    if (batch->sequence == last)
        return source->decided & 1 ? SHOAL_OK : SHOAL_ECANCELED;
    err = is_up(registry, batch->to) ? runs_give(registry, batch) : SHOAL_ENONODE;
    source->decided = batch->sequence << 1 | (err == SHOAL_OK);
    registry->changes++;
    if (err)
        SH_WARN("cluster", "migration refused", SH_U64("from", batch->from.v),
                SH_U64("to", batch->to.v), SH_ERR(err));
    return err;
}

/* Whether the target has the first of the batch's chunks. */
static bool has_first(const struct sh_registry *registry, const struct sh_owners_batch *batch)
{
    struct sh_range range;
    return sh_ranges_find(registry->ranges, batch->runs[0].first, &range) &&
           range.value == batch->to.v;
}

enum shoal_err sh_owners_resolve(struct sh_registry *registry, const struct sh_owners_batch *batch,
                                 bool *committed_out)
{
    enum shoal_err err = batch_check(registry, batch);
    if (err)
        return err == SHOAL_EDIFFERS ? SHOAL_EBUSY : err;
    struct sh_owner_source *source = source_of(registry, batch->from);
    uint64_t last = source->decided >> 1;
    if (batch->sequence > last) {
        source->decided = batch->sequence << 1;
        registry->changes++;
    }
    /* An older one: the target would have had to learn of it before it could give anything away, so
     * who owns it now says what became of it. */
    *committed_out = batch->sequence < last ? has_first(registry, batch) : source->decided & 1;
    return SHOAL_OK;
}

bool sh_owners_next(const struct sh_registry *registry, shoal_cid from, struct sh_range *range_out)
{
    return sh_ranges_next(registry->ranges, from, range_out);
}

/* --- Membership ---------------------------------------------------------------------------- */

void sh_owners_leave(struct sh_registry *registry, shoal_nid nid)
{
    struct sh_range range;
    shoal_cid from = first_of(registry->arc_first);
    while (sh_ranges_next(registry->ranges, from, &range)) {
        if (range.value == nid.v) {
            enum shoal_err err = sh_ranges_remove(registry->ranges, range.first, range.last);
            SH_ASSERT(!err); /* a whole range */
        }
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
}

enum shoal_err sh_owners_give(struct sh_registry *registry, shoal_nid nid)
{
    SH_ASSERT(sh_registry_has(registry, nid));
    struct sh_range range;
    uint64_t at = first_of(nid).v, end = last_of(nid).v;
    while (at <= end) {
        bool is_any = sh_ranges_next(registry->ranges, (shoal_cid){at}, &range);
        uint64_t until = is_any && range.first.v <= end ? range.first.v : end + 1;
        if (until > at) {
            enum shoal_err err =
                sh_ranges_set(registry->ranges, (shoal_cid){at}, (shoal_cid){until - 1}, nid.v);
            if (err)
                return err;
        }
        if (until == end + 1)
            break;
        at = range.last.v + 1;
    }
    return SHOAL_OK;
}

bool sh_owners_survive(const struct sh_registry *registry, shoal_nid creator)
{
    struct sh_range range;
    return sh_ranges_next(registry->ranges, first_of(creator), &range) &&
           shoal_cid_creator(range.first).v == creator.v;
}

/* --- After a restart ----------------------------------------------------------------------- */

static bool is_asked(const struct sh_registry *registry, shoal_nid nid)
{
    return registry->owners_asked[nid.v / 64] >> (nid.v % 64) & 1;
}

void sh_owners_asked(struct sh_registry *registry, shoal_nid nid)
{
    registry->owners_asked[nid.v / 64] |= UINT64_C(1) << (nid.v % 64);
}

void sh_owners_new(struct sh_registry *registry, shoal_nid nid)
{
    sh_owners_asked(registry, nid);
    if (nid.v <= SH_PEER_NID_MAX)
        *source_of(registry, nid) = (struct sh_owner_source){0};
}

void sh_owners_forget(struct sh_registry *registry)
{
    memset(registry->owners_asked, 0, sizeof registry->owners_asked);
    registry->owners_known = false;
}

shoal_nid sh_owners_to_ask(const struct sh_registry *registry, shoal_nid after)
{
    const struct sh_view *view = &registry->view;
    size_t start = sh_view_lower(view, (shoal_nid){(uint16_t)(after.v + 1)});
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[(start + i) % view->count];
        if (node->role == SH_ROLE_PEER && node->state == SH_NODE_UP &&
            !is_asked(registry, node->nid))
            return node->nid;
    }
    return SHOAL_NID_NONE;
}

/* Whether all other superpeers have said who is on their arcs, or are not there to say it. */
static bool siblings_heard(const struct sh_registry *registry)
{
    for (uint16_t i = 0; i < registry->count; i++) {
        const struct sh_node *node = sh_view_find(&registry->view, (shoal_nid){(uint16_t)(i + 1)});
        if (i != registry->index && !registry->versions[i] && node && node->state == SH_NODE_UP)
            return false;
    }
    return true;
}

bool sh_owners_known(const struct sh_registry *registry)
{
    if (registry->is_shared)
        return true;
    return registry->owners_known || (!registry->settling && siblings_heard(registry) &&
                                      sh_owners_to_ask(registry, SHOAL_NID_NONE).v == 0);
}

void sh_owners_settle(struct sh_registry *registry)
{
    registry->owners_known = sh_owners_known(registry);
}

enum shoal_err sh_owners_claim(struct sh_registry *registry, shoal_nid nid,
                               const struct sh_range *range)
{
    shoal_nid creator = shoal_cid_creator(range->first);
    shoal_nid owner = {(uint16_t)range->value};
    if (range->last.v < range->first.v || shoal_cid_creator(range->last).v != creator.v ||
        !sh_registry_has(registry, creator) || range->value < SH_PEER_NID_MIN ||
        range->value > SH_PEER_NID_MAX || (owner.v != nid.v && creator.v != nid.v))
        return SHOAL_EPROTO;
    if (sh_ranges_count(registry->ranges) + 2 > SH_OWNERS_RANGES_MAX)
        return SHOAL_ELIMIT;
    if (owner.v == nid.v)
        return sh_ranges_set(registry->ranges, range->first, range->last, owner.v);
    /* Given away: holders know better where it is now, where they have said so already. */
    struct sh_range found;
    for (uint64_t at = range->first.v; at <= range->last.v;) {
        uint64_t last = range->last.v;
        if (!sh_ranges_next(registry->ranges, (shoal_cid){at}, &found))
            found = (struct sh_range){.first = {last + 1}, .last = {last + 1}};
        bool is_open = found.first.v > at || found.value == nid.v;
        uint64_t part = found.first.v > at ? found.first.v - 1 : found.last.v;
        part = part < last ? part : last;
        if (is_open) {
            enum shoal_err err =
                sh_ranges_set(registry->ranges, (shoal_cid){at}, (shoal_cid){part}, owner.v);
            if (err)
                return err;
        }
        at = part + 1;
    }
    return SHOAL_OK;
}
