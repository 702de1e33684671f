/* Raft's life, its clock and its roles; what is told about it. */
#include "raft/raft.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft_int.h"

enum shoal_err sh_raft_create(const struct sh_raft_config *config, struct sh_raft **raft_out)
{
    SH_ASSERT(config->server && config->server <= SH_RAFT_SERVER_MAX);
    SH_ASSERT(config->heartbeat_ns && config->heartbeat_ns < config->election_ns);
    SH_ASSERT(config->snapshot_entries && config->piece_bytes >= 64);
    SH_ASSERT(!(config->first.voters & config->first.learners));
    struct sh_raft *raft = calloc(1, sizeof *raft);
    if (!raft)
        return SHOAL_ENOMEM;
    raft->config = *config;
    raft->snapshot.members = raft->members = config->first;
    raft->messages_end = &raft->messages;
    raft->nonce = sh_raft_draw(raft);
    raft->founding = sh_raft_draw(raft);
    /* Whoever else has a say may remember what we forgot. */
    raft->is_recovering = config->first.voters != sh_raft_bit(config->server);
    if (!raft->is_recovering)
        sh_raft_log_found(raft);
    *raft_out = raft;
    return SHOAL_OK;
}

void sh_raft_destroy(struct sh_raft *raft)
{
    if (!raft)
        return;
    while (raft->messages) {
        struct sh_raft_message *message = raft->messages;
        raft->messages = message->next;
        free(message);
    }
    sh_entries_reset(&raft->log, 0, 0);
    free(raft->snapshot.bytes);
    free(raft->coming.bytes);
    sh_raft_blob_free(&raft->loading);
    sh_raft_blob_free(&raft->saving);
    free(raft);
}

void sh_raft_election_defer(struct sh_raft *raft, uint64_t now_ns)
{
    raft->election_ns =
        now_ns + raft->config.election_ns + sh_raft_draw(raft) % (raft->config.election_ns + 1);
}

void sh_raft_start(struct sh_raft *raft, struct sh_journal *journal, unsigned stream, uint64_t life,
                   uint64_t now_ns)
{
    SH_ASSERT(!raft->journal && journal && life);
    raft->journal = journal;
    raft->stream = stream;
    raft->life = life;
    raft->synced = sh_journal_synced(journal);
    raft->stored_last = raft->loaded_last = sh_raft_log_last(raft); /* what was loaded is stored */
    sh_raft_promise(raft);
    raft->life_lsn = raft->promise_lsn; /* the caller has stored the life before */
    sh_raft_election_defer(raft, now_ns);
    if (!raft->is_recovering && raft->members.voters == sh_raft_bit(raft->config.server))
        raft->election_ns = now_ns; /* nobody else to wait for */
}

void sh_raft_term_set(struct sh_raft *raft, uint64_t term, uint8_t vote)
{
    SH_ASSERT(term > raft->term && raft->log_id);
    raft->term = term;
    raft->vote = vote;
    raft->leader = 0;
    raft->matched = raft->matched_round = 0;
    raft->owes_answer = false;
    sh_raft_promise(raft);
}

void sh_raft_follow(struct sh_raft *raft, uint64_t now_ns, uint64_t term)
{
    SH_ASSERT(term >= raft->term);
    if (term > raft->term)
        sh_raft_term_set(raft, term, 0);
    if (raft->role == SH_RAFT_LEADER) {
        SH_INFO("raft", "leads no longer", SH_U64("term", raft->term));
        raft->leader = 0;
        sh_raft_election_defer(raft, now_ns);
    }
    raft->role = SH_RAFT_FOLLOWER;
}

/* The members, and those of the last committed entry that says. */
static struct sh_raft_members members_needed(const struct sh_raft *raft)
{
    struct sh_raft_members members = raft->members;
    if (raft->members_index > raft->commit) {
        struct sh_raft_members committed = sh_raft_log_members_at(raft, raft->commit);
        members.voters |= committed.voters;
        members.learners |= committed.learners;
    }
    return members;
}

bool sh_raft_needs(const struct sh_raft *raft, uint8_t server)
{
    struct sh_raft_members members = members_needed(raft);
    return (members.voters | members.learners) & sh_raft_bit(server);
}

static bool may_campaign(const struct sh_raft *raft)
{
    if (raft->role == SH_RAFT_LEADER || raft->is_recovering || raft->withdrawal)
        return false;
    return members_needed(raft).voters & sh_raft_bit(raft->config.server);
}

void sh_raft_tick(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->journal);
    if (raft->withdrawal)
        return;
    if (raft->is_recovering)
        sh_raft_probe_tick(raft, now_ns);
    if (raft->role == SH_RAFT_LEADER)
        sh_raft_lead_tick(raft, now_ns);
    if (may_campaign(raft) && now_ns >= raft->election_ns)
        sh_raft_campaign(raft, now_ns, true);
}

uint64_t sh_raft_due_ns(const struct sh_raft *raft)
{
    uint64_t due_ns = SH_NEVER;
    if (raft->withdrawal)
        return due_ns;
    if (raft->role == SH_RAFT_LEADER)
        due_ns = raft->heartbeat_ns;
    else if (may_campaign(raft))
        due_ns = raft->election_ns;
    if (raft->is_recovering && raft->probe_ns < due_ns)
        due_ns = raft->probe_ns;
    return due_ns;
}

/* A message that only a leader sends. */
static void receive_as_follower(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                                const struct sh_raft_head *head, struct sh_reader *r)
{
    if (head->term < raft->term) { /* it learns the term from any answer, and steps down */
        (void)sh_raft_message_begin(raft, from, SH_RAFT_APPEND_ANSWER, 0, raft->term, 16,
                                    raft->promise_lsn);
        return;
    }
    if (raft->role == SH_RAFT_LEADER)
        return; /* two leaders of a term: nobody that keeps to the rules says so */
    sh_raft_follow(raft, now_ns, head->term);
    raft->leader = from;
    raft->leader_heard_ns = now_ns;
    sh_raft_election_defer(raft, now_ns);
    if (head->type == SH_RAFT_APPEND)
        sh_raft_on_append(raft, now_ns, from, r);
    else
        sh_raft_on_snapshot(raft, now_ns, from, r);
}

/* Hands a message of this log and of a current life to its function. */
static void receive(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                    const struct sh_raft_head *head, struct sh_reader *r)
{
    if (head->type == SH_RAFT_PROBE) {
        sh_raft_on_probe(raft, from, r);
        return;
    }
    if (head->type == SH_RAFT_PROBE_ANSWER) {
        sh_raft_on_probe_answer(raft, now_ns, from, head, r);
        return;
    }
    if (head->type == SH_RAFT_VOTE_ASK) {
        sh_raft_on_vote_ask(raft, now_ns, from, head->flags, head->term, r);
        return;
    }
    if (head->term > raft->term &&
        !(head->type == SH_RAFT_VOTE_ANSWER && (head->flags & SH_RAFT_YES)))
        sh_raft_follow(raft, now_ns, head->term);
    if (head->type == SH_RAFT_VOTE_ANSWER) {
        sh_raft_on_vote_answer(raft, now_ns, from, head->flags, head->term);
        return;
    }
    if (head->type == SH_RAFT_APPEND || head->type == SH_RAFT_SNAPSHOT) {
        receive_as_follower(raft, now_ns, from, head, r);
        return;
    }
    if (head->term != raft->term || raft->role != SH_RAFT_LEADER)
        return;
    sh_raft_lead_life(raft, from, head->life);
    if (head->type == SH_RAFT_APPEND_ANSWER)
        sh_raft_on_append_answer(raft, now_ns, from, head->flags, r);
    else
        sh_raft_on_snapshot_answer(raft, now_ns, from, r);
}

void sh_raft_receive(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_bytes message)
{
    SH_ASSERT(raft->journal);
    struct sh_reader r = sh_reader_make(message);
    struct sh_raft_head head = {.type = sh_get8(&r)};
    head.flags = sh_get8(&r);
    uint16_t zero = sh_get16(&r);
    head.term = sh_get64(&r);
    head.log_id = sh_get64(&r);
    head.life = sh_get64(&r);
    if (!sh_reader_ok(&r) || zero || !from || from > SH_RAFT_SERVER_MAX ||
        from == raft->config.server || head.term > UINT64_MAX / 2 || head.type < SH_RAFT_VOTE_ASK ||
        head.type > SH_RAFT_REFUSED || raft->withdrawal)
        return;
    if (head.type == SH_RAFT_REFUSED)
        sh_raft_on_refused(raft, now_ns, from, &head, &r);
    else if (sh_raft_identity_check(raft, from, &head))
        receive(raft, now_ns, from, &head, &r);
}

void sh_raft_apply(struct sh_raft *raft)
{
    while (raft->applied < raft->commit) {
        const struct sh_entry *entry = sh_raft_log_at(raft, raft->applied + 1);
        SH_ASSERT(entry);
        raft->applied++;
        if (entry->kind == SH_RAFT_COMMAND)
            raft->config.fsm.apply(raft->config.fsm.arg, raft->applied, entry->term,
                                   sh_bytes_make(entry->bytes, entry->size));
    }
    if (raft->applied - raft->snapshot.index >= raft->config.snapshot_entries)
        sh_raft_snapshot_take(raft);
}

/* --- Proposals and reads --------------------------------------------------------------------- */

enum shoal_err sh_raft_propose(struct sh_raft *raft, struct sh_bytes command, uint64_t *index_out,
                               uint64_t *term_out)
{
    if (raft->role != SH_RAFT_LEADER)
        return SHOAL_EROLE;
    if (command.size > SH_RAFT_COMMAND_BYTES_MAX)
        return SHOAL_ETOOBIG;
    if (sh_raft_log_last(raft) - raft->commit >= SH_RAFT_BACKLOG_MAX ||
        sh_journal_is_full(raft->journal))
        return SHOAL_EBUSY;
    enum shoal_err err = sh_raft_log_append(raft, raft->term, SH_RAFT_COMMAND, command);
    if (err)
        return err;
    sh_raft_lead_send_all(raft);
    *index_out = sh_raft_log_last(raft);
    *term_out = raft->term;
    return SHOAL_OK;
}

static bool members_are_sound(struct sh_raft_members members)
{
    return members.voters && !(members.voters & members.learners) &&
           !((members.voters | members.learners) & 1);
}

enum shoal_err sh_raft_members_change(struct sh_raft *raft, struct sh_raft_members members)
{
    if (raft->role != SH_RAFT_LEADER)
        return SHOAL_EROLE;
    uint64_t changed = members.voters ^ raft->members.voters;
    uint64_t more = members.voters & ~raft->members.voters;
    if (!members_are_sound(members) || __builtin_popcountll(changed) > 1 ||
        (more & ~raft->members.learners))
        return SHOAL_EINVAL;
    if (raft->members_index > raft->commit || raft->led_first > raft->commit)
        return SHOAL_EBUSY;
    if (more) {
        const struct sh_raft_progress *learner = &raft->progress[__builtin_ctzll(more)];
        if (learner->match < raft->commit || learner->is_recovering)
            return SHOAL_EBUSY;
    }
    uint64_t known = raft->members.voters | raft->members.learners;
    uint8_t bytes[16];
    sh_store64(bytes, members.voters);
    sh_store64(bytes + 8, members.learners);
    enum shoal_err err =
        sh_raft_log_append(raft, raft->term, SH_RAFT_MEMBERS, sh_bytes_make(bytes, sizeof bytes));
    if (err)
        return err;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        if (!(known & sh_raft_bit(i)))
            raft->progress[i] = (struct sh_raft_progress){.next = raft->snapshot.index + 1};
    }
    sh_raft_lead_send_all(raft);
    return SHOAL_OK;
}

/* --- State ----------------------------------------------------------------------------------- */

enum sh_raft_role sh_raft_role(const struct sh_raft *raft)
{
    return raft->role;
}

uint8_t sh_raft_leader(const struct sh_raft *raft)
{
    return raft->leader;
}

uint64_t sh_raft_term(const struct sh_raft *raft)
{
    return raft->term;
}

uint64_t sh_raft_commit(const struct sh_raft *raft)
{
    return raft->commit;
}

uint64_t sh_raft_applied(const struct sh_raft *raft)
{
    return raft->applied;
}

uint64_t sh_raft_last(const struct sh_raft *raft)
{
    return sh_raft_log_last(raft);
}

uint64_t sh_raft_loaded_last(const struct sh_raft *raft)
{
    return raft->loaded_last;
}

uint64_t sh_raft_last_term(const struct sh_raft *raft)
{
    uint64_t term = 0;
    bool is_known = sh_entries_term(&raft->log, sh_raft_log_last(raft), &term);
    SH_ASSERT(is_known);
    return term;
}

struct sh_raft_members sh_raft_members(const struct sh_raft *raft)
{
    return raft->members;
}

bool sh_raft_is_new(const struct sh_raft *raft)
{
    return !raft->is_known;
}

bool sh_raft_is_recovering(const struct sh_raft *raft)
{
    return raft->is_recovering;
}

bool sh_raft_is_current(const struct sh_raft *raft)
{
    return raft->is_current && raft->leader;
}

void sh_raft_leader_gone(struct sh_raft *raft, uint64_t now_ns, uint8_t server)
{
    if (raft->role != SH_RAFT_FOLLOWER || !raft->leader || raft->leader != server ||
        raft->is_recovering)
        return;
    raft->leader = 0;
    uint64_t half_ns = raft->config.heartbeat_ns / 2;
    raft->election_ns = now_ns + half_ns + sh_raft_draw(raft) % (half_ns + 1);
}

uint64_t sh_raft_leader_heard_ns(const struct sh_raft *raft)
{
    return raft->leader_heard_ns;
}

uint64_t sh_raft_heard_ns(const struct sh_raft *raft, uint8_t server)
{
    SH_ASSERT(server && server <= SH_RAFT_SERVER_MAX);
    return raft->role == SH_RAFT_LEADER ? raft->progress[server].heard_ns : 0;
}

bool sh_raft_entry(const struct sh_raft *raft, uint64_t index, uint64_t *term_out,
                   struct sh_bytes *command_out)
{
    const struct sh_entry *entry = sh_raft_log_at(raft, index);
    if (!entry)
        return false;
    *term_out = entry->term;
    *command_out = sh_bytes_make(entry->bytes, entry->size);
    return true;
}
