/* A sector's log: the last updates, some of which not all holders have yet. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/overlay_int.h"

uint64_t sh_overlay_log_last(const struct sh_overlay_sector *sector)
{
    return sector->base + sector->count;
}

const struct sh_overlay_entry *sh_overlay_log_at(const struct sh_overlay_sector *sector,
                                                 uint64_t sequence)
{
    SH_ASSERT(sequence > sector->base && sequence <= sh_overlay_log_last(sector));
    return &sector->entries[sequence - sector->base - 1];
}

bool sh_overlay_log_epoch(const struct sh_overlay_sector *sector, uint64_t sequence,
                          uint64_t *epoch_out)
{
    if (sequence < sector->base || sequence > sh_overlay_log_last(sector))
        return false;
    *epoch_out =
        sequence == sector->base ? sector->base_epoch : sh_overlay_log_at(sector, sequence)->epoch;
    return true;
}

enum shoal_err sh_overlay_log_append(struct sh_overlay_sector *sector, uint64_t epoch,
                                     struct sh_bytes bytes)
{
    if (sector->count == sector->room) {
        size_t room = sector->room ? 2 * sector->room : 16;
        struct sh_overlay_entry *entries = realloc(sector->entries, room * sizeof *entries);
        if (!entries)
            return SHOAL_ENOMEM;
        sector->entries = entries;
        sector->room = room;
    }
    uint8_t *copy = NULL;
    if (bytes.size) {
        copy = malloc(bytes.size);
        if (!copy)
            return SHOAL_ENOMEM;
        memcpy(copy, bytes.at, bytes.size);
    }
    sector->entries[sector->count++] =
        (struct sh_overlay_entry){.epoch = epoch, .size = (uint32_t)bytes.size, .bytes = copy};
    return SHOAL_OK;
}

void sh_overlay_log_cut(struct sh_overlay_sector *sector, uint64_t sequence)
{
    SH_ASSERT(sequence > sector->applied && sequence > sector->base);
    while (sh_overlay_log_last(sector) >= sequence)
        free(sector->entries[--sector->count].bytes);
}

void sh_overlay_log_reset(struct sh_overlay_sector *sector, uint64_t base, uint64_t epoch)
{
    while (sector->count)
        free(sector->entries[--sector->count].bytes);
    free(sector->entries);
    sector->entries = NULL;
    sector->room = 0;
    sector->base = sector->applied = base;
    sector->base_epoch = epoch;
}

/* Drops the first entries, which are applied. */
static void shift(struct sh_overlay_sector *sector, size_t count)
{
    SH_ASSERT(count && sector->base + count <= sector->applied);
    sector->base_epoch = sector->entries[count - 1].epoch;
    for (size_t i = 0; i < count; i++)
        free(sector->entries[i].bytes);
    sector->count -= count;
    memmove(sector->entries, sector->entries + count, sector->count * sizeof sector->entries[0]);
    sector->base += count;
}

enum shoal_err sh_overlay_log_reserve(struct sh_overlay *ring, unsigned number,
                                      struct sh_bytes command)
{
    const struct sh_overlay_fsm *fsm = &ring->config.fsm;
    return fsm->reserve ? fsm->reserve(fsm->arg, number, command) : SHOAL_OK;
}

void sh_overlay_image_drop(struct sh_overlay_image *image)
{
    free(image->bytes);
    *image = (struct sh_overlay_image){0};
}

void sh_overlay_log_apply(struct sh_overlay *ring, unsigned number, uint64_t until)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    const struct sh_overlay_fsm *fsm = &ring->config.fsm;
    uint64_t kept = ring->config.entries_kept;
    SH_ASSERT(sector->has && until <= sh_overlay_log_last(sector));
    while (sector->applied < until) {
        const struct sh_overlay_entry *entry = sh_overlay_log_at(sector, sector->applied + 1);
        sector->applied++;
        fsm->apply(fsm->arg, number, entry->epoch, sector->applied,
                   sh_bytes_make(entry->bytes, entry->size));
    }
    if (sector->image.bytes &&
        sector->applied > sector->image.sequence + SH_OVERLAY_IMAGE_AGE * kept)
        sh_overlay_image_drop(&sector->image); /* another one, rather than more and more entries */
    uint64_t needed = sector->image.bytes ? sector->image.sequence : sector->applied;
    if (needed >= sector->base + 2 * kept)
        shift(sector, (size_t)(needed - kept - sector->base));
}
