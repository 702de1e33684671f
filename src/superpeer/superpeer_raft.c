/* The superpeers agree by Raft (raft.h): its state is the registry, its log lies in the superpeer's
 * journal, and its members are made those whom the registry names. And how its servers find each
 * other: one that hears no leader tells all that it knows of where it is (HERE), and is told if it has
 * been dismissed meanwhile (DISMISSED). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "raft/raft.h"
#include "superpeer/superpeer_shared_int.h"

#define SNAPSHOT_ENTRIES 1024
#define PIECE_BYTES 16384

struct raft_consensus {
    struct sh_consensus base;
    struct sh_superpeer *superpeer;
    struct sh_raft *raft;
    /* Where superpeers may be, by the options: called while no leader is heard. */
    char (*hints)[SH_MSG_ADDRESS_MAX];
    uint16_t hints_count;
    uint64_t started_ns, here_ns;
    uint64_t met_ns[SH_SUPERPEERS_MAX + 1]; /* when a superpeer was seen to be connected last */
    uint64_t beat_ns;                       /* when that was looked at last */
    uint64_t fresh;    /* bit n: superpeer n itself has said in this run where it is */
    uint64_t stranger; /* the other log whose members have told this one that it has left */
    uint64_t voters;   /* who votes, as was logged last: bit n is superpeer n */
    uint64_t led_last; /* at a leader: the last entry from before its time; 0: it does not lead */
    uint64_t settled;  /* entries to this one must be applied before the leader looks again: to the
                        * last verdict, and to the end of the log when it looked last */
};

static struct raft_consensus *of(const struct sh_consensus *consensus)
{
    return (struct raft_consensus *)consensus;
}

static struct raft_consensus *of_superpeer(const struct sh_superpeer *superpeer)
{
    return of(superpeer->shared->consensus);
}

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static shoal_nid own_nid(const struct sh_superpeer *superpeer)
{
    return (shoal_nid){(uint16_t)(superpeer->index + 1)};
}

/* --- The state machine ----------------------------------------------------------------------- */

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)term;
    struct sh_superpeer *superpeer = arg;
    bool was_loaded = index <= sh_raft_loaded_last(of_superpeer(superpeer)->raft);
    sh_shared_apply(superpeer, command, was_loaded);
}

static size_t image_size(void *arg)
{
    struct sh_superpeer *superpeer = arg;
    return sh_registry_image_size(superpeer->registry);
}

static void image_put(void *arg, struct sh_writer *w)
{
    struct sh_superpeer *superpeer = arg;
    sh_registry_image_put(w, superpeer->registry, 0);
}

static enum shoal_err image_get(void *arg, struct sh_bytes image)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_registry *registry;
    enum shoal_err err = sh_shared_registry_read(superpeer, image, &registry);
    if (!err)
        sh_shared_registry_set(superpeer, registry);
    return err;
}

/* --- Messages -------------------------------------------------------------------------------- */

static struct sh_bytes rest_of(struct sh_msg_in *in)
{
    size_t size = sh_reader_left(&in->payload);
    return sh_bytes_make(sh_reader_take(&in->payload, size), size);
}

static void on_raft(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    if (sh_shared_is_other(superpeer, in->reply_to.nid))
        sh_raft_receive(of_superpeer(superpeer)->raft, now_of(superpeer),
                        (uint8_t)in->reply_to.nid.v, rest_of(in));
}

/* No superpeer proposes FORCE, which only an operator's command writes, to the disk of one that is down. */
static void on_propose(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_bytes bytes = rest_of(in);
    struct sh_command command;
    if (sh_shared_is_other(superpeer, in->reply_to.nid) && sh_command_get(bytes, &command) &&
        command.kind != SH_COMMAND_FORCE && sh_shared_leads(superpeer))
        sh_shared_hand_in(superpeer, bytes);
}

static void refuse_kind(const struct sh_superpeer *superpeer, struct sh_msg_in *in, bool is_memory)
{
    static const char *const kinds[] = {"in its data_dir", "in memory (registry = memory)"};
    char text[256];
    (void)snprintf(
        text, sizeof text,
        "superpeer %u keeps the registry %s, and the new superpeer would keep it %s: start "
        "that with the others' value of the option registry",
        superpeer->index + 1u, kinds[!is_memory], kinds[is_memory]);
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ESETTING, text);
}

static void on_recruit(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint8_t is_memory = sh_get8(&in->payload);
    uint64_t instance = sh_get64(&in->payload);
    struct sh_bytes address = sh_get_text(&in->payload);
    if (!sh_reader_done(&in->payload) || is_memory > 1)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
    else if (is_memory != !superpeer->env.disk)
        refuse_kind(superpeer, in, is_memory);
    else if (!sh_superpeer_shared_is_current(superpeer) || !sh_shared_is_whole(superpeer))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY,
                           "this superpeer hears no majority of the superpeers");
    else
        sh_shared_recruit(superpeer, in, address, instance);
}

static unsigned send_all(struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)now_ns;
    unsigned work = 0;
    struct sh_raft_message *message;
    while ((message = sh_raft_message_next(of(consensus)->raft))) {
        sh_shared_send(of(consensus)->superpeer, (shoal_nid){message->to}, SH_CLUSTER_RAFT,
                       sh_bytes_make(message->bytes, message->size));
        free(message);
        work++;
    }
    return work;
}

/* --- Members --------------------------------------------------------------------------------- */

static uint64_t members(const struct sh_consensus *consensus)
{
    return sh_raft_members(of(consensus)->raft).voters;
}

static bool needs(const struct sh_consensus *consensus, shoal_nid nid)
{
    struct raft_consensus *self = of(consensus);
    bool leads = sh_raft_role(self->raft) == SH_RAFT_LEADER;
    return (leads && nid.v == own_nid(self->superpeer).v) ||
           sh_raft_needs(self->raft, (uint8_t)nid.v);
}

static void introduce_strangers(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t found = sh_shared_strangers(superpeer);
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
    struct sh_raft *raft = of_superpeer(superpeer)->raft;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    struct sh_raft_members members = sh_raft_members(raft);
    uint64_t wanted = 0;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        if (view->nodes[i].state != SH_NODE_LEFT)
            wanted |= UINT64_C(1) << view->nodes[i].nid.v;
    }
    uint64_t own = UINT64_C(1) << own_nid(superpeer).v;
    uint64_t gone = (members.voters | members.learners) & ~wanted & ~sh_shared_strangers(superpeer);
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

static void lead(struct sh_consensus *consensus)
{
    struct raft_consensus *self = of(consensus);
    introduce_strangers(self->superpeer);
    members_step(self->superpeer);
    self->settled = sh_raft_last(self->raft);
}

/* --- Finding each other ----------------------------------------------------------------------- */

/* Whether no leader was heard lately. */
static bool is_lost(const struct raft_consensus *self, uint64_t now_ns)
{
    if (sh_raft_role(self->raft) == SH_RAFT_LEADER)
        return false;
    uint64_t heard_ns = sh_raft_leader_heard_ns(self->raft);
    if (heard_ns < self->started_ns)
        heard_ns = self->started_ns;
    return !sh_raft_leader(self->raft) ||
           now_ns >= heard_ns + 2 * self->superpeer->shared->election_ns;
}

static uint64_t log_id(const struct sh_superpeer *superpeer)
{
    return sh_raft_log_id(of_superpeer(superpeer)->raft);
}

static void here_send(struct sh_superpeer *superpeer, shoal_nid to, shoal_nid nid,
                      const char *address)
{
    SH_ASSERT(nid.v && nid.v <= SH_SUPERPEERS_MAX);
    struct sh_out out;
    struct sh_bytes text = sh_bytes_text(address);
    bool is_itself = nid.v == own_nid(superpeer).v;
    if (sh_msg_begin(superpeer->msg, to, SH_CLUSTER_HERE, SH_HERE_BYTES + text.size, &out))
        return;
    sh_put16(&out.w, nid.v);
    sh_put64(&out.w, log_id(superpeer));
    sh_put64(&out.w, is_itself ? superpeer->life : 0);
    sh_put_text(&out.w, text);
    sh_msg_end(superpeer->msg, &out);
}

/* Tells all superpeers that may be there where this one is, which may be at another address than
 * before, or may have been dismissed meanwhile. */
static void call_out(struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    const struct raft_consensus *self = of_superpeer(superpeer);
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        if (shared->contacts[i][0] && sh_shared_is_other(superpeer, (shoal_nid){i}))
            here_send(superpeer, (shoal_nid){i}, own_nid(superpeer), shared->address);
    }
    for (uint16_t i = 0; i < self->hints_count; i++) {
        shoal_nid alias;
        if (strcmp(self->hints[i], shared->address) != 0 &&
            !sh_msg_contact(superpeer->msg, self->hints[i], &alias))
            here_send(superpeer, alias, own_nid(superpeer), shared->address);
    }
}

/* Says who decides: only then does the cluster survive what it should. */
static void voters_note(struct raft_consensus *self)
{
    uint64_t voters = sh_raft_members(self->raft).voters;
    if (voters == self->voters)
        return;
    self->voters = voters;
    SH_INFO("cluster", "superpeers vote", SH_U64("count", (uint64_t)__builtin_popcountll(voters)),
            SH_U64("itself", voters >> own_nid(self->superpeer).v & 1));
}

/* Whether this process was stopped, so that it does not know whom it would have heard meanwhile. */
static bool has_missed_beats(const struct raft_consensus *self, uint64_t now_ns)
{
    return now_ns > self->beat_ns + 4 * self->superpeer->heartbeat_ns;
}

static void beat(struct sh_consensus *consensus, uint64_t now_ns)
{
    struct raft_consensus *self = of(consensus);
    voters_note(self);
    bool was_stopped = has_missed_beats(self, now_ns);
    self->beat_ns = now_ns;
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        if (self->superpeer->shared->contacts[i][0] &&
            (was_stopped || sh_msg_is_connected(self->superpeer->msg, (shoal_nid){i})))
            self->met_ns[i] = now_ns;
    }
    if (sh_raft_withdrawal(self->raft))
        return;
    if (!is_lost(self, now_ns) || now_ns < self->here_ns)
        return;
    self->here_ns = now_ns + self->superpeer->shared->election_ns;
    call_out(self->superpeer);
}

/* Whether somebody at that address can't be the superpeer of that ID, by a registry that is up to
 * date: it has left, or that address is another's. */
static bool is_impostor(const struct sh_superpeer *superpeer, shoal_nid nid,
                        struct sh_bytes address)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (!sh_superpeer_shared_is_current(superpeer) || !sh_shared_is_whole(superpeer) ||
        needs(superpeer->shared->consensus, nid))
        return false;
    const struct sh_node *node = sh_view_find(view, nid);
    if (node)
        return node->state == SH_NODE_LEFT;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        if (view->nodes[i].state != SH_NODE_LEFT && sh_node_is_at(&view->nodes[i], address))
            return true;
    }
    return false;
}

/* Whether the one that says where it is shares another log, or is a former life: its place is not where that
 * superpeer is. */
static bool is_elsewhere(const struct sh_superpeer *superpeer, shoal_nid nid, uint64_t log,
                         uint64_t life)
{
    uint64_t own = log_id(superpeer), known = sh_registry_arcs(superpeer->registry)->lives[nid.v];
    if (log && own && log != own)
        return true;
    return sh_life_is_former(life, known);
}

/* Whether a superpeer is not where it was: its host says that nobody listens there, or there was no connection for
 * failure_ns. */
static bool is_away(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (!*superpeer->shared->contacts[nid.v])
        return true;
    if (sh_msg_is_connected(superpeer->msg, nid))
        return false;
    if (sh_msg_was_refused(superpeer->msg, nid))
        return true;
    const struct raft_consensus *self = of_superpeer(superpeer);
    uint64_t now_ns = now_of(superpeer);
    return !has_missed_beats(self, now_ns) && now_ns >= self->met_ns[nid.v] + superpeer->failure_ns;
}

static void on_here(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_shared *shared = superpeer->shared;
    struct raft_consensus *self = of_superpeer(superpeer);
    shoal_nid nid = {sh_get16(&in->payload)};
    uint64_t log = sh_get64(&in->payload);
    uint64_t life = sh_get64(&in->payload);
    struct sh_bytes address = sh_get_text(&in->payload);
    bool is_itself = in->reply_to.nid.v == nid.v;
    /* A superpeer that calls an address of its list has no connection under its ID yet. */
    bool is_caller = in->reply_to.nid.v >= SH_MSG_ALIAS_MIN && log && log == log_id(superpeer);
    bool is_other = is_caller || sh_shared_is_other(superpeer, in->reply_to.nid);
    if (!sh_reader_done(&in->payload) || !is_other || !sh_shared_is_other(superpeer, nid) ||
        !sh_address_is_valid(address))
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
    if (is_elsewhere(superpeer, nid, log, life))
        return;
    /* A caller may run on a copy of a superpeer's folder, and must not take the place of the original. */
    bool is_news = is_caller ? is_away(superpeer, nid) : !(self->fresh >> nid.v & 1);
    if (is_itself || is_news)
        sh_shared_contact_set(superpeer, nid, address);
    if (!is_itself)
        return;
    self->fresh |= UINT64_C(1) << nid.v;
    /* Others that called here may not know of each other; nor may this one know of a leader that came
     * while it was away, and which looks for it where it was. */
    uint16_t leader = sh_raft_leader(self->raft);
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        bool is_leader = i == leader && i != own_nid(superpeer).v && *shared->contacts[i];
        if (((self->fresh >> i & 1) || is_leader) && i != nid.v)
            here_send(superpeer, nid, (shoal_nid){i}, shared->contacts[i]);
    }
}

/* What is stored is removed then, so the word of another log than the own one does not count: that
 * of a cluster which was forced to go on without this one. */
static void on_dismissed(void *arg, struct sh_msg_in *in)
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
    if (of_superpeer(superpeer)->stranger != theirs)
        SH_ERROR(
            "cluster",
            "the superpeers that are there share another registry, in which this one has left: "
            "the cluster was forced to go on without it. Stop this one; to have it take part, "
            "remove the files journal.* in its data_dir and start it with the others' addresses",
            SH_U64("told_by", in->reply_to.nid.v));
    of_superpeer(superpeer)->stranger = theirs;
}

/* Changes the superpeers of a view as the command changes those of the registry. *nid_out: the superpeer at the
 * command's address from then on. False: the command names no address. */
static bool command_show(const struct sh_command *command, struct sh_view *view, shoal_nid *nid_out)
{
    for (size_t i = 0; command->kind == SH_COMMAND_FORCE && i < view->count; i++) {
        if (view->nodes[i].nid.v != command->nid.v)
            view->nodes[i].state = SH_NODE_LEFT;
    }
    struct sh_node *known = sh_view_find(view, command->nid);
    if (command->kind == SH_COMMAND_STATE && command->state == SH_NODE_LEFT && known)
        known->state = SH_NODE_LEFT;
    bool is_news;
    return command->kind == SH_COMMAND_SUPERPEER &&
           !sh_registry_superpeer_show(view, command->address, command->instance, command->nid,
                                       nid_out, &is_news);
}

/* Where superpeers are by the entries behind the registry's, which are not known to be committed. False: they
 * name none. */
static bool contacts_of_log(struct sh_superpeer *superpeer)
{
    const struct sh_raft *raft = of_superpeer(superpeer)->raft;
    struct sh_view view = {0};
    struct sh_command command;
    struct sh_bytes bytes;
    uint64_t term;
    shoal_nid nid;
    bool is_known = false;
    if (sh_view_copy(&view, sh_registry_view(superpeer->registry)))
        return false; /* others will say where they are */
    for (uint64_t i = sh_raft_applied(raft) + 1; i <= sh_raft_last(raft); i++) {
        if (!sh_raft_entry(raft, i, &term, &bytes) || !bytes.size ||
            !sh_command_get(bytes, &command) || !command_show(&command, &view, &nid))
            continue;
        is_known = true;
        sh_shared_contact_set(superpeer, nid, command.address);
    }
    sh_view_destroy(&view);
    return is_known;
}

/* Where others are, by what was stored last, or for a new cluster by the list; a recruit was told.
 */
static void contacts_fill(struct sh_superpeer *superpeer, const struct sh_superpeer_config *config)
{
    const struct sh_shared *shared = superpeer->shared;
    const struct raft_consensus *self = of_superpeer(superpeer);
    const struct sh_view *view =
        config->recruited ? config->recruited : sh_registry_view(superpeer->registry);
    sh_shared_contacts_take(superpeer, view);
    bool is_known = contacts_of_log(superpeer) || config->recruited || view->superpeers;
    for (uint16_t i = 0; !is_known && i < config->count; i++)
        sh_shared_contact_set(superpeer, (shoal_nid){(uint16_t)(i + 1)},
                              sh_bytes_text(self->hints[i]));
    memcpy(superpeer->shared->former, shared->contacts[superpeer->index + 1],
           sizeof shared->former);
    if (is_known || config->count > superpeer->index)
        sh_shared_contact_set(superpeer, (shoal_nid){(uint16_t)(superpeer->index + 1)},
                              sh_bytes_text(shared->address));
}

/* --- The rest of the table ------------------------------------------------------------------- */

static struct sh_journal_stream stream(struct sh_consensus *consensus)
{
    return sh_raft_stream(of(consensus)->raft);
}

static void synced(struct sh_consensus *consensus, uint64_t now_ns)
{
    sh_raft_synced(of(consensus)->raft, now_ns);
}

static unsigned step(struct sh_consensus *consensus, uint64_t now_ns)
{
    struct raft_consensus *self = of(consensus);
    bool is_due = now_ns >= sh_raft_due_ns(self->raft);
    if (is_due)
        sh_raft_tick(self->raft, now_ns);
    if (sh_raft_role(self->raft) != SH_RAFT_LEADER)
        self->led_last = self->settled = 0;
    else if (!self->led_last)
        self->led_last = sh_raft_last(self->raft);
    return is_due;
}

static uint64_t due_ns(const struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)now_ns;
    return sh_raft_due_ns(of(consensus)->raft);
}

static void propose(struct sh_consensus *consensus, struct sh_bytes command, bool is_verdict)
{
    struct raft_consensus *self = of(consensus);
    uint64_t index, term;
    if (!sh_raft_propose(self->raft, command, &index, &term) && is_verdict)
        self->settled = index;
}

static bool is_settled(const struct sh_consensus *consensus)
{
    return sh_raft_applied(of(consensus)->raft) >= of(consensus)->settled;
}

static bool leads(const struct sh_consensus *consensus)
{
    return sh_raft_role(of(consensus)->raft) == SH_RAFT_LEADER;
}

static uint16_t leader(const struct sh_consensus *consensus)
{
    return sh_raft_leader(of(consensus)->raft);
}

static uint64_t term(const struct sh_consensus *consensus)
{
    return sh_raft_term(of(consensus)->raft);
}

static uint64_t led_ns(const struct sh_consensus *consensus, uint64_t now_ns)
{
    const struct raft_consensus *self = of(consensus);
    if (!self->led_last || sh_raft_applied(self->raft) < self->led_last)
        return 0;
    return sh_raft_led_ns(self->raft, now_ns);
}

static bool is_current(const struct sh_consensus *consensus, uint64_t now_ns)
{
    return sh_raft_is_current(of(consensus)->raft) && !is_lost(of(consensus), now_ns);
}

static uint64_t heard_ns(const struct sh_consensus *consensus, shoal_nid nid)
{
    const struct sh_raft *raft = of(consensus)->raft;
    return sh_raft_leader(raft) == nid.v ? sh_raft_leader_heard_ns(raft)
                                         : sh_raft_heard_ns(raft, (uint8_t)nid.v);
}

static void gone(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns)
{
    sh_raft_leader_gone(of(consensus)->raft, now_ns, (uint8_t)nid.v);
}

static void life_set(struct sh_consensus *consensus, shoal_nid nid, uint64_t life)
{
    sh_raft_life_set(of(consensus)->raft, (uint8_t)nid.v, life);
}

static void report(const struct sh_consensus *consensus, struct sh_report *report)
{
    static const enum sh_report_role roles[] = {
        [SH_RAFT_FOLLOWER] = SH_REPORT_FOLLOWER,
        [SH_RAFT_PRECANDIDATE] = SH_REPORT_CANDIDATE,
        [SH_RAFT_CANDIDATE] = SH_REPORT_CANDIDATE,
        [SH_RAFT_LEADER] = SH_REPORT_LEADER,
    };
    const struct raft_consensus *self = of(consensus);
    struct sh_raft_members all = sh_raft_members(self->raft);
    report->kind = self->superpeer->memory_disk ? SH_REPORT_MEMORY : SH_REPORT_RAFT;
    report->role = roles[sh_raft_role(self->raft)];
    report->leader.v = sh_raft_leader(self->raft);
    report->is_recovering = sh_raft_is_recovering(self->raft);
    report->term = sh_raft_term(self->raft);
    report->commit = sh_raft_commit(self->raft);
    report->applied = sh_raft_applied(self->raft);
    report->raft_last = sh_raft_last(self->raft);
    report->voters = all.voters;
    report->learners = all.learners;
}

/* --- Life ------------------------------------------------------------------------------------ */

static void start(struct sh_consensus *consensus, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = of(consensus)->superpeer;
    sh_raft_start(of(consensus)->raft, superpeer->journal, SH_SUPERPEER_REGISTRY_STREAM,
                  superpeer->life, now_ns);
}

static void destroy(struct sh_consensus *consensus)
{
    struct raft_consensus *self = of(consensus);
    sh_raft_destroy(self->raft);
    free(self->hints);
    free(self);
}

static void handlers_set(struct sh_superpeer *superpeer)
{
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_CLUSTER_RAFT, on_raft},       {SH_CLUSTER_PROPOSE, on_propose},
        {SH_CLUSTER_HERE, on_here},       {SH_CLUSTER_DISMISSED, on_dismissed},
        {SH_CLUSTER_RECRUIT, on_recruit},
    };
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(superpeer->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           superpeer);
}

static enum shoal_err hints_take(struct raft_consensus *self,
                                 const struct sh_superpeer_config *config)
{
    self->hints = calloc(config->count ? config->count : 1, sizeof self->hints[0]);
    if (!self->hints)
        return SHOAL_ENOMEM;
    self->hints_count = config->count;
    for (uint16_t i = 0; i < config->count; i++) {
        size_t size = strlen(config->addresses[i]);
        if (!size || size >= SH_MSG_ADDRESS_MAX) {
            SH_ERROR("cluster", "not a usable superpeer address",
                     SH_TEXT("address", config->addresses[i]));
            return SHOAL_EADDRESS;
        }
        memcpy(self->hints[i], config->addresses[i], size);
    }
    return SHOAL_OK;
}

static enum shoal_err raft_make(struct raft_consensus *self,
                                const struct sh_superpeer_config *config)
{
    struct sh_superpeer *superpeer = self->superpeer;
    SH_ASSERT(superpeer->index < SH_SUPERPEERS_MAX && !self->raft);
    uint64_t voters = 0;
    for (uint16_t i = 1; !config->recruited && i <= config->count; i++)
        voters |= UINT64_C(1) << i;
    struct sh_raft_config of_raft = {
        .server = (uint8_t)(superpeer->index + 1),
        .first = {.voters = voters},
        .election_ns = superpeer->shared->election_ns,
        .heartbeat_ns = superpeer->heartbeat_ns > 1 ? superpeer->heartbeat_ns / 2 : 1,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = PIECE_BYTES,
        .seed = sh_random64(&superpeer->env.random),
        .is_memory = !superpeer->env.disk,
        .fsm = {apply, image_size, image_put, image_get, superpeer},
    };
    return sh_raft_create(&of_raft, &self->raft);
}

static const struct sh_consensus_ops ops = {.is_led = true,
                                            .destroy = destroy,
                                            .stream = stream,
                                            .start = start,
                                            .synced = synced,
                                            .step = step,
                                            .send = send_all,
                                            .due_ns = due_ns,
                                            .propose = propose,
                                            .is_settled = is_settled,
                                            .leads = leads,
                                            .leader = leader,
                                            .term = term,
                                            .led_ns = led_ns,
                                            .is_current = is_current,
                                            .heard_ns = heard_ns,
                                            .gone = gone,
                                            .members = members,
                                            .lead = lead,
                                            .needs = needs,
                                            .life_set = life_set,
                                            .beat = beat,
                                            .report = report};

enum shoal_err sh_consensus_raft_open(struct sh_superpeer *superpeer,
                                      const struct sh_superpeer_config *config, uint64_t now_ns)
{
    struct raft_consensus *self = calloc(1, sizeof *self);
    if (!self)
        return SHOAL_ENOMEM;
    self->base.ops = &ops;
    self->superpeer = superpeer;
    self->started_ns = now_ns;
    for (size_t i = 0; i <= SH_SUPERPEERS_MAX; i++)
        self->met_ns[i] = now_ns;
    self->beat_ns = now_ns;
    superpeer->shared->consensus = &self->base;
    enum shoal_err err = hints_take(self, config);
    if (!err)
        err = raft_make(self, config);
    if (!err)
        err = sh_superpeer_ring_open(superpeer); /* and the journal of both */
    if (err)
        return err;
    if (sh_raft_is_new(self->raft))
        SH_INFO("cluster",
                config->recruited ? "new superpeer" : "new registry, which the superpeers share",
                SH_U64("superpeers", config->count));
    contacts_fill(superpeer, config);
    /* An operator who has to choose a survivor compares these (docs/raft.md). */
    SH_INFO("cluster", "the registry's log", SH_U64("last", sh_raft_last(self->raft)),
            SH_U64("last_term", sh_raft_last_term(self->raft)));
    start(&self->base, now_ns);
    handlers_set(superpeer);
    return SHOAL_OK;
}
