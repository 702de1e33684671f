#include "log/replog_dump.h"

#include <stdlib.h>

#include "base/assert.h"
#include "log/inspect_int.h"
#include "log/version_log.h"

#define ENTRIES_EACH 500u /* looked at in a step */
#define RUN_EACH 16384u   /* chunks of a run that are learned at a time */
#define SETTLES_NS UINT64_C(2000000000)

struct sh_replog_dump {
    enum { SETTLES, SURVEYS, LEARNS, TELLS } phase;
    struct sh_replog_dump_config config;
    struct sh_replog_dumped dumped;
    bool is_stopped;
    enum shoal_err err;
    uint64_t settles_until_ns, wanted; /* sequence number */
    struct part {
        uint64_t use;
        uint32_t slot, filled; /* filled: up to where it is looked at */
        uint8_t kind;
    } * parts; /* of the zone, by slot */
    unsigned parts_count;
    uint32_t *slots; /* of the parts, or of some, which are read */
    unsigned *parts_of;
    struct sh_replog_reader reader;
    /* Of the slot that is looked at. */
    bool is_open;
    struct sh_replog_walk walk;
    struct sh_log_slot_head head;
    size_t at;                       /* in a slot of versions */
    struct sh_version_reader tuples; /* of a piece of it, if is_in_piece */
    bool is_in_piece;
    struct sh_version_tuple tuple; /* what is left of one; first 0: nothing */
    struct sh_inspect_entry found;
    /* The zone, by what its slots say. Of one that is written to, the log knows its lives, and which numbers there are. */
    bool is_added;
    struct sh_inspect_of zone;
    struct sh_inspect_telling telling;
};

/* --- Beginning --------------------------------------------------------------------------------- */

void sh_replog_dump_free(struct sh_replog_dump *dump)
{
    if (!dump)
        return;
    sh_replog_reader_end(&dump->reader);
    sh_currents_destroy(dump->telling.currents);
    free(dump->zone.lives.lives);
    free(dump->zone.ranges.ranges);
    free(dump->parts);
    free(dump->slots);
    free(dump->parts_of);
    free(dump);
}

enum shoal_err sh_replog_dump_begin(struct sh_replog *log,
                                    const struct sh_replog_dump_config *config)
{
    struct sh_replog_zone *zone = sh_replog_zone_find(log, config->zone);
    SH_ASSERT(config->take && config->done);
    if (log->trouble)
        return SHOAL_EIO;
    if (log->dump)
        return SHOAL_EBUSY;
    if (!zone)
        return SHOAL_ENONAME;
    struct sh_replog_dump *dump = calloc(1, sizeof *dump);
    if (!dump)
        return SHOAL_ENOMEM;
    dump->config = *config;
    dump->settles_until_ns = log->now_ns + SETTLES_NS;
    dump->wanted = zone->next_sequence;
    dump->is_added = zone->versions;
    dump->zone.seen.id = zone->id;
    dump->zone.seen.owner = zone->owner;
    if (sh_replog_reader_begin(&dump->reader, log)) {
        sh_replog_dump_free(dump);
        return SHOAL_ENOMEM;
    }
    dump->reader.is_bulk = dump->reader.is_of_dump = true;
    if (dump->is_added && !zone->is_dropping) {
        struct sh_replog_batch *batch = zone->filling;
        if (batch && batch->chain.bytes > SH_SPAN_HEAD_BYTES)
            (void)sh_replog_batch_flush(batch, SH_REPLOG_FLUSH_OTHER); /* or it is not shown */
        sh_replog_sync(zone);
    }
    log->dump = dump;
    log->has_idled = false;
    return SHOAL_OK;
}

void sh_replog_dump_stop(struct sh_replog *log)
{
    if (log->dump)
        log->dump->is_stopped = true;
}

/* --- Taking note of the zone -------------------------------------------------------------------- */

static int part_compare(const void *a, const void *b)
{
    const struct part *left = a, *right = b;
    return left->slot < right->slot ? -1 : left->slot > right->slot;
}

static enum shoal_err parts_take(struct sh_replog *log, struct sh_replog_dump *dump,
                                 const struct sh_replog_zone *zone)
{
    size_t room = (size_t)zone->slots.count + 1;
    dump->parts = calloc(room, sizeof *dump->parts);
    dump->slots = calloc(room, sizeof *dump->slots);
    dump->parts_of = calloc(room, sizeof *dump->parts_of);
    if (!dump->parts || !dump->slots || !dump->parts_of)
        return SHOAL_ENOMEM;
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next) {
        const struct sh_log_slot *slot = &log->slots.slots[i];
        uint32_t filled = slot->pending ? sh_replog_slot_durable(zone, i) : slot->filled;
        if (filled > SH_SLOT_HEAD_BYTES)
            dump->parts[dump->parts_count++] = (struct part){slot->use, i, filled, slot->kind};
    }
    qsort(dump->parts, dump->parts_count, sizeof *dump->parts, part_compare);
    for (unsigned i = 0; i < dump->parts_count; i++)
        dump->dumped.slots += dump->parts[i].kind != SH_SLOT_VERSIONS;
    return SHOAL_OK;
}

static enum shoal_err lives_copy(struct sh_replog_dump *dump, const struct sh_replog_zone *zone)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < zone->lives.count; i++) {
        const struct sh_replog_life *life = &zone->lives.lives[i];
        err = sh_replog_lives_add(&dump->zone.lives, life->life, life->first, life->whole);
    }
    return err;
}

/* Begins to read what the phase looks at. */
static void pass_begin(struct sh_replog_dump *dump)
{
    unsigned count = 0;
    dump->phase++;
    for (unsigned i = 0; i < dump->parts_count; i++) {
        if (dump->phase == TELLS && dump->parts[i].kind == SH_SLOT_VERSIONS)
            continue;
        dump->slots[count] = dump->parts[i].slot;
        dump->parts_of[count++] = i;
    }
    sh_replog_reader_slots(&dump->reader, dump->slots, count);
}

/* The number before which all writes of the zone are durable in slots, and not only in the primary log. */
static uint64_t slots_end(const struct sh_replog_zone *zone)
{
    uint64_t end = zone->durable;
    if (zone->oldest && zone->oldest->first < end)
        end = zone->oldest->first;
    if (zone->filling && zone->filling->first < end)
        end = zone->filling->first;
    return end;
}

/* All that was appended is durable, or has had its time: the zone's slots are noted. */
static unsigned settles_step(struct sh_replog *log, struct sh_replog_dump *dump)
{
    const struct sh_replog_zone *zone = sh_replog_zone_find(log, dump->config.zone);
    if (!zone || zone->is_dropping) {
        dump->err = SHOAL_ENONAME;
        return 1;
    }
    dump->is_added &= zone->versions != NULL; /* it may have been sealed since */
    uint64_t end = slots_end(zone);
    bool is_settled = !dump->is_added || end >= dump->wanted;
    if (!is_settled && log->now_ns < dump->settles_until_ns)
        return 0;
    dump->err = parts_take(log, dump, zone);
    if (!dump->err && dump->is_added) {
        dump->err = lives_copy(dump, zone);
        dump->zone.seen.whole = zone->durable;
        dump->dumped.end = end;
    }
    if (!dump->err)
        pass_begin(dump);
    return 1;
}

/* --- Looking ----------------------------------------------------------------------------------- */

/* Begins with the slot that has been read; false: it has been given away, or its head can't be read. */
static bool slot_open(struct sh_replog *log, struct sh_replog_dump *dump, const uint8_t *bytes)
{
    const struct part *part = &dump->parts[dump->parts_of[dump->reader.next]];
    const struct sh_log_slot *slot = &log->slots.slots[part->slot];
    bool is_same = slot->kind == part->kind && slot->use == part->use;
    bool is_head = is_same && sh_log_slot_get(bytes, log->head.number, &dump->head) &&
                   dump->head.use == part->use && dump->head.zone == dump->config.zone;
    if (dump->phase == TELLS && !is_head) {
        bool may_be_given = !is_same || log->clean || log->drops;
        dump->dumped.slots_gone += may_be_given;
        dump->dumped.slots_unreadable += !may_be_given;
    }
    if (!is_head)
        return false;
    bool has_numbers = part->kind == SH_SLOT_ENTRIES;
    dump->at = 0;
    dump->is_in_piece = false;
    dump->tuple.first = 0;
    dump->found = (struct sh_inspect_entry){.kind = dump->head.kind, .slot = part->slot};
    sh_replog_walk_begin(&dump->walk,
                         has_numbers && dump->phase > SURVEYS ? &dump->zone.lives : NULL, bytes,
                         part->filled, part->use);
    return true;
}

/* The next of a slot of entries; false: there is no more. */
static bool entry_next(struct sh_replog_dump *dump, unsigned *work)
{
    struct sh_replog_walk *walk = &dump->walk;
    struct sh_replog_entry *entry = &dump->found.entry;
    enum sh_replog_walked got = sh_replog_walk_next(walk, entry);
    bool is_survey = dump->phase == SURVEYS, learns_lives = is_survey && !dump->is_added;
    switch (got) {
    case SH_REPLOG_WALKED_HEAD:
        if (learns_lives)
            dump->err = sh_replog_lives_add(&dump->zone.lives, walk->span.life,
                                            walk->span.life_first, walk->span.whole);
        break;
    case SH_REPLOG_WALKED_ENTRY:
        *work += sh_replog_entry_share(entry);
        if (!is_survey)
            sh_inspect_entry_take(&dump->telling, walk, &dump->found);
        else if (!sh_replog_is_completion(entry))
            sh_inspect_chunks_note(&dump->zone, sh_replog_chunk_of(entry),
                                   sh_replog_chunk_of(entry));
        break;
    case SH_REPLOG_WALKED_SPAN:
        if (learns_lives && dump->head.kind == SH_SLOT_ENTRIES)
            dump->err = sh_replog_ranges_add(
                &dump->zone.ranges,
                &(struct sh_replog_range){walk->from, walk->to, walk->span.life});
        break;
    case SH_REPLOG_WALKED_END:
        return false;
    }
    return true;
}

/* Notes or learns a part of the tuple at hand; a run takes its time. */
static unsigned tuple_take(struct sh_replog_dump *dump)
{
    struct sh_version_tuple *tuple = &dump->tuple;
    bool is_survey = dump->phase == SURVEYS; /* which only counts */
    uint64_t last =
        is_survey || tuple->last - tuple->first < RUN_EACH ? tuple->last : tuple->first + RUN_EACH;
    unsigned count = is_survey ? 0 : (unsigned)(last - tuple->first);
    if (is_survey)
        sh_inspect_chunks_note(&dump->zone, tuple->first, last);
    else
        sh_inspect_learn(&dump->telling, tuple->first, last, tuple->version, tuple->is_removal);
    tuple->first = last == tuple->last ? 0 : last + 1;
    return count / 100;
}

/* The next tuple of a slot of versions, or a part of it; false: there is no more. */
static bool tuple_next(struct sh_replog_dump *dump, unsigned *work)
{
    if (dump->tuple.first) {
        *work += tuple_take(dump);
        return true;
    }
    if (dump->is_in_piece) {
        dump->is_in_piece = sh_version_reader_next(&dump->tuples, &dump->tuple) == SH_VERSION_TUPLE;
        if (!dump->is_in_piece)
            dump->tuple.first = 0;
        return true;
    }
    dump->is_in_piece = sh_version_piece_next(dump->walk.scan.bytes, &dump->at, dump->config.zone,
                                              sh_replog_flush_least_in(&dump->head), &dump->tuples);
    return dump->is_in_piece;
}

static unsigned look(struct sh_replog *log, struct sh_replog_dump *dump)
{
    struct sh_inspect_telling *telling = &dump->telling;
    const uint8_t *bytes = sh_replog_reader_bytes(&dump->reader);
    if (!bytes)
        return 0;
    if (telling->is_over) { /* the entry was not taken: it is offered again */
        telling->is_over = !dump->config.take(dump->config.arg, &dump->found);
        if (telling->is_over)
            return 0;
    }
    if (!dump->is_open && !slot_open(log, dump, bytes)) {
        dump->reader.next++;
        return 1;
    }
    dump->is_open = true;
    bool is_versions = dump->head.kind == SH_SLOT_VERSIONS;
    for (unsigned i = 0; i < ENTRIES_EACH && !dump->err && !telling->is_over; i++) {
        if (!(is_versions ? tuple_next(dump, &i) : entry_next(dump, &i))) {
            dump->is_open = false;
            dump->reader.next++;
            break;
        }
        if (telling->err)
            dump->err = telling->err;
    }
    return 1;
}

/* --- The end of a pass --------------------------------------------------------------------------- */

/* The chunks of the zone are known: now there is room for their versions. EFULL, ENOMEM. */
static enum shoal_err survey_end(struct sh_replog_dump *dump)
{
    struct sh_inspect_telling *telling = &dump->telling;
    if (!dump->is_added)
        dump->zone.seen.whole = dump->dumped.end =
            sh_replog_ranges_whole(&dump->zone.ranges, &dump->zone.lives);
    *telling = (struct sh_inspect_telling){.zone = &dump->zone,
                                           .eon = sh_replog_lives_eon(&dump->zone.lives),
                                           .chunk = dump->config.chunk,
                                           .each = dump->config.take,
                                           .arg = dump->config.arg};
    const struct sh_currents_config config = sh_inspect_currents_config(telling);
    if (sh_currents_bytes(&config) > SH_REPLOG_DUMP_BYTES_MAX)
        return SHOAL_EFULL;
    return sh_currents_create(&config, &telling->currents);
}

static void finish(struct sh_replog *log, struct sh_replog_dump *dump)
{
    const struct sh_replog_dump_config config = dump->config;
    const struct sh_replog_dumped dumped = dump->dumped;
    enum shoal_err err = log->trouble ? SHOAL_EIO : dump->err;
    bool is_stopped = dump->is_stopped;
    sh_replog_dump_free(dump);
    log->dump = NULL;
    if (!is_stopped)
        config.done(config.arg, &dumped, err);
}

unsigned sh_replog_dump_step(struct sh_replog *log)
{
    struct sh_replog_dump *dump = log->dump;
    if (!dump)
        return 0;
    bool is_failed = dump->err || dump->is_stopped || log->trouble;
    if (!is_failed && dump->phase == SETTLES)
        return settles_step(log, dump);
    unsigned work = 0;
    if (!is_failed) {
        work += sh_replog_reader_step(&dump->reader);
        dump->err = sh_replog_reader_err(&dump->reader);
    }
    if (!is_failed && !dump->err)
        work += look(log, dump);
    is_failed |= dump->err != SHOAL_OK;
    bool is_pass_over =
        dump->phase != SETTLES && sh_replog_reader_is_over(&dump->reader) && !dump->telling.is_over;
    if (sh_replog_reader_is_busy(&dump->reader) || (!is_failed && !is_pass_over))
        return work;
    if (!is_failed && dump->phase == SURVEYS)
        dump->err = survey_end(dump);
    if (is_failed || dump->err || dump->phase == TELLS) {
        finish(log, dump);
        return work + 1;
    }
    dump->telling.is_told = dump->phase == LEARNS;
    pass_begin(dump);
    return work + 1;
}

uint64_t sh_replog_dump_due_ns(const struct sh_replog *log)
{
    const struct sh_replog_dump *dump = log->dump;
    if (!dump)
        return UINT64_MAX;
    if (dump->phase == SETTLES && !dump->err && !dump->is_stopped)
        return dump->settles_until_ns;
    bool is_held = dump->telling.is_over && !dump->is_stopped;
    return is_held || sh_replog_reader_is_busy(&dump->reader) ? UINT64_MAX : log->now_ns;
}
