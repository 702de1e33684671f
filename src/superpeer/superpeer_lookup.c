/* How a superpeer answers questions about where chunks are. */
#include "base/assert.h"
#include "base/node_ids.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

static void range_put(struct sh_writer *w, const struct sh_range *range)
{
    sh_put64(w, range->first.v);
    sh_put64(w, range->last.v);
    sh_put16(w, (uint16_t)range->value);
}

static bool is_peer(const struct sh_range *range)
{
    return range->value >= SH_PEER_NID_MIN && range->value <= SH_PEER_NID_MAX;
}

/* Says in a range, as an answer does, who has it. False: that is not known. */
static bool holder_set(const struct sh_superpeer *superpeer, struct sh_range *range)
{
    enum shoal_err err = sh_superpeer_moves_holder(superpeer, range);
    if (err)
        range->value = err == SHOAL_EFAILED ? SH_LOOKUP_FAILED : SH_LOOKUP_NOBODY;
    return err != SHOAL_EBUSY;
}

/* A node that asks for one chunk of a creator will ask for others of the same creator. So the answer
 * holds the chunk's range and the ranges behind it, as many as fit into a packet: a client that touches
 * all chunks asks once for each 64 ranges. Ranges that no node has are told too, but only where that is
 * known for sure, in a view at least as new as the asker's. */
void sh_superpeer_lookup_answer(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                                shoal_cid cid, uint64_t epoch, const struct sh_range *range)
{
    struct sh_range ranges[SH_LOOKUP_RANGES_MAX];
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    bool is_sure = epoch <= sh_registry_view(superpeer->registry)->epoch;
    if (range) {
        ranges[0] = *range;
    } else {
        ranges[0] = sh_metadata_find(metadata, cid);
        bool is_known = holder_set(superpeer, &ranges[0]);
        SH_ASSERT(is_sure && is_known);
    }
    size_t count = 1;
    shoal_cid from = {ranges[0].last.v + 1};
    unsigned looks = range && !is_peer(range) ? 0 : 2 * SH_LOOKUP_RANGES_MAX;
    while (looks-- > 0 && count < SH_LOOKUP_RANGES_MAX &&
           shoal_cid_creator(from).v == shoal_cid_creator(cid).v) {
        struct sh_range next = sh_metadata_find(metadata, from);
        from.v = next.last.v + 1;
        if (holder_set(superpeer, &next) && (is_peer(&next) || is_sure))
            ranges[count++] = next;
    }
    SH_ASSERT(count <= SH_LOOKUP_RANGES_MAX);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, count * SH_LOOKUP_ANSWER_BYTES, &out))
        return;
    for (size_t i = 0; i < count; i++)
        range_put(&out.w, &ranges[i]);
    sh_msg_end(in->msg, &out);
}

/* --- The tree -------------------------------------------------------------------------------- */

/* Whether this superpeer may speak for a creator; if it is another one, *other_out is its ID. */
static enum shoal_err tree_check(struct sh_superpeer *superpeer, shoal_cid from,
                                 uint16_t *other_out)
{
    struct sh_range range;
    *other_out = 0;
    enum shoal_err err = SHOAL_EBUSY;
    if (sh_superpeer_shared_is_current(superpeer))
        err = sh_superpeer_lookup(superpeer, from, &range);
    if (!err && !is_peer(&range))
        *other_out = (uint16_t)range.value;
    /* The first ID itself may well be with a node that is no more. */
    bool is_nowhere = err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED;
    shoal_nid creator = shoal_cid_creator(from);
    return is_nowhere && creator.v >= SH_PEER_NID_MIN && creator.v <= SH_PEER_NID_MAX ? SHOAL_OK
                                                                                      : err;
}

/* Whether where a shard's chunks are can no longer change by what came before: all peers have said what
 * they have, each batch is decided that an earlier process of the asker may have asked for, and the asker
 * does not count as gone any more. */
static bool is_final(const struct sh_superpeer *superpeer, unsigned shard, shoal_nid asker)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), asker);
    return node && node->state == SH_NODE_UP &&
           sh_metadata_is_known(superpeer->ring->metadata, shard) &&
           !sh_superpeer_ring_is_deciding(superpeer, shard);
}

static void tree_answer(struct sh_superpeer *superpeer, struct sh_msg_in *in, shoal_cid from)
{
    struct sh_range ranges[SH_TREE_RANGES_MAX];
    size_t count = 0;
    shoal_cid at = from;
    bool is_more = true;
    while (is_more && count < SH_TREE_RANGES_MAX) {
        ranges[count] = sh_metadata_find(superpeer->ring->metadata, at);
        if (!is_peer(&ranges[count]))
            ranges[count].value = SH_LOOKUP_NOBODY;
        at.v = ranges[count++].last.v + 1;
        is_more = shoal_cid_creator(at).v == shoal_cid_creator(from).v;
    }
    SH_ASSERT(count > 0 && count <= SH_TREE_RANGES_MAX);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type,
                     SH_TREE_ANSWER_BYTES + count * SH_LOOKUP_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, is_more);
    for (size_t i = 0; i < count; i++)
        range_put(&out.w, &ranges[i]);
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_tree_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_cid from = {sh_get64(&in->payload)};
    uint16_t other = 0;
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_done(&in->payload))
        err = tree_check(superpeer, from, &other);
    /* A peer goes by the answer for good (node/moves_former.c). A program only shows it. */
    if (!err && !other && sh_nid_is_peer(in->reply_to.nid) &&
        !is_final(superpeer, sh_arc_shard(shoal_cid_creator(from)), in->reply_to.nid))
        err = SHOAL_EBUSY;
    struct sh_out out;
    if (err) {
        sh_msg_reply_error(
            in->msg, in->reply_to, in->type, err,
            err == SHOAL_EBUSY
                ? "a superpeer was restarted, or nodes have yet to say what they have"
                : NULL);
    } else if (!other) {
        tree_answer(superpeer, in, from);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, SH_TREE_ANSWER_BYTES, &out)) {
        sh_put16(&out.w, other);
        sh_put8(&out.w, 0);
        sh_msg_end(in->msg, &out);
    }
}
