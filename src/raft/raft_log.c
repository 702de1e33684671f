/* Raft's entries and snapshot in memory, and who is a member by them. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft_int.h"

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
    /* While the journal loads, the entries may begin behind a snapshot that follows them. */
    for (uint64_t i = index; i > raft->snapshot.index && i > raft->log.base; i--) {
        const struct sh_entry *entry = sh_raft_log_at(raft, i);
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
        const struct sh_entry *entry = sh_raft_log_at(raft, from);
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

enum shoal_err sh_raft_log_append(struct sh_raft *raft, uint64_t term, uint8_t kind,
                                  struct sh_bytes bytes)
{
    enum shoal_err err = sh_entries_append(&raft->log, term, kind, bytes);
    if (err)
        return err;
    uint64_t index = sh_raft_log_last(raft);
    if (raft->journal)
        sh_raft_log_at(raft, index)->lsn =
            sh_journal_append(raft->journal, raft->stream, index, term, kind, bytes);
    if (kind == SH_RAFT_MEMBERS)
        sh_raft_log_members(raft);
    return SHOAL_OK;
}

void sh_raft_log_cut(struct sh_raft *raft, uint64_t index)
{
    SH_ASSERT(index > raft->commit && index > raft->log.base);
    sh_entries_cut(&raft->log, index);
    if (raft->stored_last >= index)
        raft->stored_last = index - 1;
    if (raft->loaded_last >= index)
        raft->loaded_last = index - 1;
    if (raft->members_index >= index)
        sh_raft_log_members(raft);
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
    bool is_known = sh_entries_term(&raft->log, index, &snapshot.term);
    SH_ASSERT(is_known);
    snapshot.members = sh_raft_log_members_at(raft, index);
    free(raft->snapshot.bytes);
    raft->snapshot = snapshot;
    sh_raft_log_members(raft);
    /* Some entries stay for followers that are a little behind. */
    uint64_t kept = raft->config.snapshot_entries / 2;
    if (index <= raft->log.base + kept)
        return;
    raft->base_lsn = sh_raft_log_at(raft, index - kept)->lsn;
    sh_entries_shift(&raft->log, index - kept);
}
