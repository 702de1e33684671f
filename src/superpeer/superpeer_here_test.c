/* What a superpeer says, and takes, of where superpeers are (HERE). */
#include "superpeer/superpeer_rig_test.h"

static struct sh_superpeer *real; /* by Raft, alone in its cluster */
static unsigned calls;            /* that the other one has had */
static uint16_t called;           /* whom the last of them was about */

static void on_here(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    calls++;
    called = sh_get16(&in->payload);
}

static void step(unsigned times)
{
    struct sh_step part = sh_superpeer_step(real);
    for (unsigned i = 0; i < times; i++) {
        now_ns += HEARTBEAT / 4;
        (void)part.run(part.arg);
        carry();
    }
}

static int here_setup(void **state)
{
    if (setup(state))
        return -1;
    calls = 0;
    sh_msg_handler_set(other, SH_CLUSTER_HERE, SH_MSG_INLINE, on_here, NULL);
    struct sh_superpeer_config config = config_alone();
    assert_int_equal(sh_superpeer_create(&config, &real), SHOAL_OK);
    step(100);
    assert_true(sh_shared_leads(real));
    return 0;
}

static int here_teardown(void **state)
{
    sh_superpeer_destroy(real);
    return teardown(state);
}

/* The other one says where it is, or another, and no time passes. */
static void say_now(uint16_t nid, uint64_t log, uint64_t life, const char *address)
{
    struct sh_out out;
    struct sh_bytes text = sh_bytes_text(address);
    assert_int_equal(
        sh_msg_begin(other, (shoal_nid){OWN}, SH_CLUSTER_HERE, SH_HERE_BYTES + text.size, &out),
        SHOAL_OK);
    sh_put16(&out.w, nid);
    sh_put64(&out.w, log);
    sh_put64(&out.w, life);
    sh_put_text(&out.w, text);
    sh_msg_end(other, &out);
    carry();
}

static void say_of(uint16_t nid, uint64_t log, uint64_t life, const char *address)
{
    say_now(nid, log, life, address);
    step(8);
}

static void say(uint64_t log, uint64_t life, const char *address)
{
    say_of(OTHER, log, life, address);
}

static const char *contact(void)
{
    return real->shared->contacts[OTHER];
}

/* Only those of this log, and no former life, say where a superpeer is. */
static void strangers_are_not_called(void **state)
{
    (void)state;
    const uint64_t life = UINT64_C(7) << 32 | 5;
    shoal_nid nid;
    say(12345, 1, "loop:stranger");
    assert_string_equal(contact(), "");
    say(0, life, "");
    say(0, life, "loop:\x1b[2J"); /* that would clear a terminal */
    assert_string_equal(contact(), "");
    say(0, life, "loop:other"); /* it has no log yet */
    assert_string_equal(contact(), "loop:other");
    assert_int_equal(sh_registry_superpeer_put(real->registry, sh_bytes_text("loop:other"), 1,
                                               (shoal_nid){OTHER}, &nid),
                     SHOAL_OK);
    assert_int_equal(sh_registry_arcs_start(real->registry, nid, life, false), SHOAL_OK);
    say(0, life ^ 1 << 8, "loop:copy");
    say(0, life - (UINT64_C(1) << 32), "loop:former");
    assert_string_equal(contact(), "loop:other");
    say(0, life + (UINT64_C(1) << 32), "loop:next");
    assert_string_equal(contact(), "loop:next");
}

/* Where a superpeer was by its disk, another was: what that one says when it has moved counts, whatever becomes
 * committed then of what the disk had. */
static void a_loaded_address_is_not_news(void **state)
{
    (void)state;
    sh_superpeer_destroy(real);
    struct sh_superpeer_config config = config_alone();
    assert_int_equal(sh_memory_disk_create(&config.env.disk), SHOAL_OK);
    assert_int_equal(sh_superpeer_create(&config, &real), SHOAL_OK);
    step(100);
    struct sh_command command = {
        .kind = SH_COMMAND_SUPERPEER, .instance = 6, .address = sh_bytes_text("loop:other")};
    sh_shared_decide(real, &command);
    step(100);
    assert_string_equal(contact(), "loop:other");
    uint64_t log = sh_registry_cluster(real->registry);
    sh_superpeer_destroy(real);
    assert_int_equal(sh_superpeer_create(&config, &real), SHOAL_OK);
    assert_string_equal(contact(), "loop:other");
    assert_null(sh_view_find(sh_registry_view(real->registry), (shoal_nid){OTHER}));
    say_now(OTHER, 0, 0, "loop:next");
    assert_null(sh_view_find(sh_registry_view(real->registry), (shoal_nid){OTHER}));
    assert_string_equal(contact(), "loop:next");
    step(100);
    assert_non_null(sh_view_find(sh_registry_view(real->registry), (shoal_nid){OTHER}));
    assert_true(sh_registry_cluster(real->registry) == log);
    assert_string_equal(contact(), "loop:next");
    sh_superpeer_destroy(real);
    config.env.disk->ops->destroy(config.env.disk);
    config.env.disk = NULL;
    assert_int_equal(sh_superpeer_create(&config, &real),
                     SHOAL_OK); /* which the teardown destroys */
}

/* One that has withdrawn leaves the others alone. */
static void the_withdrawn_does_not_call(void **state)
{
    (void)state;
    struct sh_consensus *consensus = real->shared->consensus;
    say(0, 1, "loop:other");
    assert_int_equal(calls, 0); /* it leads */
    consensus->ops->life_set(consensus, (shoal_nid){OWN}, real->life + (UINT64_C(1) << 32));
    step(200);
    assert_false(sh_shared_leads(real));
    assert_int_equal(calls, 0);
}

/* --- A third one, which leads ----------------------------------------------------------------- */

/* Of Raft's messages (docs/wire-format.md). */
#define APPEND 3
#define IN_MEMORY 128
#define HEAD_BYTES 28

static struct sh_msg *third;
static uint64_t log_id; /* of the last Raft message to it */

static void on_raft(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)sh_get32(&in->payload);
    (void)sh_get64(&in->payload); /* term */
    log_id = sh_get64(&in->payload);
}

/* An append without entries. */
static void append(uint64_t log)
{
    struct sh_out out;
    assert_int_equal(sh_msg_begin(third, (shoal_nid){OWN}, SH_CLUSTER_RAFT, HEAD_BYTES + 36, &out),
                     SHOAL_OK);
    sh_put8(&out.w, APPEND);
    sh_put8(&out.w, IN_MEMORY);
    sh_put16(&out.w, 0);
    sh_put64(&out.w, 100); /* term */
    sh_put64(&out.w, log);
    sh_put64(&out.w, UINT64_C(1) << 32 | THIRD);
    for (unsigned i = 0; i < 4; i++) /* after which entry, of which term; commit; round */
        sh_put64(&out.w, 0);
    sh_put32(&out.w, 0);
    sh_msg_end(third, &out);
    step(4);
}

/* Says where the third one is, as whoever listens at an address is spoken to. */
static void call_by(struct sh_msg *caller, uint64_t log, const char *address)
{
    struct sh_out out;
    struct sh_bytes text = sh_bytes_text(address);
    shoal_nid alias;
    assert_int_equal(sh_msg_contact(caller, "loop:own", &alias), SHOAL_OK);
    assert_int_equal(sh_msg_begin(caller, alias, SH_CLUSTER_HERE, SH_HERE_BYTES + text.size, &out),
                     SHOAL_OK);
    sh_put16(&out.w, THIRD);
    sh_put64(&out.w, log);
    sh_put64(&out.w, UINT64_C(1) << 32 | THIRD);
    sh_put_text(&out.w, text);
    sh_msg_end(caller, &out);
    step(4);
}

static void call(uint64_t log, const char *address)
{
    call_by(third, log, address);
}

static void third_open(void)
{
    sh_msg_handler_set(third = msg_open(2, THIRD), SH_CLUSTER_RAFT, SH_MSG_INLINE, on_raft, NULL);
    assert_int_equal(sh_msg_node_set(third, (shoal_nid){OWN}, "loop:own"), SHOAL_OK);
    log_id = 0;
}

static void third_close(void)
{
    sh_msg_destroy(third);
    wires[2]->ops->destroy(wires[2]);
    steps[4] = steps[5] = (struct sh_step){0};
}

/* One that comes back is told where the leader is, though that one came, and said so, while it was away. */
static void who_comes_back_is_told_of_the_leader(void **state)
{
    (void)state;
    third_open();
    say_of(THIRD, 0, 0, "loop:third");
    append(12345); /* another log's: the refusal names the right one */
    assert_true(log_id && log_id != 12345);
    append(log_id);
    assert_false(sh_shared_leads(real));
    calls = 0;
    called = 0;
    say(log_id, UINT64_C(1) << 32 | 1, "loop:other");
    assert_int_equal(called, THIRD);
    /* One that calls at an address of its list is heard if it is of this log, and nobody is where it was. */
    call(log_id, "loop:copy");
    assert_string_equal(real->shared->contacts[THIRD], "loop:third");
    memset(real->shared->contacts[THIRD], 0, SH_MSG_ADDRESS_MAX);
    call(12345, "loop:stranger");
    call(0, "loop:stranger");
    assert_string_equal(real->shared->contacts[THIRD], "");
    call(log_id, "loop:nobody");
    assert_string_equal(real->shared->contacts[THIRD], "loop:nobody");
    call(log_id, "loop:moved");
    assert_string_equal(real->shared->contacts[THIRD], "loop:moved");
    third_close();
}

static void to_third(void)
{
    uint8_t nothing = 0;
    sh_shared_send(real, (shoal_nid){THIRD}, SH_CLUSTER_RAFT, sh_bytes_make(&nothing, 1));
    step(4);
}

/* A copy of a superpeer's folder is not taken for the superpeer while that one is connected, though nobody listened
 * at its address once, nor when that one was silent for less than failure_ns. After that it has moved. */
static void a_copy_is_not_taken_for_it(void **state)
{
    (void)state;
    say_of(THIRD, 0, 0, "loop:third");
    to_third();
    assert_true(sh_msg_was_refused(real->msg, (shoal_nid){THIRD}));
    third_open();
    append(12345);
    append(log_id);
    assert_true(sh_msg_is_connected(real->msg, (shoal_nid){THIRD}));
    call_by(other, log_id, "loop:copy");
    assert_string_equal(real->shared->contacts[THIRD], "loop:third");
    step(100);
    steps[4] = steps[5] = (struct sh_step){0}; /* its host hangs */
    for (unsigned i = 0; sh_msg_is_connected(real->msg, (shoal_nid){THIRD}); i++) {
        assert_true(i < 10000);
        to_third();
    }
    uint64_t lost_ns = now_ns;
    call_by(other, log_id, "loop:copy");
    assert_string_equal(real->shared->contacts[THIRD], "loop:third");
    while (now_ns < lost_ns + FAILURE)
        step(1);
    assert_false(sh_msg_was_refused(real->msg, (shoal_nid){THIRD}));
    /* Of the time for which this superpeer itself was stopped it knows nothing. */
    now_ns += 2 * FAILURE;
    call_by(other, log_id, "loop:copy");
    assert_string_equal(real->shared->contacts[THIRD], "loop:third");
    lost_ns = now_ns;
    while (now_ns < lost_ns + FAILURE)
        step(1);
    call_by(other, log_id, "loop:moved");
    assert_string_equal(real->shared->contacts[THIRD], "loop:moved");
    third_close();
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("fatal", &bad, &bad_len) && sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(strangers_are_not_called, here_setup, here_teardown),
        cmocka_unit_test_setup_teardown(a_loaded_address_is_not_news, here_setup, here_teardown),
        cmocka_unit_test_setup_teardown(the_withdrawn_does_not_call, here_setup, here_teardown),
        cmocka_unit_test_setup_teardown(a_copy_is_not_taken_for_it, here_setup, here_teardown),
        cmocka_unit_test_setup_teardown(who_comes_back_is_told_of_the_leader, here_setup,
                                        here_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
