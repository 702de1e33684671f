/* The inside of a node, shared by node.c and promoted.c. */
#ifndef SH_NODE_NODE_INT_H
#define SH_NODE_NODE_INT_H

#include "node/node.h"

/* Like sh_node_create, for a node inside another one's process, whose ID stays on the log's lines.
 */
SHOAL_NODISCARD enum shoal_err sh_node_create_inner(const struct sh_options *options,
                                                    struct sh_node_run **node_out, char *detail);

#endif
