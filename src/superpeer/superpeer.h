/* A superpeer: the registry of its nodes, their failure detection, and lookup. The decisions are in
 * registry.h, a state machine without input or output; here it is fed with messages, connection
 * events, the clock and the disk.
 *
 * The superpeers share one registry (consensus.h), by Raft (raft.h): each of them gives out IDs, takes
 * heartbeats and answers lookups, for all nodes. Whatever is answered to a join or a leave is on the
 * disks of a majority. Superpeers come (recruit.h) and go (dismissal) while the others run. The
 * registry is in the journal (journal.h), and so is which superpeer this is. Without a disk the
 * journal is in memory: what most superpeers had is lost when they are stopped at once.
 *
 * With the servers of a ZooKeeper the registry is kept there instead, and the journal has the rest: a
 * superpeer whose disk is new gets its ID when it has entered itself there, by its address.
 *
 * Threads: everything here is called by the one thread that runs the transport step, which must
 * also run the superpeer's step; create and destroy before the steps run and after.
 */
#ifndef SH_SUPERPEER_SUPERPEER_H
#define SH_SUPERPEER_SUPERPEER_H

#include "base/crew.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"

#define SH_SUPERPEER_UNKNOWN UINT16_MAX

struct sh_superpeer;

struct sh_superpeer_config {
    struct sh_msg *msg; /* kept; its node ID is index + 1, or NONE and set from here */
    struct sh_env env;  /* clock, random; disk: NULL (memory only), or one without O_DIRECT, kept */
    const char *cluster; /* borrowed; its name, 1 to 63 bytes */
    const char *address; /* borrowed; this one's */
    /* The first superpeers' addresses, count of them (1 to 63), borrowed; a lone one gives its own.
     * For one that was stored or recruited: any addresses of superpeers, if known. */
    const char *const *addresses;
    uint16_t count;
    const char *zookeeper; /* borrowed: its servers; NULL: none */
    /* This one's place in the list, from 0; or as stored; or as recruited. With ZooKeeper it may be
     * SH_SUPERPEER_UNKNOWN: the registry gives it an ID. */
    uint16_t index;
    uint64_t instance; /* random, not 0 */
    /* A recruit's: the view that it was told. NULL: a new cluster's superpeer, or a stored one. */
    const struct sh_view *recruited;
    uint64_t heartbeat_ns;
    uint64_t failure_ns;
    uint64_t forget_ns; /* after which a node that is gone is forgotten; 0: never by itself */
    uint32_t scratch_bytes_max; /* of a shard; 0: SH_SCRATCH_BYTES_MAX (metadata.h) */
    uint32_t peer_nids;         /* for tests, at all superpeers alike: as registry.h's nids */
    /* Called after each change of the view, which is valid during the call. May be NULL. */
    void (*on_view)(void *arg, const struct sh_view *view);
    /* Of one that was UNKNOWN: called in the step, once, when it has its ID; or with an error, as of
     * create, when it can't serve with that. Of any with ZooKeeper: with ECLUSTER, when its disk is of
     * another cluster than the registry there. May be NULL. */
    void (*on_enrolled)(void *arg, enum shoal_err err);
    /* Called in the step, once, when it is no superpeer any more: it has been dismissed, or its
     * place is another's. It is to be destroyed, which removes what was stored. May be NULL. */
    void (*on_dismissed)(void *arg);
    void *arg;
};

/* Which superpeer's registry the disk holds: its index. ENONAME: none. ECORRUPT, EVERSION, EIO,
 * ENOMEM; each is logged. Waits for the disk. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_stored(const struct sh_env *env, uint16_t *index_out);

/* Makes the superpeer that the disk holds the only one of its cluster, which then goes on from what it
 * has, for a cluster whose majority is lost for good (superpeer_force.c). No node may run on the disk.
 * Waits for the disk, up to a minute. cluster: its name. ENONAME: no superpeer, or it never took part
 * in a registry. ENONODE: the registry does not know that it has ever begun. ECLUSTER, ECORRUPT, EVERSION, EIO, ENOSPC, ENOMEM, ETIMEOUT: done again once that is
 * seen to, it does the rest. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_force(const struct sh_env *env, const char *cluster,
                                                  uint16_t *index_out);

/* Loads the registry (waits for the disk) and registers the handlers of proto.h. ECORRUPT,
 * ECLUSTER (what is stored is of another cluster or superpeer), EVERSION (of a newer shoal), EIO,
 * ENOSPC, EADDRESS, ENOMEM. Each is logged. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_create(const struct sh_superpeer_config *config,
                                                   struct sh_superpeer **superpeer_out);
/* Waits for a write in flight. One that was dismissed forgets what it has stored. NULL is allowed.
 * No step may be running; before msg is destroyed. */
void sh_superpeer_destroy(struct sh_superpeer *superpeer);

struct sh_step sh_superpeer_step(struct sh_superpeer *superpeer);

/* Takes an event of msg's on_event. */
void sh_superpeer_link_event(struct sh_superpeer *superpeer, const struct sh_msg_event *event);

/* The view as it is; valid until the next step or event. */
const struct sh_view *sh_superpeer_view(const struct sh_superpeer *superpeer);

/* For who watches a simulated cluster: the incarnation of what is here of a shard (metadata.h),
 * once its names are known; 0: nothing yet. Another one than before means that names may be
 * missing, barriers and scratch are. */
uint64_t sh_superpeer_incarnation(const struct sh_superpeer *superpeer, unsigned shard);
/* Likewise: questions about names and barriers that wait for their answers here, and barriers of all
 * shards of which this one has a copy. */
struct sh_superpeer_kept {
    size_t askers, barriers;
};
struct sh_superpeer_kept sh_superpeer_kept(const struct sh_superpeer *superpeer);

#endif
