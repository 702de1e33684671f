/* What the files of locks share. */
#ifndef SH_NODE_LOCKS_INT_H
#define SH_NODE_LOCKS_INT_H

#include "base/stripes.h"
#include "node/locks.h"
#include "store/leases.h"

#define SH_LOCKS_ALIASES (SH_MSG_ALIAS_MAX - SH_MSG_ALIAS_MIN + 1)

/* A request that waits for its lock: 16 bytes. The lease's cookie is its place in the table. */
struct waiting {
    struct sh_reply_to reply_to;
    uint32_t next_free;
};

struct sh_locks {
    struct sh_locks_config config;
    struct sh_leases *leases;
    struct sh_stripes stripes;
    struct sh_view view; /* as it was last; its instances tell a node from its successor */
    struct waiting *waiting;
    uint32_t waiting_max;
    uint32_t waiting_used; /* places from here on were never used, and so cost no memory */
    uint32_t free_first;   /* place that was used and is free, or NONE */
    /* The numbers that clients go by everywhere, by alias; 0: it has said none. 64 KiB. */
    uint64_t *clients;
    bool has_strays; /* some locks came with chunks, and their owners have not been here */
};

static inline bool sh_locks_is_alias(shoal_nid nid)
{
    return nid.v >= SH_MSG_ALIAS_MIN && nid.v <= SH_MSG_ALIAS_MAX;
}

/* locks_move.c: a client has asked about a chunk: if its lock came here with the chunk, it is the
 * owner's from now on. */
void sh_locks_stray_claim(struct sh_locks *locks, shoal_cid cid, struct sh_lease_owner owner,
                          uint64_t client);

#endif
