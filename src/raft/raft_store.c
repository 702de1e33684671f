/* What Raft has in the journal: promises, entries and snapshots, out and in. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft_int.h"

#define STATE_BYTES 44
#define FLAG_RECOVERING 1u
#define FLAG_FORCED 2u
#define SAVED_BYTES_MAX (SH_RAFT_MEMBERS_BYTES + (size_t)SH_RAFT_SNAPSHOT_BYTES_MAX)

_Static_assert(SH_RAFT_COMMAND_BYTES_MAX <= SH_JOURNAL_ENTRY_BYTES_MAX, "a command is an entry");
_Static_assert(STATE_BYTES <= SH_JOURNAL_STATE_BYTES_MAX, "the journal has room for the state");

void sh_raft_blob_free(struct sh_raft_blob *blob)
{
    free(blob->bytes);
    *blob = (struct sh_raft_blob){0};
}

bool sh_raft_is_synced(const struct sh_raft *raft, sh_lsn lsn)
{
    return raft->journal && lsn <= sh_journal_synced(raft->journal);
}

void sh_raft_promise(struct sh_raft *raft)
{
    uint8_t state[STATE_BYTES];
    if (!raft->journal)
        return; /* start does it */
    struct sh_writer w = sh_writer_make(state, sizeof state);
    sh_put8(&w, (uint8_t)((raft->is_recovering ? FLAG_RECOVERING : 0) |
                          (raft->is_forced ? FLAG_FORCED : 0)));
    sh_put8(&w, raft->vote);
    sh_put8(&w, raft->config.server);
    sh_put8(&w, 0);
    sh_put64(&w, raft->term);
    sh_put64(&w, raft->log_id);
    sh_put64(&w, raft->founding);
    sh_put64(&w, raft->config.first.voters);
    sh_put64(&w, raft->config.first.learners);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    raft->promise_lsn =
        sh_journal_state_set(raft->journal, raft->stream, sh_bytes_make(state, sizeof state));
}

/* --- Loading --------------------------------------------------------------------------------- */

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    struct sh_raft *raft = arg;
    struct sh_reader r = sh_reader_make(state);
    uint8_t flags = sh_get8(&r);
    uint8_t vote = sh_get8(&r);
    uint8_t server = sh_get8(&r);
    uint8_t zero = sh_get8(&r);
    uint64_t term = sh_get64(&r);
    uint64_t log_id = sh_get64(&r);
    uint64_t founding = sh_get64(&r);
    struct sh_raft_members first = {.voters = sh_get64(&r)};
    first.learners = sh_get64(&r);
    bool is_recovering = flags & FLAG_RECOVERING, is_forced = flags & FLAG_FORCED;
    if (!sh_reader_done(&r) || (flags & ~(FLAG_RECOVERING | FLAG_FORCED)) || zero ||
        term < raft->term || (!log_id && (term || !is_recovering)) ||
        (first.voters & first.learners) ||
        (raft->is_known && raft->log_id && log_id != raft->log_id && !is_forced))
        return SHOAL_ECORRUPT;
    if (server != raft->config.server)
        return SHOAL_ECLUSTER;
    raft->is_known = true;
    raft->is_recovering = is_recovering;
    raft->is_forced = is_forced;
    raft->vote = vote;
    raft->term = term;
    raft->log_id = log_id;
    raft->founding = founding;
    raft->config.first = first;
    if (!raft->snapshot.index) {
        raft->snapshot.members = first;
        sh_raft_log_members(raft);
    }
    return SHOAL_OK;
}

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    struct sh_raft *raft = arg;
    struct sh_raft_members members;
    uint64_t before;
    if (index <= raft->commit || !sh_entries_term(&raft->log, index - 1, &before) ||
        term < before || term > raft->term || kind < SH_RAFT_COMMAND || kind > SH_RAFT_MEMBERS ||
        (kind == SH_RAFT_MEMBERS && !sh_raft_members_get(bytes, &members)))
        return SHOAL_ECORRUPT;
    sh_raft_log_cut(raft, index);
    return sh_raft_log_append(raft, term, kind, bytes);
}

static enum shoal_err load_snapshot_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    struct sh_raft *raft = arg;
    sh_raft_blob_free(&raft->loading);
    raft->loading.index = index;
    raft->loading.term = term;
    if (is_first)
        sh_entries_reset(&raft->log, index, term);
    return SHOAL_OK;
}

static enum shoal_err load_snapshot_piece(void *arg, struct sh_bytes piece)
{
    struct sh_raft *raft = arg;
    struct sh_raft_blob *blob = &raft->loading;
    if (!piece.size)
        return SHOAL_OK;
    if (piece.size > SAVED_BYTES_MAX - blob->size)
        return SHOAL_ECORRUPT;
    if (blob->room - blob->size < piece.size) {
        size_t room =
            2 * blob->room > blob->size + piece.size ? 2 * blob->room : blob->size + piece.size;
        uint8_t *bytes = realloc(blob->bytes, room);
        if (!bytes)
            return SHOAL_ENOMEM;
        blob->bytes = bytes;
        blob->room = room;
    }
    memcpy(blob->bytes + blob->size, piece.at, piece.size);
    blob->size += piece.size;
    return SHOAL_OK;
}

/* Takes the loaded bytes for the snapshot, and gives them to the state machine. */
static enum shoal_err load_snapshot(struct sh_raft *raft)
{
    struct sh_raft_blob *blob = &raft->loading;
    if (blob->size < SH_RAFT_MEMBERS_BYTES)
        return SHOAL_ECORRUPT;
    struct sh_reader r = sh_reader_make(sh_bytes_make(blob->bytes, blob->size));
    struct sh_raft_snapshot snapshot = {.index = blob->index, .term = blob->term};
    snapshot.members.voters = sh_get64(&r);
    snapshot.members.learners = sh_get64(&r);
    size_t size = sh_reader_left(&r);
    if (snapshot.index < raft->snapshot.index ||
        (snapshot.members.voters & snapshot.members.learners) || (!snapshot.index && size))
        return SHOAL_ECORRUPT;
    snapshot.size = (uint32_t)size;
    snapshot.bytes = malloc(size ? size : 1);
    if (!snapshot.bytes)
        return SHOAL_ENOMEM;
    memcpy(snapshot.bytes, r.at, size);
    enum shoal_err err = SHOAL_OK;
    if (snapshot.index)
        err = raft->config.fsm.snapshot_get(raft->config.fsm.arg,
                                            sh_bytes_make(snapshot.bytes, size));
    if (err) {
        free(snapshot.bytes);
        return err;
    }
    free(raft->snapshot.bytes);
    raft->snapshot = snapshot;
    return SHOAL_OK;
}

static enum shoal_err load_snapshot_end(void *arg, bool is_reset)
{
    struct sh_raft *raft = arg;
    uint64_t term, index = raft->loading.index;
    if (is_reset)
        sh_entries_reset(&raft->log, index, raft->loading.term);
    if (!sh_entries_term(&raft->log, index, &term) || term != raft->loading.term)
        return SHOAL_ECORRUPT;
    enum shoal_err err = load_snapshot(raft);
    if (err)
        return err;
    sh_raft_blob_free(&raft->loading);
    sh_entries_shift(&raft->log, index);
    raft->commit = raft->applied = index;
    sh_raft_log_members(raft);
    return SHOAL_OK;
}

/* A server that leaves removes its whole journal. */
static enum shoal_err load_drop(void *arg)
{
    (void)arg;
    return SHOAL_ECORRUPT;
}

/* --- Snapshots ------------------------------------------------------------------------------- */

static bool snapshot_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    struct sh_raft *raft = arg;
    SH_ASSERT(raft->journal && !raft->saving.bytes);
    if (raft->applied > raft->snapshot.index)
        sh_raft_snapshot_take(raft); /* if memory is short, the one before will do */
    const struct sh_raft_snapshot *snapshot = &raft->snapshot;
    size_t size = SH_RAFT_MEMBERS_BYTES + snapshot->size;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return false;
    struct sh_writer w = sh_writer_make(bytes, size);
    sh_put64(&w, snapshot->members.voters);
    sh_put64(&w, snapshot->members.learners);
    sh_put_raw(&w, sh_bytes_make(snapshot->bytes, snapshot->size));
    raft->saving = (struct sh_raft_blob){
        .index = snapshot->index, .term = snapshot->term, .bytes = bytes, .size = size};
    *index_out = snapshot->index;
    *term_out = snapshot->term;
    return true;
}

static void snapshot_entries(void *arg)
{
    struct sh_raft *raft = arg;
    for (uint64_t i = raft->saving.index + 1; i <= sh_raft_log_last(raft); i++) {
        const struct sh_entry *entry = sh_raft_log_at(raft, i);
        SH_ASSERT(entry);
        (void)sh_journal_append(raft->journal, raft->stream, i, entry->term, entry->kind,
                                sh_bytes_make(entry->bytes, entry->size));
    }
}

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    struct sh_raft_blob *saving = &((struct sh_raft *)arg)->saving;
    SH_ASSERT(saving->bytes);
    size_t size = saving->size - saving->at < room ? saving->size - saving->at : room;
    memcpy(into, saving->bytes + saving->at, size);
    saving->at += size;
    return size;
}

static void snapshot_end(void *arg, bool is_done)
{
    (void)is_done; /* the journal asks again */
    sh_raft_blob_free(&((struct sh_raft *)arg)->saving);
}

struct sh_journal_stream sh_raft_stream(struct sh_raft *raft)
{
    return (struct sh_journal_stream){.load_state = load_state,
                                      .load_entry = load_entry,
                                      .load_snapshot_begin = load_snapshot_begin,
                                      .load_snapshot_piece = load_snapshot_piece,
                                      .load_snapshot_end = load_snapshot_end,
                                      .load_drop = load_drop,
                                      .snapshot_begin = snapshot_begin,
                                      .snapshot_entries = snapshot_entries,
                                      .snapshot_next = snapshot_next,
                                      .snapshot_end = snapshot_end,
                                      .arg = raft};
}

void sh_raft_store_install(struct sh_raft *raft)
{
    const struct sh_raft_snapshot *snapshot = &raft->snapshot;
    uint8_t members[SH_RAFT_MEMBERS_BYTES];
    sh_store64(members, snapshot->members.voters);
    sh_store64(members + 8, snapshot->members.learners);
    sh_journal_install_begin(raft->journal, raft->stream, snapshot->index, snapshot->term);
    sh_journal_install_piece(raft->journal, raft->stream, sh_bytes_make(members, sizeof members));
    for (size_t at = 0; at < snapshot->size;) {
        size_t size = snapshot->size - at;
        if (size > SH_JOURNAL_PIECE_BYTES_MAX)
            size = SH_JOURNAL_PIECE_BYTES_MAX;
        sh_journal_install_piece(raft->journal, raft->stream,
                                 sh_bytes_make(snapshot->bytes + at, size));
        at += size;
    }
    raft->base_lsn = sh_journal_install_end(raft->journal, raft->stream);
}

/* --- What is durable ------------------------------------------------------------------------- */

/* LSNs rise with the indexes, so the stored entries are a beginning of the log. */
static void stored_advance(struct sh_raft *raft)
{
    if (raft->stored_last < raft->log.base) {
        if (raft->base_lsn > raft->synced)
            return;
        raft->stored_last = raft->log.base;
    }
    const struct sh_entry *entry;
    while ((entry = sh_raft_log_at(raft, raft->stored_last + 1)) && entry->lsn <= raft->synced)
        raft->stored_last++;
}

void sh_raft_synced(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->journal);
    sh_lsn synced = sh_journal_synced(raft->journal);
    if (synced == raft->synced)
        return;
    raft->synced = synced;
    stored_advance(raft);
    if (raft->role == SH_RAFT_LEADER)
        sh_raft_lead_commit(raft, now_ns);
    else if (raft->role == SH_RAFT_CANDIDATE)
        sh_raft_votes_count(raft, now_ns);
    else
        sh_raft_follow_stored(raft);
}
