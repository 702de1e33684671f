/* What the two files of the io_uring wire share: uring_wire.c has the operations and the making,
 * uring_link.c the links with their requests and buffers. */
#ifndef SH_MSG_URING_INT_H
#define SH_MSG_URING_INT_H

#include <errno.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "env/wire.h"
#include "msg/resolve_int.h"
#include "msg/sock_int.h"

#define INDEX_BITS 20
#define INDEX_MASK ((1u << INDEX_BITS) - 1)
#define USE_MASK 0xFFFu
#define NO_INDEX UINT32_MAX
/* A request's user data: 32 bits of index, 8 of enum op. Of a send also whether it is zero-copy (a
 * bit above the link's index), and 12 bits each of the link's use and the buffer, for the
 * completion that comes when the slot may be another link's. */
#define OP_MASK 0xFFu
#define ZEROCOPY_MARK (UINT64_C(1) << 31)
#define USE_SHIFT 40
#define BUFFER_SHIFT 52
#define ENTRIES 512
#define COMPLETIONS 4096
#define ACCEPTS_AT_ONCE 16
#define DYING_MAX 64 /* slots beyond links_max, for those whose requests have not ended */
#define RX_BYTES 16384
#define RX_BUFFERS 256
#define RX_RING 32     /* of them offered to the kernel at a time: so few stay in the cache */
#define RX_QUEUE_MAX 8 /* received and not pulled, of one link */
#define TX_BYTES 16384
#define TX_BUFFERS 128
#define TX_COPY_MAX 4096
#define ZEROCOPY_MIN 8192 /* shorter sends cost less copied than notified */
#define BULK_AFTER 2      /* whole buffers in a row */
#define QUIET_AFTER 16    /* short receives in a row */
#define MOVE_AFTER 4      /* completions through another thread */
/* A slot's entries that the kernel has not taken yet, at most: a receive or POLLIN, a POLLOUT, a
 * send, and two cancels of each of the two kinds. Of three cancels of a kind, the second would be
 * for a request behind the first, and that request would have ended before the third: so the kernel
 * would have taken the first. */
#define SLOT_ENTRIES_MAX 7
#define SHORT_WAIT_NS                                                                              \
    UINT64_C(1000000) /* until entries that the kernel did not take are tried again */

enum op { OP_RECV = 1, OP_POLL_IN, OP_POLL_OUT, OP_SEND, OP_LISTENER, OP_SIGNAL, OP_CANCEL };

enum link_state {
    LINK_FREE,
    LINK_OPENING,
    LINK_OPEN,
    LINK_CLOSING, /* closed by its owner, and sends the rest */
    LINK_DEAD,    /* waits for its requests to end */
};

/* Whether the send buffers are registered with the kernel, which only zero-copy sends need. */
enum tx_fixed { TX_UNTRIED, TX_FIXED, TX_REFUSED };

enum { NEWS_OPENED = 1, NEWS_ACCEPTED = 2, NEWS_WRITABLE = 4 };

struct uring_link {
    int fd;
    enum link_state state;
    uint32_t use;
    uint32_t next;       /* free, or with something to send */
    uint32_t ready_next; /* with something to report */
    uint64_t tag;
    struct sh_sock_peer peer; /* accepted */
    uint8_t news;
    bool is_ready, is_to_send; /* in those lists */
    bool is_looked_up;         /* its name is; fd holds a place */
    bool is_refused;           /* never opened, */
    bool is_denied;            /* since nobody listens there */
    bool is_lost;              /* reported at the next poll */
    bool has_ended;            /* reported when all has been pulled */
    bool wants_writable;
    bool receives, cancels, polls_in, polls_out; /* requests under way */
    bool sends;                                  /* one is, which has not said how much it took */
    bool is_copied; /* zero-copy sends don't work here, or the kernel copies after all */
    bool is_direct, is_readable;
    bool is_paused;
    uint8_t whole_count, short_count, foreign_count;
    const void *thread; /* that submitted the receive */
    uint32_t rx_head, rx_tail, rx_count, rx_offset;
    uint32_t tx; /* its buffer, or NO_INDEX */
    uint32_t tx_start, tx_end;
};

struct rx_buffer {
    uint32_t next;
    uint32_t size;
};

struct uring {
    struct sh_wire wire;
    struct io_uring ring;
    bool has_ring;
    /* Entries for which the full ring had no room because the kernel, short of memory, took none:
     * oldest first, from backlog_first on and around the end. */
    struct io_uring_sqe *backlog;
    uint32_t backlog_room, backlog_first, backlog_count;
    _Atomic bool is_short; /* the last submit left entries; for watch too */
    int signal;
    struct sh_sock_acceptor acceptor;
    struct sh_resolver *resolver; /* NULL: no name came up yet */
    struct sh_sock_listener listeners[SH_SOCK_LISTENERS_MAX];
    uint32_t listeners_count;
    uint32_t links_max, slots, live;
    struct uring_link *links;
    uint32_t free_head;
    uint32_t send_head;
    uint32_t ready_head, ready_tail;
    uint32_t requests; /* under way, but for sends and cancels */
    bool was_signalled;
    _Atomic bool signalled;
    _Atomic bool has_ready; /* for watch: reaped and not reported */
    uint8_t *memory;        /* receive buffers, then send buffers */
    struct io_uring_buf_ring *rx_ring;
    struct rx_buffer rx[RX_BUFFERS];
    uint32_t rx_free, rx_offered;
    uint32_t tx_next[TX_BUFFERS];
    uint32_t tx_holds[TX_BUFFERS]; /* its link, and each send that may still read it */
    uint32_t tx_free;
    enum tx_fixed tx_fixed;
};

static inline struct uring *uring_of(struct sh_wire *wire)
{
    return (struct uring *)wire;
}

static inline uint32_t index_of(const struct uring *uring, const struct uring_link *link)
{
    return (uint32_t)(link - uring->links);
}

static inline sh_link link_number(const struct uring *uring, const struct uring_link *link)
{
    return (link->use & USE_MASK) << INDEX_BITS | index_of(uring, link);
}

static inline struct uring_link *link_of(struct uring *uring, sh_link number)
{
    uint32_t index = number & INDEX_MASK;
    if (index >= uring->slots)
        return NULL;
    struct uring_link *link = &uring->links[index];
    bool is_there = link->state == LINK_OPENING || link->state == LINK_OPEN;
    return is_there && link_number(uring, link) == number ? link : NULL;
}

static inline uint8_t *rx_bytes(const struct uring *uring, uint32_t index)
{
    return uring->memory + (size_t)index * RX_BYTES;
}

static inline uint8_t *tx_bytes(const struct uring *uring, uint32_t index)
{
    return uring->memory + (size_t)RX_BUFFERS * RX_BYTES + (size_t)index * TX_BYTES;
}

static inline bool would_block(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* uring_link.c: requests and their completions. */

/* An entry for a request; makes room by submitting. Prepare it, then name it. Where the kernel is
 * short of memory the entry is one of the backlog. The kernel gets all entries in the order of
 * these calls. */
struct io_uring_sqe *sh_uring_entry(struct uring *uring);
void sh_uring_entry_name(struct io_uring_sqe *sqe, enum op op, uint32_t index);
/* Lets a link receive, in the way that it is to. */
void sh_uring_receive(struct uring *uring, struct uring_link *link);
void sh_uring_poll_out(struct uring *uring, struct uring_link *link);
void sh_uring_listener_wait(struct uring *uring, uint32_t index);
void sh_uring_signal_wait(struct uring *uring);
/* The link has something in its buffer; the next submit sends it. */
void sh_uring_send_later(struct uring *uring, struct uring_link *link);
/* Submits all that waits for it. What fails for want of memory is tried again at the next (is_short
 * says so). */
void sh_uring_submit(struct uring *uring);
/* Takes in what has been completed, without a system call if nothing has. */
void sh_uring_reap(struct uring *uring);

/* Offers free receive buffers to the kernel; gives one back. */
void sh_uring_rx_offer(struct uring *uring);
void sh_uring_rx_return(struct uring *uring, uint32_t index);
void sh_uring_rx_drop(struct uring *uring, struct uring_link *link);
/* Takes a free send buffer for the link, of which there must be one; lets go of the link's. The
 * kernel may still read a buffer that its link has let go: it is free when its last send is over.
 */
void sh_uring_tx_take(struct uring *uring, struct uring_link *link);
void sh_uring_tx_release(struct uring *uring, struct uring_link *link);

/* NULL: there are as many as may be. */
struct uring_link *sh_uring_link_new(struct uring *uring, int fd, enum link_state state);
/* Puts it on the list of those that poll has something to say of. */
void sh_uring_ready(struct uring *uring, struct uring_link *link);
void sh_uring_link_lost(struct uring *uring, struct uring_link *link);
void sh_uring_link_die(struct uring *uring, struct uring_link *link);
/* Frees the slot of a dead link once nothing refers to it. */
void sh_uring_link_free(struct uring *uring, struct uring_link *link);

#endif
