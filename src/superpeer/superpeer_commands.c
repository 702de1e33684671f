/* The commands that superpeers with a shared registry agree on, and the requests that wait for
 * them. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

#define COMMAND_BYTES 22 /* with the length of the address */
#define JOIN_IS_RESTART 1u
#define JOIN_HAS_TRAITS 2u
#define LEAVE_COMES_BACK 1u
#define RESEND_NS UINT64_C(100000000)
#define PENDING_MAX 4096

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- Commands -------------------------------------------------------------------------------- */

static size_t command_size(const struct sh_command *command)
{
    size_t more = command->has_traits ? sh_traits_size(&command->traits) : command->back_ms ? 4 : 0;
    return COMMAND_BYTES + command->address.size + more;
}

void sh_command_put(struct sh_writer *w, const struct sh_command *command)
{
    SH_ASSERT(!command->has_traits || command->kind == SH_COMMAND_JOIN);
    SH_ASSERT(!command->back_ms || command->kind == SH_COMMAND_LEAVE);
    sh_put8(w, command->kind);
    uint8_t state = command->has_traits ? command->state | JOIN_HAS_TRAITS : command->state;
    sh_put8(w, command->back_ms ? LEAVE_COMES_BACK : state);
    sh_put16(w, command->nid.v);
    sh_put64(w, command->number);
    sh_put64(w, command->instance);
    sh_put_text(w, command->address);
    if (command->has_traits)
        sh_traits_put(w, &command->traits);
    if (command->back_ms)
        sh_put32(w, command->back_ms);
}

/* Reads what a JOIN has more than others. */
static bool join_get(struct sh_reader *r, struct sh_command *command)
{
    unsigned flags = command->state;
    command->has_traits = flags & JOIN_HAS_TRAITS;
    command->state = flags & JOIN_IS_RESTART;
    return !(flags & ~(JOIN_IS_RESTART | JOIN_HAS_TRAITS)) &&
           (!command->has_traits || !sh_traits_get(r, &command->traits));
}

/* The same of a LEAVE. */
static bool leave_get(struct sh_reader *r, struct sh_command *command)
{
    if (command->state != LEAVE_COMES_BACK)
        return true;
    command->state = 0;
    command->back_ms = sh_get32(r);
    return command->back_ms > 0 && command->back_ms <= SH_BACK_MS_MAX;
}

bool sh_command_get(struct sh_bytes bytes, struct sh_command *command_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_command command = {.kind = sh_get8(&r)};
    command.state = sh_get8(&r);
    command.nid.v = sh_get16(&r);
    command.number = sh_get64(&r);
    command.instance = sh_get64(&r);
    command.address = sh_get_text(&r);
    if ((command.kind == SH_COMMAND_JOIN && !join_get(&r, &command)) ||
        (command.kind == SH_COMMAND_LEAVE && !leave_get(&r, &command)))
        return false;
    bool is_kind = (command.kind >= SH_COMMAND_JOIN && command.kind <= SH_COMMAND_ARC) ||
                   (command.kind >= SH_COMMAND_LOST && command.kind <= SH_COMMAND_FORGET);
    bool is_forced_by_none = command.kind == SH_COMMAND_FORCE && !command.instance;
    if (!sh_reader_done(&r) || !is_kind || is_forced_by_none || command.state > SH_NODE_FAILED ||
        command.address.size >= SH_MSG_ADDRESS_MAX)
        return false;
    *command_out = command;
    return true;
}

/* A member that joins once more is about to get a lease, from whoever it has asked: no failure that
 * is decided from here on may come after that. */
static void rejoiner_heard(struct sh_superpeer *superpeer, uint64_t instance)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->role == SH_ROLE_PEER && node->instance == instance && node->state == SH_NODE_UP)
            sh_registry_heard(superpeer->registry, now_of(superpeer), node->nid);
    }
}

/* Gives a command to the leader that decides on it, if another does. */
static void pass_on(struct sh_superpeer *superpeer, struct sh_bytes bytes)
{
    struct sh_out out;
    shoal_nid leader = sh_shared_leader(superpeer);
    if (!leader.v || sh_msg_begin(superpeer->msg, leader, SH_CLUSTER_PROPOSE, bytes.size, &out))
        return;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(superpeer->msg, &out);
}

void sh_shared_hand_in(struct sh_superpeer *superpeer, struct sh_bytes bytes)
{
    SH_ASSERT(bytes.size >= COMMAND_BYTES);
    struct sh_consensus *consensus = superpeer->shared->consensus;
    if (consensus->ops->is_led && !sh_shared_leads(superpeer)) {
        pass_on(superpeer, bytes);
        return;
    }
    if (bytes.at[0] == SH_COMMAND_FAIL && bytes.at[1] != SH_COMMAND_FAIL_LATE) {
        shoal_nid nid = {sh_load16(bytes.at + 2)};
        const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
        /* Whoever found it unreachable finds so again. One that has failed is not failed once more:
         * that could come after its join, which is on its way. */
        if (!node || node->state != SH_NODE_UP || !sh_shared_may_fail(superpeer, nid, bytes.at[1]))
            return;
        sh_shared_doom(superpeer, nid);
    }
    /* Nothing is told of a cluster before its superpeers are in the view. */
    if (bytes.at[0] != SH_COMMAND_SUPERPEER && !sh_shared_is_whole(superpeer))
        return;
    if (bytes.at[0] == SH_COMMAND_JOIN)
        rejoiner_heard(superpeer, sh_load64(bytes.at + 12));
    /* A dismissal has a number. */
    bool is_verdict = bytes.at[0] == SH_COMMAND_FAIL ||
                      (bytes.at[0] == SH_COMMAND_STATE && !sh_load64(bytes.at + 4));
    consensus->ops->propose(consensus, bytes, is_verdict);
}

void sh_shared_decide(struct sh_superpeer *superpeer, const struct sh_command *command)
{
    uint8_t bytes[COMMAND_BYTES + SH_MSG_ADDRESS_MAX + SH_TRAITS_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_command_put(&w, command);
    SH_ASSERT(sh_writer_ok(&w));
    sh_shared_hand_in(superpeer, sh_bytes_make(bytes, command_size(command)));
}

/* --- Requests that wait ---------------------------------------------------------------------- */

static void refuse(struct sh_superpeer *superpeer, const struct sh_pending *pending,
                   enum shoal_err err, const char *text)
{
    sh_msg_reply_error(superpeer->msg, pending->reply_to, pending->type, err, text);
}

static void wait_for(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                     struct sh_command *command)
{
    SH_ASSERT(!command->number);
    struct sh_shared *shared = superpeer->shared;
    size_t size = command_size(command);
    struct sh_pending *pending = NULL;
    if (shared->pending_count < PENDING_MAX)
        pending = malloc(sizeof *pending + size);
    if (!pending) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    command->number = ++shared->number;
    uint64_t now_ns = now_of(superpeer);
    *pending = (struct sh_pending){.number = command->number,
                                   .reply_to = in->reply_to,
                                   .type = in->type,
                                   .resend_ns = now_ns + RESEND_NS,
                                   .deadline_ns = now_ns + superpeer->failure_ns,
                                   .size = size};
    struct sh_writer w = sh_writer_make(pending->command, size);
    sh_command_put(&w, command);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    *shared->pending_end = pending;
    shared->pending_end = &pending->next;
    shared->pending_count++;
    sh_shared_hand_in(superpeer, sh_bytes_make(pending->command, size));
}

bool sh_shared_is_pending(const struct sh_superpeer *superpeer, uint64_t number)
{
    const struct sh_pending *pending = superpeer->shared->pending;
    while (pending && pending->number != number)
        pending = pending->next;
    return pending;
}

static struct sh_pending *pending_take(struct sh_shared *shared, uint64_t number)
{
    struct sh_pending **at = &shared->pending;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct sh_pending *pending = *at;
    if (!pending)
        return NULL;
    SH_ASSERT(shared->pending_count > 0);
    *at = pending->next;
    if (!*at)
        shared->pending_end = at;
    shared->pending_count--;
    return pending;
}

void sh_superpeer_shared_lost(struct sh_superpeer *superpeer, shoal_nid nid)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_pending *next;
    for (struct sh_pending *pending = shared->pending; pending; pending = next) {
        next = pending->next;
        if (pending->reply_to.nid.v == nid.v && pending->command[0] == SH_COMMAND_JOIN)
            free(pending_take(shared, pending->number));
    }
}

unsigned sh_shared_pending_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    unsigned work = 0;
    struct sh_pending *next;
    for (struct sh_pending *pending = shared->pending; pending; pending = next) {
        next = pending->next;
        if (now_ns >= pending->deadline_ns) {
            refuse(superpeer, pending, SHOAL_EBUSY, "no majority of the superpeers agrees");
            free(pending_take(shared, pending->number));
            work++;
        } else if (now_ns >= pending->resend_ns) {
            pending->resend_ns = now_ns + RESEND_NS;
            sh_shared_hand_in(superpeer, sh_bytes_make(pending->command, pending->size));
            work++;
        }
    }
    return work;
}

void sh_superpeer_shared_join(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                              struct sh_bytes address, uint64_t instance, shoal_nid previous,
                              bool is_restart, const struct sh_traits *traits)
{
    struct sh_command command = {.kind = SH_COMMAND_JOIN,
                                 .state = is_restart,
                                 .has_traits = true,
                                 .traits = *traits,
                                 .nid = previous,
                                 .instance = instance,
                                 .address = address};
    if (!sh_address_is_valid(address))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EINVAL, NULL);
    else if (!sh_registry_arcs(superpeer->registry)->present)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY,
                           "the superpeers are starting: none of them has metadata yet");
    else
        wait_for(superpeer, in, &command);
}

void sh_superpeer_shared_leave(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                               shoal_nid nid, uint64_t instance, uint32_t back_ms)
{
    struct sh_command command = {
        .kind = SH_COMMAND_LEAVE, .nid = nid, .instance = instance, .back_ms = back_ms};
    wait_for(superpeer, in, &command);
}

void sh_shared_recruit(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                       struct sh_bytes address, uint64_t instance)
{
    struct sh_command command = {
        .kind = SH_COMMAND_SUPERPEER, .instance = instance, .address = address};
    if (!sh_address_is_valid(address))
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EINVAL, NULL);
    else
        wait_for(superpeer, in, &command);
}

void sh_shared_dismiss(struct sh_superpeer *superpeer, const struct sh_msg_in *in, shoal_nid nid)
{
    struct sh_command command = {.kind = SH_COMMAND_STATE, .state = SH_NODE_LEFT, .nid = nid};
    wait_for(superpeer, in, &command);
}

void sh_shared_lost(struct sh_superpeer *superpeer, const struct sh_msg_in *in, shoal_nid nid)
{
    struct sh_command command = {.kind = SH_COMMAND_LOST, .nid = nid};
    wait_for(superpeer, in, &command);
}

void sh_shared_forget(struct sh_superpeer *superpeer, struct sh_reply_to reply_to, shoal_nid nid,
                      uint64_t instance)
{
    struct sh_command command = {.kind = SH_COMMAND_FORGET, .nid = nid, .instance = instance};
    struct sh_msg_in in = {.msg = superpeer->msg, .type = SH_CLUSTER_FORGET, .reply_to = reply_to};
    wait_for(superpeer, &in, &command);
}

void sh_shared_pending_drop(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    while (shared->pending) {
        struct sh_pending *pending = shared->pending;
        refuse(superpeer, pending, SHOAL_ESTOPPED, NULL);
        free(pending_take(shared, pending->number));
    }
}

/* --- The state machine ----------------------------------------------------------------------- */

static const char *reason_of(const struct sh_command *command, enum shoal_err err)
{
    if (err == SHOAL_ELIMIT && command->kind == SH_COMMAND_STATE)
        return "the last superpeer can't leave";
    if (err == SHOAL_ELIMIT && command->kind == SH_COMMAND_SUPERPEER)
        return "there are 63 superpeers already";
    if (err == SHOAL_EADDRINUSE && command->kind == SH_COMMAND_SUPERPEER)
        return "a peer has that address, and its lease is not over: give the superpeer one of its "
               "own, or try "
               "again in a moment";
    if (err == SHOAL_EINVAL && command->kind == SH_COMMAND_LOST)
        return "that node is up, so its disk is not lost: stop its process first";
    if (err == SHOAL_ENONODE && command->kind == SH_COMMAND_LOST && sh_nid_is_peer(command->nid))
        return "there is no such peer, or it was forgotten";
    if (err == SHOAL_ENONODE && command->kind == SH_COMMAND_LOST)
        return "there is no superpeer with that ID that ever took part";
    if (err == SHOAL_ENONODE && command->kind == SH_COMMAND_FORGET)
        return "there is no such node, or not any more";
    if (command->kind == SH_COMMAND_FORGET)
        return "the node is up, or another one has its ID by now";
    return NULL;
}

void sh_shared_answer(struct sh_superpeer *superpeer, const struct sh_command *command,
                      enum shoal_err err, shoal_nid nid)
{
    if (err == SHOAL_EBUSY)
        return; /* it is handed in again, until it can be done or the time is over */
    struct sh_pending *pending = pending_take(superpeer->shared, command->number);
    if (!pending)
        return;
    bool is_join = command->kind == SH_COMMAND_JOIN || command->kind == SH_COMMAND_SUPERPEER;
    if (!err && is_join)
        sh_shared_joined(superpeer, nid, pending->deadline_ns - superpeer->failure_ns);
    struct sh_refused_join join = {.err = err,
                                   .address = command->address,
                                   .instance = command->instance,
                                   .previous = command->nid,
                                   .is_restart = command->state};
    if (err && command->kind == SH_COMMAND_JOIN)
        sh_superpeer_join_refuse(superpeer, pending->reply_to, pending->type, &join);
    else if (err)
        refuse(superpeer, pending, err, reason_of(command, err));
    else if (is_join)
        sh_superpeer_join_answer(superpeer, pending->reply_to, pending->type, nid);
    else
        sh_msg_reply_ok(superpeer->msg, pending->reply_to, pending->type);
    free(pending);
}

/* Whether the command came from here in this run: the upper bits of a number are drawn at start. */
static bool is_own(const struct sh_shared *shared, uint64_t number)
{
    return number && number <= shared->number && number >> 24 == shared->number >> 24;
}

static enum shoal_err change_arc(struct sh_registry *registry, struct sh_bytes bytes)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_arc_change change;
    enum shoal_err err = sh_arc_change_get(&r, &change);
    if (err || !sh_reader_done(&r))
        return SHOAL_EPROTO;
    sh_registry_arcs_change(registry, &change);
    return SHOAL_OK;
}

static enum shoal_err forget(struct sh_registry *registry, const struct sh_command *command)
{
    return command->state ? sh_registry_give_up(registry, command->nid, command->instance)
                          : sh_registry_forget(registry, command->nid, command->instance);
}

enum shoal_err sh_shared_carry_out(struct sh_superpeer *superpeer, struct sh_registry *registry,
                                   const struct sh_command *command, shoal_nid *nid_out)
{
    const struct sh_node *node;
    const struct sh_traits *traits = command->has_traits ? &command->traits : NULL;
    if (command->kind == SH_COMMAND_JOIN || command->kind == SH_COMMAND_SUPERPEER ||
        command->kind == SH_COMMAND_RING)
        sh_registry_events_name(registry, command->instance);
    switch (command->kind) {
    case SH_COMMAND_JOIN:
        if (command->state)
            return sh_registry_restart(registry, now_of(superpeer), command->address,
                                       command->instance, command->nid, traits, nid_out);
        return sh_registry_join(registry, now_of(superpeer), command->address, command->instance,
                                command->nid, traits, nid_out);
    case SH_COMMAND_LEAVE:
        if (command->back_ms)
            return sh_registry_away(registry, now_of(superpeer), command->nid, command->instance,
                                    command->back_ms);
        return sh_registry_leave(registry, command->nid, command->instance);
    case SH_COMMAND_FAIL:
        node = sh_view_find(sh_registry_view(registry), command->nid);
        if (!node || node->instance != command->instance)
            return SHOAL_OK;
        if (command->state == SH_COMMAND_FAIL_LATE)
            sh_registry_late(registry, command->nid);
        else
            sh_registry_fail(registry, command->nid, "dead or silent");
        return SHOAL_OK;
    case SH_COMMAND_FORMER_BACK:
        SH_WARN("cluster",
                "the log of an earlier version has a failed peer up again, which stays failed: its "
                "process is fenced, and is to be started again",
                SH_U64("node", command->nid.v));
        return SHOAL_OK;
    case SH_COMMAND_STATE:
        return sh_registry_superpeer_set(registry, command->nid, command->state);
    case SH_COMMAND_SUPERPEER:
        return sh_registry_superpeer_put(registry, command->address, command->instance,
                                         command->nid, nid_out);
    case SH_COMMAND_RING:
        return sh_registry_arcs_start(registry, command->nid, command->instance, command->state);
    case SH_COMMAND_ARC:
        return change_arc(registry, command->address);
    case SH_COMMAND_LOST:
        return sh_nid_is_peer(command->nid) ? sh_registry_peer_lost(registry, command->nid)
                                            : sh_registry_superpeer_lost(registry, command->nid);
    case SH_COMMAND_FORGET:
        return forget(registry, command);
    case SH_COMMAND_FORCE:
        return sh_registry_force(registry, command->nid, command->instance);
    default:
        sh_registry_epoch_lift(registry, command->instance);
        return SHOAL_OK;
    }
}

void sh_shared_apply(struct sh_superpeer *superpeer, struct sh_bytes bytes, bool was_loaded)
{
    struct sh_command command;
    if (!sh_command_get(bytes, &command))
        return; /* at all superpeers alike */
    shoal_nid nid = command.nid;
    enum shoal_err err = sh_shared_carry_out(superpeer, superpeer->registry, &command, &nid);
    /* The others may have had the memory: going on would mean to differ from them for ever. */
    SH_ASSERT(err != SHOAL_ENOMEM);
    /* A superpeer may have said since the start where it is (HERE), which a loaded entry does not know. */
    if (!err && command.kind == SH_COMMAND_SUPERPEER &&
        (!was_loaded || !*superpeer->shared->contacts[nid.v]))
        sh_shared_contact_set(superpeer, nid, command.address);
    if (is_own(superpeer->shared, command.number))
        sh_shared_answer(superpeer, &command, err, nid);
}
