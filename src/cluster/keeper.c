/* A peer's copies of names. */
#include "cluster/keeper.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "metadata/namechunk.h"
#include "ring/arcs.h"

struct list {
    uint64_t number; /* 0: none */
    uint64_t incarnation;
    size_t size, room;
    uint8_t *bytes;
};

struct sh_keeper {
    struct list kept[SH_SHARDS];
    struct list coming[SH_SHARDS];
    struct list loaded[SH_SHARDS];
    uint64_t changes;
};

static void refuse(struct sh_msg_in *in, enum shoal_err err)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
}

static void list_clear(struct list *list)
{
    free(list->bytes);
    *list = (struct list){0};
}

static enum shoal_err list_append(struct list *list, struct sh_bytes bytes)
{
    if (bytes.size > SH_KEEPER_BYTES_MAX - list->size)
        return SHOAL_ETOOBIG;
    if (list->size + bytes.size > list->room) {
        size_t room = 2 * (list->size + bytes.size);
        uint8_t *more = realloc(list->bytes, room);
        if (!more)
            return SHOAL_ENOMEM;
        list->bytes = more;
        list->room = room;
    }
    if (bytes.size)
        memcpy(list->bytes + list->size, bytes.at, bytes.size);
    list->size += bytes.size;
    return SHOAL_OK;
}

/* A superpeer, and others, have what is in a list, unless it is another one by now. */
static void list_forget(struct sh_keeper *keeper, unsigned shard, uint64_t number)
{
    struct list *list = number & SH_KEEP_LOADED_BIT ? &keeper->loaded[shard] : &keeper->kept[shard];
    if (list->number != number)
        return;
    list_clear(list);
    keeper->changes++;
}

/* Takes a piece; *other_out: the number of a list that stays instead, or 0. */
static enum shoal_err keep(struct sh_keeper *keeper, struct sh_reader *r, uint64_t *other_out)
{
    unsigned shard = sh_get8(r);
    unsigned flags = sh_get8(r);
    uint64_t number = sh_get64(r);
    uint64_t incarnation = sh_get64(r);
    uint64_t base = sh_get64(r);
    size_t size = sh_reader_left(r);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    bool is_taken = flags == SH_KEEP_TAKEN;
    if (!sh_reader_done(r) || shard >= SH_SHARDS || !number ||
        (!is_taken && number & SH_KEEP_LOADED_BIT) ||
        (!is_taken && (flags > (SH_KEEP_FIRST | SH_KEEP_LAST) || base >= number)))
        return SHOAL_EPROTO;
    if (is_taken) {
        list_forget(keeper, shard, number);
        return SHOAL_OK;
    }
    struct list *coming = &keeper->coming[shard], *kept = &keeper->kept[shard];
    bool is_same = kept->incarnation == incarnation;
    if (kept->number && (is_same ? kept->number > number : kept->number > base)) {
        /* In the same history it is another superpeer that is behind: it owns the shard no more.
         */
        *other_out = kept->number;
        return is_same ? SHOAL_EAGAIN : SHOAL_OK;
    }
    if (flags & SH_KEEP_FIRST) {
        list_clear(coming);
        coming->number = number;
        coming->incarnation = incarnation;
    }
    if (coming->number != number || coming->incarnation != incarnation)
        return SHOAL_EAGAIN; /* another superpeer has begun anew meanwhile */
    enum shoal_err err = list_append(coming, bytes);
    if (err) {
        list_clear(coming);
        return err;
    }
    if (!(flags & SH_KEEP_LAST))
        return SHOAL_OK;
    list_clear(kept);
    *kept = *coming;
    *coming = (struct list){0};
    keeper->changes++;
    return SHOAL_OK;
}

static void on_keep(void *arg, struct sh_msg_in *in)
{
    enum shoal_err err = SHOAL_EROLE;
    uint64_t other = 0;
    struct sh_out out;
    if (in->reply_to.nid.v && in->reply_to.nid.v <= SH_SUPERPEERS_MAX)
        err = keep(arg, &in->payload, &other);
    if (err) {
        refuse(in, err);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out)) {
        sh_put64(&out.w, other);
        sh_msg_end(in->msg, &out);
    }
}

static void on_kept(void *arg, struct sh_msg_in *in)
{
    const struct sh_keeper *keeper = arg;
    unsigned shard = sh_get8(&in->payload);
    uint64_t number = sh_get64(&in->payload);
    uint32_t offset = sh_get32(&in->payload);
    struct sh_out out;
    if (!sh_reader_done(&in->payload) || (number && shard >= SH_SHARDS)) {
        refuse(in, SHOAL_EPROTO);
        return;
    }
    if (!number) {
        if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_KEPT_BYTES, &out))
            return;
        for (unsigned i = 0; i < SH_SHARDS; i++) {
            sh_put64(&out.w, keeper->kept[i].number);
            sh_put64(&out.w, keeper->kept[i].incarnation);
            sh_put64(&out.w, keeper->loaded[i].number);
        }
        sh_msg_end(in->msg, &out);
        return;
    }
    const struct list *list =
        number & SH_KEEP_LOADED_BIT ? &keeper->loaded[shard] : &keeper->kept[shard];
    if (list->number != number || offset > list->size) {
        refuse(in, SHOAL_EAGAIN);
        return;
    }
    size_t size = list->size - offset;
    if (size > SH_KEEPER_PIECE_BYTES)
        size = SH_KEEPER_PIECE_BYTES;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 4 + size, &out))
        return;
    sh_put32(&out.w, (uint32_t)list->size);
    sh_put_raw(&out.w, sh_bytes_make(size ? list->bytes + offset : NULL, size));
    sh_msg_end(in->msg, &out);
}

/* --- The chunk ------------------------------------------------------------------------------- */

uint64_t sh_keeper_changes(const struct sh_keeper *keeper)
{
    return keeper->changes;
}

size_t sh_keeper_chunk_size(const struct sh_keeper *keeper)
{
    size_t size = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        size += keeper->kept[i].size + keeper->loaded[i].size;
    return size ? SH_NAME_CHUNK_HEAD_BYTES + size : 0;
}

void sh_keeper_chunk_put(const struct sh_keeper *keeper, shoal_nid nid, uint8_t *bytes)
{
    size_t size = sh_keeper_chunk_size(keeper);
    uint8_t *at = bytes + SH_NAME_CHUNK_HEAD_BYTES;
    /* Before the loaded ones: the first of two counts. */
    for (unsigned i = 0; i < 2 * SH_SHARDS; i++) {
        const struct list *list = i < SH_SHARDS ? &keeper->kept[i] : &keeper->loaded[i - SH_SHARDS];
        if (list->size)
            memcpy(at, list->bytes, list->size);
        at += list->size;
    }
    SH_ASSERT(at == bytes + size);
    sh_name_chunk_head(bytes, size, nid);
}

enum shoal_err sh_keeper_chunk_load(struct sh_keeper *keeper, shoal_nid nid, struct sh_bytes chunk)
{
    uint8_t entry[SH_NAME_ENTRY_HEAD_BYTES + SH_NAME_BYTES_MAX];
    struct sh_bytes entries, name;
    shoal_nid was;
    shoal_cid cid;
    enum shoal_err err = sh_name_chunk_get(chunk, &was, &entries);
    if (err)
        return err;
    struct sh_reader r = sh_reader_make(entries);
    while (!err && sh_name_entry_get(&r, &cid, &name)) {
        struct list *list = &keeper->loaded[sh_arc_shard_of_name(name)];
        struct sh_writer w = sh_writer_make(entry, sizeof entry);
        sh_put64(&w, sh_name_entry_renamed(cid, was, nid).v);
        sh_put_text(&w, name);
        struct sh_bytes bytes = sh_bytes_make(entry, (size_t)(w.at - entry));
        err = list_append(list, bytes);
        /* Another one than any that was loaded before. */
        list->number = (sh_hash64(bytes, list->number) ^ list->size) | SH_KEEP_LOADED_BIT;
    }
    keeper->changes++;
    return err;
}

enum shoal_err sh_keeper_create(struct sh_msg *msg, struct sh_keeper **keeper_out)
{
    struct sh_keeper *keeper = calloc(1, sizeof *keeper);
    if (!keeper)
        return SHOAL_ENOMEM;
    sh_msg_handler_set(msg, SH_CLUSTER_KEEP, SH_MSG_INLINE, on_keep, keeper);
    sh_msg_handler_set(msg, SH_CLUSTER_KEPT, SH_MSG_INLINE, on_kept, keeper);
    *keeper_out = keeper;
    return SHOAL_OK;
}

void sh_keeper_destroy(struct sh_keeper *keeper)
{
    for (unsigned i = 0; keeper && i < SH_SHARDS; i++) {
        list_clear(&keeper->kept[i]);
        list_clear(&keeper->coming[i]);
        list_clear(&keeper->loaded[i]);
    }
    free(keeper);
}
