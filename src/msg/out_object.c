/* Sending objects: into the ring when they fit, else streamed behind their header. */
#include "msg/msg_int.h"

/* --- Senders ------------------------------------------------------------------------------- */

static bool fits(const struct sh_msg *msg, uint64_t payload_bytes)
{
    return SH_MSG_HEADER_BYTES + payload_bytes <= msg->config.ring_bytes;
}

/* Writes the object into the ring, where its message was begun. */
static void write_whole(struct sh_msg *msg, struct sh_object_out *object, struct sh_out *out)
{
    size_t size = (size_t)object->codec.bytes;
    uint8_t *at = sh_writer_take(&out->w, size);
    size_t written = sh_codec_write(&object->codec, object->describe, object->object, at, size);
    SH_ASSERT(written == size);
    sh_msg_end(msg, out);
    object->done(object, SHOAL_OK);
}

static void object_init(struct sh_object_out *object, sh_codec_describe describe, void *what)
{
    SH_ASSERT(object->done && describe);
    object->describe = describe;
    object->object = what;
    object->codec = sh_codec_writer(sh_codec_size(describe, what));
    object->stage = NULL;
    object->stage_at = object->stage_fill = 0;
}

/* Begins a message that is streamed. On success the object belongs to the transport step. */
static enum shoal_err begin_streamed(struct sh_msg *msg, struct sh_conn *conn, enum sh_kind kind,
                                     sh_msg_type type, uint32_t id, struct sh_object_out *object,
                                     uint32_t *generation, struct sh_out *out)
{
    struct sh_block *stage = sh_block_get(msg, SH_BLOCK_BYTES);
    if (!stage)
        return SHOAL_ENOMEM;
    object->stage = stage;
    enum shoal_err err = sh_out_begin_object(msg, conn, kind, type, id, object, generation, out);
    if (err != SHOAL_OK)
        sh_block_release(msg, stage);
    return err;
}

enum shoal_err sh_msg_send_object(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                                  sh_codec_describe describe, void *object,
                                  struct sh_object_out *out)
{
    struct sh_conn *conn;
    struct sh_out begun;
    object_init(out, describe, object);
    uint64_t bytes = out->codec.bytes;
    enum shoal_err err = sh_out_conn(msg, to, bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    if (fits(msg, bytes)) {
        err = sh_msg_begin(msg, to, type, (size_t)bytes, &begun);
        if (err == SHOAL_OK)
            write_whole(msg, out, &begun);
        return err;
    }
    uint32_t generation = 0;
    err = begin_streamed(msg, conn, SH_KIND_MESSAGE, type, 0, out, &generation, &begun);
    if (err == SHOAL_OK)
        sh_msg_end(msg, &begun);
    return err;
}

enum shoal_err sh_msg_request_object(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                                     sh_codec_describe describe, void *object,
                                     struct sh_request *request, struct sh_object_out *out)
{
    SH_ASSERT(request->done != NULL);
    struct sh_conn *conn;
    struct sh_out begun;
    uint32_t id, generation = 0;
    object_init(out, describe, object);
    uint64_t bytes = out->codec.bytes;
    enum shoal_err err = sh_out_conn(msg, to, bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    if (fits(msg, bytes)) {
        err = sh_msg_request(msg, to, type, (size_t)bytes, request, &begun);
        if (err == SHOAL_OK)
            write_whole(msg, out, &begun);
        return err;
    }
    err = sh_requests_reserve(msg, &id);
    if (err != SHOAL_OK)
        return err;
    err = begin_streamed(msg, conn, SH_KIND_REQUEST, type, id, out, &generation, &begun);
    if (err != SHOAL_OK) {
        sh_requests_free(msg, id);
        return err;
    }
    /* Before the header is complete, so that no answer can be faster. */
    sh_requests_arm(msg, id, conn, generation, request);
    sh_msg_end(msg, &begun);
    return SHOAL_OK;
}

enum shoal_err sh_msg_reply_object(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type,
                                   sh_codec_describe describe, void *object,
                                   struct sh_object_out *out)
{
    struct sh_conn *conn;
    struct sh_out begun;
    if (to.id == 0)
        return SHOAL_EINVAL;
    object_init(out, describe, object);
    uint64_t bytes = out->codec.bytes;
    enum shoal_err err = sh_out_conn(msg, to.nid, bytes, &conn);
    if (err != SHOAL_OK)
        return err;
    if (fits(msg, bytes) && out->memory_bytes == 0) {
        err = sh_msg_reply(msg, to, type, (size_t)bytes, &begun);
        if (err == SHOAL_OK)
            write_whole(msg, out, &begun);
        return err;
    }
    err = begin_streamed(msg, conn, SH_KIND_ANSWER, type, to.id, out, &to.generation, &begun);
    if (err == SHOAL_OK)
        sh_msg_end(msg, &begun);
    return err;
}

/* --- The transport step -------------------------------------------------------------------- */

static void object_end(struct sh_msg *msg, struct sh_object_out *object, enum shoal_err err)
{
    sh_block_release(msg, object->stage);
    object->stage = NULL;
    object->done(object, err);
}

struct sh_object_out *sh_objects_take(struct sh_conn *conn)
{
    sh_spin_assert_held(&conn->lock);
    struct sh_object_out *list = conn->objects_first;
    atomic_store_explicit(&conn->objects_bytes, 0, memory_order_relaxed);
    conn->objects_first = conn->objects_last = NULL;
    /* relaxed: under the lock */
    atomic_store_explicit(&conn->objects_count, 0, memory_order_relaxed);
    conn->is_streaming = false;
    return list;
}

void sh_objects_fail(struct sh_msg *msg, struct sh_object_out *list, enum shoal_err err)
{
    while (list) {
        struct sh_object_out *next = list->next;
        object_end(msg, list, err);
        list = next;
    }
}

/* The first object has been sent: what is behind it in the ring is next. */
static void first_remove(struct sh_conn *conn)
{
    sh_spin_take(&conn->lock);
    /* relaxed, both: under the lock */
    atomic_fetch_sub_explicit(&conn->objects_bytes, conn->objects_first->memory_bytes,
                              memory_order_relaxed);
    conn->objects_first = conn->objects_first->next;
    atomic_fetch_sub_explicit(&conn->objects_count, 1, memory_order_relaxed);
    if (!conn->objects_first)
        conn->objects_last = NULL;
    sh_spin_release(&conn->lock);
    conn->is_streaming = false;
}

bool sh_object_push(struct sh_msg *msg, struct sh_conn *conn)
{
    /* Read without the lock: while there is a first one, only this step changes which it is. */
    struct sh_object_out *object = conn->objects_first;
    SH_ASSERT(conn->is_streaming && object && conn->sends_on);
    uint8_t *stage = object->stage->bytes;
    if (object->stage_at == object->stage_fill) {
        object->stage_at = 0;
        object->stage_fill = (uint32_t)sh_codec_write(&object->codec, object->describe,
                                                      object->object, stage, object->stage->room);
    }
    /* As in sh_out_flush: what lies in the stage was read from the object before. */
    if (sh_lease_forbids(msg))
        return false;
    struct sh_bytes bytes = {stage + object->stage_at, object->stage_fill - object->stage_at};
    struct sh_wire *wire = msg->config.env.wire;
    size_t taken = wire->ops->push(wire, conn->sends_on->link, bytes);
    SH_ASSERT(taken <= bytes.size);
    object->stage_at += (uint32_t)taken;
    sh_count_alone(&msg->blocks_out, 1);
    sh_count_alone(&msg->bytes_out, taken);
    sh_count_alone(&conn->blocks_out, 1);
    sh_count_alone(&conn->bytes_out, taken);
    conn->push_blocked = taken < bytes.size;
    sh_spin_take(&conn->lock);
    sh_flow_sent(&conn->flow, taken);
    sh_spin_release(&conn->lock);
    if (taken == bytes.size && sh_codec_is_done(&object->codec)) {
        first_remove(conn);
        object_end(msg, object, SHOAL_OK);
    }
    return true;
}
