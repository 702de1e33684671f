/* The tail of a zone that is read: its writes from a number on, in the order of their numbers.
 *
 * Slots are read in any order, and what a start has put into slots may be there twice, so writes are gathered first: each once, by its place
 * (sh_replog_place), with what has its number and comes before it in its span. LOADS notes which slots have some, so TAILS reads only those.
 * Then they are sorted, and handed out if none is missing: the cleaner's copies have no numbers, and do not count here. Which entries are void is
 * known by then.
 *
 * Memory: what is gathered, in blocks, 16 bytes for each place, and 16 more to find it. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "log/replog_load_int.h"

#define EACH_STEP 2000 /* writes that are handed out in a step */
#define BLOCK_BYTES ((size_t)64 << 10)
#define WRITES_MIN 64u

/* Memory for what is gathered, which goes all at once. */
struct block {
    struct block *next;
    size_t used, size;
    _Alignas(struct sh_replog_write) uint8_t bytes[];
};

struct sh_replog_tail {
    /* Slots with writes of it. */
    uint32_t *slots;
    unsigned slots_count;
    struct place {
        uint64_t place;
        struct sh_replog_write *write;
    } * places;
    size_t count, room;
    uint32_t *table; /* of 2 * room, with linear probing: 1 + the index of a place; 0: free */
    struct block *blocks;
    size_t bytes;        /* that all this takes */
    bool is_impossible;  /* it is not handed out */
    bool is_sorted;      /* and all there */
    size_t handed;       /* places */
    unsigned with_count; /* entries that have the number of the next one */
    struct sh_replog_entry with[2];
};

static void gathered_free(struct sh_replog_tail *tail)
{
    for (struct block *block = tail->blocks, *next; block; block = next) {
        next = block->next;
        free(block);
    }
    free(tail->places);
    free(tail->table);
    tail->blocks = NULL;
    tail->places = NULL;
    tail->table = NULL;
    tail->count = tail->room = tail->bytes = 0;
}

void sh_replog_tail_free(struct sh_replog_load *load)
{
    if (!load->tail)
        return;
    gathered_free(load->tail);
    free(load->tail->slots);
    free(load->tail);
    load->tail = NULL;
}

enum shoal_err sh_replog_tail_make(struct sh_replog_load *load)
{
    struct sh_replog_tail *tail = calloc(1, sizeof *tail);
    uint32_t *slots = malloc((load->zone->slots.count + 1) * sizeof *slots);
    if (!tail || !slots) {
        free(tail);
        free(slots);
        return SHOAL_ENOMEM;
    }
    tail->slots = slots;
    load->tail = tail;
    return SHOAL_OK;
}

/* --- Which slots ------------------------------------------------------------------------------- */

void sh_replog_tail_note(struct sh_replog_load *load, uint64_t to)
{
    struct sh_replog_tail *tail = load->tail;
    uint32_t slot = load->reader.slots[load->reader.next];
    if (to <= sh_replog_place(load->read.tail_from, 0))
        return;
    if (!tail->slots_count || tail->slots[tail->slots_count - 1] != slot)
        tail->slots[tail->slots_count++] = slot;
}

void sh_replog_tail_begin(struct sh_replog_load *load)
{
    struct sh_replog_tail *tail = load->tail;
    tail->is_impossible = load->read.tail_from > load->end;
    sh_replog_reader_slots(&load->reader, tail->slots, tail->is_impossible ? 0 : tail->slots_count);
}

/* --- Gathering --------------------------------------------------------------------------------- */

/* Counts bytes that are needed; false: they are too many, and what was gathered has gone. */
static bool bytes_take(struct sh_replog_load *load, size_t bytes)
{
    struct sh_replog_tail *tail = load->tail;
    tail->is_impossible = bytes > load->read.tail_bytes_max - tail->bytes;
    if (tail->is_impossible)
        gathered_free(tail);
    else
        tail->bytes += bytes;
    return !tail->is_impossible;
}

/* Room for so many bytes, aligned for a write. NULL: the tail is not possible, or there is no memory (load->err). */
static void *memory_take(struct sh_replog_load *load, size_t size)
{
    struct sh_replog_tail *tail = load->tail;
    const size_t align = _Alignof(struct sh_replog_write);
    struct block *block = tail->blocks;
    size = (size + align - 1) / align * align;
    if (!block || block->size - block->used < size) {
        size_t room = size < BLOCK_BYTES ? BLOCK_BYTES : size;
        size_t left = load->read.tail_bytes_max - tail->bytes;
        if (room + sizeof *block > left && size + sizeof *block <= left)
            room = left - sizeof *block; /* the last block is smaller */
        if (!bytes_take(load, sizeof *block + room))
            return NULL;
        block = malloc(sizeof *block + room);
        if (!block) {
            load->err = SHOAL_ENOMEM;
            return NULL;
        }
        *block = (struct block){.next = tail->blocks, .size = room};
        tail->blocks = block;
    }
    void *at = block->bytes + block->used;
    block->used += size;
    return at;
}

/* Where a place is in the table, or belongs. */
static uint32_t *table_find(const struct sh_replog_tail *tail, uint64_t place)
{
    size_t at = (size_t)(sh_mix64(place) % (2 * tail->room));
    while (tail->table[at] && tail->places[tail->table[at] - 1].place != place)
        at = at + 1 < 2 * tail->room ? at + 1 : 0;
    return &tail->table[at];
}

/* There is room for another place; false: as memory_take. */
static bool places_grow(struct sh_replog_load *load)
{
    struct sh_replog_tail *tail = load->tail;
    if (tail->count < tail->room)
        return true;
    size_t room = tail->room ? 2 * tail->room : WRITES_MIN;
    size_t each = sizeof *tail->places + 2 * sizeof *tail->table;
    if (!bytes_take(load, (room - tail->room) * each))
        return false;
    struct place *places = realloc(tail->places, room * sizeof *places);
    tail->places = places ? places : tail->places;
    uint32_t *table = calloc(2 * room, sizeof *table);
    if (!places || !table) {
        free(table);
        load->err = SHOAL_ENOMEM;
        return false;
    }
    free(tail->table);
    tail->table = table;
    tail->room = room;
    for (size_t i = 0; i < tail->count; i++)
        *table_find(tail, tail->places[i].place) = (uint32_t)i + 1;
    return true;
}

/* A copy of bytes behind what was copied before; zeros stay zeros. */
static struct sh_bytes bytes_copy(uint8_t **into, struct sh_bytes bytes)
{
    uint8_t *at = *into;
    if (!bytes.at)
        return bytes;
    memcpy(at, bytes.at, bytes.size);
    *into += bytes.size;
    return sh_bytes_make(at, bytes.size);
}

static struct sh_replog_write write_of(const struct sh_replog_entry *entry, uint8_t **into)
{
    return (struct sh_replog_write){.local_id = entry->local_id,
                                    .creator = entry->creator,
                                    .is_removal = entry->is_removal,
                                    .piece = entry->piece,
                                    .pieces = entry->pieces,
                                    .total = entry->total,
                                    .payload = bytes_copy(into, entry->payload)};
}

/* A write, or a piece of one, with the entries before it that have its number. */
static void gather(struct sh_replog_load *load, uint64_t place, const struct sh_replog_entry *entry)
{
    struct sh_replog_tail *tail = load->tail;
    size_t stored = sh_replog_entry_stored(entry);
    if (!places_grow(load))
        return;
    uint32_t *found = table_find(tail, place);
    if (*found) /* it is there twice */
        return;
    for (unsigned i = 0; i < tail->with_count; i++)
        stored += sh_replog_entry_stored(&tail->with[i]);
    struct sh_replog_write *write = memory_take(load, 2 * sizeof *write + stored);
    if (!write)
        return;
    uint8_t *bytes = (uint8_t *)(write + 2);
    write[0] = write_of(entry, &bytes);
    for (unsigned i = 0; i < tail->with_count; i++) {
        const struct sh_replog_entry *with = &tail->with[i];
        if (sh_replog_is_completion(with)) {
            write[0].completion = bytes_copy(&bytes, with->payload);
        } else {
            write[1] = write_of(with, &bytes);
            write[0].with = &write[1];
        }
    }
    tail->places[tail->count++] = (struct place){place, write};
    *found = (uint32_t)tail->count;
}

bool sh_replog_tail_next(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_entry entry;
    struct sh_replog_tail *tail = load->tail;
    enum sh_replog_walked got = sh_replog_walk_next(&load->walk, &entry);
    if (got == SH_REPLOG_WALKED_END || tail->is_impossible)
        return false;
    if (got == SH_REPLOG_WALKED_HEAD)
        tail->with_count = 0;
    if (got != SH_REPLOG_WALKED_ENTRY || load->walk.is_void)
        return true;
    uint64_t sequence = load->walk.span.first + load->walk.seen - sh_replog_is_last(&entry);
    *work += sh_replog_entry_share(&entry);
    if (sequence < load->read.tail_from)
        return true;
    if (entry.is_with_next) {
        tail->is_impossible |= tail->with_count == 2; /* this log writes no more than two */
        if (!tail->is_impossible)
            tail->with[tail->with_count++] = entry;
        return true;
    }
    gather(load, sh_replog_place(sequence, entry.piece), &entry);
    tail->with_count = 0;
    return true;
}

/* --- Handing out ------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b)
{
    uint64_t one = ((const struct place *)a)->place, other = ((const struct place *)b)->place;
    return one < other ? -1 : one > other;
}

/* Whether the places are those of all writes of the tail, in their order. */
static bool is_whole(const struct sh_replog_load *load)
{
    const struct sh_replog_tail *tail = load->tail;
    uint64_t next = sh_replog_place(load->read.tail_from, 0);
    for (size_t i = 0; i < tail->count; i++) {
        const struct sh_replog_write *write = tail->places[i].write;
        uint64_t sequence = next >> 16;
        if (tail->places[i].place != next)
            return false;
        next = write->piece + 1 == write->pieces
                   ? sh_replog_place(sequence + 1, 0)
                   : sh_replog_place(sequence, (uint16_t)(write->piece + 1));
    }
    return next == sh_replog_place(load->end, 0);
}

bool sh_replog_tail_hand(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_tail *tail = load->tail;
    SH_ASSERT(load->phase == SH_REPLOG_TAILS && !load->zone->has_tail);
    if (!tail->is_impossible && !tail->is_sorted) {
        if (tail->count)
            qsort(tail->places, tail->count, sizeof *tail->places, by_place);
        tail->is_sorted = is_whole(load);
        tail->is_impossible = !tail->is_sorted;
    }
    for (unsigned i = 0; tail->is_sorted && tail->handed < tail->count; i++) {
        const struct place *place = &tail->places[tail->handed];
        if (i == EACH_STEP)
            return false;
        enum shoal_err err =
            load->read.tail(load->read.arg, load->zone, place->place >> 16, place->write);
        if (err == SHOAL_EAGAIN)
            return false;
        load->err = err;
        if (err)
            return true;
        tail->handed++;
        ++*work;
    }
    load->zone->has_tail = tail->is_sorted;
    sh_replog_tail_free(load);
    return true;
}
