/* What two ends say to each other about their connection, as one-way messages of module 0:
 * docs/wire-format.md, Module 0. They are handled in the parse step and always find room. */
#include "msg/msg_int.h"

void sh_control_flow(struct sh_msg *msg, struct sh_conn *conn)
{
    uint64_t limit;
    if (!conn->sends_on || conn->is_closing ||
        !sh_flow_limit_due(&conn->flow, sh_share_of(msg, msg->config.flow_window_bytes), &limit))
        return;
    struct sh_out out;
    /* Out of memory: it stays due, and the next message or finished handler tries again. */
    if (sh_out_control(msg, conn, SH_CONTROL_LIMIT, 8, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, limit);
    sh_msg_end(msg, &out);
    sh_flow_told(&conn->flow, limit);
}

static bool on_limit(struct sh_msg *msg, struct sh_conn *conn, struct sh_reader *payload)
{
    uint64_t limit = sh_get64(payload);
    if (!sh_reader_done(payload))
        return false;
    sh_spin_take(&conn->lock);
    bool is_open_again = sh_flow_limit_set(&conn->flow, limit);
    sh_large_settle(msg, conn);
    sh_spin_release(&conn->lock);
    if (is_open_again)
        sh_out_room_changed(conn);
    return true;
}

void sh_control_receive(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                        struct sh_bytes payload)
{
    struct sh_reader r = sh_reader_make(payload);
    bool is_understood = false;
    switch (control) {
    case SH_CONTROL_LIMIT:
        is_understood = on_limit(msg, conn, &r);
        break;
    case SH_CONTROL_BEAT:
        is_understood = sh_reader_done(&r);
        break;
    case SH_CONTROL_CLOSE:
    case SH_CONTROL_CLOSED:
    case SH_CONTROL_KEEP:
        is_understood = sh_reader_done(&r);
        if (is_understood) {
            /* Later in this round: the stream that is being read may end by it. */
            conn->close_heard |= 1u << control;
            /* Except for this: the answer that is expected may be right behind the CLOSE. */
            if (atomic_load_explicit(&conn->awaited, memory_order_acquire) > 0)
                conn->close_heard |= SH_CLOSE_AWAITED;
            sh_conn_mark_dirty(msg, conn);
        }
        break;
    }
    if (!is_understood) {
        SH_DEBUG("msg", "control message not understood", SH_U64("control", control),
                 SH_U64("nid", conn->nid.v));
        sh_count(&msg->dropped, 1);
    }
}
