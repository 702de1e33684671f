/* Work on a node's whole store that takes long: dumping it to a file, loading one, analysing it.
 * One job at a time, done in a step beside everything else; who asked for it polls.
 *
 * Files are DATA_DIR/NAME.dump; a name is 1 to SH_DUMP_LABEL_MAX letters, digits, '.', '-' and '_',
 * and does not begin with '.'. So nobody who may talk to the node reaches any other file.
 *
 * A load creates chunks under the IDs that they had, and only those that this node created: the
 * cluster looks for a chunk at its creator. A file with another creator's chunk is refused, as is
 * one with an ID that is in use; nothing has changed then. With `rename` all may be of one other
 * creator, and this node takes its place in their IDs. The chunk of names (node/names.h) is the
 * exception: its names are added to the cluster's.
 *
 * The messages are in proto/dumps.h. */
#ifndef SH_NODE_DUMPS_H
#define SH_NODE_DUMPS_H

#include "base/crew.h"
#include "env/env.h"
#include "msg/msg.h"
#include "node/chunks.h"
#include "proto/dumps.h"
#include "store/analyze.h"
#include "store/dump.h"

struct sh_dumps;

struct sh_dumps_config {
    struct sh_msg *msg;       /* kept */
    struct sh_store *store;   /* kept */
    struct sh_backup *backup; /* of the store; kept */
    struct sh_chunks *chunks; /* kept */
    struct sh_disk *disk;     /* kept; NULL: there is no data_dir */
    struct sh_clock clock;
    /* A load is over, and all of its chunks are there, but for one that failed; NULL: nobody wants to know. */
    void (*loaded)(void *arg);
    void *arg;
};

/* Registers the handlers with msg, before its steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_dumps_create(const struct sh_dumps_config *config,
                                               struct sh_dumps **dumps_out);
/* Whether a load is under way. The transport step's thread. */
bool sh_dumps_is_loading(const struct sh_dumps *dumps);
/* For the thread of the transport step, to which the disk belongs. */
struct sh_step sh_dumps_step(struct sh_dumps *dumps);
/* After the steps have stopped and before the disk is gone. A dump under way leaves nothing. NULL
 * is allowed. */
void sh_dumps_destroy(struct sh_dumps *dumps);

#endif
