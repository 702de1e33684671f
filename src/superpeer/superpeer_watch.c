/* Who of a cluster with a shared registry is alive, and which superpeers should vote. */
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

#define FAILURES_MAX 64 /* declared at once */
#define HEARTBEATS_MISSED 3

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
    command.instance = node->instance;
    sh_shared_decide(superpeer, &command);
}

void sh_shared_unheard(struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (nid.v < SH_SHARED_NIDS)
        superpeer->shared->heard[nid.v / 64] &= ~(UINT64_C(1) << nid.v % 64);
}

static bool is_heard(const struct sh_shared *shared, shoal_nid nid)
{
    return shared->heard[nid.v / 64] >> nid.v % 64 & 1;
}

bool sh_shared_leads(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    return shared->zookeeper ? sh_zookeeper_leads(shared->zookeeper)
                             : sh_raft_role(shared->raft) == SH_RAFT_LEADER;
}

/* --- The leader's part ----------------------------------------------------------------------- */

static void superpeer_decide(struct sh_superpeer *superpeer, shoal_nid nid,
                             enum sh_node_state state)
{
    struct sh_command command = {.kind = SH_COMMAND_STATE, .state = (uint8_t)state, .nid = nid};
    /* Should it be heard before that is decided, it gets no lease all the same. */
    if (state == SH_NODE_FAILED)
        sh_shared_doom(superpeer, nid);
    sh_shared_decide(superpeer, &command);
}

static uint64_t superpeer_heard_ns(const struct sh_shared *shared, shoal_nid nid)
{
    return shared->zookeeper ? shared->superpeer_heard_ns[nid.v]
                             : sh_raft_heard_ns(shared->raft, (uint8_t)nid.v);
}

/* Only the leader declares it; that may have been the one. With ZooKeeper its session tells. */
void sh_shared_superpeer_gone(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead)
{
    struct sh_shared *shared = superpeer->shared;
    if (!is_dead)
        return;
    if (shared->raft)
        sh_raft_leader_gone(shared->raft, now_of(superpeer), (uint8_t)nid.v);
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
        uint64_t heard_ns = is_own ? now_ns : superpeer_heard_ns(shared, node->nid);
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

/* Raft's members in want of an entry in the registry: right after a cluster's start. */
static uint64_t strangers(const struct sh_superpeer *superpeer)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    uint64_t found = sh_raft_members(superpeer->shared->raft).voters;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++)
        found &= ~(UINT64_C(1) << view->nodes[i].nid.v);
    return found;
}

bool sh_shared_is_whole(const struct sh_superpeer *superpeer)
{
    return sh_registry_view(superpeer->registry)->superpeers && !strangers(superpeer);
}

static void introduce_strangers(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t found = strangers(superpeer);
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        struct sh_command command = {.kind = SH_COMMAND_SUPERPEER,
                                     .nid = {i},
                                     .address = sh_bytes_text(shared->contacts[i])};
        if ((found >> i & 1) && command.address.size)
            sh_shared_decide(superpeer, &command);
    }
}

/* Makes raft's members those whom the registry names, by the next step that raft allows: whoever
 * left goes first, the leader last of them; learners that have caught up vote; new ones learn. */
static void members_step(struct sh_superpeer *superpeer)
{
    struct sh_raft *raft = superpeer->shared->raft;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    struct sh_raft_members members = sh_raft_members(raft);
    uint64_t wanted = 0;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        if (view->nodes[i].state != SH_NODE_LEFT)
            wanted |= UINT64_C(1) << view->nodes[i].nid.v;
    }
    uint64_t own = UINT64_C(1) << own_nid(superpeer).v;
    uint64_t gone = (members.voters | members.learners) & ~wanted & ~strangers(superpeer);
    if (gone & ~own)
        gone &= ~own;
    struct sh_raft_members next = members;
    if (gone) {
        gone &= -gone;
        next.voters &= ~gone;
        next.learners &= ~gone;
        (void)!sh_raft_members_change(raft, next); /* EBUSY: the one before is not over yet */
        return;
    }
    for (uint64_t left = members.learners; left; left &= left - 1) {
        uint64_t learner = left & -left;
        next.voters = members.voters | learner;
        next.learners = members.learners & ~learner;
        if (!sh_raft_members_change(raft, next))
            return;
    }
    uint64_t fresh = wanted & ~members.voters & ~members.learners;
    if (fresh) {
        next.voters = members.voters;
        next.learners = members.learners | fresh;
        (void)!sh_raft_members_change(raft, next);
    }
}

/* Asks those that have missed a few heartbeats: if the superpeer to which they were connected has
 * died with them, nobody else has noticed. */
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

static void watch_nodes(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    ask_silent(superpeer, now_ns);
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    /* What was heard before a failure and is told after it brings nobody back. */
    bool is_told_late = now_ns < superpeer->shared->failed_ns + 3 * superpeer->heartbeat_ns;
    for (size_t i = 0; !is_told_late && i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        struct sh_command command = {
            .kind = SH_COMMAND_BACK, .nid = node->nid, .instance = node->instance};
        if (node->state == SH_NODE_FAILED && node->role != SH_ROLE_SUPERPEER &&
            is_heard(superpeer->shared, node->nid))
            sh_shared_decide(superpeer, &command);
    }
    shoal_nid from = {SH_PEER_NID_MIN};
    for (unsigned i = 0; i < FAILURES_MAX; i++) {
        shoal_nid nid = sh_registry_overdue(superpeer->registry, now_ns, from);
        if (!nid.v)
            break;
        sh_superpeer_shared_fail(superpeer, nid, false);
        from.v = nid.v + 1;
    }
}

/* Whoever is silent has failed, and whoever had failed and is heard is back. */
static void lead_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    bool was_away = now_ns > shared->watched_ns + superpeer->failure_ns / 2;
    shared->watched_ns = now_ns;
    if (!shared->led_since_ns || was_away) {
        /* What the others heard before, or what came while we were stopped, we do not know. */
        shared->led_since_ns = now_ns;
        sh_registry_heard(superpeer->registry, now_ns, SHOAL_NID_NONE);
    }
    if (shared->zookeeper ? shared->decided != NULL
                          : sh_raft_applied(shared->raft) < shared->watched)
        return; /* or the same would be decided again and again */
    memset(shared->doomed, 0, sizeof shared->doomed);
    struct sh_command command = {.kind = SH_COMMAND_EPOCH, .instance = shared->claimed};
    if (shared->claimed > sh_registry_view(superpeer->registry)->epoch)
        sh_shared_decide(superpeer, &command); /* what was stored has been lost */
    if (shared->raft)
        introduce_strangers(superpeer);
    watch_nodes(superpeer, now_ns);
    watch_superpeers(superpeer, now_ns);
    if (shared->raft) {
        members_step(superpeer);
        shared->watched = sh_raft_last(shared->raft);
    }
    memset(shared->heard, 0, sizeof shared->heard);
    shared->claimed = 0;
}

/* --- Everybody's part ------------------------------------------------------------------------ */

bool sh_shared_is_lost(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    SH_ASSERT(shared->raft);
    if (sh_raft_role(shared->raft) == SH_RAFT_LEADER)
        return false;
    uint64_t heard_ns = sh_raft_leader_heard_ns(shared->raft);
    if (heard_ns < shared->started_ns)
        heard_ns = shared->started_ns;
    return !sh_raft_leader(shared->raft) || now_ns >= heard_ns + 2 * shared->election_ns;
}

static void here_send(struct sh_superpeer *superpeer, shoal_nid to, shoal_nid nid,
                      const char *address)
{
    struct sh_out out;
    struct sh_bytes text = sh_bytes_text(address);
    if (sh_msg_begin(superpeer->msg, to, SH_CLUSTER_HERE, SH_HERE_BYTES + text.size, &out))
        return;
    sh_put16(&out.w, nid.v);
    sh_put_text(&out.w, text);
    sh_msg_end(superpeer->msg, &out);
}

/* Tells all superpeers that may be there where this one is, which may be at another address than
 * before, or may have been dismissed meanwhile. */
static void call_out(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        if (shared->contacts[i][0] && sh_shared_is_other(superpeer, (shoal_nid){i}))
            here_send(superpeer, (shoal_nid){i}, own_nid(superpeer), shared->address);
    }
    for (uint16_t i = 0; i < shared->hints_count; i++) {
        shoal_nid alias;
        if (strcmp(shared->hints[i], shared->address) != 0 &&
            !sh_msg_contact(superpeer->msg, shared->hints[i], &alias))
            here_send(superpeer, alias, own_nid(superpeer), shared->address);
    }
}

/* The leader must know where we are. */
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

/* Whether the registry has this one as left, and raft does not need it any more to agree on that.
 * Who does not hear that it has been taken out asks around (call_out), and is told by the others.
 */
static bool has_left(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    const struct sh_node *own =
        sh_view_find(sh_registry_view(superpeer->registry), own_nid(superpeer));
    if (!own || own->state != SH_NODE_LEFT)
        return false;
    if (shared->zookeeper)
        return true;
    if (sh_shared_leads(superpeer))
        return false;
    return !sh_raft_needs(shared->raft, (uint8_t)own->nid.v);
}

void sh_shared_dismissed(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (!shared->is_dismissed)
        SH_WARN("cluster", "dismissed: this is no superpeer any more",
                SH_U64("node", own_nid(superpeer).v));
    shared->is_dismissed = true;
}

/* Says who decides: only then does the cluster survive what it should. */
static void voters_step(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t voters = sh_raft_members(shared->raft).voters;
    if (voters == shared->voters)
        return;
    shared->voters = voters;
    SH_INFO("cluster", "superpeers vote", SH_U64("count", (uint64_t)__builtin_popcountll(voters)),
            SH_U64("itself", voters >> own_nid(superpeer).v & 1));
}

static void raft_watch_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    address_step(superpeer);
    voters_step(superpeer);
    if (!sh_shared_is_lost(superpeer, now_ns) || now_ns < shared->here_ns)
        return;
    shared->here_ns = now_ns + shared->election_ns;
    call_out(superpeer);
}

unsigned sh_shared_watch_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    bool leads = sh_shared_leads(superpeer);
    if (!leads)
        shared->led_since_ns = shared->watched = 0;
    sh_shared_lease_step(superpeer, now_ns);
    if (now_ns < shared->watch_ns)
        return 0;
    shared->watch_ns = now_ns + superpeer->heartbeat_ns;
    if (leads && (shared->zookeeper || sh_raft_is_current(shared->raft))) {
        lead_step(superpeer, now_ns);
    } else if (!leads) {
        sh_shared_report(superpeer, now_ns);
    }
    if (shared->raft)
        raft_watch_step(superpeer, now_ns);
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
    superpeer->shared->superpeer_heard_ns[in->reply_to.nid.v] = now_ns;
    struct sh_bytes nids = {sh_reader_take(&in->payload, 2 * (size_t)count), 2 * (size_t)count};
    for (uint16_t i = 0; i < count; i++) {
        shoal_nid nid = {sh_load16(nids.at + 2 * (size_t)i)};
        if (!nid.v)
            continue;
        sh_registry_heard(superpeer->registry, now_ns, nid);
        sh_superpeer_shared_heard(superpeer, nid, claimed);
    }
    sh_shared_report_answer(superpeer, in, nids, now_ns);
}

/* Whether somebody at that address can't be the superpeer of that ID, by a registry that is up to
 * date: it has left, or that address is another's. */
static bool is_impostor(const struct sh_superpeer *superpeer, shoal_nid nid,
                        struct sh_bytes address)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (!sh_superpeer_shared_is_current(superpeer) || !sh_shared_is_whole(superpeer) ||
        sh_raft_needs(superpeer->shared->raft, (uint8_t)nid.v))
        return false;
    const struct sh_node *node = sh_view_find(view, nid);
    if (node)
        return node->state == SH_NODE_LEFT;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        if (view->nodes[i].state != SH_NODE_LEFT &&
            strlen(view->nodes[i].address) == address.size &&
            memcmp(view->nodes[i].address, address.at, address.size) == 0)
            return true;
    }
    return false;
}

static uint64_t log_id(const struct sh_superpeer *superpeer)
{
    return superpeer->shared->raft ? sh_raft_log_id(superpeer->shared->raft) : 0;
}

void sh_shared_on_here(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_shared *shared = superpeer->shared;
    shoal_nid nid = {sh_get16(&in->payload)};
    struct sh_bytes address = sh_get_text(&in->payload);
    bool is_itself = in->reply_to.nid.v == nid.v;
    if (!sh_reader_done(&in->payload) || !sh_shared_is_other(superpeer, in->reply_to.nid) ||
        !sh_shared_is_other(superpeer, nid) || !address.size ||
        address.size >= SH_MSG_ADDRESS_MAX || memchr(address.at, 0, address.size))
        return;
    struct sh_out out;
    if (is_itself && is_impostor(superpeer, nid, address)) {
        if (sh_msg_begin(superpeer->msg, nid, SH_CLUSTER_DISMISSED, SH_DISMISSED_BYTES, &out))
            return;
        sh_put16(&out.w, nid.v);
        sh_put64(&out.w, log_id(superpeer));
        sh_msg_end(superpeer->msg, &out);
        return;
    }
    if (is_itself || !(shared->fresh >> nid.v & 1))
        sh_shared_contact_set(superpeer, nid, address);
    if (!is_itself)
        return;
    shared->fresh |= UINT64_C(1) << nid.v;
    /* Others that called here may not know of each other. */
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        if ((shared->fresh >> i & 1) && i != nid.v)
            here_send(superpeer, nid, (shoal_nid){i}, shared->contacts[i]);
    }
}

/* What is stored is removed then, so the word of another log than the own one does not count: that
 * of a cluster which was forced to go on without this one. */
void sh_shared_on_dismissed(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint16_t nid = sh_get16(&in->payload);
    uint64_t theirs = sh_get64(&in->payload), own = log_id(superpeer);
    if (!sh_reader_done(&in->payload) || !sh_shared_is_other(superpeer, in->reply_to.nid) ||
        nid != own_nid(superpeer).v)
        return;
    if (!own || own == theirs) {
        sh_shared_dismissed(superpeer);
        return;
    }
    if (superpeer->shared->stranger != theirs)
        SH_ERROR(
            "cluster",
            "the superpeers that are there share another registry, in which this one has left: "
            "the cluster was forced to go on without it. Stop this one; to have it take part, "
            "remove the files journal.* in its data_dir and start it with the others' addresses",
            SH_U64("told_by", in->reply_to.nid.v));
    superpeer->shared->stranger = theirs;
}
