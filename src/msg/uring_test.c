/* What only the io_uring wire has: sends that are under way while more is pushed, and zero-copy
 * sends out of registered buffers, whose buffers must come back, and not too early; and a kernel
 * that is short of memory and takes no requests for a while. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/wire.h"
#include "msg/tcp.h"
#include "msg/uring_int.h"
#include "msg/uring_wire.h"

#define ROUNDS_MAX 30000 /* of a millisecond each: a deadline that no slow machine meets */
#define PIECE 4000       /* is collected in a send buffer, and three of it are a zero-copy send */
#define LINKS 4

/* Two wires, and links from one to the other. */
struct pair {
    struct sh_wire *from, *to;
    char address[64];
    sh_link out[LINKS], in[LINKS];
    uint64_t pushed[LINKS], pulled[LINKS];
};

static struct sh_wire_event await(struct sh_wire *wire, enum sh_wire_kind kind)
{
    for (unsigned round = 0; round < ROUNDS_MAX; round++) {
        struct sh_wire_event event;
        if (wire->ops->poll(wire, &event, 1, 1000000) == 1 && event.kind == kind)
            return event;
    }
    fail_msg("no event of kind %d", (int)kind);
    return (struct sh_wire_event){0};
}

static struct sh_wire *wire_new(uint32_t links_max)
{
    struct sh_wire *wire, *epoll;
    assert_int_equal(sh_uring_create(links_max, &wire), SHOAL_OK);
    assert_int_equal(sh_tcp_create(1, &epoll), SHOAL_OK);
    bool is_epoll = wire->ops == epoll->ops;
    epoll->ops->destroy(epoll);
    if (is_epoll) {
        wire->ops->destroy(wire);
        skip();
    }
    return wire;
}

static struct pair pair_make(bool is_unix, uint32_t links_max)
{
    struct pair pair = {.from = wire_new(links_max), .to = wire_new(links_max)};
    char address[64] = "127.0.0.1:0";
    if (is_unix)
        snprintf(address, sizeof address, "unix:/tmp/shoal-uring-%d", (int)getpid());
    assert_int_equal(pair.to->ops->listen(pair.to, address, pair.address), SHOAL_OK);
    for (unsigned i = 0; i < LINKS; i++) {
        assert_int_equal(pair.from->ops->open(pair.from, pair.address, i, &pair.out[i]), SHOAL_OK);
        assert_int_equal(await(pair.from, SH_WIRE_OPENED).link, pair.out[i]);
        pair.in[i] = await(pair.to, SH_WIRE_ACCEPTED).link;
    }
    return pair;
}

static struct pair pair_new(bool is_unix)
{
    return pair_make(is_unix, 16);
}

static void pair_free(struct pair *pair)
{
    pair->from->ops->destroy(pair->from);
    pair->to->ops->destroy(pair->to);
}

static struct uring_link *state_of(const struct pair *pair, unsigned i)
{
    struct uring_link *link = link_of(uring_of(pair->from), pair->out[i]);
    assert_non_null(link);
    return link;
}

/* The byte at a place of a link's stream: any that is doubled, lost or overwritten is out of step.
 */
static uint8_t byte_at(unsigned i, uint64_t place)
{
    return (uint8_t)(place * 2654435761u >> 11 ^ place ^ i * 77);
}

static size_t push(struct pair *pair, unsigned i, size_t size)
{
    uint8_t bytes[TX_BYTES];
    assert_true(size <= sizeof bytes);
    for (size_t k = 0; k < size; k++)
        bytes[k] = byte_at(i, pair->pushed[i] + k);
    size_t taken = pair->from->ops->push(pair->from, pair->out[i], sh_bytes_make(bytes, size));
    assert_true(taken <= size);
    pair->pushed[i] += taken;
    return taken;
}

static void pull(struct pair *pair, unsigned i)
{
    uint8_t bytes[TX_BYTES];
    size_t got = pair->to->ops->pull(pair->to, pair->in[i], bytes, sizeof bytes);
    for (size_t k = 0; k < got; k++)
        assert_int_equal(bytes[k], byte_at(i, pair->pulled[i] + k));
    pair->pulled[i] += got;
}

/* Lets both wires work and takes in what has come. */
static void work(struct pair *pair)
{
    struct sh_wire_event events[16];
    unsigned count = pair->from->ops->poll(pair->from, events, 16, 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(events[i].kind, SH_WIRE_WRITABLE);
    count = pair->to->ops->poll(pair->to, events, 16, 1000000);
    for (unsigned i = 0; i < count; i++) {
        unsigned k = 0;
        while (k < LINKS && pair->in[k] != events[i].link)
            k++;
        assert_true(k < LINKS);
        if (events[i].kind == SH_WIRE_READABLE)
            pull(pair, k);
    }
}

static unsigned free_buffers(const struct uring *uring)
{
    unsigned count = 0;
    for (uint32_t at = uring->tx_free; at != NO_INDEX; at = uring->tx_next[at])
        count++;
    return count;
}

/* All has come, and each send buffer is free again. */
static void settle(struct pair *pair)
{
    unsigned round = 0;
    bool is_over = false;
    while (!is_over && round++ < ROUNDS_MAX) {
        work(pair);
        is_over = free_buffers(uring_of(pair->from)) == TX_BUFFERS;
        for (unsigned i = 0; i < LINKS; i++)
            is_over &= pair->pulled[i] == pair->pushed[i];
    }
    for (unsigned i = 0; i < LINKS; i++)
        assert_int_equal(pair->pulled[i], pair->pushed[i]);
    assert_int_equal(free_buffers(uring_of(pair->from)), TX_BUFFERS);
    for (unsigned i = 0; i < TX_BUFFERS; i++)
        assert_int_equal(uring_of(pair->from)->tx_holds[i], 0);
}

/* Closing one link submits what others have to send; what is pushed before that is known to have
 * been taken goes once all the same. */
static void send_under_way(void **state)
{
    struct pair pair = pair_new(*state != NULL);
    assert_int_equal(push(&pair, 0, 100), 100);
    pair.from->ops->close(pair.from, pair.out[3]);
    assert_true(state_of(&pair, 0)->sends);
    assert_int_equal(push(&pair, 0, 200), 200);
    pair.from->ops->flush(pair.from);
    assert_int_equal(push(&pair, 0, 300), 300);
    settle(&pair);
    /* Closed while its send is under way: all of it comes, once. */
    assert_int_equal(push(&pair, 1, 100), 100);
    pair.from->ops->close(pair.from, pair.out[2]);
    assert_int_equal(push(&pair, 1, PIECE), PIECE);
    pair.from->ops->close(pair.from, pair.out[1]);
    settle(&pair);
    pair_free(&pair);
}

static void round_push(struct pair *pair, bool is_zerocopy)
{
    for (unsigned i = 0; i < LINKS; i++) {
        if (is_zerocopy)
            state_of(pair, i)->is_copied = false;
        for (unsigned k = 0; k < 3; k++)
            push(pair, i, PIECE - k);
    }
    pair->from->ops->flush(pair->from);
}

/* The kernel copies on one machine and refuses on Unix-domain sockets, so each round says anew
 * that it does not, until the receiver has fallen far behind. */
static void zerocopy(void **state)
{
    struct pair pair = pair_new(*state != NULL);
    for (unsigned round = 0; round < 300; round++) {
        round_push(&pair, true);
        if (round % 16 == 15)
            work(&pair);
    }
    settle(&pair);
    assert_true(pair.pushed[0] > 3 * PIECE);
    enum tx_fixed fixed = uring_of(pair.from)->tx_fixed;
    assert_true(fixed == TX_FIXED || fixed == TX_REFUSED);
    pair_free(&pair);
}

/* What is not worth it is learned from the first send, and kept. */
static void copies_are_noticed(void **state)
{
    struct pair pair = pair_new(*state != NULL);
    push(&pair, 1, PIECE);
    settle(&pair);
    assert_int_equal(uring_of(pair.from)->tx_fixed, TX_UNTRIED);
    round_push(&pair, false);
    settle(&pair);
    assert_int_not_equal(uring_of(pair.from)->tx_fixed, TX_UNTRIED);
    for (unsigned i = 0; i < LINKS && uring_of(pair.from)->tx_fixed == TX_FIXED; i++)
        assert_true(state_of(&pair, i)->is_copied);
    pair_free(&pair);
}

/* Links go while the kernel may still read their buffers. */
static void closed_while_sending(void **state)
{
    for (unsigned round = 0; round < 20; round++) {
        struct pair pair = pair_new(*state != NULL);
        round_push(&pair, true);
        round_push(&pair, true);
        for (unsigned i = 0; i < LINKS; i++)
            (round & 1 ? pair.to : pair.from)
                ->ops->close(round & 1 ? pair.to : pair.from, round & 1 ? pair.in[i] : pair.out[i]);
        struct sh_wire_event events[16];
        unsigned polls = 0;
        while (free_buffers(uring_of(pair.from)) < TX_BUFFERS && polls++ < ROUNDS_MAX) {
            pair.from->ops->poll(pair.from, events, 16, 1000000);
            unsigned count = pair.to->ops->poll(pair.to, events, 16, 0);
            for (unsigned i = 0; i < count && !(round & 1); i++)
                for (unsigned k = 0; k < LINKS; k++)
                    if (pair.in[k] == events[i].link && events[i].kind == SH_WIRE_READABLE)
                        pull(&pair, k);
        }
        assert_int_equal(free_buffers(uring_of(pair.from)), TX_BUFFERS);
        pair_free(&pair);
    }
}

/* Makes the kernel refuse to register buffers, as a low limit of locked memory does. */
static bool refuse_buffers(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_register, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, IORING_REGISTER_BUFFERS, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Waits for a child, whose end says whether the test passed. */
static void child_check(pid_t child)
{
    assert_true(child > 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void refused_buffers(void **state)
{
    struct pair pair = pair_new(*state != NULL);
    pair_free(&pair); /* io_uring is there */
    pid_t child = fork();
    if (child == 0) {
        if (!refuse_buffers())
            _exit(77);
        pair = pair_new(*state != NULL);
        for (unsigned round = 0; round < 50; round++)
            round_push(&pair, true);
        settle(&pair);
        bool is_right = uring_of(pair.from)->tx_fixed == TX_REFUSED;
        pair_free(&pair);
        _exit(is_right ? 0 : 1);
    }
    child_check(child);
}

/* --- A kernel that is short of memory ------------------------------------------------------ */

#define MANY 700         /* links, each with a request: more than the ring has room for */
#define CLOSED_EACH 20   /* of these is closed before the kernel has taken its request */
#define SHORT_RING 1000u /* the descriptor over which the kernel takes no request */

/* Makes the kernel take no request over SHORT_RING, as if it were short of memory. */
static bool short_ring_make(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_enter, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SHORT_RING, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Two descriptors a link and a few more. */
static bool descriptors_allow(unsigned count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < count)
        return false;
    limit.rlim_cur = limit.rlim_cur < count ? count : limit.rlim_cur;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

/* The receiving wire, whose kernel is short of nothing, accepts links and takes in bytes. */
static void accept_and_pull(struct pair *pair)
{
    struct sh_wire_event events[16];
    unsigned count = pair->to->ops->poll(pair->to, events, 16, 0);
    for (unsigned i = 0; i < count; i++)
        for (unsigned k = 0; k < LINKS && events[i].kind == SH_WIRE_READABLE; k++)
            if (pair->in[k] == events[i].link)
                pull(pair, k);
}

/* While the kernel takes nothing: opens links, closes some of these again, and sends. */
static void short_use(struct pair *pair, const char *address, sh_link *links)
{
    for (unsigned i = 0; i < MANY; i++) {
        assert_int_equal(pair->from->ops->open(pair->from, address, LINKS + i, &links[i]),
                         SHOAL_OK);
        if (i % CLOSED_EACH == 0)
            pair->from->ops->close(pair->from, links[i]);
        accept_and_pull(pair); /* a full queue of the listener would refuse links */
    }
    for (unsigned i = 0; i < LINKS; i++)
        assert_int_equal(push(pair, i, PIECE), PIECE);
    pair->from->ops->flush(pair->from);
    struct sh_wire_event event;
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(pair->from->ops->poll(pair->from, &event, 1, UINT64_MAX), 0);
    pair->from->ops->watch(pair->from, UINT64_MAX);
    assert_true(uring_of(pair->from)->backlog_count > 0);
}

/* Polls both wires until all links that were not closed are open and all bytes have come. */
static void short_recover(struct pair *pair, const sh_link *links)
{
    unsigned opened = 0, closed = (MANY + CLOSED_EACH - 1) / CLOSED_EACH;
    bool is_over = false;
    for (unsigned round = 0; !is_over && round < ROUNDS_MAX; round++) {
        struct sh_wire_event events[16];
        accept_and_pull(pair);
        unsigned count = pair->from->ops->poll(pair->from, events, 16, 1000000);
        for (unsigned i = 0; i < count; i++) {
            uint64_t place = events[i].tag - LINKS;
            assert_int_equal(events[i].kind, SH_WIRE_OPENED);
            assert_true(place < MANY && place % CLOSED_EACH != 0);
            assert_int_equal(events[i].link, links[place]);
            opened++;
        }
        is_over = opened == MANY - closed;
        for (unsigned i = 0; i < LINKS; i++)
            is_over &= pair->pulled[i] == pair->pushed[i];
    }
    assert_true(is_over);
}

/* Slots of closed links whose requests have not ended. */
static unsigned dead_count(const struct uring *uring)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < uring->slots; i++)
        count += uring->links[i].state == LINK_DEAD;
    return count;
}

static void short_run(bool is_unix)
{
    struct pair pair = pair_make(is_unix, LINKS + MANY);
    struct io_uring *ring = &uring_of(pair.from)->ring;
    sh_link links[MANY];
    int good = ring->enter_ring_fd;
    assert_int_equal(dup2(good, SHORT_RING), (int)SHORT_RING);
    ring->enter_ring_fd = (int)SHORT_RING;
    for (unsigned round = 0; round < 2; round++) {
        short_use(&pair, pair.address, links);
        ring->enter_ring_fd = good;
        short_recover(&pair, links);
        assert_false(uring_of(pair.from)->is_short);
        for (unsigned i = 0; i < MANY; i++)
            pair.from->ops->close(pair.from, links[i]);
        for (unsigned i = 0; dead_count(uring_of(pair.from)) > 0 && i < ROUNDS_MAX; i++)
            pair.from->ops->poll(pair.from, &(struct sh_wire_event){0}, 1, 1000000);
        assert_int_equal(dead_count(uring_of(pair.from)), 0);
        ring->enter_ring_fd = (int)SHORT_RING;
    }
    pair_free(&pair); /* short to the end */
}

static void kernel_is_short(void **state)
{
    struct pair pair = pair_new(*state != NULL);
    pair_free(&pair); /* io_uring is there */
    pid_t child = fork();
    if (child == 0) {
        if (!descriptors_allow(4096) || !short_ring_make())
            _exit(77);
        short_run(*state != NULL);
        _exit(0);
    }
    child_check(child);
}

#define BOTH(test)                                                                                 \
    {#test ", tcp", test, NULL, NULL, NULL},                                                       \
    {                                                                                              \
#test ", unix", test, NULL, NULL, (void *)(uintptr_t) "unix"                               \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(send_under_way),       BOTH(zerocopy),        BOTH(copies_are_noticed),
        BOTH(closed_while_sending), BOTH(refused_buffers), BOTH(kernel_is_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
