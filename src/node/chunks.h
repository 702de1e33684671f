/* Serving a peer's chunks: the handlers of the requests in proto/chunks.h. */
#ifndef SH_NODE_CHUNKS_H
#define SH_NODE_CHUNKS_H

#include "backup/backup.h"
#include "backup/completion.h"
#include "msg/msg.h"
#include "proto/chunks.h"
#include "store/store.h"

struct sh_chunks;

struct sh_chunks_config {
    struct sh_msg *msg;       /* kept, like the next two */
    struct sh_store *store;   /* the chunks that are served */
    struct sh_backup *backup; /* of the store */
    uint32_t chunk_bytes_max; /* the store's, as errors name it */
    enum sh_level level;      /* of requests that name none (node/held.h) */
    uint32_t helds_max;       /* answers that wait at once; 0: as node/held.h has it */
    struct sh_clock clock;    /* in use only where something is backed up */
};

/* Registers the handlers (all but STOP, LOG_LEVELS and PROMOTE) with msg, before its steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_chunks_create(const struct sh_chunks_config *config,
                                                struct sh_chunks **chunks_out);
/* Removes a chunk for a write, as sh_backup_remove. */
typedef enum shoal_err (*sh_chunks_remover)(void *arg, struct sh_write *write, shoal_cid cid,
                                            sh_lid lid);
/* Names what removes chunks instead, with the same results, from whichever thread runs the request. Before
 * msg's steps run. */
void sh_chunks_remover_set(struct sh_chunks *chunks, sh_chunks_remover remove, void *arg);
/* What the node serves, for who moves chunks, and the results that it keeps. */
struct sh_helds;
struct sh_holdings;
struct sh_once;
struct sh_holdings *sh_chunks_holdings(struct sh_chunks *chunks);
const struct sh_once *sh_chunks_once(const struct sh_chunks *chunks);
/* A request of this node's life before has done that (backup/completion.h): who repeats it is answered so. Before msg's steps run. */
void sh_chunks_completed(void *chunks, const struct sh_completion *completion);
struct sh_once *sh_chunks_results(struct sh_chunks *chunks); /* the transport step's */
/* For whoever else answers about chunks. */
struct sh_helds *sh_chunks_helds(struct sh_chunks *chunks);
/* Refuses to create chunks, with ENOTOWNER, so that clients ask another node: while it is drained.
 * Any thread. */
void sh_chunks_creates_refuse(struct sh_chunks *chunks, bool refuses);
bool sh_chunks_creates_refused(const struct sh_chunks *chunks);
#define SH_CHUNKS_DRAINED_TEXT "this node is being drained: it takes no chunks until that is undone"
/* After msg is destroyed or its steps have stopped. NULL is allowed. */
void sh_chunks_destroy(struct sh_chunks *chunks);

#endif
