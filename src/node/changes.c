/* The handlers of what changes one chunk: its bytes or some of them, or its size, or removes it. Most
 * are done at most once (msg/once.h): an addition or a compare-and-put that is sent again must find
 * its own result, not what it has done. All run inline, as sh_once is the transport step's; what
 * writes many bytes does so in pieces (msg/msg.h, store/store.h). */
#include <stdlib.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "node/chunks_int.h"

static bool is_once(sh_msg_type form)
{
    return form != SH_CHUNKS_PUT && form != SH_CHUNKS_REMOVE;
}

static struct sh_bytes rest(struct sh_reader *r)
{
    size_t size = sh_reader_left(r);
    return sh_bytes_make(sh_reader_take(r, size), size);
}

/* Reads what follows the chunk's ID; false when it is malformed. */
static bool change_read(sh_msg_type form, struct sh_reader *r, struct sh_store_rewrite *rewrite)
{
    switch (form) {
    case SH_CHUNKS_PUT:
    case SH_CHUNKS_PUT_ONCE:
        rewrite->kind = SH_STORE_PUT;
        break;
    case SH_CHUNKS_PUT_PART_ONCE:
        rewrite->kind = SH_STORE_PUT_PART;
        rewrite->offset = sh_get32(r);
        break;
    case SH_CHUNKS_RESIZE_ONCE:
        rewrite->kind = SH_STORE_RESIZE;
        rewrite->size = sh_get32(r);
        return sh_reader_done(r);
    case SH_CHUNKS_PUT_IF_ONCE:
        rewrite->kind = SH_STORE_PUT_IF;
        rewrite->expected.size = sh_get32(r);
        rewrite->expected.at = sh_reader_take(r, rewrite->expected.size);
        break;
    case SH_CHUNKS_PUT_HASH_ONCE:
        rewrite->kind = SH_STORE_PUT_IF_HASH;
        rewrite->hash = sh_get64(r);
        break;
    case SH_CHUNKS_ADD_ONCE:
        rewrite->kind = SH_STORE_ADD;
        rewrite->offset = sh_get32(r);
        rewrite->width = sh_get8(r);
        rewrite->delta = sh_get64(r);
        return sh_reader_done(r) && (rewrite->width == 4 || rewrite->width == 8);
    case SH_CHUNKS_REMOVE:
    case SH_CHUNKS_REMOVE_ONCE:
    case SH_CHUNKS_FREE_ONCE:
        return sh_reader_done(r);
    default:
        SH_ASSERT(form == SH_CHUNKS_FILL_ONCE);
        rewrite->kind = SH_STORE_FILL;
        break;
    }
    rewrite->data = rest(r);
    return sh_reader_done(r);
}

enum shoal_err sh_chunks_remove_one(struct sh_chunks *chunks, struct sh_write *write, uint64_t cid,
                                    sh_lid lid)
{
    if (chunks->remove)
        return chunks->remove(chunks->remove_arg, write, (shoal_cid){cid}, lid);
    return sh_backup_remove(chunks->backup, write, lid);
}

static enum shoal_err change_do(struct sh_chunks *chunks, struct sh_write *write, sh_msg_type form,
                                uint64_t cid, struct sh_store_rewrite *rewrite, uint64_t *old_out)
{
    sh_lid lid = rewrite->cid;
    switch (form) {
    case SH_CHUNKS_REMOVE:
    case SH_CHUNKS_REMOVE_ONCE:
        return sh_chunks_change_err(sh_chunks_remove_one(chunks, write, cid, lid));
    case SH_CHUNKS_FREE_ONCE:
        return sh_store_unreserve(chunks->store, lid); /* a reserved ID is no chunk */
    default:
        rewrite->old_out = old_out;
        return sh_chunks_change_err(sh_backup_rewrite(chunks->backup, write, rewrite));
    }
}

/* Whether an answer tells of the chunk more than that it was there and is changed. */
static bool tells_more(sh_msg_type form, enum shoal_err err)
{
    return err || form == SH_CHUNKS_ADD_ONCE || form == SH_CHUNKS_PUT_IF_ONCE ||
           form == SH_CHUNKS_PUT_HASH_ONCE;
}

/* Answers what came of it. was_first: just now; else its first request may still wait for the same. */
static void change_answer(struct sh_chunks *chunks, const struct sh_msg_in *in,
                          struct sh_held *held, sh_lid lid, const struct sh_once_result *result,
                          bool was_first)
{
    struct sh_answer answer;
    sh_msg_type form = sh_chunks_form(in->type);
    if ((!was_first || tells_more(form, result->err)) &&
        !sh_held_saw(chunks->helds, in, lid, &held))
        return;
    if (result->err != SHOAL_OK) {
        sh_chunks_refuse_store(chunks, in, held, lid, result->err);
    } else if (form != SH_CHUNKS_ADD_ONCE) {
        sh_answer_ok(in, held);
    } else if (sh_answer_begin(in, held, 8, &answer)) {
        sh_put64(answer.w, result->value);
        sh_answer_end(in, &answer);
    }
}

/* Keeps what came of a first request. A chunk that is pinned was left alone, as was one for whose change there
 * was no room: the client asks again under the same number. */
static void result_keep(struct sh_chunks *chunks, sh_msg_type form, const struct sh_once_id *id,
                        const struct sh_once_result *result)
{
    if (is_once(form) && result->err != SHOAL_EBUSY)
        sh_once_end(chunks->once, id, result);
}

/* --- In pieces ----------------------------------------------------------------------------- */

/* Pieces of a large chunk that are written in one step where no step is timed. */
#define PIECES_MOST 16

/* A large chunk that is being written. */
struct change_job {
    unsigned entered;
    struct sh_once_id id;
    uint64_t cid;
    sh_lid lid;
    struct sh_store_rewriting *rewriting;
    struct sh_held *held;
    struct sh_write_request request;
    uint64_t old;
    uint64_t refused_ns; /* since when there has been no room; 0: there is */
};

/* Whether a request writes so many bytes that it is done in pieces. */
static bool is_large(const struct sh_msg_in *in)
{
    struct sh_reader r = in->payload;
    if (sh_chunks_form(in->type) != SH_CHUNKS_RESIZE_ONCE)
        return sh_reader_left(&r) > SH_STORE_PIECE_BYTES;
    (void)sh_reader_take(&r, SH_ONCE_PREFIX_BYTES + 8);
    return sh_get32(&r) > SH_STORE_PIECE_BYTES;
}

static void request_set(struct sh_held *held, const struct sh_once_id *id,
                        const struct sh_store_rewrite *rewrite, struct sh_write_request *request)
{
    bool is_add = rewrite->kind == SH_STORE_ADD;
    sh_chunks_request_set(held, id, is_add ? SH_WRITE_SUMMAND : SH_WRITE_NO_RESULT, request);
    request->offset = rewrite->offset;
    request->width = rewrite->width;
    request->delta = rewrite->delta;
}

/* Begins to write, and takes the held answer. From now on no migration copies the chunk. False: there is no memory for it. */
static bool job_begin(struct sh_chunks *chunks, struct sh_msg_in *in, struct sh_held *held,
                      const struct sh_once_id *id, uint64_t cid, struct sh_store_rewrite *rewrite)
{
    struct change_job *job = malloc(sizeof *job);
    struct sh_store_rewriting *rewriting;
    if (job)
        rewrite->old_out = &job->old;
    if (!job || sh_store_rewriting_begin(chunks->store, rewrite, &rewriting)) {
        free(job);
        return false;
    }
    *job = (struct change_job){.entered = sh_holdings_enter(&chunks->holdings),
                               .id = *id,
                               .cid = cid,
                               .lid = rewrite->cid,
                               .rewriting = rewriting,
                               .held = held};
    request_set(held, id, rewrite, &job->request);
    in->state = job;
    in->goes_on = true;
    return true;
}

/* Does some pieces; false: it is to go on later. */
static bool job_some(struct sh_chunks *chunks, struct change_job *job)
{
    struct sh_write *write = sh_held_write(job->held);
    for (unsigned i = 0; i < PIECES_MOST; i++) {
        if (sh_backup_rewriting_step(chunks->backup, write, job->rewriting))
            return true;
        if (write && sh_write_was_refused(write))
            return sh_chunks_gives_up(chunks, &job->refused_ns);
        job->refused_ns = 0;
        if (sh_step_spent())
            break;
    }
    return false;
}

/* Does some pieces, and answers after the last. Cut short, nothing has been done; so it is where there is no room for long. */
static void job_go_on(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct change_job *job = in->state;
    if (!in->is_ending && !job_some(chunks, job))
        return;
    struct sh_once_result result = {.err = sh_store_rewriting_end(job->rewriting),
                                    .about = job->cid};
    if (result.err == SHOAL_ECANCELED)
        result.err = SHOAL_EBUSY;
    result.value = result.err ? 0 : job->old;
    if (!in->is_ending) {
        result_keep(chunks, sh_chunks_form(in->type), &job->id, &result);
        change_answer(chunks, in, job->held, job->lid, &result, true);
    }
    sh_holdings_leave(&chunks->holdings, job->entered);
    free(job);
    in->state = NULL;
    in->goes_on = false;
}

/* --- The request --------------------------------------------------------------------------- */

/* Whether it may be done here, and what it is. What was done here stays done, wherever the chunk is
 * by now. */
static enum shoal_err change_check(struct sh_chunks *chunks, struct sh_msg_in *in, bool is_first,
                                   uint64_t *cid_out, struct sh_store_rewrite *rewrite_out)
{
    uint64_t cid = sh_get64(&in->payload);
    *cid_out = cid;
    if (!change_read(sh_chunks_form(in->type), &in->payload, rewrite_out))
        return SHOAL_EPROTO;
    enum shoal_err err = sh_chunks_own(chunks, cid, true, &rewrite_out->cid);
    if (err == SHOAL_ELOST && sh_chunks_form(in->type) == SH_CHUNKS_FILL_ONCE)
        err = SHOAL_OK; /* it is brought back from a dump */
    return is_first ? err : SHOAL_OK;
}

/* Does it for the first time, or begins to, if it is large and its turn has come. A small change of a chunk that turns out to be so large that it is logged
 * in pieces (ELIMIT) waits for its turn, and is read once more then. */
static void change_first(struct sh_chunks *chunks, struct sh_msg_in *in,
                         const struct sh_once_id *id, uint64_t cid,
                         struct sh_store_rewrite *rewrite, bool has_turn)
{
    sh_msg_type form = sh_chunks_form(in->type);
    struct sh_once_result result = {.about = cid};
    struct sh_held *held;
    if (form == SH_CHUNKS_FILL_ONCE && sh_chunks_creates_refused(chunks)) {
        sh_chunks_refuse(in, SHOAL_ENONODE, SH_CHUNKS_DRAINED_TEXT);
        return;
    }
    if (!sh_held_begin(chunks->helds, in, &held))
        return;
    if (has_turn && job_begin(chunks, in, held, id, cid, rewrite))
        return;
    struct sh_write_request request;
    request_set(held, id, rewrite, &request);
    result.err = change_do(chunks, sh_held_write(held), form, cid, rewrite, &result.value);
    if (result.err == SHOAL_ELIMIT && held && !has_turn) {
        sh_held_drop(held);
        sh_step_long();
        in->goes_on = true;
        return;
    }
    if (result.err == SHOAL_ELIMIT && held)
        result.err = SHOAL_ENOMEM; /* for what it takes to do it in pieces */
    result_keep(chunks, form, id, &result);
    change_answer(chunks, in, held, rewrite->cid, &result, true);
}

static void change_begin(struct sh_chunks *chunks, struct sh_msg_in *in, bool has_turn)
{
    struct sh_once_id id = {0};
    struct sh_once_result result = {.err = SHOAL_OK};
    struct sh_store_rewrite rewrite = {.kind = SH_STORE_PUT};
    enum sh_once_state state = SH_ONCE_FIRST;
    uint64_t cid;
    if (is_once(sh_chunks_form(in->type)))
        state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    bool is_first = state == SH_ONCE_FIRST;
    enum shoal_err err = change_check(chunks, in, is_first, &cid, &rewrite);
    if (err != SHOAL_OK)
        sh_chunks_refuse(in, err, NULL);
    else if (is_first)
        change_first(chunks, in, &id, cid, &rewrite, has_turn);
    else
        change_answer(chunks, in, NULL, sh_holdings_lid(sh_msg_nid(chunks->msg), (shoal_cid){cid}),
                      &result, false);
}

/* A large one waits for its turn before anything is looked at, so that of two with the same number
 * the second finds the first's result. */
static void on_change(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    bool has_turn = in->goes_on;
    if (in->state) {
        job_go_on(chunks, in);
    } else if (!has_turn && is_large(in)) {
        sh_step_long();
        in->goes_on = true;
    } else {
        struct sh_reader before = in->payload;
        in->goes_on = false;
        if (!in->is_ending)
            change_begin(chunks, in, has_turn);
        if (in->goes_on && !in->state)
            in->payload = before;
    }
}

void sh_changes_register(struct sh_chunks *chunks)
{
    static const sh_msg_type forms[] = {
        SH_CHUNKS_PUT,         SH_CHUNKS_REMOVE,        SH_CHUNKS_PUT_ONCE,
        SH_CHUNKS_REMOVE_ONCE, SH_CHUNKS_PUT_PART_ONCE, SH_CHUNKS_RESIZE_ONCE,
        SH_CHUNKS_PUT_IF_ONCE, SH_CHUNKS_PUT_HASH_ONCE, SH_CHUNKS_ADD_ONCE,
        SH_CHUNKS_FILL_ONCE,   SH_CHUNKS_FREE_ONCE,
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        sh_chunks_changes_set(chunks, forms[i], SH_MSG_INLINE, on_change,
                              is_once(forms[i]) ? sh_chunks_prefetch_once : sh_chunks_prefetch);
}
