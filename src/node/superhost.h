/* A node's superpeer part: one of a new cluster, one that was stored, or a recruit, which becomes a
 * superpeer only when the others have taken it.
 *
 * What it is, is decided at its creation: what data_dir holds; else, with registry zookeeper,
 * whatever superpeer the registry has at its address; else its place in the option superpeers, or the
 * only one if that is empty; else, if it is not in that list, a recruit.
 *
 * Threads: as superpeer.h's. */
#ifndef SH_NODE_SUPERHOST_H
#define SH_NODE_SUPERHOST_H

#include "base/crew.h"
#include "base/options.h"
#include "env/env.h"
#include "msg/msg.h"
#include "superpeer/superpeer.h"

struct sh_superhost;

struct sh_superhost_config {
    const struct sh_options *options; /* kept */
    struct sh_msg *msg;               /* kept; gets its node ID from here */
    struct sh_env env;                /* kept; disk: on data_dir, or NULL */
    const char *address;              /* borrowed: the one that others are told */
    bool
        is_promoted; /* none of the first superpeers, though one of them may have had its address */
    /* Called in the step, by one that had no ID at its creation: it serves. */
    void (*on_serves)(void *arg);
    /* Called in the step, once: it is to stop. OK: it was dismissed; else it could not serve. */
    void (*on_over)(void *arg, enum shoal_err err);
    void (*on_view)(void *arg, const struct sh_view *view); /* as superpeer.h's; may be NULL */
    void *arg;
};

/* EINVAL (superpeers makes no sense), or as sh_superpeer_create and sh_superpeer_stored. detail,
 * 256 bytes, says more. */
SHOAL_NODISCARD enum shoal_err sh_superhost_create(const struct sh_superhost_config *config,
                                                   struct sh_superhost **host_out, char *detail);
/* NULL is allowed. Before msg is destroyed, after the steps have stopped. */
void sh_superhost_destroy(struct sh_superhost *host);

struct sh_step sh_superhost_step(struct sh_superhost *host);
void sh_superhost_link_event(struct sh_superhost *host, const struct sh_msg_event *event);

/* Whether it is a superpeer already, before the steps run. */
bool sh_superhost_serves(const struct sh_superhost *host);

/* NULL: it is none yet. */
struct sh_superpeer *sh_superhost_superpeer(const struct sh_superhost *host);

#endif
