/* Raft: servers that agree on one list of commands, as a state machine without input or output.
 * Ongaro, "Consensus: Bridging Theory and Practice" (Stanford 2014), section numbers below.
 *
 * Events and the time go in, and what is to be stored goes to the journal; messages to send are
 * fetched afterwards:
 *
 *   tick, receive, propose ---> [raft] ---> message_next: what to send to whom
 *            synced ----------^    \----> fsm.apply: committed commands, in order
 *               '--- journal <------'     promises, entries, snapshots
 *
 * A message is handed out only once the journal has synced everything that it promises, so the disk
 * may take its time and nothing waits for it: a vote or an acknowledgement leaves when its record
 * is safe, while heartbeats go on. The caller, which has the wires, sends.
 *
 * What is in: elections with pre-vote and with votes refused while a leader is heard (9.6, 4.2.3);
 * a leader that hears no majority steps down (6.2); members changed one at a time, with learners
 * that catch up first (4.1, 4.2.1; not before an entry of the leader's own term is committed);
 * snapshots in pieces (5); proof by rounds of heartbeats that a server leads, for leases and reads (6.4).
 *
 * Identities. A log has an ID, and each message names its sender's log: servers of two logs, whose
 * terms and indexes may agree by chance, never take each other's messages. The only founder of a
 * log draws its ID. Several founders ask each other before any of them votes (see below), tell each
 * other a number that each has drawn and stored, and make the ID of all the numbers; others take
 * the ID over from a leader. When servers of two logs meet, the one that is the only voter of the
 * shorter log *withdraws*: its folder was lost, and it founded a log anew although the others
 * still count it among theirs.
 * A server also has a life, which names one confirmed start of one folder, and which each message names. Of a
 * server whose later life is known (life_set) no message of an earlier life is taken, so that a
 * copy of its folder, or one restored from a backup, neither votes nor holds entries; it withdraws
 * when it hears so.
 *
 * Each message says whether its sender's journal is in memory. What a majority holds is to be worth
 * the same whichever majority it is, so servers on disks and servers in memory take no messages of
 * each other, and say so.
 *
 * Answers to a leader's round overtake entries: a follower answers as soon as its term and its vote
 * are stored, for what is stored by then, and again when more is. So a disk that stalls with
 * entries only delays these, and deposes no leader.
 *
 * Departures:
 * - A server whose storage is empty can't know whether it has forgotten votes and entries. It stays
 *   *recovering*: it neither votes nor counts as a holder of entries until every other voter that
 * it knows of has told it the term that it has stored. When all say zero, the cluster is new.
 *   Otherwise the server gives no vote in any term up to the highest one it was told, and speaks
 *   again once it holds all that a leader of that term or a later one has committed in its own
 *   term. (Every entry and vote that it may have forgotten was made with one of the others, who
 *   remember it.)
 * - Leaders send one piece at a time to each follower, and the next one when it is acknowledged: a
 *   registry changes rarely.
 *
 * Memory: entries since the snapshot before last, and one or two snapshots.
 * Threads: one at a time. Nothing here blocks. The same events in the same order give the same
 * effects. */
#ifndef SH_RAFT_RAFT_H
#define SH_RAFT_RAFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "journal/journal.h"
#include "shoal/err.h"

#define SH_RAFT_SERVER_MAX 63                  /* servers are 1 to this */
#define SH_RAFT_BACKLOG_MAX 1024               /* entries of a leader that are not committed yet */
#define SH_RAFT_COMMAND_BYTES_MAX 65536        /* of one command */
#define SH_RAFT_SNAPSHOT_BYTES_MAX (64u << 20) /* of a snapshot */

struct sh_raft;

/* Bit n stands for server n. Voters decide; learners only get the entries. Disjoint. */
struct sh_raft_members {
    uint64_t voters;
    uint64_t learners;
};

/* What is replicated. Called from within receive, propose, synced, and by the journal; may not call
 * raft. */
struct sh_raft_fsm {
    /* A committed command, borrowed. Each index at most once, in order; some indexes have none. */
    void (*apply)(void *arg, uint64_t index, uint64_t term, struct sh_bytes command);
    /* The state after the last apply as bytes: at most SH_RAFT_SNAPSHOT_BYTES_MAX. */
    size_t (*snapshot_size)(void *arg);
    void (*snapshot_put)(void *arg, struct sh_writer *w);
    /* Replaces the state. Any error changes nothing. */
    enum shoal_err (*snapshot_get)(void *arg, struct sh_bytes snapshot);
    void *arg;
};

struct sh_raft_config {
    uint8_t server; /* this one's number */
    /* A new cluster's members: the same at each of them. No voters: this server knows nothing, and
     * waits for a leader that adds it. Ignored once something is stored. */
    struct sh_raft_members first;
    uint64_t election_ns;      /* silence of a leader before another is elected, up to twice this */
    uint64_t heartbeat_ns;     /* well below it */
    uint32_t snapshot_entries; /* a snapshot is taken after so many entries; at least 1 */
    uint32_t piece_bytes;      /* entries or snapshot in one message, roughly; at least 64 */
    uint64_t seed;             /* random: for election times, identities and lives */
    bool is_memory;            /* the journal is lost with the process; the same at all servers */
    struct sh_raft_fsm fsm;
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raft_create(const struct sh_raft_config *config,
                                              struct sh_raft **raft_out);
void sh_raft_destroy(struct sh_raft *raft);

/* What the journal has to know of this server, before it is opened: opening it gives raft what was
 * stored. Errors of its own: ECORRUPT (not what raft stored), ECLUSTER (of another server), ENOMEM,
 * and what snapshot_get says. raft lives until the journal is closed. */
struct sh_journal_stream sh_raft_stream(struct sh_raft *raft);
/* Begins, with that number of a stream of the opened journal (kept). life: of this start, which the
 * caller has given to the journal to store; nothing is sent before it is durable. */
void sh_raft_start(struct sh_raft *raft, struct sh_journal *journal, unsigned stream, uint64_t life,
                   uint64_t now_ns);
/* In the place of start, while no server runs: makes this one the only member of a log that goes on
 * from what is stored here under another ID, so that all other servers of the log are strangers to
 * it; and it never withdraws for their sake. Appends a command (borrowed) behind all that there is.
 * Done once all of the journal is synced; cut off before, it is to be done again. For the time when a
 * majority is lost for good. ENONAME: nothing is stored, or no log is known; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raft_force(struct sh_raft *raft, struct sh_journal *journal,
                                             unsigned stream, struct sh_bytes command);
/* Whether nothing was stored when the journal was opened. */
bool sh_raft_is_new(const struct sh_raft *raft);

/* Lets time pass; to be called at sh_raft_due_ns at the latest. */
void sh_raft_tick(struct sh_raft *raft, uint64_t now_ns);
uint64_t sh_raft_due_ns(const struct sh_raft *raft);

/* A message of another server, borrowed; what is malformed or out of place is dropped. */
void sh_raft_receive(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_bytes message);

/* Proposes a command (copied) at a leader. It is committed when fsm.apply gets it at that index
 * with that term; when another term's comes there, it is lost. EROLE: not a leader. EBUSY: too many
 * are not committed yet. ETOOBIG, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raft_propose(struct sh_raft *raft, struct sh_bytes command,
                                               uint64_t *index_out, uint64_t *term_out);
/* Proposes other members at a leader: at most one voter more or less (a learner that becomes a
 * voter is one more), which does not matter to learners. A leader that is no voter any more steps
 * down once that is committed. EROLE; EBUSY: another change is not committed yet, or nothing of
 * this term is, or the learner to become a voter has not caught up; EINVAL; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raft_members_change(struct sh_raft *raft,
                                                      struct sh_raft_members members);

/* When this server surely was the leader last: a majority, itself included, has answered rounds of
 * heartbeats that began then or later, and so nobody else had been elected. Answers that lay unread
 * while it was stopped make it no later. 0: it does not lead, or no majority has answered yet. */
uint64_t sh_raft_led_ns(const struct sh_raft *raft, uint64_t now_ns);

/* --- Identities ------------------------------------------------------------------------------ */

/* 0: not known yet. */
uint64_t sh_raft_log_id(const struct sh_raft *raft);
/* This server's life since start: the confirmed starts of its folder, this one included, in the high 32
 * bits, random bits below. On a new folder 0 in the high bits, until the members have counted the start (life_set). */
uint64_t sh_raft_life(const struct sh_raft *raft);
/* The latest life of a server (this one's too) that the members agree on; 0: unknown. Messages of
 * an older one are dropped from now on: of a lower start count, or of the same with other random
 * bits. A higher count than this is taken. */
void sh_raft_life_set(struct sh_raft *raft, uint8_t server, uint64_t life);
/* How many messages were dropped because their sender has another log or an older life. */
uint64_t sh_raft_refused_count(const struct sh_raft *raft);

/* Why a server takes part no longer, until it is created anew: it sends nothing, drops what it
 * gets, and neither leads nor follows. The log says what to do. */
enum sh_raft_withdrawal {
    SH_RAFT_TAKES_PART,
    SH_RAFT_OTHER_LOG_THAN_MEMBERS, /* it founded a log anew that the others do not share */
    SH_RAFT_OLDER_LIFE,             /* another copy of its folder was started since */
};
enum sh_raft_withdrawal sh_raft_withdrawal(const struct sh_raft *raft);

/* --- Effects --------------------------------------------------------------------------------- */

struct sh_raft_message {
    struct sh_raft_message *next; /* raft's */
    uint64_t after;               /* raft's */
    uint8_t to;
    size_t size;
    uint8_t bytes[];
};

/* The next message that may be sent, or NULL; the caller's to free(). */
struct sh_raft_message *sh_raft_message_next(struct sh_raft *raft);

/* More of the journal may be durable: to be called after each step of it. */
void sh_raft_synced(struct sh_raft *raft, uint64_t now_ns);

/* --- State ----------------------------------------------------------------------------------- */

enum sh_raft_role { SH_RAFT_FOLLOWER, SH_RAFT_PRECANDIDATE, SH_RAFT_CANDIDATE, SH_RAFT_LEADER };

enum sh_raft_role sh_raft_role(const struct sh_raft *raft);
/* The leader that was heard in this term; 0: none. */
uint8_t sh_raft_leader(const struct sh_raft *raft);
uint64_t sh_raft_term(const struct sh_raft *raft);
uint64_t sh_raft_commit(const struct sh_raft *raft);
uint64_t sh_raft_applied(const struct sh_raft *raft);
uint64_t sh_raft_last(const struct sh_raft *raft); /* index of the last entry */
uint64_t sh_raft_last_term(const struct sh_raft *raft);
/* Index of the last entry that was in the log when it was loaded, and was not cut off since. */
uint64_t sh_raft_loaded_last(const struct sh_raft *raft);
struct sh_raft_members sh_raft_members(const struct sh_raft *raft);
/* Whether a server is a member, or is one until a change in the log is committed: until then nobody
 * else may have the entry that removes it, and its vote may decide who leads (4.2.2). */
bool sh_raft_needs(const struct sh_raft *raft, uint8_t server);
bool sh_raft_is_recovering(const struct sh_raft *raft);
/* Whether a leader is known, and the state has been up to date since the start: so that it lacks no
 * more than what was committed lately. */
bool sh_raft_is_current(const struct sh_raft *raft);
/* The caller knows for sure that a server's process has ended: if that server leads, as far as is known here,
 * another one is elected soon, but not before the others can have found that out too. */
void sh_raft_leader_gone(struct sh_raft *raft, uint64_t now_ns, uint8_t server);
/* At another than the leader: when a leader was heard last; 0: never. */
uint64_t sh_raft_leader_heard_ns(const struct sh_raft *raft);
/* At a leader: when another server was heard last; 0: not since this server leads. */
uint64_t sh_raft_heard_ns(const struct sh_raft *raft, uint8_t server);

/* The term and command of an entry that is still in memory; false: it is not. */
bool sh_raft_entry(const struct sh_raft *raft, uint64_t index, uint64_t *term_out,
                   struct sh_bytes *command_out);

#endif
