/* The commands that superpeers agree on, and the requests that wait for them, rule by rule. */
#include "superpeer/superpeer_rig_test.h"

#define PENDING_MAX 4096
#define RESEND (100 * MS)

/* --- Requests of the other superpeer's node --------------------------------------------------------- */

struct asked {
    struct sh_request request;
    bool is_done;
    enum shoal_err err;
};

static struct asked asks[PENDING_MAX + 2];
static unsigned asks_count;

static void asked_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    (void)payload;
    asked->is_done = true;
    asked->err = err;
}

static const struct sh_traits traits = {.keeps_replicas = true, .domains = {"m1", "r1", ""}};

/* u64 instance; 0: a LEAVE of the first peer. */
static void on_asked(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    uint64_t instance = sh_get64(&in->payload);
    if (instance)
        sh_superpeer_shared_join(&superpeer, in, sh_bytes_text("loop:new"), instance,
                                 SHOAL_NID_NONE, false, &traits);
    else
        sh_superpeer_shared_leave(&superpeer, in, peers[0], 10, 0);
}

static struct asked *ask_begin(uint64_t instance)
{
    struct sh_out out;
    assert_true(asks_count < PENDING_MAX + 2);
    struct asked *asked = &asks[asks_count++];
    *asked = (struct asked){.request = {.done = asked_done, .arg = asked, .timeout_ns = 1000 * S}};
    assert_int_equal(
        sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_JOIN, 8, &asked->request, &out),
        SHOAL_OK);
    sh_put64(&out.w, instance);
    sh_msg_end(other, &out);
    return asked;
}

static struct asked *ask(uint64_t instance)
{
    struct asked *asked = ask_begin(instance);
    carry();
    return asked;
}

static int commands_setup(void **state)
{
    (void)setup(state);
    asks_count = 0;
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_JOIN, SH_MSG_INLINE, on_asked, NULL);
    lead();
    return 0;
}

/* The last command that was proposed is carried out. */
static void last_is_applied(void)
{
    assert_true(agreed.last_size > 0);
    sh_shared_apply(&superpeer, sh_bytes_make(agreed.last, agreed.last_size), false);
    carry();
}

static void pending_pass(uint64_t duration_ns)
{
    now_ns += duration_ns;
    (void)sh_shared_pending_step(&superpeer, now_ns);
    carry();
}

/* --- Requests that wait ------------------------------------------------------------------------ */

static void a_join_is_handed_in_until_it_is_done(void **state)
{
    (void)state;
    const struct asked *asked = ask(77);
    assert_int_equal(agreed.count, 1);
    pending_pass(RESEND - 1);
    assert_int_equal(agreed.count, 1);
    pending_pass(1);
    assert_int_equal(agreed.count, 2);
    assert_false(asked->is_done);
    last_is_applied();
    assert_true(asked->is_done);
    assert_int_equal(asked->err, SHOAL_OK);
    pending_pass(2 * RESEND);
    assert_int_equal(agreed.count, 2);
    assert_false(sh_shared_is_pending(&superpeer, agreed.decided[0].number));
}

/* Whatever the leader decided of the peer since it asked comes after that. */
static void a_join_counts_from_its_request(void **state)
{
    (void)state;
    (void)ask(77);
    now_ns += 50 * MS;
    agreed.leads = false;
    sh_shared_lease_step(&superpeer, now_ns);
    last_is_applied();
    shoal_nid nid = {(uint16_t)(peers[1].v + 1)};
    assert_non_null(sh_view_find(sh_registry_view(superpeer.registry), nid));
    assert_int_equal(lease_of(nid), LEASE - 50 * MS);
}

static void nobody_waits_for_ever(void **state)
{
    (void)state;
    const struct asked *asked = ask(77);
    pending_pass(FAILURE - 1);
    assert_false(asked->is_done);
    pending_pass(1);
    assert_true(asked->is_done);
    assert_int_equal(asked->err, SHOAL_EBUSY);
    unsigned count = agreed.count;
    pending_pass(2 * RESEND);
    assert_int_equal(agreed.count, count);
}

static void what_waits_is_bounded(void **state)
{
    (void)state;
    for (unsigned i = 0; i < PENDING_MAX; i++) {
        (void)ask_begin(1000 + i);
        if (i % DECIDED_MAX != DECIDED_MAX - 1)
            continue;
        carry();
        agreed.count = 0;
    }
    for (unsigned i = 0; i < PENDING_MAX; i++)
        assert_false(asks[i].is_done);
    const struct asked *asked = ask(7);
    assert_true(asked->is_done);
    assert_int_equal(asked->err, SHOAL_EBUSY);
    agreed.count = 0;
    last_is_applied(); /* which makes room */
    assert_false(ask(8)->is_done);
}

/* Who wanted to join over a connection that has ended may be dead, and another process in its place. */
static void joins_end_with_their_connection(void **state)
{
    (void)state;
    (void)ask(77);
    (void)ask(0);
    uint64_t join = agreed.decided[0].number, leave = agreed.decided[1].number;
    sh_superpeer_shared_lost(&superpeer, (shoal_nid){THIRD});
    assert_true(sh_shared_is_pending(&superpeer, join) && sh_shared_is_pending(&superpeer, leave));
    sh_superpeer_shared_lost(&superpeer, (shoal_nid){OTHER});
    assert_false(sh_shared_is_pending(&superpeer, join));
    assert_true(sh_shared_is_pending(&superpeer, leave));
    pending_pass(RESEND);
    assert_int_equal(agreed.count, 3);
    assert_int_equal(agreed.decided[2].kind, SH_COMMAND_LEAVE);
}

/* --- What is handed in --------------------------------------------------------------------------- */

static void fail_hand_in(shoal_nid nid, bool is_dead)
{
    struct sh_command command = {
        .kind = SH_COMMAND_FAIL, .state = is_dead, .nid = nid, .instance = 10};
    sh_shared_decide(&superpeer, &command);
}

/* Who may have a lease is not called failed; and who is about to be gets none. */
static void failures_are_looked_at_by_the_leader(void **state)
{
    (void)state;
    fail_hand_in(peers[0], false); /* it leads since a moment ago */
    assert_int_equal(agreed.count, 0);
    assert_false(sh_shared_is_doomed(&superpeer, peers[0]));
    fail_hand_in(peers[0], true);
    assert_int_equal(agreed.count, 1);
    assert_true(sh_shared_is_doomed(&superpeer, peers[0]));
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    fail_hand_in(peers[0], true); /* it may be about to join by now */
    assert_int_equal(agreed.count, 1);
}

/* A peer that joins once more gets a lease, so what was silence is none any more. */
static void who_joins_again_is_heard(void **state)
{
    (void)state;
    now_ns += FAILURE;
    lead();
    superpeer.shared->led_since_ns = now_ns - FAILURE;
    superpeer.shared->watched_ns = now_ns;
    assert_true(sh_shared_may_fail(&superpeer, peers[0], false));
    (void)ask(10); /* its instance */
    assert_false(sh_shared_may_fail(&superpeer, peers[0], false));
    assert_true(sh_shared_may_fail(&superpeer, peers[1], false));
}

/* Nothing is told of a cluster before its superpeers are in the view. */
static void strangers_come_first(void **state)
{
    (void)state;
    agreed.members = 1u << 5;
    (void)ask(77);
    assert_int_equal(agreed.count, 0);
    struct sh_command command = {.kind = SH_COMMAND_SUPERPEER,
                                 .nid = {5},
                                 .instance = 5,
                                 .address = sh_bytes_text("loop:fifth")};
    sh_shared_decide(&superpeer, &command);
    assert_int_equal(agreed.count, 1);
    last_is_applied();
    pending_pass(RESEND);
    assert_int_equal(agreed.decided[agreed.count - 1].kind, SH_COMMAND_JOIN);
}

/* --- What is carried out -------------------------------------------------------------------------- */

/* Another life may have the ID by now. */
static void a_failure_is_of_one_instance(void **state)
{
    (void)state;
    struct sh_command command = {.kind = SH_COMMAND_FAIL, .nid = peers[0], .instance = 11};
    shoal_nid nid;
    assert_int_equal(sh_shared_carry_out(&superpeer, superpeer.registry, &command, &nid), SHOAL_OK);
    assert_true(sh_registry_watches(superpeer.registry, peers[0]));
    command.instance = 10;
    assert_int_equal(sh_shared_carry_out(&superpeer, superpeer.registry, &command, &nid), SHOAL_OK);
    assert_false(sh_registry_watches(superpeer.registry, peers[0]));
}

/* What was decided of a peer that then stopped, to be back, leaves it away; when it is late the leader says so, without asking who may have heard it. */
static void a_peer_is_away_until_it_is_late(void **state)
{
    (void)state;
    uint8_t bytes[64];
    struct sh_command command = {
        .kind = SH_COMMAND_LEAVE, .nid = peers[0], .instance = 10, .back_ms = 5000};
    struct sh_command got;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_command_put(&w, &command);
    struct sh_bytes stored = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    assert_true(sh_command_get(stored, &got));
    assert_int_equal(got.back_ms, 5000);
    assert_false(sh_command_get(sh_bytes_make(bytes, stored.size - 1), &got));
    sh_store32(bytes + stored.size - 4, SH_BACK_MS_MAX + 1);
    assert_false(sh_command_get(stored, &got));
    sh_store32(bytes + stored.size - 4, 5000);
    sh_shared_apply(&superpeer, stored, false);
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer.registry), peers[0]);
    assert_int_equal(node->state, SH_NODE_AWAY);
    command = (struct sh_command){.kind = SH_COMMAND_FAIL, .nid = peers[0], .instance = 10};
    for (command.state = 0; command.state <= SH_COMMAND_FAIL_DEAD; command.state++) {
        assert_int_equal(
            sh_shared_carry_out(&superpeer, superpeer.registry, &command, &command.nid), SHOAL_OK);
        assert_int_equal(node->state, SH_NODE_AWAY);
    }
    agreed.count = 0;
    command.state = SH_COMMAND_FAIL_LATE;
    sh_shared_decide(&superpeer, &command);
    assert_int_equal(agreed.count, 1);
    last_is_applied();
    assert_int_equal(node->state, SH_NODE_FAILED);
}

/* Logs of before have the returns of failed peers, and a count of these in what they forget: all superpeers pass over
 * both alike. */
static void returns_of_before_are_passed_over(void **state)
{
    (void)state;
    uint8_t bytes[64], count[8] = {1, 2, 3};
    for (unsigned i = 0; i < 2; i++) {
        struct sh_command command = {
            .kind = i ? SH_COMMAND_FORGET : 4, .nid = peers[0], .instance = 10};
        command.address = sh_bytes_make(count, i ? sizeof count : 0);
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_command_put(&w, &command);
        sh_registry_fail(superpeer.registry, peers[0], "a test");
        sh_shared_apply(&superpeer, sh_bytes_make(bytes, (size_t)(w.at - bytes)), true);
        const struct sh_node *node = sh_view_find(sh_registry_view(superpeer.registry), peers[0]);
        assert_true(i ? !node : node && node->state == SH_NODE_FAILED);
    }
}

/* A force that names nobody is no command, whoever has handed it in: the registry would have to take it
 * for a mistake of its own. */
static void nobody_forces_nothing(void **state)
{
    (void)state;
    uint8_t bytes[64];
    struct sh_command command = {.kind = SH_COMMAND_FORCE, .nid = {OWN}, .instance = 7}, got;
    for (unsigned is_none = 0; is_none < 2; is_none++) {
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        command.instance = is_none ? 0 : 7;
        sh_command_put(&w, &command);
        struct sh_bytes stored = sh_bytes_make(bytes, (size_t)(w.at - bytes));
        assert_int_equal(sh_command_get(stored, &got), !is_none);
        if (is_none)
            sh_shared_apply(&superpeer, stored, false);
    }
}

/* An entry of before the start does not replace an address that a HERE has brought since. */
static void old_addresses_are_not_news(void **state)
{
    (void)state;
    struct sh_shared *shared = superpeer.shared;
    struct sh_command command = {
        .kind = SH_COMMAND_SUPERPEER, .nid = {OTHER}, .address = sh_bytes_text("loop:before")};
    uint8_t bytes[128];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_command_put(&w, &command);
    struct sh_bytes entry = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    sh_shared_apply(&superpeer, entry, true); /* nothing else was heard */
    assert_string_equal(shared->contacts[OTHER], "loop:before");
    memcpy(shared->contacts[OTHER], "loop:heard", 11);
    sh_shared_apply(&superpeer, entry, true);
    assert_string_equal(shared->contacts[OTHER], "loop:heard");
    sh_shared_apply(&superpeer, entry, false);
    assert_string_equal(shared->contacts[OTHER], "loop:before");
}

/* The registry's node at loop:new, after the superpeer has carried out a JOIN of these bytes. */
static const struct sh_node *applied_join(struct sh_bytes bytes)
{
    sh_shared_apply(&superpeer, bytes, false);
    const struct sh_view *view = sh_registry_view(superpeer.registry);
    const struct sh_node *found = NULL;
    for (size_t i = 0; i < view->count; i++)
        if (strcmp(view->nodes[i].address, "loop:new") == 0)
            found = &view->nodes[i];
    return found;
}

/* A JOIN has the peer's traits; one of before, which has none, is carried out as it was. */
static void joins_have_traits(void **state)
{
    (void)state;
    uint8_t bytes[128];
    struct sh_command got;
    struct sh_command command = {
        .kind = SH_COMMAND_JOIN, .instance = 77, .address = sh_bytes_text("loop:new")};
    static const uint8_t of_before[] = {1, 0, 0,   0,   0,   0,   0,   0,   0,   0,
                                        0, 0, 77,  0,   0,   0,   0,   0,   0,   0,
                                        8, 0, 'l', 'o', 'o', 'p', ':', 'n', 'e', 'w'};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_command_put(&w, &command);
    assert_int_equal((size_t)(w.at - bytes), sizeof of_before);
    assert_memory_equal(bytes, of_before, sizeof of_before);
    assert_true(sh_command_get(sh_bytes_make(of_before, sizeof of_before), &got));
    assert_false(got.has_traits);
    const struct sh_node *node = applied_join(sh_bytes_make(of_before, sizeof of_before));
    assert_non_null(node);
    assert_false(node->traits.keeps_replicas);

    for (unsigned is_restart = 0; is_restart < 2; is_restart++) {
        command.state = (uint8_t)is_restart;
        command.has_traits = true;
        command.traits = traits;
        w = sh_writer_make(bytes, sizeof bytes);
        sh_command_put(&w, &command);
        assert_true(sh_command_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), &got));
        assert_int_equal(got.state, is_restart);
        assert_true(got.has_traits && sh_traits_are_equal(&got.traits, &traits));
        assert_false(sh_command_get(sh_bytes_make(bytes, (size_t)(w.at - bytes) - 1), &got));
    }
    bytes[1] = 2; /* no restart */
    node = applied_join(sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    assert_true(sh_traits_are_equal(&node->traits, &traits));
    bytes[1] = 4 | 2;
    assert_false(sh_command_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), &got));
}

/* The traits of a request are in the command that the others agree on. */
static void requests_hand_traits_in(void **state)
{
    (void)state;
    (void)ask(50);
    const struct sh_command *command = &agreed.decided[agreed.count - 1];
    assert_int_equal(command->kind, SH_COMMAND_JOIN);
    assert_true(command->has_traits && sh_traits_are_equal(&command->traits, &traits));
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, commands_setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_join_is_handed_in_until_it_is_done),
        CASE(a_join_counts_from_its_request),
        CASE(nobody_waits_for_ever),
        CASE(what_waits_is_bounded),
        CASE(joins_end_with_their_connection),
        CASE(failures_are_looked_at_by_the_leader),
        CASE(who_joins_again_is_heard),
        CASE(strangers_come_first),
        CASE(a_failure_is_of_one_instance),
        CASE(a_peer_is_away_until_it_is_late),
        CASE(returns_of_before_are_passed_over),
        CASE(nobody_forces_nothing),
        CASE(old_addresses_are_not_news),
        CASE(joins_have_traits),
        CASE(requests_hand_traits_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
