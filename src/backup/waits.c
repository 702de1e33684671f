/* Who waits until writes are acknowledged, and which chunks have such writes. */
#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/hash.h"

/* --- Guards ------------------------------------------------------------------------------------ */

static uint64_t guard_of(enum sh_level level)
{
    return level == SH_LEVEL_DURABLE ? UINT64_C(1) << 32 : 1;
}

static unsigned guard_index(uint64_t chunk)
{
    return (unsigned)(sh_mix64(chunk) % SH_GUARDS);
}

static void guard_add(struct sh_backup *backup, struct sh_write *write, uint64_t chunk)
{
    if (write->is_wide)
        return;
    if (write->guards_count == SH_WRITE_GUARDS) {
        write->is_wide = true;
        atomic_fetch_add(&backup->wide, guard_of((enum sh_level)write->own));
        return;
    }
    unsigned index = guard_index(chunk);
    write->guards[write->guards_count++] = (uint16_t)index;
    atomic_fetch_add(&backup->guards[index], guard_of((enum sh_level)write->own));
}

static void guards_drop(struct sh_backup *backup, struct sh_write *write)
{
    for (unsigned i = 0; i < write->guards_count; i++)
        atomic_fetch_sub(&backup->guards[write->guards[i]], guard_of((enum sh_level)write->own));
    if (write->is_wide)
        atomic_fetch_sub(&backup->wide, guard_of((enum sh_level)write->own));
    write->guards_count = 0;
    write->is_wide = false;
}

/* --- Marks ------------------------------------------------------------------------------------- */

void sh_write_begin(struct sh_write *write, enum sh_level level)
{
    /* Marks and guards are read as far as they are counted. */
    write->level = level;
    write->own = (uint8_t)level;
    write->request = NULL;
    write->marks_count = write->guards_count = 0;
    write->is_all = write->is_wide = write->is_for_room = write->was_refused = false;
    write->room_seen = write->zone_next = 0;
}

void sh_write_request_set(struct sh_write *write, const struct sh_write_request *request)
{
    SH_ASSERT(request->client && request->number > request->acknowledged);
    write->request = request;
    write->is_told = false;
}

static void mark_add(struct sh_write *write, struct sh_own_zone *zone, uint64_t number)
{
    unsigned i = 0;
    while (i < write->marks_count && write->marks[i].zone != zone)
        i++;
    if (i == SH_WRITE_MARKS) {
        write->is_all = true;
        return;
    }
    if (i == write->marks_count)
        write->marks[write->marks_count++] = (struct sh_write_mark){zone, number};
    else if (write->marks[i].number < number)
        write->marks[i].number = number;
}

void sh_write_mark(struct sh_backup *backup, struct sh_write *write, uint64_t chunk,
                   struct sh_own_zone *zone, uint64_t number)
{
    if (write->own == SH_LEVEL_ASYNC)
        return;
    guard_add(backup, write, chunk);
    mark_add(write, zone, number);
}

void sh_write_join(struct sh_write *write, const struct sh_write *seen)
{
    if (write->level < seen->level)
        write->level = seen->level;
    write->is_all |= seen->is_all;
    for (unsigned i = 0; i < seen->marks_count; i++)
        mark_add(write, seen->marks[i].zone, seen->marks[i].number);
}

void sh_backup_write_all(struct sh_backup *backup, struct sh_write *write)
{
    write->is_all = backup->is_on;
}

bool sh_backup_read_is_clean(struct sh_backup *backup, shoal_cid cid, struct sh_write *write_out)
{
    uint64_t chunk = sh_backup_chunk(backup, cid);
    if (!backup->is_on)
        return true;
    /* What was read was written before: the store's own order is that of the two. */
    atomic_thread_fence(memory_order_acquire);
    uint64_t pending =
        atomic_load_explicit(&backup->guards[guard_index(chunk)], memory_order_relaxed) |
        atomic_load_explicit(&backup->wide, memory_order_relaxed);
    if (!pending)
        return true;
    struct sh_own_zone *zone = sh_zones_find(backup, chunk);
    if (!zone)
        return true;
    sh_write_begin(write_out, pending >> 32 ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED);
    write_out->marks[0] = (struct sh_write_mark){zone, sh_backlog_next(&zone->backlog) - 1};
    write_out->marks_count = 1;
    return false;
}

bool sh_backup_is_clean(struct sh_backup *backup, struct sh_write *write_out)
{
    if (!backup->is_on)
        return true;
    atomic_thread_fence(memory_order_acquire); /* as above */
    uint64_t pending = atomic_load_explicit(&backup->wide, memory_order_relaxed);
    for (unsigned i = 0; i < SH_GUARDS; i++)
        pending |= atomic_load_explicit(&backup->guards[i], memory_order_relaxed);
    if (!pending)
        return true;
    sh_write_begin(write_out, pending >> 32 ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED);
    write_out->is_all = true;
    return false;
}

/* --- Waiting ----------------------------------------------------------------------------------- */

static void waits_push(struct sh_waits *waits, struct sh_write *write)
{
    write->next = NULL;
    if (waits->last)
        waits->last->next = write;
    else
        waits->first = write;
    waits->last = write;
}

static struct sh_write *waits_pop(struct sh_waits *waits)
{
    struct sh_write *write = waits->first;
    if (!write)
        return NULL;
    waits->first = write->next;
    if (!waits->first)
        waits->last = NULL;
    return write;
}

static uint64_t number_of(const struct sh_write *write)
{
    return write->marks[write->marks_count - 1].number;
}

/* By number; most come last. */
static void waits_insert(struct sh_waits *waits, struct sh_write *write)
{
    if (!waits->last || number_of(waits->last) <= number_of(write)) {
        waits_push(waits, write);
        return;
    }
    struct sh_write **at = &waits->first;
    while (number_of(*at) <= number_of(write))
        at = &(*at)->next;
    write->next = *at;
    *at = write;
}

static void over_push(struct sh_backup *backup, struct sh_write *write)
{
    sh_spin_take(&backup->waits_lock);
    waits_push(&backup->over, write);
    sh_spin_release(&backup->waits_lock);
}

/* Puts it into its zone's list for its last mark; false: that is acknowledged. Where the log is out of service, it is over: nobody
 * looks at the list any more once sh_waits_fail has emptied it. */
static bool mark_await(struct sh_write *write)
{
    const struct sh_write_mark *mark = &write->marks[write->marks_count - 1];
    struct sh_own_zone *zone = mark->zone;
    enum sh_level level = write->level;
    bool waits = false, has_failed = false;
    if (atomic_load(&zone->acked[level]) > mark->number)
        return false;
    sh_spin_take(&zone->waits_lock);
    if (atomic_load(&zone->backup->trouble)) {
        has_failed = true;
    } else if (atomic_load(&zone->acked[level]) <= mark->number) {
        if (zone->wanted[level] <= mark->number)
            zone->wanted[level] = mark->number + 1;
        waits_insert(&zone->waits[level], write);
        waits = true;
    }
    sh_spin_release(&zone->waits_lock);
    if (has_failed) {
        over_push(zone->backup, write);
        zone->backup->config.wake(zone->backup->config.arg);
    } else if (waits) {
        sh_zone_dirty(zone);
    }
    return waits || has_failed;
}

/* The next zone that such a write has to wait for becomes its only mark. */
static bool all_next(struct sh_backup *backup, struct sh_write *write)
{
    struct sh_own_zones *zones = &backup->zones;
    uint64_t end = sh_zones_places(zones);
    while (write->is_all && write->zone_next < end) {
        struct sh_own_zone *zone = zones->all[write->zone_next++];
        if (!zone)
            continue;
        write->marks[0] = (struct sh_write_mark){zone, sh_backlog_next(&zone->backlog) - 1};
        write->marks_count = 1;
        return true;
    }
    return false;
}

/* Waits for the first of what it stands for that is not acknowledged; false: all of it is. */
static bool write_await(struct sh_backup *backup, struct sh_write *write)
{
    do {
        for (; write->marks_count; write->marks_count--) {
            if (mark_await(write))
                return true;
        }
    } while (all_next(backup, write));
    return false;
}

bool sh_write_wait(struct sh_backup *backup, struct sh_write *write,
                   void (*done)(void *arg, enum shoal_err err), void *arg)
{
    write->done = done;
    write->arg = arg;
    if (!write->marks_count && !write->is_all)
        return false;
    if (atomic_load(&backup->trouble)) {
        over_push(backup, write);
        backup->config.wake(backup->config.arg);
        return true;
    }
    if (write_await(backup, write))
        return true;
    guards_drop(backup, write);
    return false;
}

bool sh_write_was_refused(const struct sh_write *write)
{
    return write->was_refused;
}

void sh_backup_room_wait(struct sh_backup *backup, struct sh_write *write,
                         void (*done)(void *arg, enum shoal_err err), void *arg)
{
    write->done = done;
    write->arg = arg;
    write->is_for_room = true;
    sh_spin_take(&backup->waits_lock);
    bool has_come =
        atomic_load(&backup->rooms) != write->room_seen || atomic_load(&backup->trouble);
    waits_push(has_come ? &backup->over : &backup->room_waits, write);
    sh_spin_release(&backup->waits_lock);
    if (has_come)
        backup->config.wake(backup->config.arg);
}

void sh_zone_acked(struct sh_own_zone *zone, enum sh_level level, uint64_t number)
{
    struct sh_backup *backup = zone->backup;
    struct sh_write *write;
    if (atomic_load_explicit(&zone->acked[level], memory_order_relaxed) >= number)
        return;
    atomic_store(&zone->acked[level], number);
    sh_spin_take(&zone->waits_lock);
    struct sh_waits over = {0};
    while (zone->waits[level].first && number_of(zone->waits[level].first) < number)
        waits_push(&over, waits_pop(&zone->waits[level]));
    sh_spin_release(&zone->waits_lock);
    while ((write = waits_pop(&over)))
        over_push(backup, write);
}

void sh_waits_room(struct sh_backup *backup)
{
    sh_waits_room_by(backup, NULL);
}

void sh_waits_room_by(struct sh_backup *backup, struct sh_write *giver)
{
    struct sh_write *write;
    sh_spin_take(&backup->waits_lock);
    uint64_t before = atomic_fetch_add(&backup->rooms, 1);
    if (giver && giver->room_seen == before)
        giver->room_seen++; /* else others have given room, too, since it began */
    while ((write = waits_pop(&backup->room_waits)))
        waits_push(&backup->over, write);
    sh_spin_release(&backup->waits_lock);
}

void sh_waits_fail(struct sh_backup *backup)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_write *write;
    sh_waits_room(backup);
    for (uint64_t i = 0; i < sh_zones_places(zones); i++) {
        struct sh_own_zone *zone = zones->all[i];
        struct sh_waits over = {0};
        if (!zone)
            continue;
        sh_spin_take(&zone->waits_lock);
        for (unsigned level = 0; level < SH_LEVELS; level++) {
            while ((write = waits_pop(&zone->waits[level])))
                waits_push(&over, write);
        }
        sh_spin_release(&zone->waits_lock);
        while ((write = waits_pop(&over)))
            over_push(backup, write);
    }
}

static struct sh_write *over_pop(struct sh_backup *backup)
{
    sh_spin_take(&backup->waits_lock);
    struct sh_write *write = waits_pop(&backup->over);
    sh_spin_release(&backup->waits_lock);
    return write;
}

unsigned sh_waits_call(struct sh_backup *backup)
{
    struct sh_write *write;
    unsigned called = 0;
    while ((write = over_pop(backup))) {
        enum shoal_err err = atomic_load(&backup->trouble);
        bool is_for_room = write->is_for_room;
        write->is_for_room = false;
        if (!err && !is_for_room && write_await(backup, write))
            continue;
        /* The change of a failed write is in the store, and may be gone after a start: its readers are told, too,
         * as long as this process lives. */
        if (!is_for_room && !err)
            guards_drop(backup, write);
        write->done(write->arg, err); /* it may be gone from here on */
        called++;
    }
    return called;
}
