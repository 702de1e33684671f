/* When a peer counts as dead for sure: what the judge has seen itself, and what another superpeer tells. The
 * peers' addresses refuse connections. */
#include "superpeer/superpeer_rig_test.h"

#define GRACE (HEARTBEAT / 4)
#define QUESTION (FAILURE / 4)
#define NEVER UINT64_MAX
#define FORMER UINT64_C(10) /* the process that the peer is, by the rig */
#define NEXT (UINT64_C(2) << 32 | 5)

static struct {
    unsigned suspects, opinions;
    uint64_t lost_ago, heard_ago, refused_ago;
} there;

static void on_suspect(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    assert_int_equal(sh_get16(&in->payload), peers[0].v);
    there.suspects++;
}

static void on_refused(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    assert_int_equal(sh_get16(&in->payload), peers[0].v);
    there.lost_ago = sh_get64(&in->payload);
    there.heard_ago = sh_get64(&in->payload);
    there.refused_ago = sh_get64(&in->payload);
    assert_true(sh_get64(&in->payload) == FORMER);
    assert_true(sh_reader_done(&in->payload));
    there.opinions++;
}

/* This superpeer judges; superpeer 2 is the only other one that is up. */
static int probe_setup(void **state)
{
    (void)setup(state);
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_REFUSED, SH_MSG_INLINE,
                       sh_superpeer_refused_handler, &superpeer);
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_SUSPECT, SH_MSG_INLINE,
                       sh_superpeer_suspect_handler, &superpeer);
    sh_msg_handler_set(other, SH_CLUSTER_SUSPECT, SH_MSG_INLINE, on_suspect, NULL);
    sh_msg_handler_set(other, SH_CLUSTER_REFUSED, SH_MSG_INLINE, on_refused, NULL);
    memset(&there, 0, sizeof there);
    assert_int_equal(
        sh_registry_superpeer_set(superpeer.registry, (shoal_nid){THIRD}, SH_NODE_FAILED),
        SHOAL_OK);
    lead();
    return 0;
}

static int probe_teardown(void **state)
{
    sh_superpeer_requests_cancel(&superpeer);
    return teardown(state);
}

static bool is_dead(void)
{
    return decided(SH_COMMAND_FAIL, peers[0]);
}

static struct sh_probe *probe(void)
{
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        if (superpeer.probes[i].nid.v == peers[0].v)
            return &superpeer.probes[i];
    }
    fail();
    return NULL;
}

/* Asks what is due. */
static void look_at(uint64_t at_ns)
{
    now_ns = at_ns;
    (void)sh_superpeer_probes_step(&superpeer, now_ns);
    carry();
}

/* Superpeer 2 finds that nobody is at the peer's address. */
static void opinion_of(uint64_t process, uint64_t lost_ago, uint64_t heard_ago,
                       uint64_t refused_ago)
{
    struct sh_out out;
    assert_int_equal(
        sh_msg_begin(other, (shoal_nid){OWN}, SH_CLUSTER_REFUSED, SH_REFUSED_BYTES, &out),
        SHOAL_OK);
    sh_put16(&out.w, peers[0].v);
    sh_put64(&out.w, lost_ago);
    sh_put64(&out.w, heard_ago);
    sh_put64(&out.w, refused_ago);
    sh_put64(&out.w, process);
    sh_msg_end(other, &out);
    carry();
}

static void opinion(uint64_t lost_ago, uint64_t heard_ago, uint64_t refused_ago)
{
    opinion_of(FORMER, lost_ago, heard_ago, refused_ago);
}

/* The peer was heard an hour ago; then its connection ended, and its address refuses. Time goes on until
 * the others are asked. */
static uint64_t lost(void)
{
    uint64_t lost_ns = now_ns + 3600 * S;
    sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
    now_ns = lost_ns;
    agreed.led_ns = now_ns;
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    look_at(lost_ns + 1);
    assert_int_equal(there.suspects, 0); /* it may be heard over another connection */
    look_at(lost_ns + 1 + GRACE);
    assert_int_equal(there.suspects, 1);
    assert_false(is_dead());
    return lost_ns;
}

/* All that are up must find so. */
static void the_others_are_asked(void **state)
{
    (void)state;
    (void)lost();
    now_ns += MS;
    opinion(NEVER, NEVER, 0);
    assert_true(is_dead());
    assert_int_equal(agreed.decided[0].state, 1); /* for sure */
}

/* The peer's next process joins while the former one is being judged: what the judge saw of the former, and
 * what others found, is not held against the next. */
static void a_former_process_is_not_the_next(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        shoal_nid nid;
        uint64_t lost_ns = lost();
        if (i % 2) /* the former one's address is being asked */
            (void)sh_superpeer_probes_step(&superpeer, now_ns + FAILURE);
        if (i / 2) /* and nobody else need agree */
            assert_int_equal(
                sh_registry_superpeer_set(superpeer.registry, (shoal_nid){OTHER}, SH_NODE_FAILED),
                SHOAL_OK);
        sh_registry_fail(superpeer.registry, peers[0], "a test");
        assert_int_equal(sh_registry_restart(superpeer.registry, now_ns, sh_bytes_text("loop:next"),
                                             NEXT, peers[0], NULL, &nid),
                         SHOAL_OK);
        assert_int_equal(nid.v, peers[0].v);
        now_ns += MS;
        opinion(NEVER, NEVER, 0);
        for (unsigned k = 0; k < 8; k++) {
            look_at(now_ns + GRACE);
            opinion(now_ns - lost_ns, NEVER, 0);
            assert_false(is_dead());
        }
        /* It is judged by what is seen of itself. */
        sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
        for (unsigned k = 0; k < 8 && !is_dead(); k++) {
            look_at(now_ns + GRACE);
            opinion_of(NEXT, NEVER, NEVER, 0);
        }
        assert_true(is_dead());
        assert_true(agreed.decided[0].instance == NEXT);
        (void)probe_teardown(state);
        (void)probe_setup(state);
    }
}

static void who_is_up_alone_asks_nobody(void **state)
{
    (void)state;
    assert_int_equal(
        sh_registry_superpeer_set(superpeer.registry, (shoal_nid){OTHER}, SH_NODE_FAILED),
        SHOAL_OK);
    uint64_t lost_ns = now_ns;
    sh_registry_spoke(superpeer.registry, now_ns - S, peers[0]);
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    look_at(lost_ns + 1);
    assert_false(is_dead());
    look_at(lost_ns + 1 + GRACE);
    assert_true(is_dead());
}

/* Who has heard it since, here or there, knows better. */
static void who_was_heard_since_is_not_dead(void **state)
{
    for (unsigned is_there = 0; is_there < 2; is_there++) {
        (void)probe_teardown(state);
        (void)probe_setup(state);
        (void)lost();
        now_ns += MS;
        if (!is_there)
            sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
        opinion(NEVER, is_there ? MS / 2 : NEVER, 0);
        assert_false(is_dead());
    }
}

/* It may have been heard just before over the connection that was lost: then a heartbeat is waited for. */
static void who_was_just_heard_has_a_heartbeat_more(void **state)
{
    (void)state;
    uint64_t lost_ns = now_ns;
    sh_registry_spoke(superpeer.registry, lost_ns - GRACE + 1, peers[0]);
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    for (uint64_t at_ns = lost_ns + 1; at_ns < lost_ns + HEARTBEAT + GRACE; at_ns += GRACE)
        look_at(at_ns);
    assert_int_equal(there.suspects, 0);
    look_at(lost_ns + HEARTBEAT + GRACE + 1);
    assert_int_equal(there.suspects, 1);
}

/* What was found long ago says nothing of now. */
static void what_is_known_must_be_fresh(void **state)
{
    for (unsigned is_late = 0; is_late < 2; is_late++) {
        (void)probe_teardown(state);
        (void)probe_setup(state);
        uint64_t lost_ns = now_ns + S;
        sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
        now_ns = lost_ns;
        sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
        look_at(lost_ns + 1);
        now_ns = lost_ns + GRACE + 1;
        opinion(NEVER, NEVER, 0); /* which was not asked for */
        assert_int_equal(there.suspects, 1);
        now_ns = lost_ns + 1 + QUESTION + is_late;
        opinion(NEVER, NEVER, 0);
        assert_int_equal(is_dead(), !is_late);
    }
}

/* Others that answered long ago are asked again. */
static void what_others_found_must_be_fresh(void **state)
{
    (void)state;
    (void)lost();
    now_ns += QUESTION + 1;
    look_at(now_ns);
    assert_int_equal(there.suspects, 2);
    assert_false(is_dead());
    opinion(NEVER, NEVER, 0);
    assert_true(is_dead());
}

/* It is enough that one of them was refused after it had lost the node's connection. */
static void what_another_one_saw_counts(void **state)
{
    for (unsigned is_refused = 0; is_refused < 2; is_refused++) {
        (void)probe_teardown(state);
        (void)probe_setup(state);
        sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
        now_ns += S;
        sh_superpeer_probe(&superpeer, peers[0], now_ns);
        look_at(now_ns);
        probe()->refused_ns = 0; /* another process has answered here */
        now_ns += HEARTBEAT;
        for (unsigned i = 0; i < 2; i++)
            opinion(HEARTBEAT / 2, NEVER, is_refused ? 0 : NEVER);
        assert_int_equal(is_dead(), is_refused);
    }
}

static void a_refusal_from_before_counts_for_nothing(void **state)
{
    (void)state;
    sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
    now_ns += S;
    uint64_t lost_ns = now_ns;
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    look_at(now_ns); /* at the same time: it may have been before */
    now_ns = lost_ns + GRACE;
    for (unsigned i = 0; i < 2; i++)
        opinion(NEVER, NEVER, NEVER);
    assert_false(is_dead());
    look_at(now_ns);
    for (unsigned i = 0; i < 2; i++)
        opinion(NEVER, NEVER, NEVER);
    assert_true(is_dead());
}

/* Without its own look the judge believes nobody; and another superpeer judges nothing. */
static void only_a_judge_that_has_looked_decides(void **state)
{
    for (unsigned is_judge = 0; is_judge < 2; is_judge++) {
        (void)probe_teardown(state);
        (void)probe_setup(state);
        sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
        now_ns += S;
        if (!is_judge)
            agreed.leader = OTHER;
        for (unsigned i = 0; i < 3; i++)
            opinion(HEARTBEAT, NEVER, 0);
        assert_false(is_dead());
    }
}

/* Who does not judge tells who does, as soon as the node would have been heard. */
static void the_judge_is_told(void **state)
{
    (void)state;
    agreed.leads = false;
    agreed.leader = OTHER;
    sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
    now_ns += 10 * S;
    uint64_t lost_ns = now_ns;
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    look_at(lost_ns + 1);
    assert_int_equal(there.opinions, 0);
    look_at(lost_ns + 1 + GRACE);
    assert_int_equal(there.opinions, 1);
    assert_int_equal(there.lost_ago, 1 + GRACE);
    assert_int_equal(there.heard_ago, 10 * S + 1 + GRACE);
    assert_int_equal(there.refused_ago, 0);
    assert_false(is_dead());
    /* Of one that it hears it tells nothing before the next heartbeat is late. */
    sh_registry_spoke(superpeer.registry, now_ns, peers[0]);
    uint64_t heard_ns = now_ns;
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns - 1);
    for (uint64_t at_ns = heard_ns; at_ns < heard_ns + HEARTBEAT + GRACE; at_ns += GRACE)
        look_at(at_ns);
    assert_int_equal(there.opinions, 1);
}

/* Nobody tells of a node as heard whose connection has ended since. */
static void who_was_lost_is_not_reported_as_heard(void **state)
{
    (void)state;
    agreed.leads = false;
    agreed.leader = OTHER;
    sh_superpeer_shared_heard(&superpeer, peers[0], 0);
    sh_superpeer_shared_heard(&superpeer, peers[1], 0);
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    sh_shared_report(&superpeer, now_ns);
    carry();
    assert_int_equal(heard_there.count, 2);
    assert_int_equal(heard_there.nids[0], OWN);
    assert_int_equal(heard_there.nids[1], peers[1].v);
}

/* Suspicion costs little: once in a heartbeat, and no more once the node was heard. */
static void a_node_is_asked_once_in_a_heartbeat(void **state)
{
    (void)state;
    now_ns += S;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    assert_int_equal(sh_superpeer_probes_due_ns(&superpeer), now_ns);
    sh_registry_spoke(superpeer.registry, now_ns + 1, peers[0]);
    look_at(now_ns + 2);
    assert_int_equal(probe()->state, SH_PROBE_FREE);
    uint64_t ended_ns = now_ns;
    now_ns = ended_ns + HEARTBEAT - 1;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    assert_int_equal(probe()->state, SH_PROBE_FREE);
    now_ns++;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    assert_int_equal(probe()->state, SH_PROBE_WANTED);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    look_at(now_ns);
    assert_int_equal(probe()->state, SH_PROBE_FREE); /* it counts as failed already */
    now_ns += S;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    assert_int_equal(probe()->state, SH_PROBE_FREE);
}

/* All of them must agree, and those that did long ago anew. */
static void each_of_the_others_must_agree(void **state)
{
    (void)state;
    shoal_nid third = {THIRD};
    assert_int_equal(sh_registry_superpeer_set(superpeer.registry, third, SH_NODE_UP), SHOAL_OK);
    (void)lost();
    opinion(NEVER, NEVER, 0);
    assert_false(is_dead()); /* superpeer 3 has not said so */
    look_at(now_ns + QUESTION + 1);
    assert_int_equal(there.suspects, 2);
    assert_int_equal(sh_registry_superpeer_set(superpeer.registry, third, SH_NODE_FAILED),
                     SHOAL_OK);
    look_at(now_ns + GRACE + HEARTBEAT);
    assert_false(is_dead());
    opinion(NEVER, NEVER, 0);
    assert_true(is_dead());
}

/* --- Who answers -------------------------------------------------------------------------------------- */

static struct {
    uint16_t nid;
    uint64_t instance;
    unsigned pings;
} lives_there; /* at superpeer 2's address */

static void on_ping(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    lives_there.pings++;
    assert_int_equal(sh_msg_reply(other, in->reply_to, in->type, SH_PING_ANSWER_BYTES, &out),
                     SHOAL_OK);
    sh_put16(&out.w, lives_there.nid);
    sh_put64(&out.w, lives_there.instance);
    sh_msg_end(other, &out);
}

/* The node lives if its process answers, which may not know its ID yet; another process has its address. */
static void who_answers_lives(void **state)
{
    (void)state;
    shoal_nid peer, nid;
    assert_int_equal(sh_registry_superpeer_put(superpeer.registry, sh_bytes_text("loop:moved"), 2,
                                               (shoal_nid){OTHER}, &nid),
                     SHOAL_OK);
    assert_int_equal(sh_registry_join(superpeer.registry, now_ns, sh_bytes_text("loop:other"), 77,
                                      SHOAL_NID_NONE, NULL, &peer),
                     SHOAL_OK);
    const struct {
        uint16_t nid;
        uint64_t instance;
        bool lives;
    } cases[] = {{peer.v, 77, true},
                 {0, 77, true},
                 {peer.v, 78, false},
                 {(uint16_t)(peer.v + 1), 77, false},
                 {peer.v, 0, false}};
    sh_msg_handler_set(other, SH_CLUSTER_PING, SH_MSG_INLINE, on_ping, NULL);
    lives_there.pings = 0;
    for (unsigned i = 0; i < 5; i++) {
        lives_there.nid = cases[i].nid;
        lives_there.instance = cases[i].instance;
        memset(superpeer.probes, 0, sizeof superpeer.probes);
        now_ns += S;
        sh_superpeer_probe_lost(&superpeer, peer, now_ns);
        look_at(now_ns + 1);
        assert_int_equal(lives_there.pings, i + 1);
        struct sh_probe *at = superpeer.probes;
        assert_int_equal(at->nid.v, peer.v);
        assert_int_equal(at->state, cases[i].lives ? SH_PROBE_FREE : SH_PROBE_WANTED);
        assert_true(at->absent_ns == (cases[i].lives ? 0 : now_ns));
        assert_true(at->refused_ns == 0); /* somebody was there */
    }
}

/* --- When it is asked ----------------------------------------------------------------------------------- */

/* Again after a heartbeat, or soon where a connection was just lost; but not for ever. */
static void looks_are_repeated(void **state)
{
    (void)state;
    now_ns += S;
    uint64_t begun_ns = now_ns;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    look_at(now_ns);
    assert_int_equal(sh_superpeer_probes_due_ns(&superpeer), begun_ns + HEARTBEAT);
    assert_int_equal(sh_superpeer_probes_step(&superpeer, begun_ns + HEARTBEAT - 1), 0);
    look_at(begun_ns + HEARTBEAT);
    assert_int_equal(sh_superpeer_probes_due_ns(&superpeer), begun_ns + 2 * HEARTBEAT);
    look_at(begun_ns + 2 * FAILURE - 1);
    assert_int_equal(probe()->state, SH_PROBE_WANTED);
    sh_superpeer_probe_lost(&superpeer, peers[0], now_ns);
    uint64_t lost_ns = now_ns;
    look_at(lost_ns + 2 * HEARTBEAT - 1);
    assert_int_equal(sh_superpeer_probes_due_ns(&superpeer), now_ns + GRACE);
    look_at(now_ns + GRACE);
    assert_int_equal(sh_superpeer_probes_due_ns(&superpeer), now_ns + HEARTBEAT);
    look_at(lost_ns + 2 * FAILURE);
    assert_int_equal(probe()->state, SH_PROBE_FREE);
}

/* A judge's suspicion is looked into at once, though the node was just asked. */
static void a_judge_does_not_wait(void **state)
{
    (void)state;
    agreed.leads = false;
    agreed.leader = OTHER;
    now_ns += S;
    sh_superpeer_probe(&superpeer, peers[0], now_ns);
    look_at(now_ns);
    assert_int_equal(there.opinions, 1);
    now_ns++;
    for (unsigned is_whole = 0; is_whole < 2; is_whole++) {
        struct sh_out out;
        assert_int_equal(sh_msg_begin(other, (shoal_nid){OWN}, SH_CLUSTER_SUSPECT,
                                      SH_SUSPECT_BYTES - !is_whole, &out),
                         SHOAL_OK);
        sh_put8(&out.w, (uint8_t)peers[0].v);
        if (is_whole)
            sh_put8(&out.w, (uint8_t)(peers[0].v >> 8));
        sh_msg_end(other, &out);
        carry();
        look_at(now_ns);
        assert_int_equal(there.opinions, 1 + is_whole);
    }
}

/* --- The leader ------------------------------------------------------------------------------------------ */

static unsigned gone;

static void leader_gone(struct sh_consensus *consensus, shoal_nid nid, uint64_t at_ns)
{
    (void)consensus;
    (void)at_ns;
    assert_int_equal(nid.v, THIRD);
    gone++;
}

/* Whoever finds the leader itself dead says so to the consensus: nobody else judges it. */
static void the_leader_is_found_dead(void **state)
{
    (void)state;
    struct sh_consensus_ops with_gone = ops;
    shoal_nid third = {THIRD};
    with_gone.gone = leader_gone;
    agreed.base.ops = &with_gone;
    agreed.leads = false;
    agreed.leader = THIRD;
    gone = 0;
    assert_int_equal(sh_registry_superpeer_set(superpeer.registry, third, SH_NODE_UP), SHOAL_OK);
    agreed.heard_ns[THIRD] = now_ns;
    now_ns += S;
    sh_superpeer_probe(&superpeer, third, now_ns);
    look_at(now_ns);
    assert_int_equal(gone, 0); /* no connection has ended */
    sh_superpeer_probe_lost(&superpeer, third, now_ns);
    look_at(now_ns + HEARTBEAT);
    assert_int_equal(gone, 1);
    memset(superpeer.probes, 0, sizeof superpeer.probes);
    sh_superpeer_probe_lost(&superpeer, third, now_ns);
    look_at(now_ns); /* at the same time: it may have been before */
    assert_int_equal(gone, 1);
    agreed.heard_ns[THIRD] = now_ns + 1;
    look_at(now_ns + GRACE);
    assert_int_equal(gone, 1);
    assert_int_equal(there.opinions, 0);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, probe_setup, probe_teardown)
    const struct CMUnitTest tests[] = {
        CASE(the_others_are_asked),
        CASE(a_former_process_is_not_the_next),
        CASE(who_is_up_alone_asks_nobody),
        CASE(who_was_heard_since_is_not_dead),
        CASE(who_was_just_heard_has_a_heartbeat_more),
        CASE(what_is_known_must_be_fresh),
        CASE(what_others_found_must_be_fresh),
        CASE(what_another_one_saw_counts),
        CASE(a_refusal_from_before_counts_for_nothing),
        CASE(only_a_judge_that_has_looked_decides),
        CASE(the_judge_is_told),
        CASE(who_was_lost_is_not_reported_as_heard),
        CASE(a_node_is_asked_once_in_a_heartbeat),
        CASE(each_of_the_others_must_agree),
        CASE(who_answers_lives),
        CASE(looks_are_repeated),
        CASE(a_judge_does_not_wait),
        CASE(the_leader_is_found_dead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
