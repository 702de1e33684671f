/* Entries of a log in memory. */
#include "journal/entries.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define ROOM_MIN 16

uint64_t sh_entries_last(const struct sh_entries *entries)
{
    return entries->base + entries->count;
}

struct sh_entry *sh_entries_at(const struct sh_entries *entries, uint64_t index)
{
    SH_ASSERT(index > entries->base && index <= sh_entries_last(entries));
    return &entries->at[entries->first + (size_t)(index - entries->base - 1)];
}

bool sh_entries_term(const struct sh_entries *entries, uint64_t index, uint64_t *term_out)
{
    if (index < entries->base || index > sh_entries_last(entries))
        return false;
    *term_out = index == entries->base ? entries->base_term : sh_entries_at(entries, index)->term;
    return true;
}

/* Makes room for one more: over what was dropped, if that is as much as is there. */
static enum shoal_err room_make(struct sh_entries *entries)
{
    if (entries->first + entries->count < entries->room)
        return SHOAL_OK;
    if (entries->first && entries->first >= entries->count) {
        memmove(entries->at, entries->at + entries->first, entries->count * sizeof entries->at[0]);
        entries->first = 0;
        return SHOAL_OK;
    }
    size_t room = entries->room ? 2 * entries->room : ROOM_MIN;
    struct sh_entry *at = realloc(entries->at, room * sizeof *at);
    if (!at)
        return SHOAL_ENOMEM;
    entries->at = at;
    entries->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_entries_append(struct sh_entries *entries, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    SH_ASSERT(bytes.size <= UINT32_MAX);
    enum shoal_err err = room_make(entries);
    if (err)
        return err;
    struct sh_entry entry = {.term = term, .kind = kind, .size = (uint32_t)bytes.size};
    if (bytes.size) {
        entry.bytes = malloc(bytes.size);
        if (!entry.bytes)
            return SHOAL_ENOMEM;
        memcpy(entry.bytes, bytes.at, bytes.size);
    }
    entries->at[entries->first + entries->count++] = entry;
    return SHOAL_OK;
}

void sh_entries_cut(struct sh_entries *entries, uint64_t index)
{
    SH_ASSERT(index > entries->base);
    while (sh_entries_last(entries) >= index)
        free(entries->at[entries->first + --entries->count].bytes);
}

void sh_entries_shift(struct sh_entries *entries, uint64_t index)
{
    SH_ASSERT(index >= entries->base && index <= sh_entries_last(entries));
    if (index == entries->base)
        return;
    uint64_t term = sh_entries_at(entries, index)->term;
    while (entries->base < index) {
        free(entries->at[entries->first++].bytes);
        entries->count--;
        entries->base++;
    }
    entries->base_term = term;
}

void sh_entries_reset(struct sh_entries *entries, uint64_t base, uint64_t base_term)
{
    while (entries->count)
        free(entries->at[entries->first + --entries->count].bytes);
    free(entries->at);
    *entries = (struct sh_entries){.base = base, .base_term = base_term};
}
