/* Streams whose reading is paused: their next message waits for a free work, or their next request
 * until answers to its node have been sent, or the round has taken its share of time, or their last
 * message is still handled in pieces (held.c).
 *
 * Who asks and does not read the answers would make the ring grow without bound, so no request is
 * handled while more than ANSWERS_RINGS rings of bytes are unsent. Two nodes may stand still in
 * this way because each reads no requests before it has sent answers, which the other does not read
 * behind its requests. So where no byte has gone for STUCK_NS a little more is allowed; it is taken
 * back with the first byte that goes. A node that reads nothing at all comes to SH_UNSENT_BYTES_MAX
 * by this in some seconds, if it goes on asking, and is cut off (out.c).
 *
 * The link of a stalled stream is paused once the wire says that it has more, or the step would be
 * told the same at each poll and never rest. */
#include "msg/msg_int.h"

#define ANSWERS_RINGS 4
#define STUCK_NS UINT64_C(100000000)

void sh_stream_stall(struct sh_msg *msg, struct sh_stream *stream, enum sh_stall why)
{
    SH_ASSERT(stream->stall == SH_STALL_NONE && why != SH_STALL_NONE);
    stream->stall = why;
    stream->stall_next = NULL;
    stream->stall_prev = msg->stalled_last;
    *(msg->stalled_last ? &msg->stalled_last->stall_next : &msg->stalled_first) = stream;
    msg->stalled_last = stream;
    msg->stalled_count++;
    msg->stalled_for_works += why == SH_STALL_WORKS;
    msg->stalled_for_turn += why == SH_STALL_TURN;
}

void sh_stream_unstall(struct sh_msg *msg, struct sh_stream *stream)
{
    if (stream->stall == SH_STALL_NONE)
        return;
    SH_ASSERT(msg->stalled_count > 0);
    *(stream->stall_prev ? &stream->stall_prev->stall_next : &msg->stalled_first) =
        stream->stall_next;
    *(stream->stall_next ? &stream->stall_next->stall_prev : &msg->stalled_last) =
        stream->stall_prev;
    stream->stall_next = stream->stall_prev = NULL;
    msg->stalled_count--;
    msg->stalled_for_works -= stream->stall == SH_STALL_WORKS;
    msg->stalled_for_turn -= stream->stall == SH_STALL_TURN;
    stream->stall = SH_STALL_NONE;
}

void sh_stream_pause(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_wire *wire = msg->config.env.wire;
    SH_ASSERT(stream->stall != SH_STALL_NONE);
    if (stream->is_paused || !wire->ops->pause)
        return;
    stream->is_paused = true;
    wire->ops->pause(wire, stream->link, true);
}

static void pause_end(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_wire *wire = msg->config.env.wire;
    if (!stream->is_paused)
        return;
    stream->is_paused = false;
    wire->ops->pause(wire, stream->link, false);
}

/* --- Answers ------------------------------------------------------------------------------- */

static uint64_t usual_bytes(const struct sh_msg *msg)
{
    return ANSWERS_RINGS * (uint64_t)sh_share_of(msg, msg->config.ring_bytes);
}

bool sh_answers_have_room(struct sh_msg *msg, struct sh_conn *conn)
{
    uint64_t usual = usual_bytes(msg);
    /* Without the lock, at each request: what seems to be more is looked at again below.
     * relaxed: the same */
    if (sh_outring_used(&conn->out) <= usual &&
        atomic_load_explicit(&conn->late_bytes, memory_order_relaxed) == 0 &&
        atomic_load_explicit(&conn->objects_count, memory_order_relaxed) == 0)
        return true;
    if (sh_out_unsent(conn) <= usual)
        return true;
    sh_out_flush(msg, conn);
    uint64_t unsent = sh_out_unsent(conn);
    return unsent <= usual || unsent <= conn->answers_allowed;
}

/* The same for a stream that waits for it, which is allowed more if nothing goes. */
static bool answers_may_go_on(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    uint64_t unsent = sh_out_unsent(conn);
    /* relaxed: this step writes it */
    uint64_t bytes_out = atomic_load_explicit(&conn->bytes_out, memory_order_relaxed);
    bool has_sent = bytes_out != conn->answers_seen;
    if (has_sent || conn->answers_due_ns == 0)
        conn->answers_due_ns = now_ns + STUCK_NS;
    if (has_sent)
        conn->answers_allowed = 0;
    conn->answers_seen = bytes_out;
    if (unsent <= usual_bytes(msg)) {
        conn->answers_due_ns = 0;
        return true;
    }
    if (conn->answers_due_ns > now_ns)
        return false;
    conn->answers_due_ns = 0;
    conn->answers_allowed = unsent + usual_bytes(msg) / 16;
    return true;
}

/* --- Trying again -------------------------------------------------------------------------- */

static bool may_go_on(struct sh_msg *msg, const struct sh_stream *stream, uint64_t now_ns)
{
    if (stream->stall == SH_STALL_WORKS && stream->conn) {
        /* Somewhat more than for the next message, so that it does not stall at once again. */
        uint32_t taken = atomic_load_explicit(&stream->conn->works, memory_order_relaxed);
        return sh_works_have_room(msg, stream->conn, 1 + taken / 4);
    }
    if (stream->stall == SH_STALL_HELD && stream->held)
        return false;
    return stream->stall == SH_STALL_TURN || !stream->conn ||
           answers_may_go_on(msg, stream->conn, now_ns);
}

uint64_t sh_stalls_due(const struct sh_msg *msg)
{
    if (msg->stalled_for_turn > 0)
        return 0;
    return msg->stalled_count > msg->stalled_for_works ? msg->stalls_due_ns : SH_NEVER;
}

/* Goes on with a stream that may. True: it got on. */
static bool go_on(struct sh_msg *msg, struct sh_stream *stream)
{
    sh_link link = stream->link;
    /* relaxed, here and below: this step writes them */
    uint64_t messages = atomic_load_explicit(&msg->messages_in, memory_order_relaxed);
    uint64_t bytes = atomic_load_explicit(&msg->bytes_in, memory_order_relaxed);
    sh_stream_readable(msg, stream);
    stream = sh_stream_find(msg, link); /* it may be gone */
    if (stream && stream->stall == SH_STALL_NONE)
        pause_end(msg, stream);
    return messages != atomic_load_explicit(&msg->messages_in, memory_order_relaxed) ||
           bytes != atomic_load_explicit(&msg->bytes_in, memory_order_relaxed);
}

unsigned sh_streams_resume(struct sh_msg *msg, uint64_t now_ns)
{
    if (msg->stalled_count == 0)
        return 0;
    /* acq_rel, before the look at the free works and held blocks: it pairs with work_free. A store
     * would not do: the look might come before it. */
    if (msg->stalled_for_works > 0)
        (void)atomic_exchange_explicit(&msg->works_wanted, 1, memory_order_acq_rel);
    unsigned resumed = 0;
    unsigned tries = msg->stalled_count < SH_EVENTS_MAX ? msg->stalled_count : SH_EVENTS_MAX;
    for (; tries > 0 && msg->stalled_first && !(resumed > 0 && sh_round_is_spent(msg)); tries--) {
        struct sh_stream *stream = msg->stalled_first;
        enum sh_stall why = stream->stall;
        bool goes_on = may_go_on(msg, stream, now_ns);
        sh_stream_unstall(msg, stream);
        if (goes_on)
            resumed += go_on(msg, stream);
        else
            sh_stream_stall(msg, stream, why); /* at the end */
    }
    msg->stalls_due_ns = now_ns + STUCK_NS;
    if (msg->stalled_for_works == 0)
        /* relaxed: who sees the old one wakes once in vain */
        atomic_store_explicit(&msg->works_wanted, 0, memory_order_relaxed);
    return resumed;
}
