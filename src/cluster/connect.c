/* Views and connections. */
#include "cluster/connect.h"

#include <string.h>

#include "base/log.h"
#include "cluster/changes.h"
#include "cluster/directory.h"
#include "cluster/proto.h"

/* A connection to a node in the view of that epoch. */
struct connecting {
    struct sh_msg *msg;
    uint64_t epoch;
};

static void connect_one(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    const struct connecting *connecting = arg;
    struct sh_msg *msg = connecting->msg;
    shoal_nid nid = new ? new->nid : old->nid;
    if (nid.v == sh_msg_nid(msg).v)
        return;
    if (new && (new->state == SH_NODE_LEFT || new->state == SH_NODE_AWAY))
        return; /* it closes its connections itself, and until then is owed its answers */
    if (new &&new->state == SH_NODE_FAILED)
        sh_msg_node_fence(msg, nid, connecting->epoch);
    if (!new || new->state == SH_NODE_FAILED) {
        if (old && old->state != SH_NODE_FAILED)
            sh_msg_node_remove(msg, nid);
        return;
    }
    /* Nothing that is meant for one life goes to another. Of superpeers the view does not tell. */
    if (sh_nid_is_peer(nid))
        sh_msg_node_instance_set(msg, nid, new->instance);
    enum shoal_err err = sh_msg_node_set(msg, nid, new->address);
    if (err)
        SH_WARN("cluster", "can't connect to a node", SH_U64("node", nid.v),
                SH_TEXT("address", new->address), SH_ERR(err));
}

void sh_connect_view(struct sh_msg *msg, const struct sh_view *before, const struct sh_view *after)
{
    struct connecting connecting = {msg, after->epoch};
    sh_msg_epoch_set(msg, after->epoch);
    sh_view_diff(before, after, connect_one, &connecting);
}

enum shoal_err sh_answer_view_get(struct sh_reader *r, uint8_t known_flags, uint8_t *flags_out,
                                  struct sh_view *view_out)
{
    uint8_t flags = sh_get8(r);
    if (!sh_reader_ok(r) || (flags & ~known_flags))
        return SHOAL_EPROTO;
    struct sh_view view = {0};
    if (flags & SH_ANSWER_VIEW) {
        enum shoal_err err = sh_view_get(r, &view);
        if (err)
            return err;
    }
    if (!sh_reader_done(r)) {
        sh_view_destroy(&view);
        return SHOAL_EPROTO;
    }
    if (flags & SH_ANSWER_VIEW) {
        sh_view_destroy(view_out);
        *view_out = view;
    }
    *flags_out = flags;
    return SHOAL_OK;
}

enum shoal_err sh_answer_news_get(struct sh_reader *r, struct sh_directory *directory,
                                  uint8_t *flags_out, struct sh_view *view_out)
{
    struct sh_reader ahead = *r;
    uint8_t flags = sh_get8(&ahead);
    if (!sh_reader_ok(&ahead) || flags != SH_ANSWER_CHANGES)
        return sh_answer_view_get(r, SH_ANSWER_VIEW, flags_out, view_out);
    struct sh_view before = {0}, after = {0};
    enum shoal_err err = sh_directory_view_copy(directory, &before);
    if (!err)
        err = sh_changes_get(&ahead, &before, &after);
    sh_view_destroy(&before);
    bool differs = err == SHOAL_EDIFFERS;
    if ((!err || differs) && !sh_reader_done(&ahead))
        err = SHOAL_EPROTO;
    if (err && err != SHOAL_EDIFFERS) {
        sh_view_destroy(&after);
        return err;
    }
    *flags_out = flags;
    if (!differs) {
        sh_view_destroy(view_out);
        *view_out = after;
    }
    return err;
}

void sh_answer_reason_get(struct sh_reader *payload, char text_out[SH_REASON_BYTES])
{
    size_t size = sh_reader_left(payload);
    size = size < SH_REASON_BYTES - 1 ? size : SH_REASON_BYTES - 1;
    memcpy(text_out, sh_reader_take(payload, size), size);
    text_out[size] = 0;
}
