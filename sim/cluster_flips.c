/* Bits that go bad on a superpeer's disk while its process is away. The journal must notice, or the bit
 * must not matter: a superpeer that starts has all that it has ever acknowledged, and one that says
 * that its journal is damaged gets the bit back, as from a mirror, and is started again.
 *
 * A disk that fails or is full as well is left alone, since nobody could tell which of both was in the
 * way. Of the last batch the journal can't tell damage from a write that was torn, so that one is left
 * alone. */
#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "sim/cluster_world_int.h"
#include "sim/image.h"

#define PLACES_MAX 4096
#define NAME_BYTES 16
/* As journal_int.h describes the files. */
#define SLOTS 256
#define BLOCK 4096
#define BATCH_MAGIC UINT64_C(0x5441424c4e524a)
#define BATCH_HEAD_BYTES 32
#define BATCH_CRC_AT 28

/* Something that was written in one piece. */
struct place {
    unsigned slot;
    size_t at, bytes;
    uint64_t batch; /* 0: a segment's header */
};

struct places {
    struct place at[PLACES_MAX];
    size_t count;
    uint64_t last; /* the highest batch */
};

static void place_add(struct places *places, struct place place)
{
    if (places->count < PLACES_MAX)
        places->at[places->count++] = place;
    if (place.batch > places->last)
        places->last = place.batch;
}

/* The good batch at that place: bytes is 0 where there is none. */
static struct place batch_at(const struct sh_image *file, unsigned slot, size_t at)
{
    static const uint8_t zero[4];
    struct place place = {.slot = slot, .at = at};
    uint8_t head[BATCH_HEAD_BYTES];
    sh_image_read(file, at, head, sizeof head);
    size_t size = sh_load32(head + 24);
    if (sh_load64(head) != BATCH_MAGIC || size > file->size - at - sizeof head)
        return place;
    uint8_t *entries = malloc(size + 1);
    SH_ASSERT(entries);
    sh_image_read(file, at + sizeof head, entries, size);
    uint32_t crc = sh_crc32c(0, sh_bytes_make(head, BATCH_CRC_AT));
    crc = sh_crc32c(crc, sh_bytes_make(zero, sizeof zero));
    crc = sh_crc32c(crc, sh_bytes_make(entries, size));
    free(entries);
    place.batch = sh_load64(head + 16);
    if (crc == sh_load32(head + BATCH_CRC_AT))
        place.bytes = sizeof head + size;
    return place;
}

static void file_name(char name[NAME_BYTES], unsigned slot)
{
    (void)snprintf(name, NAME_BYTES, "journal.%03u", slot);
}

static void places_find(const struct cw_host *host, struct places *places)
{
    *places = (struct places){.count = 0};
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char name[NAME_BYTES];
        file_name(name, slot);
        const struct sh_image *file = sh_world_disk_file(host->world->sim, host->node, name);
        if (file && file->size >= BLOCK)
            place_add(places, (struct place){.slot = slot, .bytes = BLOCK});
        for (size_t at = BLOCK; file && at + BLOCK <= file->size; at += BLOCK) {
            struct place place = batch_at(file, slot, at);
            if (place.bytes)
                place_add(places, place);
        }
    }
}

static void flip(const struct cw_host *host)
{
    char name[NAME_BYTES];
    file_name(name, host->flip.slot);
    sh_world_disk_flip(host->world->sim, host->node, name, host->flip.bit);
}

void cw_flip(struct cw_host *host)
{
    /* Drawn beside the world's numbers. */
    uint64_t drawn = sh_mix64(host->world->config.seed + host->boots * 64 + host->index +
                              (host->kind == CW_PEER ? 32 : 0));
    struct places *places = malloc(sizeof *places);
    SH_ASSERT(places && !host->flip.is_there);
    places_find(host, places);
    bool is_well = sh_world_disk_trouble(host->world->sim, host->node) == SH_DISK_WELL;
    if (places->count && drawn % 2 && is_well) {
        const struct place *place = &places->at[drawn / 2 % places->count];
        host->flip.slot = place->slot;
        host->flip.bit = 8 * (uint64_t)place->at + sh_mix64(drawn) % (8 * (uint64_t)place->bytes);
        host->flip.is_there = !place->batch || place->batch < places->last;
    }
    free(places);
    if (!host->flip.is_there)
        return;
    cw_tell(host->world, host->node, "finds a bit flipped(file, bit)", host->flip.slot,
            host->flip.bit);
    flip(host);
}

bool cw_flip_mend(struct cw_host *host)
{
    if (!host->flip.is_there)
        return false;
    cw_tell(host->world, host->node, "has noticed()", 0, 0);
    flip(host);
    host->flip.is_there = false;
    host->world->result->flips++;
    return true;
}
