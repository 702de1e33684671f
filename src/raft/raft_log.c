/* Raft's entries and snapshot in memory, and as records. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "raft/raft_int.h"

#define RECORD_VOTE 1
#define RECORD_SNAPSHOT 2
#define RECORD_ENTRY 3
#define RECORD_VOTE_BYTES 36
#define RECORD_SNAPSHOT_BYTES 37
#define RECORD_ENTRY_BYTES 22

uint64_t sh_raft_log_last(const struct sh_raft *raft)
{
    return raft->first + raft->count - 1;
}

const struct sh_raft_entry *sh_raft_log_at(const struct sh_raft *raft, uint64_t index)
{
    if (index < raft->first || index - raft->first >= raft->count)
        return NULL;
    return &raft->entries[index - raft->first];
}

bool sh_raft_log_term(const struct sh_raft *raft, uint64_t index, uint64_t *term_out)
{
    const struct sh_raft_entry *entry = sh_raft_log_at(raft, index);
    if (!entry && index != raft->snapshot.index)
        return false;
    *term_out = entry ? entry->term : raft->snapshot.term;
    return true;
}

bool sh_raft_members_get(struct sh_bytes bytes, struct sh_raft_members *members_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_raft_members members = {.voters = sh_get64(&r)};
    members.learners = sh_get64(&r);
    if (!sh_reader_done(&r) || !members.voters || (members.voters & members.learners) ||
        ((members.voters | members.learners) & 1))
        return false;
    *members_out = members;
    return true;
}

/* The last entry up to index, behind the snapshot, that says who is a member; 0: none. */
static uint64_t members_entry(const struct sh_raft *raft, uint64_t index)
{
    for (uint64_t i = index; i > raft->snapshot.index; i--) {
        const struct sh_raft_entry *entry = sh_raft_log_at(raft, i);
        SH_ASSERT(entry);
        if (entry->kind == SH_RAFT_MEMBERS)
            return i;
    }
    return 0;
}

struct sh_raft_members sh_raft_log_members_at(const struct sh_raft *raft, uint64_t index)
{
    struct sh_raft_members members = raft->snapshot.members;
    uint64_t from = members_entry(raft, index);
    if (from) {
        const struct sh_raft_entry *entry = sh_raft_log_at(raft, from);
        bool is_sound = sh_raft_members_get(sh_bytes_make(entry->bytes, entry->size), &members);
        SH_ASSERT(is_sound); /* checked when it was appended */
    }
    return members;
}

void sh_raft_log_members(struct sh_raft *raft)
{
    uint64_t last = sh_raft_log_last(raft);
    uint64_t from = members_entry(raft, last);
    raft->members = sh_raft_log_members_at(raft, last);
    raft->members_index = from ? from : raft->snapshot.index;
}

static enum shoal_err make_room(struct sh_raft *raft)
{
    if (raft->count < raft->room)
        return SHOAL_OK;
    size_t room = raft->room ? 2 * raft->room : 64;
    struct sh_raft_entry *entries = realloc(raft->entries, room * sizeof *entries);
    if (!entries)
        return SHOAL_ENOMEM;
    raft->entries = entries;
    raft->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_raft_log_append(struct sh_raft *raft, uint64_t term, uint8_t kind,
                                  struct sh_bytes bytes)
{
    enum shoal_err err = make_room(raft);
    if (err)
        return err;
    struct sh_raft_entry entry = {.term = term, .kind = kind, .size = (uint32_t)bytes.size};
    if (bytes.size) {
        entry.bytes = malloc(bytes.size);
        if (!entry.bytes)
            return SHOAL_ENOMEM;
        memcpy(entry.bytes, bytes.at, bytes.size);
    }
    raft->entries[raft->count++] = entry;
    raft->changes++;
    if (kind == SH_RAFT_MEMBERS)
        sh_raft_log_members(raft);
    return SHOAL_OK;
}

void sh_raft_log_cut(struct sh_raft *raft, uint64_t index)
{
    SH_ASSERT(index > raft->commit && index >= raft->first);
    while (sh_raft_log_last(raft) >= index)
        free(raft->entries[--raft->count].bytes);
    if (raft->unsaved > index)
        raft->unsaved = index;
    if (raft->stored_last >= index)
        raft->stored_last = index - 1;
    if (raft->batch_last >= index)
        raft->batch_last = index - 1;
    if (raft->matched >= index)
        raft->matched = index - 1;
    raft->changes++;
    if (raft->members_index >= index)
        sh_raft_log_members(raft);
}

void sh_raft_log_shift(struct sh_raft *raft, uint64_t index)
{
    SH_ASSERT(index <= raft->snapshot.index + 1);
    if (index <= raft->first)
        return;
    size_t gone = index - raft->first < raft->count ? (size_t)(index - raft->first) : raft->count;
    for (size_t i = 0; i < gone; i++)
        free(raft->entries[i].bytes);
    raft->count -= gone;
    if (raft->count)
        memmove(raft->entries, raft->entries + gone, raft->count * sizeof raft->entries[0]);
    raft->first = index;
}

void sh_raft_snapshot_take(struct sh_raft *raft)
{
    const struct sh_raft_fsm *fsm = &raft->config.fsm;
    uint64_t index = raft->applied;
    size_t size = fsm->snapshot_size(fsm->arg);
    SH_ASSERT(size <= SH_RAFT_SNAPSHOT_BYTES_MAX);
    struct sh_raft_snapshot snapshot = {.index = index, .size = (uint32_t)size};
    snapshot.bytes = malloc(size ? size : 1);
    if (!snapshot.bytes)
        return;
    struct sh_writer w = sh_writer_make(snapshot.bytes, size);
    fsm->snapshot_put(fsm->arg, &w);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    bool is_known = sh_raft_log_term(raft, index, &snapshot.term);
    SH_ASSERT(is_known);
    snapshot.members = sh_raft_log_members_at(raft, index);
    free(raft->snapshot.bytes);
    raft->snapshot = snapshot;
    sh_raft_log_members(raft);
    /* Some entries stay for followers that are a little behind. */
    uint64_t kept = raft->config.snapshot_entries / 2;
    sh_raft_log_shift(raft, index > kept ? index - kept + 1 : 1);
    raft->base_is_wanted = true;
    raft->changes++;
}

/* --- Records --------------------------------------------------------------------------------- */

static size_t batch_size(const struct sh_raft *raft, uint64_t from, bool is_base)
{
    size_t size = RECORD_VOTE_BYTES;
    if (is_base)
        size += RECORD_SNAPSHOT_BYTES + raft->snapshot.size;
    for (uint64_t i = from; i <= sh_raft_log_last(raft); i++)
        size += RECORD_ENTRY_BYTES + sh_raft_log_at(raft, i)->size;
    return size;
}

static void batch_put(struct sh_writer *w, const struct sh_raft *raft, uint64_t from, bool is_base)
{
    sh_put8(w, RECORD_VOTE);
    sh_put8(w, raft->is_recovering);
    sh_put8(w, raft->vote);
    sh_put8(w, raft->config.server);
    sh_put64(w, raft->term);
    sh_put64(w, raft->log_id);
    sh_put64(w, raft->life);
    sh_put64(w, raft->founding);
    if (is_base) {
        const struct sh_raft_snapshot *snapshot = &raft->snapshot;
        sh_put8(w, RECORD_SNAPSHOT);
        sh_put64(w, snapshot->index);
        sh_put64(w, snapshot->term);
        sh_put64(w, snapshot->members.voters);
        sh_put64(w, snapshot->members.learners);
        sh_put32(w, snapshot->size);
        sh_put_raw(w, sh_bytes_make(snapshot->bytes, snapshot->size));
    }
    for (uint64_t i = from; i <= sh_raft_log_last(raft); i++) {
        const struct sh_raft_entry *entry = sh_raft_log_at(raft, i);
        sh_put8(w, RECORD_ENTRY);
        sh_put8(w, entry->kind);
        sh_put64(w, i);
        sh_put64(w, entry->term);
        sh_put32(w, entry->size);
        sh_put_raw(w, sh_bytes_make(entry->bytes, entry->size));
    }
}

bool sh_raft_store_next(struct sh_raft *raft, bool base, struct sh_raft_batch *batch_out)
{
    SH_ASSERT(raft->is_started && (!raft->batch_is_out || base));
    if (base)
        raft->base_is_wanted = true;
    if (!raft->base_is_wanted && raft->changes == raft->stored_changes)
        return false;
    bool is_base = raft->base_is_wanted;
    uint64_t from = is_base ? raft->snapshot.index + 1 : raft->unsaved;
    size_t size = batch_size(raft, from, is_base);
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return false;
    struct sh_writer w = sh_writer_make(bytes, size);
    batch_put(&w, raft, from, is_base);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    free(raft->batch);
    raft->batch = bytes;
    raft->batch_changes = raft->changes;
    raft->batch_last = sh_raft_log_last(raft);
    raft->unsaved = raft->batch_last + 1;
    raft->batch_is_out = true;
    raft->base_is_wanted = false;
    *batch_out = (struct sh_raft_batch){.bytes = sh_bytes_make(bytes, size), .is_base = is_base};
    return true;
}

void sh_raft_stored(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->batch_is_out);
    raft->batch_is_out = false;
    raft->stored_changes = raft->batch_changes;
    raft->stored_last = raft->batch_last;
    free(raft->batch);
    raft->batch = NULL;
    if (raft->role == SH_RAFT_LEADER)
        sh_raft_lead_commit(raft, now_ns);
    else if (raft->role == SH_RAFT_CANDIDATE)
        sh_raft_votes_count(raft, now_ns);
    else
        sh_raft_follow_stored(raft);
}

static enum shoal_err load_vote(struct sh_raft *raft, struct sh_reader *r)
{
    uint8_t flags = sh_get8(r);
    uint8_t vote = sh_get8(r);
    uint8_t server = sh_get8(r);
    uint64_t term = sh_get64(r);
    uint64_t log_id = sh_get64(r);
    uint64_t life = sh_get64(r);
    uint64_t founding = sh_get64(r);
    if (!sh_reader_ok(r) || flags > 1 || term < raft->term || (!log_id && (term || !flags)) ||
        life >> 32 == UINT32_MAX)
        return SHOAL_ECORRUPT;
    if (server != raft->config.server)
        return SHOAL_ECLUSTER;
    raft->is_recovering = flags;
    raft->vote = vote;
    raft->term = term;
    raft->log_id = log_id;
    raft->life = life;
    raft->founding = founding;
    return SHOAL_OK;
}

static enum shoal_err load_snapshot(struct sh_raft *raft, struct sh_reader *r)
{
    struct sh_raft_snapshot snapshot = {.index = sh_get64(r), .term = 0};
    snapshot.term = sh_get64(r);
    snapshot.members.voters = sh_get64(r);
    snapshot.members.learners = sh_get64(r);
    snapshot.size = sh_get32(r);
    const uint8_t *bytes = sh_reader_take(r, snapshot.size);
    if (!sh_reader_ok(r) || raft->snapshot.index || raft->count)
        return SHOAL_ECORRUPT;
    if (snapshot.index) {
        enum shoal_err err = raft->config.fsm.snapshot_get(raft->config.fsm.arg,
                                                           sh_bytes_make(bytes, snapshot.size));
        if (err)
            return err;
        snapshot.bytes = malloc(snapshot.size ? snapshot.size : 1);
        if (!snapshot.bytes)
            return SHOAL_ENOMEM;
        memcpy(snapshot.bytes, bytes, snapshot.size);
    }
    raft->snapshot = snapshot;
    raft->members = snapshot.members;
    raft->members_index = raft->commit = raft->applied = snapshot.index;
    raft->first = raft->unsaved = snapshot.index + 1;
    return SHOAL_OK;
}

static enum shoal_err load_entry(struct sh_raft *raft, struct sh_reader *r)
{
    uint8_t kind = sh_get8(r);
    uint64_t index = sh_get64(r);
    uint64_t term = sh_get64(r);
    uint32_t size = sh_get32(r);
    const uint8_t *bytes = sh_reader_take(r, size);
    struct sh_raft_members members;
    if (!sh_reader_ok(r) || index < raft->first || index > sh_raft_log_last(raft) + 1 ||
        kind < SH_RAFT_COMMAND || kind > SH_RAFT_MEMBERS)
        return SHOAL_ECORRUPT;
    if (kind == SH_RAFT_MEMBERS && !sh_raft_members_get(sh_bytes_make(bytes, size), &members))
        return SHOAL_ECORRUPT;
    if (index <= sh_raft_log_last(raft))
        sh_raft_log_cut(raft, index);
    return sh_raft_log_append(raft, term, kind, sh_bytes_make(bytes, size));
}

enum shoal_err sh_raft_load(struct sh_raft *raft, struct sh_bytes batch)
{
    SH_ASSERT(!raft->is_started);
    struct sh_reader r = sh_reader_make(batch);
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_reader_left(&r)) {
        switch (sh_get8(&r)) {
        case RECORD_VOTE:
            err = load_vote(raft, &r);
            break;
        case RECORD_SNAPSHOT:
            err = load_snapshot(raft, &r);
            break;
        case RECORD_ENTRY:
            err = load_entry(raft, &r);
            break;
        default:
            err = SHOAL_ECORRUPT;
        }
    }
    return err;
}
