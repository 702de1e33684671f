/* Ranges of chunks of a creator that is gone, from which all chunks were removed here, go back to the
 * creator, so that they do not keep its ID from other nodes.
 *
 *   superpeer --VACATE: a range that this node has, of a creator that has left--> here: chunks are left? no
 *       ^                                                                            |
 *       '----COMMIT: a batch without chunks, for which no target has to be up--------'
 *
 * No chunk comes to be in such a range meanwhile: only its creator makes chunks of these IDs, and only this
 * node could give them away. One range at a time, and while no batch is under way, whose numbers these
 * have too. What is not answered is asked again under another number; what was refused is left alone until
 * the superpeer comes back to it. */
#include "base/assert.h"
#include "base/node_ids.h"
#include "node/moves_int.h"

#define QUESTION_NS UINT64_C(1000000000)
#define AGAIN_NS UINT64_C(100000000)

static bool is_staged(const struct sh_moves *moves, const struct sh_metadata_run *range)
{
    for (const struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        for (size_t i = 0; i < staged->count; i++) {
            const struct sh_metadata_run *run = &staged->runs[i];
            if (run->first.v <= range->last.v && range->first.v <= run->last.v)
                return true;
        }
    }
    return false;
}

/* Whether nothing is, moves or arrives in a range of another's chunks. What this node does not know to be
 * its own, a former life of it had; as long as zones of that are lost, the chunks may have been in them, and whoever
 * asks for one is to be told. */
static bool is_vacant(const struct sh_moves *moves, const struct sh_metadata_run *range)
{
    shoal_cid first, last, until = {range->first.v - 1};
    shoal_nid nid;
    if (sh_moves_former_are_lost(moves))
        return false;
    do {
        shoal_cid at = {until.v + 1};
        enum sh_holding what = sh_holdings_find(moves->holdings, at, &until, &nid);
        if (what != SH_HOLDING_HELD && what != SH_HOLDING_PLAIN)
            return false;
    } while (until.v < range->last.v);
    bool is_any = sh_store_range(moves->config.store, range->first, &first, &last);
    return !(is_any && first.v <= range->last.v) && !is_staged(moves, range);
}

static void on_vacate(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    struct sh_vacant *vacant = &moves->vacant;
    struct sh_metadata_run range = {{sh_get64(&in->payload)}, {sh_get64(&in->payload)}};
    shoal_nid creator = shoal_cid_creator(range.first);
    if (!sh_reader_done(&in->payload) || range.last.v < range.first.v || !sh_nid_is_peer(creator) ||
        creator.v != shoal_cid_creator(range.last).v ||
        creator.v == sh_msg_nid(moves->config.msg).v || vacant->count == SH_VACANT_MAX)
        return;
    for (size_t i = 0; i < vacant->count; i++) {
        if (vacant->ranges[i].first.v == range.first.v)
            return;
    }
    if (is_vacant(moves, &range))
        vacant->ranges[vacant->count++] = range;
}

/* The range at hand is another's. A lookup of before may lead here once more: it is refused. */
static void let_go(struct sh_moves *moves)
{
    const struct sh_metadata_run *range = &moves->vacant.ranges[0];
    if (!sh_holdings_has_room(moves->holdings, 1) || !is_vacant(moves, range))
        return;
    sh_holdings_set(moves->holdings, range->first, range->last, SH_HOLDING_PLAIN, SHOAL_NID_NONE);
    moves->changes++;
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_moves *moves = request->arg;
    struct sh_vacant *vacant = &moves->vacant;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    SH_ASSERT(vacant->is_asking && vacant->count);
    vacant->is_asking = false;
    if (other.v)
        sh_directory_superpeer_set(moves->config.directory,
                                   shoal_cid_creator(vacant->ranges[0].first), other);
    bool is_mine = err == SHOAL_ECANCELED || err == SHOAL_ENONODE || err == SHOAL_ELIMIT;
    bool is_gone = err == SHOAL_ENOTOWNER || (!err && !other.v && sh_reader_done(payload));
    vacant->due_ns = other.v || is_gone ? 0 : sh_now(&moves->config.clock) + AGAIN_NS;
    if (is_gone)
        let_go(moves);
    if (is_gone || is_mine)
        vacant->ranges[0] = vacant->ranges[--vacant->count];
}

static void ask(struct sh_moves *moves)
{
    struct sh_vacant *vacant = &moves->vacant;
    const struct sh_metadata_run *range = &vacant->ranges[0];
    shoal_nid creator = shoal_cid_creator(range->first);
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, creator);
    struct sh_out out;
    vacant->request =
        (struct sh_request){.done = answered, .arg = moves, .timeout_ns = QUESTION_NS};
    vacant->due_ns = sh_now(&moves->config.clock) + AGAIN_NS;
    if (sh_msg_request(moves->config.msg, superpeer, SH_CLUSTER_COMMIT, sh_moves_batch_bytes(1),
                       &vacant->request, &out))
        return;
    vacant->is_asking = true;
    sh_moves_batch_put(moves, &out.w, sh_msg_nid(moves->config.msg), creator, 0,
                       sh_moves_sequence_next(moves), range, 1);
    sh_msg_end(moves->config.msg, &out);
}

static bool may_ask(const struct sh_moves *moves)
{
    const struct sh_moves_config *config = &moves->config;
    /* What a former life had may be coming back elsewhere. */
    bool are_over = !config->are_former_over || config->are_former_over(config->arg);
    return moves->vacant.count && !moves->vacant.is_asking && are_over &&
           !sh_moves_is_under_way(moves);
}

unsigned sh_moves_vacant_step(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_vacant *vacant = &moves->vacant;
    if (!may_ask(moves) || now_ns < vacant->due_ns)
        return 0;
    if (is_vacant(moves, &vacant->ranges[0]))
        ask(moves);
    else
        vacant->ranges[0] = vacant->ranges[--vacant->count];
    return 1;
}

uint64_t sh_moves_vacant_due_ns(const struct sh_moves *moves)
{
    return may_ask(moves) ? moves->vacant.due_ns : SH_NEVER;
}

void sh_moves_vacant_stop(struct sh_moves *moves)
{
    if (moves->vacant.is_asking)
        (void)sh_msg_cancel(moves->config.msg, &moves->vacant.request);
    moves->vacant.is_asking = false;
}

void sh_moves_vacant_register(struct sh_moves *moves)
{
    sh_msg_handler_set(moves->config.msg, SH_CLUSTER_VACATE, SH_MSG_INLINE, on_vacate, moves);
}
