/* A superpeer that is new to a cluster: asks the superpeers that there are to be one of them.
 *
 * It is told its ID and the view, and can then be created (superpeer.h), with the view as
 * `recruited`. One that stores nothing but whose address the cluster knows gets the ID that it had.
 *
 * Threads: everything here is called by the one thread that runs the transport step, which must
 * also run the recruit's step; create and destroy before the steps run and after, or in the step.
 */
#ifndef SH_CLUSTER_RECRUIT_H
#define SH_CLUSTER_RECRUIT_H

#include "base/crew.h"
#include "cluster/view.h"
#include "env/env.h"
#include "msg/msg.h"

struct sh_recruit;

struct sh_recruit_config {
    struct sh_msg *msg;           /* kept; without a node ID yet */
    struct sh_env env;            /* clock, random; disk: the superpeer's, NULL if in memory */
    const char *const *addresses; /* borrowed: of superpeers, count of them (1 to 63) */
    size_t count;
    const char *address; /* borrowed; this one's */
    uint64_t instance;   /* random, not 0 */
    uint64_t failure_ns;
    /* Called in the step, once: the ID, and the view, which is valid during the call. */
    void (*on_done)(void *arg, shoal_nid nid, const struct sh_view *view);
    void *arg;
};

/* ENOMEM, EADDRESS. */
SHOAL_NODISCARD enum shoal_err sh_recruit_create(const struct sh_recruit_config *config,
                                                 struct sh_recruit **recruit_out);
/* NULL is allowed. */
void sh_recruit_destroy(struct sh_recruit *recruit);

struct sh_step sh_recruit_step(struct sh_recruit *recruit);

#endif
