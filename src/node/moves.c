/* The source of a migration: its job, and one batch after the other. */
#include "node/moves.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"

/* A target gets this long for a batch, and the same again for each so many bytes. */
#define STAGE_NS UINT64_C(2000000000)
#define STAGE_BYTES (32u << 20)
#define QUESTION_NS UINT64_C(1000000000)
#define TROUBLES_MAX 16
#define LIMITS_MAX 3 /* ELIMIT may also have been said on the way, by a node with too much to do */
/* A drain goes on for as long as what is in its way may pass; so often it asks then. */
#define TROUBLE_NS_MAX UINT64_C(1000000000)
/* A job ends if nothing is left but what can't be moved, for so long. */
#define STUCK_NS UINT64_C(30000000000)

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

static uint64_t now_of(const struct sh_moves *moves)
{
    return sh_now(&moves->config.clock);
}

void sh_moves_batch_put(struct sh_writer *w, shoal_nid from, shoal_nid to, uint64_t sequence,
                        const struct sh_metadata_run *runs, size_t count)
{
    sh_put16(w, from.v);
    sh_put16(w, to.v);
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
    sh_moves_rewind(moves);
    moves->job.locked = 0;
    moves->job.stays.v = 0;
    moves->job.why = SH_MOVE_STAYS_NOTHING;
}

static void pass_begin(struct sh_moves *moves)
{
    restart(moves);
    moves->pass_chunks = 0;
}

void sh_moves_begin(struct sh_moves *moves, const struct sh_moves *wish, uint64_t number)
{
    moves->first = wish->first;
    moves->last = wish->last;
    moves->target = wish->target;
    moves->drains = wish->drains;
    moves->bytes_per_s = wish->bytes_per_s;
    moves->bytes_max = wish->bytes_max;
    moves->is_canceled = false;
    moves->troubles = moves->limits = 0;
    moves->turn_left = 0;
    moves->may_send_ns = 0;
    moves->stuck_ns = 0;
    moves->chunks_max = SH_MOVES_CHUNKS_MAX;
    sh_moves_targets_begin(moves);
    moves->job = (struct sh_move_job){.number = number};
    if (moves->drains)
        sh_chunks_creates_refuse(moves->config.chunks, true);
    pass_begin(moves);
    state_set(moves, SH_MOVE_COUNT, 0);
}

/* What the pass has left, and what a drain may not leave behind when the node is stopped. */
static enum sh_move_stays what_stays(struct sh_moves *moves)
{
    if (moves->job.locked)
        return SH_MOVE_STAYS_LOCKED;
    if (moves->drains && moves->staged) {
        moves->job.stays = moves->staged->runs[0].first;
        return SH_MOVE_STAYS_UNDECIDED;
    }
    return SH_MOVE_STAYS_NOTHING;
}

/* Whether this pass and those before it have moved nothing for so long that nobody can be expected
 * to change that soon. */
static bool is_stuck(struct sh_moves *moves)
{
    uint64_t now = now_of(moves);
    if (!moves->job.why || moves->pass_chunks)
        moves->stuck_ns = 0;
    else if (!moves->stuck_ns)
        moves->stuck_ns = now;
    return moves->stuck_ns && now - moves->stuck_ns >= STUCK_NS;
}

/* The pass has gone over all that there is. */
static void pass_over(struct sh_moves *moves)
{
    moves->job.why = what_stays(moves);
    bool is_again = moves->job.why || (moves->drains && moves->pass_chunks > 0);
    if (!is_again || is_stuck(moves)) {
        job_over(moves, is_again ? SHOAL_EBUSY : SHOAL_OK);
        return;
    }
    if (moves->job.why)
        moves->job.err = SHOAL_EBUSY;
    pass_begin(moves);
    state_set(moves, SH_MOVE_GATHER, now_of(moves) + SH_MOVES_PASS_NS);
}

/* Whether what was in the way goes by: others' load, faults, memory, and results that they keep for
 * a while. */
static bool is_passing(enum shoal_err err)
{
    return err == SHOAL_ELIMIT || err == SHOAL_EFENCED || err == SHOAL_EBUSY ||
           err == SHOAL_EAGAIN || err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST ||
           err == SHOAL_EUNREACHABLE || err == SHOAL_ENOMEM || err == SHOAL_ESTOPPED;
}

/* A batch that did not come about, for a reason that another attempt may not meet. */
static void trouble(struct sh_moves *moves, enum shoal_err err)
{
    uint64_t pause_ns = SH_MOVES_AGAIN_NS * ++moves->troubles;
    moves->turn_left = 0; /* the next one may take it */
    bool goes_on = moves->drains && is_passing(err);
    if (moves->troubles > TROUBLES_MAX && !goes_on) {
        job_over(moves, err);
        return;
    }
    moves->job.err = err;
    if (moves->troubles > TROUBLES_MAX && (moves->troubles & (moves->troubles - 1)) == 0)
        SH_WARN("node", "a drain does not get on, and goes on trying",
                SH_U64("to", moves->batch.target.v), SH_U64("attempts", moves->troubles),
                SH_ERR(err));
    restart(moves);
    state_set(moves, SH_MOVE_GATHER,
              now_of(moves) + (pause_ns < TROUBLE_NS_MAX ? pause_ns : TROUBLE_NS_MAX));
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

/* Tells the target what came of the batch. If that is lost, the target asks the superpeer. */
static enum shoal_err done_tell(struct sh_moves *moves, bool is_committed)
{
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(moves->config.msg, moves->batch.target, SH_MOVES_DONE,
                                      SH_MOVES_DONE_BYTES, &out);
    if (err)
        return err;
    sh_put64(&out.w, moves->batch.sequence);
    sh_put8(&out.w, is_committed);
    sh_msg_end(moves->config.msg, &out);
    return SHOAL_OK;
}

/* Nothing will come of the batch. */
static void give_up(struct sh_moves *moves, enum shoal_err err)
{
    SH_DEBUG("node", "a batch was not moved", SH_U64("to", moves->batch.target.v), SH_ERR(err));
    (void)done_tell(moves, false);
    thaw(moves);
}

/* The target takes no more in this job: it has no room, or is being drained itself. */
static void target_over(struct sh_moves *moves, enum shoal_err err)
{
    if (moves->target.v) {
        job_over(moves, err);
        return;
    }
    sh_moves_target_full(moves, moves->batch.target, err);
    moves->troubles = 0;
    trouble(moves, err);
}

/* The superpeer has decided against the batch, or the target can't take it now. */
static void refused(struct sh_moves *moves, enum shoal_err err)
{
    give_up(moves, err);
    /* Nobody has canceled anything: what was said first tells why, or the target has called the
     * batch off as it did not hear of this node. */
    if (err == SHOAL_ECANCELED && !moves->is_canceled)
        err = moves->batch.said ? moves->batch.said : SHOAL_EBUSY;
    /* No other target helps: what has moved is cut into too many ranges. */
    if (err == SHOAL_ELIMIT && moves->batch.said == SHOAL_ELIMIT && ++moves->limits == LIMITS_MAX) {
        job_over(moves, err);
        return;
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
    moves->turn_left -= batch->chunks < moves->turn_left ? batch->chunks : moves->turn_left;
    moves->troubles = moves->limits = 0;
    moves->job.err = SHOAL_OK;
    moves->chunks_max =
        moves->chunks_max * 2 < SH_MOVES_CHUNKS_MAX ? moves->chunks_max * 2 : SH_MOVES_CHUNKS_MAX;
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

/* Whether a batch will never be committed: only what the metadata has decided says so. After any
 * other error, of this process, of a network, or of a superpeer that could not answer, the batch
 * may be committed: it is asked for again, and the source serves nothing of it before it knows. */
static bool is_refusal(enum shoal_err err)
{
    return err == SHOAL_ECANCELED || err == SHOAL_ENOTOWNER;
}

static void stage_answered(struct sh_moves *moves, enum shoal_err err)
{
    if (moves->is_canceled && !err)
        err = SHOAL_ECANCELED;
    if (err == SHOAL_EFULL || err == SHOAL_ETOOBIG || err == SHOAL_ENONODE) {
        give_up(moves, err);
        target_over(moves, err);
        return;
    }
    if (err) {
        refused(moves, err);
        return;
    }
    sh_moves_mark(moves, SH_HOLDING_NOTHING, SH_HOLDING_NOTHING);
    sh_holdings_settle(moves->holdings);
    state_set(moves, SH_MOVE_STAGED, 0);
}

/* Nobody knows yet what became of the batch. */
static void commit_again(struct sh_moves *moves, enum shoal_err err)
{
    moves->job.err = err;
    state_set(moves, SH_MOVE_COMMIT, now_of(moves) + SH_MOVES_AGAIN_NS);
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
    } else if (is_refusal(err)) {
        refused(moves, err);
    } else {
        /* ELIMIT and ENONODE are refusals as well, or tell of something on the way: whoever asks
         * again is told. EROLE: another was asked than the one that is away, which knows nothing of
         * it. */
        if (err == SHOAL_ELIMIT || err == SHOAL_ENONODE)
            moves->batch.said = err;
        commit_again(moves, err);
    }
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_moves *moves = request->arg;
    SH_ASSERT(moves->state == SH_MOVE_STAGE || moves->state == SH_MOVE_COMMIT);
    moves->is_asking = false;
    if (moves->state == SH_MOVE_STAGE)
        stage_answered(moves, err);
    else
        commit_answered(moves, err, payload);
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

static void stage_send(struct sh_moves *moves)
{
    struct sh_out out;
    size_t bytes;
    enum shoal_err err = sh_moves_stage_bytes(moves, &bytes);
    if (err == SHOAL_ETOOBIG) { /* fewer chunks have fewer results, and bytes */
        thaw(moves);
        moves->chunks_max = (moves->batch.chunks + 1) / 2;
        restart(moves);
        state_set(moves, SH_MOVE_GATHER, 0);
        return;
    }
    if (err) {
        thaw(moves);
        trouble(moves, err);
        return;
    }
    err = ask(moves, moves->batch.target, SH_MOVES_STAGE, bytes,
              STAGE_NS * (1 + moves->batch.bytes / STAGE_BYTES), &out);
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

/* Whether the target waits for bytes of the batch. */
static bool has_pieces(const struct sh_moves *moves)
{
    return moves->state == SH_MOVE_STAGE && moves->is_asking && sh_moves_piece_next(moves) > 0;
}

/* Where a piece can't be sent, the answer to STAGE says why. */
static void piece_send(struct sh_moves *moves)
{
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(moves->config.msg, moves->batch.target, SH_MOVES_PIECE,
                                      SH_MOVES_PIECE_BYTES + sh_moves_piece_next(moves), &out);
    if (err) {
        moves->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS / 10;
        return;
    }
    sh_moves_piece_put(moves, &out.w);
    sh_msg_end(moves->config.msg, &out);
}

static void commit_send(struct sh_moves *moves)
{
    const struct sh_move_batch *batch = &moves->batch;
    struct sh_out out;
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, batch->creator);
    enum shoal_err err = ask(moves, superpeer, SH_CLUSTER_COMMIT,
                             sh_moves_batch_bytes(batch->count), QUESTION_NS, &out);
    if (err) {
        commit_again(moves, err); /* nobody has been asked */
        return;
    }
    sh_moves_batch_put(&out.w, self_of(moves), batch->target, batch->sequence, batch->runs,
                       batch->count);
    sh_msg_end(moves->config.msg, &out);
}

/* The target's messages are read in order, so it hears of this batch before it is sent another. */
static void tell(struct sh_moves *moves)
{
    if (done_tell(moves, true) == SHOAL_EAGAIN && sh_moves_is_up(moves, moves->batch.target))
        moves->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS / 10;
    else
        next_batch(moves);
}

/* --- The step ------------------------------------------------------------------------------ */

bool sh_moves_may(const struct sh_moves *moves)
{
    return !moves->config.may_move || moves->config.may_move(moves->config.arg);
}

/* Above all that a former process with this ID has used: that one joined at an earlier epoch. */
static uint64_t sequence_next(struct sh_moves *moves)
{
    uint64_t base = sh_directory_epoch(moves->config.directory) << 32;
    moves->sequence = moves->sequence < base ? base : moves->sequence + 1;
    return moves->sequence;
}

static void gather(struct sh_moves *moves)
{
    struct sh_move_batch *batch = &moves->batch;
    if (moves->is_canceled || !sh_moves_may(moves)) {
        moves->job.stays.v = 0;
        moves->job.why = SH_MOVE_STAYS_NOTHING;
        job_over(moves, moves->is_canceled ? SHOAL_ECANCELED : SHOAL_EBUSY);
        return;
    }
    if (!sh_moves_gather(moves)) {
        pass_over(moves);
        return;
    }
    enum shoal_err err = sh_moves_target_pick(moves);
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
    batch->sequence = sequence_next(moves);
    batch->said = SHOAL_OK;
    batch->pieces_sent = 0;
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
    case SH_MOVE_FREEZE:
        if (sh_holdings_settled(moves->holdings))
            pack(moves);
        break;
    case SH_MOVE_STAGE:
        if (moves->is_asking)
            piece_send(moves);
        else
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
        tell(moves);
        break;
    case SH_MOVE_IDLE:
        break;
    }
}

static bool is_ready(const struct sh_moves *moves)
{
    return moves->state != SH_MOVE_IDLE && (!moves->is_asking || has_pieces(moves));
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

/* --- Making it ----------------------------------------------------------------------------- */

enum shoal_err sh_moves_create(const struct sh_moves_config *config, struct sh_moves **moves_out)
{
    struct sh_moves *moves = calloc(1, sizeof *moves);
    if (!moves)
        return SHOAL_ENOMEM;
    moves->config = *config;
    moves->holdings = sh_chunks_holdings(config->chunks);
    moves->full = calloc(SH_MOVES_FULL_WORDS, sizeof moves->full[0]);
    moves->highest = calloc(UINT16_MAX + 1, sizeof moves->highest[0]);
    enum shoal_err err = SHOAL_ENOMEM;
    if (moves->full && moves->highest)
        err = sh_outcomes_create(&moves->outcomes);
    if (err) {
        sh_moves_destroy(moves);
        return err;
    }
    sh_moves_requests_register(moves);
    sh_moves_target_register(moves);
    sh_moves_holds_register(moves);
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
    free(moves->highest);
    free(moves);
}

bool sh_moves_has_staged(const struct sh_moves *moves)
{
    return moves->staged;
}
