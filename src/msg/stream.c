/* Streams: one link of the wire each. Hello first, then messages out of receive blocks. */
#include <stdlib.h>

#include "msg/msg_int.h"

static struct sh_stream **bucket_of(struct sh_msg *msg, sh_link link)
{
    return &msg->buckets[(link ^ link >> 16) % SH_STREAM_BUCKETS];
}

struct sh_stream *sh_stream_find(struct sh_msg *msg, sh_link link)
{
    struct sh_stream *stream = *bucket_of(msg, link);
    while (stream && stream->link != link)
        stream = stream->bucket_next;
    return stream;
}

static struct sh_hellos *hellos_of(struct sh_msg *msg, const struct sh_stream *stream)
{
    return stream->is_dialled ? &msg->dialled_hellos : &msg->accepted_hellos;
}

static void hello_add(struct sh_hellos *hellos, struct sh_stream *stream)
{
    stream->hello_prev = hellos->last;
    if (hellos->last)
        hellos->last->hello_next = stream;
    else
        hellos->first = stream;
    hellos->last = stream;
    hellos->count++;
}

void sh_stream_hello_over(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_hellos *hellos = hellos_of(msg, stream);
    if (hellos->first != stream && !stream->hello_prev)
        return;
    SH_ASSERT(hellos->count > 0);
    *(stream->hello_prev ? &stream->hello_prev->hello_next : &hellos->first) = stream->hello_next;
    *(stream->hello_next ? &stream->hello_next->hello_prev : &hellos->last) = stream->hello_prev;
    stream->hello_next = stream->hello_prev = NULL;
    hellos->count--;
}

static void streams_count_add(struct sh_msg *msg, int by)
{
    msg->streams_count += (uint32_t)by;
    uint32_t share = msg->streams_count ? SH_SHARED_BYTES / msg->streams_count : SH_SHARED_BYTES;
    if (share < SH_SHARE_BYTES_MIN)
        share = SH_SHARE_BYTES_MIN;
    atomic_store_explicit(&msg->share_bytes, share, memory_order_relaxed);
}

struct sh_stream *sh_stream_add(struct sh_msg *msg, sh_link link, bool is_dialled, uint64_t now_ns)
{
    SH_ASSERT(!sh_stream_find(msg, link));
    struct sh_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->link = link;
    stream->is_dialled = is_dialled;
    stream->state = is_dialled ? SH_STREAM_OPENING : SH_STREAM_WAIT_HELLO;
    stream->deadline_ns = now_ns + msg->config.connect_timeout_ns;
    hello_add(hellos_of(msg, stream), stream);
    struct sh_stream **bucket = bucket_of(msg, link);
    stream->bucket_next = *bucket;
    *bucket = stream;
    streams_count_add(msg, 1);
    return stream;
}

void sh_stream_drop(struct sh_msg *msg, struct sh_stream *stream, bool close_link)
{
    SH_ASSERT(stream->conn == NULL);
    struct sh_conn *unread = stream->is_unread ? stream->lingers_for : NULL;
    sh_stream_unstall(msg, stream);
    sh_held_forget_stream(stream);
    sh_stream_hello_over(msg, stream);
    /* relaxed, here and below: this thread alone writes it */
    if (stream->lingers_for &&
        atomic_fetch_sub_explicit(&stream->lingers_for->lingering, 1, memory_order_relaxed) == 1)
        sh_conn_mark_dirty(msg, stream->lingers_for); /* it may be opened again */
    struct sh_stream **at = bucket_of(msg, stream->link);
    while (*at != stream)
        at = &(*at)->bucket_next;
    *at = stream->bucket_next;
    streams_count_add(msg, -1);
    if (close_link) {
        msg->config.env.wire->ops->close(msg->config.env.wire, stream->link);
        sh_events_forget(msg, stream->link);
    }
    sh_partial_drop(msg, stream);
    if (stream->block)
        sh_block_leave(msg, stream->block);
    free(stream);
    /* What was sent since, in order behind what may not have arrived, is lost with it. */
    if (unread)
        sh_conn_lost(msg, unread, SHOAL_ECONNLOST);
}

void sh_stream_linger(struct sh_msg *msg, struct sh_stream *stream, struct sh_conn *conn)
{
    SH_ASSERT(stream->conn == NULL);
    sh_stream_hello_over(msg, stream);
    stream->state = SH_STREAM_LINGERS;
    stream->lingers_for = conn;
    if (conn)
        atomic_fetch_add_explicit(&conn->lingering, 1, memory_order_relaxed);
    stream->deadline_ns = sh_now(&msg->config.env.clock) + msg->config.connect_timeout_ns;
    hello_add(hellos_of(msg, stream), stream);
}

void sh_stream_fail(struct sh_msg *msg, struct sh_stream *stream, enum shoal_err err,
                    bool close_link)
{
    struct sh_conn *conn = stream->conn;
    bool was_ready = stream->state == SH_STREAM_READY;
    sh_stream_blame(msg, stream, err);
    struct sh_stream *other = NULL;
    if (conn) {
        if (conn->dialled == stream)
            conn->dialled = NULL;
        if (conn->accepted == stream)
            conn->accepted = NULL;
        other = conn->dialled ? conn->dialled : conn->accepted;
    }
    stream->conn = NULL;
    bool sends_here = conn && conn->sends_on == stream;
    sh_stream_drop(msg, stream, close_link);
    if (!conn)
        return;
    if (was_ready && conn->close_agreed && other && other->state == SH_STREAM_READY) {
        /* The other side has heard our CLOSED; its own comes over the other stream. */
        if (sends_here)
            conn->sends_on = other;
        return;
    }
    /* Our own attempt may fail while the other side's stream carries the connection. */
    if (was_ready || !conn->sends_on)
        sh_conn_lost(msg, conn, err);
}

void sh_stream_control(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes)
{
    SH_ASSERT(stream->control_size + bytes.size <= sizeof stream->control);
    memcpy(stream->control + stream->control_size, bytes.at, bytes.size);
    stream->control_size += (uint32_t)bytes.size;
    (void)sh_stream_control_flush(msg, stream);
}

bool sh_stream_control_flush(struct sh_msg *msg, struct sh_stream *stream)
{
    if (stream->control_size == 0)
        return true;
    struct sh_wire *wire = msg->config.env.wire;
    struct sh_bytes bytes = {stream->control, stream->control_size};
    size_t taken = wire->ops->push(wire, stream->link, bytes);
    stream->control_size -= (uint32_t)taken;
    memmove(stream->control, stream->control + taken, stream->control_size);
    return stream->control_size == 0;
}

static uint64_t due_of(const struct sh_hellos *hellos)
{
    return hellos->first ? hellos->first->deadline_ns : SH_NEVER;
}

uint64_t sh_streams_due(const struct sh_msg *msg)
{
    uint64_t dialled_ns = due_of(&msg->dialled_hellos), accepted_ns = due_of(&msg->accepted_hellos);
    return dialled_ns < accepted_ns ? dialled_ns : accepted_ns;
}

void sh_streams_expire(struct sh_msg *msg, uint64_t now_ns)
{
    /* Each is as long as the others, so the oldest is the first to be late. */
    while (due_of(&msg->dialled_hellos) <= now_ns)
        sh_stream_fail(msg, msg->dialled_hellos.first, SHOAL_EUNREACHABLE, true);
    while (due_of(&msg->accepted_hellos) <= now_ns)
        sh_stream_fail(msg, msg->accepted_hellos.first, SHOAL_EUNREACHABLE, true);
}

/* Gives the stream a block with room for what comes next: the message of `need` bytes that starts
 * at parsed, or anything. False: out of memory. */
static bool block_ready(struct sh_msg *msg, struct sh_stream *stream, size_t need)
{
    struct sh_block *block = stream->block;
    uint32_t kept = stream->fill - stream->parsed;
    uint32_t usual = sh_block_rooms[stream->block_size];
    /* acquire: pairs with the releases of the works that read the block */
    bool is_ours = block && atomic_load_explicit(&block->refs, memory_order_acquire) == 1;
    if (is_ours && kept == 0 && block->room == usual) {
        stream->fill = stream->parsed = 0;
        return true;
    }
    bool fits = block && stream->fill < block->room && stream->parsed + need <= block->room;
    if (fits && (need > 0 || block->room - stream->fill >= block->room / 8))
        return true;
    SH_ASSERT(need == 0 || need > kept); /* else it would have been handed on */
    size_t wanted = need > kept ? need : kept + 1;
    if (is_ours && wanted <= block->room && block->room == usual) {
        memmove(block->bytes, block->bytes + stream->parsed, kept);
    } else {
        struct sh_block *fresh = sh_block_get(msg, wanted > usual ? wanted : usual);
        if (!fresh)
            return false;
        if (kept)
            memcpy(fresh->bytes, block->bytes + stream->parsed, kept);
        if (block)
            sh_block_leave(msg, block);
        stream->block = fresh;
    }
    stream->parsed = 0;
    stream->fill = kept;
    return true;
}

/* After so many pulls in a row that a small block would have done for, small ones are used. */
#define QUIET_PULLS 64

/* Most that is pulled before it is looked at: with more the first bytes leave the cache. */
#define PULL_BYTES_MAX (256 * 1024)
/* Most that one pull takes where a large message has a block of its own: that is memory which nobody
 * has touched, where each 4 KiB cost a page fault, and 256 KiB have taken 0.9 ms. */
#define FRESH_BYTES_MAX (64 * 1024)

/* Pulls until the room is full, the wire has no more, or the step has spent its share. */
static size_t pull_some(struct sh_wire *wire, const struct sh_stream *stream, size_t room)
{
    uint8_t *at = stream->block->bytes + stream->fill;
    bool is_fresh = stream->block->room > SH_BLOCK_LARGE_BYTES;
    size_t most = is_fresh ? FRESH_BYTES_MAX : PULL_BYTES_MAX;
    size_t got = 0, piece, last;
    do {
        piece = room - got < most ? room - got : most;
        last = wire->ops->pull(wire, stream->link, at + got, piece);
        SH_ASSERT(last <= piece);
        got += last;
    } while (last == piece && got < room && !sh_step_spent());
    return got;
}

/* Chooses the size of the stream's next blocks by what the last pull brought. Large ones save
 * system calls where bytes come faster than they are taken; they are for ends with few streams. */
static void block_size_choose(const struct sh_msg *msg, struct sh_stream *stream, size_t got,
                              size_t room)
{
    unsigned most = sh_share_of(msg, SH_BLOCK_LARGE_BYTES) == SH_BLOCK_LARGE_BYTES ? 2 : 1;
    if (got == room && stream->block_size < most) {
        stream->block_size++;
        stream->quiet = 0;
    } else if (stream->block_size > 0) {
        bool is_quiet = got <= sh_block_rooms[stream->block_size - 1] / 2;
        stream->quiet = is_quiet ? (uint8_t)(stream->quiet + 1) : 0;
        if (stream->quiet == QUIET_PULLS || stream->block_size > most) {
            stream->block_size--;
            stream->quiet = 0;
        }
    }
}

/* How many messages are looked at before the first of them is handled: enough to overlap their
 * cache misses, few enough that what was asked for is still there. */
#define LOOK_AHEAD 16

/* One round over the complete messages from parsed on. Returns where it ended. */
static uint32_t look_ahead_round(struct sh_msg *msg, const struct sh_stream *stream, unsigned round)
{
    uint32_t at = stream->parsed;
    for (unsigned i = 0; i < LOOK_AHEAD && stream->fill - at >= SH_MSG_HEADER_BYTES; i++) {
        const uint8_t *header = stream->block->bytes + at;
        uint32_t payload_bytes = sh_load32(header);
        uint16_t type = sh_load16(header + 4);
        if (payload_bytes > stream->fill - at - SH_MSG_HEADER_BYTES)
            break;
        if (type >> 14 == SH_KIND_REQUEST)
            sh_dispatch_prefetch(msg, type & (SH_MSG_TYPES - 1),
                                 sh_bytes_make(header + SH_MSG_HEADER_BYTES, payload_bytes), round);
        at += SH_MSG_HEADER_BYTES + payload_bytes;
    }
    return at;
}

/* Asks the caches for what the next messages need, if there are several. Returns up to where. */
static uint32_t look_ahead(struct sh_msg *msg, const struct sh_stream *stream)
{
    uint32_t first_bytes = SH_MSG_HEADER_BYTES + sh_load32(stream->block->bytes + stream->parsed);
    if (stream->fill - stream->parsed <= first_bytes)
        return stream->fill;
    look_ahead_round(msg, stream, 0);
    return look_ahead_round(msg, stream, 1);
}

/* Counts bytes that are done with. */
static void received(struct sh_stream *stream, uint64_t bytes)
{
    stream->parsed += (uint32_t)bytes;
    sh_flow_received(&stream->conn->flow, bytes);
    sh_count_alone(&stream->conn->bytes_in, bytes);
}

static void message_count(struct sh_msg *msg, const struct sh_stream *stream)
{
    sh_count_alone(&stream->conn->messages_in, 1);
    sh_count_alone(&msg->messages_in, 1);
}

/* Goes on with a message that is decoded while it comes. True: it is through, and what follows it
 * may be looked at. */
static bool partial_go_on(struct sh_msg *msg, struct sh_stream *stream)
{
    size_t had = stream->fill - stream->parsed;
    if (had > 0)
        received(stream,
                 sh_partial_feed(msg, stream,
                                 sh_bytes_make(stream->block->bytes + stream->parsed, had)));
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_RECEIVE]);
    if (stream->partial.left > 0)
        return false;
    if (!sh_partial_end(msg, stream)) {
        sh_stream_stall(msg, stream, SH_STALL_WORKS);
        return false;
    }
    message_count(msg, stream);
    return true;
}

/* Begins with a message that has not come whole, if it can be decoded while it comes. */
static bool partial_begin(struct sh_msg *msg, struct sh_stream *stream, const uint8_t *header)
{
    uint16_t type = sh_load16(header + 4);
    if (!sh_partial_begin(msg, stream, (enum sh_kind)(type >> 14), type & (SH_MSG_TYPES - 1),
                          sh_load32(header + 6), sh_load32(header)))
        return false;
    received(stream, SH_MSG_HEADER_BYTES);
    (void)partial_go_on(msg, stream); /* it is not through, for it has not come whole */
    SH_ASSERT(stream->partial.left > 0 && stream->parsed == stream->fill);
    return true;
}

/* Notes that the first message has come over a stream, before it is handled. False: the connection
 * is lost by that, and the stream gone. The other side sends on one stream for as long as a
 * connection lasts there. If messages have come over both of our streams, the other side has lost
 * one stream, which this end has not noticed, and has begun a new connection with the other. Which
 * is the older one nothing says (either may have been dialled first, and bytes of different streams
 * overtake each other), so neither is read any further. */
static bool first_message_take(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_conn *conn = stream->conn;
    const struct sh_stream *other = stream->is_dialled ? conn->accepted : conn->dialled;
    if (other && other->has_carried) {
        SH_DEBUG("msg", "messages over two streams: the other side has begun anew",
                 SH_U64("nid", conn->nid.v));
        sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
        return false;
    }
    stream->has_carried = true;
    return true;
}

/* Hands on the complete messages in the block, and what of others can be decoded already. Sets
 * *need_out to the size of the incomplete one at the end (0: not known yet). False when the stream
 * is gone. */
static bool parse(struct sh_msg *msg, struct sh_stream *stream, size_t *need_out)
{
    *need_out = 0;
    if (stream->partial.is_active && !partial_go_on(msg, stream))
        return true;
    uint32_t looked_at = stream->parsed;
    while (stream->fill - stream->parsed >= SH_MSG_HEADER_BYTES) {
        const uint8_t *header = stream->block->bytes + stream->parsed;
        uint64_t payload_bytes = sh_load32(header);
        uint16_t type = sh_load16(header + 4);
        if (payload_bytes > msg->config.payload_bytes_max) {
            sh_stream_fail(msg, stream, sh_hello_refused(stream, header), true);
            return false;
        }
        if (!stream->has_carried && !first_message_take(msg, stream))
            return false;
        if (type >> 14 == SH_KIND_REQUEST && !sh_answers_have_room(msg, stream->conn)) {
            sh_stream_stall(msg, stream, SH_STALL_ANSWERS);
            return true;
        }
        uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
        if (stream->fill - stream->parsed < bytes) {
            if (!partial_begin(msg, stream, header))
                *need_out = bytes;
            return true;
        }
        if (stream->parsed >= looked_at)
            looked_at = look_ahead(msg, stream);
        struct sh_bytes payload = {header + SH_MSG_HEADER_BYTES, payload_bytes};
        enum sh_dispatched how =
            sh_dispatch(msg, stream, (enum sh_kind)(type >> 14), type & (SH_MSG_TYPES - 1),
                        sh_load32(header + 6), payload);
        if (how == SH_DISPATCH_LATER) {
            sh_stream_stall(msg, stream, SH_STALL_WORKS);
            return true;
        }
        received(stream, bytes);
        message_count(msg, stream);
        if (stream->held) {
            sh_stream_stall(msg, stream, SH_STALL_HELD);
            return true;
        }
        if (sh_round_is_spent(msg) && stream->fill - stream->parsed >= SH_MSG_HEADER_BYTES) {
            sh_stream_stall(msg, stream, SH_STALL_TURN);
            return true;
        }
    }
    return true;
}

/* What comes on a stream that lingers: the other side's word that it has read all of ours, or
 * nothing that anybody waits for. False when the stream is gone. */
static bool linger_parse(struct sh_msg *msg, struct sh_stream *stream)
{
    if (!stream->lingers_for) {
        stream->parsed = stream->fill;
        return true;
    }
    if (stream->fill - stream->parsed < SH_MSG_HEADER_BYTES)
        return true;
    if (sh_close_is_word(stream->block->bytes + stream->parsed, SH_CONTROL_CLOSED))
        sh_close_confirmed(msg, stream->lingers_for);
    else
        sh_stream_drop(msg, stream, true); /* it goes on, as if we had not agreed to close */
    return false;
}

static bool hello_parse(struct sh_msg *msg, struct sh_stream *stream)
{
    if (stream->state == SH_STREAM_LINGERS)
        return linger_parse(msg, stream);
    while (stream->state != SH_STREAM_READY) {
        struct sh_bytes bytes = {stream->block->bytes + stream->parsed,
                                 stream->fill - stream->parsed};
        enum shoal_err err = SHOAL_OK;
        size_t taken = sh_hello_step(msg, stream, bytes, &err);
        if (err != SHOAL_OK) {
            (void)sh_stream_control_flush(msg, stream);
            sh_stream_fail(msg, stream, err, true);
            return false;
        }
        if (taken == 0)
            return true;
        stream->parsed += (uint32_t)taken;
    }
    return true;
}

/* True when something has been received that parse may get on with. */
static bool has_received(const struct sh_stream *stream)
{
    return stream->fill > stream->parsed ||
           (stream->partial.is_active && stream->partial.left == 0);
}

static void readable(struct sh_msg *msg, struct sh_stream *stream)
{
    if (stream->stall != SH_STALL_NONE) {
        if (stream->conn)
            stream->conn->was_heard = true; /* or is there to be heard, but not read now */
        sh_stream_pause(msg, stream);
        return;
    }
    struct sh_wire *wire = msg->config.env.wire;
    size_t need = 0;
    if (has_received(stream) && stream->state == SH_STREAM_READY &&
        (!parse(msg, stream, &need) || stream->stall != SH_STALL_NONE))
        return;
    if (msg->messages_untimed > 0)
        sh_messages_done(msg);
    if (!block_ready(msg, stream, need)) {
        sh_stream_fail(msg, stream, SHOAL_ENOMEM, true);
        return;
    }
    struct sh_block *block = stream->block;
    size_t room = block->room - stream->fill;
    SH_ASSERT(room > 0);
    if (room > PULL_BYTES_MAX)
        room = PULL_BYTES_MAX;
    size_t got = pull_some(wire, stream, room);
    if (got > 0 && stream->conn)
        stream->conn->was_heard = true;
    stream->fill += (uint32_t)got;
    block_size_choose(msg, stream, got, room);
    sh_count_alone(&msg->bytes_in, got);
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_RECEIVE]);
    if (stream->state != SH_STREAM_READY) {
        bool is_there = hello_parse(msg, stream);
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_HELLO]);
        if (!is_there)
            return;
    }
    if (stream->state != SH_STREAM_READY || !parse(msg, stream, &need))
        return;
    sh_control_flow(msg, stream->conn);
    if (stream->fill == stream->parsed && got < room) {
        sh_block_leave(msg, stream->block);
        stream->block = NULL;
        stream->fill = stream->parsed = 0;
    }
}

void sh_stream_readable(struct sh_msg *msg, struct sh_stream *stream)
{
    readable(msg, stream);
    if (msg->messages_untimed > 0)
        sh_messages_done(msg);
}
