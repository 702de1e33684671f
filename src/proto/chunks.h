/* Requests about a peer's chunks, of clients and other nodes: types and layouts. The rest of module 2 is in
 * locks.h (15 to 19), dumps.h (30 to 35), moves.h (50 to 57) and steps.h (61).
 *
 * All are requests; little-endian, no padding. An operation on a chunk that this node does not have
 * (it created it and has not given it away, or it got it from another node), or a node that has not
 * joined yet, is answered with ENOTOWNER; one on a chunk that is just moving away, with EBUSY.
 * Neither has done anything.
 *
 *   CREATE        u32 count (1 to SH_CHUNKS_MANY_MAX), u8 how (a set of SIZES 1, CONSECUTIVE 2 and
 *                 RESERVE 4), then u32 size, or, with SIZES, count times u32 size; with RESERVE
 *                 the IDs are only reserved, and sizes mean nothing
 *     answer      runs, each u64 first chunk ID, u32 how many; in the order of the sizes
 *   GET           u64 chunk ID, u32 room
 *     answer      u16 error, u32 size, and if the error is OK the chunk's bytes (ESIZE: size is the
 *                 room needed; ENOCHUNK, EBUSY: so many bytes of padding follow). EBUSY: it was
 *                 resized just then, or moves, and is to be asked for again
 *   PUT           u64 chunk ID, bytes to the end
 *   REMOVE        u64 chunk ID
 *   MULTI_GET     any number of: u64 chunk ID, u32 room
 *     answer      for each: as GET
 *   MULTI_PUT     any number of: u64 chunk ID, u32 size, bytes
 *     answer      for each: u16 error
 *   MULTI_REMOVE  any number of: u64 chunk ID
 *     answer      for each: u16 error
 *   RANGES        u64 first chunk ID to look at: the node's own come first, then other creators'
 *     answer      at most SH_CHUNKS_RANGES_MAX times u64 first, u64 last; none: there are no more
 *   STATUS        empty
 *     answer      17 u64, in the order of struct shoal_status (is_fenced, is_drained: 0 or 1)
 *   STOP          empty: the node stops in order, soon after it has answered
 *   CREATE_ONCE   the prefix of msg/once.h, u32 size: as CREATE of one chunk, but at most once
 *   PUT_ONCE      the prefix, then as PUT
 *   REMOVE_ONCE   the prefix, then as REMOVE
 *   GET_PART      u64 chunk ID, u32 offset, u32 size
 *     answer      u16 error, u32 the chunk's size (if the error is ESIZE), u32 how many bytes
 *                 follow: the size asked for, or 0; with an error, bytes that follow are padding
 *   PUT_PART_ONCE the prefix, u64 chunk ID, u32 offset, bytes to the end
 *   RESIZE_ONCE   the prefix, u64 chunk ID, u32 size
 *   PUT_IF_ONCE   the prefix, u64 chunk ID, u32 size, expected bytes, bytes to the end. EDIFFERS
 *   PUT_HASH_ONCE the prefix, u64 chunk ID, u64 expected hash, bytes to the end. EDIFFERS
 *   ADD_ONCE      the prefix, u64 chunk ID, u32 offset, u8 width (4 or 8), u64 what to add
 *     answer      u64 what was there before
 *   FILL_ONCE     the prefix, u64 reserved chunk ID, bytes to the end
 *   FREE_ONCE     the prefix, u64 reserved chunk ID: gives it back
 *   MULTI_RESIZE  any number of: u64 chunk ID, u32 size
 *     answer      for each: u16 error
 *   STOP          u32 within how many ms it is to be back (cluster/proto.h), 0: it leaves for good. Any node
 *   LOG_LEVELS    the levels, as the option log_levels; at most 1023 bytes. Any node
 *   SYNC          empty: answered once all that was written here by anybody is on the disks of the backups
 *                 (ENOBACKUP: nothing is backed up)
 *
 * How far a change gets before it is answered is its level (enum sh_level in backup/backup.h). A request that
 * changes chunks has each type four times: that of the table names no level, and has the node's own (option
 * durability); with 0x40 it is asynchronous, with 0x80 replicated, with 0xC0 durable. A node that backs nothing up refuses the last two (ENOBACKUP).
 */
#ifndef SH_PROTO_CHUNKS_H
#define SH_PROTO_CHUNKS_H

#include "msg/msg.h"

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
#define SH_NODE_PROMOTE SH_MSG_TYPE(2, 60)

#define SH_CHUNKS_CREATE_ONCE SH_MSG_TYPE(2, 12)
#define SH_CHUNKS_PUT_ONCE SH_MSG_TYPE(2, 13)
#define SH_CHUNKS_REMOVE_ONCE SH_MSG_TYPE(2, 14)

#define SH_CHUNKS_GET_PART SH_MSG_TYPE(2, 40)
#define SH_CHUNKS_PUT_PART_ONCE SH_MSG_TYPE(2, 41)
#define SH_CHUNKS_RESIZE_ONCE SH_MSG_TYPE(2, 42)
#define SH_CHUNKS_PUT_IF_ONCE SH_MSG_TYPE(2, 43)
#define SH_CHUNKS_PUT_HASH_ONCE SH_MSG_TYPE(2, 44)
#define SH_CHUNKS_ADD_ONCE SH_MSG_TYPE(2, 45)
#define SH_CHUNKS_FILL_ONCE SH_MSG_TYPE(2, 46)
#define SH_CHUNKS_FREE_ONCE SH_MSG_TYPE(2, 47)
#define SH_CHUNKS_MULTI_RESIZE SH_MSG_TYPE(2, 48)

#define SH_CHUNKS_SYNC SH_MSG_TYPE(2, 49)

/* A type that names a level: asynchronous 0, replicated 1, durable 2. */
#define SH_CHUNKS_LEVELS 3
#define SH_CHUNKS_AT(type, level) ((sh_msg_type)((type) | ((level) + 1) << 6))
/* The type that names none. */
static inline sh_msg_type sh_chunks_form(sh_msg_type type)
{
    return (sh_msg_type)(type & ~0xC0);
}
/* The level that a type names, and 1; 0: it names none. */
static inline unsigned sh_chunks_level_of(sh_msg_type type)
{
    return type >> 6 & 3;
}

/* How a CREATE creates. */
#define SH_CHUNKS_SIZES 1
#define SH_CHUNKS_CONSECUTIVE 2
#define SH_CHUNKS_RESERVE 4

#define SH_CHUNKS_MANY_MAX (1u << 20)
#define SH_CHUNKS_RANGES_MAX 4096
#define SH_CHUNKS_GET_HEAD_BYTES 6
#define SH_CHUNKS_PART_HEAD_BYTES 10
#define SH_CHUNKS_STATUS_BYTES (17 * 8)
/* Places in STATUS's answer. */
enum {
    SH_CHUNKS_STATUS_FREE = 4,
    SH_CHUNKS_STATUS_USED = 6,
    SH_CHUNKS_STATUS_MAX = 7,
    SH_CHUNKS_STATUS_DRAINED = 16,
};

#endif
