/* What the files of migration share. */
#ifndef SH_NODE_MOVES_INT_H
#define SH_NODE_MOVES_INT_H

#include "metadata/metadata.h"
#include "node/holdings.h"
#include "node/moves.h"
#include "node/outcomes.h"

/* Pauses: before another attempt at what a message could not do; between two passes. */
#define SH_MOVES_AGAIN_NS UINT64_C(10000000)
#define SH_MOVES_PASS_NS UINT64_C(20000000)
/* How long a target waits for word of a batch before it asks, and between two questions. */
#define SH_MOVES_ASK_NS UINT64_C(300000000)
/* How long a superpeer that asks what is here waits for word of a batch. */
#define SH_MOVES_WORD_NS UINT64_C(3000000000)
#define SH_MOVES_STAGE_HEAD_BYTES 28
#define SH_MOVES_OUTCOMES_MAX 16384 /* of a batch; of one chunk all that there are */

enum sh_move_state {
    SH_MOVE_IDLE,
    SH_MOVE_COUNT,  /* counting what there is */
    SH_MOVE_GATHER, /* the next batch is to be chosen */
    SH_MOVE_WHO,    /* the superpeer is asked for its incarnation */
    SH_MOVE_FREEZE, /* writes are refused; some may still be under way */
    SH_MOVE_STAGE,  /* to be sent to the target */
    SH_MOVE_STAGED, /* reads are refused; some may still be under way */
    SH_MOVE_COMMIT, /* to be asked of the superpeer */
    SH_MOVE_TELL,   /* committed and let go; the target is to be told */
    SH_MOVE_REMIND, /* the next target has not heard of a batch before, and must first */
    SH_MOVE_DOUBT,  /* the superpeer has lost its memory: the target is to be asked */
};

/* The batch at hand. */
struct sh_move_batch {
    struct sh_metadata_run runs[SH_METADATA_RUNS_MAX];
    size_t count;
    size_t chunks;
    uint64_t bytes;
    shoal_nid creator, target, superpeer;
    char target_address[SH_MSG_ADDRESS_MAX];
    uint64_t sequence;
    uint64_t frozen_ns;
    struct sh_outcome *outcomes;
    size_t outcome_count, outcome_room;
    enum shoal_err outcomes_err; /* ENOMEM; ETOOBIG: too many for one batch */
    enum shoal_err said;         /* ELIMIT, if COMMIT was answered with that */
    uint64_t ended_ns;           /* when the target was first seen to have ended; 0: it was not */
    bool was_left_out;           /* HOLDS was answered without it, while others decided about it */
    struct sh_locks_bag locks;
};

/* A batch that came and is not committed yet, as far as is known here; or a claim (moves_claims.c).
 */
struct sh_staged {
    struct sh_staged *next;
    struct sh_moves *moves;
    shoal_nid source, superpeer;
    uint64_t sequence, incarnation;
    uint64_t since_ns;
    uint64_t due_ns; /* when to ask */
    bool is_asking;
    bool was_left_out;                       /* as in struct sh_move_batch */
    char source_address[SH_MSG_ADDRESS_MAX]; /* of one that came; "": not known */
    struct sh_request request;
    size_t count;
    struct sh_metadata_run runs[];
};

/* One of a list that is due, or NULL; and when the next one is. */
static inline struct sh_staged *sh_staged_due(struct sh_staged *list, uint64_t now_ns)
{
    while (list && (list->is_asking || now_ns < list->due_ns))
        list = list->next;
    return list;
}

static inline uint64_t sh_staged_due_ns(const struct sh_staged *list)
{
    uint64_t due_ns = SH_NEVER;
    for (; list; list = list->next) {
        if (!list->is_asking && list->due_ns < due_ns)
            due_ns = list->due_ns;
    }
    return due_ns;
}

/* What a node remembers of another one's batches. */
struct sh_move_peer {
    uint64_t untold; /* sequence of a batch that we committed, of which it has not heard; 0: none */
    uint64_t highest;   /* sequence of the last one that came, or was called off */
    uint64_t committed; /* of the last one that was committed */
};

struct sh_moves {
    struct sh_moves_config config;
    struct sh_holdings *holdings;
    struct sh_outcomes *outcomes;
    /* The source's. */
    struct sh_move_job job;
    shoal_cid first, last;
    shoal_nid target; /* NONE: in turn */
    bool drains, is_canceled;
    uint64_t bytes_per_s, bytes_max;
    enum sh_move_state state;
    struct sh_move_batch batch;
    struct sh_request request;
    bool is_asking;
    uint64_t due_ns;            /* nothing to do before */
    uint64_t may_send_ns;       /* by bytes_per_s */
    sh_lid cursor;              /* in the store's order */
    sh_lid run_first, run_last; /* chunks that the store said to have, so as not to ask each time */
    uint64_t pass_chunks;       /* moved in this pass */
    shoal_nid asked_creator;
    uint64_t incarnation; /* of what is known of that one's chunks; 0: to be asked */
    uint64_t sequence;
    unsigned troubles; /* batches that failed one after the other */
    size_t chunks_max; /* of a batch: fewer when they have many results */
    uint64_t
        stuck_ns;   /* since when nothing is left but what stays (sh_move_stays); 0: it is not so */
    shoal_nid turn; /* the target that was taken last */
    uint64_t turn_left;      /* chunks that it is to get before it is another's turn */
    unsigned limits;         /* batches that the superpeers had no room for, one after the other */
    unsigned untold;         /* how many peers there are with `untold` */
    uint64_t *full;          /* targets that take no more, a bit by node ID */
    enum shoal_err full_err; /* what the last of them said, but ENONODE only if all did */
    /* The target's. */
    struct sh_staged *staged;
    uint64_t holds_refused_ns; /* when HOLDS was refused first, of late */
    struct sh_staged *claims;  /* committed ones, and `thawed` */
    struct sh_staged *thawed;  /* room for the claim of the batch at hand */
    struct sh_unheard *unheard;
    struct sh_move_peer *peers; /* by node ID */
};

/* moves.c. Begins a job as the fields of the wish say that come with it. */
void sh_moves_begin(struct sh_moves *moves, const struct sh_moves *wish, uint64_t number);
/* Whether chunks may leave now. */
bool sh_moves_may(const struct sh_moves *moves);

/* moves_requests.c */
void sh_moves_requests_register(struct sh_moves *moves);

/* moves_batch.c: chooses the next batch, from the cursor on. False: the pass is over. */
bool sh_moves_gather(struct sh_moves *moves);
/* Counts some more of what there is; false: that is all. */
bool sh_moves_count(struct sh_moves *moves);
/* Changes what is so of the batch's chunks. */
void sh_moves_mark(struct sh_moves *moves, enum sh_holding own, enum sh_holding others);
/* Takes the locks of the batch's chunks out of the table. ENOMEM, ELIMIT: some of them. */
SHOAL_NODISCARD enum shoal_err sh_moves_locks_pack(struct sh_moves *moves);
/* The STAGE message's size. Collects the outcomes. EBUSY: a chunk is gone; ETOOBIG: the batch has
 * more than one chunk, and too many results; ELIMIT: the one chunk has; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_moves_stage_bytes(struct sh_moves *moves, size_t *bytes_out);
/* Writes it. False: a chunk changed its size, which nobody may; the rest is padding. */
bool sh_moves_stage_put(struct sh_moves *moves, struct sh_writer *w);
/* The batch's chunks leave the store. */
void sh_moves_let_go(struct sh_moves *moves);

/* moves_peers.c: what a source knows of its targets. */
#define SH_MOVES_FULL_WORDS ((UINT16_MAX + 1) / 64)
/* A job begins: all may have room. */
void sh_moves_targets_begin(struct sh_moves *moves);
/* The target has said with that error that it takes no more in this job. */
void sh_moves_target_full(struct sh_moves *moves, shoal_nid nid, enum shoal_err err);
/* The batch's target. ENOMEM; ENONODE: there is none; what the last one said that takes no more. */
SHOAL_NODISCARD enum shoal_err sh_moves_target_pick(struct sh_moves *moves);
/* A peer has not heard that it has the batch of that sequence; 0: it has. */
void sh_moves_untold_set(struct sh_moves *moves, shoal_nid nid, uint64_t sequence);
/* A peer that has not heard of a batch; NONE. Those whose process has ended are forgotten. */
shoal_nid sh_moves_untold_next(struct sh_moves *moves);
/* Whether a peer's process has ended for sure: it has said that it leaves, or another one listens
 * at its address. A superpeer that has lost its memory may not know the node at all: its address
 * then is the one given here, "" for one that is not remembered. */
bool sh_moves_has_ended(const struct sh_moves *moves, shoal_nid nid, const char *address);

/* moves_target.c */
void sh_moves_target_register(struct sh_moves *moves);
unsigned sh_moves_target_step(struct sh_moves *moves, uint64_t now_ns);
uint64_t sh_moves_target_due_ns(const struct sh_moves *moves);
void sh_moves_target_end(struct sh_moves *moves);

/* moves_claims.c. Sees to it that the superpeer hears that this node has a batch that came, and
 * frees it then; or has the batch at hand again. Until that is so, this node gives nothing away. */
void sh_moves_claim(struct sh_moves *moves, struct sh_staged *staged);
void sh_moves_claim_batch(struct sh_moves *moves);
unsigned sh_moves_claims_step(struct sh_moves *moves, uint64_t now_ns);
void sh_moves_claims_end(struct sh_moves *moves);
/* moves_unheard.c. The batch is this node's by a superpeer's word, which the source may not have
 * heard. */
void sh_moves_unheard_add(struct sh_moves *moves, const struct sh_staged *staged);
/* The source goes on, or speaks of its last batch: it knows. */
void sh_moves_unheard_over(struct sh_moves *moves, shoal_nid source);
/* Whether a source that lives has not heard of a batch that is here: until then, this node gives
 * nothing away. */
bool sh_moves_is_unheard(struct sh_moves *moves);
/* A source that has not heard, and may come back; NONE. */
shoal_nid sh_moves_unheard_next(struct sh_moves *moves);
unsigned sh_moves_unheard_step(struct sh_moves *moves, uint64_t now_ns);
uint64_t sh_moves_unheard_due_ns(const struct sh_moves *moves);
void sh_moves_unheard_end(struct sh_moves *moves);

/* Whether others decide about the batch at hand. */
static inline bool sh_moves_is_open(const struct sh_moves *moves)
{
    return moves->state == SH_MOVE_COMMIT || moves->state == SH_MOVE_DOUBT;
}
/* The last batch of this node's own of which it knows what came of it. */
static inline uint64_t sh_moves_known(const struct sh_moves *moves)
{
    return sh_moves_is_open(moves) ? moves->batch.sequence - 1 : moves->sequence;
}

/* Writes a COMMIT, CLAIM or RESOLVE. */
void sh_moves_batch_put(struct sh_writer *w, shoal_nid from, shoal_nid to, uint64_t incarnation,
                        uint64_t sequence, const struct sh_metadata_run *runs, size_t count);
static inline size_t sh_moves_batch_bytes(size_t count)
{
    return 22 + 16 * count;
}

static inline bool sh_moves_is_up(const struct sh_moves *moves, shoal_nid nid)
{
    struct sh_node node;
    return sh_directory_node(moves->config.directory, nid, &node) == SHOAL_OK &&
           node.role == SH_ROLE_PEER && node.state == SH_NODE_UP;
}

#endif
