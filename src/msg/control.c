/* What two ends say to each other about their connection, as one-way messages of module 0:
 * docs/wire-format.md, Module 0. They are handled in the parse step and always find room. */
#include "msg/msg_int.h"

/* Sends a control message beside the ring, in which nothing is complete. */
static void send_beside(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                        struct sh_bytes payload)
{
    uint8_t message[SH_MSG_HEADER_BYTES + SH_CONTROL_PAYLOAD_MAX] = {0};
    size_t size = SH_MSG_HEADER_BYTES + payload.size;
    sh_store32(message, (uint32_t)payload.size);
    sh_store16(message + 4, SH_MSG_TYPE(0, control));
    if (payload.size > 0)
        memcpy(message + SH_MSG_HEADER_BYTES, payload.at, payload.size);
    sh_spin_take(&conn->lock);
    sh_flow_sent(&conn->flow, size);
    sh_spin_release(&conn->lock);
    sh_count(&msg->messages_out, 1);
    sh_count_alone(&msg->bytes_out, size);
    sh_count_alone(&conn->bytes_out, size);
    sh_stream_control(msg, conn->sends_on, sh_bytes_make(message, size));
}

void sh_control_send_first(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                           struct sh_bytes payload)
{
    SH_ASSERT(payload.size <= SH_CONTROL_PAYLOAD_MAX);
    send_beside(msg, conn, control, payload);
}

bool sh_control_send(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                     struct sh_bytes payload)
{
    struct sh_out out;
    SH_ASSERT(payload.size <= SH_CONTROL_PAYLOAD_MAX);
    if (sh_out_is_between(conn)) {
        send_beside(msg, conn, control, payload);
        return true;
    }
    if (sh_out_control(msg, conn, control, payload.size, &out) != SHOAL_OK)
        return false;
    sh_put_raw(&out.w, payload);
    sh_msg_end(msg, &out);
    return true;
}

void sh_control_flow(struct sh_msg *msg, struct sh_conn *conn)
{
    uint64_t limit;
    if (!conn->sends_on || conn->is_closing ||
        !sh_flow_limit_due(&conn->flow, sh_share_of(msg, msg->config.flow_window_bytes), &limit))
        return;
    uint8_t payload[8];
    sh_store64(payload, limit);
    /* Out of memory: it stays due, and the next message or finished handler tries again. */
    if (sh_control_send(msg, conn, SH_CONTROL_LIMIT, sh_bytes_make(payload, sizeof payload)))
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
    case SH_CONTROL_EPOCH:
        is_understood = sh_epoch_hear(conn, &r);
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
