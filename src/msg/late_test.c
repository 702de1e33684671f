/* Somebody is in the middle of a message: answers and control messages do not wait for that. */
#include "msg/msg_edges_test.h"

#define ASKED 3
#define ASKED_BYTES 16384
#define HALF_DONE_BYTES 60000 /* no room for an answer beside it, unless the ring grows */

static struct end *a, *b;
static struct asked asked[ASKED];
static struct sh_out half_done;
static unsigned order; /* of the answers */

static void on_echoed(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *one = request->arg;
    one->done = ++order;
    one->err = err;
    one->first = err == SHOAL_OK ? sh_get64(payload) : 0;
}

/* b begins a message to a and does not end it; a asks some questions. */
static void begin_and_ask(void)
{
    a = end_open(1);
    b = end_open(2);
    knows(a, b, 2);
    assert_int_equal(tell(a, 2, TYPE_ORDERED, 0, 8), SHOAL_OK);
    run_all();
    assert_int_equal(
        sh_msg_begin(b->msg, (shoal_nid){1}, TYPE_ORDERED, HALF_DONE_BYTES, &half_done), SHOAL_OK);
    order = 0;
    for (uint64_t i = 0; i < ASKED; i++) {
        struct sh_out out;
        asked[i] = (struct asked){.request = {.done = on_echoed, .arg = &asked[i]}};
        assert_int_equal(
            sh_msg_request(a->msg, (shoal_nid){2}, TYPE_ECHO, ASKED_BYTES, &asked[i].request, &out),
            SHOAL_OK);
        sh_put64(&out.w, i);
        memset(sh_writer_take(&out.w, ASKED_BYTES - 8), (int)i, ASKED_BYTES - 8);
        sh_msg_end(a->msg, &out);
    }
    run_all();
    for (unsigned i = 0; i < ASKED; i++)
        assert_int_equal(asked[i].done, 0);
    assert_non_null(sh_conn_find(b->msg, (shoal_nid){1})->late_first);
}

static void half_done_end(void)
{
    sh_put64(&half_done.w, 0);
    memset(sh_writer_take(&half_done.w, HALF_DONE_BYTES - 8), 0, HALF_DONE_BYTES - 8);
    sh_msg_end(b->msg, &half_done);
}

static void answers_are_late(void **state)
{
    (void)state;
    begin_and_ask();
    const struct sh_conn *conn = sh_conn_find(b->msg, (shoal_nid){1});
    assert_int_equal(sh_out_unsent(sh_conn_find(b->msg, (shoal_nid){1})),
                     HALF_DONE_BYTES + ASKED * ASKED_BYTES + (1 + ASKED) * SH_MSG_HEADER_BYTES);
    /* Others come behind them. */
    struct sh_waiter waiter = {0};
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 1, 8), SHOAL_EAGAIN);
    assert_false(sh_msg_has_room(b->msg, (shoal_nid){1}, 8));
    sh_msg_wait_room(b->msg, (shoal_nid){1}, 8, &waiter);
    run_all();
    assert_false(sh_waiter_done(&waiter));
    half_done_end();
    run_all();
    assert_int_equal(a->ordered, 1);
    for (unsigned i = 0; i < ASKED; i++) {
        assert_int_equal(asked[i].err, SHOAL_OK);
        assert_int_equal(asked[i].done, i + 1);
        assert_int_equal(asked[i].first, i);
    }
    assert_null(conn->late_first);
    assert_int_equal(sh_out_unsent(sh_conn_find(b->msg, (shoal_nid){1})), 0);
    assert_true(sh_waiter_done(&waiter));
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 1, 8), SHOAL_OK);
    run_all();
    assert_int_equal(a->ordered, 2);
}

/* b is heard all the while, and tells its limit. */
static void controls_pass(void **state)
{
    (void)state;
    begin_and_ask();
    for (unsigned i = 0; i < 40; i++)
        pass(SECOND / 5);
    assert_int_equal(a->losses + b->losses, 0);
    half_done_end();
    run_all();
    assert_int_equal(a->ordered, 1);
    assert_int_equal(asked[ASKED - 1].err, SHOAL_OK);
    assert_int_equal(asked[ASKED - 1].done, ASKED);
}

#define OBJECT_BYTES 300000 /* more than the ring holds: streamed */

static unsigned object_done;
static enum shoal_err object_err;

static void on_object_sent(struct sh_object_out *out, enum shoal_err err)
{
    (void)out;
    object_done++;
    object_err = err;
}

static void describe(struct sh_codec *codec, void *object)
{
    uint32_t number = 77, nothing = 0;
    sh_codec_u32(codec, &number);
    sh_codec_u32(codec, &nothing);
    sh_codec_bytes(codec, object, OBJECT_BYTES);
}

/* The header of an object that is streamed is late, and the object comes in its place. */
static void object_late(bool is_lost)
{
    static uint8_t bytes[OBJECT_BYTES];
    struct sh_object_out object = {.done = on_object_sent};
    struct asked silent;
    object_done = 0;
    begin_and_ask();
    silent = (struct asked){.request = {.done = on_echoed, .arg = &silent}};
    struct sh_out out;
    assert_int_equal(sh_msg_request(a->msg, (shoal_nid){2}, TYPE_SILENT, 0, &silent.request, &out),
                     SHOAL_OK);
    sh_msg_end(a->msg, &out);
    run_all();
    assert_int_equal(b->held_count, 1);
    assert_int_equal(sh_msg_reply_object(b->msg, b->held[0], TYPE_SILENT, describe, bytes, &object),
                     SHOAL_OK);
    run_all();
    assert_int_equal(object_done, 0);
    if (is_lost)
        cut(a, b);
    run_all();
    half_done_end();
    run_all();
    assert_int_equal(object_done, 1);
    assert_int_equal(object_err, is_lost ? SHOAL_ECONNLOST : SHOAL_OK);
    assert_true(is_lost || silent.done == ASKED + 1);
    assert_int_equal(silent.err, object_err);
    assert_int_equal(silent.first, is_lost ? 0 : 77);
}

static void object_is_late(void **state)
{
    (void)state;
    object_late(false);
}

static void object_is_lost(void **state)
{
    (void)state;
    object_late(true);
}

static void lost_meanwhile(void **state)
{
    (void)state;
    begin_and_ask();
    struct sh_reply_to to = {.nid = {1}, .id = 4000u << 20, .generation = 1};
    struct sh_out answer;
    assert_int_equal(sh_msg_reply(b->msg, to, TYPE_ECHO, 5000, &answer), SHOAL_OK);
    cut(a, b);
    run_all();
    assert_null(sh_conn_find(b->msg, (shoal_nid){1})->late_first);
    for (unsigned i = 0; i < ASKED; i++)
        assert_int_equal(asked[i].err, SHOAL_ECONNLOST);
    /* Both writers are through only now. */
    memset(sh_writer_take(&answer.w, 5000), 0, 5000);
    sh_msg_end(b->msg, &answer);
    /* The ring drains still: what the new connection owes is late again. */
    struct asked again;
    assert_int_equal(ask(a, 2, TYPE_ECHO, 7, &again), SHOAL_OK);
    run_all();
    assert_int_equal(again.done, 0);
    half_done_end();
    run_all();
    assert_int_equal(again.first, 7);
    assert_int_equal(a->ordered, 0); /* the message was lost */
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 0, 8), SHOAL_OK);
    run_all();
    assert_int_equal(a->ordered, 1);
}

/* The connection is lost while somebody is in the middle of a message. Its ring is free for others
 * only afterwards: they are told to wait, instead of waiting inside, and are woken. */
static void drain_is_waited_for(void **state)
{
    (void)state;
    struct sh_waiter waiter = {0};
    a = end_open(1);
    b = end_open(2);
    knows(b, a, 1);
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 0, 8), SHOAL_OK);
    run_all();
    assert_int_equal(sh_msg_begin(b->msg, (shoal_nid){1}, TYPE_ORDERED, 8, &half_done), SHOAL_OK);
    cut(a, b);
    run_all();
    assert_int_equal(b->losses, 1);
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 1, 8), SHOAL_EAGAIN);
    assert_false(sh_msg_has_room(b->msg, (shoal_nid){1}, 8));
    sh_msg_wait_room(b->msg, (shoal_nid){1}, 8, &waiter);
    run_all();
    assert_false(sh_waiter_done(&waiter));
    sh_put64(&half_done.w, 99);
    sh_msg_end(b->msg, &half_done);
    run_all();
    assert_true(sh_waiter_done(&waiter));
    assert_int_equal(tell(b, 1, TYPE_ORDERED, 1, 8), SHOAL_OK);
    run_all();
    assert_int_equal(a->ordered, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(answers_are_late, close_all),
        cmocka_unit_test_teardown(controls_pass, close_all),
        cmocka_unit_test_teardown(object_is_late, close_all),
        cmocka_unit_test_teardown(object_is_lost, close_all),
        cmocka_unit_test_teardown(lost_meanwhile, close_all),
        cmocka_unit_test_teardown(drain_is_waited_for, close_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
