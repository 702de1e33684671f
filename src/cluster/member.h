/* A peer's side of membership: joins, sends heartbeats, takes views, leaves.
 *
 *            answer               ENONODE
 *   [joining] -----> [joined] --------------> [joining, with its ID]
 *     ^   |            |   \ leave              (the superpeer has lost its memory)
 *     '---'            |    '--> [leaving] --> [left]
 *   no answer:         | EFENCED, EEXIST, ESETTING, ECLUSTER
 *   back off, next     '--> [refused]
 *   address, for ever
 *
 * A view that has other traits of this node than it was given has it join again, with its ID, too.
 *
 * A superpeer that can't be reached changes nothing here at first: heartbeats go on until it is
 * back. But each answer only grants a lease, which is handed to msg: when it has run out, and
 * before the first one, messages of leased types are refused (sh_msg_leased_set). The first one waits for
 * the disk to say that this life was admitted.
 *
 * A second superpeer, the next one that is up, gets a one-way PING every failure_ns, which keeps a
 * connection to it open: so the node's end is noticed even if the first superpeer ends with it.
 *
 * Threads: everything but leave and joined is called by the one thread that runs the transport
 * step, which must also run the member's step; create and destroy before the steps run and after.
 */
#ifndef SH_CLUSTER_MEMBER_H
#define SH_CLUSTER_MEMBER_H

#include "base/crew.h"
#include "cluster/directory.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"

struct sh_member;

struct sh_member_config {
    struct sh_msg *msg;             /* kept; gets its node ID at the first join */
    struct sh_directory *directory; /* kept; takes the views */
    struct sh_env env;              /* clock, random */
    const char *const *superpeers;  /* addresses, count of them (1 to 63); copied */
    size_t superpeer_count;
    const char *address; /* where others reach this node; copied */
    struct sh_traits traits;
    uint64_t instance; /* not 0: random, or a life (ring/arcs.h) */
    /* What its disk says of an earlier life: its ID, and the cluster's. NONE, 0: nothing. */
    shoal_nid nid;
    uint64_t cluster;
    uint64_t heartbeat_ns;
    uint64_t failure_ns;
    /* All may be NULL. From the transport step or the member's, no lock held; may call anything but
     * destroy. */
    void (*on_joined)(void *arg, shoal_nid nid); /* also after each rejoin */
    void (*on_view)(void *arg, const struct sh_view *view);
    /* EFENCED: the node was declared failed (it was silent for too long), or its life has left before: it owns
     * nothing any more, and is to be started again with another instance.
     * EEXIST: another node has its ID, it can't be a member any more and should stop. ESETTING: its
     * heartbeat_ns or failure_ns is not the cluster's, and it should stop. EDIFFERS, ECLUSTER: its disk
     * is a copy or an old backup, or of another cluster, and it should stop. */
    void (*on_failed)(void *arg, enum shoal_err err);
    /* Whether the disk says that the registry has admitted this life: asked from the member's step until
     * it does, and no lease counts before. NULL: there is no disk. May not call the member. */
    bool (*is_confirmed)(void *arg);
    void *arg;
};

/* Registers the handler of PING; the step begins to join. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_member_create(const struct sh_member_config *config,
                                                struct sh_member **member_out);
/* A leave that has not ended is called back with ESTOPPED. NULL is allowed. No step may be running;
 * before msg and the directory are destroyed. */
void sh_member_destroy(struct sh_member *member);

/* Adds the address of the superpeer beside a promoted peer to those that the peer joins at. Once, before the step
 * runs. */
void sh_member_superpeer_add(struct sh_member *member, const char *address);

struct sh_step sh_member_step(struct sh_member *member);

/* Takes an event of msg's on_event: a lost superpeer is asked again at once. */
void sh_member_link_event(struct sh_member *member, const struct sh_msg_event *event);

/* Has the next heartbeat sent at once, whose answer brings the view as it is now: somebody knows a newer one than this node. A node that is no member, or whose superpeer
 * does not answer, goes on as it does. */
void sh_member_hurry(struct sh_member *member);

/* Leaves in order, for good or, with back_ms over 0, to be back within so long (SH_BACK_MS_MAX at most): the superpeer is told, and done is called from the step with OK, or with the
 * last error when nobody could be told for failure_ns. A node that has not joined leaves at once.
 * Call it once. Any thread; wake the thread that runs the step after it. */
void sh_member_leave(struct sh_member *member, uint32_t back_ms,
                     void (*done)(void *arg, enum shoal_err err), void *arg);

/* The cluster's ID, for the next life, once the node has joined; 0: there is none that lasts. */
uint64_t sh_member_cluster(const struct sh_member *member);

/* True while the node is a member. Any thread. */
bool sh_member_joined(const struct sh_member *member);

#endif
