/* Shards whose last replica was lost: disks that an operator has declared lost, a cluster that is
 * forced to begin anew from one superpeer (superpeer_force.c), and superpeers whose disks are in
 * memory. The ring finds the most advanced old copy (ring/ring_salvage.c), and the registry's table
 * says which it is. What the copy lacks nobody can tell, so it begins a new incarnation of the shard,
 * in which the peers say anew what they have (superpeer_gather.c).
 *
 *   table: COPY, version v --> owner: the copy's incarnation is not v's --RESTORED--> it is: serves
 *
 * The incarnation is made of the table's words alone, so whichever superpeer owns the shard sees
 * whether RESTORED was carried out. */
#include <stdio.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "superpeer/superpeer_ring_int.h"

#define SHARDS_TEXT_MAX (4 * SH_SHARDS)

/* The incarnation of a shard that began with an old copy in the version at its origin; 0: another
 * one's. */
static uint64_t incarnation_of(const struct sh_superpeer *superpeer, unsigned shard)
{
    const struct sh_shard *at = &superpeer->ring->seen.shards[shard];
    if (at->origin != SH_ORIGIN_COPY)
        return 0;
    uint64_t salt = sh_mix64(at->copy_epoch) ^ (UINT64_C(1) << shard);
    return sh_mix64(salt ^ sh_mix64(at->origin_version)) | 1;
}

bool sh_superpeer_salvage_is_due(const struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(superpeer->ring && shard < SH_SHARDS);
    uint64_t incarnation = incarnation_of(superpeer, shard);
    return incarnation && sh_metadata_incarnation(superpeer->ring->metadata, shard) != incarnation;
}

/* Orders the update that begins a shard's new incarnation. Apart from the step, which looks at all
 * shards in each round: an update is 4 KB of zeros. */
static enum shoal_err restored_order(struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(incarnation_of(superpeer, shard));
    struct sh_metadata_update update = {.kind = SH_METADATA_RESTORED,
                                        .sequence = incarnation_of(superpeer, shard)};
    return sh_superpeer_ring_order(superpeer, shard, &update);
}

void sh_superpeer_salvage_step(struct sh_superpeer *superpeer)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    uint64_t now_ns = sh_now(&superpeer->env.clock);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        uint64_t version = part->seen.shards[i].version;
        if (part->restored_version[i] == version || !sh_superpeer_salvage_is_due(superpeer, i) ||
            sh_ring_reads(part->ring, now_ns, i))
            continue;
        if (!restored_order(superpeer, i))
            part->restored_version[i] = version;
    }
}

void sh_superpeer_salvage_done(const struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    const struct sh_shard *at = &superpeer->ring->seen.shards[shard];
    if (at->owner != superpeer->index + 1 || at->origin != SH_ORIGIN_COPY)
        return;
    SH_WARN(
        "cluster",
        "a shard whose replicas were all lost goes on from an old copy: names, barriers, scratch "
        "values and zones that were changed after the copy's last update may be missing; where "
        "chunks are, the peers are asked",
        SH_U64("shard", shard), SH_U64("copy_of", at->copy_nid),
        SH_U64("copy_version", at->copy_epoch), SH_U64("copy_sequence", at->copy_sequence));
}

void sh_superpeer_salvage_empty(const struct sh_superpeer *superpeer, uint64_t shards)
{
    char text[SHARDS_TEXT_MAX];
    size_t at = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if ((shards >> i & 1) && superpeer->ring->seen.shards[i].origin != SH_ORIGIN_NONE)
            at += (size_t)snprintf(text + at, sizeof text - at, at ? " %u" : "%u", i);
    }
    if (at)
        SH_WARN("cluster",
                "shards whose replicas were all lost begin empty, since no superpeer has an old "
                "copy: their names, barriers, scratch values and zones are gone, but for what the "
                "peers report; where chunks are, they are asked",
                SH_TEXT("shards", text));
}

void sh_superpeer_salvage_refused(struct sh_superpeer *superpeer)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    const struct sh_arcs *arcs = &part->seen;
    unsigned own = superpeer->index + 1u, count = 0;
    if (part->is_started || sh_life_starts(superpeer->life) || part->is_refused)
        return;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        count += arcs->shards[i].replicas == sh_arc_bit(own);
    if (!count)
        return;
    part->is_refused = true;
    SH_ERROR(
        "cluster",
        "data_dir is empty, and this superpeer's former disk is the only one with some shards: "
        "it takes no part. Stop it, and start it on its former data_dir; or if that is lost for "
        "good, stop it, run `shoal node lost` with its ID, and start it again",
        SH_U64("superpeer", own), SH_U64("shards", count));
}
