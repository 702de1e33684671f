/* Connections at their limit: the least recently used idle one makes room, and nothing is lost.
 *
 *   who needs room                       its peer
 *   CLOSE, and sends nothing more   ->
 *                                   <-   CLOSED: was idle too, sends nothing more  (or KEEP)
 *   CLOSED: has read all of it     ->
 *   closes the streams
 *
 * Idle: nothing in the ring, nobody writing into it, no answer expected. That neither side expects
 * one means that neither owes one, but those that were given up. While the verdict is awaited
 * senders get EAGAIN; who asked for room is told when it is there, and the next message opens the
 * connection again. An answer that was owed all the same takes the CLOSE back: the peer, who
 * expects it, says KEEP. (If it was given up there, the peer may have agreed; the connection then
 * counts as lost.) Where two CLOSEs meet both say CLOSED, and each closes the
 * streams when it hears it.
 *
 * A peer that beats and never says what it thinks of the CLOSE is given up after
 * connect_timeout_ns: its place is wanted, and few may be asked at a time.
 *
 * The peer keeps its streams until the other side has closed them, so that its last word arrives,
 * and opens the connection again only then, so that nothing overtakes it.
 *
 * A connection that both sides opened may close while the hello of its second stream is under way;
 * that stream must not pass for a new connection afterwards. Who has said CLOSE gives up its own
 * (sh_hello_step); who agrees, or hears CLOSED, takes the other side's for an old one, if it has
 * read its hello: a later hello is either given up there, or begins a new connection. */
#include "msg/msg_int.h"

/* How many connections are looked at for the least recently used one: a sample, where more are
 * open; the queue of beats, which they are taken from, turns round all the time. */
#define LOOKED_AT 1024
/* Streams that may be accepted beyond the limit while others are on their way out. */
#define CLOSING_MAX 16

/* True when nothing is in the ring and no answer is expected; then nobody can write into it any
 * more. The lock is held. */
static bool shut_if_idle(struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    if (conn->push_blocked || conn->objects_first || conn->late_first || conn->is_streaming ||
        conn->sends_on->control_size > 0 || !sh_outring_drained(&conn->out))
        return false;
    bool was_open = sh_outring_is_open(&conn->out);
    sh_outring_close(&conn->out);
    sh_outring_collect(&conn->out);
    /* acquire: a request that was ended is in the table */
    if (sh_outring_is_quiet(&conn->out) && sh_outring_used(&conn->out) == 0 &&
        atomic_load_explicit(&conn->awaited, memory_order_acquire) == 0)
        return true;
    if (was_open)
        sh_outring_open(&conn->out, atomic_load_explicit(&conn->generation, memory_order_relaxed));
    return false;
}

static void word_make(enum sh_control control, uint8_t *header_out)
{
    memset(header_out, 0, SH_MSG_HEADER_BYTES);
    sh_store16(header_out + 4, SH_MSG_TYPE(0, control));
}

/* Says something outside of the ring, which is empty, so that this is between two messages. */
static void say(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control)
{
    uint8_t header[SH_MSG_HEADER_BYTES];
    word_make(control, header);
    sh_stream_control(msg, conn->sends_on, sh_bytes_make(header, sizeof header));
}

bool sh_close_is_word(const uint8_t *header, enum sh_control control)
{
    uint8_t expected[SH_MSG_HEADER_BYTES];
    word_make(control, expected);
    return memcmp(header, expected, sizeof expected) == 0;
}

/* Appends: all have the same time, so the first is the first to be late. */
static void closing_add(struct sh_msg *msg, struct sh_conn *conn)
{
    struct sh_conn **at = &msg->closing_first;
    while (*at)
        at = &(*at)->closing_next;
    *at = conn;
    conn->closing_next = NULL;
    conn->closing_due_ns = sh_now(&msg->config.env.clock) + msg->config.connect_timeout_ns;
    msg->closing_count++;
}

static void closing_remove(struct sh_msg *msg, struct sh_conn *conn)
{
    struct sh_conn **at = &msg->closing_first;
    while (*at != conn)
        at = &(*at)->closing_next;
    *at = conn->closing_next;
    SH_ASSERT(msg->closing_count > 0);
    msg->closing_count--;
}

uint64_t sh_closes_due(const struct sh_msg *msg)
{
    return msg->closing_first ? msg->closing_first->closing_due_ns : SH_NEVER;
}

void sh_closes_expire(struct sh_msg *msg, uint64_t now_ns)
{
    while (sh_closes_due(msg) <= now_ns) {
        struct sh_conn *conn = msg->closing_first;
        SH_WARN("msg", "no word on closing: connection given up", SH_U64("nid", conn->nid.v));
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
    }
}

static bool close_begin(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    bool is_idle = conn->state == SH_CONN_OPEN && shut_if_idle(conn);
    if (is_idle)
        conn->state = SH_CONN_CLOSING;
    sh_spin_release(&conn->lock);
    if (!is_idle)
        return false;
    conn->is_closing = true;
    closing_add(msg, conn);
    say(msg, conn, SH_CONTROL_CLOSE);
    return true;
}

bool sh_close_one(struct sh_msg *msg)
{
    if (msg->closing_count >= CLOSING_MAX)
        return false;
    /* Twice at most: who began to send after it was chosen is not chosen again. */
    for (unsigned tries = 0; tries < 2; tries++) {
        struct sh_conn *best = NULL, *conn = msg->beats_first;
        for (unsigned i = 0; i < LOOKED_AT && conn; i++, conn = conn->beat_next) {
            /* relaxed: a first look */
            bool is_idle = !conn->is_closing && conn->sends_on->version >= 2 &&
                           atomic_load_explicit(&conn->awaited, memory_order_relaxed) == 0 &&
                           (!best || conn->used < best->used);
            if (is_idle && sh_out_unsent(conn) == 0)
                best = conn;
        }
        if (!best)
            return false;
        if (close_begin(msg, best))
            return true;
        sh_close_used(msg, best);
    }
    return false;
}

void sh_close_over(struct sh_msg *msg, struct sh_conn *conn)
{
    conn->close_heard = 0;
    sh_spin_take(&conn->lock);
    conn->close_agreed = false;
    sh_spin_release(&conn->lock);
    if (!conn->is_closing)
        return;
    conn->is_closing = false;
    closing_remove(msg, conn);
}

/* What the other side has begun to open is a part of the connection that is over: it closes that,
 * or we do. */
static void hellos_end(struct sh_msg *msg, struct sh_conn *conn, bool we_close)
{
    struct sh_stream *stream = msg->accepted_hellos.first, *next;
    for (; stream; stream = next) {
        next = stream->hello_next;
        if (stream->state != SH_STREAM_WAIT_PROOF || sh_hello_nid(stream).v != conn->nid.v)
            continue;
        if (we_close)
            sh_stream_drop(msg, stream, true);
        else
            sh_stream_linger(msg, stream, NULL); /* nothing of ours is in it */
    }
}

/* The connection is over in good order. Keeps the streams if the other side is to close them. */
static void finish(struct sh_msg *msg, struct sh_conn *conn, bool keep_streams)
{
    struct sh_stream *streams[2] = {conn->dialled, conn->accepted};
    conn->sends_on->is_unread = keep_streams;
    conn->dialled = conn->accepted = conn->sends_on = NULL;
    conn->push_blocked = false;
    sh_beat_stop(msg, conn);
    sh_close_over(msg, conn);
    for (int i = 0; i < 2; i++) {
        if (!streams[i])
            continue;
        streams[i]->conn = NULL;
        if (streams[i]->state == SH_STREAM_READY && (keep_streams || streams[i]->control_size > 0))
            sh_stream_linger(msg, streams[i], conn);
        else
            sh_stream_drop(msg, streams[i], true);
    }
    sh_conn_closed(msg, conn);
}

/* Drops the streams of one direction that conn left open. True: one of them was unread. */
static bool lingering_drop(struct sh_msg *msg, struct sh_hellos *hellos, struct sh_conn *conn)
{
    bool is_unread = false;
    struct sh_stream *stream = hellos->first, *next;
    for (; stream; stream = next) {
        next = stream->hello_next;
        if (stream->lingers_for != conn)
            continue;
        is_unread |= stream->is_unread;
        stream->is_unread = false;
        sh_stream_drop(msg, stream, true);
    }
    return is_unread;
}

void sh_close_confirmed(struct sh_msg *msg, struct sh_conn *conn)
{
    (void)lingering_drop(msg, &msg->dialled_hellos, conn);
    (void)lingering_drop(msg, &msg->accepted_hellos, conn);
}

void sh_close_unconfirmed(struct sh_msg *msg, struct sh_conn *conn)
{
    if (atomic_load_explicit(&conn->lingering, memory_order_relaxed) == 0)
        return;
    bool is_unread = lingering_drop(msg, &msg->dialled_hellos, conn);
    is_unread |= lingering_drop(msg, &msg->accepted_hellos, conn);
    if (is_unread)
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
}

/* The other side wants to close. A peer that repeats its CLOSE after both sides have asked hears
 * nothing more: what a stream's control buffer takes on for one closing is one CLOSE and one
 * CLOSED, whatever the peer sends and however little it reads. */
static void on_close(struct sh_msg *msg, struct sh_conn *conn, bool is_refused)
{
    sh_spin_take(&conn->lock);
    bool we_asked = conn->state == SH_CONN_CLOSING;
    bool is_repeated = we_asked && conn->close_agreed;
    bool is_idle = we_asked || (!is_refused && conn->state == SH_CONN_OPEN && shut_if_idle(conn));
    if (is_idle)
        conn->state = SH_CONN_CLOSING;
    conn->close_agreed = is_idle && we_asked; /* it has read all of ours when its word comes */
    sh_spin_release(&conn->lock);
    if (is_repeated)
        return;
    struct sh_out out;
    if (is_idle) {
        say(msg, conn, SH_CONTROL_CLOSED);
        hellos_end(msg, conn, false);
        if (!we_asked)
            finish(msg, conn, true);
    } else if (sh_out_control(msg, conn, SH_CONTROL_KEEP, 0, &out) == SHOAL_OK) {
        sh_msg_end(msg, &out);
    } else {
        sh_conn_lost(msg, conn, SHOAL_ENOMEM); /* or it would wait for our word for ever */
    }
}

static void on_closed(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    bool is_agreed = conn->state == SH_CONN_CLOSING;
    sh_spin_release(&conn->lock);
    if (is_agreed) {
        if (!conn->close_agreed) {
            hellos_end(msg, conn, true);
            say(msg, conn, SH_CONTROL_CLOSED);
        }
        finish(msg, conn, false);
    } else { /* we took the CLOSE back, for an answer that was given up over there */
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
    }
}

static void on_keep(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    if (conn->state == SH_CONN_CLOSING)
        conn->state = SH_CONN_OPEN;
    sh_spin_release(&conn->lock);
    sh_close_over(msg, conn);
    sh_close_used(msg, conn);
    sh_out_room_changed(conn);
}

void sh_close_again(struct sh_msg *msg)
{
    if (msg->closing_count == 0 &&
        (msg->streams_count > msg->config.connections_max || msg->dials_first))
        (void)sh_close_one(msg);
}

void sh_close_service(struct sh_msg *msg, struct sh_conn *conn)
{
    unsigned heard = conn->close_heard;
    conn->close_heard = 0;
    /* Each may be the end of the connection. */
    if (heard & 1u << SH_CONTROL_KEEP && conn->sends_on)
        on_keep(msg, conn);
    if (heard & 1u << SH_CONTROL_CLOSE && conn->sends_on)
        on_close(msg, conn, heard & SH_CLOSE_AWAITED);
    if (heard & 1u << SH_CONTROL_CLOSED && conn->sends_on)
        on_closed(msg, conn);
}

/* --- Connections that wait for room -------------------------------------------------------- */

void sh_dial_wait(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns)
{
    SH_ASSERT(conn->dial_due_ns == 0);
    conn->dial_due_ns = now_ns + msg->config.connect_timeout_ns;
    conn->dial_next = NULL;
    *(msg->dials_first ? &msg->dials_last->dial_next : &msg->dials_first) = conn;
    msg->dials_last = conn;
}

uint64_t sh_dials_due(const struct sh_msg *msg)
{
    return msg->dials_first ? msg->dials_first->dial_due_ns : SH_NEVER;
}

struct sh_conn *sh_dial_next(struct sh_msg *msg, uint64_t now_ns)
{
    struct sh_conn *conn = msg->dials_first;
    bool has_room = msg->streams_count < msg->config.connections_max;
    if (!conn || (!has_room && conn->dial_due_ns > now_ns))
        return NULL;
    msg->dials_first = conn->dial_next;
    conn->dial_due_ns = 0;
    return conn;
}
