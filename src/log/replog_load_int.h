/* A zone that is being loaded, and perhaps read: what replog_load.c, replog_read.c and replog_tail.c share.
 *
 *   LOADS ─────────────────► (TAILS) ──► GIVES  what is current was handed out at the first look
 *     ├────────────────────► (TAILS) ──► TAKES  it is handed out at a second one
 *     └──► (DROPS) ──► LEARNS ──┘               the first look knew too little
 *
 * LOADS goes over the zone's slots: it finds the end without a gap and, if the zone is to be read, learns the newest version of each chunk. Where
 * the caller can drop chunks it also hands out what is current as far as is known yet, and GIVES the completion records at the end; else
 * TAKES goes over the slots again, and hands out what is current. TAILS, where the caller wants the zone's tail, goes over the slots that have some of it, and hands it out. Which entries count is known only behind LOADS: where some do not, or the
 * versions' names were taken for another eon's, all that was handed out is dropped, and LEARNS learns all versions anew. */
#ifndef SH_LOG_REPLOG_LOAD_INT_H
#define SH_LOG_REPLOG_LOAD_INT_H

#include "log/newest.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"
#include "log/version_log.h"

#define SH_REPLOG_SEEN SH_NEWEST_AHEAD

struct sh_replog_load {
    struct sh_replog_zone *zone;
    enum sh_replog_load_phase {
        SH_REPLOG_LOADS,
        SH_REPLOG_DROPS,
        SH_REPLOG_LEARNS,
        SH_REPLOG_TAILS,
        SH_REPLOG_GIVES,
        SH_REPLOG_TAKES
    } phase;
    void (*loaded)(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err);
    void *arg;
    uint32_t *slots; /* those of versions first, then the others, the newest first */
    unsigned slots_count, slots_versions;
    struct sh_replog_reader reader;
    uint32_t passed; /* slots that passes have read which are over */
    /* Where we are in the slot that is looked at. */
    bool is_open;
    bool has_numbers;
    struct sh_replog_walk walk;
    size_t spans_end; /* behind the last span that was read, behind the slot's head */
    bool is_damaged;
    size_t at;                       /* in a slot of versions */
    uint64_t flush_least;            /* there */
    struct sh_version_reader tuples; /* of a piece, if is_reading */
    bool is_reading;
    struct sh_replog_ranges ranges;
    struct sh_replog_roll roll;
    uint16_t epochs[2]; /* the highest of each eon; 0: there is none */
    uint16_t eon;       /* in which the zone is, as far as is known: behind LOADS, for certain */
    uint64_t end;       /* behind LOADS: the number from which on nothing counts */
    enum shoal_err err;
    /* Of a zone that is read. */
    struct sh_replog_read read; /* take NULL: it is not */
    struct sh_newest *newest;
    bool is_other_eon; /* versions were learned by another eon's name */
    /* Entries of the slot that were walked over, and count; they are learned from, and handed out, when these are many or the slot is over,
     * so that the misses of their versions overlap. */
    struct sh_replog_entry seen[SH_REPLOG_SEEN];
    unsigned seen_count, seen_at;  /* seen_at: the one that is offered next; 0: none was yet */
    bool is_slot_over, is_refused; /* is_refused: that one was not taken just now */
    /* Tuples, of which none is left once they have been learned. */
    struct sh_version_tuple tuples_seen[SH_REPLOG_SEEN];
    unsigned tuples_count, tuples_at;
    struct sh_replog_record *records;   /* completion records, for GIVES */
    size_t records_count, records_room; /* of them */
    size_t between;                     /* groups that were dropped, or records given */
    bool is_given;                      /* behind LOADS: it has handed out what is current */
    bool has_taken;                     /* the caller has taken something in this step */
    struct sh_replog_tail *tail;        /* NULL: none is wanted */
};

/* --- replog_load.c ----------------------------------------------------------------------------- */

/* Makes a load, of which the caller says what is to happen. EBUSY, ENOMEM: as sh_replog_zone_load. */
SHOAL_NODISCARD enum shoal_err sh_replog_load_make(struct sh_replog_zone *zone,
                                                   struct sh_replog_load **load_out);
/* The log begins with it. */
void sh_replog_load_begin(struct sh_replog_load *load);

/* --- replog_tail.c ----------------------------------------------------------------------------- */

/* The tail that the zone's reading is to hand out. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_tail_make(struct sh_replog_load *load);
void sh_replog_tail_free(struct sh_replog_load *load);
/* The slot that is looked at has writes up to that place. */
void sh_replog_tail_note(struct sh_replog_load *load, uint64_t to);
/* All that is needed is known: the reader begins with the slots that have some of the tail. */
void sh_replog_tail_begin(struct sh_replog_load *load);
/* Gathers the next entry of the slot that is looked at, and adds to *work what that counts for beyond one; false: the slot has no more. */
bool sh_replog_tail_next(struct sh_replog_load *load, unsigned *work);
/* All is gathered: hands out some of it, if it is all there; true: that is over. */
bool sh_replog_tail_hand(struct sh_replog_load *load, unsigned *work);

/* --- replog_read.c ----------------------------------------------------------------------------- */

/* A completion record that is handed out at the end. */
struct sh_replog_record {
    uint8_t size, bytes[SH_REPLOG_COMPLETION_MAX];
};

/* Learns a part of the tuples that were seen, and forgets them once all are; returns what it counts for in a step. */
unsigned sh_replog_learn_tuples(struct sh_replog_load *load);
/* Learns from the entries that were seen, and hands out what is current of them, unless these are done at another look; forgets them then. False: one is
 * not taken now, and offered again. */
bool sh_replog_handle_seen(struct sh_replog_load *load);
/* No version is known. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_learn_anew(struct sh_replog_load *load);
/* Has what was taken in this step used, as its bytes are lent no longer. */
void sh_replog_flush_taken(struct sh_replog_load *load);
/* Drops chunks or gives records, `most` at a time; returns how many. *is_over_out: all of them. */
unsigned sh_replog_between(struct sh_replog_load *load, unsigned most, bool *is_over_out);

#endif
