/* Messages with a description: decoded into the receiver's object, whole or while they come. */
#include "msg/msg_int.h"

/* Shorter ones that are cut are waited for, and joined by copying their first part. */
#define PARTIAL_BYTES_MIN 4096

void sh_msg_object_set(struct sh_msg *msg, sh_msg_type type, enum sh_msg_mode mode,
                       sh_codec_describe describe, sh_msg_object_begin begin,
                       sh_msg_object_done done, void *arg)
{
    SH_ASSERT(describe && begin && done);
    *sh_handler_add(msg, type) = (struct sh_handler_entry){
        .describe = describe, .begin = begin, .done = done, .arg = arg, .mode = mode};
}

/* The object for a message; NULL: it is refused, and the asker knows. */
static void *object_begin(const struct sh_handler_entry *entry, const struct sh_msg_in *in,
                          uint64_t payload_bytes)
{
    void *object = entry->begin(entry->arg, in, (size_t)payload_bytes);
    if (!object)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOMEM, NULL);
    return object;
}

void sh_object_receive(const struct sh_handler_entry *entry, struct sh_msg_in *in)
{
    struct sh_bytes payload = {in->payload.at, sh_reader_left(&in->payload)};
    in->payload = sh_reader_make((struct sh_bytes){payload.at, 0});
    void *object = object_begin(entry, in, payload.size);
    if (!object)
        return;
    struct sh_codec codec = sh_codec_reader(payload.size);
    enum shoal_err err = sh_codec_read(&codec, entry->describe, object, payload);
    entry->done(entry->arg, in, object, err);
}

/* Begins with an answer, if who awaits it has a description for it, or nobody awaits it. */
static bool answer_begin(struct sh_msg *msg, struct sh_stream *stream, uint32_t id,
                         uint64_t payload_bytes)
{
    struct sh_partial *partial = &stream->partial;
    *partial = (struct sh_partial){
        .id = id, .left = payload_bytes, .codec = sh_codec_reader(payload_bytes)};
    partial->is_active = sh_requests_answer_begin(msg, stream->conn->nid, partial);
    return partial->is_active;
}

bool sh_partial_begin(struct sh_msg *msg, struct sh_stream *stream, enum sh_kind kind,
                      sh_msg_type type, uint32_t id, uint64_t payload_bytes)
{
    struct sh_partial *partial = &stream->partial;
    SH_ASSERT(!partial->is_active);
    if (payload_bytes < PARTIAL_BYTES_MIN || kind == SH_KIND_ERROR)
        return false;
    if (kind == SH_KIND_ANSWER)
        return answer_begin(msg, stream, id, payload_bytes);
    struct sh_handler_entry *entry = sh_handler_of(msg, type);
    if (!entry || !entry->describe)
        return false;
    *partial = (struct sh_partial){
        .is_active = true,
        .entry = entry,
        .in = sh_msg_in_make(msg, stream->conn, kind, type, id, sh_bytes_text("")),
        .left = payload_bytes,
        .codec = sh_codec_reader(payload_bytes),
    };
    if (!entry->is_leased || !sh_lease_refuses(msg, stream->conn, &partial->in))
        partial->object = object_begin(entry, &partial->in, payload_bytes);
    return true;
}

size_t sh_partial_feed(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes)
{
    struct sh_partial *partial = &stream->partial;
    SH_ASSERT(partial->is_active);
    if (bytes.size > partial->left)
        bytes.size = (size_t)partial->left;
    if (bytes.size > 0 && !partial->entry)
        sh_requests_answer_feed(msg, stream->conn->nid, partial, bytes);
    else if (bytes.size > 0 && partial->object && partial->err == SHOAL_OK)
        partial->err =
            sh_codec_read(&partial->codec, partial->entry->describe, partial->object, bytes);
    partial->left -= bytes.size;
    return bytes.size;
}

bool sh_partial_end(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_partial *partial = &stream->partial;
    struct sh_handler_entry *entry = partial->entry;
    SH_ASSERT(partial->is_active && partial->left == 0);
    if (!entry) {
        partial->is_active = false;
        sh_requests_answer_end(msg, stream->conn->nid, partial);
        sh_message_done(msg, &msg->part_times[SH_MSG_PART_ANSWER]);
        return true;
    }
    if (partial->object && entry->mode == SH_MSG_INLINE) {
        entry->done(entry->arg, &partial->in, partial->object, partial->err);
        sh_message_done(msg, &entry->time);
    } else if (partial->object) {
        struct sh_work work = {.conn = stream->conn,
                               .in = partial->in,
                               .object = partial->object,
                               .err = partial->err};
        if (!sh_work_add(msg, &work, entry->mode))
            return false;
    }
    partial->is_active = false;
    return true;
}

void sh_partial_drop(struct sh_msg *msg, struct sh_stream *stream)
{
    struct sh_partial *partial = &stream->partial;
    const struct sh_handler_entry *entry = partial->entry;
    bool was_active = partial->is_active;
    partial->is_active = false;
    if (!was_active || !entry || !partial->object)
        return;
    /* relaxed: stopping is only a hint here */
    bool is_stopping = atomic_load_explicit(&msg->is_stopping, memory_order_relaxed);
    entry->done(entry->arg, &partial->in, partial->object,
                is_stopping ? SHOAL_ESTOPPED : SHOAL_ECONNLOST);
}
