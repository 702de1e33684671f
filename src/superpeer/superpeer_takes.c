/* What peers ask that recover zones of an owner that has failed (docs/recovery.md): that chunks become their own, and
 * whether another zone of that owner goes first.
 *
 *   TAKE  --> the asker's life is up, and the shard is known: ordered, and answered once it is carried out
 *   ORDER --> a zone goes first: its ID --> none: 0 --> LOOKS_MAX records were looked at: up to which
 *
 * A zone goes first only while it is to be recovered. So the answer 0 must not come from a superpeer whose registry has the
 * former owner still up: the asker names the epoch of its own view, in which that owner's life is over. */
#include "base/assert.h"
#include "base/node_ids.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define LOOKS_MAX 2048 /* records that one ORDER looks at: 0.4 ms */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* --- TAKE ------------------------------------------------------------------------------------ */

/* Reads a TAKE of an asker. Its runs are checked as those of any update. */
static bool take_get(struct sh_reader *r, shoal_nid asker, struct sh_metadata_update *update)
{
    struct sh_zone *zone = &update->zone;
    update->kind = SH_METADATA_TAKE;
    zone->owner = asker;
    zone->life = sh_get64(r);
    zone->former.v = sh_get16(r);
    zone->former_life = sh_get64(r);
    zone->id = sh_get64(r);
    zone->incarnation = sh_get32(r);
    zone->flags = sh_get8(r);
    size_t count = sh_get16(r);
    if (!sh_reader_ok(r) || !count || count > SH_TAKE_RUNS_MAX || zone->flags & ~SH_ZONE_TAKEN)
        return false;
    for (size_t i = 0; i < count; i++) {
        update->runs[i].first.v = sh_get64(r);
        update->runs[i].last.v = sh_get64(r);
    }
    update->count = count;
    return sh_reader_done(r) && sh_nid_is_peer(shoal_cid_creator(update->runs[0].first));
}

/* EBUSY: chunks may be taken of which a node has yet to say that it has them, or by a life that was started after this
 * superpeer's registry was told last. */
static enum shoal_err take_check(const struct sh_superpeer *superpeer, unsigned shard,
                                 shoal_nid asker, uint64_t life)
{
    enum shoal_err err = sh_superpeer_life_check(superpeer, asker, life);
    if (!err && !sh_metadata_is_known(superpeer->ring->metadata, shard))
        err = SHOAL_EBUSY;
    return err;
}

static void on_take(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_metadata_update update = {.count = 0}, checked;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    shoal_nid asker = in->reply_to.nid;
    if (!take_get(&in->payload, asker, &update)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (!sh_nid_is_peer(asker)) {
        refuse(in, SHOAL_EINVAL, "a peer takes chunks of one that has failed");
        return;
    }
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    SH_ASSERT(sh_writer_ok(&w));
    struct sh_bytes encoded = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    unsigned shard = sh_metadata_shard(&update);
    if (sh_metadata_update_get(encoded, shard, &checked)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (!sh_superpeer_zone_may_answer(superpeer, in, shard, SH_TAKE_ANSWER_BYTES))
        return;
    enum shoal_err err = take_check(superpeer, shard, asker, update.zone.life);
    if (err == SHOAL_EFENCED)
        sh_superpeer_result_answer(superpeer, in->reply_to, in->type, err);
    else if (err)
        refuse(in, err, "nodes have yet to say what they have, or which life of the asker is up");
    else
        sh_superpeer_ring_update(superpeer, in, shard, encoded);
}

/* --- ORDER ----------------------------------------------------------------------------------- */

struct order {
    shoal_nid former;
    uint64_t life, epoch, after;
    bool near; /* only zones that no other node than the asker brings back */
    shoal_nid asker;
    bool has_lost; /* as far as was looked */
};

static bool order_get(struct sh_reader *r, struct order *order)
{
    order->former.v = sh_get16(r);
    order->life = sh_get64(r);
    order->epoch = sh_get64(r);
    order->after = sh_get64(r);
    uint8_t near = sh_get8(r);
    order->near = near;
    return sh_reader_done(r) && near <= 1 && sh_nid_is_peer(order->former) && order->life &&
           (!order->after || sh_zone_creator(order->after).v == order->former.v);
}

/* Whether the former owner had the zone in that life, and nobody has brought it back. */
static bool is_formers(const struct sh_zone *zone, const struct order *order)
{
    if (zone->former.v)
        return zone->former.v == order->former.v && zone->former_life == order->life;
    return zone->owner.v == order->former.v && zone->life == order->life;
}

/* Whether a zone is still to be recovered that the former owner had in that life: OK, it is; ENONAME, it is not; EBUSY. One that is lost never
 * will be. */
static enum shoal_err recovery_check(const struct sh_superpeer *superpeer,
                                     const struct sh_zone *zone, const struct order *order)
{
    if (zone->flags & SH_ZONE_LOST || !is_formers(zone, order))
        return SHOAL_ENONAME;
    if (zone->former.v)
        return SHOAL_OK;
    enum shoal_err err = sh_superpeer_owner_check(superpeer, zone);
    if (err == SHOAL_EBUSY)
        return err;
    return err == SHOAL_EFENCED ? SHOAL_OK : SHOAL_ENONAME;
}

/* Whether no other node than the asker brings the zone back. */
static bool is_near(const struct sh_superpeer *superpeer, const struct sh_zone *zone,
                    shoal_nid asker)
{
    return zone->owner.v == asker.v || sh_superpeer_owner_check(superpeer, zone) != SHOAL_OK;
}

/* Looks at the zones behind order->after, as far as is done at once; then it is the one that goes first, or the
 * last one that was looked at. EBUSY. */
static enum shoal_err order_look(const struct sh_superpeer *superpeer, struct order *order,
                                 enum sh_order *result_out)
{
    unsigned shard = sh_arc_shard(order->former);
    struct sh_zone zone;
    if (!order->after)
        order->after = sh_zone_id(order->former, 0);
    for (unsigned i = 0; i < LOOKS_MAX; i++) {
        if (!sh_metadata_zone_next(superpeer->ring->metadata, shard, order->after, &zone) ||
            sh_zone_creator(zone.id).v != order->former.v) {
            *result_out = SH_ORDER_NONE;
            return SHOAL_OK;
        }
        order->after = zone.id;
        order->has_lost |= zone.flags & SH_ZONE_LOST && is_formers(&zone, order);
        enum shoal_err err = recovery_check(superpeer, &zone, order);
        if (!err && order->near && !is_near(superpeer, &zone, order->asker))
            continue;
        if (err != SHOAL_ENONAME) {
            *result_out = SH_ORDER_WAIT;
            return err;
        }
    }
    *result_out = SH_ORDER_MORE;
    return SHOAL_OK;
}

static void on_order(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct order order = {.asker = in->reply_to.nid};
    struct sh_out out;
    enum sh_order result = SH_ORDER_NONE;
    if (!order_get(&in->payload, &order)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (!sh_superpeer_zone_may_answer(superpeer, in, sh_arc_shard(order.former),
                                      SH_ORDER_ANSWER_BYTES))
        return;
    enum shoal_err err = SHOAL_EBUSY;
    if (order.epoch <= sh_registry_view(superpeer->registry)->epoch)
        err = order_look(superpeer, &order, &result);
    if (err) {
        refuse(in, err, "this superpeer does not know yet which life of a node is the latest");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_ORDER_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, (uint8_t)((unsigned)result | (order.has_lost ? SH_ORDER_LOST : 0)));
    sh_put64(&out.w, result == SH_ORDER_NONE ? 0 : order.after);
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_take_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_TAKE, SH_MSG_INLINE, on_take, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ORDER, SH_MSG_INLINE, on_order, superpeer);
}
