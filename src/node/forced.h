/* A cluster whose majority of superpeers is lost for good is forced to go on from the folder of one
 * that is left (superpeer/superpeer_force.c).
 *
 * Threads: any, no node runs on the folder. */
#ifndef SH_NODE_FORCED_H
#define SH_NODE_FORCED_H

#include "shoal/err.h"
#include "shoal/types.h"

/* Makes the superpeer in data_dir the only one of its cluster, which is named so; nid_out: its ID.
 * Waits for the disk. EBUSY: a node runs on that folder. ENONAME: the folder is not there, or holds no
 * superpeer. Else as sh_superpeer_force. detail, 256 bytes, says more. */
SHOAL_NODISCARD enum shoal_err sh_node_force(const char *data_dir, const char *cluster,
                                             shoal_nid *nid_out, char *detail);

#endif
