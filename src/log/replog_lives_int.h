/* Of what a file has of a zone: its lives, which of its numbers are there, and whether it was dropped. */
#ifndef SH_LOG_REPLOG_LIVES_INT_H
#define SH_LOG_REPLOG_LIVES_INT_H

#include "log/scan.h"
#include "log/slot.h"

struct sh_replog_zone;

/* Lives of a zone, ascending. */
struct sh_replog_lives {
    struct sh_replog_life {
        uint16_t life;
        uint64_t first, whole; /* whole: before which all was durable by its word */
    } * lives;
    unsigned count, room;
};

/* What a start passes over, as a file tells it to. */
struct sh_replog_marks {
    /* All that the file has of that zone up to that incarnation does not count. */
    struct sh_replog_dropped {
        uint64_t zone;
        uint32_t incarnation;
        uint32_t slot; /* whose head says so; SH_SLOT_NONE: the primary log does */
    } * marks;
    size_t count, room;
    /* Each zone's highest incarnation in the primary log, by zone: what that has of former ones does not count. */
    struct sh_replog_latest {
        uint64_t zone;
        uint32_t incarnation;
    } * latest;
    size_t latest_count, latest_room;
};

/* Places of writes that are there, of a life (sh_replog_place); in no order. */
struct sh_replog_ranges {
    struct sh_replog_range {
        uint64_t first, end;
        uint16_t life;
    } * ranges;
    size_t count, room;
};

/* Makes room for one more item of that size in an array of `count`, which grows by doubling. ENOMEM: nothing has changed. */
SHOAL_NODISCARD enum shoal_err sh_replog_room_make(void **items, size_t count, size_t *room,
                                                   size_t size);

/* Where a piece of a write lies in the zone's order. A write covers all places up to the next one's first, in pieces or not. */
static inline uint64_t sh_replog_place(uint64_t sequence, uint16_t piece)
{
    return sequence << 16 | piece;
}

/* --- Lives (replog_lives.c) -------------------------------------------------------------------- */

/* A life is known. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_lives_add(struct sh_replog_lives *lives, uint16_t life,
                                                   uint64_t first, uint64_t whole);
/* There is room for another life. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_lives_reserve(struct sh_replog_lives *lives);
/* A zone without slots from an earlier process knows only its own life any more, if nothing of a chunk that was abandoned is left. */
void sh_replog_lives_forget(struct sh_replog_zone *zone);
/* The number from which on what a life wrote does not count; UINT64_MAX: all of it does. */
uint64_t sh_replog_lives_end(const struct sh_replog_lives *lives, uint16_t life);
/* The eon of the last one: that in which the zone is. */
uint16_t sh_replog_lives_eon(const struct sh_replog_lives *lives);
/* Only lives of that eon are left. */
void sh_replog_lives_keep_eon(struct sh_replog_lives *lives, uint16_t eon);

/* --- Which numbers are there (replog_ranges.c) ------------------------------------------------- */

/* Adds some; those of a span that was empty are none. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_ranges_add(struct sh_replog_ranges *ranges,
                                                    const struct sh_replog_range *range);
/* The number before which all are there: those that the heads of spans tell of, and those that follow without a gap. A write that does not
 * count of its life is not there, nor is one of which a piece is missing. Sorts the ranges. */
uint64_t sh_replog_ranges_whole(struct sh_replog_ranges *ranges,
                                const struct sh_replog_lives *lives);
/* Whether there are some from that number on, or that do not count of their life. */
bool sh_replog_ranges_have_behind(const struct sh_replog_ranges *ranges,
                                  const struct sh_replog_lives *lives, uint64_t end);

/* Whether a place in from <= place < to is in none of the ranges, which have been sorted. */
bool sh_replog_ranges_lack(const struct sh_replog_ranges *ranges,
                           const struct sh_replog_lives *lives, uint64_t from, uint64_t to);

/* --- Spans of the primary log (replog_ring.c) ------------------------------------------------ */

/* All spans of the bytes of a file's primary log, of any lap. */
struct sh_scan sh_replog_ring_scan(const struct sh_log_file *file, const uint8_t *ring);
/* The last lap; 0: there is none. A start reads that, and the one before. */
uint32_t sh_replog_ring_last(const struct sh_log_file *file, const uint8_t *ring);
/* Before which of its blocks that lap had been on the disk, as its spans say. */
uint32_t sh_replog_ring_sound(const struct sh_log_file *file, const uint8_t *ring, uint32_t lap);
/* Adds the zones that a process has dropped, as the laps that a start reads tell. One process wrote these, and it gives a zone another incarnation only once it has dropped
 * it: so of each zone a start takes only the highest incarnation there, also where the mark that says so is damaged. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_ring_marks(const struct sh_log_file *file,
                                                    const uint8_t *ring,
                                                    struct sh_replog_marks *marks);
/* Whether that span counts, of a lap that is read, by these marks. */
bool sh_replog_ring_counts(const struct sh_replog_marks *marks, const struct sh_span *span);

#endif
