#include "cluster/recoveries.h"

#include "base/assert.h"

/* --- How far an owner has come ----------------------------------------------------------------- */

void sh_restore_progress_put(struct sh_writer *w, const struct sh_restore_progress *progress)
{
    SH_ASSERT(progress->phase < SH_RESTORE_PHASES);
    SH_ASSERT(progress->read <= progress->bytes);
    sh_put8(w, (uint8_t)progress->phase);
    sh_put64(w, progress->read);
    sh_put64(w, progress->bytes);
    sh_put64(w, progress->missing);
}

bool sh_restore_progress_get(struct sh_reader *r, struct sh_restore_progress *progress_out)
{
    unsigned phase = sh_get8(r);
    uint64_t read = sh_get64(r), bytes = sh_get64(r), missing = sh_get64(r);
    if (!sh_reader_ok(r) || phase >= SH_RESTORE_PHASES || read > bytes)
        return false;
    *progress_out =
        (struct sh_restore_progress){(enum sh_restore_phase)phase, read, bytes, missing};
    return true;
}

/* --- A zone ------------------------------------------------------------------------------------ */

void sh_recovery_put(struct sh_writer *w, const struct sh_recovery *recovery)
{
    SH_ASSERT(recovery->state >= SH_RECOVERY_ASKS && recovery->state <= SH_RECOVERY_OLDER);
    SH_ASSERT(!recovery->waits == (recovery->state != SH_RECOVERY_WAITS));
    SH_ASSERT(recovery->waits < 1u << recovery->zone.count);
    sh_put8(w, (uint8_t)recovery->state);
    sh_put8(w, recovery->waits);
    if (recovery->state == SH_RECOVERY_RESTORES)
        sh_restore_progress_put(w, &recovery->progress);
    sh_zone_put(w, &recovery->zone);
}

static bool recovery_get(struct sh_reader *r, struct sh_recovery *recovery)
{
    unsigned state = sh_get8(r);
    recovery->state = (enum sh_recovery_state)state;
    recovery->waits = sh_get8(r);
    recovery->progress = (struct sh_restore_progress){.phase = SH_RESTORE_UNKNOWN};
    if (state < SH_RECOVERY_ASKS || state > SH_RECOVERY_OLDER ||
        !recovery->waits != (state != SH_RECOVERY_WAITS) ||
        (state == SH_RECOVERY_RESTORES && !sh_restore_progress_get(r, &recovery->progress)) ||
        sh_zone_get(r, SH_ZONE_RECORDED | SH_ZONE_OLD, &recovery->zone))
        return false;
    const struct sh_zone *zone = &recovery->zone;
    return recovery->waits < 1u << zone->count &&
           (state == SH_RECOVERY_LOST) == ((zone->flags & SH_ZONE_LOST) != 0) &&
           (state != SH_RECOVERY_OLDER || zone->older);
}

/* --- Pages ------------------------------------------------------------------------------------- */

void sh_recoveries_head_put(struct sh_writer *w, const struct sh_recoveries_head *head)
{
    sh_put8(w, head->is_more);
    sh_put64(w, head->after);
    sh_put64(w, head->epoch);
}

uint64_t sh_recoveries_page_epoch(struct sh_reader r)
{
    (void)sh_get8(&r);
    (void)sh_get64(&r);
    return sh_get64(&r);
}

enum shoal_err sh_recoveries_page_get(struct sh_reader *r, unsigned shard, uint64_t after,
                                      bool (*each)(void *arg, const struct sh_recovery *recovery),
                                      void *arg, struct sh_recoveries_head *head_out)
{
    uint8_t more = sh_get8(r);
    struct sh_recoveries_head head = {.is_more = more, .after = sh_get64(r), .epoch = sh_get64(r)};
    bool goes_on = true;
    if (!sh_reader_ok(r) || more > 1 || head.after < after || (more && head.after == after))
        return SHOAL_EPROTO;
    while (goes_on && sh_reader_left(r)) {
        struct sh_recovery recovery;
        /* Each is above the one before, or the list would have no end. */
        if (!recovery_get(r, &recovery) || recovery.zone.id <= after ||
            recovery.zone.id > head.after || sh_zone_shard(recovery.zone.id) != shard)
            return SHOAL_EPROTO;
        after = recovery.zone.id;
        goes_on = each(arg, &recovery);
    }
    *head_out = head;
    return SHOAL_OK;
}
