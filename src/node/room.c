#include "node/room.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/directory.h"
#include "proto/chunks.h"

#define PEERS_MAX 256 /* that are asked; of more, others each time */
#define ASKED_MAX 16  /* at a time */
#define ASKS_NS UINT64_C(1000000000)
#define ANSWER_NS UINT64_C(500000000)
/* Migrations for one zone: that move nothing, and in all. */
#define VAIN_MAX 3u
#define MOVES_MAX 64u

enum room_phase { ROOM_IDLE, ROOM_ASKS, ROOM_MOVES };

struct asked {
    struct sh_room *room;
    struct sh_request request;
    bool is_asking, has_answered;
    uint64_t due_ns;
};

struct sh_room {
    struct sh_room_config config;
    enum room_phase phase;
    uint64_t zone;
    uint64_t wanted; /* bytes that are still to be moved, as they count for a zone */
    unsigned moves, vain;
    shoal_nid target, refused[VAIN_MAX]; /* of the last migration; of those that moved nothing */
    uint64_t until_ns;                   /* for which answers are waited for */
    size_t turn;                         /* of all nodes, where the next look begins */
    unsigned asking;
    size_t count;
    struct sh_room_peer peers[PEERS_MAX]; /* the recorded backups first */
    struct asked asked[PEERS_MAX];
};

static uint64_t now_of(const struct sh_room *room)
{
    return sh_now(&room->config.clock);
}

/* --- ASKS -------------------------------------------------------------------------------------- */

/* A peer that is being drained takes nothing. */
static void on_status(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    struct sh_room *room = asked->room;
    uint64_t values[SH_CHUNKS_STATUS_BYTES / 8];
    asked->is_asking = false;
    room->asking--;
    asked->due_ns = now_of(room) + ANSWER_NS / 8;
    for (size_t i = 0; !err && i < sizeof values / sizeof values[0]; i++)
        values[i] = sh_get64(payload);
    if (err || !sh_reader_done(payload))
        return;
    asked->has_answered = true;
    bool is_drained = values[SH_CHUNKS_STATUS_DRAINED];
    room->peers[asked - room->asked].bytes =
        is_drained ? 0
                   : sh_room_bytes(values[SH_CHUNKS_STATUS_MAX], values[SH_CHUNKS_STATUS_USED],
                                   values[SH_CHUNKS_STATUS_FREE]);
}

static void peer_ask(struct asked *asked, uint64_t now_ns)
{
    struct sh_room *room = asked->room;
    struct sh_out out;
    shoal_nid nid = room->peers[asked - room->asked].nid;
    asked->request = (struct sh_request){.done = on_status, .arg = asked, .timeout_ns = ANSWER_NS};
    asked->due_ns = now_ns + ANSWER_NS / 8;
    if (sh_msg_request(room->config.msg, nid, SH_CHUNKS_STATUS, 0, &asked->request, &out))
        return;
    asked->is_asking = true;
    room->asking++;
    sh_msg_end(room->config.msg, &out);
}

static void asks_cancel(struct sh_room *room)
{
    for (size_t i = 0; i < room->count; i++) {
        if (room->asked[i].is_asking)
            (void)sh_msg_cancel(room->config.msg, &room->asked[i].request);
        room->asked[i].is_asking = false;
    }
    room->asking = 0;
}

/* Whether a peer takes no chunks of others, as far as is known: a migration to it came to nothing; or the zone was its own in a former life, whose zones are to be back
 * before (docs/recovery.md). */
static bool takes_none(const struct sh_room *room, const struct sh_zone *record, shoal_nid nid)
{
    bool takes = nid.v != record->former.v;
    for (unsigned i = 0; i < room->vain; i++)
        takes &= nid.v != room->refused[i].v;
    return !takes;
}

static void peer_add(struct sh_room *room, const struct sh_zone *record, const struct sh_node *node,
                     bool is_backup)
{
    bool is_up = node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
    if (room->count == PEERS_MAX || !is_up || node->nid.v == sh_msg_nid(room->config.msg).v)
        return;
    for (size_t i = 0; i < room->count; i++) {
        if (room->peers[i].nid.v == node->nid.v)
            return;
    }
    room->asked[room->count] = (struct asked){.room = room};
    room->peers[room->count++] =
        (struct sh_room_peer){.nid = node->nid,
                              .is_backup = is_backup,
                              .takes_none = takes_none(room, record, node->nid)};
}

/* Begins to ask the peers that are up, those first that have a replica of the zone. ENOMEM. */
static enum shoal_err asks_begin(struct sh_room *room, const struct sh_zone *record)
{
    struct sh_directory *directory = room->config.directory;
    size_t most = sh_directory_nodes(directory, NULL, 0) + 16;
    struct sh_node *nodes = malloc(most * sizeof *nodes);
    struct sh_node node;
    if (!nodes)
        return SHOAL_ENOMEM;
    SH_ASSERT(!room->asking);
    room->count = 0;
    room->phase = ROOM_ASKS;
    room->until_ns = now_of(room) + ASKS_NS;
    for (unsigned i = 0; i < record->count; i++) {
        if (!sh_directory_node(directory, record->backups[i].nid, &node))
            peer_add(room, record, &node, true);
    }
    size_t there = sh_directory_nodes(directory, nodes, most);
    there = there < most ? there : most;
    for (size_t i = 0; i < there; i++)
        peer_add(room, record, &nodes[(room->turn + i) % there], false);
    room->turn += PEERS_MAX;
    free(nodes);
    return SHOAL_OK;
}

/* False: some have still to answer. */
static bool asks_step(struct sh_room *room)
{
    uint64_t now_ns = now_of(room);
    bool have_all = true;
    for (size_t i = 0; i < room->count; i++) {
        struct asked *asked = &room->asked[i];
        have_all &= asked->has_answered;
        if (!asked->has_answered && !asked->is_asking && now_ns >= asked->due_ns &&
            room->asking < ASKED_MAX)
            peer_ask(asked, now_ns);
    }
    if (!have_all && now_ns < room->until_ns)
        return false;
    asks_cancel(room);
    return true;
}

/* --- MOVES ------------------------------------------------------------------------------------- */

static uint64_t all_bytes(const struct sh_store_status *status)
{
    return status->payload_bytes + status->chunks * SH_ZONE_CHUNK_BYTES;
}

/* Bytes of this peer's chunks that may move, as they count for a zone. */
static uint64_t own_bytes(const struct sh_room *room, const struct sh_room_wish *wish,
                          struct sh_store_status *status_out)
{
    sh_store_status_get(room->config.store, status_out);
    uint64_t all = all_bytes(status_out);
    return all > wish->closed_bytes ? all - wish->closed_bytes : 0;
}

/* Of so many bytes as they count for a zone those that chunks have themselves, by the mean of this peer's chunks, of which there are some. */
static uint64_t payload_of(const struct sh_store_status *status, uint64_t bytes)
{
    uint64_t payload =
        (uint64_t)((unsigned __int128)bytes * status->payload_bytes / all_bytes(status));
    return payload ? payload : 1;
}

/* OK: a backup has room, or there is nothing here any more. EAGAIN: chunks move, or are to move to another one. EFULL: there is no room. EBUSY: none may move. */
static enum shoal_err plan_begin(struct sh_room *room, const struct sh_room_wish *wish,
                                 struct sh_room_found *found_out)
{
    struct sh_store_status status;
    struct sh_room_plan plan;
    uint64_t own = own_bytes(room, wish, &status);
    if (room->moves && !own)
        return SHOAL_OK;
    if (room->vain == VAIN_MAX || room->moves == MOVES_MAX ||
        !sh_room_plan_make(room->peers, room->count, wish, room->wanted, &plan))
        return SHOAL_EFULL;
    found_out->backup = plan.backup;
    if (plan.backup.v)
        return SHOAL_OK;
    if (!own)
        return SHOAL_EFULL;
    enum shoal_err err =
        sh_moves_own_begin(room->config.moves, plan.target, payload_of(&status, plan.bytes));
    if (err == SHOAL_EBUSY)
        return err;
    room->phase = err ? ROOM_IDLE : ROOM_MOVES;
    room->target = plan.target;
    room->moves += !err;
    if (err) /* it is down by now, say */
        room->refused[room->vain++] = plan.target;
    return SHOAL_EAGAIN;
}

/* Goes on with what is still wanted. */
static void moves_end(struct sh_room *room, uint64_t chunks, uint64_t bytes)
{
    uint64_t moved = bytes + chunks * SH_ZONE_CHUNK_BYTES;
    if (!moved)
        room->refused[room->vain++] = room->target;
    room->wanted -= moved < room->wanted ? moved : room->wanted;
}

/* --- One step after the other ------------------------------------------------------------------ */

/* EAGAIN: it goes on. */
static enum shoal_err room_step(struct sh_room *room, const struct sh_room_wish *wish,
                                struct sh_room_found *found_out)
{
    uint64_t chunks, bytes;
    if (room->phase == ROOM_MOVES) {
        if (!sh_moves_own_is_over(room->config.moves, &chunks, &bytes))
            return SHOAL_EAGAIN;
        moves_end(room, chunks, bytes);
        if (!room->wanted)
            return SHOAL_OK;
        room->phase = ROOM_IDLE;
    }
    if (room->phase == ROOM_IDLE && asks_begin(room, wish->record))
        return SHOAL_EFULL;
    if (!asks_step(room))
        return SHOAL_EAGAIN;
    return plan_begin(room, wish, found_out);
}

enum shoal_err sh_room_make(struct sh_room *room, const struct sh_room_wish *wish,
                            struct sh_room_found *found_out)
{
    *found_out = (struct sh_room_found){.backup = SHOAL_NID_NONE};
    if (room->zone && room->zone != wish->record->id)
        return SHOAL_EAGAIN; /* room is made for another one, which comes again */
    if (!room->zone) {
        struct sh_store_status status;
        room->zone = wish->record->id;
        room->wanted = sh_room_wanted(wish->missing_bytes, own_bytes(room, wish, &status));
        room->moves = room->vain = 0;
    }
    enum shoal_err err = room_step(room, wish, found_out);
    if (err == SHOAL_EAGAIN)
        return err;
    found_out->has_moved = room->moves > 0;
    room->zone = 0;
    room->phase = ROOM_IDLE;
    return err;
}

/* --- Life -------------------------------------------------------------------------------------- */

enum shoal_err sh_room_create(const struct sh_room_config *config, struct sh_room **room_out)
{
    struct sh_room *room = calloc(1, sizeof *room);
    if (!room)
        return SHOAL_ENOMEM;
    room->config = *config;
    *room_out = room;
    return SHOAL_OK;
}

void sh_room_destroy(struct sh_room *room)
{
    if (room)
        asks_cancel(room);
    free(room);
}
