/* Serving a peer's chunks: the handlers of the requests in proto/chunks.h. */
#ifndef SH_NODE_CHUNKS_H
#define SH_NODE_CHUNKS_H

#include "msg/msg.h"
#include "proto/chunks.h"
#include "store/store.h"

struct sh_chunks;

/* Registers the handlers (all but STOP, LOG_LEVELS and PROMOTE) with msg, before its steps run.
 * Both are kept; the store's limit is named in errors. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_chunks_create(struct sh_msg *msg, struct sh_store *store,
                                                uint32_t chunk_bytes_max,
                                                struct sh_chunks **chunks_out);
/* Names what removes chunks instead of sh_store_remove, with the same results, from whichever
 * thread runs the request. Before msg's steps run. */
void sh_chunks_remover_set(struct sh_chunks *chunks,
                           enum shoal_err (*remove)(void *arg, shoal_cid cid, sh_lid lid),
                           void *arg);
/* What the node serves, for who moves chunks, and the results that it keeps. */
struct sh_holdings;
struct sh_once;
struct sh_holdings *sh_chunks_holdings(struct sh_chunks *chunks);
const struct sh_once *sh_chunks_once(const struct sh_chunks *chunks);
/* Refuses to create chunks, with ENOTOWNER, so that clients ask another node: while it is drained.
 * Any thread. */
void sh_chunks_creates_refuse(struct sh_chunks *chunks, bool refuses);
bool sh_chunks_creates_refused(const struct sh_chunks *chunks);
#define SH_CHUNKS_DRAINED_TEXT "this node is being drained: it takes no chunks until that is undone"
/* After msg is destroyed or its steps have stopped. NULL is allowed. */
void sh_chunks_destroy(struct sh_chunks *chunks);

#endif
