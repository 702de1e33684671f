/* The node of backup_recorded_test.c makes changes, and a model keeps its chunks: of each the states that it has had, with the places of the record
 * where it got them, and where they were acknowledged. */
#ifndef TESTS_BACKUP_RECORDED_INT_H
#define TESTS_BACKUP_RECORDED_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "tests/backup_node_int.h"
#include "tests/recorder_int.h"

#define IDS 8192u /* local IDs that are in use at most */
#define OPS 40u
#define CHANGES 40u
#define LIVES 3u
#define ACTS 2000u /* of a life */
#define SECONDS_BEGIN 1000000u
#define SECOND_STEPS 8u  /* on average, until seconds pass */
#define SECONDS_BACK 40u /* by which the clock is put back between two lives, at most */
#define LIVE_BYTES_MAX (UINT64_C(2) << 20)
#define ZONES 1024u
#define ABSENT UINT32_MAX
#define NEVER RECORDER_NEVER
#define UNKNOWN UINT32_MAX

/* A chunk was in this state from one place of the record on. */
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
    bool is_direct; /* the log goes around the page cache, and syncs each pack */
    struct sh_disk *real;
    struct recorder *recorder;
    struct backup_node node;
    struct chunk chunks[IDS];
    struct op ops[OPS];
    unsigned ids; /* above all that were ever there */
    uint64_t live;
    uint32_t writes;
    unsigned levels;    /* writes are drawn from so many */
    unsigned sheds;     /* so many acts remove chunks, so that zones have few */
    uint32_t seconds;   /* the wall clock's, which the log goes by */
    uint64_t evacuated; /* chunks, in this life */
    /* Chunks of creates that found no room for all of them, and took back what they had made. A cut in between leaves some, as of a create that was never
     * answered. */
    struct undone {
        size_t place;
        uint32_t size;
    } * undone;
    size_t undone_count, undone_room;
};

static struct {
    unsigned acked[SH_LEVELS], refused, large, abandoned, grown, removed, moved, evacuated;
    uint64_t dropped, marks_dropped, cleaned;
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

static uint64_t now_real(void *arg)
{
    const struct sh_clock clock = sh_real_clock();
    (void)arg;
    return sh_now(&clock);
}

static uint64_t wall_drawn(void *arg)
{
    const struct run *run = arg;
    return run->seconds * UINT64_C(1000000000);
}

/* The disk takes its time, but seconds are drawn: a life has many more of them than it lasts. */
static struct sh_clock clock_of(struct run *run)
{
    return (struct sh_clock){.now_ns = now_real, .wall_ns = wall_drawn, .arg = run};
}

static void step(struct run *run)
{
    const struct sh_clock clock = clock_of(run);
    if (sh_prng_below(&run->prng, SECOND_STEPS) == 0)
        run->seconds += 1 + (uint32_t)sh_prng_below(&run->prng, 3);
    (void)sh_backup_step(run->node.backup, sh_now(&clock), backup_node_seconds(&clock));
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

static void on_acked(void *arg, enum shoal_err err)
{
    struct op *op = arg;
    assert_int_equal(err, SHOAL_OK);
    for (unsigned i = 0; i < op->count; i++) {
        struct state *state = &op->run->chunks[op->changes[i].id].states[op->changes[i].state];
        for (unsigned level = SH_LEVEL_REPLICATED; level <= op->write.level; level++)
            state->acked[level] = op->run->recorder->events_count;
        if (op->write.level == SH_LEVEL_DURABLE)
            recorder_mark(op->run->recorder, "durable chunk %u hash %llx", op->changes[i].id,
                          (unsigned long long)state->hash);
    }
    all.acked[op->write.level] += op->count;
    recorder_acked(op->run->recorder);
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

/* The change was made, or refused as there was no room. */
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
    const size_t place = run->recorder->events_count;
    if (!was_done(sh_backup_new_as(run->node.backup, &op->write, &wish, cids, NULL))) {
        for (size_t i = 0; i < count; i++) {
            run->undone = recorder_more(run->undone, run->undone_count, &run->undone_room,
                                        sizeof *run->undone);
            run->undone[run->undone_count++] = (struct undone){place, sizes[i]};
        }
        return;
    }
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

#endif
