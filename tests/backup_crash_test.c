/* A node alone, on a simulated disk that loses, tears and delays what is not synced, and fails at times: its store, its backup and
 * its log. After a power cut the store that comes back has, of each chunk, the last state that was acknowledged as durable, or a
 * later one; after the end of its process, the last that was acknowledged as replicated; nothing that nobody wrote; and no read was
 * told a state that went away, but those of async writes. Of numbered requests the completion records are there whose changes are.
 * Where bits go bad in what is written, either that holds, or the start says that a zone is damaged, or one ends before what was acknowledged.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 20). SHOAL_TEST_SEED: the first of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/backup.h"
#include "base/hash.h"
#include "recover/home.h"
#include "sim/world.h"
#include "tests/backup_requests_int.h"
#include "tests/cut_creates_int.h"
#include "tests/disk_faults_int.h"
#include "tests/log_ends_int.h"
#include "tests/seed_int.h"

#define MS UINT64_C(1000000)
#define NID 7
#define IDS 20000u /* local IDs that are in use at most */
#define OPS 40u
#define CHANGES 64u
#define LIVES 4u
#define ZONE_BYTES (UINT64_C(1) << 20)
#define ABSENT UINT32_MAX

struct chunk {
    uint32_t size; /* as it is; ABSENT */
    uint8_t *bytes;
    uint64_t *states; /* hashes, the last is as it is */
    unsigned count, room;
    unsigned acked[SH_LEVELS]; /* states up to there were acknowledged */
};

/* A write until it is acknowledged. */
struct op {
    struct test *test;
    struct sh_write write;
    bool is_busy;
    struct sh_write_request request; /* number 0: it has none */
    uint64_t summand;
    unsigned count;
    struct {
        unsigned id, state;
    } changes[CHANGES];
    struct sh_store_rewriting *rewriting; /* of a large chunk */
    unsigned large;                       /* its ID */
    uint8_t *large_bytes;
    uint32_t large_size;
};

struct test {
    struct sh_world *world;
    struct sh_prng prng;
    uint64_t seed;
    unsigned node;
    enum shoal_err opened;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_replog *log;
    struct sh_recovered found;
    struct requests requests;
    struct log_ends ends; /* at the last crash */
    struct chunk chunks[IDS];
    struct op ops[OPS];
    bool is_numbered; /* requests are; else zones that are empty go at once */
    unsigned ids;     /* above all that were ever there */
    bool empties;     /* all that is there is being removed, so that zones are empty, and go */
    struct cut_creates cuts; /* since the start */
};

static unsigned all_writes, all_acked, all_checked, all_zones, all_refused, all_waited, all_large,
    all_troubles, all_later, all_abandoned, all_grown, all_dropped, all_emptied, all_evacuated,
    all_told, all_ended_early;
static uint64_t all_completions, all_missing;
static uint8_t scratch[1 << 20];

static uint64_t now_of(const struct test *test)
{
    return sh_now(&sh_world_env(test->world, test->node)->clock);
}

static uint32_t seconds_of(const struct test *test)
{
    return (uint32_t)(now_of(test) / (10 * MS));
}

static unsigned backup_step(void *arg)
{
    struct test *test = arg;
    return sh_backup_step(test->backup, now_of(test), seconds_of(test));
}

static uint64_t backup_due(void *arg)
{
    struct test *test = arg;
    return sh_backup_due_ns(test->backup);
}

static void wake(void *arg)
{
    (void)arg; /* the world looks again whenever the test has acted */
}

/* --- The node ---------------------------------------------------------------------------------- */

static enum shoal_err node_open(struct test *test, const struct sh_env *env)
{
    const struct sh_store_config store = {.bytes_max = UINT64_C(64) << 20,
                                          .chunk_bytes_max = sizeof scratch,
                                          .nid = {NID},
                                          .small_pages = true};
    assert_int_equal(sh_store_create(&store, &test->store), SHOAL_OK);
    const struct sh_backup_config backup = {.store = test->store,
                                            .nid = {NID},
                                            .zone_bytes = ZONE_BYTES,
                                            .sparse_zones = 1,
                                            .window_bytes = UINT64_C(4) << 20,
                                            .wake = wake,
                                            .arg = test};
    struct sh_replog_config log = {.disk = env->disk,
                                   .name = "replicas.log",
                                   .random = env->random,
                                   .cluster = 5,
                                   .node = NID,
                                   .slot_bytes = 256 << 10,
                                   .slots = 400,
                                   .primary_blocks = 512,
                                   .buffer_bytes = 4 << 20,
                                   .batch_bytes = 64 << 10,
                                   .linger_ns = 100 * MS,
                                   .versions_max = 1024,
                                   .syncs_later = true,
                                   .handed = sh_backup_handed,
                                   .durable = sh_backup_durable};
    assert_int_equal(sh_backup_create(&backup, &test->backup), SHOAL_OK);
    log.arg = test->backup;
    log.completions = sh_backup_completions(test->backup);
    log.completions.seconds = UINT32_MAX / 2; /* recovery has another clock than the steps */
    enum shoal_err err = sh_replog_open(&log, now_of(test), seconds_of(test), &test->log);
    if (err) {
        test->log = NULL;
        return err;
    }
    const struct sh_recover_home home = {.log = test->log,
                                         .disk = env->disk,
                                         .backup = test->backup,
                                         .store = test->store,
                                         .nid = {NID},
                                         .clock = env->clock,
                                         .completed = requests_found,
                                         .arg = &test->requests};
    err = sh_recover_home_run(&home, &test->found);
    if (!err)
        sh_backup_home_set(test->backup, test->log);
    return err;
}

static void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct test *test = arg;
    test->world = world;
    test->node = node;
    test->opened = node_open(test, sh_world_env(world, node));
    sh_world_step_add(
        world, node,
        (struct sh_step){.name = "backup", .run = backup_step, .due_ns = backup_due, .arg = test});
}

static void node_close(struct test *test)
{
    sh_backup_destroy(test->backup);
    sh_replog_close(test->log);
    sh_store_destroy(test->store);
}

static void op_end(struct op *op)
{
    if (op->rewriting)
        (void)!sh_store_rewriting_end(op->rewriting);
    free(op->large_bytes);
    *op = (struct op){.test = op->test};
}

static void crash(void *arg, struct sh_world *world, unsigned node)
{
    struct test *test = arg;
    (void)world;
    (void)node;
    for (unsigned i = 0; i < OPS; i++)
        op_end(&test->ops[i]);
    log_ends_note(&test->ends, test->log);
    node_close(test);
}

/* --- The model --------------------------------------------------------------------------------- */

static uint64_t hash_of(const uint8_t *bytes, uint32_t size)
{
    return size == ABSENT ? 0 : sh_hash64(sh_bytes_make(bytes, size), size + UINT64_C(1)) | 1;
}

/* The chunk has a new state; bytes are copied. */
static unsigned chunk_set(struct test *test, unsigned id, const uint8_t *bytes, uint32_t size)
{
    struct chunk *chunk = &test->chunks[id];
    if (chunk->count == chunk->room) {
        chunk->room = chunk->room ? 2 * chunk->room : 8;
        chunk->states = realloc(chunk->states, chunk->room * sizeof *chunk->states);
        assert_non_null(chunk->states);
    }
    if (size != ABSENT) {
        uint8_t *copy = malloc(size ? size : 1);
        assert_non_null(copy);
        if (size)
            memcpy(copy, bytes, size);
        free(chunk->bytes);
        chunk->bytes = copy;
    }
    chunk->size = size;
    chunk->states[chunk->count] = hash_of(bytes, size);
    if (id >= test->ids)
        test->ids = id + 1;
    all_writes++;
    return chunk->count++;
}

static void changed(struct op *op, unsigned id, const uint8_t *bytes, uint32_t size)
{
    assert_true(op->count < CHANGES);
    op->changes[op->count].id = id;
    unsigned state = chunk_set(op->test, id, bytes, size);
    op->changes[op->count++].state = state;
    if (op->request.number)
        requests_changed(&op->test->requests, &op->request, id, state, op->summand);
}

static void on_acked(void *arg, enum shoal_err err)
{
    struct op *op = arg;
    struct test *test = op->test;
    enum sh_level level = op->write.level;
    if (!err && op->request.number && sh_prng_below(&test->prng, 3))
        requests_finish(&test->requests, &op->request);
    else if (!err && op->request.number)
        requests_lose(&test->requests, &op->request);
    for (unsigned i = 0; !err && i < op->count; i++) {
        struct chunk *chunk = &test->chunks[op->changes[i].id];
        for (unsigned l = SH_LEVEL_REPLICATED; l <= level; l++) {
            if (chunk->acked[l] <= op->changes[i].state)
                chunk->acked[l] = op->changes[i].state + 1;
        }
        all_acked++;
    }
    op_end(op);
}

/* --- Acting ------------------------------------------------------------------------------------ */

static struct op *op_begin(struct test *test)
{
    for (unsigned i = 0; i < OPS; i++) {
        struct op *op = &test->ops[i];
        if (op->is_busy)
            continue;
        *op = (struct op){.test = test, .is_busy = true};
        sh_write_begin(&op->write, (enum sh_level)sh_prng_below(&test->prng, SH_LEVELS));
        return op;
    }
    return NULL;
}

/* The operation, which changes one chunk first, may be of a numbered request. */
static void op_number(struct op *op, enum sh_write_result result)
{
    struct test *test = op->test;
    if (!test->is_numbered || sh_prng_below(&test->prng, 4) == 0)
        return;
    unsigned client = (unsigned)sh_prng_below(&test->prng, REQUESTS_CLIENTS);
    op->request = requests_begin(&test->requests, client, result);
    if (op->request.number)
        sh_write_request_set(&op->write, &op->request);
}

static void op_wait(struct op *op)
{
    all_waited += op->write.marks_count > 0;
    if (!sh_write_wait(op->test->backup, &op->write, on_acked, op))
        on_acked(op, SHOAL_OK);
}

static void on_room(void *arg, enum shoal_err err)
{
    (void)err;
    op_wait(arg);
}

static bool may_fail(const struct test *test, enum shoal_err err)
{
    all_refused += err == SHOAL_EAGAIN;
    return err == SHOAL_EAGAIN || sh_replog_trouble(test->log);
}

/* It was done, or could not be for a reason that is no mistake. */
static bool was_done(const struct test *test, enum shoal_err err)
{
    if (err && !may_fail(test, err))
        fail_msg("seed %llu: a write: %s", (unsigned long long)test->seed, shoal_err_name(err));
    return !err;
}

static shoal_cid cid_of(unsigned id)
{
    return shoal_cid_make((shoal_nid){NID}, id);
}

/* A chunk that is there; 0: none was found. */
static unsigned id_drawn(struct test *test)
{
    for (unsigned i = 0; test->ids && i < 20; i++) {
        unsigned id = (unsigned)sh_prng_below(&test->prng, test->ids);
        if (test->chunks[id].count && test->chunks[id].size != ABSENT)
            return id;
    }
    return 0;
}

static uint32_t size_drawn(struct test *test)
{
    unsigned kind = (unsigned)sh_prng_below(&test->prng, 100);
    if (kind == 0)
        return (uint32_t)sh_prng_below(&test->prng, 700000);
    return (uint32_t)sh_prng_below(&test->prng, kind < 10 ? 50000 : 200);
}

static void bytes_drawn(struct test *test, uint8_t *bytes, uint32_t size)
{
    uint64_t stamp = sh_prng_next(&test->prng);
    memset(bytes, (int)(stamp >> 8 & 0xff), size);
    memcpy(bytes, &stamp, size < sizeof stamp ? size : sizeof stamp);
}

static void create_some(struct test *test, struct op *op)
{
    shoal_cid cids[CHANGES];
    uint32_t sizes[CHANGES];
    size_t count = sh_prng_below(&test->prng, 4) ? 1 : 1 + sh_prng_below(&test->prng, 40);
    for (size_t i = 0; i < count; i++)
        sizes[i] = size_drawn(test);
    const struct sh_store_wish wish = {.sizes = sizes, .count = count};
    if (count == 1)
        op_number(op, SH_WRITE_CHUNK);
    enum shoal_err err = sh_backup_new_as(test->backup, &op->write, &wish, cids, NULL);
    if (err && count > 1)
        cut_creates_note(&test->cuts, sizes, count);
    if (err == SHOAL_EFULL || !was_done(test, err))
        return;
    memset(scratch, 0, sizeof scratch);
    for (size_t i = 0; i < count; i++) {
        assert_true(shoal_cid_local(cids[i]) < IDS);
        changed(op, (unsigned)shoal_cid_local(cids[i]), scratch, sizes[i]);
    }
}

static void remove_some(struct test *test, struct op *op)
{
    shoal_cid cids[CHANGES];
    enum shoal_err errs[CHANGES];
    unsigned count = 1 + (unsigned)sh_prng_below(&test->prng, 30);
    for (unsigned i = 0; i < count; i++)
        cids[i] = cid_of(id_drawn(test));
    (void)sh_backup_remove_multi(test->backup, &op->write, cids, count, errs);
    for (unsigned i = 0; i < count; i++) {
        unsigned id = (unsigned)shoal_cid_local(cids[i]);
        if (errs[i] != SHOAL_ENOCHUNK && was_done(test, errs[i]))
            changed(op, id, NULL, ABSENT);
    }
}

/* Removes chunks from one end to the other; in the end there are none. */
static void remove_next(struct test *test, struct op *op)
{
    shoal_cid cids[CHANGES];
    enum shoal_err errs[CHANGES];
    unsigned count = 0;
    for (unsigned id = 1; id < test->ids && count < CHANGES; id++) {
        if (test->chunks[id].count && test->chunks[id].size != ABSENT)
            cids[count++] = cid_of(id);
    }
    test->empties = count > 0;
    all_emptied += !count;
    (void)sh_backup_remove_multi(test->backup, &op->write, cids, count, errs);
    for (unsigned i = 0; i < count; i++) {
        if (was_done(test, errs[i]))
            changed(op, (unsigned)shoal_cid_local(cids[i]), NULL, ABSENT);
    }
}

static void put_some(struct test *test, struct op *op)
{
    static uint8_t bytes[CHANGES][256];
    struct sh_store_op ops[CHANGES];
    unsigned count = 0;
    for (unsigned i = 0; i < CHANGES; i++) {
        unsigned id = id_drawn(test);
        uint32_t size = test->chunks[id].size;
        if (!id || size > sizeof bytes[0])
            continue;
        bytes_drawn(test, bytes[count], size);
        ops[count] = (struct sh_store_op){.lid = cid_of(id), .data = bytes[count], .size = size};
        count++;
    }
    (void)sh_backup_put_multi(test->backup, &op->write, ops, count);
    for (unsigned i = 0; i < count; i++) {
        if (was_done(test, ops[i].err))
            changed(op, (unsigned)shoal_cid_local(ops[i].lid), ops[i].data, ops[i].size);
    }
}

/* Draws a change of a chunk; the bytes that come of it are in scratch, up to *size_out. */
static struct sh_store_rewrite rewrite_drawn(struct test *test, unsigned id, uint32_t *size_out)
{
    const struct chunk *chunk = &test->chunks[id];
    static uint8_t data[sizeof scratch];
    static uint64_t old;
    uint32_t size = chunk->size;
    struct sh_store_rewrite rewrite = {.kind = SH_STORE_PUT, .cid = cid_of(id)};
    memcpy(scratch, chunk->bytes, size);
    memset(scratch + size, 0, sizeof scratch - size);
    switch (sh_prng_below(&test->prng, 6)) {
    case 0:
        rewrite.kind = SH_STORE_RESIZE;
        rewrite.size = size = size_drawn(test);
        break;
    case 1:
        if (size < 8)
            break;
        rewrite.kind = SH_STORE_ADD;
        rewrite.width = 8;
        rewrite.delta = sh_prng_next(&test->prng);
        rewrite.old_out = &old;
        uint64_t value;
        memcpy(&value, scratch, 8);
        value += rewrite.delta;
        memcpy(scratch, &value, 8);
        break;
    case 2:
        rewrite.kind = SH_STORE_PUT_IF;
        rewrite.expected = sh_bytes_make(chunk->bytes, size);
        break;
    case 3:
        if (size < 4)
            break;
        rewrite.kind = SH_STORE_PUT_PART;
        rewrite.offset = (uint32_t)sh_prng_below(&test->prng, size - 3);
        bytes_drawn(test, data, 4);
        rewrite.data = sh_bytes_make(data, 4);
        memcpy(scratch + rewrite.offset, data, 4);
        break;
    default:
        break;
    }
    if (rewrite.kind == SH_STORE_PUT || rewrite.kind == SH_STORE_PUT_IF) {
        bytes_drawn(test, data, size);
        rewrite.data = sh_bytes_make(data, size);
        memcpy(scratch, data, size);
    }
    *size_out = size;
    return rewrite;
}

/* Goes on with a large chunk, which nobody else changes meanwhile. */
static void large_step(struct test *test, struct op *op)
{
    bool is_over = sh_backup_rewriting_step(test->backup, &op->write, op->rewriting);
    if (!is_over && sh_prng_below(&test->prng, 12))
        return;
    enum shoal_err err = sh_store_rewriting_end(op->rewriting);
    op->rewriting = NULL;
    all_large += is_over;
    all_abandoned += !is_over;
    if (is_over && err != SHOAL_EFULL && was_done(test, err))
        changed(op, op->large, op->large_bytes, op->large_size);
    op_wait(op);
}

static bool is_large_busy(const struct test *test, unsigned id)
{
    for (unsigned i = 0; i < OPS; i++) {
        if (test->ops[i].is_busy && test->ops[i].rewriting && (!id || test->ops[i].large == id))
            return true;
    }
    return false;
}

static void change_one(struct test *test, struct op *op)
{
    unsigned id = id_drawn(test);
    uint32_t size;
    if (!id)
        return;
    struct sh_store_rewrite rewrite = rewrite_drawn(test, id, &size);
    bool is_add = rewrite.kind == SH_STORE_ADD;
    op_number(op, is_add ? SH_WRITE_SUMMAND : SH_WRITE_NO_RESULT);
    op->request.offset = rewrite.offset;
    op->request.width = rewrite.width;
    op->request.delta = rewrite.delta;
    op->summand = is_add ? sh_load64(test->chunks[id].bytes + rewrite.offset) : 0;
    enum shoal_err err = sh_backup_rewrite(test->backup, &op->write, &rewrite);
    if (err == SHOAL_ELIMIT && !is_large_busy(test, 0)) {
        assert_int_equal(sh_store_rewriting_begin(test->store, &rewrite, &op->rewriting), SHOAL_OK);
        op->large = id;
        op->large_size = size;
        op->large_bytes = malloc(size);
        memcpy(op->large_bytes, scratch, size);
        return;
    }
    if (err != SHOAL_ELIMIT && err != SHOAL_EFULL && was_done(test, err))
        changed(op, id, scratch, size);
}

/* Reads a chunk; where that is said to be clean, each write of it but async ones is acknowledged. */
static void read_one(struct test *test)
{
    unsigned id = id_drawn(test);
    struct chunk *chunk = &test->chunks[id];
    struct sh_write seen;
    uint32_t size;
    if (!id)
        return;
    assert_int_equal(sh_store_get(test->store, cid_of(id), scratch, sizeof scratch, &size),
                     SHOAL_OK);
    assert_int_equal(hash_of(scratch, size), chunk->states[chunk->count - 1]);
    if (!sh_backup_read_is_clean(test->backup, cid_of(id), &seen))
        return;
    for (unsigned i = 0; i < OPS; i++) {
        const struct op *op = &test->ops[i];
        for (unsigned k = 0; op->is_busy && op->write.level && k < op->count; k++) {
            if (op->changes[k].id == id)
                fail_msg("seed %llu: a read of chunk %u did not wait",
                         (unsigned long long)test->seed, id);
        }
    }
}

/* A chunk grows much, so that it may move to another zone, and goes soon after. */
static void grow_and_remove(struct test *test, struct op *op)
{
    unsigned id = id_drawn(test);
    uint32_t size = 20000 + (uint32_t)sh_prng_below(&test->prng, 200000);
    const struct sh_store_rewrite grow = {.kind = SH_STORE_RESIZE, .cid = cid_of(id), .size = size};
    uint32_t before = test->chunks[id].size;
    if (!id || before >= size)
        return;
    op_number(op, SH_WRITE_NO_RESULT);
    memcpy(scratch, test->chunks[id].bytes, before);
    memset(scratch + before, 0, size - before);
    enum shoal_err err = sh_backup_rewrite(test->backup, &op->write, &grow);
    if (err == SHOAL_EFULL || !was_done(test, err))
        return;
    changed(op, id, scratch, size);
    all_grown++;
    if (sh_prng_below(&test->prng, 2))
        (void)sh_world_run_until(test->world, NULL, NULL,
                                 sh_world_now(test->world) + sh_prng_below(&test->prng, 120 * MS));
    if (was_done(test, sh_backup_remove(test->backup, &op->write, cid_of(id))))
        changed(op, id, NULL, ABSENT);
}

static void act(struct test *test)
{
    if (sh_prng_below(&test->prng, 100) == 0)
        requests_repeat(&test->requests, (unsigned)sh_prng_below(&test->prng, REQUESTS_CLIENTS));
    for (unsigned i = 0; i < OPS; i++) {
        if (test->ops[i].rewriting && sh_prng_below(&test->prng, 2))
            large_step(test, &test->ops[i]);
    }
    read_one(test);
    /* A large chunk is changed by one at a time, so that the model knows in which order. */
    struct op *op = is_large_busy(test, 0) && sh_prng_below(&test->prng, 4) ? NULL : op_begin(test);
    if (!op)
        return;
    unsigned kind = (unsigned)sh_prng_below(&test->prng, 20);
    test->empties |= test->seed % 3 == 0 && sh_prng_below(&test->prng, 100) == 0;
    if (test->empties && !is_large_busy(test, 0) && kind < 18)
        remove_next(test, op);
    else if (is_large_busy(test, 0) || kind < 5)
        create_some(test, op);
    else if (kind < 7)
        remove_some(test, op);
    else if (kind == 7)
        grow_and_remove(test, op);
    else if (kind < 12)
        put_some(test, op);
    else
        change_one(test, op);
    if (op->rewriting)
        return;
    if (sh_write_was_refused(&op->write) && sh_prng_below(&test->prng, 2))
        sh_backup_room_wait(test->backup, &op->write, on_room, op);
    else
        op_wait(op);
}

/* --- Checking ---------------------------------------------------------------------------------- */

/* Whether the chunk that was found, which is in scratch, may be left of a create where none should be. */
static bool is_left_of_create(const struct test *test, const struct chunk *chunk, uint32_t size)
{
    bool is_absent = !chunk->count || chunk->size == ABSENT;
    return is_absent && size != ABSENT && cut_creates_left(&test->cuts, scratch, size);
}

/* Which of its states a chunk that was found may be in. */
static void state_of(void *arg, unsigned id, unsigned *least_out, unsigned *most_out,
                     bool *is_there_out)
{
    struct test *test = arg;
    const struct chunk *chunk = &test->chunks[id];
    uint32_t size;
    enum shoal_err err = sh_store_get(test->store, cid_of(id), scratch, sizeof scratch, &size);
    uint64_t is = hash_of(scratch, err ? ABSENT : size);
    *least_out = *most_out = 0;
    bool is_seen = false;
    for (unsigned i = 0; i < chunk->count; i++) {
        if (chunk->states[i] != is)
            continue;
        *least_out = is_seen ? *least_out : i;
        *most_out = i;
        is_seen = true;
    }
    if (!is_seen && chunk->count && is_left_of_create(test, chunk, err ? ABSENT : size))
        *least_out = *most_out = chunk->count - 1;
    /* Before its first state there was none. */
    if (err)
        *least_out = 0;
    *is_there_out = !err;
}

/* Of each chunk the store has a state that the model allows, which then is all that the model has. */
static void check(struct test *test, enum sh_level level)
{
    uint64_t live = 0;
    for (unsigned id = 1; id < IDS; id++) {
        struct chunk *chunk = &test->chunks[id];
        uint32_t size;
        enum shoal_err err = sh_store_get(test->store, cid_of(id), scratch, sizeof scratch, &size);
        assert_true(err == SHOAL_OK || err == SHOAL_ENOCHUNK);
        if (err)
            size = ABSENT;
        else
            live += size + SH_ZONE_CHUNK_BYTES;
        uint64_t is = hash_of(scratch, size);
        /* Before its first state there was none. */
        unsigned from = chunk->acked[level] ? chunk->acked[level] - 1 : 0;
        bool is_good =
            (!chunk->acked[level] && size == ABSENT) || is_left_of_create(test, chunk, size);
        for (unsigned i = from; i < chunk->count && !is_good; i++)
            is_good = chunk->states[i] == is;
        if (!is_good)
            fail_msg(
                "seed %llu: chunk %u (%s): of %u states %u are acknowledged, and it is in none "
                "of the others",
                (unsigned long long)test->seed, id, shoal_err_name(err), chunk->count,
                chunk->acked[level]);
        if (id >= test->ids && size == ABSENT)
            continue;
        all_later += chunk->count > chunk->acked[level];
        all_checked += size != ABSENT;
        chunk->count = 0;
        (void)chunk_set(test, id, scratch, size);
        memset(chunk->acked, 0, sizeof chunk->acked);
        chunk->acked[SH_LEVEL_REPLICATED] = chunk->acked[SH_LEVEL_DURABLE] = 1;
    }
    test->cuts.count = 0;
    struct sh_store_status status;
    struct sh_backup_status backup;
    sh_store_status_get(test->store, &status);
    sh_backup_status_get(test->backup, &backup);
    assert_int_equal(backup.live_bytes, live);
    assert_int_equal(status.payload_bytes + status.chunks * SH_ZONE_CHUNK_BYTES, live);
    all_zones += backup.zones;
}

static void run_as(uint64_t seed, uint32_t flip_ppm)
{
    static struct test test;
    memset(&test, 0, sizeof test);
    struct sh_prng prng = sh_prng_make(seed);
    struct sh_disk_faults faults = disk_faults_draw(&prng, 4, 2000, 5000), calm = faults;
    calm.write_err_ppm = calm.sync_err_ppm = calm.again_ppm = 0;
    faults.flip_ppm = flip_ppm;
    test.seed = seed;
    test.prng = sh_prng_split(&prng);
    test.is_numbered = sh_prng_below(&prng, 2);
    struct sh_world_config config = {.seed = sh_prng_next(&prng), .disk = calm};
    test.world = sh_world_create(&config);
    struct sh_world_node node = {.boot = boot, .crash = crash, .arg = &test};
    test.node = sh_world_node_add(test.world, &node);
    for (unsigned life = 0; life < LIVES; life++) {
        assert_int_equal(test.opened, SHOAL_OK);
        sh_world_disk_faults_set(test.world, &faults);
        unsigned acts = (unsigned)sh_prng_below(&test.prng, 1500);
        for (unsigned i = 0; i < acts; i++) {
            act(&test);
            if (sh_prng_below(&test.prng, 3) == 0)
                (void)sh_world_run_until(test.world, NULL, NULL,
                                         sh_world_now(test.world) +
                                             sh_prng_below(&test.prng, 3 * MS));
        }
        struct sh_backup_status status;
        sh_backup_status_get(test.backup, &status);
        all_dropped += status.dropped;
        all_evacuated += status.evacuated;
        all_troubles += sh_replog_trouble(test.log) != SHOAL_OK;
        calm.keeps_done = sh_prng_below(&test.prng, 2);
        sh_world_disk_faults_set(test.world, &calm);
        sh_world_crash(test.world, test.node);
        sh_world_restart(test.world, test.node);
        if (flip_ppm && log_ends_tell(&test.ends, test.log, test.opened, calm.keeps_done, &all_told,
                                      &all_ended_early))
            break;
        if (test.opened)
            fail_msg("seed %llu: can't open: %s", (unsigned long long)seed,
                     shoal_err_name(test.opened));
        requests_check(&test.requests, NID, state_of, &test);
        check(&test, calm.keeps_done ? SH_LEVEL_REPLICATED : SH_LEVEL_DURABLE);
    }
    all_completions += test.requests.checked;
    all_missing += test.requests.missing;
    for (unsigned i = 0; i < OPS; i++)
        op_end(&test.ops[i]);
    node_close(&test);
    sh_world_destroy(test.world);
    for (unsigned i = 0; i < IDS; i++) {
        free(test.chunks[i].bytes);
        free(test.chunks[i].states);
    }
}

static void run_seed(uint64_t seed, uint64_t at)
{
    (void)at;
    run_as(seed, 0);
}

static void fixed_seeds_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_seed(seed, seed);
    print_message("%u changes, %u acknowledged, %u waited for, %u refused, %u large, %u given up, "
                  "%u grown, %u chunks "
                  "found, %u of them with "
                  "later changes, %u zones, %u logs out of service, %u completions had to be "
                  "there, %u are not, %u times empty, %u zones dropped, %u chunks evacuated\n",
                  all_writes, all_acked, all_waited, all_refused, all_large, all_abandoned,
                  all_grown, all_checked, all_later, all_zones, all_troubles,
                  (unsigned)all_completions, (unsigned)all_missing, all_emptied, all_dropped,
                  all_evacuated);
    assert_true(all_acked > 10000 && all_waited > 1000 && all_refused > 50 && all_large > 10 &&
                all_abandoned > 20 && all_grown > 200 && all_checked > 10000 && all_later > 100 &&
                all_zones > 100 && all_completions > 100 && all_missing > 50 && all_dropped > 30 &&
                all_evacuated > 1000);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(20, run_seed);
}

static void seeds_with_flips_tell(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++)
        run_as(seed, 3000);
    print_message("%u times told, %u times writes are missing at the end\n", all_told,
                  all_ended_early);
    assert_true(all_told > 5);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
        cmocka_unit_test(seeds_with_flips_tell),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
