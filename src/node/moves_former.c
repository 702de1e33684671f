/* What a peer that was started again finds out of its former life, whose memory is gone.
 *
 *   own chunks of before       were here, and are gone, or have come back from the peer's log; or had
 *                              moved, and are where they moved to. Once the peer has joined, the
 *                              superpeer tells which ranges are elsewhere (TREE); requests on them are
 *                              told to wait until then
 *   others' that were here     are this node's by what the superpeers know, and gone, or have come back.
 *                              When somebody asks for one, this node asks whose it is (TREE), and
 *                              serves its range, with what chunks there are, if it is its own; those
 *                              that are not there are lost, as own ones are, if a zone is
 *
 * Chunks that have come back from the log (node/logs.h) may be other peers' by now, where the log has not heard, or no disk has, that they
 * moved: the node serves none of them before the superpeers have said whose they are. So the store is swept once: of each chunk it is
 * found out, and what is another's is let go of, in the log as well.
 *
 *     +-> next chunk at `swept` --own: holdings say--------> here: kept
 *     |       |                                             away: let go of --------+
 *     |       '--another's, not served --TREE--> its range is this peer's: served   |
 *     |                                          another's: let go of --------------+
 *     '-----------------------------------------------------------------------------'
 *
 * One question at a time, beside all else. */
#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "node/moves_int.h"

#define AGAIN_NS UINT64_C(100000000)
#define ROOM_AGAIN_NS UINT64_C(1000000) /* where the log has no room */
#define SWEPT_AT_ONCE 256

static shoal_nid self_of(const struct sh_moves *moves)
{
    return sh_msg_nid(moves->config.msg);
}

void sh_moves_joined(struct sh_moves *moves)
{
    struct sh_former *former = &moves->former;
    uint64_t base = sh_store_ids_base(moves->config.store);
    if (!base || former->base)
        return;
    former->base = base;
    former->next = 1;
    sh_holdings_set(moves->holdings, shoal_cid_make(self_of(moves), 1),
                    shoal_cid_make(self_of(moves), base), SH_HOLDING_UNKNOWN, SHOAL_NID_NONE);
    sh_holdings_strays_keep(moves->holdings);
    former->sweeps = sh_backup_is_home(moves->config.backup);
    former->answer = (struct sh_range){.first.v = 1};
}

bool sh_moves_is_finding_out(const struct sh_moves *moves)
{
    return moves->former.next;
}

bool sh_moves_is_sweeping(const struct sh_moves *moves)
{
    return moves->former.sweeps;
}

bool sh_moves_knows_chunks(const struct sh_moves *moves)
{
    return !moves->former.next && !moves->former.sweeps;
}

/* --- Own chunks ------------------------------------------------------------------------------ */

bool sh_moves_former_are_lost(const struct sh_moves *moves)
{
    const struct sh_moves_config *config = &moves->config;
    return config->are_former_lost && config->are_former_lost(config->arg);
}

/* Whether a note says that a former life had the chunks, and that they are gone. What this life has taken for a zone that it brings back is served once the zone is open, and it is known
 * what came of requests (sh_moves_serves). What a former life had taken, another node may be bringing back with that zone: the superpeers say what becomes of it. */
static bool is_former(const struct sh_moves *moves, const struct sh_metadata_note *note)
{
    return note->owner.v == self_of(moves).v && !note->life;
}

static void own_take(struct sh_moves *moves, const struct sh_metadata_range *range)
{
    struct sh_former *former = &moves->former;
    bool is_here = is_former(moves, &range->note);
    shoal_cid end = shoal_cid_make(self_of(moves), former->base);
    shoal_nid nid;
    if (range->last.v < end.v)
        end = range->last;
    for (shoal_cid until; former->asked.v <= end.v; former->asked.v = until.v + 1) {
        enum sh_holding what = sh_holdings_find(moves->holdings, former->asked, &until, &nid);
        until.v = until.v < end.v ? until.v : end.v;
        former->next = shoal_cid_local(former->asked);
        if (what != SH_HOLDING_UNKNOWN)
            continue; /* it has been served since, and may be about to move */
        if (!sh_holdings_has_room(moves->holdings, 1))
            return;
        sh_holdings_set(moves->holdings, former->asked, until,
                        is_here ? SH_HOLDING_PLAIN : SH_HOLDING_AWAY,
                        is_here ? SHOAL_NID_NONE : range->note.owner);
    }
    former->next = shoal_cid_local(end) + 1;
    if (former->next <= former->base)
        return;
    former->next = 0;
    former->has_lost = sh_moves_former_are_lost(moves);
    if (former->has_lost)
        sh_holdings_lost_set(moves->holdings, moves->config.store, former->base);
    SH_INFO("node", "has learned which chunks of its former life other peers have");
}

/* --- Others' --------------------------------------------------------------------------------- */

/* How far a range may be served that begins with a chunk which is not here: to the next one that is,
 * or is staged. False: the chunk is. */
static bool range_cut(const struct sh_moves *moves, shoal_cid cid, shoal_cid *last_inout)
{
    shoal_cid until;
    shoal_nid nid;
    if (sh_holdings_find(moves->holdings, cid, &until, &nid) != SH_HOLDING_PLAIN)
        return false;
    if (until.v < last_inout->v)
        *last_inout = until;
    for (const struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        for (size_t i = 0; i < staged->count; i++) {
            const struct sh_metadata_run *run = &staged->runs[i];
            if (run->first.v <= cid.v && cid.v <= run->last.v)
                return false;
            if (run->first.v > cid.v && run->first.v <= last_inout->v)
                last_inout->v = run->first.v - 1;
        }
    }
    return true;
}

/* How far a range is lost, of which the store has no chunk at its begin; or, if the store has (false), how far it has chunks. */
static bool lost_cut(const struct sh_moves *moves, shoal_cid cid, shoal_cid *last_inout)
{
    sh_lid first, last;
    if (!sh_store_range(moves->config.store, cid, &first, &last))
        return true;
    bool is_there = first.v <= cid.v;
    uint64_t end = is_there ? last.v : first.v - 1;
    if (end < last_inout->v)
        last_inout->v = end;
    return !is_there;
}

/* If batches came or went since it was asked, the answer may be of before. Who asked for the chunk asks
 * again, in any case. The chunks of the range may have been in a zone that is lost: nobody can tell. */
static void stray_take(struct sh_moves *moves, const struct sh_metadata_range *range)
{
    struct sh_former *former = &moves->former;
    shoal_cid cid = former->asked, last = range->last;
    former->answer = (struct sh_range){range->first, range->last, range->note.owner.v};
    former->answer_changes = former->changes;
    if (!is_former(moves, &range->note) || former->changes != moves->changes ||
        !range_cut(moves, cid, &last))
        return;
    bool are_lost = former->has_lost && lost_cut(moves, cid, &last);
    sh_holdings_set(moves->holdings, cid, last, are_lost ? SH_HOLDING_LOST : SH_HOLDING_HELD,
                    SHOAL_NID_NONE);
    SH_INFO("node",
            former->sweeps ? "answers for a range of its former life"
                           : "answers for a range of its former life, whose chunks are lost",
            SH_U64("first", cid.v), SH_U64("last", last.v));
}

/* --- Questions ------------------------------------------------------------------------------- */

static bool is_own(const struct sh_moves *moves)
{
    return shoal_cid_creator(moves->former.asked).v == self_of(moves).v;
}

/* Takes the next range of an answer. False: it is not the one that was asked for. */
static bool range_take(struct sh_moves *moves, struct sh_reader *r)
{
    shoal_cid asked = moves->former.asked;
    struct sh_metadata_range range = {.first.v = sh_get64(r), .last.v = sh_get64(r)};
    range.note.owner.v = sh_get16(r);
    range.note.life = sh_get64(r);
    range.note.zone = sh_get64(r);
    range.note.incarnation = sh_get32(r);
    if (!sh_reader_ok(r) || range.first.v > asked.v || range.last.v < asked.v ||
        shoal_cid_creator(range.last).v != shoal_cid_creator(asked).v ||
        !sh_holdings_has_room(moves->holdings, 1))
        return false;
    if (is_own(moves))
        own_take(moves, &range);
    else
        stray_take(moves, &range);
    return true;
}

static void told(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_moves *moves = request->arg;
    struct sh_former *former = &moves->former;
    shoal_nid other = {err ? 0 : sh_get16(payload)};
    (void)sh_get8(payload); /* the last range tells whether there is more */
    former->is_asking = false;
    if (!is_own(moves))
        sh_holdings_stray_done(moves->holdings, former->asked);
    if (other.v)
        sh_directory_superpeer_set(moves->config.directory, shoal_cid_creator(former->asked),
                                   other);
    bool is_well = !err && !other.v && range_take(moves, payload);
    former->due_ns = is_well ? 0 : sh_now(&moves->config.clock) + AGAIN_NS;
    while (is_well && is_own(moves) && former->next && sh_reader_left(payload))
        is_well = range_take(moves, payload);
}

static void ask(struct sh_moves *moves, shoal_cid cid)
{
    struct sh_former *former = &moves->former;
    struct sh_out out;
    shoal_nid superpeer = sh_directory_superpeer(moves->config.directory, shoal_cid_creator(cid));
    former->asked = cid;
    former->changes = moves->changes;
    former->request = (struct sh_request){.done = told, .arg = moves};
    former->due_ns = sh_now(&moves->config.clock) + AGAIN_NS;
    if (sh_msg_request(moves->config.msg, superpeer, SH_CLUSTER_TREE, SH_TREE_BYTES,
                       &former->request, &out))
        return;
    former->is_asking = true;
    sh_put64(&out.w, cid.v);
    sh_put64(&out.w, sh_directory_epoch(moves->config.directory));
    sh_msg_end(moves->config.msg, &out);
}

/* --- What this node brings back for others --------------------------------------------------- */

bool sh_moves_serves(struct sh_moves *moves, shoal_cid first, shoal_cid last)
{
    shoal_nid self = self_of(moves), nid;
    bool is_own = shoal_cid_creator(first).v == self.v;
    SH_ASSERT(shoal_cid_creator(last).v == shoal_cid_creator(first).v);
    moves->changes++;
    for (shoal_cid at = first, until; at.v <= last.v; at.v = until.v + 1) {
        enum sh_holding what = sh_holdings_find(moves->holdings, at, &until, &nid);
        until.v = until.v < last.v ? until.v : last.v;
        /* What is served already may be about to move. */
        bool is_elsewhere = is_own ? what == SH_HOLDING_AWAY || what == SH_HOLDING_UNKNOWN
                                   : what == SH_HOLDING_PLAIN || what == SH_HOLDING_LOST;
        if (!is_elsewhere)
            continue;
        if (!sh_holdings_has_room(moves->holdings, 1))
            return false;
        sh_holdings_set(moves->holdings, at, until, is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD,
                        SHOAL_NID_NONE);
    }
    return true;
}

/* --- What has come back from the log --------------------------------------------------------- */

bool sh_moves_is_staged(const struct sh_moves *moves, shoal_cid cid)
{
    for (const struct sh_staged *staged = moves->staged; staged; staged = staged->next) {
        for (size_t i = 0; i < staged->count; i++) {
            if (staged->runs[i].first.v <= cid.v && cid.v <= staged->runs[i].last.v)
                return true;
        }
    }
    return false;
}

bool sh_moves_may_have(const struct sh_moves *moves, shoal_cid cid)
{
    shoal_cid until;
    shoal_nid nid;
    bool is_own = shoal_cid_creator(cid).v == self_of(moves).v;
    enum sh_holding what = sh_holdings_find(moves->holdings, cid, &until, &nid);
    return what != (is_own ? SH_HOLDING_AWAY : SH_HOLDING_PLAIN) || sh_moves_is_staged(moves, cid);
}

bool sh_moves_has_batch_for(const struct sh_moves *moves, shoal_nid target)
{
    for (unsigned i = 0; i < SH_MOVES_FLIGHT_MAX; i++) {
        if (moves->batches[i].state && moves->batches[i].target.v == target.v)
            return true;
    }
    return false;
}

enum sweep { SWEEP_KEEP, SWEEP_LET_GO, SWEEP_ASK };

/* Decides on the chunks from `cid` to `last_out`. Staged chunks came just now. An answer of before the last batches came
 * or went tells nothing; nor does one that knows of nobody (0), as where the superpeers have lost what they knew: then the chunk stays, is not
 * served, and is found when somebody asks for it. */
static enum sweep sweep_what(const struct sh_moves *moves, shoal_cid cid, shoal_cid *last_out)
{
    const struct sh_former *former = &moves->former;
    const struct sh_range *answer = &former->answer;
    shoal_nid self = self_of(moves), nid;
    enum sh_holding what = sh_holdings_find(moves->holdings, cid, last_out, &nid);
    if (what == SH_HOLDING_AWAY && !sh_moves_is_staged(moves, cid)) {
        *last_out = cid;
        return SWEEP_LET_GO;
    }
    if (what != SH_HOLDING_PLAIN || shoal_cid_creator(cid).v == self.v)
        return SWEEP_KEEP;
    *last_out = cid;
    if (sh_moves_is_staged(moves, cid))
        return SWEEP_KEEP;
    bool is_told = answer->first.v <= cid.v && cid.v <= answer->last.v &&
                   former->answer_changes == moves->changes;
    if (!is_told || answer->value == self.v)
        return SWEEP_ASK;
    return answer->value ? SWEEP_LET_GO : SWEEP_KEEP;
}

/* Goes over the next chunks; false: nothing is to be done before due_ns, or an answer comes. */
static bool sweep_some(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_former *former = &moves->former;
    shoal_nid self = self_of(moves);
    struct sh_write write;
    sh_lid first, last;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (unsigned i = 0; i < SWEPT_AT_ONCE; i++) {
        if (!sh_store_range(moves->config.store, former->swept, &first, &last)) {
            former->sweeps = false;
            SH_INFO("node", "knows which chunks of its log are its own");
            return true;
        }
        shoal_cid cid = sh_holdings_cid(self, first), until;
        former->swept = first;
        enum sweep what = sweep_what(moves, cid, &until);
        if (what == SWEEP_ASK) {
            ask(moves, cid);
            return true;
        }
        if (what == SWEEP_LET_GO &&
            sh_backup_release(moves->config.backup, &write, first) == SHOAL_EAGAIN) {
            former->due_ns = now_ns + ROOM_AGAIN_NS;
            return false;
        }
        sh_lid end = sh_holdings_lid(self, until);
        former->swept.v = (end.v < last.v ? end.v : last.v) + 1;
    }
    return true;
}

/* What is to be asked for next; 0: nothing. */
static shoal_cid wanted(const struct sh_moves *moves)
{
    const struct sh_former *former = &moves->former;
    if (former->is_asking)
        return (shoal_cid){0};
    return former->next ? shoal_cid_make(self_of(moves), former->next)
                        : sh_holdings_stray(moves->holdings);
}

/* Once it is known which own chunks are elsewhere, and nobody waits for an answer. */
static bool may_sweep(const struct sh_moves *moves)
{
    return moves->former.sweeps && !moves->former.next && !moves->former.is_asking;
}

/* Once an operator has accepted the loss of all zones of former lives, chunks that may have been in them do not exist. */
static void loss_look(struct sh_moves *moves)
{
    struct sh_former *former = &moves->former;
    if (!former->has_lost || sh_moves_former_are_lost(moves))
        return;
    former->has_lost = false;
    sh_holdings_lost_clear(moves->holdings);
    SH_INFO("node", "the loss of all zones of its former lives is accepted");
}

unsigned sh_moves_former_step(struct sh_moves *moves, uint64_t now_ns)
{
    const struct sh_moves_config *config = &moves->config;
    loss_look(moves);
    shoal_cid cid = wanted(moves);
    if ((!cid.v && !may_sweep(moves)) || now_ns < moves->former.due_ns)
        return 0;
    /* Others may be about to take chunks over that are noted as this node's. */
    if (config->are_former_over && !config->are_former_over(config->arg)) {
        moves->former.due_ns = now_ns + ROOM_AGAIN_NS;
        return 0;
    }
    if (!cid.v)
        return sweep_some(moves, now_ns);
    ask(moves, cid);
    return 1;
}

uint64_t sh_moves_former_due_ns(const struct sh_moves *moves)
{
    return wanted(moves).v || may_sweep(moves) ? moves->former.due_ns : SH_NEVER;
}

void sh_moves_former_end(struct sh_moves *moves)
{
    if (moves->former.is_asking)
        (void)sh_msg_cancel(moves->config.msg, &moves->former.request);
}
