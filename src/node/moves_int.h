/* What the files of migration share. */
#ifndef SH_NODE_MOVES_INT_H
#define SH_NODE_MOVES_INT_H

#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "node/holdings.h"
#include "node/moves.h"
#include "node/outcomes.h"

/* Pauses: before another attempt at what a message could not do; between two passes. */
#define SH_MOVES_AGAIN_NS UINT64_C(10000000)
#define SH_MOVES_PASS_NS UINT64_C(20000000)
/* How long a target waits for word of a batch before it asks the superpeer. */
#define SH_MOVES_ASK_NS UINT64_C(1000000000)
#define SH_MOVES_STAGE_HEAD_BYTES 18
#define SH_MOVES_OUTCOMES_MAX 16384 /* of a batch; of one chunk all that there are */

/* What a job does beside its batches. */
enum sh_move_work {
    SH_MOVE_IDLE,   /* there is no job */
    SH_MOVE_COUNT,  /* counting what there is */
    SH_MOVE_GATHER, /* the next batch is to be chosen, where there is room for one */
    SH_MOVE_END,    /* it ends once the batches under way have */
};

/* Batches of a source under way, and of one that a target keeps. */
#define SH_MOVES_FLIGHT_MAX 4
/* So many bytes a source has under way at most, unless one chunk has more: a node that sends or takes
 * all of them at once is through with that in less than a millisecond. */
#define SH_MOVES_FLIGHT_BYTES_MAX (2 * SH_MOVES_BYTES_MAX)

/* Of a batch, in their order. No batch is sent, or asked for, before those that were begun before it:
 * targets and superpeers take the numbers of a source in rising order only. */
enum sh_move_state {
    SH_MOVE_NONE,
    SH_MOVE_FREEZE, /* writes are refused; some may still be under way */
    SH_MOVE_STAGE,  /* to be sent to the target */
    SH_MOVE_SENT,   /* the target has not answered */
    SH_MOVE_THERE,  /* the target has it */
    SH_MOVE_STAGED, /* reads are refused; some may still be under way */
    SH_MOVE_COMMIT, /* to be asked of the superpeer */
    SH_MOVE_ASKED,  /* it has been; only its answer says whether it is committed */
    SH_MOVE_TELL,   /* committed and let go; the target is to be told */
};

struct sh_move_batch {
    struct sh_moves *moves;
    enum sh_move_state state;
    uint64_t due_ns; /* nothing to do before */
    struct sh_request request;
    bool is_asking;
    uint64_t wait; /* sh_holdings_settle */
    struct sh_metadata_run runs[SH_METADATA_RUNS_MAX];
    size_t count;
    size_t chunks;
    uint64_t bytes;
    uint32_t pieces_sent; /* of a large chunk: bytes */
    size_t let_go;        /* chunks, once it is committed */
    shoal_nid creator, target;
    uint64_t target_life; /* of the process that has it */
    uint64_t sequence;
    uint64_t frozen_ns;
    struct sh_outcome *outcomes;
    size_t outcome_count, outcome_room;
    enum shoal_err outcomes_err; /* ENOMEM; ETOOBIG: too many for one batch */
    enum shoal_err said;         /* ELIMIT, if COMMIT was answered with that */
    struct sh_locks_bag locks;
};

/* A batch that came and is not committed yet, as far as is known here. */
struct sh_staged {
    struct sh_staged *next;
    struct sh_moves *moves;
    shoal_nid source;
    uint64_t sequence;
    uint64_t due_ns; /* when to ask */
    bool is_asking;
    bool is_reported; /* HOLDS was answered since: what came of it a superpeer must say */
    /* A chunk that comes in pieces, while some are missing (block), and who waits for them. */
    struct sh_store_arriving arriving;
    uint64_t
        full_ns; /* since when all pieces are there, and the log has no room; 0: it is not so */
    struct sh_write write; /* all its chunks, and what came with them */
    /* Results of requests on them, to be recorded when the chunks are here; is_telling: some are not yet, as there is no room. */
    struct sh_outcome *results;
    size_t results_count, told;
    bool is_telling;
    bool is_logging; /* they are here, and STAGE is answered once they are on the disk */
    struct sh_reply_to reply_to;
    struct sh_request request;
    size_t count;
    struct sh_metadata_run runs[];
};

/* What is found out of a former life (moves_former.c). */
struct sh_former {
    uint64_t base;   /* own local IDs up to this one are a former life's; 0: there was none */
    uint64_t next;   /* from here to base it is not known which are elsewhere; 0: it is */
    shoal_cid asked; /* what the superpeer was asked about, and moves->changes then */
    uint64_t changes;
    bool is_asking;
    bool has_lost; /* the holdings were told that chunks of former lives are lost */
    uint64_t due_ns;
    struct sh_request request;
    /* Chunks that came back from the node's log: in the store's order, those before `swept` are served, or are gone. */
    bool sweeps;
    sh_lid swept;
    struct sh_range
        answer; /* the last one about another's chunk, and moves->changes when it was asked for; last below first: none */
    uint64_t answer_changes;
};

#define SH_VACANT_MAX 256

/* Ranges of others that go back, without chunks (moves_vacant.c); the first is asked for. */
struct sh_vacant {
    struct sh_request request;
    bool is_asking;
    uint64_t due_ns;
    size_t count;
    struct sh_metadata_run ranges[SH_VACANT_MAX];
};

struct sh_moves {
    struct sh_moves_config config;
    struct sh_holdings *holdings;
    struct sh_outcomes *outcomes;
    /* The source's. */
    struct sh_move_job job;
    struct sh_move_job
        asked; /* the last one that somebody asked for, while the node has one of its own */
    shoal_cid first, last;
    shoal_nid target; /* NONE: in turn */
    bool drains, is_canceled;
    uint64_t bytes_per_s, bytes_max;
    enum sh_move_work work;
    struct sh_move_batch batches[SH_MOVES_FLIGHT_MAX];
    unsigned looked;            /* which of them was looked at last */
    uint64_t due_ns;            /* of the job: nothing to do before */
    bool waits;                 /* until a batch ends, it has nothing to do */
    enum shoal_err end_err;     /* END: with what */
    sh_lid cursor;              /* in the store's order */
    sh_lid run_first, run_last; /* chunks that the store said to have, so as not to ask each time */
    uint64_t pass_chunks;       /* moved in this pass */
    uint64_t sequence;          /* of the last batch that was begun */
    unsigned troubles;          /* how often batches failed, and none came about */
    uint64_t trouble_sequence;  /* those up to this one have failed together */
    size_t chunks_max;          /* of a batch: fewer when they have many results */
    uint64_t
        stuck_ns;   /* since when nothing is left but what stays (sh_move_stays); 0: it is not so */
    shoal_nid turn; /* the target that was taken last */
    uint64_t turn_left;      /* chunks that it is to get before it is another's turn */
    unsigned limits;         /* batches that the superpeers had no room for, one after the other */
    uint64_t *full;          /* targets that take no more, a bit by node ID */
    enum shoal_err full_err; /* what the last of them said, but ENONODE only if all did */
    /* The target's. */
    struct sh_staged *staged;
    struct sh_staged *left; /* of which nothing comes, but which are being logged */
    uint64_t changes;       /* batches that came or went for good */
    struct sh_former former;
    struct sh_vacant vacant;
    uint64_t *highest; /* by node ID: the sequence of the last batch that came from there */
};

/* moves.c. Whether any batch is not over. */
bool sh_moves_is_under_way(const struct sh_moves *moves);
/* Whether the superpeer may have committed a batch, and has not been heard. */
bool sh_moves_is_unclear(const struct sh_moves *moves);
/* Begins a job as the fields of the wish say that come with it. */
void sh_moves_begin(struct sh_moves *moves, const struct sh_moves *wish, uint64_t number);
/* Whether chunks may leave now. */
bool sh_moves_may(const struct sh_moves *moves);

/* moves_requests.c */
void sh_moves_requests_register(struct sh_moves *moves);

/* moves_batch.c: puts the cursor where the job's chunks begin. */
void sh_moves_rewind(struct sh_moves *moves);
/* Chooses the next batch, from the cursor on. False: the pass is over. */
bool sh_moves_gather(struct sh_moves *moves, struct sh_move_batch *batch);
/* Counts some more of what there is; false: that is all. */
bool sh_moves_count(struct sh_moves *moves);
/* Changes what is so of the batch's chunks. */
void sh_moves_mark(struct sh_move_batch *batch, enum sh_holding own, enum sh_holding others);
/* Takes the locks of the batch's chunks out of the table. ENOMEM, ELIMIT: some of them. */
SHOAL_NODISCARD enum shoal_err sh_moves_locks_pack(struct sh_move_batch *batch);
/* The STAGE message's size. Collects the outcomes. EBUSY: a chunk is gone; ETOOBIG: the batch has
 * more than one chunk, and too many results, or bytes since they grew; ELIMIT: the one chunk has; ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_moves_stage_bytes(struct sh_move_batch *batch, size_t *bytes_out);
/* Writes it. False: a chunk changed its size, which nobody may; the rest is padding. */
bool sh_moves_stage_put(struct sh_move_batch *batch, struct sh_writer *w);
/* How many bytes the next PIECE of the batch has; 0: there is none. */
uint32_t sh_moves_piece_next(const struct sh_move_batch *batch);
/* Writes it. */
void sh_moves_piece_put(struct sh_move_batch *batch, struct sh_writer *w);
/* Whether a chunk's bytes go in pieces. */
static inline bool sh_moves_is_large(size_t chunks, uint64_t bytes)
{
    return chunks == 1 && bytes > SH_MOVES_BYTES_MAX;
}
/* The batch's chunks leave the store. False: the log has no room for more of that now; again later. */
bool sh_moves_let_go(struct sh_move_batch *batch);

/* moves_peers.c: which peers take chunks. */
#define SH_MOVES_FULL_WORDS ((UINT16_MAX + 1) / 64)
/* A job begins: all may have room. */
void sh_moves_targets_begin(struct sh_moves *moves);
/* The target has said with that error that it takes no more in this job. */
void sh_moves_target_full(struct sh_moves *moves, shoal_nid nid, enum shoal_err err);
/* The batch's target. ENOMEM; ENONODE: there is none; what the last one said that takes no more. */
SHOAL_NODISCARD enum shoal_err sh_moves_target_pick(struct sh_moves *moves,
                                                    struct sh_move_batch *batch);
/* moves_target.c */
void sh_moves_target_register(struct sh_moves *moves);
unsigned sh_moves_target_step(struct sh_moves *moves, uint64_t now_ns);
uint64_t sh_moves_target_due_ns(const struct sh_moves *moves);
void sh_moves_target_end(struct sh_moves *moves);

/* moves_former.c. Whether it is not known yet which own chunks of a former life are elsewhere. */
bool sh_moves_is_finding_out(const struct sh_moves *moves);
/* Whether a chunk has come in a batch that is not decided. */
bool sh_moves_is_staged(const struct sh_moves *moves, shoal_cid cid);
/* Whether the store may have chunks that came back from the log, and are other peers' by now. */
bool sh_moves_is_sweeping(const struct sh_moves *moves);
unsigned sh_moves_former_step(struct sh_moves *moves, uint64_t now_ns);
uint64_t sh_moves_former_due_ns(const struct sh_moves *moves);
void sh_moves_former_end(struct sh_moves *moves);
/* Whether zones of former lives are lost, and no operator has accepted that. */
bool sh_moves_former_are_lost(const struct sh_moves *moves);

/* moves_vacant.c. stop: no answer of before counts any more. */
void sh_moves_vacant_register(struct sh_moves *moves);
unsigned sh_moves_vacant_step(struct sh_moves *moves, uint64_t now_ns);
uint64_t sh_moves_vacant_due_ns(const struct sh_moves *moves);
void sh_moves_vacant_stop(struct sh_moves *moves);

/* moves_holds.c: what a superpeer asks after it has lost what it knew. */
void sh_moves_holds_register(struct sh_moves *moves);

/* The next batch's number: above all that a former process with this ID has used, as that one joined at an
 * earlier epoch. */
uint64_t sh_moves_sequence_next(struct sh_moves *moves);

/* Writes a COMMIT or RESOLVE. to_life: of the process of `to` that has the batch. */
void sh_moves_batch_put(const struct sh_moves *moves, struct sh_writer *w, shoal_nid from,
                        shoal_nid to, uint64_t to_life, uint64_t sequence,
                        const struct sh_metadata_run *runs, size_t count);
static inline size_t sh_moves_batch_bytes(size_t count)
{
    return SH_COMMIT_BYTES + 16 * count;
}

static inline bool sh_moves_is_up(const struct sh_moves *moves, shoal_nid nid)
{
    struct sh_node node;
    return sh_directory_node(moves->config.directory, nid, &node) == SHOAL_OK &&
           node.role == SH_ROLE_PEER && node.state == SH_NODE_UP;
}

#endif
