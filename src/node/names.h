/* A peer's copies of names (cluster/keeper.h) in its chunk with the local ID 0, so that they are
 * with its chunks: in dumps, and wherever chunks go.
 *
 * The chunk is written anew within some 200 ms after a change, all of it in one step, which takes
 * half a millisecond a MB; the larger it is, the longer the pause until the next time, so that it
 * takes less than a hundredth of a thread. There is none while there are no names. Memory: the
 * names' bytes once more than the keeper has them. A store too full for it, or a chunk_bytes_max
 * that is too small, is logged, and tried again.
 *
 * Others may read the chunk, and not change it (node/holdings.h).
 *
 * Threads: that of the transport step. */
#ifndef SH_NODE_NAMES_H
#define SH_NODE_NAMES_H

#include "base/crew.h"
#include "cluster/keeper.h"
#include "env/env.h"
#include "msg/msg.h"
#include "store/store.h"

struct sh_names;

struct sh_names_config {
    struct sh_msg *msg;       /* kept; whose node ID the chunk has */
    struct sh_store *store;   /* kept */
    struct sh_keeper *keeper; /* kept */
    struct sh_clock clock;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_names_create(const struct sh_names_config *config,
                                               struct sh_names **names_out);
void sh_names_destroy(struct sh_names *names); /* NULL is allowed */
struct sh_step sh_names_step(struct sh_names *names);

/* Writes the chunk now, if it is not as it should be: before a dump. What sh_store_* says; ENOMEM,
 * ETOOBIG: the store has no room for it. */
SHOAL_NODISCARD enum shoal_err sh_names_write(struct sh_names *names);
/* A load begins: the chunk makes way for that of the file. */
void sh_names_load_begin(struct sh_names *names);
/* It is over, well or not: the names of the chunk, if one was loaded, are the cluster's to take. */
void sh_names_load_end(struct sh_names *names, enum shoal_err err);

#endif
