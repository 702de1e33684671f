/* Which handler steps are woken: one for a work, another only when the first has come and left some
 * behind, and none when all are busy. */
#include "msg/msg_edges_test.h"

#define TYPE_NESTED SH_MSG_TYPE(9, 8)
#define STEPS 3

static unsigned woken[STEPS], run_count;
static struct sh_step steps[STEPS];
static unsigned nested_next; /* a handler runs this step inside, as if its thread were slow */

static void wake_one(void *arg, unsigned handler)
{
    (void)arg;
    assert_true(handler < STEPS);
    woken[handler]++;
}

static void on_nested(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)in;
    run_count++;
    if (nested_next > 0 && nested_next < STEPS) {
        const struct sh_step *step = &steps[nested_next++];
        (void)step->run(step->arg);
    }
}

static struct end *open_two(struct end **from_out)
{
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    b->msg->config.wake_handler = wake_one;
    steps[0] = b->handlers;
    for (unsigned i = 1; i < STEPS; i++)
        steps[i] = sh_msg_handler_step(b->msg);
    sh_msg_handler_set(b->msg, TYPE_NESTED, SH_MSG_POOLED, on_nested, b);
    assert_int_equal(tell(a, 2, TYPE_NESTED, 0, 8), SHOAL_OK);
    nested_next = 0;
    run_all();
    memset(woken, 0, sizeof woken);
    run_count = 0;
    *from_out = a;
    return b;
}

/* Carries some messages to b, whose handlers rest. */
static void send_some(struct end *a, struct end *b, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(tell(a, 2, TYPE_NESTED, 0, 8), SHOAL_OK);
    for (unsigned round = 0; round < 5; round++) {
        (void)a->transport.run(a->msg);
        (void)pipe_run(&pipes[0]);
        (void)b->transport.run(b->msg);
    }
}

static void one_is_woken(void **state)
{
    (void)state;
    struct end *a, *b = open_two(&a);
    send_some(a, b, 10);
    assert_int_equal(woken[0], 1);
    assert_int_equal(woken[1] + woken[2], 0);
    send_some(a, b, 10); /* it has not come yet */
    assert_int_equal(woken[0], 1);
    /* It comes, sees that there is more than one, and calls the next. */
    assert_int_equal(steps[0].run(steps[0].arg), 20);
    assert_int_equal(run_count, 20);
    assert_int_equal(woken[0], 1);
    assert_int_equal(woken[1], 1);
    assert_int_equal(woken[2], 0);
    assert_int_equal(steps[1].run(steps[1].arg), 0);
    send_some(a, b, 1);
    assert_int_equal(woken[0], 2);
    assert_int_equal(steps[0].run(steps[0].arg), 1);
    assert_int_equal(woken[1], 1); /* a single one needs no other */
}

/* While one is in a slow handler the next is called for what comes, or for what it left. */
static void slow_ones_are_joined(void **state)
{
    (void)state;
    struct end *a, *b = open_two(&a);
    send_some(a, b, 3);
    nested_next = 1;
    assert_int_equal(steps[0].run(steps[0].arg), 1); /* 1 and 2 ran inside its first handler */
    assert_int_equal(run_count, 3);
    assert_int_equal(woken[0], 1);
    assert_int_equal(woken[1], 1);
    assert_int_equal(nested_next, STEPS);
    assert_int_equal(atomic_load(&b->msg->handlers_idle), 7);
    (void)steps[1].run(steps[1].arg);
    (void)steps[2].run(steps[2].arg);
    assert_int_equal(atomic_load(&b->msg->handler_called), 0);
    assert_true(works_are_free(b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(one_is_woken, close_all),
        cmocka_unit_test_teardown(slow_ones_are_joined, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
