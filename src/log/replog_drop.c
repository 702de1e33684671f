/* Dropping a zone: all of its slots are free, and nothing of it comes back.
 *
 *   SETTLES ──► MARKS ──► GIVES ──► (GIVES_MARK) ──► dropped
 *
 * SETTLES: batches of which no write has begun are freed; those on their way to the disk get there, the cleaner's too.
 *
 * MARKS: first the disk says that the zone is dropped. Slots go one by one, and what is left of a zone after a crash would pass for
 * all of it; and the primary log has spans of it that the next start would copy to slots. The mark is a span without entries, of
 * life 0, in the primary log, which is synced before the drop goes on, also where packs are synced later. That is read in order, and
 * overwritten in order (replog_primary.c), so what of the primary log the mark is about is gone before the mark is; and it is not overwritten
 * before the drop is over.
 * It tells of incarnations: what the zone gets when it is added again has a higher one. A log without a primary log has nothing to
 * copy; there the head of one of the slots is the mark, which goes last.
 *
 * GIVES: the heads are zeroed and synced. A start that finds the mark does that (replog_open.c); then it begins a lap, and no later
 * start reads the mark, nor what it is about. */
#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"

#define FENCES_WITHOUT_MARK 1024u /* that a log without a primary log remembers */

enum phase { SETTLES, MARKS, GIVES, GIVES_MARK };

struct sh_replog_drop {
    struct sh_replog_zone *zone;
    void (*dropped)(void *arg, uint64_t id, enum shoal_err err);
    void *arg;
    struct sh_replog_drop *next;
    enum phase phase;
    bool is_marking;  /* the mark is on its way to the primary log */
    uint64_t mark_at; /* where it goes there, in blocks ever written */
    uint32_t *slots;
    unsigned count;
    unsigned
        lost_count; /* behind these: slots whose heads are damaged, which would name the zone to the next start */
    struct sh_replog_giving giving;
    uint8_t *mark; /* a slot's head */
};

static void drop_free(struct sh_replog_drop *drop)
{
    free(drop->slots);
    free(drop->mark);
    free(drop);
}

void sh_replog_drops_free(struct sh_replog *log)
{
    for (struct sh_replog_drop *drop = log->drops, *next; drop; drop = next) {
        next = drop->next;
        drop_free(drop);
    }
    log->drops = NULL;
}

/* --- Marks that a start finds ---------------------------------------------------------------- */

enum shoal_err sh_replog_marks_add(struct sh_replog_marks *marks,
                                   const struct sh_replog_dropped *dropped)
{
    void *items = marks->marks;
    enum shoal_err err =
        sh_replog_room_make(&items, marks->count, &marks->room, sizeof *marks->marks);
    marks->marks = items;
    if (!err)
        marks->marks[marks->count++] = *dropped;
    return err;
}

void sh_replog_marks_free(struct sh_replog_marks *marks)
{
    free(marks->marks);
    free(marks->latest);
    *marks = (struct sh_replog_marks){.count = 0};
}

bool sh_replog_marks_have(const struct sh_replog_marks *marks, uint64_t zone, uint32_t incarnation)
{
    for (unsigned i = 0; i < marks->count; i++) {
        if (marks->marks[i].zone == zone && incarnation <= marks->marks[i].incarnation)
            return true;
    }
    return false;
}

/* --- Settling ---------------------------------------------------------------------------------- */

enum shoal_err sh_replog_zone_drop(struct sh_replog_zone *zone,
                                   void (*dropped)(void *arg, uint64_t id, enum shoal_err err),
                                   void *arg)
{
    struct sh_replog *log = zone->log;
    SH_ASSERT(!zone->is_dropped);
    if (sh_replog_is_refusing(zone) || sh_replog_is_loading(zone))
        return SHOAL_EBUSY;
    if (log->trouble)
        return SHOAL_EIO;
    struct sh_replog_drop *drop = calloc(1, sizeof *drop);
    if (!drop)
        return SHOAL_ENOMEM;
    *drop = (struct sh_replog_drop){.zone = zone, .dropped = dropped, .arg = arg};
    *log->drops_end = drop;
    log->drops_end = &drop->next;
    zone->is_dropping = true;
    sh_replog_clean_leave(zone);
    log->waiting -= zone->durable < zone->wanted;
    zone->wanted = zone->durable;
    log->waiting_handed -= zone->handed < zone->wanted_handed;
    zone->wanted_handed = zone->handed;
    return SHOAL_OK;
}

/* Frees the batches of the zone of which no write has begun. */
static void discard(struct sh_replog_zone *zone)
{
    struct sh_replog_batch *versions = zone->versions_batch;
    if (zone->filling)
        sh_replog_batch_free(zone->filling);
    zone->filling = NULL;
    if (versions && !zone->is_ending && !versions->offset) {
        sh_replog_batch_free(versions);
        zone->versions_batch = NULL;
    }
}

static bool is_settled(const struct sh_replog_zone *zone)
{
    return !zone->oldest && !zone->is_ending && !zone->versions_batch &&
           !sh_replog_is_cleaned(zone);
}

/* --- The mark ---------------------------------------------------------------------------------- */

static void give(struct sh_replog_drop *drop, const uint32_t *slots, unsigned count,
                 const uint8_t *block)
{
    drop->giving = (struct sh_replog_giving){.log = drop->zone->log,
                                             .slots = slots,
                                             .count = count,
                                             .block = block,
                                             .is_synced = !count};
}

/* Lists the zone's slots, and begins with the mark. ENOMEM: later. */
static enum shoal_err mark_begin(struct sh_replog_drop *drop)
{
    const struct sh_replog_zone *zone = drop->zone;
    const struct sh_replog *log = zone->log;
    drop->slots = malloc((zone->slots.count + log->slots.lost_count + 1) * sizeof *drop->slots);
    drop->mark = aligned_alloc(SH_BLOCK_BYTES, SH_SLOT_HEAD_BYTES);
    if (!drop->slots || !drop->mark) {
        free(drop->slots);
        free(drop->mark);
        drop->slots = NULL;
        drop->mark = NULL;
        return SHOAL_ENOMEM;
    }
    for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = log->slots.slots[i].next)
        drop->slots[drop->count++] = i;
    for (uint32_t i = 0; log->slots.lost_count && i < log->slots.count; i++) {
        if (log->slots.slots[i].kind == SH_SLOT_LOST && log->slots.slots[i].use == zone->id)
            drop->slots[drop->count + drop->lost_count++] = i;
    }
    const struct sh_log_slot_head head = {.zone = zone->id,
                                          .use =
                                              drop->count ? log->slots.slots[*drop->slots].use : 0,
                                          .file = log->head.number,
                                          .owner = zone->owner,
                                          .kind = SH_SLOT_DROPPED,
                                          .incarnation = zone->incarnation_seen};
    sh_log_slot_put(&head, drop->mark);
    if (!log->head.primary_blocks)
        give(drop, drop->slots, drop->count > 0, drop->mark);
    drop->phase = MARKS;
    return SHOAL_OK;
}

bool sh_replog_drop_needs(const struct sh_replog *log, uint64_t block)
{
    const struct sh_replog_drop *drop = log->drops;
    return drop && drop->is_marking && drop->mark_at % log->head.primary_blocks == block;
}

/* Whether the mark is on the disk; *work: whether something was done for that. */
static bool is_marked(struct sh_replog_drop *drop, unsigned *work)
{
    struct sh_replog *log = drop->zone->log;
    if (!log->head.primary_blocks) {
        if (!drop->giving.is_synced)
            *work += sh_replog_giving_step(&drop->giving);
        return drop->giving.is_synced;
    }
    if (drop->is_marking) {
        log->is_sync_wanted |= log->packs_handed > drop->mark_at && sh_replog_packs_wait(log);
        return log->packs_synced > drop->mark_at;
    }
    const struct sh_span span = {.zone = drop->zone->id,
                                 .incarnation = drop->zone->incarnation_seen};
    drop->is_marking = sh_replog_primary_mark(log, &span, &drop->mark_at);
    *work += drop->is_marking;
    return false;
}

/* --- The end ----------------------------------------------------------------------------------- */

static void end(struct sh_replog *log, enum shoal_err err)
{
    struct sh_replog_drop *drop = log->drops;
    uint64_t id = drop->zone->id;
    log->drops = drop->next;
    if (!log->drops)
        log->drops_end = &log->drops;
    if (drop->dropped)
        drop->dropped(drop->arg, id, err);
    drop_free(drop);
}

static void fence_add(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    zone->is_fenced = true;
    zone->is_fenced_again = false;
    log->fenced_count++;
    zone->next_fenced = NULL;
    *log->fenced_end = zone;
    log->fenced_end = &zone->next_fenced;
}

/* The zone was dropped: the log remembers its incarnation while a start may find the mark, which is of this lap or of an earlier one. A start reads the
 * last two laps that have a pack on the disk. */
static void fence(struct sh_replog_zone *zone)
{
    zone->fence_lap = zone->log->lap + SH_REPLOG_LAPS;
    if (zone->is_fenced)
        zone->is_fenced_again = true; /* it is in the list since an earlier drop */
    else
        fence_add(zone);
}

void sh_replog_fences_forget(struct sh_replog *log)
{
    struct sh_replog_zone *zone;
    while ((zone = log->fenced)) {
        /* In a log without a primary log the mark was a slot's head, which is gone: nothing needs the fence. */
        bool is_over = log->head.primary_blocks ? log->lap >= zone->fence_lap
                                                : log->fenced_count > FENCES_WITHOUT_MARK;
        bool stays = zone->is_dropped && !is_over;
        if (stays && !zone->is_fenced_again)
            break; /* those behind it were dropped later */
        log->fenced = zone->next_fenced;
        if (!log->fenced)
            log->fenced_end = &log->fenced;
        zone->is_fenced = false;
        log->fenced_count--;
        if (stays)
            fence_add(zone);
        else if (zone->is_dropped)
            sh_replog_zone_forget(zone);
    }
}

/* The log has nothing of the zone any more, but for the incarnation that it had. */
static void forget(struct sh_replog_drop *drop)
{
    struct sh_replog_zone *zone = drop->zone;
    struct sh_replog *log = zone->log;
    for (unsigned i = 0; i < drop->count; i++)
        sh_log_slots_give(&log->slots, &zone->slots, drop->slots[i]);
    SH_ASSERT(!zone->slots.count);
    SH_ASSERT(!zone->is_unsynced); /* the mark's sync has covered its packs */
    sh_versions_destroy(zone->versions);
    free(zone->lives.lives);
    *zone = (struct sh_replog_zone){.log = log,
                                    .next = zone->next,
                                    .id = zone->id,
                                    .incarnation_seen = zone->incarnation_seen,
                                    .is_dropped = true,
                                    .is_fenced = zone->is_fenced,
                                    .is_fenced_again = zone->is_fenced_again,
                                    .next_fenced = zone->next_fenced,
                                    .slots = {.first = SH_SLOT_NONE}};
    sh_replog_tables_fit(log);
    log->status.zones--;
    log->status.zones_dropped++;
    fence(zone);
    end(log, SHOAL_OK);
    if (!log->head.primary_blocks)
        sh_replog_fences_forget(log);
}

static unsigned phase_step(struct sh_replog_drop *drop)
{
    struct sh_replog *log = drop->zone->log;
    unsigned work = 0;
    bool has_mark_slot = !log->head.primary_blocks && drop->count;
    switch (drop->phase) {
    case SETTLES:
        discard(drop->zone);
        return is_settled(drop->zone) && !mark_begin(drop);
    case MARKS:
        if (!is_marked(drop, &work))
            return work;
        give(drop, drop->slots + has_mark_slot, drop->count + drop->lost_count - has_mark_slot,
             log->zeros);
        drop->phase = GIVES;
        return 1;
    case GIVES:
        if (!drop->giving.is_synced)
            return sh_replog_giving_step(&drop->giving);
        give(drop, drop->slots, has_mark_slot, log->zeros);
        drop->phase = GIVES_MARK;
        return 1;
    case GIVES_MARK:
        if (!drop->giving.is_synced)
            return sh_replog_giving_step(&drop->giving);
        forget(drop);
        return 1;
    }
    SH_ASSERT(!"a phase");
    return 0;
}

unsigned sh_replog_drops_step(struct sh_replog *log)
{
    struct sh_replog_drop *drop = log->drops;
    if (!drop)
        return 0;
    if (!log->trouble)
        return phase_step(drop);
    if (drop->giving.in_flight)
        return 0;
    end(log, SHOAL_EIO);
    return 1;
}
