/* The messages of graphs: types SH_MSG_TYPE(3, operation), all of them requests. Little-endian;
 * "texts" are sh_put_text. docs/graph.md tells the protocol. */
#ifndef SH_GRAPH_WIRE_INT_H
#define SH_GRAPH_WIRE_INT_H

#include "base/hash.h"
#include "msg/msg.h"

enum sh_graph_op {
    /* answer: u8 state bits, u64 graph, u64 generation, u32 runs, u64 vertices, edges, payload, chunk,
     * index and staging bytes, of the peer; u64 vertices and edges of the graph, u64 chunks looked at by the scan under way, u32 peers,
     * u16 each */
    SH_GRAPH_STATUS = 1,
    /* u64 load, u64 generation, u8 flags (typed, replace), u32 rank of the receiver, u32 peers, u16 each */
    SH_GRAPH_BEGIN,
    SH_GRAPH_EDGES, /* u64 load, then 16 (18 typed) bytes each: u64 source, u64 target, u16 type */
    SH_GRAPH_RECORDS, /* u64 load, then each: u64 name, u32 bytes, text */
    SH_GRAPH_TYPES,   /* u64 load, then texts: relations in order of their numbers */
    /* u64 load, u8 goal, of PREPARE also u64 vertices and edges of the graph; answer, when it is reached or after a while: u8 reached, u32 steps done,
     * u32 steps in all, u64 vertices, edges, parallel edges, records, chunk bytes */
    SH_GRAPH_ADVANCE,
    SH_GRAPH_END,     /* u64 load: the graph is live. May be repeated */
    SH_GRAPH_ABORT,   /* u64 load; answer when nothing of it is left */
    SH_GRAPH_RESOLVE, /* u64 load, then u64 names; answer: u64 chunk IDs, 0 for an unknown name */
    SH_GRAPH_LOOKUP, /* u64 graph, u64 generation, u64 name; answer: u8 enum sh_graph_found, u64 chunk ID */
    SH_GRAPH_DROP,      /* u64 graph (0: whichever); answer when the chunks are gone */
    SH_GRAPH_TYPES_GET, /* u32 from; answer: u32 count in all, then texts from that number on */
    /* u64 run, u64 graph, u64 generation, u64 root, u8 undirected; answer: u8 enum sh_graph_found of the root, u64
     * vertices, u32 extents */
    SH_GRAPH_BFS_BEGIN,
    /* u64 run, u64 level; answer when the level is done here or after a while: u8 enum sh_graph_level, u64
     * vertices found for the next level, u64 edges */
    SH_GRAPH_BFS_LEVEL,
    SH_GRAPH_BFS_VISIT, /* u64 run, u64 level, then u64 chunk IDs; answer: u32 found */
    SH_GRAPH_BFS_END,   /* u64 run, u8 whether another attempt follows at once */
    SH_GRAPH_OUTCOME,   /* u64 load, from a peer; answer: u8 how it stands here, see outcome.c */
    /* u64 run, u32 from; answer: up to SH_GRAPH_BATCH_EXTENTS from that number on, u64 first and u64 last chunk ID each */
    SH_GRAPH_BFS_EXTENTS,
    /* u64 run, u8 last, u32 rank of the receiver, u32 peers that take part, u16 each, then up to SH_GRAPH_BATCH_EXTENTS routes by
     * ascending IDs: u64 first, u64 last, u32 rank each */
    SH_GRAPH_BFS_ROUTES,
    SH_GRAPH_OPS
};

#define SH_GRAPH_TYPE(op) SH_MSG_TYPE(3, op)

#define SH_GRAPH_IS_LIVE 1u
#define SH_GRAPH_IS_LOADING 2u
#define SH_GRAPH_IS_TYPED 4u
#define SH_GRAPH_IS_SCANNING 8u /* it is not known yet which vertices are here */

#define SH_GRAPH_FLAG_TYPED 1u
#define SH_GRAPH_FLAG_REPLACE 2u

/* PREPARE: only END or the other peers can tell how the load ends. */
enum sh_graph_goal { SH_GRAPH_GOAL_SEAL = 1, SH_GRAPH_GOAL_LINK, SH_GRAPH_GOAL_PREPARE };

enum sh_graph_outcome {
    SH_GRAPH_OUTCOME_GONE = 1, /* dropped, or never heard of */
    SH_GRAPH_OUTCOME_PREPARED,
    SH_GRAPH_OUTCOME_LIVE
};

/* Whether a peer has a vertex. */
enum sh_graph_found {
    SH_GRAPH_FOUND_NOT = 0,
    SH_GRAPH_FOUND_HERE,
    SH_GRAPH_FOUND_LATER, /* not known: it has vertices coming or going, ask again */
};

enum sh_graph_level {
    SH_GRAPH_LEVEL_UNDER_WAY = 0,
    SH_GRAPH_LEVEL_DONE,
    SH_GRAPH_LEVEL_DISTURBED, /* vertices came or left: begin again */
};

#define SH_GRAPH_BATCH_BYTES (32u * 1024) /* payload of a full batch, about */
#define SH_GRAPH_BATCH_IDS 4096u          /* in a full batch of VISIT */
#define SH_GRAPH_BATCH_EXTENTS 2048u      /* in an answer to EXTENTS, or a message ROUTES */
#define SH_GRAPH_BATCH_NAMES 1024u        /* of RESOLVE: each is searched for, which takes longer */

/* A peer answers BFS_LEVEL and ADVANCE after at most this long, finished or not, so that no request
 * needs a long time-out and the coordinator is known to be there. */
#define SH_GRAPH_LEVEL_WAIT_NS UINT64_C(500000000)
#define SH_GRAPH_ADVANCE_WAIT_NS UINT64_C(100000000)

/* Which of the peers, in the order that the load fixed, stores a vertex. */
static inline uint32_t sh_graph_place(uint64_t name, uint32_t peer_count)
{
    return (uint32_t)(sh_mix64(name) % peer_count);
}

#endif
