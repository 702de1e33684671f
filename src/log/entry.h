/* Entries of a replica log: one version of a chunk, or its removal, with a header of only the bytes that it needs.
 *
 *   span:  [entry][entry] ... [entry]
 *
 * A header names what differs from the entry before it (struct sh_replog_context), so a span is read from its
 * beginning on, in order. The CRC32C covers the meaning of the header and the payload, and begins with that of the
 * entry before: one that is read with another context than it was written with is noticed, and neither does what was
 * there before a torn write pass for its rest. Behind an entry that is damaged nothing in the span can be read.
 *
 *   u16   type: bits 0-2 bytes of the local ID (0: one more than before; 7: a completion record), 3-4 bytes of the length (0: as before),
 *         5-7 bytes of the version, 0 to 4 (0: version 0), 8 creator, 9 epoch, 10 seconds, 11 piece, 12 removal,
 *         13 zeros (no payload follows: it is as many zero bytes as the length says, 1 at least), 14 with the next, 15 one
 *         The local ID comes with each creator.
 *   u16 creator, 1-6 local ID, 1-3 length, u16 epoch, 1-4 version, u32 seconds, of a piece:
 *   u16 piece, u16 pieces, u32 offset, u32 total
 *   u32   CRC32C
 *   payload, unless it is zeros
 *
 * A completion record has neither ID nor version, always its length, and leaves the context of the next entry as it was, but
 * for the sum and the seconds.
 *
 * DXRAM thesis 6 V.B; unlike there, what entries have in common is not repeated, the zone is named by the span, and a
 * removal is an entry. docs/log.md has the arithmetic. Pure functions; any thread. */
#ifndef SH_LOG_ENTRY_H
#define SH_LOG_ENTRY_H

#include "base/bytes.h"
#include "log/replog.h"
#include "shoal/err.h"

#define SH_REPLOG_ENTRY_HEAD_MAX 39
#define SH_REPLOG_PAYLOAD_MAX ((1u << 24) - 1)
#define SH_REPLOG_LOCAL_ID_MAX ((UINT64_C(1) << 48) - 1)
#define SH_REPLOG_NUMBER_MAX ((UINT32_C(1) << 31) - 1)
#define SH_REPLOG_EON (1u << 15) /* the bit of an epoch */
#define SH_REPLOG_EPOCH_NUMBER_MAX UINT32_C(0xffff)

/* Which write of a chunk it is: a number, 0 to SH_REPLOG_NUMBER_MAX, within an epoch of the zone. Epochs count to 2^15 - 1; the highest
 * bit is the eon, which changes when they are used up. Writes have epochs from 1 on, and numbers up to SH_REPLOG_EPOCH_NUMBER_MAX; epoch 0 is
 * for what was written in the eon before (sh_replog_version_in). */
struct sh_replog_version {
    uint16_t epoch;
    uint32_t number;
};

/* Whether a version is newer than another, where both are of epochs that count from the same eon's beginning on. */
static inline bool sh_replog_is_newer(struct sh_replog_version a, struct sh_replog_version b)
{
    return a.epoch > b.epoch || (a.epoch == b.epoch && a.number > b.number);
}

static inline uint16_t sh_replog_eon_of(uint16_t epoch)
{
    return epoch & SH_REPLOG_EON;
}

static inline uint16_t sh_replog_epoch_in_eon(uint16_t epoch)
{
    return epoch & (SH_REPLOG_EON - 1);
}

/* The same of one that is of the eon before. */
struct sh_replog_version sh_replog_version_renamed(struct sh_replog_version version, uint16_t eon);

/* A version as it is called in that eon: one of the eon before has epoch 0 there, so it is older than all that is written now, and a number
 * by which those of one chunk stay in their order: its epoch, and its number. An entry that had epoch 0 in the eon before has number 0: by
 * then it is the only one of its chunk that does, as each entry was visited in that eon. So it does not matter whether an entry,
 * or a piece of a chunk, has been given the new name yet. */
static inline struct sh_replog_version sh_replog_version_in(struct sh_replog_version version,
                                                            uint16_t eon)
{
    if (sh_replog_eon_of(version.epoch) == eon)
        return version;
    return sh_replog_version_renamed(version, eon);
}

struct sh_replog_entry {
    uint64_t local_id; /* up to SH_REPLOG_LOCAL_ID_MAX */
    uint16_t creator;  /* not 0, or the local ID is not */
    struct sh_replog_version version;
    uint32_t seconds; /* when it was logged first, of the log's own clock */
    uint16_t piece,
        pieces; /* of a chunk in several entries: its place, from 0, of how many; else 0, 1 */
    uint32_t offset,
        total; /* of a piece, in bytes: where it belongs in the chunk, which has so many; else 0 */
    bool is_removal; /* then there is no payload */
    /* It has the sequence number of the entry that follows in its span, and counts if that one does; it is no piece. */
    bool is_with_next;
    struct sh_bytes payload; /* up to SH_REPLOG_PAYLOAD_MAX; borrowed. at NULL: as many zeros */
};

/* The ID of its chunk; a completion record has none. */
static inline uint64_t sh_replog_chunk_of(const struct sh_replog_entry *entry)
{
    return entry->local_id | (uint64_t)entry->creator << 48;
}

static inline bool sh_replog_is_completion(const struct sh_replog_entry *entry)
{
    return !entry->creator && entry->local_id == SH_REPLOG_COMPLETION_ID;
}

/* Calls its version by the name that it has in that eon, which is the entry's own or the next one. */
static inline void sh_replog_entry_rename(struct sh_replog_entry *entry, uint16_t eon)
{
    if (!sh_replog_is_completion(entry))
        entry->version = sh_replog_version_in(entry->version, eon);
}

/* How many bytes of payload follow the entry's header. */
static inline size_t sh_replog_entry_stored(const struct sh_replog_entry *entry)
{
    return entry->payload.at ? entry->payload.size : 0;
}

/* What the next entry's header leaves out where it is the same. */
struct sh_replog_context {
    uint64_t local_id;
    uint32_t size, seconds;
    uint32_t sum; /* the CRC32C of the entry before */
    uint16_t creator, epoch;
};

/* At the beginning of a chain of entries, with a sum that is drawn at random. The ID behind the last one is 0. */
struct sh_replog_context sh_replog_context_first(uint16_t owner, uint16_t epoch, uint32_t seconds,
                                                 uint32_t sum);

/* Writes an entry's header, which the payload follows; returns its bytes. `into` has room for
 * SH_REPLOG_ENTRY_HEAD_MAX. The context becomes that of the next entry. */
size_t sh_replog_entry_head(const struct sh_replog_entry *entry, struct sh_replog_context *context,
                            uint8_t *into);

enum sh_replog_got {
    SH_REPLOG_ENTRY,
    SH_REPLOG_END, /* no byte is left */
    SH_REPLOG_DAMAGED
};

/* Reads the next entry of a span; its payload lies in the reader's bytes, or is zeros. Reader, context and *entry_out change only
 * with SH_REPLOG_ENTRY. */
enum sh_replog_got sh_replog_entry_get(struct sh_reader *r, struct sh_replog_context *context,
                                       struct sh_replog_entry *entry_out);

#endif
