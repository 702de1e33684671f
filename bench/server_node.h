/* Nodes of a benchmark's server process. */
#ifndef SH_BENCH_SERVER_NODE_H
#define SH_BENCH_SERVER_NODE_H

#include <stddef.h>

#include "node/node.h"

/* An option's name and its value; NULL: as it is by default. */
struct sh_server_setting {
    const char *name;
    const char *value;
};

/* Makes and starts a node, and waits until it serves. It and its options are never freed, since the
 * process is killed when the run ends. Logs what was wrong. */
SHOAL_NODISCARD enum shoal_err sh_server_node_run(const struct sh_server_setting *settings,
                                                  size_t count, struct sh_node_run **node_out);
/* The port of a node's address. */
uint16_t sh_server_port(const struct sh_node_run *node);
/* Reports the port of a node's address, and waits to be killed. */
void sh_server_serve(const struct sh_node_run *node, int report_fd);

#endif
