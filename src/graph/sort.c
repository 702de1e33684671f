#include "graph/sort_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define RUN_ENTRIES 4096

enum shoal_err sh_entries_add(struct sh_entries *entries, struct sh_entry entry)
{
    if (entries->count == entries->room) {
        size_t room = entries->room ? entries->room * 2 : 1024;
        struct sh_entry *grown = realloc(entries->at, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        entries->at = grown;
        entries->room = room;
    }
    entries->at[entries->count++] = entry;
    return SHOAL_OK;
}

void sh_entries_free(struct sh_entries *entries)
{
    free(entries->at);
    *entries = (struct sh_entries){0};
}

static bool not_after(const struct sh_entry *a, const struct sh_entry *b)
{
    if (a->own != b->own)
        return a->own < b->own;
    if (a->other != b->other)
        return a->other < b->other;
    return a->extra <= b->extra;
}

static int compare(const void *a, const void *b)
{
    return not_after(a, b) ? not_after(b, a) ? 0 : -1 : 1;
}

enum shoal_err sh_sorter_begin(struct sh_sorter *sorter, struct sh_entries *entries)
{
    *sorter = (struct sh_sorter){.entries = entries};
    size_t count = entries->count ? entries->count : 1;
    sorter->scratch = malloc(count * sizeof *sorter->scratch);
    return sorter->scratch ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_sorter_cancel(struct sh_sorter *sorter)
{
    free(sorter->scratch);
    *sorter = (struct sh_sorter){0};
}

/* Sorts the next short run in place, unless it is in order. */
static void make_run(struct sh_sorter *sorter)
{
    struct sh_entry *from = sorter->entries->at + sorter->at;
    size_t count = sorter->entries->count - sorter->at;
    if (count > RUN_ENTRIES)
        count = RUN_ENTRIES;
    for (size_t i = 1; i < count; i++) {
        if (!not_after(&from[i - 1], &from[i])) {
            qsort(from, count, sizeof *from, compare);
            break;
        }
    }
    sorter->at += count;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Merges on into scratch, at most budget entries of the current pair of runs. */
static void merge(struct sh_sorter *sorter, size_t budget)
{
    const struct sh_entry *from = sorter->entries->at;
    size_t count = sorter->entries->count;
    size_t low = sorter->at / (2 * sorter->width) * (2 * sorter->width);
    size_t middle = least(low + sorter->width, count);
    size_t high = least(low + 2 * sorter->width, count);
    if (sorter->at == low) {
        sorter->left = low;
        sorter->right = middle;
    }
    size_t end = least(sorter->at + budget, high);
    while (sorter->at < end) {
        bool left = sorter->left < middle &&
                    (sorter->right == high || not_after(&from[sorter->left], &from[sorter->right]));
        sorter->scratch[sorter->at++] = from[left ? sorter->left++ : sorter->right++];
    }
}

bool sh_sorter_run(struct sh_sorter *sorter, size_t budget)
{
    SH_ASSERT(sorter->scratch);
    struct sh_entries *entries = sorter->entries;
    for (size_t used = 0; used < budget;) {
        size_t before = sorter->at;
        if (sorter->width == 0)
            make_run(sorter);
        else if (sorter->at < entries->count)
            merge(sorter, budget - used);
        used += sorter->at - before;
        if (sorter->at < entries->count)
            continue;
        if (sorter->width > 0) { /* a pass is complete: what it wrote is the next one's input */
            struct sh_entry *swap = entries->at;
            entries->at = sorter->scratch;
            entries->room = entries->count;
            sorter->scratch = swap;
        }
        sorter->width = sorter->width ? sorter->width * 2 : RUN_ENTRIES;
        sorter->at = 0;
        if (sorter->width >= entries->count) {
            sh_sorter_cancel(sorter);
            return true;
        }
    }
    return false;
}
