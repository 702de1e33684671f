/* Loading a zone: all its slots are read, one after the other, while the one before is looked through. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "log/replog_load_int.h"

#define ENTRIES_EACH 2000 /* looked at in a step */

void sh_replog_load_free(struct sh_replog_load *load)
{
    if (!load)
        return;
    sh_replog_reader_end(&load->reader);
    free(load->slots);
    free(load->ranges.ranges);
    sh_replog_roll_free(&load->roll);
    sh_replog_tail_free(load);
    free(load->records);
    sh_newest_destroy(load->newest);
    free(load);
}

/* A slot in the order in which slots are looked at. */
struct turn {
    uint32_t slot, since, order;
    bool is_versions;
};

static int turn_compare(const void *a, const void *b)
{
    const struct turn *one = a, *other = b;
    if (one->is_versions != other->is_versions)
        return one->is_versions ? -1 : 1;
    if (one->order != other->order)
        return one->order > other->order ? -1 : 1;
    if (one->since != other->since)
        return one->since > other->since ? -1 : 1;
    return one->slot > other->slot ? -1 : one->slot < other->slot;
}

/* Orders the zone's slots: those of versions first, then those that were begun last: in this process, as it read its primary log, and
 * before, by the second. So hardly an entry that is outdated is taken for a
 * current one: the version log lacks the versions of the last epoch, and entries of these are in the last slots. */
static enum shoal_err slots_order(struct sh_replog_load *load)
{
    const struct sh_log_slot *slots = load->zone->log->slots.slots;
    struct turn *turns = malloc((load->zone->slots.count + 1) * sizeof *turns);
    if (!turns)
        return SHOAL_ENOMEM;
    for (uint32_t i = load->zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next)
        turns[load->slots_count++] =
            (struct turn){.slot = i,
                          .since = slots[i].since,
                          .order = slots[i].is_found ? 0 : slots[i].order + 1,
                          .is_versions = slots[i].kind == SH_SLOT_VERSIONS};
    qsort(turns, load->slots_count, sizeof *turns, turn_compare);
    for (unsigned i = 0; i < load->slots_count; i++) {
        load->slots[i] = turns[i].slot;
        load->slots_versions += turns[i].is_versions;
    }
    free(turns);
    return SHOAL_OK;
}

enum shoal_err sh_replog_load_make(struct sh_replog_zone *zone, struct sh_replog_load **load_out)
{
    struct sh_replog *log = zone->log;
    SH_ASSERT(!zone->is_dropped);
    if (log->load || zone->versions || zone->is_dropping)
        return SHOAL_EBUSY;
    struct sh_replog_load *load = calloc(1, sizeof *load);
    if (!load)
        return SHOAL_ENOMEM;
    *load = (struct sh_replog_load){.zone = zone, .end = UINT64_MAX};
    load->slots = malloc((zone->slots.count + 1) * sizeof *load->slots);
    if (!load->slots || slots_order(load) || sh_replog_reader_begin(&load->reader, log)) {
        sh_replog_load_free(load);
        return SHOAL_ENOMEM;
    }
    *load_out = load;
    return SHOAL_OK;
}

/* Begins to read the zone's slots; once all versions are known, without those of versions. */
static void pass_begin(struct sh_replog_load *load, enum sh_replog_load_phase phase)
{
    unsigned first = phase == SH_REPLOG_TAKES ? load->slots_versions : 0;
    load->phase = phase;
    load->passed += load->reader.count;
    if (phase == SH_REPLOG_TAILS) {
        sh_replog_tail_begin(load);
        return;
    }
    sh_replog_reader_slots(&load->reader, load->slots + first, load->slots_count - first);
}

void sh_replog_load_begin(struct sh_replog_load *load)
{
    pass_begin(load, SH_REPLOG_LOADS);
    load->zone->log->load = load;
    load->zone->damage = (struct sh_replog_damage){.slots = 0};
}

enum shoal_err sh_replog_zone_load(struct sh_replog_zone *zone,
                                   void (*loaded)(void *arg, struct sh_replog_zone *zone,
                                                  uint64_t end, enum shoal_err err),
                                   void *arg)
{
    struct sh_replog_load *load;
    enum shoal_err err = sh_replog_load_make(zone, &load);
    if (err)
        return err;
    load->loaded = loaded;
    load->arg = arg;
    sh_replog_load_begin(load);
    return SHOAL_OK;
}

bool sh_replog_is_loading(const struct sh_replog_zone *zone)
{
    const struct sh_replog_load *load = zone->log->load;
    return load && load->zone == zone;
}

/* --- Looking through --------------------------------------------------------------------------- */

/* Begins with a slot; false: it is not one of the zone's, as its head was never written. */
static bool slot_begin(struct sh_replog *log, struct sh_replog_load *load, const uint8_t *bytes)
{
    struct sh_log_slot_head head;
    if (!sh_log_slot_get(bytes, log->head.number, &head) || head.zone != load->zone->id)
        return false;
    load->has_numbers = head.kind == SH_SLOT_ENTRIES; /* what survived has none any more */
    if (load->phase == SH_REPLOG_LOADS)
        log->slots.slots[load->reader.slots[load->reader.next]].parts = 0;
    bool is_known = load->has_numbers && load->phase != SH_REPLOG_LOADS; /* what counts */
    sh_replog_walk_begin(&load->walk, is_known ? &load->zone->lives : NULL, bytes,
                         log->head.slot_bytes, head.use);
    if (is_known)
        load->walk.end = load->end;
    load->spans_end = 0;
    load->at = 0;
    load->flush_least = sh_replog_flush_least_in(&head);
    return true;
}

/* The slot that is looked at has something of that epoch. */
static void epoch_note(struct sh_replog_load *load, uint16_t epoch)
{
    struct sh_log_slot *slots = load->zone->log->slots.slots;
    uint16_t *highest = &load->epochs[epoch >> 15];
    if (load->phase == SH_REPLOG_LOADS && load->eon != sh_replog_eon_of(epoch)) {
        bool is_known = load->epochs[0] || load->epochs[1];
        /* It is that of the first epoch; where there are several, the load's end decides. */
        load->is_other_eon |= is_known || (load->newest && sh_newest_groups(load->newest));
        load->eon = is_known ? load->eon : sh_replog_eon_of(epoch);
    }
    slots[load->reader.slots[load->reader.next]].eons |= sh_replog_eon_bit(epoch);
    if (*highest < epoch)
        *highest = epoch;
}

/* A life is an epoch, though none of its entries may be left: some spans only name it. */
static void life_note(struct sh_replog_load *load, const struct sh_span *span)
{
    struct sh_log_slot *slot = &load->zone->log->slots.slots[load->reader.slots[load->reader.next]];
    unsigned eons = slot->eons;
    epoch_note(load, span->life);
    if (span->bytes)
        return;
    slot->eons = eons & 3;
    slot->lives_eons |= sh_replog_eon_bit(span->life);
}

/* The roll of the zone's spans has one more, whose end has been reached. */
static enum shoal_err span_call(struct sh_replog_load *load)
{
    const struct sh_replog *log = load->zone->log;
    const struct sh_replog_walk *walk = &load->walk;
    uint32_t slot = load->reader.slots[load->reader.next];
    const struct sh_replog_called called = {.ordinal = walk->span.ordinal,
                                            .offset = sh_log_slot_at(&log->head, slot) +
                                                      SH_SLOT_HEAD_BYTES + walk->scan.begin,
                                            .use = walk->span.use,
                                            .slot = slot,
                                            .parts = walk->parts,
                                            .is_whole = walk->is_whole};
    log->slots.slots[slot].parts += walk->parts;
    return sh_replog_roll_span(&load->roll, &called);
}

/* The walk over a slot of entries is over: where it could read all of them, what can't be read later is damage. */
static void whole_note(struct sh_replog_load *load)
{
    struct sh_log_slot *slot = &load->zone->log->slots.slots[load->reader.slots[load->reader.next]];
    size_t end = (load->spans_end + SH_BLOCK_BYTES - 1) / SH_BLOCK_BYTES * SH_BLOCK_BYTES;
    slot->is_whole = load->walk.broken == SIZE_MAX;
    if (slot->is_whole)
        slot->filled = SH_SLOT_HEAD_BYTES + (uint32_t)end;
}

/* Looks at the next entry, or span, and adds to *work what it counts for beyond one; false: the slot has no more. */
static bool entry_next(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_entry *entry = &load->seen[load->seen_count];
    struct sh_replog_walk *walk = &load->walk;
    const struct sh_span *span = &walk->span;
    enum shoal_err err = SHOAL_OK;
    switch (sh_replog_walk_next(walk, entry)) {
    case SH_REPLOG_WALKED_ENTRY:
        *work += sh_replog_entry_share(entry);
        if (!sh_replog_is_completion(entry))
            epoch_note(load, entry->version.epoch);
        load->seen_count += load->read.take && !walk->is_void;
        break;
    case SH_REPLOG_WALKED_HEAD:
        err = sh_replog_lives_add(&load->zone->lives, span->life, span->life_first, span->whole);
        life_note(load, span);
        if (!err && load->phase == SH_REPLOG_LOADS)
            err = sh_replog_roll_head(&load->roll, span);
        sh_replog_flushes_said(load->zone, span);
        if (load->zone->incarnation < span->incarnation)
            load->zone->incarnation = span->incarnation;
        break;
    case SH_REPLOG_WALKED_SPAN:
        load->spans_end = walk->scan.at;
        if (load->tail && load->has_numbers && load->phase == SH_REPLOG_LOADS)
            sh_replog_tail_note(load, walk->to);
        if (load->phase == SH_REPLOG_LOADS)
            err = span_call(load);
        if (!err && load->has_numbers && load->phase == SH_REPLOG_LOADS)
            err = sh_replog_ranges_add(&load->ranges,
                                       &(struct sh_replog_range){walk->from, walk->to, span->life});
        break;
    case SH_REPLOG_WALKED_END:
        if (walk->is_damaged && load->phase == SH_REPLOG_LOADS)
            sh_replog_damage_note(load->zone, load->reader.slots[load->reader.next], walk);
        load->is_damaged |= walk->is_damaged;
        if (load->phase == SH_REPLOG_LOADS)
            whole_note(load);
        return false;
    }
    if (err)
        load->err = err;
    return true;
}

/* Looks at the next tuple of a slot of the version log: its entries may have been cleaned away. False: there is no other. */
static bool tuple_next(struct sh_replog_load *load, unsigned *work)
{
    if (load->tuples_at || load->tuples_count == SH_REPLOG_SEEN) {
        *work += sh_replog_learn_tuples(load);
        return true;
    }
    struct sh_version_tuple tuple;
    if (load->is_reading && sh_version_reader_next(&load->tuples, &tuple) == SH_VERSION_TUPLE) {
        epoch_note(load, tuple.version.epoch);
        if (load->read.take)
            load->tuples_seen[load->tuples_count++] = tuple;
        return true;
    }
    struct sh_replog_zone *zone = load->zone;
    load->is_reading = sh_version_piece_next(load->walk.scan.bytes, &load->at, zone->id,
                                             load->flush_least, &load->tuples);
    if (load->is_reading && load->tuples.piece.flush >= zone->flushes)
        zone->flushes = load->tuples.piece.flush + 1;
    if (load->is_reading || !load->tuples_count)
        return load->is_reading;
    *work += sh_replog_learn_tuples(load);
    return true;
}

/* Looks at the next entry, or span, of a slot that has been looked at before; false: the slot has no more. */
static bool taken_next(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_entry *entry = &load->seen[load->seen_count];
    enum sh_replog_walked got = sh_replog_walk_next(&load->walk, entry);
    if (got == SH_REPLOG_WALKED_ENTRY) {
        *work += sh_replog_entry_share(entry);
        load->seen_count += !load->walk.is_void;
    }
    return got != SH_REPLOG_WALKED_END;
}

/* Looks at what is next of a slot; false: the slot has no more. */
static bool look_at_next(struct sh_replog_load *load, bool is_versions, unsigned *work)
{
    if (load->phase == SH_REPLOG_TAILS)
        return sh_replog_tail_next(load, work);
    if (load->phase == SH_REPLOG_TAKES)
        return taken_next(load, work);
    return is_versions ? tuple_next(load, work) : entry_next(load, work);
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
    bool is_versions =
        log->slots.slots[load->reader.slots[load->reader.next]].kind == SH_SLOT_VERSIONS;
    for (unsigned i = 0; i < ENTRIES_EACH && !load->err; i++) {
        bool is_offered =
            load->is_refused || load->seen_at > 0 || load->seen_count == SH_REPLOG_SEEN;
        if (!is_offered && !load->is_slot_over)
            load->is_slot_over = !look_at_next(load, is_versions, &i);
        if ((is_offered || load->is_slot_over) && !sh_replog_handle_seen(load))
            return i;
        if (load->is_slot_over) {
            load->is_open = load->is_slot_over = false;
            load->reader.next++;
            break;
        }
    }
    return 1;
}

/* --- The end ----------------------------------------------------------------------------------- */

/* Whether a write is missing that had been on the disk in the primary log. */
static bool lacks_numbers(const struct sh_replog_load *load)
{
    const struct sh_replog_zone *zone = load->zone;
    return (zone->has_number_lost && sh_replog_roll_lacks_lost(&load->roll, &load->ranges,
                                                               &zone->lives, zone->number_lost)) ||
           sh_replog_roll_lacks_numbers(&load->roll, &load->ranges, &zone->lives, load->end);
}

/* Whether something had been on the disk that is not there any more. Of a slot whose head is damaged a crash may have torn the zeros with which
 * it was given away: then others tell of its spans no more; if none tells at all, it was not given away. Where something lacks, fewer spans are found than there are to be, by what this process will
 * tell, so that the next load knows it, too. */
static bool lacks_some(struct sh_replog_load *load)
{
    struct sh_replog_zone *zone = load->zone;
    const struct sh_replog_called *place;
    sh_replog_said_merge(&load->roll.said, &zone->said_found);
    uint32_t lacking = sh_replog_roll_lacking(&load->roll, &place);
    bool is_lost = zone->has_lost && zone->lost_incarnation >= zone->incarnation_seen &&
                   !load->roll.said.teller;
    bool lacks = lacking || is_lost || lacks_numbers(load);
    zone->ordinal_found = sh_replog_roll_newest(&load->roll);
    zone->parts_found = lacking + (lacks && !lacking);
    for (size_t i = 0; i < load->roll.count; i++)
        zone->parts_found += load->roll.called[i].parts;
    if (!lacks || load->is_damaged)
        return lacks;
    sh_replog_damage_add(zone, place ? place->slot : SH_SLOT_NONE, place ? place->offset : 0);
    SH_ERROR("log", "a replica lacks what had been on the disk: the zone needs another one",
             SH_TEXT("file", zone->log->config.name), SH_U64("zone", zone->id),
             SH_U64("parts", lacking), SH_U64("offset", place ? place->offset : 0));
    return true;
}

/* The load has read all slots of the zone, and knows up to which number its writes count. */
static void settle(struct sh_replog_load *load)
{
    struct sh_replog_zone *zone = load->zone;
    load->end = zone->end = sh_replog_ranges_whole(&load->ranges, &load->zone->lives);
    zone->is_loaded = true;
    bool lacks = lacks_some(load);
    zone->is_damaged = load->is_damaged || lacks;
    uint16_t eon = zone->lives.count ? sh_replog_lives_eon(&zone->lives)
                   : load->epochs[0] ? 0
                                     : sh_replog_eon_of(load->epochs[1]);
    load->is_other_eon |= load->epochs[1] && (load->epochs[0] || eon != load->eon);
    load->eon = eon;
    zone->epoch_seen = load->epochs[eon >> 15] ? load->epochs[eon >> 15] : eon;
}

/* Whether something is there that does not count: its versions were learned. */
static bool has_void(const struct sh_replog_load *load)
{
    return sh_replog_ranges_have_behind(&load->ranges, &load->zone->lives, load->end);
}

/* A phase is over; true: another one begins. */
static bool phase_next(struct sh_replog_load *load)
{
    bool is_first = load->phase == SH_REPLOG_LOADS, is_wrong = false;
    load->between = 0;
    if (is_first)
        settle(load);
    if (!load->read.take || load->phase == SH_REPLOG_TAKES || load->phase == SH_REPLOG_GIVES)
        return false;
    if (is_first) {
        is_wrong = has_void(load) || load->is_other_eon;
        load->is_given = load->read.drop && !is_wrong;
    }
    if (is_wrong && load->read.drop) {
        load->phase = SH_REPLOG_DROPS;
        return true;
    }
    if (is_wrong || load->phase == SH_REPLOG_DROPS) {
        load->err = sh_replog_learn_anew(load);
        if (!load->err)
            pass_begin(load, SH_REPLOG_LEARNS);
        return !load->err;
    }
    if (load->tail)
        pass_begin(load, SH_REPLOG_TAILS);
    else if (load->is_given)
        load->phase = SH_REPLOG_GIVES;
    else
        pass_begin(load, SH_REPLOG_TAKES);
    return true;
}

static void finish(struct sh_replog *log, struct sh_replog_load *load)
{
    struct sh_replog_zone *zone = load->zone;
    enum shoal_err err = log->trouble ? SHOAL_EIO : load->err;
    if (!err && zone->is_damaged)
        err = SHOAL_ECORRUPT;
    log->load = NULL;
    if (load->end == UINT64_MAX)
        load->end = sh_replog_ranges_whole(&load->ranges, &load->zone->lives);
    if (load->read.take)
        load->read.done(load->read.arg, zone, load->end, err);
    else
        load->loaded(load->arg, zone, load->end, err);
    sh_replog_load_free(load);
}

/* Goes on with the phase; true: there is no more to do in it. */
static bool phase_step(struct sh_replog *log, struct sh_replog_load *load, unsigned *work)
{
    bool is_between = load->phase == SH_REPLOG_GIVES || load->phase == SH_REPLOG_DROPS;
    bool is_over = false;
    if (!load->err && !log->trouble) {
        *work += sh_replog_reader_step(&load->reader);
        load->err = sh_replog_reader_err(&load->reader);
    }
    if (load->err || log->trouble)
        return !sh_replog_reader_is_busy(&load->reader);
    if (is_between) {
        *work += sh_replog_between(load, ENTRIES_EACH, &is_over);
        return is_over;
    }
    *work += look(log, load);
    is_over = sh_replog_reader_is_over(&load->reader) || load->err;
    if (!is_over || sh_replog_reader_is_busy(&load->reader))
        return false;
    return load->err || load->phase != SH_REPLOG_TAILS || sh_replog_tail_hand(load, work);
}

unsigned sh_replog_load_step(struct sh_replog *log)
{
    struct sh_replog_load *load = log->load;
    if (!load)
        return 0;
    unsigned work = 0;
    bool is_over = phase_step(log, load, &work);
    sh_replog_flush_taken(load);
    if (!is_over)
        return work;
    if (load->err || log->trouble || !phase_next(load))
        finish(log, load);
    return work + 1;
}
