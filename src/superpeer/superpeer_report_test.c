/* What a superpeer says of itself, in pieces: shards are many, and its other steps wait. */
#include "superpeer/superpeer_rig_test.h"

#include "cluster/report.h"
#include "superpeer/superpeer_ring_int.h"

static struct sh_superpeer_ring part;
static struct sh_request request;
static struct sh_report report;
static enum shoal_err answer_err;
static unsigned answers;

static void consensus_report(const struct sh_consensus *consensus, struct sh_report *report_out)
{
    (void)consensus;
    report_out->kind = SH_REPORT_MEMORY;
}

static const struct sh_consensus_ops report_ops = {.is_current = is_current,
                                                   .report = consensus_report};

static int report_setup(void **state)
{
    struct sh_ring_config config = {
        .server = OWN, .resend_ns = S, .patience_ns = S, .entries_kept = 1, .piece_bytes = 64};
    setup(state);
    agreed.base.ops = &report_ops;
    answers = 0;
    part = (struct sh_superpeer_ring){.superpeer = &superpeer};
    assert_int_equal(sh_metadata_create(&part.metadata), SHOAL_OK);
    assert_int_equal(sh_ring_create(&config, &part.ring), SHOAL_OK);
    superpeer.ring = &part;
    sh_superpeer_report_handler(&superpeer);
    return 0;
}

static int report_teardown(void **state)
{
    agreed.base.ops = &ops;
    teardown(state); /* ends what is not over */
    sh_ring_destroy(part.ring);
    sh_metadata_destroy(part.metadata);
    return 0;
}

static void on_answer(struct sh_request *answered, enum shoal_err err, struct sh_reader *payload)
{
    (void)answered;
    answer_err = err ? err : sh_report_get(payload, &report);
    answers++;
}

static void ask(void)
{
    struct sh_out out;
    request = (struct sh_request){.done = on_answer};
    assert_int_equal(sh_msg_request(other, (shoal_nid){OWN}, SH_CLUSTER_REPORT, 0, &request, &out),
                     SHOAL_OK);
    sh_msg_end(other, &out);
}

/* The superpeer's transport step has a message that is handled in pieces: it is due at once. */
static bool is_at_work(void)
{
    return steps[0].due_ns(steps[0].arg) == 0;
}

/* Asks, and lets the steps run until a part of the answer is made. */
static void ask_until_at_work(void)
{
    ask();
    for (unsigned i = 0; i < ROUNDS_MAX && !is_at_work(); i++) {
        for (unsigned k = 0; k < 4; k++)
            (void)steps[k].run(steps[k].arg);
    }
    assert_true(is_at_work());
}

static void test_no_step_looks_at_all_shards(void **state)
{
    (void)state;
    unsigned rounds = 0;
    ask();
    for (unsigned i = 0; i < ROUNDS_MAX && answers == 0; i++) {
        for (unsigned k = 0; k < 4; k++)
            (void)steps[k].run(steps[k].arg);
        rounds += is_at_work();
    }
    assert_int_equal(answers, 1);
    assert_int_equal(answer_err, SHOAL_OK);
    assert_in_range(rounds, SH_SHARDS / 8 - 1, SH_SHARDS);
    assert_int_equal(report.nid.v, OWN);
    assert_int_equal(report.shard_count, SH_SHARDS);
    assert_int_equal(report.present, UINT64_C(1) << OWN);
    const struct sh_arcs *arcs = sh_registry_arcs(superpeer.registry);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        assert_int_equal(report.shards[i].owner, arcs->shards[i].owner);
        assert_int_equal(report.shards[i].replicas, arcs->shards[i].replicas);
    }
}

/* The process ends while an answer is being made: nothing leaks. */
static void test_cut_short(void **state)
{
    (void)state;
    ask_until_at_work();
    assert_int_equal(answers, 0);
}

/* The superpeer finds out that it has no part in the registry, and closes its ring. */
static void test_the_ring_is_closed_meanwhile(void **state)
{
    (void)state;
    ask_until_at_work();
    superpeer.ring = NULL;
    carry();
    assert_int_equal(answers, 1);
    assert_int_equal(answer_err, SHOAL_OK);
    assert_int_equal(report.shard_count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_step_looks_at_all_shards, report_setup,
                                        report_teardown),
        cmocka_unit_test_setup_teardown(test_cut_short, report_setup, report_teardown),
        cmocka_unit_test_setup_teardown(test_the_ring_is_closed_meanwhile, report_setup,
                                        report_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
