/* What a node serves, who is waited for before chunks are taken away, and results that travel. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/assert.h"
#include "node/holdings.h"
#include "node/outcomes.h"

static const shoal_nid self = {70}, other = {71};

static enum shoal_err look(const struct sh_holdings *holdings, shoal_nid creator, uint64_t local,
                           bool writes)
{
    sh_lid lid = {0};
    enum shoal_err err =
        sh_holdings_look(holdings, self, shoal_cid_make(creator, local), writes, &lid);
    if (err == SHOAL_OK)
        assert_int_equal(lid.v, creator.v == self.v ? local : shoal_cid_make(creator, local).v);
    return err;
}

static void set(struct sh_holdings *holdings, shoal_nid creator, uint64_t first, uint64_t last,
                enum sh_holding what)
{
    sh_holdings_set(holdings, shoal_cid_make(creator, first), shoal_cid_make(creator, last), what,
                    what == SH_HOLDING_AWAY ? other : SHOAL_NID_NONE);
}

static void states(void **state)
{
    (void)state;
    struct sh_holdings holdings;
    assert_int_equal(sh_holdings_init(&holdings), SHOAL_OK);
    assert_int_equal(look(&holdings, self, 5, true), SHOAL_OK);
    assert_int_equal(look(&holdings, other, 5, false), SHOAL_ENOTOWNER);
    set(&holdings, self, 5, 9, SH_HOLDING_NO_WRITES);
    assert_int_equal(look(&holdings, self, 5, false), SHOAL_OK);
    assert_int_equal(look(&holdings, self, 9, true), SHOAL_EBUSY);
    assert_int_equal(look(&holdings, self, 10, true), SHOAL_OK);
    set(&holdings, self, 5, 9, SH_HOLDING_NOTHING);
    assert_int_equal(look(&holdings, self, 5, false), SHOAL_EBUSY);
    set(&holdings, self, 5, 9, SH_HOLDING_AWAY);
    assert_int_equal(look(&holdings, self, 5, false), SHOAL_ENOTOWNER);
    shoal_cid last;
    shoal_nid nid;
    assert_int_equal(sh_holdings_find(&holdings, shoal_cid_make(self, 6), &last, &nid),
                     SH_HOLDING_AWAY);
    assert_int_equal(last.v, shoal_cid_make(self, 9).v);
    assert_int_equal(nid.v, other.v);
    assert_int_equal(sh_holdings_find(&holdings, shoal_cid_make(self, 1), &last, &nid),
                     SH_HOLDING_PLAIN);
    assert_int_equal(last.v, shoal_cid_make(self, 4).v);
    assert_int_equal(sh_holdings_find(&holdings, shoal_cid_make(self, 10), &last, &nid),
                     SH_HOLDING_PLAIN);
    assert_int_equal(last.v, shoal_cid_make(self, SHOAL_LOCAL_ID_MAX).v);
    set(&holdings, self, 5, 9, SH_HOLDING_PLAIN);
    assert_int_equal(look(&holdings, self, 5, true), SHOAL_OK);
    set(&holdings, other, 1, 3, SH_HOLDING_HELD);
    assert_int_equal(look(&holdings, other, 3, true), SHOAL_OK);
    assert_int_equal(look(&holdings, other, 4, true), SHOAL_ENOTOWNER);
    struct sh_range range;
    enum sh_holding what;
    assert_true(sh_holdings_next(&holdings, (shoal_cid){0}, &range, &what, &nid));
    assert_int_equal(what, SH_HOLDING_HELD);
    assert_int_equal(range.first.v, shoal_cid_make(other, 1).v);
    range.last.v++;
    assert_false(sh_holdings_next(&holdings, range.last, &range, &what, &nid));
    assert_int_equal(look(&holdings, self, 0, true), SHOAL_OK); /* for the names of a dump */
    assert_int_equal(look(&holdings, other, 0, true), SHOAL_ENOTOWNER);
    /* A node that has not joined serves nothing. */
    sh_lid lid;
    assert_int_equal(
        sh_holdings_look(&holdings, SHOAL_NID_NONE, shoal_cid_make(self, 1), false, &lid),
        SHOAL_ENOTOWNER);
    sh_holdings_destroy(&holdings);
}

static void waits_for_those_inside(void **state)
{
    (void)state;
    struct sh_holdings holdings;
    assert_int_equal(sh_holdings_init(&holdings), SHOAL_OK);
    unsigned early = sh_holdings_enter(&holdings);
    uint64_t wait = sh_holdings_settle(&holdings);
    assert_false(sh_holdings_settled(&holdings, wait));
    unsigned late = sh_holdings_enter(&holdings); /* who comes later sees the change */
    assert_false(sh_holdings_settled(&holdings, wait));
    sh_holdings_leave(&holdings, early);
    (void)sh_holdings_settled(&holdings, wait);
    sh_holdings_leave(&holdings, late);
    assert_true(sh_holdings_settled(&holdings, wait));
    assert_true(sh_holdings_settled(&holdings, wait));
    sh_holdings_destroy(&holdings);
}

/* One that has read the phase, and counts itself when it has been turned. */
static void waits_for_a_late_one(void **state)
{
    (void)state;
    for (unsigned phase = 0; phase < 2; phase++) {
        struct sh_holdings holdings;
        assert_int_equal(sh_holdings_init(&holdings), SHOAL_OK);
        atomic_fetch_add(&holdings.inside[phase], 1);
        uint64_t wait = sh_holdings_settle(&holdings);
        for (unsigned i = 0; i < 3; i++)
            assert_false(sh_holdings_settled(&holdings, wait));
        sh_holdings_leave(&holdings, phase);
        assert_true(sh_holdings_settled(&holdings, wait));
        sh_holdings_destroy(&holdings);
    }
}

/* Several changes are waited for at a time, each for those that entered before it. */
static void waits_for_several(void **state)
{
    (void)state;
    struct sh_holdings holdings;
    unsigned inside[3];
    uint64_t waits[3];
    assert_int_equal(sh_holdings_init(&holdings), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++) {
        inside[i] = sh_holdings_enter(&holdings);
        waits[i] = sh_holdings_settle(&holdings);
    }
    for (unsigned i = 0; i < 3; i++) {
        for (unsigned k = i; k < 3; k++)
            assert_false(sh_holdings_settled(&holdings, waits[k]));
        sh_holdings_leave(&holdings, inside[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        assert_true(sh_holdings_settled(&holdings, waits[i]));
    sh_holdings_destroy(&holdings);
}

/* Threads that look and then act, as pooled requests do; the changer refuses them and then takes
 * away what they act on. */
struct contest {
    struct sh_holdings holdings;
    _Atomic bool is_there, is_over;
};

static void *act(void *arg)
{
    struct contest *contest = arg;
    sh_lid lid;
    while (!atomic_load(&contest->is_over)) {
        unsigned entered = sh_holdings_enter(&contest->holdings);
        if (sh_holdings_look(&contest->holdings, self, shoal_cid_make(self, 1), true, &lid) ==
            SHOAL_OK)
            SH_ASSERT(atomic_load(&contest->is_there));
        sh_holdings_leave(&contest->holdings, entered);
    }
    return NULL;
}

static void contended(void **state)
{
    (void)state;
    static struct contest contest;
    pthread_t threads[3];
    assert_int_equal(sh_holdings_init(&contest.holdings), SHOAL_OK);
    atomic_store(&contest.is_there, true);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, act, &contest), 0);
    for (unsigned round = 0; round < 300; round++) {
        set(&contest.holdings, self, 1, 1, SH_HOLDING_NO_WRITES);
        uint64_t wait = sh_holdings_settle(&contest.holdings);
        if (round % 3 == 0) /* another one's, before */
            (void)sh_holdings_settled(&contest.holdings, wait - 1);
        while (!sh_holdings_settled(&contest.holdings, wait))
            sched_yield();
        atomic_store(&contest.is_there, false);
        sched_yield();
        atomic_store(&contest.is_there, true);
        set(&contest.holdings, self, 1, 1, SH_HOLDING_PLAIN);
    }
    atomic_store(&contest.is_over, true);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    sh_holdings_destroy(&contest.holdings);
}

static void count_outcome(void *arg, const struct sh_outcome *outcome)
{
    (void)outcome;
    ++*(unsigned *)arg;
}

static void outcomes(void **state)
{
    (void)state;
    struct sh_outcomes *kept;
    assert_int_equal(sh_outcomes_create(&kept), SHOAL_OK);
    for (uint64_t i = 1; i <= 1000; i++) {
        struct sh_outcome outcome = {
            .client = 7 + i % 3, .number = i, .nid = self, .value = i * i, .cid = i};
        assert_int_equal(sh_outcomes_add(kept, &outcome, 1000 + i), SHOAL_OK);
        outcome.value = 0; /* the first one counts */
        assert_int_equal(sh_outcomes_add(kept, &outcome, 1000 + i), SHOAL_OK);
    }
    assert_int_equal(sh_outcomes_room(kept, 2000), SH_OUTCOMES_MAX - 1000);
    const struct sh_outcome *found = sh_outcomes_find(kept, 7 + 500 % 3, self, 500);
    assert_non_null(found);
    assert_int_equal(found->value, 250000);
    assert_null(sh_outcomes_find(kept, 7 + 501 % 3, self, 500));
    assert_null(sh_outcomes_find(kept, 7 + 500 % 3, other, 500));
    unsigned count = 0;
    sh_outcomes_each(kept, 10, 19, count_outcome, &count);
    assert_int_equal(count, 10);
    /* The oldest are forgotten when their time is over. */
    assert_int_equal(sh_outcomes_room(kept, 1000 + 600 + SH_ONCE_KEEP_NS), SH_OUTCOMES_MAX - 400);
    count = 0;
    sh_outcomes_each(kept, 595, 604, count_outcome, &count);
    assert_int_equal(count, 4);
    assert_null(sh_outcomes_find(kept, 7 + 500 % 3, self, 500));
    assert_non_null(sh_outcomes_find(kept, 7 + 601 % 3, self, 601));
    uint8_t bytes[SH_OUTCOME_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_outcome out = {1, 2, self, SHOAL_ESIZE, 3, 4, false}, in;
    sh_outcome_put(&w, &out);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
    assert_true(sh_outcome_get(&r, &in) && sh_reader_done(&r));
    assert_true(in.client == 1 && in.number == 2 && in.nid.v == self.v && in.err == SHOAL_ESIZE &&
                in.value == 3 && in.cid == 4);
    bytes[19] = 0x7f; /* no such error */
    r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
    assert_false(sh_outcome_get(&r, &in));
    sh_outcomes_destroy(kept);
}

/* --- Who hears of it --------------------------------------------------------------------------- */

struct heard {
    shoal_cid first, last;
    enum sh_holding what;
    unsigned count;
};

static void on_change(void *arg, shoal_cid first, shoal_cid last, enum sh_holding what)
{
    struct heard *heard = arg;
    *heard = (struct heard){first, last, what, heard->count + 1};
}

static bool serves(const struct sh_holdings *holdings, shoal_nid creator, uint64_t local,
                   uint64_t last_local)
{
    shoal_cid last;
    bool is_served = sh_holdings_serves(holdings, self, shoal_cid_make(creator, local), &last);
    assert_int_equal(last.v, shoal_cid_make(creator, last_local).v);
    return is_served;
}

static void watched(void **state)
{
    (void)state;
    struct sh_holdings holdings;
    struct heard heard = {0};
    assert_int_equal(sh_holdings_init(&holdings), SHOAL_OK);
    sh_holdings_watch(&holdings, &heard, on_change);
    set(&holdings, self, 5, 9, SH_HOLDING_AWAY);
    assert_int_equal(heard.count, 1);
    assert_int_equal(heard.what, SH_HOLDING_AWAY);
    assert_int_equal(heard.first.v, shoal_cid_make(self, 5).v);
    assert_int_equal(heard.last.v, shoal_cid_make(self, 9).v);
    set(&holdings, other, 1, 100, SH_HOLDING_HELD);
    set(&holdings, other, 10, 19, SH_HOLDING_NO_WRITES);
    assert_int_equal(heard.count, 3);
    assert_int_equal(heard.what, SH_HOLDING_NO_WRITES);
    /* What stands still is not served, for as long as that lasts. */
    assert_true(serves(&holdings, self, 1, 4));
    assert_false(serves(&holdings, self, 5, 9));
    assert_true(serves(&holdings, self, 10, SHOAL_LOCAL_ID_MAX));
    assert_true(serves(&holdings, other, 1, 9));
    assert_false(serves(&holdings, other, 10, 19));
    assert_true(serves(&holdings, other, 20, 100));
    assert_false(serves(&holdings, other, 101, SHOAL_LOCAL_ID_MAX));
    sh_holdings_destroy(&holdings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states),
        cmocka_unit_test(waits_for_those_inside),
        cmocka_unit_test(waits_for_a_late_one),
        cmocka_unit_test(waits_for_several),
        cmocka_unit_test(contended),
        cmocka_unit_test(outcomes),
        cmocka_unit_test(watched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
