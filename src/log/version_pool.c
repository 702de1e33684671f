#include "log/version_pool.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/assert.h"

#define NONE UINT32_MAX

/* A unit. Of a free piece the first one says so, and is in the list of those of its order. */
struct unit {
    uint32_t next, previous;
    uint8_t order; /* of the free piece that begins there, and one more; 0: none does */
};

struct sh_version_pool {
    uint8_t *at;
    size_t unit_bytes;
    unsigned order; /* of the largest pieces */
    uint32_t count; /* units */
    /* Units from there on have never been used: they are in no list, and the kernel has their pages. */
    uint32_t fresh;
    uint64_t used, limit;                         /* units */
    uint32_t free[SH_VERSION_POOL_ORDER_MAX + 1]; /* the first of each list; NONE: it is empty */
    struct unit *units;
};

static void list_add(struct sh_version_pool *pool, uint32_t first, unsigned order)
{
    struct unit *unit = &pool->units[first];
    *unit =
        (struct unit){.next = pool->free[order], .previous = NONE, .order = (uint8_t)(order + 1)};
    if (unit->next != NONE)
        pool->units[unit->next].previous = first;
    pool->free[order] = first;
}

static void list_remove(struct sh_version_pool *pool, uint32_t first, unsigned order)
{
    struct unit *unit = &pool->units[first];
    SH_ASSERT(unit->order == order + 1);
    if (unit->previous == NONE)
        pool->free[order] = unit->next;
    else
        pool->units[unit->previous].next = unit->next;
    if (unit->next != NONE)
        pool->units[unit->next].previous = unit->previous;
    unit->order = 0;
}

static uint64_t bytes_of(const struct sh_version_pool *pool)
{
    return (uint64_t)pool->count * pool->unit_bytes;
}

enum shoal_err sh_version_pool_create(size_t unit_bytes, unsigned order, uint32_t count,
                                      struct sh_version_pool **pool_out)
{
    SH_ASSERT(unit_bytes && unit_bytes % 4 == 0 && order <= SH_VERSION_POOL_ORDER_MAX);
    SH_ASSERT(count && count <= NONE >> order);
    struct sh_version_pool *pool = calloc(1, sizeof *pool);
    if (!pool)
        return SHOAL_ENOMEM;
    uint32_t units = count << order;
    *pool = (struct sh_version_pool){.unit_bytes = unit_bytes,
                                     .order = order,
                                     .count = units,
                                     .limit = units,
                                     .units = calloc(units, sizeof *pool->units)};
    void *at = mmap(NULL, bytes_of(pool), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pool->at = at == MAP_FAILED ? NULL : at;
    if (!pool->at || !pool->units) {
        sh_version_pool_destroy(pool);
        return SHOAL_ENOMEM;
    }
    for (unsigned i = 0; i <= SH_VERSION_POOL_ORDER_MAX; i++)
        pool->free[i] = NONE;
    *pool_out = pool;
    return SHOAL_OK;
}

void sh_version_pool_destroy(struct sh_version_pool *pool)
{
    if (!pool)
        return;
    SH_ASSERT(!pool->used);
    if (pool->at)
        munmap(pool->at, bytes_of(pool));
    free(pool->units);
    free(pool);
}

void *sh_version_pool_take(struct sh_version_pool *pool, unsigned order)
{
    SH_ASSERT(order <= pool->order);
    unsigned from = order;
    while (from < pool->order && pool->free[from] == NONE)
        from++;
    uint32_t first = pool->free[from];
    if (pool->used + (UINT64_C(1) << order) > pool->limit)
        return NULL;
    if (first != NONE) {
        list_remove(pool, first, from);
    } else if (pool->fresh < pool->count) {
        first = pool->fresh;
        pool->fresh += UINT32_C(1) << pool->order;
    } else {
        return NULL;
    }
    while (from > order) { /* the upper halves stay free */
        from--;
        list_add(pool, first + (UINT32_C(1) << from), from);
    }
    pool->used += UINT64_C(1) << order;
    return pool->at + first * pool->unit_bytes;
}

void sh_version_pool_give(struct sh_version_pool *pool, void *piece, unsigned order)
{
    size_t offset = (size_t)((uint8_t *)piece - pool->at);
    uint32_t first = (uint32_t)(offset / pool->unit_bytes);
    SH_ASSERT(order <= pool->order && offset % pool->unit_bytes == 0);
    SH_ASSERT(first < pool->count && (first & ((UINT32_C(1) << order) - 1)) == 0);
    SH_ASSERT(pool->units[first].order == 0);
    pool->used -= UINT64_C(1) << order;
    for (; order < pool->order; order++) {
        uint32_t other = first ^ UINT32_C(1) << order;
        if (pool->units[other].order != order + 1)
            break;
        list_remove(pool, other, order);
        first &= ~(UINT32_C(1) << order);
    }
    list_add(pool, first, order);
}

void sh_version_pool_limit(struct sh_version_pool *pool, uint64_t bytes)
{
    uint64_t units = bytes / pool->unit_bytes;
    pool->limit = units < pool->count ? units : pool->count;
}

uint64_t sh_version_pool_bytes(const struct sh_version_pool *pool)
{
    return pool->limit * pool->unit_bytes;
}

uint64_t sh_version_pool_used(const struct sh_version_pool *pool)
{
    return pool->used * pool->unit_bytes;
}
