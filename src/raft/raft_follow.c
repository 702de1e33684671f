/* Raft's follower: entries and snapshots from the leader. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft_int.h"

static void answer(struct sh_raft *raft, uint8_t to, unsigned flags, uint64_t index, uint64_t round)
{
    if (raft->is_recovering)
        flags |= SH_RAFT_RECOVERING;
    struct sh_writer w = sh_raft_message_begin(raft, to, SH_RAFT_APPEND_ANSWER, (uint8_t)flags,
                                               raft->term, 16, raft->promise_lsn);
    sh_put64(&w, index);
    sh_put64(&w, round);
}

/* Tells the leader that the log agrees with its own up to `matched`, as far as that is stored by
 * now. The answer waits for term and vote, never for entries. */
static void answer_matched(struct sh_raft *raft)
{
    SH_ASSERT(raft->role == SH_RAFT_FOLLOWER && raft->leader);
    /* A journal that is full took nothing of what came last. */
    raft->owes_answer = raft->stored_last < raft->matched || sh_journal_is_full(raft->journal);
    uint64_t index = raft->stored_last < raft->matched ? raft->stored_last : raft->matched;
    unsigned flags = SH_RAFT_YES | (raft->owes_answer ? SH_RAFT_STORING : 0);
    answer(raft, raft->leader, flags, index, raft->matched_round);
}

static void matched_raise(struct sh_raft *raft, uint64_t match, uint64_t round)
{
    if (match > raft->matched)
        raft->matched = match;
    if (round > raft->matched_round)
        raft->matched_round = round;
    answer_matched(raft);
}

void sh_raft_follow_stored(struct sh_raft *raft)
{
    if (raft->owes_answer && raft->leader)
        answer_matched(raft);
}

/* Where the leader should try next when the entry at `before` is not of the term that it says:
 * where that entry's term began here, so that each exchange passes a whole term. */
static uint64_t hint(const struct sh_raft *raft, uint64_t before)
{
    uint64_t last = sh_raft_log_last(raft);
    uint64_t term, other;
    if (before > last)
        return last + 1;
    if (before <= raft->commit || !sh_entries_term(&raft->log, before, &term))
        return raft->commit + 1;
    while (before > raft->commit + 1 && sh_entries_term(&raft->log, before - 1, &other) &&
           other == term)
        before--;
    return before;
}

/* Takes one entry that the leader has at that index; false: it can't be, or memory is short. */
static bool take_entry(struct sh_raft *raft, uint64_t index, uint64_t *term, struct sh_reader *r)
{
    uint8_t kind = sh_get8(r);
    uint64_t entry_term = sh_get64(r);
    uint32_t size = sh_get32(r);
    const uint8_t *bytes = sh_reader_take(r, size);
    struct sh_raft_members members;
    if (!sh_reader_ok(r) || kind < SH_RAFT_COMMAND || kind > SH_RAFT_MEMBERS ||
        size > SH_RAFT_COMMAND_BYTES_MAX || entry_term < *term || entry_term > raft->term ||
        (kind == SH_RAFT_MEMBERS && !sh_raft_members_get(sh_bytes_make(bytes, size), &members)))
        return false;
    *term = entry_term;
    uint64_t own_term;
    if (index <= raft->commit)
        return true; /* the same everywhere */
    if (index <= sh_raft_log_last(raft)) {
        bool is_known = sh_entries_term(&raft->log, index, &own_term);
        SH_ASSERT(is_known);
        if (own_term == entry_term)
            return true;
        sh_raft_log_cut(raft, index);
    }
    return !sh_raft_log_append(raft, entry_term, kind, sh_bytes_make(bytes, size));
}

/* A leader has committed an entry of its own term, and with it everything before; all of it is here
 * now. So a recovering server holds whatever it may have forgotten; see raft.h. */
static void catch_up(struct sh_raft *raft, uint64_t leader_commit, uint64_t match)
{
    uint64_t term;
    if (match < leader_commit || !sh_entries_term(&raft->log, leader_commit, &term) ||
        term != raft->term)
        return;
    raft->is_current = true;
    if (!raft->is_recovering || !raft->probe_is_over)
        return;
    SH_INFO("raft", "caught up: voting again", SH_U64("index", match));
    raft->is_recovering = false;
    sh_raft_promise(raft);
}

void sh_raft_on_append(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_reader *r)
{
    SH_ASSERT(raft->role == SH_RAFT_FOLLOWER && raft->leader == from);
    (void)now_ns;
    uint64_t before = sh_get64(r);
    uint64_t before_term = sh_get64(r);
    uint64_t commit = sh_get64(r);
    uint64_t round = sh_get64(r);
    uint32_t count = sh_get32(r);
    if (!sh_reader_ok(r))
        return;
    uint64_t term;
    bool is_known = sh_entries_term(&raft->log, before, &term);
    if (!is_known && before < raft->commit) {
        /* Long since part of our snapshot; a leader has whatever is committed. */
        matched_raise(raft, raft->commit, round);
        return;
    }
    if (!is_known || term != before_term) {
        answer(raft, from, 0, hint(raft, before), round);
        return;
    }
    uint64_t match = before;
    term = before_term;
    while (count-- && !sh_journal_is_full(raft->journal) && take_entry(raft, match + 1, &term, r))
        match++;
    uint64_t reached = commit < match ? commit : match;
    if (reached > raft->commit) {
        raft->commit = reached;
        sh_raft_apply(raft);
    }
    catch_up(raft, commit, match);
    matched_raise(raft, match, round);
}

/* --- Snapshots ----------------------------------------------------------------------------------
 */

static void coming_drop(struct sh_raft *raft)
{
    free(raft->coming.bytes);
    raft->coming = (struct sh_raft_snapshot){0};
    raft->coming_at = 0;
}

/* Makes ready for a snapshot, unless it is the one that is coming already. */
static bool coming_begin(struct sh_raft *raft, const struct sh_raft_snapshot *snapshot)
{
    if (raft->coming.bytes && raft->coming.index == snapshot->index &&
        raft->coming.size == snapshot->size)
        return true;
    coming_drop(raft);
    uint8_t *bytes = malloc(snapshot->size ? snapshot->size : 1);
    if (!bytes)
        return false;
    raft->coming = *snapshot;
    raft->coming.bytes = bytes;
    return true;
}

/* Puts the whole snapshot in the place of the log, which does not reach so far, or differs. */
static bool install(struct sh_raft *raft)
{
    struct sh_raft_snapshot *snapshot = &raft->coming;
    const struct sh_raft_fsm *fsm = &raft->config.fsm;
    SH_ASSERT(raft->role == SH_RAFT_FOLLOWER && snapshot->index > raft->commit);
    enum shoal_err err =
        fsm->snapshot_get(fsm->arg, sh_bytes_make(snapshot->bytes, snapshot->size));
    if (err) {
        SH_ERROR("raft", "the leader's snapshot can't be taken", SH_ERR(err));
        coming_drop(raft);
        return false;
    }
    if (raft->stored_last > raft->commit)
        raft->stored_last = raft->commit;
    free(raft->snapshot.bytes);
    raft->snapshot = *snapshot;
    raft->coming = (struct sh_raft_snapshot){0};
    sh_entries_reset(&raft->log, raft->snapshot.index, raft->snapshot.term);
    raft->loaded_last = 0;
    raft->commit = raft->applied = raft->snapshot.index;
    sh_raft_log_members(raft);
    sh_raft_store_install(raft);
    SH_INFO("raft", "took the leader's snapshot", SH_U64("index", raft->snapshot.index));
    return true;
}

/* Whether the log holds the snapshot's last entry, and so all before it: they are committed. */
static bool has_all_of(struct sh_raft *raft, const struct sh_raft_snapshot *snapshot)
{
    uint64_t term;
    if (snapshot->index > raft->commit) {
        if (!sh_entries_term(&raft->log, snapshot->index, &term) || term != snapshot->term)
            return false;
        raft->commit = snapshot->index;
        sh_raft_apply(raft);
    }
    return true;
}

void sh_raft_on_snapshot(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_reader *r)
{
    SH_ASSERT(raft->role == SH_RAFT_FOLLOWER && raft->leader == from);
    (void)now_ns;
    struct sh_raft_snapshot snapshot = {.index = sh_get64(r), .term = 0};
    snapshot.term = sh_get64(r);
    snapshot.members.voters = sh_get64(r);
    snapshot.members.learners = sh_get64(r);
    uint64_t round = sh_get64(r);
    snapshot.size = sh_get32(r);
    uint32_t offset = sh_get32(r);
    size_t size = sh_reader_left(r);
    const uint8_t *bytes = sh_reader_take(r, size);
    if (!sh_reader_ok(r) || snapshot.size > SH_RAFT_SNAPSHOT_BYTES_MAX || offset > snapshot.size ||
        size > snapshot.size - offset || snapshot.term > raft->term || !snapshot.members.voters ||
        (snapshot.members.voters & snapshot.members.learners) || snapshot.index > UINT64_MAX / 2)
        return;
    if (has_all_of(raft, &snapshot)) {
        matched_raise(raft, raft->commit, round);
        return;
    }
    if (!coming_begin(raft, &snapshot))
        return;
    if (offset == raft->coming_at) {
        memcpy(raft->coming.bytes + offset, bytes, size);
        raft->coming_at += (uint32_t)size;
    }
    if (raft->coming_at == snapshot.size) {
        if (install(raft))
            matched_raise(raft, raft->commit, round);
        return;
    }
    struct sh_writer w = sh_raft_message_begin(raft, from, SH_RAFT_SNAPSHOT_ANSWER, 0, raft->term,
                                               20, raft->promise_lsn);
    sh_put64(&w, snapshot.index);
    sh_put64(&w, round);
    sh_put32(&w, raft->coming_at);
}
