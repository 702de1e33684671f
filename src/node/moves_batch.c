/* What a batch is made of, and its message. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/chunk_index.h"
#include "node/moves_int.h"
#include "store/leases.h"

/* The first chunk ID of another creator, in the store's order. */
#define OTHERS_FROM (UINT64_C(1) << SHOAL_LOCAL_ID_BITS)

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

/* Where the job's chunks of other creators begin. */
static sh_lid others_first(const struct sh_moves *moves)
{
    bool is_own = shoal_cid_creator(moves->first).v == self_of(moves).v;
    return (sh_lid){is_own || moves->first.v < OTHERS_FROM ? OTHERS_FROM : moves->first.v};
}

void sh_moves_rewind(struct sh_moves *moves)
{
    shoal_nid self = self_of(moves);
    bool has_own =
        shoal_cid_creator(moves->first).v <= self.v && shoal_cid_creator(moves->last).v >= self.v;
    bool begins_own = shoal_cid_creator(moves->first).v == self.v;
    moves->cursor = others_first(moves);
    if (has_own)
        moves->cursor.v = begins_own ? shoal_cid_local(moves->first) : 0;
    moves->run_first.v = 1;
    moves->run_last.v = 0;
}

/* The store's next chunks at the cursor. Some may be gone since it was asked. */
static bool store_run(struct sh_moves *moves, sh_lid *first_out, sh_lid *last_out)
{
    if (moves->cursor.v < moves->run_first.v || moves->cursor.v > moves->run_last.v) {
        if (!sh_store_range(moves->config.store, moves->cursor, &moves->run_first,
                            &moves->run_last))
            return false;
        *first_out = moves->run_first;
    } else {
        *first_out = moves->cursor;
    }
    *last_out = moves->run_last;
    return true;
}

/* The next chunks at the cursor that are in the job's range and served here, at most to the end of
 * one run in the store; moves the cursor to their first. */
static bool run_next(struct sh_moves *moves, struct sh_metadata_run *run_out)
{
    shoal_nid self = self_of(moves);
    sh_lid first, last;
    while (store_run(moves, &first, &last)) {
        shoal_cid begin = sh_holdings_cid(self, first), end = sh_holdings_cid(self, last), until;
        bool is_own = shoal_cid_creator(begin).v == self.v;
        if (begin.v > moves->last.v) {
            if (!is_own)
                return false; /* others come in rising order */
            moves->cursor = others_first(moves);
            continue;
        }
        shoal_cid from = begin.v < moves->first.v ? moves->first : begin;
        if (shoal_cid_local(from) == 0) /* the names of a dump, which the node alone has */
            from.v++;
        shoal_nid nid;
        enum sh_holding what = sh_holdings_find(moves->holdings, from, &until, &nid);
        end = end.v < until.v ? end : until;
        end = end.v < moves->last.v ? end : moves->last;
        if (from.v > end.v || what != (is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD)) {
            shoal_cid behind = {end.v > begin.v ? end.v : begin.v};
            moves->cursor.v = sh_holdings_lid(self, behind).v + 1;
            continue;
        }
        moves->cursor = sh_holdings_lid(self, from);
        *run_out = (struct sh_metadata_run){from, end};
        return true;
    }
    return false;
}

bool sh_moves_count(struct sh_moves *moves)
{
    struct sh_metadata_run run;
    if (!run_next(moves, &run))
        return false;
    moves->job.all_chunks += run.last.v - run.first.v + 1;
    moves->cursor.v += run.last.v - run.first.v + 1;
    return true;
}

/* Takes of a run what the batch has room for; moves the cursor behind it. False: it is full. */
static bool run_take(struct sh_move_batch *batch, const struct sh_metadata_run *run)
{
    struct sh_moves *moves = batch->moves;
    struct sh_metadata_run *taken = &batch->runs[batch->count];
    shoal_cid cid = run->first;
    bool has_room = true;
    for (; cid.v <= run->last.v; cid.v++) {
        uint32_t size;
        if (sh_store_size(moves->config.store, moves->cursor, &size) != SHOAL_OK)
            break; /* removed meanwhile: the run ends here, and another may begin behind it */
        has_room = batch->chunks < moves->chunks_max &&
                   (batch->chunks == 0 || batch->bytes + size <= SH_MOVES_BYTES_MAX);
        if (!has_room)
            break;
        batch->chunks++;
        batch->bytes += size;
        moves->cursor.v++;
    }
    if (cid.v > run->first.v) {
        *taken = (struct sh_metadata_run){run->first, {cid.v - 1}};
        batch->count++;
    } else if (has_room) {
        moves->cursor.v++;
    }
    return has_room && batch->count < SH_METADATA_RUNS_MAX;
}

bool sh_moves_gather(struct sh_moves *moves, struct sh_move_batch *batch)
{
    struct sh_metadata_run run;
    batch->count = batch->chunks = 0;
    batch->bytes = 0;
    bool goes_on = true;
    while (goes_on && run_next(moves, &run)) {
        shoal_nid creator = shoal_cid_creator(run.first);
        if (batch->count == 0)
            batch->creator = creator;
        if (creator.v != batch->creator.v)
            break;
        shoal_cid locked;
        if (!sh_locks_can_move(moves->config.locks, run.first, run.last, &locked)) {
            if (locked.v == run.first.v) {
                moves->job.locked++;
                if (!moves->job.stays.v)
                    moves->job.stays = locked;
                moves->cursor.v++;
                continue;
            }
            run.last.v = locked.v - 1;
        }
        goes_on = run_take(batch, &run);
    }
    return batch->count > 0;
}

void sh_moves_mark(struct sh_move_batch *batch, enum sh_holding own, enum sh_holding others)
{
    enum sh_holding what = batch->creator.v == self_of(batch->moves).v ? own : others;
    for (size_t i = 0; i < batch->count; i++)
        sh_holdings_set(batch->moves->holdings, batch->runs[i].first, batch->runs[i].last, what,
                        what == SH_HOLDING_AWAY ? batch->target : SHOAL_NID_NONE);
}

/* --- Outcomes ------------------------------------------------------------------------------ */

static bool in_batch(const struct sh_move_batch *batch, uint64_t cid)
{
    size_t low = 0, high = batch->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (batch->runs[middle].last.v < cid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < batch->count && batch->runs[low].first.v <= cid;
}

static void outcome_take(void *arg, const struct sh_outcome *outcome)
{
    struct sh_move_batch *batch = arg;
    if (!in_batch(batch, outcome->cid))
        return;
    /* What one chunk has can't be parted, and all of it must go along. */
    size_t most = batch->chunks > 1 ? SH_MOVES_OUTCOMES_MAX : SH_OUTCOMES_MAX;
    if (batch->outcomes_err || batch->outcome_count == most) {
        if (!batch->outcomes_err)
            batch->outcomes_err = batch->chunks > 1 ? SHOAL_ETOOBIG : SHOAL_ELIMIT;
        return;
    }
    if (batch->outcome_count == batch->outcome_room) {
        size_t room = batch->outcome_room ? 2 * batch->outcome_room : 64;
        struct sh_outcome *grown = realloc(batch->outcomes, room * sizeof *grown);
        if (!grown) {
            batch->outcomes_err = SHOAL_ENOMEM;
            return;
        }
        batch->outcomes = grown;
        batch->outcome_room = room;
    }
    batch->outcomes[batch->outcome_count++] = *outcome;
}

/* One that this node came to itself. */
static void result_take(void *arg, const struct sh_once_id *id, const struct sh_once_result *result)
{
    struct sh_move_batch *batch = arg;
    struct sh_outcome outcome = {.client = id->client,
                                 .number = id->number,
                                 .nid = self_of(batch->moves),
                                 .err = result->err,
                                 .value = result->value,
                                 .cid = result->about};
    outcome_take(batch, &outcome);
}

static bool shares_group(const struct sh_metadata_run *run, const struct sh_metadata_run *next)
{
    return run->last.v >> SH_CHUNK_INDEX_GROUP_BITS == next->first.v >> SH_CHUNK_INDEX_GROUP_BITS;
}

static enum shoal_err outcomes_collect(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    batch->outcome_count = 0;
    batch->outcomes_err = SHOAL_OK;
    /* Runs in one group of IDs are looked up together: their results share a list. */
    for (size_t i = 0; i < batch->count; i++) {
        uint64_t first = batch->runs[i].first.v;
        while (i + 1 < batch->count && shares_group(&batch->runs[i], &batch->runs[i + 1]))
            i++;
        uint64_t last = batch->runs[i].last.v;
        sh_once_each(sh_chunks_once(moves->config.chunks), first, last, result_take, batch);
        sh_outcomes_each(moves->outcomes, first, last, outcome_take, batch);
    }
    return batch->outcomes_err;
}

struct results {
    shoal_cid first, last;
    shoal_nid self;
    void (*each)(void *arg, const struct sh_completion *completion);
    void *arg;
};

/* An error was told to nobody, and is worked out anew (backup/completion.h). */
static void moved_result_tell(void *arg, const struct sh_outcome *outcome)
{
    const struct results *results = arg;
    if (outcome->err || outcome->cid < results->first.v || outcome->cid > results->last.v)
        return;
    const struct sh_completion completion = {.client = outcome->client,
                                             .number = outcome->number,
                                             .node = outcome->nid.v,
                                             .chunk = outcome->cid,
                                             .value = outcome->value};
    results->each(results->arg, &completion);
}

static void own_result_tell(void *arg, const struct sh_once_id *id,
                            const struct sh_once_result *result)
{
    const struct results *results = arg;
    if (result->err || result->about < results->first.v || result->about > results->last.v)
        return;
    const struct sh_completion completion = {.client = id->client,
                                             .number = id->number,
                                             .acknowledged = id->acknowledged,
                                             .node = results->self.v,
                                             .chunk = result->about,
                                             .value = result->value};
    results->each(results->arg, &completion);
}

void sh_moves_results(const struct sh_moves *moves, shoal_cid first, shoal_cid last,
                      void (*each)(void *arg, const struct sh_completion *completion), void *arg)
{
    struct results results = {first, last, self_of(moves), each, arg};
    sh_once_each(sh_chunks_once(moves->config.chunks), first.v, last.v, own_result_tell, &results);
    sh_outcomes_each(moves->outcomes, first.v, last.v, moved_result_tell, &results);
}

/* --- The message --------------------------------------------------------------------------- */

/* Adds up the chunks' sizes, as they are now that nobody changes them. */
static enum shoal_err bytes_sum(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    shoal_nid self = self_of(moves);
    batch->bytes = 0;
    for (size_t i = 0; i < batch->count; i++) {
        for (shoal_cid cid = batch->runs[i].first; cid.v <= batch->runs[i].last.v; cid.v++) {
            uint32_t size;
            if (sh_store_size(moves->config.store, sh_holdings_lid(self, cid), &size) != SHOAL_OK)
                return SHOAL_EBUSY;
            batch->bytes += size;
        }
    }
    bool has_grown = batch->chunks > 1 && batch->bytes > 2 * SH_MOVES_BYTES_MAX;
    return has_grown ? SHOAL_ETOOBIG : SHOAL_OK;
}

enum shoal_err sh_moves_stage_bytes(struct sh_move_batch *batch, size_t *bytes_out)
{
    enum shoal_err err = outcomes_collect(batch);
    if (!err)
        err = bytes_sum(batch);
    if (err)
        return err;
    size_t inline_bytes = sh_moves_is_large(batch->chunks, batch->bytes) ? 0 : batch->bytes;
    *bytes_out = SH_MOVES_STAGE_HEAD_BYTES + batch->count * 16 + 4 * batch->chunks + inline_bytes +
                 batch->outcome_count * SH_OUTCOME_BYTES +
                 (size_t)batch->locks.count * SH_LEASES_LOCK_BYTES;
    return SHOAL_OK;
}

enum shoal_err sh_moves_locks_pack(struct sh_move_batch *batch)
{
    enum shoal_err err = SHOAL_OK;
    SH_ASSERT(batch->locks.count == 0);
    for (size_t i = 0; i < batch->count && !err; i++)
        err = sh_locks_pack(batch->moves->config.locks, batch->runs[i].first, batch->runs[i].last,
                            &batch->locks);
    return err;
}

/* Writes one chunk, for which the writer has room if nobody has changed it. */
static bool chunk_put(const struct sh_move_batch *batch, sh_lid lid, struct sh_writer *w)
{
    struct sh_store *store = batch->moves->config.store;
    uint32_t size, got;
    if (sh_store_size(store, lid, &size) != SHOAL_OK)
        return false;
    sh_put32(w, size);
    if (sh_moves_is_large(batch->chunks, size))
        return size == batch->bytes;
    uint8_t *at = sh_writer_take(w, size);
    return at && sh_store_get(store, lid, at, size, &got) == SHOAL_OK && got == size;
}

bool sh_moves_stage_put(struct sh_move_batch *batch, struct sh_writer *w)
{
    shoal_nid self = self_of(batch->moves);
    sh_put64(w, batch->sequence);
    sh_put16(w, (uint16_t)batch->count);
    sh_put32(w, (uint32_t)batch->outcome_count);
    sh_put32(w, batch->locks.count);
    for (size_t i = 0; i < batch->count; i++) {
        sh_put64(w, batch->runs[i].first.v);
        sh_put64(w, batch->runs[i].last.v);
    }
    for (size_t i = 0; i < batch->count; i++) {
        for (shoal_cid cid = batch->runs[i].first; cid.v <= batch->runs[i].last.v; cid.v++) {
            if (!chunk_put(batch, sh_holdings_lid(self, cid), w))
                return false;
        }
    }
    for (size_t i = 0; i < batch->outcome_count; i++)
        sh_outcome_put(w, &batch->outcomes[i]);
    sh_locks_bag_put(&batch->locks, w);
    return sh_writer_ok(w) && w->at == w->end;
}

uint32_t sh_moves_piece_next(const struct sh_move_batch *batch)
{
    if (!sh_moves_is_large(batch->chunks, batch->bytes))
        return 0;
    uint64_t left = batch->bytes - batch->pieces_sent;
    return left < SH_STORE_PIECE_BYTES ? (uint32_t)left : SH_STORE_PIECE_BYTES;
}

void sh_moves_piece_put(struct sh_move_batch *batch, struct sh_writer *w)
{
    shoal_cid cid = batch->runs[0].first;
    uint32_t size = sh_moves_piece_next(batch);
    sh_put64(w, batch->sequence);
    sh_put32(w, batch->pieces_sent);
    uint8_t *at = sh_writer_take(w, size);
    SH_ASSERT(at && size);
    enum shoal_err err =
        sh_store_get_part(batch->moves->config.store, sh_holdings_lid(self_of(batch->moves), cid),
                          batch->pieces_sent, at, size);
    SH_ASSERT(err == SHOAL_OK); /* it stands still */
    batch->pieces_sent += size;
}

bool sh_moves_let_go(struct sh_move_batch *batch)
{
    struct sh_moves *moves = batch->moves;
    shoal_nid self = self_of(moves);
    struct sh_write write;
    size_t at = 0;
    /* Nobody waits for it: a chunk that a crash brings back is found to be elsewhere (moves_former.c). */
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (size_t i = 0; i < batch->count; i++) {
        for (shoal_cid cid = batch->runs[i].first; cid.v <= batch->runs[i].last.v; cid.v++) {
            if (at++ < batch->let_go)
                continue;
            enum shoal_err err =
                sh_backup_release(moves->config.backup, &write, sh_holdings_lid(self, cid));
            if (err == SHOAL_EAGAIN)
                return false;
            /* It stood still, and no node pins chunks; a log that is out of service takes nothing, and what is left then is not served. */
            SH_ASSERT(err == SHOAL_OK || sh_backup_is_on(moves->config.backup));
            batch->let_go++;
        }
    }
    return true;
}
