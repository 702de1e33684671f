/* What a superpeer would do at this moment, for checkers that look at clusters from outside. All by
 * the thread of the transport step. */
#ifndef SH_SUPERPEER_SUPERPEER_CLAIMS_H
#define SH_SUPERPEER_SUPERPEER_CLAIMS_H

#include "superpeer/superpeer.h"

/* Whether it is a leader that may declare peers failed, and in which term: of several, who
 * do not all know that they have been replaced, only that of the latest term gets its way. */
bool sh_superpeer_leads(const struct sh_superpeer *superpeer, uint64_t *term_out);

/* Whether one that leads would declare a peer failed because it has not been heard of for too long:
 * then no lease that the peer was given may hold any more. */
bool sh_superpeer_would_fail(const struct sh_superpeer *superpeer, shoal_nid nid);

/* Whether it answers for a shard of the ring (0 to SH_SHARDS - 1): no two may at once. */
bool sh_superpeer_answers_for(struct sh_superpeer *superpeer, unsigned shard);

#endif
