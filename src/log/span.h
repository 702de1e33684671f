/* Spans of a replica log: what is written together of one zone.
 *
 *   [head, 120 bytes][entry][entry] ... [entry]
 *
 *   u32 CRC32C of the other 116 bytes
 *   u64 zone, u64 use, u64 first sequence number
 *   u32 sequence numbers, u32 bytes of the entries, u32 incarnation
 *   u64 local ID and creator, u24 size, u8 zero, u32 seconds, u32 sum, u16 epoch: the first entry's
 *   context
 *   u16 life
 *   u64 whole, u64 first number of the life
 *   u32 sound, u8 flags (1: synced later, 2: tells, 4: tells_slotted, 8: gives), u8 zero, u16 unslotted_piece
 *   u64 ordinal, u64 teller, u16 unsettled, u16 noted, u32 counted, u32 unslotted, u32 flushes
 *
 * One that gives has no entries; in place of local ID and creator it has the use of a slot, and in place of the seconds how many parts that has.
 *
 * The use says which use of a slot, or which lap of the primary log, the span belongs to: what lies there from an
 * earlier one is not taken for it. A use can't be guessed, so no payload passes for a span. What is in the
 * entries is checked by their own sums (log/entry.h): a span that was torn ends with the first bad entry.
 *
 * In place of the headers of thesis 6 V.B that name the zone in each entry. Pure functions; any thread. */
#ifndef SH_LOG_SPAN_H
#define SH_LOG_SPAN_H

#include "log/entry.h"

#define SH_SPAN_HEAD_BYTES 120

struct sh_span {
    uint64_t zone, use;
    uint64_t first; /* the zone's sequence number of the first entry */
    uint32_t
        sequences;  /* how many it covers; the pieces of a large chunk, and a pair, are of one */
    uint32_t bytes; /* of entries, behind the head */
    uint64_t whole; /* all of the zone before that sequence number was durable by then */
    uint32_t incarnation; /* of the zone: each recovery begins another one */
    /* A life of the zone lasts from its first epoch in a process, by which it is named, to the last. What earlier lives
     * have from its first number on does not count: it was lost by its owner's word, and the numbers were given again. */
    uint16_t
        life; /* 0: the zone was dropped; what there is of it up to this incarnation does not count */
    uint64_t life_first;
    /* So much before it was on the disk for certain: bytes of its slot, or blocks of its lap of the primary log. */
    uint32_t sound;
    bool
        is_synced_later; /* of the primary log: not only the next pack, but any behind it may be lost or torn */
    struct sh_replog_context context; /* what the first entry is relative to */
    /* Of a slot: which of the zone's spans it is, ascending in the order in which they were made. 0 in the primary log. */
    uint64_t ordinal;
    /* Whether it tells of the zone's spans in slots (replog_roll.c); if not, the rest up to the end of this part is 0. */
    bool tells;
    uint64_t
        teller; /* which span of a slot tells so: this one; in the primary log, or copied from there: the one that came next */
    uint16_t
        unsettled; /* those before teller - unsettled were durable, or are not in slots any more */
    uint16_t
        noted; /* the slots that the span teller - (noted - 1) gives are being given away, if that is there; 0: none are */
    uint32_t counted; /* so many parts these have in slots, those that are being given away too */
    bool gives;       /* that slot of the zone will be given away */
    uint64_t given_use;
    uint32_t given_parts;
    bool tells_slotted;
    uint16_t
        unslotted_piece; /* and the pieces before that one of the number whole - unslotted itself, if it is a chunk in pieces */
    uint32_t unslotted;  /* numbers before whole - unslotted were durable in slots by then */
    uint32_t
        flushes; /* of the version log, of this incarnation, by then: numbers that are not given again, whatever becomes of it */
};

void sh_span_put(const struct sh_span *span, uint8_t into[SH_SPAN_HEAD_BYTES]);

/* False: this is no head of a span. *span_out changes only with true. */
bool sh_span_get(const uint8_t from[SH_SPAN_HEAD_BYTES], struct sh_span *span_out);

#endif
