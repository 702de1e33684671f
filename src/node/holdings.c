#include "node/holdings.h"

#include "base/assert.h"
#include "base/node_ids.h"

/* Leaves of the tree; at the worst fill a leaf has 20 boundaries, and a range two of them. */
#define NODES_MAX ((size_t)1 << 17)
#define RANGES_MAX (NODES_MAX * 8)

enum shoal_err sh_holdings_init(struct sh_holdings *holdings)
{
    *holdings = (struct sh_holdings){0};
    return sh_ranges_create(NODES_MAX, &holdings->tree);
}

void sh_holdings_destroy(struct sh_holdings *holdings)
{
    sh_ranges_destroy(holdings->tree);
    holdings->tree = NULL;
}

static enum sh_holding what_of(const struct sh_range *range)
{
    return (enum sh_holding)(range->value & 0xff);
}

static shoal_nid nid_of(const struct sh_range *range)
{
    return (shoal_nid){(uint16_t)(range->value >> 8)};
}

/* relaxed, all of it: which one is kept does not matter, and nothing goes with it */

void sh_holdings_strays_keep(struct sh_holdings *holdings)
{
    atomic_store_explicit(&holdings->keeps_strays, true, memory_order_relaxed);
}

void sh_holdings_stray_note(struct sh_holdings *holdings, shoal_nid self, shoal_cid cid)
{
    if (atomic_load_explicit(&holdings->keeps_strays, memory_order_relaxed) &&
        sh_nid_is_peer(shoal_cid_creator(cid)) && shoal_cid_creator(cid).v != self.v)
        atomic_store_explicit(&holdings->stray, cid.v, memory_order_relaxed);
}

shoal_cid sh_holdings_stray(const struct sh_holdings *holdings)
{
    return (shoal_cid){atomic_load_explicit(&holdings->stray, memory_order_relaxed)};
}

void sh_holdings_stray_done(struct sh_holdings *holdings, shoal_cid cid)
{
    if (sh_holdings_stray(holdings).v == cid.v)
        atomic_store_explicit(&holdings->stray, 0, memory_order_relaxed);
}

void sh_holdings_lost_set(struct sh_holdings *holdings, struct sh_store *store, uint64_t until)
{
    SH_ASSERT(!atomic_load_explicit(&holdings->lost_until, memory_order_relaxed));
    holdings->store = store;
    /* release: the store; pairs with the acquire in is_lost */
    atomic_store_explicit(&holdings->lost_until, until, memory_order_release);
}

void sh_holdings_lost_clear(struct sh_holdings *holdings)
{
    struct sh_range range = {.first = {0}};
    enum sh_holding what;
    shoal_nid nid;
    /* relaxed: the store stays what it is */
    atomic_store_explicit(&holdings->lost_until, 0, memory_order_relaxed);
    for (shoal_cid from = {0}; sh_holdings_next(holdings, from, &range, &what, &nid);
         from.v = range.last.v + 1) {
        if (what == SH_HOLDING_LOST)
            sh_holdings_set(holdings, range.first, range.last, SH_HOLDING_PLAIN, SHOAL_NID_NONE);
    }
}

/* A chunk of a former life that is not there may have been removed as well: nobody can tell. */
static bool is_lost(const struct sh_holdings *holdings, sh_lid lid)
{
    uint64_t until = atomic_load_explicit(&holdings->lost_until, memory_order_acquire);
    uint32_t size;
    return lid.v && lid.v <= until && sh_store_size(holdings->store, lid, &size) == SHOAL_ENOCHUNK;
}

enum shoal_err sh_holdings_look(const struct sh_holdings *holdings, shoal_nid self, shoal_cid cid,
                                bool writes, sh_lid *lid_out)
{
    struct sh_range range;
    bool is_own = shoal_cid_creator(cid).v == self.v;
    if (self.v == 0 || shoal_cid_creator(cid).v == 0)
        return SHOAL_ENOTOWNER;
    if (!sh_ranges_find(holdings->tree, cid, &range)) {
        if (!is_own)
            return SHOAL_ENOTOWNER;
    } else {
        switch (what_of(&range)) {
        case SH_HOLDING_NO_WRITES:
            if (writes)
                return SHOAL_EBUSY;
            break;
        case SH_HOLDING_NOTHING:
        case SH_HOLDING_UNKNOWN:
            return SHOAL_EBUSY;
        case SH_HOLDING_AWAY:
            return SHOAL_ENOTOWNER;
        case SH_HOLDING_LOST:
            *lid_out = sh_holdings_lid(self, cid);
            return SHOAL_ELOST;
        default:
            break;
        }
    }
    *lid_out = sh_holdings_lid(self, cid);
    return is_own && is_lost(holdings, *lid_out) ? SHOAL_ELOST : SHOAL_OK;
}

/* --- Who is inside ------------------------------------------------------------------------- */

/* As sleepable read-copy-update does it (McKenney 2006): who enters counts itself under the phase
 * that it read, and who waits turns the phase and waits until nobody is left under the old one,
 * twice, since one may have read the phase long before it counted itself. A turn that had begun
 * before a change does not count for that. */

unsigned sh_holdings_enter(struct sh_holdings *holdings)
{
    unsigned phase = atomic_load_explicit(&holdings->phase, memory_order_relaxed) & 1;
    /* seq_cst: before what is looked at in the tree; pairs with the load in sh_holdings_settled */
    atomic_fetch_add_explicit(&holdings->inside[phase], 1, memory_order_seq_cst);
    return phase;
}

void sh_holdings_leave(struct sh_holdings *holdings, unsigned entered)
{
    /* release: what was done inside; pairs with the load in sh_holdings_settled */
    atomic_fetch_sub_explicit(&holdings->inside[entered], 1, memory_order_release);
}

static uint64_t phase_of(const struct sh_holdings *holdings)
{
    return atomic_load_explicit(&holdings->phase, memory_order_relaxed); /* its only writer asks */
}

static void turn(struct sh_holdings *holdings)
{
    /* seq_cst: after the change of the tree */
    atomic_fetch_add_explicit(&holdings->phase, 1, memory_order_seq_cst);
}

uint64_t sh_holdings_settle(struct sh_holdings *holdings)
{
    uint64_t wait = phase_of(holdings) + 2;
    if (phase_of(holdings) == holdings->turns)
        turn(holdings);
    return wait;
}

bool sh_holdings_settled(struct sh_holdings *holdings, uint64_t wait)
{
    while (holdings->turns < wait) {
        if (phase_of(holdings) == holdings->turns)
            turn(holdings);
        if (atomic_load_explicit(&holdings->inside[holdings->turns & 1], memory_order_seq_cst) > 0)
            return false;
        holdings->turns++;
    }
    return true;
}

/* --- The tree ------------------------------------------------------------------------------ */

bool sh_holdings_has_room(const struct sh_holdings *holdings, size_t ranges)
{
    return sh_ranges_count(holdings->tree) + 2 * ranges <= RANGES_MAX;
}

void sh_holdings_set(struct sh_holdings *holdings, shoal_cid first, shoal_cid last,
                     enum sh_holding what, shoal_nid nid)
{
    SH_ASSERT(first.v <= last.v && shoal_cid_creator(first).v == shoal_cid_creator(last).v);
    enum shoal_err err;
    if (what == SH_HOLDING_PLAIN)
        err = sh_ranges_remove(holdings->tree, first, last);
    else
        err = sh_ranges_set(holdings->tree, first, last, (uint64_t)what | (uint64_t)nid.v << 8);
    SH_ASSERT(!err); /* the caller has made sure of room */
    if (holdings->watch)
        holdings->watch(holdings->watch_arg, first, last, what);
}

void sh_holdings_watch(struct sh_holdings *holdings, void *arg,
                       void (*watch)(void *arg, shoal_cid first, shoal_cid last,
                                     enum sh_holding what))
{
    holdings->watch = watch;
    holdings->watch_arg = arg;
}

bool sh_holdings_serves(const struct sh_holdings *holdings, shoal_nid self, shoal_cid cid,
                        shoal_cid *last_out)
{
    shoal_nid nid;
    enum sh_holding what = sh_holdings_find(holdings, cid, last_out, &nid);
    bool is_own = shoal_cid_creator(cid).v == self.v;
    return what == (is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD);
}

enum sh_holding sh_holdings_find(const struct sh_holdings *holdings, shoal_cid cid,
                                 shoal_cid *last_out, shoal_nid *nid_out)
{
    struct sh_range range;
    *nid_out = SHOAL_NID_NONE;
    *last_out = shoal_cid_make(shoal_cid_creator(cid), SHOAL_LOCAL_ID_MAX);
    if (!sh_ranges_next(holdings->tree, cid, &range))
        return SH_HOLDING_PLAIN;
    if (range.first.v > cid.v) {
        if (range.first.v <= last_out->v)
            last_out->v = range.first.v - 1;
        return SH_HOLDING_PLAIN;
    }
    *last_out = range.last;
    *nid_out = nid_of(&range);
    return what_of(&range);
}

bool sh_holdings_next(const struct sh_holdings *holdings, shoal_cid from,
                      struct sh_range *range_out, enum sh_holding *what_out, shoal_nid *nid_out)
{
    struct sh_range range;
    if (!sh_ranges_next(holdings->tree, from, &range))
        return false;
    *range_out = range;
    *what_out = what_of(&range);
    *nid_out = nid_of(&range);
    return true;
}
