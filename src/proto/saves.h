/* Requests for safety copies of a peer's chunks, and back (docs/safety-copy.md): types and layouts.
 *
 * All are requests to a peer, little-endian, no padding. Records are those of store/cut.h. A copy's number is drawn by who asks for it, so
 * that a question whose answer was lost can be repeated.
 *
 *   SAVE_BEGIN    u64 number, not 0. The same again begins nothing
 *                   EBUSY: another one is under way; it ends when its reader's connection does, or asks for nothing for SH_SAVES_LAPSE_NS; ENOTOWNER: not joined
 *   SAVE_READ     u64 number, u64 block: 0, and then the next one, or the last one again
 *     answer      struct sh_saves_block, by sh_saves_block_put; records. Held until the block is full, or the last one
 *                   ENONAME: it is not under way; ELIMIT: while it was, too much was changed that had not been read; ENOMEM
 *   SAVE_END      u64 number. The copy ends, wherever it is
 *   SAVE_ARRIVALS nothing
 *     answer      u64 instance, u64 arrivals (sh_store_arrivals)
 *   RESTORE       u8 what is done where a chunk is there already (enum sh_saves_policy); records, none a piece. A record with
 *                 SH_SAVES_ZEROS for a size makes a chunk of that many zeros, and has no bytes
 *     answer      struct sh_saves_restored: how far it got
 *                   EINVAL: of another creator; ENONODE: the node is being drained; EFULL, ETOOBIG, ...: for the record behind the last
 *                   one that counts; what came before is done
 */
#ifndef SH_PROTO_SAVES_H
#define SH_PROTO_SAVES_H

#include "base/bytes.h"
#include "msg/msg.h"
#include "store/cut.h"

#define SH_SAVES_BEGIN SH_MSG_TYPE(2, 20)
#define SH_SAVES_READ SH_MSG_TYPE(2, 21)
#define SH_SAVES_END SH_MSG_TYPE(2, 22)
#define SH_SAVES_ARRIVALS SH_MSG_TYPE(2, 23)
#define SH_SAVES_RESTORE SH_MSG_TYPE(2, 24)

/* Nobody reads any more. */
#define SH_SAVES_LAPSE_NS UINT64_C(30000000000)
/* Records of a block at most; and of a RESTORE. */
#define SH_SAVES_BLOCK_BYTES (256u << 10)
#define SH_SAVES_RESTORE_BYTES (64u << 10)
_Static_assert(SH_SAVES_RESTORE_BYTES - 1 > SH_CUT_BYTES_MIN, "any record that is no piece fits");

/* Whose chunks, and how far the copy is behind the block. */
struct sh_saves_block {
    uint64_t instance;      /* the peer's process */
    uint64_t arrivals;      /* when the copy began */
    uint64_t chunks;        /* of all blocks so far */
    uint64_t payload_bytes; /* the same */
    uint64_t all_bytes;     /* payload that there is, about */
    uint32_t crc;           /* CRC32C of the records */
    bool is_last;
};
#define SH_SAVES_BLOCK_HEAD_BYTES 48

void sh_saves_block_put(struct sh_writer *w, const struct sh_saves_block *block);
/* The records are what is left. False: that is no such head. */
SHOAL_NODISCARD bool sh_saves_block_get(struct sh_reader *r, struct sh_saves_block *block_out);

enum sh_saves_policy {
    SH_SAVES_REFUSE, /* others than in the record: EEXIST */
    SH_SAVES_SKIP,
    SH_SAVES_OVERWRITE,
};
#define SH_SAVES_ZEROS (UINT32_C(1) << 31)

struct sh_saves_restored {
    enum shoal_err
        err; /* OK: all; EAGAIN: no room in the log now; EEXIST: `cid` is there, with other bytes */
    uint32_t records; /* done, of the request's */
    uint32_t made, same, skipped, replaced;
    shoal_cid cid;
};
#define SH_SAVES_RESTORED_BYTES 32

void sh_saves_restored_put(struct sh_writer *w, const struct sh_saves_restored *restored);
SHOAL_NODISCARD bool sh_saves_restored_get(struct sh_reader *r,
                                           struct sh_saves_restored *restored_out);

#endif
