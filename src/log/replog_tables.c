/* Memory for tables of versions: how much all zones together may have, and who gives some back when it is short.
 *
 * A backup's memory is to be no more than 1/500 of the bytes of slots that its zones may have. So what 1/570 of these leaves beside the write buffer and what does
 * not grow is for tables, and the rest for zones and the cleaner. A few zones in a large log so have no more than they are worth. */
#include "base/assert.h"
#include "log/replog_int.h"

#define MEMORY_PART 570u
#define FIXED_BYTES ((uint64_t)2 << 20)
#define LEAST_PART 4u /* of the buffer are for tables in any case */
#define TABLES_MIN 2u
#define SHORT_PART 8u /* where less than that part is left, an epoch is ended for its table */
#define AGAIN_NS UINT64_C(1000000)

uint64_t sh_replog_tables_bytes(const struct sh_replog *log, uint64_t slots)
{
    uint64_t buffer = log->config.buffer_bytes;
    uint64_t table = sh_versions_table_bytes(log->config.versions_max);
    uint64_t bytes = slots * log->head.slot_bytes / MEMORY_PART;
    uint64_t others = buffer + FIXED_BYTES + sizeof(struct sh_log_slot) * log->head.slots;
    bytes = bytes > others ? bytes - others : 0;
    bytes = bytes < buffer / LEAST_PART ? buffer / LEAST_PART : bytes;
    if (log->config.tables_bytes)
        bytes = log->config.tables_bytes;
    return bytes < TABLES_MIN * table ? TABLES_MIN * table : bytes;
}

enum shoal_err sh_replog_tables_create(struct sh_replog *log)
{
    return sh_versions_pool_create(log->config.versions_max,
                                   sh_replog_tables_bytes(log, log->head.slots), &log->tables);
}

void sh_replog_tables_limit(struct sh_replog *log, uint64_t slots)
{
    sh_version_pool_limit(log->tables, sh_replog_tables_bytes(log, slots));
}

/* The epoch can end though no write asks for that. */
static bool can_end(const struct sh_replog_zone *zone)
{
    return zone->versions && !zone->versions_batch && !zone->is_ending &&
           !sh_replog_is_refusing(zone) && !zone->chain_pieces && !zone->is_abandoning &&
           !sh_replog_eon_is_over(zone);
}

/* Of the zones whose epoch can end, that with the largest table; NULL: none has one of the pool. */
static struct sh_replog_zone *largest(const struct sh_replog *log)
{
    struct sh_replog_zone *best = NULL;
    size_t most = SH_VERSIONS_OWN;
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            if (!can_end(zone) || sh_versions_slots(zone->versions) <= most)
                continue;
            best = zone;
            most = sh_versions_slots(zone->versions);
        }
    }
    return best;
}

unsigned sh_replog_tables_relieve(struct sh_replog *log)
{
    uint64_t bytes = sh_version_pool_bytes(log->tables);
    if (log->trouble || log->ending || log->now_ns < log->tables_again_ns ||
        sh_version_pool_used(log->tables) <= bytes - bytes / SHORT_PART)
        return 0;
    struct sh_replog_zone *zone = largest(log);
    if (zone)
        (void)sh_replog_epoch_end(zone); /* or later */
    log->tables_again_ns = log->ending ? 0 : log->now_ns + AGAIN_NS;
    return log->ending != NULL;
}
