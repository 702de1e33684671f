/* A node alone, on a real disk: its store, its backup and its log, with a recorder at the disk door (recorder_int.h). The run is
 * cut at any place, and what the disk may have had there is brought back: the store opens; each write that was acknowledged before
 * the place, at the level that the failure spares, is there, or a later one of its chunk; nothing is there that nobody wrote; and of
 * each zone's writes none is there while an earlier one is missing.
 *
 * SHOAL_TEST_STATES: how many states of a run (default 400). SHOAL_TEST_SEED: of what is drawn; the times are the real disk's, so
 * that a seed does not give the same record again, and a failure says all that is known of its state. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/backup_node_int.h"
#include "tests/recorder_int.h"
#include "tests/seed_int.h"

#define IDS 8192u /* local IDs that are in use at most */
#define OPS 40u
#define CHANGES 40u
#define LIVES 3u
#define ACTS 2000u /* of a life */
#define LIVE_BYTES_MAX (UINT64_C(2) << 20)
#define ZONES 1024u
#define ABSENT UINT32_MAX
#define NEVER RECORDER_NEVER
#define UNKNOWN UINT32_MAX

/* What a chunk was from one place of the record on. */
struct state {
    uint64_t hash;
    size_t made;             /* the place */
    size_t gone;             /* the place where a life began that did not find it */
    size_t acked[SH_LEVELS]; /* the place of its acknowledgement */
    uint32_t zone;           /* in whose order it is; UNKNOWN */
    uint32_t write;          /* its place in that order, which the changes of one write share */
    bool is_retold;          /* another zone has it, too */
};

struct chunk {
    uint32_t size; /* as it is; ABSENT */
    uint32_t zone; /* of its last state */
    uint8_t *bytes;
    struct state *states;
    size_t count, room;
};

/* A write until it is acknowledged. */
struct op {
    struct run *run;
    struct sh_write write;
    bool is_busy;
    unsigned count;
    struct {
        unsigned id;
        size_t state;
    } changes[CHANGES];
    struct sh_store_rewriting *rewriting; /* of a large chunk */
    unsigned large;                       /* its ID */
    uint8_t *large_bytes;
    uint32_t large_size;
};

struct run {
    struct sh_prng prng;
    uint64_t seed;
    struct sh_disk *real;
    struct recorder *recorder;
    struct backup_node node;
    struct chunk chunks[IDS];
    struct op ops[OPS];
    unsigned ids; /* above all that were ever there */
    uint64_t live;
    uint32_t writes;
    unsigned levels; /* writes are drawn from so many */
    unsigned sheds;  /* so many acts remove chunks, so that zones have few */
    size_t *acks;    /* the places of acknowledgements, each once */
    size_t acks_count, acks_room;
    uint64_t evacuated; /* chunks, in this life */
};

static struct {
    unsigned acked[SH_LEVELS], refused, large, abandoned, grown, removed, moved, evacuated;
    uint64_t dropped;
} all;
static uint8_t scratch[NODE_CHUNK_BYTES_MAX];

static shoal_cid cid_of(unsigned id)
{
    return shoal_cid_make((shoal_nid){NODE_NID}, id);
}

/* --- Zones ------------------------------------------------------------------------------------- */

/* The number of the zone that a chunk is of now, which is the same in all lives; UNKNOWN: of none. */
static uint32_t zone_now(const struct run *run, unsigned id)
{
    uint64_t number;
    if (!sh_backup_zone_number(run->node.backup, cid_of(id), &number))
        return UNKNOWN;
    assert_true(number < ZONES);
    return (uint32_t)number;
}

/* Chunks may have moved to other zones in the step, as they are: such a state may come back by way of either zone. */
static void evacuated_look(struct run *run)
{
    struct sh_backup_status status;
    sh_backup_status_get(run->node.backup, &status);
    if (status.evacuated == run->evacuated)
        return;
    run->evacuated = status.evacuated;
    for (unsigned id = 1; id < run->ids; id++) {
        struct chunk *chunk = &run->chunks[id];
        uint32_t zone = chunk->count && chunk->size != ABSENT ? zone_now(run, id) : chunk->zone;
        if (zone == chunk->zone)
            continue;
        chunk->zone = zone;
        chunk->states[chunk->count - 1].is_retold = true;
        all.evacuated++;
    }
}

static void step(struct run *run)
{
    const struct sh_clock clock = sh_real_clock();
    uint64_t now = sh_now(&clock);
    (void)sh_backup_step(run->node.backup, now, backup_node_seconds(now));
    (void)sh_disk_poll(&run->recorder->base, false);
    assert_int_equal(sh_replog_trouble(run->node.log), SHOAL_OK);
    evacuated_look(run);
}

/* --- The model --------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *bytes, uint32_t size)
{
    return size == ABSENT ? 0 : sh_hash64(sh_bytes_make(bytes, size), size + UINT64_C(1)) | 1;
}

static void chunk_now(struct run *run, struct chunk *chunk, const uint8_t *bytes, uint32_t size)
{
    run->live -= chunk->bytes && chunk->size != ABSENT ? chunk->size : 0;
    run->live += size == ABSENT ? 0 : size;
    if (size != ABSENT) {
        uint8_t *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        memcpy(copy, bytes, size);
        free(chunk->bytes);
        chunk->bytes = copy;
    }
    chunk->size = size;
}

/* A write has given a chunk a new state; bytes are copied. */
static void changed(struct op *op, unsigned id, const uint8_t *bytes, uint32_t size)
{
    struct run *run = op->run;
    struct chunk *chunk = &run->chunks[id];
    assert_true(id < IDS && op->count < CHANGES);
    uint32_t zone = zone_now(run, id);
    assert_true(zone != UNKNOWN);
    all.moved += chunk->count && chunk->zone != UNKNOWN && zone != chunk->zone;
    struct state state = {.hash = hash_of(bytes, size),
                          .made = run->recorder->events_count,
                          .gone = NEVER,
                          .acked = {NEVER, NEVER, NEVER},
                          .zone = zone,
                          .write = run->writes};
    chunk->states = recorder_more(chunk->states, chunk->count, &chunk->room, sizeof state);
    chunk->zone = state.zone;
    op->changes[op->count].id = id;
    op->changes[op->count++].state = chunk->count;
    chunk->states[chunk->count++] = state;
    chunk_now(run, chunk, bytes, size);
    run->ids = id >= run->ids ? id + 1 : run->ids;
}

static void op_end(struct op *op)
{
    if (op->rewriting)
        (void)!sh_store_rewriting_end(op->rewriting);
    free(op->large_bytes);
    *op = (struct op){.run = op->run};
}

static void ack_note(struct run *run)
{
    size_t place = run->recorder->events_count;
    if (run->acks_count && run->acks[run->acks_count - 1] == place)
        return;
    run->acks = recorder_more(run->acks, run->acks_count, &run->acks_room, sizeof place);
    run->acks[run->acks_count++] = place;
}

static void on_acked(void *arg, enum shoal_err err)
{
    struct op *op = arg;
    assert_int_equal(err, SHOAL_OK);
    for (unsigned i = 0; i < op->count; i++) {
        struct state *state = &op->run->chunks[op->changes[i].id].states[op->changes[i].state];
        for (unsigned level = SH_LEVEL_REPLICATED; level <= op->write.level; level++)
            state->acked[level] = op->run->recorder->events_count;
    }
    all.acked[op->write.level] += op->count;
    ack_note(op->run);
    op_end(op);
}

/* --- Acting ------------------------------------------------------------------------------------ */

static struct op *op_begin(struct run *run)
{
    for (unsigned i = 0; i < OPS; i++) {
        struct op *op = &run->ops[i];
        if (op->is_busy)
            continue;
        *op = (struct op){.run = run, .is_busy = true};
        sh_write_begin(&op->write, (enum sh_level)sh_prng_below(&run->prng, run->levels));
        return op;
    }
    return NULL;
}

static void op_wait(struct op *op)
{
    if (!sh_write_wait(op->run->node.backup, &op->write, on_acked, op))
        on_acked(op, SHOAL_OK);
}

/* It was done, or there was no room for now. */
static bool was_done(enum shoal_err err)
{
    all.refused += err == SHOAL_EAGAIN;
    if (err && err != SHOAL_EAGAIN)
        fail_msg("a write: %s", shoal_err_name(err));
    return !err;
}

static bool is_large_busy(const struct run *run)
{
    for (unsigned i = 0; i < OPS; i++) {
        if (run->ops[i].rewriting)
            return true;
    }
    return false;
}

/* A chunk that is there; 0: none was found. Half of them are among the first few, which so get many states. */
static unsigned id_drawn(struct run *run)
{
    for (unsigned i = 0; run->ids > 1 && i < 20; i++) {
        unsigned below = sh_prng_below(&run->prng, 2) && run->ids > 40 ? 40 : run->ids;
        unsigned id = 1 + (unsigned)sh_prng_below(&run->prng, below - 1);
        if (run->chunks[id].count && run->chunks[id].size != ABSENT)
            return id;
    }
    return 0;
}

static uint32_t size_drawn(struct run *run)
{
    unsigned kind = (unsigned)sh_prng_below(&run->prng, 100);
    if (kind < 3 && run->live < LIVE_BYTES_MAX * 3 / 4)
        return 262145 + (uint32_t)sh_prng_below(&run->prng, NODE_CHUNK_BYTES_MAX - 262145);
    return (uint32_t)sh_prng_below(&run->prng, kind < 12 ? 40000 : 200);
}

static void bytes_drawn(struct run *run, uint8_t *bytes, uint32_t size)
{
    uint64_t stamp = sh_prng_next(&run->prng);
    memset(bytes, (int)(stamp >> 8 & 0xff), size);
    memcpy(bytes, &stamp, size < sizeof stamp ? size : sizeof stamp);
}

static void create_some(struct run *run, struct op *op)
{
    shoal_cid cids[CHANGES];
    uint32_t sizes[CHANGES];
    size_t count = sh_prng_below(&run->prng, 4) ? 1 : 1 + sh_prng_below(&run->prng, CHANGES);
    for (size_t i = 0; i < count; i++)
        sizes[i] = size_drawn(run);
    const struct sh_store_wish wish = {.sizes = sizes, .count = count};
    if (!was_done(sh_backup_new_as(run->node.backup, &op->write, &wish, cids, NULL)))
        return;
    memset(scratch, 0, sizeof scratch);
    for (size_t i = 0; i < count; i++)
        changed(op, (unsigned)shoal_cid_local(cids[i]), scratch, sizes[i]);
}

static void remove_some(struct run *run, struct op *op)
{
    shoal_cid cids[CHANGES];
    enum shoal_err errs[CHANGES];
    unsigned count = 1 + (unsigned)sh_prng_below(&run->prng, 20);
    for (unsigned i = 0; i < count; i++)
        cids[i] = cid_of(id_drawn(run));
    (void)sh_backup_remove_multi(run->node.backup, &op->write, cids, count, errs);
    for (unsigned i = 0; i < count; i++) {
        if (errs[i] == SHOAL_ENOCHUNK || !was_done(errs[i]))
            continue;
        changed(op, (unsigned)shoal_cid_local(cids[i]), NULL, ABSENT);
        all.removed++;
    }
}

static void put_some(struct run *run, struct op *op)
{
    static uint8_t bytes[CHANGES][256];
    struct sh_store_op ops[CHANGES];
    unsigned count = 0;
    for (unsigned i = 0; i < CHANGES; i++) {
        unsigned id = id_drawn(run);
        uint32_t size = run->chunks[id].size;
        bool is_twice = false;
        for (unsigned k = 0; k < count; k++)
            is_twice = is_twice || ops[k].lid.v == cid_of(id).v;
        if (!id || size > sizeof bytes[0] || is_twice)
            continue;
        bytes_drawn(run, bytes[count], size);
        ops[count] = (struct sh_store_op){.lid = cid_of(id), .data = bytes[count], .size = size};
        count++;
    }
    (void)sh_backup_put_multi(run->node.backup, &op->write, ops, count);
    for (unsigned i = 0; i < count; i++) {
        if (was_done(ops[i].err))
            changed(op, (unsigned)shoal_cid_local(ops[i].lid), ops[i].data, ops[i].size);
    }
}

/* Draws a change of a chunk; the bytes that come of it are in scratch, up to *size_out. */
static struct sh_store_rewrite rewrite_drawn(struct run *run, unsigned id, uint32_t *size_out)
{
    static uint8_t data[sizeof scratch];
    static uint64_t old;
    const struct chunk *chunk = &run->chunks[id];
    uint32_t size = chunk->size;
    unsigned kind = (unsigned)sh_prng_below(&run->prng, 6);
    struct sh_store_rewrite rewrite = {.kind = SH_STORE_PUT, .cid = cid_of(id)};
    memcpy(scratch, chunk->bytes, size);
    memset(scratch + size, 0, sizeof scratch - size);
    if (kind == 0) {
        rewrite.kind = SH_STORE_RESIZE;
        rewrite.size = size = size_drawn(run);
    } else if (kind == 1 && size >= 8) {
        uint64_t value;
        rewrite.kind = SH_STORE_ADD;
        rewrite.width = 8;
        rewrite.delta = sh_prng_next(&run->prng);
        rewrite.old_out = &old;
        memcpy(&value, scratch, 8);
        value += rewrite.delta;
        memcpy(scratch, &value, 8);
    } else if (kind == 2 && size >= 4) {
        rewrite.kind = SH_STORE_PUT_PART;
        rewrite.offset = (uint32_t)sh_prng_below(&run->prng, size - 3);
        bytes_drawn(run, data, 4);
        rewrite.data = sh_bytes_make(data, 4);
        memcpy(scratch + rewrite.offset, data, 4);
    } else {
        if (kind == 3) {
            rewrite.kind = SH_STORE_PUT_IF;
            rewrite.expected = sh_bytes_make(chunk->bytes, size);
        }
        bytes_drawn(run, data, size);
        rewrite.data = sh_bytes_make(data, size);
        memcpy(scratch, data, size);
    }
    *size_out = size;
    return rewrite;
}

/* Goes on with a large chunk, which nobody else changes meanwhile. */
static void large_step(struct run *run, struct op *op)
{
    bool is_over = sh_backup_rewriting_step(run->node.backup, &op->write, op->rewriting);
    if (!is_over && sh_prng_below(&run->prng, 40))
        return;
    enum shoal_err err = sh_store_rewriting_end(op->rewriting);
    op->rewriting = NULL;
    all.large += is_over;
    all.abandoned += !is_over;
    if (is_over && was_done(err))
        changed(op, op->large, op->large_bytes, op->large_size);
    op_wait(op);
}

static void change_one(struct run *run, struct op *op)
{
    unsigned id = id_drawn(run);
    uint32_t size;
    if (!id)
        return;
    struct sh_store_rewrite rewrite = rewrite_drawn(run, id, &size);
    enum shoal_err err = sh_backup_rewrite(run->node.backup, &op->write, &rewrite);
    if (err == SHOAL_ELIMIT && !is_large_busy(run)) {
        assert_int_equal(sh_store_rewriting_begin(run->node.store, &rewrite, &op->rewriting),
                         SHOAL_OK);
        op->large = id;
        op->large_size = size;
        op->large_bytes = malloc(size);
        assert_non_null(op->large_bytes);
        memcpy(op->large_bytes, scratch, size);
    } else if (err != SHOAL_ELIMIT && was_done(err)) {
        changed(op, id, scratch, size);
    }
}

/* A chunk grows much, so that it may move to another zone. */
static void grow(struct run *run, struct op *op)
{
    unsigned id = id_drawn(run);
    uint32_t size = 20000 + (uint32_t)sh_prng_below(&run->prng, 60000);
    const struct sh_store_rewrite grow = {.kind = SH_STORE_RESIZE, .cid = cid_of(id), .size = size};
    uint32_t before = run->chunks[id].size;
    if (!id || before >= size || run->live > LIVE_BYTES_MAX)
        return;
    memcpy(scratch, run->chunks[id].bytes, before);
    memset(scratch + before, 0, size - before);
    if (!was_done(sh_backup_rewrite(run->node.backup, &op->write, &grow)))
        return;
    changed(op, id, scratch, size);
    all.grown++;
}

/* False: as many writes as there can be are waiting, and the disk has to get on. */
static bool act(struct run *run)
{
    for (unsigned i = 0; i < OPS; i++) {
        if (run->ops[i].rewriting && sh_prng_below(&run->prng, 2))
            large_step(run, &run->ops[i]);
    }
    struct op *op = op_begin(run);
    if (!op)
        return false;
    run->writes++;
    unsigned kind = (unsigned)sh_prng_below(&run->prng, 20);
    if (!run->sheds && sh_prng_below(&run->prng, 700) == 0)
        run->sheds = 50;
    if (run->sheds && !is_large_busy(run)) {
        run->sheds--;
        remove_some(run, op);
    } else if (kind < 4 && run->live < LIVE_BYTES_MAX && run->ids < IDS - CHANGES)
        create_some(run, op);
    else if (is_large_busy(run))
        (void)0; /* a large chunk is changed alone, so that the model knows in which order */
    else if (kind < 6)
        remove_some(run, op);
    else if (kind == 6)
        grow(run, op);
    else if (kind < 12)
        put_some(run, op);
    else
        change_one(run, op);
    if (!op->rewriting)
        op_wait(op);
    return true;
}

/* --- Checking ---------------------------------------------------------------------------------- */

/* A place of the record, and how the power or the process ended there. */
struct cut {
    const struct run *run;
    size_t place;
    bool is_power;
    enum replay_luck luck;
    uint64_t number;
    /* Of each zone, by the chunks that were looked at: the last write that is there, and the first that is not. */
    uint32_t there[ZONES], missing[ZONES];
    unsigned there_id[ZONES], missing_id[ZONES]; /* of which chunks they are */
    uint64_t later, bounds;
};

static void cut_fail(const struct cut *cut, const char *why, unsigned id)
{
    fail_msg("seed %llu, state %llu (place %zu of %zu, %s, luck %u): %s (%u)",
             (unsigned long long)cut->run->seed, (unsigned long long)cut->number, cut->place,
             cut->run->recorder->events_count, cut->is_power ? "power failure" : "end of process",
             cut->luck, why, id);
}

static bool is_possible(const struct state *state, size_t place)
{
    return state->made <= place && place < state->gone;
}

/* The first state that a chunk may be in, counted from 1; 0: it may never have been there. */
static size_t first_allowed(const struct cut *cut, const struct chunk *chunk)
{
    enum sh_level level = cut->is_power ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED;
    for (size_t i = chunk->count; i > 0; i--) {
        const struct state *state = &chunk->states[i - 1];
        if (state->acked[level] <= cut->place && is_possible(state, cut->place))
            return i;
    }
    return 0;
}

static void zone_has(struct cut *cut, unsigned id, const struct state *state)
{
    if (state->is_retold)
        return;
    if (cut->there[state->zone] < state->write) {
        cut->there[state->zone] = state->write;
        cut->there_id[state->zone] = id;
    }
    cut->bounds++;
}

static void zone_lacks(struct cut *cut, unsigned id, const struct state *state)
{
    if (cut->missing[state->zone] > state->write) {
        cut->missing[state->zone] = state->write;
        cut->missing_id[state->zone] = id;
    }
}

static void states_print(const struct chunk *chunk, uint64_t is, size_t first)
{
    print_message("its hash is %llx, allowed from state %zu on of these:\n", (unsigned long long)is,
                  first);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct state *state = &chunk->states[i];
        print_message("%zu: %llx, made at %zu, gone at %zd, acknowledged at %zd and %zd, zone %u, "
                      "write %u, retold %d\n",
                      i + 1, (unsigned long long)state->hash, state->made, (ssize_t)state->gone,
                      (ssize_t)state->acked[SH_LEVEL_REPLICATED],
                      (ssize_t)state->acked[SH_LEVEL_DURABLE], state->zone, state->write,
                      state->is_retold);
    }
}

/* Returns the state in which a chunk is, counted from 1, the last one if there are several; 0: it was never there. */
static size_t chunk_check(struct cut *cut, const struct backup_node *node, unsigned id)
{
    const struct chunk *chunk = &cut->run->chunks[id];
    uint32_t size = 0;
    enum shoal_err err = sh_store_get(node->store, cid_of(id), scratch, sizeof scratch, &size);
    if (err && err != SHOAL_ENOCHUNK)
        cut_fail(cut, "a chunk can't be read", id);
    uint64_t is = err ? 0 : hash_of(scratch, size);
    size_t first = first_allowed(cut, chunk), last = 0;
    unsigned fitting = first == 0 && err;
    bool is_found = fitting;
    for (size_t i = first ? first : 1; i <= chunk->count; i++) {
        const struct state *state = &chunk->states[i - 1];
        if (!is_possible(state, cut->place) || state->hash != is)
            continue;
        is_found = true;
        fitting++;
        last = i;
    }
    if (!is_found) {
        states_print(chunk, is, first);
        cut_fail(cut, "a chunk is in no state that it may be in", id);
    }
    if (fitting == 1 && last)
        zone_has(cut, id, &chunk->states[last - 1]);
    for (size_t i = last; i < chunk->count; i++) {
        if (is_possible(&chunk->states[i], cut->place))
            zone_lacks(cut, id, &chunk->states[i]);
    }
    cut->later += last > first;
    return last;
}

static void zones_check(struct cut *cut)
{
    for (uint32_t zone = 0; zone < ZONES; zone++) {
        if (cut->there[zone] <= cut->missing[zone])
            continue;
        print_message("zone %u has write %u, and lacks write %u\n", zone, cut->there[zone],
                      cut->missing[zone]);
        states_print(&cut->run->chunks[cut->there_id[zone]], 0, 0);
        states_print(&cut->run->chunks[cut->missing_id[zone]], 0, 0);
        cut_fail(cut, "a zone has a later write, and lacks an earlier one", zone);
    }
}

static void cut_init(struct cut *cut)
{
    memset(cut->there, 0, sizeof cut->there);
    memset(cut->missing, 0xff, sizeof cut->missing);
}

/* The node is open again: what it did not find is gone, and what it found is what the chunks are. */
static void run_found(struct run *run)
{
    static struct cut cut;
    cut = (struct cut){.run = run, .place = run->recorder->events_count};
    cut_init(&cut);
    for (unsigned id = 1; id < run->ids; id++) {
        struct chunk *chunk = &run->chunks[id];
        size_t is = chunk_check(&cut, &run->node, id);
        for (size_t i = is; i < chunk->count; i++) {
            if (chunk->states[i].gone == NEVER)
                chunk->states[i].gone = cut.place;
        }
        uint32_t size;
        enum shoal_err err =
            sh_store_get(run->node.store, cid_of(id), scratch, sizeof scratch, &size);
        chunk_now(run, chunk, scratch, err ? ABSENT : size);
        chunk->zone = zone_now(run, id);
    }
    zones_check(&cut);
}

/* --- The run ----------------------------------------------------------------------------------- */

static void run_live(struct run *run)
{
    unsigned large = all.large;
    /* However slow the disk is, one large chunk at least comes to its end. */
    for (unsigned i = 0; i < ACTS || (all.large == large && i < 4 * ACTS);) {
        i += act(run);
        /* Where nobody waits for a sync, much that is not synced comes together. */
        if (sh_prng_below(&run->prng, 300) == 0)
            run->levels = run->levels == SH_LEVELS ? SH_LEVEL_DURABLE : SH_LEVELS;
        unsigned steps = (unsigned)sh_prng_below(&run->prng, 4);
        /* Now and then all comes to rest. */
        if (sh_prng_below(&run->prng, 100) == 0)
            steps += 200;
        for (unsigned k = 0; k < steps; k++)
            step(run);
    }
}

/* The node's lives, each of which ends in the middle of what it does. */
static void run_record(struct run *run)
{
    for (unsigned life = 0; life < LIVES; life++) {
        enum shoal_err err = backup_node_open(&run->node, &run->recorder->base, sh_real_clock());
        if (err)
            fail_msg("seed %llu, life %u: %s", (unsigned long long)run->seed, life,
                     shoal_err_name(err));
        run->evacuated = 0;
        run_found(run);
        run_live(run);
        struct sh_replog_status status;
        sh_replog_status_get(run->node.log, &status);
        print_message("life %u: %zu events, %llu KiB written, %llu syncs, %llu slots cleaned, %u "
                      "zones, %llu chunks found\n",
                      life, run->recorder->events_count,
                      (unsigned long long)run->recorder->bytes >> 10,
                      (unsigned long long)status.syncs, (unsigned long long)status.slots_cleaned,
                      status.zones, (unsigned long long)run->node.found.chunks);
        struct sh_backup_status backup;
        sh_backup_status_get(run->node.backup, &backup);
        all.dropped += backup.dropped;
        for (unsigned i = 0; i < OPS; i++)
            op_end(&run->ops[i]);
        backup_node_close(&run->node);
    }
}

/* --- The states -------------------------------------------------------------------------------- */

static uint64_t clock_fast(void *arg)
{
    return *(uint64_t *)arg += NODE_MS; /* nobody waits for the real one */
}

static void state_check(struct cut *cut, const struct replay *replay, struct sh_prng *prng)
{
    static uint64_t now;
    struct state_disk disk;
    struct backup_node node = {0};
    state_disk_init(&disk, NODE_LOG);
    disk.is_there = replay_state(replay, cut->is_power, cut->luck, prng, &disk.image);
    const struct sh_clock clock = {.now_ns = clock_fast, .wall_ns = clock_fast, .arg = &now};
    enum shoal_err err = backup_node_open(&node, &disk.base, clock);
    if (err)
        cut_fail(cut, shoal_err_name(err), (unsigned)node.found.zone);
    cut_init(cut);
    uint64_t chunks = 0;
    for (unsigned id = 1; id < cut->run->ids; id++) {
        size_t is = chunk_check(cut, &node, id);
        chunks += is && cut->run->chunks[id].states[is - 1].hash != 0;
    }
    struct sh_store_status status;
    sh_store_status_get(node.store, &status);
    if (status.chunks != chunks)
        cut_fail(cut, "there are chunks that nobody created", (unsigned)(status.chunks - chunks));
    zones_check(cut);
    backup_node_close(&node);
    sh_image_clear(&disk.image);
}

static int size_compare(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Half of the places are those of acknowledgements, where what was said too early shows. */
static size_t place_drawn(const struct run *run, struct sh_prng *prng)
{
    if (sh_prng_below(prng, 2))
        return run->acks[sh_prng_below(prng, run->acks_count)];
    return (size_t)sh_prng_below(prng, run->recorder->events_count + 1);
}

static void states_check(const struct run *run, size_t count)
{
    static struct replay replay;
    static struct cut cut;
    size_t *places = malloc(count * sizeof *places), opened = 0;
    struct sh_prng prng = sh_prng_make(run->seed ^ 1);
    assert_non_null(places);
    for (size_t i = 0; i < count; i++)
        places[i] = place_drawn(run, &prng);
    qsort(places, count, sizeof *places, size_compare);
    replay = (struct replay){.recorder = run->recorder};
    cut = (struct cut){.run = run};
    for (size_t i = 0; i < count; i++) {
        replay_to(&replay, places[i]);
        cut.number = i;
        cut.place = places[i];
        cut.is_power = sh_prng_below(&prng, 4) != 0;
        cut.luck = (enum replay_luck)sh_prng_below(&prng, REPLAY_LUCKS);
        state_check(&cut, &replay, &prng);
        opened++;
    }
    sh_image_clear(&replay.image);
    free(places);
    print_message("%zu states: %llu chunks in a state behind the last that was acknowledged, %llu "
                  "bounds of zones\n",
                  opened, (unsigned long long)cut.later, (unsigned long long)cut.bounds);
    assert_true(cut.later > count && cut.bounds > 10 * count);
}

static void run_free(struct run *run)
{
    for (unsigned i = 0; i < IDS; i++) {
        free(run->chunks[i].bytes);
        free(run->chunks[i].states);
    }
    free(run->acks);
    recorder_destroy(run->recorder);
}

static void recorded_run_holds(void **state)
{
    static struct run run;
    const char *folder = *state, *text = getenv("SHOAL_TEST_STATES");
    run.seed = test_seed_fresh();
    run.prng = sh_prng_make(run.seed);
    run.levels = SH_LEVELS;
    for (unsigned i = 0; i < OPS; i++)
        run.ops[i].run = &run;
    assert_int_equal(sh_real_disk_create(folder, false, &run.real), SHOAL_OK);
    run.recorder = recorder_create(run.real, sh_prng_split(&run.prng));
    run_record(&run);
    run.real->ops->destroy(run.real);
    print_message("%u, %u, %u changes acknowledged by level, %u refused, %u large, %u given up, %u "
                  "grown, %u removed, %u moved, %u evacuated, %llu zones dropped\n",
                  all.acked[0], all.acked[1], all.acked[2], all.refused, all.large, all.abandoned,
                  all.grown, all.removed, all.moved, all.evacuated,
                  (unsigned long long)all.dropped);
    assert_true(all.acked[0] > 1000 && all.acked[1] > 1000 && all.acked[2] > 1000);
    assert_true(all.large > 2 && all.grown > 20 && all.removed > 100 && all.moved > 0 &&
                all.evacuated > 0);
    states_check(&run, text && *text ? (size_t)strtoull(text, NULL, 0) : 400);
    run_free(&run);
}

static char folder[] = "/tmp/shoal-recorded-XXXXXX";

static int folder_make(void **state)
{
    *state = mkdtemp(folder);
    return !*state;
}

static int folder_remove(void **state)
{
    char path[sizeof folder + sizeof NODE_LOG];
    (void)state;
    snprintf(path, sizeof path, "%s/%s", folder, NODE_LOG);
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(recorded_run_holds, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
