/* Where the room is that a zone needs. */
#include "node/room.h"

/* Of a store that is left free: twice its reserve, so that a peer that has just been filled is not taken for one with room. */
#define KEPT_PART 32u
/* What is moved at least: chunks of which a store may need whole pages to get one back. */
#define WANTED_MIN (UINT64_C(256) << 10)

uint64_t sh_room_bytes(uint64_t bytes_max, uint64_t used_bytes, uint64_t free_bytes)
{
    uint64_t most = bytes_max - bytes_max / KEPT_PART;
    uint64_t held = used_bytes - (free_bytes < used_bytes ? free_bytes : used_bytes);
    uint64_t bytes = held < most ? most - held : 0;
    return bytes / 5 * 4;
}

uint64_t sh_room_wanted(uint64_t missing_bytes, uint64_t own_bytes)
{
    uint64_t wanted = missing_bytes + missing_bytes / 4;
    wanted = wanted > WANTED_MIN ? wanted : WANTED_MIN;
    wanted = wanted < own_bytes ? wanted : own_bytes;
    return own_bytes < missing_bytes ? 0 : wanted;
}

bool sh_room_plan_make(const struct sh_room_peer *peers, size_t count,
                       const struct sh_room_wish *wish, uint64_t wanted,
                       struct sh_room_plan *plan_out)
{
    const struct sh_room_peer *backup = NULL, *target = NULL;
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        const struct sh_room_peer *peer = &peers[i];
        if (peer->is_backup && peer->bytes >= wish->zone_bytes &&
            (!backup || peer->bytes > backup->bytes))
            backup = peer;
        if (peer->takes_none)
            continue;
        if (!target || peer->bytes > target->bytes)
            target = peer;
        sum += peer->bytes;
    }
    if (backup) {
        *plan_out = (struct sh_room_plan){.backup = backup->nid};
        return true;
    }
    if (!wish->may_move || !wanted || sum < wanted)
        return false;
    *plan_out = (struct sh_room_plan){.target = target->nid,
                                      .bytes = target->bytes < wanted ? target->bytes : wanted};
    return true;
}
