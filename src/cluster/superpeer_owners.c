/* A superpeer and migrations: its messages about who owns what, and the questions that it asks the
 * nodes after a start, since what has moved is stored nowhere but with those who hold it. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/owners.h"
#include "cluster/proto.h"
#include "cluster/superpeer_int.h"

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* --- Batches ------------------------------------------------------------------------------- */

bool sh_superpeer_batch_get(struct sh_reader *r, struct sh_owner_run *runs,
                            struct sh_owners_batch *batch_out)
{
    struct sh_owners_batch batch = {.from = {sh_get16(r)}, .to = {sh_get16(r)}};
    batch.incarnation = sh_get64(r);
    batch.sequence = sh_get64(r);
    batch.count = sh_get16(r);
    if (!sh_reader_ok(r) || batch.count == 0 || batch.count > SH_OWNERS_RUNS_MAX)
        return false;
    for (size_t i = 0; i < batch.count; i++) {
        runs[i].first.v = sh_get64(r);
        runs[i].last.v = sh_get64(r);
    }
    batch.runs = runs;
    *batch_out = batch;
    return sh_reader_done(r);
}

const char *sh_superpeer_owners_why(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EDIFFERS:
        return "the superpeer was started anew since the migration began";
    case SHOAL_EBUSY:
        return "the superpeer has not heard yet what the nodes hold";
    case SHOAL_ENOTOWNER:
        return "the source does not own these chunks";
    case SHOAL_ENONODE:
        return "the target is not up";
    default:
        return NULL;
    }
}

void sh_superpeer_owners_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                sh_msg_type type, bool is_committed)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, type, 1, &out))
        return;
    sh_put8(&out.w, is_committed);
    sh_msg_end(superpeer->msg, &out);
}

/* Whether this superpeer is one of several that are cut off from each other. */
static bool is_cut_off(const struct sh_superpeer *superpeer)
{
    return superpeer->shared && !sh_superpeer_shared_is_current(superpeer);
}

/* A batch of a shared registry is decided when the superpeers agree, and answered then. */
static void batch_share(struct sh_superpeer *superpeer, struct sh_msg_in *in, bool is_commit)
{
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_owner_run runs[SH_OWNERS_RUNS_MAX];
    struct sh_owners_batch batch;
    if (!sh_superpeer_batch_get(&r, runs, &batch))
        refuse(in, SHOAL_EPROTO, NULL);
    else if (is_cut_off(superpeer))
        refuse(in, SHOAL_EBUSY, "this superpeer hears no majority of the superpeers");
    else
        sh_superpeer_shared_batch(superpeer, in, is_commit, bytes);
}

static void on_commit(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_owner_run runs[SH_OWNERS_RUNS_MAX];
    struct sh_owners_batch batch;
    if (superpeer->shared) {
        batch_share(superpeer, in, true);
        return;
    }
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_superpeer_batch_get(&in->payload, runs, &batch))
        err = sh_owners_commit(superpeer->registry, &batch);
    if (err)
        refuse(in, err, sh_superpeer_owners_why(err));
    else
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_resolve(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_owner_run runs[SH_OWNERS_RUNS_MAX];
    struct sh_owners_batch batch;
    if (superpeer->shared) {
        batch_share(superpeer, in, false);
        return;
    }
    enum shoal_err err = SHOAL_EPROTO;
    bool is_committed = false;
    if (sh_superpeer_batch_get(&in->payload, runs, &batch))
        err = sh_owners_resolve(superpeer->registry, &batch, &is_committed);
    if (err)
        refuse(in, err, sh_superpeer_owners_why(err));
    else
        sh_superpeer_owners_answer(superpeer, in->reply_to, in->type, is_committed);
}

static void on_who(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t incarnation = sh_owners_incarnation(superpeer->registry);
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, NULL);
    } else if (is_cut_off(superpeer) || !incarnation) {
        refuse(in, SHOAL_EBUSY, "this superpeer hears no majority of the superpeers");
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out)) {
        sh_put64(&out.w, incarnation);
        sh_msg_end(in->msg, &out);
    }
}

void sh_superpeer_owners_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_COMMIT, SH_MSG_INLINE, on_commit, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_RESOLVE, SH_MSG_INLINE, on_resolve, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_WHO, SH_MSG_INLINE, on_who, superpeer);
}

/* --- Who holds what ------------------------------------------------------------------------ */

static enum shoal_err claims_get(struct sh_superpeer *superpeer, struct sh_reader *r)
{
    struct sh_owner_asking *asking = &superpeer->owner_asking;
    bool goes_on = sh_get8(r);
    struct sh_range range = {.last = asking->from};
    while (sh_reader_left(r) > 0) {
        range.first.v = sh_get64(r);
        range.last.v = sh_get64(r);
        range.value = sh_get16(r);
        enum shoal_err err = SHOAL_EPROTO;
        if (sh_reader_ok(r) && range.first.v >= asking->from.v)
            err = sh_owners_claim(superpeer->registry, asking->nid, &range);
        if (err)
            return err;
        asking->from.v = range.last.v + 1;
    }
    if (!sh_reader_done(r))
        return SHOAL_EPROTO;
    if (!goes_on) {
        sh_owners_asked(superpeer->registry, asking->nid);
        asking->from.v = 0;
    }
    return SHOAL_OK;
}

static void asked(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_owner_asking *asking = &superpeer->owner_asking;
    asking->is_asking = false;
    asking->due_ns = 0;
    if (!err)
        err = claims_get(superpeer, payload);
    if (err == SHOAL_ENOTYPE) /* a node that holds no chunks */
        sh_owners_asked(superpeer->registry, asking->nid);
    else if (err) {
        SH_DEBUG("cluster", "node does not say what it holds", SH_U64("node", asking->nid.v),
                 SH_ERR(err));
        asking->from.v = 0;
        asking->due_ns = sh_now(&superpeer->env.clock) + superpeer->heartbeat_ns / 2;
    }
}

unsigned sh_superpeer_owners_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_owner_asking *asking = &superpeer->owner_asking;
    if (asking->is_asking || now_ns < asking->due_ns)
        return 0;
    if (asking->from.v == 0)
        asking->nid = sh_owners_to_ask(superpeer->registry, asking->nid);
    sh_owners_settle(superpeer->registry);
    /* Whom to ask changes with the view only, and nobody waits for less than a heartbeat. */
    asking->due_ns = now_ns + superpeer->heartbeat_ns / 2;
    if (asking->nid.v == 0)
        return 0;
    asking->request = (struct sh_request){
        .done = asked, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 4 + 1};
    struct sh_out out;
    if (sh_msg_request(superpeer->msg, asking->nid, SH_CLUSTER_HOLDS, SH_HOLDS_BYTES,
                       &asking->request, &out)) {
        asking->from.v = 0;
        return 0;
    }
    asking->is_asking = true;
    sh_put64(&out.w, asking->from.v);
    sh_put16(&out.w, sh_arc_first(superpeer->index, superpeer->count).v);
    sh_put16(&out.w, sh_arc_last(superpeer->index, superpeer->count).v);
    sh_msg_end(superpeer->msg, &out);
    return 1;
}

uint64_t sh_superpeer_owners_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_owner_asking *asking = &superpeer->owner_asking;
    return asking->is_asking ? SH_NEVER : asking->due_ns;
}

void sh_superpeer_owners_cancel(struct sh_superpeer *superpeer)
{
    if (superpeer->owner_asking.is_asking)
        (void)sh_msg_cancel(superpeer->msg, &superpeer->owner_asking.request);
}
