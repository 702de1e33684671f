/* The source of a migration: its job, and a few batches at a time. */
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
#define BUSY_MAX                                                                                   \
    48 /* a target is busy while it reads zones that it brings back, or others bring back those of its former life: 12 s */
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

void sh_moves_batch_put(const struct sh_moves *moves, struct sh_writer *w, shoal_nid from,
                        shoal_nid to, uint64_t to_life, uint64_t sequence,
                        const struct sh_metadata_run *runs, size_t count)
{
    sh_put64(w, sh_msg_instance(moves->config.msg));
    sh_put16(w, from.v);
    sh_put16(w, to.v);
    sh_put64(w, to_life);
    sh_put64(w, sequence);
    sh_put16(w, (uint16_t)count);
    for (size_t i = 0; i < count; i++) {
        sh_put64(w, runs[i].first.v);
        sh_put64(w, runs[i].last.v);
    }
}

/* --- The job ------------------------------------------------------------------------------- */

bool sh_moves_is_under_way(const struct sh_moves *moves)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        if (moves->batches[i].state)
            return true;
    }
    return false;
}

bool sh_moves_is_unclear(const struct sh_moves *moves)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        if (moves->batches[i].state == SH_MOVE_ASKED)
            return true;
    }
    return false;
}

static void job_over(struct sh_moves *moves)
{
    enum shoal_err err = moves->end_err;
    moves->job.is_over = true;
    moves->job.err = err;
    moves->work = SH_MOVE_IDLE;
    if (err != SHOAL_OK && moves->drains)
        sh_chunks_creates_refuse(moves->config.chunks, false);
    SH_INFO("node", "migration over", SH_TEXT("result", shoal_err_text(err)),
            SH_U64("chunks", moves->job.chunks), SH_U64("bytes", moves->job.bytes),
            SH_U64("longest_freeze_ns", moves->job.freeze_ns));
}

/* Begins nothing any more. What was said first counts. */
static void job_end(struct sh_moves *moves, enum shoal_err err)
{
    SH_ASSERT(moves->work != SH_MOVE_IDLE);
    if (moves->work != SH_MOVE_END)
        moves->end_err = err;
    moves->work = SH_MOVE_END;
    if (!sh_moves_is_under_way(moves))
        job_over(moves);
}

/* The batch's place is free for another. */
static void batch_over(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    batch->state = SH_MOVE_NONE;
    moves->waits = false;
    if (moves->work == SH_MOVE_END && !sh_moves_is_under_way(moves))
        job_over(moves);
}

static void state_set(struct sh_move_batch *batch, enum sh_move_state state, uint64_t due_ns)
{
    SH_ASSERT(batch->state && (state > batch->state || state == SH_MOVE_ASKED));
    batch->state = state;
    batch->due_ns = due_ns;
}

static void work_set(struct sh_moves *moves, enum sh_move_work work, uint64_t due_ns)
{
    moves->work = work;
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
    moves->stuck_ns = 0;
    moves->trouble_sequence = 0;
    moves->waits = false;
    moves->chunks_max = SH_MOVES_CHUNKS_MAX;
    sh_moves_targets_begin(moves);
    moves->job = (struct sh_move_job){.number = number};
    if (moves->drains)
        sh_chunks_creates_refuse(moves->config.chunks, true);
    pass_begin(moves);
    work_set(moves, SH_MOVE_COUNT, 0);
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
        job_end(moves, is_again ? SHOAL_EBUSY : SHOAL_OK);
        return;
    }
    if (moves->job.why)
        moves->job.err = SHOAL_EBUSY;
    pass_begin(moves);
    work_set(moves, SH_MOVE_GATHER, now_of(moves) + SH_MOVES_PASS_NS);
}

/* Whether what was in the way goes by: others' load, faults, memory, and results that they keep for
 * a while. */
static bool is_passing(enum shoal_err err)
{
    return err == SHOAL_ELIMIT || err == SHOAL_EFENCED || err == SHOAL_EBUSY ||
           err == SHOAL_EAGAIN || err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST ||
           err == SHOAL_EUNREACHABLE || err == SHOAL_ENOMEM || err == SHOAL_ESTOPPED;
}

/* Batches that were begun before a trouble was known fail for the same, and count once. */
static bool is_known_trouble(const struct sh_move_batch *batch)
{
    return batch->sequence <= batch->moves->trouble_sequence;
}

/* A batch did not come about, for a reason that another attempt may not meet. */
static void trouble(struct sh_moves *moves, const struct sh_move_batch *batch, enum shoal_err err)
{
    moves->turn_left = 0; /* the next one may take it */
    restart(moves);
    if (moves->work == SH_MOVE_END || is_known_trouble(batch))
        return;
    moves->trouble_sequence = moves->sequence;
    uint64_t pause_ns = SH_MOVES_AGAIN_NS * ++moves->troubles;
    bool goes_on = moves->drains && is_passing(err);
    unsigned most = err == SHOAL_EBUSY ? BUSY_MAX : TROUBLES_MAX;
    if (moves->troubles > most && !goes_on) {
        job_end(moves, err);
        return;
    }
    moves->job.err = err;
    if (moves->troubles > TROUBLES_MAX && (moves->troubles & (moves->troubles - 1)) == 0)
        SH_WARN("node", "drain is stuck; retrying", SH_U64("to", batch->target.v),
                SH_U64("attempts", moves->troubles), SH_ERR(err));
    work_set(moves, SH_MOVE_GATHER,
             now_of(moves) + (pause_ns < TROUBLE_NS_MAX ? pause_ns : TROUBLE_NS_MAX));
}

/* --- One batch ----------------------------------------------------------------------------- */

/* Lets the batch's chunks be used again, as if nothing had been. */
static void thaw(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    uint64_t stood_ns = now_of(moves) - batch->frozen_ns;
    sh_locks_unpack(moves->config.locks, &batch->locks);
    sh_moves_mark(batch, SH_HOLDING_PLAIN, SH_HOLDING_HELD);
    if (stood_ns > moves->job.freeze_ns)
        moves->job.freeze_ns = stood_ns;
}

/* Nothing comes of the batch, of which the target has not heard. */
static void not_sent(struct sh_move_batch *batch, enum shoal_err err)
{
    thaw(batch);
    trouble(batch->moves, batch, err);
    batch_over(batch);
}

/* Tells the target what came of the batch. If that is lost, the target asks the superpeer. */
static enum shoal_err done_tell(const struct sh_move_batch *batch, bool is_committed)
{
    struct sh_out out;
    struct sh_msg *msg = batch->moves->config.msg;
    enum shoal_err err = sh_msg_begin(msg, batch->target, SH_MOVES_DONE, SH_MOVES_DONE_BYTES, &out);
    if (err)
        return err;
    sh_put64(&out.w, batch->sequence);
    sh_put8(&out.w, is_committed);
    sh_msg_end(msg, &out);
    return SHOAL_OK;
}

/* Nothing will come of the batch. */
static void give_up(struct sh_move_batch *batch, enum shoal_err err)
{
    SH_DEBUG("node", "a batch was not moved", SH_U64("to", batch->target.v), SH_ERR(err));
    (void)done_tell(batch, false);
    thaw(batch);
}

/* The target takes no more in this job: it has no room, or is being drained itself. */
static void target_over(struct sh_move_batch *batch, enum shoal_err err)
{
    struct sh_moves *moves = batch->moves;
    give_up(batch, err);
    if (moves->target.v) {
        job_end(moves, err);
    } else {
        sh_moves_target_full(moves, batch->target, err);
        moves->troubles = 0;
        trouble(moves, batch, err);
    }
    batch_over(batch);
}

/* The superpeer has decided against the batch, or the target can't take it now. */
static void refused(struct sh_move_batch *batch, enum shoal_err err)
{
    struct sh_moves *moves = batch->moves;
    give_up(batch, err);
    /* Nobody has canceled anything: what was said first tells why, or the target has called the
     * batch off as it did not hear of this node. */
    if (err == SHOAL_ECANCELED && !moves->is_canceled)
        err = batch->said ? batch->said : SHOAL_EBUSY;
    /* No other target helps: what has moved is cut into too many ranges. */
    bool is_limit = err == SHOAL_ELIMIT && batch->said == SHOAL_ELIMIT && !is_known_trouble(batch);
    if (is_limit && ++moves->limits == LIMITS_MAX)
        job_end(moves, err);
    else
        trouble(moves, batch, err);
    batch_over(batch);
}

static void committed(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    sh_moves_mark(batch, SH_HOLDING_AWAY, SH_HOLDING_PLAIN);
    batch->let_go = 0;
    (void)sh_moves_let_go(batch); /* what is left, before it is told */
    moves->changes++;
    batch->locks.count = 0; /* they are the target's */
    uint64_t now = now_of(moves);
    if (now - batch->frozen_ns > moves->job.freeze_ns)
        moves->job.freeze_ns = now - batch->frozen_ns;
    moves->job.chunks += batch->chunks;
    moves->job.bytes += batch->bytes;
    moves->job.batches++;
    moves->pass_chunks += batch->chunks;
    moves->troubles = moves->limits = 0;
    moves->job.err = SHOAL_OK;
    moves->chunks_max =
        moves->chunks_max * 2 < SH_MOVES_CHUNKS_MAX ? moves->chunks_max * 2 : SH_MOVES_CHUNKS_MAX;
    state_set(batch, SH_MOVE_TELL, 0);
}

/* --- Answers ------------------------------------------------------------------------------- */

/* Whether a batch will never be committed: only what the metadata has decided says so. After any
 * other error, of this process, of a network, or of a superpeer that could not answer, the batch
 * may be committed: it is asked for again, and the source serves nothing of it before it knows. */
static bool is_refusal(enum shoal_err err)
{
    return err == SHOAL_ECANCELED || err == SHOAL_ENOTOWNER;
}

static void stage_answered(struct sh_move_batch *batch, enum shoal_err err,
                           struct sh_reader *payload)
{
    batch->target_life = err ? 0 : sh_get64(payload);
    if (!err && !sh_reader_done(payload))
        err = SHOAL_EPROTO;
    if (batch->moves->is_canceled && !err)
        err = SHOAL_ECANCELED;
    if (err == SHOAL_EFULL || err == SHOAL_ETOOBIG || err == SHOAL_ENONODE)
        target_over(batch, err);
    else if (err)
        refused(batch, err);
    else
        state_set(batch, SH_MOVE_THERE, 0);
}

/* Nobody knows yet what became of the batch. */
static void commit_again(struct sh_move_batch *batch, enum shoal_err err)
{
    batch->moves->job.err = err;
    state_set(batch, SH_MOVE_ASKED, now_of(batch->moves) + SH_MOVES_AGAIN_NS);
}

static void commit_answered(struct sh_move_batch *batch, enum shoal_err err,
                            struct sh_reader *payload)
{
    struct sh_moves *moves = batch->moves;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    if (!err && !sh_reader_done(payload))
        err = SHOAL_ETIMEOUT; /* whatever that was, it is no decision */
    if (!err && other.v) {
        sh_directory_superpeer_set(moves->config.directory, batch->creator, other);
        state_set(batch, SH_MOVE_ASKED, now_of(moves) + SH_MOVES_AGAIN_NS / 10);
    } else if (!err) {
        committed(batch);
    } else if (is_refusal(err)) {
        refused(batch, err);
    } else {
        /* ELIMIT and ENONODE are refusals as well, or tell of something on the way: whoever asks
         * again is told. EROLE: another was asked than the one that is away, which knows nothing of
         * it. */
        if (err == SHOAL_ELIMIT || err == SHOAL_ENONODE)
            batch->said = err;
        commit_again(batch, err);
    }
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_move_batch *batch = request->arg;
    SH_ASSERT(batch->state == SH_MOVE_SENT || batch->state == SH_MOVE_ASKED);
    batch->is_asking = false;
    if (batch->state == SH_MOVE_SENT)
        stage_answered(batch, err, payload);
    else
        commit_answered(batch, err, payload);
}

/* --- Questions ----------------------------------------------------------------------------- */

static enum shoal_err ask(struct sh_move_batch *batch, shoal_nid to, sh_msg_type type, size_t bytes,
                          uint64_t timeout_ns, struct sh_out *out)
{
    batch->request = (struct sh_request){.done = answered, .arg = batch, .timeout_ns = timeout_ns};
    enum shoal_err err =
        sh_msg_request(batch->moves->config.msg, to, type, bytes, &batch->request, out);
    batch->is_asking = err == SHOAL_OK;
    return err;
}

static void stage_send(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    struct sh_out out;
    size_t bytes;
    enum shoal_err err = sh_moves_stage_bytes(batch, &bytes);
    if (err == SHOAL_ETOOBIG) { /* fewer chunks have fewer results, and bytes */
        thaw(batch);
        moves->chunks_max = (batch->chunks + 1) / 2;
        restart(moves);
        batch_over(batch);
        return;
    }
    if (!err)
        err = ask(batch, batch->target, SH_MOVES_STAGE, bytes,
                  STAGE_NS * (1 + batch->bytes / STAGE_BYTES), &out);
    if (err == SHOAL_EAGAIN && now_of(moves) - batch->frozen_ns < STAGE_NS) {
        batch->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS / 10;
        return;
    }
    if (err) {
        not_sent(batch, err);
        return;
    }
    bool is_whole = sh_moves_stage_put(batch, &out.w);
    SH_ASSERT(is_whole); /* no chunk of it can have changed */
    sh_msg_end(moves->config.msg, &out);
    state_set(batch, SH_MOVE_SENT, 0);
}

/* Where a piece can't be sent, the answer to STAGE says why. */
static void piece_send(struct sh_move_batch *batch)
{
    struct sh_out out;
    struct sh_msg *msg = batch->moves->config.msg;
    enum shoal_err err = sh_msg_begin(msg, batch->target, SH_MOVES_PIECE,
                                      SH_MOVES_PIECE_BYTES + sh_moves_piece_next(batch), &out);
    if (err) {
        batch->due_ns = now_of(batch->moves) + SH_MOVES_AGAIN_NS / 10;
        return;
    }
    sh_moves_piece_put(batch, &out.w);
    sh_msg_end(msg, &out);
}

static void commit_send(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    struct sh_out out;
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, batch->creator);
    enum shoal_err err = ask(batch, superpeer, SH_CLUSTER_COMMIT,
                             sh_moves_batch_bytes(batch->count), QUESTION_NS, &out);
    if (err) {
        commit_again(batch, err); /* nobody has been asked */
        return;
    }
    state_set(batch, SH_MOVE_ASKED, 0);
    sh_moves_batch_put(moves, &out.w, self_of(moves), batch->target, batch->target_life,
                       batch->sequence, batch->runs, batch->count);
    sh_msg_end(moves->config.msg, &out);
}

/* The target's messages are read in order, so it hears of this batch before it is sent another. */
static void tell(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    if (!sh_moves_let_go(batch) ||
        (done_tell(batch, true) == SHOAL_EAGAIN && sh_moves_is_up(moves, batch->target)))
        batch->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS / 10;
    else
        batch_over(batch);
}

/* --- The step ------------------------------------------------------------------------------ */

bool sh_moves_may(const struct sh_moves *moves)
{
    return !moves->config.may_move || moves->config.may_move(moves->config.arg);
}

uint64_t sh_moves_sequence_base(uint64_t epoch)
{
    return ((epoch & UINT32_MAX) + (epoch >> 32 << 20)) << 32;
}

uint64_t sh_moves_sequence_next(struct sh_moves *moves)
{
    uint64_t base = sh_moves_sequence_base(sh_directory_epoch(moves->config.directory));
    moves->sequence = moves->sequence < base ? base : moves->sequence + 1;
    return moves->sequence;
}

/* Where the next batch may be; NULL: nothing may be begun before another one is over. A large chunk
 * is under way alone, or with those that were begun before. */
static struct sh_move_batch *place_find(struct sh_moves *moves)
{
    struct sh_move_batch *free_one = NULL;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        struct sh_move_batch *batch = &moves->batches[i];
        if (!batch->state)
            free_one = batch;
        else if (sh_moves_is_large(batch->chunks, batch->bytes))
            return NULL;
        else
            bytes += batch->bytes;
    }
    bool is_enough = moves->bytes_max && moves->job.bytes + bytes >= moves->bytes_max;
    bool has_room = bytes + SH_MOVES_BYTES_MAX <= SH_MOVES_FLIGHT_BYTES_MAX;
    return is_enough || !has_room ? NULL : free_one;
}

static void freeze(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    batch->said = SHOAL_OK;
    batch->pieces_sent = 0;
    batch->frozen_ns = now_of(moves);
    moves->job.target = batch->target;
    moves->turn_left -= batch->chunks < moves->turn_left ? batch->chunks : moves->turn_left;
    /* A chunk has 2^30 bytes at most, so it fits. */
    if (moves->bytes_per_s)
        moves->due_ns = batch->frozen_ns + batch->bytes * UINT64_C(1000000000) / moves->bytes_per_s;
    sh_moves_mark(batch, SH_HOLDING_NO_WRITES, SH_HOLDING_NO_WRITES);
    batch->wait = sh_holdings_settle(moves->holdings);
    batch->state = SH_MOVE_FREEZE;
    batch->due_ns = 0;
}

static void batch_begin(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    enum shoal_err err = sh_moves_target_pick(moves, batch);
    batch->sequence = sh_moves_sequence_next(moves);
    if (!err && !sh_holdings_has_room(moves->holdings, batch->count))
        err = SHOAL_ELIMIT;
    if (!err)
        freeze(batch);
    else if (err == SHOAL_ENONODE)
        trouble(moves, batch, err); /* as far as is known here: in a moment somebody may be up */
    else
        job_end(moves, err);
}

static void gather(struct sh_moves *moves)
{
    if (moves->is_canceled || !sh_moves_may(moves)) {
        moves->job.stays.v = 0;
        moves->job.why = SH_MOVE_STAYS_NOTHING;
        job_end(moves, moves->is_canceled ? SHOAL_ECANCELED : SHOAL_EBUSY);
        return;
    }
    if (moves->bytes_max && moves->job.bytes >= moves->bytes_max) {
        job_end(moves, SHOAL_OK);
        return;
    }
    if (moves->config.must_wait && moves->config.must_wait(moves->config.arg)) {
        moves->due_ns = now_of(moves) + SH_MOVES_AGAIN_NS;
        return;
    }
    struct sh_move_batch *batch = place_find(moves);
    if (batch && sh_moves_gather(moves, batch)) {
        batch_begin(batch);
        return;
    }
    moves->waits = sh_moves_is_under_way(moves);
    if (!moves->waits)
        pass_over(moves);
}

/* Nobody changes the batch any more, nor its locks. */
static void pack(struct sh_move_batch *batch)
{
    enum shoal_err err = sh_moves_locks_pack(batch);
    if (err)
        not_sent(batch, err);
    else
        state_set(batch, SH_MOVE_STAGE, 0);
}

static void reads_refuse(struct sh_move_batch *batch)
{
    sh_moves_mark(batch, SH_HOLDING_NOTHING, SH_HOLDING_NOTHING);
    batch->wait = sh_holdings_settle(batch->moves->holdings);
    state_set(batch, SH_MOVE_STAGED, 0);
}

/* Whether each batch that was begun before this one is at least as far as that. */
static bool is_in_order(const struct sh_move_batch *batch, enum sh_move_state state)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        const struct sh_move_batch *other = &batch->moves->batches[i];
        if (other->state && other->sequence < batch->sequence && other->state < state)
            return false;
    }
    return true;
}

/* Whether the source may ask for a batch: for each that it began before, it is waiting for the
 * superpeer's answer, or has it. A superpeer that hears of this one first refuses those. */
static bool may_ask(const struct sh_move_batch *batch)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        const struct sh_move_batch *other = &batch->moves->batches[i];
        bool is_before = other->sequence < batch->sequence;
        if (is_before && other->state == SH_MOVE_ASKED && !other->is_asking)
            return false;
    }
    return !batch->is_asking && is_in_order(batch, SH_MOVE_ASKED);
}

/* Whether there is something to do for a batch, but for its time. */
static bool is_ready(const struct sh_move_batch *batch)
{
    switch (batch->state) {
    case SH_MOVE_NONE:
        return false;
    case SH_MOVE_STAGE:
        return is_in_order(batch, SH_MOVE_SENT);
    case SH_MOVE_SENT:
        return sh_moves_piece_next(batch) > 0;
    case SH_MOVE_THERE:
        return is_in_order(batch, SH_MOVE_STAGED);
    case SH_MOVE_COMMIT:
    case SH_MOVE_ASKED:
        return may_ask(batch);
    default:
        return true;
    }
}

static void advance(struct sh_move_batch *batch)
{
    struct sh_holdings *holdings = batch->moves->holdings;
    switch (batch->state) {
    case SH_MOVE_FREEZE:
        if (sh_holdings_settled(holdings, batch->wait))
            pack(batch);
        break;
    case SH_MOVE_STAGE:
        stage_send(batch);
        break;
    case SH_MOVE_SENT:
        piece_send(batch);
        break;
    case SH_MOVE_THERE:
        reads_refuse(batch);
        break;
    case SH_MOVE_STAGED:
        if (sh_holdings_settled(holdings, batch->wait))
            state_set(batch, SH_MOVE_COMMIT, 0);
        break;
    case SH_MOVE_COMMIT:
    case SH_MOVE_ASKED:
        commit_send(batch);
        break;
    case SH_MOVE_TELL:
        tell(batch);
        break;
    case SH_MOVE_NONE:
        SH_ASSERT(!"a batch");
    }
}

static void work_do(struct sh_moves *moves)
{
    if (moves->work == SH_MOVE_GATHER) {
        gather(moves);
    } else if (moves->is_canceled || !sh_moves_count(moves)) {
        pass_begin(moves);
        moves->work = SH_MOVE_GATHER;
    }
}

static bool has_work(const struct sh_moves *moves)
{
    return moves->work == SH_MOVE_COUNT || (moves->work == SH_MOVE_GATHER && !moves->waits);
}

/* Does one thing, for a batch or beside them. */
static unsigned source_step(struct sh_moves *moves, uint64_t now_ns)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        moves->looked = (moves->looked + 1) % SH_MOVES_FLIGHT_MAX;
        struct sh_move_batch *batch = &moves->batches[moves->looked];
        if (is_ready(batch) && now_ns >= batch->due_ns) {
            advance(batch);
            return 1;
        }
    }
    if (!has_work(moves) || (now_ns < moves->due_ns && !moves->is_canceled))
        return 0;
    work_do(moves);
    return 1;
}

static unsigned run(void *arg)
{
    struct sh_moves *moves = arg;
    bool has_time = moves->work || moves->staged || moves->former.base || moves->vacant.count;
    uint64_t now = has_time ? now_of(moves) : 0;
    return source_step(moves, now) + sh_moves_target_step(moves, now) +
           sh_moves_former_step(moves, now) + sh_moves_vacant_step(moves, now);
}

static uint64_t due_ns(void *arg)
{
    const struct sh_moves *moves = arg;
    uint64_t due = has_work(moves) ? moves->due_ns : SH_NEVER;
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        const struct sh_move_batch *batch = &moves->batches[i];
        if (is_ready(batch) && batch->due_ns < due)
            due = batch->due_ns;
    }
    uint64_t target = sh_moves_target_due_ns(moves), former = sh_moves_former_due_ns(moves);
    uint64_t vacant = sh_moves_vacant_due_ns(moves);
    due = due < target ? due : target;
    due = due < vacant ? due : vacant;
    return due < former ? due : former;
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
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++)
        moves->batches[i].moves = moves;
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
    sh_moves_vacant_register(moves);
    *moves_out = moves;
    return SHOAL_OK;
}

void sh_moves_destroy(struct sh_moves *moves)
{
    if (!moves)
        return;
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        struct sh_move_batch *batch = &moves->batches[i];
        if (batch->is_asking)
            (void)sh_msg_cancel(moves->config.msg, &batch->request);
        free(batch->outcomes);
        sh_locks_bag_free(&batch->locks);
    }
    sh_moves_target_end(moves);
    sh_moves_former_end(moves);
    sh_moves_vacant_stop(moves);
    sh_outcomes_destroy(moves->outcomes);
    free(moves->full);
    free(moves->highest);
    free(moves);
}

bool sh_moves_has_staged_of(const struct sh_moves *moves, shoal_nid source)
{
    const struct sh_staged *staged = moves->staged;
    while (staged && staged->source.v != source.v)
        staged = staged->next;
    return staged;
}

bool sh_moves_has_staged(const struct sh_moves *moves)
{
    return moves->staged;
}
