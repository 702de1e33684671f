/* What a node or client knows of the cluster: the view, and where chunks are.
 *
 *   sh_directory_owner(cid) --OK--------> send the request there
 *        | EAGAIN                              | ENOTOWNER, or the connection was lost
 *        v                                     v
 *   sh_directory_locate -> superpeer      sh_directory_forget, refresh, again
 *
 * Lookups are cached as ranges (lookups.h), at most cache_ranges_max of them. A view in which a
 * node is no longer up drops what was cached of it. That nobody has a range is remembered, too, but
 * only for calls that began before the question was sent (directory_locate.c): a chunk that is
 * made later is found at once. Each applied view also tells msg where the nodes are, and makes it
 * forget those that failed, so that what waits for them fails at once.
 *
 * Threads: any, but where a function says otherwise. No function blocks; the callbacks of
 * operations come from the transport step, or from the call itself if nothing could be sent. No
 * lock is held during a callback.
 */
#ifndef SH_CLUSTER_DIRECTORY_H
#define SH_CLUSTER_DIRECTORY_H

#include "cluster/lookups.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"

struct sh_directory;

struct sh_directory_config {
    struct sh_msg *msg; /* kept */
    struct sh_clock clock;
    uint32_t cache_ranges_max;
    bool is_client; /* does not answer VIEW_GET. On a superpeer's node too: the superpeer does */
};

/* Registers the handler of VIEW_GET unless is_client; before the steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_directory_create(const struct sh_directory_config *config,
                                                   struct sh_directory **directory_out);
/* Calls what waits back with ESTOPPED. NULL is allowed. No other thread may be using it and no step
 * run; before msg is destroyed. */
void sh_directory_destroy(struct sh_directory *directory);

/* An operation on the view. Owned by the caller, kept until done has been called, once. */
struct sh_directory_op {
    /* detail: a sentence for people, or ""; borrowed. */
    void (*done)(struct sh_directory_op *op, enum shoal_err err, const char *detail);
    void *arg;                    /* the caller's */
    struct sh_directory_op *next; /* the directory's */
};

/* Fetches the view from the first of the addresses (HOST:PORT; at most 64; copied and kept for
 * later refreshes) that answers. If none does: the most telling error, ESECRET, ECLUSTER or
 * EVERSION before EADDRESS and the rest, with the address in detail; EINVAL when count is 0. */
void sh_directory_bootstrap(struct sh_directory *directory, const char *const *addresses,
                            size_t count, struct sh_directory_op *op);

/* Fetches the view from any node: superpeers first, then a few peers, then the bootstrap addresses.
 * Each node says what it knows then, not earlier: operations that come while others are under way share the next
 * search. Errors as above; ENONODE when there is nobody to ask. */
void sh_directory_refresh(struct sh_directory *directory, struct sh_directory_op *op);

/* Takes a view if it is newer than the one there; borrows it. ENOMEM changes nothing. Only from the
 * thread that runs the transport step, or before it runs. */
SHOAL_NODISCARD enum shoal_err sh_directory_view_apply(struct sh_directory *directory,
                                                       const struct sh_view *view);

/* Replaces *view_out by a copy of the view. ENOMEM changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_directory_view_copy(struct sh_directory *directory,
                                                      struct sh_view *view_out);
/* The view's epoch; 0: there is none yet. */
uint64_t sh_directory_epoch(struct sh_directory *directory);
/* Copies at most room nodes, by ascending ID, and returns how many there are. */
size_t sh_directory_nodes(struct sh_directory *directory, struct sh_node *nodes, size_t room);
/* Copies one node. ENONODE. */
SHOAL_NODISCARD enum shoal_err sh_directory_node(struct sh_directory *directory, shoal_nid nid,
                                                 struct sh_node *node_out);

/* The peer that is up with the lowest ID above that one's; NONE: there is none. */
shoal_nid sh_directory_peer_after(struct sh_directory *directory, shoal_nid nid);

/* The superpeer to ask about what a creator made: as was said last (superpeer_set), else the first for
 * that ID that is up. One that does not own the creator's shard names who does. NONE when there is no view yet or
 * nobody can have the ID. */
shoal_nid sh_directory_superpeer(struct sh_directory *directory, shoal_nid creator);
/* A superpeer has said that this one is to be asked in its place. */
void sh_directory_superpeer_set(struct sh_directory *directory, shoal_nid creator,
                                shoal_nid superpeer);

/* The node that holds a chunk, as far as known here. EAGAIN: not known, ask (locate). ENOCHUNK: the
 * ID is nobody's. Takes no lock and waits for nobody. */
SHOAL_NODISCARD enum shoal_err sh_directory_owner(struct sh_directory *directory, shoal_cid cid,
                                                  shoal_nid *nid_out);

/* The same as a range, for people: not counted as a use. False: not known. */
bool sh_directory_range(struct sh_directory *directory, shoal_cid cid, struct sh_range *range_out);

/* A lookup. Owned by the caller, kept until done has been called, once. */
struct sh_locate {
    /* OK and the owner (when msg calls it EUNREACHABLE, the view is too old: refresh); ENOCHUNK,
     * EFAILED, ELOST; EBUSY: a superpeer was restarted, try in a moment;
     * ENONODE: no view yet; EUNREACHABLE, ECONNLOST, ETIMEOUT...: refresh and try again. */
    void (*done)(struct sh_locate *op, enum shoal_err err, shoal_nid nid);
    void *arg; /* the caller's */
    /* When it fails with ETIMEOUT, by the clock; 0: after msg's time-out. */
    uint64_t deadline_ns;
    /* A mark, or 0 for one that is made now: that nobody has the chunk may be an answer to what was
     * asked behind the mark. One who looks up many chunks makes it before all of them. */
    uint64_t mark;
    /* Neither is what it was once done has been called. */
    /* The directory's: */
    shoal_cid cid;
    struct sh_directory *directory;
    uint8_t asked;               /* superpeers so far */
    struct sh_locate *next;      /* the next one that asks, or that waits for the same answer */
    struct sh_locate *followers; /* the last of those that wait for this one's answer, a circle */
    struct sh_request request;
};

/* Asks the superpeer of the creator's arc, and those to whom it points, and fills the cache.
 * Lookups of the same creator that come meanwhile, and would not give up earlier, wait for the one
 * answer; when that one gives up, the next of them asks. */
void sh_directory_locate(struct sh_directory *directory, shoal_cid cid, struct sh_locate *op);

/* A mark between the questions that were asked before and those that are asked from now on. */
uint64_t sh_directory_mark(struct sh_directory *directory);

/* Tells a superpeer that a node does not answer; the superpeer will look itself. Never
 * blocks; nothing is done for one that is not a peer that is up. */
void sh_directory_suspect(struct sh_directory *directory, shoal_nid nid);

/* Drops the cached range that holds the chunk. */
void sh_directory_forget(struct sh_directory *directory, shoal_cid cid);

/* The next peer that is up, in turn. ENONODE when there is none. */
SHOAL_NODISCARD enum shoal_err sh_directory_pick_peer(struct sh_directory *directory,
                                                      shoal_nid *nid_out);

/* Ranges that are cached now. */
size_t sh_directory_cached(struct sh_directory *directory);

struct sh_directory_stats {
    struct sh_lookups_stats cache;
    uint64_t requests; /* questions to superpeers where a chunk is */
};
struct sh_directory_stats sh_directory_stats(struct sh_directory *directory);

/* Whether a chunk that is with a failed node, by the superpeers (EFAILED), may come back: with that node, which keeps its chunks in a log
 * of its own (traits.h), or, is_chunk, at others that have replicas; not is_chunk: whether the node may. asked: the node that the chunk was with when it was asked for last, or NONE; creator: the chunk's. Where neither keeps its
 * chunks, nor has failed, the chunk is with any of those that have. */
bool sh_directory_may_return(struct sh_directory *directory, shoal_nid asked, shoal_nid creator,
                             bool is_chunk);
/* How often another process has had a peer's ID since the directory was made: who compares two of them
 * tells that what was sent in between was sent to another life. Any thread, without a lock. */
uint32_t sh_directory_life(const struct sh_directory *directory, shoal_nid nid);

#endif
