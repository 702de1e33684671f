/* Leases: a peer serves, and a superpeer answers for the ring, only while it holds one; and is
 * declared failed only once no lease that it was given can hold any more.
 *
 * A lease is granted for a heartbeat. The node counts the lease from when it sent the heartbeat, so from
 * before any superpeer heard it; the leader counts from when it heard the node last, and waits a
 * sixteenth of failure_ns longer, which is more than two clocks differ by in that time.
 *
 * The leader of the superpeers declares failures, and any superpeer may be asked for a lease. So a
 * superpeer grants only what the leader has consented to: the lease counts from the superpeer's last
 * report that named the node, and that the leader took (HEARD). It follows that a node's first lease comes with the second heartbeat, unless it joined through that
 * superpeer: then it counts from its request to join, for the leader heard of it later.
 *
 * A superpeer names itself in each report, and so gets a lease of its own, for the ring. It counts once
 * the registry here is the leader's as of the answer: a superpeer that was called failed meanwhile must
 * have given its shards away before it answers again. The leader consents to a superpeer that Raft, or
 * the report, let it hear within an election's time: so it calls that superpeer failed, after
 * failure_ns of silence, only when the lease is over.
 *
 *   HEARD: peers heard, and itself --> leader: sure to lead --> its epoch; all but those that are
 *                                                               down, or about to be called failed
 *
 * A leader that has been replaced does not know that at once. It goes by when a round of heartbeats
 * began that a majority answered, for until then nobody else was elected, however late the answers
 * were read; and by that for an election's time only. A new leader gives everybody failure_ns anew,
 * so a lease is shorter than that by an election's time and a heartbeat.
 * With ZooKeeper (superpeer_zookeeper.c) such a round is a question to ZooKeeper, which answers that
 * it leads: its session lasts failure_ns from then on, and nobody else leads before that is over.
 * What a former leader was deciding may be decided by the new one: it consents to nothing before it
 * has applied all that was in the log when it began. And what a leader heard while it was stopped,
 * it does not consent to. */
#include <string.h>

#include "base/assert.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

static bool bit_of(const uint64_t *bits, shoal_nid nid)
{
    return bits[nid.v / 64] >> nid.v % 64 & 1;
}

/* What two clocks may differ by. */
static uint64_t drift_ns(const struct sh_superpeer *superpeer)
{
    return superpeer->failure_ns / 16;
}

static uint64_t lease_ns(const struct sh_superpeer *superpeer)
{
    uint64_t less_ns =
        drift_ns(superpeer) + superpeer->heartbeat_ns + superpeer->shared->election_ns;
    SH_ASSERT(superpeer->failure_ns > less_ns); /* it is ten heartbeats at least */
    return superpeer->failure_ns - less_ns;
}

static shoal_nid own_nid(const struct sh_superpeer *superpeer)
{
    return (shoal_nid){(uint16_t)(superpeer->index + 1)};
}

static bool is_up(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return node && node->state == SH_NODE_UP;
}

/* Whether this one leads, and was sure of that within the time that leases are shorter by. */
static bool leads_surely(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    return shared->led_ns && now_ns <= shared->led_ns + shared->election_ns &&
           sh_shared_leads(superpeer);
}

uint64_t sh_superpeer_lease_ns(const struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    uint64_t whole_ns = lease_ns(superpeer);
    if (!is_up(superpeer, nid))
        return 0;
    uint64_t from_ns = shared->confirmed_ns[nid.v];
    if (leads_surely(superpeer, now_ns) && !bit_of(shared->doomed, nid))
        from_ns = shared->led_ns;
    if (!from_ns)
        return 0;
    return from_ns + whole_ns > now_ns ? from_ns + whole_ns - now_ns : 0;
}

bool sh_superpeer_lease_is_over(const struct sh_superpeer *superpeer, shoal_nid nid,
                                uint64_t now_ns)
{
    SH_ASSERT(sh_nid_is_peer(nid));
    uint64_t heard_ns = sh_registry_heard_ns(superpeer->registry, nid);
    return now_ns >= heard_ns + lease_ns(superpeer) + drift_ns(superpeer);
}

/* --- What the leader confirms ---------------------------------------------------------------- */

void sh_shared_lease_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    shared->led_ns = shared->consensus->ops->led_ns(shared->consensus, now_ns);
    if (!sh_shared_leads(superpeer))
        memset(shared->doomed, 0, sizeof shared->doomed);
}

bool sh_shared_may_fail(const struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead)
{
    const struct sh_shared *shared = superpeer->shared;
    uint64_t now_ns = sh_now(&superpeer->env.clock);
    if (is_dead || nid.v < SH_PEER_NID_MIN || nid.v > SH_PEER_NID_MAX)
        return true;
    /* Who was stopped gives all failure_ns anew with the next look (superpeer_watch.c). */
    return sh_shared_leads(superpeer) && shared->led_since_ns &&
           now_ns <= shared->watched_ns + superpeer->failure_ns / 2 &&
           now_ns >= shared->led_since_ns + superpeer->failure_ns &&
           sh_superpeer_lease_is_over(superpeer, nid, now_ns);
}

void sh_shared_doom(struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (nid.v < SH_SHARED_NIDS)
        superpeer->shared->doomed[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
}

bool sh_shared_is_doomed(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return nid.v < SH_SHARED_NIDS && bit_of(superpeer->shared->doomed, nid);
}

void sh_shared_joined(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t asked_ns)
{
    struct sh_shared *shared = superpeer->shared;
    sh_registry_spoke(superpeer->registry, asked_ns, nid);
    /* Else the leader does not see a join that changed nothing, and may just be failing the node: its
     * word counts, which comes with the next report. */
    if (shared->consensus->ops->is_led && nid.v >= SH_PEER_NID_MIN && nid.v < SH_SHARED_NIDS &&
        asked_ns > shared->confirmed_ns[nid.v])
        shared->confirmed_ns[nid.v] = asked_ns;
}

/* --- Reports --------------------------------------------------------------------------------- */

/* Takes the leader's consent. That to this superpeer itself is an offer at first. */
static void reported(struct sh_superpeer *superpeer, struct sh_reader *payload)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t epoch = sh_get64(payload);
    size_t count = sh_get16(payload);
    if (!sh_reader_ok(payload) || sh_reader_left(payload) != 2 * count)
        return;
    while (count--) {
        shoal_nid nid = {sh_get16(payload)};
        if (nid.v < SH_SHARED_NIDS)
            shared->reported[nid.v / 64] &= ~(UINT64_C(1) << nid.v % 64);
    }
    if (bit_of(shared->reported, own_nid(superpeer))) {
        shared->offer.from_ns = shared->reported_ns;
        shared->offer.epoch = epoch;
    }
    shared->reported[0] = 0; /* superpeers are no peers */
    for (size_t i = 0; i < sizeof shared->reported / sizeof shared->reported[0]; i++) {
        for (uint64_t left = shared->reported[i]; left; left &= left - 1)
            shared->confirmed_ns[64 * i + (unsigned)__builtin_ctzll(left)] = shared->reported_ns;
    }
}

static void report_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    superpeer->shared->is_reporting = false;
    if (!err)
        reported(superpeer, payload);
}

uint64_t sh_shared_own_lease_ns(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    shoal_nid own = own_nid(superpeer);
    SH_ASSERT(own.v && own.v <= SH_SUPERPEERS_MAX);
    if (shared->offer.from_ns &&
        sh_registry_view(superpeer->registry)->epoch >= shared->offer.epoch) {
        shared->confirmed_ns[own.v] = shared->offer.from_ns;
        shared->offer.from_ns = 0;
    }
    return sh_superpeer_lease_ns(superpeer, own, now_ns);
}

uint64_t sh_superpeer_known_ns(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    if (leads_surely(superpeer, now_ns))
        return shared->led_ns;
    /* Raft's leader knows all decisions. With ZooKeeper the leader knows those up to the last time at which ZooKeeper
     * confirmed that it leads, an election's time ago at most. */
    uint64_t known_ns = shared->confirmed_ns[own_nid(superpeer).v];
    uint64_t late_ns = shared->consensus->ops->is_led ? 0 : shared->election_ns;
    return known_ns > late_ns ? known_ns - late_ns : 0;
}

void sh_shared_report(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    uint16_t count = 0;
    SH_ASSERT(!sh_shared_leads(superpeer));
    if (shared->is_reporting)
        return;
    shared->heard[0] |= UINT64_C(1) << own_nid(superpeer).v;
    for (size_t i = 0; i < sizeof shared->heard / sizeof shared->heard[0]; i++)
        count += (uint16_t)__builtin_popcountll(shared->heard[i]);
    shoal_nid leader = sh_shared_leader(superpeer);
    shared->report = (struct sh_request){
        .done = report_done, .arg = superpeer, .timeout_ns = 2 * superpeer->heartbeat_ns};
    struct sh_out out;
    if (!leader.v || sh_msg_request(superpeer->msg, leader, SH_CLUSTER_HEARD,
                                    10 + 2 * (size_t)count, &shared->report, &out))
        goto out_heard;
    sh_put64(&out.w, shared->claimed);
    sh_put16(&out.w, count);
    for (uint16_t nid = 0; nid < SH_SHARED_NIDS; nid++) {
        if (bit_of(shared->heard, (shoal_nid){nid}))
            sh_put16(&out.w, nid);
    }
    shared->is_reporting = true;
    shared->reported_ns = now_ns;
    memcpy(shared->reported, shared->heard, sizeof shared->reported);
    sh_msg_end(superpeer->msg, &out);
out_heard:
    /* What can't be told is out of date soon: the nodes are heard again. */
    memset(shared->heard, 0, sizeof shared->heard);
    shared->claimed = 0;
}

void sh_shared_report_since(struct sh_superpeer *superpeer, uint64_t since_ns, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    bool is_led = sh_shared_leads(superpeer) || !sh_shared_leader(superpeer).v;
    if (!is_led && !shared->is_reporting && shared->reported_ns <= since_ns)
        sh_shared_report(superpeer, now_ns);
}

void sh_shared_report_cancel(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (shared->is_reporting)
        (void)sh_msg_cancel(superpeer->msg, &shared->report);
    shared->is_reporting = false;
}

/* Whether a node of a superpeer's report may get a lease: a peer, or that superpeer. */
static bool is_granted(const struct sh_superpeer *superpeer, shoal_nid from, shoal_nid nid,
                       uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    if (!is_up(superpeer, nid) || sh_shared_is_doomed(superpeer, nid))
        return false;
    if (sh_nid_is_peer(nid))
        return true;
    uint64_t heard_ns = shared->consensus->ops->heard_ns(shared->consensus, from);
    return nid.v == from.v && heard_ns && now_ns <= heard_ns + shared->election_ns;
}

void sh_shared_report_answer(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                             struct sh_bytes nids, uint64_t now_ns)
{
    uint16_t refused = 0;
    shoal_nid from = in->reply_to.nid;
    if (!leads_surely(superpeer, now_ns)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    for (size_t at = 0; at < nids.size; at += 2)
        refused += !is_granted(superpeer, from, (shoal_nid){sh_load16(nids.at + at)}, now_ns);
    struct sh_out out;
    size_t size = SH_HEARD_ANSWER_BYTES + 2 * (size_t)refused;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    sh_put64(&out.w, sh_registry_view(superpeer->registry)->epoch);
    sh_put16(&out.w, refused);
    for (size_t at = 0; at < nids.size; at += 2) {
        uint16_t nid = sh_load16(nids.at + at);
        if (!is_granted(superpeer, from, (shoal_nid){nid}, now_ns))
            sh_put16(&out.w, nid);
    }
    sh_msg_end(in->msg, &out);
}
