/* Answers about names, barriers and scratch as bytes, in the layout of ASK (proto.h) behind its
 * first 16 bits: for superpeers, and for a store in one process. */
#ifndef SH_CLUSTER_METADATA_ANSWERS_H
#define SH_CLUSTER_METADATA_ANSWERS_H

#include "metadata/metadata_barriers.h"

/* Of a page of NAMES or SCRATCHES. */
#define SH_METADATA_PAGE_BYTES 16384

/* Writes a page: what comes after the key `after` (size 0: from the beginning) and begins with
 * prefix. kind: SH_ASK_NAMES or SH_ASK_SCRATCHES. Returns its size. */
size_t sh_metadata_page_put(const struct sh_metadata *metadata, uint8_t kind, unsigned shard,
                            struct sh_bytes prefix, struct sh_bytes after,
                            uint8_t bytes[SH_METADATA_PAGE_BYTES]);

/* Writes all barriers of a shard, as BARRIERS says; returns its size. */
size_t sh_barriers_put(const struct sh_metadata *metadata, unsigned shard,
                       uint8_t bytes[SH_METADATA_PAGE_BYTES]);

/* What a member is told that asks for a round, or anybody for the open one, number 0. EAGAIN: it is
 * open, and *member_out is among those that have signed on; EBROKEN: but the member is not among
 * them. OK: the answer has *round_out, NULL where that was forgotten. */
SHOAL_NODISCARD enum shoal_err sh_barrier_look(struct sh_barrier *barrier, uint64_t round,
                                               uint64_t member,
                                               struct sh_barrier_member **member_out,
                                               const struct sh_barrier_round **round_out);
size_t sh_barrier_answer_size(const struct sh_barrier_round *round);
void sh_barrier_answer_put(struct sh_writer *w, const struct sh_barrier *barrier,
                           const struct sh_barrier_round *round);

#endif
