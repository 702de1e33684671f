/* When a node answers: a change, once it is acknowledged at its level; a repeated one, no earlier; and whatever tells of a chunk, once what it
 * tells is acknowledged at the level of its write. One row for each request that a node serves: a new one belongs here,
 * in levels_test.h if it changes chunks. */
#include "node/levels_test.h"

/* --- Changes ----------------------------------------------------------------------------------- */

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

static void pieces_send(uint64_t sequence, uint32_t size)
{
    struct sh_msg *source = test.rig.askers[RIG_PEER].msg;
    for (uint32_t at = 0; at < size; at += SH_STORE_PIECE_BYTES) {
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
}

/* Chunks that move here are on the disk before their source hears that they came, and forgets them. */
static void stage_check(uint64_t sequence, uint32_t size)
{
    static struct ask stage; /* a failed test leaves them to the teardown */
    const struct row row = {"stage", SH_MOVES_STAGE, size, size, false};
    shoal_cid cid = shoal_cid_make((shoal_nid){SH_PEER_NID_MIN + 7}, sequence);
    disk_catches_up();
    gate_hold(&test.gate, true);
    stage_send(&stage, sequence, cid, size);
    if (sh_moves_is_large(1, size))
        pieces_send(sequence, size);
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

static bool is_here(shoal_cid cid)
{
    uint32_t size;
    return !sh_store_size(test.rig.store, cid, &size);
}

/* While a zone that is brought back is put into the store nothing else comes there: it would be taken for the zone's, which lets go of what is another's. */
static void test_stage_while_a_zone_is_read(void **state)
{
    (void)state;
    static struct ask stage;
    shoal_cid cid = shoal_cid_make((shoal_nid){SH_PEER_NID_MIN + 7}, 1);
    disk_catches_up();
    test.is_filling = true;
    stage_send(&stage, 1, cid, SMALL);
    assert_true(stage.is_done && stage.err == SHOAL_EBUSY);
    stage_send(&stage, 2, cid, LARGE);
    assert_true(stage.is_done && stage.err == SHOAL_EBUSY);
    assert_false(is_here(cid));
    /* A large one that has begun to come waits at its end. */
    test.is_filling = false;
    stage_send(&stage, 3, cid, LARGE);
    test.is_filling = true;
    pieces_send(3, LARGE);
    log_steps();
    assert_false(stage.is_done || is_here(cid));
    test.is_filling = false;
    log_steps();
    assert_true(stage.is_done && !stage.err && is_here(cid));
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
        cmocka_unit_test_setup_teardown(test_stage_while_a_zone_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stage_called_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_no_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_wait, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_service, setup, teardown),
        cmocka_unit_test_setup_teardown(test_asker_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_end, setup, teardown),
    };
    return cmocka_run_group_tests_name("levels", tests, NULL, NULL);
}
