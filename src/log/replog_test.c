/* The log of replicas over a disk in memory: what was appended is in its file, as its format says. */
#include "log/replog_test.h"

#include "log/replog_int.h"

static struct rig rig;

static int setup(void **state)
{
    struct sh_disk *disk;
    (void)state;
    memset(&rig, 0, sizeof rig);
    rig.now_ns = 1000 * RIG_MS;
    if (sh_memory_disk_create(&disk))
        return -1;
    rig_config(&rig, disk);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_replog_close(rig.log);
    rig.config.disk->ops->destroy(rig.config.disk);
    return 0;
}

static void append(unsigned zone, unsigned chunk, uint32_t stamp, size_t size)
{
    assert_int_equal(rig_append(&rig, zone, chunk, stamp, size, false), SHOAL_OK);
}

/* Random writes and removals of some zones, small and large, with syncs and pauses between. */
static void write_at_random(uint64_t *seed, unsigned zones, unsigned writes)
{
    for (unsigned i = 0; i < writes; i++) {
        uint64_t draw = test_draw(seed);
        unsigned zone = (unsigned)(draw % zones), chunk = (unsigned)(draw >> 8) % RIG_CHUNKS;
        size_t size = 4 + (draw >> 40) % (draw >> 32 & 31 ? 100 : 16000);
        bool is_removal = (draw >> 20) % 10 == 0;
        bool is_pair = (draw >> 36) % 5 == 0 && chunk < RIG_OF_ZONE;
        unsigned with = is_pair ? RIG_OF_ZONE + (unsigned)(draw >> 28) % 8 : RIG_ALONE;
        size_t with_size = (draw >> 14) % 6 ? 4 + (draw >> 44) % 40 : 0;
        assert_int_equal(
            rig_append_with(&rig, zone, chunk, i, is_removal ? 0 : size, with, with_size),
            SHOAL_OK);
        if ((draw >> 56) % 50 == 0)
            rig_step(&rig, (draw >> 50 & 63) * 10 * RIG_MS);
        if ((draw >> 24) % 2000 == 0)
            rig_sync(&rig, zones);
    }
}

static void test_random(void **state)
{
    (void)state;
    uint64_t seed = test_seed(11);
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        rig_zone_add(&rig, i, 1, 100 * i);
    for (unsigned round = 0; round < 5; round++) {
        write_at_random(&seed, RIG_ZONES, 3000);
        rig_sync(&rig, RIG_ZONES);
        (void)rig_assert_all(&rig, RIG_ZONES);
    }
}

/* Two writes with one number, small and large; the one that is with the other is not too large. */
static void test_pairs(void **state)
{
    (void)state;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 50; i++) {
        size_t size = i % 3 == 0 ? 0 : i % 3 == 1 ? 50 : 40000;
        assert_int_equal(rig_append_with(&rig, 0, i, i, size, RIG_OF_ZONE + i % 8, 20), SHOAL_OK);
        assert_int_equal(sh_replog_next(rig.zones[0].zone), i + 1);
    }
    struct sh_replog_write write = rig_write(&rig, 5, 1, 16384, 0);
    struct sh_replog_write with = rig_write(&rig, RIG_OF_ZONE, 1, 8193, 0);
    write.with = &with;
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_ETOOBIG);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
    assert_int_equal(rig_append_with(&rig, 0, 5, 1, 16384, RIG_OF_ZONE, 8192), SHOAL_OK);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* Zeros take their headers' room, in memory and on the disk, whatever their size. */
static void test_zeros(void **state)
{
    (void)state;
    struct sh_replog_status status;
    rig.zeros_one_in = 1;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 500; i++)
        append(0, i, i, 10000);
    rig_sync(&rig, 1);
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.primary_bytes + status.slot_bytes, 4096);
    assert_int_equal(status.appended_bytes, 0);
    struct sh_replog_write write = {.local_id = 1,
                                    .creator = RIG_OWNER,
                                    .pieces = 1,
                                    .payload = {NULL, SH_REPLOG_ZEROS_MAX + 1}};
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_ETOOBIG);
    write.payload.size--;
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_OK);
    rig.zones[0].chunks[0].size = SH_REPLOG_ZEROS_MAX;
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* Small batches are packed and written once; later they go to slots, without having been packed again. */
static void test_two_levels(void **state)
{
    (void)state;
    struct sh_replog_status status;
    rig_open(&rig);
    for (unsigned i = 0; i < 3; i++)
        rig_zone_add(&rig, i, 1, 0);
    for (unsigned i = 0; i < 3; i++)
        append(i, 0, 1, 100);
    rig_step(&rig, 0);
    assert_int_equal(sh_replog_due_ns(rig.log), rig.now_ns + 100 * RIG_MS);
    rig_step(&rig, 99 * RIG_MS);
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.primary_writes + status.slot_writes, 0);
    assert_int_equal(status.appended, 3);
    assert_int_equal(status.appended_bytes, 300);
    assert_int_equal(status.buffer_used, 3 * 4096);
    rig_step(&rig, RIG_MS);
    rig_step(&rig, 0);
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.primary_writes, 1);
    assert_int_equal(status.primary_bytes, 4096);
    assert_int_equal(status.slot_writes, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_replog_durable(rig.zones[i].zone), 1);
    (void)rig_assert_all(&rig, 3);
    /* Somebody waits: at once. */
    append(0, 1, 2, 100);
    rig_sync(&rig, 1);
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.primary_writes, 2);
    /* A batch that is worth a write: it goes to a slot, with all that it has. */
    for (unsigned i = 2; sh_replog_next(rig.zones[0].zone) < 40; i++)
        append(0, i, 3, 500);
    rig_sync(&rig, 1);
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.slot_writes, 1);
    assert_int_equal(status.slot_bytes % 4096, 0);
    assert_true(status.slot_bytes >= 16 << 10);
    assert_int_equal(status.survivor_bytes + status.version_bytes, 0);
    (void)rig_assert_all(&rig, 3);
}

/* Without a primary log a small batch goes to a slot of its zone, to the one that is in use. */
static void test_one_level(void **state)
{
    (void)state;
    struct sh_replog_status status;
    rig.config.primary_blocks = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    rig_zone_add(&rig, 1, 1, 0);
    for (unsigned i = 0; i < 6; i++) {
        append(i % 2, i, i, 100);
        rig_sync(&rig, 2);
    }
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.primary_writes, 0);
    assert_int_equal(status.slot_writes, 6);
    assert_int_equal(status.slot_bytes, 6 * 4096);
    assert_int_equal(status.slots_free, status.slots - 2);
    (void)rig_assert_all(&rig, 2);
}

#define LAPPING 7

/* The primary log goes round many times, while each zone's batch stays small. */
static void test_laps(void **state)
{
    (void)state;
    struct sh_replog_status status;
    rig.config.batch_bytes = 60 << 10;
    rig.config.buffer_bytes = 16 << 20;
    rig_open(&rig);
    for (unsigned i = 0; i < LAPPING; i++)
        rig_zone_add(&rig, i, 1, 0);
    for (unsigned i = 0; i < 3000; i++) {
        append(i % LAPPING, i / LAPPING % RIG_CHUNKS, i, 64);
        rig_sync(&rig, LAPPING);
    }
    sh_replog_status_get(rig.log, &status);
    assert_true(status.primary_bytes > 5 * 512 * 4096);
    assert_true(status.slot_writes > 0 && status.slot_writes < 200);
    uint32_t lap = rig_assert_all(&rig, LAPPING)->last_lap;
    assert_true(lap > 5);
    /* Another process begins another lap. */
    sh_replog_close(rig.log);
    rig_open(&rig);
    rig_zone_add(&rig, LAPPING, 1, 0);
    append(LAPPING, 0, 9, 64);
    for (unsigned i = LAPPING; sh_replog_durable(rig.zones[i].zone) == 0;)
        rig_step(&rig, 20 * RIG_MS);
    assert_int_equal(rig_assert_all(&rig, LAPPING + 1)->last_lap, lap + 3);
}

/* A zone that is on the disk is loaded, and written to in another epoch. */
static void test_loaded(void **state)
{
    (void)state;
    uint64_t seed = test_seed(14), ends[RIG_ZONES];
    rig.config.versions_max = 1024;
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        rig_zone_add(&rig, i, 1, 5 * i);
    for (unsigned life = 0; life < 3; life++) {
        write_at_random(&seed, RIG_ZONES, 3000);
        rig_sync(&rig, RIG_ZONES);
        (void)rig_assert_all(&rig, RIG_ZONES);
        for (unsigned i = 0; i < RIG_ZONES; i++)
            ends[i] = sh_replog_next(rig.zones[i].zone);
        sh_replog_close(rig.log);
        rig_open(&rig);
        for (unsigned i = 0; i < RIG_ZONES; i++) {
            struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(i)), *added;
            const struct sh_replog_zone_config config = rig_zone_config(i, 1, 0, 1);
            assert_int_equal(sh_replog_zone_add(rig.log, &config, &added), SHOAL_EBUSY);
            struct rig_loaded loaded = rig_load(&rig, i);
            assert_int_equal(loaded.err, SHOAL_OK);
            assert_int_equal(loaded.end, ends[i]);
            rig_zone_add(&rig, i, 1, loaded.end);
            assert_int_equal(sh_replog_zone_load(zone, rig_on_loaded, &loaded), SHOAL_EBUSY);
        }
    }
}

/* What no slot has yet when the log is closed comes from the primary log. */
static void test_opened_again(void **state)
{
    (void)state;
    uint64_t seed = test_seed(12);
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        rig_zone_add(&rig, i, 1, 0);
    rig.zeros_one_in = 3;
    write_at_random(&seed, RIG_ZONES, 5000);
    rig_sync(&rig, RIG_ZONES);
    struct sh_replog_status before, after;
    sh_replog_status_get(rig.log, &before);
    sh_replog_close(rig.log);
    rig_open(&rig);
    sh_replog_status_get(rig.log, &after);
    assert_int_equal(after.zones, RIG_ZONES);
    assert_true(after.slot_writes >= RIG_ZONES && after.slots_free <= before.slots_free);
    for (unsigned i = 0; i < RIG_ZONES; i++) {
        rig.zones[i].zone = sh_replog_zone_find(rig.log, rig_zone_id(i));
        assert_non_null(rig.zones[i].zone);
        assert_int_equal(sh_replog_zone_id(rig.zones[i].zone), rig_zone_id(i));
    }
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(RIG_ZONES)));
    (void)rig_assert_all(&rig, RIG_ZONES);
    /* The next lap takes the place of what was there: the slots alone have everything. */
    int file;
    assert_int_equal(sh_disk_open(rig.config.disk, "log", false, &file), SHOAL_OK);
    for (unsigned i = 0; i < rig.config.primary_blocks; i++) {
        rig_zero(rig.config.disk, file, sh_log_primary_at() + (uint64_t)i * SH_SLOT_HEAD_BYTES);
    }
    rig.config.disk->ops->close(rig.config.disk, file);
    (void)rig_assert_all(&rig, RIG_ZONES);
}

static void test_foreign(void **state)
{
    (void)state;
    rig_open(&rig);
    sh_replog_close(rig.log);
    rig.log = NULL;
    rig.config.node++;
    assert_int_equal(sh_replog_open(&rig.config, 0, 0, &rig.log), SHOAL_ECLUSTER);
    rig.config.node--;
    rig.config.cluster++;
    assert_int_equal(sh_replog_open(&rig.config, 0, 0, &rig.log), SHOAL_ECLUSTER);
    rig.config.cluster--;
    rig.config.slots = 3; /* it has its own */
    rig_open(&rig);
    struct sh_replog_status status;
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.slots, 400);
}

static void assert_opens_as(uint64_t cluster, uint16_t node, enum shoal_err err)
{
    struct sh_replog_config config = rig.config;
    struct sh_replog *log = NULL;
    config.cluster = cluster;
    config.node = node;
    assert_int_equal(sh_replog_open(&config, 0, 0, &log), err);
    sh_replog_close(log);
}

/* A log may be made before there is a node whose log it is. */
static void test_of_nobody(void **state)
{
    (void)state;
    const uint64_t cluster = rig.config.cluster;
    const uint16_t node = rig.config.node;
    assert_true(cluster && node);
    assert_opens_as(0, 0, SHOAL_OK);
    assert_opens_as(0, 0, SHOAL_OK);
    rig.config.cluster = rig.config.node = 0;
    rig_open(&rig);
    assert_int_equal(sh_replog_name(rig.log, cluster, node), SHOAL_OK);
    assert_int_equal(sh_replog_name(rig.log, cluster, node), SHOAL_OK);
    assert_int_equal(sh_replog_name(rig.log, cluster, node + 1), SHOAL_ECLUSTER);
    assert_int_equal(sh_replog_name(rig.log, cluster + 1, node), SHOAL_ECLUSTER);
    sh_replog_close(rig.log);
    rig.log = NULL;
    assert_opens_as(cluster, node + 1, SHOAL_ECLUSTER);
    assert_opens_as(0, 0, SHOAL_ECLUSTER);
    assert_opens_as(cluster, node, SHOAL_OK);
}

/* A process that ended after it was told its name, and before its log was, gives that to it when it is started again. */
static void test_of_nobody_is_named(void **state)
{
    (void)state;
    const uint64_t cluster = rig.config.cluster;
    const uint16_t node = rig.config.node;
    assert_opens_as(0, 0, SHOAL_OK);
    assert_opens_as(cluster, node, SHOAL_OK);
    assert_opens_as(cluster, node + 1, SHOAL_ECLUSTER);
    assert_opens_as(0, 0, SHOAL_ECLUSTER);
    rig_open(&rig);
}

/* The log promises no more slots than it has; a zone whose chunks are all current has no more than it may have. Then there is an
 * error, what was acknowledged stays, and another zone goes on. */
static void test_full(void **state)
{
    (void)state;
    rig.config.slots = 24;
    rig_open(&rig);
    for (unsigned i = 0; i < 3; i++) {
        rig.zones[i].id = rig_zone_id(i);
        const struct sh_replog_zone_config config = rig_zone_config(i, 1, 0, 4 * 65536);
        assert_int_equal(sh_replog_zone_add(rig.log, &config, &rig.zones[i].zone),
                         i < 2 ? SHOAL_OK : SHOAL_ENOSPC);
    }
    enum shoal_err err = SHOAL_OK;
    struct sh_replog_status status;
    unsigned writes = 0;
    sh_replog_status_get(rig.log, &status);
    assert_int_equal(status.zones, 2); /* nothing is left of the one that was refused */
    assert_null(sh_replog_zone_find(rig.log, rig_zone_id(2)));
    for (; !err && writes < RIG_CHUNKS; writes++)
        err = rig_append(&rig, 0, writes, writes, 1000, false);
    assert_int_equal(err, SHOAL_ENOSPC);
    sh_replog_status_get(rig.log, &status);
    assert_true(status.slots_free >= 24 - 9);
    assert_true(writes > 5 * 55 && writes < 8 * 65);
    for (writes = 0; writes < 2000; writes++)
        append(1, writes % 50, writes, 1000);
    assert_int_equal(sh_replog_trouble(rig.log), SHOAL_OK);
    rig_sync(&rig, 2);
    (void)rig_assert_all(&rig, 2);
}

static void test_limits(void **state)
{
    (void)state;
    struct sh_replog_zone *zone;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 7);
    const struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 1);
    assert_int_equal(sh_replog_zone_add(rig.log, &config, &zone), SHOAL_EEXIST);
    assert_int_equal(sh_replog_next(rig.zones[0].zone), 7);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 7);
    append(0, 0, 1, 16384);
    static uint8_t payload[16385];
    struct sh_replog_write write = {
        .local_id = 2, .creator = RIG_OWNER, .pieces = 1, .payload = {payload, 16385}};
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_ETOOBIG);
    assert_int_equal(sh_replog_next(rig.zones[0].zone), 8);
    append(0, 1, 2, 16385);
    append(0, 2, 3, 1000000);
    assert_int_equal(sh_replog_next(rig.zones[0].zone), 10);
    /* Pieces come in their order, and nothing of the zone in between. */
    write = rig_write(&rig, 3, 4, 50000, 1);
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_EINVAL);
    write = rig_write(&rig, 3, 4, 50000, 0);
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_OK);
    const struct sh_replog_write wrong[] = {
        rig_write(&rig, 3, 4, 50000, 0), rig_write(&rig, 3, 4, 50000, 2),
        rig_write(&rig, 4, 4, 50000, 1), rig_write(&rig, 3, 4, 40000, 1),
        rig_write(&rig, 4, 4, 100, 0)};
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(sh_replog_append(rig.zones[0].zone, &wrong[i]), SHOAL_EINVAL);
    write = rig_write(&rig, 3, 4, 50000, 1);
    write.total++;
    assert_int_equal(sh_replog_append(rig.zones[0].zone, &write), SHOAL_EINVAL);
    for (unsigned piece = 1; piece < 4; piece++) { /* the last one ends where the chunk does */
        write = rig_write(&rig, 3, 4, 50000, piece);
        write.payload.size -= piece == 3;
        assert_int_equal(sh_replog_append(rig.zones[0].zone, &write),
                         piece == 3 ? SHOAL_EINVAL : SHOAL_OK);
    }
    assert_int_equal(sh_replog_next(rig.zones[0].zone), 10);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* Runs steps until no zone is being cleaned any more. */
static void rest(void)
{
    struct sh_replog_status before, after;
    unsigned idle = 0;
    sh_replog_status_get(rig.log, &before);
    for (unsigned i = 0; idle < 50; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
        sh_replog_status_get(rig.log, &after);
        idle = memcmp(&before, &after, sizeof before) ? 0 : idle + 1;
        before = after;
    }
}

/* The version log of a file that no crash has touched knows the newest of all chunks, but for the epoch that goes on. */
static void assert_versions_known(const struct rig *found, unsigned zones)
{
    for (unsigned z = 0; z < zones; z++) {
        const struct rig_zone *zone = &found->zones[z];
        for (unsigned i = 0; i < RIG_CHUNKS; i++)
            assert_true(!zone->chunks[i].is_there || zone->chunks[i].version.epoch == zone->epoch ||
                        zone->chunks[i].is_in_versions);
    }
}

/* Chunks that are written again and again need no more slots than the zone may have: what is superseded goes, what is
 * current stays, also over a start. */
static void clean_for_lives(size_t versions_max, uint64_t seed, uint64_t compactions,
                            uint64_t marks)
{
    struct sh_replog_status status;
    rig.config.versions_max = versions_max;
    rig.zeros_one_in = 5;
    rig_open(&rig);
    for (unsigned life = 0; life < 3; life++) {
        for (unsigned i = 0; i < 3; i++) {
            struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(i));
            uint64_t end = zone ? rig_load(&rig, i).end : 0;
            rig.zones[i].id = rig_zone_id(i);
            const struct sh_replog_zone_config config = rig_zone_config(i, 1, end, 24 * 65536);
            assert_int_equal(sh_replog_zone_add(rig.log, &config, &rig.zones[i].zone), SHOAL_OK);
        }
        for (unsigned round = 0; round < 10; round++) {
            write_at_random(&seed, 3, 3000);
            rig_sync(&rig, 3);
            (void)rig_assert_all(&rig, 3);
        }
        rest();
        if (life == 0)
            assert_versions_known(rig_assert_all(&rig, 3), 3);
        sh_replog_status_get(rig.log, &status);
        /* A slot that was given away is free for the next process, too. */
        assert_int_equal(rig_assert_all(&rig, 3)->slots, status.slots - status.slots_free);
        assert_true(status.slots_cleaned > 50);
        assert_true(status.compactions >= compactions && status.marks_dropped >= marks);
        assert_true(status.survivor_bytes > 0 && status.version_bytes > 0);
        assert_true(status.survivor_bytes + status.version_bytes < status.slot_bytes);
        assert_true(status.slots - status.slots_free < 3 * 30);
        sh_replog_close(rig.log);
        rig_open(&rig);
        (void)rig_assert_all(&rig, 3);
    }
}

static void test_cleaned(void **state)
{
    (void)state;
    clean_for_lives(512, test_seed(15), 0, 0);
}

/* The same with epochs that end all the time: the version log does not grow beyond what it needs. */
static void test_compacted(void **state)
{
    (void)state;
    clean_for_lives(32, test_seed(16), 10, 0);
}

/* Chunks come and go in turn, each removed once others have been written for a while, and never written again; all the time
 * epochs end, slots are cleaned, and marks of removals are dropped. Nothing that was removed comes back. */
static void test_removed(void **state)
{
    (void)state;
    enum { ZONES = 3, LASTING = 100, COMING = RIG_CHUNKS - LASTING };
    uint64_t seed = test_seed(19);
    struct sh_replog_status status;
    rig.config.primary_blocks = 0;
    rig.config.versions_max = 32;
    for (unsigned round = 0; round < 4; round++) {
        unsigned come[ZONES] = {0}, gone[ZONES] = {0};
        rig_open(&rig);
        memset(rig.zones, 0, sizeof rig.zones);
        for (unsigned i = 0; i < ZONES; i++) {
            rig.zones[i].id = rig_zone_id(i);
            const struct sh_replog_zone_config config = rig_zone_config(i, 1, 0, 12 * 65536);
            assert_int_equal(sh_replog_zone_add(rig.log, &config, &rig.zones[i].zone), SHOAL_OK);
        }
        for (unsigned i = 0; i < 40000; i++) {
            uint64_t draw = test_draw(&seed);
            unsigned zone = (unsigned)(draw % ZONES), what = (draw >> 8) % 32;
            unsigned chunk = COMING + (unsigned)(draw >> 16) % LASTING;
            bool is_removal = what == 1 && gone[zone] + 60 < come[zone];
            if (what == 0 && come[zone] < COMING)
                chunk = come[zone]++;
            else if (is_removal)
                chunk = gone[zone]++;
            assert_int_equal(rig_append(&rig, zone, chunk, i, 4 + (draw >> 40) % 300, is_removal),
                             SHOAL_OK);
            if ((draw >> 56) % 16 == 0)
                rig_step(&rig, 20 * RIG_MS);
        }
        rig_sync(&rig, ZONES);
        rest();
        (void)rig_assert_all(&rig, ZONES);
        sh_replog_status_get(rig.log, &status);
        assert_true(status.marks_dropped > 300 && status.slots_cleaned > 100);
        sh_replog_close(rig.log);
        rig.log = NULL;
        assert_int_equal(rig.config.disk->ops->remove(rig.config.disk, "log"), SHOAL_OK);
    }
}

static struct sh_chain hog;

/* Takes all memory for every other step. */
static void memory_take(struct rig *of)
{
    bool takes = test_draw(&rig_random_state) % 2;
    size_t bytes = SH_BLOCK_BYTES;
    while (takes && !sh_chain_reserve(of->log->blocks, &hog, bytes))
        bytes += SH_BLOCK_BYTES;
}

static void memory_give(struct rig *of)
{
    sh_chain_free(of->log->blocks, &hog);
}

/* What there is no memory for is done later, and not left out. */
static void test_short_of_memory(void **state)
{
    (void)state;
    rig.step_begin = memory_take;
    rig.step_end = memory_give;
    clean_for_lives(32, test_seed(18), 10, 0);
}

/* A small table of versions: epochs end all the time, and the version log is what the entries are. */
static void test_epochs(void **state)
{
    (void)state;
    uint64_t seed = test_seed(13);
    rig.config.versions_max = 64;
    rig_open(&rig);
    for (unsigned i = 0; i < RIG_ZONES; i++)
        rig_zone_add(&rig, i, 1, 0);
    for (unsigned round = 1; round <= 5; round++) {
        write_at_random(&seed, RIG_ZONES, 2000);
        rig_sync(&rig, RIG_ZONES);
        for (unsigned i = 0; i < 20; i++)
            rig_step(&rig, 50 * RIG_MS);
        const struct rig *found = rig_assert_all(&rig, RIG_ZONES);
        assert_true(found->flushes > 30 * round && found->flushes < 60 * round);
    }
}

/* As if the cleaner had given away all slots but those of the version log. */
static void entries_lose(void)
{
    static uint8_t block[SH_SLOT_HEAD_BYTES] __attribute__((aligned(4096)));
    struct sh_log_file head;
    struct sh_log_slot_head slot;
    int file;
    assert_int_equal(sh_disk_open(rig.config.disk, "log", false, &file), SHOAL_OK);
    rig_read(rig.config.disk, file, 0, block, sizeof block);
    assert_int_equal(sh_log_file_get(block, &head), SHOAL_OK);
    for (uint32_t i = 0; i < head.slots; i++) {
        rig_read(rig.config.disk, file, sh_log_slot_at(&head, i), block, sizeof block);
        if (!sh_log_slot_get(block, head.number, &slot) || slot.kind == SH_SLOT_VERSIONS)
            continue;
        rig_zero(rig.config.disk, file, sh_log_slot_at(&head, i));
    }
    rig.config.disk->ops->close(rig.config.disk, file);
}

/* Epochs and flushes count on from where the version log was, though no entry of them is left: or what is written next would
 * be older than it. */
static void test_epochs_go_on(void **state)
{
    (void)state;
    uint64_t seed = test_seed(17);
    rig.config.versions_max = 64;
    rig.config.primary_blocks = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    write_at_random(&seed, 1, 2000);
    rig_sync(&rig, 1);
    rest();
    struct rig_zone found = rig_assert_all(&rig, 1)->zones[0];
    assert_true(found.versions_epoch > 30 && found.flush >= 30);
    sh_replog_close(rig.log);
    entries_lose();
    rig_open(&rig);
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(0));
    (void)rig_load(&rig, 0);
    assert_int_equal(zone->epoch_seen, found.versions_epoch);
    assert_int_equal(zone->flushes, found.flush + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_pairs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zeros, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_levels, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_level, setup, teardown),
        cmocka_unit_test_setup_teardown(test_laps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_opened_again, setup, teardown),
        cmocka_unit_test_setup_teardown(test_loaded, setup, teardown),
        cmocka_unit_test_setup_teardown(test_foreign, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_nobody_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cleaned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_compacted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_short_of_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_epochs_go_on, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
