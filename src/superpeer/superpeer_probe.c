/* Suspicion: nodes whose connection was lost, that are silent, or of which somebody says so, are
 * asked whether they live, over a fresh connection.
 *
 *   suspected --> asked --answers--> nothing
 *     ^             |------silence------> may fail once its lease is over (superpeer_grant.c)
 *     '--- again <--|------refused------> the judge: failed, if others find so, too
 *     '--- again <--|-- another answers-> as silence; or as refused, if that was seen before
 *
 * A process that is no more is found out within milliseconds: its host refuses connections, the
 * connection that it had to a superpeer has ended, and nobody has heard it since. A refusal alone
 * may come from a firewall, or from an address that was never right; and what one superpeer sees
 * may be the fault of its own links. So the judge, which is the leader, asks the node itself; gives a
 * node that has only lost its connection the time to be heard over another one; and then has all other
 * superpeers look, which must find the same (REFUSED), and must not hear the node either. Otherwise the
 * lease has to run out.
 *
 * That another process answers at the address proves nothing: two machines may have been given one
 * address, or a new machine that of one that is only cut off. But a peer that was killed is often
 * started anew at its address before the judge has asked everybody. So it is enough that one
 * superpeer was refused after it had lost the node's connection; whoever finds another process
 * there afterwards agrees.
 *
 * Suspicion is free for whoever sends SUSPECT, so it costs little here: a node is asked once in a
 * heartbeat, no more than SH_PROBES_MAX at once, and no more once it was heard. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static bool is_superpeer(shoal_nid nid)
{
    return nid.v < SH_PEER_NID_MIN;
}

/* --- Who judges, and when a node was heard --------------------------------------------------- */

/* The leader judges. NONE: nobody leads, as far as is known here. */
static shoal_nid judge_of(const struct sh_superpeer *superpeer)
{
    return sh_shared_leader(superpeer);
}

static bool is_judge(const struct sh_superpeer *superpeer)
{
    return judge_of(superpeer).v == superpeer->index + 1;
}

/* A peer or another superpeer, as long as it counts as up. */
static const struct sh_node *watched(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    if (!node || node->state != SH_NODE_UP)
        return NULL;
    if (node->role == SH_ROLE_SUPERPEER)
        return sh_shared_is_other(superpeer, nid) ? node : NULL;
    return node;
}

/* The process that the registry knows as that node: a peer's instance, or a superpeer's life; 0: none. */
static uint64_t process_of(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (is_superpeer(nid))
        return sh_registry_arcs(superpeer->registry)->lives[nid.v];
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return node ? node->instance : 0;
}

/* By this superpeer itself: what others report, they may have heard before they lost it. */
static uint64_t heard_ns(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_shared *shared = superpeer->shared;
    if (!is_superpeer(nid))
        return sh_registry_spoke_ns(superpeer->registry, nid);
    return shared->consensus->ops->heard_ns(shared->consensus, nid);
}

/* The superpeers that count as up besides this one and the suspect: bit n is superpeer n. is_asked:
 * they are to look, too, and tell the judge. */
static uint64_t others_of(struct sh_superpeer *superpeer, shoal_nid suspect, bool is_asked)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    uint64_t others = 0;
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        const struct sh_node *node = &view->nodes[i];
        struct sh_out out;
        if (node->state != SH_NODE_UP || node->nid.v == superpeer->index + 1 ||
            node->nid.v == suspect.v)
            continue;
        others |= UINT64_C(1) << node->nid.v;
        if (!is_asked ||
            sh_msg_begin(superpeer->msg, node->nid, SH_CLUSTER_SUSPECT, SH_SUSPECT_BYTES, &out))
            continue; /* asked again with the next refusal */
        sh_put16(&out.w, suspect.v);
        sh_msg_end(superpeer->msg, &out);
    }
    return others;
}

/* --- Probes ---------------------------------------------------------------------------------- */

/* The place for a probe of a node: the one that it has or had, else whichever ended first; NULL:
 * all are in use. */
static struct sh_probe *place_of(struct sh_superpeer *superpeer, shoal_nid nid)
{
    SH_ASSERT(nid.v);
    struct sh_probe *best = NULL;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        struct sh_probe *probe = &superpeer->probes[i];
        if (probe->nid.v == nid.v)
            return probe;
        if (probe->state == SH_PROBE_FREE && (!best || probe->ended_ns < best->ended_ns))
            best = probe;
    }
    return best;
}

/* Whether a probe is of the process that is the node now, and still watched. */
static bool is_current(const struct sh_probe *probe)
{
    return watched(probe->superpeer, probe->nid) &&
           probe->process == process_of(probe->superpeer, probe->nid);
}

static void probe_end(struct sh_probe *probe, uint64_t now_ns)
{
    SH_ASSERT(probe->state != SH_PROBE_FREE);
    probe->state = SH_PROBE_FREE;
    probe->ended_ns = now_ns;
}

/* Ends the probe of a former process. One whose answer is being handled ends with that. */
static void probe_drop(struct sh_probe *probe, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = probe->superpeer;
    SH_ASSERT(probe->state != SH_PROBE_FREE);
    if (probe->state == SH_PROBE_ASKING) {
        if (!sh_msg_cancel(superpeer->msg, &probe->request))
            return;
        sh_msg_node_remove(superpeer->msg, probe->alias);
    }
    probe_end(probe, now_ns);
    probe->ended_ns = 0; /* the next process has not been asked yet */
}

/* The probe of a node, begun if there is none; NULL: the node is not watched, or there are too
 * many. at_once: though another one has just ended. */
static struct sh_probe *probe_of(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns,
                                 bool at_once)
{
    if (!watched(superpeer, nid))
        return NULL;
    struct sh_probe *probe = place_of(superpeer, nid);
    if (probe && probe->state != SH_PROBE_FREE && !is_current(probe))
        probe_drop(probe, now_ns);
    if (!probe || probe->state != SH_PROBE_FREE)
        return probe && is_current(probe) ? probe : NULL;
    if (!at_once && probe->ended_ns && now_ns < probe->ended_ns + superpeer->heartbeat_ns)
        return NULL;
    *probe = (struct sh_probe){.superpeer = superpeer,
                               .state = SH_PROBE_WANTED,
                               .nid = nid,
                               .process = process_of(superpeer, nid),
                               .begun_ns = now_ns,
                               .due_ns = now_ns};
    return probe;
}

void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    (void)probe_of(superpeer, nid, now_ns, false);
}

void sh_superpeer_suspect_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid from = in->reply_to.nid;
    shoal_nid nid = {sh_get16(&in->payload)};
    uint64_t now_ns = now_of(superpeer);
    if (!sh_reader_done(&in->payload))
        return;
    /* A judge waits for the answer. */
    bool is_urgent = from.v && is_superpeer(from);
    struct sh_probe *probe = probe_of(superpeer, nid, now_ns, is_urgent);
    if (probe && is_urgent)
        probe->due_ns = now_ns;
}

void sh_superpeer_probe_lost(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    struct sh_probe *probe = probe_of(superpeer, nid, now_ns, true);
    if (!probe)
        return;
    probe->begun_ns = probe->lost_ns = now_ns;
    /* Or the leader would be told of it as of a node that was heard after that. */
    sh_shared_unheard(superpeer, nid);
}

/* What a node that lives needs at most to be heard over another connection. */
static uint64_t grace_ns(const struct sh_superpeer *superpeer)
{
    return superpeer->heartbeat_ns / 4;
}

/* When it was heard last, here or by others who have said so. */
static uint64_t known_heard_ns(const struct sh_probe *probe)
{
    uint64_t own_ns = heard_ns(probe->superpeer, probe->nid);
    return own_ns > probe->others_heard_ns ? own_ns : probe->others_heard_ns;
}

/* Whether it was not heard since a connection of its own ended. */
static bool is_unheard(const struct sh_probe *probe, uint64_t lost_ns)
{
    return lost_ns && known_heard_ns(probe) <= lost_ns;
}

/* Until when this superpeer, which takes the node's heartbeats and has lost no connection of the
 * node's since, waits for the next one: others may have lost theirs, and the node lives. A node that
 * dies loses all its connections at once. 0: it does not wait. */
static uint64_t awaited_ns(const struct sh_probe *probe)
{
    uint64_t own_ns = heard_ns(probe->superpeer, probe->nid);
    if (own_ns <= probe->lost_ns)
        return 0;
    return own_ns + probe->superpeer->heartbeat_ns + grace_ns(probe->superpeer);
}

/* When it would have been heard over another connection. If it was heard just before, it may have
 * been over that one, before the end of the old one was noticed: then it is not due before its next
 * heartbeat. */
static uint64_t settled_ns(const struct sh_probe *probe, uint64_t lost_ns)
{
    const struct sh_superpeer *superpeer = probe->superpeer;
    uint64_t wait_ns = grace_ns(superpeer);
    if (known_heard_ns(probe) + wait_ns > lost_ns)
        wait_ns += superpeer->heartbeat_ns;
    uint64_t settled_ns = lost_ns + wait_ns, heartbeat_ns = awaited_ns(probe);
    return settled_ns > heartbeat_ns ? settled_ns : heartbeat_ns;
}

/* Asks again in a while, if the node counts as up by then, since others may have to agree first;
 * but not one that has been heard meanwhile, nor for ever one that another superpeer hears. */
static void probe_again(struct sh_probe *probe, uint64_t now_ns)
{
    const struct sh_superpeer *superpeer = probe->superpeer;
    SH_ASSERT(probe->state == SH_PROBE_WANTED);
    if (known_heard_ns(probe) > probe->begun_ns ||
        now_ns >= probe->begun_ns + 2 * superpeer->failure_ns) {
        probe_end(probe, now_ns);
        return;
    }
    uint64_t heartbeat_ns = superpeer->heartbeat_ns;
    uint64_t lost_ns =
        probe->lost_ns > probe->others_lost_ns ? probe->lost_ns : probe->others_lost_ns;
    bool is_news = lost_ns && now_ns < lost_ns + 2 * heartbeat_ns;
    probe->state = SH_PROBE_WANTED;
    probe->due_ns = now_ns + (is_news ? grace_ns(superpeer) : heartbeat_ns);
}

/* --- Verdicts -------------------------------------------------------------------------------- */

/* A node that is not dead for sure may still serve until its lease is over. */
static void declare_failed(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead)
{
    if (is_superpeer(nid))
        sh_shared_superpeer_gone(superpeer, nid, is_dead);
    else
        sh_superpeer_shared_fail(superpeer, nid, is_dead);
}

static bool is_fresh(const struct sh_superpeer *superpeer, uint64_t since_ns, uint64_t now_ns)
{
    return since_ns && now_ns <= since_ns + sh_superpeer_question_ns(superpeer);
}

static bool is_lost(const struct sh_probe *probe, uint64_t lost_ns, uint64_t now_ns)
{
    return is_unheard(probe, lost_ns) && now_ns >= settled_ns(probe, lost_ns) &&
           (probe->refused_ns > lost_ns || probe->others_refused_ns > lost_ns);
}

/* Whether the judge has seen enough: see above. What others said before the node had had the time
 * to be heard by them counts for nothing. */
static bool is_gone(struct sh_probe *probe, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = probe->superpeer;
    SH_ASSERT(is_judge(superpeer));
    bool is_own = is_lost(probe, probe->lost_ns, now_ns);
    if (!is_fresh(superpeer, probe->absent_ns, now_ns) ||
        !(is_own || is_lost(probe, probe->others_lost_ns, now_ns)))
        return false;
    uint64_t lost_ns = is_own ? probe->lost_ns : probe->others_lost_ns;
    if (!is_fresh(superpeer, probe->asked_ns, now_ns) ||
        probe->asked_ns < settled_ns(probe, lost_ns)) {
        probe->asked_ns = now_ns;
        probe->agreed = 0;
        return !others_of(superpeer, probe->nid, true);
    }
    return !(others_of(superpeer, probe->nid, false) & ~probe->agreed);
}

/* As in REFUSED. */
static uint64_t ago_of(uint64_t at_ns, uint64_t now_ns)
{
    return at_ns && at_ns <= now_ns ? now_ns - at_ns : UINT64_MAX;
}

static void opinion_send(struct sh_probe *probe, shoal_nid judge, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = probe->superpeer;
    SH_ASSERT(judge.v && judge.v != superpeer->index + 1u);
    struct sh_out out;
    bool has_lost = is_unheard(probe, probe->lost_ns);
    if (now_ns < awaited_ns(probe) || (has_lost && now_ns < settled_ns(probe, probe->lost_ns)))
        return; /* it may be heard yet */
    if (sh_msg_begin(superpeer->msg, judge, SH_CLUSTER_REFUSED, SH_REFUSED_BYTES, &out))
        return; /* told again with the next refusal */
    sh_put16(&out.w, probe->nid.v);
    sh_put64(&out.w, ago_of(has_lost ? probe->lost_ns : 0, now_ns));
    sh_put64(&out.w, ago_of(heard_ns(superpeer, probe->nid), now_ns));
    sh_put64(&out.w, ago_of(probe->refused_ns, now_ns));
    sh_put64(&out.w, probe->process);
    sh_msg_end(superpeer->msg, &out);
}

/* The node is not at its address: nobody listens there, or another process answers. */
static void absent(struct sh_probe *probe, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = probe->superpeer;
    shoal_nid judge = judge_of(superpeer);
    probe->absent_ns = now_ns;
    if (judge.v == probe->nid.v) {
        /* The leader itself: the others elect another one, if they do not hear it either. */
        bool is_dead = is_unheard(probe, probe->lost_ns) && probe->refused_ns > probe->lost_ns;
        declare_failed(superpeer, probe->nid, is_dead);
        return;
    }
    bool is_own = is_judge(superpeer);
    bool is_dead = is_own && is_gone(probe, now_ns);
    declare_failed(superpeer, probe->nid, is_dead);
    if (!is_own && judge.v)
        opinion_send(probe, judge, now_ns);
}

static void refused(struct sh_probe *probe, uint64_t now_ns)
{
    probe->refused_ns = now_ns;
    absent(probe, now_ns);
}

/* Another superpeer finds that a node is not at its address. */
void sh_superpeer_refused_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid nid = {sh_get16(&in->payload)};
    uint64_t lost_ns_ago = sh_get64(&in->payload);
    uint64_t heard_ns_ago = sh_get64(&in->payload);
    uint64_t refused_ns_ago = sh_get64(&in->payload);
    uint64_t process = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || !is_superpeer(in->reply_to.nid) || !in->reply_to.nid.v ||
        in->reply_to.nid.v > SH_SUPERPEERS_MAX || !is_judge(superpeer) ||
        process != process_of(superpeer, nid))
        return;
    uint64_t now_ns = now_of(superpeer);
    struct sh_probe *probe = probe_of(superpeer, nid, now_ns, true);
    if (!probe)
        return;
    probe->agreed |= UINT64_C(1) << in->reply_to.nid.v;
    if (heard_ns_ago < now_ns && now_ns - heard_ns_ago > probe->others_heard_ns)
        probe->others_heard_ns = now_ns - heard_ns_ago;
    if (lost_ns_ago < now_ns && now_ns - lost_ns_ago > probe->others_lost_ns)
        probe->others_lost_ns = now_ns - lost_ns_ago;
    if (refused_ns_ago < now_ns && now_ns - refused_ns_ago > probe->others_refused_ns)
        probe->others_refused_ns = now_ns - refused_ns_ago;
    if (is_gone(probe, now_ns))
        declare_failed(superpeer, nid, true);
}

/* The instance that answered, for the node that was asked; 0: not that node. One that has not heard
 * yet that it has joined does not know its ID. */
static uint64_t ping_answer_get(struct sh_reader *r, shoal_nid nid)
{
    uint16_t answered = sh_get16(r);
    uint64_t instance = sh_get64(r);
    return sh_reader_done(r) && (answered == nid.v || !answered) ? instance : 0;
}

/* Whether the instance that answered is the node's. */
static bool is_node(const struct sh_superpeer *superpeer, shoal_nid nid, uint64_t instance)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return instance && (is_superpeer(nid) || (node && node->instance == instance));
}

/* Somebody answers: the node, or another process of the cluster, whose address it is by now. An
 * answer is no heartbeat: a node that can be asked, and does not get its heartbeats through, is
 * failed when its lease is over. */
static void answered(struct sh_probe *probe, uint64_t now_ns, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = probe->superpeer;
    uint64_t instance = ping_answer_get(payload, probe->nid);
    if (is_node(superpeer, probe->nid, instance)) {
        probe_end(probe, now_ns);
        return;
    }
    absent(probe, now_ns);
    probe_again(probe, now_ns);
}

static void probe_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_probe *probe = request->arg;
    SH_ASSERT(probe->state == SH_PROBE_ASKING);
    struct sh_superpeer *superpeer = probe->superpeer;
    uint64_t now_ns = now_of(superpeer);
    bool was_refused = sh_msg_was_refused(superpeer->msg, probe->alias);
    sh_msg_node_remove(superpeer->msg, probe->alias);
    probe->state = SH_PROBE_WANTED;
    if (!is_current(probe)) {
        probe_end(probe, now_ns);
        return;
    }
    switch (err) {
    case SHOAL_OK:
        answered(probe, now_ns, payload);
        break;
    case SHOAL_ESECRET:
    case SHOAL_ETLS:
    case SHOAL_ECLUSTER:
    case SHOAL_EVERSION:
    case SHOAL_ENOTYPE:
        /* Or it answers, and only one of the two has another secret or certificate by now. */
        declare_failed(superpeer, probe->nid, false);
        probe_again(probe, now_ns);
        break;
    case SHOAL_EUNREACHABLE:
        if (was_refused)
            refused(probe, now_ns);
        else
            declare_failed(superpeer, probe->nid, false);
        probe_again(probe, now_ns);
        break;
    case SHOAL_ETIMEOUT:
        declare_failed(superpeer, probe->nid, false);
        probe_again(probe, now_ns);
        break;
    case SHOAL_ECONNLOST:
    case SHOAL_EADDRESS:
        /* It may be going down just now, or its name's server be slow. */
        probe_again(probe, now_ns);
        break;
    default:
        probe_end(probe, now_ns); /* silence will tell */
        break;
    }
}

/* Over a connection of its own, so that one that is stuck says nothing about the node. */
static void probe_ask(struct sh_superpeer *superpeer, struct sh_probe *probe, uint64_t now_ns)
{
    SH_ASSERT(probe->state == SH_PROBE_WANTED);
    const struct sh_node *node = watched(superpeer, probe->nid);
    if (!node) {
        probe_end(probe, now_ns);
        return;
    }
    /* It is repeated: a short one finds out sooner that the lease is over by now. */
    uint64_t timeout_ns = sh_superpeer_question_ns(superpeer) / 2;
    probe->request =
        (struct sh_request){.done = probe_done, .arg = probe, .timeout_ns = timeout_ns};
    struct sh_out out;
    enum shoal_err err = sh_msg_contact(superpeer->msg, node->address, &probe->alias);
    if (!err)
        err = sh_msg_request(superpeer->msg, probe->alias, SH_CLUSTER_PING, SH_PING_BYTES,
                             &probe->request, &out);
    if (err == SHOAL_EUNREACHABLE || err == SHOAL_EADDRESS)
        declare_failed(superpeer, probe->nid, false);
    if (err) {
        probe_again(probe, now_ns);
        return;
    }
    sh_put16(&out.w, probe->nid.v);
    probe->state = SH_PROBE_ASKING;
    sh_msg_end(superpeer->msg, &out);
}

unsigned sh_superpeer_probes_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    unsigned work = 0;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        struct sh_probe *probe = &superpeer->probes[i];
        if (probe->state != SH_PROBE_WANTED || now_ns < probe->due_ns)
            continue;
        probe_ask(superpeer, probe, now_ns);
        work++;
    }
    return work;
}

uint64_t sh_superpeer_probes_due_ns(const struct sh_superpeer *superpeer)
{
    uint64_t due_ns = SH_NEVER;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        const struct sh_probe *probe = &superpeer->probes[i];
        if (probe->state == SH_PROBE_WANTED && probe->due_ns < due_ns)
            due_ns = probe->due_ns;
    }
    return due_ns;
}
