/* What becomes of a zone for which this node's store has no room, or whose replica is damaged (docs/recovery.md, "No room"). None of the zone is in the store any more.
 *
 *   no room ─► MAKES_ROOM ── room was made here ────────────────────────────────► RECORD, at once
 *                  │ ── a recorded backup has room for all of the zone ───► HANDS_ON, to that one
 *                  '── there is no room anywhere ──┐
 *   damaged ───────────────────────────────────────┴─► HANDS_ON, to the next one; if the zone comes back it rests here for two seconds
 */
#include "base/assert.h"
#include "base/log.h"
#include "recover/restorer_int.h"

/* Until a zone is tried again for which there was no room, and that was handed on. */
#define NO_ROOM_NS UINT64_C(2000000000)
/* In which chunks are not moved again to make room, doubled each time until a zone is back: others may have used the room, or it was not memory that the store lacked. */
#define MOVES_PAUSE_MIN_NS UINT64_C(500000000)
#define MOVES_PAUSE_MAX_NS UINT64_C(64000000000)

static uint64_t now_of(const struct sh_restorer *restorer)
{
    return sh_now(&restorer->config.clock);
}

/* --- MAKES_ROOM -------------------------------------------------------------------------------- */

static void moves_pause(struct sh_restorer *restorer, uint64_t now_ns)
{
    uint64_t pause_ns = 2 * restorer->moves_pause_ns;
    pause_ns = pause_ns < MOVES_PAUSE_MIN_NS ? MOVES_PAUSE_MIN_NS : pause_ns;
    restorer->moves_pause_ns = pause_ns < MOVES_PAUSE_MAX_NS ? pause_ns : MOVES_PAUSE_MAX_NS;
    restorer->moves_ns = now_ns + restorer->moves_pause_ns;
}

/* Bytes of other zones that are in the store and not served yet. */
static uint64_t closed_bytes(const struct sh_restoring *job)
{
    uint64_t bytes = 0;
    for (const struct sh_restoring *other = job->restorer->jobs; other; other = other->next) {
        bool is_closed = other->phase > SH_RESTORING_WAITS && other->phase <= SH_RESTORING_SERVES;
        bytes += other != job && is_closed ? other->images.live : 0;
    }
    return bytes;
}

/* Said now and then: the zone is tried every two seconds. */
static void no_room_say(struct sh_restoring *job, uint64_t now_ns)
{
    if (job->no_room_ns && now_ns - job->no_room_ns < WARN_NS)
        return;
    job->no_room_ns = now_ns;
    SH_ERROR(
        "recover",
        "there is no room for a zone that is to be brought back: its chunks are in the "
        "log; start another peer, remove chunks, or raise store_bytes_max and start this one again",
        SH_U64("zone", job->id), SH_U64("missing_bytes", job->lacked));
}

void sh_restoring_room_step(struct sh_restoring *job, uint64_t now_ns)
{
    struct sh_restorer *restorer = job->restorer;
    const struct sh_restorer_config *config = &restorer->config;
    const struct sh_room_wish wish = {.record = &job->record,
                                      .zone_bytes = job->needed,
                                      .missing_bytes = job->lacked,
                                      .closed_bytes = closed_bytes(job),
                                      .may_move = now_ns >= restorer->moves_ns};
    struct sh_room_found found = {.backup = SHOAL_NID_NONE};
    enum shoal_err err = SHOAL_EFULL;
    if (config->make_room)
        err = config->make_room(config->arg, &wish, &found);
    if (err == SHOAL_EAGAIN) {
        sh_restoring_again(job);
        return;
    }
    if (found.has_moved)
        moves_pause(restorer, now_ns);
    if (!err && !found.backup.v) {
        SH_INFO("recover", "room was made for a zone that is to be brought back: it is tried again",
                SH_U64("zone", job->id), SH_U64("missing_bytes", job->lacked));
        sh_restoring_to(job, SH_RESTORING_RECORD);
        return;
    }
    job->next_owner = err ? SHOAL_NID_NONE : found.backup;
    sh_restoring_to(job, SH_RESTORING_HANDS_ON);
    if (err == SHOAL_EFULL)
        no_room_say(job, now_ns);
}

/* --- HANDS_ON ---------------------------------------------------------------------------------- */

static void on_handed(struct sh_zone_op *op, enum shoal_err err,
                      const struct sh_zone_answer *answer)
{
    struct sh_restoring *job = op->arg;
    (void)answer;
    job->is_asking = false;
    if (err == SHOAL_ESTOPPED)
        return;
    /* The record says whether it is still this node's. If the other backup hands the zone back at once, as it has no room either, it rests here: else each of both
     * would read it again and again. */
    sh_restoring_to(job, SH_RESTORING_RECORD);
    job->due_ns = now_of(job->restorer) + NO_ROOM_NS;
    if (!err)
        job->record = (struct sh_zone){.id = job->id}; /* no zone here waits for this one */
}

/* This node's place among the recorded backups. */
static unsigned place_of(const struct sh_restoring *job)
{
    unsigned place = 0;
    while (place < job->record.count && job->record.backups[place].nid.v != job->restorer->nid.v)
        place++;
    return place;
}

/* Whether a recorded backup may be the zone's next owner: it is up, and no other one was chosen. */
static bool may_own(const struct sh_restoring *job, shoal_nid nid, struct sh_node *node_out)
{
    const struct sh_restorer *restorer = job->restorer;
    bool is_chosen = !job->next_owner.v || nid.v == job->next_owner.v;
    return nid.v != restorer->nid.v && is_chosen &&
           !sh_directory_node(restorer->config.directory, nid, node_out) &&
           node_out->state == SH_NODE_UP;
}

/* The backup that was chosen, or else the one that is up and stands next behind this node in the record, becomes the zone's owner: a superpeer tells it so. So each has its turn, though none knows what
 * the others found. Where none is up, or all lack room, the zone comes back here in its turn. */
void sh_restoring_hand_on(struct sh_restoring *job, uint64_t now_ns)
{
    const struct sh_restorer_config *config = &job->restorer->config;
    struct sh_zone record = job->record;
    struct sh_node node;
    unsigned from = place_of(job) + 1 + job->handed;
    for (unsigned i = 0; i < record.count; i++) {
        const struct sh_zone_backup *backup = &record.backups[(from + i) % record.count];
        if (!may_own(job, backup->nid, &node))
            continue;
        job->handed += i + 1;
        record.owner = node.nid;
        record.life = node.instance;
        record.flags |= job->has_sent ? SH_ZONE_AGAIN : 0;
        break;
    }
    if (record.owner.v == job->restorer->nid.v) {
        sh_restoring_to(job, SH_RESTORING_RECORD);
        job->due_ns = now_ns + NO_ROOM_NS;
        return;
    }
    if (job->why == SHOAL_ECORRUPT)
        SH_ERROR("recover",
                 "a replica is damaged of a zone that is to be brought back: another backup is "
                 "to do that",
                 SH_U64("zone", job->id), SH_U64("next", record.owner.v));
    else
        SH_WARN("recover", "a zone can't be brought back here: another backup is to do that",
                SH_U64("zone", job->id), SH_U64("next", record.owner.v), SH_ERR(job->why));
    job->zone_op = (struct sh_zone_op){.done = on_handed, .arg = job};
    job->is_asking = true;
    sh_zones_change(config->zones, config->life, &record, &job->zone_op);
}
