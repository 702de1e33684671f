/* What the graph commands share. */
#ifndef SH_CMD_GRAPH_INT_H
#define SH_CMD_GRAPH_INT_H

#include "cmd/command_int.h"
#include "graph/load.h"

/* Whom to ask about the graph. */
struct sh_graph_peers {
    struct sh_caller caller;
    shoal_nid *nids; /* allocated */
    size_t count;
};

/* Opens the cluster and finds its peers. An exit status. */
int sh_graph_open(struct sh_cmd *cmd, struct sh_graph_peers *peers_out);

/* A question to the peers, as sh_graph_vertex asks one: has no effect, so that it can be asked again. peers is borrowed. */
typedef enum shoal_err (*sh_graph_question)(const struct sh_graph_peers *peers, void *arg,
                                            struct sh_graph_problem *problem_out);

/* Asks the question; again, with the peers that are up then, for as long as a peer does not answer, or vertices are missing, and chunks of that peer, or of
 * one that has failed, come back (sh_client_awaits_peer). No longer than 20 s without a vertex that came. peers has those that were asked
 * last. */
SHOAL_NODISCARD enum shoal_err sh_graph_persist(struct sh_cmd *cmd, struct sh_graph_peers *peers,
                                                sh_graph_question question, void *arg,
                                                struct sh_graph_problem *problem_out);

/* A vertex's name: decimal, 64 bits. */
bool sh_vertex_name_parse(const char *text, uint64_t *name_out);

#endif
