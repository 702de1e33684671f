/* Loading a zone: all its slots are read, one after the other, while the one before is looked through. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"
#include "log/version_log.h"

#define ENTRIES_EACH 2000 /* looked at in a step */

struct sh_replog_load {
    struct sh_replog_zone *zone;
    void (*loaded)(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err);
    void *arg;
    uint32_t *slots;
    struct sh_replog_reader reader;
    /* Where we are in the slot that is looked at. */
    bool is_open;
    bool has_numbers;
    struct sh_replog_walk walk;
    bool is_damaged;
    size_t at;                       /* in a slot of versions */
    uint64_t flush_least;            /* there */
    struct sh_version_reader tuples; /* of a piece, if is_reading */
    bool is_reading;
    struct sh_replog_ranges ranges;
    uint16_t epoch;
    enum shoal_err err;
};

void sh_replog_load_free(struct sh_replog_load *load)
{
    if (!load)
        return;
    sh_replog_reader_end(&load->reader);
    free(load->slots);
    free(load->ranges.ranges);
    free(load);
}

bool sh_replog_is_loaded(const struct sh_replog_load *load, const struct sh_replog_zone *zone)
{
    return load->zone == zone;
}

enum shoal_err sh_replog_zone_load(struct sh_replog_zone *zone,
                                   void (*loaded)(void *arg, struct sh_replog_zone *zone,
                                                  uint64_t end, enum shoal_err err),
                                   void *arg)
{
    struct sh_replog *log = zone->log;
    if (log->load || zone->versions || zone->is_dropping)
        return SHOAL_EBUSY;
    struct sh_replog_load *load = calloc(1, sizeof *load);
    if (!load)
        return SHOAL_ENOMEM;
    *load = (struct sh_replog_load){.zone = zone, .loaded = loaded, .arg = arg};
    load->slots = malloc((zone->slots.count + 1) * sizeof *load->slots);
    if (!load->slots || sh_replog_reader_begin(&load->reader, log)) {
        sh_replog_load_free(load);
        return SHOAL_ENOMEM;
    }
    unsigned count = 0;
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next) {
        load->slots[count++] = i;
    }
    sh_replog_reader_slots(&load->reader, load->slots, count);
    log->load = load;
    zone->damage = (struct sh_replog_damage){.slots = 0};
    return SHOAL_OK;
}

/* --- Looking through --------------------------------------------------------------------------- */

/* Begins with a slot; false: it is not one of the zone's, as its head was never written. */
static bool slot_begin(struct sh_replog *log, struct sh_replog_load *load, const uint8_t *bytes)
{
    struct sh_log_slot_head head;
    if (!sh_log_slot_get(bytes, log->head.number, &head) || head.zone != load->zone->id)
        return false;
    load->has_numbers = head.kind == SH_SLOT_ENTRIES; /* what survived has none any more */
    sh_replog_walk_begin(&load->walk, NULL, bytes, log->head.slot_bytes, head.use);
    load->at = 0;
    load->flush_least = sh_replog_flush_least(head.incarnation);
    return true;
}

/* Looks at the next entry, or span, and adds to *work what it counts for beyond one; false: the slot has no more. */
static bool entry_next(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_entry entry;
    struct sh_replog_walk *walk = &load->walk;
    const struct sh_span *span = &walk->span;
    enum shoal_err err = SHOAL_OK;
    switch (sh_replog_walk_next(walk, &entry)) {
    case SH_REPLOG_WALKED_ENTRY:
        *work += sh_replog_entry_share(&entry);
        if (entry.version.epoch > load->epoch)
            load->epoch = entry.version.epoch;
        break;
    case SH_REPLOG_WALKED_HEAD:
        err = sh_replog_lives_add(&load->zone->lives, span->life, span->life_first, span->whole);
        if (load->epoch <
            span->life) /* a life is an epoch, though none of its entries may be left */
            load->epoch = span->life;
        if (load->zone->incarnation < span->incarnation)
            load->zone->incarnation = span->incarnation;
        break;
    case SH_REPLOG_WALKED_SPAN:
        if (load->has_numbers)
            err = sh_replog_ranges_add(&load->ranges,
                                       &(struct sh_replog_range){walk->from, walk->to, span->life});
        break;
    case SH_REPLOG_WALKED_END:
        if (walk->is_damaged)
            sh_replog_damage_note(load->zone, load->slots[load->reader.next], walk);
        load->is_damaged |= walk->is_damaged;
        return false;
    }
    if (err)
        load->err = err;
    return true;
}

/* Looks at the next tuple of a slot of the version log: its entries may have been cleaned away. False: there is no other. */
static bool tuple_next(struct sh_replog_load *load)
{
    struct sh_version_tuple tuple;
    if (load->is_reading && sh_version_reader_next(&load->tuples, &tuple) == SH_VERSION_TUPLE) {
        if (tuple.version.epoch > load->epoch)
            load->epoch = tuple.version.epoch;
        return true;
    }
    struct sh_replog_zone *zone = load->zone;
    load->is_reading = sh_version_piece_next(load->walk.scan.bytes, &load->at, zone->id,
                                             load->flush_least, &load->tuples);
    if (load->is_reading && load->tuples.piece.flush >= zone->flushes)
        zone->flushes = load->tuples.piece.flush + 1;
    return load->is_reading;
}

static unsigned look(struct sh_replog *log, struct sh_replog_load *load)
{
    const uint8_t *bytes = sh_replog_reader_bytes(&load->reader);
    if (!bytes)
        return 0;
    if (!load->is_open && !slot_begin(log, load, bytes)) {
        load->reader.next++;
        return 1;
    }
    load->is_open = true;
    bool is_versions = log->slots.slots[load->slots[load->reader.next]].kind == SH_SLOT_VERSIONS;
    for (unsigned i = 0; i < ENTRIES_EACH; i++) {
        if (!(is_versions ? tuple_next(load) : entry_next(load, &i))) {
            load->is_open = false;
            load->reader.next++;
            break;
        }
    }
    return 1;
}

/* --- The end ----------------------------------------------------------------------------------- */

unsigned sh_replog_load_step(struct sh_replog *log)
{
    struct sh_replog_load *load = log->load;
    if (!load)
        return 0;
    unsigned work = 0;
    if (!load->err && !log->trouble) {
        work += sh_replog_reader_step(&load->reader);
        load->err = sh_replog_reader_err(&load->reader);
    }
    if (!load->err && !log->trouble) {
        work += look(log, load);
    }
    bool is_over = load->err || log->trouble || sh_replog_reader_is_over(&load->reader);
    if (!is_over || sh_replog_reader_is_busy(&load->reader))
        return work;
    uint64_t end = sh_replog_ranges_whole(&load->ranges, &load->zone->lives);
    struct sh_replog_zone *zone = load->zone;
    enum shoal_err err = log->trouble ? SHOAL_EIO : load->err;
    zone->is_loaded = !err;
    zone->is_damaged = load->is_damaged;
    zone->epoch_seen = load->epoch;
    zone->end = end;
    log->load = NULL;
    load->loaded(load->arg, zone, end, !err && zone->is_damaged ? SHOAL_ECORRUPT : err);
    sh_replog_load_free(load);
    return work + 1;
}
