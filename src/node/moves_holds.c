/* What a superpeer asks that has lost what it knew of chunks' owners (superpeer_gather.c): what this
 * node has of others' chunks, and what of its own it gave away. Whoever has answered goes by no
 * decision of before any more, so that the answer stays true until the superpeers decide again:
 *
 *   source    an answer to COMMIT that is under way is not waited for; COMMIT is sent again
 *   target    of what is staged, only RESOLVE says what came of it
 *   vacant    a range that was to go back is asked for again */
#include <stdlib.h>

#include "node/moves_int.h"

static void former_decisions_drop(struct sh_moves *moves)
{
    sh_moves_vacant_stop(moves);
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        struct sh_move_batch *batch = &moves->batches[i];
        if (batch->state != SH_MOVE_ASKED || !batch->is_asking)
            continue;
        (void)sh_msg_cancel(moves->config.msg, &batch->request);
        batch->is_asking = false;
        batch->due_ns = 0;
    }
    for (struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        if (staged->is_asking)
            (void)sh_msg_cancel(moves->config.msg, &staged->request);
        staged->is_asking = false;
        staged->is_reported = true;
    }
}

/* What is said of a range; 0: nothing, since it is with its creator, this node. */
static uint8_t claim_of(const struct sh_moves *moves, const struct sh_range *range,
                        enum sh_holding what)
{
    if (shoal_cid_creator(range->first).v == sh_msg_nid(moves->config.msg).v)
        return what == SH_HOLDING_AWAY ? SH_CLAIM_GAVE : 0;
    return what == SH_HOLDING_NOTHING && sh_moves_is_unclear(moves) ? SH_CLAIM_FROZEN
                                                                    : SH_CLAIM_SERVES;
}

static void on_holds(void *arg, struct sh_msg_in *in)
{
    enum { RANGES_MAX = 4096 };
    struct sh_moves *moves = arg;
    shoal_cid from = {sh_get64(&in->payload)};
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    struct sh_range *found = malloc(RANGES_MAX * sizeof *found);
    if (!found) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOMEM, NULL);
        return;
    }
    former_decisions_drop(moves);
    size_t count = 0;
    enum sh_holding what;
    struct sh_range range;
    shoal_nid other;
    bool is_more = false;
    while (!is_more && sh_holdings_next(moves->holdings, from, &range, &what, &other)) {
        range.first = range.first.v < from.v ? from : range.first;
        range.value = claim_of(moves, &range, what);
        is_more = range.value && count == RANGES_MAX;
        if (range.value && !is_more)
            found[count++] = range;
        from.v = range.last.v + 1;
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type,
                     SH_HOLDS_ANSWER_BYTES + count * SH_HOLDS_RANGE_BYTES, &out) == SHOAL_OK) {
        sh_put8(&out.w, is_more);
        sh_put64(&out.w, moves->sequence);
        for (size_t i = 0; i < count; i++) {
            sh_put64(&out.w, found[i].first.v);
            sh_put64(&out.w, found[i].last.v);
            sh_put8(&out.w, (uint8_t)found[i].value);
        }
        sh_msg_end(in->msg, &out);
    }
    free(found);
}

void sh_moves_holds_register(struct sh_moves *moves)
{
    sh_msg_handler_set(moves->config.msg, SH_CLUSTER_HOLDS, SH_MSG_INLINE, on_holds, moves);
}
