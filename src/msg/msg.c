/* One node's end: made, run by its transport step, and taken down. */
#include "msg/msg.h"

#include <stdlib.h>

#include "base/hash.h"
#include "msg/msg_int.h"

#define NIDS 65536
#define HELLOS_MAX_DEFAULT 128
#define CLOSING_MAX_ACCEPTED 16 /* streams accepted beyond the limit */
#define SILENCE_NS_DEFAULT UINT64_C(3000000000)

enum shoal_err sh_msg_create(const struct sh_msg_config *config, struct sh_msg **msg_out)
{
    SH_ASSERT(config->wake_transport && (config->wake_handlers || config->wake_handler) &&
              config->env.wire);
    SH_ASSERT(config->payload_bytes_max <= UINT32_MAX - SH_MSG_HEADER_BYTES);
    struct sh_msg *msg = calloc(1, sizeof *msg);
    if (!msg)
        return SHOAL_ENOMEM;
    msg->config = *config;
    if (config->flow_window_bytes == 0)
        msg->config.flow_window_bytes = SH_FLOW_WINDOW_DEFAULT;
    SH_ASSERT(msg->config.flow_window_bytes >= SH_FLOW_WINDOW_MIN);
    if (config->hellos_max == 0)
        msg->config.hellos_max = HELLOS_MAX_DEFAULT;
    if (config->silence_ns == 0)
        msg->config.silence_ns = SILENCE_NS_DEFAULT;
    msg->cluster_hash = sh_hash64(sh_bytes_text(config->cluster), 0);
    msg->instance = sh_random64(&config->env.random);
    atomic_init(&msg->nid, config->nid.v);
    atomic_init(&msg->share_bytes, SH_SHARED_BYTES);
    sh_lease_init(msg);
    sh_lock_init(&msg->table_lock, SH_LOCK_MSG_TABLE);
    sh_spin_init(&msg->blocks_lock, SH_LOCK_MSG_BLOCKS);
    sh_unmaps_init(&msg->unmaps);
    sh_spin_init(&msg->large_lock, SH_LOCK_MSG_LARGE);
    msg->large_bytes_max = SH_SHARED_BYTES;
    atomic_init(&msg->large_due_ns, SH_NEVER);
    msg->conns = calloc(NIDS, sizeof *msg->conns);
    sh_hello_init();
    enum shoal_err err = msg->conns ? sh_dispatch_init(msg) : SHOAL_ENOMEM;
    if (err == SHOAL_OK)
        err = sh_requests_init(msg);
    if (err != SHOAL_OK) {
        sh_msg_destroy(msg);
        return err;
    }
    *msg_out = msg;
    return SHOAL_OK;
}

static struct sh_conn *made_first(const struct sh_msg *msg)
{
    /* acquire: pairs with the release in conn.c */
    return atomic_load_explicit(&msg->made, memory_order_acquire);
}

static void streams_close(struct sh_msg *msg)
{
    for (unsigned i = 0; i < SH_STREAM_BUCKETS; i++) {
        while (msg->buckets[i]) {
            struct sh_stream *stream = msg->buckets[i];
            if (stream->conn)
                sh_conn_lost(msg, stream->conn, SHOAL_ESTOPPED);
            else
                sh_stream_drop(msg, stream, true);
        }
    }
}

void sh_msg_destroy(struct sh_msg *msg)
{
    if (!msg)
        return;
    /* relaxed: the contract says that no other thread is left */
    atomic_store_explicit(&msg->is_stopping, true, memory_order_relaxed);
    streams_close(msg);
    for (struct sh_conn *conn = made_first(msg); conn; conn = conn->made_next) {
        if (conn->state != SH_CONN_IDLE)
            sh_conn_lost(msg, conn, SHOAL_ESTOPPED);
    }
    if (msg->requests.pieces[0])
        (void)sh_requests_late(msg, SHOAL_ESTOPPED);
    sh_helds_end(msg);
    sh_dispatch_destroy(msg); /* works name their connections */
    struct sh_conn *next;
    for (struct sh_conn *conn = made_first(msg); conn; conn = next) {
        next = conn->made_next;
        sh_outring_unmap(&conn->out);
        sh_room_waiters_free(conn);
        free(conn);
    }
    sh_requests_destroy(msg);
    sh_blocks_free(msg);
    sh_lock_destroy(&msg->table_lock);
    free(msg->conns);
    free(msg);
}

enum shoal_err sh_msg_listen(struct sh_msg *msg, const char *address, char *bound_out)
{
    struct sh_wire *wire = msg->config.env.wire;
    return wire->ops->listen(wire, address, bound_out);
}

uint64_t sh_msg_request_timeout(const struct sh_msg *msg)
{
    return msg->config.request_timeout_ns;
}

uint64_t sh_msg_instance(const struct sh_msg *msg)
{
    return msg->instance;
}

void sh_msg_instance_set(struct sh_msg *msg, uint64_t instance)
{
    msg->instance = instance;
}

shoal_nid sh_msg_nid(const struct sh_msg *msg)
{
    return (shoal_nid){atomic_load_explicit(&msg->nid, memory_order_acquire)};
}

void sh_msg_nid_set(struct sh_msg *msg, shoal_nid nid)
{
    SH_ASSERT(nid.v <= SH_MSG_NID_MAX);
    /* release: pairs with sh_msg_nid */
    atomic_store_explicit(&msg->nid, nid.v, memory_order_release);
}

/* --- The transport step ------------------------------------------------------------------ */

static void on_opened(struct sh_msg *msg, const struct sh_wire_event *event)
{
    struct sh_stream *stream = sh_stream_find(msg, event->link);
    if (stream && stream->state == SH_STREAM_OPENING)
        sh_hello_begin(msg, stream);
}

static void overflow_log(struct sh_msg *msg, sh_link link, uint64_t now_ns)
{
    char address[SH_WIRE_ADDRESS_MAX];
    uint64_t left_out;
    if (!sh_rate_allows(&msg->overflows, now_ns, &left_out))
        return;
    sh_wire_peer(msg->config.env.wire, link, address);
    SH_WARN("msg", "connection limit reached: refused one", SH_TEXT("address", address),
            SH_U64("connections_max", msg->config.connections_max), SH_U64("left_out", left_out));
}

static void on_accepted(struct sh_msg *msg, const struct sh_wire_event *event, uint64_t now_ns)
{
    struct sh_wire *wire = msg->config.env.wire;
    uint32_t most = msg->config.connections_max;
    /* Those that are closing leave soon. */
    bool has_room = msg->streams_count < most ||
                    (msg->streams_count < most + CLOSING_MAX_ACCEPTED && sh_close_one(msg));
    /* The oldest has had the most time: so who says nothing can't keep others out. */
    if (has_room && msg->accepted_hellos.count >= msg->config.hellos_max) {
        sh_count(&msg->refused, 1); /* not worth a line in the log: there may be many */
        sh_stream_fail(msg, msg->accepted_hellos.first, SHOAL_ECONNLOST, true);
    }
    if (has_room && sh_stream_add(msg, event->link, false, now_ns))
        return;
    overflow_log(msg, event->link, now_ns);
    wire->ops->close(wire, event->link);
    sh_events_forget(msg, event->link);
}

static void on_writable(struct sh_msg *msg, struct sh_stream *stream)
{
    (void)sh_stream_control_flush(msg, stream);
    struct sh_conn *conn = stream->conn;
    if (conn && conn->sends_on == stream) {
        conn->push_blocked = false;
        sh_out_flush(msg, conn);
    }
}

void sh_messages_done(struct sh_msg *msg)
{
    uint64_t now = sh_step_ticks();
    bool is_group = msg->messages_untimed > 1 && !sh_step_is_long;
    struct sh_step_time *time = is_group ? &msg->part_times[SH_MSG_PART_GROUP] : msg->message_time;
    if (is_group && now - msg->part_began > sh_ticks_scale.group)
        msg->messages_one_by_one = SH_MESSAGES_ONE_BY_ONE;
    else
        msg->messages_one_by_one -= msg->messages_one_by_one > 0;
    sh_step_time_add(time, msg->part_began, now);
    msg->part_began = now;
    msg->messages_untimed = 0;
    sh_step_is_long = false;
}

static void on_wire_event(struct sh_msg *msg, const struct sh_wire_event *event, uint64_t now_ns)
{
    struct sh_stream *stream;
    switch (event->kind) {
    case SH_WIRE_OPENED:
        on_opened(msg, event);
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_HELLO]);
        return;
    case SH_WIRE_ACCEPTED:
        on_accepted(msg, event, now_ns);
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_HELLO]);
        return;
    case SH_WIRE_READABLE:
        if ((stream = sh_stream_find(msg, event->link)))
            sh_stream_readable(msg, stream);
        return;
    case SH_WIRE_WRITABLE:
        if ((stream = sh_stream_find(msg, event->link)))
            on_writable(msg, stream);
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_SEND]);
        return;
    case SH_WIRE_LOST:
        if ((stream = sh_stream_find(msg, event->link))) {
            if (stream->conn && event->is_refused)
                stream->conn->was_refused = true;
            sh_stream_fail(msg, stream, event->err, false);
        }
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_UPKEEP]);
        return;
    }
}

/* Puts the dirty connections behind those that the last round has left. */
static void dirty_take(struct sh_msg *msg)
{
    /* relaxed first look: the common case is none; a missed one is woken for */
    if (!atomic_load_explicit(&msg->dirty, memory_order_relaxed))
        return;
    struct sh_conn **end = &msg->dirty_left;
    while (*end)
        end = &(*end)->dirty_next;
    /* acquire: pairs with the release in sh_conn_mark_dirty */
    *end = atomic_exchange_explicit(&msg->dirty, NULL, memory_order_acquire);
}

/* What a round receives, and what it sends, before it looks at who is due and what else has come:
 * for many connections with much to carry all of it could take so long that they pass for silent.
 * Likewise it leaves the rest to the next one when it has taken its share of time, which a few
 * requests may do whose bytes are few: base/steptime.h. */
#define ROUND_BYTES (UINT64_C(256) << 10)

static unsigned dirty_service(struct sh_msg *msg, uint64_t now_ns)
{
    dirty_take(msg);
    if (!msg->dirty_left)
        return 0;
    /* relaxed: this step writes it */
    uint64_t until = atomic_load_explicit(&msg->bytes_out, memory_order_relaxed) + ROUND_BYTES;
    /* Its own share, or those who only receive would not leave any. */
    uint64_t until_ticks = msg->part_began + sh_ticks_scale.share;
    sh_step_begin_again(msg->part_began);
    unsigned count = 0;
    struct sh_conn *conn;
    while ((conn = msg->dirty_left) &&
           atomic_load_explicit(&msg->bytes_out, memory_order_relaxed) < until &&
           !(count > 0 && msg->part_began > until_ticks)) {
        msg->dirty_left = conn->dirty_next;
        /* acq_rel: what was written before the flag was set is seen below; who sets it from now on
         * puts the connection on the stack again */
        atomic_exchange_explicit(&conn->dirty, false, memory_order_acq_rel);
        sh_conn_service(msg, conn, now_ns);
        sh_part_done(msg, &msg->part_times[SH_MSG_PART_SEND]);
        count++;
    }
    return count + sh_requests_late(msg, SHOAL_ECONNLOST);
}

static void poll_wire(struct sh_msg *msg, uint64_t timeout_ns)
{
    struct sh_wire *wire = msg->config.env.wire;
    if (msg->events_count > 0)
        return;
    msg->events_count = wire->ops->poll(wire, msg->events, SH_EVENTS_MAX, timeout_ns);
    msg->polls++;
}

void sh_events_forget(struct sh_msg *msg, sh_link link)
{
    unsigned kept = msg->events_seen;
    for (unsigned i = msg->events_seen; i < msg->events_count; i++) {
        if (msg->events[i].link != link)
            msg->events[kept++] = msg->events[i];
    }
    msg->events_count = kept;
}

/* Sees to what the last poll said; what is too much for one round is left to the next, which does
 * not poll before. Returns how many events that were. */
static unsigned events_see(struct sh_msg *msg, uint64_t now_ns)
{
    /* relaxed: this step writes it */
    uint64_t until = atomic_load_explicit(&msg->bytes_in, memory_order_relaxed) + ROUND_BYTES;
    unsigned done = 0;
    while (msg->events_seen < msg->events_count &&
           atomic_load_explicit(&msg->bytes_in, memory_order_relaxed) < until &&
           !(done > 0 && sh_round_is_spent(msg))) {
        on_wire_event(msg, &msg->events[msg->events_seen++], now_ns);
        done++;
    }
    if (msg->events_seen == msg->events_count)
        msg->events_seen = msg->events_count = 0;
    return done;
}

static unsigned transport_run(void *arg)
{
    struct sh_msg *msg = arg;
    uint64_t now_ns = sh_now(&msg->config.env.clock);
    msg->part_began = sh_step_ticks();
    /* A thread that blocks has polled in its parker, will do so again there if this round's work
     * was all, and so pays for one poll a message, not two. */
    if (!msg->events_gathered && !msg->poll_skipped)
        poll_wire(msg, 0);
    msg->poll_skipped = msg->events_gathered;
    msg->events_gathered = false;
    sh_lease_look(msg);
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_POLL]);
    unsigned done = events_see(msg, now_ns);
    done += sh_streams_resume(msg, now_ns);
    if (now_ns >= sh_streams_due(msg))
        sh_streams_expire(msg, now_ns);
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_UPKEEP]);
    sh_step_begin_again(msg->part_began); /* work in pieces has a share of its own */
    done += sh_held_run(msg);
    done += sh_unmaps_run(&msg->unmaps);
    sh_beats_run(msg, now_ns);
    sh_large_run(msg, now_ns);
    sh_closes_expire(msg, now_ns);
    done += sh_requests_expire(msg, now_ns);
    sh_lease_look(msg);
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_UPKEEP]);
    done += dirty_service(msg, now_ns);
    sh_conns_dial(msg, now_ns);
    struct sh_wire *wire = msg->config.env.wire;
    if (wire->ops->flush)
        wire->ops->flush(wire);
    sh_part_done(msg, &msg->part_times[SH_MSG_PART_SEND]);
    return done;
}

static uint64_t transport_due(void *arg)
{
    struct sh_msg *msg = arg;
    if (msg->helds_first || sh_unmaps_are_left(&msg->unmaps))
        return 0;
    uint64_t due = sh_requests_due(msg), streams_due = sh_streams_due(msg);
    due = due < streams_due ? due : streams_due;
    due = due < sh_large_due(msg) ? due : sh_large_due(msg);
    due = due < sh_stalls_due(msg) ? due : sh_stalls_due(msg);
    due = due < sh_beats_due(msg) ? due : sh_beats_due(msg);
    due = due < sh_closes_due(msg) ? due : sh_closes_due(msg);
    return due < sh_dials_due(msg) ? due : sh_dials_due(msg);
}

struct sh_step sh_msg_transport_step(struct sh_msg *msg)
{
    return (struct sh_step){
        .name = "transport", .run = transport_run, .due_ns = transport_due, .arg = msg};
}

static void park_wait(void *arg, uint64_t timeout_ns)
{
    struct sh_msg *msg = arg;
    poll_wire(msg, timeout_ns);
    msg->events_gathered = true;
}

static void park_watch(void *arg, uint64_t timeout_ns)
{
    struct sh_msg *msg = arg;
    msg->config.env.wire->ops->watch(msg->config.env.wire, timeout_ns);
}

static void park_wake(void *arg)
{
    struct sh_msg *msg = arg;
    msg->config.env.wire->ops->signal(msg->config.env.wire);
}

struct sh_parker sh_msg_parker(struct sh_msg *msg)
{
    return (struct sh_parker){park_wait, park_watch, park_wake, msg};
}

bool sh_msg_drained(const struct sh_msg *msg)
{
    for (struct sh_conn *conn = made_first(msg); conn; conn = conn->made_next) {
        if (sh_out_unsent(conn) > 0)
            return false;
    }
    return true;
}

void sh_msg_retried(struct sh_msg *msg, shoal_nid to)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    sh_count(&msg->retries, 1);
    if (conn)
        sh_count(&conn->retries, 1);
}

struct sh_step_report sh_msg_part_time(const struct sh_msg *msg, enum sh_msg_part part)
{
    SH_ASSERT(part < SH_MSG_PARTS);
    return sh_step_time_get(&msg->part_times[part]);
}

void sh_msg_handler_times(const struct sh_msg *msg,
                          void (*each)(void *arg, sh_msg_type type, struct sh_step_report time),
                          void *arg)
{
    for (unsigned type = 0; type < SH_MSG_TYPES; type++) {
        const struct sh_handler_entry *entry = sh_handler_of(msg, (sh_msg_type)type);
        struct sh_step_report time = {0};
        if (entry)
            time = sh_step_time_get(&entry->time);
        if (time.longest_ns > 0)
            each(arg, (sh_msg_type)type, time);
    }
}

/* relaxed: each is a count of its own */
#define READ(count) atomic_load_explicit(&(count), memory_order_relaxed)

void sh_msg_stats_get(const struct sh_msg *msg, struct sh_msg_stats *stats_out)
{
    *stats_out = (struct sh_msg_stats){
        .messages_out = READ(msg->messages_out),
        .bytes_out = READ(msg->bytes_out),
        .blocks_out = READ(msg->blocks_out),
        .messages_in = READ(msg->messages_in),
        .bytes_in = READ(msg->bytes_in),
        .connections_opened = READ(msg->opened),
        .connections_lost = READ(msg->lost),
        .hellos_refused = READ(msg->refused),
        .requests_timed_out = READ(msg->timed_out),
        .answers_dropped = READ(msg->dropped),
        .retries = READ(msg->retries),
        .repeats = READ(msg->repeats),
        .fenced = READ(msg->fenced),
        .fences = READ(msg->fences),
    };
}

bool sh_msg_conn_stats_get(const struct sh_msg *msg, shoal_nid nid,
                           struct sh_msg_conn_stats *stats_out)
{
    struct sh_conn *conn = atomic_load_explicit(&msg->conns[nid.v], memory_order_acquire);
    if (!conn)
        return false;
    sh_spin_take(&conn->lock);
    sh_outring_collect(&conn->out);
    uint64_t messages_out = conn->out.messages, unsent = sh_outring_used(&conn->out);
    sh_spin_release(&conn->lock);
    *stats_out = (struct sh_msg_conn_stats){
        .messages_out = messages_out,
        .bytes_out = READ(conn->bytes_out),
        .blocks_out = READ(conn->blocks_out),
        .messages_in = READ(conn->messages_in),
        .bytes_in = READ(conn->bytes_in),
        .room_waits = READ(conn->room_waits),
        .window_waits = READ(conn->window_waits),
        .retries = READ(conn->retries),
        .opened = READ(conn->opened),
        .unsent_bytes = unsent,
    };
    return true;
}
