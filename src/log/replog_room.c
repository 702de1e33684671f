/* Room on the disk: slots have it reserved before they are taken, and give it back when they stay free.
 *
 *   bare ──(SH_DISK_ALLOCATE)──► free ──► a zone's ──► free ──(SH_DISK_DISCARD, when there are more than are kept)──► bare
 *
 * So a write to a slot does not find the disk full. Where the disk is full, no slot becomes free but by cleaning, which has begun at
 * once (sh_replog_clean_if_full): batches stay in memory, appends get EAGAIN, and a reservation is tried again after AGAIN_NS. The
 * slots that the cleaner may need have their room before, so it goes on.
 *
 * Neighbours are reserved together, 64 MiB or 16 slots: ext4 lets all direct writes to the file end before it reserves. For the same reason
 * nothing is discarded that was not free for all of LAZY_NS.
 *
 * A disk that can't reserve (done_bytes 0) is told by the first operation, at the open; then all slots are free at once, and a batch
 * that finds the disk full is tried again (replog_slots.c). Heads are never discarded: a device may have anything there then, even what
 * was there before the head was zeroed. Room that a process leaves behind in slots that are bare is discarded slowly, TRIM_AFTER_NS
 * after the open, or at once where the disk is full. */
#include "base/assert.h"
#include "base/log.h"
#include "log/replog_int.h"

#define AHEAD_BYTES                                                                                \
    (UINT64_C(16) << 20) /* are free beside the spare slots; with fewer, more are reserved */
#define AHEAD_MIN 2u
#define AHEAD_MAX 8u
#define RUN_BYTES                                                                                  \
    (UINT64_C(64)                                                                                  \
     << 20) /* of neighbours, are reserved at a time: a file system may let all writes to the file end first */
#define RUN_MAX 16u
#define DISCARDS_MAX 8u /* in flight */
#define KEPT 32u        /* free slots, where the config says nothing */
#define AGAIN_NS UINT64_C(100000000)
#define LAZY_NS UINT64_C(1000000000)
#define TRIM_AFTER_NS UINT64_C(10000000000)
#define TRIM_EACH_NS UINT64_C(10000000)
#define PASSED_MAX 64u /* bare slots that are looked at in a step for one that may have room */

/* How many slots are to be free. */
static uint32_t wanted(const struct sh_replog *log)
{
    uint64_t ahead = AHEAD_BYTES / log->head.slot_bytes;
    ahead = ahead < AHEAD_MIN ? AHEAD_MIN : ahead > AHEAD_MAX ? AHEAD_MAX : ahead;
    return SH_REPLOG_SPARE_SLOTS + (uint32_t)ahead;
}

static uint32_t run_max(const struct sh_replog *log)
{
    uint64_t run = RUN_BYTES / log->head.slot_bytes;
    return run < 1 ? 1 : run > RUN_MAX ? RUN_MAX : (uint32_t)run;
}

static uint32_t kept(const struct sh_replog *log)
{
    uint32_t most = log->config.slots_kept ? log->config.slots_kept : KEPT;
    uint32_t least = wanted(log) + run_max(log);
    return most < least ? least : most;
}

static uint32_t slot_of(const struct sh_replog *log, uint64_t offset)
{
    return (uint32_t)((offset - sh_log_slot_at(&log->head, 0)) / log->head.slot_bytes);
}

static struct sh_disk_op allocation_of(const struct sh_replog *log, uint32_t slot, uint32_t count)
{
    return (struct sh_disk_op){.kind = SH_DISK_ALLOCATE,
                               .offset = sh_log_slot_at(&log->head, slot),
                               .size = (size_t)count * log->head.slot_bytes};
}

/* Takes the slot that has been bare the longest, and its neighbours that come next; returns how many. */
static uint32_t run_take(struct sh_replog *log, uint32_t most, uint32_t *slot_out)
{
    uint32_t count = 1;
    *slot_out = sh_log_slots_bare_take(&log->slots);
    while (count < most && log->slots.bare_first == *slot_out + count) {
        (void)sh_log_slots_bare_take(&log->slots);
        count++;
    }
    return count;
}

/* The disk can't reserve: all slots are free. */
static void all_free(struct sh_replog *log)
{
    uint32_t slot;
    log->room.has_no_allocate = true;
    while ((slot = sh_log_slots_bare_take(&log->slots)) != SH_SLOT_NONE)
        sh_log_slots_free_add(&log->slots, slot);
}

void sh_replog_room_lacks(struct sh_replog *log)
{
    struct sh_replog_room *room = &log->room;
    room->again_ns = log->now_ns + AGAIN_NS;
    room->refused++;
    if (room->is_full)
        return;
    room->is_full = true;
    if (!room->is_told)
        SH_ERROR("log", "the disk is full: replicas wait in memory until there is room",
                 SH_TEXT("file", log->config.name));
    room->is_told = true;
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next)
            sh_replog_clean_if_full(zone);
    }
}

void sh_replog_room_found(struct sh_replog *log)
{
    struct sh_replog_room *room = &log->room;
    room->is_full = false;
    if (room->is_told)
        SH_INFO("log", "the disk has room again", SH_TEXT("file", log->config.name));
    room->is_told = false;
}

/* An allocation of neighbours is over; OK, ENOSPC, or another error. */
static void allocated(struct sh_replog *log, const struct sh_disk_op *op, enum shoal_err err)
{
    uint32_t slot = slot_of(log, op->offset);
    uint32_t end = slot + (uint32_t)(op->size / log->head.slot_bytes);
    for (; slot < end; slot++) {
        if (err)
            sh_log_slots_bare_add(&log->slots, slot, true);
        else
            sh_log_slots_free_add(&log->slots, slot);
    }
    if (err == SHOAL_ENOSPC)
        sh_replog_room_lacks(log);
    if (err)
        return;
    sh_replog_room_found(log);
    if (!op->done_bytes)
        all_free(log);
}

static void on_allocated(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog *log = op->log;
    enum shoal_err err = done->err;
    log->room.allocating = 0;
    if (err == SHOAL_ENOSPC)
        done->err = SHOAL_OK; /* the log goes on */
    (void)sh_replog_op_end(op);
    allocated(log, done, err);
}

enum shoal_err sh_replog_room_wait(struct sh_replog *log, uint32_t count)
{
    uint32_t tries = log->slots.bare_count;
    while (!log->trouble && log->slots.free_count < count && tries-- > 0 && log->slots.bare_count) {
        uint32_t slot;
        uint32_t run = run_take(log, count - log->slots.free_count, &slot);
        struct sh_disk_op op = allocation_of(log, slot, log->room.is_full ? 1 : run);
        op.file = log->file;
        while (log->room.is_full && --run > 0)
            sh_log_slots_bare_add(&log->slots, slot + run, true);
        enum shoal_err err = sh_disk_do(log->config.disk, &op);
        allocated(log, &op, err);
        if (err && err != SHOAL_ENOSPC)
            return err;
    }
    return log->trouble;
}

enum shoal_err sh_replog_room_open(struct sh_replog *log)
{
    uint64_t bytes, left, size;
    enum shoal_err err = sh_disk_space(log->config.disk, &bytes, &left);
    if (!err)
        err = log->config.disk->ops->size(log->config.disk, log->file, &size);
    if (err)
        return err;
    /* A raw disk is one file, which has all of its room. */
    log->room.is_raw = bytes == size && !left;
    log->room.trim_ns = log->now_ns + TRIM_AFTER_NS;
    if (log->room.is_raw && size < sh_log_file_bytes(&log->head))
        return SHOAL_ENOSPC;
    uint64_t begin = sh_log_slot_at(&log->head, 0);
    sh_log_slots_begin(&log->slots, size > begin ? size - begin : 0);
    return sh_replog_room_wait(log, wanted(log));
}

enum shoal_err sh_replog_room_check(const struct sh_replog *log, uint64_t slots)
{
    uint64_t bytes, left;
    enum shoal_err err = sh_disk_space(log->config.disk, &bytes, &left);
    uint64_t has = log->slots.count - log->slots.bare_count; /* used ones, too */
    if (err || log->room.is_raw || left == UINT64_MAX)
        return err;
    if (log->room.has_no_allocate)
        has -= log->slots.free_count;
    uint64_t lacks = slots > has ? slots - has : 0;
    uint64_t keeps = log->config.reserve_bytes;
    return left < keeps || (left - keeps) / log->head.slot_bytes < lacks ? SHOAL_ENOSPC : SHOAL_OK;
}

/* --- Discards ---------------------------------------------------------------------------------- */

static void on_discarded(struct sh_disk_op *done)
{
    struct sh_replog_op *op = done->arg;
    struct sh_replog *log = op->log;
    uint32_t slot = slot_of(log, done->offset);
    log->room.discarding--;
    if (sh_replog_op_end(op))
        return;
    if (done->done_bytes) {
        log->status.discards++;
        log->status.discarded_bytes += done->done_bytes;
        sh_log_slots_bare_add(&log->slots, slot, false);
    } else {
        log->room.has_no_discard = true;
        sh_log_slots_free_add(&log->slots, slot);
    }
}

static bool discard(struct sh_replog *log, uint32_t slot)
{
    const struct sh_disk_op op = {.kind = SH_DISK_DISCARD,
                                  .offset = sh_log_slot_at(&log->head, slot) + SH_SLOT_HEAD_BYTES,
                                  .size = log->head.slot_bytes - SH_SLOT_HEAD_BYTES,
                                  .is_bulk = true,
                                  .done = on_discarded};
    if (!sh_replog_submit(log, NULL, &op))
        return false;
    log->room.discarding++;
    return true;
}

/* Slots beyond those that are kept, which were free for all of a while. */
static unsigned discards_step(struct sh_replog *log)
{
    struct sh_replog_room *room = &log->room;
    uint32_t count = log->slots.free_count, most = kept(log);
    unsigned work = 0;
    if (count < room->least)
        room->least = count;
    if (count <= most) {
        room->excess_ns = 0;
        room->to_discard = 0;
        return 0;
    }
    if (!room->excess_ns || log->now_ns >= room->excess_ns) {
        if (room->excess_ns && room->least > most)
            room->to_discard = room->least - most;
        room->excess_ns = log->now_ns + LAZY_NS;
        room->least = count;
    }
    while (room->to_discard && log->slots.free_count > most && room->discarding < DISCARDS_MAX) {
        uint32_t slot = sh_log_slots_free_take(&log->slots);
        if (!discard(log, slot)) {
            sh_log_slots_free_add(&log->slots, slot);
            break;
        }
        room->to_discard--;
        work++;
    }
    return work;
}

/* When room that was left behind in a bare slot is to be discarded: at once where the disk is full. */
static uint64_t trim_due_ns(const struct sh_replog *log)
{
    const struct sh_replog_room *room = &log->room;
    if (room->has_no_discard || room->discarding || !log->slots.left_count)
        return UINT64_MAX;
    return room->is_full ? log->now_ns : room->trim_ns;
}

/* Discards that of one slot. Those that may have some come first, but for those of which an allocation failed: the others go behind them, a
 * few in each step. */
static unsigned trim_step(struct sh_replog *log)
{
    struct sh_replog_room *room = &log->room;
    struct sh_log_slots *slots = &log->slots;
    if (trim_due_ns(log) > log->now_ns)
        return 0;
    for (unsigned i = 0; !slots->slots[slots->bare_first].may_have_room; i++) {
        if (i == PASSED_MAX)
            return 1;
        sh_log_slots_bare_add(slots, sh_log_slots_bare_take(slots), false);
    }
    if (!discard(log, slots->bare_first))
        return 0;
    (void)sh_log_slots_bare_take(slots);
    room->trim_ns = log->now_ns + TRIM_EACH_NS;
    return 1;
}

/* --- Steps ------------------------------------------------------------------------------------- */

/* One at a time; while the disk is full, of one slot. */
static unsigned allocations_step(struct sh_replog *log)
{
    struct sh_replog_room *room = &log->room;
    if (room->allocating || log->slots.free_count >= wanted(log) || !log->slots.bare_count ||
        (room->is_full && log->now_ns < room->again_ns))
        return 0;
    uint32_t slot, run = run_take(log, room->is_full ? 1 : run_max(log), &slot);
    struct sh_disk_op op = allocation_of(log, slot, run);
    op.done = on_allocated;
    room->allocating = run;
    if (sh_replog_submit(log, NULL, &op))
        return 1;
    room->allocating = 0;
    while (run-- > 0)
        sh_log_slots_bare_add(&log->slots, slot + run, true);
    return 0;
}

unsigned sh_replog_room_step(struct sh_replog *log)
{
    if (log->trouble)
        return 0;
    unsigned work = allocations_step(log);
    /* The cleaner has brought slots that have their room: no allocation is tried. The disk is as it was, and when they are used up, again
     * lacks room: that is not told again and again. */
    if (!log->room.has_no_allocate && log->slots.free_count >= wanted(log))
        log->room.is_full = false;
    if (log->room.has_no_discard)
        return work;
    return work + discards_step(log) + trim_step(log);
}

uint64_t sh_replog_room_due_ns(const struct sh_replog *log)
{
    const struct sh_replog_room *room = &log->room;
    bool lacks = log->slots.free_count < wanted(log) && !room->allocating && log->slots.bare_count;
    uint64_t due = UINT64_MAX;
    if (room->is_full)
        due = room->again_ns;
    else if (lacks)
        due = log->now_ns;
    if (!room->has_no_discard && room->excess_ns && !room->discarding && room->excess_ns < due)
        due = room->excess_ns;
    uint64_t trim_due = trim_due_ns(log);
    return trim_due < due ? trim_due : due;
}
