/* A migration's target that has said, when a superpeer with no memory asked (HOLDS), that a batch
 * is not here, and hears later that it was committed before: it claims the batch, as it alone knows
 * that. The source may have said in the same way that it has it (SH_MOVE_CLAIM in moves.c). */
#include <stdlib.h>

#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"

bool sh_moves_claim_is_over(enum shoal_err err, struct sh_reader *payload, shoal_nid *other_out)
{
    other_out->v = err ? 0 : sh_get16(payload);
    if (err == SHOAL_ELIMIT)
        SH_WARN("node", "the superpeer has no room to note where chunks are", SH_ERR(err));
    return err == SHOAL_ELIMIT || (!err && sh_reader_done(payload) && !other_out->v);
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_staged *claim = request->arg;
    struct sh_moves *moves = claim->moves;
    shoal_nid other;
    claim->is_asking = false;
    if (sh_moves_claim_is_over(err, payload, &other)) {
        struct sh_staged **at = &moves->claims;
        while (*at != claim)
            at = &(*at)->next;
        *at = claim->next;
        free(claim);
        return;
    }
    if (other.v)
        sh_directory_superpeer_set(moves->config.directory, shoal_cid_creator(claim->runs[0].first),
                                   other);
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
    sh_moves_batch_put(&out.w, self, self, 0, moves->sequence, claim->runs, claim->count);
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

unsigned sh_moves_claims_step(struct sh_moves *moves, uint64_t now_ns)
{
    /* A claim says that this node has heard what came of all its own batches. */
    bool is_open = moves->state == SH_MOVE_COMMIT || moves->state == SH_MOVE_DOUBT;
    struct sh_staged *claim = sh_staged_due(moves->claims, now_ns);
    if (!claim)
        return 0;
    claim->due_ns = now_ns + SH_MOVES_AGAIN_NS;
    if (!is_open)
        ask(moves, claim);
    return 1;
}

void sh_moves_claims_end(struct sh_moves *moves)
{
    while (moves->claims) {
        struct sh_staged *claim = moves->claims;
        moves->claims = claim->next;
        if (claim->is_asking)
            (void)sh_msg_cancel(moves->config.msg, &claim->request);
        free(claim);
    }
}
