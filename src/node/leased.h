/* Which requests a node runs under a lease only. */
#ifndef SH_NODE_LEASED_H
#define SH_NODE_LEASED_H

#include "msg/msg.h"

/* Everything that is about chunks is leased (sh_msg_leased_set); what is about the process is not.
 * Whoever puts a node together calls it once, before the steps run; types whose handlers come later
 * are among them. */
void sh_node_leased_types_set(struct sh_msg *msg);

#endif
