/* Raft's leader: what it sends, what is committed. */
#include "base/assert.h"
#include "base/log.h"
#include "raft/raft_int.h"

#define APPEND_BYTES 36
#define SNAPSHOT_BYTES 48

static void send_snapshot(struct sh_raft *raft, uint8_t to)
{
    struct sh_raft_progress *progress = &raft->progress[to];
    const struct sh_raft_snapshot *snapshot = &raft->snapshot;
    if (progress->snapshot != snapshot->index) {
        progress->snapshot = snapshot->index;
        progress->snapshot_at = 0;
    }
    uint32_t size = snapshot->size - progress->snapshot_at;
    if (size > raft->config.piece_bytes)
        size = raft->config.piece_bytes;
    struct sh_writer w = sh_raft_message_begin(raft, to, SH_RAFT_SNAPSHOT, 0, raft->term,
                                               SNAPSHOT_BYTES + size, raft->promise_lsn);
    sh_put64(&w, snapshot->index);
    sh_put64(&w, snapshot->term);
    sh_put64(&w, snapshot->members.voters);
    sh_put64(&w, snapshot->members.learners);
    sh_put64(&w, raft->round);
    sh_put32(&w, snapshot->size);
    sh_put32(&w, progress->snapshot_at);
    sh_put_raw(
        &w, sh_bytes_make(snapshot->bytes ? snapshot->bytes + progress->snapshot_at : NULL, size));
    progress->is_waiting = true;
}

static void send_entries(struct sh_raft *raft, uint8_t to, uint64_t before_term)
{
    struct sh_raft_progress *progress = &raft->progress[to];
    uint64_t last = sh_raft_log_last(raft);
    size_t size = APPEND_BYTES;
    uint32_t count = 0;
    while (progress->next + count <= last) {
        size += SH_RAFT_ENTRY_BYTES + sh_raft_log_at(raft, progress->next + count)->size;
        count++;
        if (size >= raft->config.piece_bytes)
            break;
    }
    struct sh_writer w =
        sh_raft_message_begin(raft, to, SH_RAFT_APPEND, 0, raft->term, size, raft->promise_lsn);
    sh_put64(&w, progress->next - 1);
    sh_put64(&w, before_term);
    sh_put64(&w, raft->commit);
    sh_put64(&w, raft->round);
    sh_put32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sh_entry *entry = sh_raft_log_at(raft, progress->next + i);
        sh_put8(&w, entry->kind);
        sh_put64(&w, entry->term);
        sh_put32(&w, entry->size);
        sh_put_raw(&w, sh_bytes_make(entry->bytes, entry->size));
    }
    progress->is_waiting = count > 0;
}

/* Sends what a follower lacks, unless something is under way to it. */
static void send_next_to(struct sh_raft *raft, uint8_t to)
{
    struct sh_raft_progress *progress = &raft->progress[to];
    SH_ASSERT(raft->role == SH_RAFT_LEADER && to != raft->config.server);
    if (progress->is_waiting)
        return;
    uint64_t before_term;
    SH_ASSERT(progress->next);
    if (sh_entries_term(&raft->log, progress->next - 1, &before_term))
        send_entries(raft, to, before_term);
    else
        send_snapshot(raft, to);
}

void sh_raft_lead_send_all(struct sh_raft *raft)
{
    uint64_t members = raft->members.voters | raft->members.learners;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        if (i != raft->config.server && (members & sh_raft_bit(i)))
            send_next_to(raft, i);
    }
}

void sh_raft_lead(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->role == SH_RAFT_CANDIDATE);
    uint64_t next = sh_raft_log_last(raft) + 1;
    /* An entry of its own term, without which it could not tell what is committed (3.6.2). */
    if (sh_raft_log_append(raft, raft->term, SH_RAFT_NOOP, (struct sh_bytes){0}))
        return; /* out of memory: the election goes by without a winner */
    raft->role = SH_RAFT_LEADER;
    raft->leader = raft->config.server;
    raft->led_first = next;
    raft->led_since_ns = now_ns;
    raft->heartbeat_ns = now_ns;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++)
        raft->progress[i] = (struct sh_raft_progress){.next = next};
    SH_INFO("raft", "this superpeer leads", SH_U64("term", raft->term), SH_U64("index", next));
    sh_raft_lead_tick(raft, now_ns);
}

/* Answers that lay unread while this server was stopped do not count: the rounds that they are of
 * began long ago. Slow ones do. */
static bool hears_a_majority(const struct sh_raft *raft, uint64_t now_ns)
{
    uint64_t heard = sh_raft_bit(raft->config.server);
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        const struct sh_raft_progress *progress = &raft->progress[i];
        if (progress->led_ns && now_ns < progress->heard_ns + raft->config.election_ns &&
            now_ns < progress->led_ns + 2 * raft->config.election_ns)
            heard |= sh_raft_bit(i);
    }
    return sh_raft_is_majority(heard, raft->members.voters);
}

/* The latest time from which a majority answered rounds that began then or later. */
uint64_t sh_raft_led_ns(const struct sh_raft *raft, uint64_t now_ns)
{
    uint64_t best_ns = 0;
    if (raft->role != SH_RAFT_LEADER)
        return 0;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        uint64_t from_ns = i == raft->config.server ? now_ns : raft->progress[i].led_ns;
        uint64_t answered = sh_raft_bit(raft->config.server);
        if (from_ns <= best_ns)
            continue;
        for (uint8_t j = 1; j <= SH_RAFT_SERVER_MAX; j++) {
            if (raft->progress[j].led_ns >= from_ns && !raft->progress[j].is_recovering)
                answered |= sh_raft_bit(j);
        }
        if (sh_raft_is_majority(answered, raft->members.voters))
            best_ns = from_ns;
    }
    return best_ns;
}

void sh_raft_lead_tick(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->role == SH_RAFT_LEADER);
    if (now_ns < raft->heartbeat_ns)
        return;
    if (now_ns >= raft->led_since_ns + raft->config.election_ns &&
        !hears_a_majority(raft, now_ns)) {
        SH_WARN("raft", "this leader hears no majority of the superpeers, and steps down",
                SH_U64("term", raft->term));
        sh_raft_follow(raft, now_ns, raft->term);
        return;
    }
    raft->heartbeat_ns = now_ns + raft->config.heartbeat_ns;
    raft->round++;
    raft->round_ns[raft->round % SH_RAFT_ROUNDS] = now_ns;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++)
        raft->progress[i].is_waiting = false; /* what got lost is sent again */
    sh_raft_lead_send_all(raft);
}

/* The highest entry that a majority of the voters has stored. */
static uint64_t agreed(const struct sh_raft *raft)
{
    uint64_t best = raft->commit;
    for (uint8_t i = 1; i <= SH_RAFT_SERVER_MAX; i++) {
        uint64_t index = i == raft->config.server ? raft->stored_last : raft->progress[i].match;
        if (index <= best)
            continue;
        uint64_t holders = 0;
        for (uint8_t j = 1; j <= SH_RAFT_SERVER_MAX; j++) {
            bool holds = j == raft->config.server
                             ? raft->stored_last >= index
                             : raft->progress[j].match >= index && !raft->progress[j].is_recovering;
            holders |= holds ? sh_raft_bit(j) : 0;
        }
        if (sh_raft_is_majority(holders, raft->members.voters))
            best = index;
    }
    return best;
}

void sh_raft_lead_commit(struct sh_raft *raft, uint64_t now_ns)
{
    SH_ASSERT(raft->role == SH_RAFT_LEADER);
    uint64_t index = agreed(raft);
    /* Entries of older terms are committed along with one of this term only (3.6.2). */
    if (index <= raft->commit || index < raft->led_first)
        return;
    raft->commit = index;
    sh_raft_apply(raft);
    raft->is_current = true;
    if (raft->members_index <= raft->commit &&
        !(raft->members.voters & sh_raft_bit(raft->config.server)))
        sh_raft_follow(raft, now_ns, raft->term); /* the others elect one of them */
}

static struct sh_raft_progress *heard(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                                      uint64_t round)
{
    struct sh_raft_progress *progress = &raft->progress[from];
    progress->heard_ns = now_ns;
    if (round > progress->round && round <= raft->round) {
        progress->round = round;
        if (raft->round - round < SH_RAFT_ROUNDS)
            progress->led_ns = raft->round_ns[round % SH_RAFT_ROUNDS];
    }
    return progress;
}

/* The next life may be on a copy of the folder that was made before the last answers: what these said
 * does not count until it is said again. */
void sh_raft_lead_life(struct sh_raft *raft, uint8_t from, uint64_t life)
{
    SH_ASSERT(raft->role == SH_RAFT_LEADER);
    struct sh_raft_progress *progress = &raft->progress[from];
    if (progress->life && (uint32_t)progress->life != (uint32_t)life)
        progress->match = 0;
    progress->life = life;
}

void sh_raft_on_append_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                              struct sh_reader *r)
{
    SH_ASSERT(raft->role == SH_RAFT_LEADER);
    uint64_t index = sh_get64(r);
    uint64_t round = sh_get64(r);
    uint64_t last = sh_raft_log_last(raft);
    if (!sh_reader_done(r))
        return;
    struct sh_raft_progress *progress = heard(raft, now_ns, from, round);
    progress->is_recovering = flags & SH_RAFT_RECOVERING;
    if (progress->is_recovering && !(flags & SH_RAFT_YES))
        progress->match = 0; /* it has forgotten what it told us before */
    if (flags & SH_RAFT_YES) {
        if (index > last)
            return;
        if (index > progress->match)
            progress->match = index;
        sh_raft_lead_commit(raft, now_ns);
        if (flags & SH_RAFT_STORING)
            return; /* what it was sent is on its way to its disk; another answer follows */
        if (progress->next <= progress->match || progress->is_waiting)
            progress->next = progress->match + 1;
        progress->is_waiting = false;
        progress->snapshot = 0;
    } else {
        if (index <= progress->match || index >= progress->next)
            return; /* overtaken by a newer answer */
        progress->next = index;
        progress->is_waiting = false;
    }
    if (raft->role == SH_RAFT_LEADER && progress->next <= sh_raft_log_last(raft))
        send_next_to(raft, from);
}

void sh_raft_on_snapshot_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                                struct sh_reader *r)
{
    SH_ASSERT(raft->role == SH_RAFT_LEADER);
    uint64_t index = sh_get64(r);
    uint64_t round = sh_get64(r);
    uint32_t offset = sh_get32(r);
    if (!sh_reader_done(r))
        return;
    struct sh_raft_progress *progress = heard(raft, now_ns, from, round);
    if (!progress->snapshot || index != progress->snapshot || offset > raft->snapshot.size)
        return;
    progress->snapshot_at = offset;
    progress->is_waiting = false;
    send_next_to(raft, from);
}
