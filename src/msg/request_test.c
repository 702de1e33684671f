/* Many requests: to several nodes, canceled together, and as many as there may be. */
#include "msg/msg_edges_test.h"

#include <time.h>

#include "msg/many.h"

static unsigned alls;

static void count_all(struct sh_many *many)
{
    (void)many;
    alls++;
}

static void sum_each(struct sh_many *many, struct sh_many_target *target, enum shoal_err err,
                     struct sh_reader *payload)
{
    assert_int_equal(target->err, err);
    if (err == SHOAL_OK)
        *(uint64_t *)many->arg += sh_get64(payload);
}

static void ask_many(struct end *end, sh_msg_type type, struct sh_many *many)
{
    uint8_t payload[8];
    sh_store64(payload, 7);
    sh_msg_request_many(end->msg, type, sh_bytes_make(payload, sizeof payload), many);
}

/* Three nodes that answer, one that nobody knows, and one that is asked twice. */
static void test_many(void **state)
{
    (void)state;
    struct end *a = end_open(1);
    for (uint16_t nid = 2; nid <= 4; nid++)
        knows(a, end_open(nid), nid);
    struct sh_many_target targets[5] = {
        {.nid = {2}}, {.nid = {3}}, {.nid = {99}}, {.nid = {4}}, {.nid = {2}}};
    uint64_t sum = 0;
    struct sh_many many = {
        .targets = targets, .count = 5, .each = sum_each, .all = count_all, .arg = &sum};
    alls = 0;
    ask_many(a, TYPE_ECHO, &many);
    assert_int_equal(alls, 0);
    assert_false(sh_many_done(&many));
    run_all();
    assert_int_equal(alls, 1);
    assert_true(sh_many_done(&many));
    assert_int_equal(sum, 4 * 7);
    assert_int_equal(targets[2].err, SHOAL_EUNREACHABLE);
    assert_int_equal(targets[4].err, SHOAL_OK);
    /* All unknown: completed before it returns. */
    struct sh_many nobody = {.targets = targets + 2, .count = 1, .all = count_all};
    ask_many(a, TYPE_ECHO, &nobody);
    assert_int_equal(alls, 2);
}

/* A loss and a cancel while some have answered; the handle is waited for, not called. */
static void test_many_lost_and_canceled(void **state)
{
    (void)state;
    struct end *a = end_open(1);
    struct end *b = end_open(2), *c = end_open(3), *d = end_open(4);
    knows(a, b, 2);
    knows(a, c, 3);
    knows(a, d, 4);
    struct sh_many_target targets[3] = {{.nid = {2}}, {.nid = {3}}, {.nid = {4}}};
    struct sh_many many = {.targets = targets, .count = 3};
    ask_many(a, TYPE_SILENT, &many);
    run_all();
    answer(b, b->held[0], 1);
    run_all();
    cut(a, c);
    run_all();
    assert_false(sh_many_done(&many));
    assert_false(sh_waiter_done(&many.waiter));
    sh_many_cancel(a->msg, &many);
    assert_true(sh_many_done(&many));
    assert_true(sh_waiter_done(&many.waiter));
    assert_int_equal(targets[0].err, SHOAL_OK);
    assert_int_equal(targets[1].err, SHOAL_ECONNLOST);
    assert_int_equal(targets[2].err, SHOAL_ECANCELED);
    sh_many_cancel(a->msg, &many); /* once more does nothing */
    answer(d, d->held[0], 1);
    run_all();
    assert_int_equal(dropped_of(a), 1);
    assert_int_equal(sh_msg_requests_pending(a->msg), 0);
}

static void test_cancel_node(void **state)
{
    (void)state;
    struct end *a = end_open(1);
    struct end *b = end_open(2), *c = end_open(3);
    knows(a, b, 2);
    knows(a, c, 3);
    struct asked to_b[5], to_c;
    for (int i = 0; i < 5; i++)
        assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &to_b[i]), SHOAL_OK);
    assert_int_equal(ask(a, 3, TYPE_SILENT, 1, &to_c), SHOAL_OK);
    run_all();
    answer(b, b->held[2], 1);
    run_all();
    assert_int_equal(sh_msg_cancel_node(a->msg, (shoal_nid){2}), 4);
    assert_int_equal(sh_msg_cancel_node(a->msg, (shoal_nid){2}), 0);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(to_b[i].done, 1);
        assert_int_equal(to_b[i].err, i == 2 ? SHOAL_OK : SHOAL_ECANCELED);
    }
    assert_int_equal(to_c.done, 0);
    assert_int_equal(sh_msg_requests_pending(a->msg), 1);
    for (int i = 0; i < 5; i++) {
        if (i != 2)
            answer(b, b->held[i], 1);
    }
    answer(c, c->held[0], 9);
    run_all();
    assert_int_equal(dropped_of(a), 4);
    assert_int_equal(to_c.err, SHOAL_OK);
    /* Every slot is free again. */
    struct asked again[REQUESTS_MAX];
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(ask(a, 2, TYPE_ECHO, 3, &again[i]), SHOAL_OK);
    run_all();
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(again[i].err, SHOAL_OK);
}

/* The table alone: 2^20 IDs at once, all different, and no more. */
static void test_a_million(void **state)
{
    (void)state;
    const uint32_t total = 1u << 20;
    struct sh_memwire memwire;
    sh_memwire_init(&memwire);
    struct sh_msg *msg = calloc(1, sizeof *msg);
    uint8_t *seen = calloc(total, 1);
    uint32_t *ids = calloc(total, sizeof *ids);
    assert_true(msg && seen && ids);
    msg->config.requests_max = total;
    msg->config.env = sh_memwire_env(&memwire);
    assert_int_equal(sh_requests_init(msg), SHOAL_OK);
    assert_int_equal(msg->requests.count,
                     SH_REQUEST_PIECE_SLOTS); /* what nobody needs is not made */
    for (int round = 0; round < 2; round++) {
        uint32_t extra;
        for (uint32_t i = 0; i < total; i++) {
            assert_int_equal(sh_requests_reserve(msg, &ids[i]), SHOAL_OK);
            uint32_t index = ids[i] & (total - 1);
            assert_int_equal(seen[index], round);
            seen[index]++;
        }
        assert_int_equal(sh_requests_reserve(msg, &extra), SHOAL_ELIMIT);
        for (uint32_t i = 0; i < total; i++)
            sh_requests_free(msg, ids[i]);
    }
    sh_requests_destroy(msg);
    free(ids);
    free(seen);
    free(msg);
    sh_memwire_free(&memwire);
}

/* A loss touches the requests of its connection, not all that are outstanding: with a million slots
 * in use this took minutes. */
static void test_losses_beside_a_million(void **state)
{
    enum { LOSSES = 20000 };
    (void)state;
    const uint32_t total = 1u << 20;
    struct sh_memwire memwire;
    sh_memwire_init(&memwire);
    struct sh_msg *msg = calloc(1, sizeof *msg);
    assert_non_null(msg);
    msg->config.requests_max = total;
    msg->config.env = sh_memwire_env(&memwire);
    assert_int_equal(sh_requests_init(msg), SHOAL_OK);
    for (uint32_t i = 0; i < total; i++) {
        uint32_t id;
        assert_int_equal(sh_requests_reserve(msg, &id), SHOAL_OK);
    }
    static struct sh_conn conn = {.nid = {7}, .slots_first = SH_NO_SLOT};
    clock_t before = clock();
    for (int i = 0; i < LOSSES; i++)
        sh_requests_fail(msg, &conn, SHOAL_ECONNLOST);
    assert_true((clock() - before) / CLOCKS_PER_SEC < 5);
    sh_requests_destroy(msg);
    free(msg);
    sh_memwire_free(&memwire);
}

/* Requests of several connections among each other, some given up: a loss ends exactly those of its
 * own, and frees their slots. */
static void test_losses_are_apart(void **state)
{
    (void)state;
    struct end *a = end_open(1);
    struct end *b = end_open(2), *c = end_open(3);
    knows(a, b, 2);
    knows(a, c, 3);
    for (int round = 0; round < 3; round++) {
        struct asked asked[REQUESTS_MAX];
        for (int i = 0; i < REQUESTS_MAX; i++)
            assert_int_equal(ask(a, i % 2 ? 3 : 2, TYPE_SILENT, 1, &asked[i]), SHOAL_OK);
        run_all();
        for (int i = 0; i < REQUESTS_MAX; i += 5)
            assert_true(sh_msg_cancel(a->msg, &asked[i].request));
        cut(a, b);
        run_all();
        for (int i = 0; i < REQUESTS_MAX; i++)
            assert_int_equal(asked[i].done, i % 5 && i % 2 == 0);
        cut(a, c);
        run_all();
        for (int i = 0; i < REQUESTS_MAX; i++)
            assert_int_equal(asked[i].done, i % 5 != 0);
        assert_int_equal(sh_msg_requests_pending(a->msg), 0);
        b->held_count = c->held_count = 0;
    }
}

/* A request that was armed too late and canceled is as good as new: it has the whole of its time.
 */
static void test_canceled_late_is_used_again(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked asked;
    assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &asked), SHOAL_OK);
    run_all();
    struct sh_conn *conn = sh_conn_find(a->msg, (shoal_nid){2});
    struct asked late[2];
    for (int i = 0; i < 2; i++) {
        uint32_t id;
        assert_int_equal(sh_requests_reserve(a->msg, &id), SHOAL_OK);
        late[i] = (struct asked){.request = {.done = on_done, .arg = &late[i]}};
        sh_requests_arm(a->msg, id, conn, atomic_load(&conn->generation) - 1, &late[i].request);
    }
    for (int i = 0; i < 2; i++) { /* the last and the first of the list */
        assert_true(sh_msg_cancel(a->msg, &late[i].request));
        assert_int_equal(late[i].request.deadline_ns, 0);
        assert_int_equal(late[i].request.id, 0);
    }
    assert_int_equal(sh_msg_requests_pending(a->msg), 0);
    pass(20 * SECOND); /* more than a request's time */
    for (int i = 0; i < 2; i++) {
        struct sh_out out;
        assert_int_equal(
            sh_msg_request(a->msg, (shoal_nid){2}, TYPE_SILENT, 8, &late[i].request, &out),
            SHOAL_OK);
        sh_put64(&out.w, 1);
        sh_msg_end(a->msg, &out);
    }
    pass(SECOND);
    pass(SECOND);
    assert_int_equal(b->held_count, 2);
    for (unsigned i = 0; i < 2; i++) {
        answer(b, b->held[i], 7);
        run_all();
        assert_int_equal(late[i].err, SHOAL_OK);
        assert_int_equal(late[i].first, 7);
    }
}

/* A peer lives and never answers: requests to it time out or are canceled, more than there are
 * slots, and take none from requests to others. Late answers reach nobody else's request. */
static void test_silent_peer(void **state)
{
    (void)state;
    struct end *a = end_open(1);
    struct end *b = end_open(2), *c = end_open(3);
    knows(a, b, 2);
    knows(a, c, 3);
    struct asked silent[REQUESTS_MAX], more;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < REQUESTS_MAX; i++)
            assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &silent[i]), SHOAL_OK);
        assert_int_equal(ask(a, 3, TYPE_ECHO, 1, &more), SHOAL_ELIMIT);
        run_all();
        if (round == 1)
            assert_int_equal(sh_msg_cancel_node(a->msg, (shoal_nid){2}), REQUESTS_MAX);
        for (int i = 0; i < 12; i++)
            pass(SECOND);
        for (int i = 0; i < REQUESTS_MAX; i++)
            assert_int_equal(silent[i].err, round == 1 ? SHOAL_ECANCELED : SHOAL_ETIMEOUT);
        for (uint64_t i = 0; i < 5 * REQUESTS_MAX; i++) {
            assert_int_equal(ask(a, i % 2 ? 2 : 3, TYPE_ECHO, i, &more), SHOAL_OK);
            run_all();
            assert_int_equal(more.err, SHOAL_OK);
            assert_int_equal(more.first, i);
        }
    }
    assert_int_equal(a->losses, 0);
    assert_int_equal(b->held_count, 3 * REQUESTS_MAX);
    /* All slots wait for this peer again; what comes is for earlier uses of them. */
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &silent[i]), SHOAL_OK);
    run_all();
    for (int i = 0; i < 3 * REQUESTS_MAX; i++)
        answer(b, b->held[i], 99);
    run_all();
    assert_int_equal(dropped_of(a), 3 * REQUESTS_MAX);
    assert_int_equal(sh_msg_requests_pending(a->msg), REQUESTS_MAX);
    for (int i = 0; i < REQUESTS_MAX; i++) {
        assert_int_equal(silent[i].done, 0);
        answer(b, b->held[3 * REQUESTS_MAX + i], 7);
    }
    run_all();
    for (int i = 0; i < REQUESTS_MAX; i++) {
        assert_int_equal(silent[i].err, SHOAL_OK);
        assert_int_equal(silent[i].first, 7);
    }
    assert_int_equal(sh_msg_requests_pending(a->msg), 0);
}

/* A slot whose answer may still come is used in turn with the others that are like it, so that its
 * generation stays away from that answer's. */
static void test_marked_slots_take_turns(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = end_open(2);
    knows(a, b, 2);
    struct asked silent[REQUESTS_MAX], more;
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(ask(a, 2, TYPE_SILENT, 1, &silent[i]), SHOAL_OK);
    run_all();
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_true(sh_msg_cancel(a->msg, &silent[i].request));
    unsigned uses[REQUESTS_MAX] = {0};
    for (int i = 0; i < 10 * REQUESTS_MAX; i++) {
        assert_int_equal(ask(a, 2, TYPE_ECHO, 1, &more), SHOAL_OK);
        uses[more.request.id % REQUESTS_MAX]++;
        run_all();
        assert_int_equal(more.err, SHOAL_OK);
    }
    for (int i = 0; i < REQUESTS_MAX; i++)
        assert_int_equal(uses[i], 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_many, close_all),
        cmocka_unit_test_teardown(test_many_lost_and_canceled, close_all),
        cmocka_unit_test_teardown(test_cancel_node, close_all),
        cmocka_unit_test(test_a_million),
        cmocka_unit_test(test_losses_beside_a_million),
        cmocka_unit_test_teardown(test_losses_are_apart, close_all),
        cmocka_unit_test_teardown(test_canceled_late_is_used_again, close_all),
        cmocka_unit_test_teardown(test_silent_peer, close_all),
        cmocka_unit_test_teardown(test_marked_slots_take_turns, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
