/* The registry of one superpeer, a state machine without input or output: who is a member, with
 * which ID, and in which state. superpeer.h feeds it.
 *
 * Every function that concerns time is given the time, on one clock. Whatever changes the view
 * raises its epoch: the sum of the arcs' versions, of which this superpeer raises its own and
 * learns the others'. Whatever must be stored raises `changes`.
 *
 * A node is `up`, `left` (for good, its chunks are gone) or `failed` (silent for failure_ns, or
 * found dead); a failed one that is heard again is up again, for nothing was recovered elsewhere.
 *
 * A superpeer without a disk has lost its memory after a restart. It learns so from members that
 * know a higher epoch; then, until failure_ns after its start, it is settling: its view may lack
 * members that have not come back yet, so nobody should act on it.
 *
 * A *shared* registry is one that several superpeers hold alike: each applies the same joins,
 * leaves, failures and returns in the same order (superpeer_commands.c, by Raft), and all IDs are
 * one arc. Then nothing but those may change it: what a superpeer hears and how late it is stays
 * its own, and it is the leader who asks for what is overdue. Such a registry begins without any
 * superpeer: they come and go like nodes.
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
    const char *cluster;          /* copied; 1 to 63 bytes */
    const char *const *addresses; /* the superpeers', count of them; copied */
    uint16_t count;               /* 1 to SH_SUPERPEERS_MAX */
    uint16_t index;
    uint64_t instance; /* this superpeer's, not 0 */
    uint64_t failure_ns;
    bool is_volatile; /* not stored anywhere: IDs are given out from a random place */
    uint64_t seed;    /* for that place */
    bool is_shared;   /* one of several alike; the four above do not matter */
};

/* ENOMEM; EADDRESS (an address is empty or too long). */
SHOAL_NODISCARD enum shoal_err sh_registry_create(const struct sh_registry_config *config,
                                                  uint64_t now_ns,
                                                  struct sh_registry **registry_out);
void sh_registry_destroy(struct sh_registry *registry);

/* Admits a node, or welcomes one back that has the ID `previous` (NONE: a new one). The same
 * instance always gets the same ID, so a repeated request is harmless. EADDRINUSE: another node is
 * up at that address; a node is never failed because another one uses its address. EEXIST: another
 * instance has the ID, or has taken the place at the address since this one failed. EROLE: the ID
 * is of another arc. ELIMIT: no ID is left. EINVAL: not a usable address or instance. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_registry_join(struct sh_registry *registry, uint64_t now_ns,
                                                struct sh_bytes address, uint64_t instance,
                                                shoal_nid previous, shoal_nid *nid_out);
/* The node of another instance that is up at an address; NULL: there is none. Valid until the next
 * change. */
const struct sh_node *sh_registry_holder(const struct sh_registry *registry,
                                         struct sh_bytes address, uint64_t instance);
/* A node was heard, which knows the view of that epoch. *failed_out: it had been declared failed
 * and does not know it yet. ENONODE (or it left); EEXIST. */
SHOAL_NODISCARD enum shoal_err sh_registry_heartbeat(struct sh_registry *registry, uint64_t now_ns,
                                                     shoal_nid nid, uint64_t instance,
                                                     uint64_t epoch, bool *failed_out);
/* A node leaves, with its chunks. ENONODE, EEXIST. */
SHOAL_NODISCARD enum shoal_err sh_registry_leave(struct sh_registry *registry, shoal_nid nid,
                                                 uint64_t instance);
/* Declares a node of this arc failed if it is up. */
void sh_registry_fail(struct sh_registry *registry, shoal_nid nid, const char *reason);

/* Somebody knows the view of that epoch; see above. */
void sh_registry_epoch_known(struct sh_registry *registry, uint64_t now_ns, uint64_t epoch);

/* Somebody remembers this superpeer from before its start. */
void sh_registry_restarted(struct sh_registry *registry);

/* A node took part in a migration, or what it created did: its ID is not given out again when it
 * has left, since the ring knows it. Of another arc: of no effect, and is_moved is true. */
void sh_registry_moved_set(struct sh_registry *registry, shoal_nid nid);
bool sh_registry_is_moved(const struct sh_registry *registry, shoal_nid nid);

/* Lets time pass: declares silent nodes and superpeers failed. To be called at least every quarter
 * of failure_ns: if it was not for half of it, the process was stopped, and that time counts for
 * nobody. Returns how many were declared failed. */
unsigned sh_registry_tick(struct sh_registry *registry, uint64_t now_ns);
/* When tick should be called next; SH_NEVER: nothing is due. */
uint64_t sh_registry_due_ns(const struct sh_registry *registry);

/* When a node of this arc was heard last, or is taken to have been. */
uint64_t sh_registry_heard_ns(const struct sh_registry *registry, shoal_nid nid);

/* A node has sent something to this superpeer itself: tells its life from what others report and
 * what is applied late. A heartbeat notes it by itself. 0: it has not. */
void sh_registry_spoke(struct sh_registry *registry, uint64_t at_ns, shoal_nid nid);
uint64_t sh_registry_spoke_ns(const struct sh_registry *registry, shoal_nid nid);

/* The view, by ascending ID. Valid until the next change. */
const struct sh_view *sh_registry_view(const struct sh_registry *registry);
bool sh_registry_settling(const struct sh_registry *registry);
/* Whether all other superpeers that are up have said who is on their arcs. */
bool sh_registry_siblings_heard(const struct sh_registry *registry);
/* True for an up node of this arc: whose lost connection is of interest. */
bool sh_registry_watches(const struct sh_registry *registry, shoal_nid nid);

struct sh_report; /* report.h */
/* Writes what the registry has into a report: its arc and its memory. */
void sh_registry_report(const struct sh_registry *registry, struct sh_report *report);

/* --- Shared registries ------------------------------------------------------------------------ */

/* A failed node is up again: it was heard. */
void sh_registry_back(struct sh_registry *registry, shoal_nid nid, uint64_t instance);
/* Admits a superpeer, or takes its new address. nid NONE: the ID of the one that has that address,
 * or the lowest that none had yet, or if all were in use the lowest of one that left. ENONODE: the
 * one of that ID has left. ELIMIT: no ID is left. EINVAL: not a usable address or ID. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_put(struct sh_registry *registry,
                                                         struct sh_bytes address, uint64_t instance,
                                                         shoal_nid nid, shoal_nid *nid_out);
/* Another state of a superpeer; it can't come back when it has left. ENONODE: no superpeer, or it
 * has left. ELIMIT: the last one can't leave. EBUSY: it holds metadata of which it has to make
 * others replicas first, which has begun: again in a moment. */
SHOAL_NODISCARD enum shoal_err sh_registry_superpeer_set(struct sh_registry *registry,
                                                         shoal_nid nid, enum sh_node_state state);
/* Who keeps what of the ring's metadata: all zero where superpeers do not keep it so. */
const struct sh_arcs *sh_registry_arcs(const struct sh_registry *registry);
/* A superpeer's process has begun, with that life (arcs.h) on its disk; or with random bits only on a
 * new disk, or one in memory, which never keeps anything. ENONODE: it is no superpeer, or has left.
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
 * is left of the shards. The epoch leaps over any that the others may have reached, and the events
 * have another log, named after `instance`. ENONODE. */
SHOAL_NODISCARD enum shoal_err sh_registry_force(struct sh_registry *registry, shoal_nid nid,
                                                 uint64_t instance);
void sh_registry_arcs_change(struct sh_registry *registry, const struct sh_arc_change *change);
/* Lifts the epoch above one that a member claims to know, if that can be. */
void sh_registry_epoch_lift(struct sh_registry *registry, uint64_t epoch);
/* Takes over from another one of the same cluster what is not stored: who was heard when. */
void sh_registry_times_take(struct sh_registry *registry, const struct sh_registry *from);
/* Somebody heard a node, or (NONE) all are to be given failure_ns anew. */
void sh_registry_heard(struct sh_registry *registry, uint64_t now_ns, shoal_nid nid);
/* The first up node from `from` on that was silent for failure_ns, or NONE. */
shoal_nid sh_registry_overdue(const struct sh_registry *registry, uint64_t now_ns, shoal_nid from);

/* --- Events ----------------------------------------------------------------------------------- */

/* What became of a node, by which the view got that epoch. */
struct sh_registry_event {
    uint64_t epoch;
    struct sh_node node;
};

/* Which order of events this is: an even number is that of all superpeers that share a registry, as
 * long as it is not begun anew, an odd one a superpeer's own; 1: of a shared one that has no name
 * yet. */
uint64_t sh_registry_events_log(const struct sh_registry *registry);
/* Names the log of a shared registry that has no name yet, after some process's instance: each
 * superpeer by the same command. */
void sh_registry_events_name(struct sh_registry *registry, uint64_t instance);
/* How many events there are after an epoch, and the number of the first; SIZE_MAX: some of them are
 * not known here. The last 256 are kept. */
size_t sh_registry_events_after(const struct sh_registry *registry, uint64_t epoch,
                                uint64_t *first_out);
/* The nodes that have changed since the view of an epoch, by ascending ID: writes at most
 * SH_CHANGES_MAX, each once, and returns how many. SIZE_MAX: that is not known here, or they can't
 * be told as changes. */
size_t sh_registry_changed_since(const struct sh_registry *registry, uint64_t epoch,
                                 shoal_nid *nids_out);
/* sh_view_digest of the view; computed once for each. */
uint64_t sh_registry_digest(struct sh_registry *registry);
/* Valid until the next change. */
const struct sh_registry_event *sh_registry_event(const struct sh_registry *registry,
                                                  uint64_t number);

/* --- Between superpeers -------------------------------------------------------------------- */

/* The version of an arc, as known here; this one's own is exact. */
uint64_t sh_registry_version(const struct sh_registry *registry, uint16_t index);
/* Another superpeer was heard; it holds that version of our arc. If that is higher than ours, we
 * have lost our memory, and step over it. */
void sh_registry_superpeer_heard(struct sh_registry *registry, uint64_t now_ns, uint16_t index,
                                 uint64_t holds_version);
/* This arc's table: u16 count and nodes. */
size_t sh_registry_table_size(const struct sh_registry *registry);
void sh_registry_table_put(struct sh_writer *w, const struct sh_registry *registry);
/* Takes another arc's table of that version. EPROTO, ENOMEM: nothing is changed. */
SHOAL_NODISCARD enum shoal_err sh_registry_table_get(struct sh_registry *registry, uint16_t index,
                                                     uint64_t version, struct sh_reader *r);

/* --- Storing -------------------------------------------------------------------------------- */

/* How often something changed that must be stored. */
uint64_t sh_registry_changes(const struct sh_registry *registry);

/* The image of a registry file, little-endian:
 *   0   u64  magic "SHOALREG"
 *   8   u16  format (5)
 *   10  u16  index
 *   12  u16  number of superpeers
 *   14  u16  next ID to give out
 *   16  u64  sequence: of two images the one with the higher is the newer
 *   24  u64  version of the arc
 *   32  u32  bytes behind this head
 *   36  u32  CRC32C of head and body, with this field zero
 *   40  text name of the cluster; u16 count; nodes as in a view; of a shared one the ring's table
 *       as in arcs.h, u16 count and u16 each of the IDs that are not given out again, u64 the log
 *       of its events */
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
