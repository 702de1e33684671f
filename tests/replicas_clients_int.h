/* The writers of world_replicas_test.c: a client with several slots, each of which does one request after the other, at any level, and
 * the history of each chunk, all of whose writes come one after the other. */
#ifndef TESTS_REPLICAS_CLIENTS_INT_H
#define TESTS_REPLICAS_CLIENTS_INT_H

#include "base/hash.h"
#include "msg/once.h"
#include "proto/chunks.h"
#include "tests/replicas_world_int.h"

#define RW_SLOTS 24
#define RW_CHUNKS 600
#define RW_WRITES 40
#define RW_HEAD_BYTES 16
#define RW_SMALL_MAX 1500
#define RW_TRIES_MAX 400
#define RW_ABSENT (-1)
#define RW_LOST_MAX 256

enum rw_op { RW_NONE, RW_CREATE, RW_PUT, RW_GET, RW_REMOVE };

struct rw_write {
    enum rw_op op;
    enum sh_level level;
    uint32_t size;
    uint64_t begun, acked; /* moments; acked 0: nobody was told of it */
};

struct rw_chunk {
    shoal_cid cid;
    unsigned peer;   /* whose it is, from 0 on */
    uint64_t life;   /* of that peer */
    bool is_writing; /* a slot writes to it */
    bool is_over;    /* nobody can tell what came of its last write: it is read only */
    unsigned count;  /* of writes; a removal is not the last one where the ID was used again */
    struct rw_write writes[RW_WRITES];
};

struct rw_client;

struct rw_slot {
    struct rw_client *client;
    enum rw_op op;
    enum sh_level level;
    unsigned peer;
    uint64_t life;
    struct rw_chunk *chunk; /* not of a create */
    unsigned write;         /* of a put or removal: which of the chunk's */
    int least;              /* of a get: the newest write that was acknowledged before */
    uint32_t size;
    uint64_t begun, number;
    unsigned tries;
    uint64_t pause_until_ns;
    struct sh_request request;
};

/* A create of which nobody knows whether there is a chunk, nor its ID. */
struct rw_lost {
    unsigned peer;
    uint32_t size;
};

struct rw_client {
    struct rw *rw;
    unsigned node;
    bool is_still; /* begins nothing */
    uint32_t large_one_in;
    struct sh_msg *msg;
    struct sh_directory *directory;
    struct sh_zones *zones;
    uint64_t id;
    struct sh_once_numbers numbers[RW_PEERS];
    struct rw_slot slots[RW_SLOTS];
    bool is_refreshing;
    uint64_t refresh_ns;
    struct sh_directory_op refresh;
    struct rw_chunk *chunks; /* RW_CHUNKS */
    unsigned chunk_count;
    struct rw_lost lost[RW_LOST_MAX];
    unsigned lost_count;
    uint8_t *scratch; /* RW_CHUNK_BYTES_MAX */
    uint64_t acked[SH_LEVELS], gets, removes, large;
};

static inline uint64_t rw_client_now(const struct rw_client *client)
{
    return sh_now(&sh_world_env(client->rw->world, client->node)->clock);
}

/* --- Contents ----------------------------------------------------------------------------------- */

/* Of the chunk's write: its ID, which write, and what follows from both. */
static inline void rw_content_make(uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t write)
{
    SH_ASSERT(size >= RW_HEAD_BYTES);
    sh_store64(bytes, cid.v);
    sh_store64(bytes + 8, write);
    uint64_t mixed = 0;
    for (uint32_t i = RW_HEAD_BYTES; i < size; i++) {
        if (i % 8 == 0)
            mixed = sh_mix64(cid.v + write * 1000003 + i);
        bytes[i] = (uint8_t)(mixed >> 8 * (i % 8));
    }
}

static inline bool rw_is_zeros(const uint8_t *bytes, uint32_t size)
{
    return !bytes[0] && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* Which of the chunk's writes that is; fails where it is none of them. Zeros are a creation's. */
static inline int rw_write_of(struct rw_client *client, const struct rw_chunk *chunk,
                              const uint8_t *bytes, uint32_t size, const char *where)
{
    bool is_made = size >= RW_HEAD_BYTES && rw_is_zeros(bytes, size);
    for (int i = (int)chunk->count - 1; i >= 0; i--) {
        const struct rw_write *write = &chunk->writes[i];
        if (write->size != size || write->op != (is_made ? RW_CREATE : RW_PUT))
            continue;
        if (is_made)
            return i;
        rw_content_make(client->scratch, size, chunk->cid, (uint64_t)i);
        if (memcmp(client->scratch, bytes, size) == 0)
            return i;
    }
    RW_FAIL(client->rw, "%s: chunk %" PRIx64 " has %u bytes that nobody has written", where,
            chunk->cid.v, size);
    return RW_ABSENT;
}

/* Whether a chunk that is so has all up to that write: i is a write's, or it is absent. */
static inline bool rw_has(const struct rw_chunk *chunk, int state, int needed)
{
    if (state != RW_ABSENT || needed == RW_ABSENT)
        return state >= needed;
    for (unsigned i = (unsigned)needed; i < chunk->count; i++) {
        if (chunk->writes[i].op == RW_REMOVE)
            return true;
    }
    return false;
}

/* --- A request, and its answer ------------------------------------------------------------------ */

static inline struct rw_host *rw_target(const struct rw_slot *slot)
{
    return rw_peer(slot->client->rw, slot->peer);
}

/* Whether the life of the peer is over that the slot asks. */
static inline bool rw_is_past(const struct rw_slot *slot)
{
    return rw_target(slot)->boots != slot->life;
}

static inline void rw_slot_end(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    if (slot->number)
        sh_once_finish(&client->numbers[slot->peer], slot->number);
    if (slot->op == RW_PUT || slot->op == RW_REMOVE)
        slot->chunk->is_writing = false;
    slot->number = 0;
    slot->op = RW_NONE;
    slot->pause_until_ns = rw_client_now(client) + rw_below(client->rw, 4 * MS);
}

/* Nobody knows what came of it. */
static inline void rw_slot_lost(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    if (slot->op == RW_CREATE) {
        SH_ASSERT(client->lost_count < RW_LOST_MAX);
        client->lost[client->lost_count++] = (struct rw_lost){slot->peer, slot->size};
    } else {
        slot->chunk->is_over = true;
    }
    rw_slot_end(slot);
}

static inline void rw_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct rw_client *client = op->arg;
    (void)err;
    (void)detail;
    client->is_refreshing = false;
    client->refresh_ns = rw_client_now(client) + RW_AGAIN_NS;
}

static inline void rw_slot_again(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    if (rw_is_past(slot) || ++slot->tries > RW_TRIES_MAX) {
        rw_slot_lost(slot);
        return;
    }
    slot->pause_until_ns = rw_client_now(client) + RW_AGAIN_NS;
    if (client->is_refreshing || rw_client_now(client) < client->refresh_ns)
        return;
    client->is_refreshing = true;
    client->refresh = (struct sh_directory_op){.done = rw_refreshed, .arg = client};
    sh_directory_refresh(client->directory, &client->refresh);
}

static inline struct rw_chunk *rw_chunk_find(struct rw_client *client, shoal_cid cid)
{
    for (unsigned i = 0; i < client->chunk_count; i++) {
        if (client->chunks[i].cid.v == cid.v)
            return &client->chunks[i];
    }
    return NULL;
}

/* There is a chunk, perhaps with the ID of one that was removed. */
static inline void rw_created(struct rw_slot *slot, shoal_cid cid)
{
    struct rw_client *client = slot->client;
    struct rw_chunk *chunk = rw_chunk_find(client, cid);
    if (!chunk) {
        SH_ASSERT(client->chunk_count < RW_CHUNKS);
        chunk = &client->chunks[client->chunk_count++];
        *chunk = (struct rw_chunk){.cid = cid, .peer = slot->peer, .life = slot->life};
    }
    bool is_its = shoal_cid_creator(cid).v == rw_target(slot)->nid.v && chunk->count < RW_WRITES &&
                  (!chunk->count || chunk->peer == slot->peer);
    if (!is_its)
        RW_FAIL(client->rw, "peer %u has made chunk %" PRIx64, slot->peer, cid.v);
    chunk->is_over = rw_is_past(slot);
    chunk->writes[chunk->count++] = (struct rw_write){.op = RW_CREATE,
                                                      .level = slot->level,
                                                      .size = slot->size,
                                                      .begun = slot->begun,
                                                      .acked = ++client->rw->moment};
}

/* A write that was seen is acknowledged at its level. */
static inline void rw_seen(struct rw_slot *slot, int state)
{
    struct rw_chunk *chunk = slot->chunk;
    struct rw *rw = slot->client->rw;
    if (!rw_has(chunk, state, slot->least))
        RW_FAIL(rw, "chunk %" PRIx64 " is read as of write %d, after %d was acknowledged",
                chunk->cid.v, state, slot->least);
    for (int i = state; i == RW_ABSENT && slot->least >= 0;) {
        i = slot->least;
        while (chunk->writes[i].op != RW_REMOVE)
            i++;
        state = i;
    }
    if (state != RW_ABSENT && !chunk->writes[state].acked)
        chunk->writes[state].acked = ++rw->moment;
}

static inline void rw_got(struct rw_slot *slot, struct sh_reader *payload)
{
    enum shoal_err err = (enum shoal_err)sh_get16(payload);
    uint32_t size = sh_get32(payload);
    if (err == SHOAL_OK)
        rw_seen(slot, rw_write_of(slot->client, slot->chunk, sh_reader_take(payload, size), size,
                                  "its node"));
    else if (err != SHOAL_ENOCHUNK)
        RW_FAIL(slot->client->rw, "a get is answered with %s", shoal_err_name(err));
    else if (!rw_is_past(slot))
        rw_seen(slot, RW_ABSENT);
    slot->client->gets++;
}

static inline void rw_wrote(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    struct rw_write *write = &slot->chunk->writes[slot->write];
    if (!write->acked)
        write->acked = ++client->rw->moment;
    client->removes += slot->op == RW_REMOVE;
    client->large += slot->op == RW_PUT && slot->size > 40000;
    client->acked[slot->level]++;
}

static inline void rw_answered(struct sh_request *request, enum shoal_err err,
                               struct sh_reader *payload)
{
    struct rw_slot *slot = request->arg;
    struct rw_client *client = slot->client;
    if (!client->msg || !slot->op)
        return;
    if (err == SHOAL_ENOCHUNK && slot->chunk && !rw_is_past(slot))
        RW_FAIL(client->rw, "chunk %" PRIx64 " is gone, though its peer runs", slot->chunk->cid.v);
    if (err == SHOAL_EIO || err == SHOAL_ENOCHUNK) {
        rw_slot_lost(slot);
        return;
    }
    if (err) {
        rw_slot_again(slot);
        return;
    }
    if (slot->op == RW_GET)
        rw_got(slot, payload);
    else if (slot->op == RW_CREATE)
        rw_created(slot, (shoal_cid){sh_get64(payload)});
    else
        rw_wrote(slot);
    rw_slot_end(slot);
}

static inline sh_msg_type rw_type_of(const struct rw_slot *slot)
{
    sh_msg_type type = slot->op == RW_CREATE ? SH_CHUNKS_CREATE_ONCE
                       : slot->op == RW_PUT  ? SH_CHUNKS_PUT_ONCE
                                             : SH_CHUNKS_REMOVE_ONCE;
    return slot->op == RW_GET ? SH_CHUNKS_GET : SH_CHUNKS_AT(type, slot->level);
}

static inline void rw_send(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    struct sh_once_numbers *numbers = &client->numbers[slot->peer];
    size_t size = slot->op == RW_CREATE ? 4 : slot->op == RW_PUT ? 8 + slot->size : 8;
    struct sh_out out;
    if (slot->op != RW_GET && !slot->number && !(slot->number = sh_once_number(numbers))) {
        rw_slot_again(slot);
        return;
    }
    size = slot->op == RW_GET ? 12 : size + SH_ONCE_PREFIX_BYTES;
    slot->request = (struct sh_request){.done = rw_answered, .arg = slot};
    slot->pause_until_ns = UINT64_MAX;
    if (sh_msg_request(client->msg, rw_target(slot)->nid, rw_type_of(slot), size, &slot->request,
                       &out)) {
        rw_slot_again(slot);
        return;
    }
    if (slot->op != RW_GET) {
        const struct sh_once_id id = {client->id, slot->number, numbers->finished};
        sh_once_id_put(&out.w, &id);
    }
    if (slot->op == RW_CREATE)
        sh_put32(&out.w, slot->size);
    else
        sh_put64(&out.w, slot->chunk->cid.v);
    if (slot->op == RW_GET)
        sh_put32(&out.w, RW_CHUNK_BYTES_MAX);
    if (slot->op == RW_PUT) {
        rw_content_make(client->scratch, slot->size, slot->chunk->cid, slot->write);
        sh_put_raw(&out.w, sh_bytes_make(client->scratch, slot->size));
    }
    sh_msg_end(client->msg, &out);
}

/* --- What a slot does next ---------------------------------------------------------------------- */

/* A chunk that is there, of a life that is not over; to write: one that nobody else writes to. */
static inline struct rw_chunk *rw_chunk_pick(struct rw_client *client, bool to_write)
{
    for (unsigned tries = 0; client->chunk_count && tries < 40; tries++) {
        struct rw_chunk *chunk = &client->chunks[rw_below(client->rw, client->chunk_count)];
        bool is_there = rw_peer(client->rw, chunk->peer)->boots == chunk->life &&
                        chunk->writes[chunk->count - 1].op != RW_REMOVE;
        bool is_free = !chunk->is_writing && !chunk->is_over && chunk->count < RW_WRITES - 4;
        if (is_there && (is_free || !to_write))
            return chunk;
    }
    return NULL;
}

/* Each create of a peer has a size of its own, so that one of which nobody knows is told from others. */
static inline bool rw_is_size_used(const struct rw_client *client, unsigned peer, uint32_t size)
{
    for (unsigned i = 0; i < client->chunk_count; i++) {
        const struct rw_chunk *chunk = &client->chunks[i];
        for (unsigned k = 0; chunk->peer == peer && k < chunk->count; k++) {
            if (chunk->writes[k].op == RW_CREATE && chunk->writes[k].size == size)
                return true;
        }
    }
    for (unsigned i = 0; i < client->lost_count; i++) {
        if (client->lost[i].peer == peer && client->lost[i].size == size)
            return true;
    }
    for (unsigned i = 0; i < RW_SLOTS; i++) {
        const struct rw_slot *slot = &client->slots[i];
        if (slot->op == RW_CREATE && slot->peer == peer && slot->size == size)
            return true;
    }
    return false;
}

static inline bool rw_create_begin(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    /* Some have more, so that they fill zones. */
    unsigned peer = (unsigned)(rw_below(client->rw, 4) ? rw_below(client->rw, 2)
                                                       : rw_below(client->rw, RW_PEERS));
    if (client->chunk_count > RW_CHUNKS - 2 * RW_SLOTS || client->lost_count > RW_LOST_MAX / 2 ||
        !rw_is_joined(rw_peer(client->rw, peer)))
        return false;
    uint64_t most = rw_below(client->rw, client->large_one_in) ? RW_SMALL_MAX : RW_CHUNK_BYTES_MAX;
    do
        slot->size = (uint32_t)(RW_HEAD_BYTES + 1 + rw_below(client->rw, most - RW_HEAD_BYTES));
    while (rw_is_size_used(client, peer, slot->size));
    slot->op = RW_CREATE;
    slot->peer = peer;
    slot->chunk = NULL;
    return true;
}

static inline void rw_write_begin(struct rw_slot *slot)
{
    struct rw_chunk *chunk = slot->chunk;
    chunk->is_writing = true;
    slot->write = chunk->count++;
    slot->size = chunk->writes[slot->write - 1].size;
    chunk->writes[slot->write] = (struct rw_write){
        .op = slot->op, .level = slot->level, .size = slot->size, .begun = slot->begun};
}

static inline void rw_get_begin(struct rw_slot *slot)
{
    const struct rw_chunk *chunk = slot->chunk;
    slot->least = (int)chunk->count - 1;
    while (slot->least >= 0 && !chunk->writes[slot->least].acked)
        slot->least--;
}

static inline bool rw_slot_begin(struct rw_slot *slot)
{
    struct rw_client *client = slot->client;
    uint64_t drawn = rw_below(client->rw, 100);
    slot->level = (enum sh_level)rw_below(client->rw, SH_LEVELS);
    slot->tries = 0;
    slot->number = 0;
    slot->begun = ++client->rw->moment;
    if (drawn < 20 || !(slot->chunk = rw_chunk_pick(client, drawn < 75))) {
        if (!rw_create_begin(slot))
            return false;
    } else {
        slot->op = drawn < 70 ? RW_PUT : drawn < 75 ? RW_REMOVE : RW_GET;
        slot->peer = slot->chunk->peer;
    }
    slot->life = slot->chunk ? slot->chunk->life : rw_target(slot)->boots;
    if (slot->op == RW_PUT || slot->op == RW_REMOVE)
        rw_write_begin(slot);
    else if (slot->op == RW_GET)
        rw_get_begin(slot);
    return true;
}

static inline unsigned rw_client_run(void *arg)
{
    struct rw_client *client = arg;
    uint64_t now = rw_client_now(client);
    unsigned work = 0;
    if (!sh_directory_epoch(client->directory) && !client->is_refreshing &&
        now >= client->refresh_ns) {
        client->is_refreshing = true;
        client->refresh = (struct sh_directory_op){.done = rw_refreshed, .arg = client};
        sh_directory_bootstrap(client->directory, client->rw->superpeers,
                               client->rw->superpeer_count, &client->refresh);
        work++;
    }
    for (unsigned i = 0; i < RW_SLOTS; i++) {
        struct rw_slot *slot = &client->slots[i];
        if (now < slot->pause_until_ns || (!slot->op && client->is_still))
            continue;
        work++;
        if (slot->op && rw_is_past(slot))
            rw_slot_lost(slot);
        else if (slot->op || rw_slot_begin(slot))
            rw_send(slot);
        else
            slot->pause_until_ns = now + RW_AGAIN_NS;
    }
    return work;
}

static inline uint64_t rw_client_due(void *arg)
{
    const struct rw_client *client = arg;
    uint64_t due = sh_directory_epoch(client->directory) || client->is_refreshing
                       ? UINT64_MAX
                       : client->refresh_ns;
    for (unsigned i = 0; i < RW_SLOTS; i++) {
        const struct rw_slot *slot = &client->slots[i];
        if ((slot->op || !client->is_still) && slot->pause_until_ns < due)
            due = slot->pause_until_ns;
    }
    return due;
}

/* --- The client --------------------------------------------------------------------------------- */

static inline void rw_client_event(void *arg, const struct sh_msg_event *event)
{
    struct rw_client *client = arg;
    if (client->directory && event->kind == SH_MSG_LOST)
        sh_directory_suspect(client->directory, event->nid);
}

static inline void rw_client_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct rw_client *client = arg;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_msg_config config = sh_sim_msg_config(env);
    client->node = node;
    config.connections_max = 64;
    config.ring_bytes = 256 << 10;
    config.on_event = rw_client_event;
    config.arg = client;
    assert_int_equal(sh_msg_create(&config, &client->msg), SHOAL_OK);
    sh_world_step_add(world, node, sh_msg_transport_step(client->msg));
    sh_world_step_add(world, node, sh_msg_handler_step(client->msg));
    const struct sh_directory_config known = {
        .msg = client->msg, .clock = env->clock, .cache_ranges_max = 8, .is_client = true};
    assert_int_equal(sh_directory_create(&known, &client->directory), SHOAL_OK);
    const struct sh_zones_config zones = {
        .msg = client->msg, .directory = client->directory, .clock = env->clock};
    assert_int_equal(sh_zones_create(&zones, &client->zones), SHOAL_OK);
    sh_world_step_add(world, node, sh_zones_step(client->zones));
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "client", .run = rw_client_run, .due_ns = rw_client_due, .arg = client});
}

static inline void rw_client_crash(void *arg, struct sh_world *world, unsigned node)
{
    struct rw_client *client = arg;
    struct sh_msg *msg = client->msg;
    (void)world;
    (void)node;
    sh_zones_destroy(client->zones);
    client->msg = NULL;
    sh_msg_destroy(msg);
    sh_directory_destroy(client->directory);
    client->directory = NULL;
}

static inline void rw_client_open(struct rw_client *client, struct rw *rw, uint32_t large_one_in)
{
    *client = (struct rw_client){.rw = rw, .id = rw->seed | 1, .large_one_in = large_one_in};
    client->chunks = calloc(RW_CHUNKS, sizeof *client->chunks);
    client->scratch = malloc(RW_CHUNK_BYTES_MAX);
    assert_true(client->chunks && client->scratch);
    for (unsigned i = 0; i < RW_SLOTS; i++)
        client->slots[i].client = client;
    const struct sh_world_node node = {
        .boot = rw_client_boot, .crash = rw_client_crash, .arg = client};
    (void)sh_world_node_add(rw->world, &node);
}

/* The slot gives up the request that is under way. */
static inline void rw_client_ends(struct rw_client *client)
{
    client->is_still = true;
    for (unsigned i = 0; i < RW_SLOTS; i++) {
        if (client->slots[i].op)
            rw_slot_lost(&client->slots[i]);
    }
}

/* Before the world is. */
static inline void rw_client_close(struct rw_client *client)
{
    sh_world_crash(client->rw->world, client->node);
    free(client->chunks);
    free(client->scratch);
}

#endif
