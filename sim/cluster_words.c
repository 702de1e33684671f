/* Programs share chunks of one word, which all of them read, write, compare and add to. Each is a
 * register; what is known of the other chunks of the world, a checker knows without a search. */
#include <string.h>

#include "base/assert.h"
#include "sim/cluster_programs_int.h"

static struct cw_word *word_at(struct cw_world *world, unsigned at)
{
    return &world->programs->words[at];
}

static void word_end(struct cw_world *world, struct cw_word *word)
{
    cw_register_end(world, &word->history);
    word->is_there = false;
}

/* --- Operations --------------------------------------------------------------------------------
 */

/* What was removed is nobody's any more once its ID is another chunk's. */
static void id_given_out(struct cw_world *world, shoal_cid cid)
{
    for (unsigned i = 0; i < CW_WORDS; i++) {
        struct cw_word *word = word_at(world, i);
        if (!word->is_there || word->cid.v != cid.v)
            continue;
        CW_HOLDS(world, word->is_removing, "%s of a program was created twice", word->history.text);
        word_end(world, word);
    }
}

static void create(struct cw_fiber *fiber, unsigned at)
{
    struct cw_world *world = cw_world_of(fiber);
    struct cw_word *word = word_at(world, at);
    shoal_cid cid = SHOAL_CID_NONE;
    uint64_t deaths = world->deaths;
    enum shoal_err err = shoal_create(fiber->program->store, SHOAL_NID_NONE, CW_WORD_BYTES, &cid);
    if (!err && !fiber->program->is_dying)
        id_given_out(world, cid);
    /* A node that had it may have died meanwhile; and another fiber may have come first. */
    bool is_lost = deaths != world->deaths && cw_servers_of(world, cid) == 0;
    if (err || fiber->program->is_dying || word->is_there || is_lost)
        return;
    char text[40];
    (void)snprintf(text, sizeof text, "chunk %u:%" PRIu64, shoal_cid_creator(cid).v,
                   shoal_cid_local(cid));
    cw_say(world, fiber->program->host->node, "created %s", text);
    cw_register_begin(world, &word->history, text);
    *word = (struct cw_word){.is_there = true, .cid = cid, .history = word->history};
    struct linear_op op = {.kind = LINEAR_CREATE};
    struct cw_recording recording = cw_record(world, &word->history, &op);
    cw_record_end(world, &recording, LINEAR_OK, 0);
    world->result->creates++;
}

static void draw(struct cw_fiber *fiber, struct cw_word *word, struct linear_op *op_out)
{
    static const enum linear_kind kinds[] = {LINEAR_GET, LINEAR_GET, LINEAR_GET, LINEAR_PUT,
                                             LINEAR_CAS, LINEAR_CAS, LINEAR_ADD};
    struct cw_programs *all = cw_world_of(fiber)->programs;
    *op_out = (struct linear_op){.kind = kinds[cw_draw(fiber, sizeof kinds / sizeof *kinds)]};
    if (op_out->kind == LINEAR_GET)
        return;
    if (op_out->kind == LINEAR_ADD && !(word->last & CW_WORD_MARK))
        op_out->kind = LINEAR_PUT;
    if (op_out->kind == LINEAR_CAS)
        op_out->expected = word->last;
    op_out->arg = ++all->values;
    if (op_out->kind != LINEAR_ADD)
        op_out->arg |= CW_WORD_MARK;
}

static enum shoal_err put(struct cw_fiber *fiber, shoal_cid cid, const uint64_t *value)
{
    shoal *store = fiber->program->store;
    struct shoal_call call = {0};
    if (cw_draw(fiber, 2))
        return shoal_put(store, cid, value, sizeof *value);
    enum shoal_err err = shoal_put_async(store, cid, value, sizeof *value, &call);
    return err ? err : shoal_wait(store, &call);
}

static enum shoal_err get(struct cw_fiber *fiber, shoal_cid cid, uint64_t *value_out)
{
    shoal *store = fiber->program->store;
    struct shoal_op op = {.cid = cid, .data = value_out, .size = sizeof *value_out};
    uint32_t size;
    if (cw_draw(fiber, 2))
        return shoal_get(store, cid, value_out, sizeof *value_out, &size);
    return shoal_multi_get(store, &op, 1);
}

static enum shoal_err carry_out(struct cw_fiber *fiber, shoal_cid cid, const struct linear_op *op,
                                uint64_t *got_out)
{
    shoal *store = fiber->program->store;
    enum shoal_err err;
    switch (op->kind) {
    case LINEAR_GET:
        return get(fiber, cid, got_out);
    case LINEAR_PUT:
        return put(fiber, cid, &op->arg);
    case LINEAR_CAS:
        return shoal_put_if(store, cid, &op->expected, 8, &op->arg, 8);
    case LINEAR_ADD:
        err = shoal_add(store, cid, 0, 8, op->arg, got_out);
        *got_out += op->arg;
        return err;
    default:
        return shoal_remove(store, cid);
    }
}

/* The ID may have been given out anew, once a removal was begun. */
static bool may_be_another(const struct cw_word *word, const struct linear_op *op,
                           enum shoal_err err, uint64_t got)
{
    return word->is_removing && op->kind == LINEAR_GET &&
           (err == SHOAL_ESIZE || (err == SHOAL_OK && !(got & CW_WORD_MARK)));
}

static bool answer_read(enum shoal_err err, enum linear_result *result_out)
{
    switch (err) {
    case SHOAL_OK:
        *result_out = LINEAR_OK;
        return true;
    case SHOAL_ENOCHUNK:
        *result_out = LINEAR_ABSENT;
        return true;
    case SHOAL_EDIFFERS:
        *result_out = LINEAR_DIFFERS;
        return true;
    case SHOAL_ESIZE:
        *result_out = LINEAR_SIZE;
        return true;
    default:
        return false;
    }
}

/* It has certainly not been done, the library says. */
static bool is_undone(enum shoal_err err)
{
    return err == SHOAL_EUNREACHABLE || err == SHOAL_EBUSY || err == SHOAL_EFENCED;
}

void cw_word_ended(struct cw_world *world, struct cw_word *word,
                   const struct cw_recording *recording, const struct linear_op *op,
                   enum shoal_err err, uint64_t got)
{
    enum linear_result result;
    /* If another chunk is in that place by now, so is another history, and nothing is recorded. */
    if (may_be_another(word, op, err, got)) {
        cw_record_drop(recording);
    } else if (answer_read(err, &result)) {
        cw_record_end(world, recording, result, got);
        bool says = err == SHOAL_OK && (op->kind == LINEAR_GET || op->kind == LINEAR_ADD);
        word->last = says ? got : err == SHOAL_OK ? op->arg : word->last;
        world->result->words += err == SHOAL_OK;
    } else if (op->kind == LINEAR_GET || is_undone(err)) {
        cw_record_drop(recording);
    }
}

static void operate(struct cw_fiber *fiber, struct cw_word *word, const struct linear_op *op)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned node = fiber->program->host->node, creator = shoal_cid_creator(word->cid).v;
    uint64_t local = shoal_cid_local(word->cid), got = 0;
    const char *kind = linear_kind_name(op->kind);
    struct cw_recording recording = cw_record(world, &word->history, op);
    cw_say(world, node, "%s %u:%" PRIu64 " %" PRIx64 " (if %" PRIx64 ") begins", kind, creator,
           local, op->arg, op->expected);
    enum shoal_err err = carry_out(fiber, word->cid, op, &got);
    if (fiber->program->is_dying)
        return;
    cw_say(world, node, "%s %u:%" PRIu64 " %" PRIx64 " (if %" PRIx64 ") ended: %s, %" PRIx64, kind,
           creator, local, op->arg, op->expected, shoal_err_name(err), got);
    cw_word_ended(world, word, &recording, op, err, got);
}

void cw_words_do(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned at = (unsigned)cw_draw(fiber, CW_WORDS);
    struct cw_word *word = word_at(world, at);
    struct linear_op op;
    if (word->is_there && !cw_register_has_room(&word->history))
        word_end(world, word);
    if (!word->is_there) {
        create(fiber, at);
        return;
    }
    draw(fiber, word, &op);
    /* A write that may yet come must not meet another chunk under the ID. */
    if (!word->is_removing && word->history.pending == 0 && cw_draw(fiber, 60) == 0) {
        word->is_removing = true;
        op = (struct linear_op){.kind = LINEAR_REMOVE};
    } else if (word->is_removing) {
        op = (struct linear_op){.kind = LINEAR_GET};
        if (cw_draw(fiber, 20) == 0) {
            word_end(world, word);
            return;
        }
    }
    operate(fiber, word, &op);
}

void cw_words_move(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    const struct cw_word *word = word_at(world, (unsigned)cw_draw(fiber, CW_WORDS));
    unsigned node = fiber->program->host->node;
    shoal_nid from;
    struct shoal_migration migration = {.first = word->cid, .last = word->cid};
    if (!word->is_there || sh_client_locate(fiber->program->store, word->cid, 0, &from))
        return;
    if (fiber->program->is_dying)
        return;
    cw_say(world, node, "moves chunk %u:%" PRIu64 " from node %u",
           shoal_cid_creator(migration.first).v, shoal_cid_local(migration.first), from.v);
    enum shoal_err err = shoal_migrate(fiber->program->store, from, &migration, NULL, NULL, NULL);
    if (fiber->program->is_dying)
        return;
    cw_say(world, node, "moved chunk %u:%" PRIu64 ": %s", shoal_cid_creator(migration.first).v,
           shoal_cid_local(migration.first), shoal_err_name(err));
    world->result->moves += err == SHOAL_OK;
}

/* --- Checks ------------------------------------------------------------------------------------
 */

void cw_words_lost(struct cw_host *host)
{
    struct cw_world *world = host->world;
    for (unsigned i = 0; i < CW_WORDS; i++) {
        struct cw_word *word = word_at(world, i);
        uint32_t size;
        sh_lid lid = sh_holdings_lid(sh_msg_nid(host->msg), word->cid);
        if (word->is_there && sh_store_size(host->store, lid, &size) == SHOAL_OK)
            word_end(world, word);
    }
}

const char *cw_words_wait(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_WORDS; i++) {
        const struct cw_word *word = word_at(world, i);
        if (word->is_there && !word->is_removing && cw_servers_of(world, word->cid) != 1)
            return "a program's chunk is not served by one node";
    }
    return NULL;
}

void cw_words_check(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_WORDS; i++) {
        struct cw_word *word = word_at(world, i);
        CW_HOLDS(world, !word->is_there || cw_servers_of(world, word->cid) <= 1,
                 "%s of a program is served by two nodes", word->history.text);
        if (word->is_there)
            cw_register_check(world, &word->history);
    }
}
