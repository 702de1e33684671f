#include "base/chunk_index.h"

#include <stddef.h>

#include "base/assert.h"
#include "base/hash.h"

static uint64_t list_of(uint64_t group)
{
    return sh_mix64(group) % SH_CHUNK_INDEX_LISTS;
}

void sh_chunk_link(struct sh_chunk_index *index, struct sh_chunk_link *link, uint64_t chunk)
{
    SH_ASSERT(!link->from);
    struct sh_chunk_link **list = &index->lists[list_of(chunk >> SH_CHUNK_INDEX_GROUP_BITS)];
    *link = (struct sh_chunk_link){.chunk = chunk, .next = *list, .from = list};
    if (link->next)
        link->next->from = &link->next;
    *list = link;
}

void sh_chunk_unlink(struct sh_chunk_link *link)
{
    if (!link->from)
        return;
    *link->from = link->next;
    if (link->next)
        link->next->from = link->from;
    link->from = NULL;
}

struct span {
    uint64_t first, last;
    void (*each)(void *arg, const struct sh_chunk_link *link);
    void *arg;
};

static void walk(const struct sh_chunk_link *link, const struct span *span)
{
    for (; link; link = link->next) {
        if (link->chunk >= span->first && link->chunk <= span->last)
            span->each(span->arg, link);
    }
}

void sh_chunk_index_each(const struct sh_chunk_index *index, uint64_t first, uint64_t last,
                         void (*each)(void *arg, const struct sh_chunk_link *link), void *arg)
{
    uint64_t group = first >> SH_CHUNK_INDEX_GROUP_BITS, end = last >> SH_CHUNK_INDEX_GROUP_BITS;
    struct span span = {first, last, each, arg};
    if (first > last)
        return;
    if (end - group >= SH_CHUNK_INDEX_LISTS) {
        for (unsigned i = 0; i < SH_CHUNK_INDEX_LISTS; i++)
            walk(index->lists[i], &span);
        return;
    }
    /* Two groups may share a list: each takes its own. */
    for (; group <= end; group++) {
        uint64_t from = group << SH_CHUNK_INDEX_GROUP_BITS,
                 to = from + (1u << SH_CHUNK_INDEX_GROUP_BITS) - 1;
        span.first = from > first ? from : first;
        span.last = to < last ? to : last;
        walk(index->lists[list_of(group)], &span);
    }
}
