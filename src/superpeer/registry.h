/* The registry: the members of the cluster, with their IDs and states; a state machine without input or
 * output. All superpeers hold the same registry: each applies the same joins, leaves and failures
 * in the same order (superpeer_commands.c), and nothing else changes it. The times at which
 * nodes were heard are each superpeer's own, and the leader acts on nodes that are overdue. The
 * registry begins without any superpeer: superpeers join and leave like peers.
 *
 * Every function that concerns time is given the time, on one clock. Whatever changes the view
 * raises its epoch and the version; whatever must be stored raises `changes`.
 *
 * A node is `up`, `left` (for good, its chunks are gone), `failed` (silent for failure_ns, or
 * found dead) or `away` (stopped in order, and to be back within a time that it has named). A life of a peer, which its instance names, is over once it is not up: it never is up
 * again, and whoever speaks for it is refused (EFENCED). A later life of the peer takes its place:
 *
 *   JOIN -> [up] --LEAVE--------> [left]   --JOIN of a later life--> [up]
 *             |----FAIL---------> [failed] ----------|
 *             '----LEAVE, back--> [away]   ----------'
 *                                    '-- not back in time --> [failed]
 *
 * A node that is not up may be forgotten: it is in no view any more, and its ID is free. Only IDs of nodes
 * that were forgotten are given to other nodes. Superpeers are nodes, too, and do return; what they hold
 * has a protocol of its own (ring.h).
 *
 * Threads: one at a time.
 */
#ifndef SH_SUPERPEER_REGISTRY_H
#define SH_SUPERPEER_REGISTRY_H

#include "base/bytes.h"
#include "cluster/view.h"
#include "ring/arcs.h"

struct sh_registry;

struct sh_registry_config {
    const char *cluster; /* copied; 1 to 63 bytes */
    uint64_t failure_ns;
    /* How many IDs there are for peers; 0: all. Fewer in tests, at all superpeers alike. */
    uint32_t nids;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_registry_create(const struct sh_registry_config *config,
                                                  struct sh_registry **registry_out);
void sh_registry_destroy(struct sh_registry *registry);

/* Admits a node, or one that was a member with the ID `previous` (NONE: a new one) and that the registry
 * has lost. The same instance always gets the same ID, so a repeated request is harmless. EFENCED: that
 * instance failed, or has left, and its process must begin another life. EADDRINUSE: another node is
 * up at that address; a node is never failed because another one uses its address. EEXIST: another
 * instance has the ID, or the node was forgotten. EROLE: the ID is no peer's. ELIMIT: no ID is left. EINVAL: not a
 * usable address or instance. ENOMEM.
 * traits take the place of those known of that ID; NULL: the node did not say any, and these stay. */
SHOAL_NODISCARD enum shoal_err sh_registry_join(struct sh_registry *registry, uint64_t now_ns,
                                                struct sh_bytes address, uint64_t instance,
                                                shoal_nid previous, const struct sh_traits *traits,
                                                shoal_nid *nid_out);
/* Admits a peer that is started again: its instance is a life (arcs.h) on its disk, with its ID `previous`
 * from before. It keeps the ID, under which all that its former life had is gone. A repeated request is
 * harmless. EEXIST: that life, or a later one, was there already, so the disk is a copy or an old backup;
 * or several nodes have borne the ID, and the one that bears it, if any, is known at another address;
 * EAGAIN: the former life is up, or this one at another address; EFENCED, EADDRINUSE, EROLE, ELIMIT, EINVAL,
 * ENOMEM, and traits, as above. */
SHOAL_NODISCARD enum shoal_err sh_registry_restart(struct sh_registry *registry, uint64_t now_ns,
                                                   struct sh_bytes address, uint64_t life,
                                                   shoal_nid previous,
                                                   const struct sh_traits *traits,
                                                   shoal_nid *nid_out);
/* Which cluster it is: nodes have that on their disks. The same for good, also of a cluster that was
 * forced to go on; another one of a registry that was begun anew. 0: it has not begun. */
uint64_t sh_registry_cluster(const struct sh_registry *registry);
/* A node was heard, which knows the view of that epoch. EFENCED: that life was declared failed. ENONODE (or
 * it left); EEXIST: the ID is another life's; EBUSY: this registry is behind what the node knows, and
 * can't say whose the ID is. */
SHOAL_NODISCARD enum shoal_err sh_registry_heartbeat(struct sh_registry *registry, uint64_t now_ns,
                                                     shoal_nid nid, uint64_t instance,
                                                     uint64_t epoch);
/* A node leaves, with its chunks; also a failed one, whose process says so that it ends. ENONODE, EEXIST. */
SHOAL_NODISCARD enum shoal_err sh_registry_leave(struct sh_registry *registry, shoal_nid nid,
                                                 uint64_t instance);
/* The same of a peer that is to be back within so long: it is away till then. One that has failed meanwhile stays so; a repeated
 * request is harmless. ENONODE, EEXIST. back_ms: over 0. */
SHOAL_NODISCARD enum shoal_err sh_registry_away(struct sh_registry *registry, uint64_t now_ns,
                                                shoal_nid nid, uint64_t instance, uint32_t back_ms);
/* Forgets a peer of that instance: the caller knows that no name and no range of moved chunks refers to
 * it, which stays true, as the instance never is up again. Its ID is given out
 * again when all others have been. ENONODE: it is not there, or no peer's ID; EINVAL: it is up, or away; EEXIST:
 * it is another instance's. */
SHOAL_NODISCARD enum shoal_err sh_registry_forget(struct sh_registry *registry, shoal_nid nid,
                                                  uint64_t instance);
/* Nobody waits for the chunks of a peer that failed any more: it has left, and its instance is one that no
 * process has. Errors as above. */
SHOAL_NODISCARD enum shoal_err sh_registry_give_up(struct sh_registry *registry, shoal_nid nid,
                                                   uint64_t instance);
/* The disk of a peer is lost for good, as an operator has declared: nobody waits for what was on it alone. That ends with a
 * later life of the peer. A repeated request is harmless. ENONODE: it is not there, or no peer's ID; EINVAL: it is up. */
SHOAL_NODISCARD enum shoal_err sh_registry_peer_lost(struct sh_registry *registry, shoal_nid nid);
/* Whether all IDs are those of peers in the view, so that a new one is refused. */
bool sh_registry_is_full(const struct sh_registry *registry);
/* The first peer from `from` on whose process is no more for sure, since it has left or another process
 * listens at its address, and that was not heard for gone_ns, as far as is known here; or NONE. */
shoal_nid sh_registry_gone(const struct sh_registry *registry, uint64_t now_ns, uint64_t gone_ns,
                           shoal_nid from);
/* Declares a peer failed if it is up. */
void sh_registry_fail(struct sh_registry *registry, shoal_nid nid, const char *reason);
/* Declares a peer failed if it is away: its time is over. */
void sh_registry_late(struct sh_registry *registry, shoal_nid nid);

/* When a node was heard last, or is taken to have been. */
uint64_t sh_registry_heard_ns(const struct sh_registry *registry, shoal_nid nid);

/* A node has sent something to this superpeer itself: tells its life from what others report and
 * what is applied late. A heartbeat notes it by itself. 0: it has not. */
void sh_registry_spoke(struct sh_registry *registry, uint64_t at_ns, shoal_nid nid);
uint64_t sh_registry_spoke_ns(const struct sh_registry *registry, shoal_nid nid);

/* The view, by ascending ID. Valid until the next change. */
const struct sh_view *sh_registry_view(const struct sh_registry *registry);
/* True for a peer that is up: whose lost connection is of interest. */
bool sh_registry_watches(const struct sh_registry *registry, shoal_nid nid);

struct sh_report; /* report.h */
/* Writes what the registry has into a report: its memory. */
void sh_registry_report(const struct sh_registry *registry, struct sh_report *report);

/* --- Superpeers, and the leader's questions --------------------------------------------------- */

/* Admits a superpeer, or takes its new address. nid NONE: the ID of the one that has that address,
 * or the lowest that none had yet, or if all were in use the lowest of one that left. ENONODE: the
 * one of that ID has left. ELIMIT: no ID is left. EINVAL: not a usable address or ID. EADDRINUSE: it is new, and
 * a peer that is up has that address. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_put(struct sh_registry *registry,
                                                         struct sh_bytes address, uint64_t instance,
                                                         shoal_nid nid, shoal_nid *nid_out);
/* The same in a view alone. *is_news_out: the view has changed. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_show(struct sh_view *view,
                                                          struct sh_bytes address,
                                                          uint64_t instance, shoal_nid nid,
                                                          shoal_nid *nid_out, bool *is_news_out);
/* Another state of a superpeer; it can't come back when it has left. ENONODE: no superpeer, or it
 * has left. ELIMIT: the last one can't leave. EBUSY: it holds metadata of which it has to make
 * others replicas first, which has begun: again in a moment. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_set(struct sh_registry *registry,
                                                         shoal_nid nid, enum sh_node_state state);
/* The ring's table: the owner and the replicas of each shard. */
const struct sh_arcs *sh_registry_arcs(const struct sh_registry *registry);
/* A superpeer's process has begun, with that life (arcs.h) on its disk; or with random bits only on a
 * new disk, or one in memory, which never keeps anything. It is up then. ENONODE: it is no superpeer, or has left.
 * EDIFFERS: its disk is a copy, or an old backup, or new, and the old one is the last that has a
 * shard. */
SHOAL_NODISCARD enum shoal_err sh_registry_arcs_start(struct sh_registry *registry, shoal_nid nid,
                                                      uint64_t life, bool is_memory);
/* A superpeer's disk is lost for good, as an operator has declared: what it alone had comes from old
 * copies (arcs.h: forget). ENONODE: it is no superpeer, or never took part in the ring. EINVAL: it is
 * up. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_lost(struct sh_registry *registry,
                                                          shoal_nid nid);
/* A cluster is forced to go on with that superpeer alone: the others have left, and it has whatever
 * is left of the shards. The epoch leaps over any that the others may have reached, new nodes get IDs
 * beyond those that the others may have given out, and the events have another log, named after
 * `instance`. ENONODE. */
SHOAL_NODISCARD enum shoal_err sh_registry_force(struct sh_registry *registry, shoal_nid nid,
                                                 uint64_t instance);
void sh_registry_arcs_change(struct sh_registry *registry, const struct sh_arc_change *change);
/* Lifts the epoch above one that a member claims to know, if that can be. */
void sh_registry_epoch_lift(struct sh_registry *registry, uint64_t epoch);
/* Takes over from another registry of the same cluster what is not stored: when nodes were heard. */
void sh_registry_times_take(struct sh_registry *registry, const struct sh_registry *from);
/* A superpeer heard the node; NONE: all nodes get failure_ns anew, or the time for which they may be away. */
void sh_registry_heard(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid);
/* The first node from `from` on that is up and was silent for failure_ns, or is away for longer than it said; or NONE. */
shoal_nid sh_registry_overdue(const struct sh_registry *registry, uint64_t now_ns, shoal_nid from);

/* --- Events ----------------------------------------------------------------------------------- */

/* What became of a node, by which the view got that epoch. */
struct sh_registry_event {
    uint64_t epoch;
    bool is_forgotten; /* the node is in the view no more; its end was an event before */
    struct sh_node node;
};

/* Which order of events this is: that of all superpeers, as long as the registry is not begun anew; 1:
 * it has no name yet. */
uint64_t sh_registry_events_log(const struct sh_registry *registry);
/* Names the log of a registry that has no name yet, after some process's instance: each
 * superpeer by the same command. */
void sh_registry_events_name(struct sh_registry *registry, uint64_t instance);
/* How many events there are after an epoch, and the number of the first; SIZE_MAX: some of them are
 * not known here. The last 256 are kept. */
size_t sh_registry_events_after(const struct sh_registry *registry, uint64_t epoch,
                                uint64_t *first_out);
/* The nodes that have changed since the view of an epoch, by ascending ID, with those that are in the
 * view no more: writes at most SH_CHANGES_MAX, each once, and returns how many. SIZE_MAX: that is not
 * known here. */
size_t sh_registry_changed_since(const struct sh_registry *registry, uint64_t epoch,
                                 shoal_nid *nids_out);
/* sh_view_digest of the view; computed once for each. */
uint64_t sh_registry_digest(struct sh_registry *registry);
/* Valid until the next change. */
const struct sh_registry_event *sh_registry_event(const struct sh_registry *registry,
                                                  uint64_t number);

/* --- Storing -------------------------------------------------------------------------------- */

/* How often something changed that must be stored. */
uint64_t sh_registry_changes(const struct sh_registry *registry);

/* The image of a registry file, little-endian:
 *   0   u64  magic "SHOALREG"
 *   8   u16  format (9; 8 and 7 are read, too, in which failed peers returned: a u64 that counted that is
 *       passed over; in 7 nodes have no traits)
 *   10  u16  0
 *   12  u16  number of superpeers
 *   14  u16  next ID to give out
 *   16  u64  sequence: of two images the one with the higher is the newer
 *   24  u64  version
 *   32  u32  bytes behind this head
 *   36  u32  CRC32C of head and body, with this field zero
 *   40  text name of the cluster; u16 count; nodes as in a view; the ring's table as in arcs.h; two sets
 *       of IDs, each a u16 count of runs and u16 first, u16 last of each: those whose last bearer was
 *       forgotten, and those that several nodes have borne; u64 the log of its events, u64 the cluster's
 *       ID */
size_t sh_registry_image_size(const struct sh_registry *registry);
void sh_registry_image_put(struct sh_writer *w, const struct sh_registry *registry,
                           uint64_t sequence);
/* The sequence of an image. ECORRUPT; EVERSION (a newer format). */
SHOAL_NODISCARD enum shoal_err sh_registry_image_check(struct sh_bytes image,
                                                       uint64_t *sequence_out);
/* Loads a checked image into a fresh registry; its up nodes get failure_ns to be heard. ECLUSTER,
 * ECORRUPT, ENOMEM: the registry is of no use then. */
SHOAL_NODISCARD enum shoal_err sh_registry_image_load(struct sh_registry *registry, uint64_t now_ns,
                                                      struct sh_bytes image);

#endif
