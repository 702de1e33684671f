/* The ring as a table: who owns and holds which sector. */
#include "cluster/arcs.h"

#include "base/assert.h"
#include "base/hash.h"

/* Six bits in reverse: neighbours in one order are far apart in the other. */
static unsigned reversed(unsigned six)
{
    unsigned out = 0;
    for (unsigned bit = 0; bit < 6; bit++)
        out |= (six >> bit & 1) << (5 - bit);
    return out;
}

unsigned sh_arc_sector(shoal_nid creator)
{
    return reversed(creator.v % SH_SECTORS);
}

unsigned sh_arc_sector_of_name(struct sh_bytes name)
{
    return sh_hash64(name, 0) % SH_SECTORS;
}

unsigned sh_arc_place(unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    return reversed(nid - 1);
}

unsigned sh_arc_successor(uint64_t set, unsigned sector)
{
    SH_ASSERT(sector < SH_SECTORS);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        unsigned nid = reversed((sector + i) % SH_SECTORS) + 1;
        if (nid <= SH_SUPERPEERS_MAX && (set & sh_arc_bit(nid)))
            return nid;
    }
    return 0;
}

uint64_t sh_arc_wanted(uint64_t set, unsigned sector)
{
    uint64_t wanted = 0;
    for (unsigned i = 0; i < SH_ARC_COPIES; i++) {
        unsigned nid = sh_arc_successor(set & ~wanted, sector);
        if (!nid)
            break;
        wanted |= sh_arc_bit(nid);
    }
    return wanted;
}

/* Finds the owner anew after something has changed. */
static void owner_set(struct sh_arcs *arcs, unsigned sector)
{
    struct sh_sector *at = &arcs->sectors[sector];
    if (at->holders & sh_arc_bit(at->owner))
        return;
    uint64_t from = at->holders ? at->holders : arcs->up ? arcs->up : arcs->present;
    at->owner = (uint8_t)sh_arc_successor(from, sector);
}

bool sh_arcs_up(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if (arcs->up & sh_arc_bit(nid))
        return false;
    arcs->up |= sh_arc_bit(nid);
    arcs->present |= sh_arc_bit(nid);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        if (arcs->sectors[i].owner)
            continue;
        arcs->sectors[i].version++;
        owner_set(arcs, i);
    }
    return true;
}

bool sh_arcs_gone(struct sh_arcs *arcs, unsigned nid, bool stays)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    uint64_t bit = sh_arc_bit(nid);
    bool was_there = arcs->present & bit;
    if (!stays) {
        arcs->up &= ~bit;
        arcs->present &= ~bit;
    }
    if (!was_there)
        return false;
    arcs->lives[nid]++;
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_sector *sector = &arcs->sectors[i];
        if (!(sector->holders & bit) && sector->owner != nid)
            continue;
        sector->version++;
        sector->holders &= ~bit;
        if (sector->owner == nid)
            sector->owner = 0;
        owner_set(arcs, i);
    }
    return true;
}

bool sh_arcs_retire(struct sh_arcs *arcs, unsigned nid)
{
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    if (!(arcs->up & ~sh_arc_bit(nid)) || !(arcs->up & sh_arc_bit(nid)))
        return false;
    arcs->up &= ~sh_arc_bit(nid);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_sector *sector = &arcs->sectors[i];
        if (sector->holders || sector->owner != nid)
            continue;
        sector->version++; /* nothing to hand over */
        sector->owner = 0;
        owner_set(arcs, i);
    }
    return true;
}

bool sh_arcs_is_bare(const struct sh_arcs *arcs, unsigned nid)
{
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        if ((arcs->sectors[i].holders & sh_arc_bit(nid)) || arcs->sectors[i].owner == nid)
            return false;
    }
    return true;
}

bool sh_arcs_change(struct sh_arcs *arcs, const struct sh_arc_change *change)
{
    SH_ASSERT(change->sector < SH_SECTORS && change->nid && change->nid <= SH_SUPERPEERS_MAX);
    struct sh_sector *sector = &arcs->sectors[change->sector];
    uint64_t bit = sh_arc_bit(change->nid);
    if (sector->version != change->version)
        return false;
    sector->version++;
    switch (change->kind) {
    case SH_ARC_ADD:
        if (sector->holders && (arcs->up & bit) && arcs->lives[change->nid] == change->life)
            sector->holders |= bit;
        break;
    case SH_ARC_DROP:
        if (sector->owner != change->nid)
            sector->holders &= ~bit;
        break;
    case SH_ARC_HAND:
        if ((arcs->up & bit) && (sector->holders & bit))
            sector->owner = change->nid;
        break;
    default:
        if (!sector->holders && sector->owner == change->nid && (arcs->present & bit))
            sector->holders = bit;
    }
    return true;
}

/* --- Bytes ----------------------------------------------------------------------------------- */

void sh_arc_change_put(struct sh_writer *w, const struct sh_arc_change *change)
{
    sh_put8(w, change->kind);
    sh_put8(w, change->sector);
    sh_put8(w, change->nid);
    sh_put64(w, change->version);
    sh_put64(w, change->life);
}

enum shoal_err sh_arc_change_get(struct sh_reader *r, struct sh_arc_change *change_out)
{
    struct sh_arc_change change = {.kind = sh_get8(r)};
    change.sector = sh_get8(r);
    change.nid = sh_get8(r);
    change.version = sh_get64(r);
    change.life = sh_get64(r);
    if (!sh_reader_ok(r) || change.kind < SH_ARC_ADD || change.kind > SH_ARC_BUILT ||
        change.sector >= SH_SECTORS || !change.nid || change.nid > SH_SUPERPEERS_MAX)
        return SHOAL_EPROTO;
    *change_out = change;
    return SHOAL_OK;
}

void sh_arcs_put(struct sh_writer *w, const struct sh_arcs *arcs)
{
    sh_put64(w, arcs->up);
    sh_put64(w, arcs->present);
    for (unsigned i = 1; i <= SH_SUPERPEERS_MAX; i++)
        sh_put64(w, arcs->lives[i]);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        sh_put64(w, arcs->sectors[i].version);
        sh_put64(w, arcs->sectors[i].holders);
        sh_put8(w, arcs->sectors[i].owner);
    }
}

enum shoal_err sh_arcs_get(struct sh_reader *r, struct sh_arcs *arcs_out)
{
    struct sh_arcs arcs = {.up = sh_get64(r)};
    arcs.present = sh_get64(r);
    bool is_good = !(arcs.up & ~arcs.present) && !(arcs.present & 1);
    for (unsigned i = 1; i <= SH_SUPERPEERS_MAX; i++)
        arcs.lives[i] = sh_get64(r);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_sector *sector = &arcs.sectors[i];
        sector->version = sh_get64(r);
        sector->holders = sh_get64(r);
        sector->owner = sh_get8(r);
        is_good &= !(sector->holders & ~arcs.present) && sector->owner <= SH_SUPERPEERS_MAX;
        if (!is_good)
            return SHOAL_EPROTO;
        bool is_held = sector->holders >> sector->owner & 1;
        bool is_there = sector->owner ? arcs.present >> sector->owner & 1 : !arcs.present;
        is_good &= sector->holders ? is_held : is_there;
    }
    if (!sh_reader_ok(r) || !is_good)
        return SHOAL_EPROTO;
    *arcs_out = arcs;
    return SHOAL_OK;
}
