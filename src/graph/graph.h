/* Graphs: a peer's part of the one graph that a cluster holds. DXRAM thesis §1.3.2; docs/graph.md.
 *
 * A vertex is a chunk (graph/vertex.h) on the peer that a hash of its name chooses among the peers
 * that took part in the load. Each of them keeps, beside its chunks, the sorted names of its
 * vertices: 8 bytes a vertex, counted in the status.
 *
 *   coordinator (load.h, bfs.h)          peer A                      peer B
 *     BEGIN, EDGES, RECORDS, TYPES  -->  staged edges and records    staged ...
 *     ADVANCE seal                  -->  sort, create chunks         sort, create chunks
 *     ADVANCE link                  -->  RESOLVE names <-----------> chunk IDs; fill chunks
 *     ADVANCE prepare               -->  nobody drops it alone       ...
 *     END                           -->  the graph is live
 *     BFS_BEGIN, LEVEL, LEVEL, ...  -->  expand <----- VISIT ------> mark
 *
 * Handlers only copy messages into a bounded inbox; one step owns all the state and does a bounded
 * amount of work at a time. A load or traversal that its coordinator abandons is dropped after a
 * time-out. A failed load leaves nothing behind; a failed replacement leaves the old graph. If the
 * coordinator falls silent before its last END came through, the peers agree on the end.
 *
 * It leaves to others: who is a peer, reading chunks from outside, and durability: vertices are logged as all chunks are, but nobody
 * waits for that, and what makes them a graph is in memory only.
 */
#ifndef SH_GRAPH_GRAPH_H
#define SH_GRAPH_GRAPH_H

#include <stdint.h>

#include "backup/backup.h"
#include "base/crew.h"
#include "env/env.h"
#include "msg/msg.h"
#include "shoal/err.h"
#include "store/store.h"

struct sh_graph;

#define SH_GRAPH_PEERS_MAX 1024
#define SH_GRAPH_RUNS_MAX 4 /* traversals at once on a peer; one more gets EBUSY */

struct sh_graph_config {
    struct sh_msg *msg;           /* kept; its node ID must be set before the first load */
    struct sh_store *store;       /* kept */
    struct sh_backup *backup;     /* of the store; kept */
    const struct sh_clock *clock; /* kept */
    uint64_t staging_bytes_max;   /* memory for a load under way; 0: no limit but the system's */
    uint64_t load_timeout_ns;     /* a load without a word for this long is dropped; 0: 60 s */
    uint64_t bfs_timeout_ns;      /* the same for a traversal; 0: 30 s */
    /* Wakes the crew thread that runs the step. From handlers; never NULL. */
    void (*wake)(void *arg);
    /* Whether the peer takes chunks now; NULL: always. Any thread. */
    bool (*may_load)(void *arg);
    void *arg;
};

/* Makes a peer's part, empty, and registers the handlers of message types SH_MSG_TYPE(3, *) with
 * msg: before msg's steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_graph_create(const struct sh_graph_config *config,
                                               struct sh_graph **graph_out);

/* Frees it; chunks stay in the store. After sh_msg_destroy, or when nothing was ever sent; the
 * step must not run any more. NULL is allowed. */
void sh_graph_destroy(struct sh_graph *graph);

/* The step, for one crew thread (any). Valid as long as the graph. */
struct sh_step sh_graph_step(struct sh_graph *graph);

/* Whether no chunk of the store belongs to a graph: none is loaded, being loaded or removed. The
 * step's thread. */
bool sh_graph_is_empty(const struct sh_graph *graph);

#endif
