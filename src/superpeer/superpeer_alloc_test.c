/* A superpeer that can't be made for want of memory, in a process whose messaging is at work already: nothing of
 * it is called afterwards. */
#include "base/alloc_test.h"

#include "superpeer/superpeer_rig_test.h"

static enum shoal_err answered;

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)payload;
    answered = err;
}

/* Messages for whatever has a handler. */
static void say_all(void)
{
    static const sh_msg_type types[] = {SH_CLUSTER_RAFT, SH_CLUSTER_RING,    SH_CLUSTER_HERE,
                                        SH_CLUSTER_LOST, SH_CLUSTER_PROPOSE, SH_CLUSTER_DISMISSED};
    struct sh_out out;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_int_equal(sh_msg_begin(other, (shoal_nid){OWN}, types[i], 8, &out), SHOAL_OK);
        sh_put64(&out.w, 1);
        sh_msg_end(other, &out);
    }
    struct sh_request request = {.done = on_answer};
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_ASK, 0, &request, &out),
                     SHOAL_OK);
    sh_msg_end(other, &out);
    answered = SHOAL_OK;
    carry();
}

static void nothing_of_it_is_left(void **state)
{
    (void)state;
    struct sh_superpeer_config config = config_alone();
    unsigned failures = 0;
    bool has_failed = true;
    for (size_t due = 1; has_failed; due++) {
        struct sh_superpeer *made;
        alloc_fail_at(due, 1);
        enum shoal_err err = sh_superpeer_create(&config, &made);
        has_failed = alloc_fail_end();
        assert_true(!err || has_failed); /* ENOSPC: its disk is in memory */
        failures += err != SHOAL_OK;
        say_all();
        assert_int_equal(answered, err ? SHOAL_ENOTYPE : SHOAL_EPROTO);
        if (err)
            continue;
        sh_msg_handlers_drop(superpeer.msg, made);
        sh_superpeer_destroy(made);
    }
    assert_true(failures > 10);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("fatal", &bad, &bad_size) && sh_log_levels_set("error", &bad, &bad_size))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_of_it_is_left, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
