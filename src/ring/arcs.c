/* The ring as a table: who owns and holds which shard. */
#include "ring/arcs.h"

#include "base/assert.h"
#include "base/hash.h"

/* More starts than any disk has: added to those of a disk that was declared lost, so that all of
 * its own count as old, and those of the next disk as newer. */
#define STARTS_LOST (UINT64_C(1) << 20)
/* More versions than a cluster went through without a superpeer that is forced to go on alone. */
#define VERSIONS_FORCED (UINT64_C(1) << 40)

/* Six bits in reverse: neighbours in one order are far apart in the other. */
static unsigned reversed(unsigned six)
{
    unsigned out = 0;
    for (unsigned bit = 0; bit < 6; bit++)
        out |= (six >> bit & 1) << (5 - bit);
    return out;
}

unsigned sh_arc_shard(shoal_nid creator)
{
    return reversed(creator.v % SH_SHARDS);
}

unsigned sh_arc_shard_of_name(struct sh_bytes name)
{
    return sh_hash64(name, 0) % SH_SHARDS;
}

unsigned sh_arc_successor(uint64_t set, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        unsigned nid = reversed((shard + i) % SH_SHARDS) + 1;
        if (nid <= SH_SUPERPEERS_MAX && (set & sh_arc_bit(nid)))
            return nid;
    }
    return 0;
}

uint64_t sh_arc_wanted(uint64_t set, unsigned shard)
{
    uint64_t wanted = 0;
    for (unsigned i = 0; i < SH_ARC_COPIES; i++) {
        unsigned nid = sh_arc_successor(set & ~wanted, shard);
        if (!nid)
            break;
        wanted |= sh_arc_bit(nid);
    }
    return wanted;
}

/* Finds the owner anew after something has changed: a replica that is up, before one that is not;
 * of a shard without replicas whoever is up. */
static void owner_set(struct sh_arcs *arcs, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    struct sh_shard *at = &arcs->shards[shard];
    if (at->replicas & sh_arc_bit(at->owner))
        return;
    uint64_t from = at->replicas & arcs->up ? at->replicas & arcs->up : at->replicas;
    if (!from)
        from = arcs->up ? arcs->up : arcs->present;
    at->owner = (uint8_t)sh_arc_successor(from, shard);
    SH_ASSERT(!at->replicas || (at->replicas & sh_arc_bit(at->owner)));
}

static void present_set(struct sh_arcs *arcs, unsigned nid)
{
    arcs->up |= sh_arc_bit(nid);
    arcs->present |= sh_arc_bit(nid);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (arcs->shards[i].owner)
            continue;
        arcs->shards[i].version++;
        owner_set(arcs, i);
    }
}

enum sh_arcs_start sh_arcs_start(struct sh_arcs *arcs, unsigned nid, uint64_t life)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX && sh_life_starts(life));
    uint64_t bit = sh_arc_bit(nid);
    if (arcs->lives[nid] == life)
        return SH_ARCS_STARTED;
    if (sh_life_starts(life) <= sh_life_starts(arcs->lives[nid]))
        return SH_ARCS_STALE;
    arcs->lives[nid] = life;
    arcs->incarnations[nid]++;
    present_set(arcs, nid);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_shard *shard = &arcs->shards[i];
        if (!(shard->replicas & bit) && shard->owner != nid)
            continue;
        shard->version++;
        uint64_t others = shard->replicas & arcs->up & ~bit;
        if (shard->owner == nid && others)
            shard->owner = (uint8_t)sh_arc_successor(others, i);
    }
    return SH_ARCS_STARTED;
}

bool sh_arcs_up(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if ((arcs->up & sh_arc_bit(nid)) || !arcs->lives[nid])
        return false;
    present_set(arcs, nid);
    return true;
}

/* Takes a superpeer out of the replicas, and gives what it owned to the next one. */
static void replica_remove(struct sh_arcs *arcs, unsigned nid, bool even_the_last)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    uint64_t bit = sh_arc_bit(nid);
    arcs->up &= ~bit;
    arcs->present &= ~bit;
    arcs->incarnations[nid]++;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_shard *shard = &arcs->shards[i];
        if (!(shard->replicas & bit) && shard->owner != nid)
            continue;
        shard->version++;
        if (shard->replicas == bit && !even_the_last)
            continue; /* it owns the shard still, which waits for it */
        shard->replicas &= ~bit;
        owner_set(arcs, i);
    }
}

bool sh_arcs_gone(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if (!(arcs->present & sh_arc_bit(nid)))
        return false;
    replica_remove(arcs, nid, false);
    return true;
}

bool sh_arcs_forget(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if ((arcs->present & sh_arc_bit(nid)) || !arcs->lives[nid])
        return false;
    uint64_t starts = sh_life_starts(arcs->lives[nid]) + STARTS_LOST;
    arcs->lives[nid] = (starts < UINT32_MAX ? starts : UINT32_MAX - 1) << 32;
    replica_remove(arcs, nid, true);
    return true;
}

void sh_arcs_force(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX && arcs->lives[nid]);
    for (unsigned other = 1; other <= SH_SUPERPEERS_MAX; other++) {
        (void)sh_arcs_gone(arcs, other);
        if (other != nid)
            (void)sh_arcs_forget(arcs, other);
    }
    present_set(arcs, nid);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_shard *shard = &arcs->shards[i];
        shard->version += VERSIONS_FORCED;
        shard->replicas = 0; /* of those that were left it owns all */
    }
}

enum sh_arcs_start sh_arcs_start_empty(struct sh_arcs *arcs, unsigned nid, uint32_t random,
                                       bool is_memory)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX && random);
    uint64_t known = arcs->lives[nid];
    if ((uint32_t)known == random)
        return SH_ARCS_STARTED;
    for (unsigned i = 0; !is_memory && i < SH_SHARDS; i++) {
        if (arcs->shards[i].replicas == sh_arc_bit(nid))
            return SH_ARCS_STALE;
    }
    replica_remove(arcs, nid, is_memory);
    return sh_arcs_start(arcs, nid, (uint64_t)(sh_life_starts(known) + 1) << 32 | random);
}

bool sh_arcs_retire(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if (!(arcs->up & ~sh_arc_bit(nid)) || !(arcs->up & sh_arc_bit(nid)))
        return false;
    arcs->up &= ~sh_arc_bit(nid);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_shard *shard = &arcs->shards[i];
        if (shard->replicas || shard->owner != nid)
            continue;
        shard->version++; /* nothing to hand over */
        owner_set(arcs, i);
    }
    return true;
}

bool sh_arcs_is_bare(const struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if ((arcs->shards[i].replicas & sh_arc_bit(nid)) || arcs->shards[i].owner == nid)
            return false;
    }
    return true;
}

bool sh_arcs_may_drop(const struct sh_arcs *arcs, unsigned number, unsigned nid)
{
    SH_ASSERT(number < SH_SHARDS && nid && nid <= SH_SUPERPEERS_MAX);
    const struct sh_shard *shard = &arcs->shards[number];
    uint64_t bit = sh_arc_bit(nid), left = shard->replicas & ~bit;
    return shard->owner != nid && left &&
           (!(arcs->up & bit) || __builtin_popcountll(left & arcs->up) >= 2);
}

/* The owner of a shard without replicas has made a state for it, of nothing. */
static void begin(struct sh_shard *shard)
{
    SH_ASSERT(!shard->replicas && shard->owner);
    shard->replicas = sh_arc_bit(shard->owner);
    shard->origin = shard->origin == SH_ORIGIN_NONE ? SH_ORIGIN_NEW : SH_ORIGIN_PEERS;
    shard->origin_version = shard->version;
    shard->copy_nid = 0;
    shard->copy_epoch = shard->copy_sequence = 0;
}

/* A superpeer's old copy is the state of a shard without replicas from now on. */
static void salvage(struct sh_shard *shard, const struct sh_arc_change *change)
{
    SH_ASSERT(!shard->replicas && change->kind == SH_ARC_SALVAGE);
    shard->replicas = sh_arc_bit(change->nid);
    shard->owner = shard->copy_nid = change->nid;
    shard->origin = SH_ORIGIN_COPY;
    shard->origin_version = shard->version;
    shard->copy_epoch = change->copy_epoch;
    shard->copy_sequence = change->copy_sequence;
}

bool sh_arcs_change(struct sh_arcs *arcs, const struct sh_arc_change *change)
{
    SH_ASSERT(change->shard < SH_SHARDS && change->nid && change->nid <= SH_SUPERPEERS_MAX);
    struct sh_shard *shard = &arcs->shards[change->shard];
    uint64_t bit = sh_arc_bit(change->nid);
    bool is_current = arcs->incarnations[change->nid] == change->incarnation;
    if (shard->version != change->version)
        return false;
    shard->version++;
    switch (change->kind) {
    case SH_ARC_ADD:
        if ((shard->replicas & arcs->present) && (arcs->up & bit) && is_current)
            shard->replicas |= bit;
        break;
    case SH_ARC_DROP:
        if (sh_arcs_may_drop(arcs, change->shard, change->nid))
            shard->replicas &= ~bit;
        break;
    case SH_ARC_HAND:
        if ((arcs->up & bit) && (shard->replicas & bit))
            shard->owner = change->nid;
        break;
    case SH_ARC_SALVAGE:
        if (!shard->replicas && (arcs->present & bit) && is_current)
            salvage(shard, change);
        break;
    default:
        if (!shard->replicas && shard->owner == change->nid && (arcs->present & bit))
            begin(shard);
    }
    SH_ASSERT(!shard->replicas || (shard->replicas & sh_arc_bit(shard->owner)));
    return true;
}

/* --- Bytes ----------------------------------------------------------------------------------- */

void sh_arc_change_put(struct sh_writer *w, const struct sh_arc_change *change)
{
    sh_put8(w, change->kind);
    sh_put8(w, change->shard);
    sh_put8(w, change->nid);
    sh_put64(w, change->version);
    sh_put64(w, change->incarnation);
    sh_put64(w, change->copy_epoch);
    sh_put64(w, change->copy_sequence);
}

enum shoal_err sh_arc_change_get(struct sh_reader *r, struct sh_arc_change *change_out)
{
    struct sh_arc_change change = {.kind = sh_get8(r)};
    change.shard = sh_get8(r);
    change.nid = sh_get8(r);
    change.version = sh_get64(r);
    change.incarnation = sh_get64(r);
    change.copy_epoch = sh_get64(r);
    change.copy_sequence = sh_get64(r);
    if (!sh_reader_ok(r) || change.kind < SH_ARC_ADD || change.kind > SH_ARC_SALVAGE ||
        change.shard >= SH_SHARDS || !change.nid || change.nid > SH_SUPERPEERS_MAX)
        return SHOAL_EPROTO;
    *change_out = change;
    return SHOAL_OK;
}

void sh_arcs_put(struct sh_writer *w, const struct sh_arcs *arcs)
{
    sh_put64(w, arcs->up);
    sh_put64(w, arcs->present);
    for (unsigned i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        sh_put64(w, arcs->lives[i]);
        sh_put64(w, arcs->incarnations[i]);
    }
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        const struct sh_shard *shard = &arcs->shards[i];
        sh_put64(w, shard->version);
        sh_put64(w, shard->replicas);
        sh_put8(w, shard->owner);
        sh_put8(w, shard->origin);
        sh_put8(w, shard->copy_nid);
        sh_put64(w, shard->origin_version);
        sh_put64(w, shard->copy_epoch);
        sh_put64(w, shard->copy_sequence);
    }
}

static void origin_get(struct sh_reader *r, struct sh_shard *shard)
{
    shard->origin = sh_get8(r);
    shard->copy_nid = sh_get8(r);
    shard->origin_version = sh_get64(r);
    shard->copy_epoch = sh_get64(r);
    shard->copy_sequence = sh_get64(r);
}

enum shoal_err sh_arcs_get(struct sh_reader *r, struct sh_arcs *arcs_out)
{
    struct sh_arcs arcs = {.up = sh_get64(r)};
    arcs.present = sh_get64(r);
    bool is_good = !(arcs.up & ~arcs.present) && !(arcs.present & 1);
    for (unsigned i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        arcs.lives[i] = sh_get64(r);
        arcs.incarnations[i] = sh_get64(r);
        is_good &= arcs.lives[i] || !(arcs.present >> i & 1);
    }
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_shard *shard = &arcs.shards[i];
        shard->version = sh_get64(r);
        shard->replicas = sh_get64(r);
        shard->owner = sh_get8(r);
        origin_get(r, shard);
        is_good &= !(shard->replicas & 1) && shard->owner <= SH_SUPERPEERS_MAX &&
                   shard->origin <= SH_ORIGIN_PEERS && shard->copy_nid <= SH_SUPERPEERS_MAX &&
                   shard->origin_version <= shard->version;
        if (!is_good)
            return SHOAL_EPROTO;
        /* Who is not present is a replica only as the last one. */
        uint64_t absent = shard->replicas & ~arcs.present;
        bool is_held = (shard->replicas >> shard->owner & 1) && shard->owner;
        bool is_there = shard->owner ? arcs.present >> shard->owner & 1 : !arcs.present;
        is_good &= shard->replicas ? is_held && (!absent || absent == shard->replicas) : is_there;
    }
    if (!sh_reader_ok(r) || !is_good)
        return SHOAL_EPROTO;
    *arcs_out = arcs;
    return SHOAL_OK;
}
