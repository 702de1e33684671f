/* A shard's owner, rule by rule: whom it awaits, what it asks the registry for, what it sends. */
#include "ring/ring_rules_rig_test.h"

#define FOURTH 4

static uint8_t large[SH_RING_COMMAND_BYTES_MAX + 1];

static uint64_t version(void)
{
    return arcs.shards[OURS].version;
}

/* Superpeer 3 is to be a replica, and has the state as of the beginning. */
static void third_comes(void)
{
    arcs.up |= sh_arc_bit(THIRD);
    tell();
    has_stored(THIRD, 0, built_version);
    step();
}

/* All three have our shard. */
static void own_with_both(void)
{
    own();
    third_comes();
    arcs_change(SH_ARC_ADD, OURS, THIRD);
    has_stored(OTHER, 0, built_version);
    has_stored(THIRD, 0, built_version);
}

/* --- Who is added -------------------------------------------------------------------------------- */

/* It may own the shard next. */
static void who_is_added_has_all_that_was_answered(void **state)
{
    (void)state;
    own();
    uint64_t epoch = update();
    has_stored(OTHER, 1, epoch);
    assert_applied(1);
    third_comes();
    assert_int_equal(asked_kind(THIRD), 0);
    has_stored(THIRD, 1, epoch);
    assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
}

/* Whom the registry does not want, or has called failed, is awaited no more. */
static void who_is_not_added_is_not_awaited(void **state)
{
    for (unsigned is_gone = 0; is_gone < 2; is_gone++) {
        (void)teardown(state);
        (void)setup(state);
        own();
        third_comes();
        assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
        uint64_t epoch = update();
        has_stored(OTHER, 1, epoch);
        assert_applied(0);
        if (is_gone) {
            assert_true(
                sh_arcs_gone(&arcs, THIRD)); /* which changes no shard of which it has nothing */
            tell();
        } else {
            arcs.up &= ~sh_arc_bit(THIRD);
            refuse();
        }
        assert_int_equal(asked_kind(THIRD), 0);
        has_stored(OTHER, 1, epoch);
        assert_applied(1);
    }
}

/* What a process had says nothing of the next one's disk. */
static void what_a_former_process_had_counts_for_nothing(void **state)
{
    (void)state;
    own();
    third_comes();
    assert_int_equal(sh_arcs_start_empty(&arcs, THIRD, 9, false), SH_ARCS_STARTED);
    tell();
    step();
    assert_int_equal(asked_kind(THIRD), 0);
    has_stored(THIRD, 0, built_version);
    assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
}

/* Nor what it had in another version: it may have dropped that, and got an older state since. */
static void what_was_had_in_another_version_counts_for_nothing(void **state)
{
    (void)state;
    own();
    uint64_t epoch = update();
    third_comes();
    has_stored(THIRD, 1, epoch);
    refuse();
    assert_int_equal(asked_kind(THIRD), 0);
    has_stored(THIRD, 0, built_version);
    assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
    has_stored(OTHER, 1, epoch);
    assert_applied(0);
    has_stored(THIRD, 1, epoch);
    assert_applied(1);
}

/* But a replica does not drop what it has. */
static void what_a_replica_had_in_the_last_version_counts(void **state)
{
    (void)state;
    own_without_lease();
    sh_ring_lease_set(ring, now_ns, now_ns + 2 * RESEND);
    uint64_t epoch = update();
    now_ns += 2 * RESEND;
    has_stored(OTHER, 1, epoch);
    assert_applied(0);
    refuse();
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
    step();
    assert_applied(1);
}

/* Whom the registry may add yet is awaited, also while it is asked to add another one. */
static void all_that_may_be_added_are_awaited(void **state)
{
    (void)state;
    own();
    assert_int_equal(sh_arcs_start(&arcs, FOURTH, UINT64_C(1) << 32 | FOURTH), SH_ARCS_STARTED);
    tell();
    has_stored(FOURTH, 0, built_version);
    assert_int_equal(asked_kind(FOURTH), SH_ARC_ADD);
    third_comes();
    assert_int_equal(asked_kind(THIRD), SH_ARC_ADD);
    uint64_t epoch = update();
    has_stored(OTHER, 1, epoch);
    has_stored(THIRD, 1, epoch);
    assert_applied(0);
    has_stored(FOURTH, 1, epoch);
    assert_applied(1);
}

/* Who had the state and says that it has none is not added. */
static void who_has_lost_its_state_is_not_added(void **state)
{
    (void)state;
    own();
    third_comes();
    answer_body(0, 0);
    send(THIRD, OURS, SH_RING_ANSWER, SH_RING_EMPTY);
    step();
    assert_int_equal(asked_kind(THIRD), 0);
}

/* More copies than are wanted are dropped when all are there that are wanted. */
static void who_is_not_wanted_is_dropped(void **state)
{
    (void)state;
    own();
    arcs.up |= sh_arc_bit(THIRD);
    for (unsigned nid = 4; nid <= 6; nid++)
        assert_int_equal(sh_arcs_start(&arcs, nid, UINT64_C(1) << 32 | nid), SH_ARCS_STARTED);
    uint64_t wanted = sh_arc_wanted(arcs.up, OURS);
    assert_true(wanted & sh_arc_bit(OWN));
    unsigned extra = (unsigned)__builtin_ctzll(arcs.up & ~wanted);
    unsigned missing = (unsigned)__builtin_ctzll(wanted & ~sh_arc_bit(OWN));
    arcs.shards[OURS].replicas = (wanted | sh_arc_bit(extra)) & ~sh_arc_bit(missing);
    refuse();
    step();
    assert_int_equal(asked_kind(extra), 0);
    arcs.shards[OURS].replicas |= sh_arc_bit(missing);
    refuse();
    step();
    assert_int_equal(asked_kind(extra), SH_ARC_DROP);
    arcs_change(SH_ARC_DROP, OURS, extra);
    step();
    assert_int_equal(asked_kind(extra), 0);
}

/* --- Versions -------------------------------------------------------------------------------------- */

/* Over a version that this superpeer has not heard of, another one may have owned the shard: what it had
 * answered must be known before anything is answered here. */
static void who_has_missed_a_version_begins_anew(void **state)
{
    for (unsigned missed = 0; missed < 2; missed++) {
        (void)teardown(state);
        (void)setup(state);
        own();
        uint64_t epoch = update();
        arcs.shards[OURS].version += missed;
        refuse();
        assert_int_equal(sh_ring_reads(ring, now_ns, OURS), missed ? SHOAL_EBUSY : SHOAL_OK);
        assert_int_equal(order(SMALL), missed ? SHOAL_EBUSY : SHOAL_OK);
        has_stored(OTHER, 1, epoch);
        assert_applied(1);
        assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
    }
}

/* What was asked for in one version is not asked for in the next one before it is decided anew. */
static void what_is_asked_for_is_of_this_version(void **state)
{
    struct sh_arc_change change;
    (void)state;
    own();
    third_comes();
    assert_true(asks_for(OURS, &change));
    assert_true(change.version == version());
    refuse();
    assert_false(asks_for(OURS, &change));
    has_stored(THIRD, 0, built_version);
    assert_true(asks_for(OURS, &change));
    assert_true(change.version == version());
    assert_false(sh_ring_change_next(ring, now_ns, &change)); /* again after a while only */
    now_ns += RESEND;
    assert_true(sh_ring_change_next(ring, now_ns, &change));
}

/* An owner that wanted to hand over, in vain, owns the shard still. */
static void who_did_not_hand_over_goes_on(void **state)
{
    (void)state;
    own();
    arcs.up &= ~sh_arc_bit(OWN);
    tell();
    step();
    assert_int_equal(asked_kind(OTHER), SH_ARC_HAND);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_EBUSY);
    arcs.up |= sh_arc_bit(OWN);
    refuse();
    assert_int_equal(asked_kind(OTHER), 0);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
    assert_int_equal(order(SMALL), SHOAL_OK);
}

/* --- Silence ---------------------------------------------------------------------------------------- */

/* A replica that does not answer is dropped after a while, but only where two are left. */
static void who_is_silent_is_dropped(void **state)
{
    (void)state;
    own_with_both();
    (void)update();
    uint64_t since_ns = now_ns;
    has_stored(OTHER, 1, version());
    step_at(since_ns + PATIENCE - 1);
    assert_int_equal(asked_kind(THIRD), 0);
    step_at(since_ns + PATIENCE);
    assert_int_equal(asked_kind(THIRD), SH_ARC_DROP);
    arcs_change(SH_ARC_DROP, OURS, THIRD);
    has_stored(OTHER, 1, version() - 1);
    assert_applied(1);
    (void)update();
    now_ns += PATIENCE / 2;
    has_stored(OTHER, 1, version() - 1); /* which it has said before */
    now_ns += PATIENCE / 2;
    step();
    assert_int_equal(asked_kind(OTHER), 0);
}

/* Its disk is one for all shards: in others it is waited for for a part of the time, until it has stored
 * something, or for a while. */
static void who_stalls_holds_up_one_shard(void **state)
{
    (void)state;
    for (unsigned part = 0; part < 3; part++) {
        (void)teardown(state);
        (void)setup(state);
        own_with_both();
        uint64_t epoch = update();
        has_stored(OTHER, 1, epoch);
        has_stored(THIRD, 1, epoch);
        assert_true(ring->stalled_until_ns[THIRD] == 0);
        ring->stalled_until_ns[THIRD] = now_ns + 4 * PATIENCE; /* by another shard */
        if (part == 1)
            now_ns += 4 * PATIENCE;
        epoch = update();
        has_stored(OTHER, 2, epoch);
        if (part == 2) {
            has_stored(THIRD, 1, epoch); /* which it has said before */
            assert_true(ring->stalled_until_ns[THIRD]);
            (void)update();
            has_stored(OTHER, 3, epoch);
            has_stored(THIRD, 2, epoch);
            assert_true(ring->stalled_until_ns[THIRD] == 0);
        }
        uint64_t since_ns = now_ns;
        step_at(since_ns + PATIENCE / 9);
        assert_int_equal(asked_kind(THIRD), 0);
        step_at(since_ns + PATIENCE / 8);
        assert_int_equal(asked_kind(THIRD), part ? 0 : SH_ARC_DROP);
        step_at(since_ns + PATIENCE);
        assert_int_equal(asked_kind(THIRD), SH_ARC_DROP);
        assert_true(ring->stalled_until_ns[THIRD] > now_ns + 3 * PATIENCE);
    }
}

/* The next process may have another disk. */
static void the_next_process_has_not_stalled(void **state)
{
    (void)state;
    own_with_both();
    uint64_t until_ns = now_ns + 4 * PATIENCE;
    ring->stalled_until_ns[OTHER] = ring->stalled_until_ns[THIRD] = until_ns;
    assert_int_equal(sh_arcs_start_empty(&arcs, THIRD, 9, false), SH_ARCS_STARTED);
    tell();
    assert_true(ring->stalled_until_ns[OTHER] == until_ns && !ring->stalled_until_ns[THIRD]);
}

/* The time begins anew with each advance and with each version. */
static void who_advances_is_not_silent(void **state)
{
    (void)state;
    own_with_both();
    uint64_t epoch = update();
    (void)update();
    has_stored(OTHER, 2, epoch);
    now_ns += PATIENCE / 2;
    uint64_t since_ns = now_ns;
    has_stored(THIRD, 1, epoch);
    step_at(since_ns + PATIENCE - 1);
    assert_int_equal(asked_kind(THIRD), 0);
    since_ns = now_ns;
    refuse();
    has_stored(OTHER, 2, epoch);
    step_at(since_ns + PATIENCE - 1);
    assert_int_equal(asked_kind(THIRD), 0);
    step_at(since_ns + PATIENCE);
    assert_int_equal(asked_kind(THIRD), SH_ARC_DROP);
    has_stored(THIRD, 2, epoch);
    assert_int_equal(asked_kind(THIRD), 0);
    /* Who has everything may be silent for ever. */
    step_at(now_ns + 2 * PATIENCE);
    assert_int_equal(asked_kind(THIRD), 0);
    assert_int_equal(asked_kind(OTHER), 0);
}

/* An owner that reaches nobody, though others are there, is cut off itself. Of two superpeers nobody can
 * say which one is. */
static void who_reaches_nobody_hands_over(void **state)
{
    for (unsigned third = 0; third < 2; third++) {
        (void)teardown(state);
        (void)setup(state);
        own();
        if (third)
            arcs.up |= sh_arc_bit(THIRD);
        tell();
        (void)update();
        uint64_t since_ns = now_ns;
        step_at(since_ns + 2 * PATIENCE - 1);
        assert_int_equal(asked_kind(OTHER), 0);
        step_at(since_ns + 2 * PATIENCE);
        assert_int_equal(asked_kind(OTHER), third ? SH_ARC_HAND : 0);
        assert_int_equal(sh_ring_reads(ring, now_ns, OURS), third ? SHOAL_EBUSY : SHOAL_OK);
    }
}

static void who_reaches_one_does_not_hand_over(void **state)
{
    (void)state;
    own_with_both();
    uint64_t epoch = update();
    has_stored(THIRD, 1, epoch);
    now_ns += 2 * PATIENCE + RESEND;
    step();
    assert_int_equal(asked_kind(THIRD), 0);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
}

/* An owner whose own disk stands still hands over, to a replica that keeps up. */
static void who_does_not_store_hands_over(void **state)
{
    for (unsigned nid = OTHER; nid <= THIRD; nid++) {
        (void)teardown(state);
        (void)setup(state);
        own_with_both();
        assert_int_equal(order(SMALL), SHOAL_OK);
        step();
        uint64_t since_ns = now_ns;
        has_stored(nid, 1, version());
        step_at(since_ns + PATIENCE - 1);
        assert_int_equal(asked_kind(nid), 0);
        step_at(since_ns + PATIENCE);
        assert_int_equal(asked_kind(nid), SH_ARC_HAND);
        /* The time begins anew where it owns the shard still. */
        refuse();
        has_stored(nid, 1, version() - 1);
        assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
        assert_int_equal(asked_kind(nid), 0);
        store();
        step();
        now_ns += 2 * PATIENCE;
        has_stored(nid, 1, version() - 1);
        assert_int_equal(asked_kind(nid), 0);
    }
}

/* A disk that advances does not stand still, though it is always behind. */
static void who_stores_some_goes_on(void **state)
{
    (void)state;
    own();
    assert_int_equal(order(SMALL), SHOAL_OK);
    for (unsigned i = 1; i < 6; i++) {
        step_at(now_ns + PATIENCE / 2);
        store();
        assert_int_equal(order(SMALL), SHOAL_OK);
        has_stored(OTHER, i, version());
        assert_int_equal(asked_kind(OTHER), 0);
    }
}

/* An owner whose disk stands still, and that reaches nobody either, may hand over to anybody. */
static void who_can_do_nothing_hands_over(void **state)
{
    (void)state;
    own();
    arcs.up |= sh_arc_bit(THIRD);
    tell();
    assert_int_equal(order(SMALL), SHOAL_OK);
    step();
    step_at(now_ns + PATIENCE + RESEND);
    assert_int_equal(asked_kind(OTHER), 0);
    step_at(now_ns + PATIENCE);
    assert_int_equal(asked_kind(OTHER), SH_ARC_HAND);
    /* What was asked for once may be done: it is asked for until the version is another one. */
    has_stored(OTHER, 1, version());
    store();
    step();
    assert_int_equal(asked_kind(OTHER), SH_ARC_HAND);
}

/* A superpeer that is to own the shard gets it when it keeps up; until then updates go on. */
static void a_successor_that_lags_is_waited_for(void **state)
{
    (void)state;
    own();
    uint64_t epoch = update(), since_ns = now_ns;
    arcs.up &= ~sh_arc_bit(OWN);
    tell();
    step_at(since_ns + PATIENCE / 4 - 1);
    assert_int_equal(order(SMALL), SHOAL_EBUSY);
    step_at(since_ns + PATIENCE / 4);
    assert_int_equal(order(SMALL), SHOAL_OK);
    store();
    has_stored(OTHER, 2, epoch);
    step();
    assert_int_equal(order(SMALL), SHOAL_EBUSY);
    assert_int_equal(asked_kind(OTHER), SH_ARC_HAND);
}

/* Who has not answered in this version may not have the shard any more. */
static void nothing_is_handed_to_who_is_silent(void **state)
{
    (void)state;
    own();
    arcs.up &= ~sh_arc_bit(OWN);
    refuse();
    step();
    assert_int_equal(asked_kind(OTHER), 0);
    assert_int_equal(order(SMALL), SHOAL_OK);
    store();
    has_stored(OTHER, 1, version());
    assert_int_equal(asked_kind(OTHER), SH_ARC_HAND);
}

/* Nor to who is no replica yet. */
static void nothing_is_handed_to_who_has_nothing(void **state)
{
    (void)state;
    begin();
    sh_ring_built(ring, now_ns, OURS, built_version);
    store();
    step();
    arcs_change(SH_ARC_BUILT, OURS, OWN);
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
    (void)update();
    assert_applied(1);
    has_stored(OTHER, 0, built_version);
    arcs.up &= ~sh_arc_bit(OWN);
    tell();
    step();
    assert_int_equal(order(SMALL), SHOAL_OK);
}

/* --- Updates -------------------------------------------------------------------------------------- */

/* A volatile update waits for the others' memory and for no disk, but for those before it. */
static void what_is_volatile_waits_for_no_disk(void **state)
{
    (void)state;
    own();
    assert_int_equal(order(sh_bytes_text("volatile")), SHOAL_OK);
    step();
    assert_applied(0);
    has_stored(OTHER, 1, version());
    assert_applied(1);
    assert_int_equal(order(SMALL), SHOAL_OK);
    assert_int_equal(order(sh_bytes_text("volatile")), SHOAL_OK);
    has_stored(OTHER, 3, version());
    assert_applied(1);
    store();
    step();
    assert_applied(3);
    assert_int_equal(fsm.applied, 3);
    assert_true(fsm.epoch == version());
}

/* The lease is over when it says so. */
static void a_lease_ends_in_time(void **state)
{
    (void)state;
    own_without_lease();
    uint64_t until_ns = now_ns + 2 * RESEND;
    sh_ring_lease_set(ring, now_ns, until_ns);
    uint64_t epoch = update();
    now_ns = until_ns - RESEND;
    has_stored(OTHER, 1, epoch);
    assert_int_equal(now_ns, until_ns);
    assert_applied(0);
    assert_int_equal(sh_ring_reads(ring, until_ns - 1, OURS), SHOAL_OK);
    assert_int_equal(sh_ring_reads(ring, until_ns, OURS), SHOAL_EBUSY);
    step_at(until_ns - 1);
    assert_applied(1);
}

/* What comes late, is cut short, or says what can't be, changes nothing. */
static void what_makes_no_sense_counts_for_nothing(void **state)
{
    (void)state;
    uint64_t number;
    own_with_both();
    uint64_t epoch = update();
    (void)update();
    has_stored(THIRD, 2, epoch);
    answer_body(2, epoch);
    body_w.at -= 8;
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    answer_body(3, epoch);
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    answer_body(2, epoch + 1);
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    step();
    assert_applied(0);
    assert_false(is_sent(OTHER, OURS, SH_RING_SNAPSHOT, &number));
    has_stored(OTHER, 1, epoch);
    assert_applied(1);
    has_stored(THIRD, 1, epoch); /* from before */
    has_stored(OTHER, 2, epoch);
    assert_applied(2);
}

/* Nothing is taken for which there is no room, in the journal or in memory. */
static void what_has_no_room_is_not_taken(void **state)
{
    (void)state;
    unsigned count = 0;
    own();
    assert_int_equal(order(sh_bytes_make(large, sizeof large)), SHOAL_ETOOBIG);
    fsm.lacks_memory = true;
    assert_int_equal(order(SMALL), SHOAL_ENOMEM);
    fsm.lacks_memory = false;
    assert_int_equal(sh_ring_last(ring, OURS), 0);
    while (count < SH_RING_BACKLOG_MAX / 2 &&
           !order(sh_bytes_make(large, SH_RING_COMMAND_BYTES_MAX)))
        count++;
    assert_true(count < SH_RING_BACKLOG_MAX / 2);
    assert_int_equal(order(SMALL), SHOAL_EBUSY);
    assert_int_equal(sh_ring_last(ring, OURS), count);
    store();
    assert_int_equal(order(SMALL), SHOAL_OK);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(who_is_added_has_all_that_was_answered),
        CASE(who_is_not_added_is_not_awaited),
        CASE(what_a_former_process_had_counts_for_nothing),
        CASE(what_was_had_in_another_version_counts_for_nothing),
        CASE(what_a_replica_had_in_the_last_version_counts),
        CASE(who_has_missed_a_version_begins_anew),
        CASE(what_is_asked_for_is_of_this_version),
        CASE(who_did_not_hand_over_goes_on),
        CASE(who_is_silent_is_dropped),
        CASE(who_stalls_holds_up_one_shard),
        CASE(the_next_process_has_not_stalled),
        CASE(who_advances_is_not_silent),
        CASE(who_reaches_nobody_hands_over),
        CASE(who_reaches_one_does_not_hand_over),
        CASE(who_does_not_store_hands_over),
        CASE(a_successor_that_lags_is_waited_for),
        CASE(nothing_is_handed_to_who_is_silent),
        CASE(what_is_volatile_waits_for_no_disk),
        CASE(what_has_no_room_is_not_taken),
        CASE(all_that_may_be_added_are_awaited),
        CASE(who_has_lost_its_state_is_not_added),
        CASE(who_is_not_wanted_is_dropped),
        CASE(who_stores_some_goes_on),
        CASE(who_can_do_nothing_hands_over),
        CASE(nothing_is_handed_to_who_has_nothing),
        CASE(a_lease_ends_in_time),
        CASE(what_makes_no_sense_counts_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
