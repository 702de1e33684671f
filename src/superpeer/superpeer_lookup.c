/* How a superpeer answers questions about where chunks are. */
#include "base/assert.h"
#include "base/node_ids.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"
#include "superpeer/superpeer_shared_int.h"

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

/* Says in *range_out, as an answer does, who has a range. False: that is not known. */
static bool holder_set(const struct sh_superpeer *superpeer, const struct sh_metadata_range *noted,
                       struct sh_range *range_out)
{
    enum shoal_err err = sh_superpeer_moves_holder(superpeer, noted);
    *range_out = (struct sh_range){noted->first, noted->last,
                                   !err                   ? noted->note.owner.v
                                   : err == SHOAL_EFAILED ? SH_LOOKUP_FAILED
                                   : err == SHOAL_ELOST   ? SH_LOOKUP_LOST
                                                          : SH_LOOKUP_NOBODY};
    return err != SHOAL_EBUSY;
}

/* --- Lookups ----------------------------------------------------------------------------------
 *
 * A superpeer says that no node has a chunk only if that is so in the registry as it is: since this superpeer heard
 * from the leader last, the chunk's node may have joined and made the chunk, and the asker may have the
 * chunk's ID from a client that knows it. So the answer waits until the leader has answered a report that
 * this superpeer sent after the question came (Raft's ReadIndex, Ongaro 6.4):
 *
 *   LOOKUP --> a node that is up, or failed: answered at once
 *          --> no node: waits --a report since then is answered--> looked up anew, and answered
 *                             --none is for failure_ns-----------> EBUSY
 *
 * A follower sends that report at once, so the wait is a round trip; at the leader it is until the next heartbeat. And
 * only chunks whose creator is gone are waited for: a node that is up says itself that it lacks a chunk. */

/* A node that asks for one chunk of a creator will ask for others of the same creator. So the answer
 * holds the chunk's range and the ranges behind it, as many as fit into a packet: a client that touches
 * all chunks asks once for each 64 ranges. Ranges that no node has are told too, but only where that is
 * known as of the question, and failed ones in a view at least as new as the asker's. */
static void answer(struct sh_superpeer *superpeer, const struct sh_waiting_lookup *ask,
                   const struct sh_range *found, bool is_fresh)
{
    struct sh_range ranges[SH_LOOKUP_RANGES_MAX] = {*found};
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    bool is_sure = ask->epoch <= sh_registry_view(superpeer->registry)->epoch;
    size_t count = 1;
    shoal_cid from = {found->last.v + 1};
    bool is_elsewhere = found->value && found->value < SH_PEER_NID_MIN; /* a superpeer knows */
    unsigned looks = is_elsewhere ? 0 : 2 * SH_LOOKUP_RANGES_MAX;
    while (looks-- > 0 && count < SH_LOOKUP_RANGES_MAX &&
           shoal_cid_creator(from).v == shoal_cid_creator(ask->cid).v) {
        struct sh_metadata_range noted = sh_metadata_find(metadata, from);
        struct sh_range next;
        from.v = noted.last.v + 1;
        bool is_known = holder_set(superpeer, &noted, &next);
        if (is_known && (is_peer(&next) || (is_sure && (is_fresh || next.value))))
            ranges[count++] = next;
    }
    SH_ASSERT(count <= SH_LOOKUP_RANGES_MAX);
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, ask->reply_to, SH_CLUSTER_LOOKUP,
                     count * SH_LOOKUP_ANSWER_BYTES, &out))
        return;
    for (size_t i = 0; i < count; i++)
        range_put(&out.w, &ranges[i]);
    sh_msg_end(superpeer->msg, &out);
}

static void lookup_refuse(struct sh_superpeer *superpeer, const struct sh_waiting_lookup *ask,
                          enum shoal_err err, const char *text)
{
    sh_msg_reply_error(superpeer->msg, ask->reply_to, SH_CLUSTER_LOOKUP, err, text);
}

/* Whether a peer of that ID may have made the chunk, and its absence is an answer. */
static bool is_gap(shoal_cid cid, enum shoal_err err)
{
    return (err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED || err == SHOAL_ELOST) &&
           sh_nid_is_peer(shoal_cid_creator(cid));
}

/* Answers, or refuses. is_fresh: the registry is known as of the question. False: the answer has to wait. */
static bool lookup_try(struct sh_superpeer *superpeer, const struct sh_waiting_lookup *ask,
                       bool is_fresh)
{
    struct sh_range range;
    enum shoal_err err = sh_superpeer_lookup(superpeer, ask->cid, &range);
    /* The asker may know of a join, or a return, that has not come here yet. */
    if (is_gap(ask->cid, err) && ask->epoch > sh_registry_view(superpeer->registry)->epoch)
        err = SHOAL_EBUSY;
    if (err && !is_gap(ask->cid, err)) {
        lookup_refuse(superpeer, ask, err,
                      err == SHOAL_EBUSY
                          ? "a superpeer was restarted, or nodes have yet to say who has it"
                          : NULL);
        return true;
    }
    if (err == SHOAL_ENOCHUNK && !is_fresh)
        return false;
    if (err) {
        struct sh_metadata_range noted = sh_metadata_find(superpeer->ring->metadata, ask->cid);
        bool is_known = holder_set(superpeer, &noted, &range);
        SH_ASSERT(is_known && !is_peer(&range));
    }
    superpeer->lookups++;
    superpeer->lookups_nobody += err != SHOAL_OK;
    answer(superpeer, ask, &range, is_fresh);
    return true;
}

void sh_superpeer_lookup_ask(struct sh_superpeer *superpeer, struct sh_reply_to to, shoal_cid cid,
                             uint64_t epoch)
{
    struct sh_waiting_lookup ask = {
        .reply_to = to, .cid = cid, .epoch = epoch, .asked_ns = sh_now(&superpeer->env.clock)};
    if (lookup_try(superpeer, &ask, false))
        return;
    if (superpeer->waiting_count == SH_LOOKUPS_WAITING_MAX)
        lookup_refuse(superpeer, &ask, SHOAL_EBUSY,
                      "too many ask at a time for chunks whose node is gone");
    else
        superpeer->waiting[superpeer->waiting_count++] = ask;
}

unsigned sh_superpeer_lookups_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    unsigned kept = 0, count = superpeer->waiting_count;
    uint64_t known_ns = count ? sh_superpeer_known_ns(superpeer, now_ns) : 0;
    SH_ASSERT(known_ns <= now_ns);
    for (unsigned i = 0; i < count; i++) {
        const struct sh_waiting_lookup *ask = &superpeer->waiting[i];
        if (known_ns > ask->asked_ns && lookup_try(superpeer, ask, true))
            continue;
        if (now_ns - ask->asked_ns > superpeer->failure_ns)
            lookup_refuse(superpeer, ask, SHOAL_EBUSY,
                          "this superpeer hears nothing of the leader of the superpeers");
        else
            superpeer->waiting[kept++] = *ask;
    }
    superpeer->waiting_count = kept;
    if (kept)
        sh_shared_report_since(superpeer, superpeer->waiting[kept - 1].asked_ns, now_ns);
    return count - kept;
}

void sh_superpeer_lookups_close(struct sh_superpeer *superpeer)
{
    for (unsigned i = 0; i < superpeer->waiting_count; i++)
        lookup_refuse(superpeer, &superpeer->waiting[i], SHOAL_ESTOPPED, NULL);
    superpeer->waiting_count = 0;
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
    bool is_nowhere = err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED || err == SHOAL_ELOST;
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
    struct sh_metadata_range ranges[SH_TREE_RANGES_MAX];
    size_t count = 0;
    shoal_cid at = from;
    bool is_more = true;
    while (is_more && count < SH_TREE_RANGES_MAX) {
        ranges[count] = sh_metadata_find(superpeer->ring->metadata, at);
        if (!sh_nid_is_peer(ranges[count].note.owner))
            ranges[count].note.owner.v = SH_LOOKUP_NOBODY;
        at.v = ranges[count++].last.v + 1;
        is_more = shoal_cid_creator(at).v == shoal_cid_creator(from).v;
    }
    SH_ASSERT(count > 0 && count <= SH_TREE_RANGES_MAX);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type,
                     SH_TREE_ANSWER_BYTES + count * SH_TREE_RANGE_BYTES, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, is_more);
    for (size_t i = 0; i < count; i++) {
        sh_put64(&out.w, ranges[i].first.v);
        sh_put64(&out.w, ranges[i].last.v);
        sh_put16(&out.w, ranges[i].note.owner.v);
        sh_put64(&out.w, ranges[i].note.life);
        sh_put64(&out.w, ranges[i].note.zone);
        sh_put32(&out.w, ranges[i].note.incarnation);
    }
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_tree_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_cid from = {sh_get64(&in->payload)};
    uint64_t epoch = sh_get64(&in->payload);
    uint16_t other = 0;
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_done(&in->payload))
        err = tree_check(superpeer, from, &other);
    /* A peer goes by the answer for good (node/moves_former.c). A program only shows it. */
    if (!err && !other && sh_nid_is_peer(in->reply_to.nid) &&
        !is_final(superpeer, sh_arc_shard(shoal_cid_creator(from)), in->reply_to.nid))
        err = SHOAL_EBUSY;
    /* In an older view a life may still give chunks away, or be given some, that the asker knows to be over. */
    if (!err && !other && epoch > sh_registry_view(superpeer->registry)->epoch)
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
