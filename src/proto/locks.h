/* Requests about locks on a peer's chunks: types and layouts. The locks themselves are leases (store/leases.h).
 *
 * All are requests; little-endian, no padding. The owner is the sender (its node ID, or for a
 * client the alias of its connection) with the token that it chose. Modes: 1 read, 2 write.
 *
 *   LOCK         u64 chunk ID, u64 token, u64 lease ns (1 at least), u64 wait ns, u8 mode. Answered
 *                when the lock is granted, or the wait is over
 *   UNLOCK       u64 chunk ID, u64 token. Ends the owner's wait as well
 *   LOCK_EXTEND  u64 chunk ID, u64 token, u64 lease ns
 *   LOCK_SWAP    u64 chunk ID, u64 token, u64 lease ns, u8 mode
 *     answer     of all four: u16 error, u8 mode, u16 node ID, u64 token, u64 ns that are left; all
 *                but the error are 0 unless it is EBUSY or ETIMEOUT and one who is in the way is
 *                known: then they are of that one's lock
 *   LOCKS        u64 chunk ID, u16 node ID, u64 token to begin at
 *     answer     at most SH_LOCKS_LIST_MAX times: u64 chunk ID, u64 token, u16 node ID, u8 mode, u8
 *                waiting (0, 1), u64 ns left (2^64 - 1: no end), u32 holders, u32 waiters of the
 *                chunk; fewer: there are no more
 *
 * The first four may end with one more u64: the number by which the client goes at all nodes. A
 * lock moves with its chunk only if its owner has said it, and is found again by it.
 *
 * Leases over SH_LEASE_NS_MAX are cut to it. A request is at most once in effect: whoever asks
 * again for what it holds extends it, and whoever asks again for what it waits for keeps its place
 * (the older request is answered with ECANCELED). Errors in the answer: ENOCHUNK (LOCK only),
 * EBUSY, ETIMEOUT, ECANCELED, ENOLOCK, ELIMIT. Instead of an answer: ENOTOWNER as for all chunks,
 * EPROTO. */
#ifndef SH_PROTO_LOCKS_H
#define SH_PROTO_LOCKS_H

#include "msg/msg.h"

#define SH_LOCKS_LOCK SH_MSG_TYPE(2, 15)
#define SH_LOCKS_UNLOCK SH_MSG_TYPE(2, 16)
#define SH_LOCKS_EXTEND SH_MSG_TYPE(2, 17)
#define SH_LOCKS_SWAP SH_MSG_TYPE(2, 18)
#define SH_LOCKS_LIST SH_MSG_TYPE(2, 19)

#define SH_LOCKS_LIST_MAX 1024
#define SH_LOCKS_LIST_BYTES 36
#define SH_LOCKS_ANSWER_BYTES 21

#endif
