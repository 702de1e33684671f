/* What superpeers ask each other where each has its own registry, and what any is asked: whether it
 * lives. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

uint64_t sh_superpeer_question_ns(const struct sh_superpeer *superpeer)
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
        .done = sibling_done, .arg = sibling, .timeout_ns = sh_superpeer_question_ns(superpeer)};
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

/* --- Others' questions ---------------------------------------------------------------------- */

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
