/* The scrub: slots are read one after the other, slowly, and their checksums checked, so that damage is found while another replica is
 * left to be copied.
 *
 *   IDLE ──(the slot's share of the time is over)──► READS ──► LOOKS ──► IDLE, the next slot
 *
 * A slot is looked at up to what it was filled to when nothing was on its way there; all of that is on the disk, so what can't be read of a slot of
 * this process is damage, also its last span. Of one from an earlier process only what a later span calls sound (replog_walk.c). A slot
 * that is given away meanwhile, or may be, is passed over. Damage of a slot is told once. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "log/replog_int.h"
#include "log/version_log.h"

#define EACH_STEP 2000 /* entries, or tuples of a version log */
#define READ_BYTES ((size_t)1 << 20)
#define SECOND_NS UINT64_C(1000000000)

struct sh_replog_scrub {
    enum { IDLE, READS, LOOKS } phase;
    uint32_t slot; /* that is read, or next */
    uint64_t use;  /* which it had then */
    uint32_t filled;
    bool is_found;
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
};

enum shoal_err sh_replog_scrub_make(struct sh_replog *log)
{
    if (!log->config.scrub_bytes)
        return SHOAL_OK;
    struct sh_replog_scrub *scrub = calloc(1, sizeof *scrub);
    if (!scrub)
        return SHOAL_ENOMEM;
    log->scrub = scrub;
    scrub->next_ns = log->now_ns;
    scrub->bytes = aligned_alloc(SH_BLOCK_BYTES, log->head.slot_bytes);
    return scrub->bytes ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_replog_scrub_free(struct sh_replog_scrub *scrub)
{
    if (scrub)
        free(scrub->bytes);
    free(scrub);
}

/* Whether the slot is still what it was when it was read. */
static bool is_same(const struct sh_replog *log)
{
    const struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    return slot->kind && slot->kind != SH_SLOT_LOST && slot->use == scrub->use;
}

static void next(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    scrub->phase = IDLE;
    if (++scrub->slot < log->slots.count)
        return;
    scrub->slot = 0;
    log->status.scrub_passes++;
    if (scrub->next_ns < log->now_ns + SECOND_NS) /* where there is little to read, too */
        scrub->next_ns = log->now_ns + SECOND_NS;
}

static void tell(struct sh_replog *log, struct sh_replog_zone *zone, uint64_t at)
{
    struct sh_log_slot *slot = &log->slots.slots[log->scrub->slot];
    if (slot->is_bad)
        return;
    slot->is_bad = true;
    log->status.damaged++;
    SH_ERROR("log", "a replica is damaged: the zone needs another one",
             SH_TEXT("file", log->config.name), SH_U64("zone", zone ? zone->id : 0),
             SH_U64("slot", log->scrub->slot), SH_U64("offset", at));
    if (zone) {
        sh_replog_damage_add(zone, log->scrub->slot, at);
        zone->is_damaged = true;
    }
    if (log->config.damaged)
        log->config.damaged(log->config.arg, zone, log->scrub->slot, at);
}

/* --- Reading ----------------------------------------------------------------------------------- */

/* The slot at hand, if it is one to read. */
static bool begin(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    const struct sh_log_slot *slot = &log->slots.slots[scrub->slot];
    if (!slot->kind || slot->kind == SH_SLOT_LOST || slot->pending || slot->is_bad)
        return false;
    scrub->use = slot->use;
    scrub->filled = slot->filled;
    scrub->is_found = slot->is_found;
    scrub->asked = 0;
    scrub->reading.err = SHOAL_OK;
    scrub->phase = READS;
    scrub->next_ns = log->now_ns + scrub->filled * SECOND_NS / log->config.scrub_bytes;
    log->status.scrub_bytes += scrub->filled;
    return true;
}

/* Free slots take no time. */
static unsigned idle_step(struct sh_replog *log)
{
    if (log->now_ns < log->scrub->next_ns)
        return 0;
    for (unsigned i = 0; i < EACH_STEP; i++) {
        if (begin(log))
            return 1;
        next(log);
        if (!log->scrub->slot)
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

/* All of it has been read. */
static void look_begin(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    uint64_t begin = sh_log_slot_at(&log->head, scrub->slot);
    bool may_be_given = !is_same(log) || log->clean || log->drops;
    if (may_be_given && (scrub->reading.err || !is_same(log))) {
        next(log);
        return;
    }
    bool is_head = !scrub->reading.err &&
                   sh_log_slot_get(scrub->bytes, log->head.number, &scrub->head) &&
                   scrub->head.use == scrub->use;
    if (!is_head && !may_be_given)
        tell(log, sh_replog_slot_zone(log, scrub->slot), begin);
    if (!is_head) {
        next(log);
        return;
    }
    scrub->phase = LOOKS;
    scrub->end = 0;
    scrub->is_in_piece = false;
    sh_replog_walk_begin(&scrub->walk, NULL, scrub->bytes, scrub->filled, scrub->use);
}

/* --- Looking ----------------------------------------------------------------------------------- */

/* The slot is over; broken: where something can't be read, SIZE_MAX: nowhere. */
static void look_end(struct sh_replog *log, size_t broken)
{
    struct sh_replog_scrub *scrub = log->scrub;
    size_t end = (scrub->end + SH_BLOCK_BYTES - 1) / SH_BLOCK_BYTES * SH_BLOCK_BYTES;
    if (broken == SIZE_MAX && !scrub->is_found && SH_SLOT_HEAD_BYTES + end < scrub->filled)
        broken = end;
    if (broken != SIZE_MAX && is_same(log))
        tell(log, sh_replog_zone_find(log, scrub->head.zone),
             sh_log_slot_at(&log->head, scrub->slot) + SH_SLOT_HEAD_BYTES + broken);
    next(log);
}

static unsigned entries_step(struct sh_replog *log)
{
    struct sh_replog_scrub *scrub = log->scrub;
    struct sh_replog_walk *walk = &scrub->walk;
    struct sh_replog_entry entry;
    for (unsigned i = 0; i < EACH_STEP; i++) {
        switch (sh_replog_walk_next(walk, &entry)) {
        case SH_REPLOG_WALKED_ENTRY:
            i += sh_replog_entry_share(&entry);
            break;
        case SH_REPLOG_WALKED_SPAN:
            scrub->end = walk->scan.at;
            break;
        case SH_REPLOG_WALKED_HEAD:
            break;
        case SH_REPLOG_WALKED_END:
            look_end(log, walk->is_damaged || !scrub->is_found ? walk->broken : SIZE_MAX);
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
        look_end(log, SIZE_MAX);
        return 1;
    }
    for (unsigned i = 0; i < EACH_STEP && got == SH_VERSION_TUPLE; i++)
        got = sh_version_reader_next(&scrub->tuples, &tuple);
    if (got == SH_VERSION_TUPLE)
        return 1;
    scrub->is_in_piece = false;
    if (got == SH_VERSION_DAMAGED)
        look_end(log, scrub->end);
    else
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
