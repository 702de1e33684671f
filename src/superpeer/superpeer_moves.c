/* Where chunks are: lookups, and what a superpeer decides about migrations (docs/migration.md).
 * Both are about a shard of the ring, and for its owner to answer. */
#include "base/assert.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define VACATE_MAX 1024 /* ranges that are looked at at once */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

static const char *why(enum shoal_err err)
{
    switch (err) {
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

/* Whether this superpeer answers for a creator's chunks; as sh_superpeer_ring_reads. */
static enum shoal_err reads(struct sh_superpeer *superpeer, shoal_nid creator, shoal_nid *other_out)
{
    return sh_superpeer_ring_reads(superpeer, sh_arc_shard(creator), other_out);
}

/* A chunk whose creator has left is nowhere as far as is known. That is so once all have said what
 * they have (ENOCHUNK); until then one that failed may have it, and come back (EFAILED), or one
 * that is up, which does not know it yet (EBUSY). */
static enum shoal_err nowhere(const struct sh_superpeer *superpeer, unsigned shard)
{
    if (sh_metadata_is_known(superpeer->ring->metadata, shard))
        return SHOAL_ENOCHUNK;
    return sh_superpeer_gather_is_over(superpeer) ? SHOAL_EFAILED : SHOAL_EBUSY;
}

/* Of a chunk that is noted as a node's, in a life that is over, whose zones tell what has become of its chunks. ENOCHUNK: all zones of that node are with others,
 * so what is noted as the node's still was never there, or is removed. ELOST: all but such as are lost, one of which may have had the chunk. What the node had taken for a
 * zone, which it did not come to open, is the zone's: that is the creator's in what superpeers tell each other (superpeer_former.c). */
static enum shoal_err unrecovered(const struct sh_superpeer *superpeer, const struct sh_node *node,
                                  const struct sh_metadata_note *note)
{
    enum shoal_err err = sh_superpeer_former_of(superpeer, note->owner);
    if (note->zone && (err == SHOAL_ENOCHUNK || err == SHOAL_ELOST)) {
        enum shoal_err of_zone = sh_superpeer_former_of(superpeer, sh_zone_creator(note->zone));
        err = of_zone == SHOAL_ENOCHUNK ? err : of_zone;
    }
    if (err != SHOAL_EAGAIN)
        return err;
    return sh_node_may_return(node) ? SHOAL_EFAILED : SHOAL_EBUSY;
}

enum shoal_err sh_superpeer_moves_holder(const struct sh_superpeer *superpeer,
                                         const struct sh_metadata_range *range)
{
    const struct sh_metadata_note *note = &range->note;
    unsigned shard = sh_arc_shard(shoal_cid_creator(range->first));
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), note->owner);
    bool is_up = node && node->state == SH_NODE_UP;
    if (is_up && (!note->life || note->life == node->instance))
        return SHOAL_OK;
    bool is_known = sh_metadata_is_known(superpeer->ring->metadata, shard);
    if (is_known && node && node->traits.is_replicated)
        return unrecovered(superpeer, node, note);
    return is_known && node && sh_node_may_return(node) ? SHOAL_EFAILED : nowhere(superpeer, shard);
}

enum shoal_err sh_superpeer_lookup(struct sh_superpeer *superpeer, shoal_cid cid,
                                   struct sh_range *range_out)
{
    shoal_nid creator = shoal_cid_creator(cid);
    shoal_nid other;
    if (!sh_nid_is_peer(creator))
        return SHOAL_ENOCHUNK;
    enum shoal_err err = reads(superpeer, creator, &other);
    if (err == SHOAL_EROLE) {
        *range_out = (struct sh_range){cid, cid, other.v};
        return SHOAL_OK;
    }
    if (err)
        return err;
    struct sh_metadata_range range = sh_metadata_find(superpeer->ring->metadata, cid);
    err = sh_superpeer_moves_holder(superpeer, &range);
    if (err)
        return err;
    *range_out = (struct sh_range){range.first, range.last, range.note.owner.v};
    return SHOAL_OK;
}

/* --- Batches --------------------------------------------------------------------------------- */

/* Answers COMMIT or RESOLVE: with the superpeer that is to be asked, or 0. */
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
    if (result->err)
        sh_msg_reply_error(superpeer->msg, to, type, result->err, why(result->err));
    else
        answer(superpeer, to, type, SHOAL_NID_NONE, result->is_committed);
}

/* The processes that a COMMIT or RESOLVE names: who asks, and the target that has the batch. */
struct lives {
    uint64_t asker, target;
};

/* Reads a COMMIT or a RESOLVE. */
static bool batch_get(struct sh_reader *r, sh_msg_type type, struct sh_metadata_update *update,
                      struct lives *lives_out)
{
    update->kind = type == SH_CLUSTER_RESOLVE ? SH_METADATA_RESOLVE : SH_METADATA_MOVE;
    lives_out->asker = sh_get64(r);
    update->from.v = sh_get16(r);
    update->to.v = sh_get16(r);
    lives_out->target = sh_get64(r);
    update->sequence = sh_get64(r);
    size_t count = sh_get16(r);
    if (!sh_reader_ok(r) || !count || count > SH_METADATA_RUNS_MAX)
        return false;
    for (size_t i = 0; i < count; i++) {
        update->runs[i].first.v = sh_get64(r);
        update->runs[i].last.v = sh_get64(r);
    }
    update->count = count;
    return sh_reader_done(r) && sh_nid_is_peer(update->from) && sh_nid_is_peer(update->to);
}

/* The node as this superpeer's registry has it; NULL: the registry has not heard of the node. */
static const struct sh_node *node_of(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return sh_view_find(sh_registry_view(superpeer->registry), nid);
}

/* Who asks for a decision about a batch. */
static shoal_nid asker_of(const struct sh_metadata_update *update)
{
    return update->kind == SH_METADATA_RESOLVE ? update->to : update->from;
}

/* EBUSY: the batch can't be decided about now, by what is not in the shard's state. life: of the
 * asking process. A node that was started again goes by what a superpeer has told it since
 * (superpeer_lookup.c), so nothing is decided later that an earlier process of it asked for. Nor for a
 * node that counts as failed, until it is back: it may be about to be forgotten (superpeer_forget.c). */
static enum shoal_err batch_check(struct sh_superpeer *superpeer,
                                  const struct sh_metadata_update *update, uint64_t life)
{
    const struct sh_node *asker = node_of(superpeer, asker_of(update));
    bool is_known = sh_metadata_is_known(superpeer->ring->metadata, sh_metadata_shard(update));
    bool is_asker_up = asker && asker->state == SH_NODE_UP && asker->instance == life;
    return is_known && is_asker_up ? SHOAL_OK : SHOAL_EBUSY;
}

/* Whether the process that has a batch is the target still: another life of it has not got it. */
static bool is_up(const struct sh_superpeer *superpeer, shoal_nid nid, uint64_t life)
{
    const struct sh_node *node = node_of(superpeer, nid);
    return node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP &&
           node->instance == life;
}

/* Whether the batch has no chunks, and goes back to its creator, which has left. */
static bool is_vacant(const struct sh_superpeer *superpeer, const struct sh_metadata_update *update)
{
    const struct sh_node *node = node_of(superpeer, update->to);
    return node && node->state == SH_NODE_LEFT &&
           update->to.v == shoal_cid_creator(update->runs[0].first).v;
}

static void on_batch(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_metadata_update update = {.count = 0}, checked;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct lives lives;
    if (!batch_get(&in->payload, in->type, &update, &lives) ||
        !sh_nid_is_peer(shoal_cid_creator(update.runs[0].first))) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (in->reply_to.nid.v != asker_of(&update).v) {
        refuse(in, SHOAL_EINVAL,
               in->type == SH_CLUSTER_RESOLVE ? "only its target asks for it"
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
    bool is_there = is_up(superpeer, update.to, lives.target) || is_vacant(superpeer, &update);
    /* Nobody else would note that the batch was refused, so that it is never committed later. */
    if (update.kind == SH_METADATA_MOVE && !is_there)
        update.kind = SH_METADATA_REFUSE;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    SH_ASSERT(sh_writer_ok(&w));
    struct sh_bytes encoded = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    unsigned shard = sh_metadata_shard(&update);
    err = sh_metadata_update_get(encoded, shard, &checked);
    if (!err)
        err = batch_check(superpeer, &update, lives.asker);
    if (err) {
        refuse(in, err, why(err));
        return;
    }
    sh_superpeer_ring_update(superpeer, in, shard, encoded);
}

/* Whether chunks of a range may be with its owner only, which is up: those that a former life of the owner had may be coming back elsewhere. */
static bool is_its_own(const struct sh_superpeer *superpeer, const struct sh_metadata_note *note,
                       const struct sh_node *owner)
{
    if (note->life == owner->instance || !owner->traits.is_replicated)
        return true;
    enum shoal_err err = unrecovered(superpeer, owner, note);
    return err == SHOAL_ENOCHUNK || err == SHOAL_ELOST;
}

void sh_superpeer_moves_vacate(struct sh_superpeer *superpeer, shoal_nid creator)
{
    shoal_cid at = shoal_cid_make(creator, 0);
    for (unsigned i = 0; i < VACATE_MAX && shoal_cid_creator(at).v == creator.v; i++) {
        struct sh_metadata_range range = sh_metadata_find(superpeer->ring->metadata, at);
        shoal_nid owner = range.note.owner;
        struct sh_out out;
        at.v = range.last.v + 1;
        const struct sh_node *node = node_of(superpeer, owner);
        if (owner.v == creator.v || !node || node->state != SH_NODE_UP ||
            !is_its_own(superpeer, &range.note, node) ||
            sh_msg_begin(superpeer->msg, owner, SH_CLUSTER_VACATE, SH_VACATE_BYTES, &out))
            continue;
        sh_put64(&out.w, range.first.v);
        sh_put64(&out.w, range.last.v);
        sh_msg_end(superpeer->msg, &out);
    }
}

void sh_superpeer_moves_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_COMMIT, SH_MSG_INLINE, on_batch, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_RESOLVE, SH_MSG_INLINE, on_batch, superpeer);
}
