/* The scrub: slots are read one after the other, slowly, and their checksums checked, so that damage is found while another replica is
 * left to be copied.
 *
 *   IDLE ──(the slot's share of the time is over)──► READS ──► LOOKS ──► IDLE, the next slot
 *
 * A slot is looked at up to what it was filled to when nothing was on its way there; all of that is on the disk, so what can't be read of a slot of
 * this process is damage, also its last span. So it is of one from an earlier process all of which this one has read, when it loaded the zone; of
 * others only what a later span calls sound (replog_walk.c). A slot
 * that is given away meanwhile, or may be, is passed over. Damage of a slot is told once.
 *
 * A scrub that somebody asks for goes before the background's, which then goes on where it was: over the slots that were in use when it was asked
 * for, also those of which damage was told. It keeps each place that it finds. A slot to which something is on its way is read up to that; where
 * nothing of the slot is durable yet, the scrub waits for a while. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "log/replog_int.h"
#include "log/version_log.h"

#define EACH_STEP 2000 /* entries, or tuples of a version log */
#define READ_BYTES ((size_t)1 << 20)
#define SECOND_NS UINT64_C(1000000000)
#define WAIT_NS UINT64_C(50000000) /* for a slot of which nothing is durable */
#define WAITS_MAX 40
#define BREAKS_MAX 16 /* places of a slot that are kept */

struct sh_replog_scrub {
    enum { IDLE, READS, LOOKS } phase;
    uint32_t background;                /* the slot that the background's scrub reads next */
    uint32_t slot;                      /* that is read */
    bool is_of_asked, is_of_background; /* for which of the two */
    uint64_t use;                       /* which it had then */
    uint32_t filled;
    bool is_found; /* from an earlier process, and not read whole by this one */
    size_t asked;
    uint8_t *bytes; /* of a slot */
    struct sh_replog_reading reading;
    struct sh_log_slot_head head;
    struct sh_replog_walk walk;
    size_t end;                      /* behind the last span, or piece, behind the head */
    struct sh_version_reader tuples; /* of a piece, if is_in_piece */
    bool is_in_piece;
    size_t piece_end; /* behind it */
    uint64_t next_ns;
    /* The scrub that was asked for: its slots, and what it has found. */
    uint32_t *slots; /* state.slots of them */
    uint32_t at;
    unsigned waits; /* for the slot at hand */
    uint64_t rate;
    struct sh_replog_scrub_state state;
    struct sh_replog_place *places; /* SH_REPLOG_PLACES_MAX */
    size_t places_count;
    size_t breaks[BREAKS_MAX]; /* in the slot that is looked at */
    unsigned breaks_count;
};

static enum shoal_err make(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = calloc(1, sizeof *scrub);
    if (!scrub)
        return SHOAL_ENOMEM;
    scrub->next_ns = log->config.scrub_bytes ? log->now_ns : UINT64_MAX;
    scrub->bytes = aligned_alloc(SH_BLOCK_BYTES, log->head.slot_bytes);
    scrub->places = calloc(SH_REPLOG_PLACES_MAX, sizeof *scrub->places);
    if (!scrub->bytes || !scrub->places) {
        sh_replog_scrub_free(scrub);
        return SHOAL_ENOMEM;
    }
    log->scrub = scrub;
    return SHOAL_OK;
}

enum shoal_err sh_replog_scrub_make(struct sh_replog *log)
{
    return log->config.scrub_bytes ? make(log) : SHOAL_OK;
}

void sh_replog_scrub_free(struct sh_replog_scrub *scrub)
{
    if (!scrub)
        return;
    free(scrub->bytes);
    free(scrub->slots);
    free(scrub->places);
    free(scrub);
}

/* Whether the slot is still what it was when it was read. */
static bool is_same(const struct sh_replog *log)
{
    const struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    return slot->kind && slot->kind != SH_SLOT_LOST && slot->use == scrub->use;
}

static bool is_asked(const struct sh_replog_scrub *scrub)
{
    return scrub->state.is_running;
}

/* The scrub that was asked for is over; the background's goes on. */
static void asked_end(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    scrub->state.is_running = false;
    log->status.scrub_passes += !scrub->state.zone;
    if (!log->config.scrub_bytes)
        scrub->next_ns = UINT64_MAX;
}

/* The slot is over; true: so is a pass. Another scrub may have been asked for meanwhile, which begins with its first slot. */
static bool next(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    bool was_asked = scrub->is_of_asked, was_background = scrub->is_of_background;
    scrub->phase = IDLE;
    scrub->is_of_asked = scrub->is_of_background = false;
    scrub->waits = 0;
    if (was_asked) {
        scrub->state.slots_done = ++scrub->at;
        if (scrub->at < scrub->state.slots)
            return false;
        asked_end(log);
        return true;
    }
    if (is_asked(scrub) && !scrub->at)
        scrub->next_ns = log->now_ns;
    scrub->background += was_background;
    if (scrub->background < log->slots.count)
        return false;
    scrub->background = 0;
    log->status.scrub_passes++;
    if (!is_asked(scrub) && scrub->next_ns < log->now_ns + SECOND_NS) /* with little to read, too */
        scrub->next_ns = log->now_ns + SECOND_NS;
    return true;
}

static void place_note(struct sh_replog *log, enum sh_replog_harm harm,
                       const struct sh_replog_zone *zone, uint64_t at)
{
    struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    scrub->state.places++;
    if (scrub->places_count < SH_REPLOG_PLACES_MAX)
        scrub->places[scrub->places_count++] =
            (struct sh_replog_place){.harm = harm,
                                     .kind = slot->kind == SH_SLOT_LOST ? 0 : slot->kind,
                                     .slot = scrub->slot,
                                     .offset = at,
                                     .zone = zone ? zone->id : 0,
                                     .use = slot->use};
}

/* The slot is damaged there. */
static void tell(struct sh_replog *log, enum sh_replog_harm harm, struct sh_replog_zone *zone,
                 uint64_t at)
{
    if (log->scrub->is_of_asked)
        place_note(log, harm, zone, at);
    sh_replog_damage_tell(log, zone, log->scrub->slot, at);
}

/* --- A scrub that is asked for ------------------------------------------------------------------ */

/* The slots that are in use, of that zone or of all: NULL. */
static uint32_t slots_gather(const struct sh_replog *log, const struct sh_replog_zone *zone,
                             uint32_t *into)
{
    const struct sh_log_slots *slots = &log->slots;
    uint32_t count = 0;
    if (zone) {
        for (uint32_t i = zone->slots.first; i != SH_SLOT_NONE; i = slots->slots[i].next)
            into[count++] = i;
        return count;
    }
    for (uint32_t i = 0; i < slots->count; i++) {
        if (slots->slots[i].kind)
            into[count++] = i;
    }
    return count;
}

enum shoal_err sh_replog_scrub_begin(struct sh_replog *log, uint64_t zone, uint64_t rate,
                                     uint64_t *number_out)
{
    const struct sh_replog_zone *of = zone ? sh_replog_zone_find(log, zone) : NULL;
    SH_ASSERT(rate);
    if (log->trouble)
        return SHOAL_EIO;
    if (zone && !of)
        return SHOAL_ENONAME;
    size_t most = of ? of->slots.count : log->slots.count;
    uint32_t *slots = malloc((most + 1) * sizeof *slots);
    enum shoal_err err = !slots ? SHOAL_ENOMEM : log->scrub ? SHOAL_OK : make(log);
    if (err) {
        free(slots);
        return err;
    }
    struct sh_replog_scrub *scrub = log->scrub;
    free(scrub->slots);
    scrub->slots = slots;
    scrub->at = 0;
    scrub->waits = 0;
    /* Else the background's scrub, which waits for this one, would find less. */
    scrub->rate = rate > log->config.scrub_bytes ? rate : log->config.scrub_bytes;
    scrub->places_count = 0;
    scrub->state = (struct sh_replog_scrub_state){.number = scrub->state.number + 1,
                                                  .zone = zone,
                                                  .slots = slots_gather(log, of, slots),
                                                  .is_running = true};
    scrub->is_of_asked = false; /* the slot that is being read is of the one before */
    if (scrub->phase == IDLE)
        scrub->next_ns = log->now_ns;
    if (!scrub->state.slots)
        asked_end(log);
    log->has_idled = false;
    *number_out = scrub->state.number;
    return SHOAL_OK;
}

struct sh_replog_scrub_state sh_replog_scrub_state(const struct sh_replog *log)
{
    return log->scrub ? log->scrub->state : (struct sh_replog_scrub_state){.number = 0};
}

size_t sh_replog_scrub_places(const struct sh_replog *log, uint64_t *cursor_inout,
                              struct sh_replog_place *places_out, size_t room)
{
    const struct sh_replog_scrub *scrub = log->scrub;
    size_t all = scrub ? scrub->places_count : 0, count = 0;
    uint64_t at = *cursor_inout;
    SH_ASSERT(room > 0);
    for (; at < all && count < room; at++, count++) {
        const struct sh_log_slot *slot = &log->slots.slots[scrub->places[at].slot];
        places_out[count] = scrub->places[at];
        places_out[count].is_gone = !slot->kind || slot->use != places_out[count].use;
    }
    *cursor_inout = at < all ? at : 0;
    return count;
}

uint32_t sh_replog_slot_durable(const struct sh_replog_zone *zone, uint32_t number)
{
    const struct sh_replog *log = zone->log;
    const struct sh_log_slot *slot = &log->slots.slots[number];
    uint64_t begin = sh_log_slot_at(&log->head, number), end = begin + slot->filled;
    unsigned pending = 0;
    for (const struct sh_replog_batch *batch = zone->oldest; batch; batch = batch->behind) {
        if (batch->slot != number || batch->is_durable)
            continue;
        pending++;
        end = batch->offset < end ? batch->offset : end;
    }
    uint64_t bytes = end - begin;
    return pending == slot->pending && bytes > SH_SLOT_HEAD_BYTES ? (uint32_t)bytes : 0;
}

/* --- Reading ----------------------------------------------------------------------------------- */

static void reads_begin(struct sh_replog *log, uint32_t filled, uint64_t rate)
{
    struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    scrub->use = slot->use;
    scrub->filled = filled;
    scrub->is_found = slot->is_found && !slot->is_whole;
    scrub->asked = 0;
    scrub->reading.err = SHOAL_OK;
    scrub->phase = READS;
    scrub->next_ns = log->now_ns + filled * SECOND_NS / rate;
    log->status.scrub_bytes += filled;
}

/* The background's slot at hand, if it is one to read. */
static bool begin_background(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->background];
    scrub->is_of_background = true;
    if (!slot->kind || slot->kind == SH_SLOT_LOST || slot->pending || slot->is_bad)
        return false;
    scrub->slot = scrub->background;
    reads_begin(log, slot->filled, log->config.scrub_bytes);
    return true;
}

/* The slot at hand of the scrub that was asked for: it is read, or waited for. A head that was lost at the start is told. */
static bool begin_asked(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    scrub->slot = scrub->slots[scrub->at];
    scrub->is_of_asked = true;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    if (slot->kind == SH_SLOT_LOST)
        place_note(log, SH_REPLOG_HARM_HEAD, NULL, sh_log_slot_at(&log->head, scrub->slot));
    if (!slot->kind || slot->kind == SH_SLOT_LOST)
        return false;
    uint32_t filled = slot->filled;
    if (slot->pending) {
        const struct sh_replog_zone *zone = sh_replog_slot_zone(log, scrub->slot);
        filled = zone ? sh_replog_slot_durable(zone, scrub->slot) : 0;
    }
    if (!filled && scrub->waits++ < WAITS_MAX) {
        scrub->next_ns = log->now_ns + WAIT_NS;
        return true;
    }
    scrub->state.slots_passed_over += !filled;
    scrub->state.bytes += filled;
    if (filled)
        reads_begin(log, filled, scrub->rate);
    return filled;
}

/* Free slots take no time. */
static unsigned idle_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    if (log->now_ns < scrub->next_ns)
        return 0;
    for (unsigned i = 0; i < EACH_STEP; i++) {
        if (is_asked(scrub) ? begin_asked(log) : begin_background(log))
            return 1;
        if (next(log))
            break;
    }
    return 1;
}

static unsigned reads_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    if (scrub->asked == scrub->filled)
        return 0;
    if (scrub->reading.count) /* one at a time */
        return 0;
    size_t left = scrub->filled - scrub->asked, size = left < READ_BYTES ? left : READ_BYTES;
    uint64_t offset = sh_log_slot_at(&log->head, scrub->slot) + scrub->asked;
    if (!sh_replog_submit_read(log, offset, scrub->bytes + scrub->asked, size, true,
                               &scrub->reading))
        return 0;
    scrub->asked += size;
    return 1;
}

/* The slot was given away, or may be. */
static void pass_over(struct sh_replog *log)
{
    log->scrub->state.slots_passed_over += log->scrub->is_of_asked;
    (void)next(log);
}

/* All of it has been read. */
static void look_begin(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    uint64_t begin = sh_log_slot_at(&log->head, scrub->slot);
    bool may_be_given = !is_same(log) || log->clean || log->drops;
    if (may_be_given && (scrub->reading.err || !is_same(log))) {
        pass_over(log);
        return;
    }
    bool is_head = !scrub->reading.err &&
                   sh_log_slot_get(scrub->bytes, log->head.number, &scrub->head) &&
                   scrub->head.use == scrub->use;
    if (!is_head && !may_be_given)
        tell(log, scrub->reading.err ? SH_REPLOG_HARM_UNREADABLE : SH_REPLOG_HARM_HEAD,
             sh_replog_slot_zone(log, scrub->slot), begin);
    if (!is_head && may_be_given)
        pass_over(log);
    else if (!is_head)
        (void)next(log);
    if (!is_head)
        return;
    bool is_half = sh_log_slot_is_half(scrub->bytes);
    if (is_half && scrub->is_of_asked) /* the other copy is enough */
        place_note(log, SH_REPLOG_HARM_HALF, sh_replog_zone_find(log, scrub->head.zone), begin);
    scrub->phase = LOOKS;
    scrub->end = 0;
    scrub->breaks_count = 0;
    scrub->is_in_piece = false;
    sh_replog_walk_begin(&scrub->walk, NULL, scrub->bytes, scrub->filled, scrub->use);
}

/* --- Looking ----------------------------------------------------------------------------------- */

static void break_note(struct sh_replog_scrub *scrub, size_t at)
{
    if (scrub->breaks_count < BREAKS_MAX)
        scrub->breaks[scrub->breaks_count++] = at;
}

/* The slot is over. Breaks are places behind its head; those from `sound` on may be what a crash has left. Of a slot of this process all of
 * them are damage, and so is a row of spans that ends too early. */
static void look_end(struct sh_replog *log, size_t sound)
{
    struct sh_replog_scrub *scrub = log->scrub;
    uint64_t begin = sh_log_slot_at(&log->head, scrub->slot) + SH_SLOT_HEAD_BYTES;
    size_t end = (scrub->end + SH_BLOCK_BYTES - 1) / SH_BLOCK_BYTES * SH_BLOCK_BYTES;
    if (!scrub->is_found && SH_SLOT_HEAD_BYTES + end < scrub->filled)
        break_note(scrub, end);
    for (unsigned i = 0; i < scrub->breaks_count && is_same(log); i++) {
        if (!scrub->is_found || scrub->breaks[i] < sound)
            tell(log, SH_REPLOG_HARM_DAMAGED, sh_replog_zone_find(log, scrub->head.zone),
                 begin + scrub->breaks[i]);
    }
    if (is_same(log))
        (void)next(log);
    else
        pass_over(log);
}

static unsigned entries_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    struct sh_replog_walk *walk = &scrub->walk;
    struct sh_replog_entry entry;
    for (unsigned i = 0; i < EACH_STEP; i++) {
        unsigned breaks = walk->breaks;
        enum sh_replog_walked got = sh_replog_walk_next(walk, &entry);
        if (walk->breaks > breaks)
            break_note(scrub, walk->broken_last);
        switch (got) {
        case SH_REPLOG_WALKED_ENTRY:
            i += sh_replog_entry_share(&entry);
            break;
        case SH_REPLOG_WALKED_SPAN:
            scrub->end = walk->scan.at;
            break;
        case SH_REPLOG_WALKED_HEAD:
            break;
        case SH_REPLOG_WALKED_END:
            look_end(log, walk->sound);
            return 1;
        }
    }
    return 1;
}

/* The next piece of a version log; false: the slot is over. */
static bool piece_begin(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    struct sh_bytes bytes =
        sh_bytes_make(scrub->bytes + SH_SLOT_HEAD_BYTES, scrub->filled - SH_SLOT_HEAD_BYTES);
    scrub->piece_end = scrub->end;
    scrub->is_in_piece =
        sh_version_piece_next(bytes, &scrub->piece_end, scrub->head.zone,
                              sh_replog_flush_least_in(&scrub->head), &scrub->tuples);
    return scrub->is_in_piece;
}

/* Some of a piece of a version log: its sum is checked when it is opened, its tuples one by one. */
static unsigned versions_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    struct sh_version_tuple tuple;
    enum sh_version_got got = SH_VERSION_TUPLE;
    if (!scrub->is_in_piece && !piece_begin(log)) {
        look_end(log, scrub->filled);
        return 1;
    }
    for (unsigned i = 0; i < EACH_STEP && got == SH_VERSION_TUPLE; i++)
        got = sh_version_reader_next(&scrub->tuples, &tuple);
    if (got == SH_VERSION_TUPLE)
        return 1;
    scrub->is_in_piece = false;
    if (got == SH_VERSION_DAMAGED)
        break_note(scrub, scrub->end);
    scrub->end = scrub->piece_end;
    return 1;
}

unsigned sh_replog_scrub_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    if (!scrub || log->trouble)
        return 0;
    switch (scrub->phase) {
    case IDLE:
        return idle_step(log);
    case READS:
        if (scrub->asked < scrub->filled)
            return reads_step(log);
        if (scrub->reading.count)
            return 0;
        look_begin(log);
        return 1;
    case LOOKS:
        return scrub->head.kind == SH_SLOT_VERSIONS ? versions_step(log) : entries_step(log);
    }
    SH_ASSERT(!"a phase");
    return 0;
}

uint64_t sh_replog_scrub_due_ns(const struct sh_replog *log)
{
    const struct sh_replog_scrub *scrub = log->scrub;
    if (!scrub)
        return UINT64_MAX;
    if (scrub->phase == IDLE)
        return scrub->next_ns;
    return scrub->reading.count ? UINT64_MAX : log->now_ns;
}
