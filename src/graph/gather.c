#include "graph/gather_int.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"

/* In whichever thread runs the transport step. */
static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_gather *gather = request->arg;
    size_t size = sh_reader_left(payload);
    gather->err = err;
    if (err) {
        sh_call_detail_take(gather->detail, payload);
    } else {
        gather->answer = malloc(size ? size : 1);
        if (!gather->answer)
            gather->err = SHOAL_ENOMEM;
        else if (size)
            memcpy(gather->answer, payload->at, size);
        gather->size = size;
    }
    sh_waiter_complete(&gather->waiter);
}

enum shoal_err sh_gather_begin(const struct sh_caller *caller, struct sh_gather *gather,
                               shoal_nid to, enum sh_graph_op op, size_t payload_bytes,
                               uint64_t timeout_ns, struct sh_out *out)
{
    SH_ASSERT(!gather->pending);
    free(gather->answer);
    *gather = (struct sh_gather){.to = to};
    gather->request.done = on_done;
    gather->request.arg = gather;
    gather->request.timeout_ns = timeout_ns;
    gather->pending = true;
    enum shoal_err err =
        sh_call_begin(caller, to, SH_GRAPH_TYPE(op), payload_bytes, &gather->request, out);
    if (err) {
        gather->pending = false;
        gather->err = err;
    }
    return err;
}

enum shoal_err sh_gather_wait(const struct sh_caller *caller, struct sh_gather *gather)
{
    if (gather->pending) {
        bool done = sh_crew_wait(caller->crew, caller->thread, &gather->waiter, SH_NEVER);
        SH_ASSERT(done); /* every request ends, by its time-out at the latest */
        gather->pending = false;
    }
    return gather->err;
}

void sh_gather_free(struct sh_gather *gather)
{
    SH_ASSERT(!gather->pending);
    free(gather->answer);
    gather->answer = NULL;
}

struct sh_reader sh_gather_reader(const struct sh_gather *gather)
{
    return sh_reader_make(sh_bytes_make(gather->answer, gather->size));
}

struct sh_gather *sh_gather_new(size_t count)
{
    return calloc(count ? count : 1, sizeof(struct sh_gather));
}

void sh_gather_free_all(struct sh_gather *gathers, size_t count)
{
    for (size_t i = 0; gathers && i < count; i++)
        sh_gather_free(&gathers[i]);
    free(gathers);
}

void sh_graph_explain(struct sh_graph_problem *problem_out, const char *format, ...)
{
    if (!problem_out || problem_out->detail[0])
        return;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(problem_out->detail, sizeof problem_out->detail, format, args);
    va_end(args);
}

void sh_gather_explain(struct sh_graph_problem *problem_out, const struct sh_gather *gather)
{
    if (problem_out && !problem_out->detail[0])
        problem_out->peer = gather->to;
    if (gather->detail[0])
        sh_graph_explain(problem_out, "%s", gather->detail);
    else
        sh_graph_explain(problem_out, "peer %u: %s", gather->to.v, shoal_err_text(gather->err));
}

enum shoal_err sh_gather_all(const struct sh_caller *caller, struct sh_gather *gathers,
                             const shoal_nid *nodes, size_t count, enum sh_graph_op op,
                             struct sh_bytes payload, uint64_t timeout_ns,
                             struct sh_graph_problem *problem_out)
{
    for (size_t i = 0; i < count; i++) {
        struct sh_out out;
        if (sh_gather_begin(caller, &gathers[i], nodes[i], op, payload.size, timeout_ns, &out))
            continue;
        sh_put_raw(&out.w, payload);
        sh_msg_end(caller->msg, &out);
    }
    enum shoal_err first = SHOAL_OK;
    for (size_t i = 0; i < count; i++) {
        enum shoal_err err = sh_gather_wait(caller, &gathers[i]);
        if (err && !first) {
            first = err;
            sh_gather_explain(problem_out, &gathers[i]);
        }
    }
    return first;
}

uint64_t sh_graph_new_id(const struct sh_caller *caller)
{
    static _Atomic uint64_t counter;
    uint64_t count = atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
    uint64_t seed[4] = {
        sh_now(caller->clock),
        caller->clock->wall_ns(caller->clock->arg),
        sh_msg_nid(caller->msg).v,
        count,
    };
    uint64_t id = sh_hash64(sh_bytes_make(seed, sizeof seed), 0);
    return id ? id : 1;
}
