/* Dropping a zone: with crashes at every point, with and without a primary log; what was dropped does not come back, and what is added
 * again does. */
#include "log/replog_cut_test.h"

#define DROPPED 0u
#define OTHER 1u
#define FORMER 2u
#define CHUNKS 120u

struct told {
    unsigned times;
    uint64_t id;
    enum shoal_err err;
};

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    struct told *told = arg;
    told->times++;
    told->id = id;
    told->err = err;
}

static void drop(unsigned zone, struct told *told)
{
    *told = (struct told){.times = 0};
    assert_int_equal(
        sh_replog_zone_drop(sh_replog_zone_find(rig.log, rig_zone_id(zone)), on_dropped, told),
        SHOAL_OK);
}

/* Whether the table that people are shown has the zone. */
static bool is_listed(unsigned zone)
{
    struct sh_replog_look_zone looks[3];
    uint64_t cursor = 0;
    do {
        size_t count = sh_replog_look_zones(rig.log, &cursor, looks, 3);
        for (size_t i = 0; i < count; i++) {
            if (looks[i].id == rig_zone_id(zone))
                return true;
        }
    } while (cursor);
    return false;
}

static void drop_wait(unsigned zone)
{
    struct told told;
    drop(zone, &told);
    assert_true(is_listed(zone)); /* until it is dropped */
    for (unsigned i = 0; !told.times; i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(told.times, 1);
    assert_int_equal(told.id, rig_zone_id(zone));
    assert_int_equal(told.err, SHOAL_OK);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(zone)));
    assert_false(is_listed(zone));
    memset(&rig.zones[zone], 0, sizeof rig.zones[zone]);
}

/* Two zones, with some of each in slots, and some that only the primary log has, all of it durable. */
static void two_zones(void)
{
    rig_open(&rig);
    for (unsigned zone = 0; zone < 2; zone++) {
        rig_zone_add(&rig, zone, 3, 0);
        for (unsigned i = 0; i < CHUNKS; i++)
            append(zone, i, i + zone, 600);
        rig_sync(&rig, 2 - (zone == 0));
        for (unsigned i = 0; i < 10; i++)
            append(zone, i, 1000 + i, 100);
    }
    rig_sync(&rig, 2);
}

/* --- Crashes at every point ---------------------------------------------------------------------- */

static unsigned carried_out, may_be_carried_out;

/* Only so many operations come to an end. */
static bool holds_later(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    (void)op;
    return carried_out++ >= may_be_carried_out;
}

/* The process ends, and the operations that the test holds back are lost: a log that is closed would carry them out. */
static void crash(bool is_power_cut)
{
    struct cut *cut = cut_of(rig.config.disk);
    cut->count = 0;
    rig.log->in_flight = 0;
    shut();
    if (is_power_cut)
        cut_power(cut);
}

/* All of the zone is there, with its newest chunks; or nothing is. Returns which. */
static bool zone_is_whole(uint64_t end)
{
    bool is_there = sh_replog_zone_find(rig.log, rig_zone_id(DROPPED));
    if (is_there) {
        struct rig_loaded loaded = rig_load(&rig, DROPPED);
        assert_int_equal(loaded.err, SHOAL_OK);
        assert_int_equal(loaded.end, end);
    } else {
        memset(&rig.zones[DROPPED], 0, sizeof rig.zones[DROPPED]);
    }
    (void)rig_assert_all(&rig, 2);
    return is_there;
}

/* Drops a zone, and crashes after so many operations; true: it had been told that it is dropped. */
static bool crash_after(unsigned operations, bool is_power_cut, bool *is_there_out)
{
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    two_zones();
    uint64_t end = sh_replog_next(rig.zones[DROPPED].zone);
    drop(DROPPED, &told);
    carried_out = 0;
    may_be_carried_out = operations;
    cut->holds = holds_later;
    for (unsigned i = 0; i < 300 && !told.times; i++)
        rig_step(&rig, RIG_MS);
    crash(is_power_cut);
    rig_open(&rig);
    *is_there_out = zone_is_whole(end);
    /* The next start finds the same. */
    start_again(is_power_cut);
    assert_int_equal(zone_is_whole(end), *is_there_out);
    return told.times;
}

static void crash_everywhere(bool is_power_cut)
{
    struct sh_replog_config config = rig.config;
    unsigned there = 0, gone = 0;
    bool is_over = false;
    for (unsigned operations = 0; !is_over; operations++) {
        bool is_there;
        assert_true(operations < 200);
        is_over = crash_after(operations, is_power_cut, &is_there);
        assert_true(!is_over || !is_there);
        assert_true(!gone || !is_there); /* once the mark is on the disk it stays gone */
        there += is_there;
        gone += !is_there;
        shut();
        rig.config.disk->ops->destroy(rig.config.disk);
        memset(&rig, 0, sizeof rig);
        rig.now_ns = 1000 * RIG_MS;
        rig.config = config;
        rig.config.disk = cut_create((size_t)64 << 20);
    }
    assert_true(there > 0 && gone > 2);
}

static void test_power_cuts(void **state)
{
    (void)state;
    crash_everywhere(true);
}

static void test_kills(void **state)
{
    (void)state;
    crash_everywhere(false);
}

/* Packs are synced later, and so is the mark: nothing is given away before. */
static void test_power_cuts_synced_later(void **state)
{
    (void)state;
    rig.config.syncs_later = true;
    crash_everywhere(true);
}

static void test_kills_synced_later(void **state)
{
    (void)state;
    rig.config.syncs_later = true;
    crash_everywhere(false);
}

static void test_power_cuts_without_primary(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    crash_everywhere(true);
}

static void test_kills_without_primary(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    crash_everywhere(false);
}

/* The mark is held back: no slot is touched before it is on the disk. */
static bool holds_primary(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind == SH_DISK_WRITE_SYNC;
}

static void test_mark_comes_first(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    two_zones();
    uint64_t end = sh_replog_next(rig.zones[DROPPED].zone);
    drop(DROPPED, &told);
    cut->holds = holds_primary;
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    assert_true(cut->held_seen > 0);
    assert_int_equal(told.times, 0);
    crash(true);
    rig_open(&rig);
    assert_true(zone_is_whole(end));
}

static unsigned slots_touched;

/* Syncs are held back. */
static bool holds_syncs(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    slots_touched += sh_disk_is_write(op) && op->offset >= sh_log_slot_at(&rig.log->head, 0);
    return op->kind == SH_DISK_SYNC;
}

/* Packs are synced later: nor is a slot touched while the mark is only handed. */
static void test_mark_is_synced_first(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    rig.config.syncs_later = true;
    two_zones();
    rig_sync(&rig, 2);
    uint64_t end = sh_replog_next(rig.zones[DROPPED].zone);
    uint64_t packs = rig.log->status.primary_writes;
    drop(DROPPED, &told);
    slots_touched = 0;
    cut->holds = holds_syncs;
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    assert_true(cut->held_seen > 0 && rig.log->status.primary_writes > packs);
    assert_int_equal(slots_touched, 0);
    assert_int_equal(told.times, 0);
    crash(true);
    rig_open(&rig);
    assert_true(zone_is_whole(end));
}

static bool holds_zeros(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return sh_disk_is_write(op) && op->offset >= sh_log_slot_at(&rig.log->head, 0);
}

/* The power fails once the mark is on the disk, and tears the zeros that were to take the place of a slot's head, both copies of it: the zone is
 * gone, and the slot free. */
static void test_torn_zeros(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    two_zones();
    const struct sh_replog_zone *zone = rig.zones[DROPPED].zone;
    uint64_t head_at = sh_log_slot_at(&rig.log->head, zone->slots.first);
    drop(DROPPED, &told);
    cut->holds = holds_zeros;
    for (unsigned i = 0; !cut->held_seen; i++) {
        assert_true(i < 1000);
        rig_step(&rig, RIG_MS);
    }
    crash(true);
    cut->now[head_at + 10] ^= 1;
    cut->now[head_at + 2048 + 37] ^= 1;
    rig_open(&rig);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    assert_int_equal(status().slots_lost, 0);
    shut();
    rig_open(&rig);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    assert_int_equal(status().slots_lost, 0);
}

/* --- Zones that are added again -------------------------------------------------------------- */

static void zone_add_refused(uint32_t incarnation, enum shoal_err err)
{
    const struct sh_replog_zone_config config =
        rig_zone_config(DROPPED, incarnation, 7, 20 * 65536);
    struct sh_replog_zone *zone;
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &zone), err);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
}

static void added_again(void)
{
    two_zones();
    drop_wait(DROPPED);
    zone_add_refused(2, SHOAL_EINVAL);
    zone_add_refused(3, SHOAL_EINVAL);
    /* Its numbers begin in the midst of what it had. */
    zone_add_config(DROPPED, rig_zone_config(DROPPED, 4, 7, 20 * 65536));
    for (unsigned i = 0; i < 5; i++)
        append(DROPPED, 300 + i, i, 50);
    rig_sync(&rig, 2);
    start_again(true);
    assert_int_equal(rig_load(&rig, DROPPED).end, 12);
    (void)rig_assert_all(&rig, 2);
    zone_add_config(DROPPED, rig_zone_config(DROPPED, 4, 12, 20 * 65536));
    assert_int_equal(rig.zones[DROPPED].zone->life, 2);
    for (unsigned i = 0; i < 2000; i++)
        append(DROPPED, 300 + i % 100, i, 700);
    rig_sync(&rig, 1);
    drop_wait(DROPPED); /* of an incarnation that a start found */
    shut();
    rig_open(&rig);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    assert_int_equal(rig_load(&rig, OTHER).err, SHOAL_OK);
    (void)rig_assert_all(&rig, 2);
    zone_add_config(DROPPED, rig_zone_config(DROPPED, 5, 0, 20 * 65536));
    append(DROPPED, 1, 1, 10);
    rig_sync(&rig, 1);
}

static void test_added_again(void **state)
{
    (void)state;
    added_again();
}

static void test_added_again_without_primary(void **state)
{
    (void)state;
    rig.config.primary_blocks = 0;
    added_again();
}

/* A start on these bytes has nothing of the zone. */
static void assert_gone_in(const uint8_t *bytes, size_t size)
{
    struct cut *cut = cut_of(rig.config.disk);
    static struct rig other;
    other = rig;
    other.config.disk = cut_create(cut->room);
    struct cut *copy = cut_of(other.config.disk);
    memcpy(copy->now, bytes, size);
    copy->size = size;
    rig_open(&other);
    assert_null(sh_replog_zone_find(other.log, rig_zone_id(DROPPED)));
    sh_replog_close(other.log);
    other.config.disk->ops->destroy(other.config.disk);
}

static uint8_t *torn;
static uint64_t mark_at;
static unsigned torn_count;

/* A write over the mark, of which all or only the later blocks got to the disk, and of what is not synced nothing else, and then the power
 * failed: a row of crashes. */
static bool tears(const struct cut *cut, const struct sh_disk_op *op)
{
    bool is_over = op->offset <= mark_at && mark_at < op->offset + op->size;
    if (!sh_disk_is_write(op) || !is_over)
        return false;
    torn_count++;
    uint64_t each = (op->size / 4096 + 5) / 6 * 4096;
    for (uint64_t lost = 0; lost < op->size; lost += each) {
        memcpy(torn, cut->stable, cut->stable_size);
        sh_disk_gather(op, torn + op->offset);
        memcpy(torn + op->offset, cut->stable + op->offset, lost);
        assert_gone_in(torn, cut->stable_size);
    }
    return false;
}

/* A zone of which only the primary log has something, behind other zones' in a lap: neither a crash nor a torn write of the laps to come
 * brings it back. */
static void laps(uint64_t from_block, size_t size)
{
    struct cut *cut = cut_of(rig.config.disk);
    rig.config.primary_blocks = 1024;
    torn = malloc(cut->room);
    rig_open(&rig);
    rig_zone_add(&rig, OTHER, 1, 0);
    for (unsigned i = 0; rig.log->primary_at < from_block; i++) {
        append(OTHER, i % CHUNKS, i, 4000);
        rig_step(&rig, 101 * RIG_MS);
    }
    rig_zone_add(&rig, DROPPED, 1, 0);
    for (unsigned i = 0; i < 3; i++) {
        append(DROPPED, 1, 1, 4000);
        rig_sync(&rig, 2);
    }
    assert_int_equal(rig.zones[DROPPED].zone->slots.count, 0);
    /* Near a lap's end the mark becomes the first of the next one. */
    while (from_block > 760 && rig.log->primary_at % 1024 <= 768) {
        append(OTHER, 1, 1, 10);
        rig_sync(&rig, 2);
    }
    drop_wait(DROPPED);
    uint32_t lap = rig.log->lap;
    mark_at = sh_log_primary_at() + (rig.log->primary_at % 1024 - 1) * 4096;
    torn_count = 0;
    cut->holds = tears;
    for (unsigned i = 0; rig.log->lap < lap + 2 || !torn_count; i++) {
        append(OTHER, i % CHUNKS, i, size);
        if (i % 3 == 0) {
            if (rig.config.syncs_later)
                sh_replog_hand(rig.zones[OTHER].zone);
            else
                sh_replog_sync(rig.zones[OTHER].zone);
            rig_step(&rig, RIG_MS);
            rig_step(&rig, RIG_MS);
        }
    }
    assert_gone_in(cut->stable, cut->stable_size);
    free(torn);
}

static void test_laps(void **state)
{
    (void)state;
    laps(7, 4000);
    assert_true(mark_at > sh_log_primary_at() + 2 * 4096);
}

/* The mark is the first of its lap. */
static void test_lap_of_mark(void **state)
{
    (void)state;
    laps(764, 4000);
    assert_int_equal(mark_at, sh_log_primary_at());
}

/* Writes for which there is no room before the mark. */
static void test_laps_of_large(void **state)
{
    (void)state;
    laps(2, 12000);
}

/* The spans before the mark in its lap are on the disk before the mark is overwritten. */
static void test_laps_synced_later(void **state)
{
    (void)state;
    rig.config.syncs_later = true;
    laps(40, 4000);
}

static void test_lap_of_mark_synced_later(void **state)
{
    (void)state;
    rig.config.syncs_later = true;
    laps(764, 4000);
    assert_int_equal(mark_at, sh_log_primary_at());
}

static unsigned heads_zeroed;

/* Of the slots that are given away, all but the first. */
static bool holds_given(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    bool is_head = op->kind == SH_DISK_WRITE && op->size == SH_SLOT_HEAD_BYTES &&
                   op->offset >= sh_log_slot_at(&rig.log->head, 0);
    return is_head && heads_zeroed++ > 0;
}

/* A disk is slow to give the zone's slots away, and others write so much meanwhile that laps of the primary log would go over the mark. Some slots are
 * given away, and the power fails: none of the others is found. */
static void laps_meanwhile(bool syncs_later, bool is_second)
{
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    rig.config.primary_blocks = is_second ? 512 : 256; /* in 256 each pack begins a lap */
    rig.config.syncs_later = syncs_later;
    two_zones();
    if (is_second) {
        rig_zone_add(&rig, FORMER, 1, 0);
        append(FORMER, 1, 1, 100);
        rig_sync(&rig, 3);
        drop_wait(FORMER);
    }
    uint64_t former = rig.log->primary_at - 1; /* its mark */
    assert_true(rig.zones[DROPPED].zone->slots.count > 1);
    drop(DROPPED, &told);
    heads_zeroed = 0;
    cut->holds = holds_given;
    for (unsigned i = 0; is_second && rig.log->primary_at < former + 2; i++) { /* the next mark */
        assert_true(i < 1000);
        rig_step(&rig, RIG_MS);
    }
    for (unsigned i = 0; i < 400; i++) {
        bool is_over_it = is_second && rig.log->primary_at % 512 == former % 512;
        append(OTHER, i % CHUNKS, i, is_over_it ? 6000 : 20);
        sh_replog_sync(rig.zones[OTHER].zone);
        rig_step(&rig, RIG_MS);
    }
    assert_true(heads_zeroed > 1);
    assert_int_equal(told.times, 0);
    crash(true);
    rig_open(&rig);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    assert_int_equal(rig_load(&rig, OTHER).err, SHOAL_OK);
}

static void test_laps_meanwhile(void **state)
{
    (void)state;
    laps_meanwhile(false, false);
}

static void test_laps_meanwhile_synced_later(void **state)
{
    (void)state;
    laps_meanwhile(true, false);
}

/* The mark of a drop that has ended lies before the one that is needed, and packs are larger than a block. */
static void test_laps_over_a_row_of_marks(void **state)
{
    (void)state;
    laps_meanwhile(false, true);
}

/* --- Whatever the zone is doing ------------------------------------------------------------------ */

/* Slots of several incarnations, and a zone that was only found. */
static void test_found(void **state)
{
    (void)state;
    two_zones();
    uint64_t end = sh_replog_next(rig.zones[DROPPED].zone);
    shut();
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, DROPPED).end, end);
    zone_add_config(DROPPED, rig_zone_config(DROPPED, 5, end, 40 * 65536));
    for (unsigned i = 0; i < 200; i++)
        append(DROPPED, i, i, 700);
    rig_sync(&rig, 1);
    shut();
    rig_open(&rig);
    drop_wait(DROPPED);
    zone_add_refused(5, SHOAL_EINVAL);
    start_again(true);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    (void)rig_assert_all(&rig, 2);
}

static enum shoal_err take_nothing(void *arg, struct sh_replog_zone *zone,
                                   const struct sh_replog_item *item)
{
    (void)arg, (void)zone, (void)item;
    return SHOAL_ENOMEM;
}

static void taken_nothing(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)zone, (void)end, (void)err;
    *(unsigned *)arg += 1;
}

/* A zone is not read while it is dropped, nor dropped while it is read. */
static void test_read(void **state)
{
    (void)state;
    struct told told;
    unsigned is_over = 0;
    two_zones();
    shut();
    rig_open(&rig);
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(DROPPED));
    const struct sh_replog_read read = {
        .take = take_nothing, .done = taken_nothing, .arg = &is_over};
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_OK);
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &told), SHOAL_EBUSY);
    unsigned steps = 0;
    while (!is_over) {
        assert_true(steps++ < 10000);
        rig_step(&rig, RIG_MS);
    }
    memset(&told, 0, sizeof told);
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &told), SHOAL_OK);
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_EBUSY);
    for (unsigned i = 0; !told.times; i++) {
        assert_true(i < 10000);
        rig_step(&rig, RIG_MS);
    }
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(DROPPED)));
    assert_int_equal(is_over, 1);
}

/* While it is cleaned, an epoch ends, and writes are in memory: all that it had is free again, and the log rests. */
static void test_busy(void **state)
{
    (void)state;
    uint64_t state_of = test_seed(5);
    rig.config.versions_max = 64;
    for (unsigned round = 0; round < 40; round++) {
        rig.config.syncs_later = round % 4 > 1;
        rig.config.slots_kept = rig.config.slots; /* nothing is discarded later */
        rig_open(&rig);
        rig_zone_add(&rig, OTHER, 1, 0);
        zone_add_config(DROPPED, rig_zone_config(DROPPED, 1, 0, 8 * 65536));
        struct sh_replog_status before = status();
        unsigned writes = 300 + (unsigned)(test_draw(&state_of) % 2500);
        for (unsigned i = 0; i < writes; i++)
            append(DROPPED, (unsigned)(test_draw(&state_of) % 100), i, 4 + i % 900);
        if (round % 2)
            sh_replog_sync(rig.zones[DROPPED].zone);
        struct told told;
        struct sh_replog_zone *zone = rig.zones[DROPPED].zone;
        struct rig_loaded loaded;
        const struct sh_replog_write write = rig_write(&rig, 1, 1, 10, 0);
        drop(DROPPED, &told);
        assert_int_equal(sh_replog_append(zone, &write), SHOAL_EBUSY);
        assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &told), SHOAL_EBUSY);
        assert_int_equal(sh_replog_zone_load(zone, rig_on_loaded, &loaded), SHOAL_EBUSY);
        sh_replog_sync(zone);
        sh_replog_hand(zone);
        for (unsigned i = 0; !told.times; i++) {
            assert_true(i < 10000);
            rig_step(&rig, RIG_MS);
        }
        for (unsigned i = 0; i < 300; i++)
            rig_step(&rig, RIG_MS);
        struct sh_replog_status after = status();
        assert_int_equal(after.slots_free, before.slots_free);
        assert_int_equal(after.buffer_used, 0);
        assert_int_equal(after.zones, 1);
        assert_int_equal(after.zones_dropped, 1);
        assert_int_equal(rig.log->waiting, 0);
        assert_int_equal(rig.log->waiting_handed, 0);
        assert_ptr_equal(sh_replog_zone_below(rig.log, UINT64_MAX), rig.zones[OTHER].zone);
        assert_true(sh_replog_due_ns(rig.log) == UINT64_MAX);
        append(OTHER, 1, 1, 100);
        memset(&rig.zones[DROPPED], 0, sizeof rig.zones[DROPPED]);
        sh_replog_sync(rig.zones[OTHER].zone);
        rig_step(&rig, 100 * RIG_MS);
        for (unsigned i = 0; i < 5; i++) /* a pack, and a sync */
            rig_step(&rig, 0);
        assert_int_equal(sh_replog_durable(rig.zones[OTHER].zone), 1);
        (void)teardown(NULL);
        (void)setup(NULL);
        rig.config.versions_max = 64;
    }
}

/* While another zone is written to without end: the mark gets its turn, as do several zones that are dropped. */
static void test_under_load(void **state)
{
    (void)state;
    struct told told[4];
    rig_open(&rig);
    for (unsigned zone = 0; zone < 5; zone++) {
        rig_zone_add(&rig, zone, 1, 0);
        for (unsigned i = 0; i < 50; i++)
            append(zone, i, i, 400);
    }
    rig_sync(&rig, 5);
    for (unsigned zone = 0; zone < 4; zone++)
        drop(zone, &told[zone]);
    for (unsigned i = 0; !told[3].times; i++) {
        assert_true(i < 2000);
        append(4, i % CHUNKS, i, 100);
        sh_replog_sync(rig.zones[4].zone);
        rig_step(&rig, RIG_MS);
    }
    for (unsigned zone = 0; zone < 4; zone++) {
        assert_int_equal(told[zone].times, 1);
        memset(&rig.zones[zone], 0, sizeof rig.zones[zone]);
    }
    rig_step(&rig, RIG_MS);
    rig_step(&rig, RIG_MS);
    shut();
    rig_open(&rig);
    (void)rig_assert_all(&rig, 5);
}

/* While it is loaded it is refused; a log that is closed meanwhile forgets whom it was to tell. */
static void test_refused(void **state)
{
    (void)state;
    struct told told = {.times = 0};
    struct rig_loaded loaded = {.is_over = false};
    two_zones();
    shut();
    rig_open(&rig);
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(DROPPED));
    assert_int_equal(sh_replog_zone_load(zone, rig_on_loaded, &loaded), SHOAL_OK);
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &told), SHOAL_EBUSY);
    while (!loaded.is_over)
        rig_step(&rig, RIG_MS);
    drop(DROPPED, &told);
    shut();
    assert_int_equal(told.times, 0);
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, DROPPED).end, loaded.end);
}

/* Of dropped zones the log remembers no more than a start could find marks of, and the batches made for them serve others. */
static void test_forgets(void **state)
{
    (void)state;
    const uint64_t id = rig_zone_id(6);
    rig_open(&rig);
    unsigned most = 0, batches = 0;
    for (unsigned i = 0; i < 2000; i++) {
        struct told told = {.times = 0};
        struct sh_replog_zone_config config = rig_zone_config(6, 1 + i, 0, 4 * 65536);
        struct sh_replog_zone *zone;
        config.id = i % 5 ? id + 16 + i : id; /* one is added again and again */
        assert_int_equal(sh_replog_zone_add(rig.log, &config, &zone), SHOAL_OK);
        assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &told), SHOAL_OK);
        while (!told.times)
            rig_step(&rig, RIG_MS);
        config.incarnation = 1 + i;
        assert_int_equal(sh_replog_zone_add(rig.log, &config, &zone), SHOAL_EINVAL);
        most = rig.log->fenced_count > most ? rig.log->fenced_count : most;
    }
    for (struct sh_replog_batch *batch = rig.log->batches; batch; batch = batch->next_made)
        batches++;
    assert_true(rig.log->lap > 6 && most > 3 * 200 && most <= 5 * 256u);
    assert_true(batches <= SH_REPLOG_SPARE + most + 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_power_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills, setup, teardown),
        cmocka_unit_test_setup_teardown(test_power_cuts_without_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills_without_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mark_comes_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_mark_is_synced_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_torn_zeros, setup, teardown),
        cmocka_unit_test_setup_teardown(test_added_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_added_again_without_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lap_of_mark, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps_of_large, setup, teardown),
        cmocka_unit_test_setup_teardown(test_power_cuts_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lap_of_mark_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps_meanwhile_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps_over_a_row_of_marks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_busy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_under_load, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forgets, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
