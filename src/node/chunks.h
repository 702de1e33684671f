/* Serving a peer's chunks: the requests of clients and other nodes. Types and layouts:
 *
 * All are requests; little-endian, no padding. An operation on a chunk that this node did not
 * create, or a node that has not joined yet, is answered with ENOTOWNER.
 *
 *   CREATE        u32 count (1 to SH_CHUNKS_MANY_MAX), u8 has_sizes, then u32 size, or, if
 *                 has_sizes is 1, count times u32 size
 *     answer      runs, each u64 first chunk ID, u32 how many; in the order of the sizes
 *   GET           u64 chunk ID, u32 room
 *     answer      u16 error, u32 size, and if the error is OK the chunk's bytes (ESIZE: size is the
 *                 room needed; ENOCHUNK: size is 0)
 *   PUT           u64 chunk ID, bytes to the end
 *   REMOVE        u64 chunk ID
 *   MULTI_GET     any number of: u64 chunk ID, u32 room
 *     answer      for each: as GET
 *   MULTI_PUT     any number of: u64 chunk ID, u32 size, bytes
 *     answer      for each: u16 error
 *   MULTI_REMOVE  any number of: u64 chunk ID
 *     answer      for each: u16 error
 *   RANGES        u64 first chunk ID to look at
 *     answer      at most SH_CHUNKS_RANGES_MAX times u64 first, u64 last; none: there are no more
 *   STATUS        empty
 *     answer      13 u64, in the order of struct shoal_status
 *   STOP          empty: the node stops in order, soon after it has answered
 *   CREATE_ONCE   the prefix of msg/once.h, u32 size: as CREATE of one chunk, but at most once
 *   PUT_ONCE      the prefix, then as PUT
 *   REMOVE_ONCE   the prefix, then as REMOVE
 *   LOG_LEVELS    the levels, as the option log_levels; at most 1023 bytes. Any node
 */
#ifndef SH_NODE_CHUNKS_H
#define SH_NODE_CHUNKS_H

#include "msg/msg.h"
#include "store/store.h"

#define SH_CHUNKS_CREATE SH_MSG_TYPE(2, 1)
#define SH_CHUNKS_GET SH_MSG_TYPE(2, 2)
#define SH_CHUNKS_PUT SH_MSG_TYPE(2, 3)
#define SH_CHUNKS_REMOVE SH_MSG_TYPE(2, 4)
#define SH_CHUNKS_MULTI_GET SH_MSG_TYPE(2, 5)
#define SH_CHUNKS_MULTI_PUT SH_MSG_TYPE(2, 6)
#define SH_CHUNKS_MULTI_REMOVE SH_MSG_TYPE(2, 7)
#define SH_CHUNKS_RANGES SH_MSG_TYPE(2, 8)
#define SH_CHUNKS_STATUS SH_MSG_TYPE(2, 9)
#define SH_NODE_STOP SH_MSG_TYPE(2, 10)
#define SH_NODE_LOG_LEVELS SH_MSG_TYPE(2, 11)
#define SH_NODE_PROMOTE SH_MSG_TYPE(2, 40)

#define SH_CHUNKS_CREATE_ONCE SH_MSG_TYPE(2, 12)
#define SH_CHUNKS_PUT_ONCE SH_MSG_TYPE(2, 13)
#define SH_CHUNKS_REMOVE_ONCE SH_MSG_TYPE(2, 14)

#define SH_CHUNKS_MANY_MAX (1u << 20)
#define SH_CHUNKS_RANGES_MAX 4096
#define SH_CHUNKS_GET_HEAD_BYTES 6

struct sh_chunks;

/* Registers the handlers (all but STOP, LOG_LEVELS and PROMOTE) with msg, before its steps run.
 * Both are kept; the store's limit is named in errors. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_chunks_create(struct sh_msg *msg, struct sh_store *store,
                                                uint32_t chunk_bytes_max,
                                                struct sh_chunks **chunks_out);
/* After msg is destroyed or its steps have stopped. NULL is allowed. */
void sh_chunks_destroy(struct sh_chunks *chunks);

#endif
