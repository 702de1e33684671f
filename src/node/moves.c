/* The source of a migration: its job, and one batch after the other. */
#include "node/moves.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"

/* A target gets this long for a batch, and the same again for each so many bytes. */
#define STAGE_NS UINT64_C(2000000000)
#define STAGE_BYTES (32u << 20)
#define QUESTION_NS UINT64_C(1000000000)
#define TROUBLES_MAX 16
#define FULL_WORDS ((UINT16_MAX + 1) / 64)

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

static uint64_t now_of(const struct sh_moves *moves)
{
    return sh_now(&moves->config.clock);
}

/* --- A job's state as bytes ---------------------------------------------------------------- */

void sh_move_job_put(struct sh_writer *w, const struct sh_move_job *job)
{
    const uint64_t values[] = {job->chunks,  job->bytes,  job->all_chunks,
                               job->batches, job->locked, job->freeze_ns};
    sh_put64(w, job->number);
    sh_put8(w, job->is_over);
    sh_put16(w, (uint16_t)job->err);
    sh_put16(w, job->target.v);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        sh_put64(w, values[i]);
}

static bool is_known(uint16_t err)
{
    switch (err) {
#define X(name, value, text, hint) case value:
#include "shoal/err.def"
#undef X
        return true;
    default:
        return false;
    }
}

bool sh_move_job_get(struct sh_reader *r, struct sh_move_job *job_out)
{
    struct sh_move_job job = {.number = sh_get64(r)};
    uint8_t is_over = sh_get8(r);
    uint16_t err = sh_get16(r);
    job.target.v = sh_get16(r);
    uint64_t *const fields[] = {&job.chunks,  &job.bytes,  &job.all_chunks,
                                &job.batches, &job.locked, &job.freeze_ns};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] = sh_get64(r);
    if (!sh_reader_done(r) || is_over > 1 || !is_known(err))
        return false;
    job.is_over = is_over;
    job.err = (enum shoal_err)err;
    *job_out = job;
    return true;
}

void sh_moves_batch_put(struct sh_writer *w, shoal_nid from, shoal_nid to, uint64_t incarnation,
                        uint64_t sequence, const struct sh_metadata_run *runs, size_t count)
{
    sh_put16(w, from.v);
    sh_put16(w, to.v);
    sh_put64(w, incarnation);
    sh_put64(w, sequence);
    sh_put16(w, (uint16_t)count);
    for (size_t i = 0; i < count; i++) {
        sh_put64(w, runs[i].first.v);
        sh_put64(w, runs[i].last.v);
    }
}

/* --- The job ------------------------------------------------------------------------------- */

static void job_over(struct sh_moves *moves, enum shoal_err err)
{
    moves->job.is_over = true;
    moves->job.err = err;
    moves->state = SH_MOVE_IDLE;
    if (err != SHOAL_OK && moves->drains)
        sh_chunks_creates_refuse(moves->config.chunks, false);
    SH_INFO("node", "migration over", SH_TEXT("result", shoal_err_text(err)),
            SH_U64("chunks", moves->job.chunks), SH_U64("bytes", moves->job.bytes),
            SH_U64("longest_freeze_ns", moves->job.freeze_ns));
}

static void state_set(struct sh_moves *moves, enum sh_move_state state, uint64_t due_ns)
{
    moves->state = state;
    moves->due_ns = due_ns;
}

/* Looks from the beginning for what is still to be moved. */
static void restart(struct sh_moves *moves)
{
    moves->cursor.v = 0;
    moves->run_first.v = 1;
    moves->run_last.v = 0;
    moves->job.locked = 0;
}

static void pass_begin(struct sh_moves *moves)
{
    restart(moves);
    moves->pass_chunks = 0;
}

/* The pass has gone over all that there is. */
static void pass_over(struct sh_moves *moves)
{
    bool is_again = moves->job.locked > 0 || (moves->drains && moves->pass_chunks > 0);
    if (!is_again) {
        job_over(moves, SHOAL_OK);
        return;
    }
    pass_begin(moves);
    state_set(moves, SH_MOVE_GATHER, now_of(moves) + SH_MOVES_PASS_NS);
}

/* A batch that did not come about, for a reason that another attempt may not meet. */
static void trouble(struct sh_moves *moves, enum shoal_err err)
{
    if (++moves->troubles > TROUBLES_MAX) {
        job_over(moves, err);
        return;
    }
    restart(moves);
    state_set(moves, SH_MOVE_GATHER, now_of(moves) + SH_MOVES_AGAIN_NS * moves->troubles);
}

static bool is_full(const struct sh_moves *moves, shoal_nid nid)
{
    return moves->full[nid.v / 64] >> (nid.v % 64) & 1;
}

/* The batch's target. EFULL: none has room; ENONODE: there is none. */
static enum shoal_err target_pick(struct sh_moves *moves)
{
    struct sh_move_batch *batch = &moves->batch;
    if (moves->target.v) {
        batch->target = moves->target;
        return sh_moves_is_up(moves, moves->target) ? SHOAL_OK : SHOAL_ENONODE;
    }
    size_t count = sh_directory_nodes(moves->config.directory, NULL, 0) + 16;
    struct sh_node *nodes = malloc(count * sizeof *nodes);
    if (!nodes)
        return SHOAL_ENOMEM;
    size_t there = sh_directory_nodes(moves->config.directory, nodes, count);
    enum shoal_err err = SHOAL_ENONODE;
    count = there < count ? there : count;
    const struct sh_node *best = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct sh_node *node = &nodes[i];
        if (node->role != SH_ROLE_PEER || node->state != SH_NODE_UP ||
            node->nid.v == self_of(moves).v)
            continue;
        if (is_full(moves, node->nid)) {
            err = SHOAL_EFULL;
            continue;
        }
        /* The next one behind that of last time, round and round. */
        bool is_behind = node->nid.v > moves->turn.v;
        if (!best || (is_behind && best->nid.v <= moves->turn.v))
            best = node;
    }
    if (best) {
        batch->target = moves->turn = best->nid;
        err = SHOAL_OK;
    }
    free(nodes);
    return err;
}

/* --- One batch ----------------------------------------------------------------------------- */

/* Lets the batch's chunks be used again, as if nothing had been. */
static void thaw(struct sh_moves *moves)
{
    uint64_t stood_ns = now_of(moves) - moves->batch.frozen_ns;
    sh_locks_unpack(moves->config.locks, &moves->batch.locks);
    sh_moves_mark(moves, SH_HOLDING_PLAIN, SH_HOLDING_HELD);
    if (stood_ns > moves->job.freeze_ns)
        moves->job.freeze_ns = stood_ns;
}

/* Tells the target that nothing will come of the batch. If that is lost, the target asks. */
static void call_off(struct sh_moves *moves)
{
    struct sh_out out;
    if (sh_msg_begin(moves->config.msg, moves->batch.target, SH_MOVES_DONE, 9, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, moves->batch.sequence);
    sh_put8(&out.w, 2);
    sh_msg_end(moves->config.msg, &out);
}

/* The target, or the superpeer, does not want the batch. */
static void refused(struct sh_moves *moves, enum shoal_err err)
{
    call_off(moves);
    thaw(moves);
    SH_DEBUG("node", "a batch was not moved", SH_U64("to", moves->batch.target.v), SH_ERR(err));
    bool is_about_room = err == SHOAL_EFULL || err == SHOAL_ETOOBIG;
    if (is_about_room && moves->target.v) {
        job_over(moves, err);
        return;
    }
    if (is_about_room) {
        moves->full[moves->batch.target.v / 64] |= UINT64_C(1) << (moves->batch.target.v % 64);
        moves->troubles = 0;
    }
    trouble(moves, err);
}

static void committed(struct sh_moves *moves)
{
    struct sh_move_batch *batch = &moves->batch;
    sh_moves_mark(moves, SH_HOLDING_AWAY, SH_HOLDING_PLAIN);
    sh_moves_let_go(moves);
    batch->locks.count = 0; /* they are the target's */
    uint64_t now = now_of(moves);
    if (now - batch->frozen_ns > moves->job.freeze_ns)
        moves->job.freeze_ns = now - batch->frozen_ns;
    moves->job.chunks += batch->chunks;
    moves->job.bytes += batch->bytes;
    moves->job.batches++;
    moves->pass_chunks += batch->chunks;
    moves->troubles = 0;
    if (moves->bytes_per_s) {
        uint64_t from = moves->may_send_ns > now ? moves->may_send_ns : now;
        /* A chunk has 2^30 bytes at most, so it fits. */
        moves->may_send_ns = from + batch->bytes * UINT64_C(1000000000) / moves->bytes_per_s;
    }
    state_set(moves, SH_MOVE_TELL, 0);
}

static void next_batch(struct sh_moves *moves)
{
    if (moves->bytes_max && moves->job.bytes >= moves->bytes_max)
        job_over(moves, SHOAL_OK);
    else
        state_set(moves, SH_MOVE_GATHER, moves->bytes_per_s ? moves->may_send_ns : 0);
}

/* --- Answers ------------------------------------------------------------------------------- */

static bool is_lost(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE || err == SHOAL_ETIMEOUT ||
           err == SHOAL_EAGAIN || err == SHOAL_ELIMIT || err == SHOAL_ESTOPPED ||
           err == SHOAL_EFENCED;
}

/* Whether the target has taken note of a commit: only what its handler answers says so. Of any
 * other error the handler may know nothing, and a batch that it has not heard of must not be
 * forgotten: the target has the only copy. */
static bool was_told(enum shoal_err err)
{
    return err == SHOAL_OK || err == SHOAL_EPROTO;
}

static void who_answered(struct sh_moves *moves, enum shoal_err err, struct sh_reader *payload)
{
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    uint64_t incarnation = err ? 0 : sh_get64(payload);
    if (!err && (!sh_reader_done(payload) || (incarnation == 0 && other.v == 0)))
        err = SHOAL_EPROTO;
    if (!err && other.v) {
        sh_directory_superpeer_set(moves->config.directory, moves->asked_creator, other);
        state_set(moves, SH_MOVE_WHO, now_of(moves) + SH_MOVES_AGAIN_NS / 10);
        return;
    }
    if (!err)
        moves->incarnation = incarnation;
    else if (is_lost(err) || err == SHOAL_EBUSY) {
        restart(moves);
        state_set(moves, SH_MOVE_GATHER, now_of(moves) + SH_MOVES_AGAIN_NS);
        return;
    } else {
        job_over(moves, err);
        return;
    }
    restart(moves); /* what was gathered has gone on changing */
    state_set(moves, SH_MOVE_GATHER, 0);
}

static void stage_answered(struct sh_moves *moves, enum shoal_err err)
{
    if (moves->is_canceled && !err)
        err = SHOAL_ECANCELED;
    if (err) {
        refused(moves, err);
        return;
    }
    sh_moves_mark(moves, SH_HOLDING_NOTHING, SH_HOLDING_NOTHING);
    sh_holdings_settle(moves->holdings);
    state_set(moves, SH_MOVE_STAGED, 0);
}

static void commit_answered(struct sh_moves *moves, enum shoal_err err, struct sh_reader *payload)
{
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    if (!err && !sh_reader_done(payload))
        err = SHOAL_ETIMEOUT; /* whatever that was, it is no decision */
    if (!err && other.v) {
        sh_directory_superpeer_set(moves->config.directory, moves->batch.creator, other);
        state_set(moves, SH_MOVE_COMMIT, now_of(moves) + SH_MOVES_AGAIN_NS / 10);
    } else if (!err) {
        committed(moves);
    } else if (is_lost(err) || err == SHOAL_EBUSY || err == SHOAL_EROLE) {
        /* EROLE: in place of one that is away another was asked, which knows nothing of it. */
        state_set(moves, SH_MOVE_COMMIT, now_of(moves) + SH_MOVES_AGAIN_NS);
    } else if (err == SHOAL_EDIFFERS) {
        moves->incarnation = 0;
        state_set(moves, SH_MOVE_DOUBT, 0);
    } else {
        refused(moves, err);
    }
}

static void tell_answered(struct sh_moves *moves, enum shoal_err err)
{
    bool is_told = was_told(err);
    if (!is_told && sh_moves_is_up(moves, moves->batch.target)) {
        state_set(moves, SH_MOVE_TELL, now_of(moves) + SH_MOVES_AGAIN_NS);
        return;
    }
    /* If it is only taken for dead it will ask, and must not hear of another batch before. */
    moves->peers[moves->batch.target.v].untold = is_told ? 0 : moves->batch.sequence;
    next_batch(moves);
}

static void remind_answered(struct sh_moves *moves, enum shoal_err err)
{
    if (!was_told(err)) {
        trouble(moves, err);
        return;
    }
    moves->peers[moves->batch.target.v].untold = 0;
    restart(moves);
    state_set(moves, SH_MOVE_GATHER, 0);
}

/* The target alone can know of a commit that the superpeer has forgotten, and it has not heard of
 * any while it is not asked to forget the batch. */
static void doubt_answered(struct sh_moves *moves, enum shoal_err err)
{
    if (err == SHOAL_EEXIST) {
        committed(moves);
    } else if (err && sh_moves_is_up(moves, moves->batch.target)) {
        state_set(moves, SH_MOVE_DOUBT, now_of(moves) + SH_MOVES_AGAIN_NS);
    } else {
        thaw(moves);
        trouble(moves, SHOAL_ECONNLOST);
    }
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_moves *moves = request->arg;
    moves->is_asking = false;
    switch (moves->state) {
    case SH_MOVE_WHO:
        who_answered(moves, err, payload);
        break;
    case SH_MOVE_STAGE:
        stage_answered(moves, err);
        break;
    case SH_MOVE_COMMIT:
        commit_answered(moves, err, payload);
        break;
    case SH_MOVE_TELL:
        tell_answered(moves, err);
        break;
    case SH_MOVE_REMIND:
        remind_answered(moves, err);
        break;
    case SH_MOVE_DOUBT:
        doubt_answered(moves, err);
        break;
    default:
        SH_ASSERT(!"an answer to nothing");
    }
}

/* --- Questions ----------------------------------------------------------------------------- */

static enum shoal_err ask(struct sh_moves *moves, shoal_nid to, sh_msg_type type, size_t bytes,
                          uint64_t timeout_ns, struct sh_out *out)
{
    moves->request = (struct sh_request){.done = answered, .arg = moves, .timeout_ns = timeout_ns};
    enum shoal_err err = sh_msg_request(moves->config.msg, to, type, bytes, &moves->request, out);
    moves->is_asking = err == SHOAL_OK;
    return err;
}

static void who_ask(struct sh_moves *moves)
{
    struct sh_out out;
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, moves->asked_creator);
    enum shoal_err err = ask(moves, superpeer, SH_CLUSTER_WHO, SH_WHO_BYTES, QUESTION_NS, &out);
    if (err) {
        who_answered(moves, err, NULL);
        return;
    }
    sh_put16(&out.w, moves->asked_creator.v);
    sh_msg_end(moves->config.msg, &out);
}

static void stage_send(struct sh_moves *moves)
{
    struct sh_out out;
    size_t bytes = sh_moves_stage_bytes(moves);
    if (bytes == 0) {
        thaw(moves);
        trouble(moves, SHOAL_EBUSY);
        return;
    }
    enum shoal_err err = ask(moves, moves->batch.target, SH_MOVES_STAGE, bytes,
                             STAGE_NS * (1 + bytes / STAGE_BYTES), &out);
    if (err == SHOAL_EAGAIN && now_of(moves) - moves->batch.frozen_ns < STAGE_NS) {
        moves->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS / 10;
        return;
    }
    if (err) {
        thaw(moves);
        trouble(moves, err);
        return;
    }
    bool is_whole = sh_moves_stage_put(moves, &out.w);
    SH_ASSERT(is_whole); /* no chunk of it can have changed */
    sh_msg_end(moves->config.msg, &out);
}

static void commit_send(struct sh_moves *moves)
{
    const struct sh_move_batch *batch = &moves->batch;
    struct sh_out out;
    /* Not always the one that was asked for its incarnation: that one may be down by now. */
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, batch->creator);
    enum shoal_err err = ask(moves, superpeer, SH_CLUSTER_COMMIT,
                             sh_moves_batch_bytes(batch->count), QUESTION_NS, &out);
    if (err) {
        commit_answered(moves, err, NULL);
        return;
    }
    sh_moves_batch_put(&out.w, self_of(moves), batch->target, moves->incarnation, batch->sequence,
                       batch->runs, batch->count);
    sh_msg_end(moves->config.msg, &out);
}

/* what: 1 that it is committed, 2 that it is not to be. */
static void done_send(struct sh_moves *moves, uint64_t sequence, uint8_t what)
{
    struct sh_out out;
    enum shoal_err err = ask(moves, moves->batch.target, SH_MOVES_DONE, 9, QUESTION_NS, &out);
    if (err && moves->state == SH_MOVE_REMIND) {
        remind_answered(moves, err);
    } else if (err && what == 1) {
        tell_answered(moves, err);
    } else if (err) {
        doubt_answered(moves, err);
    } else {
        sh_put64(&out.w, sequence);
        sh_put8(&out.w, what);
        sh_msg_end(moves->config.msg, &out);
    }
}

/* --- The step ------------------------------------------------------------------------------ */

static bool may_move(const struct sh_moves *moves)
{
    return !moves->config.may_move || moves->config.may_move(moves->config.arg);
}

static void gather(struct sh_moves *moves)
{
    struct sh_move_batch *batch = &moves->batch;
    if (moves->is_canceled || !may_move(moves)) {
        job_over(moves, moves->is_canceled ? SHOAL_ECANCELED : SHOAL_EBUSY);
        return;
    }
    if (!sh_moves_gather(moves)) {
        pass_over(moves);
        return;
    }
    batch->superpeer = sh_directory_superpeer(moves->config.directory, batch->creator);
    if (moves->incarnation == 0 || moves->asked_creator.v != batch->creator.v) {
        moves->incarnation = 0;
        moves->asked_creator = batch->creator;
        state_set(moves, SH_MOVE_WHO, 0);
        return;
    }
    enum shoal_err err = target_pick(moves);
    if (!err && !sh_holdings_has_room(moves->holdings, batch->count))
        err = SHOAL_ELIMIT;
    /* Nobody is up as far as is known here: in a moment somebody may be. */
    if (err == SHOAL_ENONODE) {
        trouble(moves, err);
        return;
    }
    if (err) {
        job_over(moves, err);
        return;
    }
    if (moves->peers[batch->target.v].untold) {
        state_set(moves, SH_MOVE_REMIND, 0);
        return;
    }
    batch->sequence = ++moves->sequence;
    batch->frozen_ns = now_of(moves);
    moves->job.target = batch->target;
    sh_moves_mark(moves, SH_HOLDING_NO_WRITES, SH_HOLDING_NO_WRITES);
    sh_holdings_settle(moves->holdings);
    state_set(moves, SH_MOVE_FREEZE, 0);
}

/* Nobody changes the batch any more, nor its locks. */
static void pack(struct sh_moves *moves)
{
    enum shoal_err err = sh_moves_locks_pack(moves);
    if (err) {
        thaw(moves);
        trouble(moves, err);
        return;
    }
    moves->state = SH_MOVE_STAGE;
}

static void advance(struct sh_moves *moves)
{
    switch (moves->state) {
    case SH_MOVE_COUNT:
        if (!moves->is_canceled && sh_moves_count(moves))
            return;
        pass_begin(moves);
        moves->state = SH_MOVE_GATHER;
        break;
    case SH_MOVE_GATHER:
        gather(moves);
        break;
    case SH_MOVE_WHO:
        who_ask(moves);
        break;
    case SH_MOVE_FREEZE:
        if (sh_holdings_settled(moves->holdings))
            pack(moves);
        break;
    case SH_MOVE_STAGE:
        stage_send(moves);
        break;
    case SH_MOVE_STAGED:
        if (sh_holdings_settled(moves->holdings))
            moves->state = SH_MOVE_COMMIT;
        break;
    case SH_MOVE_COMMIT:
        commit_send(moves);
        break;
    case SH_MOVE_TELL:
        done_send(moves, moves->batch.sequence, 1);
        break;
    case SH_MOVE_REMIND:
        done_send(moves, moves->peers[moves->batch.target.v].untold, 1);
        break;
    case SH_MOVE_DOUBT:
        done_send(moves, moves->batch.sequence, 2);
        break;
    case SH_MOVE_IDLE:
        break;
    }
}

static bool is_ready(const struct sh_moves *moves)
{
    return moves->state != SH_MOVE_IDLE && !moves->is_asking;
}

static unsigned run(void *arg)
{
    struct sh_moves *moves = arg;
    uint64_t now = 0;
    unsigned done = 0;
    if (is_ready(moves) || moves->staged)
        now = now_of(moves);
    bool is_due = now >= moves->due_ns || (moves->is_canceled && moves->state == SH_MOVE_GATHER);
    if (is_ready(moves) && is_due) {
        advance(moves);
        done++;
    }
    return done + sh_moves_target_step(moves, now);
}

static uint64_t due_ns(void *arg)
{
    const struct sh_moves *moves = arg;
    uint64_t due = is_ready(moves) ? moves->due_ns : SH_NEVER;
    uint64_t target = sh_moves_target_due_ns(moves);
    return due < target ? due : target;
}

struct sh_step sh_moves_step(struct sh_moves *moves)
{
    return (struct sh_step){.name = "moves", .run = run, .due_ns = due_ns, .arg = moves};
}

/* --- Requests ------------------------------------------------------------------------------ */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

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

static void on_move(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    struct sh_moves wish;
    uint64_t number;
    if (!move_read(&in->payload, &wish, &number)) {
        refuse(in, SHOAL_EPROTO, "no such migration");
        return;
    }
    if (number == moves->job.number) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return;
    }
    if (moves->state != SH_MOVE_IDLE) {
        refuse(in, SHOAL_EBUSY, "another migration is under way");
        return;
    }
    if (!may_move(moves)) {
        refuse(in, SHOAL_EBUSY, "a graph is loaded, whose index knows its chunks on this node");
        return;
    }
    shoal_nid self = self_of(moves);
    if (self.v == 0) {
        refuse(in, SHOAL_ENOTOWNER, "this node has not joined yet");
        return;
    }
    if (wish.target.v == self.v) {
        refuse(in, SHOAL_EINVAL, "source and target are the same node");
        return;
    }
    if (wish.target.v && !sh_moves_is_up(moves, wish.target)) {
        struct sh_node node;
        bool is_known = sh_directory_node(moves->config.directory, wish.target, &node) == SHOAL_OK;
        refuse(in, is_known ? SHOAL_ENONODE : SHOAL_EAGAIN, "the target is no peer that is up");
        return;
    }
    moves->first = wish.first;
    moves->last = wish.last;
    moves->target = wish.target;
    moves->drains = wish.drains;
    moves->bytes_per_s = wish.bytes_per_s;
    moves->bytes_max = wish.bytes_max;
    moves->is_canceled = false;
    moves->troubles = 0;
    moves->may_send_ns = 0;
    memset(moves->full, 0, FULL_WORDS * sizeof moves->full[0]);
    moves->job = (struct sh_move_job){.number = number};
    if (moves->drains)
        sh_chunks_creates_refuse(moves->config.chunks, true);
    pass_begin(moves);
    state_set(moves, SH_MOVE_COUNT, 0);
    SH_INFO("node", "migration begun", SH_U64("by", in->reply_to.nid.v),
            SH_U64("to", moves->target.v));
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* Reads a job's number; if it is not the last one's, that has been answered. */
static bool job_read(struct sh_moves *moves, struct sh_msg_in *in, bool or_last)
{
    uint64_t number = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, "a job's number is 8 bytes");
        return false;
    }
    if ((number == 0 && or_last) || (number != 0 && number == moves->job.number))
        return true;
    refuse(in, SHOAL_ENONAME, "the node has begun another migration since, or knows of none");
    return false;
}

static void on_job(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    struct sh_out out;
    if (!job_read(moves, in, true) ||
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVE_JOB_BYTES, &out) != SHOAL_OK)
        return;
    sh_move_job_put(&out.w, &moves->job);
    sh_msg_end(in->msg, &out);
}

static void on_cancel(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    if (!job_read(moves, in, false))
        return;
    moves->is_canceled = true;
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* --- Making it ----------------------------------------------------------------------------- */

enum shoal_err sh_moves_create(const struct sh_moves_config *config, struct sh_moves **moves_out)
{
    struct sh_moves *moves = calloc(1, sizeof *moves);
    if (!moves)
        return SHOAL_ENOMEM;
    moves->config = *config;
    moves->holdings = sh_chunks_holdings(config->chunks);
    moves->full = calloc(FULL_WORDS, sizeof moves->full[0]);
    moves->peers = calloc(UINT16_MAX + 1, sizeof moves->peers[0]);
    enum shoal_err err = SHOAL_ENOMEM;
    if (moves->full && moves->peers)
        err = sh_outcomes_create(&moves->outcomes);
    if (err) {
        sh_moves_destroy(moves);
        return err;
    }
    sh_msg_handler_set(config->msg, SH_MOVES_MOVE, SH_MSG_INLINE, on_move, moves);
    sh_msg_handler_set(config->msg, SH_MOVES_JOB, SH_MSG_INLINE, on_job, moves);
    sh_msg_handler_set(config->msg, SH_MOVES_CANCEL, SH_MSG_INLINE, on_cancel, moves);
    sh_moves_target_register(moves);
    *moves_out = moves;
    return SHOAL_OK;
}

void sh_moves_destroy(struct sh_moves *moves)
{
    if (!moves)
        return;
    if (moves->is_asking)
        (void)sh_msg_cancel(moves->config.msg, &moves->request);
    sh_moves_target_end(moves);
    sh_outcomes_destroy(moves->outcomes);
    free(moves->batch.outcomes);
    sh_locks_bag_free(&moves->batch.locks);
    free(moves->full);
    free(moves->peers);
    free(moves);
}
