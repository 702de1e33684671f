/* How far a zone is on its way, for people (`shoal recovery`). */
#include "base/assert.h"
#include "recover/restorer_int.h"

static enum sh_restore_phase phase_of(const struct sh_restoring *job)
{
    switch (job->phase) {
    case SH_RESTORING_RECORD:
        return job->why ? SH_RESTORE_RETRIES : SH_RESTORE_QUEUED;
    case SH_RESTORING_NEAR:
    case SH_RESTORING_ENDS:
    case SH_RESTORING_TAKES:
        return SH_RESTORE_QUEUED;
    case SH_RESTORING_WAITS:
        return job->is_reading ? SH_RESTORE_READS : SH_RESTORE_QUEUED;
    case SH_RESTORING_RUNS:
    case SH_RESTORING_ADOPTS:
        return SH_RESTORE_READS;
    case SH_RESTORING_ORDER:
        return SH_RESTORE_ORDER;
    case SH_RESTORING_SIFTS:
        return job->is_ordered ? SH_RESTORE_TAKES : SH_RESTORE_ORDER;
    case SH_RESTORING_TAKES_OVER:
    case SH_RESTORING_WHOSE:
        return SH_RESTORE_TAKES;
    case SH_RESTORING_OPENS:
    case SH_RESTORING_SERVES:
    case SH_RESTORING_DROPS:
        return SH_RESTORE_OPENS;
    case SH_RESTORING_UNDOES:
    case SH_RESTORING_MAKES_ROOM:
    case SH_RESTORING_HANDS_ON:
        return SH_RESTORE_RETRIES;
    case SH_RESTORING_OVER: /* the zone is served, or another node's by now */
        return SH_RESTORE_UNKNOWN;
    }
    SH_ASSERT(!"a phase");
    return SH_RESTORE_UNKNOWN;
}

/* Once the zone is served its replica may be gone from the log. */
struct sh_restore_progress sh_restoring_progress(const struct sh_restoring *job)
{
    const struct sh_replog_zone *zone = sh_replog_zone_find(job->restorer->log, job->id);
    struct sh_restore_progress progress = {.phase = phase_of(job), .missing = job->lacked};
    if (!zone)
        return progress;
    const struct sh_replog_progress read = sh_replog_zone_progress(zone);
    bool is_read = job->phase > SH_RESTORING_WAITS && job->phase < SH_RESTORING_UNDOES;
    progress.bytes = read.bytes;
    progress.read = is_read ? read.bytes : job->is_reading ? read.read : 0;
    return progress;
}
