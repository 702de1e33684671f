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
    lead();
    tick_after(HEARTBEAT);
    append_answer(2, SH_RAFT_YES | SH_RAFT_RECOVERING, 1, raft->round);
    assert_int_equal(sh_raft_commit(raft), 0);
    assert_int_equal(sh_raft_led_ns(raft, now_ns), 0);
    append_answer(3, SH_RAFT_YES, 1, 1); /* commits, and is of an older round */
    assert_int_equal(sh_raft_commit(raft), 1);
    assert_true(sh_raft_led_ns(raft, now_ns) < now_ns);
    append_answer(3, SH_RAFT_YES, 1, raft->round);
    assert_true(sh_raft_led_ns(raft, now_ns) == now_ns);
}

static void rounds_that_never_were_prove_nothing(void **state)
{
    (void)state;
    lead();
    uint64_t first_ns = now_ns;
    append_answer(3, SH_RAFT_YES, 1, 1);
    append_answer(2, SH_RAFT_YES, 1, UINT32_MAX);
    tick_after(HEARTBEAT);
    assert_true(sh_raft_led_ns(raft, now_ns) == first_ns);
    append_answer(2, SH_RAFT_YES, 1, raft->round);
    assert_true(sh_raft_led_ns(raft, now_ns) == now_ns);
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
    append_answer(2, SH_RAFT_YES, 1, raft->round - SH_RAFT_ROUNDS); /* its place is this round's */
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

/* An answer of before is no news: of a round, of what is stored. */
static void an_older_answer_takes_nothing_back(void **state)
{
    (void)state;
    unsigned flags;
    uint64_t term;
    lead();
    uint64_t first_ns = now_ns;
    assert_int_equal(put(), SHOAL_OK);
    tick_after(HEARTBEAT);
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_true(sh_raft_led_ns(raft, now_ns) == first_ns);
    append_answer(2, SH_RAFT_YES, 2, raft->round);
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_int_equal(raft->progress[2].match, 2);
    assert_true(sh_raft_led_ns(raft, now_ns) == now_ns);
    drop_sent();
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    struct sh_reader r = take(2, SH_RAFT_APPEND, &flags, &term);
    assert_int_equal(sh_get64(&r), 2);
}

/* An answer that says more than there is, or less than an answer, is none. */
static void malformed_answers_count_for_nothing(void **state)
{
    (void)state;
    lead();
    uint64_t last = sh_raft_last(raft);
    append_answer(2, SH_RAFT_YES, last + 1, 1);
    append_answer(2, SH_RAFT_YES, UINT64_MAX, 1);
    append_answer(2, 0, last + 5, 1);
    assert_int_equal(sh_raft_commit(raft), 0);
    assert_int_equal(raft->progress[2].next, last);
    struct sh_writer *w = body_begin();
    sh_put64(w, last);
    send(3, SH_RAFT_APPEND_ANSWER, SH_RAFT_YES, sh_raft_term(raft));
    assert_int_equal(sh_raft_commit(raft), 0);
    assert_int_equal(sh_raft_heard_ns(raft, 3), 0);
    append_answer(2, SH_RAFT_YES, last, 1);
    assert_int_equal(sh_raft_commit(raft), last);
}

/* It leads for as long as it hears a majority, and says so. */
static void a_leader_that_hears_nobody_leads_no_longer(void **state)
{
    (void)state;
    lead();
    uint64_t since_ns = now_ns;
    assert_int_equal(sh_raft_leader(raft), 1);
    assert_false(sh_raft_is_current(raft));
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_true(sh_raft_is_current(raft));
    uint64_t round = raft->round;
    sh_raft_tick(raft, now_ns); /* not before the next heartbeat is due */
    assert_int_equal(raft->round, round);
    tick_after(ELECTION - 1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    raft->heartbeat_ns = now_ns + 1;
    tick_after(1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_FOLLOWER);
    assert_int_equal(now_ns, since_ns + ELECTION);
    assert_int_equal(sh_raft_led_ns(raft, now_ns), 0);
    assert_int_equal(sh_raft_leader(raft), 0);
}

/* One that takes itself out leads until that is committed. */
static void a_removed_leader_stays_until_all_know(void **state)
{
    (void)state;
    lead();
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_int_equal(put(), SHOAL_OK);
    assert_int_equal(sh_raft_members_change(raft, with(12, 0)), SHOAL_OK);
    assert_int_equal(put(), SHOAL_OK); /* behind it: not sent by it any more */
    drop_sent();
    for (uint64_t index = 2; index <= 3; index++) {
        append_answer(2, SH_RAFT_YES, index, 1);
        assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
        append_answer(3, SH_RAFT_YES, index, 1);
        assert_int_equal(sh_raft_commit(raft), index);
    }
    assert_int_equal(sh_raft_role(raft), SH_RAFT_FOLLOWER);
}

/* Takes the last append to server 2: the index before it, and how many entries it has; false: none. */
static bool append_taken(uint64_t *before_out, uint32_t *count_out)
{
    unsigned flags;
    uint64_t term;
    struct sh_reader r = take(2, SH_RAFT_APPEND, &flags, &term);
    *before_out = sh_get64(&r);
    (void)sh_reader_take(&r, 24);
    *count_out = sh_get32(&r);
    return sh_reader_ok(&r);
}

/* Entries go out one message at a time, and the next one with the answer: as many as have room. */
static void what_comes_meanwhile_goes_with_the_answer(void **state)
{
    (void)state;
    uint64_t before;
    uint32_t count;
    lead();
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_int_equal(put(), SHOAL_OK);
    assert_true(append_taken(&before, &count) && before == 1 && count == 1);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(put(), SHOAL_OK);
    assert_false(append_taken(&before, &count));
    append_answer(2, SH_RAFT_YES | SH_RAFT_STORING, 1, 1); /* its disk is slow */
    assert_false(append_taken(&before, &count));
    append_answer(2, SH_RAFT_YES, 2, 1);
    /* 36 bytes and 14 for each entry: the one that reaches 128 is the last. */
    assert_true(append_taken(&before, &count) && before == 2 && count == 7);
    append_answer(2, 0, 9, 1); /* not what was sent; it has that many */
    assert_false(append_taken(&before, &count));
    append_answer(2, SH_RAFT_YES, 9, 1);
    assert_true(append_taken(&before, &count) && before == 9 && count == 7);
    append_answer(2, SH_RAFT_YES, 22, 1); /* from an earlier leader's time, it has the rest */
    assert_false(append_taken(&before, &count));
    assert_int_equal(put(), SHOAL_OK);
    assert_true(append_taken(&before, &count) && before == 22 && count == 1);
    append_answer(3, 0, 1, 1); /* it has nothing: sent again from there, or as a snapshot */
    assert_int_equal(raft->progress[3].next, 1);
    assert_true(raft->progress[3].is_waiting);
}

/* Where a leader goes on with a server, by what it says. */
static void a_leader_goes_on_where_the_answer_says(void **state)
{
    (void)state;
    static const struct {
        bool is_waiting;
        uint64_t next;
        unsigned flags;
        uint64_t index, then;
    } cases[] = {{false, 2, SH_RAFT_YES, 3, 4},
                 {true, 5, SH_RAFT_YES, 3, 4},
                 {false, 5, SH_RAFT_YES, 3, 5},
                 {true, 5, 0, 3, 3},
                 {true, 5, 0, 1, 5},
                 {true, 4, 0, 4, 4}};
    lead();
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(put(), SHOAL_OK);
    drop_sent();
    struct sh_raft_progress *progress = &raft->progress[2];
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint64_t before;
        uint32_t count;
        *progress = (struct sh_raft_progress){
            .match = 1, .next = cases[i].next, .is_waiting = cases[i].is_waiting};
        append_answer(2, cases[i].flags, cases[i].index, 1);
        assert_int_equal(progress->next, cases[i].then);
        bool is_news = cases[i].flags || cases[i].index == 3;
        assert_int_equal(append_taken(&before, &count), is_news);
        assert_true(!is_news || before == cases[i].then - 1);
    }
}

/* Any number will do for a server, and none is left out: not the highest one either. */
static void the_highest_number_is_a_server_as_well(void **state)
{
    (void)state;
    const uint64_t highest = UINT64_C(1) << SH_RAFT_SERVER_MAX;
    lead();
    append_answer(2, SH_RAFT_YES, 1, 1);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS, highest)), SHOAL_OK);
    assert_true(is_sent(SH_RAFT_SERVER_MAX, SH_RAFT_APPEND));
    append_answer(2, SH_RAFT_YES, 2, 1);
    append_answer(SH_RAFT_SERVER_MAX, SH_RAFT_YES, 2, 1);
    assert_int_equal(sh_raft_members_change(raft, with(VOTERS | highest, 0)), SHOAL_OK);
    assert_int_equal(put(), SHOAL_OK);
    drop_sent();
    append_answer(2, SH_RAFT_YES, 4, 1);
    append_answer(SH_RAFT_SERVER_MAX, SH_RAFT_YES, 3, 1); /* three of four have that much */
    assert_int_equal(sh_raft_commit(raft), 3);
    uint64_t before_ns = now_ns;
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    assert_true(is_sent(SH_RAFT_SERVER_MAX, SH_RAFT_APPEND));
    append_answer(2, SH_RAFT_YES, 4, raft->round);
    assert_true(sh_raft_led_ns(raft, now_ns) == before_ns);
    append_answer(SH_RAFT_SERVER_MAX, SH_RAFT_YES, 4, raft->round);
    assert_true(sh_raft_led_ns(raft, now_ns) == now_ns);
    tick_after(ELECTION - 1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    /* And it leads no further, elected by it or not: with it in a poll. */
    raft->heartbeat_ns = now_ns += 1;
    tick_after(0);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_FOLLOWER);
    now_ns += 2 * ELECTION + 1;
    sh_raft_tick(raft, now_ns);
    assert_true(is_sent(SH_RAFT_SERVER_MAX, SH_RAFT_VOTE_ASK));
    vote_answer(2, SH_RAFT_PRE | SH_RAFT_YES, 2);
    vote_answer(SH_RAFT_SERVER_MAX, SH_RAFT_PRE | SH_RAFT_YES, 2);
    vote_answer(2, SH_RAFT_YES, 2);
    drop_sent();
    vote_answer(SH_RAFT_SERVER_MAX, SH_RAFT_YES, 2);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    assert_true(is_sent(SH_RAFT_SERVER_MAX, SH_RAFT_APPEND));
}

/* Nobody else could have been elected. */
static void the_only_voter_surely_leads(void **state)
{
    (void)state;
    lead();
    append_answer(2, SH_RAFT_YES, 1, 1);
    for (uint64_t voters = 6; voters; voters = voters == 6 ? 2 : 0) {
        assert_int_equal(sh_raft_members_change(raft, with(voters, 0)), SHOAL_OK);
        drop_sent();
        append_answer(2, SH_RAFT_YES, sh_raft_last(raft), 1);
    }
    now_ns += 10 * ELECTION;
    assert_true(sh_raft_led_ns(raft, now_ns) == now_ns);
}

static void snapshot_answer(uint64_t index, uint32_t offset)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, index);
    sh_put64(w, 1);
    sh_put32(w, offset);
    send(3, SH_RAFT_SNAPSHOT_ANSWER, 0, sh_raft_term(raft));
}

/* Takes the last piece to server 3: false: none. */
static bool piece_taken(uint64_t *index_out, uint32_t *offset_out, size_t *size_out)
{
    unsigned flags;
    uint64_t term;
    struct sh_reader r = take(3, SH_RAFT_SNAPSHOT, &flags, &term);
    *index_out = sh_get64(&r);
    (void)sh_reader_take(&r, 36);
    *offset_out = sh_get32(&r);
    *size_out = sh_reader_left(&r);
    return sh_reader_ok(&r);
}

static void a_snapshot_goes_piece_by_piece(void **state)
{
    (void)state;
    uint64_t index, later;
    uint32_t offset;
    size_t size;
    own_size = 300;
    lead();
    for (unsigned i = 0; i < SNAPSHOT_ENTRIES; i++)
        assert_int_equal(put(), SHOAL_OK);
    drop_sent();
    append_answer(2, SH_RAFT_YES, 1 + SNAPSHOT_ENTRIES, 1);
    snapshot_answer(0, 0); /* none is sent yet */
    assert_false(piece_taken(&index, &offset, &size));
    append_answer(3, 0, 1, 1); /* it has nothing */
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    assert_true(piece_taken(&index, &offset, &size) && offset == 0 && size == 128);
    assert_int_equal(index, 1 + SNAPSHOT_ENTRIES);
    snapshot_answer(index - 1, 128);
    snapshot_answer(index, 301);
    (void)body_begin();
    send(3, SH_RAFT_SNAPSHOT_ANSWER, 0, sh_raft_term(raft));
    assert_false(piece_taken(&later, &offset, &size));
    snapshot_answer(index, 128);
    assert_true(piece_taken(&later, &offset, &size) && offset == 128 && size == 128);
    assert_int_equal(put(), SHOAL_OK); /* it waits for the answer */
    assert_false(piece_taken(&later, &offset, &size));
    snapshot_answer(index, 256);
    assert_true(piece_taken(&later, &offset, &size) && offset == 256 && size == 44);
    /* Meanwhile there is another one, which begins anew. */
    for (unsigned i = 0; i < SNAPSHOT_ENTRIES; i++)
        assert_int_equal(put(), SHOAL_OK);
    drop_sent();
    append_answer(2, SH_RAFT_YES, sh_raft_last(raft), 1);
    drop_sent();
    now_ns += HEARTBEAT;
    sh_raft_tick(raft, now_ns);
    assert_true(piece_taken(&later, &offset, &size) && later > index && offset == 0);
    snapshot_answer(later, 300);
    assert_true(piece_taken(&later, &offset, &size) && offset == 300 && size == 0);
    append_answer(3, SH_RAFT_YES, later, 1);
    assert_int_equal(raft->progress[3].next, later + 1);
    assert_int_equal(raft->progress[3].snapshot, 0);
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
        CASE(an_older_answer_takes_nothing_back),
        CASE(malformed_answers_count_for_nothing),
        CASE(a_leader_that_hears_nobody_leads_no_longer),
        CASE(a_removed_leader_stays_until_all_know),
        CASE(what_comes_meanwhile_goes_with_the_answer),
        CASE(a_snapshot_goes_piece_by_piece),
        CASE(a_leader_goes_on_where_the_answer_says),
        CASE(the_highest_number_is_a_server_as_well),
        CASE(the_only_voter_surely_leads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
