/* The target of a migration: takes batches in, out of sight, until it hears that they are its. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"
#include "store/leases.h"

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* --- What is staged ------------------------------------------------------------------------ */

static struct sh_staged **staged_find(struct sh_moves *moves, shoal_nid source)
{
    struct sh_staged **at = &moves->staged;
    while (*at && (*at)->source.v != source.v)
        at = &(*at)->next;
    return at;
}

/* Takes the first `chunks` of a batch out of the store again. */
static void chunks_drop(struct sh_moves *moves, const struct sh_metadata_run *runs, size_t count,
                        size_t chunks)
{
    shoal_nid self = self_of(moves);
    for (size_t i = 0; i < count; i++) {
        for (shoal_cid cid = runs[i].first; cid.v <= runs[i].last.v && chunks > 0; cid.v++) {
            enum shoal_err err = sh_store_release(moves->config.store, sh_holdings_lid(self, cid));
            SH_ASSERT(err == SHOAL_OK); /* nobody else has seen it */
            chunks--;
        }
    }
}

static void staged_unlink(struct sh_moves *moves, struct sh_staged *staged)
{
    struct sh_staged **at = staged_find(moves, staged->source);
    SH_ASSERT(*at == staged);
    *at = staged->next;
    if (staged->is_asking)
        (void)sh_msg_cancel(moves->config.msg, &staged->request);
    staged->is_asking = false;
}

static void staged_free(struct sh_moves *moves, struct sh_staged *staged)
{
    staged_unlink(moves, staged);
    free(staged);
}

static void locks_drop(struct sh_moves *moves, const struct sh_staged *staged)
{
    for (size_t i = 0; i < staged->count; i++)
        sh_locks_discard(moves->config.locks, staged->runs[i].first, staged->runs[i].last);
}

static void staged_drop(struct sh_moves *moves, struct sh_staged *staged)
{
    locks_drop(moves, staged);
    chunks_drop(moves, staged->runs, staged->count, SIZE_MAX);
    staged_free(moves, staged);
}

/* The batch is this node's from now on. */
static void staged_commit(struct sh_moves *moves, struct sh_staged *staged)
{
    shoal_nid self = self_of(moves);
    bool is_own = shoal_cid_creator(staged->runs[0].first).v == self.v;
    for (size_t i = 0; i < staged->count; i++)
        sh_holdings_set(moves->holdings, staged->runs[i].first, staged->runs[i].last,
                        is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD, SHOAL_NID_NONE);
    moves->peers[staged->source.v].committed = staged->sequence;
    if (!staged->was_left_out) {
        staged_free(moves, staged);
        return;
    }
    staged_unlink(moves, staged);
    sh_moves_claim(moves, staged);
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
    head.incarnation = sh_get64(r);
    head.superpeer.v = sh_get16(r);
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

/* Puts the batch's chunks into the store, all or none. */
static enum shoal_err chunks_take(struct sh_moves *moves, const struct sh_staged *staged,
                                  struct sh_reader *r)
{
    shoal_nid self = self_of(moves);
    size_t taken = 0;
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < staged->count && !err; i++) {
        for (shoal_cid cid = staged->runs[i].first; cid.v <= staged->runs[i].last.v; cid.v++) {
            uint32_t size = sh_get32(r);
            const uint8_t *at = sh_reader_take(r, size);
            err = SHOAL_EPROTO;
            if (sh_reader_ok(r))
                err = sh_store_take_over(moves->config.store, sh_holdings_lid(self, cid),
                                         sh_bytes_make(at, size));
            if (err)
                break;
            taken++;
        }
    }
    if (err)
        chunks_drop(moves, staged->runs, staged->count, taken);
    return err;
}

static enum shoal_err outcomes_take(struct sh_moves *moves, struct sh_reader *r, uint32_t count,
                                    uint64_t now_ns)
{
    if (sh_outcomes_room(moves->outcomes, now_ns) < count)
        return SHOAL_ELIMIT;
    for (uint32_t i = 0; i < count; i++) {
        struct sh_outcome outcome;
        if (!sh_outcome_get(r, &outcome) || !sh_reader_ok(r))
            return SHOAL_EPROTO;
        enum shoal_err err = sh_outcomes_add(moves->outcomes, &outcome, now_ns);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

static bool is_in(const struct sh_staged *staged, uint64_t cid)
{
    for (size_t i = 0; i < staged->count; i++) {
        if (cid <= staged->runs[i].last.v)
            return cid >= staged->runs[i].first.v;
    }
    return false;
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
static enum shoal_err room_check(const struct sh_moves *moves, size_t bytes)
{
    struct sh_store_status status;
    sh_store_status_get(moves->config.store, &status);
    uint64_t most = status.bytes_max - status.reserve_bytes;
    uint64_t free_bytes =
        status.free_bytes + (status.used_bytes < most ? most - status.used_bytes : 0);
    return bytes + bytes / 4 <= free_bytes ? SHOAL_OK : SHOAL_EFULL;
}

static enum shoal_err stage(struct sh_moves *moves, struct sh_staged *staged, struct sh_reader *r,
                            const struct luggage *luggage)
{
    struct sh_move_peer *peer = &moves->peers[staged->source.v];
    uint64_t now = sh_now(&moves->config.clock);
    if (sh_chunks_creates_refused(moves->config.chunks))
        return SHOAL_ENONODE;
    enum shoal_err err = room_check(moves, sh_reader_left(r));
    if (!err && !is_elsewhere(moves, staged))
        err = SHOAL_EEXIST;
    if (!err && !sh_holdings_has_room(moves->holdings, staged->count))
        err = SHOAL_ELIMIT;
    if (!err)
        err = chunks_take(moves, staged, r);
    if (err)
        return err;
    /* Results stay true if nothing comes of the batch. */
    err = outcomes_take(moves, r, luggage->outcomes, now);
    if (!err)
        err = locks_take(moves, staged, r, luggage->locks);
    if (err) {
        chunks_drop(moves, staged->runs, staged->count, SIZE_MAX);
        return err;
    }
    peer->highest = staged->sequence;
    struct sh_node source;
    if (sh_directory_node(moves->config.directory, staged->source, &source) == SHOAL_OK)
        memcpy(staged->source_address, source.address, sizeof source.address);
    staged->since_ns = now;
    staged->due_ns = now + SH_MOVES_ASK_NS;
    staged->next = moves->staged;
    moves->staged = staged;
    return SHOAL_OK;
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
    struct sh_staged *before = *staged_find(moves, staged->source);
    const struct sh_move_peer *peer = &moves->peers[staged->source.v];
    if (before && before->sequence == staged->sequence) {
        free(staged); /* it came twice */
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return;
    }
    if (staged->sequence <= peer->highest || self_of(moves).v == 0) {
        free(staged);
        refuse(in, SHOAL_ECANCELED, "this batch was called off");
        return;
    }
    /* The source has begun another one, so that nothing came of the one before. */
    if (before)
        staged_drop(moves, before);
    sh_moves_unheard_over(moves, staged->source);
    err = stage(moves, staged, &in->payload, &luggage);
    if (err) {
        free(staged);
        refuse(in, err, NULL);
        return;
    }
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* --- DONE and ASK -------------------------------------------------------------------------- */

static void on_done(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    uint64_t sequence = sh_get64(&in->payload);
    uint8_t what = sh_get8(&in->payload);
    shoal_nid source = in->reply_to.nid;
    if (!sh_reader_done(&in->payload) || what < 1 || what > 2 || source.v > SH_PEER_NID_MAX) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    struct sh_staged *staged = *staged_find(moves, source);
    struct sh_move_peer *peer = &moves->peers[source.v];
    bool is_it = staged && staged->sequence == sequence;
    if (what == 1 && is_it)
        staged_commit(moves, staged);
    else if (what == 2 && is_it)
        staged_drop(moves, staged);
    if (what == 1 && peer->highest <= sequence)
        sh_moves_unheard_over(moves, source);
    bool was_committed = peer->committed == sequence;
    /* One that comes later was called off before it came. */
    if (what == 2 && !was_committed && peer->highest < sequence)
        peer->highest = sequence;
    struct sh_out out;
    if (!in->is_request ||
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVE_DONE_ANSWER_BYTES, &out) != SHOAL_OK)
        return;
    sh_put8(&out.w, was_committed);
    sh_msg_end(in->msg, &out);
}

static void on_ask(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    uint64_t sequence = sh_get64(&in->payload);
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    bool is_at_it = moves->batch.sequence == sequence && moves->state >= SH_MOVE_STAGE &&
                    moves->state != SH_MOVE_REMIND;
    bool is_committed = in->reply_to.nid.v <= SH_PEER_NID_MAX &&
                        moves->peers[in->reply_to.nid.v].untold == sequence;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 1, &out) == SHOAL_OK) {
        sh_put8(&out.w, is_committed ? 2 : is_at_it);
        sh_msg_end(in->msg, &out);
    }
}

/* --- No word from the source --------------------------------------------------------------- */

static void batch_over(struct sh_moves *moves, struct sh_staged *staged, bool is_committed)
{
    SH_INFO("node",
            is_committed ? "took a batch over that nobody spoke of any more"
                         : "dropped a batch that nobody spoke of any more",
            SH_U64("from", staged->source.v));
    if (is_committed)
        staged_commit(moves, staged);
    else
        staged_drop(moves, staged);
}

static void resolved(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_staged *staged = request->arg;
    struct sh_moves *moves = staged->moves;
    staged->is_asking = false;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    uint8_t is_committed = err ? 0 : sh_get8(payload);
    bool is_decided = !err && sh_reader_done(payload) && !other.v;
    if (other.v)
        sh_directory_superpeer_set(moves->config.directory,
                                   shoal_cid_creator(staged->runs[0].first), other);
    /* Those who could tell have lost their memory, or are gone: nobody ever will. */
    bool is_lost =
        err == SHOAL_EDIFFERS && sh_moves_has_ended(moves, staged->source, staged->source_address);
    if (is_lost)
        SH_WARN("node", "nobody can tell any more whether a batch was this node's: dropped",
                SH_U64("from", staged->source.v), SH_U64("runs", staged->count));
    if (!is_decided && !is_lost) {
        staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
        return;
    }
    if (is_committed)
        sh_moves_unheard_add(moves, staged);
    batch_over(moves, staged, is_committed);
}

/* Asks the superpeer what became of the batch: it is called off if nothing did. */
static void resolve(struct sh_moves *moves, struct sh_staged *staged)
{
    struct sh_out out;
    staged->request = (struct sh_request){.done = resolved, .arg = staged};
    shoal_nid superpeer =
        sh_directory_superpeer(moves->config.directory, shoal_cid_creator(staged->runs[0].first));
    if (!superpeer.v)
        superpeer = staged->superpeer; /* as the source said */
    if (sh_msg_request(moves->config.msg, superpeer, SH_CLUSTER_RESOLVE, sh_moves_batch_bytes(1),
                       &staged->request, &out) != SHOAL_OK) {
        staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
        return;
    }
    staged->is_asking = true;
    sh_moves_batch_put(&out.w, staged->source, self_of(moves), staged->incarnation,
                       staged->sequence, staged->runs, 1);
    sh_msg_end(moves->config.msg, &out);
}

/* Whether the source could not be heard, be it gone or only cut off from here. */
static bool is_unheard(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE || err == SHOAL_ETIMEOUT;
}

static void source_answered(struct sh_request *request, enum shoal_err err,
                            struct sh_reader *payload)
{
    struct sh_staged *staged = request->arg;
    struct sh_moves *moves = staged->moves;
    staged->is_asking = false;
    staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
    uint8_t says = err ? 1 : sh_get8(payload);
    if (!err && !sh_reader_done(payload))
        says = 1;
    /* A source that can be heard knows best: it goes on with nothing else before we have. Of one
     * that can't, the superpeer must tell: the batch may be ours, and then nobody serves it. */
    if (says != 1)
        batch_over(moves, staged, says == 2);
    else if (is_unheard(err) || (err && !sh_moves_is_up(moves, staged->source)))
        resolve(moves, staged);
}

static void source_ask(struct sh_moves *moves, struct sh_staged *staged)
{
    struct sh_out out;
    staged->request = (struct sh_request){.done = source_answered, .arg = staged};
    enum shoal_err err = SHOAL_ENONODE;
    if (sh_moves_is_up(moves, staged->source))
        err = sh_msg_request(moves->config.msg, staged->source, SH_MOVES_ASK, 8, &staged->request,
                             &out);
    if (err == SHOAL_ENONODE || is_unheard(err))
        resolve(moves, staged);
    if (err) {
        if (!staged->is_asking)
            staged->due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS;
        return;
    }
    staged->is_asking = true;
    sh_put64(&out.w, staged->sequence);
    sh_msg_end(moves->config.msg, &out);
}

unsigned sh_moves_target_step(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_staged *staged = sh_staged_due(moves->staged, now_ns);
    if (staged)
        source_ask(moves, staged);
    return (staged != NULL) + sh_moves_claims_step(moves, now_ns) +
           sh_moves_unheard_step(moves, now_ns);
}

uint64_t sh_moves_target_due_ns(const struct sh_moves *moves)
{
    uint64_t due = sh_staged_due_ns(moves->staged), claims = sh_staged_due_ns(moves->claims);
    uint64_t unheard = sh_moves_unheard_due_ns(moves);
    due = claims < due ? claims : due;
    return unheard < due ? unheard : due;
}

/* --- What others ask ----------------------------------------------------------------------- */

static void on_outcome(void *arg, struct sh_msg_in *in)
{
    struct sh_moves *moves = arg;
    shoal_cid cid = {sh_get64(&in->payload)};
    uint64_t client = sh_get64(&in->payload);
    shoal_nid nid = {sh_get16(&in->payload)};
    uint64_t number = sh_get64(&in->payload);
    sh_lid lid;
    enum shoal_err err = SHOAL_EPROTO;
    if (sh_reader_done(&in->payload))
        err = sh_holdings_look(moves->holdings, self_of(moves), cid, true, &lid);
    if (err) {
        refuse(in, err, NULL);
        return;
    }
    const struct sh_outcome *outcome = sh_outcomes_find(moves->outcomes, client, nid, number);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_MOVES_OUTCOME_ANSWER_BYTES, &out) !=
        SHOAL_OK)
        return;
    sh_put8(&out.w, outcome != NULL);
    sh_put16(&out.w, outcome ? (uint16_t)outcome->err : 0);
    sh_put64(&out.w, outcome ? outcome->value : 0);
    sh_msg_end(in->msg, &out);
}

/* Whether any of the runs lies in what is asked about: the chunks from `from` on, of creators up to
 * `last`. */
static bool is_asked(const struct sh_metadata_run *runs, size_t count, shoal_cid from,
                     shoal_nid last)
{
    return count > 0 && runs[count - 1].last.v >= from.v &&
           shoal_cid_creator(runs[0].first).v <= last.v;
}

/* Whether a batch of what is asked about is here of which the source, which lives, will soon say
 * whether it was committed: it may have heard so from a superpeer that has forgotten it since.
 * Whoever asks is not kept waiting by one batch after the other. */
static bool awaits_word(struct sh_moves *moves, shoal_cid from, shoal_nid last)
{
    uint64_t now = sh_now(&moves->config.clock);
    bool awaits = false;
    for (const struct sh_staged *staged = moves->staged; staged && !awaits; staged = staged->next)
        awaits = is_asked(staged->runs, staged->count, from, last) &&
                 now < staged->since_ns + SH_MOVES_WORD_NS && sh_moves_is_up(moves, staged->source);
    if (awaits && now >= moves->holds_refused_ns + 2 * SH_MOVES_WORD_NS)
        moves->holds_refused_ns = now;
    return awaits && now < moves->holds_refused_ns + SH_MOVES_WORD_NS;
}

/* Notes the batches about which nothing is said now, as nobody knows here who has them. Returns the
 * flags that tell of them, and of those that were left out before and are to be claimed. */
static uint8_t undecided_note(struct sh_moves *moves, shoal_cid from, shoal_nid last)
{
    struct sh_move_batch *batch = &moves->batch;
    uint8_t flags = 0;
    for (struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        if (!is_asked(staged->runs, staged->count, from, last))
            continue;
        staged->was_left_out = true;
        flags |= sh_moves_is_up(moves, staged->source) ? SH_HOLDS_LEFT_OUT : SH_HOLDS_ALONE;
    }
    for (const struct sh_staged *claim = moves->claims; claim; claim = claim->next) {
        if (is_asked(claim->runs, claim->count, from, last))
            flags |= SH_HOLDS_LEFT_OUT;
    }
    if (sh_moves_is_open(moves) && is_asked(batch->runs, batch->count, from, last)) {
        batch->was_left_out = true;
        flags |= sh_moves_is_up(moves, batch->target) ? SH_HOLDS_LEFT_OUT : SH_HOLDS_ALONE;
    }
    return flags;
}

/* Ends a range before the first batch in it that came and is not decided: who has that is not known
 * here. Or, if the range begins with one, where that does; then it is true. */
static bool undecided_cut(const struct sh_moves *moves, struct sh_range *range)
{
    for (const struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        for (size_t i = 0; i < staged->count; i++) {
            const struct sh_metadata_run *run = &staged->runs[i];
            if (run->last.v < range->first.v || run->first.v > range->last.v)
                continue;
            bool is_first = run->first.v <= range->first.v;
            uint64_t end = is_first ? run->last.v : run->first.v - 1;
            range->last.v = end < range->last.v ? end : range->last.v;
            if (is_first)
                return true;
        }
    }
    return false;
}

/* What of an arc's chunks this node has, and where those are that it created. */
static void on_holds(void *arg, struct sh_msg_in *in)
{
    enum { RANGES_MAX = 4096 };
    struct sh_moves *moves = arg;
    shoal_nid self = self_of(moves), nid;
    shoal_cid from = {sh_get64(&in->payload)};
    shoal_nid first = {sh_get16(&in->payload)}, last = {sh_get16(&in->payload)};
    if (!sh_reader_done(&in->payload)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (from.v < shoal_cid_make(first, 0).v)
        from = shoal_cid_make(first, 0);
    if (awaits_word(moves, from, last)) {
        refuse(in, SHOAL_EBUSY, "a batch of a migration is not decided yet");
        return;
    }
    struct sh_range *found = malloc(RANGES_MAX * sizeof *found);
    if (!found) {
        refuse(in, SHOAL_ENOMEM, NULL);
        return;
    }
    uint8_t flags = undecided_note(moves, from, last);
    size_t count = 0;
    enum sh_holding what;
    struct sh_range range;
    bool is_more = false, is_open = sh_moves_is_open(moves);
    while (sh_holdings_next(moves->holdings, from, &range, &what, &nid) &&
           shoal_cid_creator(range.first).v <= last.v) {
        if (range.first.v < from.v)
            range.first = from;
        if (count == RANGES_MAX) {
            is_more = true;
            break;
        }
        bool is_own = shoal_cid_creator(range.first).v == self.v;
        bool is_away = is_own && what == SH_HOLDING_AWAY;
        bool is_undecided = is_away && undecided_cut(moves, &range);
        from.v = range.last.v + 1;
        /* Where it is looked for; or others decide about it. */
        if (is_own ? !is_away || is_undecided : what == SH_HOLDING_NOTHING && is_open)
            continue;
        range.value = is_own ? nid.v : self.v;
        found[count++] = range;
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type,
                     SH_HOLDS_ANSWER_BYTES + count * SH_HOLDS_RANGE_BYTES, &out) == SHOAL_OK) {
        sh_put8(&out.w, is_more ? flags | SH_HOLDS_MORE : flags);
        sh_put64(&out.w, sh_moves_known(moves));
        for (size_t i = 0; i < count; i++) {
            sh_put64(&out.w, found[i].first.v);
            sh_put64(&out.w, found[i].last.v);
            sh_put16(&out.w, (uint16_t)found[i].value);
        }
        sh_msg_end(in->msg, &out);
    }
    free(found);
}

void sh_moves_target_register(struct sh_moves *moves)
{
    struct sh_msg *msg = moves->config.msg;
    sh_msg_handler_set(msg, SH_MOVES_STAGE, SH_MSG_INLINE, on_stage, moves);
    sh_msg_handler_set(msg, SH_MOVES_DONE, SH_MSG_INLINE, on_done, moves);
    sh_msg_handler_set(msg, SH_MOVES_ASK, SH_MSG_INLINE, on_ask, moves);
    sh_msg_handler_set(msg, SH_MOVES_OUTCOME, SH_MSG_INLINE, on_outcome, moves);
    sh_msg_handler_set(msg, SH_CLUSTER_HOLDS, SH_MSG_INLINE, on_holds, moves);
}

void sh_moves_target_end(struct sh_moves *moves)
{
    while (moves->staged)
        staged_free(moves, moves->staged);
    sh_moves_claims_end(moves);
    sh_moves_unheard_end(moves);
}
