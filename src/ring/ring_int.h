/* The inside of the ring, shared by ring*.c.
 *
 * Messages, little-endian, no padding. All begin with u8 type, u8 shard, u8 flags, u8 zero, u64
 * version of the shard, u64 life of the sender (arcs.h).
 *   APPEND        u64 sequence before, u64 its epoch, u64 applied, u32 count, entries
 *     an entry    u64 epoch, u32 size, bytes
 *   ANSWER        u64 sequence, u64 its epoch, u64 applied
 *     flags       YES: the log agrees with the owner's up to sequence, else that is where to try
 *                 next; EMPTY: there is no state, an image is needed
 *   IMAGE         u64 sequence, u64 its epoch, u32 size, u32 offset, bytes to the end
 *   IMAGE_ANSWER  u64 sequence, u32 offset wanted next */
#ifndef SH_RING_RING_INT_H
#define SH_RING_RING_INT_H

#include "ring/ring.h"

enum sh_ring_type { SH_RING_APPEND = 1, SH_RING_ANSWER, SH_RING_IMAGE, SH_RING_IMAGE_ANSWER };

#define SH_RING_YES 1u
#define SH_RING_EMPTY 2u

#define SH_RING_HEAD_BYTES 20
#define SH_RING_APPEND_BYTES 28
#define SH_RING_ENTRY_BYTES 12
#define SH_RING_ANSWER_BYTES 24
#define SH_RING_IMAGE_BYTES 24
#define SH_RING_IMAGE_ANSWER_BYTES 12
#define SH_RING_MESSAGES_MAX 4096 /* not fetched yet; more are dropped, as a network would */
#define SH_RING_SEQUENCE_MAX (UINT64_C(1) << 62) /* none gets there; more is malformed */
/* An image is given up when so many times entries_kept were applied since it was taken. */
#define SH_RING_IMAGE_AGE 16

struct sh_ring_entry {
    uint64_t epoch;
    uint32_t size;
    uint8_t *bytes; /* NULL if size is 0 */
};

/* What a head says. */
struct sh_ring_head {
    uint8_t type, shard, flags, from;
    uint64_t version, life;
};

/* What an owner knows of another superpeer. */
struct sh_ring_progress {
    uint64_t version;  /* in which it answered last */
    uint64_t match;    /* it agrees with the owner up to here */
    uint64_t next;     /* what is sent next */
    uint64_t applied;  /* there */
    uint64_t since_ns; /* it owes an answer since then without any advance; 0: it does not */
    uint64_t resend_ns;
    uint64_t image; /* sequence of the image that is being sent */
    uint32_t image_at;
    bool is_waiting; /* something is under way */
    bool wants_image;
};

/* A state as bytes: being sent, or coming. */
struct sh_ring_image {
    uint64_t sequence, epoch;
    uint32_t size, at;
    uint8_t *bytes; /* NULL: there is none */
};

struct sh_ring_shard {
    uint64_t wanted; /* who is to hold it, and who of them is to own it; 0: nobody */
    uint8_t successor;
    bool has;                  /* fsm has the state as of `applied` */
    uint64_t base, base_epoch; /* the entry before the first in memory */
    struct sh_ring_entry *entries;
    size_t count, room;
    uint64_t applied;
    /* In that version the owner was told that the log agrees with its own up to there. */
    uint64_t agreed_version, agreed;
    struct sh_ring_image coming;

    bool owns;       /* owner of the version in force, with the state */
    bool is_handing; /* takes no updates any more */
    bool has_handed; /* has asked the registry for another owner: whether it is, it can't know */
    uint64_t serve_from; /* what was there when it took over must be applied first */
    uint64_t counted;    /* superpeers that do not hold it yet, but are awaited */
    struct sh_ring_progress progress[SH_SUPERPEERS_MAX + 1];
    struct sh_ring_image image;
    struct sh_arc_change change; /* kind 0: none */
    uint64_t change_ns;          /* when to ask for it again */
};

struct sh_ring {
    struct sh_ring_config config;
    bool is_active;
    uint64_t lease_ns;
    uint64_t due_ns;
    struct sh_arcs arcs;
    struct sh_ring_shard shards[SH_SHARDS];
    struct sh_ring_message *messages, **messages_end;
    size_t messages_count;
};

static inline uint64_t sh_ring_own(const struct sh_ring *ring)
{
    return sh_arc_bit(ring->config.server);
}

/* ring_log.c */
uint64_t sh_ring_log_last(const struct sh_ring_shard *shard);
/* The epoch of an entry, or of the base; false: not known any more, or not there. */
bool sh_ring_log_epoch(const struct sh_ring_shard *shard, uint64_t sequence, uint64_t *epoch_out);
const struct sh_ring_entry *sh_ring_log_at(const struct sh_ring_shard *shard, uint64_t sequence);
/* Whether the state will have the memory for an entry; as fsm.reserve. */
SHOAL_NODISCARD enum shoal_err sh_ring_log_reserve(struct sh_ring *ring, unsigned number,
                                                   struct sh_bytes command);
/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_ring_log_append(struct sh_ring_shard *shard, uint64_t epoch,
                                                  struct sh_bytes bytes);
/* Drops the entries from a sequence on. */
void sh_ring_log_cut(struct sh_ring_shard *shard, uint64_t sequence);
/* Begins anew behind a base, all of which is applied. */
void sh_ring_log_reset(struct sh_ring_shard *shard, uint64_t base, uint64_t epoch);
/* Applies up to a sequence, and drops what nobody is likely to miss. */
void sh_ring_log_apply(struct sh_ring *ring, unsigned number, uint64_t until);
void sh_ring_image_drop(struct sh_ring_image *image);

/* ring.c. Begins a message; a bad writer: it can't be sent (memory, or too many). */
struct sh_writer sh_ring_message_begin(struct sh_ring *ring, uint8_t to, unsigned number,
                                       enum sh_ring_type type, uint8_t flags, size_t size);
/* Forgets a shard's state. */
void sh_ring_shard_clear(struct sh_ring *ring, unsigned number);

/* ring_lead.c */
void sh_ring_lead_begin(struct sh_ring *ring, uint64_t now_ns, unsigned number, bool was_owner);
void sh_ring_lead_end(struct sh_ring_shard *shard);
/* Forgets what an owner knew of a superpeer. */
void sh_ring_lead_forget(struct sh_ring_shard *shard, unsigned nid);
/* Sends, applies and asks for changes as far as can be now. */
void sh_ring_lead_step(struct sh_ring *ring, uint64_t now_ns, unsigned number);
void sh_ring_on_answer(struct sh_ring *ring, uint64_t now_ns, const struct sh_ring_head *head,
                       struct sh_reader *r);
void sh_ring_on_image_answer(struct sh_ring *ring, uint64_t now_ns, const struct sh_ring_head *head,
                             struct sh_reader *r);

/* ring_follow.c */
void sh_ring_on_append(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r);
void sh_ring_on_image(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r);

#endif
