/* The wire on epoll: non-blocking TCP and Unix-domain sockets, one level-triggered epoll, an
 * eventfd for signals.
 *
 * A link number is a slot's index and how often the slot has been used, so that an event of a
 * closed link can't be taken for one of its successor. System calls: one epoll_wait a poll, one
 * recv a pull, one send a push. */
#include "msg/tcp.h"

#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "msg/msg.h"
#include "msg/resolve_int.h"
#include "msg/sock_int.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define USE_MASK 0xFFFu
#define ACCEPTS_AT_ONCE 16
#define EPOLL_EVENTS 64
#define NO_INDEX UINT32_MAX
#define KEY_SIGNAL UINT64_C(0xFFFFFFFF00000001)
#define KEY_LISTEN UINT64_C(0xFFFFFFFF00000002) /* and those after it: listeners by index */

struct tcp_link {
    int fd; /* -1: free */
    uint32_t use;
    uint32_t next; /* in the free list, or in the list of the lost */
    bool is_opening;
    bool is_refused;   /* nobody listens there */
    bool is_looked_up; /* its name is; fd holds a place */
    bool is_lost;
    bool wants_writable;
    bool is_paused;
    bool is_unwatched; /* paused, and epoll would say all the time that the other side is gone */
    bool was_opened_by_us;
    uint64_t tag;
    struct sh_sock_peer peer; /* accepted */
};

struct tcp {
    struct sh_wire wire;
    int epoll;
    int signal;
    struct sh_sock_acceptor acceptor;
    struct sh_resolver *resolver; /* NULL: no name came up yet */
    struct sh_sock_listener listeners[SH_SOCK_LISTENERS_MAX];
    uint32_t listeners_count;
    uint32_t links_max;
    struct tcp_link *links;
    uint32_t free_head;
    uint32_t lost_head; /* failed in push or pull, to be reported by the next poll */
    _Atomic bool signalled;
};

static struct tcp *tcp_of(struct sh_wire *wire)
{
    return (struct tcp *)wire;
}

static sh_link link_number(const struct tcp *tcp, const struct tcp_link *link)
{
    return (link->use & USE_MASK) << INDEX_BITS | (uint32_t)(link - tcp->links);
}

/* The link of a number, or NULL if it is closed. */
static struct tcp_link *link_of(struct tcp *tcp, sh_link number)
{
    uint32_t index = number & INDEX_MASK;
    if (index >= tcp->links_max)
        return NULL;
    struct tcp_link *link = &tcp->links[index];
    return link->fd >= 0 && link_number(tcp, link) == number ? link : NULL;
}

/* Tells epoll what the link waits for. */
static void set_events(struct tcp *tcp, struct tcp_link *link, int how)
{
    struct epoll_event event = {.data.u64 = link_number(tcp, link)};
    if (link->is_unwatched)
        return;
    event.events = (link->is_paused ? 0 : EPOLLIN) | (link->wants_writable ? EPOLLOUT : 0);
    int result = epoll_ctl(tcp->epoll, how, link->fd, &event);
    SH_ASSERT(result == 0 || errno == ENOMEM || errno == ENOSPC);
}

static void link_lost(struct tcp *tcp, struct tcp_link *link)
{
    if (link->is_lost)
        return;
    link->is_lost = true;
    link->next = tcp->lost_head;
    tcp->lost_head = (uint32_t)(link - tcp->links);
}

static struct tcp_link *link_new(struct tcp *tcp, int fd)
{
    if (tcp->free_head == NO_INDEX)
        return NULL;
    struct tcp_link *link = &tcp->links[tcp->free_head];
    tcp->free_head = link->next;
    uint32_t use = (link->use + 1) & USE_MASK;
    *link = (struct tcp_link){.fd = fd, .use = use == USE_MASK ? 0 : use, .next = NO_INDEX};
    sh_sock_tune(fd);
    return link;
}

static void lost_unlink(struct tcp *tcp, struct tcp_link *link)
{
    uint32_t *at = &tcp->lost_head;
    while (*at != (uint32_t)(link - tcp->links))
        at = &tcp->links[*at].next;
    *at = link->next;
}

static void link_free(struct tcp *tcp, struct tcp_link *link)
{
    if (link->is_lost)
        lost_unlink(tcp, link);
    close(link->fd);
    link->fd = -1;
    link->next = tcp->free_head;
    tcp->free_head = (uint32_t)(link - tcp->links);
}

/* --- The operations ---------------------------------------------------------------------- */

static enum shoal_err tcp_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct tcp *tcp = tcp_of(wire);
    if (tcp->listeners_count == SH_SOCK_LISTENERS_MAX)
        return SHOAL_EADDRINUSE;
    struct sh_sock_listener listener;
    char bound[SH_MSG_ADDRESS_MAX];
    enum shoal_err err = sh_sock_listen(address, &listener, bound);
    if (err != SHOAL_OK)
        return err;
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = KEY_LISTEN + tcp->listeners_count};
    if (epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, listener.fd, &event) != 0) {
        sh_sock_listener_close(&listener);
        return SHOAL_EIO;
    }
    tcp->listeners[tcp->listeners_count++] = listener;
    memcpy(bound_out, bound, sizeof bound);
    return SHOAL_OK;
}

/* A link has begun to connect, or has failed to. */
static void link_dialled(struct tcp *tcp, struct tcp_link *link, enum sh_sock_dialled dialled)
{
    SH_ASSERT(dialled != SH_SOCK_IS_NAME);
    if (dialled != SH_SOCK_CONNECTS) {
        link->is_refused = dialled == SH_SOCK_REFUSED;
        link_lost(tcp, link);
        return;
    }
    link->wants_writable = true;
    set_events(tcp, link, EPOLL_CTL_ADD);
}

static enum shoal_err tcp_open(struct sh_wire *wire, const char *address, uint64_t tag,
                               sh_link *link_out)
{
    struct tcp *tcp = tcp_of(wire);
    int fd;
    enum sh_sock_dialled dialled;
    enum shoal_err err = sh_sock_dial(address, &fd, &dialled);
    if (err != SHOAL_OK)
        return err;
    struct tcp_link *link = link_new(tcp, fd);
    if (!link) {
        close(fd);
        return SHOAL_ELIMIT;
    }
    link->is_opening = true;
    link->was_opened_by_us = true;
    link->tag = tag;
    if (dialled == SH_SOCK_IS_NAME) {
        link->is_looked_up = true;
        err = sh_resolver_add(&tcp->resolver, wire, address, link_number(tcp, link));
        if (err != SHOAL_OK) {
            link_free(tcp, link);
            return err;
        }
    } else {
        link_dialled(tcp, link, dialled);
    }
    *link_out = link_number(tcp, link);
    return SHOAL_OK;
}

/* Connects those whose address has been found. */
static void resolved_take(struct tcp *tcp)
{
    struct sh_resolved found;
    while (sh_resolver_take(tcp->resolver, &found)) {
        struct tcp_link *link = link_of(tcp, found.link);
        SH_ASSERT(link && link->is_looked_up); /* closing it cancels */
        link->is_looked_up = false;
        link_dialled(tcp, link,
                     found.is_found ? sh_sock_dial_at(link->fd, &found.address) : SH_SOCK_FAILED);
    }
}

static void tcp_close(struct sh_wire *wire, sh_link number)
{
    struct tcp *tcp = tcp_of(wire);
    struct tcp_link *link = link_of(tcp, number);
    if (!link)
        return;
    if (link->is_looked_up)
        sh_resolver_cancel(tcp->resolver, number);
    link_free(tcp, link);
}

static bool tcp_encrypt(struct sh_wire *wire, sh_link number, const void *keys, size_t size)
{
    const struct tcp_link *link = link_of(tcp_of(wire), number);
    return link && setsockopt(link->fd, IPPROTO_TCP, TCP_ULP, "tls", sizeof "tls") == 0 &&
           setsockopt(link->fd, SOL_TLS, TLS_TX, keys, (socklen_t)size) == 0;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static size_t tcp_push(struct sh_wire *wire, sh_link number, struct sh_bytes bytes)
{
    struct tcp *tcp = tcp_of(wire);
    struct tcp_link *link = link_of(tcp, number);
    if (!link || link->is_lost || link->is_opening || bytes.size == 0)
        return 0;
    ssize_t sent = send(link->fd, bytes.at, bytes.size, MSG_NOSIGNAL);
    if (sent < 0 && !would_block()) {
        link_lost(tcp, link);
        return 0;
    }
    size_t taken = sent > 0 ? (size_t)sent : 0;
    if (taken < bytes.size && !link->wants_writable) {
        link->wants_writable = true;
        set_events(tcp, link, EPOLL_CTL_MOD);
    }
    return taken;
}

static size_t tcp_pull(struct sh_wire *wire, sh_link number, void *into, size_t room)
{
    struct tcp *tcp = tcp_of(wire);
    struct tcp_link *link = link_of(tcp, number);
    if (!link || link->is_lost || link->is_looked_up || room == 0)
        return 0;
    ssize_t got = recv(link->fd, into, room, 0);
    if (got > 0)
        return (size_t)got;
    if (got == 0 || !would_block())
        link_lost(tcp, link);
    return 0;
}

static unsigned accept_some(struct tcp *tcp, const struct sh_sock_listener *listener,
                            struct sh_wire_event *events, unsigned events_max)
{
    unsigned count = 0;
    while (count < events_max && count < ACCEPTS_AT_ONCE) {
        struct sh_sock_peer peer;
        int fd = sh_sock_accept(listener, &tcp->acceptor, &peer);
        if (fd < 0)
            break;
        struct tcp_link *link = link_new(tcp, fd);
        if (!link) {
            sh_sock_refuse(&tcp->acceptor, fd, tcp->links_max);
            continue;
        }
        link->peer = peer;
        set_events(tcp, link, EPOLL_CTL_ADD);
        events[count++] =
            (struct sh_wire_event){.kind = SH_WIRE_ACCEPTED, .link = link_number(tcp, link)};
    }
    return count;
}

/* Reports and frees the links that failed. */
static unsigned report_lost(struct tcp *tcp, struct sh_wire_event *events, unsigned events_max)
{
    unsigned count = 0;
    while (count < events_max && tcp->lost_head != NO_INDEX) {
        struct tcp_link *link = &tcp->links[tcp->lost_head];
        events[count++] = (struct sh_wire_event){
            .kind = SH_WIRE_LOST,
            .link = link_number(tcp, link),
            .tag = link->tag,
            .err = link->is_opening ? SHOAL_EUNREACHABLE : SHOAL_ECONNLOST,
            .is_refused = link->is_refused,
        };
        link_free(tcp, link);
    }
    return count;
}

/* What epoll said of one link, as an event; false if it is none. */
static bool link_event(struct tcp *tcp, struct tcp_link *link, uint32_t ready,
                       struct sh_wire_event *event_out)
{
    sh_link number = link_number(tcp, link);
    if (link->is_opening) {
        int error = 0;
        socklen_t size = sizeof error;
        getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size);
        if (error != 0 || !(ready & EPOLLOUT)) {
            link->is_refused = error == ECONNREFUSED;
            link_lost(tcp, link);
            return false;
        }
        link->is_opening = false;
        link->wants_writable = false;
        set_events(tcp, link, EPOLL_CTL_MOD);
        *event_out =
            (struct sh_wire_event){.kind = SH_WIRE_OPENED, .link = number, .tag = link->tag};
        return true;
    }
    if (ready & EPOLLOUT) {
        link->wants_writable = false;
        set_events(tcp, link, EPOLL_CTL_MOD);
        *event_out = (struct sh_wire_event){.kind = SH_WIRE_WRITABLE, .link = number};
        return true; /* if it is readable as well, the next poll says so */
    }
    if (link->is_paused) {
        /* It is gone or broken, which epoll says whether asked or not. */
        set_events(tcp, link, EPOLL_CTL_DEL);
        link->is_unwatched = true;
        return false;
    }
    *event_out = (struct sh_wire_event){.kind = SH_WIRE_READABLE, .link = number};
    return true;
}

static unsigned translate(struct tcp *tcp, const struct epoll_event *ready, unsigned ready_count,
                          struct sh_wire_event *events, unsigned events_max)
{
    unsigned count = 0;
    for (unsigned i = 0; i < ready_count; i++) {
        uint64_t key = ready[i].data.u64;
        if (key == KEY_SIGNAL) {
            /* seq_cst: a signal after this writes the eventfd again */
            atomic_store(&tcp->signalled, false);
            uint64_t drained;
            ssize_t size = read(tcp->signal, &drained, sizeof drained);
            (void)size; /* nothing there: another poll was faster */
        } else if (key >= KEY_LISTEN) {
            const struct sh_sock_listener *listener = &tcp->listeners[key - KEY_LISTEN];
            count += accept_some(tcp, listener, events + count, events_max - count);
        } else {
            struct tcp_link *link = link_of(tcp, (sh_link)key);
            if (link && !link->is_lost && count < events_max)
                count += link_event(tcp, link, ready[i].events, &events[count]);
        }
    }
    return count;
}

static unsigned tcp_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                         uint64_t timeout_ns)
{
    struct tcp *tcp = tcp_of(wire);
    resolved_take(tcp);
    unsigned count = report_lost(tcp, events, events_max);
    struct epoll_event ready[EPOLL_EVENTS];
    /* Accepting may give many events for one of epoll's, so it may find fewer. */
    unsigned room = events_max - count;
    if (room > EPOLL_EVENTS)
        room = EPOLL_EVENTS;
    if (room == 0)
        return count;
    int found;
    if (count > 0 || timeout_ns == 0) {
        found = epoll_wait(tcp->epoll, ready, (int)room, 0);
    } else {
        struct timespec wait = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
        bool is_forever = timeout_ns > UINT64_C(1000000000) * 86400;
        found = epoll_pwait2(tcp->epoll, ready, (int)room, is_forever ? NULL : &wait, NULL);
    }
    if (found > 0)
        count += translate(tcp, ready, (unsigned)found, events + count, events_max - count);
    count += report_lost(tcp, events + count, events_max - count);
    return count;
}

static void tcp_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    struct tcp *tcp = tcp_of(wire);
    struct pollfd watched = {.fd = tcp->epoll, .events = POLLIN};
    struct timespec wait = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    bool is_forever = timeout_ns > UINT64_C(1000000000) * 86400;
    (void)ppoll(&watched, 1, is_forever ? NULL : &wait, NULL);
}

static void tcp_signal(struct sh_wire *wire)
{
    struct tcp *tcp = tcp_of(wire);
    /* seq_cst: one eventfd write is enough until the poll has seen it */
    if (atomic_exchange(&tcp->signalled, true))
        return;
    uint64_t one = 1;
    ssize_t size = write(tcp->signal, &one, sizeof one);
    (void)size; /* full means signalled already */
}

static void tcp_pause(struct sh_wire *wire, sh_link number, bool is_paused)
{
    struct tcp *tcp = tcp_of(wire);
    struct tcp_link *link = link_of(tcp, number);
    if (!link || link->is_lost || link->is_opening || link->is_paused == is_paused)
        return;
    bool was_unwatched = link->is_unwatched;
    link->is_paused = is_paused;
    link->is_unwatched = false;
    set_events(tcp, link, was_unwatched ? EPOLL_CTL_ADD : EPOLL_CTL_MOD);
}

static void tcp_peer(struct sh_wire *wire, sh_link number, char *text_out)
{
    const struct tcp_link *link = link_of(tcp_of(wire), number);
    text_out[0] = '\0';
    if (link)
        sh_sock_peer_print(&link->peer, text_out);
}

static void tcp_destroy(struct sh_wire *wire)
{
    struct tcp *tcp = tcp_of(wire);
    sh_resolver_destroy(tcp->resolver);
    for (uint32_t i = 0; tcp->links && i < tcp->links_max; i++) {
        if (tcp->links[i].fd >= 0)
            close(tcp->links[i].fd);
    }
    for (uint32_t i = 0; i < tcp->listeners_count; i++)
        sh_sock_listener_close(&tcp->listeners[i]);
    sh_sock_acceptor_close(&tcp->acceptor);
    if (tcp->signal >= 0)
        close(tcp->signal);
    if (tcp->epoll >= 0)
        close(tcp->epoll);
    free(tcp->links);
    free(tcp);
}

static const struct sh_wire_ops tcp_ops = {
    .listen = tcp_listen,
    .open = tcp_open,
    .close = tcp_close,
    .push = tcp_push,
    .pull = tcp_pull,
    .poll = tcp_poll,
    .watch = tcp_watch,
    .signal = tcp_signal,
    .destroy = tcp_destroy,
    .encrypt = tcp_encrypt,
    .peer = tcp_peer,
    .pause = tcp_pause,
};

enum shoal_err sh_tcp_create(uint32_t links_max, struct sh_wire **wire_out)
{
    SH_ASSERT(links_max > 0 && links_max <= INDEX_MASK);
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return SHOAL_ENOMEM;
    tcp->wire.ops = &tcp_ops;
    tcp->links_max = links_max;
    tcp->lost_head = NO_INDEX;
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    tcp->signal = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sh_sock_acceptor_open(&tcp->acceptor);
    tcp->links = calloc(links_max, sizeof *tcp->links);
    for (uint32_t i = 0; tcp->links && i < links_max; i++)
        tcp->links[i] = (struct tcp_link){.fd = -1, .next = i + 1 < links_max ? i + 1 : NO_INDEX};
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = KEY_SIGNAL};
    if (tcp->epoll < 0 || tcp->signal < 0 || !tcp->links ||
        epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, tcp->signal, &event) != 0) {
        enum shoal_err err = tcp->links ? SHOAL_EIO : SHOAL_ENOMEM;
        tcp_destroy(&tcp->wire);
        return err;
    }
    *wire_out = &tcp->wire;
    return SHOAL_OK;
}
