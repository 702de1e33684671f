/* The ring, rule by rule: one superpeer, and messages that this test makes. What a rule forbids is
 * tried where nothing else forbids it. */
#include "ring/ring_rules_rig_test.h"

/* --- Shards that begin ----------------------------------------------------------------------------- */

static void the_registry_hears_of_what_is_stored(void **state)
{
    (void)state;
    struct sh_arc_change change;
    begin();
    sh_ring_built(ring, now_ns, OURS, built_version);
    step();
    assert_false(asks_for(OURS, &change));
    store();
    step();
    assert_true(asks_for(OURS, &change));
    assert_int_equal(change.kind, SH_ARC_BUILT);
}

static void without_memory_it_is_built_again(void **state)
{
    (void)state;
    struct sh_arc_change change;
    uint64_t version;
    begin();
    version = built_version;
    for (unsigned i = 0; i < 2; i++) {
        fsm.begins_fail = true;
        built_version = 0;
        sh_ring_built(ring, now_ns, OURS, version);
        fsm.begins_fail = false;
        store();
        step();
        assert_false(asks_for(OURS, &change));
        assert_true(built_version == version);
    }
    sh_ring_built(ring, now_ns, OURS, version);
    store();
    step();
    assert_true(asks_for(OURS, &change));
    assert_int_equal(change.kind, SH_ARC_BUILT);
}

static void what_was_built_for_another_version_is_nothing(void **state)
{
    (void)state;
    struct sh_arc_change change;
    begin();
    uint64_t epoch, sequence;
    sh_ring_built(ring, now_ns, OURS, built_version + 1);
    assert_false(sh_ring_copy(ring, OURS, &epoch, &sequence));
    store();
    step();
    assert_false(asks_for(OURS, &change));
    sh_ring_built(ring, now_ns, OURS, built_version);
    arcs.shards[OURS].version++; /* while it is written */
    tell();
    store();
    step();
    assert_false(asks_for(OURS, &change) && change.kind == SH_ARC_BUILT);
}

/* An old copy that claims updates of a version which never was. */
static void no_copy_is_of_the_future(void **state)
{
    (void)state;
    struct sh_arc_change change;
    sh_ring_start(ring, now_ns, &arcs);
    for (unsigned i = 0; i < 2; i++) {
        copy_answer(OTHER, arcs.shards[OURS].version + !i, 9);
        copy_answer(THIRD, 0, 0);
        step();
        assert_int_equal(asks_for(OURS, &change), i);
    }
    assert_int_equal(change.kind, SH_ARC_SALVAGE);
    assert_int_equal(change.nid, OTHER);
}

/* Nor is the own one taken that its disk had: the shard waits. */
static void the_own_copy_is_not_of_the_future(void **state)
{
    for (unsigned i = 0; i < 2; i++) {
        struct sh_arc_change change;
        uint64_t version = arcs.shards[OURS].version;
        (void)teardown(state);
        own_copy_epoch = version + !i;
        (void)setup(state);
        own_copy_epoch = 0;
        assert_true(arcs.shards[OURS].version == version);
        sh_ring_start(ring, now_ns, &arcs);
        store();
        copy_answer(OTHER, arcs.shards[OURS].version, 3);
        copy_answer(THIRD, 0, 0);
        step();
        assert_int_equal(asks_for(OURS, &change), i);
    }
}

/* All that are there are asked, also who is retiring; the later epoch counts, then the longer log, and an
 * update more than none. */
static void the_most_advanced_copy_is_taken(void **state)
{
    static const struct {
        uint64_t worse_epoch, worse_sequence, better_epoch, better_sequence;
    } copies[] = {{1, 9, 2, 3}, {2, 3, 2, 4}, {2, 0, 1, 1}};
    for (unsigned i = 0; i < 6; i++) {
        struct sh_arc_change change;
        unsigned better = i % 2 ? OTHER : THIRD;
        (void)teardown(state);
        (void)setup(state);
        arcs.shards[OURS].version = 2;
        sh_ring_start(ring, now_ns, &arcs);
        for (unsigned nid = OTHER; nid <= THIRD; nid++) {
            step();
            assert_false(asks_for(OURS, &change));
            if (nid == better)
                copy_answer(nid, copies[i / 2].better_epoch, copies[i / 2].better_sequence);
            else
                copy_answer(nid, copies[i / 2].worse_epoch, copies[i / 2].worse_sequence);
        }
        step();
        assert_true(asks_for(OURS, &change));
        assert_true(change.kind == SH_ARC_SALVAGE && change.nid == better);
    }
}

/* --- Owners ----------------------------------------------------------------------------------------- */

/* Only what a superpeer says in this version, of this process, about this log counts. */
static void what_counts_as_stored(void **state)
{
    (void)state;
    own();
    uint64_t epoch = update(), version = arcs.shards[OURS].version;
    uint64_t incarnation = arcs.incarnations[OTHER];
    assert_applied(0);
    answer_body(1, epoch);
    send_of(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES, version - 1, incarnation);
    send_of(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES, version + 1, incarnation);
    send_of(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES, version, incarnation - 1);
    send(OTHER, OURS, SH_RING_ANSWER, 0);
    send(THIRD, OURS, SH_RING_ANSWER, SH_RING_YES);
    answer_body(1, epoch - 1); /* another owner's update */
    send(OTHER, OURS, SH_RING_ANSWER, SH_RING_YES);
    step();
    assert_applied(0);
    has_stored(OTHER, 1, epoch);
    assert_applied(1);
}

static void nothing_is_applied_without_a_lease(void **state)
{
    (void)state;
    uint64_t epoch, sequence;
    own_without_lease();
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_EBUSY);
    sh_ring_lease_set(ring, now_ns, now_ns + 5 * RESEND);
    sh_ring_lease_set(ring, now_ns, now_ns + RESEND); /* an older answer: nothing is taken back */
    assert_int_equal(sh_ring_update(ring, now_ns, OURS, sh_bytes_text("update"), &epoch, &sequence),
                     SHOAL_OK);
    store();
    step();
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
    now_ns += 5 * RESEND;
    has_stored(OTHER, 1, epoch);
    assert_applied(0); /* another one may own the shard by now */
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
    step();
    assert_applied(1);
}

static void what_waits_is_bounded(void **state)
{
    (void)state;
    uint64_t epoch, sequence;
    unsigned count = 0;
    own();
    while (count <= 2 * SH_RING_BACKLOG_MAX &&
           !sh_ring_update(ring, now_ns, OURS, sh_bytes_text("update"), &epoch, &sequence)) {
        store();
        count++;
    }
    assert_in_range(count, SH_RING_BACKLOG_MAX, SH_RING_BACKLOG_MAX + 1);
}

/* A superpeer that is about to be added may be the next owner: from the moment that the registry is asked
 * on nothing is applied that it lacks. */
static void who_is_about_to_be_added_is_awaited(void **state)
{
    (void)state;
    struct sh_arc_change change;
    own();
    arcs.up |= sh_arc_bit(THIRD);
    tell();
    has_stored(THIRD, 0, built_version);
    step();
    assert_true(asks_for(OURS, &change));
    assert_true(change.kind == SH_ARC_ADD && change.nid == THIRD);
    uint64_t epoch = update();
    has_stored(OTHER, 1, epoch);
    assert_applied(0);
    /* Until the registry has decided otherwise. */
    assert_true(sh_arcs_gone(&arcs, THIRD));
    arcs.shards[OURS].version++;
    tell();
    has_stored(OTHER, 1, epoch);
    assert_applied(1);
}

/* The next owner has what was ordered before; nothing is ordered behind that. */
static void who_hands_over_takes_nothing(void **state)
{
    (void)state;
    uint64_t epoch, sequence;
    struct sh_arc_change change;
    own();
    epoch = update();
    /* Superpeer 2 is to own it: as if superpeer 1 were retiring. */
    arcs.up &= ~sh_arc_bit(OWN);
    tell();
    step();
    assert_false(asks_for(OURS, &change) && change.kind == SH_ARC_HAND);
    assert_int_equal(sh_ring_update(ring, now_ns, OURS, sh_bytes_text("update"), &epoch, &sequence),
                     SHOAL_EBUSY);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
    has_stored(OTHER, 1, epoch);
    step();
    assert_true(asks_for(OURS, &change));
    assert_true(change.kind == SH_ARC_HAND && change.nid == OTHER);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_EBUSY); /* it may be done by now */
}

/* --- Replicas ---------------------------------------------------------------------------------------- */

static void only_the_owner_appends(void **state)
{
    (void)state;
    follow();
    uint64_t epoch = arcs.shards[THEIRS].version;
    append(THIRD, 0, base_epoch(), 0, 1, epoch);
    assert_int_equal(sh_ring_last(ring, THEIRS), 0);
    append(OTHER, 0, base_epoch(), 0, 1, epoch);
    assert_int_equal(sh_ring_last(ring, THEIRS), 1);
}

/* Superpeer 2 has sent three updates, of which one is applied; superpeer 3 owns the shard now. */
static uint64_t three_of_another_owner(void)
{
    uint64_t number, epoch = arcs.shards[THEIRS].version;
    append(OTHER, 0, base_epoch(), 0, 3, epoch);
    store();
    step();
    assert_true(is_sent(OTHER, THEIRS, SH_RING_ANSWER, &number) && number == 3);
    arcs_change(SH_ARC_HAND, THEIRS, THIRD);
    return epoch;
}

/* What this superpeer has behind that may not be what the owner has applied. */
static void only_what_the_owner_has_shown_is_applied(void **state)
{
    (void)state;
    follow();
    uint64_t before = base_epoch(), epoch = three_of_another_owner();
    append(THIRD, 0, before, 3, 1, epoch);
    assert_int_equal(sh_ring_applied(ring, THEIRS), 1);
    append(THIRD, 1, epoch, 3, 1, epoch + 1); /* it had another one there */
    assert_int_equal(sh_ring_applied(ring, THEIRS), 2);
    assert_int_equal(sh_ring_last(ring, THEIRS), 2);
}

static void a_new_owner_hears_of_what_it_has_shown(void **state)
{
    (void)state;
    uint64_t number;
    follow();
    uint64_t before = base_epoch(), epoch = three_of_another_owner();
    store();
    step();
    assert_false(is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number));
    append(THIRD, 0, before, 0, 1, epoch);
    step();
    assert_true(is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number));
    assert_int_equal(number, 1);
}

/* What agreed in one version says nothing in the next one. */
static void what_was_owed_to_another_owner_is_not_answered(void **state)
{
    (void)state;
    uint64_t number;
    follow();
    append(OTHER, 0, base_epoch(), 0, 3, arcs.shards[THEIRS].version);
    step();
    (void)is_sent(OTHER, THEIRS, SH_RING_ANSWER, &number);
    arcs_change(SH_ARC_HAND, THEIRS, THIRD); /* while it is being stored */
    store();
    step();
    assert_false(is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number));
}

static void what_takes_anothers_place_is_stored_anew(void **state)
{
    (void)state;
    uint64_t number = 0;
    follow();
    uint64_t epoch = three_of_another_owner();
    append(THIRD, 1, epoch, 0, 1, epoch + 1);
    step();
    assert_true(!is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number) || number == 1);
    store();
    step();
    assert_true(is_sent(THIRD, THEIRS, SH_RING_ANSWER, &number));
    assert_int_equal(number, 2);
}

/* Who makes a shard anew hears of a copy when it is on the disk as it is said to be. */
static void a_copy_is_told_of_when_it_is_stored(void **state)
{
    (void)state;
    uint64_t number;
    follow();
    append(OTHER, 0, base_epoch(), 0, 1, arcs.shards[THEIRS].version);
    arcs.shards[THEIRS].replicas = 0;
    arcs.shards[THEIRS].version++;
    tell();
    for (unsigned i = 0; i < 2; i++) {
        (void)body_begin();
        send(OTHER, THEIRS, SH_RING_COPY_ASK, 0);
        assert_int_equal(is_sent(OTHER, THEIRS, SH_RING_COPY_ANSWER, &number), i);
        store();
        step();
    }
}

/* Nor does the own copy count before. */
static void the_own_copy_counts_when_it_is_stored(void **state)
{
    (void)state;
    struct sh_arc_change change;
    follow();
    append(OTHER, 0, base_epoch(), 0, 1, arcs.shards[THEIRS].version);
    arcs.shards[THEIRS].replicas = 0;
    arcs.shards[THEIRS].owner = OWN;
    arcs.shards[THEIRS].version++;
    tell();
    for (unsigned nid = OTHER; nid <= THIRD; nid++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, 0);
        sh_put64(w, 0);
        send(nid, THEIRS, SH_RING_COPY_ANSWER, SH_RING_EMPTY);
    }
    step();
    assert_false(asks_for(THEIRS, &change));
    store();
    (void)sh_ring_step(ring, now_ns); /* at once */
    assert_true(asks_for(THEIRS, &change));
    assert_true(change.kind == SH_ARC_SALVAGE && change.nid == OWN && change.copy_sequence == 1);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(without_memory_it_is_built_again),
        CASE(the_registry_hears_of_what_is_stored),
        CASE(what_was_built_for_another_version_is_nothing),
        CASE(no_copy_is_of_the_future),
        CASE(the_own_copy_is_not_of_the_future),
        CASE(the_most_advanced_copy_is_taken),
        CASE(what_counts_as_stored),
        CASE(nothing_is_applied_without_a_lease),
        CASE(what_waits_is_bounded),
        CASE(who_is_about_to_be_added_is_awaited),
        CASE(who_hands_over_takes_nothing),
        CASE(only_the_owner_appends),
        CASE(only_what_the_owner_has_shown_is_applied),
        CASE(a_new_owner_hears_of_what_it_has_shown),
        CASE(what_was_owed_to_another_owner_is_not_answered),
        CASE(what_takes_anothers_place_is_stored_anew),
        CASE(a_copy_is_told_of_when_it_is_stored),
        CASE(the_own_copy_counts_when_it_is_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
