/* Which chunks a node serves: its own but those that it gave away, and those of other creators that
 * moved here; and which of them stand still for a moment because they are about to move.
 *
 *   own chunk:      served --> NO_WRITES --> NOTHING --> AWAY        (back: AWAY --> served)
 *     of a former life: UNKNOWN --> served, or AWAY
 *   another's:      HELD   --> NO_WRITES --> NOTHING --> not here    (back: not here --> HELD)
 *     of a former life: not here --> HELD, or LOST                   (once the loss is accepted: LOST --> not here)
 *
 * It is one tree of ranges, in which an own chunk that is served does not appear.
 *
 * Threads: whoever runs requests looks with sh_holdings_look, without a lock. All changes are made
 * by the thread of the transport step. A request that is run on another thread (pooled) stands
 * between enter and leave, looks once for each chunk, and may go by what it saw until it leaves:
 * who has made a change knows from sh_holdings_settled when nobody goes by what was before. */
#ifndef SH_NODE_HOLDINGS_H
#define SH_NODE_HOLDINGS_H

#include <stdatomic.h>

#include "ranges/ranges.h"
#include "shoal/err.h"
#include "shoal/types.h"
#include "store/store.h"

enum sh_holding {
    SH_HOLDING_PLAIN, /* not in the tree: served if it is an own chunk, else not here */
    SH_HOLDING_AWAY, /* an own chunk that another node has, or that is to come back here with a zone */
    SH_HOLDING_HELD,
    SH_HOLDING_NO_WRITES,
    SH_HOLDING_NOTHING,
    SH_HOLDING_UNKNOWN, /* an own chunk of a former life, of which it is not known yet whether it is here */
    SH_HOLDING_LOST /* another's chunk that a former life had, and that may have been lost with a zone */
};

struct sh_holdings {
    struct sh_ranges *tree; /* value: enum sh_holding | node ID << 8 (AWAY: who has it) */
    /* Those that stand between enter and leave, by the phase in which they entered. */
    _Atomic uint64_t phase; /* is turned again and again */
    _Atomic uint32_t inside[2];
    uint64_t turns; /* of the phase after which nobody was left who had entered before */
    _Atomic bool keeps_strays;
    _Atomic uint64_t stray;
    /* Own local IDs up to lost_until that are not in that store may have been lost with a zone of a former life; 0: none. */
    struct sh_store *store;
    _Atomic uint64_t lost_until;
    void (*watch)(void *arg, shoal_cid first, shoal_cid last, enum sh_holding what);
    void *watch_arg;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_holdings_init(struct sh_holdings *holdings);
void sh_holdings_destroy(struct sh_holdings *holdings);

/* Whether a node may run a request on a chunk, and the ID under which the store has it. ENOTOWNER;
 * EBUSY: it is moving, ask again soon; ELOST: it is none that the store has, and may be one that was lost: then
 * the ID is written, too. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_holdings_look(const struct sh_holdings *holdings, shoal_nid self,
                                                shoal_cid cid, bool writes, sh_lid *lid_out);

/* From now on own chunks with IDs of former lives, the last of which is `until`, are lost where the store, which is kept, has none. Once. */
void sh_holdings_lost_set(struct sh_holdings *holdings, struct sh_store *store, uint64_t until);
/* From now on they are not any more: they do not exist. Nor are others' chunks that are LOST. By the thread that has set it; also where it was not. */
void sh_holdings_lost_clear(struct sh_holdings *holdings);

/* From now on one of the others' chunks that somebody has asked for, and that are not here (note, by any
 * thread), is kept: sh_holdings_stray, or 0. done: another one may be. */
void sh_holdings_strays_keep(struct sh_holdings *holdings);
void sh_holdings_stray_note(struct sh_holdings *holdings, shoal_nid self, shoal_cid cid);
shoal_cid sh_holdings_stray(const struct sh_holdings *holdings);
void sh_holdings_stray_done(struct sh_holdings *holdings, shoal_cid cid);

/* The store's name of a chunk: an own one goes by its local ID. */
static inline sh_lid sh_holdings_lid(shoal_nid self, shoal_cid cid)
{
    return shoal_cid_creator(cid).v == self.v ? (sh_lid){shoal_cid_local(cid)} : cid;
}
/* And back. */
static inline shoal_cid sh_holdings_cid(shoal_nid self, sh_lid lid)
{
    return shoal_cid_creator(lid).v == 0 ? shoal_cid_make(self, lid.v) : lid;
}

/* Around a pooled request. */
unsigned sh_holdings_enter(struct sh_holdings *holdings);
void sh_holdings_leave(struct sh_holdings *holdings, unsigned entered);

/* True when there is room for so many more ranges, whatever they cut. */
bool sh_holdings_has_room(const struct sh_holdings *holdings, size_t ranges);
/* Changes what is so of a range, within one creator; there must be room. */
void sh_holdings_set(struct sh_holdings *holdings, shoal_cid first, shoal_cid last,
                     enum sh_holding what, shoal_nid nid);
/* From now on `watch` is called by each sh_holdings_set, after the change. Before the first one. */
void sh_holdings_watch(struct sh_holdings *holdings, void *arg,
                       void (*watch)(void *arg, shoal_cid first, shoal_cid last,
                                     enum sh_holding what));
/* Whether a chunk is served here, and does not stand still, and up to which one the same is so. */
bool sh_holdings_serves(const struct sh_holdings *holdings, shoal_nid self, shoal_cid cid,
                        shoal_cid *last_out);
/* Begins to wait until nobody goes by what was before the last changes. Returns what to ask by. */
SHOAL_NODISCARD uint64_t sh_holdings_settle(struct sh_holdings *holdings);
/* Whether that is so now; to be asked again and again. */
bool sh_holdings_settled(struct sh_holdings *holdings, uint64_t wait);

/* What is so of a chunk, and up to which one the same. *nid_out: of AWAY. */
enum sh_holding sh_holdings_find(const struct sh_holdings *holdings, shoal_cid cid,
                                 shoal_cid *last_out, shoal_nid *nid_out);
/* The next range in the tree at or behind `from`. */
bool sh_holdings_next(const struct sh_holdings *holdings, shoal_cid from,
                      struct sh_range *range_out, enum sh_holding *what_out, shoal_nid *nid_out);

#endif
