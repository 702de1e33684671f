/* A zone that is being loaded, and perhaps read: what replog_load.c and replog_read.c share.
 *
 *   LOADS ──► (LEARNS) ──► TAKES    each goes over the zone's slots
 *
 * LOADS finds the end without a gap, and learns the versions of what is there, if the zone is to be read. Which entries count is known only
 * behind it: where some do not, or there was too little room, LEARNS learns all versions anew. TAKES hands out what is current. */
#ifndef SH_LOG_REPLOG_LOAD_INT_H
#define SH_LOG_REPLOG_LOAD_INT_H

#include "log/currents.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"
#include "log/version_log.h"

struct sh_replog_load {
    struct sh_replog_zone *zone;
    enum sh_replog_load_phase { SH_REPLOG_LOADS, SH_REPLOG_LEARNS, SH_REPLOG_TAKES } phase;
    void (*loaded)(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err);
    void *arg;
    uint32_t *slots;
    struct sh_replog_reader reader;
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
    struct sh_version_tuple tuple; /* what is left of one that is learned; first 0: nothing */
    struct sh_replog_ranges ranges;
    struct sh_replog_roll roll;
    uint16_t epochs[2]; /* the highest of each eon; 0: there is none */
    uint16_t eon;       /* in which the zone is, as far as is known: behind LOADS, for certain */
    uint64_t end;       /* behind LOADS: the number from which on nothing counts */
    enum shoal_err err;
    /* Of a zone that is read. */
    struct sh_replog_read read; /* take NULL: it is not */
    struct sh_currents *currents;
    bool is_other_eon; /* versions were learned by another eon's name */
    bool has_no_room;  /* for all versions: they are learned anew, with more */
    /* The hull of the owner's own chunks that were seen, and how many versions of them; for an array. */
    uint64_t hull_first, hull_last, hull_seen;
    struct sh_replog_entry held; /* that was offered, and not taken yet */
    bool is_held;
};

/* --- replog_load.c ----------------------------------------------------------------------------- */

/* Makes a load, of which the caller says what is to happen. EBUSY, ENOMEM: as sh_replog_zone_load. */
SHOAL_NODISCARD enum shoal_err sh_replog_load_make(struct sh_replog_zone *zone,
                                                   struct sh_replog_load **load_out);
/* The log begins with it. */
void sh_replog_load_begin(struct sh_replog_load *load);

/* --- replog_read.c ----------------------------------------------------------------------------- */

/* The entry that was walked over. */
void sh_replog_learn_entry(struct sh_replog_load *load, const struct sh_replog_entry *entry);
/* A part of load->tuple; returns what it counts for in a step. */
unsigned sh_replog_learn_tuple(struct sh_replog_load *load);
/* No version is known, and there is more room if there was too little. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_learn_anew(struct sh_replog_load *load);
/* Hands out the next entry of the slot that is looked at, and adds to *work what that counts for beyond one. */
enum sh_replog_taken {
    SH_REPLOG_TAKEN,
    SH_REPLOG_NOT_NOW, /* it is offered again */
    SH_REPLOG_NO_MORE  /* the slot is over */
};
enum sh_replog_taken sh_replog_take_next(struct sh_replog_load *load, unsigned *work);

#endif
