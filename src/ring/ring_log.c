/* A shard's log: the last updates, some of which not all replicas have yet. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ring/ring_int.h"

uint64_t sh_ring_log_last(const struct sh_ring_shard *shard)
{
    return shard->base + shard->count;
}

const struct sh_ring_entry *sh_ring_log_at(const struct sh_ring_shard *shard, uint64_t sequence)
{
    SH_ASSERT(sequence > shard->base && sequence <= sh_ring_log_last(shard));
    return &shard->entries[sequence - shard->base - 1];
}

bool sh_ring_log_epoch(const struct sh_ring_shard *shard, uint64_t sequence, uint64_t *epoch_out)
{
    if (sequence < shard->base || sequence > sh_ring_log_last(shard))
        return false;
    *epoch_out =
        sequence == shard->base ? shard->base_epoch : sh_ring_log_at(shard, sequence)->epoch;
    return true;
}

enum shoal_err sh_ring_log_append(struct sh_ring_shard *shard, uint64_t epoch,
                                  struct sh_bytes bytes)
{
    if (shard->count == shard->room) {
        size_t room = shard->room ? 2 * shard->room : 16;
        struct sh_ring_entry *entries = realloc(shard->entries, room * sizeof *entries);
        if (!entries)
            return SHOAL_ENOMEM;
        shard->entries = entries;
        shard->room = room;
    }
    uint8_t *copy = NULL;
    if (bytes.size) {
        copy = malloc(bytes.size);
        if (!copy)
            return SHOAL_ENOMEM;
        memcpy(copy, bytes.at, bytes.size);
    }
    shard->entries[shard->count++] =
        (struct sh_ring_entry){.epoch = epoch, .size = (uint32_t)bytes.size, .bytes = copy};
    return SHOAL_OK;
}

void sh_ring_log_cut(struct sh_ring_shard *shard, uint64_t sequence)
{
    SH_ASSERT(sequence > shard->applied && sequence > shard->base);
    while (sh_ring_log_last(shard) >= sequence)
        free(shard->entries[--shard->count].bytes);
}

void sh_ring_log_reset(struct sh_ring_shard *shard, uint64_t base, uint64_t epoch)
{
    while (shard->count)
        free(shard->entries[--shard->count].bytes);
    free(shard->entries);
    shard->entries = NULL;
    shard->room = 0;
    shard->base = shard->applied = base;
    shard->base_epoch = epoch;
}

/* Drops the first entries, which are applied. */
static void shift(struct sh_ring_shard *shard, size_t count)
{
    SH_ASSERT(count && shard->base + count <= shard->applied);
    shard->base_epoch = shard->entries[count - 1].epoch;
    for (size_t i = 0; i < count; i++)
        free(shard->entries[i].bytes);
    shard->count -= count;
    memmove(shard->entries, shard->entries + count, shard->count * sizeof shard->entries[0]);
    shard->base += count;
}

enum shoal_err sh_ring_log_reserve(struct sh_ring *ring, unsigned number, struct sh_bytes command)
{
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    return fsm->reserve ? fsm->reserve(fsm->arg, number, command) : SHOAL_OK;
}

void sh_ring_image_drop(struct sh_ring_image *image)
{
    free(image->bytes);
    *image = (struct sh_ring_image){0};
}

void sh_ring_log_apply(struct sh_ring *ring, unsigned number, uint64_t until)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    uint64_t kept = ring->config.entries_kept;
    SH_ASSERT(shard->has && until <= sh_ring_log_last(shard));
    while (shard->applied < until) {
        const struct sh_ring_entry *entry = sh_ring_log_at(shard, shard->applied + 1);
        shard->applied++;
        fsm->apply(fsm->arg, number, entry->epoch, shard->applied,
                   sh_bytes_make(entry->bytes, entry->size));
    }
    if (shard->image.bytes && shard->applied > shard->image.sequence + SH_RING_IMAGE_AGE * kept)
        sh_ring_image_drop(&shard->image); /* another one, rather than more and more entries */
    uint64_t needed = shard->image.bytes ? shard->image.sequence : shard->applied;
    if (needed >= shard->base + 2 * kept)
        shift(shard, (size_t)(needed - kept - shard->base));
}
