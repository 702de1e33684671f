/* What env/wire.h promises, asked of every real wire: the same tests over epoll and io_uring, TCP
 * and Unix-domain sockets, loopback, TLS and the wire for one-sided writes around epoll and
 * io_uring. The writes themselves: writes_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "msg/wire_test.h"

/* --- One direction of a transfer --------------------------------------------------------- */

struct flow {
    struct end *from, *to;
    sh_link from_link, to_link;
    uint64_t size, pushed, pulled;
    bool is_blocked;
    unsigned blocked_times;
};

static void flow_push(struct rig *rig, struct flow *flow)
{
    uint8_t bytes[70000];
    size_t size = 1 + prng(rig) % (prng(rig) % 4 ? 300 : sizeof bytes);
    struct sh_wire_event event;
    if (flow->is_blocked && end_take(flow->from, SH_WIRE_WRITABLE, flow->from_link, &event))
        flow->is_blocked = false;
    if (flow->is_blocked || flow->pushed == flow->size)
        return;
    if (size > flow->size - flow->pushed)
        size = (size_t)(flow->size - flow->pushed);
    for (size_t i = 0; i < size; i++)
        bytes[i] = pattern(flow->pushed + i);
    size_t taken = push(flow->from, flow->from_link, bytes, size);
    flow->pushed += taken;
    flow->is_blocked = taken < size;
    flow->blocked_times += flow->is_blocked;
}

/* What a blocked link may have handed on beyond what push said: TLS owes records that are encrypted
 * already, four at most (msg/tls.h), the wire for writes the rest of a frame (msg/writes.h). */
static uint64_t owed_max(const struct rig *rig, const struct flow *flow)
{
    uint64_t owed = rig->variant->has_tls ? 4 * 16384 : 0;
    owed += rig->variant->has_writes ? 64 << 10 : 0;
    return flow->is_blocked ? owed : 0;
}

static void flow_pull(struct rig *rig, struct flow *flow)
{
    uint8_t bytes[50000];
    struct sh_wire_event event;
    if (!end_take(flow->to, SH_WIRE_READABLE, flow->to_link, &event))
        return;
    size_t got = pull(flow->to, flow->to_link, bytes, 1 + prng(rig) % sizeof bytes);
    for (size_t i = 0; i < got; i++)
        assert_int_equal(bytes[i], pattern(flow->pulled + i));
    flow->pulled += got;
    assert_true(flow->pulled <= flow->pushed + owed_max(rig, flow));
}

/* --- Tests ------------------------------------------------------------------------------- */

static void opens_and_accepts(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, UINT64_C(0x1234567890ABCDEF), &a, &b);
    assert_int_equal(push(&rig->a, a, "from a", 6), 6);
    expect(rig, &rig->b, b, "from a", 6);
    assert_int_equal(push(&rig->b, b, "from b", 6), 6);
    expect(rig, &rig->a, a, "from b", 6);
    uint8_t byte;
    assert_int_equal(pull(&rig->a, a, &byte, 1), 0);
    rig_free(rig);
}

static void order_both_ways(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    struct flow flows[2] = {{&rig->a, &rig->b, a, b, 12 << 20, 0, 0, false, 0},
                            {&rig->b, &rig->a, b, a, 3 << 20, 0, 0, false, 0}};
    uint64_t deadline_ns = now_ns() + 4 * DEADLINE_NS;
    while (flows[0].pulled < flows[0].size || flows[1].pulled < flows[1].size) {
        assert_true(now_ns() < deadline_ns);
        for (unsigned i = 0; i < 2; i++) {
            /* In phases, so that each side runs far ahead as well as dry. */
            unsigned phase = prng(rig) % 64;
            for (unsigned k = 0; k < phase; k++)
                flow_push(rig, &flows[i]);
            end_poll(&rig->a, 0);
            end_poll(&rig->b, 0);
            for (unsigned k = prng(rig) % 4; k > 0; k--)
                flow_pull(rig, &flows[i]);
        }
    }
    rig_free(rig);
}

static void partial_push_then_writable(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    struct flow flow = {&rig->a, &rig->b, a, b, 256 << 20, 0, 0, false, 0};
    while (!flow.is_blocked)
        flow_push(rig, &flow);
    assert_true(flow.pushed < flow.size);
    assert_true(flow.pushed > 0);
    /* Under TLS the rest has to follow, since part of it may be under way. */
    flow.size = flow.pushed + owed_max(rig, &flow);
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    while (flow.pulled < flow.size) {
        assert_true(now_ns() < deadline_ns);
        end_poll(&rig->a, 0);
        end_poll(&rig->b, 0);
        flow_push(rig, &flow);
        flow_pull(rig, &flow);
    }
    assert_int_equal(flow.pushed, flow.size);
    if (flow.is_blocked)
        (void)await(rig, &rig->a, SH_WIRE_WRITABLE, a);
    assert_int_equal(push(&rig->a, a, "more", 4), 4);
    expect(rig, &rig->b, b, "more", 4);
    assert_quiet(&rig->a, SH_WIRE_WRITABLE, a);
    rig_free(rig);
}

/* What was pushed before the close is received before the loss is reported. */
static void lost_when_other_closes(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    for (unsigned round = 0; round < 20; round++) {
        sh_link a, b;
        connect_pair(rig, 99, &a, &b);
        bool is_opener = round % 2 == 0;
        struct end *closer = is_opener ? &rig->a : &rig->b, *other = is_opener ? &rig->b : &rig->a;
        sh_link closed = is_opener ? a : b, left = is_opener ? b : a;
        assert_int_equal(push(closer, closed, "bye", 3), 3);
        closer->wire->ops->close(closer->wire, closed);
        assert_int_equal(push(closer, closed, "x", 1), 0);
        expect(rig, other, left, "bye", 3);
        struct sh_wire_event lost = await_lost(rig, other, left);
        uint8_t byte;
        assert_int_equal(lost.err, SHOAL_ECONNLOST);
        assert_int_equal(lost.tag, is_opener ? 0 : 99);
        assert_int_equal(push(other, left, "x", 1), 0);
        assert_int_equal(pull(other, left, &byte, 1), 0);
        other->wire->ops->close(other->wire, left); /* gone already: nothing happens */
        assert_quiet(closer, SH_WIRE_LOST, closed);
    }
    rig_free(rig);
}

static void lost_when_other_is_destroyed(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a[3], b[3];
    for (unsigned i = 0; i < 3; i++)
        connect_pair(rig, i, &a[i], &b[i]);
    rig->b.wire->ops->destroy(rig->b.wire);
    rig->b.wire = NULL;
    uint8_t byte;
    unsigned lost_count = 0;
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    while (lost_count < 3) {
        struct sh_wire_event lost;
        assert_true(now_ns() < deadline_ns);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(pull(&rig->a, a[i], &byte, 1), 0);
        end_poll(&rig->a, 1000000);
        while (end_take(&rig->a, SH_WIRE_LOST, SH_LINK_NONE, &lost)) {
            assert_int_equal(lost.link, a[lost.tag]);
            lost_count++;
        }
    }
    rig_free(rig);
}

static void refused_is_unreachable(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    char nobody[64];
    struct sh_wire *gone = wire_new(rig->variant, LINKS);
    char address[64];
    listen_address(rig->variant, address);
    assert_int_equal(gone->ops->listen(gone, address, nobody), SHOAL_OK);
    gone->ops->destroy(gone);
    sh_link link;
    assert_int_equal(rig->a.wire->ops->open(rig->a.wire, nobody, 5, &link), SHOAL_OK);
    assert_int_equal(push(&rig->a, link, "x", 1), 0);
    struct sh_wire_event lost = await(rig, &rig->a, SH_WIRE_LOST, link);
    assert_int_equal(lost.err, SHOAL_EUNREACHABLE);
    assert_int_equal(lost.tag, 5);
    rig_free(rig);
}

static void wrong_addresses(void **state)
{
    static const char *const wrong[] = {
        "",
        "nonsense",
        ":1",
        "unix:",
        "loop:",
        "unix:/tmp/a-path-that-is-much-too-long-for-an-address-of-sixty-four-bytes",
        "loop:a-name-that-is-much-too-long-for-an-address-of-sixty-four-bytes-in-all"};
    struct rig *rig = rig_new(state, LINKS);
    char bound[64];
    sh_link link;
    struct sh_wire *wire = rig->a.wire;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(wire->ops->listen(wire, wrong[i], bound), SHOAL_EADDRESS);
        assert_int_equal(wire->ops->open(wire, wrong[i], 0, &link), SHOAL_EADDRESS);
    }
    assert_int_equal(wire->ops->listen(wire, rig->address, bound), SHOAL_EADDRINUSE);
    rig_free(rig);
}

struct signaller {
    struct sh_wire *wire;
    _Atomic unsigned heard;
    unsigned rounds;
};

static void *signal_thread(void *arg)
{
    struct signaller *signaller = arg;
    for (unsigned i = 0; i < signaller->rounds; i++) {
        signaller->wire->ops->signal(signaller->wire);
        while (atomic_load(&signaller->heard) == i)
            sched_yield();
    }
    return NULL;
}

/* Without a signal that wakes it, the poll would wait for ever. */
static void signal_wakes_poll(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    struct signaller signaller = {.wire = rig->a.wire, .rounds = 500};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, signal_thread, &signaller), 0);
    for (unsigned i = 0; i < signaller.rounds; i++) {
        struct sh_wire_event event;
        /* Even rounds watch first: that must return too, and leave the signal to poll. */
        if (i % 2 == 0)
            rig->a.wire->ops->watch(rig->a.wire, FOREVER);
        assert_int_equal(rig->a.wire->ops->poll(rig->a.wire, &event, 1, FOREVER), 0);
        atomic_fetch_add(&signaller.heard, 1);
    }
    pthread_join(thread, NULL);
    /* Not waited for at the time: the next poll and watch return at once. */
    rig->a.wire->ops->signal(rig->a.wire);
    rig->a.wire->ops->watch(rig->a.wire, FOREVER);
    struct sh_wire_event event;
    assert_int_equal(rig->a.wire->ops->poll(rig->a.wire, &event, 1, FOREVER), 0);
    rig_free(rig);
}

static void *watch_thread(void *arg)
{
    struct signaller *signaller = arg;
    signaller->wire->ops->watch(signaller->wire, FOREVER);
    atomic_store(&signaller->heard, 1);
    return NULL;
}

/* A thread that may not touch the wire is woken by bytes, accepts and signals. */
static void watch_wakes(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    for (unsigned what = 0; what < 3; what++) {
        if (what == 1)
            connect_pair(rig, 1, &a, &b);
        end_poll(&rig->b, 0);
        struct signaller watcher = {.wire = rig->b.wire};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, watch_thread, &watcher), 0);
        if (what == 0)
            assert_int_equal(rig->a.wire->ops->open(rig->a.wire, rig->address, 0, &a), SHOAL_OK);
        else if (what == 1)
            assert_int_equal(push(&rig->a, a, "x", 1), 1);
        else
            rig->b.wire->ops->signal(rig->b.wire);
        uint64_t deadline_ns = now_ns() + DEADLINE_NS;
        while (!atomic_load(&watcher.heard)) {
            assert_true(now_ns() < deadline_ns);
            end_poll(&rig->a, 100000);
        }
        pthread_join(thread, NULL);
        if (what == 0)
            (void)await(rig, &rig->b, SH_WIRE_ACCEPTED, SH_LINK_NONE);
        else if (what == 1)
            expect(rig, &rig->b, b, "x", 1);
    }
    rig_free(rig);
}

static void many_links(void **state)
{
    enum { COUNT = 200 };
    struct rig *rig = rig_new(state, COUNT);
    sh_link a[COUNT], b[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        connect_pair(rig, i, &a[i], &b[i]);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t word = i * 1000 + round;
            assert_int_equal(
                rig->a.wire->ops->push(rig->a.wire, a[i], sh_bytes_make(&word, sizeof word)),
                sizeof word);
        }
        if (rig->a.wire->ops->flush)
            rig->a.wire->ops->flush(rig->a.wire);
        for (uint32_t i = 0; i < COUNT; i++) {
            uint32_t word = i * 1000 + round;
            expect(rig, &rig->b, b[i], &word, sizeof word);
        }
    }
    sh_link none;
    assert_int_equal(rig->a.wire->ops->open(rig->a.wire, rig->address, 0, &none), SHOAL_ELIMIT);
    for (uint32_t i = 0; i < COUNT; i += 2)
        rig->a.wire->ops->close(rig->a.wire, a[i]);
    for (uint32_t i = 0; i < COUNT; i += 2)
        (void)await_lost(rig, &rig->b, b[i]);
    for (uint32_t i = 1; i < COUNT; i += 2) {
        assert_quiet(&rig->b, SH_WIRE_LOST, b[i]);
        assert_int_equal(push(&rig->b, b[i], &i, sizeof i), sizeof i);
        expect(rig, &rig->a, a[i], &i, sizeof i);
    }
    rig_free(rig);
}

/* A link of an end that is full is refused, and those that are there go on. */
static void limit_of_acceptor(void **state)
{
    struct rig *rig = rig_new(state, 2);
    struct end dialler = {wire_new(rig->variant, 8), {{0}}, 0};
    sh_link a[2], b[2], third;
    for (unsigned i = 0; i < 2; i++)
        connect_pair(rig, i, &a[i], &b[i]);
    assert_int_equal(dialler.wire->ops->open(dialler.wire, rig->address, 7, &third), SHOAL_OK);
    struct rig refusal = {.a = dialler, .b = rig->b};
    assert_int_equal(await_lost(&refusal, &refusal.a, third).tag, 7);
    rig->b = refusal.b;
    assert_int_equal(push(&rig->a, a[1], "on", 2), 2);
    expect(rig, &rig->b, b[1], "on", 2);
    /* With one closed there is room again, and its number is not given a second time. */
    rig->a.wire->ops->close(rig->a.wire, a[0]);
    (void)await_lost(rig, &rig->b, b[0]);
    sh_link old = a[0];
    connect_pair(rig, 3, &a[0], &b[0]);
    assert_int_not_equal(a[0], old);
    assert_int_equal(push(&rig->a, old, "x", 1), 0);
    dialler.wire->ops->destroy(dialler.wire);
    rig_free(rig);
}

/* Closing while much is under way: the other end gets exactly what push has taken. */
static void close_under_way(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    for (unsigned round = 0; round < 4; round++) {
        sh_link a, b;
        connect_pair(rig, round, &a, &b);
        struct flow flow = {&rig->a, &rig->b, a, b, UINT64_C(1) << 30, 0, 0, false, 0};
        uint64_t enough = round == 3 ? UINT64_MAX : prng(rig) % 200000;
        while (!flow.is_blocked && flow.pushed < enough)
            flow_push(rig, &flow);
        rig->a.wire->ops->close(rig->a.wire, a);
        uint64_t deadline_ns = now_ns() + DEADLINE_NS;
        struct sh_wire_event lost;
        while (!end_take(&rig->b, SH_WIRE_LOST, b, &lost)) {
            assert_true(now_ns() < deadline_ns);
            end_poll(&rig->a, 0);
            flow_pull(rig, &flow);
            end_poll(&rig->b, 1000000);
        }
        assert_in_range(flow.pulled, flow.pushed, flow.pushed + owed_max(rig, &flow));
        assert_quiet(&rig->a, SH_WIRE_LOST, a);
    }
    /* Closed before it is open: nothing is ever said of it. */
    sh_link early;
    assert_int_equal(rig->a.wire->ops->open(rig->a.wire, rig->address, 1, &early), SHOAL_OK);
    rig->a.wire->ops->close(rig->a.wire, early);
    assert_quiet(&rig->a, SH_WIRE_OPENED, early);
    assert_quiet(&rig->a, SH_WIRE_LOST, early);
    rig_free(rig);
}

struct echo {
    struct sh_wire *wire;
    uint64_t bytes;
};

/* Sends back what it gets until the link is lost, always waiting without limit. */
static void *echo_thread(void *arg)
{
    struct echo *echo = arg;
    struct sh_wire *wire = echo->wire;
    static uint8_t held[1 << 20];
    size_t held_size = 0;
    for (;;) {
        struct sh_wire_event events[8];
        unsigned count = wire->ops->poll(wire, events, 8, FOREVER);
        for (unsigned i = 0; i < count; i++) {
            sh_link link = events[i].link;
            if (events[i].kind == SH_WIRE_LOST)
                return NULL;
            if (events[i].kind == SH_WIRE_READABLE)
                held_size += wire->ops->pull(wire, link, held + held_size, sizeof held - held_size);
            size_t taken = wire->ops->push(wire, link, sh_bytes_make(held, held_size));
            memmove(held, held + taken, held_size - taken);
            held_size -= taken;
            echo->bytes += taken;
        }
    }
}

/* Two threads that only ever wait without limit: a wake-up that is lost would hang them. */
static void two_threads(void **state)
{
    enum { ROUNDS = 2000, BULK = 60000 };
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    struct echo echo = {.wire = rig->b.wire};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, echo_thread, &echo), 0);
    static uint8_t bytes[BULK], got[BULK];
    uint64_t total = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t size = round % 50 == 49 ? BULK : 1 + prng(rig) % 200, at = 0;
        for (size_t i = 0; i < size; i++)
            bytes[i] = pattern(total + i);
        size_t sent = push(&rig->a, a, bytes, size);
        while (at < size) {
            struct sh_wire_event events[4];
            unsigned count = rig->a.wire->ops->poll(rig->a.wire, events, 4, FOREVER);
            for (unsigned i = 0; i < count; i++) {
                assert_int_not_equal(events[i].kind, SH_WIRE_LOST);
                if (events[i].kind == SH_WIRE_WRITABLE)
                    sent += push(&rig->a, a, bytes + sent, size - sent);
                else
                    at += pull(&rig->a, a, got + at, size - at);
            }
        }
        assert_memory_equal(bytes, got, size);
        total += size;
    }
    rig->a.wire->ops->close(rig->a.wire, a);
    end_poll(&rig->a, 0);
    pthread_join(thread, NULL);
    assert_int_equal(echo.bytes, total);
    rig_free(rig);
}

struct visit {
    struct rig *rig;
    sh_link a, b;
    unsigned first, count;
};

static void *visit_thread(void *arg)
{
    struct visit *visit = arg;
    for (unsigned i = visit->first; i < visit->first + visit->count; i++) {
        if (i == 0)
            connect_pair(visit->rig, 1, &visit->a, &visit->b);
        uint32_t word = i;
        assert_int_equal(push(&visit->rig->a, visit->a, &word, sizeof word), sizeof word);
        expect(visit->rig, &visit->rig->b, visit->b, &word, sizeof word);
        assert_int_equal(push(&visit->rig->b, visit->b, &word, sizeof word), sizeof word);
        expect(visit->rig, &visit->rig->a, visit->a, &word, sizeof word);
    }
    return NULL;
}

/* Threads take turns at the wire and end, as those do that lend themselves to a crew. */
static void thread_after_thread(void **state)
{
    struct visit visit = {.rig = rig_new(state, LINKS)};
    for (unsigned i = 0; i < 12; i++) {
        pthread_t thread;
        visit.count = i % 3 == 2 ? 20 : 1;
        assert_int_equal(pthread_create(&thread, NULL, visit_thread, &visit), 0);
        pthread_join(thread, NULL);
        visit.first += visit.count;
    }
    (void)visit_thread(&visit);
    rig_free(visit.rig);
}

static void names(void **state)
{
    (void)state;
    struct sh_wire *wire;
    assert_int_equal(sh_wire_create("carrier pigeon", 1, &wire), SHOAL_EINVAL);
    assert_false(sh_wire_is_known("carrier pigeon"));
    static const char *const known[] = {"tcp", "epoll", "uring", "unix", "loopback"};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        assert_true(sh_wire_is_known(known[i]));
        assert_int_equal(sh_wire_create(known[i], 1, &wire), SHOAL_OK);
        wire->ops->destroy(wire);
    }
}

static struct variant epoll_tcp = {"epoll", "127.0.0.1:0", false, false};
static struct variant epoll_unix = {"epoll", NULL, false, false};
static struct variant uring_tcp = {"uring", "127.0.0.1:0", false, false};
static struct variant uring_unix = {"uring", NULL, false, false};
static struct variant loopback = {"loopback", "loop:0", false, false};
static struct variant epoll_tls = {"epoll", "127.0.0.1:0", true, false};
static struct variant uring_tls = {"uring", "127.0.0.1:0", true, false};
static struct variant epoll_writes = {"epoll", "127.0.0.1:0", false, true};
static struct variant uring_writes = {"uring", "127.0.0.1:0", false, true};
static struct variant tls_writes = {"epoll", "127.0.0.1:0", true, true};

#define ALL(test)                                                                                  \
    {#test ", epoll, tcp", test, NULL, NULL, &epoll_tcp},                                          \
        {#test ", epoll, unix", test, NULL, NULL, &epoll_unix},                                    \
        {#test ", io_uring, tcp", test, NULL, NULL, &uring_tcp},                                   \
        {#test ", io_uring, unix", test, NULL, NULL, &uring_unix},                                 \
        {#test ", epoll, tls", test, NULL, NULL, &epoll_tls},                                      \
        {#test ", io_uring, tls", test, NULL, NULL, &uring_tls},                                   \
        {#test ", epoll, writes", test, NULL, NULL, &epoll_writes},                                \
        {#test ", io_uring, writes", test, NULL, NULL, &uring_writes},                             \
        {#test ", epoll, tls, writes", test, NULL, NULL, &tls_writes},                             \
    {                                                                                              \
#test ", loopback", test, NULL, NULL, &loopback                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(opens_and_accepts),
        ALL(order_both_ways),
        ALL(partial_push_then_writable),
        ALL(lost_when_other_closes),
        ALL(lost_when_other_is_destroyed),
        ALL(refused_is_unreachable),
        ALL(wrong_addresses),
        ALL(signal_wakes_poll),
        ALL(watch_wakes),
        ALL(many_links),
        ALL(limit_of_acceptor),
        ALL(close_under_way),
        ALL(two_threads),
        ALL(thread_after_thread),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
