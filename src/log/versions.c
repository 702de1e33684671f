#include "log/versions.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define SLOTS_MIN 16
#define RUNS_MAX 64
#define RESERVED_MAX 4 /* a table of SLOTS_MIN has so many free when it has doubled */
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

struct sh_versions {
    struct sh_versions_config config;
    struct slot *slots;
    size_t room, used;
    uint64_t count;
    struct run runs[RUNS_MAX]; /* ascending, disjoint */
    unsigned runs_count;
    unsigned open;   /* the run that grew last; runs_count: none */
    bool is_read;    /* slots have been moved */
    uint64_t single; /* what took a slot last, if with number 0; else 0 */
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

static enum shoal_err resize(struct sh_versions *versions, size_t room)
{
    struct slot *slots = calloc(room, sizeof *slots);
    if (!slots)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < versions->room; i++) {
        uint64_t chunk = chunk_of(&versions->slots[i]);
        if (chunk)
            slot_set(slot_find(slots, room, chunk), chunk, versions->slots[i].value);
    }
    free(versions->slots);
    versions->slots = slots;
    versions->room = room;
    return SHOAL_OK;
}

enum shoal_err sh_versions_create(const struct sh_versions_config *config,
                                  struct sh_versions **versions_out)
{
    SH_ASSERT(config->slots_max >= SLOTS_MIN && !(config->slots_max & (config->slots_max - 1)));
    SH_ASSERT(config->number_max <= SH_REPLOG_NUMBER_MAX);
    struct sh_versions *versions = calloc(1, sizeof *versions);
    if (!versions)
        return SHOAL_ENOMEM;
    versions->config = *config;
    enum shoal_err err = resize(versions, SLOTS_MIN);
    if (err) {
        sh_versions_destroy(versions);
        return err;
    }
    *versions_out = versions;
    return SHOAL_OK;
}

void sh_versions_destroy(struct sh_versions *versions)
{
    if (!versions)
        return;
    free(versions->slots);
    free(versions);
}

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
    return versions->room == versions->config.slots_max ? SHOAL_EFULL
                                                        : resize(versions, versions->room * 2);
}

static enum shoal_err slot_take(struct sh_versions *versions, uint64_t chunk, uint32_t number,
                                bool is_removal)
{
    enum shoal_err err = room_make(versions, 1);
    if (err)
        return err;
    slot_set(slot_find(versions->slots, versions->room, chunk), chunk, number << 1 | is_removal);
    versions->used++;
    return SHOAL_OK;
}

enum shoal_err sh_versions_next(struct sh_versions *versions, uint64_t chunk, bool is_removal,
                                uint32_t *number_out)
{
    SH_ASSERT(chunk && !versions->is_read);
    struct slot *slot = slot_find(versions->slots, versions->room, chunk);
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
        more += !chunk_of(slot_find(versions->slots, versions->room, chunks[i]));
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
    const struct slot *slot = slot_find(versions->slots, versions->room, chunk);
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
    size_t from = (piece - 1) * SH_VERSIONS_PIECE;
    if (from >= versions->room)
        return false;
    size_t room = versions->room - from;
    struct slot *slots = versions->slots + from;
    size_t count = compact(slots, room < SH_VERSIONS_PIECE ? room : SH_VERSIONS_PIECE);
    sort(slots, count);
    for (size_t i = 0; i < count; i++)
        each(arg, chunk_of(&slots[i]), chunk_of(&slots[i]), slots[i].value >> 1,
             slots[i].value & 1);
    return from + SH_VERSIONS_PIECE < versions->room;
}

uint64_t sh_versions_count(const struct sh_versions *versions)
{
    return versions->count;
}

size_t sh_versions_bytes(const struct sh_versions *versions)
{
    return versions->room * sizeof *versions->slots + sizeof versions->runs;
}

void sh_versions_clear(struct sh_versions *versions)
{
    versions->used = 0;
    versions->count = versions->single = 0;
    versions->runs_count = versions->open = 0;
    versions->is_read = false;
    memset(versions->slots, 0, versions->room * sizeof *versions->slots);
}
