/* Leases and failures among superpeers that share a registry, rule by rule. */
#include "superpeer/superpeer_rig_test.h"

static uint64_t epoch_of(void)
{
    return sh_registry_view(superpeer.registry)->epoch;
}

/* Something has changed in the registry, for the first or the second time. */
static void epoch_raise(void)
{
    sh_registry_fail(superpeer.registry, peers[sh_registry_watches(superpeer.registry, peers[1])],
                     "a test");
}

static bool was_told(shoal_nid nid)
{
    for (unsigned i = 0; i < heard_there.count; i++) {
        if (heard_there.nids[i] == nid.v)
            return true;
    }
    return false;
}

/* --- What leases are ---------------------------------------------------------------------------- */

static void a_leader_grants_from_when_it_surely_led(void **state)
{
    (void)state;
    lead();
    assert_int_equal(lease_of(peers[0]), LEASE);
    now_ns += ELECTION;
    assert_int_equal(lease_of(peers[0]), LEASE - ELECTION);
    now_ns += 1; /* another one may have been elected */
    assert_int_equal(lease_of(peers[0]), 0);
}

static void who_is_down_or_doomed_gets_none(void **state)
{
    (void)state;
    lead();
    sh_shared_doom(&superpeer, peers[0]);
    assert_int_equal(lease_of(peers[0]), 0);
    assert_int_equal(lease_of(peers[1]), LEASE);
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    assert_int_equal(lease_of(peers[1]), 0);
    /* Doomed is who a leader is about to call failed: not for longer than it leads. */
    sh_shared_lease_step(&superpeer, now_ns);
    assert_true(sh_shared_is_doomed(&superpeer, peers[0]));
    agreed.leads = false;
    sh_shared_lease_step(&superpeer, now_ns);
    assert_false(sh_shared_is_doomed(&superpeer, peers[0]));
}

/* Two clocks may differ by a sixteenth of failure_ns. */
static void a_lease_is_over_later_than_the_node_thinks(void **state)
{
    (void)state;
    sh_registry_heard(superpeer.registry, now_ns, peers[0]);
    now_ns += LEASE + DRIFT - 1;
    assert_false(sh_superpeer_lease_is_over(&superpeer, peers[0], now_ns));
    now_ns += 1;
    assert_true(sh_superpeer_lease_is_over(&superpeer, peers[0], now_ns));
}

/* --- Reports to the leader -------------------------------------------------------------------- */

/* Tells the other superpeer, which leads, that the peers were heard. */
static void report_both(void)
{
    sh_superpeer_shared_heard(&superpeer, peers[0], 0);
    sh_superpeer_shared_heard(&superpeer, peers[1], 0);
    sh_shared_report(&superpeer, now_ns);
    carry();
}

static void a_follower_grants_from_its_report(void **state)
{
    (void)state;
    heard_there.is_silent = true;
    heard_there.refuse = peers[1].v;
    report_both();
    assert_int_equal(heard_there.reports, 1);
    assert_true(was_told(peers[0]) && was_told(peers[1]) && was_told((shoal_nid){OWN}));
    assert_int_equal(lease_of(peers[0]), 0); /* not yet */
    now_ns += 30 * MS;
    answer_there();
    carry();
    assert_int_equal(lease_of(peers[0]), LEASE - 30 * MS);
    assert_int_equal(lease_of(peers[1]), 0);
    now_ns += LEASE;
    assert_int_equal(lease_of(peers[0]), 0);
    /* What was told once is not told again. */
    heard_there.is_silent = false;
    sh_shared_report(&superpeer, now_ns);
    carry();
    assert_int_equal(heard_there.reports, 2);
    assert_int_equal(heard_there.count, 1);
    assert_int_equal(lease_of(peers[0]), 0);
}

/* The superpeer's own lease is for the ring. The leader may have called it failed, given its shards to
 * others, and heard it again: it must know of that before it answers for them. */
static void the_own_lease_waits_for_the_leaders_registry(void **state)
{
    (void)state;
    heard_there.epoch = epoch_of() + 1;
    sh_shared_report(&superpeer, now_ns);
    carry();
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), 0);
    now_ns += 20 * MS;
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), 0);
    epoch_raise();
    assert_int_equal(epoch_of(), heard_there.epoch);
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), LEASE - 20 * MS);
    /* Before the epoch of a later offer the former one counts. */
    heard_there.epoch = epoch_of() + 1;
    sh_shared_report(&superpeer, now_ns);
    carry();
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), LEASE - 20 * MS);
    epoch_raise();
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), LEASE);
    now_ns += LEASE;
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), 0);
}

static void who_is_refused_has_no_lease_of_its_own(void **state)
{
    (void)state;
    heard_there.refuse = OWN;
    heard_there.epoch = epoch_of();
    sh_shared_report(&superpeer, now_ns);
    carry();
    assert_int_equal(heard_there.reports, 1);
    assert_int_equal(sh_shared_own_lease_ns(&superpeer, now_ns), 0);
}

/* Its request to join was before whatever the leader decides of a peer since. */
static void a_join_counts_from_its_request(void **state)
{
    (void)state;
    uint64_t asked_ns = now_ns;
    now_ns += 50 * MS;
    sh_shared_joined(&superpeer, peers[0], asked_ns);
    assert_int_equal(lease_of(peers[0]), LEASE - 50 * MS);
    report_both();
    assert_int_equal(lease_of(peers[0]), LEASE);
    sh_shared_joined(&superpeer, peers[0], asked_ns); /* done again: the report was later */
    assert_int_equal(lease_of(peers[0]), LEASE);
    sh_shared_joined(&superpeer, (shoal_nid){THIRD}, now_ns);
    assert_int_equal(lease_of((shoal_nid){THIRD}), 0);
}

/* Where the leader does not see each join, it may just be failing the node. */
static void a_join_that_the_leader_may_miss_counts_for_nothing(void **state)
{
    (void)state;
    struct sh_consensus_ops not_led = ops;
    not_led.is_led = false;
    agreed.base.ops = &not_led;
    sh_shared_joined(&superpeer, peers[0], now_ns);
    assert_int_equal(lease_of(peers[0]), 0);
}

/* --- The leader's answers ---------------------------------------------------------------------- */

struct told {
    struct sh_request request;
    bool is_done;
    enum shoal_err err;
    uint64_t epoch;
    uint16_t refused, nids[8];
};

static void told_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct told *told = request->arg;
    told->is_done = true;
    told->err = err;
    if (err)
        return;
    told->epoch = sh_get64(payload);
    told->refused = sh_get16(payload);
    assert_true(told->refused <= 8);
    for (unsigned i = 0; i < told->refused; i++)
        told->nids[i] = sh_get16(payload);
    assert_true(sh_reader_done(payload));
}

/* The other superpeer says that it has heard those nodes. */
static struct told tell(const uint16_t *nids, uint16_t count)
{
    struct told told = {.request = {.done = told_done, .timeout_ns = 10 * S}};
    struct sh_out out;
    told.request.arg = &told;
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_HEARD, 10 + 2u * count,
                                    &told.request, &out),
                     SHOAL_OK);
    sh_put64(&out.w, 0);
    sh_put16(&out.w, count);
    for (unsigned i = 0; i < count; i++)
        sh_put16(&out.w, nids[i]);
    sh_msg_end(other, &out);
    carry();
    assert_true(told.is_done);
    return told;
}

static bool is_refused(const struct told *told, uint16_t nid)
{
    for (unsigned i = 0; i < told->refused; i++) {
        if (told->nids[i] == nid)
            return true;
    }
    return false;
}

static void the_leader_consents_to_whom_it_may_not_fail(void **state)
{
    (void)state;
    const uint16_t nids[] = {OTHER, THIRD, peers[0].v, peers[1].v};
    lead();
    agreed.heard_ns[OTHER] = agreed.heard_ns[THIRD] = now_ns;
    sh_shared_doom(&superpeer, peers[1]);
    struct told told = tell(nids, 4);
    assert_int_equal(told.err, SHOAL_OK);
    assert_int_equal(told.epoch, epoch_of());
    assert_false(is_refused(&told, OTHER) || is_refused(&told, peers[0].v));
    /* Nobody speaks for another superpeer. */
    assert_true(is_refused(&told, THIRD) && is_refused(&told, peers[1].v));
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    sh_shared_doom(&superpeer, (shoal_nid){OTHER});
    told = tell(nids, 4);
    assert_true(is_refused(&told, OTHER) && is_refused(&told, peers[0].v));
}

/* A superpeer counts as silent from when Raft heard it: its lease is not to be longer than that. */
static void a_superpeer_is_granted_while_it_is_heard(void **state)
{
    (void)state;
    const uint16_t nids[] = {OTHER};
    lead();
    agreed.heard_ns[OTHER] = now_ns - ELECTION;
    struct told told = tell(nids, 1);
    assert_int_equal(told.refused, 0);
    agreed.heard_ns[OTHER]--;
    told = tell(nids, 1);
    assert_int_equal(told.refused, 1);
    agreed.heard_ns[OTHER] = 0;
    told = tell(nids, 1);
    assert_int_equal(told.refused, 1);
}

static void who_is_not_sure_to_lead_consents_to_nothing(void **state)
{
    (void)state;
    const uint16_t nids[] = {peers[0].v};
    assert_int_equal(tell(nids, 1).err, SHOAL_EBUSY);
    lead();
    agreed.led_ns = 0; /* it has not applied yet what was decided before */
    sh_shared_lease_step(&superpeer, now_ns);
    assert_int_equal(tell(nids, 1).err, SHOAL_EBUSY);
    agreed.led_ns = now_ns - ELECTION;
    sh_shared_lease_step(&superpeer, now_ns);
    assert_int_equal(tell(nids, 1).err, SHOAL_OK);
    agreed.led_ns--;
    sh_shared_lease_step(&superpeer, now_ns);
    assert_int_equal(tell(nids, 1).err, SHOAL_EBUSY);
    agreed.led_ns = now_ns;
    sh_shared_lease_step(&superpeer, now_ns);
    agreed.leads = false; /* since then */
    assert_int_equal(tell(nids, 1).err, SHOAL_EBUSY);
}

/* --- Failures --------------------------------------------------------------------------------- */

/* A leader that has led and looked at all nodes for as long as it takes; the first peer's lease is
 * over, by its silence. */
static void lead_long(void)
{
    lead();
    superpeer.shared->led_since_ns = now_ns - FAILURE;
    superpeer.shared->watched_ns = now_ns;
    sh_registry_heard(superpeer.registry, now_ns - LEASE - DRIFT, peers[0]);
}

static void who_may_be_called_failed(void **state)
{
    (void)state;
    struct sh_shared *shared = superpeer.shared;
    lead_long();
    assert_true(sh_shared_may_fail(&superpeer, peers[0], false));
    assert_false(sh_shared_may_fail(&superpeer, peers[1], false)); /* it was just heard */
    assert_true(sh_shared_may_fail(&superpeer, peers[1], true));   /* its process has ended */
    shared->led_since_ns++; /* an earlier leader may have granted a lease before that */
    assert_false(sh_shared_may_fail(&superpeer, peers[0], false));
    shared->led_since_ns = 0;
    assert_false(sh_shared_may_fail(&superpeer, peers[0], false));
    lead_long();
    shared->watched_ns = now_ns - FAILURE / 2;
    assert_true(sh_shared_may_fail(&superpeer, peers[0], false));
    shared->watched_ns--; /* it was stopped, and has not listened since */
    assert_false(sh_shared_may_fail(&superpeer, peers[0], false));
    lead_long();
    agreed.leads = false;
    assert_false(sh_shared_may_fail(&superpeer, peers[0], false));
    assert_true(sh_shared_may_fail(&superpeer, (shoal_nid){OTHER}, false));
}

/* Whoever begins to lead gives all failure_ns anew, also when it led before. */
static void a_new_leader_waits_anew(void **state)
{
    (void)state;
    lead();
    pass(FAILURE - HEARTBEAT);
    assert_int_equal(decided(SH_COMMAND_FAIL, peers[0]), 0);
    agreed.leads = false;
    pass(HEARTBEAT);
    lead();
    pass(FAILURE - HEARTBEAT);
    assert_int_equal(decided(SH_COMMAND_FAIL, peers[0]), 0);
    for (unsigned i = OTHER; i <= THIRD; i++)
        assert_int_equal(decided(SH_COMMAND_STATE, (shoal_nid){(uint16_t)i}), 0);
    pass(3 * HEARTBEAT);
    assert_true(decided(SH_COMMAND_FAIL, peers[0]) && decided(SH_COMMAND_FAIL, peers[1]));
    for (unsigned i = OTHER; i <= THIRD; i++)
        assert_true(decided(SH_COMMAND_STATE, (shoal_nid){(uint16_t)i}) > 0);
}

/* What came while it was stopped it has not heard. */
static void a_leader_that_was_stopped_waits_anew(void **state)
{
    (void)state;
    lead();
    pass(FAILURE - HEARTBEAT);
    now_ns += FAILURE / 2 + HEARTBEAT;
    pass(FAILURE - HEARTBEAT);
    assert_int_equal(decided(SH_COMMAND_FAIL, peers[0]), 0);
    pass(3 * HEARTBEAT);
    assert_true(decided(SH_COMMAND_FAIL, peers[0]) > 0);
}

/* A leader decides by what has been carried out; and by a registry that others have not changed. */
static void nothing_is_decided_while_something_is(void **state)
{
    (void)state;
    lead();
    agreed.is_unsettled = true;
    pass(3 * FAILURE);
    assert_int_equal(agreed.count, 0);
    agreed.is_unsettled = false;
    agreed.is_out_of_date = true;
    pass(3 * FAILURE);
    assert_int_equal(agreed.count, 0);
    agreed.is_out_of_date = false;
    pass(FAILURE + 2 * HEARTBEAT);
    assert_true(decided(SH_COMMAND_FAIL, peers[0]) > 0);
}

/* A peer that has failed is failed once, and nothing brings it back that is heard of it. */
static void what_is_heard_of_the_failed_decides_nothing(void **state)
{
    (void)state;
    lead();
    pass(HEARTBEAT);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    for (unsigned i = 0; i < 40; i++) {
        sh_superpeer_shared_heard(&superpeer, peers[0], 0);
        sh_superpeer_shared_heard(&superpeer, peers[1], 0);
        sh_registry_heard(superpeer.registry, now_ns, peers[1]);
        pass(HEARTBEAT / 2);
    }
    assert_true(agreed.count > 0); /* the other superpeers are silent */
    for (unsigned i = 0; i < agreed.count; i++)
        assert_false(sh_nid_is_peer(agreed.decided[i].nid));
}

/* A superpeer's process that has ended may have been heard just before. */
static void a_dead_superpeer_is_not_back_by_what_was_heard_before(void **state)
{
    (void)state;
    shoal_nid nid = {OTHER};
    lead();
    pass(HEARTBEAT);
    agreed.heard_ns[OTHER] = agreed.heard_ns[THIRD] = now_ns;
    sh_shared_superpeer_gone(&superpeer, nid, true);
    assert_true(sh_shared_is_doomed(&superpeer, nid));
    assert_int_equal(decided(SH_COMMAND_STATE, nid), 1);
    assert_int_equal(sh_registry_superpeer_set(superpeer.registry, nid, SH_NODE_FAILED), SHOAL_OK);
    pass(3 * HEARTBEAT);
    assert_int_equal(decided(SH_COMMAND_STATE, nid), 1);
    agreed.heard_ns[OTHER] = now_ns;
    pass(2 * HEARTBEAT);
    assert_true(decided(SH_COMMAND_STATE, nid) > 1);
    assert_int_equal(agreed.decided[agreed.count - 1].state, SH_NODE_UP);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_leader_grants_from_when_it_surely_led),
        CASE(who_is_down_or_doomed_gets_none),
        CASE(a_lease_is_over_later_than_the_node_thinks),
        CASE(a_follower_grants_from_its_report),
        CASE(the_own_lease_waits_for_the_leaders_registry),
        CASE(who_is_refused_has_no_lease_of_its_own),
        CASE(a_join_counts_from_its_request),
        CASE(a_join_that_the_leader_may_miss_counts_for_nothing),
        CASE(the_leader_consents_to_whom_it_may_not_fail),
        CASE(a_superpeer_is_granted_while_it_is_heard),
        CASE(who_is_not_sure_to_lead_consents_to_nothing),
        CASE(who_may_be_called_failed),
        CASE(a_new_leader_waits_anew),
        CASE(a_leader_that_was_stopped_waits_anew),
        CASE(nothing_is_decided_while_something_is),
        CASE(what_is_heard_of_the_failed_decides_nothing),
        CASE(a_dead_superpeer_is_not_back_by_what_was_heard_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
