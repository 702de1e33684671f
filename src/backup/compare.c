/* The owner compares its zones with the superpeers' records: where these have lost all replicas of a shard, records are missing, or old, and
 * nobody says so (docs/zones.md).
 *
 *   once a minute: ZONES of this node ──► each record: the same as the zone's ──► the zone is listed
 *                                                      of no zone ──────────────► a stray: this life's are removed
 *                        all were told ──► zones that are not listed are looked at one by one: records.c
 *
 * A list may miss what was changed meanwhile: so it only says which zones to ask about. Of a thousand zones of which nothing was lost that is
 * five questions, and 90 KB. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#define COMPARE_NS UINT64_C(60000000000)
#define LIST_NS UINT64_C(30000000000) /* for which a list may take */

static uint64_t compare_ns(const struct sh_backup *backup)
{
    uint64_t each_ns = backup->config.cluster.compare_ns;
    return each_ns ? each_ns : COMPARE_NS;
}

/* Notes a record of a zone that this life has dropped: a repetition of the request that had registered it again came late. */
static void stray_note(struct sh_backup *backup, const struct sh_zone *record)
{
    struct sh_compare *compare = &backup->compare;
    bool was_made = sh_zone_was_made(backup, sh_zone_number(record->id));
    bool is_its =
        record->owner.v == backup->config.nid.v && record->life == backup->config.cluster.life;
    if (was_made && is_its && compare->strays_count < SH_STRAYS_MAX)
        compare->strays[compare->strays_count++] = *record;
}

bool sh_zone_record_agrees(const struct sh_own_zone *zone, const struct sh_zone *found)
{
    const struct sh_zone *known = &zone->record;
    return found->version == known->version && found->incarnation == known->incarnation &&
           sh_zone_is_same(found, known) && !(found->flags & SH_ZONE_OLD);
}

static void on_listed(struct sh_zone_list *list, const struct sh_zone *record)
{
    struct sh_backup *backup = list->arg;
    struct sh_own_zone *zone = sh_zone_by_id(backup, record->id);
    if (!zone) {
        stray_note(backup, record);
        return;
    }
    if (sh_zone_record_agrees(zone, record))
        zone->compared = backup->compare.round;
}

static void on_list_over(struct sh_zone_list *list, enum shoal_err err)
{
    struct sh_backup *backup = list->arg;
    struct sh_compare *compare = &backup->compare;
    compare->is_listing = false;
    compare->due_ns = backup->now_ns + compare_ns(backup);
    if (err) {
        compare->strays_count = 0;
        return; /* the superpeers do not answer now, or the cluster is left */
    }
    compare->done = compare->round;
    sh_zones_tend(backup);
}

static void on_removed(struct sh_zone_op *op, enum shoal_err err,
                       const struct sh_zone_answer *answer)
{
    struct sh_backup *backup = op->arg;
    backup->compare.is_removing = false;
    if (err == SHOAL_ESTOPPED)
        return;
    if (answer)
        SH_WARN("backup", "the record of a zone that was dropped had come back",
                SH_U64("zone", sh_zone_number(backup->compare.removed)), SH_ERR(err));
    backup->config.wake(backup->config.arg);
}

/* Removes the next stray; what is refused is there in the next list. */
static bool stray_remove(struct sh_backup *backup)
{
    struct sh_compare *compare = &backup->compare;
    const struct sh_backup_cluster *cluster = &backup->config.cluster;
    if (compare->is_listing || compare->is_removing || !compare->strays_count)
        return false;
    const struct sh_zone *stray = &compare->strays[--compare->strays_count];
    compare->op = (struct sh_zone_op){.done = on_removed, .arg = backup};
    compare->is_removing = true;
    compare->removed = stray->id;
    sh_zones_remove(cluster->zones, cluster->life, stray->id, stray->version, &compare->op);
    return true;
}

unsigned sh_compare_step(struct sh_backup *backup, uint64_t now_ns)
{
    struct sh_compare *compare = &backup->compare;
    const struct sh_backup_cluster *cluster = &backup->config.cluster;
    if (stray_remove(backup))
        return 1;
    /* Owners that were started together do not all ask at once. */
    if (!compare->due_ns)
        compare->due_ns = now_ns + compare_ns(backup) / 2 +
                          sh_mix64(backup->config.nid.v ^ cluster->life) % compare_ns(backup);
    if (compare->is_listing || compare->is_removing || now_ns < compare->due_ns)
        return 0;
    compare->round++;
    compare->strays_count = 0;
    compare->is_listing = true;
    compare->list = (struct sh_zone_list){
        .each = on_listed, .done = on_list_over, .arg = backup, .deadline_ns = now_ns + LIST_NS};
    sh_zones_list(cluster->zones, SH_ZONES_OF_CREATOR, backup->config.nid, 0, &compare->list);
    return 1;
}

uint64_t sh_compare_due_ns(const struct sh_backup *backup)
{
    const struct sh_compare *compare = &backup->compare;
    if (compare->is_listing || compare->is_removing)
        return UINT64_MAX;
    return compare->strays_count ? 0 : compare->due_ns;
}
