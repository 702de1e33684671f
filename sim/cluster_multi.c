/* Programs operate on several of the chunks that they share in one call (shoal_multi_get and its kin).
 * Such a call is no transaction: on each chunk it is an operation like others, recorded and judged
 * with them, whichever nodes have the chunks, and wherever they move meanwhile. */
#include "sim/cluster_programs_int.h"

#define OPS_MAX 4
#define REMOVES 12 /* one call of so many removes, if it may */

struct multi {
    enum linear_kind kind;
    unsigned count;
    struct cw_word *words[OPS_MAX];
    shoal_cid cids[OPS_MAX];
    uint64_t values[OPS_MAX];
    struct shoal_op ops[OPS_MAX];
    struct linear_op calls[OPS_MAX];
    struct cw_recording recordings[OPS_MAX];
};

/* As for a single removal: a write that may yet come must not meet another chunk under the ID. */
static bool may_take(const struct cw_word *word, enum linear_kind kind)
{
    if (!word->is_there || word->is_removing || !cw_register_has_room(&word->history))
        return false;
    return kind != LINEAR_REMOVE || word->history.pending == 0;
}

static void draw(struct cw_fiber *fiber, struct multi *multi)
{
    struct cw_programs *all = cw_world_of(fiber)->programs;
    unsigned first = (unsigned)cw_draw(fiber, CW_WORDS), most = 2 + (unsigned)cw_draw(fiber, 3);
    unsigned stride = 1 + 2 * (unsigned)cw_draw(fiber, CW_WORDS / 2); /* odd: it meets each once */
    multi->kind = cw_draw(fiber, REMOVES) == 0 ? LINEAR_REMOVE
                  : cw_draw(fiber, 2)          ? LINEAR_GET
                                               : LINEAR_PUT;
    for (unsigned i = 0; i < CW_WORDS && multi->count < most; i++) {
        struct cw_word *word = &all->words[(first + i * stride) % CW_WORDS];
        if (!may_take(word, multi->kind))
            continue;
        unsigned at = multi->count++;
        uint64_t value = multi->kind == LINEAR_PUT ? ++all->values | CW_WORD_MARK : 0;
        multi->words[at] = word;
        multi->cids[at] = word->cid;
        multi->values[at] = value;
        multi->calls[at] = (struct linear_op){.kind = multi->kind, .arg = value};
        multi->ops[at] = (struct shoal_op){.cid = word->cid,
                                           .data = &multi->values[at],
                                           .size = CW_WORD_BYTES,
                                           .err = SHOAL_EAGAIN};
    }
}

static enum shoal_err carry_out(shoal *store, struct multi *multi)
{
    switch (multi->kind) {
    case LINEAR_GET:
        return shoal_multi_get(store, multi->ops, multi->count);
    case LINEAR_PUT:
        return shoal_multi_put(store, multi->ops, multi->count);
    default:
        return shoal_multi_remove(store, multi->ops, multi->count);
    }
}

/* It is the err of the first that failed, or what the whole call was refused for. */
static void result_fits(struct cw_world *world, const struct multi *multi, enum shoal_err err)
{
    enum shoal_err first = SHOAL_OK;
    for (unsigned i = 0; i < multi->count && !first; i++)
        first = multi->ops[i].err;
    CW_HOLDS(world, err == first || (err && first == SHOAL_EAGAIN),
             "a call on many chunks said %s, and the first that failed %s", shoal_err_name(err),
             shoal_err_name(first));
}

void cw_multi_do(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned node = fiber->program->host->node;
    struct multi multi = {.count = 0};
    draw(fiber, &multi);
    for (unsigned i = 0; i < multi.count; i++) {
        multi.words[i]->is_removing |= multi.kind == LINEAR_REMOVE;
        multi.recordings[i] = cw_record(world, &multi.words[i]->history, &multi.calls[i]);
        cw_say(world, node, "%s of many: %u:%" PRIu64 " %" PRIx64, linear_kind_name(multi.kind),
               shoal_cid_creator(multi.cids[i]).v, shoal_cid_local(multi.cids[i]), multi.values[i]);
    }
    if (!multi.count)
        return;
    enum shoal_err err = carry_out(fiber->program->store, &multi);
    if (fiber->program->is_dying)
        return;
    result_fits(world, &multi, err);
    for (unsigned i = 0; i < multi.count; i++) {
        enum shoal_err ended = multi.ops[i].err;
        cw_say(world, node, "%s of many ended: %u:%" PRIu64 " %" PRIx64 ": %s",
               linear_kind_name(multi.kind), shoal_cid_creator(multi.cids[i]).v,
               shoal_cid_local(multi.cids[i]), multi.values[i], shoal_err_name(ended));
        /* A place may be another chunk's by now: then its history is another, too. */
        if (multi.words[i]->cid.v == multi.cids[i].v)
            cw_word_ended(world, multi.words[i], &multi.recordings[i], &multi.calls[i],
                          ended == SHOAL_EAGAIN ? SHOAL_EBUSY : ended, multi.values[i]);
        world->result->multis += ended == SHOAL_OK;
    }
}
