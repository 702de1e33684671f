/* What others ask of a source: to begin a job, how far it is, to end it. */
#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "node/job.h"
#include "node/moves_int.h"

/* --- Requests ------------------------------------------------------------------------------ */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* Reads what a MOVE wishes into what a job has of it. */
static bool move_read(struct sh_reader *r, struct sh_moves *wish, uint64_t *number_out)
{
    *number_out = sh_get64(r);
    wish->first.v = sh_get64(r);
    wish->last.v = sh_get64(r);
    wish->target.v = sh_get16(r);
    uint8_t flags = sh_get8(r);
    wish->drains = flags & SH_MOVES_DRAIN;
    wish->bytes_per_s = sh_get64(r);
    wish->bytes_max = sh_get64(r);
    return sh_reader_done(r) && *number_out != 0 && !(flags & ~SH_MOVES_DRAIN) &&
           wish->first.v <= wish->last.v;
}

/* Whether the job is the node's own, which it ends where somebody asks for one. */
static bool is_own(const struct sh_moves *moves)
{
    return !moves->job.number;
}

/* Why a job may not begin; OK: it may, once the node's own is over. *text_out: for the asker. */
static enum shoal_err move_check(struct sh_moves *moves, const struct sh_moves *wish,
                                 const char **text_out)
{
    shoal_nid self = sh_msg_nid(moves->config.msg);
    struct sh_node node;
    *text_out = "another migration is under way";
    if (moves->work != SH_MOVE_IDLE && !is_own(moves))
        return SHOAL_EBUSY;
    *text_out = "a graph is being loaded or removed on this node";
    if (!sh_moves_may(moves))
        return SHOAL_EBUSY;
    *text_out = "a dump is being loaded into this node";
    if (wish->drains && moves->config.may_drain && !moves->config.may_drain(moves->config.arg))
        return SHOAL_EBUSY;
    *text_out = "this node has not joined yet";
    if (self.v == 0)
        return SHOAL_ENOTOWNER;
    *text_out = "source and target are the same node";
    if (wish->target.v == self.v)
        return SHOAL_EINVAL;
    *text_out = "the target is no peer that is up";
    if (!wish->target.v || sh_moves_is_up(moves, wish->target))
        return SHOAL_OK;
    bool is_known = sh_directory_node(moves->config.directory, wish->target, &node) == SHOAL_OK;
    return is_known ? SHOAL_ENONODE : SHOAL_EAGAIN;
}

static void on_move(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    struct sh_moves wish;
    uint64_t number;
    const char *text;
    if (!move_read(&in->payload, &wish, &number)) {
        refuse(in, SHOAL_EPROTO, "no such migration");
        return;
    }
    if (number == moves->job.number || number == moves->asked.number) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return;
    }
    enum shoal_err err = move_check(moves, &wish, &text);
    if (!err && moves->work != SH_MOVE_IDLE) {
        moves->is_canceled = true;
        text = "this node makes room for a zone, which it ends";
        err = SHOAL_EAGAIN;
    }
    if (err) {
        refuse(in, err, text);
        return;
    }
    moves->asked = (struct sh_move_job){.number = 0};
    sh_moves_begin(moves, &wish, number);
    SH_INFO("node", "migration begun", SH_U64("by", in->reply_to.nid.v),
            SH_U64("to", moves->target.v));
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_job(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    const struct sh_move_job *job = moves->asked.number ? &moves->asked : &moves->job;
    struct sh_out out;
    if (!sh_job_is_meant(in, job->number, true) ||
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVE_JOB_BYTES, &out) != SHOAL_OK)
        return;
    sh_move_job_put(&out.w, job);
    sh_msg_end(in->msg, &out);
}

static void on_cancel(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    bool is_over = moves->asked.number;
    if (!sh_job_is_meant(in, is_over ? moves->asked.number : moves->job.number, false))
        return;
    moves->is_canceled |= !is_over;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* A drained node may have chunks again; a drain that is under way ends, as if it were canceled. */
static void on_undrain(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    if (sh_reader_left(&in->payload)) {
        refuse(in, SHOAL_EPROTO, "there is nothing to say beside it");
        return;
    }
    if (moves->work != SH_MOVE_IDLE && moves->drains)
        moves->is_canceled = true;
    sh_chunks_creates_refuse(moves->config.chunks, false);
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* --- The node's own ------------------------------------------------------------------------ */

enum shoal_err sh_moves_own_begin(struct sh_moves *moves, shoal_nid target, uint64_t bytes)
{
    const struct sh_moves wish = {.last = {UINT64_MAX}, .target = target, .bytes_max = bytes};
    const char *text;
    SH_ASSERT(target.v && bytes);
    if (moves->work != SH_MOVE_IDLE)
        return SHOAL_EBUSY;
    enum shoal_err err = move_check(moves, &wish, &text);
    if (err)
        return err;
    /* Who asked for the last one may not have heard yet that it is over. */
    if (moves->job.number)
        moves->asked = moves->job;
    sh_moves_begin(moves, &wish, 0);
    SH_INFO("node", "chunks are moved to make room", SH_U64("to", target.v),
            SH_U64("bytes", bytes));
    return SHOAL_OK;
}

bool sh_moves_own_is_over(const struct sh_moves *moves, uint64_t *chunks_out, uint64_t *bytes_out)
{
    bool is_own = !moves->job.number;
    if (is_own && moves->work != SH_MOVE_IDLE)
        return false;
    *chunks_out = is_own ? moves->job.chunks : 0;
    *bytes_out = is_own ? moves->job.bytes : 0;
    return true;
}

void sh_moves_requests_register(struct sh_moves *moves)
{
    struct sh_msg *msg = moves->config.msg;
    sh_msg_handler_set(msg, SH_MOVES_MOVE, SH_MSG_INLINE, on_move, moves);
    sh_msg_handler_set(msg, SH_MOVES_JOB, SH_MSG_INLINE, on_job, moves);
    sh_msg_handler_set(msg, SH_MOVES_CANCEL, SH_MSG_INLINE, on_cancel, moves);
    sh_msg_handler_set(msg, SH_MOVES_UNDRAIN, SH_MSG_INLINE, on_undrain, moves);
}
