/* Breadth-first traversal by all peers together, coordinated from an application thread.
 *
 * Level by level: every peer expands the vertices of the level that it stores, reading adjacency
 * in place; neighbours on other peers go there in batches of chunk IDs; one round trip of the
 * coordinator closes a level. docs/graph.md. */
#ifndef SH_GRAPH_BFS_H
#define SH_GRAPH_BFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/load.h"

struct sh_graph_bfs_result {
    uint64_t root;
    bool undirected;
    uint64_t reached; /* vertices, the root included */
    uint64_t depth;   /* number of the last level; the root is at level 0 */
    uint64_t *levels; /* depth + 1 counts; owned by the result */
    /* Sum over the reached vertices of their distinct out neighbours (undirected: of their distinct
     * neighbours in either direction, other than themselves). Parallel edges of different
     * relations count once. */
    uint64_t edges_traversed;
    double seconds; /* from the first level's start to the last one's end */
};

/* Traverses from the vertex named root, along the edges' direction or regardless of it. peers as in
 * load.h; all take part that have vertices. Where vertices move meanwhile it begins again, and where peers look through their chunks it
 * waits: EBUSY after a minute of that. EFAILED: not all vertices of the graph are served. ENONAME: no such vertex or no graph.
 * EBUSY: too many traversals. ENOCHUNK, ECORRUPT: a vertex's chunk was removed or overwritten by
 * somebody. And those of sh_call. On success the caller frees with sh_graph_bfs_result_free. */
SHOAL_NODISCARD enum shoal_err sh_graph_bfs(const struct sh_caller *caller, const shoal_nid *peers,
                                            size_t peer_count, uint64_t root, bool undirected,
                                            struct sh_graph_bfs_result *result_out,
                                            struct sh_graph_problem *problem_out);

void sh_graph_bfs_result_free(struct sh_graph_bfs_result *result);

#endif
