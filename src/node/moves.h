/* Migration: moving chunks from this node to others, and taking those that come. docs/migration.md
 * has the protocol, and what each failure does.
 *
 * A job moves what this node has of a range of chunk IDs, in batches of up to SH_MOVES_CHUNKS_MAX
 * chunks and SH_MOVES_BYTES_MAX bytes (or one chunk where that is larger). One job at a time; who
 * asked for it polls. Four batches at most are under way, begun, sent and asked for in the order of
 * their numbers, and only they stand still. Each:
 *
 *   gather -> freeze writes -> STAGE to the target -> freeze reads -> COMMIT to the superpeer
 *      ^                         | refused                              | refused
 *      |                         v                                      v
 *      '------ let go, DONE <--- thaw <---------------------------------'
 *
 * Locks move with their chunks (node/locks.h). A chunk whose lock can't, as its owner has told no
 * number, is left until it has none: the job comes back to it, and ends with EBUSY when
 * nothing but such chunks is left for 30 s.
 *
 * What a batch meets that may pass (is_passing in moves.c) ends a job after 16 attempts in a row
 * (EBUSY: 48), but not a drain, which asks again at most each second.
 *
 * The messages are in proto/moves.h.
 *
 * Threads: all belongs to the thread of the transport step. */
#ifndef SH_NODE_MOVES_H
#define SH_NODE_MOVES_H

#include "backup/completion.h"
#include "base/crew.h"
#include "cluster/directory.h"
#include "env/env.h"
#include "msg/msg.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "proto/moves.h"

/* The first number of a batch in an epoch: higher than those that a former process with the node's ID has given in an
 * epoch before, for as long as that gave less than 2^32 in one. An epoch's upper half counts how often the cluster was
 * forced to go on (registry_shared.c): each time counts like 2^20 epochs, so that 64 bits are enough. */
uint64_t sh_moves_sequence_base(uint64_t epoch);

struct sh_moves;

struct sh_moves_config {
    struct sh_msg *msg; /* kept, like all of these */
    struct sh_store *store;
    struct sh_backup *backup; /* of the store */
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_directory *directory;
    struct sh_clock clock;
    /* Whether chunks may leave now; NULL: always. */
    bool (*may_move)(void *arg);
    /* Whether it is known what became of the chunks of the node's former lives, so that it may be asked where they are (docs/recovery.md); NULL: always. */
    bool (*are_former_over)(void *arg);
    /* Once they are over: whether any is lost; NULL: none. */
    bool (*are_former_lost)(void *arg);
    /* Whether a zone is about to be served here, of whose results some are not known yet (sh_moves_completed); NULL: never. */
    bool (*is_opening)(void *arg);
    /* As sh_restorer_is_filling: no chunk may come from elsewhere meanwhile; NULL: never. */
    bool (*is_filling)(void *arg);
    /* Whether no batch is to be begun just now, asked again after a moment; NULL: never. */
    bool (*must_wait)(void *arg);
    /* Whether no chunks are being put here by another job, so that a drain has an end; NULL: so. */
    bool (*may_drain)(void *arg);
    void *arg;
};

/* Registers the handlers, before msg's steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_moves_create(const struct sh_moves_config *config,
                                               struct sh_moves **moves_out);
struct sh_step sh_moves_step(struct sh_moves *moves);
/* The node has joined. Where it is another life of a former one (sh_store_ids_base), what that one had
 * is found out; before requests are run. Transport step's thread. */
void sh_moves_joined(struct sh_moves *moves);
/* After the steps have stopped, before msg is destroyed. NULL is allowed. */
void sh_moves_destroy(struct sh_moves *moves);

/* Calls each for what came of requests on the chunks from first to last, of one creator: by this node, or by another one that had them before. It must not change them. Of creates
 * none: they are about no chunk that a client knows. */
void sh_moves_results(const struct sh_moves *moves, shoal_cid first, shoal_cid last,
                      void (*each)(void *arg, const struct sh_completion *completion), void *arg);

/* Enters the result of a request that another node ran, as this node's log says: before requests are run. */
void sh_moves_completed(struct sh_moves *moves, const struct sh_completion *completion);

/* Chunks with those IDs, all of one creator, are this node's from now on, and served. False: there is no room for their ranges now. */
bool sh_moves_serves(struct sh_moves *moves, shoal_cid first, shoal_cid last);

/* Begins a job of the node's own, that nobody asked for: chunks of so many bytes go to a peer. EBUSY: another one is under way, or chunks may not leave now; ENONODE, EAGAIN: the target is no peer
 * that is up; ENOTOWNER. Transport step's thread. */
SHOAL_NODISCARD enum shoal_err sh_moves_own_begin(struct sh_moves *moves, shoal_nid target,
                                                  uint64_t bytes);
/* Whether that job is over; and then how much it has moved. It is also if somebody else has begun one since. */
bool sh_moves_own_is_over(const struct sh_moves *moves, uint64_t *chunks_out, uint64_t *bytes_out);

/* Whether the chunk is this node's as far as it knows, or may be: it serves the chunk, moves it, or has it in a batch that came. Transport step's thread. */
bool sh_moves_may_have(const struct sh_moves *moves, shoal_cid cid);
/* Whether a batch for that target is under way, which may have the chunks of it by then. */
bool sh_moves_has_batch_for(const struct sh_moves *moves, shoal_nid target);

/* Whether a batch of that source is here of which it is not known what became of it: that is to be found out before the source's chunks are
 * brought back here. */
bool sh_moves_has_staged_of(const struct sh_moves *moves, shoal_nid source);

/* Whether it is known which of the chunks in the store are this node's: not while a former life's are being found out about. Transport
 * step's thread. */
bool sh_moves_knows_chunks(const struct sh_moves *moves);

/* For who watches a simulated cluster: whether batches came of which it is not known here what came of
 * them. Transport step's thread. */
bool sh_moves_has_staged(const struct sh_moves *moves);

#endif
