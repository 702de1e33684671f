/* Completion records: entries without a version, which nothing supersedes. They go by their age, or once nobody asks for them. */
#include "log/replog_int.h"

void sh_replog_completion_put(struct sh_replog_batch *batch, struct sh_bytes completion)
{
    struct sh_replog *log = batch->zone->log;
    const struct sh_replog_entry entry = {.local_id = SH_REPLOG_COMPLETION_ID,
                                          .seconds = log->seconds,
                                          .pieces = 1,
                                          .is_with_next = true,
                                          .payload = completion};
    sh_replog_batch_put(batch, &entry);
    log->status.appended_bytes += completion.size;
    if (log->config.completions.noted)
        log->config.completions.noted(log->config.completions.arg, batch->zone->owner, completion);
}

/* One from the future, by a clock that was put back, is not old. */
bool sh_replog_completion_is_old(const struct sh_replog *log, const struct sh_replog_entry *entry)
{
    uint32_t most = log->config.completions.seconds;
    return log->seconds > entry->seconds &&
           log->seconds - entry->seconds > (most ? most : SH_REPLOG_COMPLETION_SECONDS);
}

bool sh_replog_completion_is_over(struct sh_replog_zone *zone, const struct sh_replog_entry *entry)
{
    const struct sh_replog_completions *known = &zone->log->config.completions;
    return sh_replog_completion_is_old(zone->log, entry) ||
           (known->is_over && known->is_over(known->arg, zone->owner, entry->payload));
}
