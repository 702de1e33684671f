/* A name server that takes its time holds nothing up: names are looked up beside the step. The
 * system's getaddrinfo is replaced, so that the test decides when it answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "env/wire.h"
#include "msg/await_test.h"
#include "msg/wires.h"

#define LINKS 4

static _Atomic bool gate_is_open;
static _Atomic unsigned lookups_begun, lookups_over;

/* Numbers at once; "slow.test" is this machine, when the gate is open; nobody else is known. */
int getaddrinfo(const char *host, const char *port, const struct addrinfo *hints,
                struct addrinfo **info_out)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    if (inet_pton(AF_INET, host, &v4.sin_addr) != 1) {
        if (hints->ai_flags & AI_NUMERICHOST)
            return EAI_NONAME;
        atomic_fetch_add(&lookups_begun, 1);
        while (!atomic_load(&gate_is_open))
            sched_yield();
        atomic_fetch_add(&lookups_over, 1);
        if (strcmp(host, "slow.test") != 0)
            return EAI_NONAME;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    struct addrinfo *info = calloc(1, sizeof *info + sizeof v4);
    if (!info)
        return EAI_MEMORY;
    info->ai_family = AF_INET;
    info->ai_addr = (struct sockaddr *)(info + 1);
    info->ai_addrlen = sizeof v4;
    memcpy(info->ai_addr, &v4, sizeof v4);
    *info_out = info;
    return 0;
}

void freeaddrinfo(struct addrinfo *info)
{
    free(info);
}

struct rig {
    struct sh_wire *a, *b; /* b listens */
    char address[SH_WIRE_ADDRESS_MAX];
};

static void rig_open(struct rig *rig, void **state)
{
    while (atomic_load(&lookups_begun) != atomic_load(&lookups_over))
        sched_yield(); /* canceled ones of the test before */
    atomic_store(&gate_is_open, false);
    atomic_store(&lookups_begun, 0);
    atomic_store(&lookups_over, 0);
    assert_int_equal(sh_wire_create(*state, LINKS, &rig->a), SHOAL_OK);
    assert_int_equal(sh_wire_create(*state, LINKS, &rig->b), SHOAL_OK);
    assert_int_equal(rig->b->ops->listen(rig->b, "127.0.0.1:0", rig->address), SHOAL_OK);
}

static void rig_close(struct rig *rig)
{
    rig->a->ops->destroy(rig->a);
    rig->b->ops->destroy(rig->b);
}

static sh_link open_named(const struct rig *rig, const char *host, uint64_t tag)
{
    char address[SH_WIRE_ADDRESS_MAX];
    snprintf(address, sizeof address, "%s%s", host, strrchr(rig->address, ':'));
    sh_link link;
    assert_int_equal(rig->a->ops->open(rig->a, address, tag, &link), SHOAL_OK);
    return link;
}

static void word_over(const struct rig *rig, sh_link link)
{
    char got[5] = "";
    sh_link accepted = test_await(rig->b, SH_WIRE_ACCEPTED).link;
    assert_int_equal(rig->a->ops->push(rig->a, link, sh_bytes_make("word", 4)), 4);
    if (rig->a->ops->flush)
        rig->a->ops->flush(rig->a);
    assert_int_equal(test_await(rig->b, SH_WIRE_READABLE).link, accepted);
    assert_int_equal(rig->b->ops->pull(rig->b, accepted, got, 4), 4);
    assert_string_equal(got, "word");
}

static void slow_name_holds_nobody_up(void **state)
{
    struct rig rig;
    sh_link fast;
    rig_open(&rig, state);
    sh_link slow = open_named(&rig, "slow.test", 1);
    uint8_t byte = 0;
    assert_int_equal(rig.a->ops->push(rig.a, slow, sh_bytes_make(&byte, 1)), 0);
    assert_int_equal(rig.a->ops->pull(rig.a, slow, &byte, 1), 0);
    assert_int_equal(rig.a->ops->open(rig.a, rig.address, 2, &fast), SHOAL_OK);
    assert_int_equal(test_await(rig.a, SH_WIRE_OPENED).link, fast);
    word_over(&rig, fast);
    assert_int_equal(atomic_load(&lookups_over), 0);
    atomic_store(&gate_is_open, true);
    struct sh_wire_event opened = test_await(rig.a, SH_WIRE_OPENED);
    assert_int_equal(opened.link, slow);
    assert_int_equal(opened.tag, 1);
    word_over(&rig, slow);
    rig_close(&rig);
}

static void unknown_name_is_unreachable(void **state)
{
    struct rig rig;
    rig_open(&rig, state);
    atomic_store(&gate_is_open, true);
    sh_link link = open_named(&rig, "nobody.test", 3);
    struct sh_wire_event lost = test_await(rig.a, SH_WIRE_LOST);
    assert_int_equal(lost.link, link);
    assert_int_equal(lost.tag, 3);
    assert_int_equal(lost.err, SHOAL_EUNREACHABLE);
    rig_close(&rig);
}

/* Links that are closed while their names are looked up are never heard of again, and leave their
 * places; more of them than there are threads. */
static void closed_meanwhile(void **state)
{
    struct rig rig;
    struct sh_wire_event event;
    rig_open(&rig, state);
    for (int round = 0; round < 5; round++) {
        sh_link links[LINKS];
        for (int i = 0; i < LINKS; i++)
            links[i] = open_named(&rig, "slow.test", 1);
        for (int i = 0; i < LINKS; i++)
            rig.a->ops->close(rig.a, links[i]);
    }
    sh_link left = open_named(&rig, "slow.test", 9);
    atomic_store(&gate_is_open, true);
    event = test_await(rig.a, SH_WIRE_OPENED);
    assert_int_equal(event.link, left);
    assert_int_equal(event.tag, 9);
    word_over(&rig, left);
    assert_int_equal(rig.a->ops->poll(rig.a, &event, 1, 0), 0);
    rig_close(&rig);
}

/* A wire does not wait for its lookups when it is destroyed. */
static void destroyed_meanwhile(void **state)
{
    struct rig rig;
    rig_open(&rig, state);
    (void)open_named(&rig, "slow.test", 1);
    (void)open_named(&rig, "nobody.test", 1);
    while (atomic_load(&lookups_begun) < 2)
        sched_yield();
    rig_close(&rig);
    assert_int_equal(atomic_load(&lookups_over), 0);
    atomic_store(&gate_is_open, true);
    while (atomic_load(&lookups_over) < 2)
        sched_yield();
}

#define BOTH(test)                                                                                 \
    {#test ", epoll", test, NULL, NULL, (void *)(uintptr_t) "epoll"},                              \
    {                                                                                              \
#test ", io_uring", test, NULL, NULL, (void *)(uintptr_t) "uring"                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(slow_name_holds_nobody_up),
        BOTH(unknown_name_is_unreachable),
        BOTH(closed_meanwhile),
        BOTH(destroyed_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
