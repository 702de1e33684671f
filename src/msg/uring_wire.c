/* The wire on io_uring.
 *
 * Receiving: each link has a multishot receive under way, which fills buffers out of one pool; pull
 * copies out of them. A link that gets whole buffers one after the other (bulk), or whose owner
 * does not pull, or that found the pool empty, is received from directly: a poll says that it is
 * readable and pull calls recv, which copies once and holds no buffer. It goes back when it is
 * quiet. The two never overlap, since then bytes could change places.
 *
 * Sending: a push of up to TX_COPY_MAX bytes is copied into a buffer of the link, and flush (or
 * poll) sends those of all links with one system call; longer ones are sent at once. Sends never
 * wait in the kernel (MSG_DONTWAIT). A link has one send under way at most, and nothing of it is
 * sent in another way meanwhile, or bytes would go twice or change places.
 *
 * Sends of ZEROCOPY_MIN bytes and more are zero-copy ones out of registered buffers: the network
 * card reads the buffer, and a second completion says when it is done with it. Until then the
 * buffer is held. That completion also says whether the kernel copied after all, as it does for
 * receivers on the same machine; then, and where it refuses, the link's sends are ordinary ones
 * from then on. The buffers are registered at the first such send, because they count as locked
 * memory.
 *
 * The kernel does the work of a request in the thread that submitted it, and cancels it when that
 * thread ends. So what was cancelled by nobody is submitted again, and a link whose bytes keep
 * coming through another thread than the one that polls is moved to this one. A request's slot is
 * not used again before all its requests have ended, so that a completion finds its link by index.
 */
#include "msg/uring_wire.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "msg/msg.h"
#include "msg/tcp.h"
#include "msg/uring_int.h"

static const size_t memory_bytes = (size_t)RX_BUFFERS * RX_BYTES + (size_t)TX_BUFFERS * TX_BYTES;

/* --- The operations ---------------------------------------------------------------------- */

static enum shoal_err uring_listen(struct sh_wire *wire, const char *address, char *bound_out)
{
    struct uring *uring = uring_of(wire);
    if (uring->listeners_count == SH_SOCK_LISTENERS_MAX)
        return SHOAL_EADDRINUSE;
    struct sh_sock_listener listener;
    enum shoal_err err = sh_sock_listen(address, &listener, bound_out);
    if (err != SHOAL_OK)
        return err;
    uring->listeners[uring->listeners_count] = listener;
    sh_uring_listener_wait(uring, uring->listeners_count++);
    sh_uring_submit(uring);
    return SHOAL_OK;
}

/* A link has begun to connect, or has failed to. */
static void link_dialled(struct uring *uring, struct uring_link *link, enum sh_sock_dialled dialled)
{
    SH_ASSERT(dialled != SH_SOCK_IS_NAME);
    link->is_refused = dialled != SH_SOCK_CONNECTS;
    link->is_denied = dialled == SH_SOCK_REFUSED;
    if (link->is_refused)
        sh_uring_link_lost(uring, link);
    else
        sh_uring_poll_out(uring, link);
}

static enum shoal_err uring_open(struct sh_wire *wire, const char *address, uint64_t tag,
                                 sh_link *link_out)
{
    struct uring *uring = uring_of(wire);
    int fd;
    enum sh_sock_dialled dialled;
    enum shoal_err err = sh_sock_dial(address, &fd, &dialled);
    if (err != SHOAL_OK)
        return err;
    struct uring_link *link = sh_uring_link_new(uring, fd, LINK_OPENING);
    if (!link) {
        close(fd);
        return SHOAL_ELIMIT;
    }
    link->tag = tag;
    if (dialled == SH_SOCK_IS_NAME) {
        link->is_looked_up = true;
        err = sh_resolver_add(&uring->resolver, wire, address, link_number(uring, link));
        if (err != SHOAL_OK) {
            sh_uring_link_die(uring, link);
            return err;
        }
    } else {
        link_dialled(uring, link, dialled);
    }
    *link_out = link_number(uring, link);
    return SHOAL_OK;
}

/* Connects those whose address has been found. */
static void resolved_take(struct uring *uring)
{
    struct sh_resolved found;
    while (sh_resolver_take(uring->resolver, &found)) {
        struct uring_link *link = link_of(uring, found.link);
        SH_ASSERT(link && link->is_looked_up); /* closing it cancels */
        link->is_looked_up = false;
        link_dialled(uring, link,
                     found.is_found ? sh_sock_dial_at(link->fd, &found.address) : SH_SOCK_FAILED);
    }
}

/* Sends without waiting; what was taken, or 0 after noting why. */
static size_t send_now(struct uring *uring, struct uring_link *link, const void *at, size_t size)
{
    ssize_t result = send(link->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (result < 0 && !would_block(errno)) {
        sh_uring_link_lost(uring, link);
        return 0;
    }
    return result > 0 ? (size_t)result : 0;
}

static void uring_close(struct sh_wire *wire, sh_link number)
{
    struct uring *uring = uring_of(wire);
    struct uring_link *link = link_of(uring, number);
    if (!link)
        return;
    if (link->is_looked_up)
        sh_resolver_cancel(uring->resolver, number);
    if (link->state == LINK_OPEN && link->tx != NO_INDEX && !link->is_lost) {
        if (!link->sends)
            link->tx_start +=
                (uint32_t)send_now(uring, link, tx_bytes(uring, link->tx) + link->tx_start,
                                   link->tx_end - link->tx_start);
        if (!link->is_lost && link->tx_start < link->tx_end) {
            uring->live--;
            link->state = LINK_CLOSING;
            if (!link->sends)
                sh_uring_poll_out(uring, link);
            sh_uring_submit(uring);
            return;
        }
    }
    sh_uring_link_die(uring, link);
    sh_uring_submit(uring);
}

/* Copies what fits into the link's buffer. */
static size_t buffer_append(struct uring *uring, struct uring_link *link, struct sh_bytes bytes)
{
    if (link->tx == NO_INDEX)
        sh_uring_tx_take(uring, link);
    size_t room = TX_BYTES - link->tx_end;
    size_t size = bytes.size < room ? bytes.size : room;
    memcpy(tx_bytes(uring, link->tx) + link->tx_end, bytes.at, size);
    link->tx_end += (uint32_t)size;
    if (!link->polls_out)
        sh_uring_send_later(uring, link);
    return size;
}

static size_t uring_push(struct sh_wire *wire, sh_link number, struct sh_bytes bytes)
{
    struct uring *uring = uring_of(wire);
    struct uring_link *link = link_of(uring, number);
    if (!link || link->state != LINK_OPEN || link->is_lost || bytes.size == 0)
        return 0;
    bool is_small = bytes.size <= TX_COPY_MAX;
    if (link->tx != NO_INDEX && link->is_to_send &&
        (!is_small || bytes.size > TX_BYTES - link->tx_end)) {
        /* What is before it goes first; then this may go at once. */
        link->tx_start += (uint32_t)send_now(
            uring, link, tx_bytes(uring, link->tx) + link->tx_start, link->tx_end - link->tx_start);
        if (link->is_lost)
            return 0;
        if (link->tx_start == link->tx_end)
            sh_uring_tx_release(uring, link);
    }
    size_t taken;
    if (link->tx != NO_INDEX || (is_small && uring->tx_free != NO_INDEX))
        taken = buffer_append(uring, link, bytes);
    else
        taken = send_now(uring, link, bytes.at, bytes.size);
    if (taken < bytes.size && !link->is_lost) {
        link->wants_writable = true;
        if (link->tx == NO_INDEX)
            sh_uring_poll_out(uring, link);
    }
    return taken;
}

/* Receives without a buffer of ours between. */
static size_t pull_directly(struct uring *uring, struct uring_link *link, void *into, size_t room)
{
    ssize_t got = recv(link->fd, into, room, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && !would_block(errno))) {
        link->has_ended = true;
        sh_uring_ready(uring, link);
        return 0;
    }
    size_t size = got > 0 ? (size_t)got : 0;
    if (size >= RX_BYTES)
        link->short_count = 0;
    if (size == room)
        return size;
    /* Less than there was room for: the socket is empty, so wait for more. */
    link->is_readable = false;
    if (size < RX_BYTES && ++link->short_count >= QUIET_AFTER)
        link->is_direct = false;
    sh_uring_receive(uring, link);
    return size;
}

static size_t uring_pull(struct sh_wire *wire, sh_link number, void *into, size_t room)
{
    struct uring *uring = uring_of(wire);
    struct uring_link *link = link_of(uring, number);
    if (!link || link->state != LINK_OPEN || link->is_lost)
        return 0;
    size_t got = 0;
    while (link->rx_count > 0 && got < room) {
        uint32_t left = uring->rx[link->rx_head].size - link->rx_offset;
        uint32_t size = room - got < left ? (uint32_t)(room - got) : left;
        memcpy((uint8_t *)into + got, rx_bytes(uring, link->rx_head) + link->rx_offset, size);
        link->rx_offset += size;
        got += size;
        if (size == left)
            sh_uring_rx_drop(uring, link);
    }
    if (got == 0 && room > 0 && link->is_readable && !link->receives && !link->has_ended)
        return pull_directly(uring, link, into, room);
    return got;
}

static void uring_pause(struct sh_wire *wire, sh_link number, bool is_paused)
{
    struct uring *uring = uring_of(wire);
    struct uring_link *link = link_of(uring, number);
    if (!link || link->state != LINK_OPEN)
        return;
    link->is_paused = is_paused;
    if (!is_paused)
        sh_uring_ready(uring, link); /* to be looked at by the next poll */
}

/* What is to be said of a link; false: nothing. */
static bool link_event(struct uring *uring, struct uring_link *link,
                       struct sh_wire_event *event_out)
{
    struct sh_wire_event event = {.link = link_number(uring, link), .tag = link->tag};
    if (link->state != LINK_OPEN && link->state != LINK_OPENING)
        return false;
    bool has_bytes =
        link->rx_count > 0 || (link->is_readable && !link->receives && !link->has_ended);
    if (link->news & NEWS_OPENED) {
        event.kind = SH_WIRE_OPENED;
        link->news &= (uint8_t)~NEWS_OPENED;
    } else if (link->news & NEWS_ACCEPTED) {
        event.kind = SH_WIRE_ACCEPTED;
        link->news &= (uint8_t)~NEWS_ACCEPTED;
    } else if (link->is_lost || (link->has_ended && !has_bytes)) {
        event.kind = SH_WIRE_LOST;
        event.err = link->is_refused ? SHOAL_EUNREACHABLE : SHOAL_ECONNLOST;
        event.is_refused = link->is_denied;
        sh_uring_link_die(uring, link);
    } else if (link->news & NEWS_WRITABLE) {
        event.kind = SH_WIRE_WRITABLE;
        link->news &= (uint8_t)~NEWS_WRITABLE;
    } else if (has_bytes && !link->is_paused) {
        event.kind = SH_WIRE_READABLE;
    } else {
        return false;
    }
    *event_out = event;
    return true;
}

static unsigned report(struct uring *uring, struct sh_wire_event *events, unsigned events_max)
{
    unsigned count = 0;
    uint32_t last = uring->ready_tail;
    bool is_over = uring->ready_head == NO_INDEX;
    while (!is_over && count < events_max) {
        uint32_t index = uring->ready_head;
        struct uring_link *link = &uring->links[index];
        is_over = index == last;
        uring->ready_head = link->ready_next;
        link->is_ready = false;
        if (link_event(uring, link, &events[count])) {
            count++;
            if (link->state == LINK_OPEN)
                sh_uring_ready(uring, link); /* looked at again: it may have more to say */
        }
        sh_uring_link_free(uring, link);
    }
    if (uring->ready_head == NO_INDEX)
        atomic_store_explicit(&uring->has_ready, false, memory_order_relaxed);
    return count;
}

/* Waits until the ring has a completion. Touches nothing else: watch calls it beside the wire's
 * owner. */
static void ring_watch(struct uring *uring, uint64_t timeout_ns)
{
    struct pollfd watched = {.fd = uring->ring.ring_fd, .events = POLLIN};
    struct timespec wait = {(time_t)(timeout_ns / 1000000000), (long)(timeout_ns % 1000000000)};
    bool is_forever = timeout_ns > UINT64_C(1000000000) * 86400;
    (void)ppoll(&watched, 1, is_forever ? NULL : &wait, NULL);
}

/* Whether the kernel, short of memory, has left entries: then nobody waits for long. */
static bool is_short(const struct uring *uring)
{
    /* relaxed: a hint for watch; uring_flush signals a thread that watches already */
    return atomic_load_explicit(&uring->is_short, memory_order_relaxed);
}

static uint64_t short_wait(uint64_t timeout_ns)
{
    return timeout_ns < SHORT_WAIT_NS ? timeout_ns : SHORT_WAIT_NS;
}

/* Submits, and waits for a completion. */
static void wait_for_one(struct uring *uring, uint64_t timeout_ns)
{
    struct __kernel_timespec wait = {(long long)(timeout_ns / 1000000000),
                                     (long long)(timeout_ns % 1000000000)};
    bool is_forever = timeout_ns > UINT64_C(1000000000) * 86400;
    struct io_uring_cqe *cqe;
    if (is_short(uring))
        sh_uring_submit(uring);
    int result = -ENOMEM;
    if (!is_short(uring))
        result = io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, is_forever ? NULL : &wait,
                                                  NULL);
    if (result < 0 && result != -ETIME && result != -EINTR)
        ring_watch(uring, short_wait(timeout_ns));
}

static unsigned uring_poll(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                           uint64_t timeout_ns)
{
    struct uring *uring = uring_of(wire);
    uring->was_signalled = false;
    resolved_take(uring);
    sh_uring_reap(uring);
    if (uring->send_head != NO_INDEX) {
        sh_uring_submit(uring);
        sh_uring_reap(uring);
    }
    unsigned count = report(uring, events, events_max);
    if (count == 0 && timeout_ns > 0 && !uring->was_signalled) {
        wait_for_one(uring, timeout_ns);
        sh_uring_reap(uring);
        count = report(uring, events, events_max);
    }
    /* Whoever watches while nobody polls needs the requests to be under way. */
    sh_uring_submit(uring);
    return count;
}

static void uring_watch(struct sh_wire *wire, uint64_t timeout_ns)
{
    struct uring *uring = uring_of(wire);
    /* relaxed: what is set after this look is signalled (uring_flush) */
    if (!atomic_load_explicit(&uring->has_ready, memory_order_relaxed))
        ring_watch(uring, is_short(uring) ? short_wait(timeout_ns) : timeout_ns);
}

static void uring_signal(struct sh_wire *wire)
{
    struct uring *uring = uring_of(wire);
    /* seq_cst: one eventfd write is enough until the poll has seen it */
    if (atomic_exchange(&uring->signalled, true))
        return;
    uint64_t one = 1;
    ssize_t size = write(uring->signal, &one, sizeof one);
    (void)size; /* full means signalled already */
}

static void uring_flush(struct sh_wire *wire)
{
    struct uring *uring = uring_of(wire);
    bool has_sent = uring->send_head != NO_INDEX;
    sh_uring_submit(uring);
    if (has_sent) {
        sh_uring_reap(uring);
        sh_uring_submit(uring);
    }
    /* A thread that watches the ring sees neither what came in meanwhile nor what the kernel has
     * not taken, so tell that thread. */
    if ((has_sent && uring->ready_head != NO_INDEX) || is_short(uring))
        uring_signal(wire);
}

/* --- Making it --------------------------------------------------------------------------- */

/* Ends all requests, so that the kernel writes nothing any more. */
static void requests_end(struct uring *uring)
{
    uring->signalled = true;
    sh_uring_submit(uring);
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    io_uring_prep_cancel(sqe, NULL, IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL);
    sh_uring_entry_name(sqe, OP_CANCEL, 0);
    uint32_t left = uring->requests;
    /* A request of a thread that runs elsewhere ends when that enters the kernel. */
    for (unsigned round = 0; left > 0 && round < 2000; round++) {
        wait_for_one(uring, 1000000);
        struct io_uring_cqe *cqe;
        while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
            enum op op = (enum op)(cqe->user_data >> 32 & OP_MASK);
            bool is_last = op != OP_SEND && op != OP_CANCEL && !(cqe->flags & IORING_CQE_F_MORE);
            left -= is_last;
            io_uring_cqe_seen(&uring->ring, cqe);
        }
    }
}

static void uring_peer(struct sh_wire *wire, sh_link number, char *text_out)
{
    const struct uring_link *link = link_of(uring_of(wire), number);
    text_out[0] = '\0';
    if (link)
        sh_sock_peer_print(&link->peer, text_out);
}

static void uring_destroy(struct sh_wire *wire)
{
    struct uring *uring = uring_of(wire);
    sh_resolver_destroy(uring->resolver);
    if (uring->has_ring && uring->links)
        requests_end(uring);
    for (uint32_t i = 0; uring->links && i < uring->slots; i++) {
        if (uring->links[i].fd >= 0)
            close(uring->links[i].fd);
    }
    for (uint32_t i = 0; i < uring->listeners_count; i++)
        sh_sock_listener_close(&uring->listeners[i]);
    if (uring->has_ring)
        io_uring_queue_exit(&uring->ring);
    sh_sock_acceptor_close(&uring->acceptor);
    if (uring->signal >= 0)
        close(uring->signal);
    if (uring->memory != MAP_FAILED)
        munmap(uring->memory, memory_bytes);
    free(uring->rx_ring);
    free(uring->links);
    free(uring->backlog);
    free(uring);
}

static const struct sh_wire_ops uring_ops = {
    .listen = uring_listen,
    .open = uring_open,
    .close = uring_close,
    .push = uring_push,
    .pull = uring_pull,
    .poll = uring_poll,
    .watch = uring_watch,
    .signal = uring_signal,
    .destroy = uring_destroy,
    .flush = uring_flush,
    .peer = uring_peer,
    .pause = uring_pause,
};

/* Sets up the ring and its buffers; 0, or what the kernel said. */
static int ring_init(struct uring *uring)
{
    struct io_uring_params params = {.flags = IORING_SETUP_CQSIZE | IORING_SETUP_COOP_TASKRUN |
                                              IORING_SETUP_TASKRUN_FLAG,
                                     .cq_entries = COMPLETIONS};
    int result = io_uring_queue_init_params(ENTRIES, &uring->ring, &params);
    if (result != 0)
        return -result;
    uring->has_ring = true;
    struct io_uring_buf_reg registration = {.ring_addr = (uint64_t)(uintptr_t)uring->rx_ring,
                                            .ring_entries = RX_RING};
    result = io_uring_register_buf_ring(&uring->ring, &registration, 0);
    if (result != 0)
        return -result;
    io_uring_buf_ring_init(uring->rx_ring);
    sh_uring_rx_offer(uring);
    return 0;
}

/* Receives one byte the way that the links will: whether the kernel knows multishot receives can't
 * be asked. 0, or what it said. */
static int ring_try(struct uring *uring)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return errno;
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    io_uring_prep_recv_multishot(sqe, pair[0], NULL, 0, 0);
    io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
    sqe->buf_group = 0;
    int error = write(pair[1], "x", 1) == 1 ? 0 : errno;
    close(pair[1]);
    bool goes_on = true, was_right = false;
    while (goes_on && error == 0) {
        struct io_uring_cqe *cqe;
        struct __kernel_timespec second = {1, 0};
        error = -io_uring_submit_and_wait_timeout(&uring->ring, &cqe, 1, &second, NULL);
        error = error < 0 ? 0 : error;
        if (error != 0 || (error = -io_uring_peek_cqe(&uring->ring, &cqe)) != 0)
            break;
        goes_on = cqe->flags & IORING_CQE_F_MORE;
        was_right |= cqe->res == 1 && goes_on && cqe->flags & IORING_CQE_F_BUFFER;
        if (cqe->res < 0)
            error = -cqe->res;
        if (cqe->flags & IORING_CQE_F_BUFFER) {
            uring->rx_offered--;
            sh_uring_rx_return(uring, cqe->flags >> IORING_CQE_BUFFER_SHIFT);
        }
        io_uring_cqe_seen(&uring->ring, cqe);
    }
    close(pair[0]);
    return error == 0 && !was_right ? EOPNOTSUPP : error;
}

static void lists_init(struct uring *uring)
{
    uring->send_head = uring->ready_head = uring->ready_tail = NO_INDEX;
    for (uint32_t i = 0; i < uring->slots; i++)
        uring->links[i] =
            (struct uring_link){.fd = -1, .next = i + 1 < uring->slots ? i + 1 : NO_INDEX};
    for (uint32_t i = 0; i < RX_BUFFERS; i++)
        uring->rx[i].next = i + 1 < RX_BUFFERS ? i + 1 : NO_INDEX;
    for (uint32_t i = 0; i < TX_BUFFERS; i++)
        uring->tx_next[i] = i + 1 < TX_BUFFERS ? i + 1 : NO_INDEX;
}

static enum shoal_err memory_init(struct uring *uring)
{
    uring->signal = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    sh_sock_acceptor_open(&uring->acceptor);
    uring->links = calloc(uring->slots, sizeof *uring->links);
    /* The listeners' and the signal's polls, and the cancel of requests_end. Of these pages the
     * kernel gives only those that a shortage needs. */
    uring->backlog_room = uring->slots * SLOT_ENTRIES_MAX + SH_SOCK_LISTENERS_MAX + 2;
    uring->backlog = calloc(uring->backlog_room, sizeof *uring->backlog);
    uring->memory =
        mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uring->rx_ring = aligned_alloc(4096, 4096);
    if (!uring->links || !uring->backlog || uring->memory == MAP_FAILED || !uring->rx_ring)
        return SHOAL_ENOMEM;
    memset(uring->rx_ring, 0, 4096);
    lists_init(uring);
    return uring->signal < 0 ? SHOAL_EIO : SHOAL_OK;
}

_Static_assert(RX_RING * sizeof(struct io_uring_buf) <= 4096, "the ring fits its page");

enum shoal_err sh_uring_create(uint32_t links_max, struct sh_wire **wire_out)
{
    SH_ASSERT(links_max > 0 && links_max < INDEX_MASK - DYING_MAX);
    struct uring *uring = calloc(1, sizeof *uring);
    if (!uring)
        return SHOAL_ENOMEM;
    uring->wire.ops = &uring_ops;
    uring->links_max = links_max;
    uring->slots = links_max + DYING_MAX;
    enum shoal_err err = memory_init(uring);
    if (err != SHOAL_OK) {
        uring_destroy(&uring->wire);
        return err;
    }
    int refused = ring_init(uring);
    if (refused == 0)
        refused = ring_try(uring);
    if (refused != 0) {
        SH_INFO("msg", "io_uring refused, sockets work through epoll",
                SH_TEXT("reason", strerror(refused)));
        uring_destroy(&uring->wire);
        return sh_tcp_create(links_max, wire_out);
    }
    sh_uring_signal_wait(uring);
    sh_uring_submit(uring);
    *wire_out = &uring->wire;
    return SHOAL_OK;
}
