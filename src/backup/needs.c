/* The owner's word on replicas that other nodes keep of its zones (KEPT): nodes that nobody told that they are not needed any more ask for it. They
 * may drop what is not NEEDED, so whatever this life does not know for certain is. */
#include "backup/backup_int.h"

bool sh_zone_was_made(const struct sh_backup *backup, uint64_t number)
{
    return backup->made_first && number >= backup->made_first && number < backup->zones.end;
}

static enum sh_replication_need need_of(struct sh_backup *backup, shoal_nid keeper, uint64_t id)
{
    struct sh_own_zone *zone = sh_zone_by_id(backup, id);
    bool is_own = sh_zone_creator(id).v == backup->config.nid.v;
    if (atomic_load(&backup->trouble) || (!is_own && !zone))
        return SH_REPLICATION_NEEDED;
    if (!zone)
        return sh_zone_was_made(backup, sh_zone_number(id)) ? SH_REPLICATION_DROPPED
                                                            : SH_REPLICATION_NEEDED;
    /* While a change of the record is under way, or its answer was lost, the record may name that node. */
    bool is_certain = zone->record.version && !zone->record.former.v && !zone->op &&
                      !zone->is_doubtful && !zone->is_missing && !zone->is_old;
    bool is_backup = sh_sink_find(zone, keeper) || sh_zone_has_backup(&zone->record, keeper, 0);
    return is_certain && !is_backup ? SH_REPLICATION_ELSEWHERE : SH_REPLICATION_NEEDED;
}

void sh_backup_on_kept(void *arg, struct sh_msg_in *in)
{
    struct sh_backup *backup = arg;
    size_t bytes = sh_reader_left(&in->payload);
    struct sh_out out;
    if (!in->is_request)
        return;
    if (bytes % 8 || bytes > 8 * SH_REPLICATION_KEPT_MAX) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 8 + bytes / 8, &out))
        return;
    sh_put64(&out.w, backup->config.cluster.life);
    while (sh_reader_left(&in->payload))
        sh_put8(&out.w, (uint8_t)need_of(backup, in->reply_to.nid, sh_get64(&in->payload)));
    sh_msg_end(in->msg, &out);
}
