/* Messages larger than a connection's share: one at a time may enter an empty ring, but not those
 * of all connections at once, or they fill the memory that the kernel has for sockets, and then
 * connections fall silent for seconds.
 *
 * All large messages under way together have large_bytes_max, or one of them the whole of it. What
 * one takes it gives back when it has been sent and the other side's limit is beyond it again, for
 * until then it is in the kernel's memory, ours or theirs. A receiver that stands still would keep
 * others waiting by this: after HELD_NS what its message took is given back anyway. Answers are
 * not counted; stall.c bounds them. */
#include "msg/msg_int.h"

#define HELD_NS UINT64_C(500000000)

static void due_set(struct sh_msg *msg)
{
    sh_spin_assert_held(&msg->large_lock);
    struct sh_conn *oldest = msg->large_first;
    /* relaxed: a hint for the transport step, which looks again under the lock */
    atomic_store_explicit(&msg->large_due_ns, oldest ? oldest->large_due_ns : SH_NEVER,
                          memory_order_relaxed);
}

/* What a connection took is free again, and those that wait for it are to be told. */
static void give_back(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_assert_held(&msg->large_lock);
    SH_ASSERT(msg->large_bytes >= conn->large_bytes);
    msg->large_bytes -= conn->large_bytes;
    conn->large_bytes = 0;
    *(conn->large_prev ? &conn->large_prev->large_next : &msg->large_first) = conn->large_next;
    *(conn->large_next ? &conn->large_next->large_prev : &msg->large_last) = conn->large_prev;
    conn->large_next = conn->large_prev = NULL;
    due_set(msg);
    /* release: pairs with the exchange in sh_large_run */
    atomic_store_explicit(&msg->large_freed, true, memory_order_release);
}

static bool has_room(const struct sh_msg *msg, uint64_t bytes)
{
    sh_spin_assert_held(&msg->large_lock);
    return msg->large_bytes == 0 || msg->large_bytes + bytes <= msg->large_bytes_max;
}

bool sh_large_take(struct sh_msg *msg, struct sh_conn *conn, uint64_t bytes)
{
    sh_spin_assert_held(&conn->lock);
    uint64_t now_ns = sh_now(&msg->config.env.clock);
    sh_spin_take(&msg->large_lock);
    bool is_taken = conn->large_bytes == 0 && has_room(msg, bytes);
    if (is_taken) {
        msg->large_bytes += bytes;
        conn->large_bytes = bytes;
        conn->large_due_ns = now_ns + HELD_NS;
        conn->large_next = NULL;
        conn->large_prev = msg->large_last;
        *(msg->large_last ? &msg->large_last->large_next : &msg->large_first) = conn;
        msg->large_last = conn;
        due_set(msg);
    }
    sh_spin_release(&msg->large_lock);
    return is_taken;
}

bool sh_large_may_enter(struct sh_msg *msg, uint64_t bytes)
{
    sh_spin_take(&msg->large_lock);
    bool may = has_room(msg, bytes);
    sh_spin_release(&msg->large_lock);
    return may;
}

bool sh_large_wait(struct sh_msg *msg, struct sh_conn *conn, uint64_t bytes)
{
    sh_spin_assert_held(&conn->lock);
    sh_spin_take(&msg->large_lock);
    bool waits = !has_room(msg, bytes);
    if (waits && !conn->large_waits) {
        conn->large_waits = true;
        conn->large_wait_next = NULL;
        *(msg->large_waits_first ? &msg->large_waits_last->large_wait_next
                                 : &msg->large_waits_first) = conn;
        msg->large_waits_last = conn;
    }
    sh_spin_release(&msg->large_lock);
    return waits;
}

void sh_large_give_back(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_take(&msg->large_lock);
    if (conn->large_bytes > 0)
        give_back(msg, conn);
    sh_spin_release(&msg->large_lock);
}

void sh_large_settle(struct sh_msg *msg, struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    /* Read without its lock: it is set under the connection's, and 0 mostly. */
    if (conn->large_bytes > 0 && !sh_flow_is_shut(&conn->flow) &&
        sh_outring_used(&conn->out) <= sh_share_of(msg, msg->config.ring_bytes))
        sh_large_give_back(msg, conn);
}

/* Takes the first one that waits, or NULL. *last_out: who is the last one now. */
static struct sh_conn *waiting_next(struct sh_msg *msg, struct sh_conn **last_out)
{
    sh_spin_take(&msg->large_lock);
    struct sh_conn *conn = msg->large_waits_first;
    *last_out = msg->large_waits_last;
    if (conn) {
        msg->large_waits_first = conn->large_wait_next;
        conn->large_waits = false;
    }
    sh_spin_release(&msg->large_lock);
    return conn;
}

uint64_t sh_large_due(const struct sh_msg *msg)
{
    return atomic_load_explicit(&msg->large_due_ns, memory_order_relaxed);
}

void sh_large_run(struct sh_msg *msg, uint64_t now_ns)
{
    if (sh_large_due(msg) <= now_ns) {
        sh_spin_take(&msg->large_lock);
        while (msg->large_first && msg->large_first->large_due_ns <= now_ns)
            give_back(msg, msg->large_first);
        sh_spin_release(&msg->large_lock);
    }
    /* relaxed first look: mostly false. acquire: pairs with give_back */
    if (!atomic_load_explicit(&msg->large_freed, memory_order_relaxed) ||
        !atomic_exchange_explicit(&msg->large_freed, false, memory_order_acquire))
        return;
    /* All of them: whoever finds it taken by another waits again, at the end, and who was told
     * first has the best chance. No more than there are now, for they may come back at once. */
    struct sh_conn *last, *later;
    struct sh_conn *conn = waiting_next(msg, &last);
    while (conn) {
        sh_out_room_changed(conn);
        conn = conn == last ? NULL : waiting_next(msg, &later);
    }
}
