/* Flow control by bytes processed, for one connection. DXNet 2018 §X.
 *
 * Each side counts what it has received and what of that its handlers are done with, and tells the
 * other side, over the other direction, up to which byte it may send: what was processed, and a
 * window more. The sender counts what it has sent and, once that has reached the limit, takes no
 * more messages and requests into its ring (begin says EAGAIN) until a higher limit is told.
 *
 *   received           |-- processed --|-- handlers are at it --|
 *   sender's limit                     |------------- window -------------|
 *
 * What a node holds for handlers that do not return is therefore bounded, for each connection, by
 * the window and what the other side's ring held when the window was used up.
 *
 * Nobody is told anything before a quarter of a window, or half of the first 64 KiB, has arrived:
 * most connections never carry more. More than those 64 KiB nobody sends before. A limit is told
 * anew when half a window has been processed since.
 *
 * The window may change at any time; what is worth telling is measured by the window of the last
 * look, so that no change leaves the other side waiting. Where it shrinks the limit stays until
 * what was processed has caught up.
 *
 * No deadlock: what is in a ring is always sent, and answers and control messages are always taken
 * into the ring; so a limit reaches the sender whenever that side still receives, and an answer the
 * handler or application that waits for it, whatever the windows. A sender is shut only while the
 * receiver has unprocessed bytes: when all are processed, less than three quarters of a window are
 * untold, so that the limit is beyond all that was sent.
 *
 * Departures from the paper: it stops the application when the count of unconfirmed bytes reaches
 * the window, counting at every send; here senders share no counter, since the transport step
 * counts what it pushes, and closes the ring to them. What is in the ring by then is sent as well.
 * The confirmation names a limit instead of a number of bytes, so that one that was left out or
 * told twice does no harm.
 *
 * Threads: one transport step owns it; sh_flow_finished and sh_flow_is_shut from any thread. */
#ifndef SH_MSG_FLOW_INT_H
#define SH_MSG_FLOW_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SH_FLOW_WINDOW_DEFAULT (UINT32_C(4) << 20)
#define SH_FLOW_WINDOW_MIN 4096
/* What may be sent before the first limit is told: part of the wire format. */
#define SH_FLOW_FIRST (UINT32_C(64) << 10)

struct sh_flow {
    /* Any thread. */
    _Atomic bool is_shut;
    /* What handler steps finished and was not collected: 24 bits generation, 40 bits bytes. */
    _Atomic uint64_t finished;
    /* So much of it is worth a look: a quarter of the window at the last one. */
    _Atomic uint64_t enough;
    /* Receiving; transport step only. In bytes since the connection was opened. */
    uint64_t received;
    uint64_t handed_on; /* of those, to handler steps */
    uint64_t collected; /* of those, finished */
    uint64_t told;      /* the limit that the other side knows; 0: none */
    /* Sending; transport step only. */
    uint64_t sent;
    uint64_t limit; /* UINT64_MAX: none */
};

/* A connection begins anew; generation tells late finishers that theirs is gone. */
void sh_flow_reset(struct sh_flow *flow, uint32_t generation);

static inline void sh_flow_received(struct sh_flow *flow, uint64_t bytes)
{
    flow->received += bytes;
}

/* Of what was received, so much goes to handler steps: it is processed when they finish it. */
static inline void sh_flow_handed_on(struct sh_flow *flow, uint64_t bytes)
{
    flow->handed_on += bytes;
}

/* A handler step is done with a message that came in that generation. True: enough has come
 * together since the transport step last looked (sh_flow_limit_due), it should look again. Any
 * thread. */
bool sh_flow_finished(struct sh_flow *flow, uint32_t generation, uint64_t bytes);

/* True, and the limit, when the other side should be told one; call sh_flow_told once it is. */
bool sh_flow_limit_due(struct sh_flow *flow, uint32_t window, uint64_t *limit_out);
static inline void sh_flow_told(struct sh_flow *flow, uint64_t limit)
{
    flow->told = limit;
}

/* Sending begins, to a side that will tell limits. */
static inline void sh_flow_begin(struct sh_flow *flow)
{
    flow->limit = SH_FLOW_FIRST;
}

/* Bytes were sent; may shut. */
void sh_flow_sent(struct sh_flow *flow, uint64_t bytes);
/* The other side told a limit. True: it was shut and is open again. A lower one than before, which
 * no shoal node tells, is ignored. */
bool sh_flow_limit_set(struct sh_flow *flow, uint64_t limit);

/* True: take nothing into the ring but answers and control messages. Any thread. */
static inline bool sh_flow_is_shut(const struct sh_flow *flow)
{
    /* relaxed: a hint; who waits for room looks again under the connection's lock, where it is
     * changed */
    return atomic_load_explicit(&flow->is_shut, memory_order_relaxed);
}

#endif
