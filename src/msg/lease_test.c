/* An end whose lease has run out serves nobody, sends nothing of what it made before, and serves
 * again under the next lease; messages of a node that was fenced are refused until it knows. */
#include "msg/msg_edges_test.h"

static struct end *a, *b;

static void open_two(void)
{
    a = end_open(1);
    b = end_open(2);
    knows(a, b, 2);
    knows(b, a, 1);
    sh_msg_leased_set(b->msg, TYPE_ECHO, true);
    sh_msg_leased_set(b->msg, TYPE_POOLED, true);
    sh_msg_leased_set(b->msg, TYPE_ORDERED, true);
}

static enum shoal_err asked_for(struct end *from, uint16_t to, sh_msg_type type)
{
    struct asked asked;
    assert_int_equal(ask(from, to, type, 7, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.done, 1);
    return asked.err;
}

static uint64_t fenced_of(const struct end *end)
{
    struct sh_msg_stats stats;
    sh_msg_stats_get(end->msg, &stats);
    return stats.fenced;
}

static uint64_t fences_of(const struct end *end)
{
    struct sh_msg_stats stats;
    sh_msg_stats_get(end->msg, &stats);
    return stats.fences;
}

static void serves_under_a_lease_only(void **state)
{
    (void)state;
    open_two();
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK); /* none is needed before the first */
    sh_msg_lease_set(b->msg, b->memwire.now_ns + 2 * SECOND);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    assert_int_equal(a->losses, 0);
    pass(SECOND);
    assert_int_equal(asked_for(a, 2, TYPE_POOLED), SHOAL_OK);
    pass(SECOND);
    assert_int_equal(a->losses, 1);
    assert_true(sh_msg_is_fenced(b->msg));
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    assert_int_equal(asked_for(a, 2, TYPE_POOLED), SHOAL_EFENCED);
    assert_int_equal(fenced_of(b), 2);
    assert_int_equal(fences_of(b), 1);
    /* One-way ones are dropped. */
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 99, 8), SHOAL_OK);
    run_all();
    assert_int_equal(b->ordered, 0);
    assert_true(works_are_free(b));
    /* What needs no lease goes on, and so does what this end asks others. */
    struct asked asked;
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
    run_all();
    answer(b, b->held[0], 5);
    run_all();
    assert_int_equal(asked.first, 5);
    assert_int_equal(asked_for(b, 1, TYPE_ECHO), SHOAL_OK);
    sh_msg_lease_set(b->msg, b->memwire.now_ns + 2 * SECOND);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    assert_int_equal(a->losses, 1);
    assert_false(sh_msg_is_fenced(b->msg));
    assert_int_equal(fences_of(b), 1);
    pass(2 * SECOND);
    assert_int_equal(fences_of(b), 2);
}

/* A process that is stopped between the handler and the wire, and goes on when its lease is over.
 */
static void answers_of_before_are_not_sent(void **state)
{
    (void)state;
    open_two();
    struct asked asked;
    sh_msg_lease_set(b->msg, b->memwire.now_ns + SECOND);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(b->held_count, 1);
    answer(b, b->held[0], 5);
    b->memwire.now_ns += 2 * SECOND;
    run_all();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
    /* Nor those that are made later: the connection is another one by then. */
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(b->held_count, 2);
    sh_msg_lease_set(b->msg, b->memwire.now_ns + SECOND);
    run_all();
    b->memwire.now_ns += SECOND;
    run_all();
    struct sh_out out;
    assert_int_equal(sh_msg_reply(b->msg, b->held[1], TYPE_SILENT, 8, &out), SHOAL_ECONNLOST);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
}

/* A wire under which the process is stopped inside a push; when it goes on, a handler thread that
 * was about to answer does so before the transport thread gets any further. */
static struct sh_wire_ops stopping_ops;
static const struct sh_wire_ops *usual_ops;
static unsigned pushes_left; /* until it is stopped; 0: not any more */

static size_t stopping_push(struct sh_wire *wire, sh_link link, struct sh_bytes bytes)
{
    size_t taken = usual_ops->push(wire, link, bytes);
    if (bytes.size > SH_MSG_HEADER_BYTES && pushes_left && --pushes_left == 0) {
        b->memwire.now_ns += 2 * SECOND;
        answer(b, b->held[1], 6);
    }
    return taken;
}

static void answers_made_during_a_push_are_not_sent(void **state)
{
    (void)state;
    open_two();
    struct asked first, second;
    sh_msg_lease_set(b->msg, b->memwire.now_ns + SECOND);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &first), SHOAL_OK);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 2, &second), SHOAL_OK);
    run_all();
    assert_int_equal(b->held_count, 2);
    usual_ops = b->memwire.wire.ops;
    stopping_ops = *usual_ops;
    stopping_ops.push = stopping_push;
    b->memwire.wire.ops = &stopping_ops;
    pushes_left = 1;
    answer(b, b->held[0], 5);
    run_all();
    b->memwire.wire.ops = usual_ops;
    assert_int_equal(pushes_left, 0);
    assert_int_equal(first.err, SHOAL_OK);
    assert_int_equal(first.first, 5);
    assert_int_equal(second.done, 1);
    assert_int_equal(second.err, SHOAL_ECONNLOST);
    assert_int_equal(a->losses, 1);
}

/* A handler step that comes to its message when the lease is over does not handle it. */
static void waiting_messages_are_refused(void **state)
{
    (void)state;
    open_two();
    assert_int_equal(asked_for(a, 2, TYPE_POOLED), SHOAL_OK);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++) {
        (void)a->transport.run(a->msg);
        (void)b->transport.run(b->msg);
        for (unsigned j = 0; j < pipes_count; j++)
            (void)pipe_run(&pipes[j]);
    }
    assert_false(works_are_free(b));
    sh_msg_lease_set(b->msg, b->memwire.now_ns);
    (void)b->transport.run(b->msg);
    run_all();
    assert_int_equal(b->ordered, 0);
    assert_true(works_are_free(b));
}

/* Those that carry nothing that needs a lease. */
static void some_connections_are_kept(void **state)
{
    (void)state;
    open_two();
    sh_msg_lease_spare(b->msg, (shoal_nid){1});
    sh_msg_lease_set(b->msg, b->memwire.now_ns + SECOND);
    struct end *c = end_open(3);
    knows(c, b, 2);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    assert_int_equal(asked_for(c, 2, TYPE_ECHO), SHOAL_OK);
    pass(SECOND);
    assert_int_equal(a->losses, 0);
    assert_int_equal(c->losses, 1);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
}

static void old_epochs_are_refused(void **state)
{
    (void)state;
    open_two();
    sh_msg_epoch_set(a->msg, 5);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    sh_msg_node_fence(b->msg, (shoal_nid){1}, 7);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    assert_int_equal(asked_for(a, 2, TYPE_POOLED), SHOAL_EFENCED);
    sh_msg_epoch_set(a->msg, 6);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    assert_true(a->losses == 0 && b->losses == 0);
    /* A new connection makes no difference, whoever opens it. */
    cut(a, b);
    run_all();
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    /* Others are not meant. */
    struct end *c = end_open(3);
    knows(c, b, 2);
    assert_int_equal(asked_for(c, 2, TYPE_ECHO), SHOAL_OK);
    sh_msg_epoch_set(a->msg, 7);
    /* What is in the ring already keeps its mark; the epoch is behind it. */
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    /* The first message of a connection is marked already. */
    cut(a, b);
    run_all();
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    /* An epoch alone is not worth a message. */
    struct sh_msg_stats stats, after;
    sh_msg_stats_get(a->msg, &stats);
    sh_msg_epoch_set(a->msg, 8);
    run_all();
    sh_msg_stats_get(a->msg, &after);
    assert_true(after.messages_out == stats.messages_out);
    /* Neither goes back. */
    sh_msg_epoch_set(a->msg, 3);
    sh_msg_node_fence(b->msg, (shoal_nid){1}, 2);
    for (unsigned i = 0; i < 3; i++) /* the epoch would be told behind the first */
        assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    /* One that was told is not told again. */
    sh_msg_stats_get(a->msg, &stats);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    sh_msg_stats_get(a->msg, &after);
    assert_int_equal(after.messages_out, stats.messages_out + 1);
    sh_msg_node_fence(b->msg, (shoal_nid){1}, 9);
    sh_msg_node_fence(b->msg, (shoal_nid){1}, 2);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
}

/* Before its first lease nobody expects anything of an end: that is no fence. */
static void the_first_lease_is_waited_for(void **state)
{
    (void)state;
    open_two();
    sh_msg_lease_set(b->msg, 0);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_EFENCED);
    assert_true(sh_msg_is_fenced(b->msg));
    assert_int_equal(fences_of(b), 0);
    sh_msg_lease_set(b->msg, b->memwire.now_ns + SECOND);
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    pass(SECOND);
    assert_int_equal(fences_of(b), 1);
    sh_msg_lease_set(b->msg, SH_NEVER); /* it needs none any more */
    assert_int_equal(asked_for(a, 2, TYPE_ECHO), SHOAL_OK);
    assert_false(sh_msg_is_fenced(b->msg));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(serves_under_a_lease_only, close_all),
        cmocka_unit_test_teardown(answers_of_before_are_not_sent, close_all),
        cmocka_unit_test_teardown(answers_made_during_a_push_are_not_sent, close_all),
        cmocka_unit_test_teardown(waiting_messages_are_refused, close_all),
        cmocka_unit_test_teardown(some_connections_are_kept, close_all),
        cmocka_unit_test_teardown(old_epochs_are_refused, close_all),
        cmocka_unit_test_teardown(the_first_lease_is_waited_for, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
