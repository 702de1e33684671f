/* A shard's zones. */
#include <string.h>

#include "base/assert.h"
#include "metadata/metadata_int.h"

/* Where in an item's value a part is (metadata_int.h): behind the era comes what sh_zone_put writes behind
 * the ID. */
#define FLAGS_AT 22
#define WANTED_AT 23
#define COUNT_AT 24

unsigned sh_zone_shard(uint64_t id)
{
    return sh_arc_shard(sh_zone_creator(id));
}

bool sh_zone_has_backup(const struct sh_zone *zone, shoal_nid nid, uint64_t disk)
{
    SH_ASSERT(zone->count <= SH_ZONE_BACKUPS_MAX);
    for (unsigned i = 0; i < zone->count; i++) {
        const struct sh_zone_backup *backup = &zone->backups[i];
        if ((!nid.v || backup->nid.v == nid.v) && (!disk || backup->disk == disk))
            return true;
    }
    return false;
}

/* Whether two records have the same backups, in the same order. */
static bool are_backups_same(const struct sh_zone *a, const struct sh_zone *b)
{
    if (a->count != b->count)
        return false;
    for (unsigned i = 0; i < a->count; i++)
        if (a->backups[i].nid.v != b->backups[i].nid.v || a->backups[i].disk != b->backups[i].disk)
            return false;
    return true;
}

static bool are_bounds_same(const struct sh_zone *a, const struct sh_zone *b)
{
    return a->first.v == b->first.v && a->last.v == b->last.v;
}

bool sh_zone_is_same(const struct sh_zone *a, const struct sh_zone *b)
{
    return a->id == b->id && a->owner.v == b->owner.v && a->life == b->life &&
           a->former.v == b->former.v && a->former_life == b->former_life &&
           !((a->flags ^ b->flags) & ~(SH_ZONE_OLD | SH_ZONE_OLDER)) && a->wanted == b->wanted &&
           are_backups_same(a, b) && are_bounds_same(a, b);
}

/* --- Records as bytes ------------------------------------------------------------------------ */

static void body_put(struct sh_writer *w, const struct sh_zone *zone)
{
    SH_ASSERT(zone->count <= SH_ZONE_BACKUPS_MAX);
    SH_ASSERT(!(zone->flags & SH_ZONE_FORMER) == !zone->former.v);
    SH_ASSERT(!zone->former.v == !zone->former_life);
    SH_ASSERT(!(zone->flags & SH_ZONE_OF_FORMER) || zone->former.v);
    SH_ASSERT(!(zone->flags & SH_ZONE_OLDER) == !zone->older);
    sh_put16(w, zone->owner.v);
    sh_put64(w, zone->life);
    sh_put32(w, zone->incarnation);
    sh_put32(w, zone->version);
    sh_put8(w, zone->flags);
    sh_put8(w, zone->wanted);
    sh_put8(w, zone->count);
    for (unsigned i = 0; i < zone->count; i++) {
        sh_put16(w, zone->backups[i].nid.v);
        sh_put64(w, zone->backups[i].disk);
    }
    if (zone->flags & SH_ZONE_CONCLUDED) {
        sh_put64(w, zone->first.v);
        sh_put64(w, zone->last.v);
    }
    if (zone->flags & SH_ZONE_FORMER) {
        sh_put16(w, zone->former.v);
        sh_put64(w, zone->former_life);
    }
    if (zone->flags & SH_ZONE_OLDER)
        sh_put32(w, zone->older);
}

void sh_zone_put(struct sh_writer *w, const struct sh_zone *zone)
{
    sh_put64(w, zone->id);
    body_put(w, zone);
}

static bool backups_get(struct sh_reader *r, struct sh_zone *zone)
{
    if (zone->count > SH_ZONE_BACKUPS_MAX)
        return false;
    for (unsigned i = 0; i < zone->count; i++) {
        struct sh_zone_backup *backup = &zone->backups[i];
        backup->nid.v = sh_get16(r);
        backup->disk = sh_get64(r);
        if (!sh_metadata_is_peer(backup->nid) || !backup->disk)
            return false;
        for (unsigned k = 0; k < i; k++)
            if (zone->backups[k].disk == backup->disk)
                return false;
    }
    return true;
}

static bool bounds_get(struct sh_reader *r, struct sh_zone *zone)
{
    zone->first.v = sh_get64(r);
    zone->last.v = sh_get64(r);
    uint16_t creator = sh_zone_creator(zone->id).v;
    bool is_none = !zone->first.v && !zone->last.v;
    return is_none ||
           (zone->first.v <= zone->last.v && shoal_cid_creator(zone->first).v == creator &&
            shoal_cid_creator(zone->last).v == creator);
}

/* Reads what is behind the ID. */
static bool body_get(struct sh_reader *r, uint8_t flags, struct sh_zone *zone)
{
    zone->owner.v = sh_get16(r);
    zone->life = sh_get64(r);
    zone->incarnation = sh_get32(r);
    zone->version = sh_get32(r);
    zone->flags = sh_get8(r);
    zone->wanted = sh_get8(r);
    zone->count = sh_get8(r);
    bool is_good = sh_reader_ok(r) && sh_zone_is_id(zone->id) && sh_metadata_is_peer(zone->owner) &&
                   zone->life && zone->incarnation && zone->version && !(zone->flags & ~flags) &&
                   zone->wanted <= SH_ZONE_BACKUPS_MAX && backups_get(r, zone);
    if (is_good && zone->flags & SH_ZONE_CONCLUDED)
        is_good = bounds_get(r, zone);
    if (is_good && zone->flags & SH_ZONE_FORMER) {
        zone->former.v = sh_get16(r);
        zone->former_life = sh_get64(r);
        is_good = sh_metadata_is_peer(zone->former) && zone->former_life;
    } else if (zone->flags & SH_ZONE_OF_FORMER) {
        return false;
    }
    if (is_good && zone->flags & SH_ZONE_OLDER) {
        zone->older = sh_get32(r);
        is_good = zone->older;
    }
    return is_good && sh_reader_ok(r);
}

enum shoal_err sh_zone_get(struct sh_reader *r, uint8_t flags, struct sh_zone *zone_out)
{
    struct sh_zone zone = {.id = sh_get64(r)};
    if (!body_get(r, flags, &zone))
        return SHOAL_EPROTO;
    *zone_out = zone;
    return SHOAL_OK;
}

bool sh_metadata_is_zone(uint8_t kind)
{
    return kind >= SH_METADATA_ZONE_NEW && kind <= SH_METADATA_ZONE_REMOVE;
}

/* All: u8 condition, u16 from, u64 its life. NEW, CHANGE: the record. REMOVE: u64 ID, u32 version. */
void sh_metadata_zone_update_put(struct sh_writer *w, const struct sh_metadata_update *update)
{
    sh_put8(w, update->condition);
    sh_put16(w, update->from.v);
    sh_put64(w, update->sequence);
    if (update->kind != SH_METADATA_ZONE_REMOVE) {
        sh_zone_put(w, &update->zone);
        return;
    }
    sh_put64(w, update->zone.id);
    sh_put32(w, update->zone.version);
}

/* The asker is a peer or a superpeer, and of a new zone its owner. */
bool sh_metadata_zone_update_get(struct sh_reader *r, struct sh_metadata_update *update)
{
    struct sh_zone *zone = &update->zone;
    update->condition = sh_get8(r);
    update->from.v = sh_get16(r);
    update->sequence = sh_get64(r);
    if (!sh_reader_ok(r) || update->condition > SH_ZONE_BY_OTHER || !update->from.v ||
        update->from.v > SH_PEER_NID_MAX || !update->sequence)
        return false;
    if (update->kind != SH_METADATA_ZONE_REMOVE)
        return !sh_zone_get(r, SH_ZONE_RECORDED, zone) &&
               (update->kind == SH_METADATA_ZONE_CHANGE ||
                (zone->owner.v == update->from.v && zone->life == update->sequence));
    zone->id = sh_get64(r);
    zone->version = sh_get32(r);
    return sh_reader_ok(r) && sh_zone_is_id(zone->id) && zone->version;
}

/* --- Items ----------------------------------------------------------------------------------- */

struct zone_key {
    uint8_t bytes[8];
};

static struct sh_bytes key_of(uint64_t id, struct zone_key *into)
{
    sh_store64(into->bytes, __builtin_bswap64(id));
    return sh_bytes_make(into->bytes, sizeof into->bytes);
}

static struct sh_bytes last_key_of(shoal_nid creator, struct zone_key *into)
{
    into->bytes[0] = (uint8_t)(creator.v >> 8);
    into->bytes[1] = (uint8_t)creator.v;
    return sh_bytes_make(into->bytes, 2);
}

/* What a record carries of the incarnation in which it was written. */
static uint32_t era_of(const struct sh_metadata_shard *shard)
{
    return (uint32_t)(shard->incarnation ^ shard->incarnation >> 32);
}

bool sh_metadata_zone_read(struct sh_bytes key, struct sh_bytes value, struct sh_zone *zone_out)
{
    struct sh_reader r = sh_reader_make(value);
    if (key.size != 8)
        return false;
    struct sh_zone zone = {.id = __builtin_bswap64(sh_load64(key.at))};
    (void)sh_get32(&r);
    if (!body_get(&r, SH_ZONE_RECORDED, &zone) || !sh_reader_done(&r))
        return false;
    *zone_out = zone;
    return true;
}

/* Reads an item of the shard, which is a good one. */
static struct sh_zone item_read(const struct sh_metadata_shard *shard, struct sh_bytes key,
                                struct sh_bytes value)
{
    struct sh_zone zone;
    bool is_good = sh_metadata_zone_read(key, value, &zone);
    SH_ASSERT(is_good);
    if (sh_load32(value.at) != era_of(shard))
        zone.flags |= SH_ZONE_OLD;
    return zone;
}

static bool find(const struct sh_metadata_shard *shard, uint64_t id, struct sh_zone *zone_out)
{
    struct zone_key key;
    struct sh_bytes value;
    if (!sh_metadata_item_get(shard, SH_ITEM_ZONE, key_of(id, &key), &value))
        return false;
    *zone_out = item_read(shard, key_of(id, &key), value);
    return true;
}

static void zone_put(struct sh_metadata_shard *shard, const struct sh_zone *zone)
{
    struct zone_key key;
    uint8_t value[SH_ZONE_VALUE_MAX];
    struct sh_writer w = sh_writer_make(value, sizeof value);
    SH_ASSERT(!(zone->flags & SH_ZONE_OLD));
    sh_put32(&w, era_of(shard));
    body_put(&w, zone);
    SH_ASSERT(sh_writer_ok(&w));
    sh_metadata_item_put(shard, SH_ITEM_ZONE, key_of(zone->id, &key),
                         sh_bytes_make(value, (size_t)(w.at - value)));
}

static uint64_t last_of(const struct sh_metadata_shard *shard, shoal_nid creator)
{
    struct zone_key key;
    struct sh_bytes value;
    bool is_there = sh_metadata_item_get(shard, SH_ITEM_LAST, last_key_of(creator, &key), &value);
    return is_there ? sh_load64(value.at) : 0;
}

static void count_add(size_t *count, bool counts, bool is_more)
{
    SH_ASSERT(is_more || !counts || *count);
    if (counts)
        *count = is_more ? *count + 1 : *count - 1;
}

void sh_metadata_zone_count(struct sh_metadata_shard *shard, struct sh_bytes value, bool is_more)
{
    uint8_t flags = value.at[FLAGS_AT];
    count_add(&shard->zones_short, value.at[COUNT_AT] < value.at[WANTED_AT], is_more);
    count_add(&shard->zones_lost, flags & SH_ZONE_LOST, is_more);
    count_add(&shard->zones_recovering, flags & SH_ZONE_FORMER && !(flags & SH_ZONE_LOST), is_more);
}

bool sh_metadata_zone(const struct sh_metadata *metadata, uint64_t id, struct sh_zone *zone_out)
{
    return find(&metadata->shards[sh_zone_shard(id)], id, zone_out);
}

bool sh_metadata_zone_next(const struct sh_metadata *metadata, unsigned number, uint64_t after,
                           struct sh_zone *zone_out)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    struct zone_key from;
    struct sh_bytes key, value;
    if (!sh_metadata_item_next(shard, SH_ITEM_ZONE, key_of(after, &from), true, &key, &value))
        return false;
    *zone_out = item_read(shard, key, value);
    return true;
}

uint64_t sh_metadata_zone_last(const struct sh_metadata *metadata, shoal_nid creator)
{
    return last_of(&metadata->shards[sh_arc_shard(creator)], creator);
}

/* --- Updates --------------------------------------------------------------------------------- */

static struct sh_metadata_result result_of(enum shoal_err err)
{
    return (struct sh_metadata_result){.err = err};
}

/* By how much the next change of a record raises its numbers. */
static uint32_t step_of(const struct sh_zone *zone)
{
    return zone->flags & SH_ZONE_OLD ? SH_ZONE_JUMP : 1;
}

/* As sh_metadata_zone_look. The record, if it is there, is in *zone_out. */
static enum shoal_err look(const struct sh_metadata_shard *shard,
                           const struct sh_metadata_update *update, struct sh_zone *zone_out)
{
    const struct sh_zone *asked = &update->zone;
    bool is_removal = update->kind == SH_METADATA_ZONE_REMOVE;
    if (!find(shard, asked->id, zone_out)) {
        bool was_there = sh_zone_number(asked->id) <= last_of(shard, sh_zone_creator(asked->id));
        return is_removal && was_there ? SHOAL_OK : SHOAL_ENONAME;
    }
    if (zone_out->version == asked->version)
        return SHOAL_EAGAIN;
    uint32_t since = zone_out->version - asked->version;
    bool is_next = zone_out->version > asked->version && (since == 1 || since == SH_ZONE_JUMP);
    bool is_done = !is_removal && is_next && !(zone_out->flags & SH_ZONE_OLD) &&
                   sh_zone_is_same(zone_out, asked);
    return is_done ? SHOAL_OK : SHOAL_EDIFFERS;
}

enum shoal_err sh_metadata_zone_look(const struct sh_metadata *metadata,
                                     const struct sh_metadata_update *update)
{
    struct sh_zone zone;
    SH_ASSERT(update->kind == SH_METADATA_ZONE_CHANGE || update->kind == SH_METADATA_ZONE_REMOVE);
    return look(&metadata->shards[sh_zone_shard(update->zone.id)], update, &zone);
}

/* Numbers rise by creator, so that one that is not there was removed or will never be made: no zone has an
 * ID that another one had, however late a NEW arrives. But a zone whose record is lost is registered again by its
 * owner, and owners come in any order. */
static enum shoal_err zone_new(struct sh_metadata_shard *shard,
                               const struct sh_metadata_update *update)
{
    const struct sh_zone *made = &update->zone;
    shoal_nid creator = sh_zone_creator(made->id);
    struct sh_zone zone;
    struct zone_key key;
    uint8_t value[8];
    if (find(shard, made->id, &zone))
        return zone.owner.v == made->owner.v && zone.life == made->life ? SHOAL_OK : SHOAL_EEXIST;
    uint64_t number = sh_zone_number(made->id), last = last_of(shard, creator);
    if (number <= last && update->condition != SH_ZONE_BY_OTHER)
        return SHOAL_ECANCELED;
    if (shard->counts[SH_ITEM_ZONE] >= SH_METADATA_ZONES_MAX)
        return SHOAL_ELIMIT;
    zone_put(shard, made);
    if (number <= last)
        return SHOAL_OK;
    sh_store64(value, number);
    sh_metadata_item_put(shard, SH_ITEM_LAST, last_key_of(creator, &key), sh_bytes_make(value, 8));
    return SHOAL_OK;
}

/* Whether a change leaves the former owner as it must: the owner alone says that the zone is recovered, and whoever
 * takes the zone from its owner says whose it was. The chunks of it are noted as the first owner's that failed
 * until then, so a restorer that fails leaves that one's ID to the next restorer. A new life of the owner may go on with
 * the zone without a recovery; an owner may give the zone away in either way. */
static bool is_former_good(const struct sh_zone *old, const struct sh_zone *asked, bool is_owner)
{
    bool is_other_life = old->owner.v != asked->owner.v || old->life != asked->life;
    if (old->flags & ~asked->flags & SH_ZONE_OF_FORMER && asked->former.v)
        return false;
    if (asked->former.v == old->former.v && asked->former_life == old->former_life)
        return old->former.v || is_owner || old->owner.v == asked->owner.v;
    if (!asked->former.v)
        return is_owner;
    return is_other_life && !old->former.v && asked->former.v == old->owner.v &&
           asked->former_life == old->life;
}

/* is_owner: the owner asks for it. */
static enum shoal_err zone_change(struct sh_metadata_shard *shard, const struct sh_zone *old,
                                  const struct sh_zone *asked, bool is_owner)
{
    bool was_concluded = old->flags & SH_ZONE_CONCLUDED;
    if (was_concluded && (!(asked->flags & SH_ZONE_CONCLUDED) || !are_bounds_same(old, asked)))
        return SHOAL_EINVAL;
    if (!is_former_good(old, asked, is_owner))
        return SHOAL_EINVAL;
    uint32_t step = step_of(old);
    bool is_other = old->owner.v != asked->owner.v || old->life != asked->life ||
                    !are_backups_same(old, asked) || old->flags & SH_ZONE_OLD ||
                    (is_owner && asked->incarnation > old->incarnation);
    if (old->version > UINT32_MAX - step || (is_other && old->incarnation > UINT32_MAX - step))
        return SHOAL_ELIMIT;
    struct sh_zone zone = *asked;
    if (zone.older < old->older)
        sh_zone_older_set(&zone, old->older); /* an owner does not go by it, and leaves it out */
    zone.version = old->version + step;
    zone.incarnation = old->incarnation + (is_other ? step : 0);
    zone_put(shard, &zone);
    return SHOAL_OK;
}

struct sh_metadata_result sh_metadata_zone_apply(struct sh_metadata_shard *shard,
                                                 const struct sh_metadata_update *update)
{
    struct sh_zone old;
    struct zone_key key;
    if (update->kind == SH_METADATA_ZONE_NEW)
        return result_of(zone_new(shard, update));
    enum shoal_err err = look(shard, update, &old);
    if (err != SHOAL_EAGAIN)
        return result_of(err);
    /* A life that does not own the zone any more has no say, whoever still takes it for the owner. */
    bool is_owner = old.owner.v == update->from.v && old.life == update->sequence;
    if (!is_owner && update->condition != SH_ZONE_BY_OTHER)
        return result_of(SHOAL_ENOTOWNER);
    if (update->kind == SH_METADATA_ZONE_CHANGE)
        return result_of(zone_change(shard, &old, &update->zone, is_owner));
    sh_metadata_item_remove(shard, SH_ITEM_ZONE, key_of(update->zone.id, &key));
    return result_of(SHOAL_OK);
}
