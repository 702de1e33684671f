/* What a node wants to know that is started again: whether zones of its former lives, or that these were bringing back, are still to be brought back, by others or by itself
 * (docs/recovery.md). As long as any are, chunks that are noted as the node's may be of these lives, and somebody's soon.
 *
 * Threads: that of msg's transport step. */
#ifndef SH_RECOVER_FORMER_H
#define SH_RECOVER_FORMER_H

#include "cluster/zones.h"
#include "env/env.h"

struct sh_former_zones {
    struct sh_zones *zones;
    struct sh_clock clock;
    shoal_nid nid; /* NONE: it is not known yet */
    uint64_t life;
    void (*wake)(void *arg);
    void *arg;
    /* The module's. */
    struct sh_zone_list list;
    bool is_asking;
    bool is_any, is_any_lost; /* of the list that is being read: to be brought back; lost */
    bool is_over;             /* by a list: none is to be brought back any more */
    bool is_lost;             /* by the last list: some are lost */
    uint64_t due_ns;
};

/* Asks the superpeers, as long as there are any that are to be brought back; and once in a while as long as there are some that are lost. */
void sh_former_zones_step(struct sh_former_zones *former, uint64_t now_ns);
uint64_t sh_former_zones_due_ns(const struct sh_former_zones *former);
/* There are none any more. */
static inline bool sh_former_zones_are_over(const struct sh_former_zones *former)
{
    return former->is_over;
}
/* They are over, and some are lost, which no operator has accepted yet. */
static inline bool sh_former_zones_are_lost(const struct sh_former_zones *former)
{
    return former->is_over && former->is_lost;
}

#endif
