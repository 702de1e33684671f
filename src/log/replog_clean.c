/* Cleaning a zone: what is current in some of its slots (replog_select.c) is copied to others, and the slots are free.
 *
 *   version log ──► currents ──┐
 *                              ├──► is it superseded? ── no ──► survivors' batch ──► a slot of survivors
 *   some slots ───► entries ───┘                       └ yes: dropped
 *
 * The cleaner drops current entries, too, where the same is in a slot that stays, or has been copied (replog_clean_kept.c).
 *
 * Several slots are cleaned for each load of the versions. Where the version log has grown to twice of what it needs, what was
 * loaded is written anew (replog_compact.c), and its slots go with those that are cleaned. What was written in the epoch that goes on is asked of the zone's
 * table; epochs that end meanwhile are learned as they are encoded. An entry that is newer than what is known is kept, and
 * known from then on, so versions that a crash has lost do no harm.
 *
 * A slot is given away once its survivors are durable, and everything that was written before its last entry was looked at:
 * what superseded an entry must not be lost after it. A span elsewhere has to say that its sequence numbers were durable,
 * or a load would miss them. Then its own head is zeroed and synced, so that a start does not find it again.
 *
 * The mark of a removal is dropped when no older entry of its chunk can come back: whatever is in another slot of the zone
 * came after it, or was current after it, and four laps of the primary log have begun since. (A start reads the last lap that
 * has a pack on the disk, and the one before; the lap that has just begun may have none, and the first pack of a lap has
 * entries from before it.)
 *
 * DXRAM thesis 6 VIII (reorganization), which cleans in place of the old segment; here a slot is written once. */
#include "base/assert.h"
#include "base/log.h"
#include "log/replog_clean_int.h"

#define EACH_STEP 2000                /* entries or tuples */
#define RUN_EACH 65536                /* chunks of a run that are put at a time */
#define AGAIN_NS UINT64_C(1000000000) /* after a cleaning that failed */
#define HEADS_EACH (SH_BLOCK_BYTES / SH_SPAN_HEAD_BYTES) /* are in one block */
_Static_assert(SH_REPLOG_CLEAN_SLOTS <= HEADS_EACH, "what is given away is noted in one block");
#define COMPACT_MIN 2 /* slots of the version log, beside twice of what the last compaction took */

void sh_replog_clean_end(struct sh_replog *log)
{
    struct sh_replog_clean *clean = log->clean;
    if (!clean)
        return;
    if (clean->survivors)
        sh_replog_batch_free(clean->survivors);
    sh_replog_reader_end(&clean->reader);
    if (clean->compaction.batch)
        sh_replog_batch_free(clean->compaction.batch);
    sh_replog_clean_memory_settle(log->clean_memory);
    log->clean = NULL;
}

const struct sh_replog_zone *sh_replog_clean_zone(const struct sh_replog_clean *clean)
{
    return clean->zone;
}

/* Nothing more is written to that slot. */
static void gone_add(struct sh_replog_clean *clean, uint32_t slot)
{
    clean->zone->log->slots.slots[slot].is_closed = true;
    clean->gone[clean->gone_count++] = slot;
}

static void on_durable(struct sh_replog_batch *batch)
{
    batch->zone->log->clean->on_their_way--;
    sh_replog_batch_free(batch);
}

/* Begins a compaction if it is worth it: the slots of the version log are among those that are listed. */
static void compaction_choose(struct sh_replog_clean *clean)
{
    struct sh_replog_zone *zone = clean->zone;
    const struct sh_log_slot *slots = zone->log->slots.slots;
    unsigned count = 0;
    bool has_old = false;
    for (unsigned i = 0; i < clean->count; i++) {
        const struct sh_log_slot *slot = &slots[clean->slots[i]];
        count += slot->kind == SH_SLOT_VERSIONS;
        has_old |= slot->kind == SH_SLOT_VERSIONS && sh_replog_eon_is_old(zone, slot);
    }
    const struct sh_replog *log = zone->log;
    uint32_t left = log->slots.free_count + (log->room.is_full ? 0 : log->slots.bare_count);
    bool has_room = left > zone->compacted + 2;
    bool is_due = clean->is_of_eon ? has_old : count >= COMPACT_MIN + 2 * zone->compacted;
    if (!is_due || !has_room)
        return;
    for (unsigned i = 0; i < clean->count; i++) {
        if (slots[clean->slots[i]].kind == SH_SLOT_VERSIONS)
            gone_add(clean, clean->slots[i]);
    }
    sh_replog_compaction_begin(&clean->compaction, zone, on_durable, &clean->on_their_way);
}

static enum shoal_err begin(struct sh_replog *log, struct sh_replog_zone *zone)
{
    const struct sh_currents_config config = {.base = zone->config.range_first,
                                              .count = zone->config.range_count,
                                              .rest_max = zone->rest_max};
    struct sh_replog_clean_memory *memory;
    enum shoal_err err = sh_replog_clean_memory_take(zone, sh_currents_bytes(&config), &memory);
    if (err)
        return err;
    struct sh_replog_clean *clean = &memory->clean;
    *clean = (struct sh_replog_clean){.zone = zone,
                                      .currents = sh_currents_make(&config, memory->currents),
                                      .slots = memory->slots,
                                      .listed = memory->listed,
                                      .gone = memory->gone,
                                      .begun = log->slots.taken,
                                      .seconds = log->seconds,
                                      .is_of_eon = sh_replog_eon_is_due(zone)};
    sh_replog_reader_begin_in(&clean->reader, log, memory->buffers);
    clean->reader.is_bulk = true;
    sh_replog_clean_choose(clean);
    sh_replog_clean_list_tellers(clean);
    compaction_choose(clean);
    sh_replog_kept_pieces_make(&clean->kept, zone, memory);
    sh_replog_reader_slots(&clean->reader, clean->slots, clean->count);
    log->clean = clean;
    return SHOAL_OK;
}

static unsigned begin_next(struct sh_replog *log)
{
    struct sh_replog_zone *zone = sh_replog_select_zone(log);
    if (!zone)
        return 0;
    if (!begin(log, zone))
        return 1;
    sh_replog_clean_put_off(zone, AGAIN_NS); /* there was no memory */
    return 0;
}

/* --- Versions ---------------------------------------------------------------------------------- */

static void learn(struct sh_replog_clean *clean, uint64_t first, uint64_t last,
                  struct sh_replog_version version, bool is_removal)
{
    uint16_t eon = sh_replog_eon_of(clean->zone->epoch); /* which stays until the end */
    enum shoal_err err = sh_currents_put(clean->currents, first, last,
                                         sh_replog_version_in(version, eon), is_removal);
    if (!err)
        return;
    clean->err = err;
    if (err ==
        SHOAL_EFULL) /* there are more chunks beside the long range: the next time there is room for twice as many */
        clean->zone->rest_max = 2 * clean->zone->rest_max + RUN_EACH;
}

void sh_replog_clean_learn(struct sh_replog_zone *zone, uint64_t first, uint64_t last,
                           struct sh_replog_version version, bool is_removal)
{
    struct sh_replog_clean *clean = zone->log->clean;
    if (clean && clean->zone == zone && clean->phase <= COPIES)
        learn(clean, first, last, version, is_removal);
}

/* Puts a part of the tuple that is at hand; how many chunks. */
static unsigned tuple_put(struct sh_replog_clean *clean)
{
    struct sh_version_tuple *tuple = &clean->tuple;
    uint64_t last = tuple->last - tuple->first < RUN_EACH ? tuple->last : tuple->first + RUN_EACH;
    unsigned count = (unsigned)(last - tuple->first) + 1;
    learn(clean, tuple->first, last, tuple->version, tuple->is_removal);
    tuple->first = last == tuple->last ? 0 : last + 1;
    return count;
}

static const struct sh_log_slot *slot_of(const struct sh_replog_clean *clean)
{
    return &clean->zone->log->slots.slots[clean->slots[clean->reader.next]];
}

static void slot_end(struct sh_replog_clean *clean)
{
    clean->is_open = false;
    clean->reader.next++;
}

/* A slot of entries is over. */
static void entries_end(struct sh_replog_clean *clean)
{
    const struct sh_replog_walk *walk = &clean->walk;
    uint32_t slot = clean->slots[clean->reader.next];
    bool was_synced = !slot_of(clean)->is_found || slot_of(clean)->is_whole;
    slot_end(clean);
    if (!walk->is_damaged && !(was_synced && walk->broken != SIZE_MAX))
        return;
    struct sh_replog *log = clean->zone->log;
    sh_replog_damage_tell(log, clean->zone, slot, sh_replog_broken_at(log, slot, walk));
}

static void slot_begin(struct sh_replog_clean *clean, const uint8_t *slot)
{
    if (clean->is_open)
        return;
    struct sh_replog_zone *zone = clean->zone;
    const struct sh_log_slot *of = slot_of(clean);
    sh_replog_walk_begin(&clean->walk, of->kind == SH_SLOT_ENTRIES ? &zone->lives : NULL, slot,
                         zone->log->head.slot_bytes, of->use);
    clean->is_open = true;
    clean->stays = !sh_replog_clean_is_chosen(clean, clean->slots[clean->reader.next]);
}

/* Learns the versions of entries that count. Those of slots that stay are kept. */
static void entries_step(struct sh_replog_clean *clean, const uint8_t *slot)
{
    struct sh_replog_entry entry;
    slot_begin(clean, slot);
    for (unsigned i = 0; i < EACH_STEP && !clean->err; i++) {
        enum sh_replog_walked got = sh_replog_walk_next(&clean->walk, &entry);
        if (got == SH_REPLOG_WALKED_END) {
            entries_end(clean);
            break;
        }
        if (got != SH_REPLOG_WALKED_ENTRY || clean->walk.is_void || sh_replog_is_completion(&entry))
            continue;
        uint64_t chunk = sh_replog_chunk_of(&entry);
        sh_replog_entry_rename(&entry, sh_replog_eon_of(clean->zone->epoch));
        learn(clean, chunk, chunk, entry.version, entry.is_removal);
        if (clean->stays)
            sh_replog_clean_keep(clean, &entry);
        i += sh_replog_entry_share(&entry);
    }
}

static void tuples_step(struct sh_replog_clean *clean, const uint8_t *slot)
{
    const struct sh_replog *log = clean->zone->log;
    struct sh_bytes bytes =
        sh_bytes_make(slot + SH_SLOT_HEAD_BYTES, log->head.slot_bytes - SH_SLOT_HEAD_BYTES);
    struct sh_log_slot_head head;
    bool is_slot = sh_log_slot_get(slot, log->head.number, &head);
    for (unsigned i = 0; i < EACH_STEP && !clean->err; i++) {
        if (clean->tuple.first) {
            i += tuple_put(clean) / 100; /* a run takes its time */
        } else if (!clean->is_open ||
                   sh_version_reader_next(&clean->tuples, &clean->tuple) != SH_VERSION_TUPLE) {
            clean->is_open =
                is_slot && sh_version_piece_next(bytes, &clean->at, clean->zone->id,
                                                 sh_replog_flush_least_in(&head), &clean->tuples);
            if (clean->is_open)
                continue;
            clean->at = 0;
            slot_end(clean);
            break;
        }
    }
}

static unsigned versions_step(struct sh_replog_clean *clean)
{
    const uint8_t *slot = sh_replog_reader_bytes(&clean->reader);
    if (!slot)
        return 0;
    if (slot_of(clean)->kind == SH_SLOT_VERSIONS)
        tuples_step(clean, slot);
    else
        entries_step(clean, slot);
    return 1;
}

/* --- Copying ----------------------------------------------------------------------------------- */

/* Nothing more is written to the slots that are cleaned. */
static void copies_begin(struct sh_replog_clean *clean)
{
    unsigned most = clean->chosen_count;
    uint32_t left = clean->zone->log->slots.free_count;
    if (most + 1 > left) /* what survives may need as many, and one more */
        most = left > 2 ? left - 1 : 1;
    sh_replog_clean_since_find(clean);
    sh_replog_clean_list_chosen(clean, most);
    for (unsigned i = 0; i < clean->count; i++) {
        gone_add(clean, clean->slots[i]);
        sh_replog_tally_slot(clean->tallies, clean->zone,
                             &clean->zone->log->slots.slots[clean->slots[i]]);
    }
    sh_replog_reader_slots(&clean->reader, clean->slots, clean->count);
    clean->phase = COPIES;
}

static bool newest_of(const struct sh_replog_clean *clean, uint64_t chunk,
                      struct sh_replog_version *newest_out)
{
    bool is_removal;
    newest_out->epoch = clean->zone->epoch;
    return sh_versions_get(clean->zone->versions, chunk, &newest_out->number, &is_removal) ||
           sh_currents_get(clean->currents, chunk, newest_out, &is_removal);
}

/* No entry of its chunk that is older can come back. */
static bool may_go(const struct sh_replog_clean *clean, const struct sh_replog_entry *mark)
{
    const struct sh_replog *log = clean->zone->log;
    const struct sh_log_slot *own = slot_of(clean);
    uint32_t since = own->is_found ? 0 : own->since;
    uint32_t others = since == clean->since_least ? clean->since_next : clean->since_least;
    bool is_overtaken = !log->head.primary_blocks || mark->seconds < log->lap_since[3];
    /* Slots that were begun since the cleaning did came later still. */
    return is_overtaken && others > mark->seconds && clean->seconds > mark->seconds;
}

static enum shoal_err survivors_begin(struct sh_replog_clean *clean)
{
    enum shoal_err err = sh_replog_batch_begin(clean->zone, SH_SLOT_SURVIVORS, &clean->survivors);
    if (err)
        return err;
    clean->survivors->done = on_durable;
    clean->survivors->is_cleaners = true;
    return SHOAL_OK;
}

static enum shoal_err survivors_go(struct sh_replog_clean *clean)
{
    enum shoal_err err = sh_replog_other_ready(clean->survivors);
    if (err)
        return err;
    clean->survivors = NULL;
    clean->on_their_way++;
    return SHOAL_OK;
}

static enum shoal_err copy(struct sh_replog_clean *clean, const struct sh_replog_entry *entry)
{
    enum shoal_err err = SHOAL_OK;
    size_t stored = sh_replog_entry_stored(entry);
    if (clean->survivors && !sh_replog_batch_fits(clean->survivors, stored))
        err = survivors_go(clean);
    if (!err && !clean->survivors)
        err = survivors_begin(clean);
    if (!err)
        err = sh_replog_batch_reserve(clean->survivors, stored);
    if (err)
        return err;
    sh_replog_batch_put(clean->survivors, entry);
    sh_replog_survivor_note(clean->survivors, slot_of(clean), entry);
    return SHOAL_OK;
}

/* Keeps an entry, or not. EAGAIN: there is no room in memory now. */
static enum shoal_err look_at(struct sh_replog_clean *clean, const struct sh_replog_entry *entry)
{
    uint64_t chunk = sh_replog_chunk_of(entry);
    struct sh_replog_version newest;
    struct sh_replog_status *status = &clean->zone->log->status;
    bool is_completion = sh_replog_is_completion(entry); /* has no version, nothing is newer */
    if (is_completion
            ? sh_replog_completion_is_over(clean->zone, entry)
            : newest_of(clean, chunk, &newest) && sh_replog_is_newer(newest, entry->version)) {
        status->entries_dropped++;
        sh_replog_tally_entry(clean->tallies, slot_of(clean), entry, false);
        return SHOAL_OK;
    }
    if (!is_completion && sh_replog_clean_is_kept(clean, entry)) {
        status->entries_dropped++;
        status->entries_twice++;
        return SHOAL_OK;
    }
    if (entry->is_removal && may_go(clean, entry)) {
        status->marks_dropped++;
        return SHOAL_OK;
    }
    enum shoal_err err = copy(clean, entry);
    if (err)
        return err;
    status->entries_kept++;
    sh_replog_tally_entry(clean->tallies, slot_of(clean), entry, true);
    clean->zone->keeps_passing |= is_completion || entry->is_removal;
    if (is_completion)
        return SHOAL_OK;
    learn(clean, chunk, chunk, entry->version, entry->is_removal);
    sh_replog_clean_keep(clean, entry);
    return SHOAL_OK;
}

/* The next entry that counts; false: there is none in this slot. */
static bool entry_next(struct sh_replog_clean *clean, unsigned *work)
{
    if (clean->is_held)
        return true;
    for (;;) {
        enum sh_replog_walked got = sh_replog_walk_next(&clean->walk, &clean->held);
        if (got == SH_REPLOG_WALKED_END)
            return false;
        ++*work;
        clean->held.is_with_next = false; /* both of a pair count, and go their ways */
        sh_replog_entry_rename(&clean->held, sh_replog_eon_of(clean->zone->epoch));
        if (got == SH_REPLOG_WALKED_ENTRY && !clean->walk.is_void)
            return true;
    }
}

static unsigned copy_step(struct sh_replog_clean *clean)
{
    const uint8_t *slot = sh_replog_reader_bytes(&clean->reader);
    if (!slot)
        return 0;
    slot_begin(clean, slot);
    for (unsigned i = 0; i < EACH_STEP && !clean->err;) {
        if (!entry_next(clean, &i)) {
            entries_end(clean);
            break;
        }
        enum shoal_err err = look_at(clean, &clean->held);
        clean->is_held = err == SHOAL_EAGAIN;
        if (clean->is_held)
            return i;
        if (err)
            clean->err = err;
        i += 1 + sh_replog_entry_share(&clean->held);
    }
    return 1;
}

/* All is copied: the last batch goes. */
static unsigned settle_begin(struct sh_replog_clean *clean)
{
    if (clean->survivors) {
        enum shoal_err err = survivors_go(clean);
        if (err == SHOAL_EAGAIN)
            return 0;
        if (err) {
            clean->err = err;
            return 1;
        }
    }
    clean->wanted = sh_replog_next(clean->zone);
    sh_replog_sync(clean->zone);
    clean->phase = SETTLES;
    return 1;
}

/* Begins a batch without entries, for what its spans' heads say: so many of them. False: not now. */
static bool heads_begin(struct sh_replog_clean *clean, unsigned count)
{
    static const uint8_t room_for_heads[HEADS_EACH * SH_SPAN_HEAD_BYTES];
    struct sh_blocks *blocks = clean->zone->log->blocks;
    const size_t more = (count - 1) * SH_SPAN_HEAD_BYTES;
    SH_ASSERT(count && count <= HEADS_EACH);
    if (!clean->survivors && survivors_begin(clean))
        return false;
    if (sh_chain_reserve(blocks, &clean->survivors->chain, more))
        return false;
    sh_chain_put(blocks, &clean->survivors->chain, sh_bytes_make(room_for_heads, more));
    return true;
}

/* The batch goes; false: not now. */
static bool heads_go(struct sh_replog_clean *clean)
{
    enum shoal_err err = survivors_go(clean);
    if (err == SHOAL_EAGAIN) { /* the disk has no room yet: it is made anew */
        sh_replog_batch_free(clean->survivors);
        clean->survivors = NULL;
        return false;
    }
    if (err)
        clean->err = err;
    return true;
}

/* A span each for these lives. */
static bool lives_record(struct sh_replog_clean *clean, const struct sh_replog_life *lives,
                         unsigned count)
{
    if (!heads_begin(clean, count))
        return false;
    clean->survivors->lives = lives;
    clean->survivors->lives_count = count;
    return heads_go(clean);
}

/* A span each for the slots of entries that are given away, which are the last ones of those. */
static bool gone_note(struct sh_replog_clean *clean)
{
    if (!heads_begin(clean, clean->count))
        return false;
    clean->survivors->gives = clean->gone + (clean->gone_count - clean->count);
    clean->survivors->gives_count = clean->count;
    return heads_go(clean);
}

/* All is durable. A batch says so, which has no entries, and which slots are given away (replog_roll.c). So long as there are slots that may have writes that
 * do not count, from an earlier process or of chunks that were abandoned, one says of each life when it began: that may be known of a slot only that is given
 * away. */
static unsigned record(struct sh_replog_clean *clean)
{
    struct sh_replog_zone *zone = clean->zone;
    struct sh_replog_lives *lives = &zone->lives;
    bool has_old = sh_replog_clean_has_found(clean);
    if (!has_old)
        sh_replog_lives_forget(zone);
    sh_replog_eon_forget(zone);
    while ((has_old || zone->has_void) && clean->recorded < lives->count && !clean->err) {
        unsigned left = lives->count - clean->recorded;
        unsigned count = left < HEADS_EACH ? left : HEADS_EACH;
        if (!lives_record(clean, &lives->lives[clean->recorded], count))
            return 0;
        clean->recorded += count;
    }
    if (clean->count && !clean->err && !gone_note(clean))
        return 0;
    clean->phase = RECORDS;
    return 1;
}

/* --- The end ------------------------------------------------------------------------------------ */

/* Slots that the cleaner has taken for what survived, and for a compaction. */
static unsigned slots_taken(const struct sh_replog_clean *clean)
{
    const struct sh_log_slot *slots = clean->zone->log->slots.slots;
    unsigned taken = 0;
    for (uint32_t i = clean->zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next) {
        bool is_its = slots[i].kind == SH_SLOT_SURVIVORS ||
                      (clean->compaction.zone && slots[i].kind == SH_SLOT_VERSIONS);
        taken += is_its && slots[i].order >= clean->begun;
    }
    return taken;
}

static unsigned end(struct sh_replog *log, bool is_done)
{
    struct sh_replog_clean *clean = log->clean;
    struct sh_replog_zone *zone = clean->zone;
    unsigned taken = slots_taken(clean);
    zone->fruitless_ns = log->now_ns;
    for (unsigned i = 0; is_done && i < clean->gone_count; i++) {
        zone->parts_given += log->slots.slots[clean->gone[i]].parts;
        sh_log_slots_give(&log->slots, &zone->slots, clean->gone[i]);
    }
    if (is_done || clean->phase < GIVES) /* else some of them may be gone */
        zone->note = 0;
    if (is_done)
        sh_replog_tally_end(clean->tallies, zone);
    log->status.slots_cleaned += is_done ? clean->count : 0;
    log->status.compactions += is_done && clean->compaction.zone;
    if (!is_done && clean->phase >= COPIES)
        zone->twice_order = log->slots.taken;
    if (!is_done)
        sh_replog_clean_put_off(zone, AGAIN_NS);
    else if (clean->gone_count > taken)
        zone->fruitless = 0;
    else if (!clean->is_of_eon)
        zone->fruitless += clean->count ? clean->count : 1;
    else if (!clean->gone_count)
        sh_replog_clean_put_off(zone, AGAIN_NS);
    sh_replog_clean_end(log);
    sh_replog_clean_if_full(zone);
    return 1;
}

/* --- Steps ------------------------------------------------------------------------------------- */

static unsigned compact_step(struct sh_replog_clean *clean)
{
    unsigned work = 0;
    clean->err = sh_replog_compaction_step(&clean->compaction, clean->currents, &work);
    if (!clean->err && sh_replog_compaction_is_sent(&clean->compaction))
        copies_begin(clean);
    return work;
}

static unsigned phase_step(struct sh_replog_clean *clean)
{
    unsigned work = sh_replog_reader_step(&clean->reader);
    bool is_read = sh_replog_reader_is_over(&clean->reader);
    switch (clean->phase) {
    case LOADS_VERSIONS:
        if (!is_read)
            return work + versions_step(clean);
        if (clean->compaction.zone)
            clean->phase = COMPACTS;
        else
            copies_begin(clean);
        return 1;
    case COMPACTS:
        return compact_step(clean);
    case COPIES:
        return work + (is_read ? settle_begin(clean) : copy_step(clean));
    case SETTLES:
        if (sh_replog_durable(clean->zone) < clean->wanted ||
            (clean->on_their_way && !clean->recorded))
            return 0;
        return record(clean);
    case RECORDS:
        if (clean->on_their_way)
            return 0;
        clean->phase = GIVES;
        clean->giving = (struct sh_replog_giving){.log = clean->zone->log,
                                                  .slots = clean->gone,
                                                  .count = clean->gone_count,
                                                  .block = clean->zone->log->zeros};
        return 1;
    case GIVES:
        return clean->giving.is_synced ? end(clean->zone->log, true)
                                       : sh_replog_giving_step(&clean->giving);
    }
    SH_ASSERT(!"a phase");
    return 0;
}

unsigned sh_replog_clean_step(struct sh_replog *log)
{
    struct sh_replog_clean *clean = log->clean;
    if (log->trouble)
        return 0;
    if (!clean)
        return begin_next(log);
    if (clean->zone->is_ending) /* its table can't be asked now */
        return 0;
    /* What is given away while the zone is being sealed is given away to the end: spans say so. */
    bool is_given_up =
        clean->zone->is_dropping || (clean->zone->is_sealing && clean->phase < GIVES);
    if (!clean->err)
        clean->err = is_given_up ? SHOAL_EBUSY : sh_replog_reader_err(&clean->reader);
    /* Nothing of a damaged zone is given away: another replica may have what it lacks. The scrub finds damage of the version log, too. */
    if (!clean->err && clean->zone->is_damaged && clean->phase < GIVES)
        clean->err = SHOAL_ECORRUPT;
    if (!clean->err)
        return phase_step(clean);
    if (sh_replog_reader_is_busy(&clean->reader) || clean->on_their_way || clean->giving.in_flight)
        return 0;
    return end(log, false);
}
