/* A peer's copies of names. */
#include "cluster/keeper.h"

#include <stdlib.h>
#include <string.h>

#include "cluster/arcs.h"
#include "cluster/proto.h"

struct list {
    uint64_t number; /* 0: none */
    uint64_t incarnation;
    size_t size, room;
    uint8_t *bytes;
};

struct sh_keeper {
    struct list kept[SH_SECTORS];
    struct list coming[SH_SECTORS];
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

/* Takes a piece; *other_out: the number of a list that stays instead, or 0. */
static enum shoal_err keep(struct sh_keeper *keeper, struct sh_reader *r, uint64_t *other_out)
{
    unsigned sector = sh_get8(r);
    unsigned flags = sh_get8(r);
    uint64_t number = sh_get64(r);
    uint64_t incarnation = sh_get64(r);
    uint64_t base = sh_get64(r);
    size_t size = sh_reader_left(r);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    if (!sh_reader_done(r) || sector >= SH_SECTORS || flags > (SH_KEEP_FIRST | SH_KEEP_LAST) ||
        !number || base >= number)
        return SHOAL_EPROTO;
    struct list *coming = &keeper->coming[sector], *kept = &keeper->kept[sector];
    bool is_same = kept->incarnation == incarnation;
    if (kept->number && (is_same ? kept->number > number : kept->number > base)) {
        /* In the same history it is another superpeer that is behind: it owns the sector no more.
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
    unsigned sector = sh_get8(&in->payload);
    uint64_t number = sh_get64(&in->payload);
    uint32_t offset = sh_get32(&in->payload);
    struct sh_out out;
    if (!sh_reader_done(&in->payload) || (number && sector >= SH_SECTORS)) {
        refuse(in, SHOAL_EPROTO);
        return;
    }
    if (!number) {
        if (sh_msg_reply(in->msg, in->reply_to, in->type, 8 * SH_SECTORS, &out))
            return;
        for (unsigned i = 0; i < SH_SECTORS; i++)
            sh_put64(&out.w, keeper->kept[i].number);
        sh_msg_end(in->msg, &out);
        return;
    }
    const struct list *list = &keeper->kept[sector];
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
    for (unsigned i = 0; keeper && i < SH_SECTORS; i++) {
        list_clear(&keeper->kept[i]);
        list_clear(&keeper->coming[i]);
    }
    free(keeper);
}
