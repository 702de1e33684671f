/* How much of a shard refers to each node: names of chunks that the node created, ranges of chunks
 * that have moved from their creator to another node, or were lost there, and zones that the node created,
 * owns, owned before it failed, or has a backup of. A node to which nothing refers
 * may be forgotten with its ID.
 *
 * Four numbers for each peer's ID, in one block up to the highest ID that has occurred, since IDs are
 * given out in sequence. sh_metadata_items.c counts; the block grows before an update is taken, so that
 * carrying it out needs no memory. 16 bytes for each ID: 16 KB of a shard in a cluster of 1,000 nodes,
 * 916 KB if all IDs occur. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/node_ids.h"
#include "metadata/metadata_int.h"

#define ROOM_STEP 256                       /* IDs */
#define NODES_MAX (3 + SH_ZONE_BACKUPS_MAX) /* that an item refers to */

enum shoal_err sh_metadata_refs_grow(struct sh_metadata_shard *shard, size_t room)
{
    if (room <= shard->refs_room)
        return SHOAL_OK;
    struct sh_metadata_refs *refs = sh_cells_malloc(shard->cells, room * sizeof *refs);
    if (!refs)
        return SHOAL_ENOMEM;
    memset(refs, 0, room * sizeof *refs);
    if (shard->refs_room)
        memcpy(refs, shard->refs, shard->refs_room * sizeof *refs);
    free(shard->refs);
    shard->refs = refs;
    shard->refs_room = room;
    return SHOAL_OK;
}

static enum shoal_err fill(struct sh_metadata_shard *shard, shoal_nid nid)
{
    if (!sh_nid_is_peer(nid))
        return SHOAL_OK;
    size_t at = (size_t)nid.v - SH_PEER_NID_MIN;
    return sh_metadata_refs_grow(shard, at - at % ROOM_STEP + ROOM_STEP);
}

/* The nodes that a zone's record names, each once. */
static size_t nodes_of_zone(const struct sh_zone *zone, shoal_nid nids[NODES_MAX])
{
    size_t count = 0;
    nids[count++] = sh_zone_creator(zone->id);
    if (zone->former.v && zone->former.v != nids[0].v)
        nids[count++] = zone->former;
    for (unsigned i = 0; i < zone->count + 1u; i++) {
        shoal_nid nid = i ? zone->backups[i - 1].nid : zone->owner;
        size_t at = 0;
        while (at < count && nids[at].v != nid.v)
            at++;
        if (at == count && nid.v)
            nids[count++] = nid;
    }
    SH_ASSERT(count <= NODES_MAX);
    return count;
}

static enum shoal_err fill_zone(struct sh_metadata_shard *shard, const struct sh_zone *zone)
{
    shoal_nid nids[NODES_MAX];
    enum shoal_err err = SHOAL_OK;
    for (size_t i = nodes_of_zone(zone, nids); !err && i > 0; i--)
        err = fill(shard, nids[i - 1]);
    return err;
}

enum shoal_err sh_metadata_refs_fill(struct sh_metadata_shard *shard,
                                     const struct sh_metadata_update *update)
{
    if (update->kind == SH_METADATA_NAME)
        return fill(shard, shoal_cid_creator(update->cid));
    if (update->kind == SH_METADATA_ZONE_NEW || update->kind == SH_METADATA_ZONE_CHANGE)
        return fill_zone(shard, &update->zone);
    if (!sh_metadata_is_batch(update->kind) || !update->count)
        return SHOAL_OK;
    shoal_nid owner = update->kind == SH_METADATA_CLAIM  ? update->from
                      : update->kind == SH_METADATA_TAKE ? update->zone.owner
                                                         : update->to;
    enum shoal_err err = fill(shard, shoal_cid_creator(update->runs[0].first));
    return err ? err : fill(shard, owner);
}

/* The nodes that an item refers to: of a range its creator, and its owner if it has one. */
static size_t nodes_of(enum sh_metadata_item kind, struct sh_bytes key, struct sh_bytes value,
                       shoal_nid nids[NODES_MAX])
{
    struct sh_zone zone;
    if (kind == SH_ITEM_ZONE) {
        bool is_good = sh_metadata_zone_read(key, value, &zone);
        SH_ASSERT(is_good);
        return nodes_of_zone(&zone, nids);
    }
    if (kind == SH_ITEM_NAME) {
        nids[0] = shoal_cid_creator((shoal_cid){sh_load64(value.at)});
        return sh_nid_is_peer(nids[0]);
    }
    if (kind != SH_ITEM_RANGE)
        return 0;
    nids[0] = shoal_cid_creator((shoal_cid){__builtin_bswap64(sh_load64(key.at))});
    nids[1] = sh_metadata_note_read(value).owner;
    if (nids[1].v == nids[0].v)
        return 0;
    return sh_nid_is_peer(nids[1]) ? 2 : 1;
}

enum shoal_err sh_metadata_refs_fill_item(struct sh_metadata_shard *shard,
                                          enum sh_metadata_item kind, struct sh_bytes key,
                                          struct sh_bytes value)
{
    shoal_nid nids[NODES_MAX];
    enum shoal_err err = SHOAL_OK;
    for (size_t i = nodes_of(kind, key, value, nids); !err && i > 0; i--)
        err = fill(shard, nids[i - 1]);
    return err;
}

static void add(uint32_t *count, bool is_more)
{
    SH_ASSERT(is_more || *count);
    *count = is_more ? *count + 1 : *count - 1;
}

void sh_metadata_refs_count(struct sh_metadata_shard *shard, enum sh_metadata_item kind,
                            struct sh_bytes key, struct sh_bytes value, bool is_more)
{
    shoal_nid nids[NODES_MAX];
    size_t count = nodes_of(kind, key, value, nids);
    for (size_t i = count; i > 0; i--) {
        size_t at = (size_t)nids[i - 1].v - SH_PEER_NID_MIN;
        SH_ASSERT(at < shard->refs_room);
        struct sh_metadata_refs *refs = &shard->refs[at];
        if (kind == SH_ITEM_NAME)
            add(&refs->names, is_more);
        else if (kind == SH_ITEM_ZONE)
            add(&refs->zones, is_more);
        else
            add(&refs->ranges, is_more);
        if (kind == SH_ITEM_RANGE && i == count) /* the owner; the creator if there is none */
            add(&refs->lost, is_more);
    }
}

struct sh_metadata_refs sh_metadata_refs(const struct sh_metadata *metadata, unsigned number,
                                         shoal_nid nid)
{
    SH_ASSERT(number < SH_SHARDS && sh_nid_is_peer(nid));
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    size_t at = (size_t)nid.v - SH_PEER_NID_MIN;
    return at < shard->refs_room ? shard->refs[at] : (struct sh_metadata_refs){0};
}
