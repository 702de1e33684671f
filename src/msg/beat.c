/* Beats: a connection over which nothing is heard is lost, though no wire says so.
 *
 * Each side looks at each open connection four times in silence_ns. If it has sent nothing since
 * the last look it sends a BEAT; if it has heard nothing for silence_ns the connection is lost. So
 * a beat needs no answer, and a node that does not read, because its handlers do not keep up, is
 * still heard. Two looks lie between beats at most, half of what the other side waits for.
 *
 * Silence is counted in looks, each an interval after the one before at the earliest, on time, and
 * with a poll in between: a step that runs late, because the machine is busy or stood still, has no
 * right to call others silent, whose beats may be on their way up or late for the same reason.
 * Before a connection is given up it is listened to once more, for with many that all carry much
 * its turn to be read may come late.
 *
 * The open connections stand in a queue in order of their next look: a step touches those that are
 * due and no other.
 *
 * TCP_USER_TIMEOUT would not do: it also closes connections whose receiver lives and only keeps its
 * window shut. */
#include "msg/msg_int.h"

/* In silence_ns. */
#define LOOKS 4

static uint64_t interval_ns(const struct sh_msg *msg)
{
    return msg->config.silence_ns / LOOKS;
}

static void append(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    conn->beat_due_ns = now_ns + interval_ns(msg);
    conn->beat_next = NULL;
    conn->beat_prev = msg->beats_last;
    if (msg->beats_last)
        msg->beats_last->beat_next = conn;
    else
        msg->beats_first = conn;
    msg->beats_last = conn;
}

void sh_beat_start(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    SH_ASSERT(conn->beat_due_ns == 0);
    conn->was_heard = true;
    conn->looks_silent = 0;
    conn->beat_polls = msg->polls;
    conn->beat_bytes_out = UINT64_MAX; /* no beat at the first look */
    append(msg, conn, now_ns);
}

void sh_beat_stop(struct sh_msg *msg, struct sh_conn *conn)
{
    if (conn->beat_due_ns == 0)
        return;
    *(conn->beat_prev ? &conn->beat_prev->beat_next : &msg->beats_first) = conn->beat_next;
    *(conn->beat_next ? &conn->beat_next->beat_prev : &msg->beats_last) = conn->beat_prev;
    conn->beat_due_ns = 0;
}

uint64_t sh_beats_due(const struct sh_msg *msg)
{
    return msg->beats_first ? msg->beats_first->beat_due_ns : SH_NEVER;
}

static void beat_send(struct sh_msg *msg, struct sh_conn *conn)
{
    if (conn->is_closing)
        return;              /* the question says as much */
    sh_out_flush(msg, conn); /* not behind what other connections have to send */
    /* What waits to be sent says as much, once the other side reads it; not so what somebody is
     * writing still. */
    if (sh_out_is_between(conn))
        (void)sh_control_send(msg, conn, SH_CONTROL_BEAT, sh_bytes_text(""));
}

/* Reads what a stream has, if it may be read. False: the connection was lost by it. */
static bool listen_to(struct sh_msg *msg, struct sh_conn *conn, struct sh_stream *stream)
{
    /* relaxed: this step writes it */
    uint32_t generation = atomic_load_explicit(&conn->generation, memory_order_relaxed);
    if (stream && stream->state == SH_STREAM_READY)
        sh_stream_readable(msg, stream); /* where it is stalled, beats may be before it */
    return generation == atomic_load_explicit(&conn->generation, memory_order_relaxed);
}

/* Counts a look at which nothing had been heard, unless it is late or nothing could be heard.
 * False: the connection was lost by listening. */
static bool silence_count(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    bool is_late = now_ns - conn->beat_due_ns > interval_ns(msg) / 2;
    if (is_late || conn->beat_polls == msg->polls)
        return true;
    conn->looks_silent++;
    return conn->looks_silent < LOOKS ||
           (listen_to(msg, conn, conn->dialled) && listen_to(msg, conn, conn->accepted));
}

/* One look at a connection; it may be lost by it. */
static void look(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    if (!conn->was_heard && !silence_count(msg, conn, now_ns))
        return;
    if (conn->was_heard) {
        conn->heard_ns = now_ns;
        conn->looks_silent = 0;
    }
    conn->was_heard = false;
    conn->beat_polls = msg->polls;
    /* Before version 2 there were no beats. */
    if (conn->sends_on->version >= 2 && conn->looks_silent >= LOOKS) {
        SH_WARN("msg", "nothing heard: connection given up", SH_U64("nid", conn->nid.v),
                SH_U64("silence_ns", now_ns - conn->heard_ns));
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
        return;
    }
    sh_beat_stop(msg, conn);
    append(msg, conn, now_ns);
    /* relaxed: this step writes it */
    uint64_t bytes_out = atomic_load_explicit(&conn->bytes_out, memory_order_relaxed);
    if (bytes_out == conn->beat_bytes_out)
        beat_send(msg, conn);
    conn->beat_bytes_out = bytes_out;
}

void sh_beats_run(struct sh_msg *msg, uint64_t now_ns)
{
    bool has_looked = false;
    while (sh_beats_due(msg) <= now_ns) {
        look(msg, msg->beats_first, now_ns);
        has_looked = true;
    }
    if (has_looked)
        sh_close_again(msg);
}
