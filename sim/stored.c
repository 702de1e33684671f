#include "sim/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/disk.h"
#include "sim/world_int.h"

struct sh_unsynced {
    struct sh_unsynced *next;
    enum sh_disk_kind kind;
    uint64_t number;
    uint64_t offset;
    size_t size;
    bool abandoned; /* a sync of it failed: later ones no longer know of it */
    uint8_t bytes[];
};

static void image_change(struct sh_image *image, enum sh_disk_kind kind, uint64_t offset,
                         const uint8_t *bytes, size_t size)
{
    if (kind == SH_DISK_DISCARD) {
        sh_image_discard(image, offset, size);
    } else if (kind == SH_DISK_ALLOCATE) {
        sh_image_reserve(image, offset, size);
    } else {
        SH_ASSERT(kind == SH_DISK_WRITE);
        sh_image_write(image, offset, bytes, size);
    }
}

void sh_stored_change(struct sh_stored *stored, enum sh_disk_kind kind, uint64_t offset,
                      const uint8_t *bytes, size_t size)
{
    size_t kept = kind == SH_DISK_WRITE ? size : 0;
    struct sh_unsynced *change = sh_sim_alloc(sizeof *change + kept);
    image_change(&stored->seen, kind, offset, bytes, size);
    change->kind = kind;
    change->number = stored->change_number++;
    change->offset = offset;
    change->size = size;
    if (kept)
        memcpy(change->bytes, bytes, kept);
    if (stored->newest)
        stored->newest->next = change;
    else
        stored->unsynced = change;
    stored->newest = change;
}

/* A change is safe: what older writes that never will be hold of its place is void. */
static void outdate(struct sh_stored *stored, const struct sh_unsynced *safe)
{
    for (struct sh_unsynced *old = stored->unsynced; old != safe; old = old->next) {
        uint64_t from = old->offset > safe->offset ? old->offset : safe->offset;
        uint64_t old_end = old->offset + old->size, safe_end = safe->offset + safe->size;
        uint64_t to = old_end < safe_end ? old_end : safe_end;
        SH_ASSERT(old->kind != SH_DISK_DISCARD);
        if (old->kind != SH_DISK_WRITE || from >= to)
            continue;
        uint8_t *at = old->bytes + (from - old->offset);
        if (safe->kind == SH_DISK_WRITE)
            memcpy(at, safe->bytes + (from - safe->offset), (size_t)(to - from));
        else if (safe->kind == SH_DISK_DISCARD)
            memset(at, 0, (size_t)(to - from));
    }
}

static bool has_discard(const struct sh_stored *stored)
{
    const struct sh_unsynced *change = stored->unsynced;
    while (change && change->kind != SH_DISK_DISCARD)
        change = change->next;
    return change != NULL;
}

void sh_stored_sync(struct sh_stored *stored, uint64_t upto, uint64_t from, uint64_t to,
                    bool failed, const struct sh_stored_luck *luck)
{
    bool covers_all = has_discard(stored);
    struct sh_unsynced **at = &stored->unsynced;
    stored->newest = NULL;
    while (*at) {
        struct sh_unsynced *change = *at;
        bool touches = change->offset < to && change->offset + change->size > from;
        bool covered = change->number < upto && !change->abandoned && (covers_all || touches);
        bool is_discard = change->kind == SH_DISK_DISCARD;
        if (!covered || (failed && !is_discard)) {
            change->abandoned = change->abandoned || covered;
            stored->newest = change;
            at = &change->next;
            continue;
        }
        if (failed) {
            sh_stored_crash_change(stored, change->kind, change->offset, NULL, change->size, luck);
        } else {
            image_change(&stored->stable, change->kind, change->offset, change->bytes,
                         change->size);
            outdate(stored, change);
        }
        *at = change->next;
        free(change);
    }
}

static void unsynced_free(struct sh_stored *stored)
{
    while (stored->unsynced) {
        struct sh_unsynced *next = stored->unsynced->next;
        free(stored->unsynced);
        stored->unsynced = next;
    }
    stored->newest = NULL;
}

/* One sector's part of a write that was not synced: all, none or some of it is on the disk. */
static void crash_sector(struct sh_stored *stored, uint64_t offset, const uint8_t *bytes,
                         size_t size, const struct sh_stored_luck *luck)
{
    bool torn = sh_prng_chance(luck->prng, luck->torn_ppm);
    bool survives = sh_prng_chance(luck->prng, luck->survive_ppm);
    size_t from = 0;
    size_t to = survives ? size : 0;
    if (torn) {
        from = (size_t)sh_prng_below(luck->prng, size);
        to = (size_t)sh_prng_between(luck->prng, from + 1, size);
    }
    if (to > from)
        sh_image_write(&stored->stable, offset + from, bytes + from, to - from);
    luck->told(luck->arg, offset + from, to - from);
}

static void crash_write(struct sh_stored *stored, uint64_t offset, const uint8_t *bytes,
                        size_t size, const struct sh_stored_luck *luck)
{
    for (size_t at = 0; at < size;) {
        size_t left = SH_SIM_SECTOR_BYTES - (size_t)((offset + at) % SH_SIM_SECTOR_BYTES);
        left = left < size - at ? left : size - at;
        crash_sector(stored, offset + at, bytes + at, left, luck);
        at += left;
    }
}

void sh_stored_crash_change(struct sh_stored *stored, enum sh_disk_kind kind, uint64_t offset,
                            const uint8_t *bytes, size_t size, const struct sh_stored_luck *luck)
{
    if (kind == SH_DISK_WRITE) {
        crash_write(stored, offset, bytes, size, luck);
        return;
    }
    for (size_t at = 0; at < size; at += SH_IMAGE_BLOCK_BYTES) {
        bool survives = sh_prng_chance(luck->prng, luck->survive_ppm);
        if (survives)
            image_change(&stored->stable, kind, offset + at, NULL, SH_IMAGE_BLOCK_BYTES);
        luck->told(luck->arg, offset + at, survives ? SH_IMAGE_BLOCK_BYTES : 0);
    }
}

void sh_stored_crash(struct sh_stored *stored, const struct sh_stored_luck *luck)
{
    for (struct sh_unsynced *change = stored->unsynced; change; change = change->next)
        sh_stored_crash_change(stored, change->kind, change->offset, change->bytes, change->size,
                               luck);
    unsynced_free(stored);
}

void sh_stored_keep(struct sh_stored *stored)
{
    unsynced_free(stored);
    sh_image_copy(&stored->stable, &stored->seen);
}

void sh_stored_reset(struct sh_stored *stored)
{
    SH_ASSERT(!stored->unsynced);
    sh_image_copy(&stored->seen, &stored->stable);
}

void sh_stored_clear(struct sh_stored *stored)
{
    unsynced_free(stored);
    sh_image_clear(&stored->seen);
    sh_image_clear(&stored->stable);
}
