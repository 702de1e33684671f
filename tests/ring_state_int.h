/* A register in each of three shards of the ring, which superpeers of a simulated world
 * (ring_rig_int.h) keep, and what must hold of it whatever happens:
 *
 *   one answers          at no time may two superpeers answer for a shard
 *   applied is stored    what an owner applies, and so answers, is on the disks of all replicas, by
 *                        what the disks have; and no other superpeer applies what no owner has
 *   nothing is undone    every superpeer that applies an update at a sequence of a shard applies the
 *                        same one, also after it was killed
 *   linearizability      of what clients saw of the registers (sim/linear.h)
 *   nothing is lost      once built, a shard is never built again, whoever is killed
 */
#ifndef TESTS_RING_STATE_INT_H
#define TESTS_RING_STATE_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "ring/ring.h"
#include "sim/linear.h"
#include "sim/world.h"
#include "tests/copies_int.h"
#include "tests/disk_notes_int.h"
#include "tests/starts_int.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define RESEND (20 * MS)
#define PATIENCE (200 * MS)
#define POLL (20 * MS)
#define LEASE (150 * MS)
#define FAILURE (250 * MS)
#define SERVERS_MAX 7
#define KEYS 3
#define SEQUENCE_MAX 2048
#define CALLS_MAX 400
#define SNAPSHOT_BYTES 200 /* more than a piece */
#define LIFE_STREAM 0
#define FIRST_STREAM 1

static const unsigned key_shards[KEYS] = {3, 20, 41};

struct call {
    bool is_open;
    uint64_t epoch, sequence, boot;
    unsigned server, key;
};

struct rig;

/* What a superpeer would have after a crash: of each register's shard the last update of its log; 0: it
 * has nothing of it. */
struct stored {
    struct disk_note note;
    uint64_t last[KEYS];
};

struct server {
    struct rig *rig;
    unsigned node;
    uint8_t nid;
    struct disk_notes disk;
    struct sh_arcs seen; /* the table that it has taken last */
    struct sh_ring *ring;
    struct sh_journal *journal;
    uint64_t boot;   /* of all boots of all servers the last of this one */
    uint32_t starts; /* of its disk */
    sh_lsn life_lsn; /* with which this start is on the disk */
    bool is_paused;  /* by the test */
    bool is_cut;     /* from the registry */
    bool is_absent;  /* it is not meant to be there: not started yet, or retired */
    bool is_started;
    uint64_t table; /* the last one that it has seen */
    uint64_t poll_ns;
    struct state states[SH_SHARDS];
    bool has[SH_SHARDS];
    uint64_t build_version[SH_SHARDS];
    uint64_t build_ns[SH_SHARDS]; /* 0: nothing is being built */
    struct letter *inbox, **inbox_end;
};

/* To the registry, from it, or between servers. */
struct letter {
    struct letter *next, **before; /* all of them, for the end */
    struct letter *in_next;
    struct rig *rig;
    unsigned server; /* to it; to the registry: whose it is */
    uint8_t from;
    uint64_t boot; /* of that server */
    struct sh_ring_message *message;
    struct sh_arcs *arcs;
    uint64_t table, sent_ns, life;
    struct sh_arc_change change; /* kind 0: none */
};

struct rig {
    struct sh_world *world;
    struct sh_prng prng;
    uint64_t seed;
    struct server servers[SERVERS_MAX];
    unsigned count;
    uint64_t boots;
    struct lines lines;
    struct letter *letters;
    /* The registry. */
    struct sh_arcs arcs;
    uint64_t table;
    uint64_t heard_ns[SERVERS_MAX];
    bool had_quorum;
    bool had[SH_SHARDS]; /* the shard had replicas */
    bool retired[SERVERS_MAX];
    /* What was seen. */
    struct chosen chosen[KEYS][SEQUENCE_MAX];
    uint64_t applied[KEYS]; /* by any owner */
    struct linear_op ops[CALLS_MAX];
    struct call calls[CALLS_MAX];
    unsigned left_alone; /* the ID of a server that must not be the one that answers */
    size_t padding;      /* bytes by which the snapshots of the first register's shard are larger */
    unsigned ops_count, answered, snapshots, builds;
    unsigned unjudged;     /* histories that were too large for the check of linearizability */
    bool leases_never_end; /* a planted mistake */
    bool answers_early;    /* another */
    const char *broken;
};

static void violated(struct rig *rig, const char *what)
{
    if (!rig->broken)
        rig->broken = what;
}

static uint64_t life_of(const struct server *server)
{
    return (uint64_t)server->starts << 32 | (uint32_t)server->boot;
}

static uint64_t now_at(const struct server *server)
{
    return sh_now(&sh_world_env(server->rig->world, server->node)->clock);
}

static int key_of(unsigned shard)
{
    for (int i = 0; i < KEYS; i++) {
        if (key_shards[i] == shard)
            return i;
    }
    return -1;
}

/* --- The state ------------------------------------------------------------------------------- */

static void check_chosen(struct rig *rig, unsigned shard, const struct state *state)
{
    int key = key_of(shard);
    if (key < 0 || !state->applied)
        return;
    if (state->applied >= SEQUENCE_MAX) {
        violated(rig, "the test's table is too small");
        return;
    }
    if (!chosen_holds(&rig->chosen[key][state->applied], state))
        violated(rig, "two superpeers applied different updates at one place");
}

static void call_end(struct rig *rig, unsigned at, enum linear_result result)
{
    rig->ops[at].end = sh_world_now(rig->world) + 1;
    rig->ops[at].result = result;
    rig->calls[at].is_open = false;
    rig->answered++;
}

static void calls_look(struct server *server, unsigned shard, uint64_t epoch, uint64_t sequence,
                       enum linear_result result)
{
    struct rig *rig = server->rig;
    for (unsigned i = 0; i < rig->ops_count; i++) {
        const struct call *call = &rig->calls[i];
        if (call->is_open && call->boot == server->boot && key_shards[call->key] == shard &&
            call->epoch == epoch && call->sequence == sequence)
            call_end(rig, i, result);
    }
}

/* An update is applied: by the owner of a version, as far as it knows, when all replicas have it. */
static void check_stored(struct server *server, unsigned shard, uint64_t sequence)
{
    struct rig *rig = server->rig;
    int key = key_of(shard);
    if (key < 0)
        return;
    const struct sh_shard *seen = &server->seen.shards[shard];
    if (seen->owner != server->nid && sequence > rig->applied[key])
        violated(rig, "a replica applied what no owner has applied");
    if (seen->owner != server->nid)
        return;
    if (sequence > rig->applied[key])
        rig->applied[key] = sequence;
    for (unsigned i = 0; i < rig->count; i++) {
        const struct server *replica = &rig->servers[i];
        const struct stored *stored = (const struct stored *)replica->disk.now;
        /* In a later version it may have dropped what it had stored. */
        if (!(seen->replicas & sh_arc_bit(i + 1)) ||
            replica->seen.shards[shard].version > seen->version)
            continue;
        if (!stored || stored->last[key] < sequence)
            violated(rig, "an owner applied what a replica has not stored");
    }
}

static struct disk_note *stored_make(const struct server *server)
{
    struct stored *stored = calloc(1, sizeof *stored);
    assert_non_null(stored);
    for (unsigned i = 0; i < KEYS; i++)
        stored->last[i] = sh_ring_last(server->ring, key_shards[i]);
    return &stored->note;
}

static void fsm_apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                      struct sh_bytes command)
{
    struct server *server = arg;
    struct state *state = &server->states[shard];
    if (!server->has[shard] || sequence != state->applied + 1)
        violated(server->rig, "an update came out of order");
    uint64_t value;
    enum linear_result result = command_apply(state, command, &value);
    state->applied = sequence;
    state->hash = sh_mix64(state->hash + sh_mix64(epoch) + sh_crc32c(0, command));
    check_chosen(server->rig, shard, state);
    check_stored(server, shard, sequence);
    calls_look(server, shard, epoch, sequence, result);
}

/* A copy of a state, or one that comes together: padded, so that it is more than a piece. */
struct copy {
    unsigned shard;
    size_t at;
    uint8_t bytes[SNAPSHOT_BYTES];
};

static enum shoal_err fsm_snapshot_begin(void *arg, unsigned shard, void **snapshot_out)
{
    struct server *server = arg;
    struct copy *copy = calloc(1, sizeof *copy);
    assert_non_null(copy);
    copy->shard = shard;
    struct sh_writer w = sh_writer_make(copy->bytes, sizeof copy->bytes);
    state_put(&w, &server->states[shard]);
    if (!server->has[shard])
        violated(server->rig, "a snapshot of what is not there");
    *snapshot_out = copy;
    return SHOAL_OK;
}

static size_t fsm_snapshot_next(void *arg, void *snapshot, uint8_t *into, size_t room)
{
    const struct server *server = arg;
    struct copy *copy = snapshot;
    size_t all = key_of(copy->shard) < 0 ? STATE_BYTES : SNAPSHOT_BYTES;
    if (key_of(copy->shard) == 0)
        all += server->rig->padding;
    size_t size = all - copy->at < room ? all - copy->at : room;
    memset(into, 0, size);
    for (size_t i = 0; i < size && copy->at + i < sizeof copy->bytes; i++)
        into[i] = copy->bytes[copy->at + i];
    copy->at += size;
    return size;
}

static void fsm_snapshot_end(void *arg, void *snapshot)
{
    (void)arg;
    free(snapshot);
}

static enum shoal_err fsm_restore_begin(void *arg, unsigned shard, void **restore_out)
{
    (void)arg;
    struct copy *copy = calloc(1, sizeof *copy);
    assert_non_null(copy);
    copy->shard = shard;
    *restore_out = copy;
    return SHOAL_OK;
}

static enum shoal_err fsm_restore_piece(void *arg, void *restore, struct sh_bytes piece)
{
    struct server *server = arg;
    struct copy *copy = restore;
    if (piece.size > sizeof copy->bytes - copy->at) {
        violated(server->rig, "a snapshot has too many pieces");
        return SHOAL_EPROTO;
    }
    memcpy(copy->bytes + copy->at, piece.at, piece.size);
    copy->at += piece.size;
    return SHOAL_OK;
}

static enum shoal_err fsm_restore_end(void *arg, void *restore, bool install)
{
    struct server *server = arg;
    struct copy *copy = restore;
    size_t all = key_of(copy->shard) < 0 ? STATE_BYTES : SNAPSHOT_BYTES;
    if (install) {
        struct sh_reader r = sh_reader_make(sh_bytes_make(copy->bytes, copy->at));
        struct state state = state_get(&r);
        if (copy->at != all)
            violated(server->rig, "a snapshot was installed that is not whole");
        server->states[copy->shard] = state;
        server->has[copy->shard] = true;
        server->rig->snapshots++;
        check_chosen(server->rig, copy->shard, &state);
    }
    free(copy);
    return SHOAL_OK;
}

static void fsm_clear(void *arg, unsigned shard)
{
    struct server *server = arg;
    server->has[shard] = false;
    server->states[shard] = (struct state){0};
}

static void fsm_build(void *arg, unsigned shard, uint64_t version)
{
    struct server *server = arg;
    server->build_version[shard] = version;
    server->build_ns[shard] = now_at(server) + 5 * MS;
    server->rig->builds++;
    if (server->rig->had[shard])
        violated(server->rig, "a shard that was there is built anew");
}

static unsigned builds_step(struct server *server, uint64_t now_ns)
{
    unsigned work = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (!server->build_ns[i] || now_ns < server->build_ns[i])
            continue;
        server->build_ns[i] = 0;
        if (sh_ring_owner(server->ring, i) != server->nid)
            continue;
        server->states[i] = (struct state){0};
        server->has[i] = true;
        sh_ring_built(server->ring, now_ns, i, server->build_version[i]);
        work++;
    }
    return work;
}

#endif
