#include "msg/bulk.h"

#include <stddef.h>
#include <stdlib.h>

#include "msg/msg_int.h"

struct sh_bulk {
    struct sh_object_out out; /* when it is streamed */
    struct sh_msg *msg;
    struct sh_block *block; /* where its bytes lie; of more than 1 MiB: a mapping */
    size_t bytes;
    size_t released; /* bytes that have been given back */
    struct sh_writer w;
};

enum shoal_err sh_bulk_open(struct sh_msg *msg, size_t bytes, struct sh_bulk **bulk_out)
{
    if (bytes > msg->config.payload_bytes_max)
        return SHOAL_ETOOBIG;
    struct sh_bulk *bulk = malloc(sizeof *bulk);
    struct sh_block *block = bulk ? sh_block_get(msg, bytes) : NULL;
    if (!block) {
        free(bulk);
        return SHOAL_ENOMEM;
    }
    *bulk = (struct sh_bulk){.msg = msg, .block = block, .bytes = bytes};
    bulk->w = sh_writer_make(block->bytes, bytes);
    *bulk_out = bulk;
    return SHOAL_OK;
}

struct sh_writer *sh_bulk_writer(struct sh_bulk *bulk)
{
    return &bulk->w;
}

void sh_bulk_drop(struct sh_bulk *bulk)
{
    if (!bulk)
        return;
    sh_block_release(bulk->msg, bulk->block);
    free(bulk);
}

/* What has been passed is on its way and lies in the stage, or further on. */
static void describe(struct sh_codec *c, void *object)
{
    struct sh_bulk *bulk = object;
    if (c->mode == SH_CODEC_WRITE)
        bulk->released += sh_block_release_some(bulk->block, bulk->released, c->passed);
    sh_codec_bytes(c, bulk->block->bytes, bulk->bytes);
}

static void streamed(struct sh_object_out *out, enum shoal_err err)
{
    (void)err; /* the asker is gone */
    sh_bulk_drop(out->arg);
}

void sh_bulk_reply(struct sh_bulk *bulk, struct sh_reply_to to, sh_msg_type type, bool is_read)
{
    struct sh_out out;
    struct sh_msg *msg = bulk->msg;
    enum shoal_err err;
    SH_ASSERT(bulk->w.at == bulk->w.end && sh_writer_ok(&bulk->w));
    if (bulk->bytes > SH_BLOCK_BYTES) {
        bulk->out = (struct sh_object_out){
            .done = streamed, .arg = bulk, .memory_bytes = bulk->block->room};
        err = sh_msg_reply_object(msg, to, type, describe, bulk, &bulk->out);
        if (err == SHOAL_OK)
            return;
    } else {
        err = sh_msg_reply(msg, to, type, bulk->bytes, &out);
        if (err == SHOAL_OK) {
            sh_put_raw(&out.w, sh_bytes_make(bulk->block->bytes, bulk->bytes));
            sh_msg_end(msg, &out);
        }
    }
    sh_bulk_drop(bulk);
    if (err == SHOAL_ENOMEM && is_read)
        sh_msg_reply_error(msg, to, type, err, NULL);
}

void *sh_scratch_take(struct sh_msg *msg, size_t bytes)
{
    SH_ASSERT(bytes > 0 && bytes <= INT32_MAX);
    struct sh_block *block = sh_block_get(msg, bytes);
    return block ? block->bytes : NULL;
}

void sh_scratch_give(struct sh_msg *msg, void *scratch)
{
    if (scratch)
        sh_block_release(msg, (void *)((uint8_t *)scratch - offsetof(struct sh_block, bytes)));
}
