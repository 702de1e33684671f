/* How a load ends when its coordinator falls silent at the last moment. Each peer says that it is
 * prepared before the first one hears END, so that
 *
 *   a peer that is not prepared may drop the load: nobody went live with it, and once it has
 *   dropped it, nobody will;
 *   a prepared one may not: it asks all others how the load stands with them, and does what one of
 *   them did; if all are prepared, nobody can have dropped it, and each may go live.
 *
 * One that is asked and not prepared drops the load first and answers afterwards: two-phase commit
 * with cooperative termination. What stays open is a coordinator and a peer that fail together,
 * both out of reach until the load's time-out: then a prepared peer drops it. */
#include "base/assert.h"
#include "graph/graph_int.h"

/* A prepared peer asks after this part of the time-out, and then again. */
#define ASKS_IN_TIMEOUT 4

uint64_t sh_outcome_due_ns(const struct sh_graph *graph, const struct sh_load *load)
{
    SH_ASSERT(load->phase == SH_LOAD_PREPARED);
    if (load->asks > 0)
        return SH_NEVER;
    uint64_t last_ns = load->asked_ns > load->heard_ns ? load->asked_ns : load->heard_ns;
    return last_ns + graph->config.load_timeout_ns / ASKS_IN_TIMEOUT;
}

/* After the last answer, or when there is nobody to ask. */
static void judge(struct sh_graph *graph, struct sh_load *load)
{
    if (load->asks == 0 && load->prepared + 1 == load->part->peer_count)
        sh_load_go_live(graph, NULL);
}

/* Asks each other peer; one that can't be asked now is asked in the next round. */
void sh_outcome_ask(struct sh_graph *graph, struct sh_load *load)
{
    const struct sh_part *part = load->part;
    load->asked_ns = graph->now_ns;
    load->prepared = 0;
    for (uint32_t rank = 0; rank < part->peer_count; rank++) {
        if (rank == part->rank)
            continue;
        struct sh_graph_ask *ask =
            sh_graph_ask_new(graph, SH_GRAPH_TYPE(SH_GRAPH_OUTCOME), load->id, rank);
        if (!ask)
            continue;
        if (sh_graph_ask_send(graph, ask, part->peers[rank], 0))
            sh_graph_ask_free(ask);
        else
            load->asks++;
    }
    judge(graph, load);
}

void sh_outcome_answered(struct sh_graph *graph, const struct sh_graph_ask *ask)
{
    struct sh_load *load = graph->load;
    SH_ASSERT(load && load->id == ask->owner_id && load->phase == SH_LOAD_PREPARED);
    bool valid = !ask->err && ask->answer_size == 1;
    uint8_t outcome = valid ? ask->answer[0] : 0;
    if (outcome == SH_GRAPH_OUTCOME_LIVE) {
        sh_load_go_live(graph, NULL);
    } else if (outcome == SH_GRAPH_OUTCOME_GONE) {
        sh_load_fail(graph, SHOAL_ECANCELED, "peer %u dropped the load",
                     load->part->peers[ask->rank].v);
    } else {
        load->prepared += outcome == SH_GRAPH_OUTCOME_PREPARED;
        judge(graph, load);
    }
}

void sh_graph_on_outcome(struct sh_graph *graph, const struct sh_graph_item *item)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(item->bytes, item->size));
    uint64_t id = sh_get64(&r);
    if (!sh_reader_done(&r)) {
        sh_graph_reply_error(graph, item, SHOAL_EPROTO, NULL);
        return;
    }
    uint8_t outcome = SH_GRAPH_OUTCOME_GONE;
    if (graph->live && graph->live->graph_id == id)
        outcome = SH_GRAPH_OUTCOME_LIVE;
    else if (graph->load && graph->load->id == id && graph->load->phase == SH_LOAD_PREPARED)
        outcome = SH_GRAPH_OUTCOME_PREPARED;
    else if (graph->load && graph->load->id == id)
        sh_load_fail(graph, SHOAL_ECANCELED, "another peer lost the coordinator");
    struct sh_out out;
    if (sh_msg_reply(graph->config.msg, item->reply_to, item->type, 1, &out))
        return;
    sh_put8(&out.w, outcome);
    sh_msg_end(graph->config.msg, &out);
}
