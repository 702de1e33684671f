/* Flow control: the counts by themselves, and two ends of which one does not keep up. */
#include "msg/msg_edges_test.h"

#define WINDOW 65536u

/* A sender, what is on its way, and a receiver with messages at its handlers, all drawn at random:
 * the limit is never passed by more than one push, and everything gets through. */
static void flow_run(uint64_t seed)
{
    static struct sh_flow sender, receiver;
    uint64_t handed = 0, way = 0, state = seed, most = 0;
    const uint32_t window = SH_FLOW_WINDOW_MIN;
    sh_flow_reset(&sender, 7);
    sh_flow_reset(&receiver, 7);
    for (unsigned round = 0; round < 20000; round++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t drawn = state >> 33, bytes = 1 + drawn % 700, limit;
        switch (round < 19000 ? drawn / 1000 % 4 : 1 + round % 3) {
        case 0: /* sends */
            if (!sh_flow_is_shut(&sender)) {
                sh_flow_sent(&sender, bytes);
                way += bytes;
            }
            break;
        case 1: /* part of it arrives, half of that for handlers */
            bytes = bytes < way ? bytes : way;
            way -= bytes;
            sh_flow_received(&receiver, bytes);
            if (drawn & 1) {
                sh_flow_handed_on(&receiver, bytes);
                handed += bytes;
            }
            break;
        case 2: /* a handler finishes */
            bytes = bytes < handed ? bytes : handed;
            handed -= bytes;
            (void)sh_flow_finished(&receiver, 7, bytes);
            (void)sh_flow_finished(&receiver, 6, bytes); /* of a lost connection */
            break;
        default:
            if (sh_flow_limit_due(&receiver, window, &limit)) {
                sh_flow_told(&receiver, limit);
                (void)sh_flow_limit_set(&sender, limit);
                (void)sh_flow_limit_set(&sender, limit - 1); /* changes nothing */
            }
        }
        most = handed > most ? handed : most;
    }
    if (most > 3 * window || handed || way || sh_flow_is_shut(&sender))
        print_error("seed %llu\n", (unsigned long long)seed);
    /* Until the first limit is told there is none, hence more than one window. */
    assert_true(most <= 3 * window);
    assert_int_equal(handed, 0);
    assert_int_equal(way, 0);
    assert_int_equal(sender.sent, receiver.received);
    assert_false(sh_flow_is_shut(&sender));
}

/* Shut exactly when all that is permitted was sent; a limit never comes down, and one that opens
 * says so once. */
static void test_limit(void **state)
{
    (void)state;
    static struct sh_flow flow;
    sh_flow_reset(&flow, 3);
    sh_flow_sent(&flow, 400);
    assert_false(sh_flow_is_shut(&flow)); /* none was told yet */
    assert_false(sh_flow_limit_set(&flow, 1000));
    sh_flow_sent(&flow, 599);
    assert_false(sh_flow_is_shut(&flow));
    sh_flow_sent(&flow, 1);
    assert_true(sh_flow_is_shut(&flow));
    assert_false(sh_flow_limit_set(&flow, 1000));
    assert_false(sh_flow_limit_set(&flow, 1));
    assert_true(sh_flow_is_shut(&flow));
    assert_true(sh_flow_limit_set(&flow, 1001));
    assert_false(sh_flow_is_shut(&flow));
    assert_false(sh_flow_limit_set(&flow, 2000)); /* it is open already */
    assert_false(sh_flow_limit_set(&flow, 900));  /* an old word */
    sh_flow_sent(&flow, 999);
    assert_false(sh_flow_is_shut(&flow));
    sh_flow_sent(&flow, 1);
    assert_true(sh_flow_is_shut(&flow));
    sh_flow_reset(&flow, 4);
    assert_false(sh_flow_is_shut(&flow));
    sh_flow_sent(&flow, 1000);
    assert_false(sh_flow_limit_set(&flow, 1000)); /* shut by its first limit */
    assert_true(sh_flow_is_shut(&flow));
    sh_flow_sent(&flow, 500);                     /* the last push went over it */
    assert_false(sh_flow_limit_set(&flow, 1500)); /* it opens nothing */
    assert_true(sh_flow_limit_set(&flow, 1501));
}

/* A limit is due with the first bytes, and then with each half of a window that is finished; handlers
 * say so when they have finished a quarter of it. */
static void test_due(void **state)
{
    (void)state;
    static struct sh_flow flow;
    uint64_t limit;
    static const uint64_t firsts[][2] = {{WINDOW, WINDOW / 4}, {64 * WINDOW, SH_FLOW_FIRST / 2}};
    for (unsigned i = 0; i < 2; i++) {
        uint32_t window = (uint32_t)firsts[i][0];
        uint64_t first = firsts[i][1] < window / 4 ? firsts[i][1] : window / 4;
        sh_flow_reset(&flow, 1);
        sh_flow_received(&flow, first - 1);
        assert_false(sh_flow_limit_due(&flow, window, &limit));
        sh_flow_received(&flow, 1);
        assert_true(sh_flow_limit_due(&flow, window, &limit));
        assert_true(limit == first + window);
        sh_flow_told(&flow, limit);
        sh_flow_received(&flow, window / 2 - 1);
        assert_false(sh_flow_limit_due(&flow, window, &limit));
        sh_flow_received(&flow, 1);
        assert_true(sh_flow_limit_due(&flow, window, &limit));
        sh_flow_handed_on(&flow, window / 2);
        assert_false(sh_flow_limit_due(&flow, window, &limit));
        assert_false(sh_flow_finished(&flow, 1, window / 4 - 1));
        assert_true(sh_flow_finished(&flow, 1, 1));
        assert_false(sh_flow_limit_due(&flow, window, &limit));
        assert_false(sh_flow_limit_due(&flow, SH_FLOW_WINDOW_MIN, &limit)); /* less than was told */
        assert_true(sh_flow_finished(&flow, 1, window / 4));
        assert_true(sh_flow_limit_due(&flow, window, &limit));
        assert_true(limit == first + window / 2 + window);
    }
}

static void test_counts(void **state)
{
    (void)state;
    const char *given = getenv("SHOAL_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 0; i < 200; i++)
        flow_run(seed + i);
}

/* The window grows, and the other way round, while handlers are at what was received: the one that
 * finishes a quarter of the window of before has the transport step look, and the limit is told. */
static void test_window_changes(void **state)
{
    (void)state;
    static const uint32_t windows[][2] = {{64 << 10, 4 << 20}, {4 << 20, 64 << 10}};
    for (unsigned i = 0; i < 2; i++) {
        static struct sh_flow flow;
        uint64_t limit, received = windows[i][0] + 300000;
        bool is_told = false;
        sh_flow_reset(&flow, 1);
        sh_flow_received(&flow, received);
        sh_flow_handed_on(&flow, received);
        assert_true(sh_flow_limit_due(&flow, windows[i][0], &limit));
        sh_flow_told(&flow, limit);
        uint64_t unseen = 0;
        for (uint64_t left = received; left > 0;) {
            uint64_t bytes = left < 1000 ? left : 1000;
            left -= bytes;
            unseen += bytes;
            if (!sh_flow_finished(&flow, 1, bytes)) {
                assert_true(unseen < (4 << 20) / 4); /* no more is finished without a look */
                continue;
            }
            unseen = 0;
            if (sh_flow_limit_due(&flow, windows[i][1], &limit)) {
                sh_flow_told(&flow, limit);
                is_told = true;
            }
        }
        assert_true(is_told);
        assert_true(flow.told > received); /* the other side may send again */
    }
}

/* As round_run, but no handler runs anywhere. */
static void round_without_handlers(void)
{
    for (unsigned i = 0; i < ends_count; i++) {
        ends[i].transport.run(ends[i].msg);
        for (sh_link link = 0; link < ends[i].memwire.count; link++) {
            if (ends[i].memwire.links[link].was_opened_by_us)
                pipe_add(&ends[i], link);
        }
    }
    for (unsigned i = 0; i < pipes_count; i++)
        (void)pipe_run(&pipes[i]);
}

/* Sends until that is refused for good, while no handler runs; returns how many bytes that were. */
static uint64_t send_while_stopped(struct end *from, uint16_t to, size_t bytes)
{
    uint64_t sent = 0;
    for (unsigned pauses = 0; pauses < 20;) {
        enum shoal_err err = tell(from, to, TYPE_ORDERED, sent / bytes, bytes);
        if (err == SHOAL_OK) {
            sent += bytes;
            pauses = 0;
        } else {
            assert_int_equal(err, SHOAL_EAGAIN);
            pauses++;
            round_without_handlers();
        }
        /* As a wire would: no more than so much is on its way. */
        if (sent % 16384 < bytes)
            round_without_handlers();
    }
    return sent;
}

static struct end *end_open_windowed(uint16_t nid)
{
    return end_open_as(nid,
                       &(struct sh_msg_config){.connections_max = 32, .flow_window_bytes = WINDOW});
}

/* A receiver whose handlers do not run stops its sender, which holds a bounded amount of its
 * memory; answers and inline messages go on; when they run again everything arrives in order. */
static void test_receiver_stops(void **state)
{
    (void)state;
    struct end *a = end_open_windowed(1), *b = end_open_windowed(2);
    knows(a, b, 2);
    uint64_t sent = send_while_stopped(a, 2, 500);
    assert_true(sent >= WINDOW && sent <= WINDOW + 2 * RING_BYTES);
    assert_int_equal(b->ordered, 0);
    assert_false(sh_msg_has_room(a->msg, (shoal_nid){2}, 8));
    struct sh_waiter waiter = {0};
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &waiter);
    for (unsigned i = 0; i < 50; i++)
        round_without_handlers();
    assert_false(sh_waiter_done(&waiter));
    /* The other direction is not shut, and what a answers gets through. */
    struct asked asked;
    assert_int_equal(ask(b, 1, TYPE_ECHO, 77, &asked), SHOAL_OK);
    for (unsigned i = 0; i < 50; i++)
        round_without_handlers();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.first, 77);
    run_all();
    assert_int_equal(b->ordered, sent / 500);
    assert_true(sh_waiter_done(&waiter));
    assert_true(sh_msg_has_room(a->msg, (shoal_nid){2}, 8));
    assert_true(works_are_free(b));
}

/* Both stop, both are shut, and both go on. */
static void test_both_directions(void **state)
{
    (void)state;
    struct end *a = end_open_windowed(1), *b = end_open_windowed(2);
    struct asked asked[2];
    knows(a, b, 2);
    knows(b, a, 1);
    for (unsigned i = 0; i < 5; i++) {
        a->ordered = b->ordered = 0;
        uint64_t sent_a = send_while_stopped(a, 2, 500);
        uint64_t sent_b = send_while_stopped(b, 1, 700);
        assert_true(sh_flow_is_shut(&sh_conn_find(a->msg, (shoal_nid){2})->flow));
        assert_true(sh_flow_is_shut(&sh_conn_find(b->msg, (shoal_nid){1})->flow));
        assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked[0]), SHOAL_EAGAIN);
        run_all();
        assert_int_equal(a->ordered, sent_b / 700);
        assert_int_equal(b->ordered, sent_a / 500);
        assert_int_equal(ask(a, 2, TYPE_POOLED, 5, &asked[0]), SHOAL_OK);
        assert_int_equal(ask(b, 1, TYPE_POOLED, 6, &asked[1]), SHOAL_OK);
        run_all();
        assert_int_equal(asked[0].first, 5);
        assert_int_equal(asked[1].first, 6);
    }
}

/* A message larger than the window passes; a lost connection leaves nothing shut. */
static void test_large_and_lost(void **state)
{
    (void)state;
    struct end *a = end_open_windowed(1), *b = end_open_windowed(2);
    knows(a, b, 2);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(tell(a, 2, TYPE_ORDERED, i, 1 << 20), SHOAL_OK);
        run_all();
        assert_int_equal(b->ordered, i + 1);
    }
    b->ordered = 0;
    (void)send_while_stopped(a, 2, 500);
    assert_false(sh_msg_has_room(a->msg, (shoal_nid){2}, 8));
    cut(a, b);
    for (unsigned i = 0; i < 5; i++)
        round_without_handlers();
    b->ordered = 0;
    assert_true(sh_msg_has_room(a->msg, (shoal_nid){2}, 8));
    assert_int_equal(tell(a, 2, TYPE_SILENT + 0x100, 0, 8), SHOAL_OK);
    run_all();
    struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){1});
    assert_int_equal(conn->flow.handed_on, 0);
    assert_int_equal(conn->flow.collected, 0);
    assert_true(works_are_free(b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_due),
        cmocka_unit_test(test_window_changes),
        cmocka_unit_test_teardown(test_receiver_stops, close_all),
        cmocka_unit_test_teardown(test_both_directions, close_all),
        cmocka_unit_test_teardown(test_large_and_lost, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
