#include "log/currents.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"

/* A version as it is stored: bit 0 removal, 1 kept, 2-33 number, 34-49 epoch, 50 always set, so 0 is none. The eon's bit is turned
 * over where the current epochs do not have it: so the newer one of two versions is the higher value. */
#define VALUE_REMOVAL 1
#define VALUE_KEPT 2
#define VALUE_NUMBER_SHIFT 2
#define VALUE_EPOCH_SHIFT 34
#define VALUE_KNOWN (UINT64_C(1) << 50)

/* So many consecutive chunks begin side by side in the table, as in versions.c. */
#define NEIGHBOURS 4

struct slot {
    uint64_t chunk, value; /* value 0: free */
};

/* The slots of the rest are told in blocks, each sorted by itself, so that no step sorts all of them. */
#define BLOCK SH_CURRENTS_PIECE

_Static_assert(BLOCK <= UINT16_MAX, "a place in a block has 16 bits");

struct sh_currents {
    struct sh_currents_config config;
    uint16_t eon_turned; /* SH_REPLOG_EON where it is turned over, or 0 */
    uint64_t known;
    uint64_t *array;
    struct slot *slots;
    size_t room, used; /* slots; room > rest_max, so one is always free */
};

/* --- Creation --------------------------------------------------------------------------------- */

/* Three quarters of the slots, and a few more so that a group of neighbours has room. */
static size_t room_of(const struct sh_currents_config *config)
{
    return (size_t)(config->rest_max + config->rest_max / 3 + NEIGHBOURS);
}

size_t sh_currents_bytes(const struct sh_currents_config *config)
{
    SH_ASSERT(config->count <= SH_CURRENTS_CHUNKS_MAX);
    SH_ASSERT(config->rest_max <= SH_CURRENTS_CHUNKS_MAX);
    return sizeof(struct sh_currents) + (size_t)config->count * sizeof(uint64_t) +
           room_of(config) * sizeof(struct slot);
}

struct sh_currents *sh_currents_make(const struct sh_currents_config *config, void *memory)
{
    SH_ASSERT(config->eon == 0 || config->eon == SH_REPLOG_EON);
    SH_ASSERT(!config->count || config->base <= UINT64_MAX - (config->count - 1));
    struct sh_currents *currents = memory;
    currents->config = *config;
    currents->eon_turned = config->eon ^ SH_REPLOG_EON;
    currents->room = room_of(config);
    currents->slots = (struct slot *)(currents + 1);
    currents->array = (uint64_t *)(currents->slots + currents->room);
    return currents;
}

enum shoal_err sh_currents_create(const struct sh_currents_config *config,
                                  struct sh_currents **currents_out)
{
    void *memory = calloc(1, sh_currents_bytes(config));
    if (!memory)
        return SHOAL_ENOMEM;
    *currents_out = sh_currents_make(config, memory);
    return SHOAL_OK;
}

void sh_currents_destroy(struct sh_currents *currents)
{
    free(currents);
}

/* --- One chunk -------------------------------------------------------------------------------- */

static uint64_t value_of(const struct sh_currents *currents, struct sh_replog_version version,
                         bool is_removal)
{
    uint64_t epoch = version.epoch ^ currents->eon_turned;
    return VALUE_KNOWN | epoch << VALUE_EPOCH_SHIFT |
           (uint64_t)version.number << VALUE_NUMBER_SHIFT | (is_removal ? VALUE_REMOVAL : 0);
}

static struct sh_replog_version version_of(const struct sh_currents *currents, uint64_t value)
{
    uint16_t epoch = (uint16_t)(value >> VALUE_EPOCH_SHIFT);
    return (struct sh_replog_version){.epoch = (uint16_t)(epoch ^ currents->eon_turned),
                                      .number = (uint32_t)(value >> VALUE_NUMBER_SHIFT)};
}

/* Where none is known the value is 0, and any version is newer. */
static bool is_newer(uint64_t value, uint64_t than)
{
    return value >> VALUE_NUMBER_SHIFT > than >> VALUE_NUMBER_SHIFT;
}

static bool is_in_array(const struct sh_currents *currents, uint64_t chunk)
{
    return chunk - currents->config.base < currents->config.count;
}

static size_t home_of(const struct sh_currents *currents, uint64_t chunk)
{
    uint64_t hash = sh_mix64(chunk / NEIGHBOURS) >> 32;
    size_t at = (size_t)(hash * currents->room >> 32) + chunk % NEIGHBOURS;
    return at < currents->room ? at : at - currents->room;
}

static size_t slot_behind(const struct sh_currents *currents, size_t at)
{
    return at + 1 < currents->room ? at + 1 : 0;
}

/* The chunk's slot, or the free one where it belongs. */
static size_t slot_find(const struct sh_currents *currents, uint64_t chunk)
{
    size_t at = home_of(currents, chunk);
    while (currents->slots[at].value && currents->slots[at].chunk != chunk)
        at = slot_behind(currents, at);
    return at;
}

static uint64_t value_get(const struct sh_currents *currents, uint64_t chunk)
{
    if (is_in_array(currents, chunk))
        return currents->array[chunk - currents->config.base];
    return currents->slots[slot_find(currents, chunk)].value;
}

bool sh_currents_get(const struct sh_currents *currents, uint64_t chunk,
                     struct sh_replog_version *version_out, bool *is_removal_out)
{
    uint64_t value = value_get(currents, chunk);
    if (!value)
        return false;
    *version_out = version_of(currents, value);
    *is_removal_out = value & VALUE_REMOVAL;
    return true;
}

bool sh_currents_is_current(const struct sh_currents *currents, uint64_t chunk,
                            struct sh_replog_version version)
{
    return value_get(currents, chunk) >> VALUE_NUMBER_SHIFT ==
           value_of(currents, version, false) >> VALUE_NUMBER_SHIFT;
}

void sh_currents_keep(struct sh_currents *currents, uint64_t chunk,
                      struct sh_replog_version version)
{
    if (!sh_currents_is_current(currents, chunk, version))
        return;
    if (is_in_array(currents, chunk))
        currents->array[chunk - currents->config.base] |= VALUE_KEPT;
    else
        currents->slots[slot_find(currents, chunk)].value |= VALUE_KEPT;
}

bool sh_currents_is_kept(const struct sh_currents *currents, uint64_t chunk,
                         struct sh_replog_version version)
{
    return sh_currents_is_current(currents, chunk, version) &&
           value_get(currents, chunk) & VALUE_KEPT;
}

uint64_t sh_currents_count(const struct sh_currents *currents)
{
    return currents->known;
}

/* --- Changes ---------------------------------------------------------------------------------- */

/* The last chunk of a run, up to which all chunks are in the array, or all in the rest, as the first one is. */
static uint64_t part_last(const struct sh_currents *currents, uint64_t first, uint64_t last)
{
    uint64_t base = currents->config.base, count = currents->config.count, end = last;
    if (is_in_array(currents, first))
        end = base + (count - 1);
    else if (count && first < base)
        end = base - 1;
    return end < last ? end : last;
}

/* Takes the slots that a run's chunks need off those that are left; false: too few are. A run of more chunks than the rest
 * may have is not walked. */
static bool rest_has_room(const struct sh_currents *currents, uint64_t first, uint64_t last,
                          size_t *left)
{
    if (last - first >= currents->config.rest_max)
        return false;
    for (uint64_t chunk = first;; chunk++) {
        if (!currents->slots[slot_find(currents, chunk)].value) {
            if (!*left)
                return false;
            --*left;
        }
        if (chunk == last)
            return true;
    }
}

static bool has_room(const struct sh_currents *currents, uint64_t first, uint64_t last)
{
    size_t left = (size_t)currents->config.rest_max - currents->used;
    for (uint64_t at = first, end;; at = end + 1) {
        end = part_last(currents, at, last);
        if (!is_in_array(currents, at) && !rest_has_room(currents, at, end, &left))
            return false;
        if (end == last)
            return true;
    }
}

static void array_put(struct sh_currents *currents, uint64_t first, uint64_t last, uint64_t value)
{
    uint64_t *at = currents->array + (first - currents->config.base);
    for (uint64_t left = last - first + 1; left; left--, at++) {
        currents->known += !*at;
        if (is_newer(value, *at))
            *at = value;
    }
}

static void rest_put(struct sh_currents *currents, uint64_t first, uint64_t last, uint64_t value)
{
    for (uint64_t chunk = first;; chunk++) {
        struct slot *slot = &currents->slots[slot_find(currents, chunk)];
        currents->known += !slot->value;
        currents->used += !slot->value;
        if (is_newer(value, slot->value))
            *slot = (struct slot){chunk, value};
        if (chunk == last)
            return;
    }
}

enum shoal_err sh_currents_put(struct sh_currents *currents, uint64_t first, uint64_t last,
                               struct sh_replog_version version, bool is_removal)
{
    SH_ASSERT(first <= last);
    if (!has_room(currents, first, last))
        return SHOAL_EFULL;
    uint64_t value = value_of(currents, version, is_removal);
    for (uint64_t at = first, end;; at = end + 1) {
        end = part_last(currents, at, last);
        if (is_in_array(currents, at))
            array_put(currents, at, end, value);
        else
            rest_put(currents, at, end, value);
        if (end == last)
            break;
    }
    SH_ASSERT(currents->used <= currents->config.rest_max);
    return SHOAL_OK;
}

/* --- Reading all ------------------------------------------------------------------------------ */

typedef void each_fn(void *arg, uint64_t first, uint64_t last, struct sh_replog_version version,
                     bool is_removal);

static void tell(const struct sh_currents *currents, uint64_t first, uint64_t last, uint64_t value,
                 each_fn *each, void *arg)
{
    each(arg, first, last, version_of(currents, value), value & VALUE_REMOVAL);
}

/* Shell's sort, with the gaps of Ciura (2001): in place, and some 15,000 comparisons for a block. */
static void sort(const struct slot *slots, uint16_t *order, size_t count)
{
    static const size_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t k = 0; k < sizeof gaps / sizeof gaps[0]; k++) {
        size_t gap = gaps[k];
        for (size_t i = gap; i < count; i++) {
            uint16_t moved = order[i];
            size_t at = i;
            for (; at >= gap && slots[order[at - gap]].chunk > slots[moved].chunk; at -= gap)
                order[at] = order[at - gap];
            order[at] = moved;
        }
    }
}

/* Ascending, as the version log wants it (replog_compact.c). */
static void block_tell(const struct sh_currents *currents, size_t from, each_fn *each, void *arg)
{
    uint16_t order[BLOCK];
    size_t count = 0;
    size_t places = currents->room - from < BLOCK ? currents->room - from : BLOCK;
    const struct slot *slots = currents->slots + from;
    for (size_t at = 0; at < places; at++)
        if (slots[at].value)
            order[count++] = (uint16_t)at;
    sort(slots, order, count);
    for (size_t i = 0; i < count; i++) {
        const struct slot *slot = &slots[order[i]];
        tell(currents, slot->chunk, slot->chunk, slot->value, each, arg);
    }
}

/* The chunks of the array from a place on, so many at the most, that have one version or none; returns how many. */
static size_t array_tell(const struct sh_currents *currents, uint64_t place, size_t most,
                         each_fn *each, void *arg)
{
    const uint64_t *at = currents->array + place;
    uint64_t first = currents->config.base + place;
    uint64_t left = currents->config.count - place;
    size_t count = 1;
    while (count < most && count < left && ((at[count] ^ at[0]) & ~(uint64_t)VALUE_KEPT) == 0)
        count++;
    if (at[0])
        tell(currents, first, first + (count - 1), at[0], each, arg);
    return count;
}

bool sh_currents_walk(const struct sh_currents *currents, size_t piece, each_fn *each, void *arg)
{
    size_t pieces = (size_t)((currents->config.count + BLOCK - 1) / BLOCK);
    if (piece < pieces) {
        uint64_t at = (uint64_t)piece * BLOCK;
        uint64_t left = currents->config.count - at, end = at + (left < BLOCK ? left : BLOCK);
        while (at < end)
            at += array_tell(currents, at, (size_t)(end - at), each, arg);
        return true;
    }
    size_t from = (piece - pieces) * BLOCK;
    SH_ASSERT(from < currents->room);
    block_tell(currents, from, each, arg);
    return currents->room - from > BLOCK;
}
