/* A peer's copies of names, for the day when all superpeers have forgotten theirs: of each sector
 * (arcs.h) the last list that a superpeer has sent, as it was sent. It is not read here.
 *
 *   KEEP   sector, number, first piece ... last piece   takes the place of an earlier list
 *   KEPT   the numbers of all sectors, or a piece of one's list
 *
 * A list is *earlier* if it is of the same history (incarnation) of the sector and its number is
 * not higher, or if the new list's history began with all that it may say: its number is at most
 * the new list's base. Any other one stays, and the sender is told its number: it is what a
 * superpeer that has forgotten the names did not find, as this peer was away.
 *
 * Memory: what superpeers send, at most SH_KEEPER_BYTES_MAX of a sector, and that once more while a
 * list comes.
 * Threads: the one that runs the transport step. */
#ifndef SH_CLUSTER_KEEPER_H
#define SH_CLUSTER_KEEPER_H

#include "msg/msg.h"

#define SH_KEEPER_BYTES_MAX (24u << 20) /* 65,536 names, as long as they may be */
#define SH_KEEPER_PIECE_BYTES 16384
#define SH_KEEP_FIRST 1u
#define SH_KEEP_LAST 2u

struct sh_keeper;

/* Registers its handlers. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_keeper_create(struct sh_msg *msg, struct sh_keeper **keeper_out);
void sh_keeper_destroy(struct sh_keeper *keeper); /* NULL is allowed; no step may run */

#endif
