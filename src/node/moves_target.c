/* The target of a migration: takes batches in, out of sight, until it hears that they are its. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"
#include "store/leases.h"

/* Before another attempt to have a large chunk logged for which there is no room. */
#define LOG_AGAIN_NS UINT64_C(1000000)
/* How long a batch may take to be logged: as long as its source waits for it at least. */
#define LOGGED_NS (2 * SH_MOVES_ASK_NS)
#define TOLD_AT_ONCE 1024u

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* --- What is staged ------------------------------------------------------------------------ */

static struct sh_staged *staged_find(struct sh_moves *moves, shoal_nid source, uint64_t sequence)
{
    struct sh_staged *staged = moves->staged;
    while (staged && (staged->source.v != source.v || staged->sequence != sequence))
        staged = staged->next;
    return staged;
}

/* Takes the first `chunks` of a batch out of the store again. */
static void chunks_drop(struct sh_moves *moves, const struct sh_metadata_run *runs, size_t count,
                        size_t chunks)
{
    shoal_nid self = self_of(moves);
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (size_t i = 0; i < count; i++) {
        for (shoal_cid cid = runs[i].first; cid.v <= runs[i].last.v && chunks > 0; cid.v++) {
            enum shoal_err err =
                sh_backup_hand_back(moves->config.backup, &write, sh_holdings_lid(self, cid));
            SH_ASSERT(err == SHOAL_OK); /* nobody else has seen it */
            chunks--;
        }
    }
}

static bool is_arriving(const struct sh_staged *staged)
{
    return staged->arriving.block;
}

/* Whether STAGE is not answered yet. */
static bool is_coming(const struct sh_staged *staged)
{
    return is_arriving(staged) || staged->is_telling || staged->is_logging;
}

/* Whatever of it still comes is not wanted any more. */
static void arriving_end(struct sh_moves *moves, struct sh_staged *staged, enum shoal_err err)
{
    sh_store_arriving_drop(moves->config.store, &staged->arriving);
    sh_msg_reply_error(moves->config.msg, staged->reply_to, SH_MOVES_STAGE, err, NULL);
}

static void list_leave(struct sh_staged **list, const struct sh_staged *staged)
{
    while (*list != staged)
        list = &(*list)->next;
    *list = staged->next;
}

/* What the source of a batch had done, of which nothing comes, may be lost with the source. Results of a committed one count anywhere by now (results_keep). */
static void results_void(struct sh_moves *moves, const struct sh_staged *staged)
{
    for (size_t i = 0; i < staged->results_count; i++)
        sh_outcomes_void(moves->outcomes, &staged->results[i]);
}

/* The backup keeps its write for as long as it is being logged. */
static void staged_free(struct sh_moves *moves, struct sh_staged *staged)
{
    list_leave(&moves->staged, staged);
    results_void(moves, staged);
    staged->results_count = 0;
    if (staged->is_asking)
        (void)sh_msg_cancel(moves->config.msg, &staged->request);
    free(staged->results);
    staged->results = NULL;
    if (!staged->is_logging) {
        free(staged);
        return;
    }
    staged->next = moves->left;
    moves->left = staged;
}

/* The batch is here. */
static void stage_answer(const struct sh_moves *moves, struct sh_reply_to to)
{
    struct sh_out out;
    if (sh_msg_reply(moves->config.msg, to, SH_MOVES_STAGE, SH_MOVES_STAGE_ANSWER_BYTES, &out))
        return;
    sh_put64(&out.w, sh_msg_instance(moves->config.msg));
    sh_msg_end(moves->config.msg, &out);
}

static void locks_drop(struct sh_moves *moves, const struct sh_staged *staged)
{
    for (size_t i = 0; i < staged->count; i++)
        sh_locks_discard(moves->config.locks, staged->runs[i].first, staged->runs[i].last);
}

static void staged_drop(struct sh_moves *moves, struct sh_staged *staged)
{
    locks_drop(moves, staged);
    if (staged->is_telling || staged->is_logging)
        sh_msg_reply_error(moves->config.msg, staged->reply_to, SH_MOVES_STAGE, SHOAL_ECANCELED,
                           NULL);
    if (is_arriving(staged))
        arriving_end(moves, staged, SHOAL_ECANCELED);
    else
        chunks_drop(moves, staged->runs, staged->count, SIZE_MAX);
    staged_free(moves, staged);
}

/* Its chunks are on this node's disk, or will never be. */
static void logged(void *arg, enum shoal_err err)
{
    struct sh_staged *staged = arg;
    struct sh_moves *moves = staged->moves;
    bool is_left = false;
    for (const struct sh_staged *left = moves->left; left; left = left->next)
        is_left |= left == staged;
    staged->is_logging = false;
    if (is_left) {
        list_leave(&moves->left, staged);
        free(staged);
    } else if (err) {
        sh_msg_reply_error(moves->config.msg, staged->reply_to, SH_MOVES_STAGE, err, NULL);
        staged_drop(moves, staged);
    } else {
        staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
        stage_answer(moves, staged->reply_to);
    }
}

/* Answers STAGE once the batch is on this node's disk, if it has a log: the source has had most of it on its own for long,
 * whatever the levels of the writes were, and forgets it with the commit. */
static void stage_log(struct sh_moves *moves, struct sh_staged *staged)
{
    staged->is_logging = true;
    staged->due_ns = sh_now(&moves->config.clock) + LOGGED_NS;
    if (sh_write_wait(moves->config.backup, &staged->write, logged, staged))
        return;
    staged->is_logging = false;
    staged->due_ns -= LOGGED_NS - SH_MOVES_ASK_NS;
    stage_answer(moves, staged->reply_to);
}

/* Records what came of one request on a chunk of the batch. An error was told to nobody, and is worked out anew (backup/completion.h). */
static enum shoal_err result_tell(struct sh_moves *moves, struct sh_staged *staged,
                                  const struct sh_outcome *outcome)
{
    const struct sh_completion completion = {.client = outcome->client,
                                             .number = outcome->number,
                                             .node = outcome->nid.v,
                                             .chunk = outcome->cid,
                                             .value = outcome->value};
    if (outcome->err)
        return SHOAL_OK;
    return sh_backup_tell(moves->config.backup, &staged->write,
                          sh_holdings_lid(self_of(moves), (shoal_cid){outcome->cid}), &completion);
}

/* The chunks are here. The results that came with them go to the log, too, while there is room for it: a client whose answer was lost asks this node, or its next
 * life. */
static void results_tell(struct sh_moves *moves, struct sh_staged *staged)
{
    uint64_t now = sh_now(&moves->config.clock);
    enum shoal_err err = SHOAL_OK;
    size_t told_before = staged->told;
    while (!err && staged->told < staged->results_count &&
           staged->told - told_before < TOLD_AT_ONCE) {
        err = result_tell(moves, staged, &staged->results[staged->told]);
        staged->told += !err;
    }
    staged->is_telling = !err && staged->told < staged->results_count;
    if (err == SHOAL_EAGAIN) {
        staged->full_ns = staged->full_ns && staged->told == told_before ? staged->full_ns : now;
        staged->is_telling = now - staged->full_ns < SH_MOVES_ASK_NS;
    }
    if (staged->is_telling) {
        staged->due_ns = err ? now + LOG_AGAIN_NS : now;
    } else if (err) {
        sh_msg_reply_error(moves->config.msg, staged->reply_to, SH_MOVES_STAGE,
                           err == SHOAL_EAGAIN ? SHOAL_EBUSY : err, NULL);
        staged_drop(moves, staged);
    } else {
        stage_log(moves, staged);
    }
}

static void outcome_keep(struct sh_moves *moves, const struct sh_outcome *outcome)
{
    enum shoal_err err = sh_outcomes_add(moves->outcomes, outcome, sh_now(&moves->config.clock));
    if (err)
        SH_WARN("node", "a request that is repeated may be done twice", SH_ERR(err),
                SH_U64("number", outcome->number));
}

/* They count wherever the chunks go. */
static void results_keep(struct sh_moves *moves, const struct sh_staged *staged)
{
    for (size_t i = 0; i < staged->results_count; i++) {
        struct sh_outcome outcome = staged->results[i];
        outcome.is_with_chunk = false;
        outcome_keep(moves, &outcome);
    }
}

/* The batch is this node's from now on. */
static void staged_commit(struct sh_moves *moves, struct sh_staged *staged)
{
    shoal_nid self = self_of(moves);
    SH_ASSERT(!is_coming(staged));
    moves->changes++;
    bool is_own = shoal_cid_creator(staged->runs[0].first).v == self.v;
    for (size_t i = 0; i < staged->count; i++)
        sh_holdings_set(moves->holdings, staged->runs[i].first, staged->runs[i].last,
                        is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD, SHOAL_NID_NONE);
    results_keep(moves, staged);
    staged_free(moves, staged);
}

/* --- STAGE --------------------------------------------------------------------------------- */

/* What comes behind the chunks. */
struct luggage {
    uint32_t outcomes, locks;
};

/* Reads the head and the runs of a STAGE into a new entry. EPROTO, ENOMEM. */
static enum shoal_err head_read(struct sh_moves *moves, struct sh_msg_in *in,
                                struct sh_staged **staged_out, struct luggage *luggage_out)
{
    struct sh_reader *r = &in->payload;
    struct sh_staged head = {.moves = moves, .source = in->reply_to.nid};
    head.sequence = sh_get64(r);
    head.count = sh_get16(r);
    luggage_out->outcomes = sh_get32(r);
    luggage_out->locks = sh_get32(r);
    if (!sh_reader_ok(r) || head.count == 0 || head.count > SH_METADATA_RUNS_MAX ||
        head.sequence == 0 || head.source.v > SH_PEER_NID_MAX ||
        sh_reader_left(r) < head.count * 16)
        return SHOAL_EPROTO;
    struct sh_staged *staged = malloc(sizeof *staged + head.count * sizeof staged->runs[0]);
    if (!staged)
        return SHOAL_ENOMEM;
    *staged = head;
    sh_write_begin(&staged->write, SH_LEVEL_DURABLE);
    bool is_well = true;
    for (size_t i = 0; i < head.count; i++) {
        struct sh_metadata_run *run = &staged->runs[i];
        run->first.v = sh_get64(r);
        run->last.v = sh_get64(r);
        is_well =
            is_well && run->first.v <= run->last.v &&
            run->last.v - run->first.v < SH_MOVES_CHUNKS_MAX &&
            shoal_cid_creator(run->first).v >= SH_PEER_NID_MIN &&
            shoal_cid_creator(run->first).v == shoal_cid_creator(run->last).v &&
            (i == 0 || (run->first.v > run[-1].last.v &&
                        shoal_cid_creator(run->first).v == shoal_cid_creator(run[-1].first).v));
    }
    if (!is_well) {
        free(staged);
        return SHOAL_EPROTO;
    }
    *staged_out = staged;
    return SHOAL_OK;
}

/* Whether nothing of what a run names is here; it may have gone away to several nodes. */
static bool run_is_elsewhere(const struct sh_moves *moves, const struct sh_metadata_run *run)
{
    bool is_own = shoal_cid_creator(run->first).v == self_of(moves).v;
    shoal_cid at = run->first, last;
    shoal_nid nid;
    for (; at.v <= run->last.v; at.v = last.v + 1) {
        enum sh_holding what = sh_holdings_find(moves->holdings, at, &last, &nid);
        if (what != (is_own ? SH_HOLDING_AWAY : SH_HOLDING_PLAIN))
            return false;
    }
    return true;
}

static bool is_elsewhere(const struct sh_moves *moves, const struct sh_staged *staged)
{
    for (size_t i = 0; i < staged->count; i++) {
        if (!run_is_elsewhere(moves, &staged->runs[i]))
            return false;
    }
    return true;
}

/* The size of the batch's chunk if that comes in pieces, or 0. */
static uint32_t large_size(const struct sh_staged *staged, const struct sh_reader *r)
{
    struct sh_reader ahead = *r;
    uint32_t size = sh_get32(&ahead);
    bool is_single = staged->count == 1 && staged->runs[0].first.v == staged->runs[0].last.v;
    return sh_reader_ok(&ahead) && sh_moves_is_large(is_single, size) ? size : 0;
}

/* Puts the batch's chunks into the store, all or none; or makes room for one that comes in pieces. */
static enum shoal_err chunks_take(struct sh_moves *moves, struct sh_staged *staged,
                                  struct sh_reader *r)
{
    if (large_size(staged, r))
        return sh_store_arriving_begin(moves->config.store,
                                       sh_holdings_lid(self_of(moves), staged->runs[0].first),
                                       sh_get32(r), &staged->arriving);
    shoal_nid self = self_of(moves);
    size_t taken = 0;
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < staged->count && !err; i++) {
        for (shoal_cid cid = staged->runs[i].first; cid.v <= staged->runs[i].last.v; cid.v++) {
            uint32_t size = sh_get32(r);
            const uint8_t *at = sh_reader_take(r, size);
            err = SHOAL_EPROTO;
            if (sh_reader_ok(r))
                err = sh_backup_take_over(moves->config.backup, &staged->write,
                                          sh_holdings_lid(self, cid), sh_bytes_make(at, size));
            if (err)
                break;
            taken++;
        }
    }
    if (err)
        chunks_drop(moves, staged->runs, staged->count, taken);
    return err == SHOAL_EAGAIN ? SHOAL_EBUSY : err; /* the log has no room now */
}

static bool is_in(const struct sh_staged *staged, uint64_t cid)
{
    for (size_t i = 0; i < staged->count; i++) {
        if (cid <= staged->runs[i].last.v)
            return cid >= staged->runs[i].first.v;
    }
    return false;
}

static enum shoal_err outcomes_take(struct sh_moves *moves, struct sh_staged *staged,
                                    struct sh_reader *r, uint32_t count, uint64_t now_ns)
{
    if (sh_outcomes_room(moves->outcomes, now_ns) < count)
        return SHOAL_ELIMIT;
    staged->results = malloc((count ? count : 1) * sizeof *staged->results);
    if (!staged->results)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_outcome outcome;
        if (!sh_outcome_get(r, &outcome) || !sh_reader_ok(r) || !outcome.client ||
            !outcome.number || !outcome.nid.v || !is_in(staged, outcome.cid))
            return SHOAL_EPROTO;
        outcome.is_with_chunk = true;
        enum shoal_err err = sh_outcomes_add(moves->outcomes, &outcome, now_ns);
        if (err)
            return err;
        staged->results[staged->results_count++] = outcome;
    }
    return SHOAL_OK;
}

/* Takes the locks, which end the message: of chunks of the batch only. */
static enum shoal_err locks_take(struct sh_moves *moves, const struct sh_staged *staged,
                                 struct sh_reader *r, uint32_t count)
{
    size_t bytes = (size_t)count * SH_LEASES_LOCK_BYTES;
    if (sh_reader_left(r) != bytes)
        return SHOAL_EPROTO;
    const uint8_t *at = sh_reader_take(r, bytes);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_in(staged, sh_load64(at + (size_t)i * SH_LEASES_LOCK_BYTES)))
            return SHOAL_EPROTO;
    }
    return sh_locks_receive(moves->config.locks, sh_bytes_make(at, bytes), count);
}

/* EFULL when the chunks would take what is kept in reserve. */
static enum shoal_err room_check(const struct sh_moves *moves, uint64_t bytes)
{
    struct sh_store_status status;
    sh_store_status_get(moves->config.store, &status);
    uint64_t most = status.bytes_max - status.reserve_bytes;
    uint64_t free_bytes =
        status.free_bytes + (status.used_bytes < most ? most - status.used_bytes : 0);
    return bytes + bytes / 4 <= free_bytes ? SHOAL_OK : SHOAL_EFULL;
}

/* Whether a zone that is being brought back here claims one of the chunks, or may do so: it would take them for its own, and let go of them. */
static bool is_brought_back(const struct sh_moves *moves, const struct sh_staged *staged)
{
    const struct sh_moves_config *config = &moves->config;
    const struct sh_backup *backup = config->backup;
    if (config->is_filling && config->is_filling(config->arg))
        return true;
    bool may_be = sh_backup_is_on(backup) && !sh_backup_is_home(backup);
    for (size_t i = 0; may_be && i < staged->count; i++) {
        if (sh_backup_is_opening(backup, staged->runs[i].first.v, staged->runs[i].last.v))
            return true;
    }
    return false;
}

static enum shoal_err stage(struct sh_moves *moves, struct sh_staged *staged, struct sh_reader *r,
                            const struct luggage *luggage)
{
    uint64_t now = sh_now(&moves->config.clock);
    if (sh_chunks_creates_refused(moves->config.chunks))
        return SHOAL_ENONODE;
    enum shoal_err err = room_check(moves, (uint64_t)sh_reader_left(r) + large_size(staged, r));
    /* What this node gave away it may not know yet: that passes. */
    if (!err && !is_elsewhere(moves, staged))
        err = sh_moves_is_unclear(moves) || sh_moves_is_finding_out(moves) ? SHOAL_EBUSY
                                                                           : SHOAL_EEXIST;
    if (!err && !sh_holdings_has_room(moves->holdings, staged->count))
        err = SHOAL_ELIMIT;
    /* Whoever brings back a zone of a former life takes over what that claims and is noted as this node's: that would be these chunks as well. */
    bool are_former_over =
        !moves->config.are_former_over || moves->config.are_former_over(moves->config.arg);
    if (!err && (!are_former_over || is_brought_back(moves, staged)))
        err = SHOAL_EBUSY;
    if (!err)
        err = chunks_take(moves, staged, r);
    if (err == SHOAL_EEXIST && sh_moves_is_sweeping(moves))
        err = SHOAL_EBUSY; /* one of a former life is still to be let go of */
    if (err)
        return err;
    err = outcomes_take(moves, staged, r, luggage->outcomes, now);
    if (!err)
        err = locks_take(moves, staged, r, luggage->locks);
    if (err) {
        if (is_arriving(staged))
            sh_store_arriving_drop(moves->config.store, &staged->arriving);
        else
            chunks_drop(moves, staged->runs, staged->count, SIZE_MAX);
        return err;
    }
    moves->highest[staged->source.v] = staged->sequence;
    staged->due_ns = now + SH_MOVES_ASK_NS;
    staged->next = moves->staged;
    moves->staged = staged;
    return SHOAL_OK;
}

/* All pieces are there. They go to the log in pieces, too, while there is room for them, and once no zone that may have the chunk is on its way. */
static void arrived(struct sh_moves *moves, struct sh_staged *staged)
{
    uint64_t now = sh_now(&moves->config.clock);
    struct sh_msg *msg = moves->config.msg;
    enum shoal_err err = SHOAL_EAGAIN;
    if (!is_brought_back(moves, staged))
        err = sh_backup_arriving_end(moves->config.backup, &staged->write, &staged->arriving);
    if (!err) {
        staged->full_ns = 0;
        results_tell(moves, staged);
        return;
    }
    if (err == SHOAL_EAGAIN) {
        staged->full_ns = staged->full_ns ? staged->full_ns : now;
        staged->due_ns = now + LOG_AGAIN_NS;
        if (now - staged->full_ns < SH_MOVES_ASK_NS)
            return;
        err = SHOAL_EBUSY;
        sh_store_arriving_drop(moves->config.store, &staged->arriving);
    }
    sh_msg_reply_error(msg, staged->reply_to, SH_MOVES_STAGE, err, NULL);
    locks_drop(moves, staged);
    staged_free(moves, staged);
}

static bool overlap(const struct sh_staged *one, const struct sh_staged *other)
{
    for (size_t i = 0, k = 0; i < one->count && k < other->count;) {
        if (one->runs[i].last.v < other->runs[k].first.v)
            i++;
        else if (other->runs[k].last.v < one->runs[i].first.v)
            k++;
        else
            return true;
    }
    return false;
}

/* Whether a batch must wait until it is known what came of those before it, since they bring the same
 * chunks or take its place; they are asked about at once. No two that are here have a chunk in
 * common: who owns it tells which of them was committed. */
static bool must_wait(struct sh_moves *moves, const struct sh_staged *batch)
{
    unsigned of_source = 0;
    bool waits = false;
    for (const struct sh_staged *other = moves->staged; other; other = other->next) {
        of_source += other->source.v == batch->source.v;
        waits |= of_source == SH_MOVES_FLIGHT_MAX || overlap(other, batch);
    }
    for (struct sh_staged *other = moves->staged; waits && other; other = other->next) {
        bool is_before = other->source.v == batch->source.v && !is_arriving(other);
        if (is_before || overlap(other, batch))
            other->due_ns = 0;
    }
    return waits;
}

static void on_stage(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    struct sh_staged *staged;
    struct luggage luggage;
    enum shoal_err err = head_read(moves, in, &staged, &luggage);
    if (err) {
        refuse(in, err, NULL);
        return;
    }
    const struct sh_staged *twin = staged_find(moves, staged->source, staged->sequence);
    if (twin) {
        free(staged); /* it came twice */
        if (is_coming(twin))
            refuse(in, SHOAL_EBUSY, "it is still coming");
        else
            stage_answer(moves, in->reply_to);
        return;
    }
    if (staged->sequence <= moves->highest[staged->source.v] || self_of(moves).v == 0) {
        free(staged);
        refuse(in, SHOAL_ECANCELED, "this batch was called off");
        return;
    }
    if (must_wait(moves, staged)) {
        free(staged);
        refuse(in, SHOAL_EBUSY, "what came of the batches before is not known here");
        return;
    }
    err = stage(moves, staged, &in->payload, &luggage);
    if (err) {
        results_void(moves, staged);
        free(staged->results);
        free(staged);
        refuse(in, err, NULL);
        return;
    }
    staged->reply_to = in->reply_to;
    if (!is_arriving(staged))
        results_tell(moves, staged);
}

/* A piece out of its place ends the batch: what is missing never comes. */
static void on_piece(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    uint64_t sequence = sh_get64(&in->payload);
    uint32_t offset = sh_get32(&in->payload);
    struct sh_staged *staged = staged_find(moves, in->reply_to.nid, sequence);
    if (!sh_reader_ok(&in->payload) || !staged || !is_arriving(staged))
        return;
    struct sh_store_arriving *arriving = &staged->arriving;
    uint32_t left = arriving->size - arriving->done;
    uint32_t size = left < SH_STORE_PIECE_BYTES ? left : SH_STORE_PIECE_BYTES;
    if (offset != arriving->done || sh_reader_left(&in->payload) != size) {
        staged_drop(moves, staged);
        return;
    }
    sh_store_arriving_put(moves->config.store, arriving,
                          sh_bytes_make(sh_reader_take(&in->payload, size), size));
    staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
    if (size == left)
        arrived(moves, staged);
}

/* --- What came of it ----------------------------------------------------------------------- */

/* A target that was asked what it has goes by no decision of before: it may have been forgotten. */
static void on_done(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    uint64_t sequence = sh_get64(&in->payload);
    uint8_t is_committed = sh_get8(&in->payload);
    if (!sh_reader_done(&in->payload) || is_committed > 1)
        return;
    struct sh_staged *staged = staged_find(moves, in->reply_to.nid, sequence);
    if (!staged)
        return;
    if (!is_committed || is_coming(staged))
        staged_drop(moves, staged);
    else if (staged->is_reported)
        staged->due_ns = 0;
    else
        staged_commit(moves, staged);
}

static void resolved(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_staged *staged = request->arg;
    struct sh_moves *moves = staged->moves;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    uint8_t is_committed = err ? 0 : sh_get8(payload);
    staged->is_asking = false;
    if (err || !sh_reader_done(payload) || other.v) {
        if (other.v)
            sh_directory_superpeer_set(moves->config.directory,
                                       shoal_cid_creator(staged->runs[0].first), other);
        staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_AGAIN_NS;
        return;
    }
    SH_INFO("node",
            is_committed ? "took over a batch whose source had gone silent: it was committed"
                         : "dropped a batch whose source had gone silent: it was not committed",
            SH_U64("from", staged->source.v));
    if (is_committed)
        staged_commit(moves, staged);
    else
        staged_drop(moves, staged);
}

/* Asks the superpeer what became of the batch: it is called off if nothing did. */
static void resolve(struct sh_moves *moves, struct sh_staged *staged)
{
    struct sh_out out;
    staged->request = (struct sh_request){.done = resolved, .arg = staged};
    shoal_nid superpeer =
        sh_directory_superpeer(moves->config.directory, shoal_cid_creator(staged->runs[0].first));
    staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_AGAIN_NS;
    if (sh_msg_request(moves->config.msg, superpeer, SH_CLUSTER_RESOLVE,
                       sh_moves_batch_bytes(staged->count), &staged->request, &out))
        return;
    staged->is_asking = true;
    sh_moves_batch_put(moves, &out.w, staged->source, self_of(moves),
                       sh_msg_instance(moves->config.msg), staged->sequence, staged->runs,
                       staged->count);
    sh_msg_end(moves->config.msg, &out);
}

unsigned sh_moves_target_step(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_staged *staged = moves->staged;
    while (staged && (staged->is_asking || now_ns < staged->due_ns))
        staged = staged->next;
    if (staged && staged->full_ns && is_arriving(staged))
        arrived(moves, staged);
    else if (staged && staged->is_telling)
        results_tell(moves, staged);
    else if (staged && is_coming(staged))
        staged_drop(moves, staged); /* nobody can have committed what has not come */
    else if (staged)
        resolve(moves, staged);
    return staged != NULL;
}

uint64_t sh_moves_target_due_ns(const struct sh_moves *moves)
{
    uint64_t due_ns = SH_NEVER;
    for (const struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        if (!staged->is_asking && staged->due_ns < due_ns)
            due_ns = staged->due_ns;
    }
    return due_ns;
}

/* --- What others ask ----------------------------------------------------------------------- */

/* Of a request that was sent to an earlier life of this node. EFAILED: that has left no log, so it is forgotten, as the chunks are. EBUSY: other nodes bring
 * its zones back just now. */
static enum shoal_err own_outcome_check(const struct sh_moves *moves)
{
    const struct sh_moves_config *config = &moves->config;
    if (sh_backup_is_home(config->backup))
        return SHOAL_OK;
    if (!sh_backup_is_on(config->backup))
        return SHOAL_EFAILED;
    return !config->are_former_over || config->are_former_over(config->arg) ? SHOAL_OK
                                                                            : SHOAL_EBUSY;
}

/* What is known of a request that another node ran, or a former life. A result that came with a chunk counts where that is here: while the batch is not decided, or where it was aborted, the change may
 * not have come to anything. EBUSY: it is to be asked again. NULL: nothing is known. */
static enum shoal_err outcome_find(const struct sh_moves *moves, uint64_t client, shoal_nid nid,
                                   uint64_t number, const struct sh_outcome **outcome_out)
{
    sh_lid lid;
    *outcome_out = NULL;
    const struct sh_outcome *outcome = sh_outcomes_find(moves->outcomes, client, nid, number);
    if (!outcome)
        return SHOAL_OK;
    shoal_cid about = {outcome->cid};
    if (!outcome->is_with_chunk) {
        *outcome_out = outcome;
        return SHOAL_OK;
    }
    enum shoal_err err = sh_holdings_look(moves->holdings, self_of(moves), about, false, &lid);
    if (err == SHOAL_EBUSY || sh_moves_is_staged(moves, about))
        return SHOAL_EBUSY;
    if (err != SHOAL_ENOTOWNER)
        *outcome_out = outcome;
    return SHOAL_OK;
}

static void on_outcome(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    const struct sh_moves_config *config = &moves->config;
    shoal_cid cid = {sh_get64(&in->payload)};
    uint64_t client = sh_get64(&in->payload);
    shoal_nid nid = {sh_get16(&in->payload)};
    uint64_t number = sh_get64(&in->payload);
    sh_lid lid;
    enum shoal_err err = SHOAL_EPROTO;
    const struct sh_outcome *outcome = NULL;
    bool is_own = nid.v == self_of(moves).v, is_known;
    bool is_create = cid.v == shoal_cid_make(nid, 0).v;
    struct sh_once_result result = {.err = SHOAL_OK};
    if (sh_reader_done(&in->payload))
        err = is_create ? SHOAL_OK
                        : sh_holdings_look(moves->holdings, self_of(moves), cid, true, &lid);
    if (err == SHOAL_ELOST)
        err = SHOAL_OK; /* the chunk may have been removed: the result may be here */
    if (!err && is_own)
        err = own_outcome_check(moves);
    if (!err)
        err = outcome_find(moves, client, nid, number, &outcome);
    if (err) {
        refuse(in, err, NULL);
        return;
    }
    is_known = outcome != NULL;
    if (outcome)
        result = (struct sh_once_result){.err = outcome->err, .value = outcome->value};
    else if (is_own)
        is_known = sh_once_find(sh_chunks_results(config->chunks), client, number, &result);
    /* Who names no chunk asks all nodes, and goes by what none of them knows. */
    if (!is_known && is_create && config->is_opening && config->is_opening(config->arg)) {
        refuse(in, SHOAL_EBUSY, NULL);
        return;
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVES_OUTCOME_ANSWER_BYTES, &out) !=
        SHOAL_OK)
        return;
    sh_put8(&out.w, is_known);
    sh_put16(&out.w, (uint16_t)result.err);
    sh_put64(&out.w, result.value);
    sh_msg_end(in->msg, &out);
}

void sh_moves_completed(struct sh_moves *moves, const struct sh_completion *completion)
{
    const struct sh_outcome outcome = {
        .client = completion->client,
        .number = completion->number,
        .nid = {completion->node},
        .value = completion->is_create ? shoal_cid_local((shoal_cid){completion->chunk})
                                       : completion->value,
        .cid = completion->chunk,
        .is_with_chunk = completion->is_with_chunk};
    outcome_keep(moves, &outcome);
}

void sh_moves_target_register(struct sh_moves *moves)
{
    struct sh_msg *msg = moves->config.msg;
    sh_msg_handler_set(msg, SH_MOVES_STAGE, SH_MSG_INLINE, on_stage, moves);
    sh_msg_handler_set(msg, SH_MOVES_PIECE, SH_MSG_INLINE, on_piece, moves);
    sh_msg_handler_set(msg, SH_MOVES_DONE, SH_MSG_INLINE, on_done, moves);
    sh_msg_handler_set(msg, SH_MOVES_OUTCOME, SH_MSG_INLINE, on_outcome, moves);
}

void sh_moves_target_end(struct sh_moves *moves)
{
    while (moves->staged) {
        if (is_arriving(moves->staged))
            arriving_end(moves, moves->staged, SHOAL_ESTOPPED);
        staged_free(moves, moves->staged);
    }
    while (moves->left) {
        struct sh_staged *staged = moves->left;
        moves->left = staged->next;
        free(staged);
    }
}
