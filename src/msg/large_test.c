/* Large messages to many nodes at once: they share a budget, so that not all enter at once; what
 * one took comes back when it is through, lost, or stands still for too long. */
#include "msg/msg_edges_test.h"

#define LARGE (1 << 20)
#define LARGE_AT_ONCE (LARGE + LARGE / 2) /* room for one */

/* Node 1, which has connections to 2, 3 and 4 and takes part in a crowd. */
static struct end *open_crowd(void)
{
    for (uint16_t nid = 1; nid <= 4; nid++)
        (void)end_open(nid);
    for (uint16_t nid = 2; nid <= 4; nid++) {
        knows(&ends[0], &ends[nid - 1], nid);
        assert_int_equal(tell(&ends[0], nid, TYPE_ORDERED, 0, 8), SHOAL_OK);
    }
    run_all();
    for (unsigned i = 0; i < 4; i++)
        atomic_store(&ends[i].msg->share_bytes, SH_SHARE_BYTES_MIN);
    ends[0].msg->large_bytes_max = LARGE_AT_ONCE;
    return &ends[0];
}

static struct sh_memlink *link_to(struct end *end, uint16_t nid)
{
    return &end->memwire.links[sh_conn_find(end->msg, (shoal_nid){nid})->sends_on->link];
}

static void push_room_set(struct end *end, size_t room)
{
    for (uint16_t nid = 2; nid <= 4; nid++)
        link_to(end, nid)->push_room = room;
}

static enum shoal_err tell_large(struct end *end, uint16_t to, uint64_t value)
{
    return tell(end, to, TYPE_ORDERED, value, LARGE);
}

static void test_one_after_another(void **state)
{
    (void)state;
    struct end *a = open_crowd();
    push_room_set(a, 0);
    assert_int_equal(tell_large(a, 2, 1), SHOAL_OK);
    assert_int_equal(tell_large(a, 3, 1), SHOAL_EAGAIN);
    assert_false(sh_msg_has_room(a->msg, (shoal_nid){3}, LARGE));
    struct sh_waiter waiters[2] = {{0}};
    sh_msg_wait_room(a->msg, (shoal_nid){3}, LARGE, &waiters[0]);
    sh_msg_wait_room(a->msg, (shoal_nid){4}, LARGE, &waiters[1]);
    /* Small ones are not concerned. */
    assert_int_equal(tell(a, 3, TYPE_ORDERED, 1, 8), SHOAL_OK);
    assert_int_equal(tell(a, 4, TYPE_ORDERED, 1, 8), SHOAL_OK);
    run_all();
    assert_false(sh_waiter_done(&waiters[0]) || sh_waiter_done(&waiters[1]));
    push_room_set(a, SIZE_MAX);
    run_all();
    assert_true(sh_waiter_done(&waiters[0]) && sh_waiter_done(&waiters[1]));
    assert_int_equal(tell_large(a, 3, 2), SHOAL_OK);
    assert_int_equal(tell_large(a, 4, 2), SHOAL_EAGAIN); /* told, but the other was faster */
    run_all();
    assert_int_equal(tell_large(a, 4, 2), SHOAL_OK);
    run_all();
    assert_int_equal(ends[1].ordered, 2);
    assert_int_equal(ends[2].ordered, 3);
    assert_int_equal(ends[3].ordered, 3);
    assert_int_equal(a->msg->large_bytes, 0);
}

/* What was sent counts until the receiver has processed it: it is in the kernel's memory. */
static void test_counts_until_processed(void **state)
{
    (void)state;
    struct end *a = open_crowd();
    assert_int_equal(tell_large(a, 2, 1), SHOAL_OK);
    for (unsigned i = 0; i < 10; i++)
        (void)round_run(1u << 1); /* node 2 rests */
    assert_int_equal(sh_out_unsent(sh_conn_find(a->msg, (shoal_nid){2})), 0);
    assert_int_equal(tell_large(a, 3, 1), SHOAL_EAGAIN);
    run_all();
    assert_int_equal(tell_large(a, 3, 1), SHOAL_OK);
    run_all();
    assert_int_equal(a->msg->large_bytes, 0);
}

static void test_lost(void **state)
{
    (void)state;
    struct end *a = open_crowd();
    struct sh_waiter waiter = {0};
    push_room_set(a, 0);
    assert_int_equal(tell_large(a, 2, 1), SHOAL_OK);
    run_all();
    sh_msg_wait_room(a->msg, (shoal_nid){3}, LARGE, &waiter);
    assert_false(sh_waiter_done(&waiter));
    cut(a, &ends[1]);
    run_all();
    assert_true(sh_waiter_done(&waiter));
    assert_int_equal(tell_large(a, 3, 1), SHOAL_OK);
}

/* One that stands still does not keep others waiting. */
static void test_stands_still(void **state)
{
    (void)state;
    struct end *a = open_crowd();
    struct sh_waiter waiter = {0};
    push_room_set(a, 0);
    assert_int_equal(tell_large(a, 2, 1), SHOAL_OK);
    run_all();
    sh_msg_wait_room(a->msg, (shoal_nid){3}, LARGE, &waiter);
    assert_true(a->transport.due_ns(a->msg) <= a->memwire.now_ns + SECOND);
    a->memwire.now_ns += SECOND;
    (void)a->transport.run(a->msg);
    assert_true(sh_waiter_done(&waiter));
    assert_int_equal(tell_large(a, 3, 1), SHOAL_OK);
    assert_int_equal(tell_large(a, 4, 1), SHOAL_EAGAIN);
    push_room_set(a, SIZE_MAX);
    run_all();
    assert_int_equal(ends[1].ordered, 2);
    assert_int_equal(ends[2].ordered, 2);
    assert_int_equal(a->msg->large_bytes, 0);
}

static const struct sh_wire_ops *usual_ops;
static struct sh_wire_ops slow_ops;
static size_t pulled;

/* A pull in a step that has spent its share by then. */
static size_t pull_slowly(struct sh_wire *wire, sh_link link, void *into, size_t room)
{
    size_t got = usual_ops->pull(wire, link, into, room);
    pulled += got;
    sh_step_share_end = 0;
    return got;
}

/* Its block is memory that nobody has touched, so a step that has no time left takes little. */
static void test_comes_in_pieces(void **state)
{
    (void)state;
    struct end *a = open_crowd(), *b = &ends[1];
    usual_ops = b->memwire.wire.ops;
    slow_ops = *usual_ops;
    slow_ops.pull = pull_slowly;
    b->memwire.wire.ops = &slow_ops;
    assert_int_equal(tell_large(a, 2, 1), SHOAL_OK);
    unsigned pieces = 0;
    for (unsigned i = 0; i < 1000 && b->ordered < 2; i++) {
        struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){1});
        bool is_large = conn->sends_on->block && conn->sends_on->block->room > SH_BLOCK_LARGE_BYTES;
        pulled = 0;
        (void)round_run(0);
        pieces += is_large && pulled > 0;
        assert_true(!is_large || pulled <= (64 << 10));
    }
    sh_step_share_end = UINT64_MAX;
    b->memwire.wire.ops = usual_ops;
    assert_int_equal(b->ordered, 2);
    assert_true(pieces >= LARGE / (64 << 10) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_one_after_another, close_all),
        cmocka_unit_test_teardown(test_counts_until_processed, close_all),
        cmocka_unit_test_teardown(test_lost, close_all),
        cmocka_unit_test_teardown(test_stands_still, close_all),
        cmocka_unit_test_teardown(test_comes_in_pieces, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
