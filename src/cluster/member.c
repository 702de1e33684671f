/* A peer's membership. One question is out at a time: a join, a heartbeat or a leave. */
#include "cluster/member.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/life.h"
#include "base/log.h"
#include "cluster/connect.h"
#include "cluster/proto.h"

#define BACKOFF_MIN_NS UINT64_C(20000000)
#define BACKOFF_MAX_NS UINT64_C(2000000000)
#define CONNECTIONS 2 /* that are kept to superpeers, and may be lost at once */
/* So many times failure_ns without a lease, and it joins anew by the addresses that were given. */
#define REJOIN_FAILURES 15

enum member_state { MEMBER_JOINING, MEMBER_JOINED, MEMBER_REFUSED, MEMBER_LEFT };

struct sh_member {
    struct sh_msg *msg;
    struct sh_directory *directory;
    struct sh_env env;
    char (*superpeers)[SH_MSG_ADDRESS_MAX];
    size_t superpeer_count, superpeer_room;
    size_t superpeer_next; /* the address to join through next */
    char address[SH_MSG_ADDRESS_MAX];
    struct sh_traits traits;
    uint64_t instance;
    shoal_nid former; /* its ID in an earlier life; NONE: it is new */
    uint64_t cluster; /* before the first join: the earlier life's */
    uint64_t heartbeat_ns, failure_ns;
    void (*on_joined)(void *arg, shoal_nid nid);
    void (*on_view)(void *arg, const struct sh_view *view);
    void (*on_failed)(void *arg, enum shoal_err err);
    bool (*is_confirmed)(void *arg);
    void *arg;

    enum member_state state;
    _Atomic bool is_joined; /* relaxed: for onlookers only */
    shoal_nid nid;          /* NONE before the first join */
    shoal_nid superpeer;
    char superpeer_address[SH_MSG_ADDRESS_MAX];
    shoal_nid second; /* the superpeer that is to notice this node's end, too; NONE: no other */
    uint64_t second_due_ns; /* the next PING to it */
    unsigned tries;         /* how many superpeers did not answer since one did */
    uint64_t due_ns;        /* the next question */
    uint64_t backoff_ns;    /* while joining */
    bool is_asking;
    bool wants_whole;  /* changes did not fit to the view that is here */
    uint64_t asked_ns; /* when the question was sent */
    uint64_t lease_ns; /* until when the node may serve */
    bool lease_waits;  /* for the life to be confirmed */
    struct sh_request request;
    enum shoal_err trouble; /* the last error, logged already; OK: all is well */
    void (*leave_done)(void *arg, enum shoal_err err);
    void *leave_arg;
    uint32_t leave_back_ms;
    _Atomic bool leave_wanted; /* release: what stands above; pairs with acquire in run */
    bool is_leaving;
    uint64_t leave_deadline_ns;
};

static uint64_t now_of(const struct sh_member *member)
{
    return sh_now(&member->env.clock);
}

/* Says once what is wrong, until something else is. */
static void complain(struct sh_member *member, const char *event, enum shoal_err err)
{
    if (err != member->trouble)
        SH_WARN("cluster", event, SH_TEXT("superpeer", member->superpeer_address), SH_ERR(err));
    member->trouble = err;
}

static void state_set(struct sh_member *member, enum member_state state)
{
    member->state = state;
    atomic_store_explicit(&member->is_joined, state == MEMBER_JOINED, memory_order_relaxed);
}

/* The first superpeer after that one, in a circle, that is up, or if need be has failed; *count_out
 * is how many such there are, with that one itself. NONE: there is no other. */
static struct sh_node superpeer_after(const struct sh_member *member, shoal_nid from, bool is_up,
                                      unsigned *count_out)
{
    struct sh_node node, found = {.nid = SHOAL_NID_NONE};
    *count_out = 0;
    for (unsigned i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        shoal_nid nid = {(uint16_t)((from.v + i - 1) % SH_SUPERPEERS_MAX + 1)};
        if (sh_directory_node(member->directory, nid, &node) || node.role != SH_ROLE_SUPERPEER ||
            node.state == SH_NODE_LEFT || (is_up && node.state != SH_NODE_UP))
            continue;
        if (!found.nid.v && nid.v != from.v)
            found = node;
        ++*count_out;
    }
    return found;
}

/* The second superpeer is the one that is up after the superpeer to which this node reports. A
 * connection to it is kept open, so that it notices if the node's process ends together with the
 * first one's; any other loss of the connection is a suspicion that the node's answer ends. */
static void second_choose(struct sh_member *member)
{
    unsigned up;
    SH_ASSERT(member->nid.v); /* connections are to carry its ID */
    struct sh_node second = superpeer_after(member, member->superpeer, true, &up);
    if (second.nid.v == member->second.v)
        return;
    member->second = second.nid;
    member->second_due_ns = now_of(member);
}

static bool pings_second(const struct sh_member *member)
{
    return member->state == MEMBER_JOINED && member->second.v;
}

/* A one-way PING opens the connection where there is none, and says that it is in use where there
 * is. Nothing is sent about failures: a superpeer that is down leaves the view, and there is another
 * second one. */
static void second_ping(struct sh_member *member, uint64_t now_ns)
{
    struct sh_out out;
    SH_ASSERT(member->second.v && member->second.v != member->superpeer.v);
    member->second_due_ns = now_ns + member->failure_ns;
    if (sh_msg_begin(member->msg, member->second, SH_CLUSTER_PING, SH_PING_BYTES, &out))
        return;
    sh_put16(&out.w, member->second.v);
    sh_msg_end(member->msg, &out);
}

/* A join of the process before, with the same life, that was late has brought its traits back: a join of this
 * process sets them right. */
static void traits_check(struct sh_member *member, const struct sh_view *view)
{
    const struct sh_node *own = sh_view_find(view, member->nid);
    if (member->state != MEMBER_JOINED || member->is_leaving || !own || own->state != SH_NODE_UP ||
        own->instance != member->instance || sh_traits_are_equal(&own->traits, &member->traits))
        return;
    state_set(member, MEMBER_JOINING);
    member->due_ns = now_of(member);
}

static void view_take(struct sh_member *member, const struct sh_view *view)
{
    if (view->epoch <= sh_directory_epoch(member->directory))
        return;
    enum shoal_err err = sh_directory_view_apply(member->directory, view);
    if (err) {
        SH_ERROR("cluster",
                 "the view of the cluster was not taken; the next heartbeat asks for it again",
                 SH_ERR(err)); /* the next heartbeat asks again */
        return;
    }
    const struct sh_node *superpeer = sh_view_find(view, member->superpeer);
    if (superpeer)
        memcpy(member->superpeer_address, superpeer->address, sizeof superpeer->address);
    second_choose(member);
    traits_check(member, view);
    if (member->on_view)
        member->on_view(member->arg, view);
}

static void leave_end(struct sh_member *member, enum shoal_err err)
{
    SH_ASSERT(member->is_leaving);
    member->is_leaving = false;
    state_set(member, MEMBER_LEFT);
    if (err)
        SH_WARN("cluster", "left without telling the superpeer", SH_ERR(err));
    else if (member->nid.v)
        SH_INFO("cluster", "left the cluster", SH_U64("node", member->nid.v));
    if (member->leave_done)
        member->leave_done(member->leave_arg, err);
}

/* The node itself stops to serve when it has not got another one by then. Nor does it serve before its
 * disk says that its life was admitted. */
static void lease_set(struct sh_member *member, uint64_t until_ns)
{
    member->lease_ns = until_ns;
    member->lease_waits = member->is_confirmed && !member->is_confirmed(member->arg);
    sh_msg_lease_set(member->msg, member->lease_waits ? 0 : until_ns);
}

/* What a superpeer answered for is counted from when it was asked: it was not asked before, so it
 * counts from later, and has the longer patience. */
static void lease_take(struct sh_member *member, uint64_t granted_ns)
{
    SH_ASSERT(member->nid.v);
    /* No longer than this node's own failure_ns, where the superpeer was given another one. */
    uint64_t whole_ns = granted_ns < member->failure_ns ? granted_ns : member->failure_ns;
    uint64_t until_ns = member->asked_ns + whole_ns;
    if (until_ns > member->lease_ns)
        lease_set(member, until_ns);
}

/* It can't be a member, and should stop. */
static void refused_for(struct sh_member *member, enum shoal_err err)
{
    SH_ASSERT(err);
    state_set(member, MEMBER_REFUSED);
    lease_set(member, 0);
    if (member->is_leaving)
        leave_end(member, SHOAL_OK);
    else if (member->on_failed)
        member->on_failed(member->arg, err);
}

static void refused(struct sh_member *member, enum shoal_err err)
{
    SH_ERROR("cluster",
             "another node has this node's ID, or this node was forgotten: not a member any more",
             SH_U64("node", member->nid.v));
    refused_for(member, err);
}

/* This life was declared failed while it was stopped or cut off, so its lease was over by then: what it held is others' to recover,
 * or lost. */
static void fenced(struct sh_member *member)
{
    SH_WARN("cluster",
            "this node was declared failed: it owns nothing any more, and has to be started again",
            SH_U64("node", member->nid.v ? member->nid.v : member->former.v),
            SH_U64("starts", sh_life_starts(member->instance)));
    refused_for(member, SHOAL_EFENCED);
}

/* Where the superpeer does not answer: on to the next one that is up; when none of
 * those has answered, to all, for the view may be old; and when the lease is long over, to the
 * addresses that were given. */
static void next_superpeer(struct sh_member *member)
{
    unsigned up, all;
    if (!member->nid.v)
        return; /* it knows no view yet */
    struct sh_node next = superpeer_after(member, member->superpeer, true, &up);
    struct sh_node any = superpeer_after(member, member->superpeer, false, &all);
    if (++member->tries > up || !next.nid.v)
        next = any;
    if (member->tries > up + all && !member->is_leaving &&
        now_of(member) > member->lease_ns + REJOIN_FAILURES * member->failure_ns) {
        member->tries = 0;
        member->superpeer = SHOAL_NID_NONE;
        state_set(member, MEMBER_JOINING);
    } else if (next.nid.v) {
        member->superpeer = next.nid;
        memcpy(member->superpeer_address, next.address, sizeof next.address);
        second_choose(member);
    } else {
        return;
    }
    member->due_ns = now_of(member) + member->heartbeat_ns / 4;
}

/* Another node has this one's address, or its former life is up. It is tried on: the other's lease may
 * be over soon. */
static void place_taken(struct sh_member *member, enum shoal_err err, struct sh_reader *payload)
{
    char text[SH_REASON_BYTES];
    sh_answer_reason_get(payload, text);
    const char *event =
        err == SHOAL_EAGAIN
            ? "can't join yet, since this node's former life counts as up; retrying"
            : "can't join yet, since another node has this node's address; retrying";
    if (member->trouble != err)
        SH_WARN("cluster", event, SH_TEXT("superpeer", member->superpeer_address),
                SH_TEXT("reason", text), SH_ERR(err));
    member->trouble = err;
}

/* What its disk says of it is not so, or not any more. */
static void disk_refused(struct sh_member *member, enum shoal_err err, struct sh_reader *payload)
{
    char text[SH_REASON_BYTES];
    sh_answer_reason_get(payload, text);
    SH_ERROR(
        "cluster",
        err == SHOAL_ECLUSTER
            ? "the cluster does not take this node, which is of another one of that name: a first "
              "superpeer on an empty folder begins a new cluster. Name superpeers of its own "
              "cluster in the option superpeers; or remove the file identity in data_dir, and it "
              "joins this one as a new node"
            : "the cluster does not take this node: start it on its newest data_dir, or remove "
              "the file identity there, and it joins as a new node",
        SH_U64("node", member->former.v), SH_TEXT("superpeer", member->superpeer_address),
        SH_TEXT("reason", text), SH_ERR(err));
    refused_for(member, err == SHOAL_EEXIST ? SHOAL_EDIFFERS : err);
}

/* It goes by other times than the cluster: nobody could rely on its lease. */
static void misfit(struct sh_member *member, struct sh_reader *payload)
{
    char text[SH_REASON_BYTES];
    sh_answer_reason_get(payload, text);
    SH_ERROR("cluster", "the cluster does not take this node",
             SH_TEXT("superpeer", member->superpeer_address), SH_TEXT("reason", text),
             SH_ERR(SHOAL_ESETTING));
    refused_for(member, SHOAL_ESETTING);
}

/* --- Joining -------------------------------------------------------------------------------- */

/* Tries the next address at once, and after the last one only some time later. */
static void join_failed(struct sh_member *member, enum shoal_err err)
{
    SH_ASSERT(err && member->backoff_ns >= BACKOFF_MIN_NS);
    uint64_t now_ns = now_of(member);
    if (err == SHOAL_EEXIST && member->nid.v) {
        refused(member, err);
        return;
    }
    complain(member, "can't join yet; retrying", err);
    if (member->is_leaving && !member->nid.v) {
        leave_end(member, SHOAL_OK);
        return;
    }
    if (member->superpeer.v) {
        next_superpeer(member);
    } else {
        member->superpeer_next = (member->superpeer_next + 1) % member->superpeer_count;
        member->due_ns = now_ns;
        if (member->superpeer_next)
            return;
        next_superpeer(member); /* those of the view, if there is one */
    }
    /* Up to a quarter more, so that nodes started together do not come back together. */
    uint64_t jitter_ns = sh_random64(&member->env.random) % (member->backoff_ns / 4);
    member->due_ns = now_ns + member->backoff_ns + jitter_ns;
    member->backoff_ns *= 2;
    if (member->backoff_ns > BACKOFF_MAX_NS)
        member->backoff_ns = BACKOFF_MAX_NS;
}

static enum shoal_err join_answer_get(struct sh_member *member, struct sh_reader *r,
                                      shoal_nid *nid_out, shoal_nid *superpeer_out,
                                      uint64_t *cluster_out, struct sh_view *view_out)
{
    shoal_nid nid = {sh_get16(r)};
    shoal_nid superpeer = {sh_get16(r)};
    uint64_t cluster = sh_get64(r);
    struct sh_view view = {0};
    enum shoal_err err = sh_view_get(r, &view);
    if (err)
        return err;
    const struct sh_node *self = sh_view_find(&view, nid);
    if (!sh_reader_done(r) || !self || self->instance != member->instance || !superpeer.v ||
        superpeer.v > view.superpeers || (member->nid.v && member->nid.v != nid.v)) {
        sh_view_destroy(&view);
        return SHOAL_EPROTO;
    }
    *nid_out = nid;
    *superpeer_out = superpeer;
    *cluster_out = cluster;
    *view_out = view;
    return SHOAL_OK;
}

static void join_answered(struct sh_member *member, struct sh_reader *payload)
{
    struct sh_view view;
    bool is_first = !member->nid.v;
    shoal_nid nid;
    enum shoal_err err =
        join_answer_get(member, payload, &nid, &member->superpeer, &member->cluster, &view);
    if (err) {
        join_failed(member, err);
        return;
    }
    member->nid = nid;
    member->tries = 0;
    member->trouble = SHOAL_OK;
    member->backoff_ns = BACKOFF_MIN_NS;
    /* At once, so that there is a connection under the node's ID whose loss will tell. */
    member->due_ns = now_of(member);
    state_set(member, MEMBER_JOINED);
    SH_INFO("cluster", is_first ? "joined the cluster" : "joined the cluster again",
            SH_U64("node", nid.v), SH_U64("superpeer", member->superpeer.v));
    if (is_first) {
        sh_msg_nid_set(member->msg, nid);
        view_take(member, &view);
    }
    second_choose(member);
    /* After a rejoin the superpeer may not know all members yet, so the view that we have is the
     * better one until a heartbeat brings another. */
    sh_view_destroy(&view);
    if (member->on_joined)
        member->on_joined(member->arg, nid);
}

/* --- Heartbeats ----------------------------------------------------------------------------- */

static void heartbeat_answered(struct sh_member *member, enum shoal_err err,
                               struct sh_reader *payload)
{
    struct sh_view view = {0};
    uint8_t flags = 0;
    if (err == SHOAL_ENONODE) {
        SH_WARN("cluster", "the superpeer does not know this node: joining again",
                SH_U64("node", member->nid.v));
        state_set(member, MEMBER_JOINING);
        member->due_ns = now_of(member);
        return;
    }
    if (err == SHOAL_EFENCED) {
        fenced(member);
        return;
    }
    if (err == SHOAL_EEXIST) {
        refused(member, err);
        return;
    }
    uint64_t granted_ns = err ? 0 : sh_get64(payload);
    if (!err)
        err = sh_answer_news_get(payload, member->directory, &flags, &view);
    bool differs = err == SHOAL_EDIFFERS;
    if (err && !differs) {
        complain(member, "superpeer can't be reached; retrying", err);
        next_superpeer(member);
        if (member->tries <= CONNECTIONS && err == SHOAL_ECONNLOST)
            member->due_ns = now_of(member); /* to be heard before others take it for dead */
        return;
    }
    if (member->trouble)
        SH_INFO("cluster", "superpeer is back");
    member->trouble = SHOAL_OK;
    member->tries = 0;
    if (flags)
        member->wants_whole = differs;
    if (view.superpeers)
        view_take(member, &view);
    sh_view_destroy(&view);
    lease_take(member, granted_ns);
}

static void leave_answered(struct sh_member *member, enum shoal_err err)
{
    if (!err || err == SHOAL_ENONODE || err == SHOAL_EEXIST) {
        leave_end(member, SHOAL_OK);
        return;
    }
    complain(member, "can't leave yet; retrying", err);
    member->due_ns = now_of(member) + member->heartbeat_ns;
    next_superpeer(member);
}

/* --- Asking --------------------------------------------------------------------------------- */

static void join_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_member *member = request->arg;
    member->is_asking = false;
    /* One that has been a member has chunks: it waits for who gave the cluster other times. */
    if (err == SHOAL_ESETTING && !member->nid.v) {
        misfit(member, payload);
        return;
    }
    bool is_restart = member->former.v && !member->nid.v;
    if ((err == SHOAL_EEXIST || err == SHOAL_ECLUSTER) && is_restart && !member->is_leaving) {
        disk_refused(member, err, payload);
        return;
    }
    if (err == SHOAL_EFENCED) {
        fenced(member);
        return;
    }
    if (err == SHOAL_EADDRINUSE || err == SHOAL_EAGAIN)
        place_taken(member, err, payload);
    if (err)
        join_failed(member, err);
    else
        join_answered(member, payload);
}

static void heartbeat_done(struct sh_request *request, enum shoal_err err,
                           struct sh_reader *payload)
{
    struct sh_member *member = request->arg;
    member->is_asking = false;
    heartbeat_answered(member, err, payload);
}

static void leave_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)payload;
    struct sh_member *member = request->arg;
    member->is_asking = false;
    leave_answered(member, err);
}

/* Whom to ask: the superpeer, or before it is known whoever is at the next address. */
static enum shoal_err target(struct sh_member *member, shoal_nid *to_out)
{
    if (member->superpeer.v) {
        *to_out = member->superpeer;
        /* A view may have called it failed, and made msg forget it. */
        return sh_msg_node_set(member->msg, member->superpeer, member->superpeer_address);
    }
    const char *address = member->superpeers[member->superpeer_next];
    memcpy(member->superpeer_address, address, sizeof member->superpeer_address);
    return sh_msg_contact(member->msg, address, to_out);
}

static enum shoal_err ask(struct sh_member *member, sh_msg_type type, size_t size,
                          void (*done)(struct sh_request *request, enum shoal_err err,
                                       struct sh_reader *payload),
                          struct sh_out *out)
{
    SH_ASSERT(!member->is_asking);
    shoal_nid to;
    enum shoal_err err = target(member, &to);
    if (err)
        return err;
    /* An answer that takes this long would come too late for the next heartbeat to be in time. */
    uint64_t quarter = member->failure_ns / 4;
    member->request = (struct sh_request){
        .done = done,
        .arg = member,
        .timeout_ns = quarter > member->heartbeat_ns ? quarter : member->heartbeat_ns};
    member->asked_ns = now_of(member);
    err = sh_msg_request(member->msg, to, type, size, &member->request, out);
    member->is_asking = !err;
    return err;
}

static void join_ask(struct sh_member *member)
{
    SH_ASSERT(member->state == MEMBER_JOINING);
    struct sh_out out;
    size_t size = SH_JOIN_BYTES + strlen(member->address) + sh_traits_size(&member->traits);
    enum shoal_err err = ask(member, SH_CLUSTER_JOIN, size, join_done, &out);
    if (err) {
        join_failed(member, err);
        return;
    }
    sh_put8(&out.w, SH_ROLE_PEER);
    sh_put8(&out.w, 0);
    bool is_restart = member->former.v && !member->nid.v;
    sh_put16(&out.w, is_restart ? member->former.v : member->nid.v);
    sh_put64(&out.w, member->instance);
    sh_put64(&out.w, sh_directory_epoch(member->directory));
    sh_put64(&out.w, member->heartbeat_ns);
    sh_put64(&out.w, member->failure_ns);
    sh_put64(&out.w, is_restart ? member->cluster : 0);
    sh_put_text(&out.w, sh_bytes_text(member->address));
    sh_traits_put(&out.w, &member->traits);
    sh_msg_end(member->msg, &out);
}

static void heartbeat_ask(struct sh_member *member, uint64_t now_ns)
{
    SH_ASSERT(member->state == MEMBER_JOINED && member->nid.v);
    member->due_ns = now_ns + member->heartbeat_ns;
    struct sh_out out;
    enum shoal_err err =
        ask(member, SH_CLUSTER_HEARTBEAT, SH_HEARTBEAT_BYTES, heartbeat_done, &out);
    if (err) {
        complain(member, "superpeer can't be reached; retrying", err);
        next_superpeer(member);
        return;
    }
    sh_put16(&out.w, member->nid.v);
    sh_put16(&out.w, member->wants_whole ? SH_WANTS_WHOLE : 0);
    sh_put64(&out.w, member->instance);
    sh_put64(&out.w, sh_directory_epoch(member->directory));
    sh_msg_end(member->msg, &out);
}

static void leave_ask(struct sh_member *member)
{
    SH_ASSERT(member->is_leaving);
    struct sh_out out;
    enum shoal_err err = ask(member, SH_CLUSTER_LEAVE, SH_LEAVE_BYTES, leave_done, &out);
    if (err) {
        leave_answered(member, err);
        return;
    }
    sh_put16(&out.w, member->nid.v);
    sh_put16(&out.w, 0);
    sh_put64(&out.w, member->instance);
    sh_put32(&out.w, member->leave_back_ms);
    sh_msg_end(member->msg, &out);
}

/* --- Step ----------------------------------------------------------------------------------- */

static void leave_begin(struct sh_member *member, uint64_t now_ns)
{
    /* acquire: who asked, and how; pairs with release in sh_member_leave */
    if (!atomic_load_explicit(&member->leave_wanted, memory_order_acquire))
        return;
    atomic_store_explicit(&member->leave_wanted, false, memory_order_relaxed);
    member->is_leaving = true;
    member->leave_deadline_ns = now_ns + member->failure_ns;
    member->due_ns = now_ns;
    /* A join that is out may be answered: then there is something to leave. */
    bool is_member = member->nid.v && member->state != MEMBER_REFUSED;
    bool joins_first = member->state == MEMBER_JOINING && member->is_asking;
    if (!is_member && !joins_first)
        leave_end(member, SHOAL_OK);
}

static unsigned run(void *arg)
{
    struct sh_member *member = arg;
    uint64_t now_ns = now_of(member);
    leave_begin(member, now_ns);
    if (member->state == MEMBER_REFUSED || member->state == MEMBER_LEFT)
        return 0;
    if (member->lease_waits)
        lease_set(member, member->lease_ns);
    if (member->is_leaving && now_ns >= member->leave_deadline_ns) {
        if (member->is_asking && sh_msg_cancel(member->msg, &member->request))
            member->is_asking = false;
        leave_end(member, member->trouble ? member->trouble : SHOAL_ETIMEOUT);
        return 1;
    }
    bool pings = pings_second(member) && now_ns >= member->second_due_ns;
    if (pings)
        second_ping(member, now_ns);
    if (member->is_asking || now_ns < member->due_ns)
        return pings;
    if (member->is_leaving)
        leave_ask(member);
    else if (member->state == MEMBER_JOINING)
        join_ask(member);
    else
        heartbeat_ask(member, now_ns);
    return 1;
}

static uint64_t due_ns(void *arg)
{
    struct sh_member *member = arg;
    if (atomic_load_explicit(&member->leave_wanted, memory_order_acquire))
        return 0;
    if (member->state == MEMBER_REFUSED || member->state == MEMBER_LEFT)
        return SH_NEVER;
    uint64_t due = member->is_asking ? SH_NEVER : member->due_ns;
    if (pings_second(member) && member->second_due_ns < due)
        due = member->second_due_ns;
    if (member->is_leaving && member->leave_deadline_ns < due)
        due = member->leave_deadline_ns;
    return due;
}

/* The answer to a heartbeat that is under way may be older than what is wanted: then another one follows. */
void sh_member_hurry(struct sh_member *member)
{
    bool is_well = member->state == MEMBER_JOINED && !member->is_leaving && !member->trouble;
    if (is_well)
        member->due_ns = now_of(member);
}

static void on_ping(void *arg, struct sh_msg_in *in)
{
    struct sh_member *member = arg;
    (void)sh_get16(&in->payload); /* whoever is meant: the answer says who is here */
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_PING_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, member->nid.v);
    sh_put64(&out.w, member->instance);
    sh_msg_end(in->msg, &out);
}

enum shoal_err sh_member_create(const struct sh_member_config *config,
                                struct sh_member **member_out)
{
    SH_ASSERT(config->superpeer_count && config->superpeer_count <= SH_SUPERPEERS_MAX);
    SH_ASSERT(config->instance && config->heartbeat_ns && config->failure_ns);
    SH_ASSERT(config->directory && strlen(config->address) < SH_MSG_ADDRESS_MAX);
    SH_ASSERT(sh_traits_are_valid(&config->traits));
    struct sh_member *member = calloc(1, sizeof *member);
    if (!member)
        return SHOAL_ENOMEM;
    member->superpeers = calloc(config->superpeer_count + 1u, sizeof member->superpeers[0]);
    if (!member->superpeers) {
        free(member);
        return SHOAL_ENOMEM;
    }
    member->superpeer_count = config->superpeer_count;
    member->superpeer_room = config->superpeer_count + 1;
    for (size_t i = 0; i < config->superpeer_count; i++) {
        SH_ASSERT(strlen(config->superpeers[i]) < SH_MSG_ADDRESS_MAX);
        memcpy(member->superpeers[i], config->superpeers[i], strlen(config->superpeers[i]) + 1);
    }
    member->msg = config->msg;
    member->directory = config->directory;
    member->env = config->env;
    memcpy(member->address, config->address, strlen(config->address) + 1);
    member->traits = config->traits;
    member->instance = config->instance;
    member->former = config->cluster ? config->nid : SHOAL_NID_NONE;
    member->cluster = config->cluster;
    sh_msg_instance_set(config->msg, config->instance);
    member->heartbeat_ns = config->heartbeat_ns;
    member->failure_ns = config->failure_ns;
    member->on_joined = config->on_joined;
    member->on_view = config->on_view;
    member->on_failed = config->on_failed;
    member->is_confirmed = config->is_confirmed;
    member->arg = config->arg;
    member->backoff_ns = BACKOFF_MIN_NS;
    member->due_ns = now_of(member);
    lease_set(member, 0);
    sh_msg_lease_spare(config->msg, (shoal_nid){SH_SUPERPEERS_MAX});
    sh_msg_handler_set(config->msg, SH_CLUSTER_PING, SH_MSG_INLINE, on_ping, member);
    *member_out = member;
    return SHOAL_OK;
}

void sh_member_superpeer_add(struct sh_member *member, const char *address)
{
    SH_ASSERT(!member->nid.v && member->superpeer_count < member->superpeer_room);
    SH_ASSERT(*address && strlen(address) < SH_MSG_ADDRESS_MAX);
    memcpy(member->superpeers[member->superpeer_count], address, strlen(address) + 1);
    member->superpeer_count++;
}

void sh_member_destroy(struct sh_member *member)
{
    if (!member)
        return;
    if (member->is_asking)
        (void)sh_msg_cancel(member->msg, &member->request);
    bool waits =
        member->is_leaving || atomic_load_explicit(&member->leave_wanted, memory_order_acquire);
    if (waits && member->leave_done)
        member->leave_done(member->leave_arg, SHOAL_ESTOPPED);
    free(member->superpeers);
    free(member);
}

struct sh_step sh_member_step(struct sh_member *member)
{
    return (struct sh_step){.name = "member", .run = run, .due_ns = due_ns, .arg = member};
}

void sh_member_link_event(struct sh_member *member, const struct sh_msg_event *event)
{
    if (event->kind != SH_MSG_LOST || member->state != MEMBER_JOINED)
        return;
    /* Only the first loss hurries: when asking again fails too, the heartbeat's rhythm is enough.
     */
    if (event->nid.v == member->superpeer.v && !member->trouble)
        member->due_ns = now_of(member);
    /* The second superpeer may ask whether this node lives: a heartbeat says so at once. */
    if (event->nid.v == member->second.v && event->err == SHOAL_ECONNLOST) {
        member->due_ns = now_of(member);
        member->second_due_ns = now_of(member) + member->heartbeat_ns;
    }
}

void sh_member_leave(struct sh_member *member, uint32_t back_ms,
                     void (*done)(void *arg, enum shoal_err err), void *arg)
{
    member->leave_back_ms = back_ms;
    member->leave_done = done;
    member->leave_arg = arg;
    /* release: who asked, and how; pairs with acquire in run */
    atomic_store_explicit(&member->leave_wanted, true, memory_order_release);
}

uint64_t sh_member_cluster(const struct sh_member *member)
{
    return member->cluster;
}

bool sh_member_joined(const struct sh_member *member)
{
    return atomic_load_explicit(&member->is_joined, memory_order_relaxed);
}
