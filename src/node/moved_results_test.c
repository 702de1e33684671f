/* Results of requests move with their chunk, and are in the log of the node that takes it before the source hears that the chunk came: a process that
 * ends then leaves a next life that knows it. */
#include "node/levels_test.h"

#include "recover/home.h"

#define SOURCE (SH_PEER_NID_MIN + 7)
#define MOST 25000u /* so many results need more room than a zone's backlog has left */

static struct ask stage; /* a failed test leaves them to the teardown */
static struct sh_outcome results[MOST];

/* --- A batch ----------------------------------------------------------------------------------- */

static shoal_cid moved_chunk(uint64_t number)
{
    return shoal_cid_make((shoal_nid){SOURCE}, number);
}

/* STAGE of one chunk, and its pieces if it is large. */
static void stage_send(uint64_t sequence, uint32_t size, uint32_t count)
{
    struct sh_msg *source = test.rig.askers[RIG_PEER].msg;
    struct sh_writer w = sh_writer_make(request_bytes, sizeof request_bytes);
    sh_put64(&w, sequence);
    sh_put16(&w, 1);
    sh_put32(&w, count);
    sh_put32(&w, 0);
    sh_put64(&w, moved_chunk(sequence).v);
    sh_put64(&w, moved_chunk(sequence).v);
    sh_put32(&w, size);
    bool is_large = sh_moves_is_large(1, size);
    if (!is_large)
        sh_put_raw(&w, sh_bytes_make(pattern, size));
    for (uint32_t i = 0; i < count; i++) {
        results[i].cid = moved_chunk(sequence).v;
        sh_outcome_put(&w, &results[i]);
    }
    assert_true(sh_writer_ok(&w));
    ask_send_by(RIG_PEER, &stage, SH_MOVES_STAGE,
                sh_bytes_make(request_bytes, (size_t)(w.at - request_bytes)));
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
}

/* No step comes behind the answer: the process ends with it. */
static void stage_await(void)
{
    for (unsigned i = 0; i < 3000 && !stage.is_done; i++) {
        test.rig.node.memwire.now_ns += 1000000;
        (void)sh_disk_poll(&test.gate.base, false);
        (void)sh_backup_step(test.rig.backup, test.rig.node.memwire.now_ns, 1);
        settle();
    }
    assert_true(stage.is_done);
    assert_int_equal(stage.err, SHOAL_OK);
}

/* --- Its next life ----------------------------------------------------------------------------- */

static void on_completed(void *arg, const struct sh_completion *completion)
{
    (void)arg;
    if (completion->node)
        sh_moves_completed(test.moves, completion);
    else
        sh_chunks_completed(test.rig.chunks, completion);
}

/* The process ends, and another one begins with what is on the disk. By what the superpeers say the chunk is here. */
static void restart(shoal_cid cid)
{
    struct sh_recovered found;
    test_node_end();
    test_rig_open();
    test_log_open();
    const struct sh_recover_home home = {.log = test.log,
                                         .disk = &test.gate.base,
                                         .backup = test.rig.backup,
                                         .store = test.rig.store,
                                         .nid = {RIG_NID},
                                         .is_nameless = true,
                                         .clock = sh_memwire_env(&test.rig.node.memwire).clock,
                                         .completed = on_completed};
    assert_int_equal(sh_recover_home_run(&home, &found), SHOAL_OK);
    sh_backup_home_set(test.rig.backup, test.log);
    sh_holdings_set(sh_chunks_holdings(test.rig.chunks), cid, cid, SH_HOLDING_HELD, SHOAL_NID_NONE);
    log_steps();
}

/* What the node answers a client that repeats a request. */
static enum shoal_err outcome_ask(shoal_cid cid, uint64_t client, uint16_t nid, uint64_t number,
                                  bool *is_known_out, uint64_t *value_out)
{
    static struct ask ask;
    uint8_t payload[SH_MOVES_OUTCOME_BYTES];
    struct sh_writer w = sh_writer_make(payload, sizeof payload);
    sh_put64(&w, cid.v);
    sh_put64(&w, client);
    sh_put16(&w, nid);
    sh_put64(&w, number);
    ask_send(&ask, SH_MOVES_OUTCOME, sh_bytes_make(payload, sizeof payload));
    assert_true(ask.is_done);
    if (ask.err)
        return ask.err;
    assert_int_equal(sh_load16(ask.answer + 1), SHOAL_OK);
    *value_out = sh_load64(ask.answer + 3);
    *is_known_out = ask.answer[0];
    return SHOAL_OK;
}

/* Whether it knows what came of that. */
static bool is_known(shoal_cid cid, uint64_t client, uint16_t nid, uint64_t number,
                     uint64_t *value_out)
{
    bool is_it;
    assert_int_equal(outcome_ask(cid, client, nid, number, &is_it, value_out), SHOAL_OK);
    return is_it;
}

/* --- The tests --------------------------------------------------------------------------------- */

/* A change of a chunk of the node itself, by a client that has acknowledged more than it had at the source. */
static void own_request(uint64_t client, uint64_t number)
{
    static struct ask ask;
    uint8_t payload[SH_ONCE_PREFIX_BYTES + 16] = {0};
    const struct sh_once_id id = {client, number, number - 1};
    shoal_cid cid = chunk_make(8);
    struct sh_writer w = sh_writer_make(payload, sizeof payload);
    sh_once_id_put(&w, &id);
    sh_put64(&w, cid.v);
    ask_send(&ask, SH_CHUNKS_PUT_ONCE, sh_bytes_make(payload, sizeof payload));
    log_steps();
    assert_true(ask.is_done && !ask.err);
}

static void results_of_a_chunk(uint64_t sequence, uint32_t size)
{
    const struct sh_outcome few[] = {
        {.client = 5, .number = 9, .nid = {SOURCE}, .value = 41},
        {.client = 5, .number = 11, .nid = {SOURCE}},
        {.client = 6, .number = 9, .nid = {SOURCE + 1}, .value = 43},
        {.client = 6, .number = 10, .nid = {SOURCE}, .err = SHOAL_EDIFFERS},
    };
    shoal_cid cid = moved_chunk(sequence);
    uint64_t value;
    uint8_t byte;
    own_request(5, 20);
    memcpy(results, few, sizeof few);
    stage_send(sequence, size, 4);
    stage_await();
    restart(cid);
    assert_int_equal(sh_store_get_part(test.rig.store, sh_holdings_lid((shoal_nid){RIG_NID}, cid),
                                       size - 1, &byte, 1),
                     SHOAL_OK);
    assert_int_equal(byte, pattern[size - 1]);
    assert_true(is_known(cid, 5, SOURCE, 9, &value));
    assert_int_equal(value, 41);
    assert_true(is_known(cid, 5, SOURCE, 11, &value));
    assert_int_equal(value, 0);
    assert_true(is_known(cid, 6, SOURCE + 1, 9, &value));
    assert_int_equal(value, 43);
    /* A request that failed is worked out anew; and the node's own numbers are others. */
    assert_false(is_known(cid, 6, SOURCE, 10, &value));
    assert_false(is_known(cid, 5, RIG_NID, 9, &value));
    assert_true(is_known(cid, 5, RIG_NID, 20, &value));
}

static void of_a_small_chunk(void **state)
{
    (void)state;
    results_of_a_chunk(1, SMALL);
}

static void of_a_chunk_in_pieces(void **state)
{
    (void)state;
    results_of_a_chunk(1, LARGE);
}

/* They are recorded as there is room for them, and STAGE is answered after the last. */
static void more_than_there_is_room_for(void **state)
{
    (void)state;
    uint64_t value;
    struct sh_write write;
    shoal_cid filler = chunk_make(MEDIUM);
    for (uint32_t i = 0; i < MOST; i++)
        results[i] = (struct sh_outcome){
            .client = 7, .number = 1000 + i, .nid = {SOURCE}, .value = i * UINT64_C(3)};
    disk_catches_up();
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (unsigned i = 0; i < 150; i++)
        assert_int_equal(sh_backup_put(test.rig.backup, &write, (sh_lid){shoal_cid_local(filler)},
                                       sh_bytes_make(pattern, MEDIUM)),
                         SHOAL_OK);
    stage_send(2, SMALL, MOST);
    assert_false(stage.is_done);
    stage_await();
    restart(moved_chunk(2));
    for (uint32_t i = 0; i < MOST; i += 97) {
        assert_true(is_known(moved_chunk(2), 7, SOURCE, 1000 + i, &value));
        assert_int_equal(value, i * UINT64_C(3));
    }
    assert_true(is_known(moved_chunk(2), 7, SOURCE, 1000 + MOST - 1, &value));
}

static void done_send(uint64_t sequence, bool is_committed)
{
    uint8_t payload[SH_MOVES_DONE_BYTES];
    struct sh_out out;
    sh_store64(payload, sequence);
    payload[8] = is_committed;
    assert_int_equal(sh_msg_begin(test.rig.askers[RIG_PEER].msg, (shoal_nid){RIG_NID},
                                  SH_MOVES_DONE, sizeof payload, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(payload, sizeof payload));
    sh_msg_end(test.rig.askers[RIG_PEER].msg, &out);
    settle();
}

/* A batch that is called off while it is being recorded. */
static void called_off(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MOST; i++)
        results[i] = (struct sh_outcome){.client = 7, .number = 1 + i, .nid = {SOURCE}};
    gate_hold(&test.gate, true);
    stage_send(1, SMALL, MOST);
    assert_false(stage.is_done);
    done_send(1, false);
    assert_true(stage.is_done);
    assert_int_equal(stage.err, SHOAL_ECANCELED);
    assert_false(sh_moves_has_staged(test.moves));
    disk_catches_up();
}

/* What a node made that has failed since, and whose zone was brought back here: who asks names no chunk, as it does not know that there is one. */
static void what_another_node_made(void **state)
{
    (void)state;
    const struct sh_completion completion = {
        .client = 8, .number = 3, .node = SOURCE, .chunk = moved_chunk(40).v, .is_create = true};
    shoal_cid any = shoal_cid_make((shoal_nid){SOURCE}, 0);
    uint64_t value;
    struct sh_completion told = completion;
    told.is_with_chunk = true;
    sh_moves_completed(test.moves, &told);
    assert_false(is_known(any, 8, SOURCE, 3, &value)); /* the chunk is not here */
    sh_moves_completed(test.moves, &completion);
    assert_true(is_known(any, 8, SOURCE, 3, &value));
    assert_int_equal(value, 40);
    assert_false(is_known(any, 8, SOURCE, 4, &value));
    any = shoal_cid_make((shoal_nid){SOURCE + 1}, 0);
    assert_false(is_known(any, 8, SOURCE + 1, 3, &value));
}

/* Who asks all nodes names no chunk. A result that has come with a chunk says nothing before it is decided that the chunk is here, and if it is not: what the source had done may be lost with the
 * source. */
static void of_a_batch_that_is_not_decided(void **state)
{
    (void)state;
    shoal_cid any = shoal_cid_make((shoal_nid){SOURCE}, 0);
    uint64_t value;
    bool is_it;
    for (unsigned is_committed = 0; is_committed < 2; is_committed++) {
        uint64_t sequence = 1 + is_committed;
        results[0] =
            (struct sh_outcome){.client = 5, .number = 10 + sequence, .nid = {SOURCE}, .value = 41};
        stage_send(sequence, SMALL, 1);
        disk_catches_up();
        stage_await();
        assert_int_equal(outcome_ask(any, 5, SOURCE, 10 + sequence, &is_it, &value), SHOAL_EBUSY);
        done_send(sequence, is_committed);
        disk_catches_up();
        assert_int_equal(is_known(any, 5, SOURCE, 10 + sequence, &value), is_committed);
        /* The chunk comes in another way, or goes on. */
        sh_holdings_set(sh_chunks_holdings(test.rig.chunks), moved_chunk(sequence),
                        moved_chunk(sequence), is_committed ? SH_HOLDING_PLAIN : SH_HOLDING_HELD,
                        SHOAL_NID_NONE);
        assert_int_equal(is_known(any, 5, SOURCE, 10 + sequence, &value), is_committed);
    }
}

/* A zone is about to be served whose results are not told yet: nobody is told that a request is not known here. */
static void while_a_zone_opens(void **state)
{
    (void)state;
    shoal_cid any = shoal_cid_make((shoal_nid){SOURCE}, 0);
    uint64_t value;
    bool is_it;
    test.is_opening = true;
    assert_int_equal(outcome_ask(any, 5, SOURCE, 1, &is_it, &value), SHOAL_EBUSY);
    test.is_opening = false;
    assert_false(is_known(any, 5, SOURCE, 1, &value));
}

/* A chunk of a former life was removed, and the result is here. Another zone of that life is lost: the chunk may have been in it, as far as this node can tell, but the result counts. */
static void of_a_chunk_that_may_be_lost(void **state)
{
    (void)state;
    shoal_cid cid = chunk_make(8);
    const struct sh_completion completion = {
        .client = 8, .number = 3, .node = SOURCE, .chunk = cid.v};
    uint64_t value;
    assert_int_equal(sh_store_remove(test.rig.store, (shoal_cid){shoal_cid_local(cid)}), SHOAL_OK);
    sh_moves_completed(test.moves, &completion);
    sh_holdings_lost_set(sh_chunks_holdings(test.rig.chunks), test.rig.store, shoal_cid_local(cid));
    assert_true(is_known(cid, 8, SOURCE, 3, &value));
    assert_false(is_known(cid, 8, SOURCE, 4, &value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(of_a_small_chunk, setup, teardown),
        cmocka_unit_test_setup_teardown(of_a_chunk_in_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(more_than_there_is_room_for, setup, teardown),
        cmocka_unit_test_setup_teardown(called_off, setup, teardown),
        cmocka_unit_test_setup_teardown(what_another_node_made, setup, teardown),
        cmocka_unit_test_setup_teardown(of_a_chunk_that_may_be_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(of_a_batch_that_is_not_decided, setup, teardown),
        cmocka_unit_test_setup_teardown(while_a_zone_opens, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
