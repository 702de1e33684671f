/* The decoders of answers about zones, for zones.c and its fuzzer. */
#ifndef SH_CLUSTER_ZONES_INT_H
#define SH_CLUSTER_ZONES_INT_H

#include "cluster/zones.h"

/* Reads an answer to ZONE or ZONE_GET about that zone, behind its first two bytes: what came of it. EPROTO:
 * also if it is none; *answer is of no use then. */
SHOAL_NODISCARD enum shoal_err sh_zone_answer_get(struct sh_reader *r, uint64_t id,
                                                  struct sh_zone_answer *answer);
/* Takes an answer to ZONES, behind its first two bytes, zone by zone, to list->each; list->after is where the next
 * page goes on. EPROTO: it is none; zones before the fault have been told. */
SHOAL_NODISCARD enum shoal_err sh_zone_page_get(struct sh_zone_list *list, struct sh_reader *r,
                                                bool *is_more_out);

#endif
