/* The outgoing ring of a connection: reserve, write, complete, push. DXNet 2018 §IV.
 *
 * A writer reserves its bytes under the connection's lock (a few instructions), writes them without
 * it, and completes under it again. When the last writer has completed, all that was reserved is
 * ready; the transport step pushes what is ready as one block. */
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "msg/msg_int.h"

/* Maps room bytes twice in a row. NULL: out of memory. */
static uint8_t *ring_map(uint64_t room)
{
    int file = memfd_create("shoal-ring", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    uint8_t *base = MAP_FAILED;
    if (ftruncate(file, (off_t)room) == 0)
        base = mmap(NULL, 2 * room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
        int how = MAP_SHARED | MAP_FIXED;
        if (mmap(base, room, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED ||
            mmap(base + room, room, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED) {
            munmap(base, 2 * room);
            base = MAP_FAILED;
        }
    }
    close(file);
    return base == MAP_FAILED ? NULL : base;
}

static void ring_unmap(uint8_t *base, uint64_t room)
{
    if (base)
        munmap(base, 2 * room);
}

static uint64_t power_of_two_above(uint64_t value)
{
    uint64_t power = 4096;
    while (power < value)
        power *= 2;
    return power;
}

/* Makes room for need more bytes. The lock is held and nobody is writing. */
static enum shoal_err ring_grow(struct sh_out_ring *ring, uint64_t need, uint64_t least)
{
    SH_ASSERT(ring->writers == 0);
    uint64_t used = ring->tail - ring->head;
    uint64_t room = power_of_two_above(used + need > least ? used + need : least);
    uint8_t *base = ring_map(room);
    if (!base)
        return SHOAL_ENOMEM;
    if (used)
        memcpy(base + (ring->head & (room - 1)), ring->base + (ring->head & (ring->room - 1)),
               used);
    if (ring->sending && !ring->retired) {
        ring->retired = ring->base;
        ring->retired_room = ring->room;
    } else {
        ring_unmap(ring->base, ring->room);
    }
    ring->base = base;
    ring->room = room;
    return SHOAL_OK;
}

void sh_out_unmap(struct sh_conn *conn)
{
    ring_unmap(conn->out.base, conn->out.room);
    ring_unmap(conn->out.retired, conn->out.retired_room);
    conn->out = (struct sh_out_ring){0};
}

void sh_out_drop(struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    struct sh_out_ring *ring = &conn->out;
    ring->head = ring->ready = ring->tail;
    ring->draining = ring->writers > 0;
    /* A connection that is lost may not come back: its ring is not kept. */
    if (!ring->draining)
        sh_out_unmap(conn);
}

uint64_t sh_out_unsent(struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    uint64_t unsent = conn->out.tail - conn->out.head;
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

/* What a reservation found. */
enum reserved { RESERVED, RESERVE_AGAIN, RESERVE_FULL, RESERVE_NO_MEMORY };

/* Tries to reserve bytes at the ring's end. The lock is held. */
static enum reserved reserve(const struct sh_msg *msg, struct sh_conn *conn, uint64_t bytes,
                             bool must_fit, uint8_t **at_out)
{
    struct sh_out_ring *ring = &conn->out;
    if (ring->draining)
        return RESERVE_AGAIN;
    uint64_t used = ring->tail - ring->head;
    if (!must_fit && used > 0 && used + bytes > msg->config.ring_bytes)
        return RESERVE_FULL;
    if (used + bytes > ring->room) {
        if (ring->writers > 0)
            return RESERVE_AGAIN;
        if (ring_grow(ring, bytes, msg->config.ring_bytes) != SHOAL_OK)
            return RESERVE_NO_MEMORY;
    }
    *at_out = ring->base + (ring->tail & (ring->room - 1));
    ring->tail += bytes;
    ring->writers++;
    return RESERVED;
}

/* Begins a message of any kind. *generation: for answers, the connection's that the request came
 * over, and the ring grows for them; otherwise it gets that of the connection that is written to.
 */
static enum shoal_err out_begin(struct sh_msg *msg, struct sh_conn *conn, enum sh_kind kind,
                                sh_msg_type type, uint32_t id, size_t payload_bytes,
                                uint32_t *generation, struct sh_out *out)
{
    SH_ASSERT(type < SH_MSG_TYPES);
    bool is_answer = kind == SH_KIND_ANSWER || kind == SH_KIND_ERROR;
    uint64_t bytes = SH_MSG_HEADER_BYTES + payload_bytes;
    uint8_t *at = NULL;
    for (;;) {
        enum reserved how = RESERVED;
        enum shoal_err err = SHOAL_OK;
        sh_spin_take(&conn->lock);
        /* relaxed: only changed under the lock */
        uint32_t now = atomic_load_explicit(&conn->generation, memory_order_relaxed);
        if (is_answer && (now != *generation || conn->state != SH_CONN_OPEN))
            err = SHOAL_ECONNLOST;
        else if (conn->state == SH_CONN_IDLE && !conn->is_known)
            err = SHOAL_EUNREACHABLE;
        else
            how = reserve(msg, conn, bytes, is_answer, &at);
        if (err == SHOAL_OK && how == RESERVED && conn->state == SH_CONN_IDLE)
            conn->state = SH_CONN_WANTED;
        sh_spin_release(&conn->lock);
        if (err != SHOAL_OK)
            return err;
        *generation = now;
        if (how == RESERVED)
            break;
        if (how == RESERVE_FULL)
            return SHOAL_EAGAIN;
        if (how == RESERVE_NO_MEMORY)
            return SHOAL_ENOMEM;
        sched_yield(); /* another thread is in the middle of a message */
    }
    sh_store32(at, (uint32_t)payload_bytes);
    sh_store16(at + 4, (uint16_t)(type | (unsigned)kind << 14));
    sh_store32(at + 6, id);
    out->w = sh_writer_make(at + SH_MSG_HEADER_BYTES, payload_bytes);
    out->conn = conn;
    return SHOAL_OK;
}

void sh_msg_end(struct sh_msg *msg, struct sh_out *out)
{
    SH_ASSERT(sh_writer_ok(&out->w));
    SH_ASSERT(out->w.at == out->w.end);
    struct sh_conn *conn = out->conn;
    sh_spin_take(&conn->lock);
    struct sh_out_ring *ring = &conn->out;
    SH_ASSERT(ring->writers > 0);
    if (--ring->writers == 0) {
        if (ring->draining)
            ring->head = ring->tail;
        ring->draining = false;
        ring->ready = ring->tail;
    }
    sh_spin_release(&conn->lock);
    out->conn = NULL;
    sh_count(&msg->messages_out, 1);
    sh_conn_mark_dirty(msg, conn);
}

/* The connection for sending to a node. EUNREACHABLE: nobody ever named it. */
static enum shoal_err conn_for(struct sh_msg *msg, shoal_nid to, size_t payload_bytes,
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
    enum shoal_err err = conn_for(msg, to, payload_bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    return out_begin(msg, conn, SH_KIND_MESSAGE, type, 0, payload_bytes, &generation, out);
}

enum shoal_err sh_msg_request(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                              size_t payload_bytes, struct sh_request *request, struct sh_out *out)
{
    SH_ASSERT(request->done != NULL);
    struct sh_conn *conn;
    enum shoal_err err = conn_for(msg, to, payload_bytes, &conn);
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
    enum shoal_err err = conn_for(msg, to.nid, payload_bytes, &conn);
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
    if (to.id == 0 || conn_for(msg, to.nid, bytes, &conn) != SHOAL_OK)
        return;
    if (out_begin(msg, conn, SH_KIND_ERROR, type, to.id, bytes, &to.generation, &out) != SHOAL_OK)
        return;
    sh_put16(&out.w, (uint16_t)err);
    sh_put_text(&out.w, said);
    sh_msg_end(msg, &out);
}

void sh_room_waiters_complete(struct sh_room_waiter *list)
{
    while (list) {
        struct sh_room_waiter *next = list->next;
        sh_waiter_complete(list->waiter);
        free(list);
        list = next;
    }
}

bool sh_msg_has_room(struct sh_msg *msg, shoal_nid to, size_t payload_bytes)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    uint64_t unsent = conn ? sh_out_unsent(conn) : 0;
    return unsent == 0 || unsent + SH_MSG_HEADER_BYTES + payload_bytes <= msg->config.ring_bytes;
}

void sh_msg_wait_room(struct sh_msg *msg, shoal_nid to, struct sh_waiter *waiter)
{
    struct sh_conn *conn = sh_conn_find(msg, to);
    struct sh_room_waiter *entry = conn ? malloc(sizeof *entry) : NULL;
    if (entry) {
        entry->waiter = waiter;
        sh_spin_take(&conn->lock);
        bool is_full = conn->out.tail - conn->out.head > msg->config.ring_bytes / 2;
        if (is_full) {
            entry->next = conn->room_waiters;
            conn->room_waiters = entry;
        }
        sh_spin_release(&conn->lock);
        if (is_full)
            return;
        free(entry);
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
            break;
        }
    }
    sh_spin_release(&conn->lock);
    free(found);
    return found != NULL;
}

/* Ends a push: advances the ring, and takes off it who waits for room, for the caller to wake. */
static struct sh_room_waiter *sent(const struct sh_msg *msg, struct sh_conn *conn, size_t taken,
                                   bool *more_out)
{
    struct sh_room_waiter *waiters = NULL;
    sh_spin_take(&conn->lock);
    struct sh_out_ring *ring = &conn->out;
    ring->sending = false;
    ring_unmap(ring->retired, ring->retired_room);
    ring->retired = NULL;
    ring->head += taken;
    SH_ASSERT(ring->head <= ring->ready);
    if (ring->head == ring->tail && ring->writers == 0) {
        /* Empty: begin again at the front, whose cache lines are warm. */
        ring->head = ring->ready = ring->tail = 0;
        if (ring->room > power_of_two_above(msg->config.ring_bytes)) {
            ring_unmap(ring->base, ring->room);
            ring->base = NULL;
            ring->room = 0;
        }
    }
    if (ring->tail - ring->head <= msg->config.ring_bytes / 2) {
        waiters = conn->room_waiters;
        conn->room_waiters = NULL;
    }
    *more_out = ring->head < ring->ready;
    sh_spin_release(&conn->lock);
    return waiters;
}

void sh_out_flush(struct sh_msg *msg, struct sh_conn *conn)
{
    struct sh_wire *wire = msg->config.env.wire;
    bool more = true;
    if (conn->sends_on && !sh_stream_control_flush(msg, conn->sends_on))
        conn->push_blocked = true;
    while (more && conn->sends_on && !conn->push_blocked) {
        sh_spin_take(&conn->lock);
        struct sh_out_ring *ring = &conn->out;
        struct sh_bytes bytes = {NULL, ring->ready - ring->head};
        if (bytes.size > 0)
            bytes.at = ring->base + (ring->head & (ring->room - 1));
        ring->sending = bytes.size > 0;
        sh_spin_release(&conn->lock);
        if (bytes.size == 0)
            return;
        size_t taken = wire->ops->push(wire, conn->sends_on->link, bytes);
        SH_ASSERT(taken <= bytes.size);
        sh_count_alone(&msg->blocks_out, 1);
        sh_count_alone(&msg->bytes_out, taken);
        conn->push_blocked = taken < bytes.size;
        sh_room_waiters_complete(sent(msg, conn, taken, &more));
    }
}
