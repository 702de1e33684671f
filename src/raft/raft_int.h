/* The inside of raft, shared by raft*.c.
 *
 * Messages, little-endian, no padding. All begin with the head:
 *   0   u8   type
 *   1   u8   flags; in each message MEMORY: the sender's journal is in memory
 *   2   u16  zero
 *   4   u64  term
 *   12  u64  ID of the sender's log; 0 (PROBE and PROBE_ANSWER only): it does not know it yet
 *   20  u64  the sender's life
 * Behind the head:
 *   VOTE_ASK       u64 last index, u64 last term
 *     flags        PRE: a poll; then the term is the one that is asked for
 *   VOTE_ANSWER    nothing
 *     flags        PRE; YES
 *   APPEND         u64 index before, u64 its term, u64 commit, u64 round, u32 count, entries
 *     an entry     u8 kind, u64 term, u32 size, bytes
 *   APPEND_ANSWER  u64 index, u64 round
 *     flags        YES: all up to index agree with the leader and are stored; else index is where
 *                  the leader should try next
 *                  RECOVERING: what it holds does not count
 *                  STORING: more agrees than is stored; another answer follows when it is
 *   SNAPSHOT          u64 index, u64 its term, u64 voters, u64 learners, u64 round,
 *                  u32 size, u32 offset, bytes to the end
 *   SNAPSHOT_ANSWER   u64 index, u64 round, u32 offset wanted next
 *   PROBE          u64 nonce; the term is zero
 *   PROBE_ANSWER   u64 nonce, u64 the sender's founding number; the term is the stored one
 *   REFUSED        u64 the receiver's life as the sender knows it, u64 the sender's commit
 *     flags        OTHER_LOG or OLD_LIFE: why the sender dropped a message of the receiver
 *                  REPLY: this answers a REFUSED, and is not answered
 *
 * What the journal holds of a server:
 *   state      u8 flags (1: recovering, 2: forced), u8 vote, u8 server, u8 zero, u64 term, u64 log ID,
 *              u64 founding number, u64 first voters, u64 first learners
 *   entries    of enum sh_raft_kind
 *   snapshot   u64 voters, u64 learners, the state machine's bytes */
#ifndef SH_RAFT_RAFT_INT_H
#define SH_RAFT_RAFT_INT_H

#include "base/hash.h"
#include "journal/entries.h"
#include "raft/raft.h"

enum sh_raft_type {
    SH_RAFT_VOTE_ASK = 1,
    SH_RAFT_VOTE_ANSWER,
    SH_RAFT_APPEND,
    SH_RAFT_APPEND_ANSWER,
    SH_RAFT_SNAPSHOT,
    SH_RAFT_SNAPSHOT_ANSWER,
    SH_RAFT_PROBE,
    SH_RAFT_PROBE_ANSWER,
    SH_RAFT_REFUSED,
};

#define SH_RAFT_PRE 1u
#define SH_RAFT_YES 2u
#define SH_RAFT_RECOVERING 4u
#define SH_RAFT_STORING 8u
#define SH_RAFT_OTHER_LOG 16u
#define SH_RAFT_OLD_LIFE 32u
#define SH_RAFT_REPLY 64u
#define SH_RAFT_MEMORY 128u

#define SH_RAFT_HEAD_BYTES 28
#define SH_RAFT_MEMBERS_BYTES 16
#define SH_RAFT_ENTRY_BYTES 13   /* of an entry in a message, without its command */
#define SH_RAFT_MESSAGES_MAX 512 /* waiting for the disk; more are dropped, as a network would */
#define SH_RAFT_VOTE_SPENT 0xFF  /* a recovering server's vote: for nobody in this term */

enum sh_raft_kind { SH_RAFT_COMMAND = 1, SH_RAFT_NOOP = 2, SH_RAFT_MEMBERS = 3 };

/* A snapshot: the state after `index`. Index 0 is the beginning, without bytes. */
struct sh_raft_snapshot {
    uint64_t index, term;
    struct sh_raft_members members; /* as of index */
    uint32_t size;
    uint8_t *bytes;
};

/* Rounds of heartbeats whose beginnings a leader remembers; an answer to an older round proves nothing
 * about when the leader led. */
#define SH_RAFT_ROUNDS 64

/* What a leader knows of another server. */
struct sh_raft_progress {
    uint64_t life;     /* of the last message since this server leads; 0: there was none */
    uint64_t match;    /* the server's log agrees with the leader's up to this index */
    uint64_t next;     /* index of the entry that is sent next */
    uint64_t heard_ns; /* when the server was heard last; 0: not since this server leads */
    uint64_t round;    /* highest round of heartbeats that the server answered */
    uint64_t led_ns;   /* when that round began: the server still followed at that time */
    uint64_t snapshot; /* index of the snapshot that is being sent; 0: none */
    uint32_t snapshot_at;
    bool is_waiting; /* something with content is under way */
    bool is_recovering;
};

struct sh_raft_blob {
    uint64_t index, term;
    uint8_t *bytes;
    size_t size, room;
    size_t at; /* read so far */
};

struct sh_raft_head {
    uint8_t type, flags;
    uint64_t term, log_id, life;
};

struct sh_raft {
    struct sh_raft_config config;
    uint64_t draws;             /* how many random numbers were drawn */
    struct sh_journal *journal; /* NULL: not started yet */
    unsigned stream;
    uint64_t life;
    bool is_known; /* the journal held a state when it was loaded */

    /* Stored. */
    uint64_t term;
    uint8_t vote;
    bool is_recovering;
    bool is_forced;    /* the log goes on from another one's (sh_raft_force) */
    uint64_t log_id;   /* 0: not known yet; else only sh_raft_force changes it */
    uint64_t founding; /* drawn when nothing was stored; those of all founders make the log's ID */
    struct sh_raft_snapshot snapshot;
    struct sh_entries log; /* its base lies at the snapshot, or at the one before */

    /* What is stored of that. */
    sh_lsn life_lsn;      /* when this is synced, so is the life: no message leaves before */
    sh_lsn promise_lsn;   /* the same of term, vote, recovering and log ID, as they are now */
    sh_lsn base_lsn;      /* the same of the entries up to the log's base, or of their snapshot */
    sh_lsn synced;        /* what sh_raft_synced saw last */
    uint64_t stored_last; /* entries up to here are stored, as they are in memory */
    uint64_t loaded_last; /* entries up to here were in the log when it was loaded */

    /* A snapshot on its way from the journal, or to it, with the members before it. */
    struct sh_raft_blob loading, saving;

    struct sh_raft_members members; /* by the last entry that says, committed or not */
    uint64_t members_index;         /* of that entry; snapshot.index if none in the log says */

    /* Not stored. */
    enum sh_raft_role role;
    uint8_t leader;
    uint64_t commit, applied;
    bool is_current;      /* at some time since start, all that was committed then was applied */
    uint64_t election_ns; /* when the next election is due */
    uint64_t leader_heard_ns; /* 0: never */
    uint64_t votes;           /* of the others, in this election */
    /* A follower's: entries up to here agree with the log of this term's leader; 0: none known. */
    uint64_t matched, matched_round;
    bool owes_answer; /* the leader has not been told of all that are matched */

    /* Identities. */
    uint64_t lives[SH_RAFT_SERVER_MAX + 1];     /* as the registry knows them; 0: unknown */
    uint64_t told_logs[SH_RAFT_SERVER_MAX + 1]; /* log of a server, as was logged last */
    uint64_t told_kinds; /* servers of which was logged that their journal is of the other kind */
    uint64_t refused_count; /* messages dropped for their identity */
    enum sh_raft_withdrawal withdrawal;

    /* A leader's. */
    struct sh_raft_progress progress[SH_RAFT_SERVER_MAX + 1];
    uint64_t heartbeat_ns; /* when the next heartbeat is due */
    uint64_t round;
    uint64_t round_ns[SH_RAFT_ROUNDS]; /* when each of the last rounds began, or before */
    uint64_t led_since_ns;
    uint64_t led_first; /* first entry of its term */

    /* A follower's: a snapshot that is coming. */
    struct sh_raft_snapshot coming;
    uint32_t coming_at;

    /* A recovering server's questions. */
    uint64_t nonce;
    uint64_t probed; /* the servers that have answered */
    bool probe_is_over;
    uint64_t probe_ns;
    uint64_t heard_term;   /* highest term in an answer: this server must catch up with that term */
    uint64_t founding_sum; /* of the founding numbers of the servers that have answered */

    struct sh_raft_message *messages, **messages_end;
    size_t messages_count;
};

static inline uint64_t sh_raft_bit(uint8_t server)
{
    return UINT64_C(1) << server;
}

static inline bool sh_raft_is_majority(uint64_t of, uint64_t voters)
{
    return 2 * __builtin_popcountll(of & voters) > __builtin_popcountll(voters);
}

static inline uint64_t sh_raft_log_last(const struct sh_raft *raft)
{
    return sh_entries_last(&raft->log);
}

/* The entry at an index; NULL: the log does not reach so far, or has dropped the entry. */
static inline struct sh_entry *sh_raft_log_at(const struct sh_raft *raft, uint64_t index)
{
    if (index <= raft->log.base || index > sh_raft_log_last(raft))
        return NULL;
    return sh_entries_at(&raft->log, index);
}

/* raft.c */
/* Enters a higher term, with that vote in it. */
void sh_raft_term_set(struct sh_raft *raft, uint64_t term, uint8_t vote);
/* Becomes a follower; of a higher term, if it is. */
void sh_raft_follow(struct sh_raft *raft, uint64_t now_ns, uint64_t term);
void sh_raft_election_defer(struct sh_raft *raft, uint64_t now_ns);
/* Applies what is committed, and takes a snapshot when it is time. */
void sh_raft_apply(struct sh_raft *raft);

/* raft_log.c */
/* Appends behind the last entry. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raft_log_append(struct sh_raft *raft, uint64_t term, uint8_t kind,
                                                  struct sh_bytes bytes);
/* Drops the entries from index on; one is appended there next, or a snapshot installed. */
void sh_raft_log_cut(struct sh_raft *raft, uint64_t index);
/* Finds out the members anew. */
void sh_raft_log_members(struct sh_raft *raft);
/* The members as of an index. */
struct sh_raft_members sh_raft_log_members_at(const struct sh_raft *raft, uint64_t index);
bool sh_raft_members_get(struct sh_bytes bytes, struct sh_raft_members *members_out);
/* Takes a snapshot of what is applied. Out of memory: later. */
void sh_raft_snapshot_take(struct sh_raft *raft);

/* raft_store.c */
/* Stores term, vote, recovering and identities, as they are now. */
void sh_raft_promise(struct sh_raft *raft);
bool sh_raft_is_synced(const struct sh_raft *raft, sh_lsn lsn);
/* Stores a snapshot of the leader's in the place of the log. */
void sh_raft_store_install(struct sh_raft *raft);
void sh_raft_blob_free(struct sh_raft_blob *blob);

/* raft_send.c. Each begins a message; NULL w->at: none is to be sent (memory, or too many). */
struct sh_writer sh_raft_message_begin(struct sh_raft *raft, uint8_t to, enum sh_raft_type type,
                                       uint8_t flags, uint64_t term, size_t size, uint64_t after);

/* raft_vote.c */
void sh_raft_campaign(struct sh_raft *raft, uint64_t now_ns, bool is_poll);
/* Looks whether an election is won. */
void sh_raft_votes_count(struct sh_raft *raft, uint64_t now_ns);
void sh_raft_on_vote_ask(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                         uint64_t term, struct sh_reader *r);
void sh_raft_on_vote_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                            uint64_t term);
void sh_raft_probe_tick(struct sh_raft *raft, uint64_t now_ns);
void sh_raft_on_probe(struct sh_raft *raft, uint8_t from, struct sh_reader *r);
void sh_raft_on_probe_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                             const struct sh_raft_head *head, struct sh_reader *r);

/* raft_identity.c */
/* A number that differs at each call, and at each seed. */
uint64_t sh_raft_draw(struct sh_raft *raft);
/* Whether a message may be taken; one of another log or of an older life is counted, and its
 * sender told. */
bool sh_raft_identity_check(struct sh_raft *raft, uint8_t from, const struct sh_raft_head *head);
/* What a founder adds to the log's ID. */
uint64_t sh_raft_founding_share(uint8_t server, uint64_t founding);
/* Names the log after its founders: all of them have answered. */
void sh_raft_log_found(struct sh_raft *raft);
void sh_raft_on_refused(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                        const struct sh_raft_head *head, struct sh_reader *r);

/* raft_lead.c */
void sh_raft_lead(struct sh_raft *raft, uint64_t now_ns);
void sh_raft_lead_tick(struct sh_raft *raft, uint64_t now_ns);
void sh_raft_lead_send_all(struct sh_raft *raft);
void sh_raft_lead_commit(struct sh_raft *raft, uint64_t now_ns);
/* A server is heard in that life. */
void sh_raft_lead_life(struct sh_raft *raft, uint8_t from, uint64_t life);
void sh_raft_on_append_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from, uint8_t flags,
                              struct sh_reader *r);
void sh_raft_on_snapshot_answer(struct sh_raft *raft, uint64_t now_ns, uint8_t from,
                                struct sh_reader *r);

/* raft_follow.c */
void sh_raft_on_append(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_reader *r);
void sh_raft_on_snapshot(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_reader *r);
/* Tells the leader what has been stored since it was answered. */
void sh_raft_follow_stored(struct sh_raft *raft);

#endif
