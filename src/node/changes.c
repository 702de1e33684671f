/* The handlers of what changes one chunk: its bytes or some of them, or its size, or removes it. Most
 * are done at most once (msg/once.h): an addition or a compare-and-put that is sent again must find
 * its own result, not what it has done. All run inline, as sh_once is the transport step's; what
 * writes many bytes does so in pieces (msg/msg.h, store/store.h). */
#include <stdlib.h>

#include "base/assert.h"
#include "base/steptime.h"
#include "node/chunks_int.h"

static bool is_once(sh_msg_type type)
{
    return type != SH_CHUNKS_PUT && type != SH_CHUNKS_REMOVE;
}

static struct sh_bytes rest(struct sh_reader *r)
{
    size_t size = sh_reader_left(r);
    return sh_bytes_make(sh_reader_take(r, size), size);
}

/* Reads what follows the chunk's ID; false when it is malformed. */
static bool change_read(sh_msg_type type, struct sh_reader *r, struct sh_store_rewrite *rewrite)
{
    switch (type) {
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
        SH_ASSERT(type == SH_CHUNKS_FILL_ONCE);
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

static enum shoal_err change_do(struct sh_chunks *chunks, struct sh_write *write, sh_msg_type type,
                                uint64_t cid, struct sh_store_rewrite *rewrite, uint64_t *old_out)
{
    sh_lid lid = rewrite->cid;
    switch (type) {
    case SH_CHUNKS_REMOVE:
    case SH_CHUNKS_REMOVE_ONCE:
        return sh_chunks_remove_one(chunks, write, cid, lid);
    case SH_CHUNKS_FREE_ONCE:
        return sh_store_unreserve(chunks->store, lid); /* a reserved ID is no chunk */
    default:
        rewrite->old_out = old_out;
        return sh_backup_rewrite(chunks->backup, write, rewrite);
    }
}

static void change_answer(struct sh_chunks *chunks, struct sh_msg_in *in, sh_lid lid,
                          const struct sh_once_result *result)
{
    struct sh_out out;
    if (result->err != SHOAL_OK) {
        sh_chunks_refuse_store(chunks, in, lid, result->err);
    } else if (in->type != SH_CHUNKS_ADD_ONCE) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    } else if (sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out) == SHOAL_OK) {
        sh_put64(&out.w, result->value);
        sh_msg_end(in->msg, &out);
    }
}

/* Keeps what came of a first request. A chunk that is pinned was left alone: the client asks again
 * under the same number. */
static void result_keep(struct sh_chunks *chunks, sh_msg_type type, const struct sh_once_id *id,
                        const struct sh_once_result *result)
{
    if (is_once(type) && result->err != SHOAL_EBUSY)
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
    struct sh_write write;
};

/* Whether a request writes so many bytes that it is done in pieces. */
static bool is_large(const struct sh_msg_in *in)
{
    struct sh_reader r = in->payload;
    if (in->type != SH_CHUNKS_RESIZE_ONCE)
        return sh_reader_left(&r) > SH_STORE_PIECE_BYTES;
    (void)sh_reader_take(&r, SH_ONCE_PREFIX_BYTES + 8);
    return sh_get32(&r) > SH_STORE_PIECE_BYTES;
}

/* Begins to write. From now on no migration copies the chunk. False: there is no memory for it. */
static bool job_begin(struct sh_chunks *chunks, struct sh_msg_in *in, const struct sh_once_id *id,
                      uint64_t cid, const struct sh_store_rewrite *rewrite)
{
    struct change_job *job = malloc(sizeof *job);
    struct sh_store_rewriting *rewriting;
    if (!job || sh_store_rewriting_begin(chunks->store, rewrite, &rewriting)) {
        free(job);
        return false;
    }
    *job = (struct change_job){.entered = sh_holdings_enter(&chunks->holdings),
                               .id = *id,
                               .cid = cid,
                               .lid = rewrite->cid,
                               .rewriting = rewriting};
    sh_write_begin(&job->write, SH_LEVEL_ASYNC);
    in->state = job;
    in->goes_on = true;
    return true;
}

/* Does some pieces, and answers after the last. Cut short, nothing has been done. */
static void job_go_on(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct change_job *job = in->state;
    bool is_over = false;
    for (unsigned i = 0; !in->is_ending && !is_over && i < PIECES_MOST; i++) {
        is_over = sh_backup_rewriting_step(chunks->backup, &job->write, job->rewriting);
        if (sh_step_spent())
            break;
    }
    if (!is_over && !in->is_ending)
        return;
    struct sh_once_result result = {.err = sh_store_rewriting_end(job->rewriting),
                                    .about = job->cid};
    if (is_over) {
        result_keep(chunks, in->type, &job->id, &result);
        change_answer(chunks, in, job->lid, &result);
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
    if (!change_read(in->type, &in->payload, rewrite_out))
        return SHOAL_EPROTO;
    enum shoal_err err = sh_chunks_own(chunks, cid, true, &rewrite_out->cid);
    return is_first ? err : SHOAL_OK;
}

/* Does it, or begins to, if it is large and its turn has come. */
static void change_begin(struct sh_chunks *chunks, struct sh_msg_in *in, bool has_turn)
{
    struct sh_once_id id = {0};
    struct sh_once_result result = {.err = SHOAL_OK};
    struct sh_store_rewrite rewrite = {.kind = SH_STORE_PUT};
    struct sh_write write;
    enum sh_once_state state = SH_ONCE_FIRST;
    uint64_t cid;
    if (is_once(in->type))
        state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    bool is_first = state == SH_ONCE_FIRST;
    enum shoal_err err = change_check(chunks, in, is_first, &cid, &rewrite);
    if (err != SHOAL_OK) {
        sh_chunks_refuse(in, err, NULL);
        return;
    }
    if (is_first && in->type == SH_CHUNKS_FILL_ONCE && sh_chunks_creates_refused(chunks)) {
        sh_chunks_refuse(in, SHOAL_ENONODE, SH_CHUNKS_DRAINED_TEXT);
        return;
    }
    if (is_first && has_turn && job_begin(chunks, in, &id, cid, &rewrite))
        return;
    if (is_first) {
        result.about = cid;
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        result.err = change_do(chunks, &write, in->type, cid, &rewrite, &result.value);
        result_keep(chunks, in->type, &id, &result);
    }
    change_answer(chunks, in, rewrite.cid, &result);
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
        in->goes_on = false;
        if (!in->is_ending)
            change_begin(chunks, in, has_turn);
    }
}

void sh_changes_register(struct sh_chunks *chunks)
{
    static const sh_msg_type types[] = {
        SH_CHUNKS_PUT,         SH_CHUNKS_REMOVE,        SH_CHUNKS_PUT_ONCE,
        SH_CHUNKS_REMOVE_ONCE, SH_CHUNKS_PUT_PART_ONCE, SH_CHUNKS_RESIZE_ONCE,
        SH_CHUNKS_PUT_IF_ONCE, SH_CHUNKS_PUT_HASH_ONCE, SH_CHUNKS_ADD_ONCE,
        SH_CHUNKS_FILL_ONCE,   SH_CHUNKS_FREE_ONCE,
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        sh_msg_handler_set(chunks->msg, types[i], SH_MSG_INLINE, on_change, chunks);
        sh_msg_prefetch_set(chunks->msg, types[i],
                            is_once(types[i]) ? sh_chunks_prefetch_once : sh_chunks_prefetch);
    }
}
