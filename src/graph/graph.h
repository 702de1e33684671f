/* Graphs: a peer's part of the one graph that a cluster holds. DXRAM thesis §1.3.2; docs/graph.md.
 *
 * A vertex is a chunk (graph/vertex.h), made by a load on the peer that a hash of its name chooses. What a peer
 * keeps beside its chunks is derived from them: which of those that it serves are vertices. When chunks come to a peer
 * (a migration, a start from the peer's own log, a recovery) they are looked through, and what are vertices is its part from
 * then on; when they leave, they leave its part. Which graph there is, a chunk on each peer says that took part in the load
 * (graph/manifest_int.h), and which goes where the others go.
 *
 *   coordinator (load.h, bfs.h)          peer A                      peer B
 *     BEGIN, EDGES, RECORDS, TYPES  -->  staged edges and records    staged ...
 *     ADVANCE seal                  -->  sort, create chunks         sort, create chunks
 *     ADVANCE link                  -->  RESOLVE names <-----------> chunk IDs; fill chunks
 *     ADVANCE prepare               -->  nobody drops it alone       ...
 *     END                           -->  the graph is live: writes its manifest
 *     BFS_BEGIN, EXTENTS            <--  which vertices are here
 *     ROUTES, LEVEL, LEVEL, ...     -->  expand <----- VISIT ------> mark
 *
 * Handlers only copy messages into a bounded inbox; one step owns all the state and does a bounded
 * amount of work at a time. A load or traversal that its coordinator abandons is dropped after a
 * time-out. A failed load leaves nothing behind; a failed replacement leaves the old graph. If the
 * coordinator falls silent before its last END came through, the peers agree on the end.
 *
 * A traversal goes by what was where when it began. If a vertex comes or leaves meanwhile, all of it begins again; so chunks
 * that are to leave wait for traversals under way (sh_graph_holds), and these now and then for chunks.
 *
 * It leaves to others: who is a peer, reading chunks from outside, and which chunks are here.
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
    /* Whether a chunk is served here, and up to which one behind it the same is so. NULL: all in the store are. The step's thread. */
    bool (*serves)(void *arg, shoal_cid cid, shoal_cid *last_out);
    /* Whether it is not known yet which of the chunks in the store are this peer's. NULL: it is. The step's thread. */
    bool (*finds_out)(void *arg);
    enum sh_level level; /* at which the graph is written before a load is over */
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

/* --- Chunks that come and leave. The step's thread ---------------------------------------------- */

/* The chunks from first to last, of one creator, are served here from now on, as far as the store has them. They are looked through in
 * steps; until that is done, traversals and look-ups wait. Said again of chunks that were here, it changes nothing. */
void sh_graph_chunks_came(struct sh_graph *graph, shoal_cid first, shoal_cid last);
/* The same of chunks out of a dump: they may be of a graph that was removed here, whose chunks that come late are removed, too. */
void sh_graph_chunks_loaded(struct sh_graph *graph, shoal_cid first, shoal_cid last);
/* They are not served here any more, or about to go; their chunks may still be in the store. */
void sh_graph_chunks_left(struct sh_graph *graph, shoal_cid first, shoal_cid last);

/* Whether chunks may leave: none is being loaded into a graph, or being removed with one. Chunks that stand still are not removed before
 * they are served again, or have left. */
bool sh_graph_may_move(const struct sh_graph *graph);
/* Whether chunks that are to leave have to wait a little, as traversals would have to begin again. Whoever moves chunks asks before each
 * batch; asked in vain, traversals wait for 200 ms after those that are under way. */
bool sh_graph_holds(struct sh_graph *graph);

#endif
