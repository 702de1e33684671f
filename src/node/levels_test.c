/* When a node answers: a change, once it is acknowledged at its level; a repeated one, no earlier; and whatever tells of a chunk, once what it
 * tells is acknowledged at the level of its write. One row for each request that a node serves: a new one belongs here.
 *
 * The node has a log on a disk in memory, which the test lets get on in two stages: first nothing of what is written is in the log, then it is
 * handed to the disk (replicated), then synced (durable). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "log/replog.h"
#include "msg/once.h"
#include "node/gate_test.h"
#include "node/locks_test.h"
#include "node/moves_int.h"

#define SMALL 64u
#define MEDIUM (8u << 10)
#define LARGE (300u << 10)
#define MANY 300u
#define PENDING_MAX 8
#define ANSWER_MAX 64

/* --- A node with a log, and a client ----------------------------------------------------------- */

struct ask {
    struct sh_request request;
    bool is_done;
    enum shoal_err err;
    size_t size;
    uint8_t answer[ANSWER_MAX]; /* its beginning */
};

struct test {
    struct rig rig;
    struct sh_directory *directory;
    struct sh_moves *moves;
    struct gate gate;
    struct sh_replog *log;
    uint64_t number; /* of the last request that is done once */
    uint64_t seed;
};

static struct test test;
static uint8_t request_bytes[1 << 20];
static uint8_t pattern[LARGE];

static void wake(void *arg)
{
    (void)arg; /* the test steps */
}

static void settle(void)
{
    struct sh_step moves = sh_moves_step(test.moves);
    do
        rig_settle(&test.rig);
    while (moves.run(moves.arg) > 0);
}

/* The log gets on as far as its disk lets it. */
static void log_steps(void)
{
    for (unsigned i = 0; i < 100; i++) {
        test.rig.node.memwire.now_ns += 1000000;
        (void)sh_disk_poll(&test.gate.base, false);
        (void)sh_backup_step(test.rig.backup, test.rig.node.memwire.now_ns, 1);
        settle();
    }
}

/* All is on the disk. */
static void disk_catches_up(void)
{
    struct sh_write all;
    gate_hold(&test.gate, false);
    log_steps();
    sh_write_begin(&all, SH_LEVEL_DURABLE);
    sh_backup_write_all(test.rig.backup, &all);
    for (unsigned i = 0; i < 100; i++)
        log_steps();
    assert_true(sh_backup_is_clean(test.rig.backup, &all));
}

static void moves_open(void)
{
    struct rig *rig = &test.rig;
    struct sh_clock clock = sh_memwire_env(&rig->node.memwire).clock;
    const struct sh_directory_config known = {
        .msg = rig->node.msg, .clock = clock, .cache_ranges_max = 8};
    assert_int_equal(sh_directory_create(&known, &test.directory), SHOAL_OK);
    const struct sh_moves_config config = {.msg = rig->node.msg,
                                           .store = rig->store,
                                           .backup = rig->backup,
                                           .chunks = rig->chunks,
                                           .locks = rig->locks,
                                           .directory = test.directory,
                                           .clock = clock};
    assert_int_equal(sh_moves_create(&config, &test.moves), SHOAL_OK);
}

static int setup(void **state)
{
    (void)state;
    const struct sh_backup_config backed = {
        .nid = {RIG_NID}, .zone_bytes = 2 << 20, .window_bytes = 8 << 20, .wake = wake};
    test = (struct test){.gate.base.ops = &gate_ops};
    rig_open_backed(&test.rig, 8, backed);
    moves_open();
    assert_int_equal(sh_memory_disk_create(&test.gate.inner), SHOAL_OK);
    const struct sh_replog_config config = {.disk = &test.gate.base,
                                            .name = "log",
                                            .random = sh_memwire_env(&test.rig.node.memwire).random,
                                            .cluster = 1,
                                            .node = RIG_NID,
                                            .slot_bytes = 256 << 10,
                                            .slots = 400,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 8 << 20,
                                            .batch_bytes = 64 << 10,
                                            .linger_ns = 1,
                                            .versions_max = 1024,
                                            .syncs_later = true,
                                            .handed = sh_backup_handed,
                                            .durable = sh_backup_durable,
                                            .arg = test.rig.backup};
    assert_int_equal(sh_replog_open(&config, test.rig.node.memwire.now_ns, 1, &test.log), SHOAL_OK);
    sh_backup_home_set(test.rig.backup, test.log);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 7 + i / 251 + 1);
    log_steps();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    gate_hold(&test.gate, false);
    sh_moves_destroy(test.moves);
    sh_directory_destroy(test.directory);
    rig_close(&test.rig);
    sh_replog_close(test.log);
    test.gate.inner->ops->destroy(test.gate.inner);
    return 0;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct ask *ask = request->arg;
    assert_false(ask->is_done);
    ask->is_done = true;
    ask->err = err;
    ask->size = sh_reader_left(payload);
    if (!err && ask->size)
        memcpy(ask->answer, payload->at, ask->size < ANSWER_MAX ? ask->size : ANSWER_MAX);
}

static void ask_send_by(unsigned who, struct ask *ask, sh_msg_type type, struct sh_bytes payload)
{
    struct sh_msg *msg = test.rig.askers[who].msg;
    struct sh_out out;
    *ask = (struct ask){.request = {.done = on_answer, .arg = ask}};
    assert_int_equal(
        sh_msg_request(msg, (shoal_nid){RIG_NID}, type, payload.size, &ask->request, &out),
        SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(msg, &out);
    settle();
}

static void ask_send(struct ask *ask, sh_msg_type type, struct sh_bytes payload)
{
    ask_send_by(RIG_CLIENT, ask, type, payload);
}

/* --- Requests ---------------------------------------------------------------------------------- */

/* A chunk of the node that is on the disk, filled with the pattern. */
static shoal_cid chunk_make(uint32_t size)
{
    shoal_cid local;
    struct sh_write write;
    struct sh_store_rewriting *rewriting;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    assert_int_equal(sh_backup_new_many(test.rig.backup, &write, size, 1, &local), SHOAL_OK);
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = local, .data = sh_bytes_make(pattern, size)};
    assert_int_equal(sh_store_rewriting_begin(test.rig.store, &put, &rewriting), SHOAL_OK);
    while (!sh_backup_rewriting_step(test.rig.backup, &write, rewriting))
        log_steps();
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_OK);
    return shoal_cid_make((shoal_nid){RIG_NID}, local.v);
}

/* Removes chunks that the test has no more use for, if they are there. */
static void chunks_drop(shoal_cid first, uint32_t count)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (uint32_t i = 0; i < count; i++) {
        enum shoal_err err =
            sh_backup_remove(test.rig.backup, &write, (sh_lid){shoal_cid_local(first) + i});
        assert_true(err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    }
}

static shoal_cid reserved_make(void)
{
    shoal_cid local;
    struct sh_write write;
    const struct sh_store_wish wish = {.count = 1, .reserve = true};
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    assert_int_equal(sh_backup_new_as(test.rig.backup, &write, &wish, &local, NULL), SHOAL_OK);
    return shoal_cid_make((shoal_nid){RIG_NID}, local.v);
}

/* A row: a request, its chunk, and the sizes of both. */
struct row {
    const char *name;
    sh_msg_type form;
    uint32_t chunk_bytes; /* of the chunk that it is about; 0: a reserved ID, or there is none */
    uint32_t bytes;       /* that it writes, or asks for */
    bool fails;           /* as the chunk is, and says so */
};

static bool is_once(sh_msg_type form)
{
    switch (form) {
    case SH_CHUNKS_CREATE_ONCE:
    case SH_CHUNKS_PUT_ONCE:
    case SH_CHUNKS_REMOVE_ONCE:
    case SH_CHUNKS_PUT_PART_ONCE:
    case SH_CHUNKS_RESIZE_ONCE:
    case SH_CHUNKS_PUT_IF_ONCE:
    case SH_CHUNKS_PUT_HASH_ONCE:
    case SH_CHUNKS_ADD_ONCE:
    case SH_CHUNKS_FILL_ONCE:
    case SH_CHUNKS_FREE_ONCE:
        return true;
    default:
        return false;
    }
}

static void once_put(struct sh_writer *w)
{
    const struct sh_once_id id = {.client = 99, .number = ++test.number};
    sh_once_id_put(w, &id);
}

/* Puts the fields of the request behind the chunk's ID; the chunk has so many bytes of the pattern. */
static void rest_put(struct sh_writer *w, const struct row *row)
{
    uint32_t is = row->fails ? 1 : 0; /* what is said to be there is not */
    switch (row->form) {
    case SH_CHUNKS_PUT_PART_ONCE:
        sh_put32(w, 8);
        sh_put_raw(w, sh_bytes_make(pattern, row->bytes));
        break;
    case SH_CHUNKS_RESIZE_ONCE:
    case SH_CHUNKS_MULTI_RESIZE:
    case SH_CHUNKS_GET:
    case SH_CHUNKS_MULTI_GET:
        sh_put32(w, row->bytes);
        break;
    case SH_CHUNKS_PUT_IF_ONCE:
        sh_put32(w, row->chunk_bytes);
        sh_put_raw(w, sh_bytes_make(pattern + is, row->chunk_bytes));
        sh_put_raw(w, sh_bytes_make(pattern, row->bytes));
        break;
    case SH_CHUNKS_PUT_HASH_ONCE:
        sh_put64(w, sh_hash64(sh_bytes_make(pattern, row->chunk_bytes), 0) + is);
        sh_put_raw(w, sh_bytes_make(pattern, row->bytes));
        break;
    case SH_CHUNKS_ADD_ONCE:
        sh_put32(w, 0);
        sh_put8(w, 8);
        sh_put64(w, 3);
        break;
    case SH_CHUNKS_MULTI_PUT:
        sh_put32(w, row->bytes);
        sh_put_raw(w, sh_bytes_make(pattern, row->bytes));
        break;
    case SH_CHUNKS_GET_PART:
        sh_put32(w, 0);
        sh_put32(w, row->bytes);
        break;
    case SH_CHUNKS_PUT:
    case SH_CHUNKS_PUT_ONCE:
    case SH_CHUNKS_FILL_ONCE:
        sh_put_raw(w, sh_bytes_make(pattern, row->bytes));
        break;
    case SH_LOCKS_LOCK:
        sh_put64(w, ++test.number);
        sh_put64(w, 1);
        sh_put64(w, 0);
        sh_put8(w, SH_LEASE_READER);
        break;
    default: /* no more than the ID */
        break;
    }
}

static struct sh_bytes payload_of(const struct row *row, shoal_cid cid)
{
    struct sh_writer w = sh_writer_make(request_bytes, sizeof request_bytes);
    if (is_once(row->form))
        once_put(&w);
    if (row->form == SH_CHUNKS_CREATE) {
        sh_put32(&w, row->bytes);
        sh_put8(&w, 0);
        sh_put32(&w, SMALL);
    } else if (row->form == SH_CHUNKS_CREATE_ONCE) {
        sh_put32(&w, row->bytes);
    } else if (row->form == SH_CHUNKS_RANGES) {
        sh_put64(&w, shoal_cid_make((shoal_nid){RIG_NID}, 0).v);
    } else if (row->form != SH_CHUNKS_SYNC) {
        sh_put64(&w, cid.v);
        rest_put(&w, row);
    }
    assert_true(sh_writer_ok(&w));
    return sh_bytes_make(request_bytes, (size_t)(w.at - request_bytes));
}

/* --- Changes ----------------------------------------------------------------------------------- */

static const struct row changes[] = {
    {"create", SH_CHUNKS_CREATE, 0, 1, false},
    {"create of many", SH_CHUNKS_CREATE, 0, MANY, false},
    {"create once", SH_CHUNKS_CREATE_ONCE, 0, SMALL, false},
    {"create once, large", SH_CHUNKS_CREATE_ONCE, 0, LARGE, false},
    {"put", SH_CHUNKS_PUT, SMALL, SMALL, false},
    {"put, large", SH_CHUNKS_PUT, LARGE, LARGE, false},
    {"put once", SH_CHUNKS_PUT_ONCE, SMALL, SMALL, false},
    {"put once, large", SH_CHUNKS_PUT_ONCE, LARGE, LARGE, false},
    {"remove", SH_CHUNKS_REMOVE, SMALL, 0, false},
    {"remove once", SH_CHUNKS_REMOVE_ONCE, SMALL, 0, false},
    {"put of a part", SH_CHUNKS_PUT_PART_ONCE, SMALL, 8, false},
    {"put of a part of a large one", SH_CHUNKS_PUT_PART_ONCE, LARGE, 8, false},
    {"resize", SH_CHUNKS_RESIZE_ONCE, SMALL, 2 * SMALL, false},
    {"resize, large", SH_CHUNKS_RESIZE_ONCE, SMALL, LARGE, false},
    {"put if", SH_CHUNKS_PUT_IF_ONCE, SMALL, SMALL, false},
    {"put if hash", SH_CHUNKS_PUT_HASH_ONCE, SMALL, SMALL, false},
    {"add", SH_CHUNKS_ADD_ONCE, SMALL, 0, false},
    {"add to a large one", SH_CHUNKS_ADD_ONCE, LARGE, 0, false},
    {"fill", SH_CHUNKS_FILL_ONCE, 0, SMALL, false},
    {"fill, large", SH_CHUNKS_FILL_ONCE, 0, LARGE, false},
    {"multi put", SH_CHUNKS_MULTI_PUT, SMALL, SMALL, false},
    {"multi put, large", SH_CHUNKS_MULTI_PUT, LARGE, LARGE, false},
    {"multi remove", SH_CHUNKS_MULTI_REMOVE, SMALL, 0, false},
    {"multi resize", SH_CHUNKS_MULTI_RESIZE, SMALL, 2 * SMALL, false},
    {"multi resize, large", SH_CHUNKS_MULTI_RESIZE, SMALL, LARGE, false},
};
#define CHANGES (sizeof changes / sizeof changes[0])

/* A chunk as the row has it. */
static shoal_cid chunk_of(const struct row *row)
{
    if (row->chunk_bytes)
        return chunk_make(row->chunk_bytes);
    return row->form == SH_CHUNKS_FILL_ONCE ? reserved_make() : (shoal_cid){0};
}

static void assert_answered(const struct row *row, const char *when, const struct ask *ask,
                            bool is_answered)
{
    if (ask->is_done != is_answered)
        fail_msg("%s, %s: %s", row->name, when,
                 ask->is_done ? "answered too early" : "not answered");
    if (ask->is_done && (ask->err == SHOAL_OK) == row->fails && !ask->size)
        fail_msg("%s, %s: %s", row->name, when, shoal_err_name(ask->err));
}

/* level: of the request; SH_LEVELS: it names none, and has the node's, which is `replicated`. */
static void change_check(const struct row *row, unsigned level)
{
    static struct ask first, again; /* a failed test leaves them to the teardown */
    char when[64];
    bool is_async = level == SH_LEVEL_ASYNC, is_durable = level == SH_LEVEL_DURABLE;
    sh_msg_type type = level == SH_LEVELS ? row->form : SH_CHUNKS_AT(row->form, level);
    shoal_cid cid = chunk_of(row);
    disk_catches_up();
    struct sh_bytes payload = payload_of(row, cid);
    bool has_again = is_once(row->form);
    gate_hold(&test.gate, true);
    ask_send(&first, type, payload);
    if (has_again)
        ask_send(&again, type, payload);
    (void)snprintf(when, sizeof when, "level %u, while nothing is in the log", level);
    assert_answered(row, when, &first, is_async);
    if (has_again)
        assert_answered(row, "again", &again, is_async);
    log_steps();
    (void)snprintf(when, sizeof when, "level %u, while nothing is synced", level);
    assert_answered(row, when, &first, !is_durable);
    if (has_again)
        assert_answered(row, "again, in the log", &again, !is_durable);
    gate_hold(&test.gate, false);
    log_steps();
    assert_answered(row, "all is on the disk", &first, true);
    if (has_again) {
        assert_answered(row, "again, on the disk", &again, true);
        assert_int_equal(again.size, first.size);
        assert_memory_equal(again.answer, first.answer, ANSWER_MAX);
    }
    if (cid.v)
        chunks_drop(cid, 1);
    else
        chunks_drop((shoal_cid){sh_load64(first.answer)}, sh_load32(first.answer + 8));
}

static void test_changes(void **state)
{
    (void)state;
    for (size_t i = 0; i < CHANGES; i++) {
        for (unsigned level = 0; level <= SH_LEVELS; level++)
            change_check(&changes[i], level);
    }
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), 0);
}

/* --- What tells of a chunk --------------------------------------------------------------------- */

/* While a put of the chunk is on its way. */
static const struct row looks[] = {
    {"get", SH_CHUNKS_GET, SMALL, SMALL, false},
    {"get, medium", SH_CHUNKS_GET, MEDIUM, MEDIUM, false},
    {"get, large", SH_CHUNKS_GET, LARGE, LARGE, false},
    {"get without room", SH_CHUNKS_GET, SMALL, 8, false},
    {"get part", SH_CHUNKS_GET_PART, SMALL, 8, false},
    {"get part, medium", SH_CHUNKS_GET_PART, MEDIUM, MEDIUM, false},
    {"get part, large", SH_CHUNKS_GET_PART, LARGE, LARGE, false},
    {"get part beyond its end", SH_CHUNKS_GET_PART, SMALL, 2 * SMALL, false},
    {"multi get", SH_CHUNKS_MULTI_GET, SMALL, SMALL, false},
    {"multi get, large", SH_CHUNKS_MULTI_GET, LARGE, LARGE, false},
    {"multi get without room", SH_CHUNKS_MULTI_GET, SMALL, 8, false},
    {"ranges", SH_CHUNKS_RANGES, SMALL, 0, false},
    {"lock", SH_LOCKS_LOCK, SMALL, 0, false},
    {"put of another size", SH_CHUNKS_PUT, SMALL, 8, true},
    {"put once of another size", SH_CHUNKS_PUT_ONCE, SMALL, 8, true},
    {"put beyond its end", SH_CHUNKS_PUT_PART_ONCE, SMALL, SMALL, true},
    {"put if it differs", SH_CHUNKS_PUT_IF_ONCE, SMALL, SMALL, true},
    {"put if its hash differs", SH_CHUNKS_PUT_HASH_ONCE, SMALL, SMALL, true},
    {"fill of one that is there", SH_CHUNKS_FILL_ONCE, SMALL, SMALL, true},
    {"multi put of another size", SH_CHUNKS_MULTI_PUT, SMALL, 8, true},
    /* These requests tell what they found, though they are of level async. */
    {"add", SH_CHUNKS_ADD_ONCE, SMALL, 0, false},
    {"put if", SH_CHUNKS_PUT_IF_ONCE, SMALL, SMALL, false},
    {"put if hash", SH_CHUNKS_PUT_HASH_ONCE, SMALL, SMALL, false},
};
#define LOOKS (sizeof looks / sizeof looks[0])

/* While its removal is. */
static const struct row misses[] = {
    {"get of none", SH_CHUNKS_GET, SMALL, SMALL, false},
    {"get part of none", SH_CHUNKS_GET_PART, SMALL, 8, false},
    {"multi get of none", SH_CHUNKS_MULTI_GET, SMALL, SMALL, false},
    {"lock of none", SH_LOCKS_LOCK, SMALL, 0, false},
    {"put of none", SH_CHUNKS_PUT, SMALL, SMALL, true},
    {"put once of none", SH_CHUNKS_PUT_ONCE, SMALL, SMALL, true},
    {"put of a large none", SH_CHUNKS_PUT, LARGE, LARGE, true},
    {"remove of none", SH_CHUNKS_REMOVE, SMALL, 0, true},
    {"remove once of none", SH_CHUNKS_REMOVE_ONCE, SMALL, 0, true},
    {"resize of none", SH_CHUNKS_RESIZE_ONCE, SMALL, 8, true},
    {"put of a part of none", SH_CHUNKS_PUT_PART_ONCE, SMALL, 8, true},
    {"put if of none", SH_CHUNKS_PUT_IF_ONCE, SMALL, SMALL, true},
    {"put if hash of none", SH_CHUNKS_PUT_HASH_ONCE, SMALL, SMALL, true},
    {"add to none", SH_CHUNKS_ADD_ONCE, SMALL, 0, true},
    {"fill of none", SH_CHUNKS_FILL_ONCE, SMALL, SMALL, true},
    {"free of none", SH_CHUNKS_FREE_ONCE, SMALL, 0, true},
    {"multi put of none", SH_CHUNKS_MULTI_PUT, SMALL, SMALL, true},
    {"multi put of a large none", SH_CHUNKS_MULTI_PUT, LARGE, LARGE, true},
    {"multi remove of none", SH_CHUNKS_MULTI_REMOVE, SMALL, 0, true},
    {"multi resize of none", SH_CHUNKS_MULTI_RESIZE, SMALL, 8, true},
};
#define MISSES (sizeof misses / sizeof misses[0])

static bool is_change(sh_msg_type form)
{
    for (size_t i = 0; i < CHANGES; i++) {
        if (changes[i].form == form)
            return true;
    }
    return form == SH_CHUNKS_FREE_ONCE;
}

/* The row's request, at level async, after a write of that level to its chunk has begun. */
static void look_check(const struct row *row, sh_msg_type written, enum sh_level level)
{
    static struct ask write, look, other; /* a failed test leaves them to the teardown */
    bool is_async = level == SH_LEVEL_ASYNC, is_durable = level == SH_LEVEL_DURABLE;
    const struct row writing = {"", written, row->chunk_bytes, row->chunk_bytes, false};
    const struct row reading = {"", SH_CHUNKS_GET, SMALL, SMALL, false};
    shoal_cid cid = chunk_make(row->chunk_bytes), clean = chunk_make(SMALL);
    disk_catches_up();
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_AT(written, level), payload_of(&writing, cid));
    ask_send(&look, is_change(row->form) ? SH_CHUNKS_AT(row->form, SH_LEVEL_ASYNC) : row->form,
             payload_of(row, cid));
    ask_send(&other, SH_CHUNKS_GET, payload_of(&reading, clean));
    assert_int_equal(write.is_done, is_async);
    assert_answered(row, "nothing is in the log", &look, is_async);
    assert_answered(&reading, "of another chunk", &other, true);
    log_steps();
    assert_answered(row, "nothing is synced", &look, !is_durable);
    gate_hold(&test.gate, false);
    log_steps();
    assert_answered(row, "all is on the disk", &look, true);
    assert_true(write.is_done && !write.err);
    chunks_drop(cid, 1);
    chunks_drop(clean, 1);
}

static void test_looks(void **state)
{
    (void)state;
    for (unsigned level = 0; level < SH_LEVELS; level++) {
        for (size_t i = 0; i < LOOKS; i++)
            look_check(&looks[i], SH_CHUNKS_PUT, (enum sh_level)level);
        for (size_t i = 0; i < MISSES; i++)
            look_check(&misses[i], SH_CHUNKS_REMOVE, (enum sh_level)level);
    }
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), 0);
}

/* --- The others -------------------------------------------------------------------------------- */

static void test_sync(void **state)
{
    (void)state;
    static struct ask write, sync; /* a failed test leaves them to the teardown */
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    const struct row all = {"sync", SH_CHUNKS_SYNC, 0, 0, false};
    shoal_cid cid = chunk_make(SMALL);
    disk_catches_up();
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_AT(SH_CHUNKS_PUT, SH_LEVEL_ASYNC), payload_of(&put, cid));
    ask_send(&sync, SH_CHUNKS_SYNC, payload_of(&all, cid));
    assert_answered(&put, "async", &write, true);
    log_steps();
    assert_answered(&all, "nothing is synced", &sync, false);
    gate_hold(&test.gate, false);
    log_steps();
    assert_answered(&all, "all is on the disk", &sync, true);
}

/* A request on two chunks, of which one is on its way, waits for that. */
static void test_one_of_two(void **state)
{
    (void)state;
    static struct ask write, look; /* a failed test leaves them to the teardown */
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    uint8_t room[24];
    shoal_cid cid = chunk_make(SMALL), other = chunk_make(SMALL);
    disk_catches_up();
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_PUT, payload_of(&put, cid));
    struct sh_writer w = sh_writer_make(room, sizeof room);
    sh_put64(&w, other.v);
    sh_put32(&w, SMALL);
    sh_put64(&w, cid.v);
    sh_put32(&w, SMALL);
    ask_send(&look, SH_CHUNKS_MULTI_GET, sh_bytes_make(room, sizeof room));
    assert_false(look.is_done);
    log_steps();
    assert_true(look.is_done && !look.err);
}

/* One chunk; if it is large, its pieces follow. */
static void stage_send(struct ask *ask, uint64_t sequence, shoal_cid cid, uint32_t size)
{
    struct sh_writer w = sh_writer_make(request_bytes, sizeof request_bytes);
    sh_put64(&w, sequence);
    sh_put16(&w, 1);
    sh_put32(&w, 0);
    sh_put32(&w, 0);
    sh_put64(&w, cid.v);
    sh_put64(&w, cid.v);
    sh_put32(&w, size);
    if (!sh_moves_is_large(1, size))
        sh_put_raw(&w, sh_bytes_make(pattern, size));
    ask_send_by(RIG_PEER, ask, SH_MOVES_STAGE,
                sh_bytes_make(request_bytes, (size_t)(w.at - request_bytes)));
}

/* Chunks that move here are on the disk before their source hears that they came, and forgets them. */
static void stage_check(uint64_t sequence, uint32_t size)
{
    static struct ask stage; /* a failed test leaves them to the teardown */
    struct sh_msg *source = test.rig.askers[RIG_PEER].msg;
    const struct row row = {"stage", SH_MOVES_STAGE, size, size, false};
    shoal_cid cid = shoal_cid_make((shoal_nid){SH_PEER_NID_MIN + 7}, sequence);
    bool is_large = sh_moves_is_large(1, size);
    disk_catches_up();
    gate_hold(&test.gate, true);
    stage_send(&stage, sequence, cid, size);
    for (uint32_t at = 0; is_large && at < size; at += SH_STORE_PIECE_BYTES) {
        struct sh_out out;
        uint32_t bytes = size - at < SH_STORE_PIECE_BYTES ? size - at : SH_STORE_PIECE_BYTES;
        assert_int_equal(sh_msg_begin(source, (shoal_nid){RIG_NID}, SH_MOVES_PIECE,
                                      SH_MOVES_PIECE_BYTES + bytes, &out),
                         SHOAL_OK);
        sh_put64(&out.w, sequence);
        sh_put32(&out.w, at);
        sh_put_raw(&out.w, sh_bytes_make(pattern + at, bytes));
        sh_msg_end(source, &out);
        settle();
    }
    assert_answered(&row, "nothing is in the log", &stage, false);
    log_steps();
    assert_answered(&row, "nothing is synced", &stage, false);
    gate_hold(&test.gate, false);
    log_steps();
    assert_answered(&row, "all is on the disk", &stage, true);
    assert_int_equal(stage.err, SHOAL_OK);
}

static void test_stage(void **state)
{
    (void)state;
    stage_check(1, SMALL);
    stage_check(2, LARGE);
}

/* A batch that is called off while it is being logged, and one that is when the node ends. */
static void test_stage_called_off(void **state)
{
    (void)state;
    static struct ask stage;
    struct sh_msg *source = test.rig.askers[RIG_PEER].msg;
    disk_catches_up();
    for (uint64_t sequence = 1; sequence < 3; sequence++) {
        struct sh_out out;
        shoal_cid cid = shoal_cid_make((shoal_nid){SH_PEER_NID_MIN + 7}, 1);
        gate_hold(&test.gate, true);
        stage_send(&stage, sequence, cid, SMALL);
        assert_false(stage.is_done);
        if (sequence == 2)
            break;
        assert_int_equal(
            sh_msg_begin(source, (shoal_nid){RIG_NID}, SH_MOVES_DONE, SH_MOVES_DONE_BYTES, &out),
            SHOAL_OK);
        sh_put64(&out.w, sequence);
        sh_put8(&out.w, 1); /* a source that was not answered can't say so */
        sh_msg_end(source, &out);
        settle();
        assert_true(stage.is_done && stage.err == SHOAL_ECANCELED);
        gate_hold(&test.gate, false);
        log_steps();
    }
}

/* Where a backlog is full a change is refused for the moment, and is done when it is asked for again under its number. */
static void test_no_room(void **state)
{
    (void)state;
    static struct ask write;
    const struct row put = {"put once", SH_CHUNKS_PUT_ONCE, MEDIUM, MEDIUM, false};
    shoal_cid cid = chunk_make(MEDIUM);
    struct sh_bytes payload = {0};
    unsigned done = 0;
    disk_catches_up();
    do {
        payload = payload_of(&put, cid);
        ask_send(&write, SH_CHUNKS_AT(SH_CHUNKS_PUT_ONCE, SH_LEVEL_ASYNC), payload);
        assert_true(write.is_done);
    } while (!write.err && ++done < 5000);
    assert_int_equal(write.err, SHOAL_EBUSY);
    assert_true(done > 100);
    disk_catches_up();
    ask_send(&write, SH_CHUNKS_AT(SH_CHUNKS_PUT_ONCE, SH_LEVEL_ASYNC), payload);
    assert_true(write.is_done && !write.err);
    assert_int_equal(sh_helds_count(sh_chunks_helds(test.rig.chunks)), 0);
}

/* So many answers wait that another one can't: it is refused, and nothing was done; what need not wait goes on. */
static void test_many_wait(void **state)
{
    (void)state;
    static struct ask writes[RIG_HELDS_MAX], more, look, reading;
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    const struct row resize = {"resize", SH_CHUNKS_RESIZE_ONCE, SMALL, 2 * SMALL, false};
    const struct row get = {"get", SH_CHUNKS_GET, SMALL, SMALL, false};
    shoal_cid cid = chunk_make(SMALL), clean = chunk_make(SMALL);
    uint32_t size;
    disk_catches_up();
    gate_hold(&test.gate, true);
    for (unsigned i = 0; i < RIG_HELDS_MAX; i++)
        ask_send(&writes[i], SH_CHUNKS_PUT, payload_of(&put, cid));
    ask_send(&more, SH_CHUNKS_RESIZE_ONCE, payload_of(&resize, clean));
    ask_send(&look, SH_CHUNKS_GET, payload_of(&get, cid));
    ask_send(&reading, SH_CHUNKS_GET, payload_of(&get, clean));
    assert_true(more.is_done && more.err == SHOAL_EBUSY);
    assert_true(look.is_done && look.err == SHOAL_EBUSY);
    assert_true(reading.is_done && !reading.err);
    assert_int_equal(sh_store_size(test.rig.store, (sh_lid){shoal_cid_local(clean)}, &size),
                     SHOAL_OK);
    assert_int_equal(size, SMALL);
    log_steps();
    for (unsigned i = 0; i < RIG_HELDS_MAX; i++)
        assert_true(writes[i].is_done && !writes[i].err);
}

/* The log's disk fails: what waits is told that it may be lost, and no change is made any more. */
static void test_out_of_service(void **state)
{
    (void)state;
    static struct ask write, look, more, reading;
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    const struct row get = {"get", SH_CHUNKS_GET, SMALL, SMALL, false};
    shoal_cid cid = chunk_make(SMALL), clean = chunk_make(SMALL);
    disk_catches_up();
    test.gate.fails = true;
    ask_send(&write, SH_CHUNKS_PUT, payload_of(&put, cid));
    ask_send(&look, SH_CHUNKS_GET, payload_of(&get, cid));
    assert_false(write.is_done || look.is_done);
    log_steps();
    assert_true(write.is_done && write.err == SHOAL_EIO);
    assert_true(look.is_done && look.err == SHOAL_EIO);
    /* Also who comes later, of what the failed write has changed. */
    ask_send(&more, SH_CHUNKS_PUT, payload_of(&put, cid));
    ask_send(&reading, SH_CHUNKS_GET, payload_of(&get, clean));
    assert_true(reading.is_done && !reading.err);
    ask_send(&look, SH_CHUNKS_GET, payload_of(&get, cid));
    log_steps();
    assert_true(more.is_done && more.err == SHOAL_EIO);
    assert_true(look.is_done && look.err == SHOAL_EIO);
    test.gate.fails = false;
}

/* An answer that waits has nobody to hear it any more. */
static void test_asker_gone(void **state)
{
    (void)state;
    static struct ask write; /* a failed test leaves them to the teardown */
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    shoal_cid cid = chunk_make(SMALL);
    struct sh_helds *helds = sh_chunks_helds(test.rig.chunks);
    disk_catches_up();
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_PUT, payload_of(&put, cid));
    assert_int_equal(sh_helds_count(helds), 1);
    rig_cut(&test.rig, RIG_CLIENT);
    log_steps();
    assert_int_equal(sh_helds_count(helds), 0);
    sh_msg_cancel(test.rig.askers[RIG_CLIENT].msg, &write.request);
}

/* The node ends while answers wait. */
static void test_end(void **state)
{
    (void)state;
    static struct ask write, look, read;
    const struct row put = {"put", SH_CHUNKS_PUT, SMALL, SMALL, false};
    const struct row get = {"get", SH_CHUNKS_GET, MEDIUM, MEDIUM, false};
    shoal_cid cid = chunk_make(SMALL), medium = chunk_make(MEDIUM);
    const struct row put_medium = {"put", SH_CHUNKS_PUT, MEDIUM, MEDIUM, false};
    disk_catches_up();
    gate_hold(&test.gate, true);
    ask_send(&write, SH_CHUNKS_PUT, payload_of(&put, cid));
    ask_send(&look, SH_CHUNKS_PUT, payload_of(&put_medium, medium));
    ask_send(&read, SH_CHUNKS_GET, payload_of(&get, medium));
    assert_false(write.is_done || look.is_done || read.is_done);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_looks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sync, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_of_two, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stage_called_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_service, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asker_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
    };
    return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
