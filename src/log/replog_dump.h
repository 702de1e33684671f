/* A dump of a zone's entries out of a log that is written to (`shoal log dump NID`), as inspect.h has it of a log that no process has open.
 *
 *   SETTLES ──► SURVEYS ──► LEARNS ──► TELLS    each of the last three goes over the zone's slots
 *
 * It shows what was appended before it began. So it first has the zone's last batch go to a slot, and waits until all is durable, or two
 * seconds; then it takes note of the zone's slots, and of how far each is durable. What the cleaner gives away meanwhile is not shown, and counted.
 *
 * Its reads are bulk for the disk, and a step looks at a few hundred entries. Memory: two slots, 24 bytes a slot of the zone, and the versions of
 * its chunks (currents.h), SH_REPLOG_DUMP_BYTES_MAX at most. Threads: as replog.h. */
#ifndef SH_LOG_REPLOG_DUMP_H
#define SH_LOG_REPLOG_DUMP_H

#include "log/inspect.h"
#include "log/replog.h"

#define SH_REPLOG_DUMP_BYTES_MAX (UINT64_C(256) << 20)

struct sh_replog_dumped {
    uint32_t slots;            /* that were to be shown */
    uint32_t slots_gone;       /* of these, given away before they were */
    uint32_t slots_unreadable; /* of these, with heads that can't be read */
    uint64_t end; /* the zone's sequence number before which all that counts is in them */
};

struct sh_replog_dump_config {
    uint64_t zone, chunk; /* chunk 0: all */
    /* Takes an entry, which is borrowed; false: not now, it is offered again in a later step. Called within sh_replog_step. */
    bool (*take)(void *arg, const struct sh_inspect_entry *entry);
    /* It is over; behind that nothing is called. EFULL: the zone has too many chunks for one dump; EIO: a slot can't be read; ENOMEM. */
    void (*done)(void *arg, const struct sh_replog_dumped *dumped, enum shoal_err err);
    void *arg;
};

/* Begins a dump. EBUSY: one goes on. ENONAME: the log has nothing of the zone. EIO: out of service. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_replog_dump_begin(struct sh_replog *log,
                                                    const struct sh_replog_dump_config *config);
/* Ends one, if there is one, without `done`; another can begin once its reads have ended (EBUSY until then). */
void sh_replog_dump_stop(struct sh_replog *log);

#endif
