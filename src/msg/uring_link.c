/* The links of the io_uring wire: their requests, buffers and completions. */
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "msg/uring_int.h"

/* Of Linux 6.2, which the header may not know: the second completion of a zero-copy send says in
 * its result whether the kernel copied. */
#define ZEROCOPY_REPORT (1u << 3)
#define NOTIF_COPIED (1u << 31)

/* Its address tells threads apart. */
static _Thread_local char this_thread;

/* --- Requests ---------------------------------------------------------------------------- */

/* An entry of the backlog, behind all that are in it. */
static struct io_uring_sqe *backlog_entry(struct uring *uring)
{
    SH_ASSERT(uring->backlog_count < uring->backlog_room);
    uint32_t at = (uring->backlog_first + uring->backlog_count++) % uring->backlog_room;
    return &uring->backlog[at];
}

/* Moves entries from the backlog into the ring, as far as that has room. */
static void backlog_move(struct uring *uring)
{
    while (uring->backlog_count > 0) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
        if (!sqe)
            return;
        *sqe = uring->backlog[uring->backlog_first];
        uring->backlog_first = (uring->backlog_first + 1) % uring->backlog_room;
        uring->backlog_count--;
    }
}

/* The order holds, since nothing enters the ring past the backlog. Cancels rely on it: a link's
 * descriptor and index belong to nobody else before the kernel has taken all requests of that link,
 * so a late cancel comes before the requests of the next one that has them, and hits none of
 * these. */
struct io_uring_sqe *sh_uring_entry(struct uring *uring)
{
    struct io_uring_sqe *sqe = NULL;
    if (uring->backlog_count == 0)
        sqe = io_uring_get_sqe(&uring->ring);
    if (!sqe && uring->backlog_count == 0 && io_uring_submit(&uring->ring) > 0)
        sqe = io_uring_get_sqe(&uring->ring);
    return sqe ? sqe : backlog_entry(uring);
}

void sh_uring_entry_name(struct io_uring_sqe *sqe, enum op op, uint32_t index)
{
    io_uring_sqe_set_data64(sqe, (uint64_t)op << 32 | index);
}

static void poll_begin(struct uring *uring, int fd, unsigned events, enum op op, uint32_t index)
{
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    io_uring_prep_poll_add(sqe, fd, events);
    sh_uring_entry_name(sqe, op, index);
    uring->requests++;
}

void sh_uring_poll_out(struct uring *uring, struct uring_link *link)
{
    if (link->polls_out)
        return;
    link->polls_out = true;
    poll_begin(uring, link->fd, POLLOUT, OP_POLL_OUT, index_of(uring, link));
}

/* Lets the link receive, in the way that it is to. */
void sh_uring_receive(struct uring *uring, struct uring_link *link)
{
    if (link->state != LINK_OPEN || link->has_ended || link->receives || link->polls_in)
        return;
    uint32_t index = index_of(uring, link);
    if (link->is_direct) {
        if (link->is_readable)
            return;
        link->polls_in = true;
        poll_begin(uring, link->fd, POLLIN, OP_POLL_IN, index);
        return;
    }
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    io_uring_prep_recv_multishot(sqe, link->fd, NULL, 0, 0);
    io_uring_sqe_set_flags(sqe, IOSQE_BUFFER_SELECT);
    sqe->buf_group = 0;
    sh_uring_entry_name(sqe, OP_RECV, index);
    link->receives = true;
    link->thread = &this_thread;
    link->foreign_count = 0;
    uring->requests++;
}

/* Ends the multishot receive; its last completion begins what comes after it. */
static void receive_cancel(struct uring *uring, struct uring_link *link)
{
    if (!link->receives || link->cancels)
        return;
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    io_uring_prep_cancel64(sqe, (uint64_t)OP_RECV << 32 | index_of(uring, link), 0);
    sh_uring_entry_name(sqe, OP_CANCEL, 0);
    link->cancels = true;
}

static void receive_directly(struct uring *uring, struct uring_link *link)
{
    link->is_direct = true;
    link->short_count = 0;
    receive_cancel(uring, link);
}

/* --- Buffers ----------------------------------------------------------------------------- */

/* Offers free buffers to the kernel. */
void sh_uring_rx_offer(struct uring *uring)
{
    unsigned count = 0;
    while (uring->rx_offered < RX_RING && uring->rx_free != NO_INDEX) {
        uint32_t index = uring->rx_free;
        uring->rx_free = uring->rx[index].next;
        io_uring_buf_ring_add(uring->rx_ring, rx_bytes(uring, index), RX_BYTES,
                              (unsigned short)index, io_uring_buf_ring_mask(RX_RING), (int)count);
        count++;
        uring->rx_offered++;
    }
    if (count > 0)
        io_uring_buf_ring_advance(uring->rx_ring, (int)count);
}

void sh_uring_rx_return(struct uring *uring, uint32_t index)
{
    uring->rx[index].next = uring->rx_free;
    uring->rx_free = index;
    sh_uring_rx_offer(uring);
}

static void rx_append(struct uring *uring, struct uring_link *link, uint32_t index, uint32_t size)
{
    uring->rx[index] = (struct rx_buffer){.next = NO_INDEX, .size = size};
    if (link->rx_count == 0)
        link->rx_head = index;
    else
        uring->rx[link->rx_tail].next = index;
    link->rx_tail = index;
    link->rx_count++;
}

void sh_uring_rx_drop(struct uring *uring, struct uring_link *link)
{
    SH_ASSERT(link->rx_count > 0);
    uint32_t index = link->rx_head;
    link->rx_head = uring->rx[index].next;
    link->rx_count--;
    link->rx_offset = 0;
    sh_uring_rx_return(uring, index);
}

static void tx_unhold(struct uring *uring, uint32_t buffer)
{
    SH_ASSERT(buffer < TX_BUFFERS && uring->tx_holds[buffer] > 0);
    if (--uring->tx_holds[buffer] > 0)
        return;
    uring->tx_next[buffer] = uring->tx_free;
    uring->tx_free = buffer;
}

void sh_uring_tx_take(struct uring *uring, struct uring_link *link)
{
    SH_ASSERT(link->tx == NO_INDEX);
    SH_ASSERT(uring->tx_free != NO_INDEX);
    link->tx = uring->tx_free;
    uring->tx_free = uring->tx_next[link->tx];
    SH_ASSERT(uring->tx_holds[link->tx] == 0);
    uring->tx_holds[link->tx] = 1;
    link->tx_start = link->tx_end = 0;
}

void sh_uring_tx_release(struct uring *uring, struct uring_link *link)
{
    if (link->tx == NO_INDEX)
        return;
    tx_unhold(uring, link->tx);
    link->tx = NO_INDEX;
}

/* --- Links ------------------------------------------------------------------------------- */

void sh_uring_ready(struct uring *uring, struct uring_link *link)
{
    if (link->is_ready)
        return;
    uint32_t index = index_of(uring, link);
    link->is_ready = true;
    link->ready_next = NO_INDEX;
    if (uring->ready_head == NO_INDEX) {
        uring->ready_head = index;
        /* relaxed: a hint for watch */
        atomic_store_explicit(&uring->has_ready, true, memory_order_relaxed);
    } else {
        uring->links[uring->ready_tail].ready_next = index;
    }
    uring->ready_tail = index;
}

void sh_uring_link_lost(struct uring *uring, struct uring_link *link)
{
    link->is_lost = true;
    sh_uring_ready(uring, link);
}

struct uring_link *sh_uring_link_new(struct uring *uring, int fd, enum link_state state)
{
    if (uring->free_head == NO_INDEX || uring->live == uring->links_max)
        return NULL;
    struct uring_link *link = &uring->links[uring->free_head];
    uring->free_head = link->next;
    uring->live++;
    uint32_t use = (link->use + 1) & USE_MASK;
    *link = (struct uring_link){
        .fd = fd, .state = state, .use = use == USE_MASK ? 0 : use, .tx = NO_INDEX};
    sh_sock_tune(fd);
    return link;
}

/* Frees the slot of a dead link once nothing refers to it. */
void sh_uring_link_free(struct uring *uring, struct uring_link *link)
{
    if (link->state != LINK_DEAD || link->receives || link->polls_in || link->polls_out ||
        link->sends || link->is_ready || link->is_to_send)
        return;
    close(link->fd);
    link->fd = -1;
    link->state = LINK_FREE;
    link->next = uring->free_head;
    uring->free_head = index_of(uring, link);
}

void sh_uring_link_die(struct uring *uring, struct uring_link *link)
{
    SH_ASSERT(link->state != LINK_DEAD && link->state != LINK_FREE);
    if (link->state != LINK_CLOSING)
        uring->live--;
    link->state = LINK_DEAD;
    while (link->rx_count > 0)
        sh_uring_rx_drop(uring, link);
    sh_uring_tx_release(uring, link);
    /* The requests hold the socket open, so closing alone would tell the other side nothing. */
    (void)shutdown(link->fd, SHUT_RDWR);
    if (link->receives || link->polls_in || link->polls_out) {
        struct io_uring_sqe *sqe = sh_uring_entry(uring);
        io_uring_prep_cancel_fd(sqe, link->fd, IORING_ASYNC_CANCEL_ALL);
        sh_uring_entry_name(sqe, OP_CANCEL, 0);
    }
    sh_uring_link_free(uring, link);
}

/* --- Sending ----------------------------------------------------------------------------- */

void sh_uring_send_later(struct uring *uring, struct uring_link *link)
{
    if (link->is_to_send || link->sends)
        return;
    link->is_to_send = true;
    link->next = uring->send_head;
    uring->send_head = index_of(uring, link);
}

static void send_failed(struct uring *uring, struct uring_link *link)
{
    if (link->state == LINK_CLOSING)
        sh_uring_link_die(uring, link);
    else
        sh_uring_link_lost(uring, link);
}

/* All of the link's buffer has been sent. */
static void sent_all(struct uring *uring, struct uring_link *link)
{
    sh_uring_tx_release(uring, link);
    if (link->state == LINK_CLOSING) {
        sh_uring_link_die(uring, link);
    } else if (link->wants_writable) {
        link->wants_writable = false;
        link->news |= NEWS_WRITABLE;
        sh_uring_ready(uring, link);
    }
}

/* Some of the link's buffer was sent, or an error. */
static void sent(struct uring *uring, struct uring_link *link, int result)
{
    if (link->tx == NO_INDEX || (link->state != LINK_OPEN && link->state != LINK_CLOSING))
        return;
    if (result < 0 && !would_block(-result) && result != -ECANCELED) {
        send_failed(uring, link);
        return;
    }
    link->tx_start += result > 0 ? (uint32_t)result : 0;
    SH_ASSERT(link->tx_start <= link->tx_end);
    if (link->tx_start < link->tx_end)
        sh_uring_poll_out(uring, link);
    else
        sent_all(uring, link);
}

/* A send took something, or failed; or the kernel is done with the buffer of a zero-copy one. */
static void on_send(struct uring *uring, const struct io_uring_cqe *cqe)
{
    struct uring_link *link = &uring->links[cqe->user_data & INDEX_MASK];
    uint32_t buffer = (uint32_t)(cqe->user_data >> BUFFER_SHIFT);
    bool is_same = (cqe->user_data >> USE_SHIFT & USE_MASK) == link->use;
    if (cqe->flags & IORING_CQE_F_NOTIF) {
        /* The link may be gone, and its slot another's. */
        if (is_same && (unsigned)cqe->res & NOTIF_COPIED)
            link->is_copied = true;
        tx_unhold(uring, buffer);
        return;
    }
    SH_ASSERT(is_same && link->sends);
    bool is_zerocopy = cqe->user_data & ZEROCOPY_MARK;
    int result = cqe->res;
    link->sends = false;
    if (is_zerocopy && result < 0 && !would_block(-result)) {
        /* Perhaps only that is refused; if it is the link that is broken, the next send says so. */
        link->is_copied = true;
        result = -EAGAIN;
    }
    sent(uring, link, result);
    if (!(cqe->flags & IORING_CQE_F_MORE))
        tx_unhold(uring, buffer);
    sh_uring_link_free(uring, link);
}

/* Whether the send buffers are registered, after trying it once. */
static bool tx_register(struct uring *uring)
{
    if (uring->tx_fixed != TX_UNTRIED)
        return uring->tx_fixed == TX_FIXED;
    struct iovec all = {tx_bytes(uring, 0), (size_t)TX_BUFFERS * TX_BYTES};
    int result = io_uring_register_buffers(&uring->ring, &all, 1);
    uring->tx_fixed = result == 0 ? TX_FIXED : TX_REFUSED;
    if (result != 0)
        SH_INFO("msg", "send buffers can't be registered, sends are copied",
                SH_TEXT("reason", strerror(-result)));
    return result == 0;
}

static void send_begin(struct uring *uring, struct uring_link *link)
{
    SH_ASSERT(!link->sends);
    const uint8_t *at = tx_bytes(uring, link->tx) + link->tx_start;
    uint32_t size = link->tx_end - link->tx_start;
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    bool is_zerocopy = size >= ZEROCOPY_MIN && !link->is_copied && tx_register(uring);
    struct io_uring_sqe *sqe = sh_uring_entry(uring);
    if (is_zerocopy)
        io_uring_prep_send_zc_fixed(sqe, link->fd, at, size, flags, ZEROCOPY_REPORT, 0);
    else
        io_uring_prep_send(sqe, link->fd, at, size, flags);
    io_uring_sqe_set_data64(sqe, (uint64_t)link->tx << BUFFER_SHIFT |
                                     (uint64_t)link->use << USE_SHIFT | (uint64_t)OP_SEND << 32 |
                                     (is_zerocopy ? ZEROCOPY_MARK : 0) | index_of(uring, link));
    uring->tx_holds[link->tx]++;
    link->sends = true;
}

/* Makes a request for each link with something to send. */
static void sends_begin(struct uring *uring)
{
    while (uring->send_head != NO_INDEX) {
        struct uring_link *link = &uring->links[uring->send_head];
        uring->send_head = link->next;
        link->is_to_send = false;
        if (link->tx == NO_INDEX)
            sh_uring_link_free(uring, link);
        else
            send_begin(uring, link);
    }
}

/* --- Completions ------------------------------------------------------------------------- */

static void on_bytes(struct uring *uring, struct uring_link *link, uint32_t buffer, uint32_t size)
{
    rx_append(uring, link, buffer, size);
    sh_uring_ready(uring, link);
    link->whole_count = size == RX_BYTES ? (uint8_t)(link->whole_count + 1) : 0;
    if (link->whole_count >= BULK_AFTER || link->rx_count >= RX_QUEUE_MAX) {
        link->whole_count = 0;
        receive_directly(uring, link);
    } else if (link->thread != &this_thread && ++link->foreign_count >= MOVE_AFTER) {
        receive_cancel(uring, link);
    }
}

static void on_recv(struct uring *uring, struct uring_link *link, int result, unsigned flags)
{
    bool goes_on = flags & IORING_CQE_F_MORE;
    if (!goes_on) {
        link->receives = link->cancels = false;
        uring->requests--;
    }
    if (flags & IORING_CQE_F_BUFFER) {
        uint32_t buffer = flags >> IORING_CQE_BUFFER_SHIFT;
        SH_ASSERT(buffer < RX_BUFFERS);
        uring->rx_offered--;
        if (result > 0 && link->state == LINK_OPEN)
            on_bytes(uring, link, buffer, (uint32_t)result);
        else
            sh_uring_rx_return(uring, buffer);
        sh_uring_rx_offer(uring);
    }
    if (link->state != LINK_OPEN) {
        sh_uring_link_free(uring, link);
        return;
    }
    if (result == -ENOBUFS) {
        receive_directly(uring, link);
    } else if (result == 0 || (result < 0 && result != -ECANCELED && !would_block(-result))) {
        link->has_ended = true;
        sh_uring_ready(uring, link);
    }
    sh_uring_receive(uring, link);
}

static void on_poll_in(struct uring *uring, struct uring_link *link, int result)
{
    link->polls_in = false;
    uring->requests--;
    if (link->state == LINK_OPEN && result != -ECANCELED) {
        link->is_readable = true;
        sh_uring_ready(uring, link);
    } else {
        sh_uring_receive(uring, link);
    }
    sh_uring_link_free(uring, link);
}

static void on_connected(struct uring *uring, struct uring_link *link)
{
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) {
        link->is_refused = true;
        link->is_denied = error == ECONNREFUSED;
        sh_uring_link_lost(uring, link);
        return;
    }
    link->state = LINK_OPEN;
    link->news |= NEWS_OPENED;
    sh_uring_ready(uring, link);
    sh_uring_receive(uring, link);
}

static void on_poll_out(struct uring *uring, struct uring_link *link, int result)
{
    link->polls_out = false;
    uring->requests--;
    if (link->state == LINK_DEAD) {
        sh_uring_link_free(uring, link);
    } else if (result == -ECANCELED) {
        sh_uring_poll_out(uring, link);
    } else if (link->state == LINK_OPENING) {
        on_connected(uring, link);
    } else if (link->tx != NO_INDEX) {
        sh_uring_send_later(uring, link);
    } else if (link->wants_writable) {
        link->wants_writable = false;
        link->news |= NEWS_WRITABLE;
        sh_uring_ready(uring, link);
    }
}

void sh_uring_listener_wait(struct uring *uring, uint32_t index)
{
    poll_begin(uring, uring->listeners[index].fd, POLLIN, OP_LISTENER, index);
}

static void on_listener(struct uring *uring, uint32_t index)
{
    uring->requests--;
    for (unsigned i = 0; i < ACCEPTS_AT_ONCE; i++) {
        struct sh_sock_peer peer;
        int fd = sh_sock_accept(&uring->listeners[index], &uring->acceptor, &peer);
        if (fd < 0)
            break;
        struct uring_link *link = sh_uring_link_new(uring, fd, LINK_OPEN);
        if (!link) {
            sh_sock_refuse(&uring->acceptor, fd, uring->links_max);
            continue;
        }
        link->peer = peer;
        link->news = NEWS_ACCEPTED;
        sh_uring_ready(uring, link);
        sh_uring_receive(uring, link);
    }
    sh_uring_listener_wait(uring, index);
}

void sh_uring_signal_wait(struct uring *uring)
{
    poll_begin(uring, uring->signal, POLLIN, OP_SIGNAL, 0);
}

static void on_signal(struct uring *uring)
{
    uring->requests--;
    uring->was_signalled = true;
    /* seq_cst: a signal after this writes the eventfd again */
    atomic_store(&uring->signalled, false);
    uint64_t drained;
    ssize_t size = read(uring->signal, &drained, sizeof drained);
    (void)size; /* nothing there: the request was cancelled with its thread */
    sh_uring_signal_wait(uring);
}

static void complete(struct uring *uring, const struct io_uring_cqe *cqe)
{
    enum op op = (enum op)(cqe->user_data >> 32 & OP_MASK);
    uint32_t index = (uint32_t)cqe->user_data;
    struct uring_link *link = &uring->links[op < OP_SEND ? index : 0];
    switch (op) {
    case OP_RECV:
        on_recv(uring, link, cqe->res, cqe->flags);
        return;
    case OP_POLL_IN:
        on_poll_in(uring, link, cqe->res);
        return;
    case OP_POLL_OUT:
        on_poll_out(uring, link, cqe->res);
        return;
    case OP_SEND:
        on_send(uring, cqe);
        return;
    case OP_LISTENER:
        on_listener(uring, index);
        return;
    case OP_SIGNAL:
        on_signal(uring);
        return;
    case OP_CANCEL:
        return;
    }
}

/* Takes in what has been completed, without a system call if nothing has. */
void sh_uring_reap(struct uring *uring)
{
    unsigned flags = IO_URING_READ_ONCE(*uring->ring.sq.kflags);
    if (flags & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW))
        (void)io_uring_get_events(&uring->ring);
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&uring->ring, &cqe) == 0) {
        struct io_uring_cqe copy = *cqe;
        io_uring_cqe_seen(&uring->ring, cqe);
        complete(uring, &copy);
    }
}

void sh_uring_submit(struct uring *uring)
{
    sends_begin(uring);
    bool goes_on = true;
    while (goes_on) {
        backlog_move(uring);
        goes_on = io_uring_sq_ready(&uring->ring) > 0 && io_uring_submit(&uring->ring) > 0 &&
                  uring->backlog_count > 0;
    }
    bool is_short = io_uring_sq_ready(&uring->ring) > 0;
    SH_ASSERT(is_short || uring->backlog_count == 0);
    /* relaxed: a hint for watch */
    if (is_short != atomic_load_explicit(&uring->is_short, memory_order_relaxed))
        atomic_store_explicit(&uring->is_short, is_short, memory_order_relaxed);
}
