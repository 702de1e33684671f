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
/* Reads an answer to TAKE, behind its first two bytes: what came of it, or EPROTO. */
SHOAL_NODISCARD enum shoal_err sh_take_answer_get(struct sh_reader *r);
/* Reads an answer to ORDER, behind its first two bytes. MORE: op->after is where the next question goes on. WAIT: op->after
 * is the zone that goes first. EPROTO: it is none, and nothing has changed. */
SHOAL_NODISCARD enum shoal_err sh_order_answer_get(struct sh_order_op *op, struct sh_reader *r,
                                                   enum sh_order *result_out);
/* Takes an answer to TREE from that chunk ID on, behind its first two bytes, range by range, to op->each. EPROTO: it is none,
 * and nothing has been told. */
SHOAL_NODISCARD enum shoal_err sh_tree_answer_get(struct sh_tree_op *op, shoal_cid from,
                                                  struct sh_reader *r, bool *is_more_out);

#endif
