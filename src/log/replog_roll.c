/* Which spans of a zone there are to be in slots, so that a load knows damage that would else pass for a torn write.
 *
 * Nothing in a slot tells of its last span that it had been on the disk: only what is written elsewhere later can. So each span in a
 * slot has an ordinal, and tells how many *parts* the spans before a certain one (`settled`: all of them were durable) had in slots: each is one
 * itself, and each of its entries is one. A load finds the span with the highest ordinal that tells, counts the parts of those before its
 * `settled` that it can read, and knows that as many as are fewer had been on the disk, and are damaged.
 *
 * 1. A span tells the truth when it is written: spans before `settled` are durable, and those of slots that were given away are not counted.
 * 2. Before the cleaner gives slots away, a note is durable in a slot that stays (replog_clean.c): spans without entries, one for each of
 *    these slots, which name it by its use, and say how many parts it has. Until they are given away, spans tell which note counts. A load
 *    that finds the note counts what is in none of these slots, and takes as many off what was told: whatever a crash has left of them. A
 *    load that does not find it counts all, since then nothing had been given away; or the note was damaged, and so is the zone.
 *    So in a log in which nothing is damaged the last span that tells counts none that is gone.
 * 3. A write that a crash tears was not durable, so it is not before any `settled` of its process. So a torn write is never called damage. For the processes
 *    that come, a load counts what can be read of it, which is there to stay: its first entries may count.
 * 4. A start puts spans of the primary log into slots before the zone is loaded. Their ordinals are above all others', so they are not
 *    before any `settled` of former processes either. Until the load counts them, they tell what the primary log did.
 * 5. A cleaning that fails before it gives a slot away takes its note back: spans tell of none from then on, and count all. (Where it fails later, the
 *    log is out of service, or the zone is being dropped.)
 *
 * Writes that only the primary log has are no spans in slots. So each span tells before which number all was durable in slots (`slotted`). A
 * number from the highest of these on, up to the end that a load finds, was never in a slot that was cleaned, as before that a span has to be
 * durable which tells so. If it is not there, the primary log was damaged, or the slot to which a start has copied it.
 *
 * Spans of the primary log tell the same, for zones of which nothing is written to slots for long. Where the end that a load finds is before what was acknowledged, the zone's owner knows (replication.md).
 */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_roll_int.h"

/* --- Telling ----------------------------------------------------------------------------------- */

uint64_t sh_replog_zone_slotted(const struct sh_replog_zone *zone)
{
    const struct sh_replog_batch *batch = zone->oldest ? zone->oldest : zone->filling;
    if (!zone->versions)
        return zone->said_found.slotted;
    return batch ? sh_replog_place(batch->first, batch->first_piece)
                 : sh_replog_place(zone->next_sequence, zone->chain_pieces ? zone->chain_next : 0);
}

static uint32_t within_32(uint64_t number)
{
    return number < UINT32_MAX ? (uint32_t)number : UINT32_MAX;
}

/* Spans before that ordinal are durable. */
static uint32_t settled_of(const struct sh_replog_zone *zone)
{
    return zone->unsettled ? zone->unsettled->ordinal : zone->ordinal + 1;
}

/* How many parts of them are in slots. */
static uint64_t counted_of(const struct sh_replog_zone *zone)
{
    uint64_t before = zone->unsettled ? zone->unsettled->parts_before : zone->parts;
    return before > zone->parts_given ? before - zone->parts_given : 0;
}

/* A zone that was not loaded yet goes on to tell what the primary log has told. */
static void tell(const struct sh_replog_zone *zone, struct sh_span *span, uint32_t ordinal)
{
    uint64_t place = sh_replog_zone_slotted(zone), slotted = place >> 16;
    const struct sh_replog_said *found = &zone->said_found;
    bool is_added = zone->versions;
    uint32_t unsettled =
        is_added ? ordinal - settled_of(zone) : (uint32_t)(found->teller - found->settled);
    uint64_t note = is_added ? zone->note : found->note;
    uint64_t noted = note ? (is_added ? ordinal : found->teller) - note + 1 : 0;
    span->tells = (is_added || found->teller) && unsettled <= UINT16_MAX && noted <= UINT16_MAX;
    span->teller = is_added ? (uint64_t)zone->era << 32 | ordinal : found->teller;
    span->unsettled = (uint16_t)unsettled;
    span->noted = (uint16_t)noted;
    span->counted = is_added ? within_32(counted_of(zone)) : found->counted;
    span->flushes = (uint32_t)zone->flushes;
    span->tells_slotted = is_added || found->has_slotted;
    span->unslotted = span->whole > slotted ? within_32(span->whole - slotted) : 0;
    span->unslotted_piece = span->whole >= slotted ? (uint16_t)place : 0;
}

void sh_replog_ring_tell(const struct sh_replog_zone *zone, struct sh_span *span)
{
    tell(zone, span, zone->ordinal + 1);
}

void sh_replog_roll_tell(struct sh_replog_batch *batch, struct sh_span *span)
{
    struct sh_replog_zone *zone = batch->zone;
    uint32_t parts = batch->lives   ? batch->lives_count
                     : batch->gives ? batch->gives_count
                                    : 1 + batch->entries;
    batch->ordinal = ++zone->ordinal;
    if (batch->gives)
        zone->note = batch->ordinal;
    batch->parts_before = zone->parts;
    batch->made_before = zone->unsettled_last;
    batch->made_behind = NULL;
    if (zone->unsettled_last)
        zone->unsettled_last->made_behind = batch;
    else
        zone->unsettled = batch;
    zone->unsettled_last = batch;
    zone->parts += parts;
    zone->log->slots.slots[batch->slot].parts += parts;
    span->ordinal = (uint64_t)(zone->versions ? zone->era : zone->log->lap) << 32 | batch->ordinal;
    tell(zone, span, batch->ordinal);
}

void sh_replog_roll_durable(struct sh_replog_batch *batch)
{
    struct sh_replog_zone *zone = batch->zone;
    SH_ASSERT(batch->ordinal && zone->unsettled);
    if (batch->made_before)
        batch->made_before->made_behind = batch->made_behind;
    else
        zone->unsettled = batch->made_behind;
    if (batch->made_behind)
        batch->made_behind->made_before = batch->made_before;
    else
        zone->unsettled_last = batch->made_before;
}

void sh_replog_roll_begin(struct sh_replog_zone *zone)
{
    uint32_t found = (uint32_t)(zone->ordinal_found >> 32), lap = zone->log->lap;
    SH_ASSERT(!zone->unsettled);
    /* In one process a zone has one era, however often it is sealed: the spans that the next start puts into slots have ordinals above those of the
     * lap that goes on. */
    if (!zone->era || zone->era < found)
        zone->era = (found > lap ? found : lap) + 1;
    zone->parts = zone->parts_found;
    zone->parts_given = 0;
    zone->note = 0;
}

void sh_replog_roll_end(struct sh_replog_zone *zone)
{
    SH_ASSERT(zone->versions && !zone->unsettled && !zone->oldest && !zone->filling);
    uint64_t teller = (uint64_t)zone->era << 32 | (zone->ordinal + 1);
    zone->said_found = (struct sh_replog_said){.teller = teller,
                                               .settled = teller,
                                               .counted = within_32(counted_of(zone)),
                                               .has_slotted = true,
                                               .slotted = sh_replog_zone_slotted(zone)};
}

/* Numbers of flushes are not given again, or what a slot of the version log has of a former use would count: also where the version log is
 * damaged, of which nobody tells, as it is not needed but for that. Behind the last span there were fewer flushes than a slot has blocks. */
void sh_replog_flushes_said(struct sh_replog_zone *zone, const struct sh_span *span)
{
    uint64_t flushes = sh_replog_flush_least(span->incarnation) + span->flushes +
                       zone->log->head.slot_bytes / SH_BLOCK_BYTES;
    if (zone->flushes < flushes)
        zone->flushes = flushes;
}

/* --- Calling ----------------------------------------------------------------------------------- */

/* Of what tells by the same name a span of a slot that has that name itself was the last. */
static bool is_later(const struct sh_replog_said *said, uint64_t teller)
{
    return teller > said->teller || (teller == said->teller && !said->is_own);
}

static void slotted_add(struct sh_replog_said *said, uint64_t slotted)
{
    said->slotted = slotted > said->slotted ? slotted : said->slotted;
    said->has_slotted = true;
}

void sh_replog_said_add(struct sh_replog_said *said, const struct sh_span *span)
{
    if (span->tells && is_later(said, span->teller)) {
        said->teller = span->teller;
        said->settled = span->teller - span->unsettled;
        said->counted = span->counted;
        said->note = span->noted ? span->teller - (span->noted - 1u) : 0;
        said->is_own = span->ordinal == span->teller;
    }
    if (span->tells_slotted)
        slotted_add(said,
                    span->whole < span->unslotted
                        ? 0
                        : sh_replog_place(span->whole - span->unslotted, span->unslotted_piece));
}

void sh_replog_said_merge(struct sh_replog_said *said, const struct sh_replog_said *of_ring)
{
    if (of_ring->teller && is_later(said, of_ring->teller)) {
        said->teller = of_ring->teller;
        said->settled = of_ring->settled;
        said->counted = of_ring->counted;
        said->note = of_ring->note;
    }
    if (of_ring->has_slotted)
        slotted_add(said, of_ring->slotted);
}

enum shoal_err sh_replog_roll_head(struct sh_replog_roll *roll, const struct sh_span *span)
{
    sh_replog_said_add(&roll->said, span);
    if (!span->gives)
        return SHOAL_OK;
    void *items = roll->notes;
    enum shoal_err err =
        sh_replog_room_make(&items, roll->notes_count, &roll->notes_room, sizeof *roll->notes);
    roll->notes = items;
    if (!err)
        roll->notes[roll->notes_count++] =
            (struct sh_replog_note){span->ordinal, span->given_use, span->given_parts};
    return err;
}

enum shoal_err sh_replog_roll_span(struct sh_replog_roll *roll,
                                   const struct sh_replog_called *called)
{
    void *items = roll->called;
    enum shoal_err err =
        sh_replog_room_make(&items, roll->count, &roll->room, sizeof *roll->called);
    roll->called = items;
    if (!err)
        roll->called[roll->count++] = *called;
    return err;
}

/* Whether the slot with that use was being given away, by the note that counts. */
static bool is_given(const struct sh_replog_roll *roll, uint64_t use)
{
    for (size_t i = 0; roll->said.note && i < roll->notes_count; i++) {
        if (roll->notes[i].ordinal == roll->said.note && roll->notes[i].use == use)
            return true;
    }
    return false;
}

uint32_t sh_replog_roll_lacking(const struct sh_replog_roll *roll,
                                const struct sh_replog_called **place_out)
{
    uint64_t there = 0;
    *place_out = NULL;
    for (size_t i = 0; i < roll->count; i++) {
        const struct sh_replog_called *called = &roll->called[i];
        bool is_before = called->ordinal < roll->said.settled && !is_given(roll, called->use);
        there += is_before ? called->parts : 0;
        if (is_before && !called->is_whole && !*place_out)
            *place_out = called;
    }
    for (size_t i = 0; roll->said.note && i < roll->notes_count; i++)
        there += roll->notes[i].ordinal == roll->said.note ? roll->notes[i].parts : 0;
    return roll->said.counted > there ? (uint32_t)(roll->said.counted - there) : 0;
}

void sh_replog_roll_free(struct sh_replog_roll *roll)
{
    free(roll->called);
    free(roll->notes);
}

bool sh_replog_roll_lacks_numbers(const struct sh_replog_roll *roll,
                                  const struct sh_replog_ranges *ranges,
                                  const struct sh_replog_lives *lives, uint64_t end)
{
    return roll->said.has_slotted &&
           sh_replog_ranges_lack(ranges, lives, roll->said.slotted, sh_replog_place(end, 0));
}

bool sh_replog_roll_lacks_lost(const struct sh_replog_roll *roll,
                               const struct sh_replog_ranges *ranges,
                               const struct sh_replog_lives *lives, uint64_t number)
{
    uint64_t last = sh_replog_place(number, UINT16_MAX); /* its last piece is not there */
    return last >= roll->said.slotted && sh_replog_ranges_lack(ranges, lives, last, last + 1);
}

uint64_t sh_replog_roll_newest(const struct sh_replog_roll *roll)
{
    uint64_t newest = 0;
    for (size_t i = 0; i < roll->count; i++)
        newest = roll->called[i].ordinal > newest ? roll->called[i].ordinal : newest;
    return newest;
}
