/* How a log file is divided, and what stands at the beginning of each part.
 *
 *   [file head, 4 KiB][primary log][slot 0][slot 1] ... [slot n - 1]
 *
 *   file:  u32 magic, u32 CRC32C of the rest of the block's first 64 bytes
 *          u64 cluster, u16 node, u16 format, u32 bytes of a slot
 *          u32 slots, u32 blocks of the primary log, u64 file's number, zeros
 *   slot:  u32 magic, u32 CRC32C of the rest of the block's first 64 bytes
 *          u64 zone, u64 use, u64 file's number, u16 owner, u8 kind, u8 zero, u32 incarnation
 *          u32 seconds, u32 zero, u64 least flush, zeros; and the same 64 bytes again, 2048 bytes behind
 *
 * A slot holds entries or versions of one zone, in spans that begin behind the head. The numbers of the file and of each
 * use are drawn at random: a slot that is copied from elsewhere, or a former use of this one, is not taken for what
 * is there now. Pure functions; any thread. */
#ifndef SH_LOG_SLOT_H
#define SH_LOG_SLOT_H

#include <stdbool.h>
#include <stdint.h>

#include "shoal/err.h"

#define SH_SLOT_HEAD_BYTES 4096u /* a block each; what has a meaning is in the first 64 bytes */
#define SH_LOG_FORMAT 2u
#define SH_LOG_PRIMARY_BLOCKS_MIN 256u /* a pack of 1 MiB */
#define SH_LOG_SLOT_BYTES_MIN (64u << 10)
#define SH_LOG_SLOT_BYTES_MAX (1u << 30)
#define SH_LOG_SLOTS_MAX (1u << 24)

/* A log file. */
struct sh_log_file {
    uint64_t cluster, number;
    uint16_t node;
    uint32_t
        slot_bytes; /* with its head; a multiple of SH_SLOT_HEAD_BYTES, SH_LOG_SLOT_BYTES_MIN to _MAX */
    uint32_t slots; /* up to SH_LOG_SLOTS_MAX */
    /* Of SH_SLOT_HEAD_BYTES, SH_LOG_PRIMARY_BLOCKS_MIN at least; 0: there is no primary log. */
    uint32_t primary_blocks;
};

enum sh_log_slot_kind {
    SH_SLOT_ENTRIES = 1,
    SH_SLOT_VERSIONS = 2,  /* pieces of the version log */
    SH_SLOT_SURVIVORS = 3, /* entries that the cleaner has copied, without sequence numbers */
    SH_SLOT_DROPPED =
        4, /* nothing: what there is of the zone up to this incarnation is not to count */
};

/* A slot that is in use. */
struct sh_log_slot_head {
    uint64_t zone, use, file;
    uint16_t owner;
    enum sh_log_slot_kind kind;
    uint32_t incarnation; /* of the zone */
    uint32_t seconds;     /* of the log's clock: each entry in it was current then, or came later */
    uint64_t
        flush_least; /* of versions: a flush with a lower number is what is left of a former use */
};

/* Whether it is within the bounds above. */
bool sh_log_file_is_sound(const struct sh_log_file *file);

/* Writes the whole block. */
void sh_log_file_put(const struct sh_log_file *file, uint8_t into[SH_SLOT_HEAD_BYTES]);

/* Reads the block at the file's beginning. ENONAME: all zero, there is no log yet. EVERSION: of another format.
 * ECORRUPT: neither. *file_out changes only with OK. */
SHOAL_NODISCARD enum shoal_err sh_log_file_get(const uint8_t from[SH_SLOT_HEAD_BYTES],
                                               struct sh_log_file *file_out);

/* Where the primary log and a slot begin, and the file ends, in bytes. */
static inline uint64_t sh_log_primary_at(void)
{
    return SH_SLOT_HEAD_BYTES;
}
static inline uint64_t sh_log_slot_at(const struct sh_log_file *file, uint32_t slot)
{
    return sh_log_primary_at() + (uint64_t)file->primary_blocks * SH_SLOT_HEAD_BYTES +
           (uint64_t)slot * file->slot_bytes;
}
static inline uint64_t sh_log_file_bytes(const struct sh_log_file *file)
{
    return sh_log_slot_at(file, file->slots);
}

/* Writes the whole block. */
void sh_log_slot_put(const struct sh_log_slot_head *head, uint8_t into[SH_SLOT_HEAD_BYTES]);

/* False: the slot is free, or of another file, or both copies of its head are damaged. *head_out changes only with true. */
bool sh_log_slot_get(const uint8_t from[SH_SLOT_HEAD_BYTES], uint64_t file,
                     struct sh_log_slot_head *head_out);

/* Of a head that sh_log_slot_get refuses: whether it is one of this file that fails its checksum, and not what a crash has left of a write. */
bool sh_log_slot_is_damaged(const uint8_t from[SH_SLOT_HEAD_BYTES], uint64_t file);

/* Of a head that it does not refuse: whether one of the two copies is damaged. One of zeros is not: a crash may leave a head so. */
bool sh_log_slot_is_half(const uint8_t from[SH_SLOT_HEAD_BYTES]);

/* Of one that is damaged: the use that a copy tells, 0 or 1. It may be wrong; spans in the slot have the right one. */
uint64_t sh_log_slot_use_of(const uint8_t from[SH_SLOT_HEAD_BYTES], unsigned copy);

#endif
