/* Questions to the peers of a graph, asked again while one of them has failed and its chunks come back.
 *
 * A command begins with the peers that are up in the superpeers' view. A peer that has just been killed is among them until it is declared
 * failed, and does not answer; from then on its vertices are missing until other peers have recovered them, or the peer is back. The
 * graph's own calls wait for vertices that come to the peers they ask (graph/query.c), but can't know of other peers, nor whether
 * there is anything to wait for: both are in the view. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "client/client.h"
#include "cmd/graph_int.h"

#define AGAIN_NS UINT64_C(50000000)
#define STILL_NS_MAX UINT64_C(20000000000) /* without a vertex that came */

/* Errors that a peer that fails may be the cause of: it is not reached or stops, or its vertices are missing. */
static bool is_of_failure(enum shoal_err err)
{
    return err == SHOAL_EUNREACHABLE || err == SHOAL_ECONNLOST || err == SHOAL_ESTOPPED ||
           err == SHOAL_EFENCED || err == SHOAL_EFAILED;
}

static bool is_among(const struct sh_graph_peers *peers, shoal_nid nid)
{
    for (size_t i = 0; i < peers->count; i++) {
        if (peers->nids[i].v == nid.v)
            return true;
    }
    return false;
}

/* Takes the peers that are up now; those of before stay where that can't be said. True: one of them was not among those of before. */
static bool peers_refresh(struct sh_cmd *cmd, struct sh_graph_peers *peers)
{
    size_t count;
    bool has_more = false;
    shoal_nid *nids = calloc(SH_GRAPH_PEERS_MAX, sizeof *nids);
    if (!nids)
        return false;
    if (sh_client_peers(cmd->store, nids, SH_GRAPH_PEERS_MAX, &count) != SHOAL_OK ||
        count > SH_GRAPH_PEERS_MAX) {
        free(nids);
        return false;
    }
    for (size_t i = 0; i < count && !has_more; i++)
        has_more = !is_among(peers, nids[i]);
    free(peers->nids);
    peers->nids = nids;
    peers->count = count;
    return has_more;
}

static void pause_for(const struct sh_caller *caller, uint64_t ns)
{
    struct sh_waiter nobody = {0};
    bool is_done = sh_crew_wait(caller->crew, caller->thread, &nobody, sh_now(caller->clock) + ns);
    SH_ASSERT(!is_done); /* nobody completes it */
}

enum shoal_err sh_graph_persist(struct sh_cmd *cmd, struct sh_graph_peers *peers,
                                sh_graph_question question, void *arg,
                                struct sh_graph_problem *problem_out)
{
    uint64_t still_ns = 0, vertices = 0;
    SH_ASSERT(peers->count > 0 && problem_out);
    for (;;) {
        *problem_out = (struct sh_graph_problem){0};
        enum shoal_err err = question(peers, arg, problem_out);
        if (!is_of_failure(err))
            return err;
        uint64_t now = sh_now(peers->caller.clock);
        if (still_ns == 0 || (problem_out->vertices && problem_out->vertices != vertices)) {
            still_ns = now;
            vertices = problem_out->vertices;
        }
        bool has_more = peers_refresh(cmd, peers);
        if (now - still_ns >= STILL_NS_MAX ||
            !(has_more || sh_client_awaits_peer(cmd->store, problem_out->peer)))
            return err;
        SH_DEBUG("graph", "asks again, as a peer has failed whose chunks come back", SH_ERR(err),
                 SH_U64("peer", problem_out->peer.v));
        pause_for(&peers->caller, AGAIN_NS);
    }
}
