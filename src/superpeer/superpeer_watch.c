/* Failure detection: which nodes count as up, and which superpeers should vote. */
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

#define FAILURES_MAX 64 /* declared at once */
#define HEARTBEATS_MISSED 3
#define TURNED_AWAY_SPANS 2 /* of failure_ns */

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static shoal_nid own_nid(const struct sh_superpeer *superpeer)
{
    return (shoal_nid){(uint16_t)(superpeer->index + 1)};
}

void sh_superpeer_shared_heard(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t epoch)
{
    struct sh_shared *shared = superpeer->shared;
    if (nid.v < SH_SHARED_NIDS)
        shared->heard[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
    if (epoch > shared->claimed)
        shared->claimed = epoch;
}

void sh_superpeer_shared_fail(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    struct sh_command command = {.kind = SH_COMMAND_FAIL, .state = is_dead, .nid = nid};
    if (!node || node->state != SH_NODE_UP)
        return;
    SH_ASSERT(node->role == SH_ROLE_PEER);
    command.instance = node->instance;
    sh_shared_decide(superpeer, &command);
}

void sh_shared_unheard(struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (nid.v < SH_SHARED_NIDS)
        superpeer->shared->heard[nid.v / 64] &= ~(UINT64_C(1) << nid.v % 64);
}

bool sh_shared_leads(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    return shared->consensus->ops->leads(shared->consensus);
}

shoal_nid sh_shared_leader(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    return (shoal_nid){shared->consensus->ops->leader(shared->consensus)};
}

/* --- The leader's part ----------------------------------------------------------------------- */

static void superpeer_decide(struct sh_superpeer *superpeer, shoal_nid nid,
                             enum sh_node_state state)
{
    SH_ASSERT(nid.v && nid.v <= SH_SUPERPEERS_MAX && state != SH_NODE_LEFT);
    struct sh_command command = {.kind = SH_COMMAND_STATE, .state = (uint8_t)state, .nid = nid};
    /* Should it be heard before that is decided, it gets no lease all the same. */
    if (state == SH_NODE_FAILED)
        sh_shared_doom(superpeer, nid);
    sh_shared_decide(superpeer, &command);
}

/* Only the leader declares a superpeer failed; the superpeer that is gone may have been the leader. */
void sh_shared_superpeer_gone(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead)
{
    struct sh_shared *shared = superpeer->shared;
    SH_ASSERT(nid.v && nid.v <= SH_SUPERPEERS_MAX && nid.v != own_nid(superpeer).v);
    if (!is_dead)
        return;
    if (shared->consensus->ops->gone)
        shared->consensus->ops->gone(shared->consensus, nid, now_of(superpeer));
    if (!sh_shared_leads(superpeer))
        return;
    shared->superpeer_gone_ns[nid.v] = now_of(superpeer);
    superpeer_decide(superpeer, nid, SH_NODE_FAILED);
}

static void watch_superpeers(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        const struct sh_node *node = &view->nodes[i];
        bool is_own = node->nid.v == own_nid(superpeer).v;
        uint64_t heard_ns =
            is_own ? now_ns : shared->consensus->ops->heard_ns(shared->consensus, node->nid);
        uint64_t since_ns = heard_ns > shared->led_since_ns ? heard_ns : shared->led_since_ns;
        if (node->state == SH_NODE_UP && now_ns >= since_ns + superpeer->failure_ns)
            superpeer_decide(superpeer, node->nid, SH_NODE_FAILED);
        else if (node->state == SH_NODE_UP && now_ns >= heard_ns + 2 * superpeer->heartbeat_ns)
            sh_superpeer_probe(superpeer, node->nid, now_ns);
        else if (node->state == SH_NODE_FAILED && heard_ns + superpeer->failure_ns / 2 > now_ns &&
                 heard_ns > shared->superpeer_gone_ns[node->nid.v])
            superpeer_decide(superpeer, node->nid, SH_NODE_UP);
    }
}

uint64_t sh_shared_strangers(const struct sh_superpeer *superpeer)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    const struct sh_consensus *consensus = superpeer->shared->consensus;
    uint64_t found = consensus->ops->members(consensus);
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++)
        found &= ~(UINT64_C(1) << view->nodes[i].nid.v);
    return found;
}

bool sh_shared_is_whole(const struct sh_superpeer *superpeer)
{
    return sh_registry_view(superpeer->registry)->superpeers && !sh_shared_strangers(superpeer);
}

/* Probes the peers that have missed a few heartbeats: if the superpeer to which such a peer was connected
 * has died with it, no other superpeer has noticed. */
static void ask_silent(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role != SH_ROLE_SUPERPEER && node->state == SH_NODE_UP &&
            now_ns >= sh_registry_heard_ns(superpeer->registry, node->nid) +
                          HEARTBEATS_MISSED * superpeer->heartbeat_ns)
            sh_superpeer_probe(superpeer, node->nid, now_ns);
    }
}

static void overdue_fail(struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    if (node->state == SH_NODE_UP) {
        sh_superpeer_shared_fail(superpeer, nid, false);
        return;
    }
    const struct sh_command command = {.kind = SH_COMMAND_FAIL,
                                       .state = SH_COMMAND_FAIL_LATE,
                                       .nid = nid,
                                       .instance = node->instance};
    sh_shared_decide(superpeer, &command);
}

static void watch_nodes(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    ask_silent(superpeer, now_ns);
    shoal_nid from = {SH_PEER_NID_MIN};
    for (unsigned i = 0; i < FAILURES_MAX; i++) {
        shoal_nid nid = sh_registry_overdue(superpeer->registry, now_ns, from);
        if (!nid.v)
            break;
        overdue_fail(superpeer, nid);
        from.v = nid.v + 1;
    }
}

/* The leader declares silent nodes failed, and failed superpeers that are heard again up. */
static void lead_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    SH_ASSERT(sh_shared_leads(superpeer));
    bool was_away = now_ns > shared->watched_ns + superpeer->failure_ns / 2;
    shared->watched_ns = now_ns;
    if (!shared->led_since_ns || was_away) {
        /* What the others heard before, or what came while we were stopped, we do not know. */
        shared->led_since_ns = now_ns;
        sh_registry_heard(superpeer->registry, now_ns, SHOAL_NID_NONE);
    }
    if (!shared->consensus->ops->is_settled(shared->consensus))
        return; /* or the same would be decided again and again */
    memset(shared->doomed, 0, sizeof shared->doomed);
    struct sh_command command = {.kind = SH_COMMAND_EPOCH, .instance = shared->claimed};
    if (shared->claimed > sh_registry_view(superpeer->registry)->epoch)
        sh_shared_decide(superpeer, &command); /* what was stored has been lost */
    watch_nodes(superpeer, now_ns);
    watch_superpeers(superpeer, now_ns);
    if (shared->consensus->ops->lead)
        shared->consensus->ops->lead(shared->consensus);
    memset(shared->heard, 0, sizeof shared->heard);
    shared->claimed = 0;
}

/* --- Everybody's part ------------------------------------------------------------------------ */

/* The registry must know where this superpeer is. */
static void address_step(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_node *own =
        sh_view_find(sh_registry_view(superpeer->registry), own_nid(superpeer));
    struct sh_command command = {.kind = SH_COMMAND_SUPERPEER,
                                 .nid = own_nid(superpeer),
                                 .instance = shared->instance,
                                 .address = sh_bytes_text(shared->address)};
    if (own && own->state != SH_NODE_LEFT && strcmp(own->address, shared->address) != 0)
        sh_shared_decide(superpeer, &command);
}

/* Keeps a connection to each superpeer that is up, over which it is the one that is known: while it lasts, a
 * process on a copy of its folder is let in nowhere (sh_msg_sole_set). */
static void touch_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    bool is_current = sh_superpeer_shared_is_current(superpeer);
    struct sh_out out;
    if (is_current)
        shared->turned_away_ns = shared->has_told_of_it = 0;
    if (!is_current || now_ns < shared->touch_ns)
        return;
    shared->touch_ns = now_ns + superpeer->failure_ns;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        shoal_nid nid = view->nodes[i].nid;
        if (view->nodes[i].state != SH_NODE_UP || !sh_shared_is_other(superpeer, nid) ||
            sh_msg_begin(superpeer->msg, nid, SH_CLUSTER_PING, SH_PING_BYTES, &out))
            continue;
        sh_put16(&out.w, nid.v);
        sh_msg_end(superpeer->msg, &out);
    }
}

/* A superpeer whose machine failed is turned away until the others notice that its connections are dead:
 * nothing is said for longer than that takes. */
void sh_superpeer_shared_turned_away(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_node *own =
        sh_view_find(sh_registry_view(superpeer->registry), own_nid(superpeer));
    if (!shared->turned_away_ns)
        shared->turned_away_ns = now_ns;
    if (shared->has_told_of_it ||
        now_ns < shared->turned_away_ns + TURNED_AWAY_SPANS * superpeer->failure_ns)
        return;
    shared->has_told_of_it = true;
    /* The registry is of when this one took part last. */
    const char *other = own ? own->address : shared->former;
    if (strcmp(other, shared->address) == 0)
        other = "ask another superpeer: shoal node list";
    SH_ERROR(
        "cluster",
        "the others are connected to another process of this superpeer, so they do not listen to "
        "this one, which tries on. If that process is up, one of the two runs on a copy of the "
        "other's data_dir: decide which is to be the superpeer, and stop the other one; this one "
        "takes its place once that has been gone for failure_ns",
        SH_U64("superpeer", own_nid(superpeer).v), SH_TEXT("other", other),
        SH_TEXT("this_one", shared->address));
}

/* Whether the registry has this one as left, and it is not needed any more to agree on that. */
static bool has_left(const struct sh_superpeer *superpeer)
{
    const struct sh_consensus *consensus = superpeer->shared->consensus;
    const struct sh_node *own =
        sh_view_find(sh_registry_view(superpeer->registry), own_nid(superpeer));
    return own && own->state == SH_NODE_LEFT && !consensus->ops->needs(consensus, own->nid);
}

void sh_shared_dismissed(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (!shared->is_dismissed)
        SH_WARN("cluster", "dismissed: this is no superpeer any more",
                SH_U64("node", own_nid(superpeer).v));
    shared->is_dismissed = true;
}

unsigned sh_shared_watch_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    bool leads = sh_shared_leads(superpeer);
    if (!leads)
        shared->led_since_ns = 0;
    sh_shared_lease_step(superpeer, now_ns);
    if (now_ns < shared->watch_ns)
        return 0;
    /* It hurries to get its own lease, for nobody is answered before. */
    bool hurries = !leads && !sh_superpeer_lease_ns(superpeer, own_nid(superpeer), now_ns);
    shared->watch_ns = now_ns + superpeer->heartbeat_ns / (hurries ? 4 : 1) + 1;
    if (!leads)
        sh_shared_report(superpeer, now_ns);
    else if (shared->consensus->ops->is_current(shared->consensus, now_ns))
        lead_step(superpeer, now_ns);
    address_step(superpeer);
    touch_step(superpeer, now_ns);
    if (shared->consensus->ops->beat)
        shared->consensus->ops->beat(shared->consensus, now_ns);
    if (has_left(superpeer))
        sh_shared_dismissed(superpeer);
    if (shared->is_dismissed && !shared->was_told) {
        shared->was_told = true;
        if (shared->on_dismissed)
            shared->on_dismissed(superpeer->arg);
    }
    return 1;
}

/* --- Messages -------------------------------------------------------------------------------- */

void sh_shared_on_heard(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t claimed = sh_get64(&in->payload);
    uint16_t count = sh_get16(&in->payload);
    if (!sh_shared_is_other(superpeer, in->reply_to.nid) ||
        sh_reader_left(&in->payload) != 2 * (size_t)count || !sh_shared_leads(superpeer)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    uint64_t now_ns = now_of(superpeer);
    struct sh_consensus *consensus = superpeer->shared->consensus;
    if (consensus->ops->heard)
        consensus->ops->heard(consensus, in->reply_to.nid, now_ns);
    struct sh_bytes nids = {sh_reader_take(&in->payload, 2 * (size_t)count), 2 * (size_t)count};
    for (uint16_t i = 0; i < count; i++) {
        shoal_nid nid = {sh_load16(nids.at + 2 * (size_t)i)};
        if (!sh_nid_is_peer(nid))
            continue;
        sh_registry_heard(superpeer->registry, now_ns, nid);
        sh_superpeer_shared_heard(superpeer, nid, claimed);
    }
    sh_shared_report_answer(superpeer, in, nids, now_ns);
}
