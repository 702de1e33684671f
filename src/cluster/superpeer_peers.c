/* What a superpeer asks other nodes: the other superpeers for their tables, and nodes whose
 * connection was lost whether they live. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/superpeer_int.h"

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

void sh_superpeer_probe(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t now_ns)
{
    struct sh_probe *free_one = NULL;
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        struct sh_probe *probe = &superpeer->probes[i];
        if (probe->state == SH_PROBE_FREE)
            free_one = probe;
        else if (probe->nid.v == nid.v)
            return;
    }
    if (!free_one)
        return;
    free_one->state = SH_PROBE_WANTED;
    free_one->nid = nid;
    free_one->due_ns = now_ns;
}

/* The instance that answered, for the node that was asked; 0: not that node. */
static uint64_t ping_answer_get(struct sh_reader *r, shoal_nid nid)
{
    uint16_t answered = sh_get16(r);
    uint64_t instance = sh_get64(r);
    return sh_reader_done(r) && answered == nid.v ? instance : 0;
}

/* If others have to agree, it is looked at again when they should have: meanwhile each attempt to
 * connect would be another lost connection to look into. */
static void declare_failed(struct sh_superpeer *superpeer, struct sh_probe *probe,
                           const char *reason)
{
    probe->state = SH_PROBE_FREE;
    if (!superpeer->shared) {
        sh_registry_fail(superpeer->registry, probe->nid, reason);
        return;
    }
    probe->state = SH_PROBE_WANTED;
    probe->due_ns = now_of(superpeer) + superpeer->heartbeat_ns;
    sh_superpeer_shared_fail(superpeer, probe->nid);
}

static void probe_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_probe *probe = request->arg;
    struct sh_superpeer *superpeer = probe->superpeer;
    uint64_t now_ns = now_of(superpeer);
    probe->state = SH_PROBE_FREE;
    bool failed;
    switch (err) {
    case SHOAL_OK:
        if (sh_registry_heartbeat(superpeer->registry, now_ns, probe->nid,
                                  ping_answer_get(payload, probe->nid), 0, &failed))
            declare_failed(superpeer, probe, "another node answers there");
        break;
    case SHOAL_EUNREACHABLE:
    case SHOAL_ESECRET:
    case SHOAL_ETLS:
    case SHOAL_ECLUSTER:
    case SHOAL_EVERSION:
    case SHOAL_ENOTYPE:
        declare_failed(superpeer, probe, "connection lost, and no new one");
        break;
    case SHOAL_ECONNLOST:
    case SHOAL_EADDRESS:
        /* It may be going down just now, or its name's server be slow. */
        probe->state = SH_PROBE_WANTED;
        probe->due_ns = now_ns + superpeer->heartbeat_ns;
        break;
    default:
        break; /* slow: silence will tell */
    }
    superpeer->tick_ns = now_ns;
}

static void probe_ask(struct sh_superpeer *superpeer, struct sh_probe *probe, uint64_t now_ns)
{
    if (!sh_registry_watches(superpeer->registry, probe->nid)) {
        probe->state = SH_PROBE_FREE;
        return;
    }
    probe->request =
        (struct sh_request){.done = probe_done, .arg = probe, .timeout_ns = question_ns(superpeer)};
    struct sh_out out;
    enum shoal_err err = sh_msg_request(superpeer->msg, probe->nid, SH_CLUSTER_PING, SH_PING_BYTES,
                                        &probe->request, &out);
    if (err == SHOAL_EUNREACHABLE) {
        declare_failed(superpeer, probe, "connection lost, address unusable");
        return;
    }
    if (err) {
        probe->due_ns = now_ns + superpeer->heartbeat_ns;
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
}
