/* Reading a zone: what is current of it is handed out, as a recovery needs it. The passes are replog_load.c's. */
#include "base/assert.h"
#include "log/replog_load_int.h"

#define RUN_EACH 65536u /* chunks of a run that are learned at a time */

static uint64_t chunk_of(const struct sh_replog_entry *entry)
{
    return entry->local_id | (uint64_t)entry->creator << 48;
}

/* --- Learning ---------------------------------------------------------------------------------- */

/* A version costs 24 bytes in a hash table and 8 in an array, where gaps cost as much. */
#define HULL_SHARE 8u

static void hull_add(struct sh_replog_load *load, uint64_t first, uint64_t last)
{
    if (first >> 48 != load->zone->owner)
        return;
    if (!load->hull_seen || first < load->hull_first)
        load->hull_first = first;
    if (!load->hull_seen || last > load->hull_last)
        load->hull_last = last;
    load->hull_seen += last - first + 1;
}

/* Where a caller knows no range, and the chunks lie close, all of them are one. */
static void range_choose(struct sh_replog_load *load)
{
    struct sh_replog_read *read = &load->read;
    uint64_t count = load->hull_last - load->hull_first + 1;
    if (read->range_count || !load->hull_seen || count > SH_CURRENTS_CHUNKS_MAX ||
        count / HULL_SHARE > load->hull_seen) {
        read->rest_max = 4 * read->rest_max + RUN_EACH;
        return;
    }
    read->range_first = load->hull_first;
    read->range_count = count;
}

static void learn(struct sh_replog_load *load, uint64_t first, uint64_t last,
                  struct sh_replog_version version, bool is_removal)
{
    enum shoal_err err = sh_currents_put(load->currents, first, last,
                                         sh_replog_version_in(version, load->eon), is_removal);
    if (err == SHOAL_EFULL)
        load->has_no_room = true;
    else if (err)
        load->err = err;
}

void sh_replog_learn_entry(struct sh_replog_load *load, const struct sh_replog_entry *entry)
{
    if (load->walk.is_void || sh_replog_is_completion(entry)) /* that has no version */
        return;
    uint64_t chunk = chunk_of(entry);
    hull_add(load, chunk, chunk);
    if (!load->has_no_room)
        learn(load, chunk, chunk, entry->version, entry->is_removal);
}

unsigned sh_replog_learn_tuple(struct sh_replog_load *load)
{
    struct sh_version_tuple *tuple = &load->tuple;
    uint64_t last = tuple->last - tuple->first < RUN_EACH ? tuple->last : tuple->first + RUN_EACH;
    unsigned count = (unsigned)(last - tuple->first) + 1;
    hull_add(load, tuple->first, last);
    if (!load->has_no_room)
        learn(load, tuple->first, last, tuple->version, tuple->is_removal);
    tuple->first = last == tuple->last ? 0 : last + 1;
    return count / 100; /* a run takes its time */
}

enum shoal_err sh_replog_learn_anew(struct sh_replog_load *load)
{
    struct sh_replog_read *read = &load->read;
    if (load->has_no_room)
        range_choose(load);
    load->hull_seen = 0;
    if (read->rest_max > SH_CURRENTS_CHUNKS_MAX)
        return SHOAL_ENOMEM;
    const struct sh_currents_config config = {
        .base = read->range_first, .count = read->range_count, .rest_max = read->rest_max};
    load->has_no_room = false;
    sh_currents_destroy(load->currents);
    load->currents = NULL;
    return sh_currents_create(&config, &load->currents);
}

/* --- Handing out ------------------------------------------------------------------------------- */

static bool is_handed_out(const struct sh_replog_load *load, const struct sh_replog_entry *entry)
{
    if (load->walk.is_void || entry->is_removal)
        return false;
    if (sh_replog_is_completion(entry))
        return !sh_replog_completion_is_old(load->zone->log, entry);
    return sh_currents_is_current(load->currents, chunk_of(entry),
                                  sh_replog_version_in(entry->version, load->eon));
}

/* The next entry that counts and is current; false: the slot has no more. */
static bool current_next(struct sh_replog_load *load, unsigned *work)
{
    struct sh_replog_entry *entry = &load->held;
    for (;;) {
        enum sh_replog_walked got = sh_replog_walk_next(&load->walk, entry);
        if (got == SH_REPLOG_WALKED_END)
            return false;
        ++*work;
        if (got != SH_REPLOG_WALKED_ENTRY)
            continue;
        *work += sh_replog_entry_share(entry);
        if (is_handed_out(load, entry))
            return true;
    }
}

enum sh_replog_taken sh_replog_take_next(struct sh_replog_load *load, unsigned *work)
{
    const struct sh_replog_entry *entry = &load->held;
    if (!load->is_held && !current_next(load, work))
        return SH_REPLOG_NO_MORE;
    bool is_piece = entry->pieces > 1;
    const struct sh_replog_item item = {
        .local_id = entry->local_id,
        .creator = entry->creator,
        .piece = entry->piece,
        .pieces = entry->pieces,
        .offset = entry->offset,
        .total = is_piece ? entry->total : (uint32_t)entry->payload.size,
        .payload = sh_bytes_make(entry->payload.at, entry->payload.size)};
    enum shoal_err err = load->read.take(load->read.arg, load->zone, &item);
    load->is_held = err == SHOAL_EAGAIN;
    if (load->is_held)
        return SH_REPLOG_NOT_NOW;
    if (err)
        load->err = err;
    else if (!is_piece) /* it may be there twice */
        sh_currents_forget(load->currents, chunk_of(entry));
    return SH_REPLOG_TAKEN;
}

enum shoal_err sh_replog_zone_read(struct sh_replog_zone *zone, const struct sh_replog_read *read)
{
    struct sh_replog_load *load;
    SH_ASSERT(read->take && read->done);
    enum shoal_err err = sh_replog_load_make(zone, &load);
    if (err)
        return err;
    load->read = *read;
    err = sh_replog_learn_anew(load);
    if (err) {
        sh_replog_load_free(load);
        return err;
    }
    sh_replog_load_begin(load);
    return SHOAL_OK;
}
