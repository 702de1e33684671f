/* The world of replog_crash_test.c and replog_flips_test.c: a log of three zones on a simulated disk, which lives several times, and a model of
 * what was written to it. */
#ifndef TESTS_REPLOG_CRASH_INT_H
#define TESTS_REPLOG_CRASH_INT_H

#include "log/replog_test.h"

#include "log/inspect.h"
#include "sim/image.h"
#include "sim/world.h"
#include "tests/disk_faults_int.h"
#include "tests/seed_int.h"

#define MS RIG_MS
#define LARGE 8u /* chunks that come in pieces */
#define LIVES 4
#define ZONES 3
#define WRITES_MAX 6000
#define PRIMARY_BLOCKS 300

struct written {
    unsigned chunk;
    bool is_removal;
    size_t size;
    unsigned with; /* or RIG_ALONE */
    size_t with_size;
};

struct run_kind {
    bool has_drops;    /* zones are dropped, and added again at once */
    bool fills;        /* the disk is full at times: others take what is left, and give it back */
    bool flips;        /* bits go bad: while the process is away, */
    uint32_t flip_ppm; /* or in so many of its writes, if not 0 */
    bool has_no_primary;
    uint16_t epoch_max; /* of an eon; 0: more than a test uses */
};

struct test {
    struct rig rig;
    struct sh_world *world;
    struct sh_prng prng;
    uint64_t seed;
    unsigned node;
    bool is_loaded;
    unsigned sync_one_in; /* writes */
    uint32_t batch_bytes;
    size_t versions_max;
    uint64_t zone_bytes;
    enum shoal_err opened;
    struct written written[ZONES][WRITES_MAX];
    unsigned pieces[ZONES]; /* of the next write that were appended */
    unsigned count[ZONES];
    uint64_t handed[ZONES], durable[ZONES];
    struct sh_prng modes; /* of what came later than the seeds that are fixed */
    bool syncs_later;
    /* Zones are dropped, and added again at once. */
    bool has_drops, is_dropping[ZONES];
    struct sh_prng drops;
    /* The disk is full at times: others take what is left, and give it back. */
    bool fills;
    struct sh_prng full;
    uint16_t epoch_max; /* of an eon; 0: more than a test uses */
    struct run_kind kind;
    struct sh_prng flips;
    bool is_flipped;             /* a bit has gone bad since the last life */
    uint64_t flipped_zone;       /* in a slot of that zone; 0: anywhere */
    bool was_flipped;            /* of any crash: what one has left may stay for long */
    bool seen_damaged;           /* by a look at the file before it is opened */
    uint32_t incarnation[ZONES]; /* but one; stamps tell whose write it was */
};

#define STAMPS_EACH 100000u /* of an incarnation */
#define DROP_ONE_IN 400     /* writes */

static unsigned all_cleaned, all_compactions, all_full, all_marks, all_writes, all_kept, all_packs,
    all_batches, all_flushes, all_troubles, all_handed, all_taken, all_abandoned, all_drops,
    all_drops_cut, all_refused, all_discards, all_eons, all_flips, all_told, all_ended_early,
    all_orphans, all_short;
static bool are_tables_short;

static inline uint64_t now_of(const struct test *test)
{
    return sh_now(&sh_world_env(test->world, test->node)->clock);
}

/* Of a fast clock, so that much happens between two of its seconds. */
static inline uint32_t seconds_of(const struct test *test)
{
    return (uint32_t)(now_of(test) / (10 * MS));
}

static inline unsigned log_step(void *arg)
{
    struct test *test = arg;
    const struct sh_version_pool *tables = test->rig.log->tables;
    all_short += sh_version_pool_used(tables) > sh_version_pool_bytes(tables) / 8 * 7;
    return sh_replog_step(test->rig.log, now_of(test), seconds_of(test));
}

static inline uint64_t log_due(void *arg)
{
    struct test *test = arg;
    return sh_replog_due_ns(test->rig.log);
}

static inline void on_handed(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct test *test = arg;
    unsigned number = (unsigned)(sh_replog_zone_id(zone) & 0xffff) - 1;
    assert_true(sequence > test->handed[number] && sequence <= test->count[number]);
    test->handed[number] = sequence;
}

static inline void on_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct test *test = arg;
    unsigned number = (unsigned)(sh_replog_zone_id(zone) & 0xffff) - 1;
    assert_true(sequence > test->durable[number] && sequence <= test->handed[number]);
    test->durable[number] = sequence;
}

static void look_harm(void *arg, const struct sh_inspect_place *place)
{
    struct test *test = arg;
    test->seen_damaged |= place->harm != SH_INSPECT_TORN;
    if (place->harm == SH_INSPECT_DAMAGED && !test->was_flipped)
        fail_msg(
            "seed %llu: of slot %u at %llu, which a crash has torn, a look says that it is damaged",
            (unsigned long long)test->seed, place->slot, (unsigned long long)place->offset);
}

/* Looks at the file as `shoal log verify` does: nothing that a crash has torn is called damaged. */
static inline void file_look(struct test *test)
{
    const struct sh_inspect_calls calls = {.harm = look_harm, .arg = test};
    struct sh_inspect *inspect;
    test->seen_damaged = false;
    if (sh_inspect_open(test->rig.config.disk, "log", &inspect))
        return; /* the first start */
    assert_int_equal(sh_inspect_read(inspect, 0, &calls), SHOAL_OK);
    sh_inspect_close(inspect);
}

static inline void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct test *test = arg;
    rig_config(&test->rig, sh_world_env(world, node)->disk);
    test->world = world;
    test->node = node;
    test->rig.config.random = sh_world_env(world, node)->random;
    test->rig.zeros_one_in = 20;
    test->rig.config.syncs_later = test->syncs_later;
    test->rig.config.handed = on_handed;
    test->rig.config.durable = on_durable;
    test->rig.config.arg = test;
    test->rig.config.slots = 250;
    test->rig.config.epoch_max = test->epoch_max;
    test->rig.config.slots_kept = test->fills ? 1 : 0; /* most that are free are discarded */
    test->rig.config.primary_blocks = test->kind.has_no_primary ? 0 : PRIMARY_BLOCKS;
    test->rig.config.batch_bytes = test->batch_bytes;
    test->rig.config.versions_max = test->versions_max;
    if (are_tables_short) { /* two of 256 slots, for all zones */
        test->rig.config.versions_max = 256;
        test->rig.config.tables_bytes = 1;
    }
    test->rig.config.buffer_bytes = 640 << 10;
    file_look(test);
    test->opened =
        sh_replog_open(&test->rig.config, now_of(test), seconds_of(test), &test->rig.log);
    if (test->opened) {
        test->rig.log = NULL;
        return;
    }
    sh_world_step_add(
        world, node,
        (struct sh_step){.name = "log", .run = log_step, .due_ns = log_due, .arg = test});
}

static inline void crash(void *arg, struct sh_world *world, unsigned node)
{
    struct test *test = arg;
    (void)world;
    (void)node;
    sh_replog_close(test->rig.log);
    test->rig.log = NULL;
}

/* A zone's next write: what the backup does not have from before a crash is sent again, as its owner does. */
static struct written *write_next(struct test *test, unsigned zone)
{
    struct sh_prng *prng = &test->prng;
    uint64_t number = sh_replog_next(test->rig.zones[zone].zone);
    struct written *written = &test->written[zone][number];
    if (number < test->count[zone] || number == WRITES_MAX || test->pieces[zone])
        return number == WRITES_MAX ? NULL : written;
    *written = (struct written){.chunk = (unsigned)sh_prng_below(prng, RIG_CHUNKS),
                                .is_removal = sh_prng_below(prng, 8) == 0};
    if (!written->is_removal)
        written->size = 4 + sh_prng_below(prng, written->chunk < LARGE ? 24000 : 200);
    bool is_pair = written->chunk < RIG_OF_ZONE && sh_prng_below(&test->modes, 6) == 0;
    written->with = is_pair ? RIG_OF_ZONE + (unsigned)sh_prng_below(&test->modes, 8) : RIG_ALONE;
    written->with_size = sh_prng_below(&test->modes, 8) ? 4 + sh_prng_below(&test->modes, 60) : 0;
    return written;
}

static inline uint32_t stamps_of(const struct test *test, unsigned zone)
{
    return test->incarnation[zone] * STAMPS_EACH;
}

static inline void zone_add(struct test *test, unsigned number, uint64_t first);

/* Nothing of the zone is left: it begins anew. */
static inline void zone_anew(struct test *test, unsigned zone)
{
    test->is_dropping[zone] = false;
    test->incarnation[zone]++;
    test->count[zone] = test->pieces[zone] = 0;
    test->handed[zone] = test->durable[zone] = 0;
}

static inline void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    struct test *test = arg;
    unsigned zone = (unsigned)(id & 0xffff) - 1;
    if (err)
        return;
    all_drops++;
    zone_anew(test, zone);
    zone_add(test, zone, 0);
}

/* Drops a zone now and then; true: it is being dropped. */
static inline bool zone_drop(struct test *test, unsigned zone)
{
    if (!test->has_drops || test->is_dropping[zone])
        return test->is_dropping[zone];
    if (sh_prng_below(&test->drops, DROP_ONE_IN))
        return false;
    enum shoal_err err = sh_replog_zone_drop(test->rig.zones[zone].zone, on_dropped, test);
    assert_true(!err || (err == SHOAL_EIO && sh_replog_trouble(test->rig.log)));
    test->is_dropping[zone] = !err;
    return true;
}

/* Writes to a zone, if the log takes it. */
static inline void act(struct test *test)
{
    unsigned zone = (unsigned)sh_prng_below(&test->prng, ZONES);
    if (zone_drop(test, zone))
        return;
    struct written *written = write_next(test, zone);
    if (!written)
        return;
    uint32_t number = (uint32_t)(written - test->written[zone]);
    uint32_t stamp = number + stamps_of(test, zone);
    if (test->pieces[zone] && sh_prng_below(&test->modes, 2) &&
        !sh_replog_abandon(test->rig.zones[zone].zone)) {
        test->pieces[zone] = 0;
        all_abandoned++;
        return;
    }
    struct sh_replog_write write =
        rig_write(&test->rig, written->chunk, stamp, written->size, test->pieces[zone]);
    struct sh_replog_write with;
    if (written->with != RIG_ALONE && !write.piece) {
        with = rig_write(&test->rig, written->with, stamp, written->with_size, 0);
        write.with = &with;
    }
    enum shoal_err err = sh_replog_append(test->rig.zones[zone].zone, &write);
    /* ENOSPC: what both a slot and the primary log had when there was a crash stays twice. */
    bool may_fail = err == SHOAL_EAGAIN || err == SHOAL_ENOSPC ||
                    (err == SHOAL_EIO && sh_replog_trouble(test->rig.log));
    all_full += err == SHOAL_ENOSPC;
    if (err && !may_fail)
        fail_msg("seed %llu: a write to zone %u: %s", (unsigned long long)test->seed, zone,
                 shoal_err_name(err));
    if (!err)
        test->pieces[zone] = (write.piece + 1) % write.pieces;
    if (!err && !test->pieces[zone] && number == test->count[zone])
        test->count[zone]++;
    if (sh_prng_below(&test->prng, test->sync_one_in) == 0)
        sh_replog_sync(test->rig.zones[zone].zone);
    else if (test->syncs_later && sh_prng_below(&test->modes, 2))
        sh_replog_hand(test->rig.zones[zone].zone);
}

/* Whether that write of a chunk is what was found of it: then it is good, and if it is durable, nothing before is. */
static inline void look_for(const struct test *test, unsigned zone, unsigned number, unsigned chunk,
                            size_t size, const struct rig_chunk *found, bool *is_good)
{
    const struct rig_chunk *is = &found[chunk];
    uint32_t stamp = rig_stamp(&test->rig, number + stamps_of(test, zone), size);
    /* The mark of a removal may have been dropped. */
    bool is_this = is->is_there ? is->is_removal == !size && is->size == size &&
                                      (is->is_removal || is->stamp == stamp)
                                : !size;
    if (number < test->durable[zone])
        is_good[chunk] = is_this; /* this, or a later one */
    else
        is_good[chunk] |= is_this;
}

/* The file has of each chunk one of its writes, and none before the last one that is durable. */
static inline void zone_check(const struct test *test, unsigned zone, const struct rig_chunk *found,
                              uint64_t seed)
{
    bool is_good[RIG_CHUNKS];
    for (unsigned i = 0; i < RIG_CHUNKS; i++)
        is_good[i] = !found[i].is_there;
    for (unsigned i = 0; i < test->count[zone]; i++) {
        const struct written *write = &test->written[zone][i];
        look_for(test, zone, i, write->chunk, write->size, found, is_good);
        if (write->with != RIG_ALONE)
            look_for(test, zone, i, write->with, write->with_size, found, is_good);
    }
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        if (!is_good[i])
            fail_msg("seed %llu: zone %u, chunk %u: a durable write is gone, or nobody wrote what "
                     "is there",
                     (unsigned long long)seed, zone, i);
        all_kept += found[i].is_there;
    }
}

/* A drop that was cut off: all of the zone is there, or nothing. */
static inline void drops_check(struct test *test)
{
    for (unsigned zone = 0; zone < ZONES; zone++) {
        all_drops_cut += test->is_dropping[zone];
        if (test->is_dropping[zone] && !sh_replog_zone_find(test->rig.log, rig_zone_id(zone)))
            zone_anew(test, zone);
        test->is_dropping[zone] = false;
    }
}

static inline void check(struct test *test, uint64_t seed)
{
    static struct rig found;
    rig_read_all(test->rig.config.disk, &found);
    drops_check(test);
    for (unsigned zone = 0; zone < ZONES; zone++)
        zone_check(test, zone, found.zones[zone].chunks, seed);
    all_flushes += found.flushes;
}

static inline void zone_add(struct test *test, unsigned number, uint64_t first)
{
    test->handed[number] = test->durable[number] = first; /* an open syncs what it finds */
    const struct sh_replog_zone_config config =
        rig_zone_config(number, test->incarnation[number] + 1, first, test->zone_bytes);
    assert_int_equal(sh_replog_zone_add(test->rig.log, &config, &test->rig.zones[number].zone),
                     SHOAL_OK);
}

/* All before `end` is there. */
static inline void on_loaded(void *arg, struct sh_replog_zone *zone, uint64_t end,
                             enum shoal_err err)
{
    struct test *test = arg;
    unsigned number = (unsigned)(sh_replog_zone_id(zone) & 0xffff) - 1;
    test->is_loaded = true;
    if (err)
        fail_msg("seed %llu: zone %u can't be loaded: %s", (unsigned long long)test->seed, number,
                 shoal_err_name(err));
    if (end < test->durable[number] || end > test->count[number])
        fail_msg("seed %llu: zone %u is whole up to %llu; of %u writes %llu were durable",
                 (unsigned long long)test->seed, number, (unsigned long long)end,
                 test->count[number], (unsigned long long)test->durable[number]);
    zone_add(test, number, end);
}

static inline bool is_loaded(void *arg)
{
    return ((struct test *)arg)->is_loaded;
}

static struct rig_taken taken;

static inline bool is_taken(void *arg)
{
    (void)arg;
    return taken.is_over;
}

/* After a write of a chunk with that stamp. */
static inline void model_put(const struct test *test, struct rig_chunk *chunk, uint32_t stamp,
                             size_t size)
{
    chunk->is_there = size;
    chunk->size = (uint32_t)size;
    chunk->stamp = rig_stamp(&test->rig, stamp, size);
}

/* Whether what was handed out of a zone is what its writes up to the end have made of it, and nothing else. Else it says so. */
static inline bool taken_check(const struct test *test, unsigned zone)
{
    bool is_well = true;
    static struct rig_chunk model[RIG_CHUNKS];
    memset(model, 0, sizeof model);
    for (unsigned i = 0; i < taken.end; i++) {
        const struct written *write = &test->written[zone][i];
        uint32_t stamp = stamps_of(test, zone) + i;
        model_put(test, &model[write->chunk], stamp, write->size);
        if (write->with != RIG_ALONE)
            model_put(test, &model[write->with], stamp, write->with_size);
    }
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        const struct rig_taken_chunk *is = &taken.chunks[i];
        bool is_same = model[i].is_there ? is->is_there && is->stamp == model[i].stamp &&
                                               is->total == model[i].size
                                         : !is->pieces;
        if (!is_same)
            print_message(
                "seed %llu: zone %u, chunk %u: write %u was read (%u bytes), of %llu the last "
                "one is %u (%u bytes)\n",
                (unsigned long long)test->seed, zone, i, is->stamp, is->bytes,
                (unsigned long long)taken.end, model[i].stamp, model[i].size);
        is_well &= is_same;
        all_taken += is->is_there;
    }
    return is_well;
}

static inline bool is_dropped(void *arg)
{
    const struct test *test = arg;
    bool is_over = true;
    for (unsigned i = 0; i < ZONES; i++)
        is_over &= !test->is_dropping[i];
    return is_over;
}

/* Whether a chunk that was handed out is what one of its writes has made of it. */
static inline bool was_written(const struct test *test, unsigned zone, unsigned chunk)
{
    const struct rig_taken_chunk *is = &taken.chunks[chunk];
    bool was = false;
    for (unsigned i = 0; i < test->count[zone] && !was; i++) {
        const struct written *write = &test->written[zone][i];
        uint32_t stamp = stamps_of(test, zone) + i;
        was = (write->chunk == chunk && write->size == is->total &&
               rig_stamp(&test->rig, stamp, write->size) == is->stamp) ||
              (write->with == chunk && write->with_size == is->total &&
               rig_stamp(&test->rig, stamp, write->with_size) == is->stamp);
    }
    return was;
}

static inline void zone_drop_now(struct test *test, unsigned number)
{
    struct sh_replog_zone *zone = sh_replog_zone_find(test->rig.log, rig_zone_id(number));
    test->is_dropping[number] = true;
    assert_int_equal(sh_replog_zone_drop(zone, on_dropped, test), SHOAL_OK);
    assert_true(sh_world_run_until(test->world, is_dropped, test, SH_NEVER));
}

/* Bits may have gone bad. Either the zone is as its acknowledged writes have made it, or its owner is told: by the error, or as less is there
 * than was acknowledged. Then the owner has another replica, and this one is dropped. Nothing wrong is handed out. */
static inline void zone_judge(struct test *test, unsigned number)
{
    struct sh_replog_zone *zone = sh_replog_zone_find(test->rig.log, rig_zone_id(number));
    assert_true(taken.err == SHOAL_OK || taken.err == SHOAL_ECORRUPT);
    if (sh_replog_zone_known(zone).incarnation < test->incarnation[number] + 1) {
        /* The mark of a drop is damaged, and nothing was written to the zone since: its owner sees which incarnation it is. */
        assert_true(test->is_flipped);
        all_orphans++;
        zone_drop_now(test, number);
        return;
    }
    bool is_told = taken.err || taken.end < test->durable[number];
    bool may_be =
        test->is_flipped && (!test->flipped_zone || test->flipped_zone == rig_zone_id(number));
    if (is_told && !may_be)
        fail_msg("seed %llu: zone %u is damaged by its log's word (end %llu of %llu)",
                 (unsigned long long)test->seed, number, (unsigned long long)taken.end,
                 (unsigned long long)test->durable[number]);
    if (taken.err && !test->seen_damaged)
        fail_msg("seed %llu: a look at the file has not seen the damage of zone %u",
                 (unsigned long long)test->seed, number);
    for (unsigned i = 0; i < RIG_CHUNKS; i++) {
        if (taken.chunks[i].is_there && !was_written(test, number, i))
            fail_msg("seed %llu: zone %u, chunk %u: nobody wrote what is there",
                     (unsigned long long)test->seed, number, i);
    }
    bool is_well = !is_told && taken_check(test, number);
    if (!is_told && !is_well)
        fail_msg("seed %llu: zone %u is damaged, and nobody is told",
                 (unsigned long long)test->seed, number);
    all_told += taken.err != SHOAL_OK;
    all_ended_early += is_told && !taken.err;
    if (is_well) {
        on_loaded(test, zone, taken.end, SHOAL_OK);
        return;
    }
    zone_drop_now(test, number);
}

static inline void zone_read(struct test *test, unsigned number)
{
    bool drops = sh_prng_below(&test->modes, 2);
    rig_take_begin(&test->rig, number, sh_prng_next(&test->modes), drops, &taken);
    assert_true(sh_world_run_until(test->world, is_taken, test, SH_NEVER));
    if (test->kind.flips) {
        zone_judge(test, number);
        return;
    }
    assert_int_equal(taken.err, SHOAL_OK);
    on_loaded(test, sh_replog_zone_find(test->rig.log, rig_zone_id(number)), taken.end, SHOAL_OK);
    if (!taken_check(test, number))
        fail();
}

static inline void zone_begin(struct test *test, unsigned number)
{
    test->pieces[number] = 0;
    struct sh_replog_zone *zone = sh_replog_zone_find(test->rig.log, rig_zone_id(number));
    test->is_loaded = false;
    if (!zone) {
        assert_true(test->is_flipped || !test->durable[number]);
        zone_anew(test, number);
        zone_add(test, number, 0);
        return;
    }
    if (test->kind.flips || sh_prng_below(&test->modes, 3)) {
        zone_read(test, number);
        return;
    }
    assert_int_equal(sh_replog_zone_load(zone, on_loaded, test), SHOAL_OK);
    assert_true(sh_world_run_until(test->world, is_loaded, test, SH_NEVER));
}

/* From now on the disk has room for only so many slots, which may be fewer than there are; or for all again. */
static inline void fill(struct test *test, const struct sh_disk_faults *faults)
{
    struct sh_disk_faults now = *faults;
    if (sh_prng_below(&test->full, 3))
        now.quota_bytes = 4096 * UINT64_C(301) + sh_prng_below(&test->full, 60) * 65536;
    sh_world_disk_faults_set(test->world, &now);
}

static inline void life_run(struct test *test, const struct sh_disk_faults *faults)
{
    for (unsigned i = 0; i < ZONES; i++)
        zone_begin(test, i);
    sh_world_disk_faults_set(test->world, faults);
    unsigned acts = (unsigned)sh_prng_below(&test->prng, 2000);
    for (unsigned i = 0; i < acts; i++) {
        act(test);
        if (test->fills && sh_prng_below(&test->full, 150) == 0)
            fill(test, faults);
        if (sh_prng_below(&test->prng, 8) == 0)
            (void)sh_world_run_until(test->world, NULL, NULL,
                                     sh_world_now(test->world) +
                                         sh_prng_below(&test->prng, 3 * MS));
    }
    struct sh_replog_status status;
    sh_replog_status_get(test->rig.log, &status);
    all_packs += (unsigned)status.primary_writes;
    all_batches += (unsigned)status.slot_writes;
    all_cleaned += (unsigned)status.slots_cleaned;
    all_compactions += (unsigned)status.compactions;
    all_marks += (unsigned)status.marks_dropped;
    all_troubles += sh_replog_trouble(test->rig.log) != SHOAL_OK;
    all_refused += (unsigned)status.refused;
    all_discards += (unsigned)status.discards;
    all_eons += (unsigned)status.eons;
    if (sh_replog_trouble(test->rig.log) && !faults->write_err_ppm)
        fail_msg("seed %llu: a disk that is full has put the log out of service",
                 (unsigned long long)test->seed);
    for (unsigned i = 0; i < ZONES; i++)
        all_writes += test->count[i];
}

/* A block of the file, which ends with one. */
static inline void block_read(const struct sh_image *file, uint64_t at,
                              uint8_t block[SH_SLOT_HEAD_BYTES])
{
    memset(block, 0, SH_SLOT_HEAD_BYTES);
    if (at + SH_SLOT_HEAD_BYTES <= file->size)
        sh_image_read(file, at, block, SH_SLOT_HEAD_BYTES);
}

/* The byte of a block that is flipped: one that is not zero, so that it matters, from there on. */
static inline void byte_flip(struct test *test, const struct sh_image *file, uint64_t at)
{
    uint8_t block[SH_SLOT_HEAD_BYTES];
    unsigned first = (unsigned)sh_prng_below(&test->flips, sizeof block);
    block_read(file, at, block);
    for (unsigned i = 0; i < sizeof block; i++) {
        unsigned byte = (first + i) % sizeof block;
        if (!block[byte])
            continue;
        sh_world_disk_flip(test->world, test->node, "log",
                           8 * (at + byte) + sh_prng_below(&test->flips, 8));
        test->is_flipped = true;
        return;
    }
}

/* A bit goes bad in what the disk has: in the primary log, or in a slot in use, often in what was written there last; or a bit in each of both
 * copies of a slot's head. */
static inline void flip(struct test *test)
{
    const struct sh_image *file = sh_world_disk_file(test->world, test->node, "log");
    const struct sh_log_file head = {.slot_bytes = test->rig.config.slot_bytes,
                                     .slots = test->rig.config.slots,
                                     .primary_blocks = test->rig.config.primary_blocks};
    uint8_t bytes[SH_SLOT_HEAD_BYTES];
    if (head.primary_blocks && sh_prng_below(&test->flips, 3) == 0) {
        byte_flip(test, file,
                  sh_log_primary_at() +
                      sh_prng_below(&test->flips, head.primary_blocks) * SH_SLOT_HEAD_BYTES);
        return;
    }
    uint32_t first = (uint32_t)sh_prng_below(&test->flips, head.slots);
    for (uint32_t i = 0; i < head.slots; i++) {
        uint64_t slot = sh_log_slot_at(&head, (first + i) % head.slots);
        uint64_t end = head.slot_bytes - SH_SLOT_HEAD_BYTES;
        block_read(file, slot, bytes);
        if (!sh_load32(bytes))
            continue;
        if (sh_prng_below(&test->flips, 10) == 0) {
            for (unsigned copy = 0; copy < 2; copy++)
                sh_world_disk_flip(test->world, test->node, "log",
                                   8 * (slot + 2048 * copy) + sh_prng_below(&test->flips, 8 * 56));
            test->is_flipped = true;
            return;
        }
        for (bool is_zero = true; is_zero && end; end -= is_zero ? SH_SLOT_HEAD_BYTES : 0) {
            block_read(file, slot + end, bytes);
            is_zero = !sh_load32(bytes);
        }
        block_read(file, slot, bytes);
        test->flipped_zone = sh_load64(bytes + 8); /* slot.c */
        uint64_t blocks = end / SH_SLOT_HEAD_BYTES;
        if (!blocks)
            return;
        uint64_t back = sh_prng_below(&test->flips, sh_prng_below(&test->flips, 2) ? 2 : blocks);
        back = back < blocks ? back : 0;
        byte_flip(test, file, slot + (blocks - back) * SH_SLOT_HEAD_BYTES);
        return;
    }
}

static inline void run_as(uint64_t seed, const struct run_kind *kind)
{
    static struct test test;
    memset(&test, 0, sizeof test);
    test.kind = *kind;
    test.fills = kind->fills;
    test.epoch_max = kind->epoch_max;
    test.flips = sh_prng_make(~seed ^ UINT64_C(1) << 62);
    test.full = sh_prng_make(seed ^ UINT64_C(1) << 62);
    test.has_drops = kind->has_drops;
    test.drops = sh_prng_make(seed ^ UINT64_C(1) << 63);
    struct sh_prng prng = sh_prng_make(seed);
    struct sh_disk_faults faults = disk_faults_draw(&prng, 3, 3000, 10000), calm = faults;
    calm.write_err_ppm = calm.sync_err_ppm = calm.again_ppm = 0;
    faults.flip_ppm = kind->flip_ppm;
    test.seed = seed;
    test.sync_one_in = sh_prng_below(&prng, 2) ? 2 : 20;
    test.batch_bytes = sh_prng_below(&prng, 2) ? 16 << 10 : 56 << 10;
    test.zone_bytes = sh_prng_below(&prng, 2) ? 6 * 65536 : 70 * 65536;
    test.versions_max = sh_prng_below(&prng, 2) ? 32 : 4096;
    if (kind->epoch_max)
        test.versions_max = 16;
    test.prng = sh_prng_split(&prng);
    test.modes = sh_prng_make(~seed);
    test.syncs_later = sh_prng_below(&test.modes, 2);
    struct sh_world_config config = {.seed = sh_prng_next(&prng), .disk = calm};
    test.world = sh_world_create(&config);
    struct sh_world_node node = {.boot = boot, .crash = crash, .arg = &test};
    test.node = sh_world_node_add(test.world, &node);
    for (unsigned life = 0; life < LIVES; life++) {
        assert_int_equal(test.opened, SHOAL_OK);
        life_run(&test, &faults);
        calm.keeps_done = sh_prng_below(&test.modes, 2);
        sh_world_disk_faults_set(test.world, &calm);
        sh_world_crash(test.world, test.node);
        for (unsigned i = 0; calm.keeps_done && i < ZONES; i++) {
            all_handed += (unsigned)(test.handed[i] - test.durable[i]);
            test.durable[i] = test.handed[i];
        }
        test.is_flipped = kind->flip_ppm;
        test.flipped_zone = 0;
        test.was_flipped |= test.is_flipped;
        if (kind->flips && !kind->flip_ppm && sh_prng_below(&test.flips, 4)) {
            flip(&test);
            all_flips += test.is_flipped;
            test.was_flipped |= test.is_flipped;
        }
        sh_world_restart(test.world, test.node);
        assert_int_equal(test.opened, SHOAL_OK);
        if (kind->flips)
            drops_check(&test);
        else
            check(&test, seed);
    }
    if (kind->flips) { /* what the last crash has left */
        for (unsigned i = 0; i < ZONES; i++)
            zone_begin(&test, i);
    }
    sh_replog_close(test.rig.log);
    sh_world_destroy(test.world);
}

#endif
