/* What a superpeer asks the peers when all replicas of a shard were lost: what they have of others'
 * chunks, and what of their own they gave away (HOLDS). Their answers become updates of the shard
 * (CLAIM).
 *
 *   shard lost --> not known --> HOLDS to each peer --> all have answered --> known
 *
 * Until the shard is known nothing is decided about batches, so what one peer has said stays true
 * while others are asked: a peer that has spoken goes by no decision of before (node/moves_holds.c).
 * A peer that failed, and whose next life may have chunks, is waited for, until an operator has the cluster forget it. An
 * owner that takes over begins anew. */
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

static bool bit_of(const uint64_t *bits, shoal_nid nid)
{
    return bits[nid.v / 64] >> (nid.v % 64) & 1;
}

static bool was_asked(const struct sh_superpeer *superpeer, const struct sh_node *node)
{
    return bit_of(superpeer->ring->gather.asked, node->nid);
}

/* The first peer after that one, in a circle, that is up and has not said what it has. */
static shoal_nid unasked_next(const struct sh_superpeer *superpeer, shoal_nid after)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    size_t start = sh_view_lower(view, (shoal_nid){(uint16_t)(after.v + 1)});
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[(start + i) % view->count];
        if (node->role == SH_ROLE_PEER && node->state == SH_NODE_UP && !was_asked(superpeer, node))
            return node->nid;
    }
    return SHOAL_NID_NONE;
}

bool sh_superpeer_gather_is_over(const struct sh_superpeer *superpeer)
{
    return !unasked_next(superpeer, SHOAL_NID_NONE).v;
}

bool sh_superpeer_gather_is_whole(const struct sh_superpeer *superpeer)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role == SH_ROLE_PEER && !was_asked(superpeer, node) &&
            !sh_node_has_ended(view, node))
            return false;
    }
    return true;
}

bool sh_superpeer_gather_may_refer(const struct sh_superpeer *superpeer, unsigned shard)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    return sh_metadata_is_known(part->metadata, shard) ||
           (part->gather.gathered[shard] && sh_superpeer_gather_is_over(superpeer));
}

void sh_superpeer_gather_begin(struct sh_superpeer *superpeer, unsigned shard)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    SH_ASSERT(shard < SH_SHARDS);
    gather->gathered[shard] = true;
    gather->is_full[shard] = false;
    memset(gather->asked, 0, sizeof gather->asked);
    gather->is_stale = gather->is_asking;
    gather->from.v = 0;
    gather->due_ns = 0;
}

void sh_superpeer_gather_full(struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    if (!superpeer->ring->gather.is_full[shard])
        SH_ERROR("cluster",
                 "nodes have more ranges of chunks than a superpeer keeps: migrations of these "
                 "chunks are refused",
                 SH_U64("shard", shard), SH_U64("ranges_max", SH_METADATA_CLAIMS_MAX));
    superpeer->ring->gather.is_full[shard] = true;
}

/* --- Updates --------------------------------------------------------------------------------- */

/* Whether a shard is to hear claims here. */
static bool is_ours(const struct sh_superpeer *superpeer, unsigned shard)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    return part->gather.gathered[shard] && !sh_metadata_is_known(part->metadata, shard) &&
           sh_ring_owner(part->ring, shard) == superpeer->index + 1;
}

/* Orders what was collected of one creator's chunks, if it is anything. */
static enum shoal_err claim_end(struct sh_superpeer *superpeer, struct sh_metadata_update *update)
{
    SH_ASSERT(update->kind == SH_METADATA_CLAIM && update->count <= SH_METADATA_RUNS_MAX);
    if (!update->count)
        return SHOAL_OK;
    unsigned shard = sh_metadata_shard(update);
    enum shoal_err err = SHOAL_OK;
    if (is_ours(superpeer, shard)) {
        err = sh_superpeer_ring_order(superpeer, shard, update);
        superpeer->ring->gather.has_noted |= !err;
    }
    if (!err)
        superpeer->ring->gather.from.v = update->runs[update->count - 1].last.v + 1;
    update->count = 0;
    return err;
}

/* Which batches the node has begun is for all shards: none of them commits one of these later. */
static enum shoal_err sequence_claim(struct sh_superpeer *superpeer,
                                     const struct sh_metadata_update *update)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        if (is_ours(superpeer, i))
            err = sh_superpeer_ring_order(superpeer, i, update);
    }
    return err;
}

static bool is_claim_good(const struct sh_gather *gather, const struct sh_metadata_run *run,
                          uint8_t kind)
{
    shoal_nid creator = shoal_cid_creator(run->first);
    return run->first.v >= gather->from.v && run->last.v >= run->first.v &&
           shoal_cid_creator(run->last).v == creator.v && sh_nid_is_peer(creator) &&
           kind >= SH_CLAIM_SERVES && kind <= SH_CLAIM_FROZEN &&
           (kind != SH_CLAIM_GAVE || creator.v == gather->nid.v);
}

/* The node at hand has said all. */
static enum shoal_err node_done(struct sh_gather *gather)
{
    SH_ASSERT(gather->nid.v);
    gather->from.v = 0;
    gather->asked[gather->nid.v / 64] |= UINT64_C(1) << (gather->nid.v % 64);
    return SHOAL_OK;
}

/* Takes a page: ranges in rising order, of which neighbours of one kind go together. */
static enum shoal_err claims_get(struct sh_superpeer *superpeer, struct sh_reader *r)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    struct sh_metadata_update update = {
        .kind = SH_METADATA_CLAIM, .condition = SH_CLAIM_SERVES, .from = gather->nid};
    uint8_t is_more = sh_get8(r);
    update.sequence = sh_get64(r);
    if (!sh_reader_ok(r) || is_more > 1)
        return SHOAL_EPROTO;
    enum shoal_err err = gather->from.v ? SHOAL_OK : sequence_claim(superpeer, &update);
    uint64_t at = gather->from.v;
    while (!err && sh_reader_left(r) > 0) {
        struct sh_metadata_run run = {{sh_get64(r)}, {sh_get64(r)}};
        uint8_t kind = sh_get8(r);
        if (!sh_reader_ok(r) || run.first.v < at || !is_claim_good(gather, &run, kind))
            return SHOAL_EPROTO;
        at = run.last.v + 1;
        if (update.count == SH_METADATA_RUNS_MAX || kind != update.condition ||
            (update.count &&
             shoal_cid_creator(run.first).v != shoal_cid_creator(update.runs[0].first).v))
            err = claim_end(superpeer, &update);
        update.condition = kind;
        update.runs[update.count++] = run;
    }
    if (!err)
        err = claim_end(superpeer, &update);
    return err || is_more ? err : node_done(gather);
}

static void holdings_answered(struct sh_request *request, enum shoal_err err,
                              struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_gather *gather = &superpeer->ring->gather;
    SH_ASSERT(gather->is_asking);
    gather->is_asking = false;
    gather->due_ns = 0;
    if (gather->is_stale) {
        gather->is_stale = false;
        gather->from.v = 0;
        return;
    }
    if (!err)
        err = claims_get(superpeer, payload);
    else if (err == SHOAL_ENOTYPE) /* a node that holds no chunks */
        err = node_done(gather);
    if (!err)
        return;
    SH_DEBUG("cluster", "node does not say what it holds", SH_U64("node", gather->nid.v),
             SH_ERR(err));
    /* What was not ordered for want of room goes on where it stopped. */
    if (err != SHOAL_EBUSY)
        gather->from.v = 0;
    gather->due_ns = sh_now(&superpeer->env.clock) + superpeer->heartbeat_ns / 2;
}

static void holdings_ask(struct sh_superpeer *superpeer)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    SH_ASSERT(!gather->is_asking && gather->nid.v);
    gather->request = (struct sh_request){
        .done = holdings_answered, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 4 + 1};
    struct sh_out out;
    if (sh_msg_request(superpeer->msg, gather->nid, SH_CLUSTER_HOLDS, SH_HOLDS_BYTES,
                       &gather->request, &out)) {
        gather->from.v = 0;
        return;
    }
    gather->is_asking = true;
    sh_put64(&out.w, gather->from.v);
    sh_msg_end(superpeer->msg, &out);
}

/* --- Step ------------------------------------------------------------------------------------ */

/* Begins, or goes on with, what another owner left unknown. Returns whether any shard is not known. */
static bool shards_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct sh_gather *gather = &part->gather;
    static const struct sh_metadata_update known = {.kind = SH_METADATA_KNOWN};
    bool is_any = false;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        bool is_owner = sh_ring_owner(part->ring, i) == superpeer->index + 1;
        gather->gathered[i] = gather->gathered[i] && is_owner;
        if (sh_ring_reads(part->ring, now_ns, i) || sh_metadata_is_known(part->metadata, i))
            continue;
        SH_ASSERT(is_owner);
        is_any = true;
        if (sh_superpeer_salvage_is_due(superpeer, i))
            continue; /* what the peers say would be gone when RESTORED is applied */
        if (!gather->gathered[i])
            sh_superpeer_gather_begin(superpeer, i);
        else if (!gather->is_full[i] && sh_superpeer_gather_is_whole(superpeer) &&
                 sh_superpeer_ring_order(superpeer, i, &known))
            break; /* later */
    }
    return is_any;
}

unsigned sh_superpeer_gather_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct sh_gather *gather = &part->gather;
    if (!part->is_started || gather->is_asking || now_ns < gather->due_ns)
        return 0;
    /* Whom to ask changes with the view only, and nobody waits for less than a heartbeat. */
    gather->due_ns = now_ns + superpeer->heartbeat_ns / 2;
    if (!shards_step(superpeer, now_ns))
        return 0;
    if (!gather->from.v)
        gather->nid = unasked_next(superpeer, gather->nid);
    if (!gather->nid.v)
        return 0;
    holdings_ask(superpeer);
    return 1;
}

uint64_t sh_superpeer_gather_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_gather *gather = &superpeer->ring->gather;
    return gather->is_asking || !superpeer->ring->is_started ? SH_NEVER : gather->due_ns;
}

void sh_superpeer_gather_cancel(struct sh_superpeer *superpeer)
{
    if (superpeer->ring->gather.is_asking)
        (void)sh_msg_cancel(superpeer->msg, &superpeer->ring->gather.request);
}
