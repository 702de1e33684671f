/* Which spans of a zone there are (replog_roll.c). */
#ifndef SH_LOG_REPLOG_ROLL_INT_H
#define SH_LOG_REPLOG_ROLL_INT_H

#include "log/replog_int.h"

/* The place before which all is durable in slots. At the start: by what the primary log says. */
uint64_t sh_replog_zone_slotted(const struct sh_replog_zone *zone);
/* Has a span of the primary log tell of the zone's spans; its `whole` is set. */
void sh_replog_ring_tell(const struct sh_replog_zone *zone, struct sh_span *span);
/* The batch has its place in a slot: its span tells of others, and counts. */
void sh_replog_roll_tell(struct sh_replog_batch *batch, struct sh_span *span);
/* It is durable. */
void sh_replog_roll_durable(struct sh_replog_batch *batch);
/* Takes a span's word on how many flushes the zone's version log has had. */
void sh_replog_flushes_said(struct sh_replog_zone *zone, const struct sh_span *span);
/* The zone, of which a load has found parts_found, is written to from now on. */
void sh_replog_roll_begin(struct sh_replog_zone *zone);

/* The zone, which is written to, is sealed: all of it is durable in slots. What a span would tell now is what a load goes by. */
void sh_replog_roll_end(struct sh_replog_zone *zone);

/* The head of a span was read, of the primary log in its order, or of a slot. */
void sh_replog_said_add(struct sh_replog_said *said, const struct sh_span *span);
/* Takes the primary log's word, where the slots did not say anything later. */
void sh_replog_said_merge(struct sh_replog_said *said, const struct sh_replog_said *of_ring);

/* Which spans are there. */
struct sh_replog_roll {
    struct sh_replog_called {
        uint64_t ordinal;
        uint64_t offset; /* in the file */
        uint64_t use;    /* of its slot, */
        uint32_t slot;
        uint32_t parts; /* of it that can be read */
        bool is_whole;
    } * called;
    size_t count, room;
    /* Slots that are given away, of which spans tell. */
    struct sh_replog_note {
        uint64_t ordinal; /* of the span that tells so */
        uint64_t use;
        uint32_t parts;
    } * notes;
    size_t notes_count, notes_room;
    struct sh_replog_said said;
};

/* The head of a span of a slot. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_roll_head(struct sh_replog_roll *roll,
                                                   const struct sh_span *span);
/* A span of a slot, all of which was looked at. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_roll_span(struct sh_replog_roll *roll,
                                                   const struct sh_replog_called *called);
/* How many parts had been on the disk, and are missing or damaged. *place_out: one that is damaged; NULL: none has a head. */
uint32_t sh_replog_roll_lacking(const struct sh_replog_roll *roll,
                                const struct sh_replog_called **place_out);
/* Whether a write is missing that only the primary log had, and that had been on the disk: of those before `end`. The ranges have been sorted. */
bool sh_replog_roll_lacks_numbers(const struct sh_replog_roll *roll,
                                  const struct sh_replog_ranges *ranges,
                                  const struct sh_replog_lives *lives, uint64_t end);
/* Whether the write with that number is missing, of which the primary log has had a part on the disk that can't be read. */
bool sh_replog_roll_lacks_lost(const struct sh_replog_roll *roll,
                               const struct sh_replog_ranges *ranges,
                               const struct sh_replog_lives *lives, uint64_t number);
/* The highest ordinal; 0: there is none. */
uint64_t sh_replog_roll_newest(const struct sh_replog_roll *roll);
void sh_replog_roll_free(struct sh_replog_roll *roll);

#endif
