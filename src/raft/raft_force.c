/* One server goes on alone, in a log with another ID: see sh_raft_force. */
#include "base/assert.h"
#include "base/log.h"
#include "raft/raft_int.h"

enum shoal_err sh_raft_force(struct sh_raft *raft, struct sh_journal *journal, unsigned stream,
                             struct sh_bytes command)
{
    uint8_t members[SH_RAFT_MEMBERS_BYTES];
    SH_ASSERT(!raft->journal && journal && command.size <= SH_RAFT_COMMAND_BYTES_MAX);
    if (!raft->is_known || !raft->log_id)
        return SHOAL_ENONAME;
    uint64_t before = raft->log_id;
    raft->journal = journal;
    raft->stream = stream;
    raft->config.first = (struct sh_raft_members){.voters = sh_raft_bit(raft->config.server)};
    raft->is_forced = true;
    raft->is_recovering = false;
    while (raft->log_id == before || !raft->log_id)
        raft->log_id = sh_raft_draw(raft);
    sh_raft_term_set(raft, raft->term + 1, raft->config.server); /* stores all of that */
    sh_store64(members, raft->config.first.voters);
    sh_store64(members + 8, 0);
    enum shoal_err err = sh_raft_log_append(raft, raft->term, SH_RAFT_MEMBERS,
                                            sh_bytes_make(members, sizeof members));
    return err ? err : sh_raft_log_append(raft, raft->term, SH_RAFT_COMMAND, command);
}
