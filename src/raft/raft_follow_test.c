/* A follower, rule by rule: what it takes of a leader, and what it says of it, before and after its disk
 * has it. */
#include "raft/raft_one_test.h"

/* --- Messages ---------------------------------------------------------------------------------------- */

/* An append of server 2: entries of those terms (0 ends them), without commands. */
static void entries(uint64_t term, uint64_t before, uint64_t before_term, uint64_t commit,
                    uint64_t round, const uint64_t *terms)
{
    struct sh_writer *w = body_begin();
    uint32_t count = 0;
    while (terms[count])
        count++;
    sh_put64(w, before);
    sh_put64(w, before_term);
    sh_put64(w, commit);
    sh_put64(w, round);
    sh_put32(w, count);
    for (uint32_t i = 0; i < count; i++) {
        sh_put8(w, SH_RAFT_COMMAND);
        sh_put64(w, terms[i]);
        sh_put32(w, 0);
    }
    send(2, SH_RAFT_APPEND, 0, term);
}

#define ENTRIES(...) ((const uint64_t[]){__VA_ARGS__, 0})
static const uint64_t none[1];

struct answer {
    bool is_there, yes, storing;
    uint64_t index, round;
};

/* The last answer to a server that may be sent by now: the disk does nothing meanwhile. */
static struct answer answer_now(uint8_t to)
{
    struct answer answer = {.is_there = false};
    struct sh_raft_message *message;
    while ((message = sh_raft_message_next(raft))) {
        if (message->to == to && message->bytes[0] == SH_RAFT_APPEND_ANSWER)
            answer = (struct answer){true, message->bytes[1] & SH_RAFT_YES,
                                     message->bytes[1] & SH_RAFT_STORING,
                                     sh_load64(message->bytes + SH_RAFT_HEAD_BYTES),
                                     sh_load64(message->bytes + SH_RAFT_HEAD_BYTES + 8)};
        free(message);
    }
    return answer;
}

static void assert_answer(bool yes, bool storing, uint64_t index)
{
    struct answer answer = answer_now(2);
    assert_true(answer.is_there);
    assert_int_equal(answer.yes, yes);
    assert_int_equal(answer.storing, storing);
    assert_int_equal(answer.index, index);
}

static void store(void)
{
    (void)memory_journal_sync(&journal, raft, now_ns);
}

/* Server 2 leads, in term 1, and this server's promise for it is stored; no entry is there yet. */
static void follow(void)
{
    found();
    entries(1, 0, 0, 0, 1, none);
    store();
    (void)answer_now(2);
}

/* Stores one batch: not what was said while it was written. */
static void batch_begin(void)
{
    (void)sh_journal_step(journal.journal, now_ns);
}

static void batch_end(void)
{
    sh_lsn before = sh_journal_synced(journal.journal);
    while (sh_journal_synced(journal.journal) == before)
        (void)sh_journal_step(journal.journal, now_ns);
    assert_true(sh_journal_synced(journal.journal) < sh_journal_last(journal.journal));
    sh_raft_synced(raft, now_ns);
}

static void snapshot(uint64_t term, uint64_t index, uint64_t of_term, uint32_t size,
                     uint32_t offset, const char *bytes)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, index);
    sh_put64(w, of_term);
    sh_put64(w, VOTERS);
    sh_put64(w, 0);
    sh_put64(w, 7);
    sh_put32(w, size);
    sh_put32(w, offset);
    sh_put_raw(w, sh_bytes_text(bytes));
    send(2, SH_RAFT_SNAPSHOT, 0, term);
}

/* Where the next piece is wanted; -1: that was not said. */
static int64_t wanted(void)
{
    unsigned flags;
    uint64_t term;
    struct sh_reader r = take(2, SH_RAFT_SNAPSHOT_ANSWER, &flags, &term);
    if (!sh_reader_left(&r))
        return -1;
    (void)sh_get64(&r);
    assert_int_equal(sh_get64(&r), 7);
    return sh_get32(&r);
}

/* --- What is stored ------------------------------------------------------------------------------------ */

/* It says at once that it agrees, and what of it is stored; and the rest when it is. */
static void what_is_stored_is_said(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 2, ENTRIES(1, 1));
    assert_answer(true, true, 0);
    store();
    assert_answer(true, false, 2);
    entries(1, 2, 1, 0, 3, none);
    assert_answer(true, false, 2);
    (void)sh_journal_append(journal.journal, 0, 3, 1, 1, sh_bytes_make(NULL, 0));
    store(); /* nothing was owed */
    assert_false(answer_now(2).is_there);
}

/* Messages overtake each other: the later one counts, of entries, of rounds, and of what is committed. */
static void an_older_message_takes_nothing_back(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 5, ENTRIES(1, 1));
    entries(1, 0, 0, 0, 3, none);
    struct answer answer = answer_now(2);
    assert_true(answer.storing && answer.round == 5);
    store();
    assert_answer(true, false, 2);
    entries(1, 0, 0, 0, 6, ENTRIES(1, 1, 1)); /* and goes on */
    assert_int_equal(sh_raft_last(raft), 3);
    entries(1, 2, 1, 2, 6, none);
    assert_int_equal(sh_raft_commit(raft), 2);
    entries(1, 2, 1, 1, 6, none);
    entries(1, 0, 0, 2, 6, none);
    assert_int_equal(sh_raft_commit(raft), 2);
}

/* Entries that come in the place of others are not stored because those were; nor are those before,
 * whatever is cut off behind them. */
static void what_is_cut_off_is_not_stored(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1, 1, 1));
    entries(2, 2, 1, 0, 1, ENTRIES(2)); /* the third one is cut off, before it is stored */
    store();
    (void)answer_now(2);
    entries(3, 3, 2, 0, 1, none);
    store();
    assert_answer(true, false, 3);
    entries(3, 3, 2, 0, 1, ENTRIES(3, 3));
    (void)answer_now(2);
    entries(4, 4, 3, 0, 1, ENTRIES(4));
    assert_int_equal(raft->stored_last, 3);
    store();
    assert_int_equal(raft->stored_last, 5);
    entries(5, 4, 3, 0, 1, ENTRIES(5));
    assert_int_equal(raft->stored_last, 4);
}

/* A snapshot of its own covers entries that its disk does not have yet: they are as little stored as
 * before. */
static void a_snapshot_stores_no_entries(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1));
    batch_begin();
    entries(1, 1, 1, 9, 1, ENTRIES(1, 1, 1, 1, 1, 1, 1, 1));
    assert_true(raft->snapshot.index >= SNAPSHOT_ENTRIES && raft->log.base > 1);
    (void)answer_now(2);
    batch_end();
    struct answer answer = answer_now(2);
    assert_true(!answer.is_there || (answer.storing && answer.index <= 1));
    store();
    assert_answer(true, false, 9);
}

/* The leader's snapshot takes the place of entries that were stored: it is not stored for that, and
 * neither is what comes behind it. */
static void an_installed_snapshot_has_to_be_stored(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1, 1, 1, 1));
    store();
    entries(2, 9, 2, 0, 1, none);
    store();
    (void)answer_now(2);
    raft->loaded_last = 4; /* as if it had been started with them */
    snapshot(2, 2, 2, 0, 0, "");
    assert_int_equal(sh_raft_last(raft), 2);
    assert_int_equal(sh_raft_loaded_last(raft), 0);
    assert_answer(true, true, 0);
    entries(2, 2, 2, 0, 1, ENTRIES(2));
    assert_answer(true, true, 0);
    store();
    assert_answer(true, false, 3);
}

/* Of what it owed the leader before, another one has no use. */
static void another_leader_is_owed_nothing(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1, 1));
    append(3, 2, 9, 2, 0, 0, 0); /* server 3 leads, and has more */
    store();
    struct answer answer = answer_now(3);
    assert_true(answer.is_there && !answer.yes && answer.index == 3);
    (void)sh_journal_append(journal.journal, 0, 3, 1, 1, sh_bytes_make(NULL, 0));
    store();
    assert_false(answer_now(3).is_there);
    /* Nor is one that is gone. */
    append(3, 2, 2, 1, 0, SH_RAFT_NOOP, 2);
    sh_raft_leader_gone(raft, now_ns, 3);
    store();
    assert_true(raft->owes_answer);
}

/* A journal that is full takes no entry, and the leader hears that more is to come. */
static void a_full_journal_takes_nothing(void **state)
{
    (void)state;
    static uint8_t bytes[60000];
    follow();
    for (uint64_t i = 1; !sh_journal_is_full(journal.journal); i++)
        (void)sh_journal_append(journal.journal, 0, i, 1, 1, sh_bytes_make(bytes, sizeof bytes));
    entries(1, 0, 0, 0, 1, ENTRIES(1));
    assert_int_equal(sh_raft_last(raft), 0);
    assert_answer(true, true, 0);
    store();
    assert_answer(true, false, 0);
}

/* --- Entries ------------------------------------------------------------------------------------------- */

static void it_says_where_the_leader_should_try(void **state)
{
    (void)state;
    follow();
    entries(2, 0, 0, 2, 1, ENTRIES(1, 1, 1, 2, 2, 2));
    store();
    static const struct {
        uint64_t before, before_term, hint;
    } cases[] = {{9, 2, 7}, {7, 2, 7}, {6, 1, 4}, {5, 1, 4},
                 {4, 1, 4}, {3, 2, 3}, {2, 2, 3}, {UINT64_MAX, 2, 7}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        entries(2, cases[i].before, cases[i].before_term, 2, 1, none);
        store();
        assert_answer(false, false, cases[i].hint);
    }
    assert_int_equal(sh_raft_last(raft), 6);
}

/* What lies before the log's beginning is committed, so the leader has it as well. */
static void what_was_long_ago_agrees(void **state)
{
    (void)state;
    follow();
    snapshot(1, 10, 1, 0, 0, "");
    store();
    (void)answer_now(2);
    entries(1, 3, 1, 0, 1, ENTRIES(1));
    assert_answer(true, false, 10);
    assert_int_equal(sh_raft_last(raft), 10);
}

/* Nothing changes what is committed, and what comes behind it is taken all the same. */
static void the_committed_stays(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 1, 1, ENTRIES(1));
    entries(1, 0, 0, 1, 1, ENTRIES(1, 1));
    assert_int_equal(sh_raft_last(raft), 2);
    entries(2, 0, 0, 1, 1, ENTRIES(2)); /* no leader has that */
    uint64_t term;
    struct sh_bytes command;
    assert_true(sh_raft_entry(raft, 1, &term, &command) && term == 1);
}

static void malformed_entries_are_not_taken(void **state)
{
    (void)state;
    static uint8_t command[BODY_MAX];
    static const struct {
        uint8_t kind;
        uint32_t size, given;
        uint64_t voters, learners;
    } cases[] = {{0, 0, 0, 0, 0},   {4, 0, 0, 0, 0},   {1, 9, 8, 0, 0},   {1, 65537, 65537, 0, 0},
                 {3, 16, 16, 0, 0}, {3, 16, 16, 6, 2}, {3, 16, 16, 7, 0}, {3, 16, 16, 6, 1},
                 {3, 15, 15, 6, 8}, {3, 17, 17, 6, 8}};
    follow();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, 0);
        sh_put64(w, 0);
        sh_put64(w, 0);
        sh_put64(w, 1);
        sh_put32(w, 1);
        sh_put8(w, cases[i].kind);
        sh_put64(w, 1);
        sh_put32(w, cases[i].size);
        sh_store64(command, cases[i].voters);
        sh_store64(command + 8, cases[i].learners);
        sh_put_raw(w, sh_bytes_make(command, cases[i].given));
        send(2, SH_RAFT_APPEND, 0, 1);
        assert_true(sh_raft_last(raft) == 0 && raft->matched == 0);
    }
    entries(2, 0, 0, 0, 1, ENTRIES(2, 1)); /* terms do not fall */
    assert_int_equal(sh_raft_last(raft), 1);
    store();
    (void)answer_now(2);
    (void)body_begin(); /* half an append */
    sh_put64(&body_w, 0);
    send(2, SH_RAFT_APPEND, 0, 2);
    assert_false(answer_now(2).is_there);
}

/* More follows than it says: that is no entry. */
static void so_many_entries_as_it_says(void **state)
{
    (void)state;
    follow();
    struct sh_writer *w = body_begin();
    sh_put64(w, 0);
    sh_put64(w, 0);
    sh_put64(w, 0);
    sh_put64(w, 1);
    sh_put32(w, 1);
    for (unsigned i = 0; i < 2; i++) {
        sh_put8(w, SH_RAFT_COMMAND);
        sh_put64(w, 1);
        sh_put32(w, 0);
    }
    send(2, SH_RAFT_APPEND, 0, 1);
    assert_int_equal(sh_raft_last(raft), 1);
}

/* Once all is here that was committed with an entry of the leader's term. */
static void it_is_current_when_it_has_what_was_committed(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1, 1));
    assert_false(sh_raft_is_current(raft));
    entries(2, 2, 1, 2, 1, ENTRIES(2));
    assert_false(
        sh_raft_is_current(raft)); /* what was committed in its own term, it does not know */
    entries(2, 3, 2, 4, 1, none);
    assert_false(sh_raft_is_current(raft));
    entries(2, 3, 2, 3, 1, none);
    assert_true(sh_raft_is_current(raft));
}

/* --- Snapshots ----------------------------------------------------------------------------------------- */

static void a_snapshot_comes_in_pieces(void **state)
{
    (void)state;
    follow();
    snapshot(1, 10, 1, 8, 0, "abcd");
    assert_int_equal(wanted(), 4);
    assert_int_equal(sh_raft_commit(raft), 0);
    snapshot(1, 10, 1, 8, 0, "abcd"); /* once more */
    assert_int_equal(wanted(), 4);
    snapshot(1, 10, 1, 8, 5, "xyz"); /* one is missing */
    assert_int_equal(wanted(), 4);
    snapshot(1, 10, 1, 8, 4, "efgh");
    assert_int_equal(sh_raft_commit(raft), 10);
    assert_int_equal(sh_raft_applied(raft), 10);
    assert_true(taken_size == 8 && memcmp(taken, "abcdefgh", 8) == 0);
    store();
    assert_answer(true, false, 10);
    snapshot(1, 9, 1, 8, 0, "abcd"); /* it has more */
    assert_answer(true, false, 10);
}

/* Pieces of another snapshot do not go on with the one that is coming. */
static void each_snapshot_comes_from_its_beginning(void **state)
{
    (void)state;
    follow();
    snapshot(1, 10, 1, 8, 0, "abcd");
    snapshot(1, 20, 1, 8, 4, "efgh");
    assert_int_equal(wanted(), 0);
    snapshot(1, 20, 1, 8, 0, "abcd");
    snapshot(1, 20, 1, 12, 4, "efghijkl");
    assert_int_equal(wanted(), 0);
    assert_int_equal(sh_raft_commit(raft), 0);
}

/* One that the state machine does not take changes nothing, and comes anew. */
static void a_refused_snapshot_changes_nothing(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 1, 1, ENTRIES(1));
    store();
    (void)answer_now(2);
    refuses = true;
    snapshot(1, 10, 1, 4, 0, "abcd");
    assert_false(answer_now(2).is_there);
    assert_int_equal(sh_raft_commit(raft), 1);
    assert_int_equal(sh_raft_last(raft), 1);
    refuses = false;
    snapshot(1, 10, 1, 4, 0, "wxyz");
    assert_int_equal(sh_raft_commit(raft), 10);
    assert_memory_equal(taken, "wxyz", 4);
}

/* Entries that agree with a snapshot are committed up to it; those behind it stay. */
static void a_snapshot_of_what_is_here_is_not_taken(void **state)
{
    (void)state;
    follow();
    entries(1, 0, 0, 0, 1, ENTRIES(1, 1, 1));
    taken_size = 0;
    snapshot(1, 2, 1, 4, 0, "abcd");
    assert_int_equal(sh_raft_commit(raft), 2);
    assert_int_equal(sh_raft_applied(raft), 2);
    assert_int_equal(sh_raft_last(raft), 3);
    assert_int_equal(taken_size, 0);
    store();
    assert_answer(true, false, 3);
    entries(2, 9, 2, 0, 1, none);
    snapshot(2, 3, 2, 4, 0, "abcd"); /* but the third is another entry */
    assert_int_equal(taken_size, 4);
    uint64_t term;
    assert_true(sh_entries_term(&raft->log, 3, &term) && term == 2);
}

static void malformed_snapshots_are_not_taken(void **state)
{
    (void)state;
    static const struct {
        uint64_t index, voters, learners;
        uint32_t size, offset;
    } cases[] = {{10, 0, 0, 1, 0},
                 {10, 6, 2, 1, 0},
                 {10, 6, 0, (64u << 20) + 1, 0},
                 {10, 6, 0, 0, 0},
                 {10, 6, 0, 8, 8},
                 {10, 6, 0, 8, 9},
                 {10, 6, 0, 8, UINT32_MAX},
                 {UINT64_MAX / 2 + 1, 6, 0, 1, 0}};
    follow();
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, cases[i].index);
        sh_put64(w, 1);
        sh_put64(w, cases[i].voters);
        sh_put64(w, cases[i].learners);
        sh_put64(w, 7);
        sh_put32(w, cases[i].size);
        sh_put32(w, cases[i].offset);
        sh_put8(w, 'x');
        send(2, SH_RAFT_SNAPSHOT, 0, 1);
        assert_int_equal(sh_raft_commit(raft), 0);
        assert_null(raft->coming.bytes);
    }
    snapshot(1, 10, 1, SH_RAFT_SNAPSHOT_BYTES_MAX, 0, "x");
    assert_int_equal(wanted(), 1);
    struct sh_writer *w = body_begin(); /* half a head */
    sh_put64(w, 10);
    sh_put64(w, 1);
    sh_put64(w, 6);
    send(2, SH_RAFT_SNAPSHOT, 0, 1);
    assert_int_equal(sh_raft_commit(raft), 0);
}

int main(void)
{
    if (sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(what_is_stored_is_said),
        CASE(an_older_message_takes_nothing_back),
        CASE(what_is_cut_off_is_not_stored),
        CASE(a_snapshot_stores_no_entries),
        CASE(an_installed_snapshot_has_to_be_stored),
        CASE(another_leader_is_owed_nothing),
        CASE(a_full_journal_takes_nothing),
        CASE(it_says_where_the_leader_should_try),
        CASE(what_was_long_ago_agrees),
        CASE(the_committed_stays),
        CASE(malformed_entries_are_not_taken),
        CASE(so_many_entries_as_it_says),
        CASE(it_is_current_when_it_has_what_was_committed),
        CASE(a_snapshot_comes_in_pieces),
        CASE(each_snapshot_comes_from_its_beginning),
        CASE(a_refused_snapshot_changes_nothing),
        CASE(a_snapshot_of_what_is_here_is_not_taken),
        CASE(malformed_snapshots_are_not_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
