/* Messages between a zone's owner and the nodes that keep its replicas. docs/replication.md has the protocol.
 *
 * Module 4, little-endian, no padding. Of the connection's node, which a message comes from, the receiver knows the life (msg.h).
 *
 * A place in the stream is u64 number, of a write, and u32 part: how many entries of that number come before it. A chunk in
 * pieces, also one that was abandoned, has many entries of one number.
 *
 *   OPEN     request, owner to backup: the zone's stream begins here, or goes on; may be repeated.
 *            u64 zone; u32 incarnation; u64 life of the owner; u8 flags; place `first`: the oldest that the owner can still
 *            send; u32 since, u64 begun: the incarnation in which this life of the owner took the zone over, and the number
 *            of its first write; u64 bytes_max, u64 range_first, u64 range_count: as in sh_replog_zone_config
 *            SH_REPLICATION_ANEW: what the backup has of the zone goes, and the stream begins at `first`, whose part is 0.
 *            Without it the stream goes on where the backup's replica ends
 *
 *     answer place `next`: that the backup expects; u64 durable: as in ACKS; u32 credit: bytes of APPENDs that may be on their way; u64 disk
 *
 *     EFENCED: the backup has heard of a later life, owner or incarnation. EBUSY: a moment later; replicas are loaded and
 *     dropped meanwhile. EDIFFERS: it has no replica that the stream can go on from: begin anew. EEXIST: it is to begin anew, and has
 *     a replica of this very incarnation, or the zone is its own: raise the incarnation first. ECORRUPT: the replica is damaged. ENOSPC, EFULL, ENOMEM: no
 *     room for it. ENONODE: it keeps no replicas. EIO: its log is out of service. Nothing has changed with any of these
 *
 *   APPEND   one-way, owner to backup, in order: u64 zone; u32 incarnation; place of the first entry; u8 wish; entries, one behind
 *            the other, to the end; SH_REPLICATION_BYTES_MAX in all
 *
 *     entry  u8 kind (enum sh_replication_kind), flags; u64 chunk ID with creator; u32 size;
 *            SH_REPLICATION_PIECE: u16 piece, u16 pieces, u32 total; SH_REPLICATION_COMPLETION: u8 size, 1 to
 *            SH_COMPLETION_BYTES_MAX, and so many bytes; of an image: its bytes
 *
 *     Consecutive writes, each with its number: the pieces of a chunk have one number, and so have the two entries of a
 *     pair. A write lies in one message, but a chunk in pieces may go over several. The backup passes over entries that it has,
 *     and takes none beyond the place that it expects
 *
 *   ACKS     one-way, backup to owner: for each zone u64 zone; u32 incarnation; place `next`: all before it is taken; u64 durable:
 *            all before that write is on the disk; u8 state (enum sh_replication_state)
 *
 *   CLOSE    request, owner to backup: u64 zone; u32 incarnation; u64 life of the owner. The replica is not needed any more; may be
 *            repeated
 *
 *     EFENCED, EIO, EBUSY, ENOMEM; EEXIST: the zone is its own
 *
 *   SPACE    request, anybody: nothing
 *
 *     answer u8 whether it keeps replicas; u64 disk; u64 disk_bytes, u64 disk_free_bytes: what is neither used nor promised; u32
 *            zones, u32 zones_max
 *
 *   KEPT     request, backup to owner, of replicas that get nothing: u64 zone, up to SH_REPLICATION_KEPT_MAX of them
 *
 *     answer u64 life of the owner; for each zone u8 (enum sh_replication_need). Whatever is not certain is NEEDED */
#ifndef SH_BACKUP_REPLICATION_H
#define SH_BACKUP_REPLICATION_H

#include "backup/completion.h"
#include "base/bytes.h"
#include "msg/msg.h"
#include "shoal/err.h"

#define SH_REPLICATION_OPEN SH_MSG_TYPE(4, 1)
#define SH_REPLICATION_APPEND SH_MSG_TYPE(4, 2)
#define SH_REPLICATION_ACKS SH_MSG_TYPE(4, 3)
#define SH_REPLICATION_CLOSE SH_MSG_TYPE(4, 4)
#define SH_REPLICATION_SPACE SH_MSG_TYPE(4, 5)
#define SH_REPLICATION_KEPT SH_MSG_TYPE(4, 6)

/* Bytes of an APPEND, at most. */
#define SH_REPLICATION_BYTES_MAX (64u << 10)

#define SH_REPLICATION_ANEW 0x01

struct sh_replication_open {
    uint64_t zone;
    uint32_t incarnation;
    uint64_t life;
    uint8_t flags;
    uint64_t first;
    uint32_t first_part;
    uint32_t since; /* 1 to incarnation */
    uint64_t begun;
    uint64_t bytes_max, range_first, range_count;
};
#define SH_REPLICATION_OPEN_BYTES 69
void sh_replication_open_put(struct sh_writer *w, const struct sh_replication_open *open);
/* False: it is no such message. As all of the following. */
bool sh_replication_open_get(struct sh_reader *r, struct sh_replication_open *open_out);

struct sh_replication_opened {
    uint64_t next;
    uint32_t part; /* of next */
    uint64_t durable;
    uint32_t credit;
    uint64_t disk;
};
#define SH_REPLICATION_OPENED_BYTES 32
void sh_replication_opened_put(struct sh_writer *w, const struct sh_replication_opened *opened);
bool sh_replication_opened_get(struct sh_reader *r, struct sh_replication_opened *opened_out);

/* The answer that an APPEND asks for. */
enum sh_replication_wish {
    SH_REPLICATION_NONE,    /* an ACK in good time */
    SH_REPLICATION_ACK,     /* an ACK at once: somebody waits for `replicated` */
    SH_REPLICATION_DURABLE, /* and the disk at once, with an ACK then */
};
struct sh_replication_append {
    uint64_t zone;
    uint32_t incarnation;
    uint64_t number;
    uint32_t part;
    uint8_t wish;
};
#define SH_REPLICATION_APPEND_BYTES 25
void sh_replication_append_put(struct sh_writer *w, const struct sh_replication_append *append);
bool sh_replication_append_get(struct sh_reader *r, struct sh_replication_append *append_out);

enum sh_replication_kind {
    SH_REPLICATION_IMAGE,
    SH_REPLICATION_ZEROS,   /* an image of `size` bytes, all 0 */
    SH_REPLICATION_REMOVAL, /* no size */
    SH_REPLICATION_ABANDON, /* the chunk's pieces that came are not followed by the others; no number of its own */
};
#define SH_REPLICATION_KINDS 4
#define SH_REPLICATION_COMPLETION                                                                  \
    0x20 /* flags: with what came of a request (completion.h); of a write's last entry only */
#define SH_REPLICATION_PIECE 0x40 /* flags: it is one of several */
#define SH_REPLICATION_WITH 0x80 /* the next entry has the same number, and both count or neither */

struct sh_replication_entry {
    uint8_t kind;
    bool with_next;
    uint64_t chunk;
    uint32_t size;              /* of the image, the piece or the zeros */
    uint16_t piece, pieces;     /* 0, 1: it is whole */
    uint32_t total;             /* of all pieces together */
    struct sh_bytes bytes;      /* of an image; read: in the message */
    struct sh_bytes completion; /* the same; size 0: none */
};
#define SH_REPLICATION_ENTRY_BYTES_MAX (22 + SH_COMPLETION_BYTES_MAX) /* without an image's bytes */
size_t sh_replication_entry_size(const struct sh_replication_entry *entry);
void sh_replication_entry_put(struct sh_writer *w, const struct sh_replication_entry *entry);
bool sh_replication_entry_get(struct sh_reader *r, struct sh_replication_entry *entry_out);

/* Moves a place behind an entry that lies there. */
static inline void sh_replication_pass(const struct sh_replication_entry *entry, uint64_t *number,
                                       uint32_t *part)
{
    bool is_last = entry->kind != SH_REPLICATION_ABANDON && !entry->with_next &&
                   entry->piece + 1 == entry->pieces;
    *number += is_last;
    *part = is_last ? 0 : *part + 1;
}

enum sh_replication_state {
    SH_REPLICATION_GOES_ON,
    SH_REPLICATION_FULL, /* no room: what came last was not taken; another ACK tells when it may be sent again, from `next` on */
    SH_REPLICATION_AGAIN, /* there is room again, or something was missing: send from `next` on */
    SH_REPLICATION_GONE,  /* it is not open here in this incarnation: OPEN. Places mean nothing */
    SH_REPLICATION_LOST, /* the replica is damaged, or its log out of service: another backup is needed */
};
struct sh_replication_ack {
    uint64_t zone;
    uint32_t incarnation;
    uint64_t next;
    uint32_t part; /* of next */
    uint64_t durable;
    uint8_t state;
};
#define SH_REPLICATION_ACK_BYTES 33
void sh_replication_ack_put(struct sh_writer *w, const struct sh_replication_ack *ack);
bool sh_replication_ack_get(struct sh_reader *r, struct sh_replication_ack *ack_out);

struct sh_replication_close {
    uint64_t zone;
    uint32_t incarnation;
    uint64_t life;
};
#define SH_REPLICATION_CLOSE_BYTES 20
void sh_replication_close_put(struct sh_writer *w, const struct sh_replication_close *close);
bool sh_replication_close_get(struct sh_reader *r, struct sh_replication_close *close_out);

struct sh_replication_space {
    bool keeps;
    uint64_t disk, disk_bytes, disk_free_bytes;
    uint32_t zones, zones_max;
};
#define SH_REPLICATION_SPACE_BYTES 33
void sh_replication_space_put(struct sh_writer *w, const struct sh_replication_space *space);
bool sh_replication_space_get(struct sh_reader *r, struct sh_replication_space *space_out);

#define SH_REPLICATION_KEPT_MAX 64 /* zones of a KEPT */
/* An owner's word about a replica of a zone. */
enum sh_replication_need {
    SH_REPLICATION_NEEDED, /* or the owner can't tell */
    SH_REPLICATION_ELSEWHERE, /* the zone is the owner's, and that node is none of its backups, nor on the way to be one */
    SH_REPLICATION_DROPPED, /* this life of the owner has made the zone, and has dropped it */
};
#define SH_REPLICATION_NEEDS 3

#endif
