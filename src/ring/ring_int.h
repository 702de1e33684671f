/* The inside of the ring, shared by ring*.c.
 *
 * Messages, little-endian, no padding. All begin with u8 type, u8 shard, u8 flags, u8 zero, u64
 * version of the shard, u64 incarnation of the sender (arcs.h).
 *   APPEND           u64 sequence before, u64 its epoch, u64 applied, u32 count, entries
 *     an entry       u64 epoch, u32 size, bytes
 *   ANSWER           u64 sequence, u64 its epoch, u64 applied
 *     flags          YES: the log on disk agrees with the owner's up to sequence, else sequence is
 *                    where the owner should try next; EMPTY: there is no state, a snapshot is needed
 *   SNAPSHOT         u64 number of the transfer, u64 sequence, u64 its epoch, u32 number of the piece,
 *                    bytes to the end
 *     flags          LAST: there are no more pieces (this one is empty)
 *   SNAPSHOT_ANSWER  u64 number of the transfer, u32 piece wanted next
 *   COPY_ASK         nothing: the owner of a shard without replicas looks for old copies
 *   COPY_ANSWER      u64 epoch, u64 sequence of the copy's last update
 *     flags          EMPTY: there is no copy */
#ifndef SH_RING_RING_INT_H
#define SH_RING_RING_INT_H

#include "journal/entries.h"
#include "ring/ring.h"

enum sh_ring_type {
    SH_RING_APPEND = 1,
    SH_RING_ANSWER,
    SH_RING_SNAPSHOT,
    SH_RING_SNAPSHOT_ANSWER,
    SH_RING_COPY_ASK,
    SH_RING_COPY_ANSWER,
};

#define SH_RING_YES 1u
#define SH_RING_EMPTY 2u
#define SH_RING_LAST 4u

#define SH_RING_HEAD_BYTES 20
#define SH_RING_APPEND_BYTES 28
#define SH_RING_ENTRY_BYTES 12
#define SH_RING_ANSWER_BYTES 24
#define SH_RING_SNAPSHOT_BYTES 28
#define SH_RING_SNAPSHOT_ANSWER_BYTES 12
#define SH_RING_COPY_ANSWER_BYTES 16
#define SH_RING_MESSAGES_MAX 4096 /* not fetched yet; more are dropped, as a network would */
#define SH_RING_SEQUENCE_MAX (UINT64_C(1) << 62) /* never reached; a higher one is malformed */
/* A snapshot that is being sent is begun anew when so many times entries_kept were applied since.
 */
#define SH_RING_SNAPSHOT_AGE 16

/* What a head says. */
struct sh_ring_head {
    uint8_t type, shard, flags, from;
    uint64_t version, incarnation;
};

/* A snapshot on its way to one superpeer: the piece that was sent last, kept to send it again. */
struct sh_ring_outgoing {
    void *snapshot;    /* fsm's */
    uint64_t transfer; /* a number of the owner's, never used again in a version */
    uint64_t sequence, epoch;
    uint32_t piece;
    bool is_last;
    size_t size;
    uint8_t bytes[];
};

/* A snapshot that is coming. */
struct sh_ring_incoming {
    void *restore; /* fsm's; NULL: nothing is coming */
    uint64_t version, transfer;
    uint64_t sequence, epoch;
    uint32_t piece; /* wanted next */
    uint32_t idle;  /* due steps since a piece came */
};

/* How an owner sends to another superpeer.
 *
 *          YES in this version            nothing advances for resend_ns, or NO
 *   PROBE -----------------> STREAM -----------------------------------------> PROBE
 *     '--- EMPTY, or what it lacks is forgotten ---> SNAPSHOT --- YES or NO ---> STREAM or PROBE */
enum sh_ring_sending {
    SH_RING_PROBE,   /* one message at a time, until the logs agree somewhere */
    SH_RING_STREAM,  /* entries as they are ordered, without waiting */
    SH_RING_TRANSFER /* pieces of a snapshot, one at a time */
};

/* What an owner knows of another superpeer. */
struct sh_ring_progress {
    enum sh_ring_sending sending;
    uint64_t version;   /* in which it answered last */
    uint64_t match;     /* its log on disk agrees with the owner's up to this sequence */
    uint64_t next;      /* sequence of the entry that is sent next */
    uint64_t applied;   /* up to here the superpeer has applied updates, by its last answer */
    uint64_t since_ns;  /* since when its log on disk is behind without any advance; 0: it is not */
    uint64_t resend_ns; /* when to send the unanswered message again */
    struct sh_ring_outgoing *outgoing;
};

/* The search of the owner of a shard without replicas (ring_salvage.c). */
struct sh_ring_search {
    bool is_open;
    uint64_t answered; /* the superpeers that answered; the own bit: the own copy was looked at */
    uint8_t nid;       /* the superpeer whose copy is the most advanced; 0: none had one */
    uint64_t epoch, sequence; /* of that copy's last update */
    uint64_t resend_ns;       /* when those that have not answered are asked again */
    uint64_t ahead; /* superpeers of which was logged that their copy is from after the registry */
};

struct sh_ring_shard {
    struct sh_ring *ring;
    uint64_t wanted;   /* the superpeers that are to hold the shard */
    uint8_t successor; /* the one of them that is to own it; 0: none */
    bool has;          /* fsm has the state as of `applied`; the log begins with LSN has_lsn */
    sh_lsn has_lsn;
    struct sh_entries entries;
    uint64_t applied;
    uint64_t synced; /* entries up to here are on the disk */
    void *saving;    /* fsm's snapshot that the journal is taking */
    /* While the journal is opened: a snapshot that is being read. */
    void *loading;
    uint64_t loading_sequence, loading_epoch;
    /* A replica's: in that version its log agrees with the owner's up to `agreed`. The replica has
     * answered up to `answered`; owes_answer: the owner waits for the rest. */
    uint64_t agreed_version, agreed, answered;
    bool owes_answer;
    struct sh_ring_incoming incoming;

    /* An owner's. */
    bool owns;       /* of the version in force, with the state */
    bool is_handing; /* takes no updates any more */
    bool
        has_handed; /* has asked the registry for another owner, which may have been decided already */
    uint64_t
        serve_from;   /* the log's end when this owner took over: reads wait until it is applied */
    uint64_t counted; /* superpeers that are no replicas yet, but are awaited */
    uint64_t stalled_ns; /* since when its own disk is behind without any advance; 0: it is not */
    struct sh_ring_progress progress[SH_SUPERPEERS_MAX + 1];
    struct sh_ring_search search;
    bool is_built; /* of a shard without replicas: in this version, the state is made */
    struct sh_arc_change change; /* kind 0: none */
    uint64_t change_ns;          /* when to ask for it again */
};

struct sh_ring {
    struct sh_ring_config config;
    struct sh_journal *journal;
    unsigned first_stream;
    sh_lsn synced; /* the journal's, as was looked at last */
    bool is_active;
    uint64_t transfers; /* snapshots that were begun to be sent */
    uint64_t dirty;     /* shards that the next step has to look at: bit n is shard n */
    uint64_t lease_ns;
    uint64_t due_ns;
    /* Until when a superpeer that stored nothing for patience_ns is given less time, in all shards alike: it has
     * one disk. 0: it has stored something since. */
    uint64_t stalled_until_ns[SH_SUPERPEERS_MAX + 1];
    struct sh_arcs arcs;
    struct sh_ring_shard shards[SH_SHARDS];
    struct sh_ring_message *messages, **messages_end;
    size_t messages_count;
};

static inline uint64_t sh_ring_own(const struct sh_ring *ring)
{
    return sh_arc_bit(ring->config.server);
}

static inline unsigned sh_ring_stream_of(const struct sh_ring *ring, unsigned number)
{
    return ring->first_stream + number;
}

static inline void sh_ring_touch(struct sh_ring *ring, unsigned number)
{
    ring->dirty |= UINT64_C(1) << number;
}

/* ring.c. Begins a message; a bad writer: it can't be sent (memory, or too many). */
struct sh_writer sh_ring_message_begin(struct sh_ring *ring, uint8_t to, unsigned number,
                                       enum sh_ring_type type, uint8_t flags, size_t size);

/* ring_log.c */
/* Takes an entry into the log and the journal; what was there from its sequence on is dropped. The
 * sequence is at most the log's end + 1. ENOMEM, or as fsm.reserve. */
SHOAL_NODISCARD enum shoal_err sh_ring_log_take(struct sh_ring *ring, unsigned number,
                                                uint64_t sequence, uint64_t epoch,
                                                struct sh_bytes command);
/* Applies up to a sequence, and drops old entries that no replica is likely to need. */
void sh_ring_log_apply(struct sh_ring *ring, unsigned number, uint64_t until);
/* Looks how much of the log the journal has synced; whether that is more than before. */
bool sh_ring_log_sync(struct sh_ring *ring, unsigned number);
/* The state that fsm has now is the shard's, as of that sequence; the log goes on behind it, and
 * the journal makes it durable with that LSN. */
void sh_ring_log_install(struct sh_ring *ring, unsigned number, uint64_t sequence, uint64_t epoch,
                         sh_lsn lsn);
/* Writes a state that fsm has made into the journal, as the beginning of a log. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ring_log_begin(struct sh_ring *ring, unsigned number,
                                                 uint64_t epoch);
/* Forgets a shard's state and log, here and in the journal. */
void sh_ring_shard_clear(struct sh_ring *ring, unsigned number);

/* ring_snapshot.c */
void sh_ring_outgoing_drop(struct sh_ring *ring, struct sh_ring_progress *progress);
void sh_ring_incoming_drop(struct sh_ring *ring, unsigned number);
/* Gives up a snapshot whose pieces have stopped coming, since the journal keeps all segments from the
 * snapshot's beginning on. Called with each due step. */
void sh_ring_incoming_tick(struct sh_ring *ring, unsigned number);
/* The lowest sequence that snapshots on their way need entries behind; `other` if none does. */
uint64_t sh_ring_outgoing_lowest(const struct sh_ring_shard *shard, uint64_t other);
/* Sends the piece at hand, the first time or again. */
void sh_ring_snapshot_send(struct sh_ring *ring, unsigned number, uint8_t to);
void sh_ring_on_snapshot(struct sh_ring *ring, const struct sh_ring_head *head,
                         struct sh_reader *r);
void sh_ring_on_snapshot_answer(struct sh_ring *ring, uint64_t now_ns,
                                const struct sh_ring_head *head, struct sh_reader *r);

/* ring_lead.c */
void sh_ring_lead_begin(struct sh_ring *ring, uint64_t now_ns, unsigned number, bool was_owner);
void sh_ring_lead_end(struct sh_ring *ring, unsigned number);
/* Forgets what an owner knew of a superpeer. */
void sh_ring_lead_forget(struct sh_ring *ring, unsigned number, unsigned nid);
/* Sends, applies and asks for changes as far as can be now. */
void sh_ring_lead_step(struct sh_ring *ring, uint64_t now_ns, unsigned number);
void sh_ring_on_answer(struct sh_ring *ring, uint64_t now_ns, const struct sh_ring_head *head,
                       struct sh_reader *r);
/* Asks the registry for a change of a shard, until its version is another one. */
void sh_ring_ask(struct sh_ring *ring, uint64_t now_ns, unsigned number, enum sh_arc_kind kind,
                 unsigned nid);

/* ring_salvage.c */
/* This superpeer owns a shard without replicas from now on. */
void sh_ring_search_begin(struct sh_ring *ring, unsigned number);
void sh_ring_search_step(struct sh_ring *ring, uint64_t now_ns, unsigned number);
void sh_ring_on_copy_ask(struct sh_ring *ring, const struct sh_ring_head *head,
                         struct sh_reader *r);
void sh_ring_on_copy_answer(struct sh_ring *ring, const struct sh_ring_head *head,
                            struct sh_reader *r);

/* ring_follow.c */
void sh_ring_on_append(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r);
/* The log agrees with the owner's up to that sequence, in that version: to be answered once it is
 * on the disk. */
void sh_ring_follow_agree(struct sh_ring *ring, const struct sh_ring_head *head, uint64_t sequence);
/* Answers NO: `flags`, and from where to try. */
void sh_ring_follow_refuse(struct sh_ring *ring, const struct sh_ring_head *head, uint8_t flags,
                           uint64_t sequence);
/* Answers the owner as far as the disk has got. */
void sh_ring_follow_step(struct sh_ring *ring, unsigned number);

#endif
