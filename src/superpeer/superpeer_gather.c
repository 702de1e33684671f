/* What a superpeer asks the nodes when all copies of a shard were lost: what they hold of others'
 * chunks, and which of their own they gave away. Their answers become updates of the shard, whose
 * owner takes them while it lives: also from a node that comes back later. */
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

static void bit_set(uint64_t *bits, shoal_nid nid, bool value)
{
    uint64_t bit = UINT64_C(1) << (nid.v % 64);
    bits[nid.v / 64] = (bits[nid.v / 64] & ~bit) | (value ? bit : 0);
}

/* The first peer after that one, in a circle, that is up and whose bit has that value. */
static shoal_nid next_with(const struct sh_superpeer *superpeer, const uint64_t *bits, bool value,
                           shoal_nid after)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    size_t start = sh_view_lower(view, (shoal_nid){(uint16_t)(after.v + 1)});
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[(start + i) % view->count];
        if (node->role == SH_ROLE_PEER && node->state == SH_NODE_UP &&
            bit_of(bits, node->nid) == value)
            return node->nid;
    }
    return SHOAL_NID_NONE;
}

static shoal_nid unasked_next(const struct sh_superpeer *superpeer, shoal_nid after)
{
    return next_with(superpeer, superpeer->ring->gather.asked, false, after);
}

bool sh_superpeer_gather_is_over(const struct sh_superpeer *superpeer)
{
    return !superpeer->ring->gather.from.v && !unasked_next(superpeer, SHOAL_NID_NONE).v;
}

bool sh_superpeer_gather_is_sure(const struct sh_superpeer *superpeer)
{
    return sh_superpeer_gather_is_over(superpeer) &&
           !next_with(superpeer, superpeer->ring->gather.waits, true, SHOAL_NID_NONE).v;
}

/* A node that does not come back: it left, or its process has ended. */
static bool is_gone(const struct sh_view *view, const struct sh_node *node)
{
    return node->state == SH_NODE_LEFT ||
           (node->state == SH_NODE_FAILED &&
            sh_node_is_replaced(view->nodes, view->count, node->nid, node->address));
}

bool sh_superpeer_gather_is_whole(const struct sh_superpeer *superpeer)
{
    const struct sh_gather *gather = &superpeer->ring->gather;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        bool is_heard = bit_of(gather->asked, node->nid) && !bit_of(gather->unsure, node->nid);
        if (node->role == SH_ROLE_PEER && !is_heard && !is_gone(view, node))
            return false;
    }
    return sh_superpeer_gather_is_over(superpeer);
}

/* All nodes that the registry knows are to be asked: one that joins later holds nothing. */
static void asked_reset(struct sh_superpeer *superpeer)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    memset(gather->asked, 0xff, sizeof gather->asked);
    memset(gather->unsure, 0, sizeof gather->unsure);
    memset(gather->waits, 0, sizeof gather->waits);
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role == SH_ROLE_PEER && node->state != SH_NODE_LEFT)
            bit_set(gather->asked, node->nid, false);
    }
}

void sh_superpeer_gather_begin(struct sh_superpeer *superpeer, unsigned shard)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    gather->gathered[shard] = true;
    asked_reset(superpeer);
    gather->is_stale = gather->is_asking;
    gather->from.v = 0;
    gather->due_ns = 0;
}

void sh_superpeer_gather_moved(struct sh_superpeer *superpeer, unsigned shard)
{
    superpeer->ring->gather.moves[shard]++;
}

void sh_superpeer_gather_missed(struct sh_superpeer *superpeer, shoal_nid nid)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    bit_set(gather->asked, nid, false);
    gather->is_missed |= nid.v == gather->nid.v;
}

/* --- Updates --------------------------------------------------------------------------------- */

/* Whether claims about what that node created are to be heard here. */
static bool is_ours(const struct sh_superpeer *superpeer, shoal_nid creator)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    unsigned shard = sh_arc_shard(creator);
    return part->gather.gathered[shard] && sh_ring_owner(part->ring, shard) == superpeer->index + 1;
}

/* Orders what was collected, if it is anything. */
static enum shoal_err claim_end(struct sh_superpeer *superpeer, struct sh_metadata_update *update)
{
    if (!update->count)
        return SHOAL_OK;
    shoal_nid creator = shoal_cid_creator(update->runs[0].first);
    enum shoal_err err = SHOAL_OK;
    unsigned shard = sh_arc_shard(creator);
    if (is_ours(superpeer, creator)) {
        struct sh_superpeer_ring *part = superpeer->ring;
        /* Where chunks move already, what was said before the last move may not be so any more, and
         * before the node has heard what came of its own last batch. */
        bool is_old =
            part->gather.moves[shard] != part->gather.asked_moves[shard] ||
            (update->from.v == update->to.v &&
             update->sequence < sh_metadata_committed(part->metadata, shard, update->from));
        is_old = is_old && sh_metadata_is_known(part->metadata, shard);
        err = is_old ? SHOAL_EBUSY : sh_superpeer_ring_order(superpeer, shard, update);
        part->gather.asked_moves[shard] = part->gather.moves[shard];
    }
    if (!err)
        superpeer->ring->gather.from.v = update->runs[update->count - 1].last.v + 1;
    update->count = 0;
    return err;
}

/* One that had left batches out says whether it still does. What it has it has said already; once
 * it knows of all, it is to say that anew, as a whole. */
static void asked_again(struct sh_gather *gather, uint8_t flags)
{
    bit_set(gather->asked, gather->nid, flags & (SH_HOLDS_LEFT_OUT | SH_HOLDS_ALONE));
    bit_set(gather->waits, gather->nid, flags & SH_HOLDS_LEFT_OUT);
}

/* Takes a page: ranges in rising order, of which neighbours with one owner go together. */
static enum shoal_err claims_get(struct sh_superpeer *superpeer, struct sh_reader *r)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    struct sh_metadata_update update = {.kind = SH_METADATA_CLAIM, .from = gather->nid};
    uint64_t at = gather->from.v;
    enum shoal_err err = SHOAL_OK;
    uint8_t flags = sh_get8(r);
    update.sequence = sh_get64(r);
    if (update.sequence > UINT64_MAX >> 1 ||
        flags > (SH_HOLDS_MORE | SH_HOLDS_LEFT_OUT | SH_HOLDS_ALONE))
        return SHOAL_EPROTO;
    if (bit_of(gather->asked, gather->nid)) {
        asked_again(gather, flags);
        return SHOAL_OK;
    }
    gather->left_out |= flags & (SH_HOLDS_LEFT_OUT | SH_HOLDS_ALONE);
    while (!err && sh_reader_left(r) > 0) {
        struct sh_metadata_run run = {{sh_get64(r)}, {sh_get64(r)}};
        shoal_nid owner = {sh_get16(r)};
        shoal_nid creator = shoal_cid_creator(run.first);
        if (!sh_reader_ok(r) || run.first.v < at || run.last.v < run.first.v ||
            run.last.v == UINT64_MAX || shoal_cid_creator(run.last).v != creator.v ||
            creator.v < SH_PEER_NID_MIN || owner.v < SH_PEER_NID_MIN || owner.v > SH_PEER_NID_MAX ||
            (owner.v != gather->nid.v && creator.v != gather->nid.v))
            return SHOAL_EPROTO;
        at = run.last.v + 1;
        if (update.count == SH_METADATA_RUNS_MAX || owner.v != update.to.v ||
            (update.count && creator.v != shoal_cid_creator(update.runs[0].first).v))
            err = claim_end(superpeer, &update);
        update.to = owner;
        update.runs[update.count++] = run;
    }
    if (!err)
        err = claim_end(superpeer, &update);
    if (!err && !sh_reader_done(r))
        err = SHOAL_EPROTO;
    if (err || flags & SH_HOLDS_MORE)
        return err;
    gather->from.v = 0;
    if (gather->is_missed)
        return SHOAL_EBUSY;
    bit_set(gather->asked, gather->nid, true);
    bit_set(gather->unsure, gather->nid, gather->left_out);
    bit_set(gather->waits, gather->nid, gather->left_out & SH_HOLDS_LEFT_OUT);
    return SHOAL_OK;
}

static void asked(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_gather *gather = &superpeer->ring->gather;
    gather->is_asking = false;
    gather->due_ns = 0;
    if (gather->is_stale) {
        gather->is_stale = false;
        gather->from.v = 0;
        return;
    }
    if (!err)
        err = claims_get(superpeer, payload);
    if (err == SHOAL_ENOTYPE) { /* a node that holds no chunks */
        bit_set(gather->asked, gather->nid, true);
        bit_set(gather->unsure, gather->nid, false);
        bit_set(gather->waits, gather->nid, false);
        gather->from.v = 0;
    } else if (err) {
        SH_DEBUG("cluster", "node does not say what it holds", SH_U64("node", gather->nid.v),
                 SH_ERR(err));
        /* What was not ordered for want of room goes on where it stopped. */
        if (err != SHOAL_EBUSY)
            gather->from.v = 0;
        gather->due_ns = sh_now(&superpeer->env.clock) + superpeer->heartbeat_ns / 2;
    }
}

static void ask(struct sh_superpeer *superpeer)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    gather->request = (struct sh_request){
        .done = asked, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 4 + 1};
    struct sh_out out;
    if (sh_msg_request(superpeer->msg, gather->nid, SH_CLUSTER_HOLDS, SH_HOLDS_BYTES,
                       &gather->request, &out)) {
        gather->from.v = 0;
        return;
    }
    gather->is_asking = true;
    gather->is_missed &= gather->from.v != 0;
    gather->left_out = gather->from.v ? gather->left_out : 0;
    memcpy(gather->asked_moves, gather->moves, sizeof gather->moves);
    sh_put64(&out.w, gather->from.v);
    sh_put16(&out.w, SH_PEER_NID_MIN);
    sh_put16(&out.w, SH_PEER_NID_MAX);
    sh_msg_end(superpeer->msg, &out);
}

/* --- Step ------------------------------------------------------------------------------------ */

/* Begins, or goes on with, what another owner left unknown. Returns whether anything is to be
 * asked for. */
static bool shards_step(struct sh_superpeer *superpeer, uint64_t now_ns, bool is_over)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    bool all = is_over && sh_superpeer_gather_is_whole(superpeer);
    struct sh_metadata_update known = {.kind = SH_METADATA_KNOWN,
                                       .condition = all ? 1 : SH_METADATA_PARTIAL};
    bool is_any = false;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (sh_ring_reads(part->ring, now_ns, i)) {
            if (sh_ring_owner(part->ring, i) != superpeer->index + 1)
                part->gather.gathered[i] = false;
            continue;
        }
        bool is_known = sh_metadata_is_known(part->metadata, i);
        known.sequence = sh_metadata_missed(part->metadata, i);
        bool is_whole = sh_metadata_is_whole(part->metadata, i);
        bool is_news = (all ? !is_whole : !is_known) && !sh_metadata_is_short(part->metadata, i);
        if (!is_whole && !part->gather.gathered[i])
            sh_superpeer_gather_begin(superpeer, i);
        else if (is_news && is_over && sh_superpeer_ring_order(superpeer, i, &known))
            is_any = true; /* asked for again */
        is_any |= part->gather.gathered[i];
    }
    return is_any;
}

/* Who has not been asked; or at times, who has left something out. */
static shoal_nid next_to_ask(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_gather *gather = &superpeer->ring->gather;
    shoal_nid nid = unasked_next(superpeer, gather->nid);
    if (nid.v || now_ns < gather->unsure_due_ns)
        return nid;
    gather->unsure_due_ns = now_ns + superpeer->failure_ns / 4;
    gather->unsure_nid = next_with(superpeer, gather->unsure, true, gather->unsure_nid);
    return gather->unsure_nid;
}

unsigned sh_superpeer_gather_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct sh_gather *gather = &part->gather;
    if (!part->is_started)
        return 0;
    if (gather->is_asking || now_ns < gather->due_ns)
        return 0;
    bool is_over = sh_superpeer_gather_is_over(superpeer);
    /* Whom to ask changes with the view only, and nobody waits for less than a heartbeat. */
    gather->due_ns = now_ns + superpeer->heartbeat_ns / 2;
    if (!shards_step(superpeer, now_ns, is_over))
        return 0;
    if (!gather->from.v)
        gather->nid = next_to_ask(superpeer, now_ns);
    if (!gather->nid.v)
        return 0;
    ask(superpeer);
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
