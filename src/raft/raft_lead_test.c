/* A leader that goes on too long, or gives up too soon: three servers whose messages this test
 * carries, and whose disks store at once, unless they stall. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "raft/raft_int.h"
#include "raft/raft_journal_test.h"

#define MS UINT64_C(1000000)
#define ELECTION (200 * MS)
#define HEARTBEAT (40 * MS)
#define SERVERS 3
#define HELD_MAX 256

struct held {
    uint8_t from;
    struct sh_raft_message *message;
};

static struct trio {
    struct sh_raft *rafts[SERVERS + 1]; /* by number */
    struct memory_journal journals[SERVERS + 1];
    bool stalls[SERVERS + 1]; /* the disk stores nothing */
    uint64_t now_ns;
    uint8_t leader;
    bool holds;  /* what is sent to the leader waits */
    uint8_t cut; /* what this one sends and gets is lost; 0: nobody */
    struct held held[HELD_MAX];
    size_t held_count;
} trio;

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

static void deliver(uint8_t from, struct sh_raft_message *message)
{
    sh_raft_receive(trio.rafts[message->to], trio.now_ns, from,
                    sh_bytes_make(message->bytes, message->size));
    free(message);
}

static unsigned carry_from(uint8_t from)
{
    struct sh_raft *raft = trio.rafts[from];
    struct sh_raft_message *message;
    unsigned work = 0;
    if (!trio.stalls[from])
        work += memory_journal_sync(&trio.journals[from], raft, trio.now_ns);
    while ((message = sh_raft_message_next(raft))) {
        work++;
        if (trio.cut && (from == trio.cut || message->to == trio.cut)) {
            free(message);
        } else if (trio.holds && message->to == trio.leader) {
            assert_true(trio.held_count < HELD_MAX);
            trio.held[trio.held_count++] = (struct held){from, message};
        } else {
            deliver(from, message);
        }
    }
    return work;
}

static void carry(void)
{
    unsigned work;
    do {
        work = 0;
        for (uint8_t i = 1; i <= SERVERS; i++)
            work += carry_from(i);
    } while (work);
}

/* Only the leader's time passes once there is one, so that nobody is elected in its place. */
static void run_for(uint64_t ns)
{
    for (uint64_t end_ns = trio.now_ns + ns; trio.now_ns < end_ns; trio.now_ns += 10 * MS) {
        for (uint8_t i = 1; i <= SERVERS; i++) {
            if (!trio.leader || i == trio.leader)
                sh_raft_tick(trio.rafts[i], trio.now_ns);
        }
        carry();
    }
}

static void trio_open(void)
{
    memset(&trio, 0, sizeof trio);
    trio.now_ns = 1000 * MS;
    for (uint8_t i = 1; i <= SERVERS; i++) {
        struct sh_raft_config config = {
            .server = i,
            .first = {.voters = 0xe},
            .election_ns = ELECTION,
            .heartbeat_ns = HEARTBEAT,
            .snapshot_entries = 100,
            .piece_bytes = 1000,
            .seed = i,
            .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL},
        };
        assert_int_equal(sh_raft_create(&config, &trio.rafts[i]), SHOAL_OK);
        memory_journal_open(&trio.journals[i], trio.rafts[i]);
        sh_raft_start(trio.rafts[i], trio.journals[i].journal, 0, UINT64_C(1) << 32 | i,
                      trio.now_ns);
    }
    for (unsigned i = 0; i < 100 && !trio.leader; i++) {
        run_for(10 * MS);
        for (uint8_t j = 1; j <= SERVERS; j++) {
            if (sh_raft_role(trio.rafts[j]) == SH_RAFT_LEADER)
                trio.leader = j;
        }
    }
    assert_true(trio.leader);
    run_for(2 * ELECTION);
}

static void release_held(void)
{
    trio.holds = false;
    for (size_t i = 0; i < trio.held_count; i++)
        deliver(trio.held[i].from, trio.held[i].message);
    trio.held_count = 0;
}

static void trio_close(void)
{
    release_held();
    for (uint8_t i = 1; i <= SERVERS; i++) {
        memory_journal_close(&trio.journals[i]);
        trio.journals[i].disk->ops->destroy(trio.journals[i].disk);
        sh_raft_destroy(trio.rafts[i]);
    }
}

/* It finds answers of before when it goes on, and nobody answers any more: it does not lead on. */
static void old_answers(void **state)
{
    (void)state;
    trio_open();
    trio.holds = true;
    run_for(2 * HEARTBEAT);
    assert_true(trio.held_count > 0);
    trio.now_ns += 10 * ELECTION;
    release_held();
    trio.holds = true;
    sh_raft_tick(trio.rafts[trio.leader], trio.now_ns);
    assert_int_not_equal(sh_raft_role(trio.rafts[trio.leader]), SH_RAFT_LEADER);
    trio_close();
}

/* Slow answers keep it in office. */
static void slow_answers(void **state)
{
    (void)state;
    trio_open();
    for (unsigned i = 0; i < 20; i++) {
        struct held before[HELD_MAX];
        size_t count = trio.held_count;
        memcpy(before, trio.held, sizeof before);
        trio.held_count = 0;
        trio.holds = true;
        run_for(70 * MS);
        for (size_t j = 0; j < count; j++)
            deliver(before[j].from, before[j].message);
        assert_int_equal(sh_raft_role(trio.rafts[trio.leader]), SH_RAFT_LEADER);
    }
    trio_close();
}

static uint8_t leader_now(void)
{
    uint8_t found = 0;
    for (uint8_t i = 1; i <= SERVERS; i++) {
        if (i != trio.cut && sh_raft_role(trio.rafts[i]) == SH_RAFT_LEADER)
            found = i;
    }
    return found;
}

/* A leader takes itself out, with one of two others dead, and is cut off before anybody else has
 * that: it no longer leads, but may not go, for without it nobody would ever be elected. */
static void removed_before_others_know(void **state)
{
    (void)state;
    trio_open();
    uint8_t old = trio.leader, left = 2;
    while (left == old)
        left++;
    uint8_t dead = (uint8_t)(6 - old - left);
    struct sh_raft_members members = {.voters = 0xe & ~(UINT64_C(1) << dead)};
    assert_int_equal(sh_raft_members_change(trio.rafts[old], members), SHOAL_OK);
    run_for(4 * HEARTBEAT);
    assert_false(sh_raft_needs(trio.rafts[old], dead));
    trio.cut = old;
    members.voters = UINT64_C(1) << left;
    assert_int_equal(sh_raft_members_change(trio.rafts[old], members), SHOAL_OK);
    run_for(4 * ELECTION);
    assert_int_not_equal(sh_raft_role(trio.rafts[old]), SH_RAFT_LEADER);
    assert_true(sh_raft_needs(trio.rafts[old], old));
    trio.cut = dead;
    trio.leader = 0;
    for (unsigned i = 0; i < 100 && leader_now() != left; i++)
        run_for(ELECTION);
    assert_int_equal(leader_now(), left);
    run_for(ELECTION);
    assert_false(sh_raft_needs(trio.rafts[left], old));
    assert_false(sh_raft_needs(trio.rafts[old], old));
    trio_close();
}

/* --- Votes ----------------------------------------------------------------------------------- */

static uint8_t other_than(uint8_t one, uint8_t two)
{
    uint8_t found = 1;
    while (found == one || found == two)
        found++;
    return found;
}

/* A server is asked for its vote by one whose log ends so. */
static void vote_ask_at(uint8_t server, uint8_t from, uint64_t term, uint64_t last,
                        uint64_t last_term)
{
    uint8_t bytes[SH_RAFT_HEAD_BYTES + 16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, SH_RAFT_VOTE_ASK);
    sh_put8(&w, 0);
    sh_put16(&w, 0);
    sh_put64(&w, term);
    sh_put64(&w, trio.rafts[from]->log_id);
    sh_put64(&w, trio.rafts[from]->life);
    sh_put64(&w, last);
    sh_put64(&w, last_term);
    sh_raft_receive(trio.rafts[server], trio.now_ns, from, sh_bytes_make(bytes, sizeof bytes));
}

/* By one whose log is longer than any. */
static void vote_ask(uint8_t server, uint8_t from, uint64_t term)
{
    vote_ask_at(server, from, term, 1000, term - 1);
}

/* Takes all that a server sends now: whether a vote for `to` is among it. */
static bool votes_for(uint8_t server, uint8_t to)
{
    struct sh_raft_message *message;
    bool is_there = false;
    while ((message = sh_raft_message_next(trio.rafts[server]))) {
        is_there |= message->to == to && message->bytes[0] == SH_RAFT_VOTE_ANSWER &&
                    message->bytes[1] == SH_RAFT_YES;
        free(message);
    }
    return is_there;
}

static void store_all(uint8_t server)
{
    (void)memory_journal_sync(&trio.journals[server], trio.rafts[server], trio.now_ns);
}

/* A server knows the term already, and has stored it: its vote is a change of its own, and must be
 * on the disk before anybody hears of it. */
static void votes_are_stored_first(void **state)
{
    (void)state;
    trio_open();
    uint8_t server = other_than(trio.leader, 0), asks = other_than(server, trio.leader);
    uint64_t term = sh_raft_term(trio.rafts[server]) + 5;
    trio.now_ns += 10 * ELECTION; /* the leader is not heard any more */
    /* One whose log is empty asks first: it is refused, but the term is learnt. */
    vote_ask_at(server, trio.leader, term, 0, 0);
    store_all(server);
    assert_false(votes_for(server, trio.leader));
    assert_int_equal(sh_raft_term(trio.rafts[server]), term);
    vote_ask(server, asks, term);
    assert_false(votes_for(server, asks));
    store_all(server);
    assert_true(votes_for(server, asks));
    /* And there is one vote in a term. */
    vote_ask(server, trio.leader, term);
    store_all(server);
    assert_false(votes_for(server, trio.leader));
    trio_close();
}

/* Who was cut off, or has been removed, asks for votes in a higher term: as long as the leader is
 * heard nobody listens, or that server alone could end each term. */
static void a_leader_that_is_heard_stays(void **state)
{
    (void)state;
    trio_open();
    uint8_t server = other_than(trio.leader, 0), asks = other_than(server, trio.leader);
    run_for(2 * HEARTBEAT);
    uint64_t term = sh_raft_term(trio.rafts[server]);
    vote_ask(server, asks, term + 3);
    vote_ask(trio.leader, asks, term + 3);
    assert_int_equal(sh_raft_term(trio.rafts[server]), term);
    assert_int_equal(sh_raft_role(trio.rafts[trio.leader]), SH_RAFT_LEADER);
    carry();
    assert_int_equal(sh_raft_term(trio.rafts[trio.leader]), term);
    trio_close();
}

/* A server whose disk is empty may have voted in its earlier life: it says nothing until the others
 * have told what it may have promised. */
static void the_forgetful_do_not_vote(void **state)
{
    (void)state;
    trio_open();
    uint8_t server = other_than(trio.leader, 0), asks = other_than(server, trio.leader);
    uint64_t term = sh_raft_term(trio.rafts[server]);
    struct sh_raft_config config = trio.rafts[server]->config;
    struct memory_journal *memory = &trio.journals[server];
    memory_journal_close(memory);
    memory->disk->ops->destroy(memory->disk);
    sh_raft_destroy(trio.rafts[server]);
    assert_int_equal(sh_raft_create(&config, &trio.rafts[server]), SHOAL_OK);
    memory_journal_open(memory, trio.rafts[server]);
    sh_raft_start(trio.rafts[server], memory->journal, 0, UINT64_C(1) << 32 | 77, trio.now_ns);
    assert_true(sh_raft_is_recovering(trio.rafts[server]));
    for (uint64_t ahead = 0; ahead < 3; ahead++) {
        vote_ask(server, asks, term + ahead);
        store_all(server);
        assert_false(votes_for(server, asks));
    }
    trio_close();
}

/* The disks of both followers stall while an entry is on its way to them: their answers to the
 * leader's rounds overtake the entry, and prove that it leads. The entry is committed without
 * another word of the leader's once one of the disks goes on. */
static void answers_overtake_entries(void **state)
{
    (void)state;
    trio_open();
    struct sh_raft *leader = trio.rafts[trio.leader];
    uint64_t index, term, commit = sh_raft_commit(leader);
    uint8_t follower = trio.leader == 1 ? 2 : 1;
    for (uint8_t i = 1; i <= SERVERS; i++)
        trio.stalls[i] = i != trio.leader;
    assert_int_equal(sh_raft_propose(leader, sh_bytes_text("entry"), &index, &term), SHOAL_OK);
    for (unsigned i = 0; i < 50; i++) {
        run_for(ELECTION);
        assert_int_equal(sh_raft_role(leader), SH_RAFT_LEADER);
        assert_true(sh_raft_led_ns(leader, trio.now_ns) + 2 * HEARTBEAT > trio.now_ns);
    }
    carry();
    assert_int_equal(sh_raft_commit(leader), commit);
    trio.stalls[follower] = false;
    carry();
    assert_int_equal(sh_raft_commit(leader), index);
    trio_close();
}

/* A vote never overtakes the disk: with both others' disks stalled, nobody is elected. */
static void votes_wait_for_the_disk(void **state)
{
    (void)state;
    trio_open();
    uint8_t old = trio.leader, candidate = old == 1 ? 2 : 1, voter = (uint8_t)(6 - old - candidate);
    trio.cut = old;
    trio.leader = candidate; /* only its time passes */
    trio.stalls[voter] = true;
    trio.now_ns += 4 * ELECTION;
    run_for(10 * ELECTION);
    assert_int_not_equal(sh_raft_role(trio.rafts[candidate]), SH_RAFT_LEADER);
    assert_true(sh_raft_term(trio.rafts[candidate]) >
                1); /* the polls, which promise nothing, won */
    trio.stalls[voter] = false;
    run_for(10 * ELECTION);
    assert_int_equal(sh_raft_role(trio.rafts[candidate]), SH_RAFT_LEADER);
    trio_close();
}

/* An APPEND of the leader's, as raft_lead.c writes it, with `count` entries behind `before`. */
static void append_send(uint8_t to, uint64_t before, uint64_t commit, uint32_t count)
{
    struct sh_raft *lead = trio.rafts[trio.leader];
    struct sh_writer w = sh_raft_message_begin(lead, to, SH_RAFT_APPEND, 0, lead->term,
                                               36 + (size_t)count * 13, lead->promise_lsn);
    sh_put64(&w, before);
    sh_put64(&w, lead->term);
    sh_put64(&w, commit);
    sh_put64(&w, lead->round);
    sh_put32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        sh_put8(&w, SH_RAFT_COMMAND);
        sh_put64(&w, lead->term);
        sh_put32(&w, 0);
    }
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    carry();
}

/* A follower has more than the leader's message confirms: that is not committed, however much the
 * leader has committed. */
static void the_unconfirmed_is_not_committed(void **state)
{
    (void)state;
    trio_open();
    uint8_t to = trio.leader % SERVERS + 1;
    struct sh_raft *follower = trio.rafts[to];
    uint64_t last = sh_raft_last(follower);
    assert_int_equal(sh_raft_commit(follower), last);
    trio.holds = true; /* the leader knows nothing of these entries */
    append_send(to, last, last, 2);
    assert_int_equal(sh_raft_last(follower), last + 2);
    append_send(to, last, last + 2, 0);
    assert_int_equal(sh_raft_commit(follower), last);
    append_send(to, last, last + 2, 1);
    assert_int_equal(sh_raft_commit(follower), last + 1);
    append_send(to, last, last + 1, 2);
    assert_int_equal(sh_raft_commit(follower), last + 1);
    while (trio.held_count)
        free(trio.held[--trio.held_count].message);
    trio_close();
}

/* A follower's answer in that life: its log ends before `index`. What the leader sends behind it: the index
 * before its entries. */
static uint64_t appended_after(uint8_t from, uint64_t life, uint64_t index)
{
    struct sh_raft *lead = trio.rafts[trio.leader];
    struct sh_raft_message *message;
    uint64_t before = UINT64_MAX;
    uint8_t bytes[44] = {SH_RAFT_APPEND_ANSWER};
    sh_store64(bytes + 4, lead->term);
    sh_store64(bytes + 12, lead->log_id);
    sh_store64(bytes + 20, life);
    sh_store64(bytes + 28, index);
    sh_raft_receive(lead, trio.now_ns, from, sh_bytes_make(bytes, sizeof bytes));
    while ((message = sh_raft_message_next(lead))) {
        if (message->to == from && message->bytes[0] == SH_RAFT_APPEND)
            before = sh_load64(message->bytes + 28);
        free(message);
    }
    return before;
}

/* A folder that lacks what its superpeer has confirmed is brought up, as another life's; of the same life
 * such an answer was overtaken by newer ones. */
static void another_life_is_brought_up(void **state)
{
    (void)state;
    trio_open();
    uint8_t from = trio.leader % SERVERS + 1;
    uint64_t index, term, life = trio.rafts[from]->life;
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(
            sh_raft_propose(trio.rafts[trio.leader], sh_bytes_text("entry"), &index, &term),
            SHOAL_OK);
    carry();
    assert_int_equal(sh_raft_commit(trio.rafts[trio.leader]), index);
    assert_true(appended_after(from, life, 2) == UINT64_MAX);
    assert_int_equal(appended_after(from, life + (UINT64_C(1) << 32) + 7, 2), 1);
    assert_int_equal(sh_raft_commit(trio.rafts[trio.leader]), index);
    trio_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(votes_are_stored_first),
        cmocka_unit_test(a_leader_that_is_heard_stays),
        cmocka_unit_test(the_forgetful_do_not_vote),
        cmocka_unit_test(old_answers),
        cmocka_unit_test(slow_answers),
        cmocka_unit_test(removed_before_others_know),
        cmocka_unit_test(answers_overtake_entries),
        cmocka_unit_test(votes_wait_for_the_disk),
        cmocka_unit_test(the_unconfirmed_is_not_committed),
        cmocka_unit_test(another_life_is_brought_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
