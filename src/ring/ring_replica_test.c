/* A replica, rule by rule: what it takes from the owner, what it answers when, and what it has when it
 * begins anew on its disk. */
#include "ring/ring_rules_rig_test.h"

static uint64_t number; /* of what is_sent found */

static uint64_t version(void)
{
    return arcs.shards[THEIRS].version;
}

static uint64_t last(void)
{
    return sh_ring_last(ring, THEIRS);
}

static uint64_t applied(void)
{
    return sh_ring_applied(ring, THEIRS);
}

/* The superpeer's process ends, and another one begins, of which the registry hears. */
static void restart(void)
{
    close_ring();
    open_ring();
    uint64_t life = arcs.lives[OWN] + (UINT64_C(1) << 32);
    assert_int_equal(sh_arcs_start(&arcs, OWN, life), SH_ARCS_STARTED);
    sh_ring_start(ring, now_ns, &arcs);
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
}

/* The answer that goes to the owner: yes or not, and up to where. */
static void assert_answer(uint8_t flags, uint64_t sequence)
{
    assert_true(is_sent(OTHER, THEIRS, SH_RING_ANSWER, &number));
    assert_int_equal(sent.flags, flags);
    assert_int_equal(number, sequence);
}

static void assert_no_answer(void)
{
    assert_false(is_sent(OTHER, THEIRS, SH_RING_ANSWER, &number));
}

static void at_once(void)
{
    (void)sh_ring_step(ring, now_ns);
}

/* --- Appends ---------------------------------------------------------------------------------------- */

/* What is stored is answered, once; also as much of it as is stored while more comes. */
static void what_is_stored_is_answered(void **state)
{
    (void)state;
    follow();
    append(OTHER, 0, base_epoch(), 0, 1, version());
    at_once();
    assert_no_answer();
    store();
    append(OTHER, 1, version(), 0, 1, version());
    at_once();
    assert_answer(SH_RING_YES, 1);
    at_once();
    assert_no_answer();
    store();
    at_once();
    assert_answer(SH_RING_YES, 2);
    assert_int_equal(sh_load64(sent.body + 8), version());
    assert_int_equal(sh_load64(sent.body + 16), 0);
    step();
    step();
    assert_no_answer();
    append(OTHER, 2, version(), 2, 0, version()); /* asked again, it is told again */
    at_once();
    assert_answer(SH_RING_YES, 2);
    assert_int_equal(sh_load64(sent.body + 16), 2);
    assert_int_equal(fsm.applied, 2);
}

/* Another superpeer's entry of the same place goes; what is the same stays. */
static void what_the_owner_has_otherwise_goes(void **state)
{
    (void)state;
    follow();
    append(OTHER, 0, base_epoch(), 0, 3, version());
    store();
    step();
    append(OTHER, 0, base_epoch(), 1, 2, version());
    assert_int_equal(last(), 3); /* a message that came late takes nothing away */
    assert_int_equal(applied(), 1);
    uint64_t former = version();
    arcs_change(SH_ARC_HAND, THEIRS, THIRD);
    append(THIRD, 0, base_epoch() - 1, 1, 1, former);
    assert_int_equal(last(), 3);
    append(THIRD, 1, former, 1, 1, version());
    assert_int_equal(last(), 2);
    append(THIRD, 2, former, 1, 1, version()); /* not what is there now */
    assert_int_equal(last(), 2);
}

/* Whoever lacks what is before, or has something else there, says where to try. */
static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    follow();
    append(OTHER, 0, base_epoch(), 0, 2, version());
    store();
    step();
    assert_answer(SH_RING_YES, 2);
    append(OTHER, 5, version(), 0, 1, version());
    assert_answer(0, 2);
    append(OTHER, 1, version() + 1, 0, 1, version());
    assert_answer(0, 0);
    append(OTHER, 1, version(), 1, 0, version());
    append(OTHER, 2, version() + 1, 1, 1, version());
    assert_answer(0, 1);
    assert_int_equal(last(), 2);
}

/* What can't be taken, for want of room or because it is none, is not answered for; what was before is. */
static void what_can_not_be_taken_is_left_out(void **state)
{
    (void)state;
    follow();
    fsm.lacks_memory = true;
    append(OTHER, 0, base_epoch(), 0, 1, version());
    store();
    step();
    assert_answer(SH_RING_YES, 0);
    assert_int_equal(last(), 0);
    fsm.lacks_memory = false;
    struct sh_writer *w = body_begin();
    sh_put64(w, 0);
    sh_put64(w, base_epoch());
    sh_put64(w, 0);
    sh_put32(w, 2);
    sh_put64(w, version());
    sh_put32(w, 1);
    sh_put8(w, 7);
    sh_put64(w, version());
    sh_put32(w, SH_RING_COMMAND_BYTES_MAX); /* which are not there */
    sh_put8(w, 7);
    send(OTHER, THEIRS, SH_RING_APPEND, 0);
    assert_int_equal(last(), 1);
    (void)body_begin();
    send(OTHER, THEIRS, SH_RING_APPEND, 0); /* nothing at all */
    assert_int_equal(last(), 1);
    store();
    step();
    assert_answer(SH_RING_YES, 1);
    while (!sh_journal_is_full(journal))
        append(OTHER, last(), version(), 0, 8, version());
    uint64_t full = last();
    append(OTHER, full, version(), 0, 8, version());
    assert_int_equal(last(), full);
}

/* --- Snapshots ------------------------------------------------------------------------------------- */

/* A piece of the owner's state as of that sequence. */
static void piece(uint64_t transfer, uint64_t sequence, unsigned at, bool is_last)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, transfer);
    sh_put64(w, sequence);
    sh_put64(w, version());
    sh_put32(w, at);
    if (!is_last)
        sh_put8(w, 7);
    send(OTHER, THEIRS, SH_RING_SNAPSHOT, is_last ? SH_RING_LAST : 0);
}

/* Superpeers 2 and 3 have THEIRS; superpeer 1 is to. */
static void be_brought_up(void)
{
    sh_ring_start(ring, now_ns, &arcs);
    arcs.up |= sh_arc_bit(THIRD);
    struct sh_shard *shard = &arcs.shards[THEIRS];
    shard->owner = OTHER;
    shard->version++;
    shard->replicas = sh_arc_bit(OTHER) | sh_arc_bit(THIRD);
    tell();
}

static void assert_wants(uint64_t transfer, unsigned at)
{
    assert_true(is_sent(OTHER, THEIRS, SH_RING_SNAPSHOT_ANSWER, &number));
    assert_int_equal(number, transfer);
    assert_int_equal(sh_load32(sent.body + 8), at);
}

/* Pieces count in their order and once, of one snapshot; the state counts when it is stored. */
static void a_state_comes_in_pieces(void **state)
{
    (void)state;
    be_brought_up();
    append(OTHER, 0, version(), 0, 0, version());
    assert_answer(SH_RING_EMPTY, 0);
    piece(5, 9, 1, false); /* before the first */
    assert_wants(5, 0);
    piece(5, 9, 0, false);
    assert_wants(5, 1);
    piece(5, 9, 0, false);
    assert_wants(5, 1);
    piece(6, 9, 0, false); /* another one: begun anew */
    assert_wants(6, 1);
    piece(6, 9, 2, true); /* one is missing */
    assert_wants(6, 1);
    assert_int_equal(fsm.installed, 0);
    piece(6, 9, 1, true);
    assert_int_equal(fsm.installed, 1);
    assert_int_equal(fsm.open, 0);
    assert_int_equal(last(), 9);
    at_once();
    assert_no_answer();
    store();
    at_once();
    assert_answer(SH_RING_YES, 9);
}

/* A state that is none, or of which nothing comes any more, is given up. */
static void a_state_that_does_not_come_is_given_up(void **state)
{
    uint64_t epoch, sequence;
    (void)state;
    be_brought_up();
    piece(5, 9, 0, false);
    (void)is_sent(OTHER, THEIRS, SH_RING_SNAPSHOT_ANSWER, &number);
    struct sh_writer *w = body_begin();
    sh_put64(w, 5);
    sh_put64(w, 9);
    sh_put64(w, version());
    sh_put32(w, 1);
    sh_put16(w, 7); /* fsm takes pieces of a byte */
    send(OTHER, THEIRS, SH_RING_SNAPSHOT, 0);
    assert_int_equal(fsm.open, 0);
    assert_false(is_sent(OTHER, THEIRS, SH_RING_SNAPSHOT_ANSWER, &number));
    piece(5, 9, 0, false);
    assert_wants(5, 1); /* from the beginning */
    fsm.restores_fail = true;
    piece(5, 9, 1, true);
    assert_int_equal(fsm.open, 0);
    assert_false(sh_ring_copy(ring, THEIRS, &epoch, &sequence));
    fsm.restores_fail = false;
    piece(5, SH_RING_SEQUENCE_MAX + 1, 0, false);
    assert_int_equal(fsm.open, 0);
    piece(7, SH_RING_SEQUENCE_MAX, 0, false);
    assert_int_equal(fsm.open, 1);
    store();
    restart();
    assert_false(sh_ring_copy(ring, THEIRS, &epoch, &sequence));
}

/* A snapshot that comes late would take away what the owner counts on. */
static void a_late_state_is_not_taken(void **state)
{
    (void)state;
    follow();
    append(OTHER, 0, base_epoch(), 1, 3, version());
    store();
    step();
    assert_answer(SH_RING_YES, 3);
    for (unsigned is_last = 0; is_last < 2; is_last++) {
        piece(9, 2, is_last, is_last);
        assert_int_equal(last(), 3);
        assert_int_equal(fsm.open, 0);
        at_once();
        assert_answer(SH_RING_YES, 3);
    }
    /* In another version: what is applied is the owner's too, and an entry of the same epoch. */
    arcs.shards[THEIRS].version++;
    tell();
    piece(9, 1, 0, false);
    assert_answer(0, 1);
    struct sh_writer *w = body_begin();
    sh_put64(w, 9);
    sh_put64(w, 2);
    sh_put64(w, version() - 1); /* of which that entry is */
    sh_put32(w, 0);
    sh_put8(w, 7);
    send(OTHER, THEIRS, SH_RING_SNAPSHOT, 0);
    at_once();
    assert_answer(SH_RING_YES, 2);
    piece(9, 3, 0, false); /* another one's log */
    assert_int_equal(fsm.open, 1);
}

/* Nor one of which the place in the log is forgotten: the owner may add this superpeer by what it has. */
static void a_late_state_is_not_taken_by_who_is_brought_up(void **state)
{
    (void)state;
    be_brought_up();
    for (unsigned i = 0; i < 2; i++)
        piece(5, 9, i, i);
    store();
    while (last() < 4 * KEPT) {
        append(OTHER, last(), version(), last(), 8, version());
        store();
        step();
    }
    uint64_t end = last();
    for (unsigned i = 0; i < 2; i++)
        piece(5, 9, i, i);
    assert_int_equal(fsm.installed, 1);
    assert_int_equal(last(), end);
    at_once();
    assert_answer(SH_RING_YES, end);
}

/* --- Disks ------------------------------------------------------------------------------------------ */

/* What is stored is there in the next process: the state, and the entries behind it. */
static void a_replica_begins_with_what_is_stored(void **state)
{
    uint64_t epoch, sequence;
    (void)state;
    follow();
    uint64_t former = version();
    append(OTHER, 0, base_epoch(), 1, 3, former);
    arcs_change(SH_ARC_HAND, THEIRS, THIRD);
    append(THIRD, 2, former, 2, 1, version()); /* in the place of one */
    assert_int_equal(applied(), 2);
    store();
    uint64_t ordered = version();
    fsm.applied = 0;
    restart();
    assert_int_equal(fsm.applied, 0);
    assert_true(sh_ring_holds(ring, THEIRS));
    assert_int_equal(applied(), 0);
    assert_int_equal(last(), 3);
    assert_true(sh_ring_copy(ring, THEIRS, &epoch, &sequence));
    assert_true(epoch == ordered && sequence == 3);
    append(THIRD, 3, ordered, 3, 0, version());
    at_once();
    assert_true(is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number)); /* at once: it is on the disk */
    assert_int_equal(number, 3);
    assert_int_equal(fsm.applied, 3);
    assert_true(fsm.epoch == ordered);
}

/* What was not stored is not. */
static void a_replica_begins_without_what_is_not_stored(void **state)
{
    (void)state;
    follow();
    append(OTHER, 0, base_epoch(), 0, 1, version());
    store();
    append(OTHER, 1, version(), 0, 1, version());
    restart();
    assert_int_equal(last(), 1);
}

/* A shard that is not held any more is gone from the disk, too. */
static void what_was_given_away_does_not_come_back(void **state)
{
    uint64_t epoch, sequence;
    (void)state;
    follow();
    for (unsigned nid = 4; nid <= SH_SUPERPEERS_MAX; nid++)
        arcs.up |= sh_arc_bit(nid);
    struct sh_shard *shard = &arcs.shards[THEIRS];
    shard->replicas = sh_arc_wanted(arcs.up, THEIRS) | sh_arc_bit(OTHER);
    assert_false(shard->replicas & sh_arc_bit(OWN));
    shard->version++;
    tell();
    assert_int_equal(fsm.cleared, 1);
    append(OTHER, 0, base_epoch(), 0, 1, version());
    assert_answer(SH_RING_EMPTY, 0);
    store();
    close_ring();
    open_ring();
    assert_false(sh_ring_copy(ring, THEIRS, &epoch, &sequence));
    assert_int_equal(last(), 0);
}

/* The journal saves a shard anew when it gets long: the state as of what is applied, and what is behind
 * that. Nothing is missing in the next process. */
static void a_long_log_is_saved(void **state)
{
    (void)state;
    close_ring();
    segment = 512 << 10;
    open_ring();
    follow();
    unsigned before = fsm.begun;
    uint64_t epoch = base_epoch();
    for (unsigned i = 0; i < 100 || (fsm.begun == before && i < 2000); i++) {
        append(OTHER, last(), epoch, last() > 4 ? last() - 4 : 0, 8, version());
        epoch = version();
        step();
        store();
    }
    assert_true(fsm.begun > before);
    for (unsigned i = 0; i < 300; i++) {
        (void)sh_journal_step(journal, now_ns);
        append(OTHER, last(), epoch, last() - 4, 1, version());
        store();
    }
    uint64_t end = last(), done = applied();
    restart();
    assert_int_equal(last(), end);
    assert_in_range(applied(), 1, done);
    append(OTHER, end, epoch, end, 0, version());
    assert_int_equal(applied(), end);
}

/* An owner's state is saved, too, and it begins anew with it. */
static void what_was_built_is_stored(void **state)
{
    uint64_t epoch, sequence;
    (void)state;
    fsm.pieces = 3;
    own();
    uint64_t ordered = update();
    has_stored(OTHER, 1, ordered);
    assert_applied(1);
    fsm.applied = fsm.installed = 0;
    restart();
    assert_int_equal(fsm.installed, 1);
    assert_true(sh_ring_copy(ring, OURS, &epoch, &sequence));
    assert_true(epoch == ordered && sequence == 1);
    assert_applied(0);
    assert_int_equal(arcs.shards[OURS].owner, OTHER);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_is_stored_is_answered),
        CASE(what_the_owner_has_otherwise_goes),
        CASE(what_does_not_fit_is_refused),
        CASE(what_can_not_be_taken_is_left_out),
        CASE(a_state_comes_in_pieces),
        CASE(a_state_that_does_not_come_is_given_up),
        CASE(a_late_state_is_not_taken),
        CASE(a_late_state_is_not_taken_by_who_is_brought_up),
        CASE(a_replica_begins_with_what_is_stored),
        CASE(a_replica_begins_without_what_is_not_stored),
        CASE(what_was_given_away_does_not_come_back),
        CASE(a_long_log_is_saved),
        CASE(what_was_built_is_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
