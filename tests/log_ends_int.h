/* Where the zones of a log end when its process does, and whether they end there when it is opened again. */
#ifndef TESTS_LOG_ENDS_INT_H
#define TESTS_LOG_ENDS_INT_H

#include "log/replog.h"

#define LOG_ENDS_MAX 1024u

struct log_ends {
    struct {
        uint64_t zone, handed, durable;
    } ends[LOG_ENDS_MAX];
    unsigned count;
};

/* Takes note of all zones that are written to. */
static inline void log_ends_note(struct log_ends *ends, struct sh_replog *log)
{
    struct sh_replog_zone *zone;
    ends->count = 0;
    for (uint64_t id = UINT64_MAX; (zone = sh_replog_zone_below(log, id));
         id = sh_replog_zone_id(zone)) {
        if (!sh_replog_zone_known(zone).is_added)
            continue;
        assert_true(ends->count < LOG_ENDS_MAX);
        ends->ends[ends->count].zone = sh_replog_zone_id(zone);
        ends->ends[ends->count].handed = sh_replog_handed(zone);
        ends->ends[ends->count++].durable = sh_replog_durable(zone);
    }
}

/* Whether a zone that is there, and to which nothing was written since the start, ends before what was durable, or handed. */
static inline bool log_ends_lack(const struct log_ends *ends, struct sh_replog *log, bool is_handed)
{
    for (unsigned i = 0; i < ends->count; i++) {
        const struct sh_replog_zone *zone = sh_replog_zone_find(log, ends->ends[i].zone);
        uint64_t end = is_handed ? ends->ends[i].handed : ends->ends[i].durable;
        if (zone && sh_replog_zone_known(zone).is_added && sh_replog_next(zone) < end)
            return true;
    }
    return false;
}

/* Bits may have gone bad: whether a start that ended so has told of it, or the log ends before what it had. */
static inline bool log_ends_tell(const struct log_ends *ends, struct sh_replog *log,
                                 enum shoal_err opened, bool is_handed, unsigned *told,
                                 unsigned *ended_early)
{
    bool is_short = !opened && log_ends_lack(ends, log, is_handed);
    *told += opened == SHOAL_ECORRUPT;
    *ended_early += is_short;
    return opened == SHOAL_ECORRUPT || is_short;
}

#endif
