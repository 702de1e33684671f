/* A link that is paused: what env/wire.h promises of it, asked of every real wire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "msg/wire_test.h"

static void pause_link(struct end *end, sh_link link, bool is_paused)
{
    end->wire->ops->pause(end->wire, link, is_paused);
}

/* The end comes to rest and says neither that the link is readable nor that it is lost. */
static void assert_rests(struct rig *rig, struct end *end, sh_link link)
{
    struct sh_wire_event event;
    bool has_rested = false;
    for (unsigned i = 0; i < 200 && !has_rested; i++) {
        end_poll(end == &rig->a ? &rig->b : &rig->a, 0);
        uint64_t began_ns = now_ns();
        end_poll(end, 20000000);
        has_rested = now_ns() - began_ns >= 15000000;
        assert_false(end_take(end, SH_WIRE_READABLE, link, &event));
        assert_false(end_take(end, SH_WIRE_LOST, link, &event));
    }
    assert_true(has_rested);
}

static void says_nothing_and_then_all(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    assert_int_equal(push(&rig->a, a, "first ", 6), 6);
    (void)await(rig, &rig->b, SH_WIRE_READABLE, b);
    pause_link(&rig->b, b, true);
    assert_int_equal(push(&rig->a, a, "second ", 7), 7);
    assert_rests(rig, &rig->b, b);
    /* It may be pulled from all the same, and the other direction goes on. */
    uint8_t byte;
    assert_int_equal(pull(&rig->b, b, &byte, 1), 1);
    assert_int_equal(byte, 'f');
    assert_rests(rig, &rig->b, b);
    assert_int_equal(push(&rig->b, b, "back", 4), 4);
    expect(rig, &rig->a, a, "back", 4);
    pause_link(&rig->b, b, false);
    expect(rig, &rig->b, b, "irst second ", 12);
    pause_link(&rig->b, b, true);
    pause_link(&rig->b, b, false);
    assert_int_equal(push(&rig->a, a, "third", 5), 5);
    expect(rig, &rig->b, b, "third", 5);
    rig_free(rig);
}

static void bytes_before_the_loss(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    assert_int_equal(push(&rig->a, a, "before ", 7), 7);
    (void)await(rig, &rig->b, SH_WIRE_READABLE, b);
    pause_link(&rig->b, b, true);
    assert_int_equal(push(&rig->a, a, "the end", 7), 7);
    end_poll(&rig->a, 0);
    rig->a.wire->ops->close(rig->a.wire, a);
    assert_rests(rig, &rig->b, b);
    pause_link(&rig->b, b, false);
    expect(rig, &rig->b, b, "before the end", 14);
    (void)await_lost(rig, &rig->b, b);
    pause_link(&rig->b, b, true); /* gone: nothing happens */
    rig_free(rig);
}

static void closed_while_paused(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    assert_int_equal(push(&rig->a, a, "unread", 6), 6);
    (void)await(rig, &rig->b, SH_WIRE_READABLE, b);
    pause_link(&rig->b, b, true);
    rig->b.wire->ops->close(rig->b.wire, b);
    (void)await_lost(rig, &rig->a, a);
    connect_pair(rig, 2, &a, &b); /* maybe with the same number */
    assert_int_equal(push(&rig->a, a, "anew", 4), 4);
    expect(rig, &rig->b, b, "anew", 4);
    rig_free(rig);
}

static struct variant epoll_tcp = {"epoll", "127.0.0.1:0", false, false};
static struct variant epoll_unix = {"epoll", NULL, false, false};
static struct variant uring_tcp = {"uring", "127.0.0.1:0", false, false};
static struct variant loopback = {"loopback", "loop:0", false, false};
static struct variant epoll_tls = {"epoll", "127.0.0.1:0", true, false};
static struct variant uring_tls = {"uring", "127.0.0.1:0", true, false};
static struct variant epoll_writes = {"epoll", "127.0.0.1:0", false, true};
static struct variant tls_writes = {"epoll", "127.0.0.1:0", true, true};

#define ALL(test)                                                                                  \
    {#test ", epoll, tcp", test, NULL, NULL, &epoll_tcp},                                          \
        {#test ", epoll, unix", test, NULL, NULL, &epoll_unix},                                    \
        {#test ", io_uring, tcp", test, NULL, NULL, &uring_tcp},                                   \
        {#test ", epoll, tls", test, NULL, NULL, &epoll_tls},                                      \
        {#test ", io_uring, tls", test, NULL, NULL, &uring_tls},                                   \
        {#test ", epoll, writes", test, NULL, NULL, &epoll_writes},                                \
        {#test ", epoll, tls, writes", test, NULL, NULL, &tls_writes},                             \
    {                                                                                              \
#test ", loopback", test, NULL, NULL, &loopback                                            \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ALL(says_nothing_and_then_all),
        ALL(bytes_before_the_loss),
        ALL(closed_while_paused),
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
