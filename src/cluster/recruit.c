/* Asking to be a superpeer: one address after the other, for ever. */
#include "cluster/recruit.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/connect.h"
#include "cluster/proto.h"

#define BACKOFF_NS UINT64_C(100000000)

struct sh_recruit {
    struct sh_msg *msg;
    struct sh_env env;
    char (*addresses)[SH_MSG_ADDRESS_MAX];
    size_t count, next;
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t instance, failure_ns;
    void (*on_done)(void *arg, shoal_nid nid, const struct sh_view *view);
    void *arg;
    uint64_t due_ns;
    bool is_asking;
    struct sh_request request;
    enum shoal_err trouble; /* the last error that was logged */
    shoal_nid nid;          /* what was told, with the view; NONE: not yet */
    struct sh_view view;
    bool is_done;
};

static uint64_t now_of(const struct sh_recruit *recruit)
{
    return sh_now(&recruit->env.clock);
}

static void failed(struct sh_recruit *recruit, enum shoal_err err, const char *reason)
{
    if (err != recruit->trouble)
        SH_WARN("cluster", "no superpeer has admitted this superpeer yet; retrying",
                SH_TEXT("asked", recruit->addresses[recruit->next]),
                SH_TEXT("reason", *reason ? reason : "none given"), SH_ERR(err));
    recruit->trouble = err;
    recruit->next = (recruit->next + 1) % recruit->count;
    recruit->due_ns = now_of(recruit);
    if (!recruit->next)
        recruit->due_ns += BACKOFF_NS + sh_random64(&recruit->env.random) % BACKOFF_NS;
}

static enum shoal_err answer_get(struct sh_recruit *recruit, struct sh_reader *r)
{
    shoal_nid nid = {sh_get16(r)};
    (void)sh_get16(r); /* who says so */
    (void)sh_get64(r); /* the cluster's ID, which the registry has too */
    struct sh_view view = {0};
    enum shoal_err err = sh_view_get(r, &view);
    if (err)
        return err;
    const struct sh_node *self = sh_view_find(&view, nid);
    if (!sh_reader_done(r) || !self || self->role != SH_ROLE_SUPERPEER) {
        sh_view_destroy(&view);
        return SHOAL_EPROTO;
    }
    recruit->nid = nid;
    recruit->view = view;
    return SHOAL_OK;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_recruit *recruit = request->arg;
    recruit->is_asking = false;
    char reason[SH_REASON_BYTES] = "";
    if (err)
        sh_answer_reason_get(payload, reason);
    else
        err = answer_get(recruit, payload);
    if (err)
        failed(recruit, err, reason);
}

static void ask(struct sh_recruit *recruit)
{
    struct sh_out out;
    shoal_nid to;
    size_t size = strlen(recruit->address);
    enum shoal_err err = sh_msg_contact(recruit->msg, recruit->addresses[recruit->next], &to);
    recruit->request =
        (struct sh_request){.done = on_answer, .arg = recruit, .timeout_ns = recruit->failure_ns};
    if (!err)
        err = sh_msg_request(recruit->msg, to, SH_CLUSTER_RECRUIT, SH_RECRUIT_BYTES + size,
                             &recruit->request, &out);
    if (err) {
        failed(recruit, err, "");
        return;
    }
    recruit->is_asking = true;
    sh_put8(&out.w, !recruit->env.disk);
    sh_put64(&out.w, recruit->instance);
    sh_put_text(&out.w, sh_bytes_text(recruit->address));
    sh_msg_end(recruit->msg, &out);
}

static unsigned run(void *arg)
{
    struct sh_recruit *recruit = arg;
    if (recruit->is_done || recruit->is_asking)
        return 0;
    if (recruit->nid.v) {
        recruit->is_done = true;
        recruit->on_done(recruit->arg, recruit->nid, &recruit->view);
        return 1;
    }
    if (now_of(recruit) < recruit->due_ns)
        return 0;
    ask(recruit);
    return 1;
}

static uint64_t due_ns(void *arg)
{
    const struct sh_recruit *recruit = arg;
    if (recruit->is_done || recruit->is_asking)
        return SH_NEVER;
    return recruit->nid.v ? 0 : recruit->due_ns;
}

enum shoal_err sh_recruit_create(const struct sh_recruit_config *config,
                                 struct sh_recruit **recruit_out)
{
    SH_ASSERT(config->count && config->count <= SH_SUPERPEERS_MAX && config->instance);
    SH_ASSERT(config->on_done && strlen(config->address) < SH_MSG_ADDRESS_MAX);
    struct sh_recruit *recruit = calloc(1, sizeof *recruit);
    if (!recruit)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_ENOMEM;
    recruit->addresses = calloc(config->count, sizeof recruit->addresses[0]);
    if (!recruit->addresses)
        goto out_recruit;
    err = SHOAL_EADDRESS;
    for (size_t i = 0; i < config->count; i++) {
        size_t size = strlen(config->addresses[i]);
        if (!size || size >= SH_MSG_ADDRESS_MAX)
            goto out_recruit;
        memcpy(recruit->addresses[i], config->addresses[i], size);
    }
    memcpy(recruit->address, config->address, strlen(config->address));
    recruit->count = config->count;
    recruit->msg = config->msg;
    recruit->env = config->env;
    recruit->instance = config->instance;
    recruit->failure_ns = config->failure_ns;
    recruit->on_done = config->on_done;
    recruit->arg = config->arg;
    recruit->due_ns = now_of(recruit);
    *recruit_out = recruit;
    return SHOAL_OK;
out_recruit:
    sh_recruit_destroy(recruit);
    return err;
}

void sh_recruit_destroy(struct sh_recruit *recruit)
{
    if (!recruit)
        return;
    if (recruit->is_asking)
        (void)sh_msg_cancel(recruit->msg, &recruit->request);
    sh_view_destroy(&recruit->view);
    free(recruit->addresses);
    free(recruit);
}

struct sh_step sh_recruit_step(struct sh_recruit *recruit)
{
    return (struct sh_step){.name = "recruit", .run = run, .due_ns = due_ns, .arg = recruit};
}
