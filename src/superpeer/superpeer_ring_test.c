/* A superpeer's part in the ring, with a journal on a disk and a registry that does at once what is proposed:
 * when it begins to take part, and when its shards speak of nodes. */
#include "superpeer/superpeer_rig_test.h"
#include "superpeer/superpeer_ring_int.h"

static struct sh_disk *disk;
static struct sh_command last; /* that was proposed for the ring */
static unsigned begins;        /* how often that this process has begun */

static void carry_out(struct sh_consensus *consensus, struct sh_bytes bytes, bool is_verdict)
{
    struct sh_command command;
    (void)consensus;
    (void)is_verdict;
    assert_true(sh_command_get(bytes, &command));
    if (command.kind == SH_COMMAND_RING) {
        begins++;
        last = command;
    }
    sh_shared_apply(&superpeer, bytes, false);
}

static struct sh_consensus_ops at_once;

static void on_view(void *arg, const struct sh_view *view)
{
    (void)arg;
    (void)view;
}

static void open_ring(void)
{
    superpeer.env.disk = disk;
    superpeer.life = 0;
    superpeer.life_lsn = 0;
    assert_int_equal(sh_superpeer_ring_open(&superpeer), SHOAL_OK);
}

static int ring_setup(void **state)
{
    (void)setup(state);
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    at_once = ops;
    at_once.propose = carry_out;
    agreed.base.ops = &at_once;
    superpeer.on_view = on_view;
    superpeer.scratch_bytes_max = 1 << 20;
    begins = 0;
    lead();
    open_ring();
    assert_int_equal(sh_superpeer_services_open(&superpeer), SHOAL_OK);
    assert_int_equal(sh_superpeer_forget_open(&superpeer), SHOAL_OK);
    return 0;
}

static int ring_teardown(void **state)
{
    sh_superpeer_ring_close(&superpeer);
    sh_superpeer_forget_close(&superpeer);
    sh_superpeer_services_close(&superpeer);
    disk->ops->destroy(disk);
    superpeer.env.disk = NULL;
    return teardown(state);
}

static void step(void)
{
    now_ns += HEARTBEAT;
    agreed.led_ns = now_ns;
    sh_shared_lease_step(&superpeer, now_ns);
    (void)sh_superpeer_ring_step(&superpeer, now_ns);
    carry();
}

static void settle(void)
{
    for (unsigned i = 0; i < 20; i++)
        step();
}

static uint64_t life_known(void)
{
    return sh_registry_arcs(superpeer.registry)->lives[OWN];
}

/* --- Lives ------------------------------------------------------------------------------------------ */

/* One that has closed its ring is still written to. */
static void a_closed_ring_takes_no_messages(void **state)
{
    (void)state;
    settle();
    sh_superpeer_ring_close(&superpeer);
    struct sh_out out;
    assert_int_equal(sh_msg_begin(other, (shoal_nid){OWN}, SH_CLUSTER_RING, 64, &out), SHOAL_OK);
    for (unsigned i = 0; i < 8; i++)
        sh_put64(&out.w, 1);
    sh_msg_end(other, &out);
    carry();
    assert_null(superpeer.ring);
    shoal_nid to;
    assert_int_equal(sh_superpeer_ring_reads(&superpeer, 0, &to), SHOAL_EBUSY);
}

/* Others hear of a life that is on the disk: else the next process might count as a copy of this one. */
static void a_life_is_told_when_it_is_stored(void **state)
{
    (void)state;
    settle();
    assert_true(superpeer.ring->is_started);
    uint64_t former = superpeer.life;
    assert_true(life_known() == former);
    sh_superpeer_ring_close(&superpeer);
    open_ring();
    assert_int_equal(sh_life_starts(superpeer.life), sh_life_starts(former) + 1);
    assert_false(sh_superpeer_journal_lives(&superpeer));
    for (begins = 0; !sh_superpeer_journal_lives(&superpeer);) {
        assert_int_equal(begins, 0);
        step();
    }
    assert_int_equal(begins, 0); /* it was not when it was looked at */
    step();
    assert_int_equal(begins, 1);
    assert_true(last.instance == superpeer.life);
    assert_true(life_known() == superpeer.life);
}

/* On a new disk the registry gives the life: it takes part when that is stored. */
static void a_given_life_is_stored_first(void **state)
{
    (void)state;
    assert_int_equal(sh_life_starts(superpeer.life), 0);
    step();
    assert_int_equal(begins, 1);
    assert_true(sh_life_starts(life_known()) && (uint32_t)life_known() == superpeer.life);
    do {
        assert_false(superpeer.ring->is_started);
        step();
    } while (superpeer.life != life_known() || !sh_superpeer_journal_lives(&superpeer));
    assert_false(superpeer.ring->is_started);
    step();
    assert_true(superpeer.ring->is_started);
}

/* --- Who refers to nodes ------------------------------------------------------------------------------ */

static struct {
    struct sh_request request;
    unsigned done;
    uint64_t shards;
} refers;

static void refers_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    assert_int_equal(err, SHOAL_OK);
    refers.done++;
    refers.shards = sh_get64(payload);
}

static uint64_t shards_that_speak(void)
{
    struct sh_out out;
    unsigned before = refers.done;
    refers.request = (struct sh_request){.done = refers_done, .timeout_ns = 10 * S};
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_REFERS, SH_REFERS_BYTES + 2,
                                    &refers.request, &out),
                     SHOAL_OK);
    sh_put64(&out.w, 0);
    sh_put16(&out.w, 1);
    sh_put64(&out.w, 0);
    sh_put16(&out.w, peers[0].v);
    sh_msg_end(other, &out);
    carry();
    assert_int_equal(refers.done, before + 1);
    return refers.shards;
}

/* A shard that was lost does not know what refers to a node before all peers that are up have said it. */
static void a_shard_that_is_not_known_does_not_speak(void **state)
{
    (void)state;
    shoal_nid other_one;
    settle();
    assert_int_equal(sh_superpeer_ring_reads(&superpeer, 0, &other_one), SHOAL_OK);
    assert_true(shards_that_speak() == 0);
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    assert_true(shards_that_speak() == 0);
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    assert_true(shards_that_speak() == UINT64_MAX);
}

/* --- Lookups of chunks that no node has --------------------------------------------------------------- */

static struct sh_request lookup;
static enum shoal_err lookup_err;
static uint16_t lookup_owner;
static unsigned lookups_answered;

static void on_lookup_answer(struct sh_request *request, enum shoal_err err,
                             struct sh_reader *payload)
{
    (void)request;
    lookups_answered++;
    lookup_err = err;
    (void)sh_get64(payload);
    (void)sh_get64(payload);
    lookup_owner = sh_get16(payload);
}

/* The other node asks for a chunk of that creator; only messages are carried. */
static void look(shoal_nid creator)
{
    struct sh_out out;
    lookup = (struct sh_request){.done = on_lookup_answer};
    lookups_answered = 0;
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_LOOKUP, 16, &lookup, &out),
                     SHOAL_OK);
    sh_put64(&out.w, shoal_cid_make(creator, 5).v);
    sh_put64(&out.w, 0);
    sh_msg_end(other, &out);
    carry();
}

static void lookups_pass(uint64_t duration_ns)
{
    now_ns += duration_ns;
    (void)sh_superpeer_lookups_step(&superpeer, now_ns);
    carry();
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    shoal_cid cid = {sh_get64(&in->payload)};
    sh_superpeer_lookup_ask(arg, in->reply_to, cid, sh_get64(&in->payload));
}

/* The ring is open, and a peer has left whose shard is known. */
static void peer_gone(void)
{
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, &superpeer);
    settle();
    static const struct sh_metadata_update known = {.kind = SH_METADATA_KNOWN};
    for (unsigned i = 0; i < 2; i++)
        (void)sh_metadata_apply(superpeer.ring->metadata, sh_arc_shard(peers[i]), &known);
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
}

/* The superpeer may not have heard yet that the creator was started again and made the chunk. */
static void that_no_node_has_it_is_said_of_the_registry_as_it_is(void **state)
{
    (void)state;
    shoal_nid nid;
    peer_gone();
    look(peers[1]); /* its creator is up */
    assert_true(lookups_answered == 1 && !lookup_err && lookup_owner == peers[1].v);
    look(peers[0]);
    assert_true(lookups_answered == 0 && superpeer.waiting_count == 1);
    lookups_pass(MS); /* the leader's last round began before the question */
    assert_int_equal(lookups_answered, 0);
    agreed.led_ns = now_ns;
    sh_shared_lease_step(&superpeer, now_ns);
    lookups_pass(0);
    assert_true(lookups_answered == 1 && !lookup_err && lookup_owner == SH_LOOKUP_NOBODY);
    /* Its next life begins while the answer waits. */
    look(peers[0]);
    const uint64_t life = UINT64_C(1) << 32 | 10;
    assert_int_equal(sh_registry_restart(superpeer.registry, now_ns, sh_bytes_text("loop:peer0"),
                                         life, peers[0], NULL, &nid),
                     SHOAL_OK);
    step();
    lookups_pass(0);
    assert_true(lookups_answered == 1 && !lookup_err && lookup_owner == peers[0].v);
    /* Nothing is heard of the leader. */
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], life), SHOAL_OK);
    look(peers[0]);
    lookups_pass(FAILURE);
    assert_int_equal(lookups_answered, 0);
    lookups_pass(1);
    assert_true(lookups_answered == 1 && lookup_err == SHOAL_EBUSY && !superpeer.waiting_count);
}

/* A follower goes by its reports: by when they were sent, and once it has caught up with the answer. */
static void a_follower_knows_what_its_report_has_brought(void **state)
{
    (void)state;
    agreed.leads = false;
    agreed.leader = OTHER;
    agreed.led_ns = 0;
    sh_shared_lease_step(&superpeer, now_ns);
    superpeer.shared->confirmed_ns[OWN] = now_ns - 7;
    assert_true(sh_superpeer_known_ns(&superpeer, now_ns) == now_ns - 7);
    at_once.is_led =
        false; /* ZooKeeper's leader may have read the registry an election's time ago */
    assert_true(sh_superpeer_known_ns(&superpeer, now_ns) == now_ns - 7 - ELECTION);
    superpeer.shared->confirmed_ns[OWN] = 0;
    assert_true(sh_superpeer_known_ns(&superpeer, now_ns) == 0);
}

/* A follower sends a report for a question at once, and one only. */
static void a_follower_asks_the_leader_at_once(void **state)
{
    (void)state;
    peer_gone();
    agreed.leads = false;
    agreed.leader = OTHER;
    look(peers[0]);
    unsigned reports = heard_there.reports;
    for (unsigned i = 0; i < 3; i++)
        lookups_pass(MS);
    assert_int_equal(heard_there.reports, reports + 1);
    (void)sh_shared_own_lease_ns(&superpeer, now_ns);
    lookups_pass(0);
    assert_true(lookups_answered == 1 && lookup_owner == SH_LOOKUP_NOBODY);
}

/* Lookups that wait take no more memory than there is for them. */
static void lookups_that_wait_are_bounded(void **state)
{
    (void)state;
    peer_gone();
    for (unsigned i = 0; i < SH_LOOKUPS_WAITING_MAX; i++) {
        static struct sh_request many[SH_LOOKUPS_WAITING_MAX];
        struct sh_out out;
        many[i] = (struct sh_request){.done = on_lookup_answer};
        assert_int_equal(
            sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_LOOKUP, 16, &many[i], &out),
            SHOAL_OK);
        sh_put64(&out.w, shoal_cid_make(peers[0], 1 + i).v);
        sh_put64(&out.w, 0);
        sh_msg_end(other, &out);
    }
    carry();
    look(peers[0]);
    assert_true(lookups_answered == 1 && lookup_err == SHOAL_EBUSY);
    assert_int_equal(superpeer.waiting_count, SH_LOOKUPS_WAITING_MAX);
    sh_superpeer_lookups_close(&superpeer);
    carry();
    assert_int_equal(lookups_answered, 1 + SH_LOOKUPS_WAITING_MAX);
    assert_int_equal(lookup_err, SHOAL_ESTOPPED);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, ring_setup, ring_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_closed_ring_takes_no_messages),
        CASE(a_life_is_told_when_it_is_stored),
        CASE(a_given_life_is_stored_first),
        CASE(a_shard_that_is_not_known_does_not_speak),
        CASE(that_no_node_has_it_is_said_of_the_registry_as_it_is),
        CASE(a_follower_knows_what_its_report_has_brought),
        CASE(a_follower_asks_the_leader_at_once),
        CASE(lookups_that_wait_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
