/* Where chunks are: lookups, and what a superpeer decides about migrations (docs/migration.md).
 * Both are about a shard of the ring, and for its owner to answer. */
#include "base/assert.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

static const char *why(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EDIFFERS:
        return "what was known of these chunks was lost since the migration began";
    case SHOAL_EBUSY:
        return "the superpeer has not heard yet what the nodes hold";
    case SHOAL_ENOTOWNER:
        return "the source does not own these chunks";
    case SHOAL_ENONODE:
        return "the target is not up";
    case SHOAL_ELIMIT:
        return "the superpeer keeps no more ranges of chunks that have moved";
    default:
        return NULL;
    }
}

/* --- Lookups --------------------------------------------------------------------------------- */

static bool is_peer(shoal_nid nid)
{
    return nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX;
}

/* Whether this superpeer answers for a creator's chunks; as sh_superpeer_ring_reads. */
static enum shoal_err reads(struct sh_superpeer *superpeer, shoal_nid creator, shoal_nid *other_out)
{
    return sh_superpeer_ring_reads(superpeer, sh_arc_shard(creator), other_out);
}

bool sh_superpeer_moves_known(const struct sh_superpeer *superpeer, unsigned shard)
{
    return sh_metadata_is_known(superpeer->ring->metadata, shard);
}

/* A chunk whose creator has left is nowhere as far as is known. That is so once all have said what
 * they have (ENOCHUNK); until then one that failed may have it, and come back (EFAILED), or one
 * that is up, which does not know it yet (EBUSY). */
static enum shoal_err nowhere(const struct sh_superpeer *superpeer, unsigned shard)
{
    if (sh_metadata_is_whole(superpeer->ring->metadata, shard))
        return SHOAL_ENOCHUNK;
    return sh_superpeer_gather_is_sure(superpeer) ? SHOAL_EFAILED : SHOAL_EBUSY;
}

enum shoal_err sh_superpeer_moves_holder(const struct sh_superpeer *superpeer,
                                         const struct sh_range *range)
{
    unsigned shard = sh_arc_shard(shoal_cid_creator(range->first));
    const struct sh_node *node =
        sh_view_find(sh_registry_view(superpeer->registry), (shoal_nid){(uint16_t)range->value});
    if (node && node->state == SH_NODE_UP)
        return SHOAL_OK;
    if (!sh_superpeer_moves_known(superpeer, shard))
        return SHOAL_EBUSY;
    return node && node->state == SH_NODE_FAILED ? SHOAL_EFAILED : nowhere(superpeer, shard);
}

enum shoal_err sh_superpeer_lookup(struct sh_superpeer *superpeer, shoal_cid cid,
                                   struct sh_range *range_out)
{
    shoal_nid creator = shoal_cid_creator(cid);
    shoal_nid other;
    if (!is_peer(creator))
        return SHOAL_ENOCHUNK;
    enum shoal_err err = reads(superpeer, creator, &other);
    if (err == SHOAL_EROLE) {
        *range_out = (struct sh_range){cid, cid, other.v};
        return SHOAL_OK;
    }
    if (err)
        return err;
    struct sh_range range = sh_metadata_find(superpeer->ring->metadata, cid);
    err = sh_superpeer_moves_holder(superpeer, &range);
    if (err)
        return err;
    *range_out = range;
    return SHOAL_OK;
}

/* --- Batches --------------------------------------------------------------------------------- */

/* Answers COMMIT, CLAIM or RESOLVE: with the superpeer that is to be asked, or 0. */
static void answer(struct sh_superpeer *superpeer, struct sh_reply_to to, sh_msg_type type,
                   shoal_nid other, bool is_committed)
{
    struct sh_out out;
    bool is_resolve = type == SH_CLUSTER_RESOLVE;
    if (sh_msg_reply(superpeer->msg, to, type, is_resolve ? 3 : 2, &out))
        return;
    sh_put16(&out.w, other.v);
    if (is_resolve)
        sh_put8(&out.w, is_committed);
    sh_msg_end(superpeer->msg, &out);
}

void sh_superpeer_moves_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                               sh_msg_type type, const struct sh_metadata_result *result)
{
    /* That there is no room to note a claim is a state of the shard, and said in the log. */
    bool is_full = type == SH_CLUSTER_CLAIM && result->err == SHOAL_ELIMIT;
    if (result->err && !is_full)
        sh_msg_reply_error(superpeer->msg, to, type, result->err, why(result->err));
    else
        answer(superpeer, to, type, SHOAL_NID_NONE, result->is_committed);
}

/* Reads a COMMIT, a CLAIM, or a RESOLVE, of which the first run is looked at only. */
static bool batch_get(struct sh_reader *r, sh_msg_type type, struct sh_metadata_update *update,
                      uint64_t *incarnation_out)
{
    bool is_resolve = type == SH_CLUSTER_RESOLVE;
    update->kind = is_resolve                  ? SH_METADATA_RESOLVE
                   : type == SH_CLUSTER_COMMIT ? SH_METADATA_MOVE
                                               : SH_METADATA_CLAIM;
    update->from.v = sh_get16(r);
    update->to.v = sh_get16(r);
    *incarnation_out = sh_get64(r);
    update->sequence = sh_get64(r);
    size_t count = sh_get16(r);
    if (!sh_reader_ok(r) || !count || count > SH_METADATA_RUNS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        update->runs[i].first.v = sh_get64(r);
        update->runs[i].last.v = sh_get64(r);
    }
    update->count = is_resolve ? 1 : count;
    return sh_reader_done(r) && is_peer(update->from) && is_peer(update->to);
}

/* Whether a node is one that the registry has heard of. */
static bool is_known(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return sh_view_find(sh_registry_view(superpeer->registry), nid);
}

/* Sees to it that no ID that the ring is to know is ever given to another node. One that nobody has
 * heard of is not marked: a creator of that kind has no chunks that could move, and a target is
 * refused. */
static bool is_marked(struct sh_superpeer *superpeer, const struct sh_metadata_update *update)
{
    shoal_nid nids[] = {shoal_cid_creator(update->runs[0].first), update->from, update->to};
    bool is_done = true;
    for (size_t i = 0; i < sizeof nids / sizeof nids[0]; i++) {
        if (!is_known(superpeer, nids[i]))
            nids[i] = update->from;
        is_done &= sh_registry_is_moved(superpeer->registry, nids[i]);
    }
    struct sh_command command = {.kind = SH_COMMAND_MOVED,
                                 .nid = nids[0],
                                 .instance = nids[1].v | (uint64_t)nids[2].v << 16};
    if (!is_done)
        sh_shared_decide(superpeer, &command);
    return is_done;
}

/* Whether the batch can't be decided about now, by what is not in the shard's state. */
static enum shoal_err batch_check(struct sh_superpeer *superpeer,
                                  const struct sh_metadata_update *update, uint64_t incarnation)
{
    unsigned shard = sh_metadata_shard(update);
    if (update->kind == SH_METADATA_CLAIM)
        return is_marked(superpeer, update) ? SHOAL_OK : SHOAL_EBUSY;
    if (incarnation != sh_metadata_incarnation(superpeer->ring->metadata, shard))
        return SHOAL_EDIFFERS;
    /* What was decided is so, whatever else is to be found out; and its source can say what it has
     * only when it has heard that. */
    if (sh_metadata_committed(superpeer->ring->metadata, shard, update->from) == update->sequence)
        return SHOAL_OK;
    if (!sh_superpeer_moves_known(superpeer, shard))
        return SHOAL_EBUSY;
    /* Of a source that the registry has lost, what was decided is known all the same. */
    if (!is_known(superpeer, update->from))
        return sh_metadata_has_source(superpeer->ring->metadata, shard, update->from) ? SHOAL_OK
                                                                                      : SHOAL_EBUSY;
    return is_marked(superpeer, update) ? SHOAL_OK : SHOAL_EBUSY;
}

static bool is_up(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
}

static void on_batch(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_metadata_update update = {.count = 0}, checked;
    uint64_t incarnation;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    if (!batch_get(&in->payload, in->type, &update, &incarnation) ||
        !is_peer(shoal_cid_creator(update.runs[0].first))) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    bool is_resolve = in->type == SH_CLUSTER_RESOLVE;
    bool is_claim = in->type == SH_CLUSTER_CLAIM;
    if (in->reply_to.nid.v != (is_resolve ? update.to.v : update.from.v) ||
        (is_claim && update.to.v != update.from.v)) {
        refuse(in, SHOAL_EINVAL,
               is_resolve ? "only its target asks for it"
               : is_claim ? "a node speaks for itself only"
                          : "only its source has a batch committed");
        return;
    }
    shoal_nid other;
    enum shoal_err err = reads(superpeer, shoal_cid_creator(update.runs[0].first), &other);
    if (err == SHOAL_EROLE) {
        answer(superpeer, in->reply_to, in->type, other, false);
        return;
    }
    if (err) {
        refuse(in, err, err == SHOAL_EBUSY ? "the shard is changing hands" : NULL);
        return;
    }
    /* Nobody else would note that the batch was refused, so that it is never committed later. */
    if (update.kind == SH_METADATA_MOVE && !is_up(superpeer, update.to))
        update.kind = SH_METADATA_REFUSE;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    SH_ASSERT(sh_writer_ok(&w));
    struct sh_bytes encoded = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    unsigned shard = sh_metadata_shard(&update);
    err = sh_metadata_update_get(encoded, shard, &checked);
    if (!err)
        err = batch_check(superpeer, &update, incarnation);
    if (err) {
        refuse(in, err, why(err));
        return;
    }
    sh_superpeer_gather_moved(superpeer, shard);
    sh_superpeer_ring_update(superpeer, in, shard, encoded);
}

static void on_who(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid creator = {sh_get16(&in->payload)};
    shoal_nid other = SHOAL_NID_NONE;
    uint64_t incarnation = 0;
    struct sh_out out;
    if (!sh_reader_done(&in->payload) || !is_peer(creator)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    enum shoal_err err = reads(superpeer, creator, &other);
    if (!err)
        incarnation = sh_metadata_incarnation(superpeer->ring->metadata, sh_arc_shard(creator));
    if (err && err != SHOAL_EROLE) {
        refuse(in, err, err == SHOAL_EBUSY ? "the shard is changing hands" : NULL);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, SH_WHO_ANSWER_BYTES, &out)) {
        sh_put16(&out.w, other.v);
        sh_put64(&out.w, incarnation);
        sh_msg_end(in->msg, &out);
    }
}

void sh_superpeer_moves_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_COMMIT, SH_MSG_INLINE, on_batch, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_RESOLVE, SH_MSG_INLINE, on_batch, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_CLAIM, SH_MSG_INLINE, on_batch, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_WHO, SH_MSG_INLINE, on_who, superpeer);
}
