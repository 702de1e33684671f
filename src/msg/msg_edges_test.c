/* Limits, losses and answers that belong to nobody. */
#include "msg/msg_edges_test.h"

/* --- Answers ------------------------------------------------------------------------------- */

/* Only the node that was asked can answer. */
static void test_answer_of_another(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2), *c = end_open(3);
    knows(a, b, 2);
    knows(c, a, 1);
    struct asked asked, greeting;
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
    assert_int_equal(ask(c, 1, TYPE_ECHO, 1, &greeting), SHOAL_OK);
    run_all();
    assert_int_equal(greeting.done, 1);
    assert_int_equal(b->held_count, 1);
    struct sh_reply_to forged = {.nid = {1}, .id = asked.request.id, .generation = 1};
    answer(c, forged, 666);
    run_all();
    assert_int_equal(asked.done, 0);
    assert_int_equal(dropped_of(a), 1);
    sh_msg_reply_error(c->msg, forged, TYPE_SILENT, SHOAL_EBUSY, "forged");
    run_all();
    assert_int_equal(asked.done, 0);
    answer(b, b->held[0], 7);
    run_all();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_OK);
    assert_int_equal(asked.first, 7);
}

/* A second answer to an old request does not complete the next one that uses its slot. */
static void test_answer_twice(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked first, second;
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &first), SHOAL_OK);
    uint32_t first_id = first.request.id;
    run_all();
    answer(b, b->held[0], 11);
    run_all();
    assert_int_equal(first.first, 11);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 2, &second), SHOAL_OK);
    /* The same slot, which the lower bits say; another generation. */
    assert_int_equal(second.request.id & 0xFFFFF, first_id & 0xFFFFF);
    assert_int_not_equal(second.request.id, first_id);
    run_all();
    answer(b, b->held[0], 666);
    run_all();
    assert_int_equal(second.done, 0);
    assert_int_equal(first.done, 1);
    assert_int_equal(dropped_of(a), 1);
    answer(b, b->held[1], 12);
    run_all();
    assert_int_equal(second.first, 12);
}

/* The same after a loss: the answer of before reaches nobody. */
static void test_answer_after_loss(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked first, second;
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &first), SHOAL_OK);
    uint32_t id = first.request.id;
    run_all();
    cut(a, b);
    run_all();
    assert_int_equal(first.err, SHOAL_ECONNLOST);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 2, &second), SHOAL_OK);
    assert_int_not_equal(second.request.id, id);
    run_all();
    struct sh_out out;
    assert_int_equal(sh_msg_reply(b->msg, b->held[0], TYPE_SILENT, 0, &out), SHOAL_ECONNLOST);
    answer(b, b->held[1], 5);
    run_all();
    assert_int_equal(second.first, 5);
}

/* --- Limits -------------------------------------------------------------------------------- */

static unsigned ask_until_limit(struct end *a, struct asked *asked, enum shoal_err *err_out)
{
    unsigned count = 0;
    while ((*err_out = ask(a, 2, TYPE_SILENT, count, &asked[count])) == SHOAL_OK)
        assert_true(++count <= REQUESTS_MAX);
    return count;
}

static void test_requests_exhausted(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    static struct asked asked[REQUESTS_MAX + 1]; /* some fail only when the end is closed */
    enum shoal_err err;
    knows(a, b, 2);
    assert_int_equal(ask_until_limit(a, asked, &err), REQUESTS_MAX);
    assert_int_equal(err, SHOAL_ELIMIT);
    assert_int_equal(asked[REQUESTS_MAX].done, 0);
    run_all();
    /* A canceled one's slot is used again at once, and its late answer hits nobody else. */
    static struct asked more;
    assert_true(sh_msg_cancel(a->msg, &asked[3].request));
    assert_int_equal(sh_msg_requests_pending(a->msg), REQUESTS_MAX - 1);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 0, &asked[REQUESTS_MAX]), SHOAL_OK);
    assert_int_equal(ask(a, 2, TYPE_SILENT, 0, &more), SHOAL_ELIMIT);
    run_all();
    for (unsigned i = 0; i < b->held_count; i++)
        answer(b, b->held[i], i);
    run_all();
    for (unsigned i = 0; i <= REQUESTS_MAX; i++) {
        assert_int_equal(asked[i].done, i != 3);
        assert_true(i == 3 || asked[i].first == i);
    }
    /* All are free again, by an answer, by a time-out, and by a loss. */
    b->held_count = 0;
    assert_int_equal(ask_until_limit(a, asked, &err), REQUESTS_MAX);
    run_all();
    pass(11 * SECOND);
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(asked[i].err, SHOAL_ETIMEOUT);
    assert_int_equal(ask_until_limit(a, asked, &err), REQUESTS_MAX);
    run_all();
    for (unsigned i = 0; i < b->held_count; i++)
        answer(b, b->held[i], i);
    run_all();
    for (unsigned i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(asked[i].first, REQUESTS_MAX + i);
    assert_int_equal(ask_until_limit(a, asked, &err), REQUESTS_MAX);
    run_all();
    cut(a, b);
    run_all();
    assert_int_equal(ask_until_limit(a, asked, &err), REQUESTS_MAX);
}

static void test_connections_max(void **state)
{
    (void)state;
    char path[] = "/tmp/msg_edges_test.XXXXXX", line[512], lines[8192] = "";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(sh_log_output_set(path, SH_LOG_AS_TEXT), SHOAL_OK);
    struct end *b = end_open_with(2, 2);
    struct end *a = end_open(1), *c = end_open(3), *d = end_open(4);
    struct asked of_a, of_c, of_d, of_b[2];
    knows(a, b, 2);
    knows(c, b, 2);
    knows(d, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &of_a), SHOAL_OK);
    assert_int_equal(ask(c, 2, TYPE_ECHO, 3, &of_c), SHOAL_OK);
    run_all();
    /* It waits for answers over both, so that none may be closed. */
    assert_int_equal(ask(b, 1, TYPE_SILENT, 1, &of_b[0]), SHOAL_OK);
    assert_int_equal(ask(b, 3, TYPE_SILENT, 1, &of_b[1]), SHOAL_OK);
    run_all();
    assert_int_equal(ask(d, 2, TYPE_ECHO, 4, &of_d), SHOAL_OK);
    run_all();
    assert_int_equal(of_a.first, 1);
    assert_int_equal(of_c.first, 3);
    assert_int_equal(of_d.done, 1);
    assert_int_equal(of_d.err, SHOAL_ECONNLOST);
    /* It can't open one either. */
    knows(b, d, 4);
    assert_int_equal(ask(b, 4, TYPE_ECHO, 5, &of_d), SHOAL_OK);
    run_all();
    assert_int_equal(of_d.err, SHOAL_ELIMIT);
    assert_int_equal(sh_log_output_set(NULL, SH_LOG_AS_TEXT), SHOAL_OK);
    FILE *log = fopen(path, "re");
    assert_non_null(log);
    while (fgets(line, sizeof line, log))
        strncat(lines, line, sizeof lines - strlen(lines) - 1);
    fclose(log);
    unlink(path);
    assert_non_null(strstr(lines, "connection limit reached"));
    assert_non_null(strstr(lines, "connections_max=2"));
    assert_non_null(strstr(lines, "connection limit reached: not opened nid=4"));
    /* The others go on, and there is room again once one has left. */
    assert_int_equal(ask(a, 2, TYPE_ECHO, 6, &of_a), SHOAL_OK);
    run_all();
    assert_int_equal(of_a.first, 6);
    cut(c, b);
    run_all();
    assert_int_equal(ask(d, 2, TYPE_ECHO, 7, &of_d), SHOAL_OK);
    run_all();
    assert_int_equal(of_d.first, 7);
}

/* --- Losses -------------------------------------------------------------------------------- */

/* Ordered messages that wait when their connection is lost are dropped, and their works free. */
static void test_ordered_lost(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK);
    run_all();
    assert_int_equal(b->ordered, 1);
    for (uint64_t i = 1; i <= 10; i++)
        assert_int_equal(tell(a, 2, TYPE_ORDERED, i, 8), SHOAL_OK);
    a->transport.run(a->msg);
    (void)pipe_run(&pipes[0]);
    b->transport.run(b->msg); /* but not its handlers */
    assert_int_equal(sh_queue_count(b->msg->works_free), SH_WORKS_MAX - 11); /* and the turn */
    cut(a, b);
    b->transport.run(b->msg);
    assert_int_equal(b->losses, 1);
    assert_int_equal(sh_queue_count(b->msg->works_free), SH_WORKS_MAX - 1);
    run_all();
    assert_int_equal(b->ordered, 1);
    assert_true(works_are_free(b));
    /* The order starts anew with the next connection. */
    b->ordered = 0;
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 1, 8), SHOAL_OK);
    run_all();
    assert_int_equal(b->ordered, 2);
    assert_true(works_are_free(b));
}

static void test_address_changes(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2), *moved = end_open(2);
    knows(a, b, 2);
    struct asked asked, again;
    assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &asked), SHOAL_OK);
    run_all();
    knows(a, b, 2); /* the same address changes nothing */
    run_all();
    assert_int_equal(asked.done, 0);
    assert_int_equal(a->losses, 0);
    knows(a, moved, 2);
    run_all();
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
    assert_int_equal(a->losses, 1);
    assert_int_equal(b->losses, 1);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 9, &again), SHOAL_OK);
    run_all();
    assert_int_equal(again.first, 9);
    assert_int_equal(moved->ups, 1);
    assert_int_equal(b->ups, 1);
}

/* A node without an ID is a client to the others; with one, its next connections say so. */
static void test_nid_set(void **state)
{
    (void)state;
    struct end *a = end_open(0), *b = end_open(2), *c = end_open(3);
    knows(a, b, 2);
    knows(a, c, 3);
    struct asked asked;
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(b->ups, 1);
    assert_int_equal(b->up_real_nid.v, 0);
    assert_true(b->up_nid.v >= SH_MSG_ALIAS_MIN);
    sh_msg_nid_set(a->msg, (shoal_nid){5});
    assert_int_equal(sh_msg_nid(a->msg).v, 5);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 2, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 2);
    assert_int_equal(b->ups, 1); /* the same connection */
    assert_int_equal(ask(a, 3, TYPE_ECHO, 3, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(c->up_nid.v, 5);
    assert_int_equal(c->up_real_nid.v, 5);
    cut(a, b);
    run_all();
    assert_int_equal(ask(a, 2, TYPE_ECHO, 4, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(b->up_nid.v, 5);
    /* Who has its ID is called by it. */
    assert_int_equal(ask(b, 5, TYPE_ECHO, 8, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 8);
}

static void fill(struct end *a)
{
    unsigned told = 0;
    while (tell(a, 2, TYPE_ORDERED, told, 1024) == SHOAL_OK)
        told++;
    assert_true(told >= RING_BYTES / 1034);
    assert_false(sh_msg_has_room(a->msg, (shoal_nid){2}, 1024));
}

static void test_wait_room(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct sh_waiter at_once = {0}, drained = {0}, lost = {0}, removed = {0}, unknown = {0};
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &at_once);
    assert_true(sh_waiter_done(&at_once));
    sh_msg_wait_room(a->msg, (shoal_nid){99}, 8, &unknown);
    assert_true(sh_waiter_done(&unknown));
    fill(a);
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &drained);
    assert_false(sh_waiter_done(&drained));
    run_all();
    assert_true(sh_waiter_done(&drained));
    assert_true(sh_msg_drained(a->msg));
    /* The wire takes nothing more, and then the connection goes. */
    a->memwire.links[0].push_room = 0;
    fill(a);
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &lost);
    run_all();
    assert_false(sh_waiter_done(&lost));
    cut(a, b);
    run_all();
    assert_true(sh_waiter_done(&lost));
    assert_true(sh_msg_has_room(a->msg, (shoal_nid){2}, 1024));
    /* One that is never opened: nobody listens there. */
    assert_int_equal(sh_msg_node_set(a->msg, (shoal_nid){2}, "nowhere:1"), SHOAL_OK);
    fill(a);
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &removed);
    assert_false(sh_waiter_done(&removed));
    run_all();
    assert_true(sh_waiter_done(&removed));
    assert_int_equal(a->loss, SHOAL_EUNREACHABLE);
}

/* A connection is lost while a thread writes a message into its full ring. Once that message is over
 * the ring's memory is given back, nothing counts as unsent, and who waits for room hears of it,
 * though the connection is not opened again. */
static void test_lost_while_full(void **state)
{
    (void)state;
    for (unsigned waits = 0; waits < 2; waits++) {
        struct end *a = end_open(1), *b = end_open(2);
        knows(a, b, 2);
        assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 1024), SHOAL_OK);
        run_all();
        a->memwire.links[0].push_room = 0;
        struct sh_out out;
        assert_int_equal(sh_msg_begin(a->msg, (shoal_nid){2}, TYPE_ORDERED, 8, &out), SHOAL_OK);
        fill(a);
        cut(a, b);
        run_all();
        assert_int_equal(a->losses, 1);
        struct sh_waiter waiter = {0};
        if (waits)
            sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &waiter);
        run_all();
        assert_false(sh_waiter_done(&waiter));
        sh_put64(&out.w, 1);
        sh_msg_end(a->msg, &out);
        run_all();
        assert_true(sh_waiter_done(&waiter) == waits);
        assert_true(sh_msg_drained(a->msg));
        assert_int_equal(sh_conn_find(a->msg, (shoal_nid){2})->out.room, 0);
        assert_int_equal(a->ups, 1);
        (void)close_all(state);
    }
}

/* Who waits for much room is not told while there is only some. */
static void test_wait_much_room(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    fill(a);
    run_all();
    b->ordered = 0;
    struct sh_waiter some = {0}, much = {0};
    a->memwire.links[0].push_room = RING_BYTES * 5 / 8;
    fill(a);
    sh_msg_wait_room(a->msg, (shoal_nid){2}, 8, &some);
    sh_msg_wait_room(a->msg, (shoal_nid){2}, RING_BYTES, &much);
    run_all();
    assert_true(sh_waiter_done(&some));
    assert_false(sh_waiter_done(&much));
    a->memwire.links[0].push_room = SIZE_MAX;
    run_all();
    assert_true(sh_waiter_done(&much));
}

/* A request whose connection is lost between the beginning of its message and its entry in the
 * table fails, once, and its slot can be used again. */
static void test_armed_late(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked asked, late[REQUESTS_MAX + 1];
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    struct sh_conn *conn = sh_conn_find(a->msg, (shoal_nid){2});
    for (unsigned turn = 0; turn < 3; turn++) {
        for (unsigned i = 0; i < REQUESTS_MAX; i++) {
            uint32_t id;
            assert_int_equal(sh_requests_reserve(a->msg, &id), SHOAL_OK);
            late[i] = (struct asked){.request = {.done = on_done, .arg = &late[i]}};
            sh_requests_arm(a->msg, id, conn, atomic_load(&conn->generation) - 1, &late[i].request);
        }
        assert_int_equal(sh_msg_requests_pending(a->msg), REQUESTS_MAX);
        /* What follows the entry: the end of the message, which wakes the transport step. */
        sh_conn_mark_dirty(a->msg, conn);
        pass(0);
        for (unsigned i = 0; i < REQUESTS_MAX; i++) {
            assert_int_equal(late[i].done, 1);
            assert_int_equal(late[i].err, SHOAL_ECONNLOST);
        }
        assert_int_equal(sh_msg_requests_pending(a->msg), 0);
    }
    assert_int_equal(ask(a, 2, TYPE_ECHO, 2, &asked), SHOAL_OK);
    run_all();
    assert_int_equal(asked.first, 2);
}

/* A deadline that has passed when the request is entered is noticed at once, not when the timer
 * wheel comes by again. */
static void test_deadline_passed(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked asked = {.request = {.done = on_done, .arg = &asked}};
    pass(SECOND);
    asked.request.deadline_ns = a->memwire.now_ns - 100000000;
    struct sh_out out;
    assert_int_equal(sh_msg_request(a->msg, (shoal_nid){2}, TYPE_SILENT, 0, &asked.request, &out),
                     SHOAL_OK);
    sh_msg_end(a->msg, &out);
    pass(2 * SH_WHEEL_TICK_NS);
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ETIMEOUT);
    assert_int_equal(asked.request.deadline_ns, 0);
}

/* A message that is under construction when its connection is lost is not sent, and who comes after
 * it is not held up. */
static void test_lost_while_writing(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK);
    run_all();
    struct sh_out out;
    assert_int_equal(sh_msg_begin(a->msg, (shoal_nid){2}, TYPE_ORDERED, 8, &out), SHOAL_OK);
    cut(a, b);
    run_all();
    assert_int_equal(a->losses, 1);
    sh_put64(&out.w, 666);
    sh_msg_end(a->msg, &out);
    run_all();
    assert_int_equal(b->ordered, 1);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 1, 8), SHOAL_OK);
    run_all();
    assert_int_equal(b->ordered, 2);
}

/* A lost connection holds no ring. */
static void test_ring_given_back(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked asked;
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    struct sh_conn *of_a = sh_conn_find(a->msg, (shoal_nid){2});
    struct sh_conn *of_b = sh_conn_find(b->msg, (shoal_nid){1});
    assert_true(of_a->out.room > 0 && of_b->out.room > 0);
    cut(a, b);
    run_all();
    assert_int_equal(of_a->out.room, 0);
    assert_int_equal(of_b->out.room, 0);
    assert_null(of_b->out.base);
}

/* Requests that were received but found no free work, from a node that does not take its answers,
 * are handled when it does, though nothing more arrives. */
static void test_stalled_and_throttled(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    static struct sh_work *taken[SH_WORKS_MAX];
    static struct asked asked[4];
    knows(a, b, 2);
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked[0]), SHOAL_OK);
    run_all();
    for (unsigned i = 0; i < SH_WORKS_MAX; i++)
        taken[i] = sh_queue_pop(b->msg->works_free);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(ask(a, 2, TYPE_POOLED, i, &asked[i]), SHOAL_OK);
    run_all();
    assert_int_equal(b->msg->stalled_count, 1);
    assert_int_equal(b->memwire.links[0].in_size, 0);
    /* Answers pile up: the wire takes nothing. */
    struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){1});
    b->memwire.links[0].push_room = 0;
    struct sh_reply_to to = {.nid = {1}, .id = 4000u << 20, .generation = 1};
    for (unsigned i = 0; i < 8; i++) {
        struct sh_out out;
        assert_int_equal(sh_msg_reply(b->msg, to, TYPE_ECHO, RING_BYTES, &out), SHOAL_OK);
        memset(sh_writer_take(&out.w, RING_BYTES), 0, RING_BYTES);
        sh_msg_end(b->msg, &out);
    }
    run_all();
    assert_true(conn->push_blocked);
    for (unsigned i = 0; i < SH_WORKS_MAX; i++)
        assert_true(sh_queue_push(b->msg->works_free, taken[i]));
    for (unsigned i = 0; i < 10; i++) {
        b->transport.run(b->msg);
        b->handlers.run(b->handlers.arg);
    }
    assert_true(works_are_free(b)); /* none was read */
    b->memwire.links[0].push_room = SIZE_MAX;
    run_all();
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(asked[i].done, 1);
        assert_int_equal(asked[i].first, i);
    }
    assert_int_equal(b->msg->stalled_count, 0);
    assert_true(works_are_free(b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_answer_of_another, close_all),
        cmocka_unit_test_teardown(test_answer_twice, close_all),
        cmocka_unit_test_teardown(test_answer_after_loss, close_all),
        cmocka_unit_test_teardown(test_requests_exhausted, close_all),
        cmocka_unit_test_teardown(test_connections_max, close_all),
        cmocka_unit_test_teardown(test_ordered_lost, close_all),
        cmocka_unit_test_teardown(test_address_changes, close_all),
        cmocka_unit_test_teardown(test_nid_set, close_all),
        cmocka_unit_test_teardown(test_wait_room, close_all),
        cmocka_unit_test_teardown(test_lost_while_full, close_all),
        cmocka_unit_test_teardown(test_wait_much_room, close_all),
        cmocka_unit_test_teardown(test_armed_late, close_all),
        cmocka_unit_test_teardown(test_deadline_passed, close_all),
        cmocka_unit_test_teardown(test_lost_while_writing, close_all),
        cmocka_unit_test_teardown(test_ring_given_back, close_all),
        cmocka_unit_test_teardown(test_stalled_and_throttled, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
