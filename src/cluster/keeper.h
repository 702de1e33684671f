/* A peer's copies of names, for the day when all superpeers have forgotten theirs: of each shard
 * (arcs.h) the last list that a superpeer has sent, as it was sent. It is not read here.
 *
 *   KEEP   shard, number, first piece ... last piece   takes the place of an earlier list
 *   KEPT   the numbers of all shards, or a piece of one's list
 *
 * Of a shard that other peers have by now a list is forgotten (KEEP with SH_KEEP_TAKEN).
 *
 * All lists are also the bytes of a chunk (namechunk.h), which the node writes into its store and
 * its dumps. What a chunk from a dump says is a list of its own, the *loaded* one of each shard,
 * until the shard's owner has fetched it and says so (KEEP with SH_KEEP_TAKEN). Its number has the
 * highest bit set, which those of other lists never have.
 *
 * A list is *earlier* if it is of the same history (incarnation) of the shard and its number is
 * not higher, or if the new list's history began with all that it may say: its number is at most
 * the new list's base. Any other one stays, and the sender is told its number: it is what a
 * superpeer that has forgotten the names did not find, as this peer was away.
 *
 * Memory: what superpeers send, at most SH_KEEPER_BYTES_MAX of a shard, and that once more while a
 * list comes, and for a loaded one.
 * Threads: the one that runs the transport step. */
#ifndef SH_CLUSTER_KEEPER_H
#define SH_CLUSTER_KEEPER_H

#include "msg/msg.h"

#define SH_KEEPER_BYTES_MAX (96u << 20) /* 262,144 names, as long as they may be */
#define SH_KEEPER_PIECE_BYTES 16384
#define SH_KEEP_FIRST 1u
#define SH_KEEP_LAST 2u
#define SH_KEEP_TAKEN 4u
#define SH_KEEP_LOADED_BIT (UINT64_C(1) << 63) /* of the number of a loaded list */

struct sh_keeper;

/* Registers its handlers. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_keeper_create(struct sh_msg *msg, struct sh_keeper **keeper_out);
void sh_keeper_destroy(struct sh_keeper *keeper); /* NULL is allowed; no step may run */

/* Rises with each change of what the chunk is to hold. */
uint64_t sh_keeper_changes(const struct sh_keeper *keeper);
/* Bytes of the chunk; 0: there are no names, and need be no chunk. */
size_t sh_keeper_chunk_size(const struct sh_keeper *keeper);
/* Writes the chunk's bytes, as many as that; nid: the node's own. */
void sh_keeper_chunk_put(const struct sh_keeper *keeper, shoal_nid nid, uint8_t *bytes);
/* Takes the names of a chunk that was loaded. Names of chunks that the node created that has
 * written it become those of the node's own. Then, or before, but not in between, a superpeer may
 * ask. ECORRUPT, EVERSION; ENOMEM, ETOOBIG: not all of them. */
SHOAL_NODISCARD enum shoal_err sh_keeper_chunk_load(struct sh_keeper *keeper, shoal_nid nid,
                                                    struct sh_bytes chunk);

#endif
