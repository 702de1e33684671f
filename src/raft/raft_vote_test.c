/* Votes, and the questions of a server that may have forgotten some, rule by rule. */
#include "raft/raft_one_test.h"

/* The answer to a vote's or a poll's request; its term is *term_out. */
static bool says_yes(uint8_t to, uint64_t *term_out)
{
    unsigned flags;
    (void)take(to, SH_RAFT_VOTE_ANSWER, &flags, term_out);
    return flags & SH_RAFT_YES;
}

/* In term 5, with two entries of term 4, and nobody leads. */
static void in_term_5(void)
{
    found();
    append(2, 4, 0, 0, 0, SH_RAFT_NOOP, 4);
    append(2, 4, 1, 4, 0, SH_RAFT_NOOP, 4);
    now_ns += 2 * ELECTION;
    vote_answer(3, 0, 5);
    drop_sent();
    assert_true(sh_raft_term(raft) == 5 && raft->vote == 0);
}

static void one_vote_in_a_term(void **state)
{
    (void)state;
    uint64_t term;
    in_term_5();
    vote_ask(3, 0, 4, 9, 4); /* of a term that is over */
    assert_true(!says_yes(3, &term) && term == 5);
    assert_int_equal(raft->vote, 0);
    uint64_t due_ns = raft->election_ns;
    now_ns += ELECTION;
    vote_ask(3, 0, 5, 2, 4);
    assert_true(says_yes(3, &term) && term == 5);
    assert_true(raft->election_ns > due_ns && raft->election_ns >= now_ns + ELECTION);
    vote_ask(3, 0, 5, 2, 4); /* the answer was lost */
    assert_true(says_yes(3, &term));
    vote_ask(2, 0, 5, 9, 4);
    assert_false(says_yes(2, &term));
    vote_ask(2, 0, 6, 9, 4);
    assert_true(says_yes(2, &term) && term == 6);
}

/* Who has an entry of a later term has all that is committed, however short its log is. */
static void only_who_has_as_much_is_voted_for(void **state)
{
    (void)state;
    static const struct {
        uint64_t last, last_term;
        bool yes;
    } cases[] = {{2, 4, true}, {1, 4, false}, {1, 5, true}, {9, 3, false}, {3, 4, true}};
    uint64_t term;
    in_term_5();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        vote_ask(3, 0, 6 + i, cases[i].last, cases[i].last_term);
        assert_int_equal(says_yes(3, &term), cases[i].yes);
    }
}

/* A poll asks what would be, and changes nothing. */
static void a_poll_is_no_vote(void **state)
{
    (void)state;
    uint64_t term;
    in_term_5();
    uint64_t due_ns = raft->election_ns;
    vote_ask(3, SH_RAFT_PRE, 5, 9, 4); /* that term has begun */
    assert_true(!says_yes(3, &term) && term == 5);
    vote_ask(3, SH_RAFT_PRE, 4, 9, 4);
    assert_false(says_yes(3, &term));
    vote_ask(3, SH_RAFT_PRE, 6, 9, 4);
    assert_true(says_yes(3, &term) && term == 6);
    assert_true(raft->vote == 0 && sh_raft_term(raft) == 5 && raft->election_ns == due_ns);
}

static void half_a_question_is_none(void **state)
{
    (void)state;
    in_term_5();
    struct sh_writer *w = body_begin();
    sh_put64(w, 9);
    send(3, SH_RAFT_VOTE_ASK, 0, 6);
    assert_true(sh_raft_term(raft) == 5 && raft->vote == 0);
    (void)body_begin();
    send_of(0, 3, SH_RAFT_PROBE, 0, 0);
    assert_false(is_sent(3, SH_RAFT_PROBE_ANSWER));
}

/* It asks the others, and has no leader meanwhile. */
static void a_candidate_asks_the_others(void **state)
{
    (void)state;
    found();
    append(2, 1, 0, 0, 0, SH_RAFT_NOOP, 1);
    assert_int_equal(sh_raft_leader(raft), 2);
    now_ns += 2 * ELECTION + 1;
    sh_raft_tick(raft, now_ns);
    assert_int_equal(sh_raft_leader(raft), 0);
    (void)memory_journal_sync(&journal, raft, now_ns); /* owes server 2 nothing */
    struct sh_raft_message *message;
    unsigned asked = 0;
    while ((message = sh_raft_message_next(raft))) {
        assert_true(message->to == 2 || message->to == 3);
        asked += message->bytes[0] == SH_RAFT_VOTE_ASK;
        free(message);
    }
    assert_int_equal(asked, 2);
}

/* A leader whose process is no more protects nobody from an election. */
static void a_leader_that_is_gone_is_not_heard(void **state)
{
    (void)state;
    uint64_t term;
    found();
    append(2, 1, 0, 0, 0, SH_RAFT_NOOP, 1);
    vote_ask(3, 0, 2, 1, 1);
    assert_false(says_yes(3, &term));
    sh_raft_leader_gone(raft, now_ns, 2);
    vote_ask(3, 0, 2, 1, 1);
    assert_true(says_yes(3, &term) && term == 2);
}

/* --- Servers that have forgotten ------------------------------------------------------------------------- */

static void half_an_answer_is_none(void **state)
{
    (void)state;
    for (uint8_t from = 2; from <= 3; from++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, nonce);
        send_of(0, from, SH_RAFT_PROBE_ANSWER, 0, 0);
        assert_int_equal(raft->probed, 0);
        probe_answer(from, nonce, 5, 0); /* nor one of a term in no log */
        assert_int_equal(raft->probed, 0);
    }
    found();
}

/* What it asked once is answered once: later answers say nothing. */
static void answers_after_the_last_change_nothing(void **state)
{
    (void)state;
    probe_answer(2, nonce, 5, 99);
    probe_answer(3, nonce, 4, 99);
    assert_true(raft->probe_is_over && raft->vote == SH_RAFT_VOTE_SPENT);
    probe_answer(3, nonce, 7, 99);
    assert_true(raft->heard_term == 5 && sh_raft_term(raft) == 5);
}

static void who_knows_no_members_asks_nobody(void **state)
{
    (void)state;
    raft->config.first.voters = raft->members.voters = raft->snapshot.members.voters = 0;
    raft->probe_ns = 0;
    sh_raft_tick(raft, now_ns);
    assert_true(sh_raft_is_recovering(raft) && !raft->probe_is_over);
}

/* One that is none of the founders founds nothing with them. */
static void only_a_founder_founds(void **state)
{
    (void)state;
    raft->config.first.voters = raft->members.voters = raft->snapshot.members.voters = 12;
    probe_answer(2, nonce, 0, 0);
    probe_answer(3, nonce, 0, 0);
    assert_true(sh_raft_is_recovering(raft) && raft->probe_is_over);
    assert_int_equal(sh_raft_log_id(raft), 0);
}

/* How many questions leave now, all of them for server 3. */
static unsigned questions(void)
{
    unsigned count = 0;
    struct sh_raft_message *message;
    (void)memory_journal_sync(&journal, raft, now_ns);
    while ((message = sh_raft_message_next(raft))) {
        count += message->bytes[0] == SH_RAFT_PROBE;
        assert_true(message->bytes[0] != SH_RAFT_PROBE || message->to == 3);
        free(message);
    }
    return count;
}

/* It asks again, at every heartbeat, those who are missing; none once it has heard all; and does not wait
 * for one that is no voter any more. */
static void those_who_are_missing_are_asked_again(void **state)
{
    (void)state;
    probe_answer(2, nonce, 5, 99);
    sh_raft_tick(raft, now_ns + HEARTBEAT - 1);
    assert_int_equal(questions(), 0);
    sh_raft_tick(raft, now_ns + HEARTBEAT);
    assert_int_equal(questions(), 1);
    raft->members.voters = 6;
    sh_raft_tick(raft, now_ns + 2 * HEARTBEAT);
    assert_true(raft->probe_is_over && sh_raft_term(raft) == 5);
    assert_int_equal(questions(), 0);
    assert_true(sh_raft_due_ns(raft) > now_ns + 1000 * ELECTION);
}

int main(void)
{
    if (sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(one_vote_in_a_term),
        CASE(only_who_has_as_much_is_voted_for),
        CASE(a_poll_is_no_vote),
        CASE(half_a_question_is_none),
        CASE(a_candidate_asks_the_others),
        CASE(a_leader_that_is_gone_is_not_heard),
        CASE(half_an_answer_is_none),
        CASE(answers_after_the_last_change_nothing),
        CASE(who_knows_no_members_asks_nobody),
        CASE(only_a_founder_founds),
        CASE(those_who_are_missing_are_asked_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
