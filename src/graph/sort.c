#include "graph/sort_int.h"

#include <string.h>

#include "base/assert.h"
#include "graph/pages_int.h"

#define DIGITS_IN_WORD 8u

static enum shoal_err entries_reserve(struct sh_entries *entries, size_t room)
{
    SH_ASSERT(room > entries->room);
    if (room > SIZE_MAX / sizeof *entries->at)
        return SHOAL_ENOMEM;
    struct sh_entry *grown =
        sh_pages_grow(entries->at, entries->room * sizeof *grown, room * sizeof *grown);
    if (!grown)
        return SHOAL_ENOMEM;
    entries->at = grown;
    entries->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_entries_add(struct sh_entries *entries, struct sh_entry entry)
{
    if (entries->count == entries->room) {
        enum shoal_err err = entries_reserve(entries, entries->room ? entries->room * 2 : 1024);
        if (err)
            return err;
    }
    entries->at[entries->count++] = entry;
    return SHOAL_OK;
}

void sh_entries_free(struct sh_entries *entries, struct sh_unmaps *unmaps)
{
    sh_pages_discard(entries->at, entries->room * sizeof *entries->at, unmaps);
    *entries = (struct sh_entries){0};
}

/* The words of an entry from the least significant on. */
static uint64_t word_of(const struct sh_entry *entry, unsigned words, unsigned number)
{
    if (words == 1 || number == 2)
        return entry->own;
    return number == 1 ? entry->other : entry->extra;
}

static bool not_after(const struct sh_entry *a, const struct sh_entry *b, unsigned words)
{
    if (a->own != b->own || words == 1)
        return a->own <= b->own;
    if (a->other != b->other)
        return a->other < b->other;
    return a->extra <= b->extra;
}

enum shoal_err sh_sorter_begin(struct sh_sorter *sorter, struct sh_entries *entries,
                               enum sh_sort_key key)
{
    SH_ASSERT(!sorter->entries);
    if (entries->count > sorter->scratch.room) {
        enum shoal_err err = entries_reserve(&sorter->scratch, entries->count);
        if (err)
            return err;
    }
    *sorter = (struct sh_sorter){.entries = entries,
                                 .scratch = sorter->scratch,
                                 .words = key == SH_SORT_BY_OWN ? 1 : 3,
                                 .sorted = true};
    return SHOAL_OK;
}

void sh_sorter_free(struct sh_sorter *sorter, struct sh_unmaps *unmaps)
{
    sh_entries_free(&sorter->scratch, unmaps);
    sorter->entries = NULL;
}

/* Notes whether the entries are in order and which of their bits differ at all. */
static void scan(struct sh_sorter *sorter, size_t end)
{
    const struct sh_entry *at = sorter->entries->at;
    for (size_t i = sorter->at; i < end; i++) {
        for (unsigned word = 0; word < sorter->words; word++)
            sorter->differ[word] |=
                word_of(&at[i], sorter->words, word) ^ word_of(&at[0], sorter->words, word);
        if (i > 0 && !not_after(&at[i - 1], &at[i], sorter->words))
            sorter->sorted = false;
    }
    sorter->at = end;
}

static uint8_t digit_of(const struct sh_sorter *sorter, const struct sh_entry *entry)
{
    uint64_t word = word_of(entry, sorter->words, sorter->digit / DIGITS_IN_WORD);
    return (uint8_t)(word >> (sorter->digit % DIGITS_IN_WORD * 8));
}

static void count(struct sh_sorter *sorter, size_t end)
{
    const struct sh_entry *at = sorter->entries->at;
    for (size_t i = sorter->at; i < end; i++)
        sorter->places[digit_of(sorter, &at[i])]++;
    sorter->at = end;
}

static void scatter(struct sh_sorter *sorter, size_t end)
{
    const struct sh_entry *at = sorter->entries->at;
    for (size_t i = sorter->at; i < end; i++)
        sorter->scratch.at[sorter->places[digit_of(sorter, &at[i])]++] = at[i];
    sorter->at = end;
}

/* Goes to the next digit in which entries differ; false: there is none. */
static bool next_digit(struct sh_sorter *sorter, unsigned from)
{
    for (unsigned digit = from; digit < sorter->words * DIGITS_IN_WORD; digit++) {
        uint64_t differ = sorter->differ[digit / DIGITS_IN_WORD];
        if ((uint8_t)(differ >> (digit % DIGITS_IN_WORD * 8)) == 0)
            continue;
        sorter->digit = digit;
        sorter->phase = SH_SORTER_COUNT;
        memset(sorter->places, 0, sizeof sorter->places);
        return true;
    }
    return false;
}

/* After a phase's last entry; true when all are in order. */
static bool phase_end(struct sh_sorter *sorter)
{
    struct sh_entries *entries = sorter->entries;
    sorter->at = 0;
    if (sorter->phase == SH_SORTER_SCAN)
        return sorter->sorted || !next_digit(sorter, 0);
    if (sorter->phase == SH_SORTER_COUNT) {
        size_t place = 0;
        for (unsigned i = 0; i < SH_SORTER_PLACES; i++) {
            size_t here = sorter->places[i];
            sorter->places[i] = place;
            place += here;
        }
        SH_ASSERT(place == entries->count);
        sorter->phase = SH_SORTER_SCATTER;
        return false;
    }
    struct sh_entries swap = {.at = entries->at, .room = entries->room};
    entries->at = sorter->scratch.at;
    entries->room = sorter->scratch.room;
    sorter->scratch = swap;
    SH_ASSERT(entries->room >= entries->count && swap.room >= entries->count);
    return !next_digit(sorter, sorter->digit + 1);
}

bool sh_sorter_run(struct sh_sorter *sorter, size_t budget)
{
    SH_ASSERT(sorter->entries && budget > 0);
    size_t all = sorter->entries->count;
    for (size_t left = budget; left > 0;) {
        size_t end = all - sorter->at < left ? all : sorter->at + left;
        left -= end - sorter->at;
        if (sorter->phase == SH_SORTER_SCAN)
            scan(sorter, end);
        else if (sorter->phase == SH_SORTER_COUNT)
            count(sorter, end);
        else
            scatter(sorter, end);
        if (sorter->at == all && phase_end(sorter)) {
            sorter->entries = NULL;
            return true;
        }
    }
    return false;
}
