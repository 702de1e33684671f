/* Sending: a message is begun, written into the connection's outgoing ring (outring_int.h) and
 * ended; the transport step pushes what is complete as one block. DXNet 2018 §IV.
 *
 * Begin and end take no lock while the connection is open and its ring has room. */
#include <stdlib.h>

#include "msg/msg_int.h"

uint64_t sh_out_unsent(struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    /* relaxed: under the lock. An object holds the piece that is being sent of it. */
    uint64_t objects = atomic_load_explicit(&conn->objects_count, memory_order_relaxed);
    uint64_t unsent = sh_outring_used(&conn->out) + objects * SH_BLOCK_BYTES +
                      atomic_load_explicit(&conn->objects_bytes, memory_order_relaxed) +
                      atomic_load_explicit(&conn->late_bytes, memory_order_relaxed);
    sh_spin_release(&conn->lock);
    return unsent;
}

void sh_conn_mark_dirty(struct sh_msg *msg, struct sh_conn *conn)
{
    /* acq_rel: what was written before is seen by the step that clears the flag */
    if (atomic_exchange_explicit(&conn->dirty, true, memory_order_acq_rel))
        return;
    struct sh_conn *top = atomic_load_explicit(&msg->dirty, memory_order_relaxed);
    do {
        conn->dirty_next = top;
        /* release: dirty_next; pairs with the acquire of the transport step's exchange */
    } while (!atomic_compare_exchange_weak_explicit(&msg->dirty, &top, conn, memory_order_release,
                                                    memory_order_relaxed));
    msg->config.wake_transport(msg->config.arg);
}

/* What a reservation under the lock found. */
enum reserved { RESERVED, RESERVE_AGAIN, RESERVE_FULL, RESERVE_NO_MEMORY, RESERVE_TOO_MUCH };

/* Opens the ring and grows it as far as that is needed for so many bytes. The lock is held. */
static enum reserved reserve_growing(const struct sh_msg *msg, struct sh_outring *ring,
                                     uint32_t generation, uint64_t bytes,
                                     struct sh_outring_place *place_out)
{
    if (sh_outring_used(ring) + bytes > ring->room) {
        sh_outring_close(ring);
        sh_outring_collect(ring);
        if (!sh_outring_is_quiet(ring))
            return RESERVE_AGAIN;
        if (sh_outring_grow(ring, bytes, msg->config.ring_bytes) != SHOAL_OK)
            return RESERVE_NO_MEMORY;
    }
    if (!sh_outring_is_open(ring))
        sh_outring_open(ring, generation);
    /* Others may have been faster since. */
    return sh_outring_reserve(ring, generation, bytes, ring->room, place_out) == SH_OUTRING_OK
               ? RESERVED
               : RESERVE_AGAIN;
}

/* Reserves where the fast way found the ring full or closed: for what must fit, and for a message
 * larger than the ring, it grows. The lock is held. */
static enum reserved reserve_slowly(struct sh_msg *msg, struct sh_conn *conn, uint32_t generation,
                                    uint64_t bytes, bool must_fit,
                                    struct sh_outring_place *place_out)
{
    struct sh_outring *ring = &conn->out;
    uint64_t share = sh_share_of(msg, msg->config.ring_bytes);
    if (!sh_outring_drained(ring))
        return RESERVE_AGAIN;
    sh_outring_collect(ring);
    uint64_t used = sh_outring_used(ring);
    if (!must_fit && sh_flow_is_shut(&conn->flow)) {
        sh_count(&conn->window_waits, 1);
        return RESERVE_FULL;
    }
    if (!must_fit && used > 0 && used + bytes > share) {
        sh_count(&conn->room_waits, 1);
        return RESERVE_FULL;
    }
    if (used > SH_UNSENT_BYTES_MAX)
        return RESERVE_TOO_MUCH;
    bool is_large = !must_fit && bytes > share;
    if (is_large && !sh_large_take(msg, conn, bytes)) {
        sh_count(&conn->room_waits, 1);
        return RESERVE_FULL;
    }
    enum reserved how = reserve_growing(msg, ring, generation, bytes, place_out);
    /* Who waits for it hears of it when the transport step runs next, for a beat at the latest. */
    if (is_large && how != RESERVED)
        sh_large_give_back(msg, conn);
    return how;
}

/* The same, and an answer that would have to wait for others to end their messages is late. */
static enum reserved reserve_anyhow(struct sh_msg *msg, struct sh_conn *conn, uint32_t generation,
                                    uint64_t bytes, bool is_answer, struct sh_object_out *object,
                                    struct sh_outring_place *place_out)
{
    enum reserved how = RESERVE_AGAIN;
    if (object && object->memory_bytes > 0 &&
        atomic_load_explicit(&conn->objects_bytes, memory_order_relaxed) > SH_UNSENT_BYTES_MAX)
        how = RESERVE_TOO_MUCH;
    else if (!conn->late_first)
        how = reserve_slowly(msg, conn, generation, bytes, is_answer, place_out);
    else if (!is_answer)
        how = RESERVE_FULL;
    else if (atomic_load_explicit(&conn->late_bytes, memory_order_relaxed) > SH_UNSENT_BYTES_MAX)
        how = RESERVE_TOO_MUCH;
    if (how == RESERVED && object)
        sh_object_append(conn, object, place_out);
    if (how != RESERVE_AGAIN || !is_answer)
        return how;
    return sh_late_add(conn, bytes, object, place_out) ? RESERVED : RESERVE_NO_MEMORY;
}

/* One try of begin_slowly. */
static enum shoal_err try_slowly(struct sh_msg *msg, struct sh_conn *conn, bool is_answer,
                                 uint32_t *generation, uint64_t bytes, struct sh_object_out *object,
                                 struct sh_outring_place *place_out, enum reserved *how_out)
{
    sh_spin_assert_held(&conn->lock);
    /* relaxed: only changed under the lock */
    uint32_t now = atomic_load_explicit(&conn->generation, memory_order_relaxed);
    bool is_closing = conn->state == SH_CONN_CLOSING;
    if (is_answer && (now != *generation || (conn->state != SH_CONN_OPEN && !is_closing)))
        return SHOAL_ECONNLOST;
    if (is_answer && conn->close_agreed)
        return SHOAL_ECONNLOST; /* nobody waits for it */
    if (is_closing && !is_answer) {
        *how_out = RESERVE_FULL; /* until the other side has said what it thinks of it */
        return SHOAL_OK;
    }
    if (conn->state == SH_CONN_IDLE && !conn->is_known)
        return SHOAL_EUNREACHABLE;
    *how_out = reserve_anyhow(msg, conn, now, bytes, is_answer, object, place_out);
    if (*how_out == RESERVED && conn->state == SH_CONN_IDLE)
        conn->state = SH_CONN_WANTED;
    if (*how_out == RESERVED && is_closing)
        conn->state =
            SH_CONN_OPEN; /* an answer that was owed: the other side expects it, and keeps */
    *generation = now;
    return SHOAL_OK;
}

void sh_object_append(struct sh_conn *conn, struct sh_object_out *object,
                      const struct sh_outring_place *place)
{
    sh_spin_assert_held(&conn->lock);
    object->next = NULL;
    object->position = place->end;
    *(conn->objects_last ? &conn->objects_last->next : &conn->objects_first) = object;
    conn->objects_last = object;
    /* relaxed: under the lock; who looks without it looks again */
    atomic_fetch_add_explicit(&conn->objects_bytes, object->memory_bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->objects_count, 1, memory_order_relaxed);
}

/* The other side asks and does not read: the transport step gives the connection up. */
static void cut_off(struct sh_msg *msg, struct sh_conn *conn)
{
    /* acq_rel: pairs with the exchange in sh_conn_service */
    if (atomic_exchange_explicit(&conn->close_wanted, true, memory_order_acq_rel))
        return;
    SH_WARN("msg", "answers are not read: connection given up", SH_U64("nid", conn->nid.v),
            SH_U64("unsent_bytes", sh_out_unsent(conn)));
    sh_conn_mark_dirty(msg, conn);
}

/* How often a message that is no answer tries to get its place in a ring that others change. */
#define TRIES_MAX 4

/* Reserves under the lock: the connection is to be opened, the ring is full or must grow, or the
 * bytes are the header of an object (else NULL) that must be in the same order. */
static enum shoal_err begin_slowly(struct sh_msg *msg, struct sh_conn *conn, bool is_answer,
                                   uint32_t *generation, uint64_t bytes,
                                   struct sh_object_out *object, struct sh_outring_place *place_out)
{
    for (unsigned tries = 1;; tries++) {
        enum reserved how = RESERVE_AGAIN;
        sh_spin_take(&conn->lock);
        enum shoal_err err =
            try_slowly(msg, conn, is_answer, generation, bytes, object, place_out, &how);
        sh_spin_release(&conn->lock);
        if (err != SHOAL_OK || how == RESERVED)
            return err;
        if (how == RESERVE_FULL)
            return SHOAL_EAGAIN;
        if (how == RESERVE_NO_MEMORY)
            return SHOAL_ENOMEM;
        if (how == RESERVE_TOO_MUCH) {
            cut_off(msg, conn);
            return SHOAL_ECONNLOST;
        }
        /* Another thread is in the middle of a message, or was faster. */
        if (tries == TRIES_MAX)
            return SHOAL_EAGAIN;
    }
}

static void header_write(const struct sh_outring_place *place, enum sh_kind kind, sh_msg_type type,
                         uint32_t id, uint64_t payload_bytes)
{
    sh_store32(place->at, (uint32_t)payload_bytes);
    sh_store16(place->at + 4, (uint16_t)(type | (unsigned)kind << 14));
    sh_store32(place->at + 6, id);
}

/* Begins a message of any kind. *generation: for answers, the connection's that the request came
 * over, and the ring grows for them; otherwise it gets that of the connection that is written to.
 */
static enum shoal_err out_begin(struct sh_msg *msg, struct sh_conn *conn, enum sh_kind kind,
                                sh_msg_type type, uint32_t id, size_t payload_bytes,
                                uint32_t *generation, struct sh_out *out)
{
    SH_ASSERT(type < SH_MSG_TYPES);
    /* A control message belongs to a connection, and always finds room, just as an answer. */
    bool is_control = type >> 8 == 0;
    bool is_answer = kind == SH_KIND_ANSWER || kind == SH_KIND_ERROR || is_control;
    uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
    struct sh_outring_place place;
    /* acquire: pairs with the release in sh_conn_lost */
    uint32_t now = atomic_load_explicit(&conn->generation, memory_order_acquire);
    enum sh_outring_result result = SH_OUTRING_CLOSED;
    if (is_answer ? now == *generation : !sh_flow_is_shut(&conn->flow))
        result = sh_outring_reserve(&conn->out, now, bytes,
                                    sh_share_of(msg, msg->config.ring_bytes), &place);
    if (result == SH_OUTRING_OK) {
        *generation = now;
    } else {
        enum shoal_err err = begin_slowly(msg, conn, is_answer, generation, bytes, NULL, &place);
        if (err != SHOAL_OK)
            return err;
    }
    header_write(&place, kind, type, id, payload_bytes);
    out->w = sh_writer_make(place.at + SH_MSG_HEADER_BYTES, payload_bytes);
    out->conn = conn;
    out->slot = place.slot;
    out->bytes = (uint32_t)bytes;
    return SHOAL_OK;
}

enum shoal_err sh_out_control(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                              size_t payload_bytes, struct sh_out *out)
{
    /* relaxed: only the transport step changes it */
    uint32_t generation = atomic_load_explicit(&conn->generation, memory_order_relaxed);
    return out_begin(msg, conn, SH_KIND_MESSAGE, SH_MSG_TYPE(0, control), 0, payload_bytes,
                     &generation, out);
}

enum shoal_err sh_out_begin_object(struct sh_msg *msg, struct sh_conn *conn, enum sh_kind kind,
                                   sh_msg_type type, uint32_t id, struct sh_object_out *object,
                                   uint32_t *generation, struct sh_out *out)
{
    SH_ASSERT(type < SH_MSG_TYPES && type >> 8 != 0);
    uint64_t payload_bytes = object->codec.bytes; /* read now: the object may be gone below */
    struct sh_outring_place place;
    enum shoal_err err = begin_slowly(msg, conn, kind == SH_KIND_ANSWER, generation,
                                      SH_MSG_HEADER_BYTES, object, &place);
    if (err != SHOAL_OK)
        return err;
    header_write(&place, kind, type, id, payload_bytes);
    *out = (struct sh_out){.w = sh_writer_make(place.at + SH_MSG_HEADER_BYTES, 0),
                           .conn = conn,
                           .slot = place.slot,
                           .bytes = SH_MSG_HEADER_BYTES};
    return SHOAL_OK;
}

void sh_msg_end(struct sh_msg *msg, struct sh_out *out)
{
    SH_ASSERT(sh_writer_ok(&out->w));
    SH_ASSERT(out->w.at == out->w.end);
    struct sh_conn *conn = out->conn;
    if (out->slot == SH_LATE_SLOT)
        sh_late_end(out->w.end - out->bytes);
    else
        sh_outring_complete(&conn->out, out->slot, out->bytes);
    out->conn = NULL;
    sh_count(&msg->messages_out, 1);
    sh_conn_mark_dirty(msg, conn);
}

enum shoal_err sh_out_conn(struct sh_msg *msg, shoal_nid to, uint64_t payload_bytes,
                           struct sh_conn **conn_out)
{
    /* relaxed: stopping is only a hint here */
    if (atomic_load_explicit(&msg->is_stopping, memory_order_relaxed))
        return SHOAL_ESTOPPED;
    if (payload_bytes > msg->config.payload_bytes_max)
        return SHOAL_ETOOBIG;
    struct sh_conn *conn = sh_conn_find(msg, to);
    if (!conn)
        return SHOAL_EUNREACHABLE;
    *conn_out = conn;
    return SHOAL_OK;
}

enum shoal_err sh_msg_begin(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                            size_t payload_bytes, struct sh_out *out)
{
    struct sh_conn *conn;
    uint32_t generation = 0;
    enum shoal_err err = sh_out_conn(msg, to, payload_bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    return out_begin(msg, conn, SH_KIND_MESSAGE, type, 0, payload_bytes, &generation, out);
}

enum shoal_err sh_msg_request(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                              size_t payload_bytes, struct sh_request *request, struct sh_out *out)
{
    SH_ASSERT(request->done != NULL);
    struct sh_conn *conn;
    enum shoal_err err = sh_out_conn(msg, to, payload_bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    uint32_t id;
    err = sh_requests_reserve(msg, &id);
    if (err != SHOAL_OK)
        return err;
    uint32_t generation = 0; /* compared again in sh_requests_arm */
    err = out_begin(msg, conn, SH_KIND_REQUEST, type, id, payload_bytes, &generation, out);
    if (err != SHOAL_OK) {
        sh_requests_free(msg, id);
        return err;
    }
    sh_requests_arm(msg, id, conn, generation, request);
    return SHOAL_OK;
}

enum shoal_err sh_msg_reply(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type,
                            size_t payload_bytes, struct sh_out *out)
{
    struct sh_conn *conn;
    if (to.id == 0)
        return SHOAL_EINVAL;
    enum shoal_err err = sh_out_conn(msg, to.nid, payload_bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    return out_begin(msg, conn, SH_KIND_ANSWER, type, to.id, payload_bytes, &to.generation, out);
}

void sh_msg_reply_ok(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type)
{
    struct sh_out out;
    if (to.id != 0 && sh_msg_reply(msg, to, type, 0, &out) == SHOAL_OK)
        sh_msg_end(msg, &out);
}

void sh_msg_reply_error(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type,
                        enum shoal_err err, const char *text)
{
    struct sh_bytes said = sh_bytes_text(text ? text : "");
    if (said.size > SH_ERROR_TEXT_MAX)
        said.size = SH_ERROR_TEXT_MAX;
    struct sh_conn *conn;
    struct sh_out out;
    size_t bytes = 4 + said.size;
    if (to.id == 0 || sh_out_conn(msg, to.nid, bytes, &conn) != SHOAL_OK)
        return;
    if (out_begin(msg, conn, SH_KIND_ERROR, type, to.id, bytes, &to.generation, &out) != SHOAL_OK)
        return;
    sh_put16(&out.w, (uint16_t)err);
    sh_put_text(&out.w, said);
    sh_msg_end(msg, &out);
}

/* Keeps an entry for who waits next. The lock is held. */
static void room_waiter_put(struct sh_conn *conn, struct sh_room_waiter *entry)
{
    entry->next = conn->room_free;
    conn->room_free = entry;
}

/* NULL: out of memory. */
static struct sh_room_waiter *room_waiter_get(struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    struct sh_room_waiter *entry = conn->room_free;
    if (entry)
        conn->room_free = entry->next;
    sh_spin_release(&conn->lock);
    return entry ? entry : malloc(sizeof *entry);
}

void sh_room_waiters_complete(struct sh_conn *conn, struct sh_room_waiter *list)
{
    if (!list)
        return;
    for (struct sh_room_waiter *entry = list; entry; entry = entry->next)
        sh_waiter_complete(entry->waiter);
    sh_spin_take(&conn->lock);
    while (list) {
        struct sh_room_waiter *next = list->next;
        room_waiter_put(conn, list);
        list = next;
    }
    sh_spin_release(&conn->lock);
}

void sh_room_waiters_free(struct sh_conn *conn)
{
    SH_ASSERT(!conn->room_waiters);
    while (conn->room_free) {
        struct sh_room_waiter *entry = conn->room_free;
        conn->room_free = entry->next;
        free(entry);
    }
}

/* True when the ring is closed, since its connection was lost or it has to grow, and a message is
 * still being written into it. That message's end marks the connection dirty, and the transport
 * step then looks for who waits. The lock is held. */
static bool writer_is_awaited(struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    if (sh_outring_is_open(&conn->out))
        return false;
    /* With its last writer a lost connection's ring gives its memory back: nobody may ever open the
     * connection again, and so look for that. */
    if (!sh_outring_drained(&conn->out))
        return true;
    sh_outring_collect(&conn->out);
    return !sh_outring_is_quiet(&conn->out);
}

bool sh_msg_has_room(struct sh_msg *msg, shoal_nid to, size_t payload_bytes)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    if (!conn)
        return true;
    sh_spin_take(&conn->lock);
    bool may_send = !sh_flow_is_shut(&conn->flow) && conn->state != SH_CONN_CLOSING &&
                    !conn->late_first && !writer_is_awaited(conn);
    uint64_t unsent = sh_outring_used(&conn->out);
    sh_spin_release(&conn->lock);
    uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
    uint64_t share = sh_share_of(msg, msg->config.ring_bytes);
    if (bytes > share)
        return may_send && unsent == 0 && sh_large_may_enter(msg, bytes);
    return may_send && unsent + bytes <= share;
}

/* How full the ring may be for a message to have room; half full at most, so that who waited does
 * not find it full again at once. */
static uint64_t used_max(const struct sh_msg *msg, size_t payload_bytes)
{
    uint64_t ring_bytes = sh_share_of(msg, msg->config.ring_bytes);
    uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
    if (bytes > ring_bytes)
        return 0;
    return ring_bytes - bytes < ring_bytes / 2 ? ring_bytes - bytes : ring_bytes / 2;
}

void sh_msg_wait_room(struct sh_msg *msg, shoal_nid to, size_t payload_bytes,
                      struct sh_waiter *waiter)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    struct sh_room_waiter *entry = conn ? room_waiter_get(conn) : NULL;
    if (entry) {
        entry->waiter = waiter;
        entry->used_max = used_max(msg, payload_bytes);
        sh_spin_take(&conn->lock);
        uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
        bool is_large = bytes > sh_share_of(msg, msg->config.ring_bytes);
        bool is_full = conn->state == SH_CONN_CLOSING || sh_flow_is_shut(&conn->flow) ||
                       conn->late_first || writer_is_awaited(conn) ||
                       sh_outring_used(&conn->out) > entry->used_max ||
                       (is_large && sh_large_wait(msg, conn, bytes));
        if (is_full) {
            entry->next = conn->room_waiters;
            conn->room_waiters = entry;
        } else {
            room_waiter_put(conn, entry);
        }
        sh_spin_release(&conn->lock);
        if (is_full)
            return;
    }
    sh_waiter_complete(waiter);
}

bool sh_msg_wait_room_cancel(struct sh_msg *msg, shoal_nid to, struct sh_waiter *waiter)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    struct sh_room_waiter *found = NULL;
    if (!conn)
        return false;
    sh_spin_take(&conn->lock);
    for (struct sh_room_waiter **at = &conn->room_waiters; *at && !found; at = &(*at)->next) {
        if ((*at)->waiter == waiter) {
            found = *at;
            *at = found->next;
            room_waiter_put(conn, found);
            break;
        }
    }
    sh_spin_release(&conn->lock);
    return found != NULL;
}

/* Takes off the list those that have room now. The lock is held. */
static struct sh_room_waiter *roomy_take(struct sh_conn *conn)
{
    struct sh_room_waiter *taken = NULL, **at = &conn->room_waiters;
    /* First: whatever else holds them up, a lost connection's ring ends with its last writer. */
    if (writer_is_awaited(conn) || sh_flow_is_shut(&conn->flow) || conn->state == SH_CONN_CLOSING ||
        conn->late_first)
        return NULL;
    uint64_t used = sh_outring_used(&conn->out);
    while (*at) {
        struct sh_room_waiter *entry = *at;
        if (used > entry->used_max) {
            at = &entry->next;
            continue;
        }
        *at = entry->next;
        entry->next = taken;
        taken = entry;
    }
    return taken;
}

/* Ends a push: advances the ring, and takes off it who waits for room, for the caller to wake. */
static struct sh_room_waiter *sent(struct sh_msg *msg, struct sh_conn *conn, size_t taken)
{
    sh_spin_take(&conn->lock);
    /* Looked at before an empty ring starts again at its front. */
    const struct sh_object_out *object = conn->objects_first;
    conn->is_streaming = object && sh_outring_before(&conn->out, object->position) == taken;
    sh_outring_sent(&conn->out, taken, msg->config.ring_bytes);
    sh_flow_sent(&conn->flow, taken);
    sh_large_settle(msg, conn);
    struct sh_room_waiter *waiters = roomy_take(conn);
    sh_spin_release(&conn->lock);
    return waiters;
}

void sh_out_room_changed(struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    struct sh_room_waiter *waiters = roomy_take(conn);
    sh_spin_release(&conn->lock);
    sh_room_waiters_complete(conn, waiters);
}

/* What may be pushed out of the ring: up to the end of the next object's header, for its payload
 * comes then. */
static struct sh_bytes ring_take(const struct sh_msg *msg, struct sh_conn *conn)
{
    SH_ASSERT(!conn->is_streaming);
    sh_spin_take(&conn->lock);
    if (conn->late_first)
        sh_late_move(msg, conn);
    struct sh_bytes bytes = sh_outring_take(&conn->out);
    const struct sh_object_out *object = conn->objects_first;
    uint64_t before = object ? sh_outring_before(&conn->out, object->position) : UINT64_MAX;
    sh_spin_release(&conn->lock);
    if (bytes.size > before)
        bytes.size = before;
    return bytes;
}

bool sh_out_is_between(struct sh_conn *conn)
{
    if (!conn->sends_on || conn->push_blocked || conn->is_streaming ||
        conn->sends_on->control_size > 0)
        return false;
    sh_spin_take(&conn->lock);
    bool is_between = sh_outring_take(&conn->out).size == 0;
    conn->out.sending = false;
    sh_spin_release(&conn->lock);
    return is_between;
}

/* Pieces of objects that are pushed before the other connections have their turn: 1 MiB. */
#define PIECES_AT_ONCE 16
/* So much of the ring the transport step pushes in one call, and in all before it serves the other
 * connections: the kernel takes some hundred microseconds for a megabyte, and on loopback the sender's
 * thread pays for the receiver's side, too. */
#define PUSH_BYTES ((size_t)256 << 10)
#define FLUSH_BYTES (4 * PUSH_BYTES)

/* Between the take of the bytes and their push lies the look at the lease, once for each push: what
 * is pushed was made before that look, and so under the lease, by whichever thread. Behind the look
 * the process may be stopped for as long as it likes: then answers are late, as on a slow network,
 * but as true as when they were made. */
void sh_out_flush(struct sh_msg *msg, struct sh_conn *conn)
{
    unsigned pieces = 0;
    uint64_t pushed = 0;
    struct sh_wire *wire = msg->config.env.wire;
    if (!conn->sends_on) /* the last message of a connection that was lost may be over now */
        sh_out_room_changed(conn);
    if (conn->sends_on && !sh_stream_control_flush(msg, conn->sends_on))
        conn->push_blocked = true;
    while (conn->sends_on && !conn->push_blocked) {
        if (conn->is_streaming) {
            if (pieces == PIECES_AT_ONCE || (pieces > 0 && sh_step_spent())) {
                sh_conn_mark_dirty(msg, conn);
                return;
            }
            pieces++;
            if (!sh_object_push(msg, conn)) {
                sh_conn_mark_dirty(msg, conn);
                return;
            }
            continue;
        }
        if (pushed >= FLUSH_BYTES || (pushed > 0 && sh_step_spent())) {
            sh_conn_mark_dirty(msg, conn);
            return;
        }
        struct sh_bytes bytes = ring_take(msg, conn);
        if (bytes.size == 0)
            return;
        if (sh_lease_forbids(msg)) {
            sh_room_waiters_complete(conn, sent(msg, conn, 0));
            sh_conn_mark_dirty(msg,
                               conn); /* the next look gives the connection up, or it goes on */
            return;
        }
        if (bytes.size > PUSH_BYTES)
            bytes.size = PUSH_BYTES;
        pushed += bytes.size;
        if (bytes.size > SH_MSG_HEADER_BYTES) /* more than a beat */
            sh_close_used(msg, conn);
        size_t taken = wire->ops->push(wire, conn->sends_on->link, bytes);
        SH_ASSERT(taken <= bytes.size);
        sh_count_alone(&msg->blocks_out, 1);
        sh_count_alone(&msg->bytes_out, taken);
        sh_count_alone(&conn->blocks_out, 1);
        sh_count_alone(&conn->bytes_out, taken);
        conn->push_blocked = taken < bytes.size;
        sh_room_waiters_complete(conn, sent(msg, conn, taken));
    }
}
