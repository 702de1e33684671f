#include "log/newest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/hash.h"

#define GROUP_BITS 4
#define REGION_BITS 4 /* groups of a region */
#define BLOCK_BITS 14 /* groups of a block */
#define BLOCK_BYTES ((size_t)SH_NEWEST_GROUP * sizeof(uint64_t) << BLOCK_BITS)
#define GROUPS_MAX (UINT32_C(1) << 28)
#define NONE UINT32_MAX
/* Regions side by side have buckets side by side. */
#define NEIGHBOUR_BITS 3

/* A version as it is kept: bits 0 and 1 are the marks, 2-32 the number, 33-47 the epoch, 48 always set. */
#define NUMBER_SHIFT SH_NEWEST_MARK_BITS
#define EPOCH_SHIFT 33
#define KNOWN (UINT64_C(1) << 48)

_Static_assert(BLOCK_BYTES == (size_t)2 << 20, "a block is a huge page");
_Static_assert(SH_REPLOG_NUMBER_MAX >> (EPOCH_SHIFT - NUMBER_SHIFT) == 0, "a number has 31 bits");

struct region {
    uint64_t number;
    uint32_t next;                     /* of its bucket; NONE */
    uint32_t groups[1 << REGION_BITS]; /* NONE: there is none yet */
};

struct sh_newest {
    struct region *regions;
    uint32_t *heads;   /* of the buckets: regions */
    uint64_t *numbers; /* of the groups */
    uint64_t **blocks; /* of cells */
    uint32_t count;    /* groups */
    uint32_t regions_count;
    uint32_t buckets, half; /* half <= buckets < 2 * half, which is a power of two */
    size_t regions_room, heads_room, numbers_room, blocks_room;
    uint64_t last;        /* the number of the group that was asked for last, whose cells are */
    uint64_t *last_cells; /* these; NULL: none was */
};

/* Makes room for one more. */
static void *grown(void *array, size_t *room, size_t count, size_t each)
{
    if (count < *room)
        return array;
    void *larger = realloc(array, 2 * *room * each);
    if (larger)
        *room *= 2;
    return larger;
}

enum shoal_err sh_newest_create(struct sh_newest **newest_out)
{
    struct sh_newest *newest = calloc(1, sizeof *newest);
    if (!newest)
        return SHOAL_ENOMEM;
    newest->regions_room = newest->heads_room = newest->numbers_room = newest->blocks_room = 64;
    newest->regions = malloc(newest->regions_room * sizeof *newest->regions);
    newest->heads = malloc(newest->heads_room * sizeof *newest->heads);
    newest->numbers = malloc(newest->numbers_room * sizeof *newest->numbers);
    newest->blocks = malloc(newest->blocks_room * sizeof(uint64_t *));
    if (!newest->regions || !newest->heads || !newest->numbers || !newest->blocks) {
        sh_newest_destroy(newest);
        return SHOAL_ENOMEM;
    }
    newest->heads[0] = NONE;
    newest->buckets = newest->half = 1;
    *newest_out = newest;
    return SHOAL_OK;
}

void sh_newest_destroy(struct sh_newest *newest)
{
    if (!newest)
        return;
    for (uint32_t i = 0; i < newest->count; i += UINT32_C(1) << BLOCK_BITS)
        free(newest->blocks[i >> BLOCK_BITS]);
    free(newest->regions);
    free(newest->heads);
    free(newest->numbers);
    free(newest->blocks);
    free(newest);
}

uint64_t sh_newest_value(struct sh_replog_version version, bool is_removal)
{
    SH_ASSERT(version.number <= SH_REPLOG_NUMBER_MAX);
    return KNOWN | (uint64_t)sh_replog_epoch_in_eon(version.epoch) << EPOCH_SHIFT |
           (uint64_t)version.number << NUMBER_SHIFT | (is_removal ? SH_NEWEST_REMOVAL : 0);
}

/* --- Groups ------------------------------------------------------------------------------------ */

static uint64_t hash_of(uint64_t number)
{
    uint64_t low = number & ((1u << NEIGHBOUR_BITS) - 1);
    return sh_mix64(number >> NEIGHBOUR_BITS) << NEIGHBOUR_BITS | low;
}

static uint32_t bucket_of(const struct sh_newest *newest, uint64_t number)
{
    uint64_t hash = hash_of(number);
    uint32_t bucket = (uint32_t)(hash & (2 * newest->half - 1));
    return bucket < newest->buckets ? bucket : bucket & (newest->half - 1);
}

static uint32_t region_find(const struct sh_newest *newest, uint64_t number)
{
    uint32_t region = newest->heads[bucket_of(newest, number)];
    while (region != NONE && newest->regions[region].number != number)
        region = newest->regions[region].next;
    return region;
}

/* One more bucket, which takes its regions from the one that had them until now. */
static bool bucket_split(struct sh_newest *newest)
{
    uint32_t *heads =
        grown(newest->heads, &newest->heads_room, newest->buckets, sizeof *newest->heads);
    if (!heads)
        return false;
    newest->heads = heads;
    uint32_t old = newest->buckets - newest->half, at = heads[old];
    newest->buckets++;
    heads[old] = heads[newest->buckets - 1] = NONE;
    while (at != NONE) {
        struct region *region = &newest->regions[at];
        uint32_t next = region->next, *head = &heads[bucket_of(newest, region->number)];
        region->next = *head;
        *head = at;
        at = next;
    }
    if (newest->buckets == 2 * newest->half)
        newest->half *= 2;
    return true;
}

static bool region_make(struct sh_newest *newest, uint64_t number, uint32_t *region_out)
{
    struct region *regions = grown(newest->regions, &newest->regions_room, newest->regions_count,
                                   sizeof *newest->regions);
    if (!regions)
        return false;
    newest->regions = regions;
    if (!bucket_split(newest) || !bucket_split(newest))
        return false;
    uint32_t at = newest->regions_count++, *head = &newest->heads[bucket_of(newest, number)];
    regions[at].number = number;
    regions[at].next = *head;
    memset(regions[at].groups, 0xff, sizeof regions[at].groups); /* NONE */
    *head = at;
    *region_out = at;
    return true;
}

static uint64_t *cells_of(const struct sh_newest *newest, uint32_t group)
{
    return newest->blocks[group >> BLOCK_BITS] +
           (size_t)(group & ((UINT32_C(1) << BLOCK_BITS) - 1)) * SH_NEWEST_GROUP;
}

static bool block_make(struct sh_newest *newest)
{
    size_t block = newest->count >> BLOCK_BITS;
    if (newest->count & ((UINT32_C(1) << BLOCK_BITS) - 1))
        return true;
    void *blocks = grown(newest->blocks, &newest->blocks_room, block, sizeof *newest->blocks);
    if (!blocks)
        return false;
    newest->blocks = blocks;
    newest->blocks[block] = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES);
    /* Without huge pages it works as well, only slower; a small zone does without. */
    if (block > 0 && newest->blocks[block])
        (void)madvise(newest->blocks[block], BLOCK_BYTES, MADV_HUGEPAGE);
    return newest->blocks[block] != NULL;
}

/* A group that a region does not have yet. */
static bool group_make(struct sh_newest *newest, uint64_t number, uint32_t *group_out)
{
    uint64_t *numbers =
        grown(newest->numbers, &newest->numbers_room, newest->count, sizeof *newest->numbers);
    if (!numbers)
        return false;
    newest->numbers = numbers;
    if (newest->count == GROUPS_MAX || !block_make(newest))
        return false;
    uint32_t group = newest->count++;
    numbers[group] = number;
    memset(cells_of(newest, group), 0, SH_NEWEST_GROUP * sizeof(uint64_t));
    *group_out = group;
    return true;
}

uint64_t *sh_newest_cells(struct sh_newest *newest, uint64_t chunk)
{
    uint64_t number = chunk >> GROUP_BITS;
    if (newest->last_cells && newest->last == number)
        return newest->last_cells;
    uint32_t at = region_find(newest, number >> REGION_BITS);
    if (at == NONE && !region_make(newest, number >> REGION_BITS, &at))
        return NULL;
    uint32_t *group = &newest->regions[at].groups[number & ((1u << REGION_BITS) - 1)];
    if (*group == NONE && !group_make(newest, number, group))
        return NULL;
    newest->last = number;
    newest->last_cells = cells_of(newest, *group);
    return newest->last_cells;
}

/* Two passes, as the second one needs the lines that the first one asks for; rows of chunks have a group in common. */
void sh_newest_prefetch(const struct sh_newest *newest, const uint64_t *chunks, unsigned count)
{
    uint32_t regions[SH_NEWEST_AHEAD];
    unsigned places[SH_NEWEST_AHEAD], found = 0;
    SH_ASSERT(count <= SH_NEWEST_AHEAD);
    for (unsigned i = 0; i < count; i++) {
        uint64_t number = chunks[i] >> GROUP_BITS;
        if (i > 0 && number == chunks[i - 1] >> GROUP_BITS)
            continue;
        uint32_t region = newest->heads[bucket_of(newest, number >> REGION_BITS)];
        if (region == NONE)
            continue;
        places[found] = number & ((1u << REGION_BITS) - 1);
        __builtin_prefetch(&newest->regions[region].number);
        __builtin_prefetch(&newest->regions[region].groups[places[found]]);
        regions[found++] = region;
    }
    for (unsigned i = 0; i < found; i++) {
        uint32_t group = newest->regions[regions[i]].groups[places[i]];
        if (group == NONE)
            continue;
        __builtin_prefetch(cells_of(newest, group), 1);
        __builtin_prefetch(cells_of(newest, group) + SH_NEWEST_GROUP / 2, 1);
    }
}

uint32_t sh_newest_groups(const struct sh_newest *newest)
{
    return newest->count;
}

uint64_t *sh_newest_group(const struct sh_newest *newest, uint32_t group, uint64_t *first_out)
{
    SH_ASSERT(group < newest->count);
    *first_out = newest->numbers[group] << GROUP_BITS;
    return cells_of(newest, group);
}
