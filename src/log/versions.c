#include "log/versions.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define SLOTS_MIN 16
#define POOL_SLOTS 128u /* of the smallest one of the pool: a larger one is needed then */
#define RUNS_MAX 64
#define RESERVED_MAX 4 /* a table of SLOTS_MIN has so many free when it is empty */
#define MOVED_EACH 8u  /* slots of the smaller table, for each that is taken of the larger one */
#define POOL_SHORT_PART                                                                            \
    2u /* of the pool is in use: who ends an epoch gives back what was taken of it */
/* So many consecutive chunks begin side by side in the table: a batch of ten touches four cache lines, not ten. */
#define NEIGHBOURS 4

/* 12 bytes. */
struct slot {
    uint32_t chunk[2]; /* low, high; both 0: free */
    uint32_t value;    /* number << 1 | removal */
};

struct run {
    uint64_t first, last;
};

/* Where the table has grown, `old` is the one before, of which the slots from old_at on have not been moved yet. A chunk is in one of them: in
 * `slots` if it has been moved, or was first written since; where it is not found there, in `old`. A slot that has been moved stays in `old`, so that
 * others are found behind it, and is never looked at. */
struct sh_versions {
    struct sh_versions_config config;
    struct slot *slots;
    size_t room, used; /* used: of both */
    struct slot *old;  /* NULL: all has been moved */
    size_t old_room, old_at;
    uint64_t count;
    struct run runs[RUNS_MAX]; /* ascending, disjoint */
    unsigned runs_count;
    unsigned open;   /* the run that grew last; runs_count: none */
    bool is_read;    /* slots have been moved */
    uint64_t single; /* what took a slot last, if with number 0; else 0 */
    struct slot first[SH_VERSIONS_OWN];
};

static uint64_t chunk_of(const struct slot *slot)
{
    return (uint64_t)slot->chunk[1] << 32 | slot->chunk[0];
}

static void slot_set(struct slot *slot, uint64_t chunk, uint32_t value)
{
    slot->chunk[0] = (uint32_t)chunk;
    slot->chunk[1] = (uint32_t)(chunk >> 32);
    slot->value = value;
}

/* The chunk's slot, or the free one where it belongs. */
static struct slot *slot_find(struct slot *slots, size_t room, uint64_t chunk)
{
    size_t at = (size_t)(sh_mix64(chunk / NEIGHBOURS) * NEIGHBOURS + chunk % NEIGHBOURS);
    for (;; at++) {
        struct slot *slot = &slots[at & (room - 1)];
        uint64_t there = chunk_of(slot);
        if (there == chunk || !there)
            return slot;
    }
}

/* --- Tables ------------------------------------------------------------------------------------ */

enum shoal_err sh_versions_pool_create(size_t slots_max, uint64_t bytes,
                                       struct sh_version_pool **pool_out)
{
    size_t unit = POOL_SLOTS * sizeof(struct slot);
    unsigned order = 0;
    while ((size_t)POOL_SLOTS << order < slots_max)
        order++;
    uint64_t count = bytes / (unit << order), most = UINT32_MAX >> order;
    count = count < 1 ? 1 : count < most ? count : most;
    return sh_version_pool_create(unit, order, (uint32_t)count, pool_out);
}

size_t sh_versions_table_bytes(size_t slots)
{
    return slots * sizeof(struct slot);
}

static unsigned order_of(size_t room)
{
    return (unsigned)__builtin_ctzll(room) - (unsigned)__builtin_ctz(POOL_SLOTS);
}

static void table_give(struct sh_versions *versions, struct slot *slots, size_t room)
{
    if (slots && slots != versions->first)
        sh_version_pool_give(versions->config.pool, slots, order_of(room));
}

static size_t first_room(const struct sh_versions *versions)
{
    return versions->config.slots_max < SH_VERSIONS_OWN ? versions->config.slots_max
                                                        : SH_VERSIONS_OWN;
}

/* Moves so many slots of the smaller table to the larger one. */
static void slots_move(struct sh_versions *versions, size_t most)
{
    size_t left = versions->old_room - versions->old_at;
    size_t end = versions->old_at + (most < left ? most : left);
    for (; versions->old_at < end; versions->old_at++) {
        const struct slot *slot = &versions->old[versions->old_at];
        uint64_t chunk = chunk_of(slot);
        if (chunk)
            slot_set(slot_find(versions->slots, versions->room, chunk), chunk, slot->value);
    }
    if (end < versions->old_room)
        return;
    table_give(versions, versions->old, versions->old_room);
    versions->old = NULL;
    versions->old_room = versions->old_at = 0;
}

/* The table that is full becomes the old one. It has been moved long before the larger one is full: so many are moved for each slot that is
 * taken that all are when a quarter of the room that was gained is in use. EFULL: the pool has none that is larger. */
static enum shoal_err grow(struct sh_versions *versions)
{
    size_t room = 2 * versions->room;
    SH_ASSERT(!versions->old);
    struct slot *slots = sh_version_pool_take(versions->config.pool, order_of(room));
    if (!slots)
        return SHOAL_EFULL;
    memset(slots, 0, room * sizeof *slots);
    versions->old = versions->slots;
    versions->old_room = versions->room;
    versions->old_at = 0;
    versions->slots = slots;
    versions->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_versions_create(const struct sh_versions_config *config,
                                  struct sh_versions **versions_out)
{
    _Static_assert(2 * SH_VERSIONS_OWN >= POOL_SLOTS, "the first table grows into one of the pool");
    SH_ASSERT(config->slots_max >= SLOTS_MIN && !(config->slots_max & (config->slots_max - 1)));
    SH_ASSERT(config->number_max <= SH_REPLOG_NUMBER_MAX);
    struct sh_versions *versions = calloc(1, sizeof *versions);
    if (!versions)
        return SHOAL_ENOMEM;
    versions->config = *config;
    versions->slots = versions->first;
    versions->room = first_room(versions);
    *versions_out = versions;
    return SHOAL_OK;
}

void sh_versions_destroy(struct sh_versions *versions)
{
    if (!versions)
        return;
    table_give(versions, versions->slots, versions->room);
    table_give(versions, versions->old, versions->old_room);
    free(versions);
}

/* The chunk's slot, in either table; or the free one of the larger table where it belongs. */
static struct slot *slot_of(const struct sh_versions *versions, uint64_t chunk)
{
    struct slot *slot = slot_find(versions->slots, versions->room, chunk);
    if (chunk_of(slot) || !versions->old)
        return slot;
    struct slot *old = slot_find(versions->old, versions->old_room, chunk);
    return chunk_of(old) ? old : slot;
}

/* --- Numbers ----------------------------------------------------------------------------------- */

/* How many runs begin at a chunk or before it. */
static unsigned runs_up_to(const struct sh_versions *versions, uint64_t chunk)
{
    unsigned low = 0, high = versions->runs_count;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (versions->runs[middle].first <= chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_in_run(const struct sh_versions *versions, uint64_t chunk)
{
    unsigned below = runs_up_to(versions, chunk);
    return below && versions->runs[below - 1].last >= chunk;
}

/* The first write in this epoch of a chunk that comes behind the one written before it: into a run. */
static bool run_take(struct sh_versions *versions, uint64_t chunk)
{
    if (versions->open < versions->runs_count && versions->runs[versions->open].last + 1 == chunk) {
        versions->runs[versions->open].last = chunk;
        return true;
    }
    if (!versions->single || versions->single + 1 != chunk || versions->runs_count == RUNS_MAX)
        return false;
    unsigned at = runs_up_to(versions, chunk);
    memmove(&versions->runs[at + 1], &versions->runs[at],
            (versions->runs_count - at) * sizeof versions->runs[0]);
    versions->runs[at] = (struct run){chunk, chunk};
    versions->runs_count++;
    versions->open = at;
    return true;
}

/* Room for so many slots more, which is fewer than there are. */
static enum shoal_err room_make(struct sh_versions *versions, size_t more)
{
    if ((versions->used + more) * 4 <= versions->room * 3)
        return SHOAL_OK;
    return versions->room == versions->config.slots_max ? SHOAL_EFULL : grow(versions);
}

static enum shoal_err slot_take(struct sh_versions *versions, uint64_t chunk, uint32_t number,
                                bool is_removal)
{
    enum shoal_err err = room_make(versions, 1);
    if (err)
        return err;
    slot_set(slot_find(versions->slots, versions->room, chunk), chunk, number << 1 | is_removal);
    versions->used++;
    if (versions->old)
        slots_move(versions, MOVED_EACH);
    return SHOAL_OK;
}

enum shoal_err sh_versions_next(struct sh_versions *versions, uint64_t chunk, bool is_removal,
                                uint32_t *number_out)
{
    SH_ASSERT(chunk && !versions->is_read);
    struct slot *slot = slot_of(versions, chunk);
    if (chunk_of(slot)) {
        uint32_t number = slot->value >> 1;
        if (number == versions->config.number_max)
            return SHOAL_EFULL;
        slot->value = (number + 1) << 1 | is_removal;
        *number_out = number + 1;
        return SHOAL_OK;
    }
    bool is_first = !is_in_run(versions, chunk);
    if (!is_first && !versions->config.number_max)
        return SHOAL_EFULL;
    if (is_first && !is_removal && run_take(versions, chunk)) {
        versions->count++;
        *number_out = 0;
        return SHOAL_OK;
    }
    enum shoal_err err = slot_take(versions, chunk, is_first ? 0 : 1, is_removal);
    if (err)
        return err;
    versions->count += is_first;
    versions->single = is_first ? chunk : 0;
    *number_out = is_first ? 0 : 1;
    return SHOAL_OK;
}

enum shoal_err sh_versions_reserve(struct sh_versions *versions, const uint64_t *chunks,
                                   unsigned count, uint32_t *numbers_out)
{
    uint32_t numbers[RESERVED_MAX];
    size_t more = 0;
    SH_ASSERT(count <= RESERVED_MAX && !versions->is_read);
    for (unsigned i = 0; i < count; i++) {
        bool is_removal, is_there = sh_versions_get(versions, chunks[i], &numbers[i], &is_removal);
        if (is_there && numbers[i] == versions->config.number_max)
            return SHOAL_EFULL;
        numbers[i] = is_there ? numbers[i] + 1 : 0;
        more += !chunk_of(slot_of(versions, chunks[i]));
    }
    enum shoal_err err = room_make(versions, more);
    if (!err)
        memcpy(numbers_out, numbers, count * sizeof *numbers);
    return err;
}

bool sh_versions_get(const struct sh_versions *versions, uint64_t chunk, uint32_t *number_out,
                     bool *is_removal_out)
{
    SH_ASSERT(chunk && !versions->is_read);
    const struct slot *slot = slot_of(versions, chunk);
    if (!chunk_of(slot) && !is_in_run(versions, chunk))
        return false;
    uint32_t value = chunk_of(slot) ? slot->value : 0;
    *number_out = value >> 1;
    *is_removal_out = value & 1;
    return true;
}

/* --- Reading all ------------------------------------------------------------------------------ */

static void sift_down(struct slot *slots, size_t count, size_t at)
{
    struct slot moved = slots[at];
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && chunk_of(&slots[child + 1]) > chunk_of(&slots[child]))
            child++;
        if (chunk_of(&slots[child]) <= chunk_of(&moved))
            break;
        slots[at] = slots[child];
    }
    slots[at] = moved;
}

/* Heapsort: in place, and without a bad case. */
static void sort(struct slot *slots, size_t count)
{
    for (size_t i = count / 2; i-- > 0;)
        sift_down(slots, count, i);
    for (size_t end = count; end > 1; end--) {
        struct slot largest = slots[0];
        slots[0] = slots[end - 1];
        slots[end - 1] = largest;
        sift_down(slots, end - 1, 0);
    }
}

static size_t compact(struct slot *slots, size_t room)
{
    size_t count = 0;
    for (size_t i = 0; i < room; i++) {
        struct slot slot = slots[i];
        slots[i] = (struct slot){.value = 0};
        if (chunk_of(&slot))
            slots[count++] = slot;
    }
    return count;
}

bool sh_versions_each(struct sh_versions *versions, size_t piece,
                      void (*each)(void *arg, uint64_t first, uint64_t last, uint32_t number,
                                   bool is_removal),
                      void *arg)
{
    versions->is_read = true;
    for (unsigned i = 0; piece == 0 && i < versions->runs_count; i++)
        each(arg, versions->runs[i].first, versions->runs[i].last, 0, false);
    if (piece == 0)
        return true;
    /* Slots that have not been moved yet come first. */
    size_t old_left = versions->old_room - versions->old_at;
    size_t old_pieces = (old_left + SH_VERSIONS_PIECE - 1) / SH_VERSIONS_PIECE;
    bool is_old = piece <= old_pieces;
    size_t from = (piece - 1 - (is_old ? 0 : old_pieces)) * SH_VERSIONS_PIECE;
    size_t room = is_old ? old_left : versions->room;
    if (from >= room)
        return false;
    size_t left = room - from;
    struct slot *slots = (is_old ? versions->old + versions->old_at : versions->slots) + from;
    size_t count = compact(slots, left < SH_VERSIONS_PIECE ? left : SH_VERSIONS_PIECE);
    sort(slots, count);
    for (size_t i = 0; i < count; i++)
        each(arg, chunk_of(&slots[i]), chunk_of(&slots[i]), slots[i].value >> 1,
             slots[i].value & 1);
    return is_old || from + SH_VERSIONS_PIECE < room;
}

uint64_t sh_versions_count(const struct sh_versions *versions)
{
    return versions->count;
}

size_t sh_versions_slots(const struct sh_versions *versions)
{
    return versions->room;
}

size_t sh_versions_bytes(const struct sh_versions *versions)
{
    size_t of_pool = versions->slots == versions->first ? 0 : versions->room;
    of_pool += versions->old == versions->first ? 0 : versions->old_room;
    return of_pool * sizeof *versions->slots + sizeof *versions;
}

void sh_versions_clear(struct sh_versions *versions)
{
    const struct sh_version_pool *pool = versions->config.pool;
    bool is_short = sh_version_pool_used(pool) > sh_version_pool_bytes(pool) / POOL_SHORT_PART;
    table_give(versions, versions->old, versions->old_room);
    versions->old = NULL;
    versions->old_room = versions->old_at = 0;
    if (is_short) {
        table_give(versions, versions->slots, versions->room);
        versions->slots = versions->first;
        versions->room = first_room(versions);
    }
    versions->used = 0;
    versions->count = versions->single = 0;
    versions->runs_count = versions->open = 0;
    versions->is_read = false;
    memset(versions->slots, 0, versions->room * sizeof *versions->slots);
}
