/* Zones: what peers ask of their records, and which changes of them a superpeer orders (docs/zones.md). The
 * state is the ring's (metadata/zone.h).
 *
 *   ZONE --> the record's version is another: answered at once, with the record
 *        --> the asker owns it: ordered. The state looks again: another one may own it by then
 *        --> the asker is to own it, and the life that does is gone: ordered
 *        --> a superpeer asks, which coordinates a recovery: ordered; of another owner if the life that owns the zone is gone
 *        --> else ENOTOWNER
 *
 * Of an update that takes a zone from its owner, this superpeer sees to it that the owner is gone. That
 * the record is still the one it looked at, the version says, by which the state goes. */
#include "base/assert.h"
#include "base/life.h"
#include "base/node_ids.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define LOOKS_MAX 2048 /* records that one ZONES looks at: 0.4 ms */

/* --- Answers --------------------------------------------------------------------------------- */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* Whether records that were acknowledged may be missing in a shard, or old: all its replicas were lost. */
static bool is_doubtful(const struct sh_superpeer *superpeer, unsigned shard)
{
    const struct sh_shard *at = &superpeer->ring->seen.shards[shard];
    return at->origin == SH_ORIGIN_COPY || at->origin == SH_ORIGIN_PEERS;
}

void sh_superpeer_zone_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, uint64_t id, enum shoal_err result)
{
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    uint8_t record[SH_ZONE_BYTES_MAX];
    struct sh_writer w = sh_writer_make(record, sizeof record);
    struct sh_zone zone;
    bool is_there = sh_metadata_zone(metadata, id, &zone);
    struct sh_out out;
    if (is_there)
        sh_zone_put(&w, &zone);
    SH_ASSERT(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - record);
    if (sh_msg_reply(superpeer->msg, to, type, SH_ZONE_ANSWER_BYTES + size, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put16(&out.w, (uint16_t)result);
    sh_put8(&out.w,
            (uint8_t)((is_there ? SH_ZONE_ANSWER_RECORD : 0) |
                      (is_doubtful(superpeer, sh_zone_shard(id)) ? SH_ZONE_ANSWER_DOUBT : 0)));
    sh_put64(&out.w, sh_metadata_zone_last(metadata, sh_zone_creator(id)));
    sh_put_raw(&out.w, sh_bytes_make(record, size));
    sh_msg_end(superpeer->msg, &out);
}

/* Names the superpeer to be asked; size: of an answer without records. */
static void redirect(struct sh_msg_in *in, shoal_nid other, size_t size)
{
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    sh_put16(&out.w, other.v);
    for (size_t i = 2; i < size; i++)
        sh_put8(&out.w, 0);
    sh_msg_end(in->msg, &out);
}

bool sh_superpeer_zone_may_answer(struct sh_superpeer *superpeer, struct sh_msg_in *in,
                                  unsigned shard, size_t size)
{
    shoal_nid other;
    enum shoal_err err = sh_superpeer_ring_reads(superpeer, shard, &other);
    if (err == SHOAL_EROLE)
        redirect(in, other, size);
    else if (err)
        refuse(in, err, err == SHOAL_EBUSY ? "the shard is changing hands" : NULL);
    return err == SHOAL_OK;
}

/* --- Who may change a record ----------------------------------------------------------------- */

static const struct sh_node *node_of(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return sh_view_find(sh_registry_view(superpeer->registry), nid);
}

enum shoal_err sh_superpeer_life_check(const struct sh_superpeer *superpeer, shoal_nid nid,
                                       uint64_t life)
{
    const struct sh_node *node = node_of(superpeer, nid);
    if (!node || node->role != SH_ROLE_PEER)
        return SHOAL_EBUSY;
    if (node->instance == life)
        return node->state == SH_NODE_UP ? SHOAL_OK : SHOAL_EFENCED;
    return sh_life_is_former(life, node->instance) ? SHOAL_EFENCED : SHOAL_EBUSY;
}

/* Zones keep their owner's ID from another node (superpeer_forget.c), so one without a disk, whose lives have no order,
 * has a single life: if the registry names another one, that was given up. */
enum shoal_err sh_superpeer_owner_check(const struct sh_superpeer *superpeer,
                                        const struct sh_zone *zone)
{
    enum shoal_err err = sh_superpeer_life_check(superpeer, zone->owner, zone->life);
    bool is_given_up = !sh_life_starts(zone->life) && node_of(superpeer, zone->owner);
    return err == SHOAL_EBUSY && is_given_up ? SHOAL_EFENCED : err;
}

/* A superpeer asks for what it coordinates. */
static enum shoal_err asker_check(const struct sh_superpeer *superpeer,
                                  const struct sh_metadata_update *update)
{
    if (!sh_nid_is_peer(update->from))
        return SHOAL_OK;
    return sh_superpeer_life_check(superpeer, update->from, update->sequence);
}

/* Whether all backups that the record does not have yet (NULL: there is none) are on peers that are up. So no
 * record names a peer anew that is about to be forgotten (superpeer_forget.c). */
static bool are_backups_up(const struct sh_superpeer *superpeer, const struct sh_zone *old,
                           const struct sh_zone *zone)
{
    for (unsigned i = 0; i < zone->count; i++) {
        const struct sh_zone_backup *backup = &zone->backups[i];
        const struct sh_node *node = node_of(superpeer, backup->nid);
        bool is_up = node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
        if (!is_up && !(old && sh_zone_has_backup(old, backup->nid, backup->disk)))
            return false;
    }
    return true;
}

/* A zone is made by its creator. Where records may be missing, whoever owns the zone registers it again: then its
 * version is above any that the lost record can have had, and its number need not be above the creator's last. */
static enum shoal_err new_check(const struct sh_superpeer *superpeer,
                                struct sh_metadata_update *update)
{
    const struct sh_zone *zone = &update->zone;
    bool is_creator = sh_zone_creator(zone->id).v == update->from.v;
    bool is_again = zone->version > SH_ZONE_JUMP && is_doubtful(superpeer, sh_zone_shard(zone->id));
    if (!is_again && (!is_creator || zone->former.v))
        return SHOAL_EINVAL;
    update->condition = is_again ? SH_ZONE_BY_OTHER : SH_ZONE_BY_OWNER;
    return are_backups_up(superpeer, NULL, zone) ? SHOAL_OK : SHOAL_ENONODE;
}

/* Of an update whose version is the record's: whether it may be ordered, and sets the condition under which the
 * state carries it out. */
static enum shoal_err change_check(const struct sh_superpeer *superpeer, const struct sh_zone *old,
                                   struct sh_metadata_update *update)
{
    const struct sh_zone *zone = &update->zone;
    bool is_removal = update->kind == SH_METADATA_ZONE_REMOVE;
    bool is_owner = old->owner.v == update->from.v && old->life == update->sequence;
    bool is_heir = !is_removal && zone->owner.v == update->from.v && zone->life == update->sequence;
    bool is_superpeer = !sh_nid_is_peer(update->from);
    bool is_other_life = !is_removal && (zone->owner.v != old->owner.v || zone->life != old->life);
    enum shoal_err err = SHOAL_OK;
    if (!is_owner && (!is_superpeer || is_other_life)) {
        if (!is_superpeer && !is_heir)
            return SHOAL_ENOTOWNER;
        err = sh_superpeer_owner_check(superpeer, old);
        if (err != SHOAL_EFENCED)
            return err ? err : SHOAL_ENOTOWNER;
    }
    update->condition = is_owner ? SH_ZONE_BY_OWNER : SH_ZONE_BY_OTHER;
    if (is_removal)
        return SHOAL_OK;
    err = is_other_life ? sh_superpeer_life_check(superpeer, zone->owner, zone->life) : SHOAL_OK;
    if (err == SHOAL_EFENCED || (!err && !are_backups_up(superpeer, old, zone)))
        err = SHOAL_ENONODE;
    return err;
}

/* --- Requests -------------------------------------------------------------------------------- */

void sh_superpeer_result_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                sh_msg_type type, enum shoal_err result)
{
    _Static_assert(SH_TAKE_ANSWER_BYTES == 4 && SH_ACCEPT_LOSS_ANSWER_BYTES == 4, "of one form");
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, type, SH_TAKE_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put16(&out.w, (uint16_t)result);
    sh_msg_end(superpeer->msg, &out);
}

void sh_superpeer_zone_order(struct sh_superpeer *superpeer, struct sh_msg_in *in,
                             const struct sh_metadata_update *update)
{
    uint8_t bytes[SH_ZONE_UPDATE_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, update);
    SH_ASSERT(sh_writer_ok(&w));
    sh_superpeer_ring_update(superpeer, in, sh_metadata_shard(update),
                             sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

/* Orders what may be ordered, and answers the rest. */
static void zone_update(struct sh_superpeer *superpeer, struct sh_msg_in *in,
                        struct sh_metadata_update *update)
{
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    struct sh_zone old;
    bool is_new = update->kind == SH_METADATA_ZONE_NEW;
    enum shoal_err err = asker_check(superpeer, update);
    bool is_there = sh_metadata_zone(metadata, update->zone.id, &old);
    enum shoal_err looked = is_new ? SHOAL_EAGAIN : sh_metadata_zone_look(metadata, update);
    SH_ASSERT(is_new || is_there || looked != SHOAL_EAGAIN);
    if (!err && looked != SHOAL_EAGAIN) {
        sh_superpeer_zone_answer(superpeer, in->reply_to, in->type, update->zone.id, looked);
        return;
    }
    if (!err && !is_new)
        err = change_check(superpeer, &old, update);
    else if (!err && !is_there)
        err = new_check(superpeer, update);
    if (err == SHOAL_EBUSY)
        refuse(in, err, "this superpeer does not know yet which life of a node is the latest");
    else if (err)
        sh_superpeer_zone_answer(superpeer, in->reply_to, in->type, update->zone.id, err);
    else
        sh_superpeer_zone_order(superpeer, in, update);
}

static void on_zone(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_metadata_update update;
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    if (sh_metadata_update_get_any(bytes, &update) || update.kind < SH_METADATA_ZONE_NEW ||
        update.kind > SH_METADATA_ZONE_REMOVE || update.condition != SH_ZONE_BY_OWNER) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (update.from.v != in->reply_to.nid.v) {
        refuse(in, SHOAL_EINVAL, "a node asks for itself only");
        return;
    }
    if (sh_superpeer_zone_may_answer(superpeer, in, sh_zone_shard(update.zone.id),
                                     SH_ZONE_ANSWER_BYTES))
        zone_update(superpeer, in, &update);
}

static void on_zone_get(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_zone zone;
    uint64_t id = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || !sh_nid_is_peer(sh_zone_creator(id))) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (!sh_superpeer_zone_may_answer(superpeer, in, sh_zone_shard(id), SH_ZONE_ANSWER_BYTES))
        return;
    bool is_there = sh_metadata_zone(superpeer->ring->metadata, id, &zone);
    sh_superpeer_zone_answer(superpeer, in->reply_to, in->type, id,
                             is_there ? SHOAL_OK : SHOAL_ENONAME);
}

/* --- Lists ----------------------------------------------------------------------------------- */

struct list {
    uint8_t by, shard;
    shoal_nid nid;
    uint64_t disk, after;
};

static bool list_get(struct sh_reader *r, struct list *list)
{
    list->by = sh_get8(r);
    list->shard = sh_get8(r);
    list->nid.v = sh_get16(r);
    list->disk = sh_get64(r);
    list->after = sh_get64(r);
    bool is_any = list->by == SH_ZONES_OF_BACKUP && !list->nid.v && list->disk;
    return sh_reader_done(r) && list->by >= SH_ZONES_OF_CREATOR && list->by <= SH_ZONES_OF_FORMER &&
           (is_any || sh_nid_is_peer(list->nid)) && list->shard < SH_SHARDS &&
           (list->by == SH_ZONES_OF_BACKUP || !list->disk) &&
           (list->by != SH_ZONES_OF_CREATOR || list->shard == sh_arc_shard(list->nid));
}

static bool is_listed(const struct list *list, const struct sh_zone *zone)
{
    switch (list->by) {
    case SH_ZONES_OF_CREATOR:
        return sh_zone_creator(zone->id).v == list->nid.v;
    case SH_ZONES_OF_OWNER:
        return zone->owner.v == list->nid.v;
    case SH_ZONES_OF_FORMER:
        return zone->owner.v == list->nid.v || zone->former.v == list->nid.v;
    default:
        return sh_zone_has_backup(zone, list->nid, list->disk);
    }
}

/* Writes what there is behind `after`, as far as it is looked at at once; says in list->after how far that was.
 * True: there may be more. */
static bool list_page(const struct sh_metadata *metadata, struct list *list, struct sh_writer *w)
{
    struct sh_zone zone;
    bool is_creator = list->by == SH_ZONES_OF_CREATOR;
    if (list->nid.v && !sh_metadata_refs(metadata, list->shard, list->nid).zones)
        return false;
    if (is_creator && list->after < sh_zone_id(list->nid, 0))
        list->after = sh_zone_id(list->nid, 0);
    for (unsigned i = 0; i < LOOKS_MAX; i++) {
        if (!sh_metadata_zone_next(metadata, list->shard, list->after, &zone) ||
            (is_creator && !is_listed(list, &zone)))
            return false;
        if (is_listed(list, &zone)) {
            if ((size_t)(w->end - w->at) < SH_ZONE_BYTES_MAX)
                return true;
            sh_zone_put(w, &zone);
        }
        list->after = zone.id;
    }
    return true;
}

static void on_zones(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint8_t page[SH_ZONES_PAGE_BYTES];
    struct list list;
    struct sh_out out;
    if (!list_get(&in->payload, &list)) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    if (!sh_superpeer_zone_may_answer(superpeer, in, list.shard, SH_ZONES_ANSWER_BYTES))
        return;
    struct sh_writer w = sh_writer_make(page, sizeof page);
    bool is_more = list_page(superpeer->ring->metadata, &list, &w);
    SH_ASSERT(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - page);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_ZONES_ANSWER_BYTES + size, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, (uint8_t)((is_more ? SH_ZONES_ANSWER_MORE : 0) |
                              (is_doubtful(superpeer, list.shard) ? SH_ZONE_ANSWER_DOUBT : 0)));
    sh_put64(&out.w, list.after);
    sh_put_raw(&out.w, sh_bytes_make(page, size));
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_zone_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONE, SH_MSG_INLINE, on_zone, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONE_GET, SH_MSG_INLINE, on_zone_get, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ZONES, SH_MSG_INLINE, on_zones, superpeer);
}
