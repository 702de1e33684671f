/* Room for zones that this peer brings back and for which its store has none (recover/restorer.h, make_room): it asks the other peers how much memory they have free (STATUS), and then
 * a recorded backup is to bring the zone back that has room for all of it; or this peer's own chunks move, by a migration, to the peers that have most room; or there is no room.
 *
 *   [ASKS] ── all have answered, or a second is over ──► plan ── a backup has room ──► OK, that one
 *     ▲                                                   │ ── the peers' room is less than what is missing, or there is nothing to move ──► EFULL
 *     │                                                   ▼
 *     '────────── more is missing ───────────────────── [MOVES] ── what was missing has moved ──► OK
 *
 * Nothing moves unless the peers have room for all that is missing, and a quarter more: so what moves is of use, and nothing moves back and forth, as each peer that is full finds less room at others than is missing.
 *
 * One zone at a time. Threads: the transport step's. */
#ifndef SH_NODE_ROOM_H
#define SH_NODE_ROOM_H

#include "env/env.h"
#include "node/moves.h"
#include "recover/restorer.h"

struct sh_room;

struct sh_room_config {
    struct sh_msg *msg; /* kept, like all of these */
    struct sh_store *store;
    struct sh_moves *moves;
    struct sh_directory *directory;
    struct sh_clock clock;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_room_create(const struct sh_room_config *config,
                                              struct sh_room **room_out);
/* Before msg and the moves are destroyed. NULL is allowed. */
void sh_room_destroy(struct sh_room *room);

/* As sh_restorer_config.make_room. */
SHOAL_NODISCARD enum shoal_err sh_room_make(struct sh_room *room, const struct sh_room_wish *wish,
                                            struct sh_room_found *found_out);

/* --- The plan ---------------------------------------------------------------------------------- */

/* What of a peer counts. Bytes are as they count for a zone. */
struct sh_room_peer {
    shoal_nid nid;
    uint64_t bytes; /* of chunks that it has room for (sh_room_bytes) */
    bool is_backup; /* of the zone, recorded */
    bool
        takes_none; /* of other peers' chunks: a migration to it came to nothing, or the zone was its own in a former life */
};

/* Bytes of chunks that a store has room for, in which so many bytes are used, and of these so many are free: less than what a migration's target takes, so that it has not refused by the
 * time that they come. */
uint64_t sh_room_bytes(uint64_t bytes_max, uint64_t used_bytes, uint64_t free_bytes);

struct sh_room_plan {
    shoal_nid backup; /* is to bring the zone back; NONE: */
    shoal_nid target; /* gets chunks of this peer */
    uint64_t bytes;   /* of so many bytes at most */
};

/* What a peer whose chunks have so many bytes is to move where so many are missing; 0: it has not got as much. */
uint64_t sh_room_wanted(uint64_t missing_bytes, uint64_t own_bytes);
/* wanted: bytes that are still to be moved; 0: there is nothing to move. False: there is no room for that. */
bool sh_room_plan_make(const struct sh_room_peer *peers, size_t count,
                       const struct sh_room_wish *wish, uint64_t wanted,
                       struct sh_room_plan *plan_out);

#endif
