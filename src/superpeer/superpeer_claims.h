/* What a superpeer would do at this moment, for checkers that look at clusters from outside. Called by
 * the thread of the transport step. */
#ifndef SH_SUPERPEER_SUPERPEER_CLAIMS_H
#define SH_SUPERPEER_SUPERPEER_CLAIMS_H

#include "superpeer/superpeer.h"

/* Whether the superpeer is a leader that may declare peers failed, and in which term. Several may be, as
 * a leader that was replaced may not know it yet; only the leader of the latest term gets commands
 * carried out. */
bool sh_superpeer_leads(const struct sh_superpeer *superpeer, uint64_t *term_out);

/* Whether a leader would declare the peer failed because the peer was silent for too long: then no lease
 * of the peer may hold any more. */
bool sh_superpeer_would_fail(const struct sh_superpeer *superpeer, shoal_nid nid);

/* Whether the superpeer answers for a shard of the ring (0 to SH_SHARDS - 1): no two superpeers may at
 * once. */
bool sh_superpeer_answers_for(struct sh_superpeer *superpeer, unsigned shard);

#endif
