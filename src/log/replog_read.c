/* Reading a zone: what is current of it is handed out, as a recovery needs it. The passes are replog_load.c's. */
#include <string.h>

#include "base/assert.h"
#include "log/replog_load_int.h"

#define RUN_EACH 65536u /* chunks of a run that are learned at a time */

/* At the first look chunks are handed out already, since the caller drops those of which something newer is found. Not once entries of
 * two eons were seen: versions that differ may have one value by the other eon's name, and none could be told from the other. */
static bool is_early(const struct sh_replog_load *load)
{
    return load->phase == SH_REPLOG_LOADS && load->read.drop && !load->is_other_eon;
}

/* EAGAIN: not now. */
static enum shoal_err drop(struct sh_replog_load *load, uint64_t chunk)
{
    return load->read.drop(load->read.arg, load->zone, (uint16_t)(chunk >> 48),
                           chunk & SH_REPLOG_LOCAL_ID_MAX);
}

/* --- Learning ---------------------------------------------------------------------------------- */

/* A chunk has a version: what was handed out of an older one goes. EAGAIN: not now; nothing has been learned. */
static enum shoal_err learn(struct sh_replog_load *load, uint64_t chunk, uint64_t value,
                            uint64_t *cell)
{
    enum shoal_err err = SHOAL_OK;
    if (!sh_newest_is_newer(value, *cell))
        return SHOAL_OK;
    if (*cell & SH_NEWEST_TAKEN)
        err = drop(load, chunk);
    if (!err)
        *cell = value;
    return err;
}

static uint64_t value_of(const struct sh_replog_load *load, const struct sh_replog_entry *entry)
{
    return sh_newest_value(sh_replog_version_in(entry->version, load->eon), entry->is_removal);
}

/* Keeps a copy of a completion record: whether it counts is not known yet. */
static enum shoal_err record_add(struct sh_replog_load *load, struct sh_bytes bytes)
{
    void *items = load->records;
    enum shoal_err err = sh_replog_room_make(&items, load->records_count, &load->records_room,
                                             sizeof *load->records);
    load->records = items;
    if (err)
        return err;
    struct sh_replog_record *record = &load->records[load->records_count++];
    SH_ASSERT(bytes.size <= sizeof record->bytes);
    record->size = (uint8_t)bytes.size;
    memcpy(record->bytes, bytes.at, bytes.size);
    return SHOAL_OK;
}

unsigned sh_replog_learn_tuples(struct sh_replog_load *load)
{
    uint64_t chunks[SH_REPLOG_SEEN];
    unsigned work = 0;
    if (load->tuples_at == 0) {
        for (unsigned i = 0; i < load->tuples_count; i++)
            chunks[i] = load->tuples_seen[i].first;
        sh_newest_prefetch(load->newest, chunks, load->tuples_count);
    }
    for (; load->tuples_at < load->tuples_count && work < RUN_EACH; load->tuples_at++) {
        struct sh_version_tuple *tuple = &load->tuples_seen[load->tuples_at];
        uint64_t most = tuple->first + (RUN_EACH - 1 - work);
        uint64_t last = tuple->last <= most ? tuple->last : most;
        uint64_t value =
            sh_newest_value(sh_replog_version_in(tuple->version, load->eon), tuple->is_removal);
        for (uint64_t chunk = tuple->first;; chunk++) {
            uint64_t *cells = sh_newest_cells(load->newest, chunk);
            if (!cells) {
                load->err = SHOAL_ENOMEM;
                return work;
            }
            uint64_t *cell = &cells[chunk % SH_NEWEST_GROUP];
            SH_ASSERT(!(*cell & SH_NEWEST_TAKEN)); /* slots of versions come first */
            if (sh_newest_is_newer(value, *cell))
                *cell = value;
            if (chunk == last)
                break;
        }
        work += (unsigned)(last - tuple->first) + 1;
        tuple->first = last + 1;
        if (last != tuple->last)
            return work / 100;
    }
    if (load->tuples_at == load->tuples_count)
        load->tuples_at = load->tuples_count = 0;
    return work / 100; /* a run takes its time */
}

enum shoal_err sh_replog_learn_anew(struct sh_replog_load *load)
{
    sh_newest_destroy(load->newest);
    load->newest = NULL;
    load->records_count = 0;
    return sh_newest_create(&load->newest);
}

/* --- Handing out ------------------------------------------------------------------------------- */

/* Whether an entry is to be handed out: a chunk that is in one piece may be there twice, and its pieces may come twice. */
static bool is_handed_out(const struct sh_replog_load *load, const struct sh_replog_entry *entry,
                          uint64_t cell)
{
    return !entry->is_removal && sh_newest_is_same(cell, value_of(load, entry)) &&
           (entry->pieces > 1 || !(cell & SH_NEWEST_TAKEN));
}

static enum shoal_err offer(struct sh_replog_load *load, const struct sh_replog_entry *entry)
{
    const struct sh_replog_item item = {
        .local_id = entry->local_id,
        .creator = entry->creator,
        .piece = entry->piece,
        .pieces = entry->pieces,
        .offset = entry->offset,
        .total = entry->pieces > 1 ? entry->total : (uint32_t)entry->payload.size,
        .payload = sh_bytes_make(entry->payload.at, entry->payload.size)};
    enum shoal_err err = load->read.take(load->read.arg, load->zone, &item);
    load->has_taken |= !err;
    return err;
}

void sh_replog_flush_taken(struct sh_replog_load *load)
{
    enum shoal_err err = SHOAL_OK;
    if (load->has_taken && load->read.flush)
        err = load->read.flush(load->read.arg, load->zone);
    load->has_taken = false;
    load->err = load->err ? load->err : err;
    SH_ASSERT(err != SHOAL_EAGAIN);
}

/* A completion record has no version: one that is not old is handed out. Whether it counts is known behind the first look. */
static enum shoal_err completion_handle(struct sh_replog_load *load,
                                        const struct sh_replog_entry *entry)
{
    if (sh_replog_completion_is_old(load->zone->log, entry))
        return SHOAL_OK;
    if (load->phase == SH_REPLOG_TAKES)
        return offer(load, entry);
    return is_early(load) ? record_add(load, entry->payload) : SHOAL_OK;
}

/* EAGAIN: it is not taken now; what was learned of it is no news when it is handled again. */
static enum shoal_err chunk_handle(struct sh_replog_load *load, const struct sh_replog_entry *entry)
{
    uint64_t chunk = sh_replog_chunk_of(entry), *cell = sh_newest_cells(load->newest, chunk);
    enum shoal_err err = SHOAL_OK;
    if (!cell)
        return SHOAL_ENOMEM;
    cell += chunk % SH_NEWEST_GROUP;
    if (load->phase != SH_REPLOG_TAKES)
        err = learn(load, chunk, value_of(load, entry), cell);
    if (err)
        return err;
    bool takes = load->phase == SH_REPLOG_TAKES || is_early(load);
    if (takes && is_handed_out(load, entry, *cell)) {
        err = offer(load, entry);
        *cell |= err ? 0 : SH_NEWEST_TAKEN;
    }
    return err;
}

bool sh_replog_handle_seen(struct sh_replog_load *load)
{
    uint64_t chunks[SH_REPLOG_SEEN];
    if (load->seen_at == 0) {
        for (unsigned i = 0; i < load->seen_count; i++)
            chunks[i] = sh_replog_chunk_of(&load->seen[i]);
        sh_newest_prefetch(load->newest, chunks, load->seen_count);
    }
    for (; load->seen_at < load->seen_count; load->seen_at++) {
        const struct sh_replog_entry *entry = &load->seen[load->seen_at];
        enum shoal_err err = sh_replog_is_completion(entry) ? completion_handle(load, entry)
                                                            : chunk_handle(load, entry);
        load->is_refused = err == SHOAL_EAGAIN;
        if (load->is_refused)
            return false;
        load->err = err;
        if (err)
            return true;
    }
    load->seen_at = load->seen_count = 0;
    return true;
}

/* --- Between two looks ------------------------------------------------------------------------- */

/* Drops those chunks of the next group that were handed out; false: there is no group, or a chunk can't be dropped now. */
static bool group_drop(struct sh_replog_load *load)
{
    uint64_t first;
    if (load->between == sh_newest_groups(load->newest))
        return false;
    uint64_t *cells = sh_newest_group(load->newest, (uint32_t)load->between, &first);
    for (unsigned i = 0; i < SH_NEWEST_GROUP; i++) {
        enum shoal_err err = cells[i] & SH_NEWEST_TAKEN ? drop(load, first + i) : SHOAL_OK;
        if (err == SHOAL_EAGAIN)
            return false;
        load->err = err;
        if (err)
            return true;
        cells[i] &= ~(uint64_t)SH_NEWEST_TAKEN;
    }
    load->between++;
    return true;
}

/* Hands out the next completion record; false: there is none, or it is not taken now. */
static bool record_give(struct sh_replog_load *load)
{
    if (load->between == load->records_count)
        return false;
    const struct sh_replog_record *record = &load->records[load->between];
    const struct sh_replog_item item = {.local_id = SH_REPLOG_COMPLETION_ID,
                                        .pieces = 1,
                                        .total = record->size,
                                        .payload = sh_bytes_make(record->bytes, record->size)};
    enum shoal_err err = load->read.take(load->read.arg, load->zone, &item);
    if (err == SHOAL_EAGAIN)
        return false;
    load->has_taken |= !err;
    load->err = err;
    load->between++;
    return true;
}

unsigned sh_replog_between(struct sh_replog_load *load, unsigned most, bool *is_over_out)
{
    bool drops = load->phase == SH_REPLOG_DROPS;
    unsigned work = 0;
    SH_ASSERT(drops || load->phase == SH_REPLOG_GIVES);
    while (work < most && !load->err && (drops ? group_drop(load) : record_give(load)))
        work += drops ? SH_NEWEST_GROUP : 1;
    *is_over_out = load->between == (drops ? sh_newest_groups(load->newest) : load->records_count);
    return work;
}

enum shoal_err sh_replog_zone_read(struct sh_replog_zone *zone, const struct sh_replog_read *read)
{
    struct sh_replog_load *load;
    SH_ASSERT(read->take && read->done && (!read->tail_from || read->tail));
    enum shoal_err err = sh_replog_load_make(zone, &load);
    if (err)
        return err;
    load->read = *read;
    err = read->tail_from ? sh_replog_tail_make(load) : SHOAL_OK;
    if (!err)
        err = sh_replog_learn_anew(load);
    if (err) {
        sh_replog_load_free(load);
        return err;
    }
    zone->has_tail = false;
    sh_replog_load_begin(load);
    return SHOAL_OK;
}

/* Slots that further passes over the zone read, as far as is known. */
static uint32_t slots_to_come(const struct sh_replog_load *load)
{
    uint32_t taken = load->slots_count - load->slots_versions;
    switch (load->phase) {
    case SH_REPLOG_LOADS:
        if (load->is_other_eon)
            return load->slots_count + taken;
        return load->read.drop ? 0 : taken;
    case SH_REPLOG_DROPS:
        return load->slots_count + taken;
    case SH_REPLOG_LEARNS:
        return taken;
    case SH_REPLOG_TAILS:
        return load->is_given ? 0 : taken;
    case SH_REPLOG_GIVES:
    case SH_REPLOG_TAKES:
        break;
    }
    return 0;
}

struct sh_replog_progress sh_replog_zone_progress(const struct sh_replog_zone *zone)
{
    const struct sh_replog *log = zone->log;
    const struct sh_replog_load *load = log->load;
    struct sh_replog_progress progress = {.bytes =
                                              (uint64_t)zone->slots.count * log->head.slot_bytes};
    if (!load || load->zone != zone || !load->read.take)
        return progress;
    uint64_t read = load->passed + load->reader.next;
    uint64_t all = load->passed + load->reader.count + slots_to_come(load);
    SH_ASSERT(read <= all);
    if (all)
        progress.read = progress.bytes * read / all;
    return progress;
}

bool sh_replog_zone_has_tail(const struct sh_replog_zone *zone)
{
    return zone->has_tail;
}
