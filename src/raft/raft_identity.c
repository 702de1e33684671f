/* Raft's identities: which log a server has, and which life it is in. raft.h says what for. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/life.h"
#include "base/log.h"
#include "raft/raft_int.h"

uint64_t sh_raft_draw(struct sh_raft *raft)
{
    return sh_mix64(raft->config.seed + UINT64_C(0x9e3779b97f4a7c15) * ++raft->draws);
}

uint64_t sh_raft_log_id(const struct sh_raft *raft)
{
    return raft->log_id;
}

uint64_t sh_raft_life(const struct sh_raft *raft)
{
    SH_ASSERT(raft->journal);
    return raft->life;
}

uint64_t sh_raft_refused_count(const struct sh_raft *raft)
{
    return raft->refused_count;
}

enum sh_raft_withdrawal sh_raft_withdrawal(const struct sh_raft *raft)
{
    return raft->withdrawal;
}

uint64_t sh_raft_founding_share(uint8_t server, uint64_t founding)
{
    return sh_mix64(founding + UINT64_C(0x9e3779b97f4a7c15) * server);
}

/* Any order of the answers gives the same ID, and another list of founders gives another one. */
void sh_raft_log_found(struct sh_raft *raft)
{
    SH_ASSERT(!raft->log_id && (raft->members.voters & sh_raft_bit(raft->config.server)));
    uint64_t sum = raft->founding_sum + sh_raft_founding_share(raft->config.server, raft->founding);
    raft->log_id = sh_mix64(sum + raft->members.voters);
    if (!raft->log_id)
        raft->log_id = 1;
    sh_raft_promise(raft);
}

/* Ends this server's part for good: its messages are dropped, and no more are made. */
static void withdraw(struct sh_raft *raft, enum sh_raft_withdrawal why)
{
    SH_ASSERT(why && !raft->withdrawal);
    raft->withdrawal = why;
    raft->role = SH_RAFT_FOLLOWER;
    raft->leader = 0;
    while (raft->messages) {
        struct sh_raft_message *message = raft->messages;
        raft->messages = message->next;
        free(message);
    }
    raft->messages_end = &raft->messages;
    raft->messages_count = 0;
}

static void withdraw_from_life(struct sh_raft *raft, uint64_t latest)
{
    SH_ERROR("raft",
             "another copy of this superpeer's data_dir was started since: this one is a clone or "
             "an old backup, and takes part no longer; stop it, and run the latest copy, or remove "
             "the files journal.* in its data_dir and start it with the others' addresses",
             SH_U64("starts", sh_life_starts(raft->life)),
             SH_U64("latest", sh_life_starts(latest)));
    withdraw(raft, SH_RAFT_OLDER_LIFE);
}

void sh_raft_life_set(struct sh_raft *raft, uint8_t server, uint64_t life)
{
    SH_ASSERT(server && server <= SH_RAFT_SERVER_MAX);
    raft->lives[server] = life;
    bool is_own = server == raft->config.server;
    if (is_own && !sh_life_starts(raft->life) && (uint32_t)raft->life == (uint32_t)life)
        raft->life = life; /* the members have counted it */
    if (is_own && raft->journal && !raft->withdrawal && sh_life_is_former(raft->life, life))
        withdraw_from_life(raft, life);
}

static void refuse(struct sh_raft *raft, uint8_t to, unsigned why)
{
    struct sh_writer w = sh_raft_message_begin(raft, to, SH_RAFT_REFUSED, (uint8_t)why, raft->term,
                                               16, raft->promise_lsn);
    sh_put64(&w, raft->lives[to]);
    sh_put64(&w, raft->commit);
}

/* Says once for each server and log that it is not the own one. */
static void log_other(struct sh_raft *raft, uint8_t from, uint64_t log_id)
{
    if (raft->told_logs[from] != log_id)
        SH_WARN("raft",
                "a superpeer shares another registry than this one: its messages are "
                "refused; if its data_dir was lost, remove the files journal.* there and start "
                "that superpeer with "
                "the others' addresses",
                SH_U64("superpeer", from), SH_U64("registry", log_id), SH_U64("own", raft->log_id));
    raft->told_logs[from] = log_id;
}

/* Says once for each server that its journal is of the other kind. */
static void log_kind(struct sh_raft *raft, uint8_t from)
{
    static const char *const kinds[] = {"on its disk", "in memory"};
    if (!(raft->told_kinds & sh_raft_bit(from)))
        SH_ERROR("raft",
                 "superpeers that keep the registry in memory (registry = memory) and superpeers "
                 "that keep it in their data_dir can't share one: that superpeer's messages are "
                 "refused; stop the one that was started in the wrong way, and start it with the "
                 "others' value of the option registry",
                 SH_U64("superpeer", from), SH_TEXT("keeps_it", kinds[!raft->config.is_memory]),
                 SH_TEXT("this_one", kinds[raft->config.is_memory]));
    raft->told_kinds |= sh_raft_bit(from);
}

bool sh_raft_identity_check(struct sh_raft *raft, uint8_t from, const struct sh_raft_head *head)
{
    bool is_probe = head->type == SH_RAFT_PROBE || head->type == SH_RAFT_PROBE_ANSWER;
    bool is_of_kind = !(head->flags & SH_RAFT_MEMORY) == !raft->config.is_memory;
    if (is_of_kind)
        raft->told_kinds &= ~sh_raft_bit(from);
    else
        log_kind(raft, from);
    if (sh_life_is_former(head->life, raft->lives[from])) {
        raft->refused_count++;
        refuse(raft, from, SH_RAFT_OLD_LIFE);
        return false;
    }
    /* One of another log is told so, of whichever kind: it may have to withdraw. */
    if (!is_of_kind && (!raft->log_id || !head->log_id || head->log_id == raft->log_id)) {
        raft->refused_count++;
        return false;
    }
    if (!head->log_id || head->log_id == raft->log_id)
        return is_probe || head->log_id;
    if (raft->log_id) {
        raft->refused_count++;
        log_other(raft, from, head->log_id);
        refuse(raft, from, SH_RAFT_OTHER_LOG);
        return false;
    }
    /* This server has promised nothing in any log, so it may take over any, from those who know: a
     * leader, or whom it asked. */
    if (head->type == SH_RAFT_APPEND || head->type == SH_RAFT_SNAPSHOT ||
        head->type == SH_RAFT_PROBE_ANSWER) {
        SH_ASSERT(raft->is_recovering);
        raft->log_id = head->log_id;
        sh_raft_promise(raft);
        return true;
    }
    return is_probe;
}

/* Whether the log of a sender that is of another one is that of a cluster which this server has
 * left by losing its folder; see raft.h. */
static bool is_left_alone(const struct sh_raft *raft, uint8_t from, uint64_t commit)
{
    uint64_t members = raft->members.voters | raft->members.learners;
    return !raft->is_forced && members == sh_raft_bit(raft->config.server) &&
           !(members & sh_raft_bit(from)) && commit >= raft->commit;
}

void sh_raft_on_refused(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                        const struct sh_raft_head *head, struct sh_reader *r)
{
    (void)now_ns;
    uint64_t life = sh_get64(r);
    uint64_t commit = sh_get64(r);
    if (!sh_reader_done(r) || !raft->log_id || !head->log_id)
        return;
    if (head->log_id == raft->log_id) {
        if ((head->flags & SH_RAFT_OLD_LIFE) && sh_life_is_former(raft->life, life))
            withdraw_from_life(raft, life);
        return;
    }
    if (!(head->flags & SH_RAFT_OTHER_LOG))
        return;
    log_other(raft, from, head->log_id);
    if (is_left_alone(raft, from, commit)) {
        SH_ERROR(
            "raft",
            "this superpeer lost its data_dir, and began a registry of its own that the "
            "others do not share: it takes part no longer; stop it, remove the files journal.* "
            "in its data_dir, and start it with the others' addresses in the option "
            "superpeers, so that it joins them",
            SH_U64("told_by", from));
        withdraw(raft, SH_RAFT_OTHER_LOG_THAN_MEMBERS);
    } else if (!(head->flags & SH_RAFT_REPLY)) {
        refuse(raft, from, SH_RAFT_OTHER_LOG | SH_RAFT_REPLY);
    }
}
