/* Which node IDs are whose: 0 is nobody's, 1 to SH_SUPERPEERS_MAX are superpeers', then come
 * peers'. Above them messaging gives connections of clients an ID of their own (msg/msg.h:
 * aliases). */
#ifndef SH_BASE_NODE_IDS_H
#define SH_BASE_NODE_IDS_H

#include <stdbool.h>

#include "shoal/types.h"

#define SH_SUPERPEERS_MAX 63
#define SH_PEER_NID_MIN 64
#define SH_PEER_NID_MAX 0xDFFF
#define SH_PEER_NIDS (SH_PEER_NID_MAX - SH_PEER_NID_MIN + 1)

static inline bool sh_nid_is_peer(shoal_nid nid)
{
    return nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX;
}

#endif
