/* The handlers of what reads or changes a part of a chunk, or its size. Changes are done at most
 * once (msg/once.h): an addition or a compare-and-put that is sent again must find its own result,
 * not what it has done. All run inline but MULTI_RESIZE; sh_once is the transport step's. */
#include <string.h>

#include "base/assert.h"
#include "node/chunks_int.h"

#define MULTI_AT_ONCE 64

/* --- Reading ------------------------------------------------------------------------------- */

struct part {
    sh_lid lid;
    uint32_t offset;
    uint32_t size;
};

static void part_head_put(struct sh_writer *w, enum shoal_err err, uint32_t chunk_bytes,
                          uint32_t bytes)
{
    sh_put16(w, (uint16_t)err);
    sh_put32(w, err == SHOAL_ESIZE ? chunk_bytes : 0);
    sh_put32(w, bytes);
}

static void part_answer(struct sh_chunks *chunks, struct sh_msg_in *in, enum shoal_err err,
                        const struct part *part, const uint8_t *bytes)
{
    struct sh_out out;
    uint32_t size = err == SHOAL_OK ? part->size : 0;
    uint32_t chunk_bytes = 0;
    if (err == SHOAL_ESIZE && sh_store_size(chunks->store, part->lid, &chunk_bytes) != SHOAL_OK)
        err = SHOAL_ENOCHUNK;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_CHUNKS_PART_HEAD_BYTES + (size_t)size,
                     &out) != SHOAL_OK)
        return;
    part_head_put(&out.w, err, chunk_bytes, size);
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(in->msg, &out);
}

/* Reads a part that is too large for the stack where it is sent from. One whose chunk has become
 * too short since its size was looked at leaves padding. */
static void part_get_large(struct sh_chunks *chunks, struct sh_msg_in *in, const struct part *part)
{
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type,
                     SH_CHUNKS_PART_HEAD_BYTES + (size_t)part->size, &out) != SHOAL_OK)
        return;
    uint8_t *head = sh_writer_take(&out.w, SH_CHUNKS_PART_HEAD_BYTES);
    uint8_t *bytes = sh_writer_take(&out.w, part->size);
    SH_ASSERT(head && bytes);
    uint32_t now = 0;
    enum shoal_err err =
        sh_store_get_part(chunks->store, part->lid, part->offset, bytes, part->size);
    if (err == SHOAL_ESIZE && sh_store_size(chunks->store, part->lid, &now) != SHOAL_OK)
        err = SHOAL_ENOCHUNK;
    if (err != SHOAL_OK)
        memset(bytes, 0, part->size);
    struct sh_writer w = sh_writer_make(head, SH_CHUNKS_PART_HEAD_BYTES);
    part_head_put(&w, err, now, part->size);
    sh_msg_end(in->msg, &out);
}

static void on_get_part(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    uint8_t small[SH_CHUNKS_SMALL_BYTES];
    struct part part;
    uint64_t cid = sh_get64(&in->payload);
    part.offset = sh_get32(&in->payload);
    part.size = sh_get32(&in->payload);
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_done(&in->payload))
        err = sh_chunks_own(chunks, cid, false, &part.lid);
    if (err != SHOAL_OK) {
        sh_chunks_refuse(in, err, NULL);
        return;
    }
    if (part.size <= sizeof small) {
        err = sh_store_get_part(chunks->store, part.lid, part.offset, small, part.size);
        part_answer(chunks, in, err, &part, small);
        return;
    }
    /* Room is taken in the answer only for what is there. */
    uint32_t size = 0;
    err = sh_store_size(chunks->store, part.lid, &size);
    if (err == SHOAL_OK && (part.offset > size || part.size > size - part.offset))
        err = SHOAL_ESIZE;
    if (err == SHOAL_OK)
        part_get_large(chunks, in, &part);
    else
        part_answer(chunks, in, err, &part, small);
}

/* --- Changing, at most once ---------------------------------------------------------------- */

/* What a request asks for; which members count, its type says. */
struct change {
    sh_lid lid;
    uint32_t offset; /* of a part or field */
    uint32_t size;
    uint8_t width;
    uint64_t value; /* to add; a hash */
    struct sh_bytes expected;
    struct sh_bytes data;
};

static struct sh_bytes rest(struct sh_reader *r)
{
    size_t size = sh_reader_left(r);
    return sh_bytes_make(sh_reader_take(r, size), size);
}

/* Reads what follows the chunk's ID; false when it is malformed. */
static bool change_read(sh_msg_type type, struct sh_reader *r, struct change *change)
{
    switch (type) {
    case SH_CHUNKS_PUT_PART_ONCE:
        change->offset = sh_get32(r);
        break;
    case SH_CHUNKS_RESIZE_ONCE:
        change->size = sh_get32(r);
        return sh_reader_done(r);
    case SH_CHUNKS_PUT_IF_ONCE:
        change->expected.size = sh_get32(r);
        change->expected.at = sh_reader_take(r, change->expected.size);
        break;
    case SH_CHUNKS_PUT_HASH_ONCE:
        change->value = sh_get64(r);
        break;
    case SH_CHUNKS_ADD_ONCE:
        change->offset = sh_get32(r);
        change->width = sh_get8(r);
        change->value = sh_get64(r);
        return sh_reader_done(r) && (change->width == 4 || change->width == 8);
    case SH_CHUNKS_FREE_ONCE:
        return sh_reader_done(r);
    default:
        SH_ASSERT(type == SH_CHUNKS_FILL_ONCE);
        break;
    }
    change->data = rest(r);
    return sh_reader_done(r);
}

static enum shoal_err change_do(struct sh_store *store, sh_msg_type type,
                                const struct change *change, uint64_t *old_out)
{
    enum shoal_err err;
    switch (type) {
    case SH_CHUNKS_PUT_PART_ONCE:
        return sh_store_put_part(store, change->lid, change->offset, change->data);
    case SH_CHUNKS_RESIZE_ONCE:
        return sh_store_resize(store, change->lid, change->size);
    case SH_CHUNKS_PUT_IF_ONCE:
        err = sh_store_put_if(store, change->lid, change->expected, change->data);
        return err == SHOAL_EAGAIN ? SHOAL_EDIFFERS : err;
    case SH_CHUNKS_PUT_HASH_ONCE:
        err = sh_store_put_if_hash(store, change->lid, change->value, change->data);
        return err == SHOAL_EAGAIN ? SHOAL_EDIFFERS : err;
    case SH_CHUNKS_ADD_ONCE:
        return sh_store_add(store, change->lid, change->offset, change->width, change->value,
                            old_out);
    case SH_CHUNKS_FILL_ONCE:
        return sh_store_fill(store, change->lid, change->data);
    default:
        SH_ASSERT(type == SH_CHUNKS_FREE_ONCE);
        return sh_store_unreserve(store, change->lid);
    }
}

static void change_answer(struct sh_msg_in *in, uint64_t old)
{
    struct sh_out out;
    if (in->type != SH_CHUNKS_ADD_ONCE) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    } else if (sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out) == SHOAL_OK) {
        sh_put64(&out.w, old);
        sh_msg_end(in->msg, &out);
    }
}

static void on_change(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_once_id id;
    struct sh_once_result result = {.err = SHOAL_OK};
    struct change change = {0};
    enum sh_once_state state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    uint64_t cid = sh_get64(&in->payload);
    enum shoal_err err = SHOAL_EPROTO;
    if (change_read(in->type, &in->payload, &change))
        err = sh_chunks_own(chunks, cid, true, &change.lid);
    if (err != SHOAL_OK && (err == SHOAL_EPROTO || state == SH_ONCE_FIRST)) {
        sh_chunks_refuse_own(in, err);
        return;
    }
    if (state == SH_ONCE_FIRST && in->type == SH_CHUNKS_FILL_ONCE &&
        sh_chunks_creates_refused(chunks)) {
        sh_chunks_refuse(in, SHOAL_ENONODE, SH_CHUNKS_DRAINED_TEXT);
        return;
    }
    if (state == SH_ONCE_FIRST) {
        result.about = cid;
        result.err = change_do(chunks->store, in->type, &change, &result.value);
        /* A chunk that is pinned was left alone: the client asks again under the same number. */
        if (result.err != SHOAL_EBUSY)
            sh_once_end(chunks->once, &id, &result);
    }
    if (result.err == SHOAL_OK)
        change_answer(in, result.value);
    else
        sh_chunks_refuse_store(chunks, in, change.lid, result.err);
}

/* --- Many ---------------------------------------------------------------------------------- */

static void multi_resize_some(struct sh_chunks *chunks, struct sh_reader *r, size_t count,
                              struct sh_writer *w)
{
    struct sh_store_op ops[MULTI_AT_ONCE];
    enum shoal_err owns[MULTI_AT_ONCE];
    size_t mine = 0, next = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t cid = sh_get64(r);
        uint32_t size = sh_get32(r);
        sh_lid lid;
        owns[i] = sh_chunks_own(chunks, cid, true, &lid);
        if (owns[i] == SHOAL_OK)
            ops[mine++] = (struct sh_store_op){.lid = lid, .size = size};
    }
    (void)sh_store_resize_multi(chunks->store, ops, mine);
    for (size_t i = 0; i < count; i++)
        sh_put16(w, (uint16_t)(owns[i] == SHOAL_OK ? ops[next++].err : owns[i]));
}

static void run_multi_resize(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    size_t left = sh_reader_left(&in->payload);
    size_t count = left / 12;
    struct sh_out out;
    if (left % 12 != 0 || count > SH_CHUNKS_MANY_MAX) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a multi-resize is chunk IDs and sizes, 12 bytes each");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, count * 2, &out) != SHOAL_OK)
        return;
    for (size_t i = 0; i < count; i += MULTI_AT_ONCE) {
        size_t some = count - i < MULTI_AT_ONCE ? count - i : MULTI_AT_ONCE;
        multi_resize_some(chunks, &in->payload, some, &out.w);
    }
    sh_msg_end(in->msg, &out);
}

static void on_multi_resize(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    unsigned entered = sh_holdings_enter(&chunks->holdings);
    run_multi_resize(chunks, in);
    sh_holdings_leave(&chunks->holdings, entered);
}

void sh_fields_register(struct sh_chunks *chunks)
{
    static const sh_msg_type changes[] = {
        SH_CHUNKS_PUT_PART_ONCE, SH_CHUNKS_RESIZE_ONCE, SH_CHUNKS_PUT_IF_ONCE,
        SH_CHUNKS_PUT_HASH_ONCE, SH_CHUNKS_ADD_ONCE,    SH_CHUNKS_FILL_ONCE,
        SH_CHUNKS_FREE_ONCE,
    };
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        sh_msg_handler_set(chunks->msg, changes[i], SH_MSG_INLINE, on_change, chunks);
        sh_msg_prefetch_set(chunks->msg, changes[i], sh_chunks_prefetch_once);
    }
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_GET_PART, SH_MSG_INLINE, on_get_part, chunks);
    sh_msg_prefetch_set(chunks->msg, SH_CHUNKS_GET_PART, sh_chunks_prefetch);
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_MULTI_RESIZE, SH_MSG_POOLED, on_multi_resize, chunks);
}
