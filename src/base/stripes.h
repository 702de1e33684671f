/* Locks that keep the removal of a chunk apart from locking it for an application: both look at the
 * chunk and at its leases, and nobody may come between the two looks. Each chunk has one of a few,
 * by its ID. Held for a lookup in both, or a removal from both; nothing is sent or called back. */
#ifndef SH_BASE_STRIPES_H
#define SH_BASE_STRIPES_H

#include "base/lock.h"
#include "shoal/types.h"

#define SH_STRIPES 16

struct sh_stripes {
    struct sh_lock locks[SH_STRIPES];
};

static inline void sh_stripes_init(struct sh_stripes *stripes)
{
    for (unsigned i = 0; i < SH_STRIPES; i++)
        sh_lock_init(&stripes->locks[i], SH_LOCK_NODE_STRIPES);
}

static inline void sh_stripes_destroy(struct sh_stripes *stripes)
{
    for (unsigned i = 0; i < SH_STRIPES; i++)
        sh_lock_destroy(&stripes->locks[i]);
}

static inline struct sh_lock *sh_stripe_of(struct sh_stripes *stripes, shoal_cid cid)
{
    return &stripes->locks[cid.v % SH_STRIPES];
}

#endif
