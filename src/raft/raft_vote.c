/* Raft's elections, and the questions of a server that may have forgotten votes.
 *
 *              silence              poll won                 vote won, own one stored
 *   FOLLOWER ----------> PRECANDIDATE ----------> CANDIDATE ----------> LEADER
 *      ^ ^                  |      ^                | |                   |
 *      | '--leader heard----'      '-----silence----' |                   |
 *      '--leader heard, or a higher term--------------'                   |
 *      '--a higher term, no majority heard, or no voter any more----------'
 *
 * Only the steps to CANDIDATE and LEADER promise something, which is stored first. A server that is
 * recovering or has withdrawn stays a FOLLOWER. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "raft/raft_int.h"

/* A majority of those who answered; we ourselves count once our own vote is stored. */
void sh_raft_votes_count(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->role == SH_RAFT_PRECANDIDATE || raft->role == SH_RAFT_CANDIDATE);
    uint64_t votes = raft->votes;
    if (raft->role == SH_RAFT_PRECANDIDATE || sh_raft_is_synced(raft, raft->promise_lsn))
        votes |= sh_raft_bit(raft->config.server);
    if (!sh_raft_is_majority(votes, raft->members.voters))
        return;
    if (raft->role == SH_RAFT_PRECANDIDATE)
        sh_raft_campaign(raft, now_ns, false);
    else
        sh_raft_lead(raft, now_ns);
}

void sh_raft_campaign(struct sh_raft *raft, uint64_t now_ns, bool is_poll)
{
    SH_ASSERT(raft->role != SH_RAFT_LEADER && !raft->is_recovering);
    raft->role = is_poll ? SH_RAFT_PRECANDIDATE : SH_RAFT_CANDIDATE;
    raft->votes = 0;
    raft->leader = 0;
    if (!is_poll)
        sh_raft_term_set(raft, raft->term + 1, raft->config.server);
    sh_raft_election_defer(raft, now_ns);
    uint64_t last = sh_raft_log_last(raft), last_term = 0;
    (void)sh_entries_term(&raft->log, last, &last_term);
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        if (i == raft->config.server || !(raft->members.voters & sh_raft_bit(i)))
            continue;
        struct sh_writer w =
            sh_raft_message_begin(raft, i, SH_RAFT_VOTE_ASK, is_poll ? SH_RAFT_PRE : 0,
                                  raft->term + is_poll, 16, raft->promise_lsn);
        sh_put64(&w, last);
        sh_put64(&w, last_term);
    }
    sh_raft_votes_count(raft, now_ns);
}

static bool hears_a_leader(const struct sh_raft *raft, uint64_t now_ns)
{
    return raft->role == SH_RAFT_LEADER ||
           (raft->leader && now_ns < raft->leader_heard_ns + raft->config.election_ns);
}

void sh_raft_on_vote_ask(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                         uint64_t term, struct sh_reader *r)
{
    uint64_t last = sh_get64(r);
    uint64_t last_term = sh_get64(r);
    if (!sh_reader_done(r) || raft->is_recovering)
        return;
    bool is_poll = flags & SH_RAFT_PRE;
    bool is_heard = hears_a_leader(raft, now_ns);
    if (!is_poll && term > raft->term) {
        if (is_heard)
            return; /* whoever asks was cut off, or has been removed: it must not disturb */
        sh_raft_follow(raft, now_ns, term);
    }
    uint64_t own_last = sh_raft_log_last(raft), own_term = 0;
    (void)sh_entries_term(&raft->log, own_last, &own_term);
    bool is_behind = last_term < own_term || (last_term == own_term && last < own_last);
    bool yes = !is_behind && !is_heard;
    if (is_poll)
        yes = yes && term > raft->term;
    else
        yes = yes && term == raft->term && (!raft->vote || raft->vote == from);
    if (yes && !is_poll) {
        if (!raft->vote) {
            raft->vote = from;
            sh_raft_promise(raft);
        }
        sh_raft_election_defer(raft, now_ns);
    }
    /* A poll that succeeds is answered with the term that it asks for. */
    (void)sh_raft_message_begin(raft, from, SH_RAFT_VOTE_ANSWER,
                                (uint8_t)((flags & SH_RAFT_PRE) | (yes ? SH_RAFT_YES : 0)),
                                yes ? term : raft->term, 0, raft->promise_lsn);
}

void sh_raft_on_vote_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                            uint64_t term)
{
    bool is_poll = flags & SH_RAFT_PRE;
    bool asked = is_poll ? raft->role == SH_RAFT_PRECANDIDATE && term == raft->term + 1
                         : raft->role == SH_RAFT_CANDIDATE && term == raft->term;
    if (!(flags & SH_RAFT_YES) || !asked)
        return;
    raft->votes |= sh_raft_bit(from);
    sh_raft_votes_count(raft, now_ns);
}

/* --- Recovering servers
 * ---------------------------------------------------------------------------- */

static uint64_t probes_missing(const struct sh_raft *raft)
{
    return raft->members.voters & ~sh_raft_bit(raft->config.server) & ~raft->probed;
}

/* Once all have answered: what we may have promised, and must therefore keep. */
static void probes_conclude(struct sh_raft *raft, uint64_t now_ns)
{
    if (raft->probe_is_over || probes_missing(raft) || !raft->members.voters)
        return;
    raft->probe_is_over = true;
    if (!raft->heard_term) {
        if (!raft->log_id && !(raft->members.voters & sh_raft_bit(raft->config.server)))
            return; /* not one of the founders: a leader will come */
        SH_INFO("raft", "a new cluster: every other server is new too");
        if (!raft->log_id)
            sh_raft_log_found(raft);
        raft->is_recovering = false;
        sh_raft_promise(raft);
        sh_raft_election_defer(raft, now_ns);
        return;
    }
    SH_WARN("raft", "the storage was empty in a cluster that is not new: catching up before voting",
            SH_U64("term", raft->heard_term));
    if (raft->heard_term > raft->term)
        sh_raft_follow(raft, now_ns, raft->heard_term);
    if (raft->term == raft->heard_term) {
        raft->vote = SH_RAFT_VOTE_SPENT;
        sh_raft_promise(raft);
    }
}

void sh_raft_probe_tick(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->is_recovering);
    if (now_ns < raft->probe_ns)
        return;
    probes_conclude(raft, now_ns); /* whom we waited for may be no voter any more */
    uint64_t missing = probes_missing(raft);
    raft->probe_ns = raft->probe_is_over ? SH_NEVER : now_ns + raft->config.heartbeat_ns;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        if (raft->probe_is_over || !(missing & sh_raft_bit(i)))
            continue;
        struct sh_writer w = sh_raft_message_begin(raft, i, SH_RAFT_PROBE, 0, 0, 8, 0);
        sh_put64(&w, raft->nonce);
    }
}

void sh_raft_on_probe(struct sh_raft *raft, uint8_t from, struct sh_reader *r)
{
    uint64_t nonce = sh_get64(r);
    if (!sh_reader_done(r))
        return;
    struct sh_writer w = sh_raft_message_begin(raft, from, SH_RAFT_PROBE_ANSWER, 0, raft->term, 16,
                                               raft->promise_lsn);
    sh_put64(&w, nonce);
    sh_put64(&w, raft->founding);
}

void sh_raft_on_probe_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                             const struct sh_raft_head *head, struct sh_reader *r)
{
    uint64_t nonce = sh_get64(r);
    uint64_t founding = sh_get64(r);
    if (!sh_reader_done(r) || nonce != raft->nonce || !raft->is_recovering || raft->probe_is_over ||
        (head->term && !head->log_id))
        return;
    if (!(raft->probed & sh_raft_bit(from)))
        raft->founding_sum += sh_raft_founding_share(from, founding);
    raft->probed |= sh_raft_bit(from);
    if (head->term > raft->heard_term)
        raft->heard_term = head->term;
    probes_conclude(raft, now_ns);
}
