/* What a superpeer asks other nodes: the other superpeers for their tables, and nodes whose
 * connection was lost whether they live. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/superpeer_shared_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* A question must be over well before the silence counts as failure. */
static uint64_t question_ns(const struct sh_superpeer *superpeer)
{
    uint64_t quarter = superpeer->failure_ns / 4;
    return quarter > superpeer->heartbeat_ns ? quarter : superpeer->heartbeat_ns;
}

/* --- Other superpeers ---------------------------------------------------------------------- */

static enum shoal_err sync_answered(struct sh_superpeer *superpeer, uint16_t index,
                                    struct sh_reader *r)
{
    uint64_t version = sh_get64(r);
    uint8_t flags = sh_get8(r);
    if (!sh_reader_ok(r) || (flags & ~SH_ANSWER_VIEW))
        return SHOAL_EPROTO;
    uint64_t held = sh_registry_version(superpeer->registry, index);
    sh_registry_superpeer_heard(superpeer->registry, now_of(superpeer), index,
                                sh_registry_version(superpeer->registry, superpeer->index));
    if (flags & SH_ANSWER_VIEW)
        return sh_registry_table_get(superpeer->registry, index, version, r);
    return sh_reader_done(r) && version <= held ? SHOAL_OK : SHOAL_EPROTO;
}

static void sibling_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_sibling *sibling = request->arg;
    struct sh_superpeer *superpeer = sibling->superpeer;
    uint16_t index = (uint16_t)(sibling - superpeer->siblings);
    sibling->is_asking = false;
    if (!err)
        err = sync_answered(superpeer, index, payload);
    if (err && err != sibling->logged)
        SH_WARN("cluster", "superpeer does not answer", SH_U64("node", index + 1u), SH_ERR(err));
    sibling->logged = err;
}

static void sibling_ask(struct sh_superpeer *superpeer, uint16_t index)
{
    struct sh_sibling *sibling = &superpeer->siblings[index];
    sibling->request = (struct sh_request){
        .done = sibling_done, .arg = sibling, .timeout_ns = question_ns(superpeer)};
    struct sh_out out;
    enum shoal_err err = sh_msg_request(superpeer->msg, (shoal_nid){(uint16_t)(index + 1)},
                                        SH_CLUSTER_SYNC, SH_SYNC_BYTES, &sibling->request, &out);
    if (err)
        return; /* asked again in a heartbeat's time; silence tells the rest */
    sh_put16(&out.w, superpeer->index);
    sh_put16(&out.w, superpeer->count);
    sh_put32(&out.w, 0);
    sh_put64(&out.w, sh_registry_version(superpeer->registry, index));
    sibling->is_asking = true;
    sh_msg_end(superpeer->msg, &out);
}

unsigned sh_superpeer_siblings_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    unsigned work = 0;
    for (uint16_t i = 0; i < superpeer->count; i++) {
        struct sh_sibling *sibling = &superpeer->siblings[i];
        if (i == superpeer->index || sibling->is_asking || now_ns < sibling->due_ns)
            continue;
        sibling->due_ns = now_ns + superpeer->heartbeat_ns;
        sibling_ask(superpeer, i);
        work++;
    }
    return work;
}

uint64_t sh_superpeer_siblings_due_ns(const struct sh_superpeer *superpeer)
{
    uint64_t due_ns = SH_NEVER;
    for (uint16_t i = 0; i < superpeer->count; i++) {
        const struct sh_sibling *sibling = &superpeer->siblings[i];
        if (i != superpeer->index && !sibling->is_asking && sibling->due_ns < due_ns)
            due_ns = sibling->due_ns;
    }
    return due_ns;
}

void sh_superpeer_sync_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint16_t index = sh_get16(&in->payload);
    uint16_t count = sh_get16(&in->payload);
    uint32_t zero = sh_get32(&in->payload);
    uint64_t holds = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || zero) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    if (superpeer->shared || count != superpeer->count || index >= count ||
        index == superpeer->index) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EINVAL,
                           "the superpeers were given different lists of superpeers");
        return;
    }
    struct sh_registry *registry = superpeer->registry;
    sh_registry_superpeer_heard(registry, now_of(superpeer), index, holds);
    uint64_t version = sh_registry_version(registry, superpeer->index);
    /* While we are settling, the other's table is the better one. */
    bool follows = version != holds && !sh_registry_settling(registry);
    size_t size = SH_SYNC_ANSWER_BYTES + (follows ? sh_registry_table_size(registry) : 0);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    sh_put64(&out.w, follows ? version : holds);
    sh_put8(&out.w, follows ? SH_ANSWER_VIEW : 0);
    if (follows)
        sh_registry_table_put(&out.w, registry);
    sh_msg_end(in->msg, &out);
}

/* --- Lost connections ----------------------------------------------------------------------- */

/* A peer of this registry, or another superpeer that shares it, as long as it counts as up. */
static const struct sh_node *watched(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    bool is_superpeer = superpeer->shared && sh_shared_is_other(superpeer, nid);
    if (!node || node->state != SH_NODE_UP)
        return NULL;
    return is_superpeer || sh_registry_watches(superpeer->registry, nid) ? node : NULL;
}

void sh_superpeer_ping_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    (void)sh_get16(&in->payload); /* whoever is meant: the answer says who is here */
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_PING_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, (uint16_t)(superpeer->index + 1));
    sh_put64(&out.w, superpeer->instance);
    sh_msg_end(in->msg, &out);
}

/* The probe of a node, begun if there is none; NULL: the node is not watched, or there are too
 * many. */
static struct sh_probe *probe_of(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    struct sh_probe *free_one = NULL;
    if (!watched(superpeer, nid))
        return NULL;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        struct sh_probe *probe = &superpeer->probes[i];
        if (probe->state == SH_PROBE_FREE)
            free_one = probe;
        else if (probe->nid.v == nid.v)
            return probe;
    }
    if (!free_one)
        return NULL;
    free_one->state = SH_PROBE_WANTED;
    free_one->nid = nid;
    free_one->due_ns = now_ns;
    free_one->lost_ns = 0;
    return free_one;
}

void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    (void)probe_of(superpeer, nid, now_ns);
}

void sh_superpeer_probe_lost(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    struct sh_probe *probe = probe_of(superpeer, nid, now_ns);
    if (probe)
        probe->lost_ns = now_ns;
}

/* A refusal alone may come from a firewall, or from an address that was never right. Of a process
 * that is no more the own connection ends, too, and it is not heard any more. */
static bool is_gone(const struct sh_probe *probe, bool was_refused)
{
    if (!was_refused || probe->nid.v < SH_PEER_NID_MIN)
        return was_refused;
    return probe->lost_ns &&
           sh_registry_heard_ns(probe->superpeer->registry, probe->nid) <= probe->lost_ns;
}

/* The instance that answered, for the node that was asked; 0: not that node. One that has not heard
 * yet that it has joined does not know its ID. */
static uint64_t ping_answer_get(struct sh_reader *r, shoal_nid nid)
{
    uint16_t answered = sh_get16(r);
    uint64_t instance = sh_get64(r);
    return sh_reader_done(r) && (answered == nid.v || !answered) ? instance : 0;
}

/* A node that is not dead for sure may still serve until its lease is over. */
static void declare_failed(struct sh_superpeer *superpeer, shoal_nid nid, bool is_dead,
                           const char *reason)
{
    if (nid.v < SH_PEER_NID_MIN)
        sh_shared_superpeer_gone(superpeer, nid, is_dead);
    else if (superpeer->shared)
        sh_superpeer_shared_fail(superpeer, nid, is_dead);
    else if (is_dead || sh_superpeer_lease_is_over(superpeer, nid, now_of(superpeer)))
        sh_registry_fail(superpeer->registry, nid, reason);
}

/* Asks again in a while, if the node counts as up by then: others may have to agree first. */
static void probe_again(struct sh_probe *probe, uint64_t now_ns)
{
    probe->state = SH_PROBE_WANTED;
    probe->due_ns = now_ns + probe->superpeer->heartbeat_ns;
}

static void probe_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_probe *probe = request->arg;
    struct sh_superpeer *superpeer = probe->superpeer;
    uint64_t now_ns = now_of(superpeer);
    bool was_refused = sh_msg_was_refused(superpeer->msg, probe->alias);
    uint64_t instance;
    bool failed, is_there;
    sh_msg_node_remove(superpeer->msg, probe->alias);
    probe->state = SH_PROBE_FREE;
    superpeer->tick_ns = now_ns;
    switch (err) {
    case SHOAL_OK:
        instance = ping_answer_get(payload, probe->nid);
        is_there = probe->nid.v < SH_PEER_NID_MIN
                       ? instance
                       : !sh_registry_heartbeat(superpeer->registry, now_ns, probe->nid, instance,
                                                0, &failed);
        if (!is_there)
            declare_failed(superpeer, probe->nid, true, "another node answers there");
        if (!is_there)
            probe_again(probe, now_ns);
        break;
    case SHOAL_ESECRET:
    case SHOAL_ETLS:
    case SHOAL_ECLUSTER:
    case SHOAL_EVERSION:
    case SHOAL_ENOTYPE:
        /* Or it answers, and only one of the two has another secret or certificate by now. */
        declare_failed(superpeer, probe->nid, false, "somebody else answers there");
        probe_again(probe, now_ns);
        break;
    case SHOAL_EUNREACHABLE:
        declare_failed(superpeer, probe->nid, is_gone(probe, was_refused),
                       was_refused ? "nobody listens there" : "no connection can be opened");
        probe_again(probe, now_ns);
        break;
    case SHOAL_ETIMEOUT:
        declare_failed(superpeer, probe->nid, false, "it does not answer");
        probe_again(probe, now_ns);
        break;
    case SHOAL_ECONNLOST:
    case SHOAL_EADDRESS:
        /* It may be going down just now, or its name's server be slow. */
        probe_again(probe, now_ns);
        break;
    default:
        break; /* silence will tell */
    }
}

/* Over a connection of its own, so that one that is stuck says nothing about the node. */
static void probe_ask(struct sh_superpeer *superpeer, struct sh_probe *probe, uint64_t now_ns)
{
    const struct sh_node *node = watched(superpeer, probe->nid);
    if (!node) {
        probe->state = SH_PROBE_FREE;
        return;
    }
    /* It is repeated: a short one finds out sooner that the lease is over by now. */
    uint64_t timeout_ns = question_ns(superpeer) / 2;
    probe->request =
        (struct sh_request){.done = probe_done, .arg = probe, .timeout_ns = timeout_ns};
    struct sh_out out;
    enum shoal_err err = sh_msg_contact(superpeer->msg, node->address, &probe->alias);
    if (!err)
        err = sh_msg_request(superpeer->msg, probe->alias, SH_CLUSTER_PING, SH_PING_BYTES,
                             &probe->request, &out);
    if (err == SHOAL_EUNREACHABLE || err == SHOAL_EADDRESS)
        declare_failed(superpeer, probe->nid, false, "its address can't be used");
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

void sh_superpeer_requests_cancel(struct sh_superpeer *superpeer)
{
    for (uint16_t i = 0; i < superpeer->count; i++) {
        if (superpeer->siblings[i].is_asking)
            (void)sh_msg_cancel(superpeer->msg, &superpeer->siblings[i].request);
    }
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        if (superpeer->probes[i].state == SH_PROBE_ASKING)
            (void)sh_msg_cancel(superpeer->msg, &superpeer->probes[i].request);
    }
    if (superpeer->shared)
        sh_shared_report_cancel(superpeer);
}
