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

/* A vertex's name: decimal, 64 bits. */
bool sh_vertex_name_parse(const char *text, uint64_t *name_out);

#endif
