/* Nodes that are one process at a time, though two may say that they are the node: one of them runs on a copy
 * of the other's folder. Where connections end, the two can be told apart: while one is connected, the other
 * is turned away.
 *
 *   no connection     any process is let in, but for one that waits (below)
 *   connected to P    P again: let in. Another: turned away with EEXIST, unless it is the process that is
 *                     expected, or P is a former one of that: then P's connection is closed, and the
 *                     other one is let in when it dials again
 *
 * A process that was turned away for a while was up beside P, so it is no restart of P. Once P's connection
 * is lost it waits for wait_ns more, in which P's own next process comes first, if it is started again
 * quickly. One that dials when P has just ended has nothing to wait for. */
#include "base/assert.h"
#include "base/life.h"
#include "msg/msg_int.h"

/* Being turned away for less than this part of the wait says nothing: the end of P may be noticed late. */
#define GRACE_PART 4

/* One that nobody has counted yet is itself with any count. */
static bool is_same(uint64_t a, uint64_t b)
{
    return a == b || ((uint32_t)a == (uint32_t)b && (!sh_life_starts(a) || !sh_life_starts(b)));
}

void sh_msg_sole_set(struct sh_msg *msg, shoal_nid last, uint64_t wait_ns)
{
    SH_ASSERT(last.v < SH_MSG_ALIAS_MIN);
    msg->sole_last = last;
    msg->sole_wait_ns = wait_ns;
}

bool sh_sole_is(const struct sh_msg *msg, shoal_nid nid)
{
    return nid.v && nid.v <= msg->sole_last.v;
}

/* Whether it has to leave the place to the next process of the one that was connected last. */
static bool waits(const struct sh_msg *msg, const struct sh_conn *conn, uint64_t instance,
                  uint64_t now_ns)
{
    const struct sh_sole *sole = &conn->sole;
    return sole->turned_away == instance && !is_same(instance, conn->expected) &&
           sole->lost_ns > sole->turned_ns + msg->sole_wait_ns / GRACE_PART &&
           now_ns < sole->lost_ns + msg->sole_wait_ns;
}

bool sh_sole_meet(struct sh_msg *msg, struct sh_conn *conn, uint64_t instance)
{
    struct sh_sole *sole = &conn->sole;
    uint64_t now_ns = sh_now(&msg->config.env.clock);
    SH_ASSERT(sh_sole_is(msg, conn->nid));
    sh_spin_take(&conn->lock);
    bool is_open = conn->sends_on;
    bool is_it = is_open ? is_same(conn->met, instance) : !waits(msg, conn, instance, now_ns);
    bool is_due =
        is_open && !is_it &&
        (is_same(instance, conn->expected) || sh_life_is_former(conn->met, conn->expected));
    if (is_it) {
        conn->met = instance;
        sole->turned_away = 0;
    } else if (is_open && !is_due && sole->turned_away != instance) {
        sole->turned_away = instance;
        sole->turned_ns = now_ns;
    }
    sh_spin_release(&conn->lock);
    if (is_due) {
        /* release: pairs with the exchange in sh_conn_service */
        atomic_store_explicit(&conn->close_wanted, true, memory_order_release);
        sh_conn_mark_dirty(msg, conn);
    }
    return is_it;
}

void sh_sole_lost(const struct sh_msg *msg, struct sh_conn *conn)
{
    if (sh_sole_is(msg, conn->nid))
        conn->sole.lost_ns = sh_now(&msg->config.env.clock);
}
