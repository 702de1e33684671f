/* Questions that every superpeer answers: PING, whether it lives. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

uint64_t sh_superpeer_question_ns(const struct sh_superpeer *superpeer)
{
    uint64_t quarter = superpeer->failure_ns / 4;
    return quarter > superpeer->heartbeat_ns ? quarter : superpeer->heartbeat_ns;
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
    for (unsigned i = 0; i < SH_PROBES_MAX; i++) {
        if (superpeer->probes[i].state == SH_PROBE_ASKING)
            (void)sh_msg_cancel(superpeer->msg, &superpeer->probes[i].request);
    }
    if (superpeer->shared) /* not where creation has failed */
        sh_shared_report_cancel(superpeer);
}
