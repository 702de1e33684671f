/* TLS around a wire in memory, where the test decides in which pieces bytes go through; and around
 * TCP, with messaging on top. */
#include "base/random_test.h"
#include "msg/tls.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <sys/stat.h>
#include <time.h>

#include "msg/memwire.h"
#include "msg/msg.h"
#include "msg/tls_test.h"
#include "msg/wires.h"

#define TIMEOUT_NS UINT64_C(5000000000)
#define HANDSHAKES_MAX 4
#define TURNS_MAX 2000000
#define TAG 77

static uint64_t random_state;

static uint64_t random_below(uint64_t bound)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 33) % bound;
}

static enum shoal_err wrap(struct sh_wire *inner, struct sh_clock clock, const char *name,
                           const char *ca, struct sh_wire **wire_out, char *detail)
{
    char cert[TLS_TEST_PATH_MAX], key[TLS_TEST_PATH_MAX], authority[TLS_TEST_PATH_MAX];
    char file[64];
    snprintf(file, sizeof file, "%s.pem", name);
    tls_test_path(cert, file);
    snprintf(file, sizeof file, "%s.key", name);
    tls_test_path(key, file);
    tls_test_path(authority, ca);
    struct sh_tls_config config = {.cert_file = cert,
                                   .key_file = key,
                                   .ca_file = authority,
                                   .clock = clock,
                                   .handshake_timeout_ns = TIMEOUT_NS,
                                   .handshakes_max = HANDSHAKES_MAX};
    return sh_tls_create(inner, &config, wire_out, detail);
}

/* --- Two ends over memory ------------------------------------------------------------------- */

struct side {
    struct sh_memwire memory;
    struct sh_wire *wire;
    size_t carried; /* bytes of ours that the other side was given */
    bool is_open, is_lost, is_readable, is_writable;
    struct sh_wire_event event; /* the last one */
};

struct pair {
    struct side dialler, acceptor;
    size_t piece_max; /* most bytes that are carried, and that a link takes, at once */
};

static void side_open(struct side *side, const char *name, const char *ca)
{
    char detail[SH_TLS_DETAIL_BYTES];
    *side = (struct side){0};
    sh_memwire_init(&side->memory);
    struct sh_clock clock = sh_memwire_env(&side->memory).clock;
    enum shoal_err err = wrap(&side->memory.wire, clock, name, ca, &side->wire, detail);
    if (err != SHOAL_OK)
        print_message("%s\n", detail);
    assert_int_equal(err, SHOAL_OK);
}

static void pair_open(struct pair *pair, const char *dialler, const char *dialler_ca,
                      const char *acceptor, const char *acceptor_ca)
{
    sh_link link;
    side_open(&pair->dialler, dialler, dialler_ca);
    side_open(&pair->acceptor, acceptor, acceptor_ca);
    pair->piece_max = SIZE_MAX;
    assert_int_equal(pair->dialler.wire->ops->open(pair->dialler.wire, "there", TAG, &link),
                     SHOAL_OK);
    assert_int_equal(link, 0);
    assert_int_equal(sh_memwire_accept(&pair->acceptor.memory), 0);
}

static void pair_close(struct pair *pair)
{
    pair->dialler.wire->ops->destroy(pair->dialler.wire);
    pair->acceptor.wire->ops->destroy(pair->acceptor.wire);
    sh_memwire_free(&pair->dialler.memory);
    sh_memwire_free(&pair->acceptor.memory);
}

static void side_poll(struct side *side)
{
    struct sh_wire_event events[4];
    unsigned count = side->wire->ops->poll(side->wire, events, 1 + random_below(4), 0);
    for (unsigned i = 0; i < count; i++) {
        side->event = events[i];
        side->is_open |= events[i].kind == SH_WIRE_OPENED || events[i].kind == SH_WIRE_ACCEPTED;
        side->is_lost |= events[i].kind == SH_WIRE_LOST;
        side->is_readable |= events[i].kind == SH_WIRE_READABLE;
        side->is_writable |= events[i].kind == SH_WIRE_WRITABLE;
    }
}

static void carry(struct pair *pair, struct side *from, struct side *to)
{
    struct sh_memlink *link = &from->memory.links[0];
    size_t size = link->out_size - from->carried;
    if (size > pair->piece_max)
        size = 1 + random_below(pair->piece_max);
    if (size > 0 && to->memory.links[0].is_there)
        sh_memwire_feed(&to->memory, 0, sh_bytes_make(link->out + from->carried, size));
    from->carried += size;
    if (pair->piece_max != SIZE_MAX)
        link->push_room = random_below(2) * random_below(pair->piece_max);
}

static void pair_turn(struct pair *pair)
{
    side_poll(&pair->dialler);
    carry(pair, &pair->dialler, &pair->acceptor);
    side_poll(&pair->acceptor);
    carry(pair, &pair->acceptor, &pair->dialler);
}

static void pair_shake(struct pair *pair)
{
    for (int i = 0; i < TURNS_MAX && !(pair->dialler.is_open && pair->acceptor.is_open); i++)
        pair_turn(pair);
    assert_true(pair->dialler.is_open);
    assert_true(pair->acceptor.is_open);
}

static void handshake_opens_both_sides(void **state)
{
    struct pair pair;
    (void)state;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    /* Nothing is taken and nothing is there before the link is open. */
    uint8_t byte = 1;
    assert_int_equal(pair.dialler.wire->ops->push(pair.dialler.wire, 0, sh_bytes_make(&byte, 1)),
                     0);
    assert_int_equal(pair.dialler.wire->ops->pull(pair.dialler.wire, 0, &byte, 1), 0);
    pair_shake(&pair);
    assert_false(pair.dialler.is_lost);
    assert_false(pair.acceptor.is_lost);
    pair_close(&pair);
}

/* Records in what a side has sent since. */
static unsigned records_after(const struct sh_memlink *link, size_t at)
{
    unsigned count = 0;
    for (; at + 5 <= link->out_size; count++)
        at += 5 + ((size_t)link->out[at + 3] << 8 | link->out[at + 4]);
    assert_int_equal(at, link->out_size);
    return count;
}

/* Polls until all that was fed is pulled, or the side is open; returns how often. */
static unsigned polls_count(struct side *side)
{
    const struct sh_memlink *link = &side->memory.links[0];
    unsigned polls = 0;
    for (; link->in_size > 0 && !side->is_open && polls < 100; polls++)
        side_poll(side);
    return polls;
}

/* However many messages of a handshake come at once: a certificate and its signature take 500 us. */
static void a_poll_goes_on_by_one_record(void **state)
{
    struct pair pair;
    unsigned records, most = 0;
    (void)state;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    struct side *from = &pair.dialler, *to = &pair.acceptor;
    side_poll(from);
    side_poll(to);
    for (int i = 0; i < 3; i++) {
        records = records_after(&from->memory.links[0], from->carried);
        carry(&pair, from, to);
        assert_int_equal(polls_count(to), records);
        most = records > most ? records : most;
        struct side *swap = from;
        from = to;
        to = swap;
    }
    assert_true(pair.acceptor.is_open);
    assert_true(most >= 5); /* keys, settings, request, certificate, signature, and the end */
    pair_close(&pair);
}

/* One direction of a stream of bytes whose value is known from their place. */
struct flow {
    struct side *from, *to;
    size_t size, sent, received;
};

static uint8_t byte_at(size_t place)
{
    return (uint8_t)(place * 31 + (place >> 8) * 7 + (place >> 16));
}

static void flow_step(struct flow *flow)
{
    static uint8_t bytes[200000];
    size_t left = flow->size - flow->sent;
    size_t size = 1 + random_below(random_below(2) ? 300 : sizeof bytes);
    if (size > left)
        size = left;
    if (size > 0) {
        for (size_t i = 0; i < size; i++)
            bytes[i] = byte_at(flow->sent + i);
        size_t taken = flow->from->wire->ops->push(flow->from->wire, 0, sh_bytes_make(bytes, size));
        assert_true(taken <= size);
        flow->sent += taken;
    }
    if (!flow->to->is_readable)
        return;
    size_t room = 1 + random_below(random_below(2) ? 300 : sizeof bytes);
    size_t got = flow->to->wire->ops->pull(flow->to->wire, 0, bytes, room);
    assert_true(got <= room);
    for (size_t i = 0; i < got; i++)
        assert_int_equal(bytes[i], byte_at(flow->received + i));
    flow->received += got;
    flow->to->is_readable = got > 0;
}

static void flows_run(size_t size, size_t piece_max)
{
    struct pair pair;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    pair.piece_max = piece_max;
    pair_shake(&pair);
    struct flow there = {&pair.dialler, &pair.acceptor, size, 0, 0};
    struct flow back = {&pair.acceptor, &pair.dialler, size / 2, 0, 0};
    for (int i = 0; i < TURNS_MAX && (there.received < size || back.received < size / 2); i++) {
        flow_step(&there);
        flow_step(&back);
        pair_turn(&pair);
    }
    assert_int_equal(there.received, size);
    assert_int_equal(back.received, size / 2);
    assert_false(pair.dialler.is_lost);
    assert_false(pair.acceptor.is_lost);
    pair_close(&pair);
}

static void bytes_arrive_in_any_pieces(void **state)
{
    (void)state;
    flows_run(3000, 7);
    flows_run(300000, 4000);
    flows_run(3000000, 100000);
    flows_run(3000000, SIZE_MAX);
}

/* What the inner wire has not taken is not said to be taken, so that it is safe to close after a
 * push that took all; and the owner hears when to go on. */
static void push_claims_nothing_that_waits(void **state)
{
    static uint8_t bytes[100000];
    struct pair pair;
    (void)state;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    pair_shake(&pair);
    struct side *dialler = &pair.dialler;
    struct sh_memlink *link = &dialler->memory.links[0];
    link->push_room = 10;
    struct sh_bytes all = sh_bytes_make(bytes, sizeof bytes);
    assert_int_equal(dialler->wire->ops->push(dialler->wire, 0, all), 0);
    assert_int_equal(dialler->wire->ops->push(dialler->wire, 0, all), 0);
    side_poll(dialler);
    assert_false(dialler->is_writable);
    link->push_room = SIZE_MAX;
    for (int i = 0; i < 10 && !dialler->is_writable; i++)
        side_poll(dialler);
    assert_true(dialler->is_writable);
    /* Fewer than are owed are counted first. */
    assert_int_equal(dialler->wire->ops->push(dialler->wire, 0, sh_bytes_make(bytes, 100)), 100);
    all.size -= 100;
    assert_int_equal(dialler->wire->ops->push(dialler->wire, 0, all), all.size);
    pair_close(&pair);
}

/* --- Refusals ------------------------------------------------------------------------------- */

static void turns(struct pair *pair, int count)
{
    for (int i = 0; i < count; i++)
        pair_turn(pair);
}

static void both_refuse_the_wrong_authority(void **state)
{
    static const char *const cases[2][4] = {
        {"node", "ca.pem", "other", "ca.pem"}, /* the dialler does not trust the acceptor */
        {"other", "ca.pem", "node", "ca.pem"}, /* nor this acceptor that dialler */
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct pair pair;
        pair_open(&pair, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        turns(&pair, 50);
        assert_false(pair.dialler.is_open);
        assert_false(pair.acceptor.is_open);
        assert_true(pair.dialler.is_lost);
        assert_int_equal(pair.dialler.event.err, SHOAL_ETLS);
        assert_int_equal(pair.dialler.event.tag, TAG);
        assert_false(pair.acceptor.is_lost); /* it was never announced */
        assert_false(pair.acceptor.memory.links[0].is_there);
        assert_false(pair.dialler.memory.links[0].is_there);
        pair_close(&pair);
    }
}

static void a_changed_byte_ends_the_link(void **state)
{
    struct pair pair;
    uint8_t bytes[100] = {1};
    (void)state;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    pair_shake(&pair);
    turns(&pair, 5);
    struct sh_memlink *link = &pair.dialler.memory.links[0];
    assert_int_equal(
        pair.dialler.wire->ops->push(pair.dialler.wire, 0, sh_bytes_make(bytes, sizeof bytes)),
        sizeof bytes);
    link->out[link->out_size - 20] ^= 1;
    carry(&pair, &pair.dialler, &pair.acceptor);
    assert_int_equal(pair.acceptor.wire->ops->pull(pair.acceptor.wire, 0, bytes, 100), 0);
    for (int i = 0; i < 4; i++)
        side_poll(&pair.acceptor);
    assert_true(pair.acceptor.is_lost);
    assert_int_equal(pair.acceptor.event.err, SHOAL_ETLS);
    pair_close(&pair);
}

/* The hello of a program without TLS gets the hello's own refusal. */
static void a_plain_dialler_is_told(void **state)
{
    static const uint8_t hello[48] = {'S', 'H', 'O', 'L', 1, 0, 48, 0, 1, 0, 1, 0};
    static const uint8_t refusal[10] = {'S', 'H', 'O', 'L', 4, 0, 10, 0, SHOAL_ETLS, 0};
    struct side acceptor;
    (void)state;
    side_open(&acceptor, "node", "ca.pem");
    sh_link link = sh_memwire_accept(&acceptor.memory);
    sh_memwire_feed(&acceptor.memory, link, sh_bytes_make(hello, sizeof hello));
    for (int i = 0; i < 10; i++)
        side_poll(&acceptor);
    assert_false(acceptor.is_open);
    assert_false(acceptor.memory.links[link].is_there);
    assert_int_equal(acceptor.memory.links[link].out_size, sizeof refusal);
    assert_memory_equal(acceptor.memory.links[link].out, refusal, sizeof refusal);
    acceptor.wire->ops->destroy(acceptor.wire);
    sh_memwire_free(&acceptor.memory);
}

/* And the refusal of a node without TLS is understood. */
static void a_plain_acceptor_is_known(void **state)
{
    static const uint8_t refusal[10] = {'S', 'H', 'O', 'L', 4, 0, 10, 0, SHOAL_ETLS, 0};
    struct side dialler;
    sh_link link;
    (void)state;
    side_open(&dialler, "node", "ca.pem");
    assert_int_equal(dialler.wire->ops->open(dialler.wire, "there", TAG, &link), SHOAL_OK);
    side_poll(&dialler);
    sh_memwire_feed(&dialler.memory, link, sh_bytes_make(refusal, sizeof refusal));
    for (int i = 0; i < 10; i++)
        side_poll(&dialler);
    assert_true(dialler.is_lost);
    assert_int_equal(dialler.event.err, SHOAL_ETLS);
    dialler.wire->ops->destroy(dialler.wire);
    sh_memwire_free(&dialler.memory);
}

static void silence_in_the_handshake_is_closed(void **state)
{
    struct side acceptor;
    (void)state;
    side_open(&acceptor, "node", "ca.pem");
    sh_link link = sh_memwire_accept(&acceptor.memory);
    for (int i = 0; i < 10; i++)
        side_poll(&acceptor);
    assert_true(acceptor.memory.links[link].is_there);
    acceptor.memory.now_ns += TIMEOUT_NS;
    side_poll(&acceptor);
    side_poll(&acceptor);
    assert_false(acceptor.memory.links[link].is_there);
    assert_false(acceptor.is_open);
    acceptor.wire->ops->destroy(acceptor.wire);
    sh_memwire_free(&acceptor.memory);
}

/* Of those that say nothing the oldest makes room, and who speaks TLS gets through beside them. */
static void silent_strangers_keep_nobody_out(void **state)
{
    enum { STRANGERS = 20 };
    struct pair pair;
    (void)state;
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    for (int i = 0; i < STRANGERS; i++) {
        if (i % 3 == 0)
            pair_turn(&pair);
        /* Fewer than HANDSHAKES_MAX at a time are younger than the one that is shaking hands. */
        if (i == HANDSHAKES_MAX - 1)
            pair_shake(&pair);
        (void)sh_memwire_accept(&pair.acceptor.memory);
    }
    for (int i = 0; i < 4 * STRANGERS; i++)
        side_poll(&pair.acceptor);
    const struct sh_memlink *links = pair.acceptor.memory.links;
    assert_true(links[0].is_there); /* it is open: no stranger any more */
    for (int i = 1; i <= STRANGERS; i++)
        assert_int_equal(links[i].is_there, i > STRANGERS - HANDSHAKES_MAX);
    pair_close(&pair);
}

static void a_lost_link_says_so(void **state)
{
    struct pair pair;
    (void)state;
    /* Before it was open, ... */
    pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
    side_poll(&pair.dialler);
    side_poll(&pair.dialler);
    sh_memwire_cut(&pair.dialler.memory, 0);
    side_poll(&pair.dialler);
    side_poll(&pair.dialler);
    assert_true(pair.dialler.is_lost);
    assert_int_equal(pair.dialler.event.err, SHOAL_EUNREACHABLE);
    pair_close(&pair);
    /* ... after, and when the other side closed in order. */
    for (int in_order = 0; in_order < 2; in_order++) {
        uint8_t byte;
        pair_open(&pair, "node", "ca.pem", "node", "ca.pem");
        pair_shake(&pair);
        if (in_order) {
            pair.acceptor.wire->ops->close(pair.acceptor.wire, 0);
            carry(&pair, &pair.acceptor, &pair.dialler);
            assert_int_equal(pair.dialler.wire->ops->pull(pair.dialler.wire, 0, &byte, 1), 0);
        } else {
            /* What it may have received is to be pulled first. */
            sh_memwire_cut(&pair.dialler.memory, 0);
            for (int i = 0; i < 4; i++)
                side_poll(&pair.dialler);
            assert_false(pair.dialler.is_lost);
            assert_int_equal(pair.dialler.wire->ops->pull(pair.dialler.wire, 0, &byte, 1), 0);
        }
        for (int i = 0; i < 4; i++)
            side_poll(&pair.dialler);
        assert_true(pair.dialler.is_lost);
        assert_int_equal(pair.dialler.event.err, SHOAL_ECONNLOST);
        pair_close(&pair);
    }
}

static void files_that_are_no_use_are_named(void **state)
{
    struct sh_memwire memory;
    struct sh_wire *wire = NULL;
    char detail[SH_TLS_DETAIL_BYTES];
    (void)state;
    sh_memwire_init(&memory);
    struct sh_clock clock = sh_memwire_env(&memory).clock;
    assert_int_equal(wrap(&memory.wire, clock, "nobody", "ca.pem", &wire, detail), SHOAL_ETLS);
    assert_non_null(strstr(detail, "tls_cert_file"));
    assert_non_null(strstr(detail, "nobody.pem"));
    assert_non_null(strstr(detail, "No such file"));
    assert_int_equal(wrap(&memory.wire, clock, "node", "ca.key", &wire, detail), SHOAL_ETLS);
    assert_non_null(strstr(detail, "tls_ca_file"));
    char cert[TLS_TEST_PATH_MAX], key[TLS_TEST_PATH_MAX], ca[TLS_TEST_PATH_MAX];
    tls_test_path(cert, "node.pem");
    tls_test_path(key, "other.key");
    tls_test_path(ca, "ca.pem");
    struct sh_tls_config config = {cert, key, ca, clock, TIMEOUT_NS, 0};
    assert_int_equal(sh_tls_create(&memory.wire, &config, &wire, detail), SHOAL_ETLS);
    assert_non_null(strstr(detail, "tls_key_file"));
    config.cert_file = "";
    assert_int_equal(sh_tls_create(&memory.wire, &config, &wire, detail), SHOAL_ETLS);
    assert_non_null(strstr(detail, "is not set"));
    assert_null(wire);
}

/* --- Messaging over TLS over real wires
 * ------------------------------------------------------------ */

#define TYPE_ECHO SH_MSG_TYPE(1, 1)
#define BIG (9 << 20)

struct end {
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_step step;
    char address[SH_MSG_ADDRESS_MAX];
};

static void no_wake(void *arg)
{
    (void)arg;
}

static void on_echo(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    size_t size = sh_reader_left(&in->payload);
    (void)arg;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, size, &out), SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
    sh_msg_end(in->msg, &out);
}

static void end_open(struct end *end, uint16_t nid, const char *wire, const char *address,
                     bool has_tls)
{
    char detail[SH_TLS_DETAIL_BYTES];
    assert_int_equal(sh_wire_create(wire, 16, &end->wire), SHOAL_OK);
    if (has_tls)
        assert_int_equal(wrap(end->wire, sh_real_clock(), "node", "ca.pem", &end->wire, detail),
                         SHOAL_OK);
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "tls",
        .secret = sh_bytes_text("the secret goes on inside"),
        .connections_max = 8,
        .requests_max = 64,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 16 << 20,
        .request_timeout_ns = UINT64_C(60000000000),
        .connect_timeout_ns = UINT64_C(60000000000),
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .wire = end->wire},
        .wake_transport = no_wake,
        .wake_handlers = no_wake,
    };
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    assert_int_equal(sh_msg_listen(end->msg, address, end->address), SHOAL_OK);
    sh_msg_handler_set(end->msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, NULL);
    end->step = sh_msg_transport_step(end->msg);
}

static void end_close(struct end *end)
{
    sh_msg_destroy(end->msg);
    end->wire->ops->destroy(end->wire);
}

struct asked {
    struct sh_request request;
    bool is_done, is_right;
    size_t size;
    enum shoal_err err;
};

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    asked->is_done = true;
    asked->err = err;
    size_t size = sh_reader_left(payload);
    const uint8_t *bytes = sh_reader_take(payload, size);
    asked->is_right = err == SHOAL_OK && size == asked->size;
    for (size_t i = 0; asked->is_right && i < size; i++)
        asked->is_right = bytes[i] == byte_at(i);
}

static void ask(struct end *from, struct end *to, size_t size, struct asked *asked)
{
    struct sh_out out;
    *asked = (struct asked){.request = {.done = on_answer, .arg = asked}, .size = size};
    assert_int_equal(
        sh_msg_request(from->msg, (shoal_nid){2}, TYPE_ECHO, size, &asked->request, &out),
        SHOAL_OK);
    for (size_t i = 0; i < size; i++)
        sh_put8(&out.w, byte_at(i));
    sh_msg_end(from->msg, &out);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t deadline_s = now.tv_sec + 60;
    while (!asked->is_done && now.tv_sec < deadline_s) {
        from->step.run(from->step.arg);
        to->step.run(to->step.arg);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    assert_true(asked->is_done);
}

static void messages_small_and_large(void **state)
{
    static const char *const wires[3][2] = {
        {"epoll", "127.0.0.1:0"}, {"uring", "127.0.0.1:0"}, {"loopback", "loop:0"}};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct end from, to;
        struct asked asked;
        end_open(&from, 1, wires[i][0], wires[i][1], true);
        end_open(&to, 2, wires[i][0], wires[i][1], true);
        assert_int_equal(sh_msg_node_set(from.msg, (shoal_nid){2}, to.address), SHOAL_OK);
        for (size_t size = 0; size <= BIG; size = size * 3 + 1) {
            ask(&from, &to, size, &asked);
            assert_int_equal(asked.err, SHOAL_OK);
            assert_true(asked.is_right);
        }
        end_close(&from);
        end_close(&to);
    }
}

static void plain_and_tls_tell_each_other(void **state)
{
    (void)state;
    for (int dialler_has_tls = 0; dialler_has_tls < 2; dialler_has_tls++) {
        struct end from, to;
        struct asked asked;
        end_open(&from, 1, "tcp", "127.0.0.1:0", dialler_has_tls == 1);
        end_open(&to, 2, "tcp", "127.0.0.1:0", dialler_has_tls == 0);
        assert_int_equal(sh_msg_node_set(from.msg, (shoal_nid){2}, to.address), SHOAL_OK);
        ask(&from, &to, 10, &asked);
        assert_int_equal(asked.err, SHOAL_ETLS);
        end_close(&from);
        end_close(&to);
    }
}

int main(void)
{
    random_state = test_seed((uint64_t)time(NULL));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handshake_opens_both_sides),
        cmocka_unit_test(a_poll_goes_on_by_one_record),
        cmocka_unit_test(bytes_arrive_in_any_pieces),
        cmocka_unit_test(push_claims_nothing_that_waits),
        cmocka_unit_test(both_refuse_the_wrong_authority),
        cmocka_unit_test(a_changed_byte_ends_the_link),
        cmocka_unit_test(a_plain_dialler_is_told),
        cmocka_unit_test(a_plain_acceptor_is_known),
        cmocka_unit_test(silence_in_the_handshake_is_closed),
        cmocka_unit_test(silent_strangers_keep_nobody_out),
        cmocka_unit_test(a_lost_link_says_so),
        cmocka_unit_test(files_that_are_no_use_are_named),
        cmocka_unit_test(messages_small_and_large),
        cmocka_unit_test(plain_and_tls_tell_each_other),
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
