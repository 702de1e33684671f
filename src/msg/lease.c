/* The lease under which this end may serve, and the epochs that mark messages.
 *
 * An answer that was made while the lease held may lie in a ring when it runs out, and the process
 * may have been stopped in between. So the transport step looks at the clock before it sends, and
 * when the lease has run out since the last look it gives up all connections, with all that was to
 * be sent over them: whoever waits for an answer learns that it will not come. What comes over new
 * connections is refused, and the refusals are sent.
 *
 * An epoch costs nothing in a message: each side says over a connection which one it knows, first
 * of all and whenever that changes, and what comes behind carries it. */
#include "base/log.h"
#include "msg/msg_int.h"

void sh_lease_init(struct sh_msg *msg)
{
    atomic_init(&msg->lease_ns, SH_NEVER);
    atomic_init(&msg->is_fenced, false);
    atomic_init(&msg->epoch, 0);
}

void sh_msg_lease_set(struct sh_msg *msg, uint64_t until_ns)
{
    /* relaxed: publishes nothing else */
    atomic_store_explicit(&msg->lease_ns, until_ns, memory_order_relaxed);
}

uint64_t sh_msg_lease_ns(const struct sh_msg *msg)
{
    return atomic_load_explicit(&msg->lease_ns, memory_order_relaxed);
}

void sh_msg_lease_spare(struct sh_msg *msg, shoal_nid last)
{
    msg->lease_spares = last;
}

bool sh_msg_is_fenced(const struct sh_msg *msg)
{
    /* relaxed: says nothing of what else is known */
    return atomic_load_explicit(&msg->is_fenced, memory_order_relaxed);
}

void sh_msg_leased_set(struct sh_msg *msg, sh_msg_type type, bool is_leased)
{
    if (sh_handler_of(msg, type))
        sh_handler_add(msg, type)->is_leased = is_leased;
}

static bool is_over(const struct sh_msg *msg, uint64_t now_ns)
{
    /* relaxed: an end that others moved on meanwhile is seen at the next look */
    return now_ns >= atomic_load_explicit(&msg->lease_ns, memory_order_relaxed);
}

bool sh_lease_forbids(const struct sh_msg *msg)
{
    /* relaxed, as above; most ends have no lease, and need no clock */
    if (sh_msg_is_fenced(msg) ||
        atomic_load_explicit(&msg->lease_ns, memory_order_relaxed) == SH_NEVER)
        return false;
    return is_over(msg, sh_now(&msg->config.env.clock));
}

/* Not of the time before the first lease, when nobody expects anything of it yet. */
static void tell_people(struct sh_msg *msg, bool is_fenced, uint64_t now_ns)
{
    uint64_t refused = atomic_load_explicit(&msg->fenced, memory_order_relaxed);
    if (is_fenced) {
        msg->fenced_ns = now_ns;
        msg->fenced_before = refused;
    }
    if (is_fenced && msg->has_served) {
        sh_count(&msg->fences, 1);
        SH_WARN("msg",
                "fenced: the lease has run out, and nothing is served until there is another");
    } else if (!is_fenced && msg->has_served) {
        SH_INFO("msg", "serves again", SH_U64("fenced_ms", (now_ns - msg->fenced_ns) / 1000000),
                SH_U64("refused", refused - msg->fenced_before));
    }
    msg->has_served |= !is_fenced;
}

void sh_lease_look(struct sh_msg *msg)
{
    if (atomic_load_explicit(&msg->lease_ns, memory_order_relaxed) == SH_NEVER &&
        !sh_msg_is_fenced(msg))
        return;
    uint64_t now_ns = sh_now(&msg->config.env.clock);
    bool is_now = is_over(msg, now_ns);
    if (is_now == sh_msg_is_fenced(msg)) {
        msg->has_served |= !is_now;
        return;
    }
    atomic_store_explicit(&msg->is_fenced, is_now, memory_order_relaxed);
    tell_people(msg, is_now, now_ns);
    if (!is_now)
        return;
    struct sh_conn *next;
    /* acquire: pairs with the release where one is made */
    for (struct sh_conn *conn = atomic_load_explicit(&msg->made, memory_order_acquire); conn;
         conn = next) {
        next = conn->made_next;
        if (conn->sends_on && conn->nid.v > msg->lease_spares.v)
            sh_conn_lost(msg, conn, SHOAL_ECONNLOST);
    }
}

/* --- Epochs -------------------------------------------------------------------------------- */

/* Nobody is woken for it: with thousands of nodes each change of the view would be a message over each
 * connection. It is told when there is something else to send. */
void sh_msg_epoch_set(struct sh_msg *msg, uint64_t epoch)
{
    /* relaxed: an older one is told where it is not seen yet, and the next service tells it */
    uint64_t before = atomic_load_explicit(&msg->epoch, memory_order_relaxed);
    do {
        if (epoch <= before)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&msg->epoch, &before, epoch,
                                                    memory_order_relaxed, memory_order_relaxed));
}

void sh_epoch_tell(struct sh_msg *msg, struct sh_conn *conn, bool is_first)
{
    uint64_t epoch = atomic_load_explicit(&msg->epoch, memory_order_relaxed);
    if (!conn->sends_on || conn->is_closing || conn->sends_on->version < 2 ||
        conn->epoch_told == epoch)
        return;
    uint8_t payload[8];
    sh_store64(payload, epoch);
    struct sh_bytes bytes = sh_bytes_make(payload, sizeof payload);
    if (is_first) {
        sh_control_send_first(msg, conn, SH_CONTROL_EPOCH, bytes);
        conn->epoch_told = epoch;
    } else if (sh_control_send(msg, conn, SH_CONTROL_EPOCH, bytes)) {
        conn->epoch_told = epoch;
    }
}

bool sh_epoch_hear(struct sh_conn *conn, struct sh_reader *payload)
{
    uint64_t epoch = sh_get64(payload);
    if (!sh_reader_done(payload))
        return false;
    /* relaxed: handlers of what came behind it have it through their queue */
    atomic_store_explicit(&conn->epoch_heard, epoch, memory_order_relaxed);
    return true;
}

void sh_msg_node_fence(struct sh_msg *msg, shoal_nid nid, uint64_t epoch)
{
    struct sh_conn *conn = sh_conn_make(msg, nid);
    if (!conn)
        return; /* out of memory: no connection is open, and none can be made either */
    uint64_t before = atomic_load_explicit(&conn->epoch_least, memory_order_relaxed);
    while (epoch > before &&
           !atomic_compare_exchange_weak_explicit(&conn->epoch_least, &before, epoch,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
}

bool sh_lease_refuses(struct sh_msg *msg, const struct sh_conn *conn, const struct sh_msg_in *in)
{
    const char *why = NULL;
    /* relaxed: both only rise while a connection lasts, and publish nothing */
    if (sh_msg_is_fenced(msg))
        why = "this node's lease has run out";
    else if (atomic_load_explicit(&conn->epoch_heard, memory_order_relaxed) <
             atomic_load_explicit(&conn->epoch_least, memory_order_relaxed))
        why = "the sender was declared failed and does not know it";
    if (!why)
        return false;
    sh_count(&msg->fenced, 1);
    sh_msg_reply_error(msg, in->reply_to, in->type, SHOAL_EFENCED, why);
    return true;
}
