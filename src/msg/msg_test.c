/* Two or more ends in one thread over real TCP on loopback: the test runs their steps itself. */
#include "msg/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "msg/tcp.h"

#define TYPE_ECHO SH_MSG_TYPE(9, 1)
#define TYPE_COUNT SH_MSG_TYPE(9, 2)
#define TYPE_SILENT SH_MSG_TYPE(9, 3)
#define TYPE_POOLED SH_MSG_TYPE(9, 4)
#define TYPE_ORDERED SH_MSG_TYPE(9, 5)
#define TYPE_NOBODY SH_MSG_TYPE(9, 6)
#define TYPE_BIG SH_MSG_TYPE(9, 7)
#define TYPE_REFUSED SH_MSG_TYPE(9, 8)
#define DEADLINE_NS UINT64_C(20000000000)
#define RING_BYTES (64 * 1024)

struct end {
    struct sh_msg *msg;
    struct sh_wire *wire;
    char address[SH_MSG_ADDRESS_MAX];
    struct sh_step transport, handlers;
    unsigned ups, losses;
    enum shoal_err loss;
    uint64_t received; /* numbers received by TYPE_COUNT and TYPE_ORDERED: all in order */
    bool is_misordered;
    struct sh_reply_to held;
};

static void wake(void *arg)
{
    (void)arg;
}

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct end *end = arg;
    if (event->kind == SH_MSG_UP) {
        end->ups++;
    } else {
        end->losses++;
        end->loss = event->err;
    }
}

static void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_out out;
    enum shoal_err err = sh_msg_reply(in->msg, in->reply_to, in->type, size, &out);
    assert_int_equal(err, SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
    sh_msg_end(in->msg, &out);
}

static void on_count(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    uint64_t number = sh_get64(&in->payload);
    end->is_misordered |= number != end->received;
    end->received++;
}

static void on_silent(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    end->held = in->reply_to;
}

static void on_big(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    uint32_t size = sh_get32(&in->payload);
    struct sh_out out;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
    memset(sh_writer_take(&out.w, size), (int)(size % 251), size);
    sh_msg_end(in->msg, &out);
}

static void on_refused(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EFULL, "no room at all");
}

static void end_open_as(struct end *end, uint16_t nid, const char *cluster, const char *secret)
{
    *end = (struct end){0};
    assert_int_equal(sh_tcp_create(64, &end->wire), SHOAL_OK);
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = cluster,
        .secret = sh_bytes_text(secret),
        .connections_max = 32,
        .requests_max = 1024,
        .ring_bytes = RING_BYTES,
        .payload_bytes_max = 32 << 20,
        .request_timeout_ns = UINT64_C(10000000000),
        .connect_timeout_ns = UINT64_C(5000000000),
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .wire = end->wire},
        .on_event = on_event,
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = end,
    };
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    assert_int_equal(sh_msg_listen(end->msg, "127.0.0.1:0", end->address), SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
    sh_msg_handler_set(end->msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_COUNT, SH_MSG_INLINE, on_count, end);
    sh_msg_handler_set(end->msg, TYPE_SILENT, SH_MSG_INLINE, on_silent, end);
    sh_msg_handler_set(end->msg, TYPE_POOLED, SH_MSG_POOLED, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_ORDERED, SH_MSG_ORDERED, on_count, end);
    sh_msg_handler_set(end->msg, TYPE_BIG, SH_MSG_INLINE, on_big, end);
    sh_msg_handler_set(end->msg, TYPE_REFUSED, SH_MSG_INLINE, on_refused, end);
}

static void end_open(struct end *end, uint16_t nid)
{
    end_open_as(end, nid, "test", "a secret of the test");
}

static void end_close(struct end *end)
{
    sh_msg_destroy(end->msg);
    end->wire->ops->destroy(end->wire);
    end->msg = NULL;
}

static void knows(struct end *a, struct end *b, uint16_t nid_of_b)
{
    assert_int_equal(sh_msg_node_set(a->msg, (shoal_nid){nid_of_b}, b->address), SHOAL_OK);
}

/* Runs every end's steps until the condition holds; fails the test after a generous deadline. */
#define RUN_UNTIL(condition, ...)                                                                  \
    do {                                                                                           \
        struct end *ends_[] = {__VA_ARGS__};                                                       \
        struct sh_clock clock_ = sh_real_clock();                                                  \
        uint64_t deadline_ = sh_now(&clock_) + DEADLINE_NS;                                        \
        while (!(condition)) {                                                                     \
            for (size_t i_ = 0; i_ < sizeof ends_ / sizeof ends_[0]; i_++) {                       \
                ends_[i_]->transport.run(ends_[i_]->msg);                                          \
                ends_[i_]->handlers.run(ends_[i_]->handlers.arg);                                  \
            }                                                                                      \
            assert_true(sh_now(&clock_) < deadline_);                                              \
        }                                                                                          \
    } while (0)

struct asked {
    struct sh_request request;
    unsigned done;
    enum shoal_err err;
    size_t size;
    uint64_t first;
    char text[64];
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->done++;
    asked->err = err;
    asked->size = sh_reader_left(payload);
    if (err != SHOAL_OK)
        snprintf(asked->text, sizeof asked->text, "%.*s", (int)asked->size,
                 (const char *)payload->at);
    else if (asked->size >= 8)
        asked->first = sh_load64(payload->at);
}

static enum shoal_err ask(struct end *end, uint16_t to, sh_msg_type type, uint64_t value,
                          uint64_t timeout_ns, struct asked *asked)
{
    *asked = (struct asked){0};
    asked->request = (struct sh_request){.done = on_done, .arg = asked, .timeout_ns = timeout_ns};
    struct sh_out out;
    enum shoal_err err = sh_msg_request(end->msg, (shoal_nid){to}, type, 8, &asked->request, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put64(&out.w, value);
    sh_msg_end(end->msg, &out);
    return SHOAL_OK;
}

static void test_request(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    struct asked asked[100];
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(ask(&a, 2, i % 2 ? TYPE_ECHO : TYPE_POOLED, i * 7, 0, &asked[i]),
                         SHOAL_OK);
    assert_int_equal(sh_msg_requests_pending(a.msg), 100);
    RUN_UNTIL(sh_msg_requests_pending(a.msg) == 0, &a, &b);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(asked[i].done, 1);
        assert_int_equal(asked[i].err, SHOAL_OK);
        assert_int_equal(asked[i].first, i * 7);
    }
    assert_int_equal(a.ups, 1);
    assert_int_equal(b.ups, 1);
    /* b may answer and ask over the stream that a opened: it never needs an address of a. */
    struct asked back;
    assert_int_equal(ask(&b, 1, TYPE_ECHO, 5, 0, &back), SHOAL_OK);
    RUN_UNTIL(back.done, &a, &b);
    assert_int_equal(back.first, 5);
    struct sh_msg_stats stats;
    sh_msg_stats_get(a.msg, &stats);
    assert_int_equal(stats.connections_opened, 1);
    assert_int_equal(stats.messages_out, 101);
    assert_true(stats.blocks_out < 100); /* aggregated */
    end_close(&a);
    end_close(&b);
}

static void test_errors_answered(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    struct asked nobody, refused, unknown;
    assert_int_equal(ask(&a, 2, TYPE_NOBODY, 1, 0, &nobody), SHOAL_OK);
    assert_int_equal(ask(&a, 2, TYPE_REFUSED, 1, 0, &refused), SHOAL_OK);
    assert_int_equal(ask(&a, 77, TYPE_ECHO, 1, 0, &unknown), SHOAL_EUNREACHABLE);
    RUN_UNTIL(nobody.done && refused.done, &a, &b);
    assert_int_equal(nobody.err, SHOAL_ENOTYPE);
    assert_int_equal(refused.err, SHOAL_EFULL);
    assert_string_equal(refused.text, "no room at all");
    assert_int_equal(unknown.done, 0);
    end_close(&a);
    end_close(&b);
}

static void test_timeout_and_cancel(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    struct asked late, canceled, after;
    assert_int_equal(ask(&a, 2, TYPE_SILENT, 1, 1000000, &late), SHOAL_OK);
    RUN_UNTIL(late.done && b.held.id != 0, &a, &b); /* it may end before it has arrived */
    assert_int_equal(late.err, SHOAL_ETIMEOUT);
    assert_int_equal(ask(&a, 2, TYPE_SILENT, 1, 0, &canceled), SHOAL_OK);
    struct sh_reply_to first = b.held;
    RUN_UNTIL(b.held.id != first.id, &a, &b);
    assert_true(sh_msg_cancel(a.msg, &canceled.request));
    assert_false(sh_msg_cancel(a.msg, &canceled.request));
    assert_int_equal(sh_msg_requests_pending(a.msg), 0);
    /* The late answers come after all, and disturb nobody. */
    sh_msg_reply_ok(b.msg, first, TYPE_SILENT);
    sh_msg_reply_ok(b.msg, b.held, TYPE_SILENT);
    assert_int_equal(ask(&a, 2, TYPE_ECHO, 9, 0, &after), SHOAL_OK);
    RUN_UNTIL(after.done, &a, &b);
    assert_int_equal(after.first, 9);
    assert_int_equal(canceled.done, 0);
    struct sh_msg_stats stats;
    sh_msg_stats_get(a.msg, &stats);
    assert_int_equal(stats.answers_dropped, 2);
    assert_int_equal(stats.requests_timed_out, 1);
    end_close(&a);
    end_close(&b);
}

/* Fills the ring until it refuses, and checks that order holds while it drains and refills. */
static void count_up(struct end *a, struct end *b, sh_msg_type type)
{
    const uint64_t total = 100000;
    uint64_t sent = 0, refusals = 0;
    while (sent < total) {
        struct sh_out out;
        enum shoal_err err = sh_msg_begin(a->msg, (shoal_nid){2}, type, 8, &out);
        if (err == SHOAL_EAGAIN) {
            refusals++;
            RUN_UNTIL(sh_msg_has_room(a->msg, (shoal_nid){2}, 8), a, b);
            continue;
        }
        assert_int_equal(err, SHOAL_OK);
        sh_put64(&out.w, sent++);
        sh_msg_end(a->msg, &out);
    }
    RUN_UNTIL(b->received == total, a, b);
    assert_false(b->is_misordered);
    assert_true(refusals > 0);
    assert_true(sh_msg_drained(a->msg));
}

static void test_order(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    count_up(&a, &b, TYPE_COUNT);
    b.received = 0;
    count_up(&a, &b, TYPE_ORDERED);
    end_close(&a);
    end_close(&b);
}

static void test_both_open_at_once(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    knows(&b, &a, 1);
    struct asked of_a[50], of_b[50];
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(ask(&a, 2, TYPE_ECHO, i, 0, &of_a[i]), SHOAL_OK);
        assert_int_equal(ask(&b, 1, TYPE_ECHO, i, 0, &of_b[i]), SHOAL_OK);
    }
    RUN_UNTIL(sh_msg_requests_pending(a.msg) + sh_msg_requests_pending(b.msg) == 0, &a, &b);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(of_a[i].first, i);
        assert_int_equal(of_b[i].first, i);
    }
    assert_int_equal(a.ups + b.ups, 2);
    assert_int_equal(a.losses + b.losses, 0);
    end_close(&a);
    end_close(&b);
}

static void test_large(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    uint32_t sizes[] = {0, 1, 65525, 65536, 65537, 200000, 20u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct asked asked = {0};
        asked.request = (struct sh_request){.done = on_done, .arg = &asked};
        struct sh_out out;
        uint32_t size = sizes[i];
        /* There and back through the echo, larger than the ring both ways. */
        enum shoal_err err;
        /* The answer may be here before the limit that came with it. */
        RUN_UNTIL((err = sh_msg_request(a.msg, (shoal_nid){2}, TYPE_ECHO, size, &asked.request,
                                        &out)) != SHOAL_EAGAIN,
                  &a, &b);
        assert_int_equal(err, SHOAL_OK);
        memset(sh_writer_take(&out.w, size), 0x5a, size);
        sh_msg_end(a.msg, &out);
        RUN_UNTIL(asked.done, &a, &b);
        assert_int_equal(asked.err, SHOAL_OK);
        assert_int_equal(asked.size, size);
        if (size >= 8)
            assert_int_equal(asked.first, UINT64_C(0x5a5a5a5a5a5a5a5a));
    }
    struct sh_request request = {.done = on_done};
    struct sh_out out;
    assert_int_equal(sh_msg_request(a.msg, (shoal_nid){2}, TYPE_ECHO, 33u << 20, &request, &out),
                     SHOAL_ETOOBIG);
    end_close(&a);
    end_close(&b);
}

/* Answers pile up at b while a does not read: nothing is lost, all come in the end. */
static void test_slow_reader(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    struct asked asked[64];
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(ask(&a, 2, TYPE_BIG, 400000 + i, 0, &asked[i]), SHOAL_OK);
    RUN_UNTIL(a.ups == 1, &a, &b);
    struct sh_msg_stats stats;
    for (unsigned i = 0; i < 1000; i++)
        b.transport.run(b.msg);
    RUN_UNTIL(sh_msg_requests_pending(a.msg) == 0, &a, &b);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(asked[i].err, SHOAL_OK);
        assert_int_equal(asked[i].size, 400000 + i);
    }
    sh_msg_stats_get(b.msg, &stats);
    assert_true(stats.bytes_out > UINT64_C(64) * 400000);
    end_close(&a);
    end_close(&b);
}

static void test_lost(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    struct asked asked, unreachable, again;
    assert_int_equal(ask(&a, 2, TYPE_SILENT, 1, 0, &asked), SHOAL_OK);
    RUN_UNTIL(b.held.id != 0, &a, &b);
    end_close(&b);
    RUN_UNTIL(asked.done, &a);
    assert_int_equal(asked.err, SHOAL_ECONNLOST);
    assert_int_equal(a.losses, 1);
    assert_int_equal(ask(&a, 2, TYPE_ECHO, 1, 0, &unreachable), SHOAL_OK);
    RUN_UNTIL(unreachable.done, &a);
    assert_int_equal(unreachable.err, SHOAL_EUNREACHABLE);
    /* The node comes back elsewhere. */
    end_open(&b, 2);
    knows(&a, &b, 2);
    assert_int_equal(ask(&a, 2, TYPE_ECHO, 3, 0, &again), SHOAL_OK);
    RUN_UNTIL(again.done, &a, &b);
    assert_int_equal(again.first, 3);
    sh_msg_node_remove(a.msg, (shoal_nid){2});
    RUN_UNTIL(a.losses == 3, &a, &b);
    assert_int_equal(ask(&a, 2, TYPE_ECHO, 3, 0, &again), SHOAL_EUNREACHABLE);
    end_close(&a);
    end_close(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct {
        const char *cluster, *secret;
        uint16_t nid;
        enum shoal_err expected;
    } cases[] = {
        {"other", "a secret of the test", 1, SHOAL_ECLUSTER},
        {"test", "another secret", 1, SHOAL_ESECRET},
        {"test", "", 1, SHOAL_ESECRET},
        {"test", "a secret of the test", 2, SHOAL_EEXIST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct end a, b;
        end_open_as(&a, cases[i].nid, cases[i].cluster, cases[i].secret);
        end_open(&b, 2);
        knows(&a, &b, 2);
        struct asked asked;
        assert_int_equal(ask(&a, 2, TYPE_ECHO, 1, 0, &asked), SHOAL_OK);
        RUN_UNTIL(asked.done, &a, &b);
        assert_int_equal(asked.err, cases[i].expected);
        assert_int_equal(a.loss, cases[i].expected);
        assert_int_equal(b.ups, 0);
        end_close(&a);
        end_close(&b);
    }
}

static void test_clients(void **state)
{
    (void)state;
    struct end a, b, c;
    end_open(&a, 0);
    end_open(&b, 2);
    end_open(&c, 0);
    shoal_nid alias, same;
    assert_int_equal(sh_msg_contact(a.msg, b.address, &alias), SHOAL_OK);
    assert_int_equal(sh_msg_contact(a.msg, b.address, &same), SHOAL_OK);
    assert_int_equal(alias.v, same.v);
    assert_true(alias.v >= SH_MSG_ALIAS_MIN);
    knows(&c, &b, 2);
    struct asked of_a, of_c, held;
    assert_int_equal(ask(&a, alias.v, TYPE_ECHO, 11, 0, &of_a), SHOAL_OK);
    assert_int_equal(ask(&c, 2, TYPE_POOLED, 12, 0, &of_c), SHOAL_OK);
    RUN_UNTIL(of_a.done && of_c.done, &a, &b, &c);
    assert_int_equal(of_a.first, 11);
    assert_int_equal(of_c.first, 12);
    assert_int_equal(b.ups, 2);
    /* A client that is gone can't be answered, and the answer reaches nobody else. */
    assert_int_equal(ask(&c, 2, TYPE_SILENT, 12, 0, &held), SHOAL_OK);
    RUN_UNTIL(b.held.id != 0, &a, &b, &c);
    end_close(&c);
    RUN_UNTIL(b.losses == 1, &a, &b);
    struct sh_out out;
    assert_int_equal(sh_msg_reply(b.msg, b.held, TYPE_SILENT, 0, &out), SHOAL_ECONNLOST);
    end_close(&a);
    end_close(&b);
}

/* A raw socket to an end. */
static int raw_connect(const struct end *end)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *colon = strrchr(end->address, ':');
    to.sin_port = htons((uint16_t)atoi(colon + 1));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static uint64_t refused_of(const struct end *end)
{
    struct sh_msg_stats stats;
    sh_msg_stats_get(end->msg, &stats);
    return stats.hellos_refused;
}

static void test_hostile_bytes(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    knows(&a, &b, 2);
    int garbage = raw_connect(&b);
    char text[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_int_equal(write(garbage, text, sizeof text), sizeof text);
    RUN_UNTIL(refused_of(&b) == 1, &a, &b);
    /* A version from the future is told so. */
    int future = raw_connect(&b);
    uint8_t hello[48] = {0x53, 0x48, 0x4f, 0x4c, 1, 0, 48, 0, 9, 0, 12, 0};
    assert_int_equal(write(future, hello, sizeof hello), sizeof hello);
    RUN_UNTIL(refused_of(&b) == 2, &a, &b);
    uint8_t refusal[10];
    assert_int_equal(recv(future, refusal, sizeof refusal, MSG_WAITALL), sizeof refusal);
    assert_int_equal(sh_load16(refusal + 8), SHOAL_EVERSION);
    close(garbage);
    close(future);
    struct asked asked;
    assert_int_equal(ask(&a, 2, TYPE_ECHO, 4, 0, &asked), SHOAL_OK);
    RUN_UNTIL(asked.done, &a, &b);
    assert_int_equal(asked.err, SHOAL_OK);
    end_close(&a);
    end_close(&b);
}

static void test_addresses(void **state)
{
    (void)state;
    struct end a, b;
    end_open(&a, 1);
    end_open(&b, 2);
    const char *bad[] = {"", ":1", "host", "127.0.0.1:", "127.0.0.1:99999", "::1:4", "1.2.3.4:x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char bound[SH_MSG_ADDRESS_MAX];
        struct sh_wire *wire;
        assert_int_equal(sh_tcp_create(4, &wire), SHOAL_OK);
        assert_int_equal(wire->ops->listen(wire, bad[i], bound), SHOAL_EADDRESS);
        wire->ops->destroy(wire);
    }
    struct sh_wire *wire;
    char bound[SH_MSG_ADDRESS_MAX];
    assert_int_equal(sh_tcp_create(4, &wire), SHOAL_OK);
    assert_int_equal(wire->ops->listen(wire, b.address, bound), SHOAL_EADDRINUSE);
    assert_int_equal(wire->ops->listen(wire, "[::1]:0", bound), SHOAL_OK);
    assert_memory_equal(bound, "[::1]:", 6);
    wire->ops->destroy(wire);
    end_close(&a);
    end_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_errors_answered),
        cmocka_unit_test(test_timeout_and_cancel),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_both_open_at_once),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_clients),
        cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
