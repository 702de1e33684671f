/* After a superpeer has lost its memory, nodes that are asked what they have (HOLDS) leave out a
 * batch of which they do not know whether it was committed. Who finds out later that it has the
 * batch, the target that it was committed, or the source that it was not, claims it (CLAIM). */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"

static void claim_free(struct sh_moves *moves, struct sh_staged *claim)
{
    struct sh_staged **at = &moves->claims;
    while (*at != claim)
        at = &(*at)->next;
    *at = claim->next;
    if (claim->is_asking)
        (void)sh_msg_cancel(moves->config.msg, &claim->request);
    if (claim != moves->thawed)
        free(claim);
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_staged *claim = request->arg;
    struct sh_moves *moves = claim->moves;
    claim->is_asking = false;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    if (!err && sh_reader_done(payload) && !other.v) {
        claim_free(moves, claim);
        return;
    }
    if (other.v)
        sh_directory_superpeer_set(moves->config.directory, shoal_cid_creator(claim->runs[0].first),
                                   other);
    else
        SH_DEBUG("node", "a claim is not noted yet", SH_U64("from", claim->source.v), SH_ERR(err));
    claim->due_ns = sh_now(&moves->config.clock) + SH_MOVES_AGAIN_NS;
}

static void ask(struct sh_moves *moves, struct sh_staged *claim)
{
    struct sh_out out;
    shoal_nid self = sh_msg_nid(moves->config.msg);
    shoal_nid superpeer =
        sh_directory_superpeer(moves->config.directory, shoal_cid_creator(claim->runs[0].first));
    claim->request = (struct sh_request){.done = answered, .arg = claim};
    if (sh_msg_request(moves->config.msg, superpeer, SH_CLUSTER_CLAIM,
                       sh_moves_batch_bytes(claim->count), &claim->request, &out))
        return;
    claim->is_asking = true;
    sh_moves_batch_put(&out.w, self, self, 0, sh_moves_known(moves), claim->runs, claim->count);
    sh_msg_end(moves->config.msg, &out);
}

void sh_moves_claim(struct sh_moves *moves, struct sh_staged *staged)
{
    SH_INFO("node", "claims a batch that was not known to be here",
            SH_U64("from", staged->source.v));
    staged->due_ns = 0;
    staged->next = moves->claims;
    moves->claims = staged;
}

void sh_moves_claim_batch(struct sh_moves *moves)
{
    struct sh_move_batch *batch = &moves->batch;
    struct sh_staged *claim = moves->thawed;
    batch->was_left_out = false;
    *claim = (struct sh_staged){
        .moves = moves, .source = sh_msg_nid(moves->config.msg), .count = batch->count};
    memcpy(claim->runs, batch->runs, batch->count * sizeof batch->runs[0]);
    sh_moves_claim(moves, claim);
}

unsigned sh_moves_claims_step(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_staged *claim = sh_staged_due(moves->claims, now_ns);
    if (!claim)
        return 0;
    claim->due_ns = now_ns + SH_MOVES_AGAIN_NS;
    ask(moves, claim);
    return 1;
}

void sh_moves_claims_end(struct sh_moves *moves)
{
    while (moves->claims)
        claim_free(moves, moves->claims);
    free(moves->thawed);
}
