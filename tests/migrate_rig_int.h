/* The world of migrate_sim_test.c: superpeers, peers and clients in a simulated world, what the
 * clients know, and what must always hold. The clients do what libshoal does (src/client/call.c),
 * without its threads. */
#ifndef TESTS_MIGRATE_RIG_INT_H
#define TESTS_MIGRATE_RIG_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "cluster/member.h"
#include "msg/once.h"
#include "node/chunks.h"
#include "node/holdings.h"
#include "node/locks.h"
#include "node/moves.h"
#include "sim/parts.h"
#include "sim/world.h"
#include "superpeer/superpeer.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define FAILURE (1 * S)
#define HOSTS_MAX 10
#define CLIENTS 2
#define SLOTS 3
#define FIELDS (CLIENTS * SLOTS)
#define CHUNKS 40
#define CHUNK_BYTES_MAX 700000
#define LARGE 20 /* the chunk that moves in pieces */
#define PAUSE (20 * MS)
#define WATCH (MS / 5)

static uint64_t seed;
static bool has_large = true;

enum kind { SUPERPEER, PEER, CLIENT };

struct world;
struct host;

/* One operation after the other of a client: an addition to its own field of some chunk, or a read
 * of it all. */
struct slot {
    struct host *host;
    unsigned field;
    bool is_busy, is_read, is_unclear, is_asking_outcome;
    unsigned chunk;
    uint64_t pause_until_ns;
    uint64_t number;
    shoal_nid number_nid;
    enum shoal_err err;     /* of the last attempt, for the message of a failure */
    uint64_t least[FIELDS]; /* a read: what was acknowledged when it began */
    struct sh_request request;
    struct sh_locate locate;
};

struct host {
    struct world *world;
    unsigned node;
    enum kind kind;
    uint16_t index;
    bool has_disk;
    bool is_dead;    /* killed, for good */
    bool has_former; /* zones of its former lives are to be brought back yet */
    struct sh_msg *msg;
    struct sh_superpeer *superpeer;
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
    /* A client's. */
    struct slot slots[SLOTS];
    struct sh_once_numbers numbers[64];
    struct sh_directory_op refresh;
    bool is_refreshing;
    struct sh_request move;
    bool is_moving;
};

struct world {
    struct sh_world *sim;
    struct sh_prng *prng;
    struct host hosts[HOSTS_MAX];
    unsigned count, superpeers, peers;
    bool has_disk;
    char addresses[3][SH_MSG_ADDRESS_MAX];
    const char *superpeer_addresses[3];
    shoal_cid cids[CHUNKS];
    uint32_t sizes[CHUNKS];
    bool is_lost[CHUNKS]; /* clients have been told so, and ask no more */
    /* The life of the node is over that served it, or that had a copy while nobody served it. */
    bool may_be_lost[CHUNKS];
    uint64_t acked[CHUNKS][FIELDS]; /* the sum of what was acknowledged */
    uint64_t begun[CHUNKS][FIELDS]; /* and of what may have been done */
    uint64_t adds, reads, moves_begun, outcomes;
    bool ends;            /* clients begin nothing */
    bool are_former_lost; /* zones of peers' former lives */
    bool only_large;      /* nothing but the large chunk moves, and is used */
    unsigned dead,
        fenced; /* peers that were killed; lives that were declared failed, and had ends of their own */
    uint64_t watched_ns;
};

static uint64_t below(struct world *world, uint64_t limit)
{
    return sh_prng_below(world->prng, limit);
}

#define HOLDS(world, condition)                                                                    \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("seed %" PRIu64 " at %.6f s: %s", seed,                                       \
                     (double)sh_world_now((world)->sim) / 1e9, #condition);                        \
    } while (0)

/* --- The clients ----------------------------------------------------------------------------- */

/* By the host's own clock, as its steps are due. */
static uint64_t now_at(const struct host *host)
{
    return sh_now(&sh_world_env(host->world->sim, host->node)->clock);
}

static void slot_pause(struct slot *slot)
{
    slot->pause_until_ns = now_at(slot->host) + PAUSE;
}

static void on_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct host *host = op->arg;
    (void)err;
    (void)detail;
    host->is_refreshing = false;
}

static void again(struct slot *slot, enum shoal_err err)
{
    slot->err = err;
    struct host *host = slot->host;
    sh_directory_forget(host->directory, host->world->cids[slot->chunk]);
    slot_pause(slot);
    if (host->is_refreshing)
        return;
    host->is_refreshing = true;
    host->refresh = (struct sh_directory_op){.done = on_refreshed, .arg = host};
    sh_directory_refresh(host->directory, &host->refresh);
}

static struct sh_once_numbers *numbers_of(struct host *host, shoal_nid nid)
{
    SH_ASSERT(nid.v >= SH_PEER_NID_MIN);
    return &host->numbers[nid.v % 64];
}

static void number_finish(struct slot *slot)
{
    if (slot->number)
        sh_once_finish(numbers_of(slot->host, slot->number_nid), slot->number);
    slot->number = 0;
    slot->is_unclear = false;
}

static void slot_over(struct slot *slot)
{
    number_finish(slot);
    slot->is_busy = false;
    slot->pause_until_ns = 0;
}

/* The superpeers say that the chunk's node has died. */
static void chunk_lost(struct slot *slot, enum shoal_err err)
{
    struct world *world = slot->host->world;
    /* A superpeer without memory knows only of members that came back within FAILURE. */
    HOLDS(world, world->dead + world->fenced > 0 || err == SHOAL_EFAILED || !world->has_disk);
    if (world->may_be_lost[slot->chunk]) {
        world->is_lost[slot->chunk] = true;
        slot_over(slot);
    } else {
        again(slot, err); /* its process has not heard yet that its life is over */
    }
}

static void added(struct slot *slot, uint64_t old)
{
    struct world *world = slot->host->world;
    uint64_t *acked = &world->acked[slot->chunk][slot->field];
    HOLDS(world, old == *acked); /* nothing was lost, done twice, or read from the past */
    *acked = world->begun[slot->chunk][slot->field];
    world->adds++;
    slot_over(slot);
}

static void read_done(struct slot *slot, struct sh_reader *r)
{
    struct world *world = slot->host->world;
    enum shoal_err err = (enum shoal_err)sh_get16(r);
    (void)sh_get32(r);
    if (err == SHOAL_ENOCHUNK)
        HOLDS(world, world->may_be_lost[slot->chunk]);
    HOLDS(world, err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    (void)sh_get32(r); /* how many bytes follow */
    for (unsigned field = 0; err == SHOAL_OK && field < FIELDS; field++) {
        uint64_t value = sh_get64(r);
        HOLDS(world, value >= slot->least[field]);
        HOLDS(world, value <= world->begun[slot->chunk][field]);
    }
    world->reads++;
    slot_over(slot);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct slot *slot = request->arg;
    struct world *world = slot->host->world;
    if (slot->is_asking_outcome && err == SHOAL_OK) {
        bool is_known = sh_get8(payload);
        enum shoal_err outcome = (enum shoal_err)sh_get16(payload);
        uint64_t old = sh_get64(payload);
        world->outcomes += is_known;
        if (is_known) {
            HOLDS(world, outcome == SHOAL_OK);
            added(slot, old);
        } else {
            number_finish(slot);
            slot->pause_until_ns = 0;
        }
        return;
    }
    if (err == SHOAL_OK) {
        if (slot->is_read)
            read_done(slot, payload);
        else
            added(slot, sh_get64(payload));
        return;
    }
    if (err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED) {
        chunk_lost(slot, err);
        return;
    }
    if ((err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT) && !slot->is_read &&
        !slot->is_asking_outcome)
        slot->is_unclear = true;
    again(slot, err);
}

static enum shoal_err add_send(struct slot *slot, shoal_nid nid)
{
    struct host *host = slot->host;
    if (slot->number && slot->number_nid.v != nid.v)
        number_finish(slot);
    if (!slot->number)
        slot->number = sh_once_number(numbers_of(host, nid));
    slot->number_nid = nid;
    struct sh_once_id id = {host->node + 1000, slot->number, numbers_of(host, nid)->finished};
    struct sh_out out;
    slot->is_asking_outcome = false;
    enum shoal_err err = sh_msg_request(host->msg, nid, SH_CHUNKS_ADD_ONCE,
                                        SH_ONCE_PREFIX_BYTES + 21, &slot->request, &out);
    if (err)
        return err;
    sh_once_id_put(&out.w, &id);
    sh_put64(&out.w, host->world->cids[slot->chunk].v);
    sh_put32(&out.w, slot->field * 8);
    sh_put8(&out.w, 8);
    sh_put64(&out.w, 1);
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

static enum shoal_err outcome_send(struct slot *slot, shoal_nid nid)
{
    struct host *host = slot->host;
    struct sh_out out;
    slot->is_asking_outcome = true;
    enum shoal_err err = sh_msg_request(host->msg, nid, SH_MOVES_OUTCOME, SH_MOVES_OUTCOME_BYTES,
                                        &slot->request, &out);
    if (err)
        return err;
    sh_put64(&out.w, host->world->cids[slot->chunk].v);
    sh_put64(&out.w, host->node + 1000);
    sh_put16(&out.w, slot->number_nid.v);
    sh_put64(&out.w, slot->number);
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

static enum shoal_err read_send(struct slot *slot, shoal_nid nid)
{
    struct host *host = slot->host;
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(host->msg, nid, SH_CHUNKS_GET_PART, 16, &slot->request, &out);
    if (err)
        return err;
    sh_put64(&out.w, host->world->cids[slot->chunk].v);
    sh_put32(&out.w, 0);
    sh_put32(&out.w, FIELDS * 8);
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

static void slot_send(struct slot *slot, shoal_nid nid)
{
    bool is_elsewhere = slot->is_unclear && slot->number_nid.v != nid.v;
    slot->request = (struct sh_request){.done = on_answer, .arg = slot};
    slot->pause_until_ns = UINT64_MAX; /* until the answer */
    slot->is_asking_outcome = false;
    enum shoal_err err = slot->is_read  ? read_send(slot, nid)
                         : is_elsewhere ? outcome_send(slot, nid)
                                        : add_send(slot, nid);
    if (err)
        again(slot, err);
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct slot *slot = op->arg;
    if (err == SHOAL_OK)
        slot_send(slot, nid);
    else if (err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED)
        chunk_lost(slot, err);
    else
        again(slot, err);
}

static void slot_begin(struct slot *slot)
{
    struct world *world = slot->host->world;
    slot->chunk = world->only_large ? LARGE : (unsigned)below(world, CHUNKS);
    if (world->is_lost[slot->chunk]) {
        slot_pause(slot);
        return;
    }
    slot->is_busy = true;
    slot->is_read = below(world, 3) == 0;
    slot->is_unclear = false;
    memcpy(slot->least, world->acked[slot->chunk], sizeof slot->least);
    if (!slot->is_read)
        world->begun[slot->chunk][slot->field]++;
}

static unsigned client_run(void *arg)
{
    struct host *host = arg;
    struct world *world = host->world;
    uint64_t now = now_at(host);
    unsigned work = 0;
    for (unsigned i = 0; i < SLOTS; i++) {
        struct slot *slot = &host->slots[i];
        if (now < slot->pause_until_ns)
            continue;
        if (!slot->is_busy && (world->ends || !world->cids[0].v))
            continue;
        if (!slot->is_busy)
            slot_begin(slot);
        if (!slot->is_busy)
            continue;
        shoal_nid nid;
        shoal_cid cid = world->cids[slot->chunk];
        work++;
        if (sh_directory_owner(host->directory, cid, &nid) == SHOAL_OK) {
            slot_send(slot, nid);
            continue;
        }
        slot->pause_until_ns = UINT64_MAX;
        slot->locate = (struct sh_locate){.done = on_located, .arg = slot};
        sh_directory_locate(host->directory, cid, &slot->locate);
    }
    return work;
}

static uint64_t client_due(void *arg)
{
    const struct host *host = arg;
    uint64_t due = UINT64_MAX;
    for (unsigned i = 0; i < SLOTS; i++) {
        const struct slot *slot = &host->slots[i];
        if ((slot->is_busy || !host->world->ends) && slot->pause_until_ns < due)
            due = slot->pause_until_ns;
    }
    return host->world->cids[0].v ? due : UINT64_MAX;
}

/* --- Hosts ----------------------------------------------------------------------------------- */

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct host *host = arg;
    if (host->superpeer)
        sh_superpeer_link_event(host->superpeer, event);
    if (host->member)
        sh_member_link_event(host->member, event);
    if (host->locks)
        sh_locks_link_event(host->locks, event);
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct host *host = arg;
    sh_locks_view(host->locks, view);
}

static unsigned servers_of(struct world *world, shoal_cid cid);

/* Before a peer's objects go: what may go with it. A chunk that another node serves is not among it,
 * though the peer may have a copy that was to replace that one, or was replaced. */
static inline void mourn(struct world *world, const struct host *host)
{
    shoal_nid self = sh_msg_nid(host->msg);
    for (unsigned i = 0; i < CHUNKS; i++) {
        shoal_cid cid = world->cids[i];
        sh_lid lid;
        uint32_t size;
        bool serves =
            sh_holdings_look(sh_chunks_holdings(host->chunks), self, cid, false, &lid) == SHOAL_OK;
        bool has = sh_store_size(host->store, sh_holdings_lid(self, cid), &size) == SHOAL_OK;
        if (serves || (has && servers_of(world, cid) == 0))
            world->may_be_lost[i] = true;
    }
}

/* A peer's next life begins in its process, as in shoald: as another node, and an empty one. */
static void renew(void *arg, uint64_t unused, uint64_t unused_too)
{
    struct host *host = arg;
    (void)unused;
    (void)unused_too;
    if (host->is_dead)
        return;
    mourn(host->world, host);
    host->world->fenced++;
    sh_world_crash(host->world->sim, host->node);
    sh_world_restart(host->world->sim, host->node);
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct host *host = arg;
    assert_int_equal(err, SHOAL_EFENCED);
    sh_world_at(host->world->sim, sh_world_now(host->world->sim), renew, host, 0, 0);
}

static void boot_superpeer(struct host *host, const struct sh_env *env)
{
    struct sh_superpeer_config config = {.msg = host->msg,
                                         .env = *env,
                                         .cluster = "test",
                                         .address = host->world->superpeer_addresses[host->index],
                                         .addresses = host->world->superpeer_addresses,
                                         .count = (uint16_t)host->world->superpeers,
                                         .index = host->index,
                                         .instance = sh_random64(&env->random) | 1,
                                         .heartbeat_ns = FAILURE / 10,
                                         .failure_ns = FAILURE};
    if (!host->has_disk)
        config.env.disk = NULL;
    assert_int_equal(sh_superpeer_create(&config, &host->superpeer), SHOAL_OK);
    sh_world_step_add(host->world->sim, host->node, sh_superpeer_step(host->superpeer));
}

static bool are_former_lost(void *arg)
{
    return ((const struct host *)arg)->world->are_former_lost;
}

static bool are_former_over(void *arg)
{
    const struct host *host = arg;
    return !host->has_former;
}

static void boot_peer(struct host *host, const struct sh_env *env, const char *address)
{
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    parts.are_former_over = are_former_over;
    parts.are_former_lost = are_former_lost;
    parts.arg = host;
    sh_sim_parts_hold(&parts, env, CHUNK_BYTES_MAX);
    /* All that is about chunks, as in a whole node. */
    for (unsigned operation = 0; operation < 256; operation++)
        sh_msg_leased_set(host->msg, SH_MSG_TYPE(2, operation), true);
    struct sh_member_config config = {.msg = host->msg,
                                      .directory = host->directory,
                                      .env = *env,
                                      .superpeers = host->world->superpeer_addresses,
                                      .superpeer_count = host->world->superpeers,
                                      .address = address,
                                      .instance = sh_random64(&env->random) | 1,
                                      .heartbeat_ns = FAILURE / 10,
                                      .failure_ns = FAILURE,
                                      .on_view = on_view,
                                      .on_failed = on_failed,
                                      .arg = host};
    assert_int_equal(sh_member_create(&config, &host->member), SHOAL_OK);
    sh_world_step_add(host->world->sim, host->node, sh_member_step(host->member));
    sh_world_step_add(host->world->sim, host->node, sh_locks_step(host->locks));
    sh_world_step_add(host->world->sim, host->node, sh_moves_step(host->moves));
}

static void boot(void *arg, struct sh_world *sim, unsigned node)
{
    struct host *host = arg;
    host->node = node;
    const struct sh_env *env = sh_world_env(sim, node);
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    struct sh_msg_config config = sh_sim_msg_config(env);
    config.nid.v = (uint16_t)(host->kind == SUPERPEER ? host->index + 1 : 0);
    config.connections_max = 64;
    config.on_event = on_event;
    config.arg = host;
    char bound[SH_MSG_ADDRESS_MAX];
    sh_sim_parts_talk(&parts, &config, sim, node, host->kind == CLIENT ? NULL : bound);
    if (host->kind == SUPERPEER) {
        boot_superpeer(host, env);
        return;
    }
    sh_sim_parts_know(&parts, env, host->kind == CLIENT);
    if (host->kind == PEER) {
        boot_peer(host, env, bound);
        return;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        host->slots[i] = (struct slot){.host = host, .field = host->index * SLOTS + i};
    sh_world_step_add(
        sim, node,
        (struct sh_step){.name = "client", .run = client_run, .due_ns = client_due, .arg = host});
}

static void host_drop(void *arg, struct sh_world *sim, unsigned node)
{
    (void)sim;
    (void)node;
    struct host *host = arg;
    struct sh_sim_parts parts = SH_SIM_PARTS(host);
    sh_sim_parts_drop(&parts, host->kind == CLIENT);
}

static struct host *host_add(struct world *world, enum kind kind, uint16_t index)
{
    struct host *host = &world->hosts[world->count++];
    assert_true(world->count <= HOSTS_MAX);
    *host = (struct host){.world = world, .kind = kind, .index = index, .has_disk = true};
    struct sh_world_node node = {.boot = boot, .crash = host_drop, .arg = host};
    (void)sh_world_node_add(world->sim, &node);
    return host;
}

/* --- What must always hold ------------------------------------------------------------------- */

static unsigned servers_of(struct world *world, shoal_cid cid)
{
    unsigned servers = 0;
    for (unsigned i = 0; i < world->count; i++) {
        struct host *host = &world->hosts[i];
        sh_lid lid;
        if (host->chunks && sh_holdings_look(sh_chunks_holdings(host->chunks),
                                             sh_msg_nid(host->msg), cid, false, &lid) == SHOAL_OK)
            servers++;
    }
    return servers;
}

/* For run_until: never true, and fails where an invariant does not hold. */
static bool watch(void *arg)
{
    struct world *world = arg;
    uint64_t now = sh_world_now(world->sim);
    if (now < world->watched_ns + WATCH)
        return false;
    world->watched_ns = now;
    for (unsigned i = 0; i < CHUNKS && world->cids[0].v; i++)
        HOLDS(world, servers_of(world, world->cids[i]) <= 1);
    return false;
}

static void run_for(struct world *world, uint64_t ns)
{
    (void)sh_world_run_until(world->sim, watch, world, sh_world_now(world->sim) + ns);
}

/* --- The end --------------------------------------------------------------------------------- */

static inline bool clients_idle(void *arg)
{
    struct world *world = arg;
    (void)watch(world);
    for (unsigned i = world->superpeers + world->peers; i < world->count; i++) {
        for (unsigned k = 0; k < SLOTS; k++) {
            const struct slot *slot = &world->hosts[i].slots[k];
            bool is_lost =
                world->may_be_lost[slot->chunk] && servers_of(world, world->cids[slot->chunk]) == 0;
            if (slot->is_busy && !is_lost)
                return false;
        }
    }
    return true;
}

/* What a chunk has behind its fields. */
static void bytes_fill(uint8_t *bytes, size_t size, unsigned chunk)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(chunk + i + (i >> 8));
}

/* Every chunk that was not lost is served by one node, with all that was acknowledged. */
static inline void check_end(struct world *world)
{
    uint64_t there = 0, stored = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        unsigned servers = servers_of(world, world->cids[i]);
        HOLDS(world, servers == 1 || (servers == 0 && world->may_be_lost[i]));
        there += servers;
        for (unsigned k = world->superpeers; servers && k < world->superpeers + world->peers; k++) {
            struct host *host = &world->hosts[k];
            uint8_t *bytes = malloc(2 * CHUNK_BYTES_MAX), *wanted = bytes + CHUNK_BYTES_MAX;
            uint32_t size;
            sh_lid lid;
            if (host->chunks &&
                sh_holdings_look(sh_chunks_holdings(host->chunks), sh_msg_nid(host->msg),
                                 world->cids[i], true, &lid) == SHOAL_OK) {
                enum shoal_err err = sh_store_get(host->store, lid, bytes, CHUNK_BYTES_MAX, &size);
                HOLDS(world, err == SHOAL_OK && size == world->sizes[i]);
                for (unsigned f = 0; f < FIELDS; f++)
                    HOLDS(world, sh_load64(bytes + 8 * f) >= world->acked[i][f]);
                bytes_fill(wanted, size - FIELDS * 8, i);
                HOLDS(world, memcmp(bytes + FIELDS * 8, wanted, size - FIELDS * 8) == 0);
            }
            free(bytes);
        }
    }
    for (unsigned k = 0; k < world->count; k++) {
        struct sh_store_status status = {0};
        if (world->hosts[k].store)
            sh_store_status_get(world->hosts[k].store, &status);
        stored += status.chunks;
    }
    /* No copy is left behind: what superpeers decide about a batch outlives them. */
    HOLDS(world, stored == there || !world->has_disk);
}

/* --- Making a world -------------------------------------------------------------------------- */

static bool all_joined(void *arg)
{
    struct world *world = arg;
    for (unsigned i = 0; i < world->count; i++) {
        const struct host *host = &world->hosts[i];
        if (host->kind == PEER && !host->is_dead && !sh_member_joined(host->member))
            return false;
    }
    return true;
}

static void chunks_make(struct world *world)
{
    uint8_t *bytes = malloc(CHUNK_BYTES_MAX);
    assert_non_null(bytes);
    struct host *first = &world->hosts[world->superpeers];
    sh_lid lids[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        world->sizes[i] =
            (uint32_t)(i % 4 == 0 ? 20000 + below(world, 20000) : 48 + below(world, 500));
    if (has_large)
        world->sizes[LARGE] = CHUNK_BYTES_MAX - (uint32_t)below(world, 100);
    assert_int_equal(sh_store_new(first->store, world->sizes, CHUNKS, lids), SHOAL_OK);
    for (unsigned i = 0; i < CHUNKS; i++) {
        world->cids[i] = shoal_cid_make(sh_msg_nid(first->msg), lids[i].v);
        bytes_fill(bytes, world->sizes[i], i);
        assert_int_equal(sh_store_put_part(first->store, lids[i], FIELDS * 8,
                                           sh_bytes_make(bytes, world->sizes[i] - FIELDS * 8)),
                         SHOAL_OK);
    }
    free(bytes);
}

static void world_open(struct world *world, unsigned superpeers, unsigned peers, bool has_disk)
{
    memset(world, 0, sizeof *world);
    struct sh_world_config config = {.seed = seed,
                                     .wire = {.delay_ns_min = MS / 20,
                                              .delay_ns_max = 2 * MS,
                                              .piece_ppm = 100000,
                                              .lost_ns_max = 5 * MS,
                                              .give_up_ns_max = FAILURE / 10,
                                              .window_bytes_min = 4096,
                                              .window_bytes_max = 65536},
                                     .disk = {.delay_ns_min = MS / 10, .delay_ns_max = 5 * MS},
                                     .skip_ppm = 50000};
    world->sim = sh_world_create(&config);
    world->prng = sh_world_prng(world->sim);
    world->superpeers = superpeers;
    world->peers = peers;
    world->has_disk = has_disk;
    for (unsigned i = 0; i < superpeers; i++) {
        (void)snprintf(world->addresses[i], sizeof world->addresses[i], "node%u:1", i);
        world->superpeer_addresses[i] = world->addresses[i];
    }
    for (unsigned i = 0; i < superpeers; i++) {
        struct host *host = host_add(world, SUPERPEER, (uint16_t)i);
        host->has_disk = true;
    }
    if (!has_disk) {
        for (unsigned i = 0; i < superpeers; i++) {
            world->hosts[i].has_disk = false;
            sh_world_crash(world->sim, i);
            sh_world_restart(world->sim, i);
        }
    }
    for (unsigned i = 0; i < peers; i++)
        (void)host_add(world, PEER, (uint16_t)i);
    if (!sh_world_run_until(world->sim, all_joined, world, 10 * S))
        fail_msg("seed %" PRIu64 ": not all joined", seed);
    for (unsigned i = 0; i < CLIENTS; i++) {
        struct host *client = host_add(world, CLIENT, (uint16_t)i);
        client->is_refreshing = true;
        client->refresh = (struct sh_directory_op){.done = on_refreshed, .arg = client};
        sh_directory_bootstrap(client->directory, world->superpeer_addresses, superpeers,
                               &client->refresh);
    }
    run_for(world, FAILURE);
    chunks_make(world);
}

static void world_close(struct world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (world->hosts[i].msg)
            host_drop(&world->hosts[i], world->sim, i);
    }
    sh_world_destroy(world->sim);
}

#endif
