/* The inside of a directory, shared by directory.c, directory_search.c and directory_locate.c. */
#ifndef SH_CLUSTER_DIRECTORY_INT_H
#define SH_CLUSTER_DIRECTORY_INT_H

#include <stdatomic.h>

#include "base/lock.h"
#include "cluster/directory.h"
#include "cluster/lookups.h"
#include "cluster/proto.h"
#include "ring/arcs.h"

#define SH_ADDRESSES_MAX 64
#define SH_SEARCH_PEERS_MAX 8 /* peers that a refresh asks after the superpeers */
#define SH_CANDIDATES_MAX (SH_SUPERPEERS_MAX + SH_SEARCH_PEERS_MAX + SH_ADDRESSES_MAX)
#define SH_DETAIL_MAX 192
#define SH_LOCATE_HOPS_MAX 4             /* superpeers that one lookup asks */
#define SH_GAPS_MAX SH_LOOKUP_RANGES_MAX /* that are remembered: those of one answer at least */

/* Someone who may know the view: a node by ID, or whoever is at an address. */
struct sh_candidate {
    shoal_nid nid; /* NONE: by address */
    char address[SH_MSG_ADDRESS_MAX];
};

/* The one search for a view that is under way. Operations that come meanwhile wait for the next one: what candidates have said by then may be
 * older than they are. While `is_running`,
 * what is below it belongs to whoever carries it on: the caller that began it, then the transport
 * step. */
struct sh_search {
    bool is_running;
    struct sh_directory_op *ops;                /* that it is for; under the lock */
    struct sh_directory_op *later, **later_end; /* that came meanwhile; under the lock */
    struct sh_candidate candidates[SH_CANDIDATES_MAX];
    size_t count, next;
    enum shoal_err err; /* the most telling so far */
    char detail[SH_DETAIL_MAX];
    struct sh_request request;
    bool is_asking; /* under the lock */
};

/* A range of chunk IDs that nobody has who is up, by the answer to the question of that number. */
struct sh_gap {
    shoal_cid first, last;
    enum shoal_err err; /* ENOCHUNK, EFAILED, ELOST; 0: an unused place */
    uint64_t number;
};

struct sh_directory {
    struct sh_msg *msg;
    struct sh_clock clock;
    _Atomic uint64_t requests;  /* LOOKUPs that were sent; relaxed: a counter */
    struct sh_lookups *lookups; /* changed under the lock, found in without */
    struct sh_lock lock;
    /* Under the lock (the view is written by the transport step's thread only, which may read it
     * without): */
    struct sh_view view;
    uint8_t states[UINT16_MAX + 1];         /* by node ID: 0 not in the view, else state + 1 */
    _Atomic uint32_t lives[UINT16_MAX + 1]; /* how often another process has had the ID since */
    shoal_nid picked;                       /* the peer that was picked last */
    char addresses[SH_ADDRESSES_MAX][SH_MSG_ADDRESS_MAX];
    size_t address_count;
    struct sh_search search;
    struct sh_locate *locating; /* those that ask */
    uint64_t number;            /* of the last question */
    struct sh_gap gaps[SH_GAPS_MAX];
    size_t gap_next;           /* the place of the next one */
    uint8_t owners[SH_SHARDS]; /* who has answered last; 0: not known */
};

/* The state of a node in the view, or -1. Under the lock. */
static inline int sh_directory_state(const struct sh_directory *directory, shoal_nid nid)
{
    return (int)directory->states[nid.v] - 1;
}

/* As sh_directory_superpeer; lock held, and there is a view. */
shoal_nid sh_directory_superpeer_locked(const struct sh_directory *directory, shoal_nid creator);

/* An answer to LOOKUP: the range that holds the chunk, and others behind it. Values are those of
 * the wire: an owner, SH_LOOKUP_NOBODY, SH_LOOKUP_FAILED or SH_LOOKUP_LOST. */
struct sh_lookup_answer {
    struct sh_range ranges[SH_LOOKUP_RANGES_MAX];
    size_t count;
};
/* Reads one; EPROTO: the answer is of no use. One that names a superpeer has one range. */
SHOAL_NODISCARD enum shoal_err sh_lookup_answer_get(struct sh_reader *r, shoal_cid cid,
                                                    struct sh_lookup_answer *answer);

/* End what is under way with ESTOPPED. */
void sh_directory_search_stop(struct sh_directory *directory);
void sh_directory_locate_stop(struct sh_directory *directory);

#endif
