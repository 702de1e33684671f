/* What keeps a node that is gone: what the other superpeer says of its shards, which are all of them. */
#include "superpeer/superpeer_rig_test.h"

#define FORGET (100 * S)

static struct {
    uint64_t shards; /* that have spoken */
    uint32_t names, ranges, zones;
    unsigned count;
    uint64_t epoch; /* that was asked for last */
} refers;

static void on_refers(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    refers.epoch = sh_get64(&in->payload);
    unsigned count = sh_get16(&in->payload);
    (void)arg;
    refers.count++;
    assert_int_equal(
        sh_msg_reply(other, in->reply_to, in->type, SH_REFERS_ANSWER_BYTES + 12 * count, &out),
        SHOAL_OK);
    sh_put64(&out.w, refers.shards);
    for (unsigned i = 0; i < count; i++) {
        sh_put32(&out.w, refers.names);
        sh_put32(&out.w, refers.ranges);
        sh_put32(&out.w, refers.zones);
    }
    sh_msg_end(other, &out);
}

static int forget_setup(void **state)
{
    (void)setup(state);
    superpeer.forget_ns = FORGET;
    assert_int_equal(sh_superpeer_forget_open(&superpeer), SHOAL_OK);
    sh_msg_handler_set(other, SH_CLUSTER_REFERS, SH_MSG_INLINE, on_refers, NULL);
    memset(&refers, 0, sizeof refers);
    assert_int_equal(
        sh_registry_superpeer_set(superpeer.registry, (shoal_nid){THIRD}, SH_NODE_FAILED),
        SHOAL_OK);
    lead();
    return 0;
}

static int forget_teardown(void **state)
{
    sh_superpeer_forget_close(&superpeer);
    return teardown(state);
}

/* Looks at who is gone, once in each round. */
static void look(uint64_t duration_ns)
{
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        now_ns += S;
        for (unsigned i = 0; i < 4; i++) {
            (void)sh_superpeer_forget_step(&superpeer, now_ns);
            carry();
        }
    }
}

static void who_is_gone_for_long_is_forgotten(void **state)
{
    (void)state;
    refers.shards = UINT64_MAX;
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    look(FORGET - 2 * S);
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 0);
    look(FORGET / 4);
    assert_true(decided(SH_COMMAND_FORGET, peers[0]) > 0);
    assert_int_equal(agreed.decided[0].instance, 10);
    /* What is true of the view that the job has seen, and of that life. */
    assert_true(refers.epoch == sh_registry_view(superpeer.registry)->epoch);
    struct sh_command last;
    assert_true(sh_command_get(sh_bytes_make(agreed.last, agreed.last_size), &last));
    assert_int_equal(last.address.size, 0);
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[1]), 0); /* it is up */
}

static void what_refers_to_a_node_keeps_it(void **state)
{
    (void)state;
    static const struct {
        uint64_t shards;
        uint32_t names, ranges, zones;
    } cases[] = {{UINT64_MAX, 1, 0, 0},
                 {UINT64_MAX, 0, 1, 0},
                 {UINT64_MAX, 0, 0, 1},
                 {UINT64_MAX - 1, 0, 0, 0},
                 {0, 0, 0, 0}};
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    look(FORGET);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        refers.shards = cases[i].shards;
        refers.names = cases[i].names;
        refers.ranges = cases[i].ranges;
        refers.zones = cases[i].zones;
        unsigned before = refers.count;
        look(FORGET / 4);
        assert_true(refers.count > before);
        assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 0);
    }
    /* What one round has heard is not the next one's. */
    refers.shards = UINT64_MAX;
    refers.names = refers.ranges = refers.zones = 0;
    look(FORGET / 4);
    assert_true(decided(SH_COMMAND_FORGET, peers[0]) > 0);
}

/* Ranges of a peer that failed are lost once nobody waits for its next life: it is given up first. */
static void who_failed_is_given_up(void **state)
{
    (void)state;
    shoal_nid nid;
    refers.shards = UINT64_MAX;
    refers.ranges = 1;
    sh_registry_fail(superpeer.registry, peers[0], "test");
    const char *address = sh_view_find(sh_registry_view(superpeer.registry), peers[0])->address;
    assert_int_equal(sh_registry_join(superpeer.registry, now_ns, sh_bytes_text(address), 99,
                                      SHOAL_NID_NONE, NULL, &nid),
                     SHOAL_OK);
    refers.names = 1;
    look(2 * FORGET);
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 0);
    refers.names = 0;
    refers.zones = 1; /* a replica may be on its disk alone */
    look(2 * FORGET);
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 0);
    refers.zones = 0;
    look(FORGET / 4);
    assert_true(decided(SH_COMMAND_FORGET, peers[0]) > 0);
    assert_int_equal(agreed.decided[0].state, 1);
    assert_int_equal(agreed.decided[0].instance, 10);
}

/* While all IDs are taken nobody waits for forget_ns, but for as long as a peer may be silent. */
static void a_lack_of_ids_hurries(void **state)
{
    (void)state;
    refers.shards = UINT64_MAX;
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    look(FORGET / 4);
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 0);
    for (uint16_t i = 2; i < SH_PEER_NID_MAX - SH_PEER_NID_MIN + 1; i++) {
        char address[32];
        shoal_nid nid;
        (void)snprintf(address, sizeof address, "filler:%u", i);
        assert_int_equal(sh_registry_join(superpeer.registry, now_ns, sh_bytes_text(address), 99,
                                          SHOAL_NID_NONE, NULL, &nid),
                         SHOAL_OK);
    }
    assert_true(sh_registry_is_full(superpeer.registry));
    look(FORGET / 50);
    assert_true(decided(SH_COMMAND_FORGET, peers[0]) > 0);
}

static void only_a_leader_that_knows_forgets(void **state)
{
    (void)state;
    refers.shards = UINT64_MAX;
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    agreed.leads = false;
    look(2 * FORGET);
    agreed.leads = agreed.is_out_of_date = true;
    look(2 * FORGET);
    assert_int_equal(refers.count, 0);
    agreed.is_out_of_date = false;
    look(FORGET);
    assert_true(decided(SH_COMMAND_FORGET, peers[0]) > 0);
}

/* --- An operator's word --------------------------------------------------------------------------- */

static struct asked {
    struct sh_request request;
    bool is_done;
    enum shoal_err err;
} asked;

static void asked_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)payload;
    asked.is_done = true;
    asked.err = err;
}

static void wish(shoal_nid nid)
{
    struct sh_out out;
    asked = (struct asked){.request = {.done = asked_done, .timeout_ns = 10 * S}};
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_FORGET, SH_FORGET_BYTES,
                                    &asked.request, &out),
                     SHOAL_OK);
    sh_put16(&out.w, nid.v);
    sh_msg_end(other, &out);
    carry();
}

/* Lets time pass until there is an answer, or the time is over. */
static void wish_wait(void)
{
    for (uint64_t end_ns = now_ns + FAILURE + HEARTBEAT; now_ns < end_ns && !asked.is_done;) {
        now_ns += HEARTBEAT / 4;
        for (unsigned i = 0; i < 4; i++) {
            (void)sh_superpeer_forget_step(&superpeer, now_ns);
            carry();
        }
    }
}

static void refused(shoal_nid nid, enum shoal_err err)
{
    wish(nid);
    wish_wait();
    assert_true(asked.is_done);
    assert_int_equal(asked.err, err);
    assert_int_equal(decided(SH_COMMAND_FORGET, nid), 0);
}

/* Anybody who hears a majority may be asked, also one that does not forget by itself. */
static void what_an_operator_may_forget(void **state)
{
    (void)state;
    superpeer.forget_ns = 0;
    agreed.leads = true;
    refers.shards = UINT64_MAX;
    refused(peers[0], SHOAL_EINVAL); /* it is up */
    refused((shoal_nid){(uint16_t)(peers[1].v + 1)}, SHOAL_ENONODE);
    refused((shoal_nid){OTHER}, SHOAL_EROLE);
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    agreed.is_out_of_date = true;
    refused(peers[0], SHOAL_EBUSY);
    agreed.is_out_of_date = false;
    wish(peers[0]);
    assert_false(asked.is_done);
    wish_wait();
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 1);
    assert_int_equal(agreed.decided[0].instance, 10);
    assert_true(agreed.decided[0].number);
}

/* What refers to it keeps it; and so does a shard that does not speak, which is asked until the time is over. */
static void what_refers_to_a_node_keeps_it_from_an_operator(void **state)
{
    (void)state;
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], 10), SHOAL_OK);
    refers.shards = UINT64_MAX;
    refers.names = 1;
    refused(peers[0], SHOAL_EBUSY);
    refers.names = 0;
    refers.ranges = 1;
    refused(peers[0], SHOAL_EBUSY);
    refers.ranges = 0;
    refers.zones = 1;
    refused(peers[0], SHOAL_EBUSY);
    refers.zones = 0;
    refers.shards = UINT64_MAX - 1;
    uint64_t asked_ns = now_ns;
    unsigned before = refers.count;
    refused(peers[0], SHOAL_EBUSY);
    assert_true(now_ns >= asked_ns + FAILURE);
    assert_true(refers.count >= before + 10);
    wish(peers[0]);
    now_ns += HEARTBEAT;
    (void)sh_superpeer_forget_step(&superpeer, now_ns);
    carry();
    (void)sh_superpeer_forget_step(&superpeer, now_ns);
    refers.shards = UINT64_MAX;
    wish_wait();
    assert_int_equal(decided(SH_COMMAND_FORGET, peers[0]), 1);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, forget_setup, forget_teardown)
    const struct CMUnitTest tests[] = {
        CASE(who_is_gone_for_long_is_forgotten),
        CASE(what_refers_to_a_node_keeps_it),
        CASE(who_failed_is_given_up),
        CASE(a_lack_of_ids_hurries),
        CASE(only_a_leader_that_knows_forgets),
        CASE(what_an_operator_may_forget),
        CASE(what_refers_to_a_node_keeps_it_from_an_operator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
