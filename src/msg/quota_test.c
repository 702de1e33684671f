/* Slow handlers of one connection delay nobody else: works are left to the others. */
#include "msg/msg_edges_test.h"

#define TYPE_SLOW SH_MSG_TYPE(9, 7)

static unsigned slow_run;

static void on_slow(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)in;
    slow_run++;
}

/* Everything but handler steps. */
static void transports_run(void)
{
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned i = 0; i < ends_count; i++) {
            (void)ends[i].transport.run(ends[i].msg);
            for (sh_link link = 0; link < ends[i].memwire.count; link++) {
                if (ends[i].memwire.links[link].was_opened_by_us)
                    pipe_add(&ends[i], link);
            }
        }
        for (unsigned i = 0; i < pipes_count; i++)
            (void)pipe_run(&pipes[i]);
    }
}

static unsigned flood(struct end *from, sh_msg_type type)
{
    unsigned sent = 0;
    for (unsigned round = 0; round < 100; round++) {
        while (sent < 6000 && tell(from, 2, type, 0, 8) == SHOAL_OK)
            sent++;
        transports_run();
    }
    return sent;
}

static void flood_leaves_some(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2), *c = end_open(3), *d = end_open(4);
    struct asked asked;
    knows(a, b, 2);
    knows(c, b, 2);
    knows(d, b, 2);
    slow_run = 0;
    sh_msg_handler_set(b->msg, TYPE_SLOW, SH_MSG_POOLED, on_slow, NULL);
    unsigned sent = flood(a, TYPE_SLOW);
    assert_true(sent > SH_WORKS_MAX);
    size_t left = sh_queue_count(b->msg->works_free);
    assert_in_range(left, SH_WORKS_MAX / 2 - 1, SH_WORKS_MAX / 2 + 1);
    /* Another one, which has a pooled message before its inline ones. */
    assert_int_equal(tell(c, 2, TYPE_SLOW, 0, 8), SHOAL_OK);
    assert_int_equal(ask(c, 2, TYPE_ECHO, 7, &asked), SHOAL_OK);
    transports_run();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.first, 7);
    assert_int_equal(sh_queue_count(b->msg->works_free), left - 1);
    /* And a third, beside two that flood. */
    sent += flood(c, TYPE_SLOW) + 1;
    assert_true(sh_queue_count(b->msg->works_free) > SH_WORKS_MAX / 4 - 2);
    assert_int_equal(tell(d, 2, TYPE_SLOW, 0, 8), SHOAL_OK);
    assert_int_equal(ask(d, 2, TYPE_ECHO, 8, &asked), SHOAL_OK);
    transports_run();
    assert_int_equal(asked.first, 8);
    assert_int_equal(slow_run, 0);
    run_all();
    assert_int_equal(slow_run, sent + 1);
    assert_true(works_are_free(b));
    for (uint16_t nid = 1; nid <= 4; nid++) {
        const struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){nid});
        assert_true(!conn || atomic_load(&conn->works) == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(flood_leaves_some, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
