/* Telling of a zone's entries: first all versions are learned, then each entry is told, with what it is to its chunk. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/currents.h"
#include "log/inspect_int.h"
#include "log/version_log.h"

struct dump {
    struct sh_inspect *inspect;
    struct sh_inspect_telling telling;
};

void sh_inspect_learn(struct sh_inspect_telling *telling, uint64_t first, uint64_t last,
                      struct sh_replog_version version, bool is_removal)
{
    uint64_t chunk = telling->chunk;
    if (chunk && (chunk < first || chunk > last))
        return;
    if (chunk)
        first = last = chunk;
    enum shoal_err err = sh_currents_put(telling->currents, first, last,
                                         sh_replog_version_in(version, telling->eon), is_removal);
    if (err)
        telling->err = err;
}

/* A load of the zone would not count an entry behind a gap, so such an entry is void. */
void sh_inspect_entry_take(struct sh_inspect_telling *telling, const struct sh_replog_walk *walk,
                           struct sh_inspect_entry *found)
{
    const struct sh_replog_entry *entry = &found->entry;
    uint64_t chunk = sh_replog_chunk_of(entry);
    if (telling->chunk && chunk != telling->chunk)
        return;
    found->sequence = walk->span.first + walk->seen - sh_replog_is_last(entry);
    found->life = walk->span.life;
    found->incarnation = walk->span.incarnation;
    bool has_number = found->kind == SH_SLOT_ENTRIES;
    bool is_void = has_number && (walk->is_void || found->sequence >= telling->zone->seen.whole);
    bool is_completion = sh_replog_is_completion(entry); /* nothing is newer than it */
    if (!telling->is_told && !is_void && !is_completion)
        sh_inspect_learn(telling, chunk, chunk, entry->version, entry->is_removal);
    if (!telling->is_told)
        return;
    bool is_current =
        is_completion || sh_currents_is_current(telling->currents, chunk,
                                                sh_replog_version_in(entry->version, telling->eon));
    found->standing = is_void      ? SH_INSPECT_VOID
                      : is_current ? SH_INSPECT_CURRENT
                                   : SH_INSPECT_SUPERSEDED;
    telling->is_over = !telling->each(telling->arg, found);
}

static void walk_take(struct dump *dump, struct sh_replog_walk *walk,
                      struct sh_inspect_entry *found)
{
    bool is_wanted = true;
    enum sh_replog_walked got;
    while (!dump->telling.err && !dump->telling.is_over &&
           (got = sh_replog_walk_next(walk, &found->entry)) != SH_REPLOG_WALKED_END) {
        if (got == SH_REPLOG_WALKED_HEAD && found->slot == SH_INSPECT_PRIMARY)
            is_wanted =
                sh_inspect_ring_has(dump->inspect, &walk->span, dump->telling.zone->seen.id) &&
                (uint32_t)walk->span.use == found->lap;
        if (got == SH_REPLOG_WALKED_ENTRY && is_wanted)
            sh_inspect_entry_take(&dump->telling, walk, found);
    }
}

static void tuples_take(struct dump *dump, uint64_t flush_least)
{
    const struct sh_inspect *inspect = dump->inspect;
    struct sh_bytes bytes = sh_bytes_make(inspect->slot + SH_SLOT_HEAD_BYTES,
                                          inspect->seen.file.slot_bytes - SH_SLOT_HEAD_BYTES);
    struct sh_version_reader reader;
    struct sh_version_tuple tuple;
    size_t at = 0;
    while (!dump->telling.is_told &&
           sh_version_piece_next(bytes, &at, dump->telling.zone->seen.id, flush_least, &reader)) {
        while (!dump->telling.err && sh_version_reader_next(&reader, &tuple) == SH_VERSION_TUPLE)
            sh_inspect_learn(&dump->telling, tuple.first, tuple.last, tuple.version,
                             tuple.is_removal);
    }
}

static void slot_take(struct dump *dump, uint32_t number)
{
    struct sh_inspect *inspect = dump->inspect;
    struct sh_log_slot_head head;
    struct sh_replog_walk walk;
    uint32_t lost;
    sh_inspect_slot_read(inspect, number, &lost);
    if (!sh_log_slot_get(inspect->slot, inspect->seen.file.number, &head))
        return;
    if (head.kind == SH_SLOT_VERSIONS) {
        tuples_take(dump, sh_replog_flush_least_in(&head));
        return;
    }
    struct sh_inspect_entry found = {.kind = head.kind, .slot = number};
    sh_replog_walk_begin(&walk, head.kind == SH_SLOT_ENTRIES ? &dump->telling.zone->lives : NULL,
                         inspect->slot, inspect->seen.file.slot_bytes, head.use);
    walk_take(dump, &walk, &found);
}

/* The lap before the last one is the older one. */
static void ring_take(struct dump *dump)
{
    const struct sh_inspect *inspect = dump->inspect;
    for (uint32_t back = 2; inspect->ring && inspect->seen.lap && back-- > 0;) {
        struct sh_replog_walk walk;
        struct sh_inspect_entry found = {
            .kind = SH_SLOT_ENTRIES, .slot = SH_INSPECT_PRIMARY, .lap = inspect->seen.lap - back};
        sh_replog_walk_ring(&walk, &inspect->seen.file, inspect->ring);
        walk.lives = &dump->telling.zone->lives;
        walk_take(dump, &walk, &found);
    }
}

static void pass(struct dump *dump)
{
    struct sh_inspect *inspect = dump->inspect;
    for (uint32_t i = 0;
         i < inspect->seen.file.slots && !dump->telling.err && !dump->telling.is_over; i++) {
        if (inspect->heads[i].is_seen && inspect->heads[i].zone == dump->telling.zone->seen.id)
            slot_take(dump, i);
    }
    ring_take(dump);
}

/* The chunks that its owner created are the array, if they are near each other. */
struct sh_currents_config sh_inspect_currents_config(const struct sh_inspect_telling *telling)
{
    const struct sh_inspect_of *zone = telling->zone;
    struct sh_currents_config config = {.base = 1, .rest_max = zone->others};
    if (telling->chunk) {
        config.base = telling->chunk;
        config.count = 1;
        config.rest_max = 0;
    } else if (zone->own_last && zone->own_last - zone->own_first < SH_CURRENTS_CHUNKS_MAX) {
        config.base = zone->own_first;
        config.count = zone->own_last - zone->own_first + 1;
    } else {
        config.rest_max += zone->own_chunks;
    }
    if (config.rest_max > SH_CURRENTS_CHUNKS_MAX)
        config.rest_max = SH_CURRENTS_CHUNKS_MAX;
    return config;
}

enum shoal_err sh_inspect_dump(struct sh_inspect *inspect, uint64_t zone, uint64_t chunk,
                               bool (*each)(void *arg, const struct sh_inspect_entry *entry),
                               void *arg)
{
    SH_ASSERT(inspect->is_read);
    struct dump dump = {.inspect = inspect, .telling = {.chunk = chunk, .each = each, .arg = arg}};
    struct sh_inspect_telling *telling = &dump.telling;
    telling->zone = sh_inspect_of_find(inspect, zone);
    if (!telling->zone)
        return SHOAL_ENONAME;
    telling->eon = sh_replog_lives_eon(&telling->zone->lives);
    const struct sh_currents_config config = sh_inspect_currents_config(telling);
    enum shoal_err err = sh_currents_create(&config, &telling->currents);
    if (err)
        return err;
    pass(&dump);
    telling->is_told = true;
    if (!telling->err)
        pass(&dump);
    sh_currents_destroy(telling->currents);
    return telling->err;
}
