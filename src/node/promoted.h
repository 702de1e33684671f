/* The superpeer that a peer was promoted to: a second node in the peer's process, with a port, an
 * ID and a thread of its own, and with the peer's data_dir. It ends when it is dismissed, or with
 * the peer's process; and comes again with the peer where data_dir holds its registry. It runs on while the
 * peer's next life begins in the same process (sh_node_renew).
 *
 * Threads: create and destroy by the node's owner; the rest by the transport step, or before it
 * runs. */
#ifndef SH_NODE_PROMOTED_H
#define SH_NODE_PROMOTED_H

#include "base/options.h"
#include "msg/msg.h"
#include "shoal/err.h"

struct sh_promoted;

struct sh_node_run;
struct sh_node_world;

/* Keeps the peer's options, and its world (NULL: the real one). ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_promoted_create(const struct sh_options *options,
                                                  const struct sh_node_world *world,
                                                  struct sh_promoted **promoted_out);
/* Stops it if it runs, and waits for it. NULL is allowed. */
void sh_promoted_destroy(struct sh_promoted *promoted);

/* Whether data_dir holds a superpeer's journal. An error says that this can't be told: ECORRUPT,
 * EVERSION, EIO. */
SHOAL_NODISCARD enum shoal_err sh_promoted_stored(const struct sh_promoted *promoted,
                                                  bool *is_stored_out);

/* Starts it: addresses (count of them, copied) are superpeers to ask. Does not wait until it
 * serves. address_out: what it advertises, SH_MSG_ADDRESS_MAX bytes. EEXIST: it runs. EINVAL: no
 * data_dir, or no address. Or as sh_node_create. detail, 256 bytes, says more. */
SHOAL_NODISCARD enum shoal_err sh_promoted_start(struct sh_promoted *promoted,
                                                 const char *const *addresses, size_t count,
                                                 char *address_out, char *detail);

/* What it advertises, SH_MSG_ADDRESS_MAX bytes, if it runs. False: it does not. */
bool sh_promoted_runs(struct sh_promoted *promoted, char *address_out);

/* NULL: it does not run, or is about to end. For a simulator, where no other thread ends it. */
struct sh_node_run *sh_promoted_node(struct sh_promoted *promoted);

#endif
