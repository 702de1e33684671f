#include <stdlib.h>

#include "base/assert.h"
#include "graph/graph_int.h"

#define ASK_TIMEOUT_NS UINT64_C(60000000000)
/* A peer that joined a moment ago may be known to who coordinates a load, but not here yet: views
 * come with heartbeats, which are at most this far apart in practice. */
#define UNKNOWN_WAIT_NS UINT64_C(5000000000)

struct sh_graph_ask *sh_graph_ask_new(struct sh_graph *graph, sh_msg_type type, uint64_t owner_id,
                                      uint32_t rank)
{
    size_t room = type == SH_GRAPH_TYPE(SH_GRAPH_OUTCOME)   ? 0
                  : type == SH_GRAPH_TYPE(SH_GRAPH_RESOLVE) ? 2 * (size_t)SH_GRAPH_BATCH_IDS
                                                            : SH_GRAPH_BATCH_IDS;
    struct sh_graph_ask *ask = malloc(sizeof *ask + room * sizeof(uint64_t));
    if (!ask)
        return NULL;
    memset(ask, 0, sizeof *ask);
    ask->places = type == SH_GRAPH_TYPE(SH_GRAPH_RESOLVE) ? ask->ids + SH_GRAPH_BATCH_IDS : NULL;
    ask->graph = graph;
    ask->type = type;
    ask->owner_id = owner_id;
    ask->rank = rank;
    return ask;
}

void sh_graph_ask_free(struct sh_graph_ask *ask)
{
    if (ask)
        free(ask->answer);
    free(ask);
}

/* Runs in the transport step: keeps the answer and hands the ask to the graph's step. */
static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_graph_ask *ask = request->arg;
    struct sh_graph *graph = ask->graph;
    ask->err = err;
    size_t size = sh_reader_left(payload);
    if (size > 0) {
        ask->answer = malloc(size);
        if (ask->answer) {
            memcpy(ask->answer, payload->at, size);
            ask->answer_size = size;
        } else if (!err) {
            ask->err = SHOAL_ENOMEM;
        }
    }
    /* The ring has more slots than asks can be in flight. */
    bool pushed = sh_queue_push(graph->answers, ask);
    SH_ASSERT(pushed);
    graph->config.wake(graph->config.arg);
}

/* True when a send failed for a reason that passes, so that it is to be tried again. A traversal
 * only asks peers that were asked during the load: one that is unknown now has failed. */
static bool passes(const struct sh_graph *graph, struct sh_graph_ask *ask, enum shoal_err err)
{
    if (err != SHOAL_EUNREACHABLE || ask->type != SH_GRAPH_TYPE(SH_GRAPH_RESOLVE))
        return err == SHOAL_EAGAIN || err == SHOAL_ELIMIT;
    if (ask->unknown_since_ns == 0)
        ask->unknown_since_ns = graph->now_ns;
    return graph->now_ns - ask->unknown_since_ns < UNKNOWN_WAIT_NS;
}

enum shoal_err sh_graph_ask_send(struct sh_graph *graph, struct sh_graph_ask *ask, shoal_nid to,
                                 uint64_t level)
{
    SH_ASSERT(ask->count <= SH_GRAPH_BATCH_IDS);
    bool visit = ask->type == SH_GRAPH_TYPE(SH_GRAPH_BFS_VISIT);
    size_t ids_bytes = (size_t)ask->count * 8;
    struct sh_out out;
    ask->request.done = on_done;
    ask->request.arg = ask;
    ask->request.timeout_ns = ASK_TIMEOUT_NS;
    enum shoal_err err = sh_msg_request(graph->config.msg, to, ask->type,
                                        8 + (visit ? 8 : 0) + ids_bytes, &ask->request, &out);
    if (err) {
        if (!passes(graph, ask, err))
            return err;
        graph->blocked = true;
        return SHOAL_EAGAIN;
    }
    graph->asks++;
    sh_put64(&out.w, ask->owner_id);
    if (visit)
        sh_put64(&out.w, level);
    if (ids_bytes > 0)
        sh_put_raw(&out.w, sh_bytes_make(ask->ids, ids_bytes));
    sh_msg_end(graph->config.msg, &out);
    return SHOAL_OK;
}
