/* Sealing a zone: all that was written to it is there, is read and goes on; with crashes at every point, pieces, cleanings, and full disks. */
#include "log/inspect.h"
#include "log/replog_clean_int.h"
#include "log/replog_cut_test.h"

#define SEALED 0u
#define OTHER 1u
#define CHUNKS 120u
#define SMALL (16u * 65536)

struct told {
    unsigned times;
    uint64_t end;
    enum shoal_err err;
};

static void on_sealed(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct told *told = arg;
    assert_true(err || !sh_replog_zone_known(zone).is_added);
    *told = (struct told){told->times + 1, end, err};
}

static void seal_begin(unsigned zone, struct told *told)
{
    *told = (struct told){.times = 0};
    assert_int_equal(sh_replog_zone_seal(rig.zones[zone].zone, on_sealed, told), SHOAL_OK);
}

static void told_wait(const struct told *told)
{
    for (unsigned i = 0; !told->times; i++) {
        assert_true(i < 20000);
        rig_step(&rig, RIG_MS);
    }
    assert_int_equal(told->times, 1);
}

/* Seals a zone; where it ends. */
static uint64_t seal(unsigned zone)
{
    struct told told;
    uint64_t next = sh_replog_next(rig.zones[zone].zone);
    seal_begin(zone, &told);
    told_wait(&told);
    assert_int_equal(told.err, SHOAL_OK);
    assert_int_equal(told.end, next);
    return told.end;
}

/* A zone that is sealed has all, is added again and goes on; also for a start after that, with and without a power cut. */
static void goes_on(unsigned zone, uint64_t end, uint64_t bytes_max)
{
    assert_int_equal(taken_is_all(zone), end);
    zone_add_config(zone, rig_zone_config(zone, 1, end, bytes_max));
    append(zone, 3, 77777, 300);
    append(zone, 4, 77778, 0);
    sh_replog_sync(rig.zones[zone].zone);
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(sh_replog_durable(rig.zones[zone].zone), end + 2);
    start_again(end % 2);
    assert_int_equal(taken_is_all(zone), end + 2);
    start_again(true);
    assert_int_equal(taken_is_all(zone), end + 2);
    zone_add_config(zone, rig_zone_config(zone, 1, end + 2, bytes_max));
}

static void open_one(uint64_t bytes_max)
{
    rig_open(&rig);
    zone_add_config(SEALED, rig_zone_config(SEALED, 1, 0, bytes_max));
}

/* --- What there is to seal ----------------------------------------------------------------------- */

static void small_writes(unsigned zone)
{
    for (unsigned i = 0; i < 20; i++)
        append(zone, i, i + 1, 100);
}

/* Only memory has it, or the primary log; nothing is lost in it, and the zone's memory comes back. */
static void test_small(void **state)
{
    for (unsigned is_synced = 0; is_synced < 2; is_synced++) {
        open_one(SMALL);
        struct sh_replog_space before, after;
        small_writes(SEALED);
        if (is_synced)
            rig_sync(&rig, 1);
        sh_replog_space_get(rig.log, &before);
        uint64_t end = seal(SEALED);
        sh_replog_space_get(rig.log, &after);
        assert_int_equal(end, 20);
        assert_true(sh_replog_zone_known(rig.zones[SEALED].zone).has_slots);
        /* One slot of those that it might have had is kept for it, as for a zone that was found. */
        assert_int_equal((after.free - before.free) / 65536, SMALL / 65536 + 4 - 1);
        assert_int_equal(sh_version_pool_used(rig.log->tables), 0);
        assert_int_equal(status().buffer_used, 0);
        goes_on(SEALED, end, SMALL);
        (void)teardown(state);
        (void)setup(state);
    }
}

/* Of a zone to which nothing was written nothing is found; it may begin anywhere. */
static void test_nothing(void **state)
{
    (void)state;
    rig_open(&rig);
    zone_add_config(SEALED, rig_zone_config(SEALED, 1, 100, SMALL));
    assert_int_equal(seal(SEALED), 100);
    assert_false(sh_replog_zone_known(rig.zones[SEALED].zone).has_slots);
    zone_add_config(SEALED, rig_zone_config(SEALED, 1, 7, SMALL));
    append(SEALED, 1, 1, 100);
    assert_int_equal(seal(SEALED), 8);
    goes_on(SEALED, 8, SMALL);
}

/* Epochs end all the time, and the last one is ending. */
static void test_versions(void **state)
{
    for (unsigned more = 0; more < 40; more++) {
        rig.config.versions_max = 32;
        open_one(SMALL);
        for (unsigned i = 0; i < 200 + more; i++)
            append(SEALED, 2 * (i % 70), i + 1, 400);
        struct sh_replog_zone *zone = rig.zones[SEALED].zone;
        if (more % 3 == 0)
            rig_step(&rig, RIG_MS);
        if (more % 5 == 0)
            (void)sh_replog_epoch_end(zone);
        goes_on(SEALED, seal(SEALED), SMALL);
        (void)teardown(state);
        (void)setup(state);
    }
}

/* Appends so many pieces of a write of a chunk, with one of RIG_OF_ZONE. */
static void pieces_append(unsigned zone, unsigned chunk, uint32_t stamp, unsigned pieces)
{
    for (unsigned piece = 0; piece < pieces;) {
        struct sh_replog_write write = rig_write(&rig, chunk, stamp, 100000, piece);
        const struct sh_replog_write with = rig_write(&rig, RIG_OF_ZONE, stamp, 50, 0);
        write.with = piece ? NULL : &with;
        enum shoal_err err = sh_replog_append(rig.zones[zone].zone, &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        piece += !err;
        if (err)
            rig_step(&rig, RIG_MS);
    }
}

/* A chunk that is not complete is what it was: its pieces are in memory, in the primary log or in slots; or it has been abandoned. */
static void test_pieces(void **state)
{
    for (unsigned i = 0; i < 24; i++) {
        open_one(2 * SMALL);
        append(SEALED, 5, 1, 60000);
        append(SEALED, RIG_OF_ZONE, 2, 50);
        rig_sync(&rig, 1);
        pieces_append(SEALED, 5, 3, 1 + i / 4);
        for (unsigned steps = 0; steps < (i & 1 ? 200 : 0); steps++)
            rig_step(&rig, RIG_MS);
        if (i & 2)
            assert_int_equal(sh_replog_abandon(rig.zones[SEALED].zone), SHOAL_OK);
        uint64_t end = seal(SEALED);
        assert_int_equal(end, 2);
        goes_on(SEALED, end, 2 * SMALL);
        append(SEALED, 5, 8, 60000);
        goes_on(SEALED, seal(SEALED), 2 * SMALL);
        (void)teardown(state);
        (void)setup(state);
    }
}

/* Writes that go to slots at once, so that the primary log does not go on, until the zone has been cleaned so often. */
static void clean_for(unsigned zone, uint64_t slots, uint32_t *stamp)
{
    for (uint64_t until = status().slots_cleaned + slots; status().slots_cleaned < until;
         ++*stamp) {
        assert_true(*stamp < 20000);
        append(zone, 100 + *stamp % 8, *stamp, 16300);
        if (*stamp % 4 == 0)
            sh_replog_sync(rig.zones[zone].zone);
        rig_step(&rig, RIG_MS);
    }
}

/* Whether the zone has slots that were found, or taken before so many others. */
static bool has_slots_before(const struct sh_replog_zone *zone, uint32_t order)
{
    const struct sh_log_slot *slots = rig.log->slots.slots;
    uint32_t i = zone->slots.first;
    while (i != SH_SLOT_NONE && !slots[i].is_found && slots[i].order >= order)
        i = slots[i].next;
    return i != SH_SLOT_NONE;
}

/* Until all slots that the zone has now are gone. */
static void clean_all(unsigned zone, uint32_t *stamp)
{
    uint32_t order = rig.log->slots.taken;
    while (has_slots_before(rig.zones[zone].zone, order))
        clean_for(zone, 1, stamp);
}

/* The primary log still has pieces of a life that a seal has ended, when all that was found then is gone from slots, and another seal has ended the
 * life behind it: the next start does not take them for a chunk's newest version. */
static void test_pieces_in_the_ring(void **state)
{
    (void)state;
    uint32_t stamp = 10, lap;
    rig.config.primary_blocks = 1000;
    open_one(SMALL);
    lap = rig.log->lap;
    append(SEALED, 5, 1, 1000);
    pieces_append(SEALED, 5, 3, 1);
    for (unsigned i = 0; i < 200; i++)
        rig_step(&rig, RIG_MS);
    for (unsigned round = 0; round < 3; round++) {
        uint64_t end = seal(SEALED);
        assert_int_equal(taken_is_all(SEALED), end);
        zone_add_config(SEALED, rig_zone_config(SEALED, 1, end, SMALL));
        for (unsigned i = 0; i < 3; i++) /* the last cleaning of those before names their lives */
            clean_all(SEALED, &stamp);
    }
    rig_sync(&rig, 1);
    assert_true(rig.log->lap == lap && rig.log->primary_at > 1);
    assert_true(rig.zones[SEALED].zone->era <= lap + 1); /* below those of the next start */
    uint64_t end = sh_replog_next(rig.zones[SEALED].zone);
    start_again(true);
    assert_int_equal(taken_is_all(SEALED), end);
}

/* Damage of the last span is found by the load, though no span tells of it. */
static void test_damage_of_the_last(void **state)
{
    (void)state;
    open_one(SMALL);
    for (unsigned i = 0; i < 60; i++)
        append(SEALED, i, i + 1, 1000);
    (void)seal(SEALED);
    const struct sh_replog_zone *zone = rig.zones[SEALED].zone;
    const struct sh_log_slot *slot = &rig.log->slots.slots[zone->slots.first];
    uint64_t end = sh_log_slot_at(&rig.log->head, zone->slots.first) + slot->filled;
    assert_int_equal(rig_load(&rig, SEALED).err, SHOAL_OK);
    cut_of(rig.config.disk)->now[end - 4096] ^= 1;
    assert_int_equal(rig_load(&rig, SEALED).err, SHOAL_ECORRUPT);
}

/* --- While the zone is cleaned ------------------------------------------------------------------- */

static uint64_t holds_until, holds_seed;

/* Operations come to their ends a few steps later, so that a step ends in each phase of a cleaning. */
static bool holds_some(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return op->kind != SH_DISK_READ && test_draw(&holds_seed) % 4;
}

/* All but reads is held back until so many operations have been asked for again. */
static bool holds_a_while(const struct cut *cut, const struct sh_disk_op *op)
{
    return op->kind != SH_DISK_READ && cut->held_seen < holds_until;
}

/* In each phase of a cleaning, early or late in it. */
static void test_while_cleaning(void **state)
{
    const enum sh_replog_clean_phase phases[] = {LOADS_VERSIONS, COPIES, SETTLES, RECORDS, GIVES};
    for (unsigned i = 0; i < 50; i++) {
        enum sh_replog_clean_phase phase = phases[i % 5];
        rig.config.versions_max = i % 4 ? 256 : 32;
        open_one(SMALL);
        struct cut *cut = cut_of(rig.config.disk);
        uint32_t stamp = 0;
        cut->holds = holds_some;
        holds_seed = i + 1;
        for (; !rig.log->clean || rig.log->clean->phase != phase; stamp++) {
            unsigned chunk = stamp % CHUNKS;
            size_t size = 100 + stamp % 11 * 700;
            const struct sh_replog_write write = rig_write(&rig, chunk, stamp, size, 0);
            assert_true(stamp < 20000);
            enum shoal_err err = sh_replog_append(rig.zones[SEALED].zone, &write);
            assert_true(!err || err == SHOAL_EAGAIN);
            if (!err)
                rig_written(&rig, SEALED, chunk, stamp, size);
            if (stamp % 8 == 0)
                sh_replog_sync(rig.zones[SEALED].zone);
            rig_step(&rig, RIG_MS);
        }
        uint64_t cleaned = status().slots_cleaned;
        holds_until = cut->held_seen + i;
        cut->holds = holds_a_while;
        assert_int_equal(rig.log->clean->phase, phase);
        uint64_t end = seal(SEALED);
        assert_null(rig.log->clean);
        assert_int_equal(status().slots_cleaned > cleaned, phase == GIVES);
        cut->holds = NULL;
        goes_on(SEALED, end, SMALL);
        clean_for(SEALED, 20, &stamp);
        goes_on(SEALED, seal(SEALED), SMALL);
        (void)teardown(state);
        (void)setup(state);
    }
}

/* --- Crashes at every point ---------------------------------------------------------------------- */

static unsigned carried_out, may_be_carried_out;

static bool holds_later(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut, (void)op;
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

/* Two zones, with some of each in slots, and some that only the primary log or memory has; and pieces. */
static void two_zones(void)
{
    rig_open(&rig);
    for (unsigned zone = 0; zone < 2; zone++) {
        rig_zone_add(&rig, zone, 3, 0);
        for (unsigned i = 0; i < CHUNKS; i++)
            append(zone, i, i + zone, 600);
        rig_sync(&rig, zone + 1);
        for (unsigned i = 0; i < 10; i++)
            append(zone, i, 1000 + i, 100);
    }
    rig_sync(&rig, 2);
    append(SEALED, 11, 2000, 100);
    append(OTHER, 11, 2000, 100);
    pieces_append(SEALED, 12, 3000, 2);
}

/* Seals a zone, and crashes after so many operations; true: it had been told that it is sealed. */
static bool crash_after(unsigned operations, bool is_power_cut)
{
    struct told told;
    two_zones();
    struct sh_replog_zone *zone = rig.zones[SEALED].zone;
    uint64_t next = sh_replog_next(zone);
    seal_begin(SEALED, &told);
    carried_out = 0;
    may_be_carried_out = operations;
    cut_of(rig.config.disk)->holds = holds_later;
    uint64_t least = 0;
    for (unsigned i = 0; i < 300 && !told.times; i++) {
        least = is_power_cut ? sh_replog_durable(zone) : sh_replog_handed(zone);
        rig_step(&rig, RIG_MS);
    }
    least = told.times ? told.end : least;
    crash(is_power_cut);
    rig_open(&rig);
    struct rig_loaded loaded = rig_load(&rig, SEALED);
    assert_int_equal(loaded.err, SHOAL_OK);
    assert_true(loaded.end >= least && loaded.end <= next && loaded.end >= next - 1);
    if (loaded.end == next)
        assert_int_equal(taken_is_all(SEALED), next);
    start_again(is_power_cut);
    assert_int_equal(rig_load(&rig, SEALED).end, loaded.end);
    rig_zone_add(&rig, SEALED, 3, loaded.end);
    append(SEALED, 11, 2000, 100);
    (void)seal(SEALED);
    assert_int_equal(taken_is_all(SEALED), loaded.end + 1);
    return told.times;
}

static void crash_everywhere(bool is_power_cut)
{
    struct sh_replog_config config = rig.config;
    bool is_over = false;
    unsigned operations = 0;
    for (; !is_over; operations++) {
        assert_true(operations < 200);
        is_over = crash_after(operations, is_power_cut);
        shut();
        rig.config.disk->ops->destroy(rig.config.disk);
        memset(&rig, 0, sizeof rig);
        rig.now_ns = 1000 * RIG_MS;
        rig.config = config;
        rig.config.disk = cut_create((size_t)64 << 20);
    }
    assert_true(operations > 2);
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

/* Packs are synced later, and one is on its way: it is over before the zone is sealed. */
static bool holds_packs(const struct cut *cut, const struct sh_disk_op *op)
{
    (void)cut;
    return sh_disk_is_write(op) && op->offset < slots_at();
}

static void test_pack_is_awaited(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct told told;
    rig.config.syncs_later = true;
    open_one(SMALL);
    small_writes(SEALED);
    cut->holds = holds_packs;
    sh_replog_hand(rig.zones[SEALED].zone);
    rig_step(&rig, 0);
    assert_true(rig.log->is_packing);
    seal_begin(SEALED, &told);
    for (unsigned i = 0; i < 500; i++)
        rig_step(&rig, RIG_MS);
    assert_int_equal(sh_replog_durable(rig.zones[SEALED].zone), 20);
    assert_int_equal(told.times, 0);
    cut->holds = NULL;
    told_wait(&told);
    goes_on(SEALED, told.end, SMALL);
}

/* --- Beside others ------------------------------------------------------------------------------- */

static struct told chained;
static unsigned reads_begun;

/* Seals another zone, and reads this one. */
static void on_sealed_go_on(void *arg, struct sh_replog_zone *zone, uint64_t end,
                            enum shoal_err err)
{
    static struct rig_loaded loaded;
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(end, 120);
    assert_int_equal(sh_replog_zone_seal(arg, on_sealed, &chained), SHOAL_OK);
    reads_begun += !sh_replog_zone_load(zone, rig_on_loaded, &loaded);
}

static void test_several(void **state)
{
    (void)state;
    struct told told[RIG_ZONES];
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++) {
        zone_add_config(i, rig_zone_config(i, 1, 0, SMALL));
        for (unsigned j = 0; j < CHUNKS; j++)
            append(i, j, j + i, 100 + i * 100);
    }
    for (unsigned i = 1; i < RIG_ZONES - 1; i++)
        seal_begin(i, &told[i]);
    assert_int_equal(
        sh_replog_zone_seal(rig.zones[0].zone, on_sealed_go_on, rig.zones[RIG_ZONES - 1].zone),
        SHOAL_OK);
    chained.times = reads_begun = 0;
    told_wait(&chained);
    for (unsigned i = 1; i < RIG_ZONES - 1; i++) {
        told_wait(&told[i]);
        assert_int_equal(told[i].end, CHUNKS);
    }
    assert_int_equal(reads_begun, 1);
    for (unsigned i = 0; rig.log->load; i++)
        rig_step(&rig, RIG_MS);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        assert_int_equal(taken_is_all(i), CHUNKS);
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    (void)id;
    assert_int_equal(err, SHOAL_OK);
    ++*(unsigned *)arg;
}

/* What is refused meanwhile, and afterwards. */
static void test_refused(void **state)
{
    (void)state;
    struct told told;
    struct rig_loaded loaded;
    struct sh_replog_zone *other;
    unsigned dropped = 0;
    open_one(SMALL);
    small_writes(SEALED);
    struct sh_replog_zone *zone = rig.zones[SEALED].zone;
    const struct sh_replog_zone_config config = rig_zone_config(SEALED, 1, 20, SMALL);
    const struct sh_replog_write write = rig_write(&rig, 1, 2, 100, 0);
    seal_begin(SEALED, &told);
    assert_int_equal(sh_replog_append(zone, &write), SHOAL_EBUSY);
    assert_int_equal(sh_replog_abandon(zone), SHOAL_EBUSY);
    assert_int_equal(sh_replog_zone_grow(zone), SHOAL_EBUSY);
    assert_int_equal(sh_replog_zone_seal(zone, on_sealed, &told), SHOAL_EBUSY);
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &dropped), SHOAL_EBUSY);
    assert_int_equal(sh_replog_zone_load(zone, rig_on_loaded, &loaded), SHOAL_EBUSY);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &other), SHOAL_EBUSY);
    assert_true(sh_replog_zone_known(zone).is_added);
    told_wait(&told);
    assert_int_equal(sh_replog_zone_seal(zone, on_sealed, &told), SHOAL_EINVAL);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &other), SHOAL_EBUSY); /* not loaded */
    assert_int_equal(sh_replog_zone_load(zone, rig_on_loaded, &loaded), SHOAL_OK);
    assert_int_equal(sh_replog_zone_seal(zone, on_sealed, &told), SHOAL_EBUSY);
    while (rig.log->load)
        rig_step(&rig, RIG_MS);
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, &dropped), SHOAL_OK);
    assert_int_equal(sh_replog_zone_seal(zone, on_sealed, &told), SHOAL_EBUSY);
    while (sh_replog_zone_find(rig.log, rig_zone_id(SEALED)))
        rig_step(&rig, RIG_MS);
    assert_int_equal(dropped, 1);
    start_again(true);
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(SEALED)));
    assert_int_equal(told.times, 1);
}

/* The log goes out of service, before and meanwhile. */
static void test_trouble(void **state)
{
    (void)state;
    struct told told[2];
    two_zones();
    seal_begin(0, &told[0]);
    seal_begin(1, &told[1]);
    rig_step(&rig, 0);
    sh_replog_fail(rig.log, SHOAL_EIO);
    rig_step(&rig, RIG_MS);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(told[i].times, 1);
        assert_int_equal(told[i].err, SHOAL_EIO);
        assert_int_equal(told[i].end, 0);
    }
    assert_int_equal(sh_replog_zone_seal(rig.zones[0].zone, on_sealed, &told[0]), SHOAL_EBUSY);
}

/* A flush goes on with it, and a close ends it untold. */
static void test_flush_and_close(void **state)
{
    (void)state;
    struct told told;
    two_zones();
    uint64_t next = sh_replog_next(rig.zones[SEALED].zone);
    seal_begin(SEALED, &told);
    assert_int_equal(sh_replog_flush(rig.log), SHOAL_OK);
    shut();
    assert_true(!told.times || told.end == next);
    rig_open(&rig);
    assert_int_equal(taken_is_all(SEALED), next);
    rig_zone_add(&rig, SEALED, 3, next);
    append(SEALED, 1, 1, 100);
    seal_begin(SEALED, &told);
    shut();
    assert_int_equal(told.times, 0);
    rig_open(&rig);
}

/* The disk is full: the zone is sealed once there is room. */
static void test_full_disk(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    struct told told[RIG_ZONES];
    cut->limit = 1 + rig.config.primary_blocks + 200 * 16;
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++) {
        zone_add_config(i, rig_zone_config(i, 1, 0, SMALL));
        small_writes(i);
    }
    cut->limit = cut->used;             /* others have filled it up */
    while (rig.log->slots.free_count) { /* and the log's own slots are gone */
        uint32_t slot = sh_log_slots_free_take(&rig.log->slots);
        sh_log_slots_bare_add(&rig.log->slots, slot, true);
        for (uint64_t at = sh_log_slot_at(&rig.log->head, slot) / 4096, i = 0; i < 16; i++) {
            cut->used -= cut->backed[at + i];
            cut->limit -= cut->backed[at + i];
            cut->backed[at + i] = 0;
        }
    }
    for (unsigned i = 0; i < RIG_ZONES; i++)
        seal_begin(i, &told[i]);
    for (unsigned i = 0; i < 3000; i++)
        rig_step(&rig, RIG_MS);
    assert_true(status().is_full);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        assert_int_equal(told[i].times, 0);
    cut->limit += 400 * 16;
    for (unsigned i = 0; i < RIG_ZONES; i++) {
        told_wait(&told[i]);
        assert_int_equal(told[i].err, SHOAL_OK);
        assert_int_equal(taken_is_all(i), 20);
    }
}

/* --- By a model ---------------------------------------------------------------------------------- */

static void write_at_random(uint64_t *seed, unsigned zone, unsigned writes)
{
    for (unsigned i = 0; i < writes; i++) {
        uint64_t draw = test_draw(seed);
        unsigned chunk = (unsigned)(draw >> 8) % RIG_OF_ZONE;
        size_t size = 4 + (draw >> 40) % (chunk % 100 == 7 ? 40000 : 300);
        unsigned with = draw % 5 == 0 ? RIG_OF_ZONE + (unsigned)(draw >> 28) % 8 : RIG_ALONE;
        size = (draw >> 20) % 10 == 0 ? 0 : size;
        assert_int_equal(rig_append_with(&rig, zone, chunk, (uint32_t)(draw >> 33) | 1, size, with,
                                         4 + (draw >> 44) % 40),
                         SHOAL_OK);
        if ((draw >> 56) % 16 == 0)
            rig_step(&rig, (draw >> 50 & 63) * 5 * RIG_MS);
    }
}

/* Whoever looks at the file finds no damage either, and the same ends. */
static void file_is_sound(unsigned zones, const uint64_t *ends)
{
    struct sh_inspect *inspect;
    const struct sh_inspect_calls calls = {.slot = NULL};
    assert_int_equal(sh_inspect_open(rig.config.disk, "log", &inspect), SHOAL_OK);
    assert_int_equal(sh_inspect_read(inspect, 0, &calls), SHOAL_OK);
    assert_int_equal(sh_inspect_seen(inspect)->damaged, 0);
    for (unsigned i = 0; i < zones; i++)
        assert_int_equal(sh_inspect_zone_find(inspect, rig_zone_id(i))->whole, ends[i]);
    sh_inspect_close(inspect);
}

/* Zones that are written to, sealed, read and added again, in processes that end one way or the other, with short epochs and eons. */
static void seals_at_random(uint64_t seed)
{
    enum { ZONES = 3 };
    uint64_t ends[ZONES] = {0}, cleaned = 0;
    rig.zeros_one_in = 9;
    rig.config.versions_max = 64;
    rig.config.epoch_max = 64;
    rig.config.syncs_later = seed % 2;
    rig_open(&rig);
    for (unsigned process = 0; process < 6; process++) {
        for (unsigned i = 0; i < ZONES; i++)
            zone_add_config(i, rig_zone_config(i, 1, ends[i], 12 * 65536));
        for (unsigned i = 0; i < ZONES; i++)
            append(i, i, process + 1, 50); /* of a zone without any write nothing is found */
        for (unsigned round = 0; round < 12; round++) {
            uint64_t draw = test_draw(&seed);
            unsigned zone = (unsigned)draw % ZONES;
            write_at_random(&seed, zone, (unsigned)(draw >> 8) % 900);
            if (draw >> 20 & 1)
                continue;
            if (draw >> 21 & 1)
                pieces_append(zone, 7 + (unsigned)(draw >> 30) % 2 * 100, 1, 1 + (draw >> 24) % 6);
            ends[zone] = seal(zone);
            if (draw >> 22 & 1)
                assert_int_equal(rig_load(&rig, zone).end, ends[zone]);
            assert_int_equal(taken_is_all(zone), ends[zone]);
            zone_add_config(zone, rig_zone_config(zone, 1, ends[zone], 12 * 65536));
        }
        rig_sync(&rig, ZONES);
        cleaned += status().slots_cleaned;
        for (unsigned i = 0; i < ZONES; i++)
            ends[i] = sh_replog_next(rig.zones[i].zone);
        shut();
        if (process % 2)
            cut_power(cut_of(rig.config.disk));
        file_is_sound(ZONES, ends);
        rig_open(&rig);
        for (unsigned i = 0; i < ZONES; i++)
            assert_int_equal(taken_is_all(i), ends[i]);
    }
    assert_true(cleaned > 50);
}

static void test_model(void **state)
{
    uint64_t seed = test_seed(31);
    for (unsigned i = 0; i < 6; i++) {
        seals_at_random(test_draw(&seed));
        (void)teardown(state);
        (void)setup(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_small, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_versions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pieces_in_the_ring, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage_of_the_last, setup, teardown),
        cmocka_unit_test_setup_teardown(test_while_cleaning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_power_cuts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills, setup, teardown),
        cmocka_unit_test_setup_teardown(test_power_cuts_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_kills_synced_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_power_cuts_without_primary, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pack_is_awaited, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several, setup, teardown),
        cmocka_unit_test_setup_teardown(test_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_trouble, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush_and_close, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
