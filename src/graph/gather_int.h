/* Requests of a coordinator: several at once, waited for one after the other. Application threads
 * only. */
#ifndef SH_GRAPH_GATHER_INT_H
#define SH_GRAPH_GATHER_INT_H

#include "graph/load.h"
#include "graph/wire_int.h"
#include "msg/call.h"

#define SH_GATHER_TIMEOUT_NS UINT64_C(60000000000)
/* For answers that come after everything has been removed. */
#define SH_GATHER_REMOVAL_TIMEOUT_NS UINT64_C(600000000000)

/* A request and its answer. Zero-initialize; may be used again after a wait; free at the end. */
struct sh_gather {
    struct sh_request request;
    struct sh_waiter waiter;
    bool pending;
    shoal_nid to;
    enum shoal_err err;
    uint8_t *answer; /* the last answer; kept until the next begin */
    size_t size;
    char detail[SH_CALL_DETAIL_BYTES];
};

/* Begins a request; the caller writes payload_bytes and calls sh_msg_end. On an error, which is
 * also in gather->err, there is nothing to write or wait for. */
SHOAL_NODISCARD enum shoal_err sh_gather_begin(const struct sh_caller *caller,
                                               struct sh_gather *gather, shoal_nid to,
                                               enum sh_graph_op op, size_t payload_bytes,
                                               uint64_t timeout_ns, struct sh_out *out);
/* Waits, if it is pending; returns its error. */
enum shoal_err sh_gather_wait(const struct sh_caller *caller, struct sh_gather *gather);
void sh_gather_free(struct sh_gather *gather);
/* The answer, for reading. */
struct sh_reader sh_gather_reader(const struct sh_gather *gather);

/* The same for count nodes with the same payload: sends to all, then waits for all. Returns the
 * first error (by place in the list) and has it said in problem_out. */
SHOAL_NODISCARD enum shoal_err sh_gather_all(const struct sh_caller *caller,
                                             struct sh_gather *gathers, const shoal_nid *nodes,
                                             size_t count, enum sh_graph_op op,
                                             struct sh_bytes payload, uint64_t timeout_ns,
                                             struct sh_graph_problem *problem_out);
struct sh_gather *sh_gather_new(size_t count);
void sh_gather_free_all(struct sh_gather *gathers, size_t count);

/* Says in problem_out (may be NULL) what a node answered, unless it says something already. */
void sh_gather_explain(struct sh_graph_problem *problem_out, const struct sh_gather *gather);
__attribute__((format(printf, 2, 3))) void sh_graph_explain(struct sh_graph_problem *problem_out,
                                                            const char *format, ...);

/* A number that no other load or traversal has, most probably; never 0. */
uint64_t sh_graph_new_id(const struct sh_caller *caller);

/* The loaded graph: of those that the peers have a manifest of, that with the highest generation; and what the peers that answered have of
 * it. Free members. OK also without any graph (graph_id 0), and where peers do not answer. */
struct sh_graph_whereabouts {
    uint64_t graph_id, generation;
    uint64_t generation_max; /* also of graphs that no manifest tells of */
    bool typed;
    uint64_t all_vertices, all_edges; /* of the graph */
    uint64_t vertices;                /* of them, on the peers that answered */
    bool is_scanning;                 /* a peer does not know yet which vertices it has */
    shoal_nid teller;                 /* a peer that has a manifest */
    uint32_t count;                   /* peers that it was loaded onto */
    shoal_nid *members;
    /* A peer that did not answer, and what was said of it; NONE: all did. */
    shoal_nid missing;
    enum shoal_err missing_err;
    char missing_detail[SH_CALL_DETAIL_BYTES];
};
SHOAL_NODISCARD enum shoal_err sh_graph_survey(const struct sh_caller *caller,
                                               const shoal_nid *peers, size_t peer_count,
                                               struct sh_graph_whereabouts *where_out);
/* The same until there is a graph: while peers are looking through their chunks it waits. ENONAME: none is loaded; and what a peer has
 * said that did not answer, if it may have known. */
SHOAL_NODISCARD enum shoal_err sh_graph_locate(const struct sh_caller *caller,
                                               const shoal_nid *peers, size_t peer_count,
                                               struct sh_graph_whereabouts *where_out,
                                               struct sh_graph_problem *problem_out);
/* Says why the graph can't be used though it is loaded: the peer that is missing, or how many vertices are. */
enum shoal_err sh_graph_explain_missing(const struct sh_graph_whereabouts *where,
                                        struct sh_graph_problem *problem_out);

/* Another attempt, when vertices were on their way: waits a little. False: it has taken too long. */
struct sh_graph_patience {
    uint64_t began_ns;              /* 0: it has not begun */
    uint64_t vertices, vertices_ns; /* as many were there, since then */
};
bool sh_graph_again(const struct sh_caller *caller, struct sh_graph_patience *patience,
                    const struct sh_graph_whereabouts *where);

#endif
