/* A superpeer: the registry of its arc's nodes, their failure detection, and lookup.
 *
 * The peers' IDs are divided into equal arcs, one for each superpeer. A superpeer gives out the IDs
 * of its arc, takes those nodes' heartbeats, declares them failed and holds their chunk ranges;
 * it tells the other superpeers its table, so that each knows the whole view. The decisions are in
 * registry.h, a state machine without input or output; here it is fed with messages, connection
 * events, the clock and the disk.
 *
 * Whatever is answered to a join or a leave is on disk first, if there is a disk (two files,
 * registry.0 and registry.1, written in turn).
 *
 * Threads: everything here is called by the one thread that runs the transport step, which must
 * also run the superpeer's step; create and destroy before the steps run and after.
 */
#ifndef SH_CLUSTER_SUPERPEER_H
#define SH_CLUSTER_SUPERPEER_H

#include "base/crew.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"

struct sh_superpeer;

struct sh_superpeer_config {
    struct sh_msg *msg; /* kept; its node ID is index + 1 */
    struct sh_env env;  /* clock, random; disk: NULL (memory only), or one without O_DIRECT, kept */
    const char *cluster; /* borrowed; its name, 1 to 63 bytes */
    /* The superpeers' addresses, count of them (1 to 63), borrowed; a lone one gives its own. */
    const char *const *addresses;
    uint16_t count;
    uint16_t index;    /* this one's place in the list, from 0 */
    uint64_t instance; /* random, not 0 */
    uint64_t heartbeat_ns;
    uint64_t failure_ns;
    /* Called after each change of the view, which is valid during the call. May be NULL. */
    void (*on_view)(void *arg, const struct sh_view *view);
    void *arg;
};

/* Loads the registry (waits for the disk) and registers the handlers of proto.h but PING. ECORRUPT
 * (both copies are bad), ECLUSTER (the files are of another cluster, or of another place in the
 * list), EVERSION (of a newer shoal), EIO, ENOSPC, EADDRESS, ENOMEM. Each is logged. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_create(const struct sh_superpeer_config *config,
                                                   struct sh_superpeer **superpeer_out);
/* Waits for a write in flight. NULL is allowed. No step may be running; before msg is destroyed. */
void sh_superpeer_destroy(struct sh_superpeer *superpeer);

struct sh_step sh_superpeer_step(struct sh_superpeer *superpeer);

/* Takes an event of msg's on_event. */
void sh_superpeer_link_event(struct sh_superpeer *superpeer, const struct sh_msg_event *event);

/* The view as it is; valid until the next step or event. */
const struct sh_view *sh_superpeer_view(const struct sh_superpeer *superpeer);

#endif
