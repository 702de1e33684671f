/* Raft, rule by rule: one server, and messages that this test makes. What a rule forbids is tried
 * where nothing else forbids it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "raft/raft_int.h"
#include "raft/raft_journal_test.h"

#define MS UINT64_C(1000000)
#define ELECTION (200 * MS)
#define HEARTBEAT (40 * MS)
#define SNAPSHOT_ENTRIES 4
#define VOTERS UINT64_C(14) /* servers 1, which is looked at, 2 and 3 */
#define BODY_MAX 256

static struct sh_raft *raft;
static struct memory_journal journal;
static uint64_t now_ns;

/* --- Messages ---------------------------------------------------------------------------------- */

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)command;
}

static size_t snapshot_size(void *arg)
{
    (void)arg;
    return 0;
}

static void snapshot_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    (void)w;
}

static enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    (void)arg;
    (void)snapshot;
    return SHOAL_OK;
}

static uint8_t body[BODY_MAX];
static struct sh_writer body_w;

/* Begins what follows a message's head. */
static struct sh_writer *body_begin(void)
{
    body_w = sh_writer_make(body, sizeof body);
    return &body_w;
}

/* A message of that log, with the body that was made. */
static void send_of(uint64_t log_id, uint8_t from, unsigned type, unsigned flags, uint64_t term)
{
    uint8_t bytes[SH_RAFT_HEAD_BYTES + BODY_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, (uint8_t)type);
    sh_put8(&w, (uint8_t)flags);
    sh_put16(&w, 0);
    sh_put64(&w, term);
    sh_put64(&w, log_id);
    sh_put64(&w, UINT64_C(1) << 32 | from);
    sh_put_raw(&w, sh_bytes_make(body, (size_t)(body_w.at - body)));
    assert_true(sh_writer_ok(&w) && sh_writer_ok(&body_w));
    sh_raft_receive(raft, now_ns, from, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

static void send(uint8_t from, unsigned type, unsigned flags, uint64_t term)
{
    send_of(sh_raft_log_id(raft), from, type, flags, term);
}

/* Stores all, and takes what is sent; returns what follows the head of the last message of that type to
 * that server, or a reader that is at its end, and its flags and term. */
static struct sh_reader take(uint8_t to, unsigned type, unsigned *flags_out, uint64_t *term_out)
{
    static uint8_t found[4096];
    size_t size = 0;
    struct sh_raft_message *message;
    (void)memory_journal_sync(&journal, raft, now_ns);
    *flags_out = 0;
    while ((message = sh_raft_message_next(raft))) {
        if (message->to == to && message->bytes[0] == type) {
            assert_true(message->size <= sizeof found);
            memcpy(found, message->bytes, message->size);
            size = message->size;
            *flags_out = message->bytes[1];
            *term_out = sh_load64(message->bytes + 4);
        }
        free(message);
        (void)memory_journal_sync(&journal, raft, now_ns);
    }
    return size ? sh_reader_make(
                      sh_bytes_make(found + SH_RAFT_HEAD_BYTES, size - SH_RAFT_HEAD_BYTES))
                : sh_reader_make(sh_bytes_make(found, 0));
}

static bool is_sent(uint8_t to, unsigned type)
{
    unsigned flags;
    uint64_t term = 0;
    (void)take(to, type, &flags, &term);
    return term || flags;
}

static void drop_sent(void)
{
    (void)is_sent(0, 0);
}

static void vote_ask(uint8_t from, unsigned flags, uint64_t term, uint64_t last, uint64_t last_term)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, last);
    sh_put64(w, last_term);
    send(from, SH_RAFT_VOTE_ASK, flags, term);
}

static void vote_answer(uint8_t from, unsigned flags, uint64_t term)
{
    (void)body_begin();
    send(from, SH_RAFT_VOTE_ANSWER, flags, term);
}

/* An append of the leader `from`: one entry of that kind and term, or none (kind 0). */
static void append(uint8_t from, uint64_t term, uint64_t before, uint64_t before_term,
                   uint64_t commit, unsigned kind, uint64_t entry_term)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, before);
    sh_put64(w, before_term);
    sh_put64(w, commit);
    sh_put64(w, 1);
    sh_put32(w, kind != 0);
    if (kind) {
        sh_put8(w, (uint8_t)kind);
        sh_put64(w, entry_term);
        sh_put32(w, kind == SH_RAFT_MEMBERS ? 16 : 0);
    }
    if (kind == SH_RAFT_MEMBERS) {
        sh_put64(w, VOTERS);
        sh_put64(w, 1u << 4); /* with the learner 4 */
    }
    send(from, SH_RAFT_APPEND, 0, term);
}

static void append_answer(uint8_t from, unsigned flags, uint64_t index, uint64_t round)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, index);
    sh_put64(w, round);
    send(from, SH_RAFT_APPEND_ANSWER, flags, sh_raft_term(raft));
}

/* --- The server -------------------------------------------------------------------------------- */

static uint64_t nonce;

static int setup(void **state)
{
    (void)state;
    memset(&journal, 0, sizeof journal);
    now_ns = 1000 * MS;
    struct sh_raft_config config = {
        .server = 1,
        .first = {.voters = VOTERS},
        .election_ns = ELECTION,
        .heartbeat_ns = HEARTBEAT,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = 128,
        .seed = 5,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL},
    };
    assert_int_equal(sh_raft_create(&config, &raft), SHOAL_OK);
    memory_journal_open(&journal, raft);
    sh_raft_start(raft, journal.journal, 0, UINT64_C(1) << 32 | 1, now_ns);
    sh_raft_tick(raft, now_ns);
    unsigned flags;
    uint64_t term;
    struct sh_reader r = take(2, SH_RAFT_PROBE, &flags, &term);
    nonce = sh_get64(&r);
    assert_true(sh_reader_done(&r) && sh_raft_is_recovering(raft));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    memory_journal_close(&journal);
    journal.disk->ops->destroy(journal.disk);
    sh_raft_destroy(raft);
    return 0;
}

static void probe_answer(uint8_t from, uint64_t of_nonce, uint64_t term, uint64_t log_id)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, of_nonce);
    sh_put64(w, 40u + from);
    send_of(log_id, from, SH_RAFT_PROBE_ANSWER, 0, term);
}

/* All servers are new. */
static void found(void)
{
    probe_answer(2, nonce, 0, 0);
    probe_answer(3, nonce, 0, 0);
    assert_false(sh_raft_is_recovering(raft));
    drop_sent();
}

/* Server 2 elects it, in term 1; its first entry is on its own disk only. */
static void lead(void)
{
    found();
    now_ns += 2 * ELECTION + 1;
    sh_raft_tick(raft, now_ns);
    vote_answer(2, SH_RAFT_PRE | SH_RAFT_YES, 1);
    drop_sent();
    vote_answer(2, SH_RAFT_YES, 1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    drop_sent();
}

static enum shoal_err put(void)
{
    uint64_t index, term;
    return sh_raft_propose(raft, sh_bytes_text("x"), &index, &term);
}

static void tick_after(uint64_t ns)
{
    now_ns += ns;
    sh_raft_tick(raft, now_ns);
    drop_sent();
}

static struct sh_raft_members with(uint64_t voters, uint64_t learners)
{
    return (struct sh_raft_members){.voters = voters, .learners = learners};
}

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
