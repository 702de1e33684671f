/* Shared by the files that look at a log. */
#ifndef SH_LOG_INSPECT_INT_H
#define SH_LOG_INSPECT_INT_H

#include "log/inspect.h"
#include "log/replog_int.h"

/* A zone, while it is read. */
struct sh_inspect_of {
    struct sh_inspect_zone seen;
    struct sh_replog_lives lives;
    struct sh_replog_ranges ranges;
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

#endif
