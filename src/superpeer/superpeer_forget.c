/* Forgets nodes that are gone, so that views stay short and IDs come back.
 *
 *   an operator's FORGET, or by itself: a node that was not heard for forget_ns
 *        |
 *   superpeer (by itself: the leader) --REFERS--> every superpeer that is up, one after the other
 *        |<--------- shards that it owns, and what in these refers to each of the nodes
 *   all 64 shards have spoken, and nothing refers to the node:
 *        '--------- FORGET, a command of the registry: the node's entry goes
 *
 * What has spoken stays true until FORGET is carried out, so that no batch comes after it that refers to
 * the node:
 * 1. Batches are decided about only for a source or target that is up in the view of the shard's owner
 *    (superpeer_moves.c), and an owner speaks only once it knows the view in which the job found the node
 *    gone, and no batch of the shard is under way. A later owner knows more than the one that spoke.
 *    So are zones, of which only an owner that is up makes a backup, or the next owner, of a peer that is up
 *    (superpeer_zones.c).
 * 2. The life that was gone never is up again. Where a later life of the node has come in between, FORGET is void
 *    (EEXIST), since it names the life.
 *
 * A zone that the node created or owns, or of which its disk has a replica, keeps it: what was acknowledged
 * may be on that disk alone. It has been recovered, or the replica has been replaced, once no record names the node.
 *
 * A name of a chunk that the node created keeps it, since the ID could be given to another node, whose
 * chunk that would name. So do ranges of its chunks that are with other peers. A name that is given
 * after its shard has spoken, to a chunk of a node that is long gone, does not; the chunk does not exist
 * either way. A shard that was lost speaks once all peers that are up have said what they have.
 *
 * Chunks of a zone that is to be recovered are noted as the node's until a restorer takes them over. So nothing is lost with a node before all shards have
 * said that no zone refers to it: the superpeer asks once more then, and says so.
 *
 * Ranges of chunks that are lost with the node go by themselves. A peer that failed, and to which ranges
 * refer, is given up first: the registry takes it for one that has left, whose chunks nobody waits for.
 * Of one that has left, each owner that is asked orders that its shard knows it (GONE in metadata.h),
 * and speaks of fewer ranges the next time. Nothing that is ordered before refers to the node anew, for
 * the reason of 1. Ranges of its own chunks from which all were removed are given back by those who have
 * them, when an owner asks for it (VACATE).
 *
 * One job at a time: either the operator's, of one node, or the leader's, of some. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define NIDS_MAX 64
#define ROUNDS_IN_TIME 8 /* all that are gone are looked at so often in forget_ns */

struct sh_forgetting {
    struct sh_request request;
    bool is_asking;
    /* The job; count 0: none. Of each node which instance it had when the job began, and what refers
     * to it in the shards that have spoken. */
    size_t count;
    shoal_nid nids[NIDS_MAX];
    uint64_t instances[NIDS_MAX];
    uint64_t epoch; /* of the view in which all of them were gone */
    uint64_t names[NIDS_MAX], ranges[NIDS_MAX], zones[NIDS_MAX];
    uint64_t settled; /* bit i: no zone refers to that node in any shard */
    uint64_t shards;  /* that have spoken: bit n is shard n */
    shoal_nid asked;  /* the superpeer that was asked last; NONE: none yet */
    bool is_wished;   /* the job is the operator's */
    /* An operator's wish, if wish.v: who waits for an answer, and until when. */
    shoal_nid wish;
    struct sh_reply_to reply_to;
    uint64_t deadline_ns, wish_ns; /* and when the job is begun, again if shards did not speak */
    /* The leader's: where it goes on, and when. */
    shoal_nid from;
    uint64_t due_ns, begun_ns; /* and when the last one began */
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static void refuse(struct sh_superpeer *superpeer, struct sh_reply_to to, enum shoal_err err,
                   const char *text)
{
    sh_msg_reply_error(superpeer->msg, to, SH_CLUSTER_FORGET, err, text);
}

/* --- What refers to nodes -------------------------------------------------------------------- */

struct refs {
    uint64_t shards;
    uint32_t names[NIDS_MAX], ranges[NIDS_MAX], zones[NIDS_MAX];
};

/* What refers to a node in a shard; what was lost with it does so for the last time. is_settled: no zone does, in any. */
static struct sh_metadata_refs refs_of(struct sh_superpeer *superpeer,
                                       const struct sh_metadata *metadata, unsigned shard,
                                       shoal_nid nid, bool is_settled)
{
    struct sh_metadata_refs refs = sh_metadata_refs(metadata, shard, nid);
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    const struct sh_metadata_update gone = {.kind = SH_METADATA_GONE, .from = nid};
    bool has_left = node && node->state == SH_NODE_LEFT && sh_metadata_is_known(metadata, shard);
    /* If anything stands in the way, the next question does it. */
    if (refs.lost && has_left && is_settled)
        (void)!sh_superpeer_ring_order(superpeer, shard, &gone);
    if (refs.ranges > refs.lost && has_left)
        sh_superpeer_moves_vacate(superpeer, nid);
    return refs;
}

/* What the shards say for which this superpeer may answer. One that does not know the view of that epoch
 * yet may take the nodes to be up still, and let them move chunks. */
static void refs_look(struct sh_superpeer *superpeer, uint64_t epoch, const shoal_nid *nids,
                      size_t count, uint64_t settled, struct refs *refs_out)
{
    *refs_out = (struct refs){.shards = 0};
    bool is_behind = sh_registry_view(superpeer->registry)->epoch < epoch;
    for (unsigned shard = 0; !is_behind && shard < SH_SHARDS; shard++) {
        struct sh_metadata *metadata;
        shoal_nid other;
        if (sh_superpeer_services_state(superpeer, shard, &metadata, &other) ||
            !sh_superpeer_gather_may_refer(superpeer, shard) ||
            sh_superpeer_ring_is_deciding(superpeer, shard))
            continue;
        refs_out->shards |= UINT64_C(1) << shard;
        for (size_t i = 0; i < count; i++) {
            struct sh_metadata_refs refs =
                refs_of(superpeer, metadata, shard, nids[i], settled >> i & 1);
            refs_out->names[i] += refs.names;
            refs_out->ranges[i] += refs.ranges;
            refs_out->zones[i] += refs.zones;
        }
    }
}

static void refs_add(struct sh_forgetting *job, const struct refs *refs)
{
    job->shards |= refs->shards;
    for (size_t i = 0; i < job->count; i++) {
        job->names[i] += refs->names[i];
        job->ranges[i] += refs->ranges[i];
        job->zones[i] += refs->zones[i];
    }
}

static void on_refers(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nids[NIDS_MAX];
    uint64_t epoch = sh_get64(&in->payload);
    size_t count = sh_get16(&in->payload);
    uint64_t settled = sh_get64(&in->payload);
    bool is_good = count && count <= NIDS_MAX && sh_reader_left(&in->payload) == 2 * count;
    for (size_t i = 0; is_good && i < count; i++) {
        nids[i].v = sh_get16(&in->payload);
        is_good = sh_nid_is_peer(nids[i]);
    }
    if (!is_good) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    struct refs refs;
    struct sh_out out;
    refs_look(superpeer, epoch, nids, count, settled, &refs);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_REFERS_ANSWER_BYTES + 12 * count, &out))
        return;
    sh_put64(&out.w, refs.shards);
    for (size_t i = 0; i < count; i++) {
        sh_put32(&out.w, refs.names[i]);
        sh_put32(&out.w, refs.ranges[i]);
        sh_put32(&out.w, refs.zones[i]);
    }
    sh_msg_end(in->msg, &out);
}

static void refers_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_forgetting *job = superpeer->forgetting;
    struct refs refs = {.shards = 0};
    job->is_asking = false;
    if (err || sh_reader_left(payload) != SH_REFERS_ANSWER_BYTES + 12 * job->count)
        return; /* its shards have not spoken */
    refs.shards = sh_get64(payload);
    for (size_t i = 0; i < job->count; i++) {
        refs.names[i] = sh_get32(payload);
        refs.ranges[i] = sh_get32(payload);
        refs.zones[i] = sh_get32(payload);
    }
    refs_add(job, &refs);
}

/* Asks the next superpeer that is up. False: all have been. */
static bool ask_next(struct sh_superpeer *superpeer)
{
    struct sh_forgetting *job = superpeer->forgetting;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    struct sh_out out;
    size_t at = sh_view_lower(view, (shoal_nid){(uint16_t)(job->asked.v + 1)});
    while (at < view->count && view->nodes[at].state != SH_NODE_UP)
        at++;
    if (at == view->count || view->nodes[at].role != SH_ROLE_SUPERPEER)
        return false;
    job->asked = view->nodes[at].nid;
    if (!sh_shared_is_other(superpeer, job->asked)) {
        struct refs refs;
        refs_look(superpeer, job->epoch, job->nids, job->count, job->settled, &refs);
        refs_add(job, &refs);
        return true;
    }
    job->request = (struct sh_request){
        .done = refers_done, .arg = superpeer, .timeout_ns = sh_superpeer_question_ns(superpeer)};
    if (sh_msg_request(superpeer->msg, job->asked, SH_CLUSTER_REFERS,
                       SH_REFERS_BYTES + 2 * job->count, &job->request, &out))
        return true;
    job->is_asking = true;
    sh_put64(&out.w, job->epoch);
    sh_put16(&out.w, (uint16_t)job->count);
    sh_put64(&out.w, job->settled);
    for (size_t i = 0; i < job->count; i++)
        sh_put16(&out.w, job->nids[i].v);
    sh_msg_end(superpeer->msg, &out);
    return true;
}

/* --- Jobs ------------------------------------------------------------------------------------ */

static void job_add(struct sh_forgetting *job, const struct sh_node *node)
{
    SH_ASSERT(job->count < NIDS_MAX);
    job->nids[job->count] = node->nid;
    job->instances[job->count] = node->instance;
    job->names[job->count] = job->ranges[job->count] = job->zones[job->count] = 0;
    job->count++;
}

static void job_begin(struct sh_superpeer *superpeer, bool is_wished)
{
    struct sh_forgetting *job = superpeer->forgetting;
    job->epoch = sh_registry_view(superpeer->registry)->epoch;
    job->count = 0;
    job->settled = 0;
    job->shards = 0;
    job->asked = SHOAL_NID_NONE;
    job->is_wished = is_wished;
}

/* What an operator wants. */
static void wish_begin(struct sh_superpeer *superpeer)
{
    struct sh_forgetting *job = superpeer->forgetting;
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), job->wish);
    bool is_away = node && node->state == SH_NODE_AWAY;
    if (!node || node->state == SH_NODE_UP || is_away) {
        refuse(superpeer, job->reply_to, node ? SHOAL_EINVAL : SHOAL_ENONODE,
               is_away ? "the node is away, and is to be back: wait until its time is over, or "
                         "declare its "
                         "disk lost by `shoal node lost`"
               : node  ? "the node is up: stop it first"
                       : NULL);
        job->wish = SHOAL_NID_NONE;
        return;
    }
    job_begin(superpeer, true);
    job_add(job, node);
}

/* When the leader looks again. While IDs are lacking it does so often, and waits for nobody's next life. */
static uint64_t leader_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_forgetting *job = superpeer->forgetting;
    if (!superpeer->forget_ns || !sh_shared_leads(superpeer))
        return SH_NEVER;
    uint64_t soon_ns = job->begun_ns + superpeer->failure_ns;
    return sh_registry_is_full(superpeer->registry) && soon_ns < job->due_ns ? soon_ns
                                                                             : job->due_ns;
}

/* What the leader finds that is gone for long enough. */
static void leader_begin(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_forgetting *job = superpeer->forgetting;
    if (now_ns < leader_due_ns(superpeer))
        return;
    uint64_t gone_ns = superpeer->forget_ns;
    if (sh_registry_is_full(superpeer->registry) && superpeer->failure_ns < gone_ns)
        gone_ns = superpeer->failure_ns;
    job->begun_ns = now_ns;
    job->due_ns = now_ns + superpeer->heartbeat_ns;
    if (!sh_superpeer_shared_is_current(superpeer))
        return;
    job_begin(superpeer, false);
    shoal_nid nid = SHOAL_NID_NONE;
    while (job->count < NIDS_MAX && sh_nid_is_peer(job->from)) {
        nid = sh_registry_gone(superpeer->registry, now_ns, gone_ns, job->from);
        if (!nid.v)
            break;
        job_add(job, sh_view_find(sh_registry_view(superpeer->registry), nid));
        job->from.v = (uint16_t)(nid.v + 1);
    }
    bool is_round_over = !nid.v || !sh_nid_is_peer(job->from);
    if (is_round_over) {
        job->from.v = SH_PEER_NID_MIN;
        job->due_ns += superpeer->forget_ns / ROUNDS_IN_TIME;
    }
}

static void decide(struct sh_superpeer *superpeer, size_t i, bool gives_up)
{
    struct sh_forgetting *job = superpeer->forgetting;
    struct sh_command command = {.kind = SH_COMMAND_FORGET,
                                 .state = gives_up,
                                 .nid = job->nids[i],
                                 .instance = job->instances[i]};
    sh_shared_decide(superpeer, &command);
}

/* All have spoken: if nothing but ranges refers to a node, which may be lost with it, it is given up. */
static void give_up(struct sh_superpeer *superpeer, size_t i)
{
    const struct sh_forgetting *job = superpeer->forgetting;
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), job->nids[i]);
    if (!job->names[i] && !job->zones[i] && job->ranges[i] && node && node->state == SH_NODE_FAILED)
        decide(superpeer, i, true);
}

static void wish_end(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_forgetting *job = superpeer->forgetting;
    char text[256];
    if (!~job->shards)
        give_up(superpeer, 0);
    /* Shards speak later, and what was lost with the node goes. */
    bool is_going = !job->names[0] && !job->zones[0] && job->ranges[0];
    if ((~job->shards || is_going) && now_ns < job->deadline_ns) {
        job->wish_ns = now_ns + superpeer->heartbeat_ns / 4;
        return;
    }
    shoal_nid nid = job->wish;
    job->wish = SHOAL_NID_NONE;
    if (~job->shards) {
        (void)snprintf(text, sizeof text,
                       "what refers to node %u is not known: no superpeer answers for %d of the "
                       "64 shards of the metadata",
                       nid.v, __builtin_popcountll(~job->shards));
        refuse(superpeer, job->reply_to, SHOAL_EBUSY, text);
    } else if (job->zones[0]) {
        (void)snprintf(
            text, sizeof text,
            "%" PRIu64 " zones are its own, or have a replica on its disk: bring it back, "
            "or wait until they are recovered and the replicas replaced; where some are lost, "
            "`shoal recovery --accept-loss` accepts that",
            job->zones[0]);
        refuse(superpeer, job->reply_to, SHOAL_EBUSY, text);
    } else if (job->names[0] || job->ranges[0]) {
        (void)snprintf(
            text, sizeof text,
            "%" PRIu64 " names of its chunks remain, and %" PRIu64
            " ranges of chunks of it that are with other peers, or were lost: remove the "
            "names and the chunks",
            job->names[0], job->ranges[0]);
        refuse(superpeer, job->reply_to, SHOAL_EBUSY, text);
    } else {
        sh_shared_forget(superpeer, job->reply_to, nid, job->instances[0]);
    }
}

static void leader_end(struct sh_superpeer *superpeer)
{
    struct sh_forgetting *job = superpeer->forgetting;
    for (size_t i = 0; !~job->shards && i < job->count; i++) {
        if (!job->names[i] && !job->ranges[i] && !job->zones[i])
            decide(superpeer, i, false);
        give_up(superpeer, i);
    }
}

/* All shards have spoken, and to some nodes no zone refers, as is known by now. */
static bool is_more_settled(struct sh_forgetting *job)
{
    uint64_t settled = 0;
    for (size_t i = 0; !~job->shards && i < job->count; i++)
        settled |= (uint64_t)(!job->zones[i] && job->ranges[i]) << i;
    if (!(settled & ~job->settled))
        return false;
    job->settled |= settled;
    job->shards = 0;
    job->asked = SHOAL_NID_NONE;
    memset(job->names, 0, sizeof job->names);
    memset(job->ranges, 0, sizeof job->ranges);
    memset(job->zones, 0, sizeof job->zones);
    return true;
}

unsigned sh_superpeer_forget_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_forgetting *job = superpeer->forgetting;
    if (job->is_asking)
        return 0;
    if (!job->count && job->wish.v && now_ns >= job->wish_ns)
        wish_begin(superpeer);
    else if (!job->count)
        leader_begin(superpeer, now_ns);
    if (!job->count)
        return 0;
    if (ask_next(superpeer) || is_more_settled(job))
        return 1;
    if (job->is_wished)
        wish_end(superpeer, now_ns);
    else
        leader_end(superpeer);
    job->count = 0;
    return 1;
}

uint64_t sh_superpeer_forget_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_forgetting *job = superpeer->forgetting;
    if (job->is_asking)
        return SH_NEVER;
    if (job->count)
        return 0;
    uint64_t due_ns = leader_due_ns(superpeer);
    return job->wish.v && job->wish_ns < due_ns ? job->wish_ns : due_ns;
}

/* --- Requests -------------------------------------------------------------------------------- */

static void on_forget(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_forgetting *job = superpeer->forgetting;
    shoal_nid nid = {sh_get16(&in->payload)};
    if (!sh_reader_done(&in->payload)) {
        refuse(superpeer, in->reply_to, SHOAL_EPROTO, NULL);
    } else if (!sh_nid_is_peer(nid)) {
        refuse(superpeer, in->reply_to, SHOAL_EROLE,
               "only peers are forgotten: a superpeer is taken out by `shoal node demote`");
    } else if (!sh_superpeer_shared_is_current(superpeer)) {
        refuse(superpeer, in->reply_to, SHOAL_EBUSY,
               "this superpeer hears no majority of the superpeers");
    } else if (job->wish.v) {
        refuse(superpeer, in->reply_to, SHOAL_EBUSY, "another node is being forgotten");
    } else {
        job->wish = nid;
        job->reply_to = in->reply_to;
        job->wish_ns = now_of(superpeer);
        job->deadline_ns = job->wish_ns + superpeer->failure_ns;
    }
}

/* --- Life ------------------------------------------------------------------------------------ */

enum shoal_err sh_superpeer_forget_open(struct sh_superpeer *superpeer)
{
    superpeer->forgetting = calloc(1, sizeof *superpeer->forgetting);
    if (!superpeer->forgetting)
        return SHOAL_ENOMEM;
    superpeer->forgetting->from.v = SH_PEER_NID_MIN;
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_FORGET, SH_MSG_INLINE, on_forget, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_REFERS, SH_MSG_INLINE, on_refers, superpeer);
    return SHOAL_OK;
}

void sh_superpeer_forget_close(struct sh_superpeer *superpeer)
{
    struct sh_forgetting *job = superpeer->forgetting;
    if (!job)
        return;
    if (job->is_asking)
        (void)sh_msg_cancel(superpeer->msg, &job->request);
    if (job->wish.v)
        refuse(superpeer, job->reply_to, SHOAL_ESTOPPED, NULL);
    superpeer->forgetting = NULL;
    free(job);
}
