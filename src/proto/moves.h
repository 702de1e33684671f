/* Requests of migration: types and layouts. docs/migration.md has the protocol.
 *
 * Types and layouts; all are requests, little-endian, no padding. To the source, from whoever:
 *
 *   MOVE     u64 job, not 0, drawn by who asks: the same again is answered with OK and begins
 *            nothing; u64 first, u64 last chunk ID; u16 target, or 0: all other peers that are up,
 *            in turn; u8 flags (1: drain: the node takes no chunks from now on, new or moved, and
 *            the job goes on until nothing is left); u64 bytes a second at most, or 0; u64 bytes
 *            after which the job ends, or 0
 *
 *     EBUSY (another migration, a dump that is being loaded, or a graph whose index knows its
 *     chunks here), EINVAL, ENONODE (the target is not a peer that is up), EAGAIN (it is not known
 *     here yet), ENOTOWNER (not joined)
 *
 *   MOVE_JOB u64 job, or 0 for the last
 *
 *     answer struct sh_move_job (sh_move_job_get). ENONAME: it is not the last one
 *
 *   MOVE_CANCEL u64 job. ENONAME. The job ends soon after with ECANCELED; what was moved stays so
 *
 *   UNDRAIN  nothing. The node may create and take chunks again; a drain that is under way ends
 *
 * Between source and target:
 *
 *   STAGE    u64 sequence, u16 runs, u32 outcomes, u32 locks; runs (u64 first, u64 last), the chunks
 *            of the runs in order (u32 size, bytes), outcomes (node/outcomes.h), locks
 *            (store/leases.h; node/locks.h). Of a chunk of more than SH_MOVES_BYTES_MAX bytes, which is a
 *            batch by itself, only its size; it is answered once all PIECEs are there
 *
 *     answer u64 the target's instance
 *
 *     ECANCELED: it is late; EBUSY: what came of the batch before is not known here, or of the one
 *     that this node gives away; ENONODE: the node is being drained; EEXIST: chunks of it are here;
 *     EFULL, ETOOBIG, ELIMIT
 *
 *   PIECE    one-way, in order: u64 sequence, u32 offset, the next SH_STORE_PIECE_BYTES of that chunk, or
 *            those that are left
 *
 *   DONE     one-way: u64 sequence, u8: 1 it is committed, 0 it is not to be
 *
 *   OUTCOME  from a client to a chunk's owner: u64 chunk ID, u64 client, u16 node, u64 number
 *
 *     answer u8 whether it is known, u16 error, u64 value: what came of the request that the client
 *     sent to that node under that number. Where that is the asked node, it is one of its lives before; of a create the chunk's local ID
 *     is 0, and the value is that of the chunk that was made. ENOTOWNER, EBUSY; EFAILED: its lives before have left it nothing */
#ifndef SH_PROTO_MOVES_H
#define SH_PROTO_MOVES_H

#include "base/bytes.h"
#include "msg/msg.h"
#include "store/store.h"

#define SH_MOVES_MOVE SH_MSG_TYPE(2, 50)
#define SH_MOVES_JOB SH_MSG_TYPE(2, 51)
#define SH_MOVES_CANCEL SH_MSG_TYPE(2, 52)
#define SH_MOVES_STAGE SH_MSG_TYPE(2, 53)
#define SH_MOVES_DONE SH_MSG_TYPE(2, 54)
#define SH_MOVES_PIECE SH_MSG_TYPE(2, 55)
#define SH_MOVES_OUTCOME SH_MSG_TYPE(2, 56)
#define SH_MOVES_UNDRAIN SH_MSG_TYPE(2, 57)

#define SH_MOVES_CHUNKS_MAX 1024
#define SH_MOVES_BYTES_MAX SH_STORE_PIECE_BYTES
#define SH_MOVES_DRAIN 1
#define SH_MOVE_BYTES 43
#define SH_MOVES_STAGE_ANSWER_BYTES 8
#define SH_MOVES_PIECE_BYTES 12 /* and the bytes */
#define SH_MOVES_DONE_BYTES 9
#define SH_MOVES_OUTCOME_BYTES 26
#define SH_MOVES_OUTCOME_ANSWER_BYTES 11

/* Why a job has not done what it was to, in 30 s without any progress. */
enum sh_move_stays {
    SH_MOVE_STAYS_NOTHING,
    SH_MOVE_STAYS_LOCKED,    /* chunks whose locks can't move */
    SH_MOVE_STAYS_UNDECIDED, /* of a drain: chunks that came, but nobody can say whether for good */
};

struct sh_move_job {
    uint64_t number; /* 0: there was none yet, or the node moves chunks to make room */
    bool is_over;
    enum shoal_err err;     /* once it is over; before that: why it is not getting on, or OK */
    uint64_t chunks, bytes; /* moved */
    uint64_t all_chunks;    /* that there were in the range when it began */
    uint64_t batches;
    uint64_t locked;        /* chunks that were left in the last pass because of their locks */
    uint64_t freeze_ns;     /* the longest time that a batch stood still */
    shoal_nid target;       /* of the batch that was begun last */
    enum sh_move_stays why; /* if it is over with EBUSY */
    shoal_cid stays;        /* the first of the chunks that stay */
};

#define SH_MOVE_JOB_BYTES 70
void sh_move_job_put(struct sh_writer *w, const struct sh_move_job *job);
/* False: malformed. */
bool sh_move_job_get(struct sh_reader *r, struct sh_move_job *job_out);

#endif
