/* Shards: their life, and updates as bytes. */
#include "metadata/metadata.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/node_ids.h"
#include "metadata/metadata_int.h"

#define SWEPT_WITH_UPDATE 16

enum shoal_err sh_metadata_create(struct sh_metadata **metadata_out)
{
    struct sh_metadata *metadata = calloc(1, sizeof *metadata);
    if (!metadata)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        metadata->shards[i].cells = &metadata->cells;
    *metadata_out = metadata;
    return SHOAL_OK;
}

void sh_metadata_destroy(struct sh_metadata *metadata)
{
    if (!metadata)
        return;
    SH_ASSERT(!metadata->open);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        sh_metadata_shard_clear(&metadata->shards[i]);
        free(metadata->shards[i].refs);
    }
    while (sh_cells_sweep(&metadata->cells, SIZE_MAX))
        ;
    sh_cells_trim(&metadata->cells, 0, SIZE_MAX);
    SH_ASSERT(!metadata->cells.count);
    free(metadata);
}

/* The tables' entries stay as they are: their counts say that they are not used. The room for
 * references stays, since updates may be reserved in it. */
void sh_metadata_shard_clear(struct sh_metadata_shard *shard)
{
    struct sh_cells *cells = shard->cells;
    struct sh_metadata_refs *refs = shard->refs;
    size_t refs_room = shard->refs_room;
    sh_map_clear(&shard->items, cells);
    sh_metadata_barriers_clear(shard);
    memset(shard, 0, offsetof(struct sh_metadata_shard, barriers));
    shard->cells = cells;
    shard->refs = refs;
    shard->refs_room = refs_room;
    if (refs_room)
        memset(refs, 0, refs_room * sizeof *refs);
}

void sh_metadata_clear(struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    sh_metadata_shard_clear(&metadata->shards[number]);
}

bool sh_metadata_sweep(struct sh_metadata *metadata, unsigned budget)
{
    return sh_cells_sweep(&metadata->cells, budget);
}

/* Updates may have been done, and counted, of which this state knows nothing. */
static void incarnation_set(struct sh_metadata_shard *shard, uint64_t incarnation)
{
    shard->incarnation = incarnation;
    shard->updates += incarnation >> 16;
    shard->forgotten = shard->updates;
}

void sh_metadata_begin(struct sh_metadata *metadata, unsigned number, uint64_t incarnation,
                       bool is_known)
{
    SH_ASSERT(incarnation);
    sh_metadata_clear(metadata, number);
    incarnation_set(&metadata->shards[number], incarnation);
    metadata->shards[number].is_known = is_known;
}

uint64_t sh_metadata_incarnation(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].incarnation;
}

bool sh_metadata_is_known(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].is_known;
}

static struct sh_metadata_result restored(struct sh_metadata_shard *shard, uint64_t incarnation)
{
    sh_metadata_moves_clear(shard);
    incarnation_set(shard, incarnation);
    shard->is_known = false;
    return (struct sh_metadata_result){.err = SHOAL_OK};
}

static struct sh_metadata_result carry_out(struct sh_metadata_shard *shard,
                                           const struct sh_metadata_update *update)
{
    switch (update->kind) {
    case SH_METADATA_MOVE:
    case SH_METADATA_REFUSE:
    case SH_METADATA_RESOLVE:
    case SH_METADATA_CLAIM:
    case SH_METADATA_GONE:
    case SH_METADATA_TAKE:
        return sh_metadata_move_apply(shard, update);
    case SH_METADATA_ZONE_NEW:
    case SH_METADATA_ZONE_CHANGE:
    case SH_METADATA_ZONE_REMOVE:
        return sh_metadata_zone_apply(shard, update);
    case SH_METADATA_RESTORED:
        return restored(shard, update->sequence);
    case SH_METADATA_KNOWN:
        shard->is_known = true;
        return (struct sh_metadata_result){.err = SHOAL_OK};
    default:
        return sh_metadata_service_apply(shard, update);
    }
}

struct sh_metadata_result sh_metadata_apply(struct sh_metadata *metadata, unsigned number,
                                            const struct sh_metadata_update *update)
{
    SH_ASSERT(number < SH_SHARDS);
    enum shoal_err err = sh_metadata_ahead_check(metadata, number, update);
    if (err)
        return (struct sh_metadata_result){.err = err};
    struct sh_metadata_result result = carry_out(&metadata->shards[number], update);
    sh_metadata_ahead_done(metadata, number, update);
    /* What one update leaves as garbage is less, all together, but for whole rounds and ranges. */
    (void)sh_cells_sweep(&metadata->cells, SWEPT_WITH_UPDATE);
    return result;
}

/* --- Updates as bytes ------------------------------------------------------------------------ */

bool sh_metadata_is_batch(uint8_t kind)
{
    return kind == SH_METADATA_MOVE || kind == SH_METADATA_REFUSE || kind == SH_METADATA_RESOLVE ||
           kind == SH_METADATA_CLAIM || kind == SH_METADATA_TAKE;
}

static void take_put(struct sh_writer *w, const struct sh_zone *zone)
{
    sh_put64(w, zone->id);
    sh_put32(w, zone->incarnation);
    sh_put16(w, zone->owner.v);
    sh_put64(w, zone->life);
    sh_put16(w, zone->former.v);
    sh_put64(w, zone->former_life);
    sh_put8(w, zone->flags & SH_ZONE_TAKEN);
}

/* MOVE, REFUSE, RESOLVE, CLAIM: u16 from, u16 to (CLAIM: condition), u64 sequence. TAKE: u64 zone, u32 its incarnation, u16 owner, u64 its life, u16 former owner,
 * u64 its life, u8 flags. All of these: u16 count, runs.
 * KNOWN: nothing. RESTORED: u64 sequence. GONE: u16 from. Before all of them, and of those in metadata_services.c and
 * metadata_zones.c, u8 kind. */
void sh_metadata_update_put(struct sh_writer *w, const struct sh_metadata_update *update)
{
    sh_put8(w, update->kind);
    if (update->kind == SH_METADATA_KNOWN)
        return;
    if (update->kind == SH_METADATA_RESTORED) {
        sh_put64(w, update->sequence);
        return;
    }
    if (update->kind == SH_METADATA_GONE) {
        sh_put16(w, update->from.v);
        return;
    }
    if (sh_metadata_is_zone(update->kind)) {
        sh_metadata_zone_update_put(w, update);
        return;
    }
    if (!sh_metadata_is_batch(update->kind)) {
        sh_metadata_service_put(w, update);
        return;
    }
    SH_ASSERT(update->count <= SH_METADATA_RUNS_MAX);
    if (update->kind == SH_METADATA_TAKE) {
        take_put(w, &update->zone);
    } else {
        sh_put16(w, update->from.v);
        sh_put16(w, update->kind == SH_METADATA_CLAIM ? update->condition : update->to.v);
        sh_put64(w, update->sequence);
    }
    sh_put16(w, (uint16_t)update->count);
    for (size_t i = 0; i < update->count; i++) {
        sh_put64(w, update->runs[i].first.v);
        sh_put64(w, update->runs[i].last.v);
    }
}

/* Reads of TAKE what is before the runs. */
static bool take_get(struct sh_reader *r, struct sh_zone *zone)
{
    zone->id = sh_get64(r);
    zone->incarnation = sh_get32(r);
    zone->owner.v = sh_get16(r);
    zone->life = sh_get64(r);
    zone->former.v = sh_get16(r);
    zone->former_life = sh_get64(r);
    zone->flags = sh_get8(r);
    bool is_other = zone->former.v != zone->owner.v || zone->former_life != zone->life;
    return sh_reader_ok(r) && sh_zone_is_id(zone->id) && zone->incarnation &&
           sh_metadata_is_peer(zone->owner) && zone->life && sh_metadata_is_peer(zone->former) &&
           zone->former_life && is_other && !(zone->flags & ~SH_ZONE_TAKEN);
}

bool sh_metadata_is_peer(shoal_nid nid)
{
    return nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX;
}

/* Only a creator has given its chunks away. */
static bool is_claim_good(const struct sh_metadata_update *update)
{
    bool gave = update->condition == SH_CLAIM_GAVE;
    return update->condition >= SH_CLAIM_SERVES && update->condition <= SH_CLAIM_FROZEN &&
           (!update->count || !gave ||
            update->from.v == shoal_cid_creator(update->runs[0].first).v);
}

static bool is_batch_good(const struct sh_metadata_update *update)
{
    return sh_metadata_is_peer(update->to) && update->from.v != update->to.v && update->count &&
           update->sequence;
}

static bool runs_get(struct sh_reader *r, struct sh_metadata_update *update)
{
    update->count = sh_get16(r);
    if (!sh_reader_ok(r) || update->count > SH_METADATA_RUNS_MAX)
        return false;
    for (size_t i = 0; i < update->count; i++) {
        struct sh_metadata_run *run = &update->runs[i];
        run->first.v = sh_get64(r);
        run->last.v = sh_get64(r);
        shoal_nid creator = shoal_cid_creator(run->first);
        if (run->last.v < run->first.v || shoal_cid_creator(run->last).v != creator.v ||
            !sh_metadata_is_peer(creator) ||
            (i > 0 &&
             (run->first.v <= run[-1].last.v || shoal_cid_creator(run[-1].first).v != creator.v)))
            return false;
    }
    return sh_reader_ok(r);
}

static bool batch_get(struct sh_reader *r, struct sh_metadata_update *update)
{
    bool is_claim = update->kind == SH_METADATA_CLAIM;
    update->from.v = sh_get16(r);
    uint16_t other = sh_get16(r);
    update->to.v = is_claim ? 0 : other;
    update->condition = is_claim && other <= SH_CLAIM_FROZEN ? (uint8_t)other : 0;
    update->sequence = sh_get64(r);
    return sh_metadata_is_peer(update->from) && runs_get(r, update) &&
           (is_claim ? is_claim_good(update) : is_batch_good(update));
}

enum shoal_err sh_metadata_update_get_any(struct sh_bytes bytes,
                                          struct sh_metadata_update *update_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    /* Its runs are 4 KB, and most updates have none. */
    memset(update_out, 0, offsetof(struct sh_metadata_update, runs));
    update_out->kind = sh_get8(&r);
    bool is_good = true;
    switch (update_out->kind) {
    case SH_METADATA_MOVE:
    case SH_METADATA_REFUSE:
    case SH_METADATA_RESOLVE:
    case SH_METADATA_CLAIM:
        is_good = batch_get(&r, update_out);
        break;
    case SH_METADATA_TAKE:
        is_good = take_get(&r, &update_out->zone) && runs_get(&r, update_out) && update_out->count;
        break;
    case SH_METADATA_KNOWN:
        break;
    case SH_METADATA_RESTORED:
        update_out->sequence = sh_get64(&r);
        is_good = update_out->sequence;
        break;
    case SH_METADATA_GONE:
        update_out->from.v = sh_get16(&r);
        is_good = sh_metadata_is_peer(update_out->from);
        break;
    case SH_METADATA_ZONE_NEW:
    case SH_METADATA_ZONE_CHANGE:
    case SH_METADATA_ZONE_REMOVE:
        is_good = sh_metadata_zone_update_get(&r, update_out);
        break;
    default:
        is_good = sh_metadata_service_get(&r, update_out);
    }
    return is_good && sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
}

enum shoal_err sh_metadata_update_get(struct sh_bytes bytes, unsigned shard,
                                      struct sh_metadata_update *update_out)
{
    enum shoal_err err = sh_metadata_update_get_any(bytes, update_out);
    bool is_of_any = update_out->kind == SH_METADATA_KNOWN ||
                     update_out->kind == SH_METADATA_RESTORED ||
                     update_out->kind == SH_METADATA_GONE ||
                     (update_out->kind == SH_METADATA_CLAIM && !update_out->count);
    if (!err && !is_of_any && sh_metadata_shard(update_out) != shard)
        err = SHOAL_EPROTO;
    return err;
}

unsigned sh_metadata_shard(const struct sh_metadata_update *update)
{
    if (update->kind >= SH_METADATA_NAME && update->kind < SH_METADATA_CLAIM)
        return sh_metadata_service_shard(update);
    if (sh_metadata_is_zone(update->kind))
        return sh_zone_shard(update->zone.id);
    SH_ASSERT(sh_metadata_is_batch(update->kind) && update->count);
    return sh_arc_shard(shoal_cid_creator(update->runs[0].first));
}
