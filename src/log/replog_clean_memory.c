/* The cleaner's memory: taken when a zone is cleaned for the first time, and kept for those that come. Where one needs more than any before, it
 * grows: cleanings of the same zones take nothing from the heap.
 *
 * What is known of a zone's chunks lies in a mapping, of which the kernel takes the pages back, as zeros, when the cleaning ends. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "log/replog_clean_int.h"

/* Room for so many of that size, and more than was asked for, so that it does not grow often. Its content is lost. ENOMEM: the same. */
static enum shoal_err array_grow(void *array_inout, size_t size, size_t *room_inout, size_t room)
{
    void *old, *grown;
    memcpy(&old, array_inout, sizeof old);
    if (*room_inout >= room)
        return SHOAL_OK;
    room += room / 2;
    free(old);
    grown = malloc(room * size);
    memcpy(array_inout, &grown, sizeof grown);
    *room_inout = grown ? room : 0;
    return grown ? SHOAL_OK : SHOAL_ENOMEM;
}

static void mapping_free(struct sh_replog_clean_memory *memory)
{
    if (memory->currents)
        (void)munmap(memory->currents, memory->currents_bytes);
    memory->currents = NULL;
    memory->currents_bytes = 0;
}

static enum shoal_err mapping_grow(struct sh_replog_clean_memory *memory, size_t bytes)
{
    if (memory->currents_bytes >= bytes)
        return SHOAL_OK;
    mapping_free(memory);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return SHOAL_ENOMEM;
    memory->currents = at;
    memory->currents_bytes = bytes;
    return SHOAL_OK;
}

static enum shoal_err buffers_take(struct sh_replog_clean_memory *memory,
                                   const struct sh_replog *log)
{
    for (unsigned i = 0; i < 2; i++) {
        if (!memory->buffers[i])
            memory->buffers[i] = aligned_alloc(SH_BLOCK_BYTES, log->head.slot_bytes);
        if (!memory->buffers[i])
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

enum shoal_err sh_replog_clean_memory_take(const struct sh_replog_zone *zone, size_t currents_bytes,
                                           struct sh_replog_clean_memory **memory_out)
{
    struct sh_replog *log = zone->log;
    if (!log->clean_memory)
        log->clean_memory = calloc(1, sizeof *log->clean_memory);
    struct sh_replog_clean_memory *memory = log->clean_memory;
    if (!memory)
        return SHOAL_ENOMEM;
    /* Slots may come while the zone is cleaned, but those that are listed are there now. */
    size_t slots = (size_t)zone->slots.count + SH_REPLOG_CLEAN_SLOTS;
    enum shoal_err err = buffers_take(memory, log);
    if (!err)
        err = mapping_grow(memory, currents_bytes);
    if (!err)
        err = array_grow(&memory->slots, sizeof *memory->slots, &memory->slots_room, slots);
    if (!err)
        err = array_grow(&memory->gone, sizeof *memory->gone, &memory->gone_room, slots);
    if (!err)
        err = array_grow(&memory->listed, sizeof *memory->listed, &memory->listed_room, slots);
    if (!err)
        *memory_out = memory;
    return err;
}

struct sh_replog_kept_piece *sh_replog_clean_memory_pieces(struct sh_replog_clean_memory *memory,
                                                           size_t count)
{
    if (array_grow(&memory->pieces, sizeof *memory->pieces, &memory->pieces_room, count))
        return NULL;
    memset(memory->pieces, 0, count * sizeof *memory->pieces);
    return memory->pieces;
}

void sh_replog_clean_memory_settle(struct sh_replog_clean_memory *memory)
{
    if (memory->currents && madvise(memory->currents, memory->currents_bytes, MADV_DONTNEED))
        mapping_free(memory); /* it may not be zeros */
}

void sh_replog_clean_memory_free(struct sh_replog *log)
{
    struct sh_replog_clean_memory *memory = log->clean_memory;
    if (!memory)
        return;
    mapping_free(memory);
    for (unsigned i = 0; i < 2; i++)
        free(memory->buffers[i]);
    free(memory->slots);
    free(memory->gone);
    free(memory->listed);
    free(memory->pieces);
    free(memory);
    log->clean_memory = NULL;
}
