/* When a node answers: what its tests share. The node has a log on a disk in memory, which the test lets get on in two stages: first nothing of what
 * is written is in the log, then it is handed to the disk (replicated), then synced (durable). */
#ifndef SH_NODE_LEVELS_TEST_H
#define SH_NODE_LEVELS_TEST_H

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
    bool is_opening; /* a zone is about to be served */
    bool is_filling; /* one is being read */
    uint64_t seed;
};

static struct test test;
static uint8_t request_bytes[1 << 20];
static uint8_t pattern[LARGE];

static inline void wake(void *arg)
{
    (void)arg; /* the test steps */
}

static inline void settle(void)
{
    struct sh_step moves = sh_moves_step(test.moves);
    do
        rig_settle(&test.rig);
    while (moves.run(moves.arg) > 0);
}

/* The log gets on as far as its disk lets it. */
static inline void log_steps(void)
{
    for (unsigned i = 0; i < 100; i++) {
        test.rig.node.memwire.now_ns += 1000000;
        (void)sh_disk_poll(&test.gate.base, false);
        (void)sh_backup_step(test.rig.backup, test.rig.node.memwire.now_ns, 1);
        settle();
    }
}

/* All is on the disk. */
static inline void disk_catches_up(void)
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

static inline bool is_opening(void *arg)
{
    return ((const struct test *)arg)->is_opening;
}

static inline bool is_filling(void *arg)
{
    return ((const struct test *)arg)->is_filling;
}

static inline void moves_open(void)
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
                                           .clock = clock,
                                           .is_opening = is_opening,
                                           .is_filling = is_filling,
                                           .arg = &test};
    assert_int_equal(sh_moves_create(&config, &test.moves), SHOAL_OK);
}

static inline void test_rig_open(void)
{
    const struct sh_backup_config backed = {
        .nid = {RIG_NID}, .zone_bytes = 2 << 20, .window_bytes = 8 << 20, .wake = wake};
    rig_open_backed(&test.rig, 8, backed);
    moves_open();
}

/* A node without a log. */
static inline int setup_unlogged(void **state)
{
    (void)state;
    test = (struct test){.gate.base.ops = &gate_ops};
    test_rig_open();
    assert_int_equal(sh_memory_disk_create(&test.gate.inner), SHOAL_OK);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 7 + i / 251 + 1);
    return 0;
}

static inline void test_log_open(void)
{
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
}

static inline int setup(void **state)
{
    (void)setup_unlogged(state);
    test_log_open();
    sh_backup_home_set(test.rig.backup, test.log);
    log_steps();
    return 0;
}

static inline void test_node_end(void)
{
    sh_moves_destroy(test.moves);
    sh_directory_destroy(test.directory);
    rig_close(&test.rig);
    sh_replog_close(test.log);
}

static inline int teardown(void **state)
{
    (void)state;
    gate_hold(&test.gate, false);
    test_node_end();
    test.gate.inner->ops->destroy(test.gate.inner);
    return 0;
}

static inline void on_answer(struct sh_request *request, enum shoal_err err,
                             struct sh_reader *payload)
{
    struct ask *ask = request->arg;
    assert_false(ask->is_done);
    ask->is_done = true;
    ask->err = err;
    ask->size = sh_reader_left(payload);
    if (!err && ask->size)
        memcpy(ask->answer, payload->at, ask->size < ANSWER_MAX ? ask->size : ANSWER_MAX);
}

static inline void ask_send_by(unsigned who, struct ask *ask, sh_msg_type type,
                               struct sh_bytes payload)
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

static inline void ask_send(struct ask *ask, sh_msg_type type, struct sh_bytes payload)
{
    ask_send_by(RIG_CLIENT, ask, type, payload);
}

/* --- Requests ---------------------------------------------------------------------------------- */

/* A chunk of the node that is on the disk, filled with the pattern. */
static inline shoal_cid chunk_make(uint32_t size)
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
static inline void chunks_drop(shoal_cid first, uint32_t count)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (uint32_t i = 0; i < count; i++) {
        enum shoal_err err =
            sh_backup_remove(test.rig.backup, &write, (sh_lid){shoal_cid_local(first) + i});
        assert_true(err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    }
}

static inline shoal_cid reserved_make(void)
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

static inline bool is_once(sh_msg_type form)
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

static inline void once_put(struct sh_writer *w)
{
    const struct sh_once_id id = {.client = 99, .number = ++test.number};
    sh_once_id_put(w, &id);
}

/* Puts the fields of the request behind the chunk's ID; the chunk has so many bytes of the pattern. */
static inline void rest_put(struct sh_writer *w, const struct row *row)
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

static inline struct sh_bytes payload_of(const struct row *row, shoal_cid cid)
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
static inline shoal_cid chunk_of(const struct row *row)
{
    if (row->chunk_bytes)
        return chunk_make(row->chunk_bytes);
    return row->form == SH_CHUNKS_FILL_ONCE ? reserved_make() : (shoal_cid){0};
}

static inline void assert_answered(const struct row *row, const char *when, const struct ask *ask,
                                   bool is_answered)
{
    if (ask->is_done != is_answered)
        fail_msg("%s, %s: %s", row->name, when,
                 ask->is_done ? "answered too early" : "not answered");
    if (ask->is_done && (ask->err == SHOAL_OK) == row->fails && !ask->size)
        fail_msg("%s, %s: %s", row->name, when, shoal_err_name(ask->err));
}

#endif
