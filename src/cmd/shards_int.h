/* What people are told of the ring's shards: which wait for a superpeer's disk, and which were
 * restored after a loss. */
#ifndef SH_CMD_SHARDS_INT_H
#define SH_CMD_SHARDS_INT_H

#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "cluster/report.h"

#define SH_SET_TEXT_MAX 256 /* 64 numbers of three characters */

/* A set of superpeers, or of shards, as "1 2 3", or "-". Returns text. */
const char *sh_set_format(uint64_t set, char text[SH_SET_TEXT_MAX]);
struct sh_json *sh_set_json(uint64_t set);

/* A line for each superpeer whose disk shards wait for, with what to do; none: nothing. */
void sh_shards_waiting_print(FILE *out, const struct sh_report *report);
/* A list of objects: superpeer, shards. */
struct sh_json *sh_shards_waiting_json(const struct sh_report *report);
/* What this superpeer is waiting for in its search for old copies. */
void sh_shards_searched_print(FILE *out, const struct sh_report *report);
/* Lines for the shards whose last replica was lost: what they go on from, and what may be missing. */
void sh_shards_restored_print(FILE *out, const struct sh_report *report);
/* Adds the same of one shard to its object. */
void sh_shard_origin_json(struct sh_json *row, const struct sh_report *report, unsigned shard);

#endif
