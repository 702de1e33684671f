/* What a shard's owner sends, rule by rule: entries as they are ordered, what was lost again, and the state
 * in pieces to who lacks what is forgotten. */
#include "ring/ring_rules_rig_test.h"

static uint8_t large[1000];

static uint64_t version(void)
{
    return arcs.shards[OURS].version;
}

/* The message that went out last, as an append of that many entries behind `before`. */
static void assert_append(uint64_t before, uint64_t before_epoch, uint64_t applied, unsigned count)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(sent.body, sent.size));
    assert_int_equal(sh_get64(&r), before);
    assert_int_equal(sh_get64(&r), before_epoch);
    assert_int_equal(sh_get64(&r), applied);
    assert_int_equal(sh_get32(&r), count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(sh_get64(&r), version());
        assert_int_equal(sh_get32(&r), SMALL.size);
        assert_memory_equal(sh_reader_take(&r, SMALL.size), SMALL.at, SMALL.size);
    }
    assert_true(sh_reader_done(&r));
}

/* Entries go out as they are ordered; that they are applied, with the next ones or after a while; what
 * is not answered is said again, from where the logs agree. */
static void what_is_sent(void **state)
{
    (void)state;
    uint64_t number;
    own();
    (void)is_sent(OTHER, OURS, SH_RING_APPEND, &number);
    for (unsigned i = 1; i <= 2; i++) {
        assert_int_equal(order(SMALL), SHOAL_OK);
        (void)sh_ring_step(ring, now_ns); /* at once */
        assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
        assert_int_equal(sent.count, 1);
        assert_append(i - 1, i == 1 ? built_version : version(), 0, 1);
    }
    now_ns += RESEND - 1;
    store();
    (void)sh_ring_step(ring, now_ns);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    answer_body(1, version());
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    (void)sh_ring_step(ring, now_ns);
    assert_applied(1);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number)); /* the second one is under way */
    step_at(now_ns + RESEND - 1);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    step_at(now_ns + 1);
    assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    assert_append(1, version(), 1, 1);
    answer_body(2, version());
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    (void)sh_ring_step(ring, now_ns);
    assert_applied(2);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    now_ns += RESEND;
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    assert_append(2, version(), 2, 0);
    struct sh_writer *w = body_begin();
    sh_put64(w, 2);
    sh_put64(w, version());
    sh_put64(w, 2);
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    step();
    step();
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number)); /* it knows all */
    for (unsigned i = 1; i < 3; i++) {
        refuse();
        (void)sh_ring_step(ring, now_ns); /* at once, again */
        assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
        assert_append(2, version() - i, 2, 0);
    }
}

/* After a loss one message goes out at a time, until there is an answer; what was stored meanwhile is not
 * sent again. */
static void what_is_sent_after_a_loss(void **state)
{
    (void)state;
    uint64_t number;
    own();
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(order(SMALL), SHOAL_OK);
    (void)sh_ring_step(ring, now_ns);
    for (unsigned i = 0; i < 2; i++) {
        (void)is_sent(OTHER, OURS, SH_RING_APPEND, &number);
        step();
        assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
        assert_append(0, built_version, 0, 3);
    }
    assert_int_equal(order(SMALL), SHOAL_OK);
    (void)sh_ring_step(ring, now_ns);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    for (unsigned i = 1; i < 5; i += 3) {
        answer_body(i, version());
        send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    }
    (void)sh_ring_step(ring, now_ns);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
}

/* Messages are not much longer than configured, and no more than a few go out in one step. */
static void what_is_sent_at_once_is_bounded(void **state)
{
    (void)state;
    uint64_t number;
    own();
    (void)is_sent(OTHER, OURS, SH_RING_APPEND, &number);
    for (unsigned i = 0; i < 81; i++)
        assert_int_equal(order(sh_bytes_make(large, 1000)), SHOAL_OK);
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    assert_int_equal(sent.count, 8);
    assert_in_range(sent.size, PIECE, PIECE + 1012);
    unsigned each = sh_load32(sent.body + 24);
    assert_int_equal(number, (sent.count - 1) * each);
    assert_int_equal(sh_ring_due_ns(ring), 0);
    unsigned all = sent.count;
    for (unsigned i = 0; i < 8; i++) {
        (void)sh_ring_step(ring, now_ns);
        if (is_sent(OTHER, OURS, SH_RING_APPEND, &number))
            all += sent.count;
    }
    assert_int_equal(all, (81 + each - 1) / each);
    assert_int_not_equal(81 % each, 0);
    assert_int_not_equal(sh_ring_due_ns(ring), 0);
    step(); /* all of it was lost */
    assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    assert_int_equal(sent.count, 1);
}

/* Who says where to try next is asked there; who has something else at that place, or nothing, gets all. */
static void who_disagrees_is_asked_elsewhere(void **state)
{
    (void)state;
    uint64_t number;
    own();
    (void)update();
    (void)update();
    (void)is_sent(OTHER, OURS, SH_RING_APPEND, &number);
    answer_body(1, version());
    send(OTHER, OURS, SH_RING_ANSWER, 0);
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(OTHER, OURS, SH_RING_APPEND, &number));
    assert_append(1, version(), 0, 1);
    assert_int_equal(order(SMALL), SHOAL_OK);
    (void)sh_ring_step(ring, now_ns);
    assert_false(is_sent(OTHER, OURS, SH_RING_APPEND, &number)); /* one message at a time */
    answer_body(1, version() + 1);
    send(OTHER, OURS, SH_RING_ANSWER, 0);
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(OTHER, OURS, SH_RING_SNAPSHOT, &number));
    has_stored(OTHER, 2, version()); /* it came late, and is not needed any more */
    assert_int_equal(fsm.open, 0);
    assert_applied(2);
    answer_body(0, 0);
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_EMPTY);
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(OTHER, OURS, SH_RING_SNAPSHOT, &number));
    assert_int_equal(fsm.open, 1);
    arcs_change(SH_ARC_HAND, OURS, OTHER);
    assert_int_equal(fsm.open, 0);
}

/* --- Snapshots ------------------------------------------------------------------------------------- */

/* That many updates are done. */
static void update_often(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        (void)order(SMALL);
    store();
    has_stored(OTHER, sh_ring_last(ring, OURS), version());
    assert_applied(sh_ring_last(ring, OURS));
}

/* Superpeer 3 wants that piece. */
static void wants(uint64_t transfer, unsigned piece)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, transfer);
    sh_put32(w, piece);
    send(THIRD, OURS, SH_RING_SNAPSHOT_ANSWER, 0);
    (void)sh_ring_step(ring, now_ns);
}

static void assert_piece(uint64_t transfer, uint64_t sequence, unsigned piece, bool is_last)
{
    uint64_t number;
    assert_true(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number));
    assert_int_equal(number, transfer);
    assert_int_equal(sh_load64(sent.body + 8), sequence);
    assert_int_equal(sh_load64(sent.body + 16), version());
    assert_int_equal(sh_load32(sent.body + 24), piece);
    assert_int_equal(sent.flags, is_last ? SH_RING_LAST : 0);
    assert_int_equal(sent.size, is_last ? 28 : 29);
    assert_true(is_last || sent.body[28] == fsm.pieces - piece);
}

/* Who lacks what is forgotten gets the state in pieces, and what came meanwhile behind it: that is not
 * forgotten. */
static void who_lacks_what_is_forgotten_gets_the_state(void **state)
{
    (void)state;
    uint64_t number;
    fsm.pieces = 2;
    own();
    arcs.up |= sh_arc_bit(THIRD);
    tell();
    update_often(4 * KEPT);
    step();
    assert_piece(1, 4 * KEPT, 0, false);
    update_often(4 * KEPT);
    (void)is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number);
    wants(2, 1);
    wants(1, 2); /* none of these is there */
    assert_false(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number));
    wants(1, 1);
    assert_piece(1, 4 * KEPT, 1, false);
    step();
    assert_piece(1, 4 * KEPT, 1, false); /* again */
    wants(1, 2);
    assert_piece(1, 4 * KEPT, 2, true);
    wants(1, 3);
    assert_false(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number));
    answer_body(4 * KEPT, version());
    send(THIRD, OURS, SH_RING_ANSWER, SH_RING_YES);
    assert_int_equal(fsm.open, 0);
    (void)sh_ring_step(ring, now_ns);
    assert_true(is_sent(THIRD, OURS, SH_RING_APPEND, &number));
    assert_int_equal(sent.count, 2); /* no more than a piece in one message */
    assert_int_equal(asked_kind(THIRD), 0);
    has_stored(THIRD, 8 * KEPT, version());
    assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
}

/* A state that is long on its way, or of which what was sent is lost, is begun anew. */
static void a_state_is_begun_anew(void **state)
{
    (void)state;
    fsm.pieces = 2;
    own();
    arcs.up |= sh_arc_bit(THIRD);
    tell();
    answer_body(0, 0);
    send(THIRD, OURS, SH_RING_ANSWER, SH_RING_EMPTY);
    (void)sh_ring_step(ring, now_ns);
    uint64_t number;
    assert_true(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number) && number == 1);
    wants(1, 1);
    assert_true(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number) && number == 1);
    wants(1, 0);
    assert_true(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number) && number == 2);
    assert_int_equal(fsm.open, 1);
    for (unsigned i = 0; i < SH_RING_SNAPSHOT_AGE / 4; i++)
        update_often(4 * KEPT);
    step();
    assert_true(is_sent(THIRD, OURS, SH_RING_SNAPSHOT, &number) && number == 2);
    update_often(1);
    step();
    assert_piece(3, SH_RING_SNAPSHOT_AGE * KEPT + 1, 0, false);
    /* Who begins anew itself has nothing of it. */
    assert_int_equal(sh_arcs_start(&arcs, THIRD, UINT64_C(2) << 32), SH_ARCS_STARTED);
    tell();
    assert_int_equal(fsm.open, 0);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_is_sent),
        CASE(what_is_sent_after_a_loss),
        CASE(what_is_sent_at_once_is_bounded),
        CASE(who_disagrees_is_asked_elsewhere),
        CASE(who_lacks_what_is_forgotten_gets_the_state),
        CASE(a_state_is_begun_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
