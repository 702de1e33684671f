/* Counts of the zones whose owners have failed, by the state of their recovery: for `shoal recovery` and `shoal status`. */
#ifndef SH_CMD_RECOVERY_INT_H
#define SH_CMD_RECOVERY_INT_H

#include <stdio.h>

#include "base/json.h"
#include "cluster/recoveries.h"
#include "shoal/shoal.h"

struct sh_recovery_sum {
    enum shoal_err err;                     /* why the superpeers have not said it, or not all */
    uint64_t counts[SH_RECOVERY_OLDER + 1]; /* of zones, by enum sh_recovery_state */
    uint64_t read,
        bytes; /* of replicas of zones that are being restored, as far as that is known */
    uint64_t
        without_room; /* of these, zones for which there was no room when they were tried last, */
    uint64_t missing_bytes;                  /* and how much more they need */
    uint64_t awaited[(UINT16_MAX + 1) / 64]; /* nodes that zones wait for: a bit for each */
};

/* Asks the superpeers: 64 questions where there are few zones. */
void sh_recovery_sum_get(shoal *store, struct sh_recovery_sum *sum_out);
/* Zones that are neither with an owner nor lost. */
uint64_t sh_recovery_sum_under_way(const struct sh_recovery_sum *sum);
struct sh_json *sh_recovery_sum_json(const struct sh_recovery_sum *sum);
/* Sentences for people, with what to do; nothing where all zones are with their owners as they were. */
void sh_recovery_sum_print(FILE *out, const struct sh_recovery_sum *sum);

/* Of one zone: the node whose zone it was, NONE if that is not told; whether it is known which of its creator's own chunks may be in it, and there are
 * any; and all that is told, as an object. */
shoal_nid sh_recovery_former(const struct sh_recovery *recovery);
bool sh_recovery_has_bounds(const struct sh_zone *zone);
struct sh_json *sh_recovery_zone_json(const struct sh_recovery *recovery);

/* recovery_accept.c: `shoal recovery --accept-loss`. An exit status. */
struct sh_cmd;
int sh_recovery_accept(struct sh_cmd *cmd);

#endif
