/* Raft, rule by rule: one server, and messages that this test makes. What a rule forbids is tried
 * where nothing else forbids it. */
#include "raft/raft_one_test.h"

/* --- Servers that have forgotten ----------------------------------------------------------------- */

static void answers_to_another_process_do_not_count(void **state)
{
    (void)state;
    probe_answer(2, nonce + 1, 0, 0);
    probe_answer(3, nonce + 1, 0, 0);
    assert_true(sh_raft_is_recovering(raft));
    found();
}

/* It may have voted in the last term that others have heard of, before it forgot that. */
static void a_forgotten_vote_is_spent(void **state)
{
    (void)state;
    probe_answer(2, nonce, 5, 99);
    probe_answer(3, nonce, 4, 99);
    assert_int_equal(sh_raft_term(raft), 5);
    append(2, 5, 0, 0, 1, SH_RAFT_NOOP, 5);
    assert_false(sh_raft_is_recovering(raft));
    now_ns += 2 * ELECTION; /* the leader is silent */
    vote_ask(3, 0, 5, 1, 5);
    unsigned flags;
    uint64_t term;
    (void)take(3, SH_RAFT_VOTE_ANSWER, &flags, &term);
    assert_false(flags & SH_RAFT_YES);
}

static void the_forgetful_do_not_vote_before_they_caught_up(void **state)
{
    (void)state;
    probe_answer(2, nonce, 5, 99);
    probe_answer(3, nonce, 4, 99);
    drop_sent();
    vote_ask(3, 0, 6, 9, 5);
    assert_false(is_sent(3, SH_RAFT_VOTE_ANSWER));
    /* What is committed of older terms may lack what it has promised; of its own term it does not. */
    append(2, 6, 0, 0, 1, SH_RAFT_NOOP, 5);
    assert_true(sh_raft_is_recovering(raft));
    append(2, 6, 1, 5, 1, SH_RAFT_NOOP, 6); /* this one is not committed yet */
    assert_true(sh_raft_is_recovering(raft));
    append(2, 6, 2, 6, 2, 0, 0);
    assert_false(sh_raft_is_recovering(raft));
}

static void all_are_asked_before_it_votes_again(void **state)
{
    (void)state;
    probe_answer(2, nonce, 5, 99);
    append(2, 6, 0, 0, 1, SH_RAFT_NOOP, 6);
    assert_true(sh_raft_is_recovering(raft)); /* server 3 may know of a later term */
    probe_answer(3, nonce, 5, 99);
    append(2, 6, 1, 6, 1, 0, 0);
    assert_false(sh_raft_is_recovering(raft));
}

/* Who asks for votes may be of any log; a leader, or who was asked, knows which it is. */
static void a_log_is_taken_over_from_who_knows(void **state)
{
    (void)state;
    struct sh_writer *w = body_begin();
    sh_put64(w, 9);
    sh_put64(w, 5);
    send_of(99, 2, SH_RAFT_VOTE_ASK, 0, 5);
    assert_int_equal(sh_raft_log_id(raft), 0);
    probe_answer(2, nonce, 5, 99);
    assert_int_equal(sh_raft_log_id(raft), 99);
}

/* --- Candidates and followers ---------------------------------------------------------------------- */

static void a_poll_counts_for_its_term(void **state)
{
    (void)state;
    found();
    now_ns += 2 * ELECTION + 1;
    sh_raft_tick(raft, now_ns);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_PRECANDIDATE);
    vote_answer(2, SH_RAFT_PRE | SH_RAFT_YES, 2);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_PRECANDIDATE);
    vote_answer(2, SH_RAFT_PRE | SH_RAFT_YES, 1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_CANDIDATE);
    vote_answer(3, SH_RAFT_PRE | SH_RAFT_YES, 1); /* no vote */
    assert_int_equal(sh_raft_role(raft), SH_RAFT_CANDIDATE);
}

static void who_hears_a_leader_wants_no_other(void **state)
{
    (void)state;
    unsigned flags;
    uint64_t term;
    found();
    append(2, 1, 0, 0, 0, SH_RAFT_NOOP, 1);
    now_ns += ELECTION - 1;
    vote_ask(3, SH_RAFT_PRE, 2, 9, 1);
    (void)take(3, SH_RAFT_VOTE_ANSWER, &flags, &term);
    assert_int_equal(flags & (SH_RAFT_PRE | SH_RAFT_YES), SH_RAFT_PRE);
    now_ns += 1;
    vote_ask(3, SH_RAFT_PRE, 2, 9, 1);
    (void)take(3, SH_RAFT_VOTE_ANSWER, &flags, &term);
    assert_int_equal(flags & (SH_RAFT_PRE | SH_RAFT_YES), SH_RAFT_PRE | SH_RAFT_YES);
}

static void no_entry_is_of_a_later_term_than_its_leader(void **state)
{
    (void)state;
    found();
    append(2, 2, 0, 0, 0, SH_RAFT_NOOP, 3);
    assert_int_equal(sh_raft_last(raft), 0);
    append(2, 2, 0, 0, 0, SH_RAFT_NOOP, 2);
    append(2, 2, 1, 2, 0, SH_RAFT_NOOP, 1); /* nor of an earlier one than the entry before it */
    assert_int_equal(sh_raft_last(raft), 1);
}

static void no_snapshot_is_of_a_later_term_than_its_leader(void **state)
{
    (void)state;
    found();
    for (uint64_t term = 3; term >= 2; term--) {
        struct sh_writer *w = body_begin();
        sh_put64(w, 10);
        sh_put64(w, term);
        sh_put64(w, VOTERS);
        sh_put64(w, 0);
        sh_put64(w, 1);
        sh_put32(w, 0);
        sh_put32(w, 0);
        send(2, SH_RAFT_SNAPSHOT, 0, 2);
        assert_int_equal(sh_raft_commit(raft), term == 2 ? 10 : 0);
    }
}

static void members_go_with_the_entry_that_names_them(void **state)
{
    (void)state;
    found();
    append(2, 1, 0, 0, 0, SH_RAFT_NOOP, 1);
    append(2, 1, 1, 1, 0, SH_RAFT_MEMBERS, 1);
    assert_int_equal(sh_raft_members(raft).learners, 1u << 4);
    append(3, 2, 1, 1, 0, SH_RAFT_NOOP, 2); /* another leader has another entry there */
    assert_int_equal(sh_raft_members(raft).learners, 0);
}

static void only_who_says_so_is_of_an_older_life(void **state)
{
    (void)state;
    found();
    for (unsigned i = 0; i < 2; i++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, UINT64_C(2) << 32 | 9);
        sh_put64(w, 0);
        send(2, SH_RAFT_REFUSED, i ? SH_RAFT_OLD_LIFE : SH_RAFT_OTHER_LOG, 0);
        assert_int_equal(sh_raft_withdrawal(raft), i ? SH_RAFT_OLDER_LIFE : SH_RAFT_TAKES_PART);
    }
}

/* --- Leaders ------------------------------------------------------------------------------------ */

static void what_waits_is_bounded(void **state)
{
    (void)state;
    lead();
    unsigned count = 0;
    while (count < 2 * SH_RAFT_BACKLOG_MAX && !put()) {
        drop_sent();
        count++;
    }
    assert_in_range(count, SH_RAFT_BACKLOG_MAX - 1, SH_RAFT_BACKLOG_MAX);
    append_answer(2, SH_RAFT_YES, sh_raft_last(raft), 1);
    assert_int_equal(put(), SHOAL_OK);
}

/* Entries that a recovering server holds do not count, nor does that it follows. */
static void the_forgetful_count_for_nothing(void **state)
{
    (void)state;
    struct sh_raft_read read;
    lead();
    assert_int_equal(sh_raft_read_begin(raft, &read), SHOAL_OK);
    append_answer(2, SH_RAFT_YES | SH_RAFT_RECOVERING, 1, read.round);
    assert_int_equal(sh_raft_commit(raft), 0);
    assert_int_equal(sh_raft_led_ns(raft, now_ns), 0);
    append_answer(3, SH_RAFT_YES, 1, 1); /* commits, and is of an older round */
    assert_int_equal(sh_raft_commit(raft), 1);
    assert_int_equal(sh_raft_read_done(raft, &read), SHOAL_EAGAIN);
    append_answer(3, SH_RAFT_YES, 1, read.round);
    assert_int_equal(sh_raft_read_done(raft, &read), SHOAL_OK);
}

static void rounds_that_never_were_prove_nothing(void **state)
{
    (void)state;
    struct sh_raft_read read;
    lead();
    append_answer(3, SH_RAFT_YES, 1, 1);
    append_answer(2, SH_RAFT_YES, 1, UINT32_MAX);
    assert_int_equal(sh_raft_read_begin(raft, &read), SHOAL_OK);
    assert_int_equal(sh_raft_read_done(raft, &read), SHOAL_EAGAIN);
}

/* Only so many rounds are remembered: the place of an old one is a later one's. */
static void rounds_of_long_ago_prove_nothing(void **state)
{
    (void)state;
    lead();
    append_answer(3, SH_RAFT_YES, 1, 1);
    uint64_t heard_ns = 0;
    for (uint64_t round = 2; round <= SH_RAFT_ROUNDS + 3; round++) {
        tick_after(HEARTBEAT);
        if (round >= SH_RAFT_ROUNDS)
            continue;
        append_answer(3, SH_RAFT_YES, 1, round);
        heard_ns = now_ns;
    }
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_true(sh_raft_led_ns(raft, now_ns) == heard_ns);
}

static void members_change_one_by_one(void **state)
{
    (void)state;
    lead();
    /* Before an entry of its own term is committed a leader may not know who the members are. */
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS, 1u << 4)), SHOAL_EBUSY);
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_int_equal(sh_raft_members_change(raft, with(1u << 1, 0)), SHOAL_EINVAL);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS | 1u << 4, 0)), SHOAL_EINVAL);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS, 1u << 4)), SHOAL_OK);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS, 3u << 4)), SHOAL_EBUSY);
    drop_sent();
    append_answer(2, SH_RAFT_YES, 2, 1);
    /* A learner votes that has all that is committed, and has forgotten nothing. */
    append_answer(4, SH_RAFT_YES, 1, 1);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS | 1u << 4, 0)), SHOAL_EBUSY);
    append_answer(4, SH_RAFT_YES | SH_RAFT_RECOVERING, 2, 1);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS | 1u << 4, 0)), SHOAL_EBUSY);
    append_answer(4, SH_RAFT_YES, 2, 1);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS | 1u << 4, 0)), SHOAL_OK);
}

/* A server that has an entry on its disk keeps it: a NO from before is no news. */
static void what_a_server_has_is_not_sent_again(void **state)
{
    (void)state;
    unsigned flags;
    uint64_t term;
    lead();
    assert_int_equal(put(), SHOAL_OK);
    assert_int_equal(put(), SHOAL_OK);
    drop_sent();
    append_answer(2, SH_RAFT_YES, 3, 1);
    append_answer(2, 0, 2, 1);
    assert_int_equal(put(), SHOAL_OK);
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    struct sh_reader r = take(2, SH_RAFT_APPEND, &flags, &term);
    assert_int_equal(sh_get64(&r), 3); /* before it */
}

/* A snapshot names the members as of its index, not those that were named since. */
static void a_snapshot_has_the_members_of_its_time(void **state)
{
    (void)state;
    unsigned flags;
    uint64_t term;
    lead();
    append_answer(2, SH_RAFT_YES, 1, 1);
    for (unsigned i = 0; i < SNAPSHOT_ENTRIES; i++)
        assert_int_equal(put(), SHOAL_OK);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS, 1u << 4)), SHOAL_OK);
    drop_sent();
    append_answer(2, SH_RAFT_YES, 1 + SNAPSHOT_ENTRIES, 1); /* not the change */
    append_answer(3, 0, 1, 1);                              /* it has nothing */
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    struct sh_reader r = take(3, SH_RAFT_SNAPSHOT, &flags, &term);
    assert_true(sh_get64(&r) > 1 && sh_get64(&r) == 1);
    assert_int_equal(sh_get64(&r), VOTERS);
    assert_int_equal(sh_get64(&r), 0);
    assert_true(sh_reader_ok(&r));
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(answers_to_another_process_do_not_count),
        CASE(a_forgotten_vote_is_spent),
        CASE(the_forgetful_do_not_vote_before_they_caught_up),
        CASE(all_are_asked_before_it_votes_again),
        CASE(a_log_is_taken_over_from_who_knows),
        CASE(a_poll_counts_for_its_term),
        CASE(who_hears_a_leader_wants_no_other),
        CASE(no_entry_is_of_a_later_term_than_its_leader),
        CASE(no_snapshot_is_of_a_later_term_than_its_leader),
        CASE(members_go_with_the_entry_that_names_them),
        CASE(only_who_says_so_is_of_an_older_life),
        CASE(what_waits_is_bounded),
        CASE(the_forgetful_count_for_nothing),
        CASE(rounds_that_never_were_prove_nothing),
        CASE(rounds_of_long_ago_prove_nothing),
        CASE(members_change_one_by_one),
        CASE(what_a_server_has_is_not_sent_again),
        CASE(a_snapshot_has_the_members_of_its_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
