/* Shared by the files that look at a log. */
#ifndef SH_LOG_INSPECT_INT_H
#define SH_LOG_INSPECT_INT_H

#include "log/currents.h"
#include "log/inspect.h"
#include "log/replog_int.h"
#include "log/replog_roll_int.h"

/* A zone, while it is read. */
struct sh_inspect_of {
    struct sh_inspect_zone seen;
    struct sh_replog_lives lives;
    struct sh_replog_ranges ranges;
    struct sh_replog_roll roll;         /* of its spans in slots */
    struct sh_replog_said said_by_ring; /* by the primary log */
    uint64_t
        number_lost; /* the highest of which a write had been on the disk there, and can't be read */
    bool has_number_lost;
    struct sh_inspect_life *told;
    uint64_t own_first, own_last; /* chunks that its owner created; own_last 0: none */
    uint64_t own_chunks,
        others; /* entries, and chunks of tuples: of its owner, and of other creators */
};

struct sh_inspect {
    struct sh_disk *disk;
    int file;
    bool is_open, is_read;
    struct sh_inspect_seen seen;
    struct sh_inspect_calls calls;
    struct sh_inspect_of **zones; /* by ID */
    size_t zones_count, zones_room;
    struct sh_inspect_head {
        uint64_t zone;
        uint32_t incarnation;
        uint8_t kind; /* enum sh_log_slot_kind */
        bool is_seen; /* it is in use, of a zone that is looked at */
    } * heads;
    uint8_t *slot; /* the one that is looked at */
    uint8_t *ring; /* the primary log; NULL: there is none */
    struct sh_replog_marks marks;
    struct sh_inspect_break {
        size_t at;
        uint64_t zone;
        bool may_be_torn;
    } * breaks; /* of what is looked at */
    size_t breaks_count, breaks_room;
};

/* Reads a slot into inspect->slot. Blocks that can't be read are zero; *lost_out: how many; each row of them is told. */
void sh_inspect_slot_read(struct sh_inspect *inspect, uint32_t slot, uint32_t *lost_out);

/* NULL: the log has nothing of it. */
const struct sh_inspect_of *sh_inspect_of_find(const struct sh_inspect *inspect, uint64_t id);

/* Whether a start would copy a span of the primary log to slots; of that zone, 0: of any. */
bool sh_inspect_ring_has(const struct sh_inspect *inspect, const struct sh_span *span,
                         uint64_t zone);

/* --- Which chunks there are (inspect.c) --------------------------------------------------------- */

/* The zone has an entry, or a tuple, of these. */
void sh_inspect_chunks_note(struct sh_inspect_of *zone, uint64_t first, uint64_t last);

/* --- What is current (inspect_dump.c) ------------------------------------------------------------ */

/* First all versions are learned, then each entry is told. */
struct sh_inspect_telling {
    const struct sh_inspect_of *zone;
    struct sh_currents *currents;
    uint16_t eon;   /* in which the zone is */
    uint64_t chunk; /* 0: all */
    bool (*each)(void *arg, const struct sh_inspect_entry *entry);
    void *arg;
    bool is_told; /* entries are, and not only learned */
    bool is_over; /* `each` has returned false */
    enum shoal_err err;
};

/* For the chunks of the zone, which have been noted. */
struct sh_currents_config sh_inspect_currents_config(const struct sh_inspect_telling *telling);
/* The chunks have that version, by the version log. */
void sh_inspect_learn(struct sh_inspect_telling *telling, uint64_t first, uint64_t last,
                      struct sh_replog_version version, bool is_removal);
/* Learns the version of the entry that the walk has just read, or tells of the entry; kind, slot and lap have been filled in. */
void sh_inspect_entry_take(struct sh_inspect_telling *telling, const struct sh_replog_walk *walk,
                           struct sh_inspect_entry *found);

#endif
