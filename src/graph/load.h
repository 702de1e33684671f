/* Coordinating graphs from an application thread: load, look up, status, drop. docs/graph.md.
 *
 * All functions block and belong to application threads (msg/call.h), never to steps. peers are
 * the node IDs of all peers of the cluster, 1 to SH_GRAPH_PEERS_MAX, borrowed. Whatever goes wrong
 * is said for people in problem_out (may be NULL), which is written on failure only. */
#ifndef SH_GRAPH_LOAD_H
#define SH_GRAPH_LOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "graph/edges.h"
#include "graph/graph.h"
#include "msg/call.h"
#include "shoal/err.h"
#include "shoal/types.h"

struct sh_graph_problem {
    char detail[256];            /* one sentence; "" if there is no more to say than the error */
    shoal_nid peer;              /* whose answer, or silence, that is; NONE: no one peer's */
    uint64_t vertices;           /* of the graph that are served, of EFAILED and EBUSY; or 0 */
    struct sh_wrong_lines wrong; /* of a load that ended with EPARSE */
};

struct sh_graph_load_options {
    const char *edges_path;    /* graph/edges.h; never NULL */
    const char *vertices_path; /* vertex records; may be NULL */
    bool typed;                /* the third column of the edges names the relation */
    bool replace;              /* put the new graph in the place of the loaded one, once complete */
    /* Called now and then from the calling thread: bytes of the files read so far, or, in the
     * phases "sort" and "link", items done. May be NULL. */
    void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
    void *arg;
};

struct sh_graph_load_report {
    uint64_t vertices;
    uint64_t edges;         /* stored: one for each line of the edge list */
    uint64_t lines;         /* of the edge list, without those that hold no edge */
    uint64_t parallel;      /* edges that repeat another's (source, target, relation) */
    uint64_t records;       /* vertex records */
    uint64_t types;         /* distinct relations */
    uint64_t chunk_bytes;   /* sum of the chunks' sizes */
    double seconds;         /* in all; */
    double seconds_reading; /* until everything was read and staged */
};

/* Loads a graph onto the peers. EEXIST: one is loaded and replace is not set. EBUSY: another load
 * is under way. EPARSE: wrong lines, listed in problem_out. EIO, ETRUNCATED, ECORRUPT: a file.
 * EFULL: out of chunk memory or of memory for staging. ETOOBIG: a vertex would be larger than a
 * chunk may be. ELIMIT: more relations than SH_TYPES_MAX. And those of sh_call. After any failure
 * the peers hold what they held before; unless one is lost while a replacement goes live, which
 * leaves none. */
SHOAL_NODISCARD enum shoal_err sh_graph_load(const struct sh_caller *caller, const shoal_nid *peers,
                                             size_t peer_count,
                                             const struct sh_graph_load_options *options,
                                             struct sh_graph_load_report *report_out,
                                             struct sh_graph_problem *problem_out);

/* Where a vertex is: read its chunk and decode it with graph/vertex.h. ENONAME: there is no such
 * vertex, or no graph (detail says which). Where vertices are on their way, or peers look through their chunks, it waits: EBUSY after a minute of that;
 * EFAILED: not all vertices are served, and it is none of those that are. */
SHOAL_NODISCARD enum shoal_err sh_graph_vertex(const struct sh_caller *caller,
                                               const shoal_nid *peers, size_t peer_count,
                                               uint64_t name, shoal_cid *cid_out,
                                               shoal_nid *owner_out,
                                               struct sh_graph_problem *problem_out);

/* The names of the loaded graph's relations, numbered from 0 as in the chunks; empty for a graph
 * without. Free with sh_types_destroy. ENONAME: no graph. */
SHOAL_NODISCARD enum shoal_err sh_graph_types(const struct sh_caller *caller,
                                              const shoal_nid *peers, size_t peer_count,
                                              struct sh_types **types_out,
                                              struct sh_graph_problem *problem_out);

/* What one peer, or all together, hold. Bytes. */
struct sh_graph_status {
    bool
        loaded; /* of a peer: it knows a live graph; in all: all of the graph's vertices are served */
    bool loading; /* a load is under way */
    bool
        scanning; /* it is not known yet which vertices are here: chunks have come, or a peer was started again */
    bool typed;
    uint64_t graph_id;                /* given out anew by each load */
    uint64_t generation;              /* of two graphs the one with the higher one is live */
    uint64_t all_vertices, all_edges; /* that the graph has; 0 of a peer that has no manifest */
    uint64_t scanned;                 /* chunks that were looked at, while scanning */
    uint32_t peers;                   /* that the graph was loaded onto */
    uint32_t runs;                    /* traversals under way */
    uint64_t vertices;
    uint64_t edges;
    uint64_t payload_bytes; /* as the user means it: 8 for a name, 8 for an edge (10 with a
                               relation), and the records */
    uint64_t chunk_bytes;   /* sum of the chunks' sizes */
    uint64_t index_bytes;   /* what a peer keeps of it beside the store */
    uint64_t staging_bytes; /* of a load under way */
};

/* Asks every peer. each (may be NULL) receives peer_count entries in the order of peers. OK also without graph. */
SHOAL_NODISCARD enum shoal_err sh_graph_status_get(const struct sh_caller *caller,
                                                   const shoal_nid *peers, size_t peer_count,
                                                   struct sh_graph_status *each,
                                                   struct sh_graph_status *all_out,
                                                   struct sh_graph_problem *problem_out);

/* Removes the graph and its chunks from all peers; returns when they are gone. ENONAME: none of
 * them has a graph. EBUSY: a load is under way. Traversals under way end with ENONAME. */
SHOAL_NODISCARD enum shoal_err sh_graph_drop(const struct sh_caller *caller, const shoal_nid *peers,
                                             size_t peer_count,
                                             struct sh_graph_problem *problem_out);

#endif
