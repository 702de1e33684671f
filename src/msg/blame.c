/* Naming who is refused or cut off. Strangers may try as often as they like, so each kind of line
 * has a bound on its rate, and says how many were left out. */
#include <string.h>

#include "msg/msg_int.h"

/* Where the other end of a stream is: what we dialled, or what the wire knows. */
static void address_of(struct sh_msg *msg, const struct sh_stream *stream, char *out)
{
    struct sh_conn *conn = stream->is_dialled ? stream->conn : NULL;
    _Static_assert(SH_MSG_ADDRESS_MAX == SH_WIRE_ADDRESS_MAX, "both are texts of addresses");
    if (!conn) {
        sh_wire_peer(msg->config.env.wire, stream->link, out);
        return;
    }
    sh_spin_take(&conn->lock);
    memcpy(out, conn->address, SH_MSG_ADDRESS_MAX);
    sh_spin_release(&conn->lock);
}

/* Who it is, or says that it is; 0: nobody knows. */
static uint16_t nid_of(const struct sh_stream *stream)
{
    if (stream->conn)
        return stream->conn->nid.v;
    return stream->state == SH_STREAM_WAIT_PROOF ? sh_hello_nid(stream).v : 0;
}

void sh_stream_blame(struct sh_msg *msg, const struct sh_stream *stream, enum shoal_err err)
{
    bool was_ready = stream->state == SH_STREAM_READY || stream->state == SH_STREAM_LINGERS;
    bool is_blamed =
        was_ready ? err == SHOAL_EPROTO : err != SHOAL_EUNREACHABLE && err != SHOAL_ECONNLOST;
    if (!is_blamed)
        return;
    if (!was_ready)
        sh_count(&msg->refused, 1);
    uint64_t now_ns = sh_now(&msg->config.env.clock), left_out;
    if (!sh_rate_allows(was_ready ? &msg->cut_offs : &msg->refusals, now_ns, &left_out))
        return;
    char address[SH_MSG_ADDRESS_MAX];
    address_of(msg, stream, address);
    SH_WARN("msg", was_ready ? "garbage received: connection cut off" : "connection refused",
            SH_TEXT("address", address), SH_U64("nid", nid_of(stream)),
            SH_TEXT("opened_by", stream->is_dialled ? "us" : "them"), SH_ERR(err),
            SH_U64("left_out", left_out));
}
