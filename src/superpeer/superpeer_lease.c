/* Who may answer for the ring: a superpeer that the leader has heard, and will not call failed for
 * a while.
 *
 *   LEASE --> leader: up, heard lately, and sure to lead --> LEASE: as long as half of failure_ns,
 *                                          for one that has taken the leader's epoch over */
#include "base/assert.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* Whether this leader is sure that nobody else leads, and will not for as long as half of failure_ns. */
static bool is_sure(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    return shared->led_ns && now_ns < shared->led_ns + superpeer->failure_ns / 4;
}

static uint64_t epoch_of(const struct sh_superpeer *superpeer)
{
    return sh_registry_view(superpeer->registry)->epoch;
}

static void lease_send(struct sh_superpeer *superpeer, shoal_nid to, bool is_answer,
                       uint64_t time_ns)
{
    struct sh_out out;
    if (sh_msg_begin(superpeer->msg, to, SH_CLUSTER_LEASE, SH_LEASE_BYTES, &out))
        return; /* asked for again with the next heartbeat */
    sh_put8(&out.w, is_answer);
    sh_put64(&out.w, time_ns);
    sh_put64(&out.w, epoch_of(superpeer));
    sh_msg_end(superpeer->msg, &out);
}

/* What the leader offered is a lease once the registry here is the leader's: one that was called
 * failed meanwhile must have given its shards away before it answers again. */
static void offer_take(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    if (!part->offer.until_ns || epoch_of(superpeer) < part->offer.epoch)
        return;
    sh_ring_lease_set(part->ring, now_ns, part->offer.until_ns);
    part->offer.until_ns = 0;
}

static bool is_up(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return node && node->state == SH_NODE_UP;
}

/* Who has a lease may answer for half of failure_ns after it asked for it. A leader gives one to
 * whom it has heard within a quarter of failure_ns, so it will not call that one failed before. Nor
 * will another leader, who gives everybody failure_ns anew: he can't have been elected before this
 * one was confirmed by a majority last, which also was within a quarter. */
static void on_lease(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_consensus *consensus = superpeer->shared->consensus;
    bool is_answer = sh_get8(&in->payload);
    uint64_t time_ns = sh_get64(&in->payload);
    uint64_t epoch = sh_get64(&in->payload);
    uint64_t now_ns = now_of(superpeer);
    shoal_nid from = in->reply_to.nid;
    if (!sh_reader_done(&in->payload) || !sh_shared_is_other(superpeer, from))
        return;
    if (is_answer) {
        if (time_ns > now_ns || sh_shared_leader(superpeer).v != from.v)
            return;
        superpeer->ring->offer.until_ns = time_ns + superpeer->failure_ns / 2;
        superpeer->ring->offer.epoch = epoch;
        offer_take(superpeer, now_ns);
        return;
    }
    if (!sh_shared_leads(superpeer))
        return;
    if (consensus->ops->heard)
        consensus->ops->heard(consensus, from, now_ns);
    uint64_t heard_ns = consensus->ops->heard_ns(consensus, from);
    if (heard_ns && now_ns < heard_ns + superpeer->failure_ns / 4 && is_sure(superpeer, now_ns) &&
        is_up(superpeer, from) && !sh_shared_is_doomed(superpeer, from))
        lease_send(superpeer, from, true, time_ns);
}

void sh_superpeer_lease_renew(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    shoal_nid leader = sh_shared_leader(superpeer);
    if (!sh_shared_leads(superpeer) && leader.v)
        lease_send(superpeer, leader, false, now_ns);
}

/* The leader has a lease as long as it is sure to lead. */
void sh_superpeer_lease_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    offer_take(superpeer, now_ns);
    if (is_sure(superpeer, now_ns))
        sh_ring_lease_set(superpeer->ring->ring, now_ns,
                          superpeer->shared->led_ns + superpeer->failure_ns / 2);
}

void sh_superpeer_lease_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_LEASE, SH_MSG_INLINE, on_lease, superpeer);
}
